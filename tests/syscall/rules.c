/* Rules of file calls that are easily overlooked: precedence of errors, access times of mounts, names of
 * mounts, locks of descriptions, mapped writes, old terminal settings. */
#include "harness.h"
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/utsname.h>

/* Whether this is a version in which what is looked at was different from 6.1. */
static int is_newer(void)
{
    struct utsname names;
    CHECK_OK(uname(&names));
    return strncmp(names.release, "6.1.", 4) != 0;
}

CASE(empty_path_is_not_no_path)
{
    struct stat status;
    char buffer[256];
    scratch();
    int file = file_with("f", "x", 1);
    CHECK_OK(syscall(SYS_newfstatat, file, "", &status, AT_EMPTY_PATH));
    CHECK_ERRNO(syscall(SYS_newfstatat, file, "", &status, 0), ENOENT);
    CHECK_ERRNO(syscall(SYS_newfstatat, file, NULL, &status, 0), EFAULT);
    if (is_newer())
        SKIP("since 6.11 NULL stands for an empty path");
    CHECK_ERRNO(syscall(SYS_newfstatat, file, NULL, &status, AT_EMPTY_PATH), EFAULT);
    CHECK_ERRNO(syscall(SYS_statx, file, NULL, AT_EMPTY_PATH, 0x7ff, buffer), EFAULT);
}

CASE(directories_have_no_end)
{
    scratch();
    int directory = open(".", O_RDONLY);
    CHECK_ERRNO(lseek(directory, 0, SEEK_END), EINVAL);
    CHECK_EQ(lseek(directory, 0, SEEK_SET), 0);
    CHECK_ERRNO(lseek(directory, -1, SEEK_SET), EINVAL);
}

CASE(truncate_looks_at_permissions_first)
{
    struct rlimit limit = {10, 10};
    scratch();
    CHECK_OK(chmod(".", 0755));
    close(file_with("f", "x", 1));
    CHECK_OK(setrlimit(RLIMIT_FSIZE, &limit));
    signal(SIGXFSZ, SIG_IGN);
    CHECK_ERRNO(truncate("f", 11), EFBIG);
    CHECK_OK(setresuid(1000, 1000, 1000));
    CHECK_ERRNO(truncate("f", 11), EACCES);
    signal(SIGXFSZ, SIG_DFL);
    CHECK_ERRNO(truncate("f", 11), EACCES);
}

CASE(direct_input_and_output_of_tmpfs)
{
    scratch();
    int file = file_with("f", "x", 1);
    if (is_newer())
        SKIP("since 6.6 tmpfs takes O_DIRECT");
    CHECK_ERRNO(open("f", O_RDONLY | O_DIRECT), EINVAL);
    CHECK_ERRNO(fcntl(file, F_SETFL, O_DIRECT), EINVAL);
}

static int same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* Whether reading a file changes its time of access, when it has been read before. */
static int read_changes_time(const char *path)
{
    struct stat before, after;
    char byte;
    int file = open(path, O_RDONLY);
    CHECK_EQ(pread(file, &byte, 1, 0), 1);
    sleep_ms(20);
    CHECK_OK(fstat(file, &before));
    CHECK_EQ(pread(file, &byte, 1, 0), 1);
    CHECK_OK(fstat(file, &after));
    close(file);
    return !same_time(before.st_atim, after.st_atim);
}

/* The same for listing a directory that has just changed. */
static int list_changes_time(const char *path)
{
    struct stat before, after;
    char entries[1024], name[64];
    snprintf(name, sizeof name, "%s/new%d", path, rand());
    sleep_ms(20);
    close(file_with(name, "x", 1));
    int directory = open(path, O_RDONLY);
    CHECK_OK(fstat(directory, &before));
    CHECK(syscall(SYS_getdents64, directory, entries, sizeof entries) > 0);
    CHECK_OK(fstat(directory, &after));
    close(directory);
    return !same_time(before.st_atim, after.st_atim);
}

CASE(mounts_say_how_access_times_are_kept)
{
    char mounts[65536];
    scratch();
    CHECK_OK(mkdir("m", 0755));
    CHECK_OK(mount("none", "m", "tmpfs", MS_STRICTATIME, NULL));
    close(file_with("m/f", "x", 1));
    CHECK_EQ(read_changes_time("m/f"), 1);
    CHECK_EQ(list_changes_time("m"), 1);
    slurp("/proc/self/mounts", mounts, sizeof mounts);
    /* The last line: the same case of another library may have left its mount. */
    char *line = NULL;
    for (char *at = mounts; (at = strstr(at, "mounts_say_how_access_times_are_kept")); at++)
        line = at;
    CHECK(line && (*strchr(line, '\n') = 0, 1));
    CHECK(!strstr(line, "relatime") && !strstr(line, "noatime"));
    CHECK_OK(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND | MS_NODIRATIME, NULL));
    CHECK_EQ(read_changes_time("m/f"), 0);
    CHECK_EQ(list_changes_time("m"), 0);
    slurp("/proc/self/mounts", mounts, sizeof mounts);
    CHECK(strstr(mounts, ",nodiratime,relatime"));
    CHECK_OK(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND | MS_NOATIME, NULL));
    CHECK_EQ(read_changes_time("m/f"), 0);
    CHECK_EQ(list_changes_time("m"), 0);
    CHECK_OK(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND | MS_RELATIME, NULL));
    CHECK_EQ(list_changes_time("m"), 1);
    CHECK_OK(umount("m"));
}

CASE(mountinfo_says_what_is_bound)
{
    char mounts[65536], wanted[300], here[200];
    scratch();
    CHECK(getcwd(here, sizeof here));
    CHECK_OK(mkdir("a", 0755));
    CHECK_OK(mkdir("a/b", 0755));
    CHECK_OK(mkdir("m", 0755));
    CHECK_ERRNO(mount(NULL, "m", NULL, MS_BIND, NULL), EINVAL);
    CHECK_ERRNO(mount("", "m", NULL, MS_BIND, NULL), EINVAL);
    CHECK_ERRNO(mount(NULL, "m", NULL, MS_MOVE, NULL), EINVAL);
    CHECK_OK(mount("a/b", "m", NULL, MS_BIND, NULL));
    slurp("/proc/self/mountinfo", mounts, sizeof mounts);
    snprintf(wanted, sizeof wanted, "%s/m ", here);
    char *place = strstr(mounts, wanted);
    CHECK(place);
    while (place > mounts && place[-1] != '\n')
        place--;
    *strchr(place, '\n') = 0;
    CHECK(strstr(place, "/a/b /tmp"));
}

CASE(locks_of_descriptions_look_for_no_deadlock)
{
    struct flock first = {.l_type = F_WRLCK, .l_start = 0, .l_len = 1};
    struct flock second = {.l_type = F_WRLCK, .l_start = 1, .l_len = 1};
    enum { SET_AND_WAIT = 38 };
    scratch();
    int one = file_with("f", "xy", 2), other = open("f", O_RDWR);
    CHECK_OK(fcntl(one, SET_AND_WAIT, &first));
    CHECK_OK(fcntl(other, SET_AND_WAIT, &second));
    pid_t child = fork_or_fail();
    if (child == 0) {
        fcntl(one, SET_AND_WAIT, &second);
        _exit(0);
    }
    pid_t waiter = fork_or_fail();
    if (waiter == 0) {
        fcntl(other, SET_AND_WAIT, &first);
        _exit(errno == EDEADLK ? 35 : 0);
    }
    /* Both wait for ever. */
    sleep_ms(100);
    CHECK_EQ(waitpid(waiter, NULL, WNOHANG), 0);
    CHECK_EQ(waitpid(child, NULL, WNOHANG), 0);
    kill(child, SIGKILL);
    kill(waiter, SIGKILL);
    CHECK_KILLED(child, SIGKILL);
    CHECK_KILLED(waiter, SIGKILL);
}

CASE(mapped_writes_change_the_time)
{
    struct stat before, after;
    scratch();
    int file = file_with("f", "content", 7);
    CHECK_OK(fstat(file, &before));
    sleep_ms(20);
    char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(shared != MAP_FAILED);
    shared[0] = 'C';
    CHECK_OK(fstat(file, &after));
    CHECK(!same_time(before.st_mtim, after.st_mtim));
    CHECK(!same_time(before.st_ctim, after.st_ctim));
    before = after;
    sleep_ms(20);
    char *private = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    private[0] = 'P';
    CHECK_OK(fstat(file, &after));
    CHECK(same_time(before.st_mtim, after.st_mtim));
}

enum { GET_OLD = 0x5405, SET_OLD = 0x5406 };

CASE(old_terminal_settings)
{
    struct { unsigned short flags[4]; unsigned char line, characters[9]; } old;
    int number = -1, zero = 0;
    char name[32];
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    CHECK_OK(ioctl(master, TIOCSPTLCK, &zero));
    CHECK_OK(ioctl(master, TIOCGPTN, &number));
    snprintf(name, sizeof name, "/dev/pts/%d", number);
    int slave = open(name, O_RDWR | O_NOCTTY);
    CHECK(slave >= 0);
    CHECK_ERRNO(ioctl(slave, GET_OLD, NULL), EFAULT);
    CHECK_ERRNO(ioctl(slave, SET_OLD, NULL), EFAULT);
    CHECK_OK(ioctl(slave, GET_OLD, &old));
    CHECK_EQ(old.flags[3] & 8, 8); /* ECHO */
    CHECK_EQ(old.characters[0], 3);
    old.flags[3] &= (unsigned short)~8;
    old.characters[0] = 7;
    CHECK_OK(ioctl(slave, SET_OLD, &old));
    CHECK_OK(ioctl(slave, GET_OLD, &old));
    CHECK_EQ(old.flags[3] & 8, 0);
    CHECK_EQ(old.characters[0], 7);
}

CASE(a_stolen_terminal_is_gone)
{
    int number = -1, zero = 0, ready[2], go[2];
    char name[32], byte;
    CHECK_OK(pipe(ready));
    CHECK_OK(pipe(go));
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    CHECK_OK(ioctl(master, TIOCSPTLCK, &zero));
    CHECK_OK(ioctl(master, TIOCGPTN, &number));
    snprintf(name, sizeof name, "/dev/pts/%d", number);
    int slave = open(name, O_RDWR | O_NOCTTY);
    CHECK(slave >= 0);
    pid_t first = fork_or_fail();
    if (first == 0) {
        CHECK_OK(setsid());
        CHECK_OK(ioctl(slave, TIOCSCTTY, 0));
        CHECK(open("/dev/tty", O_RDWR) >= 0);
        CHECK_EQ(write(ready[1], "r", 1), 1);
        CHECK_EQ(read(go[0], &byte, 1), 1);
        CHECK_ERRNO(open("/dev/tty", O_RDWR), ENXIO);
        _exit(0);
    }
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    pid_t second = fork_or_fail();
    if (second == 0) {
        signal(SIGHUP, SIG_IGN);
        CHECK_OK(setsid());
        CHECK_ERRNO(ioctl(slave, TIOCSCTTY, 0), EPERM);
        CHECK_OK(ioctl(slave, TIOCSCTTY, 1));
        CHECK(open("/dev/tty", O_RDWR) >= 0);
        CHECK_EQ(write(go[1], "g", 1), 1);
        for (;;)
            pause();
        _exit(0);
    }
    CHECK_EXITED(first, 0);
    kill(second, SIGKILL);
    harness_wait(second);
}
