/* Programs that mean ill: every call number with garbage, races on arguments, processes killed wherever
 * they wait, and, in the guest only (FERRY_GUEST=1, for they would hurt a host), fork bombs and memory hogs.
 * The verdict is always the same: the culprit gets an errno or a signal, the system goes on. */
#include "harness.h"
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/uio.h>

static void only_in_the_guest(void)
{
    if (!getenv("FERRY_GUEST"))
        SKIP("would hurt a host (FERRY_GUEST=1 allows it)");
}

/* The system forks, pipes, maps and writes files as before. */
static void system_is_sane(void)
{
    int ends[2];
    char byte = 0;
    CHECK_OK(pipe(ends));
    pid_t child;
    /* What was killed a moment ago may still be on its way out. */
    while ((child = fork()) == -1)
        CHECK(errno == EAGAIN || errno == ENOMEM);
    if (child == 0) {
        char *memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED);
        memset(memory, 1, 1 << 20);
        CHECK_EQ(write(ends[1], memory, 1), 1);
        _exit(0);
    }
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    CHECK_EXITED(child, 0);
    close(file_with("sane", "x", 1));
    CHECK_OK(unlink("sane"));
    close(ends[0]);
    close(ends[1]);
}

enum { SETS = 10 };

static char *valid; /* Two pages and then nothing. */
static uint64_t random_state;

static uint64_t random_number(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static long garbage(void)
{
    long pool[] = {0, 1, 2, 3, 7, 8, 64, 4095, 4096, 65536, -1, -2, -4096, 0x7fffffff, 0x80000000L,
                   0xffffffffL, 0x100000000L, 1L << 47, (1L << 47) - 4096, INT64_MAX, INT64_MIN,
                   (long)BAD_LOW, (long)BAD_KERNEL, (long)BAD_CANONICAL, (long)0xffffffff80000000,
                   (long)valid, (long)valid + 16, (long)valid + 4090, (long)valid + 8191,
                   (long)valid + 8192, (long)valid + 1, 1L << 20};
    return pool[random_number() % (sizeof pool / sizeof *pool)];
}

static int is_in(long number, const short *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == number)
            return 1;
    return 0;
}

#define IS_IN(number, list) is_in(number, list, sizeof(list) / sizeof *(list))

/* Calls that change the machine itself: acct, adjtimex, settimeofday, swap, reboot, names, modules, quota,
 * kernel log, kexec, clock_settime, clock_adjtime, pivot_root, vhangup, iopl, ioperm, bpf, perf. */
static const short of_the_machine[] = {103, 153, 155, 159, 163, 164, 167, 168, 169, 170, 171, 172, 173, 174,
                                       175, 176, 177, 178, 179, 180, 227, 246, 298, 305, 313, 320, 321};
/* Calls whose first argument names a process: only none or itself, so that it does not hit the runner. */
static const short of_a_process[] = {62, 101, 109, 129, 141, 142, 144, 200, 203, 234, 251, 256, 279, 297, 302,
                                     310, 311, 314, 424, 434, 440, 448};

/* Makes the call with this set of garbage. The generator is seeded by both, so each set can be repeated. */
static void call_with_garbage(long number, int set)
{
    long arguments[6];
    random_state = (uint64_t)(number * 1000 + set + 1) * 0x9e3779b97f4a7c15u;
    for (int i = 0; i < 6; i++)
        arguments[i] = garbage();
    if (set == 0)
        memset(arguments, 0, sizeof arguments);
    if (set == 1)
        memset(arguments, 0xff, sizeof arguments);
    if (IS_IN(number, of_a_process))
        arguments[0] = set % 2 ? 0 : 0x3ffffff0;
    if (number == SYS_clone)
        arguments[0] &= ~0x100L; /* Two on one stack is our own mischief, not the kernel's. */
    if (number == SYS_setpriority || number == SYS_kill)
        arguments[1] &= 0x3ff;
    syscall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

static void garbage_for(long first, long last)
{
    volatile int *next = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(next != MAP_FAILED);
    scratch();
    for (long number = first; number <= last; number++) {
        if (!getenv("FERRY_GUEST") && IS_IN(number, of_the_machine))
            continue;
        *next = 0;
        while (*next < SETS) {
            /* A child makes as many of the calls as it survives; the next goes on behind. */
            pid_t child = fork_or_fail();
            if (child == 0) {
                pid_t self = getpid();
                struct itimerval patience = {{0, 0}, {0, 50000}};
                setsid();
                valid = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                munmap(valid + 8192, 4096);
                memset(valid, 'x', 20);
                valid[1] = 0;
                /* Garbage that names a descriptor shall hit nothing of the machine's: neither what the
                 * runner left open nor a device, whose mode it could change. */
                int own[2];
                syscall(SYS_close_range, 3, ~0u, 0);
                if (pipe2(own, O_NONBLOCK) == -1 || dup2(own[0], 0) == -1 || dup2(own[1], 1) == -1 ||
                    dup2(own[1], 2) == -1)
                    syscall(SYS_exit_group, 0);
                close(own[0]);
                close(own[1]);
                while (*next < SETS) {
                    int set = (*next)++;
                    setitimer(ITIMER_REAL, &patience, NULL);
                    call_with_garbage(number, set);
                    if (syscall(SYS_getpid) != self)
                        syscall(SYS_exit_group, 0); /* It was a kind of fork. */
                }
                syscall(SYS_exit_group, 0);
            }
            /* Whatever it did (block SIGALRM, stop itself, ask to be traced), it ends within its patience. */
            int status;
            int64_t start = now_ns(CLOCK_MONOTONIC);
            for (;;) {
                pid_t got = waitpid(child, &status, WNOHANG | WUNTRACED);
                if (got == child && !WIFSTOPPED(status))
                    break;
                if (got == child || now_ns(CLOCK_MONOTONIC) - start > 2000000000)
                    kill(child, SIGKILL);
                CHECK(got == child || got == 0);
                if (now_ns(CLOCK_MONOTONIC) - start > 10000000)
                    sleep_ms(1);
                else
                    sched_yield();
            }
        }
        if (number % 20 == 0)
            system_is_sane();
    }
    system_is_sane();
}

CASE(garbage_for_calls_0_to_99)
{
    garbage_for(0, 99);
}

CASE(garbage_for_calls_100_to_199)
{
    garbage_for(100, 199);
}

CASE(garbage_for_calls_200_to_299)
{
    garbage_for(200, 299);
}

CASE(garbage_for_calls_300_to_400)
{
    garbage_for(300, 400);
}

CASE(garbage_for_calls_401_to_512)
{
    garbage_for(401, 512);
}

static int ends[2], full_pipe[2];

static void wait_read(void)
{
    char byte;
    read(ends[0], &byte, 1);
}

static void wait_write(void)
{
    static char block[1 << 20];
    write(full_pipe[1], block, sizeof block);
}

static void wait_poll(void)
{
    struct pollfd set = {ends[0], POLLIN, 0};
    poll(&set, 1, -1);
}

static void wait_futex(void)
{
    static volatile int word;
    syscall(SYS_futex, &word, 0, 0, NULL, NULL, 0);
}

static void wait_sleep(void)
{
    struct timespec request = {1000, 0};
    nanosleep(&request, NULL);
}

static void wait_child(void)
{
    if (fork() == 0) {
        sleep_ms(3000);
        _exit(0);
    }
    waitpid(-1, NULL, 0);
}

static void wait_suspended(void)
{
    sigset_t all;
    sigfillset(&all);
    sigsuspend(&all);
}

static void wait_signal(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    sigwaitinfo(&set, NULL);
}

static void wait_fifo(void)
{
    open("fifo", O_RDONLY);
}

static void wait_lock(void)
{
    int fd = open("locked", O_RDWR);
    syscall(SYS_flock, fd, 2);
}

static void wait_vfork(void)
{
    if (vfork() == 0)
        for (;;)
            pause();
}

static void wait_stopped(void)
{
    raise(SIGSTOP);
}

static void wait_spinning(void)
{
    for (;;)
        ;
}

static void wait_threads(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, (void *(*)(void *))(void (*)(void))wait_read, NULL);
    pthread_create(&thread, NULL, (void *(*)(void *))(void (*)(void))wait_spinning, NULL);
    wait_futex();
}

CASE(sigkill_ends_every_wait)
{
    void (*const waits[])(void) = {wait_read, wait_write, wait_poll, wait_futex, wait_sleep, wait_child,
                                   wait_suspended, wait_signal, wait_fifo, wait_lock, wait_vfork,
                                   wait_stopped, wait_spinning, wait_threads};
    enum { WAITS = sizeof waits / sizeof *waits };
    scratch();
    CHECK_OK(pipe(ends));
    CHECK_OK(pipe(full_pipe));
    CHECK_OK(mkfifo("fifo", 0600));
    int fd = file_with("locked", "x", 1);
    CHECK_OK(syscall(SYS_flock, fd, 2));
    for (int round = 0; round < 3; round++) {
        pid_t children[WAITS];
        for (int i = 0; i < WAITS; i++) {
            children[i] = fork_or_fail();
            if (children[i] == 0) {
                setpgid(0, 0);
                for (;;)
                    waits[i]();
            }
            setpgid(children[i], children[i]);
        }
        if (round > 0)
            sleep_ms(30 * round); /* In the first round some have not begun to wait: that must do, too. */
        for (int i = 0; i < WAITS; i++)
            CHECK_OK(kill(-children[i], SIGKILL));
        for (int i = 0; i < WAITS; i++)
            CHECK_KILLED(children[i], SIGKILL);
    }
    system_is_sane();
}

static char *volatile contested;
static volatile int stop_racing;

static void *map_and_unmap(void *argument)
{
    while (!stop_racing) {
        munmap(contested, 4096);
        mmap(contested, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        mprotect(contested, 4096, PROT_READ);
        mprotect(contested, 4096, PROT_READ | PROT_WRITE);
    }
    return argument;
}

CASE(buffers_that_come_and_go)
{
    pthread_t thread;
    int zero = open("/dev/zero", O_RDONLY);
    scratch();
    int file = file_with("f", "", 0);
    CHECK_OK(pipe(ends));
    contested = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_EQ(pthread_create(&thread, NULL, map_and_unmap, NULL), 0);
    for (int i = 0; i < 1500; i++) {
        long results[] = {read(zero, contested, 4096), pwrite(file, contested, 4096, 0),
                          pread(file, contested, 4096, 0), syscall(SYS_fstat, file, contested),
                          syscall(SYS_stat, contested, contested), syscall(SYS_access, contested, 0), syscall(SYS_uname, contested), syscall(SYS_getcwd, contested, 4096),
                          syscall(SYS_rt_sigprocmask, 0, NULL, contested, 8)};
        for (size_t k = 0; k < sizeof results / sizeof *results; k++)
            CHECK(results[k] >= -1 && results[k] <= 4096);
    }
    stop_racing = 1;
    CHECK_EQ(pthread_join(thread, NULL), 0);
    system_is_sane();
}

static volatile struct iovec changing[4];

static void *change_vector(void *argument)
{
    for (unsigned i = 0; !stop_racing; i++) {
        changing[i % 4].iov_base = i % 3 ? (void *)contested : BAD_KERNEL;
        changing[i % 4].iov_len = i % 5 ? 100 : (size_t)-1;
    }
    return argument;
}

CASE(vectors_that_change_meanwhile)
{
    pthread_t thread;
    int null = open("/dev/null", O_WRONLY);
    contested = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    scratch();
    int file = file_with("f", "", 0);
    CHECK_EQ(pthread_create(&thread, NULL, change_vector, NULL), 0);
    for (int i = 0; i < 200; i++) {
        ssize_t got = writev(file, (struct iovec *)changing, 4);
        /* The kernel may see half of a change, never more than is mapped. */
        CHECK(got >= 0 || (got == -1 && (errno == EFAULT || errno == EINVAL)));
        ftruncate(file, 0);
        lseek(file, 0, SEEK_SET);
        writev(null, (struct iovec *)changing, 4);
    }
    stop_racing = 1;
    CHECK_EQ(pthread_join(thread, NULL), 0);
    system_is_sane();
}

static void *read_into_contested(void *argument)
{
    *(volatile int *)argument = 1;
    errno = 0;
    long got = read(ends[0], contested, 10);
    return (void *)(got == -1 ? -(long)errno : got);
}

CASE(buffer_unmapped_under_a_blocked_read)
{
    pthread_t thread;
    volatile int ready = 0;
    void *result;
    CHECK_OK(pipe(ends));
    contested = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_EQ(pthread_create(&thread, NULL, read_into_contested, (void *)&ready), 0);
    while (!ready)
        sched_yield();
    sleep_ms(20);
    CHECK_OK(munmap(contested, 4096));
    CHECK_EQ(write(ends[1], "0123456789", 10), 10);
    CHECK_EQ(pthread_join(thread, &result), 0);
    CHECK_EQ((long)result, -EFAULT);
}

static void *churn_descriptors(void *argument)
{
    while (!stop_racing) {
        int pair[2];
        if (pipe(pair) == 0) {
            dup2(pair[0], 30);
            close(pair[0]);
            close(pair[1]);
        }
        close(30);
    }
    return argument;
}

CASE(descriptors_that_come_and_go)
{
    pthread_t threads[2];
    char byte;
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, churn_descriptors, NULL), 0);
    for (int i = 0; i < 1500; i++) {
        struct pollfd set = {30, POLLIN, 0};
        ssize_t got = read(30, &byte, 1);
        CHECK(got == 0 || (got == -1 && errno == EBADF));
        CHECK(poll(&set, 1, 0) >= 0);
        int twin = dup(30);
        if (twin >= 0)
            CHECK_OK(close(twin));
        fcntl(30, F_GETFL);
    }
    stop_racing = 1;
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    system_is_sane();
}

CASE(names_that_come_and_go)
{
    static const char *const names[] = {"a", "b", "a/x", "b/x", "a/x/y", "l"};
    pid_t children[3];
    scratch();
    for (int who = 0; who < 3; who++) {
        children[who] = fork_or_fail();
        if (children[who] == 0) {
            struct stat status;
            random_state = 99 + (uint64_t)who;
            for (int i = 0; i < 1500; i++) {
                const char *one = names[random_number() % 6], *two = names[random_number() % 6];
                switch (random_number() % 8) {
                case 0: mkdir(one, 0700); break;
                case 1: rmdir(one); break;
                case 2: rename(one, two); break;
                case 3: close(open(one, O_CREAT | O_RDWR, 0600)); break;
                case 4: unlink(one); break;
                case 5: symlink(two, one); break;
                case 6: stat(one, &status); break;
                default: link(one, two); break;
                }
            }
            _exit(0);
        }
    }
    for (int who = 0; who < 3; who++)
        CHECK_EXITED(children[who], 0);
    system_is_sane();
}

static void bomb(void)
{
    for (;;)
        fork();
}

/* Lets the bomb go off in a group of its own, then kills that group until nothing is left of it. */
static void explode(void (*body)(void), long milliseconds)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        setpgid(0, 0);
        body();
        _exit(0);
    }
    setpgid(child, child);
    sleep_ms(milliseconds);
    kill(-child, SIGKILL);
    CHECK_KILLED(child, SIGKILL);
    while (kill(-child, SIGKILL) == 0)
        sleep_ms(1);
    CHECK_EQ(errno, ESRCH);
}

CASE(fork_bomb_of_a_user_with_a_limit)
{
    only_in_the_guest();
    scratch();
    struct rlimit limit = {50, 50};
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setrlimit(RLIMIT_NPROC, &limit));
        CHECK_OK(syscall(SYS_setresuid, 4322, 4322, 4322));
        explode(bomb, 1000);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    system_is_sane();
}

CASE(fork_bomb_without_a_limit)
{
    only_in_the_guest();
    scratch();
    explode(bomb, 250);
    system_is_sane();
}

static void *sit(void *argument)
{
    for (;;)
        pause();
    return argument;
}

CASE(thread_bomb)
{
    only_in_the_guest();
    scratch();
    pid_t child = fork_or_fail();
    if (child == 0) {
        pthread_attr_t attributes;
        pthread_t thread;
        int started = 0;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 65536);
        while (started < 3000 && pthread_create(&thread, &attributes, sit, NULL) == 0)
            started++;
        _exit(started > 10 ? 0 : 1);
    }
    int status = harness_wait(child);
    CHECK(status == 0 || WIFSIGNALED(status));
    system_is_sane();
}

CASE(memory_hog)
{
    only_in_the_guest();
    scratch();
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (;;) {
            char *memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (memory == MAP_FAILED)
                _exit(errno == ENOMEM ? 0 : 1);
            memset(memory, 1, 1 << 20);
        }
    }
    int status = harness_wait(child);
    CHECK(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    system_is_sane();
}

CASE(memory_hogs_together)
{
    only_in_the_guest();
    scratch();
    pid_t children[4];
    for (int i = 0; i < 4; i++) {
        children[i] = fork_or_fail();
        if (children[i] == 0) {
            char *memory = mmap(NULL, 1L << 36, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            for (long at = 0; memory != MAP_FAILED && at < 1L << 36; at += 4096)
                memory[at] = 1;
            _exit(0);
        }
    }
    for (int i = 0; i < 4; i++) {
        int status = harness_wait(children[i]);
        CHECK(status == 0 || WIFSIGNALED(status));
    }
    system_is_sane();
}

CASE(file_hog)
{
    static char block[1 << 20];
    only_in_the_guest();
    scratch();
    pid_t child = fork_or_fail();
    if (child == 0) {
        int fd = open("hog", O_CREAT | O_WRONLY, 0600);
        while (write(fd, block, sizeof block) > 0)
            ;
        _exit(errno == ENOSPC || errno == ENOMEM || errno == EFBIG ? 0 : 1);
    }
    int status = harness_wait(child);
    CHECK(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    CHECK_OK(unlink("hog"));
    system_is_sane();
}

CASE(pipe_hog)
{
    static char block[65536];
    only_in_the_guest();
    scratch();
    pid_t child = fork_or_fail();
    if (child == 0) {
        struct rlimit limit = {100000, 100000};
        int pair[2], made = 0;
        setrlimit(RLIMIT_NOFILE, &limit);
        while (pipe2(pair, O_NONBLOCK) == 0) {
            made++;
            if (write(pair[1], block, sizeof block) <= 0)
                break;
        }
        _exit(made > 10 ? 0 : 1);
    }
    int status = harness_wait(child);
    CHECK(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    system_is_sane();
}

CASE(area_hog)
{
    only_in_the_guest();
    scratch();
    pid_t child = fork_or_fail();
    if (child == 0) {
        /* Every second page: areas that do not join. */
        for (long i = 0; i < 100000; i++) {
            void *address = (void *)(0x100000000000 + i * 8192);
            if (mmap(address, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
                _exit(errno == ENOMEM ? 0 : 1);
        }
        _exit(0);
    }
    int status = harness_wait(child);
    CHECK(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    system_is_sane();
}

CASE(zombie_hog)
{
    only_in_the_guest();
    scratch();
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (int i = 0; i < 1000; i++) {
            pid_t zombie = fork();
            if (zombie == 0)
                _exit(0);
            if (zombie == -1)
                break;
        }
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    system_is_sane();
}
