/* Work in several processes: plans are compiled and simulated by one thread each. */
#ifndef TANDEM_CLI_JOBS_H
#define TANDEM_CLI_JOBS_H

#include <stdio.h>

#include "cli/cli.h"

enum { MOST_JOBS = 64 };
/* What process `job` of `n_jobs` does; what it writes to `file` arrives in the parent. */
typedef void (*JobWork)(void *self, uint32_t job, uint32_t n_jobs, FILE *file);

/* `wanted`, or as many as there are cores; never more than there is work for. */
uint32_t jobs_number(uint32_t wanted, uint32_t n_work);
/* Waits for all; file[i] holds what process i wrote, at its beginning, or is NULL. The caller
 * closes them. false after diagnostics: a process could not be started, or failed. */
bool jobs_fork(Cli *cli, uint32_t n_jobs, JobWork work, void *self, FILE *file[MOST_JOBS]);

#endif
