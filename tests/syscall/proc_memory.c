/* What /proc tells of the memory of a process and of what it reads and writes. */
#include "harness.h"
#include <elf.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#define PAGE 4096UL

static char text[1 << 20];

/* The number behind a name in a text; -1 without the name. */
static long field(const char *from, const char *name)
{
    const char *at = strstr(from, name);
    return at ? atol(at + strlen(name)) : -1;
}

CASE(the_auxiliary_vector)
{
    size_t length = slurp("/proc/self/auxv", text, sizeof text);
    unsigned long *word = (unsigned long *)text;
    CHECK(length >= 160 && length % 16 == 0);
    int seen = 0;
    for (; word[0] != AT_NULL; word += 2) {
        if (word[0] == AT_PAGESZ || word[0] == AT_RANDOM || word[0] == AT_PHDR) {
            CHECK_EQ(word[1], getauxval(word[0]));
            seen++;
        }
        CHECK((char *)word < text + length);
    }
    CHECK_EQ(seen, 3);
}

CASE(sizes_of_areas)
{
    char head[64];
    char *at = mmap(0, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    CHECK_OK(mprotect(at, 4 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC));
    memset(at, 1, 3 * PAGE);
    slurp("/proc/self/smaps", text, sizeof text);
    snprintf(head, sizeof head, "%lx-", (unsigned long)at);
    char *area = strstr(text, head);
    CHECK(area);
    CHECK_EQ(field(area, "\nSize:"), 16);
    /* A kernel may bring in the page behind those that are touched in a row. */
    long resident = field(area, "\nRss:");
    CHECK(resident == 12 || resident == 16);
    CHECK_EQ(field(area, "\nAnonymous:"), resident);
    long dirty = field(area, "\nPrivate_Dirty:");
    CHECK(dirty >= 12 && dirty <= resident);
    CHECK_EQ(field(area, "\nKernelPageSize:"), 4);
    CHECK(strstr(area, "\nVmFlags: rd wr ex mr mw me"));
    slurp("/proc/self/smaps_rollup", text, sizeof text);
    CHECK(strstr(text, "[rollup]\nRss:"));
    CHECK(field(text, "\nAnonymous:") >= 12);
}

CASE(a_word_for_each_page)
{
    uint64_t words[4] = {0, 0, 0, 0};
    char *at = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = open("/proc/self/pagemap", O_RDONLY);
    CHECK_OK(fd);
    at[PAGE] = 1;
    off_t offset = (off_t)((uintptr_t)at / PAGE * 8);
    CHECK_EQ(pread(fd, words, sizeof words, offset), (long)sizeof words);
    CHECK_EQ(words[0] >> 63, 0);
    CHECK_EQ(words[1] >> 63, 1);
    CHECK_EQ(words[2] >> 63, 0);
    CHECK_EQ(words[1] >> 61 & 1, 0);
    CHECK_ERRNO(pread(fd, words, 7, offset), EINVAL);
    CHECK_ERRNO(pread(fd, words, 8, offset + 1), EINVAL);
    CHECK_EQ(lseek(fd, offset, SEEK_SET), offset);
    CHECK_EQ(read(fd, words, 8), 8);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), offset + 8);
}

CASE(the_memory_itself)
{
    char there[6] = "";
    int fd = open("/proc/self/mem", O_RDWR);
    CHECK_OK(fd);
    static char mine[] = "hello";
    CHECK_EQ(pread(fd, there, 5, (off_t)(uintptr_t)mine), 5);
    CHECK_STR(there, "hello");
    CHECK_EQ(pwrite(fd, "J", 1, (off_t)(uintptr_t)mine), 1);
    CHECK_STR(mine, "Jello");
    CHECK_ERRNO(pread(fd, there, 5, 8), EIO);
    char *at = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_OK(munmap(at + PAGE, PAGE));
    CHECK_EQ(pread(fd, there, 5, (off_t)(uintptr_t)at + (off_t)PAGE - 2), 2);
    pid_t child = fork_or_fail();
    if (child == 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/mem", getppid());
        CHECK_OK(setresuid(65534, 65534, 65534));
        CHECK_ERRNO(open(path, O_RDONLY), EACCES);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(what_was_read_and_written)
{
    scratch();
    if (access("/proc/self/io", R_OK) != 0)
        SKIP("no accounting of transfers");
    slurp("/proc/self/io", text, sizeof text);
    long read_before = field(text, "rchar: "), written = field(text, "wchar: ");
    long writes = field(text, "syscw: ");
    CHECK(read_before >= 0 && written >= 0 && field(text, "syscr: ") >= 0);
    int fd = file_with("file", "0123456789", 10);
    char there[10];
    CHECK_EQ(read(fd, there, 10), 10);
    slurp("/proc/self/io", text, sizeof text);
    CHECK(field(text, "rchar: ") >= read_before + 10);
    CHECK_EQ(field(text, "wchar: "), written + 10);
    CHECK_EQ(field(text, "syscw: "), writes + 1);
    CHECK(field(text, "cancelled_write_bytes: ") >= 0);
}

CASE(children_of_a_process)
{
    char path[64], number[32];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    if (access(path, R_OK) != 0)
        SKIP("children are not listed");
    pid_t child = fork_or_fail();
    if (child == 0) {
        pause();
        _exit(0);
    }
    slurp(path, text, sizeof text);
    snprintf(number, sizeof number, "%d ", child);
    CHECK_STR(text, number);
    CHECK_OK(kill(child, SIGKILL));
    CHECK_KILLED(child, SIGKILL);
    slurp(path, text, sizeof text);
    CHECK_STR(text, "");
}

CASE(small_files)
{
    slurp("/proc/self/personality", text, sizeof text);
    CHECK_EQ(strlen(text), 9);
    slurp("/proc/self/uid_map", text, sizeof text);
    CHECK(strstr(text, "4294967295"));
    slurp("/proc/self/timerslack_ns", text, sizeof text);
    CHECK(atol(text) > 0);
    slurp("/proc/self/coredump_filter", text, sizeof text);
    CHECK_EQ(strlen(text), 9);
}
