/* Divides work among several processes, each with one thread. */
#ifndef TANDEM_CLI_JOBS_H
#define TANDEM_CLI_JOBS_H

#include <stdio.h>

#include "cli/cli.h"

enum { MOST_JOBS = 64 };
typedef struct Worker {
    /* this process does every n_jobs-th item of the work, beginning with item `index` */
    uint32_t index, n_jobs;
    FILE *file; /* data written here arrives in the parent */
    int count;  /* descriptor for counting finished items; -1: the count is not shown */
} Worker;
typedef void (*JobWork)(void *self, const Worker *job);
void job_item_done(const Worker *job);

/* Returns the number of processes: `wanted`, or the number of cores if it is 0, but at most
 * `n_work`. */
uint32_t jobs_number(uint32_t wanted, uint32_t n_work);
/* From now on, if the user interrupts the command, it prints `kept` (NULL: nothing) and ends with
 * the same signal. */
void jobs_on_interrupt(const char *kept);
/* Calls work(self, worker) in n_jobs processes and waits for all of them. Sets file[i] to a
 * temporary file with the output of process i, positioned at its start; NULL if the file could not
 * be created. The caller closes the files. On a terminal, the function shows the number of finished
 * items out of n_work. Returns false after reporting diagnostics if a process could not be started
 * or failed. */
bool jobs_fork(Cli *cli, uint32_t n_jobs, uint32_t n_work, JobWork work, void *self,
               FILE *file[MOST_JOBS]);

#endif
