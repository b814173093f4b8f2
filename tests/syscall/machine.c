/* Calls about the machine and the kernel: who may ask, and what wrong questions are answered. */
#include "harness.h"
#include "credentials.h"
#include <sys/acct.h>
#include <sys/klog.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/swap.h>
#include <sys/sysmacros.h>

/* Runs a check as a user without privileges. */
#define AS_NOBODY(...)                                                                         \
    do {                                                                                       \
        pid_t child = fork_or_fail();                                                          \
        if (child == 0) {                                                                      \
            CHECK_OK(syscall(SYS_setresuid, 65534, 65534, 65534));                             \
            __VA_ARGS__;                                                                       \
            _exit(0);                                                                          \
        }                                                                                      \
        CHECK_EXITED(child, 0);                                                                \
    } while (0)

CASE(restarting)
{
    AS_NOBODY(CHECK_ERRNO(syscall(SYS_reboot, 0xfee1dead, 672274793, 0x89abcdef, 0), EPERM);
              CHECK_ERRNO(syscall(SYS_reboot, 1, 1, 1, 0), EPERM));
    if (syscall(SYS_reboot, 0xfee1dead, 672274793, 0, 0) == -1 && errno == EPERM)
        SKIP("may not restart");
    CHECK_ERRNO(syscall(SYS_reboot, 0xfee1dead, 672274793, 100, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_reboot, 0xfee1dead, 1, 0, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_reboot, 1, 672274793, 0, 0), EINVAL);
    if (getenv("FERRY_GUEST")) /* In a namespace of its own, Linux ends that instead. */
        CHECK_ERRNO(syscall(SYS_reboot, 0xfee1dead, 672274793, 0xa1b2c3d4, BAD_KERNEL), EFAULT);
}

CASE(the_log_of_the_kernel)
{
    char text[16];
    AS_NOBODY(CHECK_ERRNO(klogctl(5, 0, 0), EPERM); CHECK_ERRNO(klogctl(8, 0, 7), EPERM);
              CHECK_ERRNO(klogctl(77, 0, 0), EPERM));
    CHECK(klogctl(10, 0, 0) > 0);
    CHECK_OK(klogctl(9, 0, 0));
    CHECK_OK(klogctl(0, 0, 0));
    CHECK_OK(klogctl(1, 0, 0));
    CHECK_OK(klogctl(3, text, sizeof text));
    CHECK_EQ(klogctl(3, text, 0), 0);
    CHECK_ERRNO(klogctl(3, 0, 5), EINVAL);
    CHECK_ERRNO(klogctl(3, text, -1), EINVAL);
    CHECK_ERRNO(klogctl(2, 0, 5), EINVAL);
    CHECK_ERRNO(klogctl(8, 0, 0), EINVAL);
    CHECK_ERRNO(klogctl(8, 0, 9), EINVAL);
    CHECK_ERRNO(klogctl(100, 0, 0), EINVAL);
    CHECK_ERRNO(klogctl(-1, 0, 0), EINVAL);
}

CASE(swapping)
{
    scratch();
    close(file_with("file", "x", 1));
    CHECK_ERRNO(swapon("file", 0x100000), EINVAL);
    CHECK_ERRNO(swapon("missing", 0), ENOENT);
    CHECK_ERRNO(swapoff("missing"), ENOENT);
    CHECK_ERRNO(swapon("file", 0), EINVAL);
    CHECK_ERRNO(swapoff("file"), EINVAL);
    CHECK_ERRNO(swapon(BAD_KERNEL, 0), EFAULT);
    AS_NOBODY(CHECK_ERRNO(swapon("file", 0), EPERM); CHECK_ERRNO(swapoff("missing"), EPERM);
              CHECK_ERRNO(swapon("file", 0x100000), EINVAL));
}

CASE(quotas)
{
    scratch();
    close(file_with("file", "x", 1));
    CHECK_ERRNO(syscall(SYS_quotactl, 0x80000103, "file", 0, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_quotactl, 0x80000700, "file", 0, 0), ENOTBLK);
    CHECK_ERRNO(syscall(SYS_quotactl, 0x80000700, "missing", 0, 0), ENOENT);
    CHECK_ERRNO(syscall(SYS_quotactl, 0x80000700, BAD_KERNEL, 0, 0), EFAULT);
    CHECK_ERRNO(syscall(SYS_quotactl, 0x80000700, 0, 0, 0), ENODEV);
}

CASE(accounting)
{
    scratch();
    CHECK_OK(mkdir("directory", 0755));
    CHECK_OK(symlink("loop", "loop"));
    close(file_with("file", "x", 1));
    if (acct("missing") == -1 && errno == ENOSYS)
        SKIP("no accounting");
    AS_NOBODY(CHECK_ERRNO(acct(0), EPERM); CHECK_ERRNO(acct("missing"), EPERM));
    CHECK_ERRNO(acct("missing"), ENOENT);
    CHECK_ERRNO(acct("directory"), EISDIR);
    CHECK_ERRNO(acct("/dev/null"), EACCES);
    CHECK_ERRNO(acct("file/below"), ENOTDIR);
    CHECK_ERRNO(acct("loop"), ELOOP);
    CHECK_ERRNO(acct(BAD_KERNEL), EFAULT);
}

CASE(what_accounting_records)
{
    struct acct_v3 record;
    struct stat status;
    int before = time(NULL);
    scratch();
    int log = file_with("log", "", 0);
    if (acct("log") == -1 && errno == ENOSYS)
        SKIP("no accounting");
    pid_t child = fork_or_fail();
    if (child == 0) {
        prctl(PR_SET_NAME, "counted");
        CHECK_OK(setregid(77, 78));
        CHECK_OK(setreuid(66, 67));
        _exit(42);
    }
    CHECK_EXITED(child, 42);
    CHECK_OK(acct(NULL));
    /* Nothing is recorded any more. */
    CHECK_EXITED(fork() ?: (_exit(0), 0), 0);
    CHECK_OK(fstat(log, &status));
    CHECK_EQ(status.st_size % (long)sizeof record, 0);
    int found = 0;
    while (read(log, &record, sizeof record) == sizeof record) {
        if (record.ac_pid != (unsigned)child)
            continue;
        found++;
        CHECK_EQ(record.ac_version & 0xf, 3);
        CHECK_EQ(record.ac_flag & (AFORK | ACORE | AXSIG), AFORK);
        CHECK_EQ(record.ac_exitcode, 42 << 8);
        CHECK_EQ(record.ac_uid, 66);
        CHECK_EQ(record.ac_gid, 77);
        CHECK_EQ(record.ac_ppid, (unsigned)getpid());
        CHECK((int)record.ac_btime >= before - 1);
        CHECK(record.ac_etime >= 0);
        CHECK(record.ac_mem > 0);
        CHECK_STR(record.ac_comm, "counted");
    }
    CHECK_EQ(found, 1);
}

CASE(modules)
{
    scratch();
    int fd = file_with("file", "not a module, but long enough to have a header of one........", 60);
    int out = open("file", O_WRONLY);
    if (syscall(SYS_delete_module, "none", 0) == -1 && (errno == ENOSYS || errno == EPERM))
        SKIP("no modules here");
    AS_NOBODY(CHECK_ERRNO(syscall(SYS_delete_module, "none", 0), EPERM);
              CHECK_ERRNO(syscall(SYS_init_module, 0, 0, ""), EPERM);
              CHECK_ERRNO(syscall(SYS_finit_module, fd, "", 0), EPERM));
    CHECK_ERRNO(syscall(SYS_delete_module, "none", 0), ENOENT);
    CHECK_ERRNO(syscall(SYS_delete_module, BAD_KERNEL, 0), EFAULT);
    CHECK_ERRNO(syscall(SYS_init_module, "", 0, ""), ENOEXEC);
    CHECK_ERRNO(syscall(SYS_init_module, BAD_KERNEL, 4096, ""), EFAULT);
    CHECK_ERRNO(syscall(SYS_finit_module, -1, "", 0), EBADF);
    CHECK_ERRNO(syscall(SYS_finit_module, out, "", 0), EBADF);
    CHECK_ERRNO(syscall(SYS_finit_module, fd, "", 64), EINVAL);
    CHECK_ERRNO(syscall(SYS_finit_module, fd, "", 0), ENOEXEC);
}

CASE(ports)
{
    if (syscall(SYS_ioperm, 0x80, 1, 1) == -1 && (errno == ENOSYS || errno == EPERM))
        SKIP("no ports here");
    AS_NOBODY(CHECK_ERRNO(syscall(SYS_iopl, 3), EPERM);
              CHECK_ERRNO(syscall(SYS_ioperm, 0x80, 1, 1), EPERM);
              CHECK_ERRNO(syscall(SYS_iopl, 4), EINVAL); CHECK_OK(syscall(SYS_iopl, 0)));
    CHECK_ERRNO(syscall(SYS_ioperm, 65536, 1, 1), EINVAL);
    CHECK_ERRNO(syscall(SYS_ioperm, 0, 65537, 1), EINVAL);
    CHECK_ERRNO(syscall(SYS_ioperm, 0, 0, 1), EINVAL);
    CHECK_OK(syscall(SYS_ioperm, 0x80, 1, 0));
    CHECK_OK(syscall(SYS_iopl, 1));
}

CASE(hanging_up)
{
    AS_NOBODY(CHECK_ERRNO(vhangup(), EPERM));
    pid_t child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setsid());
        CHECK_OK(vhangup());
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(file_systems_by_number)
{
    char name[32];
    struct stat status;
    struct {
        int free_blocks;
        unsigned long free_inodes;
        char names[12];
    } got;
    CHECK_OK(stat("/", &status));
    CHECK_OK(syscall(SYS_ustat, (unsigned)status.st_dev, &got));
    CHECK_ERRNO(syscall(SYS_ustat, (unsigned)-1, &got), EINVAL);
    CHECK_ERRNO(syscall(SYS_ustat, (unsigned)status.st_dev, BAD_KERNEL), EFAULT);
    if (syscall(SYS_sysfs, 3) == -1 && errno == ENOSYS)
        SKIP("no sysfs");
    int count = (int)syscall(SYS_sysfs, 3), index = (int)syscall(SYS_sysfs, 1, "proc");
    CHECK(count > 2 && index >= 0 && index < count);
    CHECK_EQ(syscall(SYS_sysfs, 2, index, name), 0);
    CHECK_STR(name, "proc");
    CHECK_ERRNO(syscall(SYS_sysfs, 1, "no such kind"), EINVAL);
    CHECK_ERRNO(syscall(SYS_sysfs, 1, BAD_KERNEL), EFAULT);
    CHECK_ERRNO(syscall(SYS_sysfs, 2, 1000, name), EINVAL);
    CHECK_ERRNO(syscall(SYS_sysfs, 2, index, BAD_KERNEL), EFAULT);
    CHECK_ERRNO(syscall(SYS_sysfs, 4), EINVAL);
}

CASE(entering_namespaces)
{
    int fd = open("/", O_RDONLY), me = (int)syscall(SYS_pidfd_open, getpid(), 0);
    CHECK_ERRNO(syscall(SYS_setns, -1, 0), EBADF);
    CHECK_ERRNO(syscall(SYS_setns, fd, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_setns, me, 0), EINVAL);
    CHECK_ERRNO(syscall(SYS_setns, me, 1), EINVAL);
}
