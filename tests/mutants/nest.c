/* Runs the test of a mutant: nest SECONDS PROGRAM [ARGUMENT ...]. No process of the test outlives
 * this one, not even a process that has left the test's process group and whose parent has ended.
 * Such a process becomes a child of this one, which kills its children until none is left. The test
 * writes to this process's standard error. Prints "ended N" or "late N", where N is the processor
 * time of all processes [s]. Ends with the test's exit code. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FAILED = 125, BY_SIGNAL = 128 };

static double used_s(void)
{
    struct rusage all;
    getrusage(RUSAGE_CHILDREN, &all);
    return (double)(all.ru_utime.tv_sec + all.ru_stime.tv_sec) +
           (double)(all.ru_utime.tv_usec + all.ru_stime.tv_usec) * 1e-6;
}

static double left_s(const struct timespec *start, double limit_s)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return limit_s - (double)(now.tv_sec - start->tv_sec) -
           (double)(now.tv_nsec - start->tv_nsec) * 1e-9;
}

/* Returns the parent of a process; 0 if it has none or has ended. */
static pid_t parent_of(const char *pid)
{
    char path[300];
    char line[512] = "";
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *stat = fopen(path, "r");
    if (!stat) return 0;
    if (!fgets(line, sizeof line, stat)) line[0] = 0;
    fclose(stat);
    /* the program's name is in brackets, and may itself contain brackets */
    const char *rest = strrchr(line, ')');
    return rest && sscanf(rest + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

static void kill_children(void)
{
    DIR *all = opendir("/proc");
    struct dirent *entry;
    if (!all) return;
    while ((entry = readdir(all)) != NULL)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
            parent_of(entry->d_name) == getpid())
            kill((pid_t)strtol(entry->d_name, NULL, 10), SIGKILL);
    closedir(all);
}

/* Kills all children. If a child ends, its own children become children of this process, so one
 * round is not enough. */
static void end_all(void)
{
    for (pid_t ended = 0; ended >= 0 || errno == EINTR;) {
        ended = waitpid(-1, NULL, WNOHANG);
        if (ended != 0) continue;
        kill_children();
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

/* Waits until the test ends, SIGTERM arrives, or the time is over. Returns false if the test still
 * runs. */
static bool await(pid_t test, double limit_s, const sigset_t *watched, int *status)
{
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (double left; (left = left_s(&start, limit_s)) > 0;) {
        pid_t ended;
        while ((ended = waitpid(-1, status, WNOHANG)) > 0)
            if (ended == test) return true;
        struct timespec wait = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
        if (sigtimedwait(watched, NULL, &wait) == SIGTERM) return false;
    }
    return false;
}

int main(int argc, char **argv)
{
    sigset_t watched;
    int status = 0;
    if (argc < 3 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return FAILED;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    sigaddset(&watched, SIGTERM);
    sigprocmask(SIG_BLOCK, &watched, NULL);
    pid_t test = fork();
    if (test < 0) return FAILED;
    if (test == 0) {
        sigprocmask(SIG_UNBLOCK, &watched, NULL);
        dup2(2, 1);
        execv(argv[2], argv + 2);
        _exit(FAILED);
    }
    bool ended = await(test, strtod(argv[1], NULL), &watched, &status);
    end_all();
    printf("%s %.6f\n", ended ? "ended" : "late", used_s());
    if (!ended) return FAILED;
    return WIFEXITED(status) ? WEXITSTATUS(status) : BY_SIGNAL + WTERMSIG(status);
}
