/* Handles rows in several processes, and puts the results into the order of the rows. Processes
 * send results as lines of text. */
#include <stdlib.h>
#include <string.h>

#include "cli/accuracy/accuracy.h"
#include "cli/sweep/jobs.h"

/* Writes a word and the character `end`. Tabs and line ends in the word become spaces, because they
 * separate words. */
static void put_word(FILE *file, const char *text, char end)
{
    for (; *text != 0; text++) fputc(*text == '\t' || *text == '\n' ? ' ' : *text, file);
    fputc(end, file);
}

static void put(const RowOut *out, char kind, const char *what, double measured, double predicted)
{
    fprintf(out->file, "%u\t%c\t", out->row, kind);
    put_word(out->file, what, '\t');
    put_word(out->file, out->profile == NULL ? "" : out->profile, '\t');
    put_word(out->file, out->gpu == NULL ? "" : out->gpu, '\t');
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

void row_note(const RowOut *out, const char *text)
{
    put(out, 'N', text, 0, 0);
}

typedef struct RowJobs {
    const Cli *cli;
    const Csv *csv;
    const char *label_column;
    RowWork work;
} RowJobs;

static void work_rows(void *self, const Worker *job)
{
    const RowJobs *r = self;
    const Csv *csv = r->csv;
    for (uint32_t row = job->index; row < csv->n_rows; row += job->n_jobs) {
        RowOut out = {job->file,
                      row,
                      csv_cell(csv, row, "source"),
                      csv_cell(csv, row, "split"),
                      csv_cell(csv, row, r->label_column),
                      r->cli,
                      NULL,
                      NULL};
        if (strcmp(out.split, "aux") == 0)
            row_reason(&out, "marked aux: never scored");
        else
            r->work(csv, &out);
        job_item_done(job);
    }
}

typedef struct RowReport {
    uint32_t row;
    char kind;
    const char *what, *profile, *gpu;
    double measured, predicted;
} RowReport;
typedef LIST(RowReport) SaidList;

/* Returns the text up to the next tab and moves *at behind it. Returns NULL if there is no tab. */
static const char *next_word(Arena *arena, const char **at)
{
    const char *tab = strchr(*at, '\t');
    if (tab == NULL) return NULL;
    const char *word = arena_copy(arena, *at, (size_t)(tab - *at));
    *at = tab + 1;
    return word;
}

static bool listen_to(FILE *file, Arena *arena, SaidList *said)
{
    char line[2048];
    while (fgets(line, sizeof line, file) != NULL) {
        char *end = NULL;
        RowReport s = {.row = (uint32_t)strtoul(line, &end, 10)};
        if (end == line || end[0] != '\t' || end[2] != '\t') return false;
        s.kind = end[1];
        const char *at = end + 3;
        s.what = next_word(arena, &at);
        s.profile = s.what == NULL ? NULL : next_word(arena, &at);
        s.gpu = s.profile == NULL ? NULL : next_word(arena, &at);
        if (s.gpu == NULL) return false;
        s.measured = strtod(at, &end);
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

/* Puts the results into the order of the rows. Process i handled the rows i, i + n_jobs, i + 2
 * n_jobs, ..., in this order. */
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
                      NULL,
                      NULL,
                      NULL};
        for (; *next < list->n && list->at[*next].row == i; ++*next) {
            const RowReport *s = &list->at[*next];
            if (s->kind == 'R') {
                count_reason(scores, arena, &row, s->what);
                continue;
            }
            if (s->kind == 'N') {
                list_push(arena, &scores->notes, ((RowNote){row.label, s->what}));
                continue;
            }
            Score score = {s->what, row.source,  row.split,    row.label,     s->profile,
                           s->gpu,  s->measured, s->predicted, s->kind == 'V'};
            list_push(arena, &scores->rows, score);
            n_scores++;
        }
        scores->n_scored += n_scores > 0;
    }
    scores->n_rows = csv->n_rows;
}

bool jobs_run(const Csv *csv, uint32_t n_jobs, const char *label_column, RowWork work, Cli *cli,
              Scores *scores)
{
    FILE *file[MOST_JOBS] = {NULL};
    SaidList said[MOST_JOBS];
    memset(said, 0, sizeof said);
    uint32_t n = jobs_number(n_jobs, MOST_JOBS);
    RowJobs rows = {cli, csv, label_column, work};
    bool fine = jobs_fork(cli, n, csv->n_rows, work_rows, &rows, file);
    for (uint32_t i = 0; i < n; i++) {
        if (fine && !listen_to(file[i], cli->arena, &said[i]))
            fine = cli_error(cli, FAULT_internal, "job-process", "the output of a process is lost");
        if (file[i] != NULL) fclose(file[i]);
    }
    if (fine) sort_out(csv, label_column, cli->arena, said, n, scores);
    return fine;
}
