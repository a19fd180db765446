/* Values go from one program to another: the next stage must compute with the value that the
 * previous stage sent. The test makes two stages of a forward pass by hand, with embed on the first
 * and silu on the second. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/base/parallel.h"
#include "planner/verify/verify.h"
#include "tests/support/plans/plans.h"

enum { B = 2, S = 4, K = 6, V = 10 };

typedef struct Stages {
    Arena *arena;
    Plan *plan;
    /* Buffers: program 0 has x (embedded) and other (of the same shape), and program 1 has
     * received. */
    BufferId x, other, received;
    Pc send, receive, silu;
    NodeId node[5];
} Stages;

static TensorId tensor(Plan *plan, const char *name, Role role, DType dtype, uint32_t n,
                       const int64_t *dim)
{
    return graph_tensor(&plan->graph, plan->arena, name, role, dtype, n, dim, (Loc){NULL, 0});
}

/* tokens, labels = batch; x = embed(tokens, e); z = silu(x); y = silu(z) */
static void add_graph(Stages *s)
{
    Plan *plan = s->plan;
    Graph *g = &plan->graph;
    TensorId ids[2] = {tensor(plan, "tokens", ROLE_input, DT_i32, 2, (int64_t[]){B, S}),
                       tensor(plan, "labels", ROLE_input, DT_i32, 2, (int64_t[]){B, S})};
    TensorId e = tensor(plan, "e", ROLE_param, DT_f32, 2, (int64_t[]){V, K}), act[3];
    static const char *const names[3] = {"x", "z", "y"};
    for (int i = 0; i < 3; i++)
        act[i] = tensor(plan, names[i], ROLE_activation, DT_f32, 3, (int64_t[]){B, S, K});
    Loc none = {NULL, 0};
    s->node[1] = graph_node(g, s->arena, OP_batch, NULL, 0, ids, 2, NULL, 0, none);
    s->node[2] =
        graph_node(g, s->arena, OP_embed, (TensorId[]){ids[0], e}, 2, act, 1, NULL, 0, none);
    s->node[3] = graph_node(g, s->arena, OP_silu, act, 1, act + 1, 1, NULL, 0, none);
    s->node[4] = graph_node(g, s->arena, OP_silu, act + 1, 1, act + 2, 1, NULL, 0, none);
}

static BufferId buffer(Plan *plan, Program *p, uint32_t n, const int64_t *dim, DType dtype)
{
    Shape shape = {.n_dims = (uint8_t)n};
    for (uint32_t d = 0; d < n; d++) shape.dim[d] = dim[d];
    BufferId b = plans_buffer(plan, p, &shape, dtype, CATEGORY_activation);
    p->buffers.at[b].offset = (p->bytes + 255) / 256 * 256;
    p->bytes = p->buffers.at[b].offset + p->buffers.at[b].bytes;
    return b;
}

static void add_first(Stages *s)
{
    Plan *plan = s->plan;
    Program *p = plans_program(plan);
    const int64_t ids[] = {B, S}, act[] = {B, S, K}, table[] = {V, K};
    BufferId tokens = buffer(plan, p, 2, ids, DT_i32), labels = buffer(plan, p, 2, ids, DT_i32),
             e = buffer(plan, p, 2, table, DT_f32);
    s->x = buffer(plan, p, 3, act, DT_f32);
    s->other = buffer(plan, p, 3, act, DT_f32);
    p->buffers.at[tokens].category = p->buffers.at[labels].category = CATEGORY_input;
    p->buffers.at[e].persistent = true;
    p->buffers.at[e].category = CATEGORY_parameter;
    p->buffers.at[tokens].tensor = 1, p->buffers.at[labels].tensor = 2, p->buffers.at[e].tensor = 3;
    p->buffers.at[s->x].tensor = 4, p->buffers.at[s->other].tensor = 5;
    plans_instr(plan, p,
                &(PlansInstr){.op = OP_batch,
                              .stream = STREAM_compute,
                              .out = {tokens, labels},
                              .origin = s->node[1]});
    plans_instr(plan, p,
                &(PlansInstr){.op = OP_embed,
                              .stream = STREAM_compute,
                              .in = {tokens, e},
                              .out = {s->x},
                              .origin = s->node[2]});
    Pc silu = plans_instr(plan, p,
                          &(PlansInstr){.op = OP_silu,
                                        .stream = STREAM_compute,
                                        .in = {s->x},
                                        .out = {s->other},
                                        .origin = s->node[3]});
    s->send = plans_instr(plan, p,
                          &(PlansInstr){.op = OP_send,
                                        .stream = STREAM_pp_forward,
                                        .axes = 1,
                                        .match = 1,
                                        .in = {s->x},
                                        .after = {silu}});
    p->code.at[s->send].hop = 1;
}

static void add_second(Stages *s)
{
    Plan *plan = s->plan;
    Program *p = plans_program(plan);
    const int64_t act[] = {B, S, K};
    s->received = buffer(plan, p, 3, act, DT_f32);
    BufferId z = buffer(plan, p, 3, act, DT_f32);
    p->stage = 1;
    p->buffers.at[s->received].tensor = 4, p->buffers.at[z].tensor = 5;
    s->receive = plans_instr(plan, p,
                             &(PlansInstr){.op = OP_recv,
                                           .stream = STREAM_pp_forward,
                                           .axes = 1,
                                           .match = 1,
                                           .out = {s->received}});
    p->code.at[s->receive].hop = -1;
    s->silu = plans_instr(plan, p,
                          &(PlansInstr){.op = OP_silu,
                                        .stream = STREAM_compute,
                                        .in = {s->received},
                                        .out = {z},
                                        .after = {s->receive},
                                        .origin = s->node[3]});
}

static Stages stages(void)
{
    Stages s = {.arena = arena_new()};
    uint32_t sizes[AXIS_NAMES] = {0};
    sizes[AXIS_pp] = 2;
    s.plan = plans_new(s.arena, sizes);
    s.plan->step = (StepInfo){.n_microbatches = 1, .global_tokens = B * S};
    add_graph(&s);
    add_first(&s);
    add_second(&s);
    s.plan->program_of[0] = 0;
    return s;
}

/* The proofs of one program read no other program, so several threads may run them. Their reports
 * must equal the reports of one thread. */
static void ends(Stages *s, const char *rule, const char *text)
{
    Str all[2];
    for (uint32_t k = 0; k < 2; k++) {
        Diag d = diag_in(s->arena);
        parallel_allow(k == 0 ? 4 : 1);
        bool ok = verify_plan(s->plan, VERIFY_all, false, &d), found = rule == NULL;
        for (uint32_t i = 0; i < d.items.n && !found; i++)
            found = strcmp(d.items.at[i].rule, rule) == 0 && strstr(d.items.at[i].text, text);
        all[k] = str_in(s->arena);
        diag_print(&d, &all[k]);
        if (ok != (rule == NULL) || !found) fail_msg("%.2000s", str_text(&all[k]));
    }
    assert_string_equal(str_text(&all[0]), str_text(&all[1]));
    arena_free(s->arena);
}

static void a_stage_that_gets_its_value_is_accepted(void **state)
{
    (void)state;
    Stages s = stages();
    ends(&s, NULL, NULL);
}

static void a_stage_that_gets_another_tensor_is_rejected(void **state)
{
    (void)state;
    Stages s = stages();
    Program *p = &s.plan->programs.at[0];
    p->args.at[p->code.at[s.send].args.first] = s.other;
    ends(&s, "verify-layout", "input 0 should be x, but is z");
}

static void a_stage_that_starts_too_early_is_rejected(void **state)
{
    (void)state;
    Stages s = stages();
    s.plan->programs.at[1].code.at[s.silu].after.n = 0;
    ends(&s, "verify-race", "reads bytes");
}

static void a_stage_that_gets_nothing_is_rejected(void **state)
{
    (void)state;
    Stages s = stages();
    s.plan->programs.at[0].code.n--;
    ends(&s, "verify-deadlock", "rank 1 waits forever, because its peer, rank 0");
}

static void stages_that_gather_different_values_are_rejected(void **state)
{
    (void)state;
    Stages s = stages();
    const int64_t act[] = {B, S, K};
    for (uint32_t i = 0; i < 2; i++) { /* parts of different tensors do not form a whole */
        Program *p = &s.plan->programs.at[i];
        BufferId whole = buffer(s.plan, p, 3, act, DT_f32);
        Shape split = {.n_dims = 3, .dim = {B, S, K}};
        split.layout.on[0] = SPLIT(0);
        BufferId part = plans_buffer(s.plan, p, &split, DT_f32, CATEGORY_activation);
        p->buffers.at[part].offset = (p->bytes + 255) / 256 * 256;
        p->buffers.at[part].persistent = true;
        p->bytes = p->buffers.at[part].offset + p->buffers.at[part].bytes;
        plans_instr(s.plan, p,
                    &(PlansInstr){.op = OP_all_gather,
                                  .stream = STREAM_ep,
                                  .axes = 1,
                                  .match = 2,
                                  .in = {part},
                                  .out = {whole}});
    }
    ends(&s, "verify-layout", "of program 0, but with other data");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_that_gets_its_value_is_accepted),
        cmocka_unit_test(a_stage_that_gets_another_tensor_is_rejected),
        cmocka_unit_test(a_stage_that_starts_too_early_is_rejected),
        cmocka_unit_test(a_stage_that_gets_nothing_is_rejected),
        cmocka_unit_test(stages_that_gather_different_values_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
