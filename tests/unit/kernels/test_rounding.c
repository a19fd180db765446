/* Stochastic rounding of bf16 weights: it is right on average, always gives one of the two
 * neighbours, and depends only on seed, step, unit and the element's place in the unit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/number.h"
#include "planner/verify/verify.h"
#include "tests/support/ops/eval.h"
#include "tests/support/plans/mutate.h"
#include "tests/support/plans/tiny.h"

enum { N = 20000 };

typedef struct Run {
    uint64_t seed;
    int64_t step, site, start;
    bool nearest;
} Run;

/* Rounds weights that were 1 and have each moved by -lr. */
static void update(Run run, double lr, int64_t n, uint16_t *weights)
{
    Arena *arena = arena_new();
    Value p = value_new(arena, DT_bf16, 1, &n), m = value_new(arena, DT_f32, 1, &n);
    Value v = value_new(arena, DT_f32, 1, &n), g = value_new(arena, DT_f32, 1, &n);
    Value clip = value_new(arena, DT_f64, 1, (int64_t[]){2});
    const Attrs attrs = {.stochastic = !run.nearest, .site = run.nearest ? 0 : run.site};
    const Control control = {.step = run.step, .lr = lr, .seed = run.seed};
    Part part = {.start = {['x'] = run.start}};
    Binding local;
    for (int64_t i = 0; i < n; i++) {
        number_write(DT_bf16, p.at, (uint64_t)i, 1);
        value_set(&m, i, 0), value_set(&v, i, 0), value_set(&g, i, 1);
    }
    value_set(&clip, 0, 1), value_set(&clip, 1, 1);
    Value args[] = {p, m, v, g, clip, p, m, v};
    eval_args(OP_adamw, &attrs, args, 5, 3, NULL, &local);
    part.global = &local;
    eval_op(OP_adamw, &attrs, args, 5, 3, &part, &control, 0);
    memcpy(weights, p.at, (size_t)n * sizeof *weights);
    arena_free(arena);
}

static void stochastic_rounding_is_right_on_average(void **state)
{
    (void)state;
    static uint16_t weights[N];
    /* lr is an eighth of the distance from 1 to the next smaller bf16 number. */
    const double lr = 0x1p-11, below = 1 - 0x1p-8;
    uint32_t n_below = 0;
    update((Run){.seed = 5, .step = 2, .site = 1}, lr, N, weights);
    for (uint64_t i = 0; i < N; i++) {
        double x = number_read(DT_bf16, weights, i);
        assert_true(x == 1 || x == below);
        n_below += x == below;
    }
    double sigma = sqrt(N * 0.125 * 0.875);
    assert_true(fabs(n_below - N * 0.125) < 4 * sigma);
    update((Run){.nearest = true}, lr, N, weights);
    for (uint64_t i = 0; i < N; i++) assert_true(number_read(DT_bf16, weights, i) == 1);
}

static void random_numbers_depend_on_the_elements_place(void **state)
{
    (void)state;
    static uint16_t whole[N], part[N], other[N];
    const Run run = {.seed = 5, .step = 2, .site = 1};
    const Run others[] = {{6, 2, 1, 0, false}, {5, 3, 1, 0, false}, {5, 2, 2, 0, false}};
    update(run, 0x1p-10, N, whole);
    for (int64_t cut = 1; cut < N; cut = cut * 5 + 2) {
        Run rest = run;
        rest.start = cut;
        update(run, 0x1p-10, cut, part);
        update(rest, 0x1p-10, N - cut, part + cut);
        assert_memory_equal(part, whole, sizeof whole);
    }
    for (int i = 0; i < 3; i++) {
        uint32_t n_same = 0;
        update(others[i], 0x1p-10, N, other);
        for (int k = 0; k < N; k++) n_same += other[k] == whole[k];
        assert_true(n_same > N / 2 && n_same < N * 3 / 4); /* 5 of 8 agree by chance */
    }
}

/* ---- the proofs ---- */

/* Returns the update of the n-th unit in a plan of bf16 weights, or NULL if the plan has fewer. */
static Attrs *update_of(Plan *plan, uint32_t n, Instr **instr)
{
    Program *p = &plan->programs.at[0];
    for (Pc pc = 1; pc < p->code.n; pc++) {
        *instr = &p->code.at[pc];
        if ((*instr)->op == OP_adamw && n-- == 0) return &plan->graph.attrs.at[(*instr)->attrs];
    }
    return NULL;
}

typedef enum Plant { NOTHING, OTHER_SITE, NEAREST, NO_FLAG, FP32_FLAG } Plant;

/* Returns the verifier's report on a plan with this fault planted in its second update, or "" if
 * the plan passes. */
static const char *verdict(Plant plant, Arena *arena)
{
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.dp_shard = 2;
    t.param = t.compute = plant == FP32_FLAG ? DT_f32 : DT_bf16;
    t.rounding = plant == FP32_FLAG ? ROUNDING_nearest : ROUNDING_stochastic;
    Plan *plan = mutate_copy(tiny_plan(&t, false, arena, &d), arena);
    Instr *first, *second;
    const Attrs *other = update_of(plan, 0, &first);
    Attrs *attrs = update_of(plan, 1, &second);
    assert_true(other != NULL && attrs != NULL && first->unit != second->unit);
    assert_int_equal(attrs->stochastic, plant != FP32_FLAG);
    if (plant == OTHER_SITE) attrs->site = other->site;
    if (plant == NEAREST) attrs->stochastic = attrs->site = 0;
    if (plant == NO_FLAG) attrs->stochastic = 0;
    if (plant == FP32_FLAG) attrs->stochastic = 1, attrs->site = second->unit;
    verify_plan(plan, VERIFY_all, false, &d);
    Str s = str_in(arena);
    diag_print(&d, &s);
    return str_text(&s);
}

static void the_verifier_reports_wrong_rounding(void **state)
{
    (void)state;
    static const struct {
        Plant plant;
        const char *text;
    } cases[] = {
        {OTHER_SITE, "rounds with the random numbers of another unit"},
        {NEAREST, "uses another optimizer than the rest of the model"},
        {NO_FLAG, "has a `site` for random numbers, but does not round stochastically"},
        {FP32_FLAG, "rounds stochastically, but its parameters do not have dtype bf16"},
    };
    Arena *arena = arena_new();
    assert_string_equal(verdict(NOTHING, arena), "");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *said = verdict(cases[i].plant, arena);
        if (!strstr(said, cases[i].text)) fail_msg("no \"%s\" in:\n%s", cases[i].text, said);
    }
    arena_free(arena);
}

/* A comparison has everything in fp64, so no random numbers are drawn. */
static void a_comparison_in_fp64_does_not_round(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.param = t.compute = DT_bf16;
    t.rounding = ROUNDING_stochastic;
    Instr *instr;
    const Attrs *attrs = update_of(mutate_copy(tiny_plan(&t, true, arena, &d), arena), 0, &instr);
    assert_true(attrs != NULL && attrs->stochastic == 0 && attrs->site == 0);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stochastic_rounding_is_right_on_average),
        cmocka_unit_test(random_numbers_depend_on_the_elements_place),
        cmocka_unit_test(the_verifier_reports_wrong_rounding),
        cmocka_unit_test(a_comparison_in_fp64_does_not_round),
    };
    return cmocka_run_group_tests_name("stochastic rounding", tests, NULL, NULL);
}
