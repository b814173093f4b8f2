/* Memory policies, advice for other processes, pages of files in another order, protection keys. */
#include "harness.h"
#include <sched.h>
#include <sys/mman.h>
#include <sys/uio.h>

#define PAGE 4096UL
#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif
enum { DEFAULT, PREFERRED, BIND, INTERLEAVE, LOCAL };

static long set_policy(int mode, void *nodes, unsigned long count)
{
    return syscall(SYS_set_mempolicy, mode, nodes, count);
}

static long get_policy(int *mode, void *nodes, unsigned long count, void *at, unsigned long flags)
{
    return syscall(SYS_get_mempolicy, mode, nodes, count, at, flags);
}

static char *pages(size_t count, int kind)
{
    char *at = mmap(0, count * PAGE, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static void need_policies(void)
{
    if (get_policy(0, 0, 0, 0, 0) == -1 && errno == ENOSYS)
        SKIP("no memory policies");
}

CASE(a_policy_of_the_thread_is_kept)
{
    unsigned long nodes[16] = {1}, got[16];
    int mode = -1;
    need_policies();
    CHECK_OK(get_policy(&mode, 0, 0, 0, 0));
    CHECK_EQ(mode, DEFAULT);
    CHECK_OK(set_policy(BIND, nodes, 1024));
    memset(got, 0xff, sizeof got);
    CHECK_OK(get_policy(&mode, got, 1024, 0, 0));
    CHECK_EQ(mode, BIND);
    CHECK_EQ(got[0], 1);
    CHECK_EQ(got[1], 0);
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(get_policy(&mode, 0, 0, 0, 0) == 0 && mode == BIND ? 0 : 1);
    CHECK_EXITED(child, 0);
    CHECK_OK(set_policy(DEFAULT, 0, 0));
    CHECK_OK(get_policy(&mode, 0, 0, 0, 0));
    CHECK_EQ(mode, DEFAULT);
    CHECK_OK(set_policy(PREFERRED, 0, 0));
    CHECK_OK(get_policy(&mode, 0, 0, 0, 0));
    CHECK_EQ(mode, LOCAL);
    CHECK_OK(get_policy(0, got, 1024, 0, 4));
    CHECK(got[0] & 1);
}

CASE(policies_are_checked)
{
    unsigned long none[16] = {0}, one[16] = {1}, far[16] = {0};
    far[15] = 1UL << 63;
    need_policies();
    CHECK_ERRNO(set_policy(100, one, 1024), EINVAL);
    CHECK_ERRNO(set_policy(-1, one, 1024), EINVAL);
    CHECK_ERRNO(set_policy(DEFAULT, one, 1024), EINVAL);
    CHECK_ERRNO(set_policy(BIND, none, 1024), EINVAL);
    CHECK_ERRNO(set_policy(BIND, far, 1025), EINVAL);
    CHECK_ERRNO(set_policy(BIND | 3 << 14, one, 1024), EINVAL);
    CHECK_ERRNO(set_policy(BIND, one, 4096 * 8 + 2), EINVAL);
    CHECK_ERRNO(set_policy(BIND, BAD_KERNEL, 64), EFAULT);
    CHECK_ERRNO(set_policy(LOCAL, one, 1024), EINVAL);
    CHECK_ERRNO(get_policy(0, 0, 0, 0, 8), EINVAL);
    CHECK_ERRNO(get_policy(0, one, 0, 0, 0), EINVAL);
    CHECK_ERRNO(get_policy(0, 0, 0, one, 0), EINVAL);
    CHECK_ERRNO(get_policy(0, 0, 0, 0, 1), EINVAL);
    CHECK_ERRNO(get_policy(0, 0, 0, 0, 5), EINVAL);
    char *gone = pages(1, MAP_PRIVATE);
    CHECK_OK(munmap(gone, PAGE));
    CHECK_ERRNO(get_policy(0, 0, 0, gone, 2), EFAULT);
    CHECK_ERRNO(get_policy(BAD_KERNEL, 0, 0, 0, 0), EFAULT);
}

CASE(a_policy_of_a_range_is_kept)
{
    unsigned long one[16] = {1};
    int mode = -1;
    need_policies();
    char *at = pages(4, MAP_PRIVATE);
    CHECK_OK(syscall(SYS_mbind, at + PAGE, PAGE, BIND, one, 1024, 0));
    CHECK_OK(get_policy(&mode, 0, 0, at, 2));
    CHECK_EQ(mode, DEFAULT);
    CHECK_OK(get_policy(&mode, 0, 0, at + PAGE + 5, 2));
    CHECK_EQ(mode, BIND);
    CHECK_OK(get_policy(&mode, 0, 0, at + PAGE, 3));
    CHECK_EQ(mode, 0);
    CHECK_ERRNO(syscall(SYS_mbind, at + 1, PAGE, BIND, one, 1024, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_mbind, at, PAGE, BIND, one, 1024, 8), EINVAL);
    CHECK_ERRNO(syscall(SYS_mbind, at, PAGE, 77, one, 1024, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_mbind, at, -PAGE, BIND, one, 1024, 0), EINVAL);
    CHECK_OK(syscall(SYS_mbind, at, 0, BIND, one, 1024, 0));
    CHECK_OK(munmap(at + 2 * PAGE, PAGE));
    CHECK_ERRNO(syscall(SYS_mbind, at, 4 * PAGE, BIND, one, 1024, 0), EFAULT);
}

CASE(pages_are_where_they_must_be)
{
    char *at = pages(2, MAP_PRIVATE);
    void *list[2] = {at, at + PAGE};
    int nodes[2] = {0, 0}, status[2] = {77, 77};
    unsigned long one[16] = {1}, none[16] = {0};
    at[0] = 1;
    if (syscall(SYS_move_pages, 0, 2, list, 0, status, 0) == -1 && errno == ENOSYS)
        SKIP("no pages can be moved");
    CHECK_EQ(status[0], 0);
    CHECK_EQ(status[1], -ENOENT);
    CHECK_OK(syscall(SYS_move_pages, 0, 1, list, nodes, status, 2));
    nodes[0] = -1;
    CHECK_ERRNO(syscall(SYS_move_pages, 0, 1, list, nodes, status, 2), ENODEV);
    CHECK_ERRNO(syscall(SYS_move_pages, 0, 1, list, nodes, status, 8), EINVAL);
    CHECK_ERRNO(syscall(SYS_move_pages, 99999999, 1, list, 0, status, 0), ESRCH);
    CHECK_ERRNO(syscall(SYS_move_pages, 0, 1, BAD_KERNEL, 0, status, 0), EFAULT);
    CHECK_OK(syscall(SYS_migrate_pages, 0, 1024, one, one));
    CHECK_ERRNO(syscall(SYS_migrate_pages, 0, 1024, one, none), EINVAL);
    CHECK_ERRNO(syscall(SYS_migrate_pages, 99999999, 1024, one, one), ESRCH);
    CHECK_ERRNO(syscall(SYS_migrate_pages, 0, 1024, BAD_KERNEL, one), EFAULT);
}

CASE(pages_of_a_file_in_another_order)
{
    scratch();
    int fd = file_with("file", "", 0);
    CHECK_OK(ftruncate(fd, 4 * PAGE));
    for (int page = 0; page < 4; page++)
        CHECK_EQ(pwrite(fd, (char[]){(char)('a' + page)}, 1, page * (long)PAGE), 1);
    char *at = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    CHECK_OK(remap_file_pages(at, PAGE, 0, 3, 0));
    CHECK_OK(remap_file_pages(at + 3 * PAGE, PAGE, 0, 0, 0));
    CHECK_EQ(at[0], 'd');
    CHECK_EQ(at[PAGE], 'b');
    CHECK_EQ(at[3 * PAGE], 'a');
    at[0] = 'x';
    char byte;
    CHECK_EQ(pread(fd, &byte, 1, 3 * PAGE), 1);
    CHECK_EQ(byte, 'x');
    CHECK_ERRNO(remap_file_pages(at, PAGE, PROT_READ, 0, 0), EINVAL);
    CHECK_ERRNO(remap_file_pages(at, 0, 0, 0, 0), EINVAL);
    CHECK_ERRNO(remap_file_pages(at, -PAGE, 0, 0, 0), EINVAL);
    CHECK_ERRNO(remap_file_pages(pages(1, MAP_PRIVATE), PAGE, 0, 0, 0), EINVAL);
    CHECK_OK(munmap(at + PAGE, PAGE));
    CHECK_ERRNO(remap_file_pages(at, 2 * PAGE, 0, 0, 0), EINVAL);
}

CASE(advice_for_another_process)
{
    char *at = pages(4, MAP_PRIVATE);
    memset(at, 1, 4 * PAGE);
    struct iovec part[2] = {{at, PAGE}, {at + 2 * PAGE, 2 * PAGE}};
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    CHECK_OK(fd);
    CHECK_EQ(syscall(SYS_process_madvise, fd, part, 2, 20, 0), 3 * PAGE);
    CHECK_EQ(at[0], 1);
    CHECK_ERRNO(syscall(SYS_process_madvise, fd, part, 2, 20, 1), EINVAL);
    CHECK_ERRNO(syscall(SYS_process_madvise, 12345, part, 2, 20, 0), EBADF);
    CHECK_ERRNO(syscall(SYS_process_madvise, fd, part, 2000, 20, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_process_madvise, fd, BAD_KERNEL, 1, 20, 0), EFAULT);
    part[0].iov_base = at + 1;
    CHECK_ERRNO(syscall(SYS_process_madvise, fd, part, 2, 20, 0), EINVAL);
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(0);
    int dead = (int)syscall(SYS_pidfd_open, child, 0);
    CHECK_OK(dead);
    CHECK_EXITED(child, 0);
    CHECK_ERRNO(syscall(SYS_process_madvise, dead, part, 1, 20, 0), ESRCH);
}

CASE(only_what_ends_can_be_released)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    CHECK_OK(fd);
    if (syscall(SYS_process_mrelease, fd, 0) == -1 && errno == ENOSYS)
        SKIP("no process_mrelease");
    CHECK_ERRNO(syscall(SYS_process_mrelease, fd, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_process_mrelease, fd, 1), EINVAL);
    CHECK_ERRNO(syscall(SYS_process_mrelease, 12345, 0), EBADF);
}

CASE(keys_are_checked)
{
    char *at = pages(1, MAP_PRIVATE);
    CHECK_ERRNO(syscall(SYS_pkey_alloc, 1, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_pkey_alloc, 0, 4), EINVAL);
    CHECK_ERRNO(syscall(SYS_pkey_free, 100), EINVAL);
    CHECK_OK(syscall(SYS_pkey_mprotect, at, PAGE, PROT_READ, -1));
    CHECK_ERRNO(syscall(SYS_pkey_mprotect, at, PAGE, PROT_READ, 100), EINVAL);
    CHECK_ERRNO(syscall(SYS_pkey_mprotect, at + 1, PAGE, PROT_READ, -1), EINVAL);
}

CASE(advice_for_children)
{
    char *at = pages(3, MAP_PRIVATE);
    memset(at, 7, 3 * PAGE);
    CHECK_OK(madvise(at, PAGE, 18));
    CHECK_OK(madvise(at + PAGE, PAGE, 20));
    CHECK_OK(madvise(at + PAGE, PAGE, 21));
    CHECK_ERRNO(madvise(pages(1, MAP_SHARED), PAGE, 18), EINVAL);
    pid_t child = fork_or_fail();
    if (child == 0)
        _exit(at[0] == 0 && at[PAGE] == 7 ? 0 : 1);
    CHECK_EXITED(child, 0);
    CHECK_OK(madvise(at, PAGE, 19));
    child = fork_or_fail();
    if (child == 0)
        _exit(at[0] == 7 ? 0 : 1);
    CHECK_EXITED(child, 0);
    char *fresh = pages(2, MAP_PRIVATE);
    unsigned char there[2];
    CHECK_OK(madvise(fresh, 2 * PAGE, 23));
    CHECK_OK(mincore(fresh, 2 * PAGE, there));
    CHECK(there[0] & there[1] & 1);
    CHECK_OK(mprotect(fresh, PAGE, PROT_READ));
    CHECK_ERRNO(madvise(fresh, PAGE, 23), EINVAL);
    CHECK_OK(munmap(fresh + PAGE, PAGE));
    CHECK_ERRNO(madvise(fresh, 2 * PAGE, 22), ENOMEM);
}
