/* tandem check: is this plan valid, correct, and small enough? */
#include "cli/cli.h"

static bool only_infeasible(const Diag *d)
{
    for (uint32_t i = 0; i < d->items.n; i++)
        if (d->items.at[i].severity == SEVERITY_error && d->items.at[i].fault != FAULT_infeasible)
            return false;
    return true;
}

void cmd_check(Cli *cli)
{
    PlanFile *file = plan_file_load(cli, cli->args[0], NULL);
    if (file == NULL) return;
    plan_file_report(cli, file);
    plan_file_memory(cli, file);
    bool proven = only_infeasible(&cli->diag);
    if (cli->json != NULL) {
        json_put(cli->json, "proven", json_boolean(proven));
        return;
    }
    str_print(&cli->out, "proofs      %s\n",
              proven ? paint(cli, PAINT_good, "layouts, scale, races, deadlock, coverage: all hold")
                     : paint(cli, PAINT_bad, "FAILED"));
}
