/* epoll: arguments, level, edge, one-shot, exclusive, nested, closing, order, masks, threads. */
#include "harness.h"
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>

static int make(void)
{
    int fd = epoll_create1(0);
    CHECK(fd >= 0);
    return fd;
}

static int counter(unsigned value)
{
    int fd = eventfd(value, EFD_NONBLOCK);
    CHECK(fd >= 0);
    return fd;
}

static int control(int instance, int operation, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(instance, operation, fd, &event);
}

static void watch(int instance, int fd, uint32_t events, uint64_t data)
{
    CHECK_OK(control(instance, EPOLL_CTL_ADD, fd, events, data));
}

static void add(int fd, uint64_t value)
{
    CHECK_EQ(write(fd, &value, 8), 8);
}

static void take(int fd)
{
    uint64_t value;
    CHECK_EQ(read(fd, &value, 8), 8);
}

/* Number of events that are there now. */
static int count(int instance)
{
    struct epoll_event events[16];
    return epoll_wait(instance, events, 16, 0);
}

/* The single event that is there now. */
static struct epoll_event one(int instance)
{
    struct epoll_event events[16];
    int found = epoll_wait(instance, events, 16, 0);
    CHECK_EQ(found, 1);
    return events[0];
}

static void on_signal(int number)
{
    (void)number;
}

#define MANY 300

CASE(many_ready_files_are_told_of_once)
{
    static struct epoll_event events[2 * MANY];
    int instance = make(), seen[MANY] = {0};
    for (int index = 0; index < MANY; index++)
        watch(instance, counter(1), EPOLLIN, (uint64_t)index);
    CHECK_EQ(epoll_wait(instance, events, 2 * MANY, -1), MANY);
    for (int index = 0; index < MANY; index++)
        seen[events[index].data.u64]++;
    for (int index = 0; index < MANY; index++)
        CHECK_EQ(seen[index], 1);
    /* Two calls that have no room for all tell of all. */
    CHECK_EQ(epoll_wait(instance, events, MANY - 100, -1), MANY - 100);
    CHECK_EQ(epoll_wait(instance, events + MANY - 100, MANY - 100, -1), MANY - 100);
    for (int index = 0; index < 2 * (MANY - 100); index++)
        seen[events[index].data.u64]++;
    for (int index = 0; index < MANY; index++)
        CHECK(seen[index] >= 2);
}

CASE(making_one)
{
    CHECK_ERRNO(syscall(SYS_epoll_create, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_epoll_create, -1), EINVAL);
    CHECK_ERRNO(epoll_create1(1), EINVAL);
    CHECK_ERRNO(epoll_create1(EPOLL_CLOEXEC | O_NONBLOCK), EINVAL);
    int fd = (int)syscall(SYS_epoll_create, 1);
    CHECK(fd >= 0);
    CHECK_EQ(fcntl(fd, F_GETFD), 0);
    CHECK_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
    fd = epoll_create1(EPOLL_CLOEXEC);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    char byte;
    CHECK_ERRNO(read(fd, &byte, 1), EINVAL);
    CHECK_ERRNO(write(fd, &byte, 1), EINVAL);
}

CASE(control_errors_in_order)
{
    int instance = make(), fd = counter(0), file = open("/", O_RDONLY);
    /* The event is read first, whatever else is wrong, unless the operation takes none. */
    CHECK_ERRNO(epoll_ctl(-1, EPOLL_CTL_ADD, -1, BAD_LOW), EFAULT);
    CHECK_ERRNO(epoll_ctl(-1, 77, -1, BAD_LOW), EFAULT);
    CHECK_ERRNO(epoll_ctl(-1, EPOLL_CTL_DEL, fd, BAD_LOW), EBADF);
    CHECK_ERRNO(control(instance, EPOLL_CTL_ADD, 999, EPOLLIN, 0), EBADF);
    CHECK_ERRNO(control(fd, EPOLL_CTL_ADD, 999, EPOLLIN, 0), EBADF);
    /* A file that cannot be watched is found before what is wrong with the instance. */
    CHECK_ERRNO(control(fd, EPOLL_CTL_ADD, file, EPOLLIN, 0), EPERM);
    CHECK_ERRNO(control(instance, EPOLL_CTL_ADD, file, EPOLLIN, 0), EPERM);
    CHECK_ERRNO(control(instance, EPOLL_CTL_DEL, file, EPOLLIN, 0), EPERM);
    CHECK_ERRNO(control(fd, EPOLL_CTL_ADD, fd, EPOLLIN, 0), EINVAL);
    CHECK_ERRNO(control(fd, EPOLL_CTL_ADD, instance, EPOLLIN, 0), EINVAL);
    CHECK_ERRNO(control(instance, EPOLL_CTL_ADD, instance, EPOLLIN, 0), EINVAL);
    int same = dup(instance);
    CHECK_ERRNO(control(instance, EPOLL_CTL_ADD, same, EPOLLIN, 0), EINVAL);
    CHECK_ERRNO(control(instance, 77, fd, EPOLLIN, 0), EINVAL);
    CHECK_ERRNO(control(instance, EPOLL_CTL_MOD, fd, EPOLLIN, 0), ENOENT);
    CHECK_ERRNO(control(instance, EPOLL_CTL_DEL, fd, EPOLLIN, 0), ENOENT);
    watch(instance, fd, EPOLLIN, 0);
    CHECK_ERRNO(control(instance, EPOLL_CTL_ADD, fd, EPOLLIN, 0), EEXIST);
    CHECK_OK(epoll_ctl(instance, EPOLL_CTL_DEL, fd, 0));
    CHECK_ERRNO(control(instance, EPOLL_CTL_DEL, fd, EPOLLIN, 0), ENOENT);
}

CASE(files_that_cannot_be_watched)
{
    int instance = make(), place;
    scratch();
    int file = file_with("file", "x", 1);
    CHECK_ERRNO(control(instance, EPOLL_CTL_ADD, file, EPOLLIN, 0), EPERM);
    place = open("file", O_PATH);
    CHECK_ERRNO(control(instance, EPOLL_CTL_ADD, place, EPOLLIN, 0), EBADF);
    int null = open("/dev/null", O_RDWR);
    CHECK_ERRNO(control(instance, EPOLL_CTL_ADD, null, EPOLLIN, 0), EPERM);
    int zero = open("/dev/zero", O_RDWR);
    CHECK_ERRNO(control(instance, EPOLL_CTL_ADD, zero, EPOLLIN, 0), EPERM);
}

CASE(wait_errors)
{
    struct epoll_event events[2];
    int instance = make(), fd = counter(1);
    CHECK_ERRNO(epoll_wait(instance, events, 0, 0), EINVAL);
    CHECK_ERRNO(epoll_wait(instance, events, -1, 0), EINVAL);
    CHECK_ERRNO(epoll_wait(instance, events, 0x7fffffff / 12 + 1, 0), EINVAL);
    CHECK_ERRNO(epoll_wait(instance, BAD_KERNEL, 1, 0), EFAULT);
    CHECK_ERRNO(epoll_wait(-1, events, 1, 0), EBADF);
    CHECK_ERRNO(epoll_wait(fd, events, 1, 0), EINVAL);
    CHECK_EQ(epoll_wait(instance, BAD_LOW, 1, 0), 0);
    watch(instance, fd, EPOLLIN, 0);
    CHECK_ERRNO(epoll_wait(instance, BAD_LOW, 1, 0), EFAULT);
    CHECK_EQ(count(instance), 1);
}

CASE(an_event_that_faults_is_not_lost)
{
    /* Room for one event, then nothing. */
    char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int instance = make(), fd = counter(1);
    CHECK(page != MAP_FAILED);
    CHECK_OK(munmap(page + 4096, 4096));
    watch(instance, fd, EPOLLIN | EPOLLONESHOT, 1);
    CHECK_ERRNO(epoll_wait(instance, (void *)(page + 4092), 4, 0), EFAULT);
    CHECK_EQ(one(instance).data.u64, 1);
    CHECK_EQ(count(instance), 0);
    watch(instance, counter(1), EPOLLIN | EPOLLET, 2);
    CHECK_ERRNO(epoll_wait(instance, (void *)(page + 4092), 4, 0), EFAULT);
    CHECK_EQ(one(instance).data.u64, 2);
    CHECK_EQ(count(instance), 0);
}

CASE(a_level_is_reported_again)
{
    int instance = make(), fd = counter(0);
    watch(instance, fd, EPOLLIN, 5);
    CHECK_EQ(count(instance), 0);
    add(fd, 1);
    CHECK_EQ(one(instance).events, EPOLLIN);
    CHECK_EQ(one(instance).data.u64, 5);
    take(fd);
    CHECK_EQ(count(instance), 0);
}

CASE(only_what_is_asked_for_is_reported)
{
    int instance = make(), fd = counter(1), ends[2];
    watch(instance, fd, EPOLLOUT, 0);
    CHECK_EQ(one(instance).events, EPOLLOUT);
    CHECK_OK(control(instance, EPOLL_CTL_MOD, fd, 0, 0));
    CHECK_EQ(count(instance), 0);
    CHECK_OK(control(instance, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLOUT | EPOLLPRI, 9));
    CHECK_EQ(one(instance).events, EPOLLIN | EPOLLOUT);
    CHECK_EQ(one(instance).data.u64, 9);
    CHECK_OK(control(instance, EPOLL_CTL_DEL, fd, 0, 0));
    /* An end is reported unasked. */
    CHECK_OK(pipe(ends));
    watch(instance, ends[0], 0, 0);
    CHECK_EQ(count(instance), 0);
    close(ends[1]);
    CHECK_EQ(one(instance).events, EPOLLHUP);
}

CASE(an_error_of_a_pipe_is_reported)
{
    int instance = make(), ends[2];
    CHECK_OK(pipe(ends));
    watch(instance, ends[1], EPOLLOUT, 0);
    CHECK_EQ(one(instance).events, EPOLLOUT);
    close(ends[0]);
    CHECK_EQ(one(instance).events, EPOLLOUT | EPOLLERR);
}

CASE(an_edge_is_reported_once)
{
    int instance = make(), fd = counter(1);
    watch(instance, fd, EPOLLIN | EPOLLET, 0);
    CHECK_EQ(count(instance), 1);
    CHECK_EQ(count(instance), 0);
    add(fd, 1);
    add(fd, 1);
    CHECK_EQ(count(instance), 1);
    CHECK_EQ(count(instance), 0);
    add(fd, 1);
    take(fd);
    CHECK_EQ(count(instance), 0);
    /* Modifying asks anew. */
    add(fd, 1);
    CHECK_EQ(count(instance), 1);
    CHECK_OK(control(instance, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLET, 0));
    CHECK_EQ(count(instance), 1);
    CHECK_EQ(count(instance), 0);
}

CASE(each_write_to_a_pipe_is_an_edge)
{
    int instance = make(), ends[2];
    CHECK_OK(pipe(ends));
    watch(instance, ends[0], EPOLLIN | EPOLLET, 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(write(ends[1], "x", 1), 1);
        CHECK_EQ(count(instance), 1);
        CHECK_EQ(count(instance), 0);
    }
    close(ends[1]);
    CHECK_EQ(one(instance).events, EPOLLIN | EPOLLHUP);
}

CASE(a_one_shot_fires_once)
{
    int instance = make(), fd = counter(1), ends[2];
    watch(instance, fd, EPOLLIN | EPOLLONESHOT, 0);
    CHECK_EQ(count(instance), 1);
    add(fd, 1);
    CHECK_EQ(count(instance), 0);
    CHECK_OK(control(instance, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, 0));
    CHECK_EQ(count(instance), 1);
    CHECK_EQ(count(instance), 0);
    /* Not even an end is reported then. */
    CHECK_OK(pipe(ends));
    watch(instance, ends[0], EPOLLIN | EPOLLONESHOT, 0);
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(count(instance), 1);
    close(ends[1]);
    CHECK_EQ(count(instance), 0);
}

CASE(turns_are_taken)
{
    struct epoll_event events[2];
    int instance = make();
    for (uint64_t i = 1; i <= 3; i++)
        watch(instance, counter(1), EPOLLIN, i);
    CHECK_EQ(epoll_wait(instance, events, 2, 0), 2);
    CHECK_EQ(events[0].data.u64, 1);
    CHECK_EQ(events[1].data.u64, 2);
    CHECK_EQ(epoll_wait(instance, events, 2, 0), 2);
    CHECK_EQ(events[0].data.u64, 3);
    CHECK_EQ(events[1].data.u64, 1);
}

CASE(events_come_in_the_order_in_which_they_happened)
{
    struct epoll_event events[4];
    int instance = make(), fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = counter(0);
        watch(instance, fds[i], EPOLLIN | EPOLLET, (uint64_t)i);
    }
    add(fds[2], 1);
    add(fds[0], 1);
    add(fds[1], 1);
    add(fds[2], 1);
    CHECK_EQ(epoll_wait(instance, events, 4, 0), 3);
    CHECK_EQ(events[0].data.u64, 2);
    CHECK_EQ(events[1].data.u64, 0);
    CHECK_EQ(events[2].data.u64, 1);
}

CASE(more_events_than_are_taken_at_a_time)
{
    static struct epoll_event events[700];
    static char seen[600];
    struct rlimit limit = {1024, 1024};
    setrlimit(RLIMIT_NOFILE, &limit);
    int instance = make();
    for (uint64_t i = 0; i < 600; i++)
        watch(instance, counter(1), EPOLLIN | EPOLLET, i);
    CHECK_EQ(epoll_wait(instance, events, 500, 0), 500);
    for (int i = 0; i < 500; i++)
        seen[events[i].data.u64]++;
    CHECK_EQ(epoll_wait(instance, events, 700, 0), 100);
    for (int i = 0; i < 100; i++)
        seen[events[i].data.u64]++;
    for (int i = 0; i < 600; i++)
        CHECK_EQ(seen[i], 1);
    CHECK_EQ(epoll_wait(instance, events, 700, 0), 0);
}

CASE(a_duplicate_is_watched_by_itself)
{
    struct epoll_event events[4];
    int instance = make(), fd = counter(1), same = dup(fd);
    watch(instance, fd, EPOLLIN, 1);
    watch(instance, same, EPOLLIN, 2);
    CHECK_EQ(epoll_wait(instance, events, 4, 0), 2);
    /* A closed descriptor whose file is open through another goes on being reported. */
    close(fd);
    CHECK_EQ(epoll_wait(instance, events, 4, 0), 2);
    CHECK_ERRNO(control(instance, EPOLL_CTL_DEL, fd, 0, 0), EBADF);
    close(same);
    CHECK_EQ(epoll_wait(instance, events, 4, 0), 0);
}

CASE(a_number_that_is_used_again_is_another_file)
{
    int instance = make(), fd = counter(1), kept = dup(fd);
    watch(instance, fd, EPOLLIN, 1);
    close(fd);
    int again = counter(0);
    CHECK_EQ(again, fd);
    CHECK_ERRNO(control(instance, EPOLL_CTL_MOD, again, EPOLLIN, 2), ENOENT);
    watch(instance, again, EPOLLIN, 3);
    CHECK_EQ(one(instance).data.u64, 1);
    close(kept);
    CHECK_EQ(count(instance), 0);
    add(again, 1);
    CHECK_EQ(one(instance).data.u64, 3);
}

CASE(a_child_shares_the_instance)
{
    int instance = make(), fd = counter(0);
    watch(instance, fd, EPOLLIN, 4);
    pid_t child = fork_or_fail();
    if (child == 0) {
        int mine = counter(1);
        watch(instance, mine, EPOLLIN, 5);
        CHECK_EQ(one(instance).data.u64, 5);
        close(fd);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    /* What the child opened went with it. */
    CHECK_EQ(count(instance), 0);
    add(fd, 1);
    CHECK_EQ(one(instance).data.u64, 4);
}

CASE(an_instance_in_poll_and_in_another)
{
    int inner = make(), outer = make(), fd = counter(0);
    struct pollfd entry = {inner, POLLIN | POLLOUT, 0};
    watch(inner, fd, EPOLLIN, 1);
    watch(outer, inner, EPOLLIN, 2);
    CHECK_EQ(poll(&entry, 1, 0), 0);
    CHECK_EQ(count(outer), 0);
    add(fd, 1);
    CHECK_EQ(poll(&entry, 1, 0), 1);
    CHECK_EQ(entry.revents, POLLIN);
    CHECK_EQ(one(outer).data.u64, 2);
    CHECK_EQ(one(outer).events, EPOLLIN);
    take(fd);
    CHECK_EQ(poll(&entry, 1, 0), 0);
    CHECK_EQ(count(outer), 0);
}

CASE(nested_edges)
{
    int inner = make(), outer = make(), fd = counter(0);
    watch(inner, fd, EPOLLIN, 1);
    watch(outer, inner, EPOLLIN | EPOLLET, 2);
    add(fd, 1);
    CHECK_EQ(count(outer), 1);
    CHECK_EQ(count(outer), 0);
    add(fd, 1);
    CHECK_EQ(count(outer), 1);
    CHECK_EQ(count(outer), 0);
    CHECK_EQ(count(inner), 1);
}

CASE(circles_are_refused)
{
    int a = make(), b = make(), c = make();
    watch(a, b, EPOLLIN, 0);
    watch(b, c, EPOLLIN, 0);
    CHECK_ERRNO(control(b, EPOLL_CTL_ADD, a, EPOLLIN, 0), ELOOP);
    CHECK_ERRNO(control(c, EPOLL_CTL_ADD, a, EPOLLIN, 0), ELOOP);
    CHECK_OK(control(b, EPOLL_CTL_DEL, c, 0, 0));
    watch(c, a, EPOLLIN, 0);
    /* A circle that closing has opened. */
    close(c);
    c = make();
    watch(b, c, EPOLLIN, 0);
}

CASE(depth_is_limited_above_a_file)
{
    int chain[7], fd = counter(0);
    for (int i = 0; i < 7; i++)
        chain[i] = make();
    watch(chain[0], fd, EPOLLIN, 0);
    for (int i = 1; i < 5; i++)
        watch(chain[i], chain[i - 1], EPOLLIN, 0);
    CHECK_ERRNO(control(chain[5], EPOLL_CTL_ADD, chain[4], EPOLLIN, 0), ELOOP);
    add(fd, 1);
    CHECK_EQ(count(chain[4]), 1);
}

CASE(depth_of_instances_alone)
{
    int chain[9], made = 0;
    for (int i = 0; i < 9; i++)
        chain[i] = make();
    for (int i = 1; i < 9; i++) {
        if (control(chain[i], EPOLL_CTL_ADD, chain[i - 1], EPOLLIN, 0) == -1) {
            CHECK_EQ(errno, ELOOP);
            break;
        }
        made++;
    }
    CHECK_EQ(made, 4);
}

CASE(exclusive_rules)
{
    int instance = make(), other = make(), fd = counter(0);
    CHECK_ERRNO(control(instance, EPOLL_CTL_ADD, other, EPOLLIN | EPOLLEXCLUSIVE, 0), EINVAL);
    CHECK_ERRNO(control(instance, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 0),
                EINVAL);
    CHECK_ERRNO(control(instance, EPOLL_CTL_ADD, fd, EPOLLPRI | EPOLLEXCLUSIVE, 0), EINVAL);
    watch(instance, fd, EPOLLIN | EPOLLOUT | EPOLLET | EPOLLWAKEUP | EPOLLEXCLUSIVE, 0);
    CHECK_ERRNO(control(instance, EPOLL_CTL_MOD, fd, EPOLLIN, 0), EINVAL);
    CHECK_ERRNO(control(instance, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLEXCLUSIVE, 0), EINVAL);
    CHECK_OK(control(instance, EPOLL_CTL_DEL, fd, 0, 0));
}

CASE(time_is_kept)
{
    struct epoll_event event;
    struct timespec short_time = {0, 30000000}, bad = {0, 1000000000}, negative = {-1, 0};
    int instance = make();
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK_EQ(epoll_wait(instance, &event, 1, 30), 0);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 30000000);
    start = now_ns(CLOCK_MONOTONIC);
    CHECK_EQ(syscall(SYS_epoll_pwait2, instance, &event, 1, &short_time, 0, 0), 0);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 30000000);
    CHECK_ERRNO(syscall(SYS_epoll_pwait2, instance, &event, 1, &bad, 0, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_epoll_pwait2, instance, &event, 1, &negative, 0, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_epoll_pwait2, -1, &event, 0, BAD_LOW, 0, 0), EFAULT);
}

CASE(a_signal_ends_a_wait_for_good)
{
    struct epoll_event event;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    int instance = make();
    CHECK_OK(sigaction(SIGUSR1, &action, 0));
    pid_t child = pesterer(SIGUSR1);
    CHECK_ERRNO(epoll_wait(instance, &event, 1, -1), EINTR);
    CHECK_ERRNO(epoll_wait(instance, &event, 1, 50000), EINTR);
    kill(child, SIGKILL);
    harness_wait(child);
}

static volatile sig_atomic_t handled;

static void on_masked(int number)
{
    (void)number;
    handled++;
}

CASE(pwait_swaps_the_mask)
{
    struct epoll_event event;
    struct sigaction action = {.sa_handler = on_masked};
    sigset_t blocked, empty, now;
    int instance = make();
    sigemptyset(&empty);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    CHECK_OK(sigaction(SIGUSR1, &action, 0));
    CHECK_OK(sigprocmask(SIG_BLOCK, &blocked, 0));
    raise(SIGUSR1);
    CHECK_EQ(epoll_pwait(instance, &event, 1, 0, 0), 0);
    CHECK_EQ(handled, 0);
    CHECK_ERRNO(epoll_pwait(instance, &event, 1, -1, &empty), EINTR);
    CHECK_EQ(handled, 1);
    CHECK_OK(sigprocmask(SIG_SETMASK, 0, &now));
    CHECK(sigismember(&now, SIGUSR1));
    /* What is ready goes first, and the signal stays pending. */
    watch(instance, counter(1), EPOLLIN, 0);
    raise(SIGUSR1);
    CHECK_EQ(epoll_pwait(instance, &event, 1, -1, &empty), 1);
    CHECK_EQ(handled, 1);
    CHECK_ERRNO(syscall(SYS_epoll_pwait, instance, &event, 1, 0, &empty, 7), EINVAL);
    CHECK_ERRNO(syscall(SYS_epoll_pwait, instance, &event, 1, 0, BAD_LOW, 8), EFAULT);
    CHECK_OK(sigprocmask(SIG_SETMASK, 0, &now));
    CHECK(sigismember(&now, SIGUSR1));
}

struct waiter {
    pthread_t thread;
    int instance;
    int result;
    struct epoll_event event;
};

static void *waits(void *argument)
{
    struct waiter *waiter = argument;
    waiter->result = epoll_wait(waiter->instance, &waiter->event, 1, -1);
    return 0;
}

CASE(a_wait_sees_what_is_added_and_changed_meanwhile)
{
    struct waiter waiter = {.instance = make()};
    int fd = counter(0), ready = counter(1);
    watch(waiter.instance, fd, EPOLLIN, 1);
    CHECK_EQ(pthread_create(&waiter.thread, 0, waits, &waiter), 0);
    sleep_ms(10);
    watch(waiter.instance, ready, EPOLLIN, 2);
    pthread_join(waiter.thread, 0);
    CHECK_EQ(waiter.result, 1);
    CHECK_EQ(waiter.event.data.u64, 2);
    CHECK_OK(control(waiter.instance, EPOLL_CTL_DEL, ready, 0, 0));
    CHECK_EQ(pthread_create(&waiter.thread, 0, waits, &waiter), 0);
    sleep_ms(10);
    CHECK_OK(control(waiter.instance, EPOLL_CTL_MOD, fd, EPOLLOUT, 3));
    pthread_join(waiter.thread, 0);
    CHECK_EQ(waiter.event.data.u64, 3);
    CHECK_EQ(waiter.event.events, EPOLLOUT);
}

static int shared_instance, done_fd;
static int served;

static void *serves(void *argument)
{
    struct epoll_event event;
    (void)argument;
    for (;;) {
        CHECK_EQ(epoll_wait(shared_instance, &event, 1, -1), 1);
        if (event.data.fd == done_fd)
            return 0;
        take(event.data.fd);
        __atomic_add_fetch(&served, 1, __ATOMIC_SEQ_CST);
        CHECK_OK(control(shared_instance, EPOLL_CTL_MOD, event.data.fd, EPOLLIN | EPOLLONESHOT,
                         (uint64_t)event.data.fd));
    }
}

CASE(one_shots_are_shared_out_among_threads)
{
    pthread_t threads[4];
    int fds[8];
    shared_instance = make();
    done_fd = counter(0);
    watch(shared_instance, done_fd, EPOLLIN, (uint64_t)done_fd);
    for (int i = 0; i < 8; i++) {
        fds[i] = eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
        watch(shared_instance, fds[i], EPOLLIN | EPOLLONESHOT, (uint64_t)fds[i]);
    }
    for (int i = 0; i < 4; i++)
        CHECK_EQ(pthread_create(&threads[i], 0, serves, 0), 0);
    for (int i = 0; i < 400; i++)
        add(fds[i % 8], 1);
    while (__atomic_load_n(&served, __ATOMIC_SEQ_CST) < 400)
        sleep_ms(1);
    add(done_fd, 1);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
    CHECK_EQ(served, 400);
}

static int woken;

static void *waits_once(void *argument)
{
    struct epoll_event event;
    int fd = *(int *)argument;
    CHECK_EQ(epoll_wait(fd, &event, 1, -1), 1);
    __atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
    return 0;
}

/* Threads of this process that sleep. */
static int sleeping(void)
{
    int found = 0;
    char path[80], text[400];
    for (int tid = getpid() + 1; tid < getpid() + 40; tid++) {
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
        /* It may end at any moment. */
        int fd = open(path, O_RDONLY);
        ssize_t got = fd == -1 ? -1 : read(fd, text, sizeof text - 1);
        if (got > 0) {
            text[got] = 0;
            found += strstr(text, ") S ") != 0;
        }
        if (fd != -1)
            close(fd);
    }
    return found;
}

CASE(an_exclusive_event_wakes_one_instance)
{
    /* Each thread has an instance of its own, all watch one counter by edges; an event wakes one of
     * them, and the others sleep until the next. */
    pthread_t threads[4];
    int instances[4], fd = counter(0);
    for (int i = 0; i < 4; i++) {
        instances[i] = make();
        watch(instances[i], fd, EPOLLIN | EPOLLET | EPOLLEXCLUSIVE, 0);
        CHECK_EQ(pthread_create(&threads[i], 0, waits_once, &instances[i]), 0);
    }
    while (sleeping() < 4)
        sleep_ms(2);
    for (int i = 1; i <= 4; i++) {
        add(fd, 1);
        while (__atomic_load_n(&woken, __ATOMIC_SEQ_CST) < i)
            sleep_ms(1);
        while (sleeping() > 4 - i)
            sleep_ms(1);
        CHECK_EQ(woken, i);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
}

static int closing_fd;

static void *opens_and_closes(void *argument)
{
    (void)argument;
    for (int i = 0; i < 3000; i++) {
        int fd = eventfd(1, EFD_NONBLOCK);
        CHECK(fd >= 0);
        int result = control(shared_instance, EPOLL_CTL_ADD, fd, EPOLLIN, (uint64_t)i);
        CHECK(result == 0 || errno == EEXIST || errno == EBADF);
        if (i % 3 == 0)
            control(shared_instance, EPOLL_CTL_DEL, fd, 0, 0);
        close(fd);
    }
    return 0;
}

CASE(files_come_and_go_while_others_wait)
{
    struct epoll_event events[8];
    pthread_t threads[2];
    shared_instance = make();
    closing_fd = counter(1);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&threads[i], 0, opens_and_closes, 0), 0);
    for (int i = 0; i < 3000; i++)
        CHECK(epoll_wait(shared_instance, events, 8, 0) >= 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    CHECK_EQ(count(shared_instance), 0);
}

CASE(what_proc_shows)
{
    char path[64], text[600], wanted[64];
    int instance = make(), fd = counter(0);
    watch(instance, fd, EPOLLIN | EPOLLET, 0xabcdef);
    snprintf(path, sizeof path, "/proc/self/fd/%d", instance);
    ssize_t length = readlink(path, text, sizeof text - 1);
    CHECK(length > 0);
    text[length] = 0;
    CHECK_STR(text, "anon_inode:[eventpoll]");
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", instance);
    slurp(path, text, sizeof text);
    snprintf(wanted, sizeof wanted, "tfd: %8d events: %8x data: %16llx ", fd,
             EPOLLIN | EPOLLET | EPOLLERR | EPOLLHUP, 0xabcdefULL);
    CHECK(strstr(text, wanted));
}

