/* What all parts of the fuzzer use: shared memory, reports, the generator, and a syspage of one's own
 * by the bare contract (docs/abi/syspage.md), without libferry, which would not make the mistakes wanted. */
#ifndef FERRY_TESTS_FUZZ_COMMON_H
#define FERRY_TESTS_FUZZ_COMMON_H

#include <errno.h>
#include <fcntl.h>
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

enum { PAGE = 4096, ENTRIES = 64 };
enum { CALL_REGISTER = 500, CALL_UNREGISTER = 501, CALL_WAIT = 502, CALL_CANCEL = 503 };
enum { STATUS_FREE = 0, STATUS_SUBMITTED = 1, STATUS_DONE = 2, FLAG_LINK = 1, MUST_TRAP = 600 };

struct entry {
    volatile uint32_t status;
    volatile uint16_t number;
    volatile uint8_t flags, pass;
    volatile uint64_t arguments[6];
    volatile int64_t result;
};

struct control {
    volatile uint32_t version, features, parked, entry_count, syspage_limit, spin_limit;
    volatile uint64_t reserved[5], permitted[8];
    volatile uint32_t head;
};

/* A syspage as its thread sees it. */
struct syspage {
    struct entry *entries;
    struct control *control;
    uint32_t position;
};

/* Lives in memory that all processes share; each writes its own. */
static struct shared {
    volatile uint32_t stop, failed;
    /* All calls of the table instead of posted ones alone. */
    uint32_t calls_all;
    /* The longest that the witness took for one round, and the victims of that moment. */
    volatile int64_t longest_ns;
    volatile uint64_t longest_seeds[8];
    struct progress {
        volatile uint64_t steps, seed;
        /* Of a worker: itself, and its child once that has become an ordinary user. */
        volatile pid_t process, dropped;
        char padding[104];
    } witness, workers[8];
} *shared;

static __thread uint64_t random_state = 1;

static uint64_t mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

static uint64_t random_number(void)
{
    return mix(random_state++);
}

static unsigned random_below(unsigned limit)
{
    return (unsigned)(random_number() % limit);
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

static void note(const char *what, long value)
{
    char text[300];
    snprintf(text, sizeof text, "fuzz: %s %ld (%#lx)\n", what, value, (unsigned long)value);
    say(text);
}

__attribute__((noreturn)) static void fail(const char *what, long value)
{
    note(what, value);
    shared->failed = 1;
    _exit(1);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static pid_t start_child(void)
{
    pid_t child;
    /* A full system may refuse for a moment. */
    while ((child = fork()) == -1) {
        struct timespec pause = {0, 1000000};
        if (errno != EAGAIN && errno != ENOMEM)
            fail("fork", errno);
        nanosleep(&pause, NULL);
    }
    return child;
}

static int wait_for(pid_t child)
{
    int status = -1;
    while (waitpid(child, &status, 0) == -1 && errno == EINTR)
        ;
    return status;
}

static size_t slurp(const char *path, char *text, size_t size)
{
    size_t length = 0;
    ssize_t got;
    int fd = open(path, O_RDONLY);
    if (fd == -1)
        fail(path, errno);
    while (length < size - 1 && (got = read(fd, text + length, size - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = 0;
    close(fd);
    return length;
}

/* The number behind a name at the start of a line. */
static long number_after(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, name, length) == 0 && line[length] == ' ')
            return atol(line + length + 1);
    fail(name, -1);
}

/* A bare call: a result from -4095 to -1 is an error. */
static long call(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static long call3(long number, long a, long b, long c)
{
    return call(number, a, b, c, 0, 0, 0);
}

static void *map_page(int protection)
{
    return mmap(NULL, PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Gives the thread a syspage: 0 or a negative error number. */
static long open_syspage(struct syspage *page)
{
    page->entries = map_page(PROT_READ | PROT_WRITE);
    page->position = 0;
    if (page->entries == MAP_FAILED)
        return -ENOMEM;
    long result = call3(CALL_REGISTER, 1, (long)page->entries, 0);
    if (result < 0 && result > -4096) {
        munmap(page->entries, PAGE);
        return result;
    }
    page->control = (struct control *)result;
    return 0;
}

static void close_syspage(struct syspage *page)
{
    call3(CALL_UNREGISTER, 0, 0, 0);
    munmap(page->entries, PAGE);
}

static uint8_t pass_mark(uint32_t position)
{
    return (uint8_t)(1 + position / ENTRIES % 2);
}

/* Posts as the contract says: the entry's index, or -1 when no entry is free. */
static int post(struct syspage *page, long number, unsigned flags, const long *arguments)
{
    uint32_t position = page->position;
    for (;; position++) {
        if (position - page->control->head >= ENTRIES)
            return -1;
        if (__atomic_load_n(&page->entries[position % ENTRIES].status, __ATOMIC_ACQUIRE) == STATUS_FREE)
            break;
    }
    for (; page->position != position; page->position++)
        page->entries[page->position % ENTRIES].pass = pass_mark(page->position);
    struct entry *entry = &page->entries[position % ENTRIES];
    entry->number = (uint16_t)number;
    entry->flags = (uint8_t)flags;
    entry->pass = 0;
    for (int i = 0; i < 6; i++)
        entry->arguments[i] = (uint64_t)arguments[i];
    __atomic_store_n(&entry->status, STATUS_SUBMITTED, __ATOMIC_SEQ_CST);
    page->position = position + 1;
    return (int)(position % ENTRIES);
}

#endif
