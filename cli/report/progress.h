/* Shows the progress of a verb: a line for some of its items of work, or one line on the terminal
 * that is overwritten. */
#ifndef TANDEM_CLI_REPORT_PROGRESS_H
#define TANDEM_CLI_REPORT_PROGRESS_H

#include <stdio.h>

#include "cli/cli.h"

typedef struct Progress {
    FILE *to;         /* NULL: no progress is shown */
    const char *verb; /* name in the overwritten line; NULL: progress is shown by lines */
    uint32_t n, done; /* items of work */
    uint32_t every;   /* by lines: every `every`-th item and the last item have a line */
    double start_s;
} Progress;

/* Returns `every` for a command without --every: 1 on a terminal, otherwise 10. */
uint32_t progress_every(const Cli *cli);
/* Shows progress by lines. They are results, so they go to standard output, unless it holds a
 * single document. */
Progress progress_by_lines(const Cli *cli, uint32_t n);
/* Shows progress by one overwritten line, only on a terminal, never in files, pipes and logs. */
Progress progress_by_count(const Cli *cli, uint32_t n);
/* True if the next item has a line. */
bool progress_shows(const Progress *p);
/* Counts `more` finished items and prints the line. NULL: the items have no line. */
void progress_add(Progress *p, uint32_t more, const char *line);
void progress_end(Progress *p);

#endif
