/* Plans as text: printing and parsing are exact inverses, and names and source locations do not
 * change the id. The parser survives 20,000 texts damaged by seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "planner/base/rng.h"
#include "planner/ir/text/private.h"
#include "tests/support/plans/plans.h"
#include "tests/support/plans/tiny.h"

static int setup(void **state)
{
    *state = arena_new();
    return 0;
}

static int teardown(void **state)
{
    arena_free(*state);
    return 0;
}

static const char *print(const Plan *plan, Arena *arena)
{
    Str out = str_in(arena);
    text_print(plan, TEXT_WITH_LOCATIONS, &out);
    return str_text(&out);
}

static Plan *parse(const char *text, Arena *arena, Diag *d)
{
    return text_parse("test.plan", text, strlen(text), arena, d);
}

static bool same_id(const Plan *a, const Plan *b, Arena *arena)
{
    Hash128 x = text_plan_id(a, arena), y = text_plan_id(b, arena);
    return memcmp(&x, &y, sizeof x) == 0;
}

static void check_round_trip(const Plan *plan, Arena *arena)
{
    Diag d = diag_in(arena);
    const char *text = print(plan, arena);
    Plan *back = parse(text, arena, &d);
    Str problems = str_in(arena);
    diag_print(&d, &problems);
    if (!back) fail_msg("%s", str_text(&problems));
    assert_true(plans_equal(plan, back));
    assert_true(same_id(plan, back, arena));
    assert_string_equal(print(back, arena), text);
}

static void a_plan_reads_back_as_it_was_printed(void **state)
{
    check_round_trip(plans_everything(*state), *state);
    check_round_trip(plans_linear(*state), *state);
    check_round_trip(plans_new(*state, NULL), *state);
    Plan *asks = plans_linear(*state);
    asks->nccl = (NcclSettings){NCCL_REGISTER_window, NCCL_CTAS_zero, 2, 8};
    check_round_trip(asks, *state);
    assert_non_null(strstr(print(asks, *state),
                           "\nnccl min_ctas=2 max_ctas=8 register=window cta_policy=zero\n"));
}

/* Plans from the passes, with different meshes and modes. */
static void compiled_plans_round_trip(void **state)
{
    for (int i = 0; i < 12; i++) {
        Diag d = diag_in(*state);
        Tiny t = tiny_default();
        t.gpt2 = i & 1;
        t.tp = i & 2 ? 2 : 1;
        if (i & 4) t.dp_shard = 2;
        if (i & 8) t.dp_replicate = 2;
        t.ac = (AcMode)(i % 3);
        t.microbatches = 3;
        Plan *plan = tiny_plan(&t, false, *state, &d);
        assert_non_null(plan);
        check_round_trip(plan, *state);
    }
}

/* The exact text of the smallest plan. People and other programs may rely on it. */
static void the_smallest_plan_has_this_exact_text(void **state)
{
    Plan *plan = plans_new(*state, NULL);
    Program *p = plans_program(plan);
    BufferId x = plans_flat(plan, p, 8, DT_f32, CATEGORY_input);
    BufferId y = plans_flat(plan, p, 8, DT_f32, CATEGORY_activation);
    plans_instr(plan, p,
                &(PlansInstr){.op = OP_silu, .stream = STREAM_compute, .in = {x}, .out = {y}});
    p->bytes = 64;
    assert_string_equal(print(plan, *state), TEXT_HEADER "plan\n"
                                                         "step\n"
                                                         "model\n"
                                                         "shape 1 dims=[8]\n"
                                                         "program 0 train\n"
                                                         "%1 f32 input shape=1 bytes=32\n"
                                                         "%2 f32 activation shape=1 bytes=32\n"
                                                         "1 compute silu args=1>2\n"
                                                         "ranks 0 0-0\n");
}

static void names_and_locations_do_not_change_the_id(void **state)
{
    Plan *plan = plans_everything(*state);
    Hash128 id = text_plan_id(plan, *state), again = text_plan_id(plan, *state);
    assert_memory_equal(&id, &again, sizeof id);
    plan->graph.info.name = "another name";
    plan->graph.nodes.at[1].loc.line = 99;
    plan->graph.tensors.at[1].loc.file = "/another/checkout/b.lua";
    plan->graph.modules.at[1].loc.line = 98;
    again = text_plan_id(plan, *state);
    assert_memory_equal(&id, &again, sizeof id);
    plan->programs.at[1].buffers.at[1].offset = 512;
    again = text_plan_id(plan, *state);
    assert_memory_not_equal(&id, &again, sizeof id);
    plan->programs.at[1].buffers.at[1].offset = 0;
    plan->nccl.max_ctas = 8; /* other NCCL settings give another prediction */
    again = text_plan_id(plan, *state);
    assert_memory_not_equal(&id, &again, sizeof id);
    plan->nccl.max_ctas = 0;
    plan->graph.attrs.at[1].scale += 1e-17 + 1e-16;
    again = text_plan_id(plan, *state);
    assert_memory_not_equal(&id, &again, sizeof id);
}

static const char *plain(const Plan *plan, Arena *arena)
{
    Str out = str_in(arena);
    text_print(plan, 0, &out);
    return str_text(&out);
}

static size_t number_bytes(const TextField *f)
{
    return f->type == FIELD_u32 || f->type == FIELD_i32   ? 4
           : f->type == FIELD_u64 || f->type == FIELD_i64 ? 8
           : f->type == FIELD_u8                          ? 1
           : f->type == FIELD_word && f->key != NULL      ? 1
           : f->type == FIELD_dims                        ? 8
                                                          : 0;
}

/* Writes a number or a name into field i and none into field k, then the reverse. The two ids must
 * differ unless the texts are equal. */
static void check_places(Plan *plan, const Record *r, unsigned char *record, Arena *arena)
{
    static const unsigned char number[8] = {77}, none[8] = {0};
    static const char *const name = "name";
    for (uint32_t i = 0; i < r->n_fields; i++)
        for (uint32_t k = i + 1; k < r->n_fields; k++) {
            const TextField *f[2] = {&r->fields[i], &r->fields[k]};
            const bool names = f[0]->type == FIELD_text && f[1]->type == FIELD_text;
            const size_t n = names ? sizeof name : number_bytes(f[0]);
            if (n < 4 || (!names && n != number_bytes(f[1]))) continue;
            unsigned char old[2][8];
            Hash128 id[2];
            const char *text[2];
            for (int to = 0; to < 2; to++) memcpy(old[to], record + f[to]->offset, n);
            for (int to = 0; to < 2; to++) {
                memcpy(record + f[to]->offset, names ? (const void *)&name : number, n);
                memcpy(record + f[!to]->offset, none, n);
                id[to] = text_plan_id(plan, arena);
                text[to] = plain(plan, arena);
            }
            for (int to = 0; to < 2; to++) memcpy(record + f[to]->offset, old[to], n);
            if (memcmp(&id[0], &id[1], sizeof *id) == 0 && strcmp(text[0], text[1]) != 0)
                fail_msg("%s: the same value in %s or in %s gives one id", r->word,
                         f[0]->key ? f[0]->key : "a bare word", f[1]->key ? f[1]->key : "another");
        }
}

/* Flips each byte of each number of `record`. The id must change exactly when the text does. */
static void check_fields(Plan *plan, TextRecordKind kind, void *record, Arena *arena)
{
    const Record *r = text_record(kind);
    check_places(plan, r, record, arena);
    const Hash128 id = text_plan_id(plan, arena);
    const char *text = plain(plan, arena);
    for (uint32_t i = 0; i < r->n_fields; i++) {
        const TextField *f = &r->fields[i];
        const size_t bytes = number_bytes(f);
        for (size_t k = 0; k < bytes; k++) {
            unsigned char *at = (unsigned char *)record + f->offset + k;
            const unsigned char old = *at;
            const bool word = f->type == FIELD_word && f->room > 0;
            const unsigned fresh = word ? (old + 1U) % f->room : old ^ 1U;
            *at = (unsigned char)fresh;
            const Hash128 again = text_plan_id(plan, arena);
            const bool same_text = strcmp(plain(plan, arena), text) == 0;
            if ((memcmp(&id, &again, sizeof id) == 0) != same_text)
                fail_msg("%s %s: id and text disagree", r->word, f->key ? f->key : "");
            *at = old;
        }
    }
}

static void the_id_changes_exactly_with_the_text(void **state)
{
    Plan *plan = plans_everything(*state);
    Program *p = &plan->programs.at[1];
    check_fields(plan, RECORD_plan, plan, *state);
    check_fields(plan, RECORD_step, &plan->step, *state);
    check_fields(plan, RECORD_model, &plan->graph.info, *state);
    check_fields(plan, RECORD_nccl, &plan->nccl, *state);
    check_fields(plan, RECORD_axis, &plan->mesh.axis[plan->mesh.n_axes - 1], *state);
    check_fields(plan, RECORD_graph, &plan->graph, *state);
    check_fields(plan, RECORD_attrs, &plan->graph.attrs.at[1], *state);
    check_fields(plan, RECORD_shape, &plan->shapes.at[1], *state);
    check_fields(plan, RECORD_module, &plan->graph.modules.at[1], *state);
    check_fields(plan, RECORD_tensor, &plan->graph.tensors.at[1], *state);
    check_fields(plan, RECORD_node, &plan->graph.nodes.at[1], *state);
    check_fields(plan, RECORD_unit, &plan->graph.units.at[1], *state);
    check_fields(plan, RECORD_program, p, *state);
    check_fields(plan, RECORD_buffer, &p->buffers.at[1], *state);
    check_fields(plan, RECORD_instr, &p->code.at[1], *state);
    for (uint32_t i = 0; i < p->code.n; i++)
        if (p->code.at[i].args.n > 1) { /* the same arguments, but more of them are inputs */
            const Hash128 id = text_plan_id(plan, *state);
            p->code.at[i].n_in ^= 1;
            const Hash128 again = text_plan_id(plan, *state);
            p->code.at[i].n_in ^= 1;
            assert_memory_not_equal(&id, &again, sizeof id);
        }
}

static size_t field_bytes(const TextField *f, char *covered, size_t size)
{
    size_t n = 0;
    switch (f->type) {
    case FIELD_u8:
    case FIELD_bool: n = 1; break;
    case FIELD_axes: n = sizeof(AxisSet); break;
    case FIELD_u32:
    case FIELD_i32:
    case FIELD_word:
    case FIELD_op: n = 4; break;
    case FIELD_u64:
    case FIELD_i64:
    case FIELD_f64:
    case FIELD_text: n = 8; break;
    case FIELD_loc:
    case FIELD_hash:
    case FIELD_layout:
    case FIELD_split:
    case FIELD_list: n = 16; break;
    case FIELD_dims: n = MAX_DIMS * sizeof(int64_t); break;
    case FIELD_deals: n = MAX_DIMS * sizeof(DealId); break;
    case FIELD_ids: n = f->room * sizeof(uint32_t); break;
    case FIELD_numbers: n = f->room * sizeof(double); break;
    case FIELD_intervals:
    case FIELD_args:
    case FIELD_after:
        n = 8; /* the numbers `first` and `n` */
        break;
    }
    assert_true(f->offset + n <= size);
    memset(covered + f->offset, 1, n);
    if (f->type == FIELD_dims || f->type == FIELD_ids) covered[f->count] = 1;
    return n;
}

/* If a field is added to a record but not to its table, it is lost silently. So every byte of a
 * record must be in the table, or be counted here as padding or as derived from other fields. */
static void tables_of_fields_cover_every_byte(void **state)
{
    (void)state;
    const struct {
        TextRecordKind kind;
        size_t size, uncovered;
    } records[] = {
        {RECORD_step, sizeof(StepInfo), 0},
        {RECORD_model, sizeof(ModelInfo), 4},
        {RECORD_nccl, sizeof(NcclSettings), 0},
        {RECORD_axis, sizeof(Axis), 4}, /* stride follows from the sizes */
        {RECORD_deal, sizeof(Deal), 0},
        {RECORD_attrs, sizeof(Attrs), 0},
        {RECORD_shape, sizeof(Shape), 7},
        {RECORD_module, sizeof(Module), 6},
        {RECORD_tensor, sizeof(Tensor), 31},
        {RECORD_node, sizeof(Node), 5},
        {RECORD_unit, sizeof(Unit), 4},
        {RECORD_buffer, sizeof(Buffer), 5},
        {RECORD_instr, sizeof(Instr), 6}, /* n_in, which the > among args states */
    };
    for (size_t i = 0; i < sizeof records / sizeof records[0]; i++) {
        char covered[2048] = {0};
        const Record *r = text_record(records[i].kind);
        size_t n = 0;
        assert_true(records[i].size <= sizeof covered);
        for (uint32_t k = 0; k < r->n_fields; k++)
            field_bytes(&r->fields[k], covered, records[i].size);
        for (size_t k = 0; k < records[i].size; k++) n += !covered[k];
        if (n != records[i].uncovered)
            fail_msg("%s: %zu bytes of the record are not in its text", r->word, n);
    }
}

static const struct {
    const char *text; /* the text after the header */
    uint32_t line;
    const char *says;
} bad[] = {
    {"nonsense\n", 2, "unknown record at 'nonsense'"},
    {"model name=\"a\" name=\"b\"\n", 2, "a field twice"},
    {"plan colour=3\n", 2, "unknown field at 'colour=3'"},
    {"unit 1 elements=99999999999999999999\n", 2, "a whole number from 0 to 2^64 - 1"},
    {"plan\nplan\n", 3, "a record twice"},
    {"axis 0 text=\"part\" size=2\n", 2, "names no axis"},
    {"axis 0 text=\"tp2\" size=2\n", 2, "names no axis"},
    {"program 0 train\n%1 f32 input bytes=4\n%2 f32 input in=1 unit=1\n", 4,
     "buffer.unit: a view must not state it"},
    {"program 0 train\n%1 f32 input bytes=4\n%2 f32 input persistent=1 in=1\n", 4,
     "buffer.persistent: a view must not state it"},
    {"tensor 1 name=\"x\" role=param\n", 2, "unknown word"},
    {"nccl max_ctas=65\n", 0, "more than 64 thread blocks"},
    {"nccl min_ctas=3 max_ctas=2\n", 0, "min_ctas is more than max_ctas"},
    {"nccl register=none cta_policy=zero\n", 0, "needs registered windows"},
    {"nccl register=often\n", 2, "often"},
    {"plan parent=12\n", 2, "32 hex digits"},
    {"axis 0 text=\"tp\" size=1\n", 2, "axis.size is out of bounds"},
    {"axis 1 text=\"tp\" size=2\n", 2, "indices must follow"},
    {"axis 0 text=\"tp\" size=4000000000\n", 2, "axis.size is out of bounds"},
    {"axis 0 text=\"a b\" size=2\n", 2, "must consist of lower-case letters"},
    {"shape 1 dims=[4,-1]\n", 0, "sizes out of range"},
    {"shape 1 dims=[9000000000000000,9000000000000000]\n", 0, "sizes out of range"},
    {"shape 1 dims=[1,2,3,4,5,6,7]\n", 2, "too many dimensions"},
    {"shape 1 layout=tp:0\n", 2, "unknown axis"},
    {"axis 0 text=\"tp\" size=2\nshape 1 dims=[4] layout=tp:1\n", 0, "do not fit"},
    {"shape 1 dims=[4] deals=3\n", 0, "do not fit"},
    {"deal 1 listed parts=2 size=4 per_part=1 intervals=0-2,2-9\n", 0, "out of range"},
    {"deal 1 listed parts=2 size=4 per_part=2 intervals=0-2,2-4\n", 0, "not as many"},
    {"deal 1 segments parts=2 size=4 per_part=2 intervals=0-4\n", 0, "not as many"},
    {"deal 1 segments parts=2 size=4 per_part=0\n", 0, "not as many"},
    {"tensor 1 name=\"x\" dims=[2,2] order=1\n", 0, "its order does not fit"},
    {"deal 1 ceil parts=2 size=4\ntensor 1 name=\"x\" dims=[2,2] order=1\n", 0, "does not fit"},
    {"deal 1 segments parts=2 size=4 per_part=1 intervals=0-4\n"
     "tensor 1 name=\"x\" dims=[2,2] order=1 order_dim=1\n",
     0, "its order does not fit"},
    {"deal 1 segments parts=2 size=4 per_part=1 intervals=0-2\n"
     "tensor 1 name=\"x\" dims=[2,2] order=1\n",
     0, "its order does not fit"},
    {"tensor 1 name=\"x\" module=5\n", 0, "unknown module"},
    {"tensor 1 name=\"x\n", 2, "not closed"},
    {"tensor 1 name=\"\\x00\"\n", 2, "escape"},
    {"node 1 frobnicate\n", 2, "unknown op"},
    {"node 1 linear in=1,2\n", 0, "unknown input"},
    /* This is the first number after the last element. */
    {"node 1 silu out=1\n", 0, "unknown output"},
    {"tensor 1 name=\"x\"\nnode 1 silu in=1 out=2\n", 0, "unknown output"},
    {"node 1 silu module=1\n", 0, "unknown module"},
    {"node 1 silu attrs=1\n", 0, "unknown attributes"},
    {"node 1 silu forward=2\n", 0, "unknown forward node"},
    {"node 1 linear in=1,2,3,4,5,6,7,8,9\n", 2, "too many numbers"},
    {"module 1 path=\"a\" parent=2\nmodule 2 path=\"b\" parent=1\n", 0, "precedes its parent"},
    {"%1 f32 input\n", 2, "outside a program"},
    {"program 0 train\n%1 f32 input in=1\nranks 0 0-0\n", 0, "its parent is missing"},
    {"program 0 train\n1 compute silu args=1>2\nranks 0 0-0\n", 0, "unknown buffer"},
    {"program 0 train\n1 compute silu after=1\nranks 0 0-0\n", 0, "does not precede"},
    {"program 0 train\n%1 f32 input bytes=72057594037927937\nranks 0 0-0\n", 0,
     "sizes out of range"},
    {"node 1 rope\n", 0, "rope has theta = 0, which must be above 0"},
    {"program 0 train\n1 teleport silu\nranks 0 0-0\n", 3, "unknown word at 'teleport'"},
    {"program 0 train\n1 compute silu match=4\nranks 0 0-0\n", 0, "match out of range"},
    {"program 0 train\n", 3, "no ranks run"},
    {"program 0\n", 2, "unknown word"},
    {"program 0 train\nranks 0 1-1\n", 3, "next ranks"},
    {"program 0 train\nranks 3 0-0\n", 3, "expected a program"},
    {"step global_batch=4000000000 micro_batch=1\n", 0, "sizes out of range"},
    {"seal ranks\n", 2, "a record's word"},
    {"seal step seed\n", 2, "a field's seal"},
    {"seal step seed=123\n", 2, "a field's seal"},
    {"seal step seeds=0123456789abcdef0123456789abcdef\n", 2, "a field's seal"},
    {"seal step seed=0123456789abcdef0123456789abcdeg\n", 2, "a field's seal"},
    {"seal step seed=0123456789abcdef0123456789abcdef seed=0123456789abcdef0123456789abcdef\n", 2,
     "a field's seal"},
};

static void bad_texts_are_refused_with_their_line(void **state)
{
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        Diag d = diag_in(*state);
        const char *text = arena_print(*state, TEXT_HEADER "%s", bad[i].text);
        if (parse(text, *state, &d)) fail_msg("accepted: %s", bad[i].text);
        assert_int_equal(d.n_errors, 1);
        assert_string_equal(d.items.at[0].rule, "plan-syntax");
        assert_int_equal(d.items.at[0].fault, FAULT_input);
        assert_string_equal(d.items.at[0].loc.file, "test.plan");
        if (!strstr(d.items.at[0].text, bad[i].says))
            fail_msg("%s is said of %s", d.items.at[0].text, bad[i].text);
        assert_int_equal(d.items.at[0].loc.line, bad[i].line);
    }
    Diag d = diag_in(*state);
    assert_null(parse("", *state, &d));
    assert_null(parse("return plan {}\n", *state, &d));
    assert_int_equal(d.n_errors, 2);
}

/* A text of another version gets another error than a text that is no plan. */
static void texts_of_other_versions_are_named(void **state)
{
    static const char *const headers[] = {"tandem plan 1", "tandem plan 2", "tandem plan 4",
                                          "tandem plan 33"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        Diag d = diag_in(*state);
        assert_null(parse(arena_print(*state, "%s\nplan\n", headers[i]), *state, &d));
        assert_null(parse(headers[i], *state, &d)); /* the text ends after the header */
        assert_int_equal(d.n_errors, 2);
        for (int k = 0; k < 2; k++) {
            const char *says = d.items.at[k].text;
            /* quotes no other line */
            const char *only = arena_print(*state, " at '%s'", headers[i]);
            if (strstr(says, "this version of Tandem reads \"" TEXT_HEADER_LINE "\"") == NULL ||
                strstr(says, only) == NULL)
                fail_msg("%s is said of %s", says, headers[i]);
            assert_non_null(strstr(d.items.at[k].hint, "show PLAN --text"));
        }
    }
}

/* Earlier texts stated fields that other fields determine. Such a field is refused by its name, so
 * that nobody believes that changing it has an effect. */
static void unwritten_fields_are_refused(void **state)
{
    uint32_t n = 0;
    for (int k = 0; k < RECORD_program; k++) {
        const Record *r = text_record((TextRecordKind)k);
        const bool single =
            k == RECORD_plan || k == RECORD_step || k == RECORD_model || k == RECORD_graph;
        for (uint32_t i = 0; i < r->n_fields; i++) {
            const TextField *f = &r->fields[i];
            if (text_is_written(f)) continue;
            Diag d = diag_in(*state);
            const char *head = single             ? ""
                               : k == RECORD_axis ? " 0"
                               : k == RECORD_node ? " 1 silu"
                                                  : " 1";
            const char *text =
                arena_print(*state, TEXT_HEADER "%s%s %s=1\n", r->word, head, text_field_name(f));
            assert_null(parse(text, *state, &d));
            const char *says = arena_print(
                *state, "%s.%s: a text must not state it, because %s", r->word, text_field_name(f),
                f->trust == TRUST_derived ? "other fields" : "only passes");
            if (strstr(d.items.at[0].text, says) == NULL)
                fail_msg("%s is said of %s", d.items.at[0].text, text);
            assert_int_equal(d.items.at[0].loc.line, 2);
            n++;
        }
    }
    assert_true(n > 20);
}

/* Calls functions that read a plan. They must be safe for whatever the parser accepts. */
static void look_at(const Plan *plan, Arena *arena)
{
    Str out = str_in(arena);
    text_show(plan, UINT32_MAX, arena, &out);
    graph_print(&plan->graph, &plan->mesh, &out);
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        for (Pc pc = 1; pc < p->code.n; pc++) {
            Binding b;
            int64_t size['z' + 1], start['z' + 1], valid['z' + 1];
            plan_bind(plan, p, &p->code.at[pc], plan->mesh.n_ranks - 1, &b, size, start, valid);
            plan_comm_bytes(plan, p, &p->code.at[pc]);
        }
    }
    for (NodeId n = 1; n < plan->graph.nodes.n; n++) {
        Binding b;
        graph_bind(&plan->graph, &plan->graph.nodes.at[n], &b, NULL);
    }
}

static size_t below(uint64_t stream, uint64_t *draw, size_t n)
{
    return (size_t)rng_below(20240607, stream, (*draw)++, n ? n : 1);
}

/* Changes, inserts, deletes, repeats or swaps a few bytes, numbers or lines. */
static size_t damage(char *text, size_t n, size_t room, uint64_t stream)
{
    static const char alphabet[] = "0123456789-,:=>[]%\"\\ \nabmtxyz.\0\377";
    uint64_t draw = 0;
    for (size_t k = 1 + below(stream, &draw, 4); k > 0; k--) {
        size_t at = below(stream, &draw, n), kind = below(stream, &draw, 6);
        size_t length = 1 + below(stream, &draw, kind < 3 ? 2 : 40);
        if (at + length > n) length = n - at;
        if (kind == 0) {
            text[at] = alphabet[below(stream, &draw, sizeof alphabet - 1)];
        } else if (kind == 1) {
            text[at] = (char)(text[at] ^ 1 << below(stream, &draw, 8));
        } else if (kind == 2 && text[at] >= '0' && text[at] <= '9') {
            text[at] = '9';
        } else if (kind == 3) { /* delete */
            memmove(text + at, text + at + length, n - at - length);
            n -= length;
        } else if (n + length <= room) { /* repeats these bytes here or a little later */
            size_t to = kind == 4 ? at : below(stream, &draw, n);
            char piece[64];
            memcpy(piece, text + at, length);
            memmove(text + to + length, text + to, n - to);
            memcpy(text + to, piece, length);
            n += length;
        }
        if (n == 0) return 0;
    }
    return n;
}

static void the_parser_survives_damaged_texts(void **state)
{
    const char *sources[2] = {print(plans_everything(*state), *state),
                              print(plans_linear(*state), *state)};
    Arena *arena = arena_new();
    uint32_t n_accepted = 0;
    char *text = malloc(16384);
    for (uint64_t i = 0; i < 20000; i++) {
        arena_reset(arena);
        Diag d = diag_in(arena);
        size_t n = strlen(sources[i & 1]);
        assert_true(n < 8192);
        memcpy(text, sources[i & 1], n);
        n = damage(text, n, 16384, i);
        /* There is no byte after the end, so that a read past it is found. */
        char *exact = malloc(n ? n : 1);
        memcpy(exact, text, n);
        Plan *plan = text_parse("damaged.plan", exact, n, arena, &d);
        free(exact);
        assert_int_equal(plan == NULL, d.n_errors == 1);
        if (!plan) continue;
        n_accepted++;
        look_at(plan, arena);
        const char *once = print(plan, arena);
        Diag d2 = diag_in(arena);
        Plan *twice = parse(once, arena, &d2);
        assert_non_null(twice);
        assert_string_equal(print(twice, arena), once);
    }
    free(text);
    arena_free(arena);
    assert_true(n_accepted > 200 &&
                /* the damage must be harmless in some texts and fatal in others */
                n_accepted < 15000);
}

static void instructions_print_for_people(void **state)
{
    Plan *plan = plans_linear(*state);
    Str out = str_in(*state);
    text_instr(plan, &plan->programs.at[0], 1, *state, &out);
    assert_string_equal(str_text(&out), "     1 compute      linear           %1[4,8,16] f32 "
                                        "%2[16,16] f32 -> %3[4,8,16] f32  mb0 fwd");
    out = str_in(*state);
    text_instr(plan, &plan->programs.at[0], 3, *state, &out);
    assert_string_equal(str_text(&out), "     3 tp           all_reduce       tp %5 -> %6 2048 "
                                        "reduce 1  after 2  match 1  mb0 fwd");
    out = str_in(*state);
    text_show(plan, 0, *state, &out);
    assert_non_null(strstr(str_text(&out), "program 0  train  stage 0  ranks 0-1  bytes 2048"));
    assert_non_null(strstr(str_text(&out), "gradient              1 buffers"));
    Plan *all = plans_everything(*state);
    out = str_in(*state);
    text_show(all, 1, *state, &out);
    assert_non_null(strstr(str_text(&out), "program 1  gather  stage 0  ranks 3,6-7  bytes"));
    assert_non_null(strstr(str_text(&out), "dp_shard.0 hop -1"));
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* This is the size of 405B on 16,384 GPUs: 150,000 instructions and 300,000 buffers. */
static void a_large_plan_is_printed_and_parsed_quickly(void **state)
{
    Plan *plan = plans_new(*state, NULL);
    Program *p = plans_program(plan);
    for (uint32_t i = 0; i < 150000; i++) {
        BufferId a = plans_flat(plan, p, 1 + i % 50, DT_bf16, CATEGORY_activation);
        BufferId b = plans_flat(plan, p, 1 + i % 50, DT_bf16, CATEGORY_activation);
        p->buffers.at[a].offset = (uint64_t)i << 20;
        p->buffers.at[b].microbatch = i % 8;
        plans_instr(plan, p,
                    &(PlansInstr){.op = OP_scale,
                                  .stream = STREAM_compute,
                                  .in = {a},
                                  .out = {b},
                                  .after = {i},
                                  .attrs = {.scale = 1 + i % 100}});
    }
    text_derive(plan);
    double start = seconds();
    const char *text = print(plan, *state);
    double printed = seconds();
    Diag d = diag_in(*state);
    Plan *back = parse(text, *state, &d);
    double parsed = seconds();
    assert_non_null(back);
    assert_true(plans_equal(plan, back));
    print_message("%zu bytes: printed in %.3f s, parsed in %.3f s\n", strlen(text), printed - start,
                  parsed - printed);
    assert_true(parsed - start < 10); /* a release build takes a quarter of a second */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_plan_reads_back_as_it_was_printed, setup, teardown),
        cmocka_unit_test_setup_teardown(compiled_plans_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(the_smallest_plan_has_this_exact_text, setup, teardown),
        cmocka_unit_test_setup_teardown(names_and_locations_do_not_change_the_id, setup, teardown),
        cmocka_unit_test_setup_teardown(the_id_changes_exactly_with_the_text, setup, teardown),
        cmocka_unit_test(tables_of_fields_cover_every_byte),
        cmocka_unit_test_setup_teardown(bad_texts_are_refused_with_their_line, setup, teardown),
        cmocka_unit_test_setup_teardown(texts_of_other_versions_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(unwritten_fields_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(the_parser_survives_damaged_texts, setup, teardown),
        cmocka_unit_test_setup_teardown(instructions_print_for_people, setup, teardown),
        cmocka_unit_test_setup_teardown(a_large_plan_is_printed_and_parsed_quickly, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
