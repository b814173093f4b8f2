/*
 * The guest program of the suite `null`: what the shortest things cost. The same static binary runs
 * on Ferry and on Linux, as an ordinary program or as process 1, and prints one line per case:
 *
 *     case NAME UNIT VALUE
 *
 * VALUE is the least of several rounds: under an emulator on a shared machine, disturbance only ever
 * adds. `first_user` is the monotonic clock at the program's first instruction, which both kernels
 * start at their own boot. As process 1 the program ends by switching the machine off.
 *
 * For the model of caches and TLBs each case is a region: getppid 0, read 1, fork 2, exec 3, page fault
 * 4. With `null few` there is one round of each, which is enough for that.
 *
 * `null exit` only ends. `null tsc-khz`, for the host, prints the rate of the time stamp counter.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "case.h"

enum { ROUNDS = 7, PAGES = 2048 };

static int rounds = ROUNDS;

typedef void (*case_function)(int count);

/* Prints the least time per operation over the rounds. */
static void measure(const char *name, int region, case_function run, int count)
{
	double least = 1e300;
	for (int round = 0; round < rounds; round++) {
		case_mark_begin_region(region);
		double start = case_clock_ns();
		run(count);
		double each = (case_clock_ns() - start) / count;
		case_mark_end();
		if (each < least)
			least = each;
	}
	printf("case %s ns %.1f\n", name, least);
	fflush(stdout);
}

static void run_getppid(int count)
{
	for (int i = 0; i < count; i++)
		syscall(SYS_getppid);
}

static int zero_fd;

static void run_read(int count)
{
	char byte;
	for (int i = 0; i < count; i++)
		if (syscall(SYS_read, zero_fd, &byte, 1) != 1)
			case_fail("read");
}

static void wait_for(pid_t child)
{
	int status;
	if (child < 0)
		case_fail("fork");
	if (waitpid(child, &status, 0) != child || status != 0)
		case_fail("waitpid");
}

static void run_fork(int count)
{
	for (int i = 0; i < count; i++) {
		pid_t child = fork();
		if (child == 0)
			_exit(0);
		wait_for(child);
	}
}

static char *self;

static void run_exec(int count)
{
	for (int i = 0; i < count; i++) {
		pid_t child = fork();
		if (child == 0) {
			char *const arguments[] = { self, "exit", NULL };
			execv(self, arguments);
			_exit(127);
		}
		wait_for(child);
	}
}

static void run_fault(int count)
{
	for (int done = 0; done < count; done += PAGES) {
		char *area = mmap(NULL, PAGES * 4096L, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (area == MAP_FAILED)
			case_fail("mmap");
		madvise(area, PAGES * 4096L, MADV_NOHUGEPAGE);
		for (long page = 0; page < PAGES; page++)
			((volatile char *)area)[page * 4096] = 1;
		munmap(area, PAGES * 4096L);
	}
}

int main(int argc, char **argv)
{
	double first_user_ns = case_clock_ns();
	if (argc > 1 && strcmp(argv[1], "exit") == 0)
		return 0;
	if (argc > 1 && strcmp(argv[1], "tsc-khz") == 0)
		case_begin(argv[1]);
	if (argc > 1 && strcmp(argv[1], "few") == 0)
		rounds = 1;
	int is_init = getpid() == 1;
	if (is_init) {
		mkdir("/dev", 0755);
		mknod("/dev/zero", S_IFCHR | 0666, 1 << 8 | 5);
	}
	self = is_init ? "/init" : argv[0];
	zero_fd = open("/dev/zero", O_RDONLY);
	if (zero_fd < 0)
		case_fail("/dev/zero");
	printf("case first_user ns %.0f\n", first_user_ns);
	measure("getppid", 0, run_getppid, 200000);
	measure("read_zero_1", 1, run_read, 100000);
	measure("fork_exit_wait", 2, run_fork, 100);
	measure("fork_exec_exit_wait", 3, run_exec, 50);
	measure("page_fault", 4, run_fault, 4 * PAGES);
	case_end();
	return 0;
}
