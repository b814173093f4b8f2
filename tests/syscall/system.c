/* Who and where a process is: identities, groups, limits, priorities, affinity, prctl, arch_prctl,
 * uname, sysinfo, getrandom. */
#include "harness.h"
#include <grp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/fsuid.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

/* Runs the body in a child, so that what it gives up is given up there only. */
#define IN_CHILD(...)                                                                          \
    do {                                                                                       \
        pid_t child_ = fork_or_fail();                                                         \
        if (child_ == 0) {                                                                     \
            __VA_ARGS__;                                                                       \
            _exit(0);                                                                          \
        }                                                                                      \
        CHECK_EXITED(child_, 0);                                                               \
    } while (0)

CASE(root_is_root)
{
    uid_t user[3];
    gid_t group[3];
    CHECK_EQ(getuid(), 0);
    CHECK_EQ(geteuid(), 0);
    CHECK_EQ(getgid(), 0);
    CHECK_EQ(getegid(), 0);
    CHECK_OK(getresuid(&user[0], &user[1], &user[2]));
    CHECK_OK(getresgid(&group[0], &group[1], &group[2]));
    CHECK_EQ(user[2], 0);
    CHECK_EQ(group[2], 0);
    CHECK_ERRNO(syscall(SYS_getresuid, BAD_LOW, &user, &user), EFAULT);
    CHECK_ERRNO(syscall(SYS_getresgid, &user, &user, BAD_LOW), EFAULT);
}

CASE(setuid_of_root_is_for_ever)
{
    IN_CHILD({
        uid_t user[3];
        CHECK_OK(syscall(SYS_setuid, 1000));
        CHECK_OK(getresuid(&user[0], &user[1], &user[2]));
        CHECK_EQ(user[0], 1000);
        CHECK_EQ(user[1], 1000);
        CHECK_EQ(user[2], 1000);
        CHECK_ERRNO(syscall(SYS_setuid, 0), EPERM);
        CHECK_ERRNO(syscall(SYS_setreuid, 0, -1), EPERM);
        CHECK_ERRNO(syscall(SYS_setresuid, -1, 0, -1), EPERM);
        CHECK_ERRNO(syscall(SYS_setgid, 5), EPERM);
        CHECK_ERRNO(syscall(SYS_setgroups, 0, NULL), EPERM);
        CHECK_OK(syscall(SYS_setuid, 1000));
    });
    CHECK_ERRNO(syscall(SYS_setuid, -1), EINVAL);
}

CASE(saved_ids_allow_the_way_back)
{
    IN_CHILD({
        CHECK_OK(syscall(SYS_setresuid, 1, 2, 3));
        CHECK_OK(syscall(SYS_setresuid, -1, 3, -1));
        CHECK_EQ(geteuid(), 3);
        CHECK_OK(syscall(SYS_setresuid, -1, 1, -1));
        CHECK_EQ(geteuid(), 1);
        CHECK_ERRNO(syscall(SYS_setresuid, -1, 4, -1), EPERM);
        CHECK_EQ(getuid(), 1);
    });
    IN_CHILD({
        CHECK_OK(syscall(SYS_setreuid, 5, 6));
        CHECK_EQ(getuid(), 5);
        CHECK_EQ(geteuid(), 6);
        CHECK_OK(syscall(SYS_setreuid, 6, 5));
        CHECK_EQ(getuid(), 6);
    });
    IN_CHILD({
        CHECK_OK(syscall(SYS_setregid, 5, 6));
        CHECK_EQ(getgid(), 5);
        CHECK_EQ(getegid(), 6);
        CHECK_OK(syscall(SYS_setresgid, 7, 8, 9));
        CHECK_EQ(getegid(), 8);
        CHECK_OK(syscall(SYS_setgid, 4));
        CHECK_EQ(getgid(), 4);
    });
}

CASE(supplementary_groups)
{
    IN_CHILD({
        gid_t groups[4] = {10, 30, 20, 0};
        CHECK_OK(syscall(SYS_setgroups, 3, groups));
        CHECK_EQ(getgroups(0, NULL), 3);
        memset(groups, 0xff, sizeof groups);
        CHECK_EQ(getgroups(4, groups), 3);
        CHECK_EQ(groups[0] + groups[1] + groups[2], 60);
        CHECK_ERRNO(getgroups(2, groups), EINVAL);
        CHECK_ERRNO(syscall(SYS_getgroups, -1, groups), EINVAL);
        CHECK_ERRNO(syscall(SYS_getgroups, 4, BAD_LOW), EFAULT);
        CHECK_ERRNO(syscall(SYS_setgroups, 3, BAD_LOW), EFAULT);
        CHECK_ERRNO(syscall(SYS_setgroups, 100000, groups), EINVAL);
        CHECK_OK(syscall(SYS_setgroups, 0, NULL));
        CHECK_EQ(getgroups(0, NULL), 0);
    });
}

CASE(file_system_ids)
{
    IN_CHILD({
        scratch();
        close(file_with("f", "x", 1));
        CHECK_OK(chmod("f", 0600));
        CHECK_OK(chmod(".", 0777));
        CHECK_EQ(syscall(SYS_setfsuid, 1000), 0);
        CHECK_EQ(syscall(SYS_setfsuid, -1), 1000);
        CHECK_ERRNO(open("f", O_RDONLY), EACCES);
        int fd = open("g", O_CREAT | O_RDWR, 0600);
        struct stat status;
        CHECK_OK(fstat(fd, &status));
        CHECK_EQ(status.st_uid, 1000);
        CHECK_EQ(syscall(SYS_setfsuid, 0), 1000);
        CHECK_OK(open("f", O_RDONLY));
    });
}

CASE(resource_limits)
{
    struct rlimit limit, old;
    CHECK_OK(getrlimit(RLIMIT_NOFILE, &old));
    limit = (struct rlimit){50, 60};
    CHECK_OK(setrlimit(RLIMIT_NOFILE, &limit));
    CHECK_OK(getrlimit(RLIMIT_NOFILE, &limit));
    CHECK_EQ(limit.rlim_cur, 50);
    CHECK_EQ(limit.rlim_max, 60);
    CHECK_ERRNO(fcntl(0, F_DUPFD, 50), EINVAL);
    limit = (struct rlimit){70, 60};
    CHECK_ERRNO(setrlimit(RLIMIT_NOFILE, &limit), EINVAL);
    CHECK_ERRNO(getrlimit(99, &limit), EINVAL);
    CHECK_ERRNO(syscall(SYS_getrlimit, RLIMIT_NOFILE, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_setrlimit, RLIMIT_NOFILE, BAD_LOW), EFAULT);
    IN_CHILD({
        CHECK_OK(syscall(SYS_setuid, 1000));
        limit = (struct rlimit){10, 61};
        CHECK_ERRNO(setrlimit(RLIMIT_NOFILE, &limit), EPERM);
        limit = (struct rlimit){10, 20};
        CHECK_OK(setrlimit(RLIMIT_NOFILE, &limit));
    });
    CHECK_OK(getrlimit(RLIMIT_STACK, &limit));
    CHECK(limit.rlim_cur >= 1 << 20);
}

CASE(prlimit_of_others)
{
    struct rlimit limit = {33, 44}, old;
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (;;)
            pause();
    }
    CHECK_OK(syscall(SYS_prlimit64, child, RLIMIT_NOFILE, &limit, &old));
    CHECK_OK(syscall(SYS_prlimit64, child, RLIMIT_NOFILE, NULL, &old));
    CHECK_EQ(old.rlim_cur, 33);
    CHECK_ERRNO(syscall(SYS_prlimit64, 0x3fffffff, RLIMIT_NOFILE, NULL, &old), ESRCH);
    CHECK_ERRNO(syscall(SYS_prlimit64, 0, 99, NULL, &old), EINVAL);
    CHECK_ERRNO(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, BAD_LOW, &old), EFAULT);
    CHECK_ERRNO(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, BAD_LOW), EFAULT);
    kill(child, SIGKILL);
    CHECK_KILLED(child, SIGKILL);
}

CASE(process_1_has_limits_and_capabilities)
{
    struct rlimit limit;
    struct {
        uint32_t version;
        int pid;
    } header = {0x20080522, 1};
    uint32_t sets[6] = {0};
    CHECK_OK(syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, NULL, &limit));
    CHECK(limit.rlim_max > 0);
    CHECK_OK(syscall(SYS_capget, &header, sets));
    CHECK(sets[1] != 0);
    header.pid = 0x3fffffff;
    CHECK_ERRNO(syscall(SYS_capget, &header, sets), ESRCH);
}

CASE(too_many_descriptors)
{
    struct rlimit limit = {20, 20};
    CHECK_OK(setrlimit(RLIMIT_NOFILE, &limit));
    int fd, ends[2];
    while ((fd = dup(0)) >= 0)
        CHECK(fd < 20);
    CHECK_EQ(errno, EMFILE);
    CHECK_ERRNO(open("/dev/null", O_RDONLY), EMFILE);
    CHECK_ERRNO(pipe(ends), EMFILE);
    CHECK_ERRNO(dup2(0, 20), EBADF);
    close(19);
    CHECK_ERRNO(pipe(ends), EMFILE); /* One is not enough, */
    CHECK_EQ(dup(0), 19);            /* and nothing was lost. */
}

CASE(file_size_limit_signals)
{
    struct rlimit limit = {1000, RLIM_INFINITY};
    static char block[2000];
    scratch();
    CHECK_OK(setrlimit(RLIMIT_FSIZE, &limit));
    int fd = file_with("f", "", 0);
    CHECK_EQ(write(fd, block, sizeof block), 1000);
    signal(SIGXFSZ, SIG_IGN);
    CHECK_ERRNO(write(fd, block, 1), EFBIG);
    CHECK_ERRNO(ftruncate(fd, 1001), EFBIG);
    pid_t child = fork_or_fail();
    if (child == 0) {
        signal(SIGXFSZ, SIG_DFL);
        write(fd, block, 1);
        _exit(0);
    }
    CHECK_KILLED(child, SIGXFSZ);
}

CASE(process_limit)
{
    IN_CHILD({
        struct rlimit limit = {4, 4};
        CHECK_OK(syscall(SYS_setresuid, 4321, 4321, 4321));
        CHECK_OK(setrlimit(RLIMIT_NPROC, &limit));
        int started = 0;
        while (started < 10) {
            pid_t child = fork();
            if (child == 0) {
                for (;;)
                    pause();
            }
            if (child == -1)
                break;
            started++;
        }
        CHECK_EQ(errno, EAGAIN);
        CHECK_EQ(started, 3);
        _exit(0);
    });
}

CASE(priorities)
{
    CHECK_EQ(getpriority(PRIO_PROCESS, 0), 0);
    CHECK_EQ(syscall(SYS_getpriority, PRIO_PROCESS, 0), 20);
    CHECK_OK(setpriority(PRIO_PROCESS, 0, 5));
    CHECK_EQ(syscall(SYS_getpriority, PRIO_PROCESS, 0), 15);
    CHECK_OK(setpriority(PRIO_PROCESS, 0, 100)); /* Clamped to 19. */
    CHECK_EQ(syscall(SYS_getpriority, PRIO_PROCESS, 0), 1);
    CHECK_OK(setpriority(PRIO_PROCESS, 0, -100));
    CHECK_EQ(syscall(SYS_getpriority, PRIO_PROCESS, 0), 40);
    CHECK_ERRNO(setpriority(77, 0, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_getpriority, 77, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_getpriority, PRIO_PROCESS, 0x3fffffff), ESRCH);
    CHECK_OK(setpriority(PRIO_PROCESS, 0, 3));
    IN_CHILD({
        CHECK_EQ(getpriority(PRIO_PROCESS, 0), 3); /* Inherited. */
        CHECK_OK(syscall(SYS_setuid, 1000));
        CHECK_ERRNO(setpriority(PRIO_PROCESS, 0, 0), EACCES);
        CHECK_OK(setpriority(PRIO_PROCESS, 0, 4));
        CHECK_ERRNO(setpriority(PRIO_PROCESS, getppid(), 10), EPERM);
    });
}

CASE(affinity)
{
    unsigned long mask[16] = {0}, one[16] = {0};
    long size = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    CHECK(size >= 8 && size % 8 == 0);
    CHECK(mask[0] != 0);
    one[0] = mask[0] & -mask[0];
    CHECK_OK(syscall(SYS_sched_setaffinity, 0, sizeof one, one));
    memset(mask, 0, sizeof mask);
    CHECK(syscall(SYS_sched_getaffinity, 0, sizeof mask, mask) > 0);
    CHECK_EQ(mask[0], one[0]);
    unsigned cpu = 999;
    CHECK_OK(syscall(SYS_getcpu, &cpu, NULL, NULL));
    CHECK_EQ(1UL << cpu, one[0]);
    one[0] = 0;
    CHECK_ERRNO(syscall(SYS_sched_setaffinity, 0, sizeof one, one), EINVAL);
    CHECK_ERRNO(syscall(SYS_sched_setaffinity, 0, 8, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_sched_getaffinity, 0, 128, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_sched_getaffinity, 0, 3, mask), EINVAL);
    CHECK_ERRNO(syscall(SYS_sched_getaffinity, 0x3fffffff, 128, mask), ESRCH);
    CHECK_OK(sched_yield());
}

CASE(prctl_options)
{
    char name[17] = {0};
    int value = -1;
    CHECK_OK(prctl(PR_SET_NAME, "a-name-longer-than-fits"));
    CHECK_OK(prctl(PR_GET_NAME, name));
    CHECK_STR(name, "a-name-longer-t");
    CHECK_ERRNO(syscall(SYS_prctl, PR_SET_NAME, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_prctl, PR_GET_NAME, BAD_LOW), EFAULT);
    CHECK_OK(prctl(PR_SET_PDEATHSIG, SIGUSR1));
    CHECK_OK(prctl(PR_GET_PDEATHSIG, &value));
    CHECK_EQ(value, SIGUSR1);
    CHECK_ERRNO(prctl(PR_SET_PDEATHSIG, 100), EINVAL);
    CHECK_EQ(prctl(PR_GET_DUMPABLE), 1);
    CHECK_OK(prctl(PR_SET_DUMPABLE, 0));
    CHECK_EQ(prctl(PR_GET_DUMPABLE), 0);
    CHECK_ERRNO(prctl(PR_SET_DUMPABLE, 7), EINVAL);
    CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 0);
    CHECK_OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
    CHECK_OK(prctl(PR_GET_CHILD_SUBREAPER, &value));
    CHECK_EQ(value, 0);
    CHECK_ERRNO(prctl(123456, 0, 0, 0, 0), EINVAL);
}

CASE(arch_prctl_bases)
{
    unsigned long base = 0, mine = 0;
    CHECK_OK(syscall(SYS_arch_prctl, 0x1003 /* ARCH_GET_FS */, &base));
    CHECK(base != 0);
    CHECK_OK(syscall(SYS_arch_prctl, 0x1001 /* ARCH_SET_GS */, &mine));
    CHECK_OK(syscall(SYS_arch_prctl, 0x1004 /* ARCH_GET_GS */, &base));
    CHECK_EQ(base, (unsigned long)&mine);
    mine = 4711;
    __asm__ volatile("mov %%gs:0, %0" : "=r"(base));
    CHECK_EQ(base, 4711);
    for (int i = 0; i < 100; i++) { /* It survives switches. */
        sched_yield();
        getppid();
    }
    __asm__ volatile("mov %%gs:0, %0" : "=r"(base));
    CHECK_EQ(base, 4711);
    CHECK_ERRNO(syscall(SYS_arch_prctl, 0x1001, BAD_KERNEL), EPERM);
    CHECK_ERRNO(syscall(SYS_arch_prctl, 0x1002, BAD_CANONICAL), EPERM);
    CHECK_ERRNO(syscall(SYS_arch_prctl, 0x1003, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_arch_prctl, 77, &base), EINVAL);
}

CASE(uname_and_host_name)
{
    struct utsname name;
    CHECK_OK(uname(&name));
    CHECK_STR(name.sysname, "Linux"); /* What programs compare with. */
    CHECK_STR(name.machine, "x86_64");
    CHECK(name.release[0] >= '3' && name.release[0] <= '9');
    CHECK(strlen(name.version) > 0);
    CHECK_ERRNO(syscall(SYS_uname, BAD_LOW), EFAULT);
}

CASE(sysinfo_is_plausible)
{
    struct sysinfo now;
    CHECK_OK(sysinfo(&now));
    CHECK(now.totalram * now.mem_unit > 16 << 20);
    CHECK(now.freeram <= now.totalram);
    CHECK(now.procs >= 1);
    CHECK(now.uptime < 1000000000);
    CHECK_ERRNO(syscall(SYS_sysinfo, BAD_LOW), EFAULT);
}

CASE(getrandom_fills)
{
    static unsigned char one[10000], two[10000];
    int count[256] = {0};
    CHECK_EQ(syscall(SYS_getrandom, one, 100, 0), 100);
    CHECK_EQ(syscall(SYS_getrandom, two, 100, 0), 100);
    CHECK(memcmp(one, two, 100) != 0);
    size_t done = 0;
    while (done < sizeof one) {
        long got = syscall(SYS_getrandom, one + done, sizeof one - done, 1 /* GRND_NONBLOCK */);
        CHECK(got > 0);
        done += (size_t)got;
    }
    for (size_t i = 0; i < sizeof one; i++)
        count[one[i]]++;
    for (int i = 0; i < 256; i++)
        CHECK(count[i] > 0 && count[i] < 200);
    CHECK_EQ(syscall(SYS_getrandom, BAD_LOW, 0, 0), 0);
    CHECK_ERRNO(syscall(SYS_getrandom, BAD_LOW, 10, 0), EFAULT);
    CHECK_ERRNO(syscall(SYS_getrandom, one, 10, 0x80), EINVAL);
    pid_t child = fork_or_fail();
    if (child == 0) /* A child does not repeat its parent's numbers. */
        _exit(0);
    CHECK_EXITED(child, 0);
}

CASE(pids_are_not_reused_at_once)
{
    pid_t first = fork_or_fail();
    if (first == 0)
        _exit(0);
    CHECK_EXITED(first, 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork_or_fail();
        if (child == 0)
            _exit(0);
        CHECK(child != first);
        CHECK_EXITED(child, 0);
    }
}

CASE(umask_is_of_the_process)
{
    CHECK_OK(umask(0123));
    IN_CHILD({ CHECK_EQ(umask(0), 0123); });
    CHECK_EQ(umask(022), 0123);
}
