/* Rows in several processes. Each writes what it finds to a file of its own that has no name; the
 * parent reads them when all have ended and puts them into the order of the rows. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/accuracy.h"

enum { MOST_JOBS = 64 };

/* Tabs and line ends part what is written. */
static void put_word(FILE *file, const char *text, char end)
{
    for (; *text != 0; text++) fputc(*text == '\t' || *text == '\n' ? ' ' : *text, file);
    fputc(end, file);
}

static void put(const RowOut *out, char kind, const char *what, double measured, double predicted)
{
    fprintf(out->file, "%u\t%c\t", out->row, kind);
    put_word(out->file, what, '\t');
    fprintf(out->file, "%.17g\t%.17g\n", measured, predicted);
}

void row_score(const RowOut *out, const char *what, double measured, double predicted)
{
    put(out, 'S', what, measured, predicted);
}

void row_verdict(const RowOut *out, const char *what, bool measured, bool predicted)
{
    put(out, 'V', what, measured, predicted);
}

void row_reason(const RowOut *out, const char *reason)
{
    put(out, 'R', reason, 0, 0);
}

static void work_through(const Cli *cli, const Csv *csv, uint32_t first, uint32_t step,
                         const char *label_column, RowWork work, FILE *file)
{
    for (uint32_t row = first; row < csv->n_rows; row += step) {
        RowOut out = {file,
                      row,
                      csv_cell(csv, row, "source"),
                      csv_cell(csv, row, "split"),
                      csv_cell(csv, row, label_column),
                      cli};
        if (strcmp(out.split, "aux") == 0)
            row_reason(&out, "marked aux: never scored");
        else
            work(csv, &out);
    }
}

typedef struct Said {
    uint32_t row;
    char kind;
    const char *what;
    double measured, predicted;
} Said;
typedef LIST(Said) SaidList;

static bool listen_to(FILE *file, Arena *arena, SaidList *said)
{
    char line[2048];
    rewind(file);
    while (fgets(line, sizeof line, file) != NULL) {
        char *end = NULL;
        Said s = {.row = (uint32_t)strtoul(line, &end, 10)};
        if (end == line || end[0] != '\t' || end[2] != '\t') return false;
        s.kind = end[1];
        const char *what = end + 3, *tab = strchr(what, '\t');
        if (tab == NULL) return false;
        s.what = arena_copy(arena, what, (size_t)(tab - what));
        s.measured = strtod(tab + 1, &end);
        s.predicted = strtod(end, NULL);
        list_push(arena, said, s);
    }
    return !ferror(file);
}

static void count_reason(Scores *scores, Arena *arena, const RowOut *row, const char *reason)
{
    for (uint32_t i = 0; i < scores->reasons.n; i++) {
        Unscored *u = &scores->reasons.at[i];
        if (strcmp(u->source, row->source) != 0 || strcmp(u->split, row->split) != 0) continue;
        if (strcmp(u->reason, reason) != 0) continue;
        u->n++;
        return;
    }
    list_push(arena, &scores->reasons, ((Unscored){row->source, row->split, reason, 1}));
}

/* Row by row: each process took every n_jobs-th one, in order. */
static void sort_out(const Csv *csv, const char *label_column, Arena *arena, const SaidList *said,
                     uint32_t n_jobs, Scores *scores)
{
    uint32_t at[MOST_JOBS] = {0};
    for (uint32_t i = 0; i < csv->n_rows; i++) {
        const SaidList *list = &said[i % n_jobs];
        uint32_t *next = &at[i % n_jobs], n_scores = 0;
        RowOut row = {NULL,
                      i,
                      csv_cell(csv, i, "source"),
                      csv_cell(csv, i, "split"),
                      csv_cell(csv, i, label_column),
                      NULL};
        for (; *next < list->n && list->at[*next].row == i; ++*next) {
            const Said *s = &list->at[*next];
            if (s->kind == 'R') {
                count_reason(scores, arena, &row, s->what);
                continue;
            }
            Score score = {s->what,     row.source,   row.split,     row.label,
                           s->measured, s->predicted, s->kind == 'V'};
            list_push(arena, &scores->rows, score);
            n_scores++;
        }
        scores->n_scored += n_scores > 0;
    }
    scores->n_rows = csv->n_rows;
}

/* Starts process `i` of `n`; -1 when it cannot be. */
static pid_t start(const Cli *cli, const Csv *csv, uint32_t i, uint32_t n, const char *label_column,
                   RowWork work, FILE *file)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0) return pid;
    work_through(cli, csv, i, n, label_column, work, file);
    _exit(fflush(file) == 0 ? 0 : 1);
}

bool jobs_run(const Csv *csv, uint32_t n_jobs, const char *label_column, RowWork work, Cli *cli,
              Scores *scores)
{
    FILE *file[MOST_JOBS] = {NULL};
    pid_t pid[MOST_JOBS];
    SaidList said[MOST_JOBS];
    memset(said, 0, sizeof said);
    bool fine = true;
    uint32_t n = n_jobs < 1 ? 1 : n_jobs > MOST_JOBS ? MOST_JOBS : n_jobs;
    for (uint32_t i = 0; i < n; i++) {
        file[i] = tmpfile();
        pid[i] = file[i] != NULL ? start(cli, csv, i, n, label_column, work, file[i]) : -1;
        if (pid[i] < 0)
            fine = cli_error(cli, FAULT_internal, "accuracy-process", "cannot start a process: %s",
                             strerror(errno));
    }
    for (uint32_t i = 0; i < n; i++) {
        int status = 0;
        while (pid[i] > 0 && waitpid(pid[i], &status, 0) < 0 && errno == EINTR) {
        }
        bool heard = pid[i] > 0 && status == 0 && listen_to(file[i], cli->arena, &said[i]);
        if (pid[i] > 0 && !heard)
            fine = cli_error(cli, FAULT_internal, "accuracy-process",
                             "a process that predicts rows ended unexpectedly (status %d)", status);
        if (file[i] != NULL) fclose(file[i]);
    }
    if (fine) sort_out(csv, label_column, cli->arena, said, n, scores);
    return fine;
}
