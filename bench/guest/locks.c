/*
 * The guest program of the suite `locks`: what N processes get done that make calls at the same time, each
 * on a processor of its own, under whatever lock scheme the kernel was booted with.
 *
 *     locks N [few]
 *
 * Figures are nanoseconds of wall time per call of all N together, the median of ROUNDS rounds:
 *
 *     null       getppid, one after the other
 *     file       pread, pwrite, fstat and lseek of a file of one's own
 *     mixed      many short calls of all kinds, as lmbench has them
 *     loose      getppid after computing for a while that differs each time: nobody keeps step
 *     twolf      computing, with as many calls per second as 300.twolf made of its kernel (2,071)
 *     eon        likewise 252.eon (854)
 *
 * `few`, for the model that counts instructions: COUNTED null calls as region 0 and nothing else.
 */
#define _GNU_SOURCE
#include "together.h"

#include <signal.h>

enum { ROUNDS = 5, ROUND_MS = 60, COUNTED = 2000, TWOLF_NS = 483000, EON_NS = 1171000, LOOSE_NS = 2000 };

static int file, zero, null_device, ends[2];
static double steps_per_ns;
static uint32_t seed;

static void check(int is_good, const char *what)
{
    if (!is_good)
        case_fail(what);
}

static void compute(double ns)
{
    volatile uint64_t value = 1;
    for (long steps = (long)(ns * steps_per_ns); steps > 0; steps--)
        value = value * 6364136223846793005u + 1442695040888963407u;
}

static void calibrate(void)
{
    double least = 1e300;
    steps_per_ns = 1;
    for (int round = 0; round < 20; round++) {
        double start = case_clock_ns();
        compute(100000);
        double taken = case_clock_ns() - start;
        if (taken < least)
            least = taken;
    }
    steps_per_ns = 100000 / least;
}

/* On a processor of its own, with files of its own. */
static void prepare(void)
{
    char name[64];
    seed = (uint32_t)getpid() * 2654435761u;
    snprintf(name, sizeof name, "/tmp/locks-%d", getpid());
    file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    zero = open("/dev/zero", O_RDONLY);
    null_device = open("/dev/null", O_WRONLY);
    check(file >= 0 && zero >= 0 && null_device >= 0, "open");
    check(unlink(name) == 0 && pipe(ends) == 0, "unlink, pipe");
    check(pwrite(file, name, sizeof name, 0) == (ssize_t)sizeof name, "pwrite");
}

static void run_null(int count)
{
    for (int i = 0; i < count; i++)
        syscall(SYS_getppid);
}

static void run_file(int count)
{
    char buffer[64];
    struct stat status;
    for (int i = 0; i < count; i += 4) {
        check(pread(file, buffer, sizeof buffer, 0) == (ssize_t)sizeof buffer, "pread");
        check(pwrite(file, buffer, sizeof buffer, 0) == (ssize_t)sizeof buffer, "pwrite");
        check(fstat(file, &status) == 0, "fstat");
        check(lseek(file, i, SEEK_SET) == i, "lseek");
    }
}

static void run_mixed(int count)
{
    char byte = 0;
    struct stat status;
    struct timespec now;
    sigset_t set;
    for (int i = 0; i < count; i += 12) {
        syscall(SYS_getppid);
        check(read(zero, &byte, 1) == 1, "read");
        check(write(null_device, &byte, 1) == 1, "write");
        check(stat("/tmp", &status) == 0, "stat");
        int opened = open("/tmp", O_RDONLY | O_DIRECTORY);
        check(opened >= 0 && close(opened) == 0, "open");
        check(write(ends[1], &byte, 1) == 1 && read(ends[0], &byte, 1) == 1, "pipe");
        check(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now) == 0, "clock_gettime");
        check(sigprocmask(SIG_BLOCK, NULL, &set) == 0, "sigprocmask");
        void *area = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(area != MAP_FAILED && munmap(area, 4096) == 0, "mmap");
    }
}

static void run_loose(int count)
{
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        compute((double)(seed >> 8) / (1 << 24) * LOOSE_NS);
        syscall(SYS_getppid);
    }
}

static void run_twolf(int count)
{
    char buffer[64];
    for (int i = 0; i < count; i++) {
        compute(TWOLF_NS);
        check(pread(file, buffer, sizeof buffer, 0) == (ssize_t)sizeof buffer, "pread");
    }
}

static void run_eon(int count)
{
    char buffer[64];
    for (int i = 0; i < count; i++) {
        compute(EON_NS);
        check(pread(file, buffer, sizeof buffer, 0) == (ssize_t)sizeof buffer, "pread");
    }
}

static void measure(const char *name, int members, void (*run)(int count), int count)
{
    for (int round = 0; round < ROUNDS; round++)
        case_samples[round] =
            together(name, TOGETHER_PROCESSES, members, ROUND_MS * 1e6, prepare, run, count, NULL);
    case_print(name, "", "ns", case_quantile(ROUNDS, 0.5));
}

int main(int argc, char **argv)
{
    case_begin(argc > 1 ? argv[1] : NULL);
    int members = argc > 1 ? atoi(argv[1]) : 1;
    if (argc > 2 && strcmp(argv[2], "few") == 0) {
        run_null(COUNTED);
        case_mark_begin_region(0);
        run_null(COUNTED);
        case_mark_end();
        case_print("counted", "", "calls", COUNTED);
    } else {
        calibrate();
        measure("null", members, run_null, 256);
        measure("file", members, run_file, 64);
        measure("mixed", members, run_mixed, 48);
        measure("loose", members, run_loose, 32);
        measure("twolf", members, run_twolf, 1);
        measure("eon", members, run_eon, 1);
    }
    case_end();
    return 0;
}
