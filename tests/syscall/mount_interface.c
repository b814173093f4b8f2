/* The mount interface in steps: fsopen, fsconfig, fsmount, fspick, move_mount, open_tree and
 * mount_setattr, with tmpfs. On the host each case gets a mount namespace of its own. */
#include "harness.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/statfs.h>

#define SET_FLAG 0
#define SET_STRING 1
#define SET_BINARY 2
#define SET_PATH 3
#define SET_PATH_EMPTY 4
#define SET_FD 5
#define CREATE 6
#define RECONFIGURE 7
#define RECURSIVE 0x8000
#define FROM_EMPTY 4
#define TO_EMPTY 0x40
#define NOSYMFOLLOW 0x200000

struct attributes {
    uint64_t set, clear, propagation, user_namespace;
};

static int fsopen_(const char *type, unsigned flags)
{
    return (int)syscall(430, type, flags);
}
static int fsconfig_(int fd, unsigned command, const char *key, const void *value, int other)
{
    return (int)syscall(431, fd, command, key, value, other);
}
static int fsmount_(int fd, unsigned flags, unsigned attributes)
{
    return (int)syscall(432, fd, flags, attributes);
}
static int fspick_(int directory, const char *path, unsigned flags)
{
    return (int)syscall(433, directory, path, flags);
}
static int move_mount_(int from, const char *from_path, int to, const char *to_path, unsigned flags)
{
    return (int)syscall(429, from, from_path, to, to_path, flags);
}
static int open_tree_(int directory, const char *path, unsigned flags)
{
    return (int)syscall(428, directory, path, flags);
}
static int mount_setattr_(int directory, const char *path, unsigned flags, void *value, size_t size)
{
    return (int)syscall(442, directory, path, flags, value, size);
}

static void own_mounts(void)
{
    scratch();
    if (!getenv("FERRY_GUEST")) {
        if (unshare(CLONE_NEWNS) == -1)
            SKIP("this machine permits no mount namespace");
        CHECK_OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    }
    CHECK_OK(mkdir("m", 0755));
    CHECK_OK(mkdir("n", 0755));
}

/* A tmpfs that is attached nowhere. */
static int loose_tmpfs(unsigned attributes)
{
    int context = fsopen_("tmpfs", 0), mount;
    CHECK(context >= 0);
    CHECK_OK(fsconfig_(context, CREATE, NULL, NULL, 0));
    mount = fsmount_(context, 0, attributes);
    CHECK(mount >= 0);
    close(context);
    return mount;
}

static void run_as_user(void (*act)(void))
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setuid(1000));
        act();
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(a_tmpfs_is_made_and_mounted_in_steps)
{
    struct stat status;
    struct statfs space;
    int context, mount, file;
    own_mounts();
    CHECK_OK(context = fsopen_("tmpfs", 1));
    CHECK_EQ(fcntl(context, F_GETFD), FD_CLOEXEC);
    CHECK_OK(fsconfig_(context, SET_STRING, "source", "src", 0));
    CHECK_OK(fsconfig_(context, SET_STRING, "size", "64k", 0));
    CHECK_OK(fsconfig_(context, SET_STRING, "nr_inodes", "10", 0));
    CHECK_OK(fsconfig_(context, SET_STRING, "mode", "711", 0));
    CHECK_OK(fsconfig_(context, SET_STRING, "uid", "12", 0));
    CHECK_OK(fsconfig_(context, SET_STRING, "gid", "34", 0));
    CHECK_OK(fsconfig_(context, CREATE, NULL, NULL, 0));
    CHECK_OK(mount = fsmount_(context, 1, 0));
    CHECK_EQ(fcntl(mount, F_GETFD), FD_CLOEXEC);
    CHECK_OK(fstat(mount, &status));
    CHECK_EQ(status.st_mode & 07777, 0711);
    CHECK_EQ(status.st_uid, 12);
    CHECK_EQ(status.st_gid, 34);
    CHECK_OK(file = openat(mount, "f", O_CREAT | O_RDWR, 0600)); /* Usable before it has a place. */
    CHECK_EQ(write(file, "x", 1), 1);
    close(file);
    CHECK_ERRNO(access("m/f", F_OK), ENOENT);
    CHECK_OK(move_mount_(mount, "", AT_FDCWD, "m", FROM_EMPTY));
    CHECK_OK(access("m/f", F_OK));
    CHECK_OK(statfs("m", &space));
    CHECK_EQ(space.f_blocks * (unsigned long)space.f_bsize, 65536);
    CHECK_EQ(space.f_files, 10);
    close(mount);
    close(context);
    CHECK_OK(umount("m"));
}

CASE(mounts_from_steps_are_listed)
{
    static char mounts[65536];
    char line[300], cwd[200];
    int context, mount;
    own_mounts();
    CHECK(getcwd(cwd, sizeof cwd));
    CHECK_OK(context = fsopen_("tmpfs", 0));
    CHECK_OK(fsconfig_(context, SET_STRING, "source", "the-source", 0));
    CHECK_OK(fsconfig_(context, CREATE, NULL, NULL, 0));
    CHECK_OK(mount = fsmount_(context, 0, 1 | 2 | 4 | 8 | 0x10));
    CHECK_OK(move_mount_(mount, "", AT_FDCWD, "m", FROM_EMPTY));
    slurp("/proc/self/mounts", mounts, sizeof mounts);
    snprintf(line, sizeof line, "the-source %s/m tmpfs ro,nosuid,nodev,noexec,noatime", cwd);
    CHECK(strstr(mounts, line) != NULL);
    close(mount);
    close(context);
    CHECK_OK(umount("m"));
}

CASE(fsopen_errors)
{
    own_mounts();
    CHECK_ERRNO(fsopen_("no-such-system", 0), ENODEV);
    CHECK_ERRNO(fsopen_("tmpfs", 2), EINVAL);
    CHECK_ERRNO(fsopen_("no-such-system", 0x10), EINVAL);
    CHECK_ERRNO(fsopen_(BAD_LOW, 0), EFAULT);
    CHECK_ERRNO(fsopen_(NULL, 0), EFAULT);
}

static void act_without_rights(void)
{
    struct attributes none = {1, 0, 0, 0};
    CHECK_ERRNO(fsopen_("tmpfs", 0x10), EPERM);
    CHECK_ERRNO(fspick_(AT_FDCWD, "/", 0x100), EPERM);
    CHECK_ERRNO(fsmount_(-1, 0x10, 0), EPERM);
    CHECK_ERRNO(move_mount_(-1, "", -1, "", 0x10000000), EPERM);
    CHECK_ERRNO(open_tree_(AT_FDCWD, "/", 1), EPERM);
    CHECK_ERRNO(open_tree_(AT_FDCWD, "/", 0x10), EINVAL);
    CHECK_OK(open_tree_(AT_FDCWD, "/", 0));
    CHECK_ERRNO(mount_setattr_(-1, "/", 1, &none, sizeof none), EINVAL);
    CHECK_ERRNO(mount_setattr_(-1, "/", 0, &none, 8), EINVAL);
    CHECK_ERRNO(mount_setattr_(-1, "/", 0, &none, 4097), E2BIG);
    CHECK_ERRNO(mount_setattr_(AT_FDCWD, "/", 0, &none, sizeof none), EPERM);
}

CASE(the_steps_need_an_administrator)
{
    own_mounts();
    run_as_user(act_without_rights);
}

CASE(fsconfig_checks_its_arguments)
{
    int context, file;
    own_mounts();
    file = file_with("f", "x", 1);
    CHECK_OK(context = fsopen_("tmpfs", 0));
    CHECK_ERRNO(fsconfig_(-1, SET_FLAG, "rw", NULL, 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, 100, "rw", "x", 0), EOPNOTSUPP);
    CHECK_ERRNO(fsconfig_(context, SET_FLAG, NULL, NULL, 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_FLAG, "rw", "foo", 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_FLAG, "rw", NULL, 1), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_STRING, NULL, "x", 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_STRING, "source", NULL, 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_STRING, "source", "x", 1), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_BINARY, NULL, "x", 1), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_BINARY, "sync", NULL, 1), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_BINARY, "sync", "x", 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_BINARY, "sync", "x", (1 << 20) + 1), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_PATH, NULL, "x", 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_PATH, "sync", NULL, 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_PATH, "sync", "/", -1), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_PATH_EMPTY, "sync", "/", -1), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_FD, NULL, NULL, 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_FD, "sync", "x", 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_FD, "sync", NULL, -1), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_FD, "sync", NULL, 999), EBADF);
    CHECK_ERRNO(fsconfig_(context, CREATE, "x", NULL, 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, CREATE, NULL, "x", 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, CREATE, NULL, NULL, 1), EINVAL);
    CHECK_ERRNO(fsconfig_(999, CREATE, NULL, NULL, 0), EBADF);
    CHECK_ERRNO(fsconfig_(file, CREATE, NULL, NULL, 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_FLAG, BAD_LOW, NULL, 0), EFAULT);
    CHECK_ERRNO(fsconfig_(context, SET_STRING, "source", BAD_LOW, 0), EFAULT);
}

CASE(parameters_are_checked_when_they_are_set)
{
    char message[200], longest[300];
    int context;
    own_mounts();
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    CHECK_OK(context = fsopen_("tmpfs", 0));
    CHECK_ERRNO(read(context, message, sizeof message), ENODATA);
    CHECK_ERRNO(fsconfig_(context, SET_FLAG, "no-such", NULL, 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_STRING, "no-such", "1", 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_FLAG, "size", NULL, 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_STRING, "size", "x", 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_STRING, "mode", "9", 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_STRING, "uid", "-1", 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_STRING, "inode64", "1", 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_FLAG, longest, NULL, 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, SET_STRING, "source", longest, 0), EINVAL);
    CHECK_OK(fsconfig_(context, SET_STRING, "source", "a", 0));
    CHECK_ERRNO(fsconfig_(context, SET_STRING, "source", "b", 0), EINVAL);
    CHECK_OK(fsconfig_(context, SET_FLAG, "inode64", NULL, 0));
    CHECK_OK(fsconfig_(context, SET_STRING, "size", "10%", 0));
    CHECK_OK(fsconfig_(context, SET_STRING, "nr_blocks", "1m", 0));
    CHECK_OK(fsconfig_(context, SET_FLAG, "sync", NULL, 0));
    CHECK_OK(fsconfig_(context, SET_FLAG, "async", NULL, 0));
    CHECK_OK(fsconfig_(context, CREATE, NULL, NULL, 0));
}

CASE(what_was_wrong_can_be_read)
{
    char message[200];
    int context;
    ssize_t length;
    own_mounts();
    CHECK_OK(context = fsopen_("tmpfs", 0));
    CHECK_ERRNO(fsconfig_(context, SET_FLAG, "no-such", NULL, 0), EINVAL);
    length = read(context, message, sizeof message - 1);
    CHECK(length > 0);
    message[length] = 0;
    CHECK(strncmp(message, "e tmpfs: ", 9) == 0);
    CHECK(strstr(message, "'no-such'") != NULL);
    CHECK_ERRNO(read(context, message, sizeof message), ENODATA);
    CHECK_ERRNO(fsconfig_(context, SET_FLAG, "no-such", NULL, 0), EINVAL);
    CHECK_ERRNO(read(context, message, 3), EMSGSIZE);
}

CASE(a_context_goes_through_its_phases)
{
    int context, mount, picked;
    own_mounts();
    CHECK_OK(context = fsopen_("tmpfs", 0));
    CHECK_ERRNO(fsmount_(context, 0, 0), EINVAL);
    CHECK_ERRNO(fsconfig_(context, RECONFIGURE, NULL, NULL, 0), EBUSY);
    CHECK_OK(fsconfig_(context, CREATE, NULL, NULL, 0));
    CHECK_ERRNO(fsconfig_(context, CREATE, NULL, NULL, 0), EBUSY);
    CHECK_ERRNO(fsconfig_(context, SET_STRING, "size", "1m", 0), EBUSY);
    CHECK_OK(mount = fsmount_(context, 0, 0));
    CHECK_ERRNO(fsmount_(context, 0, 0), EBUSY);
    CHECK_OK(move_mount_(mount, "", AT_FDCWD, "m", FROM_EMPTY));
    CHECK_OK(picked = fspick_(AT_FDCWD, "m", 0));
    CHECK_ERRNO(fsconfig_(picked, CREATE, NULL, NULL, 0), EBUSY);
    CHECK_ERRNO(fsmount_(picked, 0, 0), EBUSY);
    close(mount);
    close(context);
    close(picked);
    CHECK_OK(umount("m"));
}

CASE(fsmount_checks_its_arguments)
{
    int context, file;
    own_mounts();
    file = file_with("f", "x", 1);
    CHECK_OK(context = fsopen_("tmpfs", 0));
    CHECK_OK(fsconfig_(context, CREATE, NULL, NULL, 0));
    CHECK_ERRNO(fsmount_(-1, 0, 0), EBADF);
    CHECK_ERRNO(fsmount_(file, 0, 0), EINVAL);
    CHECK_ERRNO(fsmount_(context, 2, 0), EINVAL);
    CHECK_ERRNO(fsmount_(context, 0, 0x100), EINVAL);
    CHECK_ERRNO(fsmount_(context, 0, 0x30), EINVAL);
    CHECK_ERRNO(fsmount_(context, 0, 0x40), EINVAL);
    CHECK_ERRNO(fsmount_(-1, 0, 0x40), EINVAL);
    CHECK_OK(fsmount_(context, 0, 0x20));
}

CASE(a_picked_tmpfs_changes)
{
    struct statfs space;
    int picked;
    own_mounts();
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, "size=64k"));
    CHECK_ERRNO(fspick_(AT_FDCWD, "n", 0), EINVAL);
    CHECK_ERRNO(fspick_(AT_FDCWD, "none", 0), ENOENT);
    CHECK_ERRNO(fspick_(AT_FDCWD, "m", 0x10), EINVAL);
    CHECK_ERRNO(fspick_(999, "m", 0), EBADF);
    CHECK_ERRNO(fspick_(AT_FDCWD, BAD_LOW, 0), EFAULT);
    CHECK_OK(picked = fspick_(AT_FDCWD, "m", 1));
    CHECK_EQ(fcntl(picked, F_GETFD), FD_CLOEXEC);
    CHECK_OK(fsconfig_(picked, SET_STRING, "size", "128k", 0));
    CHECK_OK(fsconfig_(picked, SET_FLAG, "ro", NULL, 0));
    CHECK_OK(statfs("m", &space));
    CHECK_EQ(space.f_blocks * (unsigned long)space.f_bsize, 65536);
    CHECK_OK(fsconfig_(picked, RECONFIGURE, NULL, NULL, 0));
    CHECK_OK(statfs("m", &space));
    CHECK_EQ(space.f_blocks * (unsigned long)space.f_bsize, 131072);
    CHECK_ERRNO(open("m/f", O_CREAT | O_RDWR, 0600), EROFS);
    CHECK_OK(fsconfig_(picked, SET_FLAG, "rw", NULL, 0));
    CHECK_OK(fsconfig_(picked, RECONFIGURE, NULL, NULL, 0));
    close(file_with("m/f", "x", 1));
    close(picked);
    CHECK_OK(umount("m"));
}

CASE(a_change_that_fails_ends_the_context)
{
    static char block[4096];
    int picked, file;
    own_mounts();
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, "size=64k"));
    CHECK_OK(file = open("m/f", O_CREAT | O_RDWR, 0600));
    CHECK_EQ(write(file, block, sizeof block), sizeof block);
    CHECK_EQ(write(file, block, sizeof block), sizeof block);
    close(file);
    CHECK_OK(picked = fspick_(AT_FDCWD, "m", 0));
    CHECK_OK(fsconfig_(picked, SET_STRING, "size", "4k", 0));
    CHECK_ERRNO(fsconfig_(picked, RECONFIGURE, NULL, NULL, 0), EINVAL);
    CHECK_ERRNO(fsconfig_(picked, SET_STRING, "size", "64k", 0), EBUSY);
    CHECK_ERRNO(fsconfig_(picked, RECONFIGURE, NULL, NULL, 0), EBUSY);
    close(picked);
    CHECK_OK(umount("m"));
}

CASE(move_mount_errors)
{
    int mount = (own_mounts(), loose_tmpfs(0));
    close(file_with("f", "x", 1));
    CHECK_ERRNO(move_mount_(mount, "", AT_FDCWD, "m", 0), ENOENT);
    CHECK_ERRNO(move_mount_(mount, "", AT_FDCWD, "none", FROM_EMPTY), ENOENT);
    CHECK_ERRNO(move_mount_(mount, "", AT_FDCWD, "f", FROM_EMPTY), EINVAL);
    CHECK_ERRNO(move_mount_(mount, "", AT_FDCWD, "m", FROM_EMPTY | 0x8), EINVAL);
    CHECK_ERRNO(move_mount_(mount, "", AT_FDCWD, "m", 0x10000000), EINVAL);
    CHECK_ERRNO(move_mount_(999, "", AT_FDCWD, "m", FROM_EMPTY), EBADF);
    CHECK_ERRNO(move_mount_(mount, BAD_LOW, AT_FDCWD, "m", FROM_EMPTY), EFAULT);
    CHECK_ERRNO(move_mount_(mount, "", AT_FDCWD, BAD_LOW, FROM_EMPTY), EFAULT);
    CHECK_ERRNO(move_mount_(AT_FDCWD, "n", AT_FDCWD, "m", 0), EINVAL);
    CHECK_OK(move_mount_(mount, "", AT_FDCWD, "m", FROM_EMPTY));
    CHECK_OK(mkdir("m/d", 0755));
    CHECK_ERRNO(move_mount_(AT_FDCWD, "m", AT_FDCWD, "m/d", 0), ELOOP);
    close(mount);
    CHECK_OK(umount("m"));
}

CASE(an_attached_mount_moves)
{
    int there;
    own_mounts();
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    close(file_with("m/f", "x", 1));
    CHECK_OK(move_mount_(AT_FDCWD, "m", AT_FDCWD, "n", 0));
    CHECK_OK(access("n/f", F_OK));
    CHECK_ERRNO(access("m/f", F_OK), ENOENT);
    CHECK_OK(there = open("m", O_PATH));
    CHECK_OK(move_mount_(AT_FDCWD, "n", there, "", TO_EMPTY));
    close(there);
    CHECK_OK(access("m/f", F_OK));
    CHECK_OK(umount("m"));
}

CASE(a_detached_mount_does_not_come_back)
{
    int held;
    own_mounts();
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    CHECK_OK(held = open("m", O_PATH));
    CHECK_OK(umount2("m", MNT_DETACH));
    CHECK_ERRNO(move_mount_(held, "", AT_FDCWD, "n", FROM_EMPTY), EINVAL);
}

CASE(open_tree_copies)
{
    int tree, one;
    own_mounts();
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    CHECK_OK(mkdir("m/in", 0755));
    CHECK_OK(mount("tmpfs", "m/in", "tmpfs", 0, NULL));
    close(file_with("m/in/f", "x", 1));
    CHECK_OK(tree = open_tree_(AT_FDCWD, "m", 1 | RECURSIVE | O_CLOEXEC));
    CHECK_EQ(fcntl(tree, F_GETFD), FD_CLOEXEC);
    CHECK_OK(one = open_tree_(AT_FDCWD, "m", 1));
    CHECK_EQ(fcntl(one, F_GETFD), 0);
    CHECK_OK(faccessat(tree, "in/f", F_OK, 0));
    CHECK_ERRNO(faccessat(one, "in/f", F_OK, 0), ENOENT);
    CHECK_OK(move_mount_(tree, "", AT_FDCWD, "n", FROM_EMPTY));
    CHECK_OK(access("n/in/f", F_OK));
    close(file_with("n/in/g", "x", 1));
    CHECK_OK(access("m/in/g", F_OK));
    close(tree);
    close(one); /* Never attached: gone. */
    CHECK_OK(umount("n/in"));
    CHECK_OK(umount("n"));
    CHECK_OK(umount("m/in"));
    CHECK_OK(umount("m"));
}

CASE(open_tree_of_a_part_and_of_a_file)
{
    int tree;
    char text[8];
    own_mounts();
    close(file_with("f", "of f", 4));
    close(file_with("at", "below", 5));
    CHECK_OK(mkdir("m/deep", 0755));
    close(file_with("m/deep/g", "x", 1));
    CHECK_OK(tree = open_tree_(AT_FDCWD, "m/deep", 1));
    CHECK_OK(move_mount_(tree, "", AT_FDCWD, "n", FROM_EMPTY));
    CHECK_OK(access("n/g", F_OK));
    close(tree);
    CHECK_OK(umount("n"));
    CHECK_OK(tree = open_tree_(AT_FDCWD, "f", 1));
    CHECK_ERRNO(move_mount_(tree, "", AT_FDCWD, "n", FROM_EMPTY), EINVAL);
    CHECK_OK(move_mount_(tree, "", AT_FDCWD, "at", FROM_EMPTY));
    close(tree);
    slurp("at", text, sizeof text);
    CHECK_STR(text, "of f");
    CHECK_OK(umount("at"));
}

CASE(open_tree_without_a_copy_is_a_place)
{
    char byte;
    int place;
    own_mounts();
    CHECK_OK(symlink("m", "link"));
    CHECK_OK(place = open_tree_(AT_FDCWD, "m", 0));
    CHECK_ERRNO(read(place, &byte, 1), EBADF);
    CHECK((fcntl(place, F_GETFL) & O_PATH) != 0);
    close(file_with("m/f", "x", 1));
    CHECK_OK(faccessat(place, "f", F_OK, 0));
    CHECK_ERRNO(open_tree_(AT_FDCWD, "none", 0), ENOENT);
    CHECK_ERRNO(open_tree_(AT_FDCWD, "", 0), ENOENT);
    CHECK_ERRNO(open_tree_(999, "x", 0), EBADF);
    CHECK_ERRNO(open_tree_(AT_FDCWD, BAD_LOW, 0), EFAULT);
    CHECK_ERRNO(open_tree_(AT_FDCWD, "m", RECURSIVE), EINVAL);
    CHECK_ERRNO(open_tree_(AT_FDCWD, "m", 0x4), EINVAL);
    CHECK_OK(open_tree_(place, "", AT_EMPTY_PATH));
    CHECK_OK(open_tree_(AT_FDCWD, "link", AT_SYMLINK_NOFOLLOW));
}

CASE(attributes_change)
{
    struct statfs space;
    struct attributes value = {1 | 2 | 4 | 8, 0, 0, 0};
    own_mounts();
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    CHECK_OK(mount_setattr_(AT_FDCWD, "m", 0, &value, sizeof value));
    CHECK_OK(statfs("m", &space));
    CHECK_EQ(space.f_flags & 0xf, 0xf);
    CHECK_ERRNO(mkdir("m/d", 0700), EROFS);
    value = (struct attributes){0x10, 1 | 4 | 0x70, 0, 0};
    CHECK_OK(mount_setattr_(AT_FDCWD, "m", 0, &value, sizeof value));
    CHECK_OK(statfs("m", &space));
    CHECK_EQ(space.f_flags & 0x140f, 2 | 8 | 1024);
    CHECK_OK(mkdir("m/d", 0700));
    value = (struct attributes){0x20 | 0x80, 0x70, 0, 0};
    CHECK_OK(mount_setattr_(AT_FDCWD, "m", 0, &value, sizeof value));
    CHECK_OK(statfs("m", &space));
    CHECK_EQ(space.f_flags & 0x1c0f, 2 | 8 | 2048);
    CHECK_OK(umount("m"));
}

CASE(attributes_are_checked)
{
    struct {
        struct attributes value;
        uint64_t more;
    } large = {{1, 0, 0, 0}, 0};
    struct attributes value = {1, 0, 0, 0};
    own_mounts();
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    CHECK_ERRNO(mount_setattr_(AT_FDCWD, "n", 0, &value, sizeof value), EINVAL);
    CHECK_ERRNO(mount_setattr_(AT_FDCWD, "none", 0, &value, sizeof value), ENOENT);
    CHECK_ERRNO(mount_setattr_(AT_FDCWD, "m", 0x4, &value, sizeof value), EINVAL);
    CHECK_ERRNO(mount_setattr_(AT_FDCWD, "m", 0, BAD_LOW, sizeof value), EFAULT);
    CHECK_ERRNO(mount_setattr_(AT_FDCWD, "m", 0, &value, 31), EINVAL);
    CHECK_OK(mount_setattr_(AT_FDCWD, "m", 0, &large, sizeof large));
    large.more = 1;
    CHECK_ERRNO(mount_setattr_(AT_FDCWD, "m", 0, &large, sizeof large), E2BIG);
    value = (struct attributes){0x40000000, 0, 0, 0};
    CHECK_ERRNO(mount_setattr_(AT_FDCWD, "m", 0, &value, sizeof value), EINVAL);
    value = (struct attributes){0x10, 0, 0, 0}; /* A choice of times without clearing it first. */
    CHECK_ERRNO(mount_setattr_(AT_FDCWD, "m", 0, &value, sizeof value), EINVAL);
    value = (struct attributes){0, 0x10, 0, 0};
    CHECK_ERRNO(mount_setattr_(AT_FDCWD, "m", 0, &value, sizeof value), EINVAL);
    value = (struct attributes){0x30, 0x70, 0, 0};
    CHECK_ERRNO(mount_setattr_(AT_FDCWD, "m", 0, &value, sizeof value), EINVAL);
    value = (struct attributes){0, 0, MS_SHARED | MS_PRIVATE, 0};
    CHECK_ERRNO(mount_setattr_(AT_FDCWD, "m", 0, &value, sizeof value), EINVAL);
    value = (struct attributes){0, 0, 1, 0};
    CHECK_ERRNO(mount_setattr_(AT_FDCWD, "m", 0, &value, sizeof value), EINVAL);
    value = (struct attributes){0, 0, MS_PRIVATE, 0};
    CHECK_OK(mount_setattr_(AT_FDCWD, "m", 0, &value, sizeof value));
    value = (struct attributes){0, 0x100000, 0, 0};
    CHECK_ERRNO(mount_setattr_(AT_FDCWD, "m", 0, &value, sizeof value), EINVAL);
    value = (struct attributes){0x100000, 0, 0, 999};
    CHECK_ERRNO(mount_setattr_(AT_FDCWD, "m", 0, &value, sizeof value), EBADF);
    value = (struct attributes){0, 0, 0, 0}; /* Nothing to do: the path does not matter. */
    CHECK_OK(mount_setattr_(AT_FDCWD, "none", 0, &value, sizeof value));
    CHECK_OK(umount("m"));
}

CASE(attributes_of_a_whole_tree)
{
    struct attributes value = {1, 0, 0, 0};
    int file;
    own_mounts();
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    CHECK_OK(mkdir("m/in", 0755));
    CHECK_OK(mount("tmpfs", "m/in", "tmpfs", 0, NULL));
    file = file_with("m/in/f", "x", 1);
    CHECK_ERRNO(mount_setattr_(AT_FDCWD, "m", RECURSIVE, &value, sizeof value), EBUSY);
    CHECK_OK(mkdir("m/still", 0700)); /* All or nothing. */
    close(file);
    CHECK_OK(mount_setattr_(AT_FDCWD, "m", RECURSIVE, &value, sizeof value));
    CHECK_ERRNO(mkdir("m/d", 0700), EROFS);
    CHECK_ERRNO(mkdir("m/in/d", 0700), EROFS);
    value = (struct attributes){0, 1, 0, 0};
    CHECK_OK(mount_setattr_(AT_FDCWD, "m", 0, &value, sizeof value));
    CHECK_OK(mkdir("m/d", 0700));
    CHECK_ERRNO(mkdir("m/in/d", 0700), EROFS);
    CHECK_OK(umount("m/in"));
    CHECK_OK(umount("m"));
}

CASE(links_of_a_mount_are_not_followed)
{
    struct statfs space;
    struct attributes value = {NOSYMFOLLOW, 0, 0, 0};
    char text[20];
    own_mounts();
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    close(file_with("m/f", "x", 1));
    CHECK_OK(symlink("f", "m/link"));
    CHECK_OK(access("m/link", F_OK));
    CHECK_OK(mount_setattr_(AT_FDCWD, "m", 0, &value, sizeof value));
    CHECK_ERRNO(access("m/link", F_OK), ELOOP);
    CHECK_ERRNO(open("m/link", O_RDONLY), ELOOP);
    CHECK_EQ(readlink("m/link", text, sizeof text), 1);
    CHECK_OK(statfs("m", &space));
    CHECK_EQ(space.f_flags & 0x2000, 0x2000);
    CHECK_OK(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND, NULL));
    CHECK_OK(access("m/link", F_OK));
    CHECK_OK(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND | 256, NULL));
    CHECK_ERRNO(access("m/link", F_OK), ELOOP);
    CHECK_OK(umount("m"));
}

CASE(a_remount_waits_for_no_writer)
{
    int file;
    own_mounts();
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    file = file_with("m/f", "x", 1);
    CHECK_ERRNO(mount(NULL, "m", NULL, MS_REMOUNT | MS_RDONLY, NULL), EBUSY);
    CHECK_ERRNO(mount(NULL, "m", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), EBUSY);
    close(file);
    CHECK_OK(file = open("m/f", O_RDONLY));
    CHECK_OK(mount(NULL, "m", NULL, MS_REMOUNT | MS_RDONLY, NULL));
    CHECK_ERRNO(open("m/f", O_RDWR), EROFS);
    close(file);
    CHECK_OK(umount("m"));
}

CASE(a_mount_expires_at_the_second_attempt)
{
    int file;
    own_mounts();
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, NULL));
    CHECK_ERRNO(umount2("m", MNT_EXPIRE | MNT_FORCE), EINVAL);
    CHECK_ERRNO(umount2("m", MNT_EXPIRE | MNT_DETACH), EINVAL);
    CHECK_OK(file = open("m", O_RDONLY));
    CHECK_ERRNO(umount2("m", MNT_EXPIRE), EBUSY);
    close(file);
    CHECK_ERRNO(umount2("m", MNT_EXPIRE), EAGAIN);
    CHECK_OK(access("m/.", F_OK));
    CHECK_ERRNO(umount2("m", MNT_EXPIRE), EAGAIN);
    CHECK_OK(umount2("m", MNT_EXPIRE));
    CHECK_ERRNO(umount2("m", MNT_EXPIRE), EINVAL);
}

CASE(options_of_tmpfs_are_checked)
{
    struct stat status;
    struct statfs space;
    int i;
    static const char *const wrong[] = {"size=x", "size", "nr_inodes=1x", "mode=8", "uid=x", "gid=-2", "frob", "nr_blocks=", "size=1k2"};
    own_mounts();
    for (i = 0; i < (int)(sizeof wrong / sizeof *wrong); i++)
        CHECK_ERRNO(mount("tmpfs", "m", "tmpfs", 0, wrong[i]), EINVAL);
    CHECK_OK(mount("tmpfs", "m", "tmpfs", 0, "uid=5,gid=6,mode=0750,nr_blocks=8,nr_inodes=1k"));
    CHECK_OK(stat("m", &status));
    CHECK_EQ(status.st_uid, 5);
    CHECK_EQ(status.st_gid, 6);
    CHECK_EQ(status.st_mode & 07777, 0750);
    CHECK_OK(statfs("m", &space));
    CHECK_EQ(space.f_blocks, 8);
    CHECK_EQ(space.f_files, 1024);
    CHECK_ERRNO(mount(NULL, "m", NULL, MS_REMOUNT, "size=x"), EINVAL);
    CHECK_OK(mount(NULL, "m", NULL, MS_REMOUNT, "nr_blocks=16"));
    CHECK_OK(statfs("m", &space));
    CHECK_EQ(space.f_blocks, 16);
    CHECK_OK(umount("m"));
}
