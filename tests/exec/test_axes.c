/* Every plan of the corpus with experts, or with sequences divided over cp, computes the same
 * result as one rank: in fp64 on loopback, per tensor, on every rank. The result does not depend on
 * which ranks hold which experts, or on which tokens are dropped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "exec/exec.h"
#include "tests/support/corpus/corpus.h"

#define TOLERANCE 1e-10

typedef struct Count {
    uint32_t n, failed;
    double worst;
} Count;

static void check(void *self, const Tiny *t)
{
    Count *count = self;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny one = tiny_one_rank(t);
    one.use_float8 = false; /* in fp64, 8-bit scaling changes no value */
    const Plan *plan = tiny_plan(t, true, arena, &d);
    const Plan *reference = plan ? tiny_plan(&one, true, arena, &d) : NULL;
    const DataSource *data = data_ragged(count->n, t->vocab, arena);
    BackendOptions options = {.order_seed = 31 * count->n++, .poison = true, .timeout_s = 20};
    VerifyResult result = {.n_tensors = 0};
    bool fine =
        reference && exec_verify(plan, reference, data, &options, TOLERANCE, arena, &result, &d);
    if (!fine || result.highest_touched != result.predicted_bytes) {
        Str s = str_in(arena);
        diag_print(&d, &s);
        print_error("%s: gradient %g of %s, touched %llu of %llu\n%.2000s\n", corpus_name(t, arena),
                    result.worst_gradient, result.worst_tensor ? result.worst_tensor : "-",
                    (unsigned long long)result.highest_touched,
                    (unsigned long long)result.predicted_bytes, str_text(&s));
        count->failed++;
    }
    if (result.worst_gradient > count->worst) count->worst = result.worst_gradient;
    arena_free(arena);
}

static void compare(void (*corpus)(void (*visit)(void *self, const Tiny *t), void *self),
                    uint32_t n)
{
    Count count = {0, 0, 0};
    corpus(check, &count);
    print_message("%u plans, worst relative difference %g\n", count.n, count.worst);
    assert_int_equal(count.n, n);
    assert_int_equal(count.failed, 0);
}

static void experts_compute_what_one_rank_does(void **state)
{
    (void)state;
    compare(corpus_experts, 117);
}

static void divided_sequences_compute_what_one_rank_does(void **state)
{
    (void)state;
    compare(corpus_context, 223);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_compute_what_one_rank_does),
        cmocka_unit_test(divided_sequences_compute_what_one_rank_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
