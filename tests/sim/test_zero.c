/* The cost of the options of zero{} in simulated time. If computation waits for each collective,
 * all of its time is exposed. If they overlap, none is. Registered buffers leave SMs to
 * computation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/memory/zero_memory.h"
#include "sim/sim.h"
#include "tests/support/plans/tiny.h"

static Cluster cluster(void)
{
    return (Cluster){.device = {.arch = "Hopper",
                                .sms = 132,
                                .hbm_bytes_per_s = 3.35e12,
                                .peak_flops = {[DT_bf16] = 989e12, [DT_f32] = 60e12},
                                .gemm_efficiency = .8,
                                .memory_efficiency = .9},
                     .nodes = 1,
                     .devices_per_node = 8,
                     .intra = FABRIC_nvswitch,
                     .intra_bytes_per_s = 450e9,
                     .nics_per_node = 8,
                     .nic_bytes_per_s = 50e9,
                     .oversubscription = 1};
}

static SimReport simulate(const Tiny *t, Arena *arena)
{
    Diag d = diag_in(arena);
    const Plan *plan = tiny_plan(t, false, arena, &d);
    assert_non_null(plan);
    Cluster c = cluster();
    SimOptions options = {.seed = 1};
    SimReport report;
    assert_true(sim_run(plan, &c, &options, arena, &report, &d));
    return report;
}

static Tiny large(void)
{
    Tiny t = tiny_default();
    t.layers = 6, t.dim = 2048, t.groups = 16, t.head_dim = 128, t.hidden = 4096, t.vocab = 4096;
    t.seq = 2048, t.compute = DT_bf16, t.dp_shard = 8, t.use_zero = true;
    return t;
}

/* Sums the time of communication during which the compute stream idles, and of all
 * communication. */
static void traffic(const SimReport *r, Ps *exposed, Ps *all)
{
    *exposed = *all = 0;
    for (uint32_t i = 0; i < r->axes.n; i++) {
        *exposed += r->axes.at[i].exposed_ps;
        *all += r->axes.at[i].total_ps;
    }
}

static void waiting_exposes_all_communication(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Tiny t = large();
    Ps exposed, all;
    t.zero = ZERO_optim;
    SimReport over = simulate(&t, arena);
    traffic(&over, &exposed, &all);
    assert_true(exposed < all / 2);
    t.zero_options.overlap_grad_reduce = t.zero_options.overlap_param_gather = CHOICE_no;
    SimReport wait = simulate(&t, arena);
    traffic(&wait, &exposed, &all);
    /* the scalars of a step overlap each other, so not quite all is exposed */
    assert_true(exposed > all - all / 100);
    assert_true(wait.step_ps > over.step_ps);
    arena_free(arena);
}

static void registered_buffers_leave_sms(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Tiny t = large();
    t.zero = ZERO_optim_grads_params;
    t.zero_options.fsdp_double_buffer = true;
    SimReport plain = simulate(&t, arena);
    t.zero_options.nccl_ub = true;
    SimReport registered = simulate(&t, arena);
    assert_true(registered.compute_ps < plain.compute_ps);
    assert_true(registered.step_ps < plain.step_ps);
    assert_int_equal(registered.peak_bytes, plain.peak_bytes);
    arena_free(arena);
}

/* DeepSpeed fetches a weight no matter which input of an op it is. */
static void a_weight_may_be_any_input(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny t = large();
    t.use_zero = false, t.ac = AC_full; /* gathers each layer a second time */
    Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    Program *p = &plan->programs.at[0];
    const Runtime runtime = {
        .name = "test", .live_elements = 1e9, .prefetch_elements = 1e6, .bucket_elements = 1e6};
    ZeroMemory before, after;
    zero_memory(plan, p, &runtime, arena, &before);
    uint32_t n_gathered = 0;
    for (uint32_t i = 1; i < before.tensors.n; i++)
        n_gathered += before.tensors.at[i].stream == STREAM_dp_gather;
    assert_true(n_gathered > 6 * 7);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->n_in < 2) continue;
        BufferId *arg = &p->args.at[in->args.first], first = arg[0];
        arg[0] = arg[1], arg[1] = first;
    }
    zero_memory(plan, p, &runtime, arena, &after);
    assert_int_equal(after.tensors.n, before.tensors.n);
    for (uint32_t i = 1; i < before.tensors.n; i++) {
        assert_int_equal(after.tensors.at[i].from, before.tensors.at[i].from);
        assert_int_equal(after.tensors.at[i].to, before.tensors.at[i].to);
        assert_int_equal(after.tensors.at[i].bytes, before.tensors.at[i].bytes);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiting_exposes_all_communication),
        cmocka_unit_test(registered_buffers_leave_sms),
        cmocka_unit_test(a_weight_may_be_any_input),
    };
    return cmocka_run_group_tests_name("zero", tests, NULL, NULL);
}
