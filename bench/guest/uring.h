/*
 * io_uring, for comparison, by bare system calls: batches of NOP requests. Written from
 * io_uring(7), io_uring_setup(2) and io_uring_enter(2).
 */
#ifndef FERRY_BENCH_URING_H
#define FERRY_BENCH_URING_H

#include <linux/io_uring.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct uring {
    int fd;
    int is_polled;
    unsigned mask, completion_mask;
    unsigned *tail, *flags, *head, *array;
    unsigned *completion_head, *completion_tail;
    struct io_uring_sqe *requests;
    struct io_uring_cqe *completions;
    /* Times that the kernel was entered. */
    uint64_t enters;
};

static void *uring_map(int fd, size_t size, long offset)
{
    return mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset);
}

/* 0, or -1 where the kernel has none. With `processor` 0 or more, a thread of the kernel polls there. */
static int uring_open(struct uring *ring, unsigned entries, int processor)
{
    struct io_uring_params options;
    char *submission, *completion;
    memset(&options, 0, sizeof options);
    ring->is_polled = processor >= 0;
    if (ring->is_polled) {
        options.flags = IORING_SETUP_SQPOLL | IORING_SETUP_SQ_AFF;
        options.sq_thread_cpu = (unsigned)processor;
        options.sq_thread_idle = 2000;
    }
    ring->fd = (int)syscall(SYS_io_uring_setup, entries, &options);
    if (ring->fd < 0)
        return -1;
    submission = uring_map(ring->fd, options.sq_off.array + options.sq_entries * sizeof(unsigned),
                           IORING_OFF_SQ_RING);
    completion = uring_map(
        ring->fd, options.cq_off.cqes + options.cq_entries * sizeof(struct io_uring_cqe),
        IORING_OFF_CQ_RING);
    ring->requests = uring_map(ring->fd, options.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
    if (submission == MAP_FAILED || completion == MAP_FAILED || ring->requests == MAP_FAILED)
        return -1;
    ring->mask = *(unsigned *)(submission + options.sq_off.ring_mask);
    ring->completion_mask = *(unsigned *)(completion + options.cq_off.ring_mask);
    ring->head = (unsigned *)(submission + options.sq_off.head);
    ring->tail = (unsigned *)(submission + options.sq_off.tail);
    ring->flags = (unsigned *)(submission + options.sq_off.flags);
    ring->array = (unsigned *)(submission + options.sq_off.array);
    ring->completion_head = (unsigned *)(completion + options.cq_off.head);
    ring->completion_tail = (unsigned *)(completion + options.cq_off.tail);
    ring->completions = (struct io_uring_cqe *)(completion + options.cq_off.cqes);
    ring->enters = 0;
    return 0;
}

/* Waits until so many more requests have room. The polling thread gives the entries of a batch back
 * after it has completed them. */
static void uring_make_room(struct uring *ring, unsigned count)
{
    unsigned last = *ring->tail + count;
    while (last - __atomic_load_n(ring->head, __ATOMIC_ACQUIRE) > ring->mask + 1)
        ;
}

/* The request after the `ahead` ones that were filled since the last uring_submit(), emptied. */
static struct io_uring_sqe *uring_request(struct uring *ring, unsigned ahead)
{
    unsigned index = (*ring->tail + ahead) & ring->mask;
    ring->array[index] = index;
    return memset(&ring->requests[index], 0, sizeof ring->requests[index]);
}

/* Gives the kernel `count` filled requests, and waits for so many completions unless it polls. */
static void uring_submit(struct uring *ring, unsigned count, unsigned wanted)
{
    __atomic_store_n(ring->tail, *ring->tail + count, __ATOMIC_RELEASE);
    if (!ring->is_polled) {
        ring->enters++;
        syscall(SYS_io_uring_enter, ring->fd, count, wanted, IORING_ENTER_GETEVENTS, 0, 0);
    } else {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (__atomic_load_n(ring->flags, __ATOMIC_RELAXED) & IORING_SQ_NEED_WAKEUP) {
            ring->enters++;
            syscall(SYS_io_uring_enter, ring->fd, 0, 0, IORING_ENTER_SQ_WAKEUP, 0, 0);
        }
    }
}

/* Submits a batch, at most as many as the ring has entries, and takes all completions. */
static void uring_nops(struct uring *ring, unsigned count)
{
    unsigned taken = *ring->completion_head, wanted = taken + count;
    uring_make_room(ring, count);
    for (unsigned ahead = 0; ahead < count; ahead++)
        uring_request(ring, ahead)->opcode = IORING_OP_NOP;
    uring_submit(ring, count, count);
    /* Completions of NOPs have nothing to read but that they are there. */
    while (taken != wanted) {
        taken = __atomic_load_n(ring->completion_tail, __ATOMIC_ACQUIRE);
        __atomic_store_n(ring->completion_head, taken, __ATOMIC_RELEASE);
    }
}

#endif
