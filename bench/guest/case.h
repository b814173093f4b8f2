/*
 * What guest programs of suites share: the clock, the lines that the tool reads, and being process 1.
 *
 * A program prints one line per figure,
 *
 *     case NAME UNIT VALUE
 *
 * and `end` as its last. A figure is the median of many short batches after a warm-up, so that what
 * else happens on the host meets a few of them only; `_p99` figures time operations one by one.
 */
#ifndef FERRY_BENCH_CASE_H
#define FERRY_BENCH_CASE_H

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

enum { CASE_BATCHES = 600, CASE_CALLS = 64, CASE_SINGLES = 20000, CASE_WARM = 4000 };

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
}

static void case_end(void)
{
    printf("end\n");
    fflush(stdout);
    if (getpid() == 1)
        reboot(RB_POWER_OFF);
}

/* Median time per operation; `run(count)` does that many. */
static void case_batches(const char *prefix, const char *name, void (*run)(int count), int count)
{
    char full[64];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    run(CASE_WARM / count * count + count);
    for (int batch = 0; batch < CASE_BATCHES; batch++) {
        uint64_t start = case_ticks();
        run(count);
        case_samples[batch] = (case_ns(case_ticks() - start) - case_own_ns) / count;
    }
    case_print(full, "", "ns", case_quantile(CASE_BATCHES, 0.5));
}

/* 99th percentile of single operations. */
static void case_singles(const char *prefix, const char *name, void (*run)(int count))
{
    char full[64];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    run(CASE_WARM);
    for (int i = 0; i < CASE_SINGLES; i++) {
        uint64_t start = case_ticks();
        run(1);
        case_samples[i] = case_ns(case_ticks() - start) - case_own_ns;
    }
    case_print(full, "_p99", "ns", case_quantile(CASE_SINGLES, 0.99));
}

#endif
