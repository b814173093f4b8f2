/* System V semaphores: semget, semop, semtimedop, semctl, /proc/sysvipc/sem. */
#include "harness.h"
#include <pthread.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/sem.h>

#ifndef SEM_STAT_ANY
#define SEM_STAT_ANY 20
#endif

union argument {
    int value;
    struct semid_ds *status;
    unsigned short *values;
    struct seminfo *limits;
};

static int set_of(int count)
{
    int id = semget(IPC_PRIVATE, count, 0600);
    CHECK_OK(id);
    return id;
}

static void set_value(int id, int index, int value)
{
    union argument argument = {.value = value};
    CHECK_OK(semctl(id, index, SETVAL, argument));
}

static int value_of(int id, int index)
{
    int value = semctl(id, index, GETVAL);
    CHECK_OK(value);
    return value;
}

static int operate(int id, int index, int change, int flags)
{
    struct sembuf step = {(unsigned short)index, (short)change, (short)flags};
    return semop(id, &step, 1);
}

static void remove_set(int id)
{
    CHECK_OK(semctl(id, 0, IPC_RMID));
}

/* Waits until so many wait for semaphore `index`. */
static void until_waiting(int id, int index, int command, int count)
{
    while (semctl(id, index, command) != count)
        sleep_ms(1);
}

static void become_nobody(void)
{
    CHECK_OK(setgid(65534));
    CHECK_OK(setuid(65534));
}

CASE(a_semaphore_counts)
{
    int id = set_of(2);
    CHECK_EQ(value_of(id, 0), 0);
    CHECK_OK(operate(id, 0, 3, 0));
    CHECK_EQ(value_of(id, 0), 3);
    CHECK_OK(operate(id, 0, -2, 0));
    CHECK_EQ(value_of(id, 0), 1);
    CHECK_ERRNO(operate(id, 0, -2, IPC_NOWAIT), EAGAIN);
    CHECK_ERRNO(operate(id, 0, 0, IPC_NOWAIT), EAGAIN);
    CHECK_OK(operate(id, 1, 0, 0));
    CHECK_EQ(value_of(id, 0), 1);
    CHECK_EQ(semctl(id, 0, GETPID), getpid());
    CHECK_EQ(semctl(id, 1, GETPID), getpid());
    remove_set(id);
}

CASE(a_key_finds_a_set)
{
    key_t key = 0x5e0001;
    CHECK_ERRNO(semget(key, 1, 0), ENOENT);
    CHECK_ERRNO(semget(key, 0, IPC_CREAT | 0600), EINVAL);
    CHECK_ERRNO(semget(key, -1, IPC_CREAT | 0600), EINVAL);
    CHECK_ERRNO(semget(key, 32001, IPC_CREAT | 0600), EINVAL);
    int id = semget(key, 3, IPC_CREAT | IPC_EXCL | 0600);
    CHECK_OK(id);
    CHECK_EQ(semget(key, 0, 0), id);
    CHECK_EQ(semget(key, 3, IPC_CREAT), id);
    CHECK_ERRNO(semget(key, 4, 0), EINVAL);
    CHECK_ERRNO(semget(key, 3, IPC_CREAT | IPC_EXCL), EEXIST);
    remove_set(id);
    CHECK_ERRNO(semget(key, 0, 0), ENOENT);
}

CASE(errors_come_in_order)
{
    int id = set_of(2);
    struct sembuf steps[501];
    struct timespec wrong = {0, 1000000000};
    memset(steps, 0, sizeof steps);
    CHECK_ERRNO(semop(id, steps, 0), EINVAL);
    CHECK_ERRNO(semop(-1, steps, 501), E2BIG);
    CHECK_ERRNO(semop(id, BAD_LOW, 501), E2BIG);
    CHECK_ERRNO(semop(-1, BAD_LOW, 1), EFAULT);
    CHECK_ERRNO(semop(-1, steps, 1), EINVAL);
    CHECK_ERRNO(syscall(SYS_semtimedop, id, steps, 1, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_semtimedop, id, steps, 1, &wrong), EINVAL);
    steps[0].sem_num = 2;
    CHECK_ERRNO(semop(id, steps, 1), EFBIG);
    CHECK_OK(semop(id, steps + 1, 500));
    set_value(id, 0, 32767);
    CHECK_ERRNO(operate(id, 0, 1, 0), ERANGE);
    CHECK_EQ(value_of(id, 0), 32767);
    remove_set(id);
    CHECK_ERRNO(operate(id, 0, 1, 0), EINVAL);
}

CASE(steps_are_done_together_or_not_at_all)
{
    int id = set_of(3);
    struct sembuf steps[3] = {{0, 2, 0}, {1, 1, 0}, {2, -1, IPC_NOWAIT}};
    CHECK_ERRNO(semop(id, steps, 3), EAGAIN);
    CHECK_EQ(value_of(id, 0), 0);
    CHECK_EQ(value_of(id, 1), 0);
    struct sembuf twice[3] = {{0, 2, 0}, {0, -1, 0}, {0, -1, 0}};
    CHECK_OK(semop(id, twice, 3));
    CHECK_EQ(value_of(id, 0), 0);
    struct sembuf lock[2] = {{1, 0, 0}, {1, 1, SEM_UNDO}};
    CHECK_OK(semop(id, lock, 2));
    CHECK_EQ(value_of(id, 1), 1);
    remove_set(id);
}

CASE(waiters_go_on_when_they_can)
{
    int id = set_of(2);
    pid_t taker = fork_or_fail();
    if (taker == 0) {
        struct sembuf both[2] = {{0, -2, 0}, {1, -1, 0}};
        _exit(semop(id, both, 2) == 0 ? 0 : 1);
    }
    until_waiting(id, 0, GETNCNT, 1);
    CHECK_EQ(semctl(id, 1, GETNCNT), 0);
    CHECK_EQ(semctl(id, 0, GETZCNT), 0);
    CHECK_OK(operate(id, 0, 2, 0));
    until_waiting(id, 1, GETNCNT, 1);
    CHECK_EQ(semctl(id, 0, GETNCNT), 0);
    CHECK_EQ(value_of(id, 0), 2);
    CHECK_OK(operate(id, 1, 1, 0));
    CHECK_EXITED(taker, 0);
    CHECK_EQ(value_of(id, 0), 0);
    CHECK_EQ(value_of(id, 1), 0);
    CHECK_EQ(semctl(id, 0, GETPID), taker);
    set_value(id, 0, 1);
    pid_t zero = fork_or_fail();
    if (zero == 0)
        _exit(operate(id, 0, 0, 0) == 0 ? 0 : 1);
    until_waiting(id, 0, GETZCNT, 1);
    set_value(id, 0, 0);
    CHECK_EXITED(zero, 0);
    remove_set(id);
}

CASE(removal_ends_waits)
{
    int id = set_of(1);
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(operate(id, 0, -1, 0) == -1 && errno == EIDRM ? 0 : 1);
    until_waiting(id, 0, GETNCNT, 1);
    remove_set(id);
    CHECK_EXITED(child, 0);
}

static void ignore(int number)
{
    (void)number;
}

CASE(signals_end_waits_whatever_their_flags)
{
    int id = set_of(1);
    struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
    CHECK_OK(sigaction(SIGUSR1, &action, 0));
    pid_t child = pesterer(SIGUSR1);
    CHECK_ERRNO(operate(id, 0, -1, 0), EINTR);
    kill(child, SIGKILL);
    CHECK_KILLED(child, SIGKILL);
    CHECK_EQ(semctl(id, 0, GETNCNT), 0);
    remove_set(id);
}

CASE(a_wait_may_have_an_end)
{
    int id = set_of(1);
    struct sembuf step = {0, -1, 0};
    struct timespec timeout = {0, 20000000};
    int64_t before = now_ns(CLOCK_MONOTONIC);
    CHECK_ERRNO(semtimedop(id, &step, 1, &timeout), EAGAIN);
    CHECK(now_ns(CLOCK_MONOTONIC) - before >= 20000000);
    CHECK_OK(operate(id, 0, 1, 0));
    CHECK_OK(semtimedop(id, &step, 1, &timeout));
    CHECK_EQ(semctl(id, 0, GETNCNT), 0);
    remove_set(id);
}

CASE(undos_happen_at_the_end)
{
    int id = set_of(2);
    set_value(id, 0, 5);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(operate(id, 0, -3, SEM_UNDO));
        CHECK_OK(operate(id, 0, 1, SEM_UNDO));
        CHECK_OK(operate(id, 1, 4, SEM_UNDO));
        CHECK_OK(operate(id, 1, -3, 0));
        if (fork() == 0)
            _exit(0);
        wait(0);
        CHECK_EQ(value_of(id, 0), 3);
        kill(getpid(), SIGKILL);
    }
    CHECK_KILLED(child, SIGKILL);
    CHECK_EQ(value_of(id, 0), 5);
    CHECK_EQ(value_of(id, 1), 0);
    CHECK_EQ(semctl(id, 0, GETPID), child);
    remove_set(id);
}

CASE(undos_survive_exec_and_wake_others)
{
    int id = set_of(1);
    set_value(id, 0, 1);
    int go[2];
    CHECK_OK(pipe(go));
    pid_t holder = fork_or_fail();
    if (holder == 0) {
        CHECK_OK(operate(id, 0, -1, SEM_UNDO));
        CHECK_OK(dup2(go[0], 0));
        close(go[1]);
        char byte;
        CHECK_EQ(read(0, &byte, 1), 1);
        execl("/proc/self/exe", "sem", "--list", (char *)0);
        _exit(9);
    }
    while (value_of(id, 0) != 0)
        sleep_ms(1);
    pid_t waiter = fork_or_fail();
    if (waiter == 0)
        _exit(operate(id, 0, -1, 0) == 0 ? 0 : 1);
    until_waiting(id, 0, GETNCNT, 1);
    CHECK_EQ(write(go[1], "x", 1), 1);
    CHECK_EXITED(holder, 0);
    CHECK_EXITED(waiter, 0);
    remove_set(id);
}

CASE(setting_a_value_forgets_undos)
{
    int id = set_of(2);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(operate(id, 0, 2, SEM_UNDO));
        CHECK_OK(operate(id, 1, 2, SEM_UNDO));
        set_value(id, 0, 7);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(value_of(id, 0), 7);
    CHECK_EQ(value_of(id, 1), 0);
    child = fork_or_fail();
    if (child == 0) {
        unsigned short values[2] = {3, 4};
        union argument argument = {.values = values};
        CHECK_OK(operate(id, 0, 2, SEM_UNDO));
        CHECK_OK(semctl(id, 0, SETALL, argument));
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(value_of(id, 0), 3);
    CHECK_EQ(value_of(id, 1), 4);
    remove_set(id);
}

CASE(an_adjustment_has_limits)
{
    int id = set_of(1);
    for (int round = 0; round < 2; round++) {
        CHECK_OK(operate(id, 0, 16384, SEM_UNDO));
        CHECK_OK(operate(id, 0, -16384, 0));
    }
    CHECK_ERRNO(operate(id, 0, 1, SEM_UNDO), ERANGE);
    CHECK_EQ(value_of(id, 0), 0);
    remove_set(id);
}

static void *take(void *argument)
{
    return operate(*(int *)argument, 0, -1, SEM_UNDO) == 0 ? 0 : argument;
}

CASE(threads_share_their_undos)
{
    int id = set_of(1);
    set_value(id, 0, 2);
    pid_t child = fork_or_fail();
    if (child == 0) {
        pthread_t thread;
        void *result;
        CHECK_EQ(pthread_create(&thread, 0, take, &id), 0);
        CHECK_EQ(pthread_join(thread, &result), 0);
        CHECK(result == 0);
        CHECK_EQ(value_of(id, 0), 1);
        CHECK_OK(operate(id, 0, -1, SEM_UNDO));
        CHECK_OK(unshare(CLONE_SYSVSEM));
        /* The thread may have its share a little longer than it can be joined. */
        while (value_of(id, 0) != 2)
            sleep_ms(1);
        CHECK_OK(operate(id, 0, -1, SEM_UNDO));
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(value_of(id, 0), 2);
    remove_set(id);
}

CASE(commands_read_and_set)
{
    int id = set_of(3);
    unsigned short values[3] = {1, 2, 3}, seen[3] = {0, 0, 0};
    struct semid_ds status;
    union argument argument = {.values = values};
    CHECK_OK(semctl(id, 0, IPC_STAT, (union argument){.status = &status}));
    CHECK_EQ(status.sem_nsems, 3);
    CHECK_EQ(status.sem_otime, 0);
    CHECK(status.sem_ctime > 0);
    CHECK_OK(semctl(id, 99, SETALL, argument));
    argument.values = seen;
    CHECK_OK(semctl(id, 99, GETALL, argument));
    CHECK(memcmp(values, seen, sizeof values) == 0);
    values[1] = 32768;
    argument.values = values;
    CHECK_ERRNO(semctl(id, 0, SETALL, argument), ERANGE);
    CHECK_ERRNO(semctl(id, 3, GETVAL), EINVAL);
    CHECK_ERRNO(semctl(id, -1, GETVAL), EINVAL);
    CHECK_ERRNO(semctl(id, 3, SETVAL, (union argument){.value = 1}), EINVAL);
    CHECK_ERRNO(semctl(id, 3, SETVAL, (union argument){.value = 32768}), ERANGE);
    CHECK_ERRNO(semctl(id, 0, SETVAL, (union argument){.value = -1}), ERANGE);
    CHECK_ERRNO(semctl(id, 0, 99), EINVAL);
    CHECK_ERRNO(semctl(-1, 0, GETVAL), EINVAL);
    CHECK_ERRNO(syscall(SYS_semctl, id, 0, GETALL, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_semctl, id, 0, SETALL, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_semctl, id, 0, IPC_STAT, BAD_LOW), EFAULT);
    CHECK_OK(operate(id, 0, 1, 0));
    CHECK_OK(semctl(id, 0, IPC_STAT, (union argument){.status = &status}));
    CHECK(status.sem_otime > 0);
    remove_set(id);
}

CASE(permissions_are_checked)
{
    key_t key = 0x5e0002;
    int id = semget(key, 1, IPC_CREAT | 0604);
    CHECK_OK(id);
    pid_t child = fork_or_fail();
    if (child == 0) {
        struct semid_ds status;
        unsigned short values[1] = {1};
        become_nobody();
        CHECK_OK(semget(key, 0, 0));
        CHECK_ERRNO(semget(key, 0, 0200), EACCES);
        CHECK_ERRNO(operate(id, 0, 1, 0), EACCES);
        CHECK_ERRNO(operate(id, 1, 1, 0), EFBIG);
        CHECK_OK(operate(id, 0, 0, 0));
        CHECK_EQ(semctl(id, 0, GETVAL), 0);
        CHECK_ERRNO(semctl(id, 0, SETVAL, (union argument){.value = 1}), EACCES);
        CHECK_ERRNO(semctl(id, 0, SETALL, (union argument){.values = values}), EACCES);
        CHECK_OK(semctl(id, 0, IPC_STAT, (union argument){.status = &status}));
        CHECK_ERRNO(semctl(id, 0, IPC_SET, (union argument){.status = &status}), EPERM);
        CHECK_ERRNO(semctl(id, 0, IPC_RMID), EPERM);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    struct semid_ds status;
    CHECK_OK(semctl(id, 0, IPC_STAT, (union argument){.status = &status}));
    status.sem_perm.mode = 0600;
    status.sem_perm.uid = 65534;
    CHECK_OK(semctl(id, 0, IPC_SET, (union argument){.status = &status}));
    child = fork_or_fail();
    if (child == 0) {
        become_nobody();
        CHECK_OK(operate(id, 0, 1, 0));
        remove_set(id);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_ERRNO(semctl(id, 0, GETVAL), EINVAL);
}

CASE(the_system_tells_what_there_is)
{
    struct seminfo limits;
    struct semid_ds status;
    char text[20000], wanted[100];
    int id = semget(0x5e0003, 4, IPC_CREAT | 0640);
    CHECK_OK(id);
    int highest = semctl(0, 0, IPC_INFO, (union argument){.limits = &limits});
    CHECK(highest >= (id & 32767));
    CHECK_EQ(limits.semmni, 32000);
    CHECK_EQ(limits.semmsl, 32000);
    CHECK_EQ(limits.semmns, 1024000000);
    CHECK_EQ(limits.semopm, 500);
    CHECK_EQ(limits.semvmx, 32767);
    CHECK_EQ(limits.semaem, 32767);
    CHECK_EQ(limits.semusz, 20);
    CHECK_EQ(semctl(0, 0, SEM_INFO, (union argument){.limits = &limits}), highest);
    CHECK(limits.semusz >= 1 && limits.semaem >= 4);
    CHECK_EQ(semctl(id & 32767, 0, SEM_STAT, (union argument){.status = &status}), id);
    CHECK_EQ(semctl(id & 32767, 0, SEM_STAT_ANY, (union argument){.status = &status}), id);
    CHECK_EQ(status.sem_nsems, 4);
    CHECK_ERRNO(semctl(highest + 1, 0, SEM_STAT, (union argument){.status = &status}), EINVAL);
    slurp("/proc/sysvipc/sem", text, sizeof text);
    snprintf(wanted, sizeof wanted, "\n%10d %10d  %4o %10d %5u %5u %5u %5u %10d ", 0x5e0003, id,
             0640, 4, 0, 0, 0, 0, 0);
    CHECK(strstr(text, wanted) != 0);
    slurp("/proc/sys/kernel/sem", text, sizeof text);
    CHECK_STR(text, "32000\t1024000000\t500\t32000\n");
    remove_set(id);
}

CASE(many_processes_take_turns)
{
    int id = set_of(2);
    set_value(id, 0, 1);
    for (int process = 0; process < 4; process++) {
        if (fork_or_fail() == 0) {
            for (int round = 0; round < 100; round++) {
                CHECK_OK(operate(id, 0, -1, SEM_UNDO));
                CHECK_EQ(value_of(id, 0), 0);
                CHECK_OK(operate(id, 1, 1, 0));
                CHECK_OK(operate(id, 0, 1, SEM_UNDO));
            }
            _exit(0);
        }
    }
    for (int process = 0; process < 4; process++) {
        int status;
        CHECK_OK(wait(&status));
        CHECK_EQ(status, 0);
    }
    CHECK_EQ(value_of(id, 1), 400);
    CHECK_EQ(value_of(id, 0), 1);
    remove_set(id);
}
