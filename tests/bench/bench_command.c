/* Times a whole process. Runs a command n times without its output. Prints the least and the median
 * wall time, and the least processor time (children included). Arguments: n, a file to remove
 * before each run ("-": none), the command. */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { MAX_RUNS = 1000 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static double processor_ms(void)
{
    struct rusage u;
    getrusage(RUSAGE_CHILDREN, &u);
    return 1e3 * (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-3 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Runs the command. Returns its exit status, or -1. */
static int run(char **argv)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&pid, argv[0], &actions, NULL, argv, environ) == 0) {
        waitpid(pid, &status, 0);
        status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    posix_spawn_file_actions_destroy(&actions);
    return status;
}

int main(int argc, char **argv)
{
    static double ms[MAX_RUNS];
    double least = 0;
    if (argc < 4) return 2;
    unsigned long n = strtoul(argv[1], NULL, 10);
    if (n == 0 || n > MAX_RUNS) return 2;
    for (unsigned long i = 0; i < n; i++) {
        if (strcmp(argv[2], "-") != 0) unlink(argv[2]);
        double from = milliseconds(), used = processor_ms();
        int status = run(argv + 3);
        ms[i] = milliseconds() - from;
        used = processor_ms() - used;
        if (i == 0 || used < least) least = used;
        if (status != 0) {
            fprintf(stderr, "bench_command: %s ended with status %d\n", argv[3], status);
            return 1;
        }
    }
    qsort(ms, n, sizeof ms[0], by_value);
    printf("least %.1f ms, median %.1f ms of %lu; processor time %.1f ms at least\n", ms[0],
           ms[n / 2], n, least);
    return 0;
}
