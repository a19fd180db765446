/* How far a verb is, for who waits: one line for each of the pieces that are to be seen, or, on a
 * terminal, one line that is written over. */
#ifndef TANDEM_CLI_REPORT_PROGRESS_H
#define TANDEM_CLI_REPORT_PROGRESS_H

#include <stdio.h>

#include "cli/cli.h"

typedef struct Progress {
    FILE *to;         /* NULL: nobody is told */
    const char *verb; /* of the line that is written over; NULL: pieces have lines of their own */
    uint32_t n, done; /* pieces */
    uint32_t every;   /* of those with lines: each `every`-th has one, and the last */
    double start_s;
} Progress;

/* Which pieces have lines, unless --every says it: all on a terminal, else each tenth. */
uint32_t progress_every(const Cli *cli);
/* Lines are results: on standard output, where that is not one document. */
Progress progress_by_lines(const Cli *cli, uint32_t n);
/* On a terminal alone: files, pipes and logs get no line that is written over. */
Progress progress_by_count(const Cli *cli, uint32_t n);
/* Has the next piece a line? */
bool progress_shows(const Progress *p);
/* So many more are done; `line`, of one whose line is shown, else NULL. */
void progress_add(Progress *p, uint32_t more, const char *line);
void progress_end(Progress *p);

#endif
