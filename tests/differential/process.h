/* Operations on processes, signals and limits. */
#ifndef FERRY_TESTS_DIFFERENTIAL_PROCESS_H
#define FERRY_TESTS_DIFFERENTIAL_PROCESS_H

#include "common.h"

static void run_some(unsigned count, unsigned depth);

/* Signals that came to a handler since they were last told of. */
static volatile unsigned arrived[65];

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    arrived[number] += 1 + (unsigned)(info->si_code == SI_QUEUE ? info->si_value.sival_int : 0);
}

static int a_signal(void)
{
    static const int numbers[] = {SIGUSR1, SIGUSR2, SIGHUP, SIGCHLD, SIGPIPE, SIGWINCH, SIGTERM};
    return below(4) ? numbers[below(7)] : SIGRTMIN + (int)below(3);
}

static void tell_arrived(void)
{
    for (int number = 1; number < 65; number++) {
        if (arrived[number])
            tell("  arrived: signal %d, %u", number, arrived[number]);
        arrived[number] = 0;
    }
}

static void do_signal(void)
{
    int number = a_signal();
    unsigned kind = below(8), value = below(4);
    sigset_t set, before;
    long result;
    sigemptyset(&set);
    sigaddset(&set, number);
    sigaddset(&set, a_signal());
    switch (kind) {
    case 0: case 1: {
        struct sigaction action = {.sa_flags = SA_SIGINFO | (below(2) ? SA_RESTART : 0) | (below(4) ? 0 : (int)SA_RESETHAND)}, old;
        if (below(4) == 0) {
            action.sa_flags &= ~SA_SIGINFO;
            action.sa_handler = SIG_IGN;
        } else {
            action.sa_sigaction = on_signal;
        }
        sigemptyset(&action.sa_mask);
        result = sigaction(number, &action, &old);
        if (result == 0)
            result = old.sa_handler == SIG_DFL ? 0 : old.sa_handler == SIG_IGN ? 1 : 2;
        break;
    }
    case 2: result = sigprocmask((int)below(3), &set, &before); 
        if (result == 0)
            result = sigismember(&before, number);
        break;
    case 3: {
        /* It may end the process, which its parent tells. */
        struct sigaction action;
        sigaction(number, NULL, &action);
        result = action.sa_handler == SIG_DFL && below(8) ? -2 : kill(getpid(), number);
        break;
    }
    case 4: {
        struct sigaction action;
        union sigval data = {.sival_int = (int)value};
        sigaction(number, NULL, &action);
        result = action.sa_handler == SIG_DFL ? -2 : sigqueue(getpid(), number, data);
        break;
    }
    case 5: result = sigpending(&set);
        if (result == 0)
            result = sigismember(&set, number);
        break;
    case 6: {
        struct timespec none = {0, 0};
        siginfo_t info = {0};
        result = sigtimedwait(&set, &info, &none);
        if (result > 0)
            result = result << 8 | (info.si_code & 0xff);
        break;
    }
    default: {
        int slot = a_slot(), descriptor = signalfd(-1, &set, SFD_NONBLOCK);
        struct signalfd_siginfo info = {0};
        result = read(descriptor, &info, sizeof info);
        if (result > 0)
            result = (long)info.ssi_signo << 8 | (info.ssi_code & 0xff);
        keep(slot, descriptor);
    }
    }
    tell("signal(%u) %d value %u: %ld", kind, number, value, outcome(result));
    tell_arrived();
}

static void do_child(unsigned depth)
{
    unsigned ops = below(12), end = below(6), waits = below(3);
    uint64_t state = mix(random_state++);
    int is_sharing = below(3) == 0;
    sigset_t child_signal, before;
    /* When its end is told does not depend on how fast it is. */
    sigemptyset(&child_signal);
    sigaddset(&child_signal, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child_signal, &before);
    struct sigaction ignored;
    sigaction(SIGCHLD, NULL, &ignored);
    pid_t child = is_sharing ? (pid_t)syscall(SYS_clone, CLONE_FS | CLONE_SYSVSEM | SIGCHLD, 0, 0, 0, 0) : fork();
    if (child == 0) {
        random_state = state;
        sigprocmask(SIG_SETMASK, &before, NULL);
        tell("child begins");
        run_some(ops, depth + 1);
        tell("child ends");
        if (end < 2) {
            /* Not abort(): the C library knows nothing of a child by a bare clone. */
            int number = end ? SIGTERM : SIGABRT;
            sigset_t none;
            signal(number, SIG_DFL);
            sigemptyset(&none);
            sigprocmask(SIG_SETMASK, &none, NULL);
            kill(getpid(), number);
        }
        _exit((int)(state & 0xff));
    }
    int status = 0;
    siginfo_t info = {0};
    long result;
    if (waits == 0)
        result = waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
    else
        result = 0;
    long waited = waitpid(child, &status, 0);
    tell("child of %u operations: waitid %ld code %d status %d, %s, %#x", ops, outcome(result), info.si_code, info.si_status,
         waited == child ? "waited" : "not there", status);
    sigprocmask(SIG_SETMASK, &before, NULL);
    tell_arrived();
}

static void do_process(void)
{
    unsigned kind = below(7);
    long result;
    struct rlimit limit;
    switch (kind) {
    case 0: result = waitpid(-1, NULL, WNOHANG); break;
    case 1: result = setpgid(0, 0); break;
    case 2: result = getpgid(0) == getpid(); break;
    case 3:
        getrlimit(RLIMIT_FSIZE, &limit);
        limit.rlim_cur = below(2) ? RLIM_INFINITY : 2 * PAGE;
        result = setrlimit(RLIMIT_FSIZE, &limit);
        break;
    case 4: result = kill(below(2) ? getpid() : 0x3ffffff, 0); break;
    case 5: result = chdir(below(3) ? "." : a_name()); break;
    default: result = getpriority(PRIO_PROCESS, 0); break;
    }
    tell("process(%u): %ld", kind, outcome(result));
}

#endif
