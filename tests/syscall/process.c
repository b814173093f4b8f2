/* Processes: fork vfork clone clone3 wait4 waitid exit, process groups and sessions, orphans,
 * zombies, what a child inherits and what it does not. */
#include "harness.h"
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>

CASE(fork_returns_twice_and_copies_memory)
{
    static volatile int value = 1;
    volatile int on_stack = 1;
    pid_t parent = getpid();
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_EQ(getppid(), parent);
        CHECK(getpid() != parent);
        value = 2;
        on_stack = 3;
        _exit(value + on_stack);
    }
    CHECK_EXITED(child, 5);
    CHECK_EQ(value, 1);
    CHECK_EQ(on_stack, 1);
}

CASE(exit_status_is_eight_bits)
{
    int codes[] = {0, 1, 127, 255, 256, -1};
    for (int i = 0; i < 6; i++) {
        pid_t child = fork_or_fail();
        if (child == 0)
            _exit(codes[i]);
        CHECK_EXITED(child, codes[i] & 255);
    }
}

CASE(wait_reports_signal)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (;;)
            pause();
    }
    CHECK_OK(kill(child, SIGTERM));
    CHECK_KILLED(child, SIGTERM);
    child = fork_or_fail();
    if (child == 0) {
        for (;;)
            ;
    }
    CHECK_OK(kill(child, SIGKILL));
    CHECK_KILLED(child, SIGKILL);
}

CASE(wait_without_children)
{
    int status;
    CHECK_ERRNO(waitpid(-1, &status, 0), ECHILD);
    CHECK_ERRNO(waitpid(-1, &status, WNOHANG), ECHILD);
    CHECK_ERRNO(waitpid(1, &status, 0), ECHILD);
    CHECK_ERRNO(waitpid(getpid(), &status, 0), ECHILD);
    CHECK_ERRNO(waitpid(-1, &status, 0x1000), EINVAL);
    siginfo_t info;
    CHECK_ERRNO(syscall(SYS_waitid, P_ALL, 0, &info, WEXITED, 0), ECHILD);
    CHECK_ERRNO(syscall(SYS_waitid, P_ALL, 0, &info, 0, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_waitid, 99, 0, &info, WEXITED, 0), EINVAL);
}

CASE(wait_nohang)
{
    int ends[2], status;
    CHECK_OK(pipe(ends));
    pid_t child = fork_or_fail();
    if (child == 0) {
        char byte;
        close(ends[1]);
        _exit((int)read(ends[0], &byte, 1));
    }
    CHECK_EQ(waitpid(child, &status, WNOHANG), 0);
    close(ends[1]);
    CHECK_EXITED(child, 0);
}

CASE(wait_any_returns_each_child_once)
{
    enum { CHILDREN = 20 };
    int seen[CHILDREN] = {0}, status;
    for (int i = 0; i < CHILDREN; i++)
        if (fork_or_fail() == 0)
            _exit(i);
    for (int i = 0; i < CHILDREN; i++) {
        CHECK(wait(&status) > 0);
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) < CHILDREN);
        CHECK_EQ(seen[WEXITSTATUS(status)]++, 0);
    }
    CHECK_ERRNO(wait(&status), ECHILD);
}

CASE(waitid_information)
{
    siginfo_t info;
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(42);
    memset(&info, 0, sizeof info);
    /* WNOWAIT leaves the child to be waited for again. */
    CHECK_OK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT));
    CHECK_EQ(info.si_pid, child);
    CHECK_OK(waitid(P_PID, (id_t)child, &info, WEXITED));
    CHECK_EQ(info.si_signo, SIGCHLD);
    CHECK_EQ(info.si_code, CLD_EXITED);
    CHECK_EQ(info.si_pid, child);
    CHECK_EQ(info.si_status, 42);
    CHECK_ERRNO(waitid(P_PID, (id_t)child, &info, WEXITED), ECHILD);

    child = fork_or_fail();
    if (child == 0) {
        raise(SIGKILL);
        _exit(0);
    }
    CHECK_OK(waitid(P_PID, (id_t)child, &info, WEXITED));
    CHECK_EQ(info.si_code, CLD_KILLED);
    CHECK_EQ(info.si_status, SIGKILL);
}

CASE(waitid_nohang_clears_pid)
{
    siginfo_t info;
    memset(&info, 0x55, sizeof info);
    pid_t child = fork_or_fail();
    if (child == 0) {
        pause();
        _exit(0);
    }
    CHECK_OK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG));
    CHECK_EQ(info.si_pid, 0);
    CHECK_EQ(info.si_signo, 0);
    kill(child, SIGKILL);
    CHECK_KILLED(child, SIGKILL);
}

CASE(stop_and_continue_are_reported)
{
    int status;
    siginfo_t info;
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (;;)
            pause();
    }
    CHECK_OK(kill(child, SIGSTOP));
    CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
    CHECK(WIFSTOPPED(status));
    CHECK_EQ(WSTOPSIG(status), SIGSTOP);
    CHECK_EQ(waitpid(child, &status, WUNTRACED | WNOHANG), 0);
    CHECK_OK(kill(child, SIGCONT));
    CHECK_EQ(waitpid(child, &status, WCONTINUED), child);
    CHECK(WIFCONTINUED(status));
    CHECK_OK(kill(child, SIGTSTP));
    CHECK_OK(waitid(P_PID, (id_t)child, &info, WSTOPPED));
    CHECK_EQ(info.si_code, CLD_STOPPED);
    CHECK_EQ(info.si_status, SIGTSTP);
    /* A stopped process dies of SIGKILL at once. */
    CHECK_OK(kill(child, SIGKILL));
    CHECK_KILLED(child, SIGKILL);
}

CASE(wait_by_group)
{
    int status;
    pid_t first = fork_or_fail();
    if (first == 0) {
        pause();
        _exit(0);
    }
    CHECK_OK(setpgid(first, first));
    pid_t second = fork_or_fail();
    if (second == 0)
        _exit(7);
    CHECK_EQ(waitpid(0, &status, 0), second);
    CHECK_ERRNO(waitpid(0, &status, 0), ECHILD);
    CHECK_EQ(waitpid(-first, &status, WNOHANG), 0);
    CHECK_OK(kill(-first, SIGKILL));
    CHECK_EQ(waitpid(-first, &status, 0), first);
}

CASE(wait_resource_usage)
{
    struct rusage usage;
    int status;
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(3);
    memset(&usage, 0xff, sizeof usage);
    CHECK_EQ(wait4(child, &status, 0, &usage), child);
    CHECK(usage.ru_utime.tv_usec >= 0 && usage.ru_utime.tv_usec < 1000000);
    child = fork_or_fail();
    if (child == 0)
        _exit(3);
    CHECK_EQ(syscall(SYS_wait4, child, NULL, 0, NULL), child);
}

CASE(wait_bad_pointer_still_reaps)
{
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(0);
    CHECK_ERRNO(syscall(SYS_wait4, child, BAD_LOW, 0, NULL), EFAULT);
    CHECK_ERRNO(syscall(SYS_wait4, child, NULL, 0, NULL), ECHILD);
    child = fork_or_fail();
    if (child == 0)
        _exit(0);
    CHECK_ERRNO(syscall(SYS_waitid, P_PID, child, BAD_KERNEL, WEXITED, NULL), EFAULT);
}

CASE(ignored_sigchld_reaps_by_itself)
{
    int status;
    signal(SIGCHLD, SIG_IGN);
    if (fork_or_fail() == 0)
        _exit(1);
    CHECK_ERRNO(wait(&status), ECHILD);
    signal(SIGCHLD, SIG_DFL);
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(1);
    CHECK_EXITED(child, 1);
}

CASE(zombie_can_be_signalled)
{
    siginfo_t info;
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(9);
    CHECK_OK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT));
    CHECK_OK(kill(child, 0));
    CHECK_OK(kill(child, SIGKILL));
    CHECK_EXITED(child, 9);
    CHECK_ERRNO(kill(child, 0), ESRCH);
}

CASE(orphan_gets_a_new_parent)
{
    int ends[2];
    pid_t new_parent = 0;
    CHECK_OK(pipe(ends));
    pid_t middle = fork_or_fail();
    if (middle == 0) {
        pid_t old = getpid();
        if (fork_or_fail() == 0) {
            while (getppid() == old)
                sched_yield();
            new_parent = getppid();
            CHECK_EQ(write(ends[1], &new_parent, sizeof new_parent), sizeof new_parent);
        }
        _exit(0);
    }
    CHECK_EXITED(middle, 0);
    CHECK_EQ(read(ends[0], &new_parent, sizeof new_parent), sizeof new_parent);
    CHECK(new_parent != middle);
    int status;
    CHECK_ERRNO(wait(&status), ECHILD);
}

CASE(subreaper_adopts)
{
    int status;
    CHECK_OK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
    pid_t middle = fork_or_fail();
    if (middle == 0) {
        if (fork_or_fail() == 0)
            _exit(77);
        _exit(1);
    }
    CHECK_EXITED(middle, 1);
    CHECK(wait(&status) > 0);
    CHECK_EQ(WEXITSTATUS(status), 77);
}

CASE(parent_death_signal)
{
    int ends[2];
    CHECK_OK(pipe(ends));
    pid_t middle = fork_or_fail();
    if (middle == 0) {
        int ready[2];
        char byte = 1;
        CHECK_OK(pipe(ready));
        if (fork_or_fail() == 0) {
            CHECK_OK(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0));
            CHECK_EQ(write(ready[1], &byte, 1), 1);
            for (;;)
                pause();
        }
        CHECK_EQ(read(ready[0], &byte, 1), 1);
        _exit(0);
    }
    CHECK_EXITED(middle, 0);
    close(ends[1]);
    /* End of file: the grandchild, the last holder of the other end, is gone. */
    char byte;
    CHECK_EQ(read(ends[0], &byte, 1), 0);
}

CASE(vfork_suspends_parent_and_shares_memory)
{
    static volatile int value;
    pid_t child = vfork();
    if (child == 0) {
        value = 17;
        _exit(4);
    }
    CHECK(child > 0);
    CHECK_EQ(value, 17);
    CHECK_EXITED(child, 4);
}

static int clone_body(void *argument)
{
    *(volatile int *)argument += 1;
    return 21;
}

CASE(clone_shares_memory_with_clone_vm)
{
    static char stack[65536] __attribute__((aligned(16)));
    static volatile int value = 1;
    int child = clone(clone_body, stack + sizeof stack, CLONE_VM | SIGCHLD, (void *)&value);
    CHECK(child > 0);
    CHECK_EXITED(child, 21);
    CHECK_EQ(value, 2);
    child = clone(clone_body, stack + sizeof stack, SIGCHLD, (void *)&value);
    CHECK_EXITED(child, 21);
    CHECK_EQ(value, 2);
}

static int close_body(void *argument)
{
    return close(*(int *)argument);
}

CASE(clone_files_shares_descriptors)
{
    static char stack[65536] __attribute__((aligned(16)));
    int fd = dup(0);
    int child = clone(close_body, stack + sizeof stack, CLONE_FILES | SIGCHLD, &fd);
    CHECK_EXITED(child, 0);
    CHECK_ERRNO(fcntl(fd, F_GETFD), EBADF);
    fd = dup(0);
    child = clone(close_body, stack + sizeof stack, SIGCHLD, &fd);
    CHECK_EXITED(child, 0);
    CHECK_EQ(fcntl(fd, F_GETFD), 0);
}

CASE(clone_without_exit_signal_needs_wclone)
{
    static char stack[65536] __attribute__((aligned(16)));
    static int value;
    int status;
    int child = clone(clone_body, stack + sizeof stack, 0, &value);
    CHECK(child > 0);
    CHECK_ERRNO(waitpid(child, &status, 0), ECHILD);
    CHECK_EQ(waitpid(child, &status, __WCLONE), child);
    CHECK_EQ(WEXITSTATUS(status), 21);
}

CASE(clone_tid_pointers)
{
    int parent_tid = 0;
    static volatile int child_tid;
    int child = (int)syscall(SYS_clone, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, NULL,
                             &parent_tid, &child_tid, 0);
    if (child == 0)
        _exit(child_tid == getpid() ? 0 : 1);
    CHECK_EQ(parent_tid, child);
    CHECK_EQ(child_tid, 0);
    CHECK_EXITED(child, 0);
}

CASE(clone_bad_flags)
{
    CHECK_ERRNO(syscall(SYS_clone, CLONE_THREAD | SIGCHLD, NULL, NULL, NULL, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_clone, CLONE_SIGHAND | SIGCHLD, NULL, NULL, NULL, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_clone, CLONE_FS | CLONE_NEWNS | SIGCHLD, NULL, NULL, NULL, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_clone, CLONE_THREAD | CLONE_SIGHAND, NULL, NULL, NULL, 0), EINVAL);
}

struct clone3_arguments {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
};

CASE(clone3_like_fork)
{
    struct clone3_arguments arguments = {.exit_signal = SIGCHLD};
    long child = syscall(SYS_clone3, &arguments, 64);
    if (child == 0)
        _exit(33);
    CHECK(child > 0);
    CHECK_EXITED(child, 33);
}

CASE(clone3_errors)
{
    struct {
        struct clone3_arguments arguments;
        uint64_t more[8];
    } large = {.arguments = {.exit_signal = SIGCHLD}};
    struct clone3_arguments arguments = {.exit_signal = SIGCHLD};
    CHECK_ERRNO(syscall(SYS_clone3, &arguments, 8), EINVAL);
    CHECK_ERRNO(syscall(SYS_clone3, BAD_LOW, 64), EFAULT);
    CHECK_ERRNO(syscall(SYS_clone3, &arguments, 1 << 20), E2BIG);
    large.more[7] = 1;
    CHECK_ERRNO(syscall(SYS_clone3, &large, sizeof large), E2BIG);
    arguments.exit_signal = 200;
    CHECK_ERRNO(syscall(SYS_clone3, &arguments, 64), EINVAL);
    arguments.exit_signal = SIGCHLD;
    arguments.stack_size = 4096;
    CHECK_ERRNO(syscall(SYS_clone3, &arguments, 64), EINVAL);
    arguments.stack_size = 0;
    arguments.flags = CLONE_DETACHED;
    CHECK_ERRNO(syscall(SYS_clone3, &arguments, 64), EINVAL);
    arguments.flags = CLONE_THREAD;
    arguments.exit_signal = 0;
    CHECK_ERRNO(syscall(SYS_clone3, &arguments, 64), EINVAL);
}

CASE(child_inherits)
{
    sigset_t blocked, seen;
    scratch();
    umask(027);
    signal(SIGUSR1, SIG_IGN);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    CHECK_OK(sigprocmask(SIG_BLOCK, &blocked, NULL));
    raise(SIGUSR2);
    alarm(50);
    char before[200], after[200];
    CHECK(getcwd(before, sizeof before));
    pid_t group = getpgrp(), session = getsid(0);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK(getcwd(after, sizeof after));
        CHECK_STR(after, before);
        CHECK_EQ(umask(0), 027);
        CHECK(signal(SIGUSR1, SIG_DFL) == SIG_IGN);
        CHECK_OK(sigprocmask(SIG_BLOCK, NULL, &seen));
        CHECK(sigismember(&seen, SIGUSR2));
        CHECK_OK(sigpending(&seen));
        CHECK(!sigismember(&seen, SIGUSR2)); /* Pending signals are not inherited, */
        CHECK_EQ(alarm(0), 0);               /* nor are alarms. */
        CHECK_EQ(getpgrp(), group);
        CHECK_EQ(getsid(0), session);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(process_groups_and_sessions)
{
    pid_t self = getpid();
    CHECK_EQ(getpgrp(), self); /* The harness made it so. */
    CHECK_EQ(getpgid(0), self);
    CHECK_EQ(getpgid(self), self);
    CHECK_ERRNO(setsid(), EPERM); /* A group leader may not. */
    CHECK_ERRNO(getpgid(0x3fffffff), ESRCH);
    CHECK_ERRNO(getsid(0x3fffffff), ESRCH);
    CHECK_ERRNO(setpgid(0, -1), EINVAL);
    CHECK_ERRNO(setpgid(0x3fffffff, 0), ESRCH);
    CHECK_ERRNO(setpgid(getppid(), 0), ESRCH);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_EQ(getpgrp(), getppid());
        CHECK_ERRNO(setpgid(0, 0x3ffffff0), EPERM);
        CHECK_EQ(setsid(), getpid());
        CHECK_EQ(getsid(0), getpid());
        CHECK_EQ(getpgrp(), getpid());
        CHECK_ERRNO(setpgid(0, 0), EPERM); /* A session leader may not. */
        CHECK_ERRNO(setpgid(0, self), EPERM);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(setpgid_after_exec_is_refused)
{
    int ends[2];
    char byte;
    CHECK_OK(pipe(ends));
    pid_t child = fork_or_fail();
    if (child == 0) {
        close(ends[0]);
        /* Needs /bin/busybox: a program that closes nothing and waits. */
        fcntl(ends[1], F_SETFD, FD_CLOEXEC);
        execl("/bin/busybox", "sleep", "1000", (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    CHECK_EQ(read(ends[0], &byte, 1), 0); /* It has executed. */
    CHECK_ERRNO(setpgid(child, child), EACCES);
    CHECK_OK(kill(child, SIGKILL));
    CHECK_KILLED(child, SIGKILL);
}

CASE(many_children_in_a_row)
{
    for (int i = 0; i < 200; i++) {
        pid_t child = fork_or_fail();
        if (child == 0)
            _exit(i & 127);
        CHECK_EXITED(child, i & 127);
    }
}

CASE(many_children_at_once)
{
    enum { CHILDREN = 60 };
    pid_t children[CHILDREN];
    int ends[2];
    char byte;
    CHECK_OK(pipe(ends));
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork_or_fail();
        if (children[i] == 0) {
            close(ends[1]);
            _exit(read(ends[0], &byte, 1) == 0 ? i : 100);
        }
    }
    close(ends[1]);
    for (int i = CHILDREN - 1; i >= 0; i--)
        CHECK_EXITED(children[i], i);
}

CASE(deep_fork_chain)
{
    int depth = 0;
    for (;;) {
        if (depth == 30)
            _exit(depth);
        pid_t child = fork_or_fail();
        if (child != 0) {
            int status = harness_wait(child);
            if (depth > 0)
                _exit(WEXITSTATUS(status));
            CHECK(WIFEXITED(status));
            CHECK_EQ(WEXITSTATUS(status), 30);
            return;
        }
        depth++;
    }
}

CASE(two_processes_increment_shared_memory)
{
    enum { ROUNDS = 20000 };
    int *counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t children[3];
    for (int k = 0; k < 3; k++) {
        children[k] = fork_or_fail();
        if (children[k] == 0) {
            for (int i = 0; i < ROUNDS; i++)
                __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
            _exit(0);
        }
    }
    for (int k = 0; k < 3; k++)
        CHECK_EXITED(children[k], 0);
    CHECK_EQ(*counter, 3 * ROUNDS);
}

CASE(sigchld_arrives_with_information)
{
    siginfo_t info;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    CHECK_OK(sigprocmask(SIG_BLOCK, &set, NULL));
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(5);
    CHECK_EQ(sigwaitinfo(&set, &info), SIGCHLD);
    CHECK_EQ(info.si_pid, child);
    CHECK_EQ(info.si_status, 5);
    CHECK_EQ(info.si_code, CLD_EXITED);
    CHECK_EXITED(child, 5);
}

CASE(pidfd_waits_and_signals)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (;;)
            pause();
    }
    int fd = (int)syscall(SYS_pidfd_open, child, 0);
    if (fd == -1 && errno == ENOSYS) {
        /* Not in the list of calls that must exist; if it exists it must work. */
        kill(child, SIGKILL);
        CHECK_KILLED(child, SIGKILL);
        return;
    }
    CHECK(fd >= 0);
    CHECK_OK(syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0));
    CHECK_OK(waitid((idtype_t)3 /* P_PIDFD */, (id_t)fd, &info, WEXITED));
    CHECK_EQ(info.si_pid, child);
}
