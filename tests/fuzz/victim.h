/* A victim: a process of an ordinary user whose threads abuse posted calls. */
#ifndef FERRY_TESTS_FUZZ_VICTIM_H
#define FERRY_TESTS_FUZZ_VICTIM_H

#include "common.h"
#include <pthread.h>
#include <setjmp.h>
#include <sys/resource.h>
#include <sys/time.h>

enum { THREADS_MAX = 5, SCRATCH_PAGES = 4 };

static struct {
    /* Two pages, a hole, and one more. */
    char *scratch;
    /* Everybody's pages, for everybody to write to. */
    struct syspage *volatile pages[THREADS_MAX];
    int fds[8];
    uint64_t seed;
} victim;

static __thread sigjmp_buf escape;
static __thread volatile int may_escape;
static __thread struct syspage own;

static void on_fault(int number)
{
    if (may_escape)
        siglongjmp(escape, number);
    call3(SYS_exit_group, 3, 0, 0);
}

static void on_signal(int number)
{
    (void)number;
}

/* Runs a statement that may fault; true when it did. */
#define FAULTS(...)                                                                                          \
    (__extension__({                                                                                         \
        volatile int faulted_ = 1;                                                                           \
        if (sigsetjmp(escape, 1) == 0) {                                                                     \
            may_escape = 1;                                                                                  \
            __VA_ARGS__;                                                                                     \
            faulted_ = 0;                                                                                    \
        }                                                                                                    \
        may_escape = 0;                                                                                      \
        faulted_;                                                                                            \
    }))

static struct syspage *some_page(void)
{
    struct syspage *page = victim.pages[random_below(THREADS_MAX)];
    return page ? page : &own;
}

static long some_argument(void)
{
    static const long pool[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 64, 100, 511, 4095, 4096, 65536, -1, -2, -100, -4096,
                                0x7fffffff, 0x80000000L, 0xffffffffL, 0x100000000L, 1L << 47, (1L << 47) - 4096,
                                INT64_MAX, INT64_MIN, (long)0xffff800000001000, (long)0x8000000000000000,
                                (long)0xffffffff80000000, 1L << 20};
    switch (random_below(8)) {
    case 0: return victim.fds[random_below(8)];
    case 1: return (long)victim.scratch + (long)random_below(SCRATCH_PAGES * PAGE);
    case 2: return (long)victim.scratch + (long)random_below(SCRATCH_PAGES) * PAGE;
    case 3: return (long)some_page()->entries + (random_below(2) ? 0 : (long)random_below(PAGE));
    case 4: return random_below(4) ? (long)random_below(70) : (long)some_page()->control + (long)random_below(2 * PAGE);
    case 5: return (long)random_number() >> random_below(64);
    default: return pool[random_below(sizeof pool / sizeof *pool)];
    }
}

static long some_number(void)
{
    /* Calls that wait, that map, that copy much, that make descriptors, that the others stand on. */
    static const short often[] = {0, 1, 3, 7, 9, 10, 11, 12, 13, 16, 17, 18, 19, 20, 22, 25, 28, 32, 35, 39,
                                  60, 61, 62, 72, 110, 202, 218, 230, 231, 234, 257, 270, 271, 281, 284, 290, 293,
                                  318, 500, 501, 502, 503};
    switch (random_below(4)) {
    case 0: return random_below(65536);
    case 1: return often[random_below(sizeof often / sizeof *often)];
    default: return random_below(512);
    }
}

/* As the contract says, as far as the position goes. */
static void post_garbage(void)
{
    unsigned count = 1 + random_below(random_below(4) ? 4 : ENTRIES);
    (void)FAULTS({
        for (unsigned i = 0; i < count; i++) {
            long arguments[6];
            for (int k = 0; k < 6; k++)
                arguments[k] = some_argument();
            unsigned flags = random_below(3) ? 0 : random_below(5) ? FLAG_LINK : random_below(256);
            if (post(&own, some_number(), flags, arguments) < 0)
                break;
        }
    });
}

/* Calls that wait for ever, well posted. */
static void post_waits(void)
{
    struct timespec *hour = (struct timespec *)victim.scratch;
    (void)FAULTS({
        hour->tv_sec = 3600;
        hour->tv_nsec = 0;
        const long waits[][7] = {
            {SYS_read, victim.fds[0], (long)victim.scratch + 64, 8, 0, 0, 0},
            {SYS_nanosleep, (long)hour, 0, 0, 0, 0, 0},
            {SYS_poll, 0, 0, -1, 0, 0, 0},
            {SYS_futex, (long)victim.scratch + 128, 0, 0, 0, 0, 0},
            {SYS_wait4, -1, 0, 0, 0, 0, 0},
            {SYS_epoll_wait, victim.fds[3], (long)victim.scratch + 256, 4, -1, 0, 0},
        };
        for (unsigned i = random_below(10); i > 0; i--) {
            const long *wait = waits[random_below(6)];
            post(&own, wait[0], random_below(3) ? 0 : FLAG_LINK, wait + 1);
        }
    });
}

static void take_results(void)
{
    (void)FAULTS({
        for (int i = 0; i < ENTRIES; i++)
            if (own.entries[i].status == STATUS_DONE)
                own.entries[i].status = STATUS_FREE;
    });
}

/* Words, statuses and marks of anybody's entries. */
static void scribble(void)
{
    struct syspage *page = some_page();
    (void)FAULTS({
        for (unsigned i = random_below(200); i > 0; i--) {
            struct entry *entry = &page->entries[random_below(ENTRIES)];
            switch (random_below(6)) {
            case 0: entry->status = random_below(4); break;
            case 1: entry->status = (uint32_t)random_number(); break;
            case 2: entry->pass = (uint8_t)random_below(4); break;
            case 3: entry->flags = (uint8_t)random_below(4); break;
            case 4: entry->number = (uint16_t)some_number(); break;
            default: ((volatile uint64_t *)page->entries)[random_below(PAGE / 8)] = random_number(); break;
            }
        }
    });
}

/* Everything submitted at once, and every mark set. */
static void flood(void)
{
    struct syspage *page = some_page();
    unsigned what = random_below(3);
    (void)FAULTS({
        for (int i = 0; i < ENTRIES; i++) {
            page->entries[i].pass = (uint8_t)(what == 2 ? random_below(3) : what);
            page->entries[i].number = (uint16_t)(what == 1 ? SYS_getpid : SYS_read);
            page->entries[i].flags = (uint8_t)(what == 0);
            page->entries[i].arguments[0] = (uint64_t)victim.fds[0];
            page->entries[i].status = STATUS_SUBMITTED;
        }
    });
}

/* Pages that the kernel gave the process, also those of its trampoline, which nobody has told it of. */
static void scribble_over_the_kernels(void)
{
    char text[6000];
    uint64_t starts[16], ends[16];
    unsigned found = 0;
    int fd = open("/proc/self/maps", O_RDONLY);
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = 0;
    for (char *line = text; line && *line && found < 16; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (sscanf(line, "%lx-%lx", &starts[found], &ends[found]) == 2 && ends[found] - starts[found] <= 8 * PAGE) {
            size_t size = strcspn(line, "\n");
            found += size > 7 && memcmp(line + size - 7, "[ferry]", 7) == 0;
        }
    for (unsigned i = found ? random_below(60) : 0; i > 0; i--) {
        unsigned which = random_below(found);
        uint64_t words = (ends[which] - starts[which]) / 8;
        volatile uint64_t *word = (volatile uint64_t *)starts[which] + random_number() % words;
        /* Mostly where something is: the notification page, statuses, results. */
        if (random_below(2))
            word = (volatile uint64_t *)((uintptr_t)word & ~(uintptr_t)4095) + random_below(3);
        uint64_t value = random_below(2) ? random_below(3) : random_number();
        (void)FAULTS(*word = value);
    }
}

static void write_control(void)
{
    struct control *control = some_page()->control;
    (void)FAULTS(control->parked = 1);
    (void)FAULTS(control->head = (uint32_t)random_number());
    (void)FAULTS(((volatile uint64_t *)control)[512 + random_below(512)] = random_number());
    (void)FAULTS(((volatile uint64_t *)control)[513] = 1);
}

static void change_mappings(void)
{
    struct syspage *page = some_page();
    char *at = (char *)(random_below(4) ? (void *)page->entries : (void *)page->control);
    size_t size = (1 + random_below(2)) * PAGE;
    switch (random_below(8)) {
    case 0: munmap(at, size); break;
    case 1: mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); break;
    case 2: mprotect(at, size, (int)random_below(8)); break;
    case 3: mremap(at, PAGE, size, MREMAP_MAYMOVE); break;
    case 4: mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, victim.scratch + PAGE); break;
    case 5: madvise(at, size, random_below(2) ? MADV_DONTNEED : (int)random_below(30)); break;
    case 6: mprotect(at, size, PROT_READ | PROT_WRITE); break;
    default: mmap(at, size, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0); break;
    }
}

static void call_ferry(void)
{
    struct timespec *timeout = (struct timespec *)(victim.scratch + 512);
    (void)FAULTS({
        timeout->tv_sec = 0;
        timeout->tv_nsec = random_below(3000000);
    });
    switch (random_below(8)) {
    case 0: call(CALL_REGISTER, some_argument(), some_argument(), some_argument(), 0, 0, 0); break;
    case 1: call3(CALL_REGISTER, 1, (long)some_page()->entries, 0); break;
    case 2: call3(CALL_WAIT, some_argument(), some_argument(), (long)timeout); break;
    case 3: call3(CALL_WAIT, random_below(4), random_below(ENTRIES), (long)timeout); break;
    case 4: call3(CALL_WAIT, 0, 0, 0); break;
    case 5: call3(CALL_WAIT, random_below(4), random_below(ENTRIES), some_argument()); break;
    default:
        for (int i = 0; i < 20; i++)
            call3(CALL_CANCEL, random_below(70), 0, 0);
        break;
    }
}

static void register_again(void)
{
    struct syspage fresh;
    if (random_below(2))
        call3(CALL_UNREGISTER, 0, 0, 0);
    if (open_syspage(&fresh) == 0)
        own = fresh;
}

static void fork_or_exec(void)
{
    pid_t child;
    switch (random_below(5)) {
    case 0:
        child = fork();
        if (child == 0) {
            post_garbage();
            call3(CALL_WAIT, 0, 0, 0);
            call3(SYS_exit_group, 0, 0, 0);
        }
        break;
    case 1:
        child = fork();
        if (child == 0) {
            register_again();
            post_waits();
            call3(SYS_exit_group, 0, 0, 0);
        }
        break;
    case 2:
        child = vfork();
        if (child == 0) {
            execl("/proc/self/exe", "fuzz", "--nothing", (char *)NULL);
            _exit(1);
        }
        break;
    case 3:
        /* Mostly not: it ends the victim. */
        if (random_below(20) == 0)
            execl("/proc/self/exe", "fuzz", "--nothing", (char *)NULL);
        child = -1;
        break;
    default: child = fork(); break;
    }
    if (child > 0 && random_below(2))
        waitpid(child, NULL, random_below(2) ? 0 : WNOHANG);
}

static void trap_garbage(void)
{
    struct itimerval patience = {{0, 0}, {0, 2000 + (long)random_below(10000)}};
    long number = some_number(), first = some_argument();
    setitimer(ITIMER_REAL, &patience, NULL);
    if (number == SYS_exit_group && random_below(8))
        return;
    if (number == SYS_clone)
        first &= ~0x100L; /* Two on one stack is our own mischief, not the kernel's. */
    call(number, first, some_argument(), some_argument(), some_argument(), some_argument(), some_argument());
}

static void *misbehave(void *argument);

static void start_thread(uintptr_t which)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_create(&thread, &attributes, misbehave, (void *)which);
}

static void *misbehave(void *argument)
{
    uintptr_t which = (uintptr_t)argument;
    random_state = mix(victim.seed ^ (uint64_t)which << 40);
    /* The others post by the trampoline, if there is one. */
    if (random_below(4) && open_syspage(&own) == 0)
        victim.pages[which % THREADS_MAX] = &own;
    for (unsigned left = 20 + random_below(random_below(3) ? 200 : 4000); left > 0; left--) {
        switch (random_below(24)) {
        case 0: case 1: case 2: case 3: case 4: post_garbage(); break;
        case 5: case 6: post_waits(); break;
        case 7: case 8: take_results(); break;
        case 9: case 10: scribble(); break;
        case 11: flood(); break;
        case 12: if (random_below(2)) write_control(); else scribble_over_the_kernels(); break;
        case 13: change_mappings(); break;
        case 14: case 15: case 16: call_ferry(); break;
        case 17: register_again(); break;
        case 18: if (random_below(4) == 0) fork_or_exec(); break;
        case 19: case 20: trap_garbage(); break;
        case 21: call3(SYS_tgkill, getpid(), (long)getpid() + (long)random_below(8), SIGUSR1); break;
        case 22: if (random_below(10) == 0) start_thread(random_below(1000)); break;
        default: sched_yield(); break;
        }
    }
    victim.pages[which % THREADS_MAX] = NULL;
    switch (random_below(6)) {
    case 0: call3(SYS_exit_group, 0, 0, 0); break;
    case 1: call3(CALL_UNREGISTER, 0, 0, 0); break;
    case 2: kill(getpid(), SIGKILL); break;
    default: break;
    }
    return NULL;
}

static void promise(int is_kept, const char *what, long value)
{
    if (!is_kept) {
        note(what, value);
        call3(SYS_exit_group, 1, 0, 0);
    }
}

/* What a victim is promised, whatever the others do: the errors of registration, and a control page that it
 * cannot write. */
static void check_promises(void)
{
    char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *constant = map_page(PROT_READ), *gone = map_page(PROT_READ);
    char *common = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    munmap(gone, PAGE);
    const struct {
        long version, address, flags, expected;
    } wrong[] = {
        {0, (long)pages, 0, -EINVAL},      {2, (long)pages, 0, -EINVAL},      {1, (long)pages + 64, 0, -EINVAL},
        {1, (long)pages, 1, -EINVAL},      {1, (long)gone, 0, -EFAULT},       {1, 0, 0, -EFAULT},
        {1, (long)constant, 0, -EACCES},   {1, (long)common, 0, -EACCES},     {1, (long)0xffff800000000000, 0, -EFAULT},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        long got = call3(CALL_REGISTER, wrong[i].version, wrong[i].address, wrong[i].flags);
        promise(got == wrong[i].expected, "registering wrongly answers", got * 1000 - (long)i);
    }
    long control = call3(CALL_REGISTER, 1, (long)pages, 0);
    promise(control > 0, "registering answers", control);
    long again = call3(CALL_REGISTER, 1, (long)pages + PAGE, 0);
    promise(again == -EBUSY, "registering twice answers", again);
    volatile uint32_t *words = (volatile uint32_t *)control;
    promise(words[0] == 1 && words[3] == ENTRIES, "the control page says", words[0]);
    for (int round = 0; round < 3; round++) {
        promise(FAULTS(words[2] = 7), "the control page can be written after", round);
        promise(FAULTS(words[32] = 7), "the head can be written after", round);
        if (round == 0)
            mprotect((void *)control, PAGE, PROT_READ | PROT_WRITE);
        if (round == 1)
            mprotect((void *)control, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    }
    promise(!FAULTS(words[PAGE / 4 + 2] = 1), "the notification page cannot be written", 0);
    call3(CALL_UNREGISTER, 0, 0, 0);
    promise(call3(CALL_WAIT, 0, 0, 0) == -ENOENT, "there is a syspage after unregistering", control);
    munmap(pages, 2 * PAGE);
    munmap(constant, PAGE);
    munmap(common, PAGE);
}

static void limit(int resource, unsigned long most)
{
    struct rlimit both = {most, most};
    setrlimit(resource, &both);
}

static void open_things(void)
{
    int ends[2];
    victim.scratch = mmap(NULL, SCRATCH_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(victim.scratch + 2 * PAGE, PAGE);
    memset(victim.scratch, 0, 2 * PAGE);
    strcpy(victim.scratch + 1024, "name");
    strcpy(victim.scratch + 1088, "/proc/self/mem");
    strcpy(victim.scratch + PAGE - 3, "ab/../c");
    syscall(SYS_close_range, 3, ~0u, 0);
    if (pipe2(ends, O_CLOEXEC) == -1)
        fail("victim: pipe", errno);
    victim.fds[0] = ends[0];
    victim.fds[1] = ends[1];
    victim.fds[2] = open("file", O_RDWR | O_CREAT, 0600);
    victim.fds[3] = (int)syscall(SYS_epoll_create1, 0);
    victim.fds[4] = open("/dev/zero", O_RDWR);
    victim.fds[5] = open("/proc/self/ferry", O_RDONLY);
    victim.fds[6] = open(".", O_RDONLY);
    victim.fds[7] = 99;
}

/* The identity, limits and handlers of a victim. */
static void become_victim(uint64_t seed, unsigned user)
{
    struct sigaction faults = {.sa_handler = on_fault, .sa_flags = SA_NODEFER},
                     others = {.sa_handler = on_signal, .sa_flags = (int)(seed & 1) ? SA_RESTART : 0};
    /* What all share is not for victims, whose buffers may lie anywhere. */
    munmap(shared, sizeof *shared);
    shared = map_page(PROT_READ | PROT_WRITE);
    victim.seed = seed;
    random_state = mix(seed);
    limit(RLIMIT_NPROC, 40);
    limit(RLIMIT_AS, 256UL << 20);
    limit(RLIMIT_FSIZE, 4UL << 20);
    limit(RLIMIT_NOFILE, 200);
    limit(RLIMIT_CORE, 0);
    if (syscall(SYS_setresgid, user, user, user) == -1 || syscall(SYS_setresuid, user, user, user) == -1)
        fail("victim: becoming an ordinary user", errno);
    open_things();
    sigaction(SIGSEGV, &faults, NULL);
    sigaction(SIGBUS, &faults, NULL);
    sigaction(SIGUSR1, &others, NULL);
    sigaction(SIGALRM, &others, NULL);
    sigaction(SIGPIPE, &others, NULL);
}

__attribute__((noreturn)) static void be_victim(uint64_t seed, unsigned user)
{
    become_victim(seed, user);
    /* Nothing of what is written by mistake shall be read by somebody. */
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    for (unsigned i = 1 + random_below(THREADS_MAX - 1); i > 1; i--)
        start_thread(i - 1);
    misbehave((void *)0);
    call3(SYS_exit, 0, 0, 0);
    _exit(0);
}

#endif
