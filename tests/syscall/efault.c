/* Bad pointers in every pointer argument of every call: one row per argument, tried with every kind of
 * address that is not there. The answer is always EFAULT, nothing has happened, and no descriptor is lost.
 * Arguments that Linux itself never looks at (set_robust_list, set_tid_address) have no row. */
#include "harness.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>

enum { PAGE = 4096 };

/* Stand-ins in the rows, replaced by what the process has. */
enum {
    FIRST_STAND_IN = 1 << 20,
    FILE_FD,      /* a file of ten bytes, at its start */
    DIRECTORY_FD, /* the working directory */
    PIPE_FD,      /* the reading end of an empty pipe */
    BUFFER,       /* a page of zeroes */
    PATH,         /* "f", an existing file */
    LINK,         /* "link", a symbolic link */
    NEW_PATH,     /* "new", nothing */
    PROGRAM,      /* "program", a file that may be executed */
    BAD           /* the pointer in question */
};

enum kind {
    IN,      /* the kernel reads it */
    OUT,     /* the kernel writes it */
    STRING,  /* a path */
    BYTES,   /* data of which a part may be transferred */
    RESULTS, /* the same, written */
    WORD,    /* must be aligned before anything else */
};

static const struct row {
    const char *name;
    enum kind kind;
    int number;
    long arguments[6];
} rows[] = {
    {"read", RESULTS, SYS_read, {FILE_FD, BAD, 10}},
    {"write", BYTES, SYS_write, {FILE_FD, BAD, 10}},
    {"pread64", RESULTS, SYS_pread64, {FILE_FD, BAD, 10, 0}},
    {"pwrite64", BYTES, SYS_pwrite64, {FILE_FD, BAD, 10, 0}},
    {"readv", IN, SYS_readv, {FILE_FD, BAD, 2}},
    {"writev", IN, SYS_writev, {FILE_FD, BAD, 2}},
    {"preadv", IN, SYS_preadv, {FILE_FD, BAD, 2, 0, 0}},
    {"pwritev", IN, SYS_pwritev, {FILE_FD, BAD, 2, 0, 0}},
    {"open", STRING, SYS_open, {BAD, O_RDONLY}},
    {"open creating", STRING, SYS_open, {BAD, O_RDWR | O_CREAT, 0600}},
    {"openat", STRING, SYS_openat, {DIRECTORY_FD, BAD, O_RDONLY}},
    {"stat path", STRING, SYS_stat, {BAD, BUFFER}},
    {"stat", OUT, SYS_stat, {PATH, BAD}},
    {"fstat", OUT, SYS_fstat, {FILE_FD, BAD}},
    {"lstat path", STRING, SYS_lstat, {BAD, BUFFER}},
    {"lstat", OUT, SYS_lstat, {PATH, BAD}},
    {"newfstatat path", STRING, SYS_newfstatat, {DIRECTORY_FD, BAD, BUFFER, 0}},
    {"newfstatat", OUT, SYS_newfstatat, {DIRECTORY_FD, PATH, BAD, 0}},
    {"statx path", STRING, SYS_statx, {DIRECTORY_FD, BAD, 0, 0x7ff, BUFFER}},
    {"statx", OUT, SYS_statx, {DIRECTORY_FD, PATH, 0, 0x7ff, BAD}},
    {"getdents64", OUT, SYS_getdents64, {DIRECTORY_FD, BAD, PAGE}},
    {"access", STRING, SYS_access, {BAD, 0}},
    {"faccessat", STRING, SYS_faccessat, {DIRECTORY_FD, BAD, 0}},
    {"faccessat2", STRING, SYS_faccessat2, {DIRECTORY_FD, BAD, 0, 0}},
    {"fcntl F_GETLK", IN, SYS_fcntl, {FILE_FD, F_GETLK, BAD}},
    {"fcntl F_SETLK", IN, SYS_fcntl, {FILE_FD, F_SETLK, BAD}},
    {"ioctl FIONREAD", OUT, SYS_ioctl, {PIPE_FD, FIONREAD, BAD}},
    {"ioctl FIONBIO", IN, SYS_ioctl, {PIPE_FD, FIONBIO, BAD}},
    {"pipe", OUT, SYS_pipe, {BAD}},
    {"pipe2", OUT, SYS_pipe2, {BAD, O_CLOEXEC}},
    {"poll", IN, SYS_poll, {BAD, 2, 0}},
    {"ppoll set", IN, SYS_ppoll, {BAD, 2, BUFFER, 0, 8}},
    {"ppoll time", IN, SYS_ppoll, {0, 0, BAD, 0, 8}},
    {"ppoll mask", IN, SYS_ppoll, {0, 0, BUFFER, BAD, 8}},
    {"select readers", IN, SYS_select, {3, BAD, 0, 0, BUFFER}},
    {"select writers", IN, SYS_select, {3, 0, BAD, 0, BUFFER}},
    {"select exceptions", IN, SYS_select, {3, 0, 0, BAD, BUFFER}},
    {"select time", IN, SYS_select, {0, 0, 0, 0, BAD}},
    {"pselect6 readers", IN, SYS_pselect6, {3, BAD, 0, 0, BUFFER, 0}},
    {"pselect6 time", IN, SYS_pselect6, {0, 0, 0, 0, BAD, 0}},
    {"pselect6 mask", IN, SYS_pselect6, {0, 0, 0, 0, BUFFER, BAD}},
    {"rename old", STRING, SYS_rename, {BAD, NEW_PATH}},
    {"rename new", STRING, SYS_rename, {PATH, BAD}},
    {"renameat old", STRING, SYS_renameat, {DIRECTORY_FD, BAD, DIRECTORY_FD, NEW_PATH}},
    {"renameat new", STRING, SYS_renameat, {DIRECTORY_FD, PATH, DIRECTORY_FD, BAD}},
    {"renameat2 old", STRING, SYS_renameat2, {DIRECTORY_FD, BAD, DIRECTORY_FD, NEW_PATH, 0}},
    {"renameat2 new", STRING, SYS_renameat2, {DIRECTORY_FD, PATH, DIRECTORY_FD, BAD, 0}},
    {"mkdir", STRING, SYS_mkdir, {BAD, 0700}},
    {"mkdirat", STRING, SYS_mkdirat, {DIRECTORY_FD, BAD, 0700}},
    {"mknod", STRING, SYS_mknod, {BAD, S_IFREG | 0600, 0}},
    {"mknodat", STRING, SYS_mknodat, {DIRECTORY_FD, BAD, S_IFREG | 0600, 0}},
    {"rmdir", STRING, SYS_rmdir, {BAD}},
    {"unlink", STRING, SYS_unlink, {BAD}},
    {"unlinkat", STRING, SYS_unlinkat, {DIRECTORY_FD, BAD, 0}},
    {"link old", STRING, SYS_link, {BAD, NEW_PATH}},
    {"link new", STRING, SYS_link, {PATH, BAD}},
    {"linkat old", STRING, SYS_linkat, {DIRECTORY_FD, BAD, DIRECTORY_FD, NEW_PATH, 0}},
    {"linkat new", STRING, SYS_linkat, {DIRECTORY_FD, PATH, DIRECTORY_FD, BAD, 0}},
    {"symlink target", STRING, SYS_symlink, {BAD, NEW_PATH}},
    {"symlink name", STRING, SYS_symlink, {PATH, BAD}},
    {"symlinkat target", STRING, SYS_symlinkat, {BAD, DIRECTORY_FD, NEW_PATH}},
    {"symlinkat name", STRING, SYS_symlinkat, {PATH, DIRECTORY_FD, BAD}},
    {"readlink path", STRING, SYS_readlink, {BAD, BUFFER, 100}},
    {"readlink", OUT, SYS_readlink, {LINK, BAD, 100}},
    {"readlinkat path", STRING, SYS_readlinkat, {DIRECTORY_FD, BAD, BUFFER, 100}},
    {"readlinkat", OUT, SYS_readlinkat, {DIRECTORY_FD, LINK, BAD, 100}},
    {"chmod", STRING, SYS_chmod, {BAD, 0600}},
    {"fchmodat", STRING, SYS_fchmodat, {DIRECTORY_FD, BAD, 0600}},
    {"chown", STRING, SYS_chown, {BAD, 0, 0}},
    {"lchown", STRING, SYS_lchown, {BAD, 0, 0}},
    {"fchownat", STRING, SYS_fchownat, {DIRECTORY_FD, BAD, 0, 0, 0}},
    {"truncate", STRING, SYS_truncate, {BAD, 0}},
    {"utimensat path", STRING, SYS_utimensat, {DIRECTORY_FD, BAD, 0, 0}},
    {"utimensat times", IN, SYS_utimensat, {DIRECTORY_FD, PATH, BAD, 0}},
    {"getcwd", OUT, SYS_getcwd, {BAD, PAGE}},
    {"chdir", STRING, SYS_chdir, {BAD}},
    {"sendfile", IN, SYS_sendfile, {FILE_FD, FILE_FD, BAD, 1}},
    {"statfs path", STRING, SYS_statfs, {BAD, BUFFER}},
    {"statfs", OUT, SYS_statfs, {PATH, BAD}},
    {"fstatfs", OUT, SYS_fstatfs, {FILE_FD, BAD}},
    {"mount target", STRING, SYS_mount, {PATH, BAD, PATH, 0, 0}},
    {"umount2", STRING, SYS_umount2, {BAD, 0}},
    {"execve", STRING, SYS_execve, {BAD, 0, 0}},
    {"execve words", IN, SYS_execve, {PROGRAM, BAD, 0}},
    {"execve environment", IN, SYS_execve, {PROGRAM, 0, BAD}},
    {"execveat", STRING, SYS_execveat, {DIRECTORY_FD, BAD, 0, 0, 0}},
    {"clone3", IN, SYS_clone3, {BAD, 64}},
    {"getgroups", OUT, SYS_getgroups, {10, BAD}},
    {"setgroups", IN, SYS_setgroups, {2, BAD}},
    {"getresuid real", OUT, SYS_getresuid, {BAD, BUFFER, BUFFER}},
    {"getresuid effective", OUT, SYS_getresuid, {BUFFER, BAD, BUFFER}},
    {"getresuid saved", OUT, SYS_getresuid, {BUFFER, BUFFER, BAD}},
    {"getresgid real", OUT, SYS_getresgid, {BAD, BUFFER, BUFFER}},
    {"getresgid saved", OUT, SYS_getresgid, {BUFFER, BUFFER, BAD}},
    {"prctl PR_SET_NAME", STRING, SYS_prctl, {PR_SET_NAME, BAD}},
    {"prctl PR_GET_NAME", OUT, SYS_prctl, {PR_GET_NAME, BAD}},
    {"prctl PR_GET_PDEATHSIG", OUT, SYS_prctl, {PR_GET_PDEATHSIG, BAD}},
    {"arch_prctl ARCH_GET_FS", OUT, SYS_arch_prctl, {0x1003, BAD}},
    {"futex wait", WORD, SYS_futex, {BAD, 0, 0, BUFFER, 0, 0}},
    {"futex private wait", WORD, SYS_futex, {BAD, 128, 0, BUFFER, 0, 0}},
    {"futex time", IN, SYS_futex, {BUFFER, 0, 0, BAD, 0, 0}},
    {"futex requeue to", WORD, SYS_futex, {BUFFER, 3, 0, 1, BAD, 0}},
    {"sched_getaffinity", OUT, SYS_sched_getaffinity, {0, 128, BAD}},
    {"sched_setaffinity", IN, SYS_sched_setaffinity, {0, 128, BAD}},
    {"uname", OUT, SYS_uname, {BAD}},
    {"sysinfo", OUT, SYS_sysinfo, {BAD}},
    {"times", OUT, SYS_times, {BAD}},
    {"getrusage", OUT, SYS_getrusage, {RUSAGE_SELF, BAD}},
    {"getrlimit", OUT, SYS_getrlimit, {RLIMIT_NOFILE, BAD}},
    {"setrlimit", IN, SYS_setrlimit, {RLIMIT_CORE, BAD}},
    {"prlimit64 new", IN, SYS_prlimit64, {0, RLIMIT_CORE, BAD, 0}},
    {"prlimit64 old", OUT, SYS_prlimit64, {0, RLIMIT_CORE, 0, BAD}},
    {"getrandom", RESULTS, SYS_getrandom, {BAD, 10, 0}},
    {"rt_sigaction new", IN, SYS_rt_sigaction, {SIGUSR1, BAD, 0, 8}},
    {"rt_sigaction old", OUT, SYS_rt_sigaction, {SIGUSR1, 0, BAD, 8}},
    {"rt_sigprocmask new", IN, SYS_rt_sigprocmask, {SIG_BLOCK, BAD, 0, 8}},
    {"rt_sigprocmask old", OUT, SYS_rt_sigprocmask, {SIG_BLOCK, 0, BAD, 8}},
    {"rt_sigpending", OUT, SYS_rt_sigpending, {BAD, 8}},
    {"rt_sigsuspend", IN, SYS_rt_sigsuspend, {BAD, 8}},
    {"rt_sigtimedwait set", IN, SYS_rt_sigtimedwait, {BAD, 0, BUFFER, 8}},
    {"rt_sigtimedwait time", IN, SYS_rt_sigtimedwait, {BUFFER, 0, BAD, 8}},
    {"sigaltstack new", IN, SYS_sigaltstack, {BAD, 0}},
    {"sigaltstack old", OUT, SYS_sigaltstack, {0, BAD}},
    {"getitimer", OUT, SYS_getitimer, {ITIMER_VIRTUAL, BAD}},
    {"setitimer new", IN, SYS_setitimer, {ITIMER_VIRTUAL, BAD, 0}},
    {"setitimer old", OUT, SYS_setitimer, {ITIMER_VIRTUAL, BUFFER, BAD}},
    {"nanosleep", IN, SYS_nanosleep, {BAD, 0}},
    {"clock_nanosleep", IN, SYS_clock_nanosleep, {CLOCK_MONOTONIC, 0, BAD, 0}},
    {"clock_gettime", OUT, SYS_clock_gettime, {CLOCK_MONOTONIC, BAD}},
    {"clock_getres", OUT, SYS_clock_getres, {CLOCK_MONOTONIC, BAD}},
    {"gettimeofday", OUT, SYS_gettimeofday, {BAD, 0}},
    {"gettimeofday zone", OUT, SYS_gettimeofday, {0, BAD}},
    {"time", OUT, SYS_time, {BAD}},
    {"getcpu", OUT, SYS_getcpu, {BAD, 0, 0}},
};

static int file_fd, directory_fd, pipe_fds[2];
static char buffer[PAGE] __attribute__((aligned(PAGE)));
static const char constant[PAGE] __attribute__((aligned(PAGE))) = "constant";

static void prepare(void)
{
    gid_t groups[2] = {1, 2};
    if (directory_fd > 0)
        return;
    scratch();
    CHECK_OK(syscall(SYS_setgroups, 2, groups));
    file_fd = file_with("f", "0123456789", 10);
    close(file_with("program", "#!/tmp/none\n", 12));
    CHECK_OK(chmod("program", 0755));
    CHECK_OK(symlink("a target that is long", "link"));
    directory_fd = open(".", O_RDONLY | O_DIRECTORY);
    CHECK_OK(pipe(pipe_fds));
}

static void check_row(const struct row *row, void *bad, const char *what)
{
    long arguments[6];
    for (int i = 0; i < 6; i++) {
        switch (row->arguments[i]) {
        case FILE_FD: arguments[i] = file_fd; break;
        case DIRECTORY_FD: arguments[i] = directory_fd; break;
        case PIPE_FD: arguments[i] = pipe_fds[0]; break;
        case BUFFER: arguments[i] = (long)buffer; break;
        case PATH: arguments[i] = (long)"f"; break;
        case LINK: arguments[i] = (long)"link"; break;
        case NEW_PATH: arguments[i] = (long)"new"; break;
        case PROGRAM: arguments[i] = (long)"program"; break;
        case BAD: arguments[i] = (long)bad; break;
        default: arguments[i] = row->arguments[i];
        }
    }
    memset(buffer, 0, sizeof buffer);
    int free_before = dup(0);
    close(free_before);
    errno = 0;
    long result = syscall(row->number, arguments[0], arguments[1], arguments[2], arguments[3],
                          arguments[4], arguments[5]);
    if (result != -1 || errno != EFAULT)
        FAIL("%s with %s (%p) fails with EFAULT, got %ld and errno %d %s", row->name, what, bad,
             result, errno, strerror(errno));
    int free_after = dup(0);
    close(free_after);
    if (free_after != free_before)
        FAIL("%s with %s loses no descriptor, got %d free instead of %d", row->name, what, free_after,
             free_before);
    if (lseek(file_fd, 0, SEEK_CUR) != 0 || lseek(directory_fd, 0, SEEK_CUR) != 0)
        FAIL("%s with %s moves no offset", row->name, what);
}

static void check_all(void *bad, const char *what)
{
    struct stat status;
    prepare();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row(&rows[i], bad, what);
    CHECK_OK(fstat(file_fd, &status));
    CHECK_EQ(status.st_size, 10);
    CHECK_EQ(status.st_nlink, 1);
    CHECK_ERRNO(access("new", F_OK), ENOENT);
}

CASE(address_below_the_lowest_mapping)
{
    check_all(BAD_LOW, "a low address");
}

CASE(address_of_the_kernel)
{
    check_all(BAD_KERNEL, "an address of the kernel");
    check_all((void *)0xffffffff80000000, "an address of the kernel's image");
}

CASE(address_that_is_not_canonical)
{
    check_all(BAD_CANONICAL, "an address that is not canonical");
}

CASE(last_address)
{
    /* Aligned, so that a futex word is not refused for that. */
    check_all((void *)-8L, "the last address");
    check_all((void *)0x7ffffffff000, "the first address behind the user's");
}

CASE(page_that_was_unmapped)
{
    char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[0] = 1;
    CHECK_OK(munmap(page, PAGE));
    check_all(page, "an unmapped page");
}

CASE(page_without_rights)
{
    char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[0] = 1;
    CHECK_OK(mprotect(page, PAGE, PROT_NONE));
    check_all(page, "a page without rights");
}

CASE(page_beyond_the_end_of_a_file)
{
    prepare();
    char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file_fd, 0);
    CHECK(pages != MAP_FAILED);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row(&rows[i], pages + PAGE, "a page beyond the end of its file");
}

CASE(results_into_read_only_memory)
{
    char *touched = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *untouched = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    touched[0] = 0;
    CHECK_OK(mprotect(touched, PAGE, PROT_READ));
    prepare();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].kind != OUT && rows[i].kind != RESULTS)
            continue;
        check_row(&rows[i], touched, "a read-only page");
        check_row(&rows[i], untouched, "an untouched read-only page");
        check_row(&rows[i], (void *)constant, "constant data of the program");
    }
    CHECK_EQ(touched[0], 0);
}

CASE(argument_that_crosses_into_nothing)
{
    char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_OK(munmap(pages + PAGE, PAGE));
    pages[PAGE - 1] = 'f'; /* A path without an end. */
    prepare();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].kind == BYTES || rows[i].kind == RESULTS || rows[i].kind == WORD)
            continue;
        check_row(&rows[i], pages + PAGE - 1, "an argument of which only one byte is there");
    }
}

static void on_alarm(int number)
{
    (void)number;
}

CASE(remaining_time_of_interrupted_sleeps)
{
    struct timespec request = {1000, 0};
    pid_t child = fork_or_fail();
    if (child == 0) {
        struct itimerval timer = {{0, 20000}, {0, 20000}};
        signal(SIGALRM, on_alarm);
        CHECK_OK(setitimer(ITIMER_REAL, &timer, NULL));
        CHECK_ERRNO(syscall(SYS_nanosleep, &request, BAD_LOW), EFAULT);
        CHECK_ERRNO(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &request, BAD_KERNEL), EFAULT);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(status_and_usage_of_children)
{
    void *bad[] = {BAD_LOW, BAD_KERNEL, BAD_CANONICAL};
    for (int i = 0; i < 9; i++) {
        pid_t child = fork_or_fail();
        if (child == 0)
            _exit(0);
        if (i < 3)
            CHECK_ERRNO(syscall(SYS_wait4, child, bad[i], 0, NULL), EFAULT);
        else if (i < 6)
            CHECK_ERRNO(syscall(SYS_wait4, child, NULL, 0, bad[i - 3]), EFAULT);
        else
            CHECK_ERRNO(syscall(SYS_waitid, P_PID, child, NULL, WEXITED, bad[i - 6]), EFAULT);
        CHECK_ERRNO(syscall(SYS_wait4, child, NULL, 0, NULL), ECHILD); /* It is gone all the same. */
    }
}

CASE(signal_information)
{
    sigset_t set;
    struct timespec none = {0, 0};
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK_OK(sigprocmask(SIG_BLOCK, &set, NULL));
    CHECK_OK(kill(getpid(), SIGUSR1));
    CHECK_ERRNO(syscall(SYS_rt_sigtimedwait, &set, BAD_LOW, &none, 8), EFAULT);
    CHECK_ERRNO(syscall(SYS_rt_sigtimedwait, &set, NULL, &none, 8), EAGAIN); /* It was taken. */
}
