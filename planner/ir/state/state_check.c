/* Checks that each element of the state is written exactly once. For each tensor, it collects all
 * edges of boxes along dimension 0. Between two neighbouring edges, every index is covered by the
 * same boxes, so the check goes on with these boxes in dimension 1, and so on. In the last
 * dimension, exactly one box must be left. */
#include <stdlib.h>
#include <string.h>

#include "planner/base/str.h"
#include "planner/ir/state/state.h"

typedef struct Check {
    const StateSlice *at; /* all slices that ranks write, sorted by tensor and kind */
    Diag *d;
    Arena *arena;
    /* the interval between two edges that is being checked, in each dimension so far */
    Interval where[MAX_DIMS];
} Check;

static const Loc none = {NULL, 0};

static int by_tensor(const void *a, const void *b)
{
    const StateSlice *x = a, *y = b;
    int names = strcmp(x->name, y->name);
    if (names) return names;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static const char *part_text(Check *c, int n)
{
    Str s = str_in(c->arena);
    for (int d = 0; d < n; d++)
        str_print(&s, "%s%lld:%lld", d ? ", " : "", (long long)c->where[d].lo,
                  (long long)c->where[d].hi);
    return str_text(&s);
}

static bool report_gap(Check *c, const StateSlice *s, int known)
{
    for (int d = known; d < s->n_dims; d++) c->where[d] = (Interval){0, s->dim[d]};
    diag_error(c->d, FAULT_internal, "state-gap", none, "%s, %s [%s] is written by no rank",
               s->name, state_kind_name(s->kind), part_text(c, s->n_dims));
    diag_hint(c->d, "a run that loads the checkpoint would begin with undefined values");
    return false;
}

static bool report_twice(Check *c, const StateSlice *a, const StateSlice *b)
{
    diag_error(c->d, FAULT_internal, "state-duplicate", none,
               "%s, %s [%s] is written by both rank %u and rank %u", a->name,
               state_kind_name(a->kind), part_text(c, a->n_dims), a->rank, b->rank);
    diag_hint(c->d, "give each tensor its own name, and each part of a tensor its own offset");
    return false;
}

static int by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

typedef struct Ordered {
    int64_t lo;
    uint32_t box;
} Ordered;

static int by_lo(const void *a, const void *b)
{
    const Ordered *x = a, *y = b;
    if (x->lo != y->lo) return x->lo < y->lo ? -1 : 1;
    return x->box < y->box ? -1 : x->box > y->box;
}

static bool sweep(Check *c, const StateSlice *tensor, const uint32_t *boxes, uint32_t n, int d);

/* Given that exactly the `n` boxes `active` cover where[0] to where[d], checks the later
 * dimensions. In the last dimension there must be one box. */
static bool look(Check *c, const StateSlice *tensor, const uint32_t *active, uint32_t n, int d)
{
    if (n == 0) return report_gap(c, tensor, d + 1);
    if (d + 1 < tensor->n_dims) return sweep(c, tensor, active, n, d + 1);
    return n == 1 || report_twice(c, &c->at[active[0]], &c->at[active[1]]);
}

static bool sweep(Check *c, const StateSlice *tensor, const uint32_t *boxes, uint32_t n, int d)
{
    if (tensor->n_dims == 0) return n == 1 || report_twice(c, &c->at[boxes[0]], &c->at[boxes[1]]);
    int64_t *edge = arena_array(c->arena, 2 * (size_t)n + 2, sizeof *edge);
    Ordered *order = arena_array(c->arena, n, sizeof *order);
    uint32_t *active = arena_array(c->arena, n, sizeof *active), n_active = 0, next = 0,
             n_edges = 0;
    edge[n_edges++] = 0;
    edge[n_edges++] = tensor->dim[d];
    for (uint32_t i = 0; i < n; i++) {
        const StateSlice *s = &c->at[boxes[i]];
        order[i] = (Ordered){s->offset[d], boxes[i]};
        edge[n_edges++] = s->offset[d];
        edge[n_edges++] = s->offset[d] + s->size[d];
    }
    qsort(edge, n_edges, sizeof *edge, by_number);
    qsort(order, n, sizeof *order, by_lo);
    for (uint32_t i = 0; i + 1 < n_edges; i++) {
        if (edge[i] == edge[i + 1]) continue;
        uint32_t kept = 0;
        for (uint32_t k = 0; k < n_active; k++) {
            const StateSlice *s = &c->at[active[k]];
            if (s->offset[d] + s->size[d] > edge[i]) active[kept++] = active[k];
        }
        for (n_active = kept; next < n && order[next].lo <= edge[i]; next++)
            active[n_active++] = order[next].box;
        c->where[d] = (Interval){edge[i], edge[i + 1]};
        if (!look(c, tensor, active, n_active, d)) return false;
    }
    return true;
}

static bool same_tensor(const StateSlice *a, const StateSlice *b)
{
    if (a->n_dims != b->n_dims) return false;
    for (int d = 0; d < a->n_dims; d++)
        if (a->dim[d] != b->dim[d]) return false;
    return true;
}

/* Checks slices first to first + n - 1, which are all slices of one tensor and kind. */
static bool check_tensor(Check *c, uint32_t first, uint32_t n)
{
    const StateSlice *s = &c->at[first];
    uint32_t *boxes = arena_array(c->arena, n, sizeof *boxes);
    for (uint32_t i = 0; i < n; i++) {
        boxes[i] = first + i;
        if (same_tensor(s, &c->at[first + i])) continue;
        for (int d = 0; d < s->n_dims; d++) c->where[d] = (Interval){0, s->dim[d]};
        return report_twice(c, s, &c->at[first + i]);
    }
    return sweep(c, s, boxes, n, 0);
}

/* Reports parameters and state tensors without any slice. If there are moments at all, also reports
 * trained parameters without moments. */
static void check_missing(const Plan *plan, const bool *seen, const bool kinds[], Diag *d)
{
    for (TensorId t = 1; t < plan->graph.tensors.n; t++)
        for (int k = 0; k < STATE_KIND_COUNT; k++) {
            const Tensor *at = &plan->graph.tensors.at[t];
            const Role role = k == STATE_buffer ? ROLE_state : ROLE_param;
            const bool lacks =
                (k == STATE_m || k == STATE_v) && (at->frozen || graph_balances(&plan->graph, at));
            if (at->role != role || lacks || !kinds[k] || seen[t * STATE_KIND_COUNT + (uint32_t)k])
                continue;
            diag_error(d, FAULT_internal, "state-gap", at->loc, "%s, %s is held by no rank",
                       at->name, state_kind_name((StateKind)k));
        }
}

bool state_check_slices(const Plan *plan, const StateSlices *slices, Diag *d)
{
    uint32_t before = d->n_errors, n = 0, n_tensors = plan ? plan->graph.tensors.n : 0;
    Arena *arena = arena_new();
    StateSlice *all = arena_array(arena, (size_t)slices->n + 1, sizeof *all);
    bool *seen = arena_array(arena, ((size_t)n_tensors + 1) * STATE_KIND_COUNT, sizeof *seen);
    bool kinds[STATE_KIND_COUNT] = {[STATE_param] = true, [STATE_buffer] = true};
    for (uint32_t i = 0; i < slices->n; i++) {
        const StateSlice *s = &slices->at[i];
        if (!s->writes) continue;
        kinds[s->kind] = true;
        if (s->tensor < n_tensors) seen[s->tensor * STATE_KIND_COUNT + (uint32_t)s->kind] = true;
        all[n++] = *s;
    }
    qsort(all, n, sizeof *all, by_tensor);
    Arena *scratch = arena_new();
    Check c = {.at = all, .d = d, .arena = scratch};
    for (uint32_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && all[k].kind == all[i].kind && !strcmp(all[k].name, all[i].name);)
            k++;
        check_tensor(&c, i, k - i);
        arena_reset(scratch);
    }
    if (plan) check_missing(plan, seen, kinds, d);
    arena_free(scratch);
    arena_free(arena);
    return d->n_errors == before;
}

bool state_check(const State *state, Diag *d)
{
    const Plan *plan = state_plan(state);
    Arena *arena = arena_new();
    StateSlices slices = {0};
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) state_of_rank(state, r, arena, &slices);
    bool fine = state_check_slices(plan, &slices, d);
    arena_free(arena);
    return fine;
}
