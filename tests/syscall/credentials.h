/* Acting for others in the system-call tests: users, single capabilities, and copies of this program. */
#ifndef FERRY_TESTS_CREDENTIALS_H
#define FERRY_TESTS_CREDENTIALS_H

#include <grp.h>
#include <sys/prctl.h>

/* Numbers of capabilities, which the headers of musl lack. */
enum {
    CAP_CHOWN = 0,
    CAP_DAC_OVERRIDE = 1,
    CAP_DAC_READ_SEARCH = 2,
    CAP_FOWNER = 3,
    CAP_FSETID = 4,
    CAP_KILL = 5,
    CAP_IPC_LOCK = 14,
    CAP_SYS_RAWIO = 17,
    CAP_SYS_PTRACE = 19,
    CAP_MKNOD = 27,
};

/* What capset(2) takes, version 3. */
struct capability_header {
    uint32_t version;
    int pid;
};
struct capability_data {
    uint32_t effective, permitted, inheritable;
};

#define BIT(capability) (1ull << (capability))
#define NO_CAPABILITIES 0ull

/* From here on this process is a user without groups, with these capabilities alone. */
HARNESS_UNUSED static void act_as(uid_t user, uint64_t capabilities)
{
    struct capability_header header = {0x20080522, 0};
    struct capability_data sets[2] = {{0, 0, 0}, {0, 0, 0}};
    CHECK_OK(syscall(SYS_setgroups, 0, NULL));
    CHECK_OK(syscall(SYS_setresgid, user, user, user));
    CHECK_OK(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0));
    CHECK_OK(syscall(SYS_setresuid, user, user, user));
    sets[0].permitted = sets[0].effective = (uint32_t)capabilities;
    sets[1].permitted = sets[1].effective = (uint32_t)(capabilities >> 32);
    CHECK_OK(syscall(SYS_capset, &header, sets));
}

/* Runs a block in a child that acts as this user with these capabilities. */
#define AS(user, capabilities)                                                                 \
    for (pid_t as_child = fork_or_fail(), as_turn = 1; as_turn;                                \
         as_turn = 0, as_child == 0 ? _exit(0) : ({ CHECK_EXITED(as_child, 0); }))              \
        if (as_child == 0 && (act_as(user, capabilities), 1))

/* A copy of this program under another name. */
HARNESS_UNUSED static void copy_program(const char *name, uid_t owner, mode_t mode)
{
    static char buffer[65536];
    ssize_t got;
    int from = open("/proc/self/exe", O_RDONLY);
    int to = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0700);
    CHECK(from != -1 && to != -1);
    while ((got = read(from, buffer, sizeof buffer)) > 0)
        CHECK_EQ(write(to, buffer, (size_t)got), got);
    CHECK_EQ(got, 0);
    CHECK_OK(fchown(to, owner, owner));
    CHECK_OK(fchmod(to, mode));
    close(from);
    close(to);
}

#endif
