/* Leases: who may have one, who must wait for its end, and how the holder is told. And handles of files. */
#include "harness.h"
#include "credentials.h"

#ifndef F_SETLEASE
#define F_SETLEASE 1024
#define F_GETLEASE 1025
#endif
#ifndef F_SETSIG
#define F_SETSIG 10
#endif

static volatile sig_atomic_t told_fd = -1, told_code;

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    told_fd = info->si_fd;
    told_code = info->si_code;
}

static void listen_for_signals(int fd)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    CHECK_OK(sigaction(SIGUSR1, &action, 0));
    CHECK_OK(fcntl(fd, F_SETSIG, SIGUSR1));
}

CASE(a_lease_is_taken_and_given_up)
{
    scratch();
    close(file_with("file", "abc", 3));
    int fd = open("file", O_RDONLY);
    CHECK_EQ(fcntl(fd, F_GETLEASE), F_UNLCK);
    CHECK_ERRNO(fcntl(fd, F_SETLEASE, F_UNLCK), EAGAIN);
    CHECK_OK(fcntl(fd, F_SETLEASE, F_RDLCK));
    CHECK_EQ(fcntl(fd, F_GETLEASE), F_RDLCK);
    CHECK_OK(fcntl(fd, F_SETLEASE, F_WRLCK));
    CHECK_EQ(fcntl(fd, F_GETLEASE), F_WRLCK);
    CHECK_EQ(fcntl(dup(fd), F_GETLEASE), F_WRLCK);
    CHECK_OK(fcntl(fd, F_SETLEASE, F_UNLCK));
    CHECK_EQ(fcntl(fd, F_GETLEASE), F_UNLCK);
    CHECK_ERRNO(fcntl(fd, F_SETLEASE, 77), EINVAL);
}

CASE(leases_are_refused)
{
    int ends[2];
    scratch();
    close(file_with("file", "abc", 3));
    int reader = open("file", O_RDONLY), writer = open("file", O_RDWR);
    CHECK_ERRNO(fcntl(reader, F_SETLEASE, F_RDLCK), EAGAIN);
    CHECK_ERRNO(fcntl(writer, F_SETLEASE, F_RDLCK), EAGAIN);
    CHECK_ERRNO(fcntl(writer, F_SETLEASE, F_WRLCK), EAGAIN);
    close(reader);
    CHECK_OK(fcntl(writer, F_SETLEASE, F_WRLCK));
    close(writer);
    reader = open("file", O_RDONLY);
    int other = open("file", O_RDONLY);
    CHECK_OK(fcntl(reader, F_SETLEASE, F_RDLCK));
    CHECK_OK(fcntl(other, F_SETLEASE, F_RDLCK));
    CHECK_ERRNO(fcntl(other, F_SETLEASE, F_WRLCK), EAGAIN);
    CHECK_OK(pipe(ends));
    CHECK_ERRNO(fcntl(ends[0], F_SETLEASE, F_RDLCK), EINVAL);
    CHECK_ERRNO(fcntl(open(".", O_RDONLY), F_SETLEASE, F_RDLCK), EINVAL);
    pid_t child = fork_or_fail();
    if (child == 0) {
        act_as(65534, NO_CAPABILITIES);
        CHECK_ERRNO(fcntl(reader, F_SETLEASE, F_RDLCK), EACCES);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(who_opens_without_waiting_is_refused)
{
    scratch();
    close(file_with("file", "abc", 3));
    int fd = open("file", O_RDONLY);
    listen_for_signals(fd);
    CHECK_OK(fcntl(fd, F_SETLEASE, F_RDLCK));
    close(open("file", O_RDONLY | O_NONBLOCK));
    CHECK_EQ(told_fd, -1);
    CHECK_ERRNO(open("file", O_RDWR | O_NONBLOCK), EAGAIN);
    CHECK_EQ(told_fd, fd);
    CHECK_EQ(told_code, 3);
    CHECK_EQ(fcntl(fd, F_GETLEASE), F_UNLCK);
    told_fd = -1;
    CHECK_ERRNO(open("file", O_WRONLY | O_NONBLOCK), EAGAIN);
    CHECK_EQ(told_fd, -1);
    CHECK_OK(fcntl(fd, F_SETLEASE, F_UNLCK));
    CHECK_OK(open("file", O_RDWR | O_NONBLOCK));
}

CASE(who_opens_waits_until_the_holder_gives_way)
{
    scratch();
    close(file_with("file", "abc", 3));
    for (int round = 0; round < 3; round++) {
        int fd = open("file", O_RDONLY);
        listen_for_signals(fd);
        told_fd = -1;
        CHECK_OK(fcntl(fd, F_SETLEASE, round == 1 ? F_WRLCK : F_RDLCK));
        sigset_t set, old;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        CHECK_OK(sigprocmask(SIG_BLOCK, &set, &old));
        pid_t child = fork_or_fail();
        if (child == 0) {
            close(fd); /* It would keep the lease alive. */
            if (round == 2)
                _exit(truncate("file", 1) == 0 ? 0 : 1);
            _exit(open("file", round == 0 ? O_WRONLY : O_RDONLY) >= 0 ? 0 : 1);
        }
        while (told_fd == -1)
            sigsuspend(&old);
        CHECK_OK(sigprocmask(SIG_SETMASK, &old, 0));
        CHECK_EQ(waitpid(child, 0, WNOHANG), 0);
        CHECK_EQ(fcntl(fd, F_GETLEASE), round == 1 ? F_RDLCK : F_UNLCK);
        if (round == 1)
            CHECK_OK(fcntl(fd, F_SETLEASE, F_RDLCK));
        else if (round == 0)
            CHECK_OK(fcntl(fd, F_SETLEASE, F_UNLCK));
        close(fd);
        CHECK_EXITED(child, 0);
    }
}

/* Room for a handle. */
struct handle {
    unsigned bytes;
    int type;
    unsigned char data[128];
};

CASE(files_by_handle)
{
    struct handle handle = {0, 0, {0}};
    int mount = -1, other = -1;
    char there[4] = "";
    scratch();
    CHECK_OK(mkdir("directory", 0755));
    close(file_with("directory/file", "abc", 3));
    CHECK_OK(symlink("directory/file", "link"));
    long result = syscall(SYS_name_to_handle_at, AT_FDCWD, "directory/file", &handle, &mount, 0);
    if (result == -1 && (errno == EOPNOTSUPP || errno == ENOSYS))
        SKIP("no handles here");
    CHECK(result == -1 && errno == EOVERFLOW);
    CHECK(handle.bytes > 0 && handle.bytes <= 128);
    CHECK_OK(syscall(SYS_name_to_handle_at, AT_FDCWD, "directory/file", &handle, &mount, 0));
    int place = open(".", O_RDONLY);
    int fd = (int)syscall(SYS_open_by_handle_at, place, &handle, O_RDONLY);
    if (fd == -1 && errno == EPERM)
        SKIP("may not open by handle");
    CHECK_OK(fd);
    CHECK_EQ(read(fd, there, 3), 3);
    CHECK_STR(there, "abc");
    CHECK_EQ(fcntl(fd, F_GETFD), 0);
    CHECK_ERRNO(syscall(SYS_open_by_handle_at, -1, &handle, O_RDONLY), EBADF);
    struct handle link = {128, 0, {0}};
    CHECK_OK(syscall(SYS_name_to_handle_at, AT_FDCWD, "link", &link, &other, 0));
    CHECK_EQ(other, mount);
    CHECK_ERRNO(syscall(SYS_open_by_handle_at, place, &link, O_RDONLY), ELOOP);
    CHECK_OK(syscall(SYS_open_by_handle_at, place, &link, O_PATH));
    link.bytes = 128;
    CHECK_OK(syscall(SYS_name_to_handle_at, AT_FDCWD, "link", &link, &other, 0x400));
    CHECK_OK(syscall(SYS_open_by_handle_at, place, &link, O_RDONLY));
    link.bytes = 129;
    CHECK_ERRNO(syscall(SYS_name_to_handle_at, AT_FDCWD, "link", &link, &other, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_open_by_handle_at, place, &link, O_RDONLY), EINVAL);
    link.bytes = 0;
    CHECK_ERRNO(syscall(SYS_open_by_handle_at, place, &link, O_RDONLY), EINVAL);
    link.bytes = 128;
    CHECK_ERRNO(syscall(SYS_name_to_handle_at, AT_FDCWD, "link", &link, &other, 0x100000), EINVAL);
    CHECK_ERRNO(syscall(SYS_name_to_handle_at, AT_FDCWD, "", &link, &other, 0), ENOENT);
    CHECK_OK(syscall(SYS_name_to_handle_at, place, "", &link, &other, AT_EMPTY_PATH));
    CHECK_ERRNO(syscall(SYS_name_to_handle_at, AT_FDCWD, "link", BAD_KERNEL, &other, 0), EFAULT);
    CHECK_ERRNO(syscall(SYS_name_to_handle_at, AT_FDCWD, "link", &link, BAD_KERNEL, 0), EFAULT);
    pid_t child = fork_or_fail();
    if (child == 0) {
        act_as(65534, NO_CAPABILITIES);
        CHECK_ERRNO(syscall(SYS_open_by_handle_at, place, &handle, O_RDONLY), EPERM);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}
