/* Rules of Linux that an implementation easily gets wrong: clamping before overlap, which error comes
 * first, whom sockets and terminals tell of what. */
#include "harness.h"
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
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
