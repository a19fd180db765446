/* Lowers the end of the step. The loss and the squares of gradients are summed over ranks, so that
 * each element counts once. Then the factor for clipping is computed, and the optimizer updates the
 * shards. */
#include <assert.h>

#include "planner/lower/lower.h"

/* A summand of the squared gradient norm: the elements that are split over the same axes and lie in
 * the same memory. */
typedef struct Account {
    AxisSet axes;
    bool on_host, written;
} Account;
enum { MAX_ACCOUNTS = 16 };

typedef struct NormAccounts {
    Account account[MAX_ACCOUNTS];
    uint32_t n;
} NormAccounts;

static AxisSet split_axes(const Lower *l, const Tensor *t)
{
    return (AxisSet)(l->g->units.at[t->unit].shard | layout_axes_split(&t->use, -1) |
                     l->stage.pipe);
}

static uint32_t account_of(NormAccounts *norm, AxisSet axes, bool on_host)
{
    for (uint32_t i = 0; i < norm->n; i++)
        if (norm->account[i].axes == axes && norm->account[i].on_host == on_host) return i;
    assert(norm->n < MAX_ACCOUNTS);
    norm->account[norm->n] = (Account){axes, on_host, false};
    return norm->n++;
}

static BufferId slot_view(Lower *l, BufferId table, uint32_t slot, AxisSet partial)
{
    Shape s = {.n_dims = 1, .dim = {1}};
    for (uint32_t a = 0; a < l->plan->mesh.n_axes; a++)
        if (partial >> a & 1) s.layout.on[a] = PARTIAL_SUM;
    return lower_view(l, table, &s, DT_f64, slot * 8u);
}

static void sum_segment(Lower *l, NormAccounts *norm, UnitId u, AxisSet axes, uint64_t lo,
                        uint64_t hi)
{
    const bool on_host = lower_offloads(l, u);
    uint32_t slot = account_of(norm, axes, on_host);
    BufferId table = on_host ? l->scalar.host_norm : l->scalar.norm_table;
    Emit e = {.op = OP_sumsq,
              .stream = on_host ? STREAM_host : STREAM_compute,
              .unit = u,
              .n_in = 1,
              .n_out = 1,
              .arg = {l->unit.of[u].grad, slot_view(l, table, slot, axes)}};
    e.attrs.lo = (int64_t)lo;
    e.attrs.hi = (int64_t)hi;
    e.attrs.accumulate = norm->account[slot].written;
    norm->account[slot].written = true;
    if (!on_host) lower_add_scratch(l, &e);
    lower_emit(l, &e);
}

static void sum_unit(Lower *l, NormAccounts *norm, UnitId u)
{
    const Unit *unit = &l->g->units.at[u];
    uint64_t lo = 0;
    for (uint32_t i = 0; i < unit->params.n;) {
        AxisSet axes = split_axes(l, &l->g->tensors.at[unit->params.at[i]]);
        uint32_t k = i;
        while (k < unit->params.n && split_axes(l, &l->g->tensors.at[unit->params.at[k]]) == axes)
            k++;
        uint64_t hi =
            k < unit->params.n ? l->g->tensors.at[unit->params.at[k]].flat_offset : unit->elements;
        sum_segment(l, norm, u, axes, lo, hi);
        lo = hi;
        i = k;
    }
}

/* True if the unit counts in the gradient norm. If two ranks share a tied parameter, it counts only
 * on the first. Frozen parameters do not count, nor do the biases that balance experts. */
static bool counts_norm(const Lower *l, UnitId u)
{
    return !graph_is_frozen(l->g, u) && !graph_is_balance(l->g, u) &&
           param_rank(l->job, l->g->units.at[u].params.at[0]) == l->stage.rank;
}

/* Lists the summands. Those on the host come first, because the table on the host has only these.
 * Returns the number of summands on the host. */
static uint32_t count_accounts(const Lower *l, NormAccounts *norm)
{
    uint32_t n_host = 0;
    for (int device = 0; device < 2; device++) {
        for (UnitId u = 1; u < l->g->units.n; u++) {
            const Unit *unit = &l->g->units.at[u];
            if (lower_offloads(l, u) == device || graph_is_frozen(l->g, u)) continue;
            if (graph_is_balance(l->g, u)) continue;
            for (uint32_t i = 0; i < unit->params.n; i++)
                account_of(norm, split_axes(l, &l->g->tensors.at[unit->params.at[i]]), !device);
        }
        if (!device) n_host = norm->n;
    }
    return n_host;
}

/* Returns the axes over which the loss is summed: axes of samples, axes of tokens that split the
 * logits, and stages. */
static AxisSet loss_axes(const Lower *l)
{
    const Node *n = &l->g->nodes.at[l->g->tensors.at[l->g->loss].producer];
    AxisSet axes = (AxisSet)(l->job->data_axes | l->stage.pipe);
    for (uint32_t a = 0; a < l->plan->mesh.n_axes; a++)
        if (n->split[a]) axes |= (AxisSet)(1u << a);
    return axes;
}

uint32_t lower_n_scalars(const Lower *l)
{
    NormAccounts norm = {.n = 0};
    uint32_t n = loss_axes(l) ? 2 : 0; /* the loss, and the number of counted tokens */
    count_accounts(l, &norm);
    for (uint32_t i = 0; i < norm.n; i++) n += norm.account[i].axes != 0;
    return n;
}

static void emit_zero(Lower *l, BufferId scalar)
{
    Emit e = {.op = OP_fill, .stream = STREAM_compute, .n_out = 1, .arg = {scalar}};
    lower_emit(l, &e);
}

/* Sums a scalar over `axes`. `k` gives the match number that all stages use for this scalar. */
static void sum_scalar(Lower *l, AxisSet axes, BufferId from, BufferId to, NodeId origin,
                       uint32_t k)
{
    Emit e = {.op = OP_all_reduce,
              .stream = STREAM_dp_reduce,
              .launch = l->emit.launch,
              .match = l->stage.pipe ? l->scalar.match + k : 0,
              .axes = axes,
              .n_in = 1,
              .n_out = 1,
              .arg = {from, to},
              .origin = origin};
    e.attrs.reduce = REDUCE_sum;
    lower_emit(l, &e);
}

/* Sums all scalars of the step in one launch. A stage that has no summand adds zero. */
static void sum_scalars(Lower *l, const NormAccounts *norm)
{
    AxisSet axes = loss_axes(l);
    NodeId origin = l->g->tensors.at[l->g->loss].producer;
    uint32_t k = 0;
    Shape partial = {.n_dims = 0};
    for (uint32_t a = 0; a < l->plan->mesh.n_axes; a++)
        if (axes >> a & 1) partial.layout.on[a] = PARTIAL_SUM;
    BufferId loss = axes ? lower_view(l, l->scalar.loss_sum, &partial, DT_f64, 0) : 0;
    BufferId count = axes ? lower_view(l, l->scalar.count, &partial, DT_f64, 0) : 0;
    if (!lower_is_mine(l, l->g->nodes.at[origin].stage)) {
        emit_zero(l, loss);
        emit_zero(l, count);
    }
    for (uint32_t i = 0; i < norm->n; i++)
        if (!norm->account[i].written)
            emit_zero(l, slot_view(l, l->scalar.norm_table, i, norm->account[i].axes));
    l->emit.launch++;
    if (axes) sum_scalar(l, axes, loss, l->scalar.loss_sum, origin, k++);
    if (axes) sum_scalar(l, axes, count, l->scalar.count, origin, k++);
    for (uint32_t i = 0; i < norm->n; i++) {
        if (!norm->account[i].axes) continue;
        /* two statements, because each view is a new buffer: the ids of buffers are part of the
         * plan's text, so their order must be fixed */
        BufferId sum = slot_view(l, l->scalar.norm_table, i, 0);
        BufferId part = slot_view(l, l->scalar.norm_table, i, norm->account[i].axes);
        sum_scalar(l, norm->account[i].axes, part, sum, 0, k++);
    }
}

/* Copies the sums of squares from the host to the device, where they are summed over ranks. */
static void bring_norm(Lower *l, const NormAccounts *norm)
{
    for (uint32_t i = 0; i < norm->n; i++) {
        if (!norm->account[i].written || !norm->account[i].on_host) continue;
        AxisSet axes = norm->account[i].axes;
        BufferId to = slot_view(l, l->scalar.norm_table, i, axes);
        BufferId from = slot_view(l, l->scalar.host_norm, i, axes);
        lower_copy(l, 0, STREAM_copy_in, from, to, 0, 0);
    }
}

/* Returns the buffer with the factor that corrects the gradients. They were computed as if every
 * label counted. One factor at the end suffices, so that the backward pass need not wait for the
 * number of counted tokens. The factor is 1 if all labels count. */
static BufferId emit_mean(Lower *l)
{
    const StepInfo *step = &l->plan->step;
    bool groups = step->denominator == DENOMINATOR_microbatch_mean;
    Shape scalar = {.n_dims = 0};
    BufferId factor = lower_buffer(l, &scalar, DT_f64, CATEGORY_state);
    Emit e = {.op = OP_step_mean,
              .stream = STREAM_compute,
              .n_in = 2,
              .n_out = 2,
              .arg = {l->scalar.loss_sum, l->scalar.count, l->scalar.loss, factor}};
    e.attrs.scale = groups ? (double)(step->global_batch / step->group) : step->global_tokens;
    lower_emit(l, &e);
    return factor;
}

/* Changes each bias by a fixed amount, so that experts are chosen more evenly. */
static void balance_unit(Lower *l, UnitId u)
{
    const UnitState *s = &l->unit.of[u];
    const Tensor *bias = &l->g->tensors.at[l->g->units.at[u].params.at[0]];
    const Node *counter = &l->g->nodes.at[l->g->tensors.at[bias->grad].producer];
    Emit e = {.op = OP_sign_step,
              .stream = STREAM_compute,
              .unit = u,
              .n_in = 2,
              .n_out = 1,
              .arg = {s->rest, s->grad, s->rest}};
    e.attrs.scale = graph_attrs_at(l->g, counter->attrs)->scale;
    e.attrs.mean = mean_count(l->job, counter);
    lower_emit(l, &e);
}

/* Emits the optimizer of a unit. coefficient: the factor for clipping, [0] on the device and [1] on
 * the host. */
static void step_unit(Lower *l, UnitId u, const BufferId coefficient[2])
{
    const Optimizer *o = &l->job->config->optimizer;
    const UnitState *s = &l->unit.of[u];
    const bool on_host = lower_offloads(l, u);
    Emit e = {.stream = on_host ? STREAM_host : STREAM_compute, .unit = u};
    e.attrs.weight_decay = o->weight_decay;
    if (o->kind == OPTIMIZER_adamw) {
        e.op = OP_adamw;
        e.attrs.beta1 = o->beta1;
        e.attrs.beta2 = o->beta2;
        e.attrs.eps = o->eps;
        if (o->rounding == ROUNDING_stochastic && l->p->buffers.at[s->rest].dtype == DT_bf16) {
            e.attrs.stochastic = 1; /* in fp64 nothing is rounded */
            e.attrs.site = u;
        }
        BufferId arg[] = {s->rest, s->m, s->v, s->grad, coefficient[on_host], s->rest, s->m, s->v};
        for (uint32_t i = 0; i < 8; i++) e.arg[i] = arg[i];
        e.n_in = 5;
        e.n_out = 3;
    } else {
        e.op = OP_sgd;
        BufferId arg[] = {s->rest, s->grad, coefficient[on_host], s->rest};
        for (uint32_t i = 0; i < 4; i++) e.arg[i] = arg[i];
        e.n_in = 3;
        e.n_out = 1;
    }
    lower_emit(l, &e);
}

void lower_update(Lower *l)
{
    NormAccounts norm = {.n = 0};
    const uint32_t n_host = count_accounts(l, &norm);
    Shape table = {.n_dims = 1, .dim = {norm.n}}, pair = {.n_dims = 1, .dim = {2}};
    Shape there = {.n_dims = 1, .dim = {n_host}};
    l->scalar.norm_table = lower_buffer(l, &table, DT_f64, CATEGORY_state);
    l->scalar.coefficient = lower_buffer(l, &pair, DT_f64, CATEGORY_state);
    l->p->buffers.at[l->scalar.norm_table].persistent =
        l->p->buffers.at[l->scalar.coefficient].persistent = true;
    if (n_host) l->scalar.host_norm = lower_host_buffer(l, &there, DT_f64, CATEGORY_state);
    lower_sum_tied(l);
    for (UnitId u = 1; u < l->g->units.n; u++)
        if (counts_norm(l, u)) sum_unit(l, &norm, u);
    if (l->scalar.host_norm) bring_norm(l, &norm);
    sum_scalars(l, &norm);
    Emit e = {.op = OP_clip_coef,
              .stream = STREAM_compute,
              .n_in = 2,
              .n_out = 1,
              .arg = {l->scalar.norm_table, emit_mean(l), l->scalar.coefficient}};
    e.attrs.clip = l->job->config->optimizer.clip_norm;
    lower_emit(l, &e);
    BufferId coefficient[2] = {l->scalar.coefficient, 0};
    if (l->scalar.host_norm) {
        coefficient[1] = lower_host_buffer(l, &pair, DT_f64, CATEGORY_state);
        lower_copy(l, 0, STREAM_copy_out, coefficient[0], coefficient[1], 0, 0);
    }
    for (UnitId u = 1; u < l->g->units.n; u++)
        if (lower_unit_is_mine(l, u) && !graph_is_frozen(l->g, u)) {
            if (graph_is_balance(l->g, u))
                balance_unit(l, u);
            else
                step_unit(l, u, coefficient);
            lower_gather_updated(l, u);
        }
}
