/*
 * The guest program of the suite `memsc`: the experiments of the paper of that name. The same static
 * binary runs on Ferry and on Linux; `case.h` says how figures are made.
 *
 *     memsc trap       getppid by trap, one to 100,000 in a row; in several processes and threads; and
 *                      the work of other programs: `dd bs=512` and `ls -l` of busybox
 *     memsc post       getppid posted: the same, and in batches
 *     memsc uring      NOP requests of io_uring in the same batches, plain and polled
 *
 * Without an argument: `trap`, then `uring`. Where the kernel has none of what is asked for, there are
 * no lines of it. Figures have the same name however the calls are made.
 */
#define _GNU_SOURCE
#include <ferry.h>

#include "batch.h"
#include "case.h"
#include "together.h"
#include "uring.h"

#include <fcntl.h>

enum { ROW_CALLS = 200000, ROW_MOST = 600, ROW_LEAST = 3, ENTRIES = FERRY_ENTRIES };
enum { WORK_REPEATS = 5, BLOCK = 512 };
#define TOGETHER_NS 200e6

static const int batches[] = {1, 2, 3, 4, 8, 16, 32, 64};
static const int dd_kib[] = {64, 1024, 4096, 16384};
static const int ls_files[] = {100, 1000, 5000, 15000};

#define EACH(value, of)                                                                            \
    for (const int *value = of; value < of + sizeof of / sizeof of[0]; value++)

static char name[64];

/* --- One call after the other --- */

static void prepare_trap(void)
{
    batch_parent = syscall(SYS_getppid);
}

static void trap_getppid(int count)
{
    while (count-- > 0)
        if (syscall(SYS_getppid) != batch_parent)
            case_fail("getppid");
}

static void post_getppid(int count)
{
    while (count-- > 0)
        if (ferry_call(SYS_getppid) != batch_parent)
            case_fail("ferry_call");
}

/* Rows of calls, from one up: per call. */
static void measure_rows(void (*run)(int count))
{
    run(CASE_WARM);
    for (int calls = 1; calls <= 100000; calls *= 10) {
        int rows = ROW_CALLS / calls;
        rows = rows > ROW_MOST ? ROW_MOST : rows < ROW_LEAST ? ROW_LEAST : rows;
        snprintf(name, sizeof name, "row_%d", calls);
        case_repeated(name, run, calls, rows);
    }
}

/* --- Processes and threads --- */

static const struct group {
    const char *name;
    enum together_kind kind;
    int members;
} groups[] = {
    {"applications_2", TOGETHER_PROCESSES, 2}, {"applications_1", TOGETHER_PROCESSES, 1},
    {"threads_4", TOGETHER_THREADS, 4},        {"threads_6", TOGETHER_THREADS, 6},
    {"threads_8", TOGETHER_THREADS, 8},
};
enum { TWO_APPLICATIONS = 1, ALL_GROUPS = sizeof groups / sizeof groups[0] };

/* The first `count` groups. */
static void measure_together(int count, const char *suffix, void (*prepare)(void), void (*run)(int),
                             int calls)
{
    for (const struct group *group = groups; group < groups + count; group++) {
        snprintf(name, sizeof name, "%s%s", group->name, suffix);
        case_print(name, "", "ns",
                   together(name, group->kind, group->members, TOGETHER_NS, prepare, run, calls, 0));
    }
}

/* --- Work of other programs --- */

/* Runs busybox; what it prints is thrown away. Its time in nanoseconds. */
static double busybox(char *const arguments[])
{
    uint64_t start = case_ticks();
    int status;
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execv("/bin/busybox", arguments);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        case_fail("/bin/busybox");
    return case_ns(case_ticks() - start);
}

/* Median over the repeats, in milliseconds. `tidy`, if any, is called before each. */
static void measure_work(char *const arguments[], void (*tidy)(void))
{
    case_count();
    for (int i = 0; i < WORK_REPEATS; i++) {
        if (tidy)
            tidy();
        case_samples[i] = busybox(arguments) / 1e6;
    }
    /* Nobody knows how many calls another program makes. */
    case_counted(name, 0);
    case_print(name, "", "ms", case_quantile(WORK_REPEATS, 0.5));
}

#define COPY "/tmp/memsc-copy"

static void remove_copy(void)
{
    unlink(COPY);
}

static void measure_dd(void)
{
    EACH(kib, dd_kib) {
        char count[32];
        char *const arguments[] = {"dd", "if=/dev/zero", "of=" COPY, "bs=512", count, NULL};
        struct stat status;
        snprintf(count, sizeof count, "count=%d", *kib * 1024 / BLOCK);
        snprintf(name, sizeof name, "dd_%d", *kib);
        measure_work(arguments, remove_copy);
        if (stat(COPY, &status) != 0 || status.st_size != *kib * 1024)
            case_fail("the copy that dd made");
    }
    remove_copy();
}

#define FOLDER "/tmp/memsc-files"

static void measure_ls(void)
{
    char *const arguments[] = {"ls", "-l", FOLDER, NULL};
    int made = 0;
    char path[64];
    if (mkdir(FOLDER, 0755) != 0)
        case_fail(FOLDER);
    EACH(files, ls_files) {
        for (; made < *files; made++) {
            snprintf(path, sizeof path, FOLDER "/file-%05d", made);
            int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
            if (file < 0 || close(file) != 0)
                case_fail(path);
        }
        snprintf(name, sizeof name, "ls_%d", *files);
        measure_work(arguments, NULL);
    }
    while (made-- > 0) {
        snprintf(path, sizeof path, FOLDER "/file-%05d", made);
        unlink(path);
    }
    rmdir(FOLDER);
}

/* --- What can be asked for --- */

static void measure_traps(void)
{
    prepare_trap();
    measure_rows(trap_getppid);
    measure_together(ALL_GROUPS, "", prepare_trap, trap_getppid, ENTRIES);
    measure_dd();
    measure_ls();
}

static void measure_posted(void)
{
    batch_prepare();
    measure_rows(post_getppid);
    EACH(size, batches) {
        batch = *size;
        snprintf(name, sizeof name, "batch_%d", batch);
        case_batches("", name, batch_post, 4 * ENTRIES / batch * batch);
    }
    EACH(size, batches) {
        char suffix[32];
        batch = *size;
        snprintf(suffix, sizeof suffix, "_batch_%d", batch);
        measure_together(batch == 1 || batch == ENTRIES ? ALL_GROUPS : TWO_APPLICATIONS, suffix,
                         batch_prepare, batch_post, ENTRIES / batch * batch);
    }
}

static struct uring ring;

static void run_nops(int count)
{
    for (; count > 0; count -= batch)
        uring_nops(&ring, (unsigned)batch);
}

static void measure_nops(const char *prefix, int processor)
{
    if (uring_open(&ring, ENTRIES, processor) != 0)
        return;
    EACH(size, batches) {
        batch = *size;
        snprintf(name, sizeof name, "batch_%d", batch);
        case_batches(prefix, name, run_nops, 4 * ENTRIES / batch * batch);
    }
}

static void measure_uring(void)
{
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(0, &here);
    sched_setaffinity(0, sizeof here, &here);
    measure_nops("uring_", -1);
    measure_nops("polled_", 1);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    case_begin(what);
    if (*what == 0 || strcmp(what, "trap") == 0)
        measure_traps();
    if (*what == 0 || strcmp(what, "uring") == 0)
        measure_uring();
    if (strcmp(what, "post") == 0 && ferry_available())
        measure_posted();
    case_end();
    return 0;
}
