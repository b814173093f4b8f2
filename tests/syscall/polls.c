/* poll and select of many files, waiting by several threads on one file, and what a wait sees. */
#include "harness.h"
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>

#define MANY 300

static int fds[MANY];

static void many(void)
{
    struct rlimit limit = {1024, 1024};
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < MANY; i++) {
        fds[i] = eventfd(0, EFD_NONBLOCK);
        CHECK(fds[i] >= 0);
    }
}

static void add(int fd, uint64_t value)
{
    CHECK_EQ(write(fd, &value, 8), 8);
}

static void take(int fd)
{
    uint64_t value;
    CHECK_EQ(read(fd, &value, 8), 8);
}

/* A thread that waits for `go`, then makes one file after another ready. */
static int order[8], order_length, go;

static void *makes_ready(void *argument)
{
    (void)argument;
    for (int i = 0; i < order_length; i++) {
        while (__atomic_load_n(&go, __ATOMIC_SEQ_CST) <= i)
            sleep_ms(1);
        sleep_ms(5);
        add(fds[order[i]], 1);
    }
    return 0;
}

CASE(poll_of_many_finds_each_in_turn)
{
    static struct pollfd entries[MANY];
    int wanted[] = {0, 63, 64, 127, 128, 200, 255, MANY - 1};
    pthread_t thread;
    many();
    order_length = 8;
    memcpy(order, wanted, sizeof wanted);
    for (int i = 0; i < MANY; i++)
        entries[i] = (struct pollfd){fds[i], POLLIN, 0};
    CHECK_EQ(pthread_create(&thread, 0, makes_ready, 0), 0);
    for (int i = 0; i < 8; i++) {
        __atomic_store_n(&go, i + 1, __ATOMIC_SEQ_CST);
        CHECK_EQ(poll(entries, MANY, -1), 1);
        for (int j = 0; j < MANY; j++)
            CHECK_EQ(entries[j].revents, j == wanted[i] ? POLLIN : 0);
        take(fds[wanted[i]]);
    }
    pthread_join(thread, 0);
}

CASE(select_of_many_finds_each_in_turn)
{
    int wanted[] = {1, 62, 65, 129, MANY - 1};
    pthread_t thread;
    many();
    order_length = 5;
    memcpy(order, wanted, sizeof wanted);
    CHECK_EQ(pthread_create(&thread, 0, makes_ready, 0), 0);
    for (int i = 0; i < 5; i++) {
        fd_set set, out;
        FD_ZERO(&set);
        FD_ZERO(&out);
        for (int j = 0; j < MANY; j++)
            FD_SET(fds[j], &set);
        __atomic_store_n(&go, i + 1, __ATOMIC_SEQ_CST);
        CHECK_EQ(select(fds[MANY - 1] + 1, &set, &out, 0, 0), 1);
        for (int j = 0; j < MANY; j++)
            CHECK_EQ(!!FD_ISSET(fds[j], &set), j == wanted[i]);
        take(fds[wanted[i]]);
    }
    pthread_join(thread, 0);
}

CASE(a_file_twice_and_a_file_not_at_all)
{
    many();
    struct pollfd entries[4] = {
        {fds[0], POLLIN, 0}, {-1, POLLIN, 7}, {fds[0], POLLOUT, 0}, {999, POLLIN, 0}};
    CHECK_EQ(poll(entries, 4, -1), 2);
    CHECK_EQ(entries[0].revents, 0);
    CHECK_EQ(entries[1].revents, 0);
    CHECK_EQ(entries[2].revents, POLLOUT);
    CHECK_EQ(entries[3].revents, POLLNVAL);
    add(fds[0], 1);
    CHECK_EQ(poll(entries, 3, -1), 2);
    CHECK_EQ(entries[0].revents, POLLIN);
}

CASE(what_is_not_wanted_does_not_end_a_wait)
{
    /* Somebody reads and writes all the time; the wait for an end sees only the end. */
    int ends[2];
    CHECK_OK(pipe(ends));
    pid_t child = fork_or_fail();
    if (child == 0) {
        close(ends[0]);
        for (int i = 0; i < 20; i++) {
            CHECK_EQ(write(ends[1], "x", 1), 1);
            sleep_ms(1);
        }
        _exit(0);
    }
    close(ends[1]);
    struct pollfd entry = {ends[0], 0, 0};
    CHECK_EQ(poll(&entry, 1, -1), 1);
    CHECK_EQ(entry.revents, POLLHUP);
    CHECK_EXITED(child, 0);
}

struct reader {
    pthread_t thread;
    int fd;
    long got;
};

static void *reads(void *argument)
{
    struct reader *reader = argument;
    char byte;
    ssize_t count;
    while ((count = read(reader->fd, &byte, 1)) == 1)
        reader->got++;
    CHECK_EQ(count, 0);
    return 0;
}

CASE(bytes_are_shared_out_among_blocked_readers)
{
    struct reader readers[5];
    int ends[2];
    long sum = 0;
    CHECK_OK(pipe(ends));
    for (int i = 0; i < 5; i++) {
        readers[i] = (struct reader){.fd = ends[0]};
        CHECK_EQ(pthread_create(&readers[i].thread, 0, reads, &readers[i]), 0);
    }
    sleep_ms(5);
    /* One write that several readers share: who is woken wakes the next. */
    for (int i = 0; i < 200; i++)
        CHECK_EQ(write(ends[1], "abc", 3), 3);
    close(ends[1]);
    for (int i = 0; i < 5; i++) {
        pthread_join(readers[i].thread, 0);
        sum += readers[i].got;
    }
    CHECK_EQ(sum, 600);
}

static void *writes_pages(void *argument)
{
    static char page[4096];
    struct reader *writer = argument;
    for (int i = 0; i < 40; i++)
        CHECK_EQ(write(writer->fd, page, sizeof page), sizeof page);
    return 0;
}

CASE(room_is_shared_out_among_blocked_writers)
{
    struct reader writers[4];
    static char buffer[20000];
    int ends[2];
    long sum = 0;
    ssize_t got;
    CHECK_OK(pipe(ends));
    for (int i = 0; i < 4; i++) {
        writers[i] = (struct reader){.fd = ends[1]};
        CHECK_EQ(pthread_create(&writers[i].thread, 0, writes_pages, &writers[i]), 0);
    }
    while (sum < 4 * 40 * 4096) {
        got = read(ends[0], buffer, sizeof buffer);
        CHECK(got > 0);
        sum += got;
    }
    for (int i = 0; i < 4; i++)
        pthread_join(writers[i].thread, 0);
    CHECK_EQ(sum, 4 * 40 * 4096);
}

static void on_signal(int number)
{
    (void)number;
}

CASE(a_reader_that_is_interrupted_does_not_swallow_a_wake_up)
{
    /* Of two readers one is pestered by signals and reads again each time; no byte stays behind. */
    int ends[2], back[2];
    struct sigaction action = {.sa_handler = on_signal};
    CHECK_OK(pipe(ends));
    CHECK_OK(pipe(back));
    CHECK_OK(sigaction(SIGUSR1, &action, 0));
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork_or_fail();
        if (children[i] == 0) {
            char byte;
            ssize_t got;
            close(ends[1]);
            while ((got = read(ends[0], &byte, 1)) != 0)
                if (got == 1)
                    CHECK_EQ(write(back[1], &byte, 1), 1);
            _exit(0);
        }
    }
    for (int i = 0; i < 300; i++) {
        char byte;
        kill(children[0], SIGUSR1);
        CHECK_EQ(write(ends[1], "x", 1), 1);
        kill(children[0], SIGUSR1);
        CHECK_EQ(read(back[0], &byte, 1), 1);
    }
    close(ends[1]);
    CHECK_EXITED(children[0], 0);
    CHECK_EXITED(children[1], 0);
}

CASE(poll_and_read_and_epoll_of_one_file)
{
    /* A taker is woken beside all watchers. */
    struct epoll_event event = {.events = EPOLLIN}, found;
    int instance = epoll_create1(0), fd = eventfd(0, EFD_SEMAPHORE);
    pid_t poller, reader;
    CHECK_OK(epoll_ctl(instance, EPOLL_CTL_ADD, fd, &event));
    poller = fork_or_fail();
    if (poller == 0) {
        struct pollfd entry = {fd, POLLIN, 0};
        CHECK_EQ(poll(&entry, 1, -1), 1);
        _exit(0);
    }
    reader = fork_or_fail();
    if (reader == 0) {
        take(fd);
        _exit(0);
    }
    sleep_ms(10);
    /* More than the reader takes, so everybody finds something. */
    add(fd, 5);
    CHECK_EQ(epoll_wait(instance, &found, 1, -1), 1);
    CHECK_EXITED(poller, 0);
    CHECK_EXITED(reader, 0);
    for (int i = 0; i < 4; i++)
        take(fd);
    CHECK_EQ(epoll_wait(instance, &found, 1, 0), 0);
}
