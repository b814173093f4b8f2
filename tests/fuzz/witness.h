/* The witness: an honest user of posted and trapped calls that believes no answer. */
#ifndef FERRY_TESTS_FUZZ_WITNESS_H
#define FERRY_TESTS_FUZZ_WITNESS_H

#include "common.h"

enum { ANSWER_SECONDS = 20, DATA_SIZE = 60000, LOOKS = 2000 };

static struct {
    struct syspage page;
    int file, ends[2];
    pid_t self, parent, thread;
    unsigned char data[DATA_SIZE];
} witness;

#define WITNESS_CHECK_EQ(left, right)                                                                        \
    do {                                                                                                     \
        long left_ = (long)(left), right_ = (long)(right);                                                   \
        if (left_ != right_) {                                                                               \
            note("witness: " #left " is to be", right_);                                                     \
            fail("witness: " #left " is", left_);                                                            \
        }                                                                                                    \
    } while (0)

/* Posts; there is room, because every answer is taken before the next batch. */
static int witness_post(long number, unsigned flags, long a, long b, long c, long d)
{
    long arguments[6] = {a, b, c, d, 0, 0};
    int index = post(&witness.page, number, flags, arguments);
    if (index < 0)
        fail("witness: no entry is free for call", number);
    return index;
}

static long answer_of(int index)
{
    struct entry *entry = &witness.page.entries[index];
    struct timespec patience = {ANSWER_SECONDS, 0};
    for (int looks = 0; __atomic_load_n(&entry->status, __ATOMIC_ACQUIRE) != STATUS_DONE;) {
        if (looks++ < LOOKS && !witness.page.control->parked) {
            __builtin_ia32_pause();
            continue;
        }
        long result = call3(CALL_WAIT, 3, index, (long)&patience);
        if (result < 0)
            fail("witness: waiting for an answer ends with", result);
        WITNESS_CHECK_EQ(entry->status, STATUS_DONE);
    }
    long result = entry->result;
    entry->status = STATUS_FREE;
    return result;
}

static long posted(long number, long a, long b, long c, long d)
{
    return answer_of(witness_post(number, 0, a, b, c, d));
}

static unsigned char data_at(size_t place)
{
    return (unsigned char)(place * 2654435761u >> 11);
}

static void check_identity(void)
{
    WITNESS_CHECK_EQ(posted(SYS_getpid, 0, 0, 0, 0), witness.self);
    WITNESS_CHECK_EQ(posted(SYS_getppid, 0, 0, 0, 0), witness.parent);
    WITNESS_CHECK_EQ(posted(SYS_gettid, 0, 0, 0, 0), witness.thread);
    WITNESS_CHECK_EQ(posted(SYS_getuid, 0, 0, 0, 0), 0);
    WITNESS_CHECK_EQ(call3(SYS_getpid, 0, 0, 0), witness.self);
    WITNESS_CHECK_EQ(call3(SYS_getppid, 0, 0, 0), witness.parent);
}

static void check_refusals(void)
{
    WITNESS_CHECK_EQ(posted(SYS_fork, 0, 0, 0, 0), -MUST_TRAP);
    WITNESS_CHECK_EQ(posted(CALL_WAIT, 2, 0, 0, 0), -MUST_TRAP);
    WITNESS_CHECK_EQ(posted(511, 0, 0, 0, 0), -ENOSYS);
    WITNESS_CHECK_EQ(posted(SYS_close, 12345, 0, 0, 0), -EBADF);
    WITNESS_CHECK_EQ(posted(SYS_read, witness.file, 8, 10, 0), -EFAULT);
    WITNESS_CHECK_EQ(answer_of(witness_post(SYS_umask, 0x80, 0, 0, 0, 0)), -EINVAL);
    WITNESS_CHECK_EQ(call3(CALL_REGISTER, 1, (long)witness.page.entries, 0), -EBUSY);
}

static void check_file(int is_trapped)
{
    unsigned char bytes[64];
    size_t place = random_below(DATA_SIZE - 64), size = 1 + random_below(64);
    memset(bytes, 0, sizeof bytes);
    long got = is_trapped ? call(SYS_pread64, witness.file, (long)bytes, (long)size, (long)place, 0, 0)
                          : posted(SYS_pread64, witness.file, (long)bytes, (long)size, (long)place);
    WITNESS_CHECK_EQ(got, size);
    for (size_t i = 0; i < size; i++)
        WITNESS_CHECK_EQ(bytes[i], data_at(place + i));
    WITNESS_CHECK_EQ(posted(SYS_lseek, witness.file, (long)place, SEEK_SET, 0), place);
    WITNESS_CHECK_EQ(call3(SYS_lseek, witness.file, 0, SEEK_CUR), place);
}

/* A full syspage of short calls, then all answers, in a random order. */
static void check_batch(void)
{
    int indexes[ENTRIES], places[ENTRIES];
    unsigned char bytes[ENTRIES];
    int size = 1 + (int)random_below(ENTRIES);
    for (int i = 0; i < size; i++) {
        places[i] = (int)random_below(DATA_SIZE);
        indexes[i] = i % 3 ? witness_post(SYS_pread64, 0, witness.file, (long)&bytes[i], 1, places[i])
                           : witness_post(SYS_getpid, i % 2 ? FLAG_LINK : 0, 0, 0, 0, 0);
    }
    unsigned step = size % 7 ? 7 : 1;
    for (unsigned i = 0, at = 0; i < (unsigned)size; i++, at = (at + step) % (unsigned)size) {
        long answer = answer_of(indexes[at]);
        WITNESS_CHECK_EQ(answer, at % 3 ? 1 : witness.self);
        if (at % 3)
            WITNESS_CHECK_EQ(bytes[at], data_at((size_t)places[at]));
    }
}

/* A read that has to wait, and a write that ends its wait. */
static void check_wait(void)
{
    char in[4] = {0}, out[4] = "abc";
    int reads = witness_post(SYS_read, 0, witness.ends[0], (long)in, 4, 0);
    check_identity();
    WITNESS_CHECK_EQ(witness.page.entries[reads].status, STATUS_SUBMITTED);
    if (random_below(2))
        WITNESS_CHECK_EQ(call3(SYS_write, witness.ends[1], (long)out, 4), 4);
    else
        WITNESS_CHECK_EQ(posted(SYS_write, witness.ends[1], (long)out, 4, 0), 4);
    WITNESS_CHECK_EQ(answer_of(reads), 4);
    WITNESS_CHECK_EQ(memcmp(in, out, 4), 0);
}

static void check_cancel(void)
{
    char in[4];
    int reads = witness_post(SYS_read, 0, witness.ends[0], (long)in, 4, 0);
    call3(CALL_WAIT, 0, 0, 0);
    /* It may not have begun. */
    int64_t start = now_ns();
    long result;
    while ((result = call3(CALL_CANCEL, reads, 0, 0)) == -ENOENT && now_ns() - start < ANSWER_SECONDS * 1000000000LL)
        ;
    WITNESS_CHECK_EQ(result, 0);
    WITNESS_CHECK_EQ(answer_of(reads), -EINTR);
}

static void check_links(void)
{
    char in[8] = {0};
    int first = witness_post(SYS_read, 0, witness.ends[0], (long)in, 2, 0);
    int second = witness_post(SYS_read, FLAG_LINK, witness.ends[0], (long)in + 2, 2, 0);
    int third = witness_post(SYS_getppid, FLAG_LINK, 0, 0, 0, 0);
    WITNESS_CHECK_EQ(posted(SYS_write, witness.ends[1], (long)"1234", 4, 0), 4);
    WITNESS_CHECK_EQ(answer_of(third), witness.parent);
    WITNESS_CHECK_EQ(witness.page.entries[first].status, STATUS_DONE);
    WITNESS_CHECK_EQ(witness.page.entries[second].status, STATUS_DONE);
    WITNESS_CHECK_EQ(answer_of(first), 2);
    WITNESS_CHECK_EQ(answer_of(second), 2);
    WITNESS_CHECK_EQ(memcmp(in, "1234", 4), 0);
}

static void check_memory(void)
{
    long at = posted(SYS_mmap, 0, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    if (at < 0 && at > -4096)
        fail("witness: a posted mmap", at);
    volatile uint64_t *words = (volatile uint64_t *)at;
    for (int i = 0; i < 3 * PAGE / 8; i += 8) {
        WITNESS_CHECK_EQ(words[i], 0);
        words[i] = (uint64_t)at + (uint64_t)i;
    }
    check_identity();
    for (int i = 0; i < 3 * PAGE / 8; i += 8)
        WITNESS_CHECK_EQ(words[i], at + i);
    WITNESS_CHECK_EQ(posted(SYS_munmap, at, 3 * PAGE, 0, 0), 0);
}

/* A child has a copy of the page and no binding; the parent's calls go on meanwhile. */
static void check_fork(void)
{
    int reads = witness_post(SYS_read, 0, witness.ends[0], (long)&witness.data[0], 1, 0);
    pid_t child = start_child();
    if (child == 0)
        _exit(call3(CALL_WAIT, 2, 0, 0) == -ENOENT && call3(CALL_UNREGISTER, 0, 0, 0) == -ENOENT ? 0 : 1);
    check_identity();
    WITNESS_CHECK_EQ(wait_for(child), 0);
    WITNESS_CHECK_EQ(call3(SYS_write, witness.ends[1], (long)"", 1), 1);
    WITNESS_CHECK_EQ(answer_of(reads), 1);
}

static void check_again(void)
{
    char in[4];
    /* One is under way while the binding goes: it is cancelled. */
    struct entry *entry = &witness.page.entries[witness_post(SYS_read, 0, witness.ends[0], (long)in, 4, 0)];
    WITNESS_CHECK_EQ(call3(CALL_UNREGISTER, 0, 0, 0), 0);
    WITNESS_CHECK_EQ(entry->status, STATUS_DONE);
    WITNESS_CHECK_EQ(entry->result, -EINTR);
    WITNESS_CHECK_EQ(call3(CALL_UNREGISTER, 0, 0, 0), -ENOENT);
    munmap(witness.page.entries, PAGE);
    WITNESS_CHECK_EQ(open_syspage(&witness.page), 0);
}

static void make_estate(void);
static void check_estate(void);
static void remove_estate(void);

__attribute__((noreturn)) static void be_witness(uint64_t seed)
{
    const int has_estate = shared->calls_all != 0;
    random_state = mix(seed ^ 0x3333);
    witness.self = (pid_t)syscall(SYS_getpid);
    witness.parent = (pid_t)syscall(SYS_getppid);
    witness.thread = (pid_t)syscall(SYS_gettid);
    witness.file = open("/tmp/fuzz-witness", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (size_t i = 0; i < DATA_SIZE; i++)
        witness.data[i] = data_at(i);
    WITNESS_CHECK_EQ(write(witness.file, witness.data, DATA_SIZE), DATA_SIZE);
    WITNESS_CHECK_EQ(unlink("/tmp/fuzz-witness"), 0);
    WITNESS_CHECK_EQ(pipe(witness.ends), 0);
    WITNESS_CHECK_EQ(open_syspage(&witness.page), 0);
    if (has_estate)
        make_estate();
    while (!shared->stop) {
        int64_t start = now_ns();
        check_identity();
        check_file(0);
        check_file(1);
        check_batch();
        switch (random_below(12)) {
        case 0: check_refusals(); break;
        case 1: check_wait(); break;
        case 2: check_cancel(); break;
        case 3: check_links(); break;
        case 4: check_memory(); break;
        case 5: check_fork(); break;
        case 6: check_again(); break;
        default: break;
        }
        if (has_estate && shared->witness.steps % 16 == 0)
            check_estate();
        int64_t span_ns = now_ns() - start;
        if (span_ns > shared->longest_ns) {
            shared->longest_ns = span_ns;
            for (int i = 0; i < 8; i++)
                shared->longest_seeds[i] = shared->workers[i].seed;
        }
        shared->witness.steps++;
    }
    if (has_estate)
        remove_estate();
    _exit(0);
}

#endif
