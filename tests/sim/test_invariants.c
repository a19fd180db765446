/* Laws that every prediction must obey, whatever the fitted constants are. A kernel cannot move its
 * bytes faster than memory does. A message between nodes is not faster than one inside a node. A
 * tree is as deep as NCCL builds it. A peak is the largest value that occurred. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "planner/base/rng.h"
#include "session/session.h"
#include "sim/compute/kernels.h"
#include "sim/memory/torch_allocator.h"
#include "sim/net/nccl.h"

static Cluster dgx(const char *name, uint32_t nodes, Arena *arena)
{
    Cluster c;
    Diag d = diag_in(arena);
    if (!front_cluster(name, nodes, arena, &c, &d)) fail_msg("%s", d.items.at[0].text);
    return c;
}

/* Each kernel, including the ops fused into it, takes at least the time of its bytes at the
 * memory's full rate. For a product with fused ops, it is the rate that kernels reach. The bytes
 * decide for ops fused with a product of short sums, and for all kernels if the memory is slow. */
static void no_kernel_beats_its_memory(void **state)
{
    (void)state;
    static const struct {
        const char *path, *set, *arch; /* arch: replaces that of the plan's device, unless NULL */
        double slower;
    } plans[] = {
        {"one_gpu/gpt2_124m.lua", NULL, NULL, 1},      {"gpt2_124m.lua", NULL, NULL, 1},
        {"gpt2_124m.lua", "batch.micro=1", NULL, 1},   {"llama3_8b.lua", NULL, NULL, 1},
        {"one_gpu/gpt2_124m.lua", NULL, NULL, 64},     {"one_gpu/gpt2_124m.lua", NULL, "Ampere", 1},
        {"one_gpu/gpt2_124m.lua", NULL, "Ampere", 64},
    };
    uint32_t n_kernels = 0, n_fused = 0, n_products = 0;
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        const char *path =
            arena_print(arena, "%s/scripts/plans/%s", TANDEM_SOURCE_DIR, plans[i].path);
        PlanOptions options = {.unproven = true, .unfitted = true};
        options.set = &plans[i].set;
        options.n_set = plans[i].set != NULL;
        PlanFile *file = session_load(path, &options, arena, &d);
        if (file == NULL) fail_msg("%s: %s", path, d.items.at[0].text);
        Device *device = &file->config.cluster.device;
        device->hbm_bytes_per_s /= plans[i].slower;
        /* no kernel was measured on this architecture */
        if (plans[i].arch != NULL) device->arch = plans[i].arch;
        Cost *cost = cost_new(&file->config.cluster, &file->config.runtime, NULL, NULL, arena, &d);
        CostModel model = cost_model(cost);
        const Program *p = &file->plan->programs.at[0];
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            if (in->stream != STREAM_compute || op_info(in->op)->class_ == OP_CLASS_comm) continue;
            if (!plan_begins_kernel(p, in)) continue;
            double bytes = (double)plan_kernel_bytes(file->plan, p, in);
            Ps time = model.compute(model.self, file->plan, p, in);
            uint32_t n_parts = 1;
            for (const Instr *part = plan_next_part(p, in); part; part = plan_next_part(p, part)) {
                bytes += (double)plan_kernel_bytes(file->plan, p, part);
                time += model.compute(model.self, file->plan, p, part);
                n_parts++;
            }
            const bool product = n_parts > 1 && op_info(in->op)->class_ == OP_CLASS_contract;
            double least_s = bytes / device->hbm_bytes_per_s;
            if (product) least_s = kernel_memory_s(device, bytes);
            double least_ps = least_s * (double)PS_PER_S;
            if ((double)time < least_ps * (1 - 1e-9))
                fail_msg("%s: instruction %u (%s, %u parts) takes %lld ps, its bytes alone %.0f ps",
                         plans[i].path, pc, op_info(in->op)->name, n_parts, (long long)time,
                         least_ps);
            n_kernels++;
            n_fused += n_parts > 1;
            n_products += product;
        }
        arena_free(arena);
    }
    assert_true(n_kernels > 1000);
    assert_true(n_fused > 50);
    assert_true(n_products > 50);
}

/* For a model of fields, the FLOPs in the MFU are those that the programs of its ranks execute,
 * because nothing is recomputed. */
static void field_models_count_the_flops_of_their_ranks(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const char *path = arena_print(arena, "%s/scripts/plans/unet_wave.lua", TANDEM_SOURCE_DIR);
    PlanOptions options = {.unproven = true, .unfitted = true};
    PlanFile *file = session_load(path, &options, arena, &d);
    if (file == NULL) fail_msg("%s", d.items.at[0].text);
    const Plan *plan = file->plan;
    SimReport report;
    SimOptions how = {0};
    assert_true(session_simulate(file, &file->config.cluster, &how, arena, &report, &d));
    double flops = 0;
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
        const Program *p = plan_program(plan, r);
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            const char *name = op_info(in->op)->name;
            bool convolves = strncmp(name, "conv", 4) == 0 || strncmp(name, "linear", 6) == 0;
            if (convolves) flops += plan_flops(plan, p, in);
        }
    }
    double points = (double)plan->step.global_batch * (double)plan->step.seq;
    assert_true(flops > 0);
    if (!(fabs(report.model_flops_per_token * points / flops - 1) < 1e-9))
        fail_msg("%g FLOPs by the graph, %g by the programs", report.model_flops_per_token * points,
                 flops);
    assert_true(report.mfu > 0 && report.mfu < 1);
    arena_free(arena);
}

/* On a device, Tandem's executor needs the arena of its rank, the CUDA context, and the buffers of
 * the rank's communicators. A plan fits if, and only if, the device has that much memory. */
static void a_device_holds_arena_context_and_communicators(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const char *path = arena_print(arena, "%s/scripts/plans/gpt2_124m.lua", TANDEM_SOURCE_DIR);
    PlanOptions options = {.unproven = true, .unfitted = true};
    PlanFile *file = session_load(path, &options, arena, &d);
    if (file == NULL) fail_msg("%s", d.items.at[0].text);
    Cluster *c = &file->config.cluster;
    uint64_t arenas = 0;
    for (Rank r = 0; r < file->plan->mesh.n_ranks; r++) {
        const uint64_t bytes = plan_program(file->plan, r)->bytes;
        arenas = bytes > arenas ? bytes : arenas;
    }
    CommMemories list;
    const uint64_t communicators = comm_memory(file->plan, 0, c, NULL, arena, &list);
    assert_true(communicators > 0 && c->device.reserved_bytes > 0);
    const uint64_t holds = arenas + c->device.reserved_bytes + communicators;
    for (int lacking = 0; lacking < 2; lacking++) {
        SimReport report;
        SimOptions how = {0};
        c->device.memory_bytes = holds - (uint64_t)lacking;
        assert_true(session_simulate(file, c, &how, arena, &report, &d));
        assert_int_equal(report.peak_bytes, arenas);
        assert_int_equal(report.total_bytes, holds);
        assert_int_equal(report.fits, !lacking);
    }
    arena_free(arena);
}

static Ps step_of(PlanFile *file, double factor, Arena *arena)
{
    Diag d = diag_in(arena);
    const Unevenness uneven = {.straggler_factor = factor};
    SimOptions how = {.unfolded = true, .uneven = &uneven};
    SimReport report;
    assert_true(session_simulate(file, &file->config.cluster, &how, arena, &report, &d));
    return report.step_ps;
}

/* A device that is f times slower makes a step longer, by at most the factor f. If it is the only
 * device, the factor is exactly f. */
static void a_slow_device_makes_steps_longer(void **state)
{
    (void)state;
    static const char *const plans[] = {"one_gpu/gpt2_124m.lua", "gpt2_124m.lua"};
    for (size_t i = 0; i < 2; i++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        const char *path = arena_print(arena, "%s/scripts/plans/%s", TANDEM_SOURCE_DIR, plans[i]);
        PlanOptions options = {.unproven = true, .unfitted = true};
        PlanFile *file = session_load(path, &options, arena, &d);
        if (file == NULL) fail_msg("%s", d.items.at[0].text);
        const double even = (double)step_of(file, 1, arena);
        for (double factor = 1.25; factor <= 4; factor *= 2) {
            const double step = (double)step_of(file, factor, arena);
            assert_true(step > even && step <= even * factor * (1 + 1e-6));
            if (file->plan->mesh.n_ranks == 1) assert_true(step >= even * factor * (1 - 1e-6));
        }
        arena_free(arena);
    }
}

/* NCCL's tree over n nodes has floor(log2 n) levels below its root. The network adds its time to a
 * message once for each level on the way up, and again on the way down. */
static void a_tree_pays_for_each_of_its_levels(void **state)
{
    (void)state;
    static const uint32_t nodes[] = {2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 17, 31, 33, 64};
    static const uint32_t levels[] = {1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 6};
    uint32_t n_trees = 0;
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
        Arena *arena = arena_new();
        Cluster c = dgx("dgx_h100", nodes[i], arena);
        c.fabric.message_s = 0;
        NcclChoice plain = nccl_choose(&c, OP_all_reduce, nodes[i], 8, 64 << 10);
        c.fabric.message_s = 1e-9; /* too small to change NCCL's choice */
        NcclChoice late = nccl_choose(&c, OP_all_reduce, nodes[i], 8, 64 << 10);
        assert_string_equal(plain.algorithm, late.algorithm);
        if (strcmp(plain.algorithm, "Tree") == 0) {
            assert_int_equal((late.time_ps - plain.time_ps + 500) / 1000, 2 * levels[i]);
            n_trees++;
        }
        arena_free(arena);
    }
    assert_true(n_trees >= 8);
}

static void a_message_is_not_faster_between_nodes(void **state)
{
    (void)state;
    static const char *const names[] = {"dgx_h100", "dgx_a100"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (uint64_t bytes = 1; bytes <= UINT64_C(1) << 30; bytes *= 8) {
            Arena *arena = arena_new();
            Cluster near = dgx(names[i], 1, arena), far = dgx(names[i], 2, arena);
            NcclQuestion question = {.kind = COLLECTIVE_sendrecv, .bytes = bytes};
            question.n_nodes = 1, question.ranks_per_node = 2;
            NcclChoice inside = nccl_answer(&near, &question);
            question.n_nodes = 2, question.ranks_per_node = 1;
            NcclChoice between = nccl_answer(&far, &question);
            if (between.latency_ps < inside.latency_ps || between.time_ps < inside.time_ps)
                fail_msg("%s, %llu bytes: %lld ps between nodes, %lld ps in one", names[i],
                         (unsigned long long)bytes, (long long)between.time_ps,
                         (long long)inside.time_ps);
            arena_free(arena);
        }
}

/* Small messages to many peers take one channel each. An exchange has one round for each peer.
 * Rounds begin at different channels, one for every eight peers of a node, until all channels are
 * in use. Round 0 is the rank's message to itself. */
static void rounds_of_an_exchange_use_other_channels(void **state)
{
    (void)state;
    uint32_t n_below = 0;
    for (uint32_t nodes = 1; nodes <= 64; nodes *= 2)
        for (uint32_t local = 1; local <= 8; local++) {
            Arena *arena = arena_new();
            Cluster c = dgx("dgx_h100", nodes, arena);
            NcclCase one = nccl_case(&c, COLLECTIVE_all_to_all, nodes, local, 1);
            uint32_t all = 1, ranks = nodes * local;
            while (all < nccl_channels(&c, nodes, local)) all *= 2;
            if (ranks >= all && nodes > 1) {
                const uint32_t rounds = nodes - (local == 1), used = rounds < all ? rounds : all;
                assert_int_equal(nccl_message_channels(&one, ranks, 1), used);
                n_below += used < all;
            }
            arena_free(arena);
        }
    assert_true(n_below > 5);
}

/* Draws requests and releases by seed. The true peaks come from a list of all values. */
static void peaks_are_the_largest_values_seen(void **state)
{
    (void)state;
    enum { ROUNDS = 40, STEPS = 400, MOST_HELD = 64 };
    for (uint64_t round = 0; round < ROUNDS; round++) {
        Arena *arena = arena_new();
        TorchAllocator *a = torch_allocator_new(UINT64_C(4) << 30, round % 2 == 1, arena);
        uint32_t held[MOST_HELD], n = 0;
        uint64_t allocated = 0, reserved = 0;
        for (uint64_t step = 0; step < STEPS; step++) {
            uint64_t draw = rng_u64(round, 0, step);
            if (n == MOST_HELD || (n > 0 && draw % 3 == 0)) {
                uint32_t at = (uint32_t)(draw >> 8) % n;
                torch_release(a, held[at]);
                held[at] = held[--n];
            } else {
                uint64_t bytes = UINT64_C(1) << (draw >> 8) % 27;
                held[n++] = torch_allocate(a, bytes + (draw >> 16) % bytes, (uint32_t)(draw % 2));
            }
            TorchStats s = torch_stats(a);
            allocated = s.allocated > allocated ? s.allocated : allocated;
            reserved = s.reserved > reserved ? s.reserved : reserved;
            assert_int_equal(s.peak_allocated, allocated);
            assert_int_equal(s.peak_reserved, reserved);
            assert_true(s.allocated <= s.reserved);
        }
        torch_reset_peaks(a);
        assert_int_equal(torch_stats(a).peak_reserved, torch_stats(a).reserved);
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_kernel_beats_its_memory),
        cmocka_unit_test(field_models_count_the_flops_of_their_ranks),
        cmocka_unit_test(a_device_holds_arena_context_and_communicators),
        cmocka_unit_test(a_slow_device_makes_steps_longer),
        cmocka_unit_test(a_tree_pays_for_each_of_its_levels),
        cmocka_unit_test(a_message_is_not_faster_between_nodes),
        cmocka_unit_test(rounds_of_an_exchange_use_other_channels),
        cmocka_unit_test(peaks_are_the_largest_values_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
