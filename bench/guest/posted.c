/*
 * The guest program of the suite `posted`: calls by trap and calls that are posted, one at a time and
 * in batches; `case.h` says how figures are made. The same static binary runs on Ferry and on Linux.
 *
 *     posted trap      the calls by trap, with the C library's syscall(): nothing here is made for Ferry
 *     posted post      the same calls posted, batches of them, and two processes that post at once
 *     posted quiet     ten seconds of posted calls, and what the application core counted meanwhile
 *     posted uring     NOP requests of io_uring in batches of 64, plain and polled
 *
 * Without an argument: `trap`, then `uring`, then a bare ping-pong of a line between two processors,
 * below which no posted call can come. Where the kernel has none of what is asked for, there are
 * no lines of it.
 */
#define _GNU_SOURCE
#include <ferry.h>

#include "batch.h"
#include "case.h"
#include "together.h"
#include "uring.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>

enum { DEPTH = FERRY_ENTRIES, SHARE_SECONDS = 2, QUIET_SECONDS = 10 };

static int zero, null, file;
static char byte;
static struct stat status;
static struct timespec moment;

#define EXPECT(call, expected)                                                                     \
    do {                                                                                           \
        if ((call) != (expected))                                                                  \
            case_fail(#call);                                                                      \
    } while (0)

/* Each operation as two loops: by trap and posted. The number of the parent is not 0 for anyone but
 * process 1, so it is only used up. */
#define OPERATION(name, expected, ...)                                                             \
    static void trap_##name(int count)                                                             \
    {                                                                                              \
        while (count-- > 0)                                                                        \
            EXPECT(syscall(__VA_ARGS__), expected);                                                \
    }                                                                                              \
    static void post_##name(int count)                                                             \
    {                                                                                              \
        while (count-- > 0)                                                                        \
            EXPECT(ferry_call(__VA_ARGS__), expected);                                             \
    }

OPERATION(getppid, batch_parent, SYS_getppid)
OPERATION(read_1, 1, SYS_read, zero, &byte, 1)
OPERATION(write_1, 1, SYS_write, null, &byte, 1)
OPERATION(fstat, 0, SYS_fstat, file, &status)
OPERATION(lseek, 0, SYS_lseek, file, 0, SEEK_CUR)
OPERATION(clock_gettime, 0, SYS_clock_gettime, CLOCK_MONOTONIC, &moment)

#define EACH_OPERATION(measure)                                                                    \
    measure(getppid) measure(read_1) measure(write_1) measure(fstat) measure(lseek)                \
        measure(clock_gettime)

static void measure_traps(void)
{
#define TRAP(name) case_batches("trap_", #name, trap_##name, CASE_CALLS);
    EACH_OPERATION(TRAP)
    case_singles("trap_", "getppid", trap_getppid);
}

/* Two processes post for a while: who got less, over who got more. */
static void measure_shares(void)
{
    double calls[2];
    double each_ns = together("two_processes_share", TOGETHER_PROCESSES, 2, SHARE_SECONDS * 1e9,
                              batch_prepare, post_getppid, 16, calls);
    double worst = calls[0] < calls[1] ? calls[0] : calls[1];
    case_print("two_processes_share", "", "ratio", worst / (calls[0] + calls[1] - worst));
    case_print("two_processes_rate", "", "calls/s", 1e9 / each_ns);
}

/* What the core of this program counted while `run(count)` was repeated for some seconds. */
static void measure_quiet(void)
{
    unsigned core;
    uint64_t calls = 0;
    if (syscall(SYS_getcpu, &core, 0, 0) != 0)
        case_fail("getcpu");
    double traps = case_core_counter((int)core, "traps");
    double interrupts = case_core_counter((int)core, "interrupts");
    uint64_t end = case_ticks() + (uint64_t)(QUIET_SECONDS * 1e9 / case_ns_per_tick);
    while (case_ticks() < end) {
        post_getppid(1000);
        calls += 1000;
    }
    /* Reading a file takes a few traps more. */
    double traps_after = case_core_counter((int)core, "traps");
    double interrupts_after = case_core_counter((int)core, "interrupts");
    case_print("quiet_rate", "", "calls/s", (double)calls / QUIET_SECONDS);
    if (traps >= 0)
        case_print("traps_per_1000", "", "traps", (traps_after - traps) / (double)calls * 1000);
    if (interrupts >= 0)
        case_print("interrupts_in_10_s", "", "count", interrupts_after - interrupts);
}

static void measure_posted(void)
{
#define POST(name) case_batches("posted_", #name, post_##name, CASE_CALLS);
    EACH_OPERATION(POST)
    case_singles("posted_", "getppid", post_getppid);
    for (batch = 1; batch <= DEPTH; batch *= 2) {
        char name[32];
        snprintf(name, sizeof name, "getppid_batch_%d", batch);
        case_batches("posted_", name, batch_post, 4 * DEPTH);
    }
    measure_shares();
}

static struct uring ring;

static void run_nops(int count)
{
    for (; count > 0; count -= DEPTH)
        uring_nops(&ring, DEPTH);
}

static void stay_on(int processor)
{
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET((size_t)processor, &here);
    if (sched_setaffinity(0, sizeof here, &here) != 0)
        case_fail("sched_setaffinity");
}

/* A number that two threads send to and fro: the line that every posted call needs, and nothing else.
 * Odd ones are answers; 0 is the end. */
static struct {
    _Alignas(64) uint64_t number;
    char own_line[56];
} ball;

static void *return_ball(void *unused)
{
    uint64_t number, seen = 2;
    stay_on(1);
    while ((number = __atomic_load_n(&ball.number, __ATOMIC_ACQUIRE)) != 0)
        if (number == seen) {
            __atomic_store_n(&ball.number, number + 1, __ATOMIC_RELEASE);
            seen += 2;
        }
    return unused;
}

static void play(int count)
{
    for (; count > 0; count--) {
        uint64_t number = ball.number + 1;
        __atomic_store_n(&ball.number, number, __ATOMIC_RELEASE);
        while (__atomic_load_n(&ball.number, __ATOMIC_ACQUIRE) == number)
            ;
    }
}

static void measure_ping_pong(void)
{
    pthread_t other;
    stay_on(0);
    ball.number = 1;
    if (pthread_create(&other, 0, return_ball, 0) != 0)
        case_fail("pthread_create");
    case_batches("", "ping_pong", play, CASE_CALLS);
    __atomic_store_n(&ball.number, 0, __ATOMIC_RELEASE);
    pthread_join(other, 0);
}

static void measure_uring(void)
{
    stay_on(0);
    if (uring_open(&ring, DEPTH, -1) == 0)
        case_batches("", "io_uring_nop_64", run_nops, 4 * DEPTH);
    if (uring_open(&ring, DEPTH, 1) == 0)
        case_batches("", "io_uring_sqpoll_nop_64", run_nops, 4 * DEPTH);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    case_begin(what);
    batch_parent = syscall(SYS_getppid);
    zero = open("/dev/zero", O_RDONLY);
    null = open("/dev/null", O_WRONLY);
    file = open("/tmp/posted", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (zero < 0 || null < 0 || file < 0)
        case_fail("a file of the benchmark");
    if (*what == 0 || strcmp(what, "trap") == 0)
        measure_traps();
    if (*what == 0 || strcmp(what, "uring") == 0)
        measure_uring();
    if (*what == 0 && sysconf(_SC_NPROCESSORS_ONLN) > 1)
        measure_ping_pong();
    if (strcmp(what, "post") == 0 && ferry_available())
        measure_posted();
    if (strcmp(what, "quiet") == 0 && ferry_available())
        measure_quiet();
    case_end();
    return 0;
}
