/* A test double of the kernel's side of docs/abi/syspage.md, for running libferry on plain Linux: a
 * thread per syspage plays the scanner, and calls that may block get threads of their own.
 *
 * The library is built with FERRY_TEST_KERNEL, so its traps come here. FERRY_DOUBLE=unscanned makes
 * it a kernel with one core, which looks only when it is trapped for. Waits are polls with short
 * sleeps: this is for correctness, not for speed.
 */
#define _GNU_SOURCE
#include "ferry.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/trap.h"

/* Visits that find nothing before the scanner parks. */
#define IDLE_VISITS 200
#define SLEEP_NS 20000

struct binding {
    struct ferry_entry *entries;
    struct ferry_control *control;
    pthread_t scanner;
    uint32_t head;
    uint64_t taken; /* Atomic. */
    uint64_t held;
    struct ferry_entry held_calls[FERRY_ENTRIES];
    /* What carries out a blocking call; valid while its bit in `blocking` (atomic) is set. */
    pid_t carriers[FERRY_ENTRIES];
    uint64_t blocking;
    uint64_t cancelled;
    int stops;
    int bells;
};

struct carried {
    struct binding *binding;
    int index;
    struct ferry_entry call;
};

static __thread struct binding *mine;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static long trap(long number, const uint64_t a[6])
{
    long result;
    register uint64_t fourth __asm__("r10") = a[3];
    register uint64_t fifth __asm__("r8") = a[4];
    register uint64_t sixth __asm__("r9") = a[5];
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(fourth), "r"(fifth),
                       "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
}

static uint64_t bits(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static uint64_t bit(int index)
{
    return 1ul << index;
}

/* Whether the sleep was whole: a signal ends it. */
static int nap(void)
{
    struct timespec time = {0, SLEEP_NS};
    return clock_nanosleep(CLOCK_MONOTONIC, 0, &time, 0) == 0;
}

static int is_forbidden(long number)
{
    static const short numbers[] = {SYS_rt_sigreturn, SYS_clone,   SYS_fork,         SYS_vfork,
                                    SYS_clone3,       SYS_execve,  SYS_execveat,     SYS_exit,
                                    SYS_exit_group,   SYS_ppoll,   SYS_pselect6,     SYS_pause,
                                    SYS_rt_sigsuspend, SYS_rt_sigtimedwait};
    for (unsigned at = 0; at < sizeof numbers / sizeof *numbers; at++)
        if (numbers[at] == number)
            return 1;
    return number >= 500;
}

static int may_block(long number)
{
    return number == SYS_read || number == SYS_nanosleep || number == SYS_clock_nanosleep ||
           number == SYS_poll || number == SYS_futex || number == SYS_wait4;
}

static uint32_t status_of(int index);

static void complete(struct binding *binding, int index, long result)
{
    struct ferry_entry *entry = &binding->entries[index];
    entry->result = result;
    __atomic_store_n(&entry->status, FERRY_DONE, __ATOMIC_RELEASE);
    __atomic_fetch_and(&binding->taken, ~bit(index), __ATOMIC_SEQ_CST);
}

static void *carry(void *argument)
{
    struct carried *carried = argument;
    struct binding *binding = carried->binding;
    long result = -EINTR;
    __atomic_store_n(&binding->carriers[carried->index], (pid_t)syscall(SYS_gettid),
                     __ATOMIC_SEQ_CST);
    /* Interrupted for another reason than ferry_cancel: not at all. */
    while (!(bits(&binding->cancelled) & bit(carried->index))) {
        result = trap(carried->call.number, carried->call.arguments);
        if (result != -EINTR)
            break;
    }
    __atomic_fetch_and(&binding->blocking, ~bit(carried->index), __ATOMIC_SEQ_CST);
    __atomic_fetch_and(&binding->cancelled, ~bit(carried->index), __ATOMIC_SEQ_CST);
    complete(binding, carried->index, result);
    free(carried);
    return 0;
}

static void serve(struct binding *binding, int index, const struct ferry_entry *call)
{
    if (call->flags & ~FERRY_FLAG_LINK) {
        complete(binding, index, -EINVAL);
    } else if (is_forbidden(call->number)) {
        complete(binding, index, -FERRY_EMUSTTRAP);
    } else if (may_block(call->number)) {
        struct carried *carried = malloc(sizeof *carried);
        *carried = (struct carried){binding, index, *call};
        pthread_t carrier;
        __atomic_store_n(&binding->carriers[index], 0, __ATOMIC_SEQ_CST);
        __atomic_fetch_or(&binding->blocking, bit(index), __ATOMIC_SEQ_CST);
        pthread_create(&carrier, 0, carry, carried);
        pthread_detach(carrier);
    } else {
        complete(binding, index, trap(call->number, call->arguments));
    }
}

/* One walk of the scanner. Whether it found anything. */
static int visit(struct binding *binding)
{
    int found = 0;
    for (int step = 0; step < FERRY_ENTRIES; step++) {
        int index = (int)(binding->head + (uint32_t)step) % FERRY_ENTRIES;
        int before = (index + FERRY_ENTRIES - 1) % FERRY_ENTRIES;
        if ((binding->held & bit(index)) && (bits(&binding->cancelled) & bit(index))) {
            binding->held &= ~bit(index);
            __atomic_fetch_and(&binding->cancelled, ~bit(index), __ATOMIC_SEQ_CST);
            complete(binding, index, -EINTR);
            found = 1;
        }
        if ((binding->held & bit(index)) && !(bits(&binding->taken) & bit(before))) {
            binding->held &= ~bit(index);
            serve(binding, index, &binding->held_calls[index]);
            found = 1;
        }
    }
    for (;;) {
        int index = (int)(binding->head % FERRY_ENTRIES);
        int before = (index + FERRY_ENTRIES - 1) % FERRY_ENTRIES;
        struct ferry_entry *entry = &binding->entries[index], call;
        uint32_t status = __atomic_load_n(&entry->status, __ATOMIC_ACQUIRE);
        int is_taken = (bits(&binding->taken) & bit(index)) != 0;
        if (status != FERRY_SUBMITTED || is_taken) {
            uint8_t pass = __atomic_load_n(&entry->pass, __ATOMIC_RELAXED);
            if (pass != 1 + binding->head / FERRY_ENTRIES % 2)
                return found;
        } else {
            call = *entry;
            __atomic_fetch_or(&binding->taken, bit(index), __ATOMIC_SEQ_CST);
            if ((call.flags & FERRY_FLAG_LINK) && (bits(&binding->taken) & bit(before))) {
                binding->held_calls[index] = call;
                binding->held |= bit(index);
            } else {
                serve(binding, index, &call);
            }
        }
        binding->head++;
        __atomic_store_n(&binding->control->head, binding->head, __ATOMIC_RELEASE);
        found = 1;
    }
}

static void *scan(void *argument)
{
    struct binding *binding = argument;
    int is_scanned = binding->control->features & FERRY_FEATURE_SCANNED;
    int idle = 0;
    while (!__atomic_load_n(&binding->stops, __ATOMIC_SEQ_CST)) {
        if (visit(binding)) {
            idle = 0;
        } else if (is_scanned && ++idle < IDLE_VISITS) {
            continue;
        } else {
            __atomic_store_n(&binding->control->parked, 1, __ATOMIC_RELAXED);
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
            if (!visit(binding))
                while (!__atomic_exchange_n(&binding->bells, 0, __ATOMIC_SEQ_CST) &&
                       !binding->held && !__atomic_load_n(&binding->stops, __ATOMIC_SEQ_CST))
                    nap();
            if (is_scanned)
                __atomic_store_n(&binding->control->parked, 0, __ATOMIC_SEQ_CST);
            idle = 0;
        }
    }
    return 0;
}

static void do_nothing(int number)
{
    (void)number;
}

/* The child of a fork has no kernel yet. */
static void begin_anew(void)
{
    mine = 0;
}

static void initialise(void)
{
    struct sigaction action = {.sa_handler = do_nothing};
    sigaction(SIGUSR2, &action, 0);
    pthread_atfork(0, 0, begin_anew);
}

static long do_register(uint64_t version, uint64_t page, uint64_t flags)
{
    const char *kind = getenv("FERRY_DOUBLE");
    struct binding *binding;
    sigset_t all, old;
    pthread_once(&once, initialise);
    if (version != FERRY_VERSION || page % 4096 != 0 || flags != 0)
        return -EINVAL;
    if (mine)
        return -EBUSY;
    if (kind && strcmp(kind, "none") == 0)
        return -EMFILE;
    binding = calloc(1, sizeof *binding);
    binding->entries = (struct ferry_entry *)page;
    memset(binding->entries, 0, 4096);
    binding->control =
        mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    binding->control->version = FERRY_VERSION;
    binding->control->entry_count = FERRY_ENTRIES;
    binding->control->spin_limit = 1000;
    if (kind && strcmp(kind, "unscanned") == 0)
        binding->control->parked = 1;
    else
        binding->control->features = FERRY_FEATURE_SCANNED;
    for (int number = 0; number < 512; number++)
        if (!is_forbidden(number))
            binding->control->permitted[number / 64] |= bit(number % 64);
    mine = binding;
    /* The test's signals are for the test's threads. */
    sigfillset(&all);
    sigdelset(&all, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_create(&binding->scanner, 0, scan, binding);
    pthread_sigmask(SIG_SETMASK, &old, 0);
    return (long)binding->control;
}

static long do_cancel(int index)
{
    if (index < 0 || index >= FERRY_ENTRIES)
        return -EINVAL;
    if (!mine || status_of(index) != FERRY_SUBMITTED)
        return -ENOENT;
    /* What is posted and not taken yet will be; then it blocks, is held, or is over soon. */
    __atomic_fetch_or(&mine->cancelled, bit(index), __ATOMIC_SEQ_CST);
    while (status_of(index) == FERRY_SUBMITTED) {
        pid_t carrier = __atomic_load_n(&mine->carriers[index], __ATOMIC_SEQ_CST);
        if ((bits(&mine->blocking) & bit(index)) && carrier)
            syscall(SYS_tgkill, getpid(), carrier, SIGUSR2);
        __atomic_store_n(&mine->bells, 1, __ATOMIC_SEQ_CST);
        nap();
    }
    /* Whoever cancelled it took the bit away. */
    return __atomic_fetch_and(&mine->cancelled, ~bit(index), __ATOMIC_SEQ_CST) & bit(index) ? -ENOENT : 0;
}

static long do_unregister(void)
{
    struct binding *binding = mine;
    if (!binding)
        return -ENOENT;
    /* Nothing more is taken; what has not begun is answered, what blocks is cancelled. */
    __atomic_store_n(&binding->stops, 1, __ATOMIC_SEQ_CST);
    pthread_join(binding->scanner, 0);
    for (int index = 0; index < FERRY_ENTRIES; index++)
        if ((binding->held & bit(index)) ||
            (status_of(index) == FERRY_SUBMITTED && !(bits(&binding->taken) & bit(index))))
            complete(binding, index, -EINTR);
    while (bits(&binding->taken)) {
        for (int index = 0; index < FERRY_ENTRIES; index++)
            if (bits(&binding->blocking) & bit(index))
                do_cancel(index);
        nap();
    }
    munmap(binding->control, 8192);
    free(binding);
    mine = 0;
    return 0;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000l + now.tv_nsec;
}

static uint32_t status_of(int index)
{
    return __atomic_load_n(&mine->entries[index].status, __ATOMIC_ACQUIRE);
}

/* What a wait answers now; -EINPROGRESS: nothing yet. */
static long look(uint64_t mode, uint64_t index)
{
    int some_submitted = 0;
    if (mode == FERRY_WAIT_ONE)
        return status_of((int)index) == FERRY_SUBMITTED ? -EINPROGRESS : 0;
    for (int at = 0; at < FERRY_ENTRIES; at++) {
        uint32_t status = status_of(at);
        if (mode == FERRY_WAIT_ANY && status == FERRY_DONE)
            return at;
        some_submitted |= status == FERRY_SUBMITTED;
    }
    if (some_submitted)
        return -EINPROGRESS;
    return mode == FERRY_WAIT_ANY ? -EAGAIN : 0;
}

static long do_wait(uint64_t mode, uint64_t index, const struct timespec *timeout)
{
    int64_t end_ns = INT64_MAX;
    if (!mine)
        return -ENOENT;
    if (mode > FERRY_WAIT_ONE || (mode == FERRY_WAIT_ONE && index >= FERRY_ENTRIES))
        return -EINVAL;
    if (timeout && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec > 999999999))
        return -EINVAL;
    if (timeout)
        end_ns = now_ns() + timeout->tv_sec * 1000000000l + timeout->tv_nsec;
    __atomic_store_n(&mine->bells, 1, __ATOMIC_SEQ_CST);
    while (mode != FERRY_WAIT_SUBMIT) {
        long answer = look(mode, index);
        if (answer != -EINPROGRESS)
            return answer;
        if (now_ns() >= end_ns)
            return -ETIMEDOUT;
        if (!nap())
            return -EINTR;
        __atomic_store_n(&mine->bells, 1, __ATOMIC_SEQ_CST);
    }
    return 0;
}

long ferry_trap_(long number, const uint64_t arguments[6])
{
    long result;
    switch (number) {
    case FERRY_SYS_register:
        return do_register(arguments[0], arguments[1], arguments[2]);
    case FERRY_SYS_unregister:
        return do_unregister();
    case FERRY_SYS_wait:
        return do_wait(arguments[0], arguments[1], (const struct timespec *)arguments[2]);
    case FERRY_SYS_cancel:
        return do_cancel((int)arguments[0]);
    default:
        result = trap(number, arguments);
        if (number == SYS_fork && result == 0)
            mine = 0;
        return result;
    }
}
