/* Work in several processes: plans are compiled and simulated by one thread each. */
#ifndef TANDEM_CLI_JOBS_H
#define TANDEM_CLI_JOBS_H

#include <stdio.h>

#include "cli/cli.h"

enum { MOST_JOBS = 64 };
typedef struct Worker {
    uint32_t index, n_jobs; /* does every n_jobs-th piece of the work, from this one on */
    FILE *file;             /* what is written to it arrives in the parent */
    int count;              /* where finished pieces are counted; -1: nobody watches */
} Worker;
typedef void (*JobWork)(void *self, const Worker *job);
void job_piece_done(const Worker *job);

/* `wanted`, or as many as there are cores; never more than there is work for. */
uint32_t jobs_number(uint32_t wanted, uint32_t n_work);
/* Waits for all; file[i] holds what process i wrote, at its beginning, or is NULL. The caller
 * closes them. On a terminal it says meanwhile how many of n_work pieces are done. false after
 * diagnostics: a process could not be started, or failed. */
bool jobs_fork(Cli *cli, uint32_t n_jobs, uint32_t n_work, JobWork work, void *self,
               FILE *file[MOST_JOBS]);

#endif
