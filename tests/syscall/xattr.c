/* Extended attributes: values and names, flags, sizes, permissions, links, renames. */
#include "harness.h"
#include <sys/mount.h>
#include <sys/xattr.h>

/* tmpfs of Linux before 6.6 has no names for users. */
static void need_user_names(const char *path)
{
    if (setxattr(path, "user.probe", "", 0, 0) == -1 && errno == EOPNOTSUPP)
        SKIP("this tmpfs keeps no attributes of users");
    CHECK_OK(removexattr(path, "user.probe"));
}

CASE(values_are_kept)
{
    char buffer[32] = {0};
    scratch();
    int file = file_with("f", "x", 1);
    CHECK_OK(setxattr("f", "trusted.a", "one", 3, 0));
    CHECK_EQ(getxattr("f", "trusted.a", NULL, 0), 3);
    CHECK_EQ(getxattr("f", "trusted.a", buffer, 32), 3);
    CHECK_STR(buffer, "one");
    CHECK_OK(fsetxattr(file, "trusted.a", "longer", 6, 0));
    CHECK_EQ(fgetxattr(file, "trusted.a", buffer, 32), 6);
    CHECK_STR(buffer, "longer");
    CHECK_ERRNO(getxattr("f", "trusted.a", buffer, 5), ERANGE);
    CHECK_ERRNO(getxattr("f", "trusted.A", buffer, 5), ENODATA);
    CHECK_OK(setxattr("f", "trusted.empty", NULL, 0, 0));
    CHECK_EQ(getxattr("f", "trusted.empty", buffer, 5), 0);
    CHECK_OK(removexattr("f", "trusted.a"));
    CHECK_ERRNO(getxattr("f", "trusted.a", buffer, 32), ENODATA);
    CHECK_ERRNO(removexattr("f", "trusted.a"), ENODATA);
    CHECK_ERRNO(fremovexattr(file, "trusted.a"), ENODATA);
}

CASE(create_and_replace)
{
    scratch();
    file_with("f", "x", 1);
    CHECK_ERRNO(setxattr("f", "trusted.a", "1", 1, XATTR_REPLACE), ENODATA);
    CHECK_OK(setxattr("f", "trusted.a", "1", 1, XATTR_CREATE));
    CHECK_ERRNO(setxattr("f", "trusted.a", "1", 1, XATTR_CREATE), EEXIST);
    CHECK_OK(setxattr("f", "trusted.a", "2", 1, XATTR_REPLACE));
    CHECK_ERRNO(setxattr("f", "trusted.a", "2", 1, XATTR_CREATE | XATTR_REPLACE), EEXIST);
    CHECK_ERRNO(setxattr("f", "trusted.b", "2", 1, XATTR_CREATE | XATTR_REPLACE), ENODATA);
    CHECK_ERRNO(setxattr("f", "trusted.a", "2", 1, 4), EINVAL);
}

/* Whether a list of names holds one. */
static int lists(const char *names, ssize_t length, const char *name)
{
    for (ssize_t at = 0; at < length; at += (ssize_t)strlen(names + at) + 1)
        if (strcmp(names + at, name) == 0)
            return 1;
    return 0;
}

CASE(names_are_listed)
{
    char names[64];
    scratch();
    int file = file_with("f", "x", 1);
    ssize_t none = listxattr("f", names, sizeof names);
    CHECK(none >= 0);
    CHECK_OK(setxattr("f", "trusted.a", "1", 1, 0));
    CHECK_OK(setxattr("f", "trusted.b", "1", 1, 0));
    CHECK_EQ(listxattr("f", NULL, 0), none + 20);
    CHECK_ERRNO(listxattr("f", names, 19), ERANGE);
    CHECK_EQ(listxattr("f", names, sizeof names), none + 20);
    CHECK(lists(names, none + 20, "trusted.a") && lists(names, none + 20, "trusted.b"));
    CHECK_EQ(flistxattr(file, names, sizeof names), none + 20);
    CHECK_OK(removexattr("f", "trusted.a"));
    CHECK_EQ(llistxattr("f", names, sizeof names), none + 10);
    CHECK(!lists(names, none + 10, "trusted.a") && lists(names, none + 10, "trusted.b"));
    CHECK_OK(setresuid(1000, 1000, 1000));
    CHECK_EQ(listxattr("f", names, sizeof names), none);
}

CASE(attribute_errors)
{
    static char big[65537], name[300];
    char buffer[8];
    scratch();
    int file = file_with("f", "x", 1);
    CHECK_ERRNO(setxattr("none", "trusted.a", "1", 1, 0), ENOENT);
    CHECK_ERRNO(getxattr("none", "trusted.a", buffer, 8), ENOENT);
    CHECK_ERRNO(removexattr("f/x", "trusted.a"), ENOTDIR);
    CHECK_ERRNO(fsetxattr(99, "trusted.a", "1", 1, 0), EBADF);
    CHECK_ERRNO(fgetxattr(99, "trusted.a", buffer, 8), EBADF);
    CHECK_ERRNO(flistxattr(99, buffer, 8), EBADF);
    CHECK_ERRNO(fremovexattr(99, "trusted.a"), EBADF);
    CHECK_ERRNO(flistxattr(open("f", O_PATH), buffer, 8), EBADF);
    CHECK_ERRNO(setxattr("f", "", "1", 1, 0), ERANGE);
    CHECK_ERRNO(removexattr("f", ""), ERANGE);
    CHECK_ERRNO(setxattr("f", "a", "1", 1, 0), EOPNOTSUPP);
    CHECK_ERRNO(setxattr("f", "other.a", "1", 1, 0), EOPNOTSUPP);
    CHECK_ERRNO(getxattr("f", "other.a", buffer, 8), EOPNOTSUPP);
    CHECK_ERRNO(removexattr("f", "other.a"), EOPNOTSUPP);
    CHECK_ERRNO(setxattr("f", "trusted.", "1", 1, 0), EINVAL);
    CHECK_ERRNO(setxattr("f", BAD_LOW, "1", 1, 0), EFAULT);
    CHECK_ERRNO(setxattr("f", "trusted.a", BAD_LOW, 1, 0), EFAULT);
    CHECK_ERRNO(setxattr("f", "trusted.a", big, 65537, 0), E2BIG);
    CHECK_OK(setxattr("f", "trusted.a", big, 65536, 0));
    CHECK_EQ(getxattr("f", "trusted.a", big, 1 << 20), 65536);
    CHECK_ERRNO(getxattr("f", "trusted.a", BAD_LOW, 65536), EFAULT);
    CHECK_ERRNO(listxattr("f", BAD_LOW, 1000), EFAULT);
    memcpy(memset(name, 'n', 299), "trusted.", 8);
    CHECK_ERRNO(fsetxattr(file, name, "1", 1, 0), ERANGE);
    name[255] = 0;
    CHECK_OK(fsetxattr(file, name, "1", 1, 0));
    CHECK_ERRNO(setxattr("f", "security.capability", "bad", 3, 0), EINVAL);
    int ends[2];
    CHECK_OK(pipe(ends));
    CHECK_ERRNO(fsetxattr(ends[0], "trusted.a", "1", 1, 0), EOPNOTSUPP);
    CHECK_ERRNO(setxattr("/proc/self/stat", "trusted.a", "1", 1, 0), EOPNOTSUPP);
}

CASE(who_may_touch_attributes)
{
    char buffer[8];
    scratch();
    need_user_names(".");
    file_with("public", "x", 1);
    file_with("closed", "x", 1);
    CHECK_OK(chmod("public", 0644));
    CHECK_OK(chmod("closed", 0600));
    CHECK_OK(mkdir("sticky", 0777));
    CHECK_OK(chmod("sticky", 01777));
    CHECK_OK(mkdir("open", 0777));
    CHECK_OK(chmod("open", 0777));
    CHECK_OK(setxattr("public", "user.a", "1", 1, 0));
    CHECK_OK(setxattr("closed", "user.a", "1", 1, 0));
    CHECK_OK(setxattr("public", "trusted.a", "1", 1, 0));
    CHECK_OK(setxattr("public", "security.a", "1", 1, 0));
    CHECK_OK(setresuid(1000, 1000, 1000));
    CHECK_EQ(getxattr("public", "user.a", buffer, 8), 1);
    CHECK_ERRNO(setxattr("public", "user.a", "1", 1, 0), EACCES);
    CHECK_ERRNO(removexattr("public", "user.a"), EACCES);
    CHECK_ERRNO(getxattr("closed", "user.a", buffer, 8), EACCES);
    CHECK_ERRNO(getxattr("public", "trusted.a", buffer, 8), ENODATA);
    CHECK_ERRNO(setxattr("public", "trusted.a", "1", 1, 0), EPERM);
    CHECK_ERRNO(removexattr("public", "trusted.a"), EPERM);
    CHECK_EQ(getxattr("public", "security.a", buffer, 8), 1);
    CHECK_ERRNO(setxattr("public", "security.a", "1", 1, 0), EPERM);
    CHECK_ERRNO(removexattr("public", "security.a"), EPERM);
    CHECK_ERRNO(setxattr("sticky", "user.a", "1", 1, 0), EPERM);
    CHECK_OK(setxattr("open", "user.a", "1", 1, 0));
}

CASE(user_names_need_files_or_directories)
{
    char buffer[8];
    scratch();
    need_user_names(".");
    file_with("f", "x", 1);
    CHECK_OK(symlink("f", "link"));
    CHECK_OK(mkfifo("fifo", 0600));
    CHECK_ERRNO(setxattr("fifo", "user.a", "1", 1, 0), EPERM);
    CHECK_ERRNO(getxattr("fifo", "user.a", buffer, 8), ENODATA);
    CHECK_ERRNO(lsetxattr("link", "user.a", "1", 1, 0), EPERM);
    CHECK_ERRNO(lgetxattr("link", "user.a", buffer, 8), ENODATA);
    CHECK_OK(setxattr("link", "user.a", "1", 1, 0));
    CHECK_EQ(getxattr("f", "user.a", buffer, 8), 1);
    CHECK_OK(lsetxattr("link", "trusted.a", "22", 2, 0));
    CHECK_EQ(lgetxattr("link", "trusted.a", buffer, 8), 2);
    CHECK_ERRNO(getxattr("link", "trusted.a", buffer, 8), ENODATA);
    CHECK_OK(lremovexattr("link", "trusted.a"));
    CHECK_OK(setxattr("fifo", "trusted.a", "1", 1, 0));
}

CASE(attributes_follow_the_file)
{
    char buffer[8];
    scratch();
    file_with("f", "x", 1);
    file_with("other", "x", 1);
    CHECK_OK(setxattr("f", "trusted.a", "1", 1, 0));
    CHECK_OK(link("f", "second"));
    CHECK_EQ(getxattr("second", "trusted.a", buffer, 8), 1);
    CHECK_OK(rename("f", "other"));
    CHECK_EQ(getxattr("other", "trusted.a", buffer, 8), 1);
    int file = open("other", O_RDWR | O_TRUNC);
    CHECK_EQ(fgetxattr(file, "trusted.a", buffer, 8), 1);
    CHECK_OK(unlink("other"));
    CHECK_OK(unlink("second"));
    CHECK_EQ(fgetxattr(file, "trusted.a", buffer, 8), 1);
    file_with("f", "x", 1);
    CHECK_ERRNO(getxattr("f", "trusted.a", buffer, 8), ENODATA);
}

CASE(attributes_change_the_change_time)
{
    struct stat before, after;
    scratch();
    file_with("f", "x", 1);
    CHECK_OK(stat("f", &before));
    do {
        CHECK_OK(setxattr("f", "trusted.a", "1", 1, 0));
        CHECK_OK(stat("f", &after));
    } while (after.st_ctim.tv_sec == before.st_ctim.tv_sec
             && after.st_ctim.tv_nsec == before.st_ctim.tv_nsec);
    CHECK_EQ(after.st_mtim.tv_sec, before.st_mtim.tv_sec);
    CHECK_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
}

CASE(attributes_of_users_are_bounded)
{
    static char value[65536];
    char name[32];
    int error = 0, count;
    scratch();
    CHECK_OK(mkdir("m", 0755));
    CHECK_OK(mount("none", "m", "tmpfs", 0, "nr_inodes=1000"));
    need_user_names("m");
    close(file_with("m/f", "x", 1));
    for (count = 0; count < 100 && !error; count++) {
        snprintf(name, sizeof name, "user.%d", count);
        error = setxattr("m/f", name, value, sizeof value, 0) == -1 ? errno : 0;
    }
    CHECK_EQ(error, ENOSPC);
    CHECK(count > 5);
    CHECK_OK(removexattr("m/f", "user.0"));
    CHECK_OK(setxattr("m/f", "user.0", value, sizeof value, 0));
    /* What goes with its file makes room again. */
    CHECK_OK(unlink("m/f"));
    file_with("m/g", "x", 1);
    CHECK_OK(setxattr("m/g", "user.0", value, sizeof value, 0));
}

CASE(read_only_mounts_keep_attributes)
{
    char buffer[8];
    scratch();
    CHECK_OK(mkdir("m", 0755));
    CHECK_OK(mount("none", "m", "tmpfs", 0, NULL));
    close(file_with("m/f", "x", 1));
    CHECK_OK(setxattr("m/f", "trusted.a", "1", 1, 0));
    int file = open("m/f", O_RDONLY);
    CHECK_OK(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
    CHECK_ERRNO(setxattr("m/f", "trusted.a", "1", 1, 0), EROFS);
    CHECK_ERRNO(fremovexattr(file, "trusted.a"), EROFS);
    CHECK_EQ(fgetxattr(file, "trusted.a", buffer, 8), 1);
}

CASE(nothing_is_written_nowhere)
{
    scratch();
    int file = file_with("f", "x", 1);
    CHECK_OK(setxattr("f", "trusted.empty", NULL, 0, 0));
    CHECK_EQ(fgetxattr(file, "trusted.empty", BAD_KERNEL, 5), 0);
    CHECK_OK(removexattr("f", "trusted.empty"));
    CHECK_EQ(flistxattr(file, BAD_KERNEL, 5), 0);
    CHECK_OK(setxattr("f", "trusted.a", "one", 3, 0));
    CHECK_ERRNO(fgetxattr(file, "trusted.a", BAD_KERNEL, 5), EFAULT);
    CHECK_ERRNO(flistxattr(file, BAD_KERNEL, 50), EFAULT);
}
