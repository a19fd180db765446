/* Runs of small plans. The learning rate is right, and every sharding reads the same data. Results
 * do not depend on the interleaving of ranks. Numbers that are not finite are reported, and the
 * comparison with one rank finds faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "exec/exec.h"
#include "exec/ready.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_diag.h"

static const char *diagnostics_text(void)
{
    Str s = str_in(arena);
    diag_print(&diag, &s);
    return str_text(&s);
}

static void the_learning_rate_follows_its_schedule(void **state)
{
    (void)state;
    ExecOptions o = {.lr = 2, .warmup_steps = 4, .total_steps = 14, .min_lr_ratio = 0.1};
    const double expected[] = {0.5, 1, 1.5, 2, 2};
    for (int i = 0; i < 5; i++) assert_true(fabs(exec_lr(&o, i) - expected[i]) < 1e-15);
    assert_true(fabs(exec_lr(&o, 9) - 1.1) < 1e-15); /* half way: the mean of 2 and 0.2 */
    assert_true(fabs(exec_lr(&o, 14) - 0.2) < 1e-15);
    assert_true(fabs(exec_lr(&o, 1000) - 0.2) < 1e-15);
    for (int i = 4; i < 14; i++) assert_true(exec_lr(&o, i + 1) < exec_lr(&o, i));
    ExecOptions constant = {.lr = 3};
    assert_true(exec_lr(&constant, 0) == 3 && exec_lr(&constant, 99) == 3);
}

/* ---- data ---- */

enum { SEQ = 16 };

static void samples_do_not_depend_on_the_sharding(const DataSource *data, int32_t below)
{
    int32_t tokens[8 * SEQ], labels[8 * SEQ], one[SEQ], its[SEQ];
    bool differ = false;
    data->fill(data->self, 3, 1, 0, 8, SEQ, tokens, labels);
    for (int i = 0; i < 8; i++) {
        data->fill(data->self, 3, 1, i, 1, SEQ, one, its);
        assert_memory_equal(one, tokens + i * SEQ, sizeof one);
        assert_memory_equal(its, labels + i * SEQ, sizeof its);
        differ = differ || memcmp(one, tokens, sizeof one) != 0;
    }
    assert_true(differ);
    for (int i = 0; i < 8 * SEQ; i++) assert_in_range(tokens[i], 0, below - 1);
    data->fill(data->self, 3, 2, 0, 1, SEQ, one, its);
    assert_memory_not_equal(one, tokens, sizeof one);
    data->fill(data->self, 4, 1, 0, 1, SEQ, one, its);
    assert_memory_not_equal(one, tokens, sizeof one);
}

static void a_text_is_read_as_bytes(void **state)
{
    (void)state;
    FILE *f = fopen("sample.txt", "w");
    assert_non_null(f);
    for (int i = 0; i < 3000; i++) fprintf(f, "%d,", i);
    fclose(f);
    const DataSource *data = data_bytes("sample.txt", 5, arena, &diag);
    assert_non_null(data);
    samples_do_not_depend_on_the_sharding(data, 256);
    int32_t tokens[SEQ], labels[SEQ];
    data->fill(data->self, 0, 0, 0, 1, SEQ, tokens, labels);
    for (int i = 0; i + 1 < SEQ; i++) assert_int_equal(labels[i], tokens[i + 1]);
    unlink("sample.txt");
    assert_null(data_bytes("no such file", 5, arena, &diag));
    assert_non_null(strstr(diagnostics_text(), "error[data-file]: cannot read no such file"));
    f = fopen("one.txt", "w");
    assert_non_null(f);
    fputc('x', f);
    fclose(f);
    assert_null(data_bytes("one.txt", 5, arena, &diag));
    assert_non_null(strstr(diagnostics_text(), "one.txt has 1 bytes"));
    assert_null(data_bytes(".", 5, arena, &diag));
    unlink("one.txt");
}

static void synthetic_tokens_do_not_depend_on_the_sharding(void **state)
{
    (void)state;
    const DataSource *data = data_synthetic(5, 19, 0.25, arena);
    samples_do_not_depend_on_the_sharding(data, 19);
    enum { N = 400 * SEQ };
    static int32_t tokens[N], labels[N];
    int ignored = 0, count[19] = {0};
    data->fill(data->self, 0, 0, 0, 400, SEQ, tokens, labels);
    for (int i = 0; i < N; i++) {
        ignored += labels[i] == -1;
        count[tokens[i]]++;
        assert_in_range(labels[i] + 1, 0, 19);
    }
    assert_in_range(ignored, N / 4 - N / 20, N / 4 + N / 20);
    for (int k = 0; k < 19; k++) assert_true(count[k] > N / 19 / 2);
}

/* ---- bits ---- */

/* A hash of all bytes that live between steps, on all ranks. */
typedef struct Bits {
    const Plan *plan;
    Hash128 hash;
} Bits;

static bool hash_memory(void *self, Backend *backend, Diag *d)
{
    Bits *bits = self;
    (void)d;
    Str all = str_in(arena);
    for (Rank r = 0; r < bits->plan->mesh.n_ranks; r++) {
        const Program *p = plan_program(bits->plan, r);
        for (BufferId b = 1; b < p->buffers.n; b++)
            if (p->buffers.at[b].persistent && !p->buffers.at[b].parent)
                str_add_bytes(&all, backend->memory(backend, r, b), p->buffers.at[b].bytes);
    }
    bits->hash = hash_bytes(all.at, all.n);
    return true;
}

static Tiny with_everything(void)
{
    Tiny t = tiny_default();
    t.dp_shard = 2, t.tp = 2, t.microbatches = 3, t.ac = AC_selective;
    return t;
}

static ExecOptions options_of(uint32_t steps, uint64_t order_seed)
{
    return (ExecOptions){.backend = "loopback",
                         .steps = steps,
                         .lr = 1e-2,
                         .data = data_synthetic(1, 29, 0.1, arena),
                         .trace_step = 2,
                         .backend_options = {.order_seed = order_seed, .poison = order_seed % 2}};
}

static void interleavings_give_the_same_bits(void **state)
{
    (void)state;
    Tiny t = with_everything();
    for (int fp64 = 0; fp64 < 2; fp64++) {
        Bits first = {.plan = tiny_plan(&t, fp64, arena, &diag)}, other = first;
        ExecResult result;
        for (uint64_t seed = 0; seed < 25; seed++) {
            ExecOptions o = options_of(3, seed * 977);
            o.at_end = hash_memory;
            o.self = seed ? &other : &first;
            assert_true(exec_run(first.plan, &o, arena, &result, &diag));
            if (seed) assert_memory_equal(&other.hash, &first.hash, sizeof(Hash128));
        }
    }
}

static void rows_name_instructions_of_the_program(void **state)
{
    (void)state;
    Tiny t = with_everything();
    const Plan *plan = tiny_plan(&t, false, arena, &diag);
    ExecOptions o = options_of(4, 1);
    ExecResult result;
    assert_true(exec_run(plan, &o, arena, &result, &diag));
    assert_int_equal(result.trace.steps.n, 4);
    assert_int_equal(result.trace.step, 2);
    uint32_t i = 0;
    for (Rank r = 0; r < plan->mesh.n_ranks; r++)
        for (Pc pc = 1; pc < plan_program(plan, r)->code.n; pc++, i++) {
            const TraceRow *row = &result.trace.rows.at[i];
            const Program *p = plan_program(plan, r);
            const Instr *in = program_instr(p, pc);
            assert_true(row->rank == r && row->pc == pc && row->step == 2);
            assert_true(row->start_ps >= 0 && row->end_ps >= row->start_ps);
            assert_true(row->end_ps <= result.trace.steps.at[2].time_ps);
            if (in->match) assert_int_equal(row->bytes, plan_comm_bytes(plan, p, in));
        }
    assert_int_equal(i, result.trace.rows.n);
    for (uint32_t k = 0; k < 4; k++) {
        const StepRow *row = &result.trace.steps.at[k];
        assert_true(row->step == k && row->loss > 0 && row->grad_norm > 0 && row->time_ps > 0);
    }
}

/* ---- numbers that are not finite ---- */

static void spoil_fill(void *self, int64_t step, uint32_t microbatch, int64_t first, int64_t n,
                       int64_t seq, int32_t *tokens, int32_t *labels)
{
    (void)self, (void)step, (void)microbatch, (void)first;
    for (int64_t i = 0; i < n * seq; i++) tokens[i] = labels[i] = (int32_t)(i % 29);
}

static void the_first_bad_tensor_is_named(void **state)
{
    (void)state;
    Tiny t = with_everything();
    t.ac = AC_none;
    Plan *plan = tiny_plan(&t, true, arena, &diag);
    TensorId bad = 0;
    for (TensorId k = 1; k < plan->graph.tensors.n; k++) {
        Tensor *tensor = &plan->graph.tensors.at[k];
        if (tensor->role == ROLE_param && strstr(tensor->name, "layers.1") &&
            strstr(tensor->name, "w2"))
            tensor->init = (Init){INIT_normal, INFINITY, 0.1}, bad = k;
    }
    assert_int_not_equal(bad, 0);
    const DataSource data = {.self = NULL, .fill = spoil_fill};
    ExecOptions o = options_of(3, 5);
    o.data = &data;
    o.backend_options.poison = false;
    ExecResult result;
    assert_false(exec_run(plan, &o, arena, &result, &diag));
    assert_int_equal(diag_exit_code(&diag), 6);
    assert_int_equal(diag.items.n, 1);
    const char *text = diag.items.at[0].text;
    assert_non_null(strstr(text, "step 0: the first bad number is inf"));
    assert_non_null(
        strstr(text, "all_gather")); /* when weights are gathered, they are already bad */
    assert_non_null(strstr(text, "layers.1"));
}

/* A diverging learning rate is noticed in the step in which numbers become infinite. The weights
 * stay unchanged. */
static void a_run_that_diverges_stops(void **state)
{
    (void)state;
    Tiny t = with_everything();
    t.sgd = true;
    const Plan *plan = tiny_plan(&t, false, arena, &diag);
    ExecOptions o = options_of(20, 0);
    o.lr = 1e30;
    ExecResult result;
    assert_false(exec_run(plan, &o, arena, &result, &diag));
    assert_true(result.trace.steps.n >= 1 && result.trace.steps.n < 20);
    assert_string_equal(diag.items.at[0].rule, "not-finite");
}

/* ---- the comparison with one rank ---- */

static bool verify(const Plan *plan, const Plan *reference, uint64_t seed)
{
    VerifyResult result;
    BackendOptions options = {.order_seed = seed};
    Diag own = diag_in(arena);
    return exec_verify(plan, reference, data_synthetic(7, 29, 0.1, arena), &options, 1e-10, arena,
                       &result, &own);
}

/* Plants nine faults, one at a time. The comparison with one rank must find each of them. */
static void the_comparison_finds_faults(void **state)
{
    (void)state;
    Tiny t = with_everything(), one = tiny_one_rank(&t);
    const Plan *reference = tiny_plan(&one, true, arena, &diag);
    uint32_t n_reduces = 0, n_scales = 0, n_accumulates = 0;
    assert_true(verify(tiny_plan(&t, true, arena, &diag), reference, 1));
    uint32_t n = tiny_plan(&t, true, arena, &diag)->programs.at[0].code.n;
    for (Pc pc = 1; pc < n; pc++) {
        Plan *plan = tiny_plan(&t, true, arena, &diag);
        Instr *in = &plan->programs.at[0].code.at[pc];
        Attrs attrs = *graph_attrs_at(&plan->graph, in->attrs);
        if (attrs.reduce == REDUCE_sum && in->phase == PHASE_backward && n_reduces < 3) {
            attrs.reduce = REDUCE_max;
            n_reduces++;
        } else if (in->op == OP_xent_loss_grad && n_scales < 3) {
            attrs.scale *= 1 + 1e-6;
            n_scales++;
        } else if (attrs.accumulate && in->phase == PHASE_backward && in->microbatch == 2 &&
                   n_accumulates < 3) {
            attrs.accumulate = 0;
            n_accumulates++;
        } else {
            continue;
        }
        in->attrs = graph_attrs(&plan->graph, arena, &attrs);
        if (verify(plan, reference, 1)) fail_msg("instruction %u spoilt, and nobody saw", pc);
    }
    assert_true(n_reduces == 3 && n_scales == 3 && n_accumulates == 3);
}

/* The comparison with one rank must report `text` and nothing else. */
static void says_only(const Plan *plan, const Plan *reference, const char *text)
{
    VerifyResult result;
    BackendOptions options = {.order_seed = 1};
    Diag own = diag_in(arena);
    assert_false(exec_verify(plan, reference, data_synthetic(7, 29, 0.1, arena), &options, 1e-10,
                             arena, &result, &own));
    assert_int_equal(own.n_errors, 1);
    if (!strstr(own.items.at[0].text, text)) fail_msg("%s", own.items.at[0].text);
}

/* Only a reported number is wrong: the norm without clipping, or the loss. Neither changes a
 * weight. */
static void scalars_are_compared(void **state)
{
    (void)state;
    Tiny t = with_everything();
    t.clip = 0;
    Tiny one = tiny_one_rank(&t);
    const Plan *reference = tiny_plan(&one, true, arena, &diag);
    assert_true(verify(tiny_plan(&t, true, arena, &diag), reference, 1));
    Plan *norm = tiny_plan(&t, true, arena, &diag), *loss = tiny_plan(&t, true, arena, &diag);
    const uint32_t n = norm->programs.at[0].code.n;
    uint32_t n_planted = 0;
    for (Pc pc = 1; pc < n; pc++) {
        Instr *in = &norm->programs.at[0].code.at[pc];
        /* the norm counts only half of the elements of its first segment */
        if (in->op == OP_sumsq && !n_planted++) {
            Attrs attrs = *graph_attrs_at(&norm->graph, in->attrs);
            attrs.hi = attrs.lo + (attrs.hi - attrs.lo) / 2;
            in->attrs = graph_attrs(&norm->graph, arena, &attrs);
        }
        in = &loss->programs.at[0].code.at[pc];
        /* The mean of the loss becomes 1: the test divides the count by the count. */
        if (in->op == OP_step_mean) {
            BufferId *arg = &loss->programs.at[0].args.at[in->args.first];
            arg[0] = arg[1];
        }
    }
    assert_true(n_planted > 0);
    says_only(norm, reference, "the gradient norm");
    says_only(loss, reference, "the loss");
}

/* A replica with wrong weights is found although the first replica is right. */
static void every_replica_is_compared(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.dp_replicate = 2;
    Tiny one = tiny_one_rank(&t);
    const Plan *reference = tiny_plan(&one, true, arena, &diag);
    Plan *plan = tiny_plan(&t, true, arena, &diag);
    /* Gives rank 1 another program, whose update has another weight decay. */
    uint32_t id = (uint32_t)list_add(arena, &plan->programs);
    Program *p = &plan->programs.at[id];
    *p = plan->programs.at[0];
    Instr *code = arena_array(arena, p->code.n, sizeof *code);
    memcpy(code, p->code.at, p->code.n * sizeof *code);
    p->code.at = code;
    plan->program_of[1] = id;
    assert_true(verify(plan, reference, 2));
    for (Pc pc = 1; pc < p->code.n; pc++) {
        if (code[pc].op != OP_adamw) continue;
        Attrs attrs = *graph_attrs_at(&plan->graph, code[pc].attrs);
        attrs.weight_decay += 0.5;
        code[pc].attrs = graph_attrs(&plan->graph, arena, &attrs);
    }
    assert_false(verify(plan, reference, 2));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_diag_setup, test_arena_teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_learning_rate_follows_its_schedule),
        TEST(a_text_is_read_as_bytes),
        TEST(synthetic_tokens_do_not_depend_on_the_sharding),
        TEST(interleavings_give_the_same_bits),
        TEST(rows_name_instructions_of_the_program),
        TEST(the_first_bad_tensor_is_named),
        TEST(a_run_that_diverges_stops),
        TEST(the_comparison_finds_faults),
        TEST(scalars_are_compared),
        TEST(every_replica_is_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
