/* Checks the statements of a plan about itself, such as the size of a step, names of axes and
 * categories of buffers. No value depends on them, but memory tables and reports do, and somebody
 * may have edited the text. Each of these fields is derived again from the instructions and the
 * graph. The seed is an input, so it cannot be checked. */
#include <string.h>

#include "planner/verify/private.h"

#define RULE "verify-metadata"

/* ---- the step ---- */

/* Returns the number of tokens of the batch; for fields, the number of points of the grid. */
static int64_t points_of(const Node *n, const int64_t *dim)
{
    const int tokens = op_dim(n->op, n->n_in, INDEX_tokens);
    const int height = op_dim(n->op, n->n_in, INDEX_height);
    const int width = op_dim(n->op, n->n_in, INDEX_width);
    if (tokens >= 0) return dim[tokens];
    return height >= 0 && width >= 0 ? dim[height] * dim[width] : 0;
}

static void check_batch(Verifier *v)
{
    const StepInfo *s = &v->plan->step;
    for (NodeId id = 1; id < v->g->nodes.n && s->micro_batch; id++) {
        const Node *n = &v->g->nodes.at[id];
        const int samples = op_dim(n->op, n->n_in, INDEX_samples);
        if (!(op_info(n->op)->flags & OP_SOURCE) || samples < 0) continue;
        const int64_t *is = v->g->tensors.at[n->out[0]].dim, points = points_of(n, is);
        if (points && (is[samples] != s->micro_batch || points != s->seq))
            verify_report(v, RULE, 0,
                          "the graph has %lld sequences of %lld tokens in a micro-batch, but "
                          "`step` states %lld of %lld",
                          (long long)is[samples], (long long)points, (long long)s->micro_batch,
                          (long long)s->seq);
    }
}

static void check_microbatches(Verifier *v)
{
    uint32_t newest = 0;
    bool steps = false;
    for (uint32_t i = 0; i < v->plan->programs.n; i++) {
        const Program *p = &v->plan->programs.at[i];
        if (p->purpose == PURPOSE_gather) continue; /* a program that gathers state has no step */
        steps = true;
        for (Pc pc = 1; pc < p->code.n; pc++)
            if (p->code.at[pc].microbatch > newest) newest = p->code.at[pc].microbatch;
    }
    if (steps && newest + 1 != v->plan->step.n_microbatches)
        verify_report(v, RULE, 0,
                      "the instructions belong to %u micro-batches, but `step` states %u",
                      newest + 1, v->plan->step.n_microbatches);
}

/* ---- axes ---- */

/* True if the name of the axis is valid: dp_shard, or dp_shard.1 for the second axis of that name.
 */
static bool is_named(const Mesh *m, uint32_t axis)
{
    const Axis *a = &m->axis[axis];
    const char *name = axis_name_text(a->name);
    uint32_t place = 0, n = 0;
    for (uint32_t k = 0; k < m->n_axes; k++) {
        if (m->axis[k].name != a->name) continue;
        place += k < axis;
        n++;
    }
    const size_t length = strlen(name);
    if (!a->text || strncmp(a->text, name, length) != 0) return false;
    if (n == 1) return a->text[length] == 0;
    return a->text[length] == '.' && a->text[length + 1] == '0' + (char)(place % 10) &&
           a->text[length + 2] == 0;
}

/* The axes along which each kind of work is divided. */
typedef struct WorkAxes {
    AxisSet stages, shard, replicate;
    AxisSet cut[INDEX_ROLES]; /* [index of the batch]: the axes that divide it */
    AxisSet batch;            /* the axes that divide any index of the batch */
} WorkAxes;

static void find_cuts(const Verifier *v, WorkAxes *is)
{
    for (NodeId id = 1; id < v->g->nodes.n; id++) {
        const Node *n = &v->g->nodes.at[id];
        if (!(op_info(n->op)->flags & OP_SOURCE)) continue;
        for (uint32_t a = 0; a < v->plan->mesh.n_axes; a++) {
            const IndexRole role = op_role(n->op, n->split[a]);
            if (role == INDEX_none) continue;
            is->cut[role] |= (AxisSet)(1u << a);
            is->batch |= (AxisSet)(1u << a);
        }
    }
}

static WorkAxes work_along(const Verifier *v)
{
    WorkAxes is = {.stages = 0};
    for (uint32_t i = 0; i < v->plan->programs.n; i++) {
        const Program *p = &v->plan->programs.at[i];
        for (Pc pc = 1; pc < p->code.n; pc++)
            if (p->code.at[pc].hop) is.stages |= p->code.at[pc].axes;
    }
    find_cuts(v, &is);
    for (UnitId u = 1; u < v->g->units.n; u++) {
        is.shard |= v->g->units.at[u].shard;
        is.replicate |= v->g->units.at[u].replicate;
    }
    return is;
}

/* Returns NULL if the axis splits exactly the index of the batch that axes.def gives; otherwise the
 * fault. */
static const char *cut_fault(const WorkAxes *is, const AxisInfo *axis, AxisSet bit)
{
    const char *fault = NULL;
    if (is->cut[INDEX_samples] &&
        (axis->cuts == INDEX_samples) != ((is->cut[INDEX_samples] & bit) != 0))
        fault = axis->cuts == INDEX_samples ? "has the same samples on all its ranks"
                                            : "has different samples on its ranks";
    for (int role = INDEX_none + 1; role < INDEX_ROLES; role++) {
        const bool cuts = axis->cuts == (IndexRole)role;
        if (role == INDEX_samples || !is->batch || cuts == ((is->cut[role] & bit) != 0)) continue;
        if (role == INDEX_tokens)
            fault =
                cuts ? "has the same tokens on all its ranks" : "has different tokens on its ranks";
        else
            fault = cuts ? "has the same part of the batch on all its ranks"
                         : "has different parts of the batch on its ranks";
    }
    return fault;
}

/* Checks that each axis divides the kind of work for which its name stands. */
static void check_axes(Verifier *v)
{
    const Mesh *m = &v->plan->mesh;
    const WorkAxes is = work_along(v);
    for (uint32_t a = 0; a < m->n_axes; a++) {
        const AxisSet bit = (AxisSet)(1u << a);
        const AxisInfo *axis = axis_info(m->axis[a].name);
        const char *fault = NULL, *cut = cut_fault(&is, axis, bit);
        if (!is_named(m, a)) fault = "has a name that belongs to another kind of axis";
        if (!(axis->flags & AXIS_STAGES) && is.stages & bit)
            fault = "has different stages on its ranks";
        if (cut) fault = cut;
        if (!(axis->flags & AXIS_STATES) && is.shard & bit)
            fault = "has shards of units on its ranks";
        if (axis->flags & AXIS_UNITS && is.shard && !(is.shard & bit))
            fault = "has no shards on its ranks";
        if (axis->cuts == INDEX_none && (is.shard | is.replicate) & bit)
            fault = "has gradients that are summed over its ranks, like a data axis";
        if (fault)
            verify_report(v, RULE, 0, "mesh axis %u (%s, %s) %s", a,
                          m->axis[a].text ? m->axis[a].text : "?", axis->name, fault);
    }
}

/* ---- units ---- */

/* Checks that each unit ends after its last parameter, or at the next multiple of ALIGN
 * elements. */
static void check_units(Verifier *v)
{
    enum { ALIGN = 64 }; /* elements */
    for (UnitId u = 1; u < v->g->units.n; u++) {
        const Unit *unit = &v->g->units.at[u];
        uint64_t end = 0;
        for (uint32_t i = 0; i < unit->params.n; i++) {
            const Tensor *t = &v->g->tensors.at[unit->params.at[i]];
            Shape s = {.n_dims = t->n_dims, .layout = t->use};
            for (int d = 0; d < t->n_dims; d++) s.dim[d] = t->dim[d], s.deal[d] = t->deal[d];
            end = t->flat_offset + (uint64_t)shape_local_elements(&s, &v->plan->mesh, &v->g->deals);
        }
        const uint64_t aligned = (end + ALIGN - 1) / ALIGN * ALIGN,
                       unit_of = (uint64_t)ALIGN * mesh_size(&v->plan->mesh, unit->shard);
        if (unit->elements != end && unit->elements != aligned)
            verify_report(v, RULE, 0,
                          "unit %s has %llu elements, but its parameters end at element %llu",
                          unit->name, (unsigned long long)unit->elements, (unsigned long long)end);
        if (unit->padded - unit->elements >= unit_of)
            verify_report(v, RULE, 0, "unit %s is padded from %llu to %llu elements", unit->name,
                          (unsigned long long)unit->elements, (unsigned long long)unit->padded);
    }
}

/* ---- micro-batches of communications ---- */

/* Sets *before and *behind to the micro-batches of the nearest computations before and after the
 * instruction. If there is no such computation, sets the instruction's own micro-batch. */
static void neighbours(const Program *p, Pc pc, uint32_t *before, uint32_t *behind)
{
    *before = *behind = p->code.at[pc].microbatch;
    for (Pc k = pc; k > 0; k--)
        if (p->code.at[k].stream == STREAM_compute) {
            *before = p->code.at[k].microbatch;
            break;
        }
    for (Pc k = pc; k < p->code.n; k++)
        if (p->code.at[k].stream == STREAM_compute) {
            *behind = p->code.at[k].microbatch;
            break;
        }
}

/* Returns the micro-batch of a message: the micro-batch of the instruction that made the data, or
 * of the first instruction that reads them. */
static uint32_t of_message(const Verifier *v, const Pc *writer, Pc pc)
{
    const Program *p = v->p;
    const Instr *in = &p->code.at[pc];
    const BufferId root = program_root(p, program_arg(p, in, 0), NULL);
    if (in->op == OP_send) return writer[root] ? p->code.at[writer[root]].microbatch : UINT32_MAX;
    for (Pc k = pc + 1; k < p->code.n; k++) {
        const Instr *reader = &p->code.at[k];
        for (uint32_t i = 0; i < reader->n_in; i++)
            if (program_root(p, program_arg(p, reader, i), NULL) == root) return reader->microbatch;
    }
    return UINT32_MAX;
}

static void check_communications(Verifier *v)
{
    const Program *p = v->p;
    Pc *writer = arena_array(v->arena, p->buffers.n, sizeof *writer);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        uint32_t before, behind, want = UINT32_MAX;
        const bool is_message = in->op == OP_send || in->op == OP_recv;
        /* a message that belongs to a unit carries a sum over all micro-batches */
        if (is_message && !in->unit) {
            want = of_message(v, writer, pc);
            if (want != UINT32_MAX && want != in->microbatch)
                verify_report(v, RULE, pc, "its data belong to micro-batch %u", want);
        } else if (verify_is_comm(in)) {
            neighbours(p, pc, &before, &behind);
            if (in->microbatch != before && in->microbatch != behind)
                verify_report(v, RULE, pc, "is between instructions of micro-batches %u and %u",
                              before, behind);
        }
        for (uint32_t i = in->n_in; i < in->args.n; i++)
            writer[program_root(p, program_arg(p, in, i), NULL)] = pc;
    }
}

/* ---- the purpose of buffers ---- */

enum { /* the purpose of a root buffer */
       USE_weight = 1,
       USE_moment = 2,
       USE_gradient = 4,
       USE_scalar = 8,
       USE_input = 16,
       USE_gathered = 32,
       USE_value = 64,
       USE_packed = 128,
       USE_read = 256,
       USE_summed = 512,
       USE_part = 1024
};

/* True for a tensor that lives between steps and is no parameter, and for its updated value. */
static bool is_state(const Graph *g, TensorId t)
{
    const Tensor *at = &g->tensors.at[t];
    return at->role == ROLE_state ||
           (at->producer && op_info(g->nodes.at[at->producer].op)->flags & OP_UPDATES);
}

/* Returns the purpose of a buffer that holds graph tensor t as an output of its node (`out`), or as
 * an input. */
static uint32_t use_of_tensor(const Verifier *v, TensorId t, bool out)
{
    const Tensor *at = &v->g->tensors.at[t];
    const bool of_param = at->grad_of && v->g->tensors.at[at->grad_of].role == ROLE_param;
    if (out && (at->role == ROLE_loss || t == graph_count(v->g))) return USE_scalar;
    if (is_state(v->g, t)) return USE_scalar;
    if (at->role == ROLE_input) return out ? USE_input : 0;
    if (of_param || at->role == ROLE_param || graph_weight(v->g, t)) return 0;
    return out ? USE_value : USE_read;
}

/* Returns the purpose of argument i, which follows from updates, scalars of the step, and the
 * graph. `of_tensor` [tensor x out] stores 1 + the purposes that follow from the graph. */
static uint32_t use_of(const Verifier *v, const Instr *in, uint32_t i, uint32_t *of_tensor)
{
    const Node *n = in->origin ? &v->g->nodes.at[in->origin] : NULL;
    const bool is_node = n && verify_is_of_node(in, n) && in->op != OP_pass, out = i >= in->n_in;
    const uint32_t flags = op_info(in->op)->flags, n_args = verify_n_args(in);
    if (i >= n_args) return 0; /* the scratch memory of the kernel has no purpose */
    if (flags & OP_UPDATES && !(flags & OP_ONCE)) {
        const uint32_t k = out ? i - in->n_in : i;
        if (!out && k == verify_gradient_arg(in)) return USE_gradient;
        if (!out && k > verify_gradient_arg(in)) return USE_scalar;
        return k == 0 ? USE_weight : USE_moment;
    }
    if (flags & OP_STATE && !(flags & OP_ONCE)) return in->op == OP_sumsq && !out ? 0 : USE_scalar;
    if (in->op == OP_all_gather && in->unit && out) return USE_gathered;
    if (in->op == OP_reduce_scatter && in->unit) return out ? USE_part : USE_summed;
    if (in->op == OP_pack && out) return USE_packed;
    if (!is_node) return 0;
    const TensorId t = out ? n->out[i - in->n_in] : n->in[i];
    uint32_t *known = &of_tensor[2 * (size_t)t + out];
    if (*known == 0) *known = 1 + use_of_tensor(v, t, out);
    return *known - 1;
}

/* Returns NULL, or how the purpose of the buffer contradicts its category. */
static const char *category_fault(const Verifier *v, BufferId b, uint32_t use, bool copied)
{
    const Buffer *at = &v->p->buffers.at[b];
    const Category c = at->category;
    const bool batch = at->tensor && v->g->tensors.at[at->tensor].role == ROLE_input;
    const bool weight = at->tensor && v->g->tensors.at[at->tensor].role == ROLE_param;
    if (use & USE_weight) return c == CATEGORY_parameter ? NULL : "is updated as a parameter";
    if (use & USE_moment) return c == CATEGORY_optimizer ? NULL : "is updated as a moment";
    if (use & USE_gradient) return c == CATEGORY_gradient ? NULL : "is read by an update";
    if (use & USE_scalar) return c == CATEGORY_state ? NULL : "is state, or a number of the step";
    if (use & USE_input) return c == CATEGORY_input ? NULL : "is drawn from the data";
    if (use & USE_gathered) return c == CATEGORY_gathered ? NULL : "is gathered weights";
    if (use & USE_summed)
        return c == (copied ? CATEGORY_communication : CATEGORY_gradient) ? NULL
                                                                          : "is a whole gradient";
    if (use & USE_part)
        return c == CATEGORY_communication ? NULL : "is a part of a reduced gradient";
    if (use & USE_value) return c == CATEGORY_activation ? NULL : "is a value of the graph";
    if (use & USE_packed || (at->packed && !batch && !(use & USE_read)))
        return c == CATEGORY_communication ? NULL : "is packed to be sent";
    if (use & USE_read)
        return c == CATEGORY_activation || c == CATEGORY_communication ? NULL
                                                                       : "is read as a value";
    if (batch) /* the buffer holds a part of the batch, or a message with such a part */
        return c == CATEGORY_input || (at->packed && c == CATEGORY_communication)
                   ? NULL
                   : "holds a part of the data";
    const bool of_weight = at->tensor && graph_weight(v->g, at->tensor);
    if (weight) return c == CATEGORY_gathered || c == CATEGORY_parameter ? NULL : "holds weights";
    if (at->unit && at->persistent &&
        graph_is_frozen(v->g, at->unit)) /* frozen weights, which no update reads */
        return c == CATEGORY_parameter ? NULL : "holds frozen weights";
    /* weights in the dtype of use, before they are gathered */
    if (at->unit && copied && !at->tensor && at->space == SPACE_device)
        return c == CATEGORY_parameter || c == CATEGORY_communication ? NULL
                                                                      : "is a shard on its way";
    if (c == CATEGORY_parameter || c == CATEGORY_optimizer || c == CATEGORY_input ||
        c == CATEGORY_none)
        return "has no such use";
    if ((c == CATEGORY_activation) && (at->unit || !at->tensor)) return "is no value of the graph";
    if (c == CATEGORY_gathered && at->tensor && !of_weight) return "holds no weights";
    if (c == CATEGORY_gradient && !at->unit && !at->persistent) return "is of no unit";
    return NULL;
}

/* The purposes of the arguments of an instruction. */
typedef struct ArgUses {
    bool known;
    uint32_t use[MAX_ARGS];
} ArgUses;

static const ArgUses *uses_of(const Verifier *v, const Instr *in, ArgUses *uses,
                              uint32_t *of_tensor)
{
    if (uses->known) return uses;
    for (uint32_t i = 0; i < in->args.n; i++) uses->use[i] = use_of(v, in, i, of_tensor);
    uses->known = true;
    return uses;
}

static void check_categories(Verifier *v, uint32_t *of_tensor)
{
    const Program *p = v->p;
    const Twins *twins = v->twins ? &v->twins[v->program] : NULL;
    /* [group]: twins have the same purposes */
    ArgUses *of_group = arena_array(v->arena, twins ? twins->n : 1, sizeof *of_group);
    uint32_t *use = arena_array(v->arena, p->buffers.n, sizeof *use);
    bool *copied = arena_array(v->arena, p->buffers.n, sizeof *copied),
         *touched = arena_array(v->arena, p->buffers.n, sizeof *touched);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        const uint32_t group = twins ? twins->of_instr[pc] : 0;
        of_group[0].known = false;
        const ArgUses *uses = uses_of(v, in, &of_group[group], of_tensor);
        for (uint32_t i = 0; i < in->args.n; i++) {
            const BufferId root = program_root(p, program_arg(p, in, i), NULL);
            use[root] |= uses->use[i];
            touched[root] = true;
            if (i >= in->n_in && (in->op == OP_copy || in->op == OP_cast)) copied[root] = true;
        }
    }
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        if (at->parent && at->category != p->buffers.at[program_root(p, b, NULL)].category)
            verify_report(
                v, RULE, 0,
                "buffer %u has category %s, but the buffer that contains it has category %s", b,
                category_name(at->category),
                category_name(p->buffers.at[program_root(p, b, NULL)].category));
        if (at->parent || !touched[b] || at->category == CATEGORY_workspace) continue;
        const char *fault = category_fault(v, b, use[b], copied[b]);
        if (fault)
            verify_report(v, RULE, 0, "buffer %u has category %s, but %s", b,
                          category_name(at->category), fault);
    }
}

/* ---- when buffers are alive ---- */

static void check_lives(Verifier *v)
{
    const Program *p = v->p;
    Pc *first = arena_array(v->arena, p->buffers.n, sizeof *first),
       *last = arena_array(v->arena, p->buffers.n, sizeof *last);
    for (Pc pc = 1; pc < p->code.n; pc++)
        for (uint32_t i = 0; i < p->code.at[pc].args.n; i++) {
            const BufferId b = program_arg(p, &p->code.at[pc], i), parent = p->buffers.at[b].parent;
            if (!first[b]) first[b] = pc;
            if (!first[parent])
                first[parent] = pc; /* for a root buffer, `parent` is 0; first[0] is never read */
            last[b] = last[parent] = pc;
        }
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        if (at->first != first[b] || at->last != last[b])
            verify_report(v, RULE, 0,
                          "buffer %u is used from instruction %u to %u, but its fields first and "
                          "last state %u to %u",
                          b, first[b], last[b], at->first, at->last);
    }
}

void verify_metadata(Verifier *v)
{
    if (!(v->proofs & VERIFY_metadata)) return;
    verify_stated(v);
    verify_derived(v);
    verify_attributes(v);
    check_batch(v);
    check_microbatches(v);
    check_axes(v);
    check_units(v);
    uint32_t *of_tensor = arena_array(v->arena, v->g->tensors.n, 2 * sizeof *of_tensor);
    for (v->program = 0; v->program < v->plan->programs.n; v->program++) {
        v->p = &v->plan->programs.at[v->program];
        if (v->p->purpose == PURPOSE_gather)
            continue; /* a program that gathers state has no
                         step */
        check_communications(v);
        check_categories(v, of_tensor);
        check_lives(v);
    }
    v->p = NULL;
}
