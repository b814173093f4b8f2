/* Locks that the kernel hands over: LOCK_PI, LOCK_PI2, TRYLOCK_PI, UNLOCK_PI, their owners' ends,
 * deadlocks, WAIT_REQUEUE_PI with CMP_REQUEUE_PI. */
#include "harness.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define FUTEX_WAIT 0
#define FUTEX_WAKE 1
#define FUTEX_LOCK_PI 6
#define FUTEX_UNLOCK_PI 7
#define FUTEX_TRYLOCK_PI 8
#define FUTEX_WAIT_REQUEUE_PI 11
#define FUTEX_CMP_REQUEUE_PI 12
#define FUTEX_LOCK_PI2 13
#define FUTEX_CLOCK_REALTIME 256
#define PRIVATE 128
#define WAITERS 0x80000000U
#define DIED 0x40000000U
#define OWNER 0x3fffffffU

typedef _Atomic uint32_t word_t;

static long futex(word_t *word, int operation, unsigned value, const void *timeout, word_t *second,
                  unsigned last)
{
    return syscall(SYS_futex, word, operation, value, timeout, second, last);
}

static long lock(word_t *word)
{
    return futex(word, FUTEX_LOCK_PI, 0, 0, 0, 0);
}

static long unlock(word_t *word)
{
    return futex(word, FUTEX_UNLOCK_PI, 0, 0, 0, 0);
}

static uint32_t me(void)
{
    return (uint32_t)syscall(SYS_gettid);
}

static word_t *shared(void)
{
    word_t *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static void until(word_t *word, uint32_t bits)
{
    while ((atomic_load(word) & bits) == 0)
        sleep_ms(1);
}

CASE(a_free_lock_is_taken_and_freed)
{
    word_t *word = shared();
    CHECK_OK(lock(word));
    CHECK_EQ(*word, me());
    CHECK_ERRNO(lock(word), EDEADLK);
    CHECK_ERRNO(futex(word, FUTEX_TRYLOCK_PI, 0, 0, 0, 0), EDEADLK);
    CHECK_OK(unlock(word));
    CHECK_EQ(*word, 0);
    CHECK_ERRNO(unlock(word), EPERM);
    CHECK_OK(futex(word, FUTEX_TRYLOCK_PI | PRIVATE, 0, 0, 0, 0));
    CHECK_EQ(*word, me());
    CHECK_OK(futex(word, FUTEX_UNLOCK_PI | PRIVATE, 0, 0, 0, 0));
    *word = DIED;
    CHECK_OK(lock(word));
    CHECK_EQ(*word, DIED | me());
    CHECK_OK(unlock(word));
    CHECK_EQ(*word, 0);
}

CASE(errors_of_locks)
{
    word_t *word = shared();
    struct timespec wrong = {0, 1000000000};
    CHECK_ERRNO(lock((word_t *)BAD_LOW), EFAULT);
    CHECK_ERRNO(unlock((word_t *)BAD_LOW), EFAULT);
    CHECK_ERRNO(lock((word_t *)((char *)word + 1)), EINVAL);
    CHECK_ERRNO(futex(word, FUTEX_LOCK_PI, 0, &wrong, 0, 0), EINVAL);
    CHECK_ERRNO(futex(word, FUTEX_LOCK_PI, 0, BAD_LOW, 0, 0), EFAULT);
    CHECK_ERRNO(futex(word, FUTEX_LOCK_PI | FUTEX_CLOCK_REALTIME, 0, 0, 0, 0), ENOSYS);
    *word = 0x3fffff0;
    CHECK_ERRNO(lock(word), ESRCH);
    CHECK_ERRNO(futex(word, FUTEX_TRYLOCK_PI, 0, 0, 0, 0), ESRCH);
    CHECK_ERRNO(unlock(word), EPERM);
}

CASE(an_owner_hands_over)
{
    word_t *words = shared();
    CHECK_OK(lock(words));
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(lock(words));
        CHECK_EQ(words[0] & OWNER, me());
        CHECK_EQ(words[1], 7);
        CHECK_OK(unlock(words));
        _exit(0);
    }
    until(words, WAITERS);
    CHECK_EQ(words[0], me() | WAITERS);
    words[1] = 7;
    CHECK_OK(unlock(words));
    CHECK_EXITED(child, 0);
    CHECK_EQ(words[0], 0);
}

CASE(a_lock_that_is_taken_can_be_tried)
{
    word_t *word = shared();
    CHECK_OK(lock(word));
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_ERRNO(futex(word, FUTEX_TRYLOCK_PI, 0, 0, 0, 0), EAGAIN);
        CHECK_ERRNO(unlock(word), EPERM);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_OK(unlock(word));
    CHECK_EQ(*word, 0);
}

CASE(a_wait_has_an_end_on_the_wall_clock)
{
    word_t *word = shared();
    CHECK_OK(lock(word));
    pid_t child = fork_or_fail();
    if (child == 0) {
        struct timespec at;
        clock_gettime(CLOCK_REALTIME, &at);
        at.tv_sec -= 1;
        CHECK_ERRNO(futex(word, FUTEX_LOCK_PI, 0, &at, 0, 0), ETIMEDOUT);
        clock_gettime(CLOCK_MONOTONIC, &at);
        if (futex(word, FUTEX_LOCK_PI2, 0, &at, 0, 0) == -1 && errno == ENOSYS)
            _exit(0);
        CHECK_ERRNO(futex(word, FUTEX_LOCK_PI2, 0, &at, 0, 0), ETIMEDOUT);
        clock_gettime(CLOCK_REALTIME, &at);
        CHECK_ERRNO(futex(word, FUTEX_LOCK_PI2 | FUTEX_CLOCK_REALTIME, 0, &at, 0, 0), ETIMEDOUT);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_OK(unlock(word));
    CHECK_EQ(*word, 0);
}

CASE(a_dead_owner_leaves_its_lock_to_who_waits)
{
    word_t *words = shared();
    pid_t owner = fork_or_fail();
    if (owner == 0) {
        CHECK_OK(lock(words));
        for (;;)
            pause();
    }
    until(words, OWNER);
    pid_t waiter = fork_or_fail();
    if (waiter == 0) {
        CHECK_OK(lock(words));
        CHECK_EQ(words[0], me() | DIED | WAITERS);
        CHECK_OK(unlock(words));
        _exit(0);
    }
    until(words, WAITERS);
    kill(owner, SIGKILL);
    CHECK_KILLED(owner, SIGKILL);
    CHECK_EXITED(waiter, 0);
    CHECK_EQ(words[0], 0);
    words[0] = (uint32_t)owner;
    CHECK_ERRNO(lock(words), ESRCH);
}

CASE(a_circle_is_a_deadlock)
{
    word_t *words = shared();
    CHECK_OK(lock(&words[0]));
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(lock(&words[1]));
        CHECK_OK(lock(&words[0]));
        CHECK_OK(unlock(&words[0]));
        CHECK_OK(unlock(&words[1]));
        _exit(0);
    }
    until(&words[0], WAITERS);
    CHECK_ERRNO(lock(&words[1]), EDEADLK);
    CHECK_OK(unlock(&words[0]));
    CHECK_EXITED(child, 0);
}

CASE(plain_operations_do_not_touch_waiting_lockers)
{
    word_t *word = shared();
    CHECK_OK(lock(word));
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(lock(word));
        CHECK_OK(unlock(word));
        _exit(0);
    }
    until(word, WAITERS);
    /* The bit is there before the child waits. */
    while (futex(word, FUTEX_WAKE, 1, 0, 0, 0) == 0)
        sleep_ms(1);
    CHECK_ERRNO(futex(word, FUTEX_WAKE, 1, 0, 0, 0), EINVAL);
    CHECK_OK(unlock(word));
    CHECK_EXITED(child, 0);
}

static void ignore(int number)
{
    (void)number;
}

CASE(a_signal_does_not_end_the_wait_for_a_lock)
{
    word_t *word = shared();
    CHECK_OK(lock(word));
    pid_t child = fork_or_fail();
    if (child == 0) {
        struct sigaction action = {.sa_handler = ignore};
        CHECK_OK(sigaction(SIGUSR1, &action, 0));
        CHECK_OK(lock(word));
        CHECK_OK(unlock(word));
        _exit(0);
    }
    until(word, WAITERS);
    for (int round = 0; round < 20; round++) {
        sleep_ms(2);
        kill(child, SIGCONT);
    }
    CHECK_OK(unlock(word));
    CHECK_EXITED(child, 0);
}

static word_t counter_lock;
static int counter;

static void *count(void *argument)
{
    for (int round = 0; round < 2000; round++) {
        uint32_t free = 0, own = me();
        if (!atomic_compare_exchange_strong(&counter_lock, &free, own))
            CHECK_OK(futex(&counter_lock, FUTEX_LOCK_PI | PRIVATE, 0, 0, 0, 0));
        counter++;
        if (!atomic_compare_exchange_strong(&counter_lock, &own, 0))
            CHECK_OK(futex(&counter_lock, FUTEX_UNLOCK_PI | PRIVATE, 0, 0, 0, 0));
    }
    return argument;
}

CASE(threads_count_under_a_lock)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK_EQ(pthread_create(&threads[i], 0, count, 0), 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(pthread_join(threads[i], 0), 0);
    CHECK_EQ(counter, 6000);
    CHECK_EQ(counter_lock & OWNER, 0);
}

CASE(who_waits_for_a_condition_takes_the_lock_when_moved)
{
    word_t *words = shared();
    word_t *condition = &words[0], *mutex = &words[1], *done = &words[2];
    for (int i = 0; i < 3; i++) {
        if (fork_or_fail() == 0) {
            CHECK_OK(futex(condition, FUTEX_WAIT_REQUEUE_PI, 0, 0, mutex, 0));
            CHECK_EQ(*mutex & OWNER, me());
            atomic_fetch_add(done, 1);
            CHECK_OK(unlock(mutex));
            _exit(0);
        }
    }
    CHECK_OK(lock(mutex));
    int moved = 0;
    while (moved < 3) {
        long got = futex(condition, FUTEX_CMP_REQUEUE_PI, 1, (void *)10, mutex, 0);
        CHECK_OK(got);
        moved += (int)got;
    }
    CHECK_EQ(*done, 0);
    CHECK_OK(unlock(mutex));
    for (int i = 0; i < 3; i++) {
        int status;
        CHECK_OK(wait(&status));
        CHECK_EQ(status, 0);
    }
    CHECK_EQ(*done, 3);
    CHECK_EQ(*mutex & OWNER, 0);
}

CASE(moving_to_a_lock_is_checked)
{
    word_t *words = shared();
    struct timespec past = {0, 1};
    CHECK_ERRNO(futex(words, FUTEX_CMP_REQUEUE_PI, 1, (void *)1, words, 0), EINVAL);
    CHECK_ERRNO(futex(words, FUTEX_CMP_REQUEUE_PI, 2, (void *)1, words + 1, 0), EINVAL);
    CHECK_ERRNO(futex(words, FUTEX_CMP_REQUEUE_PI, 1, (void *)1, words + 1, 5), EAGAIN);
    CHECK_EQ(futex(words, FUTEX_CMP_REQUEUE_PI, 1, (void *)1, words + 1, 0), 0);
    CHECK_ERRNO(futex(words, FUTEX_WAIT_REQUEUE_PI, 0, 0, words, 0), EINVAL);
    CHECK_ERRNO(futex(words, FUTEX_WAIT_REQUEUE_PI, 3, 0, words + 1, 0), EAGAIN);
    CHECK_ERRNO(futex(words, FUTEX_WAIT_REQUEUE_PI, 0, &past, words + 1, 0), ETIMEDOUT);
    pid_t child = fork_or_fail();
    if (child == 0) {
        while (futex(words, FUTEX_WAIT, 0, 0, 0, 0) != 0)
            ;
        _exit(0);
    }
    long got;
    while ((got = futex(words, FUTEX_CMP_REQUEUE_PI, 1, (void *)1, words + 1, 0)) == 0)
        sleep_ms(1);
    CHECK(got == -1 && errno == EINVAL);
    CHECK_EQ(futex(words, FUTEX_WAKE, 1, 0, 0, 0), 1);
    CHECK_EXITED(child, 0);
    child = fork_or_fail();
    if (child == 0)
        _exit(futex(words, FUTEX_WAIT_REQUEUE_PI, 0, 0, words + 1, 0) == 0 ? 0 : 1);
    while ((got = futex(words, FUTEX_WAKE, 1, 0, 0, 0)) == 0)
        sleep_ms(1);
    CHECK(got == -1 && errno == EINVAL);
    CHECK_EQ(futex(words, FUTEX_CMP_REQUEUE_PI, 1, (void *)1, words + 1, 0), 1);
    CHECK_EXITED(child, 0);
}
