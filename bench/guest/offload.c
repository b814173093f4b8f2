/*
 * The guest program of the suite `offload`: six tasks in memory, each by processes of its own, timed from
 * the fork of the first to the end of the last. Every call is a trap as the C library makes it.
 *
 *     task_0   ROUNDS calls each of getpid and getppid
 *     task_1   SCANS times: reads a directory of FILES files, and the status of each of them
 *     task_2   `busybox wc` over the same files, TOTAL_KIB of words
 *     task_3, task_4, task_5   two of task_0, task_1, task_2 at once
 *
 * For the model of caches and TLBs task 0 is region 1, and so on. `offload few` does a tenth of everything,
 * which is enough for that, and slow enough.
 */
#include "case.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>

enum { ROUNDS = 250000, SCANS = 100, FILES = 1200, TOTAL_KIB = 44000 };
enum { FILE_BYTES = TOTAL_KIB * 1024 / FILES, NAME_BYTES = 16, COPIES = 2 };

/* Parts of everything: FEW are done with `few`. */
enum { PARTS = 10, FEW = 1 };

static char names[FILES][NAME_BYTES];
static int parts = PARTS;

static void make_files(void)
{
    static const char words[] = "a ferry carries calls to the other core\n";
    static char text[FILE_BYTES];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = words[i % (sizeof words - 1)];
    if (mkdir("/tmp/offload", 0755) != 0 || chdir("/tmp/offload") != 0)
        case_fail("/tmp/offload");
    for (int i = 0; i < FILES; i++) {
        snprintf(names[i], NAME_BYTES, "file-%04d", i);
        int file = open(names[i], O_WRONLY | O_CREAT | O_EXCL, 0644);
        if (file < 0 || write(file, text, sizeof text) != (ssize_t)sizeof text || close(file) != 0)
            case_fail(names[i]);
    }
}

static void call(void)
{
    for (int i = 0; i < ROUNDS / PARTS * parts; i++)
        if (syscall(SYS_getpid) < 0 || syscall(SYS_getppid) < 0)
            _exit(1);
}

static void look(void)
{
    struct stat status;
    for (int scan = 0; scan < SCANS / PARTS * parts; scan++) {
        int found = 0;
        DIR *directory = opendir(".");
        struct dirent *entry;
        if (!directory)
            _exit(1);
        while ((entry = readdir(directory))) {
            if (entry->d_name[0] == '.')
                continue;
            if (stat(entry->d_name, &status) != 0 || status.st_size != FILE_BYTES)
                _exit(1);
            found++;
        }
        closedir(directory);
        if (found != FILES)
            _exit(1);
    }
}

static void count_words(void)
{
    static char *arguments[FILES + 3] = {"busybox", "wc"};
    for (int i = 0; i < FILES / PARTS * parts; i++)
        arguments[i + 2] = names[i];
    int null = open("/dev/null", O_WRONLY);
    if (null < 0 || dup2(null, 1) != 1)
        _exit(1);
    execv("/bin/busybox", arguments);
    _exit(127);
}

/* Times so many processes that do the work at once, each with so many calls if that is known. */
static void measure(int number, void (*work)(void), int copies, double calls)
{
    char name[16];
    pid_t children[COPIES];
    snprintf(name, sizeof name, "task_%d", number);
    case_count();
    case_mark_begin_region(number + 1);
    double start_ns = case_clock_ns();
    for (int i = 0; i < copies; i++) {
        children[i] = fork();
        if (children[i] < 0)
            case_fail("fork");
        if (children[i] == 0) {
            work();
            _exit(0);
        }
    }
    for (int i = 0; i < copies; i++) {
        int status;
        if (waitpid(children[i], &status, 0) != children[i] || status != 0) {
            fprintf(stderr, "a process of %s ended with %#x\n", name, status);
            case_fail(name);
        }
    }
    double end_ns = case_clock_ns();
    case_mark_end();
    case_counted(name, calls / PARTS * parts * copies);
    case_print(name, "", "ms", (end_ns - start_ns) / 1e6);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    double calls = 2 * ROUNDS, looks = SCANS * (double)FILES;
    case_begin(what);
    if (strcmp(what, "few") == 0)
        parts = FEW;
    make_files();
    measure(0, call, 1, calls);
    measure(1, look, 1, looks);
    measure(2, count_words, 1, 0);
    measure(3, call, COPIES, calls);
    measure(4, look, COPIES, looks);
    measure(5, count_words, COPIES, 0);
    case_end();
    return 0;
}
