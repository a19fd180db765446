/* The key of a prediction and the fields of a plan. A field that is set to another value must
 * change the key; otherwise it must leave the prediction as it was. The settings are made from the
 * tables that read a plan, so the test covers a new field automatically. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "planner/front/front.h"
#include "planner/front/keys/fields.h"
#include "planner/front/parent.h"
#include "planner/front/pass_spec.h"
#include "session/session.h"
#include "tests/support/test_arena.h"

#define COMMON                                                                                     \
    "cluster = require 'clusters.dgx_h100' { nodes = 2 }, optimizer = adamw {},\n"                 \
    "batch = { global = 32, micro = 1, seq = 128 },\n"                                             \
    "precision = { param = 'fp32', compute = 'bf16', reduce = 'fp32' },\n"

/* Small plans that together list all passes: scripts, or their paths. */
static const char *const scripts[] = {
    "return plan { model = require 'models.llama' 'tiny', " COMMON
    "mesh = { pp = 2, dp_shard = 4, tp = 2 },\n"
    "parallel = { pp '1f1b', meta {}, tp { sequence = true }, ac 'selective', fsdp2 {}, "
    "materialize {} } }",
    "return plan { model = require 'models.mixtral' 'tiny', " COMMON
    "mesh = { dp_replicate = 2, ep = 4, cp = 2 },\n"
    "parallel = { ep {}, cp {}, ac 'full', ddp {}, compile 'block' } }",
    "return plan { model = require 'models.llama' 'tiny', " COMMON
    "mesh = { dp_shard = 8, tp = 2 },\n"
    "parallel = { tp {}, float8 'rowwise', freeze { modules = { 'layers.0' } },\n"
    "zero { strategy = 'optim' }, tile { pieces = 2 } } }",
    TANDEM_SOURCE_DIR "/scripts/plans/unet_domain.lua",
};
enum { N_SCRIPTS = sizeof scripts / sizeof *scripts, MOST_VALUES = 8, MOST_CHANGES = 2 };

typedef struct Outcome {
    const char *key;
    RunRecord record;
    Draft draft; /* only its configuration is set */
} Outcome;

typedef struct Tally {
    uint32_t n_changes; /* settings that changed a value of the configuration */
    uint32_t n_idle;    /* those of them that left the key as it was */
    uint32_t n_fields;  /* fields with such a setting */
} Tally;

/* Loads and predicts the script with one setting, which may be NULL. Returns false if it is
 * refused. */
static bool predict(FrontScript *script, const char *setting, Arena *own, Outcome *out)
{
    const PlanOptions o = {.script = script,
                           .set = &setting,
                           .n_set = setting != NULL,
                           .unproven = true,
                           .unfitted = true};
    Diag d = diag_in(own);
    Predicted predicted;
    PlanFile *file = session_load("plan.lua", &o, own, &d);
    if (file == NULL || d.n_errors > 0) {
        if (setting == NULL) fail_msg("%s", d.items.at[0].text);
        return false;
    }
    session_identify(file);
    const PredictOptions plain = session_plain_options(file);
    assert_true(session_predict(file, NULL, &plain, own, &predicted, &d));
    const RunRecord *r = &predicted.record;
    out->draft.config = file->config;
    out->record = *r;
    out->key = arena_print(own, "%s %s %s %llu", hash_hex(own, r->plan), r->cluster, r->calibration,
                           (unsigned long long)r->seed);
    return true;
}

/* Writes texts of values that a field of this kind may take. Returns their number. */
static uint32_t values_of(const Field *f, const char *values[MOST_VALUES])
{
    static const char *const flags[] = {"true", "false", NULL};
    static const char *const dtypes[] = {"fp32", "bf16", "fp16", "fp64", NULL};
    static const char *const wholes[] = {"1", "2", "4", "8", "16", "3", "256", NULL};
    static const char *const numbers[] = {"0.5", "2", "0.25", "1e-3", "100", "1e9", NULL};
    static const char *const shards[] = {"true", "false", "2", NULL};
    static const char *const texts[] = {"another", NULL};
    const char *const *of = NULL;
    uint32_t n = 0;
    switch (f->kind) {
    case FIELD_table:
    case FIELD_modules:
    case FIELD_ops:
    case FIELD_styles:
    case FIELD_split: return 0;
    case FIELD_i64:
    case FIELD_u32:
    case FIELD_u64:
    case FIELD_axis: of = wholes; break;
    case FIELD_f64:
    case FIELD_rate: of = numbers; break;
    case FIELD_bool:
    case FIELD_offload:
    case FIELD_choice: of = flags; break;
    case FIELD_text: of = texts; break;
    case FIELD_dtype: of = dtypes; break;
    case FIELD_word: of = f->words; break;
    case FIELD_reshard: of = shards; break;
    }
    while (n < MOST_VALUES && of[n] != NULL) values[n] = of[n], n++;
    return n;
}

static bool same_prediction(const RunRecord *a, const RunRecord *b)
{
    return a->step_ps == b->step_ps && a->compute_ps == b->compute_ps &&
           a->exposed_ps == b->exposed_ps && a->peak_bytes == b->peak_bytes &&
           a->n_ranks == b->n_ranks &&
           fabs(a->tokens_per_s_per_device - b->tokens_per_s_per_device) < 1e-9 &&
           fabs(a->mfu - b->mfu) < 1e-12;
}

/* Tries values of one field. `at` and `pass` say where its value lies: in the configuration, or in
 * the options of a pass that the script lists. */
static void try_field(FrontScript *script, const Outcome *base, const Field *f, int pass,
                      Tally *tally)
{
    const char *values[MOST_VALUES];
    const uint32_t n = values_of(f, values);
    uint32_t n_changes = 0;
    for (uint32_t i = 0; i < n && n_changes < MOST_CHANGES; i++) {
        Arena *own = arena_new();
        Outcome *now = arena_alloc(own, sizeof *now);
        const char *setting =
            arena_print(own, "%s%s=%s", pass >= 0 ? "parallel." : "", f->path, values[i]);
        if (predict(script, setting, own, now)) {
            const char *was = (const char *)&base->draft + f->offset,
                       *is = (const char *)&now->draft + f->offset;
            if (pass >= 0) {
                was = (const char *)&base->draft.config.passes[pass] + f->offset;
                is = (const char *)&now->draft.config.passes[pass] + f->offset;
            }
            const bool same_key = strcmp(base->key, now->key) == 0;
            if (same_key && !same_prediction(&base->record, &now->record))
                fail_msg("%s changes the prediction, but not its key", setting);
            if (memcmp(was, is, field_bytes(f->kind)) != 0) {
                n_changes++;
                tally->n_idle += same_key;
            }
        }
        arena_free(own);
    }
    tally->n_changes += n_changes;
    tally->n_fields += n_changes > 0;
}

static bool is_of(const Field *f, const char *table)
{
    return field_is_in(f->path, strlen(f->path), table, strlen(table));
}

static bool in_config(const Field *f)
{
    const size_t from = offsetof(Draft, config);
    return f->offset >= from && f->offset < from + sizeof(Config);
}

static void a_field_outside_the_key_leaves_the_prediction(void **state)
{
    (void)state;
    Tally plan = {0}, passes = {0};
    bool listed[PASS_NAME_COUNT] = {false};
    for (uint32_t s = 0; s < N_SCRIPTS; s++) {
        const bool is_path = scripts[s][0] == '/';
        FrontScript *script =
            front_open(is_path ? scripts[s] : "plan.lua", is_path ? NULL : scripts[s], 0, arena);
        Outcome *base = arena_alloc(arena, sizeof *base);
        predict(script, NULL, arena, base);
        for (uint32_t i = 0; field_at(false, i) != NULL; i++) {
            const Field *f = field_at(false, i);
            /* unit/test_session changes every field of hardware and runtime */
            if (is_of(f, "cluster") || is_of(f, "runtime") || !in_config(f)) continue;
            try_field(script, base, f, -1, &plan);
        }
        for (uint32_t p = 0; p < base->draft.config.n_passes; p++) {
            const PassName name = base->draft.config.passes[p].name;
            const PassOption *o = pass_specs[name]->options;
            listed[name] = true;
            for (; o != NULL && o->field.path != NULL; o++)
                try_field(script, base, &o->field, (int)p, &passes);
        }
        front_close(script);
    }
    printf("plan: %u fields, %u changes, %u of them idle\n", plan.n_fields, plan.n_changes,
           plan.n_idle);
    printf("passes: %u options, %u changes, %u of them idle\n", passes.n_fields, passes.n_changes,
           passes.n_idle);
    for (uint32_t p = 0; p < PASS_NAME_COUNT; p++)
        if (!listed[p]) fail_msg("no script lists %s", pass_specs[p]->name);
    /* fewer would mean that settings are refused */
    assert_true(plan.n_fields > 60 && plan.n_changes - plan.n_idle > 60);
    assert_true(passes.n_fields > 50 && passes.n_changes - passes.n_idle > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_field_outside_the_key_leaves_the_prediction,
                                        test_arena_setup, test_arena_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
