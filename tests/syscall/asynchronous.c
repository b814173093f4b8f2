/* Native asynchronous input and output: io_setup and its kin, called without a library. */
#include "harness.h"
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>

/* What the kernel's headers say; those of musl have none of it. */
typedef unsigned long aio_context_t;
enum { IOCB_CMD_PREAD, IOCB_CMD_PWRITE, IOCB_CMD_FSYNC, IOCB_CMD_POLL = 5, IOCB_CMD_PREADV = 7 };
#define IOCB_FLAG_RESFD 1
struct iocb {
    uint64_t aio_data;
    uint32_t aio_key, aio_rw_flags;
    uint16_t aio_lio_opcode;
    int16_t aio_reqprio;
    uint32_t aio_fildes;
    uint64_t aio_buf, aio_nbytes;
    int64_t aio_offset;
    uint64_t aio_reserved2;
    uint32_t aio_flags, aio_resfd;
};
struct io_event {
    uint64_t data, obj;
    int64_t res, res2;
};

static long io_setup(unsigned count, aio_context_t *context)
{
    return syscall(SYS_io_setup, count, context);
}

static long io_submit(aio_context_t context, long count, struct iocb **list)
{
    return syscall(SYS_io_submit, context, count, list);
}

static long io_getevents(aio_context_t context, long least, long most, struct io_event *events,
                         struct timespec *timeout)
{
    return syscall(SYS_io_getevents, context, least, most, events, timeout);
}

static aio_context_t a_context(unsigned count)
{
    aio_context_t context = 0;
    if (io_setup(count, &context) == -1 && errno == ENOSYS)
        SKIP("no asynchronous input and output");
    CHECK(context != 0);
    return context;
}

static struct iocb prepared(int operation, int fd, void *buffer, size_t bytes, long offset)
{
    struct iocb control;
    memset(&control, 0, sizeof control);
    control.aio_lio_opcode = (uint16_t)operation;
    control.aio_fildes = (uint32_t)fd;
    control.aio_buf = (uint64_t)(uintptr_t)buffer;
    control.aio_nbytes = bytes;
    control.aio_offset = offset;
    return control;
}

CASE(setting_up)
{
    aio_context_t context = a_context(8), other = 1, none = 0;
    CHECK_ERRNO(io_setup(8, &other), EINVAL);
    CHECK_ERRNO(io_setup(0, &none), EINVAL);
    CHECK_ERRNO(io_setup(-1u, &none), EINVAL);
    CHECK_ERRNO(io_setup(1u << 20, &none), EAGAIN);
    CHECK_ERRNO(io_setup(8, BAD_KERNEL), EFAULT);
    CHECK_OK(syscall(SYS_io_destroy, context));
    CHECK_ERRNO(syscall(SYS_io_destroy, context), EINVAL);
    CHECK_ERRNO(syscall(SYS_io_destroy, 0), EINVAL);
}

CASE(reading_and_writing)
{
    scratch();
    aio_context_t context = a_context(8);
    int fd = file_with("file", "", 0);
    char there[8];
    struct iovec parts[2] = {{there, 3}, {there + 3, 2}};
    struct iocb write_it = prepared(IOCB_CMD_PWRITE, fd, "hello", 5, 2);
    struct iocb read_it = prepared(IOCB_CMD_PREAD, fd, there, 8, 2);
    struct iocb read_both = prepared(IOCB_CMD_PREADV, fd, parts, 2, 2);
    struct iocb sync_it = prepared(IOCB_CMD_FSYNC, fd, 0, 0, 0);
    struct iocb *list[] = {&write_it, &sync_it, &read_it, &read_both};
    struct io_event events[8];
    write_it.aio_data = 11;
    read_it.aio_data = 12;
    CHECK_EQ(io_submit(context, 2, list), 2);
    CHECK_EQ(io_getevents(context, 2, 8, events, 0), 2);
    int first = events[0].obj == (uint64_t)(uintptr_t)&write_it ? 0 : 1;
    CHECK_EQ(events[first].data, 11);
    CHECK_EQ(events[first].res, 5);
    CHECK_EQ(io_submit(context, 1, list + 2), 1);
    CHECK_EQ(io_getevents(context, 1, 8, events, 0), 1);
    CHECK_EQ(events[0].res, 5);
    CHECK_EQ(events[0].data, 12);
    CHECK_EQ(memcmp(there, "hello", 5), 0);
    memset(there, 0, sizeof there);
    CHECK_EQ(io_submit(context, 1, list + 3), 1);
    CHECK_EQ(io_getevents(context, 1, 8, events, 0), 1);
    CHECK_EQ(events[0].res, 5);
    CHECK_EQ(memcmp(there, "hello", 5), 0);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 0);
}

CASE(submissions_are_checked)
{
    scratch();
    aio_context_t context = a_context(4);
    char there[8];
    int fd = file_with("file", "abc", 3), in = open("file", O_RDONLY), out = open("file", O_WRONLY);
    struct iocb control = prepared(IOCB_CMD_PREAD, fd, there, 8, 0), *list[] = {&control, &control};
    struct iocb *bad[] = {BAD_KERNEL};
    CHECK_EQ(io_submit(context, 0, list), 0);
    CHECK_ERRNO(io_submit(context, -1, list), EINVAL);
    CHECK_ERRNO(io_submit(0, 1, list), EINVAL);
    CHECK_ERRNO(io_submit(context, 1, BAD_KERNEL), EFAULT);
    CHECK_ERRNO(io_submit(context, 1, bad), EFAULT);
    control.aio_fildes = 999;
    CHECK_ERRNO(io_submit(context, 1, list), EBADF);
    control.aio_fildes = (uint32_t)out;
    CHECK_ERRNO(io_submit(context, 1, list), EBADF);
    control = prepared(IOCB_CMD_PWRITE, in, there, 8, 0);
    CHECK_ERRNO(io_submit(context, 1, list), EBADF);
    control = prepared(77, fd, there, 8, 0);
    CHECK_ERRNO(io_submit(context, 1, list), EINVAL);
    control = prepared(IOCB_CMD_PREAD, fd, there, 8, 0);
    control.aio_reserved2 = 1;
    CHECK_ERRNO(io_submit(context, 1, list), EINVAL);
    control = prepared(IOCB_CMD_PREAD, fd, there, (size_t)-1, 0);
    CHECK_ERRNO(io_submit(context, 1, list), EINVAL);
    control = prepared(IOCB_CMD_PREAD, fd, there, 8, -1);
    CHECK_ERRNO(io_submit(context, 1, list), EINVAL);
    control = prepared(IOCB_CMD_PREAD, fd, there, 8, 0);
    control.aio_rw_flags = 1 << 30;
    CHECK_ERRNO(io_submit(context, 1, list), EOPNOTSUPP);
    control = prepared(IOCB_CMD_PREAD, fd, there, 8, 0);
    control.aio_flags = IOCB_FLAG_RESFD;
    control.aio_resfd = (uint32_t)fd;
    CHECK_ERRNO(io_submit(context, 1, list), EINVAL);
}

CASE(events_are_waited_for)
{
    aio_context_t context = a_context(4);
    struct io_event events[4];
    struct timespec none = {0, 0}, short_time = {0, 20000000}, wrong = {0, 2000000000};
    CHECK_EQ(io_getevents(context, 0, 4, events, 0), 0);
    CHECK_EQ(io_getevents(context, 1, 4, events, &none), 0);
    CHECK_EQ(io_getevents(context, 1, 4, events, &short_time), 0);
    CHECK_ERRNO(io_getevents(0, 1, 4, events, &none), EINVAL);
    CHECK_ERRNO(io_getevents(context, -1, 4, events, &none), EINVAL);
    CHECK_ERRNO(io_getevents(context, 2, 1, events, &none), EINVAL);
    CHECK_ERRNO(io_getevents(context, 1, 1, events, BAD_KERNEL), EFAULT);
    (void)wrong;
}

CASE(a_counter_is_told)
{
    scratch();
    aio_context_t context = a_context(4);
    int fd = file_with("file", "abc", 3), counter = eventfd(0, 0);
    char there[8];
    uint64_t count = 0;
    struct iocb control = prepared(IOCB_CMD_PREAD, fd, there, 8, 0), *list[] = {&control};
    control.aio_flags = IOCB_FLAG_RESFD;
    control.aio_resfd = (uint32_t)counter;
    CHECK_EQ(io_submit(context, 1, list), 1);
    CHECK_EQ(read(counter, &count, 8), 8);
    CHECK_EQ(count, 1);
}

CASE(polls_wait_and_can_be_cancelled)
{
    aio_context_t context = a_context(4);
    struct io_event events[4], result;
    struct timespec none = {0, 0};
    int ends[2];
    CHECK_OK(pipe(ends));
    struct iocb control, other, *list[] = {&control, &other};
    memset(&control, 0, sizeof control);
    control.aio_lio_opcode = IOCB_CMD_POLL;
    control.aio_fildes = (uint32_t)ends[0];
    control.aio_buf = POLLIN;
    control.aio_data = 5;
    other = control;
    other.aio_data = 6;
    CHECK_EQ(io_submit(context, 1, list), 1);
    CHECK_EQ(io_getevents(context, 1, 4, events, &none), 0);
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(io_getevents(context, 1, 4, events, 0), 1);
    CHECK_EQ(events[0].data, 5);
    CHECK(events[0].res & POLLIN);
    char byte;
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    CHECK_EQ(io_submit(context, 1, list + 1), 1);
    CHECK_ERRNO(syscall(SYS_io_cancel, context, &control, &result), EINVAL);
    CHECK_ERRNO(syscall(SYS_io_cancel, 0, &other, &result), EINVAL);
    CHECK_ERRNO(syscall(SYS_io_cancel, context, BAD_KERNEL, &result), EFAULT);
    CHECK_ERRNO(syscall(SYS_io_cancel, context, &other, &result), EINPROGRESS);
    CHECK_EQ(io_getevents(context, 1, 4, events, 0), 1);
    CHECK_EQ(events[0].data, 6);
    CHECK_EQ(io_submit(context, 1, list + 1), 1);
    CHECK_OK(syscall(SYS_io_destroy, context));
}
