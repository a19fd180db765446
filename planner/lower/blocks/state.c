/* Compares the state of the lowering in three blocks that follow each other in a run. repeat.c
 * copies a block only if this state also differs by constant steps. Equal graphs are not enough:
 * buffers that exist when the run begins may have been made in another order. Examples are the
 * weights that were gathered before the run, and values that other parts of the model made. */
#include "planner/lower/blocks/blocks.h"
#include "planner/lower/blocks/steps.h"

/* True if the numbers increase by equal differences, and are 0 in all three blocks or in none. */
static bool in_step(uint32_t x, uint32_t y, uint32_t z)
{
    return !x == !y && !y == !z && z - y == y - x;
}

static bool same_buffer(const Lower *l, BufferId a, BufferId b)
{
    const Buffer *x = &l->p->buffers.at[a], *y = &l->p->buffers.at[b];
    return x->shape == y->shape && x->dtype == y->dtype && x->category == y->category &&
           x->space == y->space && x->bytes == y->bytes && x->packed == y->packed;
}

/* Compares three lists of versions, of which at least one is not empty. */
static bool lists_in_step(const Lower *l, uint32_t a, uint32_t b, uint32_t c)
{
    const Version *all = l->value.versions.at;
    for (; a && b && c; a = all[a].next, b = all[b].next, c = all[c].next) {
        const Version *x = &all[a], *y = &all[b], *z = &all[c];
        const Buffer *buffers = l->p->buffers.at;
        if (!layout_equal(&y->layout, &z->layout) || y->around != z->around ||
            !in_step(x->buffer, y->buffer, z->buffer) || !in_step(x->rows, y->rows, z->rows) ||
            !in_step(x->consumer, y->consumer, z->consumer) ||
            !same_buffer(l, y->buffer, z->buffer) ||
            !in_step(buffers[x->buffer].parent, buffers[y->buffer].parent,
                     buffers[z->buffer].parent))
            return false;
    }
    return !a && !b && !c;
}

/* Compares three lists of versions. a, b and c are the indices of their first versions. */
static inline bool versions_in_step(const Lower *l, uint32_t a, uint32_t b, uint32_t c)
{
    return (a | b | c) == 0 || lists_in_step(l, a, b, c);
}

static bool value_in_step(const Lower *l, TensorId a, TensorId b, TensorId c)
{
    const GradState *x = &l->grad.of[a], *y = &l->grad.of[b], *z = &l->grad.of[c];
    const uint32_t *first = l->value.versions_of;
    const BufferId *of_step = l->value.of_step;
    return versions_in_step(l, first[a], first[b], first[c]) &&
           in_step(of_step[a], of_step[b], of_step[c]) && y->n_expected == z->n_expected &&
           y->n_arrived == z->n_arrived && y->n_uses == z->n_uses &&
           versions_in_step(l, x->sums, y->sums, z->sums);
}

/* True if `view`, the newest view of the parameter, lies in the unit's newest flat buffer. An older
 * view has no effect. */
static bool is_seen(const Lower *l, BufferId view, BufferId flat)
{
    return view && l->p->buffers.at[view].parent == flat;
}

static bool views_in_step(const Lower *l, const BufferId view[3], const BufferId flat[3])
{
    const bool seen = is_seen(l, view[2], flat[2]);
    for (uint32_t i = 0; i < 3; i++)
        if (!view[i] != !view[2] || is_seen(l, view[i], flat[i]) != seen) return false;
    return !seen || in_step(view[0], view[1], view[2]);
}

/* The units of three blocks that were compared last. The next parameters of the blocks are often in
 * the same units, which then need no second comparison. */
typedef struct Units3 {
    UnitId a, b, c;
} Units3;

static bool units_in_step(const Lower *l, Units3 u)
{
    const StepWords words = steps_part(l, PART_units, 0);
    for (uint32_t i = 0; u.a != u.c && i < words.each; i++) {
        const uint32_t x = word_at(&l->unit.of[u.a], i), y = word_at(&l->unit.of[u.b], i),
                       z = word_at(&l->unit.of[u.c], i);
        if (words.moves >> i & 1 ? !in_step(x, y, z) : y != z) return false;
    }
    return true;
}

static bool param_in_step(const Lower *l, TensorId a, TensorId b, TensorId c, Units3 *equal)
{
    const Tensor *at = l->g->tensors.at;
    const Units3 u = {at[a].unit, at[b].unit, at[c].unit};
    if ((equal->a != u.a || equal->b != u.b || equal->c != u.c) && !units_in_step(l, u))
        return false;
    *equal = u;
    const UnitState *x = &l->unit.of[u.a], *y = &l->unit.of[u.b], *z = &l->unit.of[u.c];
    const BufferId *weight = l->unit.weight_view, *grad = l->unit.grad_view,
                   *maximum = l->unit.maximum;
    return l->grad.arrived[b] == l->grad.arrived[c] &&
           in_step(maximum[a], maximum[b], maximum[c]) &&
           views_in_step(l, (BufferId[]){weight[a], weight[b], weight[c]},
                         (BufferId[]){x->gathered, y->gathered, z->gathered}) &&
           views_in_step(l, (BufferId[]){grad[a], grad[b], grad[c]},
                         (BufferId[]){x->full_grad, y->full_grad, z->full_grad});
}

/* ---- the tensors of a run */

/* A tensor of the first block, and the distance of its counterpart in the next block. */
typedef struct StepTensor {
    TensorId first;
    uint32_t step;
} StepTensor;

/* The tensors that differ from block to block. Each is listed once, although several nodes of a
 * block may read it. */
struct RunTensors {
    LIST(StepTensor) values, params;
    uint32_t *listed; /* [tensor]: the step of its entry in a list; 0: it has no entry */
};

/* Lists tensor `a`, an argument of a node of the first block. `b` is the same argument in the next
 * block. A tensor that all blocks share needs no comparison. */
static void list_tensor(const Lower *l, RunTensors *run, TensorId a, TensorId b)
{
    const StepTensor tensor = {a, b - a};
    if (tensor.step == 0 || run->listed[a] == tensor.step) return;
    run->listed[a] = tensor.step;
    if (l->g->tensors.at[a].role == ROLE_param)
        list_push(l->scratch, &run->params, tensor);
    else
        list_push(l->scratch, &run->values, tensor);
}

/* True if the arguments of node x, y and z differ by equal steps. */
static bool args_in_step(const Node *x, const Node *y, const Node *z)
{
    for (uint32_t j = 0; j < x->n_out; j++)
        if (z->out[j] - y->out[j] != y->out[j] - x->out[j]) return false;
    for (uint32_t i = 0; i < x->n_in; i++)
        if (z->in[i] - y->in[i] != y->in[i] - x->in[i]) return false;
    return true;
}

/* Lists the arguments of node `id`, which has a counterpart `step` nodes later in each of n blocks.
 * Returns false if the arguments do not differ by equal steps. In a backward run, the forward nodes
 * of the next block have smaller ids. `step` is then negative modulo 2^32, so the sums wrap
 * around. */
static bool list_node(const Lower *l, RunTensors *run, NodeId id, uint32_t step, uint32_t n)
{
    const Node *nodes = l->g->nodes.at, *x = &nodes[id], *y = &nodes[id + step];
    for (uint32_t k = 2; k < n; k++)
        if (!args_in_step(&nodes[id + (k - 2) * step], &nodes[id + (k - 1) * step],
                          &nodes[id + k * step]))
            return false;
    for (uint32_t j = 0; j < x->n_out; j++) list_tensor(l, run, x->out[j], y->out[j]);
    for (uint32_t i = 0; i < x->n_in; i++) list_tensor(l, run, x->in[i], y->in[i]);
    return true;
}

RunTensors *blocks_tensors(const Lower *l, const BlockRun *run)
{
    RunTensors *tensors = arena_alloc(l->scratch, sizeof *tensors);
    tensors->listed = arena_array(l->scratch, l->g->tensors.n, sizeof *tensors->listed);
    for (uint32_t i = 0; i < run->length; i++)
        if (!list_node(l, tensors, run->first + i, run->length, run->n)) return NULL;
    for (uint32_t i = 0; run->forward != run->first && i < run->forward_length; i++)
        if (!list_node(l, tensors, run->forward + i, run->forward_step, run->n)) return NULL;
    return tensors;
}

void blocks_compare(const Lower *l, const BlockRun *run, const RunTensors *tensors, bool *same)
{
    for (uint32_t k = 1; k + 1 < run->n; k++) same[k] = true;
    for (uint32_t i = 0; i < tensors->values.n; i++) {
        const uint32_t step = tensors->values.at[i].step;
        TensorId t = tensors->values.at[i].first;
        for (uint32_t k = 1; k + 1 < run->n; k++, t += step)
            same[k] = same[k] && value_in_step(l, t, t + step, t + 2 * step);
    }
    for (uint32_t k = 1; k + 1 < run->n; k++) {
        Units3 equal = {0, 0, 0};
        for (uint32_t i = 0; i < tensors->params.n && same[k]; i++) {
            const uint32_t step = tensors->params.at[i].step;
            const TensorId t = tensors->params.at[i].first + (k - 1) * step;
            same[k] = param_in_step(l, t, t + step, t + 2 * step, &equal);
        }
    }
}
