/* Rotary positions of sequences with an image, and sinusoidal positions. Their plans compute what
 * one rank computes. An image that does not fit the sequence is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tests/support/command.h"

/* Writes a plan with two blocks of attention: one as in a decoder, and one as in an encoder. */
static void write_plan(Arena *arena, const char *tokens, const char *decoder, const char *encoder,
                       const char *rest)
{
    command_write_file(
        "image.lua",
        arena_print(
            arena,
            "local nn = require 'tandem.nn'\n"
            "local function block(image, causal)\n"
            "  return nn.block { norm = nn.rmsnorm(32),\n"
            "    attention = nn.attention { dim = 32, heads = 4, head_dim = 16, causal = causal,\n"
            "      rope_theta = 1e4, rope_image = image },\n"
            "    tp_col = { 'attention.wq', 'attention.wk', 'attention.wv' }, tp_row = "
            "'attention.wo',\n"
            "    forward = function(m, x) return x + m.attention(m.norm(x)) end }\n"
            "end\n"
            "local function build()\n"
            "  return nn.module { e = nn.embedding(64, 32), head = nn.linear(32, 64),\n"
            "    b = nn.list { block(%s, true), block(%s, false) }, tp_vocab = { 'e', 'head' },\n"
            "    forward = function(m, t, y) return nn.cross_entropy(m.head(m.b(%s)), y) end }\n"
            "end\n"
            "return plan { model = { build = build, config = { seq = 48 },\n"
            "    shrink = function(c) return c end },\n"
            "  batch = { global = 4, micro = 1, seq = 48 }, %s }\n",
            decoder, encoder, tokens, rest));
}

#define DECODER "{ rows = 4, columns = 6, first = 5, sections = { 2, 3, 3 } }"
#define ENCODER "{ rows = 6, columns = 8, block = 2 }"

static void expect_pass(const char *tokens, const char *decoder, const char *encoder)
{
    static const char *const plans[] = {
        "mesh = { dp_shard = 2, tp = 2, cp = 2 }, parallel = { tp { sequence = true }, cp {}, "
        "fsdp2 {} }",
        "mesh = { cp = 4 }, parallel = { cp 'all_to_all', ddp {} }",
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        Arena *arena = arena_new();
        write_plan(arena, tokens, decoder, encoder, plans[i]);
        CommandResult r = COMMAND(arena, 60, "run", "image.lua", "--verify", "--db", "none");
        if (r.exit_code != 0) print_error("%s%s", r.out, r.err);
        assert_int_equal(r.exit_code, 0);
        assert_non_null(strstr(r.out, "PASS (tolerance 1e-10)"));
        arena_free(arena);
    }
}

static void ranks_rotate_their_own_tokens(void **state)
{
    (void)state;
    expect_pass("m.e(t)", DECODER, ENCODER);
}

/* Each rank adds the sines of its own tokens. The op that makes them has an attribute, but the op
 * that carries their gradient has none. */
static void ranks_add_sines_of_their_own_tokens(void **state)
{
    (void)state;
    expect_pass("nn.sinusoid(m.e(t))", "nil", "nil");
}

static void images_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"{ rows = 4, columns = 6, sections = { 2, 3, 4 } }", ENCODER,
         "sections 2 + 3 + 4 must add up to the 8 rotated pairs"},
        {"{ rows = 4, columns = 6, first = 25, sections = { 2, 3, 3 } }", ENCODER,
         "4 x 6 tokens of an image from token 25 on, in a sequence of 48"},
        {"{ rows = 4, columns = 6 }", ENCODER, "an image needs sections (for a decoder)"},
        {DECODER, "{ rows = 6, columns = 7, block = 2 }", "cannot be divided into blocks of 2 x 2"},
        {DECODER, "{ rows = 6, columns = 6, block = 2 }", "48 tokens and 8 pairs for 6 x 6"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new();
        write_plan(arena, "m.e(t)", cases[i][0], cases[i][1], "mesh = { dp_shard = 1 }");
        CommandResult r = COMMAND(arena, 60, "check", "image.lua", "--db", "none");
        assert_int_equal(r.exit_code, 3);
        if (!strstr(r.err, cases[i][2])) fail_msg("%s:\n%s", cases[i][2], r.err);
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_rotate_their_own_tokens),
        cmocka_unit_test(ranks_add_sines_of_their_own_tokens),
        cmocka_unit_test(images_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
