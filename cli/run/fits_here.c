/* Checks that this machine has enough memory for all ranks. A run on CPUs puts all of them on this
 * machine. So does the loopback run that measures its kernels. */
#include <inttypes.h>

#include "cli/run/run.h"

bool run_fits_here(Cli *cli, const Plan *plan)
{
    uint64_t all = 0, most = 0;
    Rank worst = 0;
    if (run_on(cli, "cuda")) return true;
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
        const Program *p = plan_program(plan, r);
        const uint64_t own = p->bytes + p->host_bytes;
        all += own;
        if (own > most) most = own, worst = r;
    }
    const uint64_t has = machine_memory();
    if (has == 0 || all <= has) return true;
    cli_error(cli, FAULT_infeasible, "does-not-fit",
              "this machine has %s of memory, and %" PRIu32
              " rank%s of the plan need%s %s (rank %" PRIu32 " needs %s)",
              str_bytes(cli->arena, has), plan->mesh.n_ranks, plan->mesh.n_ranks == 1 ? "" : "s",
              plan->mesh.n_ranks == 1 ? "s" : "", str_bytes(cli->arena, all), worst,
              str_bytes(cli->arena, most));
    diag_hint(&cli->diag, "`tandem run PLAN --verify` runs a small copy of the plan; "
                          "`tandem sim PLAN` predicts the whole one");
    return false;
}
