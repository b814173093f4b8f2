/* Namespaces: host names and trees of mounts of one's own, their files, and what can be asked of those. */
#include "harness.h"
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/utsname.h>

#define NS_GET_USERNS 0xb701
#define NS_GET_PARENT 0xb702
#define NS_GET_NSTYPE 0xb703
#define NS_GET_OWNER_UID 0xb704

static char link_text[2][64];

static const char *namespace_of(const char *kind, int which)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/ns/%s", kind);
    ssize_t length = readlink(path, link_text[which], sizeof *link_text - 1);
    CHECK(length > 0);
    link_text[which][length] = 0;
    return link_text[which];
}

static int open_namespace(const char *kind)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/ns/%s", kind);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK_OK(fd);
    return fd;
}

static const char *host_name(void)
{
    static struct utsname names;
    CHECK_OK(uname(&names));
    return names.nodename;
}

static void wait_for(pid_t child)
{
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

static int nothing(void *unused)
{
    (void)unused;
    return 0;
}

static char stack[16384] __attribute__((aligned(16)));

CASE(links_name_kind_and_number)
{
    static const char *const kinds[] = {"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"};
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *text = namespace_of(kinds[i], 0);
        struct stat status;
        char path[64], expected[64];
        snprintf(path, sizeof path, "/proc/self/ns/%s", kinds[i]);
        CHECK_OK(stat(path, &status));
        snprintf(expected, sizeof expected, "%s:[%lu]", kinds[i], (unsigned long)status.st_ino);
        CHECK_STR(text, expected);
        CHECK_OK(lstat(path, &status));
        CHECK(S_ISLNK(status.st_mode));
    }
    CHECK_ERRNO(open("/proc/self/ns/none", O_RDONLY), ENOENT);
}

CASE(a_host_name_of_its_own)
{
    char before[80];
    CHECK_OK(sethostname("outside", 7));
    strcpy(before, namespace_of("uts", 0));
    pid_t child = fork();
    if (child == 0) {
        CHECK_OK(unshare(CLONE_NEWUTS));
        CHECK(strcmp(namespace_of("uts", 1), before) != 0);
        CHECK_STR(host_name(), "outside");
        CHECK_OK(sethostname("inside", 6));
        CHECK_OK(setdomainname("domain", 6));
        CHECK_STR(host_name(), "inside");
        char text[32] = "";
        int fd = open("/proc/sys/kernel/hostname", O_RDONLY);
        CHECK_EQ(read(fd, text, sizeof text), 7);
        CHECK_STR(text, "inside\n");
        _exit(0);
    }
    wait_for(child);
    CHECK_STR(host_name(), "outside");
    CHECK_STR(namespace_of("uts", 1), before);
}

static int names_itself(void *name)
{
    if (sethostname(name, strlen(name)) != 0)
        return 1;
    return strcmp(host_name(), name) != 0;
}

CASE(clone_makes_one)
{
    CHECK_OK(sethostname("outside", 7));
    wait_for(clone(names_itself, stack + sizeof stack, CLONE_NEWUTS | SIGCHLD, "cloned"));
    CHECK_STR(host_name(), "outside");
    wait_for(clone(names_itself, stack + sizeof stack, SIGCHLD, "shared"));
    CHECK_STR(host_name(), "shared");
}

CASE(children_inherit_it)
{
    CHECK_OK(unshare(CLONE_NEWUTS));
    CHECK_OK(sethostname("mine", 4));
    pid_t child = fork();
    if (child == 0) {
        CHECK_STR(host_name(), "mine");
        CHECK_OK(sethostname("child", 5));
        _exit(0);
    }
    wait_for(child);
    CHECK_STR(host_name(), "child");
}

CASE(setns_enters_one)
{
    CHECK_OK(sethostname("first", 5));
    int first = open_namespace("uts");
    CHECK_OK(unshare(CLONE_NEWUTS));
    CHECK_OK(sethostname("second", 6));
    int second = open_namespace("uts");
    CHECK_OK(setns(first, CLONE_NEWUTS));
    CHECK_STR(host_name(), "first");
    CHECK_OK(setns(second, 0));
    CHECK_STR(host_name(), "second");
}

CASE(setns_by_a_process_descriptor)
{
    int ready[2];
    char byte;
    CHECK_OK(sethostname("parent", 6));
    CHECK_OK(pipe(ready));
    pid_t child = fork();
    if (child == 0) {
        CHECK_OK(unshare(CLONE_NEWUTS | CLONE_NEWNS));
        CHECK_OK(sethostname("child", 5));
        CHECK_EQ(write(ready[1], "x", 1), 1);
        pause();
        _exit(0);
    }
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    int fd = (int)syscall(SYS_pidfd_open, child, 0);
    CHECK_OK(fd);
    CHECK_ERRNO(setns(fd, 0), EINVAL);
    CHECK_ERRNO(setns(fd, 1), EINVAL);
    CHECK_OK(setns(fd, CLONE_NEWUTS | CLONE_NEWNS));
    CHECK_STR(host_name(), "child");
    CHECK_OK(kill(child, SIGKILL));
    CHECK_EQ(waitpid(child, NULL, 0), child);
    CHECK_ERRNO(setns(fd, CLONE_NEWUTS), ESRCH);
}

CASE(what_setns_refuses)
{
    int uts = open_namespace("uts"), file = open("/proc/self/status", O_RDONLY), ends[2];
    CHECK_OK(pipe(ends));
    CHECK_ERRNO(setns(-1, 0), EBADF);
    CHECK_ERRNO(setns(file, 0), EINVAL);
    CHECK_ERRNO(setns(ends[0], CLONE_NEWUTS), EINVAL);
    CHECK_ERRNO(setns(uts, CLONE_NEWIPC), EINVAL);
    CHECK_ERRNO(setns(uts, -1), EINVAL);
    CHECK_ERRNO(setns(open_namespace("user"), 0), EINVAL);
    CHECK_ERRNO(setns(open("/proc/self/ns/uts", O_PATH), 0), EBADF);
    CHECK_OK(setresuid(1000, 1000, 1000));
    CHECK_ERRNO(setns(uts, CLONE_NEWUTS), EPERM);
    CHECK_ERRNO(unshare(CLONE_NEWUTS), EPERM);
    CHECK_ERRNO(unshare(CLONE_NEWNS), EPERM);
    CHECK_ERRNO(clone(nothing, stack + sizeof stack, CLONE_NEWUTS | SIGCHLD, NULL), EPERM);
    CHECK_ERRNO(sethostname("x", 1), EPERM);
}

CASE(mounts_of_its_own)
{
    scratch();
    CHECK_OK(mkdir("point", 0755));
    pid_t child = fork();
    if (child == 0) {
        CHECK_OK(unshare(CLONE_NEWNS));
        CHECK_OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
        CHECK_OK(mount("none", "point", "tmpfs", 0, NULL));
        CHECK_OK(close(creat("point/inside", 0644)));
        CHECK_OK(access("point/inside", F_OK));
        _exit(0);
    }
    wait_for(child);
    CHECK_ERRNO(access("point/inside", F_OK), ENOENT);
    CHECK_OK(rmdir("point"));
}

CASE(mounts_that_are_taken_away_in_one_stay_in_the_other)
{
    char directory[256], path[300];
    scratch();
    CHECK(getcwd(directory, sizeof directory));
    CHECK_OK(unshare(CLONE_NEWNS));
    CHECK_OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    CHECK_OK(mkdir("point", 0755));
    CHECK_OK(mount("none", "point", "tmpfs", 0, NULL));
    CHECK_OK(close(creat("point/inside", 0644)));
    snprintf(path, sizeof path, "%s/point/inside", directory);
    pid_t child = fork();
    if (child == 0) {
        CHECK_OK(unshare(CLONE_NEWNS));
        CHECK_OK(access("point/inside", F_OK));
        CHECK_OK(access(path, F_OK));
        CHECK_OK(umount("point"));
        CHECK_ERRNO(access(path, F_OK), ENOENT);
        _exit(0);
    }
    wait_for(child);
    CHECK_OK(access(path, F_OK));
    CHECK_OK(umount("point"));
}

CASE(setns_goes_to_the_root_of_a_tree_of_mounts)
{
    char where[256];
    scratch();
    int first = open_namespace("mnt");
    CHECK_OK(unshare(CLONE_NEWNS));
    CHECK_OK(setns(first, CLONE_NEWNS));
    CHECK(getcwd(where, sizeof where));
    CHECK_STR(where, "/");
}

static int sleeps_a_little(void *unused)
{
    (void)unused;
    pause();
    return 0;
}

static int pivot_root(const char *new_root, const char *put_old)
{
    return (int)syscall(SYS_pivot_root, new_root, put_old);
}

/* A tree of mounts of one's own, in which `./new` is a mount with a directory `old`. */
static void mount_new_root(void)
{
    scratch();
    CHECK_OK(unshare(CLONE_NEWNS | CLONE_FS));
    CHECK_OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    CHECK_OK(mkdir("new", 0755));
    CHECK_OK(mount("none", "new", "tmpfs", 0, NULL));
    CHECK_OK(mkdir("new/old", 0755));
    CHECK_OK(close(creat("new/inside", 0644)));
}

CASE(another_root)
{
    char path[300] = "/old", directory[256];
    mount_new_root();
    CHECK(getcwd(directory, sizeof directory));
    CHECK_OK(chdir("/"));
    int pipes[2];
    CHECK_OK(pipe(pipes));
    pid_t child = fork_or_fail(); /* In the same tree, at its root. */
    if (child == 0) {
        char byte;
        CHECK_EQ(read(pipes[0], &byte, 1), 1);
        CHECK_OK(access("/inside", F_OK));
        CHECK_OK(access("inside", F_OK));
        _exit(0);
    }
    snprintf(path, sizeof path, "%s/new", directory);
    char old[310];
    snprintf(old, sizeof old, "%s/old", path);
    CHECK_OK(pivot_root(path, old));
    CHECK_EQ(write(pipes[1], "", 1), 1);
    wait_for(child);
    CHECK_OK(access("/inside", F_OK));
    CHECK_OK(access("inside", F_OK)); /* The working directory was the root. */
    snprintf(path, sizeof path, "/old%s/new", directory);
    CHECK_OK(access(path, F_OK));
    CHECK_ERRNO(access("/tmp", F_OK), ENOENT);
    CHECK_OK(umount2("/old", MNT_DETACH));
    CHECK_ERRNO(access(path, F_OK), ENOENT);
    CHECK_OK(rmdir("/old"));
}

CASE(the_new_root_over_the_old_one)
{
    mount_new_root();
    CHECK_OK(chdir("new"));
    CHECK_OK(pivot_root(".", "."));
    CHECK_OK(umount2(".", MNT_DETACH));
    CHECK_OK(access("/inside", F_OK));
}

CASE(another_root_below_a_mount)
{
    mount_new_root();
    CHECK_OK(mount(".", ".", NULL, MS_BIND | MS_REC, NULL));
    char directory[256];
    CHECK(getcwd(directory, sizeof directory));
    CHECK_OK(chdir(directory));
    CHECK_OK(chroot("."));
    CHECK_OK(pivot_root("/new", "/new/old"));
    CHECK_OK(access("/inside", F_OK));
    CHECK_OK(access("/old/new", F_OK));
    CHECK_ERRNO(access("/new", F_OK), ENOENT);
}

CASE(what_pivot_root_refuses)
{
    mount_new_root();
    CHECK_OK(mkdir("plain", 0755));
    close(creat("file", 0644));
    CHECK_ERRNO(pivot_root("missing", "new/old"), ENOENT);
    CHECK_ERRNO(pivot_root("file", "new/old"), ENOTDIR);
    CHECK_ERRNO(pivot_root("new", "new/inside"), ENOTDIR);
    CHECK_ERRNO(pivot_root("new", BAD_KERNEL), EFAULT);
    CHECK_ERRNO(pivot_root("/", "/"), EBUSY);
    CHECK_ERRNO(pivot_root("new/old", "new/old"), EINVAL);
    CHECK_ERRNO(pivot_root("new", "plain"), getenv("FERRY_GUEST") ? EBUSY : EINVAL);
    CHECK_OK(chdir("new"));
    CHECK_OK(mkdir("away", 0755));
    int away = open("away", O_RDONLY | O_DIRECTORY);
    CHECK_OK(fchdir(away));
    CHECK_OK(rmdir("../away"));
    CHECK_ERRNO(pivot_root("..", "."), ENOENT);
    CHECK_OK(chdir("/"));
    CHECK_OK(setresuid(1, 1, 1));
    CHECK_ERRNO(pivot_root("missing", "missing"), EPERM);
}

CASE(directories_that_are_shared_cannot_move)
{
    int fd = open_namespace("mnt");
    CHECK_ERRNO(clone(nothing, stack + sizeof stack, CLONE_NEWNS | CLONE_FS | SIGCHLD, NULL), EINVAL);
    pid_t child = clone(sleeps_a_little, stack + sizeof stack, CLONE_FS | SIGCHLD, NULL);
    CHECK_OK(child);
    CHECK_ERRNO(setns(fd, CLONE_NEWNS), EINVAL);
    CHECK_OK(unshare(CLONE_NEWNS));
    CHECK_OK(setns(fd, CLONE_NEWNS));
    CHECK_OK(kill(child, SIGKILL));
    CHECK_EQ(waitpid(child, NULL, 0), child);
}

CASE(what_files_of_namespaces_tell)
{
    static const struct {
        const char *name;
        int flag;
    } kinds[] = {{"cgroup", CLONE_NEWCGROUP}, {"ipc", CLONE_NEWIPC}, {"mnt", CLONE_NEWNS}, {"net", CLONE_NEWNET},
                 {"pid", CLONE_NEWPID}, {"user", CLONE_NEWUSER}, {"uts", CLONE_NEWUTS}};
    unsigned user = 7;
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int fd = open_namespace(kinds[i].name);
        CHECK_EQ(ioctl(fd, NS_GET_NSTYPE), kinds[i].flag);
        if (kinds[i].flag != CLONE_NEWUSER) {
            CHECK_ERRNO(ioctl(fd, NS_GET_OWNER_UID, &user), EINVAL);
            int owner = ioctl(fd, NS_GET_USERNS);
            CHECK_OK(owner);
            CHECK_EQ(ioctl(owner, NS_GET_NSTYPE), CLONE_NEWUSER);
            CHECK_OK(close(owner));
        }
        if (kinds[i].flag != CLONE_NEWUSER && kinds[i].flag != CLONE_NEWPID)
            CHECK_ERRNO(ioctl(fd, NS_GET_PARENT), EINVAL);
        CHECK_OK(close(fd));
    }
    int fd = open_namespace("user");
    CHECK_ERRNO(ioctl(fd, NS_GET_USERNS), EPERM);
    CHECK_ERRNO(ioctl(fd, NS_GET_PARENT), EPERM);
    CHECK_OK(ioctl(fd, NS_GET_OWNER_UID, &user));
    CHECK_EQ(user, 0);
    CHECK_ERRNO(ioctl(fd, NS_GET_OWNER_UID, BAD_LOW), EFAULT);
    CHECK_ERRNO(ioctl(fd, 0xb7ff, 0), ENOTTY);
    CHECK_ERRNO(read(fd, &user, 4), EINVAL);
    CHECK_ERRNO(ioctl(open("/proc/self/status", O_RDONLY), NS_GET_PARENT), ENOTTY);
}

CASE(a_file_keeps_its_namespace)
{
    int ends[2];
    char byte;
    CHECK_OK(pipe(ends));
    pid_t child = fork();
    if (child == 0) {
        CHECK_OK(unshare(CLONE_NEWUTS));
        CHECK_OK(sethostname("kept", 4));
        CHECK_EQ(write(ends[1], "x", 1), 1);
        pause();
        _exit(0);
    }
    char path[64];
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    snprintf(path, sizeof path, "/proc/%d/ns/uts", child);
    int fd = open(path, O_RDONLY);
    CHECK_OK(fd);
    CHECK_OK(kill(child, SIGKILL));
    CHECK_EQ(waitpid(child, NULL, 0), child);
    CHECK_OK(setns(fd, 0));
    CHECK_STR(host_name(), "kept");
}
