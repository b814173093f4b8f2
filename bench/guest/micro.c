/*
 * The guest program of the suite `micro`: one call, or a short sequence of calls, per case. The same
 * static binary runs on Ferry and on Linux.
 *
 * Each case is a region of the model of caches and TLBs, numbered from 1 in the order of `cases` below;
 * with `micro few` each runs once under the model, and `modelled.REGION` says how many operations were
 * counted. `micro calls` has the null call alone, `micro post` posts it with libferry, one at a time and
 * in batches of 64. `micro few NAME` runs this case alone. `micro exit` ends at once: it is what the case
 * of exec starts.
 *
 * Two processes that answer each other are pinned to processor 0: what is measured is the switch, not how
 * far two processors are from each other.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "case.h"
#include "batch.h"

enum { PIPES = 100, WATCHED = 1000, READY = 10, PAGES = 64, BLOCK = 4096, BULK = 65536, BATCH = 64 };

static const char path[] = "/tmp/ferry-micro", other_path[] = "/tmp/ferry-micro-2";
static const char *self;
static char block[BULK];
static int zero_file, null_file, data_file, epoll_file, bulk[2];
static int pipes[PIPES][2];
static int to_child = -1, from_child = -1;
static pid_t child_id;

static void expect(int holds, const char *what)
{
    if (!holds)
        case_fail(what);
}

static void run_getppid(int count)
{
    while (count-- > 0)
        syscall(SYS_getppid);
}

static void run_clock(int count)
{
    struct timespec now;
    while (count-- > 0)
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
}

static void run_read(int count)
{
    while (count-- > 0)
        expect(read(zero_file, block, 1) == 1, "read");
}

static void run_write(int count)
{
    while (count-- > 0)
        expect(write(null_file, block, 1) == 1, "write");
}

static void run_open(int count)
{
    while (count-- > 0) {
        int file = open(path, O_RDONLY);
        expect(file >= 0 && close(file) == 0, "open and close");
    }
}

static void run_stat(int count)
{
    struct stat status;
    while (count-- > 0)
        expect(stat(path, &status) == 0, "stat");
}

static void run_fstat(int count)
{
    struct stat status;
    while (count-- > 0)
        expect(fstat(data_file, &status) == 0, "fstat");
}

static void run_pread(int count)
{
    while (count-- > 0)
        expect(pread(data_file, block, BLOCK, 0) == BLOCK, "pread");
}

static void run_pwrite(int count)
{
    while (count-- > 0)
        expect(pwrite(data_file, block, BLOCK, 0) == BLOCK, "pwrite");
}

static void run_lock(int count)
{
    struct flock lock = {.l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    while (count-- > 0) {
        lock.l_type = F_WRLCK;
        expect(fcntl(data_file, F_SETLK, &lock) == 0, "F_SETLK");
        lock.l_type = F_UNLCK;
        expect(fcntl(data_file, F_SETLK, &lock) == 0, "F_SETLK");
    }
}

static void run_create(int count)
{
    while (count-- > 0) {
        int file = open(other_path, O_CREAT | O_EXCL | O_RDWR, 0600);
        expect(file >= 0 && close(file) == 0 && unlink(other_path) == 0, "create and delete");
    }
}

/* Nothing is ready and the time is zero: every file is looked at. */
static void run_select_of(int count, int files)
{
    while (count-- > 0) {
        struct timeval none = {0, 0};
        fd_set set;
        FD_ZERO(&set);
        for (int i = 0; i < files; i++)
            FD_SET(pipes[i][0], &set);
        expect(select(pipes[files - 1][0] + 1, &set, 0, 0, &none) == 0, "select");
    }
}

static void run_select_10(int count)
{
    run_select_of(count, 10);
}

static void run_select_100(int count)
{
    run_select_of(count, 100);
}

static void run_poll_of(int count, int files)
{
    static struct pollfd polled[PIPES];
    for (int i = 0; i < files; i++)
        polled[i] = (struct pollfd){.fd = pipes[i][0], .events = POLLIN};
    while (count-- > 0)
        expect(poll(polled, (nfds_t)files, 0) == 0, "poll");
}

static void run_poll_10(int count)
{
    run_poll_of(count, 10);
}

static void run_poll_100(int count)
{
    run_poll_of(count, 100);
}

static void run_epoll(int count)
{
    static struct epoll_event events[READY];
    while (count-- > 0)
        expect(epoll_wait(epoll_file, events, READY, 0) == READY, "epoll_wait");
}

static void handle(int number)
{
    (void)number;
}

static void run_sigaction(int count)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    while (count-- > 0)
        expect(sigaction(SIGUSR1, &action, 0) == 0, "sigaction");
}

static void run_signal(int count)
{
    pid_t process = getpid();
    pid_t thread = (pid_t)syscall(SYS_gettid);
    while (count-- > 0)
        syscall(SYS_tgkill, process, thread, SIGUSR1);
}

static void run_futex(int count)
{
    static int word;
    while (count-- > 0)
        syscall(SYS_futex, &word, 129 /* FUTEX_WAKE_PRIVATE */, 1, 0, 0, 0);
}

static void run_mmap(int count)
{
    while (count-- > 0) {
        void *area = mmap(0, BULK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        expect(area != MAP_FAILED && munmap(area, BULK) == 0, "mmap and munmap");
    }
}

/* Per page; the mapping is shared out among them. */
static void run_fault(int count)
{
    for (int done = 0; done < count; done += PAGES) {
        char *area = mmap(0, PAGES * 4096L, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        expect(area != MAP_FAILED, "mmap");
        madvise(area, PAGES * 4096L, MADV_NOHUGEPAGE);
        for (long page = 0; page < PAGES; page++)
            ((volatile char *)area)[page * 4096] = 1;
        munmap(area, PAGES * 4096L);
    }
}

static void wait_for(pid_t child)
{
    int status;
    expect(child > 0 && waitpid(child, &status, 0) == child && status == 0, "fork and wait");
}

static void run_fork(int count)
{
    while (count-- > 0) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        wait_for(child);
    }
}

static void run_exec(int count)
{
    while (count-- > 0) {
        pid_t child = fork();
        if (child == 0) {
            char *const arguments[] = {(char *)self, "exit", 0};
            execv(self, arguments);
            _exit(127);
        }
        wait_for(child);
    }
}

static void *begin_thread(void *argument)
{
    return argument;
}

static void run_thread(int count)
{
    while (count-- > 0) {
        pthread_t thread;
        expect(pthread_create(&thread, 0, begin_thread, 0) == 0 && pthread_join(thread, 0) == 0,
               "pthread_create");
    }
}

static void run_bandwidth(int count)
{
    while (count-- > 0)
        expect(write(bulk[1], block, BULK) == BULK && read(bulk[0], block, BULK) == BULK, "pipe");
}

/* A byte to the child and a byte back: two switches. */
static void run_round_trip(int count)
{
    while (count-- > 0)
        expect(write(to_child, block, 1) == 1 && read(from_child, block, 1) == 1, "round trip");
}

static void echo(int in, int out)
{
    char byte;
    while (read(in, &byte, 1) == 1)
        expect(write(out, &byte, 1) == 1, "echo");
    _exit(0);
}

static void pin(int is_pinned)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    if (!is_pinned)
        for (int i = 1; i < 64; i++)
            CPU_SET(i, &set);
    expect(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
}

static void begin_child(int child_in, int child_out, int parent_out, int parent_in)
{
    pin(1);
    to_child = parent_out;
    from_child = parent_in;
    child_id = fork();
    expect(child_id >= 0, "fork");
    if (child_id == 0) {
        close(parent_out);
        if (parent_in != parent_out)
            close(parent_in);
        echo(child_in, child_out);
    }
    close(child_in);
    if (child_out != child_in)
        close(child_out);
}

static void begin_pipes(void)
{
    int there[2], back[2];
    expect(pipe(there) == 0 && pipe(back) == 0, "pipe");
    begin_child(there[0], back[1], there[1], back[0]);
}

static void begin_socket(void)
{
    int ends[2];
    expect(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
    begin_child(ends[1], ends[1], ends[0], ends[0]);
}

static void end_child(void)
{
    close(to_child);
    if (from_child != to_child)
        close(from_child);
    wait_for(child_id);
    pin(0);
}

static void begin_epoll(void)
{
    expect((epoll_file = epoll_create1(0)) >= 0, "epoll_create1");
    for (int i = 0; i < WATCHED; i++) {
        int file = eventfd(i % (WATCHED / READY) == 0, 0);
        struct epoll_event event = {.events = EPOLLIN, .data.fd = file};
        expect(file >= 0 && epoll_ctl(epoll_file, EPOLL_CTL_ADD, file, &event) == 0, "epoll_ctl");
    }
}

static void begin_one(void)
{
    batch = 1;
    batch_prepare();
}

static void begin_batch(void)
{
    batch = BATCH;
    batch_prepare();
}

static const struct {
    const char *name;
    void (*run)(int count);
    int count;
    void (*begin)(void);
    void (*end)(void);
} cases[] = {
    {"getppid", run_getppid, 64, 0, 0},
    {"clock_gettime", run_clock, 64, 0, 0},
    {"read_1", run_read, 64, 0, 0},
    {"write_1", run_write, 64, 0, 0},
    {"open_close", run_open, 64, 0, 0},
    {"stat", run_stat, 64, 0, 0},
    {"fstat", run_fstat, 64, 0, 0},
    {"pread_4k", run_pread, 64, 0, 0},
    {"pwrite_4k", run_pwrite, 64, 0, 0},
    {"fcntl_lock", run_lock, 64, 0, 0},
    {"create_delete", run_create, 64, 0, 0},
    {"select_10", run_select_10, 64, 0, 0},
    {"select_100", run_select_100, 16, 0, 0},
    {"poll_10", run_poll_10, 64, 0, 0},
    {"poll_100", run_poll_100, 16, 0, 0},
    {"sigaction", run_sigaction, 64, 0, 0},
    {"signal", run_signal, 64, 0, 0},
    {"futex_wake", run_futex, 64, 0, 0},
    {"mmap_munmap", run_mmap, 64, 0, 0},
    {"page_fault", run_fault, PAGES, 0, 0},
    {"pipe_64k", run_bandwidth, 4, 0, 0},
    {"pipe_round_trip", run_round_trip, 16, begin_pipes, end_child},
    {"unix_round_trip", run_round_trip, 16, begin_socket, end_child},
    {"thread_create", run_thread, 4, 0, 0},
    {"fork_exit", run_fork, 4, 0, 0},
    {"fork_exec", run_exec, 4, 0, 0},
    {"epoll_wait_1000", run_epoll, 64, begin_epoll, 0},
    {"post_1", batch_post, BATCH, begin_one, 0},
    {"post_64", batch_post, BATCH, begin_batch, 0},
};

enum { CASES = sizeof cases / sizeof cases[0], FIRST_POSTED = CASES - 2, ROUNDS = 200, FEW = 4 };

static void measure(int index, int is_modelled)
{
    int count = cases[index].count;
    if (cases[index].begin)
        cases[index].begin();
    cases[index].run(count);
    if (is_modelled) {
        cases[index].run(FEW * count);
        case_mark_begin_region(index + 1);
        for (int i = 0; i < FEW; i++)
            cases[index].run(count);
        case_mark_end();
        printf("case modelled.%d - %d\n", index + 1, FEW * count);
        fflush(stdout);
    } else {
        case_repeated(cases[index].name, cases[index].run, count, ROUNDS);
    }
    if (cases[index].end)
        cases[index].end();
}

static void prepare(void)
{
    struct rlimit files = {4096, 4096};
    expect(setrlimit(RLIMIT_NOFILE, &files) == 0, "setrlimit");
    expect((zero_file = open("/dev/zero", O_RDONLY)) >= 0, "/dev/zero");
    expect((null_file = open("/dev/null", O_WRONLY)) >= 0, "/dev/null");
    expect((data_file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0, path);
    expect(write(data_file, block, BLOCK) == BLOCK, path);
    expect(pipe(bulk) == 0, "pipe");
    for (int i = 0; i < PIPES; i++)
        expect(pipe(pipes[i]) == 0, "pipe");
    signal(SIGUSR1, handle);
}

static int has(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], word) == 0)
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    if (has(argc, argv, "exit"))
        return 0;
    int is_modelled = has(argc, argv, "few");
    case_begin(argc > 1 ? argv[1] : "");
    self = getpid() == 1 ? "/init" : argv[0];
    if (has(argc, argv, "post")) {
        for (int index = FIRST_POSTED; index < CASES; index++)
            measure(index, is_modelled);
    } else if (has(argc, argv, "calls")) {
        measure(0, is_modelled);
    } else {
        const char *only = is_modelled && argc > 2 ? argv[2] : 0;
        prepare();
        for (int index = 0; index < FIRST_POSTED; index++)
            if (!only || strcmp(only, cases[index].name) == 0)
                measure(index, is_modelled);
    }
    case_end();
    return 0;
}
