/* Descriptors of processes: opening, readiness, signals, waiting, descriptors of others, clone. */
#include "harness.h"
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif
#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x1000
#endif

static int open_process(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    CHECK(fd >= 0);
    return fd;
}

static int send(int fd, int number, siginfo_t *info)
{
    return (int)syscall(SYS_pidfd_send_signal, fd, number, info, 0);
}

static short ready(int fd, int timeout_ms)
{
    struct pollfd entry = {fd, POLLIN, 0};
    CHECK(poll(&entry, 1, timeout_ms) >= 0);
    return entry.revents;
}

static pid_t sleeper(void)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (;;)
            pause();
    }
    return child;
}

CASE(opening_errors)
{
    char byte;
    int fd = open_process(getpid());
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_ERRNO(read(fd, &byte, 1), EINVAL);
    CHECK_ERRNO(syscall(SYS_pidfd_open, 0, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_pidfd_open, -1, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_pidfd_open, getpid(), 1), EINVAL);
    CHECK_ERRNO(syscall(SYS_pidfd_open, 0x3fffff, 0), ESRCH);
    fd = (int)syscall(SYS_pidfd_open, getpid(), O_NONBLOCK);
    CHECK(fd >= 0);
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

CASE(it_becomes_readable_when_the_process_ends)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 1}, found;
    pid_t child = sleeper();
    int fd = open_process(child), instance = epoll_create1(0);
    CHECK_OK(epoll_ctl(instance, EPOLL_CTL_ADD, fd, &event));
    CHECK_EQ(ready(fd, 0), 0);
    CHECK_EQ(epoll_wait(instance, &found, 1, 0), 0);
    kill(child, SIGKILL);
    CHECK_EQ(ready(fd, -1), POLLIN);
    CHECK_EQ(epoll_wait(instance, &found, 1, -1), 1);
    /* A zombie can still be opened. */
    close(open_process(child));
    CHECK_KILLED(child, SIGKILL);
    CHECK(ready(fd, 0) & POLLIN);
    CHECK_ERRNO(syscall(SYS_pidfd_open, child, 0), ESRCH);
    CHECK_ERRNO(send(fd, 0, 0), ESRCH);
}

CASE(waiting_by_descriptor)
{
    siginfo_t info = {0};
    pid_t child = fork_or_fail(), other;
    if (child == 0)
        _exit(5);
    other = sleeper();
    int fd = open_process(child), waits = open_process(other);
    CHECK_OK(waitid(P_PIDFD, (id_t)fd, &info, WEXITED | WNOWAIT));
    CHECK_EQ(info.si_pid, child);
    CHECK_EQ(info.si_status, 5);
    CHECK_OK(waitid(P_PIDFD, (id_t)fd, &info, WEXITED));
    CHECK_ERRNO(waitid(P_PIDFD, (id_t)fd, &info, WEXITED), ECHILD);
    info.si_pid = 1;
    CHECK_OK(waitid(P_PIDFD, (id_t)waits, &info, WEXITED | WNOHANG));
    CHECK_EQ(info.si_pid, 0);
    CHECK_OK(fcntl(waits, F_SETFL, O_NONBLOCK));
    CHECK_ERRNO(waitid(P_PIDFD, (id_t)waits, &info, WEXITED), EAGAIN);
    CHECK_ERRNO(waitid(P_PIDFD, 999, &info, WEXITED), EBADF);
    CHECK_ERRNO(waitid(P_PIDFD, (id_t)-1, &info, WEXITED), EINVAL);
    CHECK_ERRNO(waitid(P_PIDFD, 0, &info, WEXITED), EBADF);
    CHECK_ERRNO(waitid(P_PIDFD, (id_t)open_process(getpid()), &info, WEXITED), ECHILD);
    kill(other, SIGKILL);
    CHECK_KILLED(other, SIGKILL);
}

CASE(signals)
{
    siginfo_t info = {0};
    sigset_t set;
    int fd = open_process(getpid());
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK_OK(sigprocmask(SIG_BLOCK, &set, 0));
    CHECK_OK(send(fd, SIGUSR1, 0));
    CHECK_EQ(sigwaitinfo(&set, &info), SIGUSR1);
    CHECK_EQ(info.si_pid, getpid());
    CHECK_EQ(info.si_code, SI_USER);
    info.si_code = SI_QUEUE;
    info.si_value.sival_int = 77;
    CHECK_OK(send(fd, SIGUSR1, &info));
    CHECK_EQ(sigwaitinfo(&set, &info), SIGUSR1);
    CHECK_EQ(info.si_value.sival_int, 77);
    CHECK_ERRNO(send(fd, SIGUSR2, &info), EINVAL);
    CHECK_ERRNO(send(fd, SIGUSR1, BAD_LOW), EFAULT);
    CHECK_ERRNO(send(fd, 65, 0), EINVAL);
    CHECK_ERRNO(send(-1, 0, 0), EBADF);
    CHECK_ERRNO(send(eventfd(0, 0), 0, 0), EBADF);
    CHECK_ERRNO(syscall(SYS_pidfd_send_signal, fd, 0, 0, 99), EINVAL);
    CHECK_OK(send(fd, 0, 0));
    /* To others one must not pretend. */
    pid_t child = sleeper();
    fd = open_process(child);
    info.si_signo = SIGUSR1;
    info.si_code = SI_USER;
    CHECK_ERRNO(send(fd, SIGUSR1, &info), EPERM);
    info.si_signo = SIGKILL;
    info.si_code = SI_QUEUE;
    CHECK_OK(send(fd, SIGKILL, &info));
    CHECK_KILLED(child, SIGKILL);
}

CASE(a_directory_of_proc_stands_for_its_process)
{
    char path[64];
    pid_t child = sleeper();
    snprintf(path, sizeof path, "/proc/%d", child);
    int home = open(path, O_RDONLY | O_DIRECTORY), path_only = open(path, O_PATH);
    CHECK(home >= 0 && path_only >= 0);
    snprintf(path, sizeof path, "/proc/%d/task", child);
    int tasks = open(path, O_RDONLY | O_DIRECTORY);
    snprintf(path, sizeof path, "/proc/%d/task/%d", child, child);
    int thread = open(path, O_RDONLY | O_DIRECTORY);
    int status = openat(home, "status", O_RDONLY), root = open("/proc", O_RDONLY);
    CHECK(tasks >= 0 && thread >= 0 && status >= 0 && root >= 0);
    CHECK_ERRNO(send(path_only, 0, 0), EBADF);
    CHECK_ERRNO(send(tasks, 0, 0), EBADF);
    CHECK_ERRNO(send(thread, 0, 0), EBADF);
    CHECK_ERRNO(send(status, 0, 0), EBADF);
    CHECK_ERRNO(send(root, 0, 0), EBADF);
    CHECK_ERRNO(syscall(SYS_pidfd_getfd, home, 0, 0), EBADF);
    CHECK_ERRNO(send(home, 65, 0), EINVAL);
    CHECK_OK(send(home, 0, 0));
    CHECK_OK(send(home, SIGKILL, 0));
    CHECK_KILLED(child, SIGKILL);
    CHECK_ERRNO(send(home, 0, 0), ESRCH);
}

CASE(permission)
{
    pid_t target = sleeper(), child;
    int fd = open_process(target);
    child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setuid(1000));
        CHECK_ERRNO(send(fd, SIGTERM, 0), EPERM);
        CHECK_ERRNO(syscall(SYS_pidfd_getfd, fd, 0, 0), EPERM);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    kill(target, SIGKILL);
    CHECK_KILLED(target, SIGKILL);
}

CASE(descriptors_of_others)
{
    int ends[2], there[2];
    char byte;
    CHECK_OK(pipe(ends));
    CHECK_OK(pipe(there));
    pid_t child = fork_or_fail();
    if (child == 0) {
        int fd = eventfd(33, 0);
        CHECK_EQ(write(there[1], &fd, sizeof fd), sizeof fd);
        CHECK_EQ(read(ends[0], &byte, 1), 1);
        _exit(0);
    }
    int number = -1, fd = open_process(child);
    uint64_t value;
    CHECK_EQ(read(there[0], &number, sizeof number), sizeof number);
    int mine = (int)syscall(SYS_pidfd_getfd, fd, number, 0);
    CHECK(mine >= 0);
    CHECK_EQ(fcntl(mine, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(read(mine, &value, 8), 8);
    CHECK_EQ(value, 33);
    CHECK_ERRNO(syscall(SYS_pidfd_getfd, fd, 999, 0), EBADF);
    CHECK_ERRNO(syscall(SYS_pidfd_getfd, fd, number, 1), EINVAL);
    CHECK_ERRNO(syscall(SYS_pidfd_getfd, mine, number, 0), EBADF);
    CHECK_ERRNO(syscall(SYS_pidfd_getfd, -1, number, 0), EBADF);
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EXITED(child, 0);
    CHECK_ERRNO(syscall(SYS_pidfd_getfd, fd, number, 0), ESRCH);
}

CASE(clone_gives_one)
{
    int fd = -1, unused = -1;
    siginfo_t info;
    pid_t child = (pid_t)syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, 0, &fd, 0, 0);
    if (child == 0)
        _exit(6);
    CHECK(child > 0);
    CHECK(fd >= 0);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_OK(waitid(P_PIDFD, (id_t)fd, &info, WEXITED));
    CHECK_EQ(info.si_pid, child);
    CHECK_EQ(info.si_status, 6);
    CHECK_ERRNO(syscall(SYS_clone, CLONE_PIDFD | CLONE_PARENT_SETTID | SIGCHLD, 0, &unused, 0, 0),
                EINVAL);
    CHECK_ERRNO(syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, 0, BAD_LOW, 0, 0), EFAULT);
    uint64_t arguments[8] = {CLONE_PIDFD, (uint64_t)(uintptr_t)&fd, 0, 0, SIGCHLD, 0, 0, 0};
    child = (pid_t)syscall(SYS_clone3, arguments, sizeof arguments);
    if (child == 0)
        _exit(7);
    CHECK(child > 0);
    CHECK_EQ(ready(fd, -1), POLLIN);
    CHECK_EXITED(child, 7);
}

CASE(what_proc_shows)
{
    char path[64], text[600], wanted[60];
    pid_t child = sleeper();
    int fd = open_process(child);
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    slurp(path, text, sizeof text);
    snprintf(wanted, sizeof wanted, "Pid:\t%d\nNSpid:\t%d\n", child, child);
    CHECK(strstr(text, wanted));
    kill(child, SIGKILL);
    CHECK_KILLED(child, SIGKILL);
    slurp(path, text, sizeof text);
    CHECK(strstr(text, "Pid:\t-1\n"));
}
