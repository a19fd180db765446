/* Checkpoints that must not be loaded: those of another model, optimizer or seed, unfinished ones,
 * ones with any damaged byte, and ones whose manifest makes a false statement. Each is refused with
 * its rule before the first step, because nobody would notice training on a wrong state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/exec.h"
#include "tests/support/command.h"
#include "tests/support/plans/tiny.h"

static Arena *arena;
static const Plan *plan; /* 2 ranks, one layer */
static const char *folder, *saved;

static ExecOptions options_of(const CheckpointOptions *checkpoint, uint32_t steps)
{
    return (ExecOptions){.backend = "loopback",
                         .steps = steps,
                         .lr = 1e-2,
                         .data = data_synthetic(5, 29, 0.1, arena),
                         .trace_step = steps,
                         .checkpoint = *checkpoint,
                         .backend_options = {.timeout_s = 20}};
}

/* Runs to `steps`, and returns the diagnostics. */
static Diag run(const Plan *p, const CheckpointOptions *checkpoint, uint32_t steps)
{
    Diag d = diag_in(arena);
    ExecResult result;
    const ExecOptions options = options_of(checkpoint, steps);
    const bool fine = exec_run(p, &options, arena, &result, &d);
    assert_int_equal(fine, d.n_errors == 0);
    return d;
}

static Tiny model(void)
{
    Tiny t = tiny_default();
    t.layers = 1, t.dp_shard = 2;
    return t;
}

static const Plan *compiled(const Tiny *t)
{
    Diag d = diag_in(arena);
    const Plan *made = tiny_plan(t, false, arena, &d);
    assert_non_null(made);
    return made;
}

static int setup(void **state)
{
    (void)state;
    arena = arena_new();
    const Tiny t = model();
    plan = compiled(&t);
    folder = command_new_folder(arena);
    assert_int_equal(run(plan, &(CheckpointOptions){.save = folder}, 2).items.n, 0);
    saved = arena_print(arena, "%s/step-00000002", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

/* Loads the checkpoint. Expects exactly one error, with this rule and this text. */
static void refused(const Plan *p, const char *path, const char *rule, const char *text)
{
    const Diag d = run(p, &(CheckpointOptions){.load = path}, 3);
    if (d.n_errors != 1 || strcmp(d.items.at[0].rule, rule) != 0 ||
        strstr(d.items.at[0].text, text) == NULL)
        fail_msg("%s was expected: ...%s...; found %s: %s", rule, text,
                 d.items.n > 0 ? d.items.at[0].rule : "nothing",
                 d.items.n > 0 ? d.items.at[0].text : "");
}

static void loads(const char *path)
{
    const Diag d = run(plan, &(CheckpointOptions){.load = path}, 3);
    if (d.items.n > 0) fail_msg("%s: %s", d.items.at[0].rule, d.items.at[0].text);
}

/* ---- another model */

static void another_model_is_refused(void **state)
{
    (void)state;
    Tiny t = model();
    t.hidden = 24;
    refused(compiled(&t), saved, "checkpoint-model",
            "layers.0.feed_forward.w1.weight has shape [12, 16] in the checkpoint, but [12, 24]");
    t = model(), t.layers = 2;
    refused(compiled(&t), saved, "checkpoint-model", "does not contain layers.1.");
    t = model(), t.qk_norm = true;
    refused(compiled(&t), saved, "checkpoint-model", "does not contain layers.0.attention.");
    t = model(), t.spectral = true;
    refused(compiled(&t), saved, "checkpoint-model", "does not contain the state ");
}

static void extra_tensors_are_refused(void **state)
{
    (void)state;
    Tiny t = model(), more = t;
    more.biases = true;
    const char *other = command_new_folder(arena);
    assert_int_equal(run(compiled(&more), &(CheckpointOptions){.save = other}, 1).n_errors, 0);
    refused(plan, other, "checkpoint-model", "which is not part of the plan's model");
}

static void another_optimizer_or_seed_is_refused(void **state)
{
    (void)state;
    Tiny t = model();
    t.sgd = true;
    refused(compiled(&t), saved, "checkpoint-optimizer",
            "was trained with the optimizer adamw, but the plan uses sgd");
    t = model();
    Diag d = diag_in(arena);
    Plan *other = tiny_plan(&t, false, arena, &d);
    other->step.seed = 77;
    refused(other, saved, "checkpoint-seed", "but the plan has seed 77");
}

/* Samples and dtypes may differ, but not silently. */
static void other_samples_and_dtypes_are_warned_of(void **state)
{
    (void)state;
    Tiny t = model();
    t.microbatches = 2;
    Diag d = run(compiled(&t), &(CheckpointOptions){.load = saved}, 3);
    assert_int_equal(d.items.n, 1);
    assert_string_equal(d.items.at[0].rule, "checkpoint-data");
    t = model(), t.state = DT_bf16;
    d = run(compiled(&t), &(CheckpointOptions){.load = saved}, 3);
    assert_int_equal(d.items.n, 1);
    assert_string_equal(d.items.at[0].rule, "checkpoint-dtype");
    assert_non_null(strstr(d.items.at[0].text, "in f32, but the plan uses bf16"));
    const char *other = command_new_folder(arena);
    assert_int_equal(run(plan, &(CheckpointOptions){.save = other, .data = "a text"}, 1).n_errors,
                     0);
    d = run(plan, &(CheckpointOptions){.load = other, .data = "another"}, 2);
    assert_int_equal(d.items.n, 1);
    assert_non_null(strstr(d.items.at[0].text, "a text, but this run trains on another"));
}

static void a_run_without_a_step_left_is_refused(void **state)
{
    (void)state;
    const CheckpointOptions load = {.load = saved};
    for (uint32_t steps = 1; steps <= 2; steps++) {
        const Diag d = run(plan, &load, steps);
        assert_int_equal(d.n_errors, 1);
        assert_string_equal(d.items.at[0].rule, "checkpoint-steps");
        assert_non_null(strstr(d.items.at[0].hint, "use --steps 3 or more"));
    }
    /* A run that saves may have no step left to do: it then only writes the state again. */
    const CheckpointOptions again = {.load = saved, .save = command_new_folder(arena)};
    assert_int_equal(run(plan, &again, 2).items.n, 0);
    assert_int_equal(run(plan, &again, 1).n_errors, 1);
}

/* ---- names */

static void a_folder_loads_what_latest_names(void **state)
{
    (void)state;
    const char *latest = arena_print(arena, "%s/latest", folder);
    loads(folder);
    loads(saved);
    loads(arena_print(arena, "%s/", saved));
    refused(plan, "no-such-folder", "checkpoint-missing", "No such file");
    refused(plan, command_new_folder(arena), "checkpoint-missing", "nor checkpoints");
    /* looks like a crash between the two renames that replace a checkpoint */
    const char *old = arena_print(arena, "%s.replaced", saved);
    assert_int_equal(rename(saved, old), 0);
    loads(folder);
    assert_int_equal(rename(old, arena_print(arena, "%s/other", folder)), 0);
    refused(plan, folder, "checkpoint-missing", "it names step-00000002, which does not exist");
    loads(arena_print(arena, "%s/other", folder));
    command_write_file(latest, "../../etc\n");
    refused(plan, folder, "checkpoint-missing", "it contains '../../etc', which is not the name");
}

static void write_bytes(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_true(f != NULL && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

static void unfinished_saves_are_refused(void **state)
{
    (void)state;
    const char *saving = arena_print(arena, "%s/step-00000003.saving", folder);
    assert_int_equal(mkdir(saving, 0777), 0);
    refused(plan, saving, "checkpoint-unfinished",
            "a save that did not end: it has no manifest.json");
    loads(folder); /* finds the finished checkpoint, not the unfinished one */
    const Diag d = run(plan, &(CheckpointOptions){.load = saving}, 3);
    assert_string_equal(d.items.at[0].hint,
                        arena_print(arena, "the newest finished checkpoint is %s", saved));
    assert_int_equal(run(plan, &(CheckpointOptions){.load = saved, .save = folder}, 3).n_errors, 0);
    assert_int_not_equal(access(saving, F_OK), 0); /* the next save of that step replaces it */
    const char *other = command_new_folder(arena);
    assert_int_equal(mkdir(arena_print(arena, "%s/step-00000001.saving", other), 0777), 0);
    refused(plan, other, "checkpoint-unfinished",
            "step-00000001.saving is the folder of a save that did not end");
    const char *empty = arena_print(arena, "%s/step-00000009", other);
    assert_int_equal(mkdir(empty, 0777), 0);
    refused(plan, empty, "checkpoint-unfinished",
            "a save that did not end: it has no manifest.json");
}

/* A save may break off after it has written the manifest and before it renames the folder. */
static void a_save_without_its_final_name_has_a_manifest(void **state)
{
    (void)state;
    const char *other = command_new_folder(arena);
    const char *saving = arena_print(arena, "%s/step-00000003.saving", other);
    assert_int_equal(mkdir(saving, 0777), 0);
    write_bytes(arena_print(arena, "%s/manifest.json", saving), "{}", 2);
    const Diag d = run(plan, &(CheckpointOptions){.load = saving}, 3);
    assert_non_null(strstr(d.items.at[0].text, "is the folder of a save that did not end"));
    assert_null(strstr(d.items.at[0].text, "has no manifest.json"));
}

/* ---- damage */

static char *bytes_of(const char *path, size_t *n)
{
    const char *text = command_read_file(arena, path, n);
    assert_non_null(text);
    char *copy = arena_alloc(arena, *n + 1);
    memcpy(copy, text, *n);
    copy[*n] = 0;
    return copy;
}

static void no_byte_of_the_manifest_may_change(void **state)
{
    (void)state;
    const char *path = arena_print(arena, "%s/manifest.json", saved);
    size_t n;
    char *text = bytes_of(path, &n);
    uint32_t n_newer = 0;
    for (size_t i = 0; i < n; i += i < 400 || i + 200 > n ? 1 : 13) {
        Arena *scratch = arena_new();
        Diag d = diag_in(scratch);
        CheckpointInfo info;
        text[i] = (char)(text[i] ^ (1 << i % 7));
        write_bytes(path, text, n);
        if (checkpoint_find(saved, plan, scratch, &info, &d))
            fail_msg("byte %zu of the manifest may change", i);
        const char *rule = d.items.at[0].rule;
        const bool newer = strcmp(rule, "checkpoint-newer") == 0;
        if (!newer && strcmp(rule, "checkpoint-damaged") != 0) fail_msg("byte %zu: %s", i, rule);
        n_newer += newer;
        text[i] = (char)(text[i] ^ (1 << i % 7));
        arena_free(scratch);
    }
    /* only a change of the version's digit may be reported as a newer version */
    assert_true(n_newer <= 1);
    for (size_t k = 0; k < n; k += n / 50) {
        write_bytes(path, text, k);
        refused(plan, saved, "checkpoint-damaged", "manifest.json");
    }
    write_bytes(path, text, n);
    loads(saved);
}

static void no_byte_of_a_file_may_change(void **state)
{
    (void)state;
    const char *path = arena_print(arena, "%s/rank-00001.safetensors", saved);
    size_t n;
    char *bytes = bytes_of(path, &n);
    for (size_t i = 0; i < n; i += n / 40) {
        bytes[i] ^= 16;
        write_bytes(path, bytes, n);
        bytes[i] ^= 16;
        refused(plan, saved, "checkpoint-damaged", "rank-00001.safetensors has the hash");
    }
    write_bytes(path, bytes, n - 1);
    refused(plan, saved, "checkpoint-damaged", arena_print(arena, "has %zu bytes", n - 1));
    write_bytes(path, arena_print(arena, "%*s", (int)n + 8, ""), n + 8);
    refused(plan, saved, "checkpoint-damaged", arena_print(arena, "has %zu bytes", n + 8));
    assert_int_equal(unlink(path), 0);
    refused(plan, saved, "checkpoint-file", "rank-00001.safetensors, which rank 1 wrote: No such");
    assert_int_equal(mkdir(path, 0777), 0);
    refused(plan, saved, "checkpoint-file", "Is a directory");
    assert_int_equal(rmdir(path), 0);
    write_bytes(path, bytes, n);
    loads(saved);
}

/* Replaces the first `from` in the manifest by `to`, and writes the matching checksum. */
static void replace_in_manifest(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from), *end = strstr(text, ",\n \"checksum\"");
    assert_true(at != NULL && end != NULL && at < end);
    const char *body = arena_print(arena, "%.*s%s%.*s", (int)(at - text), text, to,
                                   (int)(end - at - (ptrdiff_t)strlen(from)), at + strlen(from));
    const char *hash = hash_hex(arena, hash_bytes(body, strlen(body)));
    command_write_file(arena_print(arena, "%s/manifest.json", saved),
                       arena_print(arena, "%s,\n \"checksum\": \"%s\"}\n", body, hash));
}

static void false_manifests_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *rule, *text;
    } cases[] = {
        {"\"format_version\": 1", "\"format_version\": 2", "checkpoint-newer",
         "has format version 2, but this command reads only versions up to 1"},
        {"tandem-checkpoint", "other", "checkpoint-damaged", "its format is not"},
        {"\"seed\": \"", "\"seed\": \"x", "checkpoint-damaged", "\"seed\""},
        {"\"step\": 2", "\"step\": -2", "checkpoint-damaged", "\"step\""},
        {"\"step\": 2", "\"step\": 2.5", "checkpoint-damaged", "\"step\""},
        {"\"tensors\"", "\"tensor_\"", "checkpoint-damaged", "\"tensors\""},
        {"\"files\"", "\"file_\"", "checkpoint-damaged", "\"files\""},
        {"\"kind\":\"m\"", "\"kind\":\"w\"", "checkpoint-damaged", "\"kind\""},
        {"\"dtype\":\"F32\"", "\"dtype\":\"F31\"", "checkpoint-damaged", "\"dtype\""},
        {"rank-00000.safetensors", "../rank-00000.safetensors", "checkpoint-damaged", "\"file\""},
        {"rank-00000.safetensors", "", "checkpoint-damaged", "\"file\""},
        {"{\"tensor\":0,", "{\"tensor\":99999,", "checkpoint-damaged", "\"tensor\""},
        {"{\"tensor\":0,", "{\"tensor\":1,", "checkpoint-damaged", "\"size\""},
        {"\"offset\":[0", "\"offset\":[9223372036854775807", "checkpoint-damaged", "\"offset\""},
        {"\"offset\":[0", "\"offset\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0", "checkpoint-damaged",
         "\"offset\""},
        {"\"offset\":[0", "\"offset\":[1", "checkpoint-damaged", "\"offset\""},
        {"\"size\":[", "\"size\":[0,", "checkpoint-damaged", "\"size\""},
        {"\"at\":0", "\"at\":9223372036854775807", "checkpoint-damaged",
         "ends beyond the end of its file"},
        {"\"shape\":[29,12]", "\"shape\":[30,12]", "checkpoint-model", "[30, 12]"},
        {"\"name\":\"", "\"name\":\"x", "checkpoint-model", "does not contain"},
    };
    size_t n;
    const char *text = bytes_of(arena_print(arena, "%s/manifest.json", saved), &n);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        replace_in_manifest(text, cases[i].from, cases[i].to);
        refused(plan, saved, cases[i].rule, cases[i].text);
    }
    /* Without a false statement the checkpoint loads, so the test computes the right checksum. */
    replace_in_manifest(text, "\"step\": 2", "\"step\": 2");
    loads(saved);
}

/* ---- saving */

static void only_the_newest_are_kept(void **state)
{
    (void)state;
    const char *other = command_new_folder(arena);
    const CheckpointOptions each = {.save = other, .every = 1, .keep = 2};
    command_write_file(arena_print(arena, "%s/step-notes", other), "mine\n");
    assert_int_equal(run(plan, &each, 5).n_errors, 0);
    for (int i = 1; i <= 5; i++)
        assert_int_equal(access(arena_print(arena, "%s/step-%08d", other, i), F_OK) == 0, i >= 4);
    assert_int_equal(access(arena_print(arena, "%s/step-notes", other), F_OK), 0);
    /* A run without a step to do replaces the checkpoint that it has loaded. */
    const char *fifth = arena_print(arena, "%s/step-00000005", other);
    struct stat before, after;
    assert_int_equal(stat(fifth, &before), 0);
    const CheckpointOptions same = {.save = other, .load = other};
    assert_int_equal(run(plan, &same, 5).n_errors, 0);
    assert_int_equal(stat(fifth, &after), 0);
    assert_int_not_equal(before.st_ino, after.st_ino);
    assert_int_not_equal(access(arena_print(arena, "%s.replaced", fifth), F_OK), 0);
    assert_string_equal(checkpoint_newest(other, arena), fifth);
    assert_int_equal(run(plan, &(CheckpointOptions){.load = other}, 6).n_errors, 0);
}

static void folders_that_cannot_be_written_are_refused(void **state)
{
    (void)state;
    const char *file = arena_print(arena, "%s/latest/x", folder);
    const Diag d = run(plan, &(CheckpointOptions){.save = file}, 1);
    assert_int_equal(d.n_errors, 1);
    assert_string_equal(d.items.at[0].rule, "checkpoint-write");
    assert_int_equal(diag_exit_code(&d), 1);
    assert_non_null(strstr(d.items.at[0].text, "Not a directory"));
}

/* On one rank, a checkpoint file holds whole tensors under their own names, as other readers
 * expect. */
static void one_rank_writes_whole_tensors(void **state)
{
    (void)state;
    Tiny t = model();
    t = tiny_one_rank(&t);
    const char *other = command_new_folder(arena);
    const CheckpointOptions convert = {.save = other, .load = saved};
    assert_int_equal(run(compiled(&t), &convert, 2).n_errors, 0); /* no step is done */
    size_t n;
    const char *path = arena_print(arena, "%s/step-00000002/rank-00000.safetensors", other);
    const unsigned char *bytes = (const unsigned char *)bytes_of(path, &n);
    uint64_t length = 0, covered = 0;
    for (int i = 0; i < 8; i++) length |= (uint64_t)bytes[i] << 8 * i;
    assert_true(length % 8 == 0 && 8 + length < n);
    json_error_t error;
    json_t *root = json_loadb((const char *)bytes + 8, length, 0, &error), *value;
    assert_non_null(root);
    const char *key;
    json_object_foreach(root, key, value) if (strcmp(key, "__metadata__") != 0)
    {
        const json_t *at = json_object_get(value, "data_offsets");
        const json_t *shape = json_object_get(value, "shape");
        uint64_t size = 4;
        for (size_t d = 0; d < json_array_size(shape); d++)
            size *= (uint64_t)json_integer_value(json_array_get(shape, d));
        const uint64_t lo = (uint64_t)json_integer_value(json_array_get(at, 0));
        assert_int_equal((uint64_t)json_integer_value(json_array_get(at, 1)) - lo, size);
        assert_null(strchr(key, '['));
        covered += size;
    }
    assert_int_equal(covered, n - 8 - length); /* no gaps */
    const json_t *w1 = json_object_get(root, "layers.0.feed_forward.w1.weight");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(w1, "shape"), 1)), 16);
    assert_non_null(json_object_get(root, "layers.0.feed_forward.w1.weight@v"));
    json_decref(root);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(another_model_is_refused),
        TEST(extra_tensors_are_refused),
        TEST(another_optimizer_or_seed_is_refused),
        TEST(other_samples_and_dtypes_are_warned_of),
        TEST(a_run_without_a_step_left_is_refused),
        TEST(a_folder_loads_what_latest_names),
        TEST(unfinished_saves_are_refused),
        TEST(a_save_without_its_final_name_has_a_manifest),
        TEST(no_byte_of_the_manifest_may_change),
        TEST(no_byte_of_a_file_may_change),
        TEST(false_manifests_are_refused),
        TEST(only_the_newest_are_kept),
        TEST(folders_that_cannot_be_written_are_refused),
        TEST(one_rank_writes_whole_tensors),
    };
    return cmocka_run_group_tests_name("checkpoint files", tests, NULL, NULL);
}
