/* Tiny hand-made plans for the simulator's tests. A compute instruction stores its duration in its
 * member `microbatch` [ps]. Communications have a given size. The models use both numbers
 * directly. */
#ifndef TANDEM_TESTS_SIM_SYNTHETIC_H
#define TANDEM_TESTS_SIM_SYNTHETIC_H

#include <stdarg.h>
#include <string.h>

#include "sim/sim.h"

static inline Plan *synthetic_plan(Arena *arena, uint32_t pp, uint32_t dp, uint32_t tp,
                                   uint32_t n_programs)
{
    Plan *plan = arena_alloc(arena, sizeof *plan);
    uint32_t sizes[AXIS_NAMES] = {0};
    sizes[AXIS_pp] = pp;
    sizes[AXIS_dp_shard] = dp;
    sizes[AXIS_tp] = tp;
    plan->arena = arena;
    plan->mesh = mesh_make(sizes);
    graph_init(&plan->graph, arena);
    plan_shape(plan, &(Shape){.n_dims = 0});
    for (uint32_t i = 0; i < n_programs; i++) {
        list_add(arena, &plan->programs);
        Program *p = &plan->programs.at[i];
        list_add(arena, &p->code);
        list_add(arena, &p->buffers);
        p->stage = i;
    }
    /* with several programs, each pipeline stage has one; otherwise all ranks share one program */
    plan->program_of = arena_array(arena, plan->mesh.n_ranks, sizeof *plan->program_of);
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
        if (n_programs > 1) plan->program_of[r] = r / (plan->mesh.n_ranks / n_programs);
    }
    plan->n_match = 1;
    return plan;
}

static inline Pc synthetic_after(Plan *plan, uint32_t program, Pc pc, Pc after)
{
    Program *p = &plan->programs.at[program];
    Instr *in = &p->code.at[pc];
    if (in->after.n == 0) in->after.first = p->after.n;
    list_push(plan->arena, &p->after, after);
    in->after.n++;
    return pc;
}

static inline Pc synthetic_compute(Plan *plan, uint32_t program, Stream stream, Ps duration)
{
    Program *p = &plan->programs.at[program];
    Instr in = {.op = OP_fill, .stream = stream, .microbatch = (uint32_t)duration};
    in.args = (Span){(uint32_t)list_push(plan->arena, &p->args, (BufferId)0), 1};
    return list_push(plan->arena, &p->code, in);
}

static inline BufferId synthetic_buffer(Plan *plan, uint64_t bytes, Pc first, Pc last,
                                        Category category, bool persistent)
{
    Buffer b = {.dtype = DT_bf16, .bytes = bytes, .first = first, .last = last};
    b.category = category;
    b.persistent = persistent;
    return list_push(plan->arena, &plan->programs.at[0].buffers, b);
}

static inline Pc synthetic_comm(Plan *plan, uint32_t program, Stream stream, OpKind op,
                                AxisSet axes, int32_t hop, uint32_t match, uint64_t bytes)
{
    Program *p = &plan->programs.at[program];
    Buffer b = {.dtype = DT_f32, .bytes = bytes};
    BufferId id = list_push(plan->arena, &p->buffers, b);
    Instr in = {.op = op, .stream = stream, .axes = axes, .hop = hop, .match = match};
    in.args = (Span){p->args.n, op == OP_send || op == OP_recv ? 1 : 2};
    in.n_in = op == OP_recv ? 0 : 1;
    list_push(plan->arena, &p->args, id);
    if (in.args.n == 2) list_push(plan->arena, &p->args, id);
    if (match >= plan->n_match) plan->n_match = match + 1;
    return list_push(plan->arena, &p->code, in);
}

static inline AxisSet synthetic_axis(const Plan *plan, AxisName name)
{
    return mesh_axes(&plan->mesh, name);
}

/* ---- models ---- */

static inline Ps synthetic_cost_compute(const void *self, const Plan *plan, const Program *p,
                                        const Instr *in)
{
    (void)self, (void)plan, (void)p;
    return in->microbatch;
}
static const CostModel synthetic_cost = {.compute = synthetic_cost_compute};

/* A network on which every transfer takes as many picoseconds as it has bytes, even if other
 * transfers run at the same time. */
typedef struct FixedNet {
    Arena *arena;
    struct {
        uint32_t id;
        Ps when;
    } running[4096];
    uint32_t n;
} FixedNet;

static inline void fixed_start(void *self, uint32_t id, const Transfer *t, Ps now)
{
    FixedNet *net = self;
    net->running[net->n].id = id;
    net->running[net->n++].when = now + (Ps)t->bytes;
}
static inline bool fixed_next(void *self, Ps now, bool settle, uint32_t *id, Ps *when)
{
    const FixedNet *net = self;
    if (net->n == 0) return false;
    uint32_t first = 0;
    for (uint32_t i = 1; i < net->n; i++) {
        if (net->running[i].when < net->running[first].when) first = i;
    }
    if (!settle && net->running[first].when > now) return false;
    *id = net->running[first].id;
    *when = net->running[first].when;
    return true;
}
static inline void fixed_finish(void *self, uint32_t id, Ps now)
{
    FixedNet *net = self;
    (void)now;
    uint32_t i = 0;
    while (net->running[i].id != id) i++;
    net->running[i] = net->running[--net->n];
}
static inline NetModel fixed_net(FixedNet *net)
{
    net->n = 0;
    return (NetModel){fixed_start, fixed_next, fixed_finish, net};
}

static inline bool run_fixed(const Plan *plan, bool unfolded, uint32_t steps, Arena *arena,
                             EngineResult *result, Diag *d)
{
    FixedNet net;
    NetModel model = fixed_net(&net);
    EngineOptions options = {.cost = &synthetic_cost, .net = &model, .steps = steps};
    options.fold = fold_ranks(plan, 4, 4, unfolded, arena);
    return engine_run(plan, &options, arena, result, d);
}

/* Returns true if the instructions of two ranks began and ended at the same times. */
static inline bool same_times(const Timeline *x, const Timeline *y, const Program *p)
{
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Moment *a = moment_of(x, pc), *b = moment_of(y, pc);
        if (a->start != b->start || a->end != b->end) return false;
    }
    return true;
}

/* ---- random plans ---- All ranks of a pipeline stage run one program, and each stage sends to the
 * next one. Communications are added in one global order, so nothing can deadlock. */
typedef struct Random {
    uint64_t seed, at;
} Random;
static inline uint32_t random_below(Random *r, uint32_t n)
{
    uint64_t x = (r->seed + ++r->at * UINT64_C(0x9e3779b97f4a7c15));
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((x ^ (x >> 31)) >> 33) % n;
}

static inline void random_after(Plan *plan, uint32_t program, Pc pc, Pc not_from, Random *r)
{
    for (uint32_t k = random_below(r, 3); k-- > 0 && not_from > 1;) {
        synthetic_after(plan, program, pc, 1 + random_below(r, not_from - 1));
    }
}

static inline Plan *random_plan(Arena *arena, uint32_t pp, uint32_t dp, uint32_t tp, uint32_t n,
                                uint64_t seed)
{
    static const OpKind ops[] = {OP_all_reduce, OP_all_gather, OP_reduce_scatter, OP_all_to_all};
    Random r = {seed, 0};
    Plan *plan = synthetic_plan(arena, pp, dp, tp, pp);
    AxisSet axis[3] = {synthetic_axis(plan, AXIS_dp_shard), synthetic_axis(plan, AXIS_tp), 0};
    axis[2] = (AxisSet)(axis[0] | axis[1]);
    static const Stream streams[3] = {STREAM_dp_gather, STREAM_tp, STREAM_dp_reduce};
    uint32_t match = 1, launch = 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t program = random_below(&r, pp), kind = random_below(&r, 4);
        Program *p = &plan->programs.at[program];
        Pc from = p->code.n;
        uint32_t which = random_below(&r, 3);
        if (kind == 0 && axis[which] != 0) {
            uint32_t group = 1 + random_below(&r, 3), number = group > 1 ? launch++ : 0;
            for (uint32_t k = 0; k < group; k++) {
                uint64_t bytes = (uint64_t)(1 + random_below(&r, 999)) << random_below(&r, 16);
                Pc pc = synthetic_comm(plan, program, streams[which], ops[random_below(&r, 4)],
                                       axis[which], 0, match++, bytes);
                p->code.at[pc].launch = number;
                random_after(plan, program, pc, from, &r);
            }
        } else if (kind == 1 && pp > 1 && program + 1 < pp) {
            AxisSet along = synthetic_axis(plan, AXIS_pp);
            uint64_t bytes = (uint64_t)(1 + random_below(&r, 999)) << random_below(&r, 12);
            Pc send =
                synthetic_comm(plan, program, STREAM_pp_forward, OP_send, along, 1, match, bytes);
            random_after(plan, program, send, from, &r);
            Pc other = plan->programs.at[program + 1].code.n;
            Pc recv = synthetic_comm(plan, program + 1, STREAM_pp_backward, OP_recv, along, -1,
                                     match++, bytes);
            random_after(plan, program + 1, recv, other, &r);
        } else {
            Pc pc = synthetic_compute(plan, program, STREAM_compute, 1 + random_below(&r, 50000));
            random_after(plan, program, pc, from, &r);
        }
    }
    return plan;
}

#endif
