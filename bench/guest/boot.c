/*
 * The guest program of the suite `boot`: when its first instruction runs. QEMU's time stamp counter is
 * 0 at the machine's reset, so firmware and, on Linux, the unpacking of the kernel are in the figure
 * `first_user`; its counter `clock` is the kernel's own monotonic clock, which starts later.
 */
#include "case.h"

int main(int argc, char **argv)
{
    uint64_t ticks = case_ticks();
    double clock_ns = case_clock_ns();
    case_begin(argc > 1 ? argv[1] : "");
    case_print("first_user", "", "ms", case_ns(ticks) / 1e6);
    case_print("first_user", ".clock", "ms", clock_ns / 1e6);
    case_end();
    return 0;
}
