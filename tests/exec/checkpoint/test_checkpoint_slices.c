/* A checkpoint's slices state where their elements lie in a rank's buffers. exec/flat.c computes
 * the same places element by element, to fill in initial weights. Both must agree for every element
 * on every rank of every plan of the corpus. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "exec/checkpoint/private.h"
#include "exec/flat.h"
#include "tests/support/corpus/corpus.h"
#include "tests/support/sample.h"

typedef struct Places {
    const Plan *plan;
    const char *name;
    TensorId *tensor;  /* [element of the buffer] 0: padding */
    uint64_t *element; /* the element's number in the tensor's original order */
    uint64_t n_known, n_found;
    const StateSlice *slice;
} Places;

typedef struct Seen {
    uint64_t visited, plans, slices, elements, grouped;
} Seen;

static void mark(void *self, const FlatRun *run)
{
    Places *p = self;
    for (uint64_t i = 0; i < run->n; i++) {
        p->tensor[run->at + i] = run->tensor;
        p->element[run->at + i] = graph_original(&p->plan->graph, run->tensor, run->global + i);
    }
    p->n_known += run->n;
}

/* Converts the number of an element in the slice's box to its number in the whole tensor. */
static uint64_t in_tensor(const StateSlice *s, uint64_t element)
{
    uint64_t whole = 0, stride = 1;
    for (int d = s->n_dims - 1; d >= 0; d--) {
        const uint64_t size = (uint64_t)s->size[d];
        whole += ((uint64_t)s->offset[d] + element % size) * stride;
        element /= size;
        stride *= (uint64_t)s->dim[d];
    }
    return whole;
}

static bool compare(void *self, const BoxRun *run)
{
    Places *p = self;
    for (uint64_t i = 0; i < run->n; i++) {
        const uint64_t at = run->buffer + i, element = in_tensor(p->slice, run->file + i);
        if (p->tensor[at] != p->slice->tensor || p->element[at] != element)
            fail_msg("%s: rank %u, %s: element %llu is not at %llu of the buffer", p->name,
                     p->slice->rank, p->slice->name, (unsigned long long)element,
                     (unsigned long long)at);
        p->tensor[at] = 0; /* a second slice must not find an element here */
    }
    p->n_found += run->n;
    return true;
}

static void check_rank(Places *places, const State *state, Rank rank, Seen *seen)
{
    Arena *scratch = arena_new();
    StateSlices slices = {0};
    const Program *program = plan_program(places->plan, rank);
    state_of_rank(state, rank, scratch, &slices);
    state_copies_of_rank(state, rank, scratch, &slices);
    for (uint32_t i = 0, k; i < slices.n; i = k) {
        const Buffer *b = &program->buffers.at[slices.at[i].buffer];
        const uint64_t n = b->bytes / dtype_bytes(b->dtype);
        for (k = i; k < slices.n && slices.at[k].buffer == slices.at[i].buffer;) k++;
        if (b->unit == 0) continue; /* not divided: each rank holds all of it */
        places->tensor = arena_array(scratch, n, sizeof *places->tensor);
        places->element = arena_array(scratch, n, sizeof *places->element);
        places->n_known = places->n_found = 0;
        flat_each(places->plan, program, slices.at[i].buffer, rank, scratch, mark, places);
        for (uint32_t s = i; s < k; s++) {
            places->slice = &slices.at[s];
            assert_true(box_runs(places->slice, places->slice->offset, places->slice->size, compare,
                                 places));
            seen->grouped += places->slice->group_size > 1;
        }
        assert_int_equal(places->n_found, places->n_known);
        seen->slices += k - i;
        seen->elements += places->n_found;
    }
    arena_free(scratch);
}

static void visit(void *self, const Tiny *t)
{
    Seen *seen = self;
    if (!is_sampled(seen->visited++, 4)) return;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const Plan *plan = tiny_plan(t, false, arena, &d);
    assert_non_null(plan);
    const State *state = state_of(plan, arena);
    Places places = {.plan = plan, .name = corpus_name(t, arena)};
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) check_rank(&places, state, r, seen);
    seen->plans++;
    arena_free(arena);
}

static void slices_are_where_weights_begin(void **state)
{
    (void)state;
    Seen seen = {0};
    corpus_each(visit, &seen);
    assert_true(seen.plans > 100 && seen.grouped > 100);
    print_message("%llu plans, %llu slices, %llu of them by groups, %llu elements\n",
                  (unsigned long long)seen.plans, (unsigned long long)seen.slices,
                  (unsigned long long)seen.grouped, (unsigned long long)seen.elements);
}

/* The overlap of a stored box and a slice of [4, 6]. The slice's rows are 9 apart, and it begins at
 * element 2 of the buffer. */
typedef struct Runs {
    uint32_t n;
    BoxRun at[8];
} Runs;

static bool keep(void *self, const BoxRun *run)
{
    Runs *runs = self;
    assert_true(runs->n < 8);
    runs->at[runs->n++] = *run;
    return runs->n < 3;
}

static void overlaps_of_boxes_are_found(void **state)
{
    (void)state;
    const StateSlice slice = {.n_dims = 2,
                              .dim = {10, 20},
                              .offset = {2, 8},
                              .size = {4, 6},
                              .first = 2,
                              .stride = {9, 1}};
    Runs runs = {0};
    /* rows 4 and 5, columns 10 to 13 */
    assert_true(box_runs(&slice, (const int64_t[]){4, 10}, (const int64_t[]){6, 5}, keep, &runs));
    assert_int_equal(runs.n, 2);
    assert_memory_equal(&runs.at[0], (&(BoxRun){0, 2 + 2 * 9 + 2, 4}), sizeof(BoxRun));
    assert_memory_equal(&runs.at[1], (&(BoxRun){5, 2 + 3 * 9 + 2, 4}), sizeof(BoxRun));
    runs.n = 0; /* boxes without a common part */
    assert_true(box_runs(&slice, (const int64_t[]){6, 8}, (const int64_t[]){4, 6}, keep, &runs));
    assert_int_equal(runs.n, 0);
    /* a callback that fails ends the walk */
    assert_false(box_runs(&slice, (const int64_t[]){0, 0}, (const int64_t[]){10, 20}, keep, &runs));
    assert_int_equal(runs.n, 3);
    runs.n = 0; /* groups of 2 that begin 10 apart: a run must end where its group ends */
    const StateSlice grouped = {.n_dims = 1,
                                .dim = {12},
                                .offset = {4},
                                .size = {6},
                                .stride = {1},
                                .group_size = 2,
                                .group_stride = 10};
    assert_false(box_runs(&grouped, (const int64_t[]){5}, (const int64_t[]){7}, keep, &runs));
    assert_memory_equal(&runs.at[0], (&(BoxRun){0, 1, 1}), sizeof(BoxRun));
    assert_memory_equal(&runs.at[1], (&(BoxRun){1, 10, 2}), sizeof(BoxRun));
    assert_memory_equal(&runs.at[2], (&(BoxRun){3, 20, 2}), sizeof(BoxRun));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_are_where_weights_begin),
        cmocka_unit_test(overlaps_of_boxes_are_found),
    };
    return cmocka_run_group_tests_name("checkpoint slices", tests, NULL, NULL);
}
