/* The text of a plan leaves out fields that other fields determine. A plan that is read from its
 * text must get the values that the passes and lowering gave these fields. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernel.h"
#include "planner/ir/text/private.h"
#include "planner/lower/compile.h"
#include "tests/support/corpus/corpus.h"
#include "tests/support/loaded.h"
#include "tests/support/sample.h"

typedef struct Tally {
    uint32_t n_seen, every, n_plans;
    /* how many values were compared and were not zero */
    uint64_t n_values[RECORD_COUNT][MOST_FIELDS];
} Tally;

/* Compares the fields of a record that the text leaves out. */
static void compare_record(Tally *tally, const char *name, TextRecordKind kind, uint32_t index,
                           const void *made, const void *read)
{
    const Record *r = text_record(kind);
    for (uint32_t i = 0; i < r->n_fields; i++) {
        const TextField *f = &r->fields[i];
        const char *x = (const char *)made + f->offset, *y = (const char *)read + f->offset;
        const size_t bytes = text_plain_bytes(f->type);
        if (f->trust != TRUST_derived && !text_is_shared(f, made)) continue;
        if (memcmp(x, y, bytes) != 0) {
            uint64_t is[2] = {0, 0};
            memcpy(&is[0], x, bytes);
            memcpy(&is[1], y, bytes);
            fail_msg("%s: %s %u: %s is %llu, but the reader derives %llu", name, r->word, index,
                     text_field_name(f), (unsigned long long)is[0], (unsigned long long)is[1]);
        }
        for (size_t k = 0; k < bytes; k++)
            if (x[k] != 0) {
                tally->n_values[kind][i]++;
                break;
            }
    }
}

#define COMPARE(list, kind)                                                                        \
    do {                                                                                           \
        assert_int_equal(made->list.n, read->list.n);                                              \
        for (uint32_t i_ = 1; i_ < made->list.n; i_++)                                             \
            compare_record(tally, name, kind, i_, &made->list.at[i_], &read->list.at[i_]);         \
    } while (0)

static void compare_program(Tally *tally, const char *name, uint32_t index, const Program *made,
                            const Program *read)
{
    compare_record(tally, name, RECORD_program, index, made, read);
    COMPARE(buffers, RECORD_buffer);
    COMPARE(code, RECORD_instr);
}

static void compare_plans(Tally *tally, const char *name, const Plan *made, Arena *arena)
{
    Diag d = diag_in(arena);
    Str text = str_in(arena);
    text_print(made, 0, &text);
    const Plan *read = text_parse(name, str_text(&text), text.n, arena, &d);
    if (read == NULL) fail_msg("%s: %s", name, d.items.at[0].text);
    compare_record(tally, name, RECORD_plan, 0, made, read);
    compare_record(tally, name, RECORD_step, 0, &made->step, &read->step);
    compare_record(tally, name, RECORD_model, 0, &made->graph.info, &read->graph.info);
    compare_record(tally, name, RECORD_graph, 0, &made->graph, &read->graph);
    for (uint32_t a = 0; a < made->mesh.n_axes; a++)
        compare_record(tally, name, RECORD_axis, a, &made->mesh.axis[a], &read->mesh.axis[a]);
    COMPARE(graph.deals.deals, RECORD_deal);
    COMPARE(shapes, RECORD_shape);
    COMPARE(graph.modules, RECORD_module);
    COMPARE(graph.tensors, RECORD_tensor);
    COMPARE(graph.nodes, RECORD_node);
    COMPARE(graph.units, RECORD_unit);
    assert_int_equal(made->programs.n, read->programs.n);
    for (uint32_t i = 0; i < made->programs.n; i++)
        compare_program(tally, name, i, &made->programs.at[i], &read->programs.at[i]);
    tally->n_plans++;
}

static void visit(void *self, const Tiny *t)
{
    Tally *tally = self;
    if (tally->n_seen++ % tally->every != 0) return;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const Plan *plan = tiny_plan(t, false, arena, &d);
    assert_non_null(plan);
    compare_plans(tally, corpus_name(t, arena), plan, arena);
    arena_free(arena);
}

static void visit_script(Tally *tally, const char *path)
{
    const FrontOptions front = {.n_set = 0};
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    LowerOptions options = lower_options_default();
    options.workspace = kernel_cpu_workspace;
    Loaded p = load_file(path, &front);
    if (!p.fine) fail_msg("%s: %s", path, p.errors);
    const Plan *plan = plan_compile(&p.config, &p.graph, &options, NULL, arena, &d);
    if (plan == NULL) fail_msg("%s: %s", path, d.items.at[0].text);
    compare_plans(tally, path, plan, arena);
    arena_free(p.arena);
    arena_free(arena);
}

static void visit_folder(Tally *tally, const char *folder)
{
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        char path[512];
        if (dot == NULL || strcmp(dot, ".lua") != 0) continue;
        assert_true((size_t)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) <
                    sizeof path);
        visit_script(tally, path);
    }
    closedir(dir);
}

static void a_reader_derives_what_the_planner_made(void **state)
{
    (void)state;
    Tally tally = {.every = SAMPLE(7, 21)};
    visit_folder(&tally, TANDEM_SOURCE_DIR "/tests/golden");
    visit_script(&tally, TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua");
    visit_script(&tally, TANDEM_SOURCE_DIR "/scripts/plans/gpt2_1558m.lua");
    corpus_each(visit, &tally);
    print_message("%u plans\n", tally.n_plans);
    assert_true(tally.n_plans > SAMPLE(100, 50));
    for (int k = 0; k < RECORD_ranks; k++)
        for (uint32_t i = 0; i < text_record((TextRecordKind)k)->n_fields; i++) {
            const TextField *f = &text_record((TextRecordKind)k)->fields[i];
            if (f->trust == TRUST_derived && tally.n_values[k][i] == 0)
                fail_msg("no plan has %s.%s", text_record((TextRecordKind)k)->word,
                         text_field_name(f));
        }
}

/* Reads a text that no planner made. The reader must refuse it, or derive its fields without errors
 * of memory. Returns NULL if it refuses the text. */
static Plan *read_odd(const char *text, Arena *arena)
{
    Diag d = diag_in(arena);
    const char *whole = arena_print(arena, "%s%s", TEXT_HEADER, text);
    return text_parse("odd", whole, strlen(whole), arena, &d);
}

static void fields_are_derived_without_a_forward_pass(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    /* The gradient of an embedding reads no table, so no sizes of a table follow from it. */
    const Plan *plan = read_odd("tensor 1 name=\"a\" dims=[7,8,9]\n"
                                "tensor 2 name=\"b\" dtype=f32 dims=[3,4,5]\n"
                                "node 1 embed_grad in=1,2 out=2\n",
                                arena);
    assert_non_null(plan);
    assert_int_equal(plan->graph.info.vocab, 0);
    assert_int_equal(plan->graph.info.d_model, 0);
    plan = read_odd("node 1 none forward=2\nnode 2 none forward=1\n", arena);
    assert_non_null(plan);
    assert_int_equal(plan->graph.n_forward, 0);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_derives_what_the_planner_made),
        cmocka_unit_test(fields_are_derived_without_a_forward_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
