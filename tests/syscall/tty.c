/* Terminals: pseudo-terminal pairs, termios, canonical and raw input, echo, editing, window size,
 * sessions, the controlling terminal and job control. */
#include "harness.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

static int master = -1, slave = -1;
static char slave_name[40];

static void open_pair(void)
{
    int number = -1, unlock = 0;
    master = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    CHECK(master >= 0);
    CHECK_OK(ioctl(master, TIOCGPTN, &number));
    CHECK_OK(ioctl(master, TIOCSPTLCK, &unlock));
    snprintf(slave_name, sizeof slave_name, "/dev/pts/%d", number);
    slave = open(slave_name, O_RDWR | O_NOCTTY);
    CHECK(slave >= 0);
}

static void change_local(tcflag_t clear, tcflag_t set)
{
    struct termios modes;
    CHECK_OK(tcgetattr(slave, &modes));
    modes.c_lflag = (modes.c_lflag & ~clear) | set;
    CHECK_OK(tcsetattr(slave, TCSANOW, &modes));
}

static void type(const char *text)
{
    CHECK_EQ(write(master, text, strlen(text)), strlen(text));
}

/* What the master shows, as a string: at least this many bytes, and what comes at once behind them. */
static const char *shown(size_t wanted)
{
    static char buffer[1000];
    struct pollfd set = {master, POLLIN, 0};
    size_t length = 0;
    while (length < sizeof buffer - 1 && poll(&set, 1, length < wanted ? -1 : 30) == 1) {
        ssize_t got = read(master, buffer + length, sizeof buffer - 1 - length);
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    buffer[length] = 0;
    return buffer;
}

#define CHECK_SHOWN(text) CHECK_STR(shown(strlen(text)), text)

/* Input on its way through the terminal has arrived at the reader's side. */
static void await_input(void)
{
    struct pollfd set = {slave, POLLIN, 0};
    CHECK_EQ(poll(&set, 1, -1), 1);
}

static const char *read_line(void)
{
    static char buffer[5000];
    ssize_t got = read(slave, buffer, sizeof buffer - 1);
    CHECK(got >= 0);
    buffer[got] = 0;
    return buffer;
}

CASE(pair_opens_with_usual_modes)
{
    struct termios modes;
    open_pair();
    CHECK(isatty(slave));
    CHECK_OK(tcgetattr(slave, &modes));
    CHECK((modes.c_lflag & (ICANON | ECHO | ISIG | IEXTEN)) == (ICANON | ECHO | ISIG | IEXTEN));
    CHECK(modes.c_iflag & ICRNL);
    CHECK(modes.c_oflag & OPOST && modes.c_oflag & ONLCR);
    CHECK_EQ(modes.c_cc[VINTR], 3);
    CHECK_EQ(modes.c_cc[VEOF], 4);
    CHECK_EQ(modes.c_cc[VERASE], 127);
    CHECK_EQ(modes.c_cc[VSUSP], 26);
    struct stat status;
    CHECK_OK(fstat(slave, &status));
    CHECK(S_ISCHR(status.st_mode));
    CHECK_EQ(status.st_rdev >> 8, 136);
}

CASE(lines_reach_the_reader)
{
    open_pair();
    change_local(ECHO, 0);
    type("hello\nnext\n");
    CHECK_STR(read_line(), "hello\n");
    CHECK_STR(read_line(), "next\n");
    type("by return\r"); /* ICRNL */
    CHECK_STR(read_line(), "by return\n");
    char part[4] = {0};
    type("abcdef\n"); /* A short read leaves the rest of the line. */
    CHECK_EQ(read(slave, part, 3), 3);
    CHECK_STR(part, "abc");
    CHECK_STR(read_line(), "def\n");
}

CASE(unfinished_line_is_not_readable)
{
    char byte;
    open_pair();
    change_local(ECHO, 0);
    fcntl(slave, F_SETFL, O_NONBLOCK);
    type("unfinished");
    CHECK_ERRNO(read(slave, &byte, 1), EAGAIN);
    struct pollfd set = {slave, POLLIN | POLLOUT, 0};
    CHECK_EQ(poll(&set, 1, 0), 1);
    CHECK_EQ(set.revents, POLLOUT);
    type("\n");
    await_input();
    CHECK_EQ(poll(&set, 1, -1), 1);
    CHECK_EQ(set.revents, POLLIN | POLLOUT);
    int count = -1;
    CHECK_OK(ioctl(slave, FIONREAD, &count));
    CHECK_EQ(count, 11);
}

CASE(line_editing)
{
    open_pair();
    change_local(ECHO, 0);
    type("abx\177c\n");
    CHECK_STR(read_line(), "abc\n");
    type("forget this\025kept\n"); /* ^U */
    CHECK_STR(read_line(), "kept\n");
    type("one two\027three\n"); /* ^W */
    CHECK_STR(read_line(), "one three\n");
    type("literal \026\003\n"); /* ^V^C */
    CHECK_STR(read_line(), "literal \003\n");
    type("\177\177\177x\n"); /* Nothing to erase. */
    CHECK_STR(read_line(), "x\n");
}

CASE(end_of_file_character)
{
    char byte;
    open_pair();
    change_local(ECHO, 0);
    type("\004");
    CHECK_EQ(read(slave, &byte, 1), 0);
    type("partial\004");
    CHECK_STR(read_line(), "partial");
    type("more\n");
    CHECK_STR(read_line(), "more\n");
}

CASE(echo_and_output_processing)
{
    open_pair();
    type("ab\177c\n");
    CHECK_SHOWN("ab\b \bc\r\n");
    CHECK_STR(read_line(), "ac\n");
    type("\001");
    CHECK_SHOWN("^A"); /* ECHOCTL */
    type("\n");
    CHECK_SHOWN("\r\n");
    read_line();
    CHECK_EQ(write(slave, "out\nput\n", 8), 8);
    CHECK_SHOWN("out\r\nput\r\n");
    struct termios modes;
    CHECK_OK(tcgetattr(slave, &modes));
    modes.c_oflag &= ~(tcflag_t)OPOST;
    CHECK_OK(tcsetattr(slave, TCSANOW, &modes));
    CHECK_EQ(write(slave, "raw\n", 4), 4);
    CHECK_SHOWN("raw\n");
}

CASE(raw_input)
{
    char buffer[10] = {0};
    struct termios modes;
    open_pair();
    CHECK_OK(tcgetattr(slave, &modes));
    cfmakeraw(&modes);
    modes.c_cc[VMIN] = 1;
    modes.c_cc[VTIME] = 0;
    CHECK_OK(tcsetattr(slave, TCSANOW, &modes));
    type("\003\r\004");
    CHECK_EQ(read(slave, buffer, 10), 3);
    CHECK(memcmp(buffer, "\003\r\004", 3) == 0);
    CHECK_SHOWN("");
    modes.c_cc[VMIN] = 0;
    CHECK_OK(tcsetattr(slave, TCSANOW, &modes));
    CHECK_EQ(read(slave, buffer, 10), 0); /* Polling read. */
    modes.c_cc[VTIME] = 1;
    CHECK_OK(tcsetattr(slave, TCSANOW, &modes));
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK_EQ(read(slave, buffer, 10), 0); /* Times out after a tenth of a second. */
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 90000000);
    modes.c_cc[VMIN] = 5;
    modes.c_cc[VTIME] = 0;
    CHECK_OK(tcsetattr(slave, TCSANOW, &modes));
    pid_t child = fork_or_fail();
    if (child == 0) {
        type("12");
        sleep_ms(20);
        type("345");
        _exit(0);
    }
    CHECK_EQ(read(slave, buffer, 10), 5);
    CHECK_EXITED(child, 0);
}

CASE(flush_and_drain)
{
    char byte;
    open_pair();
    change_local(ECHO, 0);
    type("gone\n");
    await_input();
    CHECK_OK(tcflush(slave, TCIFLUSH));
    fcntl(slave, F_SETFL, O_NONBLOCK);
    CHECK_ERRNO(read(slave, &byte, 1), EAGAIN);
    CHECK_EQ(write(slave, "x", 1), 1);
    CHECK_SHOWN("x");
    CHECK_OK(tcdrain(slave));
    struct termios modes;
    CHECK_OK(tcgetattr(slave, &modes));
    type("gone too\n");
    await_input();
    CHECK_OK(tcsetattr(slave, TCSAFLUSH, &modes));
    CHECK_ERRNO(read(slave, &byte, 1), EAGAIN);
}

static volatile sig_atomic_t handled;

static void on_signal(int number)
{
    handled = number;
}

CASE(window_size)
{
    struct winsize size = {25, 80, 1, 2}, seen = {0, 0, 0, 0};
    open_pair();
    CHECK_OK(ioctl(slave, TIOCGWINSZ, &seen));
    CHECK_OK(ioctl(master, TIOCSWINSZ, &size));
    CHECK_OK(ioctl(slave, TIOCGWINSZ, &seen));
    CHECK_EQ(seen.ws_row, 25);
    CHECK_EQ(seen.ws_col, 80);
    CHECK_ERRNO(ioctl(slave, TIOCGWINSZ, BAD_LOW), EFAULT);
    CHECK_ERRNO(ioctl(slave, TCGETS, BAD_LOW), EFAULT);
    CHECK_ERRNO(ioctl(slave, TCSETS, BAD_LOW), EFAULT);
    CHECK_ERRNO(ioctl(slave, 0x54ff, 0), ENOTTY);
}

/* Runs the body as the leader of a session of its own whose terminal is the pair. */
static pid_t session(void (*body)(void))
{
    open_pair();
    pid_t child = fork_or_fail();
    if (child == 0) {
        close(master);
        CHECK_OK(setsid());
        CHECK_OK(ioctl(slave, TIOCSCTTY, 0));
        body();
        _exit(0);
    }
    return child;
}

static void look_at_session(void)
{
    pid_t group = -1;
    CHECK_EQ(tcgetpgrp(slave), getpid());
    CHECK_EQ(tcgetsid(slave), getpid());
    int fd = open("/dev/tty", O_RDWR);
    CHECK(fd >= 0);
    CHECK_OK(ioctl(fd, TIOCGPGRP, &group));
    CHECK_EQ(group, getpid());
    CHECK_EQ(write(fd, "by tty", 6), 6);
    CHECK_ERRNO(tcsetpgrp(slave, 0x3ffffff0), ESRCH);
    CHECK_ERRNO(tcsetpgrp(slave, -1), EINVAL);
    CHECK_ERRNO(tcsetpgrp(slave, getppid()), EPERM);
}

CASE(controlling_terminal)
{
    pid_t child = session(look_at_session);
    CHECK_EXITED(child, 0);
    CHECK_SHOWN("by tty");
    /* This process did not get it. */
    CHECK_ERRNO(tcgetpgrp(slave), ENOTTY);
}

CASE(no_controlling_terminal)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setsid());
        CHECK_ERRNO(open("/dev/tty", O_RDWR), ENXIO);
        /* A session leader gets the first terminal that it opens without O_NOCTTY. */
        open_pair();
        CHECK_ERRNO(open("/dev/tty", O_RDWR), ENXIO);
        CHECK_OK(open(slave_name, O_RDWR));
        CHECK_OK(open("/dev/tty", O_RDWR));
        signal(SIGHUP, SIG_IGN);
        CHECK_OK(ioctl(slave, TIOCNOTTY));
        CHECK_ERRNO(open("/dev/tty", O_RDWR), ENXIO);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

static void wait_in_session(void)
{
    CHECK_EQ(write(slave, "r", 1), 1);
    for (;;)
        pause();
}

CASE(interrupt_and_quit_characters)
{
    char byte;
    const char *characters[] = {"\003", "\034"};
    int signals[] = {SIGINT, SIGQUIT};
    for (int i = 0; i < 2; i++) {
        pid_t child = session(wait_in_session);
        CHECK_EQ(read(master, &byte, 1), 1);
        type(characters[i]);
        int status = harness_wait(child);
        CHECK(WIFSIGNALED(status));
        CHECK_EQ(WTERMSIG(status), signals[i]);
        close(master);
        close(slave);
    }
}

CASE(suspend_character)
{
    char byte;
    int status;
    open_pair();
    pid_t leader = fork_or_fail();
    if (leader == 0) {
        CHECK_OK(setsid());
        CHECK_OK(ioctl(slave, TIOCSCTTY, 0));
        signal(SIGTTOU, SIG_IGN);
        pid_t job = fork_or_fail();
        if (job == 0) {
            CHECK_OK(setpgid(0, 0));
            CHECK_OK(tcsetpgrp(slave, getpid()));
            CHECK_EQ(write(slave, "r", 1), 1);
            for (;;)
                pause();
        }
        CHECK_EQ(waitpid(job, &status, WUNTRACED), job);
        CHECK(WIFSTOPPED(status));
        CHECK_EQ(WSTOPSIG(status), SIGTSTP);
        CHECK_OK(tcsetpgrp(slave, getpid()));
        CHECK_OK(kill(-job, SIGCONT));
        CHECK_OK(kill(-job, SIGTERM));
        CHECK_EQ(waitpid(job, &status, 0), job);
        CHECK_EQ(WTERMSIG(status), SIGTERM);
        _exit(0);
    }
    CHECK_EQ(read(master, &byte, 1), 1);
    type("\032");
    CHECK_EXITED(leader, 0);
}

static void background_reads_and_writes(void)
{
    int status;
    signal(SIGTTOU, SIG_IGN);
    pid_t job = fork_or_fail();
    if (job == 0) {
        char byte;
        signal(SIGTTOU, SIG_DFL);
        CHECK_OK(setpgid(0, 0));
        CHECK_EQ(read(slave, &byte, 1), 1); /* Stops with SIGTTIN first. */
        CHECK_EQ(byte, 'x');
        _exit(0);
    }
    CHECK_EQ(waitpid(job, &status, WUNTRACED), job);
    CHECK(WIFSTOPPED(status));
    CHECK_EQ(WSTOPSIG(status), SIGTTIN);
    CHECK_OK(tcsetpgrp(slave, job));
    CHECK_OK(kill(job, SIGCONT));
    CHECK_EXITED(job, 0);
    CHECK_OK(tcsetpgrp(slave, getpid()));

    job = fork_or_fail();
    if (job == 0) {
        char byte;
        CHECK_OK(setpgid(0, 0));
        signal(SIGTTIN, SIG_IGN);
        CHECK_ERRNO(read(slave, &byte, 1), EIO); /* Ignored: no stop, an error. */
        CHECK_EQ(write(slave, "b", 1), 1);       /* Without TOSTOP anyone may write. */
        signal(SIGTTOU, SIG_DFL);
        change_local(TOSTOP, TOSTOP); /* But changing the modes stops. */
        _exit(0);
    }
    CHECK_EQ(waitpid(job, &status, WUNTRACED), job);
    CHECK(WIFSTOPPED(status));
    CHECK_EQ(WSTOPSIG(status), SIGTTOU);
    CHECK_OK(kill(job, SIGKILL));
    CHECK_KILLED(job, SIGKILL);
}

CASE(background_jobs_stop)
{
    pid_t child = session(background_reads_and_writes);
    type("x\n");
    CHECK_EXITED(child, 0);
}

CASE(hang_up)
{
    char byte;
    pid_t child = session(wait_in_session);
    CHECK_EQ(read(master, &byte, 1), 1);
    close(master); /* The terminal is gone: SIGHUP to its session. */
    int status = harness_wait(child);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), SIGHUP);
    CHECK_EQ(read(slave, &byte, 1), 0);
    CHECK_ERRNO(write(slave, "x", 1), EIO);
    struct pollfd set = {slave, POLLIN, 0};
    CHECK_EQ(poll(&set, 1, 0), 1);
    CHECK(set.revents & POLLHUP);
}

CASE(slave_closed)
{
    char byte;
    open_pair();
    CHECK_EQ(write(slave, "last", 4), 4);
    close(slave);
    CHECK_SHOWN("last");
    CHECK_ERRNO(read(master, &byte, 1), EIO);
    struct pollfd set = {master, POLLIN, 0};
    CHECK_EQ(poll(&set, 1, 0), 1);
    CHECK(set.revents & POLLHUP);
}

CASE(end_of_the_session_leader_hangs_up)
{
    int back[2];
    char byte;
    CHECK_OK(pipe(back));
    open_pair();
    pid_t leader = fork_or_fail();
    if (leader == 0) {
        struct sigaction action = {.sa_handler = on_signal};
        CHECK_OK(setsid());
        CHECK_OK(ioctl(slave, TIOCSCTTY, 0));
        sigaction(SIGHUP, &action, NULL);
        int ready[2];
        CHECK_OK(pipe(ready));
        pid_t member = fork_or_fail();
        if (member == 0) {
            CHECK_EQ(write(ready[1], "r", 1), 1);
            while (!handled)
                sleep_ms(1);
            CHECK_EQ(write(back[1], "h", 1), 1);
            _exit(0);
        }
        CHECK_EQ(read(ready[0], &byte, 1), 1);
        _exit(0);
    }
    CHECK_EXITED(leader, 0);
    CHECK_EQ(read(back[0], &byte, 1), 1);
    CHECK_EQ(byte, 'h');
}

CASE(many_pairs)
{
    int masters[20], number, seen[64] = {0};
    for (int i = 0; i < 20; i++) {
        masters[i] = open("/dev/ptmx", O_RDWR | O_NOCTTY);
        CHECK(masters[i] >= 0);
        CHECK_OK(ioctl(masters[i], TIOCGPTN, &number));
        if (number < 64)
            CHECK_EQ(seen[number]++, 0);
    }
    for (int i = 0; i < 20; i++)
        close(masters[i]);
    open_pair();
    char link[60], target[60] = {0};
    snprintf(link, sizeof link, "/proc/self/fd/%d", slave);
    CHECK(readlink(link, target, sizeof target - 1) > 0);
    CHECK_STR(target, slave_name);
}

CASE(locked_slave_cannot_be_opened)
{
    int number;
    master = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    CHECK_OK(ioctl(master, TIOCGPTN, &number));
    snprintf(slave_name, sizeof slave_name, "/dev/pts/%d", number);
    CHECK_ERRNO(open(slave_name, O_RDWR | O_NOCTTY), EIO);
    CHECK_ERRNO(open("/dev/pts/9999", O_RDWR | O_NOCTTY), ENOENT);
}

CASE(megabyte_through_a_terminal)
{
    enum { LINES = 5000 };
    open_pair();
    change_local(ECHO, 0);
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (int i = 0; i < LINES; i++) {
            char line[32];
            snprintf(line, sizeof line, "line number %d\n", i);
            type(line);
        }
        _exit(0);
    }
    char expected[32];
    for (int i = 0; i < LINES; i++) {
        snprintf(expected, sizeof expected, "line number %d\n", i);
        CHECK_STR(read_line(), expected);
    }
    CHECK_EXITED(child, 0);
}
