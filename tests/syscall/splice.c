/* Bytes that move inside the kernel: splice, tee, vmsplice, sendfile, copy_file_range; the size and the
 * packet mode of pipes; readahead and sync_file_range. */
#include "harness.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/uio.h>

static int reader, writer;

static void make_pipe(int flags)
{
    int ends[2];
    CHECK_OK(pipe2(ends, flags));
    reader = ends[0];
    writer = ends[1];
}

static int waiting_bytes(int fd)
{
    int count = -1;
    CHECK_OK(ioctl(fd, FIONREAD, &count));
    return count;
}

static void on_signal(int number)
{
    (void)number;
}

CASE(splice_file_to_pipe_and_back)
{
    static char content[100000], back[100000];
    scratch();
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (char)(i * 7 + i / 256);
    int from = file_with("from", content, sizeof content), to = file_with("to", "", 0);
    make_pipe(0);
    size_t done = 0;
    while (done < sizeof content) {
        ssize_t in = splice(from, NULL, writer, NULL, sizeof content, 0);
        CHECK(in > 0 && in <= 65536);
        CHECK_EQ(waiting_bytes(reader), in);
        ssize_t out = splice(reader, NULL, to, NULL, (size_t)in, SPLICE_F_MOVE);
        CHECK_EQ(out, in);
        done += (size_t)in;
    }
    CHECK_EQ(splice(from, NULL, writer, NULL, 100, 0), 0);
    CHECK_EQ(lseek(from, 0, SEEK_CUR), sizeof content);
    CHECK_EQ(lseek(to, 0, SEEK_CUR), sizeof content);
    CHECK_EQ(pread(to, back, sizeof back, 0), sizeof back);
    CHECK(memcmp(content, back, sizeof back) == 0);
}

CASE(splice_at_offsets_leaves_positions)
{
    char buffer[16] = {0};
    loff_t in = 2, out = 5;
    scratch();
    int from = file_with("from", "0123456789", 10), to = file_with("to", "abcdefghij", 10);
    make_pipe(0);
    CHECK_EQ(splice(from, &in, writer, NULL, 4, 0), 4);
    CHECK_EQ(in, 6);
    CHECK_EQ(lseek(from, 0, SEEK_CUR), 0);
    CHECK_EQ(splice(reader, NULL, to, &out, 3, 0), 3);
    CHECK_EQ(out, 8);
    CHECK_EQ(lseek(to, 0, SEEK_CUR), 0);
    CHECK_EQ(pread(to, buffer, 10, 0), 10);
    CHECK_STR(buffer, "abcde234ij");
    CHECK_EQ(read(reader, buffer, 16), 1);
    CHECK_EQ(buffer[0], '5');
}

CASE(splice_errors)
{
    loff_t zero = 0, negative = -1;
    scratch();
    int file = file_with("f", "0123456789", 10), other = file_with("g", "x", 1);
    int read_only = open("f", O_RDONLY), append = open("f", O_WRONLY | O_APPEND);
    int path = open("f", O_PATH), directory = open(".", O_RDONLY);
    make_pipe(O_NONBLOCK);
    CHECK_EQ(write(writer, "abc", 3), 3);
    CHECK_EQ(splice(-1, NULL, -1, NULL, 0, ~0u), 0);
    CHECK_ERRNO(splice(file, NULL, writer, NULL, 1, 16), EINVAL);
    CHECK_ERRNO(splice(99, NULL, writer, NULL, 1, 0), EBADF);
    CHECK_ERRNO(splice(file, NULL, 99, NULL, 1, 0), EBADF);
    CHECK_ERRNO(splice(path, NULL, writer, NULL, 1, 0), EBADF);
    CHECK_ERRNO(splice(file, NULL, other, NULL, 1, 0), EINVAL);
    CHECK_ERRNO(splice(reader, &zero, file, NULL, 1, 0), ESPIPE);
    CHECK_ERRNO(splice(file, NULL, writer, &zero, 1, 0), ESPIPE);
    CHECK_ERRNO(splice(file, BAD_LOW, writer, NULL, 1, 0), EFAULT);
    CHECK_ERRNO(splice(reader, NULL, file, BAD_LOW, 1, 0), EFAULT);
    CHECK_ERRNO(splice(reader, NULL, read_only, NULL, 1, 0), EBADF);
    CHECK_ERRNO(splice(writer, NULL, file, NULL, 1, 0), EBADF);
    CHECK_ERRNO(splice(file, NULL, reader, NULL, 1, 0), EBADF);
    CHECK_ERRNO(splice(reader, NULL, append, NULL, 1, 0), EINVAL);
    CHECK_ERRNO(splice(reader, NULL, writer, NULL, 1, 0), EINVAL);
    CHECK_ERRNO(splice(directory, NULL, writer, NULL, 1, 0), EINVAL);
    CHECK_ERRNO(splice(file, &negative, writer, NULL, 1, 0), EINVAL);
    CHECK_ERRNO(splice(reader, NULL, file, &negative, 1, 0), EINVAL);
    /* Nothing of what failed took anything. */
    CHECK_EQ(waiting_bytes(reader), 3);
}

CASE(splice_into_full_and_out_of_empty_pipes)
{
    static char block[65536];
    scratch();
    int file = file_with("f", block, sizeof block);
    make_pipe(0);
    CHECK_ERRNO(splice(reader, NULL, file, NULL, 1, SPLICE_F_NONBLOCK), EAGAIN);
    CHECK_EQ(splice(file, NULL, writer, NULL, 1 << 20, 0), 65536);
    CHECK_EQ(lseek(file, 0, SEEK_SET), 0);
    CHECK_ERRNO(splice(file, NULL, writer, NULL, 1, SPLICE_F_NONBLOCK), EAGAIN);
    CHECK_EQ(fcntl(writer, F_SETFL, O_NONBLOCK), 0);
    CHECK_ERRNO(splice(file, NULL, writer, NULL, 1, 0), EAGAIN);
    CHECK_EQ(lseek(file, 0, SEEK_CUR), 0);
    close(writer);
    CHECK_EQ(splice(reader, NULL, file, NULL, 1 << 20, 0), 65536);
    CHECK_EQ(splice(reader, NULL, file, NULL, 1, 0), 0);
    make_pipe(0);
    close(reader);
    signal(SIGPIPE, SIG_IGN);
    CHECK_EQ(lseek(file, 0, SEEK_SET), 0);
    CHECK_ERRNO(splice(file, NULL, writer, NULL, 1, 0), EPIPE);
    pid_t child = fork_or_fail();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        splice(file, NULL, writer, NULL, 1, 0);
        _exit(0);
    }
    CHECK_KILLED(child, SIGPIPE);
}

CASE(splice_waits_for_data_and_is_interruptible)
{
    struct sigaction action = {.sa_handler = on_signal};
    char buffer[8] = {0};
    scratch();
    int file = file_with("f", "", 0);
    make_pipe(0);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_EQ(write(writer, "late", 4), 4);
        _exit(0);
    }
    CHECK_EQ(splice(reader, NULL, file, NULL, 100, 0), 4);
    CHECK_EXITED(child, 0);
    CHECK_EQ(pread(file, buffer, 8, 0), 4);
    CHECK_STR(buffer, "late");
    sigaction(SIGUSR1, &action, NULL);
    child = pesterer(SIGUSR1);
    CHECK_ERRNO(splice(reader, NULL, file, NULL, 100, 0), EINTR);
    kill(child, SIGKILL);
    CHECK_KILLED(child, SIGKILL);
}

CASE(splice_between_pipes)
{
    char buffer[16] = {0};
    int ends[2];
    make_pipe(0);
    CHECK_OK(pipe(ends));
    CHECK_EQ(write(writer, "abcdef", 6), 6);
    CHECK_EQ(splice(reader, NULL, ends[1], NULL, 4, 0), 4);
    CHECK_EQ(waiting_bytes(reader), 2);
    CHECK_EQ(write(ends[1], "XY", 2), 2);
    CHECK_EQ(write(writer, "gh", 2), 2);
    CHECK_EQ(read(ends[0], buffer, 16), 6);
    CHECK_STR(buffer, "abcdXY");
    memset(buffer, 0, sizeof buffer);
    CHECK_EQ(read(reader, buffer, 16), 4);
    CHECK_STR(buffer, "efgh");
    CHECK_ERRNO(splice(reader, NULL, ends[1], NULL, 4, SPLICE_F_NONBLOCK), EAGAIN);
    close(writer);
    CHECK_EQ(splice(reader, NULL, ends[1], NULL, 4, 0), 0);
}

CASE(tee_duplicates)
{
    char buffer[16] = {0};
    int ends[2], file;
    scratch();
    file = file_with("f", "x", 1);
    make_pipe(0);
    CHECK_OK(pipe(ends));
    CHECK_EQ(write(writer, "abcdef", 6), 6);
    CHECK_EQ(tee(reader, ends[1], 4, 0), 4);
    CHECK_EQ(waiting_bytes(reader), 6);
    /* What was duplicated is apart from what comes later. */
    CHECK_EQ(write(writer, "gh", 2), 2);
    CHECK_EQ(write(ends[1], "XY", 2), 2);
    CHECK_EQ(read(reader, buffer, 16), 8);
    CHECK_STR(buffer, "abcdefgh");
    memset(buffer, 0, sizeof buffer);
    CHECK_EQ(read(ends[0], buffer, 16), 6);
    CHECK_STR(buffer, "abcdXY");
    CHECK_EQ(tee(-1, -1, 0, 0), 0);
    CHECK_ERRNO(tee(reader, ends[1], 1, 16), EINVAL);
    CHECK_ERRNO(tee(reader, ends[1], 0, 16), EINVAL);
    CHECK_ERRNO(tee(99, ends[1], 1, 0), EBADF);
    CHECK_ERRNO(tee(reader, ends[0], 1, 0), EBADF);
    CHECK_ERRNO(tee(reader, writer, 1, 0), EINVAL);
    CHECK_ERRNO(tee(file, writer, 1, 0), EINVAL);
    CHECK_ERRNO(tee(reader, ends[1], 1, SPLICE_F_NONBLOCK), EAGAIN);
    close(writer);
    CHECK_EQ(tee(reader, ends[1], 1, 0), 0);
}

CASE(vmsplice_both_ways)
{
    static char big[200000];
    char one[4] = {0}, two[8] = {0};
    scratch();
    make_pipe(0);
    struct iovec out[2] = {{"abc", 3}, {"defg", 4}}, in[2] = {{one, 3}, {two, 8}};
    CHECK_EQ(vmsplice(writer, out, 2, 0), 7);
    CHECK_EQ(vmsplice(reader, in, 2, 0), 7);
    CHECK_STR(one, "abc");
    CHECK_STR(two, "defg");
    CHECK_ERRNO(vmsplice(reader, in, 2, SPLICE_F_NONBLOCK), EAGAIN);
    CHECK_EQ(vmsplice(writer, out, 0, 0), 0);
    CHECK_ERRNO(vmsplice(writer, out, 1025, 0), EINVAL);
    CHECK_ERRNO(vmsplice(writer, out, 1, 16), EINVAL);
    CHECK_ERRNO(vmsplice(99, out, 1, 0), EBADF);
    CHECK_ERRNO(vmsplice(file_with("f", "x", 1), out, 1, 0), EBADF);
    CHECK_ERRNO(vmsplice(writer, BAD_LOW, 1, 0), EFAULT);
    out[0].iov_base = BAD_LOW;
    CHECK_ERRNO(vmsplice(writer, out, 1, 0), EFAULT);
    struct iovec much = {big, sizeof big};
    ssize_t got = vmsplice(writer, &much, 1, 0);
    CHECK(got > 0 && got <= 65536);
    CHECK_ERRNO(vmsplice(writer, &much, 1, SPLICE_F_NONBLOCK), EAGAIN);
    CHECK_EQ(waiting_bytes(reader), got);
}

CASE(pages_of_a_file_in_a_pipe_are_not_written_to)
{
    char buffer[64] = {0};
    scratch();
    int file = file_with("f", "0123456789", 10);
    make_pipe(0);
    CHECK_EQ(splice(file, NULL, writer, NULL, 4, 0), 4);
    CHECK_EQ(write(writer, "XXXXXX", 6), 6);
    CHECK_EQ(pread(file, buffer, 64, 0), 10);
    CHECK_STR(buffer, "0123456789");
    memset(buffer, 0, sizeof buffer);
    CHECK_EQ(read(reader, buffer, 64), 10);
    CHECK_STR(buffer, "0123XXXXXX");
}

CASE(pipe_size_limits)
{
    make_pipe(0);
    CHECK_EQ(fcntl(writer, F_GETPIPE_SZ), 65536);
    CHECK_EQ(fcntl(writer, F_SETPIPE_SZ, 0), 4096);
    CHECK_EQ(fcntl(reader, F_GETPIPE_SZ), 4096);
    CHECK_EQ(fcntl(reader, F_SETPIPE_SZ, 4097), 8192);
    CHECK_EQ(fcntl(reader, F_SETPIPE_SZ, 100000), 131072);
    CHECK_EQ(write(writer, (char[5000]){0}, 5000), 5000);
    CHECK_ERRNO(fcntl(writer, F_SETPIPE_SZ, 4096), EBUSY);
    CHECK_EQ(fcntl(writer, F_SETPIPE_SZ, 8192), 8192);
    CHECK_ERRNO(fcntl(writer, F_SETPIPE_SZ, 0x80000001), EINVAL);
    scratch();
    CHECK_ERRNO(fcntl(file_with("f", "x", 1), F_GETPIPE_SZ), EBADF);
    CHECK_ERRNO(fcntl(0, F_SETPIPE_SZ, 4096), EBADF);
    pid_t child = fork_or_fail();
    if (child == 0) {
        make_pipe(0);
        CHECK_OK(setresuid(1000, 1000, 1000));
        CHECK_EQ(fcntl(writer, F_SETPIPE_SZ, 1 << 20), 1 << 20);
        CHECK_ERRNO(fcntl(writer, F_SETPIPE_SZ, (1 << 20) + 1), EPERM);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(packet_mode_can_change)
{
    char buffer[16] = {0};
    make_pipe(O_DIRECT);
    CHECK_EQ(fcntl(writer, F_GETFL), O_WRONLY | O_DIRECT);
    CHECK_EQ(write(writer, "abc", 3), 3);
    CHECK_EQ(write(writer, "def", 3), 3);
    CHECK_EQ(read(reader, buffer, 2), 2);
    CHECK_EQ(read(reader, buffer, 16), 3);
    CHECK(memcmp(buffer, "def", 3) == 0);
    CHECK_OK(fcntl(writer, F_SETFL, 0));
    CHECK_EQ(write(writer, "abc", 3), 3);
    CHECK_EQ(write(writer, "def", 3), 3);
    CHECK_EQ(read(reader, buffer, 16), 6);
    CHECK_OK(fcntl(writer, F_SETFL, O_DIRECT));
    CHECK_EQ(write(writer, "abc", 3), 3);
    CHECK_EQ(write(writer, "def", 3), 3);
    CHECK_EQ(read(reader, buffer, 16), 3);
    CHECK_EQ(read(reader, buffer, 16), 3);
}

CASE(sendfile_to_a_pipe_stops_when_it_is_full)
{
    static char block[200000];
    scratch();
    int file = file_with("f", block, sizeof block);
    off_t offset = 10;
    make_pipe(0);
    CHECK_EQ(syscall(SYS_sendfile, writer, file, &offset, 5), 5);
    CHECK_EQ(offset, 15);
    CHECK_EQ(waiting_bytes(reader), 5);
    CHECK_OK(fcntl(writer, F_SETFL, O_NONBLOCK));
    ssize_t got = 0;
    for (ssize_t part; (part = syscall(SYS_sendfile, writer, file, NULL, sizeof block)) > 0;)
        got += part;
    CHECK_EQ(errno, EAGAIN);
    CHECK(got >= 61440 && got <= 65536);
    CHECK_EQ(lseek(file, 0, SEEK_CUR), got);
}

CASE(sendfile_past_the_size_limit)
{
    scratch();
    int from = file_with("from", "0123456789", 10), to = file_with("to", "", 0);
    struct rlimit limit = {4, 4};
    CHECK_OK(setrlimit(RLIMIT_FSIZE, &limit));
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_EQ(lseek(to, 4, SEEK_SET), 4);
        syscall(SYS_sendfile, to, from, NULL, 4);
        _exit(0);
    }
    CHECK_KILLED(child, SIGXFSZ);
    signal(SIGXFSZ, SIG_IGN);
    CHECK_EQ(lseek(to, 0, SEEK_SET), 0);
    CHECK_EQ(lseek(from, 0, SEEK_SET), 0);
    CHECK_EQ(syscall(SYS_sendfile, to, from, NULL, 10), 4);
    CHECK_ERRNO(syscall(SYS_sendfile, to, from, NULL, 10), EFBIG);
}

static ssize_t copy_range(int from, loff_t *in, int to, loff_t *out, size_t length, unsigned flags)
{
    return syscall(SYS_copy_file_range, from, in, to, out, length, flags);
}

CASE(copy_file_range_rules)
{
    char buffer[32] = {0};
    loff_t in, out;
    scratch();
    int from = file_with("from", "0123456789", 10), to = file_with("to", "", 0);
    int append = open("to", O_WRONLY | O_APPEND), directory = open(".", O_RDONLY);
    CHECK_EQ(copy_range(from, NULL, to, NULL, 4, 0), 4);
    CHECK_EQ(lseek(from, 0, SEEK_CUR), 4);
    CHECK_EQ(lseek(to, 0, SEEK_CUR), 4);
    in = 8, out = 4;
    CHECK_EQ(copy_range(from, &in, to, &out, 100, 0), 2);
    CHECK_EQ(in, 10);
    CHECK_EQ(out, 6);
    CHECK_EQ(pread(to, buffer, 32, 0), 6);
    CHECK_STR(buffer, "012389");
    CHECK_EQ(copy_range(from, &in, to, &out, 100, 0), 0);
    CHECK_ERRNO(copy_range(from, NULL, to, NULL, 1, 1), EINVAL);
    CHECK_ERRNO(copy_range(from, NULL, append, NULL, 1, 0), EBADF);
    CHECK_ERRNO(copy_range(append, NULL, from, NULL, 1, 0), EBADF);
    CHECK_ERRNO(copy_range(directory, NULL, to, NULL, 1, 0), EISDIR);
    make_pipe(0);
    CHECK_ERRNO(copy_range(reader, NULL, to, NULL, 1, 0), EINVAL);
    CHECK_ERRNO(copy_range(99, NULL, to, NULL, 1, 0), EBADF);
    CHECK_ERRNO(copy_range(from, BAD_LOW, to, NULL, 1, 0), EFAULT);
    /* Within one file the length is cut at the end of the file first. */
    in = 8, out = 10;
    CHECK_EQ(copy_range(from, &in, from, &out, 100, 0), 2);
    in = 0, out = 5;
    CHECK_ERRNO(copy_range(from, &in, from, &out, 6, 0), EINVAL);
    in = 0, out = 5;
    CHECK_EQ(copy_range(from, &in, from, &out, 5, 0), 5);
    in = INT64_MAX, out = 0;
    CHECK_ERRNO(copy_range(from, &in, to, &out, SIZE_MAX, 0), EOVERFLOW);
    in = -1;
    CHECK_ERRNO(copy_range(from, &in, to, &out, 1, 0), EOVERFLOW);
    in = -5;
    CHECK_ERRNO(copy_range(from, &in, to, &out, 1, 0), EINVAL);
}

CASE(copy_file_range_stays_in_one_file_system)
{
    scratch();
    CHECK_OK(mkdir("m", 0755));
    CHECK_OK(mount("none", "m", "tmpfs", 0, NULL));
    int from = file_with("from", "0123456789", 10), to = file_with("m/to", "", 0);
    CHECK_ERRNO(copy_range(from, NULL, to, NULL, 4, 0), EXDEV);
    CHECK_EQ(syscall(SYS_sendfile, to, from, NULL, 4), 4);
}

CASE(readahead_and_sync_file_range)
{
    scratch();
    int file = file_with("f", "0123456789", 10), write_only = open("f", O_WRONLY);
    make_pipe(0);
    CHECK_EQ(readahead(file, 0, 4096), 0);
    CHECK_EQ(readahead(file, 1 << 20, 0), 0);
    CHECK_ERRNO(readahead(write_only, 0, 1), EBADF);
    CHECK_ERRNO(readahead(99, 0, 1), EBADF);
    CHECK_ERRNO(readahead(open("f", O_PATH), 0, 1), EBADF);
    CHECK_ERRNO(readahead(reader, 0, 1), EINVAL);
    CHECK_EQ(sync_file_range(file, 0, 0, 7), 0);
    CHECK_EQ(sync_file_range(file, 5, 100, SYNC_FILE_RANGE_WRITE), 0);
    CHECK_ERRNO(sync_file_range(file, 0, 0, 8), EINVAL);
    CHECK_ERRNO(sync_file_range(file, -1, 0, 0), EINVAL);
    CHECK_ERRNO(sync_file_range(file, 1, -1, 0), EINVAL);
    CHECK_ERRNO(sync_file_range(file, INT64_MAX, 1, 0), EINVAL);
    CHECK_ERRNO(sync_file_range(reader, 0, 0, 0), ESPIPE);
    CHECK_ERRNO(sync_file_range(99, 0, 0, 8), EBADF);
}

enum { HIPRI = 1, DSYNC = 2, SYNC = 4, APPEND = 16 };

static ssize_t read_parts(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    return syscall(SYS_preadv2, fd, parts, count, offset, 0L, flags);
}

static ssize_t write_parts(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    return syscall(SYS_pwritev2, fd, parts, count, offset, 0L, flags);
}

CASE(pwritev2_flags)
{
    char buffer[16] = {0};
    struct iovec part = {"xyz", 3}, into = {buffer, 16};
    scratch();
    int file = file_with("f", "0123456789", 10);
    /* At -1 the position is used, and moves to the end of what was appended. */
    CHECK_EQ(write_parts(file, &part, 1, -1, APPEND), 3);
    CHECK_EQ(lseek(file, 0, SEEK_CUR), 13);
    CHECK_EQ(lseek(file, 2, SEEK_SET), 2);
    CHECK_EQ(write_parts(file, &part, 1, 0, APPEND), 3);
    CHECK_EQ(lseek(file, 0, SEEK_CUR), 2);
    CHECK_EQ(write_parts(file, &part, 1, -1, DSYNC | SYNC | HIPRI), 3);
    CHECK_EQ(lseek(file, 0, SEEK_CUR), 5);
    CHECK_EQ(read_parts(file, &into, 1, 10, HIPRI), 6);
    CHECK(memcmp(buffer, "xyzxyz", 6) == 0);
    CHECK_EQ(read_parts(file, &into, 1, -1, 0), 11);
    CHECK_EQ(lseek(file, 0, SEEK_CUR), 16);
    CHECK_ERRNO(read_parts(file, &into, 1, 0, 1 << 20), EOPNOTSUPP);
    CHECK_ERRNO(write_parts(file, &part, 1, -2, 0), EINVAL);
    make_pipe(0);
    CHECK_EQ(write_parts(writer, &part, 1, -1, 0), 3);
    CHECK_EQ(read_parts(reader, &into, 1, -1, 0), 3);
    CHECK_ERRNO(write_parts(writer, &part, 1, 0, 0), ESPIPE);
}

CASE(close_range_flags)
{
    CHECK_EQ(dup2(0, 50), 50);
    CHECK_EQ(dup2(0, 51), 51);
    CHECK_ERRNO(syscall(SYS_close_range, 50, 51, 1), EINVAL);
    CHECK_ERRNO(syscall(SYS_close_range, 50, 51, 8), EINVAL);
    CHECK_ERRNO(syscall(SYS_close_range, 51, 50, 4), EINVAL);
    CHECK_EQ(syscall(SYS_close_range, 60, ~0u, 0), 0);
    CHECK_EQ(syscall(SYS_close_range, 51, ~0u, 4), 0);
    CHECK_EQ(fcntl(50, F_GETFD), 0);
    CHECK_EQ(fcntl(51, F_GETFD), FD_CLOEXEC);
    /* A child that shares the table gets one of its own. */
    pid_t child = (pid_t)syscall(SYS_clone, 0x400 /* CLONE_FILES */ | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        CHECK_EQ(syscall(SYS_close_range, 50, ~0u, 2), 0);
        CHECK_ERRNO(fcntl(50, F_GETFD), EBADF);
        CHECK_EQ(fcntl(1, F_GETFD), 0);
        CHECK_EQ(dup2(0, 70), 70);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(fcntl(50, F_GETFD), 0);
    CHECK_ERRNO(fcntl(70, F_GETFD), EBADF);
    child = (pid_t)syscall(SYS_clone, 0x400 | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        CHECK_EQ(syscall(SYS_close_range, 50, 50, 6), 0);
        CHECK_EQ(fcntl(50, F_GETFD), FD_CLOEXEC);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(fcntl(50, F_GETFD), 0);
}

CASE(mknod_makes_all_kinds)
{
    static const struct { const char *name; mode_t mode; } kinds[] = {
        {"regular", S_IFREG}, {"none", 0}, {"character", S_IFCHR},
        {"block", S_IFBLK}, {"fifo", S_IFIFO}, {"socket", S_IFSOCK}};
    struct stat status;
    scratch();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        CHECK_OK(mknod(kinds[i].name, kinds[i].mode | 0666, 0x1234));
        CHECK_OK(lstat(kinds[i].name, &status));
        CHECK_EQ(status.st_mode, (kinds[i].mode ? kinds[i].mode : S_IFREG) | 0644);
        CHECK_EQ(status.st_size, 0);
        CHECK_EQ(status.st_rdev, S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode) ? 0x1234 : 0);
        CHECK_ERRNO(mknod(kinds[i].name, kinds[i].mode | 0666, 0x1234), EEXIST);
    }
    CHECK_ERRNO(mknod("d", S_IFDIR | 0777, 0), EPERM);
    CHECK_ERRNO(mknod("d", S_IFLNK | 0777, 0), EINVAL);
    CHECK_ERRNO(mknod("regular/x", S_IFREG, 0), ENOTDIR);
    CHECK_ERRNO(open("socket", O_RDONLY), ENXIO);
    CHECK_ERRNO(open("character", O_RDONLY), ENXIO);
    CHECK_ERRNO(open("block", O_RDONLY), ENXIO);
    CHECK_OK(chmod(".", 0777));
    CHECK_OK(mkdir("closed", 0755));
    CHECK_OK(setresuid(1000, 1000, 1000));
    CHECK_ERRNO(mknod("character", S_IFCHR | 0666, 0x1234), EEXIST);
    CHECK_ERRNO(mknod("new", S_IFCHR | 0666, 0x1234), EPERM);
    CHECK_ERRNO(mknod("new", S_IFBLK | 0666, 0), EPERM);
    CHECK_ERRNO(mknod("closed/new", S_IFBLK | 0666, 0x1234), EACCES);
    CHECK_OK(mknod("whiteout", S_IFCHR | 0666, 0));
    CHECK_OK(mknod("new", S_IFSOCK | 0666, 0));
}

CASE(nameless_files)
{
    char link[64];
    struct stat status;
    scratch();
    int file = open(".", O_TMPFILE | O_RDWR, 0640);
    CHECK(file >= 0);
    CHECK_OK(fstat(file, &status));
    CHECK_EQ(status.st_nlink, 0);
    CHECK_EQ(status.st_mode, S_IFREG | 0640);
    CHECK_EQ(write(file, "abc", 3), 3);
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    CHECK_OK(linkat(AT_FDCWD, link, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    CHECK_OK(linkat(file, "", AT_FDCWD, "again", AT_EMPTY_PATH));
    CHECK_OK(stat("named", &status));
    CHECK_EQ(status.st_nlink, 2);
    CHECK_EQ(status.st_size, 3);
    file = open(".", O_TMPFILE | O_EXCL | O_WRONLY, 0600);
    CHECK(file >= 0);
    CHECK_ERRNO(linkat(file, "", AT_FDCWD, "never", AT_EMPTY_PATH), ENOENT);
    CHECK_ERRNO(open(".", O_TMPFILE | O_RDONLY, 0600), EINVAL);
    CHECK_ERRNO(open(".", O_TMPFILE | O_CREAT | O_RDWR, 0600), EINVAL);
    CHECK_ERRNO(open(".", (O_TMPFILE & ~O_DIRECTORY) | O_RDWR, 0600), EINVAL);
    CHECK_ERRNO(open("named", O_TMPFILE | O_RDWR, 0600), ENOTDIR);
    CHECK_ERRNO(open("nothing", O_TMPFILE | O_RDWR, 0600), ENOENT);
    CHECK_ERRNO(open("/proc", O_TMPFILE | O_RDWR, 0600), EOPNOTSUPP);
    CHECK(open(".", O_TMPFILE | O_PATH, 0600) >= 0);
    CHECK_OK(setresuid(1000, 1000, 1000));
    CHECK_ERRNO(open(".", O_TMPFILE | O_RDWR, 0600), EACCES);
}
