/* Open files in messages of local sockets: SCM_RIGHTS, its limits, what is lost, cycles. */
#include "harness.h"
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

/* As the kernel has it: libraries change control messages on their way. */
struct raw_message {
    void *name;
    int name_length;
    struct iovec *vectors;
    size_t vector_count;
    void *control;
    size_t control_length;
    int flags;
};

static int left, right;

static void make_pair(int type)
{
    int ends[2];
    CHECK_OK(socketpair(AF_UNIX, type, 0, ends));
    left = ends[0];
    right = ends[1];
}

enum { MOST = 260 };

union room {
    char bytes[CMSG_SPACE(sizeof(int) * MOST)];
    struct cmsghdr align;
};

/* Sends a byte with these files; -1 and errno as sendmsg. */
static ssize_t send_files(int fd, char byte, const int *files, int count)
{
    static union room control;
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    memset(&control, 0, sizeof control);
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
    memcpy(CMSG_DATA(header), files, sizeof(int) * (size_t)count);
    struct raw_message raw = {.vectors = &vector, .vector_count = 1};
    raw.control = control.bytes;
    raw.control_length = CMSG_SPACE(sizeof(int) * (size_t)count);
    return syscall(SYS_sendmsg, fd, &raw, 0);
}

static int received_flags;

/* Receives up to `size` bytes and files into `files`; the number of files. */
static int receive_files(int fd, char *bytes, size_t size, ssize_t *length, int *files, int room,
                         int flags)
{
    static union room control;
    struct iovec vector = {bytes, size};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    message.msg_control = control.bytes;
    message.msg_controllen = room ? CMSG_SPACE(sizeof(int) * (size_t)room) : 0;
    if (room && room % 2)
        message.msg_controllen = CMSG_LEN(sizeof(int) * (size_t)room);
    struct raw_message raw = {.vectors = &vector, .vector_count = 1};
    raw.control = message.msg_control;
    raw.control_length = message.msg_controllen;
    *length = syscall(SYS_recvmsg, fd, &raw, flags);
    received_flags = raw.flags;
    message.msg_controllen = raw.control_length;
    if (*length == -1)
        return -1;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header)
        return 0;
    CHECK_EQ(header->cmsg_level, SOL_SOCKET);
    CHECK_EQ(header->cmsg_type, SCM_RIGHTS);
    int count = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    memcpy(files, CMSG_DATA(header), sizeof(int) * (size_t)count);
    return count;
}

static int receive_one(int fd)
{
    char byte;
    ssize_t length;
    int file = -1;
    CHECK_EQ(receive_files(fd, &byte, 1, &length, &file, 1, 0), 1);
    CHECK_EQ(length, 1);
    return file;
}

static int is_hung_up(int fd)
{
    struct pollfd entry = {fd, 0, 0};
    CHECK(poll(&entry, 1, 0) >= 0);
    return (entry.revents & POLLHUP) != 0;
}

CASE(a_file_arrives_under_a_new_descriptor)
{
    int pipes[2], got;
    char buffer[8] = {0};
    int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    for (int at = 0; at < 3; at++) {
        make_pair(types[at]);
        CHECK_OK(pipe(pipes));
        CHECK_EQ(send_files(left, 'a', &pipes[1], 1), 1);
        close(pipes[1]);
        got = receive_one(right);
        CHECK_EQ(received_flags, 0);
        CHECK_EQ(fcntl(got, F_GETFD), 0);
        CHECK_EQ(write(got, "hello", 5), 5);
        CHECK_EQ(read(pipes[0], buffer, 8), 5);
        CHECK_STR(buffer, "hello");
        close(got);
        CHECK_EQ(read(pipes[0], buffer, 8), 0);
    }
}

CASE(the_same_description_is_shared)
{
    scratch();
    int file = file_with("data", "abcdef", 6);
    make_pair(SOCK_STREAM);
    CHECK_EQ(send_files(left, 'a', &file, 1), 1);
    int got = receive_one(right);
    char byte;
    CHECK_EQ(read(file, &byte, 1), 1);
    CHECK_EQ(read(got, &byte, 1), 1);
    CHECK_EQ(byte, 'b');
    CHECK_EQ(lseek(file, 0, SEEK_CUR), 2);
}

CASE(descriptors_can_be_closed_on_exec)
{
    ssize_t length;
    char byte;
    int file = dup(0), got;
    make_pair(SOCK_STREAM);
    CHECK_EQ(send_files(left, 'a', &file, 1), 1);
    CHECK_EQ(receive_files(right, &byte, 1, &length, &got, 1, MSG_CMSG_CLOEXEC), 1);
    CHECK_EQ(fcntl(got, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(received_flags, MSG_CMSG_CLOEXEC);
}

CASE(another_process_gets_the_file)
{
    int pipes[2];
    char buffer[8] = {0};
    make_pair(SOCK_SEQPACKET);
    CHECK_OK(pipe(pipes));
    pid_t child = fork_or_fail();
    if (child == 0) {
        close(pipes[0]);
        close(pipes[1]);
        int got = receive_one(right);
        _exit(write(got, "child", 5) == 5 ? 0 : 1);
    }
    CHECK_EQ(send_files(left, 'a', &pipes[1], 1), 1);
    CHECK_EQ(read(pipes[0], buffer, 8), 5);
    CHECK_STR(buffer, "child");
    CHECK_EXITED(child, 0);
}

CASE(files_end_a_read_of_a_stream)
{
    char buffer[16] = {0};
    ssize_t length;
    int files[4];
    make_pair(SOCK_STREAM);
    CHECK_EQ(write(left, "ab", 2), 2);
    CHECK_EQ(send_files(left, 'c', &left, 1), 1);
    CHECK_EQ(send_files(left, 'd', &right, 1), 1);
    CHECK_EQ(write(left, "ef", 2), 2);
    CHECK_EQ(receive_files(right, buffer, 16, &length, files, 2, 0), 1);
    CHECK_EQ(length, 3);
    CHECK_STR(buffer, "abc");
    CHECK_EQ(receive_files(right, buffer, 16, &length, files, 2, 0), 1);
    CHECK_EQ(length, 1);
    CHECK_EQ(receive_files(right, buffer, 16, &length, files, 2, 0), 0);
    CHECK_EQ(length, 2);
}

CASE(a_read_drops_the_files)
{
    int pipes[2];
    char byte;
    make_pair(SOCK_STREAM);
    CHECK_OK(pipe(pipes));
    CHECK_EQ(send_files(left, 'a', &pipes[1], 1), 1);
    close(pipes[1]);
    CHECK_EQ(read(right, &byte, 1), 1);
    CHECK_EQ(read(pipes[0], &byte, 1), 0);
}

CASE(what_does_not_fit_is_closed)
{
    int pipes[2], files[4], got[4] = {-1, -1, -1, -1};
    char byte;
    ssize_t length;
    make_pair(SOCK_STREAM);
    CHECK_OK(pipe(pipes));
    files[0] = dup(0);
    files[1] = pipes[1];
    CHECK_EQ(send_files(left, 'a', files, 2), 1);
    close(pipes[1]);
    CHECK_EQ(receive_files(right, &byte, 1, &length, got, 1, 0), 1);
    CHECK_EQ(received_flags, MSG_CTRUNC);
    CHECK_EQ(read(pipes[0], &byte, 1), 0);
    CHECK_EQ(send_files(left, 'a', files, 1), 1);
    CHECK_EQ(receive_files(right, &byte, 1, &length, got, 0, 0), 0);
    CHECK_EQ(received_flags, MSG_CTRUNC);
}

CASE(without_free_descriptors_files_are_lost)
{
    struct rlimit limit = {0, 0};
    int files[3] = {0, 1, 2}, got[3];
    char byte;
    ssize_t length;
    make_pair(SOCK_STREAM);
    CHECK_EQ(send_files(left, 'a', files, 3), 1);
    limit.rlim_cur = limit.rlim_max = (rlim_t)right + 3;
    CHECK_OK(setrlimit(RLIMIT_NOFILE, &limit));
    CHECK_EQ(receive_files(right, &byte, 1, &length, got, 3, 0), 2);
    CHECK_EQ(received_flags, MSG_CTRUNC);
    CHECK_EQ(send_files(left, 'a', files, 1), 1);
    CHECK_EQ(receive_files(right, &byte, 1, &length, got, 3, 0), 0);
    CHECK_EQ(received_flags, MSG_CTRUNC);
}

CASE(a_message_has_room_for_253_files)
{
    int files[MOST], got[MOST];
    char byte;
    ssize_t length;
    for (int at = 0; at < MOST; at++)
        files[at] = 0;
    make_pair(SOCK_STREAM);
    CHECK_ERRNO(send_files(left, 'a', files, 254), EINVAL);
    CHECK_EQ(send_files(left, 'a', files, 253), 1);
    CHECK_EQ(receive_files(right, &byte, 1, &length, got, 253, 0), 253);
    CHECK_EQ(received_flags, 0);
    CHECK_OK(fcntl(got[252], F_GETFD));
}

CASE(bad_control_messages_are_refused)
{
    int file = -1, pipes[2];
    char byte;
    union room control;
    struct iovec vector = {"x", 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    make_pair(SOCK_DGRAM);
    CHECK_ERRNO(send_files(left, 'a', &file, 1), EBADF);
    CHECK_OK(pipe(pipes));
    file = pipes[0];
    close(pipes[0]);
    CHECK_ERRNO(send_files(left, 'a', &file, 1), EBADF);
    memset(&control, 0, sizeof control);
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(sizeof(int));
    CHECK_ERRNO(sendmsg(left, &message, 0), EINVAL);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_len = CMSG_LEN(sizeof(int));
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = 77;
    CHECK_ERRNO(sendmsg(left, &message, 0), EINVAL);
    header->cmsg_level = 77;
    CHECK_EQ(sendmsg(left, &message, 0), 1);
    header->cmsg_len = 1000;
    CHECK_ERRNO(sendmsg(left, &message, 0), EINVAL);
    struct raw_message raw = {.vectors = &vector, .vector_count = 1};
    raw.control = BAD_LOW;
    raw.control_length = CMSG_SPACE(sizeof(int));
    CHECK_ERRNO(syscall(SYS_sendmsg, left, &raw, 0), EFAULT);
    raw.control_length = 0;
    CHECK_EQ(syscall(SYS_sendmsg, left, &raw, 0), 1);
    raw.control = control.bytes;
    raw.control_length = 1UL << 40;
    CHECK_ERRNO(syscall(SYS_sendmsg, left, &raw, 0), ENOBUFS);
    CHECK_EQ(recv(right, &byte, 1, 0), 1);
    CHECK_EQ(recv(right, &byte, 1, 0), 1);
    CHECK_ERRNO(recv(right, &byte, 1, MSG_DONTWAIT), EAGAIN);
}

CASE(looking_copies_the_files)
{
    int pipes[2], got;
    char byte;
    ssize_t length;
    int types[] = {SOCK_STREAM, SOCK_DGRAM};
    for (int at = 0; at < 2; at++) {
        make_pair(types[at]);
        CHECK_OK(pipe(pipes));
        CHECK_EQ(send_files(left, 'a', &pipes[1], 1), 1);
        close(pipes[1]);
        CHECK_EQ(receive_files(right, &byte, 1, &length, &got, 1, MSG_PEEK), 1);
        CHECK_EQ(write(got, "x", 1), 1);
        close(got);
        CHECK_EQ(read(pipes[0], &byte, 1), 1);
        got = receive_one(right);
        CHECK_EQ(write(got, "y", 1), 1);
        close(got);
        CHECK_EQ(read(pipes[0], &byte, 1), 1);
        CHECK_EQ(read(pipes[0], &byte, 1), 0);
    }
}

CASE(files_in_a_queue_are_closed_with_it)
{
    int pipes[2];
    char byte;
    make_pair(SOCK_DGRAM);
    CHECK_OK(pipe(pipes));
    CHECK_EQ(send_files(left, 'a', &pipes[1], 1), 1);
    close(pipes[1]);
    close(left);
    close(right);
    CHECK_EQ(read(pipes[0], &byte, 1), 0);
}

/* The peer of `watched` hangs up once `watched` is gone, which on Linux may take a little. */
static void check_collected(int watcher)
{
    for (int turn = 0; turn < 2000 && !is_hung_up(watcher); turn++) {
        close(socket(AF_UNIX, SOCK_STREAM, 0));
        sleep_ms(5);
    }
    CHECK(is_hung_up(watcher));
}

CASE(a_socket_in_its_own_queue_is_collected)
{
    int watch[2], both[2];
    CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, watch));
    make_pair(SOCK_DGRAM);
    both[0] = right;
    both[1] = watch[0];
    CHECK_EQ(send_files(left, 'a', both, 2), 1);
    close(watch[0]);
    close(right);
    close(left);
    check_collected(watch[1]);
}

CASE(a_ring_of_sockets_is_collected)
{
    enum { COUNT = 8 };
    int watch[2], ring[COUNT][2];
    CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, watch));
    for (int at = 0; at < COUNT; at++)
        CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ring[at]));
    for (int at = 0; at < COUNT; at++) {
        CHECK_EQ(send_files(ring[at][0], 'a', ring[(at + 1) % COUNT], 2), 1);
    }
    CHECK_EQ(send_files(ring[3][0], 'a', &watch[0], 1), 1);
    close(watch[0]);
    for (int at = 0; at < COUNT; at++) {
        CHECK(!is_hung_up(watch[1]));
        close(ring[at][0]);
        close(ring[at][1]);
    }
    check_collected(watch[1]);
}

CASE(a_ring_that_somebody_holds_is_kept)
{
    int watch[2], ends[2];
    CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, watch));
    CHECK_OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    make_pair(SOCK_DGRAM);
    CHECK_EQ(send_files(left, 'a', &right, 1), 1);
    CHECK_EQ(send_files(left, 'b', &watch[0], 1), 1);
    CHECK_EQ(send_files(ends[0], 'c', &right, 1), 1);
    close(watch[0]);
    close(left);
    close(right);
    close(socket(AF_UNIX, SOCK_STREAM, 0));
    CHECK(!is_hung_up(watch[1]));
    int got = receive_one(ends[1]);
    int self = receive_one(got);
    int watched = receive_one(self);
    CHECK_EQ(write(watched, "x", 1), 1);
    char byte;
    CHECK_EQ(read(watch[1], &byte, 1), 1);
}

CASE(connections_that_nobody_accepts_are_collected)
{
    int watch[2];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    scratch();
    strcpy(address.sun_path, "listener");
    CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, watch));
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_OK(bind(listener, (struct sockaddr *)&address, sizeof address));
    CHECK_OK(listen(listener, 5));
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_OK(connect(client, (struct sockaddr *)&address, sizeof address));
    int files[2] = {listener, watch[0]};
    CHECK_EQ(send_files(client, 'a', files, 2), 1);
    close(watch[0]);
    close(client);
    CHECK(!is_hung_up(watch[1]));
    close(listener);
    check_collected(watch[1]);
}

CASE(a_user_has_a_limited_number_of_files_in_flight)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        struct rlimit limit = {20, 20};
        if (setrlimit(RLIMIT_NOFILE, &limit) == -1 || setresuid(4712, 4712, 4712) == -1)
            _exit(2);
        make_pair(SOCK_DGRAM);
        int file = 0, sent = 0;
        while (sent < 1000 && send_files(left, 'a', &file, 1) == 1)
            sent++;
        if (errno != ETOOMANYREFS || sent < 20 || sent > 22)
            _exit(3);
        close(receive_one(right));
        close(receive_one(right));
        _exit(send_files(left, 'a', &file, 1) == 1 ? 0 : 4);
    }
    CHECK_EXITED(child, 0);
}
