/* Overlays: lower directories under an upper one that takes the changes. All of them lie on a tmpfs of their own at `m`, and
 * the tree is mounted on `n`. On the host each case gets a mount namespace of its own. */
#include "harness.h"
#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define OVERLAY_MAGIC 0x794c7630
#define OPAQUE "trusted.overlay.opaque"
#define LAYERS "lowerdir=m/l1:m/l2,upperdir=m/u,workdir=m/w,redirect_dir=off"

static void text(const char *path, const char *content)
{
    int file = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    CHECK(file >= 0);
    CHECK_EQ(write(file, content, strlen(content)), (ssize_t)strlen(content));
    close(file);
}

static void check_text(const char *path, const char *content)
{
    char bytes[64] = "";
    int file = open(path, O_RDONLY);
    ssize_t count;
    CHECK(file >= 0);
    count = read(file, bytes, sizeof bytes - 1);
    CHECK(count >= 0);
    CHECK(strcmp(bytes, content) == 0);
    close(file);
}

/* Whether the names in a directory are those of a list, each with a blank behind it. */
static void check_names(const char *path, const char *names)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    size_t length = 0;
    CHECK(directory != NULL);
    while ((entry = readdir(directory)) != NULL) {
        char name[300];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s ", entry->d_name);
        CHECK(strstr(names, name) != NULL);
        length += strlen(name);
    }
    closedir(directory);
    CHECK_EQ(length, strlen(names));
}

static void check_whiteout(const char *path)
{
    struct stat status;
    CHECK_OK(lstat(path, &status));
    CHECK(S_ISCHR(status.st_mode));
    CHECK_EQ(status.st_rdev, 0);
}

/* Two lower directories, an upper one and one to work in. */
static void layers(void)
{
    scratch();
    if (!getenv("FERRY_GUEST")) {
        if (unshare(CLONE_NEWNS) == -1)
            SKIP("this machine permits no mount namespace");
        CHECK_OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    }
    CHECK_OK(mkdir("m", 0755));
    CHECK_OK(mkdir("n", 0755));
    CHECK_OK(mount("none", "m", "tmpfs", 0, NULL));
    CHECK_OK(mkdir("m/l1", 0755));
    CHECK_OK(mkdir("m/l2", 0755));
    CHECK_OK(mkdir("m/u", 0755));
    CHECK_OK(mkdir("m/w", 0755));
}

/* Leaves nothing mounted. */
static void leave(void)
{
    CHECK_OK(umount("n"));
    CHECK_OK(umount("m"));
}

static void mount_overlay(const char *options)
{
    if (mount("over", "n", "overlay", 0, options) == -1) {
        if (errno == ENODEV)
            SKIP("this machine has no overlay");
        CHECK_OK(-1);
    }
}

CASE(layers_are_merged_and_changes_go_up)
{
    struct statfs space;
    int file;
    layers();
    text("m/l1/both", "upper lower\n");
    text("m/l2/both", "lowest\n");
    text("m/l1/one", "1");
    text("m/l2/two", "2");
    CHECK_OK(mkdir("m/l1/dir", 0755));
    CHECK_OK(mkdir("m/l2/dir", 0755));
    text("m/l1/dir/x", "x");
    text("m/l2/dir/y", "y");
    mount_overlay(LAYERS);
    CHECK_OK(statfs("n", &space));
    CHECK_EQ(space.f_type, OVERLAY_MAGIC);
    check_names("n", "both one two dir ");
    check_names("n/dir", "x y ");
    check_text("n/both", "upper lower\n");
    CHECK_OK(file = open("n/two", O_WRONLY | O_APPEND));
    CHECK_EQ(write(file, "+", 1), 1);
    close(file);
    text("n/dir/z", "z");
    check_text("n/two", "2+");
    check_text("m/u/two", "2+");
    check_text("m/l2/two", "2");
    check_names("n/dir", "x y z ");
    check_names("m/u", "two dir ");
    check_names("m/u/dir", "z ");
    CHECK_OK(umount("n"));
    /* The next mount finds all of it. */
    mount_overlay(LAYERS);
    check_text("n/two", "2+");
    check_names("n/dir", "x y z ");
    leave();
}

CASE(what_is_removed_leaves_a_whiteout_and_a_new_directory_is_opaque)
{
    char value[8];
    layers();
    text("m/l2/file", "old");
    CHECK_OK(mkdir("m/l1/dir", 0755));
    CHECK_OK(mkdir("m/l2/dir", 0755));
    text("m/l2/dir/x", "x");
    mount_overlay(LAYERS);
    CHECK_OK(unlink("n/file"));
    CHECK_ERRNO(access("n/file", F_OK), ENOENT);
    CHECK_ERRNO(unlink("n/file"), ENOENT);
    check_whiteout("m/u/file");
    CHECK_ERRNO(rmdir("n/dir"), ENOTEMPTY);
    CHECK_OK(unlink("n/dir/x"));
    check_names("n/dir", "");
    CHECK_OK(rmdir("n/dir"));
    check_whiteout("m/u/dir");
    check_names("n", "");
    CHECK_OK(umount("n"));
    mount_overlay(LAYERS);
    check_names("n", "");
    text("n/file", "new");
    CHECK_OK(mkdir("n/dir", 0700));
    check_text("n/file", "new");
    check_names("n/dir", "");
    CHECK_ERRNO(access("n/dir/x", F_OK), ENOENT);
    CHECK_EQ(getxattr("m/u/dir", OPAQUE, value, sizeof value), 1);
    CHECK_EQ(value[0], 'y');
    check_text("m/l2/file", "old");
    check_text("m/l2/dir/x", "x");
    leave();
}

CASE(whiteouts_and_opaque_directories_of_lower_layers_count)
{
    layers();
    text("m/l2/gone", "x");
    CHECK_OK(mknod("m/l1/gone", S_IFCHR, makedev(0, 0)));
    CHECK_OK(mkdir("m/l1/dir", 0755));
    CHECK_OK(mkdir("m/l2/dir", 0755));
    text("m/l2/dir/x", "x");
    text("m/l1/dir/y", "y");
    CHECK_OK(setxattr("m/l1/dir", OPAQUE, "y", 1, 0));
    CHECK_OK(mkdir("m/l1/kind", 0755));
    text("m/l2/kind", "a file below");
    mount_overlay(LAYERS);
    check_names("n", "dir kind ");
    CHECK_ERRNO(access("n/gone", F_OK), ENOENT);
    check_names("n/dir", "y ");
    check_names("n/kind", "");
    CHECK_OK(mkdir("n/gone", 0755));
    check_names("n/gone", "");
    CHECK_OK(rmdir("n/gone"));
    CHECK_ERRNO(access("n/gone", F_OK), ENOENT);
    leave();
}

CASE(a_copy_keeps_what_the_file_had)
{
    struct timespec times[2] = {{1000, 5}, {2000, 7}};
    struct stat before, after;
    char value[16], target[32];
    layers();
    text("m/l2/file", "content");
    CHECK_OK(chmod("m/l2/file", 0640));
    CHECK_OK(chown("m/l2/file", 7, 8));
    CHECK_OK(setxattr("m/l2/file", "trusted.kept", "value", 5, 0));
    CHECK_OK(utimensat(AT_FDCWD, "m/l2/file", times, 0));
    CHECK_OK(symlink("file", "m/l2/link"));
    mount_overlay(LAYERS);
    CHECK_OK(stat("n/file", &before));
    close(open("n/file", O_RDWR));
    CHECK_OK(stat("n/file", &after));
    CHECK_EQ(after.st_mode & 07777, 0640);
    CHECK(after.st_uid == 7 && after.st_gid == 8 && after.st_size == 7);
    CHECK(after.st_mtim.tv_sec == 2000 && after.st_mtim.tv_nsec == 7);
    CHECK_EQ(after.st_ino, before.st_ino);
    CHECK_EQ(getxattr("n/file", "trusted.kept", value, sizeof value), 5);
    CHECK_EQ(getxattr("m/u/file", "trusted.kept", value, sizeof value), 5);
    CHECK_OK(lchown("n/link", 9, 9));
    CHECK_EQ(readlink("m/u/link", target, sizeof target), 4);
    CHECK_OK(lstat("m/l2/link", &before));
    CHECK_EQ(before.st_uid, 0);
    CHECK_OK(link("n/file", "n/twin"));
    CHECK_OK(truncate("n/twin", 3));
    check_text("n/file", "con");
    check_text("m/l2/file", "content");
    leave();
}

CASE(names_are_moved)
{
    layers();
    text("m/l2/file", "moved");
    text("m/l2/other", "replaced");
    CHECK_OK(mkdir("m/l2/dir", 0755));
    text("m/l2/dir/x", "x");
    mount_overlay(LAYERS);
    CHECK_OK(rename("n/file", "n/other"));
    CHECK_ERRNO(access("n/file", F_OK), ENOENT);
    check_whiteout("m/u/file");
    check_text("n/other", "moved");
    check_text("m/l2/other", "replaced");
    CHECK_ERRNO(rename("n/dir", "n/elsewhere"), EXDEV);
    CHECK_OK(mkdir("n/new", 0755));
    text("n/new/z", "z");
    CHECK_ERRNO(rename("n/new", "n/dir"), ENOTEMPTY);
    CHECK_OK(unlink("n/dir/x"));
    CHECK_OK(rename("n/new", "n/dir"));
    check_names("n", "other dir ");
    check_names("n/dir", "z ");
    CHECK_OK(umount("n"));
    mount_overlay(LAYERS);
    check_names("n", "other dir ");
    check_names("n/dir", "z ");
    leave();
}

CASE(without_an_upper_layer_nothing_changes)
{
    layers();
    text("m/l1/one", "1");
    text("m/l2/two", "2");
    mount_overlay("lowerdir=m/l1:m/l2");
    check_names("n", "one two ");
    CHECK_ERRNO(open("n/one", O_WRONLY), EROFS);
    CHECK_ERRNO(mkdir("n/new", 0755), EROFS);
    CHECK_ERRNO(unlink("n/two"), EROFS);
    CHECK_ERRNO(chmod("n/one", 0600), EROFS);
    check_text("n/one", "1");
    leave();
}

CASE(options_that_make_no_sense_are_refused)
{
    layers();
    mount_overlay(LAYERS);
    CHECK_OK(umount("n"));
    CHECK_ERRNO(mount("over", "n", "overlay", 0, NULL), EINVAL);
    CHECK_ERRNO(mount("over", "n", "overlay", 0, "lowerdir=m/l1"), EINVAL);
    CHECK_ERRNO(mount("over", "n", "overlay", 0, "lowerdir=m/l1,upperdir=m/u"), EINVAL);
    CHECK_ERRNO(mount("over", "n", "overlay", 0, "lowerdir=m/none:m/l1"), ENOENT);
    CHECK_ERRNO(mount("over", "n", "overlay", 0, "lowerdir=m/l1:m/l2,nonsense"), EINVAL);
    CHECK_ERRNO(mount("over", "n", "overlay", 0, "lowerdir=m/l1,upperdir=m/u,workdir=m/u"), EINVAL);
    CHECK_OK(mkdir("m/u/in", 0755));
    CHECK_ERRNO(mount("over", "n", "overlay", 0, "lowerdir=m/l1,upperdir=m/u,workdir=m/u/in"), EINVAL);
    CHECK_OK(umount("m"));
}

CASE(an_overlay_is_made_in_steps)
{
    const char *parameters[][2] = {{"source", "over"}, {"lowerdir", "m/l1:m/l2"}, {"upperdir", "m/u"}, {"workdir", "m/w"}};
    int context, tree;
    layers();
    text("m/l2/file", "below");
    mount_overlay(LAYERS);
    CHECK_OK(umount("n"));
    context = (int)syscall(430, "overlay", 0);
    CHECK(context >= 0);
    for (unsigned i = 0; i < 4; i++)
        CHECK_OK((int)syscall(431, context, 1, parameters[i][0], parameters[i][1], 0));
    CHECK_ERRNO((int)syscall(431, context, 1, "nonsense", "x", 0), EINVAL);
    CHECK_OK((int)syscall(431, context, 6, NULL, NULL, 0));
    tree = (int)syscall(432, context, 0, 0);
    CHECK(tree >= 0);
    CHECK_OK((int)syscall(429, tree, "", AT_FDCWD, "n", 4));
    close(tree);
    close(context);
    check_text("n/file", "below");
    text("n/file", "above");
    check_text("m/u/file", "above");
    check_text("m/l2/file", "below");
    leave();
}
