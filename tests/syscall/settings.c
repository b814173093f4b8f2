/* What programs read of /proc and /sys about the system, and settings that can be written. What is written
 * on the host is what was read, or is wrong, except where the settings are of this process's own. */
#include "harness.h"
#include <sys/statfs.h>

static char text[65536];

static long long number_in(const char *path)
{
    char *end;
    slurp(path, text, sizeof text);
    long long number = strtoll(text, &end, 10);
    if (end == text || (*end != '\n' && *end != 0))
        FAIL("%s holds a number, got \"%.50s\"", path, text);
    return number;
}

static int put(const char *path, const char *value)
{
    int file = open(path, O_WRONLY), result;
    if (file == -1)
        return errno;
    result = write(file, value, strlen(value)) == (ssize_t)strlen(value) ? 0 : errno;
    close(file);
    return result;
}

CASE(settings_are_numbers)
{
    static const char *paths[] = {
        "kernel/tainted", "kernel/pid_max", "kernel/threads-max", "kernel/ngroups_max", "kernel/cap_last_cap",
        "kernel/overflowuid", "kernel/randomize_va_space", "kernel/panic", "kernel/sched_rr_timeslice_ms",
        "vm/overcommit_memory", "vm/overcommit_ratio", "vm/max_map_count", "vm/mmap_min_addr",
        "vm/swappiness", "vm/dirty_ratio", "vm/min_free_kbytes", "vm/nr_hugepages",
        "fs/file-max", "fs/nr_open", "fs/pipe-max-size", "fs/pipe-user-pages-soft",
        "fs/lease-break-time", "fs/inotify/max_user_watches", "fs/inotify/max_queued_events",
        "fs/inotify/max_user_instances", "fs/aio-max-nr", "net/core/somaxconn", "net/unix/max_dgram_qlen"};
    char path[100];
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        snprintf(path, sizeof path, "/proc/sys/%s", paths[i]);
        CHECK(number_in(path) >= 0);
    }
    CHECK_EQ(number_in("/proc/sys/kernel/ngroups_max"), 65536);
    CHECK_EQ(number_in("/proc/sys/fs/inotify/max_queued_events"), 16384);
    CHECK_EQ(number_in("/proc/sys/fs/nr_open"), 1 << 20);
}

CASE(settings_are_texts)
{
    slurp("/proc/sys/kernel/ostype", text, sizeof text);
    CHECK_STR(text, "Linux\n");
    slurp("/proc/sys/kernel/random/uuid", text, sizeof text);
    CHECK_EQ(strlen(text), 37);
    slurp("/proc/sys/kernel/random/boot_id", text, sizeof text);
    char again[100];
    slurp("/proc/sys/kernel/random/boot_id", again, sizeof again);
    CHECK_STR(text, again);
    slurp("/proc/sys/kernel/printk", text, sizeof text);
    int levels[4];
    CHECK_EQ(sscanf(text, "%d\t%d\t%d\t%d", levels, levels + 1, levels + 2, levels + 3), 4);
    slurp("/proc/sys/kernel/core_pattern", text, sizeof text);
    CHECK(strlen(text) > 1);
}

CASE(settings_can_be_written)
{
    char value[40];
    const char *path = "/proc/sys/net/core/somaxconn";
    CHECK_EQ(put(path, "1234\n"), 0);
    CHECK_EQ(number_in(path), 1234);
    CHECK_EQ(put(path, " 4096 "), 0);
    CHECK_EQ(number_in(path), 4096);
    CHECK_EQ(put(path, "x"), EINVAL);
    CHECK_EQ(put(path, "-1"), EINVAL);
    CHECK_EQ(put(path, "99999999999"), EINVAL);
    CHECK_EQ(number_in(path), 4096);
    snprintf(value, sizeof value, "%lld\n", number_in("/proc/sys/vm/overcommit_memory"));
    CHECK_EQ(put("/proc/sys/vm/overcommit_memory", value), 0);
    CHECK_EQ(put("/proc/sys/vm/overcommit_memory", "3"), EINVAL);
    CHECK_EQ(put("/proc/sys/vm/overcommit_memory", "often"), EINVAL);
    snprintf(value, sizeof value, "%lld\n", number_in("/proc/sys/fs/pipe-max-size"));
    CHECK_EQ(put("/proc/sys/fs/pipe-max-size", value), 0);
    CHECK_EQ(number_in("/proc/sys/fs/pipe-max-size"), atoll(value));
    CHECK_EQ(put("/proc/sys/fs/none", "1"), ENOENT);
    CHECK_OK(setresuid(1000, 1000, 1000));
    CHECK_EQ(put("/proc/sys/fs/pipe-max-size", "4096"), EACCES);
}

CASE(lists_of_the_system)
{
    slurp("/proc/filesystems", text, sizeof text);
    CHECK(strstr(text, "nodev\ttmpfs\n") && strstr(text, "nodev\tproc\n") && strstr(text, "nodev\tsysfs\n"));
    slurp("/proc/devices", text, sizeof text);
    CHECK(strstr(text, "Character devices:\n") && strstr(text, "  1 mem\n"));
    CHECK(strstr(text, "Block devices:\n"));
    slurp("/proc/swaps", text, sizeof text);
    CHECK(strncmp(text, "Filename", 8) == 0);
    slurp("/proc/partitions", text, sizeof text);
    CHECK(text[0] == 0 || strncmp(text, "major minor", 11) == 0);
    slurp("/proc/vmstat", text, sizeof text);
    CHECK(strstr(text, "nr_free_pages ") && strstr(text, "nr_shmem "));
    slurp("/proc/cgroups", text, sizeof text);
    CHECK(text[0] == '#');
    CHECK_OK(access("/proc/diskstats", R_OK));
}

CASE(locks_are_listed)
{
    struct flock lock = {.l_type = F_WRLCK, .l_start = 5, .l_len = 10};
    struct stat status;
    char wanted[100];
    scratch();
    int file = file_with("f", "x", 1);
    CHECK_OK(fstat(file, &status));
    CHECK_OK(fcntl(file, F_SETLK, &lock));
    slurp("/proc/locks", text, sizeof text);
    snprintf(wanted, sizeof wanted, ":%llu 5 14\n", (unsigned long long)status.st_ino);
    char *line = strstr(text, wanted);
    CHECK(line);
    while (line > text && line[-1] != '\n')
        line--;
    CHECK(strncmp(strchr(line, ' '), " POSIX  ADVISORY  WRITE ", 24) == 0);
}

static long long field(const char *name)
{
    slurp("/proc/meminfo", text, sizeof text);
    char *line = strstr(text, name);
    CHECK(line);
    return atoll(line + strlen(name));
}

CASE(files_in_memory_are_counted)
{
    enum { MIB = 32 };
    static char block[1 << 20];
    scratch();
    long long before = field("\nShmem:"), cached = field("\nCached:");
    CHECK(cached >= before);
    int file = file_with("f", "", 0);
    memset(block, 1, sizeof block);
    for (int i = 0; i < MIB; i++)
        CHECK_EQ(write(file, block, sizeof block), sizeof block);
    CHECK(field("\nShmem:") >= before + (MIB - 8) * 1024);
    CHECK(field("\nAnonPages:") >= 0);
    CHECK_OK(ftruncate(file, 0));
}

CASE(processors_are_told)
{
    struct statfs status;
    if (access("/sys/devices/system/cpu", F_OK) == -1)
        SKIP("nothing is mounted at /sys");
    CHECK_OK(statfs("/sys", &status));
    CHECK_EQ(status.f_type, 0x62656572);
    slurp("/sys/devices/system/cpu/online", text, sizeof text);
    CHECK(text[0] == '0');
    slurp("/sys/devices/system/cpu/possible", text, sizeof text);
    CHECK(text[0] == '0');
    CHECK_OK(access("/sys/devices/system/cpu/cpu0/topology", F_OK));
    CHECK_OK(access("/sys/devices/system/cpu/kernel_max", F_OK));
}
