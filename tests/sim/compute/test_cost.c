/* The compute model against published timings by shape. The test bounds the mean error of the whole
 * table, not the error of one row. It also tests keys, the cache, and closed forms of memory-bound
 * instructions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/compute/kernels.h"
#include "tests/sim/synthetic.h"

static Device device_of(bool hopper)
{
    Device d = {.name = hopper ? "H100" : "A100", .arch = hopper ? "Hopper" : "Ampere"};
    d.sms = hopper ? 132 : 108;
    d.hbm_bytes_per_s = hopper ? 3.35e12 : 2.039e12;
    d.peak_flops[DT_bf16] = hopper ? 989.4e12 : 312e12;
    d.peak_flops[DT_f32] = hopper ? 66.9e12 : 19.5e12;
    d.gemm_efficiency = hopper ? .806 : .783; /* scripts/tandem/fitted_kernels.lua */
    d.memory_efficiency = hopper ? .80 : .75;
    d.kernel_floor_s = hopper ? 5e-6 : 3e-6;
    return d;
}

static FILE *open_data(const char *path)
{
    char line[256];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    return f;
}

static void published_gemm_timings_are_predicted(void **state)
{
    (void)state;
    char line[256];
    double sum[2] = {0}, large[2] = {0};
    uint32_t n[2] = {0}, n_large[2] = {0};
    FILE *f = open_data(TANDEM_SOURCE_DIR "/tests/data/measured_gemm.csv");
    while (fgets(line, sizeof line, f) != NULL) {
        double gm, gn, gk, us;
        char gpu[16];
        assert_int_equal(sscanf(line, "%15[^,],%lf,%lf,%lf,%lf", gpu, &gm, &gn, &gk, &us), 5);
        uint32_t hopper = gpu[0] == 'H';
        Device d = device_of(hopper == 1);
        double model = 1e6 * cost_gemm_s(&d, DT_bf16, 1, gm, gn, gk, NULL);
        double error = fabs(model / us - 1);
        sum[hopper] += error;
        n[hopper]++;
        if (gm < 1024) continue;
        large[hopper] += error;
        n_large[hopper]++;
    }
    fclose(f);
    for (uint32_t i = 0; i < 2; i++) {
        printf("%s: %u GEMMs, mean error %.1f%%; %u of >= 1024 rows: %.1f%%\n",
               i == 0 ? "A100" : "H100", n[i], 100 * sum[i] / n[i], n_large[i],
               100 * large[i] / n_large[i]);
        assert_true(n_large[i] > 20);
        assert_true(sum[i] / n[i] < .15);
        assert_true(large[i] / n_large[i] < .10);
    }
}

/* Twice the work never takes less time. A full wave of tiles takes no more time per FLOP than a
 * partly filled one. */
static void a_partial_wave_costs_a_full_one(void **state)
{
    (void)state;
    Device d = device_of(true);
    double least = 0;
    for (double m = 128; m <= 65536; m += 1024) {
        double s = cost_gemm_s(&d, DT_bf16, 1, m, 8192, 8192, NULL);
        assert_true(s >= least * (1 - 1e-12));
        least = s;
    }
    /* 132 tiles, which is one wave */
    double full = cost_gemm_s(&d, DT_bf16, 1, 128 * 12, 256 * 11, 8192, NULL);
    double over =
        cost_gemm_s(&d, DT_bf16, 1, 128 * 12, 256 * 12, 8192, NULL); /* 144: another wave */
    assert_true(over > 1.2 * full); /* smaller tiles save a part of the second wave */
}

static ShapeId shape_of(Plan *plan, int64_t a, int64_t b, int64_t c)
{
    Shape s = {.n_dims = (uint8_t)(c > 0 ? 3 : b > 0 ? 2 : 1), .dim = {a, b, c}};
    return plan_shape(plan, &s);
}

static Pc add_op(Plan *plan, OpKind op, uint32_t n_in, const ShapeId *shapes, uint32_t n,
                 DType dtype)
{
    Program *p = &plan->programs.at[0];
    Instr in = {.op = op, .stream = STREAM_compute, .n_in = (uint8_t)n_in};
    in.args = (Span){p->args.n, n};
    for (uint32_t i = 0; i < n; i++) {
        const Shape *s = plan_shape_at(plan, shapes[i]);
        Buffer b = {.shape = shapes[i], .dtype = dtype};
        b.bytes =
            (uint64_t)shape_local_elements(s, &plan->mesh, &plan->graph.deals) * dtype_bytes(dtype);
        list_push(plan->arena, &p->args, list_push(plan->arena, &p->buffers, b));
    }
    return list_push(plan->arena, &p->code, in);
}

static void keys_contain_local_sizes(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = synthetic_plan(arena, 1, 1, 2, 1);
    Shape x = {.n_dims = 3, .dim = {1, 256, 64}}, w = {.n_dims = 2, .dim = {64, 128}};
    Shape y = {.n_dims = 3, .dim = {1, 256, 128}};
    w.layout.on[0] = SPLIT(1);
    y.layout.on[0] = SPLIT(2);
    ShapeId shapes[] = {plan_shape(plan, &x), plan_shape(plan, &w), plan_shape(plan, &y)};
    Pc pc = add_op(plan, OP_linear, 2, shapes, 3, DT_f32);
    const Program *p = &plan->programs.at[0];
    assert_string_equal(cost_key(plan, p, program_instr(p, pc), arena),
                        "linear f32 bsk,kn->bsn b=1 s=256 k=64 n=64");
    ShapeId vectors[] = {shape_of(plan, 10, 0, 0), shape_of(plan, 10, 0, 0)};
    pc = add_op(plan, OP_copy, 1, vectors, 2, DT_f64);
    assert_string_equal(cost_key(plan, p, program_instr(p, pc), arena), "copy f64 [10]->[10]");
    arena_free(arena);
}

static void memory_bound_ops_have_their_closed_form(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    Cluster cluster = {.device = device_of(false)};
    ShapeId shape = shape_of(plan, 4, 4096, 4096);
    ShapeId shapes[] = {shape, shape, shape};
    Pc add = add_op(plan, OP_add, 2, shapes, 3, DT_bf16);
    Pc again = add_op(plan, OP_add, 2, shapes, 3, DT_bf16);
    Pc copy = add_op(plan, OP_copy, 1, shapes, 2, DT_bf16);
    /* Has one input more than the op allows, so the sizes of its indices are unknown. */
    Pc unbound = add_op(plan, OP_silu, 2, shapes, 3, DT_bf16);
    const Program *p = &plan->programs.at[0];
    Cost *cost = cost_new(&cluster, NULL, NULL, NULL, arena, &d);
    CostModel model = cost_model(cost);
    double bytes = 3. * 2 * 4 * 4096 * 4096, part = .75 * 2.039e12;
    Ps expected = (Ps)llround((3e-6 + bytes / part) * 1e12);
    assert_int_equal(model.compute(model.self, plan, p, program_instr(p, add)), expected);
    assert_int_equal(model.compute(model.self, plan, p, program_instr(p, again)), expected);
    assert_int_equal(model.compute(model.self, plan, p, program_instr(p, unbound)), expected);
    expected = (Ps)llround((3e-6 + bytes * 2 / 3 / part) * 1e12);
    assert_int_equal(model.compute(model.self, plan, p, program_instr(p, copy)), expected);
    CostCounts counts;
    cost_counts(cost, &counts);
    assert_int_equal(counts.kernels_measured, 0);
    assert_int_equal(counts.kernels_modelled, 3);
    arena_free(arena);
}

/* If a profile names the kernel of an op, the op takes that kernel's time, including its launch.
 * Each further call of the op launches one more kernel. */
static void named_kernels_have_their_closed_form(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    Cluster cluster = {.device = device_of(true)};
    ShapeId x = shape_of(plan, 4, 2048, 4096), row = shape_of(plan, 4096, 0, 0);
    ShapeId statistics = shape_of(plan, 4, 2048, 0), shapes[] = {x, row, x, statistics};
    Pc norm = add_op(plan, OP_rmsnorm, 2, shapes, 4, DT_bf16);
    const Program *p = &plan->programs.at[0];
    Runtime runtime = {.name = "some"};
    for (int op = 0; op < OP_COUNT; op++) runtime.op[op] = (RuntimeOp){.kernels = 1, .passes = 1};
    double bytes = 2. * (2 * 4 * 2048 * 4096 + 4096 + 4 * 2048), rows = 4 * 2048;
    for (int kernel = TRAFFIC_any; kernel < TRAFFIC_KERNEL_COUNT; kernel++) {
        runtime.op[OP_rmsnorm].kernel = (TrafficKernel)kernel;
        runtime.op[OP_rmsnorm].kernels = 2;
        runtime.op[OP_rmsnorm].calls = kernel;
        CostModel model = cost_model(cost_new(&cluster, &runtime, NULL, NULL, arena, &d));
        double s = bytes / (.8 * 3.35e12);
        if (kernel != TRAFFIC_any) {
            const TrafficFit *fit = kernel_traffic_fit(&cluster.device, (TrafficKernel)kernel);
            double far = 1 - fit->near * 25e6 / bytes;
            s = bytes * far / (fit->part * 3.35e12) + rows * fit->row_us * 1e-6 / 132;
        }
        Ps expected = (Ps)llround(((2 + kernel) * 5e-6 + s) * 1e12);
        Ps got = model.compute(model.self, plan, p, program_instr(p, norm));
        assert_true(llabs((long long)(got - expected)) <= 1);
    }
    arena_free(arena);
}

/* Before Blackwell, an 8-bit operand that is not contiguous along the summed index is copied first:
 * it is read and written once more. Forward this is the weight, for the input's gradient nothing,
 * and for the weight's gradient both operands. */
static void copied_operands_have_their_closed_form(void **state)
{
    (void)state;
    enum { S = 2048, K = 4096, N = 8192 };
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    Cluster hopper = {.device = device_of(true)}, blackwell = hopper;
    hopper.device.arch = "Hopper", blackwell.device.arch = "Blackwell";
    Shape scalar = {.n_dims = 0};
    ShapeId x = shape_of(plan, 1, S, K), w = shape_of(plan, K, N, 0), y = shape_of(plan, 1, S, N);
    ShapeId one = plan_shape(plan, &scalar);
    const struct {
        OpKind op;
        ShapeId shapes[5];
        double turned, m, n, k;
    } products[] = {
        {OP_linear_tensorwise, {x, w, one, one, y}, (double)K * N, S, N, K},
        {OP_linear_tensorwise_d0, {y, w, one, one, x}, 0, S, K, N},
        {OP_linear_tensorwise_d1, {x, y, one, one, w}, (double)S * K + (double)S * N, K, N, S},
    };
    CostModel with = cost_model(cost_new(&hopper, NULL, NULL, NULL, arena, &d));
    for (int i = 0; i < 3; i++) {
        Pc pc = add_op(plan, products[i].op, 4, products[i].shapes, 5, DT_e4m3);
        const Program *p = &plan->programs.at[0];
        const Instr *in = program_instr(p, pc);
        CostModel without = cost_model(cost_new(&blackwell, NULL, NULL, NULL, arena, &d));
        Ps more = with.compute(with.self, plan, p, in) - without.compute(without.self, plan, p, in);
        const double m = products[i].m, n = products[i].n, k = products[i].k;
        /* plus the difference between the two devices' products */
        double s = 2 * products[i].turned / (.8 * 3.35e12);
        s += kernel_gemm_s(&hopper.device, DT_e4m3, 1, m, n, k, kernel_gemm_timed(&hopper.device)) -
             kernel_gemm_s(&blackwell.device, DT_e4m3, 1, m, n, k, NULL);
        assert_in_range(more + 2, llround(s * 1e12), llround(s * 1e12) + 4);
    }
    arena_free(arena);
}

/* Products with block scales have a rate of their own, without copies and without kernels after the
 * product. They read one byte for each number, and one for each 32 numbers. */
static void block_scales_have_their_closed_form(void **state)
{
    (void)state;
    enum { S = 2048, K = 4096, N = 8192 };
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    Cluster cluster = {.device = device_of(true)};
    cluster.device.arch = "Blackwell";
    cluster.device.peak_flops[DT_e4m3] = 2000e12;
    /* differs from any real device, so that the two rates differ */
    cluster.device.peak_flops[DT_e8m0] = 1000e12;
    const Shape values[] = {{.n_dims = 4, .dim = {1, S, K / 32, 32}},
                            {.n_dims = 3, .dim = {K / 32, 32, N}}};
    const ShapeId shapes[] = {plan_shape(plan, &values[0]), plan_shape(plan, &values[1]),
                              shape_of(plan, 1, S, K / 32), shape_of(plan, K / 32, N, 0),
                              shape_of(plan, 1, S, N)};
    Pc pc = add_op(plan, OP_linear_blocks, 4, shapes, 5, DT_e4m3);
    const Program *p = &plan->programs.at[0];
    const Instr *in = program_instr(p, pc);
    assert_int_equal(plan_hbm_bytes(plan, p, in),
                     /* in this program, all numbers have one byte */
                     (S * K + K * N) / 32 * 33 + S * N);
    CostModel model = cost_model(cost_new(&cluster, NULL, NULL, NULL, arena, &d));
    const double s =
        cluster.device.kernel_floor_s + kernel_gemm_s(&cluster.device, DT_e8m0, 1, S, N, K, NULL);
    const Ps is = model.compute(model.self, plan, p, in);
    assert_in_range(is + 2, llround(s * 1e12), llround(s * 1e12) + 4);
    cluster.device.peak_flops[DT_e8m0] = 2000e12;
    model = cost_model(cost_new(&cluster, NULL, NULL, NULL, arena, &d));
    assert_true(model.compute(model.self, plan, p, in) < is);
    arena_free(arena);
}

/* An element of one byte holds two 4-bit numbers. Products run at the rate of 4-bit numbers, and a
 * row has twice as many numbers as elements. */
static void four_bit_pairs_have_their_closed_form(void **state)
{
    (void)state;
    enum { S = 2048, K = 4096, N = 8192 };
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    Cluster cluster = {.device = device_of(true)};
    cluster.device.arch = "Blackwell";
    cluster.device.peak_flops[DT_e4m3] = 2000e12;
    cluster.device.peak_flops[DT_e2m1x2] = 3000e12;
    const Shape values[] = {{.n_dims = 4, .dim = {1, S, K / 16, 8}},
                            {.n_dims = 3, .dim = {K / 16, 8, N}},
                            {.n_dims = 0}};
    const ShapeId shapes[] = {plan_shape(plan, &values[0]), plan_shape(plan, &values[1]),
                              shape_of(plan, 1, S, K / 16), shape_of(plan, K / 16, N, 0),
                              plan_shape(plan, &values[2]), plan_shape(plan, &values[2]),
                              shape_of(plan, 1, S, N)};
    Pc pc = add_op(plan, OP_linear_pairs, 6, shapes, 7, DT_e2m1x2);
    const Program *p = &plan->programs.at[0];
    const Instr *in = program_instr(p, pc);
    assert_int_equal(plan_hbm_bytes(plan, p, in),
                     /* in this program, all elements have one byte */
                     (S * K + K * N) / 16 * 9 + 2 + S * N);
    CostModel model = cost_model(cost_new(&cluster, NULL, NULL, NULL, arena, &d));
    const double s =
        cluster.device.kernel_floor_s + kernel_gemm_s(&cluster.device, DT_e2m1x2, 1, S, N, K, NULL);
    const Ps is = model.compute(model.self, plan, p, in);
    assert_in_range(is + 2, llround(s * 1e12), llround(s * 1e12) + 4);
    cluster.device.peak_flops[DT_e2m1x2] = 6000e12;
    model = cost_model(cost_new(&cluster, NULL, NULL, NULL, arena, &d));
    assert_true(model.compute(model.self, plan, p, in) < is);
    arena_free(arena);
}

/* Hopper's and Blackwell's fast products need rows that begin at multiples of 16 bytes. The odd
 * size may be a column of the result, a summed index, or a column of the weight. */
static void unaligned_rows_cost_more(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        double times;
    } archs[] = {{"Hopper", 5.5}, {"Blackwell", 5.5}, {"Ampere", 1}};
    static const OpKind ops[] = {OP_linear, OP_linear_d0, OP_linear_d1};
    enum { S = 65536, K = 768, ODD = 50257, EVEN = 50264 };
    for (int i = 0; i < 9; i++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
        Cluster cluster = {.device = device_of(true)};
        cluster.device.arch = archs[i % 3].arch;
        CostModel cost = cost_model(cost_new(&cluster, NULL, NULL, NULL, arena, &d));
        Ps ps[2];
        for (int odd = 0; odd < 2; odd++) {
            const int64_t n = odd ? ODD : EVEN;
            const ShapeId x = shape_of(plan, 1, S, K), w = shape_of(plan, K, n, 0);
            const ShapeId y = shape_of(plan, 1, S, n);
            const ShapeId shapes[3][3] = {{x, w, y}, {y, w, x}, {x, y, w}};
            const Pc pc = add_op(plan, ops[i / 3], 2, shapes[i / 3], 3, DT_bf16);
            const Program *p = &plan->programs.at[0];
            ps[odd] = cost.compute(cost.self, plan, p, program_instr(p, pc));
        }
        const double times = (double)ps[1] / (double)ps[0];
        if (fabs(times - archs[i % 3].times) > .01)
            fail_msg("%s on %s: %g times", op_info(ops[i / 3])->name, archs[i % 3].arch, times);
        arena_free(arena);
    }
}

/* Only Hopper applies one scale for each row inside the product. On other devices, one more kernel
 * reads the product in fp32 and writes it once more. */
static void rowwise_scales_have_their_closed_form(void **state)
{
    (void)state;
    enum { S = 2048, K = 4096, N = 8192 };
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    Cluster hopper = {.device = device_of(true)}, ada = hopper;
    hopper.device.arch = NULL, ada.device.arch = "Ada";
    hopper.device.kernel_floor_s = ada.device.kernel_floor_s = 3e-6;
    Shape scalar = {.n_dims = 0};
    ShapeId x = shape_of(plan, 1, S, K), w = shape_of(plan, K, N, 0), y = shape_of(plan, 1, S, N);
    ShapeId one = plan_shape(plan, &scalar), rows = shape_of(plan, 1, S, 0);
    ShapeId columns = shape_of(plan, N, 0, 0);
    const struct {
        OpKind op;
        ShapeId shapes[5];
        double more_s;
    } products[] = {
        {OP_linear_tensorwise, {x, w, one, one, y}, 0},
        {OP_linear_rowwise,
         {x, w, rows, columns, y},
         3e-6 + 2 * 4 * (double)S * N / (.8 * 3.35e12)},
    };
    CostModel inside = cost_model(cost_new(&hopper, NULL, NULL, NULL, arena, &d));
    CostModel after = cost_model(cost_new(&ada, NULL, NULL, NULL, arena, &d));
    for (int i = 0; i < 2; i++) {
        Pc pc = add_op(plan, products[i].op, 4, products[i].shapes, 5, DT_e4m3);
        const Program *p = &plan->programs.at[0];
        const Instr *in = program_instr(p, pc);
        Ps more = after.compute(after.self, plan, p, in) - inside.compute(inside.self, plan, p, in);
        assert_in_range(more + 2, llround(products[i].more_s * 1e12),
                        llround(products[i].more_s * 1e12) + 4);
    }
    arena_free(arena);
}

/* Transfers between host and device are limited by the link, work on the host by the host's memory.
 * The cluster states the rates, or defaults apply. */
static void host_transfers_have_their_closed_form(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    ShapeId shape = shape_of(plan, 1 << 20, 0, 0);
    ShapeId shapes[] = {shape, shape};
    Pc here = add_op(plan, OP_copy, 1, shapes, 2, DT_f32);
    Pc across = add_op(plan, OP_copy, 1, shapes, 2, DT_f32);
    Pc there = add_op(plan, OP_pass, 1, shapes, 2, DT_f32);
    const Program *p = &plan->programs.at[0];
    p->buffers.at[program_arg(p, program_instr(p, across), 0)].space = SPACE_host;
    for (uint32_t i = 0; i < 2; i++)
        p->buffers.at[program_arg(p, program_instr(p, there), i)].space = SPACE_host;
    for (int given = 0; given < 2; given++) {
        Cluster cluster = {.device = device_of(true)};
        if (given) cluster.host_link_bytes_per_s = 1e10, cluster.host_bytes_per_s = 2e10;
        CostModel model = cost_model(cost_new(&cluster, NULL, NULL, NULL, arena, &d));
        const double bytes = 4 << 20, link = given ? 1e10 : 55.4e9, memory = given ? 2e10 : 54e9;
        Ps expected[] = {(Ps)llround((5e-6 + 2 * bytes / (.8 * 3.35e12)) * 1e12),
                         (Ps)llround((5e-6 + bytes / link) * 1e12),
                         (Ps)llround((5e-6 + 2 * bytes / memory) * 1e12)};
        const Pc at[] = {here, across, there};
        for (int i = 0; i < 3; i++)
            assert_int_equal(model.compute(model.self, plan, p, program_instr(p, at[i])),
                             expected[i]);
    }
    arena_free(arena);
}

static void measured_kernels_replace_modelled_ones(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Store *store = store_open(":memory:", false, &d);
    Plan *plan = synthetic_plan(arena, 1, 1, 1, 1);
    Cluster cluster = {.device = device_of(false)};
    ShapeId shapes[] = {shape_of(plan, 2, 8, 8), shape_of(plan, 8, 8, 0), shape_of(plan, 2, 8, 8)};
    Pc pc = add_op(plan, OP_linear, 2, shapes, 3, DT_f32);
    const Program *p = &plan->programs.at[0];
    const Instr *in = program_instr(p, pc);
    assert_true(store_put_kernel(store, "here", cost_key(plan, p, in, arena), 12345, 0, 1, &d));
    Cost *cost = cost_new(&cluster, NULL, store, "here", arena, &d);
    CostModel model = cost_model(cost);
    assert_int_equal(model.compute(model.self, plan, p, in), 12345);
    Cost *other = cost_new(&cluster, NULL, store, "there", arena, &d);
    model = cost_model(other);
    assert_int_not_equal(model.compute(model.self, plan, p, in), 12345);
    store_close(store);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_gemm_timings_are_predicted),
        cmocka_unit_test(a_partial_wave_costs_a_full_one),
        cmocka_unit_test(keys_contain_local_sizes),
        cmocka_unit_test(memory_bound_ops_have_their_closed_form),
        cmocka_unit_test(named_kernels_have_their_closed_form),
        cmocka_unit_test(copied_operands_have_their_closed_form),
        cmocka_unit_test(block_scales_have_their_closed_form),
        cmocka_unit_test(four_bit_pairs_have_their_closed_form),
        cmocka_unit_test(unaligned_rows_cost_more),
        cmocka_unit_test(rowwise_scales_have_their_closed_form),
        cmocka_unit_test(host_transfers_have_their_closed_form),
        cmocka_unit_test(measured_kernels_replace_modelled_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
