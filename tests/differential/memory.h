/* Operations on memory, in an arena of pages at an address that both systems leave free. */
#ifndef FERRY_TESTS_DIFFERENTIAL_MEMORY_H
#define FERRY_TESTS_DIFFERENTIAL_MEMORY_H

#include "common.h"

enum { ARENA_PAGES = 24 };
#define ARENA ((unsigned char *)0x200000000000)

static sigjmp_buf after_fault;

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    siglongjmp(after_fault, number << 8 | (info->si_code & 0xff));
}

static unsigned char *a_page(void)
{
    return ARENA + (size_t)below(ARENA_PAGES) * PAGE;
}

static size_t pages_from(unsigned char *page)
{
    size_t room = (size_t)(ARENA + ARENA_PAGES * PAGE - page), wanted = (size_t)(1 + below(6)) * PAGE;
    return wanted < room ? wanted : room;
}

static long page_of(void *address)
{
    return address == MAP_FAILED ? -errno : (long)((unsigned char *)address - ARENA) / PAGE;
}

static int a_protection(void)
{
    static const int rights[] = {PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE};
    return rights[below(4)];
}

static void do_map(void)
{
    unsigned char *page = a_page();
    size_t length = pages_from(page);
    int rights = a_protection(), slot = an_open_slot();
    /* A file that cannot be mapped takes away what was there on Linux, or not, by its kind. */
    int is_file = below(3) == 0 && is_regular(slots[slot]);
    int flags = (below(2) ? MAP_PRIVATE : MAP_SHARED) | (below(4) ? MAP_FIXED : MAP_FIXED_NOREPLACE) | (is_file ? 0 : MAP_ANONYMOUS);
    long offset = is_file ? (long)below(3) * PAGE + (below(16) == 0) : 0;
    void *result = mmap(page, length, rights, flags, is_file ? slots[slot] : -1, offset);
    tell("mmap page %ld length %zu rights %d flags %#x slot %d offset %ld: %ld", page_of(page), length, rights, flags,
         is_file ? slot : -1, offset, page_of(result));
}

static void do_change_memory(void)
{
    unsigned char *page = a_page(), *target = a_page(), present[ARENA_PAGES];
    size_t length = pages_from(page), other = pages_from(target);
    unsigned kind = below(9);
    long result;
    int rights = a_protection();
    static const int advice[] = {MADV_DONTNEED, MADV_WILLNEED, MADV_NORMAL, MADV_RANDOM, MADV_DONTFORK, MADV_DOFORK,
                                 MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_REMOVE, 22, 23, 999};
    switch (kind) {
    case 0: case 1: result = munmap(page, length); break;
    case 2: case 3: result = mprotect(page, length, rights); break;
    case 4: {
        /* One page, since from 6.17 on several areas move at once; to where nothing is, since when that goes away
         * in a call that fails has changed too. */
        length = PAGE;
        munmap(target, other);
        void *moved = mremap(page, length, other, MREMAP_MAYMOVE | MREMAP_FIXED, target);
        result = moved == MAP_FAILED ? -1 : page_of(moved);
        break;
    }
    case 5: {
        void *grown = mremap(page, length, other, 0);
        result = grown == MAP_FAILED ? -1 : page_of(grown);
        break;
    }
    case 6: rights = advice[below(12)]; result = madvise(page, length, rights); break;
    case 7: result = msync(page, length, below(2) ? MS_SYNC : MS_ASYNC); break;
    default:
        /* Which pages are in memory is nobody's promise. */
        result = mincore(page, length, present);
    }
    tell("memory(%u) page %ld length %zu, page %ld length %zu, %d: %ld", kind, page_of(page), length, page_of(target), other,
         rights, outcome(result));
}

static void do_touch(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER}, segv, bus;
    sigset_t none, before;
    unsigned char *at = a_page() + (below(2) ? 0 : below(PAGE));
    int writes = (int)below(2), value = (int)below(256);
    volatile int seen = -1;
    sigemptyset(&action.sa_mask);
    sigemptyset(&none);
    sigaddset(&none, SIGSEGV);
    sigaddset(&none, SIGBUS);
    sigprocmask(SIG_UNBLOCK, &none, &before);
    sigaction(SIGSEGV, &action, &segv);
    sigaction(SIGBUS, &action, &bus);
    int fault = sigsetjmp(after_fault, 1);
    if (fault == 0) {
        seen = *(volatile unsigned char *)at;
        if (writes)
            *(volatile unsigned char *)at = (unsigned char)value;
    }
    sigaction(SIGSEGV, &segv, NULL);
    sigaction(SIGBUS, &bus, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    tell("%s page %ld + %ld: %d, fault %#x", writes ? "write" : "read", (long)(at - ARENA) / PAGE, (long)(at - ARENA) % PAGE,
         seen, fault);
}

#endif
