/*
 * The guest program of the suite `idle`: `busybox sleep 10`, a program of its own as it would be on any
 * machine that has nothing to do. `asleep` tells the tool that it may begin to look.
 */
#include "case.h"

#include <sys/wait.h>

int main(int argc, char **argv)
{
    int status;
    case_begin(argc > 1 ? argv[1] : "");
    printf("asleep\n");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/busybox", "busybox", "sleep", "10", (char *)0);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        case_fail("busybox sleep");
    case_end();
    return 0;
}
