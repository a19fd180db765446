/* Reads and writes arrays of fp32, bf16, fp16 and of the two 8-bit dtypes, eight elements at a
 * time. If the array is aligned, an access moves 16 bytes at once. Loading a value and widening it
 * to fp32 are separate functions, so that a thread can issue several loads before it waits for the
 * first. */
#ifndef TANDEM_KERNELS_CUDA_NUMBER_CUH
#define TANDEM_KERNELS_CUDA_NUMBER_CUH

#include "kernels/cuda/device.cuh"

enum { EIGHT = 8 };

typedef struct Array {
    char *at;
    int32_t dtype;
    bool wide; /* true: each group of eight elements that begins at a multiple of eight is
                  aligned */
} Array;

static inline uint32_t array_bytes(int32_t dtype)
{
    return dtype == DT_f32 || dtype == DT_i32 ? 4 : dtype == DT_bf16 || dtype == DT_f16 ? 2 : 1;
}

/* Returns argument i as an array of rows of `row` elements. */
static inline Array array_of(const KernelArgs *args, uint32_t i, int64_t row)
{
    Array x;
    uint32_t bytes = array_bytes((int32_t)args->dtype[i]) * EIGHT;
    x.at = (char *)args->ptr[i];
    x.dtype = (int32_t)args->dtype[i];
    x.wide = (uintptr_t)x.at % (bytes < 16 ? bytes : 16) == 0 && row % EIGHT == 0;
    return x;
}

static inline Array array_f32(void *at, int64_t row)
{
    Array x;
    x.at = (char *)at;
    x.dtype = DT_f32;
    x.wide = (uintptr_t)at % 16 == 0 && row % EIGHT == 0;
    return x;
}

/* Returns true for an aligned array of bf16 numbers. Some kernels have separate code for these. */
static inline bool array_is_bf16(Array x)
{
    return x.wide && x.dtype == DT_bf16;
}

/* Tells the compiler that array_is_bf16 accepts the array. */
DEVICE Array array_as_bf16(Array x)
{
    x.dtype = DT_bf16, x.wide = true;
    return x;
}

/* ---- one element ---- */

/* Rounds the magnitude of a float to the nearest code of a format with `mantissa` bits of mantissa;
 * ties go to the even code. */
DEVICE uint32_t code_of(uint32_t magnitude, int mantissa, int bias)
{
    int shift = 23 - mantissa;
    uint32_t least = (uint32_t)(128 - bias) << 23; /* smallest normal number of the format */
    uint32_t magic = (uint32_t)(128 - bias + shift) << 23;
    if (magnitude < least)
        return BITS_OF_FLOAT(FLOAT_OF_BITS(magnitude) + FLOAT_OF_BITS(magic)) - magic;
    uint32_t up = magnitude + (1u << (shift - 1)) - 1 + (magnitude >> shift & 1);
    return (up >> shift) - ((uint32_t)(127 - bias) << mantissa);
}

DEVICE float float_of(uint32_t code, int mantissa, int bias)
{
    int shift = 23 - mantissa;
    float least = FLOAT_OF_BITS((uint32_t)(128 - bias - mantissa) << 23);
    if (code < 1u << mantissa) return (float)code * least;
    return FLOAT_OF_BITS((code << shift) + ((uint32_t)(127 - bias) << 23));
}

enum { INFINITE = 0x7f800000 };

/* Rounds to e4m3, whose largest number is 448. Larger values become 448. NaN becomes the code
 * 7f. */
DEVICE uint32_t round_e4m3(float x)
{
    uint32_t u = BITS_OF_FLOAT(x), magnitude = u & 0x7fffffffu;
    uint32_t code = magnitude > INFINITE ? 0x7fu : code_of(magnitude, 3, 7);
    if (magnitude <= INFINITE && code > 0x7e) code = 0x7e;
    return (u >> 24 & 0x80) | code;
}

DEVICE uint32_t round_e5m2(float x)
{
    uint32_t u = BITS_OF_FLOAT(x), magnitude = u & 0x7fffffffu;
    uint32_t code = magnitude > INFINITE ? 0x7eu : code_of(magnitude, 2, 15);
    if (magnitude <= INFINITE && code > 0x7c) code = 0x7c;
    return (u >> 24 & 0x80) | code;
}

DEVICE float widen_e4m3(uint32_t code)
{
    uint32_t sign = (code & 0x80) << 24, magnitude = code & 0x7f;
    float x = magnitude == 0x7f ? FLOAT_OF_BITS(0x7fc00000u) : float_of(magnitude, 3, 7);
    return FLOAT_OF_BITS(BITS_OF_FLOAT(x) | sign);
}

DEVICE float widen_e5m2(uint32_t code)
{
    uint32_t sign = (code & 0x80) << 24, magnitude = code & 0x7f;
    float x = magnitude >= 0x7c ? FLOAT_OF_BITS(INFINITE | (magnitude & 3) << 21)
                                : float_of(magnitude, 2, 15);
    return FLOAT_OF_BITS(BITS_OF_FLOAT(x) | sign);
}

#ifdef __CUDACC__
/* Rounds two numbers at once. The first one goes into the low half of the word. */
DEVICE uint32_t round_bf16_pair(float x, float y)
{
    uint32_t u;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(y), "f"(x));
    return u;
}

DEVICE uint32_t round_f16_pair(float x, float y)
{
    uint32_t u;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(y), "f"(x));
    return u;
}

DEVICE float widen_f16(uint32_t code)
{
    float x;
    asm("{ .reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h; }" : "=f"(x) : "r"(code));
    return x;
}

/* Rounds two numbers to 8 bits. The first one goes into the low byte. If the device has an
 * instruction for this, the instruction gives the same codes for all finite numbers within the
 * range of the format. */
DEVICE uint32_t round_eight_pair(int32_t dtype, float x, float y)
{
#if __CUDA_ARCH__ >= 890
    const float last = 61440; /* from this magnitude on, e5m2 rounds to infinity, but the
                                 instruction rounds to the largest number */
    bool beyond = dtype == DT_e5m2 && (fabsf(x) >= last || fabsf(y) >= last);
    uint16_t u;
    if (beyond) return round_e5m2(x) | round_e5m2(y) << 8;
    if (dtype == DT_e4m3)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(u) : "f"(y), "f"(x));
    else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(u) : "f"(y), "f"(x));
    return u;
#else
    if (dtype == DT_e4m3) return round_e4m3(x) | round_e4m3(y) << 8;
    return round_e5m2(x) | round_e5m2(y) << 8;
#endif
}
#else
DEVICE uint32_t round_bf16(float x)
{
    uint32_t u = BITS_OF_FLOAT(x);
    if ((u & 0x7fffffffu) > INFINITE) return u >> 16 | 0x40;
    return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

DEVICE uint32_t round_f16(float x)
{
    uint32_t u = BITS_OF_FLOAT(x), magnitude = u & 0x7fffffffu;
    uint32_t code = magnitude > INFINITE ? 0x7e00 : code_of(magnitude, 10, 15);
    if (magnitude <= INFINITE && code > 0x7c00) code = 0x7c00;
    return (u >> 16 & 0x8000) | code;
}

DEVICE uint32_t round_bf16_pair(float x, float y)
{
    return round_bf16(x) | round_bf16(y) << 16;
}

DEVICE uint32_t round_f16_pair(float x, float y)
{
    return round_f16(x) | round_f16(y) << 16;
}

DEVICE float widen_f16(uint32_t code)
{
    uint32_t sign = (code & 0x8000) << 16, magnitude = code & 0x7fff;
    float x = magnitude >= 0x7c00 ? FLOAT_OF_BITS(INFINITE | (magnitude & 0x3ff) << 13)
                                  : float_of(magnitude, 10, 15);
    return FLOAT_OF_BITS(BITS_OF_FLOAT(x) | sign);
}

DEVICE uint32_t round_eight_pair(int32_t dtype, float x, float y)
{
    if (dtype == DT_e4m3) return round_e4m3(x) | round_e4m3(y) << 8;
    return round_e5m2(x) | round_e5m2(y) << 8;
}
#endif

/* The dtypes for which a kernel is compiled: only those of more than 8 bits, or all. Since this is
 * known at compile time, a kernel has no code for dtypes that it never gets. */
typedef enum Kinds { KINDS_real, KINDS_all } Kinds;

DEVICE bool is_half(int32_t dtype)
{
    return dtype == DT_bf16 || dtype == DT_f16;
}

/* Rounds two numbers to one word of two codes. (fp32 would need two words, so it is not handled
 * here.) */
DEVICE uint32_t round_pair(const Kinds kinds, int32_t dtype, float x, float y)
{
    if (dtype == DT_bf16) return round_bf16_pair(x, y);
    if (kinds == KINDS_real || dtype == DT_f16) return round_f16_pair(x, y);
    return round_eight_pair(dtype, x, y);
}

DEVICE float widen(const Kinds kinds, int32_t dtype, uint32_t bits)
{
    if (dtype == DT_f32) return FLOAT_OF_BITS(bits);
    if (dtype == DT_bf16) return FLOAT_OF_BITS(bits << 16);
    if (kinds == KINDS_real || dtype == DT_f16) return widen_f16(bits);
    return dtype == DT_e4m3 ? widen_e4m3(bits) : widen_e5m2(bits);
}

DEVICE float read_any(const Kinds kinds, Array x, int64_t i)
{
    if (x.dtype == DT_f32) return ((const float *)x.at)[i];
    if (kinds == KINDS_real || is_half(x.dtype))
        return widen(kinds, x.dtype, ((const uint16_t *)x.at)[i]);
    return widen(kinds, x.dtype, ((const uint8_t *)x.at)[i]);
}

DEVICE void write_any(const Kinds kinds, Array y, int64_t i, float value)
{
    if (y.dtype == DT_f32)
        ((float *)y.at)[i] = value;
    else if (kinds == KINDS_real || is_half(y.dtype))
        ((uint16_t *)y.at)[i] = (uint16_t)round_pair(kinds, y.dtype, value, 0);
    else
        ((uint8_t *)y.at)[i] = (uint8_t)round_pair(kinds, y.dtype, value, 0);
}

DEVICE float read_one(Array x, int64_t i)
{
    return read_any(KINDS_real, x, i);
}

DEVICE void write_one(Array y, int64_t i, float value)
{
    write_any(KINDS_real, y, i, value);
}

/* ---- eight elements ---- */

/* Eight numbers with the bits that they have in memory: eight words (fp32), four (16 bits) or two
 * (8 bits). */
typedef struct Raw {
    uint32_t word[EIGHT];
} Raw;

DEVICE Raw raw_zero(void)
{
    Raw r;
    UNROLL for (int k = 0; k < EIGHT; k++) r.word[k] = 0;
    return r;
}

DEVICE void fetch_each(const Kinds kinds, Array x, int64_t i, int n, Raw *r)
{
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        if (k >= n) continue;
        if (x.dtype == DT_f32)
            r->word[k] = ((const uint32_t *)x.at)[i + k];
        else if (kinds == KINDS_real || is_half(x.dtype))
            r->word[k / 2] |= (uint32_t)((const uint16_t *)x.at)[i + k] << (16 * (k % 2));
        else
            r->word[k / 4] |= (uint32_t)((const uint8_t *)x.at)[i + k] << (8 * (k % 4));
    }
}

/* Loads elements i to i + n - 1 of x, where n <= 8, and sets the other elements to 0. If the array
 * is wide, i must be a multiple of eight. */
DEVICE Raw fetch_any(const Kinds kinds, Array x, int64_t i, int n)
{
    Raw r = raw_zero();
    if (!x.wide || n < EIGHT) {
        fetch_each(kinds, x, i, n, &r);
    } else if (x.dtype == DT_f32) {
        const char *at = x.at + 4 * i;
        uint4 lo = *ALIGNED(const uint4, at), hi = *ALIGNED(const uint4, at + 16);
        r.word[0] = lo.x, r.word[1] = lo.y, r.word[2] = lo.z, r.word[3] = lo.w;
        r.word[4] = hi.x, r.word[5] = hi.y, r.word[6] = hi.z, r.word[7] = hi.w;
    } else if (kinds == KINDS_real || is_half(x.dtype)) {
        uint4 all = *ALIGNED(const uint4, x.at + 2 * i);
        r.word[0] = all.x, r.word[1] = all.y, r.word[2] = all.z, r.word[3] = all.w;
    } else {
        uint2 all = *ALIGNED(const uint2, x.at + i);
        r.word[0] = all.x, r.word[1] = all.y;
    }
    return r;
}

DEVICE void widen_any(const Kinds kinds, int32_t dtype, const Raw *r, float v[EIGHT])
{
    if (dtype == DT_f32) {
        UNROLL for (int k = 0; k < EIGHT; k++) v[k] = FLOAT_OF_BITS(r->word[k]);
    } else if (dtype == DT_bf16) {
        UNROLL for (int k = 0; k < EIGHT; k += 2)
        {
            v[k] = FLOAT_OF_BITS(r->word[k / 2] << 16);
            v[k + 1] = FLOAT_OF_BITS(r->word[k / 2] & 0xffff0000u);
        }
    } else if (kinds == KINDS_real || dtype == DT_f16) {
        UNROLL for (int k = 0; k < EIGHT; k++) v[k] =
            widen_f16(r->word[k / 2] >> (16 * (k % 2)) & 0xffff);
    } else {
        UNROLL for (int k = 0; k < EIGHT; k++) v[k] =
            widen(kinds, dtype, r->word[k / 4] >> (8 * (k % 4)) & 0xff);
    }
}

DEVICE void load_any(const Kinds kinds, Array x, int64_t i, int n, float v[EIGHT])
{
    Raw r = fetch_any(kinds, x, i, n);
    widen_any(kinds, x.dtype, &r, v);
}

DEVICE Raw round_any(const Kinds kinds, int32_t dtype, const float v[EIGHT])
{
    Raw r = raw_zero();
    if (dtype == DT_f32) {
        UNROLL for (int k = 0; k < EIGHT; k++) r.word[k] = BITS_OF_FLOAT(v[k]);
    } else if (kinds == KINDS_real || is_half(dtype)) {
        UNROLL for (int k = 0; k < EIGHT; k += 2) r.word[k / 2] =
            round_pair(kinds, dtype, v[k], v[k + 1]);
    } else {
        UNROLL for (int k = 0; k < EIGHT; k += 2) r.word[k / 4] |=
            round_pair(kinds, dtype, v[k], v[k + 1]) << (8 * (k % 4));
    }
    return r;
}

DEVICE void put_each(const Kinds kinds, Array y, int64_t i, int n, const Raw *r)
{
    UNROLL for (int k = 0; k < EIGHT; k++)
    {
        if (k >= n) continue;
        if (y.dtype == DT_f32)
            ((uint32_t *)y.at)[i + k] = r->word[k];
        else if (kinds == KINDS_real || is_half(y.dtype))
            ((uint16_t *)y.at)[i + k] = (uint16_t)(r->word[k / 2] >> (16 * (k % 2)));
        else
            ((uint8_t *)y.at)[i + k] = (uint8_t)(r->word[k / 4] >> (8 * (k % 4)));
    }
}

DEVICE void put_any(const Kinds kinds, Array y, int64_t i, int n, const Raw *r)
{
    uint4 lo, hi;
    lo.x = r->word[0], lo.y = r->word[1], lo.z = r->word[2], lo.w = r->word[3];
    hi.x = r->word[4], hi.y = r->word[5], hi.z = r->word[6], hi.w = r->word[7];
    if (!y.wide || n < EIGHT) {
        put_each(kinds, y, i, n, r);
    } else if (y.dtype == DT_f32) {
        *ALIGNED(uint4, y.at + 4 * i) = lo;
        *ALIGNED(uint4, y.at + 4 * i + 16) = hi;
    } else if (kinds == KINDS_real || is_half(y.dtype)) {
        *ALIGNED(uint4, y.at + 2 * i) = lo;
    } else {
        uint2 all;
        all.x = lo.x, all.y = lo.y;
        *ALIGNED(uint2, y.at + i) = all;
    }
}

DEVICE void store_any(const Kinds kinds, Array y, int64_t i, int n, const float v[EIGHT])
{
    Raw r = round_any(kinds, y.dtype, v);
    put_any(kinds, y, i, n, &r);
}

/* The same functions for fp32, bf16 and fp16 only. */
DEVICE Raw fetch(Array x, int64_t i, int n)
{
    return fetch_any(KINDS_real, x, i, n);
}

DEVICE void widen_all(Array x, const Raw *r, float v[EIGHT])
{
    widen_any(KINDS_real, x.dtype, r, v);
}

DEVICE void load(Array x, int64_t i, int n, float v[EIGHT])
{
    load_any(KINDS_real, x, i, n, v);
}

DEVICE void store(Array y, int64_t i, int n, const float v[EIGHT])
{
    store_any(KINDS_real, y, i, n, v);
}

/* Rounds each number of v to a number that an array of this dtype can hold. */
DEVICE void round_all(int32_t dtype, float v[EIGHT])
{
    Raw r = round_any(KINDS_real, dtype, v);
    widen_any(KINDS_real, dtype, &r, v);
}

/* Returns how many of the elements i to i + 7 are below n: 0 to 8. */
DEVICE int eight_of(int64_t i, int64_t n)
{
    return n - i >= EIGHT ? EIGHT : n > i ? (int)(n - i) : 0;
}

/* Returns exp(x) = 2^t (1 + e ln 2), where t is x log2(e), rounded, and e is the rounding error of
 * t. The error is at most 3 units in the last place from exp(-87) to exp(87). Arguments outside of
 * [-87, 87] are clamped, as on the CPU. NaN stays NaN. (The usual method rounds t to a whole
 * number, and conversions to integers are slow on the device.) */
DEVICE float device_exp(float x)
{
    const float log2_e = 1.44269504088896341f, log2_e_rest = 1.92596299e-8f;
    x = device_clamp(x, -87.0f, 87.0f);
    float t = x * log2_e, e = fmaf(x, log2_e_rest, fmaf(x, log2_e, -t));
    float y = device_exp2(t);
    return fmaf(y, e * 0.69314718055994531f, y);
}

/* Returns exp(x) for x <= 0 with a relative error of about 1e-7 (1 + |x|). It takes a quarter of
 * the instructions of device_exp. Results below exp(-87) are 0. NaN stays NaN. */
DEVICE float device_exp_below(float x)
{
    return device_exp2(x * 1.44269504088896341f);
}

/* Returns the larger number of each of two pairs of bf16 numbers, in one word. If one of a pair is
 * NaN, the other one is returned. */
DEVICE uint32_t largest_bf16_pair(uint32_t x, uint32_t y)
{
#ifdef __CUDACC__
    uint32_t u;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(u) : "r"(x), "r"(y));
    return u;
#else
    const float low = fmaxf(FLOAT_OF_BITS(x << 16), FLOAT_OF_BITS(y << 16));
    const float high = fmaxf(FLOAT_OF_BITS(x & 0xffff0000u), FLOAT_OF_BITS(y & 0xffff0000u));
    return BITS_OF_FLOAT(low) >> 16 | (BITS_OF_FLOAT(high) & 0xffff0000u);
#endif
}

#endif
