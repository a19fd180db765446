/* Divides work among processes. Each process writes its results to a temporary file without a name.
 * The parent reads these files when all processes have ended. */
#include "cli/sweep/jobs.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/report/progress.h"
#include "planner/base/cores.h"

uint32_t jobs_number(uint32_t wanted, uint32_t n_work)
{
    uint32_t n = wanted > 0 ? wanted : cores_usable();
    if (n > MOST_JOBS) n = MOST_JOBS;
    if (n > n_work) n = n_work;
    return n > 0 ? n : 1;
}

/* ---- an interruption */
static const char *kept_text; /* global, because a signal handler has no argument */
static volatile sig_atomic_t interrupted;

void jobs_on_interrupt(const char *kept)
{
    kept_text = kept;
}

static void on_interrupt(int number)
{
    interrupted = number;
}

/* The terminal sends a signal to the child processes, too. The parent waits for their end, and then
 * ends itself. */
static void watch(struct sigaction old[2])
{
    static const int numbers[] = {SIGINT, SIGTERM};
    const struct sigaction action = {.sa_handler = on_interrupt};
    interrupted = 0;
    for (int i = 0; i < 2; i++) {
        sigaction(numbers[i], NULL, &old[i]);
        if (kept_text != NULL && old[i].sa_handler != SIG_IGN) sigaction(numbers[i], &action, NULL);
    }
}

static void end_if_interrupted(const struct sigaction old[2])
{
    sigaction(SIGINT, &old[0], NULL);
    sigaction(SIGTERM, &old[1], NULL);
    if (interrupted == 0) return;
    fprintf(stderr, "interrupted: %s\n", kept_text);
    raise(interrupted);
}

static pid_t start(const Worker *job, JobWork work, void *self)
{
    fflush(NULL);
    const pid_t parent = getpid(), pid = fork();
    if (pid != 0) return pid;
    /* If the parent ends, its child processes must end, too, even if only the parent got
     * a signal. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    work(self, job);
    _exit(fflush(job->file) == 0 && !ferror(job->file) ? 0 : 1);
}

void job_item_done(const Worker *job)
{
    ssize_t written = job->count >= 0 ? write(job->count, "", 1) : 0;
    (void)written; /* a byte that is lost only makes the shown count too small */
}

/* Shows the progress. Each byte in the pipe stands for a finished item. The pipe is closed when the
 * last process has ended. */
static void follow(Progress *progress, int count)
{
    char bytes[64];
    ssize_t n;
    while ((n = read(count, bytes, sizeof bytes)) > 0 || (n < 0 && errno == EINTR && !interrupted))
        if (n > 0) progress_add(progress, (uint32_t)n, NULL);
}

bool jobs_fork(Cli *cli, uint32_t n_jobs, uint32_t n_work, JobWork work, void *self,
               FILE *file[MOST_JOBS])
{
    pid_t pid[MOST_JOBS];
    int count[2] = {-1, -1};
    Progress progress = progress_by_count(cli, n_work);
    bool fine = true, watched = progress.to != NULL && pipe(count) == 0;
    struct sigaction old[2];
    for (uint32_t i = 0; i < n_jobs; i++) {
        file[i] = tmpfile();
        Worker job = {i, n_jobs, file[i], count[1]};
        pid[i] = file[i] != NULL ? start(&job, work, self) : -1;
        if (pid[i] < 0)
            fine = cli_error(cli, FAULT_internal, "job-process", "cannot start a process: %s",
                             strerror(errno));
    }
    watch(old); /* called only after the children have started, so that signals end them as usual */
    if (watched) {
        close(count[1]);
        follow(&progress, count[0]);
        close(count[0]);
    }
    progress_end(&progress);
    for (uint32_t i = 0; i < n_jobs; i++) {
        int status = 0;
        for (;;) {
            if (interrupted != 0 && pid[i] > 0) kill(pid[i], interrupted);
            if (pid[i] <= 0 || waitpid(pid[i], &status, 0) >= 0 || errno != EINTR) break;
        }
        if (pid[i] > 0 && status != 0)
            fine = cli_error(cli, FAULT_internal, "job-process",
                             "a process that predicts rows ended unexpectedly (status %d)", status);
        if (file[i] != NULL) rewind(file[i]);
    }
    end_if_interrupted(old);
    return fine;
}
