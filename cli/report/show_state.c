/* tandem show --state: prints which parts of the model's state each rank writes to a checkpoint,
 * and the cost of moving all of it to one rank. It is proven that the parts are complete and that
 * none occurs twice. */
#include <inttypes.h>

#include "cli/cli.h"
#include "planner/ir/state/state.h"
#include "planner/lower/gather.h"
#include "sim/sim.h"

static const char *box_text(Arena *arena, const StateSlice *s)
{
    Str text = str_in(arena);
    for (int d = 0; d < s->n_dims; d++)
        str_print(&text, "%s%" PRId64 ":%" PRId64, d > 0 ? ", " : "", s->offset[d],
                  s->offset[d] + s->size[d]);
    return str_text(&text);
}

static const char *dims_text(Arena *arena, const StateSlice *s)
{
    Str text = str_in(arena);
    for (int d = 0; d < s->n_dims; d++) str_print(&text, "%s%" PRId64, d > 0 ? "," : "", s->dim[d]);
    return str_text(&text);
}

static json_t *slice_row(Cli *cli, const StateSlice *s)
{
    json_t *row = json_object(), *shape = json_array(), *offset = json_array(),
           *size = json_array();
    json_text(row, "name", s->name);
    json_text(row, "kind", state_kind_name(s->kind));
    json_text(row, "dtype", dtype_name(s->dtype));
    for (int d = 0; d < s->n_dims; d++) {
        json_array_append_new(shape, json_integer(s->dim[d]));
        json_array_append_new(offset, json_integer(s->offset[d]));
        json_array_append_new(size, json_integer(s->size[d]));
    }
    json_put(row, "shape", shape);
    json_put(row, "offset", offset);
    json_put(row, "size", size);
    json_count(row, "bytes", s->bytes);
    json_put(row, "written", json_boolean(s->writes));
    json_put(row, "lazy", json_boolean(s->lazy));
    (void)cli;
    return row;
}

static void show_rank(Cli *cli, const State *state, Rank rank)
{
    static const char *const heads[] = {"tensor", "kind",   "dtype",          "shape",
                                        "part",   ">bytes", ">in the file at"};
    Table t = table_in(cli->arena, 7, heads);
    StateSlices slices = {0};
    json_t *rows = cli->json != NULL ? json_array() : NULL;
    state_of_rank(state, rank, cli->arena, &slices);
    for (uint32_t i = 0; i < slices.n; i++) {
        const StateSlice *s = &slices.at[i];
        table_cell(&t, "%s", s->name);
        table_cell(&t, "%s%s", state_kind_name(s->kind), s->lazy ? " (zero)" : "");
        table_cell(&t, "%s", dtype_name(s->dtype));
        table_cell(&t, "[%s]", dims_text(cli->arena, s));
        table_cell(&t, "[%s]", box_text(cli->arena, s));
        table_cell(&t, "%" PRIu64, s->bytes);
        if (s->writes)
            table_cell(&t, "%" PRIu64, s->at);
        else
            table_cell(&t, "written by another");
        if (rows != NULL) json_array_append_new(rows, slice_row(cli, s));
    }
    str_print(&cli->out, "rank        %" PRIu32 "\n", rank);
    table_print(&t, &cli->out);
    if (rows != NULL) json_put(cli->json, "slices", rows);
}

/* Computes the bytes and the time of moving state of this kind to the first stage. Returns false
 * after diagnostics. */
static bool cost(Cli *cli, const PlanFile *file, StateKind kind, Ps *time, uint64_t *bytes,
                 uint64_t *device)
{
    Plan *plan = gather_plan(file->plan, kind, cli->arena, &cli->diag);
    if (plan == NULL) return false;
    const Program *p = &plan->programs.at[0];
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (op_info(p->code.at[pc].op)->class_ == OP_CLASS_comm)
            *bytes += plan_comm_bytes(plan, p, &p->code.at[pc]);
    if (p->bytes > *device) *device = p->bytes;
    SimOptions options = {.seed = 1};
    SimReport report;
    if (!file->has_cluster || plan->mesh.n_ranks == 1) return true;
    if (!sim_run(plan, &file->config.cluster, &options, cli->arena, &report, &cli->diag))
        return false;
    *time += report.step_ps;
    return true;
}

static void show_gather(Cli *cli, const PlanFile *file, const StateTotal *total)
{
    uint64_t bytes = 0, device = 0;
    Ps time = 0;
    for (int k = 0; k < STATE_KIND_COUNT; k++)
        if (total->kind_bytes[k] > 0 && !cost(cli, file, (StateKind)k, &time, &bytes, &device))
            return;
    str_print(&cli->out, "full gather %s to rank 0, %s through collectives, %s of device memory",
              str_bytes(cli->arena, total->written_bytes), str_bytes(cli->arena, bytes),
              str_bytes(cli->arena, device));
    if (time > 0) str_print(&cli->out, ", at least %s", format_time(cli->arena, time));
    str_add(&cli->out, "\n");
    if (cli->json == NULL) return;
    json_count(cli->json, "gather_bytes", bytes);
    json_count(cli->json, "gather_device_bytes", device);
    json_count(cli->json, "gather_ps", (uint64_t)time);
}

void show_state(Cli *cli, const PlanFile *file)
{
    const State *state = state_of(file->plan, cli->arena);
    StateTotal total = state_total(state);
    bool fine = state_check(state, &cli->diag);
    Str *out = &cli->out;
    str_add(out, "state       ");
    for (int k = 0; k < STATE_KIND_COUNT; k++)
        /* few models have buffers, so a row of zeros is left out */
        if (k != STATE_buffer || total.kind_bytes[k] > 0)
            str_print(out, "%s%s %s", k > 0 ? ", " : "", state_kind_name((StateKind)k),
                      str_bytes(cli->arena, total.kind_bytes[k]));
    str_print(out, "; %s in all%s\n", str_bytes(cli->arena, total.written_bytes),
              fine ? ", each element written once" : "");
    str_print(out, "ranks       %" PRIu32 ": each holds %s to %s, and writes %s to %s\n",
              file->plan->mesh.n_ranks, str_bytes(cli->arena, total.least_held),
              str_bytes(cli->arena, total.most_held), str_bytes(cli->arena, total.least_written),
              str_bytes(cli->arena, total.most_written));
    if (cli->json != NULL) {
        json_count(cli->json, "slice_count", total.n_slices);
        json_count(cli->json, "held_bytes", total.held_bytes);
        json_count(cli->json, "written_bytes", total.written_bytes);
        json_count(cli->json, "most_written_bytes", total.most_written);
        json_put(cli->json, "complete", json_boolean(fine));
    }
    show_gather(cli, file, &total);
    if (cli->options.show.rank != UINT32_MAX) show_rank(cli, state, cli->options.show.rank);
}
