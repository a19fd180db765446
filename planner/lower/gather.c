/* Makes the program that gathers the whole state. A unit is gathered first, and then each of its
 * tensors. Later stages send their tensors to the first stage. */
#include "planner/lower/gather.h"

#include <assert.h>
#include <string.h>

#include "planner/ir/text/text.h"
#include "planner/lower/compile.h"
#include "planner/lower/lower.h"

enum { UNITS_IN_FLIGHT = 2 };

typedef struct Gather {
    Lower *l;
    const Plan *train;
    StateKind kind;
    uint32_t *match;          /* [tensor]: the match number of the transfer of this tensor to the
                                 first stage */
    Pc done[UNITS_IN_FLIGHT]; /* the instructions after which the device memory of the newest units
                               * is free; a ring buffer */
    uint32_t n_done;
} Gather;

/* Returns the buffer that holds a unit's weights or moments between steps. */
static const Buffer *at_rest(const Program *p, UnitId u, StateKind kind)
{
    uint32_t n = 0;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        if (at->parent || !at->persistent || at->unit != u) continue;
        if (kind == STATE_param && at->category == CATEGORY_parameter) return at;
        if ((kind == STATE_m || kind == STATE_v) && at->category == CATEGORY_optimizer &&
            ++n == (kind == STATE_m ? 1u : 2u))
            return at;
    }
    return NULL;
}

/* True if an earlier stage also has the unit. The unit is then gathered only on the first of these
 * stages. */
static bool is_from_before(const Gather *g, UnitId u, uint32_t stage)
{
    for (uint32_t s = 0; s < stage; s++)
        if (at_rest(&g->train->programs.at[s], u, g->kind)) return true;
    return false;
}

static Layout whole_layout(void)
{
    return (Layout){{0}};
}

/* Returns the shape of a tensor in host memory, where it is whole and has no padding. */
static Shape whole_shape(const Lower *l, TensorId t)
{
    Layout whole = whole_layout();
    Shape s = tensor_shape(l->g, &l->g->tensors.at[t], &whole);
    memset(s.deal, 0, sizeof s.deal);
    return s;
}

static BufferId host_buffer(Lower *l, TensorId t, DType dtype)
{
    Shape s = whole_shape(l, t);
    BufferId b = lower_buffer(l, &s, dtype, CATEGORY_state);
    Buffer *at = &l->p->buffers.at[b];
    at->space = SPACE_host;
    at->persistent = true;
    at->tensor = t;
    return b;
}

static Pc to_host(Lower *l, BufferId from, UnitId u)
{
    TensorId t = l->p->buffers.at[from].tensor;
    DType dtype = l->p->buffers.at[from].dtype;
    Emit e = {.op = OP_copy,
              .stream = STREAM_copy_out,
              .unit = u,
              .n_in = 1,
              .n_out = 1,
              .arg = {from, host_buffer(l, t, dtype)}};
    return lower_emit(l, &e);
}

static Pc transfer(const Gather *g, OpKind op, TensorId t, BufferId b, int32_t hop)
{
    Emit e = {.op = op,
              .stream = STREAM_pp_backward,
              .axes = g->l->stage.pipe,
              .hop = hop,
              .match = g->match[t],
              .unit = g->l->g->tensors.at[t].unit,
              .n_in = op == OP_send,
              .n_out = op == OP_recv,
              .arg = {b}};
    return lower_emit(g->l, &e);
}

/* Makes the following instructions wait until the unit before the newest one has been copied to the
 * host and its device memory is free. */
static void begin_unit(Gather *g)
{
    g->l->emit.floor = g->done[g->n_done % UNITS_IN_FLIGHT];
}

static void end_unit(Gather *g, Pc last)
{
    g->done[g->n_done++ % UNITS_IN_FLIGHT] = last;
    g->l->emit.floor = 0;
}

static BufferId gather_flat(Lower *l, UnitId u, BufferId rest)
{
    Layout whole = whole_layout();
    if (layout_equal(&lower_shape(l, rest)->layout, &whole)) return rest;
    BufferId made = lower_convert(l, rest, &whole, 0, CATEGORY_gathered);
    l->p->buffers.at[made].unit = u;
    return made;
}

static void send_unit(Gather *g, const Program *from, UnitId u)
{
    Lower *l = g->l;
    const Unit *unit = &l->g->units.at[u];
    const Buffer *old = at_rest(from, u, g->kind);
    if (!old || is_from_before(g, u, l->stage.rank)) return;
    BufferId rest = lower_buffer(l, plan_shape_at(g->train, old->shape), old->dtype, old->category);
    l->p->buffers.at[rest].persistent = true;
    l->p->buffers.at[rest].unit = u;
    begin_unit(g);
    BufferId flat = gather_flat(l, u, rest);
    Layout whole = whole_layout();
    Pc last = 0;
    for (uint32_t i = 0; i < unit->params.n; i++) {
        const Tensor *t = &l->g->tensors.at[unit->params.at[i]];
        Shape s = tensor_shape(l->g, t, &t->use);
        BufferId view =
            lower_view(l, flat, &s, old->dtype, t->flat_offset * dtype_bytes(old->dtype));
        l->p->buffers.at[view].tensor = unit->params.at[i];
        BufferId made = lower_unpad(l, lower_convert(l, view, &whole, 0, CATEGORY_gathered));
        last = l->stage.rank
                   ? transfer(g, OP_send, unit->params.at[i], made, -(int32_t)l->stage.rank)
                   : to_host(l, made, u);
    }
    end_unit(g, last);
}

static void receive_unit(Gather *g, const Program *from, UnitId u, uint32_t stage)
{
    Lower *l = g->l;
    const Unit *unit = &l->g->units.at[u];
    const Buffer *old = at_rest(from, u, g->kind);
    if (!old || is_from_before(g, u, stage)) return;
    begin_unit(g);
    Pc last = 0;
    for (uint32_t i = 0; i < unit->params.n; i++) {
        TensorId t = unit->params.at[i];
        Shape s = whole_shape(l, t);
        BufferId b = lower_buffer(l, &s, old->dtype, CATEGORY_communication);
        l->p->buffers.at[b].tensor = t;
        transfer(g, OP_recv, t, b, (int32_t)stage);
        last = to_host(l, b, u);
    }
    end_unit(g, last);
}

/* Moves tensors with ROLE_state from stage `from`, where they are whole, to the host of the first
 * stage. */
static void take_buffers(Gather *g, const Program *train, uint32_t from)
{
    Lower *l = g->l;
    for (BufferId k = 1; k < train->buffers.n && g->kind == STATE_buffer; k++) {
        const Buffer *old = &train->buffers.at[k];
        if (!plan_is_state(g->train, old)) continue;
        TensorId t = old->tensor;
        bool mine = from == l->stage.rank;
        BufferId b = lower_buffer(l, plan_shape_at(g->train, old->shape), old->dtype,
                                  mine ? CATEGORY_state : CATEGORY_communication);
        l->p->buffers.at[b].tensor = t;
        l->p->buffers.at[b].persistent = mine;
        begin_unit(g);
        if (!mine) transfer(g, OP_recv, t, b, (int32_t)from);
        end_unit(g, l->stage.rank ? transfer(g, OP_send, t, b, -(int32_t)l->stage.rank)
                                  : to_host(l, b, 0));
    }
}

static void write_program(Gather *g, uint32_t stage)
{
    Lower *l = g->l;
    const Plan *train = g->train;
    l->stage.rank = stage;
    l->p = &l->plan->programs.at[stage];
    l->p->purpose = PURPOSE_gather;
    l->p->stage = stage;
    list_reserve_none(l->arena, &l->p->code);
    list_reserve_none(l->arena, &l->p->buffers);
    /* the old clocks belong to the training program */
    memset(&l->emit.clocks, 0, sizeof l->emit.clocks);
    memset(&l->emit.access, 0, sizeof l->emit.access);
    list_reserve_none(l->scratch, &l->emit.clocks);
    list_reserve_none(l->scratch, &l->emit.access);
    memset(l->emit.stream_end, 0, sizeof l->emit.stream_end);
    memset(g->done, 0, sizeof g->done);
    for (UnitId u = 1; u < l->g->units.n; u++) send_unit(g, &train->programs.at[stage], u);
    take_buffers(g, &train->programs.at[stage], stage);
    for (uint32_t s = 1; stage == 0 && s < train->programs.n; s++) {
        for (UnitId u = 1; u < l->g->units.n; u++) receive_unit(g, &train->programs.at[s], u, s);
        take_buffers(g, &train->programs.at[s], s);
    }
}

/* Copies the plan by printing its text and parsing it. The caller then replaces the programs. */
static Plan *copy_of(const Plan *train, Arena *arena, Diag *d)
{
    Str text = str_in(arena);
    text_print(train, TEXT_WITH_LOCATIONS, &text);
    Plan *plan = text_parse("gather", str_text(&text), text.n, arena, d);
    assert(plan || d->n_errors);
    return plan;
}
/* Renumbers the matches without gaps. Numbers of tensors that no stage sends are not used. */
static void number_matches(Plan *plan, uint32_t n, Arena *arena)
{
    uint32_t *now = arena_array(arena, n + 1, sizeof *now), next = 1;
    for (uint32_t i = 0; i < plan->programs.n; i++)
        for (uint32_t k = 0; k < plan->programs.at[i].code.n; k++)
            now[plan->programs.at[i].code.at[k].match] = 1;
    for (uint32_t m = 1; m < n; m++)
        if (now[m] != 0) now[m] = next++;
    now[0] = 0;
    for (uint32_t i = 0; i < plan->programs.n; i++)
        for (uint32_t k = 0; k < plan->programs.at[i].code.n; k++) {
            Instr *in = &plan->programs.at[i].code.at[k];
            in->match = now[in->match];
        }
    plan->n_match = next;
}

Plan *gather_plan(const Plan *train, StateKind kind, Arena *arena, Diag *d)
{
    Plan *plan = copy_of(train, arena, d);
    if (!plan) return NULL;
    memset(plan->programs.at, 0, plan->programs.n * sizeof *plan->programs.at);
    plan->programs.n = 0;
    for (uint32_t i = 0; i < train->programs.n; i++) list_add(arena, &plan->programs);
    Job job = {.plan = plan,
               .arena = arena,
               .scratch = arena_new(),
               .diag = d,
               .options = lower_options_default()};
    Lower l = {.job = &job,
               .plan = plan,
               .g = &plan->graph,
               .arena = arena,
               .scratch = job.scratch,
               .n_microbatches = 1,
               .stage.pipe = mesh_axes_of(&plan->mesh, axes_with(AXIS_STAGES)),
               .value.tensor_room = plan->graph.tensors.n,
               .phase = PHASE_update,
               .emit.match = 1};
    Gather g = {.l = &l, .train = train, .kind = kind};
    g.match = arena_array(job.scratch, plan->graph.tensors.n, sizeof *g.match);
    for (TensorId t = 1; l.stage.pipe && t < plan->graph.tensors.n; t++)
        if (plan->graph.tensors.at[t].role == (kind == STATE_buffer ? ROLE_state : ROLE_param))
            g.match[t] = l.emit.match++;
    for (uint32_t stage = 0; stage < train->programs.n; stage++) write_program(&g, stage);
    number_matches(plan, l.emit.match, job.scratch);
    pass_memory(&job);
    arena_free(job.scratch);
    return plan;
}
