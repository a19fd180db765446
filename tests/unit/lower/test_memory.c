/* Compares the memory pass with an independent oracle, which finds by plain reachability which
 * instructions end before others start. Two buffers may share bytes only if every instruction that
 * touches one of them ends before any that touches the other begins. Parts of a kernel process rows
 * in any order, so all of them run at once. A result is read after the program, so no later buffer
 * may use its bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "planner/base/rng.h"
#include "planner/lower/memory/placement.h"
#include "planner/passes/pass.h"
#include "planner/passes/schedule/schedule.h"
#include "tests/support/plans/plans.h"
#include "tests/support/plans/tiny.h"

static int setup(void **state)
{
    *state = arena_new();
    return 0;
}

static int teardown(void **state)
{
    arena_free(*state);
    return 0;
}

static void place(Plan *plan)
{
    Arena *scratch = arena_new();
    Diag d = diag_in(scratch);
    Job job = {.plan = plan, .arena = plan->arena, .scratch = scratch, .diag = &d};
    assert_true(pass_memory(&job));
    arena_free(scratch);
}

/* Returns an array in which before[a * n + b] says that a has finished when b starts. This follows
 * from the order of streams, launches and `after`. */
static bool *reachability(const Program *p)
{
    const uint32_t n = p->code.n;
    bool *before = calloc((size_t)n * n, sizeof *before);
    assert_non_null(before);
    for (Pc b = 1; b < n; b++) {
        const Instr *in = &p->code.at[b];
        for (Pc a = 1; a < b; a++) {
            const Instr *from = &p->code.at[a];
            bool direct = from->stream == in->stream && !(in->launch && from->launch == in->launch);
            for (uint32_t k = 0; k < in->after.n; k++)
                direct = direct || p->after.at[in->after.first + k] == a;
            if (!direct) continue;
            before[(size_t)a * n + b] = true;
            for (Pc c = 1; c < a; c++)
                if (before[(size_t)c * n + a]) before[(size_t)c * n + b] = true;
        }
    }
    return before;
}

static bool touches(const Program *p, Pc pc, BufferId root)
{
    const Instr *in = &p->code.at[pc];
    for (uint32_t i = 0; i < in->args.n; i++)
        if (program_root(p, program_arg(p, in, i), NULL) == root) return true;
    return false;
}

/* Returns true if in-place ops make b out of a, directly or through other buffers. Then b may have
 * the bytes of a. */
static bool handed(const Program *p, BufferId a, BufferId b)
{
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (!(op_info(in->op)->flags & OP_IN_PLACE) || program_arg(p, in, 0) != a) continue;
        const BufferId out = program_arg(p, in, in->n_in);
        if (p->buffers.at[out].first != pc) continue;
        if (p->buffers.at[out].offset != p->buffers.at[a].offset) continue;
        if (out == b || (out > a && handed(p, out, b))) return true;
    }
    return false;
}

/* Returns true if a has ended before b begins: every instruction that touches a ends before any
 * that touches b starts. */
static bool ends_before(const Program *p, const bool *before, BufferId a, BufferId b)
{
    if (p->buffers.at[a].result) return false;
    const bool in_place = handed(p, a, b);
    for (Pc i = 1; i < p->code.n; i++) {
        if (!touches(p, i, a)) continue;
        for (Pc k = 1; k < p->code.n; k++) {
            if (!touches(p, k, b)) continue;
            const Instr *in = &p->code.at[k];
            const bool here = i == k && in_place && op_info(in->op)->flags & OP_IN_PLACE &&
                              program_arg(p, in, 0) == a && program_arg(p, in, in->n_in) == b;
            const bool at_once = i != k && in->fuse && p->code.at[i].fuse == in->fuse;
            if (at_once && !in_place) return false;
            if (!here && !before[(size_t)i * p->code.n + k]) return false;
        }
    }
    return true;
}

static bool overlap(const Buffer *a, const Buffer *b)
{
    return a->space == b->space && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* Compares the quick answer to "has this buffer ended when pc starts" with the answer by vector
 * clocks. */
static void check_ends(const Program *p)
{
    Arena *scratch = arena_new();
    Lives l;
    lives_read(&l, p, scratch);
    lives_of_space(&l, SPACE_device);
    for (Pc end = 1; end < p->code.n; end++)
        for (BufferId b = l.ends[end]; b; b = l.next_end[b])
            for (Pc pc = 1; pc < p->code.n; pc++) {
                const Knowledge now = lives_knows(&l, pc);
                const bool passed = clock_passed(&l.touched[b], &l.clocks[pc]);
                assert_int_equal(lives_passed(&l, b, &now), passed);
            }
    arena_free(scratch);
}

static void check_program(const Program *p)
{
    bool *before = reachability(p);
    uint64_t top = 0;
    check_ends(p);
    for (BufferId a = 1; a < p->buffers.n; a++) {
        const Buffer *x = &p->buffers.at[a];
        if (x->parent || !x->first) continue;
        assert_int_equal(x->offset % 256, 0);
        assert_true(touches(p, x->first, a) && touches(p, x->last, a));
        if (x->space == SPACE_device && x->offset + x->bytes > top) top = x->offset + x->bytes;
        for (BufferId b = a + 1; b < p->buffers.n; b++) {
            const Buffer *y = &p->buffers.at[b];
            if (y->parent || !y->first || !overlap(x, y)) continue;
            assert_false(x->persistent || y->persistent);
            if (!ends_before(p, before, a, b) && !ends_before(p, before, b, a))
                fail_msg("buffers %u and %u share bytes while both live", a, b);
        }
    }
    assert_int_equal(p->bytes, top);
    free(before);
}

typedef PlansInstr I;

/* A chain on one stream needs bytes only for two buffers at once. */
static void a_chain_reuses_the_bytes_of_ended_buffers(void **state)
{
    Plan *plan = plans_new(*state, NULL);
    Program *p = plans_program(plan);
    BufferId last = plans_flat(plan, p, 250, DT_f32, CATEGORY_activation);
    plans_instr(plan, p, &(I){.op = OP_fill, .stream = STREAM_compute, .out = {last}});
    for (int i = 0; i < 20; i++) {
        BufferId next = plans_flat(plan, p, 250, DT_f32, CATEGORY_activation);
        plans_instr(plan, p,
                    &(I){.op = OP_silu, .stream = STREAM_compute, .in = {last}, .out = {next}});
        last = next;
    }
    place(plan);
    check_program(p);
    assert_int_equal(p->bytes, 1024 + 1000);
}

static void persistent_buffers_lie_at_the_bottom(void **state)
{
    Plan *plan = plans_new(*state, NULL);
    Program *p = plans_program(plan);
    BufferId t = plans_flat(plan, p, 10, DT_f32, CATEGORY_activation);
    BufferId a = plans_flat(plan, p, 100, DT_f32, CATEGORY_parameter);
    BufferId b = plans_flat(plan, p, 100, DT_f32, CATEGORY_optimizer);
    BufferId never = plans_flat(plan, p, 1 << 20, DT_f32, CATEGORY_activation);
    BufferId host = plans_flat(plan, p, 100, DT_f32, CATEGORY_state);
    BufferId other_host = plans_flat(plan, p, 100, DT_f32, CATEGORY_state);
    p->buffers.at[a].persistent = p->buffers.at[b].persistent = true;
    p->buffers.at[host].space = p->buffers.at[other_host].space = SPACE_host;
    p->buffers.at[host].persistent = true;
    plans_instr(plan, p, &(I){.op = OP_copy, .stream = STREAM_compute, .in = {a}, .out = {t}});
    plans_instr(plan, p,
                &(I){.op = OP_copy, .stream = STREAM_copy_out, .in = {b}, .out = {other_host}});
    place(plan);
    check_program(p);
    assert_int_equal(p->buffers.at[a].offset, 0);
    assert_int_equal(p->buffers.at[b].offset, 512);
    assert_int_equal(p->buffers.at[t].offset, 1024);
    assert_int_equal(p->bytes, 1024 + 40);
    assert_int_equal(p->host_bytes, 512 + 400); /* the host has another arena */
    assert_int_equal(p->buffers.at[never].first, 0);
}

/* Another stream may still read the bytes. So only a dependency between the streams makes them
 * free. */
static void only_a_dependency_frees_bytes_for_another_stream(void **state)
{
    for (int edge = 0; edge < 2; edge++) {
        Plan *plan = plans_new(*state, NULL);
        Program *p = plans_program(plan);
        BufferId a = plans_flat(plan, p, 64, DT_f32, CATEGORY_activation);
        BufferId h = plans_flat(plan, p, 64, DT_f32, CATEGORY_state);
        BufferId b = plans_flat(plan, p, 64, DT_f32, CATEGORY_activation);
        p->buffers.at[h].persistent = true;
        Pc w = plans_instr(plan, p, &(I){.op = OP_fill, .stream = STREAM_compute, .out = {a}});
        Pc r = plans_instr(
            plan, p,
            &(I){.op = OP_copy, .stream = STREAM_copy_out, .in = {a}, .out = {h}, .after = {w}});
        plans_instr(
            plan, p,
            &(I){.op = OP_fill, .stream = STREAM_compute, .out = {b}, .after = {edge ? r : 0}});
        place(plan);
        check_program(p);
        assert_int_equal(p->buffers.at[a].offset == p->buffers.at[b].offset, edge);
    }
}

/* Members of a launch end at different times. Waiting for one does not free the bytes of
 * another. */
static void members_of_a_launch_free_their_bytes_separately(void **state)
{
    for (int n_awaited = 1; n_awaited <= 2; n_awaited++) {
        uint32_t sizes[AXIS_NAMES] = {0};
        sizes[AXIS_dp_shard] = 2;
        Plan *plan = plans_new(*state, sizes);
        Program *p = plans_program(plan);
        BufferId a[2], h[2];
        for (int i = 0; i < 2; i++) {
            a[i] = plans_flat(plan, p, 64, DT_f32, CATEGORY_activation);
            h[i] = plans_flat(plan, p, 64, DT_f32, CATEGORY_gathered);
            p->buffers.at[h[i]].persistent = true;
        }
        Pc w = plans_instr(plan, p,
                           &(I){.op = OP_fill, .stream = STREAM_compute, .out = {a[0], a[1]}});
        Pc c[2];
        for (int i = 0; i < 2; i++)
            c[i] = plans_instr(plan, p,
                               &(I){.op = OP_all_gather,
                                    .stream = STREAM_dp_gather,
                                    .axes = 1,
                                    .launch = 7,
                                    .match = (uint32_t)i + 1,
                                    .in = {a[i]},
                                    .out = {h[i]},
                                    .after = {w}});
        BufferId b = plans_flat(plan, p, 128, DT_f32, CATEGORY_activation);
        plans_instr(plan, p,
                    &(I){.op = OP_fill,
                         .stream = STREAM_compute,
                         .out = {b},
                         .after = {c[1], n_awaited == 2 ? c[0] : 0}});
        place(plan);
        check_program(p);
        const bool reused = p->buffers.at[b].offset == p->buffers.at[a[0]].offset;
        assert_int_equal(reused, n_awaited == 2);
    }
}

static void a_view_keeps_its_root_alive(void **state)
{
    Plan *plan = plans_new(*state, NULL);
    Program *p = plans_program(plan);
    Shape part = {.n_dims = 1, .dim = {32}};
    BufferId a = plans_flat(plan, p, 64, DT_f32, CATEGORY_activation);
    BufferId v = plans_view(plan, p, a, &part, 128);
    BufferId b = plans_flat(plan, p, 64, DT_f32, CATEGORY_activation);
    BufferId c = plans_flat(plan, p, 32, DT_f32, CATEGORY_activation);
    plans_instr(plan, p, &(I){.op = OP_fill, .stream = STREAM_compute, .out = {a}});
    plans_instr(plan, p, &(I){.op = OP_fill, .stream = STREAM_compute, .out = {b}});
    Pc last =
        plans_instr(plan, p, &(I){.op = OP_copy, .stream = STREAM_compute, .in = {v}, .out = {c}});
    place(plan);
    check_program(p);
    assert_int_equal(p->buffers.at[a].last, last);
    assert_int_equal(p->buffers.at[v].first, last);
    /* The offset still counts from the buffer's parent. */
    assert_int_equal(p->buffers.at[v].offset, 128);
    assert_int_not_equal(p->buffers.at[a].offset, p->buffers.at[b].offset);
}

static void an_op_works_in_place_only_if_its_input_ends(void **state)
{
    enum { DIES, LIVES, READ_TWICE, VIEWED, OTHER_DTYPE, PERSISTENT, CASES };
    for (int what = 0; what < CASES; what++) {
        Plan *plan = plans_new(*state, NULL);
        Program *p = plans_program(plan);
        Shape all = {.n_dims = 1, .dim = {64}};
        BufferId x = plans_flat(plan, p, 64, DT_f32, CATEGORY_activation);
        BufferId y = plans_flat(plan, p, 64, DT_f32, CATEGORY_activation);
        BufferId v = plans_view(plan, p, x, &all, 0);
        BufferId out = plans_flat(plan, p, 64, DT_f32, CATEGORY_activation);
        BufferId later = plans_flat(plan, p, 64, DT_f32, CATEGORY_activation);
        p->buffers.at[out].dtype = what == OTHER_DTYPE ? DT_i32 : DT_f32;
        p->buffers.at[x].persistent = what == PERSISTENT;
        plans_instr(plan, p, &(I){.op = OP_fill, .stream = STREAM_compute, .out = {x}});
        plans_instr(plan, p, &(I){.op = OP_fill, .stream = STREAM_compute, .out = {y}});
        BufferId other = what == READ_TWICE ? x : what == VIEWED ? v : y;
        plans_instr(plan, p,
                    &(I){.op = OP_add, .stream = STREAM_compute, .in = {x, other}, .out = {out}});
        if (what == LIVES)
            plans_instr(plan, p,
                        &(I){.op = OP_silu, .stream = STREAM_compute, .in = {x}, .out = {later}});
        plans_instr(plan, p,
                    &(I){.op = OP_silu, .stream = STREAM_compute, .in = {out}, .out = {later}});
        place(plan);
        check_program(p);
        assert_int_equal(p->buffers.at[out].offset == p->buffers.at[x].offset, what == DIES);
    }
}

/* Returns true if the instruction may join the kernel of the one before it. No communication for
 * which it waits may begin later than that kernel. */
static bool joins(const Program *p, Pc pc)
{
    const Instr *in = &p->code.at[pc];
    if (pc == 1 || p->code.at[pc - 1].stream != STREAM_compute) return false;
    Pc begin = pc - 1;
    while (p->code.at[begin].fuse && p->code.at[begin - 1].fuse == p->code.at[begin].fuse) begin--;
    for (uint32_t k = 0; k < in->after.n; k++) {
        const Pc after = p->after.at[in->after.first + k];
        if (after >= begin && p->code.at[after].stream != STREAM_compute) return false;
    }
    return true;
}

/* Random programs on four streams, with launches, kernels of several parts, results, and random
 * dependencies. A buffer's writer always comes before its readers. The oracle finds any overlap. */
static void buffers_of_random_programs_do_not_overlap(void **state)
{
    static const Stream streams[] = {STREAM_compute, STREAM_tp, STREAM_dp_gather, STREAM_dp_reduce};
    uint64_t shared = 0, n_parts = 0, n_results = 0;
    for (uint64_t seed = 0; seed < 150; seed++) {
        Plan *plan = plans_new(*state, NULL);
        Program *p = plans_program(plan);
        uint64_t draw = 0;
        BufferId live[400];
        Pc writer[400];
        uint32_t n_live = 0;
        for (int i = 0; i < 120; i++) {
#define DRAW(n) ((uint32_t)rng_below(seed, 5, draw++, (n)))
            const Stream stream = streams[DRAW(4)];
            const bool computes = stream == STREAM_compute;
            const OpKind op = !computes ? OP_all_reduce : DRAW(3) ? OP_silu : OP_add;
            const bool alone = computes || DRAW(2);
            I in = {.op = op, .stream = stream, .launch = alone ? 0 : 1 + (uint32_t)i / 4};
            const uint32_t n_in = n_live ? in.op == OP_add ? 2 : 1 : 0;
            uint32_t n_after = 0;
            for (uint32_t k = 0; k < n_in; k++) {
                uint32_t pick = n_live - 1 - DRAW(n_live < 12 ? n_live : 12);
                in.in[k] = live[pick];
                in.after[n_after++] = writer[pick];
            }
            for (uint32_t k = DRAW(3); k > 0 && p->code.n > 1; k--)
                in.after[n_after++] = 1 + DRAW(p->code.n - 1);
            BufferId out =
                plans_flat(plan, p, 1 + 64 * (int64_t)DRAW(4), DT_f32, CATEGORY_activation);
            in.out[0] = out;
            in.match = 1;
            p->buffers.at[out].result = DRAW(12) == 0;
            n_results += p->buffers.at[out].result;
            const Pc pc = writer[n_live] = plans_instr(plan, p, &in);
            if (computes && joins(p, pc) && DRAW(3)) {
                Instr *last = &p->code.at[pc - 1];
                if (!last->fuse) last->fuse = pc;
                p->code.at[pc].fuse = last->fuse;
                n_parts++;
            }
            live[n_live++] = out;
        }
        place(plan);
        check_program(p);
        uint64_t sum = 0;
        for (BufferId b = 1; b < p->buffers.n; b++)
            sum += (p->buffers.at[b].bytes + 255) / 256 * 256;
        shared += p->bytes < sum;
        arena_reset(*state);
    }
    assert_int_equal(shared, 150); /* every program reused some bytes */
    assert_true(n_parts > 500 && n_results > 500);
}

/* Adds the instructions of a micro-batch, like those of training: gathers ahead on another stream,
 * blocks forward and backward, a reduction, and an accumulator. */
static uint32_t micro_batch(Plan *plan, Program *p, uint32_t m, uint32_t n_layers, BufferId home,
                            BufferId rest)
{
    BufferId kept[64], x = plans_flat(plan, p, 900, DT_f32, CATEGORY_activation);
    Pc gathered[2][64], used = 0;
    const uint32_t first = p->code.n;
    plans_instr(plan, p,
                &(I){.op = OP_fill, .stream = STREAM_compute, .out = {x}, .microbatch = m});
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < n_layers; i++) {
            const uint32_t layer = pass ? n_layers - 1 - i : i;
            BufferId w = plans_flat(plan, p, 500 + 64 * (int64_t)layer, DT_f32, CATEGORY_gathered);
            gathered[pass][layer] = plans_instr(plan, p,
                                                &(I){.op = OP_all_gather,
                                                     .stream = STREAM_dp_gather,
                                                     .match = 1,
                                                     .in = {rest},
                                                     .out = {w},
                                                     .after = {used},
                                                     .microbatch = m});
            BufferId y = plans_flat(plan, p, 900, DT_f32, CATEGORY_activation);
            used = plans_instr(plan, p,
                               &(I){.op = OP_mul,
                                    .stream = STREAM_compute,
                                    .in = {x, w, pass ? kept[layer] : 0},
                                    .out = {y},
                                    .after = {gathered[pass][layer]},
                                    .microbatch = m});
            if (!pass) kept[layer] = x;
            x = y;
            if (!pass) continue;
            BufferId part = plans_flat(plan, p, 250, DT_f32, CATEGORY_communication);
            Pc reduced = plans_instr(plan, p,
                                     &(I){.op = OP_reduce_scatter,
                                          .stream = STREAM_dp_reduce,
                                          .match = 1,
                                          .in = {y},
                                          .out = {part},
                                          .after = {used},
                                          .microbatch = m});
            used = plans_instr(plan, p,
                               &(I){.op = OP_add,
                                    .stream = STREAM_compute,
                                    .in = {home, part},
                                    .out = {home},
                                    .after = {reduced},
                                    .microbatch = m});
        }
    return p->code.n - first;
}

static Plan *periodic(Arena *arena, uint32_t n_microbatches, uint32_t n_layers, uint32_t *period)
{
    Plan *plan = plans_new(arena, NULL);
    Program *p = plans_program(plan);
    BufferId home = plans_flat(plan, p, 250, DT_f32, CATEGORY_gradient);
    BufferId rest = plans_flat(plan, p, 250, DT_f32, CATEGORY_parameter);
    p->buffers.at[home].persistent = p->buffers.at[rest].persistent = true;
    for (uint32_t m = 0; m < n_microbatches; m++)
        *period = micro_batch(plan, p, m, n_layers, home, rest);
    return plan;
}

/* Buffers of inner micro-batches have the same offsets, so a backend may capture one micro-batch
 * and replay it. */
static void interior_micro_batches_repeat(void **state)
{
    for (uint32_t n_layers = 1; n_layers <= 24; n_layers += 3) {
        uint32_t period;
        const uint32_t n = 8;
        Plan *plan = periodic(*state, n, n_layers, &period);
        const Program *p = &plan->programs.at[0];
        place(plan);
        if (n_layers < 10) check_program(p);
        for (Pc pc = 1 + 2 * period; pc < 1 + (n - 1) * period; pc++)
            for (uint32_t i = 0; i < p->code.at[pc].args.n; i++) {
                uint64_t here, before;
                program_root(p, program_arg(p, &p->code.at[pc], i), &here);
                program_root(p, program_arg(p, &p->code.at[pc - period], i), &before);
                assert_int_equal(here, before);
            }
    }
}

/* placement_repeats must notice if one buffer of one inner micro-batch has another offset. */
static void a_buffer_with_another_offset_is_noticed(void **state)
{
    uint32_t period;
    const uint32_t n = 7;
    Plan *plan = periodic(*state, n, 2, &period);
    Program *p = &plan->programs.at[0];
    place(plan);
    assert_true(placement_repeats(p, *state));
    uint32_t n_strays[7] = {0};
    for (BufferId b = 1; b < p->buffers.n; b++) {
        Buffer *at = &p->buffers.at[b];
        if (at->persistent || at->parent || !at->first) continue;
        const uint32_t first = p->code.at[at->first].microbatch;
        if (first != p->code.at[at->last].microbatch) continue;
        const bool interior = first > 0 && first + 1 < n;
        at->offset += 256;
        assert_int_equal(placement_repeats(p, *state), !interior);
        at->offset -= 256;
        n_strays[first]++;
    }
    for (uint32_t m = 0; m < n; m++) assert_true(n_strays[m] > 4);
}

/* In compiled plans, too, a backend replays one captured inner micro-batch for all others. */
static void interior_micro_batches_of_plans_repeat(void **state)
{
    for (uint32_t k = 0; k < 96; k++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Tiny t = tiny_default();
        t.microbatches = 4 + k % 5, t.layers = 1 + k % 3;
        t.gpt2 = k & 1, t.tp = k & 2 ? 2 : 1, t.dp_shard = k & 4 ? 4 : 1;
        t.dp_replicate = k & 8 ? 2 : 1;
        t.ac = (AcMode)(k % 3);
        t.tp_options.sequence = k % 7 > 2, t.tp_options.share_gathers = k % 5 > 0;
        t.fsdp2.prefetch = k % 4, t.fsdp2.defer_grad_sync = k & 16;
        t.fsdp2.copy = k % 11 == 0, t.fsdp2.offload = k % 13 == 0;
        t.fsdp2.reshard_after_forward = k % 9 > 3 ? RESHARD_true : RESHARD_false;
        t.dropout = k % 6 ? 0 : .25;
        t.use_zero = k % 10 == 4, t.zero = t.dp_shard > 1 ? ZERO_optim_grads_params : ZERO_no_shard;
        t.compile = k & 32;
        const Plan *plan = tiny_plan(&t, false, arena, &d);
        assert_non_null(plan);
        const Program *p = &plan->programs.at[0];
        assert_true(placement_periodic(p));
        if (!placement_repeats(p, arena)) fail_msg("plan %u does not repeat", k);
        arena_free(arena);
    }
    (void)state;
}

/* The work in flight in a pipeline does not grow with the number of micro-batches, so arenas do not
 * grow either, apart from unused gaps. Transfers must not keep bytes longer than they need them. */
static void arenas_of_pipelines_do_not_grow_with_micro_batches(void **state)
{
    static const ScheduleKind kinds[] = {SCHEDULE_1f1b, SCHEDULE_zb_h1, SCHEDULE_interleaved_1f1b,
                                         SCHEDULE_zb_v};
    for (uint32_t k = 0; k < 4; k++)
        for (uint32_t pp = 2; pp <= 4; pp += 2) {
            Arena *arena = arena_new();
            Diag d = diag_in(arena);
            Tiny t = tiny_default();
            t.pp = pp, t.layers = 2 * pp;
            t.pp_options.schedule = kinds[k];
            t.pp_options.chunks = schedule_traits(kinds[k]).least_chunks;
            uint64_t bytes[4] = {0};
            for (uint32_t m = 3; m <= 12; m *= 4) {
                t.microbatches = m * pp;
                const Plan *plan = tiny_plan(&t, false, arena, &d);
                assert_non_null(plan);
                for (uint32_t stage = 0; stage < pp; stage++) {
                    const uint64_t now = plan->programs.at[stage].bytes;
                    /* A longer step of 1F1B has the same offsets while the pipeline is full. */
                    assert_true(k > 0 || m == 3 || plan->programs.at[stage].repeats);
                    if (m == 3) bytes[stage] = now;
                    if (now > bytes[stage] + bytes[stage] / 16)
                        fail_msg("schedule %u, stage %u of %u: %llu bytes, then %llu", k, stage, pp,
                                 (unsigned long long)bytes[stage], (unsigned long long)now);
                }
            }
            arena_free(arena);
        }
    (void)state;
}

static void placement_is_deterministic(void **state)
{
    uint32_t period;
    Plan *a = periodic(*state, 4, 12, &period), *b = periodic(*state, 4, 12, &period);
    place(a);
    place(b);
    place(b); /* The offsets must also stay if the pass runs on its own result. */
    assert_true(plans_equal(a, b));
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 150,000 instructions, 120,000 roots and 180,000 views. */
static void a_large_program_is_placed_quickly(void **state)
{
    uint32_t period;
    Plan *plan = periodic(*state, 500, 60, &period);
    Program *p = &plan->programs.at[0];
    Shape part = {.n_dims = 1, .dim = {1}};
    for (Pc pc = 1; pc < p->code.n; pc++) {
        Instr *in = &p->code.at[pc];
        for (uint32_t i = 0; i < in->n_in && p->buffers.n < 300000; i++) {
            BufferId *arg = &p->args.at[in->args.first + i];
            if (!p->buffers.at[*arg].persistent) *arg = plans_view(plan, p, *arg, &part, 0);
        }
    }
    double start = seconds();
    place(plan);
    double took = seconds() - start;
    print_message("%u instructions, %u buffers placed in %.3f s\n", p->code.n, p->buffers.n, took);
    assert_true(p->code.n > 150000 && p->buffers.n >= 300000);
    assert_true(took < 5); /* a release build takes a tenth of a second */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_chain_reuses_the_bytes_of_ended_buffers, setup, teardown),
        cmocka_unit_test_setup_teardown(persistent_buffers_lie_at_the_bottom, setup, teardown),
        cmocka_unit_test_setup_teardown(only_a_dependency_frees_bytes_for_another_stream, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(members_of_a_launch_free_their_bytes_separately, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_view_keeps_its_root_alive, setup, teardown),
        cmocka_unit_test_setup_teardown(an_op_works_in_place_only_if_its_input_ends, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(buffers_of_random_programs_do_not_overlap, setup, teardown),
        cmocka_unit_test_setup_teardown(interior_micro_batches_repeat, setup, teardown),
        cmocka_unit_test_setup_teardown(a_buffer_with_another_offset_is_noticed, setup, teardown),
        cmocka_unit_test(interior_micro_batches_of_plans_repeat),
        cmocka_unit_test(arenas_of_pipelines_do_not_grow_with_micro_batches),
        cmocka_unit_test_setup_teardown(placement_is_deterministic, setup, teardown),
        cmocka_unit_test_setup_teardown(a_large_program_is_placed_quickly, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
