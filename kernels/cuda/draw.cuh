/* Random draws on the device, with the same bits as on the CPU (kernels/draw.h). */
#ifndef TANDEM_KERNELS_CUDA_DRAW_CUH
#define TANDEM_KERNELS_CUDA_DRAW_CUH

#include "kernels/cuda/number.cuh"

/* The values from which a kernel draws for an instruction that drops elements. */
typedef struct CudaDraw {
    const CudaControl *control;
    uint32_t part, site, threshold;
} CudaDraw;

static inline CudaDraw draw_of(const KernelArgs *args, const CudaContext *cuda)
{
    CudaDraw draw;
    assert(args->attrs.site >= 0 && args->attrs.site <= UINT32_MAX);
    draw.control = cuda->control;
    draw.part = args->microbatch;
    draw.site = (uint32_t)args->attrs.site;
    draw.threshold = draw_threshold(args->attrs.drop);
    return draw;
}

/* The key of a kernel's draws. Each thread computes it once. */
typedef struct CudaDrawKey {
    uint64_t seed, stream;
    uint32_t threshold;
} CudaDrawKey;

typedef struct Words {
    uint32_t at[4];
} Words;

DEVICE Words draw_philox(uint64_t key, uint64_t stream, uint64_t index)
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    UNROLL for (int round = 0; round < 10; round++)
    {
        uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    Words words;
    words.at[0] = c0, words.at[1] = c1, words.at[2] = c2, words.at[3] = c3;
    return words;
}

DEVICE uint64_t device_draw_stream(uint64_t what, int64_t step, uint32_t part, uint32_t site)
{
    Words w = draw_philox(what, (uint64_t)step, (uint64_t)part << 32 | site);
    return w.at[0] | (uint64_t)w.at[1] << 32;
}

DEVICE CudaDrawKey draw_key(const CudaDraw *draw)
{
    CudaDrawKey key;
    key.seed = draw->control->seed;
    key.stream = device_draw_stream(DRAW_DROPOUT, draw->control->step, draw->part, draw->site);
    key.threshold = draw->threshold;
    return key;
}

/* Draws for the elements 4 four to 4 four + 3. Bit k of the result is 1 if element 4 four + k is
 * kept. */
DEVICE uint32_t draw_keeps_four(const CudaDrawKey *key, uint64_t four)
{
    Words w = draw_philox(key->seed, key->stream, four);
    uint32_t kept = 0;
    UNROLL for (int k = 0; k < 4; k++) kept |= (uint32_t)(w.at[k] >= key->threshold) << k;
    return kept;
}

DEVICE bool draw_keeps(const CudaDrawKey *key, uint64_t element)
{
    return (draw_keeps_four(key, element >> 2) >> (element & 3) & 1) != 0;
}

/* Draws one word for each of eight elements from `element` on. The generator makes four words in a
 * call, so three calls are needed if `element` is no multiple of four. */
DEVICE void draw_eight(uint64_t seed, uint64_t stream, uint64_t element, uint32_t word[EIGHT])
{
    uint32_t all[EIGHT + 4], skip = (uint32_t)(element & 3);
    UNROLL for (int call = 0; call < 3; call++)
    {
        Words w;
        w.at[0] = w.at[1] = w.at[2] = w.at[3] = 0;
        if (call < 2 || skip > 0) w = draw_philox(seed, stream, (element >> 2) + (uint64_t)call);
        UNROLL for (int k = 0; k < 4; k++) all[4 * call + k] = w.at[k];
    }
    UNROLL for (int k = 0; k < EIGHT; k++) word[k] = skip == 0   ? all[k]
                                                     : skip == 1 ? all[k + 1]
                                                     : skip == 2 ? all[k + 2]
                                                                 : all[k + 3];
}

#endif
