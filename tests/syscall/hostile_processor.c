/* What a program may do with the registers of its processor: protection keys are a thread's own, the upper
 * half of a call's number does not count, a signal frame cannot bring foreign selectors, and addresses and
 * offsets of the kernel's half are refused. */
#include "harness.h"
#include <sched.h>
#include <setjmp.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <ucontext.h>

/* --- protection keys --- */

/* What a new program has: key 0 alone. */
#define DEFAULT_KEYS 0x55555554u
/* Key 1 as well. */
#define MORE_KEYS 0x55555550u
#define SEGV_BY_KEY 4

static void need_keys(void)
{
    uint32_t a = 7, b, c = 0, d;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    if (!(c & 16))
        SKIP("the processor or its system has no protection keys");
}

static inline uint32_t keys(void)
{
    uint32_t value, high;
    __asm__ volatile("rdpkru" : "=a"(value), "=d"(high) : "c"(0));
    return value;
}

static inline void set_keys(uint32_t value)
{
    __asm__ volatile("wrpkru" : : "a"(value), "c"(0), "d"(0) : "memory");
}

static volatile int denied_word = 7;

static void on_denied(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (number != SIGSEGV || info->si_code != SEGV_BY_KEY || info->si_addr != (void *)&denied_word)
        _exit(2);
    _exit(keys() == DEFAULT_KEYS ? 0 : 3);
}

CASE(who_denies_itself_its_memory_gets_a_signal)
{
    need_keys();
    struct sigaction action = {.sa_sigaction = on_denied, .sa_flags = SA_SIGINFO};
    CHECK_OK(sigaction(SIGSEGV, &action, NULL));
    pid_t child = fork_or_fail();
    if (child == 0) {
        __asm__ volatile("wrpkru\n mov (%%rbx), %%eax"
                         :
                         : "a"(DEFAULT_KEYS | 1), "c"(0), "d"(0), "b"(&denied_word)
                         : "memory");
        _exit(1);
    }
    CHECK_EXITED(child, 0);
    child = fork_or_fail();
    if (child == 0) { /* Writing alone. */
        __asm__ volatile("wrpkru\n mov (%%rbx), %%eax\n movl $1, (%%rbx)"
                         :
                         : "a"(DEFAULT_KEYS | 2), "c"(0), "d"(0), "b"(&denied_word)
                         : "memory");
        _exit(1);
    }
    CHECK_EXITED(child, 0);
}

CASE(who_denies_itself_its_memory_dies_without_a_handler)
{
    need_keys();
    pid_t child = fork_or_fail();
    if (child == 0) {
        __asm__ volatile("wrpkru\n mov (%%rbx), %%eax"
                         :
                         : "a"(DEFAULT_KEYS | 1), "c"(0), "d"(0), "b"(&denied_word)
                         : "memory");
        _exit(1);
    }
    CHECK_KILLED(child, SIGSEGV);
}

CASE(keys_stay_with_their_thread)
{
    need_keys();
    enum { PROCESSES = 4, TURNS = 200 };
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork_or_fail();
        if (children[i] == 0) {
            /* Key i + 1 is open. */
            uint32_t own = DEFAULT_KEYS & ~(3u << (2 * (i + 1)));
            set_keys(own);
            for (int turn = 0; turn < TURNS; turn++) {
                sched_yield();
                if (turn % 50 == 0)
                    sleep_ms(1);
                if (keys() != own)
                    _exit(1);
            }
            _exit(0);
        }
    }
    for (int i = 0; i < PROCESSES; i++)
        CHECK_EXITED(children[i], 0);
    CHECK_EQ(keys(), DEFAULT_KEYS);
}

static volatile uint32_t keys_in_handler;

static void look_at_keys(int number)
{
    (void)number;
    keys_in_handler = keys();
    set_keys(DEFAULT_KEYS & ~(3u << 8));
}

CASE(keys_survive_signals)
{
    need_keys();
    static const uint32_t values[] = {MORE_KEYS, DEFAULT_KEYS, 0};
    signal(SIGUSR1, look_at_keys);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        set_keys(values[i]);
        keys_in_handler = 1;
        raise(SIGUSR1);
        CHECK_EQ(keys_in_handler, DEFAULT_KEYS);
        CHECK_EQ(keys(), values[i]);
    }
}

CASE(show_keys)
{
    need_keys();
    CHECK_EQ(keys(), DEFAULT_KEYS);
}

CASE(keys_are_inherited_until_a_program_is_executed)
{
    need_keys();
    set_keys(MORE_KEYS);
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(keys() != MORE_KEYS);
    CHECK_EXITED(child, 0);
    child = fork_or_fail();
    if (child == 0) {
        execl("/proc/self/exe", "again", "--no-fork", "show_keys", (char *)NULL);
        _exit(1);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(keys(), MORE_KEYS);
}

/* --- numbers, selectors, addresses --- */

static long call_number(uint64_t number)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number) : "rcx", "r11", "memory");
    return result;
}

CASE(the_upper_half_of_a_number_does_not_count)
{
    /* Often enough that a place that is patched while it runs is patched. */
    for (int i = 0; i < 200; i++)
        CHECK_EQ(call_number(SYS_getpid), getpid());
    CHECK_EQ(call_number(SYS_getpid | 1ull << 32), getpid());
    CHECK_EQ(call_number(SYS_getpid | 0xffffffffull << 32), getpid());
    CHECK_EQ(call_number(SYS_getpid | 1ull << 63), getpid());
    CHECK_EQ(call_number(0xffffffffull), -ENOSYS);
    CHECK_EQ(call_number(~0ull), -ENOSYS);
    CHECK_EQ(call_number(4000 | 1ull << 40), -ENOSYS);
    CHECK_EQ(call_number(SYS_getpid), getpid());
}

/* A function that calls nobody may keep what it passes below its stack pointer. */
long write_from_below_the_stack(int fd);
__asm__(".text\n"
        "write_from_below_the_stack:\n"
        "movabs $0x1122334455667788, %rcx\n"
        "mov %rcx, -8(%rsp)\n"
        "lea -8(%rsp), %rsi\n"
        "mov $8, %edx\n"
        "mov $1, %eax\n"
        "syscall\n"
        "ret\n");

CASE(what_lies_below_the_stack_pointer_is_passed_whole)
{
    int ends[2];
    CHECK_OK(pipe(ends));
    /* Often enough that a place that is patched while it runs is patched. */
    for (int i = 0; i < 200; i++) {
        uint64_t got = 0;
        CHECK_EQ(write_from_below_the_stack(ends[1]), 8);
        CHECK_EQ(read(ends[0], &got, 8), 8);
        CHECK_EQ(got, 0x1122334455667788u);
    }
}

static sigjmp_buf way_out;
static volatile sig_atomic_t code_of_fault;
static uint64_t bad_selectors;

static void put_selectors(int number, siginfo_t *info, void *context)
{
    ucontext_t *interrupted = context;
    (void)number;
    (void)info;
    interrupted->uc_mcontext.gregs[REG_CSGSFS] = (long long)bad_selectors;
}

static void leave_fault(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    code_of_fault = info->si_code;
    siglongjmp(way_out, 1);
}

/* Selector of code in the low word, of data in the highest. */
#define SELECTORS(code, data) ((uint64_t)(code) | (uint64_t)(data) << 48)

CASE(frames_bring_no_foreign_selectors)
{
    static const uint64_t bad[] = {SELECTORS(0, 0x2b), SELECTORS(0x10, 0x2b), SELECTORS(0x2b, 0x2b),
                                   SELECTORS(0x33, 0), SELECTORS(0x33, 0x10), SELECTORS(0xfff8, 0x2b)};
    static const uint64_t good[] = {SELECTORS(0x33, 0x2b), SELECTORS(0x30, 0x28)};
    struct sigaction put = {.sa_sigaction = put_selectors, .sa_flags = SA_SIGINFO};
    struct sigaction leave = {.sa_sigaction = leave_fault, .sa_flags = SA_SIGINFO};
    CHECK_OK(sigaction(SIGUSR1, &put, NULL));
    CHECK_OK(sigaction(SIGSEGV, &leave, NULL));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bad_selectors = bad[i];
        code_of_fault = 0;
        if (sigsetjmp(way_out, 1) == 0) {
            raise(SIGUSR1);
            FAIL("selectors %#llx are refused", (unsigned long long)bad[i]);
        }
        CHECK_EQ(code_of_fault, SI_KERNEL);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        bad_selectors = good[i];
        CHECK_EQ(raise(SIGUSR1), 0);
    }
}

CASE(a_thread_pointer_is_an_address_of_the_program)
{
    static const uint64_t bad[] = {0xffff800000000000u, 0x8000000000000000u, 0x7ffffffff000u, ~0ull};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        long got = syscall(SYS_clone, 0x00080000 /* CLONE_SETTLS */ | SIGCHLD, 0, 0, 0, bad[i]);
        if (got == 0)
            call_number(SYS_exit);
        CHECK_EQ(got, -1);
        CHECK_EQ(errno, EPERM);
    }
}

CASE(files_end_below_two_to_the_63)
{
    scratch();
    int fd = file_with("file", "x", 1);
    const uint64_t page = 4096, end = 1ull << 63;
    const uint64_t bad[] = {end, end + page, end - page, -page};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_ERRNO(syscall(SYS_mmap, NULL, page, PROT_READ, MAP_PRIVATE, fd, bad[i]), EOVERFLOW);
    CHECK_ERRNO(syscall(SYS_mmap, NULL, 2 * page, PROT_READ, MAP_SHARED, fd, end - 2 * page), EOVERFLOW);
    CHECK_OK(syscall(SYS_mmap, NULL, page, PROT_READ, MAP_PRIVATE, fd, end - 2 * page));
    CHECK_OK(syscall(SYS_mmap, NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, end));
}
