/* What all parts of the differential fuzzer use: the generator, the account of what happened, and the slots that
 * operations choose descriptors and names from.
 *
 * An operation says what it did and what came of it in one line. The lines of a round are folded into one number,
 * which is the same on two systems that behave alike; with --tell they are printed too. */
#ifndef FERRY_TESTS_DIFFERENTIAL_COMMON_H
#define FERRY_TESTS_DIFFERENTIAL_COMMON_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, SLOTS = 10, REPORT = 250, BUFFER = 3 * PAGE };

/* In memory that all processes of a round share; one of them acts at a time. */
static struct account {
    volatile uint64_t hash;
    volatile uint32_t lines;
    /* Room was made in some file. */
    volatile uint32_t has_room;
} *account;

static int is_told;
static uint64_t random_state;
/* Open descriptors, or -1. */
static int slots[SLOTS];
static unsigned char buffer[BUFFER];

static uint64_t mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

static unsigned below(unsigned limit)
{
    return (unsigned)(mix(random_state++) % limit);
}

static void put(const char *text)
{
    size_t length = strlen(text);
    while (length > 0) {
        ssize_t written = write(REPORT, text, length);
        if (written <= 0)
            return;
        text += written;
        length -= (size_t)written;
    }
}

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2)
        length = (int)sizeof line - 2;
    line[length] = '\n';
    line[length + 1] = 0;
    uint64_t hash = account->hash;
    for (char *at = line; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
    account->hash = hash;
    account->lines++;
    if (is_told)
        put(line);
}

/* A result as a number, or the negated error. */
static long outcome(long result)
{
    return result == -1 ? -errno : result;
}

static unsigned sum_of(const unsigned char *bytes, long length)
{
    unsigned sum = 1;
    for (long at = 0; at < length; at++)
        sum = sum * 31 + bytes[at];
    return sum;
}

static void fill(long length)
{
    unsigned char seed = (unsigned char)below(256);
    for (long at = 0; at < length; at++)
        buffer[at] = (unsigned char)(seed + at * 7);
}

/* One of the names of the round's directory. Some are of things in a directory, some cannot be. */
static const char *a_name(void)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "d/x", "d/y", "d/../a", "e/z", "l", "l/x", "missing/x",
                                        "", ".", "d/", "a/"};
    return below(8) ? names[below(9)] : names[below(sizeof names / sizeof *names)];
}

static int a_slot(void)
{
    return (int)below(SLOTS);
}

/* A slot that is open, if there is one near. */
static int an_open_slot(void)
{
    int slot = a_slot();
    for (int tries = 0; tries < SLOTS - 1 && slots[slot] == -1 && below(20); tries++)
        slot = (slot + 1) % SLOTS;
    return slot;
}

/* Puts a new descriptor into a slot and closes what was there. */
static void keep(int slot, int descriptor)
{
    if (descriptor == -1)
        return;
    if (slots[slot] != -1)
        close(slots[slot]);
    slots[slot] = descriptor;
}

static int is_regular(int descriptor)
{
    struct stat status;
    return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

static int is_socket(int descriptor)
{
    struct stat status;
    return fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode);
}

static int is_same_file(int one, int other)
{
    struct stat first, second;
    return fstat(one, &first) == 0 && fstat(other, &second) == 0 && S_ISREG(first.st_mode) && S_ISREG(second.st_mode) &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

/* What came of a call that may send: a socket that was shut down and has lost its peer answers EPIPE since 6.14, where
 * it answered ENOTCONN. */
static long sent(long result)
{
    long got = outcome(result);
    return got == -ENOTCONN ? -EPIPE : got;
}

/* Bytes for a transfer: pipes and sockets get few, so that nobody sees how much fits. */
static long a_length(int descriptor)
{
    static const unsigned lengths[] = {0, 1, 2, 7, 64, 100, 511, 512};
    if (!is_regular(descriptor) || below(2))
        return lengths[below(8)];
    return below(BUFFER);
}

static long an_offset(void)
{
    static const long offsets[] = {0, 1, 100, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 3 * PAGE + 5, 100000, -1, -PAGE};
    return below(4) ? offsets[below(8)] : offsets[below(11)];
}

#endif
