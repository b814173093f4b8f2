/* Pipes and fifos, poll ppoll select pselect6: capacity, atomicity, end of file, blocking, readiness,
 * time-outs, masks, bad pointers. */
#include "harness.h"
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/uio.h>

static int reader, writer;

static void make_pipe(int flags)
{
    int ends[2];
    CHECK_OK(pipe2(ends, flags));
    reader = ends[0];
    writer = ends[1];
}

static void on_signal(int number)
{
    (void)number;
}

CASE(bytes_pass_in_order)
{
    char buffer[16] = {0};
    make_pipe(0);
    CHECK_EQ(write(writer, "abc", 3), 3);
    CHECK_EQ(write(writer, "def", 3), 3);
    CHECK_EQ(read(reader, buffer, 2), 2);
    CHECK_EQ(read(reader, buffer + 2, 16), 4);
    CHECK_STR(buffer, "abcdef");
    CHECK_ERRNO(write(reader, "x", 1), EBADF);
    CHECK_ERRNO(read(writer, buffer, 1), EBADF);
}

CASE(flags_and_errors)
{
    int ends[2] = {-7, -7};
    make_pipe(O_NONBLOCK | O_CLOEXEC);
    CHECK_EQ(fcntl(reader, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(writer, F_GETFL), O_WRONLY | O_NONBLOCK);
    CHECK_EQ(fcntl(reader, F_GETFL), O_RDONLY | O_NONBLOCK);
    CHECK_ERRNO(pipe2(ends, 077), EINVAL);
    CHECK_ERRNO(syscall(SYS_pipe, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_pipe2, BAD_KERNEL, 0), EFAULT);
    CHECK_EQ(ends[0], -7);
    struct stat status;
    CHECK_OK(fstat(reader, &status));
    CHECK(S_ISFIFO(status.st_mode));
    /* The failed calls kept no descriptors. */
    int next = dup(0);
    CHECK_EQ(next, writer + 1);
}

CASE(end_of_file_when_the_last_writer_closes)
{
    char byte;
    make_pipe(0);
    int twin = dup(writer);
    CHECK_EQ(write(writer, "x", 1), 1);
    close(writer);
    CHECK_EQ(read(reader, &byte, 1), 1);
    fcntl(reader, F_SETFL, O_NONBLOCK);
    CHECK_ERRNO(read(reader, &byte, 1), EAGAIN);
    close(twin);
    CHECK_EQ(read(reader, &byte, 1), 0);
    CHECK_EQ(read(reader, &byte, 1), 0);
}

CASE(capacity_is_64_kib)
{
    static char block[70000];
    int count = -1;
    make_pipe(O_NONBLOCK);
    CHECK_EQ(fcntl(reader, F_GETPIPE_SZ), 65536);
    CHECK_EQ(write(writer, block, sizeof block), 65536);
    CHECK_ERRNO(write(writer, block, 1), EAGAIN);
    CHECK_OK(ioctl(reader, FIONREAD, &count));
    CHECK_EQ(count, 65536);
    CHECK_EQ(read(reader, block, 4096), 4096);
    CHECK_EQ(write(writer, block, 4096), 4096);
    CHECK_ERRNO(write(writer, block, 1), EAGAIN);
}

CASE(capacity_can_change)
{
    make_pipe(O_NONBLOCK);
    int size = fcntl(writer, F_SETPIPE_SZ, 100000);
    CHECK(size >= 100000);
    CHECK_EQ(fcntl(reader, F_GETPIPE_SZ), size);
    CHECK_EQ(fcntl(writer, F_SETPIPE_SZ, 1), 4096);
    static char block[8192];
    CHECK_EQ(write(writer, block, 8192), 4096);
}

CASE(small_writes_are_atomic)
{
    enum { WRITERS = 3, RECORDS = 300, SIZE = 512 };
    char record[SIZE];
    int seen[WRITERS] = {0};
    make_pipe(0);
    for (int who = 0; who < WRITERS; who++) {
        if (fork_or_fail() == 0) {
            memset(record, who, SIZE);
            for (int i = 0; i < RECORDS; i++)
                CHECK_EQ(write(writer, record, SIZE), SIZE);
            _exit(0);
        }
    }
    close(writer);
    for (;;) {
        size_t length = 0;
        while (length < SIZE) {
            ssize_t got = read(reader, record + length, SIZE - length);
            CHECK(got >= 0);
            if (got == 0)
                break;
            length += (size_t)got;
        }
        if (length == 0)
            break;
        CHECK_EQ(length, SIZE);
        for (int i = 1; i < SIZE; i++)
            CHECK_EQ(record[i], record[0]);
        seen[(int)record[0]]++;
    }
    for (int who = 0; who < WRITERS; who++)
        CHECK_EQ(seen[who], RECORDS);
}

CASE(nonblocking_small_write_is_all_or_nothing)
{
    static char block[65536];
    make_pipe(O_NONBLOCK);
    CHECK_EQ(write(writer, block, 65536 - 100), 65536 - 100);
    CHECK_ERRNO(write(writer, block, 4096), EAGAIN);
    int count = 0;
    CHECK_OK(ioctl(reader, FIONREAD, &count));
    CHECK_EQ(count, 65536 - 100);
}

CASE(megabytes_through_a_pipe)
{
    enum { TOTAL = 4 << 20 };
    static unsigned char block[30011];
    unsigned long sum = 0, expected = 0;
    make_pipe(0);
    pid_t child = fork_or_fail();
    if (child == 0) {
        close(reader);
        for (size_t done = 0; done < TOTAL;) {
            size_t size = TOTAL - done < sizeof block ? TOTAL - done : sizeof block;
            for (size_t i = 0; i < size; i++)
                block[i] = (unsigned char)((done + i) * 31 >> 3);
            CHECK_EQ(write(writer, block, size), size);
            done += size;
        }
        _exit(0);
    }
    close(writer);
    size_t done = 0;
    ssize_t got;
    while ((got = read(reader, block, 7777)) > 0) {
        for (ssize_t i = 0; i < got; i++, done++) {
            sum += block[i];
            expected += (unsigned char)(done * 31 >> 3);
        }
        CHECK_EQ(sum, expected);
    }
    CHECK_EQ(got, 0);
    CHECK_EQ(done, TOTAL);
    CHECK_EXITED(child, 0);
}

CASE(write_to_a_blocked_reader_wakes_it)
{
    char byte = 0;
    int back[2];
    make_pipe(0);
    CHECK_OK(pipe(back));
    pid_t child = fork_or_fail();
    if (child == 0) {
        close(writer);
        for (;;) {
            ssize_t got = read(reader, &byte, 1);
            if (got == 0)
                _exit(0);
            byte++;
            CHECK_EQ(write(back[1], &byte, 1), 1);
        }
    }
    close(reader);
    for (int i = 0; i < 1000; i++) {
        byte = (char)i;
        CHECK_EQ(write(writer, &byte, 1), 1);
        CHECK_EQ(read(back[0], &byte, 1), 1);
        CHECK_EQ(byte, (char)(i + 1));
    }
    close(writer);
    CHECK_EXITED(child, 0);
}

CASE(partial_write_when_interrupted)
{
    static char block[1 << 20];
    struct sigaction action = {.sa_handler = on_signal};
    make_pipe(0);
    sigaction(SIGUSR1, &action, NULL);
    pid_t child = pesterer(SIGUSR1);
    ssize_t got = write(writer, block, sizeof block);
    CHECK(got == 65536 || (got == -1 && errno == EINTR));
    kill(child, SIGKILL);
    CHECK_KILLED(child, SIGKILL);
}

CASE(fifo_joins_two_processes)
{
    char buffer[8] = {0};
    scratch();
    CHECK_OK(mkfifo("fifo", 0600));
    CHECK_ERRNO(open("fifo", O_WRONLY | O_NONBLOCK), ENXIO);
    int early = open("fifo", O_RDONLY | O_NONBLOCK);
    CHECK(early >= 0);
    CHECK_EQ(read(early, buffer, 1), 0); /* No writer: end of file. */
    close(early);
    pid_t child = fork_or_fail();
    if (child == 0) {
        int fd = open("fifo", O_WRONLY); /* Waits for the reader. */
        CHECK_EQ(write(fd, "hello", 5), 5);
        _exit(0);
    }
    int fd = open("fifo", O_RDONLY);
    CHECK_EQ(read(fd, buffer, 5), 5);
    CHECK_STR(buffer, "hello");
    CHECK_EQ(read(fd, buffer, 5), 0);
    CHECK_EXITED(child, 0);
    int both = open("fifo", O_RDWR);
    CHECK(both >= 0);
    CHECK_EQ(write(both, "x", 1), 1);
    CHECK_EQ(read(both, buffer, 1), 1);
}

CASE(fifo_open_is_interruptible)
{
    struct sigaction action = {.sa_handler = on_signal};
    scratch();
    CHECK_OK(mkfifo("fifo", 0600));
    sigaction(SIGUSR1, &action, NULL);
    pid_t child = pesterer(SIGUSR1);
    CHECK_ERRNO(open("fifo", O_RDONLY), EINTR);
    kill(child, SIGKILL);
    CHECK_KILLED(child, SIGKILL);
}

CASE(poll_reports_readiness)
{
    static char block[65536];
    make_pipe(0);
    struct pollfd set[3] = {{reader, POLLIN | POLLOUT, 99}, {writer, POLLIN | POLLOUT, 99}, {-1, POLLIN, 99}};
    CHECK_EQ(poll(set, 3, 0), 1);
    CHECK_EQ(set[0].revents, 0);
    CHECK_EQ(set[1].revents, POLLOUT);
    CHECK_EQ(set[2].revents, 0);
    CHECK_EQ(write(writer, block, 65536), 65536);
    CHECK_EQ(poll(set, 3, -1), 1);
    CHECK_EQ(set[0].revents, POLLIN);
    CHECK_EQ(set[1].revents, 0);
    close(writer);
    CHECK_EQ(poll(set, 1, -1), 1);
    CHECK_EQ(set[0].revents, POLLIN | POLLHUP);
    set[1].events = 0;
    CHECK_EQ(poll(set, 2, -1), 2);
    CHECK_EQ(set[1].revents, POLLNVAL);
}

CASE(poll_of_a_pipe_without_readers)
{
    make_pipe(0);
    close(reader);
    struct pollfd set = {writer, POLLOUT, 0};
    CHECK_EQ(poll(&set, 1, 0), 1);
    CHECK_EQ(set.revents, POLLOUT | POLLERR);
}

CASE(poll_of_files_is_always_ready)
{
    scratch();
    struct pollfd set[2] = {{file_with("f", "", 0), POLLIN | POLLOUT, 0},
                            {open("/dev/null", O_RDWR), POLLIN | POLLOUT, 0}};
    CHECK_EQ(poll(set, 2, -1), 2);
    CHECK_EQ(set[0].revents, POLLIN | POLLOUT);
    CHECK_EQ(set[1].revents & (POLLIN | POLLOUT), POLLIN | POLLOUT);
}

CASE(poll_wakes_on_write_and_on_close)
{
    make_pipe(0);
    struct pollfd set = {reader, POLLIN, 0};
    pid_t child = fork_or_fail();
    if (child == 0) {
        sleep_ms(20);
        CHECK_EQ(write(writer, "x", 1), 1);
        _exit(0);
    }
    close(writer);
    CHECK_EQ(poll(&set, 1, -1), 1);
    CHECK(set.revents & POLLIN);
    CHECK_EXITED(child, 0);
    char byte;
    CHECK_EQ(read(reader, &byte, 1), 1);
    CHECK_EQ(poll(&set, 1, -1), 1);
    CHECK_EQ(set.revents, POLLHUP);
}

CASE(poll_timeout_and_errors)
{
    make_pipe(0);
    struct pollfd set = {reader, POLLIN, 0};
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK_EQ(poll(&set, 1, 30), 0);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 30000000);
    CHECK_EQ(poll(NULL, 0, 1), 0);
    CHECK_ERRNO(syscall(SYS_poll, BAD_LOW, 1, 0), EFAULT);
    CHECK_ERRNO(syscall(SYS_poll, &set, 1 << 30, 0), EINVAL);
    CHECK_EQ(syscall(SYS_poll, BAD_LOW, 0, 0), 0);
    struct timespec wrong = {0, -1};
    CHECK_ERRNO(syscall(SYS_ppoll, &set, 1, &wrong, NULL, 8), EINVAL);
    CHECK_ERRNO(syscall(SYS_ppoll, &set, 1, BAD_LOW, NULL, 8), EFAULT);
    CHECK_ERRNO(syscall(SYS_ppoll, &set, 1, NULL, BAD_LOW, 8), EFAULT);
    uint64_t mask = 0;
    CHECK_ERRNO(syscall(SYS_ppoll, &set, 1, NULL, &mask, 4), EINVAL);
}

CASE(poll_is_never_restarted)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    make_pipe(0);
    sigaction(SIGUSR1, &action, NULL);
    pid_t child = pesterer(SIGUSR1);
    struct pollfd set = {reader, POLLIN, 0};
    CHECK_ERRNO(poll(&set, 1, -1), EINTR);
    fd_set readers;
    FD_ZERO(&readers);
    FD_SET(reader, &readers);
    CHECK_ERRNO(select(reader + 1, &readers, NULL, NULL, NULL), EINTR);
    kill(child, SIGKILL);
    CHECK_KILLED(child, SIGKILL);
}

static volatile sig_atomic_t delivered;

static void on_delivery(int number)
{
    delivered = number;
}

CASE(ppoll_and_pselect_swap_the_mask)
{
    sigset_t blocked, none, now;
    struct sigaction action = {.sa_handler = on_delivery};
    struct timespec long_time = {1000, 0};
    make_pipe(0);
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigaction(SIGUSR1, &action, NULL);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    struct pollfd set = {reader, POLLIN, 0};
    kill(getpid(), SIGUSR1);
    CHECK_EQ(delivered, 0);
    CHECK_ERRNO(ppoll(&set, 1, &long_time, &none), EINTR);
    CHECK_EQ(delivered, SIGUSR1);
    sigprocmask(SIG_BLOCK, NULL, &now);
    CHECK(sigismember(&now, SIGUSR1));
    delivered = 0;
    kill(getpid(), SIGUSR1);
    fd_set readers;
    FD_ZERO(&readers);
    FD_SET(reader, &readers);
    CHECK_ERRNO(pselect(reader + 1, &readers, NULL, NULL, &long_time, &none), EINTR);
    CHECK_EQ(delivered, SIGUSR1);
}

CASE(select_reports_readiness)
{
    fd_set readers, writers, exceptions;
    struct timeval none = {0, 0};
    make_pipe(0);
    FD_ZERO(&readers);
    FD_ZERO(&writers);
    FD_ZERO(&exceptions);
    FD_SET(reader, &readers);
    FD_SET(writer, &writers);
    FD_SET(reader, &exceptions);
    CHECK_EQ(select(writer + 1, &readers, &writers, &exceptions, &none), 1);
    CHECK(!FD_ISSET(reader, &readers));
    CHECK(FD_ISSET(writer, &writers));
    CHECK(!FD_ISSET(reader, &exceptions));
    CHECK_EQ(write(writer, "x", 1), 1);
    FD_SET(reader, &readers);
    CHECK_EQ(select(writer + 1, &readers, &writers, NULL, NULL), 2);
    CHECK(FD_ISSET(reader, &readers));
}

CASE(select_timeout_and_errors)
{
    fd_set readers;
    struct timeval little = {0, 30000}, wrong = {0, -1};
    make_pipe(0);
    FD_ZERO(&readers);
    FD_SET(reader, &readers);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK_EQ(syscall(SYS_select, reader + 1, &readers, NULL, NULL, &little), 0);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 30000000);
    CHECK(!FD_ISSET(reader, &readers));
    CHECK_EQ(little.tv_sec, 0); /* Linux writes back what is left. */
    CHECK_EQ(little.tv_usec, 0);
    CHECK_ERRNO(syscall(SYS_select, -1, NULL, NULL, NULL, NULL), EINVAL);
    CHECK_ERRNO(syscall(SYS_select, 0, NULL, NULL, NULL, &wrong), EINVAL);
    CHECK_ERRNO(syscall(SYS_select, 5, BAD_LOW, NULL, NULL, NULL), EFAULT);
    CHECK_ERRNO(syscall(SYS_select, 0, NULL, NULL, NULL, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_pselect6, 0, NULL, NULL, NULL, BAD_LOW, NULL), EFAULT);
    CHECK_ERRNO(syscall(SYS_pselect6, 0, NULL, NULL, NULL, NULL, BAD_LOW), EFAULT);
    FD_ZERO(&readers);
    FD_SET(60, &readers);
    CHECK_ERRNO(select(61, &readers, NULL, NULL, &little), EBADF);
}

CASE(socketpair_carries_both_ways)
{
    /* Not in the list of calls that must exist; if it exists it must work. */
    int ends[2];
    char buffer[8] = {0};
    if (syscall(SYS_socketpair, 1 /* AF_UNIX */, 1 /* SOCK_STREAM */, 0, ends) == -1) {
        CHECK(errno == ENOSYS || errno == EAFNOSUPPORT);
        return;
    }
    CHECK_EQ(write(ends[0], "ab", 2), 2);
    CHECK_EQ(write(ends[1], "cd", 2), 2);
    CHECK_EQ(read(ends[1], buffer, 8), 2);
    CHECK_STR(buffer, "ab");
    CHECK_EQ(read(ends[0], buffer, 8), 2);
    CHECK_STR(buffer, "cd");
    close(ends[1]);
    CHECK_EQ(read(ends[0], buffer, 8), 0);
}

CASE(vector_through_a_pipe)
{
    char one[2], two[3];
    make_pipe(0);
    struct iovec out[2] = {{"ab", 2}, {"cde", 3}}, in[2] = {{one, 2}, {two, 3}};
    CHECK_EQ(writev(writer, out, 2), 5);
    CHECK_EQ(readv(reader, in, 2), 5);
    CHECK(memcmp(one, "ab", 2) == 0 && memcmp(two, "cde", 3) == 0);
    /* A bad buffer takes nothing out. */
    CHECK_EQ(write(writer, "z", 1), 1);
    CHECK_ERRNO(syscall(SYS_read, reader, BAD_LOW, 1), EFAULT);
    CHECK_EQ(read(reader, one, 1), 1);
    CHECK_EQ(one[0], 'z');
    CHECK_ERRNO(syscall(SYS_write, writer, BAD_LOW, 1), EFAULT);
}
