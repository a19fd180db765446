/* A run of fused ops is one launch. It must give the bits of the single ops. The test has chosen
 * cases and runs drawn by seed, in which several ops may use the same buffers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "kernels/cuda/pointwise/fused.h"
#include "kernels/number.h"
#include "planner/base/rng.h"
#include "tests/cuda/compare.h"

enum { BUFFERS = 10, VECTORS = 2, MAXIMA = CUDA_CHAIN_MAX + 2, ALL = BUFFERS + VECTORS + MAXIMA };
enum { ROWS_MOST = 40, ROW_MOST = 264, MOST = ROWS_MOST * ROW_MOST };

/* Buffers [rows, row], buffers of a few rows, and memory for largest magnitudes. Every run starts
 * from the same contents. */
typedef struct Pool {
    int64_t rows, row;
    DType dtype[ALL];
    void *at[ALL], *scratch;
    uint64_t bytes[ALL];
    unsigned char start[ALL][MOST * 4], alone[ALL][MOST * 4];
    Binding binding; /* of dropout */
} Pool;

static uint64_t seed_now, draws;

static uint64_t below(uint64_t n)
{
    return rng_below(seed_now, 1, draws++, n);
}

/* With `half`, all buffers are aligned and in bf16, for which some chains have special kernels. */
static void pool_fill(Pool *p, bool half)
{
    static const DType dtypes[] = {DT_f32, DT_bf16, DT_f16};
    static const int64_t rows[] = {1, 4, 37}, row[] = {8, 13, 64, 256};
    p->rows = rows[below(3)], p->row = row[below(4)];
    DType usual = dtypes[below(3)];
    p->scratch = compare_alloc(4096 * sizeof(uint32_t), 0);
    for (int i = 0; i < ALL; i++) {
        int64_t n = i < BUFFERS ? p->rows * p->row : i < BUFFERS + VECTORS ? p->row : p->rows;
        bool maximum = i >= BUFFERS + VECTORS;
        p->dtype[i] = maximum ? DT_f32 : half ? DT_bf16 : below(4) == 0 ? dtypes[below(3)] : usual;
        p->bytes[i] = (uint64_t)n * dtype_bytes(p->dtype[i]);
        const bool odd = !maximum && !half && below(5) == 0;
        p->at[i] = compare_alloc(p->bytes[i], odd ? dtype_bytes(p->dtype[i]) : 0);
        for (int64_t k = 0; k < n; k++)
            number_write(p->dtype[i], p->start[i], (uint64_t)k,
                         rng_normal(seed_now, (uint64_t)i + 2, (uint64_t)k));
    }
}

static void pool_start(Pool *p)
{
    for (int i = 0; i < ALL; i++) memcpy(p->at[i], p->start[i], p->bytes[i]);
}

typedef struct Op {
    OpKind op;
    CudaKernel kernel;
    bool accumulates;
} Op;

static const Op ops[] = {
    {OP_add, cuda_add, false},
    {OP_mul, cuda_mul, true},
    {OP_scale, cuda_scale, true},
    {OP_silu, cuda_silu, false},
    {OP_silu_grad, cuda_silu_grad, true},
    {OP_gelu, cuda_gelu, false},
    {OP_gelu_grad, cuda_gelu_grad, true},
    {OP_pass, cuda_pass, true},
    {OP_cast, cuda_cast, false},
    {OP_bias, cuda_bias, false},
    {OP_dropout, cuda_dropout, true},
    {OP_amax, cuda_amax, false},
    {OP_amax_of_tokens, cuda_amax_of_tokens, false},
};
enum { N_OPS = sizeof ops / sizeof ops[0] };

static bool is_amax(OpKind op)
{
    return op == OP_amax || op == OP_amax_of_tokens;
}

static KernelArgs args_of(Pool *p, const Op *op, const int *arg, uint32_t n_in)
{
    KernelArgs a = {.n_in = n_in, .n_args = n_in + 1, .rows = p->rows * p->row};
    if (op->op == OP_dropout) {
        const Value x = {p->dtype[arg[0]], 2, {p->rows, p->row}, p->at[arg[0]]}, y[] = {x, x};
        a = eval_args(OP_dropout, NULL, y, 1, 1, NULL, &p->binding);
        /* these are rows of a longer tensor */
        unsigned char first = (unsigned char)p->binding.letter[0][0];
        a.start[first] = 3, a.second[first] += 3, p->binding.size[first] += 5;
        a.attrs.drop = 0.3, a.attrs.site = 5 + arg[1];
    }
    for (uint32_t i = 0; i < a.n_args; i++) {
        a.ptr[i] = p->at[arg[i]];
        a.dtype[i] = p->dtype[arg[i]];
        a.elements[i] = arg[i] < BUFFERS ? p->rows * p->row : p->row;
    }
    a.attrs.scale = 0.75;
    if (op->op == OP_bias || op->op == OP_amax_of_tokens)
        a.rows = p->row, a.size['b'] = 1, a.size['s'] = p->rows;
    if (is_amax(op->op)) {
        a.elements[1] = op->op == OP_amax ? 1 : p->rows;
        /* scratch, which is passed only to an op that runs alone */
        a.ptr[2] = p->scratch, a.dtype[2] = DT_u8, a.n_args = 3;
    }
    return a;
}

/* Draws a part. `latest`: the buffer of the part before, which it reads; -1: none. No other part
 * uses the memory of a largest magnitude. */
static KernelArgs draw_part(Pool *p, const Op *op, uint32_t i_part, int latest)
{
    uint32_t n_in = op_info(op->op)->sig.n_in;
    int arg[3];
    for (uint32_t i = 0; i <= n_in; i++) arg[i] = (int)below(BUFFERS);
    if (op->op == OP_bias) arg[1] = BUFFERS + (int)below(VECTORS);
    if (latest >= 0 && (is_amax(op->op) || below(3) == 0)) arg[0] = latest;
    if (is_amax(op->op))
        arg[1] = BUFFERS + VECTORS + (int)i_part;
    else if (below(3) == 0)
        arg[n_in] = arg[0]; /* in place */
    KernelArgs a = args_of(p, op, arg, n_in);
    if (op->accumulates && arg[n_in] != arg[0] && below(3) == 0) a.attrs.accumulate = 1;
    return a;
}

static bool same_as_alone(const Pool *p, const bool *unread)
{
    for (int i = 0; i < ALL; i++)
        if (!unread[i] && memcmp(p->alone[i], p->at[i], p->bytes[i]) != 0) return false;
    return true;
}

/* Returns true if part k's output may stay unwritten: no later part, fused or not, uses its buffer,
 * except to read it inside the run. */
static bool may_stay_unread(const CudaChainPart *part, uint32_t k, uint32_t length, uint32_t n)
{
    const KernelArgs *mine = part[k].args;
    void *home = mine->ptr[mine->n_in];
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < part[i].args->n_args && i != k; j++) {
            bool writes = j == part[i].args->n_in;
            if (part[i].args->ptr[j] == home && (writes || i > length)) return false;
        }
    return true;
}

/* numbers of fused dropouts, and of fused ops for the largest magnitude */
static uint32_t n_dropped, n_largest;

/* Runs the parts one by one, then in chains. Returns true if some parts were fused. */
static bool check_run(Pool *p, CudaChainPart *part, const Op *const *op, uint32_t n, uint64_t order)
{
    CudaError error;
    bool unread[ALL] = {0}, fused = false;
    pool_start(p);
    for (uint32_t i = 0; i < n; i++)
        assert_true(TARGET_RUN(0, op[i]->kernel(part[i].args, target_context(), &error), &error));
    for (int i = 0; i < ALL; i++) memcpy(p->alone[i], p->at[i], p->bytes[i]);
    pool_start(p);
    for (uint32_t at = 0; at < n;) {
        uint32_t length = kernel_cuda_chain_length(part + at, n - at);
        assert_true(length != 1 && length <= n - at);
        if (length == 0) {
            assert_true(
                TARGET_RUN(order, op[at]->kernel(part[at].args, target_context(), &error), &error));
            at++;
            continue;
        }
        for (uint32_t k = at; k < at + length; k++)
            if (below(2) && !is_amax(part[k].op) && may_stay_unread(part, k, at + length - 1, n)) {
                part[k].unread = 1;
                for (int i = 0; i < BUFFERS; i++)
                    unread[i] |= p->at[i] == part[k].args->ptr[part[k].args->n_in];
            }
        assert_true(TARGET_RUN(
            order, kernel_cuda_chain(part + at, length, target_context(), &error), &error));
        assert_int_equal(target_launches(), 1);
        for (uint32_t k = at; k < at + length; k++) {
            n_dropped += part[k].op == OP_dropout;
            n_largest += is_amax(part[k].op);
        }
        at += length;
        fused = true;
    }
    for (int i = 0; i < ALL; i++) /* outputs that were declared unread must not be written */
        if (unread[i]) assert_memory_equal(p->at[i], p->start[i], p->bytes[i]);
    assert_true(same_as_alone(p, unread));
    compare_check();
    return fused;
}

static void drawn_runs_give_the_bits_of_single_ops(void **state)
{
    (void)state;
    static Pool pool;
    uint32_t n_fused = 0;
    for (seed_now = 1; seed_now <= 300; seed_now++) {
        KernelArgs args[CUDA_CHAIN_MAX + 2];
        CudaChainPart part[CUDA_CHAIN_MAX + 2];
        const Op *op[CUDA_CHAIN_MAX + 2];
        uint32_t n = 2 + (uint32_t)below(CUDA_CHAIN_MAX + 1);
        int latest = -1;
        draws = 0;
        pool_fill(&pool, false);
        for (uint32_t i = 0; i < n; i++) {
            op[i] = &ops[below(N_OPS)];
            args[i] = draw_part(&pool, op[i], i, latest);
            part[i] = (CudaChainPart){op[i]->op, &args[i], 0};
            for (int k = 0; k < BUFFERS; k++)
                if (!is_amax(op[i]->op) && pool.at[k] == args[i].ptr[args[i].n_in]) latest = k;
        }
        n_fused += check_run(&pool, part, op, n, 1 + seed_now % 3);
        compare_free();
    }
    assert_true(n_fused > 280); /* not all runs are fused: some begin with a part that cannot be */
    assert_true(n_dropped > 50 && n_largest > 50);
}

/* ---- gated units ---- */

/* Draws a gated unit (n: 2), its gradient (n: 3), or the gradient that recomputes silu (n: 4), in
 * random buffers. Often several of these share memory, so that the special kernel must refuse.
 * Returns true if that kernel may run. */
static bool gate_of(Pool *p, uint32_t n, KernelArgs *args, CudaChainPart *part, const Op **op)
{
    static const Op silu = {OP_silu, cuda_silu, false}, mul = {OP_mul, cuda_mul, false};
    static const Op slope = {OP_silu_grad, cuda_silu_grad, false};
    static const Op *const ops_of[3][4] = {
        {&silu, &mul}, {&mul, &mul, &slope}, {&mul, &silu, &mul, &slope}};
    int at[BUFFERS]; /* buffers of gate, up, d, silu, middle, out, and of the gate's output */
    bool apart = below(2) == 0;
    for (int i = 0; i < BUFFERS; i++) at[i] = apart ? i : (int)below(7);
    if (apart && below(2)) at[6] = at[4];
    const int of[3][4][3] = {
        {{at[0], at[4]}, {at[4], at[1], at[5]}},
        {{at[2], at[1], at[4]}, {at[2], at[3], at[5]}, {at[4], at[0], at[6]}},
        {{at[2], at[1], at[4]}, {at[0], at[3]}, {at[2], at[3], at[5]}, {at[4], at[0], at[6]}}};
    for (uint32_t i = 0; i < n; i++) {
        op[i] = ops_of[n - 2][i];
        args[i] = args_of(p, op[i], of[n - 2][i], op_info(op[i]->op)->sig.n_in);
        part[i] = (CudaChainPart){op[i]->op, &args[i], 0};
    }
    return apart;
}

static void gated_units_give_the_bits_of_single_ops(void **state)
{
    (void)state;
    static Pool pool;
    uint32_t own[3] = {0}, declined = 0, halves = 0;
    for (seed_now = 1001; seed_now <= 1360; seed_now++) {
        KernelArgs args[4];
        CudaChainPart part[4];
        const Op *op[4];
        draws = 0;
        const bool half = below(4) == 0;
        pool_fill(&pool, half);
        const uint32_t n = 2 + (uint32_t)below(3);
        const bool apart = gate_of(&pool, n, args, part, op);
        const uint32_t length = cuda_gate_length(part, n);
        if (apart) assert_int_equal(length, n);
        own[n - 2] += length > 0, declined += length == 0, halves += half && length > 0;
        assert_true(check_run(&pool, part, op, n, 1 + seed_now % 3));
        compare_free();
    }
    assert_true(own[0] > 60 && own[1] > 60 && own[2] > 60 && declined > 30 && halves > 30);
}

/* ---- a sum and its norm ---- */

static Value value_of(DType t, uint32_t n, int64_t rows, int64_t row, uint64_t stream)
{
    Value v = {t, (uint8_t)n, {1, rows, row}, NULL};
    if (n == 1) v.dim[0] = row;
    v.at = compare_alloc((uint64_t)value_elements(&v) * dtype_bytes(t), 0);
    for (int64_t i = 0; i < value_elements(&v); i++)
        number_write(t, v.at, (uint64_t)i, rng_normal(5, stream, (uint64_t)i));
    return v;
}

static void check_sum_and_norm(DType t, int64_t rows, int64_t width, bool layer, bool unread)
{
    Value x = value_of(t, 3, rows, width, 1), more = value_of(t, 3, rows, width, 2);
    Value weight = value_of(t, 1, 0, width, 3), bias = value_of(t, 1, 0, width, 4);
    Value out[2][4]; /* sum, y, then mean and r of layernorm or r of rmsnorm */
    CudaError error;
    for (int fused = 0; fused < 2; fused++) {
        for (int k = 0; k < 2; k++) out[fused][k] = value_of(t, 3, rows, width, 6);
        for (int k = 2; k < 4; k++) {
            out[fused][k] = value_of(DT_f32, 1, 0, rows, 7);
            out[fused][k].n_dims = 2, out[fused][k].dim[0] = 1, out[fused][k].dim[1] = rows;
        }
        const Value *o = out[fused];
        Value sum[] = {x, more, o[0]}, rms[] = {o[0], weight, o[1], o[2]};
        Value norm[] = {o[0], weight, bias, o[1], o[2], o[3]};
        const Attrs attrs = {.eps = 1e-5};
        Binding b[2];
        OpKind op = layer ? OP_layernorm : OP_rmsnorm;
        KernelArgs first = eval_args(OP_add, NULL, sum, 2, 1, NULL, &b[0]);
        KernelArgs second = layer ? eval_args(op, &attrs, norm, 3, 3, NULL, &b[1])
                                  : eval_args(op, &attrs, rms, 2, 2, NULL, &b[1]);
        CudaChainPart part[] = {{OP_add, &first, unread}, {op, &second, 0}};
        if (fused) {
            assert_int_equal(kernel_cuda_chain_length(part, 2), 2);
            assert_true(
                TARGET_RUN(1, kernel_cuda_chain(part, 2, target_context(), &error), &error));
            assert_int_equal(target_launches(), 1);
        } else {
            CudaKernel then = layer ? cuda_layernorm : cuda_rmsnorm;
            assert_true(TARGET_RUN(0, cuda_add(&first, target_context(), &error), &error));
            assert_true(TARGET_RUN(0, then(&second, target_context(), &error), &error));
        }
    }
    for (int k = unread ? 1 : 0; k < (layer ? 4 : 3); k++) {
        uint64_t bytes = (uint64_t)value_elements(&out[0][k]) * dtype_bytes(out[0][k].dtype);
        assert_memory_equal(out[0][k].at, out[1][k].at, bytes);
    }
    compare_free();
}

static void sums_with_norms_give_the_bits_of_single_ops(void **state)
{
    (void)state;
    static const DType dtypes[] = {DT_f32, DT_bf16, DT_f16};
    static const int64_t width[] = {13, 64, 2056, 8200};
    for (int t = 0; t < 3; t++)
        for (int w = 0; w < 4; w++)
            for (int k = 0; k < 4; k++)
                check_sum_and_norm(dtypes[t], w > 2 ? 2 : 7, width[w], k % 2 != 0, k / 2 != 0);
}

/* Ops that must not become one launch. */
static void some_ops_are_not_fused(void **state)
{
    (void)state;
    Value x = value_of(DT_f32, 3, 4, 16, 1), y = value_of(DT_f32, 3, 4, 16, 2);
    Value z = value_of(DT_f32, 3, 4, 16, 3), w = value_of(DT_f32, 3, 4, 8, 4);
    Value eight = value_of(DT_e4m3, 3, 4, 16, 5);
    Value sum[] = {x, y, z}, half[] = {w, w}, narrow[] = {z, eight};
    Binding b;
    KernelArgs add = eval_args(OP_add, NULL, sum, 2, 1, NULL, &b);
    KernelArgs silu = eval_args(OP_silu, NULL, half, 1, 1, NULL, &b);
    KernelArgs cast = eval_args(OP_cast, NULL, narrow, 1, 1, NULL, &b);
    const CudaChainPart sizes[] = {{OP_add, &add, 0}, {OP_silu, &silu, 0}};
    const CudaChainPart bits[] = {{OP_add, &add, 0}, {OP_cast, &cast, 0}};
    const CudaChainPart kinds[] = {{OP_add, &add, 0}, {OP_rope, &silu, 0}};
    assert_int_equal(kernel_cuda_chain_length(sizes, 2), 0);
    assert_int_equal(kernel_cuda_chain_length(bits, 2), 0);
    assert_int_equal(kernel_cuda_chain_length(kinds, 2), 0);
    assert_int_equal(kernel_cuda_chain_length(sizes, 1), 0);
    compare_free();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawn_runs_give_the_bits_of_single_ops),
        cmocka_unit_test(gated_units_give_the_bits_of_single_ops),
        cmocka_unit_test(sums_with_norms_give_the_bits_of_single_ops),
        cmocka_unit_test(some_ops_are_not_fused),
    };
    return cmocka_run_group_tests_name("chains of CUDA kernels", tests, NULL, NULL);
}
