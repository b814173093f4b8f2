/* fanotify: groups, marks on inodes, mounts and file systems, what their readers are told, and who has to be asked.
 * The interface is spelled out here: not every C library has a header with all of it. */
#include "harness.h"
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/statfs.h>

enum { CLOEXEC = 1, NONBLOCK = 2, CONTENT = 4, PRE_CONTENT = 8, UNLIMITED_QUEUE = 0x10, UNLIMITED_MARKS = 0x20,
       REPORT_PIDFD = 0x80, REPORT_TID = 0x100, REPORT_FID = 0x200, REPORT_DIR_FID = 0x400, REPORT_NAME = 0x800,
       REPORT_TARGET_FID = 0x1000 };
enum { ADD = 1, REMOVE = 2, DONT_FOLLOW = 4, ONLYDIR = 8, MOUNT = 0x10, IGNORED_MASK = 0x20, SURV_MODIFY = 0x40,
       FLUSH = 0x80, FILESYSTEM = 0x100, EVICTABLE = 0x200, IGNORE = 0x400 };
#define F_ACCESS 0x1UL
#define F_MODIFY 0x2UL
#define F_ATTRIB 0x4UL
#define F_CLOSE_WRITE 0x8UL
#define F_CLOSE_NOWRITE 0x10UL
#define F_OPEN 0x20UL
#define F_MOVED_FROM 0x40UL
#define F_MOVED_TO 0x80UL
#define F_CREATE 0x100UL
#define F_DELETE 0x200UL
#define F_DELETE_SELF 0x400UL
#define F_MOVE_SELF 0x800UL
#define F_OPEN_EXEC 0x1000UL
#define F_Q_OVERFLOW 0x4000UL
#define F_OPEN_PERM 0x10000UL
#define F_ACCESS_PERM 0x20000UL
#define F_OPEN_EXEC_PERM 0x40000UL
#define F_ON_CHILD 0x08000000UL
#define F_RENAME 0x10000000UL
#define F_ONDIR 0x40000000UL
#define ALLOW 1
#define DENY 2

struct metadata {
    uint32_t length;
    uint8_t version, reserved;
    uint16_t metadata_length;
    uint64_t mask __attribute__((aligned(8)));
    int32_t fd, pid;
};

struct response {
    int32_t fd;
    uint32_t answer;
};

/* A record that tells a file, up to its name. */
struct file_record {
    uint8_t type, padding;
    uint16_t length;
    int32_t file_system[2];
    uint32_t handle_bytes;
    int32_t handle_type;
    unsigned char rest[];
};

struct any_handle {
    uint32_t bytes;
    int32_t type;
    unsigned char data[128];
};

static char buffer[8192] __attribute__((aligned(8)));

static int init(unsigned flags, unsigned event_flags)
{
    return (int)syscall(SYS_fanotify_init, flags, event_flags);
}

static int group_with(unsigned flags)
{
    int group = init(flags | NONBLOCK | CLOEXEC, O_RDONLY);
    if (group == -1 && errno == ENOSYS)
        SKIP("no fanotify");
    CHECK_OK(group);
    return group;
}

static int mark(int group, unsigned flags, unsigned long mask, const char *path)
{
    return (int)syscall(SYS_fanotify_mark, group, flags, mask, AT_FDCWD, path);
}

/* A tmpfs of the case's own: marks on its mount and file system see nobody else. */
static void own_file_system(void)
{
    scratch();
    CHECK_OK(unshare(CLONE_NEWNS));
    CHECK_OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    CHECK_OK(mkdir("m", 0755));
    CHECK_OK(mount("none", "m", "tmpfs", 0, NULL));
    CHECK_OK(chdir("m"));
}

/* The next event, with its records; the caller closes its descriptor. */
static struct metadata *next_event(int group)
{
    struct metadata *event = (void *)buffer;
    size_t room = sizeof *event;
    ssize_t length;
    while ((length = read(group, buffer, room)) == -1 && errno == EINVAL && room < 500)
        room += 4; /* No room for more than this one. */
    if (length == -1)
        FAIL("there is an event on %d, got errno %d %s", group, errno, strerror(errno));
    CHECK_EQ(event->version, 3);
    CHECK_EQ(event->metadata_length, 24);
    CHECK_EQ(event->reserved, 0);
    CHECK_EQ(event->length, length);
    return event;
}

static void nothing_waits(int group)
{
    struct metadata *event = (void *)buffer;
    ssize_t length = read(group, buffer, sizeof buffer);
    if (length != -1)
        FAIL("nothing waits, got mask %#lx of process %d", (unsigned long)event->mask, event->pid);
    CHECK_EQ(errno, EAGAIN);
}

/* An event with a descriptor that leads to a path. */
static void expect(int group, unsigned long mask, const char *path)
{
    struct stat told, meant;
    struct metadata *event = next_event(group);
    CHECK_EQ(event->mask, mask);
    CHECK_EQ(event->length, 24);
    CHECK_EQ(event->pid, getpid());
    CHECK(event->fd >= 0);
    CHECK_OK(fstat(event->fd, &told));
    CHECK_OK(stat(path, &meant));
    CHECK_EQ(told.st_ino, meant.st_ino);
    CHECK_EQ(told.st_dev, meant.st_dev);
    CHECK_OK(close(event->fd));
}

static void touch(const char *path)
{
    CHECK_OK(close(open(path, O_WRONLY | O_CREAT, 0644)));
}

CASE(groups_and_their_errors)
{
    close(group_with(0));
    CHECK_ERRNO(init(0x80000000, 0), EINVAL);
    CHECK_ERRNO(init(CONTENT | PRE_CONTENT, 0), EINVAL);
    CHECK_ERRNO(init(0, 3), EINVAL);
    CHECK_ERRNO(init(0, O_CREAT), EINVAL);
    CHECK_ERRNO(init(REPORT_NAME, 0), EINVAL);
    CHECK_ERRNO(init(REPORT_NAME | REPORT_FID, 0), EINVAL);
    CHECK_ERRNO(init(REPORT_TARGET_FID | REPORT_DIR_FID | REPORT_NAME, 0), EINVAL);
    CHECK_ERRNO(init(REPORT_PIDFD | REPORT_TID, 0), EINVAL);
    int group = init(CLOEXEC | NONBLOCK | CONTENT | UNLIMITED_QUEUE | UNLIMITED_MARKS,
                     O_RDWR | O_APPEND | O_NONBLOCK | O_SYNC | O_CLOEXEC | O_LARGEFILE | O_NOATIME);
    CHECK_OK(group);
    CHECK_EQ(fcntl(group, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(group, F_GETFL) & (O_NONBLOCK | O_ACCMODE), O_NONBLOCK | O_RDWR);
    nothing_waits(group);
    CHECK_ERRNO(write(group, buffer, 4), EINVAL);
    int count = -1;
    CHECK_OK(ioctl(group, FIONREAD, &count));
    CHECK_EQ(count, 0);
    struct pollfd wait = {group, POLLIN | POLLOUT, 0};
    CHECK_EQ(poll(&wait, 1, 0), 0);
}

CASE(marks_and_their_errors)
{
    scratch();
    touch("f");
    CHECK_OK(mkdir("d", 0755));
    CHECK_OK(symlink("f", "s"));
    int group = group_with(0), asks = group_with(CONTENT), ids = group_with(REPORT_FID);
    int names = group_with(REPORT_FID | REPORT_DIR_FID | REPORT_NAME);
    CHECK_ERRNO(mark(group, 0, F_OPEN, "f"), EINVAL);
    CHECK_ERRNO(mark(group, ADD | REMOVE, F_OPEN, "f"), EINVAL);
    CHECK_ERRNO(mark(group, ADD | 0x80000000, F_OPEN, "f"), EINVAL);
    CHECK_ERRNO(mark(group, ADD, 0, "f"), EINVAL);
    CHECK_ERRNO(mark(group, ADD, 1UL << 40, "f"), EINVAL);
    CHECK_ERRNO(mark(group, ADD, F_Q_OVERFLOW, "f"), EINVAL);
    CHECK_ERRNO(mark(group, FLUSH | ONLYDIR, 0, "f"), EINVAL);
    CHECK_ERRNO(mark(group, ADD | MOUNT | FILESYSTEM, F_OPEN, "f"), EINVAL);
    CHECK_ERRNO(mark(group, ADD | IGNORE | IGNORED_MASK, F_OPEN, "f"), EINVAL);
    CHECK_ERRNO(mark(-1, ADD, F_OPEN, "f"), EBADF);
    CHECK_ERRNO(mark(open("f", O_RDONLY), ADD, F_OPEN, "f"), EINVAL);
    CHECK_ERRNO(mark(group, ADD, F_OPEN_PERM, "f"), EINVAL);
    CHECK_ERRNO(mark(group, ADD, F_ATTRIB, "f"), EINVAL);
    CHECK_ERRNO(mark(group, ADD, F_CREATE, "d"), EINVAL);
    CHECK_ERRNO(mark(ids, ADD | MOUNT, F_ATTRIB, "f"), EINVAL);
    CHECK_ERRNO(mark(ids, ADD | MOUNT | EVICTABLE, F_OPEN, "f"), EINVAL);
    CHECK_ERRNO(mark(ids, ADD, F_RENAME, "d"), EINVAL);
    CHECK_ERRNO(mark(names, ADD, F_RENAME, "f"), ENOTDIR);
    CHECK_ERRNO(mark(group, ADD, F_OPEN, "missing"), ENOENT);
    CHECK_ERRNO(mark(group, ADD, F_OPEN, BAD_KERNEL), EFAULT);
    CHECK_ERRNO(mark(group, ADD, F_OPEN, NULL), EBADF);
    CHECK_ERRNO(mark(group, ADD | ONLYDIR, F_OPEN, "f"), ENOTDIR);
    CHECK_ERRNO(mark(group, ADD | IGNORE, F_OPEN, "d"), EISDIR);
    CHECK_ERRNO(mark(group, ADD | IGNORE | MOUNT, F_OPEN, "d"), EINVAL);
    CHECK_ERRNO(mark(group, REMOVE, F_OPEN, "f"), ENOENT);
    CHECK_ERRNO(mark(asks, ADD, F_OPEN_PERM, "/proc/version"), EINVAL);
    CHECK_OK(mark(group, ADD | DONT_FOLLOW, F_OPEN, "s"));
    CHECK_ERRNO(mark(group, REMOVE, F_OPEN, "s"), ENOENT);
    CHECK_OK(mark(group, REMOVE | DONT_FOLLOW, F_OPEN, "s"));
    CHECK_OK(syscall(SYS_fanotify_mark, group, ADD, F_OPEN, open("d", O_RDONLY), NULL));
    CHECK_OK(mark(group, ADD | EVICTABLE, F_OPEN, "f"));
    CHECK_OK(mark(group, ADD, F_OPEN, "f"));
    CHECK_ERRNO(mark(group, ADD | EVICTABLE, F_OPEN, "f"), EEXIST);
    CHECK_OK(mark(group, ADD | IGNORE | SURV_MODIFY, F_OPEN, "d"));
    CHECK_ERRNO(mark(group, ADD | IGNORED_MASK, F_OPEN, "d"), EEXIST);
    CHECK_OK(mark(group, FLUSH, 0, "d"));
    CHECK_ERRNO(mark(group, REMOVE, F_OPEN, "f"), ENOENT);
}

CASE(what_happens_to_a_marked_file)
{
    char byte = 'x';
    scratch();
    touch("f");
    int group = group_with(0);
    CHECK_OK(mark(group, ADD, F_OPEN | F_ACCESS | F_MODIFY | F_CLOSE_WRITE | F_CLOSE_NOWRITE, "f"));
    int file = open("f", O_RDWR);
    expect(group, F_OPEN, "f");
    CHECK_EQ(write(file, &byte, 1), 1);
    expect(group, F_MODIFY, "f");
    CHECK_EQ(pread(file, &byte, 1, 0), 1);
    expect(group, F_ACCESS, "f");
    CHECK_OK(close(file));
    expect(group, F_CLOSE_WRITE, "f");
    CHECK_OK(close(open("f", O_RDONLY)));
    CHECK_OK(close(open("f", O_WRONLY)));
    expect(group, F_OPEN | F_CLOSE_NOWRITE | F_CLOSE_WRITE, "f"); /* Merged. */
    nothing_waits(group);
    CHECK_OK(mark(group, REMOVE, F_OPEN | F_MODIFY, "f"));
    CHECK_OK(close(open("f", O_RDONLY)));
    expect(group, F_CLOSE_NOWRITE, "f");
    CHECK_OK(mark(group, REMOVE, F_ACCESS | F_CLOSE_WRITE | F_CLOSE_NOWRITE, "f"));
    CHECK_OK(close(open("f", O_RDONLY)));
    nothing_waits(group);
}

CASE(descriptors_of_events)
{
    char byte = 'x';
    scratch();
    touch("f");
    int group = init(NONBLOCK, O_RDWR | O_CLOEXEC);
    CHECK_OK(mark(group, ADD, F_OPEN | F_MODIFY | F_CLOSE_WRITE, "f"));
    touch("f");
    struct metadata *event = next_event(group);
    int file = event->fd;
    CHECK_EQ(fcntl(file, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(file, F_GETFL) & O_ACCMODE, O_RDWR);
    CHECK_EQ(write(file, &byte, 1), 1); /* Told nobody. */
    CHECK_OK(close(file));
    nothing_waits(group);
    touch("f");
    CHECK_ERRNO(read(group, buffer, 23), EINVAL);
    CHECK_ERRNO(read(group, BAD_KERNEL, 100), EFAULT);
}

CASE(children_of_marked_directories)
{
    scratch();
    CHECK_OK(mkdir("d", 0755));
    CHECK_OK(mkdir("d/e", 0755));
    touch("d/f");
    int group = group_with(0);
    CHECK_OK(mark(group, ADD, F_OPEN, "d"));
    touch("d/f");
    nothing_waits(group);
    CHECK_OK(close(open("d", O_RDONLY)));
    nothing_waits(group); /* Not without ONDIR. */
    CHECK_OK(mark(group, ADD, F_ONDIR, "d"));
    CHECK_OK(close(open("d", O_RDONLY)));
    expect(group, F_OPEN, "d");
    CHECK_OK(close(open("d/e", O_RDONLY)));
    nothing_waits(group);
    CHECK_OK(mark(group, ADD, F_ON_CHILD, "d"));
    touch("d/f");
    expect(group, F_OPEN, "d/f");
    CHECK_OK(close(open("d/e", O_RDONLY)));
    expect(group, F_OPEN, "d/e");
    nothing_waits(group);
}

CASE(marks_on_mounts_and_file_systems)
{
    own_file_system();
    touch("f");
    CHECK_OK(mkdir("b", 0755));
    CHECK_OK(mount(".", "b", NULL, MS_BIND, NULL));
    int of_mount = group_with(0), of_system = group_with(0);
    CHECK_OK(mark(of_mount, ADD | MOUNT, F_OPEN, "."));
    CHECK_OK(mark(of_system, ADD | FILESYSTEM, F_OPEN, "."));
    touch("f");
    expect(of_mount, F_OPEN, "f");
    expect(of_system, F_OPEN, "f");
    touch("b/f");
    nothing_waits(of_mount);
    expect(of_system, F_OPEN, "b/f");
    CHECK_OK(mark(of_mount, FLUSH | FILESYSTEM, 0, "."));
    CHECK_OK(mark(of_mount, FLUSH, 0, "."));
    touch("f");
    expect(of_mount, F_OPEN, "f");
    CHECK_OK(mark(of_mount, FLUSH | MOUNT, 0, "."));
    touch("f");
    nothing_waits(of_mount);
}

CASE(what_is_ignored)
{
    char byte = 'x';
    own_file_system();
    touch("f");
    touch("g");
    int group = group_with(0);
    CHECK_OK(mark(group, ADD | MOUNT, F_OPEN, "."));
    CHECK_OK(mark(group, ADD | IGNORED_MASK, F_OPEN, "f"));
    CHECK_OK(close(open("f", O_RDONLY)));
    nothing_waits(group);
    CHECK_OK(close(open("g", O_RDONLY)));
    expect(group, F_OPEN, "g");
    /* Until the file changes. */
    int file = open("f", O_WRONLY);
    CHECK_EQ(write(file, &byte, 1), 1);
    CHECK_OK(close(file));
    nothing_waits(group);
    CHECK_OK(close(open("f", O_RDONLY)));
    expect(group, F_OPEN, "f");
    CHECK_OK(mark(group, ADD | IGNORED_MASK | SURV_MODIFY, F_OPEN, "f"));
    file = open("f", O_WRONLY);
    CHECK_EQ(write(file, &byte, 1), 1);
    CHECK_OK(close(file));
    CHECK_OK(close(open("f", O_RDONLY)));
    nothing_waits(group);
    CHECK_OK(mark(group, REMOVE | IGNORED_MASK, F_OPEN, "f"));
    CHECK_OK(close(open("f", O_RDONLY)));
    expect(group, F_OPEN, "f");
    /* Nothing is ignored until the change that somebody may be about to make. */
    file = open("f", O_WRONLY);
    expect(group, F_OPEN, "f");
    CHECK_OK(mark(group, ADD | IGNORED_MASK, F_OPEN, "f"));
    CHECK_OK(close(open("f", O_RDONLY)));
    expect(group, F_OPEN, "f");
}

CASE(options_of_what_is_ignored)
{
    own_file_system();
    CHECK_OK(mkdir("d", 0755));
    touch("d/f");
    int group = group_with(0);
    CHECK_OK(mark(group, ADD | MOUNT, F_OPEN | F_ONDIR, "."));
    CHECK_OK(mark(group, ADD | IGNORE | SURV_MODIFY, F_OPEN, "d"));
    CHECK_OK(close(open("d", O_RDONLY)));
    expect(group, F_OPEN, "d");
    CHECK_OK(mark(group, ADD | IGNORE | SURV_MODIFY, F_ONDIR, "d"));
    CHECK_OK(close(open("d", O_RDONLY)));
    nothing_waits(group);
    touch("d/f");
    expect(group, F_OPEN, "d/f");
    CHECK_OK(mark(group, ADD | IGNORE | SURV_MODIFY, F_ON_CHILD, "d"));
    touch("d/f");
    nothing_waits(group);
}

static struct file_record *first_record(struct metadata *event)
{
    return (void *)((char *)event + event->metadata_length);
}

static struct file_record *record_after(struct file_record *record)
{
    return (void *)((char *)record + record->length);
}

/* A record that tells a path by its handle, and a name. */
static void check_record(struct file_record *record, int type, const char *path, const char *name)
{
    struct any_handle handle = {.bytes = sizeof handle.data};
    struct statfs system;
    int mount_id;
    CHECK_EQ(record->type, type);
    CHECK_OK(syscall(SYS_name_to_handle_at, AT_FDCWD, path, &handle, &mount_id, 0));
    CHECK_OK(statfs(path, &system));
    CHECK(memcmp(record->file_system, &system.f_fsid, 8) == 0);
    CHECK_EQ(record->handle_bytes, handle.bytes);
    CHECK_EQ(record->handle_type, handle.type);
    CHECK(memcmp(record->rest, handle.data, handle.bytes) == 0);
    if (name)
        CHECK_STR((char *)record->rest + handle.bytes, name);
    CHECK_EQ(record->length, (20 + handle.bytes + (name ? strlen(name) + 1 : 0) + 3) / 4 * 4);
}

static struct metadata *expect_ids(int group, unsigned long mask)
{
    struct metadata *event = next_event(group);
    CHECK_EQ(event->mask, mask);
    CHECK_EQ(event->fd, -1);
    return event;
}

CASE(files_by_their_handles)
{
    own_file_system();
    touch("f");
    CHECK_OK(mkdir("d", 0755));
    int group = group_with(REPORT_FID);
    CHECK_OK(mark(group, ADD, F_OPEN | F_ATTRIB | F_DELETE_SELF | F_MOVE_SELF, "f"));
    CHECK_OK(mark(group, ADD, F_CREATE | F_DELETE | F_MOVED_FROM | F_MOVED_TO | F_ONDIR, "d"));
    touch("f");
    struct metadata *event = expect_ids(group, F_OPEN);
    CHECK_EQ(event->pid, getpid());
    check_record(first_record(event), 1, "f", NULL);
    CHECK_OK(chmod("f", 0600));
    check_record(first_record(expect_ids(group, F_ATTRIB)), 1, "f", NULL);
    CHECK_OK(rename("f", "g"));
    check_record(first_record(expect_ids(group, F_MOVE_SELF)), 1, "g", NULL);
    touch("d/f");
    CHECK_OK(unlink("d/f"));
    check_record(first_record(expect_ids(group, F_CREATE | F_DELETE)), 1, "d", NULL);
    CHECK_OK(mkdir("d/e", 0755));
    check_record(first_record(expect_ids(group, F_CREATE | F_ONDIR)), 1, "d", NULL);
    CHECK_OK(rename("d/e", "e"));
    check_record(first_record(expect_ids(group, F_MOVED_FROM | F_ONDIR)), 1, "d", NULL);
    CHECK_OK(unlink("g"));
    event = next_event(group);
    CHECK(event->mask & F_DELETE_SELF);
    nothing_waits(group);
}

CASE(directories_and_names)
{
    own_file_system();
    CHECK_OK(mkdir("d", 0755));
    int group = group_with(REPORT_DIR_FID | REPORT_NAME | REPORT_FID);
    int plain = group_with(REPORT_DIR_FID);
    unsigned long mask = F_CREATE | F_DELETE | F_OPEN | F_ONDIR | F_ON_CHILD;
    CHECK_OK(mark(group, ADD, mask, "d"));
    CHECK_OK(mark(plain, ADD, F_CREATE | F_OPEN | F_ON_CHILD | F_ONDIR, "d"));
    CHECK_OK(mknod("d/file", S_IFREG | 0644, 0));
    check_record(first_record(expect_ids(group, F_CREATE)), 2, "d", "file");
    check_record(first_record(expect_ids(plain, F_CREATE)), 3, "d", NULL);
    touch("d/file");
    struct metadata *event = expect_ids(group, F_OPEN);
    check_record(first_record(event), 2, "d", "file");
    check_record(record_after(first_record(event)), 1, "d/file", NULL);
    check_record(first_record(expect_ids(plain, F_OPEN)), 1, "d", NULL);
    CHECK_OK(close(open("d", O_RDONLY)));
    check_record(first_record(expect_ids(group, F_OPEN | F_ONDIR)), 2, "d", ".");
    check_record(first_record(expect_ids(plain, F_OPEN | F_ONDIR)), 3, "d", NULL);
    CHECK_OK(unlink("d/file"));
    check_record(first_record(expect_ids(group, F_DELETE)), 2, "d", "file");
    CHECK_OK(mkdir("d/sub", 0755));
    check_record(first_record(expect_ids(group, F_CREATE | F_ONDIR)), 2, "d", "sub");
    nothing_waits(group);
}

CASE(renames_with_both_names)
{
    own_file_system();
    CHECK_OK(mkdir("d", 0755));
    CHECK_OK(mkdir("e", 0755));
    touch("d/one");
    unsigned flags = REPORT_DIR_FID | REPORT_NAME | REPORT_FID | REPORT_TARGET_FID;
    int both = group_with(flags), old = group_with(flags), entries = group_with(flags);
    CHECK_OK(mark(both, ADD | FILESYSTEM, F_RENAME, "."));
    CHECK_OK(mark(old, ADD, F_RENAME, "d"));
    CHECK_OK(mark(entries, ADD, F_MOVED_TO, "e"));
    CHECK_OK(rename("d/one", "e/two"));
    struct file_record *record = first_record(expect_ids(both, F_RENAME));
    check_record(record, 10, "d", "one");
    record = record_after(record);
    check_record(record, 12, "e", "two");
    check_record(record_after(record), 1, "e/two", NULL);
    record = first_record(expect_ids(old, F_RENAME));
    check_record(record, 10, "d", "one");
    check_record(record_after(record), 1, "e/two", NULL);
    record = first_record(expect_ids(entries, F_MOVED_TO));
    check_record(record, 2, "e", "two");
    check_record(record_after(record), 1, "e/two", NULL);
}

CASE(who_acts)
{
    scratch();
    touch("f");
    int group = group_with(REPORT_PIDFD);
    CHECK_OK(mark(group, ADD, F_OPEN | F_CLOSE_WRITE, "f"));
    pid_t child = fork_or_fail();
    if (child == 0) {
        open("f", O_WRONLY); /* Closed by its end. */
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    struct metadata *event = next_event(group);
    CHECK_EQ(event->mask, F_OPEN | F_CLOSE_WRITE);
    CHECK_EQ(event->pid, child);
    CHECK_EQ(event->length, 32);
    struct file_record *record = first_record(event);
    CHECK_EQ(record->type, 4);
    CHECK_EQ(record->length, 8);
    CHECK_EQ(*(int *)((char *)record + 4), -1); /* It is gone. */
    touch("f");
    event = next_event(group);
    CHECK_EQ(event->pid, getpid());
    CHECK(*(int *)((char *)first_record(event) + 4) >= 0);
}

CASE(executed_files)
{
    int group = group_with(0);
    CHECK_OK(mark(group, ADD, F_OPEN_EXEC, "/bin/busybox"));
    pid_t child = fork_or_fail();
    if (child == 0) {
        execl("/bin/busybox", "busybox", "true", NULL);
        _exit(1);
    }
    CHECK_EXITED(child, 0);
    struct metadata *event = next_event(group);
    CHECK_EQ(event->mask, F_OPEN_EXEC);
    CHECK_EQ(event->pid, child);
    CHECK_OK(close(open("/bin/busybox", O_RDONLY)));
    nothing_waits(group);
}

/* Answers the question of one event. */
static void answer(int group, unsigned long mask, unsigned verdict)
{
    struct pollfd wait = {group, POLLIN, 0};
    CHECK_EQ(poll(&wait, 1, -1), 1);
    struct metadata *event = next_event(group);
    CHECK_EQ(event->mask, mask);
    struct response response = {event->fd, 7};
    CHECK_ERRNO(write(group, &response, sizeof response), EINVAL);
    response.answer = verdict;
    response.fd = -1;
    CHECK_ERRNO(write(group, &response, sizeof response), EINVAL);
    response.fd = 999;
    CHECK_ERRNO(write(group, &response, sizeof response), ENOENT);
    response.fd = event->fd;
    CHECK_EQ(write(group, &response, sizeof response), sizeof response);
    CHECK_ERRNO(write(group, &response, sizeof response), ENOENT);
    CHECK_OK(close(event->fd));
}

CASE(questions_before_opening_and_reading)
{
    char byte;
    scratch();
    close(file_with("f", "x", 1));
    int group = group_with(CONTENT);
    CHECK_OK(mark(group, ADD, F_OPEN_PERM | F_ACCESS_PERM, "f"));
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_ERRNO(open("f", O_RDWR | O_TRUNC), EPERM);
        int file = open("f", O_RDONLY);
        CHECK_OK(file);
        CHECK_ERRNO(read(file, &byte, 1), EPERM);
        CHECK_EQ(read(file, &byte, 1), 1);
        _exit(0);
    }
    answer(group, F_OPEN_PERM, DENY);
    answer(group, F_OPEN_PERM, ALLOW);
    answer(group, F_ACCESS_PERM, DENY);
    answer(group, F_ACCESS_PERM, ALLOW);
    CHECK_EXITED(child, 0);
    struct stat status;
    CHECK_OK(stat("f", &status));
    CHECK_EQ(status.st_size, 1); /* What was denied was not cut. */
    nothing_waits(group);
}

CASE(questions_before_executing)
{
    scratch();
    int group = group_with(CONTENT);
    CHECK_OK(mark(group, ADD, F_OPEN_EXEC_PERM, "/bin/busybox"));
    pid_t child = fork_or_fail();
    if (child == 0) {
        execl("/bin/busybox", "busybox", "true", NULL);
        CHECK_EQ(errno, EPERM);
        execl("/bin/busybox", "busybox", "true", NULL);
        _exit(1);
    }
    answer(group, F_OPEN_EXEC_PERM, DENY);
    answer(group, F_OPEN_EXEC_PERM, ALLOW);
    CHECK_EXITED(child, 0);
}

CASE(who_closes_the_group_allows_all)
{
    scratch();
    touch("f");
    int group = group_with(PRE_CONTENT);
    CHECK_OK(mark(group, ADD, F_OPEN_PERM, "f"));
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork_or_fail();
        if (children[i] == 0) {
            close(group);
            CHECK_OK(open("f", O_RDONLY));
            _exit(0);
        }
    }
    struct pollfd wait = {group, POLLIN, 0};
    CHECK_EQ(poll(&wait, 1, -1), 1);
    close(next_event(group)->fd); /* Read by us, and never answered. */
    CHECK_OK(close(group));
    CHECK_EXITED(children[0], 0);
    CHECK_EXITED(children[1], 0);
}

CASE(who_waits_for_an_answer_can_be_killed)
{
    scratch();
    touch("f");
    int group = group_with(CONTENT);
    CHECK_OK(mark(group, ADD, F_OPEN_PERM, "f"));
    pid_t child = fork_or_fail();
    if (child == 0) {
        open("f", O_RDONLY);
        _exit(0);
    }
    struct pollfd wait = {group, POLLIN, 0};
    CHECK_EQ(poll(&wait, 1, -1), 1);
    CHECK_OK(kill(child, SIGKILL));
    CHECK_KILLED(child, SIGKILL);
}

CASE(lost_events)
{
    char text[16], path[32];
    scratch();
    size_t length = slurp("/proc/sys/fs/fanotify/max_queued_events", text, sizeof text);
    int limit = open("/proc/sys/fs/fanotify/max_queued_events", O_WRONLY);
    CHECK_EQ(write(limit, "4", 1), 1);
    int group = group_with(0), unlimited = group_with(UNLIMITED_QUEUE);
    CHECK_OK(mkdir("d", 0755));
    CHECK_OK(mark(group, ADD, F_CLOSE_WRITE | F_ON_CHILD, "d"));
    CHECK_OK(mark(unlimited, ADD, F_CLOSE_WRITE | F_ON_CHILD, "d"));
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "d/%d", i);
        touch(path);
    }
    CHECK_EQ(pwrite(limit, text, length, 0), (ssize_t)length);
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "d/%d", i);
        expect(unlimited, F_CLOSE_WRITE, path);
        if (i < 4)
            expect(group, F_CLOSE_WRITE, path);
    }
    CHECK_EQ(expect_ids(group, F_Q_OVERFLOW)->pid, 0);
    nothing_waits(group);
    nothing_waits(unlimited);
}

CASE(users_without_rights)
{
    scratch();
    touch("f");
    CHECK_OK(chmod(".", 0777));
    CHECK_OK(setresgid(65534, 65534, 65534));
    CHECK_OK(setresuid(65534, 65534, 65534));
    CHECK_ERRNO(init(0, 0), EPERM);
    CHECK_ERRNO(init(CONTENT, 0), EPERM);
    CHECK_ERRNO(init(REPORT_FID | UNLIMITED_QUEUE, 0), EPERM);
    CHECK_ERRNO(init(REPORT_FID | REPORT_PIDFD, 0), EPERM);
    int group = init(REPORT_FID | NONBLOCK, 0);
    CHECK_OK(group);
    CHECK_ERRNO(mark(group, ADD | MOUNT, F_OPEN, "f"), EPERM);
    CHECK_ERRNO(mark(group, ADD | FILESYSTEM, F_OPEN, "f"), EPERM);
    CHECK_OK(mark(group, ADD, F_OPEN, "f"));
    CHECK_OK(close(open("f", O_RDONLY)));
    CHECK_EQ(expect_ids(group, F_OPEN)->pid, getpid());
    pid_t child = fork_or_fail();
    if (child == 0) {
        close(open("f", O_RDONLY));
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(expect_ids(group, F_OPEN)->pid, 0);
}

CASE(groups_describe_themselves)
{
    char path[64], text[1024];
    struct stat status;
    scratch();
    touch("f");
    int group = init(NONBLOCK | CONTENT, O_RDWR);
    CHECK_OK(mark(group, ADD, F_OPEN | F_OPEN_PERM, "f"));
    CHECK_OK(mark(group, ADD | IGNORED_MASK | SURV_MODIFY, F_CLOSE_WRITE, "f"));
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", group);
    slurp(path, text, sizeof text);
    CHECK(strstr(text, "fanotify flags:6 event-flags:8002\n"));
    CHECK_OK(stat("f", &status));
    snprintf(path, sizeof path, "fanotify ino:%lx sdev:", (unsigned long)status.st_ino);
    CHECK(strstr(text, path));
    CHECK(strstr(text, " mflags:40 mask:10020 ignored_mask:8 "));
}
