/* Changes of large address spaces: they come in pieces, and other threads of the process see them whole
 * or not at all. */
#include "harness.h"
#include "pieces.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { PAGE = 4096, MIB = 1 << 20, LENGTH = 8 * MIB };

#define HERE ((char *)0x600000000000)
#define THERE ((char *)0x610000000000)

static char *at(char *address, size_t length)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    char *memory = mmap(address, length, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(memory == address);
    return memory;
}

static char *filled(char *address, size_t length)
{
    char *memory = at(address, length);
    memset(memory, 7, length);
    return memory;
}

CASE(changes_of_many_pages_come_in_pieces)
{
    enum { LEAST = 7 };
    char *memory = filled(HERE, LENGTH);
    CHECK_PIECES("mprotect", LEAST, CHECK_OK(mprotect(memory, LENGTH, PROT_READ)));
    CHECK_PIECES("mprotect", LEAST, CHECK_OK(mprotect(memory, LENGTH, PROT_READ | PROT_WRITE)));
    CHECK_PIECES("mremap", LEAST, {
        void *moved = mremap(memory, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, THERE);
        CHECK(moved == THERE);
    });
    CHECK_EQ(THERE[LENGTH - 1], 7);
    CHECK_PIECES("mremap", LEAST, CHECK(mremap(THERE, LENGTH, PAGE, 0) == THERE));
    CHECK_EQ(THERE[PAGE - 1], 7);
    filled(HERE, LENGTH);
    CHECK_PIECES("mmap", LEAST, at(HERE, LENGTH));
    CHECK_EQ(HERE[LENGTH - 1], 0);
    memset(HERE, 7, LENGTH);
    CHECK_PIECES("fork", LEAST, {
        pid_t child = (pid_t)syscall(SYS_fork);
        if (child == 0)
            syscall(SYS_exit_group, HERE[LENGTH / 2]);
        CHECK_EXITED(child, 7);
    });
    CHECK_OK(munmap(HERE, LENGTH));
    CHECK_OK(munmap(THERE, PAGE));
    char *heap = (char *)syscall(SYS_brk, 0L);
    CHECK_EQ((char *)syscall(SYS_brk, heap + LENGTH), heap + LENGTH);
    memset(heap, 7, LENGTH);
    CHECK_PIECES("brk", LEAST, CHECK_EQ((char *)syscall(SYS_brk, heap), heap));
}

CASE(changes_of_many_areas_come_in_pieces)
{
    enum { AREAS = 512, LEAST = 7 };
    for (long i = 0; i < AREAS; i++)
        at(HERE + 2 * i * PAGE, PAGE);
    CHECK_PIECES("fork", LEAST, {
        pid_t child = (pid_t)syscall(SYS_fork);
        if (child == 0)
            syscall(SYS_exit_group, msync(HERE + 2 * (AREAS - 1) * PAGE, PAGE, MS_ASYNC));
        CHECK_EXITED(child, 0);
    });
    CHECK_PIECES("madvise", LEAST, CHECK_ERRNO(madvise(HERE, 2L * AREAS * PAGE, MADV_DONTFORK), ENOMEM));
    CHECK_PIECES("munmap", LEAST, CHECK_OK(munmap(HERE, 2L * AREAS * PAGE)));
    CHECK_ERRNO(msync(HERE + 2 * (AREAS - 1) * PAGE, PAGE, MS_ASYNC), ENOMEM);
}

CASE(emptiness_costs_nothing)
{
    enum { HUGE_STEPS = 40 };
    long length = 1L << HUGE_STEPS;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    for (int round = 0; round < 4; round++) {
        char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, -1, 0);
        CHECK(memory != MAP_FAILED);
        memset(memory + length / 3, 1, 2 * MIB);
        memory[length - 1] = 1;
        CHECK_OK(madvise(memory, length, MADV_DONTNEED));
        CHECK_EQ(memory[length / 3], 0);
        CHECK_OK(mprotect(memory, length, PROT_NONE));
        char *moved = mremap(memory, length, length / 2, MREMAP_MAYMOVE);
        CHECK(moved == memory);
        pid_t child = fork_or_fail();
        if (child == 0)
            _exit(0);
        CHECK_EXITED(child, 0);
        CHECK_OK(munmap(memory, length / 2));
    }
}

CASE(memory_goes_in_pieces_when_another_program_comes)
{
    CHECK_PIECES("execve", 7, {
        pid_t child = fork_or_fail();
        if (child == 0) {
            filled(HERE, LENGTH);
            CHECK_EQ(dup2(open("/dev/null", O_WRONLY), 1), 1);
            char *arguments[] = {"again", "--list", NULL};
            execve("/proc/self/exe", arguments, NULL);
            _exit(1);
        }
        CHECK_EXITED(child, 0);
    });
}

CASE(long_arguments_are_read_in_pieces)
{
    enum { STRINGS = 40, STRING = 100000 };
    static char *environment[STRINGS + 1];
    struct rlimit limit = {64L * MIB, 64L * MIB};
    for (int i = 0; i < STRINGS; i++) {
        environment[i] = malloc(STRING + 1);
        memset(environment[i], 'x', STRING);
        environment[i][STRING] = 0;
    }
    CHECK_PIECES("execve", 6, {
        pid_t child = fork_or_fail();
        if (child == 0) {
            CHECK_OK(setrlimit(RLIMIT_STACK, &limit));
            CHECK_EQ(dup2(open("/dev/null", O_WRONLY), 1), 1);
            char *arguments[] = {"again", "--list", NULL};
            execve("/proc/self/exe", arguments, environment);
            _exit(1);
        }
        CHECK_EXITED(child, 0);
    });
}

/* ---- What other threads see. ---- */

static volatile int stop;
static volatile long seen_whole, seen_gone;

static void *maps_and_unmaps(void *unused)
{
    (void)unused;
    while (!stop) {
        at(HERE, LENGTH);
        for (long page = 0; page < LENGTH; page += PAGE)
            HERE[page] = 7;
        munmap(HERE, LENGTH);
    }
    return NULL;
}

static int is_mapped(char *address)
{
    unsigned char there;
    return mincore(address, PAGE, &there) == 0;
}

CASE(a_child_has_a_mapping_whole_or_not_at_all)
{
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, maps_and_unmaps, NULL), 0);
    for (int round = 0; round < 30; round++) {
        pid_t child = fork_or_fail();
        if (child == 0)
            _exit(is_mapped(HERE) != is_mapped(HERE + LENGTH - PAGE)
                  || is_mapped(HERE) != is_mapped(HERE + LENGTH / 2));
        CHECK_EXITED(child, 0);
    }
    stop = 1;
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

static sigjmp_buf back;

static void on_fault(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

static volatile char wrong;

/* Reads pages of HERE: each is full of sevens, or gone. */
static void *reads(void *unused)
{
    (void)unused;
    for (long page = 0; !stop; page = (page + 37 * PAGE) % LENGTH) {
        if (sigsetjmp(back, 1) == 0) {
            char value = HERE[page];
            if (value != 7)
                wrong = 1;
            seen_whole++;
        } else {
            seen_gone++;
        }
    }
    return NULL;
}

CASE(pages_that_move_are_whole_or_gone)
{
    pthread_t thread;
    struct sigaction action = {.sa_handler = on_fault};
    CHECK_OK(sigaction(SIGSEGV, &action, NULL));
    filled(HERE, LENGTH);
    CHECK_EQ(pthread_create(&thread, NULL, reads, NULL), 0);
    for (int round = 0; round < 300 && (round < 20 || seen_whole == 0 || seen_gone == 0); round++) {
        CHECK(mremap(HERE, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, THERE) == THERE);
        CHECK(mremap(THERE, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, HERE) == HERE);
    }
    stop = 1;
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(wrong, 0);
}

CASE(a_mapping_that_is_replaced_leaves_no_hole)
{
    pthread_t thread;
    struct sigaction action = {.sa_handler = on_fault};
    CHECK_OK(sigaction(SIGSEGV, &action, NULL));
    filled(HERE, LENGTH);
    CHECK_EQ(pthread_create(&thread, NULL, reads, NULL), 0);
    int file = memfd_create("sevens", 0);
    CHECK(file != -1);
    CHECK_EQ(write(file, HERE, LENGTH), LENGTH);
    for (int round = 0; round < 20; round++) {
        CHECK(mmap(HERE, LENGTH, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == HERE);
        for (long page = 0; page < LENGTH; page += PAGE)
            CHECK_EQ(HERE[page], 7);
    }
    stop = 1;
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(wrong, 0);
    CHECK_EQ(seen_gone, 0);
}

CASE(long_changes_can_be_killed)
{
    int ends[2];
    char byte;
    for (int what = 0; what < 3; what++) {
        CHECK_OK(pipe(ends));
        pid_t child = fork_or_fail();
        if (child == 0) {
            filled(HERE, LENGTH);
            CHECK_EQ(write(ends[1], "x", 1), 1);
            for (int round = 0;; round++) {
                if (what == 0) {
                    pid_t grandchild = (pid_t)syscall(SYS_fork);
                    if (grandchild == 0)
                        syscall(SYS_exit_group, 0L);
                    while (waitpid(grandchild, NULL, 0) == -1)
                        ;
                } else if (what == 1) {
                    mprotect(HERE, LENGTH, round % 2 ? PROT_READ : PROT_READ | PROT_WRITE);
                } else {
                    mremap(round % 2 ? THERE : HERE, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED,
                           round % 2 ? HERE : THERE);
                }
            }
        }
        CHECK_EQ(read(ends[0], &byte, 1), 1);
        sleep_ms(5);
        CHECK_OK(kill(child, SIGKILL));
        CHECK_KILLED(child, SIGKILL);
        close(ends[0]);
        close(ends[1]);
    }
}
