/* System calls with no C library between: results are negative error numbers. */
#ifndef FERRY_TRAP_H
#define FERRY_TRAP_H

#include <stdint.h>

#ifdef FERRY_TEST_KERNEL
/* Tests build the library with a kernel of their own: tests/library/double.c. */
long ferry_trap_(long number, const uint64_t arguments[6]);
#else
static inline long ferry_trap_(long number, const uint64_t arguments[6])
{
    long result;
    register uint64_t fourth __asm__("r10") = arguments[3];
    register uint64_t fifth __asm__("r8") = arguments[4];
    register uint64_t sixth __asm__("r9") = arguments[5];
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(arguments[0]), "S"(arguments[1]), "d"(arguments[2]),
                       "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
}
#endif

static inline long ferry_trap3_(long number, uint64_t a0, uint64_t a1, uint64_t a2)
{
    const uint64_t arguments[6] = {a0, a1, a2, 0, 0, 0};
    return ferry_trap_(number, arguments);
}

#endif
