/* Faults of the processor: which signal, which si_code and address, which wait status, and that the
 * next program runs as if nothing had happened. */
#include "harness.h"
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

static sigjmp_buf fault_return;
static volatile siginfo_t seen;
static volatile long seen_trap;

/* The flag that makes unaligned accesses fault. It stays on in a handler. */
#define ALIGNMENT_CHECK 0x40000ul

static void on_fault(int number, siginfo_t *information, void *context)
{
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~ALIGNMENT_CHECK);
    seen = *information;
    seen_trap = ((ucontext_t *)context)->uc_mcontext.gregs[REG_TRAPNO];
    siglongjmp(fault_return, number);
}

/* Runs this in a handler-protected place: the signal that it raises. */
#define SIGNAL_OF(statement)                                                                   \
    ({                                                                                         \
        struct sigaction action_ = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};         \
        int signals_[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};                           \
        for (int i_ = 0; i_ < 5; i_++)                                                         \
            sigaction(signals_[i_], &action_, NULL);                                           \
        int number_ = sigsetjmp(fault_return, 1);                                              \
        if (number_ == 0) {                                                                    \
            statement;                                                                         \
        }                                                                                      \
        number_;                                                                               \
    })

/* Runs it unprotected in a child: the signal that kills it, or minus its exit status. */
#define DEATH_OF(statement)                                                                    \
    ({                                                                                         \
        pid_t child_ = fork_or_fail();                                                         \
        if (child_ == 0) {                                                                     \
            int defaults_[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};                      \
            for (int i_ = 0; i_ < 5; i_++)                                                     \
                signal(defaults_[i_], SIG_DFL);                                                \
            statement;                                                                         \
            _exit(0);                                                                          \
        }                                                                                      \
        int status_ = harness_wait(child_);                                                    \
        WIFSIGNALED(status_) ? WTERMSIG(status_) : -WEXITSTATUS(status_);                      \
    })

static volatile int zero;

CASE(null_dereference)
{
    CHECK_EQ(DEATH_OF((void)*(volatile int *)(long)zero), SIGSEGV);
    CHECK_EQ(DEATH_OF(*(volatile int *)(long)zero = 1), SIGSEGV);
    CHECK_EQ(SIGNAL_OF(*(volatile int *)(long)zero = 1), SIGSEGV);
    CHECK_EQ(seen.si_code, SEGV_MAPERR);
    CHECK(seen.si_addr == NULL);
    CHECK_EQ(seen_trap, 14);
}

CASE(kernel_address)
{
    long addresses[] = {(long)BAD_KERNEL, (long)0xffffffff80000000, (long)0xffffffffffffffff & ~7L,
                        (long)0xffffffffff600000, (long)0x7ffffffff000};
    for (volatile int i = 0; i < 5; i++) {
        if (i != 3) /* The old vsyscall page may be readable. */
            CHECK_EQ(SIGNAL_OF((void)*(volatile long *)addresses[i]), SIGSEGV);
        CHECK_EQ(SIGNAL_OF(*(volatile long *)addresses[i] = 1), SIGSEGV);
        CHECK_EQ(DEATH_OF(*(volatile long *)addresses[i] = 1), SIGSEGV);
    }
    CHECK_EQ(SIGNAL_OF(((void (*)(void))BAD_KERNEL)()), SIGSEGV);
}

CASE(non_canonical_address)
{
    CHECK_EQ(SIGNAL_OF((void)*(volatile long *)BAD_CANONICAL), SIGSEGV);
    CHECK_EQ(seen.si_code, SI_KERNEL);
    CHECK_EQ(seen_trap, 13);
    CHECK_EQ(DEATH_OF(((void (*)(void))BAD_CANONICAL)()), SIGSEGV);
}

CASE(illegal_instruction)
{
    CHECK_EQ(DEATH_OF(__asm__ volatile("ud2")), SIGILL);
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("ud2")), SIGILL);
    CHECK_EQ(seen.si_code, ILL_ILLOPN);
    CHECK_EQ(seen_trap, 6);
}

CASE(division_by_zero)
{
    volatile int one = 1;
    CHECK_EQ(DEATH_OF(one = one / zero), SIGFPE);
    CHECK_EQ(SIGNAL_OF(one = one / zero), SIGFPE);
    CHECK_EQ(seen.si_code, FPE_INTDIV);
    volatile int least = -2147483647 - 1, minus_one = -1;
    CHECK_EQ(SIGNAL_OF(one = least / minus_one), SIGFPE);
}

CASE(privileged_instructions)
{
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("hlt")), SIGSEGV);
    CHECK_EQ(seen.si_code, SI_KERNEL);
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("cli")), SIGSEGV);
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("sti")), SIGSEGV);
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("movq %%cr3, %%rax" ::: "rax")), SIGSEGV);
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("movq %0, %%cr0" ::"r"(0L))), SIGSEGV);
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("rdmsr" ::"c"(0x1b) : "rax", "rdx")), SIGSEGV);
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("wrmsr" ::"c"(0xc0000082), "a"(0), "d"(0))), SIGSEGV);
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("in $0x60, %%al" ::: "rax")), SIGSEGV);
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("out %%al, $0x60" ::"a"(0))), SIGSEGV);
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("invlpg (%0)" ::"r"(0L))), SIGSEGV);
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("swapgs")), SIGSEGV);
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("int $0x40")), SIGSEGV);
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("int $0x0e")), SIGSEGV);
}

CASE(sysret_and_iret_cannot_be_misused)
{
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("sysretq")), SIGSEGV);
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("lgdt (%0)" ::"r"(0L))), SIGSEGV);
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("ltr %%ax" ::"a"(0x28))), SIGSEGV);
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("mov %0, %%ds" ::"r"(0x1234))), SIGSEGV);
}

CASE(breakpoint)
{
    CHECK_EQ(DEATH_OF(__asm__ volatile("int3")), SIGTRAP);
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("int3")), SIGTRAP);
    CHECK_EQ(seen_trap, 3);
}

CASE(single_step_flag)
{
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("pushfq; orl $0x100, (%%rsp); popfq; nop; nop" ::: "memory", "cc")),
             SIGTRAP);
    CHECK_EQ(seen.si_code, TRAP_TRACE);
    /* With the flag set across a system call the kernel must not trip over itself. */
    CHECK_EQ(DEATH_OF(__asm__ volatile("pushfq; orl $0x100, (%%rsp); popfq; mov $39, %%eax; syscall"
                                       ::: "rax", "rcx", "r11", "memory", "cc")), SIGTRAP);
}

CASE(odd_flags_do_not_hurt_the_kernel)
{
    long result;
    /* The direction flag and alignment checking at a system call. */
    __asm__ volatile("std; syscall; cld" : "=a"(result) : "0"((long)SYS_getpid) : "rcx", "r11", "memory");
    CHECK_EQ(result, getpid());
    __asm__ volatile("pushfq; orl $0x40000, (%%rsp); popfq; syscall; pushfq; andl $~0x40000, (%%rsp); popfq"
                     : "=a"(result)
                     : "0"((long)SYS_getpid)
                     : "rcx", "r11", "memory", "cc");
    CHECK_EQ(result, getpid());
}

CASE(registers_survive_a_system_call)
{
    uint64_t bad = 0;
    __asm__ volatile(
        "mov $0x1111, %%rbx; mov $0x2222, %%r12; mov $0x3333, %%r13; mov $0x4444, %%r14;"
        "mov $0x5555, %%r15; mov $0x6666, %%rdi; mov $0x7777, %%rsi; mov $0x8888, %%rdx;"
        "mov $0x9999, %%r8; mov $0xaaaa, %%r9; mov $0xbbbb, %%r10; mov $39, %%eax; syscall;"
        "cmp $0x1111, %%rbx; jne 1f; cmp $0x2222, %%r12; jne 1f; cmp $0x3333, %%r13; jne 1f;"
        "cmp $0x4444, %%r14; jne 1f; cmp $0x5555, %%r15; jne 1f; cmp $0x6666, %%rdi; jne 1f;"
        "cmp $0x7777, %%rsi; jne 1f; cmp $0x8888, %%rdx; jne 1f; cmp $0x9999, %%r8; jne 1f;"
        "cmp $0xaaaa, %%r9; jne 1f; cmp $0xbbbb, %%r10; jne 1f; jmp 2f; 1: movq $1, %0; 2:"
        : "+m"(bad)
        :
        : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
          "r15", "memory", "cc");
    CHECK_EQ(bad, 0);
}

CASE(system_call_at_any_stack)
{
    /* The kernel must not touch the user's stack pointer. */
    for (long pointer = 0; pointer < 3; pointer++) {
        long values[] = {0, (long)BAD_KERNEL, (long)BAD_CANONICAL};
        long result;
        __asm__ volatile("mov %%rsp, %%rbx; mov %2, %%rsp; syscall; mov %%rbx, %%rsp"
                         : "=a"(result)
                         : "0"((long)SYS_getpid), "r"(values[pointer])
                         : "rbx", "rcx", "r11", "memory");
        CHECK_EQ(result, getpid());
    }
}

/* QEMU's emulation (TCG) checks neither alignment nor unmasked exceptions of SSE. */
static int processor_is_emulated(void)
{
    uint32_t eax = 0x40000000, name[3] = {0, 0, 0};
    __asm__ volatile("cpuid" : "+a"(eax), "=b"(name[0]), "=c"(name[1]), "=d"(name[2]));
    return memcmp(name, "TCGTCGTCGTCG", 12) == 0;
}

CASE(alignment_check)
{
    char bytes[16] = {0};
    int number = SIGNAL_OF({
        __asm__ volatile("pushfq; orl $0x40000, (%%rsp); popfq; movl 1(%0), %%eax;"
                         "pushfq; andl $~0x40000, (%%rsp); popfq" ::"r"(bytes)
                         : "rax", "memory", "cc");
    });
    if (processor_is_emulated()) {
        CHECK_EQ(number, 0);
        return;
    }
    CHECK_EQ(number, SIGBUS);
    CHECK_EQ(seen.si_code, BUS_ADRALN);
}

CASE(floating_point_exception)
{
    volatile unsigned short x87 = 0x37f & ~(1u << 2), x87_usual = 0x37f; /* Division by zero unmasked. */
    CHECK_EQ(SIGNAL_OF(__asm__ volatile("fldcw %0; fld1; fldz; fdivrp; fwait" ::"m"(x87) : "st", "st(1)")),
             SIGFPE);
    CHECK_EQ(seen.si_code, FPE_FLTDIV);
    CHECK_EQ(seen_trap, 16);
    __asm__ volatile("fnclex; fninit; fldcw %0" ::"m"(x87_usual));
    if (processor_is_emulated())
        return;
    volatile unsigned control = 0x1f80 & ~(1u << 9), usual = 0x1f80;
    volatile double one = 1, result;
    CHECK_EQ(SIGNAL_OF({
                 __asm__ volatile("ldmxcsr %0" ::"m"(control));
                 result = one / (double)zero;
             }),
             SIGFPE);
    (void)result;
    CHECK_EQ(seen.si_code, FPE_FLTDIV);
    CHECK_EQ(seen_trap, 19);
    __asm__ volatile("ldmxcsr %0" ::"m"(usual));
}

CASE(floating_point_state_is_own)
{
    volatile unsigned control = 0x3f80, now; /* Another rounding. */
    __asm__ volatile("ldmxcsr %0" ::"m"(control));
    pid_t child = fork_or_fail();
    if (child == 0) {
        __asm__ volatile("stmxcsr %0" : "=m"(now));
        CHECK_EQ(now & 0x6000, 0x2000);
        control = 0x5f80;
        __asm__ volatile("ldmxcsr %0" ::"m"(control));
        sleep_ms(5);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    __asm__ volatile("stmxcsr %0" : "=m"(now));
    CHECK_EQ(now & 0x6000, 0x2000);
    control = 0x1f80;
    __asm__ volatile("ldmxcsr %0" ::"m"(control));
}

CASE(jump_into_data)
{
    static char data[64] __attribute__((aligned(64))) = {(char)0xc3};
    void (*code)(void);
    char *address = data;
    memcpy(&code, &address, sizeof code);
    CHECK_EQ(SIGNAL_OF(code()), SIGSEGV);
    CHECK_EQ(seen.si_code, SEGV_ACCERR);
}

CASE(write_to_code)
{
    char *address;
    void (*code)(void) = case_write_to_code;
    memcpy(&address, &code, sizeof address);
    CHECK_EQ(SIGNAL_OF(*(volatile char *)address = 0), SIGSEGV);
    CHECK_EQ(seen.si_code, SEGV_ACCERR);
    CHECK(seen.si_addr == address);
}

CASE(old_system_call_gates)
{
    /* int 0x80 with a number that the 32-bit table does not have, or no gate at all. */
    int result = DEATH_OF({
        long value;
        __asm__ volatile("int $0x80" : "=a"(value) : "0"(0x7fff) : "memory");
        _exit(value == -ENOSYS ? 0 : 1);
    });
    CHECK(result == 0 || result == SIGSEGV);
    result = DEATH_OF(__asm__ volatile("mov %%rsp, %%rbx; sysenter" ::: "rbx", "memory"));
    CHECK(result != 0);
}

CASE(abort_kills_with_sigabrt)
{
    CHECK_EQ(DEATH_OF(abort()), SIGABRT);
    CHECK_EQ(DEATH_OF({ signal(SIGABRT, SIG_IGN); abort(); }), SIGABRT);
}

CASE(many_faults_in_a_row)
{
    for (volatile int i = 0; i < 100; i++)
        CHECK_EQ(SIGNAL_OF(*(volatile char *)(4096L * (i % 16)) = 1), SIGSEGV);
    for (int i = 0; i < 30; i++)
        CHECK_EQ(DEATH_OF(*(volatile char *)8 = 1), SIGSEGV);
}

CASE(handler_that_fixes_the_cause)
{
    char *memory = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    CHECK_EQ(SIGNAL_OF(*(volatile char *)memory = 1), SIGSEGV);
    CHECK_OK(mprotect(memory, 4096, PROT_READ | PROT_WRITE));
    CHECK_EQ(SIGNAL_OF(*(volatile char *)memory = 1), 0);
}

CASE(unknown_calls_are_enosys)
{
    CHECK_ERRNO(syscall(1000), ENOSYS);
    CHECK_ERRNO(syscall(511), ENOSYS);
    CHECK_ERRNO(syscall(-1), ENOSYS);
    CHECK_ERRNO(syscall(0x7fffffff), ENOSYS);
    CHECK_ERRNO(syscall(182 /* putpmsg */), ENOSYS);
    CHECK_ERRNO(syscall(180 /* nfsservctl */), ENOSYS);
}
