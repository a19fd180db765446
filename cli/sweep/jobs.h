/* Divides work among several processes, each with one thread. */
#ifndef TANDEM_CLI_JOBS_H
#define TANDEM_CLI_JOBS_H

#include <stdio.h>

#include "cli/cli.h"

enum { MOST_JOBS = 64 };
typedef struct Worker {
    /* index: index of this process; the process does the items index, index + n_jobs, index + 2
     * n_jobs, ... */
    uint32_t index, n_jobs;
    FILE *file; /* the parent can read the data that the process writes here */
    /* file descriptor to which the process writes a byte for each finished item; -1: no count is
     * shown */
    int count;
} Worker;
typedef void (*JobWork)(void *self, const Worker *job);
void job_item_done(const Worker *job);

/* Returns the number of processes to start: `wanted`, or the number of cores if `wanted` is 0, but
 * at most `n_work`. */
uint32_t jobs_number(uint32_t wanted, uint32_t n_work);
/* If the user interrupts the command from now on, prints `kept` (NULL: nothing), and ends the
 * process with the same signal. */
void jobs_on_interrupt(const char *kept);
/* Calls work(self, worker) in n_jobs processes and waits for all of them. Sets file[i] to a
 * temporary file with the output of process i, positioned at its start; NULL if the file could not
 * be created. The caller closes the files. On a terminal, the function shows the number of finished
 * items out of n_work. Returns false after reporting diagnostics if a process could not be started
 * or failed. */
bool jobs_fork(Cli *cli, uint32_t n_jobs, uint32_t n_work, JobWork work, void *self,
               FILE *file[MOST_JOBS]);

#endif
