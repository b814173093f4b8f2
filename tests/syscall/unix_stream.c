/* Local stream sockets: pairs, reading and writing, the end of either side, waiting, limits. */
#include "unix_pair.h"
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>

static void on_signal(int number)
{
    (void)number;
}

CASE(bytes_pass_both_ways)
{
    char buffer[16] = {0};
    make_pair(SOCK_STREAM);
    CHECK_EQ(write(left, "abc", 3), 3);
    CHECK_EQ(write(left, "def", 3), 3);
    CHECK_EQ(read(right, buffer, 2), 2);
    CHECK_EQ(read(right, buffer + 2, 14), 4);
    CHECK_STR(buffer, "abcdef");
    CHECK_EQ(write(right, "back", 4), 4);
    CHECK_EQ(read(left, buffer, 16), 4);
    CHECK(memcmp(buffer, "back", 4) == 0);
}

CASE(pairs_have_the_flags_that_were_asked_for)
{
    int ends[2] = {-7, -7};
    make_pair(SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK_EQ(fcntl(left, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(right, F_GETFL), O_RDWR | O_NONBLOCK);
    CHECK_ERRNO(socketpair(AF_UNIX, SOCK_STREAM | 0x100, 0, ends), EINVAL);
    CHECK_ERRNO(socketpair(AF_UNIX, SOCK_STREAM, 0, BAD_LOW), EFAULT);
    CHECK_EQ(ends[0], -7);
    struct stat status;
    CHECK_OK(fstat(left, &status));
    CHECK(S_ISSOCK(status.st_mode));
    CHECK_EQ(status.st_mode & 0777, 0777);
    CHECK_ERRNO(lseek(left, 0, SEEK_SET), ESPIPE);
    int next = dup(0);
    CHECK_EQ(next, right + 1);
}

CASE(descriptors_are_named_socket_in_proc)
{
    char path[64], text[64] = {0}, wanted[64];
    struct stat status;
    make_pair(SOCK_STREAM);
    CHECK_OK(fstat(left, &status));
    snprintf(path, sizeof path, "/proc/self/fd/%d", left);
    CHECK(readlink(path, text, sizeof text - 1) > 0);
    snprintf(wanted, sizeof wanted, "socket:[%llu]", (unsigned long long)status.st_ino);
    CHECK_STR(text, wanted);
    CHECK_ERRNO(open(path, O_RDWR), ENXIO);
}

CASE(closing_is_the_end_of_the_file_for_the_peer)
{
    char byte;
    make_pair(SOCK_STREAM);
    CHECK_EQ(write(left, "x", 1), 1);
    close(left);
    CHECK_EQ(read(right, &byte, 1), 1);
    CHECK_EQ(read(right, &byte, 1), 0);
    CHECK_EQ(read(right, &byte, 1), 0);
}

CASE(writing_to_a_closed_peer_is_a_broken_pipe)
{
    make_pair(SOCK_STREAM);
    close(left);
    signal(SIGPIPE, SIG_IGN);
    CHECK_ERRNO(write(right, "x", 1), EPIPE);
    CHECK_ERRNO(send(right, "x", 1, MSG_NOSIGNAL), EPIPE);
    pid_t child = fork_or_fail();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        if (send(right, "x", 1, MSG_NOSIGNAL) != -1 || errno != EPIPE)
            _exit(1);
        write(right, "x", 1);
        _exit(2);
    }
    CHECK_KILLED(child, SIGPIPE);
}

CASE(closing_with_bytes_unread_resets_the_peer)
{
    char byte;
    make_pair(SOCK_STREAM);
    CHECK_EQ(write(right, "unread", 6), 6);
    CHECK_EQ(write(left, "y", 1), 1);
    close(left);
    CHECK_EQ(events_of(right, POLLIN | POLLOUT | POLLRDHUP) & (POLLERR | POLLHUP | POLLRDHUP),
             POLLERR | POLLHUP | POLLRDHUP);
    CHECK_EQ(read(right, &byte, 1), 1);
    CHECK_ERRNO(read(right, &byte, 1), ECONNRESET);
    CHECK_EQ(read(right, &byte, 1), 0);
}

CASE(nothing_to_read_is_eagain_without_waiting)
{
    char byte;
    make_pair(SOCK_STREAM | SOCK_NONBLOCK);
    CHECK_ERRNO(read(left, &byte, 1), EAGAIN);
    CHECK_ERRNO(recv(left, &byte, 1, 0), EAGAIN);
    CHECK_OK(fcntl(left, F_SETFL, 0));
    CHECK_ERRNO(recv(left, &byte, 1, MSG_DONTWAIT), EAGAIN);
    int on = 1;
    CHECK_OK(ioctl(left, FIONBIO, &on));
    CHECK_ERRNO(read(left, &byte, 1), EAGAIN);
}

CASE(a_read_of_nothing_does_not_wait)
{
    char byte;
    make_pair(SOCK_STREAM);
    CHECK_EQ(read(left, &byte, 0), 0);
    CHECK_EQ(write(left, &byte, 0), 0);
}

CASE(a_reader_waits_for_a_writer)
{
    char buffer[8] = {0};
    make_pair(SOCK_STREAM);
    pid_t child = fork_or_fail();
    if (child == 0) {
        sleep_ms(20);
        _exit(write(right, "late", 4) == 4 ? 0 : 1);
    }
    CHECK_EQ(read(left, buffer, sizeof buffer), 4);
    CHECK_STR(buffer, "late");
    CHECK_EXITED(child, 0);
}

CASE(a_reader_is_woken_by_the_end)
{
    char byte;
    make_pair(SOCK_STREAM);
    pid_t child = fork_or_fail();
    if (child == 0) {
        close(left);
        sleep_ms(20);
        _exit(0);
    }
    close(right);
    CHECK_EQ(read(left, &byte, 1), 0);
    CHECK_EXITED(child, 0);
}

CASE(a_full_socket_takes_no_more_until_it_is_read)
{
    static char bytes[4096];
    make_pair(SOCK_STREAM | SOCK_NONBLOCK);
    long total = 0;
    ssize_t count;
    CHECK(events_of(left, POLLOUT) & POLLOUT);
    while ((count = write(left, bytes, sizeof bytes)) > 0)
        total += count;
    CHECK_EQ(count, -1);
    CHECK_EQ(errno, EAGAIN);
    CHECK(total >= 65536 && total <= 1 << 20);
    CHECK_EQ(events_of(left, POLLOUT), 0);
    CHECK(events_of(right, POLLIN) & POLLIN);
    long received = 0;
    while ((count = read(right, bytes, sizeof bytes)) > 0)
        received += count;
    CHECK_EQ(received, total);
    CHECK(events_of(left, POLLOUT) & POLLOUT);
}

CASE(small_writes_are_charged_for_more_than_their_bytes)
{
    make_pair(SOCK_STREAM | SOCK_NONBLOCK);
    int count = 0;
    while (write(left, "x", 1) == 1)
        count++;
    CHECK_EQ(errno, EAGAIN);
    CHECK_EQ(count, 278);
    int unread = 0;
    CHECK_OK(ioctl(right, FIONREAD, &unread));
    CHECK_EQ(unread, 278);
}

CASE(a_large_write_waits_for_the_reader)
{
    enum { SIZE = 1 << 20 };
    static char bytes[SIZE];
    make_pair(SOCK_STREAM);
    for (int at = 0; at < SIZE; at++)
        bytes[at] = (char)(at * 7 + at / 4096);
    pid_t child = fork_or_fail();
    if (child == 0) {
        close(left);
        _exit(write(right, bytes, SIZE) == SIZE ? 0 : 1);
    }
    close(right);
    static char got[SIZE];
    long received = 0;
    ssize_t count;
    while ((count = read(left, got + received, SIZE - (size_t)received)) > 0)
        received += count;
    CHECK_EQ(received, SIZE);
    CHECK(memcmp(bytes, got, SIZE) == 0);
    CHECK_EXITED(child, 0);
}

CASE(a_large_write_ends_when_the_reader_goes)
{
    enum { SIZE = 1 << 20 };
    static char bytes[SIZE];
    make_pair(SOCK_STREAM);
    signal(SIGPIPE, SIG_IGN);
    pid_t child = fork_or_fail();
    if (child == 0) {
        close(left);
        ssize_t count = write(right, bytes, SIZE);
        if (count <= 0 || count == SIZE)
            _exit(1);
        _exit(write(right, bytes, 1) == -1 && errno == EPIPE ? 0 : 2);
    }
    close(right);
    CHECK_EQ(read(left, bytes, 1), 1);
    close(left);
    CHECK_EXITED(child, 0);
}

CASE(vectors_are_gathered_and_scattered)
{
    char first[3] = {0}, second[8] = {0};
    struct iovec out[2] = {{"ab", 2}, {"cdef", 4}}, in[2] = {{first, 2}, {second, 8}};
    make_pair(SOCK_STREAM);
    CHECK_EQ(writev(left, out, 2), 6);
    CHECK_EQ(readv(right, in, 2), 6);
    CHECK_STR(first, "ab");
    CHECK_STR(second, "cdef");
    CHECK_ERRNO(pread(left, first, 1, 0), ESPIPE);
    CHECK_ERRNO(pwrite(left, first, 1, 0), ESPIPE);
}

CASE(peeking_leaves_the_bytes)
{
    char buffer[16] = {0};
    make_pair(SOCK_STREAM);
    CHECK_EQ(send(left, "abc", 3, 0), 3);
    CHECK_EQ(send(left, "def", 3, 0), 3);
    CHECK_EQ(recv(right, buffer, 16, MSG_PEEK), 6);
    CHECK_STR(buffer, "abcdef");
    memset(buffer, 0, sizeof buffer);
    CHECK_EQ(recv(right, buffer, 2, MSG_PEEK), 2);
    CHECK_STR(buffer, "ab");
    CHECK_EQ(recv(right, buffer, 16, 0), 6);
    CHECK_STR(buffer, "abcdef");
    CHECK_ERRNO(recv(right, buffer, 16, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
}

CASE(waitall_waits_for_all)
{
    char buffer[16] = {0};
    make_pair(SOCK_STREAM);
    pid_t child = fork_or_fail();
    if (child == 0) {
        send(left, "abc", 3, 0);
        sleep_ms(20);
        send(left, "def", 3, 0);
        _exit(0);
    }
    CHECK_EQ(recv(right, buffer, 6, MSG_WAITALL), 6);
    CHECK_STR(buffer, "abcdef");
    CHECK_EXITED(child, 0);
    send(left, "gh", 2, 0);
    CHECK_OK(shutdown(left, SHUT_WR));
    CHECK_EQ(recv(right, buffer, 6, MSG_WAITALL), 2);
}

CASE(shutdown_ends_one_direction)
{
    char byte;
    make_pair(SOCK_STREAM);
    signal(SIGPIPE, SIG_IGN);
    CHECK_ERRNO(shutdown(left, 3), EINVAL);
    CHECK_ERRNO(shutdown(left, -1), EINVAL);
    CHECK_EQ(write(left, "x", 1), 1);
    CHECK_OK(shutdown(left, SHUT_WR));
    CHECK_ERRNO(write(left, "x", 1), EPIPE);
    CHECK_EQ(events_of(right, POLLIN | POLLOUT | POLLRDHUP), POLLIN | POLLOUT | POLLRDHUP);
    CHECK_EQ(read(right, &byte, 1), 1);
    CHECK_EQ(read(right, &byte, 1), 0);
    CHECK_EQ(write(right, "y", 1), 1);
    CHECK_EQ(read(left, &byte, 1), 1);
    CHECK_OK(shutdown(left, SHUT_RD));
    CHECK_ERRNO(write(right, "y", 1), EPIPE);
    CHECK_EQ(events_of(right, POLLIN | POLLOUT | POLLRDHUP),
             POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
    CHECK_EQ(read(left, &byte, 1), 0);
}

CASE(what_is_ready_is_told)
{
    make_pair(SOCK_STREAM);
    CHECK_EQ(events_of(left, POLLIN | POLLOUT), POLLOUT);
    CHECK_EQ(write(left, "x", 1), 1);
    CHECK_EQ(events_of(right, POLLIN | POLLOUT), POLLIN | POLLOUT);
    close(left);
    CHECK_EQ(events_of(right, POLLIN | POLLOUT | POLLRDHUP),
             POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
    int alone = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_EQ(events_of(alone, POLLIN | POLLOUT), POLLOUT | POLLHUP);
}

CASE(poll_wakes_when_something_comes)
{
    make_pair(SOCK_STREAM);
    pid_t child = fork_or_fail();
    if (child == 0) {
        sleep_ms(20);
        _exit(write(right, "x", 1) == 1 ? 0 : 1);
    }
    struct pollfd entry = {left, POLLIN, 0};
    CHECK_EQ(poll(&entry, 1, 20000), 1);
    CHECK_EQ(entry.revents, POLLIN);
    CHECK_EXITED(child, 0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(left, &set);
    struct timeval none = {0, 0};
    CHECK_EQ(select(left + 1, &set, 0, 0, &none), 1);
}

CASE(time_limits_end_a_wait)
{
    char byte;
    struct timeval limit = {0, 20000}, got;
    socklen_t length = sizeof got;
    make_pair(SOCK_STREAM);
    CHECK_OK(setsockopt(left, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    CHECK_OK(getsockopt(left, SOL_SOCKET, SO_RCVTIMEO, &got, &length));
    CHECK_EQ(length, sizeof got);
    CHECK_EQ(got.tv_sec, 0);
    CHECK_EQ(got.tv_usec, 20000);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK_ERRNO(read(left, &byte, 1), EAGAIN);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 15000000);
    limit.tv_usec = 1000000;
    CHECK_ERRNO(setsockopt(left, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), EDOM);
    static char bytes[1 << 20];
    limit.tv_usec = 20000;
    CHECK_OK(setsockopt(left, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    ssize_t count = write(left, bytes, sizeof bytes);
    CHECK(count > 0 && count < (ssize_t)sizeof bytes);
    CHECK_ERRNO(write(left, bytes, sizeof bytes), EAGAIN);
}

CASE(a_signal_ends_a_wait)
{
    char byte;
    make_pair(SOCK_STREAM);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, 0);
    pid_t pest = pesterer(SIGUSR1);
    CHECK_ERRNO(read(left, &byte, 1), EINTR);
    kill(pest, SIGKILL);
    harness_wait(pest);
}

CASE(a_bad_buffer_loses_no_bytes)
{
    char buffer[8] = {0};
    make_pair(SOCK_STREAM);
    CHECK_EQ(write(left, "abc", 3), 3);
    CHECK_ERRNO(read(right, BAD_LOW, 3), EFAULT);
    CHECK_ERRNO(recv(right, BAD_KERNEL, 3, 0), EFAULT);
    CHECK_ERRNO(write(left, BAD_LOW, 3), EFAULT);
    CHECK_EQ(read(right, buffer, 8), 3);
    CHECK_STR(buffer, "abc");
}
