/* Graph with layouts -> program. Walks forward and backward once a micro-batch; tensors that were
 * not kept are recomputed when somebody wants them. All ranks run the same code: one program. */
#include <assert.h>
#include <string.h>

#include "planner/passes/lower.h"

const Layout *lower_arg_layout(const Lower *l, NodeId n, uint32_t arg)
{
    return &l->arg_layouts[l->arg_first[n] + arg];
}

static TensorId node_arg(const Node *n, uint32_t arg)
{
    return arg < n->n_in ? n->in[arg] : n->out[arg - n->n_in];
}

static uint64_t find_workspace(const Lower *l, NodeId id, const Binding *b)
{
    const Node *n = &l->g->nodes.at[id];
    int64_t size['z' + 1];
    DType real = DT_none;
    if (!l->job->options.workspace) return 0;
    memcpy(size, b->size, sizeof size);
    for (uint32_t arg = 0; arg < (uint32_t)n->n_in + n->n_out; arg++) {
        const Tensor *t = &l->g->tensors.at[node_arg(n, arg)];
        Shape s = tensor_shape(t, lower_arg_layout(l, id, arg));
        if (real == DT_none && t->dtype != DT_i32) real = lower_dtype(l, t->dtype);
        for (int d = 0; d < s.n_dims; d++)
            if (layout_axes_split(&s.layout, d))
                size[(int)b->letter[arg][d]] = shape_local_dim(&s, &l->plan->mesh, &l->g->deals, d);
    }
    return l->job->options.workspace(n->op, b, size, real);
}

void lower_add_workspace(Lower *l, NodeId n, Emit *e)
{
    if (!l->workspace[n]) return;
    Shape s = {.n_dims = 1, .dim = {(int64_t)l->workspace[n]}};
    e->arg[e->n_in + e->n_out] = lower_buffer(l, &s, DT_u8, CATEGORY_workspace);
    e->n_out++;
}

/* Once a node, not once a micro-batch. */
static void find_layouts(Lower *l)
{
    uint32_t n_args = 0;
    l->arg_first = arena_array(l->scratch, l->g->nodes.n, sizeof *l->arg_first);
    l->workspace = arena_array(l->scratch, l->g->nodes.n, sizeof *l->workspace);
    for (NodeId id = 1; id < l->g->nodes.n; id++) {
        l->arg_first[id] = n_args;
        n_args += (uint32_t)l->g->nodes.at[id].n_in + l->g->nodes.at[id].n_out;
    }
    l->arg_layouts = arena_array(l->scratch, n_args, sizeof *l->arg_layouts);
    for (NodeId id = 1; id < l->g->nodes.n; id++) {
        const Node *n = &l->g->nodes.at[id];
        Binding b;
        graph_bind(l->g, n, &b, l->job->diag);
        for (uint32_t arg = 0; arg < (uint32_t)n->n_in + n->n_out; arg++)
            for (uint32_t a = 0; a < l->plan->mesh.n_axes; a++)
                l->arg_layouts[l->arg_first[id] + arg].on[a] =
                    op_axis_layout(n->op, &b, arg, n->split[a]);
        l->workspace[id] = find_workspace(l, id, &b);
    }
}

static BufferId forward_output(Lower *l, NodeId id, uint32_t j, Attrs *attrs)
{
    const Node *n = &l->g->nodes.at[id];
    const Tensor *t = &l->g->tensors.at[n->out[j]];
    Shape s = tensor_shape(t, lower_arg_layout(l, id, n->n_in + j));
    if (n->out[j] == l->g->loss) { /* summed over the micro-batches of the step */
        if (l->microbatch) attrs->accumulate |= 1 << j;
        return lower_view(l, l->loss, &s, DT_f64, 0);
    }
    Category category = t->role == ROLE_input ? CATEGORY_input : CATEGORY_activation;
    BufferId out = lower_buffer(l, &s, lower_dtype(l, t->dtype), category);
    l->p->buffers.at[out].tensor = n->out[j];
    return out;
}

void lower_forward_node(Lower *l, NodeId id)
{
    Node n = l->g->nodes.at[id];
    Emit e = {.op = n.op,
              .stream = STREAM_compute,
              .origin = id,
              .n_in = n.n_in,
              .n_out = n.n_out,
              .attrs = *graph_attrs_at(l->g, n.attrs)};
    for (uint32_t i = 0; i < n.n_in; i++)
        e.arg[i] = lower_want(l, n.in[i], lower_arg_layout(l, id, i), id);
    for (uint32_t j = 0; j < n.n_out; j++) e.arg[n.n_in + j] = forward_output(l, id, j, &e.attrs);
    lower_add_workspace(l, id, &e);
    lower_emit(l, &e);
    for (uint32_t j = 0; j < n.n_out; j++) {
        BufferId out = e.arg[n.n_in + j];
        if (n.out[j] == l->g->loss) continue;
        lower_add_version(l, n.out[j], out);
        Layout use = l->g->tensors.at[n.out[j]].use;
        if (l->phase == PHASE_forward && !layout_equal(&lower_shape(l, out)->layout, &use))
            lower_add_version(l, n.out[j], lower_convert(l, out, &use, id, CATEGORY_activation));
    }
}

/* ---- what is kept from forward to backward ---- */

static void need_from(Lower *l, bool *needed, TensorId t, ModuleId region)
{
    const Tensor *at = &l->g->tensors.at[t];
    if (at->role != ROLE_activation && at->role != ROLE_input) return;
    needed[t] = true;
    uint32_t home = l->g->nodes.at[at->producer].region;
    if (home == 0 || home != region) l->keep[t] = true;
}

static void find_kept(Lower *l)
{
    const Graph *g = l->g;
    bool *needed = arena_array(l->scratch, g->tensors.n, sizeof *needed);
    for (NodeId id = g->n_forward + 1; id < g->nodes.n; id++)
        for (uint32_t i = 0; i < g->nodes.at[id].n_in; i++)
            need_from(l, needed, g->nodes.at[id].in[i], g->nodes.at[id].region);
    for (NodeId id = g->n_forward; id > 0; id--) { /* what recomputation itself reads */
        const Node *n = &g->nodes.at[id];
        bool again = false;
        for (uint32_t j = 0; j < n->n_out; j++)
            again = again || (needed[n->out[j]] && !l->keep[n->out[j]]);
        for (uint32_t i = 0; again && i < n->n_in; i++) need_from(l, needed, n->in[i], n->region);
    }
}

static void end_forward(Lower *l)
{
    for (TensorId t = 1; t < l->tensor_room; t++) {
        if (!l->versions_of[t]) continue;
        if (!l->keep[t]) {
            l->versions_of[t] = 0;
        } else if (!l->job->keep_gathered) {
            Layout use = l->g->tensors.at[t].use;
            BufferId kept = lower_find_version(l, t, &use);
            assert(kept);
            l->versions_of[t] = 0;
            lower_add_version(l, t, kept);
        }
    }
}

/* ---- which nodes read which unit ---- */

static void plan_uses(Lower *l)
{
    const Graph *g = l->g;
    bool *seen = arena_array(l->scratch, g->units.n, sizeof *seen);
    LIST(Use) once = {0};
    for (NodeId id = 1; id < g->nodes.n; id++) {
        bool backward = id > g->n_forward;
        if (id == g->n_forward + 1)
            for (UnitId u = 1; u < g->units.n; u++) seen[u] = lower_stays_gathered(l, u);
        const Node *reader = &g->nodes.at[backward ? g->nodes.at[id].forward : id];
        for (uint32_t i = 0; i < reader->n_in; i++) {
            if (g->tensors.at[reader->in[i]].role != ROLE_param) continue;
            UnitId u = g->tensors.at[reader->in[i]].unit;
            if (backward)
                l->last_backward[u] = id;
            else
                l->last_forward[u] = id;
            Use use = {u, 0, backward};
            if (g->units.at[u].shard && !seen[u]) list_push(l->scratch, &once, use);
            seen[u] = true;
        }
    }
    for (uint32_t m = 0; m < l->n_microbatches; m++)
        for (uint32_t i = 0; i < once.n; i++) {
            Use use = {once.at[i].unit, m, once.at[i].backward};
            list_push(l->scratch, &l->uses, use);
        }
}

static void count_gradients(Lower *l)
{
    for (TensorId t = 1; t < l->tensor_room; t++) l->grads[t] = (GradState){0};
    for (UnitId u = 1; u < l->g->units.n; u++) l->units[u].n_per_microbatch = 0;
    for (NodeId id = l->g->n_forward + 1; id < l->g->nodes.n; id++) {
        const Node *n = &l->g->nodes.at[id];
        for (uint32_t i = 0; i < n->n_in; i++)
            if (l->g->tensors.at[n->in[i]].role == ROLE_gradient) l->grads[n->in[i]].n_uses++;
        for (uint32_t j = 0; j < n->n_out; j++) {
            l->grads[n->out[j]].n_expected++;
            const Tensor *of = &l->g->tensors.at[l->g->tensors.at[n->out[j]].grad_of];
            if (of->role == ROLE_param) l->units[of->unit].n_per_microbatch++;
        }
    }
}

static void lower_microbatch(Lower *l)
{
    l->versions.n = 0;
    l->shares.n = 0;
    for (TensorId t = 0; t < l->tensor_room; t++) l->versions_of[t] = 0;
    count_gradients(l);
    for (UnitId u = 1; u < l->g->units.n; u++)
        l->units[u].n_contributions = l->units[u].n_per_microbatch;
    l->phase = PHASE_forward;
    for (NodeId id = 1; id <= l->g->n_forward; id++) {
        lower_forward_node(l, id);
        lower_after_node(l, id);
    }
    end_forward(l);
    l->phase = PHASE_backward;
    for (NodeId id = l->g->n_forward + 1; id < l->g->nodes.n; id++) {
        if (l->g->nodes.at[id].op == OP_pass)
            lower_pass_node(l, id);
        else
            lower_backward_node(l, id);
        lower_after_node(l, id);
    }
    lower_units_end_microbatch(l);
}

static void lower_program(Lower *l)
{
    Shape scalar = {.n_dims = 0};
    l->loss = lower_buffer(l, &scalar, DT_f64, CATEGORY_state);
    l->p->buffers.at[l->loss].persistent = true;
    l->p->buffers.at[l->loss].tensor = l->g->loss;
    l->phase = PHASE_start;
    lower_units_start(l);
    find_layouts(l);
    find_kept(l);
    plan_uses(l);
    for (l->microbatch = 0; l->microbatch < l->n_microbatches; l->microbatch++) lower_microbatch(l);
    l->microbatch = l->n_microbatches - 1;
    l->phase = PHASE_update;
    lower_update(l);
}

bool pass_lower(Job *job)
{
    Plan *plan = job->plan;
    uint32_t n_tensors = plan->graph.tensors.n, n_units = plan->graph.units.n;
    uint32_t program = (uint32_t)list_add(job->arena, &plan->programs);
    Lower l = {.job = job,
               .plan = plan,
               .g = &plan->graph,
               .arena = job->arena,
               .scratch = job->scratch,
               .n_microbatches = plan->step.n_microbatches,
               .match = 1,
               .tensor_room = n_tensors};
    l.p = &plan->programs.at[program];
    l.p->purpose = PURPOSE_train;
    list_reserve_none(l.arena, &l.p->code);
    list_reserve_none(l.arena, &l.p->buffers);
    list_reserve_none(l.scratch, &l.clocks);
    list_reserve_none(l.scratch, &l.access);
    l.versions_of = arena_array(l.scratch, n_tensors, sizeof *l.versions_of);
    l.grads = arena_array(l.scratch, n_tensors, sizeof *l.grads);
    l.arrived = arena_array(l.scratch, n_tensors, sizeof *l.arrived);
    l.keep = arena_array(l.scratch, n_tensors, sizeof *l.keep);
    l.weight_view = arena_array(l.scratch, n_tensors, sizeof *l.weight_view);
    l.grad_view = arena_array(l.scratch, n_tensors, sizeof *l.grad_view);
    l.units = arena_array(l.scratch, n_units, sizeof *l.units);
    l.last_forward = arena_array(l.scratch, n_units, sizeof *l.last_forward);
    l.last_backward = arena_array(l.scratch, n_units, sizeof *l.last_backward);
    lower_program(&l);
    plan->n_match = l.match;
    plan->program_of = arena_array(job->arena, plan->mesh.n_ranks, sizeof *plan->program_of);
    return true;
}
