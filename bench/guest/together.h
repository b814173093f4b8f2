/*
 * Several processes, or threads of one, that do the same for a while: how much they get done together
 * and each. They begin at the same time and end when they are told to.
 */
#ifndef FERRY_BENCH_TOGETHER_H
#define FERRY_BENCH_TOGETHER_H

#include "case.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { TOGETHER_MOST = 16, TOGETHER_START_MS = 10000 };
enum together_kind { TOGETHER_PROCESSES, TOGETHER_THREADS };

/* What all of them see: shared memory. */
struct together {
    /* Makes one of them ready. */
    void (*prepare)(void);
    /* Does so many calls. */
    void (*run)(int count);
    int count;
    int ready, go, stop;
    struct {
        uint64_t calls;
        char own_line[56];
    } of[TOGETHER_MOST];
};

/* One of them. */
struct together_member {
    struct together *all;
    int index;
};

static void *together_member_runs(void *argument)
{
    struct together_member *member = argument;
    struct together *all = member->all;
    uint64_t calls = 0;
    all->prepare();
    __atomic_fetch_add(&all->ready, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&all->go, __ATOMIC_ACQUIRE))
        sched_yield();
    while (!__atomic_load_n(&all->stop, __ATOMIC_ACQUIRE)) {
        all->run(all->count);
        calls += (uint64_t)all->count;
    }
    all->of[member->index].calls = calls;
    return 0;
}

/* Lets `members` of them do `run(count)` again and again for this long. Prints the counters of figure
 * `name`. Nanoseconds per call, of all calls of all of them; the number of each is in `calls`. */
static double together(const char *name, enum together_kind kind, int members, double duration_ns,
                       void (*prepare)(void), void (*run)(int count), int count, double *calls)
{
    struct together *all = mmap(0, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct together_member member[TOGETHER_MOST];
    pthread_t threads[TOGETHER_MOST];
    pid_t children[TOGETHER_MOST];
    double sum = 0;
    int waited_ms = 0;
    if (all == MAP_FAILED || members > TOGETHER_MOST)
        case_fail("room for what processes share");
    all->prepare = prepare;
    all->run = run;
    all->count = count;
    for (int i = 0; i < members; i++) {
        member[i] = (struct together_member){all, i};
        if (kind == TOGETHER_THREADS) {
            if (pthread_create(&threads[i], 0, together_member_runs, &member[i]) != 0)
                case_fail("pthread_create");
        } else if ((children[i] = fork()) == 0) {
            together_member_runs(&member[i]);
            _exit(0);
        } else if (children[i] < 0) {
            case_fail("fork");
        }
    }
    while (__atomic_load_n(&all->ready, __ATOMIC_ACQUIRE) < members) {
        if (++waited_ms > TOGETHER_START_MS)
            case_fail("a process or thread that does not begin");
        usleep(1000);
    }
    case_count();
    double start_ns = case_clock_ns();
    __atomic_store_n(&all->go, 1, __ATOMIC_RELEASE);
    usleep((useconds_t)(duration_ns / 1e3));
    __atomic_store_n(&all->stop, 1, __ATOMIC_RELEASE);
    double elapsed_ns = case_clock_ns() - start_ns;
    for (int i = 0; i < members; i++) {
        int how = 0;
        if (kind == TOGETHER_THREADS ? pthread_join(threads[i], 0) != 0
                                     : waitpid(children[i], &how, 0) < 0 || how != 0)
            case_fail("a process or thread that was measured");
        sum += (double)all->of[i].calls;
        if (calls)
            calls[i] = (double)all->of[i].calls;
    }
    case_counted(name, sum);
    munmap(all, sizeof *all);
    return elapsed_ns / sum;
}

#endif
