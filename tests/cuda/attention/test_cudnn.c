/* cuDNN's graphs of attention, made for a described device. If the library is installed, it must be
 * able to execute each shape that we pass to it. Shapes that its graphs cannot express must not be
 * passed. The test computes no numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/cudnn/cudnn_attention.h"

/* How cuDNN describes an H100. */
static const char device[] =
    "{\"deviceVer\":900,\"driverVer\":13000,\"cudaDeviceId\":0,\"totalGlobalMem\":85899345920,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
    "\"regsPerBlock\":65536,\"multiProcessorCount\":132,\"warpSize\":32,"
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":2619000,"
    "\"l2CacheSize\":52428800,\"deviceName\":\"NVIDIA H100 80GB HBM3\"}";

typedef struct Case {
    DType dtype;
    int64_t b, s, T, g, r, E, start_s;
    bool causal;
    double drop;
    int64_t accumulate;
    bool forward; /* true: the library should accept the forward pass (it never gets a gradient) */
} Case;

static const Case cases[] = {
    {DT_bf16, 2, 4096, 4096, 8, 4, 128, 0, true, 0, 0, true},
    {DT_bf16, 1, 1024, 1024, 12, 1, 64, 0, true, 0, 0, true},
    {DT_f16, 1, 2048, 2048, 4, 2, 96, 0, true, 0, 0, true},
    {DT_bf16, 1, 1000, 1000, 2, 8, 128, 0, true, 0, 0, true},
    {DT_bf16, 1, 512, 768, 4, 1, 128, 0, false, 0, 0, true},
    {DT_bf16, 1, 1024, 1024, 2, 2, 256, 0, true, 0, 0, true},
    {DT_bf16, 1, 512, 1024, 4, 1, 128, 512, true, 0, 0, false},
    {DT_bf16, 1, 512, 512, 4, 1, 128, 0, true, 0.1, 0, false},
    {DT_bf16, 1, 512, 512, 4, 1, 128, 0, true, 0, 1, false},
    {DT_f32, 1, 512, 512, 4, 1, 128, 0, true, 0, 0, false},
    {DT_bf16, 1, 512, 512, 4, 1, 100, 0, true, 0, 0, false},
    {DT_bf16, 1, 512, 512, 4, 1, 264, 0, true, 0, 0, false},
};

static KernelArgs args_of(const Case *c, bool gradient)
{
    static char memory[512];
    KernelArgs a = {.n_in = gradient ? 6 : 3, .n_args = gradient ? 10 : 5};
    for (uint32_t i = 0; i < a.n_args; i++) {
        a.ptr[i] = memory + 256 - (uintptr_t)memory % 256;
        a.dtype[i] = i == (gradient ? 5u : 4u) ? DT_f32 : c->dtype;
    }
    a.size['b'] = c->b, a.size['s'] = c->s, a.size['T'] = c->T;
    a.size['g'] = c->g, a.size['r'] = c->r, a.size['E'] = c->E;
    a.start['s'] = c->start_s;
    a.second['s'] = c->start_s + c->s / 2;
    a.attrs = (Attrs){.scale = 1 / sqrt((double)c->E),
                      .causal = c->causal,
                      .drop = c->drop,
                      .accumulate = c->accumulate};
    return a;
}

static void cudnn_accepts_the_expected_shapes(void **state)
{
    CudnnAttention *cudnn = *state;
    if (cudnn == NULL) skip();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int gradient = 0; gradient < 2; gradient++) {
            const Case *c = &cases[i];
            KernelArgs a = args_of(c, gradient);
            OpKind op = gradient ? OP_attention_grad : OP_attention;
            CudaError error = {""};
            bool taken = false;
            if (!cudnn_attention_prepare(cudnn, op, &a, &taken, &error)) fail_msg("%s", error.text);
            if (taken != (!gradient && c->forward))
                fail_msg("case %d, %s: %s", (int)i, op_info(op)->name, taken ? "taken" : "refused");
            /* prepares the same call again, which must not make another graph */
            bool again = !taken;
            assert_true(cudnn_attention_prepare(cudnn, op, &a, &again, &error));
            assert_int_equal(again, taken);
        }
    assert_int_equal(cudnn_attention_bytes(cudnn), 0);
}

/* cuDNN's mask begins with the first key and advances with each query. */
static void two_chunks_are_refused(void **state)
{
    CudnnAttention *cudnn = *state;
    if (cudnn == NULL) skip();
    const Case c = {DT_bf16, 1, 512, 2048, 4, 1, 128, 0, true, 0, 0, false};
    for (int gradient = 0; gradient < 2; gradient++) {
        KernelArgs a = args_of(&c, gradient);
        CudaError error = {""};
        bool taken = true;
        a.second['s'] = 1792;
        assert_true(cudnn_attention_prepare(cudnn, gradient ? OP_attention_grad : OP_attention, &a,
                                            &taken, &error));
        assert_false(taken);
    }
}

static void a_bad_device_description_is_reported(void **state)
{
    if (*state == NULL) skip();
    CudaError error = {""};
    assert_null(cudnn_attention_open("{\"deviceVer\":900}", &error));
    assert_true(strlen(error.text) > 0);
}

/* The library needs a driver library. The stub from the toolkit is enough. */
static int open_library(void **state)
{
    CudaError error = {""};
    (void)dlopen(TANDEM_CUDA_STUB, RTLD_NOW | RTLD_GLOBAL);
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) == NULL) {
        print_message("no driver library and no stub of it: nothing is checked\n");
        return 0;
    }
    *state = cudnn_attention_open(device, &error);
    if (*state == NULL) print_message("%s: nothing is checked\n", error.text);
    return 0;
}

static int close_library(void **state)
{
    cudnn_attention_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cudnn_accepts_the_expected_shapes),
        cmocka_unit_test(two_chunks_are_refused),
        cmocka_unit_test(a_bad_device_description_is_reported),
    };
    return cmocka_run_group_tests(tests, open_library, close_library);
}
