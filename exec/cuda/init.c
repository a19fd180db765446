/* Makes the initial values of weights and optimizer states on the device. On the host, billions of
 * weights would take minutes and much memory. The host still initialises a buffer in four cases:
 * the buffer lies in host memory, the kernel cannot write its dtype, its elements are stored in
 * another order (Tensor.order), or it has too many runs (contiguous pieces). */
#include "kernels/cuda/init.h"

#include "exec/cuda/private.h"
#include "exec/flat.h"
#include "planner/base/list.h"

enum { MOST_RUNS = 1 << 14 }; /* each run takes one launch */

/* Runs of elements that are contiguous both in the buffer and in the whole tensor. */
typedef struct InitRuns {
    const Graph *graph;
    Arena *arena;
    LIST(FlatRun) all;
    bool reordered;
} InitRuns;

static void add_run(void *self, const FlatRun *run)
{
    InitRuns *runs = self;
    FlatRun *last = runs->all.n > 0 ? &runs->all.at[runs->all.n - 1] : NULL;
    if (runs->graph->tensors.at[run->tensor].order) runs->reordered = true;
    if (runs->reordered || runs->all.n > MOST_RUNS) return;
    if (last != NULL && last->tensor == run->tensor && last->at + last->n == run->at &&
        last->global + last->n == run->global)
        last->n += run->n;
    else
        list_push(runs->arena, &runs->all, *run);
}

static bool launch(Cuda *c, const InitRuns *runs, BufferId b)
{
    const Program *p = c->state.info->p;
    const Buffer *buffer = &p->buffers.at[b];
    CudaInit init = {.buffer = rank_memory(&c->state, b),
                     .dtype = buffer->dtype,
                     .rest = flat_rest_dtype(p, b),
                     .seed = c->plan->step.seed};
    for (uint32_t i = 0; i < runs->all.n; i++) {
        const FlatRun *run = &runs->all.at[i];
        const Tensor *t = &c->plan->graph.tensors.at[run->tensor];
        CudaError error = {""};
        init.at = run->at, init.global = run->global, init.n = run->n;
        init.stream = t->init_stream;
        init.kind = (int)t->init.kind, init.a = t->init.a, init.b = t->init.b;
        if (!cuda_init(&init, &c->gpu.context, &error))
            return cuda_fail(c, "cuda", "rank %u, initial values of %s: %s", c->rank, t->name,
                             error.text);
    }
    return true;
}

bool init_buffer(Cuda *c, BufferId b, bool *done)
{
    const Program *p = c->state.info->p;
    const Buffer *buffer = &p->buffers.at[b];
    const bool is_state = buffer->category == CATEGORY_optimizer; /* optimizer states start at
                                                                     zero */
    cudaStream_t stream = c->streams.of[STREAM_compute];
    *done = false;
    if (buffer->space != SPACE_device) return true;
    if (!is_state && !(cuda_init_takes(buffer->dtype) && cuda_init_takes(flat_rest_dtype(p, b))))
        return true;
    InitRuns runs = {.graph = &c->plan->graph, .arena = arena_new()};
    if (!is_state) flat_each(c->plan, p, b, c->rank, runs.arena, add_run, &runs);
    bool fine = true;
    if (!runs.reordered && runs.all.n <= MOST_RUNS) {
        *done = true;
        c->gpu.context.stream = stream;
        fine =
            memory_settle(c) &&
            CHECK_CUDA(c, cudaMemsetAsync, (rank_memory(&c->state, b), 0, buffer->bytes, stream)) &&
            launch(c, &runs, b) && CHECK_CUDA(c, cudaStreamSynchronize, (stream));
    }
    arena_free(runs.arena);
    return fine;
}
