/* The MFU divides FLOPs by time, so it depends on how FLOPs are counted. The default counts
 * attention by the width of its heads and by its mask. Each named convention must count as its
 * source does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include <jansson.h>

#include "tests/support/command.h"

/* Returns the MFU formula of a model with two blocks of attention over 64 tokens. */
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

/* Without a mask, every query meets every key, so attention counts twice. */
static void attention_in_both_directions_counts_twice(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    assert_non_null(strstr(formula(arena, "causal = false"), "+ 12 x 2 layers x 32 x 64 per "));
    arena_free(arena);
}

/* In a window of 16 a query sees 16 keys, and the first queries see fewer: 16 x 64 - 16 x 15 / 2 of
 * the 64 x 64 pairs, a share of 0.2207. Then 12 x 0.2207 = 2.648. */
static void attention_in_a_window_counts_only_the_keys_that_it_sees(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    assert_non_null(strstr(formula(arena, "window = 16"), "+ 2.64844 x 2 layers x 32 x 64 per "));
    arena_free(arena);
}

/* A token passes only the encoder or only the decoder, so not every weight works on it. */
static void encoder_and_decoder_each_count_their_own_tokens(void **state)
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

/* A model of two blocks of width 32 with a feed-forward of 64, a vocabulary of 128, and an untied
 * head. It reads 64 tokens. */
static const char small[] =
    "local nn = require 'tandem.nn'\n"
    "local function block() return nn.block { attention = nn.attention { dim = 32, heads = 4 },\n"
    "  w1 = nn.linear(32, 64), w2 = nn.linear(64, 32),\n"
    "  forward = function(m, x) x = x + m.attention(x); return x + m.w2(m.w1(x)) end } end\n"
    "return plan { cluster = require 'clusters.dgx_h100' { nodes = 1 },\n"
    "  model = nn.module { embed = nn.embedding(128, 32), layers = nn.list(2, block),\n"
    "    head = nn.linear(32, 128),\n"
    "    forward = function(m, tokens, labels)\n"
    "      return nn.cross_entropy(m.head(m.layers(m.embed(tokens))), labels)\n"
    "    end },\n"
    "  batch = { global = 8, micro = 1, seq = 64 }, mesh = { dp_replicate = 8 },\n"
    "  precision = { compute = 'bf16' }, parallel = { %sddp {} }, optimizer = adamw {} }\n";

static double flops_by(Arena *arena, const char *passes, const char *convention)
{
    const char *file = arena_print(arena, "%s/plan.lua", command_new_folder(arena));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    command_write_file(file, arena_print(arena, small, passes));
#pragma GCC diagnostic pop
    CommandResult r =
        COMMAND(arena, 60, "sim", file, "--db", "none", "--json", "--mfu", convention);
    assert_int_equal(r.exit_code, 0);
    json_t *root = json_loads(r.out, 0, NULL);
    const json_t *row = json_array_get(json_object_get(root, "mfu_by"), 0);
    assert_string_equal(json_string_value(json_object_get(row, "convention")), convention);
    const double flops = json_number_value(json_object_get(row, "flops_per_token"));
    const double share = json_number_value(json_object_get(row, "mfu"));
    const double rate = json_number_value(json_object_get(root, "tokens_per_s_per_device"));
    assert_true(fabs(share / (rate * flops / 989.4e12) - 1) < 1e-3);
    json_decref(root);
    return flops;
}

/* The two blocks have 16,384 weights; the embedding and the head have 4,096 each. Attention over
 * all 64 keys is 12 x 2 x 32 x 64 = 49,152 FLOPs a token, its causal half 24,576. The hardware runs
 * two products forward and five backward, where the convention `model` counts four. Recomputation
 * runs the blocks' forward pass again, except for the last product. */
static void conventions_count_as_their_sources_do(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const double blocks = 2 * (4 * 32 * 32 + 2 * 32 * 64), end = 4096;
    const double square = 12 * 2 * 32 * 64;
    assert_true(fabs(flops_by(arena, "", "model") - 6 * (blocks + end) - square / 2) < 1);
    assert_true(fabs(flops_by(arena, "", "square") - 6 * (blocks + end) - square) < 1);
    assert_true(fabs(flops_by(arena, "", "all_parameters") - 6 * (blocks + 2 * end) - square) < 1);
    assert_true(fabs(flops_by(arena, "", "parameters") - 6 * (blocks + 2 * end)) < 1);
    const double runs = flops_by(arena, "", "hardware");
    assert_true(fabs(runs - 6 * (blocks + end) - square / 2 * 14 / 12) < 1);
    const double again = flops_by(arena, "ac 'full', ", "hardware");
    const double last = 2. * 32 * 64; /* no node needs the output of w2 again */
    assert_true(fabs(again - runs - 2 * (blocks - last) - square / 2 * 4 / 12) < 1);
    arena_free(arena);
}

/* Frozen weights have no gradient: 4 FLOPs instead of 6. If nothing before them is trained, only
 * the forward pass counts; the head then has no gradient of its input either. */
static void frozen_parts_count_less(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const double block = 4 * 32 * 32 + 2 * 32 * 64, end = 4096, causal = 12 * 2 * 32 * 64 / 2;
    const double one = flops_by(arena, "freeze { modules = { 'layers.1' } }, ", "model");
    assert_true(fabs(one - 6 * (block + end) - 4 * block - causal) < 1);
    const double all = flops_by(arena, "freeze { modules = { 'embed', 'layers' } }, ", "model");
    assert_true(fabs(all - 2 * 2 * block - 4 * end - causal / 3) < 1);
    assert_true(all <
                flops_by(arena, "freeze { modules = { 'embed', 'layers' } }, ", "hardware") + 1);
    arena_free(arena);
}

/* Conventions by parameters leave out the same gradients. Unlike the other conventions, they count
 * an embedding, which is only looked up, and the part of attention that the mask hides. */
static void conventions_leave_out_gradients_of_frozen_parts(void **state)
{
    (void)state;
    static const char *const one = "freeze { modules = { 'layers.1' } }, ",
                             *const all = "freeze { modules = { 'embed', 'layers' } }, ";
    Arena *arena = arena_new();
    const double block = 4 * 32 * 32 + 2 * 32 * 64, end = 4096, square = 12 * 2 * 32 * 64;
    assert_true(fabs(flops_by(arena, "", "parameters") - 12 * (block + end)) < 1);
    assert_true(fabs(flops_by(arena, one, "parameters") - 12 * end - 10 * block) < 1);
    assert_true(fabs(flops_by(arena, all, "parameters") - 6 * end - 4 * block) < 1);
    assert_true(fabs(flops_by(arena, all, "all_parameters") - 6 * end - 4 * block - square / 3) <
                1);
    assert_true(fabs(flops_by(arena, one, "square") - 6 * end - 10 * block - square) < 1);
    assert_true(fabs(flops_by(arena, all, "square") - 4 * end - 4 * block - square / 3) < 1);
    arena_free(arena);
}

/* Dropless experts lie on `ep` ranks, and each token passes 2 of 4 experts. Without recomputation,
 * the ranks run the products of the model, and two more for attention. */
static void dropless_experts_count_the_rows_that_arrive(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const double norms = 5 * 64; /* parameters that the model counts, but that are in no product */
    for (int ep = 1; ep <= 4; ep *= 4) {
        const char *file = arena_print(arena, "%s/plan.lua", command_new_folder(arena));
        command_write_file(
            file, arena_print(arena,
                              "return plan { model = require 'models.mixtral' { size = 'tiny', "
                              "capacity_factor = 'dropless' },\n"
                              "  cluster = require 'clusters.dgx_h100' { nodes = 1 },\n"
                              "  batch = { global = 16, micro = 1, seq = 64 },\n"
                              "  mesh = { dp_shard = %d, ep = %d },\n"
                              "  parallel = { %sfsdp2 {} } }\n",
                              8 / ep, ep, ep > 1 ? "ep {}, " : ""));
        CommandResult r = COMMAND(arena, 60, "sim", file, "--db", "none", "--json", "--mfu", "all");
        assert_int_equal(r.exit_code, 0);
        json_t *root = json_loads(r.out, 0, NULL);
        double flops[2] = {0}, without = 0;
        size_t i;
        json_t *row;
        json_array_foreach(json_object_get(root, "mfu_by"), i, row)
        {
            const char *name = json_string_value(json_object_get(row, "convention"));
            const double n = json_number_value(json_object_get(row, "flops_per_token"));
            if (strcmp(name, "model") == 0) flops[0] = n;
            if (strcmp(name, "hardware") == 0) flops[1] = n;
            if (strcmp(name, "square") == 0) without = n;
        }
        /* The difference is the half of attention that the mask hides. */
        const double attention = without - flops[0];
        assert_true(attention > 0);
        if (!(fabs(flops[1] - flops[0] + 6 * norms - attention * 2 / 12) < 1))
            fail_msg("ep = %d: hardware %g, model %g, attention %g", ep, flops[1], flops[0],
                     attention);
        json_decref(root);
    }
    arena_free(arena);
}

static void other_conventions_are_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *plan = TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua";
    CommandResult r = COMMAND(arena, 60, "sim", plan, "--db", "none", "--mfu", "marketing");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "option-value"));
    assert_non_null(strstr(r.err, "hardware"));
    r = COMMAND(arena, 60, "sim", plan, "--db", "none", "--mfu", "all");
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "% by hardware: HFU"));
    assert_non_null(strstr(r.out, "% by square: "));
    arena_free(arena);
}

/* The line about measured costs names communications only where the plan has some. */
static void one_rank_has_no_communications(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    for (int ranks = 1; ranks <= 2; ranks++) {
        const char *file = arena_print(arena, "%s/plan.lua", command_new_folder(arena));
        command_write_file(file,
                           arena_print(arena,
                                       "return plan { model = require 'models.llama' 'tiny',\n"
                                       "  batch = { global = 2, micro = 1, seq = 32 },\n"
                                       "  mesh = { dp_replicate = %d }, parallel = { ddp {} } }\n",
                                       ranks));
        CommandResult r = COMMAND(arena, 60, "sim", file, "--db", "none");
        assert_int_equal(r.exit_code, 0);
        assert_non_null(strstr(r.out, " kernels"));
        assert_true((strstr(r.out, " communications; the others") != NULL) == (ranks == 2));
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_counts_by_the_width_of_its_heads),
        cmocka_unit_test(attention_in_both_directions_counts_twice),
        cmocka_unit_test(attention_in_a_window_counts_only_the_keys_that_it_sees),
        cmocka_unit_test(encoder_and_decoder_each_count_their_own_tokens),
        cmocka_unit_test(conventions_count_as_their_sources_do),
        cmocka_unit_test(frozen_parts_count_less),
        cmocka_unit_test(conventions_leave_out_gradients_of_frozen_parts),
        cmocka_unit_test(dropless_experts_count_the_rows_that_arrive),
        cmocka_unit_test(other_conventions_are_refused),
        cmocka_unit_test(one_rank_has_no_communications),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
