/* timer_create and its kin, timerfd, setitimer beside them, clock_settime, adjtimex. */
#include "harness.h"
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/timex.h>

#ifndef TFD_TIMER_CANCEL_ON_SET
#define TFD_TIMER_CANCEL_ON_SET 2
#endif
#define SET_TICKS 0x40085400

struct kernel_event {
    union sigval value;
    int signal, notify, thread, rest[11];
};

static int make(clockid_t clock, const struct kernel_event *event)
{
    int id = -1;
    CHECK_OK(syscall(SYS_timer_create, clock, event, &id));
    CHECK(id >= 0);
    return id;
}

static struct itimerspec spec(int64_t value_ns, int64_t interval_ns)
{
    struct itimerspec made = {{interval_ns / 1000000000, interval_ns % 1000000000},
                              {value_ns / 1000000000, value_ns % 1000000000}};
    return made;
}

static int64_t ns(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void set(int id, int flags, int64_t value_ns, int64_t interval_ns)
{
    struct itimerspec new = spec(value_ns, interval_ns);
    CHECK_OK(syscall(SYS_timer_settime, id, flags, &new, 0));
}

static struct itimerspec get(int id)
{
    struct itimerspec now;
    CHECK_OK(syscall(SYS_timer_gettime, id, &now));
    return now;
}

static sigset_t block(int number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    CHECK_OK(sigprocmask(SIG_BLOCK, &set, 0));
    return set;
}

/* Waits for a signal of the set. */
static siginfo_t await(const sigset_t *set)
{
    siginfo_t info;
    CHECK(sigwaitinfo(set, &info) > 0);
    return info;
}

CASE(a_timer_queues_its_signal_with_its_value)
{
    sigset_t mask = block(SIGRTMIN + 1);
    struct kernel_event event = {
        .value.sival_ptr = (void *)0x123456789abc, .signal = SIGRTMIN + 1, .notify = SIGEV_SIGNAL};
    int id = make(CLOCK_MONOTONIC, &event);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    set(id, 0, 20000000, 0);
    siginfo_t info = await(&mask);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 20000000);
    CHECK_EQ(info.si_signo, SIGRTMIN + 1);
    CHECK_EQ(info.si_code, SI_TIMER);
    CHECK_EQ(info.si_timerid, id);
    CHECK_EQ(info.si_overrun, 0);
    CHECK(info.si_value.sival_ptr == (void *)0x123456789abc);
    struct itimerspec now = get(id);
    CHECK_EQ(ns(now.it_value), 0);
    CHECK_OK(syscall(SYS_timer_delete, id));
    CHECK_ERRNO(syscall(SYS_timer_delete, id), EINVAL);
}

CASE(without_an_event_it_is_sigalrm_and_the_number)
{
    sigset_t mask = block(SIGALRM);
    make(CLOCK_MONOTONIC, 0);
    int id = make(CLOCK_MONOTONIC, 0);
    set(id, 0, 1, 0);
    siginfo_t info = await(&mask);
    CHECK_EQ(info.si_code, SI_TIMER);
    CHECK_EQ(info.si_value.sival_int, id);
}

CASE(a_period_and_overruns)
{
    sigset_t mask = block(SIGUSR1);
    struct kernel_event event = {.signal = SIGUSR1, .notify = SIGEV_SIGNAL};
    int id = make(CLOCK_MONOTONIC, &event);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    set(id, 0, 5000000, 5000000);
    CHECK_EQ(syscall(SYS_timer_getoverrun, id), 0);
    while (now_ns(CLOCK_MONOTONIC) < start + 60000000)
        sleep_ms(5);
    siginfo_t info = await(&mask);
    CHECK(info.si_overrun >= 9);
    CHECK_EQ(syscall(SYS_timer_getoverrun, id), info.si_overrun);
    /* It goes on. */
    info = await(&mask);
    CHECK_EQ(info.si_code, SI_TIMER);
    struct itimerspec now = get(id);
    CHECK_EQ(ns(now.it_interval), 5000000);
    CHECK(ns(now.it_value) > 0 && ns(now.it_value) <= 5000000);
    set(id, 0, 0, 0);
    CHECK_EQ(ns(get(id).it_value), 0);
}

static void *sleeps(void *argument)
{
    *(pid_t *)argument = (pid_t)syscall(SYS_gettid);
    for (;;)
        sleep_ms(1000);
    return 0;
}

CASE(a_signal_for_one_thread)
{
    sigset_t mask = block(SIGUSR2);
    pid_t other = 0;
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, 0, sleeps, &other), 0);
    while (!*(volatile pid_t *)&other)
        sleep_ms(1);
    struct kernel_event event = {
        .signal = SIGUSR2, .notify = SIGEV_THREAD_ID, .thread = (int)syscall(SYS_gettid)};
    int id = make(CLOCK_MONOTONIC, &event), unused;
    set(id, 0, 1000000, 0);
    CHECK_EQ(await(&mask).si_timerid, id);
    /* The other thread has it pending, and nobody else can take it. */
    event.thread = other;
    id = make(CLOCK_MONOTONIC, &event);
    set(id, 0, 1, 0);
    struct timespec short_time = {0, 30000000};
    CHECK_ERRNO(sigtimedwait(&mask, 0, &short_time), EAGAIN);
    event.thread = 1;
    CHECK_ERRNO(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &unused), EINVAL);
}

CASE(without_a_signal)
{
    struct kernel_event event = {.notify = SIGEV_NONE};
    int id = make(CLOCK_REALTIME, &event);
    set(id, 0, 10000000, 0);
    CHECK(ns(get(id).it_value) > 0);
    while (ns(get(id).it_value) > 0)
        sleep_ms(2);
    set(id, 0, 10000000, 3000000000);
    sleep_ms(15);
    CHECK(ns(get(id).it_value) > 2000000000);
    CHECK_EQ(ns(get(id).it_interval), 3000000000);
}

CASE(absolute_times)
{
    sigset_t mask = block(SIGALRM);
    clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME};
    for (int i = 0; i < 3; i++) {
        int id = make(clocks[i], 0);
        int64_t due = now_ns(clocks[i]) + 20000000;
        set(id, TIMER_ABSTIME, due, 0);
        CHECK(ns(get(id).it_value) <= 20000000);
        CHECK_EQ(await(&mask).si_timerid, id);
        CHECK(now_ns(clocks[i]) >= due);
        /* In the past means now. */
        set(id, TIMER_ABSTIME, 1, 0);
        CHECK_EQ(await(&mask).si_timerid, id);
    }
}

CASE(processor_time)
{
    sigset_t mask = block(SIGALRM);
    clockid_t clocks[] = {CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID};
    for (int i = 0; i < 2; i++) {
        struct timespec none = {0, 0};
        siginfo_t info;
        int id = make(clocks[i], 0);
        int64_t start = now_ns(clocks[i]);
        set(id, 0, 30000000, 0);
        while (sigtimedwait(&mask, &info, &none) == -1)
            ;
        CHECK_EQ(info.si_timerid, id);
        CHECK(now_ns(clocks[i]) - start >= 30000000);
    }
}

CASE(errors_of_timers)
{
    struct kernel_event event = {.signal = SIGUSR1, .notify = SIGEV_SIGNAL};
    struct itimerspec new = spec(1000000000, 0), bad = spec(0, 0), old;
    int id;
    CHECK_ERRNO(syscall(SYS_timer_create, 99, 0, &id), EINVAL);
    CHECK_ERRNO(syscall(SYS_timer_create, CLOCK_MONOTONIC_RAW, 0, &id), EOPNOTSUPP);
    CHECK_ERRNO(syscall(SYS_timer_create, CLOCK_REALTIME_COARSE, 0, &id), EOPNOTSUPP);
    CHECK_ERRNO(syscall(SYS_timer_create, CLOCK_MONOTONIC, BAD_LOW, &id), EFAULT);
    CHECK_ERRNO(syscall(SYS_timer_create, CLOCK_MONOTONIC, 0, BAD_LOW), EFAULT);
    event.signal = 0;
    CHECK_ERRNO(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &id), EINVAL);
    event.signal = 65;
    CHECK_ERRNO(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &id), EINVAL);
    event.signal = SIGUSR1;
    event.notify = 3;
    CHECK_ERRNO(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &id), EINVAL);
    event.notify = SIGEV_NONE;
    event.signal = 99;
    id = make(CLOCK_MONOTONIC, &event);
    CHECK_ERRNO(syscall(SYS_timer_settime, id, 0, 0, &old), EINVAL);
    CHECK_ERRNO(syscall(SYS_timer_settime, id, 0, BAD_LOW, &old), EFAULT);
    CHECK_ERRNO(syscall(SYS_timer_settime, id + 1, 0, &new, &old), EINVAL);
    bad.it_value.tv_nsec = 1000000000;
    CHECK_ERRNO(syscall(SYS_timer_settime, id, 0, &bad, &old), EINVAL);
    bad.it_value.tv_nsec = 0;
    bad.it_interval.tv_sec = -1;
    CHECK_ERRNO(syscall(SYS_timer_settime, id, 0, &bad, &old), EINVAL);
    CHECK_OK(syscall(SYS_timer_settime, id, 0, &new, &old));
    CHECK_EQ(ns(old.it_value), 0);
    CHECK_OK(syscall(SYS_timer_settime, id, 0, &new, &old));
    CHECK(ns(old.it_value) > 0 && ns(old.it_value) <= 1000000000);
    CHECK_ERRNO(syscall(SYS_timer_settime, id, 0, &new, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_timer_gettime, id, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_timer_gettime, -1, &old), EINVAL);
    CHECK_ERRNO(syscall(SYS_timer_getoverrun, -1), EINVAL);
}

CASE(a_child_has_no_timers)
{
    struct kernel_event event = {.notify = SIGEV_NONE};
    int id = make(CLOCK_MONOTONIC, &event);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_ERRNO(syscall(SYS_timer_delete, id), EINVAL);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_OK(syscall(SYS_timer_delete, id));
}

static int timer_file(clockid_t clock, int flags)
{
    int fd = timerfd_create(clock, flags);
    CHECK(fd >= 0);
    return fd;
}

static uint64_t ticks(int fd)
{
    uint64_t count = 0;
    CHECK_EQ(read(fd, &count, 8), 8);
    return count;
}

static void set_file(int fd, int flags, int64_t value_ns, int64_t interval_ns)
{
    struct itimerspec new = spec(value_ns, interval_ns);
    CHECK_OK(timerfd_settime(fd, flags, &new, 0));
}

static short ready(int fd, int timeout_ms)
{
    struct pollfd entry = {fd, POLLIN | POLLOUT, 0};
    CHECK(poll(&entry, 1, timeout_ms) >= 0);
    return entry.revents;
}

CASE(a_timer_file_counts)
{
    int fd = timer_file(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    uint64_t count;
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_ERRNO(read(fd, &count, 8), EAGAIN);
    CHECK_ERRNO(read(fd, &count, 7), EINVAL);
    CHECK_ERRNO(write(fd, &count, 8), EINVAL);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    set_file(fd, 0, 10000000, 5000000);
    CHECK_EQ(ready(fd, -1), POLLIN);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 10000000);
    while (now_ns(CLOCK_MONOTONIC) < start + 50000000)
        sleep_ms(5);
    count = ticks(fd);
    CHECK(count >= 8);
    CHECK_EQ(ready(fd, -1), POLLIN);
    set_file(fd, 0, 0, 0);
    CHECK_ERRNO(read(fd, &count, 8), EAGAIN);
    /* Setting it drops what was not read. */
    set_file(fd, 0, 1, 0);
    CHECK_EQ(ready(fd, -1), POLLIN);
    set_file(fd, 0, 3600000000000, 0);
    CHECK_EQ(ready(fd, 0), 0);
}

CASE(a_read_of_a_timer_file_waits)
{
    int fd = timer_file(CLOCK_REALTIME, 0);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    set_file(fd, 0, 20000000, 0);
    CHECK_EQ(ticks(fd), 1);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 19000000);
    clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME};
    for (int i = 0; i < 3; i++) {
        fd = timer_file(clocks[i], 0);
        int64_t due = now_ns(clocks[i]) + 10000000;
        set_file(fd, TFD_TIMER_ABSTIME, due, 0);
        CHECK_EQ(ticks(fd), 1);
        CHECK(now_ns(clocks[i]) >= due);
        set_file(fd, TFD_TIMER_ABSTIME, 1, 0);
        CHECK_EQ(ticks(fd), 1);
    }
}

CASE(what_a_timer_file_is_set_to)
{
    struct itimerspec now, old, new = spec(2000000000, 700000000);
    int fd = timer_file(CLOCK_MONOTONIC, 0);
    CHECK_OK(timerfd_gettime(fd, &now));
    CHECK_EQ(ns(now.it_value), 0);
    set_file(fd, 0, 100000000000, 500000000);
    CHECK_OK(timerfd_gettime(fd, &now));
    CHECK(ns(now.it_value) > 0 && ns(now.it_value) <= 100000000000);
    CHECK_EQ(ns(now.it_interval), 500000000);
    CHECK_OK(timerfd_settime(fd, 0, &new, &old));
    CHECK_EQ(ns(old.it_interval), 500000000);
    CHECK(ns(old.it_value) > 0);
    set_file(fd, 0, 1, 0);
    CHECK_EQ(ready(fd, -1), POLLIN);
    CHECK_OK(timerfd_gettime(fd, &now));
    CHECK_EQ(ns(now.it_value), 0);
    /* A period goes on while nobody reads. */
    set_file(fd, 0, 1, 3000000000);
    CHECK_EQ(ready(fd, -1), POLLIN);
    CHECK_OK(timerfd_gettime(fd, &now));
    CHECK(ns(now.it_value) > 1000000000);
    CHECK_EQ(ticks(fd), 1);
}

CASE(errors_of_timer_files)
{
    struct itimerspec new = spec(0, 0), bad = spec(0, 0);
    int fd = timer_file(CLOCK_MONOTONIC, 0), ends[2];
    CHECK_OK(pipe(ends));
    CHECK_ERRNO(timerfd_create(CLOCK_PROCESS_CPUTIME_ID, 0), EINVAL);
    CHECK_ERRNO(timerfd_create(CLOCK_MONOTONIC_RAW, 0), EINVAL);
    CHECK_ERRNO(timerfd_create(99, 0), EINVAL);
    CHECK_ERRNO(timerfd_create(CLOCK_MONOTONIC, 1), EINVAL);
    CHECK_ERRNO(syscall(SYS_timerfd_settime, -1, 0, BAD_LOW, 0), EFAULT);
    CHECK_ERRNO(timerfd_settime(-1, 4, &new, 0), EINVAL);
    bad.it_value.tv_nsec = -1;
    CHECK_ERRNO(timerfd_settime(-1, 0, &bad, 0), EINVAL);
    CHECK_ERRNO(timerfd_settime(-1, 0, &new, 0), EBADF);
    CHECK_ERRNO(timerfd_settime(ends[0], 0, &new, 0), EINVAL);
    CHECK_ERRNO(timerfd_gettime(ends[0], &new), EINVAL);
    CHECK_ERRNO(timerfd_gettime(-1, &new), EBADF);
    CHECK_ERRNO(syscall(SYS_timerfd_gettime, fd, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_timerfd_settime, fd, 0, &new, BAD_LOW), EFAULT);
}

CASE(a_timer_file_in_epoll)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = 7}, found[2];
    int instance = epoll_create1(0), fd = timer_file(CLOCK_MONOTONIC, TFD_NONBLOCK);
    CHECK_OK(epoll_ctl(instance, EPOLL_CTL_ADD, fd, &event));
    set_file(fd, 0, 5000000, 5000000);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(epoll_wait(instance, found, 2, -1), 1);
        CHECK_EQ(found[0].data.u64, 7);
        CHECK(ticks(fd) >= 1);
    }
}

CASE(ticks_can_be_set)
{
    uint64_t count = 5, none = 0;
    int fd = timer_file(CLOCK_MONOTONIC, TFD_NONBLOCK);
    if (ioctl(fd, SET_TICKS, &count) == -1 && errno == ENOTTY)
        SKIP("this kernel is built without checkpoint and restore");
    CHECK_EQ(ticks(fd), 5);
    CHECK_ERRNO(ioctl(fd, SET_TICKS, &none), EINVAL);
    CHECK_ERRNO(ioctl(fd, SET_TICKS, BAD_LOW), EFAULT);
}

CASE(a_timer_file_and_its_copies)
{
    int fd = timer_file(CLOCK_MONOTONIC, 0);
    set_file(fd, 0, 20000000, 0);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_EQ(ticks(fd), 1);
        _exit(0);
    }
    close(fd);
    CHECK_EXITED(child, 0);
}

CASE(what_proc_shows)
{
    char path[64], text[600];
    int fd = timer_file(CLOCK_BOOTTIME, 0);
    set_file(fd, TFD_TIMER_ABSTIME, 3000000000000000, 1500000000);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, text, sizeof text - 1);
    CHECK(length > 0);
    text[length] = 0;
    CHECK_STR(text, "anon_inode:[timerfd]");
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    slurp(path, text, sizeof text);
    CHECK(strstr(text, "clockid: 7\nticks: 0\nsettime flags: 01\nit_value: ("));
    CHECK(strstr(text, "it_interval: (1, 500000000)\n"));
}

CASE(adjtimex_reads)
{
    struct timex state = {0}, again = {0};
    int result = adjtimex(&state);
    CHECK(result >= TIME_OK && result <= TIME_ERROR);
    CHECK(state.tick >= 9000 && state.tick <= 11000);
    CHECK(state.tolerance > 0);
    CHECK(state.time.tv_sec > 1500000000);
    CHECK_EQ(syscall(SYS_clock_adjtime, CLOCK_REALTIME, &again), result);
    CHECK_EQ(again.tick, state.tick);
    CHECK_ERRNO(syscall(SYS_adjtimex, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_clock_adjtime, CLOCK_MONOTONIC, &again), EOPNOTSUPP);
    CHECK_ERRNO(syscall(SYS_clock_adjtime, 99, &again), EINVAL);
    state.modes = ADJ_TICK;
    state.tick = 8999;
    CHECK_ERRNO(adjtimex(&state), EINVAL);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setuid(1000));
        state.modes = ADJ_TICK;
        state.tick = again.tick;
        CHECK_ERRNO(adjtimex(&state), EPERM);
        state.modes = 0;
        CHECK_EQ(adjtimex(&state), result);
        state.modes = ADJ_OFFSET_SS_READ;
        CHECK_EQ(adjtimex(&state), result);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(a_tick_beyond_all_bounds_is_refused)
{
    const long ticks[] = {LONG_MIN, LONG_MAX, -10000, 0};
    for (int i = 0; i < 4; i++) {
        struct timex request = {.modes = ADJ_TICK, .tick = ticks[i]};
        CHECK_ERRNO(adjtimex(&request), EINVAL);
    }
}
