/* A stress of fork, exec, exit, signals, pipes, futexes, threads, maps and files on all cores at once.
 *
 *     stress [SECONDS [SEED [WORKERS]]]        default: 120 seconds, a seed from the clock, 4 workers
 *
 * Worker processes choose operations by a seeded generator and check what each did: data through pipes,
 * counters under locks, memory patterns across fork, statuses of all children. The parent prints progress
 * every five seconds and ends with `stress ok: counts...` and status 0, or with `stress failed: ...` and 1. It
 * kills everything and fails when a worker makes no step for STUCK_SECONDS, so it always ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS_MAX = 32, OPERATIONS = 14, STUCK_SECONDS = 60, PAGE = 4096 };

/* Lives in memory that all processes share. `left` and `right` belong to `lock`; a worker's own fields are
 * written by it alone. */
static struct shared {
    volatile uint32_t lock;
    volatile uint64_t left, right;
    volatile uint32_t stop, failed;
    struct worker {
        volatile uint64_t steps, locked, operation;
        volatile uint64_t done[OPERATIONS];
        char padding[64];
    } workers[WORKERS_MAX];
} *shared;

static struct worker *me;
static const char *operation_name = "?";
static uint64_t random_state;
static int worker_index;

static uint64_t random_number(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static unsigned random_below(unsigned limit)
{
    return (unsigned)((random_number() >> 11) % limit);
}

static void say(const char *text)
{
    size_t length = strlen(text);
    while (length > 0) {
        ssize_t written = write(1, text, length);
        if (written <= 0)
            return;
        text += written;
        length -= (size_t)written;
    }
}

__attribute__((noreturn)) static void fail(int line, const char *what, long got)
{
    char text[300];
    int reason = errno;
    snprintf(text, sizeof text, "stress: worker %d, %s, line %d: %s, got %ld (errno %d %s)\n", worker_index,
             operation_name, line, what, got, reason, strerror(reason));
    say(text);
    shared->failed = 1;
    _exit(1);
}

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition))                                                                      \
            fail(__LINE__, #condition, 0);                                                     \
    } while (0)

#define CHECK_EQ(left, right)                                                                  \
    do {                                                                                       \
        long left_ = (long)(left), right_ = (long)(right);                                     \
        if (left_ != right_)                                                                   \
            fail(__LINE__, #left " == " #right, left_);                                        \
    } while (0)

static pid_t start_child(void)
{
    pid_t child;
    /* A full system may refuse for a moment. */
    while ((child = fork()) == -1 && (errno == EAGAIN || errno == ENOMEM))
        sched_yield();
    CHECK(child != -1);
    return child;
}

static int status_of(pid_t child)
{
    int status = -1;
    pid_t got;
    while ((got = waitpid(child, &status, 0)) == -1 && errno == EINTR)
        ;
    CHECK_EQ(got, child);
    return status;
}

static void expect_exit(pid_t child, int code)
{
    int status = status_of(child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
        fail(__LINE__, "the child's wait status", status);
}

static long futex(volatile uint32_t *word, int operation, uint32_t value)
{
    return syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

/* 0 free, 1 held, 2 held and waited for; after the manual page futex(2). */
static void lock(volatile uint32_t *word)
{
    uint32_t seen = 0;
    if (__atomic_compare_exchange_n(word, &seen, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return;
    while (__atomic_exchange_n(word, 2, __ATOMIC_ACQUIRE) != 0)
        if (futex(word, 0, 2) == -1)
            CHECK(errno == EAGAIN || errno == EINTR);
}

static void unlock(volatile uint32_t *word)
{
    if (__atomic_exchange_n(word, 0, __ATOMIC_RELEASE) == 2)
        CHECK(futex(word, 1, 1) >= 0);
}

static void fork_and_exit(void)
{
    int code = (int)random_below(256);
    pid_t child = start_child();
    if (child == 0)
        _exit(code);
    expect_exit(child, code);
}

static void fork_many(void)
{
    pid_t children[12];
    unsigned count = 1 + random_below(12);
    for (unsigned i = 0; i < count; i++) {
        children[i] = start_child();
        if (children[i] == 0) {
            if (i % 3 == 0)
                sched_yield();
            _exit((int)i);
        }
    }
    for (unsigned i = 0; i < count; i++)
        expect_exit(children[count - 1 - i], (int)(count - 1 - i));
}

static void execute(void)
{
    char code[8];
    char *words[] = {"stress", "--exit", code, NULL};
    int value = (int)random_below(256);
    snprintf(code, sizeof code, "%d", value);
    pid_t child = random_below(2) ? start_child() : vfork();
    if (child == 0) {
        execve("/proc/self/exe", words, NULL);
        _exit(255);
    }
    CHECK(child > 0);
    expect_exit(child, value);
}

static void pipe_data(void)
{
    static unsigned char block[20000];
    int ends[2];
    size_t total = 1000 + random_below(300000);
    uint32_t seed = (uint32_t)random_number();
    CHECK_EQ(pipe(ends), 0);
    pid_t child = start_child();
    if (child == 0) {
        close(ends[0]);
        for (size_t done = 0; done < total;) {
            size_t size = 1 + random_below(sizeof block);
            if (size > total - done)
                size = total - done;
            for (size_t i = 0; i < size; i++)
                block[i] = (unsigned char)(((done + i) * 2654435761u + seed) >> 13);
            CHECK_EQ(write(ends[1], block, size), size);
            done += size;
        }
        _exit(0);
    }
    close(ends[1]);
    size_t done = 0;
    ssize_t got;
    while ((got = read(ends[0], block, 1 + random_below(sizeof block))) > 0)
        for (ssize_t i = 0; i < got; i++, done++)
            if (block[i] != (unsigned char)((done * 2654435761u + seed) >> 13))
                fail(__LINE__, "the byte that came through the pipe", (long)done);
    CHECK_EQ(got, 0);
    CHECK_EQ(done, total);
    close(ends[0]);
    expect_exit(child, 0);
}

static void pipe_ping_pong(void)
{
    int there[2], back[2];
    char byte = 0;
    CHECK_EQ(pipe(there), 0);
    CHECK_EQ(pipe(back), 0);
    pid_t child = start_child();
    if (child == 0) {
        close(there[1]);
        struct pollfd set = {there[0], POLLIN, 0};
        for (;;) {
            CHECK_EQ(poll(&set, 1, -1), 1);
            ssize_t got = read(there[0], &byte, 1);
            if (got == 0)
                _exit(0);
            CHECK_EQ(got, 1);
            byte++;
            CHECK_EQ(write(back[1], &byte, 1), 1);
        }
    }
    close(there[0]);
    for (int i = 0; i < 100; i++) {
        byte = (char)i;
        CHECK_EQ(write(there[1], &byte, 1), 1);
        CHECK_EQ(read(back[0], &byte, 1), 1);
        CHECK_EQ(byte, (char)(i + 1));
    }
    close(there[1]);
    close(back[0]);
    close(back[1]);
    expect_exit(child, 0);
}

static volatile int signals_seen;

static void count_signal(int number)
{
    (void)number;
    signals_seen++;
}

static void signal_storm(void)
{
    enum { SIGNALS = 50 };
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = random_below(2) ? SA_RESTART : 0};
    union sigval value = {0};
    signals_seen = 0;
    CHECK_EQ(sigaction(SIGRTMIN + 1, &action, NULL), 0);
    pid_t parent = getpid(), child = start_child();
    if (child == 0) {
        for (int i = 0; i < SIGNALS; i++)
            while (sigqueue(parent, SIGRTMIN + 1, value) == -1) {
                CHECK_EQ(errno, EAGAIN);
                sched_yield();
            }
        _exit(0);
    }
    expect_exit(child, 0);
    CHECK_EQ(signals_seen, SIGNALS); /* All were pending before the child could exit. */
}

static void kill_child(void)
{
    int fatal[] = {SIGTERM, SIGKILL, SIGUSR1, SIGSEGV};
    int number = fatal[random_below(4)], way = (int)random_below(4), ends[2];
    CHECK_EQ(pipe(ends), 0);
    pid_t child = start_child();
    if (child == 0) {
        char byte;
        signal(number == SIGKILL ? SIGTERM : number, SIG_DFL);
        for (;;)
            if (way == 0)
                pause();
            else if (way == 1)
                CHECK(read(ends[0], &byte, 1) == 1);
            else if (way == 2)
                getppid();
    }
    if (way == 3) {
        int status;
        CHECK_EQ(kill(child, SIGSTOP), 0);
        CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
        CHECK(WIFSTOPPED(status));
        CHECK_EQ(kill(child, SIGCONT), 0);
    }
    if (random_below(2))
        sched_yield();
    CHECK_EQ(kill(child, number), 0);
    int status = status_of(child);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), number);
    close(ends[0]);
    close(ends[1]);
}

static void fault_child(void)
{
    int kind = (int)random_below(3);
    pid_t child = start_child();
    if (child == 0) {
        if (kind == 0)
            *(volatile int *)8 = 1;
        else if (kind == 1)
            __asm__ volatile("ud2");
        else
            *(volatile char *)0xffff800000000000 = 1;
        _exit(0);
    }
    int status = status_of(child);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), kind == 1 ? SIGILL : SIGSEGV);
}

static void shared_lock(void)
{
    for (int i = 0; i < 200; i++) {
        lock(&shared->lock);
        uint64_t left = shared->left;
        CHECK_EQ(left, shared->right);
        shared->left = left + 1;
        if (i % 50 == 0)
            sched_yield();
        shared->right = left + 1;
        me->locked++;
        unlock(&shared->lock);
    }
}

static struct {
    volatile uint32_t lock;
    volatile long guarded;
    long atomic;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    volatile int turn;
} threads_state = {.mutex = PTHREAD_MUTEX_INITIALIZER, .condition = PTHREAD_COND_INITIALIZER};

static void *thread_body(void *argument)
{
    int who = (int)(long)argument;
    for (int i = 0; i < 100; i++) {
        lock(&threads_state.lock);
        threads_state.guarded++;
        unlock(&threads_state.lock);
        __atomic_fetch_add(&threads_state.atomic, 1, __ATOMIC_RELAXED);
    }
    for (int i = 0; i < 10; i++) {
        pthread_mutex_lock(&threads_state.mutex);
        while (threads_state.turn % 4 != who)
            pthread_cond_wait(&threads_state.condition, &threads_state.mutex);
        threads_state.turn++;
        pthread_cond_broadcast(&threads_state.condition);
        pthread_mutex_unlock(&threads_state.mutex);
    }
    volatile unsigned char *memory =
        mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    for (int i = 0; i < 4 * PAGE; i += 64) {
        CHECK_EQ(memory[i], 0);
        memory[i] = (unsigned char)(who + 1);
    }
    for (int i = 0; i < 4 * PAGE; i += 64)
        CHECK_EQ(memory[i], who + 1);
    CHECK_EQ(munmap((void *)memory, 4 * PAGE), 0);
    return argument;
}

static void threads(void)
{
    pthread_t ids[4];
    threads_state.guarded = threads_state.atomic = threads_state.turn = 0;
    for (long i = 0; i < 4; i++)
        CHECK_EQ(pthread_create(&ids[i], NULL, thread_body, (void *)i), 0);
    for (long i = 0; i < 4; i++) {
        void *result;
        CHECK_EQ(pthread_join(ids[i], &result), 0);
        CHECK_EQ(result, i);
    }
    CHECK_EQ(threads_state.guarded, 400);
    CHECK_EQ(threads_state.atomic, 400);
    CHECK_EQ(threads_state.turn, 40);
}

static void *fork_from_thread(void *argument)
{
    pid_t child = start_child();
    if (child == 0)
        _exit(9);
    expect_exit(child, 9);
    return argument;
}

static void threads_that_fork(void)
{
    pthread_t ids[3];
    for (int i = 0; i < 3; i++)
        CHECK_EQ(pthread_create(&ids[i], NULL, fork_from_thread, NULL), 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(pthread_join(ids[i], NULL), 0);
    /* A process that ends while its threads are busy. */
    pid_t child = start_child();
    if (child == 0) {
        pthread_t id;
        pthread_create(&id, NULL, fork_from_thread, NULL);
        pthread_create(&id, NULL, thread_body, (void *)3);
        _exit(4);
    }
    expect_exit(child, 4);
}

static void fill(uint64_t *memory, size_t words, uint64_t seed)
{
    for (size_t i = 0; i < words; i += 8)
        memory[i] = seed + i;
}

static void verify(const uint64_t *memory, size_t words, uint64_t seed)
{
    for (size_t i = 0; i < words; i += 8)
        if (memory[i] != seed + i)
            fail(__LINE__, "the word of the pattern", (long)i);
}

static void maps(void)
{
    size_t pages = 4 + random_below(120), words = pages * PAGE / 8;
    uint64_t seed = random_number();
    uint64_t *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    for (size_t i = 0; i < words; i += 512)
        CHECK_EQ(memory[i], 0);
    fill(memory, words, seed);
    pid_t child = start_child();
    if (child == 0) {
        verify(memory, words, seed);
        fill(memory, words, ~seed);
        verify(memory, words, ~seed);
        _exit(0);
    }
    verify(memory, words / 2, seed);
    fill(memory, words / 2, seed + 1);
    expect_exit(child, 0);
    verify(memory, words / 2, seed + 1);
    fill(memory, words, seed);
    CHECK_EQ(mprotect(memory, pages * PAGE, PROT_READ), 0);
    verify(memory, words, seed);
    CHECK_EQ(mprotect(memory, pages * PAGE, PROT_READ | PROT_WRITE), 0);
    memory = mremap(memory, pages * PAGE, 2 * pages * PAGE, MREMAP_MAYMOVE);
    CHECK(memory != MAP_FAILED);
    verify(memory, words, seed);
    CHECK_EQ(memory[words], 0);
    CHECK_EQ(munmap((char *)memory + pages / 2 * PAGE, PAGE), 0);
    verify(memory, pages / 2 * PAGE / 8, seed);
    CHECK_EQ(munmap(memory, 2 * pages * PAGE), 0);
}

static void files(void)
{
    char name[64], other[64];
    static unsigned char out[30000], in[30000];
    size_t size = 1 + random_below(sizeof out);
    unsigned char seed = (unsigned char)random_number();
    snprintf(name, sizeof name, "/tmp/stress-%d-a", (int)getpid());
    snprintf(other, sizeof other, "/tmp/stress-%d-b", (int)getpid());
    for (size_t i = 0; i < size; i++)
        out[i] = (unsigned char)(i * 13 + seed);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, out, size), size);
    CHECK_EQ(rename(name, other), 0);
    CHECK_EQ(pread(fd, in, sizeof in, 0), size);
    CHECK_EQ(memcmp(in, out, size), 0);
    unsigned char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED);
    CHECK_EQ(memcmp(memory, out, size), 0);
    pid_t child = start_child();
    if (child == 0) {
        memory[size - 1] ^= 0xff;
        _exit(0);
    }
    expect_exit(child, 0);
    CHECK_EQ(pread(fd, in, 1, (off_t)size - 1), 1);
    CHECK_EQ(in[0], (unsigned char)(out[size - 1] ^ 0xff));
    CHECK_EQ(munmap(memory, size), 0);
    CHECK_EQ(ftruncate(fd, 1), 0);
    CHECK_EQ(unlink(other), 0);
    struct stat status;
    CHECK_EQ(fstat(fd, &status), 0);
    CHECK_EQ(status.st_size, 1);
    CHECK_EQ(status.st_nlink, 0);
    CHECK_EQ(close(fd), 0);
}

static void sleeps(void)
{
    struct timespec request = {0, 100000 + random_below(3000000)}, before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    while (nanosleep(&request, &request) == -1)
        CHECK_EQ(errno, EINTR);
    clock_gettime(CLOCK_MONOTONIC, &after);
    CHECK(after.tv_sec > before.tv_sec || after.tv_nsec > before.tv_nsec);
    CHECK_EQ(poll(NULL, 0, 1), 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} operations[OPERATIONS] = {
    {"fork", fork_and_exit},   {"fork-many", fork_many}, {"exec", execute},
    {"pipe", pipe_data},       {"ping-pong", pipe_ping_pong},
    {"signals", signal_storm}, {"kill", kill_child},     {"fault", fault_child},
    {"futex", shared_lock},    {"threads", threads},     {"thread-fork", threads_that_fork},
    {"maps", maps},            {"files", files},         {"sleep", sleeps},
};

static void work(uint64_t seed)
{
    random_state = seed;
    me = &shared->workers[worker_index];
    while (!shared->stop) {
        unsigned which = random_below(OPERATIONS);
        operation_name = operations[which].name;
        me->operation = which;
        operations[which].run();
        me->done[which]++;
        me->steps++;
        int status;
        CHECK(waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD); /* No child is left over. */
    }
    _exit(0);
}

static void end_all(pid_t *workers, int count)
{
    for (int i = 0; i < count; i++)
        kill(-workers[i], SIGKILL);
}

int main(int count, char **words)
{
    char text[1000];
    if (count == 3 && strcmp(words[1], "--exit") == 0)
        return atoi(words[2]);
    long seconds = count > 1 ? atol(words[1]) : 120;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = count > 2 ? strtoull(words[2], NULL, 0) : (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 20;
    int workers_count = count > 3 ? atoi(words[3]) : 4;
    if (seconds <= 0 || workers_count < 1 || workers_count > WORKERS_MAX) {
        say("usage: stress [SECONDS [SEED [WORKERS]]]\n");
        return 64;
    }
    snprintf(text, sizeof text, "stress: %ld seconds, seed %llu, %d workers\n", seconds,
             (unsigned long long)seed, workers_count);
    say(text);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        say("stress failed: no shared memory\n");
        return 1;
    }
    pid_t workers[WORKERS_MAX];
    uint64_t last[WORKERS_MAX] = {0};
    time_t moved[WORKERS_MAX], start;
    for (int i = 0; i < workers_count; i++) {
        workers[i] = fork();
        if (workers[i] == 0) {
            worker_index = i;
            setpgid(0, 0);
            work((seed + (uint64_t)i * 0x9e3779b97f4a7c15u) | 1);
        }
        if (workers[i] == -1) {
            say("stress failed: fork\n");
            end_all(workers, i);
            return 1;
        }
        setpgid(workers[i], workers[i]);
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    start = now.tv_sec;
    for (int i = 0; i < workers_count; i++)
        moved[i] = start;
    int running = workers_count, wrong = 0;
    time_t reported = start;
    while (running > 0) {
        int status;
        pid_t ended;
        while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
            running--;
            if (status != 0 && !wrong) {
                snprintf(text, sizeof text, "stress: a worker ends with wait status %#x\n", (unsigned)status);
                say(text);
                wrong = 1;
            }
            for (int i = 0; i < workers_count; i++)
                if (workers[i] == ended)
                    moved[i] = 0;
        }
        struct timespec tick = {0, 100000000};
        nanosleep(&tick, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start >= seconds || wrong || shared->failed)
            shared->stop = 1;
        for (int i = 0; i < workers_count; i++) {
            if (moved[i] == 0)
                continue;
            if (shared->workers[i].steps != last[i]) {
                last[i] = shared->workers[i].steps;
                moved[i] = now.tv_sec;
            } else if (now.tv_sec - moved[i] > STUCK_SECONDS) {
                snprintf(text, sizeof text, "stress: worker %d is stuck in %s after %llu steps\n", i,
                         operations[shared->workers[i].operation % OPERATIONS].name,
                         (unsigned long long)last[i]);
                say(text);
                wrong = 1;
                kill(-workers[i], SIGKILL);
                moved[i] = now.tv_sec;
            }
        }
        if (now.tv_sec - reported >= 5) {
            uint64_t steps = 0;
            reported = now.tv_sec;
            for (int i = 0; i < workers_count; i++)
                steps += shared->workers[i].steps;
            snprintf(text, sizeof text, "stress: %ld s, %llu steps\n", (long)(now.tv_sec - start),
                     (unsigned long long)steps);
            say(text);
        }
    }
    end_all(workers, workers_count);
    uint64_t locked = 0, steps = 0, done[OPERATIONS] = {0};
    for (int i = 0; i < workers_count; i++) {
        locked += shared->workers[i].locked;
        steps += shared->workers[i].steps;
        for (int which = 0; which < OPERATIONS; which++)
            done[which] += shared->workers[i].done[which];
    }
    if (!wrong && (locked != shared->left || locked != shared->right)) {
        say("stress: the counters under the lock do not agree\n");
        wrong = 1;
    }
    if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD) {
        say("stress: children are left over\n");
        wrong = 1;
    }
    if (wrong || shared->failed) {
        snprintf(text, sizeof text, "stress failed: seed %llu\n", (unsigned long long)seed);
        say(text);
        return 1;
    }
    int used = snprintf(text, sizeof text, "stress ok: %llu steps", (unsigned long long)steps);
    for (int which = 0; which < OPERATIONS; which++)
        used += snprintf(text + used, sizeof text - (size_t)used, ", %s %llu", operations[which].name,
                         (unsigned long long)done[which]);
    say(text);
    say("\n");
    return 0;
}
