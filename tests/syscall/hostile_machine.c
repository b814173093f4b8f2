/* Programs that would keep the machine for themselves: calls that take long, more pending calls than one
 * should have, more pages and names than one's share. Others go on, and the culprit gets an errno. */
#include "harness.h"
#include "pieces.h"
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/uio.h>

enum { PAGE = 4096, MIB = 1 << 20 };

static char *fresh(size_t length)
{
    char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

CASE(long_transfers_come_in_pieces)
{
    enum { LENGTH = 16 * MIB };
    scratch();
    char *memory = fresh(LENGTH);
    int zero = open("/dev/zero", O_RDONLY), random = open("/dev/urandom", O_RDONLY);
    int file = open("f", O_RDWR | O_CREAT, 0644);
    CHECK_PIECES("read", 15, CHECK_EQ(read(zero, memory, LENGTH), LENGTH));
    CHECK_PIECES("write", 15, CHECK_EQ(write(file, memory, LENGTH), LENGTH));
    CHECK_PIECES("pread64", 15, CHECK_EQ(pread(file, memory, LENGTH, 0), LENGTH));
    CHECK_PIECES("read", 2, CHECK_EQ(read(random, memory, 3 * MIB), 3 * MIB));
    CHECK_PIECES("getrandom", 2, CHECK_EQ(syscall(SYS_getrandom, memory, 3 * MIB, 0), 3 * MIB));
    /* Appending is not cut short by that. */
    int appended = open("g", O_WRONLY | O_CREAT | O_APPEND, 0644);
    CHECK_EQ(write(appended, memory, 3 * MIB + 5), 3 * MIB + 5);
    struct stat status;
    CHECK_OK(fstat(appended, &status));
    CHECK_EQ(status.st_size, 3 * MIB + 5);
    munmap(memory, LENGTH);
}

CASE(long_changes_of_memory_come_in_pieces)
{
    enum { LENGTH = 16 * MIB };
    scratch();
    char *memory = fresh(LENGTH);
    CHECK_PIECES("madvise", 15, CHECK_OK(madvise(memory, LENGTH, 23 /* MADV_POPULATE_WRITE */)));
    memset(memory, 1, LENGTH);
    CHECK_PIECES("madvise", 15, CHECK_OK(madvise(memory, LENGTH, MADV_DONTNEED)));
    CHECK_EQ(memory[LENGTH / 2], 0);
    memset(memory, 1, LENGTH);
    struct iovec here = {memory, LENGTH / 2}, there = {memory + LENGTH / 2, LENGTH / 2};
    CHECK_PIECES("process_vm_readv", 7,
                 CHECK_EQ(process_vm_readv(getpid(), &here, 1, &there, 1, 0), LENGTH / 2));
    CHECK_PIECES("munmap", 15, CHECK_OK(munmap(memory, LENGTH)));
    CHECK_PIECES("mmap", 15, {
        memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        CHECK(memory != MAP_FAILED);
    });
    CHECK_OK(munmap(memory, LENGTH));
    /* A hole is still told of. */
    memory = fresh(4 * MIB);
    CHECK_OK(munmap(memory + 2 * MIB, PAGE));
    CHECK_ERRNO(madvise(memory, 4 * MIB, MADV_DONTNEED), ENOMEM);
    CHECK_ERRNO(madvise(memory, 4 * MIB, 22 /* MADV_POPULATE_READ */), ENOMEM);
    CHECK_ERRNO(madvise(memory, 4 * MIB, MADV_WILLNEED), ENOMEM);
}

CASE(many_descriptors_are_closed_in_pieces)
{
    enum { MANY = 2048 };
    struct rlimit limit = {MANY + 1024, MANY + 1024};
    CHECK_OK(setrlimit(RLIMIT_NOFILE, &limit));
    int null = open("/dev/null", O_RDONLY), first = 512;
    CHECK_EQ(fcntl(null, F_DUPFD_CLOEXEC, first), first);
    for (int i = first + 1; i < first + MANY; i++)
        CHECK_EQ(fcntl(first, F_DUPFD_CLOEXEC, i), i);
    /* Whoever waits for all of them looks at them in pieces, too. */
    static struct pollfd entries[MANY];
    for (int i = 0; i < MANY; i++)
        entries[i] = (struct pollfd){first + i, POLLIN, 0};
    CHECK_PIECES("poll", 2, CHECK_EQ(poll(entries, MANY, 1000), MANY));
    int ends[2];
    CHECK_OK(pipe(ends));
    for (int i = 0; i < MANY; i++)
        entries[i].fd = ends[0];
    CHECK_PIECES("poll", 2, CHECK_EQ(poll(entries, MANY, 1), 0));
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(poll(entries, MANY, -1), MANY);
    close(ends[0]);
    close(ends[1]);
    CHECK_PIECES("close_range", 7, CHECK_OK(syscall(SYS_close_range, first + 2, first + MANY, 0)));
    CHECK_OK(fcntl(first + 1, F_GETFD));
    for (int i = first + 2; i < first + MANY; i++)
        CHECK_ERRNO(fcntl(i, F_GETFD), EBADF);
    /* Those that execve closes. */
    for (int i = first + 2; i < first + MANY; i += 2)
        CHECK_EQ(fcntl(first, F_DUPFD_CLOEXEC, i), i);
    CHECK_EQ(fcntl(first, F_DUPFD, first + 1), first + 3);
    CHECK_PIECES("execve", 4, {
        pid_t child = fork_or_fail();
        if (child == 0) {
            CHECK_EQ(dup2(open("/dev/null", O_WRONLY), 1), 1);
            char *arguments[] = {"again", "--list", NULL};
            execve("/proc/self/exe", arguments, NULL);
            _exit(1);
        }
        CHECK_EXITED(child, 0);
    });
}

CASE(holes_cost_nothing)
{
    scratch();
    int file = open("sparse", O_RDWR | O_CREAT, 0644);
    CHECK_OK(ftruncate(file, 1L << 40));
    CHECK_EQ(pwrite(file, "x", 1, 1L << 39), 1);
    CHECK_OK(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1L << 40));
    struct stat status;
    CHECK_OK(fstat(file, &status));
    CHECK_EQ(status.st_blocks, 0);
    CHECK_EQ(status.st_size, 1L << 40);
    CHECK_EQ(pwrite(file, "x", 1, 5 * PAGE), 1);
    char *memory = mmap(NULL, 1L << 30, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(memory != MAP_FAILED);
    CHECK_EQ(memory[5 * PAGE], 'x');
    CHECK_OK(madvise(memory, 1L << 30, MADV_REMOVE));
    CHECK_EQ(memory[5 * PAGE], 0);
    CHECK_OK(munmap(memory, 1L << 30));
}

CASE(room_is_reserved_whole_or_not_at_all)
{
    struct stat status;
    scratch();
    CHECK_OK(mkdir("m", 0755));
    CHECK_OK(mount("none", "m", "tmpfs", 0, "size=4m"));
    int file = open("m/f", O_RDWR | O_CREAT, 0644);
    CHECK_ERRNO(fallocate(file, 0, 0, 6 * MIB), ENOSPC);
    CHECK_OK(fstat(file, &status));
    CHECK_EQ(status.st_blocks, 0);
    CHECK_EQ(status.st_size, 0);
    CHECK_PIECES("fallocate", 3, CHECK_OK(fallocate(file, 0, 0, 4 * MIB)));
    CHECK_OK(fstat(file, &status));
    CHECK_EQ(status.st_blocks, 4 * MIB / 512);
    CHECK_EQ(status.st_size, 4 * MIB);
    close(file);
    CHECK_OK(umount("m"));
}

static void *reserve_three(void *file)
{
    return (void *)(intptr_t)(fallocate((int)(intptr_t)file, 0, 0, 3 * MIB) == 0 ? 0 : errno);
}

/* Two ask for three quarters each: whoever finds in the middle that the other has taken too much has nothing. */
CASE(who_loses_the_race_for_room_keeps_none)
{
    scratch();
    CHECK_OK(mkdir("m", 0755));
    CHECK_OK(mount("none", "m", "tmpfs", 0, "size=4m"));
    int files[2] = {open("m/a", O_RDWR | O_CREAT, 0644), open("m/b", O_RDWR | O_CREAT, 0644)};
    for (int round = 0; round < 50; round++) {
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, reserve_three, (void *)(intptr_t)files[i]), 0);
        for (int i = 0; i < 2; i++) {
            void *failure;
            struct stat status;
            CHECK_EQ(pthread_join(threads[i], &failure), 0);
            CHECK((intptr_t)failure == 0 || (intptr_t)failure == ENOSPC);
            CHECK_OK(fstat(files[i], &status));
            CHECK_EQ(status.st_blocks, failure ? 0 : 3 * MIB / 512);
        }
        CHECK_OK(ftruncate(files[0], 0));
        CHECK_OK(ftruncate(files[1], 0));
    }
    close(files[0]);
    close(files[1]);
    CHECK_OK(umount("m"));
}

CASE(names_count_as_inodes)
{
    struct statfs before, after;
    char name[40];
    int links = 0;
    scratch();
    CHECK_OK(mkdir("m", 0755));
    CHECK_OK(mount("none", "m", "tmpfs", 0, "nr_inodes=20"));
    CHECK_OK(statfs("m", &before));
    close(open("m/first", O_RDWR | O_CREAT, 0644));
    for (;; links++) {
        snprintf(name, sizeof name, "m/link%d", links);
        if (link("m/first", name) == -1)
            break;
        CHECK(links < 30);
    }
    CHECK_EQ(errno, ENOSPC);
    CHECK_EQ(links, (int)before.f_ffree - 1);
    for (int i = 0; i < links; i++) {
        snprintf(name, sizeof name, "m/link%d", i);
        CHECK_OK(unlink(name));
    }
    CHECK_OK(rename("m/first", "m/second"));
    CHECK_OK(link("m/second", "m/third"));
    close(open("m/fourth", O_RDWR | O_CREAT, 0644));
    CHECK_OK(rename("m/fourth", "m/third"));
    CHECK_OK(unlink("m/third"));
    CHECK_OK(unlink("m/second"));
    CHECK_OK(statfs("m", &after));
    CHECK_EQ(after.f_ffree, before.f_ffree);
    CHECK_OK(umount("m"));
}

CASE(pages_of_pipes_of_one_user)
{
    char text[64];
    slurp("/proc/sys/fs/pipe-user-pages-soft", text, sizeof text);
    CHECK_EQ(atol(text), 16384);
    slurp("/proc/sys/fs/pipe-user-pages-hard", text, sizeof text);
    CHECK_EQ(atol(text), 0);
    pid_t child = fork_or_fail();
    if (child == 0) {
        enum { PIPES = 64 };
        int ends[2];
        CHECK_OK(setgid(54321));
        CHECK_OK(setuid(54321));
        for (int i = 0; i < PIPES - 1; i++) {
            CHECK_OK(pipe(ends));
            CHECK_EQ(fcntl(ends[0], F_SETPIPE_SZ, MIB), MIB);
        }
        /* 63 of 64 MiB; one more leaves no page. */
        int last[2];
        CHECK_OK(pipe(last));
        CHECK_EQ(fcntl(last[0], F_SETPIPE_SZ, MIB), MIB);
        CHECK_OK(pipe(ends));
        CHECK_EQ(fcntl(ends[0], F_GETPIPE_SZ), 2 * PAGE);
        CHECK_ERRNO(fcntl(ends[0], F_SETPIPE_SZ, MIB), EPERM);
        CHECK_EQ(write(ends[1], "works", 5), 5);
        /* Room comes back with what is closed. */
        close(last[0]);
        close(last[1]);
        CHECK_EQ(fcntl(ends[0], F_SETPIPE_SZ, MIB / 2), MIB / 2);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

/* A transfer of 2 GiB into two MiB: long, but it takes no memory. */
static void long_call(int descriptor, char *memory)
{
    static struct iovec vectors[1024];
    for (int i = 0; i < 1024; i++)
        vectors[i] = (struct iovec){memory, 2 * MIB};
    readv(descriptor, vectors, 1024);
}

/* A child that does nothing but long calls; it has begun when this returns. */
static pid_t long_caller(void)
{
    int zero = open("/dev/zero", O_RDONLY);
    int ends[2];
    char byte;
    CHECK_OK(pipe(ends));
    pid_t child = fork_or_fail();
    if (child == 0) {
        char *memory = fresh(2 * MIB);
        CHECK_EQ(write(ends[1], "x", 1), 1);
        for (;;)
            long_call(zero, memory);
    }
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    return child;
}

CASE(others_go_on_during_long_calls)
{
    pid_t child = long_caller();
    /* Each round needs others to have their turn: twenty long calls do not fit into the deadline. */
    for (int round = 0; round < 20; round++) {
        int ends[2];
        char byte;
        CHECK_OK(pipe(ends));
        pid_t writer = fork_or_fail();
        if (writer == 0) {
            CHECK_EQ(write(ends[1], "y", 1), 1);
            _exit(0);
        }
        CHECK_EQ(read(ends[0], &byte, 1), 1);
        CHECK_EXITED(writer, 0);
        close(ends[0]);
        close(ends[1]);
    }
    CHECK_OK(kill(child, SIGKILL));
    CHECK_KILLED(child, SIGKILL);
}

CASE(a_long_call_can_be_killed)
{
    pid_t child = long_caller();
    CHECK_OK(kill(child, SIGKILL));
    CHECK_KILLED(child, SIGKILL);
}

/* ---- Posted calls, on kernels that have them. ---- */

struct entry {
    volatile uint32_t status;
    uint16_t number;
    uint8_t flags, pass;
    uint64_t arguments[6];
    volatile int64_t result;
};

enum { REGISTER = 500, WAIT = 502, ENTRIES = 64, POSTERS = 18 };

static volatile int posted_threads, refused, stop_posting;

static void *post_reads(void *argument)
{
    int descriptor = *(int *)argument;
    static char sink[16];
    struct entry *entries = aligned_alloc(PAGE, PAGE);
    memset(entries, 0, PAGE);
    if (syscall(REGISTER, 1L, entries, 0L) == -1) {
        __sync_fetch_and_add(&posted_threads, 1);
        return NULL;
    }
    for (int i = 0; i < ENTRIES; i++) {
        entries[i].number = SYS_read;
        entries[i].arguments[0] = (uint64_t)descriptor;
        entries[i].arguments[1] = (uint64_t)(uintptr_t)sink;
        entries[i].arguments[2] = 1;
        __atomic_store_n(&entries[i].status, 1, __ATOMIC_RELEASE);
    }
    syscall(WAIT, 0L, 0L, 0L);
    __sync_fetch_and_add(&posted_threads, 1);
    /* Its entries are free again one by one as they are seen to be refused. */
    while (!stop_posting) {
        for (int i = 0; i < ENTRIES; i++)
            if (__atomic_load_n(&entries[i].status, __ATOMIC_ACQUIRE) == 2 && entries[i].result == -EAGAIN) {
                entries[i].status = 0;
                __sync_fetch_and_add(&refused, 1);
            }
        sleep_ms(5);
    }
    return NULL;
}

CASE(unknown_flags_of_an_entry_are_refused)
{
    if (access("/proc/sys/kernel/pending_calls_per_user", R_OK) == -1)
        SKIP("needs posted calls");
    struct entry *entries = aligned_alloc(PAGE, PAGE);
    memset(entries, 0, PAGE);
    CHECK(syscall(REGISTER, 1L, entries, 0L) != -1);
    /* One that is answered at once, and one that is not. */
    static const uint16_t numbers[] = { SYS_getppid, SYS_uname };
    for (int i = 0; i < 2; i++) {
        entries[i].number = numbers[i];
        entries[i].flags = 0x80;
        __atomic_store_n(&entries[i].status, 1, __ATOMIC_RELEASE);
        CHECK_OK(syscall(WAIT, 3L, (long)i, 0L));
        CHECK_EQ(entries[i].status, 2);
        CHECK_EQ(entries[i].result, -EINVAL);
    }
}

CASE(pending_calls_of_one_user_stop_nobody)
{
    char text[64], byte;
    int ends[2], ready[2];
    if (access("/proc/sys/kernel/pending_calls_per_user", R_OK) == -1)
        SKIP("needs posted calls");
    slurp("/proc/sys/kernel/pending_calls_per_user", text, sizeof text);
    CHECK_EQ(atol(text), 1024);
    CHECK_OK(pipe(ready));
    CHECK_OK(pipe(ends));
    pid_t child = fork_or_fail();
    if (child == 0) {
        pthread_t threads[POSTERS];
        CHECK_OK(setgid(54322));
        CHECK_OK(setuid(54322));
        for (int i = 0; i < POSTERS; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, post_reads, &ends[0]), 0);
        while (posted_threads < POSTERS)
            sleep_ms(2);
        CHECK_EQ(write(ready[1], "x", 1), 1);
        for (;;)
            sleep_ms(1000);
    }
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    /* Everybody's calls go on: those that are short and those that wait. */
    for (int i = 0; i < 20; i++) {
        int other[2];
        CHECK_OK(pipe(other));
        pid_t writer = fork_or_fail();
        if (writer == 0) {
            CHECK_EQ(write(other[1], "y", 1), 1);
            _exit(0);
        }
        CHECK_EQ(read(other[0], &byte, 1), 1);
        CHECK_EXITED(writer, 0);
        close(other[0]);
        close(other[1]);
        int file = open("/dev/null", O_RDONLY);
        CHECK_OK(close(file));
    }
    CHECK_OK(kill(child, SIGKILL));
    CHECK_KILLED(child, SIGKILL);
}

CASE(who_has_too_many_pending_calls_hears_of_it)
{
    int ends[2];
    pthread_t threads[POSTERS];
    if (access("/proc/sys/kernel/pending_calls_per_user", R_OK) == -1)
        SKIP("needs posted calls");
    CHECK_OK(pipe(ends));
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setgid(54323));
        CHECK_OK(setuid(54323));
        for (int i = 0; i < POSTERS; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, post_reads, &ends[0]), 0);
        while (posted_threads < POSTERS)
            sleep_ms(2);
        while (refused == 0)
            sleep_ms(2);
        CHECK(refused <= POSTERS * ENTRIES - 1000);
        stop_posting = 1;
        for (int i = 0; i < POSTERS; i++)
            CHECK_EQ(pthread_join(threads[i], NULL), 0);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(surveys_of_memory_give_the_core_back)
{
    /* Read and never written: they cost no memory, but stand in the page tables. */
    char *memory = fresh(300 * MIB);
    CHECK_OK(madvise(memory, 300 * MIB, 22 /* MADV_POPULATE_READ */));
    memset(memory + 200 * MIB, 1, MIB);
    static char text[262144];
    static const char *const names[] = {"/proc/self/smaps_rollup", "/proc/self/smaps"};
    for (int i = 0; i < 2; i++) {
        CHECK_PIECES("read", 2, slurp(names[i], text, sizeof text));
        char *resident = strstr(text, "Rss:");
        CHECK(resident != NULL);
        if (i == 0)
            CHECK(atol(resident + 4) >= 1024);
    }
    CHECK_OK(munmap(memory, 300 * MIB));
}

CASE(a_fork_copies_many_descriptors_in_turns)
{
    enum { HIGHEST = 20000 };
    struct rlimit limit;
    CHECK_OK(getrlimit(RLIMIT_NOFILE, &limit));
    if (limit.rlim_max <= HIGHEST)
        SKIP("too few descriptors are allowed");
    limit.rlim_cur = limit.rlim_max;
    CHECK_OK(setrlimit(RLIMIT_NOFILE, &limit));
    int ends[2];
    CHECK_OK(pipe2(ends, O_CLOEXEC));
    CHECK_EQ(dup2(ends[1], HIGHEST), HIGHEST);
    pid_t child = -1;
    CHECK_PIECES("fork", 5, child = (pid_t)syscall(SYS_fork));
    if (child == 0) {
        CHECK_EQ(fcntl(HIGHEST, F_GETFD), 0);
        CHECK_EQ(fcntl(ends[1], F_GETFD), FD_CLOEXEC);
        CHECK_ERRNO(fcntl(HIGHEST - 1, F_GETFD), EBADF);
        CHECK_EQ(write(HIGHEST, "x", 1), 1);
        CHECK_EQ(dup(ends[0]), ends[1] + 1);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    char byte;
    CHECK_EQ(read(ends[0], &byte, 1), 1);
}

/* Pages of `memory` at these offsets are beyond the end of their file. */
static void check_gone(char *memory, const long *gone, int count)
{
    for (int i = 0; i < count; i++) {
        pid_t child = fork_or_fail();
        if (child == 0)
            _exit(*(volatile char *)(memory + gone[i]));
        CHECK_KILLED(child, SIGBUS);
    }
}

CASE(a_file_that_is_cut_short_leaves_mappings_in_turns)
{
    enum { LENGTH = 8 * MIB };
    int file = open("cut", O_RDWR | O_CREAT, 0600);
    CHECK_OK(ftruncate(file, LENGTH));
    char *memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *copy = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    CHECK(memory != MAP_FAILED && copy != MAP_FAILED);
    static const long gone[] = {4096, LENGTH / 2, LENGTH - 1};
    memset(memory, 1, LENGTH);
    memset(copy, 2, LENGTH);
    CHECK_PIECES("ftruncate", 2, CHECK_OK(ftruncate(file, 4096)));
    check_gone(memory, gone, 3);
    check_gone(copy, gone, 3);
    CHECK_EQ(memory[4095], 1);
    CHECK_EQ(copy[4095], 2);
    CHECK_OK(ftruncate(file, LENGTH));
    CHECK_EQ(memory[LENGTH - 1], 0);
    CHECK_EQ(copy[LENGTH - 1], 0);
    memset(memory, 1, LENGTH);
    CHECK_PIECES("truncate", 2, CHECK_OK(truncate("cut", 4096)));
    check_gone(memory, gone, 3);
    CHECK_OK(ftruncate(file, LENGTH));
    memset(memory, 1, LENGTH);
    int again = -1;
    CHECK_PIECES("open", 2, again = (int)syscall(SYS_open, "cut", O_WRONLY | O_TRUNC));
    CHECK_OK(again);
    check_gone(memory, gone, 3);
    /* Pages of a hole are zero in shared mappings, and their own copies in private ones. */
    CHECK_OK(ftruncate(file, LENGTH));
    memset(memory, 1, LENGTH);
    memset(copy, 2, LENGTH);
    CHECK_PIECES("fallocate", 2,
                 CHECK_OK(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, LENGTH - 8192)));
    CHECK_EQ(memory[4095] + memory[LENGTH - 4096], 2);
    CHECK_EQ(memory[4096] + memory[LENGTH / 2] + memory[LENGTH - 4097], 0);
    CHECK_EQ(copy[4096] + copy[LENGTH - 4097], 4);
    CHECK_OK(munmap(copy, LENGTH));
    CHECK_OK(munmap(memory, LENGTH));
}

CASE(a_page_that_is_mapped_many_times_is_lost_in_turns)
{
    enum { TIMES = 3000 };
    int file = memfd_create("f", 0);
    CHECK_OK(ftruncate(file, PAGE));
    /* A page without rights between two of them: areas of their own. */
    char *memory = mmap(NULL, 2 * TIMES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    for (int i = 0; i < TIMES; i++) {
        char *page = mmap(memory + 2 * i * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
        CHECK(page != MAP_FAILED);
        page[0] = 1;
    }
    CHECK_PIECES("ftruncate", 2, CHECK_OK(ftruncate(file, 0)));
    static const long gone[] = {0, TIMES / 2 * 2 * PAGE, (TIMES - 1) * 2 * PAGE};
    check_gone(memory, gone, 3);
    CHECK_OK(munmap(memory, 2 * TIMES * PAGE));
    close(file);
}

/* The line of /proc/self/status, in KiB. */
static long status_of(const char *label)
{
    static char text[8192];
    slurp("/proc/self/status", text, sizeof text);
    char *found = strstr(text, label);
    CHECK(found != NULL);
    return atol(found + strlen(label));
}

CASE(page_tables_are_counted)
{
    enum { TABLES = 64 };
    long before = status_of("VmPTE:");
    volatile char *memory =
        mmap(NULL, 2L * MIB * TABLES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED);
    for (long at = 0; at < TABLES; at++)
        CHECK_EQ(memory[at * 2 * MIB], 0);
    CHECK(before > 0);
    CHECK(status_of("VmPTE:") - before >= (TABLES - 1) * 4);
}

static volatile int neighbour_ends;
static volatile long looks;
static volatile char *volatile shown;

/* Runs beside, in user mode and in the kernel, and looks where the other maps. */
static void *look_beside(void *unused)
{
    (void)unused;
    for (; !neighbour_ends; looks++) {
        volatile char *place = shown;
        for (int i = 0; i < 64; i++) {
            if (place[0] != 7) {
                neighbour_ends = 1;
                return "another page is there";
            }
        }
        sched_yield();
    }
    return NULL;
}

/* The neighbour looks at this from now on, and at nothing else. */
static void show(volatile char *place)
{
    shown = place;
    for (long before = looks; looks < before + 2 && !neighbour_ends;)
        sched_yield();
}

CASE(page_tables_of_what_is_unmapped_are_given_back)
{
    enum { ROUNDS = 400, TABLES = 16 };
    static const long GIB = 1L << 30;
    volatile char *always = fresh(4096);
    always[0] = 7;
    shown = always;
    pthread_t neighbour;
    CHECK_EQ(pthread_create(&neighbour, NULL, look_beside, NULL), 0);
    long before = status_of("VmPTE:");
    for (long round = 1; round <= ROUNDS; round++) {
        /* Tables of three levels at addresses that come once. */
        char *wish = (char *)(GIB * (round * 37 % 20011 + 512));
        volatile char *memory = mmap(wish, 2L * MIB * TABLES, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(memory != MAP_FAILED);
        for (long at = 0; at < TABLES; at++) {
            CHECK_EQ(memory[at * 2 * MIB], 0);
            memory[at * 2 * MIB] = 7;
        }
        show(memory);
        if (round % 4 == 0) {
            char *target = wish + GIB * 20100;
            show(always);
            volatile char *moved =
                mremap((void *)memory, 2L * MIB * TABLES, 2L * MIB * TABLES,
                       MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, target);
            CHECK(moved == target);
            CHECK_EQ(moved[2 * MIB], 7);
            show(moved);
            show(always);
            CHECK_OK(munmap((void *)moved, 2L * MIB * TABLES));
        }
        show(always);
        CHECK_OK(munmap((void *)memory, 2L * MIB * TABLES));
    }
    neighbour_ends = 1;
    long after = status_of("VmPTE:");
    void *wrong;
    CHECK_EQ(pthread_join(neighbour, &wrong), 0);
    CHECK(wrong == NULL);
    if (after > before + 256)
        FAIL("%ld KiB of page tables became %ld", before, after);
}

CASE(page_tables_of_one_process_do_not_take_the_memory_of_all)
{
    /* It reads one page here and one there: none is its own, only the tables are. */
    enum { STEP = 2 * MIB };
    if (getenv("FERRY_GUEST") == NULL)
        SKIP("it would hurt a host");
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (;;) {
            volatile char *memory = mmap(NULL, 1L << 36, PROT_READ,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            CHECK(memory != MAP_FAILED);
            for (long at = 0; at < 1L << 36; at += STEP)
                (void)memory[at];
        }
    }
    CHECK_KILLED(child, SIGKILL);
    char *own = fresh(16 * MIB);
    memset(own, 1, 16 * MIB);
    CHECK_EQ(own[16 * MIB - 1], 1);
}
