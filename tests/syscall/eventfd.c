/* eventfd: counting, semaphores, blocking, limits, flags, readiness, errors. */
#include "harness.h"
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/uio.h>

static int make(unsigned value, int flags)
{
    int fd = (int)syscall(SYS_eventfd2, value, flags);
    CHECK(fd >= 0);
    return fd;
}

static uint64_t take(int fd)
{
    uint64_t value = 0;
    CHECK_EQ(read(fd, &value, 8), 8);
    return value;
}

static void add(int fd, uint64_t value)
{
    CHECK_EQ(write(fd, &value, 8), 8);
}

static short ready(int fd, short events)
{
    struct pollfd entry = {fd, events, 0};
    CHECK(poll(&entry, 1, 0) >= 0);
    return entry.revents;
}

CASE(a_read_takes_the_whole_count)
{
    int fd = make(3, 0);
    add(fd, 4);
    CHECK_EQ(take(fd), 7);
    add(fd, 0);
    CHECK_EQ(ready(fd, POLLIN), 0);
    add(fd, 0xfffffffffffffffeUL);
    CHECK_EQ(take(fd), 0xfffffffffffffffeUL);
}

CASE(a_semaphore_gives_one_at_a_time)
{
    uint64_t value;
    int fd = make(2, EFD_SEMAPHORE | EFD_NONBLOCK);
    CHECK_EQ(take(fd), 1);
    CHECK_EQ(take(fd), 1);
    CHECK_ERRNO(read(fd, &value, 8), EAGAIN);
}

CASE(flags)
{
    int fd = make(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_RDWR | O_NONBLOCK);
    fd = (int)syscall(SYS_eventfd, 5);
    CHECK(fd >= 0);
    CHECK_EQ(fcntl(fd, F_GETFD), 0);
    CHECK_EQ(take(fd), 5);
    CHECK_ERRNO(syscall(SYS_eventfd2, 0, 2), EINVAL);
    CHECK_ERRNO(syscall(SYS_eventfd2, 0, ~0), EINVAL);
}

CASE(sizes_and_values)
{
    uint64_t values[3] = {1, 2, 3};
    int fd = make(1, EFD_NONBLOCK);
    CHECK_ERRNO(read(fd, values, 7), EINVAL);
    CHECK_ERRNO(read(fd, values, 0), EINVAL);
    CHECK_ERRNO(write(fd, values, 7), EINVAL);
    CHECK_ERRNO(write(fd, values, 0), EINVAL);
    CHECK_EQ(write(fd, values, 8), 8);
    CHECK_EQ(read(fd, values, 24), 8);
    CHECK_EQ(values[0], 2);
    values[0] = ~0UL;
    CHECK_ERRNO(write(fd, values, 8), EINVAL);
    CHECK_ERRNO(pread(fd, values, 8, 0), ESPIPE);
}

CASE(the_count_stays_below_the_largest_number)
{
    uint64_t most = 0xfffffffffffffffeUL, one = 1;
    int fd = make(0, EFD_NONBLOCK);
    CHECK_EQ(write(fd, &most, 8), 8);
    CHECK_EQ(ready(fd, POLLIN | POLLOUT), POLLIN);
    CHECK_ERRNO(write(fd, &one, 8), EAGAIN);
    CHECK_EQ(take(fd), most);
    CHECK_EQ(ready(fd, POLLIN | POLLOUT), POLLOUT);
}

CASE(bad_addresses)
{
    int fd = make(0, EFD_NONBLOCK);
    CHECK_ERRNO(write(fd, BAD_LOW, 8), EFAULT);
    CHECK_ERRNO(write(fd, BAD_KERNEL, 8), EFAULT);
    CHECK_EQ(ready(fd, POLLIN), 0);
    add(fd, 1);
    CHECK_ERRNO(read(fd, BAD_KERNEL, 8), EFAULT);
}

CASE(a_record_in_pieces)
{
    char low[3], high[13];
    struct iovec parts[2] = {{low, 3}, {high, 13}};
    uint64_t value;
    int fd = make(0, 0);
    add(fd, 0x1122334455667788UL);
    CHECK_EQ(readv(fd, parts, 2), 8);
    memcpy(&value, low, 3);
    memcpy((char *)&value + 3, high, 5);
    CHECK_EQ(value, 0x1122334455667788UL);
}

static void *adds_later(void *argument)
{
    int fd = *(int *)argument;
    while (ready(fd, POLLIN))
        sleep_ms(1);
    sleep_ms(20);
    add(fd, 9);
    return 0;
}

CASE(a_read_waits_for_a_write)
{
    pthread_t thread;
    int fd = make(0, 0);
    CHECK_EQ(pthread_create(&thread, 0, adds_later, &fd), 0);
    CHECK_EQ(take(fd), 9);
    pthread_join(thread, 0);
}

static void *takes_later(void *argument)
{
    int fd = *(int *)argument;
    sleep_ms(20);
    CHECK_EQ(take(fd), 0xfffffffffffffff0UL);
    return 0;
}

CASE(a_write_waits_for_room_for_all_of_it)
{
    /* There is room for a little, so poll says writable all the time. */
    pthread_t thread;
    int fd = make(0, 0);
    add(fd, 0xfffffffffffffff0UL);
    CHECK_EQ(ready(fd, POLLOUT), POLLOUT);
    CHECK_EQ(pthread_create(&thread, 0, takes_later, &fd), 0);
    add(fd, 0x100);
    pthread_join(thread, 0);
    CHECK_EQ(take(fd), 0x100);
}

static void ignore(int number)
{
    (void)number;
}

CASE(a_signal_interrupts_a_read)
{
    uint64_t value;
    struct sigaction action = {.sa_handler = ignore};
    int fd = make(0, 0);
    CHECK_OK(sigaction(SIGUSR1, &action, 0));
    pid_t child = pesterer(SIGUSR1);
    CHECK_ERRNO(read(fd, &value, 8), EINTR);
    kill(child, SIGKILL);
    harness_wait(child);
}

static int tokens_fd;
static int taken[4];

static void *takes_tokens(void *argument)
{
    int *count = argument;
    uint64_t value;
    for (;;) {
        CHECK_EQ(read(tokens_fd, &value, 8), 8);
        if (__atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST) == 1000000)
            return 0;
        if (__atomic_load_n(&taken[3], __ATOMIC_SEQ_CST))
            return 0;
    }
}

CASE(each_token_reaches_one_of_three_readers)
{
    pthread_t threads[3];
    tokens_fd = make(0, EFD_SEMAPHORE);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(pthread_create(&threads[i], 0, takes_tokens, &taken[i]), 0);
    for (int i = 0; i < 300; i++)
        add(tokens_fd, 1 + (uint64_t)(i % 3));
    while (taken[0] + taken[1] + taken[2] < 600)
        sleep_ms(1);
    CHECK_EQ(ready(tokens_fd, POLLIN), 0);
    taken[3] = 1;
    add(tokens_fd, 3);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], 0);
    CHECK_EQ(ready(tokens_fd, POLLIN), 0);
}

CASE(it_is_shared_by_fork)
{
    int fd = make(0, 0);
    pid_t child = fork_or_fail();
    if (child == 0) {
        add(fd, 12);
        _exit(0);
    }
    CHECK_EQ(take(fd), 12);
    CHECK_EXITED(child, 0);
}

CASE(what_proc_shows)
{
    char path[64], text[600];
    int fd = make(0x2a, 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, text, sizeof text - 1);
    CHECK(length > 0);
    text[length] = 0;
    CHECK_STR(text, "anon_inode:[eventfd]");
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    slurp(path, text, sizeof text);
    CHECK(strstr(text, "eventfd-count:               2a\n"));
    CHECK(strstr(text, "eventfd-id: "));
}

