/* Names: open flags, mkdir rmdir link symlink unlink rename, path walking, permissions, ownership,
 * times, directories, the working directory, and the *at variants. */
#include "harness.h"
#include <dirent.h>
#include <limits.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <utime.h>

static ino_t inode_of(const char *path)
{
    struct stat status;
    CHECK_OK(lstat(path, &status));
    return status.st_ino;
}

static mode_t mode_of(const char *path)
{
    struct stat status;
    CHECK_OK(lstat(path, &status));
    return status.st_mode;
}

static int as_user(void (*body)(void))
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(syscall(SYS_setgroups, 0, NULL));
        CHECK_OK(setgid(1000));
        CHECK_OK(setuid(1000));
        body();
        _exit(0);
    }
    return harness_wait(child);
}

CASE(open_flags)
{
    scratch();
    CHECK_ERRNO(open("f", O_RDWR), ENOENT);
    int fd = open("f", O_RDWR | O_CREAT | O_EXCL, 0640);
    CHECK(fd >= 0);
    CHECK_EQ(mode_of("f"), S_IFREG | 0640);
    CHECK_ERRNO(open("f", O_RDWR | O_CREAT | O_EXCL, 0640), EEXIST);
    CHECK_EQ(write(fd, "abc", 3), 3);
    struct stat status;
    CHECK_OK(open("f", O_RDONLY | O_CREAT, 0));
    CHECK_OK(fstat(fd, &status));
    CHECK_EQ(status.st_size, 3);
    CHECK_OK(open("f", O_WRONLY | O_TRUNC));
    CHECK_OK(fstat(fd, &status));
    CHECK_EQ(status.st_size, 0);
    CHECK_ERRNO(open("f", O_RDONLY | O_DIRECTORY), ENOTDIR);
    CHECK_ERRNO(open(".", O_RDWR), EISDIR);
    CHECK_ERRNO(open(".", O_RDONLY | O_CREAT, 0600), EISDIR);
    CHECK_OK(symlink("f", "link"));
    CHECK_ERRNO(open("link", O_RDONLY | O_NOFOLLOW), ELOOP);
    CHECK_ERRNO(open("link", O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
    CHECK_OK(open("link", O_PATH | O_NOFOLLOW));
    CHECK_OK(symlink("new", "dangling"));
    CHECK_ERRNO(open("dangling", O_RDONLY), ENOENT);
    CHECK_OK(open("dangling", O_RDWR | O_CREAT, 0600));
    CHECK_EQ(mode_of("new"), S_IFREG | 0600);
    CHECK_ERRNO(open("", O_RDONLY), ENOENT);
}

CASE(open_tmpfile)
{
    scratch();
    int fd = open(".", O_RDWR | O_TMPFILE, 0600);
    if (fd == -1) {
        CHECK(errno == EOPNOTSUPP || errno == EISDIR);
        return;
    }
    struct stat status;
    CHECK_EQ(write(fd, "x", 1), 1);
    CHECK_OK(fstat(fd, &status));
    CHECK_EQ(status.st_nlink, 0);
}

CASE(umask_applies)
{
    scratch();
    CHECK_EQ(umask(077), 022);
    close(open("f", O_CREAT | O_WRONLY, 0777));
    CHECK_EQ(mode_of("f"), S_IFREG | 0700);
    CHECK_OK(mkdir("d", 0777));
    CHECK_EQ(mode_of("d"), S_IFDIR | 0700);
    CHECK_OK(mkfifo("p", 0666));
    CHECK_EQ(mode_of("p"), S_IFIFO | 0600);
    CHECK_OK(chmod("f", 0777)); /* chmod does not care. */
    CHECK_EQ(mode_of("f"), S_IFREG | 0777);
    CHECK_EQ(umask(07777), 077);
    CHECK_EQ(umask(0), 0777);
}

CASE(bad_path_pointers)
{
    void *bad[] = {BAD_LOW, BAD_KERNEL, BAD_CANONICAL, NULL};
    char buffer[256];
    scratch();
    close(file_with("f", "x", 1));
    for (int i = 0; i < 4; i++) {
        CHECK_ERRNO(syscall(SYS_open, bad[i], O_RDONLY), EFAULT);
        CHECK_ERRNO(syscall(SYS_openat, AT_FDCWD, bad[i], O_RDONLY), EFAULT);
        CHECK_ERRNO(syscall(SYS_stat, bad[i], buffer), EFAULT);
        CHECK_ERRNO(syscall(SYS_lstat, bad[i], buffer), EFAULT);
        CHECK_ERRNO(syscall(SYS_access, bad[i], 0), EFAULT);
        CHECK_ERRNO(syscall(SYS_faccessat, AT_FDCWD, bad[i], 0), EFAULT);
        CHECK_ERRNO(syscall(SYS_mkdir, bad[i], 0), EFAULT);
        CHECK_ERRNO(syscall(SYS_rmdir, bad[i]), EFAULT);
        CHECK_ERRNO(syscall(SYS_unlink, bad[i]), EFAULT);
        CHECK_ERRNO(syscall(SYS_link, bad[i], "g"), EFAULT);
        CHECK_ERRNO(syscall(SYS_link, "f", bad[i]), EFAULT);
        CHECK_ERRNO(syscall(SYS_symlink, bad[i], "g"), EFAULT);
        CHECK_ERRNO(syscall(SYS_symlink, "f", bad[i]), EFAULT);
        CHECK_ERRNO(syscall(SYS_rename, bad[i], "g"), EFAULT);
        CHECK_ERRNO(syscall(SYS_rename, "f", bad[i]), EFAULT);
        CHECK_ERRNO(syscall(SYS_readlink, bad[i], buffer, 10), EFAULT);
        CHECK_ERRNO(syscall(SYS_chmod, bad[i], 0), EFAULT);
        CHECK_ERRNO(syscall(SYS_chown, bad[i], 0, 0), EFAULT);
        CHECK_ERRNO(syscall(SYS_lchown, bad[i], 0, 0), EFAULT);
        CHECK_ERRNO(syscall(SYS_fchmodat, AT_FDCWD, bad[i], 0), EFAULT);
        CHECK_ERRNO(syscall(SYS_fchownat, AT_FDCWD, bad[i], 0, 0, 0), EFAULT);
        CHECK_ERRNO(syscall(SYS_truncate, bad[i], 0), EFAULT);
        CHECK_ERRNO(syscall(SYS_chdir, bad[i]), EFAULT);
        CHECK_ERRNO(syscall(SYS_statfs, bad[i], buffer), EFAULT);
        CHECK_ERRNO(syscall(SYS_mknod, bad[i], S_IFREG, 0), EFAULT);
        CHECK_ERRNO(syscall(SYS_execve, bad[i], NULL, NULL), EFAULT);
    }
    for (int i = 0; i < 3; i++) {
        CHECK_ERRNO(syscall(SYS_stat, "f", bad[i]), EFAULT);
        CHECK_ERRNO(syscall(SYS_fstat, 0, bad[i]), EFAULT);
        CHECK_ERRNO(syscall(SYS_lstat, "f", bad[i]), EFAULT);
        CHECK_ERRNO(syscall(SYS_newfstatat, AT_FDCWD, "f", bad[i], 0), EFAULT);
        CHECK_ERRNO(syscall(SYS_statx, AT_FDCWD, "f", 0, 0x7ff, bad[i]), EFAULT);
        CHECK_ERRNO(syscall(SYS_statfs, "/", bad[i]), EFAULT);
        CHECK_ERRNO(syscall(SYS_utimensat, AT_FDCWD, "f", bad[i], 0), EFAULT);
        CHECK_ERRNO(syscall(SYS_getcwd, bad[i], 100), EFAULT);
    }
}

CASE(path_ends_at_a_page_that_is_not_there)
{
    scratch();
    close(file_with("f", "x", 1));
    char *page = (char *)syscall(SYS_mmap, NULL, 8192, 3, 0x22, -1, 0);
    CHECK_OK(syscall(SYS_munmap, page + 4096, 4096));
    memcpy(page + 4094, "f", 2);
    CHECK_OK(access(page + 4094, F_OK));
    page[4095] = 'f';
    CHECK_ERRNO(access(page + 4094, F_OK), EFAULT);
}

CASE(name_and_path_limits)
{
    char name[300], path[5000];
    scratch();
    memset(name, 'n', sizeof name);
    name[255] = 0;
    close(file_with(name, "x", 1));
    CHECK_OK(access(name, F_OK));
    name[255] = 'n';
    name[256] = 0;
    CHECK_ERRNO(open(name, O_RDWR | O_CREAT, 0600), ENAMETOOLONG);
    CHECK_ERRNO(mkdir(name, 0700), ENAMETOOLONG);
    CHECK_ERRNO(access(name, F_OK), ENAMETOOLONG);
    memset(path, '/', sizeof path);
    path[4095] = 0;
    CHECK_OK(access(path, F_OK));
    path[4095] = '/';
    path[4096] = 0;
    CHECK_ERRNO(access(path, F_OK), ENAMETOOLONG);
}

CASE(path_walking)
{
    scratch();
    CHECK_OK(mkdir("d", 0755));
    CHECK_OK(mkdir("d/e", 0755));
    close(file_with("d/e/f", "x", 1));
    CHECK_OK(access("d/e/f", F_OK));
    CHECK_OK(access("./d//e/.././e/f", F_OK));
    CHECK_OK(access("d/e/", F_OK));
    CHECK_ERRNO(access("d/e/f/", F_OK), ENOTDIR);
    CHECK_ERRNO(access("d/e/f/g", F_OK), ENOTDIR);
    CHECK_ERRNO(access("d/none/f", F_OK), ENOENT);
    CHECK_OK(access("/../../tmp", F_OK));
    CHECK_OK(chdir("d/e"));
    CHECK_OK(access("../e/f", F_OK));
    CHECK_ERRNO(mkdir("f/x", 0755), ENOTDIR);
    CHECK_OK(mkdir("slash/", 0755));
    CHECK_ERRNO(open("new/", O_CREAT | O_RDWR, 0600), EISDIR);
}

CASE(symlinks)
{
    char buffer[20];
    scratch();
    CHECK_OK(mkdir("d", 0755));
    close(file_with("d/f", "x", 1));
    CHECK_OK(symlink("d/f", "link"));
    CHECK_OK(symlink("../d", "d/up"));
    memset(buffer, 'x', sizeof buffer);
    CHECK_EQ(readlink("link", buffer, sizeof buffer), 3);
    CHECK(memcmp(buffer, "d/fx", 4) == 0); /* No terminating zero. */
    CHECK_EQ(readlink("link", buffer, 2), 2);
    CHECK_ERRNO(syscall(SYS_readlink, "link", buffer, 0), EINVAL);
    CHECK_ERRNO(readlink("d/f", buffer, 20), EINVAL);
    CHECK_ERRNO(readlink("none", buffer, 20), ENOENT);
    CHECK_ERRNO(syscall(SYS_readlink, "link", BAD_LOW, 3), EFAULT);
    CHECK_EQ(mode_of("link"), S_IFLNK | 0777);
    CHECK_OK(access("d/up/up/up/f", F_OK));
    CHECK_ERRNO(symlink("x", "link"), EEXIST);
    CHECK_ERRNO(symlink("", "empty"), ENOENT);
    CHECK_ERRNO(symlink("x", ""), ENOENT);
    struct stat status;
    CHECK_OK(stat("link", &status));
    CHECK(S_ISREG(status.st_mode));
    CHECK_OK(lstat("link", &status));
    CHECK_EQ(status.st_size, 3);
    CHECK_OK(unlink("link"));
    CHECK_OK(access("d/f", F_OK));
}

CASE(symlink_loops)
{
    char name[8], target[8];
    scratch();
    CHECK_OK(symlink("b", "a"));
    CHECK_OK(symlink("a", "b"));
    CHECK_ERRNO(access("a", F_OK), ELOOP);
    CHECK_ERRNO(open("a", O_RDWR | O_CREAT, 0600), ELOOP);
    CHECK_OK(symlink("self/x", "self"));
    CHECK_ERRNO(access("self/y", F_OK), ELOOP);
    close(file_with("0", "x", 1));
    for (int i = 1; i <= 41; i++) {
        snprintf(name, sizeof name, "%d", i);
        snprintf(target, sizeof target, "%d", i - 1);
        CHECK_OK(symlink(target, name));
    }
    CHECK_OK(access("40", F_OK));
    CHECK_ERRNO(access("41", F_OK), ELOOP);
}

CASE(hard_links)
{
    struct stat status;
    scratch();
    close(file_with("f", "x", 1));
    CHECK_OK(link("f", "g"));
    CHECK_EQ(inode_of("f"), inode_of("g"));
    CHECK_OK(stat("f", &status));
    CHECK_EQ(status.st_nlink, 2);
    CHECK_ERRNO(link("f", "g"), EEXIST);
    CHECK_ERRNO(link("none", "h"), ENOENT);
    CHECK_OK(mkdir("d", 0755));
    CHECK_ERRNO(link("d", "e"), EPERM);
    CHECK_OK(symlink("f", "s"));
    CHECK_OK(link("s", "t")); /* Of the symbolic link itself, */
    CHECK_EQ(inode_of("t"), inode_of("s"));
    CHECK_OK(linkat(AT_FDCWD, "s", AT_FDCWD, "u", AT_SYMLINK_FOLLOW));
    CHECK_EQ(inode_of("u"), inode_of("f"));
    CHECK_ERRNO(linkat(AT_FDCWD, "f", AT_FDCWD, "v", 0x1), EINVAL);
    CHECK_OK(unlink("f"));
    CHECK_OK(access("g", F_OK));
}

CASE(mkdir_rmdir)
{
    struct stat status;
    scratch();
    CHECK_OK(mkdir("d", 0750));
    CHECK_EQ(mode_of("d"), S_IFDIR | 0750);
    CHECK_ERRNO(mkdir("d", 0750), EEXIST);
    CHECK_ERRNO(mkdir(".", 0750), EEXIST);
    CHECK_ERRNO(mkdir("/", 0750), EEXIST);
    CHECK_ERRNO(mkdir("", 0750), ENOENT);
    CHECK_ERRNO(mkdir("no/d", 0750), ENOENT);
    CHECK_OK(mkdir("d/e", 0750));
    CHECK_OK(stat("d", &status));
    CHECK_EQ(status.st_nlink, 3);
    CHECK_ERRNO(rmdir("d"), ENOTEMPTY);
    CHECK_ERRNO(rmdir("d/."), EINVAL);
    CHECK_ERRNO(rmdir("d/e/.."), ENOTEMPTY);
    CHECK_ERRNO(rmdir("/"), EBUSY);
    close(file_with("f", "x", 1));
    CHECK_ERRNO(rmdir("f"), ENOTDIR);
    CHECK_ERRNO(rmdir("none"), ENOENT);
    CHECK_ERRNO(unlink("d"), EISDIR);
    CHECK_ERRNO(unlinkat(AT_FDCWD, "f", AT_REMOVEDIR), ENOTDIR);
    CHECK_ERRNO(unlinkat(AT_FDCWD, "f", 0x1), EINVAL);
    CHECK_OK(unlinkat(AT_FDCWD, "d/e", AT_REMOVEDIR));
    CHECK_OK(rmdir("d/"));
    CHECK_ERRNO(access("d", F_OK), ENOENT);
}

CASE(rename_rules)
{
    scratch();
    close(file_with("f", "f", 1));
    close(file_with("g", "g", 1));
    CHECK_OK(mkdir("d", 0755));
    CHECK_OK(mkdir("e", 0755));
    close(file_with("e/x", "x", 1));
    ino_t f = inode_of("f");
    CHECK_OK(rename("f", "g"));
    CHECK_EQ(inode_of("g"), f);
    CHECK_ERRNO(access("f", F_OK), ENOENT);
    CHECK_ERRNO(rename("none", "g"), ENOENT);
    CHECK_ERRNO(rename("g", "d"), EISDIR);
    CHECK_ERRNO(rename("d", "g"), ENOTDIR);
    CHECK_ERRNO(rename("d", "e"), ENOTEMPTY);
    CHECK_ERRNO(rename("e", "e/sub"), EINVAL);
    CHECK_ERRNO(rename("g", "no/g"), ENOENT);
    CHECK_ERRNO(rename(".", "x"), EBUSY);
    CHECK_OK(rename("e", "d")); /* Over an empty directory. */
    CHECK_OK(access("d/x", F_OK));
    CHECK_OK(rename("g", "d/y"));
    CHECK_OK(link("d/y", "d/z"));
    CHECK_OK(rename("d/y", "d/z")); /* The same file: nothing happens. */
    CHECK_OK(access("d/y", F_OK));
    CHECK_OK(rename("d/y", "d/y"));
    CHECK_OK(symlink("d", "s"));
    CHECK_OK(rename("s", "t"));
    CHECK_EQ(mode_of("t"), S_IFLNK | 0777);
}

CASE(renameat2_flags)
{
    char buffer[4];
    scratch();
    close(file_with("f", "f", 1));
    close(file_with("g", "g", 1));
    CHECK_ERRNO(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "g", 1), EEXIST);
    CHECK_OK(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "g", 2));
    slurp("f", buffer, 4);
    CHECK_STR(buffer, "g");
    CHECK_ERRNO(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "none", 2), ENOENT);
    CHECK_ERRNO(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "g", 3), EINVAL);
    CHECK_ERRNO(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "g", 64), EINVAL);
    CHECK_OK(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "h", 1));
    CHECK_OK(access("h", F_OK));
}

CASE(at_calls_with_directory_descriptors)
{
    struct stat status;
    char buffer[20];
    scratch();
    CHECK_OK(mkdir("d", 0755));
    int directory = open("d", O_RDONLY | O_DIRECTORY), file = file_with("f", "x", 1);
    CHECK_OK(openat(directory, "g", O_CREAT | O_RDWR, 0644));
    CHECK_OK(access("d/g", F_OK));
    CHECK_OK(mkdirat(directory, "e", 0755));
    CHECK_OK(symlinkat("g", directory, "s"));
    CHECK_EQ(readlinkat(directory, "s", buffer, 20), 1);
    CHECK_OK(linkat(directory, "g", AT_FDCWD, "h", 0));
    CHECK_OK(renameat(directory, "e", AT_FDCWD, "e"));
    CHECK_OK(fchmodat(directory, "g", 0600, 0));
    CHECK_OK(fchownat(directory, "s", 1, 2, AT_SYMLINK_NOFOLLOW));
    CHECK_OK(fstatat(directory, "s", &status, AT_SYMLINK_NOFOLLOW));
    CHECK_EQ(status.st_uid, 1);
    CHECK(S_ISLNK(status.st_mode));
    CHECK_OK(fstatat(directory, "s", &status, 0));
    CHECK_EQ(status.st_mode, S_IFREG | 0600);
    CHECK_OK(fstatat(file, "", &status, AT_EMPTY_PATH));
    CHECK_EQ(status.st_size, 1);
    CHECK_ERRNO(fstatat(file, "", &status, 0), ENOENT);
    CHECK_ERRNO(fstatat(file, "x", &status, 0), ENOTDIR);
    CHECK_ERRNO(fstatat(1000, "x", &status, 0), EBADF);
    CHECK_OK(fstatat(1000, "/", &status, 0)); /* An absolute path needs no directory. */
    CHECK_ERRNO(fstatat(directory, "g", &status, 0x40000000), EINVAL);
    CHECK_OK(unlinkat(directory, "g", 0));
    CHECK_OK(fchdir(directory));
    CHECK_ERRNO(access("s", R_OK), ENOENT);
    CHECK_ERRNO(fchdir(file), ENOTDIR);
}

static void user_meets_permissions(void)
{
    char byte;
    CHECK_ERRNO(open("secret", O_RDONLY), EACCES);
    CHECK_ERRNO(access("secret", R_OK), EACCES);
    CHECK_OK(access("secret", F_OK));
    CHECK_ERRNO(open("public", O_WRONLY), EACCES);
    CHECK_ERRNO(open("public", O_RDONLY | O_TRUNC), EACCES);
    CHECK_OK(open("public", O_RDONLY));
    CHECK_ERRNO(open("closed/f", O_RDONLY), EACCES);
    CHECK_ERRNO(access("closed/none", F_OK), EACCES);
    CHECK_ERRNO(open("new", O_CREAT | O_RDWR, 0600), EACCES);
    CHECK_ERRNO(mkdir("new", 0700), EACCES);
    CHECK_ERRNO(unlink("public"), EACCES);
    CHECK_ERRNO(rename("public", "other"), EACCES);
    CHECK_ERRNO(chmod("public", 0777), EPERM);
    CHECK_ERRNO(chown("public", 1000, 1000), EPERM);
    CHECK_ERRNO(utimensat(AT_FDCWD, "public", NULL, 0), EACCES);
    CHECK_ERRNO(truncate("public", 0), EACCES);
    CHECK_ERRNO(execl("public", "public", (char *)NULL), EACCES);
    CHECK_ERRNO(chdir("closed"), EACCES);
    CHECK_OK(open("group", O_RDONLY)); /* By group 1000. */
    CHECK_ERRNO(open("nogroup", O_RDONLY), EACCES); /* The group's bits count, not the others'. */
    CHECK_ERRNO(unlink("sticky/f"), EPERM);
    CHECK_OK(open("sticky/mine", O_CREAT | O_RDWR, 0600));
    CHECK_OK(unlink("sticky/mine"));
    CHECK_ERRNO(mknod("sticky/device", S_IFCHR | 0600, makedev(1, 3)), EPERM);
    int fd = open("sticky/own", O_CREAT | O_RDWR, 0000); /* The creator's descriptor works. */
    CHECK_EQ(write(fd, "x", 1), 1);
    CHECK_EQ(pread(fd, &byte, 1, 0), 1);
    CHECK_ERRNO(open("sticky/own", O_RDONLY), EACCES);
    CHECK_ERRNO(fchown(fd, 0, 0), EPERM);
}

CASE(permissions_bind_users)
{
    scratch();
    close(file_with("secret", "x", 1));
    close(file_with("public", "x", 1));
    close(file_with("group", "x", 1));
    close(file_with("nogroup", "x", 1));
    CHECK_OK(chmod("secret", 0600));
    CHECK_OK(chown("group", 0, 1000));
    CHECK_OK(chmod("group", 0640));
    CHECK_OK(chown("nogroup", 0, 1000));
    CHECK_OK(chmod("nogroup", 0604));
    CHECK_OK(mkdir("closed", 0700));
    close(file_with("closed/f", "x", 1));
    CHECK_OK(mkdir("sticky", 0777));
    CHECK_OK(chmod("sticky", 01777));
    close(file_with("sticky/f", "x", 1));
    CHECK_OK(chmod("sticky/f", 0666));
    int status = as_user(user_meets_permissions);
    CHECK_EQ(status, 0);
}

static void user_uses_access(void)
{
    CHECK_ERRNO(access("f", W_OK), EACCES);
}

CASE(access_uses_real_ids)
{
    scratch();
    close(file_with("f", "x", 1));
    CHECK_OK(access("f", R_OK | W_OK));
    CHECK_ERRNO(access("f", X_OK), EACCES); /* Even root needs one x bit. */
    CHECK_OK(chmod("f", 0644 | 0010));
    CHECK_OK(access("f", X_OK));
    CHECK_ERRNO(access("f", 8), EINVAL);
    CHECK_ERRNO(access("none", F_OK), ENOENT);
    CHECK_ERRNO(syscall(SYS_faccessat2, AT_FDCWD, "f", F_OK, 0x1), EINVAL);
    CHECK_OK(syscall(SYS_faccessat2, AT_FDCWD, "f", R_OK, AT_EACCESS));
    CHECK_EQ(as_user(user_uses_access), 0);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setresuid(1000, 0, 0));
        CHECK_ERRNO(access("f", W_OK), EACCES);
        CHECK_OK(syscall(SYS_faccessat2, AT_FDCWD, "f", W_OK, AT_EACCESS));
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(chmod_and_chown)
{
    struct stat status;
    scratch();
    int fd = file_with("f", "x", 1);
    CHECK_OK(chmod("f", 06755));
    CHECK_EQ(mode_of("f"), S_IFREG | 06755);
    CHECK_OK(chown("f", 5, 6));
    CHECK_OK(stat("f", &status));
    CHECK_EQ(status.st_uid, 5);
    CHECK_EQ(status.st_gid, 6);
    CHECK_EQ(status.st_mode, S_IFREG | 0755); /* Set-id bits fall with the owner. */
    CHECK_OK(fchown(fd, (uid_t)-1, 7));
    CHECK_OK(fstat(fd, &status));
    CHECK_EQ(status.st_uid, 5);
    CHECK_EQ(status.st_gid, 7);
    CHECK_OK(fchmod(fd, 0100000 | 0400));
    CHECK_EQ(mode_of("f"), S_IFREG | 0400);
    CHECK_OK(symlink("f", "s"));
    CHECK_OK(lchown("s", 9, 9));
    CHECK_OK(lstat("s", &status));
    CHECK_EQ(status.st_uid, 9);
    CHECK_OK(chown("s", 8, 8));
    CHECK_OK(stat("f", &status));
    CHECK_EQ(status.st_uid, 8);
    CHECK_ERRNO(chmod("none", 0), ENOENT);
}

CASE(times)
{
    struct stat status;
    struct timespec set[2] = {{1000, 5}, {2000, 6}};
    scratch();
    int fd = file_with("f", "x", 1);
    CHECK_OK(utimensat(AT_FDCWD, "f", set, 0));
    CHECK_OK(stat("f", &status));
    CHECK_EQ(status.st_atim.tv_sec, 1000);
    CHECK_EQ(status.st_atim.tv_nsec, 5);
    CHECK_EQ(status.st_mtim.tv_sec, 2000);
    CHECK_EQ(status.st_mtim.tv_nsec, 6);
    set[0].tv_nsec = UTIME_OMIT;
    set[1].tv_nsec = UTIME_NOW;
    CHECK_OK(futimens(fd, set));
    CHECK_OK(stat("f", &status));
    CHECK_EQ(status.st_atim.tv_sec, 1000);
    CHECK(status.st_mtim.tv_sec > 2000);
    set[0].tv_nsec = 1000000000;
    CHECK_ERRNO(utimensat(AT_FDCWD, "f", set, 0), EINVAL);
    CHECK_ERRNO(utimensat(AT_FDCWD, "none", NULL, 0), ENOENT);
    CHECK_OK(symlink("f", "s"));
    set[0] = set[1] = (struct timespec){77, 0};
    CHECK_OK(utimensat(AT_FDCWD, "s", set, AT_SYMLINK_NOFOLLOW));
    CHECK_OK(lstat("s", &status));
    CHECK_EQ(status.st_mtim.tv_sec, 77);
    CHECK_OK(stat("f", &status));
    CHECK(status.st_mtim.tv_sec != 77);
    /* A write moves the modification time forward. */
    CHECK_OK(utimensat(AT_FDCWD, "f", set, 0));
    CHECK_EQ(write(fd, "y", 1), 1);
    CHECK_OK(stat("f", &status));
    CHECK(status.st_mtim.tv_sec > 77);
    CHECK(status.st_ctim.tv_sec > 77);
}

CASE(stat_of_kinds)
{
    struct stat status;
    scratch();
    CHECK_OK(mknod("null", S_IFCHR | 0600, makedev(1, 3)));
    CHECK_OK(stat("null", &status));
    CHECK(S_ISCHR(status.st_mode));
    CHECK_EQ(status.st_rdev, makedev(1, 3));
    CHECK_OK(mknod("plain", S_IFREG | 0600, 0));
    CHECK_EQ(mode_of("plain"), S_IFREG | 0600);
    CHECK_ERRNO(mknod("plain", S_IFREG | 0600, 0), EEXIST);
    CHECK_ERRNO(mknod("dir", S_IFDIR | 0600, 0), EPERM);
    CHECK_OK(stat("/", &status));
    CHECK(S_ISDIR(status.st_mode));
    close(file_with("f", "0123456789", 10));
    CHECK_OK(stat("f", &status));
    CHECK_EQ(status.st_size, 10);
    CHECK_EQ(status.st_nlink, 1);
    CHECK(status.st_blocks > 0);
    CHECK(status.st_blksize >= 512);
    CHECK_EQ(status.st_uid, 0);
}

CASE(statx_fields)
{
    struct {
        uint32_t mask, blksize;
        uint64_t attributes;
        uint32_t nlink, uid, gid;
        uint16_t mode, spare;
        uint64_t ino, size, blocks, attributes_mask;
        uint64_t rest[24];
    } status;
    scratch();
    int fd = file_with("f", "0123456789", 10);
    memset(&status, 0, sizeof status);
    CHECK_OK(syscall(SYS_statx, AT_FDCWD, "f", 0, 0x7ff, &status));
    CHECK_EQ(status.mask & 0x7ff, 0x7ff);
    CHECK_EQ(status.size, 10);
    CHECK_EQ(status.mode, S_IFREG | 0644);
    CHECK_EQ(status.nlink, 1);
    CHECK_EQ(status.ino, inode_of("f"));
    CHECK_OK(syscall(SYS_statx, fd, "", AT_EMPTY_PATH, 0x7ff, &status));
    CHECK_ERRNO(syscall(SYS_statx, AT_FDCWD, "none", 0, 0x7ff, &status), ENOENT);
    CHECK_ERRNO(syscall(SYS_statx, AT_FDCWD, "f", 0x1, 0x7ff, &status), EINVAL);
    CHECK_ERRNO(syscall(SYS_statx, AT_FDCWD, "f", 0, 0x80000000, &status), EINVAL);
}

struct directory_entry {
    uint64_t ino;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

CASE(getdents_lists_everything_once)
{
    enum { FILES = 300 };
    static char buffer[1000];
    char name[300], seen[FILES] = {0};
    int special = 0, others = 0;
    scratch();
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "file-%d", i);
        close(open(name, O_CREAT | O_WRONLY, 0600));
    }
    CHECK_OK(mkdir("dir", 0700));
    CHECK_OK(symlink("x", "sym"));
    int fd = open(".", O_RDONLY | O_DIRECTORY);
    for (;;) {
        long got = syscall(SYS_getdents64, fd, buffer, sizeof buffer);
        CHECK(got >= 0);
        if (got == 0)
            break;
        for (long at = 0; at < got;) {
            struct directory_entry *entry = (void *)(buffer + at);
            int number;
            CHECK(entry->length % 8 == 0 && at + entry->length <= got);
            if (sscanf(entry->name, "file-%d", &number) == 1) {
                CHECK_EQ(seen[number]++, 0);
                CHECK_EQ(entry->type, DT_REG);
            } else if (strcmp(entry->name, "dir") == 0) {
                CHECK_EQ(entry->type, DT_DIR);
                CHECK_EQ(entry->ino, inode_of("dir"));
                others++;
            } else if (strcmp(entry->name, "sym") == 0) {
                CHECK_EQ(entry->type, DT_LNK);
                others++;
            } else {
                CHECK(strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0);
                special++;
            }
            at += entry->length;
        }
    }
    CHECK_EQ(special, 2);
    CHECK_EQ(others, 2);
    for (int i = 0; i < FILES; i++)
        CHECK_EQ(seen[i], 1);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    CHECK(syscall(SYS_getdents64, fd, buffer, sizeof buffer) > 0);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    CHECK_ERRNO(syscall(SYS_getdents64, fd, buffer, 4), EINVAL);
    CHECK_ERRNO(syscall(SYS_getdents64, fd, BAD_LOW, 1000), EFAULT);
    CHECK_ERRNO(syscall(SYS_getdents64, 1000, buffer, 1000), EBADF);
    close(file_with("f", "x", 1));
    CHECK_ERRNO(syscall(SYS_getdents64, open("f", O_RDONLY), buffer, 1000), ENOTDIR);
}

CASE(removing_while_reading_a_directory)
{
    enum { FILES = 500 };
    char name[32];
    int removed = 0;
    scratch();
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%d", i);
        close(open(name, O_CREAT | O_WRONLY, 0600));
    }
    DIR *directory = opendir(".");
    CHECK(directory);
    struct dirent *entry;
    while ((entry = readdir(directory)))
        if (entry->d_name[0] != '.') {
            CHECK_OK(unlink(entry->d_name));
            removed++;
        }
    closedir(directory);
    CHECK_EQ(removed, FILES);
    CHECK_OK(chdir(".."));
}

CASE(working_directory)
{
    char buffer[PATH_MAX], expected[PATH_MAX];
    scratch();
    snprintf(expected, sizeof expected, "/tmp/working_directory.%d", (int)getpid());
    CHECK_EQ(syscall(SYS_getcwd, buffer, sizeof buffer), strlen(expected) + 1);
    CHECK_STR(buffer, expected);
    CHECK_ERRNO(syscall(SYS_getcwd, buffer, 5), ERANGE);
    CHECK_ERRNO(syscall(SYS_getcwd, buffer, 0), ERANGE);
    CHECK_OK(mkdir("d", 0755));
    CHECK_OK(symlink("d", "s"));
    CHECK_OK(chdir("s"));
    strcat(expected, "/d");
    syscall(SYS_getcwd, buffer, sizeof buffer);
    CHECK_STR(buffer, expected);
    CHECK_OK(chdir("/"));
    CHECK_EQ(syscall(SYS_getcwd, buffer, sizeof buffer), 2);
    CHECK_STR(buffer, "/");
    CHECK_ERRNO(chdir("none"), ENOENT);
    CHECK_ERRNO(chdir("/dev/null"), ENOTDIR);
}

CASE(removed_working_directory)
{
    char buffer[100];
    scratch();
    CHECK_OK(mkdir("d", 0755));
    CHECK_OK(chdir("d"));
    CHECK_OK(rmdir("../d"));
    CHECK_ERRNO(syscall(SYS_getcwd, buffer, sizeof buffer), ENOENT);
    CHECK_ERRNO(open("f", O_CREAT | O_RDWR, 0600), ENOENT);
    CHECK_OK(open(".", O_RDONLY));
    CHECK_OK(chdir(".."));
}

CASE(fork_does_not_share_the_working_directory)
{
    char before[200], after[200];
    scratch();
    CHECK(getcwd(before, sizeof before));
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(chdir("/") == 0 ? 0 : 1);
    CHECK_EXITED(child, 0);
    CHECK(getcwd(after, sizeof after));
    CHECK_STR(after, before);
}

CASE(deep_directories)
{
    char buffer[PATH_MAX];
    scratch();
    for (int i = 0; i < 300; i++) {
        CHECK_OK(mkdir("level", 0755));
        CHECK_OK(chdir("level"));
    }
    CHECK(syscall(SYS_getcwd, buffer, sizeof buffer) > 1800);
    for (int i = 0; i < 300; i++) {
        CHECK_OK(chdir(".."));
        CHECK_OK(rmdir("level"));
    }
}

CASE(statfs_of_tmpfs)
{
    struct statfs status;
    scratch();
    int fd = file_with("f", "x", 1);
    CHECK_OK(statfs(".", &status));
    CHECK_EQ(status.f_type, 0x01021994);
    CHECK_EQ(status.f_bsize, 4096);
    CHECK_EQ(status.f_namelen, 255);
    CHECK_OK(fstatfs(fd, &status));
    CHECK_EQ(status.f_type, 0x01021994);
    CHECK_OK(statfs("/proc", &status));
    CHECK_EQ(status.f_type, 0x9fa0);
    CHECK_ERRNO(statfs("none", &status), ENOENT);
    CHECK_ERRNO(fstatfs(1000, &status), EBADF);
    CHECK_ERRNO(syscall(SYS_fstatfs, fd, BAD_LOW), EFAULT);
}

CASE(concurrent_creation_is_exclusive)
{
    /* Of two processes that create the same names exclusively, exactly one wins each. */
    enum { NAMES = 200 };
    char name[16];
    scratch();
    pid_t children[2];
    int won = 0;
    for (int who = 0; who < 2; who++) {
        children[who] = fork_or_fail();
        if (children[who] == 0) {
            int wins = 0;
            for (int i = 0; i < NAMES; i++) {
                snprintf(name, sizeof name, "%d", i);
                int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600);
                if (fd >= 0)
                    wins++;
                else
                    CHECK_EQ(errno, EEXIST);
                close(fd);
            }
            _exit(wins);
        }
    }
    for (int who = 0; who < 2; who++) {
        int status = harness_wait(children[who]);
        CHECK(WIFEXITED(status));
        won += WEXITSTATUS(status);
    }
    CHECK_EQ(won, NAMES);
}

CASE(extended_attributes_may_be_asked_for)
{
    /* ls and cp look for access lists: a file has none, or the file system has no such thing. */
    const char *name = "system.posix_acl_access";
    char buffer[64];
    scratch();
    int fd = file_with("f", "x", 1);
    CHECK_EQ(syscall(SYS_getxattr, "f", name, buffer, sizeof buffer), -1);
    CHECK(errno == ENODATA || errno == EOPNOTSUPP);
    CHECK_EQ(syscall(SYS_lgetxattr, "f", name, buffer, sizeof buffer), -1);
    CHECK(errno == ENODATA || errno == EOPNOTSUPP);
    CHECK_EQ(syscall(SYS_fgetxattr, fd, name, buffer, sizeof buffer), -1);
    CHECK(errno == ENODATA || errno == EOPNOTSUPP);
    CHECK_OK(syscall(SYS_listxattr, "f", NULL, 0));
    CHECK_ERRNO(syscall(SYS_getxattr, "none", name, buffer, sizeof buffer), ENOENT);
    CHECK_ERRNO(syscall(SYS_listxattr, "none", buffer, sizeof buffer), ENOENT);
    CHECK_ERRNO(syscall(SYS_fgetxattr, -1, name, buffer, sizeof buffer), EBADF);
    CHECK_ERRNO(syscall(SYS_getxattr, "f", "", buffer, sizeof buffer), ERANGE);
    CHECK_ERRNO(syscall(SYS_getxattr, "f", BAD_LOW, buffer, sizeof buffer), EFAULT);
    close(fd);
}

CASE(rename_looks_at_the_old_path_first)
{
    scratch();
    close(file_with("f", "f", 1));
    CHECK_ERRNO(syscall(SYS_rename, "", NULL), ENOENT);
    CHECK_ERRNO(syscall(SYS_rename, NULL, ""), EFAULT);
    CHECK_ERRNO(syscall(SYS_rename, "f", NULL), EFAULT);
    CHECK_ERRNO(syscall(SYS_rename, "none", NULL), EFAULT);
    CHECK_ERRNO(syscall(SYS_rename, "none/x", NULL), ENOENT);
    CHECK_ERRNO(syscall(SYS_rename, "f/x", NULL), ENOTDIR);
    CHECK_ERRNO(syscall(SYS_rename, "f/x", ""), ENOTDIR);
    CHECK_ERRNO(syscall(SYS_renameat, 99, "f", AT_FDCWD, NULL), EBADF);
    CHECK_ERRNO(syscall(SYS_renameat2, AT_FDCWD, "", AT_FDCWD, NULL, 64), EINVAL);
    CHECK_ERRNO(syscall(SYS_link, "none", NULL), ENOENT);
    CHECK_ERRNO(syscall(SYS_link, "f", NULL), EFAULT);
    CHECK_ERRNO(syscall(SYS_symlink, "", NULL), ENOENT);
    CHECK_ERRNO(syscall(SYS_symlink, NULL, ""), EFAULT);
}
