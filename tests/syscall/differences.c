/* Rules of Linux that an implementation easily gets wrong: clamping before overlap, which error comes
 * first, whom sockets and terminals tell of what. */
#include "harness.h"
#include <sched.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <termios.h>

#ifndef RWF_APPEND
#define RWF_APPEND 0x10
#endif

CASE(appending_at_the_position_moves_it)
{
    scratch();
    int fd = file_with("file", "0123456789", 10);
    struct iovec part = {"ab", 2};
    CHECK_EQ(lseek(fd, 3, SEEK_SET), 3);
    CHECK_EQ(syscall(SYS_pwritev2, fd, &part, 1, -1L, -1L, RWF_APPEND), 2);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 12);
    CHECK_EQ(lseek(fd, 3, SEEK_SET), 3);
    CHECK_EQ(syscall(SYS_pwritev2, fd, &part, 1, 0L, 0L, RWF_APPEND), 2);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 3);
    CHECK_EQ(lseek(fd, 0, SEEK_END), 14);
}

CASE(copies_within_a_file_are_clamped_first)
{
    scratch();
    int fd = file_with("file", "0123456789", 10);
    off_t from = 5, to = 20;
    CHECK_EQ(syscall(SYS_copy_file_range, fd, &from, fd, &to, 100UL, 0), 5);
    CHECK_EQ(lseek(fd, 0, SEEK_END), 25);
    from = 0, to = 8;
    CHECK_ERRNO(syscall(SYS_copy_file_range, fd, &from, fd, &to, 100UL, 0), EINVAL);
    from = 30, to = 30;
    CHECK_EQ(syscall(SYS_copy_file_range, fd, &from, fd, &to, 100UL, 0), 0);
    int other = open("/proc/self/status", O_RDONLY);
    CHECK_ERRNO(syscall(SYS_copy_file_range, other, 0L, fd, 0L, 10UL, 0), EXDEV);
}

static volatile sig_atomic_t signals;

static void count_signal(int number)
{
    (void)number;
    signals++;
}

CASE(what_is_there_is_said_before_who_may)
{
    scratch();
    CHECK_OK(chmod(".", 0777));
    close(file_with("file", "x", 1));
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(syscall(SYS_setresuid, 65534, 65534, 65534));
        CHECK_ERRNO(mknod("file", S_IFCHR | 0600, 0x103), EEXIST);
        CHECK_ERRNO(mknod("new", S_IFCHR | 0600, 0x103), EPERM);
        CHECK_ERRNO(mknod("missing/new", S_IFCHR | 0600, 0x103), ENOENT);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_OK(mkdir("directory", 0755));
    CHECK_ERRNO(mount(0, "directory", 0, MS_BIND, 0), EINVAL);
    CHECK_ERRNO(mount(0, "directory", 0, MS_MOVE, 0), EINVAL);
    int ends[2];
    CHECK_OK(pipe(ends));
    CHECK_EQ(fcntl(ends[0], F_SETPIPE_SZ, 0), 4096);
    CHECK_OK(fcntl(ends[0], F_SETFL, O_DIRECT));
    CHECK(fcntl(ends[0], F_GETFL) & O_DIRECT);
}

static void tell_me(int fd)
{
    signals = 0;
    CHECK_OK(fcntl(fd, F_SETOWN, getpid()));
    CHECK_OK(fcntl(fd, F_SETFL, O_ASYNC));
}

CASE(sockets_tell_their_owners)
{
    struct sockaddr_un name = {AF_UNIX, ""};
    int pair[2];
    signal(SIGIO, count_signal);
    CHECK_OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    tell_me(pair[0]);
    CHECK_EQ(write(pair[1], "x", 1), 1);
    CHECK(signals > 0);
    CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    tell_me(pair[0]);
    CHECK_EQ(write(pair[1], "x", 1), 1);
    CHECK(signals > 0);
    signals = 0;
    close(pair[1]);
    CHECK(signals > 0);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), other = socket(AF_UNIX, SOCK_STREAM, 0);
    socklen_t length = sizeof name;
    CHECK_OK(bind(listener, (struct sockaddr *)&name, sizeof name.sun_family));
    CHECK_OK(getsockname(listener, (struct sockaddr *)&name, &length));
    CHECK_OK(listen(listener, 5));
    tell_me(listener);
    CHECK_OK(connect(other, (struct sockaddr *)&name, length));
    CHECK(signals > 0);
}

static int master = -1, slave = -1;

static void open_pair(void)
{
    char name[40];
    int number = -1, unlock = 0;
    master = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    CHECK(master >= 0);
    CHECK_OK(ioctl(master, TIOCGPTN, &number));
    CHECK_OK(ioctl(master, TIOCSPTLCK, &unlock));
    snprintf(name, sizeof name, "/dev/pts/%d", number);
    slave = open(name, O_RDWR | O_NOCTTY);
    CHECK(slave >= 0);
    struct termios modes;
    CHECK_OK(tcgetattr(slave, &modes));
    modes.c_oflag = 0;
    CHECK_OK(tcsetattr(slave, TCSANOW, &modes));
}

CASE(packets_of_a_master)
{
    char there[16] = "";
    int on = 1, off = 0;
    open_pair();
    CHECK_OK(ioctl(master, TIOCPKT, &on));
    CHECK_EQ(write(slave, "abc", 3), 3);
    CHECK_EQ(read(master, there, sizeof there), 4);
    CHECK_EQ(there[0], TIOCPKT_DATA);
    CHECK_EQ(memcmp(there + 1, "abc", 3), 0);
    CHECK_OK(tcflush(slave, TCIFLUSH));
    CHECK_EQ(read(master, there, sizeof there), 1);
    CHECK_EQ(there[0], TIOCPKT_FLUSHREAD);
    CHECK_OK(ioctl(master, TIOCPKT, &off));
    CHECK_EQ(write(slave, "de", 2), 2);
    CHECK_EQ(read(master, there, sizeof there), 2);
    CHECK_ERRNO(ioctl(master, TIOCPKT, BAD_KERNEL), EFAULT);
}

CASE(a_hang_up_signals_the_leader_and_its_end_the_foreground)
{
    int ready[2], alive[2];
    char byte;
    CHECK_OK(pipe(ready));
    CHECK_OK(pipe(alive));
    open_pair();
    pid_t leader = fork_or_fail();
    if (leader == 0) {
        close(master);
        CHECK_OK(setsid());
        CHECK_OK(ioctl(slave, TIOCSCTTY, 0));
        pid_t job = fork_or_fail();
        if (job == 0) {
            CHECK_OK(setpgid(0, 0));
            signal(SIGTTOU, SIG_IGN);
            CHECK_OK(tcsetpgrp(slave, getpid()));
            CHECK_EQ(write(ready[1], "x", 1), 1);
            for (;;)
                pause();
        }
        close(alive[1]);
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGHUP);
        CHECK_OK(sigprocmask(SIG_BLOCK, &set, 0));
        CHECK_EQ(write(ready[1], "x", 1), 1);
        int got = 0;
        CHECK_EQ(sigwait(&set, &got), 0);
        CHECK_EQ(got, SIGHUP);
        sleep_ms(20);
        CHECK_EQ(waitpid(job, 0, WNOHANG), 0);
        _exit(0);
    }
    close(alive[1]);
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    close(slave);
    close(master);
    CHECK_EXITED(leader, 0);
    CHECK_EQ(read(alive[0], &byte, 1), 0);
}

CASE(who_gives_its_terminal_up)
{
    open_pair();
    pid_t leader = fork_or_fail();
    if (leader == 0) {
        CHECK_OK(setsid());
        CHECK_OK(ioctl(slave, TIOCSCTTY, 0));
        pid_t member = fork_or_fail();
        if (member == 0) {
            /* A member of the session loses its own view of the terminal, the leader keeps it. */
            CHECK_OK(ioctl(slave, TIOCNOTTY));
            CHECK_ERRNO(open("/dev/tty", O_RDWR), ENXIO);
            _exit(0);
        }
        CHECK_EXITED(member, 0);
        CHECK_OK(open("/dev/tty", O_RDWR));
        signal(SIGHUP, SIG_IGN);
        CHECK_OK(ioctl(slave, TIOCNOTTY));
        CHECK_ERRNO(open("/dev/tty", O_RDWR), ENXIO);
        _exit(0);
    }
    CHECK_EXITED(leader, 0);
}

CASE(sendfile_to_a_pipe_that_appends)
{
    scratch();
    int from = file_with("file", "0123456789", 10);
    CHECK_OK(mkfifo("fifo", 0600));
    int fifo = open("fifo", O_RDWR | O_APPEND | O_NONBLOCK);
    CHECK_OK(fifo);
    CHECK_EQ(lseek(from, 0, SEEK_SET), 0);
    CHECK_EQ(sendfile(fifo, from, NULL, 10), 10);
    int to = open("to", O_WRONLY | O_CREAT | O_APPEND, 0600);
    CHECK_ERRNO(sendfile(to, from, NULL, 10), EINVAL);
}

CASE(what_cannot_be_written_refuses_even_nothing)
{
    sigset_t none;
    sigemptyset(&none);
    int files[] = {signalfd(-1, &none, SFD_NONBLOCK), timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), epoll_create1(0)};
    struct iovec part = {"", 0}, bad = {BAD_LOW, 8};
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
        CHECK_OK(files[i]);
        CHECK_ERRNO(write(files[i], "", 0), EINVAL);
        CHECK_ERRNO(writev(files[i], &part, 1), EINVAL);
        CHECK_ERRNO(writev(files[i], NULL, 0), EINVAL);
        CHECK_ERRNO(writev(files[i], &bad, 1), EINVAL);
        CHECK_ERRNO(write(files[i], BAD_LOW, 8), EINVAL);
    }
    CHECK_ERRNO(readv(files[2], &part, 1), EINVAL);
    CHECK_EQ(readv(files[0], &part, 1), 0);
}

/* What a writer of the case below appends: blocks of its own letter, larger than what is moved at a time. */
enum { BLOCK = 1300000, BLOCKS = 3, WRITERS = 3 };

static void append_blocks(int letter)
{
    for (int i = 0; i < BLOCKS; i++) {
        /* Pages that are missing stop a transfer half-way. */
        char *block = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(block != MAP_FAILED);
        memset(block, letter, BLOCK);
        int fd = open("file", O_WRONLY | O_APPEND);
        CHECK_EQ(write(fd, block, BLOCK), BLOCK);
        CHECK_OK(close(fd));
        CHECK_OK(munmap(block, BLOCK));
    }
}

CASE(long_appends_stay_whole)
{
    scratch();
    close(file_with("file", "", 0));
    pid_t writers[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = fork_or_fail();
        if (writers[i] == 0) {
            append_blocks('a' + i);
            _exit(0);
        }
    }
    for (int i = 0; i < WRITERS; i++) {
        int status;
        CHECK_EQ(waitpid(writers[i], &status, 0), writers[i]);
        CHECK_EQ(status, 0);
    }
    int fd = open("file", O_RDONLY);
    CHECK_EQ(lseek(fd, 0, SEEK_END), (off_t)BLOCK * BLOCKS * WRITERS);
    char *all = mmap(NULL, (size_t)BLOCK * BLOCKS * WRITERS, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(all != MAP_FAILED);
    for (int block = 0; block < BLOCKS * WRITERS; block++) {
        const char *start = all + (size_t)block * BLOCK;
        CHECK(memcmp(start, start + 1, BLOCK - 1) == 0);
    }
}

/* Children that each take one byte from a socket, or one connection, and end. */
enum { TAKERS = 4 };

static void expect_all(const pid_t *takers)
{
    for (int i = 0; i < TAKERS; i++) {
        int status;
        CHECK_EQ(waitpid(takers[i], &status, 0), takers[i]);
        CHECK_EQ(status, 0);
    }
}

static void wait_until_asleep(const pid_t *takers)
{
    for (int i = 0; i < TAKERS; i++) {
        char path[64], text[256];
        const char *state;
        snprintf(path, sizeof path, "/proc/%d/stat", takers[i]);
        do {
            int fd = open(path, O_RDONLY);
            ssize_t length = read(fd, text, sizeof text - 1);
            CHECK(length > 0);
            text[length] = 0;
            CHECK_OK(close(fd));
            state = strrchr(text, ')');
            CHECK(state);
            sched_yield();
        } while (state[2] != 'S');
    }
}

CASE(bytes_that_come_at_once_reach_all_who_wait)
{
    int ends[2];
    pid_t takers[TAKERS];
    CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    for (int i = 0; i < TAKERS; i++) {
        takers[i] = fork_or_fail();
        if (takers[i] == 0) {
            char byte;
            CHECK_EQ(recv(ends[1], &byte, 1, 0), 1);
            _exit(0);
        }
    }
    wait_until_asleep(takers);
    CHECK_EQ(send(ends[0], "abcd", TAKERS, 0), TAKERS);
    expect_all(takers);
}

CASE(the_end_reaches_all_who_wait)
{
    int ends[2];
    pid_t takers[TAKERS];
    CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    for (int i = 0; i < TAKERS; i++) {
        takers[i] = fork_or_fail();
        if (takers[i] == 0) {
            char byte;
            CHECK_OK(close(ends[0]));
            CHECK_EQ(recv(ends[1], &byte, 1, 0), 0);
            _exit(0);
        }
    }
    wait_until_asleep(takers);
    CHECK_OK(shutdown(ends[0], SHUT_WR));
    expect_all(takers);
}

CASE(each_of_several_in_accept_gets_a_connection)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    pid_t takers[TAKERS];
    scratch();
    strcpy(name.sun_path, "listener");
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), clients[TAKERS];
    CHECK_OK(bind(listener, (struct sockaddr *)&name, sizeof name));
    CHECK_OK(listen(listener, TAKERS));
    for (int i = 0; i < TAKERS; i++) {
        takers[i] = fork_or_fail();
        if (takers[i] == 0) {
            CHECK_OK(accept(listener, NULL, NULL));
            _exit(0);
        }
    }
    wait_until_asleep(takers);
    /* One who is killed while it waits takes nothing with it. */
    CHECK_OK(kill(takers[0], SIGKILL));
    CHECK_OK(clients[0] = socket(AF_UNIX, SOCK_STREAM, 0));
    CHECK_OK(connect(clients[0], (struct sockaddr *)&name, sizeof name));
    CHECK_EQ(waitpid(takers[0], NULL, 0), takers[0]);
    takers[0] = fork_or_fail();
    if (takers[0] == 0) {
        CHECK_OK(accept(listener, NULL, NULL));
        _exit(0);
    }
    /* Should the one that was killed have got it nevertheless, another follows. */
    for (int i = 1; i < TAKERS; i++) {
        CHECK_OK(clients[i] = socket(AF_UNIX, SOCK_STREAM, 0));
        CHECK_OK(connect(clients[i], (struct sockaddr *)&name, sizeof name));
    }
    int spare = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_OK(connect(spare, (struct sockaddr *)&name, sizeof name));
    expect_all(takers);
}

CASE(bad_arguments_before_what_the_descriptor_is)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct msghdr message = {0};
    scratch();
    int fd = file_with("file", "x", 1);
    CHECK_ERRNO(connect(fd, (void *)&name, -1), EINVAL);
    CHECK_ERRNO(connect(fd, (void *)&name, 1000), EINVAL);
    CHECK_ERRNO(connect(fd, BAD_LOW, 4), EFAULT);
    CHECK_ERRNO(connect(fd, (void *)&name, sizeof name), ENOTSOCK);
    CHECK_ERRNO(connect(-1, BAD_LOW, 4), EBADF);
    CHECK_ERRNO(sendmsg(-1, &message, (int)0x80000000), EINVAL);
    CHECK_ERRNO(recvmsg(-1, &message, (int)0x80000000), EINVAL);
    CHECK_ERRNO(syscall(SYS_sendmmsg, -1, &message, 1, 0x80000000), EINVAL);
    CHECK_ERRNO(syscall(SYS_recvmmsg, -1, &message, 1, 0x80000000, BAD_LOW), EINVAL);
    /* Far below the end of user space: what is too long is cut to 2 GiB, and the range is looked at first. */
    void *low = mmap((void *)(1l << 33), 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(low != MAP_FAILED);
    CHECK_ERRNO(sendto(-1, low, 0x7fffffffffffl, 0, NULL, 0), EBADF);
    CHECK_ERRNO(recvfrom(-1, low, 0x7fffffffffffl, 0, NULL, NULL), EBADF);
    CHECK_ERRNO(ioctl(fd, 1, BAD_LOW), EFAULT);
}

CASE(a_path_beats_all_other_flags)
{
    scratch();
    close(file_with("file", "x", 1));
    CHECK_ERRNO(open("file", O_PATH | O_CREAT | O_EXCL | O_TRUNC | O_TMPFILE | O_WRONLY, 0600), ENOTDIR);
    int fd = open(".", O_PATH | O_CREAT | O_TMPFILE | O_RDONLY, 0600);
    CHECK_OK(fd);
    CHECK_EQ(fcntl(fd, F_GETFL) & 3, 0);
}

CASE(arguments_that_nobody_looks_at)
{
    CHECK_OK(flock(-1, 32));
    CHECK_OK(syscall(SYS_setgroups, 0, BAD_LOW));
    CHECK_ERRNO(syscall(SYS_setgroups, 1, BAD_LOW), EFAULT);
}

CASE(mremap_does_not_shrink_what_ends_outside)
{
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    CHECK_ERRNO((long)mremap(page, 0x7fffffffe000, 4096, MREMAP_MAYMOVE), EINVAL);
    *(volatile char *)page = 1;
}
