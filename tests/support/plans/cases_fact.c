/* Facts about a plan that a seed case may expect:
 *
 *   mesh dp_shard=3 tp=4      exactly these axes, in this order; `mesh none`: one rank
 *   ranks 12
 *   parameters 8030261248     of the whole model
 *   micro-batches 4
 *   precision bf16 bf16 fp32  at rest, in use, in reductions
 *   parallel tp(sequence), ac(full)
 *   stages 4,3,3              blocks that each pipeline rank computes
 *   holder NAME 1             the pipeline rank that has this parameter
 *   local NAME 4096,2,4       its shape in use on one rank
 *   initial NAME zeros        its initialiser: none, zeros, ones, normal, uniform
 *   weights 28                this many parameters are split over tp
 *   experts 4                 this many experts of each layer are on each rank
 *   moe-layers 1,3            the layers that have experts
 *   plan-entries 9            patterns of the tp plan that name something in blocks
 *   count tp all_gather 28    collectives of a step that rank 0 takes part in
 *   count tp all_gather 140 in 5 steps
 *   data 0/2 0/2 1/2 1/2      for each rank: its share of the batch, and the number of shares
 *   original automodel        it reproduces that system's mistakes, so it is never run
 *   recomputed norm 4/8, attention 2/10     the number of modules that rank 0 recomputes in part,
 *                             and of instructions for that; `recomputed nothing`
 *   float8 15 of 15           forward matrix products of rank 0 that read 8-bit numbers
 *   rest bf16                 the dtypes of the parameters between steps
 * and, of the plan scaled down and run in fp64 (cases_run.c):
 *   equal                     it computes the result of one rank, to 1e-10
 *   norm 8 eps                the gradient norm is within 8 eps of that of one rank, and is clipped
 *   start equal               every rank begins with the weights that one rank begins with
 *   replicas alike            after a step ranks of dp_replicate have the same bits
 *   draws apart               ranks that read other data drop other elements */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "planner/ir/layout/mesh_view.h"
#include "planner/passes/passes.h"
#include "tests/support/plans/cases.h"

static bool is_mesh(const CaseResult *r, const char *rest, Str *seen)
{
    const Mesh *mesh = &r->plan->mesh;
    for (uint32_t i = 0; i < mesh->n_axes; i++)
        str_print(seen, "%s%s=%" PRIu32, i > 0 ? " " : "", mesh->axis[i].text, mesh->axis[i].size);
    if (mesh->n_axes == 0) str_add(seen, "none");
    return strcmp(str_text(seen), rest) == 0;
}

static bool is_number(uint64_t n, const char *rest, Str *seen)
{
    str_print(seen, "%" PRIu64, n);
    return strcmp(str_text(seen), rest) == 0;
}

static bool is_ranks(const CaseResult *r, const char *rest, Str *seen)
{
    return is_number(r->plan->mesh.n_ranks, rest, seen);
}

static bool is_parameters(const CaseResult *r, const char *rest, Str *seen)
{
    return is_number(r->plan->graph.info.n_params, rest, seen);
}

static bool is_microbatches(const CaseResult *r, const char *rest, Str *seen)
{
    return is_number(r->plan->step.n_microbatches, rest, seen);
}

static bool is_precision(const CaseResult *r, const char *rest, Str *seen)
{
    str_print(seen, "%s %s %s", dtype_name(r->config->param), dtype_name(r->config->compute),
              dtype_name(r->config->reduce));
    return strcmp(str_text(seen), rest) == 0;
}

static bool is_parallel(const CaseResult *r, const char *rest, Str *seen)
{
    str_add(seen, passes_text(r->arena, r->config));
    return strcmp(str_text(seen), rest) == 0;
}

static bool is_original(const CaseResult *r, const char *rest, Str *seen)
{
    str_add(seen, r->config->original != NULL ? r->config->original : "none");
    return strcmp(str_text(seen), rest) == 0;
}

static bool is_stages(const CaseResult *r, const char *rest, Str *seen)
{
    const Graph *g = &r->plan->graph;
    uint32_t n_stages = mesh_size(&r->plan->mesh, mesh_axes(&r->plan->mesh, AXIS_pp));
    uint32_t *n = arena_array(r->arena, n_stages, sizeof *n);
    bool *counted = arena_array(r->arena, g->info.n_layers + 1, sizeof *counted);
    for (NodeId id = 1; id <= g->n_forward; id++) {
        const Node *node = &g->nodes.at[id];
        if (node->layer == 0 || counted[node->layer]) continue;
        counted[node->layer] = true;
        n[node->stage % n_stages]++;
    }
    for (uint32_t s = 0; s < n_stages; s++) str_print(seen, "%s%" PRIu32, s > 0 ? "," : "", n[s]);
    return strcmp(str_text(seen), rest) == 0;
}

static const Tensor *find_param(const Graph *g, const char *name, size_t n, TensorId *id)
{
    for (*id = 1; *id < g->tensors.n; ++*id) {
        const Tensor *t = &g->tensors.at[*id];
        if (t->role == ROLE_param && strlen(t->name) == n && strncmp(t->name, name, n) == 0)
            return t;
    }
    return NULL;
}

/* Finds the rank along pp in whose program the weight is stored. */
static bool is_holder(const CaseResult *r, const char *rest, Str *seen)
{
    size_t n = strcspn(rest, " ");
    TensorId id;
    if (find_param(&r->plan->graph, rest, n, &id) == NULL) {
        str_add(seen, "no such parameter");
        return false;
    }
    uint32_t pp = 0;
    while (pp < r->plan->mesh.n_axes && r->plan->mesh.axis[pp].name != AXIS_pp) pp++;
    for (Rank rank = 0; rank < r->plan->mesh.n_ranks; rank++) {
        const Program *p = plan_program(r->plan, rank);
        bool has = false;
        for (BufferId b = 1; b < p->buffers.n; b++)
            has = has ||
                  (p->buffers.at[b].tensor == id && p->buffers.at[b].category != CATEGORY_gradient);
        uint32_t stage = pp < r->plan->mesh.n_axes ? mesh_coordinate(&r->plan->mesh, rank, pp) : 0;
        const char *one = arena_print(r->arena, "%s%" PRIu32, seen->n > 0 ? "," : "", stage);
        if (has && strstr(str_text(seen), one) == NULL) str_add(seen, one);
    }
    return strcmp(str_text(seen), rest + n + (rest[n] == ' ')) == 0;
}

static uint32_t cuts(const Mesh *mesh, const Tensor *t, int dim)
{
    uint32_t parts = 1;
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (t->use.on[a] == SPLIT(dim)) parts *= mesh->axis[a].size;
    return parts;
}

static bool is_local(const CaseResult *r, const char *rest, Str *seen)
{
    size_t n = strcspn(rest, " ");
    TensorId id;
    const Tensor *t = find_param(&r->plan->graph, rest, n, &id);
    if (t == NULL) {
        str_add(seen, "no such parameter");
        return false;
    }
    for (int d = 0; d < t->n_dims; d++) {
        int64_t parts = (int64_t)cuts(&r->plan->mesh, t, d);
        str_print(seen, "%s%" PRId64, d > 0 ? "," : "", (t->dim[d] + parts - 1) / parts);
    }
    return strcmp(str_text(seen), rest + n + (rest[n] == ' ')) == 0;
}

static bool is_initial(const CaseResult *r, const char *rest, Str *seen)
{
    static const char *const names[] = {"none", "zeros", "ones", "normal", "uniform"};
    size_t n = strcspn(rest, " ");
    TensorId id;
    const Tensor *t = find_param(&r->plan->graph, rest, n, &id);
    str_add(seen, t != NULL ? names[t->init.kind] : "no such parameter");
    return strcmp(str_text(seen), rest + n + (rest[n] == ' ')) == 0;
}

static bool is_weights(const CaseResult *r, const char *rest, Str *seen)
{
    const Graph *g = &r->plan->graph;
    uint64_t n = 0;
    for (TensorId id = 1; id < g->tensors.n; id++) {
        const Tensor *t = &g->tensors.at[id];
        bool split = false;
        for (int d = 0; t->role == ROLE_param && d < t->n_dims; d++)
            for (uint32_t a = 0; a < r->plan->mesh.n_axes; a++)
                split =
                    split || (r->plan->mesh.axis[a].name == AXIS_tp && t->use.on[a] == SPLIT(d));
        n += split;
    }
    return is_number(n, rest, seen);
}

/* Reads the number of experts on a rank from the weights that the programs multiply by. */
static bool is_experts(const CaseResult *r, const char *rest, Str *seen)
{
    const Plan *plan = r->plan;
    int64_t found = 0;
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        for (Pc pc = 1; pc < p->code.n; pc++) {
            if (p->code.at[pc].op != OP_linear_experts) continue;
            const Buffer *weight = &p->buffers.at[program_arg(p, &p->code.at[pc], 1)];
            const int64_t n = shape_local_dim(&plan->shapes.at[weight->shape], &plan->mesh,
                                              &plan->graph.deals, 0);
            if (n != found) str_print(seen, "%s%" PRId64, found ? "," : "", n);
            found = n;
        }
    }
    return strcmp(str_text(seen), rest) == 0;
}

static bool is_moe_layers(const CaseResult *r, const char *rest, Str *seen)
{
    const Graph *g = &r->plan->graph;
    long last = -1;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        if (g->nodes.at[id].op != OP_linear_experts) continue;
        const char *name = g->tensors.at[g->nodes.at[id].in[1]].name;
        const long layer = strncmp(name, "layers.", 7) == 0 ? strtol(name + 7, NULL, 10) : -1;
        if (layer != last) str_print(seen, "%s%ld", seen->n > 0 ? "," : "", layer);
        last = layer;
    }
    return strcmp(str_text(seen), rest) == 0;
}

/* Counts patterns that reach into a block, such as "layers.*.mlp.up_proj". */
static bool is_plan_entries(const CaseResult *r, const char *rest, Str *seen)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < r->config->n_passes; i++)
        for (uint32_t k = 0; k < r->config->passes[i].tp.plan.n; k++)
            n += strstr(r->config->passes[i].tp.plan.at[k].path, ".*.") != NULL;
    return is_number(n, rest, seen);
}

static bool is_count(const CaseResult *r, const char *rest, Str *seen)
{
    char axis[32], op[32], number[32];
    unsigned steps = 1;
    int read = sscanf(rest, "%31s %31s %31s in %u steps", axis, op, number, &steps);
    if (read != 3 && read != 4) return false;
    AxisName name = AXIS_pp;
    while (name < AXIS_NAMES && strcmp(axis_name_text(name), axis) != 0) name++;
    OpKind kind = op_find(op);
    if (name == AXIS_NAMES || kind == OP_none) return false;
    const Program *p = plan_program(r->plan, 0);
    AxisSet axes = mesh_axes(&r->plan->mesh, name);
    uint64_t n = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        n += in->op == kind && in->phase != PHASE_update && in->axes != 0 && !(in->axes & ~axes);
    }
    return is_number(n * steps, number, seen);
}

static bool is_data(const CaseResult *r, const char *rest, Str *seen)
{
    const Mesh *mesh = &r->plan->mesh;
    AxisSet data = mesh_data_axes(mesh);
    for (Rank rank = 0; rank < mesh->n_ranks; rank++)
        str_print(seen, "%s%" PRIu32 "/%" PRIu32, rank > 0 ? " " : "", mesh_part(mesh, rank, data),
                  mesh_size(mesh, data));
    return strcmp(str_text(seen), rest) == 0;
}

/* Counts the modules that rank 0 recomputes, grouped by their class, and the instructions for
 * that. */
static bool is_recomputed(const CaseResult *r, const char *rest, Str *seen)
{
    const Graph *g = &r->plan->graph;
    const Program *p = plan_program(r->plan, 0);
    uint32_t *n = arena_array(r->arena, g->modules.n + 1, sizeof *n);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        bool gathers = in->unit != 0; /* true if it gathers weights that the recomputation needs */
        if (in->phase == PHASE_recompute && !gathers) n[g->nodes.at[in->origin].region]++;
    }
    bool *told = arena_array(r->arena, g->modules.n + 1, sizeof *told);
    for (ModuleId m = 0; m < g->modules.n; m++) {
        uint32_t modules = 0, instructions = 0;
        for (ModuleId k = m; k < g->modules.n; k++) {
            bool alike =
                m == k || (m > 0 && strcmp(g->modules.at[m].class_, g->modules.at[k].class_) == 0);
            if (n[k] == 0 || told[k] || !alike) continue;
            modules++;
            instructions += n[k];
            told[k] = true;
        }
        if (modules > 0)
            str_print(seen, "%s%s %" PRIu32 "/%" PRIu32, seen->n > 0 ? ", " : "",
                      m > 0 ? g->modules.at[m].class_ : "outside", modules, instructions);
    }
    if (seen->n == 0) str_add(seen, "nothing");
    return strcmp(str_text(seen), rest) == 0;
}

/* "15 of 15": counts the forward matrix products of rank 0 that have an 8-bit form. */
static bool is_float8(const CaseResult *r, const char *rest, Str *seen)
{
    const Program *p = plan_program(r->plan, 0);
    uint32_t n = 0, n_scaled = 0;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        const OpInfo *info = op_info(in->op);
        if (in->phase != PHASE_forward || info->scaled[SCALING_tensorwise] == OP_none) continue;
        const Buffer *left = &p->buffers.at[program_arg(p, in, 0)],
                     *right = &p->buffers.at[program_arg(p, in, 1)];
        n++;
        n_scaled += info->scaling != SCALING_none && dtype_bytes(left->dtype) == 1 &&
                    dtype_bytes(right->dtype) == 1;
    }
    str_print(seen, "%" PRIu32 " of %" PRIu32, n_scaled, n);
    return strcmp(str_text(seen), rest) == 0;
}

/* Finds the dtypes of the parameters between steps, on all ranks. */
static bool is_rest(const CaseResult *r, const char *rest, Str *seen)
{
    bool has[DT_COUNT] = {false};
    for (uint32_t i = 0; i < r->plan->programs.n; i++) {
        const Program *p = &r->plan->programs.at[i];
        for (BufferId b = 1; b < p->buffers.n; b++)
            if (p->buffers.at[b].persistent && p->buffers.at[b].category == CATEGORY_parameter)
                has[p->buffers.at[b].dtype] = true;
    }
    for (int t = 0; t < DT_COUNT; t++)
        if (has[t]) str_print(seen, "%s%s", seen->n > 0 ? " " : "", dtype_name((DType)t));
    return strcmp(str_text(seen), rest) == 0;
}

/* Finds the largest number of rows that a rank needs from a neighbour, over all fields that are
 * cut. */
static bool is_halo(const CaseResult *r, const char *rest, Str *seen)
{
    const Plan *plan = r->plan;
    const Deals *deals = &plan->graph.deals;
    const AxisSet all = (AxisSet)((1u << plan->mesh.n_axes) - 1);
    int64_t most = 0;
    for (uint32_t i = 0; i < plan->programs.n; i++)
        for (BufferId b = 1; b < plan->programs.at[i].buffers.n; b++) {
            const Shape *s = plan_shape_at(plan, plan->programs.at[i].buffers.at[b].shape);
            const int d = s != NULL ? halo_dim(s, deals, all) : -1;
            const uint32_t parts = d >= 0 ? shape_parts(s, &plan->mesh, d) : 0;
            for (uint32_t part = 0; part < parts; part++) {
                Halo halo;
                if (!halo_find(deals, s->dim[d], parts, part, s->deal[d], &halo)) continue;
                if (halo.before > most) most = halo.before;
                if (halo.after > most) most = halo.after;
            }
        }
    str_print(seen, "%" PRId64, most);
    return strcmp(str_text(seen), rest) == 0;
}

bool cases_fact(const CaseResult *result, const char *fact, Str *seen)
{
    static const struct {
        const char *word;
        bool (*holds)(const CaseResult *, const char *rest, Str *seen);
    } facts[] = {{"mesh", is_mesh},
                 {"ranks", is_ranks},
                 {"parameters", is_parameters},
                 {"micro-batches", is_microbatches},
                 {"precision", is_precision},
                 {"parallel", is_parallel},
                 {"original", is_original},
                 {"stages", is_stages},
                 {"holder", is_holder},
                 {"local", is_local},
                 {"initial", is_initial},
                 {"weights", is_weights},
                 {"experts", is_experts},
                 {"moe-layers", is_moe_layers},
                 {"plan-entries", is_plan_entries},
                 {"count", is_count},
                 {"data", is_data},
                 {"recomputed", is_recomputed},
                 {"float8", is_float8},
                 {"rest", is_rest},
                 {"halo", is_halo},
                 {"equal", cases_equal},
                 {"norm", cases_norm},
                 {"start", cases_start},
                 {"replicas", cases_replicas},
                 {"draws", cases_draws}};
    size_t n = strcspn(fact, " ");
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        if (strlen(facts[i].word) == n && strncmp(facts[i].word, fact, n) == 0)
            return facts[i].holds(result, fact + n + (fact[n] == ' '), seen);
    str_add(seen, "there is no such fact");
    return false;
}
