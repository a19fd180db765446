/* `tandem net`: its tables equal the files in tests/golden/net, so that a change of a network's
 * times is noticed (TANDEM_UPDATE_GOLDEN=1 rewrites the files). Wrong sizes and groups are refused.
 * With --compare, measured times are printed beside the predictions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/command.h"

static const char folder[] = TANDEM_SOURCE_DIR "/tests/golden/net";

static void tables_equal_the_committed_ones(void **state)
{
    (void)state;
    static const struct {
        const char *file, *arguments[12];
    } rows[] = {
        {"dgx_h100_all_reduce", {"net", "dgx_h100"}},
        {"dgx_h100_x4_all_gather",
         {"net", "dgx_h100", "--nodes", "4", "--collective", "all_gather"}},
        {"a3_mega_x2_all_reduce", {"net", "a3_mega", "--nodes", "2", "--min", "1K"}},
        {"gb200_nvl72_all_to_all",
         {"net", "gb200_nvl72", "--collective", "all_to_all", "--min", "1M", "--issue",
          "pipelined"}},
        {"dgx_h100_symmetric", {"net", "dgx_h100", "--buffers", "symmetric", "--max", "16M"}},
        {"fat_tree_h100_x64_all_to_all",
         {"net", "fat_tree_h100", "--nodes", "64", "--collective", "all_to_all", "--min", "64M"}},
        {"dgx_h100_x16_1_a_node",
         {"net", "dgx_h100", "--nodes", "16", "--per-node", "1", "--collective", "all_gather",
          "--max", "1M"}},
        {"dgx_v100_of_4", {"net", "dgx_v100", "--gpus", "4", "--min", "1M", "--max", "1G"}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena *arena = arena_new();
        CommandResult r = command_run(arena, 30, rows[i].arguments);
        if (r.exit_code != 0) fail_msg("%s: %s", rows[i].file, r.err);
        const char *path = arena_print(arena, "%s/%s.txt", folder, rows[i].file);
        const char *out = r.out;
        if (getenv("TANDEM_UPDATE_GOLDEN") != NULL) command_write_file(path, out);
        const char *kept = command_read_file(arena, path, NULL);
        if (kept == NULL || strcmp(kept, out) != 0)
            fail_msg("%s differs; now it is\n%s\nTANDEM_UPDATE_GOLDEN=1 renews it", path, out);
        arena_free(arena);
    }
}

static void wrong_sizes_and_groups_are_refused(void **state)
{
    (void)state;
    static const struct {
        int code;
        const char *says, *arguments[8];
    } rows[] = {{2, "use 16, which are 2 whole nodes", {"net", "dgx_h100", "--gpus", "9"}},
                {2, "at least 2", {"net", "dgx_h100", "--gpus", "1"}},
                {2, "at least 2", {"net", "dgx_h100", "--per-node", "1"}},
                {2, "a node has 8 devices", {"net", "dgx_h100", "--nodes", "2", "--per-node", "9"}},
                {2, "exclude each other", {"net", "dgx_h100", "--per-node", "4", "--gpus", "4"}},
                {2, "all_gather", {"net", "dgx_h100", "--collective", "all_gathr"}},
                {2, "write a size", {"net", "dgx_h100", "--min", "1X"}},
                {2, "write a size", {"net", "dgx_h100", "--max", "-5"}},
                {2, "larger than", {"net", "dgx_h100", "--min", "2M", "--max", "1M"}},
                {2, "--issue", {"net", "dgx_h100", "--issue", "lazily"}},
                {3, "net-buffers", {"net", "dgx_a100", "--buffers", "symmetric"}},
                {3, "net-cluster", {"net", "local_cpu"}},
                {2, "unknown-cluster", {"net", "dgx_h1000"}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena *arena = arena_new();
        CommandResult r = command_run(arena, 30, rows[i].arguments);
        if (r.exit_code != rows[i].code || strstr(r.err, rows[i].says) == NULL)
            fail_msg("%s ...: code %d\n%s", rows[i].arguments[2], r.exit_code, r.err);
        arena_free(arena);
    }
}

/* The cluster comes from a plan. The output has the rows of nccl-tests, each with its error. */
static void measured_times_are_printed_beside(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *path = arena_print(arena, "%s/m.txt", command_new_folder(arena));
    command_write_file(path, "# all_gather_perf\n# size count type redop root time algbw busbw "
                             "#wrong\n1048576 1 float none -1 100 0 0 0\n");
    const char *plan = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
    CommandResult r = COMMAND(arena, 30, "net", plan, "--compare", path);
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "# all_gather of 2 x 8 H100-SXM5-80GB on dgx_h100"));
    assert_non_null(strstr(r.out, "100.00"));
    assert_non_null(strstr(r.out, "# error: mean"));
    r = COMMAND(arena, 30, "net", plan, "--compare", "/nowhere");
    assert_int_equal(r.exit_code, 3);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_equal_the_committed_ones),
        cmocka_unit_test(wrong_sizes_and_groups_are_refused),
        cmocka_unit_test(measured_times_are_printed_beside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
