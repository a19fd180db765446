/* The cost of kernels that move memory and of products of groups. It is computed by hand where
 * their structure determines it, and compared with every published row of a sample. */
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

/* 3 us for the start; 1,000 rows of 50 ns on 10 multiprocessors: 5 us; 100 MB at half the rate: 200
 * us. The cache serves 25 of 100 MB: half of the traffic, for the half that fits. */
static void traffic_has_a_start_rows_and_bytes(void **state)
{
    (void)state;
    Device d = small_device();
    TrafficFit fit = {.start_us = 3, .part = .5, .row_us = .05};
    TrafficWork work = {TRAFFIC_cudnn_norm, 1000, 100e6};
    assert_true(close_to(kernel_traffic_s(&d, &work, &fit), 208e-6));
    fit.near = .5;
    assert_true(close_to(kernel_traffic_s(&d, &work, &fit), 8e-6 + 200e-6 * .875));
    work.bytes = 10e6; /* at most all of it comes from the cache */
    assert_true(close_to(kernel_traffic_s(&d, &work, &fit), 8e-6 + 20e-6 * .5));
    d.arch = "cpu";
    assert_true(close_to(kernel_traffic_s(&d, &work, &fit), 10e-6));
}

/* Every kernel has constants on every device. With them, more bytes or rows never take less
 * time. */
static void every_kernel_has_numbers(void **state)
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

/* Equal groups cost as much as a batch. With 8 tiles on 10 multiprocessors, one more group needs a
 * second wave. Uneven groups with as many rows pay for tiles that are not full. */
static void groups_are_tiles_of_each(void **state)
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
    d.arch = "Hopper"; /* its kernels count a start and an end, but not without tiles */
    fit.fill_us = 8;
    assert_true(kernel_grouped_gemm_s(&d, DT_bf16, 4, no_rows, 512, 4096, &fit) == 0);
    d.arch = "cpu"; /* the CPU has no tiles, so only the number of rows counts */
    assert_true(close_to(kernel_grouped_gemm_s(&d, DT_bf16, 4, uneven, 512, 4096, &fit),
                         2. * 512 * 512 * 4096 / 10e12));
}

/* Products of 2048, 4096 and 8192 cubed in bf16 on a B200, at the rates that are reported for
 * cuBLAS [TFLOP/s]. Tiles of 256 x 128 on pairs of multiprocessors explain the second rate: 7
 * waves, not 8 half-empty ones. */
static void blackwell_writes_tiles_beside_products(void **state)
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
    d.kernel_floor_s = 0; /* twice the waves take twice the time: a tile has no time of its own */
    double one = kernel_gemm_s(&d, DT_bf16, 1, 148 * 128, 256, 1024, fit);
    assert_true(close_to(kernel_gemm_s(&d, DT_bf16, 1, 2 * 148 * 128, 256, 1024, fit), 2 * one));
}

/* A tile on each multiprocessor, with 3 us before and after its products. On Ampere a sum into fp32
 * moves four times the bytes of a 16-bit result, so it takes 12 us. Since Hopper, results move
 * beside products. */
static void sums_end_their_tiles_later(void **state)
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
    d.hbm_bytes_per_s = 1e9; /* the memory limits it: 6 of 8 bytes more for each result */
    const double more = cost_product_s(&d, &sum, &fit) - cost_product_s(&d, &work, &fit);
    assert_true(close_to(more, 6. * 1280 * 256 / 1e9));
}

/* Four tiles on each multiprocessor. On Ampere each of them has its own start and end. Since
 * Hopper, blocks stay on their multiprocessors, so that only the first start and the last end
 * remain. A kernel that stores results apart adds all of them at the rate of the memory. */
static void tiles_hide_each_others_ends(void **state)
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

/* If scores stay in registers, they only cost their softmax: the number of FLOPs at the peak that
 * was fitted for flash attention. */
static void a_softmax_goes_along(void **state)
{
    (void)state;
    Device d = small_device();
    double flops = kernel_attention_fit(&d, ATTENTION_flash3, false)->softmax;
    assert_true(flops > 0);
    assert_true(close_to(kernel_softmax_s(&d, 1e6), 1e6 * flops / 10e12));
}

/* The limit is 1 kW, and the device draws 0.1 of it at any clock. At clock f, a kernel draws still
 * + W x f^3. Either this is the whole limit, or f is the full clock. Large products run at 0.75 of
 * the clock. */
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
    assert_true(close_to(before, .75)); /* without products it has the whole clock */
    assert_true(kernel_lasting_s(&lasting, DT_f32, 1e3, 1) == 1); /* never slowed */
    d.light_power = 0;
    assert_true(kernel_lasting_s(&d, DT_bf16, 1e3, 1) == 1);
}

/* A longer kernel at the clock of large products is also longer at its own clock. Bounds rely on
 * this. */
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
        cmocka_unit_test(every_kernel_has_numbers),
        cmocka_unit_test(groups_are_tiles_of_each),
        cmocka_unit_test(blackwell_writes_tiles_beside_products),
        cmocka_unit_test(sums_end_their_tiles_later),
        cmocka_unit_test(tiles_hide_each_others_ends),
        cmocka_unit_test(a_softmax_goes_along),
        cmocka_unit_test(light_kernels_have_a_higher_clock),
        cmocka_unit_test(a_clock_keeps_the_order_of_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
