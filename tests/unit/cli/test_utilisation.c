/* The default MFU: attention counts by the width of its heads and by its mask. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include <jansson.h>

#include "tests/support/command.h"

/* Returns the formula of two blocks of attention over 64 tokens. */
static const char *formula(Arena *arena, const char *attention)
{
    const char *file = arena_print(arena, "%s/plan.lua", command_new_folder(arena));
    command_write_file(
        file,
        arena_print(arena,
                    "local nn = require 'tandem.nn'\n"
                    "local embed = nn.embedding(128, 32)\n"
                    "local function block() return nn.block { norm = nn.rmsnorm(32),\n"
                    "  attention = nn.attention { dim = 32, heads = 4, %s },\n"
                    "  forward = function(m, x) return x + m.attention(m.norm(x)) end } end\n"
                    "return plan { cluster = require 'clusters.dgx_h100' { nodes = 1 },\n"
                    "  model = nn.module { embed = embed, layers = nn.list(2, block),\n"
                    "    head = nn.linear(32, 128),\n"
                    "    forward = function(m, tokens, labels)\n"
                    "      return nn.cross_entropy(m.head(m.layers(m.embed(tokens))), labels)\n"
                    "    end },\n"
                    "  batch = { global = 8, micro = 1, seq = 64 }, mesh = { dp_replicate = 8 },\n"
                    "  parallel = { ddp {} }, optimizer = adamw {} }\n",
                    attention));
    CommandResult r = COMMAND(arena, 60, "sim", file, "--db", "none", "--json");
    assert_int_equal(r.exit_code, 0);
    json_t *root = json_loads(r.out, 0, NULL);
    const char *text = json_string_value(json_object_get(root, "mfu_formula"));
    assert_non_null(text);
    const char *copy = arena_print(arena, "%s", text);
    json_decref(root);
    return copy;
}

/* 4 heads of 8 are as wide as the model; 4 heads of 16 are twice as wide. */
static void attention_counts_by_the_width_of_its_heads(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    assert_non_null(strstr(formula(arena, "head_dim = 8"), "+ 6 x 2 layers x 32 x 64 per token"));
    assert_non_null(strstr(formula(arena, "head_dim = 16"), "+ 6 x 2 layers x 64 x 64 per token"));
    arena_free(arena);
}

/* Without a mask every query meets every key. */
static void attention_in_both_directions_counts_twice(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    assert_non_null(strstr(formula(arena, "causal = false"), "+ 12 x 2 layers x 32 x 64 per "));
    arena_free(arena);
}

/* In a window of 16 a query sees 16 keys, the first ones fewer: 16 x 64 - 16 x 15 / 2 of the 64 x
 * 64 pairs, which is 0.2207; and 12 x 0.2207 = 2.648. */
static void attention_in_a_window_counts_what_it_sees(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    assert_non_null(strstr(formula(arena, "window = 16"), "+ 2.64844 x 2 layers x 32 x 64 per "));
    arena_free(arena);
}

/* A token passes the encoder or the decoder, so not every weight works on it. */
static void encoder_and_decoder_share_the_tokens(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *file = arena_print(arena, "%s/plan.lua", command_new_folder(arena));
    command_write_file(file, "return plan { model = require 'models.t5' 'v1.1-small',\n"
                             "  cluster = require 'clusters.dgx_h100' { nodes = 1 },\n"
                             "  batch = { global = 8, micro = 1, seq = 1024 },\n"
                             "  mesh = { dp_replicate = 8 }, parallel = { ddp {} } }\n");
    CommandResult r = COMMAND(arena, 60, "sim", file, "--db", "none", "--json");
    json_t *root = json_loads(r.out, 0, NULL);
    const char *text = json_string_value(json_object_get(root, "mfu_formula"));
    assert_non_null(text);
    assert_non_null(strstr(text, "products of encoder and decoder"));
    const double mfu = json_real_value(json_object_get(root, "mfu"));
    assert_true(mfu > 0 && mfu < 1);
    json_decref(root);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_counts_by_the_width_of_its_heads),
        cmocka_unit_test(attention_in_both_directions_counts_twice),
        cmocka_unit_test(attention_in_a_window_counts_what_it_sees),
        cmocka_unit_test(encoder_and_decoder_share_the_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
