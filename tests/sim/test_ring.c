/* A ring of attention in virtual time, compared with its closed form. There are n - 1 hops. In
 * each, keys and values leave a rank together: b T / n tokens, g heads of E numbers. In the
 * backward pass, their gradients leave one hop later. A hop takes the time of one message with all
 * of these tensors. It runs during the attention of the part before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/front/front.h"
#include "sim/sim.h"
#include "tests/support/plans/tiny.h"

enum { SEQ = 16384, HEADS = 4, HEAD = 64 };

typedef struct Ran {
    const Plan *plan;
    Config config;
    SimReport report;
} Ran;

static void run(Arena *arena, uint32_t cp, bool unfolded, Ran *r)
{
    Diag d = diag_in(arena);
    Graph graph;
    memset(r, 0, sizeof *r);
    memset(&graph, 0, sizeof graph);
    const char *path = arena_print(arena, "%s/scripts/plans/llama3_8b.lua", TANDEM_SOURCE_DIR);
    const FrontOptions front = {.n_set = 0};
    assert_true(front_load(path, &front, arena, &r->config, &graph, &d));
    Tiny t = tiny_default();
    t.cp = cp, t.cp_options.mode = CP_ring;
    t.seq = SEQ, t.groups = HEADS, t.head_dim = HEAD, t.dim = 64, t.hidden = 64;
    t.layers = t.microbatches = 1, t.micro = 1, t.repeat = 2;
    t.compute = DT_bf16;
    r->plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(r->plan);
    const SimOptions options = {.unfolded = unfolded, .trace = true};
    assert_true(sim_run(r->plan, &r->config.cluster, &options, arena, &r->report, &d));
}

static const Instr *instr_of(const Ran *r, const TraceRow *row)
{
    return &plan_program(r->plan, 0)->code.at[row->pc];
}

/* Returns the n-th row of the slowest rank with this op and phase. */
static const TraceRow *row_of(const Ran *r, OpKind op, Phase phase, uint32_t n)
{
    const TraceRow *first = NULL;
    Pc last = 0;
    for (;; n--) {
        first = NULL;
        for (uint32_t i = 0; i < r->report.trace.rows.n; i++) {
            const TraceRow *row = &r->report.trace.rows.at[i];
            const Instr *in = instr_of(r, row);
            if (row->rank != r->report.slowest || in->op != op || in->phase != phase) continue;
            if (row->pc > last && (!first || row->pc < first->pc)) first = row;
        }
        if (!first || n == 0) return first;
        last = first->pc;
    }
}

/* A port of an H100 has 18 links of 25 GB/s, of which NCCL's topo.h counts 20.6. */
static const double port_bytes_per_s = 18 * 20.6e9;

/* All messages of a hop share a port. Two messages are enough to fill it. */
static Ps closed_form(Ps latency, uint64_t bytes, uint32_t n_messages)
{
    return latency + (Ps)(n_messages * (double)bytes / port_bytes_per_s * 1e12);
}

static void check_near(Ps is, Ps want)
{
    if (llabs((long long)(is - want)) > want / 1000 + 2)
        fail_msg("%lld ps, not %lld", (long long)is, (long long)want);
}

/* The first hop of two ranks gives the latency of a message. All other hops, which have other bytes
 * and other numbers of messages, must then take the time of the closed form. */
static Ps latency_of_a_hop(void)
{
    Arena *arena = arena_new();
    Ran r;
    run(arena, 2, false, &r);
    const TraceRow *row = row_of(&r, OP_rotate, PHASE_forward, 0);
    assert_non_null(row);
    const uint64_t bytes = (uint64_t)SEQ / 2 * HEADS * HEAD * 2;
    const Ps latency = row->end_ps - row->start_ps - closed_form(0, bytes, 2);
    arena_free(arena);
    assert_true(latency > 1000000 && latency < 50000000); /* 1 to 50 us */
    return latency;
}

static void a_hop_takes_its_closed_form(void **state)
{
    (void)state;
    const Ps latency = latency_of_a_hop();
    for (uint32_t n = 2; n <= 8; n *= 2)
        for (int unfolded = 0; unfolded < 2; unfolded++) {
            Arena *arena = arena_new();
            Ran r;
            run(arena, n, unfolded, &r);
            const uint64_t bytes = (uint64_t)SEQ / n * HEADS * HEAD * 2;
            uint32_t forward = 0, backward = 0;
            for (const TraceRow *row; (row = row_of(&r, OP_rotate, PHASE_forward, forward)) != NULL;
                 forward++) {
                assert_int_equal(row->bytes, bytes);
                check_near(row->end_ps - row->start_ps, closed_form(latency, bytes, 2));
            }
            assert_int_equal(forward, 2 * (n - 1));
            for (const TraceRow *row;
                 (row = row_of(&r, OP_rotate, PHASE_backward, backward)) != NULL; backward++) {
                /* The first hop carries only keys and values, the last one only gradients, the hops
                 * between them both. */
                const bool first = backward < 2, lone = backward + 4 >= 2 * (2 * n - 1);
                assert_int_equal(row->bytes, bytes);
                check_near(row->end_ps - row->start_ps,
                           closed_form(latency, bytes, first || lone ? 2 : 4));
            }
            assert_int_equal(backward, 2 * (2 * n - 1));
            arena_free(arena);
        }
}

/* The transfer of a hop starts when the hop before it starts. The hop's attention begins when the
 * previous hop and that transfer have ended. */
static void a_hop_runs_during_attention(void **state)
{
    (void)state;
    enum { RANKS = 4 };
    Arena *arena = arena_new();
    Ran r;
    run(arena, RANKS, false, &r);
    for (uint32_t hop = 0; hop + 1 < RANKS; hop++) {
        const TraceRow *part = row_of(&r, OP_attention_part, PHASE_forward, hop),
                       *next = row_of(&r, OP_attention_part, PHASE_forward, hop + 1),
                       *keys = row_of(&r, OP_rotate, PHASE_forward, 2 * hop);
        assert_non_null(part);
        assert_non_null(next);
        assert_non_null(keys);
        assert_true(keys->start_ps <= part->start_ps);
        assert_true(keys->end_ps > part->start_ps);
        const Ps ready = keys->end_ps > part->end_ps ? keys->end_ps : part->end_ps;
        assert_int_equal(next->start_ps, ready);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_hop_takes_its_closed_form),
                                       cmocka_unit_test(a_hop_runs_during_attention)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
