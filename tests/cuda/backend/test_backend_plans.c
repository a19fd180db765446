/* Whole plans on the CUDA backend, on the double of CUDA. They must give the losses and norms of
 * loopback. The bits must be the same with and without graphs, in any legal order of streams.
 * Nothing may be left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cuda/module.h"
#include "tests/cuda/backend/ranks.h"
#include "tests/support/plans/tiny.h"

/* The double uses the kernels of loopback and adds in rank order, so only the order of work can
 * differ. A real GPU adds in its own order. In the first step, before any update, this changes fp32
 * results by 5e-7, and the smallest typical mistake by 4e-5; updates amplify both. */
#ifdef TANDEM_GPU
static const double tolerance[RANKS_STEPS] = {1e-5, 2e-4, 2e-4, 2e-4, 2e-4};
#else
static const double tolerance[RANKS_STEPS] = {2e-5, 2e-5, 2e-5, 2e-5, 2e-5};
#endif

static const struct Case {
    const char *name;
    uint32_t shard, replicate, tp, pp, microbatches;
    bool gpt2, sequence, offload, compile;
    ZeroStrategy zero; /* 0: fsdp2 or ddp */
    AcMode ac;
    double dropout;
    uint32_t tile; /* number of pieces of the head and its loss */
    bool dropless;
    uint32_t ep; /* number of ranks over 4 experts (a token uses 2), with their balance loss */
    bool bf16;   /* products and activations are in bf16 */
    uint32_t cp; /* 0: each rank has whole sequences */
    CpMode cp_mode;
    TinyVariant variant;
} cases[] = {
    {"one rank", 1, 1, 1, 1, 1, .gpt2 = false},
    {"one rank, 4 micro-batches", 1, 1, 1, 1, 4, .gpt2 = true, .ac = AC_full, .dropout = 0.1},
    {"one rank, 5 micro-batches", 1, 1, 1, 1, 5, .ac = AC_selective},
    {"one rank, fused", 1, 1, 1, 1, 3, .compile = true},
    {"FSDP", 2, 1, 1, 1, 5, .ac = AC_full},
    {"HSDP", 2, 2, 1, 1, 2, .gpt2 = true},
    {"offload", 2, 1, 1, 1, 4, .offload = true},
    {"ZeRO-2", 4, 1, 1, 1, 2, .zero = ZERO_optim_grads},
    {"ZeRO-1", 2, 1, 1, 1, 2, .zero = ZERO_optim, .gpt2 = true},
    {"tensor", 1, 1, 2, 1, 2, .sequence = true},
    {"tensor x FSDP", 2, 1, 2, 1, 2, .sequence = true, .gpt2 = true},
    {"pipeline", 1, 1, 1, 2, 4, .gpt2 = false},
    {"pipeline x FSDP", 2, 1, 1, 2, 4, .gpt2 = true},
#ifndef TANDEM_GPU
    {"pipeline of 4, tied", 1, 1, 1, 4, 4, .gpt2 = true},
    {"all to all of 4", 1, 1, 4, 1, 2, .sequence = true, .variant = TINY_row_only},
#endif
    {"one rank, tiled", 1, 1, 1, 1, 2, .tile = 4},
    {"FSDP, tiled, fused", 2, 1, 1, 1, 2, .tile = 2, .compile = true},
    {"one rank, experts, fused", 1, 1, 1, 1, 2, .ep = 1, .compile = true},
    {"dropless experts, one rank", 1, 1, 1, 1, 2, .ep = 1, .dropless = true},
    {"dropless experts of 2", 1, 1, 1, 1, 2, .ep = 2, .dropless = true},
    {"dropless experts of 2 x FSDP, bf16", 2, 1, 1, 1, 2, .ep = 2, .dropless = true, .bf16 = true},
    {"experts of 2", 1, 1, 1, 1, 2, .ep = 2, .tile = 2, .compile = true},
    {"gathered keys of 2, tensor", 1, 1, 2, 1, 2, .sequence = true, .cp = 2},
    {"gathered keys of 2 x FSDP, bf16", 2, 1, 1, 1, 3, .ac = AC_full, .bf16 = true, .cp = 2},
    {"heads for tokens of 2", 1, 1, 1, 1, 2, .cp = 2, .cp_mode = CP_all_to_all},
    {"ring of 2, tensor", 1, 1, 2, 1, 2, .sequence = true, .cp = 2, .cp_mode = CP_ring},
    {"ring of 2 x FSDP, bf16", 2, 1, 1, 1, 3, .ac = AC_full, .bf16 = true, .cp = 2,
     .cp_mode = CP_ring},
#ifndef TANDEM_GPU
    {"ring of 4", 1, 1, 1, 1, 2, .cp = 4, .cp_mode = CP_ring},
#endif
    {"experts of 2 x FSDP, bf16", 2, 1, 1, 1, 2, .ep = 2, .bf16 = true, .compile = true},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

/* On a GPU, the driver runs the branches of graphs. */
#ifdef TANDEM_GPU
/* NCCL takes seconds to start, so a case runs only with "none" and with one other mode, which
 * changes from case to case. */
enum { N_MODES = 3, N_MODES_RANKS = 2 };
#else
enum { N_MODES = 5, N_MODES_RANKS = 5 };
#endif

static Tiny tiny_of(const struct Case *c)
{
    Tiny t = tiny_default();
    t.gpt2 = c->gpt2;
    t.groups = 8, t.head_dim = 2, t.dim = 15, t.hidden = 24, t.vocab = 37;
    t.dp_shard = c->shard, t.dp_replicate = c->replicate, t.tp = c->tp, t.pp = c->pp;
    if (t.layers < t.pp) t.layers = t.pp;
    t.tile = c->tile;
    if (c->ep) t.experts = 4, t.ep = c->ep, t.capacity = 5, t.aux_loss = 0.5;
    t.dropless = c->dropless;
    if (c->cp) t.cp = c->cp, t.cp_options.mode = c->cp_mode;
    if (c->bf16) t.compute = DT_bf16;
    t.variant = c->variant;
    t.tp_options.sequence = c->sequence;
    t.microbatches = c->microbatches;
    t.fsdp2.offload = c->offload;
    t.use_zero = c->zero != 0;
    t.zero = c->zero;
    t.ac = c->ac;
    t.dropout = c->dropout;
    t.compile = c->compile;
    t.clip = 1;
    return t;
}

/* Returns the plan of the case, lowered for kernels with this need of scratch. */
static Plan *plan_of(const struct Case *c, WorkspaceBytes workspace, Arena *arena)
{
    Diag d = diag_in(arena);
    const Tiny t = tiny_of(c);
    Config *config = arena_alloc(arena, sizeof *config);
    Graph graph;
    LowerOptions options = lower_options_default();
    options.workspace = workspace;
    tiny_build(&t, arena, config, &graph);
    Plan *plan = plan_compile(config, &graph, &options, NULL, arena, &d);
    if (plan) return plan;
    Str s = str_in(arena);
    diag_print(&d, &s);
    fail_msg("%s: %s", c->name, str_text(&s));
    return NULL;
}

static void check_fine(const RanksRun *run, uint32_t n, const char *name, const char *what)
{
    for (Rank r = 0; r < n; r++)
        if (!run->rank[r].fine)
            fail_msg("%s, %s, rank %u (code %d, signal %d): %s%s", name, what, r,
                     run->rank[r].exit_code, run->rank[r].signal, run->rank[r].said, run->errors);
}

/* The balance loss of experts runs as an op of its own in every program. It reads the case's
 * precision and adds in fp32. */
static void balances_alone(const struct Case *c, const Plan *plan)
{
    static const OpKind ops[] = {OP_balance, OP_balance_grad, OP_charge, OP_charge_grad};
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
        const Program *p = plan_program(plan, r);
        uint32_t n[4] = {0};
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            for (int k = 0; k < 4; k++) {
                if (in->op != ops[k]) continue;
                n[k]++;
                assert_int_equal(in->fuse, 0);
            }
            if (in->op != OP_balance) continue;
            const Buffer *logits = &p->buffers.at[program_arg(p, in, 0)];
            const Buffer *balance = &p->buffers.at[program_arg(p, in, 2)];
            assert_int_equal(logits->dtype, c->bf16 ? DT_bf16 : DT_f32);
            assert_int_equal(balance->dtype, DT_f32);
        }
        for (int k = 0; k < 4; k++) assert_true(n[k] >= c->microbatches);
    }
}

/* The device counts as many choices as the host on loopback. In 16 bits, another order of sums may
 * change a choice between two nearly equal experts. */
static void check_choices(const struct Case *c, const RankReport *is, const RankReport *must)
{
    uint64_t all = 0, must_all = 0;
    for (int e = 0; e < RANKS_EXPERTS; e++) {
        all += is->chosen[e], must_all += must->chosen[e];
        if (!c->bf16) assert_int_equal(is->chosen[e], must->chosen[e]);
    }
    assert_int_equal(all, must_all);
    assert_int_equal(all > 0, c->ep > 0);
    if (!c->bf16) assert_int_equal(is->dropped, must->dropped);
    assert_int_equal(must->dropped > 0, c->ep > 0 && !c->dropless);
}

static void equals_loopback(const struct Case *c, uint32_t seed, Arena *arena)
{
    Plan *plan = plan_of(c, tandem_cuda_module.workspace, arena);
    char script[48];
    RanksRun run = {.plan = plan, .data = data_synthetic(3, 37, 0.1, arena)};
    RanksRun reference = {.plan = plan_of(c, kernel_cpu_workspace, arena), .data = run.data};
    if (c->ep) balances_alone(c, plan);
    ranks_loopback(&reference, arena);
    check_fine(&reference, 1, c->name, "loopback");
    run.script = script;
    run.trace = true;
    run.options.poison = true;
    Hash128 bits[RANKS_MOST] = {{0, 0}};
    /* The last two modes: CUDA does not promise that branches of a graph run at the same time. */
    static const CudaGraphs modes[] = {CUDA_GRAPHS_none, CUDA_GRAPHS_cut, CUDA_GRAPHS_whole,
                                       CUDA_GRAPHS_cut, CUDA_GRAPHS_whole};
    for (int m = 0; m < (plan->mesh.n_ranks > 1 ? N_MODES_RANKS : N_MODES); m++) {
        char what[96];
        if (c->dropless && plan->mesh.n_ranks > 1 && m > 0)
            break; /* graphs never contain the exchange of dropless rows */
        snprintf(script, sizeof script, "seed=%u%s", seed, m < 3 ? "" : " branches=serial");
        bool by_turns = N_MODES_RANKS == 2 && plan->mesh.n_ranks > 1 && m == 1;
        run.cuda.graphs = modes[by_turns ? 1 + seed % 2 : (uint32_t)m];
        snprintf(what, sizeof what, "graphs %d, %s", run.cuda.graphs, script);
        ranks_run(&run, arena);
        check_fine(&run, plan->mesh.n_ranks, c->name, what);
        assert_int_equal(run.rank[0].n_steps, RANKS_STEPS);
#ifndef TANDEM_GPU
        assert_int_equal(run.rank[0].launches > 0, m > 0);
        assert_int_equal(run.rank[0].n_unread > 0, c->compile);
        /* The traced step has one graph for each micro-batch. Other steps share some graphs. */
        if (c->microbatches == 5 && modes[m] == CUDA_GRAPHS_cut)
            assert_in_range(run.rank[0].captures, 5 + 3, 5 + 4);
#endif
        for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
            if (m == 0) bits[r] = run.rank[r].bits;
            assert_memory_equal(&bits[r], &run.rank[r].bits, sizeof bits[r]);
        }
        for (int k = 0; k < RANKS_STEPS; k++) {
            const RankReport *a = &run.rank[0], *b = &reference.rank[0];
            if (!(fabs(a->loss[k] - b->loss[k]) <= tolerance[k] * fabs(b->loss[k])) ||
                !(fabs(a->norm[k] - b->norm[k]) <= tolerance[k] * fabs(b->norm[k])))
                fail_msg("%s, %s: step %d: loss %.9g, norm %.9g; loopback %.9g, %.9g", c->name,
                         what, k, a->loss[k], a->norm[k], b->loss[k], b->norm[k]);
            assert_true(b->norm[k] > 0);
        }
        check_choices(c, &run.rank[0], &reference.rank[0]);
        assert_int_equal(run.rank[0].n_overlaps, 0);
        uint64_t most = 0, least = 0, rows = 0;
        for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
            const Program *p = plan_program(plan, r);
            rows += p->code.n - 1;
            if (p->bytes > most) most = p->bytes;
            if (plan_written_bytes(p) > least) least = plan_written_bytes(p);
        }
        assert_int_equal(run.rank[0].n_rows, rows);
#ifndef TANDEM_GPU /* the double's chains write every byte, without scratch */
        least = most;
#endif
        assert_in_range(run.rank[0].highest, least, most);
        assert_int_equal(run.rank[0].host_highest > 0, c->offload);
#ifndef TANDEM_GPU /* on a device, other ranks allocate from the same memory at the same time */
        assert_true(run.rank[0].outside >= 1 << 20); /* at least the context of the double */
#endif
    }
}

/* TANDEM_PART=K/N runs part K of N parts. Together, the parts run all cases. */
static bool is_of_this_part(uint32_t i)
{
    unsigned part, n;
    const char *said = getenv("TANDEM_PART");
    if (said == NULL) return true;
    if (sscanf(said, "%u/%u", &part, &n) != 2 || part < 1 || part > n)
        fail_msg("TANDEM_PART is %s, not K/N with 1 <= K <= N", said);
    return i % n == part - 1;
}

static void plans_match_loopback(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_CASES; i++) {
        if (!is_of_this_part(i)) continue;
#ifdef TANDEM_GPU /* on a device a case may hang, or the time may end */
        fprintf(stderr, "%s\n", cases[i].name);
#endif
        Arena *arena = arena_new();
        equals_loopback(&cases[i], i + 1, arena);
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_match_loopback)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
