/* Runs every program on abstract values (hashes) instead of numbers. A program that receives a
 * value waits for the program that sends it. */
#include "planner/verify/kinds.h"
#include "planner/verify/value/value.h"

/* The state of one program while the other programs run. */
typedef struct ProgramState {
    Pc pc;
    RangeMap memory;
    uint32_t *whole;
    bool *has_views;
    struct ValueCache *cache;
    Vals vals;
    uint32_t *present_slots, n_present_slots, *n_updates;
    Pc brought; /* the all_reduce over stages to which the program has contributed, and for whose
                 * end it waits */
    bool begun, ended;
} ProgramState;

/* Executes instruction pc. Returns false if it must wait for another program. */
static bool step(Verifier *v, ProgramState *r, Pc pc)
{
    const Instr *in = &v->p->code.at[pc];
    if (in->op == OP_all_reduce && (in->axes & v->stages) && !value_meet_stages(v, pc, &r->brought))
        return false;
    if (verify_is_p2p(in)) return value_exchange(v, pc);
    const OpInfo *info = op_info(in->op);
    if (verify_is_computed(in->op))
        value_compute(v, pc);
    else if (op_is_halo(in->op) || in->op == OP_halo_exchange)
        value_halo(v, pc);
    else if (op_is_stride(in->op) || (in->op == OP_all_to_all && value_has_strides(v, pc)))
        value_strides(v, pc);
    else if (in->op == OP_exchange_uneven)
        value_exchange_uneven(v, pc);
    else if (verify_is_moved(in->op))
        value_move(v, pc);
    else if (in->op == OP_sumsq)
        value_sumsq(v, pc);
    else if (in->op == OP_step_mean)
        value_mean(v, pc);
    else if (info->flags & OP_RANGE && info->flags & OP_MAGNITUDE)
        value_amax_range(v, pc);
    else if (info->flags & OP_RANGE && op_is_by_scalar(in->op))
        value_quantise_range(v, pc);
    else if (in->op == OP_clip_coef)
        value_clip_coef(v, pc);
    else
        value_update(v, pc);
    return true;
}

/* Allocates memory for all values at once, because a list that grows is copied each time. */
static void reserve_values(Verifier *v)
{
    uint32_t n = 1;
    for (Pc pc = 1; pc < v->p->code.n; pc++) n += v->p->code.at[pc].args.n - v->p->code.at[pc].n_in;
    for (BufferId b = 1; b < v->p->buffers.n; b++) n += v->p->buffers.at[b].persistent;
    v->vals = (Vals){0};
    v->vals.at = list_grow(v->arena, NULL, 0, &v->vals.room, n, sizeof *v->vals.at);
}

static void load(Verifier *v, ProgramState *r)
{
    v->p = &v->plan->programs.at[v->program];
    if (r->begun) {
        v->memory = r->memory;
        v->whole = r->whole;
        v->has_views = r->has_views;
        v->cache = r->cache;
        v->vals = r->vals;
        v->present_slots = r->present_slots;
        v->n_present_slots = r->n_present_slots;
        v->n_updates = r->n_updates;
        return;
    }
    reserve_values(v);
    v->n_updates = arena_array(v->arena, v->g->tensors.n, sizeof *v->n_updates);
    value_memory_start(v);
    r->begun = true;
    r->pc = 1;
}

static void store(const Verifier *v, ProgramState *r)
{
    r->memory = v->memory;
    r->whole = v->whole;
    r->has_views = v->has_views;
    r->cache = v->cache;
    r->vals = v->vals;
    r->present_slots = v->present_slots;
    r->n_present_slots = v->n_present_slots;
    r->n_updates = v->n_updates;
}

/* Runs a program until it ends or waits for another program. Returns true if it made progress. */
static bool advance(Verifier *v, ProgramState *r)
{
    load(v, r);
    Pc before = r->pc;
    while (r->pc < v->p->code.n && step(v, r, r->pc)) r->pc++;
    if (r->pc == v->p->code.n && !r->ended) {
        value_end(v);
        r->ended = true;
        return true;
    }
    store(v, r);
    return r->pc != before;
}

void verify_values(Verifier *v)
{
    uint32_t n = v->plan->programs.n;
    ProgramState *runs = arena_array(v->arena, n, sizeof *runs);
    v->transports = arena_array(v->arena, (size_t)v->plan->n_match + 1, sizeof *v->transports);
    v->stages = verify_stage_axes(v);
    v->n_homes = arena_array(v->arena, v->g->tensors.n, sizeof *v->n_homes);
    value_shapes_start(v);
    bool all = true, trains = v->has_gradients;
    for (bool moved = true; moved;) {
        moved = false;
        for (v->program = 0; v->program < n; v->program++)
            if (!runs[v->program].ended && advance(v, &runs[v->program])) moved = true;
    }
    for (v->program = 0; v->program < n; v->program++) {
        v->p = &v->plan->programs.at[v->program];
        all = all && runs[v->program].ended;
        trains = trains && v->p->purpose == PURPOSE_train;
        if (!runs[v->program].ended)
            verify_report(v, "verify-layout", runs[v->program].pc,
                          "receives a message that no rank sends");
    }
    v->p = NULL;
    if (all && trains) value_homes_of_state(v);
    for (TensorId t = 1; t < v->g->tensors.n && all && trains; t++)
        if (v->g->tensors.at[t].role == ROLE_param && !v->n_homes[t])
            verify_report(v, "verify-coverage", 0, "no buffer holds parameter %s between steps",
                          v->g->tensors.at[t].name);
}
