/*
 * What guest programs of suites share: the clock, the lines that the tool reads, and being process 1.
 *
 * A program prints one line per figure,
 *
 *     case NAME UNIT VALUE
 *
 * and `end` as its last. A figure is the median of many short batches after a warm-up, so that what
 * else happens on the host meets a few of them only; `_p99` figures time operations one by one. Beside
 * each figure stands what the kernel counted meanwhile on all processors, if it tells:
 *
 *     case NAME.calls - VALUE         operations that were timed
 *     case NAME.traps - VALUE         and so on: posted, interrupts, switches
 */
#ifndef FERRY_BENCH_CASE_H
#define FERRY_BENCH_CASE_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

/*
 * Markers for the model of caches and TLBs (docs/model.md): instructions that do nothing, but that the
 * model recognises. Between begin and end, everything that any processor executes counts, for a
 * region 0..31; the caches are cold at the first begin, so begin, warm up, and reset. Without a begin
 * the whole run counts.
 */
#define CASE_MARK(region, kind) \
    __asm__ volatile("nopl %c0(%%rax)" ::"i"(0x46657200 + 16 * (region) + (kind)) : "memory")
#define CASE_MARK_OF(region, kind) \
    case region: \
        CASE_MARK(region, kind); \
        break
#define CASE_MARK_ANY(region, kind) \
    switch (region) { \
        CASE_MARK_OF(0, kind); \
        CASE_MARK_OF(1, kind); \
        CASE_MARK_OF(2, kind); \
        CASE_MARK_OF(3, kind); \
        CASE_MARK_OF(4, kind); \
        CASE_MARK_OF(5, kind); \
        CASE_MARK_OF(6, kind); \
        CASE_MARK_OF(7, kind); \
        CASE_MARK_OF(8, kind); \
        CASE_MARK_OF(9, kind); \
        CASE_MARK_OF(10, kind); \
        CASE_MARK_OF(11, kind); \
        CASE_MARK_OF(12, kind); \
        CASE_MARK_OF(13, kind); \
        CASE_MARK_OF(14, kind); \
        CASE_MARK_OF(15, kind); \
        CASE_MARK_OF(16, kind); \
        CASE_MARK_OF(17, kind); \
        CASE_MARK_OF(18, kind); \
        CASE_MARK_OF(19, kind); \
        CASE_MARK_OF(20, kind); \
        CASE_MARK_OF(21, kind); \
        CASE_MARK_OF(22, kind); \
        CASE_MARK_OF(23, kind); \
        CASE_MARK_OF(24, kind); \
        CASE_MARK_OF(25, kind); \
        CASE_MARK_OF(26, kind); \
        CASE_MARK_OF(27, kind); \
        CASE_MARK_OF(28, kind); \
        CASE_MARK_OF(29, kind); \
        CASE_MARK_OF(30, kind); \
        CASE_MARK_OF(31, kind); \
    }

static inline void case_mark_begin_region(int region)
{
    CASE_MARK_ANY(region, 1)
}

static inline void case_mark_reset_region(int region)
{
    CASE_MARK_ANY(region, 3)
}

static inline void case_mark_begin(void)
{
    case_mark_begin_region(0);
}

static inline void case_mark_reset(void)
{
    case_mark_reset_region(0);
}

static inline void case_mark_end(void)
{
    CASE_MARK(0, 2);
}

enum { CASE_BATCHES = 600, CASE_CALLS = 64, CASE_SINGLES = 20000, CASE_WARM = 4000 };
#define CASE_MOST_NS 2e9

static double case_ns_per_tick;
static double case_own_ns;
static double case_samples[CASE_SINGLES];

/* The processor's counter: no call, hence no trap, on either kernel. */
static inline uint64_t case_ticks(void)
{
    uint32_t low, high;
    __asm__ volatile("lfence; rdtsc; lfence" : "=a"(low), "=d"(high)::"memory");
    return (uint64_t)high << 32 | low;
}

static inline double case_ns(uint64_t ticks)
{
    return (double)ticks * case_ns_per_tick;
}

static void case_fail(const char *what)
{
    perror(what);
    fflush(stdout);
    if (getpid() == 1)
        reboot(RB_POWER_OFF);
    exit(1);
}

static int case_compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The value below which this share of the first `count` samples lies. Sorts them. */
static double case_quantile(int count, double share)
{
    qsort(case_samples, (size_t)count, sizeof case_samples[0], case_compare);
    return case_samples[(int)((count - 1) * share)];
}

static void case_print(const char *name, const char *suffix, const char *unit, double value)
{
    printf("case %s%s %s %.3f\n", name, suffix, unit, value);
    fflush(stdout);
}

static double case_clock_ns(void)
{
    struct timespec t;
    if (syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t) != 0)
        case_fail("clock_gettime");
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The counter and the clock at the same time, as well as that can be told: the closest of some pairs. */
static uint64_t case_stamp(double *at_ns)
{
    uint64_t ticks = 0;
    double least = 1e300;
    for (int i = 0; i < 32; i++) {
        double before = case_clock_ns();
        uint64_t now = case_ticks();
        double gap = case_clock_ns() - before;
        if (gap < least) {
            least = gap;
            ticks = now;
            *at_ns = before + gap / 2;
        }
    }
    return ticks;
}

static void case_count(void);

/* First thing: what process 1 needs, and the rate of the counter. With the argument `tsc-khz` that is
 * all: it is printed, for the tool. */
static void case_begin(const char *argument)
{
    double start_ns, end_ns;
    if (getpid() == 1) {
        mkdir("/dev", 0755);
        mkdir("/tmp", 0777);
        mkdir("/proc", 0755);
        mknod("/dev/null", S_IFCHR | 0666, makedev(1, 3));
        mknod("/dev/zero", S_IFCHR | 0666, makedev(1, 5));
        mount("proc", "/proc", "proc", 0, 0);
    }
    uint64_t start = case_stamp(&start_ns);
    while (case_clock_ns() - start_ns < 100e6)
        ;
    uint64_t end = case_stamp(&end_ns);
    case_ns_per_tick = (end_ns - start_ns) / (double)(end - start);
    if (strcmp(argument, "tsc-khz") == 0) {
        printf("%.0f\n", 1e6 / case_ns_per_tick);
        exit(0);
    }
    for (int i = 0; i < 1000; i++) {
        uint64_t before = case_ticks();
        case_samples[i] = case_ns(case_ticks() - before);
    }
    case_own_ns = case_quantile(1000, 0.5);
    /* Faults of pages that are used for the first time would count as traps of what is measured. */
    memset(case_samples, 1, sizeof case_samples);
    case_count();
}

/* What Ferry measured at boot, `NAME [CORE [CORE]] VALUE` per line; nothing on other kernels. */
static void case_machine(void)
{
    FILE *machine = fopen("/proc/ferry/machine", "r");
    char line[128], name[64];
    int one, other, value;
    if (!machine)
        return;
    while (fgets(line, sizeof line, machine)) {
        if (sscanf(line, "%63s %d %d %d", name, &one, &other, &value) == 4)
            printf("case machine.%s.%d.%d ns %d\n", name, one, other, value);
        else if (sscanf(line, "%63s %d %d", name, &one, &value) == 3)
            printf("case machine.%s.%d ns %d\n", name, one, value);
        else if (sscanf(line, "%63s %d", name, &value) == 2)
            printf("case machine.%s ns %d\n", name, value);
    }
    fclose(machine);
}

static void case_end(void)
{
    case_machine();
    printf("end\n");
    fflush(stdout);
    if (getpid() == 1)
        reboot(RB_POWER_OFF);
}

/* What the kernel counts. */
enum case_counter { CASE_TRAPS, CASE_POSTED, CASE_INTERRUPTS, CASE_SWITCHES, CASE_COUNTERS };

static const char *const case_counter_names[] = {"traps", "posted", "interrupts", "switches"};

struct case_counts {
    int is_known[CASE_COUNTERS];
    double values[CASE_COUNTERS];
};

static struct case_counts case_before, case_reading;

/* One line: `coreN NAME VALUE` of Ferry, `intr VALUE ...` or `ctxt VALUE` of Linux. */
static void case_count_line(struct case_counts *counts, const char *line)
{
    char name[32];
    double value;
    if (sscanf(line, "core%*d %31s %lf", name, &value) != 2 &&
        sscanf(line, "%31s %lf", name, &value) != 2)
        return;
    for (int i = 0; i < CASE_COUNTERS; i++) {
        const char *linux_name = i == CASE_INTERRUPTS ? "intr" : i == CASE_SWITCHES ? "ctxt" : "";
        if (strcmp(name, case_counter_names[i]) == 0 || strcmp(name, linux_name) == 0) {
            counts->is_known[i] = 1;
            counts->values[i] += value;
        }
    }
}

/* All counters as they are now; unknown ones where there is no file of them. */
static struct case_counts case_counts_now(void)
{
    static char text[1 << 16];
    struct case_counts counts;
    size_t length = 0;
    ssize_t got;
    memset(&counts, 0, sizeof counts);
    int file = open("/proc/ferry/counters", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        file = open("/proc/stat", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return counts;
    while (length < sizeof text - 1 && (got = read(file, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    close(file);
    text[length] = 0;
    for (char *line = text, *next; *line; line = next) {
        char *end = strchr(line, '\n');
        next = end ? end + 1 : line + strlen(line);
        if (end)
            *end = 0;
        /* The line of interrupts is long; only its sum is wanted. */
        if ((size_t)(next - line) > 64)
            line[64] = 0;
        case_count_line(&counts, line);
    }
    return counts;
}

/* A counter of one core of Ferry; -1 on other kernels. */
static inline double case_core_counter(int wanted, const char *name)
{
    FILE *counters = fopen("/proc/ferry/counters", "r");
    char line[256], found[64];
    double value, wanted_value = -1;
    int core;
    if (!counters)
        return -1;
    while (fgets(line, sizeof line, counters))
        if (sscanf(line, "core%d %63s %lf", &core, found, &value) == 3 && core == wanted &&
            strcmp(found, name) == 0)
            wanted_value = value;
    fclose(counters);
    return wanted_value;
}

/* Before what is timed. Reading the counters takes traps itself: they are counted, and left out. */
static void case_count(void)
{
    case_reading = case_counts_now();
    case_before = case_counts_now();
    for (int i = 0; i < CASE_COUNTERS; i++)
        case_reading.values[i] = case_before.values[i] - case_reading.values[i];
}

/* How much a counter has grown since case_count(); -1 where the kernel has none. */
static double case_grown(const struct case_counts *now, enum case_counter counter)
{
    double grown = now->values[counter] - case_before.values[counter];
    if (!now->is_known[counter])
        return -1;
    /* Interrupts and switches come when they like; what reading costs is known of the others only. */
    if (counter == CASE_TRAPS || counter == CASE_POSTED)
        grown -= case_reading.values[counter];
    return grown > 0 ? grown : 0;
}

/* After what was timed: prints the counters of the figure, and `calls` where that is known. */
static void case_counted(const char *name, double calls)
{
    struct case_counts now = case_counts_now();
    if (calls > 0)
        printf("case %s.calls - %.0f\n", name, calls);
    for (int i = 0; i < CASE_COUNTERS; i++)
        if (now.is_known[i])
            printf("case %s.%s - %.0f\n", name, case_counter_names[i], case_grown(&now, i));
    fflush(stdout);
}

/* Median time per operation over at most `batches` of `count`; `run(count)` does that many. Fewer when
 * they take long, so that a disturbed run comes to its end. */
static void case_repeated(const char *name, void (*run)(int count), int count, int batches)
{
    double spent_ns = 0;
    int done = 0;
    case_count();
    while (done < batches && spent_ns < CASE_MOST_NS) {
        uint64_t start = case_ticks();
        run(count);
        double batch_ns = case_ns(case_ticks() - start) - case_own_ns;
        spent_ns += batch_ns;
        case_samples[done++] = batch_ns / count;
    }
    case_counted(name, (double)done * count);
    case_print(name, "", "ns", case_quantile(done, 0.5));
}

/* The same after a warm-up, over as many as figures of single calls have. */
static void case_batches(const char *prefix, const char *name, void (*run)(int count), int count)
{
    char full[64];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    run(CASE_WARM / count * count + count);
    case_repeated(full, run, count, CASE_BATCHES);
}

/* 99th percentile of single operations. */
static void case_singles(const char *prefix, const char *name, void (*run)(int count))
{
    char full[64];
    snprintf(full, sizeof full, "%s%s_p99", prefix, name);
    run(CASE_WARM);
    case_count();
    for (int i = 0; i < CASE_SINGLES; i++) {
        uint64_t start = case_ticks();
        run(1);
        case_samples[i] = case_ns(case_ticks() - start) - case_own_ns;
    }
    case_counted(full, CASE_SINGLES);
    case_print(full, "", "ns", case_quantile(CASE_SINGLES, 0.99));
}

#endif
