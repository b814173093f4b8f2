/* Address spaces: mmap munmap mprotect mremap madvise brk, anonymous and file-backed, private and
 * shared, copy-on-write, guard pages, growing stacks, and the faults of what is not mapped. */
#include "harness.h"
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define PAGE 4096UL
#define RW (PROT_READ | PROT_WRITE)

static sigjmp_buf fault_return;
static volatile siginfo_t fault_information;

static void on_fault(int number, siginfo_t *information, void *context)
{
    (void)context;
    fault_information = *information;
    siglongjmp(fault_return, number);
}

/* The signal that touching this byte raises; 0 if none. */
static int touch(volatile char *address, int writing)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    CHECK_OK(sigaction(SIGSEGV, &action, NULL));
    CHECK_OK(sigaction(SIGBUS, &action, NULL));
    int number = sigsetjmp(fault_return, 1);
    if (number == 0) {
        if (writing)
            *address = 1;
        else
            (void)*address;
    }
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    return number;
}

static char *map(size_t pages, int protection, int flags)
{
    char *address = mmap(NULL, pages * PAGE, protection, flags | MAP_ANONYMOUS, -1, 0);
    CHECK(address != MAP_FAILED);
    return address;
}

CASE(anonymous_memory_is_zero)
{
    char *memory = map(64, RW, MAP_PRIVATE);
    for (size_t i = 0; i < 64 * PAGE; i++)
        CHECK_EQ(memory[i], 0);
    memset(memory, 7, 64 * PAGE);
    CHECK_OK(munmap(memory, 64 * PAGE));
    CHECK_EQ(touch(memory, 0), SIGSEGV);
    CHECK_EQ(fault_information.si_code, SEGV_MAPERR);
    CHECK(fault_information.si_addr == memory);
    memory = map(64, RW, MAP_PRIVATE);
    for (size_t i = 0; i < 64 * PAGE; i++)
        CHECK_EQ(memory[i], 0);
}

CASE(mmap_errors)
{
    scratch();
    int fd = file_with("f", "0123456789", 10);
    int reader = open("f", O_RDONLY), writer = open("f", O_WRONLY);
    CHECK_ERRNO((long)mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), EINVAL);
    CHECK_ERRNO((long)mmap(NULL, PAGE, PROT_READ, MAP_ANONYMOUS, -1, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_mmap, NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 1), EINVAL);
    CHECK_ERRNO((long)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, -1, 0), EBADF);
    CHECK_ERRNO((long)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, writer, 0), EACCES);
    CHECK_ERRNO((long)mmap(NULL, PAGE, RW, MAP_SHARED, reader, 0), EACCES);
    CHECK_ERRNO(syscall(SYS_mmap, NULL, ~0UL, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), ENOMEM);
    CHECK_ERRNO(syscall(SYS_mmap, NULL, 1UL << 60, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                ENOMEM);
    CHECK_ERRNO(syscall(SYS_mmap, 123, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                        0), EINVAL);
    CHECK_ERRNO(syscall(SYS_mmap, BAD_KERNEL, PAGE, PROT_READ,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), ENOMEM);
    int ends[2];
    CHECK_OK(pipe(ends));
    CHECK_ERRNO((long)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, ends[0], 0), ENODEV);
    int directory = open(".", O_RDONLY);
    CHECK_ERRNO((long)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, directory, 0), ENODEV);
    CHECK((long)mmap(NULL, PAGE, RW, MAP_PRIVATE, reader, 0) != -1);
}

CASE(hint_and_fixed)
{
    char *memory = map(4, RW, MAP_PRIVATE);
    CHECK_OK(munmap(memory, 4 * PAGE));
    char *again = mmap(memory, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(again == memory); /* A free hint is taken, */
    char *other = mmap(memory, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(other != memory && other != MAP_FAILED); /* an occupied one is not. */
    memory[0] = 5;
    again = mmap(memory, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(again == memory);
    CHECK_EQ(memory[0], 0);
    CHECK_ERRNO((long)mmap(memory, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | 0x100000 /* NOREPLACE */,
                           -1, 0), EEXIST);
}

CASE(munmap_splits)
{
    char *memory = map(5, RW, MAP_PRIVATE);
    memset(memory, 1, 5 * PAGE);
    CHECK_OK(munmap(memory + 2 * PAGE, PAGE));
    CHECK_EQ(touch(memory + PAGE, 1), 0);
    CHECK_EQ(touch(memory + 2 * PAGE, 1), SIGSEGV);
    CHECK_EQ(touch(memory + 3 * PAGE, 0), 0);
    CHECK_OK(munmap(memory + 2 * PAGE, PAGE)); /* Nothing there is no error. */
    CHECK_ERRNO(munmap(memory + 1, PAGE), EINVAL);
    CHECK_ERRNO(munmap(memory, 0), EINVAL);
    CHECK_OK(munmap(memory, 1)); /* The length is rounded up. */
    CHECK_EQ(touch(memory, 0), SIGSEGV);
    CHECK_ERRNO(syscall(SYS_munmap, BAD_KERNEL, PAGE), EINVAL);
    CHECK_ERRNO(syscall(SYS_munmap, memory, ~0UL - 4095), EINVAL);
    CHECK_EQ(memory[4 * PAGE], 1);
}

CASE(mprotect_changes_rights)
{
    char *memory = map(3, RW, MAP_PRIVATE);
    memset(memory, 9, 3 * PAGE);
    CHECK_OK(mprotect(memory + PAGE, PAGE, PROT_READ));
    CHECK_EQ(touch(memory, 1), 0);
    CHECK_EQ(touch(memory + PAGE, 0), 0);
    CHECK_EQ(touch(memory + PAGE, 1), SIGSEGV);
    CHECK_EQ(fault_information.si_code, SEGV_ACCERR);
    CHECK(fault_information.si_addr == memory + PAGE);
    CHECK_EQ(touch(memory + 2 * PAGE, 1), 0);
    CHECK_OK(mprotect(memory, 3 * PAGE, PROT_NONE));
    CHECK_EQ(touch(memory + 2 * PAGE, 0), SIGSEGV);
    CHECK_EQ(fault_information.si_code, SEGV_ACCERR);
    CHECK_OK(mprotect(memory, 3 * PAGE, RW));
    CHECK_EQ(memory[PAGE], 9);
    CHECK_EQ(touch(memory + PAGE, 1), 0);
}

CASE(mprotect_errors)
{
    scratch();
    char *memory = map(3, RW, MAP_PRIVATE);
    close(file_with("f", "x", 1));
    int reader = open("f", O_RDONLY);
    CHECK_ERRNO(syscall(SYS_mprotect, memory + 1, PAGE, PROT_READ), EINVAL);
    CHECK_OK(mprotect(memory, 0, PROT_READ));
    CHECK_OK(munmap(memory + PAGE, PAGE));
    CHECK_ERRNO(mprotect(memory, 3 * PAGE, PROT_READ), ENOMEM);
    CHECK_ERRNO(syscall(SYS_mprotect, BAD_KERNEL, PAGE, PROT_READ), ENOMEM);
    CHECK_ERRNO(syscall(SYS_mprotect, memory, PAGE, 0x40000000), EINVAL);
    char *shared = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, reader, 0);
    CHECK(shared != MAP_FAILED);
    CHECK_ERRNO(mprotect(shared, PAGE, RW), EACCES);
}

CASE(no_execute)
{
    char *memory = map(1, RW, MAP_PRIVATE);
    memory[0] = (char)0xc3; /* ret */
    void (*code)(void);
    memcpy(&code, &memory, sizeof code);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    CHECK_OK(sigaction(SIGSEGV, &action, NULL));
    int number = sigsetjmp(fault_return, 1);
    if (number == 0)
        code();
    CHECK_EQ(number, SIGSEGV);
    CHECK_EQ(fault_information.si_code, SEGV_ACCERR);
    CHECK(fault_information.si_addr == memory);
    CHECK_OK(mprotect(memory, PAGE, PROT_READ | PROT_EXEC));
    code();
    CHECK_EQ(touch(memory, 1), SIGSEGV);
}

CASE(prot_none_is_efault_for_the_kernel)
{
    char *memory = map(2, PROT_NONE, MAP_PRIVATE);
    int ends[2];
    CHECK_OK(pipe(ends));
    CHECK_ERRNO(write(ends[1], memory, 1), EFAULT);
    CHECK_OK(mprotect(memory, PAGE, PROT_READ));
    CHECK_EQ(write(ends[1], memory, 1), 1);
    CHECK_ERRNO(read(ends[0], memory, 1), EFAULT);
    /* A transfer that crosses into what is not there says how far it came, or EFAULT. */
    ssize_t got = write(ends[1], memory + PAGE - 8, 16);
    CHECK(got == 8 || (got == -1 && errno == EFAULT));
}

CASE(copy_on_write_after_fork)
{
    char *memory = map(16, RW, MAP_PRIVATE);
    memset(memory, 'p', 16 * PAGE);
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (int i = 0; i < 16; i += 2)
            memory[i * PAGE] = 'c';
        for (int i = 0; i < 16; i++)
            CHECK_EQ(memory[i * PAGE], i % 2 ? 'p' : 'c');
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    for (int i = 0; i < 16; i++)
        CHECK_EQ(memory[i * PAGE], 'p');
    child = fork_or_fail();
    if (child == 0) {
        sleep_ms(20);
        CHECK_EQ(memory[5], 'p');
        _exit(0);
    }
    memory[5] = 'n';
    CHECK_EXITED(child, 0);
    CHECK_EQ(memory[5], 'n');
}

CASE(kernel_writes_respect_copy_on_write)
{
    char *memory = map(1, RW, MAP_PRIVATE);
    int ends[2];
    CHECK_OK(pipe(ends));
    memcpy(memory, "old", 4);
    CHECK_EQ(write(ends[1], "new", 4), 4);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_EQ(read(ends[0], memory, 4), 4);
        CHECK_STR(memory, "new");
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_STR(memory, "old");
}

CASE(kernel_writes_to_untouched_pages)
{
    char *memory = map(40, RW, MAP_PRIVATE);
    int zero = open("/dev/zero", O_RDONLY), random = open("/dev/urandom", O_RDONLY);
    CHECK_EQ(read(zero, memory, 20 * PAGE), 20 * PAGE);
    CHECK_EQ(read(random, memory + 20 * PAGE, 20 * PAGE), 20 * PAGE);
    CHECK_EQ(memory[20 * PAGE - 1], 0);
}

CASE(shared_anonymous_survives_fork)
{
    volatile char *memory = map(4, RW, MAP_SHARED);
    pid_t child = fork_or_fail();
    if (child == 0) {
        memory[0] = 1;
        memory[3 * PAGE] = 2;
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(memory[0], 1);
    CHECK_EQ(memory[3 * PAGE], 2);
}

CASE(file_private_map)
{
    char buffer[16];
    scratch();
    int fd = file_with("f", "0123456789", 10);
    char *memory = mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 0);
    CHECK(memory != MAP_FAILED);
    CHECK(memcmp(memory, "0123456789\0\0", 12) == 0);
    CHECK_EQ(memory[PAGE - 1], 0);
    memory[0] = 'X';
    slurp("f", buffer, sizeof buffer);
    CHECK_STR(buffer, "0123456789");
    close(fd);
    CHECK_EQ(memory[9], '9');
}

CASE(file_shared_map_is_the_file)
{
    char buffer[16];
    scratch();
    int fd = file_with("f", "0123456789", 10);
    char *memory = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
    char *second = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED && second != MAP_FAILED);
    memory[0] = 'X';
    CHECK_EQ(second[0], 'X');
    CHECK_EQ(pread(fd, buffer, 16, 0), 10);
    CHECK_EQ(buffer[0], 'X');
    CHECK_EQ(pwrite(fd, "Y", 1, 3), 1);
    CHECK_EQ(memory[3], 'Y');
    pid_t child = fork_or_fail();
    if (child == 0) {
        memory[5] = 'Z';
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(memory[5], 'Z');
    CHECK_OK(msync(memory, PAGE, MS_SYNC));
    memory[20] = 'b'; /* Beyond the end of the file, within the page: not the file's. */
    CHECK_EQ(slurp("f", buffer, sizeof buffer), 10);
    CHECK_STR(buffer, "X12Y4Z6789");
}

CASE(file_map_at_offset_and_past_the_end)
{
    static char content[3 * 4096];
    scratch();
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (char)('a' + i / PAGE);
    int fd = file_with("f", content, 2 * PAGE + 10);
    char *memory = mmap(NULL, 4 * PAGE, PROT_READ, MAP_SHARED, fd, (off_t)PAGE);
    CHECK(memory != MAP_FAILED);
    CHECK_EQ(memory[0], 'b');
    CHECK_EQ(memory[PAGE + 9], 'c');
    CHECK_EQ(memory[PAGE + 10], 0);
    CHECK_EQ(touch(memory + 2 * PAGE, 0), SIGBUS);
    CHECK_EQ(fault_information.si_code, BUS_ADRERR);
    CHECK_ERRNO(write(fd, memory + 2 * PAGE, 1), EFAULT);
    CHECK_OK(ftruncate(fd, (off_t)PAGE));
    CHECK_EQ(touch(memory, 0), SIGBUS);
    CHECK_OK(ftruncate(fd, (off_t)(4 * PAGE)));
    CHECK_EQ(touch(memory, 0), 0);
    CHECK_EQ(memory[0], 0);
}

CASE(mremap_grows_and_moves)
{
    char *memory = map(8, RW, MAP_PRIVATE);
    memset(memory, 'm', 8 * PAGE);
    CHECK_OK(munmap(memory + 2 * PAGE, 6 * PAGE));
    CHECK(mremap(memory, 2 * PAGE, 4 * PAGE, 0) == memory); /* There is room. */
    CHECK_EQ(memory[2 * PAGE], 0);
    memory[3 * PAGE] = 'n';
    CHECK(mmap(memory + 4 * PAGE, PAGE, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
          memory + 4 * PAGE);
    CHECK_ERRNO((long)mremap(memory, 4 * PAGE, 8 * PAGE, 0), ENOMEM);
    char *moved = mremap(memory, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && moved != memory);
    CHECK_EQ(moved[0], 'm');
    CHECK_EQ(moved[3 * PAGE], 'n');
    CHECK_EQ(moved[7 * PAGE], 0);
    CHECK_EQ(touch(memory, 0), SIGSEGV);
    CHECK(mremap(moved, 8 * PAGE, PAGE, 0) == moved);
    CHECK_EQ(touch(moved + PAGE, 0), SIGSEGV);
}

CASE(mremap_fixed_and_errors)
{
    char *from = map(2, RW, MAP_PRIVATE), *to = map(4, RW, MAP_PRIVATE);
    from[0] = 'f';
    to[0] = 't';
    CHECK(mremap(from, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    CHECK_EQ(to[0], 'f');
    CHECK_EQ(touch(from, 0), SIGSEGV);
    CHECK_ERRNO((long)mremap(from, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
    CHECK_ERRNO((long)mremap(to + 1, PAGE, PAGE, 0), EINVAL);
    CHECK_ERRNO((long)mremap(to, PAGE, 0, 0), EINVAL);
    CHECK_ERRNO((long)mremap(to, PAGE, PAGE, MREMAP_FIXED, from), EINVAL);
    CHECK_ERRNO((long)mremap(to, PAGE, PAGE, 0x80), EINVAL);
    CHECK_ERRNO((long)mremap(to, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + PAGE),
                EINVAL); /* They overlap. */
}

CASE(mremap_of_shared_memory_keeps_it_shared)
{
    volatile char *memory = map(1, RW, MAP_SHARED);
    char *blocker = mmap((char *)memory + PAGE, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(blocker != MAP_FAILED);
    volatile char *moved = mremap((char *)memory, PAGE, PAGE, MREMAP_MAYMOVE);
    CHECK(moved == memory);
    pid_t child = fork_or_fail();
    if (child == 0) {
        moved[1] = 4;
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(moved[1], 4);
}

CASE(madvise_dontneed_zeroes)
{
    char *memory = map(3, RW, MAP_PRIVATE);
    memset(memory, 8, 3 * PAGE);
    CHECK_OK(madvise(memory + PAGE, PAGE, MADV_DONTNEED));
    CHECK_EQ(memory[0], 8);
    CHECK_EQ(memory[PAGE], 0);
    CHECK_EQ(memory[2 * PAGE], 8);
    CHECK_OK(madvise(memory, PAGE, MADV_WILLNEED));
    CHECK_OK(madvise(memory, PAGE, MADV_NORMAL));
    CHECK_ERRNO(madvise(memory + 1, PAGE, MADV_NORMAL), EINVAL);
    CHECK_ERRNO(madvise(memory, PAGE, 999), EINVAL);
    CHECK_OK(munmap(memory + PAGE, PAGE));
    CHECK_ERRNO(madvise(memory, 3 * PAGE, MADV_DONTNEED), ENOMEM);
    CHECK_EQ(memory[0], 0);
    CHECK_EQ(memory[2 * PAGE], 0);
}

CASE(madvise_dontneed_of_a_file_rereads_it)
{
    scratch();
    int fd = file_with("f", "0123456789", 10);
    char *memory = mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 0);
    memory[0] = 'X';
    CHECK_OK(madvise(memory, PAGE, MADV_DONTNEED));
    CHECK_EQ(memory[0], '0');
}

CASE(brk_moves)
{
    char *start = (char *)syscall(SYS_brk, 0);
    CHECK((long)start > 0);
    char *end = (char *)syscall(SYS_brk, start + 10 * PAGE);
    CHECK(end == start + 10 * PAGE);
    for (size_t i = 0; i < 10 * PAGE; i++)
        CHECK_EQ(start[i], 0);
    memset(start, 3, 10 * PAGE);
    CHECK((char *)syscall(SYS_brk, start + 100) == start + 100);
    CHECK_EQ(start[99], 3);
    char *page = (char *)(((unsigned long)start + 100 + PAGE - 1) & ~(PAGE - 1));
    CHECK_EQ(touch(page, 0), SIGSEGV);
    /* What it cannot do it does not do, and says where the end is. */
    CHECK((char *)syscall(SYS_brk, BAD_LOW) == start + 100);
    CHECK((char *)syscall(SYS_brk, BAD_KERNEL) == start + 100);
    CHECK((char *)syscall(SYS_brk, start + 10 * PAGE) == start + 10 * PAGE);
    CHECK_EQ(page[0], 0);
}

static int stack_use(int depth)
{
    volatile char block[4096];
    block[0] = (char)depth;
    block[4095] = 1;
    if (depth == 0)
        return 0;
    return stack_use(depth - 1) + block[4095];
}

CASE(stack_grows_by_use)
{
    CHECK_EQ(stack_use(1500), 1500); /* 6 MiB of the usual 8. */
}

CASE(stack_overflow_is_sigsegv)
{
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(stack_use(10000000) & 1);
    CHECK_KILLED(child, SIGSEGV);
}

CASE(stack_grows_for_the_kernel_too)
{
    int zero = open("/dev/zero", O_RDONLY);
    volatile char *below = (volatile char *)__builtin_frame_address(0) - 40 * PAGE;
    CHECK_EQ(syscall(SYS_read, zero, below, 100), 100);
}

CASE(map_growsdown_and_guard)
{
    char *memory = map(3, RW, MAP_PRIVATE);
    CHECK_OK(mprotect(memory, PAGE, PROT_NONE));
    CHECK_EQ(touch(memory + PAGE, 1), 0);
    CHECK_EQ(touch(memory + PAGE - 1, 1), SIGSEGV);
    CHECK(fault_information.si_addr == memory + PAGE - 1);
}

CASE(fault_at_page_boundary_resumes)
{
    /* An access that spans two untouched pages. */
    char *memory = map(2, RW, MAP_PRIVATE);
    volatile uint64_t *word = (uint64_t *)(memory + PAGE - 4);
    *word = 0x1122334455667788;
    CHECK_EQ(*word, 0x1122334455667788);
}

CASE(map_populate_and_noreserve)
{
    char *memory = map(16, RW, MAP_PRIVATE | MAP_POPULATE);
    CHECK_EQ(memory[15 * PAGE], 0);
    memory = mmap(NULL, 1UL << 34, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED);
    memory[0] = memory[(1UL << 34) - 1] = memory[1UL << 33] = 1;
    CHECK_OK(munmap(memory, 1UL << 34));
}

CASE(many_areas)
{
    enum { AREAS = 500 };
    char *memory = map(2 * AREAS, RW, MAP_PRIVATE);
    for (int i = 0; i < AREAS; i++)
        CHECK_OK(mprotect(memory + 2 * i * PAGE, PAGE, PROT_READ));
    for (int i = 0; i < AREAS; i++) {
        CHECK_EQ(memory[2 * i * PAGE], 0);
        memory[(2 * i + 1) * PAGE] = 1;
    }
    CHECK_EQ(touch(memory + 100 * PAGE, 1), SIGSEGV);
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_EQ(memory[101 * PAGE], 1);
        CHECK_OK(mprotect(memory, 2 * AREAS * PAGE, RW));
        memory[100 * PAGE] = 1;
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_OK(munmap(memory, 2 * AREAS * PAGE));
    CHECK_EQ(touch(memory + 101 * PAGE, 0), SIGSEGV);
}

CASE(address_space_limit)
{
    struct rlimit limit = {64 << 20, 64 << 20};
    CHECK_OK(setrlimit(RLIMIT_AS, &limit));
    CHECK_ERRNO((long)mmap(NULL, 128 << 20, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), ENOMEM);
    CHECK((long)mmap(NULL, 1 << 20, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != -1);
}

CASE(msync_and_mincore)
{
    unsigned char resident[3];
    char *memory = map(3, RW, MAP_PRIVATE);
    memory[PAGE] = 1;
    CHECK_OK(msync(memory, 3 * PAGE, MS_ASYNC));
    CHECK_ERRNO(msync(memory, PAGE, MS_ASYNC | MS_SYNC), EINVAL);
    CHECK_ERRNO(msync(memory + 1, PAGE, MS_SYNC), EINVAL);
    CHECK_OK(mincore(memory, 3 * PAGE, resident));
    CHECK(resident[1] & 1);
    CHECK_ERRNO(syscall(SYS_mincore, memory, 3 * PAGE, BAD_LOW), EFAULT);
    CHECK_OK(munmap(memory + PAGE, PAGE));
    CHECK_ERRNO(msync(memory, 3 * PAGE, MS_SYNC), ENOMEM);
    CHECK_ERRNO(mincore(memory, 3 * PAGE, resident), ENOMEM);
    CHECK_ERRNO(mincore(memory + 1, PAGE, resident), EINVAL);
}

CASE(addresses_are_random)
{
    /* Two forks of one image share their layout; two images differ. Needs /proc/self/exe. */
    char first[40] = {0}, second[40] = {0};
    int ends[2];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(pipe(ends));
        pid_t child = fork_or_fail();
        if (child == 0) {
            dup2(ends[1], 1);
            execl("/proc/self/exe", "memory", "--no-fork", "print_stack_address", (char *)NULL);
            _exit(1);
        }
        close(ends[1]);
        CHECK_EXITED(child, 0);
        CHECK(read(ends[0], i ? second : first, 39) > 0);
    }
    CHECK(strcmp(first, second) != 0);
}

CASE(print_stack_address)
{
    char text[40];
    snprintf(text, sizeof text, "# stack at %p\n", (void *)&text);
    harness_put(text);
}

CASE(locks_past_the_end_of_numbers)
{
    char *memory = map(2, RW, MAP_PRIVATE);
    CHECK_OK(mlock(memory, 0));
    /* The length, rounded up, is 0 again. */
    CHECK_OK(syscall(SYS_mlock, memory, ~0UL));
    CHECK_OK(syscall(SYS_munlock, memory, ~0UL));
    CHECK_ERRNO(syscall(SYS_mlock, memory, -PAGE), EINVAL);
    CHECK_ERRNO(syscall(SYS_munlock, memory, -PAGE), EINVAL);
    CHECK_ERRNO(syscall(SYS_mlock2, memory, -PAGE, 0), EINVAL);
    CHECK_OK(munmap(memory + PAGE, PAGE));
    CHECK_ERRNO(mlock(memory, 2 * PAGE), ENOMEM);
    CHECK_ERRNO(munlock(memory, 2 * PAGE), ENOMEM);
}

CASE(mincore_goes_area_by_area)
{
    unsigned char resident[3] = {7, 7, 7};
    char *memory = map(3, RW, MAP_PRIVATE);
    memory[0] = 1;
    CHECK_OK(munmap(memory + PAGE, PAGE));
    CHECK_ERRNO(syscall(SYS_mincore, memory, 3 * PAGE, resident), ENOMEM);
    CHECK_EQ(resident[0], 1);
    CHECK_EQ(resident[1], 7);
    CHECK_ERRNO(syscall(SYS_mincore, memory, 3 * PAGE, BAD_LOW), EFAULT);
    CHECK_ERRNO(syscall(SYS_mincore, memory + PAGE, PAGE, BAD_LOW), ENOMEM);
    CHECK_OK(syscall(SYS_mincore, memory, 0, resident));
}

CASE(populating_needs_the_right)
{
    enum { READ = 22, WRITE = 23 };
    char *memory = map(3, RW, MAP_PRIVATE);
    CHECK_OK(mprotect(memory + PAGE, PAGE, PROT_WRITE));
    CHECK_ERRNO(madvise(memory, 3 * PAGE, READ), EINVAL);
    CHECK_OK(madvise(memory, 3 * PAGE, WRITE));
    CHECK_OK(mprotect(memory + PAGE, PAGE, PROT_NONE));
    CHECK_ERRNO(madvise(memory, 3 * PAGE, READ), EINVAL);
    CHECK_ERRNO(madvise(memory, 3 * PAGE, WRITE), EINVAL);
    CHECK_OK(mprotect(memory + PAGE, PAGE, PROT_READ));
    CHECK_OK(madvise(memory, 3 * PAGE, READ));
    CHECK_ERRNO(madvise(memory, 3 * PAGE, WRITE), EINVAL);
    CHECK_OK(munmap(memory, PAGE));
    CHECK_ERRNO(madvise(memory, 3 * PAGE, WRITE), ENOMEM);
}

CASE(mmap_looks_at_the_place_first)
{
    scratch();
    int fd = file_with("f", "x", 1);
    char *memory = map(1, RW, MAP_PRIVATE);
    /* Offsets matter to files alone. */
    CHECK(syscall(SYS_mmap, NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, -PAGE) != -1);
    CHECK_ERRNO(syscall(SYS_mmap, NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, fd, -PAGE), EOVERFLOW);
    CHECK_ERRNO(syscall(SYS_mmap, NULL, 1UL << 60, PROT_READ, MAP_PRIVATE, fd, -PAGE), ENOMEM);
    CHECK_ERRNO(syscall(SYS_mmap, NULL, 1UL << 60, PROT_READ, MAP_ANONYMOUS, -1, 0), ENOMEM);
    CHECK_ERRNO(syscall(SYS_mmap, 123, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, -PAGE), EINVAL);
    CHECK_ERRNO(syscall(SYS_mmap, memory, PAGE, PROT_READ, MAP_PRIVATE | 0x100000, fd, -PAGE), EEXIST);
}
