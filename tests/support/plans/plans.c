/* Plans made by hand, and the comparison of two plans: see plans.h. */
#include "tests/support/plans/plans.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "planner/ir/text/private.h"

Plan *plans_new(Arena *arena, const uint32_t *sizes)
{
    static const uint32_t one[AXIS_NAMES];
    Plan *plan = arena_alloc(arena, sizeof *plan);
    plan->arena = arena;
    plan->mesh = mesh_make(sizes ? sizes : one);
    graph_init(&plan->graph, arena);
    list_reserve_none(arena, &plan->shapes);
    plan->program_of = arena_array(arena, plan->mesh.n_ranks, sizeof *plan->program_of);
    plan->n_match = 1;
    return plan;
}

Program *plans_program(Plan *plan)
{
    uint32_t index = (uint32_t)list_add(plan->arena, &plan->programs);
    list_reserve_none(plan->arena, &plan->programs.at[index].code);
    list_reserve_none(plan->arena, &plan->programs.at[index].buffers);
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) plan->program_of[r] = index;
    return &plan->programs.at[index];
}

BufferId plans_buffer(Plan *plan, Program *p, const Shape *shape, DType dtype, Category category)
{
    BufferId id = (BufferId)list_add(plan->arena, &p->buffers);
    Buffer *b = &p->buffers.at[id];
    b->shape = plan_shape(plan, shape);
    b->dtype = dtype;
    b->category = category;
    b->bytes =
        (uint64_t)shape_local_elements(shape, &plan->mesh, &plan->graph.deals) * dtype_bytes(dtype);
    return id;
}

BufferId plans_flat(Plan *plan, Program *p, int64_t n, DType dtype, Category category)
{
    Shape shape = {.n_dims = 1, .dim = {n}};
    return plans_buffer(plan, p, &shape, dtype, category);
}

BufferId plans_view(Plan *plan, Program *p, BufferId parent, const Shape *shape, uint64_t offset)
{
    const Buffer of = p->buffers.at[parent];
    BufferId id = plans_buffer(plan, p, shape, of.dtype, of.category);
    p->buffers.at[id].parent = parent;
    p->buffers.at[id].offset = offset;
    p->buffers.at[id].persistent = of.persistent;
    return id;
}

static void touch(Program *p, BufferId b, Pc pc)
{
    for (; b; b = p->buffers.at[b].parent) {
        if (!p->buffers.at[b].first) p->buffers.at[b].first = pc;
        p->buffers.at[b].last = pc;
    }
}

Pc plans_instr(Plan *plan, Program *p, const PlansInstr *i)
{
    Instr in = {.op = i->op,
                .stream = i->stream,
                .axes = i->axes,
                .launch = i->launch,
                .match = i->match,
                .microbatch = i->microbatch,
                .phase = i->phase,
                .origin = i->origin,
                .args = {p->args.n, 0},
                .after = {p->after.n, 0}};
    in.attrs = graph_attrs(&plan->graph, plan->arena, &i->attrs);
    for (; in.n_in < MAX_IN && i->in[in.n_in]; in.n_in++)
        list_push(plan->arena, &p->args, i->in[in.n_in]);
    for (int k = 0; k < MAX_OUT && i->out[k]; k++) list_push(plan->arena, &p->args, i->out[k]);
    in.args.n = p->args.n - in.args.first;
    for (int k = 0; k < 8 && i->after[k]; k++) list_push(plan->arena, &p->after, i->after[k]);
    in.after.n = p->after.n - in.after.first;
    if (in.match >= plan->n_match) plan->n_match = in.match + 1;
    for (uint32_t k = 0; k < in.args.n; k++) touch(p, p->args.at[in.args.first + k], (Pc)p->code.n);
    return (Pc)list_push(plan->arena, &p->code, in);
}

/* ---- everything ---- */

static void add_modules(Graph *g, Arena *arena)
{
    Loc loc = {"plans/a \"quoted\" name.lua", 12};
    Module root = {.path = "", .class_ = "model", .loc = loc};
    Module block = {.path = "layers.0\n\\end",
                    .class_ = "block",
                    .parent = 1,
                    .is_block = true,
                    .fsdp2_shard = true,
                    .layer = 1,
                    .loc = loc};
    list_push(arena, &g->modules, root);
    list_push(arena, &g->modules, block);
}

static void add_tensors(Plan *plan, DealId ceil, DealId zigzag)
{
    Graph *g = &plan->graph;
    Arena *arena = plan->arena;
    Loc loc = {"b.lua", 7};
    TensorId x = graph_tensor(g, arena, "x", ROLE_input, DT_bf16, 3, (int64_t[]){4, 16, 8}, loc);
    TensorId w = graph_tensor(g, arena, "w", ROLE_param, DT_bf16, 2, (int64_t[]){8, 9}, loc);
    TensorId y =
        graph_tensor(g, arena, "y", ROLE_activation, DT_f32, 3, (int64_t[]){4, 16, 9}, loc);
    TensorId dw = graph_tensor(g, arena, "dw", ROLE_gradient, DT_f32, 2, (int64_t[]){8, 9}, loc);
    TensorId loss = graph_tensor(g, arena, "loss", ROLE_loss, DT_f64, 0, NULL, loc);
    Tensor *t = &g->tensors.at[w];
    t->deal[1] = ceil;
    t->use.on[2] = SPLIT(1);
    t->use_is_fixed = true;
    t->grad = dw;
    g->tensors.at[dw].grad_of = w;
    g->tensors.at[dw].use.on[0] = PARTIAL_SUM;
    g->tensors.at[dw].use.on[2] = PARTIAL_MAX;
    t->module = 2;
    t->rest_dtype = DT_f32;
    t->reduce_dtype = DT_f64;
    t->tp = TP_column;
    t->column_dim = 1;
    t->row_dim = 2;
    t->order = deal_segments(&g->deals, arena, 8, 3, (int64_t[]){6, 1, 2});
    t->order_dim = 0;
    t->init = (Init){INIT_normal, 0.1, -1e-300};
    t->unit = 1;
    t->flat_offset = 72;
    t->input_embedding = true;
    g->tensors.at[x].deal[1] = zigzag;
    g->tensors.at[x].use.on[1] = SPLIT(1);
    g->tensors.at[y].kept.on[1] = SPLIT(0);
    g->loss = loss;
    const Attrs window = {.accumulate = 1,
                          .h_kernel = 3,
                          .h_stride = 1,
                          .h_dilation = 1,
                          .h_before = -5,
                          .w_kernel = 1,
                          .w_stride = 1,
                          .w_dilation = 1};
    NodeId f = graph_node(g, arena, OP_attention, (TensorId[]){x, w}, 2, &y, 1,
                          &(Attrs){.scale = 1.0 / 3, .causal = 1}, 2, loc);
    NodeId b =
        graph_node(g, arena, OP_conv2d_weight, (TensorId[]){x, y}, 2, &dw, 1, &window, 2, loc);
    g->n_forward = f;
    g->nodes.at[b].forward = f;
    g->nodes.at[b].stage = 3;
    g->nodes.at[b].region = 4;
    g->nodes.at[b].split[2] = 'n';
    g->nodes.at[b].split[0] = 'b';
}

static void add_unit(Plan *plan)
{
    Unit u = {.name = "layers.0",
              .shard = 1,
              .replicate = 2,
              .elements = 72,
              .padded = 80,
              .dtype = DT_bf16,
              .rest_dtype = DT_f32,
              .state_dtype = DT_f32,
              .reduce_dtype = DT_f32};
    TensorId w = 2;
    list_push(plan->arena, &u.params, w);
    list_push(plan->arena, &plan->graph.units, u);
}

static void add_code(Plan *plan, DealId ceil)
{
    Program *p = plans_program(plan);
    Shape w = {.n_dims = 2, .dim = {8, 9}, .deal = {0, ceil}, .layout.on = {[2] = SPLIT(1)}};
    Shape part = {.n_dims = 1, .dim = {8}};
    BufferId a = plans_buffer(plan, p, &w, DT_bf16, CATEGORY_gathered);
    BufferId b = plans_flat(plan, p, 80, DT_f32, CATEGORY_state);
    BufferId v = plans_view(plan, p, b, &part, 64);
    p->buffers.at[a].tensor = 2;
    p->buffers.at[a].unit = 1;
    p->buffers.at[a].microbatch = 3;
    p->buffers.at[a].packed = true;
    p->buffers.at[b].persistent = true;
    p->buffers.at[b].space = SPACE_host;
    p->buffers.at[b].offset = 256;
    Pc first = plans_instr(plan, p,
                           &(PlansInstr){.op = OP_all_gather,
                                         .stream = STREAM_dp_gather,
                                         .axes = 5,
                                         .launch = 2,
                                         .match = 1,
                                         .in = {v},
                                         .out = {a}});
    Pc second = plans_instr(plan, p,
                            &(PlansInstr){.op = OP_quantise_range,
                                          .stream = STREAM_compute,
                                          .microbatch = 2,
                                          .phase = PHASE_recompute,
                                          .in = {a, b},
                                          .out = {v},
                                          .after = {first},
                                          .attrs = {.scale = 5e5, .hi = INT64_C(1) << 52},
                                          .origin = 1});
    Pc third = plans_instr(plan, p,
                           &(PlansInstr){.op = OP_send,
                                         .stream = STREAM_pp_forward,
                                         .axes = 1,
                                         .match = 2,
                                         .in = {a},
                                         .after = {first, second}});
    p->code.at[third].hop = -1;
    p->code.at[third].unit = 1;
    /* Buffer a ends here. The number does not fit into 32 bits. */
    p->bytes = UINT64_C(44238372864);
    p->buffers.at[a].offset = p->bytes - p->buffers.at[a].bytes;
    p->host_bytes = 576;
    p->purpose = PURPOSE_gather;
}

Plan *plans_everything(Arena *arena)
{
    uint32_t sizes[AXIS_NAMES] = {0};
    sizes[AXIS_dp_shard] = 4;
    sizes[AXIS_tp] = 2;
    Plan *plan = plans_new(arena, sizes);
    mesh_refine(&plan->mesh, arena, 0, 2);
    DealId ceil = deal_ceil(&plan->graph.deals, arena, 9, 2);
    const Interval parts[] = {{0, 4}, {12, 16}, {4, 8}, {8, 12}};
    DealId zigzag = deal_listed(&plan->graph.deals, arena, 16, 2, 2, parts);
    add_modules(&plan->graph, arena);
    add_unit(plan);
    add_tensors(plan, ceil, zigzag);
    plan->graph.info = (ModelInfo){"llama \"x\"", 10, 9, 8, 7, 6, 5, 4, 3, 2};
    plan->step =
        (StepInfo){3, DENOMINATOR_microbatch_mean, 24, 8, 16, 384.5, 2, 1234567890123456789};
    plan->parent = (Hash128){0x0123456789abcdef, 0xfedcba9876543210};
    plans_program(plan);
    add_code(plan, ceil);
    for (Rank r = 0; r < 8; r++) plan->program_of[r] = r == 3 || r > 5;
    text_derive(plan);
    return plan;
}

/* ---- a tensor-parallel pair ---- */

Plan *plans_linear(Arena *arena)
{
    uint32_t sizes[AXIS_NAMES] = {0};
    sizes[AXIS_tp] = 2;
    Plan *plan = plans_new(arena, sizes);
    Program *p = plans_program(plan);
    Shape x = {.n_dims = 3, .dim = {4, 8, 16}};
    Shape w1 = {.n_dims = 2, .dim = {16, 32}, .layout.on = {SPLIT(1)}};
    Shape h = {.n_dims = 3, .dim = {4, 8, 32}, .layout.on = {SPLIT(2)}};
    Shape w2 = {.n_dims = 2, .dim = {32, 16}, .layout.on = {SPLIT(0)}};
    Shape partial = {.n_dims = 3, .dim = {4, 8, 16}, .layout.on = {PARTIAL_SUM}};
    BufferId bx = plans_buffer(plan, p, &x, DT_f32, CATEGORY_input);
    BufferId bw1 = plans_buffer(plan, p, &w1, DT_f32, CATEGORY_parameter);
    BufferId bh = plans_buffer(plan, p, &h, DT_f32, CATEGORY_activation);
    BufferId bw2 = plans_buffer(plan, p, &w2, DT_f32, CATEGORY_parameter);
    BufferId by = plans_buffer(plan, p, &partial, DT_f32, CATEGORY_activation);
    BufferId bz = plans_buffer(plan, p, &x, DT_f32, CATEGORY_activation);
    BufferId bg = plans_buffer(plan, p, &w1, DT_f32, CATEGORY_gradient);
    p->buffers.at[bw1].persistent = p->buffers.at[bw2].persistent = true;
    p->buffers.at[bx].persistent = p->buffers.at[bg].persistent = true;
    Pc one = plans_instr(plan, p,
                         &(PlansInstr){.op = OP_linear,
                                       .stream = STREAM_compute,
                                       .phase = PHASE_forward,
                                       .in = {bx, bw1},
                                       .out = {bh}});
    Pc two = plans_instr(plan, p,
                         &(PlansInstr){.op = OP_linear,
                                       .stream = STREAM_compute,
                                       .phase = PHASE_forward,
                                       .in = {bh, bw2},
                                       .out = {by}});
    plans_instr(plan, p,
                &(PlansInstr){.op = OP_all_reduce,
                              .stream = STREAM_tp,
                              .axes = 1,
                              .match = 1,
                              .phase = PHASE_forward,
                              .in = {by},
                              .out = {bz},
                              .after = {two},
                              .attrs = {.reduce = REDUCE_sum}});
    plans_instr(plan, p,
                &(PlansInstr){.op = OP_linear_d1,
                              .stream = STREAM_compute,
                              .phase = PHASE_backward,
                              .in = {bx, bh},
                              .out = {bg},
                              .attrs = {.accumulate = 1}});
    assert(one == 1);
    text_derive(plan);
    return plan;
}

/* ---- equality ---- */

#define SAME(what, condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "plans differ in %s: %s\n", what, #condition);                         \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_loc(Loc a, Loc b)
{
    return same_text(a.file, b.file) && a.line == b.line;
}

static bool same_ids(const uint32_t *a, const uint32_t *b, uint32_t n)
{
    return n == 0 || memcmp(a, b, n * sizeof *a) == 0;
}

static bool same_tensor(const Tensor *a, const Tensor *b)
{
    SAME("tensor", same_text(a->name, b->name) && a->role == b->role && a->dtype == b->dtype);
    SAME("tensor", a->n_dims == b->n_dims && memcmp(a->dim, b->dim, sizeof a->dim) == 0);
    SAME("tensor", memcmp(a->deal, b->deal, sizeof a->deal) == 0);
    SAME("tensor", layout_equal(&a->use, &b->use) && layout_equal(&a->kept, &b->kept));
    SAME("tensor", a->producer == b->producer);
    SAME("tensor", a->grad == b->grad && a->grad_of == b->grad_of && a->module == b->module);
    SAME("tensor", same_loc(a->loc, b->loc) && a->rest_dtype == b->rest_dtype);
    SAME("tensor", a->reduce_dtype == b->reduce_dtype);
    SAME("tensor", a->order == b->order && a->order_dim == b->order_dim);
    SAME("tensor",
         a->init.kind == b->init.kind && a->init.a == b->init.a && a->init.b == b->init.b);
    SAME("tensor", a->init_stream == b->init_stream && a->unit == b->unit);
    SAME("tensor", a->flat_offset == b->flat_offset && a->input_embedding == b->input_embedding);
    return true;
}

static bool same_node(const Node *a, const Node *b)
{
    SAME("node", a->op == b->op && a->n_in == b->n_in && a->n_out == b->n_out);
    SAME("node", same_ids(a->in, b->in, a->n_in) && same_ids(a->out, b->out, a->n_out));
    SAME("node", a->attrs == b->attrs && a->module == b->module && a->layer == b->layer);
    SAME("node", a->stage == b->stage && a->region == b->region && a->forward == b->forward);
    SAME("node", memcmp(a->split, b->split, sizeof a->split) == 0 && same_loc(a->loc, b->loc));
    return true;
}

static bool same_unit(const Unit *a, const Unit *b)
{
    SAME("unit", same_text(a->name, b->name) && a->params.n == b->params.n);
    SAME("unit", same_ids(a->params.at, b->params.at, a->params.n) && a->shard == b->shard);
    SAME("unit", a->replicate == b->replicate && a->elements == b->elements);
    SAME("unit", a->padded == b->padded);
    SAME("unit", a->dtype == b->dtype && a->rest_dtype == b->rest_dtype &&
                     a->state_dtype == b->state_dtype);
    SAME("unit", a->reduce_dtype == b->reduce_dtype);
    return true;
}

static bool same_deals(const Deals *a, const Deals *b)
{
    SAME("deals", a->deals.n == b->deals.n && a->intervals.n == b->intervals.n);
    for (uint32_t i = 1; i < a->deals.n; i++) {
        const Deal *d = &a->deals.at[i], *e = &b->deals.at[i];
        SAME("deal", d->kind == e->kind && d->n_parts == e->n_parts && d->size == e->size);
        SAME("deal", d->n == e->n && d->per_part == e->per_part && (!d->n || d->first == e->first));
    }
    for (uint32_t i = 0; i < a->intervals.n; i++)
        SAME("interval", a->intervals.at[i].lo == b->intervals.at[i].lo &&
                             a->intervals.at[i].hi == b->intervals.at[i].hi);
    return true;
}

static bool same_graph(const Graph *a, const Graph *b)
{
    const ModelInfo *x = &a->info, *y = &b->info;
    SAME("model", same_text(x->name, y->name) && x->n_params == y->n_params);
    SAME("model", x->n_params_no_embedding == y->n_params_no_embedding);
    SAME("model", x->n_layers == y->n_layers && x->d_model == y->d_model);
    SAME("model", x->n_heads == y->n_heads && x->n_kv_heads == y->n_kv_heads);
    SAME("model", x->head_dim == y->head_dim && x->vocab == y->vocab && x->seq == y->seq);
    SAME("graph", a->tensors.n == b->tensors.n && a->nodes.n == b->nodes.n);
    SAME("graph", a->modules.n == b->modules.n && a->units.n == b->units.n);
    SAME("graph", a->attrs.n == b->attrs.n && a->n_forward == b->n_forward && a->loss == b->loss);
    SAME("attrs", memcmp(a->attrs.at, b->attrs.at, a->attrs.n * sizeof *a->attrs.at) == 0);
    for (uint32_t i = 1; i < a->modules.n; i++) {
        const Module *m = &a->modules.at[i], *n = &b->modules.at[i];
        SAME("module", same_text(m->path, n->path) && m->layer == n->layer);
        SAME("module", m->parent == n->parent && m->is_block == n->is_block);
        SAME("module", same_loc(m->loc, n->loc));
    }
    for (uint32_t i = 1; i < a->tensors.n; i++)
        if (!same_tensor(&a->tensors.at[i], &b->tensors.at[i])) return false;
    for (uint32_t i = 1; i < a->nodes.n; i++)
        if (!same_node(&a->nodes.at[i], &b->nodes.at[i])) return false;
    for (uint32_t i = 1; i < a->units.n; i++)
        if (!same_unit(&a->units.at[i], &b->units.at[i])) return false;
    return same_deals(&a->deals, &b->deals);
}

static bool same_buffer(const Buffer *a, const Buffer *b)
{
    SAME("buffer", a->shape == b->shape && a->dtype == b->dtype && a->category == b->category);
    SAME("buffer", a->space == b->space && a->bytes == b->bytes && a->parent == b->parent);
    SAME("buffer", a->offset == b->offset && a->first == b->first && a->last == b->last);
    SAME("buffer", a->tensor == b->tensor && a->unit == b->unit && a->packed == b->packed);
    SAME("buffer", a->microbatch == b->microbatch && a->persistent == b->persistent);
    return true;
}

static bool same_instr(const Instr *a, const Instr *b)
{
    SAME("instr", a->op == b->op && a->stream == b->stream && a->launch == b->launch);
    SAME("instr", a->axes == b->axes && a->hop == b->hop && a->match == b->match);
    SAME("instr", a->microbatch == b->microbatch && a->phase == b->phase && a->n_in == b->n_in);
    SAME("instr", a->args.first == b->args.first && a->args.n == b->args.n);
    SAME("instr", a->after.first == b->after.first && a->after.n == b->after.n);
    SAME("instr", a->attrs == b->attrs && a->origin == b->origin && a->unit == b->unit);
    return true;
}

static bool same_program(const Program *a, const Program *b)
{
    SAME("program", a->code.n == b->code.n && a->buffers.n == b->buffers.n);
    SAME("program", a->args.n == b->args.n && a->after.n == b->after.n);
    SAME("program", same_ids(a->args.at, b->args.at, a->args.n));
    SAME("program", same_ids(a->after.at, b->after.at, a->after.n));
    SAME("program", a->bytes == b->bytes && a->host_bytes == b->host_bytes);
    SAME("program", a->purpose == b->purpose && a->stage == b->stage);
    for (uint32_t i = 1; i < a->buffers.n; i++)
        if (!same_buffer(&a->buffers.at[i], &b->buffers.at[i])) return false;
    for (uint32_t i = 1; i < a->code.n; i++)
        if (!same_instr(&a->code.at[i], &b->code.at[i])) return false;
    return true;
}

bool plans_equal(const Plan *a, const Plan *b)
{
    const StepInfo *s = &a->step, *t = &b->step;
    SAME("mesh", a->mesh.n_axes == b->mesh.n_axes && a->mesh.n_ranks == b->mesh.n_ranks);
    for (uint32_t i = 0; i < a->mesh.n_axes; i++) {
        const Axis *x = &a->mesh.axis[i], *y = &b->mesh.axis[i];
        SAME("axis", same_text(x->text, y->text) && x->name == y->name);
        SAME("axis", x->size == y->size && x->stride == y->stride);
    }
    SAME("step", s->n_microbatches == t->n_microbatches && s->global_batch == t->global_batch);
    SAME("step", s->micro_batch == t->micro_batch && s->seq == t->seq && s->seed == t->seed);
    SAME("step", s->global_tokens == t->global_tokens);
    SAME("step", s->denominator == t->denominator && s->group == t->group);
    SAME("plan", a->n_match == b->n_match && a->programs.n == b->programs.n);
    SAME("plan", a->parent.hi == b->parent.hi && a->parent.lo == b->parent.lo);
    SAME("plan", a->shapes.n == b->shapes.n);
    for (uint32_t i = 1; i < a->shapes.n; i++)
        SAME("shape", shape_equal(&a->shapes.at[i], &b->shapes.at[i]));
    SAME("ranks", !a->programs.n || same_ids(a->program_of, b->program_of, a->mesh.n_ranks));
    for (uint32_t i = 0; i < a->programs.n; i++)
        if (!same_program(&a->programs.at[i], &b->programs.at[i])) return false;
    return same_graph(&a->graph, &b->graph);
}
