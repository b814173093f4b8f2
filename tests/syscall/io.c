/* Reading and writing: read write readv writev pread64 pwrite64 lseek sendfile dup* fcntl ftruncate
 * truncate fsync, sparse files, O_APPEND, shared offsets, and their errno precedence. */
#include "harness.h"
#include <limits.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

CASE(write_then_read_back)
{
    char buffer[16] = {0};
    scratch();
    int fd = file_with("f", "hello", 5);
    CHECK_EQ(read(fd, buffer, sizeof buffer), 5);
    CHECK_STR(buffer, "hello");
    CHECK_EQ(read(fd, buffer, sizeof buffer), 0);
    CHECK_EQ(lseek(fd, 1, SEEK_SET), 1);
    CHECK_EQ(read(fd, buffer, 2), 2);
    CHECK(memcmp(buffer, "el", 2) == 0);
    CHECK_OK(close(fd));
}

CASE(bad_descriptor)
{
    char byte = 0;
    struct iovec vector = {&byte, 1};
    CHECK_ERRNO(read(-1, &byte, 1), EBADF);
    CHECK_ERRNO(write(-1, &byte, 1), EBADF);
    CHECK_ERRNO(read(1000, &byte, 1), EBADF);
    CHECK_ERRNO(syscall(SYS_read, 0x100000000L + 1000, &byte, 1), EBADF);
    CHECK_ERRNO(readv(-1, &vector, 1), EBADF);
    CHECK_ERRNO(writev(1000, &vector, 1), EBADF);
    CHECK_ERRNO(lseek(-1, 0, SEEK_SET), EBADF);
    CHECK_ERRNO(close(-1), EBADF);
    CHECK_ERRNO(close(1000), EBADF);
    CHECK_ERRNO(fsync(-1), EBADF);
    CHECK_ERRNO(fdatasync(1000), EBADF);
    CHECK_ERRNO(ftruncate(1000, 0), EBADF);
    CHECK_ERRNO(dup(1000), EBADF);
    CHECK_ERRNO(fchmod(1000, 0), EBADF);
    CHECK_ERRNO(fchown(1000, 0, 0), EBADF);
    CHECK_ERRNO(fchdir(1000), EBADF);
    CHECK_ERRNO(fcntl(1000, F_GETFD), EBADF);
    CHECK_ERRNO(ioctl(1000, FIONREAD, 0), EBADF);
}

CASE(access_mode_is_enforced)
{
    char byte = 'x';
    scratch();
    close(file_with("f", "abc", 3));
    int reader = open("f", O_RDONLY), writer = open("f", O_WRONLY);
    CHECK(reader >= 0 && writer >= 0);
    CHECK_ERRNO(write(reader, &byte, 1), EBADF);
    CHECK_ERRNO(read(writer, &byte, 1), EBADF);
    CHECK_ERRNO(pread(writer, &byte, 1, 0), EBADF);
    CHECK_ERRNO(pwrite(reader, &byte, 1, 0), EBADF);
    CHECK_ERRNO(ftruncate(reader, 0), EINVAL);
    /* The descriptor is looked at before the pointer. */
    CHECK_ERRNO(write(reader, BAD_LOW, 1), EBADF);
    int path = open("f", O_PATH);
    CHECK(path >= 0);
    CHECK_ERRNO(read(path, &byte, 1), EBADF);
    CHECK_ERRNO(lseek(path, 0, SEEK_SET), EBADF);
}

CASE(directory_is_not_data)
{
    char byte;
    scratch();
    int fd = open(".", O_RDONLY);
    CHECK(fd >= 0);
    CHECK_ERRNO(read(fd, &byte, 1), EISDIR);
    CHECK_ERRNO(pread(fd, &byte, 1, 0), EISDIR);
    CHECK_ERRNO(write(fd, &byte, 1), EBADF);
    CHECK_ERRNO(open(".", O_WRONLY), EISDIR);
    CHECK_ERRNO(truncate(".", 0), EISDIR);
}

CASE(bad_buffer_is_efault)
{
    scratch();
    int fd = file_with("f", "0123456789", 10);
    void *bad[] = {BAD_LOW, BAD_KERNEL, BAD_CANONICAL, NULL};
    for (int i = 0; i < 4; i++) {
        CHECK_ERRNO(syscall(SYS_read, fd, bad[i], 4), EFAULT);
        CHECK_ERRNO(syscall(SYS_write, fd, bad[i], 4), EFAULT);
        CHECK_ERRNO(syscall(SYS_pread64, fd, bad[i], 4, 0), EFAULT);
        CHECK_ERRNO(syscall(SYS_pwrite64, fd, bad[i], 4, 0), EFAULT);
        CHECK_ERRNO(syscall(SYS_readv, fd, bad[i], 1), EFAULT);
        CHECK_ERRNO(syscall(SYS_writev, fd, bad[i], 1), EFAULT);
        struct iovec vector = {bad[i], 4};
        CHECK_ERRNO(syscall(SYS_readv, fd, &vector, 1), EFAULT);
        CHECK_ERRNO(syscall(SYS_writev, fd, &vector, 1), EFAULT);
    }
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 0);
    CHECK_EQ(syscall(SYS_read, fd, BAD_LOW, 0), 0);
    CHECK_EQ(syscall(SYS_write, fd, BAD_LOW, 0), 0);
}

CASE(read_stops_at_end_of_file)
{
    char buffer[100];
    scratch();
    int fd = file_with("f", "0123456789", 10);
    CHECK_EQ(pread(fd, buffer, 100, 4), 6);
    CHECK_EQ(pread(fd, buffer, 100, 10), 0);
    CHECK_EQ(pread(fd, buffer, 100, 1000), 0);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 0);
    CHECK_EQ(lseek(fd, 3, SEEK_END), 13);
    CHECK_EQ(read(fd, buffer, 10), 0);
}

CASE(lseek_whence_and_errors)
{
    int ends[2];
    scratch();
    int fd = file_with("f", "0123456789", 10);
    CHECK_EQ(lseek(fd, 4, SEEK_SET), 4);
    CHECK_EQ(lseek(fd, 2, SEEK_CUR), 6);
    CHECK_EQ(lseek(fd, -1, SEEK_CUR), 5);
    CHECK_EQ(lseek(fd, -10, SEEK_END), 0);
    CHECK_ERRNO(lseek(fd, -11, SEEK_END), EINVAL);
    CHECK_ERRNO(lseek(fd, -1, SEEK_SET), EINVAL);
    CHECK_ERRNO(lseek(fd, 0, 99), EINVAL);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 0);
    CHECK_OK(pipe(ends));
    CHECK_ERRNO(lseek(ends[0], 0, SEEK_CUR), ESPIPE);
    CHECK_ERRNO(pread(ends[0], &ends, 1, 0), ESPIPE);
    CHECK_ERRNO(pwrite(ends[1], &ends, 1, 0), ESPIPE);
    CHECK_ERRNO(pread(fd, &ends, 1, -1), EINVAL);
    CHECK_ERRNO(pwrite(fd, &ends, 1, -1), EINVAL);
}

CASE(lseek_data_and_hole)
{
    scratch();
    int fd = file_with("f", "0123456789", 10);
    CHECK_EQ(lseek(fd, 0, SEEK_DATA), 0);
    CHECK_EQ(lseek(fd, 0, SEEK_HOLE), 10);
    CHECK_ERRNO(lseek(fd, 10, SEEK_DATA), ENXIO);
    CHECK_ERRNO(lseek(fd, 11, SEEK_HOLE), ENXIO);
}

CASE(sparse_file_reads_zero)
{
    static char buffer[8192];
    struct stat status;
    scratch();
    int fd = file_with("f", "start", 5);
    CHECK_EQ(pwrite(fd, "end", 3, 1 << 20), 3);
    CHECK_OK(fstat(fd, &status));
    CHECK_EQ(status.st_size, (1 << 20) + 3);
    memset(buffer, 'x', sizeof buffer);
    CHECK_EQ(pread(fd, buffer, sizeof buffer, 4096), sizeof buffer);
    for (size_t i = 0; i < sizeof buffer; i++)
        CHECK_EQ(buffer[i], 0);
    CHECK_EQ(pread(fd, buffer, 100, (1 << 20) - 1), 4);
    CHECK(memcmp(buffer, "\0end", 4) == 0);
    CHECK(status.st_blocks * 512 < 1 << 19);
}

CASE(append_writes_at_the_end)
{
    char buffer[32];
    scratch();
    close(file_with("f", "one", 3));
    int fd = open("f", O_RDWR | O_APPEND);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    CHECK_EQ(write(fd, "two", 3), 3);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 6);
    /* Linux appends even where POSIX lets pwrite choose its place. */
    CHECK_EQ(pwrite(fd, "six", 3, 0), 3);
    CHECK_EQ(slurp("f", buffer, sizeof buffer), 9);
    CHECK_STR(buffer, "onetwosix");
    CHECK_EQ(fcntl(fd, F_GETFL) & O_APPEND, O_APPEND);
    CHECK_OK(fcntl(fd, F_SETFL, 0));
    CHECK_EQ(pwrite(fd, "ONE", 3, 0), 3);
    slurp("f", buffer, sizeof buffer);
    CHECK_STR(buffer, "ONEtwosix");
}

CASE(append_from_two_processes_loses_nothing)
{
    enum { RECORDS = 200 };
    static char buffer[2 * RECORDS * 8 + 1];
    int seen[2] = {0, 0};
    scratch();
    close(file_with("f", "", 0));
    pid_t children[2];
    for (int who = 0; who < 2; who++) {
        children[who] = fork_or_fail();
        if (children[who] == 0) {
            int fd = open("f", O_WRONLY | O_APPEND);
            char record[8];
            memset(record, 'a' + who, 8);
            for (int i = 0; i < RECORDS; i++)
                CHECK_EQ(write(fd, record, 8), 8);
            _exit(0);
        }
    }
    CHECK_EXITED(children[0], 0);
    CHECK_EXITED(children[1], 0);
    CHECK_EQ(slurp("f", buffer, sizeof buffer), 2 * RECORDS * 8);
    for (int i = 0; i < 2 * RECORDS; i++) {
        for (int k = 1; k < 8; k++)
            CHECK_EQ(buffer[8 * i + k], buffer[8 * i]);
        CHECK(buffer[8 * i] == 'a' || buffer[8 * i] == 'b');
        seen[buffer[8 * i] - 'a']++;
    }
    CHECK_EQ(seen[0], RECORDS);
    CHECK_EQ(seen[1], RECORDS);
}

CASE(vectors_gather_and_scatter)
{
    char one[3], two[4], three[100];
    scratch();
    int fd = file_with("f", "", 0);
    struct iovec out[] = {{"abc", 3}, {"", 0}, {"defg", 4}, {"hi", 2}};
    CHECK_EQ(writev(fd, out, 4), 9);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    struct iovec in[] = {{one, 3}, {two, 4}, {three, 100}};
    CHECK_EQ(readv(fd, in, 3), 9);
    CHECK(memcmp(one, "abc", 3) == 0 && memcmp(two, "defg", 4) == 0 && memcmp(three, "hi", 2) == 0);
    CHECK_EQ(readv(fd, in, 0), 0);
    CHECK_ERRNO(readv(fd, in, -1), EINVAL);
    CHECK_ERRNO(readv(fd, in, 1025), EINVAL);
    in[0].iov_len = SIZE_MAX;
    CHECK_ERRNO(readv(fd, in, 1), EINVAL);
    in[0].iov_len = SSIZE_MAX;
    in[1].iov_len = 1;
    CHECK_EQ(lseek(fd, 9, SEEK_SET), 9);
    CHECK_EQ(preadv(fd, in + 1, 1, 8), 1);
    CHECK_EQ(two[0], 'i');
}

CASE(vector_write_stops_at_bad_buffer)
{
    char buffer[32] = {0};
    scratch();
    int fd = file_with("f", "", 0);
    struct iovec out[] = {{"abc", 3}, {BAD_LOW, 4}, {"hi", 2}};
    ssize_t got = writev(fd, out, 3);
    CHECK_EQ(got, 3);
    CHECK_EQ(pread(fd, buffer, sizeof buffer, 0), 3);
    CHECK_STR(buffer, "abc");
}

CASE(large_transfer)
{
    size_t size = 3 << 20;
    unsigned char *out = malloc(size), *in = malloc(size);
    scratch();
    for (size_t i = 0; i < size; i++)
        out[i] = (unsigned char)(i * 7 + (i >> 12));
    int fd = file_with("f", "", 0);
    CHECK_EQ(write(fd, out + 1, size - 1), size - 1);
    CHECK_EQ(pread(fd, in, size, 0), size - 1);
    CHECK(memcmp(in, out + 1, size - 1) == 0);
}

CASE(shared_offset_after_dup_and_fork)
{
    char buffer[4];
    scratch();
    int fd = file_with("f", "0123456789", 10);
    int twin = dup(fd);
    int other = open("f", O_RDONLY);
    CHECK_EQ(read(fd, buffer, 3), 3);
    CHECK_EQ(lseek(twin, 0, SEEK_CUR), 3);
    CHECK_EQ(lseek(other, 0, SEEK_CUR), 0);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_EQ(read(twin, buffer, 2), 2);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 5);
}

CASE(dup_family)
{
    scratch();
    int fd = file_with("f", "x", 1);
    CHECK_EQ(dup2(fd, 50), 50);
    CHECK_EQ(dup2(fd, fd), fd);
    CHECK_ERRNO(syscall(SYS_dup3, fd, fd, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_dup3, fd, 51, O_APPEND), EINVAL);
    CHECK_EQ(syscall(SYS_dup3, fd, 51, O_CLOEXEC), 51);
    CHECK_EQ(fcntl(51, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(50, F_GETFD), 0);
    CHECK_ERRNO(dup2(1000, 1000), EBADF);
    CHECK_ERRNO(dup2(fd, -1), EBADF);
    CHECK_ERRNO(dup2(fd, 1 << 30), EBADF);
    CHECK_EQ(fcntl(fd, F_DUPFD, 60), 60);
    CHECK_EQ(fcntl(fd, F_DUPFD, 60), 61);
    CHECK_EQ(fcntl(fd, F_DUPFD_CLOEXEC, 60), 62);
    CHECK_EQ(fcntl(62, F_GETFD), FD_CLOEXEC);
    CHECK_ERRNO(fcntl(fd, F_DUPFD, 1 << 30), EINVAL);
    /* The lowest free number is taken. */
    close(50);
    close(fd);
    CHECK_EQ(dup(51), fd);
}

CASE(fcntl_flags)
{
    scratch();
    int fd = open("f", O_RDWR | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0644);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_OK(fcntl(fd, F_SETFD, 0));
    CHECK_EQ(fcntl(fd, F_GETFD), 0);
    CHECK_EQ(fcntl(fd, F_GETFL) & ~0100000 /* O_LARGEFILE */, O_RDWR | O_NONBLOCK);
    CHECK_OK(fcntl(fd, F_SETFL, O_APPEND | O_WRONLY | O_CREAT));
    CHECK_EQ(fcntl(fd, F_GETFL) & ~0100000, O_RDWR | O_APPEND);
    CHECK_ERRNO(fcntl(fd, 9999, 0), EINVAL);
    CHECK_ERRNO(fcntl(fd, F_GETPIPE_SZ), EBADF);
}

CASE(fcntl_record_locks)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 4};
    scratch();
    int fd = file_with("f", "0123456789", 10);
    CHECK_OK(fcntl(fd, F_SETLK, &lock));
    pid_t owner = getpid();
    pid_t child = fork_or_fail();
    if (child == 0) {
        struct flock probe = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};
        CHECK_OK(fcntl(fd, F_GETLK, &probe));
        CHECK_EQ(probe.l_type, F_WRLCK);
        CHECK_EQ(probe.l_start, 2);
        CHECK_EQ(probe.l_len, 4);
        CHECK_EQ(probe.l_pid, owner);
        CHECK_ERRNO(fcntl(fd, F_SETLK, &lock), EAGAIN);
        probe = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 6, .l_len = 1};
        CHECK_OK(fcntl(fd, F_SETLK, &probe));
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    lock.l_type = F_UNLCK;
    CHECK_OK(fcntl(fd, F_SETLK, &lock));
    CHECK_ERRNO(fcntl(fd, F_SETLK, BAD_LOW), EFAULT);
    lock.l_type = 77;
    CHECK_ERRNO(fcntl(fd, F_SETLK, &lock), EINVAL);
}

CASE(flock_excludes)
{
    scratch();
    int fd = file_with("f", "x", 1), other = open("f", O_RDWR);
    CHECK_OK(syscall(SYS_flock, fd, 2 /* LOCK_EX */));
    CHECK_ERRNO(syscall(SYS_flock, other, 2 | 4 /* LOCK_NB */), EAGAIN);
    CHECK_OK(syscall(SYS_flock, fd, 1 /* LOCK_SH */));
    CHECK_OK(syscall(SYS_flock, other, 1 | 4));
    close(fd);
    CHECK_OK(syscall(SYS_flock, other, 2 | 4));
    CHECK_OK(syscall(SYS_flock, other, 8 /* LOCK_UN */));
    CHECK_ERRNO(syscall(SYS_flock, other, 77), EINVAL);
}

CASE(truncate_shrinks_and_grows)
{
    char buffer[16] = {0};
    struct stat status;
    scratch();
    int fd = file_with("f", "0123456789", 10);
    CHECK_OK(ftruncate(fd, 4));
    CHECK_EQ(pread(fd, buffer, 16, 0), 4);
    CHECK_OK(truncate("f", 8));
    CHECK_EQ(pread(fd, buffer, 16, 0), 8);
    CHECK(memcmp(buffer, "0123\0\0\0\0", 8) == 0);
    CHECK_OK(fstat(fd, &status));
    CHECK_EQ(status.st_size, 8);
    CHECK_ERRNO(ftruncate(fd, -1), EINVAL);
    CHECK_ERRNO(truncate("f", -1), EINVAL);
    CHECK_ERRNO(truncate("none", 0), ENOENT);
    CHECK_ERRNO(syscall(SYS_truncate, BAD_LOW, 0), EFAULT);
    CHECK_ERRNO(truncate("f/x", 0), ENOTDIR);
    int ends[2];
    CHECK_OK(pipe(ends));
    CHECK_ERRNO(ftruncate(ends[1], 0), EINVAL);
}

CASE(offset_overflow)
{
    scratch();
    int fd = file_with("f", "", 0);
    CHECK_ERRNO(pwrite(fd, "x", 1, INT64_MAX), EINVAL);
    CHECK_ERRNO(pread(fd, &fd, 1, INT64_MAX), EINVAL);
    CHECK_EQ(lseek(fd, INT64_MAX, SEEK_SET), INT64_MAX);
    CHECK_ERRNO(lseek(fd, 1, SEEK_CUR), EINVAL);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    CHECK_EQ(write(fd, "ok", 2), 2);
}

CASE(sync_family)
{
    scratch();
    int fd = file_with("f", "x", 1), ends[2];
    CHECK_OK(fsync(fd));
    CHECK_OK(fdatasync(fd));
    sync();
    CHECK_OK(pipe(ends));
    CHECK_ERRNO(fsync(ends[0]), EINVAL);
    CHECK_ERRNO(fdatasync(ends[1]), EINVAL);
}

CASE(sendfile_copies)
{
    char buffer[32] = {0};
    int ends[2];
    off_t offset = 2;
    scratch();
    int in = file_with("in", "0123456789", 10), out = file_with("out", "", 0);
    CHECK_EQ(sendfile(out, in, &offset, 5), 5);
    CHECK_EQ(offset, 7);
    CHECK_EQ(lseek(in, 0, SEEK_CUR), 0);
    CHECK_EQ(lseek(out, 0, SEEK_CUR), 5);
    CHECK_EQ(sendfile(out, in, NULL, 100), 10);
    CHECK_EQ(lseek(in, 0, SEEK_CUR), 10);
    CHECK_EQ(sendfile(out, in, NULL, 100), 0);
    slurp("out", buffer, sizeof buffer);
    CHECK_STR(buffer, "234560123456789");
    CHECK_OK(pipe(ends));
    offset = 0;
    CHECK_EQ(sendfile(ends[1], in, &offset, 3), 3);
    CHECK_EQ(read(ends[0], buffer, 32), 3);
    CHECK(memcmp(buffer, "012", 3) == 0);
    CHECK_ERRNO(sendfile(-1, in, NULL, 1), EBADF);
    CHECK_ERRNO(sendfile(out, -1, NULL, 1), EBADF);
    CHECK_ERRNO(syscall(SYS_sendfile, out, in, BAD_LOW, 1), EFAULT);
    int reader = open("out", O_RDONLY);
    CHECK_ERRNO(sendfile(reader, in, &offset, 1), EBADF);
}

CASE(close_is_final_and_lowest_is_reused)
{
    scratch();
    int fd = file_with("f", "x", 1);
    int next = open("f", O_RDONLY);
    CHECK_EQ(next, fd + 1);
    CHECK_OK(close(fd));
    CHECK_ERRNO(close(fd), EBADF);
    CHECK_EQ(open("f", O_RDONLY), fd);
}

CASE(close_range_closes)
{
    scratch();
    file_with("f", "x", 1);
    CHECK_EQ(dup2(0, 40), 40);
    CHECK_EQ(dup2(0, 41), 41);
    CHECK_EQ(dup2(0, 43), 43);
    CHECK_EQ(syscall(SYS_close_range, 41, 100, 0), 0);
    CHECK_EQ(fcntl(40, F_GETFD), 0);
    CHECK_ERRNO(fcntl(41, F_GETFD), EBADF);
    CHECK_ERRNO(fcntl(43, F_GETFD), EBADF);
    CHECK_EQ(syscall(SYS_close_range, 40, 40, 4 /* CLOSE_RANGE_CLOEXEC */), 0);
    CHECK_EQ(fcntl(40, F_GETFD), FD_CLOEXEC);
    CHECK_ERRNO(syscall(SYS_close_range, 41, 40, 0), EINVAL);
}

CASE(unlinked_file_lives_while_open)
{
    char buffer[8] = {0};
    struct stat status;
    scratch();
    int fd = file_with("f", "alive", 5);
    CHECK_OK(unlink("f"));
    CHECK_OK(fstat(fd, &status));
    CHECK_EQ(status.st_nlink, 0);
    CHECK_EQ(read(fd, buffer, 8), 5);
    CHECK_STR(buffer, "alive");
    CHECK_EQ(pwrite(fd, "more", 4, 5), 4);
    CHECK_ERRNO(open("f", O_RDONLY), ENOENT);
}

CASE(null_zero_full_random_devices)
{
    char buffer[64];
    int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR);
    int full = open("/dev/full", O_RDWR), random = open("/dev/urandom", O_RDONLY);
    CHECK(null >= 0 && zero >= 0 && full >= 0 && random >= 0);
    CHECK_EQ(read(null, buffer, 64), 0);
    CHECK_EQ(write(null, buffer, 64), 64);
    memset(buffer, 'x', 64);
    CHECK_EQ(read(zero, buffer, 64), 64);
    for (int i = 0; i < 64; i++)
        CHECK_EQ(buffer[i], 0);
    CHECK_EQ(write(zero, buffer, 64), 64);
    CHECK_EQ(read(full, buffer, 64), 64);
    CHECK_ERRNO(write(full, buffer, 64), ENOSPC);
    CHECK_EQ(read(random, buffer, 64), 64);
    int differs = 0;
    for (int i = 1; i < 64; i++)
        differs |= buffer[i] != buffer[0];
    CHECK(differs);
    struct stat status;
    CHECK_OK(fstat(null, &status));
    CHECK(S_ISCHR(status.st_mode));
    CHECK_EQ(status.st_rdev, 0x103);
    CHECK_OK(fstat(zero, &status));
    CHECK_EQ(status.st_rdev, 0x105);
    CHECK_ERRNO(syscall(SYS_read, zero, BAD_LOW, 4), EFAULT);
    CHECK_ERRNO(ioctl(null, TIOCGWINSZ, buffer), ENOTTY);
}

CASE(fionread_of_a_file_and_nonblock)
{
    int count = -1, on = 1;
    scratch();
    int fd = file_with("f", "0123456789", 10);
    CHECK_EQ(lseek(fd, 4, SEEK_SET), 4);
    CHECK_OK(ioctl(fd, FIONREAD, &count));
    CHECK_EQ(count, 6);
    CHECK_OK(ioctl(fd, FIONBIO, &on));
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
    on = 0;
    CHECK_OK(ioctl(fd, FIONBIO, &on));
    CHECK(!(fcntl(fd, F_GETFL) & O_NONBLOCK));
    CHECK_ERRNO(syscall(SYS_ioctl, fd, FIONBIO, BAD_LOW), EFAULT);
    CHECK_OK(ioctl(fd, FIOCLEX));
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_OK(ioctl(fd, FIONCLEX));
    CHECK_EQ(fcntl(fd, F_GETFD), 0);
    CHECK_ERRNO(ioctl(fd, 0x5401 /* TCGETS */, &on), ENOTTY);
}
