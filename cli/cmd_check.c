/* tandem check: checks whether a plan is valid and correct, and whether its memory fits. */
#include "cli/cli.h"

static bool only_infeasible(const Diag *d)
{
    for (uint32_t i = 0; i < d->items.n; i++)
        if (d->items.at[i].severity == SEVERITY_error && d->items.at[i].fault != FAULT_infeasible)
            return false;
    return true;
}

/* Memory when the run starts and each rank creates its part of the weights directly in
 * the arena. */
typedef struct StartMemory {
    uint32_t n_tensors, n_initialised;
    uint64_t own_bytes; /* bytes of the parameters on the rank that holds the most */
    /* bytes of all parameters of a stage, if a rank creates them whole before it cuts them */
    uint64_t whole_bytes;
} StartMemory;

static uint64_t whole_unit(const Graph *g, UnitId u)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g->units.at[u].params.n; i++) {
        const Tensor *t = &g->tensors.at[g->units.at[u].params.at[i]];
        uint64_t n = dtype_bytes(t->rest_dtype);
        for (int d = 0; d < t->n_dims; d++) n *= (uint64_t)t->dim[d];
        bytes += n;
    }
    return bytes;
}

static StartMemory start_of(Cli *cli, const Plan *plan)
{
    const Graph *g = &plan->graph;
    StartMemory s = {0};
    for (TensorId t = 1; t < g->tensors.n; t++) {
        s.n_tensors += g->tensors.at[t].role == ROLE_param;
        s.n_initialised +=
            g->tensors.at[t].role == ROLE_param && g->tensors.at[t].init.kind != INIT_none;
    }
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        bool *seen = arena_array(cli->arena, g->units.n + 1, sizeof *seen);
        uint64_t own = 0, whole = 0;
        for (BufferId b = 1; b < p->buffers.n; b++) {
            const Buffer *at = &p->buffers.at[b];
            if (at->parent || !at->persistent || at->category != CATEGORY_parameter) continue;
            own += at->bytes;
            if (at->unit && !seen[at->unit]) whole += whole_unit(g, at->unit);
            seen[at->unit] = true;
        }
        if (whole > s.whole_bytes) s.whole_bytes = whole;
        if (own > s.own_bytes) s.own_bytes = own;
    }
    return s;
}

static void report_start(Cli *cli, const Plan *plan)
{
    StartMemory s = start_of(cli, plan);
    if (cli->json != NULL) {
        json_count(cli->json, "parameter_tensors", s.n_tensors);
        json_count(cli->json, "initialised_tensors", s.n_initialised);
        json_count(cli->json, "start_bytes", s.own_bytes);
        json_count(cli->json, "start_whole_bytes", s.whole_bytes);
        return;
    }
    str_print(
        &cli->out,
        "start       %s of %s tensors have an initialiser; each rank creates only its parts, %s",
        str_count(cli->arena, s.n_initialised), str_count(cli->arena, s.n_tensors),
        str_bytes(cli->arena, s.own_bytes));
    if (s.whole_bytes > s.own_bytes)
        str_print(&cli->out, " of %s", str_bytes(cli->arena, s.whole_bytes));
    str_add(&cli->out, "\n");
}

void cmd_check(Cli *cli)
{
    PlanFile *file = plan_file_open(cli, cli->args[0], false);
    if (file == NULL) return;
    plan_file_report(cli, file);
    plan_file_memory(cli, file);
    Frameworks *frameworks = frameworks_ask(cli, file, false, NULL, NULL);
    session_settle(file, &cli->diag);
    frameworks_print(cli, frameworks, "", NULL, NULL);
    plan_file_close(cli);
    report_start(cli, file->plan);
    bool proven = only_infeasible(&cli->diag);
    if (cli->json != NULL) {
        json_put(cli->json, "proven", json_boolean(proven));
        return;
    }
    str_print(&cli->out, "proofs      %s\n",
              proven ? paint(cli, PAINT_good, "layouts, scale, races, deadlock and coverage hold")
                     : paint(cli, PAINT_bad, "FAILED"));
}
