/*
 * The guest program of the suite `noise`: how much of a processor a thread gets that only computes,
 * while another processor is busy with the kernel's work.
 *
 *     noise posting    on Ferry: posted reads of /dev/zero keep the kernel core busy all the time
 *     noise pinned     on processor 1; a process on processor 0 reads /dev/zero by trap
 *
 * The work comes in quanta of some 20 us, all the same. What one takes longer than the median of many is
 * missing time, from a quarter of a quantum on: less is the cache, or the host's clock.
 *
 *     missing          missing time, in millionths of all
 *     worst_gap        the longest piece of it, in us; its counter `gaps`: how many pieces
 *     interrupts       interrupts of this processor, in SECONDS seconds
 */
#define _GNU_SOURCE
#include <ferry.h>

#include "case.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

enum { SECONDS = 10, QUANTUM_NS = 20000, OUTSTANDING = 32, READ_BYTES = 1 << 20, CALIBRATION = 5000 };

static int zero;
/* Nobody looks at what is read. */
static char target[READ_BYTES];
static int indexes[OUTSTANDING];
static uint64_t posted;

/* Takes the results that are there, and posts calls until OUTSTANDING are under way: they keep the kernel
 * core busy for many quanta. Entries are used in turn; where the next one is still taken, the rest is
 * posted another time. All are there before the kernel is told, so that being told costs it once. */
static void keep_busy(void)
{
    uint64_t before = posted;
    for (int slot = 0; slot < OUTSTANDING; slot++) {
        if (indexes[slot] >= 0) {
            if (!ferry_ready(indexes[slot]))
                continue;
            if (ferry_result(indexes[slot]) != READ_BYTES)
                case_fail("a posted read");
        }
        indexes[slot] = ferry_prep(SYS_read, zero, target, READ_BYTES);
        if (indexes[slot] >= 0)
            posted++;
        else if (indexes[slot] != -EAGAIN)
            case_fail("ferry_prep");
    }
    if (posted != before)
        ferry_submit();
}

static void compute(long steps)
{
    uint64_t value = (uint64_t)steps;
    while (steps-- > 0)
        __asm__ volatile("imulq $31, %0, %0; addq $7, %0" : "+r"(value));
}

static double quantum_ns(long steps)
{
    uint64_t start = case_ticks();
    compute(steps);
    return case_ns(case_ticks() - start) - case_own_ns;
}

/* The least of some: who is interrupted takes longer. */
static double least_ns(long steps)
{
    double least = quantum_ns(steps);
    for (int i = 0; i < 20; i++) {
        double another = quantum_ns(steps);
        if (another < least)
            least = another;
    }
    return least;
}

/* Interrupts that a processor has taken; -1 where nobody counts them. */
static double interrupts_of(int processor)
{
    static char line[4096];
    double sum = case_core_counter(processor, "interrupts");
    FILE *file = sum < 0 ? fopen("/proc/interrupts", "r") : 0;
    if (!file)
        return sum;
    sum = 0;
    while (fgets(line, sizeof line, file)) {
        char *at = strchr(line, ':');
        if (!at)
            continue;
        at++;
        for (int column = 0; column <= processor; column++) {
            char *end;
            double value = strtod(at, &end);
            if (end == at)
                break;
            if (column == processor)
                sum += value;
            at = end;
        }
    }
    fclose(file);
    return sum;
}

static void measure(int is_posting, int processor)
{
    uint64_t gaps = 0;
    double missing_ns = 0, worst_ns = 0, all_ns = 0;
    long steps = 1000;
    while (least_ns(steps) < QUANTUM_NS)
        steps += steps / 8;
    for (int i = 0; i < CALIBRATION; i++) {
        case_samples[i] = quantum_ns(steps);
        if (is_posting)
            keep_busy();
    }
    double usual_ns = case_quantile(CALIBRATION, 0.5);
    double interrupts = interrupts_of(processor), traps = case_core_counter(processor, "traps");
    posted = 0;
    uint64_t end = case_ticks() + (uint64_t)(SECONDS * 1e9 / case_ns_per_tick);
    while (case_ticks() < end) {
        double took_ns = quantum_ns(steps), longer_ns = took_ns - usual_ns;
        all_ns += took_ns;
        if (longer_ns > usual_ns / 4) {
            missing_ns += longer_ns;
            gaps++;
            if (longer_ns > worst_ns)
                worst_ns = longer_ns;
        }
        if (is_posting)
            keep_busy();
    }
    double traps_after = case_core_counter(processor, "traps");
    double interrupts_after = interrupts_of(processor);
    case_print("missing", "", "ppm", missing_ns / all_ns * 1e6);
    case_print("missing", ".quantum_ns", "ns", usual_ns);
    case_print("worst_gap", "", "us", worst_ns / 1e3);
    case_print("worst_gap", ".gaps", "-", (double)gaps);
    if (interrupts >= 0)
        case_print("interrupts", "", "count", interrupts_after - interrupts);
    if (traps >= 0)
        case_print("interrupts", ".traps", "-", traps_after - traps);
    if (is_posting)
        case_print("interrupts", ".posted", "-", (double)posted);
}

static void pin(int processor)
{
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(processor, &here);
    if (sched_setaffinity(0, sizeof here, &here) != 0)
        case_fail("two processors are needed: sched_setaffinity");
}

/* A process on processor 0 that has the kernel read, until it is killed or its parent has ended. */
static pid_t start_reader(void)
{
    pid_t parent = getpid(), child = fork();
    if (child < 0)
        case_fail("fork");
    if (child == 0) {
        pin(0);
        while (getppid() == parent)
            if (read(zero, target, READ_BYTES) != READ_BYTES)
                _exit(1);
        _exit(0);
    }
    return child;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    case_begin(what);
    zero = open("/dev/zero", O_RDONLY);
    if (zero < 0)
        case_fail("/dev/zero");
    if (strcmp(what, "posting") == 0) {
        if (!ferry_available())
            case_fail("this kernel has no posted calls");
        for (int slot = 0; slot < OUTSTANDING; slot++)
            indexes[slot] = -EAGAIN;
        unsigned core;
        if (syscall(SYS_getcpu, &core, 0, 0) != 0)
            case_fail("getcpu");
        measure(1, (int)core);
        for (int slot = 0; slot < OUTSTANDING; slot++)
            if (indexes[slot] >= 0)
                ferry_result(indexes[slot]);
    } else if (strcmp(what, "pinned") == 0) {
        pid_t reader = start_reader();
        pin(1);
        measure(0, 1);
        kill(reader, SIGKILL);
        waitpid(reader, 0, 0);
    } else {
        fprintf(stderr, "noise: %s is neither posting nor pinned\n", what);
        return 1;
    }
    case_end();
    return 0;
}
