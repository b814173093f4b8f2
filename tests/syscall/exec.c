/* execve execveat: arguments, environment, auxiliary vector, what survives, `#!` scripts, and every
 * kind of file that is not a program: corrupt, truncated, foreign and hostile ELF files.
 * Most cases run /proc/self/exe again; scripts need /bin/busybox. */
#include "harness.h"
#include <elf.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>

static char *const no_words[] = {NULL};

/* Executes a file in a child and returns what it printed, or which error that was. */
static const char *output_of(const char *path, char **words, char *const *environment)
{
    static char output[4096];
    int ends[2];
    size_t length = 0;
    ssize_t got;
    CHECK_OK(pipe(ends));
    pid_t child = fork_or_fail();
    if (child == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        execve(path, words, environment);
        snprintf(output, sizeof output, "errno %d", errno);
        harness_put(output);
        _exit(0);
    }
    close(ends[1]);
    while ((got = read(ends[0], output + length, sizeof output - 1 - length)) > 0)
        length += (size_t)got;
    output[length] = 0;
    close(ends[0]);
    CHECK_EXITED(child, 0);
    return output;
}

/* Runs this program's case in a new image and returns what it printed. */
static const char *run_again(const char *name, char **environment)
{
    char *words[] = {"exec", "--no-fork", (char *)name, NULL};
    return output_of("/proc/self/exe", words, environment);
}

/* The errno of executing this file in a child; 0 if it ran and exited with 0. */
static int errno_of_executing(const char *path)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        char *words[] = {(char *)path, NULL};
        execve(path, words, no_words);
        _exit(errno);
    }
    int status = harness_wait(child);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

CASE(show_environment)
{
    extern char **environ;
    for (char **entry = environ; *entry; entry++) {
        harness_put("# ");
        harness_put(*entry);
        harness_put("\n");
    }
}

CASE(environment_is_passed)
{
    char *environment[] = {"A=1", "EMPTY=", "odd", NULL};
    CHECK_STR(run_again("show_environment", environment), "# A=1\n# EMPTY=\n# odd\nok show_environment\n");
    CHECK_STR(run_again("show_environment", (char **)no_words), "ok show_environment\n");
}

CASE(auxiliary_vector)
{
    CHECK_EQ(getauxval(AT_PAGESZ), 4096);
    CHECK_EQ(getauxval(AT_UID), 0);
    CHECK_EQ(getauxval(AT_EUID), 0);
    CHECK_EQ(getauxval(AT_GID), 0);
    CHECK_EQ(getauxval(AT_SECURE), 0);
    CHECK_EQ(getauxval(AT_CLKTCK), 100);
    CHECK_EQ(getauxval(AT_PHENT), sizeof(Elf64_Phdr));
    CHECK(getauxval(AT_PHNUM) >= 2);
    CHECK(getauxval(AT_ENTRY) != 0);
    CHECK(getauxval(AT_HWCAP) != 0);
    CHECK(getauxval(AT_SYSINFO_EHDR) != 0);
    const Elf64_Phdr *headers = (void *)getauxval(AT_PHDR);
    int loads = 0;
    for (unsigned long i = 0; i < getauxval(AT_PHNUM); i++)
        loads += headers[i].p_type == PT_LOAD;
    CHECK(loads >= 1);
    const unsigned char *random = (void *)getauxval(AT_RANDOM);
    int differs = 0;
    for (int i = 1; i < 16; i++)
        differs |= random[i] != random[0];
    CHECK(differs);
    CHECK_STR((char *)getauxval(AT_PLATFORM), "x86_64");
    CHECK(strlen((char *)getauxval(AT_EXECFN)) > 0);
}

CASE(vdso_is_an_elf_file)
{
    const unsigned char *image = (void *)getauxval(AT_SYSINFO_EHDR);
    CHECK(image && memcmp(image, "\177ELF\2\1", 6) == 0);
}

CASE(show_survivors)
{
    char text[200];
    sigset_t blocked, pending;
    struct sigaction ignored, handled;
    struct rlimit limit;
    mode_t mask = umask(0);
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    sigpending(&pending);
    sigaction(SIGUSR1, NULL, &ignored);
    sigaction(SIGUSR2, NULL, &handled);
    getrlimit(RLIMIT_NOFILE, &limit);
    snprintf(text, sizeof text, "# %o %d %d %d %d %d %d %d %d\n", (unsigned)mask,
             sigismember(&blocked, SIGHUP), sigismember(&pending, SIGHUP),
             ignored.sa_handler == SIG_IGN, handled.sa_handler == SIG_DFL,
             fcntl(40, F_GETFD) == 0, fcntl(41, F_GETFD) == -1, (int)limit.rlim_cur,
             alarm(0) > 0);
    harness_put(text);
}

static void on_signal(int number)
{
    (void)number;
}

CASE(what_survives_exec)
{
    sigset_t set;
    struct rlimit limit = {77, 100};
    umask(027);
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGHUP);
    signal(SIGUSR1, SIG_IGN);
    signal(SIGUSR2, on_signal);
    dup2(0, 40);
    fcntl(dup2(0, 41), F_SETFD, FD_CLOEXEC);
    setrlimit(RLIMIT_NOFILE, &limit);
    int ends[2];
    CHECK_OK(pipe(ends));
    pid_t self = getpid(), child = fork_or_fail();
    if (child == 0) {
        char *words[] = {"exec", "--no-fork", "show_survivors", NULL};
        raise(SIGHUP);
        alarm(50);
        dup2(ends[1], 1);
        execve("/proc/self/exe", words, no_words);
        _exit(1);
    }
    CHECK_EXITED(child, 0);
    char text[300] = {0};
    CHECK(read(ends[0], text, sizeof text - 1) > 0);
    CHECK_STR(text, "# 27 1 1 1 1 1 1 77 1\nok show_survivors\n");
    CHECK_EQ(getpid(), self);
}

CASE(errors_of_execve)
{
    scratch();
    close(file_with("plain", "#!/bin/busybox true\n", 20));
    CHECK_EQ(errno_of_executing("plain"), EACCES);
    CHECK_EQ(errno_of_executing("none"), ENOENT);
    CHECK_EQ(errno_of_executing("."), EACCES);
    CHECK_EQ(errno_of_executing("plain/x"), ENOTDIR);
    CHECK_OK(chmod("plain", 0755));
    CHECK_OK(symlink("loop", "loop"));
    CHECK_EQ(errno_of_executing("loop"), ELOOP);
    CHECK_ERRNO(syscall(SYS_execve, BAD_LOW, no_words, no_words), EFAULT);
    CHECK_ERRNO(syscall(SYS_execve, "plain", BAD_LOW, no_words), EFAULT);
    CHECK_ERRNO(syscall(SYS_execve, "plain", no_words, BAD_KERNEL), EFAULT);
    char *bad_word[] = {BAD_LOW, NULL};
    CHECK_ERRNO(syscall(SYS_execve, "plain", bad_word, no_words), EFAULT);
    CHECK_ERRNO(syscall(SYS_execve, "", no_words, no_words), ENOENT);
}

CASE(too_many_arguments)
{
    enum { WORDS = 40000 };
    static char *words[WORDS + 1];
    static char word[300];
    memset(word, 'w', sizeof word - 1);
    for (int i = 0; i < WORDS; i++)
        words[i] = word; /* 12 MB, more than a quarter of the stack's limit. */
    CHECK_ERRNO(execve("/proc/self/exe", words, no_words), E2BIG);
    static char huge[140000];
    memset(huge, 'h', sizeof huge - 1);
    char *one[] = {"exec", huge, NULL};
    CHECK_ERRNO(execve("/proc/self/exe", one, no_words), E2BIG);
}

CASE(many_arguments_pass)
{
    enum { WORDS = 2000 };
    static char *words[WORDS + 3];
    words[0] = "sh";
    scratch();
    /* Needs /bin/busybox. */
    close(file_with("count", "#!/bin/busybox sh\n[ $# = 2000 ] && [ \"${1999}\" = word ]\n", 58));
    CHECK_OK(chmod("count", 0755));
    words[0] = "count";
    for (int i = 1; i <= WORDS; i++)
        words[i] = "word";
    pid_t child = fork_or_fail();
    if (child == 0) {
        execve("count", words, no_words);
        _exit(98);
    }
    CHECK_EXITED(child, 0);
}

/* Reads this program into memory. */
static unsigned char *own_image(size_t *size)
{
    struct stat status;
    int fd = open("/proc/self/exe", O_RDONLY);
    CHECK(fd >= 0);
    CHECK_OK(fstat(fd, &status));
    unsigned char *image = malloc((size_t)status.st_size);
    size_t done = 0;
    while (done < (size_t)status.st_size) {
        ssize_t got = read(fd, image + done, (size_t)status.st_size - done);
        CHECK(got > 0);
        done += (size_t)got;
    }
    close(fd);
    *size = done;
    return image;
}

static int errno_of_image(const void *image, size_t size)
{
    int fd = open("image", O_WRONLY | O_CREAT | O_TRUNC, 0755);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, image, size), size);
    close(fd);
    return errno_of_executing("image");
}

CASE(not_a_program)
{
    scratch();
    CHECK_EQ(errno_of_image("", 0), ENOEXEC);
    CHECK_EQ(errno_of_image("hello", 5), ENOEXEC);
    CHECK_EQ(errno_of_image("\177ELF", 4), ENOEXEC);
    CHECK_EQ(errno_of_image("#", 1), ENOEXEC);
    CHECK_EQ(errno_of_image("#!   \n", 6), ENOEXEC);
    CHECK_EQ(errno_of_image("MZ\0\0", 4), ENOEXEC);
}

CASE(truncated_elf)
{
    size_t size;
    unsigned char *image = own_image(&size);
    size_t lengths[] = {5, 16, 40, 63};
    scratch();
    for (size_t i = 0; i < 4; i++)
        CHECK_EQ(errno_of_image(image, lengths[i]), ENOEXEC);
    /* Program headers beyond the end of the file. */
    int result = errno_of_image(image, 64);
    CHECK(result == ENOEXEC || result == EIO);
    CHECK_EQ(errno_of_image(image, 100) == ENOEXEC || errno_of_image(image, 100) == EIO, 1);
}

CASE(foreign_elf)
{
    size_t size;
    unsigned char *image = own_image(&size);
    Elf64_Ehdr *header = (void *)image;
    Elf64_Ehdr saved = *header;
    scratch();
    header->e_machine = EM_AARCH64;
    CHECK_EQ(errno_of_image(image, 4096), ENOEXEC);
    *header = saved;
    header->e_type = ET_REL;
    CHECK_EQ(errno_of_image(image, 4096), ENOEXEC);
    header->e_type = ET_CORE;
    CHECK_EQ(errno_of_image(image, 4096), ENOEXEC);
    *header = saved;
    header->e_phentsize = 1;
    CHECK_EQ(errno_of_image(image, 4096), ENOEXEC);
    *header = saved;
    header->e_phnum = 0;
    CHECK_EQ(errno_of_image(image, 4096), ENOEXEC);
    header->e_phnum = 0xffff;
    CHECK_EQ(errno_of_image(image, 4096), ENOEXEC);
    *header = saved;
    header->e_phoff = ~0UL - 10;
    int result = errno_of_image(image, 4096);
    CHECK(result == ENOEXEC || result == EIO || result == EINVAL);
}

/* The image either cannot be executed or its process dies; nothing else happens. */
static void check_harmless(const void *image, size_t size, const char *what)
{
    struct stat status_before;
    int fd = open("image", O_WRONLY | O_CREAT, 0755);
    CHECK(fd >= 0);
    CHECK_OK(fstat(fd, &status_before));
    /* Only headers change from one image to the next. */
    size_t changed = (size_t)status_before.st_size == size ? 4096 : size;
    CHECK_EQ(write(fd, image, changed), changed);
    close(fd);
    pid_t child = fork_or_fail();
    if (child == 0) {
        char *words[] = {"image", "--list", NULL};
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        dup2(null, 2);
        alarm(5);
        execve("image", words, no_words);
        _exit(200 + (errno == ENOEXEC || errno == EIO || errno == ENOMEM || errno == EINVAL ||
                     errno == EFAULT || errno == EACCES || errno == ENOENT || errno == ELIBBAD ||
                     errno == EPERM || errno == EOVERFLOW));
    }
    int status = harness_wait(child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 200)
        FAIL("%s is refused with a proper errno", what);
    CHECK(WIFEXITED(status) || WIFSIGNALED(status));
}

CASE(hostile_program_headers)
{
    size_t size;
    unsigned char *image = own_image(&size);
    Elf64_Ehdr *header = (void *)image;
    Elf64_Phdr *first = (void *)(image + header->e_phoff);
    scratch();
    for (int i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr saved = first[i];
        if (saved.p_type != PT_LOAD)
            continue;
        uint64_t values[] = {0, 0xfff, 0x7ffffffff000, 0x800000000000, 0xffff800000000000, ~0UL};
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            first[i].p_vaddr = values[v];
            check_harmless(image, size, "a strange address");
            first[i] = saved;
            first[i].p_memsz = values[v];
            check_harmless(image, size, "a strange size in memory");
            first[i] = saved;
            first[i].p_filesz = values[v];
            check_harmless(image, size, "a strange size in the file");
            first[i] = saved;
            first[i].p_offset = values[v];
            check_harmless(image, size, "a strange offset");
            first[i] = saved;
            first[i].p_align = values[v];
            check_harmless(image, size, "a strange alignment");
            first[i] = saved;
        }
        first[i].p_flags = 0;
        check_harmless(image, size, "no rights");
        first[i] = saved;
        break;
    }
}

CASE(hostile_entry_points)
{
    size_t size;
    unsigned char *image = own_image(&size);
    Elf64_Ehdr *header = (void *)image;
    uint64_t values[] = {0, 1, 0x800000000000, 0xffffffff80000000, ~0UL};
    scratch();
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        header->e_entry = values[v];
        check_harmless(image, size, "a strange entry point");
    }
}

CASE(random_damage_to_elf_headers)
{
    size_t size;
    unsigned char *image = own_image(&size), saved[1024];
    uint64_t state = 88172645463325252u;
    scratch();
    memcpy(saved, image, sizeof saved);
    for (int round = 0; round < 40; round++) {
        for (int change = 0; change < 1 + round % 4; change++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            image[state % (round % 2 ? 64 : 500)] = (unsigned char)(state >> 32);
        }
        check_harmless(image, size, "random damage");
        memcpy(image, saved, sizeof saved);
    }
}

CASE(interpreter_that_is_not_there)
{
    struct {
        Elf64_Ehdr header;
        Elf64_Phdr segments[2];
        char interpreter[64];
    } image;
    scratch();
    memset(&image, 0, sizeof image);
    memcpy(image.header.e_ident, "\177ELF\2\1\1", 7);
    image.header.e_type = ET_DYN;
    image.header.e_machine = EM_X86_64;
    image.header.e_version = 1;
    image.header.e_phoff = sizeof image.header;
    image.header.e_ehsize = sizeof image.header;
    image.header.e_phentsize = sizeof(Elf64_Phdr);
    image.header.e_phnum = 2;
    image.segments[0] = (Elf64_Phdr){.p_type = PT_INTERP, .p_flags = PF_R,
                                     .p_offset = sizeof image.header + sizeof image.segments,
                                     .p_filesz = 13, .p_memsz = 13};
    image.segments[1] = (Elf64_Phdr){.p_type = PT_LOAD, .p_flags = PF_R | PF_X,
                                     .p_filesz = sizeof image, .p_memsz = sizeof image,
                                     .p_align = 4096};
    strcpy(image.interpreter, "/tmp/no-such");
    CHECK_EQ(errno_of_image(&image, sizeof image), ENOENT);
    image.interpreter[12] = 'x'; /* Not terminated. */
    CHECK_EQ(errno_of_image(&image, sizeof image), ENOEXEC);
    image.segments[0].p_filesz = 1 << 20;
    CHECK_EQ(errno_of_image(&image, sizeof image), ENOEXEC);
    image.segments[0].p_filesz = 0;
    CHECK_EQ(errno_of_image(&image, sizeof image), ENOEXEC);
}

static void script(const char *path, const char *text)
{
    close(file_with(path, text, strlen(text)));
    CHECK_OK(chmod(path, 0755));
}

CASE(scripts)
{
    /* Needs /bin/busybox. */
    char *words[] = {"./s", "one", "two words", NULL};
    scratch();
    script("s", "#!/bin/busybox sh\necho \"$0|$1|$2|$#\"\n");
    CHECK_STR(output_of(words[0], words, no_words), "./s|one|two words|2\n");
    /* One argument for the interpreter at most: blanks inside are kept, blanks around dropped. */
    char cwd[200], text[300];
    CHECK(getcwd(cwd, sizeof cwd));
    script("show", "#!/bin/busybox sh\nfor word; do echo \"[$word]\"; done\n");
    snprintf(text, sizeof text, "#! \t%s/show   a  b \t\n", cwd);
    script("s", text);
    CHECK_STR(output_of(words[0], words, no_words), "[a  b]\n[./s]\n[one]\n[two words]\n");
    script("e", "#!/bin/busybox echo\n");
    words[0] = "./e";
    CHECK_STR(output_of(words[0], words, no_words), "./e one two words\n");
    script("n", "#!/bin/busybox echo"); /* No newline at the end. */
    words[0] = "./n";
    CHECK_STR(output_of(words[0], words, no_words), "./n one two words\n");
    script("m", "#!/tmp/no-such-interpreter\n");
    words[0] = "./m";
    CHECK_STR(output_of(words[0], words, no_words), "errno 2");
    script("d", "#!/tmp\n");
    words[0] = "./d";
    CHECK_STR(output_of(words[0], words, no_words), "errno 13");
}

CASE(script_of_scripts)
{
    /* Needs /bin/busybox. A script may be another's interpreter, but not without end. */
    char *words[] = {"./s0", NULL};
    char path[300], text[500], cwd[200];
    scratch();
    CHECK(getcwd(cwd, sizeof cwd));
    script("s0", "#!/bin/busybox echo\n");
    for (int i = 1; i <= 6; i++) {
        snprintf(path, sizeof path, "s%d", i);
        snprintf(text, sizeof text, "#!%s/s%d\n", cwd, i - 1);
        script(path, text);
    }
    words[0] = "./s2";
    snprintf(text, sizeof text, "%s/s0 %s/s1 ./s2\n", cwd, cwd);
    CHECK_STR(output_of(words[0], words, no_words), text);
    words[0] = "./s6";
    CHECK_STR(output_of(words[0], words, no_words), "errno 40"); /* ELOOP */
    snprintf(text, sizeof text, "#!%s/self\n", cwd);
    script("self", text);
    words[0] = "./self";
    CHECK_STR(output_of(words[0], words, no_words), "errno 40");
}

CASE(execveat_forms)
{
    scratch();
    int fd = open("/proc/self/exe", O_RDONLY), directory = open("/proc/self", O_RDONLY | O_DIRECTORY);
    char *words[] = {"exec", "--no-fork", "vdso_is_an_elf_file", NULL};
    pid_t child = fork_or_fail();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), 1);
        syscall(SYS_execveat, fd, "", words, no_words, AT_EMPTY_PATH);
        _exit(1);
    }
    CHECK_EXITED(child, 0);
    child = fork_or_fail();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), 1);
        syscall(SYS_execveat, directory, "exe", words, no_words, 0);
        _exit(1);
    }
    CHECK_EXITED(child, 0);
    CHECK_ERRNO(syscall(SYS_execveat, fd, "", words, no_words, 0), ENOENT);
    CHECK_ERRNO(syscall(SYS_execveat, 1000, "x", words, no_words, 0), EBADF);
    CHECK_ERRNO(syscall(SYS_execveat, fd, "x", words, no_words, 0), ENOTDIR);
    CHECK_ERRNO(syscall(SYS_execveat, fd, "x", words, no_words, 0x1), EINVAL);
    CHECK_ERRNO(syscall(SYS_execveat, directory, "exe", words, no_words, AT_SYMLINK_NOFOLLOW), ELOOP);
}

CASE(running_program_cannot_be_written)
{
    size_t size;
    unsigned char *image = own_image(&size);
    scratch();
    int fd = open("image", O_WRONLY | O_CREAT, 0755);
    CHECK_EQ(write(fd, image, size), size);
    CHECK_EQ(errno_of_executing("image"), ETXTBSY); /* A writer has it open. */
    close(fd);
    int ends[2];
    CHECK_OK(pipe(ends));
    pid_t child = fork_or_fail();
    if (child == 0) {
        char *words[] = {"image", "--no-fork", "wait_for_ever", NULL};
        char *environment[] = {"WAIT=1", NULL};
        dup2(ends[1], 1);
        execve("image", words, environment);
        _exit(1);
    }
    char byte;
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    CHECK_ERRNO(open("image", O_WRONLY), ETXTBSY);
    CHECK_OK(unlink("image"));
    kill(child, SIGKILL);
    CHECK_KILLED(child, SIGKILL);
}

CASE(wait_for_ever)
{
    /* For the case above; alone it ends at once. */
    if (!getenv("WAIT"))
        return;
    harness_put("r");
    for (;;)
        pause();
}

CASE(set_user_id_programs)
{
    size_t size;
    unsigned char *image = own_image(&size);
    char *words[] = {"./image", "--no-fork", "show_identity", NULL};
    scratch();
    int fd = open("image", O_WRONLY | O_CREAT, 0755);
    CHECK_EQ(write(fd, image, size), size);
    close(fd);
    CHECK_OK(chown("image", 1234, 1235));
    CHECK_OK(chmod("image", 06755));
    CHECK_STR(output_of(words[0], words, no_words), "# 0 1234 1234 0 1235 1235 1\nok show_identity\n");
}

CASE(show_identity)
{
    char text[100];
    uid_t user[3];
    gid_t group[3];
    getresuid(&user[0], &user[1], &user[2]);
    getresgid(&group[0], &group[1], &group[2]);
    snprintf(text, sizeof text, "# %d %d %d %d %d %d %d\n", (int)user[0], (int)user[1], (int)user[2],
             (int)group[0], (int)group[1], (int)group[2], (int)getauxval(AT_SECURE));
    harness_put(text);
}

CASE(vfork_and_exec)
{
    char *words[] = {"exec", "--list", NULL};
    int null = open("/dev/null", O_WRONLY);
    pid_t child = vfork();
    if (child == 0) {
        dup2(null, 1);
        execve("/proc/self/exe", words, no_words);
        _exit(1);
    }
    CHECK_EXITED(child, 0);
    child = vfork();
    if (child == 0) {
        execve("/tmp/none", words, no_words);
        _exit(errno);
    }
    CHECK_EXITED(child, ENOENT);
}

/* The end of a child that the former program made comes by this signal; 0 when there is none. */
CASE(show_signal_of_child)
{
    char text[40];
    int number = 0;
    sigset_t set;
    struct timespec patience = {20, 0};
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGCHLD);
    if (close(41) == 0)
        number = sigtimedwait(&set, NULL, &patience);
    snprintf(text, sizeof text, "# %d\n", number);
    harness_put(text);
}

/* Who made a child to send it a signal must not send that to another program, which may do more. */
CASE(children_tell_a_new_program_by_sigchld)
{
    int ends[2], output[2];
    sigset_t set;
    char text[100] = {0};
    CHECK_OK(pipe(ends));
    CHECK_OK(pipe(output));
    pid_t former = fork_or_fail();
    if (former == 0) {
        char *words[] = {"exec", "--no-fork", "show_signal_of_child", NULL};
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigaddset(&set, SIGCHLD);
        sigprocmask(SIG_BLOCK, &set, NULL);
        dup2(ends[1], 41);
        close(ends[1]);
        if (syscall(SYS_clone, SIGUSR1, 0, 0, 0, 0) == 0) {
            close(41);
            _exit((int)read(ends[0], text, 1));
        }
        dup2(output[1], 1);
        execve("/proc/self/exe", words, no_words);
        _exit(1);
    }
    close(ends[1]);
    CHECK_EXITED(former, 0);
    CHECK(read(output[0], text, sizeof text - 1) > 0);
    CHECK_STR(text, "# 17\nok show_signal_of_child\n");
}

CASE(exec_many_times)
{
    char *words[] = {"exec", "--list", NULL};
    int null = open("/dev/null", O_WRONLY);
    for (int i = 0; i < 30; i++) {
        pid_t child = fork_or_fail();
        if (child == 0) {
            dup2(null, 1);
            execve("/proc/self/exe", words, no_words);
            _exit(1);
        }
        CHECK_EXITED(child, 0);
    }
}
