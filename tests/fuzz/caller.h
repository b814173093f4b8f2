/* A caller: a process of an ordinary user whose threads make every call of the table, with arguments chosen by
 * type, trapped and posted. */
#ifndef FERRY_TESTS_FUZZ_CALLER_H
#define FERRY_TESTS_FUZZ_CALLER_H

#include "calls.h"
#include "common.h"
#include "victim.h"
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>

/* Pages of the caller's own: the first are its to write, then come a hole and pages of other kinds. */
enum { OWN_PAGES = 16, WRITABLE_PAGES = 4, FDS = 28, FAVOURITES = 12 };

static struct {
    char *memory;
    int fds[FDS];
    pid_t child;
    short favourites[FAVOURITES];
    /* Which of the favourites are chosen at all: a victim of few calls goes deep. */
    unsigned breadth;
} caller;

static const char *const paths[] = {
    "file", "sub", "sub/x", "link", "loop", "fifo", "socket", ".", "..", "", "/", "new", "sub/new", "file/x", "gone/x",
    "/tmp/fuzz-root/public", "/tmp/fuzz-root/secret", "/tmp/fuzz-root/closed/file", "/tmp/fuzz-root", "/tmp", "/fuzz",
    "/proc/self/mem", "/proc/self/maps", "/proc/self/fd/3", "/proc/self/fd", "/proc/self/exe", "/proc/self/cwd",
    "/proc/self/root", "/proc/self/stat", "/proc/self/status", "/proc/self/task", "/proc/self/comm", "/proc/1/mem",
    "/proc/1/root", "/proc/self/oom_score_adj", "/proc/ferry/counts", "/proc/sys/kernel/hostname", "/proc/mounts",
    "/proc", "/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/ptmx", "/dev/tty", "/dev/console", "/dev/shm",
    "/bin/busybox", "/sys", "sub/../sub/./x", "//tmp///fuzz-root//public", "/proc/self/environ", "/proc/self/limits",
};
static const char *const names[] = {
    "name", "/name", "/fuzz-other", "user.name", "user.", "trusted.name", "security.capability", "system.posix_acl_access",
    "", "/", "user.a-name-that-is-somewhat-longer-than-the-others-are-and-goes-on-for-a-while",
};
static char *const words[] = {"fuzz", "--nothing", NULL};

#define ONE_OF(array) ((array)[random_below(sizeof(array) / sizeof *(array))])

static long some_word(void)
{
    static const long pool[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 100, 127, 255, 256, 511, 512, 1000, 1023,
                                1024, 4095, 4096, 4097, 65535, 65536, 0x7fffffff, 0x80000000L, 0xffffffffL, 0x100000000L,
                                -1, -2, -100, -4096, INT64_MAX, INT64_MIN, 1L << 47, (1L << 47) - 4096, 1L << 20, 1L << 40};
    return random_below(4) ? ONE_OF(pool) : (long)(random_number() >> random_below(64));
}

/* Fills the caller's writable pages here and there: little numbers, flags, descriptors, times. */
static void fill(char *at, size_t size)
{
    (void)FAULTS({
        for (size_t i = 0; i + 4 <= size; i += 4)
            switch (random_below(4)) {
            case 0: *(volatile uint32_t *)(at + i) = random_below(16); break;
            case 1: *(volatile uint32_t *)(at + i) = (uint32_t)caller.fds[random_below(FDS)]; break;
            case 2: *(volatile uint32_t *)(at + i) = 0; break;
            default: *(volatile uint32_t *)(at + i) = (uint32_t)some_word(); break;
            }
    });
}

static char *own_place(void)
{
    return caller.memory + random_below(WRITABLE_PAGES * PAGE - 1024) / 16 * 16;
}

static long some_memory(void)
{
    char *place;
    switch (random_below(16)) {
    case 0: return 0;
    case 1: return some_word();
    case 2: return (long)(random_below(2) ? 0xffff800000000000u : 0xffffffff80000000u) + (long)random_below(1 << 20);
    /* Near the edges of mappings. */
    case 3: return (long)caller.memory + (long)(1 + random_below(OWN_PAGES)) * PAGE - (long)random_below(80);
    case 4: return (long)caller.memory + (long)random_below(OWN_PAGES * PAGE);
    case 5: return (long)caller.memory + WRITABLE_PAGES * PAGE - 8 * (long)random_below(40);
    default:
        place = own_place();
        if (random_below(2))
            fill(place, 16 + random_below(240));
        return (long)place;
    }
}

static long some_path(const char *const *pool, unsigned size)
{
    char *place;
    switch (random_below(24)) {
    case 0: return some_memory();
    case 1: /* As long as may be, and longer. */
        place = caller.memory + random_below(3 * PAGE) / 8 * 8;
        (void)FAULTS({
            memset(place, random_below(2) ? 'n' : '/', 4200);
            place[random_below(4200)] = 0;
            place[4199] = 0;
        });
        return (long)place;
    default: return (long)pool[random_below(size)];
    }
}

static long some_iovecs(void)
{
    struct iovec *vecs = (struct iovec *)own_place();
    if (random_below(8) == 0)
        return some_memory();
    (void)FAULTS({
        for (int i = 0; i < 8; i++)
            vecs[i] = (struct iovec){(void *)some_memory(), random_below(8) ? random_below(300) : (size_t)some_word()};
    });
    return (long)vecs;
}

static long some_address_of_socket(void)
{
    struct sockaddr_un *name = (struct sockaddr_un *)own_place();
    (void)FAULTS({
        memset(name, 0, sizeof *name);
        name->sun_family = (sa_family_t)(random_below(8) ? AF_UNIX : random_below(50));
        strcpy(name->sun_path + random_below(2), random_below(2) ? "socket" : "other");
    });
    return (long)name;
}

static long some_message(void)
{
    struct msghdr *message = (struct msghdr *)own_place();
    struct cmsghdr *control = (struct cmsghdr *)own_place();
    if (random_below(8) == 0)
        return some_memory();
    (void)FAULTS({
        memset(message, 0, sizeof *message);
        message->msg_iov = (struct iovec *)some_iovecs();
        message->msg_iovlen = random_below(16) ? random_below(8) : (size_t)some_word();
        if (random_below(2)) {
            message->msg_control = control;
            message->msg_controllen = random_below(8) ? CMSG_SPACE(random_below(8) * 4) : (size_t)some_word();
            control->cmsg_len = random_below(8) ? CMSG_LEN(random_below(8) * 4) : (size_t)some_word();
            control->cmsg_level = SOL_SOCKET;
            control->cmsg_type = random_below(8) ? SCM_RIGHTS : (int)random_below(8);
            for (int i = 0; i < 8; i++)
                ((int *)CMSG_DATA(control))[i] = caller.fds[random_below(FDS)];
        }
        if (random_below(4) == 0) {
            message->msg_name = (void *)some_address_of_socket();
            message->msg_namelen = random_below(120);
        }
    });
    return (long)message;
}

static long some_time(void)
{
    struct timespec *time = (struct timespec *)own_place();
    if (random_below(8) == 0)
        return some_memory();
    (void)FAULTS({
        time[0] = (struct timespec){random_below(8) ? 0 : some_word(), random_below(8) ? random_below(2000000) : some_word()};
        time[1] = (struct timespec){random_below(8) ? 0 : some_word(), random_below(8) ? random_below(2000000) : some_word()};
    });
    return (long)time;
}

static long some_process(void)
{
    switch (random_below(12)) {
    case 0: return -1;
    case 1: return 1;
    case 2: return getppid();
    case 3: return caller.child;
    case 4: return some_word();
    case 5: return -getpid();
    case 6: return getpid() + (long)random_below(8);
    case 7: return random_below(400);
    case 8: return 0;
    default: return getpid();
    }
}

static long some_flags(void)
{
    uint64_t flags = 0;
    if (random_below(16) == 0)
        return some_word();
    for (unsigned bits = random_below(4); bits > 0; bits--)
        flags |= 1ull << (random_below(16) ? random_below(24) : random_below(64));
    return (long)flags;
}

static long some_command(void)
{
    static const long pool[] = {0x5401, 0x5402, 0x5409, 0x540a, 0x540b, 0x540e, 0x540f, 0x5410, 0x5411, 0x5412, 0x5413, 0x5414,
                                0x541b, 0x5420, 0x5421, 0x5422, 0x5423, 0x5450, 0x5451, 0x5452, 0x5429, 0x80045430,
                                0x40045431, 0x8901, 0x8902, 0x8903, 0x8904, 0x8910, 0x1001, 0x1002, 0x1003, 0x1004,
                                1024, 1025, 1026, 1030, 1031, 1032, 1033, 1034, 1036, 1037};
    return random_below(2) ? ONE_OF(pool) : random_below(8) ? (long)random_below(40) : some_word();
}

static long some_argument_of(char type)
{
    static const long directories[] = {AT_FDCWD, AT_FDCWD, AT_FDCWD, -1};
    if (random_below(64) == 0)
        return some_word();
    switch (type) {
    case 'f': return random_below(16) ? caller.fds[random_below(FDS)] : (long)random_below(220) - 2;
    case 'd': return random_below(3) ? ONE_OF(directories) : caller.fds[random_below(FDS)];
    case 'p': return some_path(paths, sizeof paths / sizeof *paths);
    case 'n': return (long)ONE_OF(names); /* Fixed ones, so that what they name can be removed. */
    case 'm': return some_memory();
    case 'v': return some_iovecs();
    case 'h': return some_message();
    case 'b': return some_address_of_socket();
    case 'A': return random_below(8) ? (long)words : some_memory();
    case 't': return some_time();
    case 'a': return random_below(8) ? (long)caller.memory + (long)random_below(OWN_PAGES) * PAGE : some_memory();
    case 's': return random_below(4) ? (long)random_below(5 * PAGE) : random_below(2) ? (long)random_below(64) * PAGE : some_word();
    case 'o': return random_below(4) ? (long)random_below(8 * PAGE) : some_word();
    case 'c': return random_below(8) ? (long)random_below(9) : some_word();
    case 'g': return some_flags();
    case 'q': return some_command();
    case 'i': return random_below(8) ? (long)random_below(20) : some_word();
    case 'R': return (long)random_below(8);
    case 'P': return some_process();
    case 'S': return random_below(4) ? SIGUSR1 : (long)random_below(70);
    case 'U': return random_below(2) ? (long)getuid() : random_below(2) ? (long)(4000 + random_below(4)) : (long)random_below(3) - 1;
    case 'M': return random_below(4) ? (long)random_below(01000) : (long)random_below(0200000);
    case 'I': return (long)random_below(40);
    case 'k': return (long)random_below(5);
    default: return some_word();
    }
}

/* Calls that end the caller, or its view of itself: seldom. */
static int is_final(long number)
{
    return number == SYS_exit || number == SYS_exit_group || number == SYS_execve || number == SYS_execveat ||
           number == SYS_rt_sigreturn || number == SYS_pause || number == SYS_rt_sigsuspend || number == SYS_close_range ||
           number == SYS_setrlimit || number == SYS_vfork || number == SYS_chroot;
}

static void open_many_things(void)
{
    int pair[2], at = 0;
    sigset_t set;
    int *fds = caller.fds;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    fds[at++] = 0;
    fds[at++] = open("file", O_RDWR | O_CREAT, 0644);
    fds[at++] = open("sub/x", O_RDWR | O_CREAT | O_APPEND, 0600);
    fds[at++] = open(".", O_RDONLY);
    fds[at++] = open("sub", O_RDONLY | O_DIRECTORY);
    fds[at++] = open("file", O_PATH);
    fds[at++] = open("fifo", O_RDWR | O_NONBLOCK);
    fds[at++] = open("/tmp/fuzz-root/public", O_RDONLY);
    fds[at++] = open("/tmp/fuzz-root", O_RDONLY);
    fds[at++] = open("/dev/zero", O_RDWR);
    fds[at++] = open("/proc/self/mem", O_RDWR);
    fds[at++] = open("/proc/self/maps", O_RDONLY);
    fds[at++] = open("/proc", O_RDONLY);
    fds[at++] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK);
    fds[at++] = open(".", O_TMPFILE | O_RDWR, 0600);
    fds[at++] = (int)syscall(SYS_memfd_create, "memory", 2);
    fds[at++] = epoll_create1(0);
    fds[at++] = eventfd(1, EFD_NONBLOCK);
    fds[at++] = timerfd_create(CLOCK_MONOTONIC, 0);
    fds[at++] = signalfd(-1, &set, 0);
    fds[at++] = inotify_init1(IN_NONBLOCK);
    fds[at++] = (int)syscall(SYS_pidfd_open, getpid(), 0);
    for (int kind = 0; kind < 3; kind++, at += 2) {
        static const int types[] = {0, SOCK_STREAM, SOCK_DGRAM};
        if ((kind == 0 ? pipe(pair) : socketpair(AF_UNIX, types[kind], 0, pair)) == 0)
            memcpy(fds + at, pair, sizeof pair);
    }
}

static void map_own_pages(void)
{
    char *at = caller.memory = mmap(NULL, OWN_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(at + 4 * PAGE, PAGE);
    mprotect(at + 5 * PAGE, PAGE, PROT_READ);
    mprotect(at + 6 * PAGE, PAGE, PROT_NONE);
    mmap(at + 7 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    mmap(at + 8 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, caller.fds[1], 0);
    mmap(at + 10 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, caller.fds[1], 0);
}

/* Interrupts what waits, every few milliseconds, whatever was done to signals before. */
static void stay_awake(void)
{
    struct itimerval often = {{0, 3000}, {0, 3000}};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
}

static void make_a_call(void)
{
    unsigned which = random_below(2) ? random_below(ROWS) : (unsigned)caller.favourites[random_below(caller.breadth)];
    const struct row *row = &rows[which];
    long arguments[6] = {0};
    if (is_final(row->number) && random_below(200))
        return;
    for (int i = 0; row->types[i]; i++)
        arguments[i] = some_argument_of(row->types[i]);
    if (row->number == SYS_clone)
        arguments[0] &= ~0x100L; /* Two on one stack is our own mischief, not the kernel's. */
    if (own.entries && random_below(2)) {
        int is_posted = 0;
        (void)FAULTS(is_posted = post(&own, row->number, random_below(8) ? 0 : FLAG_LINK, arguments) >= 0);
        if (is_posted)
            return;
        take_results();
    }
    pid_t before = getpid();
    long result = call(row->number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
    if (row->number == SYS_fork || row->number == SYS_clone || row->number == SYS_clone3) {
        if (result > 0)
            caller.child = (pid_t)result;
        else if (getpid() != before)
            random_state = mix(random_state ^ 0xc1d);
    }
}

static void *make_calls(void *argument)
{
    uintptr_t which = (uintptr_t)argument;
    random_state = mix(victim.seed ^ (uint64_t)which << 40);
    if (random_below(4) == 0 && open_syspage(&own) != 0)
        own.entries = NULL;
    for (unsigned left = 100 + random_below(900); left > 0; left--) {
        if (left % 16 == 0)
            stay_awake();
        if (left % 64 == 0 && fcntl(caller.fds[1], F_GETFD) == -1)
            open_many_things();
        if (random_below(200) == 0)
            map_own_pages();
        make_a_call();
    }
    return NULL;
}

__attribute__((noreturn)) static void be_caller(uint64_t seed, unsigned user)
{
    become_victim(seed, user);
    limit(RLIMIT_NPROC, 24);
    mkdir("sub", 0755);
    if (symlink("file", "link") == 0 && symlink("loop", "loop") == 0)
        mknod("fifo", S_IFIFO | 0600, 0);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    open_many_things();
    map_own_pages();
    caller.breadth = 1 + random_below(FAVOURITES);
    for (int i = 0; i < FAVOURITES; i++)
        caller.favourites[i] = (short)random_below(ROWS);
    for (unsigned i = 1 + random_below(3); i > 1; i--) {
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 65536);
        pthread_create(&thread, &attributes, make_calls, (void *)(uintptr_t)i);
    }
    make_calls((void *)0);
    call3(SYS_exit_group, 0, 0, 0);
    _exit(0);
}

#endif
