/* The names of the Memsc paper for what ferry.h offers, for programs that were written to them. */
#ifndef FERRY_MEMSC_H
#define FERRY_MEMSC_H

#include "ferry.h"

#define memsc_add(...) ferry_post(__VA_ARGS__)

static inline int memsc_register(void)
{
    return ferry_register();
}

static inline int memsc_ready(int index)
{
    return ferry_ready(index);
}

static inline long memsc_retval(int index)
{
    return ferry_result(index);
}

static inline int memsc_wait_all(void)
{
    return ferry_wait_all(0);
}

static inline int memsc_wait_any(void)
{
    return ferry_wait_any(0);
}

#endif
