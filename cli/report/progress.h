/* Shows the progress of a verb, either by a line for some of its items, or by one line on the
 * terminal that is overwritten. */
#ifndef TANDEM_CLI_REPORT_PROGRESS_H
#define TANDEM_CLI_REPORT_PROGRESS_H

#include <stdio.h>

#include "cli/cli.h"

typedef struct Progress {
    FILE *to; /* the file to which progress is written; NULL: none is shown */
    /* the verb's name, for a line that is overwritten; NULL: progress is shown by lines */
    const char *verb;
    uint32_t n, done; /* number of items; number of finished items */
    /* if shown by lines: every `every`-th item has a line, and the last item, too */
    uint32_t every;
    double start_s;
} Progress;

/* Returns the default of --every: 1 on a terminal, otherwise 10. */
uint32_t progress_every(const Cli *cli);
/* Begins to show progress by lines. The lines are results, so they go to standard output, unless it
 * must contain only one JSON document. */
Progress progress_by_lines(const Cli *cli, uint32_t n);
/* Begins to show progress by one line that is overwritten. Such a line is shown only on a terminal,
 * never in files, pipes and logs. */
Progress progress_by_count(const Cli *cli, uint32_t n);
/* Returns true if the next item gets a line. */
bool progress_shows(const Progress *p);
/* Counts `more` finished items, and prints the line of the last one. `line` is NULL if items have
 * no lines. */
void progress_add(Progress *p, uint32_t more, const char *line);
void progress_end(Progress *p);

#endif
