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
 * `null exit` only ends. `null tsc-khz`, for the host, prints the rate of the time stamp counter.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { ROUNDS = 7, PAGES = 2048 };

static double now_ns(void)
{
	struct timespec t;
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

typedef void (*case_function)(int count);

/* Prints the least time per operation over the rounds. */
static void measure(const char *name, case_function run, int count)
{
	double least = 1e300;
	for (int round = 0; round < ROUNDS; round++) {
		double start = now_ns();
		run(count);
		double each = (now_ns() - start) / count;
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
			fail("read");
}

static void wait_for(pid_t child)
{
	int status;
	if (child < 0)
		fail("fork");
	if (waitpid(child, &status, 0) != child || status != 0)
		fail("waitpid");
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
			fail("mmap");
		madvise(area, PAGES * 4096L, MADV_NOHUGEPAGE);
		for (long page = 0; page < PAGES; page++)
			((volatile char *)area)[page * 4096] = 1;
		munmap(area, PAGES * 4096L);
	}
}

/* The time stamp counter, and the time at which it was read: of several tries the least disturbed. */
static uint64_t stamp(double *at_ns)
{
	uint64_t counter = 0;
	double least = 1e300;
	for (int try = 0; try < 32; try++) {
		double before = now_ns();
		uint64_t value = __rdtsc();
		double gap = now_ns() - before;
		if (gap < least) {
			least = gap;
			counter = value;
			*at_ns = before + gap / 2;
		}
	}
	return counter;
}

static void print_tsc_khz(void)
{
	double start_ns, end_ns;
	uint64_t start = stamp(&start_ns);
	usleep(100000);
	uint64_t end = stamp(&end_ns);
	printf("%.0f\n", (end - start) / (end_ns - start_ns) * 1e6);
}

int main(int argc, char **argv)
{
	double first_user_ns = now_ns();
	if (argc > 1 && strcmp(argv[1], "exit") == 0)
		return 0;
	if (argc > 1 && strcmp(argv[1], "tsc-khz") == 0) {
		print_tsc_khz();
		return 0;
	}
	int is_init = getpid() == 1;
	if (is_init) {
		mkdir("/dev", 0755);
		mknod("/dev/zero", S_IFCHR | 0666, 1 << 8 | 5);
	}
	self = is_init ? "/init" : argv[0];
	zero_fd = open("/dev/zero", O_RDONLY);
	if (zero_fd < 0)
		fail("/dev/zero");
	printf("case first_user ns %.0f\n", first_user_ns);
	measure("getppid", run_getppid, 200000);
	measure("read_zero_1", run_read, 100000);
	measure("fork_exit_wait", run_fork, 100);
	measure("fork_exec_exit_wait", run_exec, 50);
	measure("page_fault", run_fault, 4 * PAGES);
	printf("end\n");
	fflush(stdout);
	if (is_init)
		reboot(RB_POWER_OFF);
	return 0;
}
