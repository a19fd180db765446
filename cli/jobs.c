/* Each process writes what it finds to a file of its own that has no name; the parent reads them
 * when all have ended. */
#include "cli/jobs.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

uint32_t jobs_number(uint32_t wanted, uint32_t n_work)
{
    uint32_t n = wanted > 0 ? wanted : machine_cores();
    if (n > MOST_JOBS) n = MOST_JOBS;
    if (n > n_work) n = n_work;
    return n > 0 ? n : 1;
}

static pid_t start(uint32_t job, uint32_t n_jobs, JobWork work, void *self, FILE *file)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0) return pid;
    work(self, job, n_jobs, file);
    _exit(fflush(file) == 0 && !ferror(file) ? 0 : 1);
}

bool jobs_fork(Cli *cli, uint32_t n_jobs, JobWork work, void *self, FILE *file[MOST_JOBS])
{
    pid_t pid[MOST_JOBS];
    bool fine = true;
    for (uint32_t i = 0; i < n_jobs; i++) {
        file[i] = tmpfile();
        pid[i] = file[i] != NULL ? start(i, n_jobs, work, self, file[i]) : -1;
        if (pid[i] < 0)
            fine = cli_error(cli, FAULT_internal, "job-process", "cannot start a process: %s",
                             strerror(errno));
    }
    for (uint32_t i = 0; i < n_jobs; i++) {
        int status = 0;
        while (pid[i] > 0 && waitpid(pid[i], &status, 0) < 0 && errno == EINTR) {
        }
        if (pid[i] > 0 && status != 0)
            fine = cli_error(cli, FAULT_internal, "job-process",
                             "a process that predicts rows ended unexpectedly (status %d)", status);
        if (file[i] != NULL) rewind(file[i]);
    }
    return fine;
}
