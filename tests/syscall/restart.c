/* What happens to waits and to what a handler sees: calls continued after a stop, disarming alternate
 * stacks, the contents of signal frames, quotas of queued signals, FUTEX_WAKE_OP, sleeping on processor
 * time, signals sent to whole groups. */
#include "harness.h"
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/time.h>
#include <ucontext.h>

/* Of linux/futex.h, which musl does not have. */
enum { FUTEX_WAIT, FUTEX_WAKE, FUTEX_REQUEUE = 3, FUTEX_CMP_REQUEUE, FUTEX_WAKE_OP };
enum { OP_ADD = 1, OP_OR, OP_ANDN, OP_BAD = 7, OP_SHIFT = 8, CMP_EQ = 0, CMP_LT = 2, CMP_GE = 5 };

static uint32_t wake_op(unsigned operation, unsigned operand, unsigned comparison, unsigned comparand)
{
    return operation << 28 | comparison << 24 | (operand & 0xfff) << 12 | (comparand & 0xfff);
}

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

static long futex(volatile void *word, int operation, uint32_t value, const void *timeout,
                  volatile void *second, uint32_t last)
{
    return syscall(SYS_futex, word, operation, value, timeout, second, last);
}

/* Stops the child and lets it go on up to five times while it waits. The host may be slow: the child may
 * have ended before. Returns how often it was stopped; it has ended well. */
static int disturb(pid_t child)
{
    int status;
    for (int i = 0; i < 5; i++) {
        sleep_ms(10);
        CHECK_OK(kill(child, SIGSTOP));
        CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
        if (WIFEXITED(status)) {
            CHECK_EQ(status, 0);
            return i;
        }
        CHECK(WIFSTOPPED(status));
        CHECK_EQ(WSTOPSIG(status), SIGSTOP);
        CHECK_OK(kill(child, SIGCONT));
        CHECK_EQ(waitpid(child, &status, WCONTINUED), child);
        /* It may have ended right after it went on. */
        if (WIFEXITED(status)) {
            CHECK_EQ(status, 0);
            return i + 1;
        }
        CHECK(WIFCONTINUED(status));
    }
    CHECK_EQ(harness_wait(child), 0);
    return 5;
}

/* Until it was stopped at least once while it waited, as it is on any but a very slow host. */
#define CHECK_DISTURBED(child)                                                                 \
    do {                                                                                       \
        int times_ = 0;                                                                        \
        for (int attempt_ = 0; attempt_ < 20 && times_ == 0; attempt_++)                       \
            times_ = disturb(child);                                                           \
        CHECK(times_ > 0);                                                                     \
    } while (0)

static pid_t sleeps(void)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        struct timespec request = {0, 300000000};
        int64_t start = now_ns(CLOCK_MONOTONIC);
        CHECK_OK(nanosleep(&request, NULL));
        int64_t took = now_ns(CLOCK_MONOTONIC) - start;
        CHECK(took >= 300000000);
        _exit(0);
    }
    return child;
}

CASE(nanosleep_goes_on_after_a_stop)
{
    CHECK_DISTURBED(sleeps());
}

static pid_t polls(void)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        int ends[2];
        CHECK_OK(pipe(ends));
        struct pollfd entry = {.fd = ends[0], .events = POLLIN};
        int64_t start = now_ns(CLOCK_MONOTONIC);
        CHECK_EQ(poll(&entry, 1, 300), 0);
        int64_t took = now_ns(CLOCK_MONOTONIC) - start;
        CHECK(took >= 300000000);
        _exit(0);
    }
    return child;
}

CASE(poll_goes_on_after_a_stop_and_keeps_its_end)
{
    CHECK_DISTURBED(polls());
}

CASE(futex_wait_goes_on_after_a_stop)
{
    volatile uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork_or_fail();
    if (child == 0) {
        struct timespec timeout = {0, 300000000};
        int64_t start = now_ns(CLOCK_MONOTONIC);
        CHECK_ERRNO(futex(word, FUTEX_WAIT, 0, &timeout, NULL, 0), ETIMEDOUT);
        CHECK(now_ns(CLOCK_MONOTONIC) - start >= 300000000);
        CHECK_OK(futex(word + 1, FUTEX_WAIT, 0, NULL, NULL, 0));
        _exit(3);
    }
    int status;
    for (int i = 0; i < 5; i++) {
        sleep_ms(10);
        CHECK_OK(kill(child, SIGSTOP));
        CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
        CHECK_OK(kill(child, SIGCONT));
        CHECK_EQ(waitpid(child, &status, WCONTINUED), child);
    }
    while (waitpid(child, &status, WNOHANG) == 0) {
        futex(word + 1, FUTEX_WAKE, 1, NULL, NULL, 0);
        sleep_ms(5);
    }
    CHECK_EQ(WEXITSTATUS(status), 3);
}

CASE(sigsuspend_and_pause_survive_a_stop)
{
    for (int which = 0; which < 2; which++) {
        pid_t child = fork_or_fail();
        if (child == 0) {
            handle(SIGUSR1, count, 0);
            sigset_t none;
            sigemptyset(&none);
            if (which == 0)
                CHECK_ERRNO(pause(), EINTR);
            else
                CHECK_ERRNO(sigsuspend(&none), EINTR);
            _exit(handled);
        }
        int status;
        sleep_ms(30);
        CHECK_OK(kill(child, SIGSTOP));
        CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
        CHECK_OK(kill(child, SIGCONT));
        CHECK_EQ(waitpid(child, &status, WCONTINUED), child);
        sleep_ms(30);
        CHECK_EQ(waitpid(child, &status, WNOHANG), 0);
        CHECK_OK(kill(child, SIGUSR1));
        CHECK_EXITED(child, 1);
    }
}

CASE(a_stopped_process_takes_signals_when_it_continues)
{
    int status;
    pid_t child = fork_or_fail();
    if (child == 0)
        for (;;)
            pause();
    sleep_ms(10);
    CHECK_OK(kill(child, SIGSTOP));
    CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
    CHECK_OK(kill(child, SIGTERM));
    sleep_ms(50);
    CHECK_EQ(waitpid(child, &status, WNOHANG), 0);
    CHECK_OK(kill(child, SIGCONT));
    CHECK_KILLED(child, SIGTERM);
    child = fork_or_fail();
    if (child == 0)
        for (;;)
            pause();
    CHECK_OK(kill(child, SIGSTOP));
    CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
    CHECK_OK(kill(child, SIGKILL));
    CHECK_KILLED(child, SIGKILL);
}

static void *spin(void *counter)
{
    for (;;)
        ++*(volatile uint64_t *)counter;
    return NULL;
}

CASE(a_stop_holds_all_threads)
{
    volatile uint64_t *counters =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork_or_fail();
    if (child == 0) {
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, spin, (void *)&counters[i]), 0);
        for (;;)
            pause();
    }
    int status;
    while (counters[0] == 0 || counters[1] == 0)
        sleep_ms(5);
    CHECK_OK(kill(child, SIGSTOP));
    CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
    uint64_t before[2] = {counters[0], counters[1]};
    sleep_ms(50);
    CHECK_EQ(counters[0], before[0]);
    CHECK_EQ(counters[1], before[1]);
    CHECK_OK(kill(child, SIGCONT));
    while (counters[0] == before[0] || counters[1] == before[1])
        sleep_ms(5);
    CHECK_OK(kill(child, SIGKILL));
    CHECK_KILLED(child, SIGKILL);
}

static ucontext_t seen;
static char *seen_address;

static void look(int number, siginfo_t *information, void *context)
{
    (void)number;
    seen = *(ucontext_t *)context;
    seen_address = information->si_addr;
    stack_t now;
    CHECK_OK(sigaltstack(NULL, &now));
    handled = now.ss_flags;
}

CASE(a_disarming_stack_is_off_in_the_handler_and_comes_back)
{
    static char memory[65536];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory, .ss_flags = 1 << 31};
    struct sigaction action = {.sa_sigaction = look, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    CHECK_OK(sigaction(SIGUSR1, &action, NULL));
    CHECK_OK(syscall(SYS_sigaltstack, &stack, NULL));
    CHECK_OK(kill(getpid(), SIGUSR1));
    CHECK_EQ(handled, SS_DISABLE);
    CHECK(seen.uc_stack.ss_sp == memory);
    CHECK_EQ(seen.uc_stack.ss_flags, (int)(1u << 31));
    CHECK_EQ(seen.uc_stack.ss_size, sizeof memory);
    CHECK_OK(syscall(SYS_sigaltstack, NULL, &stack));
    CHECK(stack.ss_sp == memory);
    CHECK_EQ(stack.ss_flags, (int)(1u << 31));
}

static void step_over(int number, siginfo_t *information, void *context)
{
    (void)number;
    ucontext_t *frame = context;
    seen = *frame;
    seen_address = information->si_addr;
    frame->uc_mcontext.gregs[REG_RAX] = 42;
    frame->uc_mcontext.gregs[REG_RIP] += 2;
}

CASE(a_fault_frame_tells_the_fault_and_can_be_stepped_over)
{
    struct sigaction action = {.sa_sigaction = step_over, .sa_flags = SA_SIGINFO};
    CHECK_OK(sigaction(SIGSEGV, &action, NULL));
    long value;
    /* A two-byte load: mov (%rcx), %eax. */
    __asm__ volatile(".byte 0x8b, 0x01" : "=a"(value) : "c"(BAD_LOW) : "memory");
    CHECK_EQ(value, 42);
    CHECK(seen_address == BAD_LOW);
    CHECK_EQ(seen.uc_mcontext.gregs[REG_TRAPNO], 14);
    CHECK_EQ(seen.uc_mcontext.gregs[REG_ERR], 4);
    CHECK_EQ(seen.uc_mcontext.gregs[REG_CR2], (long)BAD_LOW);
    CHECK_EQ(seen.uc_mcontext.gregs[REG_CSGSFS] & 0xffff, 0x33);
    CHECK_EQ(seen.uc_flags & 6, 6);
    CHECK_EQ((uintptr_t)seen.uc_mcontext.fpregs % 64, 0);
}

static uintptr_t handler_stack;
static unsigned long handler_flags;

static void look_at_entry(int number)
{
    (void)number;
    handler_stack = (uintptr_t)__builtin_frame_address(0);
    __asm__ volatile("pushfq; pop %0" : "=r"(handler_flags));
}

CASE(a_handler_starts_as_a_c_function_expects)
{
    handle(SIGUSR1, look_at_entry, 0);
    long number = SYS_kill;
    /* The direction flag is set and the stack is odd when the signal comes. */
    __asm__ volatile("sub $136, %%rsp; std; syscall; cld; add $136, %%rsp"
                     : "+a"(number)
                     : "D"((long)getpid()), "S"((long)SIGUSR1)
                     : "rcx", "r11", "memory");
    CHECK_EQ(number, 0);
    CHECK_EQ(handler_stack % 16, 0);
    CHECK_EQ(handler_flags & 0x400, 0);
}

CASE(queued_signals_have_a_quota)
{
    struct rlimit limit = {4, 4};
    sigset_t set;
    union sigval value = {0};
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 5);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setuid(4321)); /* A user of whom nothing is queued yet. */
        CHECK_OK(setrlimit(RLIMIT_SIGPENDING, &limit));
        CHECK_OK(sigprocmask(SIG_BLOCK, &set, NULL));
        for (int i = 0; i < 4; i++)
            CHECK_OK(sigqueue(getpid(), SIGRTMIN + 5, value));
        CHECK_ERRNO(sigqueue(getpid(), SIGRTMIN + 5, value), EAGAIN);
        CHECK_OK(kill(getpid(), SIGRTMIN + 5)); /* kill never fails for want of quota. */
        struct timespec none = {0, 0};
        for (int i = 0; i < 4; i++)
            CHECK_EQ(sigtimedwait(&set, NULL, &none), SIGRTMIN + 5);
        CHECK_OK(sigqueue(getpid(), SIGRTMIN + 5, value));
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(queued_signals_of_all_processes_of_a_user_count)
{
    struct rlimit limit = {6, 6};
    union sigval value = {0};
    struct timespec none = {0, 0};
    int ready[2], stop[2];
    sigset_t set;
    char byte, text[64];
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 5);
    CHECK_OK(pipe(ready));
    CHECK_OK(pipe(stop));
    CHECK_OK(sigprocmask(SIG_BLOCK, &set, NULL));
    pid_t holder = fork_or_fail();
    if (holder == 0) {
        CHECK_OK(setuid(4322)); /* A user of whom nothing is queued yet. */
        CHECK_OK(setrlimit(RLIMIT_SIGPENDING, &limit));
        close(stop[1]);
        for (int i = 0; i < 4; i++)
            CHECK_OK(sigqueue(getpid(), SIGRTMIN + 5, value));
        CHECK_EQ(write(ready[1], "", 1), 1);
        CHECK_EQ(read(stop[0], &byte, 1), 0);
        _exit(0); /* What is pending is given back when it is waited for. */
    }
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    pid_t other = fork_or_fail();
    if (other == 0) {
        CHECK_OK(setuid(4322));
        CHECK_OK(setrlimit(RLIMIT_SIGPENDING, &limit));
        close(stop[0]);
        for (int i = 0; i < 2; i++)
            CHECK_OK(sigqueue(getpid(), SIGRTMIN + 5, value));
        CHECK_ERRNO(sigqueue(getpid(), SIGRTMIN + 5, value), EAGAIN);
        CHECK_EQ(sigtimedwait(&set, NULL, &none), SIGRTMIN + 5);
        CHECK_OK(sigqueue(getpid(), SIGRTMIN + 5, value));
        CHECK_ERRNO(sigqueue(getpid(), SIGRTMIN + 5, value), EAGAIN);
        CHECK_EQ(write(ready[1], "", 1), 1);
        close(stop[1]);
        /* The holder ends and is waited for some time after that. */
        while (sigqueue(getpid(), SIGRTMIN + 5, value) == -1) {
            CHECK_EQ(errno, EAGAIN);
            sleep_ms(1);
        }
        /* What the holder had is given back one by one. */
        do {
            FILE *status = fopen("/proc/self/status", "r");
            CHECK(status != NULL);
            while (fgets(text, sizeof text, status) != NULL && strncmp(text, "SigQ:", 5) != 0)
                ;
            fclose(status);
        } while (strcmp(text, "SigQ:\t3/6\n") != 0);
        _exit(0);
    }
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    close(stop[1]);
    CHECK_EXITED(holder, 0);
    CHECK_EXITED(other, 0);
}

CASE(wake_op_changes_and_wakes)
{
    volatile uint32_t words[2] = {0, 5};
    CHECK_EQ(futex(&words[0], FUTEX_WAKE_OP, 1, (void *)1, &words[1],
                   wake_op(OP_ADD, 3, CMP_EQ, 5)), 0);
    CHECK_EQ(words[1], 8);
    CHECK_EQ(futex(&words[0], FUTEX_WAKE_OP, 1, (void *)1, &words[1],
                   wake_op(OP_ANDN, 8, CMP_LT, 0)), 0);
    CHECK_EQ(words[1], 0);
    CHECK_EQ(futex(&words[0], FUTEX_WAKE_OP, 1, (void *)1, &words[1],
                   wake_op(OP_OR | OP_SHIFT, 4, CMP_GE, 0)), 0);
    CHECK_EQ(words[1], 16);
    CHECK_ERRNO(futex(&words[0], FUTEX_WAKE_OP, 1, (void *)1, &words[1],
                      wake_op(OP_BAD, 0, CMP_EQ, 0)), ENOSYS);
    CHECK_ERRNO(futex(&words[0], FUTEX_WAKE_OP, 1, (void *)1, BAD_LOW,
                      wake_op(OP_ADD, 1, CMP_EQ, 0)), EFAULT);
}

CASE(cmp_requeue_compares_and_checks_its_counts)
{
    volatile uint32_t words[2] = {7, 0};
    CHECK_ERRNO(futex(&words[0], FUTEX_CMP_REQUEUE, 1, (void *)1, &words[1], 6), EAGAIN);
    CHECK_EQ(futex(&words[0], FUTEX_CMP_REQUEUE, 1, (void *)1, &words[1], 7), 0);
    CHECK_ERRNO(futex(&words[0], FUTEX_REQUEUE, -1, (void *)1, &words[1], 0), EINVAL);
    CHECK_ERRNO(futex(&words[0], FUTEX_REQUEUE, 1, (void *)(long)-1, &words[1], 0), EINVAL);
}

CASE(sleep_on_processor_time_lasts_while_nobody_works)
{
    struct timespec span = {0, 20000000};
    pthread_t worker;
    uint64_t counter = 0;
    CHECK_EQ(pthread_create(&worker, NULL, spin, &counter), 0);
    int64_t start = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    CHECK_EQ(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &span, NULL), 0);
    CHECK(now_ns(CLOCK_PROCESS_CPUTIME_ID) - start >= 20000000);
    CHECK_EQ(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC_RAW, 0, &span, NULL), -1);
    CHECK_EQ(errno, EOPNOTSUPP);
}

CASE(a_virtual_timer_counts_work_only)
{
    handle(SIGVTALRM, count, 0);
    struct itimerval value = {{0, 0}, {0, 100000}}, left;
    CHECK_OK(setitimer(ITIMER_VIRTUAL, &value, NULL));
    sleep_ms(200);
    CHECK_EQ(handled, 0);
    CHECK_OK(getitimer(ITIMER_VIRTUAL, &left));
    CHECK(left.it_value.tv_usec > 0);
    int64_t end = now_ns(CLOCK_MONOTONIC) + 20000000000;
    while (!handled && now_ns(CLOCK_MONOTONIC) < end)
        for (volatile int i = 0; i < 100000; i++)
            ;
    CHECK_EQ(handled, 1);
    CHECK_OK(getitimer(ITIMER_VIRTUAL, &left));
    CHECK_EQ(left.it_value.tv_sec + left.it_value.tv_usec, 0);
}

CASE(pselect_swaps_the_mask_and_is_interrupted)
{
    sigset_t blocked, none, now;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    handle(SIGUSR1, count, SA_RESTART);
    CHECK_OK(sigprocmask(SIG_BLOCK, &blocked, NULL));
    CHECK_OK(kill(getpid(), SIGUSR1));
    CHECK_EQ(handled, 0);
    struct timespec long_time = {1000, 0};
    CHECK_ERRNO(pselect(0, NULL, NULL, NULL, &long_time, &none), EINTR);
    CHECK_EQ(handled, 1);
    CHECK_OK(sigprocmask(SIG_BLOCK, NULL, &now));
    CHECK(sigismember(&now, SIGUSR1));
    CHECK_OK(kill(getpid(), SIGUSR1));
    CHECK_ERRNO(ppoll(NULL, 0, &long_time, &none), EINTR);
    CHECK_EQ(handled, 2);
    struct timespec little = {0, 1000000};
    CHECK_EQ(ppoll(NULL, 0, &little, &none), 0);
    CHECK_OK(sigprocmask(SIG_BLOCK, NULL, &now));
    CHECK(sigismember(&now, SIGUSR1));
}

CASE(sigcont_reaches_the_own_session_whoever_owns_it)
{
    pid_t victim = fork_or_fail();
    if (victim == 0)
        for (;;)
            pause();
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setuid(1234));
        CHECK_ERRNO(kill(victim, SIGUSR1), EPERM);
        CHECK_OK(kill(victim, SIGCONT));
        CHECK_OK(setsid() == -1 ? -1 : 0);
        CHECK_ERRNO(kill(victim, SIGCONT), EPERM);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_OK(kill(victim, SIGKILL));
    CHECK_KILLED(victim, SIGKILL);
}

CASE(a_limit_of_processor_time_warns_and_kills)
{
    volatile int *warnings = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    /* A warning each second up to the end; a busy host may leave one out. */
    struct rlimit limit = {1, 3};
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setrlimit(RLIMIT_CPU, &limit));
        handle(SIGXCPU, count, 0);
        for (;;)
            *warnings = handled;
    }
    CHECK_KILLED(child, SIGKILL);
    CHECK(*warnings == 1 || *warnings == 2);
    child = fork_or_fail();
    if (child == 0) {
        limit.rlim_max = 5;
        CHECK_OK(setrlimit(RLIMIT_CPU, &limit));
        child = fork_or_fail(); /* The limit is inherited. */
        if (child == 0)
            for (;;)
                ;
        CHECK_KILLED(child, SIGXCPU);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}
