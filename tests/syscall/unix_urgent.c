/* Urgent data of local stream sockets: MSG_OOB, the mark, SIGURG. */
#include "harness.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#ifndef SIOCATMARK
#define SIOCATMARK 0x8905
#endif

static int ends[2];

static void pair(int type)
{
    CHECK_OK(socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, ends));
}

static void sends(const char *text, int flags)
{
    CHECK_EQ(send(ends[0], text, strlen(text), flags), (long)strlen(text));
}

static void receives(const char *text, int flags)
{
    char got[64] = "";
    CHECK_EQ(recv(ends[1], got, sizeof got - 1, flags), (long)strlen(text));
    CHECK_STR(got, text);
}

static int is_at_mark(void)
{
    int answer = -1;
    CHECK_OK(ioctl(ends[1], SIOCATMARK, &answer));
    return answer;
}

static int events(void)
{
    struct pollfd entry = {ends[1], POLLIN | POLLPRI, 0};
    CHECK(poll(&entry, 1, 0) >= 0);
    return entry.revents;
}

CASE(the_last_byte_is_urgent)
{
    char byte = 0;
    pair(SOCK_STREAM);
    CHECK_EQ(events(), 0);
    sends("hello", MSG_OOB);
    CHECK_EQ(events(), POLLIN | POLLPRI);
    CHECK_EQ(recv(ends[1], &byte, 1, MSG_OOB), 1);
    CHECK_EQ(byte, 'o');
    CHECK_EQ(events(), POLLIN);
    CHECK_ERRNO(recv(ends[1], &byte, 1, MSG_OOB), EINVAL);
    receives("hell", 0);
    CHECK_ERRNO(recv(ends[1], &byte, 1, 0), EAGAIN);
}

CASE(urgent_data_are_looked_at)
{
    char byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    pair(SOCK_STREAM);
    sends("ab", MSG_OOB);
    CHECK_EQ(recv(ends[1], &byte, 1, MSG_OOB | MSG_PEEK), 1);
    CHECK_EQ(byte, 'b');
    CHECK_EQ(events(), POLLIN | POLLPRI);
    byte = 0;
    CHECK_EQ(recvmsg(ends[1], &message, MSG_OOB), 1);
    CHECK_EQ(byte, 'b');
    CHECK_EQ(message.msg_flags & MSG_OOB, MSG_OOB);
}

CASE(readers_stop_at_the_mark)
{
    pair(SOCK_STREAM);
    sends("before", 0);
    sends("!", MSG_OOB);
    sends("after", 0);
    CHECK_EQ(is_at_mark(), 0);
    receives("before", 0);
    CHECK_EQ(is_at_mark(), 1);
    receives("!", MSG_OOB);
    CHECK_EQ(is_at_mark(), 1);
    receives("after", 0);
    CHECK_EQ(is_at_mark(), 0);
}

CASE(readers_stop_where_the_urgent_byte_was)
{
    pair(SOCK_STREAM);
    sends("before", 0);
    sends("!", MSG_OOB);
    sends("after", 0);
    receives("!", MSG_OOB);
    receives("before", 0);
    receives("after", 0);
}

CASE(an_urgent_byte_that_nobody_wants_is_lost)
{
    char byte;
    pair(SOCK_STREAM);
    sends("1!", MSG_OOB);
    sends("2", 0);
    receives("1", 0);
    receives("2", 0);
    CHECK_ERRNO(recv(ends[1], &byte, 1, MSG_OOB), EINVAL);
    CHECK_EQ(events(), 0);
}

CASE(a_second_urgent_byte_takes_the_place_of_the_first)
{
    pair(SOCK_STREAM);
    sends("a", MSG_OOB);
    sends("b", MSG_OOB);
    receives("b", MSG_OOB);
    receives("a", 0);
}

CASE(urgent_data_come_in_line_when_asked_for)
{
    int on = 1;
    char byte;
    pair(SOCK_STREAM);
    CHECK_OK(setsockopt(ends[1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on));
    sends("ab", 0);
    sends("!", MSG_OOB);
    sends("cd", 0);
    CHECK_ERRNO(recv(ends[1], &byte, 1, MSG_OOB), EINVAL);
    receives("ab", 0);
    CHECK_EQ(is_at_mark(), 1);
    receives("!cd", 0);
}

CASE(the_owner_gets_sigurg)
{
    sigset_t set;
    struct timespec limit = {20, 0};
    siginfo_t info;
    pair(SOCK_STREAM);
    sigemptyset(&set);
    sigaddset(&set, SIGURG);
    CHECK_OK(sigprocmask(SIG_BLOCK, &set, NULL));
    sends("x", MSG_OOB);
    CHECK_OK(fcntl(ends[1], F_SETOWN, getpid()));
    sends("x", 0);
    CHECK_OK(sigpending(&set));
    CHECK_EQ(sigismember(&set, SIGURG), 0);
    sends("x", MSG_OOB);
    sigemptyset(&set);
    sigaddset(&set, SIGURG);
    CHECK_EQ(sigtimedwait(&set, &info, &limit), SIGURG);
    CHECK_EQ(info.si_code, SI_KERNEL);
}

CASE(what_cannot_be_urgent)
{
    char byte;
    pair(SOCK_STREAM);
    CHECK_ERRNO(send(ends[0], "", 0, MSG_OOB), EOPNOTSUPP);
    CHECK_ERRNO(recv(ends[1], &byte, 1, MSG_OOB), EINVAL);
    pair(SOCK_DGRAM);
    CHECK_ERRNO(send(ends[0], "a", 1, MSG_OOB), EOPNOTSUPP);
    CHECK_ERRNO(recv(ends[1], &byte, 1, MSG_OOB), EOPNOTSUPP);
    pair(SOCK_SEQPACKET);
    CHECK_ERRNO(send(ends[0], "a", 1, MSG_OOB), EOPNOTSUPP);
    CHECK_ERRNO(recv(ends[1], &byte, 1, MSG_OOB), EOPNOTSUPP);
}

CASE(errors_of_urgent_sends)
{
    char byte;
    signal(SIGPIPE, SIG_IGN);
    pair(SOCK_STREAM);
    CHECK_EQ(send(ends[0], "a", 1, MSG_OOB), 1);
    CHECK_ERRNO(send(ends[0], BAD_LOW, 1, MSG_OOB), EFAULT);
    CHECK_OK(shutdown(ends[1], SHUT_RD));
    CHECK_ERRNO(send(ends[0], "a", 1, MSG_OOB), EPIPE);
    int lone = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_OK(lone);
    CHECK_ERRNO(send(lone, "a", 1, MSG_OOB), ENOTCONN);
    CHECK_ERRNO(recv(lone, &byte, 1, MSG_OOB), EINVAL);
}

