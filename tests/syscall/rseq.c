/* Restartable sequences: registration, the core in the record, and what aborts a critical section. */
#include "harness.h"
#include <pthread.h>
#include <sched.h>
#include <sys/time.h>
#ifdef __GLIBC__
#include <sys/rseq.h>
#endif

#define SIGNATURE 0x53053053u
#define UNREGISTER 1
#define SIZE 32

struct record {
    uint32_t core_at_start, core;
    uint64_t section;
    uint32_t flags, node, rest[2];
} __attribute__((aligned(32)));

struct section {
    uint32_t version, flags;
    uint64_t start, length, abort;
} __attribute__((aligned(32)));

static struct record mine = {0};

static long rseq(void *record, unsigned length, int flags, unsigned signature)
{
    return syscall(SYS_rseq, record, length, flags, signature);
}

/* The C library may have registered this thread. */
static void begin(void)
{
#ifdef __GLIBC__
    if (__rseq_size > 0)
        CHECK_OK(rseq((char *)__builtin_thread_pointer() + __rseq_offset, SIZE, UNREGISTER, SIGNATURE));
#endif
    memset(&mine, 0, sizeof mine);
}

static void begin_registered(void)
{
    begin();
    CHECK_OK(rseq(&mine, SIZE, 0, SIGNATURE));
}

/* Runs a critical section that only its abort leaves, or `stop`. Returns whether it was aborted. */
static volatile int stop;

__attribute__((noinline, noclone)) static int spin(struct record *record, struct section *section)
{
    long aborted;
    __asm__ volatile("leaq 1f(%%rip), %%rcx\n\t"
                     "movq %%rcx, 8(%[section])\n\t"
                     "leaq 2f(%%rip), %%rdx\n\t"
                     "subq %%rcx, %%rdx\n\t"
                     "movq %%rdx, 16(%[section])\n\t"
                     "leaq 4f(%%rip), %%rcx\n\t"
                     "movq %%rcx, 24(%[section])\n\t"
                     "movl $0, 0(%[section])\n\t"
                     "movl $0, 4(%[section])\n\t"
                     "movq %[section], 8(%[record])\n"
                     "1:\tpause\n\t"
                     "cmpl $0, %[stop]\n\t"
                     "je 1b\n"
                     "2:\txorl %%eax, %%eax\n\t"
                     "jmp 5f\n\t"
                     ".long 0x53053053\n"
                     "4:\tmovl $1, %%eax\n"
                     "5:"
                     : "=&a"(aborted)
                     : [record] "r"(record), [section] "r"(section), [stop] "m"(stop)
                     : "rcx", "rdx", "memory", "cc");
    return (int)aborted;
}

static void pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    CHECK_OK(sched_setaffinity(0, sizeof set, &set));
}

/* The cores that this process may use, at most two. */
static int cores(int into[2])
{
    cpu_set_t set;
    int found = 0, core;
    CHECK_OK(sched_getaffinity(0, sizeof set, &set));
    for (core = 0; core < CPU_SETSIZE && found < 2; core++)
        if (CPU_ISSET(core, &set))
            into[found++] = core;
    return found;
}

CASE(what_may_be_registered)
{
    static struct record other;
    begin();
    CHECK_ERRNO(rseq(&mine, SIZE, UNREGISTER, SIGNATURE), EINVAL);
    CHECK_ERRNO(rseq(0, SIZE, UNREGISTER, SIGNATURE), EINVAL);
    CHECK_ERRNO(rseq((char *)&mine + 8, SIZE, 0, SIGNATURE), EINVAL);
    CHECK_ERRNO(rseq(&mine, SIZE / 2, 0, SIGNATURE), EINVAL);
    CHECK_ERRNO(rseq(&mine, SIZE, 2, SIGNATURE), EINVAL);
    CHECK_ERRNO(rseq(&mine, SIZE, 2 | UNREGISTER, SIGNATURE), EINVAL);
    CHECK_ERRNO(rseq(BAD_KERNEL, SIZE, 0, SIGNATURE), EFAULT);
    CHECK_OK(rseq(&mine, SIZE, 0, SIGNATURE));
    CHECK_ERRNO(rseq(&mine, SIZE, 0, SIGNATURE), EBUSY);
    CHECK_ERRNO(rseq(&mine, SIZE, 0, SIGNATURE + 1), EPERM);
    CHECK_ERRNO(rseq(&other, SIZE, 0, SIGNATURE), EINVAL);
    CHECK_ERRNO(rseq(&other, SIZE, UNREGISTER, SIGNATURE), EINVAL);
    CHECK_ERRNO(rseq(&mine, SIZE, UNREGISTER, SIGNATURE + 1), EPERM);
    CHECK_ERRNO(rseq(&mine, SIZE / 2, UNREGISTER, SIGNATURE), EINVAL);
    CHECK_OK(rseq(&mine, SIZE, UNREGISTER, SIGNATURE));
    CHECK_EQ(mine.core_at_start, 0);
    CHECK_EQ(mine.core, -1u);
    CHECK_ERRNO(rseq(&mine, SIZE, UNREGISTER, SIGNATURE), EINVAL);
    CHECK_OK(rseq(&other, SIZE, 0, SIGNATURE + 1));
    CHECK_OK(rseq(&other, SIZE, UNREGISTER, SIGNATURE + 1));
}

CASE(the_record_has_the_core)
{
    int some[2], count = cores(some), i;
    mine.core = 77;
    begin_registered();
    for (i = 0; i < 6; i++) {
        unsigned core = 99;
        pin(some[i % count]);
        CHECK_OK(syscall(SYS_getcpu, &core, 0, 0));
        CHECK_EQ(core, some[i % count]);
        CHECK_EQ(mine.core, core);
        CHECK_EQ(mine.core_at_start, core);
    }
    CHECK_EQ(mine.node, 0);
}

static void *registers_itself(void *argument)
{
    static struct record other;
    (void)argument;
    /* The C library registers none after its first thread has none. */
    return (void *)(rseq(&other, SIZE, 0, SIGNATURE) == 0 ? 1L : 0L);
}

CASE(a_child_has_the_registration_and_a_thread_does_not)
{
    pthread_t thread;
    void *result = 0;
    pid_t child;
    begin_registered();
    child = fork_or_fail();
    if (child == 0) {
        CHECK_ERRNO(rseq(&mine, SIZE, 0, SIGNATURE), EBUSY);
        CHECK(mine.core != -1u);
        CHECK_OK(rseq(&mine, SIZE, UNREGISTER, SIGNATURE));
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_ERRNO(rseq(&mine, SIZE, 0, SIGNATURE), EBUSY);
    CHECK_EQ(pthread_create(&thread, 0, registers_itself, 0), 0);
    CHECK_EQ(pthread_join(thread, &result), 0);
    CHECK_EQ((long)result, 1);
}

static uint64_t interrupted_at;

static void note(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    interrupted_at = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
}

CASE(a_signal_aborts_a_section)
{
    struct section section;
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
    struct itimerval soon = {.it_value = {0, 1000}};
    begin_registered();
    CHECK_OK(sigaction(SIGALRM, &action, 0));
    CHECK_OK(setitimer(ITIMER_REAL, &soon, 0));
    CHECK_EQ(spin(&mine, &section), 1);
    CHECK_EQ(mine.section, 0);
    /* Preemption may have come first; then the signal comes later, and elsewhere. */
    while (interrupted_at == 0)
        sched_yield();
    CHECK(interrupted_at < section.start || interrupted_at >= section.start + section.length);
}

CASE(preemption_aborts_a_section)
{
    struct section section;
    int some[2];
    pid_t child;
    begin_registered();
    cores(some);
    pin(some[0]);
    child = fork_or_fail();
    if (child == 0)
        for (;;)
            ;
    CHECK_EQ(spin(&mine, &section), 1);
    CHECK_OK(kill(child, SIGKILL));
    CHECK_EQ(waitpid(child, 0, 0), child);
}

CASE(a_section_elsewhere_is_forgotten)
{
    static struct { uint32_t signature, at; } place = {SIGNATURE, 0};
    static struct section section;
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
    begin_registered();
    section = (struct section){.start = (uint64_t)&mine, .length = 8, .abort = (uint64_t)&place.at};
    CHECK_OK(sigaction(SIGUSR1, &action, 0));
    mine.section = (uint64_t)&section;
    CHECK_OK(raise(SIGUSR1));
    CHECK_EQ(mine.section, 0);
}

/* What a program with such a section ends with when a signal comes. */
static int ends_by(struct section *section, uint32_t flags)
{
    int status = 0;
    pid_t child = fork_or_fail();
    if (child == 0) {
        struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
        sigaction(SIGUSR1, &action, 0);
        mine.flags = flags;
        mine.section = (uint64_t)section;
        raise(SIGUSR1);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

CASE(a_wrong_description_kills)
{
    static struct { uint32_t signature, at; } place = {SIGNATURE, 0}, wrong = {SIGNATURE + 1, 0};
    static struct section section;
    struct section good = {.start = (uint64_t)&mine, .length = 8, .abort = (uint64_t)&place.at};
    begin_registered();
    section = good;
    CHECK_EQ(ends_by(&section, 0), 0);
    CHECK_EQ(ends_by((struct section *)8, 0), SIGSEGV);
    CHECK_EQ(ends_by((struct section *)BAD_KERNEL, 0), SIGSEGV);
    section.abort = (uint64_t)&wrong.at;
    CHECK_EQ(ends_by(&section, 0), SIGSEGV);
    section = good;
    section.version = 1;
    CHECK_EQ(ends_by(&section, 0), SIGSEGV);
    section = good;
    section.abort = section.start + 4;
    CHECK_EQ(ends_by(&section, 0), SIGSEGV);
    section = good;
    section.length = -1ul;
    CHECK_EQ(ends_by(&section, 0), SIGSEGV);
}

#define PRIVATE (1 << 7)
#define REGISTER (1 << 8)
static volatile int is_inside, was_aborted;

static void *spins(void *argument)
{
    static struct record other;
    static struct section section;
#ifdef __GLIBC__
    begin();
#endif
    if (rseq(&other, SIZE, 0, SIGNATURE) != 0)
        return 0;
    is_inside = 1;
    was_aborted = spin(&other, &section);
    return argument;
}

CASE(a_barrier_aborts_sections_of_other_threads)
{
    pthread_t thread;
    void *result = 0;
    CHECK_EQ(syscall(SYS_membarrier, 0, 0, 0) & (PRIVATE | REGISTER), PRIVATE | REGISTER);
    CHECK_ERRNO(syscall(SYS_membarrier, PRIVATE, 0, 0), EPERM);
    CHECK_ERRNO(syscall(SYS_membarrier, REGISTER, 1, 0), EINVAL);
    CHECK_OK(syscall(SYS_membarrier, REGISTER, 0, 0));
    CHECK_ERRNO(syscall(SYS_membarrier, PRIVATE, 2, 0), EINVAL);
    CHECK_OK(syscall(SYS_membarrier, PRIVATE, 1, 0));
    CHECK_OK(syscall(SYS_membarrier, PRIVATE, 1, 100000));
    CHECK_EQ(pthread_create(&thread, 0, spins, &mine), 0);
    while (!is_inside)
        sched_yield();
    while (!was_aborted)
        CHECK_OK(syscall(SYS_membarrier, PRIVATE, 0, 0));
    CHECK_EQ(pthread_join(thread, &result), 0);
    CHECK(result != 0);
    CHECK_EQ(was_aborted, 1);
}
