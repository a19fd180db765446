/* Programs that gather the full state on rank 0 pass the same proofs as plans, and run on loopback.
 * Rank 0 receives the initial value of each element of each tensor, to the last bit. The number of
 * bytes that they move follows from the sizes of the units. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "exec/exec.h"
#include "kernels/number.h"
#include "planner/lower/gather.h"
#include "planner/verify/verify.h"
#include "sim/sim.h"
#include "tests/support/corpus/corpus.h"
#include "tests/support/sample.h"

typedef struct Look {
    const Plan *plan;
    uint32_t n_tensors;
} Look;

static void compare_tensor(const Plan *plan, TensorId id, DType dtype, const void *at)
{
    const Tensor *t = &plan->graph.tensors.at[id];
    uint64_t n = 1;
    for (int d = 0; d < t->n_dims; d++) n *= (uint64_t)t->dim[d];
    for (uint64_t i = 0; i < n; i++) {
        double want, x = kernel_init_value(plan->step.seed, t->init_stream, i, (int)t->init.kind,
                                           t->init.a, t->init.b);
        number_write(dtype, &want, 0, x);
        if (number_read(dtype, at, i) != number_read(dtype, &want, 0))
            fail_msg("%s, element %llu: %g, not %g", t->name, (unsigned long long)i,
                     number_read(dtype, at, i), x);
    }
}

static bool look(void *self, Backend *backend, Diag *d)
{
    Look *l = self;
    const Program *p = plan_program(l->plan, 0);
    (void)d;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        if (at->space != SPACE_host || !at->tensor) continue;
        compare_tensor(l->plan, at->tensor, at->dtype, backend->memory(backend, 0, b));
        l->n_tensors++;
    }
    return true;
}

static void require(bool fine, Diag *d, Arena *arena)
{
    Str s = str_in(arena);
    diag_print(d, &s);
    if (!fine || d->n_errors) fail_msg("%s", str_text(&s)); /* warnings "not-applied" are allowed */
}

static uint32_t n_params(const Plan *plan)
{
    uint32_t n = 0;
    for (TensorId t = 1; t < plan->graph.tensors.n; t++)
        n += plan->graph.tensors.at[t].role == ROLE_param;
    return n;
}

static const Plan *gather_of(const Tiny *t, StateKind kind, Arena *arena, Diag *d)
{
    const Plan *train = tiny_plan(t, false, arena, d);
    assert_non_null(train);
    const Plan *plan = gather_plan(train, kind, arena, d);
    require(plan && verify_plan(plan, VERIFY_all, false, d), d, arena);
    return plan;
}

static void run_one(const Tiny *t)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const Plan *plan = gather_of(t, STATE_param, arena, &d);
    Look l = {plan, 0};
    ExecOptions options = {.steps = 1,
                           .lr = 1,
                           .data = data_synthetic(1, t->vocab, 0, arena),
                           .trace_step = 2,
                           .backend_options = {.poison = true, .order_seed = 3, .timeout_s = 20},
                           .at_end = look,
                           .self = &l};
    ExecResult result;
    require(exec_run(plan, &options, arena, &result, &d), &d, arena);
    assert_int_equal(l.n_tensors, n_params(plan));
    arena_free(arena);
}

static Tiny mesh(uint32_t pp, uint32_t replicate, uint32_t shard, uint32_t tp)
{
    Tiny t = tiny_default();
    t.pp = pp, t.dp_replicate = replicate, t.dp_shard = shard, t.tp = tp;
    t.layers = 2 * pp, t.microbatches = pp;
    return t;
}

static void rank_0_receives_the_initial_values(void **state)
{
    (void)state;
    static const uint32_t meshes[][4] = {{1, 1, 1, 1}, {1, 1, 3, 1}, {1, 1, 1, 2}, {1, 2, 2, 2},
                                         {1, 3, 1, 1}, {2, 1, 1, 1}, {2, 1, 2, 2}, {3, 1, 2, 1},
                                         {4, 2, 1, 2}, {1, 1, 4, 4}};
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        Tiny t = mesh(meshes[i][0], meshes[i][1], meshes[i][2], meshes[i][3]);
        run_one(&t);
        if (t.pp > 1) continue;
        t.gpt2 = true; /* a vocabulary of 29 over tp: the last part is padded */
        run_one(&t);
        t.use_zero = true, t.zero = ZERO_optim, t.sgd = true;
        if (t.dp_shard > 1) run_one(&t);
    }
}

static void proven(void *self, const Tiny *t)
{
    uint32_t *n = self;
    if (++*n % SAMPLE(7, 21)) return; /* takes only a part of the corpus */
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    gather_of(t, STATE_param, arena, &d);
    if (!t->sgd) {
        gather_of(t, STATE_m, arena, &d);
        gather_of(t, STATE_v, arena, &d);
    }
    arena_free(arena);
}

static void every_gather_is_proven(void **state)
{
    (void)state;
    uint32_t n = 0;
    corpus_each(proven, &n);
    assert_true(n > 300);
}

/* The program has one all_gather over the shards for each unit, and one over tp for each tensor
 * that tp splits. At most two units are on the device at a time. */
static void each_unit_is_gathered_once(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny t = mesh(1, 1, 4, 2);
    t.layers = 6;
    const Plan *plan = gather_of(&t, STATE_param, arena, &d);
    const Program *p = &plan->programs.at[0];
    AxisSet shard = mesh_axes(&plan->mesh, AXIS_dp_shard), tp = mesh_axes(&plan->mesh, AXIS_tp);
    uint64_t padded = 0, largest = 0, flat_bytes = 0, split_bytes = 0, want_split = 0;
    uint32_t n_flat = 0, n_split = 0, n_copies = 0;
    for (UnitId u = 1; u < plan->graph.units.n; u++) {
        uint64_t own = plan->graph.units.at[u].padded;
        padded += own;
        if (own > largest) largest = own;
    }
    for (TensorId k = 1; k < plan->graph.tensors.n; k++) {
        const Tensor *at = &plan->graph.tensors.at[k];
        if (at->role != ROLE_param || !layout_axes_split(&at->use, -1)) continue;
        uint64_t n = 4;
        /* tp = 2 pads a vocabulary of 29 to 30, and to 32 in the weight that makes logits */
        for (int i = 0; i < at->n_dims; i++)
            n *= (uint64_t)(at->dim[i] == 29 ? i == 0 ? 30 : 32 : at->dim[i]);
        want_split += n;
    }
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = program_instr(p, pc);
        n_copies += in->op == OP_copy;
        if (in->op != OP_all_gather) continue;
        if (in->axes == shard) n_flat++, flat_bytes += plan_comm_bytes(plan, p, in);
        if (in->axes == tp) n_split++, split_bytes += plan_comm_bytes(plan, p, in);
    }
    assert_int_equal(n_flat, 6 + 1);
    assert_int_equal(flat_bytes, 4 * padded);
    assert_int_equal(n_split, 6 * 7 + 2); /* q, k, v, o, w1, w2, w3; embedding and head */
    assert_int_equal(split_bytes, want_split);
    assert_int_equal(n_copies, n_params(plan));
    /* All shards, and at most two whole units. A unit exists flat, packed, and whole. (Packed and
     * whole tensors may take twice the local part.) */
    assert_true(p->bytes <= 4 * (padded / 4 + 2 * (1 + 2 + 2) * largest));
    Cluster cluster = {.device = {.hbm_bytes_per_s = 1e12, .peak_flops = {[DT_f32] = 1e12}},
                       .nodes = 1,
                       .devices_per_node = 8,
                       .intra = FABRIC_nvswitch,
                       .intra_bytes_per_s = 4.5e11,
                       .oversubscription = 1};
    SimOptions options = {.seed = 1};
    SimReport report;
    require(sim_run(plan, &cluster, &options, arena, &report, &d), &d, arena);
    assert_true(report.step_ps > 0);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_0_receives_the_initial_values),
        cmocka_unit_test(every_gather_is_proven),
        cmocka_unit_test(each_unit_is_gathered_once),
    };
    return cmocka_run_group_tests_name("gather", tests, NULL, NULL);
}
