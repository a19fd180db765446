/* The state of ranks between steps, as checkpoints store it. In every plan of the corpus, the ranks
 * write each element of weights and moments exactly once. Other tests compare slices with hand-made
 * ones, and plant the faults by which sharded checkpoints lose parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/base/str.h"
#include "planner/ir/state/state.h"
#include "tests/support/corpus/corpus.h"
#include "tests/support/sample.h"
#include "tests/support/test_diag.h"

typedef struct Corpus {
    uint32_t n_seen, n_plans;
    uint64_t n_slices;
} Corpus;

static uint64_t elements(const Plan *plan, bool moments)
{
    uint64_t n = 0;
    for (TensorId t = 1; t < plan->graph.tensors.n; t++) {
        const Tensor *at = &plan->graph.tensors.at[t];
        uint64_t own = at->role == ROLE_param &&
                       !(moments && (at->frozen || graph_balances(&plan->graph, at)));
        for (int d = 0; d < at->n_dims; d++) own *= (uint64_t)at->dim[d];
        n += own;
    }
    return n;
}

/* Returns the place of element x of a slice in its buffer (state.h). */
static uint64_t place_of(const StateSlice *s, const int64_t *x)
{
    int64_t at = (int64_t)s->first;
    for (int d = 0; d < s->n_dims; d++)
        at += s->group_size > 0 && d == s->group_dim
                  ? x[d] / s->group_size * s->group_stride + x[d] % s->group_size * s->stride[d]
                  : x[d] * s->stride[d];
    return (uint64_t)at;
}

/* Checks that no two elements that a rank holds have the same place, and that all places are in
 * their buffers. */
static void have_their_own_places(const Plan *plan, const State *state, Arena *own)
{
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
        const Program *p = plan_program(plan, r);
        StateSlices slices = {0};
        state_of_rank(state, r, own, &slices);
        bool **taken = arena_array(own, p->buffers.n, sizeof *taken);
        for (uint32_t i = 0; i < slices.n; i++) {
            const StateSlice *s = &slices.at[i];
            const uint64_t room = p->buffers.at[s->buffer].bytes / dtype_bytes(s->dtype);
            if (taken[s->buffer] == NULL) taken[s->buffer] = arena_array(own, room, sizeof(bool));
            uint64_t n = 1;
            for (int d = 0; d < s->n_dims; d++) n *= (uint64_t)s->size[d];
            for (uint64_t k = 0; k < n; k++) {
                int64_t x[MAX_DIMS];
                uint64_t rest = k;
                for (int d = s->n_dims - 1; d >= 0; d--) {
                    x[d] = (int64_t)(rest % (uint64_t)s->size[d]);
                    rest /= (uint64_t)s->size[d];
                }
                const uint64_t at = place_of(s, x);
                if (at >= room || taken[s->buffer][at]) fail_msg("%s on rank %u", s->name, r);
                taken[s->buffer][at] = true;
            }
        }
    }
}

static void holds(void *self, const Tiny *t)
{
    Corpus *c = self;
    if (!is_sampled(c->n_seen++, 4)) return;
    Arena *own = arena_new();
    Diag d = diag_in(own);
    const Plan *plan = tiny_plan(t, false, own, &d);
    assert_non_null(plan);
    const State *state = state_of(plan, own);
    Str s = str_in(own);
    bool fine = state_check(state, &d);
    diag_print(&d, &s);
    if (!fine) fail_msg("%s\n%s", corpus_name(t, own), str_text(&s));
    have_their_own_places(plan, state, own);
    StateTotal total = state_total(state);
    uint64_t n = elements(plan, false);
    assert_int_equal(total.kind_bytes[STATE_param], 4 * n);
    n = elements(plan, true);
    assert_int_equal(total.kind_bytes[STATE_m], t->sgd ? 0 : 4 * n);
    assert_int_equal(total.kind_bytes[STATE_v], t->sgd ? 0 : 4 * n);
    assert_true(total.held_bytes >= total.written_bytes);
    if (plan->mesh.n_ranks == 1) assert_int_equal(total.held_bytes, total.written_bytes);
    c->n_plans++;
    c->n_slices += total.n_slices;
    arena_free(own);
}

static void every_element_is_written_once(void **state)
{
    (void)state;
    Corpus c = {0, 0, 0};
    corpus_each(holds, &c);
    assert_true(c.n_plans > SAMPLE(300, 75));
    print_message("%u plans, %llu slices\n", c.n_plans, (unsigned long long)c.n_slices);
}

/* ---- one plan, inspected ---- */

static const Plan *compile(const Tiny *t)
{
    const Plan *plan = tiny_plan(t, false, arena, &diag);
    assert_non_null(plan);
    return plan;
}

static StateSlices all_slices(const Plan *plan)
{
    const State *state = state_of(plan, arena);
    StateSlices slices = {0};
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) state_of_rank(state, r, arena, &slices);
    return slices;
}

/* Fused projections are stored by groups of heads, and a shard may end anywhere in them. */
static void shards_of_fused_projections_do_not_overlap(void **state)
{
    (void)state;
    for (uint32_t shards = 2; shards <= 7; shards++)
        for (int unequal = 0; unequal < 2; unequal++) {
            Tiny t = tiny_default();
            t.fused = true, t.unequal = unequal, t.repeat = 2;
            t.dp_shard = shards, t.tp = 2;
            const Plan *plan = compile(&t);
            have_their_own_places(plan, state_of(plan, arena), arena);
        }
}

/* wq of [12, 4, 1, 4] over tp 2 and 3 shards: each tp rank has [12, 2, 1, 4], 96 elements. The flat
 * unit is cut anywhere, so a shard has parts of rows as well as whole rows. */
static void slices_of_a_cut_tensor_cover_it_once(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.tp = 2, t.dp_shard = 3, t.layers = 1;
    const Plan *plan = compile(&t);
    StateSlices slices = all_slices(plan);
    uint64_t n[2] = {0, 0}, boxes = 0;
    for (uint32_t i = 0; i < slices.n; i++) {
        const StateSlice *s = &slices.at[i];
        if (strcmp(s->name, "layers.0.attention.wq.weight") || s->kind != STATE_param) continue;
        assert_true(s->writes);
        assert_int_equal(s->n_dims, 4);
        assert_int_equal(s->dim[1], 4);
        uint32_t half = mesh_part(&plan->mesh, s->rank, mesh_axes(&plan->mesh, AXIS_tp));
        assert_true(s->offset[1] >= 2 * (int64_t)half);
        assert_true(s->offset[1] + s->size[1] <= 2 * (int64_t)half + 2);
        n[half] += s->bytes / 4;
        boxes++;
    }
    assert_int_equal(n[0], 96);
    assert_int_equal(n[1], 96);
    assert_true(boxes >= 2);
}

/* Makes the first buffer with weights number 1, and moves the buffers before it up by one. */
static void renumber(Program *p)
{
    BufferId first = 2;
    while (p->buffers.at[first].category != CATEGORY_parameter) first++;
    const Buffer moved = p->buffers.at[first];
    for (BufferId b = first; b > 1; b--) p->buffers.at[b] = p->buffers.at[b - 1];
    p->buffers.at[1] = moved;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        BufferId *parent = &p->buffers.at[b].parent;
        if (*parent) *parent = *parent == first ? 1 : *parent + (*parent < first);
    }
}

static void numbers_of_buffers_do_not_matter(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.dp_shard = t.tp = 2;
    const Plan *plan = compile(&t);
    const StateSlices before = all_slices(plan);
    for (uint32_t i = 0; i < plan->programs.n; i++) renumber(&plan->programs.at[i]);
    const StateSlices after = all_slices(plan);
    assert_true(before.n > 100);
    assert_int_equal(after.n, before.n);
    for (uint32_t i = 0; i < before.n; i++) {
        const StateSlice *a = &before.at[i], *b = &after.at[i];
        assert_string_equal(a->name, b->name);
        assert_true(a->kind == b->kind && a->rank == b->rank && a->writes == b->writes);
        assert_memory_equal(a->offset, b->offset, a->n_dims * sizeof *a->offset);
        assert_memory_equal(a->size, b->size, a->n_dims * sizeof *a->size);
    }
}

/* Norm weights are whole on every tp rank, and every replica has all weights. Only one of these
 * ranks writes them. */
static void replicas_have_one_writer(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.tp = 2, t.dp_replicate = 3, t.layers = 1;
    StateSlices slices = all_slices(compile(&t));
    uint32_t held = 0, written = 0;
    for (uint32_t i = 0; i < slices.n; i++) {
        if (strcmp(slices.at[i].name, "norm.weight") || slices.at[i].kind != STATE_m) continue;
        held++;
        written += slices.at[i].writes;
        if (slices.at[i].writes) assert_int_equal(slices.at[i].rank, 0);
    }
    assert_int_equal(held, 6);
    assert_int_equal(written, 1);
}

/* The slices that a rank writes follow each other in its file without holes. */
static void files_have_no_holes(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.pp = 2, t.dp_shard = 2, t.dp_replicate = 2, t.microbatches = 2;
    const Plan *plan = compile(&t);
    const State *state_ = state_of(plan, arena);
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
        StateSlices slices = {0};
        uint64_t end = 0;
        state_of_rank(state_, r, arena, &slices);
        assert_true(slices.n > 0);
        for (uint32_t i = 0; i < slices.n; i++) {
            assert_int_equal(slices.at[i].rank, r);
            assert_false(slices.at[i].lazy); /* every parameter has a gradient */
            if (!slices.at[i].writes) continue;
            assert_int_equal(slices.at[i].at, end);
            end += slices.at[i].bytes;
        }
    }
}

/* The mesh decides which rank holds a part, but not the part's name. No name contains a rank or a
 * stage, so a checkpoint can be loaded under another mesh. */
static void names_do_not_depend_on_the_mesh(void **state)
{
    (void)state;
    Tiny a = tiny_default(), b = a;
    a.layers = b.layers = 4;
    b.pp = 2, b.tp = 2, b.dp_shard = 2, b.microbatches = 2;
    StateSlices one = all_slices(compile(&a)), many = all_slices(compile(&b));
    for (uint32_t i = 0; i < many.n; i++) {
        bool found = false;
        for (uint32_t k = 0; k < one.n && !found; k++)
            found =
                strcmp(one.at[k].name, many.at[i].name) == 0 && one.at[k].kind == many.at[i].kind;
        assert_true(found);
    }
}

/* A parameter that no gradient reaches has moments of zero. A checkpoint may leave them out. */
static void moments_without_a_gradient_are_lazy(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    Plan *plan = tiny_plan(&t, false, arena, &diag);
    assert_non_null(plan);
    for (TensorId k = 1; k < plan->graph.tensors.n; k++)
        if (strcmp(plan->graph.tensors.at[k].name, "norm.weight") == 0)
            plan->graph.tensors.at[k].grad = 0;
    StateSlices slices = all_slices(plan);
    uint32_t n = 0;
    for (uint32_t i = 0; i < slices.n; i++) {
        const StateSlice *s = &slices.at[i];
        bool is_norm = strcmp(s->name, "norm.weight") == 0 && s->kind != STATE_param;
        assert_true(s->lazy == is_norm);
        n += s->lazy;
    }
    assert_int_equal(n, 2);
}

/* ---- planted faults ---- */

static const Diagnostic *refused(const Plan *plan, const StateSlices *slices)
{
    assert_false(state_check_slices(plan, slices, &diag));
    return &diag.items.at[0];
}

/* If every rank numbered its experts from zero, one name would stand for two tensors. */
static void experts_renumbered_on_each_rank_are_refused(void **state)
{
    (void)state;
    StateSlices slices = {0};
    for (uint32_t rank = 0; rank < 2; rank++)
        for (uint32_t e = 0; e < 2; e++) {
            StateSlice s = {.name = arena_print(arena, "experts.%u.w1.weight", e),
                            .rank = rank,
                            .writes = true,
                            .n_dims = 2,
                            .dim = {4, 6},
                            .size = {4, 6}};
            list_push(arena, &slices, s);
        }
    const Diagnostic *d = refused(NULL, &slices);
    assert_string_equal(d->rule, "state-duplicate");
    assert_string_equal(
        d->text, "experts.0.w1.weight, param [0:4, 0:6] is written by both rank 0 and rank 1");
    assert_int_equal(diag.n_errors, 2); /* both names are reported, not only the first */
    diag = diag_in(arena);
    for (uint32_t i = 0; i < slices.n; i++) /* with global numbers there is no error */
        slices.at[i].name =
            arena_print(arena, "experts.%u.w1.weight", 2 * slices.at[i].rank + i % 2);
    assert_true(state_check_slices(NULL, &slices, &diag));
}

static void a_second_replica_that_writes_is_refused(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.dp_replicate = 2, t.layers = 1;
    const Plan *plan = compile(&t);
    StateSlices slices = all_slices(plan);
    for (uint32_t i = 0; i < slices.n; i++)
        if (strcmp(slices.at[i].name, "norm.weight") == 0) slices.at[i].writes = true;
    const Diagnostic *d = refused(plan, &slices);
    assert_string_equal(d->rule, "state-duplicate");
    assert_non_null(
        strstr(d->text, "norm.weight, param [0:12] is written by both rank 0 and rank 1"));
    assert_int_equal(diag.n_errors, 3); /* the weight and its two moments */
}

static void a_part_that_no_rank_writes_is_refused(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.dp_shard = 3, t.layers = 1;
    const Plan *plan = compile(&t);
    StateSlices slices = all_slices(plan);
    uint32_t i = 0;
    while (strcmp(slices.at[i].name, "head.weight") || slices.at[i].kind != STATE_v) i++;
    slices.at[i].size[0]--; /* the last row of one part is now missing */
    const Diagnostic *d = refused(plan, &slices);
    assert_string_equal(d->rule, "state-gap");
    assert_non_null(strstr(d->text, "head.weight, v ["));
    assert_non_null(strstr(d->text, "written by no rank"));
    assert_int_equal(diag.n_errors, 1);
}

static void a_tensor_that_no_rank_holds_is_refused(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    const Plan *plan = compile(&t);
    StateSlices slices = all_slices(plan), most = {0};
    for (uint32_t i = 0; i < slices.n; i++)
        if (strcmp(slices.at[i].name, "head.weight")) list_push(arena, &most, slices.at[i]);
    const Diagnostic *d = refused(plan, &most);
    assert_string_equal(d->rule, "state-gap");
    assert_string_equal(d->text, "head.weight, param is held by no rank");
    assert_int_equal(diag.n_errors, 3);
}

static void one_name_with_two_shapes_is_refused(void **state)
{
    (void)state;
    StateSlices slices = {0};
    for (uint32_t k = 0; k < 2; k++) {
        StateSlice s = {.name = "w",
                        .rank = k,
                        .writes = true,
                        .n_dims = 1,
                        .dim = {4 + k},
                        .size = {2},
                        .offset = {2 * k}};
        list_push(arena, &slices, s);
    }
    assert_string_equal(refused(NULL, &slices)->rule, "state-duplicate");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_diag_setup, test_arena_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_is_written_once),
        TEST(shards_of_fused_projections_do_not_overlap),
        TEST(slices_of_a_cut_tensor_cover_it_once),
        TEST(numbers_of_buffers_do_not_matter),
        TEST(replicas_have_one_writer),
        TEST(files_have_no_holes),
        TEST(names_do_not_depend_on_the_mesh),
        TEST(moments_without_a_gradient_are_lazy),
        TEST(experts_renumbered_on_each_rank_are_refused),
        TEST(a_second_replica_that_writes_is_refused),
        TEST(a_part_that_no_rank_writes_is_refused),
        TEST(a_tensor_that_no_rank_holds_is_refused),
        TEST(one_name_with_two_shapes_is_refused),
    };
    return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}
