/* Core dumps: which signals leave one, where, under which limits, and what is in it. */
#include "harness.h"
#include <elf.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/user.h>

static const char mark[] = "a text that only this program has";

static void set_limit(rlim_t bytes)
{
    struct rlimit limit;
    CHECK_OK(getrlimit(RLIMIT_CORE, &limit));
    limit.rlim_cur = bytes;
    if (limit.rlim_max < bytes)
        limit.rlim_max = bytes;
    CHECK_OK(setrlimit(RLIMIT_CORE, &limit));
}

/* Dumps go to a file `core` in the working directory, whatever the host wants. */
static void begin(void)
{
    int file;
    scratch();
    file = open("/proc/sys/kernel/core_pattern", O_RDONLY);
    char pattern[200];
    ssize_t length = read(file, pattern, sizeof pattern);
    close(file);
    if (length != 5 || memcmp(pattern, "core\n", 5) != 0)
        SKIP("the host's core_pattern is another one");
    set_limit(64 << 20);
}

/* How a program ends that sends itself the signal. */
static int status_after(int number)
{
    int status = 0;
    pid_t child = fork_or_fail();
    if (child == 0) {
        signal(number, SIG_DFL);
        raise(number);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == number);
    return status;
}

CASE(some_signals_dump)
{
    int dumping[] = {SIGQUIT, SIGILL, SIGABRT, SIGFPE, SIGSEGV, SIGBUS, SIGSYS, SIGTRAP, SIGXCPU, SIGXFSZ};
    int others[] = {SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGPIPE, SIGUSR1, SIGALRM, SIGIO, SIGRTMIN};
    size_t i;
    begin();
    for (i = 0; i < sizeof dumping / sizeof *dumping; i++) {
        if (!WCOREDUMP(status_after(dumping[i])))
            FAIL("signal %d dumps", dumping[i]);
        CHECK_OK(unlink("core"));
    }
    for (i = 0; i < sizeof others / sizeof *others; i++) {
        if (WCOREDUMP(status_after(others[i])))
            FAIL("signal %d does not dump", others[i]);
        CHECK_ERRNO(access("core", F_OK), ENOENT);
    }
}

CASE(from_outside_too)
{
    siginfo_t info;
    pid_t child;
    begin();
    child = fork_or_fail();
    if (child == 0)
        for (;;)
            pause();
    CHECK_OK(kill(child, SIGQUIT));
    CHECK_OK(waitid(P_PID, (id_t)child, &info, WEXITED));
    CHECK_EQ(info.si_code, CLD_DUMPED);
    CHECK_EQ(info.si_status, SIGQUIT);
    CHECK_OK(access("core", F_OK));
}

CASE(not_without_permission)
{
    begin();
    set_limit(0);
    CHECK(!WCOREDUMP(status_after(SIGABRT)));
    set_limit(64 << 20);
    CHECK_OK(prctl(PR_SET_DUMPABLE, 0));
    CHECK(!WCOREDUMP(status_after(SIGABRT)));
    CHECK_OK(prctl(PR_SET_DUMPABLE, 1));
    CHECK_OK(mkdir("core", 0777));
    CHECK(!WCOREDUMP(status_after(SIGABRT)));
    CHECK_OK(rmdir("core"));
}

CASE(a_dump_replaces_what_has_its_name)
{
    struct stat status;
    begin();
    CHECK_OK(symlink("elsewhere", "core"));
    CHECK(WCOREDUMP(status_after(SIGABRT)));
    CHECK_ERRNO(access("elsewhere", F_OK), ENOENT);
    CHECK_OK(lstat("core", &status));
    CHECK(S_ISREG(status.st_mode));
    CHECK_OK(link("core", "other"));
    CHECK(WCOREDUMP(status_after(SIGABRT)));
    CHECK_OK(stat("core", &status));
    CHECK_EQ(status.st_nlink, 1);
}

CASE(what_a_dump_has)
{
    struct stat status;
    Elf64_Ehdr header;
    Elf64_Phdr part;
    static volatile char own[sizeof mark];
    int file, i, is_found = 0, has_registers = 0;
    begin();
    memcpy((char *)own, mark, sizeof mark);
    CHECK(WCOREDUMP(status_after(SIGSEGV)));
    CHECK_OK(stat("core", &status));
    CHECK_EQ(status.st_mode, S_IFREG | 0600);
    CHECK_OK(file = open("core", O_RDONLY));
    CHECK_EQ(read(file, &header, sizeof header), sizeof header);
    CHECK_EQ(memcmp(header.e_ident, ELFMAG, SELFMAG), 0);
    CHECK_EQ(header.e_type, ET_CORE);
    CHECK_EQ(header.e_machine, EM_X86_64);
    for (i = 0; i < header.e_phnum; i++) {
        CHECK_EQ(pread(file, &part, sizeof part, (off_t)(header.e_phoff + (unsigned)i * sizeof part)), sizeof part);
        if (part.p_type == PT_NOTE) {
            Elf64_Nhdr note;
            CHECK_EQ(pread(file, &note, sizeof note, (off_t)part.p_offset), sizeof note);
            has_registers = note.n_type == NT_PRSTATUS && note.n_descsz == 336;
        }
        if (part.p_type == PT_LOAD && (uint64_t)own - part.p_vaddr < part.p_filesz) {
            char there[sizeof mark];
            off_t at = (off_t)(part.p_offset + ((uint64_t)own - part.p_vaddr));
            CHECK_EQ(pread(file, there, sizeof there, at), sizeof there);
            is_found = memcmp(there, mark, sizeof mark) == 0;
        }
    }
    CHECK(has_registers);
    CHECK(is_found);
}
