// Writes two words into /proc/ferry/race on two cores at once until the race of these words strikes:
//
//     race WORD OTHER ROUNDS
//
// Says after how many rounds which of them failed and ends at once with status 1, or with 0 after as many rounds.

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int file;
static int rounds;
static char **words;
static pthread_barrier_t both_are_there;
static atomic_int ended;

static void *on_core(void *which) {
    long core = (long)which;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set)) {
        perror("race: sched_setaffinity");
        _exit(2);
    }
    pthread_barrier_wait(&both_are_there);
    // Goes on until both have had their rounds, so that none is ever alone.
    for (int round = 0; atomic_load(&ended) < 2; round++) {
        if (round == rounds)
            atomic_fetch_add(&ended, 1);
        if (pwrite(file, words[core], strlen(words[core]), 0) < 0) {
            int is_struck = errno == EIO;
            dprintf(1, "%s %d: %s\n", words[core], round, is_struck ? "struck" : strerror(errno));
            _exit(is_struck ? 1 : 2);
        }
    }
    return NULL;
}

int main(int count, char **arguments) {
    file = open("/proc/ferry/race", O_WRONLY);
    if (file < 0 || count != 4) {
        fprintf(stderr, "race: needs a checked kernel, and WORD OTHER ROUNDS\n");
        return 2;
    }
    words = arguments + 1;
    rounds = atoi(arguments[3]);
    pthread_t other;
    pthread_barrier_init(&both_are_there, NULL, 2);
    if (pthread_create(&other, NULL, on_core, (void *)1L))
        return 2;
    on_core((void *)0L);
    pthread_join(other, NULL);
    return 0;
}
