/*
 * The guest program of the suite `concurrency`: what a round of calls costs when 1 to 256 coroutines
 * make them, in turn by trap or all at once by posting. The same static binary runs on Ferry and on
 * Linux; `case.h` says how counters are read.
 *
 *     concurrency ferry    by trap, and posted by libferry where the kernel takes posted calls
 *     concurrency linux    by trap, and by io_uring, plain and polled, where the calls exist there
 *
 * A coroutine is a step in a row of calls and nothing else; a round is that row once:
 *
 *     output           write of 64 bytes to /dev/null
 *     mapping          mmap of a page, munmap of it
 *     notification     a word into the partner's pipe, and the word that the partner sent out of the
 *                      own one; a coroutine waits, without a call, until its partner's word is there
 *     mixed            all of them
 *     general          getppid: the kernel has next to nothing to do
 *
 * By trap, each coroutine in turn makes its next call. Posted, those that are ready fill the free
 * entries, in the order in which they became ready, and one receiver takes what is done and makes its
 * coroutine ready again. Figures are `WAY_LOAD_COROUTINES`, in cycles of the time stamp counter per
 * round of one coroutine, and `WAY_traps_LOAD_COROUTINES`, traps per call.
 */
#define _GNU_SOURCE
#include <ferry.h>

#include "case.h"
#include "uring.h"

#include <errno.h>
#include <sched.h>

enum { MOST = 256, DEPTH = FERRY_ENTRIES, BATCH_CALLS = 2048, BATCHES = 21 };
enum { PAGE = 4096, TEXT = 64, SPIN_TURNS = 64, IDLE_TURNS = 1000 };
#define POINT_MOST_NS 80e6

enum step { WRITE, MAP, SIGNAL, TAKE, UNMAP, PARENT };

struct load {
    const char *name;
    int calls;
    enum step steps[5];
    /* Whether io_uring has all of its calls. */
    int has_uring;
};

static const struct load loads[] = {
    {"output", 1, {WRITE}, 1},
    {"mapping", 2, {MAP, UNMAP}, 0},
    {"notification", 2, {SIGNAL, TAKE}, 1},
    {"mixed", 5, {WRITE, MAP, SIGNAL, TAKE, UNMAP}, 0},
    {"general", 1, {PARENT}, 0},
};

struct coroutine {
    /* Calls to go, in all rounds; its place in the row of its load. */
    int left, at;
    /* Words that its partner sent and it has not asked for; whether it waits for one. */
    int words, is_waiting;
    struct coroutine *partner;
    int pipe[2];
    uint64_t sent, taken;
    void *page;
};

struct request {
    long number;
    uint64_t arguments[6];
};

static struct coroutine coroutines[MOST];
static const struct load *load;
static int null;
static long parent;
static char text[TEXT];

/* Those that can make their next call, first come first served, and calls to go of all together. */
static struct coroutine *ready[MOST];
static unsigned ready_first, ready_end;
static int calls_left;

static void make_ready(struct coroutine *coroutine)
{
    ready[ready_end++ % MOST] = coroutine;
}

/* Whether its next call can be made now; else it is made ready when its partner's word is there. */
static int can_go_on(struct coroutine *coroutine)
{
    if (load->steps[coroutine->at] != TAKE || coroutine->words > 0)
        return 1;
    coroutine->is_waiting = 1;
    return 0;
}

/* The next call of a coroutine. */
static inline struct request next_call(struct coroutine *self)
{
    switch (load->steps[self->at]) {
    case WRITE:
        return (struct request){SYS_write, {(uint64_t)null, (uint64_t)text, TEXT}};
    case MAP:
        return (struct request){SYS_mmap,
                                {0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                                 (uint64_t)-1, 0}};
    case SIGNAL:
        return (struct request){SYS_write, {(uint64_t)self->partner->pipe[1],
                                            (uint64_t)&self->sent, sizeof self->sent}};
    case TAKE:
        return (struct request){SYS_read, {(uint64_t)self->pipe[0], (uint64_t)&self->taken,
                                           sizeof self->taken}};
    case UNMAP:
        return (struct request){SYS_munmap, {(uint64_t)self->page, PAGE}};
    default:
        return (struct request){SYS_getppid, {0}};
    }
}

static void call_failed(const struct coroutine *self, long result)
{
    errno = result < 0 ? (int)-result : 0;
    fprintf(stderr, "step %d of %s answered %ld: ", self->at, load->name, result);
    case_fail("a call of a coroutine");
}

/* A call of a coroutine is done. Whether it can go on at once; `wake` is told of others that can. */
static inline int call_done(struct coroutine *self, long result, void (*wake)(struct coroutine *))
{
    const long expected[] = {[WRITE] = TEXT, [SIGNAL] = 8, [TAKE] = 8, [UNMAP] = 0, [PARENT] = parent};
    enum step step = load->steps[self->at];
    if (step == MAP ? result < 0 && result > -PAGE : result != expected[step])
        call_failed(self, result);
    if (step == MAP) {
        self->page = (void *)result;
    } else if (step == TAKE) {
        self->words--;
    } else if (step == SIGNAL) {
        struct coroutine *partner = self->partner;
        self->sent++;
        partner->words++;
        if (partner->is_waiting) {
            partner->is_waiting = 0;
            wake(partner);
        }
    }
    self->at = self->at + 1 == load->calls ? 0 : self->at + 1;
    calls_left--;
    return --self->left > 0 && can_go_on(self);
}

/* --- By trap --- */

static void wake_nobody(struct coroutine *coroutine)
{
    (void)coroutine;
}

/* The coroutines in turn, one call each. */
static void run_traps(int count)
{
    while (calls_left > 0)
        for (int i = 0; i < count; i++) {
            struct coroutine *self = &coroutines[i];
            if (self->left == 0 || self->is_waiting)
                continue;
            struct request call = next_call(self);
            const uint64_t *a = call.arguments;
            long result = syscall(call.number, a[0], a[1], a[2], a[3], a[4], a[5]);
            call_done(self, result == -1 ? -errno : result, wake_nobody);
        }
}

/* --- Posted --- */

/* Indexes of calls that are under way, the oldest first, and whose each is. */
static int flight[DEPTH];
static unsigned flight_first, flight_end;
static struct coroutine *flight_of[FERRY_INDEXES];

/* The submitters. Whether there is something that the kernel may have to be told of. */
static int post_ready(void)
{
    int is_news = 0;
    while (ready_first != ready_end && flight_end - flight_first < DEPTH) {
        struct coroutine *self = ready[ready_first % MOST];
        struct request call = next_call(self);
        const uint64_t *a = call.arguments;
        int index = ferry_prep6(call.number, a[0], a[1], a[2], a[3], a[4], a[5]);
        is_news = 1;
        /* Entries that were passed, because calls behind them were done first, count until the kernel
         * has passed them too. */
        if (index == -EAGAIN)
            break;
        if (index < 0)
            call_failed(self, index);
        flight_of[index] = self;
        flight[flight_end++ % DEPTH] = index;
        ready_first++;
    }
    return is_news;
}

static inline void take(int index)
{
    if (call_done(flight_of[index], ferry_result(index), make_ready))
        make_ready(flight_of[index]);
}

/* The receiver: takes what is done, the oldest first, up to the first that is not. */
static int receive(void)
{
    unsigned before = flight_first;
    while (flight_first != flight_end && ferry_ready(flight[flight_first % DEPTH]))
        take(flight[flight_first++ % DEPTH]);
    return flight_first != before;
}

/* The same, past those that are not. */
static int receive_any(void)
{
    unsigned kept = flight_first, end = flight_end;
    for (unsigned at = flight_first; at != end; at++) {
        int index = flight[at % DEPTH];
        if (ferry_ready(index))
            take(index);
        else
            flight[kept++ % DEPTH] = index;
    }
    flight_end = kept;
    return kept != end;
}

/* Nothing else is to be done: looks at the oldest for a while. */
static void spin_on_oldest(void)
{
    int index = flight[flight_first % DEPTH];
    for (int turns = 0; turns < SPIN_TURNS && flight_first != flight_end; turns++)
        if (ferry_ready(index))
            break;
}

static void run_posted(int count)
{
    int idle = 0, is_untold = 0;
    for (int i = 0; i < count; i++)
        make_ready(&coroutines[i]);
    while (calls_left > 0) {
        is_untold |= post_ready();
        if (idle > 0 ? receive_any() : receive()) {
            idle = 0;
        } else if (is_untold) {
            /* Not before there is nothing else to do: a kernel that looks need not be told. */
            ferry_submit();
            is_untold = 0;
            spin_on_oldest();
        } else if (++idle < IDLE_TURNS) {
            spin_on_oldest();
        } else {
            int index = ferry_wait_any(NULL);
            if (index < 0 && index != -EINTR)
                call_failed(flight_of[flight[flight_first % DEPTH]], index);
            receive_any();
            idle = 0;
        }
    }
}

/* --- By io_uring --- */

static struct uring ring;

static void run_uring(int count)
{
    unsigned under_way = 0;
    for (int i = 0; i < count; i++)
        make_ready(&coroutines[i]);
    while (calls_left > 0) {
        unsigned filled = 0, wanted = ready_end - ready_first;
        wanted = wanted < DEPTH - under_way ? wanted : DEPTH - under_way;
        uring_make_room(&ring, wanted);
        for (; filled < wanted; filled++) {
            struct coroutine *self = ready[ready_first++ % MOST];
            struct request call = next_call(self);
            struct io_uring_sqe *request = uring_request(&ring, filled);
            request->opcode = call.number == SYS_read ? IORING_OP_READ : IORING_OP_WRITE;
            request->fd = (int)call.arguments[0];
            request->addr = call.arguments[1];
            request->len = (unsigned)call.arguments[2];
            request->off = (uint64_t)-1;
            request->user_data = (uint64_t)self;
        }
        under_way += filled;
        if (filled > 0 || !ring.is_polled)
            uring_submit(&ring, filled, 1);
        unsigned taken = *ring.completion_head;
        unsigned end = __atomic_load_n(ring.completion_tail, __ATOMIC_ACQUIRE);
        for (; taken != end; taken++, under_way--) {
            struct io_uring_cqe *completion = &ring.completions[taken & ring.completion_mask];
            struct coroutine *self = (struct coroutine *)completion->user_data;
            if (call_done(self, completion->res, make_ready))
                make_ready(self);
        }
        __atomic_store_n(ring.completion_head, taken, __ATOMIC_RELEASE);
    }
}

/* --- Measuring --- */

/* So many rounds of each of the first `count` coroutines. */
static void prepare(int count, int rounds)
{
    ready_first = ready_end = 0;
    calls_left = count * rounds * load->calls;
    for (int i = 0; i < count; i++) {
        struct coroutine *self = &coroutines[i];
        self->left = rounds * load->calls;
        self->at = self->words = self->is_waiting = 0;
        self->partner = &coroutines[count == 1 ? 0 : i ^ 1];
    }
}

static void measure_point(const char *way, void (*run)(int), int count)
{
    char name[64];
    int rounds = BATCH_CALLS / (count * load->calls), done = 0;
    double spent_ns = 0, calls = (double)count * rounds * load->calls;
    uint64_t enters = ring.enters;
    prepare(count, rounds);
    run(count);
    case_count();
    while (done < BATCHES && spent_ns < POINT_MOST_NS) {
        prepare(count, rounds);
        uint64_t start = case_ticks();
        run(count);
        uint64_t ticks = case_ticks() - start;
        spent_ns += case_ns(ticks);
        case_samples[done++] = (double)ticks / count / rounds;
    }
    struct case_counts now = case_counts_now();
    double traps = case_grown(&now, CASE_TRAPS);
    snprintf(name, sizeof name, "%s_%s_%d", way, load->name, count);
    case_counted(name, calls * done);
    case_print(name, "", "cycles", case_quantile(done, 0.5));
    /* Linux does not count traps; entries into io_uring are counted here, the warm-up with them. */
    if (run == run_uring)
        traps = (double)(ring.enters - enters) * done / (done + 1);
    snprintf(name, sizeof name, "%s_traps_%s_%d", way, load->name, count);
    if (traps >= 0)
        case_print(name, "", "traps/call", traps / (calls * done));
}

#define EACH_POINT(which)                                                                          \
    for (load = loads; load < loads + sizeof loads / sizeof loads[0]; load++)                      \
        for (int count = 1; count <= MOST && (which); count *= 2)

static void measure_uring(const char *way, int processor)
{
    if (uring_open(&ring, DEPTH, processor) != 0)
        return;
    EACH_POINT(load->has_uring)
        measure_point(way, run_uring, count);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    case_begin(what);
    parent = getppid();
    null = open("/dev/null", O_WRONLY);
    if (null < 0)
        case_fail("/dev/null");
    /* Nobody ever waits for a word in the kernel; io_uring is quicker when it knows. */
    for (int i = 0; i < MOST; i++)
        if (pipe2(coroutines[i].pipe, O_NONBLOCK) != 0)
            case_fail("pipe2");
    int is_posted = strcmp(what, "ferry") == 0 && ferry_available();
    EACH_POINT(1) {
        measure_point("trap", run_traps, count);
        if (is_posted)
            measure_point("posted", run_posted, count);
    }
    if (strcmp(what, "linux") == 0) {
        cpu_set_t here;
        CPU_ZERO(&here);
        CPU_SET(0, &here);
        sched_setaffinity(0, sizeof here, &here);
        measure_uring("uring", -1);
        measure_uring("polled", 1);
    }
    case_end();
    return 0;
}
