/* Proves the plan that a sweep reports as best, unless a process has proven it already
 * (PointJob.proves_best). The points of a sweep are simulated without proofs, because most of them
 * lose. */
#include "cli/sweep/point.h"

/* Reports the warnings that came from the proof of a row and not from its simulation. The report of
 * the sweep prints only warnings that all rows have, so it would leave these out. */
static void print_warnings(Cli *cli, const SweepRow *simulated, const SweepRow *proven)
{
    for (uint32_t i = 0; i < proven->warnings.n; i++)
        if (!row_has_warning(simulated, &proven->warnings.at[i]))
            diag_add(&cli->diag, proven->warnings.at[i]);
}

/* Records in the store that the plan of this point was refused. */
static bool store_refused(const PointJob *job, uint32_t point)
{
    Cli *cli = job->cli;
    if (job->sweep == 0) return true;
    Store *store = store_open(cli->options.db, false, &cli->diag);
    const bool fine =
        store != NULL && sweep_put_point(store, job->sweep, point, &job->settings[point], 0,
                                         SWEEP_refused, cli->arena, &cli->diag);
    store_close(store);
    return fine;
}

/* Compiles the plan of a row again, and proves it. */
static bool prove_row(const PointJob *job, SweepRow *row)
{
    Cli *cli = job->cli;
    const PointJob one = {
        .cli = cli, .path = job->path, .n = 1, .settings = &job->settings[row->index]};
    SweepRows answers = {NULL, 0, 0};
    if (!points_decide(&one, &answers)) return false;
    SweepRow *answer = &answers.at[0];
    if (answer->status == SWEEP_fits) {
        print_warnings(cli, row, answer);
        row->proven = true;
        return true;
    }
    /* points_decide has reported a failure of the system or of our own passes */
    if (answer->failed == FAULT_none)
        cli_error(cli, FAULT_input, answer->error.rule, "%s: %s",
                  point_text(cli->arena, &job->settings[row->index], ""), answer->error.text);
    answer->index = row->index;
    answer->values = row->values;
    *row = *answer;
    return store_refused(job, row->index);
}

bool sweep_prove(const PointJob *job, SweepRows *rows)
{
    for (SweepRow *best; (best = sweep_best(rows)) != NULL && !best->proven;)
        if (!prove_row(job, best)) return false;
    return true;
}
