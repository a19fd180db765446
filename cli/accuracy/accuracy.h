/* tandem accuracy: compares predictions with published measurements. A section reads one file of
 * rows. For each row it gives scores, or the reason why the row cannot be scored. To add a section,
 * add a function here, a row in accuracy_sections (cmd_accuracy.c), and an option in options.c. */
#ifndef TANDEM_CLI_ACCURACY_ACCURACY_H
#define TANDEM_CLI_ACCURACY_ACCURACY_H

#include <stdio.h>

#include "cli/cli.h"

/* ---- csv.c: a table with a header line; fields may be quoted, "" is a quote in them */
typedef struct Csv {
    const char *path;
    LIST(const char *) columns;
    LIST(const char *) cells; /* the cells, row after row */
    uint32_t n_rows;
} Csv;
/* Reads a table from a file. Returns false after reporting "csv-open", or "csv-syntax" with the
 * line. */
bool csv_read(const char *path, Arena *arena, Csv *csv, Diag *d);
/* Checks that the table has the columns `names`, a list that ends in NULL. Returns false after
 * reporting "csv-column" with the missing ones. */
bool csv_needs(const Csv *csv, const char *const *names, Diag *d);
/* Returns the cell of a row in the column `name`. Returns "" if the file has no such column. */
const char *csv_cell(const Csv *csv, uint32_t row, const char *column);
/* Reads a decimal number at the beginning of a text, and sets *end to the character after it.
 * Returns NAN for other texts, including "inf" and "0x10". */
double csv_decimal(const char *text, const char **end);
/* Returns the number in a cell. Returns NAN unless the whole cell is a decimal number. */
double csv_number(const Csv *csv, uint32_t row, const char *column);

/* Copies a cell without the marks that separate thousands: "10,500.5" and "10'500.5" become
 * "10500.5". A blank counts as such a mark only in a number that begins the cell: "10 500 tok/s".
 * Other marks stay, as in "1024,256" and "0,853". */
void csv_plain(const char *cell, char *to, size_t most);

/* Empties all cells whose words say that the value is not known: "?", "n/a (FSDP)", "unstated".
 * Code that reads the table then needs to test only for empty cells. */
void csv_empty_open(Csv *csv);

/* ---- pages.c: facts that a page states of its rows (scripts/tandem/published/pages.csv) */
/* Empties the cells of `csv` without a known value, then fills cells with the facts of pages.c, and
 * adds columns that `csv` lacks. `table` names its section: "runs", "kernels" or "comm". Returns
 * false after diagnostics if the list of facts cannot be read. */
bool csv_add_pages(Csv *csv, const char *table, Arena *arena, Diag *d);

/* ---- scores */
typedef struct Score {
    /* the quantity, such as "step time"; errors of equal quantities form a group */
    const char *what;
    const char *source; /* the publication from which the row comes */
    /* dev-cal: constants may be fitted to the row; dev-val: no constant was fitted to it */
    const char *split;
    const char *label; /* the name that the table of published runs gives to the row */
    /* the framework's profile (the name of its runtime settings) and the GPU, as trust_gpu returns
     * it; "": it has none */
    const char *profile, *gpu;
    double measured, predicted; /* two positive numbers in the same unit; for a verdict: 1 or 0 */
    bool verdict;               /* the score only says whether a yes-or-no prediction was right */
} Score;
typedef struct Unscored {
    const char *source, *split, *reason;
    uint32_t n;
} Unscored;
/* An assumption about a row: a value for a cell that states none, or a part of the plan that
 * replaces a part which the library lacks. */
typedef struct RowNote {
    const char *label, *text; /* label: as in Score */
} RowNote;
typedef struct Scores {
    LIST(Score) rows;
    LIST(Unscored) reasons;
    LIST(RowNote) notes; /* in the order of the rows; empty without --verbose and --json */
    /* the number of rows in the file, and how many of them have a score */
    uint32_t n_rows, n_scored;
} Scores;

/* The result of one row: any number of scores, or one reason. */
typedef struct RowOut {
    FILE *file;
    uint32_t row;
    const char *source, *split, *label;
    const Cli *cli;
    /* the RowWork sets both before it adds scores; NULL: the row has no profile, or no GPU */
    const char *profile, *gpu;
} RowOut;
void row_score(const RowOut *out, const char *what, double measured, double predicted);
void row_verdict(const RowOut *out, const char *what, bool measured, bool predicted);
void row_reason(const RowOut *out, const char *reason);
void row_note(const RowOut *out, const char *text); /* text: at most 1,000 bytes */

/* ---- jobs.c: handles the rows of a file in `n_jobs` processes. Results come in the order
 * of the rows, whatever the number of processes. Returns false after diagnostics if a process
 * failed. */
typedef void (*RowWork)(const Csv *csv, RowOut *out);
bool jobs_run(const Csv *csv, uint32_t n_jobs, const char *label_column, RowWork work, Cli *cli,
              Scores *scores);

/* ---- table.c */
void scores_report(Cli *cli, const char *name, const char *path, const Scores *scores);

/* ---- plot.c: plots predicted over measured on logarithmic axes, with a panel for each
 * `what`. Returns false after diagnostics. */
bool scores_plot(Cli *cli, const char *path, const Scores *const *all, uint32_t n);

/* ---- the sections */
/* Scores rows of training runs (runs.c). */
bool score_runs(Cli *cli, const Csv *csv, Scores *scores);
/* Scores rows of kernels (kernels.c). */
bool score_kernels(Cli *cli, const Csv *csv, Scores *scores);
/* Scores rows of collectives (comm.c). */
bool score_comm(Cli *cli, const Csv *csv, Scores *scores);

#endif
