/* Small plans made by hand, for tests of executors. */
#ifndef TANDEM_TESTS_EXEC_SYNTHETIC_H
#define TANDEM_TESTS_EXEC_SYNTHETIC_H

#include "exec/ready.h"
#include "kernels/number.h"

typedef struct Synthetic {
    Arena *arena;
    Plan *plan;
    uint32_t program; /* the program to which instructions are added */
    uint64_t top;     /* bytes of its arena that are in use so far */
} Synthetic;

static inline Program *synthetic_program(Synthetic *y)
{
    return &y->plan->programs.at[y->program];
}

static inline void make_mesh(Synthetic *y, uint32_t dp, uint32_t tp)
{
    uint32_t sizes[AXIS_NAMES] = {0};
    sizes[AXIS_dp_shard] = dp;
    sizes[AXIS_tp] = tp;
    Plan *plan = y->plan = arena_alloc(y->arena, sizeof *plan);
    plan->arena = y->arena;
    plan->mesh = mesh_make(sizes);
    plan->step.n_microbatches = 1;
    plan->program_of = arena_array(y->arena, plan->mesh.n_ranks, sizeof *plan->program_of);
    graph_init(&plan->graph, y->arena);
}

static inline void make_program(Synthetic *y)
{
    y->program = (uint32_t)list_add(y->arena, &y->plan->programs);
    y->top = 0;
    list_reserve_none(y->arena, &synthetic_program(y)->code);
    list_reserve_none(y->arena, &synthetic_program(y)->buffers);
}

/* Adds a buffer of n local elements. Their global indices are left unset, because these tests do
 * not use them. */
static inline BufferId buffer_at(Synthetic *y, int64_t n, DType dtype, bool persistent,
                                 uint64_t offset)
{
    Shape shape = {.n_dims = 1, .dim = {n}};
    Program *p = synthetic_program(y);
    BufferId b = (BufferId)list_add(y->arena, &p->buffers);
    p->buffers.at[b] = (Buffer){.shape = plan_shape(y->plan, &shape),
                                .dtype = dtype,
                                .category = CATEGORY_activation,
                                .bytes = (uint64_t)n * dtype_bytes(dtype),
                                .offset = offset,
                                .persistent = persistent};
    uint64_t end = offset + p->buffers.at[b].bytes;
    if (end > p->bytes) p->bytes = end;
    return b;
}

static inline BufferId buffer(Synthetic *y, int64_t n, DType dtype, bool persistent)
{
    BufferId b = buffer_at(y, n, dtype, persistent, y->top);
    y->top = (y->top + synthetic_program(y)->buffers.at[b].bytes + 255) / 256 * 256;
    return b;
}

typedef struct Make {
    OpKind op;
    Stream stream;
    AxisSet axes;
    uint32_t match, launch;
    int32_t hop;
    Reduce reduce;
    BufferId in, out;
    Pc after;
    double scale;
} Make;

static inline Pc make(Synthetic *y, Make m)
{
    Program *p = synthetic_program(y);
    Attrs attrs = {.reduce = m.reduce, .scale = m.scale};
    Instr in = {.op = m.op,
                .stream = m.stream,
                .launch = m.launch,
                .axes = m.axes,
                .hop = m.hop,
                .match = m.match,
                .attrs = graph_attrs(&y->plan->graph, y->arena, &attrs)};
    in.args = (Span){p->args.n, 0};
    if (m.in) list_push(y->arena, &p->args, m.in);
    in.n_in = m.in != 0;
    if (m.out) list_push(y->arena, &p->args, m.out);
    in.args.n = p->args.n - in.args.first;
    in.after = (Span){p->after.n, m.after != 0};
    if (m.after) list_push(y->arena, &p->after, m.after);
    return (Pc)list_push(y->arena, &p->code, in);
}

static inline AxisSet axis(const Synthetic *y, AxisName name)
{
    return mesh_axes(&y->plan->mesh, name);
}

/* Makes a plan for four ranks (2 x 2). It has every kind of communication, parts of unequal sizes,
 * and two large sums in one launch. Buffer 1 is the input. All buffers keep their contents between
 * steps. */
static inline void make_every_transfer(Synthetic *y, DType dtype)
{
    make_mesh(y, 2, 2);
    make_program(y);
    AxisSet tp = axis(y, AXIS_tp), dp = axis(y, AXIS_dp_shard), all = (AxisSet)(tp | dp);
    const int64_t n = 20004;
    BufferId in = buffer(y, n, dtype, true), small = buffer(y, 3, dtype, true);
    uint32_t match = 1;
#define MAKE(stream_, ...)                                                                         \
    make(y, (Make){.stream = STREAM_##stream_, .match = match++, .reduce = REDUCE_sum, __VA_ARGS__})
    Pc fill = make(y, (Make){.op = OP_fill, .stream = STREAM_compute, .out = small, .scale = 1.5});
    MAKE(dp_gather, .op = OP_all_gather, .axes = all, .in = in,
         .out = buffer(y, 4 * n, dtype, true));
    MAKE(dp_reduce, .op = OP_all_reduce, .axes = all, .launch = 3, .in = in,
         .out = buffer(y, n, dtype, true));
    MAKE(dp_reduce, .op = OP_all_reduce, .axes = all, .launch = 3, .in = in,
         .out = buffer(y, n, dtype, true));
    MAKE(dp_reduce, .op = OP_all_reduce, .axes = dp, .launch = 3, .in = small, .after = fill,
         .out = buffer(y, 3, dtype, true));
    MAKE(dp_reduce, .op = OP_reduce_scatter, .axes = all, .in = in,
         .out = buffer(y, n / 4, dtype, true));
    MAKE(tp, .op = OP_all_reduce, .axes = tp, .in = in, .out = buffer(y, n, dtype, true));
    MAKE(ep, .op = OP_all_to_all, .axes = dp, .in = in, .out = buffer(y, n, dtype, true));
    MAKE(tp, .op = OP_reduce_scatter, .axes = tp, .in = in, .out = buffer(y, n / 2, dtype, true));
    MAKE(pp_forward, .op = OP_send, .axes = dp, .hop = 1, .in = in);
    match--;
    MAKE(pp_backward, .op = OP_recv, .axes = dp, .hop = -1, .out = buffer(y, n, dtype, true));
    make(y, (Make){.op = OP_all_reduce,
                   .stream = STREAM_cp,
                   .match = match,
                   .axes = tp,
                   .reduce = REDUCE_max,
                   .in = in,
                   .out = buffer(y, n, dtype, true)});
#undef MAKE
}

/* Fills the input with numbers that differ between ranks, and whose sums depend on the order of
 * additions. */
static inline void fill_input(const Synthetic *y, Backend *b, Rank r)
{
    const Buffer *in = &y->plan->programs.at[0].buffers.at[1];
    for (uint64_t i = 0; i < in->bytes / dtype_bytes(in->dtype); i++) {
        double x = ((double)((i * 2654435761u + r * 40503u) % 100003) - 50000) / 3.0;
        void *at = b->memory(b, r, 1);
        number_write(in->dtype, at, i, x);
    }
}

#endif
