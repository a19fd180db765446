/* Functions about units, prices and energies of the rows of a sweep. */
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
