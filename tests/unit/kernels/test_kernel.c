/* The CPU kernels are compared with definitions written out as loops: contractions over all their
 * indices, attention with its whole score matrix, norms, rotations and cross-entropy. All are
 * tested in fp64 and fp32. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/exponential.h"
#include "planner/base/rng.h"
#include "planner/ir/graph.h"
#include "tests/support/ops/eval.h"

enum { SEED = 11 };
static const Control no_control = {0};

#define DIMS(...)                                                                                  \
    (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[])              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static double tolerance(DType real)
{
    return real == DT_f64 ? 1e-13 : 3e-5;
}

static Value filled(Arena *arena, DType real, uint64_t stream, uint32_t n, const int64_t *dim)
{
    Value v = value_new(arena, real, n, dim);
    for (int64_t i = 0; i < value_elements(&v); i++)
        value_set(&v, i, rng_normal(SEED, stream, (uint64_t)i));
    return v;
}

static Value ids(Arena *arena, uint64_t stream, int64_t below, uint32_t n, const int64_t *dim)
{
    Value v = value_new(arena, DT_i32, n, dim);
    for (int64_t i = 0; i < value_elements(&v); i++)
        value_set(&v, i, (double)rng_below(SEED, stream, (uint64_t)i, (uint64_t)below));
    return v;
}

static void call(OpKind op, const Attrs *attrs, const Value *args, uint32_t n_in, uint32_t n_out)
{
    eval_op(op, attrs, args, n_in, n_out, NULL, &no_control, 0);
}

static void assert_near(double is, double expected, double scale, DType real)
{
    if (!(fabs(is - expected) <= tolerance(real) * scale))
        fail_msg("%.17g is not %.17g (%s)", is, expected, dtype_name(real));
}

/* ---- contractions */

typedef struct Walk { /* visits all values of all letters of a binding */
    const Binding *b;
    int64_t at['z' + 1];
} Walk;

static bool walk_next(Walk *w)
{
    for (uint32_t l = w->b->n_letters; l-- > 0;) {
        unsigned char letter = (unsigned char)w->b->letters[l];
        if (++w->at[letter] < w->b->size[letter]) return true;
        w->at[letter] = 0;
    }
    return false;
}

static int64_t walk_index(const Walk *w, uint32_t arg)
{
    int64_t i = 0;
    for (uint32_t d = 0; d < w->b->n_dims[arg]; d++) {
        unsigned char letter = (unsigned char)w->b->letter[arg][d];
        i = i * w->b->size[letter] + w->at[letter];
    }
    return i;
}

static int64_t contraction_size(char letter, bool ones)
{
    static const char letters[] = "bskngrevxfcdpqm";
    static const int64_t sizes[] = {2, 5, 17, 9, 3, 2, 4, 7, 6, 3, 8, 4, 3, 4, 5};
    const char *at = strchr(letters, letter);
    assert_non_null(at);
    return ones ? 1 : sizes[at - letters];
}

static void check_contraction(OpKind op, DType real, bool accumulate, bool ones)
{
    Arena *arena = arena_new();
    Diag diag = diag_in(arena);
    const Signature *sig = &op_info(op)->sig;
    Value args[3];
    Dims dims[3];
    for (uint32_t i = 0; i < 3; i++) {
        const SigTerm *term = i < 2 ? &sig->in[i] : &sig->out[0];
        int64_t dim[MAX_DIMS];
        for (int d = 0; d < term->n_dims; d++) dim[d] = contraction_size(term->dim[d].letter, ones);
        args[i] = filled(arena, real, i, term->n_dims, dim);
        dims[i] = (Dims){term->n_dims, args[i].dim};
    }
    Binding b;
    assert_true(op_bind(op, dims, 2, dims + 2, 1, &b, (Loc){0}, &diag));
    double *expected = arena_array(arena, (size_t)value_elements(&args[2]), sizeof *expected);
    for (int64_t i = 0; accumulate && i < value_elements(&args[2]); i++)
        expected[i] = value_get(&args[2], i);
    if (!accumulate) value_poison(&args[2]);
    Walk w = {.b = &b};
    do
        expected[walk_index(&w, 2)] +=
            value_get(&args[0], walk_index(&w, 0)) * value_get(&args[1], walk_index(&w, 1));
    while (walk_next(&w));
    call(op, &(Attrs){.accumulate = accumulate}, args, 2, 1);
    for (int64_t i = 0; i < value_elements(&args[2]); i++)
        assert_near(value_get(&args[2], i), expected[i], 10, real);
    arena_free(arena);
}

static void contractions_equal_their_sums(void **state)
{
    (void)state;
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        if (op_info(op)->class_ != OP_CLASS_contract) continue;
        /* test_kernel_low.c compares these bit for bit. */
        if (op_info(op)->scaling != SCALING_none) continue;
        for (int k = 0; k < 8; k++)
            check_contraction(op, (k & 1) ? DT_f32 : DT_f64, (k & 2) != 0, (k & 4) != 0);
    }
}

/* ---- attention */

typedef struct Heads {
    int64_t B, S, T, G, R, E, start;
    bool causal;
} Heads;

static double score(const Heads *h, const Value *q, const Value *k, int64_t b, int64_t s, int64_t g,
                    int64_t r, int64_t t, double scale)
{
    double sum = 0;
    for (int64_t e = 0; e < h->E; e++)
        sum += value_get(q, (((b * h->S + s) * h->G + g) * h->R + r) * h->E + e) *
               value_get(k, ((b * h->T + t) * h->G + g) * h->E + e);
    return scale * sum;
}

/* Compares one row of queries with the definition. */
static void check_row(const Heads *h, const Value *args, const double *p, double lse, int64_t b,
                      int64_t s, int64_t g, int64_t r, DType real)
{
    int64_t row = ((b * h->S + s) * h->G + g) * h->R + r;
    assert_near(value_get(&args[4], row), lse, 1 + fabs(lse), real);
    for (int64_t e = 0; e < h->E; e++) {
        double y = 0;
        for (int64_t t = 0; t < h->T; t++)
            y += p[t] * value_get(&args[2], ((b * h->T + t) * h->G + g) * h->E + e);
        assert_near(value_get(&args[3], row * h->E + e), y, 1, real);
    }
}

static void check_attention(const Heads *h, DType real)
{
    Arena *arena = arena_new();
    Value args[5];
    Attrs attrs = {.scale = 0.4, .causal = h->causal};
    args[0] = filled(arena, real, 1, DIMS(h->B, h->S, h->G, h->R, h->E));
    args[1] = filled(arena, real, 2, DIMS(h->B, h->T, h->G, h->E));
    args[2] = filled(arena, real, 3, DIMS(h->B, h->T, h->G, h->E));
    args[3] = value_new(arena, real, DIMS(h->B, h->S, h->G, h->R, h->E));
    args[4] = value_new(arena, real, DIMS(h->B, h->S, h->G, h->R));
    Part part = {0};
    part.start['s'] = h->start;
    eval_op(OP_attention, &attrs, args, 3, 2, &part, &no_control, 0);
    double *p = arena_array(arena, (size_t)h->T, sizeof *p);
    for (int64_t i = 0; i < h->B * h->S * h->G * h->R; i++) {
        int64_t r = i % h->R, g = i / h->R % h->G, s = i / h->R / h->G % h->S;
        int64_t b = i / h->R / h->G / h->S;
        double sum = 0;
        for (int64_t t = 0; t < h->T; t++) {
            bool seen = !h->causal || t <= h->start + s;
            p[t] = seen ? exp(score(h, &args[0], &args[1], b, s, g, r, t, attrs.scale)) : 0;
            sum += p[t];
        }
        for (int64_t t = 0; t < h->T; t++) p[t] /= sum;
        check_row(h, args, p, log(sum), b, s, g, r, real);
    }
    arena_free(arena);
}

static void attention_equals_its_definition(void **state)
{
    (void)state;
    static const Heads heads[] = {
        {1, 1, 1, 1, 1, 2, 0, true},
        {2, 7, 7, 2, 3, 4, 0, true},
        /* a later part of the queries, and tiles that are not full */
        {1, 33, 66, 1, 2, 5, 20, true},
        {1, 64, 64, 2, 1, 8, 0, true},
        {1, 40, 130, 2, 2, 3, 0, false},
        {1, 5, 9, 1, 1, 4, 100, true}, /* all keys are in the past */
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        check_attention(&heads[i], DT_f64);
        check_attention(&heads[i], DT_f32);
    }
}

/* ---- norms */

static void check_norms(DType real, int64_t D)
{
    Arena *arena = arena_new();
    const double eps = 1e-3;
    Value args[6];
    args[0] = filled(arena, real, 1, DIMS(2, 3, D));
    args[1] = filled(arena, real, 2, DIMS(D));
    args[2] = value_new(arena, real, DIMS(2, 3, D));
    args[3] = value_new(arena, real, DIMS(2, 3));
    call(OP_rmsnorm, &(Attrs){.eps = eps}, args, 2, 2);
    Value layer[6] = {args[0], args[1], filled(arena, real, 3, DIMS(D))};
    layer[3] = value_new(arena, real, DIMS(2, 3, D));
    layer[4] = value_new(arena, real, DIMS(2, 3));
    layer[5] = value_new(arena, real, DIMS(2, 3));
    call(OP_layernorm, &(Attrs){.eps = eps}, layer, 3, 3);
    for (int64_t i = 0; i < 6; i++) {
        double square = 0, mean = 0, variance = 0;
        for (int64_t d = 0; d < D; d++) {
            double x = value_get(&args[0], i * D + d);
            square += x * x / (double)D;
            mean += x / (double)D;
        }
        for (int64_t d = 0; d < D; d++)
            variance += pow(value_get(&args[0], i * D + d) - mean, 2) / (double)D;
        double r = 1 / sqrt(square + eps), deviation = sqrt(variance + eps);
        assert_near(value_get(&args[3], i), r, 1 + r, real);
        assert_near(value_get(&layer[4], i), mean, 1, real);
        assert_near(value_get(&layer[5], i), 1 / deviation, 1 + 1 / deviation, real);
        for (int64_t d = 0; d < D; d++) {
            double x = value_get(&args[0], i * D + d), w = value_get(&args[1], d);
            assert_near(value_get(&args[2], i * D + d), x * r * w, 4, real);
            assert_near(value_get(&layer[3], i * D + d),
                        (x - mean) / deviation * w + value_get(&layer[2], d), 4, real);
        }
    }
    arena_free(arena);
}

static void norms_equal_their_definitions(void **state)
{
    (void)state;
    static const int64_t sizes[] = {2, 7, 8, 9, 67};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_norms(DT_f64, sizes[i]);
        check_norms(DT_f32, sizes[i]);
    }
}

/* ---- rotations */

/* Returns the frequency by Llama 3.1's scaling, which has three bands, for a pair that rotates by
 * `frequency` a position. */
static double scaled(double frequency, const Attrs *a)
{
    double wavelength = 2 * acos(-1.0) / frequency, context = (double)a->rope_context;
    if (a->rope_factor == 0 || wavelength < context / a->rope_high) return frequency;
    if (wavelength > context / a->rope_low) return frequency / a->rope_factor;
    double smooth = (context / wavelength - a->rope_low) / (a->rope_high - a->rope_low);
    return (1 - smooth) * frequency / a->rope_factor + smooth * frequency;
}

static void check_rope(const Attrs *attrs, DType real, int64_t E, bool in_place)
{
    Arena *arena = arena_new();
    enum { B = 2, S = 3, H = 2, START = 5 };
    Value x = filled(arena, real, 1, DIMS(B, S, H, E)),
          before = filled(arena, real, 1, DIMS(B, S, H, E));
    Value y = in_place ? x : value_new(arena, real, DIMS(B, S, H, E));
    Value args[2] = {x, y};
    Part part = {0};
    part.start['s'] = START;
    eval_op(OP_rope, attrs, args, 1, 1, &part, &no_control, 0);
    int64_t turned = attrs->rope_dims ? attrs->rope_dims : E, half = turned / 2;
    for (int64_t i = 0; i < B * S * H; i++) {
        for (int64_t e = turned; e < E; e++) /* the other elements are unchanged */
            assert_true(value_get(&y, i * E + e) == value_get(&before, i * E + e));
        for (int64_t e = 0; e < half; e++) {
            double position = (double)(START + i / H % S);
            double angle =
                position * scaled(pow(attrs->theta, -2 * (double)e / (double)turned), attrs);
            double x1 = value_get(&before, i * E + e), x2 = value_get(&before, i * E + e + half);
            assert_near(value_get(&y, i * E + e), x1 * cos(angle) - x2 * sin(angle), 4, real);
            assert_near(value_get(&y, i * E + e + half), x2 * cos(angle) + x1 * sin(angle), 4,
                        real);
        }
    }
    Value back[2] = {y, y}; /* rotating back gives the original */
    eval_op(OP_rope_grad, attrs, back, 1, 1, &part, &no_control, 0);
    for (int64_t i = 0; i < value_elements(&y); i++)
        assert_near(value_get(&y, i), value_get(&before, i), 4, real);
    arena_free(arena);
}

static void rotations_equal_their_definition(void **state)
{
    (void)state;
    const Attrs plain = {.theta = 10000};
    const Attrs llama = {
        .theta = 500000, .rope_factor = 8, .rope_low = 1, .rope_high = 4, .rope_context = 8192};
    const Attrs part = {.theta = 10000, .rope_dims = 4};
    for (int k = 0; k < 8; k++) {
        DType real = (k & 1) ? DT_f32 : DT_f64;
        check_rope(&part, real, (k & 4) ? 18 : 6, k % 3 == 0);
        check_rope((k & 2) ? &llama : &plain, real, (k & 4) ? 128 : 6, k % 3 == 0);
        check_rope(&llama, real, 260, false); /* more pairs than the kernel rotates at a time */
    }
}

/* ---- cross-entropy */

static Value padded_logits(Arena *arena, DType real, int64_t n, int64_t V, int64_t valid)
{
    Value z = filled(arena, real, 9, DIMS(1, n, V));
    for (int64_t i = 0; i < n * V; i++)
        if (i % V >= valid)
            value_set(&z, i, 50); /* padding would dominate everything if it counted */
    return z;
}

/* Checks all ops of cross-entropy over a vocabulary that is padded from `valid` to V. */
static void check_xent(DType real, int64_t V, int64_t valid)
{
    Arena *arena = arena_new();
    enum { N = 6 };
    Value z = padded_logits(arena, real, N, V, valid), label = ids(arena, 8, valid, DIMS(1, N));
    value_set(&label, 2, -1);
    Value top = value_new(arena, real, DIMS(1, N)), total = value_new(arena, real, DIMS(1, N));
    Value picked = value_new(arena, real, DIMS(1, N)), loss = value_new(arena, DT_f64, 0, NULL);
    Value dz = value_new(arena, real, DIMS(1, N, V)), dtotal = value_new(arena, real, DIMS(1, N));
    Value dpicked = value_new(arena, real, DIMS(1, N)), count = value_new(arena, DT_f64, 0, NULL);
    Part part = {0};
    part.valid['v'] = valid;
    Attrs attrs = {.scale = 0.125};
#define CALL(op, n_in, n_out, ...)                                                                 \
    eval_op(op, &attrs, (Value[]){__VA_ARGS__}, n_in, n_out, &part, &no_control, 0)
    CALL(OP_xent_max, 1, 1, z, top);
    CALL(OP_xent_pick, 2, 1, z, label, picked);
    CALL(OP_xent_sumexp, 2, 1, z, top, total);
    CALL(OP_xent_loss, 4, 2, top, total, picked, label, loss, count);
    double first = value_get(&loss, 0), expected = 0;
    attrs.accumulate = 1;
    CALL(OP_xent_loss, 4, 2, top, total, picked, label, loss, count);
    attrs.accumulate = 0;
    assert_near(value_get(&loss, 0), 2 * first, 10, DT_f64);
    CALL(OP_xent_loss_grad, 3, 2, top, total, label, dtotal, dpicked);
    CALL(OP_xent_pick_grad, 2, 1, dpicked, label, dz);
    attrs.accumulate = 1;
    CALL(OP_xent_sumexp_grad, 3, 1, z, dtotal, top, dz);
#undef CALL
    for (int64_t i = 0; i < N; i++) {
        double sum = 0;
        int64_t y = (int64_t)value_get(&label, i);
        for (int64_t v = 0; v < valid; v++) sum += exp(value_get(&z, i * V + v));
        if (y >= 0) expected += 0.125 * (log(sum) - value_get(&z, i * V + y));
        for (int64_t v = 0; v < V; v++) {
            double p = exp(value_get(&z, i * V + v)) / sum, d = 0.125 * (p - (v == y));
            assert_near(value_get(&dz, i * V + v), y < 0 || v >= valid ? 0 : d, 1, real);
        }
    }
    assert_near(first, expected, 10, real);
    arena_free(arena);
}

static void cross_entropy_equals_its_definition(void **state)
{
    (void)state;
    for (int64_t V = 3; V < 30; V += 5) {
        check_xent(DT_f64, V, V);
        check_xent(DT_f64, V, V - 2);
        check_xent(DT_f32, V, V - 1);
    }
}

/* Logits that differ much neither overflow nor give a wrong result. */
static void cross_entropy_is_exact_for_extreme_logits(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Value z = value_new(arena, DT_f32, DIMS(1, 1, 3)), label = ids(arena, 1, 1, DIMS(1, 1));
    value_set(&z, 0, 900), value_set(&z, 1, -900), value_set(&z, 2, 899);
    Value top = value_new(arena, DT_f32, DIMS(1, 1)), total = value_new(arena, DT_f32, DIMS(1, 1));
    Value picked = value_new(arena, DT_f32, DIMS(1, 1)), loss = value_new(arena, DT_f32, 0, NULL);
    Value count = value_new(arena, DT_f32, 0, NULL);
    Attrs attrs = {.scale = 1};
    call(OP_xent_max, &attrs, (Value[]){z, top}, 1, 1);
    call(OP_xent_pick, &attrs, (Value[]){z, label, picked}, 2, 1);
    call(OP_xent_sumexp, &attrs, (Value[]){z, top, total}, 2, 1);
    call(OP_xent_loss, &attrs, (Value[]){top, total, picked, label, loss, count}, 4, 2);
    assert_near(value_get(&loss, 0), log(1 + exp(-1.0)), 1, DT_f32);
    arena_free(arena);
}

/* ---- pointwise */

static void activations_and_their_slopes_equal_their_definitions(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const double at[] = {-800, -30, -3, -0.5, 0, 1e-9, 0.7, 4, 30, 800};
    enum { N = sizeof at / sizeof *at };
    for (int k = 0; k < 2; k++) {
        DType real = k ? DT_f32 : DT_f64;
        Value x = value_new(arena, real, DIMS(N)), y = value_new(arena, real, DIMS(N));
        Value one = value_new(arena, real, DIMS(N)), slope = value_new(arena, real, DIMS(N));
        for (int i = 0; i < N; i++) value_set(&x, i, at[i]), value_set(&one, i, 1);
        call(OP_scale, &(Attrs){.scale = -2.5}, (Value[]){x, y}, 1, 1);
        for (int i = 0; i < N; i++) assert_near(value_get(&y, i), -2.5 * at[i], 1, real);
        call(OP_silu, NULL, (Value[]){x, y}, 1, 1);
        call(OP_silu_grad, NULL, (Value[]){one, x, slope}, 2, 1);
        for (int i = 0; i < N; i++) {
            assert_near(value_get(&y, i), at[i] / (1 + exp(-at[i])), 1 + fabs(at[i]), real);
            assert_true(isfinite(value_get(&slope, i)));
        }
        call(OP_gelu, NULL, (Value[]){x, y}, 1, 1);
        call(OP_gelu_grad, NULL, (Value[]){one, x, slope}, 2, 1);
        for (int i = 0; i < N; i++) {
            double t = tanh(sqrt(2 / acos(-1.0)) * (at[i] + 0.044715 * pow(at[i], 3)));
            assert_near(value_get(&y, i), 0.5 * at[i] * (1 + t), 1 + fabs(at[i]), real);
            assert_true(isfinite(value_get(&slope, i)));
        }
        assert_near(value_get(&slope, 0), 0, 1, real);
        assert_near(value_get(&slope, N - 1), 1, 1, real);
    }
    arena_free(arena);
}

/* Checks the vectorisable exponential in fp32: errors of at most two units in the last place,
 * saturation at the ends, and NaN that stays NaN. */
static void the_fast_exponential_is_accurate_and_saturates(void **state)
{
    (void)state;
    double worst = 0;
    for (float x = -87; x <= 87; x += 0.00137f) {
        double exact = exp((double)x);
        worst = fmax(worst, fabs((double)exponential_f32(x) - exact) / exact);
    }
    assert_true(worst < 2 * 1.1920929e-7);
    assert_true(exponential_f32(0) == 1);
    assert_true(exponential_f32(-INFINITY) > 0 && exponential_f32(-INFINITY) < 2e-38f);
    assert_true(exponential_f32(INFINITY) > 6e37f && isfinite(exponential_f32(INFINITY)));
    assert_true(isnan(exponential_f32(NAN)));
}

/* Returns the first input of an op: activations [2, 5, 18], or those of 2 experts. */
static Value first_input(Arena *arena, OpKind op, DType real, uint64_t seed)
{
    return op == OP_expert_bias ? filled(arena, real, seed, DIMS(2, 1, 5, 18))
                                : filled(arena, real, seed, DIMS(2, 5, 18));
}

/* Ops that may overwrite their first input must give the same bits there as in another buffer. */
static void ops_in_place_give_the_same_bits(void **state)
{
    (void)state;
    for (OpKind op = OP_none + 1; op < OP_COUNT; op++) {
        if (!(op_info(op)->flags & OP_IN_PLACE) || op == OP_channel_bias) continue;
        for (int k = 0; k < 2; k++) {
            Arena *arena = arena_new();
            DType real = k ? DT_f32 : DT_f64;
            Attrs attrs = {.theta = 100};
            uint32_t n_in = op_info(op)->sig.n_in;
            bool with_s = op_info(op)->sig.in[0].n_dims > 0;
            Value args[4], place[4];
            args[0] = first_input(arena, op, real, 1);
            place[0] = first_input(arena, op, real, 1);
            if (n_in == 2)
                args[1] = op == OP_bias          ? filled(arena, real, 2, DIMS(18))
                          : op == OP_expert_bias ? filled(arena, real, 2, DIMS(2, 18))
                          : op == OP_position    ? filled(arena, real, 2, DIMS(5, 18))
                          : op == OP_divide      ? filled(arena, real, 2, 0, NULL)
                                                 : filled(arena, real, 2, DIMS(2, 5, 18));
            if (op == OP_xent_sumexp_grad) {
                /* args[1] is dsum, and args[2] is max */
                args[1] = filled(arena, real, 2, DIMS(2, 5));
                args[2] = filled(arena, real, 3, DIMS(2, 5));
                value_set(&args[1], 3, 0);
            }
            assert_true(with_s || n_in <= 2);
            place[2] = args[2];
            place[1] = args[1];
            args[n_in] = first_input(arena, op, real, 4);
            place[n_in] = place[0];
            call(op, &attrs, args, n_in, 1);
            call(op, &attrs, place, n_in, 1);
            assert_memory_equal(args[n_in].at, place[0].at,
                                (size_t)value_elements(&place[0]) * dtype_bytes(real));
            arena_free(arena);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contractions_equal_their_sums),
        cmocka_unit_test(attention_equals_its_definition),
        cmocka_unit_test(norms_equal_their_definitions),
        cmocka_unit_test(rotations_equal_their_definition),
        cmocka_unit_test(cross_entropy_equals_its_definition),
        cmocka_unit_test(cross_entropy_is_exact_for_extreme_logits),
        cmocka_unit_test(activations_and_their_slopes_equal_their_definitions),
        cmocka_unit_test(the_fast_exponential_is_accurate_and_saturates),
        cmocka_unit_test(ops_in_place_give_the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
