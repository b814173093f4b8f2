/* What belongs to root beside the callers, and has to stay as it is: files, IPC, the state of the witness, the
 * machine's name and clock; and that nobody else becomes root. */
#ifndef FERRY_TESTS_FUZZ_ESTATE_H
#define FERRY_TESTS_FUZZ_ESTATE_H

#include "caller.h"
#include "common.h"
#include "witness.h"
#include <dirent.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/utsname.h>

enum { ESTATE_FILES = 5, SHM_SIZE = 8192, SEMAPHORE = 17 };

static const struct belonging {
    const char *path;
    mode_t mode;
    const char *content;
} belongings[ESTATE_FILES] = {
    {"/tmp/fuzz-root", S_IFDIR | 0755, NULL},
    {"/tmp/fuzz-root/public", S_IFREG | 0644, "everybody may read this"},
    {"/tmp/fuzz-root/secret", S_IFREG | 0600, "nobody may read this"},
    {"/tmp/fuzz-root/closed", S_IFDIR | 0700, NULL},
    {"/tmp/fuzz-root/closed/file", S_IFREG | 0666, "nobody may come here"},
};

static struct {
    struct stat stats[ESTATE_FILES];
    struct utsname name;
    struct rlimit limits[RLIM_NLIMITS];
    char place[200], *shm;
    int shm_id, sem_id, msg_id, descriptors;
    pid_t group, session;
    int64_t clock_offset_ns;
} estate;

static int64_t clock_offset_ns(void)
{
    struct timespec real;
    clock_gettime(CLOCK_REALTIME, &real);
    return (int64_t)real.tv_sec * 1000000000 + real.tv_nsec - now_ns();
}

static int count_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;
    if (directory == NULL)
        fail("witness: /proc/self/fd", errno);
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

static void make_estate(void)
{
    umask(0);
    for (int i = 0; i < ESTATE_FILES; i++) {
        const struct belonging *one = &belongings[i];
        if (one->content) {
            int fd = open(one->path, O_WRONLY | O_CREAT | O_TRUNC, one->mode & 07777);
            WITNESS_CHECK_EQ(write(fd, one->content, strlen(one->content)), strlen(one->content));
            close(fd);
        } else {
            mkdir(one->path, one->mode & 07777);
        }
    }
    umask(022);
    for (int i = 0; i < ESTATE_FILES; i++)
        WITNESS_CHECK_EQ(lstat(belongings[i].path, &estate.stats[i]), 0);
    estate.shm_id = shmget(IPC_PRIVATE, SHM_SIZE, 0600);
    estate.shm = shmat(estate.shm_id, NULL, 0);
    memset(estate.shm, 0x5a, SHM_SIZE);
    estate.sem_id = semget(IPC_PRIVATE, 1, 0600);
    WITNESS_CHECK_EQ(semctl(estate.sem_id, 0, SETVAL, SEMAPHORE), 0);
    estate.msg_id = msgget(IPC_PRIVATE, 0600);
    const struct {
        long type;
        char text[8];
    } message = {3, "message"};
    WITNESS_CHECK_EQ(msgsnd(estate.msg_id, &message, sizeof message.text, 0), 0);
    uname(&estate.name);
    for (int i = 0; i < RLIM_NLIMITS; i++)
        getrlimit(i, &estate.limits[i]);
    if (getcwd(estate.place, sizeof estate.place) == NULL)
        fail("witness: getcwd", errno);
    estate.group = getpgrp();
    estate.session = getsid(0);
    estate.descriptors = count_descriptors();
    estate.clock_offset_ns = clock_offset_ns();
}

static void remove_estate(void)
{
    shmdt(estate.shm);
    shmctl(estate.shm_id, IPC_RMID, NULL);
    semctl(estate.sem_id, 0, IPC_RMID);
    msgctl(estate.msg_id, IPC_RMID, NULL);
    for (int i = ESTATE_FILES - 1; i >= 0; i--)
        WITNESS_CHECK_EQ(remove(belongings[i].path), 0);
}

static void check_files_of_root(void)
{
    for (int i = 0; i < ESTATE_FILES; i++) {
        const struct stat *before = &estate.stats[i];
        struct stat now;
        char text[100] = {0};
        WITNESS_CHECK_EQ(lstat(belongings[i].path, &now), 0);
        WITNESS_CHECK_EQ(now.st_mode, belongings[i].mode);
        WITNESS_CHECK_EQ(now.st_uid, 0);
        WITNESS_CHECK_EQ(now.st_gid, 0);
        WITNESS_CHECK_EQ(now.st_ino, before->st_ino);
        WITNESS_CHECK_EQ(now.st_nlink, before->st_nlink);
        WITNESS_CHECK_EQ(now.st_size, before->st_size);
        WITNESS_CHECK_EQ(now.st_mtim.tv_sec, before->st_mtim.tv_sec);
        WITNESS_CHECK_EQ(now.st_mtim.tv_nsec, before->st_mtim.tv_nsec);
        /* Not the time of the last change: chown(path, -1, -1) by anybody sets that, as on Linux. */
        if (belongings[i].content == NULL)
            continue;
        WITNESS_CHECK_EQ(slurp(belongings[i].path, text, sizeof text), strlen(belongings[i].content));
        WITNESS_CHECK_EQ(strcmp(text, belongings[i].content), 0);
    }
}

static void check_ipc_of_root(void)
{
    struct msqid_ds queue;
    struct shmid_ds segment;
    for (int i = 0; i < SHM_SIZE; i++)
        WITNESS_CHECK_EQ(estate.shm[i], 0x5a);
    WITNESS_CHECK_EQ(shmctl(estate.shm_id, IPC_STAT, &segment), 0);
    WITNESS_CHECK_EQ(segment.shm_nattch, 1);
    WITNESS_CHECK_EQ(segment.shm_perm.uid, 0);
    WITNESS_CHECK_EQ(segment.shm_perm.mode & 0777, 0600);
    WITNESS_CHECK_EQ(semctl(estate.sem_id, 0, GETVAL), SEMAPHORE);
    WITNESS_CHECK_EQ(msgctl(estate.msg_id, IPC_STAT, &queue), 0);
    WITNESS_CHECK_EQ(queue.msg_qnum, 1);
    WITNESS_CHECK_EQ(queue.msg_perm.uid, 0);
}

static void check_self(void)
{
    char text[300], comm[20];
    struct utsname name;
    sigset_t pending;
    uid_t real, effective, saved;
    WITNESS_CHECK_EQ(getresuid(&real, &effective, &saved), 0);
    WITNESS_CHECK_EQ(real + effective + saved, 0);
    WITNESS_CHECK_EQ(getresgid(&real, &effective, &saved), 0);
    WITNESS_CHECK_EQ(real + effective + saved, 0);
    WITNESS_CHECK_EQ(getpgrp(), estate.group);
    WITNESS_CHECK_EQ(getsid(0), estate.session);
    WITNESS_CHECK_EQ(getpriority(PRIO_PROCESS, 0), 0);
    WITNESS_CHECK_EQ(umask(022), 022);
    WITNESS_CHECK_EQ(getcwd(text, sizeof text) != NULL && strcmp(text, estate.place) == 0, 1);
    WITNESS_CHECK_EQ(count_descriptors(), estate.descriptors);
    slurp("/proc/self/comm", comm, sizeof comm);
    WITNESS_CHECK_EQ(strcmp(comm, "fuzz\n"), 0);
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit = {0, 0};
        getrlimit(i, &limit);
        WITNESS_CHECK_EQ(limit.rlim_cur, estate.limits[i].rlim_cur);
        WITNESS_CHECK_EQ(limit.rlim_max, estate.limits[i].rlim_max);
    }
    sigpending(&pending);
    for (int number = 1; number < 32; number++)
        WITNESS_CHECK_EQ(sigismember(&pending, number), 0);
    uname(&name);
    WITNESS_CHECK_EQ(memcmp(&name, &estate.name, sizeof name), 0);
    int64_t moved_ns = clock_offset_ns() - estate.clock_offset_ns;
    WITNESS_CHECK_EQ(moved_ns > -1000000000 && moved_ns < 1000000000, 1);
    for (size_t i = 8; i < DATA_SIZE; i++)
        WITNESS_CHECK_EQ(witness.data[i], data_at(i));
}

/* Whether a process is one of the fuzzer's own, or about to become somebody's. */
static int is_ours(pid_t process, pid_t parent, int has_dropped)
{
    if (process == witness.self || process == witness.parent || parent == witness.self)
        return 1;
    for (int i = 0; i < 8; i++)
        if (process == shared->workers[i].process || (parent == shared->workers[i].process && !has_dropped))
            return 1;
    return parent == witness.parent;
}

/* Nobody has rights whom the fuzzer did not give them. */
static void check_others(void)
{
    DIR *directory = opendir("/proc");
    struct dirent *entry;
    while (directory && (entry = readdir(directory)) != NULL) {
        char path[300], text[4000];
        unsigned ids[4];
        pid_t process = atoi(entry->d_name), parent;
        snprintf(path, sizeof path, "/proc/%s/status", entry->d_name);
        /* Before the look: it may be about to drop its rights. */
        int has_dropped = 0;
        for (int i = 0; i < 8; i++)
            has_dropped |= process == shared->workers[i].dropped;
        int fd = process > 1 ? open(path, O_RDONLY) : -1;
        ssize_t length = fd == -1 ? -1 : read(fd, text, sizeof text - 1);
        close(fd);
        if (length <= 0)
            continue; /* It has ended meanwhile. */
        text[length] = 0;
        if (strstr(text, "\nState:\tZ"))
            continue;
        const char *rights = strstr(text, "\nCapEff:"), *parents = strstr(text, "\nPPid:"), *users = strstr(text, "\nUid:");
        if (!rights || !parents || !users) {
            say(text);
            note("witness: so long is the status of a process", length);
            fail("witness: the status of a process lacks lines", process);
        }
        parent = atoi(parents + 6);
        if (sscanf(users + 5, "%u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) != 4)
            fail("witness: the users of a process", process);
        int is_root = ids[0] == 0 || ids[1] == 0 || ids[2] == 0 || ids[3] == 0 || strtoull(rights + 8, NULL, 16) != 0;
        if (is_root && !is_ours(process, parent, has_dropped)) {
            say(text);
            fail("witness: somebody gained rights; its parent is", parent);
        }
    }
    if (directory)
        closedir(directory);
}

static void check_estate(void)
{
    check_files_of_root();
    check_ipc_of_root();
    check_self();
    check_others();
}

/* Removes what outlives its process: IPC of everybody but root. */
static void remove_ipc_of_users(void)
{
    struct shmid_ds segment;
    struct msqid_ds queue;
    struct semid_ds set;
    for (int i = 0; i < 400; i++) {
        int id = shmctl(i, SHM_STAT, &segment);
        if (id >= 0 && segment.shm_perm.uid != 0)
            shmctl(id, IPC_RMID, NULL);
        id = msgctl(i, MSG_STAT, &queue);
        if (id >= 0 && queue.msg_perm.uid != 0)
            msgctl(id, IPC_RMID, NULL);
        id = semctl(i, 0, SEM_STAT, &set);
        if (id >= 0 && set.sem_perm.uid != 0)
            semctl(id, 0, IPC_RMID);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        syscall(SYS_mq_unlink, names[i]);
}

#endif
