/* Names of local sockets and connections: bind, listen, accept, connect, their errors and limits. */
#include "harness.h"
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

static struct sockaddr_un address;

static socklen_t named(const char *path)
{
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, path);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path) + 1);
}

/* An abstract name: without the zero at its end. */
static socklen_t abstract(const char *name)
{
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path + 1, name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static int bind_to(int fd, socklen_t length)
{
    return bind(fd, (struct sockaddr *)&address, length);
}

static int connect_to(int fd, socklen_t length)
{
    return connect(fd, (struct sockaddr *)&address, length);
}

static int listening(int type, const char *path, int backlog)
{
    int fd = socket(AF_UNIX, type, 0);
    CHECK(fd >= 0);
    CHECK_OK(bind_to(fd, named(path)));
    CHECK_OK(listen(fd, backlog));
    return fd;
}

static short events_of(int fd, short wanted)
{
    struct pollfd entry = {fd, wanted, 0};
    CHECK(poll(&entry, 1, 0) >= 0);
    return entry.revents;
}

CASE(a_connection_carries_both_ways)
{
    char buffer[8] = {0};
    int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
    scratch();
    for (int at = 0; at < 2; at++) {
        char path[] = "server0";
        path[6] = (char)('0' + at);
        int server = listening(types[at], path, 5);
        int client = socket(AF_UNIX, types[at], 0);
        CHECK_EQ(events_of(server, POLLIN | POLLOUT), 0);
        CHECK_OK(connect_to(client, named(path)));
        CHECK_EQ(events_of(server, POLLIN | POLLOUT), POLLIN);
        CHECK_EQ(send(client, "early", 5, 0), 5);
        memset(&address, 0xff, sizeof address);
        socklen_t length = sizeof address;
        int near = accept(server, (struct sockaddr *)&address, &length);
        CHECK(near >= 0);
        CHECK_EQ(length, 2);
        CHECK_EQ(address.sun_family, AF_UNIX);
        CHECK_EQ(recv(near, buffer, 8, 0), 5);
        CHECK_STR(buffer, "early");
        CHECK_EQ(send(near, "hi", 2, 0), 2);
        CHECK_EQ(recv(client, buffer, 8, 0), 2);
        length = sizeof address;
        CHECK_OK(getpeername(client, (struct sockaddr *)&address, &length));
        CHECK_STR(address.sun_path, path);
        length = sizeof address;
        CHECK_OK(getsockname(near, (struct sockaddr *)&address, &length));
        CHECK_STR(address.sun_path, path);
        CHECK_EQ(length, offsetof(struct sockaddr_un, sun_path) + 8);
        CHECK_ERRNO(connect_to(client, named(path)), EISCONN);
        close(near);
        CHECK_EQ(recv(client, buffer, 8, 0), 0);
        CHECK_OK(getpeername(client, (struct sockaddr *)&address, &length));
    }
}

CASE(a_name_is_an_inode)
{
    struct stat status;
    scratch();
    umask(027);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_OK(bind_to(fd, named("name")));
    CHECK_OK(stat("name", &status));
    CHECK(S_ISSOCK(status.st_mode));
    CHECK_EQ(status.st_mode & 07777, 0750);
    CHECK_ERRNO(open("name", O_RDONLY), ENXIO);
    CHECK_ERRNO(open("name", O_RDWR), ENXIO);
    int place = open("name", O_PATH);
    CHECK(place >= 0);
    CHECK_ERRNO(listen(place, 1), EBADF);
    int other = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_ERRNO(bind_to(other, named("name")), EADDRINUSE);
    CHECK_ERRNO(bind_to(fd, named("second")), EINVAL);
    CHECK_ERRNO(access("second", F_OK), ENOENT);
    close(fd);
    CHECK_OK(access("name", F_OK));
    CHECK_ERRNO(bind_to(other, named("name")), EADDRINUSE);
    CHECK_OK(unlink("name"));
    CHECK_OK(bind_to(other, named("name")));
}

CASE(the_mode_of_a_name_is_that_of_the_socket)
{
    struct stat status;
    scratch();
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_OK(fchmod(fd, 0640));
    CHECK_OK(bind_to(fd, named("name")));
    CHECK_OK(stat("name", &status));
    CHECK_EQ(status.st_mode & 07777, 0640);
}

CASE(a_path_fails_as_any_path)
{
    scratch();
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_ERRNO(bind_to(fd, named("missing/name")), ENOENT);
    close(open("file", O_CREAT | O_WRONLY, 0666));
    CHECK_ERRNO(bind_to(fd, named("file/name")), ENOTDIR);
    CHECK_ERRNO(bind_to(fd, named("file")), EADDRINUSE);
    CHECK_ERRNO(connect_to(fd, named("file")), ECONNREFUSED);
    CHECK_ERRNO(connect_to(fd, named("missing")), ENOENT);
    CHECK_ERRNO(connect_to(fd, named("file/name")), ENOTDIR);
    CHECK_OK(symlink("loop", "loop"));
    CHECK_ERRNO(connect_to(fd, named("loop")), ELOOP);
    CHECK_ERRNO(bind_to(fd, named("loop")), EADDRINUSE);
    CHECK_OK(mkdir("locked", 0700));
    pid_t child = fork_or_fail();
    if (child == 0) {
        if (setresuid(4711, 4711, 4711) == -1)
            _exit(2);
        _exit(bind_to(fd, named("locked/name")) == -1 && errno == EACCES ? 0 : 1);
    }
    CHECK_EXITED(child, 0);
}

CASE(connecting_needs_the_right_to_write)
{
    scratch();
    int server = listening(SOCK_STREAM, "name", 5);
    CHECK_OK(chmod("name", 0755));
    CHECK_OK(chmod(".", 0755));
    pid_t child = fork_or_fail();
    if (child == 0) {
        if (setresuid(4711, 4711, 4711) == -1)
            _exit(2);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        _exit(connect_to(fd, named("name")) == -1 && errno == EACCES ? 0 : 1);
    }
    CHECK_EXITED(child, 0);
    CHECK_OK(chmod("name", 0777));
    child = fork_or_fail();
    if (child == 0) {
        if (setresuid(4711, 4711, 4711) == -1)
            _exit(2);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        _exit(connect_to(fd, named("name")) == 0 ? 0 : 1);
    }
    CHECK_EXITED(child, 0);
    struct ucred peer;
    socklen_t length = sizeof peer;
    int near = accept(server, 0, 0);
    CHECK_OK(getsockopt(near, SOL_SOCKET, SO_PEERCRED, &peer, &length));
    CHECK_EQ(length, sizeof peer);
    CHECK_EQ(peer.pid, child);
    CHECK_EQ(peer.uid, 4711);
}

CASE(nobody_listens)
{
    scratch();
    int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_OK(bind_to(server, named("name")));
    CHECK_ERRNO(connect_to(client, named("name")), ECONNREFUSED);
    int datagram = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK_ERRNO(connect_to(datagram, named("name")), EPROTOTYPE);
    CHECK_OK(listen(server, 5));
    int packets = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK_ERRNO(connect_to(packets, named("name")), EPROTOTYPE);
    CHECK_OK(connect_to(client, named("name")));
    CHECK_ERRNO(connect_to(server, named("name")), EINVAL);
    close(server);
    int late = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_ERRNO(connect_to(late, named("name")), ECONNREFUSED);
    /* The connection that nobody accepted was reset. */
    char byte;
    CHECK_ERRNO(read(client, &byte, 1), ECONNRESET);
}

CASE(accept_and_listen_want_the_right_socket)
{
    scratch();
    int stream = socket(AF_UNIX, SOCK_STREAM, 0), datagram = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK_ERRNO(listen(stream, 5), EINVAL);
    CHECK_ERRNO(listen(datagram, 5), EOPNOTSUPP);
    CHECK_ERRNO(accept(stream, 0, 0), EINVAL);
    CHECK_ERRNO(accept(datagram, 0, 0), EOPNOTSUPP);
    CHECK_ERRNO(accept4(stream, 0, 0, 1), EINVAL);
    int ends[2];
    CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    CHECK_ERRNO(listen(ends[0], 5), EINVAL);
    CHECK_OK(bind_to(ends[0], named("end")));
    CHECK_ERRNO(listen(ends[0], 5), EINVAL);
    int server = listening(SOCK_STREAM, "name", 5);
    CHECK_OK(listen(server, 7));
    char byte;
    CHECK_ERRNO(read(server, &byte, 1), EINVAL);
    CHECK_ERRNO(send(server, "x", 1, MSG_NOSIGNAL), ENOTCONN);
    int on = 0;
    socklen_t length = sizeof on;
    CHECK_OK(getsockopt(server, SOL_SOCKET, SO_ACCEPTCONN, &on, &length));
    CHECK_EQ(on, 1);
    CHECK_OK(getsockopt(stream, SOL_SOCKET, SO_ACCEPTCONN, &on, &length));
    CHECK_EQ(on, 0);
}

CASE(accept_gives_flags_and_does_not_wait_if_told)
{
    scratch();
    int server = listening(SOCK_STREAM, "name", 5);
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_OK(fcntl(server, F_SETFL, O_NONBLOCK));
    CHECK_ERRNO(accept(server, 0, 0), EAGAIN);
    CHECK_OK(connect_to(client, named("name")));
    int near = accept4(server, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(near >= 0);
    CHECK_EQ(fcntl(near, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(near, F_GETFL), O_RDWR | O_NONBLOCK);
    CHECK_OK(connect_to(socket(AF_UNIX, SOCK_STREAM, 0), named("name")));
    near = accept(server, 0, 0);
    CHECK_EQ(fcntl(near, F_GETFL), O_RDWR);
    CHECK_OK(fcntl(server, F_SETFL, 0));
    struct timeval limit = {0, 20000};
    CHECK_OK(setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    CHECK_ERRNO(accept(server, 0, 0), EAGAIN);
}

CASE(accept_waits_for_a_connection)
{
    scratch();
    int server = listening(SOCK_STREAM, "name", 5);
    pid_t child = fork_or_fail();
    if (child == 0) {
        sleep_ms(20);
        _exit(connect_to(socket(AF_UNIX, SOCK_STREAM, 0), named("name")) == 0 ? 0 : 1);
    }
    CHECK(accept(server, 0, 0) >= 0);
    CHECK_EXITED(child, 0);
}

CASE(a_full_queue_of_connections_makes_others_wait)
{
    scratch();
    int server = listening(SOCK_STREAM, "name", 1);
    for (int at = 0; at < 2; at++)
        CHECK_OK(connect_to(socket(AF_UNIX, SOCK_STREAM, 0), named("name")));
    int client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK_ERRNO(connect_to(client, named("name")), EAGAIN);
    CHECK_OK(fcntl(client, F_SETFL, 0));
    struct timeval limit = {0, 20000};
    CHECK_OK(setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    CHECK_ERRNO(connect_to(client, named("name")), EAGAIN);
    pid_t child = fork_or_fail();
    if (child == 0) {
        int patient = socket(AF_UNIX, SOCK_STREAM, 0);
        _exit(connect_to(patient, named("name")) == 0 ? 0 : 1);
    }
    sleep_ms(20);
    CHECK(accept(server, 0, 0) >= 0);
    CHECK_EXITED(child, 0);
    /* One that waits is told when the listener goes. */
    child = fork_or_fail();
    if (child == 0) {
        close(server);
        int patient = socket(AF_UNIX, SOCK_STREAM, 0);
        _exit(connect_to(patient, named("name")) == -1 && errno == ECONNREFUSED ? 0 : 1);
    }
    sleep_ms(20);
    close(server);
    CHECK_EXITED(child, 0);
}

CASE(abstract_names_need_no_inode)
{
    char text[64];
    int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(text, sizeof text, "ferry.%d", (int)getpid());
    CHECK_ERRNO(connect_to(client, abstract(text)), ECONNREFUSED);
    CHECK_OK(bind_to(server, abstract(text)));
    CHECK_ERRNO(bind_to(client, abstract(text)), EADDRINUSE);
    CHECK_OK(listen(server, 1));
    CHECK_OK(connect_to(client, abstract(text)));
    socklen_t length = sizeof address, wanted = abstract(text);
    memset(&address, 0xff, sizeof address);
    CHECK_OK(getpeername(client, (struct sockaddr *)&address, &length));
    CHECK_EQ(length, wanted);
    CHECK_EQ(address.sun_path[0], 0);
    CHECK(memcmp(address.sun_path + 1, text, strlen(text)) == 0);
    /* Another length is another name, another type too. */
    int other = socket(AF_UNIX, SOCK_STREAM, 0), datagram = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK_OK(bind_to(other, abstract(text) + 1));
    CHECK_ERRNO(connect_to(datagram, abstract(text)), ECONNREFUSED);
    close(server);
    int again = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_OK(bind_to(again, abstract(text)));
}

CASE(bind_can_choose_a_name)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    CHECK_OK(bind_to(fd, 2));
    CHECK_OK(bind_to(fd, 2));
    socklen_t length = sizeof address;
    CHECK_OK(getsockname(fd, (struct sockaddr *)&address, &length));
    CHECK_EQ(length, 8);
    CHECK_EQ(address.sun_path[0], 0);
    for (int at = 1; at < 6; at++)
        CHECK(strchr("0123456789abcdef", address.sun_path[at]) && address.sun_path[at]);
    /* Who wants to know who sends has a name itself. */
    int on = 1, client = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK_OK(setsockopt(client, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    CHECK_EQ(sendto(client, "x", 1, 0, (struct sockaddr *)&address, 8), 1);
    length = sizeof address;
    CHECK_OK(getsockname(client, (struct sockaddr *)&address, &length));
    CHECK_EQ(length, 8);
}

CASE(addresses_are_checked)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    scratch();
    named("name");
    CHECK_ERRNO(bind_to(fd, 111), EINVAL);
    CHECK_ERRNO(bind_to(fd, 129), EINVAL);
    CHECK_ERRNO(bind_to(fd, (socklen_t)-1), EINVAL);
    CHECK_ERRNO(bind_to(fd, 0), EINVAL);
    CHECK_ERRNO(bind_to(fd, 1), EINVAL);
    CHECK_ERRNO(connect_to(fd, 2), EINVAL);
    CHECK_ERRNO(connect_to(fd, 111), EINVAL);
    CHECK_ERRNO(bind(fd, BAD_LOW, 10), EFAULT);
    CHECK_ERRNO(connect(fd, BAD_KERNEL, 10), EFAULT);
    address.sun_family = AF_INET;
    CHECK_ERRNO(bind_to(fd, 16), EINVAL);
    CHECK_ERRNO(connect_to(fd, 16), EINVAL);
    address.sun_family = AF_UNSPEC;
    CHECK_ERRNO(connect_to(fd, 16), EINVAL);
    /* A path need not end in a zero. */
    named("name");
    memset(address.sun_path, 'n', sizeof address.sun_path);
    CHECK_OK(bind_to(fd, sizeof address));
    char full[120];
    memset(full, 'n', 108);
    full[108] = 0;
    CHECK_OK(access(full, F_OK));
    socklen_t length = sizeof full;
    memset(full, 0xff, sizeof full);
    CHECK_OK(getsockname(fd, (struct sockaddr *)full, &length));
    CHECK_EQ(length, 111);
    CHECK_EQ(full[110], 0);
}

CASE(a_name_can_move_and_have_links)
{
    scratch();
    int server = listening(SOCK_STREAM, "name", 5);
    CHECK_OK(rename("name", "moved"));
    CHECK_OK(link("moved", "second"));
    CHECK_OK(symlink("moved", "third"));
    CHECK_ERRNO(connect_to(socket(AF_UNIX, SOCK_STREAM, 0), named("name")), ENOENT);
    CHECK_OK(connect_to(socket(AF_UNIX, SOCK_STREAM, 0), named("moved")));
    CHECK_OK(connect_to(socket(AF_UNIX, SOCK_STREAM, 0), named("second")));
    CHECK_OK(connect_to(socket(AF_UNIX, SOCK_STREAM, 0), named("third")));
    CHECK_OK(mknod("made", S_IFSOCK | 0777, 0));
    CHECK_ERRNO(connect_to(socket(AF_UNIX, SOCK_STREAM, 0), named("made")), ECONNREFUSED);
    socklen_t length = sizeof address;
    CHECK_OK(getsockname(server, (struct sockaddr *)&address, &length));
    CHECK_STR(address.sun_path, "name");
}

CASE(shutting_down_a_listener_refuses)
{
    scratch();
    int server = listening(SOCK_STREAM, "name", 5);
    CHECK_OK(shutdown(server, SHUT_RD));
    CHECK_ERRNO(connect_to(socket(AF_UNIX, SOCK_STREAM, 0), named("name")), ECONNREFUSED);
    CHECK_ERRNO(accept(server, 0, 0), EINVAL);
}

CASE(many_clients_are_served)
{
    enum { COUNT = 200 };
    char byte;
    scratch();
    int server = listening(SOCK_STREAM, "name", 4);
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (int at = 0; at < COUNT; at++) {
            int fd = socket(AF_UNIX, SOCK_STREAM, 0);
            if (connect_to(fd, named("name")) == -1 || send(fd, "q", 1, 0) != 1 ||
                recv(fd, &byte, 1, 0) != 1 || byte != 'a')
                _exit(1);
            close(fd);
        }
        _exit(0);
    }
    for (int at = 0; at < COUNT; at++) {
        int fd = accept(server, 0, 0);
        CHECK(fd >= 0);
        CHECK_EQ(recv(fd, &byte, 1, 0), 1);
        CHECK_EQ(send(fd, "a", 1, 0), 1);
        close(fd);
    }
    CHECK_EXITED(child, 0);
}
