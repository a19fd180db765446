/* Computes the fields that a plan's text does not contain, because others determine them: those of
 * class `derived` (fields.c), and those that a view has from its root. */
#include <string.h>

#include "planner/ir/text/private.h"

/* ---- the graph ---- */

/* Forward nodes come first; each later node names its forward node in `forward`. */
static void find_forward(Graph *g)
{
    NodeId id = 1;
    while (id < g->nodes.n && g->nodes.at[id].forward == 0) id++;
    g->n_forward = id < g->nodes.n ? id - 1 : 0;
}

static void find_units(Graph *g)
{
    for (UnitId u = 1; u < g->units.n; u++) {
        const Unit *unit = &g->units.at[u];
        for (uint32_t i = 0; i < unit->params.n; i++) {
            Tensor *t = &g->tensors.at[unit->params.at[i]];
            t->unit = u;
            t->rest_dtype = unit->rest_dtype;
            t->reduce_dtype = unit->reduce_dtype;
        }
    }
}

/* Returns the role of a tensor. The text states only ROLE_state; the node that writes the tensor
 * determines the others. */
static Role role_of(const Graph *g, const Tensor *t, TensorId id)
{
    const Node *maker = &g->nodes.at[t->producer];
    if (t->role == ROLE_state) return ROLE_state;
    if (t->grad_of != 0) return ROLE_gradient;
    if (t->producer == 0 || maker->op == OP_none) return ROLE_param;
    if (op_info(maker->op)->flags & OP_SOURCE) return ROLE_input;
    return op_makes_loss(maker->op) && maker->out[0] == id ? ROLE_loss : ROLE_activation;
}

/* Returns the key of the random initial value of a parameter: a hash of its name. */
static uint64_t stream_of(const Tensor *t)
{
    const bool has = t->role == ROLE_param || t->role == ROLE_state;
    return has ? hash_bytes(t->name, strlen(t->name)).lo : 0;
}

static void find_roles(Graph *g)
{
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (g->tensors.at[t].grad != 0) g->tensors.at[g->tensors.at[t].grad].grad_of = t;
    g->loss = 0;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        Tensor *const at = &g->tensors.at[t];
        at->role = role_of(g, at, t);
        at->init_stream = stream_of(at);
        if (at->role == ROLE_loss) g->loss = t;
    }
}

/* Numbers the blocks from 1, which gives the layers. A module inside a block, and its nodes, have
 * the block's layer. Parents come before their modules. */
static void find_layers(Graph *g)
{
    uint32_t n = 0;
    for (ModuleId m = 1; m < g->modules.n; m++) {
        Module *at = &g->modules.at[m];
        at->layer = g->modules.at[at->parent].layer;
        if (at->layer == 0 && at->is_block) at->layer = ++n;
    }
    for (NodeId id = 1; id < g->nodes.n; id++)
        g->nodes.at[id].layer = g->modules.at[g->nodes.at[id].module].layer;
}

/* ---- the step ---- */

static Denominator denominator_of(const Graph *g, const Node *loss)
{
    if (op_means_groups(loss->op)) return DENOMINATOR_microbatch_mean;
    return graph_attrs_at(g, loss->attrs)->count_all != 0 ? DENOMINATOR_all : DENOMINATOR_kept;
}

/* Returns how many points (tokens, or points of fields) of a micro-batch the loss counts. With
 * tile{}, several nodes compute pieces of the loss. */
static double points_of_loss(const Graph *g)
{
    static const IndexRole of_points[] = {INDEX_samples, INDEX_tokens, INDEX_height, INDEX_width};
    double sum = 0;
    for (NodeId id = g->loss ? g->tensors.at[g->loss].producer : 0; id && id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        double points = 1;
        if (!op_makes_loss(n->op) || n->out[0] != g->loss || n->n_in == 0) continue;
        for (uint32_t i = 0; i < sizeof of_points / sizeof *of_points; i++) {
            const int d = op_dim(n->op, 0, of_points[i]);
            if (d >= 0) points *= (double)g->tensors.at[n->in[0]].dim[d];
        }
        sum += points;
    }
    return sum;
}

static void find_step(Plan *plan)
{
    StepInfo *s = &plan->step;
    const Graph *g = &plan->graph;
    const double points = points_of_loss(g);
    const NodeId by = g->tensors.at[g->loss].producer;
    const Node *loss = &g->nodes.at[by];
    s->n_microbatches = s->micro_batch > 0 ? (uint32_t)(s->global_batch / s->micro_batch) : 0;
    s->global_tokens =
        points != 0 ? points * s->n_microbatches : (double)s->global_batch * (double)s->seq;
    s->denominator = by != 0 ? denominator_of(g, loss) : DENOMINATOR_kept;
    s->group = by != 0 && op_means_groups(loss->op) ? graph_attrs_at(g, loss->attrs)->group : 0;
}

/* ---- programs ---- */

static void find_lives(Program *p)
{
    for (BufferId b = 1; b < p->buffers.n; b++) p->buffers.at[b].first = p->buffers.at[b].last = 0;
    for (Pc pc = 1; pc < p->code.n; pc++)
        for (uint32_t i = 0; i < p->code.at[pc].args.n; i++) {
            Buffer *const at = &p->buffers.at[program_arg(p, &p->code.at[pc], i)];
            Buffer *const root = &p->buffers.at[at->parent];
            if (at->first == 0) at->first = pc;
            at->last = pc;
            if (at->parent == 0) continue;
            if (root->first == 0) root->first = pc;
            root->last = pc;
        }
}

/* Copies the fields that a view always has from its root, such as `persistent`. */
static void find_shared(Program *p)
{
    const Record *r = text_record(RECORD_buffer);
    for (BufferId b = 1; b < p->buffers.n; b++) {
        Buffer *const at = &p->buffers.at[b];
        const Buffer *root = &p->buffers.at[at->parent];
        for (uint32_t i = 0; at->parent != 0 && i < r->n_fields; i++) {
            const TextField *f = &r->fields[i];
            if (f->of_root)
                memcpy((char *)at + f->offset, (const char *)root + f->offset,
                       text_plain_bytes(f->type));
        }
    }
}

static void find_arenas(Program *p)
{
    p->bytes = p->host_bytes = 0;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        uint64_t *const end = at->space == SPACE_host ? &p->host_bytes : &p->bytes;
        if (at->parent == 0 && at->offset + at->bytes > *end) *end = at->offset + at->bytes;
    }
}

/* A program's stage is the coordinate of its ranks along pp. */
static void find_stages(Plan *plan)
{
    const AxisSet stages = mesh_axes_of(&plan->mesh, axes_with(AXIS_STAGES));
    for (Rank r = plan->mesh.n_ranks; plan->program_of != NULL && r-- > 0;)
        plan->programs.at[plan->program_of[r]].stage = mesh_part(&plan->mesh, r, stages);
}

static void count_matches(Plan *plan)
{
    plan->n_match = 1;
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        for (Pc pc = 1; pc < p->code.n; pc++)
            if (p->code.at[pc].match >= plan->n_match) plan->n_match = p->code.at[pc].match + 1;
    }
}

void text_derive(Plan *plan)
{
    Graph *g = &plan->graph;
    graph_find_producers(g);
    find_forward(g);
    find_units(g);
    find_roles(g);
    find_layers(g);
    graph_find_info(g);
    g->info.seq = (uint32_t)plan->step.seq;
    find_step(plan);
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        Program *p = &plan->programs.at[i];
        find_shared(p);
        find_lives(p);
        find_arenas(p);
    }
    find_stages(plan);
    count_matches(plan);
}
