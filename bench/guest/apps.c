/*
 * The guest program of the suite `apps`: starts an ordinary program again and again and tells the median
 * time from fork to wait. The argument says which:
 *
 *     sqlite3    a new data base: 200 rows in one transaction, 20 in their own, sums and an index
 *     python3    the start of the interpreter: `python3_pass`, and without its site as `python3_bare`
 *     gcc        compiles and links /src/sample.c with -O2
 *     tar        `tar_create` and `tar_list` of 400 files of 8 KiB in 20 directories
 *
 * The programs are the host's, in an archive that both kernels get.
 */
#include "case.h"

#include <fcntl.h>
#include <sys/wait.h>

enum { ROUNDS = 9, LEAST_ROUNDS = 3, DIRECTORIES = 20, FILES = 20, FILE_BYTES = 8192 };
#define BUDGET_NS 4e9

static char *const environment[] = {"PATH=/usr/bin:/bin", "HOME=/root", "LANG=C", 0};

static void start(const char *input, char *const arguments[])
{
    char path[64];
    int in = open(input, O_RDONLY), out = open("/tmp/output", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (in < 0 || out < 0 || dup2(in, 0) != 0 || dup2(out, 1) != 1)
        _exit(126);
    snprintf(path, sizeof path, "/usr/bin/%s", arguments[0]);
    execve(path, arguments, environment);
    _exit(127);
}

static double run_once(const char *input, char *const arguments[])
{
    int status;
    double start_ns = case_clock_ns();
    pid_t child = fork();
    if (child < 0)
        case_fail("fork");
    if (child == 0)
        start(input, arguments);
    if (waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "%s ended with the wait status %#x\n", arguments[0], status);
        case_fail(arguments[0]);
    }
    return case_clock_ns() - start_ns;
}

/* `left` is a file that each run makes anew. */
static void measure(const char *name, const char *input, const char *left, char *const arguments[])
{
    double spent_ns = 0;
    int done = 0;
    unlink(left);
    run_once(input, arguments);
    case_count();
    while (done < ROUNDS && (done < LEAST_ROUNDS || spent_ns < BUDGET_NS)) {
        if (access(left, F_OK) == 0 && unlink(left) != 0)
            case_fail(left);
        case_samples[done] = run_once(input, arguments) / 1e6;
        spent_ns += case_samples[done++] * 1e6;
    }
    case_counted(name, done);
    case_print(name, "", "ms", case_quantile(done, 0.5));
}

static void write_script(const char *path)
{
    FILE *script = fopen(path, "w");
    if (!script)
        case_fail(path);
    fputs("create table stock(id integer primary key, name text, count integer);\nbegin;\n", script);
    for (int i = 0; i < 200; i++)
        fprintf(script, "insert into stock values(%d, 'item %d', %d);\n", i, i * 7919 % 200, i % 13);
    fputs("commit;\n", script);
    for (int i = 0; i < 20; i++)
        fprintf(script, "update stock set count = count + 1 where id = %d;\n", i * 10);
    fputs("create index by_name on stock(name);\n"
          "select count, sum(id) from stock group by count order by count;\n"
          "select * from stock where name between 'item 10' and 'item 15';\n", script);
    if (fclose(script) != 0)
        case_fail(path);
}

static void make_tree(void)
{
    static char text[FILE_BYTES];
    char path[64];
    memset(text, 'x', sizeof text);
    mkdir("/tmp/tree", 0755);
    for (int directory = 0; directory < DIRECTORIES; directory++) {
        snprintf(path, sizeof path, "/tmp/tree/%02d", directory);
        mkdir(path, 0755);
        for (int i = 0; i < FILES; i++) {
            snprintf(path, sizeof path, "/tmp/tree/%02d/file-%02d", directory, i);
            int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
            if (file < 0 || write(file, text, sizeof text) != sizeof text || close(file) != 0)
                case_fail(path);
        }
    }
}

#define RUN(name, input, left, ...) measure(name, input, left, (char *const[]){__VA_ARGS__, 0})

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    case_begin(what);
    if (strcmp(what, "sqlite3") == 0) {
        write_script("/tmp/script.sql");
        RUN("sqlite3", "/tmp/script.sql", "/tmp/stock.db", "sqlite3", "/tmp/stock.db");
    } else if (strcmp(what, "python3") == 0) {
        RUN("python3_pass", "/dev/null", "/tmp/none", "python3", "-c", "pass");
        RUN("python3_bare", "/dev/null", "/tmp/none", "python3", "-S", "-E", "-c", "pass");
    } else if (strcmp(what, "gcc") == 0) {
        RUN("gcc", "/dev/null", "/tmp/sample", "gcc", "-O2", "-o", "/tmp/sample", "/src/sample.c");
    } else if (strcmp(what, "tar") == 0) {
        make_tree();
        RUN("tar_create", "/dev/null", "/tmp/tree.tar", "tar", "-cf", "/tmp/tree.tar", "-C", "/tmp",
            "tree");
        RUN("tar_list", "/dev/null", "/tmp/none", "tar", "-tf", "/tmp/tree.tar");
    } else {
        fprintf(stderr, "apps: %s is none of sqlite3, python3, gcc, tar\n", what);
        return 1;
    }
    case_end();
    return 0;
}
