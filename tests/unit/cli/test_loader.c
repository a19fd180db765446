/* If the data loader is slower than the computation, it sets the time of a step. The report and the
 * explanation must name it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cli/cli.h"
#include "tests/support/document.h"

/* The batch has eight sequences for each data rank. The loader takes 8 x `input_s` for them, and
 * the computation about 1 s. */
static const char *script(Arena *arena)
{
    const char *path = arena_print(arena, "%s/p.lua", command_new_folder(arena));
    command_write_file(
        path, "return plan { model = require 'models.llama' { size = '3.1-8b', layers = 2 },\n"
              "  cluster = require 'clusters.dgx_h100' { nodes = 2 }, runtime = 'torchtitan',\n"
              "  batch = { global = 64, micro = 1, seq = 8192 }, mesh = { dp_shard = 8, tp = 2 },\n"
              "  parallel = { tp { sequence = true }, fsdp2 {} },\n"
              "  precision = { param = 'fp32', compute = 'bf16', reduce = 'fp32' } }\n");
    return path;
}

static CommandResult simulate(Arena *arena, const char *input_s, const char *format)
{
    const char *set = arena_print(arena, "runtime.input_s=%s", input_s);
    return command_run(
        arena, 120,
        (const char *const[]){"sim", script(arena), "--dry-run", "--set", set, format, NULL});
}

static void the_loader_is_named_if_it_sets_the_step(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r = simulate(arena, "2", "--explain");
    assert_non_null(strstr(r.out, "waiting for data, other ranks and the host"));
    assert_non_null(strstr(r.out, "16.000 s to read a rank's sequences of a step, which sets it"));
    assert_non_null(strstr(r.out, "waits for data"));
    r = simulate(arena, "0.01", "--explain");
    assert_non_null(strstr(r.out, "waiting for other ranks and the host"));
    assert_non_null(strstr(r.out, "80.00 ms to read a rank's sequences of a step, hidden"));
    assert_null(strstr(r.out, "waits for data"));
    r = simulate(arena, "0", "--explain");
    assert_null(strstr(r.out, "to read a rank's"));
    arena_free(arena);
}

static void the_explained_path_adds_up_to_the_step(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const CommandResult r =
        command_run(arena, 120,
                    (const char *const[]){"sim", script(arena), "--dry-run", "--explain", "--json",
                                          "--set", "runtime.input_s=2", NULL});
    json_t *root = document_of(r, 0), *explained = json_object_get(root, "explain");
    const json_t *path = json_object_get(explained, "path");
    const json_t *last = json_array_get(path, json_array_size(path) - 1);
    assert_true(document_number(root, "step_ps") == 16e12);
    assert_true(document_number(root, "input_ps") == 16e12);
    assert_true(json_is_true(json_object_get(last, "data")));
    assert_true(document_number(last, "to_ps") == 16e12);
    double sum = 0;
    const json_t *sums = json_object_get(explained, "by_kind");
    for (size_t i = 0; i < json_array_size(sums); i++)
        sum += document_number(json_array_get(sums, i), "time_ps");
    assert_true(sum == 16e12);
    json_decref(root);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loader_is_named_if_it_sets_the_step),
        cmocka_unit_test(the_explained_path_adds_up_to_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
