/* A script may have taken over the process that evaluates it, so the parent trusts no record from
 * it. The tests change the recorded streams of real scripts in one place and send them again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "planner/front/front.h"
#include "planner/front/stream.h"
#include "planner/ir/op/op.h"
#include "tests/support/command.h"
#include "tests/unit/front/process/impostor.h"

/* A script, and how it is used. */
typedef struct Source {
    const char *code;
    bool shrink, held, sweep;
} Source;

/* Together these scripts send records of every kind except RECORD_other, which is for values of a
 * wrong type.
 */
static const Source sources[] = {
    {.code = "return plan { model = require 'models.phi' { size = '3-tiny', fused = true },\n"
             "  batch = { seq = 8 } }"},
    {.code = "return plan { model = require 'models.wxformer' { size = 'tiny', heads = 4,\n"
             "    use_spectral_norm = true }, batch = { seq = 16 } }"},
    {.code = "return plan { model = require 'models.llama' 'tiny', batch = { seq = 64 },\n"
             "  mesh = { tp = 2 }, parallel = { tp {} }, optimizer = adamw { lr = 1e-3 } }",
     .shrink = true},
    {.code = "return plan { model = require 'models.llama' 'tiny', batch = { seq = 8, global = 2 "
             "},\n  mesh = { pp = 2 }, parallel = { pp { schedule = function() return { [0] =\n"
             "  { 'F0.0', 'F0.1', 'B0.0', 'B0.1' }, { 'F1.0', 'B1.0', 'F1.1', 'B1.1' } } end } } "
             "}"},
    {.code = "return plan { model = require 'models.llama' 'tiny', batch = { seq = 8 } }",
     .held = true},
    {.code = "return plan { model = require 'models.unet' 'tiny', batch = { channels = 3,\n"
             "    targets = 2, height = 32, width = 64 } }",
     .shrink = true},
    {.code = "return sweep { plan = 'plans/tiny_text.lua', vary = { ['mesh.tp'] = { 1, 2 } },\n"
             "  require = function(result) return result.mfu > 1, 'too slow' end,\n"
             "  score = function(result) return result.mfu end }",
     .sweep = true},
};
enum { SOURCES = sizeof sources / sizeof *sources };

static bool sweep(const Source *source, Arena *arena, Diag *d)
{
    const char *path = arena_print(arena, "%s/s.lua", command_new_folder(arena));
    command_write_file(path, source->code);
    bool is_plan, fine = true;
    FrontSweep *s = front_sweep_open(path, arena, &is_plan, d);
    if (s == NULL) return false;
    static const FrontPairs none;
    FrontPairs result = {NULL, 0, 0};
    list_push(arena, &result, ((FrontPair){.key = "mfu", .value = "0.5"}));
    for (int call = SWEEP_require; fine && call <= SWEEP_score; call++) {
        SweepAnswer answer;
        fine = front_sweep_call(s, (SweepCall)call, &none, &result, "a point", &answer, d);
    }
    front_sweep_close(s);
    return fine;
}

/* Returns the errors of the script; "" if there are none. */
static const char *evaluate(const Source *source, Arena *arena)
{
    Diag d = diag_in(arena);
    Config config;
    Graph graph;
    memset(&graph, 0, sizeof graph);
    const FrontOptions options = {.shrink = source->shrink};
    bool fine = false;
    alarm(60); /* the parent must not wait for ever */
    if (source->sweep) {
        fine = sweep(source, arena, &d);
    } else if (source->held) {
        FrontScript *script = front_open("plan.lua", source->code, 5, arena);
        fine = front_load_held(script, &options, arena, &config, &graph, &d);
        front_close(script);
    } else {
        fine = front_load_text("plan.lua", source->code, &options, arena, &config, &graph, &d);
    }
    alarm(0);
    assert_int_equal(fine, d.n_errors == 0);
    Str text = str_in(arena);
    diag_print(&d, &text);
    return str_text(&text);
}

/* ---- streams */

typedef struct Record {
    uint32_t kind, n; /* bytes of its content, which follows the header of 8 bytes */
    size_t at;        /* the place of its header in the stream */
} Record;
typedef struct Sent {
    Str bytes;
    LIST(Record) records;
} Sent;

static Sent stream_of(const Source *source, Arena *arena)
{
    Sent s = {.bytes = str_in(arena)};
    impostor_record(&s.bytes);
    const char *errors = evaluate(source, arena);
    impostor_record(NULL);
    if (errors[0] != 0) fail_msg("%s", errors);
    for (size_t at = 0; at < s.bytes.n;) {
        Record r = {.at = at};
        memcpy(&r.kind, s.bytes.at + at, 4);
        memcpy(&r.n, s.bytes.at + at + 4, 4);
        list_push(arena, &s.records, r);
        at += 8 + r.n;
    }
    return s;
}

/* Evaluates the script with an impostor that sends these bytes. Returns the errors. */
static const char *errors_of(const Source *source, const Str *bytes, Arena *arena)
{
    const Impostor impostor = {bytes->at, bytes->n, IMPOSTOR_waits, 0};
    impostor_use(&impostor);
    const char *errors = evaluate(source, arena);
    impostor_use(NULL);
    return errors;
}

/* Returns the stream with `n` bytes at `content` as the content of record r. */
static Str with(const Sent *s, uint32_t r, const void *content, uint32_t n, Arena *arena)
{
    const Record *old = &s->records.at[r];
    const size_t after = old->at + 8 + old->n;
    Str out = str_in(arena);
    str_add_bytes(&out, s->bytes.at, old->at + 4);
    str_add_bytes(&out, &n, sizeof n);
    str_add_bytes(&out, content, n);
    str_add_bytes(&out, s->bytes.at + after, s->bytes.n - after);
    return out;
}

static const char *content_of(const Sent *s, uint32_t r)
{
    return s->bytes.at + s->records.at[r].at + 8;
}

/* Returns true for the first, the second and the last record of a kind. */
static bool is_sampled(const Sent *s, uint32_t r)
{
    uint32_t before = 0, after = 0;
    for (uint32_t i = 0; i < s->records.n; i++)
        if (s->records.at[i].kind == s->records.at[r].kind) before += i<r, after += i> r;
    return before < 2 || after == 0;
}

static int no_impostor(void **state)
{
    (void)state;
    impostor_use(NULL);
    return 0;
}

static const char damaged[] = "error[front-damaged]: ";

static void expect(const Source *source, const Record *r, const char *change, const char *errors)
{
    if (strstr(errors, damaged) == NULL)
        fail_msg("script %d, record %u at %zu, %s: expected %s, got '%s'", (int)(source - sources),
                 r->kind, r->at, change, damaged, errors);
}

/* An unchanged stream is accepted, and the process that sent it and stays is ended. A record whose
 * content lacks a byte, or has one too many, is refused. A stream that lacks a record or has one
 * twice may still be a legal plan, so it only must do no harm. */
static void a_record_of_another_length_is_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new(), *scratch = arena_new();
    bool seen[RECORD_KIND_COUNT] = {false};
    for (const Source *source = sources; source < sources + SOURCES; source++) {
        const Sent s = stream_of(source, arena);
        const Impostor again = {s.bytes.at, s.bytes.n, IMPOSTOR_stays, 0};
        impostor_use(&again);
        assert_string_equal(evaluate(source, arena), "");
        impostor_use(NULL);
        for (uint32_t r = 0; r < s.records.n; r++) {
            const Record *record = &s.records.at[r];
            const char *content = content_of(&s, r);
            assert_true(record->kind < RECORD_KIND_COUNT);
            seen[record->kind] = true;
            if (!is_sampled(&s, r)) continue;
            Str changed = with(&s, r, content, record->n - 1, scratch);
            expect(source, record, "shorter", errors_of(source, &changed, scratch));
            Str longer = str_in(scratch);
            str_add_bytes(&longer, content, record->n);
            str_add_bytes(&longer, "", 1);
            changed = with(&s, r, longer.at, record->n + 1, scratch);
            expect(source, record, "longer", errors_of(source, &changed, scratch));
            const size_t end = record->at + 8 + record->n;
            for (int twice = 0; twice < 2; twice++) {
                Str other = str_in(scratch);
                str_add_bytes(&other, s.bytes.at, twice ? end : record->at);
                str_add_bytes(&other, s.bytes.at + (twice ? record->at : end),
                              s.bytes.n - (twice ? record->at : end));
                const Impostor impostor = {other.at, other.n, IMPOSTOR_exits, 0};
                impostor_use(&impostor);
                evaluate(source, scratch);
                impostor_use(NULL);
            }
            arena_reset(scratch);
        }
    }
    for (uint32_t kind = 1; kind < RECORD_KIND_COUNT; kind++)
        if (!seen[kind] && kind != RECORD_other && kind != RECORD_error)
            fail_msg("no script sends record %u", kind);
    arena_free(scratch);
    arena_free(arena);
}

/* Replaces the path of the source tree, which differs on each machine, by another path of the same
 * length.
 */
static void hide_tree(Str *bytes)
{
    static const char tree[] = TANDEM_SOURCE_DIR "/";
    const size_t n = sizeof tree - 1;
    for (size_t at = 0; at + n <= bytes->n; at++)
        if (memcmp(bytes->at + at, tree, n) == 0) memset(bytes->at + at + 1, 't', n - 2);
}

/* The fuzz target of streams begins with stored ones. If the form of records changes, the stored
 * streams must be written again (TANDEM_UPDATE_GOLDEN=1). Otherwise the target would not get beyond
 * their first records.
 */
static void the_fuzzers_stored_streams_are_current(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *value = getenv("TANDEM_UPDATE_GOLDEN");
    for (uint32_t i = 0; i < SOURCES; i++) {
        if (sources[i].sweep) continue; /* the fuzz target can only make a plan of a stream */
        const char *path =
            arena_print(arena, TANDEM_SOURCE_DIR "/tests/fuzz/corpus/stream/script_%u", i);
        if (value != NULL && strcmp(value, "1") == 0) {
            Sent sent = stream_of(&sources[i], arena);
            hide_tree(&sent.bytes);
            FILE *file = fopen(path, "wb");
            assert_non_null(file);
            assert_int_equal(fwrite(sent.bytes.at, 1, sent.bytes.n, file), sent.bytes.n);
            assert_int_equal(fclose(file), 0);
        }
        size_t n = 0;
        const char *bytes = command_read_file(arena, path, &n);
        if (bytes == NULL) fail_msg("there is no %s", path);
        Str stored = str_in(arena);
        str_add_bytes(&stored, bytes, n);
        const char *errors = errors_of(&sources[i], &stored, arena);
        if (errors[0] != 0) fail_msg("%s: %s", path, errors);
    }
    arena_free(arena);
}

/* ---- single fields */

/* Returns where a field begins in a content. `before` has one letter for each earlier field: u is a
 * number of 4 bytes, i and f are numbers of 8 bytes, and t is a text. */
static size_t offset_of(const char *content, const char *before)
{
    size_t at = 0;
    for (; *before != 0; before++) {
        uint32_t n = 0;
        if (*before == 't') memcpy(&n, content + at, 4);
        at += *before == 'u' ? 4 : *before == 't' ? 4 + n : 8;
    }
    return at;
}

typedef struct FieldChange {
    uint32_t source, kind;
    const char *before; /* letters for the fields before the changed one */
    uint32_t value;     /* the new four bytes */
} FieldChange;

#define PARAM "utuuuuuuuffu"
/* The comment of each row names the field of the record that is changed. */
static const FieldChange changes[] = {
    {0, RECORD_module, "tt", 1u << 20},     /* the parent, which does not exist */
    {0, RECORD_module, "ttuuuu", 999},      /* the file of the location */
    {0, RECORD_module, "", 1u << 20},       /* the length of the path */
    {0, RECORD_param, "", 99},              /* the number of the tensor */
    {0, RECORD_param, "ut", 0},             /* the module */
    {0, RECORD_param, "ut", 1u << 20},      /* the same */
    {0, RECORD_param, "utuuu", 99},         /* the way to split it over tp */
    {0, RECORD_param, "utuuuu", 6},         /* the dimension that is split */
    {0, RECORD_param, "utuuuuu", 6},        /* the other dimension */
    {0, RECORD_param, "utuuuuuu", 99},      /* the kind of initial values */
    {0, RECORD_param, PARAM, 0},            /* the number of dimensions */
    {0, RECORD_param, PARAM, 7},            /* the same */
    {0, RECORD_param, PARAM "u", 0},        /* a dimension */
    {0, RECORD_param, PARAM "u", 1u << 31}, /* the same */
    {0, RECORD_param, PARAM "uii", 65},     /* the number of segments */
    {1, RECORD_state, "", 99},              /* the number of the tensor */
    {1, RECORD_state, "ut", 0},             /* the module */
    {1, RECORD_state, "ut", 1u << 20},      /* the same */
    {1, RECORD_state, "utuuu", 0},          /* the number of dimensions */
    {0, RECORD_op, "", OP_none},            /* the op */
    {0, RECORD_op, "", OP_COUNT},           /* the same */
    {0, RECORD_op, "", OP_all_reduce},      /* an op that only passes make */
    {0, RECORD_op, "u", 99},                /* the first output */
    {0, RECORD_op, "uu", 1u << 20},         /* the module */
    {0, RECORD_op, "uuuuu", 9},             /* the number of inputs */
    {0, RECORD_loss, "", 0},                /* the tensor */
    {0, RECORD_loss, "", 1u << 20},         /* the same */
    {0, RECORD_loss, "", 1},                /* a tensor that is not a loss */
    {2, RECORD_seq, "", 0},                 /* the length of a sequence */
    {2, RECORD_seq, "", (1u << 26) + 1},    /* the same */
    {5, RECORD_field, "", 0},               /* a size of a field */
    {5, RECORD_field, "iii", 1u << 14},     /* the same */
    {3, RECORD_actions, "uu", 1u << 30},    /* the number of actions */
};

static uint32_t find(const Sent *s, uint32_t kind)
{
    for (uint32_t r = 0; r < s->records.n; r++)
        if (s->records.at[r].kind == kind) return r;
    fail_msg("no record of kind %u", kind);
    return 0;
}

static void a_field_out_of_range_is_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Sent streams[SOURCES];
    for (uint32_t i = 0; i < SOURCES; i++) streams[i] = stream_of(&sources[i], arena);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const FieldChange *c = &changes[i];
        const Sent *s = &streams[c->source];
        const uint32_t r = find(s, c->kind);
        const Record *record = &s->records.at[r];
        char *content = arena_alloc(arena, record->n);
        memcpy(content, content_of(s, r), record->n);
        memcpy(content + offset_of(content, c->before), &c->value, 4);
        Str changed = with(s, r, content, record->n, arena);
        expect(&sources[c->source], record, arena_print(arena, "change %zu", i),
               errors_of(&sources[c->source], &changed, arena));
    }
    arena_free(arena);
}

/* Any four bytes of the model's records may change. The plan may then be legal. Otherwise it is
 * refused, as damaged or because of its model. */
static void any_changed_word_is_harmless(void **state)
{
    (void)state;
    static const uint32_t values[] = {0, 1, 7, 1u << 20, 1u << 31, UINT32_MAX};
    Arena *arena = arena_new(), *scratch = arena_new();
    uint32_t n = 0, refused = 0;
    for (uint32_t i = 0; i < 2; i++) {
        const Sent s = stream_of(&sources[i], arena);
        for (uint32_t r = 0; r < s.records.n; r++) {
            const Record *record = &s.records.at[r];
            if (record->kind < RECORD_ask || !is_sampled(&s, r)) continue;
            for (uint32_t at = 0; at + 4 <= record->n; at += 4, n++) {
                char *content = arena_alloc(scratch, record->n);
                memcpy(content, content_of(&s, r), record->n);
                memcpy(content + at, &values[n % (sizeof values / sizeof *values)], 4);
                Str changed = with(&s, r, content, record->n, scratch);
                refused += errors_of(&sources[i], &changed, scratch)[0] != 0;
                arena_reset(scratch);
            }
        }
    }
    print_message("%u of %u changes were refused\n", refused, n);
    assert_true(refused * 4 > n && refused < n);
    arena_free(scratch);
    arena_free(arena);
}

/* A text has a limited length and contains no byte 0. */
static void a_text_too_long_or_with_a_zero_byte_is_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Sent s = stream_of(&sources[0], arena);
    const uint32_t r = find(&s, RECORD_name);
    for (uint32_t n = STREAM_MOST_TEXT - 1; n <= STREAM_MOST_TEXT + 1; n++)
        for (int zero = 0; zero < 2; zero++) {
            Str content = str_in(arena);
            str_add_bytes(&content, &n, sizeof n);
            for (uint32_t i = 0; i < n; i++)
                str_add_bytes(&content, zero && i == n / 2 ? "" : "a", 1);
            Str changed = with(&s, r, content.at, (uint32_t)content.n, arena);
            const char *errors = errors_of(&sources[0], &changed, arena);
            assert_int_equal(errors[0] != 0, zero || n > STREAM_MOST_TEXT);
            if (errors[0] != 0) assert_non_null(strstr(errors, damaged));
        }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_record_of_another_length_is_refused, no_impostor),
        cmocka_unit_test_teardown(the_fuzzers_stored_streams_are_current, no_impostor),
        cmocka_unit_test_teardown(a_field_out_of_range_is_refused, no_impostor),
        cmocka_unit_test_teardown(any_changed_word_is_harmless, no_impostor),
        cmocka_unit_test_teardown(a_text_too_long_or_with_a_zero_byte_is_refused, no_impostor),
    };
    return cmocka_run_group_tests_name("records of a script", tests, NULL, NULL);
}
