/* The step line of a run, and what it amounts to at the end. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/run.h"

uint32_t progress_every(const Cli *cli)
{
    if (cli->options.every > 0) return cli->options.every;
    return cli->options.verbose || isatty(STDOUT_FILENO) ? 1 : 10;
}

static bool is_shown(const Progress *p, uint32_t step)
{
    return step % p->every == 0 || step + 1 == p->n_steps;
}

void progress_step(void *self, const StepRow *row, uint64_t tokens)
{
    Progress *p = self;
    Cli *cli = p->cli;
    if (p->done == 0) p->first_loss = row->loss;
    p->last[p->done % 10] = row->loss;
    p->done++;
    p->seconds += (double)row->time_ps / (double)PS_PER_S;
    list_push(cli->arena, &p->times, row->time_ps);
    bool silent = cli->options.quiet && cli->json != NULL;
    if (silent || !is_shown(p, row->step)) return;
    double rate = row->time_ps > 0 ? (double)tokens * (double)PS_PER_S / (double)row->time_ps : 0;
    Str line = str_in(cli->arena);
    str_print(&line, "step %4" PRIu32 "  loss %7.4f  grad_norm %7.4f  %9s tok/s  arena %s  %s",
              row->step, row->loss, row->grad_norm, str_count(cli->arena, (uint64_t)rate),
              str_bytes(cli->arena, p->bytes), format_time(cli->arena, row->time_ps));
    if (p->predicted_ps > 0)
        str_print(&line, "  (predicted %s, %s)", format_time(cli->arena, p->predicted_ps),
                  format_ratio(cli->arena, (double)row->time_ps / (double)p->predicted_ps));
    /* With --json standard output is one document. */
    FILE *out = cli->json != NULL ? stderr : stdout;
    fprintf(out, "%s\n", str_text(&line));
    fflush(out);
}

static int by_value(const void *a, const void *b)
{
    Ps x = *(const Ps *)a, y = *(const Ps *)b;
    return (x > y) - (x < y);
}

Ps progress_median(Progress *p)
{
    if (p->times.n == 0) return 0;
    uint32_t from = p->times.n > 2 ? 2 : p->times.n - 1;
    uint32_t n = p->times.n - from;
    Ps *copy = arena_array(p->cli->arena, n, sizeof *copy);
    memcpy(copy, &p->times.at[from], n * sizeof *copy);
    qsort(copy, n, sizeof *copy, by_value);
    return copy[n / 2];
}

double progress_last_loss(const Progress *p)
{
    uint32_t n = p->done < 10 ? p->done : 10;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += p->last[i];
    return n > 0 ? sum / n : NAN;
}
