/* Calls made again and again from the same place, until the kernel knows the place: what is then
 * different must be the speed alone. Null pointers, numbers that are no call, signals in the middle of
 * a wait, children, threads, other stacks, code that is private data, a segment base of the program's. */
#include "harness.h"
#include <pthread.h>
#include <sys/time.h>
#include <ucontext.h>

/* Enough for every place to be known. */
enum { OFTEN = 40 };

/* Of asm/prctl.h, which musl does not have. */
enum { ARCH_SET_GS = 0x1001, ARCH_GET_GS = 0x1004 };

static volatile sig_atomic_t handled;

static void count(int number)
{
    (void)number;
    handled++;
}

static void handle(int number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK_OK(sigaction(number, &action, NULL));
}

static void repeat(void)
{
    for (int i = 0; i < OFTEN; i++) {
        CHECK_EQ(syscall(SYS_getpid), getpid());
        CHECK_EQ(syscall(SYS_getppid), getppid());
    }
}

static char byte_of_a_pipe(int reader)
{
    char byte = 0;
    CHECK_EQ(read(reader, &byte, 1), 1);
    return byte;
}

static int ends_by(void (*act)(void))
{
    pid_t child = fork();
    CHECK_OK(child);
    if (child == 0) {
        repeat();
        act();
        _exit(0);
    }
    return harness_wait(child);
}

static void *volatile null;

static void read_null(void)
{
    (void)*(volatile char *)null;
}

static void write_null(void)
{
    *(volatile char *)null = 1;
}

static void call_null(void)
{
    ((void (*)(void))null)();
}

static void call_near_null(void)
{
    ((void (*)(void))((char *)null + 39))();
}

CASE(null_pointers_fault_as_ever)
{
    void (*acts[])(void) = {read_null, write_null, call_null, call_near_null};
    for (unsigned i = 0; i < sizeof acts / sizeof acts[0]; i++) {
        int status = ends_by(acts[i]);
        CHECK(WIFSIGNALED(status));
        CHECK_EQ(WTERMSIG(status), SIGSEGV);
    }
}

static void *volatile fault_address;
static volatile greg_t fault_instruction;

static void note_fault(int number, siginfo_t *info, void *context)
{
    (void)number;
    fault_address = info->si_addr;
    fault_instruction = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    _exit(fault_address == NULL && fault_instruction == 0 ? 7 : 8);
}

static void call_null_with_handler(void)
{
    struct sigaction action = {.sa_sigaction = note_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    call_null();
}

CASE(a_called_null_pointer_is_reported_at_zero)
{
    int status = ends_by(call_null_with_handler);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 7);
}

CASE(low_addresses_are_no_memory_for_calls)
{
    int ends[2];
    CHECK_OK(pipe(ends));
    for (int i = 0; i < OFTEN; i++) {
        CHECK_ERRNO(syscall(SYS_write, ends[1], NULL, 1), EFAULT);
        CHECK_ERRNO(syscall(SYS_write, ends[1], BAD_LOW, 1), EFAULT);
    }
}

CASE(numbers_that_are_no_call)
{
    static const int numbers[] = {-1,   499,  510,  511,   512,     513,       600,
                                  1000, 4095, 4096, 70000, 1 << 24, 0x7fffffff};
    repeat();
    for (int round = 0; round < 10; round++)
        for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
            CHECK_ERRNO(syscall(numbers[i]), ENOSYS);
    repeat();
}

CASE(registers_survive)
{
    for (int i = 0; i < OFTEN; i++) {
        unsigned long b = 1, d = 4, s = 3, di = 2, r8 = 5, r9 = 6, r10 = 7, r12 = 8, a = SYS_getppid;
        register unsigned long g8 __asm__("r8") = r8, g9 __asm__("r9") = r9, g10 __asm__("r10") = r10,
                               g12 __asm__("r12") = r12;
        __asm__ volatile("syscall"
                         : "+a"(a), "+b"(b), "+d"(d), "+S"(s), "+D"(di), "+r"(g8), "+r"(g9), "+r"(g10),
                           "+r"(g12)::"rcx", "r11", "memory", "cc");
        CHECK_EQ(a, (unsigned long)getppid());
        CHECK(b == 1 && d == 4 && s == 3 && di == 2 && g8 == 5 && g9 == 6 && g10 == 7 && g12 == 8);
    }
}

/* A leaf that keeps a value right below its stack pointer, where a call would put its return address. */
long leaf(long value);
__asm__(".text\n.globl leaf\n.type leaf, @function\nleaf:\n"
        "mov %rdi, -8(%rsp)\nmov $110, %eax\nsyscall\nmov -8(%rsp), %rax\nret\n.size leaf, .-leaf\n");

CASE(what_a_leaf_keeps_below_its_stack_stays)
{
    for (long i = 0; i < OFTEN; i++)
        CHECK_EQ(leaf(i * 1000003), i * 1000003);
}

static volatile sig_atomic_t awaited;

static void *write_later(void *argument)
{
    int *ends = argument;
    while (handled < awaited)
        sleep_ms(5);
    CHECK_EQ(write(ends[1], "x", 1), 1);
    return NULL;
}

static pthread_t reader_thread;

static void *kick_later(void *argument)
{
    (void)argument;
    sleep_ms(40);
    pthread_kill(reader_thread, SIGUSR1);
    return NULL;
}

CASE(a_signal_ends_a_wait)
{
    int ends[2];
    CHECK_OK(pipe(ends));
    handle(SIGUSR1, count, 0);
    for (int i = 0; i < OFTEN; i++) {
        CHECK_EQ(write(ends[1], "y", 1), 1);
        CHECK_EQ(byte_of_a_pipe(ends[0]), 'y');
    }
    reader_thread = pthread_self();
    for (int i = 1; i <= 5; i++) {
        pthread_t kicker;
        char byte;
        CHECK_EQ(pthread_create(&kicker, NULL, kick_later, NULL), 0);
        CHECK_ERRNO(read(ends[0], &byte, 1), EINTR);
        CHECK_EQ(handled, i);
        CHECK_EQ(pthread_join(kicker, NULL), 0);
    }
}

CASE(a_wait_goes_on_after_a_signal)
{
    int ends[2];
    CHECK_OK(pipe(ends));
    handle(SIGUSR1, count, SA_RESTART);
    for (int i = 0; i < OFTEN; i++) {
        CHECK_EQ(write(ends[1], "y", 1), 1);
        CHECK_EQ(byte_of_a_pipe(ends[0]), 'y');
    }
    reader_thread = pthread_self();
    for (int i = 1; i <= 5; i++) {
        pthread_t kicker, writer;
        awaited = i;
        CHECK_EQ(pthread_create(&kicker, NULL, kick_later, NULL), 0);
        CHECK_EQ(pthread_create(&writer, NULL, write_later, ends), 0);
        CHECK_EQ(byte_of_a_pipe(ends[0]), 'x');
        CHECK_EQ(handled, i);
        CHECK_EQ(pthread_join(kicker, NULL), 0);
        CHECK_EQ(pthread_join(writer, NULL), 0);
    }
}

CASE(signals_in_a_stream_of_calls)
{
    struct itimerval timer = {{0, 2000}, {0, 2000}};
    handle(SIGALRM, count, 0);
    CHECK_OK(setitimer(ITIMER_REAL, &timer, NULL));
    pid_t self = getpid(), parent = getppid();
    while (handled < 50) {
        CHECK_EQ(syscall(SYS_getpid), self);
        CHECK_EQ(syscall(SYS_getppid), parent);
    }
    timer = (struct itimerval){{0, 0}, {0, 0}};
    CHECK_OK(setitimer(ITIMER_REAL, &timer, NULL));
}

static void write_to_nobody(void)
{
    int ends[2];
    CHECK_OK(pipe(ends));
    close(ends[0]);
    (void)!write(ends[1], "x", 1);
    /* The signal comes before the answer. */
    _exit(9);
}

CASE(the_signal_of_a_call_comes_before_its_answer)
{
    for (int i = 0; i < 5; i++) {
        int status = ends_by(write_to_nobody);
        CHECK(WIFSIGNALED(status));
        CHECK_EQ(WTERMSIG(status), SIGPIPE);
    }
    handle(SIGPIPE, count, 0);
    int ends[2];
    CHECK_OK(pipe(ends));
    close(ends[0]);
    for (int i = 1; i <= OFTEN; i++) {
        CHECK_ERRNO(write(ends[1], "x", 1), EPIPE);
        CHECK_EQ(handled, i);
    }
    handle(SIGUSR2, count, 0);
    for (int i = 1; i <= OFTEN; i++) {
        CHECK_OK(syscall(SYS_kill, getpid(), SIGUSR2));
        CHECK_EQ(handled, OFTEN + i);
    }
}

CASE(children_know_the_same_places)
{
    repeat();
    for (int i = 0; i < 5; i++) {
        pid_t parent = getpid(), child = fork();
        CHECK_OK(child);
        if (child == 0) {
            for (int j = 0; j < OFTEN; j++)
                if (syscall(SYS_getppid) != parent)
                    _exit(1);
            _exit(0);
        }
        repeat();
        CHECK_EQ(harness_wait(child), 0);
    }
}

CASE(vfork_and_exec_from_known_places)
{
    repeat();
    for (int i = 0; i < 5; i++) {
        pid_t child = vfork();
        CHECK_OK(child);
        if (child == 0) {
            syscall(SYS_getpid);
            syscall(SYS_getppid);
            _exit(3);
        }
        CHECK_EQ(WEXITSTATUS(harness_wait(child)), 3);
        repeat();
    }
}

static void *call_in_a_thread(void *argument)
{
    for (int i = 0; i < 20 * OFTEN; i++)
        if (syscall(SYS_getpid) != getpid() || syscall(SYS_gettid) == 0)
            return NULL;
    return argument;
}

CASE(threads_share_the_places)
{
    pthread_t threads[4];
    char names[4];
    for (unsigned i = 0; i < 4; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, call_in_a_thread, &names[i]), 0);
    for (unsigned i = 0; i < 4; i++) {
        void *result;
        CHECK_EQ(pthread_join(threads[i], &result), 0);
        CHECK(result == &names[i]);
    }
}

CASE(a_program_may_use_gs)
{
    static long value = 0x5eed;
    repeat();
    CHECK_OK(syscall(SYS_arch_prctl, ARCH_SET_GS, &value));
    repeat();
    long seen;
    __asm__ volatile("mov %%gs:0, %0" : "=r"(seen));
    CHECK_EQ(seen, value);
    unsigned long base;
    CHECK_OK(syscall(SYS_arch_prctl, ARCH_GET_GS, &base));
    CHECK_EQ(base, (unsigned long)&value);
    CHECK_EQ(WEXITSTATUS(ends_by(repeat)), 0);
}
