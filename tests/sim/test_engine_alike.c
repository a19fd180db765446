/* An instruction that does the same work as an earlier one can take over its costs. The test
 * prepares programs with and without this short cut, and all times and sizes must be equal. It then
 * changes one field after the other, so that two instructions no longer do the same work. It also
 * checks where the members of communications meet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "planner/base/rng.h"
#include "session/session.h"
#include "sim/engine_alike.h"
#include "sim/engine_private.h"
#include "sim/runtime/runtime.h"

typedef struct Case {
    Arena *arena;
    Diag d;
    PlanFile *file;
    Plan *plan;
} Case;

static void open_case(Case *c, const char *script, const char *const *set, uint32_t n_set)
{
    c->arena = arena_new();
    c->d = diag_in(c->arena);
    const char *path = arena_print(c->arena, "%s/scripts/plans/%s", TANDEM_SOURCE_DIR, script);
    const PlanOptions options = {.set = set, .n_set = n_set, .unproven = true, .unfitted = true};
    c->file = session_load(path, &options, c->arena, &c->d);
    if (c->file == NULL) fail_msg("%s: %s", path, c->d.items.at[0].text);
    c->plan = c->file->plan;
}

static Code *prepare(Case *c, bool by_shape, Arena *arena)
{
    const Cluster *cluster = &c->file->config.cluster;
    CostModel model =
        cost_model(cost_new(cluster, &c->file->config.runtime, NULL, NULL, arena, &c->d));
    assert_true(model.by_shape);
    model.by_shape = by_shape;
    model.waits_messages = runtime_waits_messages(&c->file->config.runtime, c->plan);
    EngineOptions options = {.cost = &model};
    options.fold =
        fold_ranks(c->plan, cluster->devices_per_node, cluster->nics_per_node, false, arena);
    Code *codes = arena_array(arena, c->plan->programs.n, sizeof *codes);
    assert_true(engine_compile(c->plan, &options, arena, codes, &c->d) != UINT32_MAX);
    return codes;
}

static void same_comm(const SimComm *x, const SimComm *y)
{
    assert_true(x->op == y->op && x->axes == y->axes && x->axis_set == y->axis_set);
    assert_true(x->hop == y->hop && x->match == y->match && x->slot == y->slot);
    assert_true(x->bytes == y->bytes && x->dtype == y->dtype && x->layer == y->layer);
    assert_true(x->registered == y->registered && x->back == y->back);
}

static void same_code(const Code *x, const Code *y)
{
    assert_int_equal(x->n, y->n);
    assert_int_equal(x->comms.n, y->comms.n);
    assert_int_equal(x->bursts.n, y->bursts.n);
    for (Pc pc = 1; pc < x->n; pc++) {
        const Step *a = &x->step[pc], *b = &y->step[pc];
        if (a->duration != b->duration || a->issued != b->issued)
            fail_msg("instruction %u: takes %lld or %lld ps, issued at %lld or %lld ps", pc,
                     (long long)a->duration, (long long)b->duration, (long long)a->issued,
                     (long long)b->issued);
        assert_true(a->burst == b->burst && a->lets == b->lets && a->layer == b->layer);
        assert_true(a->left_out == b->left_out && a->on_host == b->on_host && a->comm == b->comm);
        assert_int_equal(x->need[pc], y->need[pc]);
        if (a->comm != 0) same_comm(&x->comms.at[a->comm], &y->comms.at[b->comm]);
    }
    for (uint32_t i = 0; i < x->bursts.n; i++)
        assert_true(x->bursts.at[i].length == y->bursts.at[i].length);
}

/* Prepares the case both ways and compares. Returns the fraction of instructions that took over the
 * costs of another. */
static double compare(Case *c)
{
    Arena *arena = arena_new();
    const Code *with = prepare(c, true, arena), *without = prepare(c, false, arena);
    double alike = 0, all = 0;
    for (uint32_t i = 0; i < c->plan->programs.n; i++) {
        same_code(&with[i], &without[i]);
        assert_int_equal(without[i].n_alike, 0);
        alike += with[i].n_alike;
        all += with[i].n - 1;
    }
    arena_free(arena);
    return alike / all;
}

#define SET(...)                                                                                   \
    (const char *const[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)
static const struct {
    const char *script;
    const char *const *set;
    uint32_t n_set;
    double least; /* at least this fraction of the instructions takes over costs */
} cases[] = {
    {"llama3_8b.lua", SET("batch.global=64"), .8},
    {"llama3_8b.lua", SET("runtime=torchtitan"), .6},
    {"llama3_8b.lua", SET("runtime=megatron"), .6},
    {"llama3_70b_pp.lua", SET("runtime=torchtitan"), .8},
    {"llama3_70b_pp.lua", SET("runtime=megatron"), .8},
    {"mixtral_8x7b.lua", SET("runtime=megatron"), .3},
    {"wxformer_domain.lua", NULL, 0, .1},
};

static void shared_costs_equal_computed_costs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Case c;
        open_case(&c, cases[i].script, cases[i].set, cases[i].n_set);
        const double alike = compare(&c);
        if (alike < cases[i].least) fail_msg("case %zu: only %.2f are alike", i, alike);
        arena_free(c.arena);
    }
}

/* Changes a field of an instruction or of a buffer. Instructions of equal work may differ in this
 * field. */
static void change(Case *c, uint64_t drawn)
{
    Program *p = &c->plan->programs.at[drawn % c->plan->programs.n];
    const Pc pc = 1 + (Pc)((drawn >> 8) % (p->code.n - 1));
    Instr *in = &p->code.at[pc];
    Buffer *b = in->args.n > 0 ? &p->buffers.at[program_arg(p, in, 0)] : &p->buffers.at[1];
    switch ((drawn >> 40) % 8) {
    case 0: b->bytes /= 2; break;
    case 1: b->category = CATEGORY_gathered; break;
    case 2: b->unit = b->unit ? 0 : 1; break;
    case 3: b->space = SPACE_host; break;
    case 4: in->unit = in->unit ? 0 : 1; break;
    case 5: in->microbatch = 0; break;
    case 6: in->phase = in->phase == PHASE_forward ? PHASE_backward : PHASE_forward; break;
    default: b->shape = p->buffers.at[1 + (drawn >> 20) % (p->buffers.n - 1)].shape;
    }
}

static void changed_work_gets_its_own_cost(void **state)
{
    (void)state;
    static const char *const runtimes[] = {"runtime=none", "runtime=torchtitan",
                                           "runtime=megatron"};
    for (uint32_t r = 0; r < 3; r++) {
        Case c;
        open_case(&c, "llama3_8b.lua", &runtimes[r], 1);
        for (uint32_t i = 0; i < 40; i++) {
            for (uint32_t k = 0; k < 8; k++) change(&c, rng_u64(20261128, r, 8 * i + k));
            compare(&c);
        }
        arena_free(c.arena);
    }
}

/* ---- one field after the other */

static Ps issue_none(const void *self, const Plan *plan, const Program *p, const Instr *in)
{
    (void)self, (void)plan, (void)p, (void)in;
    return 0;
}

/* How instruction 4 differs from instruction 2, or instruction 3 from instruction 1. */
typedef enum Differs {
    DIFFERS_nothing,
    DIFFERS_op,
    DIFFERS_attrs,
    DIFFERS_phase,
    DIFFERS_axes,
    DIFFERS_stream,
    DIFFERS_hop,
    DIFFERS_n_in,
    DIFFERS_n_args,
    DIFFERS_unit,
    DIFFERS_microbatch,
    DIFFERS_no_origin,
    DIFFERS_fuse,
    DIFFERS_earlier_fuse,
    DIFFERS_shape,
    DIFFERS_dtype,
    DIFFERS_bytes,
    DIFFERS_space,
    DIFFERS_category,
    DIFFERS_buffer_unit,
    DIFFERS_neighbours, /* both are OP_pack, whose cost depends on the neighbouring instructions */
    DIFFERS_origin,     /* from here on, fields matter only under a framework's profile */
    DIFFERS_phase_before,
    DIFFERS_microbatch_before,
    DIFFERS_COUNT
} Differs;

static void set_difference(Program *p, Differs differs)
{
    Instr *x = &p->code.at[2], *before = &p->code.at[3], *y = &p->code.at[4];
    Buffer *b = &p->buffers.at[2];
    switch (differs) {
    case DIFFERS_nothing: break;
    case DIFFERS_op: y->op = OP_copy; break;
    case DIFFERS_attrs: y->attrs++; break;
    case DIFFERS_phase: y->phase = PHASE_backward; break;
    case DIFFERS_axes: y->axes++; break;
    case DIFFERS_stream: y->stream = STREAM_copy_in; break;
    case DIFFERS_hop: y->hop++; break;
    case DIFFERS_n_in: y->n_in--; break;
    case DIFFERS_n_args: y->args.n--; break;
    case DIFFERS_unit: y->unit = 1; break;
    case DIFFERS_microbatch: y->microbatch = before->microbatch = 0; break;
    case DIFFERS_no_origin: y->origin = 0; break;
    case DIFFERS_fuse: y->fuse = 1; break;
    case DIFFERS_earlier_fuse: x->fuse = 1; break;
    case DIFFERS_shape: b->shape++; break;
    case DIFFERS_dtype: b->dtype = DT_f32; break;
    case DIFFERS_bytes: b->bytes++; break;
    case DIFFERS_space: b->space = SPACE_host; break;
    case DIFFERS_category: b->category = CATEGORY_gathered; break;
    case DIFFERS_buffer_unit: b->unit = 1; break;
    case DIFFERS_neighbours: x->op = y->op = OP_pack; break;
    case DIFFERS_origin: y->origin++; break;
    case DIFFERS_phase_before: before->phase = PHASE_backward; break;
    case DIFFERS_microbatch_before: before->microbatch++; break;
    case DIFFERS_COUNT: break;
    }
}

/* Instructions 1 and 3 do other work than 2 and 4. Buffer 1 is the argument of instruction 2,
 * buffer 2 that of instruction 4. Returns the earlier instruction whose costs instruction 4 takes
 * over. */
static Pc found(Differs differs, bool profile)
{
    Arena *arena = arena_new();
    Program p = {0};
    list_add(arena, &p.code);
    for (BufferId b = 0; b < 3; b++)
        list_push(arena, &p.buffers,
                  ((Buffer){.shape = 1, .dtype = DT_bf16, .bytes = 8, .category = CATEGORY_input}));
    for (Pc pc = 1; pc <= 4; pc++) {
        const BufferId b = pc / 2;
        const Instr in = {.op = pc % 2 ? OP_fill : OP_cast,
                          .stream = STREAM_compute,
                          .phase = PHASE_forward,
                          .microbatch = 1,
                          .n_in = 1,
                          .origin = 1 + pc % 2,
                          .args = {p.args.n, 2}};
        list_push(arena, &p.args, pc % 2 ? 0 : b);
        list_push(arena, &p.args, pc % 2 ? 0 : b);
        list_push(arena, &p.code, in);
    }
    set_difference(&p, differs);
    const CostModel model = {.issue = profile ? issue_none : NULL, .by_shape = true};
    AlikeSearch *search = arena_alloc(arena, sizeof *search);
    alike_begin(search, &p, &model, arena);
    Pc of = 0;
    for (Pc pc = 1; pc <= 4; pc++) of = alike_find(search, pc);
    arena_free(arena);
    return of;
}

static void every_field_of_the_work_is_compared(void **state)
{
    (void)state;
    for (int profile = 0; profile < 2; profile++)
        for (Differs differs = DIFFERS_nothing; differs < DIFFERS_COUNT; differs++) {
            const bool matters =
                differs != DIFFERS_nothing && (profile || differs < DIFFERS_origin);
            const Pc of = found(differs, profile);
            if (of != (matters ? 0 : 2))
                fail_msg("difference %d, profile %d: found %u", (int)differs, profile, of);
        }
}

/* ---- slots */

/* What meets at a slot. */
typedef struct Meeting {
    uint32_t match, axes, group;
} Meeting;

/* Members of one group meet at one slot, and no other communication uses it. */
static void check_slots(Case *c)
{
    const Cluster *cluster = &c->file->config.cluster;
    const Fold *fold =
        fold_ranks(c->plan, cluster->devices_per_node, cluster->nics_per_node, true, c->arena);
    const CostModel model = {.compute = issue_none};
    const EngineOptions options = {.cost = &model, .fold = fold};
    Code *codes = arena_array(c->arena, c->plan->programs.n, sizeof *codes);
    const uint32_t n = engine_compile(c->plan, &options, c->arena, codes, &c->d);
    assert_true(n != UINT32_MAX);
    Meeting *at = arena_array(c->arena, n, sizeof *at);
    uint32_t n_used = 0;
    for (uint32_t class_ = 0; class_ < fold->n_classes; class_++) {
        const Code *code = &codes[c->plan->program_of[fold->rank_of[class_]]];
        for (uint32_t i = 1; i < code->comms.n; i++) {
            const SimComm *comm = &code->comms.at[i];
            if (comm->axes == UINT32_MAX) continue;
            const uint32_t group = fold->axes.at[comm->axes].group_of[class_],
                           slot = comm->slot + group - comm->first_group;
            assert_true(slot < n);
            Meeting *m = &at[slot];
            n_used += m->match == 0;
            if (m->match == 0) *m = (Meeting){comm->match, comm->axes, group};
            assert_true(m->match == comm->match && m->axes == comm->axes && m->group == group);
        }
    }
    assert_true(n_used > n / 2);
}

static void each_group_has_its_own_slots(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        Case c;
        open_case(&c, "llama3_70b_pp.lua", SET("batch.global=16"));
        /* stages may use equal numbers, because their ranks are in different groups */
        for (uint32_t i = 0; shared && i < c.plan->programs.n; i++)
            for (Pc pc = 1, match = c.plan->n_match; pc < c.plan->programs.at[i].code.n; pc++) {
                Instr *in = &c.plan->programs.at[i].code.at[pc];
                const bool own = (in->axes & mesh_axes(&c.plan->mesh, AXIS_pp)) == 0;
                if (in->match != 0 && own) in->match = match++;
            }
        check_slots(&c);
        arena_free(c.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shared_costs_equal_computed_costs),
                                       cmocka_unit_test(changed_work_gets_its_own_cost),
                                       cmocka_unit_test(every_field_of_the_work_is_compared),
                                       cmocka_unit_test(each_group_has_its_own_slots)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
