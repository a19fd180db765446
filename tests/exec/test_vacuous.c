/* `--verify` must be able to fail. A comparison without values to compare would always pass. So
 * every batch must have labels that count. The one-rank run must have gradients and all values that
 * are compared. A run in low precision whose results are mostly rounding error fails, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "exec/exec.h"
#include "tests/support/corpus/corpus.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_diag.h"

enum { VOCAB = 29, MOST_LABELS = 8 * 16 };

static int64_t kept(const DataSource *data, int64_t step, uint32_t microbatch, int64_t n,
                    int64_t seq)
{
    int32_t tokens[MOST_LABELS], labels[MOST_LABELS];
    int64_t count = 0;
    assert_true(n * seq <= MOST_LABELS);
    data->fill(data->self, step, microbatch, 0, n, seq, tokens, labels);
    for (int64_t i = 0; i < n * seq; i++) count += labels[i] >= 0;
    return count;
}

/* This holds for every seed. Later micro-batches are as ragged as real texts. */
static void the_first_two_micro_batches_count(void **state)
{
    (void)state;
    static const int64_t seqs[] = {2, 3, 5, 8, 16};
    uint32_t n_empty = 0, n_full = 0;
    for (uint64_t seed = 0; seed < 200; seed++)
        for (size_t k = 0; k < sizeof seqs / sizeof *seqs; k++)
            for (int64_t n = 1; n <= 8; n++) {
                const DataSource *data = data_ragged(seed, VOCAB, arena);
                int64_t a = kept(data, (int64_t)seed % 3, 0, n, seqs[k]),
                        b = kept(data, (int64_t)seed % 3, 1, n, seqs[k]);
                if (a == 0 || b == 0 || a == b)
                    fail_msg("seed %llu, %lld x %lld: %lld and %lld labels count",
                             (unsigned long long)seed, (long long)n, (long long)seqs[k],
                             (long long)a, (long long)b);
                n_empty += kept(data, 0, 2, n, seqs[k]) == 0;
                n_full += a == n * seqs[k];
            }
    assert_true(n_empty > 1000);               /* more than 1000 of 8000 micro-batches are empty */
    assert_true(n_full > 10 && n_full < 1600); /* some are full, but only few */
}

static void ignore_all(void *self, int64_t step, uint32_t microbatch, int64_t first, int64_t n,
                       int64_t seq, int32_t *tokens, int32_t *labels)
{
    const DataSource *data = self;
    data->fill(data->self, step, microbatch, first, n, seq, tokens, labels);
    memset(labels, 0xff, (size_t)(n * seq) * sizeof *labels);
}

typedef struct Pair {
    Plan *plan, *reference;
    const DataSource *data;
} Pair;

static Pair pair_of(Tiny t)
{
    Tiny one = tiny_one_rank(&t);
    Pair p = {tiny_plan(&t, true, arena, &diag), tiny_plan(&one, true, arena, &diag),
              data_ragged(1, t.vocab, arena)};
    assert_non_null(p.plan);
    assert_non_null(p.reference);
    return p;
}

static bool verify(const Pair *p, Diag *d)
{
    VerifyResult result;
    BackendOptions options = {.poison = true};
    return exec_verify(p->plan, p->reference, p->data, &options, 1e-10, arena, &result, d);
}

static void is_vacuous(const Pair *p, const char *words)
{
    Diag d = diag_in(arena);
    Str s = str_in(arena);
    assert_false(verify(p, &d));
    diag_print(&d, &s);
    for (uint32_t i = 0; i < d.items.n; i++)
        if (strcmp(d.items.at[i].rule, "verify-nothing") == 0 && strstr(d.items.at[i].text, words))
            return;
    fail_msg("no \"%s\" in\n%s", words, str_text(&s));
}

static Tiny sharded(void)
{
    Tiny t = tiny_default();
    t.dp_shard = t.tp = 2;
    return t;
}

static void zero_gradients_prove_nothing(void **state)
{
    (void)state;
    Pair p = pair_of(sharded());
    assert_true(verify(&p, &diag));
    DataSource none = {.self = (void *)(uintptr_t)p.data, .fill = ignore_all};
    p.data = &none;
    is_vacuous(&p, "all gradients of the one-rank run are zero");
}

static void hide(Plan *plan, Category category)
{
    for (uint32_t i = 0; i < plan->programs.n; i++)
        for (BufferId b = 1; b < plan->programs.at[i].buffers.n; b++) {
            Buffer *at = &plan->programs.at[i].buffers.at[b];
            if (at->category == category && at->unit) at->category = CATEGORY_workspace;
        }
}

static void values_missing_in_both_are_not_equal(void **state)
{
    (void)state;
    Pair p = pair_of(sharded());
    /* a gradient that is missing in the plan alone is reported elsewhere */
    hide(p.plan, CATEGORY_gradient);
    assert_false(verify(&p, &diag));
    hide(p.reference, CATEGORY_gradient);
    is_vacuous(&p, "no gradient of");
}

/* Both runs have errors as large as the difference to another model. Then neither can confirm the
 * other. */
static void a_run_that_is_all_rounding_error_fails(void **state)
{
    (void)state;
    Tiny t = sharded(), one = tiny_one_rank(&t);
    Plan *exact = tiny_plan(&one, true, arena, &diag);
    t.compute = one.compute = DT_bf16;
    const Plan *plan = tiny_plan(&t, false, arena, &diag),
               *low = tiny_plan(&one, false, arena, &diag);
    RoundingResult result;
    BackendOptions options = {.poison = true};
    const DataSource *data = data_synthetic(1, t.vocab, 0.1, arena);
    assert_true(exec_verify_rounding(plan, low, exact, data, &options, arena, &result, &diag));
    assert_true(result.gradient_of_one_rank < 0.2);
    exact->step.seed++; /* the same model with other initial weights */
    Diag d = diag_in(arena);
    assert_false(exec_verify_rounding(plan, low, exact, data, &options, arena, &result, &d));
    assert_true(result.gradient_of_one_rank >= 1);
    Str s = str_in(arena);
    diag_print(&d, &s);
    bool told = false;
    for (uint32_t i = 0; i < d.items.n; i++)
        told = told || strcmp(d.items.at[i].rule, "verify-nothing") == 0;
    if (!told) fail_msg("%s", str_text(&s));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, test_diag_setup, test_arena_teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_first_two_micro_batches_count), TEST(zero_gradients_prove_nothing),
        TEST(values_missing_in_both_are_not_equal), TEST(a_run_that_is_all_rounding_error_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
