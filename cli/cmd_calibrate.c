/* tandem calibrate: measures the kernels and collectives that a plan needs and the store lacks. */
#include <inttypes.h>
#include <string.h>

#include "cli/run/run.h"
#include "planner/base/plural.h"
#include "planner/front/front.h"

static void list_needs(Cli *cli, const Plan *plan, const Needs *needs)
{
    static const char *const heads[] = {"kernel", ">uses", ">known"};
    static const char *const comm_heads[] = {"collective", ">ranks", ">bytes", ">uses", ">known"};
    Table t = table_in(cli->arena, 3, heads);
    for (uint32_t i = 0; i < needs->kernels.n; i++) {
        const KernelNeed *need = &needs->kernels.at[i];
        table_cell(&t, "%s", need->key);
        table_cell(&t, "%" PRIu32, need->n);
        table_cell(&t, "%s", need->known_ps < 0 ? "-" : format_time(cli->arena, need->known_ps));
    }
    table_print(&t, &cli->out);
    Table c = table_in(cli->arena, 5, comm_heads);
    for (uint32_t i = 0; i < needs->collectives.n; i++) {
        const CollectiveNeed *need = &needs->collectives.at[i];
        table_cell(&c, "%s %s", op_info(need->op)->name,
                   mesh_axes_text(cli->arena, &plan->mesh, need->axes));
        table_cell(&c, "%" PRIu32, need->n_ranks);
        table_cell(&c, "%s", str_count(cli->arena, need->bytes));
        table_cell(&c, "%" PRIu32, need->n);
        table_cell(&c, "%s", need->known_ps < 0 ? "-" : format_time(cli->arena, need->known_ps));
    }
    table_print(&c, &cli->out);
}

static void needs_json(Cli *cli, const Needs *needs)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < needs->kernels.n; i++) {
        const KernelNeed *need = &needs->kernels.at[i];
        json_t *row = json_object();
        json_text(row, "key", need->key);
        json_count(row, "uses", need->n);
        json_put(row, "median_ps", need->known_ps < 0 ? json_null() : json_integer(need->known_ps));
        json_array_append_new(list, row);
    }
    json_put(cli->json, "kernels", list);
    list = json_array();
    for (uint32_t i = 0; i < needs->collectives.n; i++) {
        const CollectiveNeed *need = &needs->collectives.at[i];
        json_t *row = json_object();
        json_text(row, "op", op_info(need->op)->name);
        json_count(row, "ranks", need->n_ranks);
        json_count(row, "bytes", need->bytes);
        json_count(row, "uses", need->n);
        json_put(row, "median_ps", need->known_ps < 0 ? json_null() : json_integer(need->known_ps));
        json_array_append_new(list, row);
    }
    json_put(cli->json, "collectives", list);
}

static void report(Cli *cli, const PlanFile *file)
{
    const char *machine = run_costs(cli);
    /* with --dry-run, the store may be missing; then no cost is known */
    Diag own = diag_in(cli->arena);
    Store *store = store_open(cli->options.db, true, cli->options.dry_run ? &own : &cli->diag);
    if (store == NULL && !cli->options.dry_run) return;
    Needs needs;
    needs_find(file->plan, store, machine, run_on(cli, "cuda") ? "cuda" : "mpi", cli->arena, &needs,
               &cli->diag);
    if (cli->json != NULL) {
        json_text(cli->json, "machine", machine);
        needs_json(cli, &needs);
    } else {
        str_print(&cli->out, "machine     %s\n", machine);
        list_needs(cli, file->plan, &needs);
        str_print(&cli->out, "%s    %" PRIu32 " kernel%s, %" PRIu32 " collective%s\n",
                  cli->options.dry_run ? "to measure" : "missing   ", needs.missing_kernels,
                  str_s(needs.missing_kernels), needs.missing_collectives,
                  str_s(needs.missing_collectives));
    }
    store_close(store);
}

void cmd_calibrate(Cli *cli)
{
    const char *path = cli->n_args > 0
                           ? cli->args[0]
                           : arena_print(cli->arena, "%s/plans/tiny_text.lua", front_scripts_dir());
    if (session_is_text(path)) {
        cli_error(cli, FAULT_usage, "needs-script",
                  "%s is the text of a plan, but this command needs the script", path);
        return;
    }
    PlanOptions options = {.workspace = NULL};
    if (!run_check_backend(cli) || !run_plan_options(cli, &options)) return;
    PlanFile *file = plan_file_load(cli, path, &options);
    if (file == NULL || cli->diag.n_errors > 0 || !run_check_ranks(cli, file->plan)) return;
    if (run_is_inside()) {
        run_measure_inside(cli, file);
        return;
    }
    if (!cli->options.dry_run && (!store_ready(cli->options.db, &cli->diag) ||
                                  !run_fits_here(cli, file->plan) || !run_calibrate(cli, file)))
        return;
    report(cli, file);
}
