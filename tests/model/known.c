/*
 * Programs whose instructions and misses are known on paper, each in a region of its own.
 *
 * After a region the program prints what the model has to have counted,
 *
 *     expect WHAT REGION CPU COUNTER LOW HIGH
 *
 * with the counters of the model's report. LOW is what is known on paper; HIGH leaves room for what
 * the loop and the kernel add. The sizes are the model's defaults. With the argument `pair` two threads
 * pass lines between two processors instead.
 */
#define _GNU_SOURCE
#include "case.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { LINE = 64, PAGE = 4096, KIB = 1024 };
enum { TURNS = 1000000, CALLS = 2000, FAULTS = 500, ROUNDS = 20000, PASSES = 20 };

static char *area;

static void expect(const char *what, int region, int cpu, const char *counter, double low, double high)
{
    printf("expect %s %d %d %s %.0f %.0f\n", what, region, cpu, counter, low, high);
}

/* Reads one word every `stride` bytes: two loads are never on the same line. */
static __attribute__((noinline)) void read_strided(const char *from, size_t length, size_t stride)
{
    for (size_t at = 0; at < length; at += stride)
        (void)*(volatile const char *)(from + at);
}

/* Region 0: two instructions per turn. */
static void instructions(void)
{
    unsigned long turns = TURNS;
    case_mark_begin_region(0);
    __asm__ volatile("1: dec %0\n jnz 1b" : "+r"(turns));
    case_mark_end();
    expect("instructions", 0, 0, "user", 2.0 * TURNS, 2.0 * TURNS + 1000);
    expect("instructions", 0, 0, "loads", 0, 1000);
}

/* Region 1: one `rep movsb` is one instruction, with a load and a store for each byte. */
static void repeated(void)
{
    case_mark_begin_region(1);
    for (int i = 0; i < 100; i++) {
        void *to = area, *from = area + 64 * KIB;
        size_t count = 1000;
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count)::"memory");
    }
    case_mark_end();
    expect("repeated", 1, 0, "user", 100, 2000);
    expect("repeated", 1, 0, "loads", 100 * 1000, 100 * 1000 + 1000);
    expect("repeated", 1, 0, "stores", 100 * 1000, 100 * 1000 + 1000);
}

/* Region 2: 16 KiB again and again stay in a cache of 32 KiB. */
static void small(void)
{
    case_mark_begin_region(2);
    read_strided(area, 16 * KIB, LINE);
    case_mark_reset_region(2);
    for (int pass = 0; pass < PASSES; pass++)
        read_strided(area, 16 * KIB, LINE);
    case_mark_end();
    expect("small", 2, 0, "loads", PASSES * 16 * KIB / LINE, PASSES * 16 * KIB / LINE + 1000);
    expect("small", 2, 0, "l1d", 0, 1000);
    expect("small", 2, 0, "dtlb", 0, 100);
}

/* Region 3: 1 MiB in order. Least-recently-used lines of 32 and of 256 KiB are gone when they are due
 * again, so that every line misses in both, and none in 8 MiB. 256 pages miss 64 translations. */
static void strided(void)
{
    double lines = PASSES * 1024.0 * KIB / LINE, pages = PASSES * 1024.0 * KIB / PAGE;
    case_mark_begin_region(3);
    read_strided(area, 1024 * KIB, LINE);
    case_mark_reset_region(3);
    for (int pass = 0; pass < PASSES; pass++)
        read_strided(area, 1024 * KIB, LINE);
    case_mark_end();
    expect("strided", 3, 0, "l1d", lines, lines * 1.02);
    expect("strided", 3, 0, "l2", lines, lines * 1.02);
    expect("strided", 3, 0, "llc_memory", 0, lines * 0.01);
    expect("strided", 3, 0, "coherence", 0, lines * 0.01);
    expect("strided", 3, 0, "dtlb", pages, pages * 1.1);
    expect("strided", 3, 0, "walks", 0, pages * 0.1);
}

/* Region 4: 32 MiB in order are four times the last level: every line comes from memory, and 8192 pages
 * are five times the second-level TLB. */
static void large(void)
{
    size_t length = 32 * KIB * KIB;
    char *pages = mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (pages == MAP_FAILED)
        case_fail("mmap");
    for (size_t at = 0; at < length; at += PAGE)
        pages[at] = 1;
    case_mark_begin_region(4);
    read_strided(pages, length, LINE);
    case_mark_reset_region(4);
    read_strided(pages, length, LINE);
    case_mark_end();
    munmap(pages, length);
    expect("large", 4, 0, "llc_memory", (double)length / LINE, (double)length / LINE * 1.02);
    expect("large", 4, 0, "walks", (double)length / PAGE, (double)length / PAGE * 1.1);
}

/* Region 5: a chain through the lines of 64 KiB in an order that no stride has. Twice the first level,
 * so that each step misses there, and within the second. */
static void chase(void)
{
    enum { LINES = 64 * KIB / LINE };
    static int order[LINES];
    for (int i = 0; i < LINES; i++)
        order[i] = i;
    srand(1);
    for (int i = LINES - 1; i > 0; i--) {
        int other = rand() % (i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int i = 0; i < LINES; i++)
        *(char **)(area + LINE * order[i]) = area + LINE * order[(i + 1) % LINES];
    char *at = area;
    case_mark_begin_region(5);
    for (int i = 0; i < LINES; i++)
        at = *(char *volatile *)at;
    case_mark_reset_region(5);
    for (int i = 0; i < PASSES * LINES; i++)
        at = *(char *volatile *)at;
    case_mark_end();
    if (at != area)
        case_fail("the chain is no ring");
    expect("chase", 5, 0, "l1d", PASSES * LINES, PASSES * LINES * 1.05);
    expect("chase", 5, 0, "llc_memory", 0, PASSES * LINES * 0.02);
}

/* Region 6: calls that trap; each is one entry by `syscall`, and none is an exception. */
static void calls(void)
{
    case_mark_begin_region(6);
    for (int i = 0; i < CALLS; i++)
        syscall(SYS_getppid);
    case_mark_end();
    expect("calls", 6, 0, "syscalls", CALLS, CALLS);
    expect("calls", 6, 0, "exceptions", 0, 10);
}

static void skip_instruction(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

/* Region 7: undefined instructions; each is an exception, and its handler returns by one call. */
static void exceptions(void)
{
    struct sigaction action = {.sa_sigaction = skip_instruction, .sa_flags = SA_SIGINFO};
    if (sigaction(SIGILL, &action, 0) != 0)
        case_fail("sigaction");
    case_mark_begin_region(7);
    for (int i = 0; i < FAULTS; i++)
        __asm__ volatile("ud2" ::: "memory");
    case_mark_end();
    expect("exceptions", 7, 0, "exceptions", FAULTS, FAULTS + 10);
    expect("exceptions", 7, 0, "syscalls", FAULTS, FAULTS);
}

/* Two words on lines of their own. */
static struct {
    _Alignas(LINE) volatile unsigned long word;
} ball[2];
static volatile int ready;

static void stay_on(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        case_fail("sched_setaffinity");
}

/* Waits for the other's word; now and then lets the host run somebody else. */
static void await(const volatile unsigned long *word, unsigned long value)
{
    for (unsigned long turns = 1; *word != value; turns++)
        if (turns % 20000 == 0)
            sched_yield();
}

/* What a real program does between: the model learns of an access just after it was made, so of two
 * CPUs that answer at once it may see the answer first. */
static void work(void)
{
    unsigned long turns = 500;
    __asm__ volatile("1: dec %0\n jnz 1b" : "+r"(turns));
}

static void *answer(void *unused)
{
    stay_on(1);
    ready = 1;
    for (unsigned long round = 1; round <= ROUNDS; round++) {
        await(&ball[0].word, round);
        work();
        ball[1].word = round;
    }
    return unused;
}

/* Region 8: two CPUs, each with a word that only it writes and the other reads. Each round, each CPU
 * finds the other's line written once, and writes its own line, of which the other has a copy, once. */
static void pair(void)
{
    pthread_t thread;
    if (pthread_create(&thread, 0, answer, 0) != 0)
        case_fail("pthread_create");
    stay_on(0);
    while (!ready)
        sched_yield();
    case_mark_begin_region(8);
    for (unsigned long round = 1; round <= ROUNDS; round++) {
        ball[0].word = round;
        await(&ball[1].word, round);
        work();
    }
    case_mark_end();
    pthread_join(thread, 0);
    for (int cpu = 0; cpu < 2; cpu++) {
        expect("pair", 8, cpu, "coherence", ROUNDS * 0.98, ROUNDS * 1.25);
        expect("pair", 8, cpu, "upgrades", ROUNDS * 0.98, ROUNDS * 1.25);
    }
}

int main(int argc, char **argv)
{
    area = mmap(0, 1024 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        case_fail("mmap");
    memset(area, 1, 1024 * KIB);
    if (argc > 1 && strcmp(argv[1], "pair") == 0) {
        pair();
    } else {
        instructions();
        repeated();
        small();
        strided();
        large();
        chase();
        calls();
        exceptions();
    }
    printf("end\n");
    return 0;
}
