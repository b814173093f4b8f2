/* POSIX message queues: mq_open, mq_unlink, mq_timedsend, mq_timedreceive, mq_notify, mq_getsetattr,
 * and the file system that shows them. */
#include "harness.h"
#include <mqueue.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/vfs.h>

static char buffer[8192];

static mqd_t queue(const char *name, long messages, long bytes)
{
    struct mq_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.mq_maxmsg = messages;
    attributes.mq_msgsize = bytes;
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    CHECK_OK(queue);
    return queue;
}

static int put(mqd_t queue, const char *text, unsigned priority)
{
    return mq_send(queue, text, strlen(text) + 1, priority);
}

static const char *get(mqd_t queue, unsigned *priority)
{
    CHECK_OK(mq_receive(queue, buffer, sizeof buffer, priority));
    return buffer;
}

static long present(mqd_t queue)
{
    struct mq_attr attributes;
    CHECK_OK(mq_getattr(queue, &attributes));
    return attributes.mq_curmsgs;
}

static void until_asleep(pid_t child)
{
    char path[64], text[512], *state;
    snprintf(path, sizeof path, "/proc/%d/stat", child);
    for (;;) {
        slurp(path, text, sizeof text);
        state = strrchr(text, ')');
        if (state && state[2] == 'S')
            return;
        sleep_ms(1);
    }
}

static void become_nobody(void)
{
    CHECK_OK(setgid(65534));
    CHECK_OK(setuid(65534));
}

CASE(higher_priorities_come_first)
{
    mqd_t id = queue("/priorities", 10, 100);
    unsigned priority = 99;
    CHECK_OK(put(id, "low", 1));
    CHECK_OK(put(id, "high", 5));
    CHECK_OK(put(id, "low too", 1));
    CHECK_OK(put(id, "highest", 32767));
    CHECK_EQ(present(id), 4);
    CHECK_STR(get(id, &priority), "highest");
    CHECK_EQ(priority, 32767);
    CHECK_STR(get(id, &priority), "high");
    CHECK_STR(get(id, &priority), "low");
    CHECK_STR(get(id, 0), "low too");
    CHECK_EQ(priority, 1);
    CHECK_ERRNO(put(id, "x", 32768), EINVAL);
    CHECK_OK(mq_unlink("/priorities"));
}

CASE(names_are_found_made_and_removed)
{
    CHECK_ERRNO(mq_open("/names", O_RDWR), ENOENT);
    CHECK_ERRNO(syscall(SYS_mq_open, "", O_RDWR | O_CREAT, 0600, 0), ENOENT);
    CHECK_ERRNO(syscall(SYS_mq_open, "a/b", O_RDWR | O_CREAT, 0600, 0), EACCES);
    CHECK_ERRNO(syscall(SYS_mq_open, ".", O_RDWR | O_CREAT, 0600, 0), EACCES);
    CHECK_ERRNO(syscall(SYS_mq_open, "..", O_RDWR, 0600, 0), EACCES);
    CHECK_ERRNO(syscall(SYS_mq_open, BAD_LOW, O_RDWR, 0600, 0), EFAULT);
    CHECK_ERRNO(syscall(SYS_mq_open, "x", O_RDWR | O_CREAT, 0600, BAD_LOW), EFAULT);
    char name[300];
    memset(name, 'n', sizeof name);
    name[0] = '/';
    name[257] = 0;
    CHECK_ERRNO(mq_open(name, O_RDWR | O_CREAT, 0600, 0), ENAMETOOLONG);
    name[256] = 0;
    mqd_t id = mq_open(name, O_RDWR | O_CREAT, 0600, 0);
    CHECK_OK(id);
    CHECK_EQ(fcntl(id, F_GETFD), FD_CLOEXEC);
    CHECK_ERRNO(mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, 0), EEXIST);
    mqd_t second = mq_open(name, O_RDONLY);
    CHECK_OK(second);
    CHECK_OK(put(id, "hello", 0));
    CHECK_STR(get(second, 0), "hello");
    CHECK_ERRNO(put(second, "hello", 0), EBADF);
    CHECK_OK(mq_unlink(name));
    CHECK_ERRNO(mq_unlink(name), ENOENT);
    CHECK_ERRNO(mq_open(name, O_RDWR), ENOENT);
    CHECK_OK(put(id, "still", 0));
    CHECK_STR(get(second, 0), "still");
}

CASE(attributes)
{
    struct mq_attr attributes, wrong;
    mqd_t id = mq_open("/plain", O_RDWR | O_CREAT, 0600, 0);
    CHECK_OK(id);
    CHECK_OK(mq_getattr(id, &attributes));
    CHECK_EQ(attributes.mq_maxmsg, 10);
    CHECK_EQ(attributes.mq_msgsize, 8192);
    CHECK_EQ(attributes.mq_flags, 0);
    CHECK_EQ(attributes.mq_curmsgs, 0);
    attributes.mq_flags = O_NONBLOCK;
    attributes.mq_maxmsg = 99;
    CHECK_OK(mq_setattr(id, &attributes, 0));
    CHECK_OK(mq_getattr(id, &attributes));
    CHECK_EQ(attributes.mq_flags, O_NONBLOCK);
    CHECK_EQ(attributes.mq_maxmsg, 10);
    CHECK_EQ(fcntl(id, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    attributes.mq_flags = O_NONBLOCK | 1;
    CHECK_ERRNO(mq_setattr(id, &attributes, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_mq_getsetattr, id, BAD_LOW, 0), EFAULT);
    CHECK_ERRNO(syscall(SYS_mq_getsetattr, id, 0, BAD_LOW), EFAULT);
    CHECK_ERRNO(mq_getattr(0, &attributes), EBADF);
    CHECK_ERRNO(mq_getattr(-1, &attributes), EBADF);
    CHECK_OK(mq_unlink("/plain"));
    memset(&wrong, 0, sizeof wrong);
    wrong.mq_msgsize = 10;
    CHECK_ERRNO(mq_open("/wrong", O_RDWR | O_CREAT, 0600, &wrong), EINVAL);
    wrong.mq_maxmsg = -1;
    CHECK_ERRNO(mq_open("/wrong", O_RDWR | O_CREAT, 0600, &wrong), EINVAL);
    wrong.mq_maxmsg = 70000;
    CHECK_ERRNO(mq_open("/wrong", O_RDWR | O_CREAT, 0600, &wrong), EINVAL);
    wrong.mq_maxmsg = 10;
    wrong.mq_msgsize = (16 << 20) + 1;
    CHECK_ERRNO(mq_open("/wrong", O_RDWR | O_CREAT, 0600, &wrong), EINVAL);
    CHECK_ERRNO(mq_open("/wrong", O_RDWR), ENOENT);
}

CASE(sizes_are_checked)
{
    mqd_t id = queue("/sizes", 2, 8);
    CHECK_ERRNO(mq_send(id, "123456789", 9, 0), EMSGSIZE);
    CHECK_OK(mq_send(id, "12345678", 8, 0));
    CHECK_ERRNO(mq_receive(id, buffer, 7, 0), EMSGSIZE);
    CHECK_EQ(mq_receive(id, buffer, 8, 0), 8);
    CHECK_OK(mq_send(id, 0, 0, 0));
    CHECK_EQ(mq_receive(id, buffer, 8, 0), 0);
    CHECK_ERRNO(mq_send(id, BAD_LOW, 4, 0), EFAULT);
    CHECK_OK(mq_send(id, "1", 1, 0));
    CHECK_ERRNO(mq_receive(id, BAD_LOW, 8, 0), EFAULT);
    CHECK_EQ(present(id), 0);
    CHECK_OK(mq_unlink("/sizes"));
}

CASE(full_and_empty_queues_do_not_wait_when_told)
{
    mqd_t id = queue("/full", 2, 8);
    CHECK_OK(fcntl(id, F_SETFL, O_NONBLOCK));
    CHECK_ERRNO(mq_receive(id, buffer, 8, 0), EAGAIN);
    CHECK_OK(put(id, "1", 0));
    CHECK_OK(put(id, "2", 0));
    CHECK_ERRNO(put(id, "3", 0), EAGAIN);
    CHECK_OK(fcntl(id, F_SETFL, 0));
    struct timespec past = {1, 0}, wrong = {0, 1000000000};
    CHECK_ERRNO(mq_timedsend(id, "3", 1, 0, &past), ETIMEDOUT);
    CHECK_ERRNO(mq_timedsend(id, "3", 1, 0, &wrong), EINVAL);
    CHECK_ERRNO(syscall(SYS_mq_timedsend, id, "3", 1, 0, BAD_LOW), EFAULT);
    get(id, 0);
    CHECK_OK(mq_timedsend(id, "3", 1, 0, &past));
    get(id, 0);
    get(id, 0);
    CHECK_ERRNO(mq_timedreceive(id, buffer, 8, 0, &past), ETIMEDOUT);
    CHECK_OK(mq_unlink("/full"));
}

CASE(waiters_go_on)
{
    mqd_t id = queue("/waiters", 1, 8);
    pid_t receiver = fork_or_fail();
    if (receiver == 0)
        _exit(strcmp(get(id, 0), "hello") == 0 ? 0 : 1);
    until_asleep(receiver);
    CHECK_OK(put(id, "hello", 0));
    CHECK_EXITED(receiver, 0);
    CHECK_OK(put(id, "first", 0));
    pid_t sender = fork_or_fail();
    if (sender == 0)
        _exit(put(id, "second", 9) == 0 ? 0 : 1);
    until_asleep(sender);
    CHECK_STR(get(id, 0), "first");
    CHECK_EXITED(sender, 0);
    CHECK_STR(get(id, 0), "second");
    CHECK_OK(mq_unlink("/waiters"));
}

static void ignore(int number)
{
    (void)number;
}

CASE(a_signal_ends_a_wait)
{
    mqd_t id = queue("/signals", 1, 8);
    struct sigaction action = {.sa_handler = ignore};
    CHECK_OK(sigaction(SIGUSR1, &action, 0));
    pid_t child = pesterer(SIGUSR1);
    CHECK_ERRNO(mq_receive(id, buffer, 8, 0), EINTR);
    CHECK_OK(put(id, "x", 0));
    CHECK_ERRNO(put(id, "y", 0), EINTR);
    kill(child, SIGKILL);
    CHECK_KILLED(child, SIGKILL);
    CHECK_OK(mq_unlink("/signals"));
}

static siginfo_t seen;

static void note(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    seen = *info;
}

CASE(a_signal_tells_of_the_first_message)
{
    mqd_t id = queue("/notify", 4, 8);
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
    struct sigevent event;
    memset(&event, 0, sizeof event);
    CHECK_OK(sigaction(SIGUSR1, &action, 0));
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGUSR1;
    event.sigev_value.sival_int = 4711;
    CHECK_OK(mq_notify(id, &event));
    CHECK_ERRNO(mq_notify(id, &event), EBUSY);
    CHECK_OK(put(id, "a", 0));
    CHECK_EQ(seen.si_signo, SIGUSR1);
    CHECK_EQ(seen.si_code, SI_MESGQ);
    CHECK_EQ(seen.si_value.sival_int, 4711);
    CHECK_EQ(seen.si_pid, getpid());
    CHECK_EQ(seen.si_uid, getuid());
    seen.si_signo = 0;
    CHECK_OK(mq_notify(id, &event));
    CHECK_OK(put(id, "b", 0));
    CHECK_EQ(seen.si_signo, 0);
    get(id, 0);
    get(id, 0);
    CHECK_ERRNO(mq_notify(id, &event), EBUSY);
    CHECK_OK(mq_notify(id, 0));
    CHECK_OK(put(id, "c", 0));
    CHECK_EQ(seen.si_signo, 0);
    get(id, 0);
    CHECK_OK(mq_unlink("/notify"));
}

CASE(a_receiver_that_waits_comes_before_a_notification)
{
    mqd_t id = queue("/before", 4, 8);
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
    struct sigevent event;
    memset(&event, 0, sizeof event);
    CHECK_OK(sigaction(SIGUSR1, &action, 0));
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGUSR1;
    CHECK_OK(mq_notify(id, &event));
    pid_t receiver = fork_or_fail();
    if (receiver == 0)
        _exit(strcmp(get(id, 0), "a") == 0 ? 0 : 1);
    until_asleep(receiver);
    CHECK_OK(put(id, "a", 0));
    CHECK_EXITED(receiver, 0);
    CHECK_EQ(seen.si_signo, 0);
    CHECK_OK(put(id, "b", 0));
    CHECK_EQ(seen.si_signo, SIGUSR1);
    CHECK_OK(mq_unlink("/before"));
}

CASE(closing_and_ending_take_a_notification_back)
{
    mqd_t id = queue("/closing", 4, 8);
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_NONE;
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(mq_notify(id, &event) == 0 ? 0 : 1);
    CHECK_EXITED(child, 0);
    CHECK_OK(mq_notify(id, &event));
    child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(mq_notify(id, 0));
        CHECK_ERRNO(mq_notify(id, &event), EBUSY);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    mqd_t other = mq_open("/closing", O_RDONLY);
    CHECK_OK(mq_close(other));
    CHECK_OK(mq_notify(id, &event));
    CHECK_ERRNO(mq_notify(id, &event), EBUSY);
    event.sigev_notify = 77;
    CHECK_ERRNO(mq_notify(id, &event), EINVAL);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = 65;
    CHECK_ERRNO(mq_notify(id, &event), EINVAL);
    CHECK_ERRNO(syscall(SYS_mq_notify, id, BAD_LOW), EFAULT);
    CHECK_ERRNO(mq_notify(0, 0), EBADF);
    CHECK_OK(mq_unlink("/closing"));
}

CASE(readiness)
{
    mqd_t id = queue("/ready", 1, 8);
    struct pollfd one = {.fd = id, .events = POLLIN | POLLOUT};
    CHECK_EQ(poll(&one, 1, 0), 1);
    CHECK_EQ(one.revents, POLLOUT);
    CHECK_OK(put(id, "x", 0));
    CHECK_EQ(poll(&one, 1, 0), 1);
    CHECK_EQ(one.revents, POLLIN);
    get(id, 0);
    one.events = POLLIN;
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(poll(&one, 1, -1) == 1 && one.revents == POLLIN ? 0 : 1);
    until_asleep(child);
    CHECK_OK(put(id, "x", 0));
    CHECK_EXITED(child, 0);
    CHECK_OK(mq_unlink("/ready"));
}

CASE(permissions_are_checked)
{
    mqd_t id = queue("/rights", 1, 8);
    CHECK_OK(fchmod(id, 0604));
    pid_t child = fork_or_fail();
    if (child == 0) {
        become_nobody();
        CHECK_ERRNO(mq_open("/rights", O_RDWR), EACCES);
        CHECK_ERRNO(mq_open("/rights", O_WRONLY), EACCES);
        CHECK_OK(mq_open("/rights", O_RDONLY));
        CHECK(mq_unlink("/rights") == -1 && (errno == EPERM || errno == EACCES));
        CHECK_OK(mq_open("/mine", O_RDWR | O_CREAT, 0600, 0));
        CHECK_OK(mq_unlink("/mine"));
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_OK(mq_unlink("/rights"));
}

CASE(a_user_has_a_limit)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        struct rlimit limit = {90000, 90000};
        char name[20];
        int made = 0;
        CHECK_OK(setrlimit(RLIMIT_MSGQUEUE, &limit));
        become_nobody();
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "/limit%d", i);
            if (mq_open(name, O_RDWR | O_CREAT, 0600, 0) != -1)
                made++;
            else
                CHECK_EQ(errno, EMFILE);
        }
        CHECK_EQ(made, 1);
        CHECK_OK(mq_unlink("/limit0"));
        CHECK_ERRNO(mq_open("/limit1", O_RDWR | O_CREAT, 0600, 0), EMFILE);
        close(3);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(a_file_system_shows_queues)
{
    struct statfs fs;
    struct stat status;
    char text[200], path[100];
    mqd_t id = queue("/shown", 4, 100);
    scratch();
    CHECK_OK(mkdir("queues", 0755));
    CHECK_OK(mount("none", "queues", "mqueue", 0, 0));
    CHECK_OK(statfs("queues", &fs));
    CHECK_EQ(fs.f_type, 0x19800202);
    CHECK_OK(stat("queues", &status));
    CHECK_EQ(status.st_mode, S_IFDIR | 01777);
    snprintf(path, sizeof path, "queues/shown");
    CHECK_OK(stat(path, &status));
    CHECK_EQ(status.st_mode, S_IFREG | 0600);
    CHECK_EQ(status.st_size, 80);
    CHECK_OK(put(id, "1234", 0));
    CHECK_OK(put(id, "1234", 0));
    slurp(path, text, sizeof text);
    CHECK_STR(text, "QSIZE:10         NOTIFY:0     SIGNO:0     NOTIFY_PID:0     \n");
    int fd = open(path, O_RDONLY);
    CHECK_OK(fd);
    CHECK_EQ(mq_receive(fd, buffer, 100, 0), 5);
    CHECK_OK(close(open("queues/made", O_RDWR | O_CREAT, 0600)));
    mqd_t made = mq_open("/made", O_RDWR);
    CHECK_OK(made);
    CHECK_OK(put(made, "x", 0));
    CHECK_ERRNO(mkdir("queues/directory", 0755), EPERM);
    CHECK_OK(unlink("queues/made"));
    CHECK_ERRNO(mq_open("/made", O_RDWR), ENOENT);
    CHECK_OK(mq_unlink("/shown"));
    CHECK_ERRNO(stat(path, &status), ENOENT);
    CHECK_OK(close(fd));
    CHECK_OK(umount("queues"));
}

CASE(limits_are_shown)
{
    char text[100];
    slurp("/proc/sys/fs/mqueue/msg_max", text, sizeof text);
    CHECK_STR(text, "10\n");
    slurp("/proc/sys/fs/mqueue/msgsize_max", text, sizeof text);
    CHECK_STR(text, "8192\n");
    slurp("/proc/sys/fs/mqueue/queues_max", text, sizeof text);
    CHECK_STR(text, "256\n");
}
