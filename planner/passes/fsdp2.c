/* FSDP2 and HSDP: one flat unit a block (or a module that asks with fsdp2_shard, or only those that
 * the user lists), the rest is the root unit. At rest FLAT over dp_shard, whole over dp_replicate;
 * gathered while in use. */
#include <assert.h>

#include "planner/passes/pass.h"
#include "planner/passes/schedule.h"

ModuleId unit_module(const Job *job, ModuleId module)
{
    for (ModuleId m = module; m; m = job->plan->graph.modules.at[m].parent)
        if (job->is_unit && job->is_unit[m]) return m;
    return 0;
}

bool unit_is_root(const Job *job, UnitId unit)
{
    const Graph *g = &job->plan->graph;
    return unit_module(job, g->tensors.at[g->units.at[unit].params.at[0]].module) == 0;
}

/* Blocks and what asks for it, unless the user lists units. */
static void choose_units(Job *job)
{
    const Graph *g = &job->plan->graph;
    const Patterns *units = &job->sharding.units;
    bool *is_unit = arena_array(job->arena, g->modules.n + 1, sizeof *is_unit);
    for (uint32_t i = 0; i < units->n; i++)
        pattern_mark(job, "fsdp2.units", &units->at[i], is_unit);
    for (ModuleId m = 1; units->n == 0 && m < g->modules.n; m++)
        is_unit[m] = g->modules.at[m].is_block || g->modules.at[m].fsdp2_shard;
    job->is_unit = is_unit;
}

/* [tensor]: is it read in 8 bits, as a whole, and only so? */
static bool *find_quantised(Job *job)
{
    const Graph *g = &job->plan->graph;
    bool *is = arena_array(job->scratch, g->tensors.n, sizeof *is);
    bool *plain = arena_array(job->scratch, g->tensors.n, sizeof *plain);
    for (NodeId id = 1; id < g->nodes.n && job->gathers_bytes; id++) {
        const Node *n = &g->nodes.at[id];
        for (uint32_t i = 0; i < n->n_in; i++) {
            is[n->in[i]] = is[n->in[i]] || n->op == OP_quantise;
            plain[n->in[i]] = plain[n->in[i]] || (n->op != OP_quantise && n->op != OP_amax);
        }
    }
    for (TensorId t = 1; t < g->tensors.n; t++) is[t] = is[t] && !plain[t];
    return is;
}

bool units_by_block(Job *job, const PassConfig *pass)
{
    Graph *g = &job->plan->graph;
    AxisSet shard = mesh_axes(&job->plan->mesh, AXIS_dp_shard);
    AxisSet replicate = mesh_axes(&job->plan->mesh, AXIS_dp_replicate);
    uint32_t n_ranks = job->schedule->n_ranks;
    UnitId *of_module =
        arena_array(job->scratch, (size_t)(g->modules.n + 1) * n_ranks, sizeof *of_module);
    UnitId *in_bytes =
        arena_array(job->scratch, (size_t)(g->modules.n + 1) * n_ranks, sizeof *in_bytes);
    const bool *quantised = find_quantised(job);
    UnitId *root = arena_array(job->scratch, n_ranks, sizeof *root);
    uint32_t n_roots = 0, before = job->diag->n_errors;
    choose_units(job);
    if (job->diag->n_errors > before) return false;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        if (g->tensors.at[t].role != ROLE_param) continue;
        if (param_second_rank(job, t) != UINT32_MAX) {
            unit_take(job, unit_new(job, g->tensors.at[t].name, shard, replicate), t);
            n_roots++;
            continue;
        }
        ModuleId m = unit_module(job, g->tensors.at[t].module);
        uint32_t rank = param_rank(job, t);
        UnitId *bytes = &in_bytes[m * n_ranks + rank];
        if (m && shard && quantised[t]) { /* gathered as bytes, apart from the others */
            const char *path = g->modules.at[m].path;
            if (!*bytes)
                *bytes =
                    unit_new(job, arena_print(job->arena, "%s in 8 bits", path), shard, replicate);
            unit_take(job, *bytes, t);
            g->units.at[*bytes].dtype = DT_e4m3;
            continue;
        }
        UnitId *of = &of_module[m * n_ranks + rank]; /* a module may reach over several stages */
        if (m && !*of) *of = unit_new(job, g->modules.at[m].path, shard, replicate);
        if (!m && !root[rank]) {
            bool piped = n_ranks > 1;
            const char *name = piped ? arena_print(job->arena, "root.%u", rank) : "root";
            root[rank] = unit_new(job, name, shard, replicate);
            n_roots++;
        }
        unit_take(job, m ? *of : root[rank], t);
    }
    const Patterns *units = &job->sharding.units;
    bool shrunk = units->n > 0 && units->at[0].may_miss; /* the patterns' layers may be gone */
    if (g->units.n == n_roots + 1 && shard && !shrunk) {
        diag_error(job->diag, FAULT_input, "fsdp2-matched-nothing", pass->loc,
                   "%s: the whole model would be one unit, gathered at once",
                   units->n > 0 ? "the listed units have no parameters" : "no block was found");
        diag_hint(job->diag, "mark the repeated module with nn.block or fsdp2_shard = true");
        return false;
    }
    return true;
}

/* What stays gathered for the whole step cannot also be given back within it. */
static bool check_kept(Job *job, const PassConfig *pass)
{
    const Fsdp2Options *o = &pass->fsdp2;
    bool in_parts = o->reshard_after_forward == RESHARD_to;
    if (!o->keep_gathered || (!in_parts && !o->reshard_root)) return true;
    const char *other = in_parts
                            ? arena_print(job->scratch, "reshard_after_forward = %u", o->reshard_to)
                            : "reshard_root = true";
    diag_error(job->diag, FAULT_input, "fsdp2-conflict", pass->loc,
               "keep_gathered = true leaves every unit gathered until its last micro-batch, but %s "
               "gives it back after each forward",
               other);
    diag_hint(job->diag, "leave out %s, or keep_gathered",
              in_parts ? "reshard_after_forward" : "reshard_root");
    return false;
}

/* Two stages that hold one parameter exchange its reduced gradient on the device. */
static bool check_offload(Job *job, const PassConfig *pass)
{
    const Graph *g = &job->plan->graph;
    if (!pass->fsdp2.offload) return true;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        if (g->tensors.at[t].role != ROLE_param || param_second_rank(job, t) == UINT32_MAX)
            continue;
        diag_error(
            job->diag, FAULT_input, "fsdp2-conflict", pass->loc,
            "offload = true: %s is held by two pipeline ranks, which sum its gradient on the "
            "device, and would have to sum it on the host",
            g->tensors.at[t].name);
        diag_hint(job->diag, "untie the head from the embedding, or leave out offload");
        return false;
    }
    return true;
}

/* float8{} has decided the dtypes of what it computes, and gathers in 8 bits in its own way. */
static bool check_float8(Job *job, const PassConfig *pass)
{
    const PassConfig *float8 = pass_config(job, PASS_float8);
    const Fsdp2Options *o = &pass->fsdp2;
    if (!float8) return true;
    if (o->mp.param || o->mp.reduce || o->mp.output) {
        diag_error(job->diag, FAULT_input, "fsdp2-conflict", pass->loc,
                   "fsdp2.mp with float8{}: both decide what linears read and make");
        diag_hint(job->diag, "leave out mp: precision says what float8{} does not");
        return false;
    }
    if (!float8->float8.fsdp_gather || (!o->copy && !o->offload)) return true;
    diag_error(
        job->diag, FAULT_input, "fsdp2-conflict", pass->loc,
        "fsdp2.%s with float8.fsdp_gather: units gathered in 8 bits are made from shards that "
        "rest on the device, and need no copies",
        o->offload ? "offload" : "copy");
    diag_hint(job->diag, "leave out fsdp_gather, or %s", o->offload ? "offload" : "copy");
    return false;
}

bool pass_fsdp2(Job *job)
{
    const PassConfig *pass = pass_config(job, PASS_fsdp2);
    if (!check_kept(job, pass) || !check_offload(job, pass) || !check_float8(job, pass))
        return false;
    job->sharding = pass->fsdp2;
    if (!mesh_axes(&job->plan->mesh, AXIS_dp_shard)) job->sharding.offload = false;
    if (pass->fsdp2.keep_gathered) {
        job->resident = job->sharding.defer_grad_sync = true;
        job->sharding.reshard_after_forward = RESHARD_false;
    }
    const MpPolicy *mp = &pass->fsdp2.mp;
    bool has_policy = job->data_axes && (mp->param || mp->reduce || mp->output);
    return units_by_block(job, pass) && (!has_policy || mixed_precision(job, mp));
}
