/* Scheduling calls: parameters and their checks, process 1, timer slack. */
#include "harness.h"
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>

CASE(process_1_can_be_asked)
{
    struct sched_param parameters;
    memset(&parameters, 0, sizeof parameters);
    parameters.sched_priority = 99;
    cpu_set_t set;
    errno = 0;
    CHECK(getpriority(PRIO_PROCESS, 1) >= -20 && errno == 0);
    CHECK(syscall(SYS_sched_getscheduler, 1) >= 0);
    CHECK_OK(syscall(SYS_sched_getparam, 1, &parameters));
    CHECK_EQ(parameters.sched_priority, 0);
    CHECK_OK(sched_getaffinity(1, sizeof set, &set));
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setgid(65534));
        CHECK_OK(setuid(65534));
        CHECK_ERRNO(setpriority(PRIO_PROCESS, 1, 5), EPERM);
        parameters.sched_priority = 0;
        CHECK_ERRNO(syscall(SYS_sched_setscheduler, 1, SCHED_OTHER, &parameters), EPERM);
        CHECK_ERRNO(syscall(SYS_sched_setscheduler, 1, 99, &parameters), EINVAL);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(timer_slack_is_inherited)
{
    int first = prctl(PR_GET_TIMERSLACK);
    CHECK_OK(prctl(PR_SET_TIMERSLACK, 123456));
    CHECK_EQ(prctl(PR_GET_TIMERSLACK), 123456);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_EQ(prctl(PR_GET_TIMERSLACK), 123456);
        CHECK_OK(prctl(PR_SET_TIMERSLACK, 77));
        CHECK_EQ(prctl(PR_GET_TIMERSLACK), 77);
        CHECK_OK(prctl(PR_SET_TIMERSLACK, 0));
        CHECK_EQ(prctl(PR_GET_TIMERSLACK), 123456);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_OK(prctl(PR_SET_TIMERSLACK, 0));
    CHECK_EQ(prctl(PR_GET_TIMERSLACK), first);
}

struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
    uint32_t least, most;
};

static long get_attributes(pid_t pid, void *into, unsigned size, unsigned flags)
{
    return syscall(SYS_sched_getattr, pid, into, size, flags);
}

static long set_attributes(pid_t pid, void *from, unsigned flags)
{
    return syscall(SYS_sched_setattr, pid, from, flags);
}

CASE(attributes_are_kept)
{
    struct attributes own, seen;
    CHECK_OK(get_attributes(0, &own, sizeof own, 0));
    CHECK_EQ(own.size, 56);
    CHECK_EQ(own.policy, SCHED_OTHER);
    CHECK_EQ(own.priority, 0);
    CHECK_OK(get_attributes(0, &seen, 48, 0));
    CHECK_EQ(seen.size, 48);
    memset(&own, 0, sizeof own);
    own.size = 48;
    own.policy = SCHED_BATCH;
    own.nice = 7;
    CHECK_OK(set_attributes(0, &own, 0));
    CHECK_OK(get_attributes(0, &seen, sizeof seen, 0));
    CHECK_EQ(seen.policy, SCHED_BATCH);
    CHECK_EQ(seen.nice, 7);
    CHECK_EQ(getpriority(PRIO_PROCESS, 0), 7);
    CHECK_EQ(syscall(SYS_sched_getscheduler, 0), SCHED_BATCH);
    own.flags = 1;
    CHECK_OK(set_attributes(0, &own, 0));
    CHECK_OK(get_attributes(0, &seen, sizeof seen, 0));
    CHECK_EQ(seen.flags, 1);
    own.policy = SCHED_OTHER;
    own.flags = 8;
    own.nice = 9;
    CHECK_OK(set_attributes(0, &own, 0));
    CHECK_OK(get_attributes(0, &seen, sizeof seen, 0));
    CHECK_EQ(seen.policy, SCHED_BATCH);
    CHECK_EQ(seen.nice, 9);
}

CASE(attributes_are_checked)
{
    struct attributes own;
    char page[5000];
    CHECK_ERRNO(get_attributes(0, 0, sizeof own, 0), EINVAL);
    CHECK_ERRNO(get_attributes(-1, &own, sizeof own, 0), EINVAL);
    CHECK_ERRNO(get_attributes(0, &own, 47, 0), EINVAL);
    CHECK_ERRNO(get_attributes(0, &own, 4097, 0), EINVAL);
    CHECK_ERRNO(get_attributes(0, &own, sizeof own, 1), EINVAL);
    CHECK_ERRNO(get_attributes(0x3fffff0, &own, sizeof own, 0), ESRCH);
    CHECK_ERRNO(get_attributes(0, BAD_LOW, sizeof own, 0), EFAULT);
    memset(&own, 0, sizeof own);
    CHECK_ERRNO(set_attributes(0, 0, 0), EINVAL);
    CHECK_ERRNO(set_attributes(0, &own, 1), EINVAL);
    CHECK_ERRNO(set_attributes(0, BAD_LOW, 0), EFAULT);
    CHECK_ERRNO(set_attributes(-1, &own, 0), EINVAL);
    own.size = 47;
    CHECK_ERRNO(set_attributes(0, &own, 0), E2BIG);
    CHECK_EQ(own.size % 8, 0);
    memset(page, 0, sizeof page);
    ((struct attributes *)page)->size = 4096;
    CHECK_OK(set_attributes(0, page, 0));
    page[4000] = 1;
    CHECK_ERRNO(set_attributes(0, page, 0), E2BIG);
    own.size = 48;
    own.policy = 99;
    CHECK_ERRNO(set_attributes(0, &own, 0), EINVAL);
    own.policy = 0x80000000;
    CHECK_ERRNO(set_attributes(0, &own, 0), EINVAL);
    own.policy = SCHED_OTHER;
    own.priority = 1;
    CHECK_ERRNO(set_attributes(0, &own, 0), EINVAL);
    own.policy = SCHED_FIFO;
    own.priority = 100;
    CHECK_ERRNO(set_attributes(0, &own, 0), EINVAL);
    own.priority = 0;
    own.policy = SCHED_OTHER;
    own.flags = 0x1000;
    CHECK_ERRNO(set_attributes(0, &own, 0), EINVAL);
}

#define CLASS(class, level) (((class) << 13) | (level))

CASE(io_priorities_are_kept)
{
    CHECK_EQ(syscall(SYS_ioprio_get, 1, 0), 0);
    CHECK_EQ(syscall(SYS_ioprio_get, 2, 0), CLASS(2, 4));
    CHECK_OK(syscall(SYS_ioprio_set, 1, 0, CLASS(2, 6)));
    CHECK_EQ(syscall(SYS_ioprio_get, 1, 0), CLASS(2, 6));
    CHECK_EQ(syscall(SYS_ioprio_get, 1, getpid()), CLASS(2, 6));
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_EQ(syscall(SYS_ioprio_get, 1, 0), CLASS(2, 6));
        CHECK_OK(syscall(SYS_ioprio_set, 1, 0, CLASS(3, 0)));
        CHECK_EQ(syscall(SYS_ioprio_get, 1, 0), CLASS(3, 0));
        CHECK_OK(setgid(65534));
        CHECK_OK(setuid(65534));
        CHECK_ERRNO(syscall(SYS_ioprio_set, 1, 0, CLASS(1, 0)), EPERM);
        CHECK_ERRNO(syscall(SYS_ioprio_set, 1, getppid(), CLASS(2, 0)), EPERM);
        CHECK_OK(syscall(SYS_ioprio_set, 1, 0, CLASS(2, 0)));
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(syscall(SYS_ioprio_get, 2, 0), CLASS(2, 6));
    CHECK_ERRNO(syscall(SYS_ioprio_set, 1, 0, CLASS(0, 1)), EINVAL);
    CHECK_ERRNO(syscall(SYS_ioprio_set, 1, 0, CLASS(4, 0)), EINVAL);
    CHECK_ERRNO(syscall(SYS_ioprio_set, 9, 0, CLASS(2, 0)), EINVAL);
    CHECK_ERRNO(syscall(SYS_ioprio_get, 9, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_ioprio_get, 1, 0x3fffff0), ESRCH);
    CHECK_OK(syscall(SYS_ioprio_set, 1, 0, CLASS(0, 0)));
    CHECK_EQ(syscall(SYS_ioprio_get, 1, 0), 0);
}

static long kcmp(pid_t first, pid_t second, int kind, unsigned long one, unsigned long other)
{
    return syscall(SYS_kcmp, first, second, kind, one, other);
}

CASE(watched_files_are_compared)
{
    struct {
        uint32_t instance, watched, skipped;
    } slot;
    pid_t own = getpid();
    int ends[2], instance = epoll_create1(0), copy;
    struct epoll_event event = {.events = EPOLLIN};
    if (kcmp(own, own, 0, 1, 1) == -1 && errno == ENOSYS)
        SKIP("this Linux has no kcmp");
    CHECK_OK(pipe(ends));
    copy = dup(ends[0]);
    CHECK_OK(epoll_ctl(instance, EPOLL_CTL_ADD, copy, &event));
    slot.instance = (uint32_t)instance;
    slot.watched = (uint32_t)copy;
    slot.skipped = 0;
    CHECK_EQ(kcmp(own, own, 7, (unsigned long)ends[0], (unsigned long)&slot), 0);
    CHECK(kcmp(own, own, 7, (unsigned long)ends[1], (unsigned long)&slot) > 0);
    CHECK_ERRNO(kcmp(own, own, 7, 999, (unsigned long)&slot), EBADF);
    CHECK_ERRNO(kcmp(own, own, 7, (unsigned long)ends[0], 8), EFAULT);
    slot.skipped = 1;
    CHECK_ERRNO(kcmp(own, own, 7, (unsigned long)ends[0], (unsigned long)&slot), ENOENT);
    slot.skipped = 0;
    slot.watched = (uint32_t)ends[0];
    CHECK_ERRNO(kcmp(own, own, 7, (unsigned long)ends[0], (unsigned long)&slot), ENOENT);
    slot.instance = (uint32_t)ends[0];
    CHECK_ERRNO(kcmp(own, own, 7, (unsigned long)ends[0], (unsigned long)&slot), EINVAL);
}

CASE(processes_are_compared)
{
    pid_t own = getpid();
    int copy = dup(1), fresh = open("/proc/self/stat", O_RDONLY);
    int go[2];
    char byte;
    if (kcmp(own, own, 0, 1, 1) == -1 && errno == ENOSYS)
        SKIP("this Linux has no kcmp");
    CHECK_OK(pipe(go));
    CHECK_EQ(kcmp(own, own, 0, 1, (unsigned long)copy), 0);
    long order = kcmp(own, own, 0, 1, (unsigned long)fresh);
    CHECK(order == 1 || order == 2);
    CHECK_EQ(kcmp(own, own, 0, (unsigned long)fresh, 1), 3 - order);
    CHECK_ERRNO(kcmp(own, own, 0, 1, 999), EBADF);
    CHECK_ERRNO(kcmp(own, own, 99, 0, 0), EINVAL);
    CHECK_ERRNO(kcmp(own, 0x3fffff0, 1, 0, 0), ESRCH);
    pid_t child = fork_or_fail();
    if (child == 0) {
        close(go[1]);
        (void)!read(go[0], &byte, 1);
        _exit(0);
    }
    CHECK_EQ(kcmp(own, child, 0, 1, 1), 0);
    for (int kind = 1; kind <= 4; kind++) {
        CHECK_EQ(kcmp(own, own, kind, 0, 0), 0);
        CHECK(kcmp(own, child, kind, 0, 0) > 0);
    }
    CHECK_EQ(kcmp(own, child, 6, 0, 0), 0);
    pid_t stranger = fork_or_fail();
    if (stranger == 0) {
        CHECK_OK(setgid(65534));
        CHECK_OK(setuid(65534));
        CHECK_ERRNO(kcmp(getpid(), own, 1, 0, 0), EPERM);
        _exit(0);
    }
    CHECK_EXITED(stranger, 0);
    close(go[1]);
    CHECK_EXITED(child, 0);
}

CASE(global_barriers)
{
    long query = syscall(SYS_membarrier, 0, 0, 0);
    CHECK((query & 1) && (query & 2) && (query & 4) && (query & 8));
    CHECK_OK(syscall(SYS_membarrier, 1, 0, 0));
    CHECK_OK(syscall(SYS_membarrier, 2, 0, 0));
    CHECK_OK(syscall(SYS_membarrier, 4, 0, 0));
    CHECK_OK(syscall(SYS_membarrier, 2, 0, 0));
    CHECK_ERRNO(syscall(SYS_membarrier, 3, 0, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_membarrier, 1, 1, 0), EINVAL);
}
