/* Takes a plan through the command: check, sim (stored once), show and its text, run on loopback,
 * compare, trace and runs. Also takes a plan that does not fit. Each test has its own store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cli/cli.h"
#include "tests/support/document.h"
#include "tests/support/sample.h"

static const char llama[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
static const char tiny[] = TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua";

static json_t *document(Arena *arena, int code, const char *const *arguments)
{
    CommandResult r = command_run(arena, 120, arguments);
    return document_of(r, code);
}
#define DOCUMENT(arena, code, ...)                                                                 \
    document((arena), (code), (const char *const[]){__VA_ARGS__, "--json", NULL})

static void llama_on_two_nodes_is_checked(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r = COMMAND(arena, 60, "check", llama);
    if (r.exit_code != 0) fail_msg("%s", r.err);
    assert_non_null(strstr(r.out, "8,030,261,248 parameters"));
    assert_non_null(strstr(r.out, "dp_shard 8 x tp 2 = 16 ranks"));
    assert_non_null(strstr(r.out, "hold"));
    json_t *root = DOCUMENT(arena, 0, "check", llama);
    assert_true(document_number(json_object_get(root, "model"), "params") == 8030261248.0);
    assert_true(document_number(root, "ranks") == 16);
    assert_true(json_is_true(json_object_get(root, "fits")));
    assert_true(json_is_true(json_object_get(root, "proven")));
    assert_int_equal(json_string_length(json_object_get(root, "plan_id")), 32);
    json_decref(root);
    arena_free(arena);
}

static void a_plan_is_predicted_once(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    json_t *first = DOCUMENT(arena, 0, "sim", llama, "--db", db);
    json_t *second = DOCUMENT(arena, 0, "sim", llama, "--db", db);
    assert_true(json_is_false(json_object_get(first, "found")));
    assert_true(json_is_true(json_object_get(second, "found")));
    static const char *const same[] = {"run",        "step_ps", "compute_ps",
                                       "exposed_ps", "mfu",     "tokens_per_s_per_device"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        assert_true(document_number(first, same[i]) == document_number(second, same[i]));
    assert_true(json_equal(json_object_get(first, "communication"),
                           json_object_get(second, "communication")));
    assert_true(json_equal(json_object_get(first, "memory"), json_object_get(second, "memory")));
    json_t *costs = json_object_get(first, "costs");
    assert_true(document_number(costs, "kernels_modelled") > 10);
    assert_true(document_number(costs, "communications_modelled") > 3);
    assert_true(document_number(costs, "kernels_measured") +
                    document_number(costs, "communications_measured") ==
                0);
    assert_true(json_equal(costs, json_object_get(second, "costs")));
    double step_s = document_number(first, "step_ps") / 1e12;
    double tokens = document_number(first, "global_batch") * document_number(first, "seq");
    double rate =
        document_number(first, "tokens_per_s_per_device") * document_number(first, "ranks");
    assert_true(rate * step_s / tokens > 0.999 && rate * step_s / tokens < 1.001);
    double busy = document_number(first, "compute_ps") + document_number(first, "exposed_ps");
    assert_true(busy <= document_number(first, "step_ps") * 1.0001);
    /* Another cluster or another seed gives another prediction. */
    json_t *other = DOCUMENT(arena, 0, "sim", llama, "--db", db, "--cluster", "hgx_h200");
    assert_true(json_is_false(json_object_get(other, "found")));
    assert_true(document_number(other, "run") != document_number(first, "run"));
    /* The first prediction is found although it is no longer the newest. */
    json_t *again = DOCUMENT(arena, 0, "sim", llama, "--db", db);
    assert_true(json_is_true(json_object_get(again, "found")));
    assert_true(document_number(again, "run") == document_number(first, "run"));
    json_decref(first);
    json_decref(second);
    json_decref(other);
    json_decref(again);
    CommandResult r = COMMAND(arena, 60, "sim", llama, "--db", db);
    assert_non_null(strstr(r.out, "found, not simulated again"));
    assert_non_null(strstr(r.out, "MFU"));
    r = COMMAND(arena, 60, "runs", "--db", db);
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "llama3_8b.lua"));
    r = COMMAND(arena, 60, "db", "check", "--db", db);
    assert_int_equal(r.exit_code, 0);
    arena_free(arena);
}

static void a_prediction_that_does_not_fit_is_stored(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    json_t *root = DOCUMENT(arena, 4, "sim", llama, "--db", db, "--set", "batch.micro=8");
    assert_true(json_is_false(json_object_get(root, "fits")));
    assert_true(document_number(root, "step_ps") > 0);
    assert_true(document_number(root, "run") > 0);
    json_decref(root);
    CommandResult r = COMMAND(arena, 60, "check", llama, "--set", "batch.micro=8");
    assert_int_equal(r.exit_code, 4);
    assert_non_null(strstr(r.err, "error[does-not-fit]"));
    assert_non_null(
        strstr(r.err, "a smaller micro-batch, ac \"full\", a larger tp, or a larger cp"));
    /* There is no hint, because the plan has this option already. */
    assert_null(strstr(r.err, "reshard_after_forward"));
    r = COMMAND(arena, 60, "check", llama, "--set", "batch.micro=1", "--set", "parallel.ac=full",
                "--set", "cluster.device.memory_bytes=16000000000");
    assert_int_equal(r.exit_code, 4);
    assert_non_null(strstr(r.err, "within a step: try a larger tp or a larger cp\n"));
    /* Dropless experts refuse cp, so the hint does not propose it. */
    r = COMMAND(arena, 60, "check", TANDEM_SOURCE_DIR "/scripts/plans/mixtral_8x7b_dropless.lua",
                "--set", "batch.micro=8", "--set", "cluster.device.memory_bytes=36000000000");
    assert_int_equal(r.exit_code, 4);
    assert_non_null(strstr(r.err, "try a smaller micro-batch or a larger tp\n"));
    r = COMMAND(arena, 60, "check", llama, "--set", "parallel.fsdp2.offload=true", "--set",
                "cluster.host_memory_bytes=60000000000");
    assert_int_equal(r.exit_code, 4); /* the 8 ranks of a node need 62.2 GiB */
    assert_non_null(strstr(r.err, "error[host-does-not-fit]"));
    assert_non_null(strstr(r.out, "DOES NOT FIT"));
    r = COMMAND(arena, 60, "check", llama, "--set", "parallel.fsdp2.offload=true");
    assert_int_equal(r.exit_code, 0);
    arena_free(arena);
}

static void a_dry_run_leaves_no_store(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    CommandResult r = COMMAND(arena, 60, "sim", llama, "--db", db, "--dry-run");
    assert_int_equal(r.exit_code, 0);
    r = COMMAND(arena, 60, "run", tiny, "--db", db, "--dry-run");
    if (r.exit_code != 0) fail_msg("%s", r.err);
    /* the end of the line "would run" */
    const char *line = strchr(strstr(r.out, "would run"), '\n');
    for (long pc = 1; pc <= 20; pc++, line = strchr(line + 1, '\n'))
        if (line == NULL || strtol(line + 1, NULL, 10) != pc)
            fail_msg("line %ld is not of instruction %ld:\n%s", pc, pc, r.out);
    assert_string_equal(line, "\n");
    r = COMMAND(arena, 60, "calibrate", tiny, "--db", db, "--dry-run");
    if (r.exit_code != 0) fail_msg("%s", r.err);
    assert_non_null(strstr(r.out, "to measure"));
    assert_null(command_read_file(arena, db, NULL));
    arena_free(arena);
}

static void the_text_of_a_plan_reads_back_as_the_plan(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *path = arena_print(arena, "%s/x.plan", command_new_folder(arena));
    CommandResult text = COMMAND(arena, 60, "show", llama, "--text");
    assert_int_equal(text.exit_code, 0);
    command_write_file(path, text.out);
    CommandResult again = COMMAND(arena, 60, "show", path, "--text");
    assert_string_equal(text.out, again.out);
    json_t *a = DOCUMENT(arena, 0, "check", llama), *b = DOCUMENT(arena, 0, "check", path);
    assert_true(json_equal(json_object_get(a, "plan_id"), json_object_get(b, "plan_id")));
    json_decref(a);
    json_decref(b);
    CommandResult r = COMMAND(arena, 60, "sim", path);
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "error[no-cluster]"));
    r = COMMAND(arena, 60, "check", path, "--set", "mesh.tp=4");
    assert_int_equal(r.exit_code, 2);
    const char *db = arena_print(arena, "%s.db", path);
    a = DOCUMENT(arena, 0, "sim", path, "--cluster", "dgx_h100", "--nodes", "2", "--db", db);
    b = DOCUMENT(arena, 0, "sim", llama, "--dry-run");
    assert_true(document_number(a, "step_ps") == document_number(b, "step_ps"));
    json_decref(a);
    json_decref(b);
    arena_free(arena);
}

/* --cluster and --nodes: the mesh is checked against the cluster that they name, not the
 * script's. */
static void the_mesh_is_checked_against_the_named_cluster(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r = COMMAND(arena, 60, "check", llama, "--cluster", "dgx_a100", "--nodes", "1");
    assert_int_equal(r.exit_code, 3);
    assert_non_null(strstr(r.err, "error[mesh-product]"));
    assert_non_null(strstr(r.err, "16 ranks, but the cluster has 1 node x 8 = 8 devices"));
    r = COMMAND(arena, 60, "check", llama, "--cluster", "dgx_a100", "--nodes", "8");
    assert_int_equal(r.exit_code, 3);
    r = COMMAND(arena, 60, "check", llama, "--cluster", "dgx_a10", "--nodes", "2");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "did you mean 'dgx_a100'?"));
    json_t *root = DOCUMENT(arena, 0, "check", llama, "--cluster", "dgx_a100", "--nodes", "8",
                            "--set", "mesh.dp_shard=32");
    assert_true(document_number(root, "ranks") == 64);
    assert_string_equal(json_string_value(json_object_get(root, "cluster")), "dgx_a100");
    json_decref(root);
    /* -1 stands for the devices of the named nodes that other axes leave. Without --nodes, the
     * cluster has as many nodes as the ranks need. */
    root = DOCUMENT(arena, 0, "check", llama, "--cluster", "dgx_a100", "--nodes", "4", "--set",
                    "mesh.dp_shard=-1");
    assert_true(document_number(root, "ranks") == 32);
    json_decref(root);
    root = DOCUMENT(arena, 0, "check", llama, "--cluster", "dgx_a100", "--set", "mesh.dp_shard=32");
    assert_true(document_number(root, "ranks") == 64);
    json_decref(root);
    /* A named cluster is also checked for the text of a plan. */
    const char *path = arena_print(arena, "%s/l.plan", command_new_folder(arena));
    r = COMMAND(arena, 60, "show", llama, "--text");
    command_write_file(path, r.out);
    r = COMMAND(arena, 60, "check", path, "--cluster", "dgx_a100", "--nodes", "1");
    assert_int_equal(r.exit_code, 3);
    assert_non_null(strstr(r.err, "error[mesh-product]"));
    r = COMMAND(arena, 60, "check", path, "--cluster", "dgx_a100", "--nodes", "2");
    assert_int_equal(r.exit_code, 0);
    arena_free(arena);
}

static void loopback_runs_are_compared(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *db = arena_print(arena, "%s/t.db", folder);
    json_t *run =
        DOCUMENT(arena, 0, "run", tiny, "--backend", "loopback", "--steps", "5", "--db", db);
    assert_true(document_number(run, "steps") == 5); /* without --poison, memory is measured */
    assert_true(document_number(run, "highest_byte_touched") ==
                document_number(run, "arena_bytes"));
    assert_true(document_number(run, "predicted_step_ps") > 0);
    json_t *compared = DOCUMENT(arena, 0, "compare", "--db", db);
    assert_true(document_number(compared, "measured_run") == document_number(run, "run"));
    assert_true(document_number(compared, "predicted_run") == document_number(run, "prediction"));
    assert_true(document_number(compared, "unjoined_rows") == 0);
    assert_true(document_number(compared, "joined_rows") > 100);
    assert_true(document_number(compared, "predicted_peak_bytes") ==
                document_number(compared, "measured_peak_bytes"));
    double sum = 0;
    json_t *ops = json_object_get(compared, "ops");
    for (size_t i = 0; i < json_array_size(ops); i++)
        sum += document_number(json_array_get(ops, i), "measured_ps");
    double all = document_number(json_object_get(compared, "compute"), "measured_ps") +
                 document_number(json_object_get(compared, "communication"), "measured_ps");
    assert_true(sum > 0 && sum / all > 0.9999 && sum / all < 1.0001);
    const char *id = arena_print(arena, "%.0f", document_number(run, "run"));
    const char *file = arena_print(arena, "%s/step.json", folder);
    CommandResult r = COMMAND(arena, 60, "trace", id, "--db", db, "-o", file);
    if (r.exit_code != 0) fail_msg("%s", r.err);
    json_error_t error;
    json_t *trace = json_load_file(file, 0, &error);
    if (trace == NULL) fail_msg("%s: %s", file, error.text);
    json_decref(trace);
    r = COMMAND(arena, 60, "compare", "--db", db);
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "all compute"));
    /* A prediction is not a measured run. */
    const char *other = arena_print(arena, "%.0f", document_number(run, "prediction"));
    r = COMMAND(arena, 60, "compare", other, "--db", db);
    assert_int_equal(r.exit_code, 2);
    r = COMMAND(arena, 60, "compare", "999", "--db", db);
    assert_int_equal(r.exit_code, 7);
    json_decref(run);
    json_decref(compared);
    arena_free(arena);
}

/* If the store cannot be written, the command fails before it measures. */
static void nothing_is_measured_without_a_writable_store(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/none/t.db", command_new_folder(arena));
    static const char *const how[][3] = {{"run", "--backend", "loopback"},
                                         {"run", "-n", "4"},
                                         {"calibrate", "--backend", "loopback"}};
    for (size_t i = 0; i < sizeof how / sizeof how[0]; i++) {
        CommandResult r = COMMAND(arena, 60, how[i][0], tiny, how[i][1], how[i][2], "--db", db);
        assert_int_equal(r.exit_code, 7);
        if (strstr(r.err, "measuring") || !strstr(r.err, db) || !strstr(r.err, "--db FILE"))
            fail_msg("%s", r.err);
    }
    arena_free(arena);
}

/* Loopback trains in bf16 as well as in fp32, with less memory. */
static void training_in_low_precision_lowers_the_loss(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    static const char *const settings[][3] = {
        {"precision.compute=fp32", "precision.param=fp32", "precision.reduce=fp32"},
        {"precision.compute=bf16", "precision.param=fp32", "precision.reduce=fp32"},
        {"precision.compute=bf16", "precision.param=bf16", "precision.reduce=bf16"},
    };
    double bytes = 1e9, loss = 0;
    for (int i = 0; i < 3; i++) {
        json_t *run = DOCUMENT(arena, 0, "run", tiny, "--backend", "loopback", "--steps",
                               UNDER_SANITIZERS ? "10" : "40", "--db", db, "--poison", "--set",
                               settings[i][0], "--set", settings[i][1], "--set", settings[i][2]);
        assert_true(document_number(run, "highest_byte_touched") ==
                    document_number(run, "arena_bytes"));
        assert_true(document_number(run, "arena_bytes") < 0.9 * bytes);
        bytes = document_number(run, "arena_bytes");
        if (i == 0) loss = document_number(run, "last_loss");
        const double falls_to = UNDER_SANITIZERS ? 1 : 0.7; /* sanitizers run fewer steps */
        assert_true(document_number(run, "last_loss") <
                    falls_to * document_number(run, "first_loss"));
        assert_true(document_number(run, "last_loss") < 1.05 * loss);
        json_decref(run);
    }
    arena_free(arena);
}

/* This plan repeats another system's mistakes. `check` reports them and `sim` simulates the plan,
 * but every command that would run it refuses. */
static void original_plans_are_checked_and_never_run(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *plan = arena_print(arena, "%s/original.lua", folder);
    const char *db = arena_print(arena, "%s/t.db", folder);
    command_write_file(plan,
                       "return require \"dialects.kempnerforge\" { world = 2, as = \"original\",\n"
                       "  model = { dim = 16, n_layers = 2, n_heads = 2, vocab_size = 30 },\n"
                       "  train = { batch_size = 1, seq_len = 8, grad_accum_steps = 2 },\n"
                       "  distributed = { pp = 2 } }\n");
    CommandResult r = COMMAND(arena, 60, "check", plan);
    assert_int_equal(r.exit_code, 0);
    assert_non_null(
        strstr(r.err, "original.lua:4: note[clip-per-stage]: each pipeline stage clips"));
    assert_int_equal(COMMAND(arena, 60, "sim", plan, "--db", db).exit_code, 0);
    static const char *const how[] = {"--verify", "--dry-run", "--backend=loopback", "--steps=1"};
    for (size_t i = 0; i < sizeof how / sizeof how[0]; i++) {
        r = COMMAND(arena, 60, "run", plan, "--db", db, how[i]);
        if (r.exit_code != 3) fail_msg("run %s: code %d\n%s", how[i], r.exit_code, r.err);
        assert_non_null(strstr(r.err, "error[dialect-original]"));
        assert_non_null(strstr(r.err, "repeats known mistakes of KempnerForge"));
        assert_null(strstr(r.out, "loss"));
    }
    arena_free(arena);
}

static void verify_reports_the_largest_differences(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    json_t *root = DOCUMENT(arena, 0, "run", llama, "--verify");
    assert_true(json_is_true(json_object_get(root, "verified")));
    assert_true(document_number(root, "worst_gradient") < 1e-10);
    assert_true(document_number(root, "norm_error") < 1e-10);
    assert_true(document_number(root, "tensors") > 10);
    assert_true(document_number(root, "highest_byte_touched") ==
                document_number(root, "predicted_bytes"));
    json_decref(root);
    arena_free(arena);
}

static CommandResult verify_of(Arena *arena, const char *what, const char *mesh,
                               const char *parallel, const char *more)
{
    const char *plan = arena_print(arena, "%s/verified.lua", command_new_folder(arena));
    command_write_file(plan, arena_print(arena,
                                         "return plan { model = require 'models.%s,\n"
                                         "  batch = { global = 16, micro = 2, seq = 64 },\n"
                                         "  mesh = { %s }, parallel = { %s }, %s }\n",
                                         what, mesh, parallel, more));
    return COMMAND(arena, 60, "run", plan, "--verify", "--db", "none");
}

/* The scaled-down plan has fewer stages, other sizes, and patterns that may match nothing. It must
 * not hide errors of the whole plan. */
static void verify_refuses_what_check_refuses(void **state)
{
    (void)state;
    static const char *const plans[][3] = {
        {"pp = 2, dp_shard = 2", "pp { schedule = '1f1b', cap = 1 }, fsdp2 {}", "pp-cap"},
        {"pp = 4, dp_shard = 2", "pp { schedule = 'v_half' }, fsdp2 {}", "pp-layers"},
        {"pp = 2, dp_shard = 8", "pp { schedule = 'dualpipe_v' }, fsdp2 {}", "pp-microbatches"},
        {"dp_shard = 2, tp = 3", "tp { sequence = true }, fsdp2 {}", "divides-"},
        {"tp = 2", "tp { plan = { ['layers.9.attention.wq'] = 'colwise' } }", "pattern-matched-"},
        {"dp_shard = 2", "fsdp2 { units = { 'nope' } }", "pattern-matched-nothing"},
    };
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        Arena *arena = arena_new();
        CommandResult r =
            verify_of(arena, "llama' { size = 'tiny', layers = 4 }", plans[i][0], plans[i][1], "");
        if (r.exit_code != 3 || strstr(r.err, plans[i][2]) == NULL || strstr(r.out, "PASS"))
            fail_msg("%s: code %d\n%s%s", plans[i][1], r.exit_code, r.out, r.err);
        arena_free(arena);
    }
}

/* The comparison in low precision starts if the precision, a pass or the optimizer asks for it.
 * Correct plans stay within their bounds, even with biases. (Adam's first step moves a bias by the
 * same amount whatever its gradient is.) */
static void low_precision_is_verified(void **state)
{
    (void)state;
    static const char low[] = "precision = { param = 'fp32', compute = 'bf16', reduce = 'fp32' }";
    const char *const plans[][4] = {
        {"gpt2' { size = 'tiny', layers = 4 }", "pp = 2, tp = 2", "pp '1f1b', tp {}", low},
        {"llama' { size = 'tiny', layers = 2 }", "dp_shard = 2",
         "fsdp2 { mp = { param = 'bf16' } }", ""},
        {"llama' { size = 'tiny', layers = 2 }", "dp_shard = 2",
         "fsdp2 { mp = { param = 'bf16', reduce = 'fp32' } }", ""},
        {"llama' { size = 'tiny', layers = 2 }", "dp_shard = 2", "fsdp2 {}",
         "optimizer = adamw { state = 'bf16' }"},
        {"llama' { size = 'tiny', layers = 2 }", "dp_shard = 2",
         "float8 { recipe = 'nvfp4', skip_indivisible = true }, fsdp2 {}", ""},
    };
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        Arena *arena = arena_new();
        CommandResult r = verify_of(arena, plans[i][0], plans[i][1], plans[i][2], plans[i][3]);
        if (r.exit_code != 0 || strstr(r.out, "rounding    error") == NULL)
            fail_msg("%s %s: code %d\n%s%s", plans[i][2], plans[i][3], r.exit_code, r.out, r.err);
        const bool rounds = strstr(r.out, "float8      worst relative difference") != NULL;
        assert_true(rounds == (strstr(plans[i][2], "float8") != NULL));
        assert_true(!rounds || strstr(r.out, " with products in the recipe nvfp4 and all else"));
        arena_free(arena);
    }
}

/* On the first draw of data with this seed, the plan has 2.3 times the error of one rank; on most
 * draws it has not. */
static void one_draw_of_data_condemns_no_plan(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r = COMMAND(arena, 120, "run", TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua",
                              "--verify", "--seed", "18");
    if (r.exit_code != 0 || strstr(r.out, " draws of data") == NULL)
        fail_msg("code %d\n%s%s", r.exit_code, r.out, r.err);
    arena_free(arena);
}

/* A pattern names layers that the small model lacks. The command warns, and names the part that it
 * did not test. */
static void a_part_lost_by_scaling_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *parallel, *lost;
    } rows[] = {{"ac { modules = { 'layers.3' } }, fsdp2 {}", "compared: recomputation\n"},
                {"ac { modules = { 'layers.1' } }, fsdp2 {}", NULL},
                {"tp { sequence = true }, ac 'full', fsdp2 {}", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena *arena = arena_new();
        CommandResult r =
            verify_of(arena, "llama' { size = 'tiny', layers = 4 }",
                      strstr(rows[i].parallel, "tp {") ? "dp_shard = 2, tp = 2" : "dp_shard = 2",
                      rows[i].parallel, "");
        const char *said = strstr(r.err, "warning[verify-scaled]");
        bool as_expected = rows[i].lost ? said && strstr(said, rows[i].lost) : !said;
        if (r.exit_code != 0 || !as_expected)
            fail_msg("%s: code %d\n%s%s", rows[i].parallel, r.exit_code, r.out, r.err);
        arena_free(arena);
    }
}

/* show --mesh works for a mesh that no pass can use yet. show --state works for one rank and for
 * all. */
static void a_mesh_and_a_state_are_shown(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    json_t *mesh = DOCUMENT(arena, 0, "show", llama, "--mesh", "--set", "mesh.ep=4", "--set",
                            "mesh.ep_mode=folded", "--rank", "5");
    assert_int_equal(document_number(mesh, "dp_size"), 8);
    assert_int_equal(document_number(mesh, "ep_shard"), 4);
    const json_t *row = json_array_get(json_object_get(mesh, "placement"), 0);
    assert_int_equal(document_number(row, "rank"), 5);
    assert_int_equal(document_number(row, "dp_rank"), 2);
    json_decref(mesh);
    json_t *all = DOCUMENT(arena, 0, "show", llama, "--state");
    assert_int_equal(document_number(all, "written_bytes"),
                     12 * 8030261248.0); /* weights and both moments in fp32 */
    assert_true(json_is_true(json_object_get(all, "complete")));
    assert_true(document_number(all, "gather_ps") > 0);
    json_decref(all);
    CommandResult r = COMMAND(arena, 60, "show", tiny, "--state", "--rank", "9");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "--rank 9: the plan has 4 ranks"));
    arena_free(arena);
}

/* The 256 ranks need some 2.7 TiB. The command must say so before it measures. */
static void a_run_that_does_not_fit_measures_nothing(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char *const ways[] = {"run", "calibrate"};
    for (size_t i = 0; i < 2; i++) {
        const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
        CommandResult r = COMMAND(arena, 60, ways[i],
                                  TANDEM_SOURCE_DIR "/scripts/plans/llama3_70b.lua", "--db", db);
        if (r.exit_code != 4 || strstr(r.err, "measuring") != NULL ||
            strstr(r.err, "error[does-not-fit]: this machine has ") == NULL)
            fail_msg("%s: code %d\n%s%s", ways[i], r.exit_code, r.out, r.err);
    }
    arena_free(arena);
}

/* Returns the text between the first `from` and the next `to`. */
static const char *between(Arena *arena, const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    if (at == NULL) fail_msg("no '%s' in\n%s", from, text);
    at += strlen(from);
    const char *end = strstr(at, to);
    assert_non_null(end);
    return arena_copy(arena, at, (size_t)(end - at));
}

/* The error of a prediction has one sign in all verbs: predicted / measured - 1. */
static void run_and_compare_print_the_same_error(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    CommandResult r =
        COMMAND(arena, 120, "run", tiny, "--backend", "loopback", "--steps", "5", "--db", db);
    if (r.exit_code != 0) fail_msg("%s%s", r.out, r.err);
    CommandResult c = COMMAND(arena, 60, "compare", "--db", db);
    const char *ran = between(arena, between(arena, r.out, "(median), ", "\n"), "error ", " (");
    assert_non_null(strstr(c.out, "error       predicted / measured - 1;"));
    const char *row = between(arena, c.out, "step time", "\n");
    if (strstr(row, ran) == NULL) fail_msg("run: %s\ncompare: %s", ran, row);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_on_two_nodes_is_checked),
        cmocka_unit_test(a_run_that_does_not_fit_measures_nothing),
        cmocka_unit_test(run_and_compare_print_the_same_error),
        cmocka_unit_test(a_plan_is_predicted_once),
        cmocka_unit_test(the_mesh_is_checked_against_the_named_cluster),
        cmocka_unit_test(a_prediction_that_does_not_fit_is_stored),
        cmocka_unit_test(a_dry_run_leaves_no_store),
        cmocka_unit_test(the_text_of_a_plan_reads_back_as_the_plan),
        cmocka_unit_test(loopback_runs_are_compared),
        cmocka_unit_test(nothing_is_measured_without_a_writable_store),
        cmocka_unit_test(training_in_low_precision_lowers_the_loss),
        cmocka_unit_test(original_plans_are_checked_and_never_run),
        cmocka_unit_test(verify_reports_the_largest_differences),
        cmocka_unit_test(verify_refuses_what_check_refuses),
        cmocka_unit_test(a_part_lost_by_scaling_is_named),
        cmocka_unit_test(low_precision_is_verified),
        cmocka_unit_test(one_draw_of_data_condemns_no_plan),
        cmocka_unit_test(a_mesh_and_a_state_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
