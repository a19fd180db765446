/* Compares the loss and its divisor with PyTorch, over a vocabulary that is whole or cut into
 * uneven parts. Also plants two classic bugs, which must show in the numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "tests/support/ops/eval.h"

enum { N = 4, V = 5, MOST_PARTS = 3 };

#define DIMS(...)                                                                                  \
    (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[])              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static const double logits[N][V] = {{0.5, -1.25, 2, 0.75, -0.5},
                                    {1.5, 0.25, -2, 0.125, 3},
                                    {-1, 0, 1, 2, -3},
                                    {0.1, 0.2, 0.3, 0.4, 0.5}};
static const int labels[N] = {2, 0, -100, 4};

/* From torch 1.13 in fp64: cross_entropy(z, y, label_smoothing = a) with ignore_index -100, plus
 * z_loss times the mean over counted tokens of logsumexp(z)^2, and the gradient of this sum. */
typedef struct Golden {
    double smoothing, z_loss, loss, gradient[N][V];
} Golden;
static const Golden golden[] = {
    {0,
     0,
     1.2361870550532006,
     {{0.045616060281658162, 0.0079268826798169611, -0.12889633453714361, 0.058572180810809261,
       0.016781210764859229},
      {-0.2782481214494989, 0.015782177440778505, 0.0016634292641558024, 0.013927722707527507,
       0.24687479203703711},
      {0, 0, 0, 0, 0},
      {0.05404011595619107, 0.059723564564218137, 0.066004746680187187, 0.072946526485893032,
       -0.25271495368648939}}},
    {0.1,
     0,
     1.3303537217198673,
     {{0.038949393614991494, 0.0012602160131502942, -0.10222966787047695, 0.051905514144142594,
       0.010114544098192563},
      {-0.25158145478283223, 0.0091155107741118339, -0.0050032374025108647, 0.0072610560408608374,
       0.2402081253703704},
      {0, 0, 0, 0, 0},
      {0.047373449289524389, 0.053056897897551462, 0.059338080013520506, 0.06627985981922635,
       -0.22604828701982271}}},
    {0.1,
     0.01,
     1.3995884736877173,
     {{0.041220054478892848, 0.0016547977057090268, -0.092053271894285874, 0.054821100406070078,
       0.010949873547894458},
      {-0.24794554248576051, 0.01015721708818583, -0.0048934423647862676, 0.0081803586364339546,
       0.25650315377286442},
      {0, 0, 0, 0, 0},
      {0.04944795891194876, 0.05534958560152297, 0.061871891788179451, 0.069080154904457056,
       -0.22295348232959555}}},
};

/* A planted mistake of a rank. */
typedef enum Bug {
    BUG_none,
    BUG_gathered,    /* the rank takes all logits as its part, and then sums over ranks */
    BUG_local_vocab, /* the rank smooths only over its local rows of the vocabulary */
} Bug;

typedef struct Split {
    Arena *arena;
    Attrs attrs;
    uint32_t n_parts;
    Bug bug;
    Value z[MOST_PARTS], label, top, total, picked; /* z: the logits of each part, padded */
    Part part[MOST_PARTS];
    Binding whole;
} Split;

static void cut_logits(Split *s)
{
    bool all = s->bug == BUG_gathered;
    int64_t size = all ? V : (V + s->n_parts - 1) / s->n_parts;
    Diag d = diag_in(s->arena);
    const int64_t z[] = {1, N, V}, ids[] = {1, N};
    Dims in[] = {{3, z}, {2, ids}};
    assert_true(op_bind(OP_xent_smooth, in, 2, NULL, 0, &s->whole, (Loc){0}, &d));
    for (uint32_t p = 0; p < s->n_parts; p++) {
        int64_t start = all ? 0 : size * p;
        Part *part = &s->part[p];
        part->start['v'] = start;
        part->valid['v'] = V - start < size ? V - start : size;
        part->global = s->bug == BUG_local_vocab ? NULL : &s->whole;
        s->z[p] = value_new(s->arena, DT_f64, DIMS(1, N, size));
        for (int64_t i = 0; i < N; i++)
            for (int64_t v = 0; v < size; v++)
                value_set(&s->z[p], i * size + v, start + v < V ? logits[i][start + v] : 99);
    }
}

/* Runs one op on every part. Adds up the results [b,s] of the parts, or takes their maximum. */
static void reduce(Split *s, OpKind op, const Value *second, Value *sum)
{
    *sum = value_new(s->arena, DT_f64, DIMS(1, N));
    for (uint32_t p = 0; p < s->n_parts; p++) {
        Value out = value_new(s->arena, DT_f64, DIMS(1, N));
        Value args[3] = {s->z[p], second ? *second : out, out};
        Part part = s->part[p];
        Binding local = s->whole;
        if (s->bug == BUG_local_vocab) local.size['v'] = part.valid['v'], part.global = &local;
        eval_op(op, &s->attrs, args, second ? 2 : 1, 1, &part, NULL, 0);
        for (int64_t i = 0; i < N; i++) {
            double x = value_get(&out, i), old = p ? value_get(sum, i) : x;
            value_set(sum, i, !p ? x : op == OP_xent_max ? fmax(x, old) : old + x);
        }
    }
}

static double loss_of(Split *s)
{
    s->label = value_new(s->arena, DT_i32, DIMS(1, N));
    for (int64_t i = 0; i < N; i++) value_set(&s->label, i, labels[i]);
    cut_logits(s);
    reduce(s, OP_xent_max, NULL, &s->top);
    reduce(s, s->attrs.smoothing > 0 ? OP_xent_smooth : OP_xent_pick, &s->label, &s->picked);
    /* Every rank finds the label, but because of `start` it counts once. */
    if (s->bug == BUG_gathered)
        for (int64_t i = 0; i < N; i++)
            value_set(&s->picked, i, value_get(&s->picked, i) / s->n_parts);
    reduce(s, OP_xent_sumexp, &s->top, &s->total);
    Value loss = value_new(s->arena, DT_f64, 0, NULL), count = value_new(s->arena, DT_f64, 0, NULL);
    Value args[] = {s->top, s->total, s->picked, s->label, loss, count};
    eval_op(OP_xent_loss, &s->attrs, args, 4, 2, NULL, NULL, 0);
    assert_true(value_get(&count, 0) == 3);
    return value_get(&loss, 0) / value_get(&count, 0);
}

/* Returns the largest difference from the golden gradient over all parts. */
static double gradient_error(Split *s, const Golden *g)
{
    Value dtotal = value_new(s->arena, DT_f64, DIMS(1, N));
    Value dpicked = value_new(s->arena, DT_f64, DIMS(1, N));
    Value first[] = {s->top, s->total, s->label, dtotal, dpicked};
    eval_op(OP_xent_loss_grad, &s->attrs, first, 3, 2, NULL, NULL, 0);
    double worst = 0;
    OpKind pick = s->attrs.smoothing > 0 ? OP_xent_smooth_grad : OP_xent_pick_grad;
    for (uint32_t p = 0; p < s->n_parts; p++) {
        const Part *part = &s->part[p];
        int64_t size = s->z[p].dim[2];
        Value dz = value_new(s->arena, DT_f64, DIMS(1, N, size));
        Attrs attrs = s->attrs;
        eval_op(pick, &attrs, (Value[]){dpicked, s->label, dz}, 2, 1, part, NULL, 0);
        attrs.accumulate = 1;
        eval_op(OP_xent_sumexp_grad, &attrs, (Value[]){s->z[p], dtotal, s->top, dz}, 3, 1, part,
                NULL, 0);
        for (int64_t i = 0; i < N; i++)
            for (int64_t v = 0; v < size; v++) {
                bool real = v < part->valid['v'];
                double want = real ? g->gradient[i][part->start['v'] + v] * 3 : 0;
                worst = fmax(worst, fabs(value_get(&dz, i * size + v) - want));
            }
    }
    return worst;
}

static Split split_of(const Golden *g, uint32_t n_parts, Bug bug, Arena *arena)
{
    return (Split){.arena = arena,
                   .n_parts = n_parts,
                   .bug = bug,
                   .attrs = {.scale = 1, .smoothing = g->smoothing, .z_loss = g->z_loss}};
}

static void the_loss_and_its_gradient_equal_pytorchs(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof golden / sizeof golden[0]; k++)
        for (uint32_t n_parts = 1; n_parts <= MOST_PARTS; n_parts++) {
            Arena *arena = arena_new();
            Split s = split_of(&golden[k], n_parts, BUG_none, arena);
            assert_true(fabs(loss_of(&s) - golden[k].loss) < 1e-14);
            assert_true(gradient_error(&s, &golden[k]) < 1e-15);
            arena_free(arena);
        }
}

static void planted_bugs_show(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    for (uint32_t n_parts = 2; n_parts <= MOST_PARTS; n_parts++) {
        Split s = split_of(&golden[0], n_parts, BUG_gathered, arena);
        assert_true(fabs(loss_of(&s) - golden[0].loss - log(n_parts)) < 1e-14);
        s = split_of(&golden[1], n_parts, BUG_local_vocab, arena);
        assert_true(fabs(loss_of(&s) - golden[1].loss) > 1e-2);
    }
    arena_free(arena);
}

/* Four sequences form two groups. The tokens of a group together have the weight one, wherever the
 * sequence is cut. */
static void each_group_of_sequences_has_equal_weight(void **state)
{
    (void)state;
    enum { B = 4, S = 6, HALF = S / 2, GROUP = 2 };
    static const int kept[B] = {5, 2, 0, 1};
    for (int empty = 0; empty < 2; empty++) { /* a group without a label does not count */
        Arena *arena = arena_new();
        Value label = value_new(arena, DT_i32, DIMS(B, S));
        double expected = 0, sum[2] = {0}, n[2] = {0}, loss = 0, count = 0;
        for (int64_t i = 0; i < B * S; i++) {
            bool is_kept = i % S < kept[i / S] && !(empty && i / S >= GROUP);
            value_set(&label, i, is_kept ? 1 : -1);
            if (is_kept) sum[i / S / GROUP] += (double)(i * i), n[i / S / GROUP]++;
        }
        for (int g = 0; g < 2; g++) expected += n[g] > 0 ? sum[g] / n[g] : 0;
        for (int part = 0; part < 2; part++) {
            Value top = value_new(arena, DT_f64, DIMS(B, HALF));
            Value one = value_new(arena, DT_f64, DIMS(B, HALF));
            Value zero = value_new(arena, DT_f64, DIMS(B, HALF));
            Value out = value_new(arena, DT_f64, 0, NULL), c = value_new(arena, DT_f64, 0, NULL);
            Value dtotal = value_new(arena, DT_f64, DIMS(B, HALF));
            Value dpicked = value_new(arena, DT_f64, DIMS(B, HALF));
            Part p = {0};
            p.start['s'] = part * HALF;
            for (int64_t i = 0; i < B * HALF; i++) {
                int64_t at = i / HALF * S + part * HALF + i % HALF;
                value_set(&top, i, (double)(at * at)), value_set(&one, i, 1),
                    value_set(&zero, i, 0);
            }
            Attrs attrs = {.scale = 1, .group = GROUP};
            eval_op(OP_xent_loss_mean, &attrs, (Value[]){top, one, zero, label, out, c}, 4, 2, &p,
                    NULL, 0);
            eval_op(OP_xent_loss_mean_grad, &attrs, (Value[]){top, one, label, dtotal, dpicked}, 3,
                    2, &p, NULL, 0);
            for (int64_t i = 0; i < B * HALF; i++) {
                int64_t b = i / HALF, at = b * S + part * HALF + i % HALF;
                double w = value_get(&label, at) < 0 ? 0 : 1 / n[b / GROUP];
                assert_true(value_get(&dtotal, i) == w && value_get(&dpicked, i) == -w);
            }
            loss += value_get(&out, 0);
            count += value_get(&c, 0);
        }
        assert_true(fabs(count - (empty ? 1 : 2)) < 1e-14);
        assert_true(fabs(loss - expected) < 1e-12 * expected);
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_loss_and_its_gradient_equal_pytorchs),
                                       cmocka_unit_test(planted_bugs_show),
                                       cmocka_unit_test(each_group_of_sequences_has_equal_weight)};
    return cmocka_run_group_tests_name("loss", tests, NULL, NULL);
}
