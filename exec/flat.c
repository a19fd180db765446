/* Visits the elements of parameters that a rank has in the flat buffer of a unit. Tensor
 * parallelism first splits each parameter. The deal of a split dimension gives the global indices
 * of each part (planner/ir/layout/layout.h). The parts of all parameters are then laid out one
 * after the other, and this list is split again over the shard axes. */
#include "exec/flat.h"

#include <assert.h>
#include <pthread.h>

#include "kernels/kernel.h"
#include "kernels/number.h"
#include "planner/base/cores.h"
#include "planner/ir/layout/padding.h"

/* The buffer holds elements lo to hi - 1 of the list of all parts. */
typedef struct FlatRange {
    uint64_t lo, hi;
} FlatRange;

typedef struct FlatWalk {
    const Plan *plan;
    const Tensor *t;
    TensorId id;
    int64_t local[MAX_DIMS];   /* sizes of the rank's part of the tensor, padding included */
    int64_t *global[MAX_DIMS]; /* for each dimension d an array [local[d]]: the global index, or -1
                                  for padding */
    FlatRange window;
    void (*run)(void *self, const FlatRun *run);
    void *self;
} FlatWalk;

bool flat_is_home(const Buffer *b)
{
    return b->parent == 0 && (b->persistent || b->result) && b->unit != 0;
}

static FlatRange window_of(const Plan *plan, const Program *p, BufferId b, Rank rank)
{
    const Shape *s = plan_shape_at(plan, p->buffers.at[b].shape);
    assert(s->n_dims == 1);
    uint64_t n = (uint64_t)shape_local_dim(s, &plan->mesh, &plan->graph.deals, 0);
    uint64_t lo = (uint64_t)shape_part(s, &plan->mesh, 0, rank) * n;
    return (FlatRange){lo, lo + n};
}

static void map_dimension(FlatWalk *w, const Shape *s, int d, Rank rank, Arena *scratch)
{
    const Mesh *mesh = &w->plan->mesh;
    const Deals *deals = &w->plan->graph.deals;
    int64_t n = w->local[d] = shape_local_dim(s, mesh, deals, d), at = 0;
    w->global[d] = arena_array(scratch, (size_t)n, sizeof(int64_t));
    uint32_t parts = shape_parts(s, mesh, d), part = shape_part(s, mesh, d, rank);
    Interval i = {0, s->dim[d]};
    for (uint32_t k = 0;
         parts == 1 ? k == 0 : deal_interval(deals, s->deal[d], s->dim[d], parts, part, k, &i); k++)
        for (int64_t x = i.lo; x < i.hi; x++) w->global[d][at++] = x;
    assert(at <= n);
    for (; at < n; at++) w->global[d][at] = -1;
}

/* Visits one row (a run along the last dimension) of the rank's part. `local` is the index of its
 * first element in the part, `global` the index of the same element in the whole tensor. */
static void walk_row(const FlatWalk *w, uint64_t local, uint64_t global)
{
    int last = w->t->n_dims - 1;
    int64_t n = last < 0 ? 1 : w->local[last];
    for (int64_t i = 0; i < n;) {
        int64_t first = last < 0 ? 0 : w->global[last][i], k = 1;
        while (last >= 0 && i + k < n && first >= 0 && w->global[last][i + k] == first + k) k++;
        uint64_t lo = w->t->flat_offset + local + (uint64_t)i, hi = lo + (uint64_t)k, skip = 0;
        if (lo < w->window.lo) skip = w->window.lo - lo;
        if (hi > w->window.hi) hi = w->window.hi;
        if (first >= 0 && lo + skip < hi) {
            FlatRun run = {w->id, global + (uint64_t)first + skip, lo + skip - w->window.lo,
                           hi - lo - skip};
            w->run(w->self, &run);
        }
        i += k;
    }
}

static void walk_tensor(const FlatWalk *w)
{
    int rows = w->t->n_dims - 1;
    int64_t index[MAX_DIMS] = {0};
    uint64_t local = 0, row = w->t->n_dims ? (uint64_t)w->local[rows] : 1;
    for (int d = 0; d <= rows; d++)
        if (w->local[d] == 0) return;
    for (;; local += row) {
        bool is_real = true;
        int64_t global = 0;
        for (int d = 0; d < rows; d++) {
            int64_t x = w->global[d][index[d]];
            is_real = is_real && x >= 0;
            global = global * w->t->dim[d] + x;
        }
        uint64_t first = w->t->n_dims ? (uint64_t)(global * w->t->dim[rows]) : 0;
        if (is_real) walk_row(w, local, first);
        int d = rows - 1;
        while (d >= 0 && ++index[d] == w->local[d]) index[d--] = 0;
        if (d < 0) return;
    }
}

static void walk_window(const Plan *plan, const Program *p, BufferId b, Rank rank, FlatRange window,
                        Arena *scratch, void (*run)(void *self, const FlatRun *run), void *self)
{
    const Unit *unit = &plan->graph.units.at[p->buffers.at[b].unit];
    FlatWalk w = {.plan = plan, .window = window, .run = run, .self = self};
    for (uint32_t i = 0; i < unit->params.n; i++) {
        w.id = unit->params.at[i];
        w.t = &plan->graph.tensors.at[w.id];
        const Shape s =
            shape_under(&plan->graph.deals, &w.t->use, w.t->n_dims, w.t->dim, w.t->deal);
        for (int d = 0; d < w.t->n_dims; d++) map_dimension(&w, &s, d, rank, scratch);
        walk_tensor(&w);
    }
}

void flat_each(const Plan *plan, const Program *p, BufferId b, Rank rank, Arena *scratch,
               void (*run)(void *self, const FlatRun *run), void *self)
{
    walk_window(plan, p, b, rank, window_of(plan, p, b, rank), scratch, run, self);
}

typedef struct InitTo {
    const Plan *plan;
    DType dtype, rest; /* rest: dtype of the weights between steps; a gathered copy holds weights
                          that were first rounded to this dtype */
    void *at;
} InitTo;

static void init_run(void *self, const FlatRun *run)
{
    const InitTo *to = self;
    const Tensor *t = &to->plan->graph.tensors.at[run->tensor];
    double rest;
    for (uint64_t i = 0; i < run->n; i++) {
        uint64_t element = graph_original(&to->plan->graph, run->tensor, run->global + i);
        double x = kernel_init_value(to->plan->step.seed, t->init_stream, element,
                                     (int)t->init.kind, t->init.a, t->init.b);
        number_write(to->rest, &rest, 0, x);
        number_write(to->dtype, to->at, run->at + i, number_read(to->rest, &rest, 0));
    }
}

DType flat_rest_dtype(const Program *p, BufferId b)
{
    for (BufferId k = 1; k < p->buffers.n; k++) {
        const Buffer *at = &p->buffers.at[k];
        if (flat_is_home(at) && at->category == CATEGORY_parameter &&
            at->unit == p->buffers.at[b].unit)
            return at->dtype;
    }
    return p->buffers.at[b].dtype;
}

/* A block of a buffer that one thread fills with initial values. The value of an element depends
 * only on its index, so blocks are independent. */
typedef struct InitBlock {
    const Program *p;
    BufferId b;
    Rank rank;
    FlatRange window;
    InitTo to;
    pthread_t thread;
} InitBlock;

static void *init_block(void *self)
{
    InitBlock *block = self;
    Arena *scratch = arena_new();
    walk_window(block->to.plan, block->p, block->b, block->rank, block->window, scratch, init_run,
                &block->to);
    arena_free(scratch);
    return NULL;
}

enum { MOST_THREADS = 16, PIECE_ELEMENTS = 1 << 22 };

void flat_init(const Plan *plan, const Program *p, BufferId b, Rank rank, Arena *scratch, void *at)
{
    FlatRange all = window_of(plan, p, b, rank);
    DType dtype = p->buffers.at[b].dtype;
    InitBlock block[MOST_THREADS];
    const uint32_t cores = cores_usable();
    uint64_t n = (all.hi - all.lo) / PIECE_ELEMENTS;
    if (n > cores) n = cores;
    if (n > MOST_THREADS) n = MOST_THREADS;
    if (n == 0) n = 1;
    (void)scratch;
    assert(number_is_real(dtype));
    for (uint64_t i = 0; i < n; i++) {
        uint64_t step = (all.hi - all.lo) / n, lo = all.lo + i * step;
        FlatRange window = {lo, i + 1 == n ? all.hi : lo + step};
        char *to = (char *)at + (lo - all.lo) * dtype_bytes(dtype);
        block[i] = (InitBlock){.p = p,
                               .b = b,
                               .rank = rank,
                               .window = window,
                               .to = {plan, dtype, flat_rest_dtype(p, b), to}};
    }
    /* if a thread could not be started, this thread does its work */
    for (uint64_t i = 1; i < n; i++)
        if (pthread_create(&block[i].thread, NULL, init_block, &block[i]) != 0) {
            init_block(&block[i]);
            block[i].p = NULL;
        }
    init_block(&block[0]);
    for (uint64_t i = 1; i < n; i++)
        if (block[i].p != NULL) pthread_join(block[i].thread, NULL);
}
