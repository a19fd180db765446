/* A step of many micro-batches may be computed from a few. The result must equal a simulation of
 * all micro-batches, to the picosecond and to the byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "planner/base/rng.h"
#include "planner/lower/expand.h"
#include "planner/verify/verify.h"
#include "session/session.h"
#include "tests/support/sample.h"

enum { MOST_SET = 8 };

typedef struct Tally {
    uint32_t compared, aperiodic, lengthened;
    uint32_t repeated; /* periods that were copied from the period before */
} Tally;

static PlanFile *simulate(const Config *config, const Graph *graph, const PlanOptions *o,
                          Arena *arena, const char *name, SimReport *report)
{
    Diag d = diag_in(arena);
    Graph *own = arena_alloc(arena, sizeof *own);
    *own = graph_copy(graph, arena);
    const SimOptions how = {.steps = 1, .exact = o->fewer == 0};
    PlanFile *file = session_compile(config, own, o, arena, &d);
    if (file == NULL || !session_simulate(file, &config->cluster, &how, arena, report, &d))
        fail_msg("%s: %s", name, d.items.n > 0 ? d.items.at[0].text : "no plan");
    if (!o->unplaced && o->fewer > 0 && !report->aperiodic)
        assert_true(verify_plan(file->plan, VERIFY_all, false, &d));
    return file;
}

static void same_collectives(const SimReport *a, const SimReport *b)
{
    assert_int_equal(a->collectives.n, b->collectives.n);
    for (uint32_t i = 0; i < a->collectives.n; i++) {
        const CollectiveRow *x = &a->collectives.at[i], *y = &b->collectives.at[i];
        assert_int_equal(x->op, y->op);
        assert_string_equal(x->axes, y->axes);
        assert_string_equal(x->stream, y->stream);
        assert_int_equal(x->bytes, y->bytes);
        assert_int_equal(x->n, y->n);
        assert_int_equal(x->total_ps, y->total_ps);
        assert_int_equal(x->exposed_ps, y->exposed_ps);
    }
    assert_int_equal(a->axes.n, b->axes.n);
    for (uint32_t i = 0; i < a->axes.n; i++)
        assert_memory_equal(&a->axes.at[i], &b->axes.at[i], sizeof a->axes.at[i]);
}

static void same_memory(const SimReport *a, const SimReport *b)
{
    assert_int_equal(a->peak_bytes, b->peak_bytes);
    assert_int_equal(a->total_bytes, b->total_bytes);
    assert_int_equal(a->peak_rank, b->peak_rank);
    assert_int_equal(a->fits, b->fits);
    assert_memory_equal(a->memory, b->memory, sizeof a->memory);
    assert_int_equal(a->memory_rows.n, b->memory_rows.n);
    for (uint32_t i = 0; i < a->memory_rows.n; i++) {
        assert_int_equal(a->memory_rows.at[i].category, b->memory_rows.at[i].category);
        assert_int_equal(a->memory_rows.at[i].bytes, b->memory_rows.at[i].bytes);
    }
    assert_int_equal(a->held.allocated_bytes, b->held.allocated_bytes);
    assert_int_equal(a->held.reserved_bytes, b->held.reserved_bytes);
    assert_int_equal(a->held.process_bytes, b->held.process_bytes);
}

/* Returns true if the attributes are equal except for the scale: the loss of the shorter step has
 * another divisor. */
static bool same_attrs(const Plan *a, AttrsId x, const Plan *b, AttrsId y)
{
    const Attrs *s = graph_attrs_at(&a->graph, x), *t = graph_attrs_at(&b->graph, y);
    for (uint32_t i = 0; i < ATTRS; i++)
        if (i != ATTR_scale && attr_get(s, i) != attr_get(t, i)) return false;
    return true;
}

#define EQUAL_SAME(field)                    &&x->field == y->field
#define EQUAL_ZERO                           EQUAL_SAME
#define EQUAL_OWN                            EQUAL_SAME
#define EQUAL_LIST(field)                    &&x->field.n == y->field.n
#define EQUAL(key, field, form, trust, next) EQUAL_##next(field)

static bool same_instr(const Plan *a, const Program *p, const Plan *b, const Program *q, Pc pc)
{
    const Instr *y = &q->code.at[pc];
    Instr own = p->code.at[pc], *x = &own;
    for (uint32_t i = 0; i < x->args.n && x->args.n == y->args.n; i++)
        if (program_arg(p, x, i) != program_arg(q, y, i)) return false;
    for (uint32_t i = 0; i < x->after.n && x->after.n == y->after.n; i++)
        if (p->after.at[x->after.first + i] != q->after.at[y->after.first + i]) return false;
    if (same_attrs(a, x->attrs, b, y->attrs)) x->attrs = y->attrs;
#define INSTR      EQUAL
#define INSTR_WORD EQUAL
    return x->n_in == y->n_in
#include "planner/ir/program.def"
        ;
}

/* Compares the offsets of views, but not of roots, which have no offsets in the lengthened
 * programs. */
static bool same_buffer(const Buffer *longer, const Buffer *y)
{
    Buffer own = *longer, *x = &own;
    if (x->parent == 0) x->offset = y->offset;
#define BUFFER      EQUAL
#define BUFFER_WORD EQUAL
    return true
#include "planner/ir/program.def"
        ;
}

/* Checks that the lengthened programs are those that lowering makes for all micro-batches. */
static void same_programs(const Plan *longer, const Plan *all, const char *name)
{
    assert_int_equal(longer->programs.n, all->programs.n);
    assert_int_equal(longer->n_match, all->n_match);
    assert_int_equal(longer->step.n_microbatches, all->step.n_microbatches);
    assert_int_equal(longer->step.global_batch, all->step.global_batch);
    assert_true(longer->step.global_tokens == all->step.global_tokens);
    for (uint32_t i = 0; i < all->programs.n; i++) {
        const Program *p = &longer->programs.at[i], *q = &all->programs.at[i];
        if (p->code.n != q->code.n || p->buffers.n != q->buffers.n)
            fail_msg("%s: program %u has %u instructions and %u buffers instead of %u and %u", name,
                     i, p->code.n, p->buffers.n, q->code.n, q->buffers.n);
        for (Pc pc = 1; pc < q->code.n; pc++)
            if (!same_instr(longer, p, all, q, pc))
                fail_msg("%s: program %u: instruction %u differs", name, i, pc);
        for (BufferId b = 1; b < q->buffers.n; b++)
            if (!same_buffer(&p->buffers.at[b], &q->buffers.at[b]))
                fail_msg("%s: program %u: buffer %u differs", name, i, b);
    }
}

/* Compares both ways, unless the step has few micro-batches. With by_period, the time of a pipeline
 * comes from its period, and only times are compared. */
static void compare(const char *path, const char *const *set, uint32_t n_set, bool by_period,
                    Tally *tally)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const PlanOptions o = {.set = set, .n_set = n_set};
    Config config;
    Graph graph;
    char name[512] = "";
    for (uint32_t i = 0; i < n_set; i++)
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s ", set[i]);
    if (!session_read(path, &o, arena, &config, &graph, &d))
        fail_msg("%s %s: %s", path, name, d.items.at[0].text);
    const bool placed = !by_period;
    PlanOptions how = {.unproven = true,
                       .unplaced = by_period,
                       .fewer = session_fewer(&config, by_period),
                       .by_period = by_period};
    if (how.fewer == 0) {
        arena_free(arena);
        return;
    }
    SimReport all, few;
    const PlanFile *shorter = simulate(&config, &graph, &how, arena, name, &few);
    how.fewer = 0;
    const PlanFile *whole = simulate(&config, &graph, &how, arena, name, &all);
    if (shorter->whole != NULL) {
        same_programs(shorter->whole, whole->plan, name);
        tally->lengthened++;
        uint32_t n_repeated;
        assert_non_null(
            plan_expand(shorter->plan, whole->plan->step.n_microbatches, arena, &n_repeated));
        tally->repeated += n_repeated;
        if (!verify_plan(whole->plan, VERIFY_all, false, &d))
            fail_msg("%s: %s", name, d.items.at[0].text);
    }
    tally->compared++;
    tally->aperiodic += few.aperiodic;
    if (!few.aperiodic) {
        if (few.step_ps != all.step_ps)
            fail_msg("%s %s: %lld ps from few, %lld from all", path, name, (long long)few.step_ps,
                     (long long)all.step_ps);
        assert_int_equal(few.compute_ps, all.compute_ps);
        assert_int_equal(few.exposed_ps, all.exposed_ps);
        assert_int_equal(few.idle_ps, all.idle_ps);
        assert_int_equal(few.host_ps, all.host_ps);
        assert_int_equal(few.slowest, all.slowest);
        assert_int_equal(few.n_events, all.n_events);
        assert_true(few.tokens_per_s == all.tokens_per_s);
        assert_true(few.mfu == all.mfu);
        assert_memory_equal(&few.counts, &all.counts, sizeof few.counts);
        same_collectives(&few, &all);
        if (placed && few.peak_bytes != all.peak_bytes)
            fail_msg("%s %s: %llu bytes from few, %llu from all", path, name,
                     (unsigned long long)few.peak_bytes, (unsigned long long)all.peak_bytes);
        if (placed) same_memory(&few, &all);
    }
    arena_free(arena);
}

/* Chooses one of the texts that '|' separates. An empty text sets nothing. */
static void choose(uint64_t seed, uint64_t index, const char *texts, char into[64],
                   const char **set, uint32_t *n)
{
    uint32_t count = 1;
    for (const char *c = texts; *c != 0; c++) count += *c == '|';
    for (uint32_t skip = (uint32_t)rng_below(seed, 0, index, count); skip > 0; skip--)
        texts = strchr(texts, '|') + 1;
    const size_t length = strcspn(texts, "|");
    assert_true(length < 64 && *n < MOST_SET);
    memcpy(into, texts, length);
    into[length] = 0;
    if (length > 0) set[(*n)++] = into;
}

static void compare_random(const char *path, const char *const *choices, uint64_t seed,
                           bool by_period, Tally *tally)
{
    char text[MOST_SET][64];
    const char *set[MOST_SET];
    uint32_t n = 0;
    for (uint32_t i = 0; choices[i] != NULL; i++) choose(seed, i, choices[i], text[i], set, &n);
    compare(path, set, n, by_period, tally);
}

static void steps_with_accumulated_gradients_follow_from_few(void **state)
{
    (void)state;
    static const char *const llama[] = {
        "mesh.dp_shard=-1",
        "model.layers=8",
        "mesh.tp=1|mesh.tp=2|mesh.tp=4|mesh.tp=8",
        "batch.global=128|batch.global=192|batch.global=256",
        "parallel.ac=none|parallel.ac=selective|parallel.ac=full",
        "|parallel.fsdp2.reshard_after_forward=false|parallel.fsdp2.defer_grad_sync=true",
        "|runtime=torchtitan|runtime=megatron|runtime=deepspeed",
        "|precision.reduce=bf16",
        NULL};
    static const char *const mixtral[] = {"batch.global=256|batch.global=512",
                                          "parallel.ac=none|parallel.ac=full", NULL};
    static const char *const gpt2[] = {"batch.global=1024|batch.global=2048",
                                       "batch.micro=4|batch.micro=8", NULL};
    Tally tally = {0};
    for (uint64_t seed = 1; seed <= SAMPLE(24, 8); seed++)
        compare_random(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", llama, seed, false,
                       &tally);
    for (uint64_t seed = 1; seed <= SAMPLE(3, 1); seed++) {
        compare_random(TANDEM_SOURCE_DIR "/scripts/plans/mixtral_8x7b.lua", mixtral, seed, false,
                       &tally);
        compare_random(TANDEM_SOURCE_DIR "/scripts/plans/gpt2_1558m.lua", gpt2, seed, false,
                       &tally);
    }
    print_message("%u compared, %u of them aperiodic\n", tally.compared, tally.aperiodic);
    assert_true(tally.compared >= SAMPLE(25, 8));
    assert_true(8 * tally.aperiodic <= tally.compared);
}

/* The whole plan of this step once found other offsets than the short plan, and needed 1.1 % more
 * memory.
 */
static void the_whole_plan_needs_no_more_memory(void **state)
{
    (void)state;
    static const char *const set[] = {"mesh.dp_shard=-1", "mesh.tp=8",        "batch.global=256",
                                      "parallel.ac=none", "runtime=megatron", "model.layers=16"};
    Tally tally = {0};
    compare(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", set, 6, false, &tally);
    assert_int_equal(tally.compared, 1);
    assert_int_equal(tally.aperiodic, 0);
}

static void times_of_pipelines_follow_from_a_period(void **state)
{
    (void)state;
    static const char *const all[] = {
        "mesh.dp_shard=-1",
        "model.layers=16",
        "mesh.pp=2|mesh.pp=4",
        "mesh.tp=1|mesh.tp=2",
        "batch.global=128|batch.global=256",
        "parallel.ac=none|parallel.ac=full",
        "parallel.pp=1f1b|parallel.pp=interleaved_1f1b|parallel.pp=zb_h1|"
        "parallel.pp=dualpipe_v|parallel.pp=zb_v",
        NULL};
    static const char *const gpipe[] = {"mesh.dp_shard=-1", "mesh.pp=4", "mesh.tp=2",
                                        "batch.global=128", "parallel.pp=gpipe"};
    Tally tally = {0}, forward_first = {0};
    for (uint64_t seed = 1; seed <= SAMPLE(16, 6); seed++)
        compare_random(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", all, seed, true, &tally);
    print_message("%u compared, %u of them aperiodic\n", tally.compared, tally.aperiodic);
    assert_true(tally.compared >= SAMPLE(12, 4));
    assert_true(2 * tally.aperiodic <= tally.compared);
    /* A period of gpipe's forward work does not contain its backward work. */
    compare(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", gpipe, 5, true, &forward_first);
    assert_int_equal(forward_first.compared, 1);
    assert_int_equal(forward_first.aperiodic, 1);
}

/* Compares whole reports: programs, times and memory. */
static void lengthened_pipelines_equal_whole_ones(void **state)
{
    (void)state;
    static const char *const llama[] = {
        "mesh.dp_shard=-1",
        "parallel.pp=1f1b",
        "mesh.pp=2|mesh.pp=4|mesh.pp=8",
        "mesh.tp=1|mesh.tp=2",
        "batch.global=128|batch.global=192|batch.global=256",
        "parallel.ac=none|parallel.ac=selective|parallel.ac=full",
        "|parallel.fsdp2.reshard_after_forward=false|parallel.fsdp2.defer_grad_sync=true|"
        "parallel.zero.strategy=optim|parallel.zero.strategy=optim_grads",
        "|runtime=torchtitan|runtime=megatron|parallel.compile=true",
        NULL};
    static const char *const mixtral[] = {"mesh.dp_shard=-1",
                                          "parallel.pp=1f1b",
                                          "mesh.tp=1",
                                          "mesh.pp=2|mesh.pp=4",
                                          "batch.global=512|batch.global=1024",
                                          "parallel.ac=none|parallel.ac=full",
                                          NULL};
    static const char *const gpt2[] = {"mesh.dp_shard=-1",
                                       "parallel.pp=1f1b",
                                       "mesh.pp=2|mesh.pp=4",
                                       "batch.global=1024|batch.global=2048",
                                       "batch.micro=4|batch.micro=8",
                                       NULL};
    Tally tally = {0};
    for (uint64_t seed = 1; seed <= SAMPLE(24, 8); seed++)
        compare_random(TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua", llama, seed, false,
                       &tally);
    for (uint64_t seed = 1; seed <= SAMPLE(3, 1); seed++) {
        compare_random(TANDEM_SOURCE_DIR "/scripts/plans/mixtral_8x7b.lua", mixtral, seed, false,
                       &tally);
        compare_random(TANDEM_SOURCE_DIR "/scripts/plans/gpt2_1558m.lua", gpt2, seed, false,
                       &tally);
    }
    print_message("%u compared, %u of them aperiodic\n", tally.compared, tally.aperiodic);
    assert_true(tally.compared >= SAMPLE(15, 5));
    assert_int_equal(tally.lengthened, tally.compared - tally.aperiodic);
    assert_true(tally.repeated > 0);
    assert_true(2 * tally.aperiodic <= tally.compared);
}

/* Programs of other schedules have no period of this kind. If a part of them were copied, ranks
 * would wait for ever. */
static void other_schedules_are_not_lengthened(void **state)
{
    (void)state;
    static const char *const set[] = {"mesh.dp_shard=1",
                                      "parallel.fsdp2=none",
                                      "mesh.tp=8",
                                      "mesh.pp=8",
                                      "parallel.pp=interleaved_1f1b",
                                      "parallel.pp.chunks=5",
                                      "parallel.tp.sequence=true",
                                      "batch.global=32"};
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config;
    Graph graph;
    PlanOptions o = {.set = set, .n_set = 8, .unproven = true, .unplaced = true};
    const char *path = TANDEM_SOURCE_DIR "/scripts/plans/llama3_70b_pp.lua";
    if (!session_read(path, &o, arena, &config, &graph, &d)) fail_msg("%s", d.items.at[0].text);
    o.fewer = session_fewer(&config, true);
    assert_true(o.fewer > 0);
    assert_false(o.by_period);
    SimReport report;
    const PlanFile *file = simulate(&config, &graph, &o, arena, "interleaved", &report);
    assert_null(file->whole);
    assert_true(report.aperiodic || report.step_ps > 0);
    arena_free(arena);
}

typedef struct Place { /* the place of a field in its record */
    size_t at, size;
} Place;

/* Checks that the table's fields fill the record, except for bytes of alignment. A field that is
 * missing in the table leaves a gap, unless it fits into such bytes. */
static void expect_filled(const Place *fields, size_t n, size_t size, size_t aligned)
{
    size_t end = 0;
    for (size_t done = 0; done < n; done++) {
        const Place *next = NULL;
        for (size_t i = 0; i < n; i++)
            if (fields[i].at >= end && (next == NULL || fields[i].at < next->at)) next = &fields[i];
        assert_non_null(next);
        const size_t gap = next->at - end;
        if (gap > 0 && (gap >= next->size || next->at % next->size != 0))
            fail_msg("%zu bytes at %zu belong to no field of program.def", gap, end);
        end = next->at + next->size;
    }
    assert_true(size - end < aligned);
}

static void tables_of_fields_fill_their_records(void **state)
{
    (void)state;
#define PLACE(type, field)      {offsetof(type, field), sizeof(((type *)0)->field)},
#define BUFFER(key, field, ...) PLACE(Buffer, field)
#define BUFFER_WORD             BUFFER
    static const Place of_buffer[] = {
#include "planner/ir/program.def"
    };
#define INSTR(key, field, ...) PLACE(Instr, field)
#define INSTR_WORD             INSTR
    static const Place of_instr[] = {
        PLACE(Instr, n_in) /* derived from other fields, so the text leaves it out */
#include "planner/ir/program.def"
    };
    expect_filled(of_buffer, sizeof of_buffer / sizeof *of_buffer, sizeof(Buffer),
                  _Alignof(Buffer));
    expect_filled(of_instr, sizeof of_instr / sizeof *of_instr, sizeof(Instr), _Alignof(Instr));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_of_fields_fill_their_records),
        cmocka_unit_test(steps_with_accumulated_gradients_follow_from_few),
        cmocka_unit_test(the_whole_plan_needs_no_more_memory),
        cmocka_unit_test(times_of_pipelines_follow_from_a_period),
        cmocka_unit_test(lengthened_pipelines_equal_whole_ones),
        cmocka_unit_test(other_schedules_are_not_lengthened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
