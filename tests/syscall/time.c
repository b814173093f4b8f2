/* Clocks and sleeping: clock_gettime (vDSO and trap) clock_getres gettimeofday time times nanosleep
 * clock_nanosleep, and what CPU clocks count. */
#include "harness.h"
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/times.h>

CASE(monotonic_never_goes_back)
{
    int64_t last = 0;
    for (int i = 0; i < 20000; i++) {
        int64_t now = now_ns(CLOCK_MONOTONIC);
        CHECK(now >= last);
        last = now;
    }
    struct timespec raw;
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &raw));
        int64_t trapped = (int64_t)raw.tv_sec * 1000000000 + raw.tv_nsec;
        CHECK(trapped >= last); /* The vDSO's clock and the kernel's are one. */
        last = now_ns(CLOCK_MONOTONIC);
        CHECK(last >= trapped);
    }
}

CASE(monotonic_across_processes)
{
    int64_t *stamp = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t children[3];
    for (int who = 0; who < 3; who++) {
        children[who] = fork_or_fail();
        if (children[who] == 0) {
            for (int i = 0; i < 5000; i++) {
                int64_t before = __atomic_load_n(stamp, __ATOMIC_ACQUIRE);
                int64_t now = now_ns(CLOCK_MONOTONIC);
                CHECK(now >= before);
                while (before < now &&
                       !__atomic_compare_exchange_n(stamp, &before, now, 0, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE))
                    ;
            }
            _exit(0);
        }
    }
    for (int who = 0; who < 3; who++)
        CHECK_EXITED(children[who], 0);
}

CASE(clocks_agree)
{
    struct timeval day;
    time_t seconds;
    int64_t before = now_ns(CLOCK_REALTIME);
    CHECK_OK(gettimeofday(&day, NULL));
    int64_t middle = (int64_t)day.tv_sec * 1000000 + day.tv_usec;
    int64_t after = now_ns(CLOCK_REALTIME);
    CHECK(before / 1000 <= middle && middle <= after / 1000);
    seconds = (time_t)syscall(SYS_time, NULL);
    CHECK(seconds >= before / 1000000000 - 1 && seconds <= now_ns(CLOCK_REALTIME) / 1000000000);
    CHECK(now_ns(CLOCK_BOOTTIME) >= now_ns(CLOCK_MONOTONIC) - 1000000000);
    CHECK(now_ns(CLOCK_MONOTONIC_RAW) > 0);
    CHECK(now_ns(CLOCK_REALTIME_COARSE) > 0);
    CHECK(now_ns(CLOCK_MONOTONIC_COARSE) > 0);
    CHECK(now_ns(CLOCK_REALTIME) > 1577836800LL * 1000000000); /* After 2020. */
}

CASE(clock_errors)
{
    struct timespec value = {0, 0};
    CHECK_ERRNO(syscall(SYS_clock_gettime, 99, &value), EINVAL);
    CHECK_ERRNO(syscall(SYS_clock_getres, 99, &value), EINVAL);
    CHECK_ERRNO(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_clock_gettime, CLOCK_REALTIME, BAD_KERNEL), EFAULT);
    CHECK_ERRNO(syscall(SYS_clock_getres, CLOCK_MONOTONIC, BAD_LOW), EFAULT);
    CHECK_OK(syscall(SYS_clock_getres, CLOCK_MONOTONIC, NULL));
    CHECK_OK(clock_getres(CLOCK_MONOTONIC, &value));
    CHECK_EQ(value.tv_sec, 0);
    CHECK(value.tv_nsec >= 1 && value.tv_nsec <= 10000000);
    CHECK_ERRNO(syscall(SYS_gettimeofday, BAD_LOW, NULL), EFAULT);
    CHECK_ERRNO(syscall(SYS_gettimeofday, NULL, BAD_LOW), EFAULT);
    CHECK_OK(syscall(SYS_gettimeofday, NULL, NULL));
    CHECK_ERRNO(syscall(SYS_time, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_times, BAD_LOW), EFAULT);
}

CASE(nanosleep_sleeps_long_enough)
{
    long lengths[] = {0, 1, 1000, 1000000, 30000000};
    for (int i = 0; i < 5; i++) {
        struct timespec request = {0, lengths[i]};
        int64_t start = now_ns(CLOCK_MONOTONIC);
        CHECK_OK(syscall(SYS_nanosleep, &request, NULL));
        CHECK(now_ns(CLOCK_MONOTONIC) - start >= lengths[i]);
    }
}

CASE(nanosleep_errors)
{
    struct timespec negative = {-1, 0}, large = {0, 1000000000};
    CHECK_ERRNO(syscall(SYS_nanosleep, &negative, NULL), EINVAL);
    CHECK_ERRNO(syscall(SYS_nanosleep, &large, NULL), EINVAL);
    CHECK_ERRNO(syscall(SYS_nanosleep, BAD_LOW, NULL), EFAULT);
    large.tv_nsec = 0;
    large.tv_sec = 1;
    CHECK_ERRNO(syscall(SYS_clock_nanosleep, 99, 0, &large, NULL), EINVAL);
    CHECK_ERRNO(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, BAD_LOW, NULL), EFAULT);
    CHECK_ERRNO(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &negative, NULL), EINVAL);
}

CASE(clock_nanosleep_absolute)
{
    clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME};
    for (int i = 0; i < 2; i++) {
        int64_t until = now_ns(clocks[i]) + 20000000;
        struct timespec when = {until / 1000000000, until % 1000000000};
        CHECK_OK(syscall(SYS_clock_nanosleep, clocks[i], TIMER_ABSTIME, &when, NULL));
        CHECK(now_ns(clocks[i]) >= until);
        when.tv_sec = 1; /* Long past. */
        CHECK_OK(syscall(SYS_clock_nanosleep, clocks[i], TIMER_ABSTIME, &when, NULL));
    }
}

CASE(sleepers_wake_in_their_order)
{
    int ends[2];
    CHECK_OK(pipe(ends));
    int64_t base = now_ns(CLOCK_MONOTONIC) + 100000000;
    for (int i = 0; i < 4; i++) {
        if (fork_or_fail() == 0) {
            int64_t until = base + (3 - i) * 200000000LL;
            struct timespec when = {until / 1000000000, until % 1000000000};
            char name = (char)('a' + i);
            syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL);
            CHECK(now_ns(CLOCK_MONOTONIC) >= until);
            CHECK_EQ(write(ends[1], &name, 1), 1);
            _exit(0);
        }
    }
    close(ends[1]);
    char order[5] = {0};
    for (int i = 0; i < 4; i++)
        CHECK_EQ(read(ends[0], order + i, 1), 1);
    CHECK_STR(order, "dcba");
}

CASE(cpu_time_counts_work_not_sleep)
{
    int64_t before = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    sleep_ms(200);
    int64_t slept = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    CHECK(slept - before < 150000000);
    while (now_ns(CLOCK_PROCESS_CPUTIME_ID) - slept < 50000000)
        ;
    CHECK(now_ns(CLOCK_THREAD_CPUTIME_ID) >= 50000000);
}

CASE(times_and_getrusage_count_children)
{
    struct tms now;
    struct rusage usage;
    pid_t child = fork_or_fail();
    if (child == 0) {
        while (now_ns(CLOCK_PROCESS_CPUTIME_ID) < 100000000)
            ;
        _exit(0);
    }
    CHECK_OK(getrusage(RUSAGE_CHILDREN, &usage));
    CHECK_EQ(usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec, 0);
    CHECK_EXITED(child, 0);
    CHECK_OK(getrusage(RUSAGE_CHILDREN, &usage));
    CHECK(usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec +
              usage.ru_stime.tv_sec * 1000000 + usage.ru_stime.tv_usec >= 80000);
    CHECK(times(&now) != -1);
    CHECK(now.tms_cutime + now.tms_cstime >= 7);
    memset(malloc(4 << 20), 1, 4 << 20);
    CHECK_OK(getrusage(RUSAGE_SELF, &usage));
    CHECK(usage.ru_maxrss > 0);
    CHECK_OK(getrusage(RUSAGE_THREAD, &usage));
    CHECK_ERRNO(getrusage(77, &usage), EINVAL);
    CHECK_ERRNO(syscall(SYS_getrusage, RUSAGE_SELF, BAD_LOW), EFAULT);
}

CASE(vdso_survives_fork_and_exec)
{
    CHECK(getauxval(AT_SYSINFO_EHDR) != 0);
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(now_ns(CLOCK_MONOTONIC) > 0 ? 0 : 1);
    CHECK_EXITED(child, 0);
}

CASE(getcpu_answers)
{
    unsigned cpu = 999, node = 999;
    CHECK_OK(syscall(SYS_getcpu, &cpu, &node, NULL));
    CHECK(cpu < 999 && node < 999);
    CHECK_ERRNO(syscall(SYS_getcpu, BAD_LOW, NULL, NULL), EFAULT);
}
