/* The cost of flash attention. Where the structure of the kernel determines it, the expected cost
 * is computed by hand. Against published rates, the test bounds the error of the whole table, so
 * that no single row decides. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/compute/kernels.h"

/* 10 multiprocessors of 1 TFLOP/s; memory costs nothing. */
static Device small_device(void)
{
    Device d = {.name = "small", .arch = "Hopper", .sms = 10, .hbm_bytes_per_s = 1e30};
    d.peak_flops[DT_bf16] = 10e12;
    d.peak_flops[DT_e4m3] = 20e12;
    d.peak_flops[DT_f32] = 1e12;
    d.memory_efficiency = 1;
    return d;
}

/* A fit in which all products run at the peak without gaps. Tiles are 128 x 64, and each
 * multiprocessor runs one block. */
static const AttentionFit plain = {
    .own = 128, .step = 64, .resident = 1, .part = 1, .wide = 1, .alone = 1, .eight = 1};

static AttentionWork work_of(double heads, double tokens, bool causal, bool backward)
{
    AttentionWork w = {.kernel = ATTENTION_cudnn, .dtype = DT_bf16, .causal = causal};
    w.heads = w.kv_heads = heads;
    w.queries = w.keys = tokens;
    w.head = w.value = 128;
    w.backward = backward;
    return w;
}

static double us(const AttentionWork *w, const AttentionFit *fit)
{
    Device d = small_device();
    return 1e6 * kernel_attention_s(&d, w, fit);
}

/* A head of 512 tokens has 4 blocks. Each takes 8 steps of 128 x 64 x 512 FLOPs: 33.554 us. */
static void blocks_come_in_waves(void **state)
{
    (void)state;
    double block_us = 128. * 512 * 4 * 128 / 1e12 * 1e6;
    AttentionWork one = work_of(1, 512, false, false), two = work_of(2.5, 512, false, false);
    AttentionWork three = work_of(3, 512, false, false);
    assert_true(fabs(us(&one, &plain) - block_us) < 1e-6);
    assert_true(fabs(us(&two, &plain) - block_us) < 1e-6);
    assert_true(fabs(us(&three, &plain) - 2 * block_us) < 1e-6);
    /* a multiprocessor runs two blocks at a time; a block alone runs at half the rate */
    AttentionFit pair = plain;
    pair.resident = 2;
    pair.alone = .5;
    assert_true(fabs(us(&one, &pair) - 2 * block_us) < 1e-6);
    assert_true(fabs(us(&three, &pair) - 2 * block_us) < 1e-6);
}

/* Steps beyond the diagonal are skipped, but tiles on it count fully. So four blocks take 2 + 4 + 6
 * + 8 steps instead of 4 x 8. */
static void masked_steps_are_skipped(void **state)
{
    (void)state;
    double step_us = 128. * 64 * 4 * 128 / 1e12 * 1e6;
    AttentionWork few = work_of(1, 512, true, false), many = work_of(1000, 512, true, false);
    assert_true(fabs(us(&few, &plain) - 8 * step_us) < 1e-6); /* the longest block decides */
    double even = 1000 * 20 * step_us / 10;
    /* plus half a block, because the last wave is not full: 2.5 of its mean 5 steps */
    assert_true(fabs(us(&many, &plain) - even - 2.5 * step_us) < 1e-6);
    AttentionFit blind = plain;
    blind.unskipped = 1;
    /* `unskipped` only applies to 8 bits */
    assert_true(fabs(us(&many, &blind) - us(&many, &plain)) < 1e-9);
    many.dtype = DT_e4m3;
    assert_true(us(&many, &blind) > 1.5 * us(&many, &plain));
}

/* A tile of 128 queries with a window of 100 keys covers at most 4 steps of 64. It does not matter
 * whether the queries are 64 or 1,024 tokens from the start. A window wider than all keys changes
 * nothing. */
static void a_window_bounds_the_steps(void **state)
{
    (void)state;
    double step_us = 128. * 64 * 4 * 128 / 1e12 * 1e6;
    AttentionWork w = work_of(1000, 2048, true, false), all = w;
    w.window = 100;
    /* 16 tiles; the first one covers only 2 steps */
    double even = 1000 * (2 + 15 * 4) * step_us / 10;
    assert_true(fabs(us(&w, &plain) - even - 62. / 16 / 2 * step_us) < 1e-6);
    w.window = 4096;
    assert_true(fabs(us(&w, &plain) - us(&all, &plain)) < 1e-9);
    w.window = 256; /* 2 + 4 + 14 x 6 = 90 steps, instead of 272 without a window */
    assert_true(us(&w, &plain) < .5 * us(&all, &plain));
}

/* The backward pass has five products for each score, the forward pass has two. The backward pass
 * needs one more kernel, to add up the gradients of shared keys. */
static void backward_computes_scores_again(void **state)
{
    (void)state;
    AttentionWork forward = work_of(1000, 4096, false, false);
    AttentionWork backward = work_of(1000, 4096, false, true);
    assert_true(fabs(us(&backward, &plain) / us(&forward, &plain) - 2.5) < 1e-6);
    backward.head = 192; /* (3 x 192 + 2 x 128) / (192 + 128) times the FLOPs of the forward pass */
    forward.head = 192;
    assert_true(fabs(us(&backward, &plain) / us(&forward, &plain) - 832. / 320) < 1e-6);
    forward.kernel = ATTENTION_flash2; /* FlashAttention-2 pads the width of values to 192 */
    assert_true(fabs(us(&forward, &plain) / us(&backward, &plain) - 384. / 832) < 1e-6);
    Device d = small_device();
    d.hbm_bytes_per_s = 1e12;
    d.kernel_floor_s = 3e-6;
    AttentionWork shared = work_of(32, 1024, true, true);
    double alone = kernel_attention_s(&d, &shared, &plain);
    shared.kv_heads = 8;
    double more = kernel_attention_s(&d, &shared, &plain) - alone;
    assert_true(fabs(more - 32. * 1024 * 256 * 4 / 1e12) < 1e-12);
    d.kernel_floor_s = 0; /* without the passes before and after the kernel */
    shared.kv_heads = 32;
    assert_true(fabs(alone - kernel_attention_s(&d, &shared, &plain) - 6e-6) < 1e-12);
}

/* Work beside the products takes a larger share of the time for narrow heads, and in 8 bits. */
static void softmax_costs_more_for_narrow_heads(void **state)
{
    (void)state;
    AttentionFit fit = plain;
    fit.softmax = 256;
    AttentionWork w = work_of(1000, 4096, false, false);
    double wide = us(&w, &fit) / us(&w, &plain);
    assert_true(fabs(wide - 1.5) < 1e-9); /* a score has 512 FLOPs, and 256 more */
    w.head = w.value = 64;
    assert_true(fabs(us(&w, &fit) / us(&w, &plain) - 2) < 1e-9);
    w.dtype = DT_e4m3;
    assert_true(fabs(us(&w, &fit) / us(&w, &plain) - 3) < 1e-9);
}

/* FlashAttention-2's instructions run as fast on a multiprocessor of Blackwell as on one of Hopper.
 * CDNA has no fitted rows, so its rate follows from its large matrix products. */
static void unfitted_devices_borrow_from_related_ones(void **state)
{
    (void)state;
    Device hopper = {.arch = "Hopper", .sms = 132, .gemm_efficiency = .806};
    hopper.peak_flops[DT_bf16] = 989.4e12;
    hopper.hbm_bytes_per_s = 1e30;
    hopper.memory_efficiency = 1;
    Device blackwell = hopper, cdna = hopper, ampere = hopper;
    blackwell.arch = "Blackwell";
    blackwell.peak_flops[DT_bf16] = 2 * 989.4e12;
    AttentionFit fit = plain;
    AttentionWork w = work_of(1000, 4096, false, false);
    double on_hopper = kernel_attention_s(&hopper, &w, &fit);
    w.kernel = ATTENTION_flash2;
    assert_true(fabs(kernel_attention_s(&blackwell, &w, &fit) / on_hopper - 1) < .01);
    w.kernel = ATTENTION_cudnn;
    cdna.arch = "CDNA3";
    ampere.arch = "Ampere";
    cdna.gemm_efficiency = kernel_gemm_fit(&ampere)->large / 2;
    double ratio = kernel_attention_s(&cdna, &w, &fit) / kernel_attention_s(&ampere, &w, &fit);
    assert_true(fabs(ratio - 2) < .01);
}

/* TFLOP/s of FlashAttention-2 on 16,384 tokens on an MI300X, without a mask. */
static double on_cdna(const char *arch, AttentionKernel kernel, bool backward)
{
    Device d = {.arch = arch, .sms = 304, .gemm_efficiency = .5, .memory_efficiency = 1};
    d.peak_flops[DT_bf16] = 1307.4e12;
    d.hbm_bytes_per_s = 1e30;
    AttentionWork w = work_of(304, 16384, false, backward);
    w.kernel = kernel;
    return kernel_attention_flops(&w) / kernel_attention_s(&d, &w, NULL) / 1e12;
}

/* Composable Kernel's published rates are 353, 356, 340 and 310 TFLOP/s forward, and 194, 202, 205
 * and 207 backward. Transformer Engine calls another, faster kernel. */
static void cdna_has_its_own_rates(void **state)
{
    (void)state;
    const double forward = on_cdna("CDNA3", ATTENTION_flash2, false),
                 backward = on_cdna("CDNA3", ATTENTION_flash2, true);
    assert_true(fabs(forward / (.26 * 1307.4) - 1) < .001);
    assert_true(fabs(backward / (.155 * 1307.4) - 1) < .001);
    assert_true(forward > 309 && forward < 356 && backward > 194 && backward < 207);
    assert_true(on_cdna("CDNA3", ATTENTION_cudnn, true) > 1.5 * backward);
    /* no rates are published for the MI250's generation */
    assert_true(on_cdna("CDNA2", ATTENTION_flash2, true) > 1.2 * backward);
}

/* TFLOP/s of very long attention without a mask. There, the start and end of a block hardly
 * count. */
static double long_rate(double head, bool backward, DType dtype, double exponentials)
{
    Device d = {.name = "B", .arch = "Blackwell", .sms = 148, .gemm_efficiency = .73};
    d.peak_flops[DT_bf16] = 2250e12;
    d.peak_flops[DT_e4m3] = 4500e12;
    d.hbm_bytes_per_s = 1e30;
    d.memory_efficiency = 1;
    d.exponentials = exponentials;
    AttentionWork w = work_of(148, 1 << 20, false, backward);
    w.head = w.value = head;
    w.dtype = dtype;
    double flops = (backward ? 10 : 4) * w.heads * w.queries * w.keys * head;
    return flops / kernel_attention_s(&d, &w, NULL) / 1e12;
}

/* Blackwell's attention, by the work of each unit. The multiprocessor computes 8,192 FLOPs of
 * products a clock: forward, a score of a head of 128 takes 512 / 5,980 clocks. An exponential
 * takes 1/16 of a clock, on Blackwell Ultra 1/32. A backward tile moves 416 KiB through shared
 * memory, which takes 3,328 clocks at 128 bytes a clock. */
static void blackwells_rate_follows_from_its_units(void **state)
{
    (void)state;
    const double peak = 2250, clocks = 512 / 8192.;
    double products = clocks / .73, shared = 6. / 128;
    double rate = peak * clocks / cbrt(pow(products, 3) + pow(1 / 16., 3) + pow(shared, 3));
    assert_true(fabs(long_rate(128, false, DT_bf16, 0) / rate - 1) < .01);
    assert_true(rate > 1235 && rate < 1605); /* between cuDNN 9.13 and FlashAttention-4 */
    double five = 5 * clocks / 2;
    double back = cbrt(pow(five / .73, 3) + pow(1 / 16., 3) + pow(3328. / 128 / 128, 3));
    assert_true(fabs(long_rate(128, true, DT_bf16, 16) / (peak * five / back) - 1) < .02);
    /* Exponentials limit heads of 64 and 8 bits. These gain most from twice as many
     * exponentials. */
    double wide = long_rate(128, false, DT_bf16, 32) / long_rate(128, false, DT_bf16, 16);
    double narrow = long_rate(64, false, DT_bf16, 32) / long_rate(64, false, DT_bf16, 16);
    double eight = long_rate(128, false, DT_e4m3, 32) / long_rate(128, false, DT_e4m3, 16);
    assert_true(wide > 1.05 && narrow > wide && eight > wide && eight < 2);
}

/* The executor's kernels on an H100. */
static double own_us(double head, double tokens, bool backward, bool special)
{
    Device d = {.name = "H100-SXM5-80GB", .arch = "Hopper", .sms = 132, .memory_efficiency = .8};
    d.hbm_bytes_per_s = 1e30;
    d.peak_flops[DT_bf16] = 989.4e12;
    AttentionWork w = work_of(1056, tokens, true, backward);
    w.kernel = ATTENTION_tandem;
    w.head = w.value = head;
    w.special = special;
    return 1e6 * kernel_attention_s(&d, &w, NULL);
}

/* A head takes as long as the next larger head size that the tiles have. Calls that Hopper's
 * kernels refuse run with mma.sync, and take at least 1.4 times as long. */
static void own_kernels_pay_for_whole_tiles(void **state)
{
    (void)state;
    for (int backward = 0; backward < 2; backward++) {
        double of_64 = own_us(64, 2048, backward, false),
               of_128 = own_us(128, 2048, backward, false);
        assert_true(of_64 < .95 * of_128);
        for (double head = 8; head <= 128; head += 8) {
            double us = own_us(head, 2048, backward, false);
            assert_true(fabs(us - (head <= 64 ? of_64 : of_128)) < 1e-6);
            assert_true(own_us(head, 2048, backward, true) > 1.4 * us);
        }
        assert_true(own_us(136, 2048, backward, false) > 3 * of_128);
        assert_true(fabs(own_us(136, 2048, backward, false) - own_us(256, 2048, backward, true)) <
                    1e-6);
    }
    /* Tokens that do not fill whole tiles need one more block, and split the gradient into two
     * kernels. */
    assert_true(own_us(64, 1032, false, false) < 1.25 * own_us(64, 1024, false, false));
    assert_true(own_us(64, 1032, true, false) > 1.5 * own_us(64, 1024, true, false));
}

static double error_of(const char *gpu, const char *kernel, bool causal, double tokens, double head,
                       double tflops)
{
    bool hopper = gpu[0] == 'H';
    Device d = {.name = gpu, .arch = hopper ? "Hopper" : "Ampere", .sms = hopper ? 132 : 108};
    d.hbm_bytes_per_s = hopper ? 3.35e12 : 2.039e12;
    d.peak_flops[DT_f16] = hopper ? 989.4e12 : 312e12;
    d.memory_efficiency = .8;
    d.kernel_floor_s = hopper ? 5e-6 : 3e-6;
    AttentionWork w = work_of(16384 / tokens * 2048 / head, tokens, causal, false);
    w.dtype = DT_f16;
    w.head = w.value = head;
    w.kernel = strstr(kernel, "FA3") != NULL     ? ATTENTION_flash3
               : strstr(kernel, "cuDNN") != NULL ? ATTENTION_cudnn
                                                 : ATTENTION_flash2;
    double flops = 4 * w.heads * tokens * tokens * head * (causal ? .5 : 1);
    double s = cost_attention_s(&d, &w, NULL);
    if (strstr(kernel, "bwd") != NULL) {
        w.backward = true;
        s += cost_attention_s(&d, &w, NULL);
        flops *= 3.5;
    }
    return fabs(flops / s / 1e12 / tflops - 1);
}

static void published_rates_are_predicted(void **state)
{
    (void)state;
    char line[256];
    double sum = 0, worst = 0;
    uint32_t n = 0;
    FILE *f = fopen(TANDEM_SOURCE_DIR "/tests/data/measured_attention.csv", "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    while (fgets(line, sizeof line, f) != NULL) {
        char kernel[64], gpu[32];
        int causal;
        double tokens, head, tflops;
        assert_int_equal(sscanf(line, "%63[^,],%31[^,],%d,%lf,%lf,%lf", kernel, gpu, &causal,
                                &tokens, &head, &tflops),
                         6);
        double error = error_of(gpu, kernel, causal == 1, tokens, head, tflops);
        sum += error;
        if (error > worst) worst = error;
        n++;
    }
    fclose(f);
    printf("%u attention rates, mean error %.1f%%, max %.1f%%\n", n, 100 * sum / n, 100 * worst);
    assert_true(n > 50);
    assert_true(sum / n < .08);
    assert_true(worst < .30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_in_waves),
        cmocka_unit_test(masked_steps_are_skipped),
        cmocka_unit_test(a_window_bounds_the_steps),
        cmocka_unit_test(backward_computes_scores_again),
        cmocka_unit_test(softmax_costs_more_for_narrow_heads),
        cmocka_unit_test(unfitted_devices_borrow_from_related_ones),
        cmocka_unit_test(cdna_has_its_own_rates),
        cmocka_unit_test(blackwells_rate_follows_from_its_units),
        cmocka_unit_test(own_kernels_pay_for_whole_tiles),
        cmocka_unit_test(published_rates_are_predicted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
