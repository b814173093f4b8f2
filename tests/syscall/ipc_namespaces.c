/* Namespaces of IPC: objects of System V, their settings, and POSIX message queues of one's own. */
#include "harness.h"
#include <mqueue.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

#define KEY 0x46455252

static int read_setting(const char *path)
{
    char text[64];
    slurp(path, text, sizeof text);
    return atoi(text);
}

static void write_setting(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    CHECK_OK(fd);
    CHECK_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    CHECK_OK(close(fd));
}

/* Lines of a table in /proc/sysvipc below its head. */
static int lines(const char *path)
{
    char text[8192];
    int count = -1;
    slurp(path, text, sizeof text);
    for (char *at = text; *at; at++)
        count += *at == '\n';
    return count;
}

static char own_link[64];

static const char *own_namespace(void)
{
    ssize_t length = readlink("/proc/self/ns/ipc", own_link, sizeof own_link - 1);
    CHECK(length > 0);
    own_link[length] = 0;
    return own_link;
}

CASE(objects_are_of_one_namespace)
{
    char before[64];
    int segment = shmget(KEY, 4096, IPC_CREAT | 0600), set = semget(KEY, 1, IPC_CREAT | 0600);
    int queue = msgget(KEY, IPC_CREAT | 0600);
    CHECK_OK(segment);
    CHECK_OK(set);
    CHECK_OK(queue);
    strcpy(before, own_namespace());
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(unshare(CLONE_NEWIPC));
        CHECK(strcmp(own_namespace(), before) != 0);
        CHECK_ERRNO(shmget(KEY, 4096, 0), ENOENT);
        CHECK_ERRNO(semget(KEY, 1, 0), ENOENT);
        CHECK_ERRNO(msgget(KEY, 0), ENOENT);
        CHECK_ERRNO(shmctl(segment, IPC_RMID, NULL), EINVAL);
        CHECK_EQ(lines("/proc/sysvipc/shm"), 0);
        CHECK_EQ(lines("/proc/sysvipc/sem"), 0);
        CHECK_EQ(lines("/proc/sysvipc/msg"), 0);
        CHECK_OK(shmget(KEY, 8192, IPC_CREAT | IPC_EXCL | 0600));
        CHECK_OK(semget(KEY, 3, IPC_CREAT | IPC_EXCL | 0600));
        CHECK_OK(msgget(KEY, IPC_CREAT | IPC_EXCL | 0600));
        CHECK_EQ(lines("/proc/sysvipc/shm"), 1);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    struct shmid_ds status;
    CHECK_OK(shmctl(segment, IPC_STAT, &status));
    CHECK_EQ(status.shm_segsz, 4096);
    CHECK_OK(shmctl(segment, IPC_RMID, NULL));
    CHECK_OK(semctl(set, 0, IPC_RMID));
    CHECK_OK(msgctl(queue, IPC_RMID, NULL));
}

CASE(settings_are_of_one_namespace)
{
    int most = read_setting("/proc/sys/kernel/msgmax");
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(unshare(CLONE_NEWIPC));
        CHECK_EQ(read_setting("/proc/sys/kernel/msgmax"), 8192);
        write_setting("/proc/sys/kernel/msgmax", "100");
        write_setting("/proc/sys/kernel/shmmni", "1");
        CHECK_EQ(read_setting("/proc/sys/kernel/msgmax"), 100);
        char message[sizeof(long) + 101] = {1};
        int queue = msgget(IPC_PRIVATE, 0600);
        CHECK_ERRNO(msgsnd(queue, message, 101, 0), EINVAL);
        CHECK_OK(msgsnd(queue, message, 100, 0));
        CHECK_OK(shmget(IPC_PRIVATE, 1, 0600));
        CHECK_ERRNO(shmget(IPC_PRIVATE, 1, 0600), ENOSPC);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(read_setting("/proc/sys/kernel/msgmax"), most);
    int one = shmget(IPC_PRIVATE, 1, 0600), two = shmget(IPC_PRIVATE, 1, 0600);
    CHECK_OK(shmctl(one, IPC_RMID, NULL));
    CHECK_OK(shmctl(two, IPC_RMID, NULL));
}

CASE(segments_outlive_their_namespace)
{
    CHECK_OK(unshare(CLONE_NEWIPC));
    int segment = shmget(KEY, 4096, IPC_CREAT | 0600);
    char *memory = shmat(segment, NULL, 0);
    CHECK(memory != (char *)-1);
    strcpy(memory, "still here");
    CHECK_OK(unshare(CLONE_NEWIPC));
    CHECK_ERRNO(shmget(KEY, 4096, 0), ENOENT);
    CHECK_STR(memory, "still here");
    CHECK_OK(shmdt(memory));
}

static int finds_nothing(void *unused)
{
    (void)unused;
    return shmget(KEY, 4096, 0) != -1 || errno != ENOENT;
}

static char stack[16384] __attribute__((aligned(16)));

CASE(clone_makes_one)
{
    int segment = shmget(KEY, 4096, IPC_CREAT | 0600);
    CHECK_OK(segment);
    pid_t child = clone(finds_nothing, stack + sizeof stack, CLONE_NEWIPC | SIGCHLD, NULL);
    CHECK_OK(child);
    CHECK_EXITED(child, 0);
    CHECK_ERRNO(clone(finds_nothing, stack + sizeof stack, CLONE_NEWIPC | CLONE_SYSVSEM | SIGCHLD, NULL),
                EINVAL);
    CHECK_OK(shmctl(segment, IPC_RMID, NULL));
}

CASE(setns_enters_one)
{
    int outside = open("/proc/self/ns/ipc", O_RDONLY);
    CHECK_OK(outside);
    CHECK_OK(unshare(CLONE_NEWIPC));
    int inside = open("/proc/self/ns/ipc", O_RDONLY);
    int queue = msgget(KEY, IPC_CREAT | IPC_EXCL | 0600);
    CHECK_OK(queue);
    CHECK_OK(setns(outside, CLONE_NEWIPC));
    CHECK_ERRNO(msgget(KEY, 0), ENOENT);
    CHECK_ERRNO(setns(inside, CLONE_NEWUTS), EINVAL);
    CHECK_OK(setns(inside, 0));
    CHECK_EQ(msgget(KEY, 0), queue);
}

CASE(semaphores_are_given_back)
{
    CHECK_OK(unshare(CLONE_NEWIPC));
    int space = open("/proc/self/ns/ipc", O_RDONLY);
    int set = semget(KEY, 1, IPC_CREAT | 0600);
    struct sembuf raise = {0, 5, SEM_UNDO};
    CHECK_OK(semop(set, &raise, 1));
    CHECK_EQ(semctl(set, 0, GETVAL), 5);
    CHECK_OK(unshare(CLONE_NEWIPC));
    CHECK_OK(setns(space, CLONE_NEWIPC));
    CHECK_EQ(semctl(set, 0, GETVAL), 0);
}

CASE(message_queues_are_of_one_namespace)
{
    scratch();
    mqd_t queue = mq_open("/shared", O_CREAT | O_RDWR, 0600, NULL);
    CHECK_OK(queue);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(unshare(CLONE_NEWIPC | CLONE_NEWNS));
        CHECK_OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
        CHECK_ERRNO(mq_open("/shared", O_RDWR), ENOENT);
        CHECK_ERRNO(mq_unlink("/shared"), ENOENT);
        CHECK_OK(mq_send(queue, "x", 1, 0)); /* What is open stays. */
        CHECK_OK(mq_open("/own", O_CREAT | O_RDWR, 0600, NULL));
        CHECK_OK(mkdir("m", 0755));
        CHECK_OK(mount("none", "m", "mqueue", 0, NULL));
        CHECK_OK(access("m/own", F_OK));
        CHECK_ERRNO(access("m/shared", F_OK), ENOENT);
        write_setting("/proc/sys/fs/mqueue/msg_max", "3");
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    struct mq_attr attributes;
    CHECK_OK(mq_getattr(queue, &attributes));
    CHECK_EQ(attributes.mq_curmsgs, 1);
    CHECK_ERRNO(mq_open("/own", O_RDWR), ENOENT);
    CHECK_EQ(read_setting("/proc/sys/fs/mqueue/msg_max"), 10);
    CHECK_OK(mq_unlink("/shared"));
}

CASE(who_may_not)
{
    int space = open("/proc/self/ns/ipc", O_RDONLY);
    CHECK_OK(setresuid(65534, 65534, 65534));
    CHECK_ERRNO(unshare(CLONE_NEWIPC), EPERM);
    CHECK_ERRNO(setns(space, CLONE_NEWIPC), EPERM);
}
