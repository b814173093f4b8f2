/*
 * getppid, posted in batches by libferry.
 */
#ifndef FERRY_BENCH_BATCH_H
#define FERRY_BENCH_BATCH_H

#include "case.h"

#include <ferry.h>

/* Calls that are posted before their results are taken, and what each has to answer. */
static int batch;
static long batch_parent;

/* Once per thread or process that posts. */
static void batch_prepare(void)
{
    batch_parent = getppid();
    if (!ferry_available())
        case_fail("posted calls");
}

/* `count` calls, a multiple of `batch`. */
static void batch_post(int count)
{
    int indexes[FERRY_ENTRIES];
    for (; count > 0; count -= batch) {
        for (int i = 0; i < batch; i++)
            if ((indexes[i] = ferry_prep(SYS_getppid)) < 0)
                case_fail("ferry_prep");
        ferry_submit();
        /* From the last: when it is there, the others mostly are too. */
        for (int i = batch - 1; i >= 0; i--)
            if (ferry_result(indexes[i]) != batch_parent)
                case_fail("ferry_result");
    }
}

#endif
