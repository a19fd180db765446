/* Pipeline schedules. Their makespans and activation peaks must equal closed forms, with F = 1 and
 * B = 2 = I + W; the chunks of a rank share these times. Wrong schedules must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/passes/schedule/schedule.h"
#include "tests/support/test_arena.h"

/* The end of each cell's F and of its input gradient, in quarters of a unit. This is exact for 1, 2
 * and 4 chunks. */
typedef struct Played {
    /* forward and backward are arrays [cell]. first and last are the first start and the last end
     * of each [rank]. */
    uint32_t *forward, *backward, *first, *last;
    uint32_t makespan;
} Played;

static uint32_t quarters(ActionKind kind, uint32_t chunks)
{
    return (kind == ACTION_B ? 8 : 4) / chunks;
}

/* Returns the time at which all inputs of the action exist, or UINT32_MAX if they do not exist
 * yet. */
static uint32_t ready(const Schedule *s, const Played *p, const Action *a)
{
    uint32_t m = s->n_microbatches, at = a->stage * m + a->microbatch, when = 0;
    if (a->kind == ACTION_F)
        return a->stage == 0 ? 0 : p->forward[at - m] ? p->forward[at - m] : UINT32_MAX;
    if (a->kind == ACTION_W) return p->backward[at] ? p->backward[at] : UINT32_MAX;
    if (!p->forward[at]) return UINT32_MAX;
    when = p->forward[at];
    if (a->stage + 1 == s->n_stages) return when;
    if (!p->backward[at + m]) return UINT32_MAX;
    return p->backward[at + m] > when ? p->backward[at + m] : when;
}

static Played play(const Schedule *s, uint32_t chunks)
{
    size_t n = (size_t)s->n_stages * s->n_microbatches;
    Played p = {arena_array(arena, n, 4), arena_array(arena, n, 4),
                arena_array(arena, s->n_ranks, 4), arena_array(arena, s->n_ranks, 4), 0};
    uint32_t *at = arena_array(arena, s->n_ranks, 4), *clock = arena_array(arena, s->n_ranks, 4);
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t r = 0; r < s->n_ranks; r++)
            while (at[r] < s->of[r].n) {
                const Action *a = &s->of[r].at[at[r]];
                uint32_t from = ready(s, &p, a);
                if (from == UINT32_MAX) break;
                clock[r] = (from > clock[r] ? from : clock[r]) + quarters(a->kind, chunks);
                if (at[r] == 0) p.first[r] = clock[r] - quarters(a->kind, chunks);
                p.last[r] = clock[r];
                uint32_t *end = a->kind == ACTION_F ? p.forward : p.backward;
                if (a->kind != ACTION_W)
                    end[a->stage * s->n_microbatches + a->microbatch] = clock[r];
                if (clock[r] > p.makespan) p.makespan = clock[r];
                at[r]++;
                moved = true;
            }
    }
    return p;
}

static double makespan(ScheduleKind kind, uint32_t p, uint32_t chunks, uint32_t m)
{
    Schedule s;
    Diag d = diag_in(arena);
    ScheduleLocs here = {.loc = {"schedule.lua", 1}};
    schedule_make(&s, kind, p, chunks, m, arena);
    assert_true(schedule_check(&s, &here, arena, &d));
    return play(&s, chunks).makespan / 4.0;
}

static void makespans_equal_the_published_ones(void **state)
{
    (void)state;
    assert_true(makespan(SCHEDULE_gpipe, 4, 1, 8) == 33);
    assert_true(makespan(SCHEDULE_1f1b, 4, 1, 8) == 33);
    assert_true(makespan(SCHEDULE_interleaved_1f1b, 4, 2, 8) == 28.5);
    assert_true(makespan(SCHEDULE_interleaved_1f1b, 4, 4, 8) == 26.25);
    assert_true(makespan(SCHEDULE_zb_h1, 4, 1, 8) == 27);
    assert_true(makespan(SCHEDULE_gpipe, 8, 1, 32) == 117);
    assert_true(makespan(SCHEDULE_1f1b, 8, 1, 32) == 117);
    assert_true(makespan(SCHEDULE_interleaved_1f1b, 8, 2, 32) == 106.5);
    assert_true(makespan(SCHEDULE_interleaved_1f1b, 8, 4, 32) == 101.25);
    assert_true(makespan(SCHEDULE_zb_h1, 8, 1, 32) == 103);
    assert_true(makespan(SCHEDULE_greedy_v, 4, 2, 8) == 25.5);
    assert_true(makespan(SCHEDULE_greedy_v, 8, 2, 32) == 99.5);
}

/* A step takes longer than its work: by (p-1)(F+B) with GPipe and 1F1B, by 1/v of this if stages
 * are interleaved, and by (p-1)(F+B-2W) with ZB-H1. */
static void makespans_equal_closed_forms(void **state)
{
    (void)state;
    for (uint32_t p = 2; p <= 8; p++)
        for (uint32_t m = p; m <= 4 * p; m += p) {
            assert_true(makespan(SCHEDULE_gpipe, p, 1, m) == 3.0 * m + 3.0 * (p - 1));
            assert_true(makespan(SCHEDULE_1f1b, p, 1, m) == 3.0 * m + 3.0 * (p - 1));
            assert_true(makespan(SCHEDULE_interleaved_1f1b, p, 2, m) == 3.0 * m + 1.5 * (p - 1));
            if (m >= 2 * p) assert_true(makespan(SCHEDULE_zb_h1, p, 1, m) == 3.0 * m + (p - 1));
            assert_true(makespan(SCHEDULE_greedy_v, p, 2, m) == 3.0 * m + 0.5 * (p - 1));
            if (m < 2 * p) continue;
            assert_true(makespan(SCHEDULE_zb_v, p, 2, m) == 3.0 * m + 0.5 * (p - 1));
            assert_true(makespan(SCHEDULE_dualpipe_v, p, 2, m) == 3.0 * m + 0.5 * (p - 1));
        }
}

/* With ZB-V, no rank idles between its first and its last action. The makespan is longer than the
 * work only by the time until the first micro-batch reaches the rank. */
static void zb_v_has_no_bubble(void **state)
{
    (void)state;
    for (uint32_t p = 2; p <= 8; p++)
        for (uint32_t m = 2 * p; m <= 4 * p; m++) {
            Schedule s;
            schedule_make(&s, SCHEDULE_zb_v, p, 2, m, arena);
            Played played = play(&s, 2);
            for (uint32_t r = 0; r < p; r++) {
                assert_int_equal(s.of[r].n, 6 * m);
                assert_int_equal(played.first[r], 2 * r);
                assert_int_equal(played.last[r] - played.first[r], 6 * 2 * m);
            }
        }
}

/* Returns the largest number of forward actions, in chunks, whose backward (or separate weight
 * gradient) has not run yet. */
static uint32_t most_alive(const Schedule *s, uint32_t rank)
{
    uint32_t alive = 0, most = 0;
    for (uint32_t i = 0; i < s->of[rank].n; i++) {
        ActionKind kind = s->of[rank].at[i].kind;
        alive += kind == ACTION_F;
        if (alive > most) most = alive;
        alive -= kind == ACTION_B || kind == ACTION_W;
    }
    return most;
}

static void activation_peaks_equal_closed_forms(void **state)
{
    (void)state;
    for (uint32_t p = 2; p <= 8; p++) {
        uint32_t m = 4 * p;
        Schedule s;
        for (uint32_t r = 0; r < p; r++) {
            schedule_make(&s, SCHEDULE_gpipe, p, 1, m, arena);
            assert_int_equal(most_alive(&s, r), m);
            schedule_make(&s, SCHEDULE_1f1b, p, 1, m, arena);
            assert_int_equal(most_alive(&s, r), p - r);
            schedule_make(&s, SCHEDULE_interleaved_1f1b, p, 3, m, arena);
            assert_int_equal(most_alive(&s, r), 2 * (p - r - 1) + 2 * p + 1);
            schedule_make(&s, SCHEDULE_zb_h1, p, 1, m, arena);
            assert_int_equal(most_alive(&s, r), p);
            /* From here on, an activation is that of half a stage. */
            schedule_make(&s, SCHEDULE_zb_v, p, 2, m, arena);
            assert_int_equal(most_alive(&s, r), 2 * p);
            schedule_make(&s, SCHEDULE_greedy_v, p, 2, m, arena);
            assert_int_equal(most_alive(&s, r), 2 * p);
            /* This schedule keeps one more half stage than 2p. */
            schedule_make(&s, SCHEDULE_dualpipe_v, p, 2, m, arena);
            assert_int_equal(most_alive(&s, r), 2 * p + 1);
            assert_int_equal(schedule_peak(&s, r), 2 * p + 1);
        }
    }
}

/* Each schedule runs under its published cap of activations, but not under a smaller cap. */
static void schedules_run_under_their_published_caps(void **state)
{
    (void)state;
    for (uint32_t p = 2; p <= 8; p++) {
        uint32_t m = 4 * p;
        const struct {
            ScheduleKind kind;
            uint32_t chunks, cap;
        } rows[] = {{SCHEDULE_gpipe, 1, m},
                    {SCHEDULE_1f1b, 1, p},
                    {SCHEDULE_interleaved_1f1b, 2, 2 * (p - 1) + p + 1},
                    {SCHEDULE_zb_h1, 1, p},
                    {SCHEDULE_zb_v, 2, 2 * p},
                    {SCHEDULE_dualpipe_v, 2, 2 * p + 1},
                    {SCHEDULE_v_half, 2, p == 2 ? 4 : p + p % 2},
                    {SCHEDULE_greedy_v, 2, 2 * p}};
        _Static_assert(sizeof rows / sizeof rows[0] == SCHEDULE_COUNT, "each schedule");
        for (int i = 0; i < SCHEDULE_COUNT; i++) {
            Schedule s;
            schedule_make(&s, rows[i].kind, p, rows[i].chunks, m, arena);
            assert_true(schedule_runs_under(&s, rows[i].cap, arena));
            assert_false(schedule_runs_under(&s, rows[i].cap - 1, arena));
        }
    }
}

/* V-half keeps half of 1F1B's activations and has at most 0.75 of its bubble, for any number of
 * micro-batches. */
static void v_half_has_a_smaller_bubble_than_1f1b(void **state)
{
    (void)state;
    for (uint32_t p = 3; p <= 8; p++)
        for (uint32_t m = p; m <= 6 * p; m += p) {
            double bubble = makespan(SCHEDULE_v_half, p, 2, m) - 3.0 * m;
            assert_true(bubble < 0.75 * 3.0 * (p - 1));
            if (p != 4) assert_true(bubble < 0.6 * 3.0 * (p - 1));
        }
}

/* The greedy rule gets stuck if a rank may keep only p or p + 2 activations of half a stage. With
 * 2p it ends. */
static void the_greedy_rule_needs_enough_activations(void **state)
{
    (void)state;
    Schedule s;
    for (uint32_t p = 4; p <= 8; p += 4) {
        uint32_t m = 4 * p;
        assert_false(schedule_greedy(&s, p, p, m, arena));
        assert_false(schedule_greedy(&s, p, p + 2, m, arena));
        assert_true(schedule_greedy(&s, p, 2 * p, m, arena));
        uint32_t least = schedule_greedy_least(p, m, arena);
        assert_true(least > p + 2 && least <= 2 * p);
        assert_false(schedule_greedy(&s, p, least - 1, m, arena));
        assert_true(schedule_greedy(&s, p, least, m, arena));
        assert_true(schedule_runs_under(&s, least, arena));
    }
}

static void every_schedule_ends(void **state)
{
    (void)state;
    for (uint32_t p = 1; p <= 8; p++)
        for (uint32_t m = 1; m < 20; m++) {
            makespan(SCHEDULE_gpipe, p, 1, m);
            makespan(SCHEDULE_1f1b, p, 1, m);
            makespan(SCHEDULE_zb_h1, p, 1, m);
            if (m % p == 0) makespan(SCHEDULE_interleaved_1f1b, p, 2, m);
            makespan(SCHEDULE_zb_v, p, 2, m);
            makespan(SCHEDULE_greedy_v, p, 2, m);
            if (p > 1) makespan(SCHEDULE_v_half, p, 2, m);
            if (m >= 2 * p) makespan(SCHEDULE_dualpipe_v, p, 2, m);
        }
}

static void wrong_schedules_are_refused(void **state)
{
    (void)state;
    const ScheduleLocs where = {.loc = {"schedule.lua", 7}}, *here = &where;
    Schedule s;
    Diag d = diag_in(arena);
    schedule_make(&s, SCHEDULE_1f1b, 2, 1, 2, arena);
    Action swapped = s.of[1].at[0];
    /* the backward action comes before the forward one */
    s.of[1].at[0] = s.of[1].at[1], s.of[1].at[1] = swapped;
    assert_false(schedule_check(&s, here, arena, &d));
    assert_string_equal(d.items.at[0].rule, "schedule-stuck");
    assert_non_null(strstr(d.items.at[0].text, "rank 0"));
    assert_string_equal(
        d.items.at[0].hint,
        "B0.0 on rank 0 waits for I1.0 on rank 1; B1.0 on rank 1 waits for F1.0 on rank 1");
    schedule_make(&s, SCHEDULE_gpipe, 2, 1, 2, arena);
    s.of[0].n--; /* the last backward is missing */
    assert_false(schedule_check(&s, here, arena, &d));
    assert_string_equal(d.items.at[1].rule, "schedule-incomplete");
    schedule_make(&s, SCHEDULE_gpipe, 2, 1, 2, arena);
    s.of[0].at[1] = s.of[0].at[0]; /* the same action occurs twice */
    assert_false(schedule_check(&s, here, arena, &d));
    assert_string_equal(d.items.at[2].rule, "schedule-incomplete");
    schedule_make(&s, SCHEDULE_gpipe, 2, 1, 5, arena);
    s.of[0].at[1].stage = 2;
    assert_false(schedule_check(&s, here, arena, &d));
    assert_non_null(strstr(d.items.at[3].text, "but there are only stages 0 to 1"));
    schedule_make(&s, SCHEDULE_gpipe, 2, 1, 5, arena);
    s.of[0].at[1].microbatch = 5;
    assert_false(schedule_check(&s, here, arena, &d));
    assert_non_null(strstr(d.items.at[4].text, "but there are only micro-batches 0 to 4"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, test_arena_setup, test_arena_teardown)
    const struct CMUnitTest tests[] = {TEST(makespans_equal_the_published_ones),
                                       TEST(makespans_equal_closed_forms),
                                       TEST(zb_v_has_no_bubble),
                                       TEST(activation_peaks_equal_closed_forms),
                                       TEST(schedules_run_under_their_published_caps),
                                       TEST(v_half_has_a_smaller_bubble_than_1f1b),
                                       TEST(the_greedy_rule_needs_enough_activations),
                                       TEST(every_schedule_ends),
                                       TEST(wrong_schedules_are_refused)};
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
