/* signalfd: taking, sets, readiness of the reader's own signals, records, errors. */
#include "harness.h"
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

static sigset_t mask_of(int first, int second)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, first);
    if (second)
        sigaddset(&set, second);
    return set;
}

static int make(int first, int second, int flags)
{
    sigset_t set = mask_of(first, second);
    CHECK_OK(sigprocmask(SIG_BLOCK, &set, 0));
    int fd = signalfd(-1, &set, flags);
    CHECK(fd >= 0);
    return fd;
}

static struct signalfd_siginfo take(int fd)
{
    struct signalfd_siginfo info;
    CHECK_EQ(sizeof info, 128);
    CHECK_EQ(read(fd, &info, sizeof info), sizeof info);
    return info;
}

static short ready(int fd)
{
    struct pollfd entry = {fd, POLLIN | POLLOUT, 0};
    CHECK(poll(&entry, 1, 0) >= 0);
    return entry.revents;
}

CASE(a_read_takes_a_signal)
{
    struct signalfd_siginfo info;
    int fd = make(SIGUSR1, 0, SFD_NONBLOCK | SFD_CLOEXEC);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_ERRNO(read(fd, &info, sizeof info), EAGAIN);
    CHECK_EQ(ready(fd), 0);
    kill(getpid(), SIGUSR1);
    CHECK_EQ(ready(fd), POLLIN);
    info = take(fd);
    CHECK_EQ(info.ssi_signo, SIGUSR1);
    CHECK_EQ(info.ssi_code, SI_USER);
    CHECK_EQ(info.ssi_pid, getpid());
    CHECK_EQ(info.ssi_uid, getuid());
    CHECK_ERRNO(read(fd, &info, sizeof info), EAGAIN);
    sigset_t pending;
    sigpending(&pending);
    CHECK(!sigismember(&pending, SIGUSR1));
}

CASE(several_at_a_time)
{
    struct signalfd_siginfo info[4];
    int fd = make(SIGUSR1, SIGRTMIN + 2, 0);
    union sigval value = {.sival_ptr = (void *)0x1122334455667788};
    CHECK_OK(sigqueue(getpid(), SIGRTMIN + 2, value));
    value.sival_int = 7;
    CHECK_OK(sigqueue(getpid(), SIGRTMIN + 2, value));
    kill(getpid(), SIGUSR1);
    CHECK_EQ(read(fd, info, sizeof info - 1), 3 * 128);
    CHECK_EQ(info[0].ssi_signo, SIGUSR1);
    CHECK_EQ(info[1].ssi_signo, SIGRTMIN + 2);
    CHECK_EQ(info[1].ssi_code, SI_QUEUE);
    CHECK_EQ(info[1].ssi_ptr, 0x1122334455667788);
    CHECK_EQ(info[1].ssi_int, 0x55667788);
    CHECK_EQ(info[2].ssi_int, 7);
}

CASE(the_set_can_be_changed)
{
    int fd = make(SIGUSR1, SIGUSR2, SFD_NONBLOCK);
    sigset_t set = mask_of(SIGUSR2, 0);
    kill(getpid(), SIGUSR1);
    CHECK_EQ(ready(fd), POLLIN);
    CHECK_EQ(signalfd(fd, &set, 0), fd);
    CHECK_EQ(ready(fd), 0);
    kill(getpid(), SIGUSR2);
    CHECK_EQ(take(fd).ssi_signo, SIGUSR2);
}

CASE(errors)
{
    sigset_t set = mask_of(SIGUSR1, SIGKILL);
    char small[127];
    int ends[2], fd = make(SIGUSR1, 0, 0);
    CHECK_OK(pipe(ends));
    CHECK_ERRNO(syscall(SYS_signalfd4, -1, &set, 7, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_signalfd4, -1, BAD_LOW, 8, 1), EFAULT);
    CHECK_ERRNO(syscall(SYS_signalfd4, -1, &set, 8, 1), EINVAL);
    CHECK_ERRNO(syscall(SYS_signalfd4, 999, &set, 8, 0), EBADF);
    CHECK_ERRNO(syscall(SYS_signalfd4, ends[0], &set, 8, 0), EINVAL);
    CHECK_ERRNO(read(fd, small, sizeof small), EINVAL);
    CHECK_ERRNO(write(fd, small, sizeof small), EINVAL);
    kill(getpid(), SIGUSR1);
    CHECK_ERRNO(read(fd, BAD_KERNEL, 128), EFAULT);
    int old = (int)syscall(SYS_signalfd, -1, &set, 8);
    CHECK(old >= 0);
    CHECK_EQ(fcntl(old, F_GETFD), 0);
}

static void *signals_later(void *argument)
{
    sleep_ms(20);
    kill(getpid(), *(int *)argument);
    return 0;
}

CASE(a_read_and_a_poll_wait)
{
    pthread_t thread;
    int number = SIGUSR2, fd = make(SIGUSR2, 0, 0);
    struct pollfd entry = {fd, POLLIN, 0};
    CHECK_EQ(pthread_create(&thread, 0, signals_later, &number), 0);
    CHECK_EQ(take(fd).ssi_signo, SIGUSR2);
    pthread_join(thread, 0);
    CHECK_EQ(pthread_create(&thread, 0, signals_later, &number), 0);
    CHECK_EQ(poll(&entry, 1, -1), 1);
    pthread_join(thread, 0);
    CHECK_EQ(take(fd).ssi_signo, SIGUSR2);
}

CASE(in_epoll)
{
    pthread_t thread;
    int number = SIGUSR2, fd = make(SIGUSR2, 0, 0), instance = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 3}, found;
    CHECK_OK(epoll_ctl(instance, EPOLL_CTL_ADD, fd, &event));
    CHECK_EQ(epoll_wait(instance, &found, 1, 0), 0);
    CHECK_EQ(pthread_create(&thread, 0, signals_later, &number), 0);
    CHECK_EQ(epoll_wait(instance, &found, 1, -1), 1);
    CHECK_EQ(found.data.u64, 3);
    pthread_join(thread, 0);
    CHECK_EQ(take(fd).ssi_signo, SIGUSR2);
    CHECK_EQ(epoll_wait(instance, &found, 1, 0), 0);
}

CASE(a_child_that_ends)
{
    int fd = make(SIGCHLD, 0, 0);
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(9);
    struct signalfd_siginfo info = take(fd);
    CHECK_EQ(info.ssi_signo, SIGCHLD);
    CHECK_EQ(info.ssi_pid, child);
    CHECK_EQ(info.ssi_status, 9);
    CHECK_EQ(info.ssi_code, CLD_EXITED);
    CHECK_EXITED(child, 9);
}

CASE(a_reader_gets_its_own_signals)
{
    int fd = make(SIGUSR1, 0, SFD_NONBLOCK);
    kill(getpid(), SIGUSR1);
    pid_t child = fork_or_fail();
    if (child == 0) {
        struct signalfd_siginfo info;
        CHECK_EQ(ready(fd), 0);
        CHECK_ERRNO(read(fd, &info, sizeof info), EAGAIN);
        kill(getpid(), SIGUSR1);
        CHECK_EQ(take(fd).ssi_pid, getpid());
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(take(fd).ssi_pid, getpid());
}

CASE(an_expiry_of_a_timer)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3};
    struct itimerspec new = {{0, 0}, {0, 1000000}};
    timer_t timer;
    int fd = make(SIGRTMIN + 3, 0, 0);
    event.sigev_value.sival_int = 42;
    CHECK_OK(timer_create(CLOCK_MONOTONIC, &event, &timer));
    CHECK_OK(timer_settime(timer, 0, &new, 0));
    struct signalfd_siginfo info = take(fd);
    CHECK_EQ(info.ssi_code, SI_TIMER);
    CHECK_EQ(info.ssi_int, 42);
    CHECK_EQ(info.ssi_overrun, 0);
}

static void on_signal(int number)
{
    (void)number;
}

CASE(another_signal_interrupts)
{
    struct signalfd_siginfo info;
    struct sigaction action = {.sa_handler = on_signal};
    int fd = make(SIGUSR2, 0, 0);
    CHECK_OK(sigaction(SIGUSR1, &action, 0));
    pid_t child = pesterer(SIGUSR1);
    CHECK_ERRNO(read(fd, &info, sizeof info), EINTR);
    kill(child, SIGKILL);
    harness_wait(child);
}

CASE(what_proc_shows)
{
    char path[64], text[600], wanted[60];
    int fd = make(SIGUSR1, SIGUSR2, 0);
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    slurp(path, text, sizeof text);
    snprintf(wanted, sizeof wanted, "sigmask:\t%016llx\n",
             1ULL << (SIGUSR1 - 1) | 1ULL << (SIGUSR2 - 1));
    CHECK(strstr(text, wanted));
}
