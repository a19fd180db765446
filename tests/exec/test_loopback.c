/* The loopback backend runs programs made by hand. The tests check the result of each collective,
 * the order of sums, launch groups, reports of deadlocks, races that appear only in some
 * interleavings, and the highest byte written in a poisoned arena. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "tests/exec/synthetic.h"

static Arena *arena;
static Diag diag;
static Synthetic syn;

static int setup(void **state)
{
    (void)state;
    arena = arena_new();
    diag = diag_in(arena);
    syn = (Synthetic){.arena = arena};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static Backend *open_plan(BackendOptions options)
{
    Backend *b = backend_loopback(arena);
    bool fine = b->open(b, syn.plan, &options, &diag);
    Str s = str_in(arena);
    diag_print(&diag, &s);
    if (!fine) fail_msg("%s", str_text(&s));
    return b;
}

static bool step(Backend *b)
{
    Control control = {0, 1e-3, NULL, 0};
    return b->step(b, &control, NULL, NULL, &diag);
}

static bool has(const char *text)
{
    Str s = str_in(arena);
    diag_print(&diag, &s);
    bool found = strstr(str_text(&s), text) != NULL;
    if (!found) print_error("no \"%s\" in: %s", text, str_text(&s));
    return found;
}

/* Fills the inputs: element i of a rank is 10 * rank + i. */
static void number_inputs(Backend *b, BufferId id, int64_t n)
{
    for (Rank r = 0; r < syn.plan->mesh.n_ranks; r++)
        for (int64_t i = 0; i < n; i++) ((double *)b->memory(b, r, id))[i] = 10.0 * r + (double)i;
}

static double out(Backend *b, Rank r, BufferId id, int64_t i)
{
    return ((double *)b->memory(b, r, id))[i];
}

/* The result of each collective on 2 x 2 ranks. Groups along tp are {0,1} and {2,3}, along dp {0,2}
 * and {1,3}. */
static void collectives_have_their_results(void **state)
{
    (void)state;
    make_mesh(&syn, 2, 2);
    make_program(&syn);
    AxisSet tp = axis(&syn, AXIS_tp), dp = axis(&syn, AXIS_dp_shard), all = (AxisSet)(tp | dp);
    BufferId in = buffer(&syn, 4, DT_f64, true), gathered = buffer(&syn, 16, DT_f64, true);
    BufferId scattered = buffer(&syn, 2, DT_f64, true), sum = buffer(&syn, 4, DT_f64, true);
    BufferId most = buffer(&syn, 4, DT_f64, true), swapped = buffer(&syn, 4, DT_f64, true);
    make(&syn, (Make){.op = OP_all_gather,
                      .stream = STREAM_dp_gather,
                      .axes = all,
                      .match = 1,
                      .in = in,
                      .out = gathered});
    make(&syn, (Make){.op = OP_reduce_scatter,
                      .stream = STREAM_tp,
                      .axes = tp,
                      .match = 2,
                      .reduce = REDUCE_sum,
                      .in = in,
                      .out = scattered});
    make(&syn, (Make){.op = OP_all_reduce,
                      .stream = STREAM_dp_reduce,
                      .axes = dp,
                      .match = 3,
                      .reduce = REDUCE_sum,
                      .in = in,
                      .out = sum});
    make(&syn, (Make){.op = OP_all_reduce,
                      .stream = STREAM_tp,
                      .axes = all,
                      .match = 4,
                      .reduce = REDUCE_max,
                      .in = in,
                      .out = most});
    make(&syn, (Make){.op = OP_all_to_all,
                      .stream = STREAM_ep,
                      .axes = dp,
                      .match = 5,
                      .in = in,
                      .out = swapped});
    for (uint64_t seed = 0; seed < 20; seed++) {
        Backend *b = open_plan((BackendOptions){.poison = true, .order_seed = seed});
        number_inputs(b, in, 4);
        assert_true(step(b));
        for (Rank r = 0; r < 4; r++) {
            /* the first rank of this rank's tp group, and of its dp group */
            Rank t0 = r / 2 * 2, d0 = r % 2;
            for (int64_t i = 0; i < 16; i++)
                assert_true(out(b, r, gathered, i) == 10.0 * (double)(i / 4) + (double)(i % 4));
            for (int64_t i = 0; i < 2; i++)
                assert_true(out(b, r, scattered, i) ==
                            10.0 * (t0 + t0 + 1) + 2.0 * (double)(2 * (r % 2) + i));
            for (int64_t i = 0; i < 4; i++) {
                assert_true(out(b, r, sum, i) == 10.0 * (d0 + d0 + 2) + 2.0 * (double)i);
                assert_true(out(b, r, most, i) == 30.0 + (double)i);
                /* this rank's block from rank d0, then from rank d0 + 2 */
                assert_true(out(b, r, swapped, i) ==
                            10.0 * (double)(d0 + 2 * (i / 2)) + (double)(2 * (r / 2) + i % 2));
            }
        }
        assert_int_equal(b->highest_touched(b, 3, SPACE_device), synthetic_program(&syn)->bytes);
        b->close(b);
    }
}

/* Makes a program in which each of four ranks sends to the next one, and then receives on
 * `receives`. */
static void make_ring(Stream receives, BufferId *in, BufferId *got)
{
    make_mesh(&syn, 4, 1);
    make_program(&syn);
    const AxisSet dp = axis(&syn, AXIS_dp_shard);
    *in = buffer(&syn, 4, DT_f64, true), *got = buffer(&syn, 4, DT_f64, true);
    make(&syn, (Make){.op = OP_send,
                      .stream = STREAM_pp_forward,
                      .axes = dp,
                      .hop = 1,
                      .match = 1,
                      .in = *in});
    make(&syn,
         (Make){.op = OP_recv, .stream = receives, .axes = dp, .hop = -1, .match = 1, .out = *got});
}

/* Each rank of a ring sends to the next one. */
static void receives_get_what_was_sent(void **state)
{
    (void)state;
    BufferId in, got;
    make_ring(STREAM_pp_backward, &in, &got);
    Backend *b = open_plan((BackendOptions){.order_seed = 9});
    number_inputs(b, in, 4);
    assert_true(step(b));
    for (Rank r = 0; r < 4; r++) assert_true(out(b, r, got, 1) == 10.0 * ((r + 3) % 4) + 1);
    b->close(b);
}

/* Each rank of a ring sends before it receives, on one stream. A send completes only with its
 * receive, so all ranks wait for each other. */
static void a_ring_of_sends_on_one_stream_deadlocks(void **state)
{
    (void)state;
    BufferId in, got;
    make_ring(STREAM_pp_forward, &in, &got);
    Backend *b = open_plan((BackendOptions){.order_seed = 0});
    assert_false(step(b));
    assert_true(has("error[deadlock]: rank 2 is at instruction 1"));
    assert_true(has("waits at match 1 for rank 3 (not yet at its instruction 2)"));
    b->close(b);
}

/* Sums must be ((a + b) + c) + d. With these four numbers, any other order gives another result. */
static void sums_are_in_rank_order(void **state)
{
    (void)state;
    const float x[4] = {1.0f, 1e8f, -1e8f, 3.0f};
    make_mesh(&syn, 4, 1);
    make_program(&syn);
    AxisSet dp = axis(&syn, AXIS_dp_shard);
    BufferId in = buffer(&syn, 700, DT_f32, true), sum = buffer(&syn, 700, DT_f32, true);
    BufferId part = buffer(&syn, 175, DT_f32, true);
    make(&syn, (Make){.op = OP_all_reduce,
                      .stream = STREAM_dp_reduce,
                      .axes = dp,
                      .match = 1,
                      .reduce = REDUCE_sum,
                      .in = in,
                      .out = sum});
    make(&syn, (Make){.op = OP_reduce_scatter,
                      .stream = STREAM_tp,
                      .axes = dp,
                      .match = 2,
                      .reduce = REDUCE_sum,
                      .in = in,
                      .out = part});
    Backend *b = open_plan((BackendOptions){.order_seed = 2});
    for (Rank r = 0; r < 4; r++)
        for (int i = 0; i < 700; i++) ((float *)b->memory(b, r, in))[i] = x[(r + (Rank)i) % 4];
    assert_true(step(b));
    for (int i = 0; i < 700; i++) {
        volatile float s = x[i % 4];
        for (int r = 1; r < 4; r++) s = s + x[(r + i) % 4];
        for (Rank r = 0; r < 4; r++) assert_true(((float *)b->memory(b, r, sum))[i] == s);
        assert_true(((float *)b->memory(b, (Rank)i / 175, part))[i % 175] == s);
    }
    b->close(b);
}

/* Rank 0 starts A and then B; rank 1 starts B and then A. The report must name both. */
static void crossed(uint32_t launch)
{
    make_mesh(&syn, 2, 1);
    AxisSet dp = axis(&syn, AXIS_dp_shard);
    for (uint32_t k = 0; k < 2; k++) {
        make_program(&syn);
        BufferId in = buffer(&syn, 4, DT_f64, true), a = buffer(&syn, 4, DT_f64, true);
        BufferId b = buffer(&syn, 4, DT_f64, true);
        for (uint32_t i = 0; i < 2; i++) {
            bool is_a = i == k;
            make(&syn, (Make){.op = OP_all_reduce,
                              .stream = STREAM_dp_reduce,
                              .axes = dp,
                              .match = is_a ? 1 : 2,
                              .launch = launch,
                              .reduce = REDUCE_sum,
                              .in = in,
                              .out = is_a ? a : b});
        }
        syn.plan->program_of[k] = k;
    }
}

static void launch_groups_start_together(void **state)
{
    (void)state;
    crossed(7);
    for (uint64_t seed = 0; seed < 10; seed++) {
        Backend *b = open_plan((BackendOptions){.order_seed = seed});
        number_inputs(b, 1, 4);
        assert_true(step(b));
        assert_true(out(b, 0, 2, 1) == 12 && out(b, 1, 3, 1) == 12);
        b->close(b);
    }
    crossed(0);
    Backend *b = open_plan((BackendOptions){.order_seed = 1});
    assert_false(step(b));
    assert_true(has("rank 0 is at instruction 1"));
    assert_true(has("waits at match 1 for rank 1 (not yet at its instruction 2)"));
    assert_true(has("rank 1 is at instruction 1"));
    b->close(b);
}

/* One program has a communication that the other one lacks. */
static void a_missing_member_is_named(void **state)
{
    (void)state;
    make_mesh(&syn, 2, 1);
    for (uint32_t k = 0; k < 2; k++) {
        make_program(&syn);
        BufferId x = buffer(&syn, 4, DT_f64, true), y = buffer(&syn, 4, DT_f64, true);
        Pc first =
            make(&syn, (Make){.op = OP_fill, .stream = STREAM_compute, .out = x, .scale = 1});
        if (k == 0)
            make(&syn, (Make){.op = OP_all_reduce,
                              .stream = STREAM_dp_reduce,
                              .axes = axis(&syn, AXIS_dp_shard),
                              .match = 1,
                              .reduce = REDUCE_sum,
                              .in = x,
                              .out = y,
                              .after = first});
        syn.plan->program_of[k] = k;
    }
    Backend *b = open_plan((BackendOptions){.order_seed = 4});
    assert_false(step(b));
    assert_true(has("error[deadlock]: rank 0 is at instruction 2"));
    assert_true(has("for rank 1 (whose program has none)"));
    b->close(b);
}

/* Counts wrong results over many interleavings. The communication reads the kernel's output. If it
 * does not wait for the kernel, some interleavings give a wrong result. */
static uint32_t wrong_results(bool waits)
{
    make_mesh(&syn, 2, 1);
    make_program(&syn);
    BufferId x = buffer(&syn, 4, DT_f64, false), y = buffer(&syn, 4, DT_f64, true);
    Pc first = make(&syn, (Make){.op = OP_fill, .stream = STREAM_compute, .out = x, .scale = 3});
    make(&syn, (Make){.op = OP_all_reduce,
                      .stream = STREAM_dp_reduce,
                      .axes = axis(&syn, AXIS_dp_shard),
                      .match = 1,
                      .reduce = REDUCE_sum,
                      .in = x,
                      .out = y,
                      .after = waits ? first : 0});
    uint32_t wrong = 0;
    for (uint64_t seed = 1; seed <= 64; seed++) {
        Backend *b = open_plan((BackendOptions){.poison = true, .order_seed = seed});
        assert_true(step(b));
        wrong += out(b, 0, y, 0) != 6 || out(b, 1, y, 3) != 6;
        b->close(b);
    }
    return wrong;
}

static void some_interleaving_shows_a_race(void **state)
{
    (void)state;
    assert_int_equal(wrong_results(true), 0);
    uint32_t wrong = wrong_results(false);
    assert_true(wrong > 8 && wrong < 64);
}

/* A buffer is overwritten while a communication still reads its old value. Some interleaving must
 * give a wrong result. */
static void overwriting_under_a_reader_is_a_race(void **state)
{
    (void)state;
    make_mesh(&syn, 2, 1);
    make_program(&syn);
    BufferId x = buffer_at(&syn, 4, DT_f64, false, 0), y = buffer_at(&syn, 4, DT_f64, true, 256);
    BufferId reused = buffer_at(&syn, 4, DT_f64, false, 0);
    Pc first = make(&syn, (Make){.op = OP_fill, .stream = STREAM_compute, .out = x, .scale = 3});
    make(&syn, (Make){.op = OP_all_reduce,
                      .stream = STREAM_dp_reduce,
                      .axes = axis(&syn, AXIS_dp_shard),
                      .match = 1,
                      .reduce = REDUCE_sum,
                      .in = x,
                      .out = y,
                      .after = first});
    make(&syn, (Make){.op = OP_fill, .stream = STREAM_compute, .out = reused, .scale = 5});
    uint32_t wrong = 0;
    for (uint64_t seed = 1; seed <= 64; seed++) {
        Backend *b = open_plan((BackendOptions){.order_seed = seed});
        assert_true(step(b));
        wrong += out(b, 0, y, 0) != 6;
        b->close(b);
    }
    assert_true(wrong > 8 && wrong < 64);
}

static void dead_buffers_are_poisoned(void **state)
{
    (void)state;
    make_mesh(&syn, 1, 1);
    make_program(&syn);
    BufferId x = buffer(&syn, 5, DT_f32, false), y = buffer(&syn, 5, DT_f32, true);
    Pc first = make(&syn, (Make){.op = OP_fill, .stream = STREAM_compute, .out = x, .scale = 2});
    make(&syn, (Make){.op = OP_copy, .stream = STREAM_compute, .in = x, .out = y, .after = first});
    synthetic_program(&syn)->bytes += 100; /* no instruction touches these */
    Backend *b = open_plan((BackendOptions){.poison = true});
    assert_true(step(b));
    const float *dead = b->memory(b, 0, x), *alive = b->memory(b, 0, y);
    for (int i = 0; i < 5; i++) assert_true(isnan(dead[i]) && alive[i] == 2);
    assert_int_equal(b->highest_touched(b, 0, SPACE_device), synthetic_program(&syn)->bytes - 100);
    /* A write of one byte beyond the arena is reported. */
    ((char *)b->memory(b, 0, x))[synthetic_program(&syn)->bytes + 3] = 1;
    assert_false(step(b));
    assert_true(has("error[arena-overrun]: rank 0 wrote up to byte"));
    b->close(b);
}

static bool opens(void)
{
    Backend *b = backend_loopback(arena);
    BackendOptions options = {.order_seed = 0};
    bool fine = b->open(b, syn.plan, &options, &diag);
    b->close(b);
    return fine;
}

static void refused(void **state)
{
    (void)state;
    make_mesh(&syn, 2, 1);
    make_program(&syn);
    BufferId half = buffer(&syn, 4, DT_bf16, true), wide = buffer(&syn, 4, DT_f64, true);
    make(&syn, (Make){.op = OP_silu, .stream = STREAM_compute, .in = half, .out = wide});
    assert_false(opens());
    assert_true(has("error[backend-dtype]"));
    assert_true(has("use fp64 for all of precision.param, compute and reduce, or for none"));
    assert_int_equal(diag_exit_code(&diag), 3);
    diag = diag_in(arena);
    make_mesh(&syn, 2, 1);
    make_program(&syn);
    make(&syn, (Make){.op = OP_all_reduce,
                      .stream = STREAM_tp,
                      .axes = axis(&syn, AXIS_dp_shard),
                      .match = 1,
                      .reduce = REDUCE_sum,
                      .in = buffer(&syn, 4, DT_i32, true),
                      .out = buffer(&syn, 4, DT_i32, true)});
    assert_false(opens());
    assert_true(has("reduces floating-point types only"));
    make_mesh(&syn, 2, 1);
    make_program(&syn);
    make(&syn, (Make){.op = OP_all_gather,
                      .stream = STREAM_tp,
                      .axes = axis(&syn, AXIS_dp_shard),
                      .match = 1,
                      .in = buffer(&syn, 4, DT_f32, true),
                      .out = buffer(&syn, 7, DT_f32, true)});
    assert_false(opens());
    assert_true(has("its output is not as large as its parts together"));
    make_mesh(&syn, 2, 1);
    /* the ranks meet in one communication, but with different operations */
    for (uint32_t k = 0; k < 2; k++) {
        make_program(&syn);
        BufferId x = buffer(&syn, 4, DT_f32, true), y = buffer(&syn, 4, DT_f32, true);
        make(&syn, (Make){.op = OP_all_reduce,
                          .stream = STREAM_tp,
                          .axes = axis(&syn, AXIS_dp_shard),
                          .match = 1,
                          .reduce = k ? REDUCE_max : REDUCE_sum,
                          .in = x,
                          .out = y});
        syn.plan->program_of[k] = k;
    }
    assert_false(opens());
    assert_true(has("match 1 is something else on rank 0"));
}

static void poison_is_found(void **state)
{
    (void)state;
    double room[16];
    float low, high;
    unsigned char *at = (unsigned char *)room;
    poison_fill(room, sizeof room);
    assert_true(isnan(room[3]));
    memcpy(&low, &at[40], 4);
    memcpy(&high, &at[44], 4);
    assert_true(isnan(low) && isnan(high));
    assert_int_equal(poison_end(room, 0, sizeof room), 0);
    assert_int_equal(poison_end(room, 24, 99), 24);
    for (uint64_t i = 0; i < sizeof room; i++) {
        at[i] ^= 1;
        assert_int_equal(poison_end(room, 0, sizeof room), i + 1);
        assert_int_equal(poison_end(room, i, sizeof room), i + 1);
        assert_int_equal(poison_end(room, i + 1, sizeof room), i + 1);
        assert_int_equal(poison_end(room, 0, i), 0);
        at[i] ^= 1;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(collectives_have_their_results, setup, teardown),
        cmocka_unit_test_setup_teardown(receives_get_what_was_sent, setup, teardown),
        cmocka_unit_test_setup_teardown(a_ring_of_sends_on_one_stream_deadlocks, setup, teardown),
        cmocka_unit_test_setup_teardown(sums_are_in_rank_order, setup, teardown),
        cmocka_unit_test_setup_teardown(launch_groups_start_together, setup, teardown),
        cmocka_unit_test_setup_teardown(a_missing_member_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(some_interleaving_shows_a_race, setup, teardown),
        cmocka_unit_test_setup_teardown(overwriting_under_a_reader_is_a_race, setup, teardown),
        cmocka_unit_test_setup_teardown(dead_buffers_are_poisoned, setup, teardown),
        cmocka_unit_test_setup_teardown(refused, setup, teardown),
        cmocka_unit_test(poison_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
