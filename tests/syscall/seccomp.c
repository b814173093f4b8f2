/* seccomp: strict mode, filters in classic BPF, what they inherit, and what is refused. */
#include "harness.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <stddef.h>
#include <ucontext.h>

#define SET_STRICT 0
#define SET_FILTER 1
#define GET_ACTION 2
#define GET_SIZES 3
#define TSYNC 1
#define TSYNC_ESRCH 16

#define KILL_PROCESS 0x80000000U
#define KILL_THREAD 0U
#define RET_TRAP 0x30000U
#define RET_ERRNO 0x50000U
#define RET_TRACE 0x7ff00000U
#define RET_LOG 0x7ffc0000U
#define ALLOW 0x7fff0000U

struct instruction {
    uint16_t code;
    uint8_t yes, no;
    uint32_t k;
};
struct program {
    uint16_t count;
    struct instruction *instructions;
};

#define LOAD(offset) {0x20, 0, 0, offset}
#define EQUAL(value, yes, no) {0x15, yes, no, value}
#define RETURN(value) {0x06, 0, 0, value}

static int seccomp_(unsigned operation, unsigned flags, void *arguments)
{
    return (int)syscall(317, operation, flags, arguments);
}

static int install(struct instruction *instructions, int count)
{
    struct program program = {(uint16_t)count, instructions};
    return seccomp_(SET_FILTER, 0, &program);
}

static int refuse(int number, unsigned verdict)
{
    struct instruction filter[] = {LOAD(0), EQUAL((uint32_t)number, 0, 1), RETURN(verdict), RETURN(ALLOW)};
    return install(filter, 4);
}

static long line_of_status(const char *name)
{
    static char text[8192];
    char *found;
    slurp("/proc/self/status", text, sizeof text);
    found = strstr(text, name);
    return found ? strtol(found + strlen(name), NULL, 10) : -1;
}

CASE(strict_mode_leaves_four_calls)
{
    int ends[2];
    char byte = 0;
    pid_t child;
    CHECK_OK(pipe(ends));
    child = fork_or_fail();
    if (child == 0) {
        if (prctl(PR_SET_SECCOMP, 1, 0, 0, 0) == -1)
            _exit(5);
        write(ends[1], "x", 1);
        read(ends[0], &byte, 1);
        syscall(SYS_exit, byte == 'x' ? 7 : 8);
    }
    CHECK_EXITED(child, 7);
}

static void after_strict(void (*act)(void))
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        if (seccomp_(SET_STRICT, 0, NULL) == -1)
            _exit(5);
        act();
        syscall(SYS_exit, 0);
    }
    CHECK_KILLED(child, SIGKILL);
}

static void ask_number(void)
{
    syscall(SYS_getpid);
}
static void end_group(void)
{
    _exit(0);
}
static void ask_mode(void)
{
    prctl(PR_GET_SECCOMP);
}
static void call_nothing(void)
{
    syscall(5000);
}

CASE(strict_mode_kills)
{
    after_strict(ask_number);
    after_strict(end_group);
    after_strict(ask_mode);
    after_strict(call_nothing);
}

CASE(arguments_are_checked)
{
    struct instruction filter[] = {RETURN(ALLOW)};
    struct program program = {1, filter}, empty = {0, filter}, lost = {1, BAD_LOW};
    CHECK_ERRNO(seccomp_(SET_STRICT, 1, NULL), EINVAL);
    CHECK_ERRNO(seccomp_(SET_STRICT, 0, &program), EINVAL);
    CHECK_ERRNO(seccomp_(SET_FILTER, 0x1000, &program), EINVAL);
    CHECK_ERRNO(seccomp_(SET_FILTER, 0, BAD_LOW), EFAULT);
    CHECK_ERRNO(seccomp_(SET_FILTER, 0, NULL), EFAULT);
    CHECK_ERRNO(seccomp_(SET_FILTER, 0, &empty), EINVAL);
    CHECK_ERRNO(seccomp_(SET_FILTER, 0, &lost), EFAULT);
    CHECK_ERRNO(seccomp_(99, 0, NULL), EINVAL);
    CHECK_ERRNO(prctl(PR_SET_SECCOMP, 3, NULL, 0, 0), EINVAL);
    CHECK_ERRNO(prctl(PR_SET_SECCOMP, 0, NULL, 0, 0), EINVAL);
    CHECK_ERRNO(prctl(PR_SET_SECCOMP, 2, BAD_LOW, 0, 0), EFAULT);
    CHECK_EQ(prctl(PR_GET_SECCOMP), 0);
}

CASE(actions_and_sizes)
{
    uint32_t actions[] = {KILL_PROCESS, KILL_THREAD, RET_TRAP, RET_ERRNO, RET_TRACE, RET_LOG, ALLOW};
    uint32_t unknown = 0x12340000;
    uint16_t sizes[3] = {0, 0, 0};
    size_t i;
    for (i = 0; i < sizeof actions / sizeof *actions; i++)
        CHECK_OK(seccomp_(GET_ACTION, 0, &actions[i]));
    CHECK_ERRNO(seccomp_(GET_ACTION, 0, &unknown), EOPNOTSUPP);
    CHECK_ERRNO(seccomp_(GET_ACTION, 1, &actions[0]), EINVAL);
    CHECK_ERRNO(seccomp_(GET_ACTION, 0, BAD_LOW), EFAULT);
    CHECK_OK(seccomp_(GET_SIZES, 0, sizes));
    CHECK_EQ(sizes[0], 80);
    CHECK_EQ(sizes[1], 24);
    CHECK_EQ(sizes[2], 64);
    CHECK_ERRNO(seccomp_(GET_SIZES, 1, sizes), EINVAL);
}

CASE(wrong_programs_are_refused)
{
    struct instruction past_the_record[] = {LOAD(64), RETURN(ALLOW)};
    struct instruction not_aligned[] = {LOAD(2), RETURN(ALLOW)};
    struct instruction half_word[] = {{0x28, 0, 0, 0}, RETURN(ALLOW)};
    struct instruction no_return[] = {LOAD(0)};
    struct instruction far_jump[] = {{0x05, 0, 0, 5}, RETURN(ALLOW)};
    struct instruction far_condition[] = {EQUAL(0, 4, 0), RETURN(ALLOW)};
    struct instruction by_zero[] = {{0x34, 0, 0, 0}, RETURN(ALLOW)};
    struct instruction modulus[] = {{0x94, 0, 0, 3}, RETURN(ALLOW)};
    struct instruction wide_shift[] = {{0x64, 0, 0, 32}, RETURN(ALLOW)};
    struct instruction unwritten[] = {{0x60, 0, 0, 0}, RETURN(ALLOW)};
    struct instruction no_such_word[] = {{0x02, 0, 0, 16}, RETURN(ALLOW)};
    struct instruction unknown[] = {{0xffff, 0, 0, 0}, RETURN(ALLOW)};
    CHECK_ERRNO(install(past_the_record, 2), EINVAL);
    CHECK_ERRNO(install(not_aligned, 2), EINVAL);
    CHECK_ERRNO(install(half_word, 2), EINVAL);
    CHECK_ERRNO(install(no_return, 1), EINVAL);
    CHECK_ERRNO(install(far_jump, 2), EINVAL);
    CHECK_ERRNO(install(far_condition, 2), EINVAL);
    CHECK_ERRNO(install(by_zero, 2), EINVAL);
    CHECK_ERRNO(install(modulus, 2), EINVAL);
    CHECK_ERRNO(install(wide_shift, 2), EINVAL);
    CHECK_ERRNO(install(unwritten, 2), EINVAL);
    CHECK_ERRNO(install(no_such_word, 2), EINVAL);
    CHECK_ERRNO(install(unknown, 2), EINVAL);
    CHECK_EQ(prctl(PR_GET_SECCOMP), 0);
}

CASE(a_filter_needs_rights_or_no_new_ones)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setuid(1000));
        CHECK_ERRNO(refuse(SYS_getuid, RET_ERRNO | EDOM), EACCES);
        CHECK_OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        CHECK_OK(refuse(SYS_getuid, RET_ERRNO | EDOM));
        CHECK_ERRNO(syscall(SYS_getuid), EDOM);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(calls_fail_with_the_error_of_the_filter)
{
    CHECK_OK(refuse(SYS_getuid, RET_ERRNO | EXDEV));
    CHECK_EQ(prctl(PR_GET_SECCOMP), 2);
    CHECK_EQ(line_of_status("Seccomp:"), 2);
    CHECK_EQ(line_of_status("Seccomp_filters:"), 1);
    CHECK_ERRNO(syscall(SYS_getuid), EXDEV);
    CHECK_EQ(syscall(SYS_getgid), 0);
    CHECK_OK(refuse(SYS_getgid, RET_ERRNO | 0xffff)); /* The largest error is 4095. */
    CHECK_ERRNO(syscall(SYS_getgid), 4095);
    CHECK_OK(refuse(SYS_geteuid, RET_ERRNO)); /* No error at all: 0. */
    CHECK_EQ(syscall(SYS_geteuid), 0);
    CHECK_EQ(line_of_status("Seccomp_filters:"), 3);
    CHECK_ERRNO(seccomp_(SET_STRICT, 0, NULL), EINVAL);
    CHECK_ERRNO(prctl(PR_SET_SECCOMP, 1, 0, 0, 0), EINVAL);
}

CASE(the_strictest_filter_counts)
{
    CHECK_OK(refuse(SYS_getuid, RET_ERRNO | EXDEV));
    CHECK_OK(refuse(SYS_getuid, RET_LOG));
    CHECK_ERRNO(syscall(SYS_getuid), EXDEV);
    CHECK_OK(refuse(SYS_getuid, RET_ERRNO | EDOM)); /* Of equals the newest. */
    CHECK_ERRNO(syscall(SYS_getuid), EDOM);
    CHECK_OK(refuse(SYS_getgid, RET_TRACE | 5));
    CHECK_ERRNO(syscall(SYS_getgid), ENOSYS);
    CHECK_OK(refuse(SYS_getgid, RET_ERRNO | EDOM));
    CHECK_ERRNO(syscall(SYS_getgid), EDOM);
}

CASE(arguments_and_architecture_are_seen)
{
    struct instruction filter[] = {
        LOAD(4), EQUAL(0xc000003e, 0, 7),                 /* x86-64 */
        LOAD(0), EQUAL(SYS_getpriority, 0, 5),
        LOAD(16), EQUAL(0x9abcdef0, 0, 3),                /* low half of the first argument */
        LOAD(20), EQUAL(0x12345678, 0, 1),                /* high half */
        RETURN(RET_ERRNO | EUCLEAN), RETURN(ALLOW),
    };
    CHECK_OK(install(filter, 10));
    CHECK_ERRNO(syscall(SYS_getpriority, 0x123456789abcdef0L, 0), EUCLEAN);
    CHECK_ERRNO(syscall(SYS_getpriority, 0x123456799abcdef0L, 0), EINVAL);
}

CASE(programs_compute)
{
    struct instruction filter[] = {
        LOAD(0),                      /* A = number */
        {0x02, 0, 0, 5},              /* M[5] = A */
        {0x01, 0, 0, 3},              /* X = 3 */
        {0x0c, 0, 0, 0},              /* A += X */
        {0x2c, 0, 0, 0},              /* A *= X */
        {0x34, 0, 0, 3},              /* A /= 3 */
        {0x1c, 0, 0, 0},              /* A -= X: the number again */
        {0x61, 0, 0, 5},              /* X = M[5] */
        {0x1d, 0, 2, 0},              /* A == X? */
        EQUAL(SYS_getuid, 0, 1),
        RETURN(RET_ERRNO | EDOM),
        {0x80, 0, 0, 0},              /* A = length of the record */
        EQUAL(64, 1, 0),
        RETURN(RET_ERRNO | EXDEV),
        RETURN(ALLOW),
    };
    CHECK_OK(install(filter, 15));
    CHECK_ERRNO(syscall(SYS_getuid), EDOM);
    CHECK_EQ(syscall(SYS_getgid), 0);
}

static void call_under(unsigned verdict)
{
    if (refuse(SYS_getuid, verdict) == -1)
        _exit(5);
    syscall(SYS_getuid);
    _exit(6);
}

CASE(filters_kill)
{
    unsigned verdicts[] = {KILL_PROCESS, KILL_THREAD, 0x12340000 | KILL_PROCESS};
    size_t i;
    for (i = 0; i < 3; i++) {
        pid_t child = fork_or_fail();
        int status;
        if (child == 0)
            call_under(verdicts[i]);
        status = harness_wait(child);
        CHECK(WIFSIGNALED(status));
        CHECK_EQ(WTERMSIG(status), SIGSYS);
    }
}

static void *call_in_thread(void *nothing)
{
    (void)nothing;
    if (refuse(SYS_getuid, KILL_THREAD) == -1)
        return NULL;
    syscall(SYS_getuid);
    _exit(6);
}

CASE(one_thread_is_killed)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, call_in_thread, NULL), 0);
        for (;;) { /* Until the thread is gone. */
            static char text[8192];
            slurp("/proc/self/status", text, sizeof text);
            if (strstr(text, "Threads:\t1\n"))
                break;
            sleep_ms(2);
        }
        CHECK_EQ(syscall(SYS_getuid), 0); /* The others have no filter. */
        _exit(7);
    }
    CHECK_EXITED(child, 7);
}

static volatile int seen_code, seen_errno, seen_number, seen_address_fits;
static volatile unsigned seen_architecture;

static void on_forbidden(int number, siginfo_t *info, void *context)
{
    ucontext_t *user = context;
    (void)number;
    seen_code = info->si_code;
    seen_errno = info->si_errno;
    seen_number = *(int *)((char *)info + 24);
    seen_architecture = *(unsigned *)((char *)info + 28);
    seen_address_fits = *(uint64_t *)((char *)info + 16) == (uint64_t)user->uc_mcontext.gregs[16];
    user->uc_mcontext.gregs[13] = 4711; /* RAX */
}

CASE(a_forbidden_call_can_be_emulated)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_forbidden;
    action.sa_flags = SA_SIGINFO;
    CHECK_OK(sigaction(SIGSYS, &action, NULL));
    CHECK_OK(refuse(SYS_getuid, RET_TRAP | 123));
    CHECK_EQ(syscall(SYS_getuid), 4711);
    CHECK_EQ(seen_code, 1);
    CHECK_EQ(seen_errno, 123);
    CHECK_EQ(seen_number, SYS_getuid);
    CHECK_EQ(seen_architecture, 0xc000003e);
    CHECK(seen_address_fits);
}

CASE(without_a_handler_it_kills)
{
    pid_t child = fork_or_fail();
    int status;
    if (child == 0)
        call_under(RET_TRAP);
    status = harness_wait(child);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), SIGSYS);
}

CASE(children_inherit)
{
    pid_t child;
    CHECK_OK(refuse(SYS_getuid, RET_ERRNO | EDOM));
    child = fork_or_fail();
    if (child == 0) {
        CHECK_ERRNO(syscall(SYS_getuid), EDOM);
        CHECK_OK(refuse(SYS_getgid, RET_ERRNO | EXDEV));
        CHECK_ERRNO(syscall(SYS_getgid), EXDEV);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(syscall(SYS_getgid), 0); /* The child's own does not come back. */
}

CASE(programs_inherit)
{
    char path[200];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    pid_t child;
    CHECK(length > 0);
    path[length] = 0;
    child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(refuse(SYS_umask, RET_ERRNO | EDOM));
        execl(path, "seccomp", "--no-fork", "the_program_that_inherits", (char *)NULL);
        _exit(9);
    }
    CHECK_EXITED(child, 0);
}

CASE(the_program_that_inherits)
{
    if (prctl(PR_GET_SECCOMP) == 0)
        SKIP("another case runs this one");
    CHECK_ERRNO(syscall(SYS_umask, 022), EDOM);
    _exit(0);
}

static volatile int stage;

static void *waits_for_the_filter(void *result)
{
    stage = 1;
    while (stage == 1)
        sched_yield();
    errno = 0;
    *(int *)result = syscall(SYS_getuid) == -1 ? errno : 0;
    return NULL;
}

CASE(all_threads_get_a_filter)
{
    struct instruction filter[] = {LOAD(0), EQUAL(SYS_getuid, 0, 1), RETURN(RET_ERRNO | EDOM), RETURN(ALLOW)};
    struct program program = {4, filter};
    pthread_t thread;
    int result = -1;
    CHECK_EQ(pthread_create(&thread, NULL, waits_for_the_filter, &result), 0);
    while (stage == 0)
        sched_yield();
    CHECK_EQ(seccomp_(SET_FILTER, TSYNC, &program), 0);
    stage = 2;
    pthread_join(thread, NULL);
    CHECK_EQ(result, EDOM);
}

static void *has_its_own(void *tid)
{
    if (refuse(SYS_getgid, RET_ERRNO | EXDEV) == -1)
        return NULL;
    *(int *)tid = (int)syscall(SYS_gettid);
    stage = 1;
    while (stage == 1)
        sched_yield();
    return NULL;
}

CASE(a_thread_with_filters_of_its_own_is_named)
{
    struct instruction filter[] = {LOAD(0), EQUAL(SYS_getuid, 0, 1), RETURN(RET_ERRNO | EDOM), RETURN(ALLOW)};
    struct program program = {4, filter};
    pthread_t thread;
    volatile int tid = 0;
    CHECK_EQ(pthread_create(&thread, NULL, has_its_own, (void *)&tid), 0);
    while (stage == 0)
        sched_yield();
    CHECK_EQ(seccomp_(SET_FILTER, TSYNC, &program), tid);
    CHECK_ERRNO(seccomp_(SET_FILTER, TSYNC | TSYNC_ESRCH, &program), ESRCH);
    CHECK_EQ(syscall(SYS_getuid), 0);
    stage = 2;
    pthread_join(thread, NULL);
}

CASE(filters_look_at_unknown_calls)
{
    CHECK_OK(refuse(9999, RET_ERRNO | EDOM));
    CHECK_ERRNO(syscall(9999), EDOM);
    CHECK_ERRNO(syscall(9998), ENOSYS);
}

CASE(a_chain_has_an_end)
{
    static struct instruction filter[4096];
    int i, added = 0;
    for (i = 0; i < 4096; i++)
        filter[i] = (struct instruction)RETURN(ALLOW);
    for (i = 0; i < 20 && install(filter, 4096) == 0; i++)
        added++;
    CHECK_EQ(errno, ENOMEM);
    CHECK(added > 0 && added < 20);
}
