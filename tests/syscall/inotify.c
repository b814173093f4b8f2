/* Who is told of what happens to files: inotify, F_NOTIFY, and the owner of a descriptor. */
#include "harness.h"
#include <poll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/xattr.h>

static int watcher;
static char events[65536];
static ssize_t events_length, events_at;

static void make_watcher(void)
{
    watcher = inotify_init1(IN_NONBLOCK);
    CHECK(watcher >= 0);
}

/* The next event; NULL when there is none. */
static struct inotify_event *next_event(void)
{
    if (events_at == events_length) {
        events_at = 0;
        events_length = read(watcher, events, sizeof events);
        if (events_length == -1) {
            CHECK_EQ(errno, EAGAIN);
            events_length = 0;
            return NULL;
        }
    }
    struct inotify_event *event = (struct inotify_event *)(events + events_at);
    events_at += (ssize_t)(sizeof *event + event->len);
    return event;
}

static uint32_t last_cookie;

#define EXPECT(watch, bits, text)                                                              \
    do {                                                                                       \
        struct inotify_event *event = next_event();                                            \
        if (!event)                                                                            \
            FAIL("an event %#x %s is there, got none", (unsigned)(bits), text);                \
        if (event->wd != (watch) || event->mask != (uint32_t)(bits)                            \
            || strcmp(event->len ? event->name : "", text) != 0)                               \
            FAIL("event is %d %#x \"%s\", got %d %#x \"%s\"", watch, (unsigned)(bits), text,   \
                 event->wd, event->mask, event->len ? event->name : "");                       \
        last_cookie = event->cookie;                                                           \
    } while (0)

#define EXPECT_NONE()                                                                          \
    do {                                                                                       \
        struct inotify_event *event = next_event();                                            \
        if (event)                                                                             \
            FAIL("no event is there, got %d %#x \"%s\"", event->wd, event->mask,               \
                 event->len ? event->name : "");                                               \
    } while (0)

CASE(instance_and_its_errors)
{
    char byte;
    scratch();
    make_watcher();
    CHECK_EQ(fcntl(watcher, F_GETFL), O_RDONLY | O_NONBLOCK);
    int other = inotify_init1(IN_CLOEXEC);
    CHECK_EQ(fcntl(other, F_GETFD), FD_CLOEXEC);
    CHECK_ERRNO(inotify_init1(1), EINVAL);
    int file = file_with("f", "x", 1);
    CHECK_ERRNO(inotify_add_watch(watcher, "none", IN_OPEN), ENOENT);
    CHECK_ERRNO(inotify_add_watch(watcher, "f", 0), EINVAL);
    CHECK_ERRNO(inotify_add_watch(watcher, "f", 0x1000), EINVAL);
    CHECK_ERRNO(inotify_add_watch(99, "f", IN_OPEN), EBADF);
    CHECK_ERRNO(inotify_add_watch(file, "f", IN_OPEN), EINVAL);
    CHECK_ERRNO(inotify_add_watch(watcher, BAD_LOW, IN_OPEN), EFAULT);
    CHECK_ERRNO(inotify_add_watch(watcher, "f", IN_OPEN | IN_ONLYDIR), ENOTDIR);
    CHECK_ERRNO(inotify_add_watch(watcher, "f", IN_OPEN | IN_MASK_ADD | IN_MASK_CREATE), EINVAL);
    CHECK_ERRNO(inotify_rm_watch(watcher, 1), EINVAL);
    CHECK_ERRNO(inotify_rm_watch(99, 1), EBADF);
    CHECK_ERRNO(inotify_rm_watch(file, 1), EINVAL);
    CHECK_ERRNO(read(watcher, &byte, 1), EAGAIN);
    CHECK_ERRNO(write(watcher, "x", 1), EBADF);
    CHECK_EQ(lseek(watcher, 5, SEEK_SET), 0);
    CHECK_OK(chmod("f", 0));
    CHECK_OK(chmod(".", 0777));
    CHECK_OK(setresuid(1000, 1000, 1000));
    CHECK_ERRNO(inotify_add_watch(watcher, "f", IN_OPEN), EACCES);
}

CASE(what_happens_to_a_file)
{
    char buffer[8];
    scratch();
    make_watcher();
    file_with("f", "content", 7);
    int watch = inotify_add_watch(watcher, "f", IN_ALL_EVENTS);
    CHECK_EQ(watch, 1);
    int file = open("f", O_RDWR);
    EXPECT(watch, IN_OPEN, "");
    CHECK_EQ(read(file, buffer, 3), 3);
    EXPECT(watch, IN_ACCESS, "");
    CHECK_EQ(pread(file, buffer, 3, 0), 3);
    CHECK_EQ(pwrite(file, "x", 1, 0), 1);
    EXPECT(watch, IN_ACCESS, "");
    EXPECT(watch, IN_MODIFY, "");
    CHECK_OK(ftruncate(file, 3));
    CHECK_OK(fchmod(file, 0600));
    EXPECT(watch, IN_MODIFY, "");
    EXPECT(watch, IN_ATTRIB, "");
    CHECK_OK(fchown(file, 0, 0));
    CHECK_OK(futimens(file, NULL));
    EXPECT(watch, IN_ATTRIB, "");
    CHECK_OK(close(file));
    EXPECT(watch, IN_CLOSE_WRITE, "");
    close(open("f", O_RDONLY));
    EXPECT(watch, IN_OPEN, "");
    EXPECT(watch, IN_CLOSE_NOWRITE, "");
    close(open("f", O_WRONLY | O_TRUNC));
    /* Which of these comes first depends on the version. */
    struct inotify_event *event = next_event();
    CHECK(event && (event->mask == IN_MODIFY || event->mask == IN_OPEN));
    uint32_t second = event->mask == IN_OPEN ? IN_MODIFY : IN_OPEN;
    EXPECT(watch, second, "");
    EXPECT(watch, IN_CLOSE_WRITE, "");
    CHECK_OK(setxattr("f", "trusted.a", "1", 1, 0));
    EXPECT(watch, IN_ATTRIB, "");
    close(open("f", O_PATH));
    EXPECT_NONE();
}

CASE(equal_events_are_one)
{
    int count = -1;
    char buffer[64];
    scratch();
    make_watcher();
    int file = file_with("f", "content", 7), watch = inotify_add_watch(watcher, "f", IN_MODIFY);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(pwrite(file, "x", 1, 0), 1);
    CHECK_OK(ioctl(watcher, FIONREAD, &count));
    CHECK_EQ(count, 16);
    struct pollfd set = {watcher, POLLIN | POLLOUT, 0};
    CHECK_EQ(poll(&set, 1, -1), 1);
    CHECK_EQ(set.revents, POLLIN);
    CHECK_ERRNO(read(watcher, buffer, 15), EINVAL);
    EXPECT(watch, IN_MODIFY, "");
    EXPECT_NONE();
    CHECK_EQ(poll(&set, 1, 0), 0);
    CHECK_EQ(pwrite(file, "x", 1, 0), 1);
    CHECK_ERRNO(syscall(SYS_read, watcher, BAD_LOW, 16), EFAULT);
}

CASE(what_happens_in_a_directory)
{
    char buffer[8];
    scratch();
    make_watcher();
    CHECK_OK(mkdir("d", 0755));
    int watch = inotify_add_watch(watcher, "d", IN_ALL_EVENTS);
    int file = open("d/file", O_RDWR | O_CREAT, 0644);
    EXPECT(watch, IN_CREATE, "file");
    EXPECT(watch, IN_OPEN, "file");
    CHECK_EQ(write(file, "x", 1), 1);
    EXPECT(watch, IN_MODIFY, "file");
    CHECK_EQ(pread(file, buffer, 1, 0), 1);
    EXPECT(watch, IN_ACCESS, "file");
    close(file);
    EXPECT(watch, IN_CLOSE_WRITE, "file");
    CHECK_OK(mkdir("d/sub", 0755));
    EXPECT(watch, IN_CREATE | IN_ISDIR, "sub");
    CHECK_OK(symlink("x", "d/link"));
    EXPECT(watch, IN_CREATE, "link");
    CHECK_OK(mknod("d/fifo", S_IFIFO | 0600, 0));
    EXPECT(watch, IN_CREATE, "fifo");
    CHECK_OK(chmod("d/sub", 0700));
    EXPECT(watch, IN_ATTRIB | IN_ISDIR, "sub");
    CHECK_OK(chmod("d", 0700));
    EXPECT(watch, IN_ATTRIB | IN_ISDIR, "");
    CHECK_OK(unlink("d/link"));
    EXPECT(watch, IN_DELETE, "link");
    CHECK_OK(rmdir("d/sub"));
    EXPECT(watch, IN_DELETE | IN_ISDIR, "sub");
    int directory = open("d", O_RDONLY | O_DIRECTORY);
    EXPECT(watch, IN_OPEN | IN_ISDIR, "");
    close(directory);
    EXPECT(watch, IN_CLOSE_NOWRITE | IN_ISDIR, "");
    CHECK_OK(truncate("d/file", 0));
    EXPECT(watch, IN_MODIFY, "file");
    EXPECT_NONE();
}

CASE(moves_come_in_pairs)
{
    scratch();
    make_watcher();
    CHECK_OK(mkdir("a", 0755));
    CHECK_OK(mkdir("b", 0755));
    close(file_with("a/f", "x", 1));
    close(file_with("b/old", "x", 1));
    int from = inotify_add_watch(watcher, "a", IN_ALL_EVENTS);
    int to = inotify_add_watch(watcher, "b", IN_ALL_EVENTS);
    int itself = inotify_add_watch(watcher, "a/f", IN_MOVE_SELF);
    int victim = inotify_add_watch(watcher, "b/old", IN_ALL_EVENTS);
    CHECK_OK(rename("a/f", "b/old"));
    EXPECT(from, IN_MOVED_FROM, "f");
    uint32_t cookie = last_cookie;
    CHECK(cookie != 0);
    EXPECT(to, IN_MOVED_TO, "old");
    CHECK_EQ(last_cookie, cookie);
    struct inotify_event *event = next_event();
    CHECK(event);
    /* What became of the file that was replaced may stand before or behind the move itself. */
    if (event->wd == itself)
        CHECK_EQ(event->mask, IN_MOVE_SELF);
    else
        CHECK_EQ(event->wd, victim);
    while ((event = next_event()))
        CHECK(event->wd == victim || (event->wd == itself && event->mask == IN_MOVE_SELF));
    CHECK_OK(rename("b/old", "b/new"));
    EXPECT(to, IN_MOVED_FROM, "old");
    EXPECT(to, IN_MOVED_TO, "new");
    CHECK(last_cookie != cookie);
    EXPECT(itself, IN_MOVE_SELF, "");
    EXPECT_NONE();
}

CASE(end_of_a_file)
{
    scratch();
    make_watcher();
    int file = file_with("f", "x", 1), watch = inotify_add_watch(watcher, "f", IN_ALL_EVENTS);
    CHECK_OK(link("f", "second"));
    EXPECT(watch, IN_ATTRIB, "");
    CHECK_OK(unlink("second"));
    CHECK_OK(unlink("f"));
    EXPECT(watch, IN_ATTRIB, "");
    EXPECT_NONE();
    close(file);
    EXPECT(watch, IN_CLOSE_WRITE, "");
    EXPECT(watch, IN_DELETE_SELF, "");
    EXPECT(watch, IN_IGNORED, "");
    CHECK_ERRNO(inotify_rm_watch(watcher, watch), EINVAL);
    CHECK_OK(mkdir("d", 0755));
    watch = inotify_add_watch(watcher, "d", IN_ALL_EVENTS);
    CHECK_EQ(watch, 2);
    CHECK_OK(rmdir("d"));
    EXPECT(watch, IN_DELETE_SELF, "");
    EXPECT(watch, IN_IGNORED, "");
    EXPECT_NONE();
}

/* Makes a file of one page, opens it, takes its name away and shows it in memory; its mapping is then
 * the last that holds it. */
static char *map_last(int *watch)
{
    int file = file_with("f", "x", 1);
    CHECK_OK(ftruncate(file, 4096));
    *watch = inotify_add_watch(watcher, "f", IN_DELETE_SELF);
    CHECK(*watch >= 0);
    char *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
    CHECK(page != MAP_FAILED);
    CHECK_OK(unlink("f"));
    CHECK_OK(close(file));
    EXPECT_NONE();
    return page;
}

CASE(the_last_mapping_of_a_file_ends_it)
{
    scratch();
    make_watcher();
    int watch;
    char *page = map_last(&watch);
    CHECK_OK(munmap(page, 4096));
    EXPECT(watch, IN_DELETE_SELF, "");
    EXPECT(watch, IN_IGNORED, "");
    page = map_last(&watch);
    CHECK(mmap(page, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
    EXPECT(watch, IN_DELETE_SELF, "");
    EXPECT(watch, IN_IGNORED, "");
    page = map_last(&watch);
    char *other = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(other != MAP_FAILED);
    CHECK(mremap(other, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page) == page);
    EXPECT(watch, IN_DELETE_SELF, "");
    EXPECT(watch, IN_IGNORED, "");
    pid_t child = fork_or_fail();
    if (child == 0) {
        int own;
        map_last(&own);
        _exit(own);
    }
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    EXPECT(WEXITSTATUS(status), IN_DELETE_SELF, "");
    EXPECT(WEXITSTATUS(status), IN_IGNORED, "");
}

CASE(watches_change_and_end)
{
    scratch();
    make_watcher();
    int file = file_with("f", "x", 1), watch = inotify_add_watch(watcher, "f", IN_MODIFY);
    CHECK_ERRNO(inotify_add_watch(watcher, "f", IN_ATTRIB | IN_MASK_CREATE), EEXIST);
    CHECK_EQ(inotify_add_watch(watcher, "f", IN_ATTRIB | IN_MASK_ADD), watch);
    CHECK_EQ(pwrite(file, "x", 1, 0), 1);
    CHECK_OK(fchmod(file, 0600));
    EXPECT(watch, IN_MODIFY, "");
    EXPECT(watch, IN_ATTRIB, "");
    CHECK_EQ(inotify_add_watch(watcher, "f", IN_ATTRIB), watch);
    CHECK_EQ(pwrite(file, "x", 1, 0), 1);
    EXPECT_NONE();
    CHECK_OK(inotify_rm_watch(watcher, watch));
    EXPECT(watch, IN_IGNORED, "");
    CHECK_ERRNO(inotify_rm_watch(watcher, watch), EINVAL);
    watch = inotify_add_watch(watcher, "f", IN_MODIFY | IN_ONESHOT);
    CHECK_EQ(watch, 2);
    CHECK_EQ(pwrite(file, "x", 1, 0), 1);
    EXPECT(watch, IN_MODIFY, "");
    EXPECT(watch, IN_IGNORED, "");
    CHECK_EQ(pwrite(file, "x", 1, 0), 1);
    EXPECT_NONE();
    CHECK_OK(symlink("f", "link"));
    watch = inotify_add_watch(watcher, "link", IN_ATTRIB | IN_DONT_FOLLOW);
    CHECK_OK(fchmod(file, 0640));
    EXPECT_NONE();
}

CASE(unlinked_children_can_be_left_out)
{
    for (int leaves_out = 0; leaves_out < 2; leaves_out++) {
        scratch();
        make_watcher();
        int file = file_with("f", "x", 1);
        int watch = inotify_add_watch(watcher, ".", IN_MODIFY | (leaves_out ? IN_EXCL_UNLINK : 0));
        CHECK_EQ(pwrite(file, "x", 1, 0), 1);
        EXPECT(watch, IN_MODIFY, "f");
        CHECK_OK(unlink("f"));
        CHECK_EQ(pwrite(file, "x", 1, 0), 1);
        if (!leaves_out)
            EXPECT(watch, IN_MODIFY, "f");
        EXPECT_NONE();
        close(watcher);
        CHECK_OK(chdir("/tmp"));
        char path[160];
        snprintf(path, sizeof path, "/tmp/%s.%d", harness_case, (int)getpid());
        CHECK_OK(rmdir(path));
    }
}

CASE(unmounting_ends_watches)
{
    scratch();
    make_watcher();
    CHECK_OK(mkdir("m", 0755));
    CHECK_OK(mount("none", "m", "tmpfs", 0, NULL));
    close(file_with("m/f", "x", 1));
    int watch = inotify_add_watch(watcher, "m/f", IN_ALL_EVENTS);
    CHECK_OK(umount("m"));
    EXPECT(watch, IN_UNMOUNT, "");
    EXPECT(watch, IN_IGNORED, "");
    EXPECT_NONE();
}

CASE(too_many_events_are_told_of)
{
    char name[32];
    int told = 0, count = 0;
    scratch();
    make_watcher();
    CHECK_OK(mkdir("d", 0755));
    inotify_add_watch(watcher, "d", IN_CREATE | IN_DELETE);
    for (int i = 0; i < 20000; i += 2) {
        snprintf(name, sizeof name, "d/%d", i);
        CHECK_OK(mkdir(name, 0755));
        CHECK_OK(rmdir(name));
    }
    for (struct inotify_event *event; (event = next_event()); count++) {
        CHECK(!told);
        if (event->mask == IN_Q_OVERFLOW) {
            CHECK_EQ(event->wd, -1);
            told = 1;
        }
    }
    CHECK(told);
    CHECK_EQ(count, 16385);
    CHECK_OK(mkdir("d/x", 0755));
    CHECK(next_event() != NULL);
}

CASE(instances_describe_themselves)
{
    char path[64], text[1024];
    struct stat status;
    scratch();
    close(file_with("f", "x", 1));
    int instance = inotify_init1(0);
    int watch = inotify_add_watch(instance, "f", IN_OPEN | IN_ATTRIB);
    CHECK_OK(stat("f", &status));
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", instance);
    slurp(path, text, sizeof text);
    snprintf(path, sizeof path, "inotify wd:%x ino:%lx sdev:", (unsigned)watch, (unsigned long)status.st_ino);
    CHECK(strstr(text, path));
    CHECK(strstr(text, " mask:24 ignored_mask:0 fhandle-bytes:"));
}

CASE(a_program_that_is_executed_is_opened)
{
    char told[4096] __attribute__((aligned(8)));
    unsigned seen = 0;
    int instance = inotify_init1(IN_NONBLOCK);
    CHECK_OK(inotify_add_watch(instance, "/bin/busybox", IN_OPEN | IN_CLOSE_NOWRITE | IN_ACCESS));
    pid_t child = fork_or_fail();
    if (child == 0) {
        execl("/bin/busybox", "busybox", "true", NULL);
        _exit(1);
    }
    CHECK_EXITED(child, 0);
    ssize_t length = read(instance, told, sizeof told);
    for (ssize_t at = 0; at < length; at += (ssize_t)sizeof(struct inotify_event)) {
        struct inotify_event one;
        memcpy(&one, told + at, sizeof one);
        CHECK_EQ(one.len, 0);
        seen |= one.mask;
    }
    CHECK_EQ(seen, IN_OPEN | IN_CLOSE_NOWRITE | IN_ACCESS);
}

CASE(reading_waits_and_is_interruptible)
{
    char buffer[64];
    scratch();
    int reader = inotify_init();
    CHECK(inotify_add_watch(reader, ".", IN_CREATE) == 1);
    pid_t child = fork_or_fail();
    if (child == 0) {
        sleep_ms(20);
        CHECK_OK(mkdir("made", 0755));
        _exit(0);
    }
    CHECK_EQ(read(reader, buffer, sizeof buffer), 32);
    CHECK_EXITED(child, 0);
    CHECK_STR(((struct inotify_event *)buffer)->name, "made");
}

CASE(instances_are_limited)
{
    int count = 0;
    CHECK_OK(setresuid(12345, 12345, 12345));
    while (count < 1000 && inotify_init() >= 0)
        count++;
    CHECK_EQ(errno, EMFILE);
    CHECK(count >= 8 && count < 1000);
}

static volatile sig_atomic_t told_descriptor, told_code, told_count;

static void on_news(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    told_descriptor = info->si_fd;
    told_code = info->si_code;
    told_count++;
}

enum { DIRECTORY_NOTIFY = 1026 };
#define ON_MODIFY 2
#define ON_CREATE 4
#define ON_DELETE 8
#define AGAIN 0x80000000u

CASE(directory_notices)
{
    struct sigaction action = {.sa_sigaction = on_news, .sa_flags = SA_SIGINFO};
    scratch();
    int directory = open(".", O_RDONLY);
    sigaction(SIGRTMIN, &action, NULL);
    CHECK_ERRNO(fcntl(file_with("f", "x", 1), DIRECTORY_NOTIFY, ON_CREATE), ENOTDIR);
    CHECK_OK(fcntl(directory, F_SETSIG, SIGRTMIN));
    CHECK_EQ(fcntl(directory, F_GETSIG), SIGRTMIN);
    CHECK_OK(fcntl(directory, DIRECTORY_NOTIFY, ON_CREATE));
    CHECK_EQ(fcntl(directory, F_GETOWN), getpid());
    CHECK_OK(mkdir("a", 0755));
    CHECK_EQ(told_count, 1);
    CHECK_EQ(told_descriptor, directory);
    CHECK_EQ(told_code, 3 /* POLL_MSG */);
    /* Once only. */
    CHECK_OK(mkdir("b", 0755));
    CHECK_EQ(told_count, 1);
    CHECK_OK(fcntl(directory, DIRECTORY_NOTIFY, ON_CREATE | AGAIN));
    CHECK_OK(fcntl(directory, DIRECTORY_NOTIFY, ON_DELETE | AGAIN));
    CHECK_OK(rmdir("a"));
    CHECK_OK(mkdir("a", 0755));
    CHECK_EQ(told_count, 3);
    CHECK_OK(fcntl(directory, DIRECTORY_NOTIFY, 0));
    CHECK_OK(rmdir("a"));
    CHECK_EQ(told_count, 3);
    CHECK_OK(fcntl(directory, DIRECTORY_NOTIFY, ON_CREATE | AGAIN));
    close(directory);
    CHECK_OK(mkdir("a", 0755));
    CHECK_EQ(told_count, 3);
}

CASE(owners_of_descriptors)
{
    struct { int kind; int id; } owner = {7, 1};
    scratch();
    int file = file_with("f", "x", 1);
    CHECK_EQ(fcntl(file, F_GETOWN), 0);
    CHECK_ERRNO(fcntl(file, F_SETOWN, 0x3ffffff0), ESRCH);
    CHECK_ERRNO(fcntl(file, F_SETOWN, -0x3ffffff0), ESRCH);
    CHECK_ERRNO(fcntl(file, F_SETOWN, INT32_MIN), EINVAL);
    CHECK_OK(fcntl(file, F_SETOWN, getpid()));
    CHECK_EQ(fcntl(file, F_GETOWN), getpid());
    CHECK_OK(fcntl(file, F_GETOWN_EX, &owner));
    CHECK_EQ(owner.kind, 1);
    CHECK_EQ(owner.id, getpid());
    CHECK_OK(fcntl(file, F_SETOWN, -getpgrp()));
    CHECK_OK(fcntl(file, F_GETOWN_EX, &owner));
    CHECK_EQ(owner.kind, 2);
    CHECK_EQ(owner.id, getpgrp());
    owner.kind = 3;
    CHECK_ERRNO(fcntl(file, F_SETOWN_EX, &owner), EINVAL);
    owner.kind = 0;
    owner.id = 0x3ffffff0;
    CHECK_ERRNO(fcntl(file, F_SETOWN_EX, &owner), ESRCH);
    CHECK_ERRNO(fcntl(file, F_SETOWN_EX, BAD_LOW), EFAULT);
    owner.id = 0;
    CHECK_OK(fcntl(file, F_SETOWN_EX, &owner));
    CHECK_EQ(fcntl(file, F_GETOWN), 0);
    CHECK_ERRNO(fcntl(file, F_SETSIG, 65), EINVAL);
    CHECK_OK(fcntl(file, F_SETSIG, 0));
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(0);
    CHECK_OK(fcntl(file, F_SETOWN, child));
    CHECK_EXITED(child, 0);
    CHECK_EQ(fcntl(file, F_GETOWN), 0);
}

CASE(ready_files_send_signals)
{
    struct sigaction action = {.sa_sigaction = on_news, .sa_flags = SA_SIGINFO};
    int ends[2], on = 1;
    char byte;
    static char block[65536];
    scratch();
    CHECK_OK(pipe(ends));
    sigaction(SIGIO, &action, NULL);
    sigaction(SIGRTMIN, &action, NULL);
    CHECK_OK(fcntl(ends[0], F_SETOWN, getpid()));
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(told_count, 0);
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    CHECK_OK(fcntl(ends[0], F_SETFL, O_ASYNC));
    CHECK_EQ(fcntl(ends[0], F_GETFL), O_ASYNC);
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(told_count, 1);
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    CHECK_OK(fcntl(ends[0], F_SETSIG, SIGRTMIN));
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(told_count, 2);
    CHECK_EQ(told_descriptor, ends[0]);
    CHECK_EQ(told_code, 1 /* POLL_IN */);
    CHECK_OK(fcntl(ends[0], F_SETFL, 0));
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(told_count, 2);
    CHECK_EQ(read(ends[0], block, 2), 2);
    /* The writer is told of room in a pipe that was full. */
    CHECK_EQ(write(ends[1], block, sizeof block), sizeof block);
    CHECK_OK(fcntl(ends[1], F_SETOWN, getpid()));
    CHECK_OK(fcntl(ends[1], F_SETSIG, SIGRTMIN));
    CHECK_OK(ioctl(ends[1], FIOASYNC, &on));
    CHECK_EQ(read(ends[0], block, sizeof block), sizeof block);
    CHECK_EQ(told_count, 3);
    CHECK_EQ(told_descriptor, ends[1]);
    CHECK_EQ(told_code, 2 /* POLL_OUT */);
    int file = file_with("f", "x", 1);
    CHECK_ERRNO(ioctl(file, FIOASYNC, &on), ENOTTY);
    CHECK_OK(fcntl(file, F_SETFL, O_ASYNC));
    CHECK_EQ(fcntl(file, F_GETFL) & O_ASYNC, 0);
}

CASE(signals_go_where_the_owner_is)
{
    struct sigaction action = {.sa_sigaction = on_news, .sa_flags = SA_SIGINFO};
    int ends[2], ready[2];
    char byte;
    CHECK_OK(pipe(ends));
    CHECK_OK(pipe(ready));
    pid_t child = fork_or_fail();
    if (child == 0) {
        sigset_t blocked, none;
        sigemptyset(&none);
        sigemptyset(&blocked);
        sigaddset(&blocked, SIGIO);
        sigprocmask(SIG_BLOCK, &blocked, NULL);
        sigaction(SIGIO, &action, NULL);
        CHECK_EQ(write(ready[1], "r", 1), 1);
        while (!told_count)
            sigsuspend(&none);
        _exit(0);
    }
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    CHECK_OK(fcntl(ends[0], F_SETOWN, child));
    CHECK_OK(fcntl(ends[0], F_SETFL, O_ASYNC));
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EXITED(child, 0);
}
