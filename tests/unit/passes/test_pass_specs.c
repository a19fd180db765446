/* Code loops over passes without knowing them, so every pass must have all that these loops use.
 * Each option has its type, bounds, a default within them, and a sentence. Each edge names another
 * pass and a reason. Each pass can be printed and shrunk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/front/front.h"
#include "planner/passes/pass.h"

static const char *const names[] = {
#define PASS(name) #name,
#include "planner/front/passes.def"
};

static bool is_sentence(const char *text)
{
    const size_t n = text ? strlen(text) : 0;
    return n > 12 && text[n - 1] == '.';
}

static bool is_number(FieldKind kind)
{
    return kind == FIELD_u32 || kind == FIELD_u64 || kind == FIELD_i64 || kind == FIELD_f64;
}

static void check_option(const PassSpec *spec, const PassOption *o)
{
    const Field *f = &o->field;
    const size_t n = strlen(spec->name);
    if (strncmp(f->path, spec->name, n) != 0 || f->path[n] != '.') fail_msg("%s", f->path);
    if (!is_sentence(o->doc.text)) fail_msg("%s has no sentence", f->path);
    if (isnan(o->preset) != (o->open != NULL)) fail_msg("%s: one default", f->path);
    if (field_of_pass(f->path) != f) fail_msg("%s is there twice", f->path);
    if (f->offset >= sizeof(PassConfig) || o->named >= sizeof(PassConfig))
        fail_msg("%s lies outside of PassConfig", f->path);
    if (is_number(f->kind) && !(f->least < f->most)) fail_msg("%s has no bounds", f->path);
    if (is_number(f->kind) && o->preset < f->least) fail_msg("%s: default too small", f->path);
    if (is_number(f->kind) && o->preset > f->most) fail_msg("%s: default too large", f->path);
    if (f->kind == FIELD_bool) assert_true(o->preset == 0 || o->preset == 1);
    if ((f->kind == FIELD_word) != (f->words != NULL))
        fail_msg("%s: words of an option that has none, or none of one that has", f->path);
    if (f->kind != FIELD_word) return;
    uint32_t n_words = 0;
    while (f->words[n_words]) n_words++;
    assert_true(o->preset >= 0 && o->preset < n_words);
}

static void every_option_is_complete(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (uint32_t p = 0; p < PASS_NAME_COUNT; p++) {
        assert_string_equal(pass_specs[p]->name, names[p]);
        assert_true(is_sentence(pass_specs[p]->doc.text));
        for (const PassOption *o = pass_specs[p]->options; o && o->field.path; o++, n++)
            check_option(pass_specs[p], o);
    }
    assert_true(n > 50);
}

static void check_edges(PassName own, const PassEdge *edges, bool own_first)
{
    for (const PassEdge *e = edges; e && e->why; e++) {
        assert_true(e->other < PASS_NAME_COUNT && e->other != own);
        assert_true(strlen(e->why) > 20);
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Config config = {.n_passes = 2};
        config.passes[own_first].name = own;
        config.passes[!own_first].name = e->other;
        assert_true(order_check(&config, arena, &d));
        config.passes[!own_first].name = own;
        config.passes[own_first].name = e->other;
        assert_false(order_check(&config, arena, &d));
        assert_non_null(strstr(d.items.at[0].text, e->why));
        arena_free(arena);
    }
}

/* The right order of two passes is accepted. The other order is refused with the edge's own words.
 * No edge may be stated twice, in both directions. */
static void every_edge_has_a_reason(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < PASS_NAME_COUNT; p++) {
        check_edges((PassName)p, pass_specs[p]->before, false);
        check_edges((PassName)p, pass_specs[p]->after, true);
    }
}

/* Each pass is printed and shrunk in a plan that names only this pass. */
static void every_pass_is_printed_and_shrunk(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < PASS_NAME_COUNT; p++) {
        const PassSpec *spec = pass_specs[p];
        Arena *arena = arena_new();
        assert_non_null(spec->run);
        PassConfig pass = {.name = (PassName)p};
        Config config = {.n_passes = 1};
        Shrink shrink = {.config = &config};
        for (int a = 0; a < AXIS_NAMES; a++) config.axis_size[a] = shrink.axis_was[a] = 1;
        config.passes[0] = pass;
        if (strncmp(passes_text(arena, &config), spec->name, strlen(spec->name)) != 0)
            fail_msg("%s is printed as %s", spec->name, passes_text(arena, &config));
        if (spec->shrink) spec->shrink(&config.passes[0], &shrink);
        assert_int_equal(config.passes[0].name, p);
        for (int a = 0; a < AXIS_NAMES; a++) assert_int_equal(config.axis_size[a], 1);
        arena_free(arena);
    }
}

/* A plan's configuration has exactly the defaults of the table. */
static void a_plan_has_the_defaults_of_the_table(void **state)
{
    (void)state;
    static const char code[] =
        "return plan { model = require 'models.llama' { size = 'tiny', layers = 2, vocab = 4096 }, "
        "cluster = require 'clusters.gpu' { gpu = 'H100', devices_per_node = 2 },"
        " batch = { global = 2, micro = 1, seq = 16 }, mesh = { dp_shard = 2 },"
        " parallel = { fsdp2{}, tile{} }, optimizer = adamw {} }";
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config = {.file = "p.lua"};
    Graph graph = {0};
    if (!front_load_text("p.lua", code, NULL, arena, &config, &graph, &d))
        fail_msg("%s", d.items.at[0].text);
    assert_int_equal(config.n_passes, 2);
    assert_int_equal(config.passes[0].fsdp2.prefetch, 1);
    assert_true(config.passes[0].fsdp2.reshard_last && config.passes[0].fsdp2.over_ep);
    assert_int_equal(config.passes[0].fsdp2.reshard_after_forward, RESHARD_true);
    assert_int_equal(config.passes[1].tile.pieces, 8);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_is_complete),
        cmocka_unit_test(every_edge_has_a_reason),
        cmocka_unit_test(every_pass_is_printed_and_shrunk),
        cmocka_unit_test(a_plan_has_the_defaults_of_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
