/* A framework's kernel of attention may depend on the device: attention = { "flash2", Blackwell =
 * "cudnn" }. The cluster of the prediction must decide, also if --cluster names another one than
 * the script. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cli/cli.h"
#include "tests/support/document.h"

static json_t *document(Arena *arena, int code, const char *const *arguments)
{
    CommandResult r = command_run(arena, 120, arguments);
    return document_of(r, code);
}

static const char *script(Arena *arena, const char *cluster, const char *attention)
{
    const char *path = arena_print(arena, "%s/p.lua", command_new_folder(arena));
    command_write_file(
        path, arena_print(
                  arena,
                  "return plan { model = require 'models.llama' { size = '3.1-8b', layers = 2 },\n"
                  "  cluster = require 'clusters.%s' { nodes = 1 },\n"
                  "  runtime = require 'runtimes.eager' { name = 'test', attention = %s },\n"
                  "  batch = { global = 8, micro = 1, seq = 8192 }, mesh = { dp_shard = 8 },\n"
                  "  parallel = { fsdp2 {} },\n"
                  "  precision = { param = 'fp32', compute = 'bf16', reduce = 'fp32' } }\n",
                  cluster, attention));
    return path;
}

/* Returns the predicted step; `option` and `value` may be NULL. */
static double step(Arena *arena, const char *path, const char *option, const char *value)
{
    const char *const arguments[] = {"sim", path, "--json", "--dry-run", option, value, NULL};
    json_t *root = document(arena, 0, arguments);
    const double ps = document_number(root, "step_ps");
    json_decref(root);
    return ps;
}

#define CHOICE "{ 'flash2', Blackwell = 'cudnn' }"

static void a_named_cluster_chooses_the_kernel(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *old = script(arena, "hgx_h200", CHOICE), *young = script(arena, "hgx_b200", CHOICE);
    const double on_old = step(arena, old, NULL, NULL), on_young = step(arena, young, NULL, NULL);
    assert_true(step(arena, old, "--cluster", "hgx_b200") == on_young);
    assert_true(step(arena, young, "--cluster", "hgx_h200") == on_old);
    /* The kernels differ on both devices, so equal steps mean equal kernels. */
    assert_true(on_young == step(arena, script(arena, "hgx_b200", "'cudnn'"), NULL, NULL));
    assert_true(on_young < step(arena, script(arena, "hgx_b200", "'flash2'"), NULL, NULL));
    assert_true(on_old == step(arena, script(arena, "hgx_h200", "'flash2'"), NULL, NULL));
    assert_true(on_old > step(arena, script(arena, "hgx_h200", "'cudnn'"), NULL, NULL));
    arena_free(arena);
}

static void settings_change_the_default_and_one_architectures_kernel(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *young = script(arena, "hgx_b200", CHOICE);
    assert_true(step(arena, young, "--set", "runtime.attention=flash2") ==
                step(arena, script(arena, "hgx_b200", "'flash2'"), NULL, NULL));
    assert_true(step(arena, young, "--set", "runtime.attention.Blackwell=triton") ==
                step(arena, script(arena, "hgx_b200", "'triton'"), NULL, NULL));
    arena_free(arena);
}

static void expect_refusal(Arena *arena, const char *attention, const char *words)
{
    const char *path = script(arena, "hgx_b200", attention);
    const CommandResult r = command_run(arena, 60, (const char *const[]){"check", path, NULL});
    if (r.exit_code != 3 || strstr(r.err, words) == NULL)
        fail_msg("%s: exit %d, without '%s': %s", attention, r.exit_code, words, r.err);
}

static void mistakes_in_the_table_are_reported(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    expect_refusal(arena, "{}", "error[missing-key]: runtime.attention has no default kernel");
    expect_refusal(arena, "{ 'flash2', Hoper = 'cudnn' }", "did you mean 'Hopper'?");
    expect_refusal(
        arena, "{ 'flash2', Blackwell = 5 }",
        "error[wrong-type]: runtime.attention.Blackwell must be one of its words, not 5");
    expect_refusal(
        arena, "{ 'flash2', Blackwell = 'zzz' }",
        "error[unknown-word]: runtime.attention.Blackwell = 'zzz' is not an allowed word");
    expect_refusal(arena, "{ 'flash2', Hopper = 'cudn' }", "did you mean 'cudnn'?");
    expect_refusal(arena, "{ 'zzz', Blackwell = 'cudnn' }", "runtime.attention.1 = 'zzz'");
    expect_refusal(arena, "{ 'flash2', 'flash3', 'cudnn' }", "error[unknown-key]");
    arena_free(arena);
}

/* Every architecture among the library's GPUs may have another kernel. */
static void all_architectures_of_the_library_are_known(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *text = command_read_file(arena, TANDEM_SOURCE_DIR "/scripts/tandem/gpus.lua", NULL);
    assert_non_null(text);
    const char *known = "";
    uint32_t n = 0;
    while ((text = strstr(text, "{ arch = \"")) != NULL) {
        text += strlen("{ arch = \"");
        const char *arch = arena_copy(arena, text, strcspn(text, "\""));
        if (strstr(known, arena_print(arena, " %s=", arch)) != NULL) continue;
        known = arena_print(arena, "%s, %s='cudnn'", known, arch);
        n++;
    }
    assert_true(n > 4);
    const char *path = script(arena, "hgx_b200", arena_print(arena, "{ 'flash2'%s }", known));
    const CommandResult r = command_run(arena, 60, (const char *const[]){"check", path, NULL});
    if (r.exit_code != 0) fail_msg("%s", r.err);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_named_cluster_chooses_the_kernel),
        cmocka_unit_test(settings_change_the_default_and_one_architectures_kernel),
        cmocka_unit_test(all_architectures_of_the_library_are_known),
        cmocka_unit_test(mistakes_in_the_table_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
