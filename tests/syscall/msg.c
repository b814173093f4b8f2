/* System V message queues: msgget, msgsnd, msgrcv, msgctl, /proc/sysvipc/msg. */
#include "harness.h"
#include <limits.h>
#include <sys/ipc.h>
#include <sys/msg.h>

#ifndef MSG_COPY
#define MSG_COPY 040000
#endif
#ifndef MSG_EXCEPT
#define MSG_EXCEPT 020000
#endif
#define STAT_ANY 13

struct message {
    long type;
    char text[16384];
};

static struct message buffer;

static int queue(void)
{
    int id = msgget(IPC_PRIVATE, 0600);
    CHECK_OK(id);
    return id;
}

static int put(int id, long type, const char *text, int flags)
{
    struct message message = {.type = type};
    strcpy(message.text, text);
    return msgsnd(id, &message, strlen(text) + 1, flags);
}

static const char *get(int id, long type, int flags)
{
    CHECK_OK(msgrcv(id, &buffer, sizeof buffer.text, type, flags));
    return buffer.text;
}

static struct msqid_ds status_of(int id)
{
    struct msqid_ds status;
    CHECK_OK(msgctl(id, IPC_STAT, &status));
    return status;
}

static void remove_queue(int id)
{
    CHECK_OK(msgctl(id, IPC_RMID, 0));
}

static void become_nobody(void)
{
    CHECK_OK(setgid(65534));
    CHECK_OK(setuid(65534));
}

/* Waits until the process sleeps in the kernel. */
static void until_asleep(pid_t child)
{
    char path[64], text[512], *state;
    snprintf(path, sizeof path, "/proc/%d/stat", child);
    for (;;) {
        slurp(path, text, sizeof text);
        state = strrchr(text, ')');
        if (state && state[2] == 'S')
            return;
        sleep_ms(1);
    }
}

CASE(messages_arrive_in_order)
{
    int id = queue();
    struct msqid_ds status = status_of(id);
    CHECK_EQ(status.msg_qnum, 0);
    CHECK_EQ(status.msg_qbytes, 16384);
    CHECK_EQ(status.msg_stime, 0);
    CHECK_EQ(status.msg_lspid, 0);
    CHECK_OK(put(id, 1, "first", 0));
    CHECK_OK(put(id, 2, "second", 0));
    status = status_of(id);
    CHECK_EQ(status.msg_qnum, 2);
    CHECK_EQ(status.msg_lspid, getpid());
    CHECK(status.msg_stime > 0);
    CHECK_STR(get(id, 0, 0), "first");
    CHECK_EQ(buffer.type, 1);
    CHECK_STR(get(id, 0, 0), "second");
    CHECK_EQ(buffer.type, 2);
    CHECK_EQ(status_of(id).msg_lrpid, getpid());
    CHECK(status_of(id).msg_rtime > 0);
    CHECK_ERRNO(msgrcv(id, &buffer, 10, 0, IPC_NOWAIT), ENOMSG);
    remove_queue(id);
}

CASE(a_key_finds_a_queue)
{
    key_t key = 0x5d0001;
    CHECK_ERRNO(msgget(key, 0), ENOENT);
    int id = msgget(key, IPC_CREAT | IPC_EXCL | 0600);
    CHECK_OK(id);
    CHECK_EQ(msgget(key, 0), id);
    CHECK_EQ(msgget(key, IPC_CREAT), id);
    CHECK_ERRNO(msgget(key, IPC_CREAT | IPC_EXCL), EEXIST);
    remove_queue(id);
    CHECK_ERRNO(msgget(key, 0), ENOENT);
    CHECK_ERRNO(msgctl(id, IPC_RMID, 0), EINVAL);
}

CASE(types_choose_messages)
{
    int id = queue();
    CHECK_OK(put(id, 5, "five", 0));
    CHECK_OK(put(id, 3, "three", 0));
    CHECK_OK(put(id, 7, "seven", 0));
    CHECK_OK(put(id, 3, "three again", 0));
    CHECK_STR(get(id, 7, 0), "seven");
    CHECK_STR(get(id, -4, 0), "three");
    CHECK_ERRNO(msgrcv(id, &buffer, 10, -2, IPC_NOWAIT), ENOMSG);
    CHECK_ERRNO(msgrcv(id, &buffer, 10, 4, IPC_NOWAIT), ENOMSG);
    CHECK_STR(get(id, 5, MSG_EXCEPT), "three again");
    CHECK_ERRNO(msgrcv(id, &buffer, 10, 5, MSG_EXCEPT | IPC_NOWAIT), ENOMSG);
    CHECK_STR(get(id, LONG_MIN, 0), "five");
    remove_queue(id);
}

CASE(long_messages_are_refused_or_cut)
{
    int id = queue();
    CHECK_OK(put(id, 1, "0123456789", 0));
    CHECK_ERRNO(msgrcv(id, &buffer, 4, 0, 0), E2BIG);
    memset(buffer.text, 'x', 20);
    CHECK_EQ(msgrcv(id, &buffer, 4, 0, MSG_NOERROR), 4);
    CHECK(memcmp(buffer.text, "0123x", 5) == 0);
    CHECK_EQ(status_of(id).msg_qnum, 0);
    CHECK_OK(msgsnd(id, &(struct message){.type = 9}, 0, 0));
    CHECK_EQ(msgrcv(id, &buffer, 0, 0, 0), 0);
    CHECK_EQ(buffer.type, 9);
    remove_queue(id);
}

CASE(a_message_may_be_copied)
{
    int id = queue();
    CHECK_OK(put(id, 4, "zero", 0));
    CHECK_OK(put(id, 5, "one", 0));
    ssize_t got = msgrcv(id, &buffer, 100, 1, MSG_COPY | IPC_NOWAIT);
    if (got == -1 && errno == ENOSYS)
        SKIP("this Linux has no MSG_COPY");
    CHECK_EQ(got, 4);
    CHECK_STR(buffer.text, "one");
    CHECK_EQ(buffer.type, 5);
    CHECK_EQ(status_of(id).msg_qnum, 2);
    CHECK_ERRNO(msgrcv(id, &buffer, 100, 2, MSG_COPY | IPC_NOWAIT), ENOMSG);
    CHECK_ERRNO(msgrcv(id, &buffer, 100, 0, MSG_COPY), EINVAL);
    CHECK_ERRNO(msgrcv(id, &buffer, 100, 0, MSG_COPY | MSG_EXCEPT | IPC_NOWAIT), EINVAL);
    CHECK_ERRNO(msgrcv(id, &buffer, 2, 0, MSG_COPY | IPC_NOWAIT), E2BIG);
    remove_queue(id);
}

CASE(errors_come_in_order)
{
    int id = queue();
    struct message message = {.type = 0};
    CHECK_ERRNO(msgsnd(id, BAD_LOW, 1, 0), EFAULT);
    CHECK_ERRNO(msgsnd(-1, BAD_LOW, 1, 0), EFAULT);
    CHECK_ERRNO(msgsnd(id, &message, 1, 0), EINVAL);
    message.type = -1;
    CHECK_ERRNO(msgsnd(id, &message, 1, 0), EINVAL);
    message.type = 1;
    CHECK_ERRNO(msgsnd(id, &message, 8193, 0), EINVAL);
    CHECK_ERRNO(msgsnd(id, &message, (size_t)-1, 0), EINVAL);
    CHECK_ERRNO(msgsnd(-1, &message, 1, 0), EINVAL);
    CHECK_OK(msgsnd(id, &message, 8192, 0));
    CHECK_ERRNO(msgrcv(id, &message, (size_t)-1, 0, 0), EINVAL);
    CHECK_ERRNO(msgrcv(-1, &message, 1, 0, 0), EINVAL);
    CHECK_ERRNO(msgrcv(id, BAD_LOW, 8192, 0, 0), EFAULT);
    CHECK_EQ(status_of(id).msg_qnum, 0);
    CHECK_ERRNO(msgctl(id, 99, 0), EINVAL);
    CHECK_ERRNO(msgctl(-1, IPC_RMID, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_msgctl, id, IPC_STAT, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_msgctl, id, IPC_SET, BAD_LOW), EFAULT);
    remove_queue(id);
    CHECK_ERRNO(msgsnd(id, &message, 1, 0), EINVAL);
    CHECK_ERRNO(msgrcv(id, &message, 1, 0, 0), EINVAL);
}

CASE(a_full_queue_makes_senders_wait)
{
    int id = queue();
    struct message message = {.type = 1};
    CHECK_OK(msgsnd(id, &message, 8000, 0));
    CHECK_OK(msgsnd(id, &message, 8000, 0));
    CHECK_ERRNO(msgsnd(id, &message, 1000, IPC_NOWAIT), EAGAIN);
    CHECK_OK(msgsnd(id, &message, 384, IPC_NOWAIT));
    CHECK_ERRNO(msgsnd(id, &message, 1, IPC_NOWAIT), EAGAIN);
    CHECK_OK(msgsnd(id, &message, 0, IPC_NOWAIT));
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(put(id, 7, "late", 0) == 0 ? 0 : 1);
    until_asleep(child);
    CHECK_EQ(msgrcv(id, &buffer, 8000, 0, 0), 8000);
    CHECK_EXITED(child, 0);
    CHECK_STR(get(id, 7, 0), "late");
    CHECK_EQ(status_of(id).msg_lspid, child);
    remove_queue(id);
}

CASE(receivers_get_what_they_wait_for)
{
    int id = queue();
    pid_t second = fork_or_fail();
    if (second == 0)
        _exit(strcmp(get(id, 2, 0), "for two") == 0 ? 0 : 1);
    pid_t other = fork_or_fail();
    if (other == 0)
        _exit(strcmp(get(id, 2, MSG_EXCEPT), "for others") == 0 ? 0 : 1);
    pid_t narrow = fork_or_fail();
    if (narrow == 0)
        _exit(msgrcv(id, &buffer, 2, 9, 0) == -1 && errno == E2BIG ? 0 : 1);
    until_asleep(second);
    until_asleep(other);
    until_asleep(narrow);
    CHECK_OK(put(id, 2, "for two", 0));
    CHECK_EXITED(second, 0);
    CHECK_OK(put(id, 3, "for others", 0));
    CHECK_EXITED(other, 0);
    CHECK_EQ(status_of(id).msg_qnum, 0);
    CHECK_OK(put(id, 9, "too long", 0));
    CHECK_EXITED(narrow, 0);
    CHECK_EQ(status_of(id).msg_qnum, 1);
    remove_queue(id);
}

CASE(removal_ends_waits)
{
    int id = queue();
    struct message message = {.type = 1};
    pid_t receiver = fork_or_fail();
    if (receiver == 0)
        _exit(msgrcv(id, &buffer, 10, 5, 0) == -1 && errno == EIDRM ? 0 : 1);
    CHECK_OK(msgsnd(id, &message, 8192, 0));
    CHECK_OK(msgsnd(id, &message, 8192, 0));
    pid_t sender = fork_or_fail();
    if (sender == 0)
        _exit(msgsnd(id, &message, 10, 0) == -1 && errno == EIDRM ? 0 : 1);
    until_asleep(receiver);
    until_asleep(sender);
    remove_queue(id);
    CHECK_EXITED(receiver, 0);
    CHECK_EXITED(sender, 0);
}

static void ignore(int number)
{
    (void)number;
}

CASE(signals_end_waits_whatever_their_flags)
{
    int id = queue();
    struct message message = {.type = 1};
    struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
    CHECK_OK(sigaction(SIGUSR1, &action, 0));
    pid_t child = pesterer(SIGUSR1);
    CHECK_ERRNO(msgrcv(id, &buffer, 10, 0, 0), EINTR);
    CHECK_OK(msgsnd(id, &message, 8192, 0));
    CHECK_OK(msgsnd(id, &message, 8192, 0));
    CHECK_ERRNO(msgsnd(id, &message, 1, 0), EINTR);
    kill(child, SIGKILL);
    CHECK_KILLED(child, SIGKILL);
    remove_queue(id);
}

CASE(permissions_are_checked)
{
    key_t key = 0x5d0002;
    int id = msgget(key, IPC_CREAT | 0602);
    CHECK_OK(id);
    pid_t child = fork_or_fail();
    if (child == 0) {
        struct msqid_ds status;
        become_nobody();
        CHECK_OK(msgget(key, 0));
        CHECK_ERRNO(msgget(key, 0444), EACCES);
        CHECK_OK(put(id, 1, "hello", 0));
        CHECK_ERRNO(msgrcv(id, &buffer, 100, 0, 0), EACCES);
        CHECK_ERRNO(msgctl(id, IPC_STAT, &status), EACCES);
        CHECK_ERRNO(msgctl(id & 32767, MSG_STAT, &status), EACCES);
        CHECK_EQ(msgctl(id & 32767, STAT_ANY, &status), id);
        CHECK_ERRNO(msgctl(id, IPC_SET, &status), EPERM);
        CHECK_ERRNO(msgctl(id, IPC_RMID, 0), EPERM);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    struct msqid_ds status = status_of(id);
    status.msg_perm.uid = 65534;
    status.msg_perm.mode = 0600;
    status.msg_qbytes = 10000;
    CHECK_OK(msgctl(id, IPC_SET, &status));
    CHECK_EQ(status_of(id).msg_qbytes, 10000);
    child = fork_or_fail();
    if (child == 0) {
        become_nobody();
        status = status_of(id);
        status.msg_qbytes = 16385;
        CHECK_ERRNO(msgctl(id, IPC_SET, &status), EPERM);
        status.msg_qbytes = 16384;
        CHECK_OK(msgctl(id, IPC_SET, &status));
        CHECK_STR(get(id, 0, 0), "hello");
        remove_queue(id);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_ERRNO(msgctl(id, IPC_STAT, &status), EINVAL);
}

CASE(the_privileged_may_enlarge_a_queue)
{
    int id = queue();
    struct msqid_ds status = status_of(id);
    status.msg_qbytes = 20000;
    if (msgctl(id, IPC_SET, &status) == -1 && errno == EPERM)
        SKIP("the superuser has no CAP_SYS_RESOURCE here");
    CHECK_EQ(status_of(id).msg_qbytes, 20000);
    remove_queue(id);
}

CASE(a_larger_queue_admits_senders)
{
    int id = queue();
    struct message message = {.type = 1};
    struct msqid_ds status = status_of(id);
    status.msg_qbytes = 8192;
    CHECK_OK(msgctl(id, IPC_SET, &status));
    CHECK_OK(msgsnd(id, &message, 4096, 0));
    CHECK_OK(msgsnd(id, &message, 4096, 0));
    pid_t sender = fork_or_fail();
    if (sender == 0)
        _exit(msgsnd(id, &message, 10, 0) == 0 ? 0 : 1);
    until_asleep(sender);
    status.msg_qbytes = 16384;
    CHECK_OK(msgctl(id, IPC_SET, &status));
    CHECK_EXITED(sender, 0);
    CHECK_EQ(status_of(id).msg_qnum, 3);
    remove_queue(id);
}

CASE(the_system_tells_what_there_is)
{
    struct msginfo limits;
    struct msqid_ds status;
    char text[20000], wanted[100];
    int id = msgget(0x5d0003, IPC_CREAT | 0640);
    CHECK_OK(put(id, 1, "hello", 0));
    int highest = msgctl(0, IPC_INFO, (struct msqid_ds *)&limits);
    CHECK(highest >= (id & 32767));
    CHECK_EQ(limits.msgmax, 8192);
    CHECK_EQ(limits.msgmnb, 16384);
    CHECK_EQ(limits.msgmni, 32000);
    CHECK_EQ(msgctl(0, MSG_INFO, (struct msqid_ds *)&limits), highest);
    CHECK(limits.msgpool >= 1 && limits.msgmap >= 1 && limits.msgtql >= 6);
    CHECK_EQ(msgctl(id & 32767, MSG_STAT, &status), id);
    CHECK_EQ(status.msg_qnum, 1);
    slurp("/proc/sysvipc/msg", text, sizeof text);
    snprintf(wanted, sizeof wanted, "\n%10d %10d  %4o  %10lu %10lu %5u %5u ", 0x5d0003, id, 0640,
             6UL, 1UL, getpid(), 0);
    CHECK(strstr(text, wanted) != 0);
    slurp("/proc/sys/kernel/msgmni", text, sizeof text);
    CHECK_STR(text, "32000\n");
    remove_queue(id);
}

CASE(many_messages_between_processes)
{
    int id = queue();
    for (int process = 0; process < 3; process++) {
        if (fork_or_fail() == 0) {
            char text[100];
            for (int round = 0; round < 200; round++) {
                snprintf(text, sizeof text, "%d", round);
                CHECK_OK(put(id, process + 1, text, 0));
            }
            _exit(0);
        }
    }
    int next[4] = {0, 0, 0, 0};
    for (int round = 0; round < 600; round++) {
        const char *text = get(id, 0, 0);
        CHECK_EQ(atoi(text), next[buffer.type]);
        next[buffer.type]++;
    }
    for (int process = 0; process < 3; process++) {
        int status;
        CHECK_OK(wait(&status));
        CHECK_EQ(status, 0);
    }
    remove_queue(id);
}
