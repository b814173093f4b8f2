/* mount and umount2 of tmpfs, proc and devtmpfs, and how paths cross mount points. On the host each
 * case gets a mount namespace of its own. */
#include "harness.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/statfs.h>

static void own_mounts(void)
{
    scratch();
    if (getenv("FERRY_GUEST"))
        return; /* One namespace, and the case cleans up. */
    if (unshare(CLONE_NEWNS) == -1)
        SKIP("this machine permits no mount namespace");
    CHECK_OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
}

CASE(tmpfs_covers_and_uncovers)
{
    struct stat below, above;
    own_mounts();
    CHECK_OK(mkdir("m", 0755));
    close(file_with("m/f", "below", 5));
    CHECK_OK(stat("m", &below));
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    CHECK_OK(stat("m", &above));
    CHECK(above.st_dev != below.st_dev);
    CHECK_ERRNO(access("m/f", F_OK), ENOENT);
    close(file_with("m/g", "above", 5));
    CHECK_OK(access("m/../m/g", F_OK));
    CHECK_ERRNO(rename("m/g", "g"), EXDEV);
    CHECK_ERRNO(link("m/g", "g"), EXDEV);
    CHECK_ERRNO(rmdir("m"), EBUSY);
    CHECK_ERRNO(rename("m", "n"), EBUSY);
    CHECK_OK(umount("m"));
    CHECK_OK(access("m/f", F_OK));
    CHECK_ERRNO(access("m/g", F_OK), ENOENT);
    CHECK_OK(rmdir("m") == -1 && errno == ENOTEMPTY ? 0 : -1);
}

CASE(busy_mounts_stay)
{
    own_mounts();
    CHECK_OK(mkdir("m", 0755));
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    int fd = open("m/f", O_CREAT | O_RDWR, 0600);
    CHECK_ERRNO(umount("m"), EBUSY);
    CHECK_EQ(write(fd, "x", 1), 1);
    CHECK_OK(umount2("m", MNT_DETACH)); /* Gone from the tree, alive for who holds it. */
    CHECK_ERRNO(access("m/f", F_OK), ENOENT);
    CHECK_EQ(pwrite(fd, "y", 1, 1), 1);
    close(fd);
    CHECK_ERRNO(umount("m"), EINVAL);
}

CASE(mount_errors)
{
    own_mounts();
    CHECK_OK(mkdir("m", 0755));
    close(file_with("f", "x", 1));
    CHECK_ERRNO(mount("x", "m", "no-such-system", 0, NULL), ENODEV);
    CHECK_ERRNO(mount("tmpfs", "none", "tmpfs", 0, NULL), ENOENT);
    CHECK_ERRNO(mount("tmpfs", "f", "tmpfs", 0, NULL), ENOTDIR);
    CHECK_ERRNO(umount("m"), EINVAL);
    CHECK_ERRNO(umount("none"), ENOENT);
    CHECK_ERRNO(umount2("m", 0x4000), EINVAL);
    CHECK_ERRNO(syscall(SYS_mount, "tmpfs", BAD_LOW, "tmpfs", 0, NULL), EFAULT);
    CHECK_ERRNO(syscall(SYS_mount, "tmpfs", "m", BAD_LOW, 0, NULL), EFAULT);
    CHECK_ERRNO(syscall(SYS_umount2, BAD_LOW, 0), EFAULT);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setuid(1000));
        CHECK_ERRNO(mount("tmpfs", "m", "tmpfs", 0, NULL), EPERM);
        CHECK_ERRNO(umount("m"), EPERM);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(tmpfs_options)
{
    struct stat status;
    struct statfs space;
    static char block[4096];
    own_mounts();
    CHECK_OK(mkdir("m", 0755));
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, "size=64k,mode=700"));
    CHECK_OK(stat("m", &status));
    CHECK_EQ(status.st_mode & 07777, 0700);
    CHECK_OK(statfs("m", &space));
    CHECK_EQ(space.f_blocks * (unsigned long)space.f_bsize, 65536);
    int fd = open("m/f", O_CREAT | O_RDWR, 0600);
    for (int i = 0; i < 16; i++)
        CHECK_EQ(write(fd, block, sizeof block), sizeof block);
    CHECK_ERRNO(write(fd, block, sizeof block), ENOSPC);
    CHECK_OK(ftruncate(fd, 4096)); /* Space comes back. */
    CHECK_EQ(pwrite(fd, block, sizeof block, 4096), sizeof block);
    close(fd);
    CHECK_OK(umount("m"));
}

CASE(read_only_mounts)
{
    own_mounts();
    CHECK_OK(mkdir("m", 0755));
    CHECK_OK(mount("tmpfs", "m", "tmpfs", MS_RDONLY, NULL));
    CHECK_ERRNO(open("m/f", O_CREAT | O_RDWR, 0600), EROFS);
    CHECK_ERRNO(mkdir("m/d", 0700), EROFS);
    CHECK_OK(umount("m"));
}

CASE(stacked_mounts)
{
    own_mounts();
    CHECK_OK(mkdir("m", 0755));
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    close(file_with("m/first", "x", 1));
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    CHECK_ERRNO(access("m/first", F_OK), ENOENT);
    CHECK_OK(mkdir("m/in", 0755));
    CHECK_OK(mount("tmpfs", "m/in", "tmpfs", 0, NULL));
    CHECK_ERRNO(umount("m"), EBUSY);
    CHECK_OK(umount("m/in"));
    CHECK_OK(umount("m"));
    CHECK_OK(access("m/first", F_OK));
    CHECK_OK(umount("m"));
}

CASE(proc_and_devtmpfs_mount)
{
    struct statfs space;
    struct stat status;
    own_mounts();
    CHECK_OK(mkdir("p", 0755));
    CHECK_OK(mkdir("d", 0755));
    CHECK_OK(mount("proc", "p", "proc", 0, NULL));
    CHECK_OK(statfs("p", &space));
    CHECK_EQ(space.f_type, 0x9fa0);
    CHECK_OK(access("p/self/status", R_OK));
    CHECK_OK(umount("p"));
    CHECK_OK(mount("devtmpfs", "d", "devtmpfs", 0, NULL));
    CHECK_OK(stat("d/null", &status));
    CHECK(S_ISCHR(status.st_mode));
    CHECK_OK(umount("d"));
}

CASE(mounts_are_listed)
{
    static char mounts[65536];
    char line[300], cwd[200];
    own_mounts();
    CHECK(getcwd(cwd, sizeof cwd));
    CHECK_OK(mkdir("a name", 0755));
    CHECK_OK(mount("source", "a name", "tmpfs", 0, NULL));
    slurp("/proc/self/mounts", mounts, sizeof mounts);
    snprintf(line, sizeof line, "source %s/a\\040name tmpfs rw", cwd);
    CHECK(strstr(mounts, line) != NULL);
    CHECK_OK(umount("a name"));
    slurp("/proc/mounts", mounts, sizeof mounts);
    CHECK(strstr(mounts, line) == NULL);
}

CASE(working_directory_under_a_mount)
{
    char cwd[300];
    own_mounts();
    CHECK_OK(mkdir("m", 0755));
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    CHECK_OK(mkdir("m/d", 0755));
    CHECK_OK(chdir("m/d"));
    CHECK_OK(syscall(SYS_getcwd, cwd, sizeof cwd));
    CHECK_STR(cwd + strlen(cwd) - 4, "/m/d");
    CHECK_OK(access("../../m", F_OK));
    CHECK_OK(chdir("../.."));
    CHECK_OK(access("m/d", F_OK));
    CHECK_OK(umount("m"));
}
