/* The functions of the CUDA backend in the form of the interface Backend, and the symbol that the
 * module exports. */
#include "exec/cuda/module.h"

#include <assert.h>
#include <string.h>

#include "exec/cuda/private.h"

/* Returns the backend's state. Errors go to the caller's diagnostics from now on. */
static Cuda *enter(const Backend *self, Diag *d)
{
    Cuda *c = self->state;
    c->d = d;
    return c;
}

static bool open(Backend *self, const Plan *plan, const BackendOptions *options, Diag *d)
{
    return cuda_open(enter(self, d), plan, options);
}

static void ranks(const Backend *self, Rank *first, uint32_t *n)
{
    const Cuda *c = self->state;
    *first = c->rank;
    *n = 1;
}

static bool step(Backend *self, const Control *control, Trace *trace, BadNumber *bad, Diag *d)
{
    Cuda *c = enter(self, d);
    return bad != NULL ? step_find_bad(c, control, trace, bad) : step_run(c, control, trace);
}

static bool read(Backend *self, Rank rank, BufferId b, void *to, Diag *d)
{
    Cuda *c = enter(self, d);
    assert(rank == c->rank);
    return memory_read(c, b, to) || watch_fail(c);
}

static bool write(Backend *self, Rank rank, BufferId b, const void *from, Diag *d)
{
    Cuda *c = enter(self, d);
    assert(rank == c->rank);
    return memory_write(c, b, from) || watch_fail(c);
}

static bool init(Backend *self, Rank rank, BufferId b, bool *done, Diag *d)
{
    Cuda *c = enter(self, d);
    assert(rank == c->rank);
    return init_buffer(c, b, done) || watch_fail(c);
}

static uint64_t highest_touched(Backend *self, Rank rank, Space space)
{
    Cuda *c = self->state;
    assert(rank == c->rank);
    return memory_highest(c, space);
}

static uint64_t outside_bytes(Backend *self)
{
    Cuda *c = self->state;
    memory_outside(c);
    return c->gpu.outside;
}

static bool exchange(Backend *self, const void *mine, size_t bytes, void *all, Diag *d)
{
    Cuda *c = enter(self, d);
    return watch_exchange(c, mine, bytes, all) || watch_fail(c);
}

static void patience(Backend *self, double more_s)
{
    ((Cuda *)self->state)->watch.more_s = more_s;
}

static uint32_t processes(const Backend *self, uint32_t *mine)
{
    const Cuda *c = self->state;
    *mine = c->rank;
    return c->n_ranks;
}

static const LoadCounts *loads(Backend *self, Rank rank)
{
    Diag none = diag_in(((Cuda *)self->state)->arena);
    Cuda *c = enter(self, &none);
    assert(rank == c->rank);
    const LoadCounts *counts = choices_read(c);
    enter(self, NULL);
    return counts;
}

static void close(Backend *self)
{
    Diag none = diag_in(((Cuda *)self->state)->arena);
    cuda_close(enter(self, &none));
    enter(self, NULL);
}

static Backend *backend(Arena *arena, const Transport *transport)
{
    Backend *b = arena_alloc(arena, sizeof *b);
    Cuda *c = arena_alloc(arena, sizeof *c);
    c->arena = arena;
    c->transport = transport;
    *b = (Backend){.name = "cuda",
                   .open = open,
                   .ranks = ranks,
                   .step = step,
                   .read = read,
                   .write = write,
                   .init = init,
                   .highest_touched = highest_touched,
                   .outside_bytes = outside_bytes,
                   .exchange = exchange,
                   .patience = patience,
                   .processes = processes,
                   .loads = loads,
                   .close = close,
                   .state = c};
    return b;
}

const CudaModule tandem_cuda_module = {CUDA_MODULE_VERSION, backend, device_describe,
                                       kernel_cuda_workspace, device_name};
