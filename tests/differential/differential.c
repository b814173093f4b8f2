/* A differential fuzzer: random sequences of calls on files, descriptors, memory, processes and signals, of which a
 * program must not see on which system it runs.
 *
 *     differential [--seed N] [--first N] [--rounds N] [--seconds N] [--tell 1]
 *
 * A round is a process with an empty directory, which carries out operations that a seeded generator chooses; one
 * process acts at a time. It prints `round N HASH LINES`: equal seeds give equal lines on systems that behave alike. With
 * --tell each operation is told with what came of it. It ends after that many rounds or seconds with `differential
 * done N`. `ferry test differential` runs it on Ferry, then the same rounds on this machine's Linux.
 */
#include "common.h"
#include "files.h"
#include "memory.h"
#include "process.h"

enum { OPERATIONS = 80, STUCK_SECONDS = 20 };

static void run_one(unsigned depth)
{
    static void (*const operations[])(void) = {
        do_open, do_open, do_open, do_close, do_read, do_read, do_read, do_write, do_write, do_write, do_bad_memory, do_seek,
        do_size, do_names, do_names, do_names, do_permissions, do_status, do_status, do_times, do_list, do_descriptor,
        do_descriptor, do_lock, do_make, do_make, do_move, do_move, do_socket, do_socket, do_watch, do_epoll, do_epoll, do_map, do_map,
        do_change_memory, do_change_memory, do_touch, do_touch, do_touch, do_signal, do_signal, do_signal, do_process};
    enum { COUNT = sizeof operations / sizeof *operations };
    unsigned choice = below(COUNT + 1);
    if (choice < COUNT)
        operations[choice]();
    else if (depth < 2)
        do_child(depth);
}

static void run_some(unsigned count, unsigned depth)
{
    for (unsigned at = 0; at < count; at++)
        run_one(depth);
}

static void be_round(uint64_t seed, const char *directory)
{
    random_state = seed;
    if (mkdir(directory, 0755) == -1 || chdir(directory) == -1)
        _exit(3);
    for (int slot = 0; slot < SLOTS; slot++)
        slots[slot] = -1;
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    umask(022);
    run_some(OPERATIONS, 0);
    tell_arrived();
    _exit(0);
}

static void remove_tree(const char *directory)
{
    DIR *names = opendir(directory);
    for (struct dirent *entry; names && (entry = readdir(names));) {
        char path[600];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (unlink(path) == -1)
            remove_tree(path);
    }
    if (names)
        closedir(names);
    rmdir(directory);
}

static int run_round(uint64_t seed, uint64_t round)
{
    char directory[64], line[100];
    int status = 0;
    snprintf(directory, sizeof directory, "/tmp/differential-%d", getpid());
    remove_tree(directory);
    account->hash = 0xcbf29ce484222325u;
    account->lines = 0;
    account->has_room = 0;
    pid_t child = fork();
    if (child == 0)
        be_round(mix(seed) ^ mix(round << 20), directory);
    for (int tenths = 0; child > 0 && waitpid(child, &status, WNOHANG) == 0; tenths++) {
        struct timespec pause = {0, tenths < 100 ? 200000 : 50000000};
        if (tenths > 100 + STUCK_SECONDS * 20) {
            kill(child, SIGKILL);
            snprintf(line, sizeof line, "differential: round %lu is stuck\n", (unsigned long)round);
            put(line);
        }
        nanosleep(&pause, NULL);
    }
    remove_tree(directory);
    tell("round ends with %#x", status);
    snprintf(line, sizeof line, "round %lu %016lx %u\n", (unsigned long)round, (unsigned long)account->hash, account->lines);
    put(line);
    return child > 0;
}

int main(int count, char **words)
{
    uint64_t seed = 1, first = 0, rounds = UINT64_MAX, seconds = UINT64_MAX;
    for (int at = 1; at + 1 < count; at += 2) {
        uint64_t value = strtoull(words[at + 1], NULL, 0);
        if (strcmp(words[at], "--seed") == 0)
            seed = value;
        else if (strcmp(words[at], "--first") == 0)
            first = value;
        else if (strcmp(words[at], "--rounds") == 0)
            rounds = value;
        else if (strcmp(words[at], "--seconds") == 0)
            seconds = value;
        else if (strcmp(words[at], "--tell") == 0)
            is_told = value != 0;
    }
    if (rounds == UINT64_MAX && seconds == UINT64_MAX)
        seconds = 10;
    if (fcntl(1, F_DUPFD, REPORT) != REPORT)
        return 2;
    for (int descriptor = 0; descriptor < 3; descriptor++) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, descriptor);
        if (null > 2)
            close(null);
    }
    /* Nothing that the caller left open: the lowest free descriptor is the same everywhere. */
    syscall(SYS_close_range, 3, REPORT - 1, 0);
    /* On Linux, files of the same kind as on Ferry. */
    if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        mount("none", "/tmp", "tmpfs", 0, NULL);
    account = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    time_t end = 0;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (seconds != UINT64_MAX)
        end = now.tv_sec + (time_t)seconds;
    uint64_t round = first;
    for (; round - first < rounds; round++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (end != 0 && now.tv_sec >= end)
            break;
        if (!run_round(seed, round))
            break;
    }
    char line[80];
    snprintf(line, sizeof line, "differential done %lu\n", (unsigned long)(round - first));
    put(line);
    return 0;
}
