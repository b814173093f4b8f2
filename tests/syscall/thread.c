/* Threads and futexes: pthreads of both C libraries, clone's thread flags, WAIT WAKE REQUEUE
 * CMP_REQUEUE BITSET private and shared, robust lists, set_tid_address, exec and exit with threads. */
#include "harness.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/mman.h>

/* From the manual page futex(2); musl has no kernel headers. */
enum {
    FUTEX_WAIT = 0,
    FUTEX_WAKE = 1,
    FUTEX_REQUEUE = 3,
    FUTEX_CMP_REQUEUE = 4,
    FUTEX_WAIT_BITSET = 9,
    FUTEX_WAKE_BITSET = 10,
    FUTEX_PRIVATE = 128,
    FUTEX_WAIT_PRIVATE = FUTEX_WAIT | FUTEX_PRIVATE,
    FUTEX_WAKE_PRIVATE = FUTEX_WAKE | FUTEX_PRIVATE,
    FUTEX_CLOCK_REALTIME = 256,
};
#define FUTEX_WAITERS 0x80000000u
#define FUTEX_OWNER_DIED 0x40000000u

static long futex(volatile void *word, int operation, uint32_t value, const void *timeout_or_count,
                  volatile void *second, uint32_t third)
{
    return syscall(SYS_futex, word, operation, value, timeout_or_count, second, third);
}

static volatile uint32_t *shared_words(void)
{
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

/* Wakes until this many have been woken: the waiters may not wait yet. */
static void wake_exactly(volatile void *word, int operation, int count)
{
    while (count > 0) {
        long woken = futex(word, operation, (uint32_t)count, NULL, NULL, ~0u);
        CHECK(woken >= 0 && woken <= count);
        count -= (int)woken;
        sched_yield();
    }
}

CASE(futex_wait_errors)
{
    volatile uint32_t word = 1;
    struct timespec little = {0, 20000000}, wrong = {0, 1000000000}, negative = {-1, 0};
    CHECK_ERRNO(futex(&word, FUTEX_WAIT, 2, NULL, NULL, 0), EAGAIN);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0), EAGAIN);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT, 1, &little, NULL, 0), ETIMEDOUT);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 20000000);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT, 1, &wrong, NULL, 0), EINVAL);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT, 1, &negative, NULL, 0), EINVAL);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT, 1, BAD_LOW, NULL, 0), EFAULT);
    CHECK_ERRNO(futex((char *)&word + 1, FUTEX_WAIT, 1, NULL, NULL, 0), EINVAL);
    CHECK_ERRNO(futex(BAD_LOW, FUTEX_WAIT, 0, NULL, NULL, 0), EFAULT);
    CHECK_ERRNO(futex(BAD_KERNEL, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0), EFAULT);
    CHECK_ERRNO(futex(BAD_LOW, FUTEX_WAKE, 1, NULL, NULL, 0), EFAULT);
    CHECK_ERRNO(futex((char *)&word + 2, FUTEX_WAKE, 1, NULL, NULL, 0), EINVAL);
    CHECK_EQ(futex(&word, FUTEX_WAKE, 1, NULL, NULL, 0), 0);
    CHECK_ERRNO(futex(&word, 100, 1, NULL, NULL, 0), ENOSYS);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT_BITSET, 1, NULL, NULL, 0), EINVAL);
    CHECK_ERRNO(futex(&word, FUTEX_WAKE_BITSET, 1, NULL, NULL, 0), EINVAL);
}

CASE(futex_absolute_timeouts)
{
    volatile uint32_t word = 1;
    struct timespec when;
    when = (struct timespec){0, 1}; /* Long ago, even on a machine that has just started. */
    CHECK_ERRNO(futex(&word, FUTEX_WAIT_BITSET, 1, &when, NULL, ~0u), ETIMEDOUT);
    int64_t until = now_ns(CLOCK_MONOTONIC) + 20000000;
    when = (struct timespec){until / 1000000000, until % 1000000000};
    CHECK_ERRNO(futex(&word, FUTEX_WAIT_BITSET, 1, &when, NULL, ~0u), ETIMEDOUT);
    CHECK(now_ns(CLOCK_MONOTONIC) >= until);
    until = now_ns(CLOCK_REALTIME) + 20000000;
    when = (struct timespec){until / 1000000000, until % 1000000000};
    CHECK_ERRNO(futex(&word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 1, &when, NULL, ~0u), ETIMEDOUT);
    CHECK(now_ns(CLOCK_REALTIME) >= until);
}

CASE(futex_between_processes)
{
    volatile uint32_t *word = shared_words();
    pid_t children[3];
    for (int i = 0; i < 3; i++) {
        children[i] = fork_or_fail();
        if (children[i] == 0) {
            while (futex(word, FUTEX_WAIT, 0, NULL, NULL, 0) == -1)
                CHECK(errno == EINTR);
            _exit(7);
        }
    }
    wake_exactly(word, FUTEX_WAKE, 3);
    for (int i = 0; i < 3; i++)
        CHECK_EXITED(children[i], 7);
}

CASE(futex_in_a_shared_file_map)
{
    /* The same word at different addresses of different maps of one file. */
    scratch();
    int fd = file_with("f", "", 0);
    CHECK_OK(ftruncate(fd, 4096));
    pid_t child = fork_or_fail();
    if (child == 0) {
        volatile uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        while (futex(word + 5, FUTEX_WAIT, 0, NULL, NULL, 0) == -1)
            CHECK(errno == EINTR);
        _exit(0);
    }
    mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    volatile uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    wake_exactly(word + 5, FUTEX_WAKE, 1);
    CHECK_EXITED(child, 0);
}

CASE(futex_private_does_not_cross_processes)
{
    volatile uint32_t *word = shared_words();
    pid_t child = fork_or_fail();
    if (child == 0) {
        struct timespec little = {0, 100000000};
        CHECK_ERRNO(futex(word, FUTEX_WAIT_PRIVATE, 0, &little, NULL, 0), ETIMEDOUT);
        _exit(0);
    }
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(futex(word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), 0);
        sleep_ms(3);
    }
    CHECK_EXITED(child, 0);
}

CASE(futex_bitsets_select)
{
    volatile uint32_t *word = shared_words();
    pid_t even = fork_or_fail();
    if (even == 0) {
        CHECK_OK(futex(word, FUTEX_WAIT_BITSET, 0, NULL, NULL, 2));
        _exit(0);
    }
    pid_t odd = fork_or_fail();
    if (odd == 0) {
        CHECK_OK(futex(word, FUTEX_WAIT_BITSET, 0, NULL, NULL, 1));
        _exit(0);
    }
    long woken;
    while ((woken = futex(word, FUTEX_WAKE_BITSET, 10, NULL, NULL, 1)) == 0)
        sched_yield();
    CHECK_EQ(woken, 1);
    CHECK_EXITED(odd, 0);
    CHECK_EQ(futex(word, FUTEX_WAKE_BITSET, 10, NULL, NULL, 4), 0);
    while ((woken = futex(word, FUTEX_WAKE, 10, NULL, NULL, 0)) == 0)
        sched_yield();
    CHECK_EQ(woken, 1);
    CHECK_EXITED(even, 0);
}

CASE(futex_requeue_moves_waiters)
{
    volatile uint32_t *words = shared_words();
    pid_t children[4];
    for (int i = 0; i < 4; i++) {
        children[i] = fork_or_fail();
        if (children[i] == 0) {
            CHECK_OK(futex(&words[0], FUTEX_WAIT, 0, NULL, NULL, 0));
            _exit(0);
        }
    }
    /* Requeue without waking until all four are at the second word. */
    for (int moved = 0; moved < 4;) {
        long got = futex(&words[0], FUTEX_REQUEUE, 0, (void *)10L, &words[1], 0);
        CHECK(got >= 0);
        moved += (int)got;
        sched_yield();
    }
    CHECK_EQ(futex(&words[0], FUTEX_WAKE, 10, NULL, NULL, 0), 0);
    CHECK_EQ(futex(&words[1], FUTEX_WAKE, 1, NULL, NULL, 0), 1);
    CHECK_ERRNO(futex(&words[1], FUTEX_CMP_REQUEUE, 1, (void *)10L, &words[2], 5), EAGAIN);
    /* One is woken, two are moved: the result counts both. */
    CHECK_EQ(futex(&words[1], FUTEX_CMP_REQUEUE, 1, (void *)10L, &words[2], 0), 3);
    CHECK_EQ(futex(&words[2], FUTEX_WAKE, 10, NULL, NULL, 0), 2);
    for (int i = 0; i < 4; i++)
        CHECK_EXITED(children[i], 0);
    CHECK_ERRNO(futex(&words[0], FUTEX_REQUEUE, 0, (void *)1L, BAD_LOW, 0), EFAULT);
    CHECK_ERRNO(futex(&words[0], FUTEX_REQUEUE, -1, (void *)1L, &words[1], 0), EINVAL);
}

static void do_nothing(int number)
{
    (void)number;
}

CASE(futex_wait_is_interrupted)
{
    volatile uint32_t word = 0;
    struct sigaction action = {.sa_handler = do_nothing};
    sigaction(SIGUSR1, &action, NULL);
    pid_t child = pesterer(SIGUSR1);
    CHECK_ERRNO(futex(&word, FUTEX_WAIT, 0, NULL, NULL, 0), EINTR);
    kill(child, SIGKILL);
    CHECK_KILLED(child, SIGKILL);
}

static void *return_argument(void *argument)
{
    return argument;
}

CASE(threads_start_and_join)
{
    for (long i = 0; i < 100; i++) {
        pthread_t thread;
        void *result;
        CHECK_EQ(pthread_create(&thread, NULL, return_argument, (void *)i), 0);
        CHECK_EQ(pthread_join(thread, &result), 0);
        CHECK_EQ((long)result, i);
    }
}

enum { THREADS = 4, ROUNDS = 1000 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static volatile int counter;
static __thread volatile int own;

static void *count_under_mutex(void *argument)
{
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        counter++;
        pthread_mutex_unlock(&mutex);
        own++;
    }
    CHECK_EQ(own, ROUNDS);
    return argument;
}

CASE(mutex_excludes_and_tls_is_private)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, count_under_mutex, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(counter, THREADS * ROUNDS);
    CHECK_EQ(own, 0);
}

static volatile int turn;

static void *take_turns(void *argument)
{
    int who = (int)(long)argument;
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&mutex);
        while (turn % THREADS != who)
            pthread_cond_wait(&condition, &mutex);
        turn++;
        pthread_cond_broadcast(&condition);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

CASE(condition_variables_hand_over)
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, take_turns, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(turn, THREADS * 200);
}

CASE(condition_variable_times_out)
{
    struct timespec when;
    clock_gettime(CLOCK_REALTIME, &when);
    when.tv_nsec += 20000000;
    when.tv_sec += when.tv_nsec / 1000000000;
    when.tv_nsec %= 1000000000;
    pthread_mutex_lock(&mutex);
    int result;
    while ((result = pthread_cond_timedwait(&condition, &mutex, &when)) == 0)
        ;
    CHECK_EQ(result, ETIMEDOUT);
}

static sem_t full, empty;
static volatile long slot;

static void *produce(void *argument)
{
    for (long i = 1; i <= 500; i++) {
        sem_wait(&empty);
        slot = i;
        sem_post(&full);
    }
    return argument;
}

CASE(semaphores_pass_values)
{
    pthread_t thread;
    sem_init(&full, 0, 0);
    sem_init(&empty, 0, 1);
    CHECK_EQ(pthread_create(&thread, NULL, produce, NULL), 0);
    for (long i = 1; i <= 500; i++) {
        CHECK_OK(sem_wait(&full));
        CHECK_EQ(slot, i);
        CHECK_OK(sem_post(&empty));
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void *identify(void *argument)
{
    long *identity = argument;
    identity[0] = getpid();
    identity[1] = syscall(SYS_gettid);
    identity[2] = getppid();
    return NULL;
}

CASE(threads_share_the_pid)
{
    long identity[3];
    pthread_t thread;
    CHECK_EQ(syscall(SYS_gettid), getpid());
    CHECK_EQ(pthread_create(&thread, NULL, identify, identity), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(identity[0], getpid());
    CHECK(identity[1] != getpid());
    CHECK_EQ(identity[2], getppid());
}

static pthread_t handler_thread;

static void note_thread(int number)
{
    (void)number;
    handler_thread = pthread_self();
    counter++;
}

static void *wait_for_signal(void *argument)
{
    *(volatile int *)argument = 1;
    while (!counter)
        sched_yield();
    return NULL;
}

CASE(pthread_kill_hits_that_thread)
{
    struct sigaction action = {.sa_handler = note_thread};
    volatile int ready = 0;
    pthread_t thread;
    sigaction(SIGUSR1, &action, NULL);
    CHECK_EQ(pthread_create(&thread, NULL, wait_for_signal, (void *)&ready), 0);
    while (!ready)
        sched_yield();
    CHECK_EQ(pthread_kill(thread, SIGUSR1), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(pthread_equal(handler_thread, thread));
    CHECK_EQ(counter, 1);
}

CASE(process_signal_goes_to_a_thread_that_takes_it)
{
    struct sigaction action = {.sa_handler = note_thread};
    volatile int ready = 0;
    pthread_t thread;
    sigset_t set;
    sigaction(SIGUSR1, &action, NULL);
    CHECK_EQ(pthread_create(&thread, NULL, wait_for_signal, (void *)&ready), 0);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    CHECK_OK(kill(getpid(), SIGUSR1));
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(pthread_equal(handler_thread, thread));
}

static void *exit_process(void *argument)
{
    (void)argument;
    sleep_ms(10);
    _exit(23);
}

static void *sleep_for_ever(void *argument)
{
    for (;;)
        pause();
    return argument;
}

static void *spin_for_ever(void *argument)
{
    for (;;)
        counter++;
    return argument;
}

CASE(exit_group_ends_all_threads)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, sleep_for_ever, NULL);
        pthread_create(&thread, NULL, spin_for_ever, NULL);
        pthread_create(&thread, NULL, exit_process, NULL);
        for (;;)
            pause();
    }
    CHECK_EXITED(child, 23);
}

CASE(fatal_signal_ends_all_threads)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, spin_for_ever, NULL);
        pthread_create(&thread, NULL, sleep_for_ever, NULL);
        sleep_ms(10);
        *(volatile int *)BAD_LOW = 0;
    }
    CHECK_KILLED(child, SIGSEGV);
}

CASE(process_outlives_its_first_thread)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, exit_process, NULL);
        syscall(SYS_exit, 99);
    }
    CHECK_EXITED(child, 23);
}

static void *execute(void *argument)
{
    (void)argument;
    execl("/proc/self/exe", "thread", "--no-fork", "single_after_exec", (char *)NULL);
    _exit(1);
}

CASE(single_after_exec)
{
    /* Also run by the next case through exec: then the pid is the leader's again. */
    CHECK_EQ(syscall(SYS_gettid), getpid());
}

CASE(exec_from_a_thread_replaces_the_process)
{
    /* Needs /proc/self/exe. */
    int ends[2];
    CHECK_OK(pipe(ends));
    pid_t child = fork_or_fail();
    if (child == 0) {
        pthread_t thread;
        dup2(ends[1], 1);
        pthread_create(&thread, NULL, spin_for_ever, NULL);
        pthread_create(&thread, NULL, execute, NULL);
        for (;;)
            pause();
    }
    CHECK_EXITED(child, 0);
    char text[64] = {0};
    CHECK(read(ends[0], text, sizeof text - 1) > 0);
    CHECK_STR(text, "ok single_after_exec\n");
}

static void *fork_in_thread(void *argument)
{
    (void)argument;
    pid_t child = fork();
    if (child == 0)
        _exit(syscall(SYS_gettid) == getpid() ? 5 : 6);
    return (void *)(long)harness_wait(child);
}

CASE(fork_from_threads)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, fork_in_thread, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        CHECK_EQ(pthread_join(threads[i], &result), 0);
        CHECK_EQ(WEXITSTATUS((int)(long)result), 5);
    }
}

static int thread_body(void *argument)
{
    (void)argument;
    return 0;
}

CASE(child_tid_is_cleared_and_woken)
{
    CHECK_EQ(syscall(SYS_set_tid_address, NULL), getpid());
    static char stack[65536] __attribute__((aligned(16)));
    static volatile uint32_t tid = 77;
    int thread = clone(thread_body, stack + sizeof stack,
                       CLONE_VM | CLONE_FILES | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD |
                           CLONE_SYSVSEM | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID,
                       NULL, (void *)&tid, NULL, (void *)&tid);
    CHECK(thread > 0);
    uint32_t seen;
    while ((seen = tid) != 0)
        futex(&tid, FUTEX_WAIT, seen, NULL, NULL, 0);
}

struct robust_node {
    struct robust_node *next;
};
struct robust_head {
    struct robust_node list;
    long offset;
    struct robust_node *pending;
};
struct robust_lock {
    struct robust_node node;
    volatile uint32_t word;
};

CASE(robust_list_marks_dead_owners)
{
    struct robust_lock *locks = (void *)shared_words();
    pid_t child = fork_or_fail();
    if (child == 0) {
        static struct robust_head head;
        head.list.next = &locks[0].node;
        locks[0].node.next = &locks[1].node;
        locks[1].node.next = &head.list;
        head.offset = (long)&((struct robust_lock *)0)->word;
        head.pending = &locks[2].node;
        CHECK_ERRNO(syscall(SYS_set_robust_list, &head, 5), EINVAL);
        CHECK_OK(syscall(SYS_set_robust_list, &head, sizeof head));
        void *seen = NULL;
        size_t length = 0;
        CHECK_OK(syscall(SYS_get_robust_list, 0, &seen, &length));
        CHECK(seen == &head);
        CHECK_EQ(length, sizeof head);
        locks[0].word = (uint32_t)getpid() | FUTEX_WAITERS;
        locks[1].word = (uint32_t)getpid() + 1; /* Not ours. */
        locks[2].word = (uint32_t)getpid();
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(locks[0].word, FUTEX_OWNER_DIED | FUTEX_WAITERS);
    CHECK_EQ(locks[1].word, (uint32_t)child + 1);
    CHECK_EQ(locks[2].word, FUTEX_OWNER_DIED);
}

CASE(hostile_robust_list_is_harmless)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        static struct robust_head head;
        static struct robust_node loop;
        head.list.next = &loop;
        loop.next = &loop; /* Endless. */
        CHECK_OK(syscall(SYS_set_robust_list, &head, sizeof head));
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(syscall(SYS_set_robust_list, BAD_KERNEL, sizeof(struct robust_head)));
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(robust_pthread_mutex_between_processes)
{
    pthread_mutexattr_t attributes;
    pthread_mutex_t *lock = (void *)shared_words();
    pthread_mutexattr_init(&attributes);
    CHECK_EQ(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED), 0);
    CHECK_EQ(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST), 0);
    CHECK_EQ(pthread_mutex_init(lock, &attributes), 0);
    int ends[2];
    CHECK_OK(pipe(ends));
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_EQ(pthread_mutex_lock(lock), 0);
        CHECK_EQ(write(ends[1], "l", 1), 1);
        sleep_ms(20);
        _exit(0); /* With the lock. */
    }
    char byte;
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    CHECK_EQ(pthread_mutex_lock(lock), EOWNERDEAD);
    CHECK_EQ(pthread_mutex_consistent(lock), 0);
    CHECK_EQ(pthread_mutex_unlock(lock), 0);
    CHECK_EXITED(child, 0);
}

static void *unmap_and_map(void *argument)
{
    for (int i = 0; i < 100; i++) {
        char *memory = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED);
        for (int page = 0; page < 4; page++) {
            CHECK_EQ(memory[page * 4096], 0); /* Never another thread's old page. */
            memory[page * 4096] = 1;
        }
        CHECK_OK(munmap(memory, 4 * 4096));
    }
    return argument;
}

CASE(threads_map_and_unmap_concurrently)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, unmap_and_map, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

static char *volatile raced;
static volatile int stop_racing;

static void *fault_all_the_time(void *argument)
{
    while (!stop_racing)
        for (int page = 0; page < 16; page++)
            __atomic_fetch_add((int *)(raced + page * 4096), 1, __ATOMIC_RELAXED);
    return argument;
}

CASE(faults_race_with_fork_and_dontneed)
{
    pthread_t threads[2];
    raced = mmap(NULL, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, fault_all_the_time, NULL), 0);
    for (int i = 0; i < 50; i++) {
        pid_t child = fork_or_fail();
        if (child == 0) {
            /* Alone with its copy: nothing changes it any more. */
            int before = *(volatile int *)raced;
            sched_yield();
            _exit(*(volatile int *)raced == before ? 0 : 1);
        }
        CHECK_OK(madvise(raced, 8 * 4096, MADV_DONTNEED));
        CHECK_EXITED(child, 0);
    }
    stop_racing = 1;
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

static volatile int closed_fd;

static void *read_pipe(void *argument)
{
    char byte;
    *(volatile int *)argument = 1;
    return (void *)(long)read(closed_fd, &byte, 1);
}

CASE(close_does_not_cut_off_a_reader)
{
    int ends[2];
    volatile int ready = 0;
    pthread_t thread;
    void *result;
    CHECK_OK(pipe(ends));
    closed_fd = ends[0];
    CHECK_EQ(pthread_create(&thread, NULL, read_pipe, (void *)&ready), 0);
    while (!ready)
        sched_yield();
    sleep_ms(20);
    close(ends[0]);
    ssize_t got = write(ends[1], "x", 1);
    if (got == 1) { /* The reader was in the call in time, and holds the pipe open. */
        CHECK_EQ(pthread_join(thread, &result), 0);
        CHECK_EQ((long)result, 1);
    }
}

static void *barrier_body(void *argument)
{
    for (int i = 0; i < 200; i++)
        pthread_barrier_wait(argument);
    return NULL;
}

CASE(barriers)
{
    pthread_barrier_t barrier;
    pthread_t threads[THREADS];
    CHECK_EQ(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, barrier_body, &barrier), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

CASE(cancellation)
{
    pthread_t thread;
    void *result;
    CHECK_EQ(pthread_create(&thread, NULL, sleep_for_ever, NULL), 0);
    CHECK_EQ(pthread_cancel(thread), 0);
    CHECK_EQ(pthread_join(thread, &result), 0);
    CHECK(result == PTHREAD_CANCELED);
}

CASE(many_threads_at_once)
{
    enum { MANY = 64 };
    pthread_t threads[MANY];
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < MANY; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, count_under_mutex, NULL), 0);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < MANY; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(counter, MANY * ROUNDS);
}

CASE(credentials_change_in_all_threads)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        pthread_t thread;
        volatile int ready = 0;
        CHECK_EQ(pthread_create(&thread, NULL, wait_for_signal, (void *)&ready), 0);
        while (!ready)
            sched_yield();
        CHECK_OK(setuid(1000)); /* The C library tells every thread by a signal. */
        counter = 1;
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CHECK_EQ(getuid(), 1000);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}
