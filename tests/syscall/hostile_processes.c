/* What one user may do to the processes of another: looking into them, and what programs with set-id bits
 * give to whom. One check decides all of it: ids in every way, whether it may be dumped, capabilities. */
#include "harness.h"
#include "credentials.h"
#include <dirent.h>
#include <elf.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

enum { USER = 1000, STRANGER = 1001 };

static char *const no_words[] = {NULL};

/* A child that does what the block says and then waits until `release`. Its memory holds `secret`. */
struct target {
    pid_t pid;
    int release;
};

static char secret[8] = "secret";

static struct target target_as(uid_t user, uint64_t capabilities, int dumpable, int directory)
{
    struct target target;
    int ready[2], release[2];
    char byte;
    CHECK_OK(pipe(ready));
    CHECK_OK(pipe(release));
    target.pid = fork_or_fail();
    if (target.pid == 0) {
        close(release[1]);
        close(ready[0]);
        if (directory)
            CHECK_OK(chdir("closed"));
        if (user)
            act_as(user, capabilities);
        if (dumpable)
            CHECK_OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        close(ready[1]);
        _exit(read(release[0], &byte, 1) != 0);
    }
    close(ready[1]);
    CHECK_EQ(read(ready[0], &byte, 1), 0);
    close(ready[0]);
    close(release[0]);
    target.release = release[1];
    return target;
}

static void release(struct target target)
{
    close(target.release);
    CHECK_EXITED(target.pid, 0);
}

static const char *path_of(pid_t pid, const char *name)
{
    static char path[96];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    return path;
}

static ssize_t read_memory_of(pid_t pid, char *into)
{
    struct iovec here = {into, sizeof secret}, there = {secret, sizeof secret};
    return syscall(SYS_process_vm_readv, pid, &here, 1, &there, 1, 0);
}

static const char *const links[] = {"cwd", "root", "exe"};
static const char *const private_files[] = {"maps", "environ", "auxv"};

static void check_closed(pid_t pid)
{
    char text[64];
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        CHECK_ERRNO(readlink(path_of(pid, links[i]), text, sizeof text), EACCES);
        CHECK_ERRNO(open(path_of(pid, links[i]), O_RDONLY), EACCES);
    }
    CHECK_ERRNO(open(path_of(pid, "cwd/file"), O_RDONLY), EACCES);
    CHECK_ERRNO(chdir(path_of(pid, "cwd")), EACCES);
    for (size_t i = 0; i < sizeof private_files / sizeof *private_files; i++)
        CHECK_ERRNO(open(path_of(pid, private_files[i]), O_RDONLY), EACCES);
    CHECK_ERRNO(open(path_of(pid, "fd"), O_RDONLY | O_DIRECTORY), EACCES);
    CHECK_ERRNO(readlink(path_of(pid, "fd/0"), text, sizeof text), EACCES);
    CHECK_ERRNO(open(path_of(pid, "fdinfo/0"), O_RDONLY), EACCES);
    CHECK_ERRNO(read_memory_of(pid, text), EPERM);
}

static void check_open(pid_t pid)
{
    char text[64];
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        CHECK_OK(readlink(path_of(pid, links[i]), text, sizeof text));
    for (size_t i = 0; i < sizeof private_files / sizeof *private_files; i++)
        CHECK_OK(open(path_of(pid, private_files[i]), O_RDONLY));
    CHECK_OK(open(path_of(pid, "fd"), O_RDONLY | O_DIRECTORY));
    CHECK_OK(open(path_of(pid, "fdinfo/0"), O_RDONLY));
    CHECK_EQ(read_memory_of(pid, text), sizeof secret);
    CHECK_STR(text, "secret");
}

CASE(strangers_do_not_look_into_a_process)
{
    scratch();
    CHECK_OK(mkdir("closed", 0700));
    close(file_with("closed/file", "x", 1));
    struct target target = target_as(0, 0, 1, 1);
    AS (USER, NO_CAPABILITIES)
        check_closed(target.pid);
    AS (USER, BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_KILL))
        CHECK_ERRNO(open(path_of(target.pid, "cwd/file"), O_RDONLY), EACCES);
    AS (USER, BIT(CAP_SYS_PTRACE) | BIT(CAP_DAC_READ_SEARCH)) {
        check_open(target.pid);
        CHECK_OK(open(path_of(target.pid, "cwd/file"), O_RDONLY));
    }
    check_open(target.pid);
    release(target);
}

CASE(the_same_user_looks_into_a_process)
{
    struct target target = target_as(USER, NO_CAPABILITIES, 1, 0);
    AS (USER, NO_CAPABILITIES)
        check_open(target.pid);
    AS (STRANGER, NO_CAPABILITIES)
        check_closed(target.pid);
    release(target);
}

/* Field `number` of /proc/PID/stat, counted from 1. */
static uint64_t stat_field(pid_t pid, int number)
{
    char text[1024];
    slurp(path_of(pid, "stat"), text, sizeof text);
    char *at = strrchr(text, ')');
    CHECK(at != NULL);
    for (at += 2; number > 3; number--)
        at = strchr(at, ' ') + 1;
    return strtoull(at, NULL, 10);
}

CASE(strangers_learn_no_addresses_from_stat)
{
    static const int hidden[] = {28, 45, 46, 47, 48, 49, 50, 51};
    struct target target = target_as(0, 0, 1, 0);
    AS (USER, NO_CAPABILITIES) {
        CHECK_EQ(stat_field(target.pid, 26), 1);
        CHECK_EQ(stat_field(target.pid, 27), 1);
        for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
            CHECK_EQ(stat_field(target.pid, hidden[i]), 0);
    }
    CHECK(stat_field(target.pid, 26) > 1);
    CHECK(stat_field(target.pid, 28) > 1);
    CHECK(stat_field(target.pid, 48) > 1);
    release(target);
}

static uid_t owner_of(pid_t pid, const char *name)
{
    struct stat found;
    CHECK_OK(lstat(path_of(pid, name), &found));
    return found.st_uid;
}

CASE(who_changed_its_rights_is_closed)
{
    struct target closed = target_as(USER, NO_CAPABILITIES, 0, 0);
    struct target opened = target_as(USER, NO_CAPABILITIES, 1, 0);
    AS (USER, NO_CAPABILITIES) {
        check_closed(closed.pid);
        check_open(opened.pid);
    }
    CHECK_EQ(owner_of(closed.pid, "."), USER);
    CHECK_EQ(owner_of(closed.pid, "task"), USER);
    CHECK_EQ(owner_of(closed.pid, "environ"), 0);
    CHECK_EQ(owner_of(closed.pid, "fd"), 0);
    CHECK_EQ(owner_of(closed.pid, "status"), 0);
    CHECK_EQ(owner_of(opened.pid, "environ"), USER);
    CHECK_EQ(owner_of(opened.pid, "fd"), USER);
    release(opened); /* Its process has the other's end of the pipe. */
    release(closed);
}

CASE(a_closed_process_finds_itself)
{
    char text[64];
    AS (USER, NO_CAPABILITIES) {
        CHECK_EQ(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), 0);
        CHECK_OK(readlink("/proc/self/exe", text, sizeof text));
        CHECK_OK(readlink("/proc/self/fd/1", text, sizeof text));
        CHECK_OK(open("/proc/self/fd", O_RDONLY | O_DIRECTORY));
        CHECK_OK(open("/proc/self/maps", O_RDONLY));
        CHECK_OK(chdir("/proc/self/cwd"));
        CHECK_ERRNO(open("/proc/self/environ", O_RDONLY), EACCES);
    }
}

CASE(memory_of_others_asks_the_real_ids)
{
    struct target target = target_as(USER, NO_CAPABILITIES, 1, 0);
    for (int is_real = 0; is_real < 2; is_real++) {
        pid_t child = fork_or_fail();
        if (child == 0) {
            char text[8];
            uid_t real = is_real ? USER : STRANGER, effective = is_real ? STRANGER : USER;
            CHECK_OK(syscall(SYS_setgroups, 0, NULL));
            CHECK_OK(syscall(SYS_setresgid, USER, USER, USER));
            CHECK_OK(syscall(SYS_setresuid, real, effective, effective));
            if (is_real) {
                CHECK_EQ(read_memory_of(target.pid, text), sizeof secret);
                CHECK_ERRNO(readlink(path_of(target.pid, "cwd"), text, sizeof text), EACCES);
            } else {
                CHECK_ERRNO(read_memory_of(target.pid, text), EPERM);
                CHECK_OK(readlink(path_of(target.pid, "cwd"), text, sizeof text));
            }
            _exit(0);
        }
        CHECK_EXITED(child, 0);
    }
    release(target);
}

CASE(more_capabilities_are_not_looked_into)
{
    struct target target = target_as(USER, BIT(CAP_KILL), 1, 0);
    AS (USER, NO_CAPABILITIES) {
        char text[8];
        CHECK_ERRNO(read_memory_of(target.pid, text), EPERM);
        CHECK_ERRNO(readlink(path_of(target.pid, "cwd"), text, sizeof text), EACCES);
    }
    AS (USER, BIT(CAP_KILL) | BIT(CAP_CHOWN))
        check_open(target.pid);
    release(target);
}

static ssize_t write_to(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    if (fd == -1)
        return -1;
    ssize_t written = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    errno = error;
    return written;
}

CASE(only_a_process_names_itself)
{
    char name[16];
    struct target target = target_as(USER, NO_CAPABILITIES, 1, 0);
    AS (USER, NO_CAPABILITIES) {
        CHECK_ERRNO(write_to(path_of(target.pid, "comm"), "other"), EINVAL);
        CHECK_OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        CHECK_EQ(write_to("/proc/self/comm", "self"), 4);
        CHECK_OK(prctl(PR_GET_NAME, name, 0, 0, 0));
        CHECK_STR(name, "self");
    }
    CHECK_ERRNO(write_to(path_of(target.pid, "comm"), "other"), EINVAL);
    AS (STRANGER, NO_CAPABILITIES)
        CHECK_ERRNO(write_to(path_of(target.pid, "comm"), "other"), EACCES);
    release(target);
}

CASE(nobody_makes_himself_harder_to_kill)
{
    AS (USER, NO_CAPABILITIES) {
        CHECK_OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        CHECK_EQ(write_to("/proc/self/oom_score_adj", "500"), 3);
        CHECK_EQ(write_to("/proc/self/oom_score_adj", "0"), 1);
        CHECK_ERRNO(write_to("/proc/self/oom_score_adj", "-1"), EACCES);
        CHECK_ERRNO(write_to(path_of(getppid(), "oom_score_adj"), "1000"), EACCES);
    }
}

/* --- programs with set-id bits --- */

/* Says who it is, for those who execute it. */
CASE(show_rights)
{
    char text[128];
    uid_t real, effective, saved;
    CHECK_OK(getresuid(&real, &effective, &saved));
    snprintf(text, sizeof text, "# %d %d %d secure %d dumpable %d personality %x\n", (int)real,
             (int)effective, (int)saved, (int)getauxval(AT_SECURE), prctl(PR_GET_DUMPABLE, 0, 0, 0, 0),
             (unsigned)personality(0xffffffff));
    harness_put(text);
}

CASE(show_stack)
{
    char text[64];
    snprintf(text, sizeof text, "# %p\n", (void *)text);
    harness_put(text);
}

static char output[4096];

/* What a program prints when a user executes it, made by `clone` with these flags. */
static const char *output_of(const char *path, const char *name, uint64_t flags, unsigned long persona)
{
    char *words[] = {(char *)path, "--no-fork", (char *)name, NULL};
    int ends[2];
    size_t length = 0;
    ssize_t got;
    CHECK_OK(pipe(ends));
    pid_t child = (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) {
        act_as(USER, NO_CAPABILITIES);
        if (persona)
            personality(persona);
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        execve(path, words, no_words);
        _exit(errno);
    }
    close(ends[1]);
    while ((got = read(ends[0], output + length, sizeof output - 1 - length)) > 0)
        length += (size_t)got;
    output[length] = 0;
    close(ends[0]);
    CHECK_EXITED(child, 0);
    return output;
}

CASE(a_set_user_program_gains_rights_and_is_closed)
{
    scratch();
    copy_program("plain", 0, 0755);
    copy_program("setuid", 0, 04755);
    CHECK_STR(output_of("plain", "show_rights", 0, 0),
              "# 1000 1000 1000 secure 0 dumpable 1 personality 0\nok show_rights\n");
    CHECK_STR(output_of("setuid", "show_rights", 0, 0),
              "# 1000 0 0 secure 1 dumpable 0 personality 0\nok show_rights\n");
}

enum { HELD = 99 };

/* Stays until its caller closes the other end, if there is one. */
CASE(stay_while_held)
{
    char byte;
    while (fcntl(HELD, F_GETFD) != -1 && read(HELD, &byte, 1) > 0)
        ;
}

/* What the user opened of his own process before it gained rights shows nothing of it afterwards. */
CASE(old_descriptors_do_not_show_a_program_that_gained_rights)
{
    static const char *const names[] = {"mem", "maps", "environ", "pagemap", "smaps"};
    enum { NAMES = sizeof names / sizeof *names };
    char path[64];
    int executed[2], held[2], looked[2];
    scratch();
    copy_program("setuid", 0, 04755);
    CHECK_OK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
    CHECK_OK(pipe2(executed, O_CLOEXEC));
    CHECK_OK(pipe2(looked, O_CLOEXEC));
    CHECK_OK(pipe2(held, O_CLOEXEC));
    pid_t child = fork_or_fail();
    if (child == 0) {
        int files[NAMES];
        char *words[] = {"setuid", "--no-fork", "stay_while_held", NULL};
        act_as(USER, NO_CAPABILITIES);
        CHECK_OK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
        for (int i = 0; i < NAMES; i++) {
            snprintf(path, sizeof path, "/proc/self/%s", names[i]);
            files[i] = open(path, i == 0 ? O_RDWR : O_RDONLY);
            CHECK(files[i] >= 0);
        }
        pid_t spy = fork_or_fail();
        if (spy == 0) {
            char text[64];
            close(executed[1]);
            close(held[1]);
            CHECK_EQ(read(executed[0], text, 1), 0);
            for (int i = 0; i < NAMES; i++) {
                ssize_t got = pread(files[i], text, 64, i == 0 ? (off_t)(uintptr_t)secret : 0);
                if (got > 0)
                    FAIL("%s shows nothing, got %zd bytes", names[i], got);
            }
            CHECK(pwrite(files[0], "mine", 4, (off_t)(uintptr_t)secret) <= 0);
            _exit(0);
        }
        CHECK_EQ(dup2(held[0], HELD), HELD);
        execve("setuid", words, no_words);
        _exit(errno);
    }
    char byte;
    int status;
    close(executed[1]);
    close(looked[1]);
    close(held[0]);
    /* The program stays until the spy, its child, has looked. */
    CHECK_EQ(read(looked[0], &byte, 1), 0);
    close(held[1]);
    CHECK_EXITED(child, 0);
    CHECK(wait(&status) > 0);
    CHECK_EQ(status, 0);
}

CASE(who_shares_directories_gains_no_rights)
{
    scratch();
    copy_program("setuid", 0, 04755);
    CHECK_STR(output_of("setuid", "show_rights", CLONE_FS, 0),
              "# 1000 1000 1000 secure 1 dumpable 1 personality 0\nok show_rights\n");
    CHECK_STR(output_of("setuid", "show_rights", 0, 0),
              "# 1000 0 0 secure 1 dumpable 0 personality 0\nok show_rights\n");
}

CASE(who_is_traced_gains_no_rights)
{
    char *words[] = {"setuid", "--no-fork", "show_rights", NULL};
    char text[256] = "";
    int ends[2], status;
    scratch();
    copy_program("setuid", 0, 04755);
    CHECK_OK(pipe(ends));
    AS (USER, NO_CAPABILITIES) {
        pid_t child = fork_or_fail();
        if (child == 0) {
            dup2(ends[1], 1);
            ptrace(PTRACE_TRACEME, 0, 0, 0);
            execve("setuid", words, no_words);
            _exit(errno);
        }
        /* The stop of the new program. */
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
        CHECK_OK(ptrace(PTRACE_DETACH, child, 0, 0));
        CHECK_EXITED(child, 0);
    }
    CHECK(read(ends[0], text, sizeof text - 1) > 0);
    CHECK_STR(text, "# 1000 1000 1000 secure 1 dumpable 1 personality 0\nok show_rights\n");
}

CASE(who_may_more_is_not_traced_by_who_may_less)
{
    AS (USER, NO_CAPABILITIES) {
        CHECK_ERRNO(ptrace(PTRACE_ATTACH, getppid(), 0, 0), EPERM);
    }
    int go[2];
    char byte;
    CHECK_OK(pipe(go));
    pid_t parent = fork_or_fail();
    if (parent == 0) {
        pid_t child = fork_or_fail();
        if (child == 0) {
            CHECK_EQ(read(go[0], &byte, 1), 1);
            errno = 0;
            long answer = ptrace(PTRACE_TRACEME, 0, 0, 0);
            _exit(answer == -1 && errno == EPERM ? 0 : 1);
        }
        act_as(USER, NO_CAPABILITIES);
        CHECK_EQ(write(go[1], "x", 1), 1);
        int status;
        CHECK_EQ(waitpid(child, &status, 0), child);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
    }
    CHECK_EXITED(parent, 0);
}

CASE(a_program_that_cannot_be_read_is_closed)
{
    scratch();
    copy_program("hidden", 0, 0711);
    CHECK_STR(output_of("hidden", "show_rights", 0, 0),
              "# 1000 1000 1000 secure 0 dumpable 0 personality 0\nok show_rights\n");
}

CASE(the_caller_does_not_place_a_set_user_program)
{
    char first[4096];
    int differs = 0;
    scratch();
    copy_program("plain", 0, 0755);
    copy_program("setuid", 0, 04755);
    CHECK_STR(output_of("setuid", "show_rights", 0, ADDR_NO_RANDOMIZE),
              "# 1000 0 0 secure 1 dumpable 0 personality 0\nok show_rights\n");
    strcpy(first, output_of("plain", "show_stack", 0, ADDR_NO_RANDOMIZE));
    CHECK_STR(output_of("plain", "show_stack", 0, ADDR_NO_RANDOMIZE), first);
    strcpy(first, output_of("setuid", "show_stack", 0, ADDR_NO_RANDOMIZE));
    for (int i = 0; i < 4; i++)
        differs |= strcmp(output_of("setuid", "show_stack", 0, ADDR_NO_RANDOMIZE), first) != 0;
    CHECK(differs);
}

/* A program that exits with its effective user id, with or without an interpreter. */
static void write_tiny_program(const char *path, const char *interpreter, uint64_t base, mode_t mode)
{
    static const unsigned char code[] = {
        0xb8, 107, 0, 0, 0, 0x0f, 0x05,              /* geteuid */
        0x89, 0xc7, 0xb8, 60, 0, 0, 0, 0x0f, 0x05};  /* exit */
    char image[1024] = {0};
    Elf64_Ehdr *header = (void *)image;
    Elf64_Phdr *program = (void *)(image + sizeof *header);
    memcpy(header->e_ident, "\177ELF\2\1\1", 7);
    header->e_type = ET_EXEC;
    header->e_machine = EM_X86_64;
    header->e_version = 1;
    header->e_entry = base + 512;
    header->e_phoff = sizeof *header;
    header->e_ehsize = sizeof *header;
    header->e_phentsize = sizeof *program;
    if (interpreter) {
        strcpy(image + 256, interpreter);
        *program++ = (Elf64_Phdr){PT_INTERP, PF_R, 256, base + 256, base + 256,
                                  strlen(interpreter) + 1, strlen(interpreter) + 1, 1};
    }
    *program++ = (Elf64_Phdr){PT_LOAD, PF_R | PF_X, 0, base, base, sizeof image, sizeof image, 4096};
    header->e_phnum = (uint16_t)(interpreter ? 2 : 1);
    memcpy(image + 512, code, sizeof code);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0700);
    CHECK_OK(fd);
    CHECK_EQ(write(fd, image, sizeof image), sizeof image);
    CHECK_OK(fchmod(fd, mode));
    close(fd);
}

CASE(rights_come_from_the_file_that_was_opened)
{
    char directory[128], interpreter[192];
    scratch();
    CHECK(getcwd(directory, sizeof directory) != NULL);
    snprintf(interpreter, sizeof interpreter, "%s/X (deleted)", directory);
    write_tiny_program(interpreter, NULL, 0x20000000, 04755);
    write_tiny_program("X", interpreter, 0x10000000, 0755);
    AS (USER, NO_CAPABILITIES) {
        pid_t child = fork_or_fail();
        if (child == 0) {
            execv(interpreter, no_words);
            _exit(1);
        }
        CHECK_EXITED(child, 0); /* By itself it is the superuser's. */
    }
    int fd = open("X", O_RDONLY | O_CLOEXEC);
    CHECK_OK(fd);
    CHECK_OK(unlink("X"));
    AS (USER, NO_CAPABILITIES) {
        pid_t child = fork_or_fail();
        if (child == 0) {
            syscall(SYS_execveat, fd, "", no_words, no_words, AT_EMPTY_PATH);
            _exit(1);
        }
        CHECK_EXITED(child, USER & 0xff);
    }
}

CASE(maps_show_no_address_of_the_kernel)
{
    char text[16384], *line;
    void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    slurp("/proc/self/maps", text, sizeof text);
    int seen = 0;
    for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned long start, end, offset, inode;
        unsigned major, minor;
        char rights[8];
        CHECK_EQ(sscanf(line, "%lx-%lx %7s %lx %x:%x %lu", &start, &end, rights, &offset, &major, &minor,
                        &inode),
                 7);
        CHECK(inode < 1ul << 40);
        seen |= start == (unsigned long)shared;
    }
    CHECK(seen);
}

CASE(a_name_makes_no_lines_of_status)
{
    char text[4000];
    CHECK_OK(prctl(PR_SET_NAME, "a\nUid:\t7\\", 0, 0, 0));
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t length = read(fd, text, sizeof text - 1);
    CHECK(length > 0);
    text[length] = 0;
    CHECK(strncmp(text, "Name:\ta\\nUid:\t7\\\\\n", 18) == 0);
}
