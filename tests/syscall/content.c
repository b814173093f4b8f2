/* Contents of files: shared mappings that write, holes and ranges, files without names, exchanges and whiteouts.
 * Runs on whatever file system is at /tmp: a tmpfs, or an ext4 in the stage `disk`. */
#include "harness.h"
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

/* musl has the first two of them only. */
#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE 1
#endif
#ifndef FALLOC_FL_PUNCH_HOLE
#define FALLOC_FL_PUNCH_HOLE 2
#endif
#ifndef FALLOC_FL_COLLAPSE_RANGE
#define FALLOC_FL_COLLAPSE_RANGE 0x08
#define FALLOC_FL_ZERO_RANGE 0x10
#define FALLOC_FL_INSERT_RANGE 0x20
#endif

#define PAGE 4096

static char *map_shared(int file, size_t length)
{
    char *map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(map != MAP_FAILED);
    return map;
}

static void check_bytes(int file, off_t offset, char value, size_t length)
{
    char buffer[PAGE];
    while (length > 0) {
        size_t part = length < sizeof buffer ? length : sizeof buffer;
        CHECK_EQ(pread(file, buffer, part, offset), (long)part);
        for (size_t at = 0; at < part; at++)
            if (buffer[at] != value)
                FAIL("byte %ld is %d, not %d", (long)offset + (long)at, buffer[at], value);
        offset += (off_t)part;
        length -= part;
    }
}

CASE(a_shared_mapping_writes_to_the_file)
{
    char bytes[3 * PAGE];
    memset(bytes, 'a', sizeof bytes);
    scratch();
    int file = file_with("f", bytes, sizeof bytes);
    char *map = map_shared(file, sizeof bytes);
    CHECK_EQ(map[PAGE], 'a');
    map[5] = 'x';
    map[2 * PAGE] = 'y';
    check_bytes(file, 5, 'x', 1);
    check_bytes(file, 2 * PAGE, 'y', 1);
    CHECK_OK(msync(map, sizeof bytes, MS_SYNC));
    /* Clean by now: the next write has to be seen too. */
    map[5] = 'z';
    map[6] = 'z';
    check_bytes(file, 5, 'z', 2);
    CHECK_EQ(pwrite(file, "w", 1, PAGE + 1), 1);
    CHECK_EQ(map[PAGE + 1], 'w');
    CHECK_OK(munmap(map, sizeof bytes));
    CHECK_OK(fsync(file));
    check_bytes(file, 5, 'z', 2);
    check_bytes(file, 7, 'a', 100);
}

CASE(two_processes_share_a_mapping)
{
    char bytes[2 * PAGE] = {0};
    scratch();
    int file = file_with("f", bytes, sizeof bytes);
    char *map = map_shared(file, sizeof bytes);
    map[0] = 1;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char *own = map_shared(open("f", O_RDWR), sizeof bytes);
        own[1] = (char)(own[0] + 1);
        map[PAGE] = 3;
        msync(own, PAGE, MS_SYNC);
        own[2] = 4;
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(map[1], 2);
    CHECK_EQ(map[2], 4);
    check_bytes(file, PAGE, 3, 1);
    map[3] = 5;
    check_bytes(file, 3, 5, 1);
}

CASE(a_private_mapping_keeps_its_writes)
{
    char bytes[PAGE];
    memset(bytes, 'a', sizeof bytes);
    scratch();
    int file = file_with("f", bytes, sizeof bytes);
    char *shared = map_shared(file, PAGE);
    char *own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    CHECK(own != MAP_FAILED);
    CHECK_EQ(own[0], 'a');
    shared[0] = 'b';
    CHECK_EQ(own[0], 'b');
    own[1] = 'c';
    shared[2] = 'd';
    CHECK_OK(fsync(file));
    CHECK_EQ(own[2], 'a');
    CHECK_EQ(shared[1], 'a');
    check_bytes(file, 1, 'a', 1);
}

CASE(rights_of_a_mapping_come_and_go)
{
    char bytes[PAGE] = {0};
    scratch();
    int file = file_with("f", bytes, sizeof bytes);
    char *map = map_shared(file, PAGE);
    map[0] = 1;
    CHECK_OK(mprotect(map, PAGE, PROT_READ));
    CHECK_OK(fsync(file));
    CHECK_OK(mprotect(map, PAGE, PROT_READ | PROT_WRITE));
    map[1] = 2;
    CHECK_OK(msync(map, PAGE, MS_SYNC));
    map[2] = 3;
    /* The kernel writes to it, too. */
    int pipes[2];
    CHECK_OK(pipe(pipes));
    CHECK_EQ(write(pipes[1], "\4", 1), 1);
    CHECK_OK(msync(map, PAGE, MS_SYNC));
    CHECK_EQ(read(pipes[0], map + 3, 1), 1);
    for (int at = 0; at < 4; at++)
        check_bytes(file, at, (char)(at + 1), 1);
}

static sigjmp_buf back;

static void jump(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

CASE(past_the_end_is_a_bus_error)
{
    char bytes[2 * PAGE];
    memset(bytes, 'a', sizeof bytes);
    scratch();
    int file = file_with("f", bytes, sizeof bytes);
    volatile char *map = map_shared(file, 4 * PAGE);
    signal(SIGBUS, jump);
    map[PAGE] = 'b';
    if (sigsetjmp(back, 1) == 0) {
        map[2 * PAGE] = 1;
        FAIL("a page past the end can be written to");
    }
    CHECK_OK(ftruncate(file, PAGE + 10));
    CHECK_EQ(map[PAGE + 9], 'a');
    CHECK_EQ(map[PAGE + 10], 0);
    CHECK_OK(ftruncate(file, 10));
    if (sigsetjmp(back, 1) == 0) {
        (void)map[PAGE];
        FAIL("a page that was cut off can be read");
    }
    CHECK_OK(ftruncate(file, 3 * PAGE));
    CHECK_EQ(map[PAGE], 0);
    map[2 * PAGE] = 'c';
    CHECK_OK(fsync(file));
    check_bytes(file, 0, 'a', 10);
    check_bytes(file, 10, 0, 2 * PAGE - 10);
    check_bytes(file, 2 * PAGE, 'c', 1);
}

CASE(bytes_past_the_end_of_the_last_page_are_not_kept)
{
    scratch();
    int file = file_with("f", "abc", 3);
    char *map = map_shared(file, PAGE);
    CHECK_EQ(map[3], 0);
    map[10] = 'x';
    CHECK_OK(msync(map, PAGE, MS_SYNC));
    struct stat status;
    CHECK_OK(fstat(file, &status));
    CHECK_EQ(status.st_size, 3);
    CHECK_OK(munmap(map, PAGE));
}

CASE(times_change_with_a_write_to_a_mapping)
{
    char bytes[PAGE] = {0};
    scratch();
    int file = file_with("f", bytes, sizeof bytes);
    struct timespec old[2] = {{1000000000, 123456789}, {1000000000, 987654321}};
    char *map = map_shared(file, PAGE);
    CHECK_OK(futimens(file, old));
    struct stat status;
    CHECK_OK(fstat(file, &status));
    CHECK_EQ(status.st_mtim.tv_nsec, 987654321);
    CHECK_EQ(status.st_atim.tv_nsec, 123456789);
    map[0] = 1;
    CHECK_OK(msync(map, PAGE, MS_SYNC));
    CHECK_OK(fstat(file, &status));
    CHECK(status.st_mtim.tv_sec > 1000000000);
}

/* What the file system does not do is skipped. */
static void change_range(int file, int mode, off_t offset, off_t length)
{
    if (fallocate(file, mode, offset, length) == 0)
        return;
    if (errno == EOPNOTSUPP)
        SKIP("this file system has no such range");
    FAIL("fallocate gives %s", strerror(errno));
}

CASE(a_hole_is_punched_under_a_mapping)
{
    char bytes[4 * PAGE];
    memset(bytes, 'a', sizeof bytes);
    scratch();
    int file = file_with("f", bytes, sizeof bytes);
    char *map = map_shared(file, sizeof bytes);
    map[PAGE] = 'b';
    change_range(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE - 10, PAGE + 20);
    for (int at = PAGE - 10; at < 2 * PAGE + 10; at++)
        CHECK_EQ(map[at], 0);
    CHECK_EQ(map[PAGE - 11], 'a');
    CHECK_EQ(map[2 * PAGE + 10], 'a');
    check_bytes(file, PAGE - 10, 0, PAGE + 20);
    /* A file system that keeps several pages as one may have zeros there instead of a hole. */
    off_t hole = lseek(file, 0, SEEK_HOLE);
    CHECK(hole == PAGE || hole == 4 * PAGE);
    CHECK_EQ(lseek(file, PAGE, SEEK_DATA), hole == PAGE ? 2 * PAGE : PAGE);
    map[PAGE + 7] = 'c';
    CHECK_OK(msync(map, sizeof bytes, MS_SYNC));
    check_bytes(file, PAGE + 7, 'c', 1);
    CHECK_EQ(lseek(file, 0, SEEK_HOLE), 4 * PAGE);
}

CASE(ranges_are_zeroed)
{
    char bytes[4 * PAGE];
    memset(bytes, 'a', sizeof bytes);
    scratch();
    int file = file_with("f", bytes, sizeof bytes);
    change_range(file, FALLOC_FL_ZERO_RANGE, 100, 2 * PAGE);
    check_bytes(file, 0, 'a', 100);
    check_bytes(file, 100, 0, 2 * PAGE);
    check_bytes(file, 100 + 2 * PAGE, 'a', 100);
    change_range(file, FALLOC_FL_ZERO_RANGE, 3 * PAGE, 3 * PAGE);
    CHECK_EQ(lseek(file, 0, SEEK_END), 6 * PAGE);
    change_range(file, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 5 * PAGE, 3 * PAGE);
    CHECK_EQ(lseek(file, 0, SEEK_END), 6 * PAGE);
    check_bytes(file, 3 * PAGE, 0, 3 * PAGE);
}

CASE(ranges_are_cut_out_and_inserted)
{
    char bytes[4 * PAGE];
    for (int page = 0; page < 4; page++)
        memset(bytes + page * PAGE, 'a' + page, PAGE);
    scratch();
    int file = file_with("f", bytes, sizeof bytes);
    change_range(file, FALLOC_FL_COLLAPSE_RANGE, PAGE, PAGE);
    CHECK_EQ(lseek(file, 0, SEEK_END), 3 * PAGE);
    check_bytes(file, 0, 'a', PAGE);
    check_bytes(file, PAGE, 'c', PAGE);
    change_range(file, FALLOC_FL_INSERT_RANGE, 2 * PAGE, PAGE);
    CHECK_EQ(lseek(file, 0, SEEK_END), 4 * PAGE);
    check_bytes(file, PAGE, 'c', PAGE);
    check_bytes(file, 2 * PAGE, 0, PAGE);
    check_bytes(file, 3 * PAGE, 'd', PAGE);
    CHECK_ERRNO(fallocate(file, FALLOC_FL_COLLAPSE_RANGE, 1, PAGE), EINVAL);
    CHECK_ERRNO(fallocate(file, FALLOC_FL_COLLAPSE_RANGE, 0, 4 * PAGE), EINVAL);
    CHECK_ERRNO(fallocate(file, FALLOC_FL_INSERT_RANGE, 4 * PAGE, PAGE), EINVAL);
}

CASE(modes_of_fallocate_that_exclude_each_other)
{
    scratch();
    int file = file_with("f", "x", 1);
    const int keep = FALLOC_FL_KEEP_SIZE;
    CHECK_ERRNO(fallocate(file, FALLOC_FL_PUNCH_HOLE, 0, 1), EOPNOTSUPP);
    CHECK_ERRNO(fallocate(file, keep | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE, 0, 1), EOPNOTSUPP);
    /* EINVAL up to Linux 6.13. */
    const int others[] = {FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE};
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(fallocate(file, keep | others[i], 0, PAGE), -1);
        CHECK(errno == EINVAL || errno == EOPNOTSUPP);
    }
    CHECK_ERRNO(fallocate(file, 0x1000, 0, 1), EOPNOTSUPP);
}

CASE(room_is_reserved)
{
    struct stat status;
    scratch();
    int file = file_with("f", "x", 1);
    change_range(file, FALLOC_FL_KEEP_SIZE, 0, 64 * PAGE);
    CHECK_OK(fstat(file, &status));
    CHECK_EQ(status.st_size, 1);
    CHECK(status.st_blocks >= 64 * 8);
    change_range(file, 0, 0, 64 * PAGE);
    CHECK_OK(fstat(file, &status));
    CHECK_EQ(status.st_size, 64 * PAGE);
    check_bytes(file, 1, 0, 2 * PAGE);
}

CASE(holes_are_found)
{
    scratch();
    int file = file_with("f", "", 0);
    CHECK_ERRNO(lseek(file, 0, SEEK_DATA), ENXIO);
    CHECK_OK(ftruncate(file, 100 * PAGE));
    CHECK_ERRNO(lseek(file, 0, SEEK_DATA), ENXIO);
    CHECK_EQ(lseek(file, 5, SEEK_HOLE), 5);
    CHECK_EQ(pwrite(file, "x", 1, 50 * PAGE + 5), 1);
    CHECK_EQ(lseek(file, 0, SEEK_DATA), 50 * PAGE);
    CHECK_EQ(lseek(file, 50 * PAGE + 9, SEEK_DATA), 50 * PAGE + 9);
    CHECK_EQ(lseek(file, 50 * PAGE, SEEK_HOLE), 51 * PAGE);
    CHECK_ERRNO(lseek(file, 51 * PAGE, SEEK_DATA), ENXIO);
    CHECK_EQ(lseek(file, 99 * PAGE, SEEK_HOLE), 99 * PAGE);
    CHECK_ERRNO(lseek(file, 100 * PAGE, SEEK_HOLE), ENXIO);
}

CASE(a_file_without_a_name_gets_one)
{
    char path[64];
    struct stat status;
    scratch();
    int file = open(".", O_TMPFILE | O_RDWR, 0640);
    CHECK(file >= 0);
    CHECK_EQ(write(file, "text", 4), 4);
    CHECK_OK(fsync(file));
    CHECK_OK(fstat(file, &status));
    CHECK_EQ(status.st_nlink, 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    CHECK_OK(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    CHECK_OK(stat("named", &status));
    CHECK_EQ(status.st_nlink, 1);
    CHECK_EQ(status.st_mode & 0777, 0640);
    CHECK_ERRNO(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW), EEXIST);
    CHECK_OK(unlink("named"));
    CHECK_ERRNO(linkat(AT_FDCWD, path, AT_FDCWD, "again", AT_SYMLINK_FOLLOW), ENOENT);
    int other = open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600);
    CHECK(other >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", other);
    CHECK_ERRNO(linkat(AT_FDCWD, path, AT_FDCWD, "no", AT_SYMLINK_FOLLOW), ENOENT);
}

static int rename_with(const char *from, const char *to, unsigned flags)
{
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
}

CASE(names_are_exchanged_and_whited_out)
{
    char text[8];
    struct stat status;
    scratch();
    close(file_with("one", "1", 1));
    CHECK_OK(mkdir("two", 0755));
    close(file_with("two/inside", "2", 1));
    CHECK_OK(rename_with("one", "two", 2));
    CHECK_EQ(slurp("two", text, sizeof text), 1);
    CHECK_EQ(slurp("one/inside", text, sizeof text), 1);
    CHECK_ERRNO(rename_with("one", "none", 2), ENOENT);
    CHECK_ERRNO(rename_with("one", "two", 2 | 1), EINVAL);
    CHECK_ERRNO(rename_with("one", "two", 2 | 4), EINVAL);
    CHECK_OK(rename_with("two", "moved", 4));
    CHECK_OK(lstat("two", &status));
    CHECK(S_ISCHR(status.st_mode) && status.st_rdev == makedev(0, 0));
    CHECK_EQ(slurp("moved", text, sizeof text), 1);
    CHECK_OK(unlink("two"));
}

CASE(long_names_and_times_to_the_nanosecond)
{
    char name[257];
    struct stat status;
    scratch();
    memset(name, 'n', 255);
    name[255] = 0;
    close(file_with(name, "x", 1));
    struct timespec times[2] = {{1234567890, 1}, {1234567890, 999999999}};
    CHECK_OK(utimensat(AT_FDCWD, name, times, 0));
    CHECK_OK(stat(name, &status));
    CHECK_EQ(status.st_atim.tv_nsec, 1);
    CHECK_EQ(status.st_mtim.tv_nsec, 999999999);
    name[255] = 'n';
    name[256] = 0;
    CHECK_ERRNO(open(name, O_RDWR | O_CREAT, 0644), ENAMETOOLONG);
}
