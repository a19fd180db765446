/* Starts the processes that decide points (point.c), and reads their answers. */
#define _DEFAULT_SOURCE /* for MAP_ANONYMOUS */
#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cli/sweep/jobs.h"
#include "cli/sweep/point.h"

static double real_of(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static uint64_t count_of(const json_t *row, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(row, key));
}

static const char *text_of(const json_t *row, const char *key, Arena *arena)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text != NULL ? arena_dup(arena, text) : NULL;
}

/* Reads the warnings from the answer for a point. Leaves out an entry without texts. */
static void read_warnings(const json_t *row, Arena *arena, SweepRow *to)
{
    size_t i;
    const json_t *warning;
    json_array_foreach(json_object_get(row, "warnings"), i, warning)
    {
        const Diagnostic item = diagnostic_of(warning, arena);
        if (item.rule != NULL && item.text != NULL) list_push(arena, &to->warnings, item);
    }
}

static void read_answers(FILE *file, Arena *arena, SweepRows *rows)
{
    json_t *line;
    while ((line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL)) != NULL) {
        uint32_t index = (uint32_t)count_of(line, "index");
        assert(index < rows->n); /* a process of this command wrote it */
        rows->at[index] =
            (SweepRow){.index = index,
                       .status = (SweepStatus)count_of(line, "status"),
                       .failed = (Fault)count_of(line, "failed"),
                       .found = json_is_true(json_object_get(line, "found")),
                       .error = diagnostic_of(json_object_get(line, "error"), arena),
                       .plan_id = text_of(line, "plan_id", arena),
                       .trust = text_of(line, "trust", arena),
                       .best_lines = text_of(line, "best_lines", arena),
                       .ranks = count_of(line, "ranks"),
                       .peak_bytes = count_of(line, "peak_bytes"),
                       .unit_bytes = count_of(line, "unit_bytes"),
                       .gathers = (UnitGathers)count_of(line, "gathers"),
                       .run = count_of(line, "run"),
                       .step_ps = (Ps)count_of(line, "step_ps"),
                       .exposed_ps = (Ps)count_of(line, "exposed_ps"),
                       .tokens_per_s = real_of(line, "tokens_per_s"),
                       .tokens_per_s_per_device = real_of(line, "tokens_per_s_per_device"),
                       .mfu = real_of(line, "mfu"),
                       .usd_per_token = real_of(line, "usd_per_token"),
                       .joules_per_token = real_of(line, "joules_per_token"),
                       .counts = text_of(line, "counts", arena),
                       .device = text_of(line, "device", arena),
                       .proven = json_is_true(json_object_get(line, "proven")),
                       .close = json_is_true(json_object_get(line, "close")),
                       .unstored = text_of(line, "unstored", arena)};
        read_warnings(line, arena, &rows->at[index]);
        json_decref(line);
    }
}

static uint32_t jobs_of(const PointJob *job)
{
    return jobs_number(job->cli->options.jobs, job->n_order);
}

/* Simulates the points of job->order. Each process takes one piece of them after the other. */
static bool decide_order(PointJob *job, SweepRows *rows)
{
    FILE *file[MOST_JOBS] = {NULL};
    Cli *cli = job->cli;
    const uint32_t n_jobs = jobs_of(job);
    atomic_store(job->next, 0);
    jobs_on_interrupt(cli->options.no_store
                          ? "nothing is kept (--db none)"
                          : arena_print(cli->arena,
                                        "the points decided so far are kept in %s; the same "
                                        "command goes on from there",
                                        cli->options.db));
    const bool fine = jobs_fork(cli, n_jobs, job->n_order, points_work, job, file);
    jobs_on_interrupt(NULL);
    for (uint32_t i = 0; i < n_jobs && file[i] != NULL; i++) {
        read_answers(file[i], cli->arena, rows);
        fclose(file[i]);
    }
    return fine;
}

/* the rows that by_bound compares; global, because qsort gives its function no argument */
static const SweepRows *bounded;

static int by_bound(const void *a, const void *b)
{
    const uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    const Ps x = bounded->at[i].step_ps, y = bounded->at[k].step_ps;
    if (x != y) return x < y ? -1 : 1;
    return i < k ? -1 : 1;
}

/* First computes a lower bound of the step time of every point, then simulates points in the order
 * of these bounds. So the best points are found early, and their speeds rule out most of the
 * others. */
static bool decide_by_bounds(PointJob *job, SweepRows *rows)
{
    job->bounds_only = true;
    if (!decide_order(job, rows)) return false;
    job->bounds_only = false;
    uint32_t n = 0;
    for (uint32_t i = 0; i < rows->n; i++)
        if (rows->at[i].index == i && rows->at[i].status == SWEEP_open) job->order[n++] = i;
    bounded = rows;
    qsort(job->order, n, sizeof *job->order, by_bound);
    job->n_order = job->n_pieces = n;
    for (uint32_t i = 0; i <= n; i++) job->piece[i] = i;
    job->bound = rows->at;
    return n == 0 || decide_order(job, rows);
}

bool points_decide(const PointJob *job, SweepRows *rows)
{
    Cli *cli = job->cli;
    PointJob own = *job;
    PointShared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return cli_error(cli, FAULT_internal, "out-of-memory", "no memory to share");
    own.next = &shared->next;
    own.best = job->ranked ? &shared->best : NULL;
    own.likely = &shared->likely;
    own.fastest = job->proves_best ? &shared->best : NULL;
    own.order = arena_array(cli->arena, job->n + 1, sizeof *own.order);
    own.piece = arena_array(cli->arena, job->n + 1, sizeof *own.piece);
    own.n_order = job->n;
    points_order(&own, jobs_of(&own));
    for (uint32_t i = 0; i < job->n; i++)
        list_push(cli->arena, rows, ((SweepRow){.index = UINT32_MAX}));
    const bool fine = own.ranked ? decide_by_bounds(&own, rows) : decide_order(&own, rows);
    munmap(shared, sizeof *shared);
    if (!fine) return false;
    for (uint32_t i = 0; i < rows->n; i++) {
        const SweepRow *row = &rows->at[i];
        if (row->index == i && row->unstored == NULL) continue;
        cli_error(cli, FAULT_store, "store-error", "%s was not stored: %s",
                  point_text(cli->arena, &job->settings[i], ""),
                  row->index == i ? row->unstored : "its process wrote nothing");
        break; /* the remaining points would fail for the same reason */
    }
    for (uint32_t i = 0; i < rows->n; i++) {
        const SweepRow *row = &rows->at[i];
        if (row->index != i) return false;
        if (row->failed != FAULT_none)
            cli_error(cli, row->failed, row->error.rule, "%s: %s",
                      point_text(cli->arena, &job->settings[i], ""), row->error.text);
    }
    return true;
}
