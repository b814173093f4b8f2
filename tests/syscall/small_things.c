/* Small things that differ from kernel to kernel and that programs look at: ioctls of every file, vectors of
 * nothing, parameters of prctl, the deadline policy, tables in /proc. */
#include "harness.h"
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

#define GET_BLOCK_SIZE 2
#define FIND_BLOCK 1
#define QUANTITY 0x5460
#define ASYNC 0x5452

CASE(every_file_has_a_block_size)
{
    int ends[2], value, fds[4], i;
    scratch();
    CHECK_OK(pipe(ends));
    fds[0] = file_with("f", "x", 1);
    fds[1] = open(".", O_RDONLY);
    fds[2] = ends[0];
    fds[3] = open("/dev/null", O_RDWR);
    for (i = 0; i < 4; i++) {
        value = 0;
        CHECK_OK(ioctl(fds[i], GET_BLOCK_SIZE, &value));
        CHECK_EQ(value, 4096);
    }
    CHECK_ERRNO(ioctl(fds[0], GET_BLOCK_SIZE, BAD_LOW), EFAULT);
    CHECK_ERRNO(ioctl(fds[0], FIND_BLOCK, &value), EINVAL);
}

CASE(sizes_by_ioctl)
{
    long long size = -1;
    int file;
    scratch();
    file = file_with("f", "12345", 5);
    CHECK_OK(ioctl(file, QUANTITY, &size));
    CHECK_EQ(size, 4096); /* What it takes, not what it holds. */
    CHECK_OK(ioctl(open(".", O_RDONLY), QUANTITY, &size));
    CHECK_ERRNO(ioctl(open("/dev/null", O_RDONLY), QUANTITY, &size), ENOTTY);
}

CASE(not_every_file_sends_signals)
{
    int on = 1, off = 0, i, ends[2];
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    int fds[] = {eventfd(0, 0), epoll_create1(0), timerfd_create(CLOCK_MONOTONIC, 0), signalfd(-1, &set, 0)};
    for (i = 0; i < 4; i++) {
        CHECK_OK(ioctl(fds[i], ASYNC, &off));
        CHECK_ERRNO(ioctl(fds[i], ASYNC, &on), ENOTTY);
    }
    CHECK_OK(pipe(ends));
    CHECK_OK(ioctl(ends[0], ASYNC, &on));
    CHECK_OK(ioctl(ends[0], ASYNC, &off));
}

CASE(vectors_of_nothing)
{
    int ends[2], counter = eventfd(0, 0);
    char byte;
    struct iovec nothing[2] = {{&byte, 0}, {NULL, 0}};
    CHECK_OK(pipe(ends));
    CHECK_EQ(readv(ends[0], nothing, 0), 0);
    CHECK_EQ(readv(ends[0], nothing, 2), 0);
    CHECK_EQ(readv(counter, nothing, 2), 0);
    CHECK_EQ(writev(ends[1], nothing, 2), 0);
    CHECK_ERRNO(readv(ends[1], nothing, 0), EBADF);
    CHECK_ERRNO(readv(ends[0], nothing, -1), EINVAL);
    CHECK_EQ(syscall(SYS_process_vm_readv, 999999, nothing, 0, nothing, 1, 0), 0);
}

CASE(files_of_proc_are_not_synced)
{
    int file = open("/proc/self/status", O_RDONLY);
    CHECK_OK(file);
    CHECK_ERRNO(fsync(file), EINVAL);
    CHECK_ERRNO(fdatasync(file), EINVAL);
}

CASE(how_long_writes_live)
{
    uint64_t hint = 99;
    scratch();
    CHECK_OK(fcntl(file_with("f", "x", 1), 1035, &hint));
    CHECK_EQ(hint, 0);
}

CASE(unshare_of_one_thread)
{
    CHECK_OK(unshare(CLONE_THREAD));
    CHECK_OK(unshare(CLONE_SIGHAND));
    CHECK_OK(unshare(CLONE_VM));
    CHECK_OK(unshare(0));
    CHECK_ERRNO(unshare(1), EINVAL);
}

CASE(machine_checks_and_speculation)
{
    CHECK_EQ(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), 2);
    CHECK_OK(prctl(PR_MCE_KILL, 1, 1, 0, 0));
    CHECK_EQ(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), 1);
    CHECK_OK(prctl(PR_MCE_KILL, 0, 0, 0, 0));
    CHECK_EQ(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), 2);
    CHECK_ERRNO(prctl(PR_MCE_KILL, 0, 1, 0, 0), EINVAL);
    CHECK_ERRNO(prctl(PR_MCE_KILL, 1, 9, 0, 0), EINVAL);
    CHECK_ERRNO(prctl(PR_MCE_KILL, 2, 0, 0, 0), EINVAL);
    CHECK_ERRNO(prctl(PR_MCE_KILL_GET, 1, 0, 0, 0), EINVAL);
    CHECK_ERRNO(prctl(52, 9, 0, 0, 0), ENODEV);
    CHECK_ERRNO(prctl(52, 0, 0, 0, 1), EINVAL);
    CHECK(prctl(52, 0, 0, 0, 0) >= 0);
    CHECK_ERRNO(prctl(53, 0, 0, 1, 0), EINVAL);
    CHECK_ERRNO(prctl(53, 9, 0, 0, 0), ENODEV);
    CHECK_OK(prctl(PR_TASK_PERF_EVENTS_DISABLE));
    CHECK_OK(prctl(PR_TASK_PERF_EVENTS_ENABLE));
}

CASE(no_huge_pages_are_wanted)
{
    pid_t child;
    CHECK_EQ(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 0);
    CHECK_OK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
    CHECK_EQ(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 1);
    child = fork_or_fail();
    if (child == 0)
        _exit(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    CHECK_EXITED(child, 1);
    CHECK_OK(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0));
    CHECK_EQ(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 0);
}

struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

static long deadline(uint64_t runtime, uint64_t until, uint64_t period)
{
    struct scheduling value = {48, 6, 0, 0, 0, runtime, until, period};
    return syscall(314, 0, &value, 0);
}

CASE(the_deadline_policy)
{
    struct scheduling value;
    CHECK_ERRNO(deadline(1000, 30000000, 30000000), EINVAL);
    CHECK_ERRNO(deadline(20000000, 10000000, 30000000), EINVAL);
    CHECK_ERRNO(deadline(10000000, 30000000, 20000000), EINVAL);
    CHECK_ERRNO(deadline(10000000, 0, 30000000), EINVAL);
    if (deadline(10000000, 20000000, 30000000) == -1)
        SKIP("this machine has no room for the deadline policy");
    CHECK_EQ(syscall(SYS_sched_getscheduler, 0), 6);
    memset(&value, 0, sizeof value);
    CHECK_OK(syscall(315, 0, &value, sizeof value, 0));
    CHECK_EQ(value.policy, 6);
    CHECK_EQ(value.runtime, 10000000);
    CHECK_EQ(value.deadline, 20000000);
    CHECK_EQ(value.period, 30000000);
    value = (struct scheduling){48, 0, 0, 0, 0, 0, 0, 0};
    CHECK_OK(syscall(314, 0, &value, 0));
    CHECK_EQ(syscall(SYS_sched_getscheduler, 0), 0);
    if (geteuid() == 0) {
        pid_t child = fork_or_fail();
        if (child == 0) {
            CHECK_OK(setuid(1000));
            CHECK_ERRNO(deadline(10000000, 20000000, 30000000), EPERM);
            _exit(0);
        }
        CHECK_EXITED(child, 0);
    }
}

CASE(two_ways_to_spread_at_once)
{
    scratch();
    CHECK_ERRNO(mount(NULL, "/", NULL, MS_PRIVATE | MS_SHARED, NULL), EINVAL);
    CHECK_ERRNO(mount(NULL, "/", NULL, MS_PRIVATE | MS_RDONLY, NULL), EINVAL);
}

CASE(tables_of_proc)
{
    static char text[65536];
    slurp("/proc/buddyinfo", text, sizeof text);
    CHECK(strncmp(text, "Node 0, zone ", 13) == 0);
    slurp("/proc/zoneinfo", text, sizeof text);
    CHECK(strstr(text, "  pages free ") != NULL);
    CHECK(strstr(text, "        managed  ") != NULL);
    slurp("/proc/softirqs", text, sizeof text);
    CHECK(strstr(text, "CPU0") != NULL);
    CHECK(strstr(text, "TIMER:") != NULL);
    slurp("/proc/execdomains", text, sizeof text);
    CHECK(strstr(text, "[kernel]") != NULL);
    slurp("/proc/tty/drivers", text, sizeof text);
    CHECK(strstr(text, "/dev/ptmx") != NULL);
    slurp("/proc/slabinfo", text, sizeof text);
    CHECK(strncmp(text, "slabinfo - version: 2.1\n", 24) == 0);
}

static long long setting(const char *name)
{
    char path[200], text[200];
    snprintf(path, sizeof path, "/proc/sys/%s", name);
    slurp(path, text, sizeof text);
    return strtoll(text, NULL, 10);
}

CASE(settings_that_are_read)
{
    CHECK(setting("kernel/hung_task_timeout_secs") >= 0);
    CHECK(setting("kernel/perf_event_mlock_kb") > 0);
    CHECK(setting("kernel/pty/max") > 0);
    CHECK(setting("kernel/keys/maxbytes") > 0);
    CHECK(setting("kernel/watchdog_thresh") >= 0);
    CHECK(setting("vm/watermark_scale_factor") > 0);
    CHECK(setting("vm/dirtytime_expire_seconds") > 0);
    CHECK(setting("vm/compaction_proactiveness") >= 0);
    CHECK(setting("vm/extfrag_threshold") >= 0);
}

CASE(files_of_a_process)
{
    char text[4096];
    CHECK_OK(access("/proc/self/projid_map", F_OK));
    slurp("/proc/self/stack", text, sizeof text);
}

static void put(const char *path, const char *text, int error)
{
    int file = open(path, O_WRONLY);
    CHECK_OK(file);
    if (error)
        CHECK_ERRNO(write(file, text, strlen(text)), error);
    else
        CHECK_EQ(write(file, text, strlen(text)), strlen(text));
    CHECK_OK(close(file));
}

CASE(the_older_scale_of_whom_to_kill_first)
{
    char text[64];
    pid_t child = fork_or_fail();
    if (child == 0) {
        put("/proc/self/oom_adj", "5\n", 0);
        slurp("/proc/self/oom_score_adj", text, sizeof text);
        CHECK_EQ(atoi(text), 294);
        put("/proc/self/oom_adj", "15", 0);
        slurp("/proc/self/oom_score_adj", text, sizeof text);
        CHECK_EQ(atoi(text), 1000);
        slurp("/proc/self/oom_adj", text, sizeof text);
        CHECK_EQ(atoi(text), 15);
        put("/proc/self/oom_score_adj", "294", 0);
        slurp("/proc/self/oom_adj", text, sizeof text);
        CHECK_EQ(atoi(text), 4);
        put("/proc/self/oom_adj", "16", EINVAL);
        put("/proc/self/oom_adj", "-18", EINVAL);
        put("/proc/self/oom_adj", "x", EINVAL);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(mounts_and_sets_of_a_process)
{
    static char text[65536];
    slurp("/proc/self/mountstats", text, sizeof text);
    CHECK(strncmp(text, "device ", 7) == 0);
    CHECK(strstr(text, " mounted on /proc with fstype proc\n") != NULL);
    if (access("/proc/self/cpuset", F_OK) == 0 || getenv("FERRY_GUEST")) {
        slurp("/proc/self/cpuset", text, sizeof text);
        CHECK(strcmp(text, "/\n") == 0);
    }
}

CASE(devices_by_number)
{
    struct stat found;
    scratch();
    CHECK_OK(mkdir("sys", 0755));
    CHECK_OK(mount("sysfs", "sys", "sysfs", 0, NULL));
    CHECK_OK(stat("sys/dev/block", &found));
    CHECK(S_ISDIR(found.st_mode));
    CHECK_OK(stat("sys/dev/char", &found));
    CHECK(S_ISDIR(found.st_mode));
    CHECK_OK(umount("sys"));
}

CASE(processors_and_memory_of_a_node)
{
    static char text[65536];
    scratch();
    CHECK_OK(mkdir("sys", 0755));
    CHECK_OK(mount("sysfs", "sys", "sysfs", 0, NULL));
    if (access("sys/devices/system/node/node0", F_OK) && !getenv("FERRY_GUEST"))
        SKIP("this machine's kernel knows no nodes");
    slurp("sys/devices/system/node/node0/cpumap", text, sizeof text);
    CHECK(strspn(text, "0123456789abcdef,\n") == strlen(text));
    CHECK(strtoul(strrchr(text, ',') ? strrchr(text, ',') + 1 : text, NULL, 16) & 1);
    slurp("sys/devices/system/node/node0/cpulist", text, sizeof text);
    CHECK_EQ(text[0], '0');
    slurp("sys/devices/system/node/node0/distance", text, sizeof text);
    CHECK_EQ(atoi(text), 10);
    slurp("sys/devices/system/node/node0/meminfo", text, sizeof text);
    CHECK(strstr(text, "Node 0 MemTotal: ") != NULL);
    CHECK_OK(umount("sys"));
}

CASE(the_configuration_is_packed)
{
    unsigned char head[3];
    int file = open("/proc/config.gz", O_RDONLY);
    if (file == -1 && !getenv("FERRY_GUEST"))
        SKIP("this machine's kernel does not tell its configuration");
    CHECK_EQ(read(file, head, sizeof head), sizeof head);
    CHECK_EQ(head[0], 0x1f);
    CHECK_EQ(head[1], 0x8b);
    CHECK_EQ(head[2], 8);
}
