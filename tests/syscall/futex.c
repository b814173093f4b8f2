/* Futexes beyond what thread.c shows: keys of shared words, WAKE_OP, futex_waitv, clocks, robust lists
 * of other processes. */
#include "harness.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#define FUTEX_WAIT 0
#define FUTEX_WAKE 1
#define FUTEX_WAKE_OP 5
#define FUTEX_WAIT_BITSET 9
#define FUTEX_WAKE_BITSET 10
#define FUTEX_CLOCK_REALTIME 256
#define PRIVATE 128
#define FUTEX_32 2
#define FUTEX_OP_SET 0
#define FUTEX_OP_ADD 1
#define FUTEX_OP_OR 2
#define FUTEX_OP_ANDN 3
#define FUTEX_OP_XOR 4
#define FUTEX_OP_OPARG_SHIFT 8
#define FUTEX_OP_CMP_EQ 0
#define FUTEX_OP(operation, argument, comparison, value)                                       \
    (((operation) << 28) | ((comparison) << 24) | (((argument) & 0xfff) << 12) | (value))

struct waited {
    uint64_t value, address;
    uint32_t flags, reserved;
};

static long futex(void *word, int operation, unsigned value, const void *timeout, void *second,
                  unsigned last)
{
    return syscall(SYS_futex, word, operation, value, timeout, second, last);
}

static long waitv(struct waited *words, unsigned count, unsigned flags, const struct timespec *end,
                  clockid_t clock)
{
    return syscall(SYS_futex_waitv, words, count, flags, end, clock);
}

static struct waited waited(void *address, unsigned value, unsigned flags)
{
    return (struct waited){value, (uintptr_t)address, flags, 0};
}

static void *shared(size_t size)
{
    void *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static struct timespec from_now(clockid_t clock, long ms)
{
    struct timespec at;
    clock_gettime(clock, &at);
    at.tv_sec += ms / 1000;
    at.tv_nsec += ms % 1000 * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_nsec -= 1000000000;
        at.tv_sec++;
    }
    return at;
}

CASE(a_shared_wake_needs_memory_a_private_one_does_not)
{
    char *at = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_OK(munmap(at + 4096, 4096));
    CHECK_EQ(futex(at, FUTEX_WAKE, 1, 0, 0, 0), 0);
    CHECK_ERRNO(futex(at + 4096, FUTEX_WAKE, 1, 0, 0, 0), EFAULT);
    CHECK_EQ(futex(at + 4096, FUTEX_WAKE | PRIVATE, 1, 0, 0, 0), 0);
    CHECK_ERRNO(futex(at + 2, FUTEX_WAKE, 1, 0, 0, 0), EINVAL);
    CHECK_ERRNO(futex(at + 2, FUTEX_WAKE | PRIVATE, 1, 0, 0, 0), EINVAL);
    CHECK_ERRNO(futex(BAD_KERNEL, FUTEX_WAKE | PRIVATE, 1, 0, 0, 0), EFAULT);
    CHECK_ERRNO(futex(at, FUTEX_WAKE_BITSET, 1, 0, 0, 0), EINVAL);
}

CASE(a_word_past_the_end_of_its_file_is_not_there)
{
    scratch();
    int fd = file_with("words", "", 0);
    CHECK_OK(ftruncate(fd, 8192));
    char *at = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    CHECK_EQ(futex(at + 4096, FUTEX_WAKE, 1, 0, 0, 0), 0);
    CHECK_OK(ftruncate(fd, 4096));
    CHECK_ERRNO(futex(at + 4096, FUTEX_WAKE, 1, 0, 0, 0), EFAULT);
    CHECK_ERRNO(futex(at + 4096, FUTEX_WAIT, 0, 0, 0, 0), EFAULT);
    CHECK_EQ(futex(at, FUTEX_WAKE, 1, 0, 0, 0), 0);
}

CASE(read_only_words_can_be_woken_if_they_are_shared)
{
    scratch();
    int fd = file_with("words", "12345678", 8);
    void *file = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
    CHECK_EQ(futex(file, FUTEX_WAKE, 1, 0, 0, 0), 0);
    void *own = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *(int *)own = 1;
    CHECK_OK(mprotect(own, 4096, PROT_READ));
    CHECK_ERRNO(futex(own, FUTEX_WAKE, 1, 0, 0, 0), EFAULT);
    CHECK_EQ(futex(own, FUTEX_WAKE | PRIVATE, 1, 0, 0, 0), 0);
}

CASE(a_wait_through_one_mapping_ends_by_a_wake_through_another)
{
    scratch();
    int fd = file_with("words", "", 0);
    CHECK_OK(ftruncate(fd, 4096));
    _Atomic int *first = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    _Atomic int *second = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pid_t child = fork_or_fail();
    if (child == 0) {
        while (atomic_load(first) == 0)
            futex((void *)first, FUTEX_WAIT, 0, 0, 0, 0);
        _exit(0);
    }
    atomic_store(second, 1);
    int status;
    while (waitpid(child, &status, WNOHANG) == 0)
        futex((void *)second, FUTEX_WAKE, 1, 0, 0, 0);
    CHECK_EQ(status, 0);
}

CASE(operations_with_a_clock_they_do_not_know_are_refused)
{
    int word = 0;
    struct timespec past = {0, 1}, wrong = {0, 1000000000};
    CHECK_ERRNO(futex(&word, FUTEX_WAIT | FUTEX_CLOCK_REALTIME, 0, &past, 0, 0), ENOSYS);
    CHECK_ERRNO(futex(&word, FUTEX_WAKE | FUTEX_CLOCK_REALTIME, 0, 0, 0, 0), ENOSYS);
    CHECK_ERRNO(futex(&word, 99, 0, 0, 0, 0), ENOSYS);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &past, 0, 1), ETIMEDOUT);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT_BITSET, 0, &past, 0, 1), ETIMEDOUT);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT_BITSET, 0, &past, 0, 0), EINVAL);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT, 0, &wrong, 0, 0), EINVAL);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT, 1, 0, 0, 0), EAGAIN);
}

CASE(wake_op_changes_compares_and_wakes)
{
    static const struct { int operation, argument, before, after; } changes[] = {
        {FUTEX_OP_SET, 7, 3, 7},    {FUTEX_OP_ADD, 7, 3, 10},  {FUTEX_OP_OR, 5, 2, 7},
        {FUTEX_OP_ANDN, 6, 7, 1},   {FUTEX_OP_XOR, 5, 6, 3},   {FUTEX_OP_ADD, 0xfff, 3, 2},
        {FUTEX_OP_OR | FUTEX_OP_OPARG_SHIFT, 4, 1, 17},
    };
    int first = 0, second;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        second = changes[i].before;
        int code = FUTEX_OP(changes[i].operation, changes[i].argument, FUTEX_OP_CMP_EQ, 0);
        CHECK_EQ(futex(&first, FUTEX_WAKE_OP | PRIVATE, 1, (void *)1, &second, (unsigned)code), 0);
        CHECK_EQ(second, changes[i].after);
    }
    CHECK_ERRNO(futex(&first, FUTEX_WAKE_OP | PRIVATE, 1, 0, &second,
                      (unsigned)FUTEX_OP(6, 0, FUTEX_OP_CMP_EQ, 0)), ENOSYS);
    CHECK_ERRNO(futex(&first, FUTEX_WAKE_OP | PRIVATE, 1, 0, BAD_LOW, 0), EFAULT);
}

CASE(waitv_checks_its_arguments)
{
    unsigned word = 0;
    struct waited words[129];
    struct timespec past = {0, 1}, wrong = {0, 1000000000};
    for (int i = 0; i < 129; i++)
        words[i] = waited(&word, 0, FUTEX_32 | PRIVATE);
    if (waitv(words, 1, 0, &past, CLOCK_MONOTONIC) == -1 && errno == ENOSYS)
        SKIP("this Linux has no futex_waitv");
    CHECK_ERRNO(waitv(words, 1, 0, &past, CLOCK_MONOTONIC), ETIMEDOUT);
    CHECK_ERRNO(waitv(words, 128, 0, &past, CLOCK_REALTIME), ETIMEDOUT);
    CHECK_ERRNO(waitv(words, 129, 0, &past, CLOCK_MONOTONIC), EINVAL);
    CHECK_ERRNO(waitv(words, 0, 0, &past, CLOCK_MONOTONIC), EINVAL);
    CHECK_ERRNO(waitv(0, 1, 0, &past, CLOCK_MONOTONIC), EINVAL);
    CHECK_ERRNO(waitv(words, 1, 1, &past, CLOCK_MONOTONIC), EINVAL);
    CHECK_ERRNO(waitv(words, 1, 0, &past, CLOCK_BOOTTIME), EINVAL);
    CHECK_ERRNO(waitv(words, 1, 0, &wrong, CLOCK_MONOTONIC), EINVAL);
    CHECK_ERRNO(waitv(words, 1, 0, BAD_LOW, CLOCK_MONOTONIC), EFAULT);
    CHECK_ERRNO(waitv(BAD_LOW, 1, 0, &past, CLOCK_MONOTONIC), EFAULT);
    words[1].flags = PRIVATE;
    CHECK_ERRNO(waitv(words, 2, 0, &past, CLOCK_MONOTONIC), EINVAL);
    words[1] = waited(&word, 0, FUTEX_32 | PRIVATE);
    words[1].reserved = 1;
    CHECK_ERRNO(waitv(words, 2, 0, &past, CLOCK_MONOTONIC), EINVAL);
    words[1] = waited(&word, 1, FUTEX_32 | PRIVATE);
    CHECK_ERRNO(waitv(words, 2, 0, &past, CLOCK_MONOTONIC), EAGAIN);
    words[1] = waited(BAD_LOW, 0, FUTEX_32 | PRIVATE);
    CHECK_ERRNO(waitv(words, 2, 0, &past, CLOCK_MONOTONIC), EFAULT);
    words[1] = waited((char *)&word + 1, 0, FUTEX_32 | PRIVATE);
    CHECK_ERRNO(waitv(words, 2, 0, &past, CLOCK_MONOTONIC), EINVAL);
    CHECK_EQ(futex(&word, FUTEX_WAKE | PRIVATE, 9, 0, 0, 0), 0);
}

CASE(waitv_tells_which_word_was_woken)
{
    unsigned *words = shared(4096);
    struct waited list[3];
    struct timespec past = {0, 1};
    for (int i = 0; i < 3; i++)
        list[i] = waited(&words[i], 0, FUTEX_32);
    if (waitv(list, 3, 0, &past, CLOCK_MONOTONIC) == -1 && errno == ENOSYS)
        SKIP("this Linux has no futex_waitv");
    for (int wake = 0; wake < 3; wake++) {
        pid_t child = fork_or_fail();
        if (child == 0)
            _exit((int)waitv(list, 3, 0, 0, 0) + 10);
        while (futex(&words[wake], FUTEX_WAKE, 1, 0, 0, 0) == 0)
            sleep_ms(1);
        CHECK_EXITED(child, wake + 10);
        CHECK_EQ(futex(&words[(wake + 1) % 3], FUTEX_WAKE, 1, 0, 0, 0), 0);
    }
}

static void ignore(int number)
{
    (void)number;
}

CASE(a_signal_ends_waitv)
{
    unsigned word = 0;
    struct waited one = waited(&word, 0, FUTEX_32 | PRIVATE);
    struct timespec past = {0, 1};
    if (waitv(&one, 1, 0, &past, CLOCK_MONOTONIC) == -1 && errno == ENOSYS)
        SKIP("this Linux has no futex_waitv");
    struct sigaction action = {.sa_handler = ignore};
    CHECK_OK(sigaction(SIGUSR1, &action, 0));
    pid_t child = pesterer(SIGUSR1);
    CHECK_ERRNO(waitv(&one, 1, 0, 0, 0), EINTR);
    kill(child, SIGKILL);
    CHECK_KILLED(child, SIGKILL);
}

CASE(robust_lists_of_others_can_be_asked_for)
{
    void *head = 0, *other = 0;
    size_t size = 0;
    CHECK_EQ(syscall(SYS_get_robust_list, 0, &head, &size), 0);
    CHECK_EQ(size, 24);
    CHECK_ERRNO(syscall(SYS_get_robust_list, 0, BAD_LOW, &size), EFAULT);
    CHECK_ERRNO(syscall(SYS_get_robust_list, 0x3ffffff, &other, &size), ESRCH);
    CHECK_EQ(syscall(SYS_get_robust_list, getppid(), &other, &size), 0);
    CHECK_EQ(syscall(SYS_get_robust_list, 1, &other, &size), 0);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setgid(65534));
        CHECK_OK(setuid(65534));
        CHECK_ERRNO(syscall(SYS_get_robust_list, getppid(), &other, &size), EPERM);
        CHECK_ERRNO(syscall(SYS_get_robust_list, 1, &other, &size), EPERM);
        CHECK_EQ(syscall(SYS_get_robust_list, 0, &other, &size), 0);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_ERRNO(syscall(SYS_set_robust_list, head, 23), EINVAL);
}

CASE(a_deadline_on_the_wall_clock_passes)
{
    int word = 0;
    struct timespec at = from_now(CLOCK_REALTIME, 20);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &at, 0, 1), ETIMEDOUT);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    CHECK(now.tv_sec > at.tv_sec || (now.tv_sec == at.tv_sec && now.tv_nsec >= at.tv_nsec));
}
