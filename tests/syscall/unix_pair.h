/* A pair of connected local sockets, for the cases of all their types. */
#ifndef FERRY_TESTS_UNIX_PAIR_H
#define FERRY_TESTS_UNIX_PAIR_H

#include "harness.h"
#include <poll.h>
#include <sys/socket.h>

static int left, right;

static void make_pair(int type)
{
    int ends[2];
    CHECK_OK(socketpair(AF_UNIX, type, 0, ends));
    left = ends[0];
    right = ends[1];
}

/* Which of the wanted events a descriptor has now. */
static short events_of(int fd, short wanted)
{
    struct pollfd entry = {fd, wanted, 0};
    CHECK(poll(&entry, 1, 0) >= 0);
    return entry.revents;
}

#endif
