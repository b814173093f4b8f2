/* Posted system calls: the C interface of Ferry. The concepts are in ferry(7), each function has a
 * page in section 3, and docs/abi/syspage.md is the contract with the kernel.
 *
 * A thread posts calls, goes on, and takes their results later. Results are those of the bare system
 * call: a negative error number, not -1 and errno; ferry_errno() turns one into the other. Indexes
 * belong to the thread that posted. Not for signal handlers.
 *
 * On a kernel without posted calls every function does the same; the calls are carried out when
 * they are posted. The short functions are inline, and the library exports them too.
 */
#ifndef FERRY_H
#define FERRY_H

#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

#ifndef __x86_64__
#error "libferry: only x86-64 yet"
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct iovec;
struct statx;

/* Version of the layouts below, which the kernel checks. */
#define FERRY_VERSION 1
/* Calls that one thread can have posted and not taken. */
#define FERRY_ENTRIES 64
/* Calls that libferry carried out itself have indexes from FERRY_ENTRIES up to this. */
#define FERRY_INDEXES 128

/* Values of an entry's status. */
#define FERRY_FREE 0
#define FERRY_SUBMITTED 1
#define FERRY_DONE 2

/* Flag of an entry: it begins when the one before it is done. */
#define FERRY_FLAG_LINK 1
/* Feature: a core that is not the caller's looks for posted calls. */
#define FERRY_FEATURE_SCANNED 1
/* Error, negated, in an entry that the kernel does not carry out for the caller. */
#define FERRY_EMUSTTRAP 600

/* The system calls that Ferry adds, and the modes of the third. */
#define FERRY_SYS_register 500
#define FERRY_SYS_unregister 501
#define FERRY_SYS_wait 502
#define FERRY_SYS_cancel 503
#define FERRY_WAIT_SUBMIT 0
#define FERRY_WAIT_ANY 1
#define FERRY_WAIT_ALL 2
#define FERRY_WAIT_ONE 3

/* One posted call: a cache line of the syspage. */
struct ferry_entry {
    uint32_t status;
    uint16_t number;
    uint8_t flags;
    uint8_t pass;
    uint64_t arguments[6];
    int64_t result;
} __attribute__((aligned(64)));

/* What the kernel tells: read-only. */
struct ferry_control {
    uint32_t version;
    uint32_t features;
    uint32_t parked;
    uint32_t entry_count;
    uint32_t syspage_limit;
    uint32_t spin_limit;
    uint64_t entries;
    uint64_t reserved[4];
    uint64_t permitted[8];
    uint32_t head;
};

/* What libferry knows of a thread. Only for the inline functions. */
struct ferry_thread_ {
    /* FERRY_INDEXES of them: the syspage, and behind it a page of calls that were not posted. */
    struct ferry_entry *entries;
    /* The kernel's, or one that permits nothing. */
    const struct ferry_control *control;
    /* Entries posted and passed. */
    uint32_t position;
    /* `position` may grow up to this before the kernel's head has to be looked at again. */
    uint32_t limit;
    /* Calls whose results were not taken, one bit per index. An entry that has none may be used again
     * whatever its status says: not to write "free", nor to look for it, saves transfers of its line. */
    uint64_t outstanding[2];
    /* The rest is cold: see src/ferry.c. */
    uint32_t direct_position;
    uint32_t next_any;
    uint32_t parked_calls;
    int32_t process;
    /* Whether the processor's pause instruction is cheap. */
    uint32_t may_pause;
};

extern __thread struct ferry_thread_ ferry_thread_ __attribute__((tls_model("initial-exec")));

/* Whether this thread's calls are posted. Registers the thread, if need be. */
int ferry_available(void);
/* Gives this thread its syspage now instead of with its first call. 0, or why calls are not posted. */
int ferry_register(void);
/* Gives it back: cancels what can be cancelled, waits for the rest, forgets results. */
int ferry_unregister(void);

/* ferry_post(number, up to six arguments): posts a call. Its index, or -EAGAIN: no entry is free. */
#define ferry_post(...) FERRY_SIX_(ferry_post6, __VA_ARGS__)
/* The same; it begins when the call that this thread posted before it is done. */
#define ferry_post_linked(...) FERRY_SIX_(ferry_post_linked6, __VA_ARGS__)
/* The same, without making sure that the kernel looks: ferry_submit() or a wait does. */
#define ferry_prep(...) FERRY_SIX_(ferry_prep6, __VA_ARGS__)
#define ferry_prep_linked(...) FERRY_SIX_(ferry_prep_linked6, __VA_ARGS__)
/* Carries out a call by the fastest way that there is now. Its result. */
#define ferry_call(...) FERRY_SIX_(ferry_call6, __VA_ARGS__)

/* Waits end with 0 (ferry_wait_any: an index), -ETIMEDOUT, or -EINTR when a signal came. A timeout of
 * NULL is for ever. ferry_wait_any: -EAGAIN when nothing is posted. ferry_wait_one: -EINVAL when
 * nothing is posted there. */
int ferry_wait_all(const struct timespec *timeout);
int ferry_wait_any(const struct timespec *timeout);
int ferry_wait_one(int index, const struct timespec *timeout);
/* Ends the wait of a call: it answers -EINTR. -ENOENT: it is not under way. */
int ferry_cancel(int index);
/* A result as a C library would give it: -1 and errno for errors. */
long ferry_errno(long result);

/* What the inline functions leave to the library. */
int ferry_prep_slow_(long number, const uint64_t arguments[6]);
int ferry_prep_linked6(long number, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
                       uint64_t a5);
long ferry_call_slow_(long number, const uint64_t arguments[6]);
int ferry_ready_slow_(int index);
long ferry_result_slow_(int index);
void ferry_doorbell_(void);

#define FERRY_SIX_(function, ...) FERRY_FIRST_SIX_(function, __VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define FERRY_FIRST_SIX_(function, number, a0, a1, a2, a3, a4, a5, ...)                            \
    function((long)(number), (uint64_t)(a0), (uint64_t)(a1), (uint64_t)(a2), (uint64_t)(a3),       \
             (uint64_t)(a4), (uint64_t)(a5))

/* Whether the next entry, at this index, can take this call at once. */
inline int ferry_can_post_(const struct ferry_thread_ *self, uint32_t index, long number)
{
    return self->position != self->limit && (unsigned long)number < 512 &&
           (self->control->permitted[number / 64] >> (number % 64) & 1) != 0 &&
           !(self->outstanding[0] >> index & 1);
}

/* Fills the next entry and gives it to the kernel. */
inline struct ferry_entry *ferry_publish_(struct ferry_thread_ *self, long number, int flags,
                                          uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
                                          uint64_t a4, uint64_t a5)
{
    uint32_t index = self->position % FERRY_ENTRIES;
    struct ferry_entry *entry = &self->entries[index];
    entry->number = (uint16_t)number;
    entry->flags = (uint8_t)flags;
    entry->pass = 0;
    entry->arguments[0] = a0;
    entry->arguments[1] = a1;
    entry->arguments[2] = a2;
    entry->arguments[3] = a3;
    entry->arguments[4] = a4;
    entry->arguments[5] = a5;
    __atomic_store_n(&entry->status, FERRY_SUBMITTED, __ATOMIC_RELEASE);
    self->outstanding[0] |= 1ul << index;
    self->position++;
    return entry;
}

inline int ferry_prep6(long number, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
                       uint64_t a5)
{
    struct ferry_thread_ *self = &ferry_thread_;
    uint32_t index = self->position % FERRY_ENTRIES;
    if (__builtin_expect(!ferry_can_post_(self, index, number), 0)) {
        uint64_t arguments[6] = {a0, a1, a2, a3, a4, a5};
        return ferry_prep_slow_(number, arguments);
    }
    ferry_publish_(self, number, 0, a0, a1, a2, a3, a4, a5);
    return (int)index;
}

/* Makes sure that the kernel looks at what was prepared. */
inline void ferry_submit(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__builtin_expect(
            __atomic_load_n(&ferry_thread_.control->parked, __ATOMIC_RELAXED) != 0, 0))
        ferry_doorbell_();
}

inline int ferry_post6(long number, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
                       uint64_t a5)
{
    int index = ferry_prep6(number, a0, a1, a2, a3, a4, a5);
    if (index >= 0)
        ferry_submit();
    return index;
}

inline int ferry_post_linked6(long number, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
                              uint64_t a4, uint64_t a5)
{
    int index = ferry_prep_linked6(number, a0, a1, a2, a3, a4, a5);
    if (index >= 0)
        ferry_submit();
    return index;
}

inline int ferry_is_done_(int index)
{
    return (unsigned)index < FERRY_INDEXES &&
           (ferry_thread_.outstanding[index / 64] >> (index % 64) & 1) != 0 &&
           __atomic_load_n(&ferry_thread_.entries[index].status, __ATOMIC_ACQUIRE) == FERRY_DONE;
}

/* Whether the result of a call is there. */
inline int ferry_ready(int index)
{
    return ferry_is_done_(index) ||
           (__builtin_expect(!(ferry_thread_.control->features & FERRY_FEATURE_SCANNED), 0) &&
            ferry_ready_slow_(index));
}

/* Takes the result of a call, after waiting for it if need be; the index is free then. */
inline long ferry_result(int index)
{
    if (__builtin_expect(!ferry_is_done_(index), 0))
        return ferry_result_slow_(index);
    ferry_thread_.outstanding[index / 64] &= ~(1ul << (index % 64));
    return ferry_thread_.entries[index].result;
}

inline long ferry_call6(long number, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
                        uint64_t a4, uint64_t a5)
{
    struct ferry_thread_ *self = &ferry_thread_;
    const struct ferry_control *control = self->control;
    uint32_t index = self->position % FERRY_ENTRIES, turns;
    struct ferry_entry *entry;
    if (__builtin_expect(!ferry_can_post_(self, index, number) ||
                             !(control->features & FERRY_FEATURE_SCANNED) ||
                             __atomic_load_n(&control->parked, __ATOMIC_RELAXED) != 0,
                         0)) {
        uint64_t arguments[6] = {a0, a1, a2, a3, a4, a5};
        return ferry_call_slow_(number, arguments);
    }
    entry = ferry_publish_(self, number, 0, a0, a1, a2, a3, a4, a5);
    /* No fence: the store is seen soon, and each turn looks again whether the kernel is parked. */
    for (turns = control->spin_limit; turns > 0; turns--) {
        if (__atomic_load_n(&entry->status, __ATOMIC_ACQUIRE) == FERRY_DONE ||
            __atomic_load_n(&control->parked, __ATOMIC_RELAXED) != 0)
            break;
        if (self->may_pause)
            __builtin_ia32_pause();
    }
    return ferry_result((int)index);
}

/* ferry_prep() with the types of some calls. */

inline int ferry_prep_read(int fd, void *buffer, size_t size)
{
    return ferry_prep(SYS_read, fd, buffer, size);
}

inline int ferry_prep_write(int fd, const void *buffer, size_t size)
{
    return ferry_prep(SYS_write, fd, buffer, size);
}

inline int ferry_prep_pread(int fd, void *buffer, size_t size, int64_t offset)
{
    return ferry_prep(SYS_pread64, fd, buffer, size, offset);
}

inline int ferry_prep_pwrite(int fd, const void *buffer, size_t size, int64_t offset)
{
    return ferry_prep(SYS_pwrite64, fd, buffer, size, offset);
}

inline int ferry_prep_readv(int fd, const struct iovec *parts, int count)
{
    return ferry_prep(SYS_readv, fd, parts, count);
}

inline int ferry_prep_writev(int fd, const struct iovec *parts, int count)
{
    return ferry_prep(SYS_writev, fd, parts, count);
}

inline int ferry_prep_openat(int directory, const char *path, int flags, unsigned mode)
{
    return ferry_prep(SYS_openat, directory, path, flags, mode);
}

inline int ferry_prep_close(int fd)
{
    return ferry_prep(SYS_close, fd);
}

inline int ferry_prep_fsync(int fd)
{
    return ferry_prep(SYS_fsync, fd);
}

inline int ferry_prep_statx(int directory, const char *path, int flags, unsigned mask,
                            struct statx *result)
{
    return ferry_prep(SYS_statx, directory, path, flags, mask, result);
}

inline int ferry_prep_nanosleep(const struct timespec *duration)
{
    return ferry_prep(SYS_nanosleep, duration, 0);
}

#ifdef __cplusplus
}
#endif

#endif
