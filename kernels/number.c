/* Converts between fp32, fp64 and the low-precision formats by operations on bits. */
#include "kernels/number.h"

#include <assert.h>
#include <string.h>

static inline uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

enum { FLOAT_BIAS = 127, FLOAT_MANTISSA = 23 };
static const uint32_t float_infinity = 0x7f800000;

/* ---- one format, with `mantissa` bits of mantissa and exponents biased by `bias`. After inlining,
 * all arguments but x are constants. */

/* Rounds the magnitude of a float to the nearest code of the format. `a` is the bits of the
 * magnitude, which must not be NaN. The code may lie beyond the format's largest one; the caller
 * handles that. */
static inline uint32_t nearest_code(uint32_t a, int mantissa, int bias)
{
    int shift = FLOAT_MANTISSA - mantissa;
    uint32_t least = (uint32_t)(FLOAT_BIAS - bias + 1)
                     << FLOAT_MANTISSA; /* the format's smallest normal number */
    /* The last bit of this float has the value of the format's smallest subnormal number. So adding
     * this float to a number rounds the number to a multiple of that subnormal. */
    uint32_t magic = (uint32_t)(FLOAT_BIAS - bias + 1 + shift) << FLOAT_MANTISSA;
    uint32_t small = bits_of(float_of(a < least ? a : 0) + float_of(magic)) - magic;
    uint32_t up = a + (1u << (shift - 1)) - 1 + (a >> shift & 1);
    uint32_t normal = (up >> shift) - ((uint32_t)(FLOAT_BIAS - bias) << mantissa);
    return a < least ? small : normal;
}

/* Returns the bits of the float that has this code's magnitude. `infinity` is the format's code for
 * infinity; larger codes are NaNs. */
static inline uint32_t widened(uint32_t code, int mantissa, int bias, uint32_t infinity)
{
    int shift = FLOAT_MANTISSA - mantissa;
    uint32_t small = bits_of(
        (float)code * float_of((uint32_t)(FLOAT_BIAS - bias + 1 - mantissa) << FLOAT_MANTISSA));
    uint32_t normal = (code << shift) + ((uint32_t)(FLOAT_BIAS - bias) << FLOAT_MANTISSA);
    uint32_t beyond = float_infinity | (code << shift & 0x7fffff);
    if (code >= infinity) return beyond;
    return code < 1u << mantissa ? small : normal;
}

static inline uint16_t round_bf16(float x)
{
    uint32_t u = bits_of(x);
    uint32_t nan = u >> 16 | 0x40, number = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffff) > float_infinity ? nan : number);
}

static inline float widen_bf16(uint16_t code)
{
    return float_of((uint32_t)code << 16);
}

static inline uint16_t round_f16(float x)
{
    uint32_t u = bits_of(x), a = u & 0x7fffffff, sign = u >> 16 & 0x8000;
    bool is_nan = a > float_infinity;
    uint32_t code = nearest_code(is_nan ? 0 : a, 10, 15);
    if (code > 0x7c00) code = 0x7c00;
    return (uint16_t)(sign | (is_nan ? 0x7e00 | (a >> 13 & 0x3ff) : code));
}

static inline float widen_f16(uint16_t code)
{
    return float_of((code & 0x8000u) << 16 | widened(code & 0x7fff, 10, 15, 0x7c00));
}

static inline uint8_t round_e4m3(float x)
{
    uint32_t u = bits_of(x), a = u & 0x7fffffff, sign = u >> 24 & 0x80;
    bool is_nan = a > float_infinity;
    uint32_t code = nearest_code(is_nan ? 0 : a, 3, 7);
    if (code > 0x7e) code = 0x7e;
    return (uint8_t)(sign | (is_nan ? 0x7f : code));
}

static inline float widen_e4m3(uint8_t code)
{
    uint32_t a = code & 0x7f;
    uint32_t bits = a == 0x7f ? 0x7fc00000 : widened(a, 3, 7, 0x80);
    return float_of((code & 0x80u) << 24 | bits);
}

static inline uint8_t round_e5m2(float x)
{
    uint32_t u = bits_of(x), a = u & 0x7fffffff, sign = u >> 24 & 0x80;
    bool is_nan = a > float_infinity;
    uint32_t code = nearest_code(is_nan ? 0 : a, 2, 15);
    if (code > 0x7c) code = 0x7c;
    return (uint8_t)(sign | (is_nan ? 0x7e | (a >> 21 & 3) : code));
}

static inline float widen_e5m2(uint8_t code)
{
    return float_of((code & 0x80u) << 24 | widened(code & 0x7f, 2, 15, 0x7c));
}

/* Rounds up to a power of two and returns its code, which equals the exponent field of the float.
 * Only code 0 is special, because its float is subnormal. */
static inline uint8_t round_e8m0(float x)
{
    const uint32_t a = bits_of(x) & 0x7fffffff, exponent = a >> FLOAT_MANTISSA;
    const uint32_t up = exponent ? (a & 0x7fffff) != 0 : a > 0x400000;
    if (a > float_infinity) return 0xff;
    return (uint8_t)(exponent + up > 0xfe ? 0xfe : exponent + up);
}

static inline float widen_e8m0(uint8_t code)
{
    if (code == 0xff) return float_of(0x7fc00000);
    return float_of(code ? (uint32_t)code << FLOAT_MANTISSA : 0x400000);
}

/* Rounds to a 4-bit number and returns its code. The low three bits of the code are the index of
 * the magnitude in the list of all magnitudes; bit 3 is the sign. */
static inline uint8_t round_e2m1(float x)
{
    const uint32_t u = bits_of(x), a = u & 0x7fffffff, sign = u >> 28 & 8;
    if (a > float_infinity) return 0;
    const uint32_t code = nearest_code(a, 1, 1);
    return (uint8_t)(sign | (code > 7 ? 7 : code));
}

static inline float widen_e2m1(uint8_t code)
{
    return float_of((code & 8u) << 28 | widened(code & 7, 1, 1, 8));
}

/* ---- arrays ---- */

#define LOW_TYPES(X)                                                                               \
    X(bf16, uint16_t) X(f16, uint16_t) X(e4m3, uint8_t) X(e5m2, uint8_t) X(e8m0, uint8_t)

#define ARRAYS(name, type)                                                                         \
    static void widen_all_##name(const type *restrict x, float *restrict y, int64_t n)             \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) y[i] = widen_##name(x[i]);                                 \
    }                                                                                              \
    static void round_all_##name(const float *restrict x, type *restrict y, int64_t n)             \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) y[i] = round_##name(x[i]);                                 \
    }
LOW_TYPES(ARRAYS)

static void widen_pairs(const uint8_t *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = widen_e2m1(x[i / 2] >> (i % 2 * 4) & 15);
}

static void round_pairs(const float *restrict x, uint8_t *restrict y, int64_t n)
{
    for (int64_t i = 0; i + 1 < n; i += 2)
        y[i / 2] = (uint8_t)(round_e2m1(x[i]) | round_e2m1(x[i + 1]) << 4);
}

void number_widen(DType from, const void *x, float *y, int64_t n)
{
    assert(number_is_low(from));
#define CASE(name, type)                                                                           \
    if (from == DT_##name) widen_all_##name(x, y, n);
    LOW_TYPES(CASE)
#undef CASE
    if (from == DT_e2m1x2) widen_pairs(x, y, n);
}

void number_round(DType to, const float *x, void *y, int64_t n)
{
    assert(number_is_low(to));
#define CASE(name, type)                                                                           \
    if (to == DT_##name) round_all_##name(x, y, n);
    LOW_TYPES(CASE)
#undef CASE
    if (to == DT_e2m1x2) round_pairs(x, y, n);
}

/* Rounds x toward zero to a float, and sets the float's last bit if it differs from x. Rounding the
 * result to a format with at least two bits less then gives the same as rounding x once (Boldo and
 * Melquiond, When double rounding is odd). */
static float round_to_odd(double x)
{
    float near = (float)x;
    uint32_t u = bits_of(near);
    double back = (double)near, size = back < 0 ? -back : back;
    if (back == x || x != x) return near;
    if (size > (x < 0 ? -x : x)) u--;
    return float_of(u | 1);
}

enum { TILE = 256 };

/* Returns how many bytes n numbers take, which is also the offset in bytes of number n. */
static uint64_t bytes_of(DType t, uint64_t n)
{
    assert(n % dtype_numbers(t) == 0);
    return n / dtype_numbers(t) * dtype_bytes(t);
}

static void to_floats(DType from, const void *x, int64_t at, float *y, int64_t n, bool odd)
{
    if (from == DT_f32) {
        memcpy(y, (const float *)x + at, (size_t)n * sizeof *y);
    } else if (from == DT_f64 || from == DT_f64x2) {
        const double *wide = (const double *)x + at;
        for (int64_t i = 0; i < n; i++) y[i] = odd ? round_to_odd(wide[i]) : (float)wide[i];
    } else {
        number_widen(from, (const char *)x + bytes_of(from, (uint64_t)at), y, n);
    }
}

void number_cast(DType from, const void *x, DType to, void *y, int64_t n)
{
    assert(number_is_real(from) && number_is_real(to));
    if (from == to) {
        memmove(y, x, bytes_of(from, (uint64_t)n));
        return;
    }
    assert(n == 0 || x != y);
    for (int64_t at = 0; at < n; at += TILE) {
        float tile[TILE];
        int64_t count = n - at < TILE ? n - at : TILE;
        to_floats(from, x, at, tile, count, number_is_low(to));
        char *out = (char *)y + bytes_of(to, (uint64_t)at);
        if (number_is_low(to))
            number_round(to, tile, out, count);
        else if (to == DT_f32)
            memcpy(out, tile, (size_t)count * sizeof *tile);
        else
            for (int64_t i = 0; i < count; i++) ((double *)y)[at + i] = (double)tile[i];
    }
}

double number_read(DType t, const void *x, uint64_t i)
{
    float y = 0;
    if (t == DT_f64 || t == DT_f64x2) return ((const double *)x)[i];
    if (t == DT_e2m1x2) return (double)widen_e2m1(((const uint8_t *)x)[i / 2] >> (i % 2 * 4) & 15);
    to_floats(t, x, (int64_t)i, &y, 1, false);
    return (double)y;
}

void number_write(DType t, void *x, uint64_t i, double value)
{
    if (t == DT_f64 || t == DT_f64x2) {
        ((double *)x)[i] = value;
    } else if (t == DT_e2m1x2) {
        uint8_t *byte = (uint8_t *)x + i / 2;
        const int half = (int)(i % 2 * 4);
        *byte = (uint8_t)((*byte & 0xf0 >> half) | round_e2m1(round_to_odd(value)) << half);
    } else {
        number_cast(DT_f64, &value, t, (char *)x + i * dtype_bytes(t), 1);
    }
}
