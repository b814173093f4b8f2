/* Whether a long call gives the core back: on Ferry by the count of its polls, elsewhere not at all. */
#ifndef PIECES_H
#define PIECES_H

#include "harness.h"

/* How often handlers of a call were polled so far; -1 where nobody counts. */
static long polls_of(const char *call)
{
    static char text[32768];
    char line[80];
    if (access("/proc/ferry/polls", R_OK) == -1)
        return -1;
    slurp("/proc/ferry/polls", text, sizeof text);
    snprintf(line, sizeof line, "\n%s ", call);
    char *found = strstr(text, line);
    return found ? atol(found + strlen(line)) : 0;
}

/* The call is carried out in at least so many pieces. */
#define CHECK_PIECES(name, least, ...)                                                         \
    do {                                                                                       \
        long before_ = polls_of(name);                                                         \
        __VA_ARGS__;                                                                           \
        if (before_ != -1 && polls_of(name) - before_ < (least))                               \
            FAIL("%s gives the core back %d times, got %ld polls", name, (int)(least),         \
                 polls_of(name) - before_);                                                    \
    } while (0)

#endif
