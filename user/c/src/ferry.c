/* libferry: what is not short enough for ferry.h.
 *
 * A thread's state is in `ferry_thread_` and used by that thread alone, so there is no lock. It begins
 * with a control page that permits nothing: the first call comes here and binds a syspage. Behind
 * the syspage lies a page of entries that the kernel never sees. They hold the results of calls that
 * may not be posted, and of all calls where the kernel has no syspages: those are carried out
 * when they are posted.
 */
#define _GNU_SOURCE
#include "ferry.h"

#include <cpuid.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trap.h"

_Static_assert(sizeof(struct ferry_entry) == 64, "an entry is a cache line");
_Static_assert(offsetof(struct ferry_entry, result) == 56, "layout of an entry");
_Static_assert(offsetof(struct ferry_control, spin_limit) == 20, "layout of the control page");
_Static_assert(offsetof(struct ferry_control, permitted) == 64, "layout of the control page");
_Static_assert(offsetof(struct ferry_control, head) == 128, "layout of the control page");

#define PAGE_SIZE 4096
/* A kernel core that parked is left alone by this many single calls before one of them wakes it:
 * waking costs about as much as they do. */
#define PARKED_CALLS 4

/* What a thread has that has no syspage. Nothing is ever written there. */
static const struct ferry_control no_control = {.version = FERRY_VERSION};
static struct ferry_entry no_entries[FERRY_INDEXES];

__thread struct ferry_thread_ ferry_thread_ __attribute__((tls_model("initial-exec"))) = {
    .entries = no_entries,
    .control = &no_control,
};

/* The inline functions, for who calls them by name. */
extern inline int ferry_can_post_(const struct ferry_thread_ *, uint32_t, long);
extern inline struct ferry_entry *ferry_publish_(struct ferry_thread_ *, long, int, uint64_t,
                                                 uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
extern inline int ferry_prep6(long, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
extern inline void ferry_submit(void);
extern inline int ferry_post6(long, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
extern inline int ferry_post_linked6(long, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                     uint64_t);
extern inline int ferry_is_done_(int);
extern inline int ferry_ready(int);
extern inline long ferry_result(int);
extern inline long ferry_call6(long, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
extern inline int ferry_prep_read(int, void *, size_t);
extern inline int ferry_prep_write(int, const void *, size_t);
extern inline int ferry_prep_pread(int, void *, size_t, int64_t);
extern inline int ferry_prep_pwrite(int, const void *, size_t, int64_t);
extern inline int ferry_prep_readv(int, const struct iovec *, int);
extern inline int ferry_prep_writev(int, const struct iovec *, int);
extern inline int ferry_prep_openat(int, const char *, int, unsigned);
extern inline int ferry_prep_close(int);
extern inline int ferry_prep_fsync(int);
extern inline int ferry_prep_statx(int, const char *, int, unsigned, struct statx *);
extern inline int ferry_prep_nanosleep(const struct timespec *);

/* --- Binding a thread --- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
/* Set once: `key` can be used; what `may_pause` is in every thread. */
static int has_key;
static uint32_t pause_is_cheap;

static int is_posted(const struct ferry_thread_ *self)
{
    return self->control != &no_control;
}

/* Whether a call was posted at this index, or carried out, and its result not taken. */
static int is_outstanding(const struct ferry_thread_ *self, int index)
{
    return (unsigned)index < FERRY_INDEXES && (self->outstanding[index / 64] >> (index % 64) & 1);
}

static int is_under_way(const struct ferry_thread_ *self, int index)
{
    return is_outstanding(self, index) && !ferry_is_done_(index);
}

/* Under emulation by QEMU, `pause` leaves the code that runs and costs thousands of cycles. */
static uint32_t find_whether_pause_is_cheap(void)
{
    unsigned eax, ebx, ecx, edx, vendor[3];
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx >> 31 & 1))
        return 1;
    __cpuid(0x40000000, eax, vendor[0], vendor[1], vendor[2]);
    return memcmp(vendor, "TCGTCGTCGTCG", sizeof vendor) != 0;
}

/* Back to how a thread begins. */
static void forget(struct ferry_thread_ *self)
{
    if (self->entries != no_entries)
        munmap(self->entries, 2 * PAGE_SIZE);
    memset(self, 0, sizeof *self);
    self->entries = no_entries;
    self->control = &no_control;
}

/* The child of a fork has a copy of the pages and no binding. What was posted is the parent's. */
static void forget_in_child(void)
{
    forget(&ferry_thread_);
}

static void release(void *unused)
{
    (void)unused;
    ferry_unregister();
}

static void initialise(void)
{
    pause_is_cheap = find_whether_pause_is_cheap();
    has_key = pthread_key_create(&key, release) == 0;
    pthread_atfork(0, 0, forget_in_child);
}

int ferry_register(void)
{
    struct ferry_thread_ *self = &ferry_thread_;
    long control;
    pthread_once(&once, initialise);
    if (self->entries != no_entries && self->process != getpid())
        forget(self); /* A child that was made past the C library. */
    if (is_posted(self))
        return 0;
    if (self->entries == no_entries) {
        void *pages = mmap(0, 2 * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED)
            return -ENOMEM;
        /* Without a key, or memory for it, the kernel alone tidies up when the thread ends. */
        if (has_key)
            pthread_setspecific(key, pages);
        self->entries = pages;
        self->may_pause = pause_is_cheap;
    }
    self->process = getpid();
    control = ferry_trap3_(FERRY_SYS_register, FERRY_VERSION, (uint64_t)self->entries, 0);
    if (control < 0 && control >= -4095)
        return (int)control;
    self->position = self->limit = self->direct_position = 0;
    self->control = (const struct ferry_control *)control;
    self->limit = FERRY_ENTRIES;
    return 0;
}

int ferry_available(void)
{
    return ferry_register() == 0;
}

int ferry_unregister(void)
{
    struct ferry_thread_ *self = &ferry_thread_;
    if (self->entries == no_entries)
        return 0;
    if (is_posted(self))
        ferry_trap3_(FERRY_SYS_unregister, 0, 0, 0);
    forget(self);
    if (has_key)
        pthread_setspecific(key, 0);
    return 0;
}

/* The thread's state, bound if it can be; null without memory for one. */
static struct ferry_thread_ *bound(void)
{
    if (ferry_thread_.entries == no_entries)
        ferry_register();
    return ferry_thread_.entries == no_entries ? 0 : &ferry_thread_;
}

/* --- Calls that are not posted --- */

/* After a call that may have forked, the child's state is its own. A child that shares memory with
 * its parent (vfork) does not get here with a state to forget. */
static long carry_out(long number, const uint64_t arguments[6])
{
    long result = ferry_trap_(number, arguments);
    int forks = number == SYS_fork || (number == SYS_clone && !(arguments[0] & CLONE_VM));
    if (forks && result == 0)
        forget_in_child();
    return result;
}

/* Carries out a call now and keeps its result in an entry behind the syspage. */
static int post_directly(struct ferry_thread_ *self, long number, const uint64_t arguments[6])
{
    if (self->outstanding[1] == ~0ul)
        return -EAGAIN;
    long result = carry_out(number, arguments);
    if (self->entries == no_entries && !bound())
        return -EAGAIN; /* A child, without memory for a state of its own. */
    int index = FERRY_ENTRIES + __builtin_ctzl(~self->outstanding[1]);
    self->entries[index].result = result;
    self->entries[index].status = FERRY_DONE;
    self->outstanding[1] |= 1ul << (index - FERRY_ENTRIES);
    self->direct_position = self->position;
    return index;
}

static int may_be_posted(const struct ferry_thread_ *self, long number)
{
    return (unsigned long)number < 512 && (self->control->permitted[number / 64] >> (number % 64) & 1);
}

/* --- Posting --- */

/* Whether the kernel is within a lap of this position. */
static int is_in_reach(struct ferry_thread_ *self, uint32_t position)
{
    if (position == self->limit)
        self->limit = __atomic_load_n(&self->control->head, __ATOMIC_ACQUIRE) + FERRY_ENTRIES;
    return position != self->limit;
}

static int is_free(const struct ferry_thread_ *self, uint32_t position)
{
    return !is_outstanding(self, (int)(position % FERRY_ENTRIES));
}

/* Goes to the next position with a free entry; entries before it are passed. 0 if there is none. */
static int find_free(struct ferry_thread_ *self)
{
    uint32_t position = self->position;
    for (;; position++) {
        if (!is_in_reach(self, position))
            return 0;
        if (is_free(self, position))
            break;
    }
    for (; self->position != position; self->position++)
        self->entries[self->position % FERRY_ENTRIES].pass =
            (uint8_t)(1 + self->position / FERRY_ENTRIES % 2);
    return 1;
}

static int publish(struct ferry_thread_ *self, long number, int flags, const uint64_t *a)
{
    return (int)(ferry_publish_(self, number, flags, a[0], a[1], a[2], a[3], a[4], a[5]) -
                 self->entries);
}

int ferry_prep_slow_(long number, const uint64_t arguments[6])
{
    struct ferry_thread_ *self = bound();
    if (!self)
        return -EAGAIN;
    if (!may_be_posted(self, number))
        return post_directly(self, number, arguments);
    return find_free(self) ? publish(self, number, 0, arguments) : -EAGAIN;
}

int ferry_prep_linked6(long number, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
                       uint64_t a5)
{
    const uint64_t arguments[6] = {a0, a1, a2, a3, a4, a5};
    struct ferry_thread_ *self = bound();
    int before, flags;
    if (!self)
        return -EAGAIN;
    before = (int)((self->position - 1) % FERRY_ENTRIES);
    /* The call before was posted, and is not over yet? */
    flags = self->position != self->direct_position && is_under_way(self, before)
                ? FERRY_FLAG_LINK
                : 0;
    if (!may_be_posted(self, number)) {
        while (flags && ferry_wait_one(before, 0) == -EINTR)
            ;
        return post_directly(self, number, arguments);
    }
    /* A link is with the neighbour: no entry may be passed between the two. */
    if (flags ? !is_in_reach(self, self->position) || !is_free(self, self->position)
              : !find_free(self))
        return -EAGAIN;
    return publish(self, number, flags, arguments);
}

void ferry_doorbell_(void)
{
    ferry_trap3_(FERRY_SYS_wait, FERRY_WAIT_SUBMIT, 0, 0);
}

long ferry_call_slow_(long number, const uint64_t arguments[6])
{
    struct ferry_thread_ *self = bound();
    int index;
    if (!self || !may_be_posted(self, number) ||
        !(self->control->features & FERRY_FEATURE_SCANNED))
        return carry_out(number, arguments);
    if (__atomic_load_n(&self->control->parked, __ATOMIC_RELAXED) &&
        ++self->parked_calls % PARKED_CALLS != 0)
        return carry_out(number, arguments);
    if (!find_free(self))
        return carry_out(number, arguments);
    index = publish(self, number, 0, arguments);
    /* The wait rings the doorbell itself when the kernel is parked. */
    return ferry_result(index);
}

/* --- Waiting --- */

static void relax(const struct ferry_thread_ *self)
{
    if (self->may_pause)
        __builtin_ia32_pause();
}

/* Looks at an entry for a while. Whether it is submitted still. */
static int spin_on(const struct ferry_thread_ *self, int index)
{
    uint32_t turns;
    for (turns = self->control->spin_limit; turns > 0; turns--) {
        if (ferry_is_done_(index))
            return 0;
        if (__atomic_load_n(&self->control->parked, __ATOMIC_RELAXED))
            break;
        relax(self);
    }
    return !ferry_is_done_(index);
}

static int wait_in_kernel(int mode, int index, const struct timespec *timeout)
{
    return (int)ferry_trap3_(FERRY_SYS_wait, (uint64_t)mode, (uint64_t)index, (uint64_t)timeout);
}

int ferry_wait_one(int index, const struct timespec *timeout)
{
    struct ferry_thread_ *self = &ferry_thread_;
    if (!is_outstanding(self, index))
        return -EINVAL;
    if (!spin_on(self, index))
        return 0;
    return wait_in_kernel(FERRY_WAIT_ONE, index, timeout);
}

int ferry_wait_all(const struct timespec *timeout)
{
    struct ferry_thread_ *self = &ferry_thread_;
    uint32_t step;
    /* From the last to the first: when the last is there, the others mostly are too, and no line is
     * read that the kernel is about to write. */
    for (step = 1; step <= FERRY_ENTRIES; step++) {
        int index = (int)((self->position - step) % FERRY_ENTRIES);
        if (is_outstanding(self, index) && spin_on(self, index))
            return wait_in_kernel(FERRY_WAIT_ALL, 0, timeout);
    }
    return 0;
}

/* A call that is done, beginning behind the one that was found last; -1 if there is none. */
static int find_done(struct ferry_thread_ *self)
{
    uint32_t step;
    for (step = 0; step < FERRY_INDEXES; step++) {
        int index = (int)((self->next_any + step) % FERRY_INDEXES);
        if (ferry_is_done_(index)) {
            self->next_any = (uint32_t)index + 1;
            return index;
        }
    }
    return -1;
}

int ferry_wait_any(const struct timespec *timeout)
{
    struct ferry_thread_ *self = &ferry_thread_;
    uint32_t turns;
    int index;
    for (turns = 0;; turns += FERRY_INDEXES) {
        index = find_done(self);
        if (index >= 0)
            return index;
        if (!self->outstanding[0])
            return -EAGAIN;
        if (turns >= self->control->spin_limit ||
            __atomic_load_n(&self->control->parked, __ATOMIC_RELAXED))
            break;
        relax(self);
    }
    /* The kernel would find those again whose results were taken. */
    for (index = 0; index < FERRY_ENTRIES; index++)
        if (!is_outstanding(self, index))
            __atomic_store_n(&self->entries[index].status, FERRY_FREE, __ATOMIC_RELAXED);
    return wait_in_kernel(FERRY_WAIT_ANY, 0, timeout);
}

/* Lets the kernel run for a moment, where nobody but this core could. */
static int yield_for(int index)
{
    static const struct timespec moment = {0, 20000};
    return wait_in_kernel(FERRY_WAIT_ONE, index, &moment);
}

/* With one core, who looks again and again would keep the kernel from the call. */
int ferry_ready_slow_(int index)
{
    if (is_under_way(&ferry_thread_, index))
        yield_for(index);
    return ferry_is_done_(index);
}

long ferry_result_slow_(int index)
{
    /* The call goes on when a signal ends the wait. */
    int waited;
    do {
        waited = ferry_wait_one(index, 0);
    } while (waited == -EINTR);
    return waited < 0 ? waited : ferry_result(index);
}

/* Whether the kernel has taken the call in an entry, or gone past it since. */
static int is_taken(const struct ferry_thread_ *self, int index)
{
    uint32_t last = self->position - 1;
    uint32_t position = last - (last - (uint32_t)index) % FERRY_ENTRIES;
    return (int32_t)(__atomic_load_n(&self->control->head, __ATOMIC_ACQUIRE) - position) > 0;
}

int ferry_cancel(int index)
{
    const struct ferry_thread_ *self = &ferry_thread_;
    if ((unsigned)index >= FERRY_INDEXES)
        return -EINVAL;
    while (is_under_way(self, index)) {
        /* In this order: what is taken and cannot be cancelled waits for another call. */
        int was_taken = is_taken(self, index);
        int answer = (int)ferry_trap3_(FERRY_SYS_cancel, (uint64_t)index, 0, 0);
        if (answer != -ENOENT || was_taken)
            return answer;
        if (yield_for(index) == -ENOENT)
            break; /* This thread has no syspage: a child made past the C library. */
    }
    return -ENOENT;
}

long ferry_errno(long result)
{
    if (result >= 0 || result < -4095)
        return result;
    errno = (int)-result;
    return -1;
}
