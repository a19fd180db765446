/* A tiny Llama and a tiny GPT-2 against what PyTorch computed for the same weights and tokens (see
 * tests/data/golden/make_golden.py): loss, every gradient, the gradient norm, and every weight
 * after three steps of clipped AdamW, all in fp64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/eval.h"
#include "tests/support/golden.h"
#include "tests/support/models.h"

#define TOLERANCE 1e-11
enum { STEPS = 3 };
static const Attrs adamw = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
static const double lr = 1e-2, clip = 0.5;

static void fill_data(void *self, int64_t step, uint32_t microbatch, int64_t first, int64_t n,
                      int64_t seq, int32_t *tokens, int32_t *labels)
{
    const Golden *golden = self;
    (void)step, (void)microbatch;
    const GoldenTensor *t = golden_find(golden, "", "tokens"),
                       *l = golden_find(golden, "", "labels");
    assert_int_equal(t->dim[1], seq);
    assert_true(first + n <= t->dim[0]);
    memcpy(tokens, (const int32_t *)t->at + first * seq, (size_t)(n * seq) * sizeof *tokens);
    memcpy(labels, (const int32_t *)l->at + first * seq, (size_t)(n * seq) * sizeof *labels);
}

static void load_parameters(Eval *e, const Golden *golden)
{
    uint32_t n = 0, stored = 0;
    for (TensorId t = 1; t < e->graph->tensors.n; t++) {
        const Tensor *p = &e->graph->tensors.at[t];
        if (p->role != ROLE_param) continue;
        const GoldenTensor *from = golden_find(golden, "param/", p->name);
        if (from == NULL) fail_msg("no golden tensor for %s", p->name);
        assert_int_equal(from->n_dims, p->n_dims);
        assert_memory_equal(from->dim, p->dim, p->n_dims * sizeof *p->dim);
        memcpy(e->value[t].at, from->at, (size_t)from->elements * sizeof(double));
        n++;
    }
    for (uint32_t i = 0; i < golden->tensors.n; i++)
        stored += strncmp(golden->tensors.at[i].name, "param/", 6) == 0;
    assert_int_equal(n, stored);
}

static double largest(const GoldenTensor *t)
{
    double top = 0;
    for (int64_t i = 0; i < t->elements; i++) top = fmax(top, fabs(((const double *)t->at)[i]));
    return top;
}

/* Largest difference against the largest magnitude, of which `floor` is the least. */
static double difference(const Value *mine, const GoldenTensor *theirs, double floor)
{
    double worst = 0;
    assert_int_equal(value_elements(mine), theirs->elements);
    for (int64_t i = 0; i < theirs->elements; i++) {
        double d = fabs(value_get(mine, i) - ((const double *)theirs->at)[i]);
        if (!(d <= worst)) worst = d;
    }
    return worst / fmax(floor, largest(theirs));
}

/* Per tensor. A thousandth of the group's largest value is the least scale: without rotary
 * positions the gradient of a key bias is zero but for rounding. */
static void check_group(const Eval *e, const Golden *golden, const char *group, const Value *of)
{
    double worst = 0, floor = 0;
    for (uint32_t i = 0; i < golden->tensors.n; i++)
        if (strncmp(golden->tensors.at[i].name, group, strlen(group)) == 0)
            floor = fmax(floor, 1e-3 * largest(&golden->tensors.at[i]));
    for (TensorId t = 1; t < e->graph->tensors.n; t++) {
        const Tensor *p = &e->graph->tensors.at[t];
        if (p->role != ROLE_param) continue;
        double d = difference(&of[t], golden_find(golden, group, p->name), floor);
        if (!(d <= TOLERANCE)) print_error("%s%s differs by %g\n", group, p->name, d);
        assert_true(d <= TOLERANCE);
        worst = fmax(worst, d);
    }
    print_message("%s worst relative difference %g\n", group, worst);
}

static void check_scalar(const Golden *golden, const char *name, double mine)
{
    double theirs = *(const double *)golden_find(golden, "", name)->at;
    print_message("%s %.15g\n", name, mine);
    assert_true(fabs(mine - theirs) <= TOLERANCE * fabs(theirs));
}

/* Flat views of tensors, as the update kernels take them. */
static Value flat(const Value *v)
{
    return (Value){.dtype = v->dtype, .n_dims = 1, .dim = {value_elements(v)}, .at = v->at};
}

/* {norm, coefficient} of all parameters' gradients */
static Value clip_gradients(Eval *e)
{
    Value table = value_new(e->arena, DT_f64, 1, (const int64_t[]){1});
    Value out = value_new(e->arena, DT_f64, 1, (const int64_t[]){2});
    Attrs attrs = {.n_slots = 1, .clip = clip};
    for (TensorId t = 1; t < e->graph->tensors.n; t++) {
        if (e->graph->tensors.at[t].role != ROLE_param) continue;
        Value args[2] = {flat(&e->grad[t]), table};
        attrs.hi = args[0].dim[0];
        eval_op(OP_sumsq, &attrs, args, 1, 1, NULL, &e->control, 0);
        attrs.accumulate = 1;
    }
    Value args[2] = {table, out};
    eval_op(OP_clip_coef, &attrs, args, 1, 1, NULL, &e->control, 0);
    return out;
}

static void update(Eval *e, Value *m, Value *v, const Value *coefficient)
{
    for (TensorId t = 1; t < e->graph->tensors.n; t++) {
        if (e->graph->tensors.at[t].role != ROLE_param) continue;
        Value p = flat(&e->value[t]), grad = flat(&e->grad[t]);
        if (m[t].at == NULL) {
            m[t] = value_new(e->arena, DT_f64, 1, p.dim);
            v[t] = value_new(e->arena, DT_f64, 1, p.dim);
            memset(m[t].at, 0, (size_t)p.dim[0] * sizeof(double));
            memset(v[t].at, 0, (size_t)p.dim[0] * sizeof(double));
        }
        Value args[8] = {p, m[t], v[t], grad, *coefficient, p, m[t], v[t]};
        eval_op(OP_adamw, &adamw, args, 5, 3, NULL, &e->control, 0);
    }
}

static void check_model(const char *file, void (*build)(Graph *, Arena *, int64_t, double))
{
    Arena *arena = arena_new();
    Golden golden;
    assert_true(golden_read(file, arena, &golden));
    const GoldenTensor *tokens = golden_find(&golden, "", "tokens");
    Graph g;
    build(&g, arena, tokens->dim[0], (double)tokens->elements);
    DataSource data = {.self = &golden, .fill = fill_data};
    Eval e = eval_new(arena, &g, DT_f64, &data);
    load_parameters(&e, &golden);
    Value *m = arena_array(arena, g.tensors.n, sizeof *m),
          *v = arena_array(arena, g.tensors.n, sizeof *v);
    for (int64_t step = 0; step < STEPS; step++) {
        e.control.step = step;
        e.control.lr = lr;
        eval_clear(&e, true);
        eval_forward(&e);
        eval_backward(&e);
        Value norm = clip_gradients(&e);
        if (step == 0) {
            check_scalar(&golden, "loss", value_get(&e.value[g.loss], 0));
            check_scalar(&golden, "norm", value_get(&norm, 0));
            check_group(&e, &golden, "grad/", e.grad);
            assert_true(value_get(&norm, 1) < 1); /* clipping is at work */
        }
        update(&e, m, v, &norm);
    }
    check_group(&e, &golden, "after/", e.value);
    arena_free(arena);
}

static void test_llama(void **state)
{
    (void)state;
    check_model("llama.safetensors", model_llama);
}

static void test_gpt2(void **state)
{
    (void)state;
    check_model("gpt2.safetensors", model_gpt2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_llama), cmocka_unit_test(test_gpt2)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
