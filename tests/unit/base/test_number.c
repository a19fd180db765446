/* Low-precision formats are compared with their definition. The test makes a table of every value
 * from the exponent and mantissa of each code, and looks up the nearest value in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/number.h"

typedef struct Format {
    DType type;
    int exponent, mantissa;
    double largest;
    bool has_infinity;
} Format;

static const Format formats[] = {
    {DT_bf16, 8, 7, 0x1.FEp127, true},
    {DT_f16, 5, 10, 65504, true},
    {DT_e4m3, 4, 3, 448, false},
    {DT_e5m2, 5, 2, 57344, true},
};

static uint32_t n_codes(const Format *f)
{
    return 1u << (f->exponent + f->mantissa); /* without the sign */
}

/* Returns the value of a code without sign; NAN and INFINITY by the format's rules. */
static double value_of(const Format *f, uint32_t code)
{
    uint32_t m = code & ((1u << f->mantissa) - 1), e = code >> f->mantissa;
    uint32_t top = (1u << f->exponent) - 1;
    int bias = (1 << (f->exponent - 1)) - 1;
    if (f->has_infinity && e == top) return m ? (double)NAN : (double)INFINITY;
    if (!f->has_infinity && code == n_codes(f) - 1) return (double)NAN;
    double fraction = (double)m / (double)(1u << f->mantissa);
    return e ? ldexp(1 + fraction, (int)e - bias) : ldexp(fraction, 1 - bias);
}

static uint32_t code_at(const Format *f, const void *at)
{
    uint16_t two;
    if (dtype_bytes(f->type) == 1) return *(const uint8_t *)at;
    memcpy(&two, at, 2);
    return two;
}

static void set_code(const Format *f, void *at, uint32_t code)
{
    uint16_t two = (uint16_t)code;
    if (dtype_bytes(f->type) == 1)
        *(uint8_t *)at = (uint8_t)code;
    else
        memcpy(at, &two, 2);
}

/* at[code] is the value of a code, from 0 to the largest finite value. */
typedef struct Table {
    uint32_t n;
    double at[1 << 15];
} Table;
static Table *table_of(const Format *f)
{
    Table *t = malloc(sizeof *t);
    assert_non_null(t);
    for (t->n = 0; isfinite(value_of(f, t->n)); t->n++) {
        t->at[t->n] = value_of(f, t->n);
        if (t->n > 0) assert_true(t->at[t->n] > t->at[t->n - 1]);
    }
    assert_true(t->at[t->n - 1] == f->largest);
    return t;
}

/* Returns the code of |x| by the definition: that of the nearest value. Of two equally near values,
 * the even code wins. */
static uint32_t nearest(const Format *f, const Table *t, double x)
{
    uint32_t lo = 0, hi = t->n - 1;
    double beyond = 2 * t->at[hi] - t->at[hi - 1]; /* the value that the next code would have */
    if (x >= (t->at[hi] + beyond) / 2) return hi + f->has_infinity;
    if (x >= t->at[hi]) return hi;
    while (hi - lo > 1) {
        uint32_t middle = (lo + hi) / 2;
        if (t->at[middle] <= x)
            lo = middle;
        else
            hi = middle;
    }
    double down = x - t->at[lo], up = t->at[hi] - x;
    if (down != up) return down < up ? lo : hi;
    return lo % 2 == 0 ? lo : hi;
}

static void check_float(const Format *f, const Table *t, float x)
{
    uint16_t room = 0;
    uint32_t sign = signbit(x) ? n_codes(f) : 0;
    number_round(f->type, &x, &room, 1);
    uint32_t expected = sign | nearest(f, t, fabs((double)x));
    if (code_at(f, &room) != expected)
        fail_msg("%s: %a became %#x, expected %#x", dtype_name(f->type), (double)x,
                 code_at(f, &room), expected);
}

static void every_code_survives_a_round_trip(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const Format *f = &formats[i];
        for (uint32_t code = 0; code < 2 * n_codes(f); code++) {
            uint16_t in = 0, out = 0;
            float x;
            uint32_t magnitude = code & (n_codes(f) - 1);
            double value = value_of(f, magnitude);
            set_code(f, &in, code);
            number_widen(f->type, &in, &x, 1);
            number_round(f->type, &x, &out, 1);
            assert_int_equal(signbit(x) != 0, code >= n_codes(f));
            if (isnan(value)) { /* keeps its sign; types with infinity set the quiet bit */
                uint32_t quiet = f->has_infinity ? 1u << (f->mantissa - 1) : 0;
                assert_true(isnan(x));
                assert_int_equal(code_at(f, &out), code | quiet);
            } else {
                assert_true((double)x == (code >= n_codes(f) ? -value : value));
                assert_int_equal(code_at(f, &out), code);
                assert_true(number_read(f->type, &in, 0) == (double)x);
            }
        }
    }
}

static void a_float_rounds_to_the_nearest_value(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        Table *t = table_of(&formats[i]);
        /* A sample of all floats, also subnormal ones. */
        for (uint64_t u = 0; u <= UINT32_MAX; u += 2039) {
            uint32_t bits = (uint32_t)u;
            float x;
            memcpy(&x, &bits, sizeof x);
            if (!isnan(x) && !isinf(x)) check_float(&formats[i], t, x);
        }
        free(t);
    }
}

/* Rounds the middle of any two neighbouring values, and the floats next to it. */
static void ties_go_to_even(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const Format *f = &formats[i];
        Table *t = table_of(f);
        for (uint32_t k = 0; k + 1 < t->n; k++) {
            double half = (t->at[k] + t->at[k + 1]) / 2;
            float x = (float)half;
            assert_true((double)x == half);
            for (int sign = -1; sign <= 1; sign += 2) {
                check_float(f, t, (float)sign * x);
                check_float(f, t, (float)sign * nextafterf(x, 0));
                check_float(f, t, (float)sign * nextafterf(x, INFINITY));
            }
        }
        free(t);
    }
}

/* These doubles lie next to a tie and become the tie as floats. Rounding by way of a float would
 * round them twice, to another code. */
static void doubles_are_rounded_once(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const Format *f = &formats[i];
        Table *t = table_of(f);
        for (uint32_t k = 0; k + 1 < t->n; k++) {
            double half = (t->at[k] + t->at[k + 1]) / 2;
            double beside[] = {half, nextafter(half, 0), nextafter(half, INFINITY)};
            for (int b = 0; b < 3; b++) {
                uint16_t one = 0, other = 0;
                number_write(f->type, &one, 0, -beside[b]);
                number_cast(DT_f64, &beside[b], f->type, &other, 1);
                uint32_t expected = nearest(f, t, beside[b]);
                assert_int_equal(code_at(f, &other), expected);
                assert_int_equal(code_at(f, &one), expected | n_codes(f));
            }
        }
        double tiny = 0x1p-1070;
        uint16_t room = 1;
        number_write(f->type, &room, 0, tiny);
        assert_int_equal(code_at(f, &room), 0);
        free(t);
    }
}

static void numbers_beyond_the_largest_saturate_or_overflow(void **state)
{
    (void)state;
    static const struct {
        DType type;
        float from;
        uint32_t code;
    } cases[] = {
        {DT_e4m3, 448, 0x7e},       {DT_e4m3, 480, 0x7e},        {DT_e4m3, 1e30f, 0x7e},
        {DT_e4m3, INFINITY, 0x7e},  {DT_e4m3, -INFINITY, 0xfe},  {DT_e4m3, NAN, 0x7f},
        {DT_e5m2, 57344, 0x7b},     {DT_e5m2, 61439, 0x7b},      {DT_e5m2, 61440, 0x7c},
        {DT_e5m2, INFINITY, 0x7c},  {DT_e5m2, -1e30f, 0xfc},     {DT_f16, 65519, 0x7bff},
        {DT_f16, 65520, 0x7c00},    {DT_f16, -INFINITY, 0xfc00}, {DT_bf16, INFINITY, 0x7f80},
        {DT_bf16, 3.4e38f, 0x7f80}, {DT_bf16, 3.38e38f, 0x7f7e}, {DT_bf16, 1.0f, 0x3f80},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int k = 0; k < 4; k++) {
            if (formats[k].type != cases[i].type) continue;
            uint16_t room = 0, wide = 0;
            double same = (double)cases[i].from;
            number_round(cases[i].type, &cases[i].from, &room, 1);
            number_cast(DT_f64, &same, cases[i].type, &wide, 1);
            assert_int_equal(code_at(&formats[k], &room), cases[i].code);
            assert_int_equal(code_at(&formats[k], &wide), cases[i].code);
        }
}

/* Casting between any two types gives the same values as reading and writing one double at a
 * time. */
static void a_cast_equals_reads_and_writes_of_doubles(void **state)
{
    (void)state;
    static const DType types[] = {DT_f64, DT_f32, DT_bf16, DT_f16, DT_e4m3, DT_e5m2, DT_e8m0};
    enum { N = 700 };
    for (int a = 0; a < 7; a++)
        for (int b = 0; b < 7; b++) {
            double x[N], y[N], expected[N];
            for (int i = 0; i < N; i++)
                number_write(types[a], x, (uint64_t)i, (i % 37 - 18) * pow(1.37, i % 23 - 11));
            number_cast(types[a], x, types[b], y, N);
            for (int i = 0; i < N; i++) {
                number_write(types[b], expected, 0, number_read(types[a], x, (uint64_t)i));
                assert_true(number_read(types[b], expected, 0) ==
                            number_read(types[b], y, (uint64_t)i));
            }
        }
}

/* A power of two keeps its code, and every other number is rounded up to the next power of two. The
 * sign is dropped. */
static void a_scale_rounds_up_to_a_power_of_two(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 0xff; code++) {
        const double exact = ldexp(1, (int)code - 127);
        const double from[] = {exact, exact * (0.5 + 0x1p-20), -exact, exact * 0.75};
        for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
            uint8_t is;
            number_cast(DT_f64, &from[i], DT_e8m0, &is, 1);
            assert_int_equal(is, code);
        }
        const uint8_t byte = (uint8_t)code;
        assert_true(number_read(DT_e8m0, &byte, 0) == exact);
    }
    static const struct {
        double from;
        uint8_t code;
    } ends[] = {{0, 0}, {1e-300, 0}, {1e300, 0xfe}, {(double)INFINITY, 0xfe}, {(double)NAN, 0xff}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        uint8_t is;
        number_cast(DT_f64, &ends[i].from, DT_e8m0, &is, 1);
        assert_int_equal(is, ends[i].code);
    }
    const uint8_t nan = 0xff;
    assert_true(isnan(number_read(DT_e8m0, &nan, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_survives_a_round_trip),
        cmocka_unit_test(a_float_rounds_to_the_nearest_value),
        cmocka_unit_test(ties_go_to_even),
        cmocka_unit_test(doubles_are_rounded_once),
        cmocka_unit_test(numbers_beyond_the_largest_saturate_or_overflow),
        cmocka_unit_test(a_cast_equals_reads_and_writes_of_doubles),
        cmocka_unit_test(a_scale_rounds_up_to_a_power_of_two),
    };
    return cmocka_run_group_tests_name("number", tests, NULL, NULL);
}
