/* add_key, request_key and keyctl: keys of the types user, logon and keyring. Each case works in keyrings
 * of its own. */
#include "harness.h"
#include <sched.h>

#define THREAD (-1)
#define PROCESS (-2)
#define SESSION (-3)
#define USER (-4)
#define USER_SESSION (-5)

enum {
    GET_KEYRING_ID,
    JOIN_SESSION,
    UPDATE,
    REVOKE,
    CHOWN_KEY,
    SETPERM,
    DESCRIBE,
    CLEAR,
    LINK,
    UNLINK,
    SEARCH,
    READ,
    INSTANTIATE,
    NEGATE,
    SET_REQKEY,
    SET_TIMEOUT,
    ASSUME_AUTHORITY,
    GET_SECURITY,
    REJECT = 19,
    INVALIDATE = 21,
    RESTRICT = 29,
    MOVE,
    CAPABILITIES
};

static int add(const char *type, const char *name, const void *content, size_t length, int ring)
{
    return (int)syscall(SYS_add_key, type, name, content, length, ring);
}
static int request(const char *type, const char *name, const char *information, int ring)
{
    return (int)syscall(SYS_request_key, type, name, information, ring);
}
#define CTL(...) syscall(SYS_keyctl, __VA_ARGS__)

static void own_session(void)
{
    CHECK(CTL(JOIN_SESSION, NULL) > 0);
}

CASE(a_key_is_added_read_and_changed)
{
    char text[64];
    int key;
    own_session();
    CHECK((key = add("user", "a:key", "secret", 6, SESSION)) > 0);
    CHECK_EQ(CTL(READ, key, NULL, 0), 6);
    CHECK_EQ(CTL(READ, key, text, sizeof text), 6);
    CHECK(memcmp(text, "secret", 6) == 0);
    memset(text, 0, sizeof text);
    CHECK_EQ(CTL(READ, key, text, 3), 6); /* Too small: only the length. */
    CHECK_EQ(text[0], 0);
    CHECK_EQ(add("user", "a:key", "changed", 7, SESSION), key);
    CHECK_EQ(CTL(READ, key, text, sizeof text), 7);
    CHECK_OK(CTL(UPDATE, key, "again", 5));
    CHECK_EQ(CTL(READ, key, text, sizeof text), 5);
    CHECK(memcmp(text, "again", 5) == 0);
}

CASE(a_key_is_described)
{
    char text[200];
    int key, ring, length;
    own_session();
    CHECK((key = add("user", "a:key", "x", 1, SESSION)) > 0);
    CHECK((ring = add("keyring", "a ring", NULL, 0, SESSION)) > 0);
    length = (int)CTL(DESCRIBE, key, text, sizeof text);
    CHECK_EQ(length, (int)strlen(text) + 1);
    CHECK_STR(text, "user;0;0;3f010000;a:key");
    CHECK_OK(CTL(DESCRIBE, ring, text, sizeof text));
    CHECK_STR(text, "keyring;0;0;3f010000;a ring");
    CHECK((key = add("logon", "a:key", "x", 1, SESSION)) > 0);
    CHECK_OK(CTL(DESCRIBE, key, text, sizeof text));
    CHECK_STR(text, "logon;0;0;3d010000;a:key");
    CHECK_EQ(CTL(DESCRIBE, key, NULL, 0), (int)strlen(text) + 1);
    CHECK_ERRNO(CTL(DESCRIBE, THREAD, text, sizeof text), ENOKEY);
    CHECK_OK(CTL(GET_KEYRING_ID, THREAD, 1));
    CHECK_OK(CTL(DESCRIBE, THREAD, text, sizeof text));
    CHECK_STR(text, "keyring;0;0;3f010000;_tid");
    CHECK_OK(CTL(DESCRIBE, SESSION, text, sizeof text));
    CHECK_STR(text, "keyring;0;0;3f030000;_ses");
}

CASE(add_key_checks_its_arguments)
{
    static char longest[32769], name[5000], type[40];
    int key;
    own_session();
    memset(longest, 'x', sizeof longest);
    memset(name, 'n', sizeof name - 1);
    memset(type, 't', sizeof type - 1);
    CHECK_ERRNO(add("user", "k", "x", 1024 * 1024, SESSION), EINVAL);
    CHECK_ERRNO(add(BAD_LOW, "k", "x", 1, SESSION), EFAULT);
    CHECK_ERRNO(add("", "k", "x", 1, SESSION), EINVAL);
    CHECK_ERRNO(add(type, "k", "x", 1, SESSION), EINVAL);
    CHECK_ERRNO(add(".user", "k", "x", 1, SESSION), EPERM);
    CHECK_ERRNO(add("no-such-type", "k", "x", 1, SESSION), ENODEV);
    CHECK_ERRNO(add("user", BAD_LOW, "x", 1, SESSION), EFAULT);
    CHECK_ERRNO(add("user", name, "x", 1, SESSION), EINVAL);
    CHECK_ERRNO(add("user", "", "x", 1, SESSION), EINVAL);
    CHECK_ERRNO(add("user", NULL, "x", 1, SESSION), EINVAL);
    CHECK_ERRNO(add("user", "k", BAD_LOW, 1, SESSION), EFAULT);
    CHECK_ERRNO(add("user", "k", NULL, 0, SESSION), EINVAL);
    CHECK_ERRNO(add("user", "k", longest, 32768, SESSION), EINVAL);
    CHECK((key = add("user", "k", longest, 32767, SESSION)) > 0);
    CHECK_ERRNO(add("keyring", "r", "x", 1, SESSION), EINVAL);
    CHECK_ERRNO(add("keyring", ".r", NULL, 0, SESSION), EPERM);
    CHECK_ERRNO(add("logon", "nocolon", "x", 1, SESSION), EINVAL);
    CHECK_ERRNO(add("logon", ":empty", "x", 1, SESSION), EINVAL);
    CHECK_ERRNO(add("user", "k", "x", 1, -6), EINVAL);
    CHECK_ERRNO(add("user", "k", "x", 1, 0), EINVAL);
    CHECK_ERRNO(add("user", "k", "x", 1, -100), EINVAL);
    CHECK_ERRNO(add("user", "k", "x", 1, -7), ENOKEY);
    CHECK_ERRNO(add("user", "j", "x", 1, 0x7ffffff0), ENOKEY);
    CHECK_ERRNO(add("user", "j", "x", 1, key), ENOTDIR);
}

CASE(rings_of_one_thread)
{
    int ring, key;
    CHECK_ERRNO(CTL(GET_KEYRING_ID, THREAD, 0), ENOKEY);
    CHECK_ERRNO(CTL(GET_KEYRING_ID, PROCESS, 0), ENOKEY);
    CHECK((ring = (int)CTL(GET_KEYRING_ID, THREAD, 1)) > 0);
    CHECK_EQ(CTL(GET_KEYRING_ID, THREAD, 0), ring);
    CHECK_EQ(CTL(GET_KEYRING_ID, ring, 0), ring);
    CHECK((key = add("user", "k", "x", 1, THREAD)) > 0);
    CHECK_EQ(request("user", "k", NULL, 0), key);
    CHECK((ring = (int)CTL(GET_KEYRING_ID, PROCESS, 1)) > 0);
    CHECK(ring != CTL(GET_KEYRING_ID, THREAD, 0));
    CHECK(CTL(GET_KEYRING_ID, USER, 0) > 0);
    CHECK(CTL(GET_KEYRING_ID, USER_SESSION, 0) > 0);
    CHECK(CTL(GET_KEYRING_ID, USER, 0) != CTL(GET_KEYRING_ID, USER_SESSION, 0));
    CHECK_ERRNO(CTL(GET_KEYRING_ID, -6, 0), EINVAL);
    CHECK_ERRNO(CTL(GET_KEYRING_ID, 0, 0), EINVAL);
}

CASE(a_child_has_the_session_only)
{
    int session, key, other;
    pid_t child;
    own_session();
    CHECK((session = (int)CTL(GET_KEYRING_ID, SESSION, 0)) > 0);
    CHECK((key = add("user", "in session", "x", 1, SESSION)) > 0);
    CHECK((other = add("user", "in process", "x", 1, PROCESS)) > 0);
    child = fork_or_fail();
    if (child == 0) {
        CHECK_EQ(CTL(GET_KEYRING_ID, SESSION, 0), session);
        CHECK_EQ(request("user", "in session", NULL, 0), key);
        CHECK_ERRNO(request("user", "in process", NULL, 0), ENOKEY);
        CHECK_ERRNO(CTL(GET_KEYRING_ID, PROCESS, 0), ENOKEY);
        CHECK_ERRNO(CTL(READ, other, NULL, 0), EACCES); /* Seen by its owner, not possessed. */
        own_session();
        CHECK_ERRNO(request("user", "in session", NULL, 0), ENOKEY);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
    CHECK_EQ(CTL(GET_KEYRING_ID, SESSION, 0), session);
}

CASE(sessions_have_names)
{
    char name[64], text[128];
    int session;
    snprintf(name, sizeof name, "session-%d", (int)getpid());
    CHECK((session = (int)CTL(JOIN_SESSION, name)) > 0);
    CHECK_EQ(CTL(GET_KEYRING_ID, SESSION, 0), session);
    CHECK_OK(CTL(DESCRIBE, session, text, sizeof text));
    CHECK(strstr(text, name) != NULL);
    CHECK_ERRNO(CTL(JOIN_SESSION, ".hidden"), EPERM);
    CHECK_ERRNO(CTL(JOIN_SESSION, BAD_LOW), EFAULT);
}

CASE(links_come_and_go)
{
    int ring, key, inner, links[4];
    own_session();
    CHECK((ring = add("keyring", "ring", NULL, 0, SESSION)) > 0);
    CHECK((inner = add("keyring", "inner", NULL, 0, ring)) > 0);
    CHECK((key = add("user", "k", "x", 1, SESSION)) > 0);
    CHECK_OK(CTL(LINK, key, inner));
    CHECK_OK(CTL(LINK, key, inner));
    CHECK_EQ(CTL(READ, inner, links, sizeof links), sizeof(int));
    CHECK_EQ(links[0], key);
    CHECK_ERRNO(CTL(LINK, ring, inner), EDEADLK);
    CHECK_ERRNO(CTL(LINK, ring, ring), EDEADLK);
    CHECK_ERRNO(CTL(LINK, inner, key), ENOTDIR);
    CHECK_ERRNO(CTL(LINK, key, 0), EINVAL);
    CHECK_ERRNO(CTL(UNLINK, key, ring), ENOENT);
    CHECK_ERRNO(CTL(UNLINK, key, key), ENOTDIR);
    CHECK_OK(CTL(UNLINK, key, SESSION));
    CHECK_EQ(request("user", "k", NULL, 0), key); /* Through the rings. */
    CHECK_OK(CTL(CLEAR, inner));
    CHECK_EQ(CTL(READ, inner, links, sizeof links), 0);
    CHECK_ERRNO(request("user", "k", NULL, 0), ENOKEY);
    CHECK_ERRNO(CTL(CLEAR, 0), EINVAL);
}

CASE(keys_are_searched_for)
{
    int ring, key, other;
    own_session();
    CHECK((ring = add("keyring", "ring", NULL, 0, SESSION)) > 0);
    CHECK((other = add("keyring", "other", NULL, 0, SESSION)) > 0);
    CHECK((key = add("user", "k", "x", 1, ring)) > 0);
    CHECK_EQ(CTL(SEARCH, SESSION, "user", "k", 0), key);
    CHECK_EQ(CTL(SEARCH, ring, "user", "k", other), key);
    CHECK_EQ(CTL(READ, other, NULL, 0), sizeof(int));
    CHECK_ERRNO(CTL(SEARCH, SESSION, "user", "none", 0), ENOKEY);
    CHECK_ERRNO(CTL(SEARCH, SESSION, "logon", "k", 0), ENOKEY);
    CHECK_ERRNO(CTL(SEARCH, SESSION, "no-such", "k", 0), ENOKEY);
    CHECK_ERRNO(CTL(SEARCH, key, "user", "k", 0), ENOTDIR);
    CHECK_ERRNO(CTL(SEARCH, SESSION, BAD_LOW, "k", 0), EFAULT);
    CHECK_ERRNO(request("user", "none", NULL, 0), ENOKEY);
    CHECK_ERRNO(request("no-such", "none", NULL, 0), ENOKEY);
    CHECK_ERRNO(request(".user", "none", NULL, 0), EPERM);
    CHECK_ERRNO(request("user", BAD_LOW, NULL, 0), EFAULT);
    CHECK_ERRNO(request("user", "k", BAD_LOW, 0), EFAULT);
    CHECK_ERRNO(request("user", "k", NULL, -6), EINVAL);
    CHECK_OK(CTL(UNLINK, key, other));
    CHECK_EQ(request("user", "k", NULL, other), key);
    CHECK_EQ(CTL(READ, other, NULL, 0), sizeof(int));
}

CASE(keys_are_revoked)
{
    int key, ring;
    own_session();
    CHECK((key = add("user", "k", "x", 1, SESSION)) > 0);
    CHECK_OK(CTL(REVOKE, key));
    CHECK_ERRNO(CTL(REVOKE, key), EKEYREVOKED);
    CHECK_ERRNO(CTL(UPDATE, key, "y", 1), EKEYREVOKED);
    CHECK_ERRNO(CTL(LINK, key, SESSION), EKEYREVOKED);
    CHECK_ERRNO(request("user", "k", NULL, 0), EKEYREVOKED);
    CHECK_OK(CTL(UNLINK, key, SESSION));
    CHECK((ring = add("keyring", "r", NULL, 0, SESSION)) > 0);
    CHECK_OK(CTL(REVOKE, ring));
    CHECK_ERRNO(add("user", "k", "x", 1, ring), EKEYREVOKED);
    CHECK_ERRNO(CTL(REVOKE, 0x7ffffff0), ENOKEY);
}

CASE(a_revoked_key_is_replaced)
{
    int key, next;
    own_session();
    CHECK((key = add("user", "k", "x", 1, SESSION)) > 0);
    CHECK_OK(CTL(REVOKE, key));
    CHECK((next = add("user", "k", "y", 1, SESSION)) > 0);
    CHECK(next != key);
    CHECK_EQ(request("user", "k", NULL, 0), next);
}

CASE(keys_become_invalid)
{
    int key;
    own_session();
    CHECK((key = add("user", "k", "x", 1, SESSION)) > 0);
    CHECK_OK(CTL(INVALIDATE, key));
    /* It is in no keyring any more, and may be gone altogether. */
    CHECK(CTL(READ, key, NULL, 0) == -1 && (errno == ENOKEY || errno == EACCES));
    CHECK(CTL(INVALIDATE, key) == -1 && (errno == ENOKEY || errno == EACCES));
}

CASE(keys_expire)
{
    int key, i;
    own_session();
    CHECK((key = add("user", "k", "x", 1, SESSION)) > 0);
    CHECK_OK(CTL(SET_TIMEOUT, key, 1000));
    CHECK_EQ(CTL(READ, key, NULL, 0), 1);
    CHECK_OK(CTL(SET_TIMEOUT, key, 1));
    for (i = 0; i < 1000 && request("user", "k", NULL, 0) == key; i++)
        sleep_ms(20);
    CHECK_ERRNO(CTL(UPDATE, key, "x", 1), EKEYEXPIRED);
    CHECK_ERRNO(CTL(SET_TIMEOUT, key, 0), EKEYEXPIRED);
    CHECK_ERRNO(CTL(SET_TIMEOUT, 0, 1), EINVAL);
}

CASE(rights_are_kept)
{
    char text[100];
    int key;
    own_session();
    CHECK((key = add("user", "k", "x", 1, SESSION)) > 0);
    CHECK_ERRNO(CTL(SETPERM, key, 0x40000000), EINVAL);
    CHECK_ERRNO(CTL(SETPERM, key, 0xffffffff), EINVAL);
    CHECK_OK(CTL(SETPERM, key, 0x3d3d0000)); /* No reading. */
    CHECK_EQ(CTL(READ, key, NULL, 0), 1);    /* But searching is enough for who possesses it. */
    CHECK_OK(CTL(SETPERM, key, 0x3b000000)); /* No writing. */
    CHECK_ERRNO(CTL(UPDATE, key, "y", 1), EACCES);
    CHECK_ERRNO(add("user", "k", "y", 1, SESSION), EACCES);
    CHECK_OK(CTL(REVOKE, key)); /* The right to change attributes does. */
    CHECK((key = add("user", "l", "x", 1, SESSION)) > 0);
    CHECK_OK(CTL(SETPERM, key, 0x28000000));
    CHECK_ERRNO(CTL(DESCRIBE, key, text, sizeof text), EACCES);
    CHECK_ERRNO(CTL(LINK, key, PROCESS), EACCES);
    CHECK_OK(CTL(SETPERM, key, 0x3f000000));
    CHECK_OK(CTL(DESCRIBE, key, text, sizeof text));
    CHECK_STR(text, "user;0;0;3f000000;l");
    CHECK_OK(CTL(SETPERM, key, 0));
    CHECK_ERRNO(CTL(SETPERM, key, 0x3f000000), EACCES);
}

CASE(owners_change)
{
    char text[100];
    int key;
    pid_t child;
    own_session();
    CHECK((key = add("user", "k", "x", 1, SESSION)) > 0);
    CHECK_OK(CTL(CHOWN_KEY, key, 12, 34));
    CHECK_OK(CTL(DESCRIBE, key, text, sizeof text));
    CHECK_STR(text, "user;12;34;3f010000;k");
    CHECK_OK(CTL(CHOWN_KEY, key, -1, -1));
    CHECK_OK(CTL(CHOWN_KEY, key, -1, 35));
    CHECK_OK(CTL(DESCRIBE, key, text, sizeof text));
    CHECK_STR(text, "user;12;35;3f010000;k");
    child = fork_or_fail();
    if (child == 0) {
        CHECK_OK(setuid(4000));
        CHECK_ERRNO(CTL(CHOWN_KEY, key, 4000, -1), EACCES);
        CHECK_ERRNO(CTL(SETPERM, key, 0), EACCES);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(keys_move)
{
    int one, two, key, other;
    own_session();
    CHECK((one = add("keyring", "one", NULL, 0, SESSION)) > 0);
    CHECK((two = add("keyring", "two", NULL, 0, SESSION)) > 0);
    CHECK((key = add("user", "k", "x", 1, one)) > 0);
    CHECK_ERRNO(CTL(MOVE, key, one, two, 2), EINVAL);
    CHECK_ERRNO(CTL(MOVE, key, two, one, 0), ENOENT);
    CHECK_OK(CTL(MOVE, key, one, one, 0));
    CHECK_OK(CTL(MOVE, key, one, two, 1));
    CHECK_EQ(CTL(READ, one, NULL, 0), 0);
    CHECK_EQ(CTL(READ, two, NULL, 0), sizeof(int));
    CHECK((other = add("user", "k", "y", 1, one)) > 0);
    CHECK_ERRNO(CTL(MOVE, other, one, two, 1), EEXIST);
    CHECK_OK(CTL(MOVE, other, one, two, 0));
    CHECK_EQ(CTL(SEARCH, two, "user", "k", 0), other);
}

CASE(a_restricted_ring_takes_no_more)
{
    int ring, key;
    own_session();
    CHECK((ring = add("keyring", "ring", NULL, 0, SESSION)) > 0);
    CHECK((key = add("user", "k", "x", 1, SESSION)) > 0);
    CHECK_ERRNO(CTL(RESTRICT, key, NULL, NULL), ENOTDIR);
    CHECK_ERRNO(CTL(RESTRICT, ring, NULL, "x"), EINVAL);
    CHECK_OK(CTL(RESTRICT, ring, NULL, NULL));
    CHECK_ERRNO(CTL(LINK, key, ring), EPERM);
    CHECK_ERRNO(add("user", "j", "x", 1, ring), EPERM);
    CHECK_ERRNO(CTL(RESTRICT, ring, NULL, NULL), EEXIST);
}

CASE(logon_keys_are_not_read)
{
    int key;
    own_session();
    CHECK((key = add("logon", "a:b", "x", 1, SESSION)) > 0);
    CHECK_ERRNO(CTL(READ, key, NULL, 0), EOPNOTSUPP);
    CHECK_OK(CTL(UPDATE, key, "y", 1));
    CHECK((key = add("keyring", "r", NULL, 0, SESSION)) > 0);
    CHECK_ERRNO(CTL(UPDATE, key, NULL, 0), EOPNOTSUPP);
    CHECK_ERRNO(CTL(UPDATE, key, "x", 4097), EINVAL);
}

CASE(what_only_instantiation_may_do)
{
    CHECK_ERRNO(CTL(INSTANTIATE, 1, "x", 1, 0), EPERM);
    CHECK_ERRNO(CTL(INSTANTIATE, 1, "x", 1024 * 1024, 0), EINVAL);
    CHECK_ERRNO(CTL(NEGATE, 1, 1, 0), EPERM);
    CHECK_ERRNO(CTL(REJECT, 1, 1, 0, 0), EINVAL);
    CHECK_ERRNO(CTL(REJECT, 1, 1, 5000, 0), EINVAL);
    CHECK_OK(CTL(ASSUME_AUTHORITY, 0));
    CHECK_ERRNO(CTL(ASSUME_AUTHORITY, -1), EINVAL);
    CHECK_ERRNO(CTL(ASSUME_AUTHORITY, 0x7ffffff0), ENOKEY);
    CHECK_ERRNO(CTL(999), EOPNOTSUPP);
}

CASE(where_requested_keys_go)
{
    CHECK_EQ(CTL(SET_REQKEY, -1), 0);
    CHECK_EQ(CTL(SET_REQKEY, 3), 0);
    CHECK_EQ(CTL(SET_REQKEY, 1), 3);
    CHECK(CTL(GET_KEYRING_ID, THREAD, 0) > 0);
    CHECK_EQ(CTL(SET_REQKEY, -1), 1);
    CHECK_ERRNO(CTL(SET_REQKEY, 6), EINVAL);
    CHECK_ERRNO(CTL(SET_REQKEY, 50), EINVAL);
    CHECK_EQ(CTL(SET_REQKEY, 0), 1);
}

CASE(what_the_kernel_can_is_told)
{
    unsigned char abilities[8];
    long length;
    memset(abilities, 0xff, sizeof abilities);
    length = CTL(CAPABILITIES, abilities, sizeof abilities);
    CHECK(length >= 1);
    CHECK_EQ(abilities[0] & 1, 1);
    CHECK_EQ(abilities[7], 0);
    CHECK_EQ(CTL(CAPABILITIES, abilities, 0), length);
}

CASE(a_user_has_a_quota)
{
    pid_t child = fork_or_fail();
    if (child == 0) {
        char name[32];
        int i, made = 0, ring, key;
        static char content[32767];
        CHECK_OK(setuid(4321));
        own_session();
        CHECK((ring = add("keyring", "ring", NULL, 0, SESSION)) > 0);
        for (i = 0; i < 1000; i++) {
            snprintf(name, sizeof name, "%d", i);
            if (add("user", name, "x", 1, ring) == -1)
                break;
            made++;
        }
        CHECK_EQ(errno, EDQUOT);
        CHECK(made > 100 && made < 200);
        CHECK_ERRNO(add("user", "one more", "x", 1, ring), EDQUOT);
        CHECK_OK(CTL(CLEAR, ring));
        for (i = 0; i < 1000; i++) { /* What is given back comes late on Linux. */
            key = add("user", "again", "x", 1, ring);
            if (key > 0)
                break;
            sleep_ms(10);
        }
        CHECK(key > 0);
        CHECK_ERRNO(CTL(UPDATE, key, content, 4097), EINVAL);
        CHECK_ERRNO(add("user", "big", content, sizeof content, ring), EDQUOT);
        _exit(0);
    }
    CHECK_EXITED(child, 0);
}

CASE(proc_lists_keys)
{
    static char text[1 << 18];
    char name[64], line[200];
    int key;
    own_session();
    snprintf(name, sizeof name, "listed-%d", (int)getpid());
    CHECK((key = add("user", name, "12345", 5, SESSION)) > 0);
    slurp("/proc/keys", text, sizeof text);
    snprintf(line, sizeof line, "%08x I--Q---", (unsigned)key);
    CHECK(strstr(text, line) != NULL);
    snprintf(line, sizeof line, "perm 3f010000     0     0 user      %s: 5\n", name);
    CHECK(strstr(text, line) != NULL);
    slurp("/proc/key-users", text, sizeof text);
    CHECK(strncmp(text, "    0: ", 7) == 0);
    slurp("/proc/sys/kernel/keys/maxkeys", text, sizeof text);
    CHECK_STR(text, "200\n");
}
