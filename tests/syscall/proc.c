/* /proc: what programs read there, in the forms that they parse. */
#include "harness.h"
#include <dirent.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sysinfo.h>

static char text[262144];

/* The value after `NAME:` in a file of such lines; NULL if there is none. */
static const char *field(const char *path, const char *name)
{
    static char value[200];
    size_t length = strlen(name);
    slurp(path, text, sizeof text);
    for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, name, length) == 0 && line[length] == ':') {
            line += length + 1;
            while (*line == ' ' || *line == '\t')
                line++;
            size_t size = strcspn(line, "\n");
            if (size >= sizeof value)
                size = sizeof value - 1;
            memcpy(value, line, size);
            value[size] = 0;
            return value;
        }
    }
    return NULL;
}

CASE(self_is_a_link_to_the_process)
{
    char target[40] = {0}, expected[40];
    CHECK(readlink("/proc/self", target, sizeof target - 1) > 0);
    snprintf(expected, sizeof expected, "%d", (int)getpid());
    CHECK_STR(target, expected);
    memset(target, 0, sizeof target);
    CHECK(readlink("/proc/thread-self", target, sizeof target - 1) > 0);
    snprintf(expected, sizeof expected, "%d/task/%d", (int)getpid(), (int)getpid());
    CHECK_STR(target, expected);
}

CASE(status_fields)
{
    char expected[40];
    prctl(PR_SET_NAME, "a name");
    CHECK_STR(field("/proc/self/status", "Name"), "a name");
    CHECK_STR(field("/proc/self/status", "State"), "R (running)");
    snprintf(expected, sizeof expected, "%d", (int)getpid());
    CHECK_STR(field("/proc/self/status", "Pid"), expected);
    CHECK_STR(field("/proc/self/status", "Tgid"), expected);
    snprintf(expected, sizeof expected, "%d", (int)getppid());
    CHECK_STR(field("/proc/self/status", "PPid"), expected);
    CHECK_STR(field("/proc/self/status", "Uid"), "0\t0\t0\t0");
    CHECK_STR(field("/proc/self/status", "Gid"), "0\t0\t0\t0");
    CHECK_STR(field("/proc/self/status", "Threads"), "1");
    CHECK(atol(field("/proc/self/status", "VmSize")) > 0);
    CHECK(atol(field("/proc/self/status", "VmRSS")) >= 0);
    CHECK_EQ(strlen(field("/proc/self/status", "SigBlk")), 16);
    CHECK(field("/proc/self/status", "SigCgt") != NULL);
    CHECK(field("/proc/self/status", "Cpus_allowed_list") != NULL);
}

CASE(stat_fields)
{
    char name[64];
    char state;
    int pid, parent, group, session;
    prctl(PR_SET_NAME, "odd) (name");
    slurp("/proc/self/stat", text, sizeof text);
    char *close_bracket = strrchr(text, ')');
    CHECK(close_bracket != NULL);
    *close_bracket = 0;
    CHECK_EQ(sscanf(text, "%d (%63[^\n]", &pid, name), 2);
    CHECK_EQ(pid, getpid());
    CHECK_STR(name, "odd) (name");
    CHECK_EQ(sscanf(close_bracket + 1, " %c %d %d %d", &state, &parent, &group, &session), 4);
    CHECK_EQ(state, 'R');
    CHECK_EQ(parent, getppid());
    CHECK_EQ(group, getpgrp());
    CHECK_EQ(session, getsid(0));
    int fields = 2;
    for (char *word = strtok(close_bracket + 1, " \n"); word; word = strtok(NULL, " \n"))
        fields++;
    CHECK_EQ(fields, 52);
}

CASE(state_of_others)
{
    char path[64];
    int status;
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (;;)
            pause();
    }
    snprintf(path, sizeof path, "/proc/%d/status", (int)child);
    while (field(path, "State")[0] != 'S')
        ;
    kill(child, SIGSTOP);
    waitpid(child, &status, WUNTRACED);
    CHECK_STR(field(path, "State"), "T (stopped)");
    kill(child, SIGKILL);
    siginfo_t information;
    CHECK_OK(waitid(P_PID, (id_t)child, &information, WEXITED | WNOWAIT));
    CHECK_STR(field(path, "State"), "Z (zombie)");
    CHECK_KILLED(child, SIGKILL);
    CHECK_ERRNO(open(path, O_RDONLY), ENOENT);
}

CASE(open_files_of_a_dead_process)
{
    char path[64], byte;
    pid_t child = fork_or_fail();
    if (child == 0) {
        for (;;)
            pause();
    }
    snprintf(path, sizeof path, "/proc/%d/stat", (int)child);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    kill(child, SIGKILL);
    CHECK_KILLED(child, SIGKILL);
    CHECK_ERRNO(read(fd, &byte, 1), ESRCH);
}

CASE(cmdline_and_comm)
{
    int ends[2];
    char path[64];
    CHECK_OK(pipe(ends));
    pid_t child = fork_or_fail();
    if (child == 0) {
        close(ends[0]);
        fcntl(ends[1], F_SETFD, FD_CLOEXEC);
        /* Needs /bin/busybox. */
        execl("/bin/busybox", "sleep", "1000", "0", (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    CHECK_EQ(read(ends[0], path, 1), 0); /* It has executed. */
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)child);
    CHECK_EQ(slurp(path, text, sizeof text), 13);
    CHECK(memcmp(text, "sleep\0001000\0000\0", 13) == 0);
    snprintf(path, sizeof path, "/proc/%d/comm", (int)child);
    slurp(path, text, sizeof text);
    CHECK_STR(text, "busybox\n");
    char target[64] = {0};
    snprintf(path, sizeof path, "/proc/%d/exe", (int)child);
    CHECK(readlink(path, target, sizeof target - 1) > 0);
    CHECK(strstr(target, "/busybox") != NULL);
    kill(child, SIGKILL);
    CHECK_KILLED(child, SIGKILL);
}

CASE(comm_can_be_written)
{
    char name[17] = {0};
    int fd = open("/proc/self/comm", O_WRONLY);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, "renamed", 7), 7);
    CHECK_OK(prctl(PR_GET_NAME, name));
    CHECK_STR(name, "renamed");
}

CASE(fd_links)
{
    char path[64], target[300], cwd[200], expected[300];
    int ends[2];
    scratch();
    CHECK(getcwd(cwd, sizeof cwd));
    int fd = file_with("f", "content", 7);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, target, sizeof target - 1);
    CHECK(length > 0);
    target[length] = 0;
    snprintf(expected, sizeof expected, "%s/f", cwd);
    CHECK_STR(target, expected);
    int again = open(path, O_RDONLY); /* Opens the file anew. */
    CHECK(again >= 0);
    CHECK_EQ(read(again, target, 100), 7);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 0);
    CHECK_OK(unlink("f"));
    length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = 0;
    strcat(expected, " (deleted)");
    CHECK_STR(target, expected);
    again = open(path, O_RDONLY);
    CHECK(again >= 0);
    CHECK_EQ(read(again, target, 100), 7);
    CHECK_OK(pipe(ends));
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = 0;
    CHECK(strncmp(target, "pipe:[", 6) == 0);
    CHECK_ERRNO(readlink("/proc/self/fd/999", target, 100), ENOENT);
    struct stat status;
    CHECK_OK(stat(path, &status));
    CHECK(S_ISFIFO(status.st_mode));
    CHECK_OK(lstat(path, &status));
    CHECK(S_ISLNK(status.st_mode));
}

CASE(fd_directory_lists_descriptors)
{
    int seen = 0;
    DIR *directory = opendir("/proc/self/fd");
    CHECK(directory);
    struct dirent *entry;
    while ((entry = readdir(directory)))
        if (atoi(entry->d_name) < 3 && entry->d_name[0] != '.')
            seen |= 1 << atoi(entry->d_name);
    closedir(directory);
    CHECK_EQ(seen, 7);
}

CASE(cwd_exe_and_root_links)
{
    char target[300], cwd[300];
    scratch();
    CHECK(getcwd(cwd, sizeof cwd));
    ssize_t length = readlink("/proc/self/cwd", target, sizeof target - 1);
    CHECK(length > 0);
    target[length] = 0;
    CHECK_STR(target, cwd);
    length = readlink("/proc/self/exe", target, sizeof target - 1);
    CHECK(length > 5);
    target[length] = 0;
    CHECK_STR(target + length - 5, "/proc");
    length = readlink("/proc/self/root", target, sizeof target - 1);
    CHECK_EQ(length, 1);
    CHECK_EQ(target[0], '/');
}

CASE(maps_show_areas)
{
    char expected[100];
    char *memory = mmap(NULL, 3 * 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *other = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && other != MAP_FAILED);
    slurp("/proc/self/maps", text, sizeof text);
    snprintf(expected, sizeof expected, "%lx-%lx r--s ", (unsigned long)memory, (unsigned long)memory + 3 * 4096);
    CHECK(strstr(text, expected) != NULL);
    snprintf(expected, sizeof expected, "%lx-", (unsigned long)other);
    CHECK(strstr(text, "---p 00000000 00:00 0") != NULL);
    CHECK(strstr(text, "[stack]\n") != NULL);
    CHECK(strstr(text, "[vdso]\n") != NULL);
    CHECK(strstr(text, "r-xp") != NULL);
    CHECK(strstr(text, "/proc\n") != NULL); /* This program's name. */
    unsigned long last = 0, start, end;
    for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        CHECK_EQ(sscanf(line, "%lx-%lx", &start, &end), 2);
        CHECK(start >= last && end > start);
        last = end;
    }
    CHECK(strstr(text, "w") != NULL);
}

CASE(maps_name_files)
{
    char expected[300], cwd[200];
    scratch();
    CHECK(getcwd(cwd, sizeof cwd));
    int fd = file_with("mapped file", "0123456789", 10);
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
    slurp("/proc/self/maps", text, sizeof text);
    snprintf(expected, sizeof expected, "%s/mapped file\n", cwd);
    CHECK(strstr(text, expected) != NULL);
}

CASE(global_files)
{
    struct sysinfo now;
    double uptime, idle, loads[3];
    int running, all, last;
    CHECK_OK(sysinfo(&now));
    CHECK_EQ(atol(field("/proc/meminfo", "MemTotal")), now.totalram * now.mem_unit / 1024);
    CHECK(atol(field("/proc/meminfo", "MemFree")) > 0);
    CHECK(atol(field("/proc/meminfo", "MemAvailable")) > 0);
    CHECK(strstr(field("/proc/meminfo", "MemTotal"), " kB") != NULL);
    CHECK(field("/proc/meminfo", "Buffers") != NULL);
    CHECK(field("/proc/meminfo", "Cached") != NULL);
    CHECK(field("/proc/meminfo", "SwapTotal") != NULL);
    slurp("/proc/uptime", text, sizeof text);
    CHECK_EQ(sscanf(text, "%lf %lf", &uptime, &idle), 2);
    CHECK(uptime >= now.uptime - 1.0);
    slurp("/proc/loadavg", text, sizeof text);
    CHECK_EQ(sscanf(text, "%lf %lf %lf %d/%d %d", &loads[0], &loads[1], &loads[2], &running, &all, &last), 6);
    slurp("/proc/version", text, sizeof text);
    CHECK(strncmp(text, "Linux version ", 14) == 0);
    slurp("/proc/cpuinfo", text, sizeof text);
    CHECK(strstr(text, "processor\t: 0\n") != NULL);
    CHECK(strstr(text, "flags\t\t: ") != NULL);
    slurp("/proc/stat", text, sizeof text);
    CHECK(strncmp(text, "cpu  ", 5) == 0);
    CHECK(strstr(text, "\ncpu0 ") != NULL);
    CHECK(strstr(text, "\nctxt ") != NULL);
    CHECK(strstr(text, "\nbtime ") != NULL);
    CHECK(strstr(text, "\nprocesses ") != NULL);
    slurp("/proc/filesystems", text, sizeof text);
    CHECK(strstr(text, "nodev\ttmpfs\n") != NULL);
    CHECK(strstr(text, "nodev\tproc\n") != NULL);
    slurp("/proc/mounts", text, sizeof text);
    CHECK(strstr(text, " /proc proc ") != NULL);
}

CASE(small_reads_and_seeks)
{
    static char whole[65536];
    size_t length = slurp("/proc/cpuinfo", whole, sizeof whole), done = 0;
    int fd = open("/proc/cpuinfo", O_RDONLY);
    ssize_t got;
    while ((got = read(fd, text + done, 7)) > 0)
        done += (size_t)got;
    CHECK_EQ(got, 0);
    CHECK(done >= length / 2);
    CHECK_EQ(pread(fd, text, 9, 0), 9);
    CHECK(memcmp(text, "processor", 9) == 0);
    CHECK_EQ(lseek(fd, 4, SEEK_SET), 4);
    CHECK_EQ(read(fd, text, 5), 5);
    CHECK(memcmp(text, "essor", 5) == 0);
    struct stat status;
    CHECK_OK(fstat(fd, &status));
    CHECK_EQ(status.st_size, 0);
    CHECK_ERRNO(syscall(SYS_read, fd, BAD_LOW, 5), EFAULT);
}

CASE(read_only_tree)
{
    CHECK(open("/proc/new", O_CREAT | O_RDWR, 0600) == -1);
    CHECK(mkdir("/proc/new", 0700) == -1);
    CHECK(unlink("/proc/self/status") == -1);
    CHECK(rmdir("/proc/self/fd") == -1);
    CHECK(rename("/proc/version", "/proc/other") == -1);
    CHECK(symlink("x", "/proc/link") == -1);
    int fd = open("/proc/version", O_RDONLY);
    CHECK(fd >= 0);
    CHECK_ERRNO(open("/proc/none", O_RDONLY), ENOENT);
    CHECK_ERRNO(open("/proc/99999999", O_RDONLY), ENOENT);
    CHECK_ERRNO(open("/proc/self/none", O_RDONLY), ENOENT);
}

CASE(directory_lists_processes)
{
    int self = 0, status = 0, version = 0;
    char mine[20];
    snprintf(mine, sizeof mine, "%d", (int)getpid());
    DIR *directory = opendir("/proc");
    CHECK(directory);
    struct dirent *entry;
    while ((entry = readdir(directory))) {
        self += strcmp(entry->d_name, mine) == 0;
        status += strcmp(entry->d_name, "self") == 0;
        version += strcmp(entry->d_name, "version") == 0;
    }
    closedir(directory);
    CHECK_EQ(self, 1);
    CHECK_EQ(status, 1);
    CHECK_EQ(version, 1);
}

CASE(processes_come_and_go_while_listed)
{
    pid_t churner = fork_or_fail();
    if (churner == 0) {
        for (;;) {
            pid_t child = fork();
            if (child == 0)
                _exit(0);
            harness_wait(child);
        }
    }
    for (int i = 0; i < 30; i++) {
        DIR *directory = opendir("/proc");
        CHECK(directory);
        struct dirent *entry;
        while ((entry = readdir(directory))) {
            char path[300];
            if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
                continue;
            snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
            int fd = open(path, O_RDONLY);
            if (fd == -1) {
                CHECK(errno == ENOENT || errno == ESRCH);
                continue;
            }
            ssize_t got = read(fd, text, 4096);
            CHECK(got > 0 || (got == -1 && errno == ESRCH));
            close(fd);
        }
        closedir(directory);
    }
    kill(churner, SIGKILL);
    CHECK_KILLED(churner, SIGKILL);
}

CASE(task_directories)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)getpid());
    CHECK(field(path, "Pid") != NULL);
    struct stat status;
    CHECK_OK(stat("/proc/self/task", &status));
    CHECK_EQ(status.st_nlink, 3);
}

CASE(environ_and_limits)
{
    slurp("/proc/self/limits", text, sizeof text);
    CHECK(strstr(text, "Max open files") != NULL);
    CHECK(open("/proc/self/environ", O_RDONLY) >= 0);
    CHECK(open("/proc/self/statm", O_RDONLY) >= 0);
    slurp("/proc/self/statm", text, sizeof text);
    long values[7];
    CHECK_EQ(sscanf(text, "%ld %ld %ld %ld %ld %ld %ld", &values[0], &values[1], &values[2], &values[3],
                    &values[4], &values[5], &values[6]), 7);
    CHECK(values[0] > 0);
}
