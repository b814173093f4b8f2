/* Local datagram and seqpacket sockets: records, names, peers, limits of queues, what is told of a
 * message, many messages at a time. */
#include "unix_pair.h"
#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>

static socklen_t named(struct sockaddr_un *address, const char *path)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    strcpy(address->sun_path, path);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path) + 1);
}

static int bound(int type, const char *path)
{
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, type, 0);
    CHECK(fd >= 0);
    socklen_t length = named(&address, path);
    CHECK_OK(bind(fd, (struct sockaddr *)&address, length));
    return fd;
}

CASE(records_stay_apart)
{
    char buffer[16] = {0};
    int types[] = {SOCK_DGRAM, SOCK_SEQPACKET};
    for (int at = 0; at < 2; at++) {
        make_pair(types[at]);
        CHECK_EQ(send(left, "abc", 3, 0), 3);
        CHECK_EQ(send(left, "de", 2, 0), 2);
        CHECK_EQ(write(left, "f", 1), 1);
        CHECK_EQ(recv(right, buffer, 16, 0), 3);
        CHECK_EQ(read(right, buffer, 16), 2);
        CHECK_EQ(read(right, buffer, 16), 1);
        CHECK_EQ(buffer[0], 'f');
        CHECK_ERRNO(recv(right, buffer, 16, MSG_DONTWAIT), EAGAIN);
    }
}

CASE(an_empty_record_is_a_record)
{
    char byte;
    make_pair(SOCK_DGRAM);
    CHECK_EQ(send(left, "", 0, 0), 0);
    CHECK_EQ(write(left, "", 0), 0);
    CHECK_EQ(events_of(right, POLLIN), POLLIN);
    CHECK_EQ(recv(right, &byte, 1, 0), 0);
    CHECK_EQ(recv(right, &byte, 1, MSG_DONTWAIT), 0);
    CHECK_ERRNO(recv(right, &byte, 1, MSG_DONTWAIT), EAGAIN);
}

CASE(what_does_not_fit_is_lost)
{
    char buffer[4] = {0};
    struct iovec vector = {buffer, 3};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    make_pair(SOCK_DGRAM);
    CHECK_EQ(send(left, "abcdef", 6, 0), 6);
    CHECK_EQ(send(left, "ghijkl", 6, 0), 6);
    CHECK_EQ(send(left, "mn", 2, 0), 2);
    CHECK_EQ(recvmsg(right, &message, 0), 3);
    CHECK_EQ(message.msg_flags, MSG_TRUNC);
    CHECK_STR(buffer, "abc");
    CHECK_EQ(recv(right, buffer, 3, MSG_TRUNC), 6);
    CHECK_STR(buffer, "ghi");
    CHECK_EQ(recvmsg(right, &message, 0), 2);
    CHECK_EQ(message.msg_flags, 0);
}

CASE(looking_does_not_take)
{
    char buffer[8] = {0};
    make_pair(SOCK_DGRAM);
    CHECK_EQ(send(left, "abc", 3, 0), 3);
    CHECK_EQ(send(left, "de", 2, 0), 2);
    CHECK_EQ(recv(right, buffer, 8, MSG_PEEK), 3);
    CHECK_EQ(recv(right, buffer, 1, MSG_PEEK | MSG_TRUNC), 3);
    CHECK_EQ(recv(right, buffer, 8, 0), 3);
    CHECK_EQ(recv(right, buffer, 8, 0), 2);
}

CASE(looking_can_go_on)
{
    char buffer[8] = {0};
    int offset = -1;
    socklen_t length = sizeof offset;
    make_pair(SOCK_STREAM);
    CHECK_OK(getsockopt(right, SOL_SOCKET, SO_PEEK_OFF, &offset, &length));
    CHECK_EQ(offset, -1);
    offset = 1;
    CHECK_OK(setsockopt(right, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset));
    CHECK_EQ(send(left, "abcdef", 6, 0), 6);
    CHECK_EQ(recv(right, buffer, 2, MSG_PEEK), 2);
    CHECK_STR(buffer, "bc");
    CHECK_EQ(recv(right, buffer, 2, MSG_PEEK), 2);
    CHECK_STR(buffer, "de");
    CHECK_EQ(recv(right, buffer, 2, 0), 2);
    CHECK_STR(buffer, "ab");
    CHECK_OK(getsockopt(right, SOL_SOCKET, SO_PEEK_OFF, &offset, &length));
    CHECK_EQ(offset, 3);
    CHECK_EQ(recv(right, buffer, 8, MSG_PEEK), 1);
    CHECK_EQ(buffer[0], 'f');
}

CASE(fionread_is_the_first_record)
{
    int count = -1;
    make_pair(SOCK_DGRAM);
    CHECK_EQ(send(left, "abc", 3, 0), 3);
    CHECK_EQ(send(left, "de", 2, 0), 2);
    CHECK_OK(ioctl(right, FIONREAD, &count));
    CHECK_EQ(count, 3);
    CHECK_OK(ioctl(left, TIOCOUTQ, &count));
    CHECK(count > 5);
    CHECK_ERRNO(ioctl(left, TCGETS, &count), ENOTTY);
    make_pair(SOCK_SEQPACKET);
    CHECK_EQ(send(left, "abc", 3, 0), 3);
    CHECK_EQ(send(left, "de", 2, 0), 2);
    CHECK_OK(ioctl(right, FIONREAD, &count));
    CHECK_EQ(count, 5);
}

CASE(the_sender_is_named)
{
    struct sockaddr_un address;
    char byte;
    scratch();
    int server = bound(SOCK_DGRAM, "server"), client = bound(SOCK_DGRAM, "client");
    socklen_t length = named(&address, "server");
    CHECK_EQ(sendto(client, "x", 1, 0, (struct sockaddr *)&address, length), 1);
    int nameless = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK_EQ(sendto(nameless, "y", 1, 0, (struct sockaddr *)&address, length), 1);
    memset(&address, 0xff, sizeof address);
    length = sizeof address;
    CHECK_EQ(recvfrom(server, &byte, 1, 0, (struct sockaddr *)&address, &length), 1);
    CHECK_EQ(length, offsetof(struct sockaddr_un, sun_path) + 7);
    CHECK_EQ(address.sun_family, AF_UNIX);
    CHECK_STR(address.sun_path, "client");
    length = sizeof address;
    CHECK_EQ(recvfrom(server, &byte, 1, 0, (struct sockaddr *)&address, &length), 1);
    CHECK_EQ(length, 0);
}

CASE(a_short_buffer_gets_the_beginning_of_a_name)
{
    struct sockaddr_un address;
    scratch();
    int fd = bound(SOCK_DGRAM, "name");
    memset(&address, 0x55, sizeof address);
    socklen_t length = 4;
    CHECK_OK(getsockname(fd, (struct sockaddr *)&address, &length));
    CHECK_EQ(length, 7);
    CHECK(memcmp(address.sun_path, "na\x55", 3) == 0);
    length = (socklen_t)-1;
    CHECK_ERRNO(getsockname(fd, (struct sockaddr *)&address, &length), EINVAL);
    length = sizeof address;
    CHECK_ERRNO(getsockname(fd, BAD_LOW, &length), EFAULT);
    CHECK_ERRNO(getsockname(fd, (struct sockaddr *)&address, BAD_LOW), EFAULT);
}

CASE(without_a_peer_there_is_nowhere_to_send)
{
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    scratch();
    CHECK_ERRNO(send(fd, "x", 1, 0), ENOTCONN);
    CHECK_ERRNO(write(fd, "x", 1), ENOTCONN);
    socklen_t length = named(&address, "nobody");
    CHECK_ERRNO(sendto(fd, "x", 1, 0, (struct sockaddr *)&address, length), ENOENT);
    close(bound(SOCK_DGRAM, "nobody"));
    CHECK_ERRNO(sendto(fd, "x", 1, 0, (struct sockaddr *)&address, length), ECONNREFUSED);
    CHECK_ERRNO(getpeername(fd, (struct sockaddr *)&address, &length), ENOTCONN);
    int packets = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK_ERRNO(send(packets, "x", 1, 0), ENOTCONN);
    char byte;
    CHECK_ERRNO(recv(packets, &byte, 1, MSG_DONTWAIT), ENOTCONN);
}

CASE(a_connected_socket_hears_only_its_peer)
{
    struct sockaddr_un address;
    char byte;
    scratch();
    int server = bound(SOCK_DGRAM, "server"), client = bound(SOCK_DGRAM, "client");
    int stranger = socket(AF_UNIX, SOCK_DGRAM, 0);
    socklen_t length = named(&address, "client");
    CHECK_OK(connect(server, (struct sockaddr *)&address, length));
    length = named(&address, "server");
    CHECK_ERRNO(sendto(stranger, "x", 1, 0, (struct sockaddr *)&address, length), EPERM);
    CHECK_ERRNO(connect(stranger, (struct sockaddr *)&address, length), EPERM);
    CHECK_EQ(sendto(client, "y", 1, 0, (struct sockaddr *)&address, length), 1);
    CHECK_EQ(send(server, "z", 1, 0), 1);
    CHECK_EQ(recv(client, &byte, 1, 0), 1);
    length = sizeof address;
    CHECK_OK(getpeername(server, (struct sockaddr *)&address, &length));
    CHECK_STR(address.sun_path, "client");
    /* Without a family the association ends. */
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    CHECK_OK(connect(server, &none, sizeof none));
    CHECK_ERRNO(send(server, "z", 1, 0), ENOTCONN);
    length = named(&address, "server");
    CHECK_EQ(sendto(stranger, "x", 1, 0, (struct sockaddr *)&address, length), 1);
}

CASE(a_peer_that_has_closed_refuses)
{
    make_pair(SOCK_DGRAM);
    close(left);
    CHECK_ERRNO(send(right, "x", 1, 0), ECONNREFUSED);
    CHECK_ERRNO(send(right, "x", 1, 0), ENOTCONN);
    make_pair(SOCK_SEQPACKET);
    close(left);
    signal(SIGPIPE, SIG_DFL);
    CHECK_ERRNO(send(right, "x", 1, 0), EPIPE);
    char byte;
    CHECK_EQ(recv(right, &byte, 1, 0), 0);
    CHECK_EQ(recv(right, &byte, 1, MSG_DONTWAIT), 0);
}

CASE(a_queue_of_strangers_is_short)
{
    struct sockaddr_un address;
    char byte;
    scratch();
    int server = bound(SOCK_DGRAM, "server");
    int client = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    socklen_t length = named(&address, "server");
    CHECK_OK(connect(client, (struct sockaddr *)&address, length));
    char text[32] = {0};
    slurp("/proc/sys/net/unix/max_dgram_qlen", text, sizeof text);
    int limit = atoi(text), count = 0;
    while (send(client, "x", 1, 0) == 1)
        count++;
    CHECK_EQ(errno, EAGAIN);
    if (limit < 270)
        CHECK_EQ(count, limit + 1);
    CHECK_EQ(events_of(client, POLLOUT), 0);
    CHECK_EQ(recv(server, &byte, 1, 0), 1);
    CHECK_EQ(events_of(client, POLLOUT), POLLOUT);
    CHECK_EQ(send(client, "x", 1, 0), 1);
}

CASE(a_sender_waits_for_room)
{
    struct sockaddr_un address;
    char byte;
    scratch();
    int server = bound(SOCK_DGRAM, "server");
    int client = socket(AF_UNIX, SOCK_DGRAM, 0);
    socklen_t length = named(&address, "server");
    CHECK_OK(connect(client, (struct sockaddr *)&address, length));
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (int at = 0; at < 2000; at++) {
            char value = (char)at;
            if (send(client, &value, 1, 0) != 1)
                _exit(1);
        }
        _exit(0);
    }
    sleep_ms(20);
    for (int at = 0; at < 2000; at++) {
        CHECK_EQ(recv(server, &byte, 1, 0), 1);
        CHECK_EQ(byte, (char)at);
    }
    CHECK_EXITED(child, 0);
}

CASE(poll_waits_for_room)
{
    struct sockaddr_un address;
    char byte;
    scratch();
    int server = bound(SOCK_DGRAM, "server");
    int client = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    socklen_t length = named(&address, "server");
    CHECK_OK(connect(client, (struct sockaddr *)&address, length));
    while (send(client, "x", 1, 0) == 1)
        ;
    pid_t child = fork_or_fail();
    if (child == 0) {
        sleep_ms(20);
        while (recv(server, &byte, 1, MSG_DONTWAIT) == 1)
            ;
        _exit(0);
    }
    struct pollfd entry = {client, POLLOUT, 0};
    CHECK_EQ(poll(&entry, 1, 20000), 1);
    CHECK_EQ(entry.revents, POLLOUT);
    CHECK_EXITED(child, 0);
}

CASE(a_record_has_a_largest_size)
{
    static char bytes[1 << 20];
    int size = 0;
    socklen_t length = sizeof size;
    make_pair(SOCK_DGRAM);
    CHECK_OK(getsockopt(left, SOL_SOCKET, SO_SNDBUF, &size, &length));
    CHECK_ERRNO(send(left, bytes, sizeof bytes, 0), EMSGSIZE);
    CHECK_ERRNO(send(left, bytes, (size_t)size - 31, 0), EMSGSIZE);
    for (int at = 0; at < size; at++)
        bytes[at] = (char)(at * 3 + at / 4096);
    CHECK_EQ(send(left, bytes, (size_t)size - 32, 0), size - 32);
    static char got[1 << 20];
    CHECK_EQ(recv(right, got, sizeof got, 0), size - 32);
    CHECK(memcmp(bytes, got, (size_t)size - 32) == 0);
    size = 4608;
    CHECK_OK(setsockopt(left, SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
    CHECK_EQ(send(left, bytes, 9216 - 32, 0), 9216 - 32);
    CHECK_ERRNO(send(left, bytes, 9216 - 31, 0), EMSGSIZE);
}

CASE(shutting_down_a_datagram_socket)
{
    char byte;
    make_pair(SOCK_DGRAM);
    CHECK_OK(shutdown(left, SHUT_WR));
    CHECK_ERRNO(send(left, "x", 1, 0), EPIPE);
    CHECK_EQ(send(right, "x", 1, 0), 1);
    CHECK_OK(shutdown(left, SHUT_RD));
    CHECK_ERRNO(send(right, "x", 1, 0), EPIPE);
    CHECK_EQ(recv(left, &byte, 1, 0), 1);
    CHECK_EQ(recv(left, &byte, 1, 0), 0);
    CHECK_ERRNO(recv(left, &byte, 1, MSG_DONTWAIT), EAGAIN);
    CHECK_EQ(events_of(left, POLLIN | POLLOUT | POLLRDHUP), POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
}

CASE(vectors_make_one_record)
{
    char first[3] = {0}, second[8] = {0};
    struct iovec out[2] = {{"ab", 2}, {"cdef", 4}}, in[2] = {{first, 2}, {second, 7}};
    make_pair(SOCK_SEQPACKET);
    CHECK_EQ(writev(left, out, 2), 6);
    CHECK_EQ(writev(left, out, 1), 2);
    CHECK_EQ(readv(right, in, 2), 6);
    CHECK_STR(first, "ab");
    CHECK_STR(second, "cdef");
    CHECK_EQ(readv(right, in, 2), 2);
}

CASE(many_messages_go_out_at_once)
{
    char a[4] = {0}, b[4] = {0}, c[4] = {0};
    struct iovec out[2] = {{"ab", 2}, {"cde", 3}}, in[3] = {{a, 4}, {b, 2}, {c, 4}};
    struct mmsghdr messages[3];
    memset(messages, 0, sizeof messages);
    for (int at = 0; at < 2; at++) {
        messages[at].msg_hdr.msg_iov = &out[at];
        messages[at].msg_hdr.msg_iovlen = 1;
    }
    make_pair(SOCK_DGRAM);
    CHECK_EQ(sendmmsg(left, messages, 2, 0), 2);
    CHECK_EQ(messages[0].msg_len, 2);
    CHECK_EQ(messages[1].msg_len, 3);
    for (int at = 0; at < 3; at++) {
        messages[at].msg_hdr.msg_iov = &in[at];
        messages[at].msg_hdr.msg_iovlen = 1;
    }
    CHECK_EQ(recvmmsg(right, messages, 3, MSG_WAITFORONE, 0), 2);
    CHECK_EQ(messages[0].msg_len, 2);
    CHECK_EQ(messages[1].msg_len, 2);
    CHECK_EQ(messages[1].msg_hdr.msg_flags & MSG_TRUNC, MSG_TRUNC);
    CHECK_ERRNO(recvmmsg(right, messages, 3, MSG_DONTWAIT, 0), EAGAIN);
    CHECK_EQ(sendmmsg(left, messages, 0, 0), 0);
    struct timespec bad = {-1, 0};
    CHECK_ERRNO(recvmmsg(right, messages, 1, 0, &bad), EINVAL);
    CHECK_EQ(send(left, "z", 1, 0), 1);
    struct timespec short_time = {0, 1000};
    CHECK_EQ(recvmmsg(right, messages, 3, MSG_WAITFORONE, &short_time), 1);
}

CASE(who_sends_is_told)
{
    int on = 1;
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control;
    char byte;
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    struct ucred told;
    int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    for (int at = 0; at < 3; at++) {
        make_pair(types[at]);
        CHECK_EQ(send(left, "a", 1, 0), 1);
        CHECK_OK(setsockopt(right, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
        CHECK_EQ(send(left, "b", 1, 0), 1);
        for (int turn = 0; turn < 2; turn++) {
            message.msg_control = control.bytes;
            message.msg_controllen = sizeof control.bytes;
            CHECK_EQ(recvmsg(right, &message, 0), 1);
            CHECK_EQ(byte, 'a' + turn);
            CHECK_EQ(message.msg_flags, 0);
            struct cmsghdr *header = CMSG_FIRSTHDR(&message);
            CHECK(header);
            CHECK_EQ(header->cmsg_type, SCM_CREDENTIALS);
            CHECK_EQ(header->cmsg_len, CMSG_LEN(sizeof told));
            memcpy(&told, CMSG_DATA(header), sizeof told);
            CHECK_EQ(told.pid, turn == 0 ? 0 : getpid());
            CHECK_EQ(told.uid, turn == 0 ? 65534 : getuid());
        }
        CHECK_EQ(send(left, "c", 1, 0), 1);
        message.msg_control = 0;
        message.msg_controllen = 0;
        CHECK_EQ(recvmsg(right, &message, 0), 1);
        CHECK_EQ(message.msg_flags, MSG_CTRUNC);
    }
}

CASE(a_sender_may_claim_what_it_is)
{
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control;
    struct iovec vector = {"x", 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct ucred claim = {getpid(), getuid(), getgid()};
    make_pair(SOCK_DGRAM);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_CREDENTIALS;
    header->cmsg_len = CMSG_LEN(sizeof claim);
    memcpy(CMSG_DATA(header), &claim, sizeof claim);
    CHECK_EQ(sendmsg(left, &message, 0), 1);
    header->cmsg_len = CMSG_LEN(sizeof claim - 4);
    CHECK_ERRNO(sendmsg(left, &message, 0), EINVAL);
    header->cmsg_len = CMSG_LEN(sizeof claim);
    claim.pid = 0x3ffffff;
    memcpy(CMSG_DATA(header), &claim, sizeof claim);
    CHECK_ERRNO(sendmsg(left, &message, 0), ESRCH);
    pid_t child = fork_or_fail();
    if (child == 0) {
        if (setresuid(4711, 4711, 4711) == -1)
            _exit(2);
        claim.pid = getpid();
        claim.uid = 0;
        memcpy(CMSG_DATA(header), &claim, sizeof claim);
        _exit(sendmsg(left, &message, 0) == -1 && errno == EPERM ? 0 : 1);
    }
    CHECK_EXITED(child, 0);
}

CASE(messages_of_different_senders_stay_apart)
{
    int on = 1;
    char buffer[8] = {0};
    make_pair(SOCK_STREAM);
    CHECK_OK(setsockopt(right, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    CHECK_EQ(send(left, "ab", 2, 0), 2);
    CHECK_EQ(send(left, "cd", 2, 0), 2);
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(send(left, "ef", 2, 0) == 2 ? 0 : 1);
    CHECK_EXITED(child, 0);
    CHECK_EQ(recv(right, buffer, 8, 0), 4);
    CHECK_STR(buffer, "abcd");
    CHECK_EQ(recv(right, buffer, 8, 0), 2);
}
