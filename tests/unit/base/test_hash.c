/* XXH3-128 gives the hashes that its authors' test and the program xxhsum give. Ids of plans are
 * such hashes, so a change would make stored ids worthless. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/base/str.h"

/* Inputs of xxHash's own sanity test: byte i is the top byte of prime64^(i+1) from prime32, all
 * modulo 2^64; seed 0. Source: cli/xsum_sanity_check.c of xxHash 0.8.1. */
static void fill(unsigned char *to, size_t n)
{
    uint64_t generator = UINT64_C(2654435761);
    for (size_t i = 0; i < n; i++) {
        to[i] = (unsigned char)(generator >> 56);
        generator *= UINT64_C(11400714785074694797);
    }
}

static void hashes_equal_published_values(void **state)
{
    (void)state;
    static const struct {
        size_t n;
        uint64_t lo, hi;
    } expected[] = {
        {0, UINT64_C(0x6001C324468D497F), UINT64_C(0x99AA06D3014798D8)},
        {1, UINT64_C(0xC44BDFF4074EECDB), UINT64_C(0xA6CD5E9392000F6A)},
        {6, UINT64_C(0x3E7039BDDA43CFC6), UINT64_C(0x082AFE0B8162D12A)},
        {12, UINT64_C(0x061A192713F69AD9), UINT64_C(0x6E3EFD8FC7802B18)},
        {24, UINT64_C(0x1E7044D28B1B901D), UINT64_C(0x0CE966E4678D3761)},
        {48, UINT64_C(0xF942219AED80F67B), UINT64_C(0xA002AC4E5478227E)},
        {81, UINT64_C(0x5E8BAFB9F95FB803), UINT64_C(0x4952F58181AB0042)},
        {222, UINT64_C(0xF1AEBD597CEC6B3A), UINT64_C(0x337E09641B948717)},
        {403, UINT64_C(0xCDEB804D65C6DEA4), UINT64_C(0x1B6DE21E332DD73D)},
        {512, UINT64_C(0x617E49599013CB6B), UINT64_C(0x18D2D110DCC9BCA1)},
        {2048, UINT64_C(0xDD59E2C3A5F038E0), UINT64_C(0xF736557FD47073A5)},
        {2240, UINT64_C(0x6E73A90539CF2948), UINT64_C(0xCCB134FBFA7CE49D)},
        {2367, UINT64_C(0xCB37AEB9E5D361ED), UINT64_C(0xE89C0F6FF369B427)},
    };
    unsigned char input[2400];
    fill(input, sizeof input);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        Hash128 h = hash_bytes(input, expected[i].n);
        assert_int_equal(h.lo, expected[i].lo);
        assert_int_equal(h.hi, expected[i].hi);
    }
}

static void a_hash_is_written_as_32_hex_digits(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    assert_string_equal(hash_hex(arena, (Hash128){.hi = 0x12, .lo = 0xABCDEF}),
                        "00000000000000120000000000abcdef");
    /* The output of `xxhsum -H128 /dev/null`. */
    assert_string_equal(hash_hex(arena, hash_bytes(NULL, 0)), "99aa06d3014798d86001c324468d497f");
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_equal_published_values),
        cmocka_unit_test(a_hash_is_written_as_32_hex_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
