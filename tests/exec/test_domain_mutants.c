/* Mutants of plans of fields. Either the proofs or the fp64 comparison with one rank must reject
 * each mutant. A mutant that is proven equal to its plan is counted separately. Any other mutant
 * that survives fails the test. The test draws a sample by seed; TANDEM_MUTANTS=all takes all
 * mutants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "planner/base/rng.h"
#include "planner/verify/verify.h"
#include "tests/support/plans/mutate.h"
#include "tests/support/plans/nets.h"

#ifdef __SANITIZE_ADDRESS__
enum { SAMPLE_PER_PLAN = 10 };
#else
enum { SAMPLE_PER_PLAN = 60 };
#endif
enum { ORDER_SEEDS = 3, N_PLANS = 16, N_UNEVEN = 3 };
#define TOLERANCE 1e-10

enum { BY_VERIFY, EQUAL, BY_EXEC, SURVIVED, FATES };

static bool exec_rejects(const Net *n, const Plan *mutant)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const Net one = net_one_rank(n);
    const Plan *reference = net_plan(&one, true, arena, &d);
    const DataSource *data = data_ragged(7, 0, arena);
    bool rejected = false;
    assert_non_null(reference);
    for (uint64_t seed = 0; seed < ORDER_SEEDS && !rejected; seed++) {
        BackendOptions options = {.order_seed = 101 * seed, .poison = true};
        VerifyResult result = {.n_tensors = 0};
        rejected = !exec_verify(mutant, reference, data, &options, TOLERANCE, arena, &result, &d);
    }
    arena_free(arena);
    return rejected;
}

/* Finds out how a mutant is rejected, or that it equals its plan. The proof of equality reads only
 * programs. So it is not tried on mutants of deals, because a deal (which rank gets which part) is
 * not in a program. */
static int judge(const Net *n, const Plan *plan, const Plan *mutant, MutationKind kind,
                 Arena *scratch)
{
    Diag d = diag_in(scratch);
    if (!verify_plan(mutant, VERIFY_all, false, &d)) return BY_VERIFY;
    if (kind != MUTATE_narrow && mutate_proves_equal(plan, mutant, 0, scratch)) return EQUAL;
    return exec_rejects(n, mutant) ? BY_EXEC : SURVIVED;
}

/* Nets with domains in one and two directions, every kind of edge, strides, statistics, attention,
 * and data ranks. */
static Net net_of(uint32_t i)
{
    const WindowMode mode = (WindowMode)(i % 3);
    const Window same = net_window(3, 1, 1, mode), half = net_window(4, 2, 1, mode);
    const Window even = net_window(2, 1, 1, mode), pair = net_window(2, 2, 1, mode);
    Net n = net_default();
    n.domain = i & 1 ? 2 : 3;
    n.domain_w = i & 2 ? 2 : 1;
    n.height = 24;
    n.dp_shard = i & 4 ? 2 : 1;
    n.use_ddp = i & 8;
    n.ac = i & 8 ? AC_full : AC_none;
    n.microbatches = 1 + (i & 1);
    n.latitude = i & 2;
    n.n_layers = 4;
    n.layer[0] = (NetLayer){NET_conv, same, even};
    n.layer[1] = (NetLayer){i & 1 ? NET_norm : NET_residual, same, same};
    n.layer[2] = (NetLayer){NET_conv, half, half};
    n.layer[3] = (NetLayer){NET_transpose, half, half};
    if (i % 5 == 4) n.layer[n.n_layers++] = (NetLayer){NET_attention, pair, pair};
    if (i % 5 == 3) n.layer[n.n_layers++] = (NetLayer){NET_apart, pair, pair};
    return n;
}

/* Nets whose sizes do not divide evenly, with padding from across the poles, and with kept
 * halos. */
static Net uneven_of(uint32_t i)
{
    const Window same = net_window(3, 1, 1, WINDOW_symmetric),
                 ring = net_window(3, 1, 1, WINDOW_periodic);
    Window behind = same, around = ring;
    behind.before = 2 + i, around.before = 1;
    Net n = net_default();
    n.domain = i & 1 ? 3 : 2;
    n.domain_w = i == 2 ? 2 : 1;
    n.height = 13;
    n.use_ddp = i & 1;
    n.keep_halos = i & 1;
    n.latitude = true;
    n.n_layers = 4;
    n.layer[0] = (NetLayer){NET_conv, same, ring};
    n.layer[1] = (NetLayer){NET_earth, behind, around};
    n.layer[2] = (NetLayer){NET_norm, same, same};
    n.layer[3] = (NetLayer){NET_residual, same, ring};
    return n;
}

static void no_mutant_survives(void **state)
{
    (void)state;
    const char *which = getenv("TANDEM_MUTANTS");
    const bool all = which && strcmp(which, "all") == 0;
    uint32_t fate[MUTATION_KINDS][FATES] = {{0}}, n_survivors = 0;
    for (uint32_t i = 0; i < N_PLANS + N_UNEVEN; i++) {
        Arena *arena = arena_new(), *scratch = arena_new();
        Diag d = diag_in(arena);
        const Net n = i < N_PLANS ? net_of(i) : uneven_of(i - N_PLANS);
        const Plan *plan = net_plan(&n, true, arena, &d);
        assert_non_null(plan);
        /* the plan itself must pass, so that only the mutation can make a proof fail */
        assert_true(verify_plan(plan, VERIFY_all, false, &d));
        const Mutations list = mutate_all(plan, arena);
        for (uint32_t k = 0; k < (all ? list.at.n : SAMPLE_PER_PLAN); k++) {
            const uint64_t pick = all ? k : rng_below(20261125, i, k, list.at.n);
            const Mutation m = list.at.at[pick];
            const int is = judge(&n, plan, mutate(plan, m, scratch), m.kind, scratch);
            fate[m.kind][is]++;
            if (is == SURVIVED && n_survivors++ < 40)
                print_error("SURVIVES: %s: %s\n", net_name(&n, scratch),
                            mutation_text(plan, m, scratch));
            arena_reset(scratch);
        }
        arena_free(scratch);
        arena_free(arena);
    }
    for (int k = 0; k < MUTATION_KINDS; k++)
        print_message("%-16s %8u by verify %8u by exec %8u equal %8u survived\n",
                      mutation_name((MutationKind)k), fate[k][BY_VERIFY], fate[k][BY_EXEC],
                      fate[k][EQUAL], fate[k][SURVIVED]);
    assert_int_equal(n_survivors, 0);
    static const MutationKind of_halos[] = {MUTATE_strips, MUTATE_adjoint, MUTATE_dimension,
                                            MUTATE_narrow};
    for (size_t k = 0; k < sizeof of_halos / sizeof *of_halos; k++)
        assert_true(fate[of_halos[k]][BY_VERIFY] + fate[of_halos[k]][BY_EXEC] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_mutant_survives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
