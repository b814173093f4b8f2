/* Signals: handlers, masks, SA_* flags, restart and EINTR, pending and queued signals, alternate
 * stacks, sigtimedwait, sigsuspend, kill tkill tgkill, alarm and interval timers. */
#include "harness.h"
#include <pthread.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

static volatile sig_atomic_t handled, last_signal;
static volatile siginfo_t last_information;

static void count(int number)
{
    handled++;
    last_signal = number;
}

static void record(int number, siginfo_t *information, void *context)
{
    (void)context;
    handled++;
    last_signal = number;
    last_information = *information;
}

static void handle(int number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK_OK(sigaction(number, &action, NULL));
}

static void handle_information(int number, int flags)
{
    struct sigaction action = {.sa_sigaction = record, .sa_flags = flags | SA_SIGINFO};
    CHECK_OK(sigaction(number, &action, NULL));
}

static sigset_t set_of(int number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    return set;
}

static int is_pending(int number)
{
    sigset_t set;
    CHECK_OK(sigpending(&set));
    return sigismember(&set, number);
}

static void end_pesterer(pid_t child)
{
    CHECK_OK(kill(child, SIGKILL));
    CHECK_KILLED(child, SIGKILL);
}

CASE(handler_runs_before_kill_returns)
{
    handle(SIGUSR1, count, 0);
    CHECK_OK(kill(getpid(), SIGUSR1));
    CHECK_EQ(handled, 1);
    CHECK_EQ(last_signal, SIGUSR1);
    CHECK_OK(raise(SIGUSR1));
    CHECK_EQ(handled, 2);
}

CASE(default_actions)
{
    int terminating[] = {SIGHUP, SIGINT, SIGQUIT, SIGABRT, SIGUSR1, SIGSEGV, SIGPIPE, SIGALRM,
                         SIGTERM, SIGKILL, SIGIO, SIGVTALRM, SIGPROF, SIGSYS, SIGTRAP, 34, 64};
    int ignored[] = {SIGCHLD, SIGURG, SIGWINCH, SIGCONT};
    for (size_t i = 0; i < sizeof terminating / sizeof *terminating; i++) {
        pid_t child = fork_or_fail();
        if (child == 0) {
            CHECK_OK(kill(getpid(), terminating[i]));
            for (;;)
                pause();
        }
        int status = harness_wait(child);
        CHECK_EQ(WTERMSIG(status), terminating[i]);
    }
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        CHECK_OK(kill(getpid(), ignored[i]));
}

CASE(sigaction_reports_the_old_action)
{
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART | SA_NODEFER}, old;
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGUSR2);
    CHECK_OK(sigaction(SIGUSR1, &action, NULL));
    CHECK_OK(sigaction(SIGUSR1, NULL, &old));
    CHECK(old.sa_handler == count);
    CHECK_EQ(old.sa_flags & (SA_RESTART | SA_NODEFER | SA_SIGINFO), SA_RESTART | SA_NODEFER);
    CHECK(sigismember(&old.sa_mask, SIGUSR2));
    CHECK(!sigismember(&old.sa_mask, SIGUSR1));
}

CASE(sigaction_errors)
{
    struct sigaction action = {.sa_handler = SIG_IGN};
    char raw[32] = {0};
    CHECK_ERRNO(sigaction(SIGKILL, &action, NULL), EINVAL);
    CHECK_ERRNO(sigaction(SIGSTOP, &action, NULL), EINVAL);
    CHECK_ERRNO(syscall(SYS_rt_sigaction, 0, raw, NULL, 8), EINVAL);
    CHECK_ERRNO(syscall(SYS_rt_sigaction, 65, raw, NULL, 8), EINVAL);
    CHECK_ERRNO(syscall(SYS_rt_sigaction, SIGUSR1, raw, NULL, 4), EINVAL);
    CHECK_ERRNO(syscall(SYS_rt_sigaction, SIGUSR1, BAD_LOW, NULL, 8), EFAULT);
    CHECK_ERRNO(syscall(SYS_rt_sigaction, SIGUSR1, NULL, BAD_KERNEL, 8), EFAULT);
    CHECK_OK(syscall(SYS_rt_sigaction, SIGKILL, NULL, raw, 8));
}

CASE(mask_blocks_and_pending_is_delivered)
{
    sigset_t set = set_of(SIGUSR1), old;
    handle(SIGUSR1, count, 0);
    CHECK_OK(sigprocmask(SIG_BLOCK, &set, &old));
    CHECK(!sigismember(&old, SIGUSR1));
    for (int i = 0; i < 3; i++)
        CHECK_OK(kill(getpid(), SIGUSR1));
    CHECK_EQ(handled, 0);
    CHECK(is_pending(SIGUSR1));
    CHECK_OK(sigprocmask(SIG_UNBLOCK, &set, NULL));
    CHECK_EQ(handled, 1); /* Standard signals do not queue. */
    CHECK(!is_pending(SIGUSR1));
}

CASE(real_time_signals_queue_in_order)
{
    sigset_t set = set_of(SIGRTMIN + 1);
    siginfo_t information;
    union sigval value;
    sigaddset(&set, SIGRTMIN + 2);
    CHECK_OK(sigprocmask(SIG_BLOCK, &set, NULL));
    for (int i = 0; i < 3; i++) {
        value.sival_int = 10 + i;
        CHECK_OK(sigqueue(getpid(), SIGRTMIN + 2, value));
        value.sival_int = 20 + i;
        CHECK_OK(sigqueue(getpid(), SIGRTMIN + 1, value));
    }
    for (int i = 0; i < 6; i++) {
        int number = sigwaitinfo(&set, &information);
        CHECK_EQ(number, i < 3 ? SIGRTMIN + 1 : SIGRTMIN + 2);
        CHECK_EQ(information.si_value.sival_int, i < 3 ? 20 + i : 10 + i - 3);
        CHECK_EQ(information.si_code, SI_QUEUE);
        CHECK_EQ(information.si_pid, getpid());
    }
    CHECK(!is_pending(SIGRTMIN + 1));
}

CASE(sigprocmask_errors_and_unblockable)
{
    uint64_t all = ~0UL, seen = 0;
    CHECK_OK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, 8));
    CHECK_OK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &seen, 8));
    CHECK_EQ(seen, ~((1UL << (SIGKILL - 1)) | (1UL << (SIGSTOP - 1))));
    CHECK_ERRNO(syscall(SYS_rt_sigprocmask, 77, &all, NULL, 8), EINVAL);
    CHECK_OK(syscall(SYS_rt_sigprocmask, 77, NULL, &seen, 8));
    CHECK_ERRNO(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, 16), EINVAL);
    CHECK_ERRNO(syscall(SYS_rt_sigprocmask, SIG_BLOCK, BAD_LOW, NULL, 8), EFAULT);
    CHECK_ERRNO(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, BAD_LOW, 8), EFAULT);
    CHECK_ERRNO(syscall(SYS_rt_sigpending, BAD_LOW, 8), EFAULT);
    CHECK_ERRNO(syscall(SYS_rt_sigpending, &seen, 64), EINVAL);
}

static volatile sig_atomic_t nested, deepest;
static int nested_signal;

static void nest(int number)
{
    nested++;
    if (nested > deepest)
        deepest = nested;
    handled++;
    if (handled < 3)
        raise(nested_signal);
    (void)number;
    nested--;
}

CASE(handler_masks_its_own_signal)
{
    nested_signal = SIGUSR1;
    handle(SIGUSR1, nest, 0);
    raise(SIGUSR1);
    CHECK_EQ(handled, 3);
    CHECK_EQ(deepest, 1);
}

CASE(nodefer_nests)
{
    nested_signal = SIGUSR1;
    handle(SIGUSR1, nest, SA_NODEFER);
    raise(SIGUSR1);
    CHECK_EQ(handled, 3);
    CHECK_EQ(deepest, 3);
}

CASE(different_signals_nest)
{
    nested_signal = SIGUSR2;
    handle(SIGUSR1, nest, 0);
    handle(SIGUSR2, nest, 0);
    raise(SIGUSR1);
    CHECK_EQ(handled, 3);
    CHECK_EQ(deepest, 2);
}

CASE(action_mask_holds_during_the_handler)
{
    struct sigaction action = {.sa_handler = nest};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGUSR2);
    nested_signal = SIGUSR2;
    CHECK_OK(sigaction(SIGUSR1, &action, NULL));
    handle(SIGUSR2, nest, 0);
    raise(SIGUSR1);
    CHECK_EQ(handled, 3);
    CHECK_EQ(deepest, 1);
    sigset_t now;
    CHECK_OK(sigprocmask(SIG_BLOCK, NULL, &now));
    CHECK(!sigismember(&now, SIGUSR2) && !sigismember(&now, SIGUSR1));
}

CASE(resethand_handles_once)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        handle(SIGUSR1, count, SA_RESETHAND);
        raise(SIGUSR1);
        CHECK_EQ(handled, 1);
        raise(SIGUSR1);
        _exit(0);
    }
    CHECK_KILLED(child, SIGUSR1);
}

CASE(siginfo_of_kill)
{
    handle_information(SIGUSR1, 0);
    CHECK_OK(kill(getpid(), SIGUSR1));
    CHECK_EQ(last_information.si_signo, SIGUSR1);
    CHECK_EQ(last_information.si_code, SI_USER);
    CHECK_EQ(last_information.si_pid, getpid());
    CHECK_EQ(last_information.si_uid, getuid());
    CHECK_OK(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1));
    CHECK_EQ(last_information.si_code, SI_TKILL);
    CHECK_OK(syscall(SYS_tkill, syscall(SYS_gettid), SIGUSR1));
    CHECK_EQ(handled, 3);
}

static void change_context(int number, siginfo_t *information, void *context)
{
    ucontext_t *frame = context;
    (void)information;
    handled++;
    last_signal = number;
    frame->uc_mcontext.gregs[REG_RBX] = 4711;
    sigaddset(&frame->uc_sigmask, SIGUSR2);
}

CASE(handler_may_change_the_context)
{
    struct sigaction action = {.sa_sigaction = change_context, .sa_flags = SA_SIGINFO};
    register long rbx __asm__("rbx") = 1;
    sigset_t now;
    CHECK_OK(sigaction(SIGUSR1, &action, NULL));
    long number = SYS_kill;
    __asm__ volatile("mov $1, %%ebx; syscall"
                     : "=r"(rbx), "+a"(number)
                     : "D"((long)getpid()), "S"((long)SIGUSR1)
                     : "rcx", "r11", "memory");
    CHECK_EQ(rbx, 4711);
    CHECK_EQ(number, 0);
    CHECK_EQ(handled, 1);
    CHECK_OK(sigprocmask(SIG_BLOCK, NULL, &now));
    CHECK(sigismember(&now, SIGUSR2));
}

static void spoil_vectors(int number)
{
    (void)number;
    handled++;
    __asm__ volatile("pcmpeqd %%xmm0, %%xmm0; pcmpeqd %%xmm15, %%xmm15" : : : "xmm0", "xmm15");
}

CASE(vector_registers_survive_a_handler)
{
    uint64_t in[2] = {0x0123456789abcdef, 0xfedcba9876543210}, low[2], high[2];
    handle(SIGUSR1, spoil_vectors, 0);
    long number = SYS_kill;
    __asm__ volatile("movdqu %4, %%xmm0; movdqu %4, %%xmm15; syscall;"
                     "movdqu %%xmm0, %1; movdqu %%xmm15, %2"
                     : "+a"(number), "=m"(low), "=m"(high)
                     : "D"((long)getpid()), "m"(in), "S"((long)SIGUSR1)
                     : "rcx", "r11", "xmm0", "xmm15", "memory");
    CHECK_EQ(handled, 1);
    CHECK(memcmp(low, in, 16) == 0);
    CHECK(memcmp(high, in, 16) == 0);
}

CASE(registers_survive_preemption)
{
    /* Two processes that fill the registers with their own patterns, on however few cores. */
    pid_t children[3];
    for (int k = 0; k < 3; k++) {
        children[k] = fork_or_fail();
        if (children[k] == 0) {
            uint64_t pattern = 0x1111111111111111u * (unsigned)(k + 1);
            int64_t end = now_ns(CLOCK_MONOTONIC) + 300000000;
            while (now_ns(CLOCK_MONOTONIC) < end) {
                uint64_t integer, vector;
                __asm__ volatile("mov %2, %%r12; movq %2, %%xmm7; mov $200000, %%ecx;"
                                 "1: dec %%ecx; jnz 1b; mov %%r12, %0; movq %%xmm7, %1"
                                 : "=r"(integer), "=r"(vector)
                                 : "r"(pattern)
                                 : "r12", "rcx", "xmm7");
                if (integer != pattern || vector != pattern)
                    _exit(1);
            }
            _exit(0);
        }
    }
    for (int k = 0; k < 3; k++)
        CHECK_EXITED(children[k], 0);
}

CASE(restart_continues_a_read)
{
    int ends[2];
    char byte = 0;
    CHECK_OK(pipe(ends));
    handle(SIGUSR1, count, SA_RESTART);
    pid_t parent = getpid();
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (int i = 0; i < 10; i++) {
            sleep_ms(5);
            kill(parent, SIGUSR1);
        }
        CHECK_EQ(write(ends[1], "x", 1), 1);
        _exit(0);
    }
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    CHECK_EQ(byte, 'x');
    CHECK_EXITED(child, 0);
    CHECK(handled > 0);
}

CASE(no_restart_is_eintr)
{
    int ends[2];
    char byte;
    CHECK_OK(pipe(ends));
    handle(SIGUSR1, count, 0);
    pid_t child = pesterer(SIGUSR1);
    CHECK_ERRNO(read(ends[0], &byte, 1), EINTR);
    CHECK(handled > 0);
    end_pesterer(child);
}

CASE(ignored_signal_does_not_interrupt)
{
    int ends[2];
    char byte;
    CHECK_OK(pipe(ends));
    signal(SIGUSR1, SIG_IGN);
    pid_t parent = getpid();
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (int i = 0; i < 5; i++) {
            sleep_ms(5);
            kill(parent, SIGUSR1);
            kill(parent, SIGWINCH);
        }
        CHECK_EQ(write(ends[1], "x", 1), 1);
        _exit(0);
    }
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    CHECK_EXITED(child, 0);
}

CASE(stop_and_continue_restart_a_read)
{
    int ends[2], status;
    char byte;
    CHECK_OK(pipe(ends));
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_EQ(read(ends[0], &byte, 1), 1);
        _exit(byte);
    }
    for (int i = 0; i < 5; i++) {
        CHECK_OK(kill(child, SIGSTOP));
        CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
        CHECK_OK(kill(child, SIGCONT));
        CHECK_EQ(waitpid(child, &status, WCONTINUED), child);
    }
    CHECK_EQ(write(ends[1], "\x07", 1), 1);
    CHECK_EXITED(child, 7);
}

CASE(wait_restarts_or_is_interrupted)
{
    int status;
    handle(SIGUSR1, count, 0);
    pid_t sleeper = fork_or_fail();
    if (sleeper == 0) {
        for (;;)
            pause();
    }
    pid_t child = pesterer(SIGUSR1);
    CHECK_ERRNO(waitpid(sleeper, &status, 0), EINTR);
    end_pesterer(child);
    CHECK_OK(kill(sleeper, SIGKILL));
    handle(SIGUSR1, count, SA_RESTART);
    child = pesterer(SIGUSR1);
    CHECK_EQ(waitpid(sleeper, &status, 0), sleeper);
    end_pesterer(child);
}

CASE(nanosleep_is_never_restarted_and_says_what_is_left)
{
    struct timespec request = {1000, 0}, left = {-1, -1};
    handle(SIGUSR1, count, SA_RESTART);
    pid_t child = pesterer(SIGUSR1);
    CHECK_ERRNO(nanosleep(&request, &left), EINTR);
    CHECK(left.tv_sec >= 900 && left.tv_sec < 1000);
    end_pesterer(child);
}

CASE(sigkill_ends_what_blocks_everything)
{
    int ends[2];
    CHECK_OK(pipe(ends));
    pid_t child = fork_or_fail();
    if (child == 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        CHECK_EQ(write(ends[1], "r", 1), 1);
        for (;;)
            ;
    }
    char byte;
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    CHECK_OK(kill(child, SIGTERM));
    CHECK_OK(kill(child, SIGKILL));
    CHECK_KILLED(child, SIGKILL);
}

CASE(kill_errors)
{
    CHECK_ERRNO(kill(getpid(), 65), EINVAL);
    CHECK_ERRNO(kill(getpid(), -1), EINVAL);
    CHECK_ERRNO(kill(0x3fffffff, 0), ESRCH);
    CHECK_ERRNO(kill(-0x3fffffff, SIGTERM), ESRCH);
    CHECK_OK(kill(getpid(), 0));
    CHECK_OK(kill(0, 0));
    CHECK_ERRNO(syscall(SYS_tgkill, getpid(), 0, SIGUSR1), EINVAL);
    CHECK_ERRNO(syscall(SYS_tgkill, -1, getpid(), SIGUSR1), EINVAL);
    CHECK_ERRNO(syscall(SYS_tgkill, getppid(), getpid(), 0), ESRCH);
    CHECK_ERRNO(syscall(SYS_tkill, 0x3fffffff, 0), ESRCH);
    CHECK_ERRNO(syscall(SYS_tkill, -1, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_tkill, getpid(), 65), EINVAL);
}

CASE(kill_needs_permission)
{
    pid_t victim = getpid();
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setuid(1234));
        CHECK_ERRNO(kill(victim, SIGTERM), EPERM);
        CHECK_ERRNO(kill(victim, 0), EPERM);
        CHECK_OK(kill(getpid(), 0));
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(kill_reaches_the_group)
{
    pid_t children[3];
    int status;
    for (int i = 0; i < 3; i++) {
        children[i] = fork_or_fail();
        if (children[i] == 0) {
            for (;;)
                pause();
        }
        CHECK_OK(setpgid(children[i], children[0]));
    }
    CHECK_OK(kill(-children[0], SIGUSR2));
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(waitpid(-children[0], &status, 0) > 0, 1);
        CHECK_EQ(WTERMSIG(status), SIGUSR2);
    }
}

CASE(sigsuspend_swaps_the_mask)
{
    sigset_t blocked = set_of(SIGUSR1), none;
    sigemptyset(&none);
    handle(SIGUSR1, count, SA_RESTART);
    CHECK_OK(sigprocmask(SIG_BLOCK, &blocked, NULL));
    raise(SIGUSR1);
    CHECK_EQ(handled, 0);
    CHECK_ERRNO(sigsuspend(&none), EINTR);
    CHECK_EQ(handled, 1);
    sigset_t now;
    CHECK_OK(sigprocmask(SIG_BLOCK, NULL, &now));
    CHECK(sigismember(&now, SIGUSR1));
    CHECK_ERRNO(syscall(SYS_rt_sigsuspend, BAD_LOW, 8), EFAULT);
    CHECK_ERRNO(syscall(SYS_rt_sigsuspend, &none, 4), EINVAL);
}

CASE(pause_returns_after_a_handler)
{
    handle(SIGUSR1, count, SA_RESTART);
    pid_t child = pesterer(SIGUSR1);
    CHECK_ERRNO(pause(), EINTR);
    CHECK(handled > 0);
    end_pesterer(child);
}

CASE(sigtimedwait_takes_times_out_and_is_interrupted)
{
    sigset_t set = set_of(SIGUSR1);
    siginfo_t information;
    struct timespec none = {0, 0}, little = {0, 20000000}, wrong = {0, 1000000000}, long_time = {1000, 0};
    CHECK_OK(sigprocmask(SIG_BLOCK, &set, NULL));
    CHECK_ERRNO(sigtimedwait(&set, &information, &none), EAGAIN);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK_ERRNO(sigtimedwait(&set, &information, &little), EAGAIN);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 20000000);
    CHECK_OK(kill(getpid(), SIGUSR1));
    CHECK_EQ(sigtimedwait(&set, &information, &none), SIGUSR1);
    CHECK_EQ(information.si_pid, getpid());
    CHECK(!is_pending(SIGUSR1));
    CHECK_ERRNO(syscall(SYS_rt_sigtimedwait, &set, NULL, &wrong, 8), EINVAL);
    CHECK_ERRNO(syscall(SYS_rt_sigtimedwait, BAD_LOW, NULL, &none, 8), EFAULT);
    CHECK_ERRNO(syscall(SYS_rt_sigtimedwait, &set, NULL, BAD_LOW, 8), EFAULT);
    CHECK_ERRNO(syscall(SYS_rt_sigtimedwait, &set, NULL, &none, 3), EINVAL);
    handle(SIGUSR2, count, 0);
    pid_t child = pesterer(SIGUSR2);
    CHECK_ERRNO(syscall(SYS_rt_sigtimedwait, &set, NULL, &long_time, 8), EINTR);
    end_pesterer(child);
    child = pesterer(SIGUSR1);
    CHECK_EQ(syscall(SYS_rt_sigtimedwait, &set, NULL, NULL, 8), SIGUSR1);
    end_pesterer(child);
}

static volatile char *seen_stack;

static void look_at_stack(int number)
{
    char local;
    (void)number;
    handled++;
    seen_stack = &local;
    stack_t now;
    CHECK_OK(sigaltstack(NULL, &now));
    CHECK(now.ss_flags & SS_ONSTACK);
    CHECK_ERRNO(syscall(SYS_sigaltstack, &now, NULL), EPERM);
}

CASE(alternate_stack_is_used)
{
    static char memory[65536];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory}, old;
    CHECK_OK(sigaltstack(&stack, &old));
    CHECK_EQ(old.ss_flags, SS_DISABLE);
    handle(SIGUSR1, look_at_stack, SA_ONSTACK);
    raise(SIGUSR1);
    CHECK(seen_stack >= memory && seen_stack < memory + sizeof memory);
    CHECK_OK(sigaltstack(NULL, &old));
    CHECK(old.ss_sp == memory);
    CHECK_EQ(old.ss_flags, 0);
    handle(SIGUSR1, count, 0);
    raise(SIGUSR1);
    CHECK_EQ(handled, 2);
    stack.ss_size = 100;
    CHECK_ERRNO(syscall(SYS_sigaltstack, &stack, NULL), ENOMEM);
    stack.ss_flags = 77;
    CHECK_ERRNO(syscall(SYS_sigaltstack, &stack, NULL), EINVAL);
    CHECK_ERRNO(syscall(SYS_sigaltstack, BAD_LOW, NULL), EFAULT);
    CHECK_ERRNO(syscall(SYS_sigaltstack, NULL, BAD_LOW), EFAULT);
    stack.ss_flags = SS_DISABLE;
    CHECK_OK(sigaltstack(&stack, NULL));
}

static sigjmp_buf overflow_return;

static void leave_overflow(int number)
{
    siglongjmp(overflow_return, number);
}

static int overflow(int depth)
{
    volatile char block[4096];
    block[0] = (char)depth;
    return depth < 0 ? 0 : overflow(depth + 1) + block[0];
}

CASE(stack_overflow_is_handled_on_the_alternate_stack)
{
    static char memory[65536];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    CHECK_OK(sigaltstack(&stack, NULL));
    handle(SIGSEGV, leave_overflow, SA_ONSTACK);
    int number = sigsetjmp(overflow_return, 1);
    if (number == 0)
        overflow(0);
    CHECK_EQ(number, SIGSEGV);
}

CASE(no_stack_for_the_frame_kills)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        handle(SIGUSR1, count, 0);
        long number = SYS_kill;
        long self = getpid();
        __asm__ volatile("xor %%esp, %%esp; syscall; ud2"
                         : "+a"(number)
                         : "D"(self), "S"((long)SIGUSR1)
                         : "rcx", "r11", "memory");
        _exit(0);
    }
    CHECK_KILLED(child, SIGSEGV);
}

CASE(blocked_fault_kills)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        sigset_t set = set_of(SIGSEGV);
        handle(SIGSEGV, count, 0);
        sigprocmask(SIG_BLOCK, &set, NULL);
        *(volatile int *)BAD_LOW = 1;
        _exit(0);
    }
    CHECK_KILLED(child, SIGSEGV);
    child = fork_or_fail();
    if (child == 0) {
        signal(SIGSEGV, SIG_IGN);
        *(volatile int *)BAD_LOW = 1;
        _exit(0);
    }
    CHECK_KILLED(child, SIGSEGV);
}

CASE(forged_sigreturn_kills_only_its_process)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        syscall(SYS_rt_sigreturn); /* The stack holds no frame. */
        _exit(0);
    }
    int status = harness_wait(child);
    CHECK(WIFSIGNALED(status));
    child = fork_or_fail();
    if (child == 0) {
        long number = SYS_rt_sigreturn;
        __asm__ volatile("mov %1, %%rsp; syscall; ud2"
                         : "+a"(number)
                         : "r"(BAD_KERNEL)
                         : "rcx", "r11", "memory");
    }
    CHECK_KILLED(child, SIGSEGV);
}

static void point_to_kernel(int number, siginfo_t *information, void *context)
{
    ucontext_t *frame = context;
    (void)number;
    (void)information;
    frame->uc_mcontext.gregs[REG_RIP] = (long)BAD_KERNEL;
    frame->uc_mcontext.gregs[REG_EFL] |= 0x3000 | 0x4000; /* IOPL and NT: not for users. */
    frame->uc_mcontext.gregs[REG_CSGSFS] = 0x0010; /* A kernel selector. */
}

CASE(context_with_kernel_values_is_harmless)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        struct sigaction action = {.sa_sigaction = point_to_kernel, .sa_flags = SA_SIGINFO};
        sigaction(SIGUSR1, &action, NULL);
        raise(SIGUSR1);
        _exit(0);
    }
    int status = harness_wait(child);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS);
}

CASE(alarm_counts_down_and_replaces)
{
    handle(SIGALRM, count, 0);
    CHECK(alarm(100) > 0); /* The harness's own. */
    unsigned left = alarm(1);
    CHECK(left >= 99 && left <= 100);
    while (!handled)
        pause();
    CHECK_EQ(last_signal, SIGALRM);
    CHECK_EQ(alarm(0), 0);
    alarm(30);
}

CASE(interval_timer_repeats)
{
    struct itimerval timer = {{0, 10000}, {0, 10000}}, old;
    handle_information(SIGALRM, 0);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK_OK(setitimer(ITIMER_REAL, &timer, &old));
    while (handled < 5)
        pause();
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 50000000);
    CHECK_EQ(last_information.si_code, SI_KERNEL);
    CHECK_OK(getitimer(ITIMER_REAL, &old));
    CHECK_EQ(old.it_interval.tv_usec, 10000);
    CHECK(old.it_value.tv_sec == 0 && old.it_value.tv_usec <= 10000);
    timer = (struct itimerval){{0, 0}, {30, 0}};
    CHECK_OK(setitimer(ITIMER_REAL, &timer, NULL));
    timer.it_value.tv_usec = 1000000;
    CHECK_ERRNO(setitimer(ITIMER_REAL, &timer, NULL), EINVAL);
    CHECK_ERRNO(syscall(SYS_setitimer, 99, &timer, NULL), EINVAL);
    CHECK_ERRNO(syscall(SYS_setitimer, ITIMER_REAL, BAD_LOW, NULL), EFAULT);
    CHECK_ERRNO(syscall(SYS_getitimer, ITIMER_REAL, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_getitimer, 3, &timer), EINVAL);
}

CASE(cpu_timers_fire)
{
    struct itimerval timer = {{0, 0}, {0, 20000}};
    handle(SIGVTALRM, count, 0);
    CHECK_OK(setitimer(ITIMER_VIRTUAL, &timer, NULL));
    while (!handled)
        ;
    CHECK_EQ(last_signal, SIGVTALRM);
    handle(SIGPROF, count, 0);
    CHECK_OK(setitimer(ITIMER_PROF, &timer, NULL));
    while (last_signal != SIGPROF)
        getppid();
}

CASE(sigpipe_and_epipe)
{
    int ends[2];
    CHECK_OK(pipe(ends));
    close(ends[0]);
    handle(SIGPIPE, count, 0);
    CHECK_ERRNO(write(ends[1], "x", 1), EPIPE);
    CHECK_EQ(handled, 1);
    signal(SIGPIPE, SIG_IGN);
    CHECK_ERRNO(write(ends[1], "x", 1), EPIPE);
    CHECK_EQ(write(ends[1], "x", 0), 0);
}

CASE(sigchld_flags)
{
    handle_information(SIGCHLD, SA_NOCLDSTOP);
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (;;)
            pause();
    }
    int status;
    CHECK_OK(kill(child, SIGSTOP));
    CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
    CHECK_EQ(handled, 0);
    CHECK_OK(kill(child, SIGKILL));
    while (!handled)
        sleep_ms(1);
    CHECK_EQ(last_information.si_code, CLD_KILLED);
    CHECK_EQ(last_information.si_pid, child);
    CHECK_KILLED(child, SIGKILL);
    handle_information(SIGCHLD, SA_NOCLDWAIT);
    child = fork_or_fail();
    if (child == 0)
        _exit(0);
    while (waitpid(child, &status, 0) != -1)
        ;
    CHECK_EQ(errno == ECHILD || errno == EINTR, 1);
}

CASE(continue_discards_pending_stops)
{
    sigset_t set = set_of(SIGTSTP);
    handle(SIGTSTP, count, 0);
    CHECK_OK(sigprocmask(SIG_BLOCK, &set, NULL));
    raise(SIGTSTP);
    CHECK(is_pending(SIGTSTP));
    raise(SIGCONT);
    CHECK(!is_pending(SIGTSTP));
}

CASE(setting_ignore_discards_pending)
{
    sigset_t set = set_of(SIGUSR1);
    handle(SIGUSR1, count, 0);
    CHECK_OK(sigprocmask(SIG_BLOCK, &set, NULL));
    raise(SIGUSR1);
    signal(SIGUSR1, SIG_IGN);
    CHECK(!is_pending(SIGUSR1));
    handle(SIGUSR1, count, 0);
    CHECK_OK(sigprocmask(SIG_UNBLOCK, &set, NULL));
    CHECK_EQ(handled, 0);
}

CASE(rt_sigqueueinfo_rules)
{
    siginfo_t information = {.si_code = SI_QUEUE};
    CHECK_ERRNO(syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_rt_sigqueueinfo, 0x3fffffff, SIGUSR1, &information), ESRCH);
    information.si_code = SI_USER;
    CHECK_ERRNO(syscall(SYS_rt_sigqueueinfo, getppid(), SIGUSR1, &information), EPERM);
}

CASE(flood_of_signals_loses_no_real_time_one)
{
    enum { SIGNALS = 200 };
    handle(SIGRTMIN + 3, count, SA_RESTART);
    pid_t parent = getpid();
    pid_t child = fork_or_fail();
    if (child == 0) {
        union sigval value = {0};
        for (int i = 0; i < SIGNALS; i++)
            while (sigqueue(parent, SIGRTMIN + 3, value) == -1)
                CHECK_EQ(errno, EAGAIN);
        _exit(0);
    }
    while (handled < SIGNALS)
        getppid();
    CHECK_EXITED(child, 0);
    CHECK_EQ(handled, SIGNALS);
}
