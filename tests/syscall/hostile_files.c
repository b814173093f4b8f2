/* What one user may do to the files of another: each capability opens its own door and no other, links and
 * owners of files of strangers, seals, nameless files, mounts that a path may not leave, running programs. */
#include "harness.h"
#include "credentials.h"
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>

enum { USER = 1000, STRANGER = 1001 };

#define EVERYTHING_BUT(capability) (((1ull << 38) - 1) & ~BIT(24) & ~BIT(capability))

/* A scratch directory in which everybody may write. */
static void open_scratch(void)
{
    scratch();
    CHECK_OK(chmod(".", 0777));
}

static void file_of(const char *name, uid_t owner, mode_t mode)
{
    close(file_with(name, "text", 4));
    CHECK_OK(chown(name, owner, owner));
    CHECK_OK(chmod(name, mode));
}

static mode_t mode_of(const char *name)
{
    struct stat found;
    CHECK_OK(stat(name, &found));
    return found.st_mode & 07777;
}

CASE(changing_owners_needs_its_own_capability)
{
    open_scratch();
    file_of("file", 0, 0666);
    AS (USER, EVERYTHING_BUT(CAP_CHOWN))
        CHECK_ERRNO(chown("file", USER, -1), EPERM);
    AS (USER, EVERYTHING_BUT(CAP_CHOWN))
        CHECK_ERRNO(chown("file", -1, USER), EPERM);
    AS (USER, BIT(CAP_CHOWN))
        CHECK_OK(chown("file", STRANGER, STRANGER));
    struct stat found;
    CHECK_OK(stat("file", &found));
    CHECK_EQ(found.st_uid, STRANGER);
    CHECK_EQ(found.st_gid, STRANGER);
}

CASE(acting_as_owner_needs_its_own_capability)
{
    struct timespec times[2] = {{1, 0}, {2, 0}};
    open_scratch();
    file_of("file", 0, 0644);
    AS (USER, EVERYTHING_BUT(CAP_FOWNER)) {
        CHECK_ERRNO(chmod("file", 0600), EPERM);
        CHECK_ERRNO(utimensat(AT_FDCWD, "file", times, 0), EPERM);
        CHECK_ERRNO(open("file", O_RDONLY | O_NOATIME), EPERM);
    }
    AS (USER, BIT(CAP_FOWNER)) {
        CHECK_OK(chmod("file", 0600));
        CHECK_OK(utimensat(AT_FDCWD, "file", times, 0));
        CHECK_ERRNO(open("file", O_RDONLY), EACCES);
    }
    CHECK_EQ(mode_of("file"), 0600);
}

CASE(a_sticky_directory_needs_the_capability_of_owners)
{
    open_scratch();
    CHECK_OK(chmod(".", 01777));
    file_of("one", STRANGER, 0666);
    AS (USER, EVERYTHING_BUT(CAP_FOWNER)) {
        CHECK_ERRNO(unlink("one"), EPERM);
        CHECK_ERRNO(rename("one", "two"), EPERM);
    }
    AS (USER, BIT(CAP_FOWNER))
        CHECK_OK(unlink("one"));
}

CASE(set_id_bits_need_their_own_capability)
{
    open_scratch();
    for (int keeps = 0; keeps < 2; keeps++) {
        uint64_t capabilities = keeps ? BIT(CAP_FSETID) : EVERYTHING_BUT(CAP_FSETID);
        file_of("file", USER, 06777);
        AS (USER, capabilities) {
            int fd = open("file", O_WRONLY);
            CHECK_OK(fd);
            CHECK_EQ(write(fd, "x", 1), 1);
        }
        CHECK_EQ(mode_of("file"), keeps ? 06777 : 0777);
        file_of("cut", USER, 06777);
        AS (USER, capabilities)
            CHECK_OK(truncate("cut", 1));
        CHECK_EQ(mode_of("cut"), keeps ? 06777 : 0777);
        file_of("group", USER, 0755);
        CHECK_OK(chown("group", USER, STRANGER));
        AS (USER, capabilities)
            CHECK_OK(chmod("group", 02755));
        CHECK_EQ(mode_of("group"), keeps ? 02755 : 0755);
    }
}

CASE(device_nodes_need_their_own_capability)
{
    open_scratch();
    file_of("there", 0, 0644);
    AS (USER, EVERYTHING_BUT(CAP_MKNOD)) {
        CHECK_ERRNO(mknod("null", S_IFCHR | 0666, makedev(1, 3)), EPERM);
        CHECK_ERRNO(mknod("block", S_IFBLK | 0666, makedev(7, 0)), EPERM);
        CHECK_ERRNO(mknod("there", S_IFCHR | 0666, makedev(1, 3)), EEXIST);
        CHECK_OK(mknod("fifo", S_IFIFO | 0666, 0));
    }
    AS (USER, BIT(CAP_MKNOD))
        CHECK_OK(mknod("null", S_IFCHR | 0666, makedev(1, 3)));
}

CASE(searching_is_less_than_overriding)
{
    scratch();
    CHECK_OK(mkdir("closed", 0700));
    file_of("closed/file", 0, 0600);
    file_of("closed/program", 0, 0644);
    AS (USER, EVERYTHING_BUT(CAP_DAC_OVERRIDE) & ~BIT(CAP_DAC_READ_SEARCH))
        CHECK_ERRNO(open("closed/file", O_RDONLY), EACCES);
    AS (USER, BIT(CAP_DAC_READ_SEARCH)) {
        CHECK_OK(open("closed", O_RDONLY | O_DIRECTORY));
        CHECK_OK(open("closed/file", O_RDONLY));
        CHECK_ERRNO(open("closed/file", O_WRONLY), EACCES);
        CHECK_ERRNO(open("closed/file", O_RDWR), EACCES);
        CHECK_ERRNO(unlink("closed/file"), EACCES);
        CHECK_ERRNO(open("closed/new", O_CREAT | O_WRONLY, 0600), EACCES);
    }
    AS (USER, BIT(CAP_DAC_OVERRIDE)) {
        CHECK_OK(open("closed/file", O_RDWR));
        CHECK_OK(open("closed/new", O_CREAT | O_WRONLY, 0600));
        CHECK_ERRNO(access("closed/program", X_OK), EACCES);
    }
}

CASE(locking_memory_needs_its_own_capability)
{
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct rlimit none = {0, 0};
    CHECK(page != MAP_FAILED);
    CHECK_OK(setrlimit(RLIMIT_MEMLOCK, &none));
    AS (USER, EVERYTHING_BUT(CAP_IPC_LOCK))
        CHECK_ERRNO(mlock(page, 4096), EPERM);
    AS (USER, BIT(CAP_IPC_LOCK)) {
        CHECK_OK(mlock(page, 8192));
        CHECK_OK(munlock(page, 8192));
    }
}

CASE(the_lowest_addresses_need_their_own_capability)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    AS (USER, EVERYTHING_BUT(CAP_SYS_RAWIO))
        CHECK_ERRNO((long)mmap(NULL, 4096, PROT_READ, flags, -1, 0), EPERM);
    AS (USER, BIT(CAP_SYS_RAWIO)) {
        char *low = (char *)0x2000;
        CHECK(mmap(low, 4096, PROT_READ | PROT_WRITE, flags, -1, 0) == low);
        *(volatile char *)low = 1;
        CHECK_OK(munmap(low, 4096));
    }
}

CASE(a_stranger_who_changes_no_owner_changes_no_mode)
{
    open_scratch();
    file_of("special", 0, 06755);
    file_of("plain", 0, 0644);
    AS (USER, NO_CAPABILITIES) {
        CHECK_ERRNO(chown("special", -1, -1), EPERM);
        CHECK_OK(chown("plain", -1, -1));
    }
    CHECK_EQ(mode_of("special"), 06755);
    CHECK_OK(chown("special", -1, -1));
    CHECK_EQ(mode_of("special"), 0755);
}

CASE(links_to_files_of_others_are_restricted)
{
    char text[16];
    if (slurp("/proc/sys/fs/protected_hardlinks", text, sizeof text) == 0 || text[0] != '1')
        SKIP("fs.protected_hardlinks is off");
    open_scratch();
    file_of("readable", 0, 0644);
    file_of("writable", 0, 0666);
    file_of("setuid", 0, 04777);
    file_of("setgid", 0, 02777);
    file_of("own", USER, 04600);
    CHECK_OK(mkfifo("fifo", 0666));
    CHECK_OK(chmod("fifo", 0666));
    AS (USER, NO_CAPABILITIES) {
        CHECK_ERRNO(link("readable", "new"), EPERM);
        CHECK_ERRNO(link("setuid", "new"), EPERM);
        CHECK_ERRNO(link("setgid", "new"), EPERM);
        CHECK_ERRNO(link("fifo", "new"), EPERM);
        CHECK_ERRNO(link("readable", "own"), EEXIST);
        CHECK_OK(link("writable", "new"));
        CHECK_OK(link("own", "newer"));
    }
    AS (USER, BIT(CAP_FOWNER))
        CHECK_OK(link("setuid", "newest"));
}

CASE(writing_is_not_sealed_off_under_a_writer)
{
    int fd = memfd_create("sealed", MFD_ALLOW_SEALING);
    CHECK_OK(fd);
    CHECK_OK(ftruncate(fd, 8192));
    char *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *private = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(shared != MAP_FAILED && private != MAP_FAILED);
    CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
    CHECK_EQ(fcntl(fd, F_GET_SEALS), 0);
    CHECK_OK(munmap(shared, 4096));
    CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
    CHECK_OK(mprotect(shared + 4096, 4096, PROT_READ)); /* It could be undone. */
    CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
    CHECK_OK(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
    CHECK_OK(munmap(shared + 4096, 4096));
    CHECK_OK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    CHECK_OK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK));
    CHECK_ERRNO((long)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), EPERM);
    CHECK_ERRNO(pwrite(fd, "x", 1, 0), EPERM);
}

CASE(the_mapping_of_a_child_is_a_writer_too)
{
    int fd = memfd_create("sealed", MFD_ALLOW_SEALING), ends[2];
    char byte;
    CHECK_OK(ftruncate(fd, 4096));
    CHECK_OK(pipe(ends));
    char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(shared != MAP_FAILED);
    pid_t child = fork_or_fail();
    if (child == 0) {
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) != 0);
    }
    CHECK_OK(munmap(shared, 4096));
    CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
    close(ends[1]);
    CHECK_EXITED(child, 0);
    CHECK_OK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
}

CASE(an_exclusive_nameless_file_gets_no_name)
{
    char path[64];
    scratch();
    int fd = open(".", O_TMPFILE | O_EXCL | O_RDWR, 0600);
    CHECK_OK(fd);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK_ERRNO(linkat(AT_FDCWD, path, AT_FDCWD, "name", AT_SYMLINK_FOLLOW), ENOENT);
    CHECK_ERRNO(linkat(fd, "", AT_FDCWD, "name", AT_EMPTY_PATH), ENOENT);
    int other = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK_OK(other);
    snprintf(path, sizeof path, "/proc/self/fd/%d", other);
    CHECK_OK(linkat(AT_FDCWD, path, AT_FDCWD, "name", AT_SYMLINK_FOLLOW));
}

enum { RESOLVE_NO_XDEV = 1, RESOLVE_BENEATH = 8 };

struct open_how {
    uint64_t flags, mode, resolve;
};

static int open_within(int directory, const char *path, uint64_t resolve)
{
    struct open_how how = {.flags = O_RDONLY, .resolve = resolve};
    return (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
}

CASE(links_do_not_leave_a_mount_that_a_path_must_stay_on)
{
    scratch();
    int proc = open("/proc", O_PATH | O_DIRECTORY);
    CHECK_OK(proc);
    CHECK_OK(open_within(proc, "self/cwd", 0));
    CHECK_ERRNO(open_within(proc, "self/cwd", RESOLVE_NO_XDEV), EXDEV);
    CHECK_ERRNO(open_within(proc, "self/root", RESOLVE_NO_XDEV), EXDEV);
    CHECK_OK(open_within(proc, "self/status", RESOLVE_NO_XDEV));
    CHECK_OK(mkdir("mount", 0755));
    CHECK_OK(mount("none", "mount", "tmpfs", 0, NULL));
    CHECK_OK(symlink("/", "mount/absolute"));
    CHECK_OK(symlink("..", "mount/up"));
    CHECK_OK(symlink(".", "mount/here"));
    int inside = open("mount", O_PATH | O_DIRECTORY);
    CHECK_OK(open_within(inside, "absolute", 0));
    CHECK_ERRNO(open_within(inside, "absolute", RESOLVE_NO_XDEV), EXDEV);
    CHECK_ERRNO(open_within(inside, "up", RESOLVE_NO_XDEV), EXDEV);
    CHECK_OK(open_within(inside, "here", RESOLVE_NO_XDEV));
    CHECK_OK(open_within(inside, "/", RESOLVE_NO_XDEV));
    close(inside);
    CHECK_OK(umount2("mount", MNT_DETACH));
}

CASE(nameless_files_obey_the_restrictions_of_paths)
{
    struct open_how how = {.flags = O_TMPFILE | O_RDWR, .mode = 0600, .resolve = RESOLVE_BENEATH};
    scratch();
    CHECK_ERRNO(syscall(SYS_openat2, AT_FDCWD, "..", &how, sizeof how), EXDEV);
    CHECK_OK(syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof how));
}

CASE(wait_for_the_end_of_input)
{
    char byte;
    if (getenv("WAIT_FOR_INPUT"))
        while (read(0, &byte, 1) > 0)
            ;
}

CASE(a_running_program_is_not_cut_short)
{
    char *words[] = {"running", "--no-fork", "wait_for_the_end_of_input", NULL};
    char *environment[] = {"WAIT_FOR_INPUT=1", NULL};
    int ends[2], started[2];
    char byte;
    struct stat before, after;
    scratch();
    copy_program("running", 0, 0755);
    CHECK_OK(stat("running", &before));
    CHECK_OK(pipe(ends));
    CHECK_OK(pipe2(started, O_CLOEXEC));
    pid_t child = fork_or_fail();
    if (child == 0) {
        dup2(ends[0], 0);
        close(ends[1]);
        execve("running", words, environment);
        _exit(1);
    }
    close(started[1]);
    CHECK_EQ(read(started[0], &byte, 1), 0); /* Closed by execve. */
    CHECK_ERRNO(open("running", O_RDONLY | O_TRUNC), ETXTBSY);
    CHECK_ERRNO(open("running", O_WRONLY | O_TRUNC), ETXTBSY);
    CHECK_ERRNO(truncate("running", 0), ETXTBSY);
    CHECK_OK(stat("running", &after));
    CHECK_EQ(before.st_size, after.st_size);
    close(ends[1]);
    CHECK_EXITED(child, 0);
    int fd;
    while ((fd = open("running", O_RDONLY | O_TRUNC)) == -1)
        CHECK_EQ(errno, ETXTBSY); /* What it was mapped in goes a moment after it was waited for. */
    CHECK_OK(stat("running", &after));
    CHECK_EQ(after.st_size, 0);
}

static int setting(const char *name)
{
    char path[64], digit;
    snprintf(path, sizeof path, "/proc/sys/fs/%s", name);
    int fd = open(path, O_RDONLY);
    CHECK_OK(fd);
    CHECK_EQ(read(fd, &digit, 1), 1);
    close(fd);
    return digit - '0';
}

/* Opens as somebody; 0 or the error. */
static int error_of_opening(uid_t user, const char *name, int flags)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        act_as(user, 0);
        int fd = open(name, flags, 0600);
        _exit(fd == -1 ? errno : 0);
    }
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* What is refused depends on fs.protected_*, which the host may have otherwise. */
CASE(traps_in_a_shared_directory_are_not_taken)
{
    int links = setting("protected_symlinks"), fifos = setting("protected_fifos"),
        regular = setting("protected_regular");
    open_scratch();
    file_of("file", STRANGER, 0666);
    CHECK_OK(mkfifo("fifo", 0600));
    CHECK_OK(chown("fifo", STRANGER, STRANGER));
    CHECK_OK(chmod("fifo", 0666));
    CHECK_OK(symlink("file", "link"));
    CHECK_OK(lchown("link", STRANGER, STRANGER));
    static const struct {
        mode_t mode;
        int least; /* Which setting it takes. */
    } modes[] = {{01777, 1}, {01770, 2}, {0777, 9}, {01700, 9}};
    CHECK_OK(chown(".", 0, USER));
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        CHECK_OK(chmod(".", modes[i].mode | 0011));
        int is_open = modes[i].least == 1;
        CHECK_EQ(error_of_opening(USER, "link", O_RDONLY), is_open && links ? EACCES : 0);
        CHECK_EQ(error_of_opening(USER, "file", O_CREAT | O_RDWR), regular >= modes[i].least ? EACCES : 0);
        CHECK_EQ(error_of_opening(USER, "fifo", O_CREAT | O_RDWR), fifos >= modes[i].least ? EACCES : 0);
        /* One's own, and what is not to be made. */
        CHECK_EQ(error_of_opening(STRANGER, "link", O_RDONLY), 0);
        CHECK_EQ(error_of_opening(STRANGER, "file", O_CREAT | O_RDWR), 0);
        CHECK_EQ(error_of_opening(USER, "file", O_RDWR), 0);
        CHECK_EQ(error_of_opening(USER, "fifo", O_RDWR), 0);
    }
    CHECK_OK(chmod(".", 01777));
    CHECK_OK(lchown("link", 0, 0)); /* The directory's owner is trusted. */
    CHECK_EQ(error_of_opening(USER, "link", O_RDONLY), 0);
}
