/* The harness of the system-call tests: one header, no library, so that a young kernel can run it.
 *
 * A program is a list of cases. Each case runs in a forked child that arms `alarm`, so a hang fails
 * that case alone. One line per case on stdout: `ok NAME`, `skip NAME: why` or
 * `not ok NAME: file:line: what, got ...`; lines that start with `#` are remarks. The exit status is
 * 0 if no case failed.
 *
 *     PROGRAM                      all cases
 *     PROGRAM CASE...              these cases
 *     PROGRAM --list               their names
 *     PROGRAM --no-fork CASE       that case in this very process (for bring-up)
 *
 * The harness itself needs: write, fork, alarm, wait4, kill, getpid, exit_group. Cases that need
 * files call `scratch()` first, which also needs mkdir and chdir. HARNESS_DEADLINE changes the
 * seconds that a case may take (default 60).
 */
#ifndef FERRY_TESTS_HARNESS_H
#define FERRY_TESTS_HARNESS_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HARNESS_UNUSED __attribute__((unused))

/* Addresses that no process has: below the lowest mapping, in the kernel's half, not canonical. */
#define BAD_LOW ((void *)8)
#define BAD_KERNEL ((void *)0xffff800000001000UL)
#define BAD_CANONICAL ((void *)0x8000000000000000UL)

struct test_case {
    const char *name;
    int line;
    void (*run)(void);
    struct test_case *next;
};

static struct test_case *harness_cases;
static const char *harness_case = "?";
static pid_t harness_case_pid;

/* Keeps the list in the order of the source, whatever order constructors run in. */
static void harness_register(struct test_case *entry)
{
    struct test_case **place = &harness_cases;
    while (*place && (*place)->line < entry->line)
        place = &(*place)->next;
    entry->next = *place;
    *place = entry;
}

#define CASE(name)                                                                             \
    static void case_##name(void);                                                             \
    static struct test_case entry_##name = {#name, __LINE__, case_##name, 0};                  \
    __attribute__((constructor)) static void register_##name(void)                             \
    {                                                                                          \
        harness_register(&entry_##name);                                                       \
    }                                                                                          \
    static void case_##name(void)

static void harness_put(const char *text)
{
    size_t length = strlen(text);
    while (length > 0) {
        ssize_t written = write(1, text, length);
        if (written <= 0)
            return;
        text += written;
        length -= (size_t)written;
    }
}

/* In the case's own process this is its verdict; in a process that it forked it is a remark, and
 * the case fails when it looks at that process's exit status. */
__attribute__((noreturn, format(printf, 3, 4))) static void harness_fail(const char *file, int line,
                                                                         const char *format, ...)
{
    char text[600];
    const char *short_name = strrchr(file, '/');
    int mine = getpid() == harness_case_pid;
    int used = snprintf(text, sizeof text, "%s %s: %s:%d: ", mine ? "not ok" : "# in a child of",
                        harness_case, short_name ? short_name + 1 : file, line);
    __builtin_va_list values;
    __builtin_va_start(values, format);
    used += vsnprintf(text + used, sizeof text - (size_t)used - 2, format, values);
    __builtin_va_end(values);
    if (used > (int)sizeof text - 2)
        used = (int)sizeof text - 2;
    text[used] = '\n';
    text[used + 1] = 0;
    harness_put(text);
    _exit(mine ? 1 : 99);
}

#define FAIL(...) harness_fail(__FILE__, __LINE__, __VA_ARGS__)

/* For what the host's Linux does not permit here; never to hide a failure of the kernel. */
#define SKIP(why)                                                                              \
    do {                                                                                       \
        char harness_text[300];                                                                \
        snprintf(harness_text, sizeof harness_text, "skip %s: %s\n", harness_case, why);       \
        harness_put(harness_text);                                                             \
        _exit(77);                                                                             \
    } while (0)

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition))                                                                      \
            FAIL("%s, got false (errno %d %s)", #condition, errno, strerror(errno));           \
    } while (0)

#define CHECK_EQ(left, right)                                                                  \
    do {                                                                                       \
        long long harness_left = (long long)(left), harness_right = (long long)(right);        \
        if (harness_left != harness_right)                                                     \
            FAIL("%s == %s, got %lld, not %lld (errno %d %s)", #left, #right, harness_left,    \
                 harness_right, errno, strerror(errno));                                       \
    } while (0)

/* The call succeeds (is not -1). */
#define CHECK_OK(call)                                                                         \
    do {                                                                                       \
        long long harness_result = (long long)(call);                                          \
        if (harness_result == -1)                                                              \
            FAIL("%s succeeds, got errno %d %s", #call, errno, strerror(errno));               \
    } while (0)

/* The call fails with this errno. */
#define CHECK_ERRNO(call, expected)                                                            \
    do {                                                                                       \
        errno = 0;                                                                             \
        long long harness_result = (long long)(call);                                          \
        int harness_errno = errno;                                                             \
        if (harness_result != -1 || harness_errno != (expected))                               \
            FAIL("%s fails with %s, got %lld and errno %d %s", #call, #expected,               \
                 harness_result, harness_errno, strerror(harness_errno));                      \
    } while (0)

#define CHECK_STR(left, right)                                                                 \
    do {                                                                                       \
        const char *harness_left = (left), *harness_right = (right);                           \
        if (strcmp(harness_left, harness_right) != 0)                                          \
            FAIL("%s is \"%s\", got \"%.200s\"", #left, harness_right, harness_left);          \
    } while (0)

HARNESS_UNUSED static int harness_wait(pid_t child)
{
    int status = -1;
    pid_t got;
    do {
        got = waitpid(child, &status, 0);
    } while (got == -1 && errno == EINTR);
    return got == child ? status : -1;
}

/* The child ends with this exit code. */
#define CHECK_EXITED(child, code)                                                              \
    do {                                                                                       \
        int harness_status = harness_wait(child);                                              \
        if (!WIFEXITED(harness_status) || WEXITSTATUS(harness_status) != (code))               \
            FAIL("%s exits with %d, got wait status %#x", #child, (int)(code),                 \
                 (unsigned)harness_status);                                                    \
    } while (0)

/* The child is killed by this signal. */
#define CHECK_KILLED(child, signal_number)                                                     \
    do {                                                                                       \
        int harness_status = harness_wait(child);                                              \
        if (!WIFSIGNALED(harness_status) || WTERMSIG(harness_status) != (signal_number))       \
            FAIL("%s is killed by %s, got wait status %#x", #child, #signal_number,            \
                 (unsigned)harness_status);                                                    \
    } while (0)

HARNESS_UNUSED static pid_t fork_or_fail(void)
{
    pid_t child = fork();
    if (child == -1)
        FAIL("fork succeeds, got errno %d %s", errno, strerror(errno));
    return child;
}

HARNESS_UNUSED static void sleep_ms(long milliseconds)
{
    struct timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&left, &left) == -1 && errno == EINTR)
        ;
}

/* A child that signals its parent again and again until it is killed. */
HARNESS_UNUSED static pid_t pesterer(int number)
{
    pid_t parent = getpid();
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (;;) {
            sleep_ms(3);
            kill(parent, number);
        }
    }
    return child;
}

HARNESS_UNUSED static int64_t now_ns(clockid_t clock)
{
    struct timespec now = {0, 0};
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Goes to a fresh directory under /tmp. */
HARNESS_UNUSED static void scratch(void)
{
    char path[160];
    snprintf(path, sizeof path, "/tmp/%s.%d", harness_case, (int)getpid());
    umask(022);
    if (mkdir(path, 0777) == -1 || chdir(path) == -1)
        FAIL("%s can be made and entered, got errno %d %s", path, errno, strerror(errno));
}

/* A new file with this content, open for reading and writing at its start. */
HARNESS_UNUSED static int file_with(const char *path, const void *content, size_t length)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd == -1)
        FAIL("%s can be created, got errno %d %s", path, errno, strerror(errno));
    if (length > 0 && write(fd, content, length) != (ssize_t)length)
        FAIL("%s takes %zu bytes, got errno %d %s", path, length, errno, strerror(errno));
    if (lseek(fd, 0, SEEK_SET) != 0)
        FAIL("%s can be rewound, got errno %d %s", path, errno, strerror(errno));
    return fd;
}

/* The file's content as a string; returns its length. */
HARNESS_UNUSED static size_t slurp(const char *path, char *buffer, size_t size)
{
    int fd = open(path, O_RDONLY);
    size_t length = 0;
    ssize_t got;
    if (fd == -1)
        FAIL("%s can be opened, got errno %d %s", path, errno, strerror(errno));
    while (length < size - 1 && (got = read(fd, buffer + length, size - 1 - length)) != 0) {
        if (got == -1)
            FAIL("%s can be read, got errno %d %s", path, errno, strerror(errno));
        length += (size_t)got;
    }
    buffer[length] = 0;
    close(fd);
    return length;
}

/* 0 passed, 1 failed, 2 skipped. */
static int harness_run(struct test_case *entry, unsigned deadline_s)
{
    char text[200];
    int status = 0;
    pid_t child, got;
    harness_case = entry->name;
    child = fork();
    if (child == 0) {
        harness_case_pid = getpid();
        setpgid(0, 0);
        signal(SIGALRM, SIG_DFL);
        alarm(deadline_s);
        entry->run();
        _exit(0);
    }
    if (child == -1) {
        snprintf(text, sizeof text, "not ok %s: fork, got errno %d\n", entry->name, errno);
        harness_put(text);
        return 1;
    }
    do {
        got = waitpid(child, &status, 0);
    } while (got == -1 && errno == EINTR);
    kill(-child, SIGKILL); /* What the case left behind. */
    if (got == child && WIFEXITED(status)) {
        if (WEXITSTATUS(status) == 0) {
            snprintf(text, sizeof text, "ok %s\n", entry->name);
            harness_put(text);
            return 0;
        }
        if (WEXITSTATUS(status) == 77)
            return 2;
        if (WEXITSTATUS(status) == 1)
            return 1; /* It said why. */
    }
    snprintf(text, sizeof text, "not ok %s: ends by itself, got wait status %#x%s\n", entry->name,
             (unsigned)status,
             WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? " (deadline)" : "");
    harness_put(text);
    return 1;
}

int main(int count, char **words)
{
    int results[3] = {0, 0, 0};
    unsigned deadline_s = 60;
    char text[200];
    const char *name = strrchr(words[0], '/');
    struct test_case *entry;
    int word;
    if (getenv("HARNESS_DEADLINE"))
        deadline_s = (unsigned)atoi(getenv("HARNESS_DEADLINE"));
    for (word = 1; word < count; word++) {
        int no_fork = strcmp(words[word], "--no-fork") == 0;
        if (strcmp(words[word], "--list") == 0) {
            for (entry = harness_cases; entry; entry = entry->next) {
                harness_put(entry->name);
                harness_put("\n");
            }
            return 0;
        }
        if (no_fork && ++word == count)
            break;
        for (entry = harness_cases; entry; entry = entry->next)
            if (strcmp(entry->name, words[word]) == 0)
                break;
        if (!entry) {
            snprintf(text, sizeof text, "not ok %s: is a case of this program (see --list)\n",
                     words[word]);
            harness_put(text);
            return 2;
        }
        if (no_fork) {
            harness_case = entry->name;
            harness_case_pid = getpid();
            entry->run();
            snprintf(text, sizeof text, "ok %s\n", entry->name);
            harness_put(text);
            return 0;
        }
        results[harness_run(entry, deadline_s)]++;
    }
    if (count == 1)
        for (entry = harness_cases; entry; entry = entry->next)
            results[harness_run(entry, deadline_s)]++;
    snprintf(text, sizeof text, "%s: %d passed, %d failed, %d skipped\n",
             name ? name + 1 : words[0], results[0], results[1], results[2]);
    harness_put(text);
    return results[1] > 0;
}

#endif
