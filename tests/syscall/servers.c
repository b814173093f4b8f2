/* What Ferry alone has below /proc/ferry: where servers are carried, and what was measured at boot. */
#include "harness.h"
#include <poll.h>

static void only_on_ferry(void)
{
    if (!getenv("FERRY_GUEST"))
        SKIP("there is no /proc/ferry");
}

/* Moves a server; the errno, or 0. */
static int move(const char *server, int core)
{
    char line[40];
    int fd = open("/proc/ferry/servers", O_WRONLY);
    CHECK_OK(fd);
    int length = snprintf(line, sizeof line, "%s %d\n", server, core);
    int error = write(fd, line, length) == length ? 0 : errno;
    close(fd);
    return error;
}

/* The core that carries a server. */
static int core_of(const char *server)
{
    char line[120];
    int core = -1;
    FILE *file = fopen("/proc/ferry/servers", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, server, strlen(server)) == 0 && line[strlen(server)] == ' ')
            core = atoi(line + strlen(server));
    fclose(file);
    return core;
}

CASE(moves_are_checked)
{
    only_on_ferry();
    int core = core_of("file");
    CHECK(core >= 0);
    CHECK_EQ(move("file", core), 0);
    CHECK_EQ(move("file", 99), EINVAL);
    CHECK_EQ(move("disk", 0), EINVAL);
    CHECK_EQ(core_of("file"), core);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setresuid(1000, 1000, 1000));
        CHECK_ERRNO(open("/proc/ferry/servers", O_WRONLY), EACCES);
        CHECK(core_of("file") == core);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

static const char *const moved[] = {"file", "process", "signal", "ipc", "memory", "time"};
#define MOVED (sizeof moved / sizeof *moved)

/* Calls of every class, some of which wait, until the other end of the pipe is closed; then how many. */
static void work(int ends[2], int answer)
{
    long rounds = 0;
    char byte, name[20];
    snprintf(name, sizeof name, "f%d", getpid());
    int own[2], fd = file_with(name, "0123456789", 10);
    CHECK_OK(pipe(own));
    close(ends[1]);
    struct pollfd over = {.fd = ends[0], .events = POLLIN};
    while (poll(&over, 1, 0) == 0) {
        struct timespec short_while = {0, 20000};
        CHECK_EQ(pread(fd, &byte, 1, 3), 1);
        CHECK_EQ(byte, '3');
        pid_t child = fork_or_fail();
        if (child == 0) {
            nanosleep(&short_while, NULL);
            _exit(write(own[1], "x", 1) == 1 ? 0 : 1);
        }
        CHECK_EQ(read(own[0], &byte, 1), 1);
        CHECK_EXITED(child, 0);
        CHECK_OK(kill(getpid(), 0));
        rounds++;
    }
    CHECK_EQ(write(answer, &rounds, sizeof rounds), sizeof rounds);
    _exit(0);
}

CASE(servers_move_under_load)
{
    enum { WORKERS = 3, MOVES = 1000 };
    only_on_ferry();
    scratch();
    int homes[MOVED], ends[2], answers[2];
    for (unsigned i = 0; i < MOVED; i++)
        homes[i] = core_of(moved[i]);
    int cores = move("other", 1) == 0 ? 2 : 1;
    CHECK_OK(pipe(ends));
    CHECK_OK(pipe(answers));
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = fork_or_fail();
        if (workers[i] == 0)
            work(ends, answers[1]);
    }
    for (int i = 0; i < MOVES; i++) {
        CHECK_EQ(move(moved[i % MOVED], i / MOVED % cores), 0);
        if (i % 50 == 0)
            sleep_ms(1);
    }
    close(ends[1]);
    for (int i = 0; i < WORKERS; i++) {
        long rounds;
        CHECK_EQ(read(answers[0], &rounds, sizeof rounds), sizeof rounds);
        CHECK_EXITED(workers[i], 0);
        CHECK(rounds > 0);
    }
    for (unsigned i = 0; i < MOVED; i++) {
        CHECK_EQ(move(moved[i], homes[i]), 0);
        CHECK_EQ(core_of(moved[i]), homes[i]);
    }
}

/* Figures that a host could not give are missing; those that are there have a sense. */
CASE(what_was_measured_is_plausible)
{
    only_on_ferry();
    char line[120];
    FILE *file = fopen("/proc/ferry/machine", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        int one = 0, other = 0, ns = 0;
        if (sscanf(line, "trap_ns %d", &ns) == 1)
            CHECK(ns > 0);
        else if (sscanf(line, "flight_ns %d %d %d", &one, &other, &ns) == 3)
            CHECK(one >= 0 && other >= 0 && one != other && ns > 0);
        else if (sscanf(line, "wake_ns %d %d", &one, &ns) == 2)
            CHECK(one >= 0 && ns > 0);
        else
            CHECK(!"a line that is not known");
    }
    fclose(file);
}

