/* Shows the progress of a verb: one line for each shown piece of work, or on a terminal one line
 * that is overwritten. */
#ifndef TANDEM_CLI_REPORT_PROGRESS_H
#define TANDEM_CLI_REPORT_PROGRESS_H

#include <stdio.h>

#include "cli/cli.h"

typedef struct Progress {
    FILE *to;         /* NULL: no progress is shown */
    const char *verb; /* name in the overwritten line; NULL: pieces have lines of their own */
    uint32_t n, done; /* pieces */
    uint32_t every;   /* with lines: only every `every`-th piece, and the last one, has one */
    double start_s;
} Progress;

/* Returns which pieces have lines if --every is not given: all on a terminal, otherwise every
 * tenth. */
uint32_t progress_every(const Cli *cli);
/* Such lines are results. They go to standard output, unless it holds a single document. */
Progress progress_by_lines(const Cli *cli, uint32_t n);
/* The overwritten line appears only on a terminal, never in files, pipes and logs. */
Progress progress_by_count(const Cli *cli, uint32_t n);
/* True if the next piece has a line. */
bool progress_shows(const Progress *p);
/* Adds `more` finished pieces; `line` is the text of a piece that is shown, else NULL. */
void progress_add(Progress *p, uint32_t more, const char *line);
void progress_end(Progress *p);

#endif
