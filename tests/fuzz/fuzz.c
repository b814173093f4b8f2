/* A fuzzer of posted calls, and of all calls.
 *
 *     fuzz [--seconds N] [--seed N] [--workers N]     default: 60 seconds, a seed from the clock, 2 workers
 *     fuzz --calls 1 [...]                            every call of the table, by ordinary users, beside root's things
 *     fuzz --victim SEED, fuzz --caller SEED          one victim or caller alone, to look at
 *
 * Workers start one victim after the other: a process whose threads register syspages and then do what no
 * program should, chosen by a seeded generator (victim.h), until it dies or is killed. Beside them a witness
 * (witness.h) makes posted and trapped calls and checks every answer. The parent prints progress and ends
 * with `fuzz ok: ...` and status 0, or `fuzz failed: ...` and 1: a wrong answer, somebody who makes no step
 * for STUCK_SECONDS, root's things changed or somebody with rights (estate.h), a promise to victims that was broken, or threads, tasks, files or frames that are not
 * given back. It always ends. Status 77: this kernel has no posted calls.
 */
#include "common.h"
#include "caller.h"
#include "estate.h"
#include "victim.h"
#include "witness.h"

enum { WORKERS_MAX = 8, STUCK_SECONDS = 30, FRAME_SLACK = 512 };
/* No poll of a handler takes longer: a bound that holds on a machine whose host does something else. */
#define POLL_BOUND_NS 15000000000LL

/* Fields of /proc/ferry/counts that have to be as before, and frames_free, nearly. */
static const char *const counted[] = {"tasks", "threads", "processes", "zombies", "file_tables", "descriptors"};
enum { COUNTED = sizeof counted / sizeof *counted };

struct counts {
    long values[COUNTED], frames;
};

static struct counts read_counts(void)
{
    char text[2000];
    struct counts counts;
    slurp("/proc/ferry/counts", text, sizeof text);
    for (int i = 0; i < COUNTED; i++)
        counts.values[i] = number_after(text, counted[i]);
    counts.frames = number_after(text, "frames_free");
    return counts;
}

/* Kills whatever runs for a user: its processes may have left their group and their parent. */
static void kill_user(unsigned user)
{
    pid_t killer = start_child();
    if (killer == 0) {
        if (syscall(SYS_setresuid, user, user, user) == 0)
            kill(-1, SIGKILL);
        _exit(0);
    }
    wait_for(killer);
}

static unsigned user_of(int worker)
{
    return 4000u + (unsigned)worker;
}

static void enter_own_directory(int worker)
{
    char path[40];
    snprintf(path, sizeof path, "/tmp/fuzz-%d", worker);
    mkdir(path, 0777);
    if (chown(path, user_of(worker), user_of(worker)) == -1 || chdir(path) == -1)
        fail("the directory of a worker", errno);
}

/* Waits for the end of a user's process and kills it when that takes too long; its status. One that stands for a
 * tracer just before its end cannot be killed any more: then the tracer is, which is another one of the user's. */
static int wait_with_patience(pid_t child, int64_t patience_ns, unsigned user)
{
    int64_t start = now_ns(), patience_with_tracers_ns = patience_ns + 2000000000;
    int status;
    while (waitpid(child, &status, WNOHANG) == 0) {
        struct timespec pause = {0, 2000000};
        if (now_ns() - start > patience_ns)
            kill(child, SIGKILL);
        if (now_ns() - start > patience_with_tracers_ns) {
            kill_user(user);
            patience_with_tracers_ns += 2000000000;
        }
        nanosleep(&pause, NULL);
    }
    return status;
}

/* Has a process check what victims are promised. It does nothing else, so its exit status is its own: a
 * victim may end with any. */
static void check_promises_as(unsigned user, uint64_t round)
{
    pid_t checker = start_child();
    if (checker == 0) {
        become_victim(round, user);
        check_promises();
        _exit(0);
    }
    int status = wait_with_patience(checker, 1000000000, user);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
        note("a promise to a victim was broken", (long)round);
        shared->failed = 1;
    }
}

/* Removes a directory with all that victims left there. */
static void remove_tree(const char *path)
{
    pid_t child = start_child();
    if (child == 0) {
        execl("/bin/busybox", "busybox", "rm", "-rf", path, (char *)NULL);
        _exit(1);
    }
    wait_for(child);
}

static void remove_own_directory(int worker)
{
    char path[40];
    snprintf(path, sizeof path, "/tmp/fuzz-%d", worker);
    remove_tree(path);
}

static void drop_rights(unsigned user)
{
    if (syscall(SYS_setgroups, 0, NULL) == -1 || syscall(SYS_setresgid, user, user, user) == -1 ||
        syscall(SYS_setresuid, user, user, user) == -1)
        fail("victim: becoming an ordinary user", errno);
}

/* Starts victims until told to stop. */
static void work(int worker, uint64_t seed)
{
    struct progress *me = &shared->workers[worker];
    me->process = getpid();
    enter_own_directory(worker);
    for (uint64_t round = 1; !shared->stop; round++) {
        uint64_t victim_seed = mix(seed ^ (uint64_t)worker << 56 ^ round);
        me->seed = victim_seed;
        pid_t victim = start_child();
        if (victim == 0) {
            setpgid(0, 0);
            if (!shared->calls_all)
                be_victim(victim_seed, user_of(worker));
            drop_rights(user_of(worker));
            me->dropped = getpid();
            be_caller(victim_seed, user_of(worker));
        }
        random_state = victim_seed ^ 0x5555;
        int64_t patience_ns = (int64_t)(10 + random_below(random_below(4) ? 80 : 400)) * 1000000;
        /* A caller goes through hundreds of calls, of which some wait until they are interrupted. */
        wait_with_patience(victim, shared->calls_all ? patience_ns * 8 : patience_ns, user_of(worker));
        me->dropped = 0;
        if (round % 3 == 0)
            check_promises_as(user_of(worker), round);
        if (round % 8 == 0)
            kill_user(user_of(worker));
        if (round % 32 == 0 && shared->calls_all) {
            remove_own_directory(worker);
            remove_ipc_of_users();
            enter_own_directory(worker);
        }
        me->steps++;
    }
    kill_user(user_of(worker));
    _exit(0);
}

/* What was not given back; waits a while for threads that are on their way out. */
static int find_leaks(const struct counts *before, char *text, size_t size)
{
    int64_t start = now_ns();
    for (;;) {
        struct counts after = read_counts();
        size_t used = 0;
        text[0] = 0;
        for (int i = 0; i < COUNTED; i++)
            if (after.values[i] > before->values[i])
                used += (size_t)snprintf(text + used, size - used, " %s %ld, then %ld;", counted[i],
                                         before->values[i], after.values[i]);
        if (after.frames < before->frames - FRAME_SLACK)
            used += (size_t)snprintf(text + used, size - used, " frames %ld, then %ld;", before->frames, after.frames);
        if (used == 0)
            return 0;
        if (now_ns() - start > 10000000000)
            return 1;
        struct timespec pause = {0, 50000000};
        nanosleep(&pause, NULL);
    }
}

/* The call whose longest poll was longest, and whether that is too long. */
static int polls_are_short(void)
{
    static char text[60000];
    char name[64], longest[64] = "none";
    long long polls, span_ns, most_ns = 0;
    slurp("/proc/ferry/polls", text, sizeof text);
    for (char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n'))
        if (sscanf(line + 1, "%63s %lld %lld", name, &polls, &span_ns) == 3 && span_ns > most_ns) {
            most_ns = span_ns;
            strcpy(longest, name);
        }
    snprintf(text, sizeof text, "fuzz: the longest poll was of %s: %lld us\n", longest, most_ns / 1000);
    say(text);
    return most_ns < POLL_BOUND_NS;
}

static pid_t start_witness(uint64_t seed)
{
    pid_t witness = start_child();
    if (witness == 0)
        be_witness(seed);
    return witness;
}

int main(int count, char **words)
{
    char text[600];
    long seconds = 60, workers_count = 2, calls_all = 0;
    uint64_t seed;
    if (syscall(SYS_getrandom, &seed, sizeof seed, 0) != sizeof seed)
        seed = (uint64_t)now_ns();
    seed >>= 32;
    for (int word = 1; word + 1 < count; word += 2) {
        if (strcmp(words[word], "--seconds") == 0)
            seconds = atol(words[word + 1]);
        else if (strcmp(words[word], "--seed") == 0)
            seed = strtoull(words[word + 1], NULL, 0);
        else if (strcmp(words[word], "--workers") == 0)
            workers_count = atol(words[word + 1]);
        else if (strcmp(words[word], "--calls") == 0)
            calls_all = atol(words[word + 1]) != 0;
        else if (strcmp(words[word], "--victim") == 0 || strcmp(words[word], "--caller") == 0)
            seconds = -1, calls_all = words[word][2] == 'c', seed = strtoull(words[word + 1], NULL, 0);
        else
            seconds = 0;
    }
    if (count % 2 == 0 && strcmp(words[1], "--nothing") == 0)
        return 0; /* What victims execute. */
    if (count % 2 == 0 || seconds == 0 || workers_count < 1 || workers_count > WORKERS_MAX) {
        say("usage: fuzz [--seconds N] [--seed N] [--workers N] [--calls 1] | --victim SEED | --caller SEED\n");
        return 64;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        fail("shared memory", errno);
    shared->calls_all = (uint32_t)calls_all;
    struct syspage page;
    if (open_syspage(&page) == -ENOSYS) {
        say("fuzz: this kernel has no posted calls\n");
        return 77;
    }
    close_syspage(&page);
    if (seconds == -1) {
        enter_own_directory(0);
        if (!calls_all)
            be_victim(seed, user_of(0));
        drop_rights(user_of(0));
        be_caller(seed, user_of(0));
    }
    snprintf(text, sizeof text, "fuzz: %ld seconds, --seed %llu, %ld workers\n", seconds, (unsigned long long)seed,
             workers_count);
    say(text);
    struct counts before = read_counts();
    pid_t witness = start_witness(seed), workers[WORKERS_MAX];
    for (int i = 0; i < workers_count; i++) {
        workers[i] = start_child();
        if (workers[i] == 0)
            work(i, seed);
    }
    int64_t start = now_ns(), reported = start, moved[WORKERS_MAX + 1];
    uint64_t last[WORKERS_MAX + 1] = {0};
    for (int i = 0; i <= workers_count; i++)
        moved[i] = start;
    int64_t told_ns = 0;
    long running = workers_count + 1;
    while (running > 0) {
        int status;
        pid_t ended;
        while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
            running--;
            if (status != 0) {
                note(ended == witness ? "the witness ends with wait status" : "a worker ends with wait status", status);
                shared->failed = 1;
            }
            for (int i = 0; i <= workers_count; i++)
                if (ended == (i == workers_count ? witness : workers[i]))
                    moved[i] = -1;
        }
        if (shared->longest_ns > told_ns + told_ns / 2) {
            /* For who wonders what takes the kernel so long. */
            told_ns = shared->longest_ns;
            snprintf(text, sizeof text, "fuzz: a round of the witness took %lld ms, beside --victim %llu and %llu\n",
                     (long long)(told_ns / 1000000), (unsigned long long)shared->longest_seeds[0],
                     (unsigned long long)shared->longest_seeds[1]);
            if (told_ns > 500000000)
                say(text);
        }
        struct timespec tick = {0, 100000000};
        nanosleep(&tick, NULL);
        int64_t now = now_ns();
        if (now - start > seconds * 1000000000 || shared->failed)
            shared->stop = 1;
        for (int i = 0; i <= workers_count; i++) {
            const struct progress *one = i == workers_count ? &shared->witness : &shared->workers[i];
            if (moved[i] == -1)
                continue;
            if (one->steps != last[i]) {
                last[i] = one->steps;
                moved[i] = now;
            } else if (now - moved[i] > STUCK_SECONDS * 1000000000LL) {
                snprintf(text, sizeof text, "fuzz failed: --seed %llu: %s %d is stuck; --victim %llu\n",
                         (unsigned long long)seed, i == workers_count ? "witness" : "worker", i,
                         (unsigned long long)one->seed);
                say(text);
                return 1;
            }
        }
        if (now - reported > 5000000000) {
            uint64_t victims = 0;
            reported = now;
            for (int i = 0; i < workers_count; i++)
                victims += shared->workers[i].steps;
            snprintf(text, sizeof text, "fuzz: %lld s, %llu victims, %llu rounds of the witness\n",
                     (long long)((now - start) / 1000000000), (unsigned long long)victims,
                     (unsigned long long)shared->witness.steps);
            say(text);
        }
    }
    for (int i = 0; i < workers_count; i++) {
        snprintf(text, sizeof text, "/tmp/fuzz-%d", i);
        kill_user(user_of(i));
        remove_tree(text);
    }
    if (calls_all)
        remove_ipc_of_users();
    if (!polls_are_short())
        shared->failed = 1;
    if (!shared->failed && find_leaks(&before, text, sizeof text)) {
        note("not given back:", 0);
        say(text);
        say("\n");
        shared->failed = 1;
    }
    uint64_t victims = 0;
    for (int i = 0; i < workers_count; i++)
        victims += shared->workers[i].steps;
    snprintf(text, sizeof text, "fuzz %s: --seed %llu, %llu victims, %llu rounds of the witness\n",
             shared->failed ? "failed" : "ok", (unsigned long long)seed, (unsigned long long)victims,
             (unsigned long long)shared->witness.steps);
    say(text);
    return shared->failed != 0;
}
