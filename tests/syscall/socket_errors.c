/* Errors of the calls of sockets in their order, and options of sockets. */
#include "harness.h"
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

static int option_of(int fd, int name)
{
    int value = -77;
    socklen_t length = sizeof value;
    CHECK_OK(getsockopt(fd, SOL_SOCKET, name, &value, &length));
    CHECK_EQ(length, sizeof value);
    return value;
}

static int set(int fd, int name, int value)
{
    return setsockopt(fd, SOL_SOCKET, name, &value, sizeof value);
}

CASE(socket_checks_its_arguments)
{
    CHECK_ERRNO(socket(AF_UNIX, SOCK_STREAM | 0x10, 0), EINVAL);
    CHECK_ERRNO(socket(-1, SOCK_STREAM, 0), EAFNOSUPPORT);
    CHECK_ERRNO(socket(100, SOCK_STREAM, 0), EAFNOSUPPORT);
    CHECK_ERRNO(socket(100, 15, 0), EAFNOSUPPORT);
    CHECK_ERRNO(socket(AF_UNIX, 11, 0), EINVAL);
    CHECK_ERRNO(socket(AF_UNIX, 15, 0), EINVAL);
    CHECK_ERRNO(socket(AF_UNIX, 0, 0), ESOCKTNOSUPPORT);
    CHECK_ERRNO(socket(AF_UNIX, SOCK_RDM, 0), ESOCKTNOSUPPORT);
    CHECK_ERRNO(socket(AF_UNIX, SOCK_STREAM, 2), EPROTONOSUPPORT);
    CHECK_ERRNO(socket(AF_UNIX, SOCK_RDM, 2), EPROTONOSUPPORT);
    int fd = socket(AF_UNIX, SOCK_STREAM, AF_UNIX);
    CHECK(fd >= 0);
    CHECK_EQ(option_of(fd, SO_PROTOCOL), 0);
    fd = socket(AF_UNIX, SOCK_RAW, 0);
    CHECK_EQ(option_of(fd, SO_TYPE), SOCK_DGRAM);
    struct rlimit limit = {(rlim_t)fd + 1, (rlim_t)fd + 1};
    CHECK_OK(setrlimit(RLIMIT_NOFILE, &limit));
    CHECK_ERRNO(socket(AF_UNIX, SOCK_STREAM, 0), EMFILE);
    int ends[2];
    CHECK_ERRNO(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), EMFILE);
    CHECK_ERRNO(socketpair(AF_UNIX, 0x80, 0, ends), EINVAL);
}

CASE(other_files_are_no_sockets)
{
    int pipes[2], value = 0;
    char byte;
    socklen_t length = sizeof value;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct sockaddr *name = (struct sockaddr *)&address;
    struct msghdr message = {0};
    CHECK_OK(pipe(pipes));
    for (int turn = 0; turn < 2; turn++) {
        int fd = turn ? 4711 : pipes[0], wanted = turn ? EBADF : ENOTSOCK;
        CHECK_ERRNO(bind(fd, name, sizeof address), wanted);
        CHECK_ERRNO(connect(fd, name, sizeof address), wanted);
        CHECK_ERRNO(listen(fd, 1), wanted);
        CHECK_ERRNO(accept(fd, 0, 0), wanted);
        CHECK_ERRNO(getsockname(fd, name, &length), wanted);
        CHECK_ERRNO(getpeername(fd, name, &length), wanted);
        CHECK_ERRNO(shutdown(fd, 7), wanted);
        CHECK_ERRNO(send(fd, "x", 1, 0), wanted);
        CHECK_ERRNO(recv(fd, &byte, 1, 0), wanted);
        CHECK_ERRNO(sendmsg(fd, &message, 0), wanted);
        CHECK_ERRNO(recvmsg(fd, &message, 0), wanted);
        CHECK_ERRNO(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length), wanted);
        CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_TYPE, &value, sizeof value), wanted);
    }
}

CASE(sockets_are_no_other_files)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    char byte;
    CHECK_ERRNO(lseek(fd, 0, SEEK_CUR), ESPIPE);
    CHECK_ERRNO(pread(fd, &byte, 1, 0), ESPIPE);
    CHECK_ERRNO(ftruncate(fd, 0), EINVAL);
    CHECK_ERRNO(fsync(fd), EINVAL);
    CHECK_ERRNO(ioctl(fd, TCGETS, &byte), ENOTTY);
    CHECK_ERRNO(fchdir(fd), ENOTDIR);
    CHECK_ERRNO(read(fd, &byte, 1), EINVAL);
    CHECK_ERRNO(recv(fd, &byte, 1, 0), EINVAL);
    CHECK_ERRNO(send(fd, "x", 1, MSG_NOSIGNAL), ENOTCONN);
    CHECK_ERRNO(write(fd, "x", 1), ENOTCONN);
}

CASE(messages_are_checked)
{
    int ends[2];
    struct iovec vector = {"x", 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    CHECK_ERRNO(sendto(ends[0], "x", 1, 0, (struct sockaddr *)&address, sizeof address), EISCONN);
    int alone = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_ERRNO(sendto(alone, "x", 1, 0, (struct sockaddr *)&address, sizeof address), EOPNOTSUPP);
    CHECK_ERRNO(syscall(SYS_sendmsg, ends[0], BAD_LOW, 0), EFAULT);
    message.msg_iovlen = 1025;
    CHECK_ERRNO(syscall(SYS_sendmsg, ends[0], &message, 0), EMSGSIZE);
    CHECK_ERRNO(syscall(SYS_recvmsg, ends[0], &message, 0), EMSGSIZE);
    message.msg_iovlen = 1;
    message.msg_iov = BAD_LOW;
    CHECK_ERRNO(syscall(SYS_sendmsg, ends[0], &message, 0), EFAULT);
    CHECK_ERRNO(send(ends[0], BAD_LOW, 1, 0), EFAULT);
    message.msg_iov = &vector;
    message.msg_name = &address;
    message.msg_namelen = (socklen_t)-1;
    CHECK_ERRNO(syscall(SYS_sendmsg, ends[0], &message, 0), EINVAL);
    message.msg_name = 0;
    CHECK_EQ(syscall(SYS_sendmsg, ends[0], &message, 0), 1);
    CHECK_EQ(send(ends[0], "", 0, 0), 0);
    CHECK_EQ(send(ends[0], "y", 1, MSG_MORE | MSG_EOR), 1);
}

CASE(what_a_socket_is_can_be_asked)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK_EQ(option_of(fd, SO_TYPE), SOCK_SEQPACKET);
    CHECK_EQ(option_of(fd, SO_DOMAIN), AF_UNIX);
    CHECK_EQ(option_of(fd, SO_PROTOCOL), 0);
    CHECK_EQ(option_of(fd, SO_ERROR), 0);
    CHECK_EQ(option_of(fd, SO_ACCEPTCONN), 0);
    CHECK_EQ(option_of(fd, SO_SNDLOWAT), 1);
    int value = 1;
    CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_TYPE, &value, sizeof value), ENOPROTOOPT);
    CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_ERROR, &value, sizeof value), ENOPROTOOPT);
    CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, sizeof value), ENOPROTOOPT);
    CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, sizeof value), ENOPROTOOPT);
}

CASE(options_check_their_arguments)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), value = 1;
    socklen_t length = sizeof value;
    CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, 3), EINVAL);
    CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, (socklen_t)-1), EINVAL);
    CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, BAD_LOW, 4), EFAULT);
    CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, 9999, &value, 4), ENOPROTOOPT);
    CHECK_ERRNO(getsockopt(fd, SOL_SOCKET, 9999, &value, &length), ENOPROTOOPT);
    CHECK_ERRNO(setsockopt(fd, 6, 1, &value, 4), EOPNOTSUPP);
    CHECK_ERRNO(getsockopt(fd, 6, 1, &value, &length), EOPNOTSUPP);
    CHECK_ERRNO(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, BAD_LOW), EFAULT);
    CHECK_ERRNO(getsockopt(fd, SOL_SOCKET, SO_TYPE, BAD_LOW, &length), EFAULT);
    length = (socklen_t)-1;
    CHECK_ERRNO(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length), EINVAL);
    char bytes[4] = {9, 9, 9, 9};
    length = 1;
    CHECK_OK(getsockopt(fd, SOL_SOCKET, SO_TYPE, bytes, &length));
    CHECK_EQ(length, 1);
    CHECK_EQ(bytes[0], SOCK_STREAM);
    CHECK_EQ(bytes[1], 9);
}

CASE(switches_are_kept)
{
    int names[] = {SO_REUSEADDR, SO_KEEPALIVE, SO_BROADCAST, SO_OOBINLINE, SO_DONTROUTE, SO_PASSCRED};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    for (int at = 0; at < 6; at++) {
        CHECK_EQ(option_of(fd, names[at]), 0);
        CHECK_OK(set(fd, names[at], 7));
        CHECK_EQ(option_of(fd, names[at]), 1);
        CHECK_OK(set(fd, names[at], 0));
        CHECK_EQ(option_of(fd, names[at]), 0);
    }
}

CASE(buffers_are_doubled_and_bounded)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_EQ(option_of(fd, SO_SNDBUF), 212992);
    CHECK_EQ(option_of(fd, SO_RCVBUF), 212992);
    CHECK_OK(set(fd, SO_SNDBUF, 10000));
    CHECK_EQ(option_of(fd, SO_SNDBUF), 20000);
    CHECK_OK(set(fd, SO_SNDBUF, 0));
    CHECK_EQ(option_of(fd, SO_SNDBUF), 4608);
    CHECK_OK(set(fd, SO_RCVBUF, 0));
    CHECK_EQ(option_of(fd, SO_RCVBUF), 2304);
    char text[32];
    slurp("/proc/sys/net/core/wmem_max", text, sizeof text);
    CHECK_OK(set(fd, SO_SNDBUF, 100000000));
    CHECK_EQ(option_of(fd, SO_SNDBUF), 2 * atoi(text));
    slurp("/proc/sys/net/core/rmem_max", text, sizeof text);
    CHECK_OK(set(fd, SO_RCVBUF, -1));
    CHECK_EQ(option_of(fd, SO_RCVBUF), 2 * atoi(text));
}

CASE(other_options_are_kept)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_EQ(option_of(fd, SO_PRIORITY), 0);
    CHECK_OK(set(fd, SO_PRIORITY, 5));
    CHECK_EQ(option_of(fd, SO_PRIORITY), 5);
    CHECK_EQ(option_of(fd, SO_RCVLOWAT), 1);
    CHECK_OK(set(fd, SO_RCVLOWAT, 0));
    CHECK_EQ(option_of(fd, SO_RCVLOWAT), 1);
    CHECK_OK(set(fd, SO_RCVLOWAT, 10));
    CHECK_EQ(option_of(fd, SO_RCVLOWAT), 10);
    struct linger linger = {1, 5}, got = {0, 0};
    socklen_t length = sizeof got;
    CHECK_OK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    CHECK_OK(getsockopt(fd, SOL_SOCKET, SO_LINGER, &got, &length));
    CHECK_EQ(got.l_onoff, 1);
    CHECK_EQ(got.l_linger, 5);
    CHECK_ERRNO(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, 4), EINVAL);
    CHECK_ERRNO(set(fd, SO_SNDLOWAT, 1), ENOPROTOOPT);
}

CASE(privileged_options_are_refused)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        if (setresuid(4711, 4711, 4711) == -1)
            _exit(2);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (set(fd, SO_PRIORITY, 7) != -1 || errno != EPERM)
            _exit(3);
        if (set(fd, SO_SNDBUFFORCE, 10000) != -1 || errno != EPERM)
            _exit(4);
        if (set(fd, SO_DEBUG, 1) != -1 || errno != EACCES)
            _exit(5);
        if (set(fd, SO_MARK, 1) != -1 || errno != EPERM)
            _exit(6);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(the_peer_of_a_pair_is_its_maker)
{
    int ends[2];
    struct ucred peer = {0, 0, 0};
    socklen_t length = sizeof peer;
    CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    CHECK_OK(getsockopt(ends[0], SOL_SOCKET, SO_PEERCRED, &peer, &length));
    CHECK_EQ(peer.pid, getpid());
    CHECK_EQ(peer.uid, geteuid());
    CHECK_EQ(peer.gid, getegid());
    int alone = socket(AF_UNIX, SOCK_STREAM, 0);
    length = sizeof peer;
    CHECK_OK(getsockopt(alone, SOL_SOCKET, SO_PEERCRED, &peer, &length));
    CHECK_EQ(peer.pid, 0);
    CHECK_EQ(peer.uid, (uid_t)-1);
    CHECK_EQ(peer.gid, (gid_t)-1);
}

CASE(a_pending_error_is_told_once)
{
    int ends[2];
    CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    CHECK_EQ(send(ends[0], "x", 1, 0), 1);
    close(ends[1]);
    CHECK_EQ(option_of(ends[0], SO_ERROR), ECONNRESET);
    CHECK_EQ(option_of(ends[0], SO_ERROR), 0);
    char byte;
    CHECK_EQ(recv(ends[0], &byte, 1, 0), 0);
}

CASE(the_kernel_lists_local_sockets)
{
    char text[256], line[512], wanted[64];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat status;
    int found = 0, fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(text, sizeof text, "ferry.list.%d", (int)getpid());
    strcpy(address.sun_path + 1, text);
    CHECK_OK(bind(fd, (struct sockaddr *)&address, (socklen_t)(3 + strlen(text))));
    CHECK_OK(listen(fd, 1));
    CHECK_OK(fstat(fd, &status));
    snprintf(wanted, sizeof wanted, "00010000 0001 01 %5llu @ferry.list.%d\n",
             (unsigned long long)status.st_ino, (int)getpid());
    FILE *list = fopen("/proc/net/unix", "r");
    CHECK(list);
    while (fgets(line, sizeof line, list))
        found |= strstr(line, wanted) != 0;
    CHECK(found);
}

CASE(owners_of_signals_can_be_set_by_ioctl)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), owner = getpid(), got = 0;
    CHECK_OK(ioctl(fd, FIOSETOWN, &owner));
    CHECK_EQ(fcntl(fd, F_GETOWN), owner);
    CHECK_OK(ioctl(fd, SIOCGPGRP, &got));
    CHECK_EQ(got, owner);
    CHECK_ERRNO(ioctl(fd, FIOSETOWN, BAD_LOW), EFAULT);
}
