/* A script may be kept open to answer many requests. It must give the same plans and messages as a
 * script that runs again for each load. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "session/session.h"
#include "tests/support/command.h"

enum { MOST_SETS = 4 };
typedef struct Case {
    const char *set[MOST_SETS];
} Case;

static uint32_t n_sets(const Case *c)
{
    uint32_t n = 0;
    while (n < MOST_SETS && c->set[n] != NULL) n++;
    return n;
}

/* Limits of processor time [s]: for scripts that loop without end, and for all others. The second
 * limit only guards against hanging, and must let a slow machine finish. */
#define SHORT_S   .4
#define PATIENT_S 60

/* Returns the plan's id and scripts, every message, and the script's lines that nodes name. */
static const char *answer(const char *path, const Case *c, double cpu_s, FrontScript *script,
                          Arena *arena)
{
    Diag d = diag_in(arena);
    Recipe recipe = {.head = ""};
    const PlanOptions o = {.set = c->set,
                           .n_set = n_sets(c),
                           .script = script,
                           .unproven = true,
                           .cpu_seconds = cpu_s,
                           .made_of = &recipe};
    PlanFile *file = session_load(path, &o, arena, &d);
    Str out = str_in(arena);
    if (file != NULL) session_identify(file);
    str_print(&out, "%s\n%s", file != NULL ? hash_hex(arena, file->id) : "refused",
              store_script_list(&recipe, arena));
    for (uint32_t i = 0; i < d.items.n; i++) {
        const Diagnostic *item = &d.items.at[i];
        str_print(&out, "%s:%u %s %s %s\n", item->loc.file != NULL ? item->loc.file : "",
                  item->loc.line, item->rule, item->text, item->hint != NULL ? item->hint : "");
    }
    for (NodeId i = 1; file != NULL && i < file->plan->graph.nodes.n; i++) {
        const Loc loc = file->plan->graph.nodes.at[i].loc;
        str_print(&out, "%s:%u\n", loc.file != NULL ? loc.file : "", loc.line);
    }
    return str_text(&out);
}

/* Loads the cases one after the other with a kept script, so that each could affect the next. */
static void compare(const char *path, const Case *cases, uint32_t n, double cpu_s)
{
    Arena *kept = arena_new(), *arena = arena_new();
    FrontScript *script = front_open(path, NULL, cpu_s, kept);
    for (uint32_t i = 0; i < n; i++) {
        const char *anew = answer(path, &cases[i], cpu_s, NULL, arena);
        assert_string_equal(answer(path, &cases[i], cpu_s, script, arena), anew);
        arena_reset(arena);
    }
    front_close(script);
    arena_free(arena);
    arena_free(kept);
}

#define COMPARE(path, cases, cpu_s) compare(path, cases, sizeof(cases) / sizeof *(cases), cpu_s)

static void settings_give_the_same_answers_as_new_loads(void **state)
{
    (void)state;
    static const Case cases[] = {{{NULL}},
                                 {{"mesh.tp=4", "mesh.dp_shard=4"}},
                                 {{"parallel.ac=none"}},
                                 {{NULL}},
                                 {{"batch.micro=2"}},
                                 {{"runtime=torchtitan"}},
                                 {{"parallel.zero.strategy=optim"}},
                                 {{"model.layers=2"}},
                                 {{"model.layers=2", "batch.micro=2"}},
                                 {{"runtime=automodel", "batch.micro=2"}},
                                 {{"cluster=hgx_h200"}},
                                 {{"cluster=gb200_nvl72", "mesh.dp_shard=-1"}},
                                 {{"cluster=hgx_h2000"}},
                                 {{"model=llama:3.2-1b"}},
                                 {{"model=llama:nothing"}},
                                 {{"model=llama"}},
                                 {{"mesh.tp=3"}},
                                 {{"mesh.nothing=3"}},
                                 {{"runtime=nothing"}},
                                 {{"precision.compute=fp32"}},
                                 {{"optimizer.clip_norm=0"}},
                                 {{"batch.global=128"}},
                                 {{"batch.seq=1024"}},
                                 {{NULL}}};
    COMPARE(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", cases, PATIENT_S);
}

static void other_plans_give_the_same_answers_as_new_loads(void **state)
{
    (void)state;
    static const Case cases[] = {{{NULL}}, {{"batch.micro=2"}}, {{"parallel.ac=full"}}, {{NULL}}};
    COMPARE(TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua", cases, PATIENT_S);
    COMPARE(TANDEM_SOURCE_DIR "/scripts/plans/wxformer_domain.lua", cases, PATIENT_S);
    COMPARE(TANDEM_SOURCE_DIR "/scripts/plans/automodel_llama3_8b.lua", cases, PATIENT_S);
}

static const char model_code[] =
    "local nn = require 'tandem.nn'\n"
    "local n, batch = 0, { seq = 8, global = 4 }\n"
    "local function build()\n"
    "  n = n + 1\n"
    "  if batch.loops then while true do end end\n"
    "  return nn.module { e = nn.embedding(16 * n, batch.wide or 8),\n"
    "    h = nn.linear(batch.wide or 8, 16),\n"
    "    forward = function(m, x, y) return nn.cross_entropy(m.h(m.e(x)), y) end }\n"
    "end\n"
    "return plan { batch = batch, precision = { compute = 'fp32' }, mesh = { dp_shard = 1 },\n"
    "  model = { config = {}, build = build } }\n";

/* The model counts its calls, and reads the plan's table. */
static void a_model_that_reads_the_plan_is_traced_anew(void **state)
{
    (void)state;
    static const Case cases[] = {{{NULL}},
                                 {{"batch.micro=2"}},
                                 {{"batch.wide=32"}},
                                 {{"batch.loops=true"}},
                                 {{"batch.micro=4"}},
                                 {{NULL}}};
    command_write_file("sees.lua", model_code);
    COMPARE("sees.lua", cases, SHORT_S);
}

/* The tables of some of these plans cannot be restored after a request. Other models reach so many
 * values that their trace cannot be kept. The texts of `before` come before the plan, after `batch`
 * and `build`. */
static void plans_that_cannot_be_kept_give_the_same_answers(void **state)
{
    (void)state;
    static const Case cases[] = {
        {{NULL}}, {{"batch.micro=2"}}, {{"batch.wide=32"}}, {{NULL}}, {{"mesh.dp_shard=3"}}};
    static const char *const before[] = {
        "setmetatable(batch, { __index = function() return nil end })",
        "batch.more = {} for i = 1, 5000 do batch.more[i] = {} end",
        "local t = batch for i = 1, 20 do t.t = {} t = t.t end",
        "local keep = {} for i = 1, 200001 do keep[i] = {} end\n"
        "build = function() local wide = #keep > 0 and 16 return nn.module { e = "
        "nn.embedding(wide, "
        "8), h = nn.linear(8, wide), forward = function(m, x, y) return "
        "nn.cross_entropy(m.h(m.e(x))"
        ", y) end } end",
        "local old = build build = function() return old(math.random(2, 3)) end",
    };
    Arena *arena = arena_new();
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        const char *plan = strstr(model_code, "return plan {");
        command_write_file("unkept.lua", arena_print(arena, "%.*s%s\n%s", (int)(plan - model_code),
                                                     model_code, before[i], plan));
        COMPARE("unkept.lua", cases, PATIENT_S);
    }
    arena_free(arena);
}

static const char broken_code[] = "local nn = require 'tandem.nn'\nerror 'no plan today'\n";
static const char endless_code[] = "while true do end\n";

static void failing_scripts_give_the_same_answers(void **state)
{
    (void)state;
    static const Case cases[] = {{{NULL}}, {{"batch.micro=2"}}};
    command_write_file("broken.lua", broken_code);
    command_write_file("endless.lua", endless_code);
    COMPARE("broken.lua", cases, PATIENT_S);
    compare("endless.lua", cases, 1, SHORT_S);
    COMPARE("there_is_none.lua", cases, PATIENT_S);
}

static const Tensor *first_tensor(FrontScript *script, const char *set, Arena *arena)
{
    Diag d = diag_in(arena);
    Config config;
    Graph graph;
    const FrontOptions o = {.set = &set, .n_set = set != NULL};
    assert_true(front_load_held(script, &o, arena, &config, &graph, &d));
    return graph.tensors.at;
}

/* Two loads share the graph if only settings differ that the model cannot see. */
static void loads_share_a_trace_unless_the_model_sees_the_setting(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    FrontScript *script =
        front_open(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", NULL, 0, arena);
    const Tensor *first = first_tensor(script, NULL, arena);
    assert_ptr_equal(first_tensor(script, "parallel.ac=full", arena), first);
    assert_ptr_equal(first_tensor(script, "runtime=automodel", arena), first);
    assert_ptr_equal(first_tensor(script, "optimizer.lr=1", arena), first);
    const Tensor *other = first_tensor(script, "batch.micro=2", arena);
    assert_ptr_not_equal(other, first);
    assert_ptr_not_equal(first_tensor(script, "model.layers=2", arena), first);
    assert_ptr_not_equal(first_tensor(script, "precision.compute=fp32", arena), first);
    assert_ptr_equal(first_tensor(script, "batch.micro=2", arena), other);
    front_close(script);
    command_write_file("sees.lua", model_code);
    script = front_open("sees.lua", NULL, 0, arena);
    first = first_tensor(script, NULL, arena);
    assert_ptr_not_equal(first_tensor(script, NULL, arena), first);
    front_close(script);
    arena_free(arena);
}

static const Case shipped_sets[] = {{{"runtime=torchtitan"}}, {{"runtime=automodel"}}};

/* Checks that plans are equal if session_same_program says so. */
static void check_same(const char *path, Arena *arena)
{
    Diag d = diag_in(arena);
    const PlanOptions plain = {.unproven = true};
    PlanFile *file = session_load(path, &plain, arena, &d);
    assert_non_null(file);
    session_identify(file);
    for (uint32_t i = 0; i < 2; i++) {
        const PlanOptions o = {.unproven = true, .set = shipped_sets[i].set, .n_set = 1};
        PlanFile *other = session_load(path, &o, arena, &d);
        assert_non_null(other);
        session_identify(other);
        const bool equal = memcmp(&file->id, &other->id, sizeof file->id) == 0;
        if (session_same_program(&file->config, file->plan, &other->config)) assert_true(equal);
        if (i == 1) assert_true(equal);
    }
}

static void plans_with_the_same_program_are_recognised(void **state)
{
    (void)state;
    static const char *const names[] = {"llama3_8b", "llama3_70b_pp", "mixtral_8x7b"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Arena *arena = arena_new();
        check_same(arena_print(arena, TANDEM_SOURCE_DIR "/scripts/plans/%s.lua", names[i]), arena);
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_give_the_same_answers_as_new_loads),
        cmocka_unit_test(other_plans_give_the_same_answers_as_new_loads),
        cmocka_unit_test(a_model_that_reads_the_plan_is_traced_anew),
        cmocka_unit_test(plans_that_cannot_be_kept_give_the_same_answers),
        cmocka_unit_test(failing_scripts_give_the_same_answers),
        cmocka_unit_test(loads_share_a_trace_unless_the_model_sees_the_setting),
        cmocka_unit_test(plans_with_the_same_program_are_recognised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
