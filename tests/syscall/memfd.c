/* Memory files: names, seals, mappings. */
#include "harness.h"
#include <sys/mman.h>

enum { CLOEXEC = 1, ALLOW_SEALING = 2, ADD_SEALS = 1033, GET_SEALS = 1034 };
enum { SEAL = 1, SHRINK = 2, GROW = 4, WRITE = 8, FUTURE_WRITE = 16 };

static int memory_file(const char *name, unsigned flags)
{
    return (int)syscall(SYS_memfd_create, name, flags);
}

CASE(memory_file_is_a_file)
{
    char text[64] = {0}, link[64];
    struct stat status;
    int file = memory_file("some name", CLOEXEC);
    CHECK(file >= 0);
    CHECK_EQ(fcntl(file, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(file, F_GETFL) & O_ACCMODE, O_RDWR);
    CHECK_OK(fstat(file, &status));
    CHECK_EQ(status.st_mode, S_IFREG | 0777);
    CHECK_EQ(status.st_nlink, 0);
    CHECK_EQ(status.st_size, 0);
    CHECK_EQ(write(file, "abc", 3), 3);
    CHECK_OK(ftruncate(file, 8192));
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    CHECK(readlink(link, text, sizeof text) > 0);
    CHECK_STR(text, "/memfd:some name (deleted)");
    int again = open(link, O_RDONLY);
    CHECK(again >= 0);
    CHECK_EQ(read(again, text, 4), 4);
    CHECK_STR(text, "abc");
    CHECK_EQ(fcntl(memory_file("", 0), F_GETFD), 0);
}

CASE(memory_file_errors)
{
    char name[300];
    memset(name, 'n', sizeof name);
    name[249] = 0;
    CHECK(memory_file(name, 0) >= 0);
    name[249] = 'n';
    name[250] = 0;
    CHECK_ERRNO(memory_file(name, 0), EINVAL);
    CHECK_ERRNO(memory_file("x", 0x100), EINVAL);
    CHECK_ERRNO(memory_file("x", 1u << 31), EINVAL);
    CHECK_ERRNO(memory_file(BAD_LOW, 0), EFAULT);
    CHECK_ERRNO(memory_file(BAD_LOW, 0x100), EINVAL);
}

CASE(seals_are_kept)
{
    scratch();
    int plain = memory_file("x", 0), file = memory_file("x", ALLOW_SEALING);
    CHECK_EQ(fcntl(plain, GET_SEALS), SEAL);
    CHECK_ERRNO(fcntl(plain, ADD_SEALS, WRITE), EPERM);
    CHECK_EQ(fcntl(file, GET_SEALS), 0);
    CHECK_ERRNO(fcntl(file, ADD_SEALS, 0x100), EINVAL);
    CHECK_OK(ftruncate(file, 100));
    CHECK_OK(fcntl(file, ADD_SEALS, SHRINK));
    CHECK_ERRNO(ftruncate(file, 99), EPERM);
    CHECK_OK(ftruncate(file, 101));
    CHECK_OK(fcntl(file, ADD_SEALS, GROW));
    CHECK_EQ(fcntl(file, GET_SEALS), SHRINK | GROW);
    CHECK_ERRNO(ftruncate(file, 102), EPERM);
    CHECK_ERRNO(pwrite(file, "xyz", 3, 100), EPERM);
    CHECK_ERRNO(fallocate(file, 0, 0, 200), EPERM);
    CHECK_EQ(pwrite(file, "xyz", 3, 98), 3);
    CHECK_OK(fcntl(file, ADD_SEALS, SEAL));
    CHECK_ERRNO(fcntl(file, ADD_SEALS, WRITE), EPERM);
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", memory_file("x", ALLOW_SEALING));
    CHECK_ERRNO(fcntl(open(link, O_RDONLY), ADD_SEALS, WRITE), EPERM);
    CHECK_EQ(fcntl(file_with("f", "x", 1), GET_SEALS), SEAL);
    CHECK_ERRNO(fcntl(open(".", O_RDONLY), GET_SEALS), EINVAL);
}

CASE(write_seal_and_mappings)
{
    int file = memory_file("x", ALLOW_SEALING);
    CHECK_OK(ftruncate(file, 8192));
    char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(shared != MAP_FAILED);
    CHECK_ERRNO(fcntl(file, ADD_SEALS, WRITE), EBUSY);
    CHECK_EQ(fcntl(file, GET_SEALS), 0);
    CHECK_OK(mprotect(shared, 4096, PROT_READ));
    CHECK_ERRNO(fcntl(file, ADD_SEALS, WRITE), EBUSY);
    CHECK_OK(munmap(shared, 4096));
    char *private = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    CHECK(private != MAP_FAILED);
    CHECK_OK(fcntl(file, ADD_SEALS, WRITE));
    private[0] = 'x';
    CHECK_ERRNO(pwrite(file, "x", 1, 0), EPERM);
    CHECK_ERRNO(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), EPERM);
    CHECK_OK(ftruncate(file, 4096));
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) == MAP_FAILED);
    CHECK_EQ(errno, EPERM);
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0) != MAP_FAILED);
}

CASE(future_write_seal_leaves_old_mappings)
{
    char byte;
    int file = memory_file("x", ALLOW_SEALING);
    CHECK_OK(ftruncate(file, 4096));
    char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(shared != MAP_FAILED);
    CHECK_OK(fcntl(file, ADD_SEALS, FUTURE_WRITE));
    shared[5] = 'y';
    CHECK_EQ(pread(file, &byte, 1, 5), 1);
    CHECK_EQ(byte, 'y');
    CHECK_ERRNO(pwrite(file, "x", 1, 0), EPERM);
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) == MAP_FAILED);
    CHECK_EQ(errno, EPERM);
    char *later = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
    CHECK(later != MAP_FAILED);
    CHECK_EQ(later[5], 'y');
    CHECK_ERRNO(mprotect(later, 4096, PROT_READ | PROT_WRITE), EACCES);
}
