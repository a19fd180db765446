/* Compares routing with results computed by hand: the experts that each token chooses, their
 * weights and slots, the contents of the slots, and the results that return to the tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/support/ops/eval.h"
#include "tests/support/test_arena.h"

static Value values(DType dtype, uint32_t n_dims, const int64_t *dim, const double *x)
{
    Value v = value_new(arena, dtype, n_dims, dim);
    value_poison(&v);
    for (int64_t i = 0; x && i < value_elements(&v); i++) value_set(&v, i, x[i]);
    return v;
}

#define DIMS(...)                                                                                  \
    (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[])                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define NUMBERS(...)                                                                               \
    (double[])                                                                                     \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static void assert_values(const Value *v, const double *x)
{
    for (int64_t i = 0; i < value_elements(v); i++)
        if (!(fabs(value_get(v, i) - x[i]) < 1e-14))
            fail_msg("element %lld is %.17g, not %.17g", (long long)i, value_get(v, i), x[i]);
}

static void call(OpKind op, const Attrs *attrs, const Value *args, uint32_t n_in)
{
    eval_op(op, attrs, args, n_in, 1, NULL, NULL, 0);
}

static void the_largest_logits_are_chosen(void **state)
{
    (void)state;
    const double logits[] = {1, 3, 2, 0, 2, 2, 2, 2, -5, -1, -1, -3, 0, 7, 5, 7};
    static const struct {
        int64_t k;
        double ids[16];
    } cases[] = {{1, {1, 0, 1, 1}},
                 {2, {1, 2, 0, 1, 1, 2, 1, 3}},
                 {4, {1, 2, 0, 3, 0, 1, 2, 3, 1, 2, 3, 0, 1, 3, 2, 0}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t k = cases[i].k;
        Value z = values(DT_f64, DIMS(2, 2, 4), logits), ids = values(DT_i32, DIMS(2, 2, k), NULL);
        call(OP_topk, &(Attrs){.top_k = k, .experts = 4, .capacity = 2}, (Value[]){z, ids}, 1);
        assert_values(&ids, cases[i].ids);
    }
}

/* Weights depend only on differences, so large logits give the same weights. */
static void weights_are_a_softmax_of_logits(void **state)
{
    (void)state;
    const double all[] = {8.0 / 15, 2.0 / 15}, chosen[] = {0.8, 0.2};
    for (int64_t normalise = 0; normalise < 2; normalise++)
        for (double more = 0; more <= 1000; more += 1000) {
            Value z = values(DT_f64, DIMS(1, 1, 4),
                             NUMBERS(more, more + log(2), more + log(4), more + log(8)));
            Value ids = values(DT_i32, DIMS(1, 1, 2), NUMBERS(3, 1));
            Value weights = values(DT_f64, DIMS(1, 1, 2), NULL);
            call(OP_route, &(Attrs){.normalise = normalise}, (Value[]){z, ids, weights}, 2);
            for (int64_t i = 0; i < 2; i++)
                assert_true(fabs(value_get(&weights, i) - (normalise ? chosen : all)[i]) < 1e-12);
        }
}

/* Two sequences have three tokens each. A token chooses two of three experts. An expert has two
 * slots for each sequence. The third choice of an expert is dropped; choices in the other sequence
 * do not count. */
static const double ids_of[] = {0, 1, 0, 2, 0, 1, 2, 0, 2, 1, 2, 0};
static const double slots_of[] = {0, 2, 1, 4, -1, 3, 4, 0, 5, 2, -1, 1};

static void slots_go_to_the_first_tokens(void **state)
{
    (void)state;
    static const double few[] = {0, 1, -1, 2, -1, -1, 2, 0, -1, 1, -1, -1};
    static const double all[] = {0, 3, 1, 6, 2, 4, 6, 0, 7, 3, 8, 1};
    static const struct {
        int64_t capacity;
        const double *slots;
    } cases[] = {{1, few}, {2, slots_of}, {3, all}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Value ids = values(DT_i32, DIMS(2, 3, 2), ids_of),
              slots = values(DT_i32, DIMS(2, 3, 2), NULL);
        const Attrs attrs = {.top_k = 2, .experts = 3, .capacity = cases[i].capacity};
        call(OP_slots, &attrs, (Value[]){ids, slots}, 1);
        assert_values(&slots, cases[i].slots);
    }
}

/* Rows are [e,b,C,k]. The features of token t of sequence b are 100 b + 10 t + {1, 2}. */
static void tokens_lie_in_their_slots(void **state)
{
    (void)state;
    Value x =
        values(DT_f64, DIMS(2, 3, 2), NUMBERS(1, 2, 11, 12, 21, 22, 101, 102, 111, 112, 121, 122));
    Value slots = values(DT_i32, DIMS(2, 3, 2), slots_of);
    Value rows = values(DT_f64, DIMS(3, 2, 2, 2), NULL);
    const Attrs attrs = {.top_k = 2, .experts = 3, .capacity = 2};
    call(OP_dispatch, &attrs, (Value[]){x, slots, rows}, 2);
    assert_values(&rows, NUMBERS(1, 2, 11, 12, 101, 102, 121, 122, /* slots of expert 0 */
                                 /* expert 1: the last slot is empty */
                                 1, 2, 21, 22, 111, 112, 0, 0, 11, 12, 0, 0, 101, 102, 111, 112));
}

/* Each rank of an axis that shares experts has some of them, in the order of their ids. */
static void a_rank_takes_the_tokens_of_its_experts(void **state)
{
    (void)state;
    Value x = values(DT_f64, DIMS(2, 3, 1), NUMBERS(1, 2, 3, 4, 5, 6));
    Value slots = values(DT_i32, DIMS(2, 3, 2), slots_of);
    Value whole = values(DT_f64, DIMS(3, 2, 2, 1), NULL), rows = whole;
    rows = values(DT_f64, DIMS(2, 2, 2, 1), NULL);
    Binding global;
    const Value unsplit[] = {x, slots, whole};
    const Attrs attrs = {.top_k = 2, .experts = 3, .capacity = 2};
    eval_args(OP_dispatch, &attrs, unsplit, 2, 1, NULL, &global);
    Part part = {.global = &global};
    part.start['e'] = 1;
    eval_op(OP_dispatch, &attrs, (Value[]){x, slots, rows}, 2, 1, &part, NULL, 0);
    assert_values(&rows, NUMBERS(1, 3, 5, 0, 2, 0, 4, 5));
}

static void a_token_gets_the_weighted_sum_of_its_experts(void **state)
{
    (void)state;
    Value slots = values(DT_i32, DIMS(1, 3, 2), NUMBERS(0, 2, -1, 3, -1, -1));
    Value weights = values(DT_f64, DIMS(1, 3, 2), NUMBERS(0.75, 0.25, 0.5, 0.5, 0.9, 0.1));
    Value rows = values(DT_f64, DIMS(2, 1, 2, 2), NUMBERS(4, 8, 1e9, 1e9, 12, 16, 20, -2));
    Value y = values(DT_f64, DIMS(1, 3, 2), NULL);
    call(OP_combine, &(Attrs){.accumulate = 0}, (Value[]){slots, weights, rows, y}, 3);
    assert_values(&y, NUMBERS(0.75 * 4 + 0.25 * 12, 0.75 * 8 + 0.25 * 16, 10, -1, 0, 0));
}

/* A dropped choice gets no gradient and gives none to its token. An empty slot gets none either. */
static void gradients_of_dropped_choices_are_zero(void **state)
{
    (void)state;
    Value slots = values(DT_i32, DIMS(1, 2, 2), NUMBERS(0, 3, -1, 1));
    Value weights = values(DT_f64, DIMS(1, 2, 2), NUMBERS(0.5, 2, 4, 8));
    Value rows = values(DT_f64, DIMS(2, 1, 2, 1), NUMBERS(3, 5, 7, 11));
    Value dy = values(DT_f64, DIMS(1, 2, 1), NUMBERS(10, 100));
    Value drows = values(DT_f64, DIMS(2, 1, 2, 1), NULL),
          dweights = values(DT_f64, DIMS(1, 2, 2), NULL), dx = values(DT_f64, DIMS(1, 2, 1), NULL);
    const Attrs attrs = {.top_k = 2, .experts = 2, .capacity = 2};
    call(OP_combine_grad, &attrs, (Value[]){dy, slots, weights, drows}, 3);
    assert_values(&drows, NUMBERS(5, 800, 0, 20));
    call(OP_combine_weights, &attrs, (Value[]){dy, slots, rows, dweights}, 3);
    assert_values(&dweights, NUMBERS(30, 110, 0, 500));
    call(OP_dispatch_grad, &attrs, (Value[]){drows, slots, dx}, 2);
    assert_values(&dx, NUMBERS(25, 800));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_arena_setup, test_arena_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_largest_logits_are_chosen),
        TEST(weights_are_a_softmax_of_logits),
        TEST(slots_go_to_the_first_tokens),
        TEST(tokens_lie_in_their_slots),
        TEST(a_rank_takes_the_tokens_of_its_experts),
        TEST(a_token_gets_the_weighted_sum_of_its_experts),
        TEST(gradients_of_dropped_choices_are_zero),
    };
    return cmocka_run_group_tests_name("experts", tests, NULL, NULL);
}
