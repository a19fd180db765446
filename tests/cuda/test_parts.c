/* CUDA kernels on parts of split tensors, where global indices matter: a part of a vocabulary with
 * padding, positions that begin anywhere, draws by global element, ranges of a flat unit. Also work
 * that only some programs have: faults, a skipped step, moves between layouts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/cuda/workspace.h"
#include "kernels/number.h"
#include "tests/cuda/compare.h"

static const DType precisions[] = {DT_f32, DT_bf16, DT_f16};

static const Sizes local_vocabulary = {{['b'] = 2, ['s'] = 9, ['k'] = 24, ['v'] = 40}, {0, 0}};
static const Sizes whole_vocabulary = {{['b'] = 2, ['s'] = 9, ['k'] = 24, ['v'] = 101}, {0, 0}};

static void parts_of_a_vocabulary_match_the_cpu(void **state)
{
    (void)state;
    const Attrs attrs = {.smoothing = 0.1};
    const CudaCase cases[] = {
        {OP_embed, cuda_embed, "iff", attrs, 0, NULL, 0},
        {OP_embed_grad, cuda_embed_grad, "fiF", attrs, 1, NULL, 0},
        {OP_xent_max, cuda_xent_max, "fF", attrs, 0, NULL, 0},
        {OP_xent_pick, cuda_xent_pick, "fiF", attrs, 0, NULL, 0},
        {OP_xent_smooth, cuda_xent_smooth, "fiF", attrs, 0, NULL, 0},
        {OP_xent_sumexp, cuda_xent_sumexp, "fPF", attrs, 0, NULL, 0},
        {OP_xent_sumexp_grad, cuda_xent_sumexp_grad, "fFPf", attrs, 1, NULL, 0},
        {OP_xent_pick_grad, cuda_xent_pick_grad, "Fif", attrs, 1, NULL, 0},
        {OP_xent_smooth_grad, cuda_xent_smooth_grad, "Fif", attrs, 1, NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        compare_part(cases[i], &local_vocabulary, &whole_vocabulary, (Part){.start = {['v'] = 0}});
        compare_part(cases[i], &local_vocabulary, &whole_vocabulary, (Part){.start = {['v'] = 40}});
        /* the frequent id 50 is the first of this part, and beyond the end of the other */
        compare_part(cases[i], &local_vocabulary, &whole_vocabulary, (Part){.start = {['v'] = 50}});
        compare_part(cases[i], &local_vocabulary, &whole_vocabulary, (Part){.start = {['v'] = 10}});
        compare_part(cases[i], &local_vocabulary, &whole_vocabulary,
                     (Part){.start = {['v'] = 80}, .valid = {['v'] = 21}});
        compare_part(cases[i], &local_vocabulary, &whole_vocabulary,
                     (Part){.start = {['v'] = 101}, .valid = {['v'] = PART_EMPTY}});
    }
}

static void positions_may_begin_anywhere(void **state)
{
    (void)state;
    const Sizes local = {{['b'] = 2, ['s'] = 3, ['E'] = 20}, {2, 3}};
    const Sizes whole = {{['b'] = 2, ['s'] = 12, ['E'] = 20}, {2, 3}};
    const Sizes chunks = {{['b'] = 2, ['s'] = 4, ['E'] = 20}, {2, 3}};
    const Attrs plain = {.theta = 1e4}, some = {.theta = 1e4, .rope_dims = 12};
    const Attrs scaled = {
        .theta = 5e5, .rope_factor = 8, .rope_low = 1, .rope_high = 4, .rope_context = 64};
    const Attrs yarn = {.theta = 1e4,
                        .rope_factor = 8,
                        .rope_low = 1,
                        .rope_high = 16,
                        .rope_gain = 1.25,
                        .rope_context = 512,
                        .rope_yarn = 1};
    Attrs whole_pairs = yarn;
    whole_pairs.rope_yarn = 2, whole_pairs.rope_dims = 12;
    Attrs by_pair = {.theta = 1e4, .rope_gain = 1.25, .rope_dims = 12};
    for (int e = 0; e < 6; e++) by_pair.rope_pair[e] = 1.5 + e;
    const Attrs image = {.theta = 1e4, .rows = 2, .columns = 3, .first = 3, .lo = 3, .hi = 7};
    const Attrs encoder = {.theta = 1e4, .rows = 4, .columns = 6, .hi = 4, .count = 2};
    const Attrs all[] = {plain, some, scaled, yarn, whole_pairs, by_pair, image, encoder};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const CudaCase forward = {OP_rope, cuda_rope, "ff", all[i], 0, NULL, 0};
        const CudaCase backward = {OP_rope_grad, cuda_rope_grad, "ff", all[i], 1, NULL, 0};
        compare_part(forward, &local, &whole, (Part){.start = {['s'] = 6}});
        compare_part(backward, &local, &whole, (Part){.start = {['s'] = 9}});
        /* two chunks: the second and the fifth of six */
        const Part two = {.start = {['s'] = 2}, .second = {['s'] = 8}};
        compare_part(forward, &chunks, &whole, two);
        compare_part(backward, &chunks, &whole, two);
    }
}

static void draws_depend_on_the_global_element(void **state)
{
    (void)state;
    const Sizes local = {{0}, {6, 24}}, odd = {{0}, {5, 7}}, whole = {{0}, {12, 24}};
    const Sizes wide = {{0}, {12, 101}};
    const CudaCase c = {OP_dropout, cuda_dropout, "ff", {.drop = 0.3, .site = 4}, 1, NULL, 0};
    Binding b;
    compare_global(OP_dropout, &whole, &b);
    unsigned char rows = (unsigned char)b.letter[0][0], columns = (unsigned char)b.letter[0][1];
    Part lower = {.start = {0}}, corner = {.start = {0}};
    lower.start[rows] = 6;
    corner.start[rows] = 6, corner.start[columns] = 77;
    compare_part(c, &local, &whole, (Part){.start = {0}});
    compare_part(c, &local, &whole, lower);
    compare_part(c, &odd, &wide, corner);
    /* rows in two chunks, with whole columns and with parts of columns */
    const Sizes four = {{0}, {4, 24}};
    Part two = {.start = {0}}, two_of = {.start = {0}};
    two.start[rows] = 2, two.second[rows] = 8;
    two_of.start[rows] = 2, two_of.second[rows] = 8, two_of.start[columns] = 77;
    compare_part(c, &four, &whole, two);
    compare_part(c, &four, &wide, two_of);
}

static void labels_of_whole_sequences_match_the_cpu(void **state)
{
    (void)state;
    const Sizes local = {{['b'] = 4, ['s'] = 5, ['T'] = 15}, {0, 0}};
    const Sizes whole = {{['b'] = 4, ['s'] = 15, ['T'] = 15, ['v'] = 50}, {0, 0}};
    const Attrs attrs = {.group = 2, .scale = 0.5, .z_loss = 0.01};
    Attrs all = attrs;
    all.count_all = 1, all.z_loss = 0;
    const CudaCase loss = {OP_xent_loss_mean, cuda_xent_loss_mean, "fPFidd", attrs, 3, NULL, 0};
    const CudaCase grad = {
        OP_xent_loss_mean_grad, cuda_xent_loss_mean_grad, "fPiFF", attrs, 3, NULL, 0};
    const CudaCase counts = {OP_xent_loss, cuda_xent_loss, "fPFidd", all, 3, NULL, 0};
    compare_part(loss, &local, &whole, (Part){.start = {['s'] = 5}});
    compare_part(grad, &local, &whole, (Part){.start = {['s'] = 10}});
    compare_part(counts, &local, &whole, (Part){.start = {['s'] = 0}});
    const Sizes chunks = {{['b'] = 4, ['s'] = 4, ['T'] = 15}, {0, 0}};
    const Part two = {.start = {['s'] = 3}, .second = {['s'] = 10}};
    compare_part(loss, &chunks, &whole, two);
    compare_part(grad, &chunks, &whole, two);
}

static void ranges_of_a_flat_unit_match_the_cpu(void **state)
{
    (void)state;
    const Sizes local = {{['x'] = 300, ['N'] = 3}, {0, 0}},
                whole = {{['x'] = 1200, ['N'] = 3}, {0, 0}};
    const int64_t range[][2] = {{0, 1200}, {290, 450}, {450, 460},
                                {0, 300},  {601, 700}, {599, 601}};
    for (size_t i = 0; i < sizeof range / sizeof range[0]; i++) {
        const Attrs attrs = {.lo = range[i][0], .hi = range[i][1], .scale = 448};
        const CudaCase cases[] = {
            {OP_sumsq, cuda_sumsq, "fd", attrs, 1, NULL, 0},
            {OP_amax_range, cuda_amax_range, "fF", attrs, 0, NULL, 0},
            {OP_quantise_range, cuda_quantise_range, "fPq", attrs, 1, NULL, 0},
        };
        for (int k = 0; k < 3; k++)
            compare_part(cases[k], &local, &whole, (Part){.start = {['x'] = 300}});
    }
}

/* Query heads of a split group, and parts that begin in the middle of a group of eight. */
static void parts_of_groups_match_the_cpu(void **state)
{
    (void)state;
    const Sizes local = {{['b'] = 2, ['s'] = 3, ['g'] = 2, ['r'] = 2, ['F'] = 6, ['E'] = 12},
                         {0, 0}};
    const Sizes whole = {{['b'] = 2, ['s'] = 3, ['g'] = 2, ['r'] = 4, ['F'] = 6, ['E'] = 12},
                         {0, 0}};
    const CudaCase heads[] = {
        {OP_part_heads, cuda_part_heads, "ff", {.first = 0}, 0, NULL, 0},
        {OP_part_heads_grad, cuda_part_heads_grad, "fF", {.first = 1}, 1, NULL, 0},
    };
    const Sizes inside = {{['b'] = 2, ['s'] = 3, ['n'] = 2, ['F'] = 24, ['X'] = 8}, {0, 0}};
    const CudaCase parts[] = {
        {OP_part, cuda_part, "ff", {.first = 1}, 0, NULL, 0},
        {OP_part_grad, cuda_part_grad, "ff", {.first = 12}, 1, NULL, 0},
    };
    for (int i = 0; i < 2; i++) {
        compare_part(heads[i], &local, &whole, (Part){.start = {['r'] = 2}});
        compare_part(parts[i], &inside, &inside, (Part){.start = {0}});
    }
}

/* Compares the ops of experts on parts of index `cut`, which has `whole` values: experts (e) or
 * their rooms (m). Slots outside the part belong to no expert of this rank, and slots of padding
 * are empty. */
static void parts_of_experts(char cut, Sizes local, int64_t n_whole)
{
    Sizes whole = local;
    whole.size[(unsigned char)cut] = n_whole;
    const Attrs attrs = {
        .top_k = 3, .experts = (int)whole.size['e'], .capacity = (int)whole.size['m']};
    const CudaCase cases[] = {
        {OP_dispatch, cuda_dispatch, "fif", attrs, 0, NULL, 0},
        {OP_dispatch_grad, cuda_dispatch_grad, "fif", attrs, 1, NULL, 0},
        {OP_combine, cuda_combine, "ifff", attrs, 0, NULL, 0},
        {OP_combine_grad, cuda_combine_grad, "fiff", attrs, 1, NULL, 0},
        {OP_combine_weights, cuda_combine_weights, "fiff", attrs, 1, NULL, 0},
    };
    const int64_t step = local.size[(unsigned char)cut];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int64_t at = 0; at < n_whole; at += step) {
            Part part = {.start = {0}};
            part.start[(unsigned char)cut] = at;
            if (at + step > n_whole) part.valid[(unsigned char)cut] = n_whole - at;
            compare_part(cases[i], &local, &whole, part);
        }
        Part padding = {.start = {0}};
        padding.start[(unsigned char)cut] = n_whole;
        padding.valid[(unsigned char)cut] = PART_EMPTY;
        compare_part(cases[i], &local, &whole, padding);
    }
}

static void parts_of_experts_and_rooms_match_the_cpu(void **state)
{
    (void)state;
    Sizes local = {{['b'] = 2, ['S'] = 12, ['K'] = 3, ['e'] = 4, ['m'] = 5, ['k'] = 24}, {0, 0}};
    parts_of_experts('e', local, 10);
    local.size['m'] = 3;
    parts_of_experts('m', local, 11);
}

/* The table of positions is whole. The tokens are a part of the sequence, or two chunks of it. */
static void positions_of_parts_match_the_cpu(void **state)
{
    (void)state;
    const Sizes local = {{['b'] = 3, ['s'] = 4, ['S'] = 12, ['k'] = 20}, {0, 0}};
    Sizes whole = local;
    whole.size['s'] = 12;
    const Attrs none = {.first = 0};
    const CudaCase cases[] = {{OP_position, cuda_position, "fff", none, 0, NULL, 0},
                              {OP_position_grad, cuda_position_grad, "fF", none, 1, NULL, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        compare_part(cases[i], &local, &whole, (Part){.start = {['s'] = 4}});
        compare_part(cases[i], &local, &whole, (Part){.start = {['s'] = 2}, .second = {['s'] = 8}});
        compare_part(cases[i], &local, &whole, (Part){.start = {['s'] = 4}, .second = {['s'] = 6}});
    }
}

/* AdamW with an eps as large as the root to which it is added, so that an eps in the wrong place
 * shows. */
static void a_large_eps_shows_its_place(void **state)
{
    (void)state;
    const Sizes unit = {{['x'] = 43, ['M'] = 2}, {0, 0}};
    const Attrs attrs = {.eps = 0.5, .beta1 = .9, .beta2 = .95, .weight_decay = .1};
    compare_part((CudaCase){OP_adamw, cuda_adamw, "ffpFdffp", attrs, 0, NULL, 0}, &unit, &unit,
                 (Part){.start = {0}});
}

/* ---- work that only the device does ---- */

static void unknown_ids_are_faults(void **state)
{
    (void)state;
    CudaContext *cuda = target_context();
    int64_t dim[3][MAX_DIMS] = {{1, 4}, {5, 8}, {1, 4, 8}};
    int32_t *ids = compare_alloc(4 * sizeof *ids, 0);
    float *table = compare_alloc(5 * 8 * sizeof *table, 0), *y = compare_alloc(4 * 8 * 4, 0);
    Value args[] = {
        {DT_i32, 2, {1, 4}, ids}, {DT_f32, 2, {5, 8}, table}, {DT_f32, 3, {1, 4, 8}, y}};
    Binding binding;
    CudaError error;
    (void)dim;
    const int32_t bad[] = {5, -1, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 40; i++) table[i] = 1;
    for (int i = 0; i < 4; i++) {
        const int32_t mine[] = {0, 4, bad[i], 2};
        memcpy(ids, mine, sizeof mine);
        KernelArgs a = eval_args(OP_embed, NULL, args, 2, 1, NULL, &binding);
        *cuda->fault = 0;
        assert_true(TARGET_RUN(0, cuda_embed(&a, cuda, &error), &error));
        assert_int_equal(*cuda->fault, (uint32_t)CUDA_FAULT_id << CUDA_FAULT_PC_BITS | cuda->pc);
        assert_true(y[2 * 8] == 0 && y[3 * 8] == 1);
    }
    *cuda->fault = 0;
    compare_free();
}

/* Labels below 0 are ignored; labels outside the vocabulary are reported. */
static void unknown_labels_are_faults(void **state)
{
    (void)state;
    enum { ROWS = 3, V = 5 };
    static const struct {
        OpKind op;
        CudaKernel kernel;
        /* true: computes dlogits from dpicked and labels; false: picked from logits and labels */
        bool back;
    } ops[] = {{OP_xent_pick, cuda_xent_pick, false},
               {OP_xent_smooth, cuda_xent_smooth, false},
               {OP_xent_pick_grad, cuda_xent_pick_grad, true},
               {OP_xent_smooth_grad, cuda_xent_smooth_grad, true}};
    static const int32_t labels[] = {V - 1, V, -1, INT32_MAX, INT32_MIN};
    CudaContext *cuda = target_context();
    float *z = compare_alloc(ROWS * V * sizeof *z, 0), *picked = compare_alloc(ROWS * 4, 0);
    int32_t *label = compare_alloc(ROWS * sizeof *label, 0);
    const Value logits = {DT_f32, 3, {1, ROWS, V}, z}, sums = {DT_f32, 2, {1, ROWS}, picked};
    const Value of_labels = {DT_i32, 2, {1, ROWS}, label};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        for (size_t k = 0; k < sizeof labels / sizeof labels[0]; k++) {
            Value args[] = {ops[i].back ? sums : logits, of_labels, ops[i].back ? logits : sums};
            Binding binding;
            CudaError error;
            const int32_t mine[ROWS] = {0, labels[k], 2};
            memcpy(label, mine, sizeof mine);
            for (int j = 0; j < ROWS * V; j++) z[j] = 1;
            for (int j = 0; j < ROWS; j++) picked[j] = 1;
            KernelArgs a = eval_args(ops[i].op, NULL, args, 2, 1, NULL, &binding);
            *cuda->fault = 0;
            assert_true(TARGET_RUN(0, ops[i].kernel(&a, cuda, &error), &error));
            uint32_t expected = (uint32_t)CUDA_FAULT_label << CUDA_FAULT_PC_BITS | cuda->pc;
            assert_int_equal(*cuda->fault, labels[k] >= V ? expected : 0);
        }
    *cuda->fault = 0;
    compare_free();
}

/* If the norm is not finite, parameters and moments stay unchanged. */
static void a_bad_norm_changes_nothing(void **state)
{
    (void)state;
    enum { N = 20 };
    float *p = compare_alloc(N * 4, 0), *m = compare_alloc(N * 4, 0), *v = compare_alloc(N * 4, 0);
    float *g = compare_alloc(N * 4, 0), before[3][N];
    double *clip = compare_alloc(16, 0);
    const double bad[][2] = {{NAN, 1}, {INFINITY, 0}, {1, NAN}, {2, 1}};
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < N; i++) p[i] = 1, m[i] = 2, v[i] = 3, g[i] = NAN;
        if (k == 3)
            for (int i = 0; i < N; i++) g[i] = 1;
        memcpy(before[0], p, sizeof before[0]), memcpy(before[1], m, sizeof before[1]);
        memcpy(before[2], v, sizeof before[2]);
        memcpy(clip, bad[k], 16);
        Value args[] = {{DT_f32, 1, {N}, p}, {DT_f32, 1, {N}, m},    {DT_f32, 1, {N}, v},
                        {DT_f32, 1, {N}, g}, {DT_f64, 1, {2}, clip}, {DT_f32, 1, {N}, p},
                        {DT_f32, 1, {N}, m}, {DT_f32, 1, {N}, v}};
        Binding binding;
        CudaError error;
        const Attrs attrs = {.beta1 = .9, .beta2 = .95, .eps = 1e-8};
        KernelArgs a = eval_args(OP_adamw, &attrs, args, 5, 3, NULL, &binding);
        assert_true(TARGET_RUN(0, cuda_adamw(&a, target_context(), &error), &error));
        bool same = memcmp(before[0], p, N * 4) == 0 && memcmp(before[1], m, N * 4) == 0 &&
                    memcmp(before[2], v, N * 4) == 0;
        assert_true(same == (k < 3));
    }
    compare_free();
}

/* bf16 weights are rounded by random draws. They must equal the CPU's bit for bit, wherever the
 * part begins. */
static void rounding_draws_equal_the_cpus(void **state)
{
    (void)state;
    enum { N = 333 };
    const CudaControl *now = target_control();
    const Control control = {.step = now->step, .lr = now->lr, .seed = now->seed};
    const Attrs attrs = {.beta1 = .9, .beta2 = .95, .eps = 1e-8, .stochastic = 1, .site = 7};
    for (int64_t start = 0; start < 6; start++) {
        Value v[2][5]; /* v[0]: the CPU's; v[1]: the device's; each has param, m, v, grad, clip */
        for (int side = 0; side < 2; side++)
            for (int i = 0; i < 5; i++) {
                v[side][i] = (Value){i == 4 ? DT_f64 : i == 3 ? DT_f32 : DT_bf16, 1, {N}, NULL};
                if (i == 4) v[side][i].dim[0] = 2;
                v[side][i].at = compare_alloc(N * 8, 0);
                for (int64_t k = 0; k < v[side][i].dim[0]; k++)
                    number_write(v[side][i].dtype, v[side][i].at, (uint64_t)k,
                                 i == 4 ? 1 : 0.5 + (double)((k * 37 + i) % 101) / 50);
            }
        Binding b;
        CudaError error;
        Part part = {.start = {['x'] = start}, .global = &b};
        Value *cpu = v[0], *device = v[1];
        Value args[2][8] = {{cpu[0], cpu[1], cpu[2], cpu[3], cpu[4], cpu[0], cpu[1], cpu[2]},
                            {device[0], device[1], device[2], device[3], device[4], device[0],
                             device[1], device[2]}};
        eval_args(OP_adamw, &attrs, args[0], 5, 3, NULL, &b);
        eval_op(OP_adamw, &attrs, args[0], 5, 3, &part, &control, 0);
        Binding local;
        KernelArgs a = eval_args(OP_adamw, &attrs, args[1], 5, 3, &part, &local);
        assert_true(TARGET_RUN(0, cuda_adamw(&a, target_context(), &error), &error));
        for (int i = 0; i < 3; i++) assert_memory_equal(cpu[i].at, device[i].at, N * 2);
        compare_free();
    }
}

/* ---- moves ---- */

static void move(OpKind op, CudaKernel kernel, DType t, Extents e, int64_t parts, int64_t chunks,
                 uint64_t odd)
{
    Arena *arena = arena_new();
    int64_t whole = e.outer * e.middle * e.inner, n_part = e.outer * e.part_size * e.inner;
    const bool one = op == OP_slice || op == OP_place;
    int64_t n[2] = {whole, one ? n_part : op == OP_copy ? whole : parts * n_part};
    if (op == OP_unpack || op == OP_place) n[0] = n[1], n[1] = whole;
    Attrs attrs = {.parts = parts, .chunks = chunks};
    Value in = value_new(arena, t, 1, &n[0]), expected = value_new(arena, t, 1, &n[1]), out;
    uint64_t bytes[2] = {(uint64_t)n[0] * dtype_bytes(t), (uint64_t)n[1] * dtype_bytes(t)};
    void *device[2] = {compare_alloc(bytes[0], odd), compare_alloc(bytes[1], odd)};
    for (uint64_t i = 0; i < bytes[0]; i++) ((uint8_t *)in.at)[i] = (uint8_t)(i * 37 + i / 251);
    memcpy(device[0], in.at, bytes[0]);
    out = expected;
    eval_reshape(op, &attrs, &in, &out, &e);
    KernelArgs a = {.ptr = {device[0], device[1]},
                    .dtype = {t, t},
                    .n_in = 1,
                    .n_args = 2,
                    .rows = 1,
                    .elements = {n[0], n[1]},
                    .outer = e.outer,
                    .middle = e.middle,
                    .inner = e.inner,
                    .part_start = e.part_start,
                    .part_size = e.part_size,
                    .attrs = attrs};
    CudaError error;
    for (uint64_t order = 0; order < 2; order++) {
        memset(device[1], 0xff, bytes[1]);
        assert_true(cuda_compute_accepts(op, a.dtype, a.n_args));
        assert_true(TARGET_RUN(order, kernel(&a, target_context(), &error), &error));
        assert_memory_equal(device[1], expected.at, bytes[1]);
    }
    compare_free();
    arena_free(arena);
}

static void moves_between_layouts_equal_the_cpus(void **state)
{
    (void)state;
    const DType types[] = {DT_bf16, DT_f32, DT_e4m3, DT_i64, DT_u8};
    const Extents extents[] = {{3, 8, 16, 4, 4}, {1, 24, 5, 8, 8},       {5, 7, 3, 4, 4},
                               {2, 10, 1, 8, 4}, {1, 1000, 8, 256, 256}, {40, 6, 64, 3, 3},
                               {3, 5, 7, 8, 4},  {7, 9, 2, 0, 9}};
    for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++)
        for (int t = 0; t < 5; t++)
            for (uint64_t odd = 0; odd < 2; odd++) {
                const Extents *e = &extents[i];
                int64_t parts = (e->middle + e->part_size - 1) / e->part_size;
                uint64_t off = odd * dtype_bytes(types[t]);
                move(OP_slice, cuda_slice, types[t], *e, parts, 0, off);
                move(OP_place, cuda_place, types[t], *e, parts, 0, off);
                move(OP_pack, cuda_pack, types[t], *e, parts + 1, 0, off);
                move(OP_unpack, cuda_unpack, types[t], *e, parts + 1, 0, off);
                move(OP_copy, cuda_copy, types[t], *e, parts, 0, off);
            }
}

/* Tokens of cp = 2, 3 and 4 in a zigzag, on their way to the keys of all ranks and back. */
static void moves_of_chunks_equal_the_cpus(void **state)
{
    (void)state;
    const DType types[] = {DT_bf16, DT_f32, DT_u8};
    const Extents extents[] = {
        {3, 8, 16, 0, 4}, {1, 24, 5, 0, 8}, {2, 8, 1, 0, 2}, {5, 96, 7, 0, 24}};
    for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++)
        for (int t = 0; t < 3; t++)
            for (uint64_t odd = 0; odd < 2; odd++) {
                const Extents *e = &extents[i];
                const int64_t parts = e->middle / e->part_size;
                const uint64_t off = odd * dtype_bytes(types[t]);
                move(OP_pack, cuda_pack, types[t], *e, parts, 2, off);
                move(OP_unpack, cuda_unpack, types[t], *e, parts, 2, off);
            }
}

static void halo(OpKind op, CudaKernel kernel, DType t, Halo h, uint64_t odd)
{
    enum { OUTER = 3, INNER = 5 };
    /* two more rows, for padding */
    const int64_t row = OUTER * INNER, rows = h.own.hi - h.own.lo + 2;
    const int64_t own = row * rows, held = row * (h.held.hi - h.held.lo + 1);
    const bool of_held = op == OP_halo_cut || op == OP_halo_fold;
    const bool joins = op == OP_halo_join || op == OP_halo_fold;
    const uint32_t last = joins ? 2 : 1;
    KernelArgs a = {.n_in = last,
                    .n_args = last + 1,
                    .outer = OUTER,
                    .inner = INNER,
                    .middle = rows,
                    .part_size = held / row,
                    .halo = h};
    a.elements[0] = of_held ? held : own;
    a.elements[1] = 2 * row * h.strip;
    if (joins) a.elements[2] = of_held ? own : held;
    void *cpu[3], *device[3];
    for (uint32_t i = 0; i <= last; i++) {
        const uint64_t bytes = (uint64_t)a.elements[i] * dtype_bytes(t);
        cpu[i] = compare_alloc(bytes, 0), device[i] = compare_alloc(bytes, odd * dtype_bytes(t));
        a.dtype[i] = t;
        for (int64_t k = 0; k < a.elements[i]; k++)
            number_write(t, cpu[i], (uint64_t)k, (double)((k * 37 + i) % 101) - 50);
        memcpy(device[i], cpu[i], bytes);
    }
    memcpy(a.ptr, cpu, sizeof cpu);
    kernel_cpu(op)(&a);
    memcpy(a.ptr, device, sizeof device);
    CudaError error;
    const uint64_t bytes = (uint64_t)a.elements[last] * dtype_bytes(t);
    memset(device[last], 0xff, bytes);
    assert_true(cuda_compute_accepts(op, a.dtype, a.n_args));
    assert_true(TARGET_RUN(0, kernel(&a, target_context(), &error), &error));
    assert_memory_equal(device[last], cpu[last], bytes);
    compare_free();
}

/* Tests a part in the middle, at both edges, one that wraps around, and one that lies inside its
 * neighbours' halos. */
static void halos_equal_the_cpus(void **state)
{
    (void)state;
    const Halo at[] = {{{8, 16}, {6, 17}, 2, 1, 2, 1, 2, false},
                       {{0, 8}, {0, 9}, 0, 1, 2, 0, 2, false},
                       {{16, 22}, {14, 22}, 2, 0, 0, 1, 2, false},
                       {{0, 8}, {-1, 10}, 1, 2, 1, 2, 2, true},
                       {{4, 6}, {2, 8}, 2, 2, 1, 1, 2, false}};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++)
        for (int t = 0; t < 3; t++)
            for (uint64_t odd = 0; odd < 2; odd++) {
                const DType type = precisions[t];
                halo(OP_halo_pack, cuda_halo_pack, type, at[i], odd);
                halo(OP_halo_join, cuda_halo_join, type, at[i], odd);
                halo(OP_halo_cut, cuda_halo_cut, type, at[i], odd);
                halo(OP_halo_fold, cuda_halo_fold, type, at[i], odd);
            }
}

static void pieces(OpKind op, CudaKernel kernel, DType t, Strides s, uint64_t odd)
{
    enum { OUTER = 3, INNER = 5 };
    const bool packs = op == OP_stride_pack;
    const int64_t sent = s.n_parts * s.most * s.rows * OUTER * INNER;
    const int64_t part = s.pieces * s.rows * OUTER * INNER;
    KernelArgs a = {.n_in = 1,
                    .n_args = 2,
                    .dtype = {t, t},
                    .elements = {packs ? part : sent, packs ? sent : part},
                    .outer = OUTER,
                    .middle = s.pieces * s.rows,
                    .inner = INNER,
                    .strides = s};
    void *cpu[2], *device[2];
    for (uint32_t i = 0; i < 2; i++) {
        const uint64_t bytes = (uint64_t)a.elements[i] * dtype_bytes(t);
        cpu[i] = compare_alloc(bytes, 0), device[i] = compare_alloc(bytes, odd * dtype_bytes(t));
        for (int64_t k = 0; k < a.elements[i]; k++)
            number_write(t, cpu[i], (uint64_t)k, (double)((k * 37 + i) % 101) - 50);
        memcpy(device[i], cpu[i], bytes);
    }
    memcpy(a.ptr, cpu, sizeof cpu);
    kernel_cpu(op)(&a);
    memcpy(a.ptr, device, sizeof device);
    CudaError error;
    const uint64_t bytes = (uint64_t)a.elements[1] * dtype_bytes(t);
    memset(device[1], 0xff, bytes);
    assert_true(cuda_compute_accepts(op, a.dtype, a.n_args));
    assert_true(TARGET_RUN(0, kernel(&a, target_context(), &error), &error));
    assert_memory_equal(device[1], cpu[1], bytes);
    compare_free();
}

/* Contiguous rows are exchanged for rows at equal distances, and back. The number of pieces is a
 * multiple of the ranks, or not. */
static void strided_pieces_equal_the_cpus(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 4; n++)
        for (int64_t of_part = 2; of_part <= 5; of_part++)
            for (int t = 0; t < 3; t++)
                for (uint32_t way = 0; way < 4; way++) {
                    const Strides s = {n,
                                       (uint32_t)(of_part % n),
                                       of_part,
                                       1 + of_part % 3,
                                       (of_part + n - 1) / n,
                                       way & 1};
                    pieces(OP_stride_pack, cuda_stride_pack, precisions[t], s, way / 2);
                    pieces(OP_stride_unpack, cuda_stride_unpack, precisions[t], s, way / 2);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_a_vocabulary_match_the_cpu),
        cmocka_unit_test(positions_may_begin_anywhere),
        cmocka_unit_test(positions_of_parts_match_the_cpu),
        cmocka_unit_test(draws_depend_on_the_global_element),
        cmocka_unit_test(labels_of_whole_sequences_match_the_cpu),
        cmocka_unit_test(ranges_of_a_flat_unit_match_the_cpu),
        cmocka_unit_test(unknown_ids_are_faults),
        cmocka_unit_test(unknown_labels_are_faults),
        cmocka_unit_test(parts_of_groups_match_the_cpu),
        cmocka_unit_test(parts_of_experts_and_rooms_match_the_cpu),
        cmocka_unit_test(a_large_eps_shows_its_place),
        cmocka_unit_test(rounding_draws_equal_the_cpus),
        cmocka_unit_test(a_bad_norm_changes_nothing),
        cmocka_unit_test(moves_between_layouts_equal_the_cpus),
        cmocka_unit_test(moves_of_chunks_equal_the_cpus),
        cmocka_unit_test(halos_equal_the_cpus),
        cmocka_unit_test(strided_pieces_equal_the_cpus),
    };
    return cmocka_run_group_tests_name("CUDA kernels on parts", tests, NULL, NULL);
}
