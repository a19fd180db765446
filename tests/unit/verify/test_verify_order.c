/* The order of instructions: happens-before, races, sequences and deadlocks. Plans are made by
 * hand, or drawn at random and compared with exact reachability. The map of byte ranges is compared
 * with a plain array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/base/rng.h"
#include "planner/verify/private.h"
#include "tests/support/plans/plans.h"

/* ---- the map ---- */

static void the_map_equals_an_array(void **state)
{
    (void)state;
    enum { SIZE = 700 };
    Arena *arena = arena_new();
    RangeMap m;
    uint32_t plain[SIZE] = {0};
    range_map_init(&m, arena, sizeof(uint32_t));
    for (uint32_t i = 1; i < 3000; i++) {
        uint32_t lo = (uint32_t)rng_below(1, 0, i, SIZE - 1);
        uint32_t most = i % 3 == 0 ? SIZE - lo : 9;
        uint32_t hi = lo + 1 + (uint32_t)rng_below(1, 1, i, most < SIZE - lo ? most : SIZE - lo);
        if (hi > SIZE) hi = SIZE;
        if (i % 5 == 0) {
            RangeAt at = range_split(&m, lo);
            assert_true(range_lo(&m, at) == lo);
        } else {
            range_assign(&m, lo, hi, &i);
            for (uint32_t k = lo; k < hi; k++) plain[k] = i;
        }
        for (uint32_t k = 0; k < SIZE; k += 1 + i % 7) {
            RangeAt at = range_find(&m, k);
            assert_true(range_lo(&m, at) <= k && k < range_hi(&m, at));
            assert_int_equal(*(uint32_t *)range_payload(&m, at), plain[k]);
        }
    }
    RangeAt at = range_find(&m, 0);
    uint64_t end = 0;
    do {
        assert_true(range_lo(&m, at) == end);
        end = range_hi(&m, at);
    } while (range_next(&m, &at));
    assert_true(end == UINT64_MAX);
    arena_free(arena);
}

/* ---- happens-before against reachability ---- */

enum { N_RANDOM = 60 };

static Program *random_program(Plan *plan, uint64_t seed)
{
    Program *p = plans_program(plan);
    BufferId b = plans_flat(plan, p, 8, DT_f32, CATEGORY_activation);
    p->buffers.at[b].persistent = true;
    uint32_t launch = 0, group = 0;
    Stream last = STREAM_none;
    for (uint32_t k = 1; k < N_RANDOM; k++) {
        Stream s = group ? last : (Stream)(STREAM_compute + rng_below(seed, 0, k, 4));
        if (!group && s != STREAM_compute && rng_below(seed, 1, k, 3) == 0) {
            group = 2 + (uint32_t)rng_below(seed, 2, k, 3);
            launch++;
        }
        PlansInstr i = {.op = s == STREAM_compute ? OP_copy : OP_all_reduce,
                        .stream = s,
                        .in = {b},
                        .out = {b},
                        .launch = group ? launch : 0};
        for (uint32_t w = 0; k > 1 && w < rng_below(seed, 3, k, 3); w++)
            i.after[w] = (Pc)(1 + rng_below(seed, 4 + w, k, k - 1));
        plans_instr(plan, p, &i);
        if (group) group--;
        last = s;
    }
    return p;
}

/* Computes done[b][a]: by the definition in plan.h, a has finished when b starts. */
static void reach(const Program *p, bool done[N_RANDOM][N_RANDOM])
{
    for (Pc b = 1; b < p->code.n; b++) {
        const Instr *in = &p->code.at[b];
        bool direct[N_RANDOM] = {false};
        for (uint32_t k = 0; k < in->after.n; k++) direct[p->after.at[in->after.first + k]] = true;
        for (Pc a = 1; a < b; a++) {
            const Instr *other = &p->code.at[a];
            bool together = in->launch && in->launch == other->launch;
            if (other->stream == in->stream && !together) direct[a] = true;
        }
        for (Pc a = 1; a < b; a++) {
            if (!direct[a]) continue;
            done[b][a] = true;
            for (Pc c = 1; c < a; c++) done[b][c] = done[b][c] || done[a][c];
        }
    }
}

static void vector_clocks_equal_reachability(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        Arena *arena = arena_new();
        Plan *plan = plans_new(arena, NULL);
        Verifier v = {.plan = plan, .g = &plan->graph, .arena = arena};
        v.p = random_program(plan, seed);
        verify_order(&v);
        bool done[N_RANDOM][N_RANDOM] = {{false}};
        reach(v.p, done);
        for (Pc b = 1; b < v.p->code.n; b++)
            for (Pc a = 1; a < b; a++)
                if (order_before(&v.order, a, b) != done[b][a])
                    fail_msg("seed %llu: %u before %u is %d", (unsigned long long)seed, a, b,
                             done[b][a]);
        arena_free(arena);
    }
}

/* ---- plans by hand ---- */

typedef struct Case {
    Arena *arena;
    Plan *plan;
    Diag d;
} Case;

static Case new_case(AxisName axis, uint32_t size)
{
    Arena *arena = arena_new();
    uint32_t sizes[AXIS_NAMES] = {0};
    sizes[axis] = size;
    Case c = {arena, plans_new(arena, sizes), diag_in(arena)};
    c.plan->step.n_microbatches = 1;
    return c;
}

static const char *all_text(Case *c)
{
    Str s = str_in(c->arena);
    diag_print(&c->d, &s);
    return str_text(&s);
}

/* Places buffers one after the other in the arena. */
static void place(Plan *plan)
{
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        Program *p = &plan->programs.at[i];
        p->bytes = 0;
        for (BufferId b = 1; b < p->buffers.n; b++) {
            if (p->buffers.at[b].parent) continue;
            p->buffers.at[b].offset = p->bytes;
            p->bytes += (p->buffers.at[b].bytes + 255) / 256 * 256;
        }
    }
}

static void ends(Case *c, uint32_t proofs, const char *rule, const char *text)
{
    bool ok = verify_plan(c->plan, proofs, false, &c->d), found = false;
    for (uint32_t i = 0; i < c->d.items.n; i++)
        if (rule && strcmp(c->d.items.at[i].rule, rule) == 0 && strstr(c->d.items.at[i].text, text))
            found = true;
    if (ok != (rule == NULL) || (rule && !found))
        fail_msg("expected %s \"%s\", got:\n%.2000s", rule ? rule : "nothing", rule ? text : "",
                 all_text(c));
    arena_free(c->arena);
}

/* Returns a program with a fill on one stream and a copy on another. With `wait`, the copy waits
 * for the fill. With `share`, its output overlaps its input. */
static Program *fill_and_copy(Case *c, bool wait, bool share)
{
    Program *p = plans_program(c->plan);
    BufferId x = plans_flat(c->plan, p, 16, DT_f32, CATEGORY_activation),
             y = plans_flat(c->plan, p, 16, DT_f32, CATEGORY_activation);
    Pc fill =
        plans_instr(c->plan, p, &(PlansInstr){.op = OP_fill, .stream = STREAM_compute, .out = {x}});
    plans_instr(c->plan, p,
                &(PlansInstr){.op = OP_copy,
                              .stream = STREAM_copy_in,
                              .in = {x},
                              .out = {y},
                              .after = {wait ? fill : 0}});
    place(c->plan);
    if (share) { /* y overlaps the second half of x */
        p->buffers.at[y].offset = 32;
    }
    return p;
}

static void a_copy_that_waits_is_accepted(void **state)
{
    (void)state;
    Case c = new_case(AXIS_tp, 1);
    fill_and_copy(&c, true, false);
    ends(&c, VERIFY_races, NULL, NULL);
}

static void a_copy_that_does_not_wait_is_a_race(void **state)
{
    (void)state;
    Case c = new_case(AXIS_tp, 1);
    fill_and_copy(&c, false, false);
    ends(&c, VERIFY_races, "verify-race",
         "reads bytes of buffer 1 that instruction 1 compute fill uses");
}

static void overlapping_input_and_output_are_a_race(void **state)
{
    (void)state;
    Case c = new_case(AXIS_tp, 1);
    fill_and_copy(&c, true, true);
    ends(&c, VERIFY_races, "verify-race", "input 0 and output 0 overlap");
}

static void a_write_beside_a_read_is_a_race(void **state)
{
    (void)state;
    Case c = new_case(AXIS_tp, 1);
    Program *p = fill_and_copy(&c, true, false);
    plans_instr(c.plan, p, &(PlansInstr){.op = OP_fill, .stream = STREAM_compute, .out = {1}});
    ends(&c, VERIFY_races, "verify-race",
         "writes bytes of buffer 1 that instruction 2 copy_in copy uses");
}

static void a_read_before_any_write_is_rejected(void **state)
{
    (void)state;
    Case c = new_case(AXIS_tp, 1);
    Program *p = plans_program(c.plan);
    BufferId x = plans_flat(c.plan, p, 16, DT_f32, CATEGORY_activation),
             y = plans_flat(c.plan, p, 16, DT_f32, CATEGORY_activation);
    plans_instr(c.plan, p,
                &(PlansInstr){.op = OP_copy, .stream = STREAM_compute, .in = {x}, .out = {y}});
    place(c.plan);
    ends(&c, VERIFY_races, "verify-read-before-write", "that no instruction wrote");
}

static void bytes_left_by_another_buffer_are_not_read(void **state)
{
    (void)state;
    Case c = new_case(AXIS_tp, 1);
    Program *p = fill_and_copy(&c, true, false);
    BufferId z = plans_flat(c.plan, p, 16, DT_f32, CATEGORY_activation);
    place(c.plan);
    /* No instruction wrote this buffer, but another buffer's bytes are there. */
    p->buffers.at[z].offset = p->buffers.at[1].offset;
    plans_instr(c.plan, p,
                &(PlansInstr){
                    .op = OP_copy, .stream = STREAM_copy_in, .in = {z}, .out = {2}, .after = {1}});
    ends(&c, VERIFY_races, "verify-read-before-write", "were overwritten by buffer 1");
}

/* y takes the first half of x while another instruction still reads the second half. */
static void half_of_a_buffer_is_given_away_only_after_its_readers(void **state)
{
    (void)state;
    for (int wait = 0; wait < 2; wait++)
        for (int persistent = 0; persistent < 2; persistent++) {
            Case c = new_case(AXIS_tp, 1);
            Program *p = plans_program(c.plan);
            Shape half = {.n_dims = 1, .dim = {8}};
            BufferId x = plans_flat(c.plan, p, 16, DT_f32, CATEGORY_activation),
                     z = plans_buffer(c.plan, p, &half, DT_f32, CATEGORY_activation),
                     y = plans_buffer(c.plan, p, &half, DT_f32, CATEGORY_activation),
                     second = plans_view(c.plan, p, x, &half, 32);
            p->buffers.at[x].persistent = p->buffers.at[second].persistent = persistent;
            place(c.plan);
            p->buffers.at[y].offset = p->buffers.at[x].offset;
            Pc fill = plans_instr(
                c.plan, p, &(PlansInstr){.op = OP_fill, .stream = STREAM_compute, .out = {x}});
            Pc copy = plans_instr(c.plan, p,
                                  &(PlansInstr){.op = OP_copy,
                                                .stream = STREAM_copy_in,
                                                .in = {second},
                                                .out = {z},
                                                .after = {fill}});
            plans_instr(c.plan, p,
                        &(PlansInstr){.op = OP_fill,
                                      .stream = STREAM_compute,
                                      .out = {y},
                                      .after = {wait ? copy : 0}});
            if (persistent)
                ends(&c, VERIFY_races, "verify-race",
                     "overwrites buffer 1, which must keep its value");
            else
                ends(&c, VERIFY_races, wait ? NULL : "verify-race", "takes bytes of buffer 1");
        }
}

static void a_buffer_given_away_is_not_used(void **state)
{
    (void)state;
    Case c = new_case(AXIS_tp, 1);
    Program *p = fill_and_copy(&c, true, false);
    BufferId y = plans_flat(c.plan, p, 8, DT_f32, CATEGORY_activation);
    place(c.plan);
    p->buffers.at[y].offset = p->buffers.at[1].offset;
    plans_instr(c.plan, p,
                &(PlansInstr){.op = OP_fill, .stream = STREAM_compute, .out = {y}, .after = {2}});
    plans_instr(c.plan, p, &(PlansInstr){.op = OP_fill, .stream = STREAM_compute, .out = {1}});
    ends(&c, VERIFY_races, "verify-race",
         "uses buffer 1, but some of its bytes already belong to buffer 3");
}

/* Members of a launch group start together, so the second must not need the result of the first. */
static void members_of_a_launch_do_not_need_each_other(void **state)
{
    (void)state;
    for (uint32_t launch = 0; launch < 2; launch++) {
        Case c = new_case(AXIS_tp, 2);
        Program *p = plans_program(c.plan);
        Shape part = {.n_dims = 1, .dim = {16}}, whole = part;
        part.layout.on[0] = PARTIAL_SUM;
        BufferId x = plans_buffer(c.plan, p, &part, DT_f32, CATEGORY_activation),
                 y = plans_buffer(c.plan, p, &whole, DT_f32, CATEGORY_activation),
                 z = plans_buffer(c.plan, p, &whole, DT_f32, CATEGORY_activation);
        p->buffers.at[x].persistent = true;
        for (uint32_t k = 0; k < 2; k++)
            plans_instr(c.plan, p,
                        &(PlansInstr){.op = OP_all_reduce,
                                      .stream = STREAM_tp,
                                      .axes = 1,
                                      .match = 1 + k,
                                      .launch = launch,
                                      .in = {k ? y : x},
                                      .out = {k ? z : y},
                                      .attrs = {.reduce = REDUCE_sum}});
        place(c.plan);
        ends(&c, VERIFY_races, launch ? "verify-race" : NULL, "reads bytes of buffer 2");
    }
}

/* ---- two programs ---- */

typedef struct Move {
    OpKind op;
    Stream stream;
    uint32_t match, launch;
    int32_t hop;
    Pc after;
} Move;

static void add_moves(Case *c, Program *p, const Move *moves, uint32_t n)
{
    BufferId b = plans_flat(c->plan, p, 16, DT_f32, CATEGORY_activation);
    p->buffers.at[b].persistent = true;
    for (uint32_t i = 0; i < n; i++) {
        const Move *m = &moves[i];
        PlansInstr in = {.op = m->op,
                         .stream = m->stream,
                         .axes = 1,
                         .match = m->match,
                         .launch = m->launch,
                         .after = {m->after}};
        if (m->op != OP_recv) in.in[0] = b;
        if (m->op != OP_send) in.out[0] = b;
        Pc pc = plans_instr(c->plan, p, &in);
        p->code.at[pc].hop = m->hop;
    }
}

static Case two(const Move *first, uint32_t n, const Move *second, uint32_t m)
{
    Case c = new_case(AXIS_pp, 2);
    add_moves(&c, plans_program(c.plan), first, n);
    add_moves(&c, plans_program(c.plan), second, m);
    c.plan->program_of[0] = 0;
    c.plan->program_of[1] = 1;
    place(c.plan);
    return c;
}

#define TWO(a, b) two(a, sizeof a / sizeof a[0], b, sizeof b / sizeof b[0])

/* A send waits for its receive. If two ranks first send to each other, both wait for ever. */
static void two_sends_to_each_other_deadlock(void **state)
{
    (void)state;
    const Move a[] = {{OP_send, STREAM_pp_forward, 1, 0, 1, 0},
                      {OP_recv, STREAM_pp_forward, 2, 0, 1, 0}},
               b[] = {{OP_send, STREAM_pp_forward, 2, 0, -1, 0},
                      {OP_recv, STREAM_pp_forward, 1, 0, -1, 0}};
    Case c = TWO(a, b);
    ends(&c, VERIFY_deadlock, "verify-deadlock", "rank 0 waits forever, because its peer, rank 1");
}

static void sends_on_different_streams_are_accepted(void **state)
{
    (void)state;
    const Move a[] = {{OP_send, STREAM_pp_forward, 1, 0, 1, 0},
                      {OP_recv, STREAM_pp_backward, 2, 0, 1, 0}},
               b[] = {{OP_send, STREAM_pp_backward, 2, 0, -1, 0},
                      {OP_recv, STREAM_pp_forward, 1, 0, -1, 0}};
    Case c = TWO(a, b);
    ends(&c, VERIFY_deadlock, NULL, NULL);
}

static void sends_launched_with_receives_are_accepted(void **state)
{
    (void)state;
    const Move a[] = {{OP_send, STREAM_pp_forward, 1, 1, 1, 0},
                      {OP_recv, STREAM_pp_forward, 2, 1, 1, 0}},
               b[] = {{OP_send, STREAM_pp_forward, 2, 1, -1, 0},
                      {OP_recv, STREAM_pp_forward, 1, 1, -1, 0}};
    Case c = TWO(a, b);
    ends(&c, VERIFY_deadlock, NULL, NULL);
}

static void a_send_beyond_the_last_stage_waits_for_ever(void **state)
{
    (void)state;
    const Move a[] = {{OP_send, STREAM_pp_forward, 1, 0, 1, 0}},
               b[] = {{OP_send, STREAM_pp_forward, 1, 0, 1, 0}};
    Case c = TWO(a, b);
    ends(&c, VERIFY_deadlock, "verify-deadlock", "rank 1 waits forever");
}

static void a_receive_without_a_send_waits_for_ever(void **state)
{
    (void)state;
    const Move a[] = {{OP_recv, STREAM_pp_forward, 1, 0, 1, 0}},
               b[] = {{OP_recv, STREAM_pp_forward, 2, 0, -1, 0}};
    Case c = TWO(a, b);
    ends(&c, VERIFY_all, "verify-deadlock", "rank 0 waits forever");
}

static void another_order_on_one_communicator_is_rejected(void **state)
{
    (void)state;
    const Move a[] = {{OP_all_reduce, STREAM_ep, 1, 0, 0, 0},
                      {OP_all_reduce, STREAM_ep, 2, 0, 0, 0}},
               b[] = {{OP_all_reduce, STREAM_ep, 2, 0, 0, 0},
                      {OP_all_reduce, STREAM_ep, 1, 0, 0, 0}};
    Case c = TWO(a, b), again = TWO(a, b);
    ends(&c, VERIFY_deadlock, "verify-sequence", "but program 0 issues 1 all_reduce");
    ends(&again, VERIFY_deadlock, "verify-deadlock", "do not reach match");
}

/* A known trap: one stream has a reduction between two exchanges, and other ranks have another
 * order. */
static void a_cycle_over_two_streams_deadlocks(void **state)
{
    (void)state;
    const Move a[] = {{OP_all_reduce, STREAM_ep, 1, 0, 0, 0},
                      {OP_all_reduce, STREAM_dp_reduce, 2, 0, 0, 1}},
               b[] = {{OP_all_reduce, STREAM_dp_reduce, 2, 0, 0, 0},
                      {OP_all_reduce, STREAM_ep, 1, 0, 0, 1}};
    Case c = TWO(a, b);
    ends(&c, VERIFY_deadlock, "verify-deadlock",
         "rank 0 in 1 ep all_reduce waits for rank 1, rank 1 in 1");
}

static void one_more_communication_on_one_side_is_rejected(void **state)
{
    (void)state;
    const Move a[] = {{OP_all_reduce, STREAM_ep, 1, 0, 0, 0},
                      {OP_all_reduce, STREAM_ep, 2, 0, 0, 0}},
               b[] = {{OP_all_reduce, STREAM_ep, 1, 0, 0, 0}};
    Case c = TWO(a, b), turned = TWO(b, a);
    ends(&c, VERIFY_deadlock, "verify-sequence",
         "call 2 on communicator (pp, ep), but program 0 issues 2 all_reduce, match 2");
    ends(&turned, VERIFY_deadlock, "verify-sequence",
         "call 2 on communicator (pp, ep), but program 0 issues nothing");
}

static void a_match_used_twice_is_rejected(void **state)
{
    (void)state;
    const Move a[] = {{OP_all_reduce, STREAM_ep, 1, 0, 0, 0},
                      {OP_all_reduce, STREAM_ep, 1, 0, 0, 0}};
    Case c = TWO(a, a);
    ends(&c, VERIFY_deadlock, "verify-sequence", "two communications of this program have match 1");
}

/* The last rank of a pipeline axis has no next rank. All ranks run the same program here, so the
 * last one waits for ever. */
static void a_send_from_the_last_rank_of_an_axis_waits_for_ever(void **state)
{
    (void)state;
    Case c = new_case(AXIS_cp, 4);
    const Move moves[] = {{OP_send, STREAM_cp, 1, 0, 1, 0}};
    add_moves(&c, plans_program(c.plan), moves, 1);
    place(c.plan);
    ends(&c, VERIFY_deadlock, "verify-deadlock", "waits forever");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_map_equals_an_array),
        cmocka_unit_test(vector_clocks_equal_reachability),
        cmocka_unit_test(a_copy_that_waits_is_accepted),
        cmocka_unit_test(a_copy_that_does_not_wait_is_a_race),
        cmocka_unit_test(overlapping_input_and_output_are_a_race),
        cmocka_unit_test(a_write_beside_a_read_is_a_race),
        cmocka_unit_test(a_read_before_any_write_is_rejected),
        cmocka_unit_test(bytes_left_by_another_buffer_are_not_read),
        cmocka_unit_test(half_of_a_buffer_is_given_away_only_after_its_readers),
        cmocka_unit_test(a_buffer_given_away_is_not_used),
        cmocka_unit_test(members_of_a_launch_do_not_need_each_other),
        cmocka_unit_test(two_sends_to_each_other_deadlock),
        cmocka_unit_test(sends_on_different_streams_are_accepted),
        cmocka_unit_test(sends_launched_with_receives_are_accepted),
        cmocka_unit_test(a_send_beyond_the_last_stage_waits_for_ever),
        cmocka_unit_test(a_receive_without_a_send_waits_for_ever),
        cmocka_unit_test(another_order_on_one_communicator_is_rejected),
        cmocka_unit_test(a_cycle_over_two_streams_deadlocks),
        cmocka_unit_test(one_more_communication_on_one_side_is_rejected),
        cmocka_unit_test(a_match_used_twice_is_rejected),
        cmocka_unit_test(a_send_from_the_last_rank_of_an_axis_waits_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
