/* The cost of kernels that move memory, and of grouped products. Where the structure of a kernel
 * determines its cost, the expected cost is computed by hand. Other costs are compared with every
 * published row of a sample. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sim/compute/kernels.h"

/* 10 multiprocessors of 1 TFLOP/s each, and a memory of 1 TB/s. */
static Device small_device(void)
{
    Device d = {.name = "small", .arch = "Hopper", .sms = 10, .hbm_bytes_per_s = 1e12};
    d.peak_flops[DT_bf16] = 10e12;
    d.peak_flops[DT_f32] = 1e12;
    d.gemm_efficiency = 1;
    d.memory_efficiency = 1;
    return d;
}

static bool close_to(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* The start takes 3 us, 1,000 rows of 50 ns on 10 multiprocessors 5 us, and 100 MB at half the rate
 * 200 us. The cache serves half of the traffic of those bytes that fit into half of the cache: 25
 * of 100 MB. */
static void traffic_has_a_start_rows_and_bytes(void **state)
{
    (void)state;
    Device d = small_device();
    TrafficFit fit = {.start_us = 3, .part = .5, .row_us = .05};
    TrafficWork work = {TRAFFIC_cudnn_norm, 1000, 100e6};
    assert_true(close_to(kernel_traffic_s(&d, &work, &fit), 208e-6));
    fit.near = .5;
    assert_true(close_to(kernel_traffic_s(&d, &work, &fit), 8e-6 + 200e-6 * .875));
    /* all bytes fit into the cache, and no more than half of their traffic is saved */
    work.bytes = 10e6;
    assert_true(close_to(kernel_traffic_s(&d, &work, &fit), 8e-6 + 20e-6 * .5));
    d.arch = "cpu";
    assert_true(close_to(kernel_traffic_s(&d, &work, &fit), 10e-6));
}

/* Every kernel has constants on every device. With them, more bytes or rows never take less
 * time. */
static void more_bytes_never_take_less_time(void **state)
{
    (void)state;
    static const char *const archs[] = {"Ampere", "Hopper", "Blackwell", "CDNA3", "Volta"};
    for (size_t a = 0; a < sizeof archs / sizeof *archs; a++) {
        Device d = small_device();
        d.arch = archs[a];
        for (int k = TRAFFIC_any + 1; k < TRAFFIC_KERNEL_COUNT; k++) {
            double before = 0;
            for (double bytes = 1e3; bytes < 1e10; bytes *= 1.3) {
                TrafficWork work = {(TrafficKernel)k, bytes / 1e3, bytes};
                double s = kernel_traffic_s(&d, &work, NULL);
                assert_true(isfinite(s) && s > before);
                before = s;
            }
        }
    }
}

/* Equal groups cost as much as one batched product. On 10 multiprocessors, 8 tiles take one wave,
 * and one more group needs a second wave. Uneven groups with as many rows pay for tiles that are
 * partly empty. */
static void groups_pay_for_their_own_tiles(void **state)
{
    (void)state;
    Device d = small_device();
    GemmFit fit = {.large = 1, .eight = 1, .block = 1, .efficiency = {.01, .01, .01, .01}};
    const double even[] = {128, 128, 128, 128}, uneven[] = {129, 129, 129, 125};
    const double more[] = {128, 128, 128, 128, 128, 128};
    double batch = kernel_gemm_s(&d, DT_bf16, 4, 128, 512, 4096, &fit);
    double groups = kernel_grouped_gemm_s(&d, DT_bf16, 4, even, 512, 4096, &fit);
    double tile_s = 2. * 128 * 256 * 4096 / 1e12;
    assert_true(close_to(groups, tile_s));
    assert_true(close_to(groups, batch));
    assert_true(close_to(kernel_grouped_gemm_s(&d, DT_bf16, 6, more, 512, 4096, &fit), 2 * tile_s));
    assert_true(
        close_to(kernel_grouped_gemm_s(&d, DT_bf16, 4, uneven, 512, 4096, &fit), 2 * tile_s));
    const double no_rows[] = {0, 0, 0, 0};
    d.arch = "Hopper"; /* Hopper's kernels have a start and an end, but not if there are no tiles */
    fit.fill_us = 8;
    assert_true(kernel_grouped_gemm_s(&d, DT_bf16, 4, no_rows, 512, 4096, &fit) == 0);
    d.arch = "cpu"; /* a CPU has no tiles, so only the number of rows counts */
    assert_true(close_to(kernel_grouped_gemm_s(&d, DT_bf16, 4, uneven, 512, 4096, &fit),
                         2. * 512 * 512 * 4096 / 10e12));
}

/* Rates that are reported for cuBLAS on a B200 [TFLOP/s]: bf16 products of 2048, 4096 and 8192
 * cubed. Tiles of 256 x 128 on pairs of multiprocessors explain the second rate: there are 7 waves
 * instead of 8 with some half empty. */
static void blackwells_products_match_reported_rates(void **state)
{
    (void)state;
    Device d = {.name = "B200", .arch = "Blackwell", .sms = 148, .gemm_efficiency = .73};
    d.hbm_bytes_per_s = 8e12;
    d.memory_efficiency = .8;
    d.kernel_floor_s = 5e-6;
    d.peak_flops[DT_bf16] = 2250e12;
    static const double reported[][2] = {{2048, 1006}, {4096, 1532}, {8192, 1610}};
    for (int i = 0; i < 3; i++) {
        double n = reported[i][0], s = cost_gemm_s(&d, DT_bf16, 1, n, n, n, NULL);
        double tflops = 2 * n * n * n / s / 1e12;
        if (fabs(tflops / reported[i][1] - 1) > .005) fail_msg("%g cubed: %g TFLOP/s", n, tflops);
    }
    const GemmFit *fit = kernel_gemm_fit(&d);
    /* twice the waves take twice the time, because a tile has no fixed time */
    d.kernel_floor_s = 0;
    double one = kernel_gemm_s(&d, DT_bf16, 1, 148 * 128, 256, 1024, fit);
    assert_true(close_to(kernel_gemm_s(&d, DT_bf16, 1, 2 * 148 * 128, 256, 1024, fit), 2 * one));
}

/* Each multiprocessor has one tile, with 3 us before and after its products. On Ampere, adding to
 * an fp32 sum moves four times the bytes of a 16-bit result, so it takes 12 us. Since Hopper,
 * results move while products run. */
static void fp32_sums_lengthen_amperes_tiles(void **state)
{
    (void)state;
    Device d = small_device();
    const GemmFit fit = {.large = 1, .eight = 1, .fill_us = 3, .efficiency = {.01, .01, .01, .01}};
    GemmWork work = kernel_product(DT_bf16, 1, 1280, 256, 4096), sum = work;
    sum.out_bytes = 8;
    const double tile_s = 2. * 128 * 256 * 4096 / 1e12;
    d.arch = "Ampere";
    assert_true(close_to(kernel_product_s(&d, &work, &fit), tile_s + 3e-6));
    assert_true(close_to(kernel_product_s(&d, &sum, &fit), tile_s + 12e-6));
    d.arch = "Hopper";
    assert_true(close_to(kernel_product_s(&d, &sum, &fit), tile_s + 3e-6));
    d.hbm_bytes_per_s = 1e9; /* the memory limits it: each result moves 8 bytes instead of 2 */
    const double more = cost_product_s(&d, &sum, &fit) - cost_product_s(&d, &work, &fit);
    assert_true(close_to(more, 6. * 1280 * 256 / 1e9));
}

/* Each multiprocessor has four tiles. On Ampere, each tile has its own start and end. Since Hopper,
 * blocks stay on their multiprocessors, so only the first start and the last end count. A kernel
 * that stores results separately adds the time of all of them, at the rate of the memory. */
static void hopper_hides_the_ends_of_its_tiles(void **state)
{
    (void)state;
    Device d = small_device();
    GemmFit fit = {.large = 1, .eight = 1, .fill_us = 3, .efficiency = {.01, .01, .01, .01}};
    const GemmWork work = kernel_product(DT_bf16, 1, 4 * 1280, 256, 512);
    const double tiles_s = 4 * 2. * 128 * 256 * 512 / 1e12;
    d.arch = "Ampere";
    assert_true(close_to(kernel_product_s(&d, &work, &fit), tiles_s + 12e-6));
    d.arch = "Hopper";
    assert_true(close_to(kernel_product_s(&d, &work, &fit), tiles_s + 3e-6));
    fit.stores_apart = true;
    const double stored_s = 2. * 4 * 1280 * 256 / 1e12;
    assert_true(close_to(kernel_product_s(&d, &work, &fit), tiles_s + 3e-6 + stored_s));
}

/* If scores stay in registers, they cost only their softmax: a number of FLOPs at the peak rate,
 * which was fitted for flash attention. */
static void scores_in_registers_cost_a_softmax(void **state)
{
    (void)state;
    Device d = small_device();
    double flops = kernel_attention_fit(&d, ATTENTION_flash3, false)->softmax;
    assert_true(flops > 0);
    assert_true(close_to(kernel_softmax_s(&d, 1e6), 1e6 * flops / 10e12));
}

/* The device may draw 1 kW. It draws 0.1 of that at any clock, plus W f^3 while a kernel runs at
 * the clock f. A kernel runs at the clock at which this is the limit, but at most at the full
 * clock. Large products run at 0.75 of the full clock. */
static void light_kernels_have_a_higher_clock(void **state)
{
    (void)state;
    Device d = small_device();
    d.sustained = .75;
    d.light_power = .1;
    const Device lasting = kernel_sustained(&d);
    const double limit = 1000, still = 100, watts = (limit - still) / pow(.75, 3);
    const double large = kernel_gemm_most(&lasting, DT_bf16, NULL);
    double before = 0;
    for (double rate = 1; rate > 1e-3; rate *= .9) {
        const double s = kernel_lasting_s(&lasting, DT_bf16, large * rate, 1);
        const double clock = .75 / s, drawn = still + watts * (.1 + .9 * rate) * pow(clock, 3);
        assert_true(close_to(drawn, limit) || (close_to(clock, 1) && drawn < limit));
        assert_true(rate < 1 ? s <= before : close_to(s, 1));
        before = s;
    }
    assert_true(close_to(before, .75)); /* without products, it runs at the full clock */
    assert_true(kernel_lasting_s(&lasting, DT_f32, 1e3, 1) == 1); /* never slowed down */
    d.light_power = 0;
    assert_true(kernel_lasting_s(&d, DT_bf16, 1e3, 1) == 1);
}

/* If a kernel takes longer than another at the clock of large products, it also takes longer when
 * each runs at its own clock. Bounds rely on this. */
static void a_clock_keeps_the_order_of_kernels(void **state)
{
    (void)state;
    Device d = small_device();
    d.sustained = .6;
    d.light_power = .02;
    const Device lasting = kernel_sustained(&d);
    const double flops = kernel_gemm_most(&lasting, DT_bf16, NULL);
    double before = 0;
    for (double s = .5; s < 1e4; s *= 1.1) {
        const double now = kernel_lasting_s(&lasting, DT_bf16, flops, s);
        assert_true(now > before && now <= s * (1 + 1e-12));
        before = now;
    }
    const double part = cost_lasting_gemm_s(&lasting, DT_bf16, 100, 512, 4096, NULL),
                 whole = cost_lasting_gemm_s(&lasting, DT_bf16, 1000, 512, 4096, NULL);
    assert_true(part > 0 && part < whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traffic_has_a_start_rows_and_bytes),
        cmocka_unit_test(more_bytes_never_take_less_time),
        cmocka_unit_test(groups_pay_for_their_own_tiles),
        cmocka_unit_test(blackwells_products_match_reported_rates),
        cmocka_unit_test(fp32_sums_lengthen_amperes_tiles),
        cmocka_unit_test(hopper_hides_the_ends_of_its_tiles),
        cmocka_unit_test(scores_in_registers_cost_a_softmax),
        cmocka_unit_test(light_kernels_have_a_higher_clock),
        cmocka_unit_test(a_clock_keeps_the_order_of_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
