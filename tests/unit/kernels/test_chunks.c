/* Ops on parts that are two chunks of a sequence, as in a zigzag. The results of all parts must
 * equal the result of the whole, both element by element and in sums over the parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "planner/base/rng.h"
#include "tests/support/ops/eval.h"

typedef struct Heads {
    int64_t b, s, g, r, E;
    bool causal;
    double drop;
} Heads;

/* Returns the place in the whole sequence of element i of part p of n. The part has chunks p and 2
 * n - 1 - p. */
static int64_t zigzag(int64_t whole, int64_t n, int64_t p, int64_t i)
{
    const int64_t chunk = whole / (2 * n);
    return i < chunk ? p * chunk + i : (2 * n - 1 - p) * chunk + i - chunk;
}

static Part part_of(int64_t whole, int64_t n, int64_t p, const Binding *global)
{
    Part part = {.global = global};
    part.start['s'] = zigzag(whole, n, p, 0);
    part.second['s'] = zigzag(whole, n, p, whole / (2 * n));
    return part;
}

static Value random_value(Arena *arena, uint64_t stream, uint32_t n_dims, const int64_t *dim)
{
    Value v = value_new(arena, DT_f64, n_dims, dim);
    for (int64_t i = 0; i < value_elements(&v); i++)
        value_set(&v, i, rng_normal(21, stream, (uint64_t)i));
    return v;
}

/* Returns the part's rows of a value [b,s,...]. */
static Value rows_of(Arena *arena, const Value *whole, int64_t n, int64_t p)
{
    int64_t dim[MAX_DIMS], row = 1;
    memcpy(dim, whole->dim, sizeof dim);
    dim[1] /= n;
    for (uint32_t d = 2; d < whole->n_dims; d++) row *= dim[d];
    Value v = value_new(arena, DT_f64, whole->n_dims, dim);
    for (int64_t i = 0; i < value_elements(&v); i++) {
        const int64_t b = i / (row * dim[1]), s = i / row % dim[1];
        const int64_t from = (b * whole->dim[1] + zigzag(whole->dim[1], n, p, s)) * row + i % row;
        value_set(&v, i, value_get(whole, from));
    }
    return v;
}

static void check_same(const Value *v, const Value *expected)
{
    for (int64_t i = 0; i < value_elements(v); i++) {
        const double x = value_get(v, i), y = value_get(expected, i);
        if (!(fabs(x - y) <= 1e-12 * (1 + fabs(y))))
            fail_msg("element %d: %.17g, not %.17g", (int)i, x, y);
    }
}

static void add_to(Value *sum, const Value *v)
{
    for (int64_t i = 0; i < value_elements(sum); i++)
        value_set(sum, i, value_get(sum, i) + value_get(v, i));
}

static const Control control = {.step = 5, .seed = 77};

/* ---- attention */

enum { Q, K, V, OUT, LSE, DOUT, DQ, DK, DV, N_VALUES };

static void run_attention(const Attrs *attrs, const Value v[N_VALUES], const Part *part)
{
    const Value forward[] = {v[Q], v[K], v[V], v[OUT], v[LSE]};
    const Value back[] = {v[DOUT], v[Q], v[K], v[V], v[OUT], v[LSE], v[DQ], v[DK], v[DV]};
    eval_op(OP_attention, attrs, forward, 3, 2, part, &control, 1);
    eval_op(OP_attention_grad, attrs, back, 6, 3, part, &control, 1);
}

static void make_values(Arena *arena, const Heads *h, Value v[N_VALUES])
{
    const int64_t of_queries[] = {h->b, h->s, h->g, h->r, h->E};
    const int64_t of_keys[] = {h->b, h->s, h->g, h->E};
    v[Q] = random_value(arena, 1, 5, of_queries);
    v[K] = random_value(arena, 2, 4, of_keys);
    v[V] = random_value(arena, 3, 4, of_keys);
    v[DOUT] = random_value(arena, 4, 5, of_queries);
    v[OUT] = value_new(arena, DT_f64, 5, of_queries);
    v[LSE] = value_new(arena, DT_f64, 4, of_queries);
    v[DQ] = value_new(arena, DT_f64, 5, of_queries);
    v[DK] = value_new(arena, DT_f64, 4, of_keys);
    v[DV] = value_new(arena, DT_f64, 4, of_keys);
}

static void check_attention(const Heads *h, int64_t n)
{
    Arena *arena = arena_new();
    const Attrs attrs = {.scale = 0.3, .causal = h->causal, .drop = h->drop, .site = 3};
    static const int of_rows[] = {OUT, LSE, DQ};
    Value whole[N_VALUES], sum[2];
    Binding global;
    make_values(arena, h, whole);
    const Value forward[] = {whole[Q], whole[K], whole[V], whole[OUT], whole[LSE]};
    (void)eval_args(OP_attention, &attrs, forward, 3, 2, NULL, &global);
    run_attention(&attrs, whole, NULL);
    for (int k = 0; k < 2; k++) {
        sum[k] = value_new(arena, DT_f64, 4, whole[DK].dim);
        for (int64_t i = 0; i < value_elements(&sum[k]); i++) value_set(&sum[k], i, 0);
    }
    for (int64_t p = 0; p < n; p++) {
        const Part part = part_of(h->s, n, p, &global);
        Value v[N_VALUES];
        memcpy(v, whole, sizeof v);
        v[Q] = rows_of(arena, &whole[Q], n, p);
        v[DOUT] = rows_of(arena, &whole[DOUT], n, p);
        for (int k = 0; k < 3; k++)
            v[of_rows[k]] = value_new(arena, DT_f64, whole[of_rows[k]].n_dims,
                                      k == 1 ? (int64_t[]){h->b, h->s / n, h->g, h->r} : v[Q].dim);
        v[DK] = value_new(arena, DT_f64, 4, whole[DK].dim);
        v[DV] = value_new(arena, DT_f64, 4, whole[DV].dim);
        run_attention(&attrs, v, &part);
        for (int k = 0; k < 3; k++) {
            const Value expected = rows_of(arena, &whole[of_rows[k]], n, p);
            check_same(&v[of_rows[k]], &expected);
        }
        add_to(&sum[0], &v[DK]);
        add_to(&sum[1], &v[DV]);
    }
    check_same(&sum[0], &whole[DK]);
    check_same(&sum[1], &whole[DV]);
    arena_free(arena);
}

/* The chunks end inside a tile of queries, at its end, or in the next tile. */
static void attention_in_two_chunks_equals_the_whole(void **state)
{
    (void)state;
    static const Heads shapes[] = {
        {1, 8, 1, 1, 2, true, 0},   {2, 48, 2, 3, 4, true, 0},  {1, 520, 1, 2, 3, true, 0},
        {1, 512, 1, 1, 4, true, 0}, {2, 88, 1, 2, 5, false, 0}, {2, 168, 2, 2, 3, true, 0.3},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int64_t n = 1; n <= 4; n *= 2) check_attention(&shapes[i], n);
}

/* ---- parts of the keys: the queries of part p meet the keys of part p, then of part p - 1, ... */

static Part part_with_keys(int64_t whole, int64_t n, int64_t p, int64_t k, const Binding *global)
{
    Part part = part_of(whole, n, p, global);
    part.start['T'] = zigzag(whole, n, k, 0);
    part.second['T'] = zigzag(whole, n, k, whole / (2 * n));
    return part;
}

static Value zeros(Arena *arena, uint32_t n_dims, const int64_t *dim)
{
    Value v = value_new(arena, DT_f64, n_dims, dim);
    for (int64_t i = 0; i < value_elements(&v); i++) value_set(&v, i, 0);
    return v;
}

/* Runs all hops for the queries of part p, one part of the keys a hop. Adds the gradients of keys
 * to sum [2 * n]. */
static void run_hops(Arena *arena, const Attrs *plain, const Value whole[N_VALUES],
                     const Binding *global, int64_t n, int64_t p, Value *sum)
{
    const int64_t S = whole[Q].dim[1];
    Attrs attrs = *plain;
    Value v[N_VALUES];
    static const int of_rows[] = {OUT, LSE, DQ};
    for (int k = 0; k < N_VALUES; k++) v[k] = rows_of(arena, &whole[k], n, p);
    for (int k = 0; k < 3; k++) value_poison(&v[of_rows[k]]);
    for (int64_t hop = 0; hop < n; hop++) {
        const int64_t from = (p + n - hop) % n;
        const Part part = part_with_keys(S, n, p, from, global);
        const Value keys = rows_of(arena, &whole[K], n, from),
                    values = rows_of(arena, &whole[V], n, from);
        attrs.accumulate = hop ? 3 : 0;
        eval_op(OP_attention_part, &attrs, (Value[]){v[Q], keys, values, v[OUT], v[LSE]}, 3, 2,
                &part, &control, 1);
    }
    for (int64_t hop = 0; hop < n; hop++) {
        const int64_t from = (p + n - hop) % n;
        const Part part = part_with_keys(S, n, p, from, global);
        const Value keys = rows_of(arena, &whole[K], n, from),
                    values = rows_of(arena, &whole[V], n, from);
        attrs.accumulate = hop ? 7 : 6;
        eval_op(OP_attention_part_grad, &attrs,
                (Value[]){v[DOUT], v[Q], keys, values, v[OUT], v[LSE], v[DQ], sum[2 * from],
                          sum[2 * from + 1]},
                6, 3, &part, &control, 1);
    }
    for (int k = 0; k < 3; k++) {
        const Value expected = rows_of(arena, &whole[of_rows[k]], n, p);
        check_same(&v[of_rows[k]], &expected);
    }
}

static void check_hops(const Heads *h, int64_t n)
{
    Arena *arena = arena_new();
    const Attrs attrs = {.scale = 0.3, .causal = h->causal, .drop = h->drop, .site = 3};
    Value whole[N_VALUES], sum[16];
    Binding global;
    make_values(arena, h, whole);
    const Value forward[] = {whole[Q], whole[K], whole[V], whole[OUT], whole[LSE]};
    (void)eval_args(OP_attention, &attrs, forward, 3, 2, NULL, &global);
    run_attention(&attrs, whole, NULL);
    const int64_t dim[] = {h->b, h->s / n, h->g, h->E};
    for (int64_t i = 0; i < 2 * n; i++) sum[i] = zeros(arena, 4, dim);
    for (int64_t p = 0; p < n; p++) run_hops(arena, &attrs, whole, &global, n, p, sum);
    for (int64_t i = 0; i < 2 * n; i++) {
        const Value expected = rows_of(arena, &whole[i % 2 ? DV : DK], n, i / 2);
        check_same(&sum[i], &expected);
    }
    arena_free(arena);
}

static void attention_by_parts_of_the_keys_equals_the_whole(void **state)
{
    (void)state;
    static const Heads shapes[] = {
        {1, 8, 1, 1, 2, true, 0},   {2, 48, 2, 3, 4, true, 0},  {1, 520, 1, 2, 3, true, 0},
        {1, 512, 1, 1, 4, true, 0}, {2, 88, 1, 2, 5, false, 0}, {2, 168, 2, 2, 3, true, 0.3},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int64_t n = 1; n <= 4; n *= 2) check_hops(&shapes[i], n);
}

/* If a query sees no key of a part, the part does not change its output. If there was no part
 * before, the output is zero. */
static void a_part_without_seen_keys_changes_no_output(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Heads h = {1, 6, 1, 2, 3, true, 0};
    Value v[N_VALUES];
    Binding global;
    make_values(arena, &h, v);
    Attrs attrs = {.scale = 0.3, .causal = 1};
    const Value args[] = {v[Q], v[K], v[V], v[OUT], v[LSE]};
    (void)eval_args(OP_attention, &attrs, args, 3, 2, NULL, &global);
    Part behind = {.global = &global};
    behind.start['T'] = h.s;
    eval_op(OP_attention_part, &attrs, args, 3, 2, &behind, &control, 1);
    for (int64_t i = 0; i < value_elements(&v[OUT]); i++) assert_true(value_get(&v[OUT], i) == 0);
    for (int64_t i = 0; i < value_elements(&v[LSE]); i++)
        assert_true(value_get(&v[LSE], i) == -INFINITY);
    attrs.accumulate = 3; /* The output already contains an earlier part of the keys. */
    eval_op(OP_attention_part, &attrs, args, 3, 2, NULL, &control, 1);
    Value expected[N_VALUES];
    make_values(arena, &h, expected);
    attrs.accumulate = 0;
    eval_op(OP_attention, &attrs, (Value[]){v[Q], v[K], v[V], expected[OUT], expected[LSE]}, 3, 2,
            NULL, &control, 1);
    check_same(&v[OUT], &expected[OUT]);
    check_same(&v[LSE], &expected[LSE]);
    attrs.accumulate = 3;
    eval_op(OP_attention_part, &attrs, args, 3, 2, &behind, &control, 1);
    check_same(&v[OUT], &expected[OUT]);
    check_same(&v[LSE], &expected[LSE]);
    arena_free(arena);
}

/* ---- positions */

static void rope_in_two_chunks_equals_the_whole(void **state)
{
    (void)state;
    static const OpKind ops[] = {OP_rope, OP_rope_grad};
    const Attrs attrs = {.theta = 100};
    for (int k = 0; k < 2; k++)
        for (int64_t n = 1; n <= 4; n *= 2) {
            Arena *arena = arena_new();
            const int64_t dim[] = {2, 24, 3, 6};
            Value x = random_value(arena, 1, 4, dim), y = value_new(arena, DT_f64, 4, dim);
            const Value whole[] = {x, y};
            Binding global;
            (void)eval_args(ops[k], &attrs, whole, 1, 1, NULL, &global);
            eval_op(ops[k], &attrs, whole, 1, 1, NULL, &control, 0);
            for (int64_t p = 0; p < n; p++) {
                const Part part = part_of(dim[1], n, p, &global);
                Value v[2] = {rows_of(arena, &x, n, p)};
                v[1] = value_new(arena, DT_f64, 4, v[0].dim);
                eval_op(ops[k], &attrs, v, 1, 1, &part, &control, 0);
                const Value expected = rows_of(arena, &y, n, p);
                check_same(&v[1], &expected);
            }
            arena_free(arena);
        }
}

static void dropout_in_two_chunks_equals_the_whole(void **state)
{
    (void)state;
    const Attrs attrs = {.drop = 0.4, .site = 6};
    for (int64_t n = 1; n <= 4; n *= 2) {
        Arena *arena = arena_new();
        const int64_t dim[] = {2, 24, 3};
        Value x = random_value(arena, 1, 3, dim), y = value_new(arena, DT_f64, 3, dim);
        const Value whole[] = {x, y};
        Binding global;
        (void)eval_args(OP_dropout, &attrs, whole, 1, 1, NULL, &global);
        eval_op(OP_dropout, &attrs, whole, 1, 1, NULL, &control, 2);
        for (int64_t p = 0; p < n; p++) {
            Part part = {.global = &global};
            const unsigned char s = (unsigned char)global.letter[0][1];
            part.start[s] = zigzag(dim[1], n, p, 0);
            part.second[s] = zigzag(dim[1], n, p, dim[1] / (2 * n));
            Value v[2] = {rows_of(arena, &x, n, p)};
            v[1] = value_new(arena, DT_f64, 3, v[0].dim);
            eval_op(OP_dropout, &attrs, v, 1, 1, &part, &control, 2);
            const Value expected = rows_of(arena, &y, n, p);
            check_same(&v[1], &expected);
        }
        arena_free(arena);
    }
}

/* ---- the loss: labels belong to whole sequences, of which a part has some tokens */

static void the_loss_in_two_chunks_equals_the_whole(void **state)
{
    (void)state;
    const Attrs attrs = {.scale = 0.5, .group = 2};
    for (int64_t n = 1; n <= 4; n *= 2) {
        Arena *arena = arena_new();
        const int64_t dim[] = {4, 24};
        enum { TOP, TOTAL, PICKED, LABELS, LOSS, COUNT, DTOTAL, DPICKED, N };
        static const int of_rows[] = {TOP, TOTAL, PICKED, DTOTAL, DPICKED};
        Value w[N];
        double loss = 0, count = 0;
        for (int k = TOP; k <= PICKED; k++) w[k] = random_value(arena, (uint64_t)k, 2, dim);
        w[LABELS] = value_new(arena, DT_i32, 2, dim);
        for (int64_t i = 0; i < value_elements(&w[TOP]); i++) {
            value_set(&w[TOTAL], i, 1 + fabs(value_get(&w[TOTAL], i)));
            value_set(&w[LABELS], i, rng_below(3, 0, (uint64_t)i, 3) == 0 ? -1 : 1);
        }
        w[LOSS] = value_new(arena, DT_f64, 0, NULL), w[COUNT] = value_new(arena, DT_f64, 0, NULL);
        w[DTOTAL] = value_new(arena, DT_f64, 2, dim), w[DPICKED] = value_new(arena, DT_f64, 2, dim);
        eval_op(OP_xent_loss_mean, &attrs, w, 4, 2, NULL, &control, 0);
        eval_op(OP_xent_loss_mean_grad, &attrs,
                (Value[]){w[TOP], w[TOTAL], w[LABELS], w[DTOTAL], w[DPICKED]}, 3, 2, NULL, &control,
                0);
        for (int64_t p = 0; p < n; p++) {
            const Part part = part_of(dim[1], n, p, NULL);
            Value v[N], out[2] = {value_new(arena, DT_f64, 0, NULL), w[COUNT]};
            out[1] = value_new(arena, DT_f64, 0, NULL);
            for (int k = 0; k < 5; k++) v[of_rows[k]] = rows_of(arena, &w[of_rows[k]], n, p);
            const Value forward[] = {v[TOP], v[TOTAL], v[PICKED], w[LABELS], out[0], out[1]};
            eval_op(OP_xent_loss_mean, &attrs, forward, 4, 2, &part, &control, 0);
            loss += value_get(&out[0], 0), count += value_get(&out[1], 0);
            const Value expected[] = {v[DTOTAL], v[DPICKED]};
            const Value got[] = {value_new(arena, DT_f64, 2, v[TOP].dim),
                                 value_new(arena, DT_f64, 2, v[TOP].dim)};
            const Value back[] = {v[TOP], v[TOTAL], w[LABELS], got[0], got[1]};
            eval_op(OP_xent_loss_mean_grad, &attrs, back, 3, 2, &part, &control, 0);
            for (int k = 0; k < 2; k++) check_same(&got[k], &expected[k]);
        }
        assert_true(fabs(loss - value_get(&w[LOSS], 0)) < 1e-12);
        assert_true(fabs(count - value_get(&w[COUNT], 0)) < 1e-12);
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_in_two_chunks_equals_the_whole),
        cmocka_unit_test(attention_by_parts_of_the_keys_equals_the_whole),
        cmocka_unit_test(a_part_without_seen_keys_changes_no_output),
        cmocka_unit_test(rope_in_two_chunks_equals_the_whole),
        cmocka_unit_test(dropout_in_two_chunks_equals_the_whole),
        cmocka_unit_test(the_loss_in_two_chunks_equals_the_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
