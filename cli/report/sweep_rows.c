/* Functions about the rows of a sweep, such as their units, prices and energies. */
#include <inttypes.h>
#include <string.h>

#include "cli/sweep/sweep.h"

const char *rows_count(const SweepRows *rows)
{
    for (uint32_t i = 0; i < rows->n; i++)
        if (rows->at[i].counts != NULL) return rows->at[i].counts;
    return "tokens";
}

const char *rows_device(const SweepRows *rows)
{
    for (uint32_t i = 0; i < rows->n; i++)
        if (rows->at[i].device != NULL) return rows->at[i].device;
    return "GPU";
}

bool row_is_predicted(const SweepRow *row)
{
    return row->status == SWEEP_fits || row->status == SWEEP_too_large;
}

bool row_has_warning(const SweepRow *row, const Diagnostic *warning)
{
    for (uint32_t i = 0; i < row->warnings.n; i++)
        if (strcmp(row->warnings.at[i].rule, warning->rule) == 0 &&
            strcmp(row->warnings.at[i].text, warning->text) == 0)
            return true;
    return false;
}

bool rows_priced(const SweepRows *rows)
{
    for (uint32_t i = 0; i < rows->n; i++)
        if (rows->at[i].usd_per_token > 0) return true;
    return false;
}

bool rows_powered(const SweepRows *rows)
{
    for (uint32_t i = 0; i < rows->n; i++)
        if (rows->at[i].joules_per_token > 0) return true;
    return false;
}

double row_days(const Cli *cli, const SweepRow *r)
{
    return r->tokens_per_s > 0 ? cli->options.tokens / r->tokens_per_s / 86400 : 0;
}

double row_usd(const Cli *cli, const SweepRow *r)
{
    return cli->options.tokens * r->usd_per_token;
}

double row_mwh(const Cli *cli, const SweepRow *r)
{
    return cli->options.tokens * r->joules_per_token / 3.6e9;
}

/* More plans than the best one can be proven: the store may know proofs, and another process may
 * have proven a plan before the best one was found. */
void sweep_print_proven(Cli *cli, const SweepRows *rows)
{
    uint32_t n = 0, n_proven = 0;
    for (uint32_t i = 0; i < rows->n; i++) {
        n += row_is_predicted(&rows->at[i]);
        n_proven += row_is_predicted(&rows->at[i]) && rows->at[i].proven;
    }
    if (n < 2) return;
    if (n_proven == n)
        str_add(&cli->out, "proven      all plans with a prediction\n");
    else if (n_proven == 1)
        str_add(&cli->out, "proven      only the best plan (--prove proves all)\n");
    else
        str_print(&cli->out,
                  "proven      the best plan and %" PRIu32 " of %" PRIu32
                  " others (--prove proves all)\n",
                  n_proven - 1, n - 1);
}
