/* Traces of PyTorch's profiler: operators with shapes become kernels of plans, and collectives
 * combine the traces of several ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cli/import/import.h"
#include "tests/support/command.h"

static ImportSink *sink_new(Arena *arena)
{
    ImportSink *sink = arena_alloc(arena, sizeof *sink);
    sink_init(sink, arena);
    return sink;
}

/* Returns the key of a call. `text` is "name|type dims|type dims|word": the name and the
 * operands. */
static const char *key_of(Arena *arena, const char *text)
{
    OpCall call = {0};
    char *copy = arena_dup(arena, text), *next = strchr(copy, '|');
    if (next != NULL) *next++ = 0;
    call.name = copy;
    while (next != NULL && *next != 0) {
        char *part = next, *end = strchr(part, '|');
        next = end == NULL ? NULL : end + 1;
        if (end != NULL) *end = 0;
        Operand *o = &call.operand[call.n++];
        char *dims = strrchr(part, ' ');
        if (dims == NULL) {
            snprintf(o->word, sizeof o->word, "%s", part);
            continue;
        }
        *dims++ = 0;
        o->dtype = torch_dtype(part);
        for (char *at = dims; *at != 0; at += *at == 'x')
            o->dim[o->n_dims++] = strtoll(at, &at, 10);
    }
    return op_call_key(&call, arena);
}

#define B       "c10::BFloat16 "
#define Q       B "2x512x32x128"
#define K       B "2x512x8x128"
#define Q_HEADS B "2x32x512x128"
#define K_HEADS B "2x8x512x128"

static void calls_of_operators_give_keys_of_kernels(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const struct {
        const char *call, *key; /* NULL: the call has no key */
    } cases[] = {
        {"aten::mm|" B "8192x4096|" B "4096x1024",
         "work product bf16 batch=1 sides=8192x1024 k=4096"},
        {"aten::mm|" B "1024x8192|" B "8192x4096", /* the same two sides in the other order */
         "work product bf16 batch=1 sides=4096x1024 k=8192"},
        {"aten::addmm|" B "7|" B "5x6|" B "6x7", "work product bf16 batch=1 sides=7x5 k=6"},
        {"aten::bmm|float 3x5x6|float 3x6x7", "work product f32 batch=3 sides=7x5 k=6"},
        {"aten::_scaled_mm|c10::Float8_e5m2 5x6|c10::Float8_e4m3fn 6x7|float 1x1|float 1x1",
         "work product 8-bit batch=1 sides=7x5 k=6"},
        {"aten::mm|" B "5x6|" B "7x8", NULL},
        {"aten::mm|" B "5x6|float 6x7", NULL},
        {"aten::mm|long int 5x6|long int 6x7", NULL},
        {"aten::mm|" B "5x6", NULL},
        {"aten::bmm|float 3x5x6|float 4x6x7", NULL},
        {"aten::conv2d|" B "5x6|" B "6x7", NULL},
        {"aten::_flash_attention_forward|" Q "|" K "|" K "|x|x|512|512|0.|True|False",
         "work attention bf16 batch=2 heads=32 kv=8 queries=512 keys=512 head=128 causal"},
        {"aten::_scaled_dot_product_cudnn_attention|" Q_HEADS "|" K_HEADS "|" K_HEADS
         "|x|True|0.|False|False",
         "work attention bf16 batch=2 heads=32 kv=8 queries=512 keys=512 head=128"},
        {"aten::_flash_attention_backward|" Q "|" Q "|" K "|" K "|" Q "|x|x|x|512|512|0.|True|x",
         "work attention_grad bf16 batch=2 heads=32 kv=8 queries=512 keys=512 head=128 causal"},
        /* These calls have dropout, or do not state whether they are causal. */
        {"aten::_flash_attention_forward|" Q "|" K "|" K "|x|x|512|512|0.1|True|False", NULL},
        {"aten::_flash_attention_forward|" Q "|" K "|" K "|x|x|512|512|0.|x|False", NULL},
        {"aten::_flash_attention_forward|" Q "|" K "|" K, NULL},
        {"aten::native_layer_norm|" B "2x512x64|x|" B "64|" B "64|1e-05",
         "work layernorm bf16 rows=1024 width=64"},
        {"aten::_fused_rms_norm|" B "2x512x64|x|" B "64|1e-05",
         "work rmsnorm bf16 rows=1024 width=64"},
        {"aten::native_layer_norm|" B "2x512x64|x|" B "512x64|" B "512x64|1e-05", NULL},
        {"aten::silu|" B "2x512x64", "work silu bf16 elements=65536"},
        {"aten::add|" B "2x512x64|" B "2x512x64|1", "work add bf16 elements=65536"},
        {"aten::add|" B "2x512x64|" B "64|1", NULL},
        {"aten::copy_|" B "2x512x64|float 2x512x64|False", "work cast f32->bf16 elements=65536"},
        {"aten::copy_|" B "2x512x64|" B "2x512x64|False", NULL},
        {"aten::silu|" B "1099511627776x1099511627776", NULL},
        {"aten::silu", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *key = key_of(arena, cases[i].call);
        if (cases[i].key == NULL) {
            if (key != NULL) fail_msg("%s: %s", cases[i].call, key);
        } else {
            assert_non_null(key);
            assert_string_equal(key, cases[i].key);
        }
    }
    arena_free(arena);
}

/* These are kernels of Llama-3.1-8B under tp = 2: the up-projection of one micro-batch, and
 * attention. One kernel comes before its operator, and one operator has two kernels. One kernel
 * belongs to no operator with a shape. */
static const char with_shapes[] =
    "{\"traceEvents\": [\n"
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"a\",\"ts\":2,\"dur\":1000,"
    "\"args\":{\"External id\":7}},\n"
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm\",\"ts\":1,\"dur\":4,\"args\":{"
    "\"External id\":7,\"Input Dims\":[[8192,4096],[4096,7168]],"
    "\"Input type\":[\"c10::BFloat16\",\"c10::BFloat16\"],\"Concrete Inputs\":[\"\",\"\"]}},\n"
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::_scaled_dot_product_flash_attention\","
    "\"ts\":1,\"dur\":4,\"args\":{\"External id\":8,"
    "\"Input Dims\":[[1,16,8192,128],[1,4,8192,128],[1,4,8192,128],[],[],[],[]],"
    "\"Input type\":[\"c10::BFloat16\",\"c10::BFloat16\",\"c10::BFloat16\",\"Scalar\",\"Scalar\","
    "\"Scalar\",\"\"],\"Concrete Inputs\":[\"\",\"\",\"\",\"0.\",\"True\",\"False\",\"\"]}},\n"
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::_foreach_add_\",\"ts\":1,\"dur\":4,"
    "\"args\":{\"External id\":11,\"Input Dims\":[[[4,4],[4]],[]],\"Input type\":[\"TensorList\","
    "\"Scalar\"]}},\n"
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"b\",\"ts\":3,\"dur\":2000,"
    "\"args\":{\"External id\":8}},\n"
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"c\",\"ts\":4,\"dur\":234.5,"
    "\"args\":{\"External id\":7}},\n"
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"d\",\"ts\":5,\"dur\":100,"
    "\"args\":{\"External id\":11}},\n"
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"e\",\"ts\":6,\"dur\":100,\"args\":{}}]}\n";

/* Returns the number of rank 0's instructions of this op that take `us` microseconds in a run's
 * trace. */
static uint32_t count_ops(Arena *arena, const char *path, const char *name, double us)
{
    size_t n = 0;
    json_t *root = json_loads(command_read_file(arena, path, &n), 0, NULL);
    uint32_t found = 0;
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        const char *its = json_string_value(json_object_get(event, "name"));
        found += its != NULL && strcmp(its, name) == 0 &&
                 json_number_value(json_object_get(event, "dur")) == us;
    }
    json_decref(root);
    return found;
}

static void kernels_with_shapes_change_the_prediction(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *path = arena_print(arena, "%s/t.json", folder);
    const char *db = arena_print(arena, "%s/x.db", folder);
    const char *out = arena_print(arena, "%s/out.json", folder);
    const char *plan = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";
    command_write_file(path, with_shapes);
    CommandResult r = COMMAND(arena, 60, "import", path, "--machine", "m", "--db", db);
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "stored      2 kernels and 0 collectives of m\n"));
    assert_non_null(strstr(r.out, "left out    2 kernels, 6 % of their time"));
    assert_non_null(strstr(r.out, "--machine m` uses the 2 kernels for ops"));
    r = COMMAND(arena, 60, "sim", plan, "--db", db, "--trace");
    assert_int_equal(r.exit_code, 0);
    const char *plain = strstr(r.out, "step  ");
    r = COMMAND(arena, 60, "sim", plan, "--db", db, "--machine", "m", "--trace");
    assert_int_equal(r.exit_code, 0);
    const char *other = strstr(r.out, "step  ");
    assert_true(plain != NULL && other != NULL);
    assert_true(strncmp(plain, other, strcspn(plain, "\n")) != 0);
    /* This is the sum of the call's two kernels. An op that shares the device with NCCL takes
     * longer, so it does not count. */
    r = COMMAND(arena, 60, "trace", "2", "--db", db, "-o", out);
    assert_int_equal(r.exit_code, 0);
    assert_true(count_ops(arena, out, "linear", 1234.5) > 100);
    assert_true(count_ops(arena, out, "attention", 2000) > 100);
    r = COMMAND(arena, 60, "trace", "1", "--db", db, "-o", out);
    assert_int_equal(r.exit_code, 0);
    assert_int_equal(count_ops(arena, out, "linear", 1234.5), 0);
    /* A new measurement gives a new prediction, because the calibration depends on the store. */
    char *changed = arena_dup(arena, with_shapes);
    memcpy(strstr(changed, "\"dur\":1000"), "\"dur\":1500", 10);
    command_write_file(path, changed);
    r = COMMAND(arena, 60, "import", path, "--machine", "m", "--db", db);
    assert_int_equal(r.exit_code, 0);
    r = COMMAND(arena, 60, "sim", plan, "--db", db, "--machine", "m");
    assert_non_null(strstr(r.out, "run         3"));
    /* Without shapes no kernel is usable, and the command says so. */
    command_write_file(path, "[{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"a\",\"dur\":1000}]");
    r = COMMAND(arena, 60, "import", path, "--machine", "n", "--db", db);
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "record_shapes=True"));
    assert_non_null(strstr(r.out, "use         this import changes no prediction"));
    r = COMMAND(arena, 60, "sim", plan, "--db", db, "--machine", "n");
    assert_int_equal(r.exit_code, 2);
    arena_free(arena);
}

/* Returns one rank's trace with an all-gather for each duration (us; 0 ends the list). */
static const char *gathers(Arena *arena, int rank, const double *us)
{
    Str s = str_in(arena);
    str_add(&s, "{\"traceEvents\": [");
    for (uint32_t i = 0; us[i] > 0; i++)
        str_print(
            &s,
            "%s{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"ncclDevKernel_AllGather\",\"ts\":%u,"
            "\"dur\":%g,\"args\":{\"Collective name\":\"_allgather_base\",\"dtype\":\"Half\","
            "\"In msg nelems\":512,\"Out msg nelems\":1024,\"Group size\":2,"
            "\"Process Group Name\":\"1\",\"Process Group Ranks\":\"[0, 1]\"}}",
            i > 0 ? "," : "", 1000 + i * 100, us[i]);
    str_add(&s, "]");
    if (rank >= 0) str_print(&s, ", \"distributedInfo\": {\"rank\": %d}", rank);
    str_add(&s, "}");
    return str_text(&s);
}

static const Samples *gathered(Arena *arena, const char *folder, const char *const *texts,
                               uint32_t n, ImportSink *sink)
{
    const char *path = arena_print(arena, "%s/t.json", folder);
    Diag d = diag_in(arena);
    for (uint32_t i = 0; i < n; i++) {
        command_write_file(path, texts[i]);
        assert_true(chrome_trace_read(path, sink, &d));
    }
    meet_all(sink);
    assert_int_equal(sink->all.n, 1);
    assert_int_equal(sink->all.at[0]->bytes, 2048);
    return sink->all.at[0];
}

static void the_last_rank_to_arrive_gives_the_time_of_a_collective(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const double first[] = {90, 20, 70, 31, 0}, second[] = {21, 80, 30, 95, 0};
    const double fewer[] = {21, 80, 30, 0}, later[] = {500, 500, 500, 500, 0};
    const char *const both[] = {gathers(arena, 0, first), gathers(arena, 1, second)};
    ImportSink *sink = sink_new(arena);
    /* Of each gather, the shorter duration counts: 21, 20, 30 and 31. */
    const Samples *s = gathered(arena, folder, both, 2, sink);
    assert_false(s->alone);
    assert_int_equal(s->n, 4);
    assert_int_equal(samples_time(s), 25500000);
    assert_int_equal(sink->n_met, 4);
    /* With the trace of one rank, the waits are unknown. The rank came last in one of two cases, so
     * the lower half of its times has no wait. The median of that half ends the lowest quarter. */
    sink = sink_new(arena);
    s = gathered(arena, folder, both, 1, sink);
    assert_true(s->alone);
    assert_int_equal(samples_time(s), 31000000);
    assert_int_equal(sink->n_alone, 4);
    /* Traces with different numbers of collectives, or of the same rank, cannot be matched. */
    const char *const uneven[] = {gathers(arena, 0, first), gathers(arena, 1, fewer)};
    s = gathered(arena, folder, uneven, 2, sink_new(arena));
    assert_true(s->alone);
    assert_int_equal(s->n, 7);
    const char *const same[] = {gathers(arena, 0, first), gathers(arena, 0, later)};
    s = gathered(arena, folder, same, 2, sink_new(arena));
    assert_true(s->alone);
    const char *const nobody[] = {gathers(arena, -1, first), gathers(arena, -1, second)};
    s = gathered(arena, folder, nobody, 2, sink_new(arena));
    assert_true(s->alone);
    /* Two ranks have two traces each, of two steps. A trace is matched with the other rank's trace
     * of the same step. */
    const char *const steps[] = {both[0], both[1], gathers(arena, 0, later),
                                 gathers(arena, 1, later)};
    s = gathered(arena, folder, steps, 4, sink_new(arena));
    assert_false(s->alone);
    assert_int_equal(s->n, 8);
    assert_int_equal(s->least, 20000000);
    assert_int_equal(s->most, 500000000);
    arena_free(arena);
}

static void waits_of_a_single_rank_are_reported(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *folder = command_new_folder(arena);
    const char *a = arena_print(arena, "%s/a.json", folder);
    const char *b = arena_print(arena, "%s/b.json", folder);
    const char *text = arena_print(arena, "%s/c.txt", folder);
    const double first[] = {90, 20, 0}, second[] = {21, 80, 0};
    command_write_file(a, gathers(arena, 0, first));
    command_write_file(b, gathers(arena, 1, second));
    CommandResult r = COMMAND(arena, 60, "import", a, "--dry-run");
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "only one rank recorded 1 of the collectives"));
    r = COMMAND(arena, 60, "import", a, b, "--dry-run");
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "several ranks recorded 2 collectives"));
    assert_null(strstr(r.out, "only one rank recorded"));
    command_write_file(text, "# all_reduce_perf\n");
    r = COMMAND(arena, 60, "import", a, text, "--dry-run");
    assert_int_equal(r.exit_code, 3);
    assert_non_null(strstr(r.err, "import-format"));
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_operators_give_keys_of_kernels),
        cmocka_unit_test(kernels_with_shapes_change_the_prediction),
        cmocka_unit_test(the_last_rank_to_arrive_gives_the_time_of_a_collective),
        cmocka_unit_test(waits_of_a_single_rank_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
