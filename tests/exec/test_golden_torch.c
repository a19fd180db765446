/* Compares a tiny Llama and a tiny GPT-2 with PyTorch's results for the same weights and tokens
 * (tests/data/golden/make_golden.py). Compares the loss, every gradient, the gradient norm, and
 * every weight after three steps of clipped AdamW, all in fp64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/backend.h"
#include "exec/flat.h"
#include "planner/front/front.h"
#include "planner/lower/compile.h"
#include "tests/support/ops/eval.h"
#include "tests/support/plans/models.h"
#include "tests/support/text/golden.h"

#define TOLERANCE 1e-11
enum { STEPS = 3 };
static const Attrs adamw = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
static const double lr = 1e-2, clip = 0.5;

/* The golden batch, cut into micro-steps. */
typedef struct Batch {
    const Golden *golden;
    int64_t per_microbatch; /* samples in a micro-batch */
} Batch;

static void fill_data(void *self, int64_t step, uint32_t microbatch, int64_t first, int64_t n,
                      int64_t seq, int32_t *tokens, int32_t *labels)
{
    const Batch *b = self;
    const GoldenTensor *t = golden_find(b->golden, "", "tokens");
    const GoldenTensor *l = golden_find(b->golden, "", "labels");
    (void)step;
    first += microbatch * b->per_microbatch;
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

/* Returns the largest difference, divided by the largest magnitude or by `floor`, whichever is
 * larger. */
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

/* Compares tensor by tensor. A difference is divided by at least a thousandth of the group's
 * largest value. Otherwise the gradient of a key's bias would fail: without rotary positions, it is
 * zero except for rounding. */
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

/* Returns the tensor as a one-dimensional view, because the update kernels take only these. */
static Value flat(const Value *v)
{
    return (Value){.dtype = v->dtype, .n_dims = 1, .dim = {value_elements(v)}, .at = v->at};
}

/* Returns {norm, coefficient} of the gradients of all parameters. */
static Value clip_gradients(Eval *e)
{
    Value table = value_new(e->arena, DT_f64, 1, (const int64_t[]){1});
    Value out = value_new(e->arena, DT_f64, 1, (const int64_t[]){2});
    Attrs attrs = {.clip = clip};
    for (TensorId t = 1; t < e->graph->tensors.n; t++) {
        if (e->graph->tensors.at[t].role != ROLE_param) continue;
        Value args[2] = {flat(&e->grad[t]), table};
        attrs.hi = args[0].dim[0];
        eval_op(OP_sumsq, &attrs, args, 1, 1, NULL, &e->control, 0);
        attrs.accumulate = 1;
    }
    Value factor = value_new(e->arena, DT_f64, 0, NULL);
    value_set(&factor, 0, 1); /* the loss that the graph computes is already a mean */
    Value args[3] = {table, factor, out};
    eval_op(OP_clip_coef, &attrs, args, 2, 1, NULL, &e->control, 0);
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
    Batch batch = {.golden = &golden};
    DataSource data = {.self = &batch, .fill = fill_data};
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
            /* the coefficient is below 1, so gradients are clipped */
            assert_true(value_get(&norm, 1) < 1);
        }
        update(&e, m, v, &norm);
    }
    check_group(&e, &golden, "after/", e.value);
    arena_free(arena);
}

/* ---- the same through the passes and the executor, on one rank and on several */

typedef struct Visit {
    const Plan *plan;
    const Golden *golden;
    const char *group;
    double *at; /* memory of the current buffer */
    bool load;
    double floor, worst;
    uint64_t n; /* elements seen */
} Visit;

static void visit_run(void *self, const FlatRun *run)
{
    Visit *v = self;
    const char *name = v->plan->graph.tensors.at[run->tensor].name;
    const GoldenTensor *t = golden_find(v->golden, v->group, name);
    if (t == NULL) fail_msg("no golden tensor %s%s", v->group, name);
    const double *theirs = (const double *)t->at + run->global;
    double scale = fmax(v->floor, largest(t));
    assert_true(run->global + run->n <= (uint64_t)t->elements);
    for (uint64_t i = 0; i < run->n; i++) {
        double *mine = &v->at[run->at + i];
        if (v->load) *mine = theirs[i];
        double d = fabs(*mine - theirs[i]) / scale;
        if (!(d <= v->worst)) v->worst = d;
    }
    v->n += run->n;
}

/* Calls visit_run for every buffer of `category` that lives between steps, on every rank, with its
 * golden tensors. */
static void visit_buffers(Visit *v, Backend *backend, Category category)
{
    Arena *scratch = arena_new();
    uint64_t n = 0;
    v->floor = v->worst = 0;
    v->n = 0;
    for (uint32_t i = 0; i < v->golden->tensors.n; i++) {
        const GoldenTensor *t = &v->golden->tensors.at[i];
        if (strncmp(t->name, v->group, strlen(v->group)) != 0) continue;
        v->floor = fmax(v->floor, 1e-3 * largest(t));
        n += (uint64_t)t->elements;
    }
    for (Rank rank = 0; rank < v->plan->mesh.n_ranks; rank++) {
        const Program *p = plan_program(v->plan, rank);
        for (BufferId b = 1; b < p->buffers.n; b++) {
            const Buffer *buffer = &p->buffers.at[b];
            if (!flat_is_home(buffer) || buffer->category != category) continue;
            assert_int_equal(buffer->dtype, DT_f64);
            v->at = backend->memory(backend, rank, b);
            if (v->load) memset(v->at, 0, buffer->bytes);
            flat_each(v->plan, p, b, rank, scratch, visit_run, v);
            arena_reset(scratch);
        }
    }
    arena_free(scratch);
    if (!v->load) print_message("%s worst relative difference %g\n", v->group, v->worst);
    assert_true(v->worst <= TOLERANCE);
    assert_true(v->n >= n); /* every element was seen, on all ranks that hold it */
}

static void zero_moments(const Plan *plan, Backend *backend)
{
    for (Rank rank = 0; rank < plan->mesh.n_ranks; rank++) {
        const Program *p = plan_program(plan, rank);
        for (BufferId b = 1; b < p->buffers.n; b++)
            if (flat_is_home(&p->buffers.at[b]) && p->buffers.at[b].category == CATEGORY_optimizer)
                memset(backend->memory(backend, rank, b), 0, p->buffers.at[b].bytes);
    }
}

/* Returns {norm, coefficient}, or the loss, of rank 0. */
static const double *report_of(const Plan *plan, Backend *backend, bool loss)
{
    const Program *p = plan_program(plan, 0);
    for (BufferId b = 1; loss && b < p->buffers.n; b++) {
        const Buffer *buffer = &p->buffers.at[b];
        bool is_loss = buffer->tensor == plan->graph.loss && buffer->persistent;
        if (is_loss && buffer->parent == 0) return backend->memory(backend, 0, b);
    }
    for (Pc pc = 1; !loss && pc < p->code.n; pc++)
        if (program_instr(p, pc)->op == OP_clip_coef)
            return backend->memory(backend, 0, program_arg(p, program_instr(p, pc), 2));
    fail_msg("the plan reports no %s", loss ? "loss" : "norm");
    return NULL;
}

static void run_plan(const Plan *plan, const Golden *golden, const DataSource *data, Arena *arena,
                     Diag *d)
{
    Backend *backend = backend_loopback(arena);
    BackendOptions options = {.timeout_s = 30, .poison = true, .order_seed = 3};
    Visit v = {.plan = plan, .golden = golden, .group = "param/", .load = true};
    assert_true(backend->open(backend, plan, &options, d));
    visit_buffers(&v, backend, CATEGORY_parameter);
    zero_moments(plan, backend);
    v.load = false;
    for (int64_t step = 0; step < STEPS; step++) {
        Control control = {.step = step, .lr = lr, .data = data};
        assert_true(backend->step(backend, &control, NULL, NULL, d));
        if (step > 0) continue;
        check_scalar(golden, "loss", *report_of(plan, backend, true));
        check_scalar(golden, "norm", *report_of(plan, backend, false));
        v.group = "grad/";
        visit_buffers(&v, backend, CATEGORY_gradient);
    }
    v.group = "after/";
    visit_buffers(&v, backend, CATEGORY_parameter);
    backend->close(backend);
}

typedef struct Shards {
    uint32_t dp_shard, dp_replicate, tp;
    bool sequence;
    AcMode ac;
} Shards;

static Config config_of(const Golden *golden, const Shards *shards)
{
    const GoldenTensor *tokens = golden_find(golden, "", "tokens");
    Config c = {.file = "golden", .param = DT_f64, .compute = DT_f64, .reduce = DT_f64};
    for (int a = 0; a < AXIS_NAMES; a++) c.axis_size[a] = 1;
    c.axis_size[AXIS_dp_shard] = shards->dp_shard;
    c.axis_size[AXIS_dp_replicate] = shards->dp_replicate;
    c.axis_size[AXIS_tp] = shards->tp;
    c.global_batch = tokens->dim[0];
    c.micro_batch = tokens->dim[0] / (shards->dp_shard * shards->dp_replicate);
    c.seq = tokens->dim[1];
    c.denominator = DENOMINATOR_all;
    c.optimizer = (Optimizer){.kind = OPTIMIZER_adamw,
                              .lr = lr,
                              .beta1 = adamw.beta1,
                              .beta2 = adamw.beta2,
                              .eps = adamw.eps,
                              .weight_decay = adamw.weight_decay,
                              .clip_norm = clip};
    const TpOptions tp = {
        .sequence = shards->sequence, .loss_parallel = true, .share_gathers = true};
    if (shards->tp > 1) c.passes[c.n_passes++] = (PassConfig){.name = PASS_tp, .tp = tp};
    if (shards->ac != AC_none)
        c.passes[c.n_passes++] = (PassConfig){.name = PASS_ac, .ac = shards->ac};
    if (shards->dp_shard > 1)
        c.passes[c.n_passes++] = (PassConfig){.name = PASS_fsdp2, .fsdp2.prefetch = 1};
    else if (shards->dp_replicate > 1)
        c.passes[c.n_passes++] = (PassConfig){.name = PASS_ddp, .ddp.bucket_mib = 0.01};
    return c;
}

static Plan *compile(const Config *config, Graph *g, Arena *arena, Diag *diag)
{
    LowerOptions lower = lower_options_default();
    Plan *plan = plan_compile(config, g, &lower, NULL, arena, diag);
    Str text = str_in(arena);
    diag_print(diag, &text);
    if (plan == NULL) fail_msg("%s", str_text(&text));
    return plan;
}

static void check_program(const char *file, void (*build)(Graph *, Arena *, int64_t, double),
                          const Shards *shards)
{
    Arena *arena = arena_new();
    Diag diag = diag_in(arena);
    Golden golden;
    assert_true(golden_read(file, arena, &golden));
    const GoldenTensor *tokens = golden_find(&golden, "", "tokens");
    Graph g;
    build(&g, arena, tokens->dim[0], (double)tokens->elements);
    Config config = config_of(&golden, shards);
    Plan *plan = compile(&config, &g, arena, &diag);
    Batch batch = {&golden, plan->step.micro_batch};
    DataSource data = {.self = &batch, .fill = fill_data};
    print_message("dp_shard %u dp_replicate %u tp %u\n", shards->dp_shard, shards->dp_replicate,
                  shards->tp);
    run_plan(plan, &golden, &data, arena, &diag);
    arena_free(arena);
}

/* Compares a script of the shipped model, with the settings `set`, with the golden tensors. */
static void check_script(const char *name, const char *const *set, uint32_t n_set)
{
    Arena *arena = arena_new();
    Diag diag = diag_in(arena);
    Golden golden;
    Config config;
    Graph g;
    FrontOptions options = {.set = set, .n_set = n_set};
    const char *path = arena_print(arena, "%s/tests/data/golden/%s.lua", TANDEM_SOURCE_DIR, name);
    assert_true(golden_read(arena_print(arena, "%s.safetensors", name), arena, &golden));
    if (!front_load(path, &options, arena, &config, &g, &diag)) {
        Str text = str_in(arena);
        diag_print(&diag, &text);
        fail_msg("%s", str_text(&text));
    }
    assert_true(config.optimizer.beta2 == adamw.beta2 && config.optimizer.eps == adamw.eps);
    Plan *plan = compile(&config, &g, arena, &diag);
    Batch batch = {&golden, plan->step.micro_batch};
    DataSource data = {.self = &batch, .fill = fill_data};
    print_message("%s.lua on %u ranks\n", name, plan->mesh.n_ranks);
    run_plan(plan, &golden, &data, arena, &diag);
    arena_free(arena);
}

static void scripts_match_pytorch(void **state)
{
    (void)state;
    static const char *const llama_one[] = {"mesh.dp_shard=1", "mesh.tp=1", "batch.micro=3"};
    static const char *const gpt2_one[] = {"mesh.dp_shard=1", "mesh.tp=1", "batch.micro=2"};
    /* one sequence for each micro-step */
    static const char *const accumulate[] = {"mesh.dp_shard=1"};
    check_script("llama", NULL, 0);
    check_script("llama", llama_one, 3);
    check_script("llama", accumulate, 1);
    check_script("gpt2", NULL, 0);
    check_script("gpt2", gpt2_one, 3);
    check_script("gpt2", accumulate, 1);
}

/* Three sequences of 10 tokens, a vocabulary of 29, two groups of heads. */
static void llama_programs_match_pytorch(void **state)
{
    (void)state;
    static const Shards all[] = {{1, 1, 1, false, AC_none},      {3, 1, 1, false, AC_full},
                                 {1, 3, 1, false, AC_selective}, {1, 1, 2, false, AC_none},
                                 {1, 1, 2, true, AC_selective},  {3, 1, 2, true, AC_full}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_program("llama.safetensors", model_llama, &all[i]);
}

/* Two sequences of 9 tokens, a vocabulary of 31, three heads. */
static void gpt2_programs_match_pytorch(void **state)
{
    (void)state;
    static const Shards all[] = {{1, 1, 1, false, AC_none}, {2, 1, 1, false, AC_selective},
                                 {1, 2, 1, false, AC_none}, {1, 1, 3, false, AC_full},
                                 {1, 1, 3, true, AC_none},  {2, 1, 3, true, AC_full}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_program("gpt2.safetensors", model_gpt2, &all[i]);
}

static void llama_matches_pytorch(void **state)
{
    (void)state;
    check_model("llama.safetensors", model_llama);
}

static void gpt2_matches_pytorch(void **state)
{
    (void)state;
    check_model("gpt2.safetensors", model_gpt2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_matches_pytorch), cmocka_unit_test(gpt2_matches_pytorch),
        cmocka_unit_test(llama_programs_match_pytorch),
        cmocka_unit_test(gpt2_programs_match_pytorch), cmocka_unit_test(scripts_match_pytorch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
