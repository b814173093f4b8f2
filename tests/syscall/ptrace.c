/* Tracing: stops for signals, calls and events, memory and registers of the tracee, who may trace whom. */
#include "harness.h"
#include <elf.h>
#include <stddef.h>
#include <pthread.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#define TRAP_FOR_CALL (SIGTRAP | 0x80)

static long trace(long request, pid_t pid, void *address, void *data)
{
    return syscall(SYS_ptrace, request, pid, address, data);
}

static void *number(long value)
{
    return (void *)value;
}

/* The next stop of a tracee: its signal, with the event in the second byte. */
static int next_stop(pid_t pid)
{
    int status = 0;
    CHECK_EQ(waitpid(pid, &status, __WALL), pid);
    if (!WIFSTOPPED(status))
        FAIL("a stop, got status %#x", status);
    return status >> 8;
}

/* A child that is traced by its own wish and stands in its first stop. */
static pid_t traced_child(void (*act)(void))
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        if (trace(PTRACE_TRACEME, 0, 0, 0) != 0)
            _exit(90);
        raise(SIGSTOP);
        act();
        _exit(0);
    }
    CHECK_EQ(next_stop(child), SIGSTOP);
    return child;
}

static void nothing(void)
{
}

static void pause_forever(void)
{
    for (;;)
        pause();
}

static volatile long shared_word = 0x1122334455667788;

static void ends_by_word(void)
{
    _exit((int)(shared_word & 0xff));
}

CASE(memory_of_a_tracee)
{
    long word = 0;
    pid_t child = traced_child(ends_by_word);
    CHECK_OK(trace(PTRACE_PEEKDATA, child, (void *)&shared_word, &word));
    CHECK_EQ(word, 0x1122334455667788);
    CHECK_OK(trace(PTRACE_PEEKTEXT, child, (char *)&shared_word + 1, &word));
    CHECK_EQ(word & 0xffffffffffffff, 0x11223344556677);
    CHECK_OK(trace(PTRACE_POKEDATA, child, (void *)&shared_word, number(42)));
    CHECK_EQ(shared_word, 0x1122334455667788);
    CHECK_ERRNO(trace(PTRACE_PEEKDATA, child, BAD_LOW, &word), EIO);
    CHECK_ERRNO(trace(PTRACE_POKEDATA, child, BAD_KERNEL, 0), EIO);
    CHECK_ERRNO(trace(PTRACE_PEEKDATA, child, (void *)&shared_word, BAD_LOW), EFAULT);
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EXITED(child, 42);
}

__attribute__((noinline, noclone)) static int breaks_here(int value)
{
    __asm__ volatile("" ::: "memory");
    return value + 1;
}

static void calls_it(void)
{
    _exit(breaks_here(6));
}

CASE(a_breakpoint_in_code)
{
    struct user_regs_struct registers;
    long word = 0, at = (long)breaks_here;
    pid_t child = traced_child(calls_it);
    CHECK_OK(trace(PTRACE_PEEKTEXT, child, number(at), &word));
    CHECK_OK(trace(PTRACE_POKETEXT, child, number(at), number((word & ~0xffl) | 0xcc)));
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EQ(next_stop(child), SIGTRAP);
    CHECK_OK(trace(PTRACE_GETREGS, child, 0, &registers));
    CHECK_EQ(registers.rip, at + 1);
    CHECK_EQ(registers.orig_rax, -1);
    CHECK_OK(trace(PTRACE_POKETEXT, child, number(at), number(word)));
    registers.rip = (unsigned long)at;
    registers.rdi = 10;
    CHECK_OK(trace(PTRACE_SETREGS, child, 0, &registers));
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EXITED(child, 11);
    CHECK_EQ(breaks_here(1), 2);
}

static void counts_down(void)
{
    __asm__ volatile("movl $5, %%ecx\n1:\tdecl %%ecx\n\tjnz 1b\n\tint3" ::: "rcx", "cc");
}

CASE(one_instruction_at_a_time)
{
    struct user_regs_struct registers;
    siginfo_t info;
    int steps = 0;
    long before = 0;
    pid_t child = traced_child(counts_down);
    do {
        CHECK_OK(trace(PTRACE_GETREGS, child, 0, &registers));
        CHECK(steps == 0 || before != (long)registers.rip || registers.rcx != 0);
        before = (long)registers.rip;
        CHECK_OK(trace(PTRACE_SINGLESTEP, child, 0, 0));
        CHECK_EQ(next_stop(child), SIGTRAP);
        CHECK_OK(trace(PTRACE_GETSIGINFO, child, 0, &info));
        CHECK_EQ(info.si_signo, SIGTRAP);
        CHECK(++steps < 100000);
    } while (info.si_code != SI_KERNEL);
    CHECK(steps > 10);
    CHECK_OK(trace(PTRACE_GETREGS, child, 0, &registers));
    CHECK_EQ(registers.eflags & 0x100, 0);
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EXITED(child, 0);
}

static void makes_calls(void)
{
    if (syscall(SYS_getppid) != 77)
        _exit(1);
    if (syscall(SYS_close, 1000) != -1 || errno != EBADF)
        _exit(2);
    if (syscall(SYS_getuid) == -1)
        _exit(3);
}

CASE(calls_are_seen_and_changed)
{
    struct user_regs_struct registers;
    struct __ptrace_syscall_info what;
    pid_t child = traced_child(makes_calls);
    CHECK_OK(trace(PTRACE_SETOPTIONS, child, 0, number(PTRACE_O_TRACESYSGOOD)));
    do {
        CHECK_OK(trace(PTRACE_SYSCALL, child, 0, 0));
        CHECK_EQ(next_stop(child), TRAP_FOR_CALL);
        CHECK_OK(trace(PTRACE_GETREGS, child, 0, &registers));
    } while (registers.orig_rax != SYS_getppid);
    CHECK_EQ((long)registers.rax, -ENOSYS);
    CHECK_EQ(trace(PTRACE_GET_SYSCALL_INFO, child, number(sizeof what), &what), 80);
    CHECK_EQ(what.op, PTRACE_SYSCALL_INFO_ENTRY);
    CHECK_EQ(what.entry.nr, SYS_getppid);
    CHECK_EQ(what.arch, 0xc000003e);
    CHECK_OK(trace(PTRACE_SYSCALL, child, 0, 0));
    CHECK_EQ(next_stop(child), TRAP_FOR_CALL);
    CHECK_OK(trace(PTRACE_GETREGS, child, 0, &registers));
    CHECK_EQ(registers.rax, getpid());
    registers.rax = 77;
    CHECK_OK(trace(PTRACE_SETREGS, child, 0, &registers));
    CHECK_OK(trace(PTRACE_SYSCALL, child, 0, 0));
    CHECK_EQ(next_stop(child), TRAP_FOR_CALL);
    CHECK_OK(trace(PTRACE_SYSCALL, child, 0, 0));
    CHECK_EQ(next_stop(child), TRAP_FOR_CALL);
    CHECK_EQ(trace(PTRACE_GET_SYSCALL_INFO, child, number(sizeof what), &what), 33);
    CHECK_EQ(what.op, PTRACE_SYSCALL_INFO_EXIT);
    CHECK_EQ(what.exit.rval, -EBADF);
    CHECK_EQ(what.exit.is_error, 1);
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EXITED(child, 0);
}

static void asks_for_its_user(void)
{
    if (syscall(SYS_getuid) != 123)
        _exit(1);
}

CASE(a_call_that_is_taken_away)
{
    struct user_regs_struct registers;
    pid_t child = traced_child(asks_for_its_user);
    do {
        CHECK_OK(trace(PTRACE_SYSCALL, child, 0, 0));
        CHECK_EQ(next_stop(child), SIGTRAP);
        CHECK_OK(trace(PTRACE_GETREGS, child, 0, &registers));
    } while (registers.orig_rax != SYS_getuid);
    CHECK_OK(trace(PTRACE_POKEUSER, child, number(offsetof(struct user, regs.orig_rax)), number(-1)));
    CHECK_OK(trace(PTRACE_SYSCALL, child, 0, 0));
    CHECK_EQ(next_stop(child), SIGTRAP);
    CHECK_OK(trace(PTRACE_POKEUSER, child, number(offsetof(struct user, regs.rax)), number(123)));
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EXITED(child, 0);
}

static volatile int signals_taken;

static void takes(int signal_number)
{
    signals_taken += signal_number;
}

static void sends_itself(void)
{
    signal(SIGUSR1, takes);
    signal(SIGUSR2, takes);
    raise(SIGUSR1);
    raise(SIGUSR1);
    _exit(signals_taken);
}

CASE(signals_are_shown_first)
{
    siginfo_t info;
    pid_t child = traced_child(sends_itself);
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EQ(next_stop(child), SIGUSR1);
    CHECK_OK(trace(PTRACE_GETSIGINFO, child, 0, &info));
    CHECK_EQ(info.si_signo, SIGUSR1);
    CHECK_EQ(info.si_pid, child);
    /* The first is swallowed, the second becomes another one. */
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EQ(next_stop(child), SIGUSR1);
    CHECK_ERRNO(trace(PTRACE_CONT, child, 0, number(1000)), EIO);
    CHECK_OK(trace(PTRACE_CONT, child, 0, number(SIGUSR2)));
    CHECK_EXITED(child, SIGUSR2);
}

CASE(an_ignored_signal_is_shown_too)
{
    pid_t child = traced_child(pause_forever);
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_OK(kill(child, SIGWINCH));
    CHECK_EQ(next_stop(child), SIGWINCH);
    CHECK_OK(trace(PTRACE_CONT, child, 0, number(SIGWINCH)));
    CHECK_OK(kill(child, SIGTERM));
    CHECK_EQ(next_stop(child), SIGTERM);
    CHECK_OK(trace(PTRACE_CONT, child, 0, number(SIGTERM)));
    CHECK_KILLED(child, SIGTERM);
}

static void forks(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(5);
    waitpid(child, 0, 0);
}

CASE(children_are_traced_on_demand)
{
    unsigned long born = 0;
    int status = 0, options = PTRACE_O_TRACEFORK | PTRACE_O_TRACEEXIT;
    pid_t child = traced_child(forks);
    CHECK_OK(trace(PTRACE_SETOPTIONS, child, 0, number(options)));
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EQ(next_stop(child), SIGTRAP | PTRACE_EVENT_FORK << 8);
    CHECK_OK(trace(PTRACE_GETEVENTMSG, child, 0, &born));
    CHECK(born > 0 && (pid_t)born != child);
    CHECK_EQ(next_stop((pid_t)born), SIGSTOP);
    CHECK_OK(trace(PTRACE_CONT, (pid_t)born, 0, 0));
    CHECK_EQ(next_stop((pid_t)born), SIGTRAP | PTRACE_EVENT_EXIT << 8);
    CHECK_OK(trace(PTRACE_CONT, (pid_t)born, 0, 0));
    /* It is no child of ours, but its end is told all the same. */
    CHECK_EQ(waitpid((pid_t)born, &status, __WALL), (pid_t)born);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EQ(next_stop(child), SIGCHLD);
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EQ(next_stop(child), SIGTRAP | PTRACE_EVENT_EXIT << 8);
    CHECK_OK(trace(PTRACE_DETACH, child, 0, 0));
    CHECK_EXITED(child, 0);
}

static void *ends_at_once(void *argument)
{
    return argument;
}

static void makes_a_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, 0, ends_at_once, 0) != 0 || pthread_join(thread, 0) != 0)
        _exit(1);
    _exit(3);
}

CASE(threads_are_traced_on_demand)
{
    unsigned long born = 0;
    int status = 0;
    pid_t child = traced_child(makes_a_thread);
    CHECK_OK(trace(PTRACE_SETOPTIONS, child, 0, number(PTRACE_O_TRACECLONE)));
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EQ(next_stop(child), SIGTRAP | PTRACE_EVENT_CLONE << 8);
    CHECK_OK(trace(PTRACE_GETEVENTMSG, child, 0, &born));
    CHECK_EQ(next_stop((pid_t)born), SIGSTOP);
    CHECK_OK(trace(PTRACE_CONT, (pid_t)born, 0, 0));
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EQ(waitpid((pid_t)born, &status, __WALL), (pid_t)born);
    CHECK(WIFEXITED(status));
    CHECK_EXITED(child, 3);
}

static void executes(void)
{
    execl("/proc/self/exe", "again", "--list", (char *)0);
    _exit(91);
}

CASE(a_new_program_stops)
{
    int status = 0;
    pid_t child = traced_child(executes);
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EQ(next_stop(child), SIGTRAP);
    CHECK_OK(trace(PTRACE_KILL, child, 0, 0));
    CHECK_KILLED(child, SIGKILL);
    child = traced_child(executes);
    CHECK_OK(trace(PTRACE_SETOPTIONS, child, 0, number(PTRACE_O_TRACEEXEC)));
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EQ(next_stop(child), SIGTRAP | PTRACE_EVENT_EXEC << 8);
    CHECK_OK(kill(child, SIGKILL));
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

CASE(attaching_stops_and_detaching_lets_go)
{
    int status = 0;
    pid_t child = fork_or_fail();
    if (child == 0)
        for (;;)
            pause();
    CHECK_OK(trace(PTRACE_ATTACH, child, 0, 0));
    CHECK_EQ(next_stop(child), SIGSTOP);
    CHECK_ERRNO(trace(PTRACE_ATTACH, child, 0, 0), EPERM);
    CHECK_ERRNO(trace(PTRACE_INTERRUPT, child, 0, 0), EIO);
    CHECK_ERRNO(trace(PTRACE_DETACH, child, 0, number(999)), EIO);
    CHECK_OK(trace(PTRACE_DETACH, child, 0, number(SIGTERM)));
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

CASE(seizing_does_not_stop)
{
    int status = 0;
    siginfo_t info;
    pid_t child = fork_or_fail();
    if (child == 0)
        for (;;)
            pause();
    CHECK_ERRNO(trace(PTRACE_SEIZE, child, number(1), 0), EIO);
    CHECK_ERRNO(trace(PTRACE_SEIZE, child, 0, number(1 << 30)), EIO);
    CHECK_OK(trace(PTRACE_SEIZE, child, 0, number(PTRACE_O_TRACESYSGOOD)));
    CHECK_EQ(waitpid(child, &status, WNOHANG | WUNTRACED), 0);
    CHECK_ERRNO(trace(PTRACE_CONT, child, 0, 0), ESRCH);
    CHECK_OK(trace(PTRACE_INTERRUPT, child, 0, 0));
    CHECK_EQ(next_stop(child), SIGTRAP | PTRACE_EVENT_STOP << 8);
    CHECK_OK(trace(PTRACE_GETSIGINFO, child, 0, &info));
    CHECK_EQ(info.si_code, SIGTRAP | PTRACE_EVENT_STOP << 8);
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_OK(kill(child, SIGSTOP));
    CHECK_EQ(next_stop(child), SIGSTOP);
    CHECK_OK(trace(PTRACE_CONT, child, 0, number(SIGSTOP)));
    CHECK_EQ(next_stop(child), SIGSTOP | PTRACE_EVENT_STOP << 8);
    CHECK_OK(trace(PTRACE_LISTEN, child, 0, 0));
    CHECK_OK(kill(child, SIGCONT));
    CHECK_EQ(next_stop(child), SIGTRAP | PTRACE_EVENT_STOP << 8);
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EQ(next_stop(child), SIGCONT);
    CHECK_OK(trace(PTRACE_DETACH, child, 0, 0));
    CHECK_OK(kill(child, SIGKILL));
    CHECK_KILLED(child, SIGKILL);
}

CASE(who_may_not_be_traced)
{
    pid_t child, other;
    long word;
    CHECK_ERRNO(trace(PTRACE_ATTACH, getpid(), 0, 0), EPERM);
    CHECK_ERRNO(trace(PTRACE_ATTACH, 999999, 0, 0), ESRCH);
    CHECK_ERRNO(trace(PTRACE_PEEKDATA, 999999, (void *)&shared_word, &word), ESRCH);
    other = fork_or_fail();
    if (other == 0)
        for (;;)
            pause();
    CHECK_ERRNO(trace(PTRACE_CONT, other, 0, 0), ESRCH);
    child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setgid(65534));
        CHECK_OK(setuid(65534));
        CHECK_ERRNO(trace(PTRACE_ATTACH, other, 0, 0), EPERM);
        CHECK_OK(trace(PTRACE_TRACEME, 0, 0, 0));
        CHECK_ERRNO(trace(PTRACE_TRACEME, 0, 0, 0), EPERM);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_OK(kill(other, SIGKILL));
    CHECK_KILLED(other, SIGKILL);
}

CASE(requests_that_fail)
{
    struct user_regs_struct registers;
    struct iovec part = {&registers, sizeof registers};
    long word = 0, mask = 0;
    pid_t child = traced_child(nothing);
    CHECK_ERRNO(trace(-1, child, 0, 0), EIO);
    CHECK_ERRNO(trace(PTRACE_GETREGS, child, 0, BAD_LOW), EFAULT);
    CHECK_ERRNO(trace(PTRACE_SETREGS, child, 0, BAD_LOW), EFAULT);
    CHECK_ERRNO(trace(PTRACE_GETFPREGS, child, 0, BAD_LOW), EFAULT);
    CHECK_ERRNO(trace(PTRACE_GETSIGINFO, child, 0, BAD_LOW), EFAULT);
    CHECK_ERRNO(trace(PTRACE_SETSIGINFO, child, 0, BAD_LOW), EFAULT);
    CHECK_ERRNO(trace(PTRACE_SETOPTIONS, child, 0, number(-1)), EINVAL);
    CHECK_ERRNO(trace(PTRACE_PEEKUSER, child, number(3), &word), EIO);
    CHECK_ERRNO(trace(PTRACE_PEEKUSER, child, number(928), &word), EIO);
    CHECK_ERRNO(trace(PTRACE_PEEKUSER, child, number(-8), &word), EIO);
    CHECK_ERRNO(trace(PTRACE_POKEUSER, child, number(928), 0), EIO);
    CHECK_ERRNO(trace(PTRACE_POKEUSER, child, number(offsetof(struct user, regs.cs)), 0), EIO);
    CHECK_ERRNO(trace(PTRACE_GETSIGMASK, child, number(4), &mask), EINVAL);
    CHECK_OK(trace(PTRACE_GETSIGMASK, child, number(8), &mask));
    CHECK_ERRNO(trace(PTRACE_GETREGSET, child, number(12345), &part), EINVAL);
    CHECK_OK(trace(PTRACE_GETREGSET, child, number(NT_PRSTATUS), &part));
    CHECK_EQ(part.iov_len, sizeof registers);
    CHECK_OK(trace(PTRACE_PEEKUSER, child, number(offsetof(struct user, regs.rip)), &word));
    CHECK_EQ(word, registers.rip);
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EXITED(child, 0);
}

static void has_a_number(void)
{
    double value = 0;
    __asm__ volatile("int3\n\tmovsd %%xmm7, %0" : "=m"(value)::"xmm7");
    _exit(value == 2.5 ? 0 : 1);
}

static void gathers_signals(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (int value = 0; value < 3; value++)
        sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = value});
    syscall(SYS_tgkill, getpid(), getpid(), SIGUSR1);
    raise(SIGSTOP);
    pause_forever();
}

CASE(pending_signals_are_looked_at)
{
    struct {
        uint64_t start;
        uint32_t flags;
        int32_t count;
    } wanted = {0, 1, 10};
    siginfo_t found[10];
    pid_t child = traced_child(gathers_signals);
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    while (next_stop(child) != SIGSTOP)
        CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EQ(trace(PTRACE_PEEKSIGINFO, child, &wanted, found), 3);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(found[i].si_signo, SIGRTMIN + 3);
        CHECK_EQ(found[i].si_code, SI_QUEUE);
        CHECK_EQ(found[i].si_value.sival_int, i);
    }
    wanted.start = 2;
    CHECK_EQ(trace(PTRACE_PEEKSIGINFO, child, &wanted, found), 1);
    CHECK_EQ(found[0].si_value.sival_int, 2);
    wanted.start = 3;
    CHECK_EQ(trace(PTRACE_PEEKSIGINFO, child, &wanted, found), 0);
    wanted.start = 0;
    wanted.count = 2;
    CHECK_EQ(trace(PTRACE_PEEKSIGINFO, child, &wanted, found), 2);
    CHECK_ERRNO(trace(PTRACE_PEEKSIGINFO, child, &wanted, BAD_LOW), EFAULT);
    CHECK_ERRNO(trace(PTRACE_PEEKSIGINFO, child, BAD_LOW, found), EFAULT);
    wanted.flags = 0;
    CHECK_EQ(trace(PTRACE_PEEKSIGINFO, child, &wanted, found), 1);
    CHECK_EQ(found[0].si_signo, SIGUSR1);
    wanted.flags = 2;
    CHECK_ERRNO(trace(PTRACE_PEEKSIGINFO, child, &wanted, found), EINVAL);
    wanted.flags = 0;
    wanted.count = -1;
    CHECK_ERRNO(trace(PTRACE_PEEKSIGINFO, child, &wanted, found), EINVAL);
    CHECK_OK(kill(child, SIGKILL));
    CHECK_KILLED(child, SIGKILL);
}

CASE(floating_point_registers)
{
    struct user_fpregs_struct state;
    double value = 2.5;
    pid_t child = traced_child(has_a_number);
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EQ(next_stop(child), SIGTRAP);
    CHECK_OK(trace(PTRACE_GETFPREGS, child, 0, &state));
    CHECK_EQ(state.mxcsr, 0x1f80);
    memcpy(&state.xmm_space[7 * 4], &value, sizeof value);
    CHECK_OK(trace(PTRACE_SETFPREGS, child, 0, &state));
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EXITED(child, 0);
}

CASE(the_end_of_a_tracer_lets_go_or_kills)
{
    int ends[2], kills;
    for (kills = 0; kills < 2; kills++) {
        pid_t child, tracer;
        int status = 0;
        char ready;
        CHECK_OK(pipe(ends));
        child = fork_or_fail();
        if (child == 0)
            for (;;)
                pause();
        tracer = fork_or_fail();
        if (tracer == 0) {
            CHECK_OK(trace(PTRACE_SEIZE, child, 0, number(kills ? PTRACE_O_EXITKILL : 0)));
            CHECK_EQ(write(ends[1], "x", 1), 1);
            _exit(0);
        }
        CHECK_EQ(read(ends[0], &ready, 1), 1);
        CHECK_EXITED(tracer, 0);
        if (!kills)
            CHECK_OK(kill(child, SIGTERM));
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == (kills ? SIGKILL : SIGTERM));
    }
}

CASE(what_proc_says_of_a_tracee)
{
    char path[40], text[4096], *found;
    pid_t child = traced_child(nothing);
    int file;
    ssize_t length;
    snprintf(path, sizeof path, "/proc/%d/status", child);
    file = open(path, O_RDONLY);
    length = read(file, text, sizeof text - 1);
    CHECK(length > 0);
    text[length] = 0;
    found = strstr(text, "\nTracerPid:\t");
    CHECK(found && atoi(found + 12) == getpid());
    CHECK(strstr(text, "\nState:\tt (tracing stop)\n"));
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EXITED(child, 0);
}

static void sleeps(void)
{
    struct timespec long_time = {1000, 0};
    int result = (int)syscall(SYS_nanosleep, &long_time, 0);
    _exit(result == 0 ? 7 : errno == EINTR ? 8 : 9);
}

CASE(an_interrupted_call_goes_on_or_is_given_up)
{
    struct user_regs_struct registers;
    pid_t child = traced_child(sleeps);
    do {
        CHECK_OK(trace(PTRACE_SYSCALL, child, 0, 0));
        CHECK_EQ(next_stop(child), SIGTRAP);
        CHECK_OK(trace(PTRACE_GETREGS, child, 0, &registers));
    } while (registers.orig_rax != SYS_nanosleep);
    CHECK_OK(trace(PTRACE_SYSCALL, child, 0, 0));
    CHECK_OK(kill(child, SIGUSR1));
    CHECK_EQ(next_stop(child), SIGTRAP);
    CHECK_OK(trace(PTRACE_GETREGS, child, 0, &registers));
    CHECK_EQ((long)registers.rax, -516);
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EQ(next_stop(child), SIGUSR1);
    /* It is made again without the signal; as it has no call and a result, not. */
    CHECK_OK(trace(PTRACE_GETREGS, child, 0, &registers));
    CHECK_EQ((long)registers.rax, -516);
    registers.orig_rax = -1ul;
    registers.rax = 0;
    CHECK_OK(trace(PTRACE_SETREGS, child, 0, &registers));
    CHECK_OK(trace(PTRACE_CONT, child, 0, 0));
    CHECK_EXITED(child, 7);
}
