/* Prints the line of each step of a run, and the summary at the end. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/run/run.h"

static const char *line_of(const Steps *s, const StepRow *row, uint64_t tokens)
{
    Arena *arena = s->cli->arena;
    double rate = row->time_ps > 0 ? (double)tokens * (double)PS_PER_S / (double)row->time_ps : 0;
    Str line = str_in(arena);
    str_print(&line, "step %4" PRIu32 "  loss %7.4f  grad_norm %7.4f  %9s %s/s  arena %s  %s",
              row->step, row->loss, row->grad_norm, str_count(arena, (uint64_t)rate), s->counts,
              str_bytes(arena, s->bytes), format_time(arena, row->time_ps));
    if (s->predicted_ps > 0)
        str_print(&line, "  (predicted %s, %s)", format_time(arena, s->predicted_ps),
                  format_error(arena, (double)s->predicted_ps, (double)row->time_ps));
    return str_text(&line);
}

void steps_add(void *self, const StepRow *row, uint64_t tokens)
{
    Steps *s = self;
    const uint32_t done = s->progress.done;
    if (done == 0) {
        run_checkpoint_warnings(s->cli);
        s->first = row->step;
        s->first_loss = row->loss;
        s->progress.n = s->n_steps - row->step;
    }
    assert(row->step == s->first + done);
    s->last[done % 10] = row->loss;
    s->seconds += (double)row->time_ps / (double)PS_PER_S;
    list_push(s->cli->arena, &s->times, row->time_ps);
    progress_add(&s->progress, 1, progress_shows(&s->progress) ? line_of(s, row, tokens) : NULL);
}

static int by_value(const void *a, const void *b)
{
    Ps x = *(const Ps *)a, y = *(const Ps *)b;
    return (x > y) - (x < y);
}

Ps steps_median(Steps *s)
{
    if (s->times.n == 0) return 0;
    uint32_t from = s->times.n > 2 ? 2 : s->times.n - 1, n = 0;
    Ps *copy = arena_array(s->cli->arena, s->times.n, sizeof *copy);
    for (uint32_t i = from; i < s->times.n; i++)
        if (s->first + i != s->traced) copy[n++] = s->times.at[i];
    if (n == 0) copy[n++] = s->times.at[s->times.n - 1];
    qsort(copy, n, sizeof *copy, by_value);
    return copy[n / 2];
}

double steps_last_loss(const Steps *s)
{
    uint32_t n = s->progress.done < 10 ? s->progress.done : 10;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += s->last[i];
    return n > 0 ? sum / n : NAN;
}
