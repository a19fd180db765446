/* tandem accuracy: rows of Megatron-Bridge whose recipe recomputes, exchanges or offloads
 * activations. Expected bytes are closed forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "cli/accuracy/accuracy.h"
#include "tests/support/command.h"

enum { TOKENS = 4096 };

/* `mla` and `recompute` are the texts of the cells with these names. */
static const char *table_of(const char *framework, const char *kind, const char *mla,
                            const char *recompute, int layers, int n_gpus, Arena *arena)
{
    Str s = str_in(arena);
    str_print(&s,
              "id,source,model,n_layers,d_model,n_heads,n_kv_heads,d_ff,vocab,moe_experts,gpu,"
              "n_gpus,framework,tp,sp,pp,vp,cp,ep,zero_stage,micro_batch,global_batch_seqs,seq,"
              "precision,ac,step_time_s,peak_mem,peak_mem_kind,oom,missing,split,flag,mla,"
              "transformer_impl,activation,normalization,position_embedding,notes\n"
              "a,s,llama,%d,1024,16,16,4096,8192,,H100-SXM-80GB,%d,%s,1,0,1,1,1,1,0,1,%d,%d,"
              "bf16,%s,1,1,%s,,,dev-cal,,%s,transformer_engine,swiglu,RMSNorm,rope,\n",
              layers, n_gpus, framework, 2 * n_gpus, TOKENS, recompute, kind, mla);
    return command_table(arena, str_text(&s));
}

static double memory_of(const char *table, const char *set, Arena *arena)
{
    const CommandResult r = COMMAND(arena, 60, "accuracy", "--runs", table, "--json", "--set", set);
    assert_int_equal(r.exit_code, 0);
    json_t *root = json_loads(r.out, 0, NULL);
    const json_t *scores = json_object_get(json_object_get(root, "runs"), "scores");
    double is = 0;
    for (size_t i = 0; i < json_array_size(scores); i++) {
        const json_t *s = json_array_get(scores, i);
        if (strncmp(json_string_value(json_object_get(s, "what")), "memory", 6) == 0)
            is = json_number_value(json_object_get(s, "predicted"));
    }
    json_decref(root);
    assert_true(is > 0);
    return is;
}

static void is_about(double is, double wanted)
{
    if (fabs(is - wanted) > .03 * fabs(wanted))
        fail_msg("%.5g, and %.5g were expected", is, wanted);
}

#define SAME "batch.micro=1"

/* The queries, keys and values of 16 heads, and the inputs of the two norms between a pair of
 * projections, are computed again (multi_latent_attention.py: qkv_up_checkpoint). */
static void recomputed_up_projections_keep_no_outputs(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char mla[] = "q_lora=384 kv_lora=256 qk_head=64 qk_pos=32 v_head=64";
    double is[2][2];
    for (int more = 0; more < 2; more++)
        for (int again = 0; again < 2; again++)
            is[more][again] = memory_of(table_of("Megatron-Core 0.15.0", "allocated", mla,
                                                 again ? "selective(mla_up_proj)" : "none",
                                                 more ? 8 : 4, 1, arena),
                                        SAME, arena);
    const double heads = 16 * (2 * (64 + 32) + 64), norms = 384 + 256;
    is_about((is[1][0] - is[0][0]) - (is[1][1] - is[0][1]), 4. * TOKENS * 2 * (heads + norms));
    arena_free(arena);
}

/* A block saves 16-bit inputs and outputs of its norms, rotated queries and keys, values, the
 * output of attention, and three tensors of its MLP. The product of queries, keys and values is not
 * kept. Attention and norms add some numbers for each token. */
static void offloaded_blocks_keep_no_activations_on_the_device(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *table = table_of("Megatron-Core 0.15.0", "allocated", "", "none", 6, 1, arena);
    const double one = memory_of(table, "runtime.offloaded_blocks=1", arena),
                 two = memory_of(table, "runtime.offloaded_blocks=2", arena),
                 four = memory_of(table, "runtime.offloaded_blocks=4", arena);
    const double block = 2. * TOKENS * ((2 + 2 + 3 + 1) * 1024 + 3 * 4096);
    is_about(one - two, block);
    is_about(two - four, 2 * block);
    arena_free(arena);
}

/* Scripts of Megatron-Bridge switch off sums inside NVLink switches. Those of Megatron-Core do
 * not. */
static void megatron_bridge_has_no_buffers_for_nvlink_switches(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const frameworks[] = {"Megatron-Bridge/Megatron-Core", "Megatron-Core"};
    for (int i = 0; i < 2; i++) {
        const char *table = table_of(frameworks[i], "process", "", "none", 2, 8, arena);
        const double is = memory_of(table, SAME, arena),
                     off = memory_of(table, "cluster.fabric.no_nvls=true", arena);
        assert_true(i == 0 ? is == off : is > off + 128e6);
    }
    arena_free(arena);
}

/* Returns the notes of a Megatron-Bridge row. */
static const char *notes_of(const char *cells, Arena *arena)
{
    Str s = str_in(arena);
    str_print(&s,
              "return require('tandem.published.run').plan { id = 'a', source = 's', "
              "framework = 'Megatron-Bridge', cp = '1', ac = 'see recipe', %s }\n",
              cells);
    const char *plan = arena_print(arena, "%s/plan.lua", command_new_folder(arena));
    command_write_file(plan, str_text(&s));
    return COMMAND(arena, 60, "show", plan, "--mesh").err;
}

/* Recipes differ by GPU, precision and mesh. */
static void a_recipe_is_found_by_its_mesh(void **state)
{
    (void)state;
    Arena *arena = arena_new();
#define NANO                                                                                       \
    "model = 'Nemotron_3_Nano', gpu = 'H100', n_gpus = '16', tp = '1', pp = '1', seq = '8192', "   \
    "micro_batch = '1', global_batch_seqs = '16', precision = 'FP8', "
#define LLAMA                                                                                      \
    "model = 'llama3-70b', gpu = 'GB200', n_gpus = '64', precision = 'FP8-CS', seq = '4096', "     \
    "micro_batch = '1', global_batch_seqs = '128', "
    static const struct {
        const char *cells, *note;
    } rows[] = {
        {NANO "ep = '8'", "selective(moe layernorm core_attn moe_act) is assumed"},
        {NANO "ep = '16'", "selective(layernorm) is assumed"},
        {LLAMA "tp = '1', pp = '1', vp = '1', ep = '1'", "zero_stage is not stated; 3 is assumed"},
        {LLAMA "tp = '2', pp = '4', vp = '5', ep = '1'", "zero_stage is not stated; 1 is assumed"},
    };
#undef NANO
#undef LLAMA
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *is = notes_of(rows[i].cells, arena);
        if (strstr(is, rows[i].note) == NULL) fail_msg("no '%s' in: %s", rows[i].note, is);
    }
    arena_free(arena);
}

/* Returns a field of the profile of a Megatron-Bridge row's plan, as Lua prints it. */
static const char *profile_of(const char *cells, const char *field, Arena *arena)
{
    Str s = str_in(arena);
    str_print(&s,
              "local p = require('tandem.published.run').plan { id = 'a', source = 's', "
              "framework = 'Megatron-Bridge', cp = '1', ac = 'see recipe', %s }\n"
              "error('is ' .. tostring(p.runtime.%s) .. '.')\n",
              cells, field);
    const char *plan = arena_print(arena, "%s/plan.lua", command_new_folder(arena));
    command_write_file(plan, str_text(&s));
    return COMMAND(arena, 60, "show", plan, "--mesh").err;
}

#define LLAMA                                                                                      \
    "model = 'llama3-70b', gpu = 'GB200', n_gpus = '64', precision = 'FP8-CS', seq = '4096', "     \
    "micro_batch = '1', global_batch_seqs = '128', vp = '1', ep = '1', "
#define OFFLOADS "offloaded_blocks is not stated; 40 is assumed"

/* Offloading belongs to the recipe with FSDP and without tp. A mesh that is only assumed selects no
 * recipe. A recipe for training all weights does not describe LoRA. */
static void a_recipe_counts_only_for_its_own_rows(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const struct {
        const char *cells;
        bool offloads;
    } rows[] = {
        {LLAMA "tp = '1', pp = '1'", true},
        {LLAMA "tp = '1', pp = '1', zero_stage = '3'", true},
        {LLAMA "tp = '1', pp = '1', zero_stage = '1'", false},
        {LLAMA "tp = '2', pp = '1', zero_stage = '1'", false},
        {LLAMA "tp = '2', pp = '1'", false},
        {LLAMA "tp = '1'", false},
        {LLAMA "tp = '1', pp = '1', fp8_recipe = 'mxfp8'", false},
        {LLAMA "tp = '1', pp = '1', flag = 'lora'", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *is = notes_of(rows[i].cells, arena);
        if ((strstr(is, OFFLOADS) != NULL) != rows[i].offloads)
            fail_msg("row %zu has the notes: %s", i, is);
        if (!rows[i].offloads && strstr(is, "zero_stage is not stated; 3 is assumed") != NULL)
            fail_msg("row %zu takes the stage of a recipe: %s", i, is);
    }
    /* Rows whose notes name no offloading recipe offload no blocks. */
    for (int i = 2; i < 5; i++) {
        const char *is = profile_of(rows[i].cells, "offloaded_blocks", arena);
        if (strstr(is, "is nil.") == NULL) fail_msg("row %d offloads blocks: %s", i, is);
    }
    arena_free(arena);
}

/* For its step, the optimizer makes fp32 copies of two moments in 16 bits, or of 16-bit gradients.
 * Gradients in fp32 are not copied. */
static void an_update_copies_16_bits(void **state)
{
    (void)state;
    Arena *arena = arena_new();
#define CELLS                                                                                      \
    "gpu = 'H100', n_gpus = '8', tp = '1', pp = '1', vp = '1', ep = '1', seq = '4096', "           \
    "micro_batch = '1', global_batch_seqs = '8', zero_stage = '1', precision = 'BF16', "
    static const struct {
        const char *cells, *update, *master;
    } rows[] = {
        {CELLS "model = 'llama3-8b'", "is 4.", "is nil."},
        {CELLS "model = 'llama3-8b', grad_reduce_in_bf16 = '0'", "is nil.", "is nil."},
        {CELLS "model = 'llama3-8b', exp_avg_dtype = 'bf16'", "is 8.", "is 2."},
    };
#undef CELLS
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *update = profile_of(rows[i].cells, "update_bytes", arena),
                   *master = profile_of(rows[i].cells, "master_bytes", arena);
        if (strstr(update, rows[i].update) == NULL)
            fail_msg("row %zu has update_bytes %s", i, update);
        if (strstr(master, rows[i].master) == NULL)
            fail_msg("row %zu has master_bytes %s", i, master);
    }
    arena_free(arena);
}

/* Bytes that only the last stage has are left out if another rank needs most memory. A note says
 * so. */
static void bytes_left_out_are_noted(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char row[] = LLAMA "tp = '2', pp = '4', zero_stage = '1', "
                                    "notes = 'defer-embedding-wgrad-compute', ";
    static const char note[] = "a rank of the first stage is assumed to need most";
    assert_non_null(strstr(notes_of(row, arena), note));
    assert_null(strstr(notes_of(LLAMA "tp = '2', pp = '4', zero_stage = '1'", arena), note));
    arena_free(arena);
}
#undef LLAMA

/* torchtitan keeps gathered weights for stage 2 (docs/fsdp.md) and replicates weights for stage 0.
 */
static void torchtitan_follows_the_stage(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const stages[] = {"DDP", "SHARD_GRAD_OP", "3"};
    double is[3];
    for (int i = 0; i < 3; i++) {
        Str s = str_in(arena);
        str_print(&s,
                  "id,source,model,n_layers,d_model,n_heads,n_kv_heads,d_ff,vocab,gpu,n_gpus,"
                  "framework,tp,pp,cp,ep,zero_stage,micro_batch,global_batch_seqs,seq,precision,ac,"
                  "compile,step_time_s,peak_mem,peak_mem_kind,oom,missing,split,flag,notes\n"
                  "a,s,llama,8,1024,16,16,4096,8192,H100-SXM-80GB,8,torchtitan 2026,1,1,1,1,%s,1,8,"
                  "%d,bf16,none,no,1,1,reserved,,,dev-cal,,\n",
                  stages[i], TOKENS);
        is[i] = memory_of(command_table(arena, str_text(&s)), SAME, arena);
    }
    assert_true(is[0] > is[1] && is[1] > is[2]);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recomputed_up_projections_keep_no_outputs),
        cmocka_unit_test(offloaded_blocks_keep_no_activations_on_the_device),
        cmocka_unit_test(megatron_bridge_has_no_buffers_for_nvlink_switches),
        cmocka_unit_test(a_recipe_is_found_by_its_mesh),
        cmocka_unit_test(a_recipe_counts_only_for_its_own_rows),
        cmocka_unit_test(an_update_copies_16_bits),
        cmocka_unit_test(bytes_left_out_are_noted),
        cmocka_unit_test(torchtitan_follows_the_stage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
