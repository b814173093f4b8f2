/* System V shared memory: shmget, shmat, shmdt, shmctl, /proc/sysvipc/shm. */
#include "harness.h"
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>

#ifndef SHM_EXEC
#define SHM_EXEC 0100000
#endif
#define DEST 01000
#define LOCKED 02000
#define STAT_ANY 15

static int segment(size_t size)
{
    int id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
    CHECK_OK(id);
    return id;
}

static struct shmid_ds status_of(int id)
{
    struct shmid_ds status;
    CHECK_OK(shmctl(id, IPC_STAT, &status));
    return status;
}

static void *attached(int id, int flags)
{
    void *at = shmat(id, 0, flags);
    CHECK(at != (void *)-1);
    return at;
}

static void become_nobody(void)
{
    CHECK_OK(setgid(65534));
    CHECK_OK(setuid(65534));
}

CASE(a_segment_is_shared_with_a_child)
{
    int id = segment(8192);
    volatile int *words = attached(id, 0);
    CHECK_EQ(words[0], 0);
    words[0] = 7;
    pid_t child = fork_or_fail();
    if (child == 0) {
        volatile int *second = shmat(id, 0, 0);
        _exit(second[0] == 7 && (words[1] = 8) && (second[1024] = 9) ? 0 : 1);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(words[1], 8);
    CHECK_EQ(words[1024], 9);
    CHECK_OK(shmdt((void *)words));
    CHECK_OK(shmctl(id, IPC_RMID, 0));
}

CASE(a_key_finds_a_segment)
{
    key_t key = 0x5f0001;
    CHECK_ERRNO(shmget(key, 100, 0), ENOENT);
    int id = shmget(key, 100, IPC_CREAT | IPC_EXCL | 0600);
    CHECK_OK(id);
    CHECK_EQ(shmget(key, 0, 0), id);
    CHECK_EQ(shmget(key, 100, IPC_CREAT), id);
    CHECK_ERRNO(shmget(key, 100, IPC_CREAT | IPC_EXCL), EEXIST);
    CHECK_ERRNO(shmget(key, 101, 0), EINVAL);
    CHECK_EQ(status_of(id).shm_segsz, 100);
    CHECK_OK(shmctl(id, IPC_RMID, 0));
    CHECK_ERRNO(shmget(key, 100, 0), ENOENT);
    CHECK_ERRNO(shmctl(id, IPC_RMID, 0), EINVAL);
}

CASE(sizes_are_checked)
{
    CHECK_ERRNO(shmget(IPC_PRIVATE, 0, 0600), EINVAL);
    CHECK_ERRNO(shmget(0x5f0002, 0, IPC_CREAT | 0600), EINVAL);
    CHECK_ERRNO(shmget(IPC_PRIVATE, (size_t)-1, 0600), EINVAL);
    CHECK_ERRNO(shmget(IPC_PRIVATE, (size_t)1 << 21, SHM_HUGETLB | 0600), ENOMEM);
    CHECK_ERRNO(shmget(0x5f0003, 0, 0600), ENOENT);
    CHECK_ERRNO(shmget(IPC_PRIVATE, 0xfffffffffe000000, SHM_NORESERVE | 0600), EINVAL);
}

CASE(what_does_not_fit_into_an_address_space_takes_nothing_away)
{
    char *room = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    *room = 'r';
    int id = shmget(IPC_PRIVATE, (size_t)1 << 62, SHM_NORESERVE | 0600);
    CHECK(id >= 0);
    CHECK(shmat(id, room, SHM_REMAP) == (void *)-1 && errno == ENOMEM);
    CHECK_EQ(*room, 'r');
    CHECK_OK(shmctl(id, IPC_RMID, 0));
}

CASE(attachments_are_counted)
{
    int id = segment(3 * 4096);
    struct shmid_ds status = status_of(id);
    CHECK_EQ(status.shm_nattch, 0);
    CHECK_EQ(status.shm_atime, 0);
    CHECK_EQ(status.shm_dtime, 0);
    CHECK_EQ(status.shm_cpid, getpid());
    CHECK_EQ(status.shm_lpid, 0);
    CHECK(status.shm_ctime > 0);
    char *first = attached(id, 0);
    char *second = attached(id, SHM_RDONLY);
    status = status_of(id);
    CHECK_EQ(status.shm_nattch, 2);
    CHECK(status.shm_atime > 0);
    CHECK_EQ(status.shm_dtime, 0);
    CHECK_EQ(status.shm_lpid, getpid());
    pid_t child = fork_or_fail();
    if (child == 0) {
        int count = (int)status_of(id).shm_nattch;
        int gone = shmdt(second);
        _exit(count == 4 && gone == 0 && status_of(id).shm_nattch == 3 ? 0 : count);
    }
    CHECK_EXITED(child, 0);
    status = status_of(id);
    CHECK_EQ(status.shm_nattch, 2);
    CHECK(status.shm_dtime > 0);
    CHECK_EQ(status.shm_lpid, child);
    CHECK_OK(mprotect(first + 4096, 4096, PROT_READ));
    CHECK_EQ(status_of(id).shm_nattch, 4);
    CHECK_OK(munmap(first + 4096, 4096));
    CHECK_EQ(status_of(id).shm_nattch, 3);
    CHECK_OK(shmdt(first));
    CHECK_EQ(status_of(id).shm_nattch, 1);
    CHECK_ERRNO(shmdt(first), EINVAL);
    CHECK_OK(shmdt(second));
    CHECK_EQ(status_of(id).shm_nattch, 0);
    CHECK_OK(shmctl(id, IPC_RMID, 0));
}

CASE(a_removed_segment_stays_until_the_last_detaches)
{
    key_t key = 0x5f0004;
    int id = shmget(key, 4096, IPC_CREAT | 0600);
    char *at = attached(id, 0);
    strcpy(at, "still here");
    CHECK_OK(shmctl(id, IPC_RMID, 0));
    CHECK_ERRNO(shmget(key, 4096, 0), ENOENT);
    struct shmid_ds status = status_of(id);
    CHECK_EQ(status.shm_perm.mode, DEST | 0600);
    CHECK_EQ(status.shm_nattch, 1);
    int other = shmget(key, 4096, IPC_CREAT | 0600);
    CHECK_OK(other);
    CHECK(other != id);
    CHECK_OK(shmctl(other, IPC_RMID, 0));
    char *again = attached(id, 0);
    CHECK_STR(again, "still here");
    CHECK_OK(shmdt(again));
    CHECK_STR(at, "still here");
    CHECK_OK(shmctl(id, IPC_RMID, 0));
    CHECK_OK(shmdt(at));
    CHECK_ERRNO(shmctl(id, IPC_STAT, &status), EINVAL);
    CHECK(shmat(id, 0, 0) == (void *)-1 && errno == EINVAL);
}

CASE(exit_and_exec_detach)
{
    for (int how = 0; how < 3; how++) {
        int id = segment(4096);
        int ready[2];
        CHECK_OK(pipe(ready));
        pid_t child = fork_or_fail();
        if (child == 0) {
            attached(id, 0);
            if (how == 0)
                _exit(0);
            if (how == 1)
                execl("/proc/self/exe", "shm", "--list", (char *)0);
            CHECK_EQ(write(ready[1], "x", 1), 1);
            for (;;)
                pause();
        }
        if (how == 2) {
            char byte;
            CHECK_EQ(read(ready[0], &byte, 1), 1);
            CHECK_OK(shmctl(id, IPC_RMID, 0));
            CHECK_EQ(status_of(id).shm_nattch, 1);
            kill(child, SIGKILL);
            CHECK_KILLED(child, SIGKILL);
            struct shmid_ds status;
            CHECK_ERRNO(shmctl(id, IPC_STAT, &status), EINVAL);
        } else {
            CHECK_EXITED(child, 0);
            CHECK_EQ(status_of(id).shm_nattch, 0);
            CHECK_OK(shmctl(id, IPC_RMID, 0));
        }
        close(ready[0]);
        close(ready[1]);
    }
}

CASE(addresses_are_chosen_rounded_and_refused)
{
    int id = segment(2 * 4096);
    char *room = mmap(0, 16 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    CHECK(shmat(id, room, 0) == (void *)-1 && errno == EINVAL);
    CHECK(shmat(id, room + 1, 0) == (void *)-1 && errno == EINVAL);
    CHECK(shmat(id, 0, SHM_REMAP) == (void *)-1 && errno == EINVAL);
    CHECK(shmat(id, (void *)1, SHM_REMAP | SHM_RND) == (void *)-1 && errno == EINVAL);
    CHECK(shmat(id, room + 4097, SHM_REMAP | SHM_RND) == room + 4096);
    room[4096] = 1;
    CHECK_EQ(status_of(id).shm_nattch, 1);
    CHECK_OK(munmap(room + 8 * 4096, 8 * 4096));
    CHECK(shmat(id, room + 8 * 4096 + 5, SHM_RND) == room + 8 * 4096);
    CHECK_EQ(room[8 * 4096], 1);
    CHECK_ERRNO(shmdt(room), EINVAL);
    CHECK_ERRNO(shmdt(room + 4097), EINVAL);
    CHECK_ERRNO(shmdt(room + 2 * 4096), EINVAL);
    CHECK_OK(shmdt(room + 4096));
    CHECK(shmat(-1, 0, 0) == (void *)-1 && errno == EINVAL);
    CHECK_OK(shmctl(id, IPC_RMID, 0));
}

CASE(detaching_takes_what_is_left)
{
    int id = segment(4 * 4096);
    char *at = attached(id, 0);
    CHECK_OK(munmap(at, 4096));
    CHECK_OK(munmap(at + 2 * 4096, 4096));
    CHECK_EQ(status_of(id).shm_nattch, 2);
    CHECK_OK(shmdt(at));
    CHECK_EQ(status_of(id).shm_nattch, 0);
    unsigned char seen;
    CHECK_ERRNO(mincore(at + 3 * 4096, 4096, &seen), ENOMEM);
    CHECK_OK(shmctl(id, IPC_RMID, 0));
}

CASE(read_only_attachments_stay_so)
{
    int id = segment(4096);
    char *at = attached(id, SHM_RDONLY);
    CHECK_ERRNO(mprotect(at, 4096, PROT_READ | PROT_WRITE), EACCES);
    pid_t child = fork_or_fail();
    if (child == 0) {
        *(volatile char *)at = 1;
        _exit(0);
    }
    CHECK_KILLED(child, SIGSEGV);
    CHECK_OK(shmctl(id, IPC_RMID, 0));
}

CASE(executable_attachments_execute)
{
    static const unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3};
    int id = shmget(IPC_PRIVATE, 4096, 0700);
    unsigned char *at = attached(id, SHM_EXEC);
    memcpy(at, code, sizeof code);
    CHECK_EQ(((int (*)(void))(uintptr_t)at)(), 42);
    CHECK_OK(shmctl(id, IPC_RMID, 0));
}

CASE(permissions_are_checked)
{
    key_t key = 0x5f0005;
    int id = shmget(key, 4096, IPC_CREAT | 0604);
    CHECK_OK(id);
    pid_t child = fork_or_fail();
    if (child == 0) {
        struct shmid_ds status;
        become_nobody();
        CHECK_OK(shmget(key, 0, 0));
        CHECK_OK(shmget(key, 0, 0444));
        CHECK_ERRNO(shmget(key, 0, 0600), EACCES);
        CHECK_ERRNO(shmget(key, 8192, 0600), EINVAL);
        CHECK(shmat(id, 0, 0) == (void *)-1 && errno == EACCES);
        CHECK(shmat(id, 0, SHM_RDONLY | SHM_EXEC) == (void *)-1 && errno == EACCES);
        CHECK(shmat(id, 0, SHM_RDONLY) != (void *)-1);
        CHECK_OK(shmctl(id, IPC_STAT, &status));
        CHECK_ERRNO(shmctl(id, IPC_SET, &status), EPERM);
        CHECK_ERRNO(shmctl(id, IPC_RMID, 0), EPERM);
        CHECK_ERRNO(shmctl(id, SHM_LOCK, 0), EPERM);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    struct shmid_ds status = status_of(id);
    CHECK_EQ(status.shm_perm.mode, 0604);
    status.shm_perm.mode = 0777600;
    status.shm_perm.uid = 65534;
    status.shm_perm.gid = 65533;
    CHECK_OK(shmctl(id, IPC_SET, &status));
    status = status_of(id);
    CHECK_EQ(status.shm_perm.mode, 0600);
    CHECK_EQ(status.shm_perm.uid, 65534);
    CHECK_EQ(status.shm_perm.gid, 65533);
    CHECK_EQ(status.shm_perm.cuid, 0);
    child = fork_or_fail();
    if (child == 0) {
        become_nobody();
        CHECK(shmat(id, 0, 0) != (void *)-1);
        CHECK_OK(shmctl(id, IPC_RMID, 0));
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_ERRNO(shmctl(id, IPC_STAT, &status), EINVAL);
}

CASE(commands_are_checked)
{
    int id = segment(4096);
    struct shmid_ds status;
    CHECK_ERRNO(shmctl(id, 99, &status), EINVAL);
    CHECK_ERRNO(shmctl(-1, IPC_STAT, &status), EINVAL);
    CHECK_ERRNO(shmctl(id + 32768, IPC_STAT, &status), EINVAL);
    CHECK_ERRNO(syscall(SYS_shmctl, id, IPC_STAT, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_shmctl, id, IPC_SET, BAD_LOW), EFAULT);
    CHECK_OK(shmctl(id, SHM_LOCK, 0));
    CHECK_EQ(status_of(id).shm_perm.mode, LOCKED | 0600);
    CHECK_OK(shmctl(id, SHM_UNLOCK, 0));
    CHECK_EQ(status_of(id).shm_perm.mode, 0600);
    CHECK_OK(shmctl(id, IPC_RMID, 0));
}

CASE(the_system_tells_what_there_is)
{
    struct shminfo limits;
    struct { int used, pad; unsigned long tot, rss, swp, tried, done; } usage;
    int id = segment(10000);
    char *at = attached(id, 0);
    at[0] = at[5000] = 1;
    int highest = shmctl(0, IPC_INFO, (struct shmid_ds *)&limits);
    CHECK(highest >= (id & 32767));
    CHECK_EQ(limits.shmmin, 1);
    CHECK_EQ(limits.shmmni, 4096);
    CHECK_EQ(limits.shmmax, 18446744073692774399UL);
    CHECK_EQ(shmctl(0, SHM_INFO, (struct shmid_ds *)&usage), highest);
    CHECK(usage.used >= 1 && usage.tot >= 3 && usage.rss >= 2);
    int found = 0;
    for (int index = 0; index <= highest; index++) {
        struct shmid_ds status;
        int got = shmctl(index, SHM_STAT, &status);
        if (got == id) {
            found = 1;
            CHECK_EQ(status.shm_segsz, 10000);
            CHECK_EQ(shmctl(index, STAT_ANY, &status), id);
        }
    }
    CHECK(found);
    CHECK_OK(shmctl(id, IPC_RMID, 0));
}

CASE(proc_lists_segments_and_maps)
{
    int id = shmget(0x5f0006, 10000, IPC_CREAT | 0640);
    char *at = attached(id, 0), text[20000], wanted[100];
    at[0] = 1;
    slurp("/proc/sysvipc/shm", text, sizeof text);
    CHECK(strncmp(text, "       key      shmid perms                  size  cpid  lpid nattch", 60) == 0);
    snprintf(wanted, sizeof wanted, "\n%10d %10d  %4o %21lu %5u %5u  %5lu %5u %5u", 0x5f0006, id,
             0640, 10000UL, getpid(), getpid(), 1UL, 0, 0);
    CHECK(strstr(text, wanted) != 0);
    slurp("/proc/self/maps", text, sizeof text);
    snprintf(wanted, sizeof wanted, "/SYSV%08x (deleted)", 0x5f0006);
    CHECK(strstr(text, wanted) != 0);
    snprintf(wanted, sizeof wanted, "%lx-%lx rw-s 00000000 00:", (unsigned long)at,
             (unsigned long)at + 12288);
    CHECK(strstr(text, wanted) != 0);
    CHECK_OK(shmctl(id, IPC_RMID, 0));
}

CASE(numbers_of_removed_segments_find_nothing)
{
    int first = segment(4096);
    CHECK_OK(shmctl(first, IPC_RMID, 0));
    for (int round = 0; round < 100; round++) {
        int id = segment(4096);
        CHECK(id != first);
        CHECK_OK(shmctl(id, IPC_RMID, 0));
    }
}

CASE(limits_can_be_set)
{
    char text[100];
    slurp("/proc/sys/kernel/shmmni", text, sizeof text);
    CHECK_STR(text, "4096\n");
    slurp("/proc/sys/kernel/shmmax", text, sizeof text);
    CHECK_STR(text, "18446744073692774399\n");
    int fd = open("/proc/sys/kernel/shmmax", O_WRONLY);
    CHECK_OK(fd);
    CHECK_EQ(write(fd, "8192\n", 5), 5);
    CHECK_ERRNO(shmget(IPC_PRIVATE, 8193, 0600), EINVAL);
    int id = segment(8192);
    CHECK_OK(shmctl(id, IPC_RMID, 0));
    CHECK_EQ(pwrite(fd, "18446744073692774399\n", 21, 0), 21);
    close(fd);
    fd = open("/proc/sys/kernel/shmmni", O_WRONLY);
    CHECK_ERRNO(pwrite(fd, "99999", 5, 0), EINVAL);
    CHECK_EQ(pwrite(fd, "0", 1, 0), 1);
    CHECK_ERRNO(shmget(IPC_PRIVATE, 4096, 0600), ENOSPC);
    CHECK_EQ(pwrite(fd, "4096", 4, 0), 4);
    close(fd);
}

CASE(a_moved_attachment_counts_once)
{
    int id = segment(2 * 4096);
    char *at = attached(id, 0);
    at[0] = 5;
    char *moved = mremap(at, 8192, 4 * 4096, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED)
        CHECK(errno == ENOMEM || errno == EINVAL);
    else
        CHECK_EQ(moved[0], 5);
    CHECK_EQ(status_of(id).shm_nattch, 1);
    CHECK_OK(shmctl(id, IPC_RMID, 0));
}
