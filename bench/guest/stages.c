/*
 * The guest program of the suite `stages`: where the time of opening, closing, reading and writing a
 * file goes. The file is in memory; reads and writes are of 4 KiB.
 *
 *     stages trap      the calls by trap
 *     stages post      the calls posted
 *
 * The kernel sums the time stamps of its stages (/proc/ferry/stages); this program sums those before and
 * after each call. Differences of sums are sums of differences, so what lies between user and kernel
 * comes out too. A figure is the median over batches of the mean of a batch. Where the kernel has no
 * such file there is the total only.
 */
#define _GNU_SOURCE
#include <ferry.h>

#include "case.h"

#include <fcntl.h>

enum { BATCHES = 60, CALLS = 50, WARM = 400, SIZE = 4096 };
/* Sums of the kernel, then of the user: before the call, posted, seen done, result taken. */
enum { TRAPPED, SENT, TAKEN, HANDLED, ANSWERED, KERNEL_SUMS, BEGUN = KERNEL_SUMS, POSTED, SEEN, ENDED, SUMS };
enum { ENTER, FLY_IN, HANDLE, FLY_OUT, EXIT, STAGES };

static const char *const stage_names[STAGES] = {"enter", "fly_in", "handle", "fly_out", "exit"};
static const char path[] = "/tmp/ferry-stages";
static char block[SIZE];
static int is_posting, data_file, stages_file;

/* One call with its stamps. */
static long timed(uint64_t sums[SUMS], long number, uint64_t a0, uint64_t a1, uint64_t a2)
{
    uint64_t begun = case_ticks(), posted = begun, seen;
    long result;
    if (is_posting) {
        int index = ferry_prep(number, a0, a1, a2);
        ferry_submit();
        posted = case_ticks();
        while (!ferry_ready(index))
            ;
        seen = case_ticks();
        result = ferry_result(index);
    } else {
        result = syscall(number, a0, a1, a2);
        seen = case_ticks();
    }
    sums[BEGUN] += begun;
    sums[POSTED] += posted;
    sums[SEEN] += seen;
    sums[ENDED] += is_posting ? case_ticks() : seen;
    return result;
}

/* The kernel's sums for a call, all ways together; the number of calls carried out, 0 if it has none. */
static uint64_t read_kernel(const char *call, uint64_t sums[SUMS])
{
    static char text[32768];
    ssize_t length = stages_file < 0 ? 0 : pread(stages_file, text, sizeof text - 1, 0);
    uint64_t served = 0;
    memset(sums, 0, KERNEL_SUMS * sizeof sums[0]);
    text[length < 0 ? 0 : length] = 0;
    for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : 0) {
        char name[32];
        unsigned long long calls, count, sum[KERNEL_SUMS];
        if (sscanf(line, "%31s %*s %llu %llu %llu %llu %llu %llu %llu", name, &calls, &count, &sum[0],
                   &sum[1], &sum[2], &sum[3], &sum[4]) != 8 ||
            strcmp(name, call) != 0)
            continue;
        served += count;
        for (int i = 0; i < KERNEL_SUMS; i++)
            sums[i] += sum[i];
    }
    return served;
}

/* Opens and closes so often; the sums of one of the two are wanted. */
static void run_pairs(int count, uint64_t opens[SUMS], uint64_t closes[SUMS])
{
    while (count-- > 0) {
        long file = timed(opens, SYS_openat, (uint64_t)AT_FDCWD, (uint64_t)path, O_RDWR);
        if (file < 0 || timed(closes, SYS_close, (uint64_t)file, 0, 0) != 0)
            case_fail("openat and close");
    }
}

/* A batch of one of the calls. */
static void run(const char *call, int count, uint64_t sums[SUMS])
{
    uint64_t rest[SUMS] = {0};
    if (strcmp(call, "openat") == 0) {
        run_pairs(count, sums, rest);
    } else if (strcmp(call, "close") == 0) {
        run_pairs(count, rest, sums);
    } else {
        long number = strcmp(call, "read") == 0 ? SYS_read : SYS_write;
        while (count-- > 0) {
            lseek(data_file, 0, SEEK_SET);
            if (timed(sums, number, (uint64_t)data_file, (uint64_t)block, SIZE) != SIZE)
                case_fail(call);
        }
    }
}

static double median(double *values, int count)
{
    memcpy(case_samples, values, (size_t)count * sizeof values[0]);
    return case_quantile(count, 0.5);
}

/* Mean time from one stamp to another. It may be negative by a little: a posted call may be taken
 * before its user knows that it is posted. */
static double between(uint64_t from, uint64_t to)
{
    int64_t ticks = (int64_t)(to - from);
    return (ticks < 0 ? -case_ns((uint64_t)-ticks) : case_ns((uint64_t)ticks)) / CALLS;
}

static void measure(const char *call)
{
    static double stages[STAGES][BATCHES], totals[BATCHES];
    uint64_t ignored[SUMS] = {0};
    int is_timed = 0;
    run(call, WARM, ignored);
    for (int batch = 0; batch < BATCHES; batch++) {
        uint64_t before[SUMS] = {0}, sums[SUMS] = {0};
        uint64_t served = read_kernel(call, before);
        run(call, CALLS, sums);
        served = read_kernel(call, sums) - served;
        for (int i = 0; i < KERNEL_SUMS; i++)
            sums[i] -= before[i];
        totals[batch] = between(sums[BEGUN], sums[ENDED]);
        /* The beginning and the end of a posted call are seen by its user only. */
        int sent = is_posting ? POSTED : SENT, back = is_posting ? SEEN : ANSWERED;
        int bounds[STAGES + 1] = {BEGUN, sent, TAKEN, HANDLED, back, ENDED};
        is_timed = served == CALLS;
        for (int i = 0; i < STAGES; i++)
            stages[i][batch] = between(sums[bounds[i]], sums[bounds[i + 1]]);
    }
    double total = median(totals, BATCHES);
    case_print(call, "_total", "ns", total);
    if (!is_timed)
        return;
    double flights = 0;
    for (int i = 0; i < STAGES; i++) {
        char name[32];
        double value = median(stages[i], BATCHES);
        snprintf(name, sizeof name, "_%s", stage_names[i]);
        case_print(call, name, "ns", value);
        flights += i == FLY_IN || i == FLY_OUT ? value : 0;
    }
    case_print(call, "_flight_share", "%", flights / total * 100);
}

int main(int argc, char **argv)
{
    case_begin(argc > 1 ? argv[1] : "");
    is_posting = argc > 1 && strcmp(argv[1], "post") == 0;
    if (is_posting && !ferry_available())
        case_fail("ferry_available");
    stages_file = open("/proc/ferry/stages", O_RDONLY);
    data_file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (data_file < 0 || write(data_file, block, SIZE) != SIZE)
        case_fail(path);
    measure("openat");
    measure("close");
    measure("read");
    measure("write");
    case_end();
    return 0;
}
