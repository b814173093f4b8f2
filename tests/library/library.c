/* libferry: every function, and what happens to calls in flight when a process changes. */
#define _GNU_SOURCE
#include "../syscall/harness.h"

#include <ferry.h>
#include <memsc.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/uio.h>

static const struct timespec SHORT = {0, 20 * 1000 * 1000};

/* For cases about calls in flight: on plain Linux none ever is. */
static void need_posting(void)
{
    if (!ferry_available())
        SKIP("calls are carried out when they are posted");
}

static void make_pipe(int *ends)
{
    CHECK_OK(pipe(ends));
}

/* A read of an empty pipe, posted. */
static int post_blocking_read(const int *ends, char *byte)
{
    int index = ferry_post(SYS_read, ends[0], byte, 1);
    CHECK(index >= 0 && index < FERRY_ENTRIES);
    return index;
}

static void check_read(int index, const int *ends, char *byte)
{
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(ferry_result(index), 1);
    CHECK_EQ(*byte, 'x');
    *byte = 0;
}

CASE(available_tells_where_this_runs)
{
    const char *expected = getenv("FERRY_LIBRARY_TEST");
    if (expected)
        CHECK_EQ(ferry_available(), atoi(expected));
    CHECK_EQ(ferry_available(), ferry_available());
}

CASE(register_and_unregister)
{
    int expected = ferry_register();
    CHECK_EQ(ferry_register(), expected);
    CHECK_EQ(ferry_unregister(), 0);
    CHECK_EQ(ferry_unregister(), 0);
    CHECK_EQ(ferry_call(SYS_getpid), getpid());
    CHECK_EQ(ferry_register(), expected);
    CHECK_EQ(ferry_result(ferry_post(SYS_getpid)), getpid());
}

CASE(nothing_is_ready_before_the_first_call)
{
    CHECK_EQ(ferry_ready(0), 0);
    CHECK_EQ(ferry_ready(-1), 0);
    CHECK_EQ(ferry_ready(FERRY_INDEXES), 0);
    CHECK_EQ(ferry_result(0), -EINVAL);
    CHECK_EQ(ferry_result(-EAGAIN), -EINVAL);
    CHECK_EQ(ferry_result(FERRY_INDEXES), -EINVAL);
    CHECK_EQ(ferry_wait_any(0), -EAGAIN);
    CHECK_EQ(ferry_wait_all(0), 0);
    CHECK_EQ(ferry_wait_one(0, 0), -EINVAL);
    CHECK_EQ(ferry_wait_one(1000, 0), -EINVAL);
    CHECK_EQ(ferry_cancel(0), -ENOENT);
    CHECK_EQ(ferry_cancel(-1), -EINVAL);
    ferry_submit();
}

CASE(a_result_is_taken_once)
{
    int index = ferry_post(SYS_getppid);
    CHECK(index >= 0);
    CHECK_EQ(ferry_wait_one(index, 0), 0);
    CHECK(ferry_ready(index));
    CHECK_EQ(ferry_result(index), getppid());
    CHECK(!ferry_ready(index));
    CHECK_EQ(ferry_result(index), -EINVAL);
    CHECK_EQ(ferry_wait_one(index, 0), -EINVAL);
}

CASE(spinning_sees_the_result)
{
    for (int round = 0; round < 300; round++) {
        int index = ferry_post(SYS_getppid);
        while (!ferry_ready(index))
            ;
        CHECK_EQ(ferry_result(index), getppid());
    }
}

CASE(all_arguments_and_errors_arrive)
{
    char *page = (char *)ferry_result(ferry_post(SYS_mmap, 0, 8192, PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK(page > (char *)4096);
    page[8191] = 1;
    CHECK_EQ(ferry_result(ferry_post(SYS_munmap, page, 8192)), 0);
    CHECK_EQ(ferry_result(ferry_post(SYS_close, -1)), -EBADF);
    CHECK_EQ(ferry_result(ferry_post(SYS_read, 0, BAD_KERNEL, 1)), ferry_call(SYS_read, 0, BAD_KERNEL, 1));
    CHECK_EQ(ferry_result(ferry_post(498)), -ENOSYS);
    CHECK_EQ(ferry_result(ferry_post(100000)), -ENOSYS);
    CHECK_EQ(ferry_call(SYS_close, -1), -EBADF);
}

CASE(errno_helper)
{
    errno = 0;
    CHECK_EQ(ferry_errno(7), 7);
    CHECK_EQ(errno, 0);
    CHECK_ERRNO(ferry_errno(ferry_call(SYS_close, -1)), EBADF);
    CHECK_EQ(ferry_errno(-4096), -4096);
}

CASE(many_single_calls)
{
    for (int round = 0; round < 3000; round++)
        CHECK_EQ(ferry_call(SYS_getppid), getppid());
}

CASE(batches_of_all_entries)
{
    int indexes[FERRY_ENTRIES];
    for (int round = 0; round < 50; round++) {
        for (int at = 0; at < FERRY_ENTRIES; at++) {
            indexes[at] = ferry_prep(at % 2 ? SYS_getpid : SYS_getppid);
            CHECK(indexes[at] >= 0);
        }
        ferry_submit();
        CHECK_EQ(ferry_wait_all(0), 0);
        for (int at = 0; at < FERRY_ENTRIES; at++) {
            CHECK(ferry_ready(indexes[at]));
            CHECK_EQ(ferry_result(indexes[at]), at % 2 ? getpid() : getppid());
        }
    }
}

CASE(a_full_syspage_says_so_and_recovers)
{
    int indexes[FERRY_ENTRIES];
    for (int round = 0; round < 5; round++) {
        for (int at = 0; at < FERRY_ENTRIES; at++)
            CHECK((indexes[at] = ferry_post(SYS_getpid)) >= 0);
        for (int again = 0; again < 3; again++) {
            CHECK_EQ(ferry_post(SYS_getpid), -EAGAIN);
            CHECK_EQ(ferry_prep_linked(SYS_getpid), -EAGAIN);
        }
        CHECK_EQ(ferry_call(SYS_getpid), getpid());
        CHECK_EQ(ferry_result(indexes[round * 7]), getpid());
        indexes[round * 7] = ferry_post(SYS_getpid);
        CHECK(indexes[round * 7] >= 0);
        for (int at = 0; at < FERRY_ENTRIES; at++)
            CHECK_EQ(ferry_result(indexes[at]), getpid());
    }
}

CASE(helpers)
{
    char buffer[16] = {0};
    struct iovec part = {buffer, 3};
    uint64_t status[32] = {0}; /* musl has no struct statx; stx_size is at 40. */
    struct timespec moment = {0, 1000};
    scratch();
    int fd = (int)ferry_result(ferry_prep_openat(AT_FDCWD, "file", O_RDWR | O_CREAT, 0600));
    CHECK(fd >= 0);
    CHECK_EQ(ferry_result(ferry_prep_write(fd, "hello", 5)), 5);
    CHECK_EQ(ferry_result(ferry_prep_pwrite(fd, "j", 1, 0)), 1);
    CHECK_EQ(ferry_result(ferry_prep_pread(fd, buffer, sizeof buffer, 0)), 5);
    CHECK_STR(buffer, "jello");
    CHECK_EQ(ferry_result(ferry_prep_read(fd, buffer, sizeof buffer)), 0);
    CHECK_EQ(ferry_result(ferry_prep_writev(fd, &part, 1)), 3);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    CHECK_EQ(ferry_result(ferry_prep_readv(fd, &part, 1)), 3);
    CHECK_EQ(ferry_result(ferry_prep_fsync(fd)), 0);
    CHECK_EQ(ferry_result(ferry_prep_statx(AT_FDCWD, "file", 0, 0x200,
                                           (struct statx *)status)),
             0);
    CHECK_EQ(status[5], 8);
    CHECK_EQ(ferry_result(ferry_prep_close(fd)), 0);
    CHECK_EQ(ferry_result(ferry_prep_nanosleep(&moment)), 0);
    CHECK_ERRNO(close(fd), EBADF);
}

CASE(linked_calls_go_in_order)
{
    scratch();
    for (int round = 0; round < 200; round++) {
        int fd = file_with("file", "", 0), indexes[6];
        char got[8] = {0};
        indexes[0] = ferry_prep(SYS_write, fd, "0", 1);
        for (int at = 1; at < 6; at++)
            do
                indexes[at] = ferry_prep_linked(SYS_write, fd, &"012345"[at], 1);
            while (indexes[at] == -EAGAIN && ferry_wait_all(0) == 0);
        ferry_submit();
        for (int at = 0; at < 6; at++)
            CHECK_EQ(ferry_result(indexes[at]), 1);
        CHECK_EQ(pread(fd, got, sizeof got, 0), 6);
        CHECK_STR(got, "012345");
        close(fd);
    }
}

CASE(a_link_waits_for_a_call_that_blocks)
{
    int ends[2], first, second, third;
    char byte = 0;
    need_posting();
    make_pipe(ends);
    first = post_blocking_read(ends, &byte);
    second = ferry_post_linked(SYS_getpid);
    third = ferry_post(SYS_getppid);
    CHECK_EQ(ferry_result(third), getppid());
    CHECK_EQ(ferry_wait_one(second, &SHORT), -ETIMEDOUT);
    CHECK(!ferry_ready(first) && !ferry_ready(second));
    check_read(first, ends, &byte);
    CHECK_EQ(ferry_result(second), getpid());
    /* Linked to what is over already; and a failure does not break the chain. */
    CHECK_EQ(ferry_result(ferry_post_linked(SYS_close, -1)), -EBADF);
    CHECK_EQ(ferry_result(ferry_post_linked(SYS_getpid)), getpid());
}

CASE(cancel_of_a_linked_call_does_not_wait)
{
    /* Its predecessor never ends by itself; what is linked to it goes on. */
    int ends[2], first, second, third;
    char byte = 0;
    need_posting();
    for (int round = 0; round < 20; round++) {
        make_pipe(ends);
        first = post_blocking_read(ends, &byte);
        second = ferry_post_linked(SYS_dup, ends[0]);
        third = ferry_post_linked(SYS_getpid);
        if (round % 2)
            CHECK_EQ(ferry_wait_one(second, &SHORT), -ETIMEDOUT);
        CHECK_EQ(ferry_cancel(second), 0);
        CHECK_EQ(ferry_result(second), -EINTR);
        CHECK_EQ(ferry_result(third), getpid());
        CHECK(!ferry_ready(first));
        check_read(first, ends, &byte);
        close(ends[0]);
        close(ends[1]);
    }
}

CASE(a_blocking_call_is_overtaken_for_many_laps)
{
    int ends[2], index;
    char byte = 0;
    need_posting();
    make_pipe(ends);
    index = post_blocking_read(ends, &byte);
    for (int round = 0; round < 500; round++) {
        int other = ferry_post(SYS_getppid);
        CHECK(other >= 0 && other != index);
        CHECK_EQ(ferry_result(other), getppid());
        CHECK_EQ(ferry_call(SYS_getppid), getppid());
    }
    CHECK(!ferry_ready(index));
    check_read(index, ends, &byte);
}

CASE(results_may_be_taken_in_any_order)
{
    int kept = ferry_post(SYS_getpid);
    for (int round = 0; round < 300; round++) {
        int first = ferry_post(SYS_getppid), second = ferry_post(SYS_getpid);
        CHECK(first >= 0 && second >= 0);
        CHECK_EQ(ferry_result(second), getpid());
        CHECK_EQ(ferry_result(first), getppid());
    }
    CHECK_EQ(ferry_result(kept), getpid());
}

CASE(wait_any_finds_each_once)
{
    uint64_t seen[2] = {0, 0};
    for (int at = 0; at < 40; at++)
        CHECK(ferry_post(SYS_getpid) >= 0);
    for (int at = 0; at < 40; at++) {
        int index = ferry_wait_any(0);
        CHECK(index >= 0);
        CHECK(!(seen[index / 64] >> (index % 64) & 1));
        seen[index / 64] |= 1ul << (index % 64);
        CHECK_EQ(ferry_result(index), getpid());
    }
    CHECK_EQ(ferry_wait_any(0), -EAGAIN);
}

CASE(waits_end_by_their_timeouts)
{
    int ends[2], index;
    char byte = 0;
    struct timespec bad = {0, -1};
    need_posting();
    make_pipe(ends);
    index = post_blocking_read(ends, &byte);
    int64_t begin = now_ns(CLOCK_MONOTONIC);
    CHECK_EQ(ferry_wait_one(index, &SHORT), -ETIMEDOUT);
    CHECK_EQ(ferry_wait_all(&SHORT), -ETIMEDOUT);
    CHECK_EQ(ferry_wait_any(&SHORT), -ETIMEDOUT);
    CHECK(now_ns(CLOCK_MONOTONIC) - begin >= 3 * SHORT.tv_nsec);
    CHECK_EQ(ferry_wait_one(index, &bad), -EINVAL);
    check_read(index, ends, &byte);
}

CASE(wait_any_passes_by_what_blocks)
{
    int ends[2], index, other;
    char byte = 0;
    need_posting();
    make_pipe(ends);
    index = post_blocking_read(ends, &byte);
    other = ferry_post(SYS_getpid);
    CHECK_EQ(ferry_wait_any(0), other);
    CHECK_EQ(ferry_wait_one(other, 0), 0);
    CHECK_EQ(ferry_result(other), getpid());
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(ferry_wait_any(0), index);
    CHECK_EQ(ferry_result(index), 1);
}

CASE(cancel_ends_a_call_that_waits)
{
    int ends[2], index;
    char byte = 0;
    struct timespec long_time = {1000, 0};
    need_posting();
    make_pipe(ends);
    for (int round = 0; round < 20; round++) {
        index = post_blocking_read(ends, &byte);
        if (round % 2)
            CHECK_EQ(ferry_wait_one(index, &SHORT), -ETIMEDOUT);
        CHECK_EQ(ferry_cancel(index), 0);
        CHECK_EQ(ferry_result(index), -EINTR);
    }
    index = ferry_post(SYS_nanosleep, &long_time, 0);
    CHECK_EQ(ferry_wait_one(index, &SHORT), -ETIMEDOUT);
    CHECK_EQ(ferry_cancel(index), 0);
    CHECK_EQ(ferry_result(index), -EINTR);
    index = ferry_post(SYS_getpid);
    CHECK_EQ(ferry_wait_one(index, 0), 0);
    CHECK_EQ(ferry_cancel(index), -ENOENT);
    CHECK_EQ(ferry_result(index), getpid());
}

static volatile sig_atomic_t alarms;

static void count_alarm(int number)
{
    (void)number;
    alarms++;
}

struct interrupter {
    pthread_t target;
    int stops;
};

static void *interrupt(void *argument)
{
    struct interrupter *self = argument;
    while (!__atomic_load_n(&self->stops, __ATOMIC_SEQ_CST)) {
        pthread_kill(self->target, SIGVTALRM);
        sleep_ms(2);
    }
    return 0;
}

CASE(a_signal_ends_the_wait_and_not_the_call)
{
    int ends[2], index;
    char byte = 0;
    pthread_t thread;
    struct interrupter interrupter = {pthread_self(), 0};
    struct sigaction action = {.sa_handler = count_alarm};
    need_posting();
    CHECK_OK(sigaction(SIGVTALRM, &action, 0));
    make_pipe(ends);
    index = post_blocking_read(ends, &byte);
    CHECK_EQ(pthread_create(&thread, 0, interrupt, &interrupter), 0);
    CHECK_EQ(ferry_wait_one(index, 0), -EINTR);
    CHECK_EQ(ferry_wait_all(0), -EINTR);
    CHECK_EQ(ferry_wait_any(0), -EINTR);
    CHECK(alarms >= 3);
    CHECK(!ferry_ready(index));
    for (int round = 0; round < 200; round++)
        CHECK_EQ(ferry_call(SYS_getppid), getppid());
    __atomic_store_n(&interrupter.stops, 1, __ATOMIC_SEQ_CST);
    pthread_join(thread, 0);
    check_read(index, ends, &byte);
}

CASE(fork_by_trapping)
{
    int index;
    pid_t child = (pid_t)ferry_call(SYS_fork);
    if (child == 0)
        _exit(ferry_call(SYS_getppid) == getppid() ? 7 : 8);
    CHECK(child > 0);
    CHECK_EXITED(child, 7);
    /* Posted, it is carried out at once, and both have a result. */
    index = ferry_post(SYS_fork);
    CHECK(ferry_ready(index));
    child = (pid_t)ferry_result(index);
    if (child == 0)
        _exit(ferry_call(SYS_getppid) == getppid() && ferry_wait_any(0) == -EAGAIN ? 9 : 8);
    CHECK(child > 0);
    CHECK_EXITED(child, 9);
}

CASE(a_child_begins_anew)
{
    int ends[2], index, before = ferry_available();
    char byte = 0;
    make_pipe(ends);
    index = before ? post_blocking_read(ends, &byte) : -1;
    for (int round = 0; round < 3; round++) {
        pid_t child = fork_or_fail();
        if (child == 0) {
            CHECK_EQ(ferry_wait_any(0), -EAGAIN);
            for (int at = 0; at < FERRY_ENTRIES; at++)
                CHECK(ferry_post(SYS_getpid) >= 0);
            CHECK_EQ(ferry_post(SYS_getpid), -EAGAIN);
            CHECK_EQ(ferry_wait_all(0), 0);
            for (int at = 0; at < FERRY_ENTRIES; at++)
                CHECK_EQ(ferry_result(ferry_wait_any(0)), getpid());
            CHECK_EQ(ferry_available(), before);
            _exit(5);
        }
        CHECK_EXITED(child, 5);
        CHECK_EQ(ferry_call(SYS_getpid), getpid());
    }
    if (before)
        check_read(index, ends, &byte);
}

static void *post_much(void *argument)
{
    long wrong = 0;
    int indexes[16];
    for (int round = 0; round < 60; round++) {
        for (int at = 0; at < 16; at++)
            indexes[at] = ferry_post(at % 2 ? SYS_gettid : SYS_getpid);
        for (int at = 0; at < 16; at += 2)
            wrong += ferry_result(indexes[at]) != getpid();
        for (int at = 1; at < 16; at += 2)
            wrong += ferry_result(indexes[at]) <= 0;
    }
    (void)argument;
    return (void *)wrong;
}

CASE(threads_have_a_syspage_each)
{
    pthread_t threads[4];
    for (int round = 0; round < 3; round++) {
        for (int at = 0; at < 4; at++)
            CHECK_EQ(pthread_create(&threads[at], 0, post_much, 0), 0);
        CHECK(!post_much(0));
        for (int at = 0; at < 4; at++) {
            void *wrong;
            pthread_join(threads[at], &wrong);
            CHECK(!wrong);
        }
    }
}

static void *end_in_flight(void *argument)
{
    int *ends = argument;
    char byte;
    for (int at = 0; at < 10; at++)
        if (ferry_post(SYS_read, ends[0], &byte, 1) < 0)
            return (void *)1;
    return 0;
}

CASE(a_thread_ends_with_calls_in_flight)
{
    int ends[2];
    need_posting();
    make_pipe(ends);
    for (int round = 0; round < 40; round++) {
        pthread_t thread;
        void *wrong;
        CHECK_EQ(pthread_create(&thread, 0, end_in_flight, ends), 0);
        CHECK_EQ(pthread_join(thread, &wrong), 0);
        CHECK(!wrong);
    }
    /* None of them is left to take this byte. */
    CHECK_EQ(write(ends[1], "x", 1), 1);
    char byte = 0;
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    CHECK_EQ(byte, 'x');
}

CASE(unregister_cancels_calls_in_flight)
{
    int ends[2];
    char byte = 0;
    need_posting();
    make_pipe(ends);
    for (int round = 0; round < 20; round++) {
        int index = post_blocking_read(ends, &byte);
        CHECK_EQ(ferry_unregister(), 0);
        CHECK(!ferry_ready(index));
    }
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(read(ends[0], &byte, 1), 1);
}

CASE(exit_with_calls_in_flight)
{
    int ends[2];
    char byte;
    need_posting();
    make_pipe(ends);
    for (int round = 0; round < 10; round++) {
        pid_t child = fork_or_fail();
        if (child == 0) {
            for (int at = 0; at < 20; at++)
                post_blocking_read(ends, &byte);
            _exit(3);
        }
        CHECK_EXITED(child, 3);
    }
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(read(ends[0], &byte, 1), 1);
}

CASE(a_killed_process_leaves_nothing)
{
    int ends[2];
    char byte;
    need_posting();
    make_pipe(ends);
    for (int round = 0; round < 10; round++) {
        pid_t child = fork_or_fail();
        if (child == 0) {
            ferry_result(post_blocking_read(ends, &byte));
            _exit(3);
        }
        sleep_ms(2 * round);
        CHECK_OK(kill(child, SIGKILL));
        CHECK_KILLED(child, SIGKILL);
    }
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(read(ends[0], &byte, 1), 1);
}

CASE(exec_with_calls_in_flight)
{
    int ends[2];
    char byte;
    need_posting();
    make_pipe(ends);
    for (int round = 0; round < 5; round++) {
        pid_t child = fork_or_fail();
        if (child == 0) {
            for (int at = 0; at < 20; at++)
                post_blocking_read(ends, &byte);
            /* Its list is nobody's verdict. */
            dup2(open("/dev/null", O_WRONLY), 1);
            if (round % 2)
                execl("/proc/self/exe", "library", "--list", (char *)0);
            else /* The same, by a call that cannot be posted. */
                ferry_call(SYS_execve, "/proc/self/exe",
                           ((char *[]){"library", "--list", 0}), environ);
            _exit(99);
        }
        CHECK_EXITED(child, 0);
    }
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(read(ends[0], &byte, 1), 1);
}

CASE(the_paper_s_names)
{
    int index;
    memsc_register();
    index = memsc_add(SYS_getppid);
    CHECK(index >= 0);
    while (!memsc_ready(index))
        ;
    CHECK_EQ(memsc_retval(index), getppid());
    CHECK(memsc_add(SYS_getpid) >= 0 && memsc_add(SYS_getpid) >= 0);
    CHECK_EQ(memsc_wait_all(), 0);
    CHECK_EQ(memsc_retval(memsc_wait_any()), getpid());
    CHECK_EQ(memsc_retval(memsc_wait_any()), getpid());
}

CASE(calls_come_back_after_a_pause)
{
    /* Long enough for a kernel core to park. */
    for (int round = 0; round < 40; round++) {
        int index;
        sleep_ms(round % 4 * 5);
        CHECK_EQ(ferry_call(SYS_getppid), getppid());
        index = ferry_post(SYS_getppid);
        if (round % 2)
            while (!ferry_ready(index))
                ;
        CHECK_EQ(ferry_result(index), getppid());
    }
}
