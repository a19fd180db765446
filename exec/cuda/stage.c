/* Brings the data of micro-batches from the host to the device. For each instruction that reads a
 * batch, there is pinned memory with the data of this step. While the device works, the host fills
 * ordinary memory with the data of the next step. If several micro-batches use one graph, the data
 * are first copied to a slot on the device, and the instruction copies from this slot. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cuda/private.h"

static bool open_one(Cuda *c, Staged *s)
{
    const KernelArgs *a = c->state.at[s->pc].args;
    assert(a->n_args <= 2);
    s->n = a->n_args;
    s->host = *a;
    for (uint32_t k = 0; k < s->n; k++) {
        s->bytes[k] = (uint64_t)a->elements[k] * dtype_bytes(a->dtype[k]);
        s->back[k] = arena_alloc(c->arena, s->bytes[k]);
        s->host.ptr[k] = s->back[k];
        void *at = NULL;
        if (!CHECK_CUDA(c, cudaMallocHost, (&at, s->bytes[k]))) return false;
        s->front[k] = at;
    }
    return true;
}

bool stage_open(Cuda *c)
{
    const Program *p = c->state.info->p;
    c->launches.next_filled = -1;
    c->launches.staged_of = arena_array(c->arena, p->code.n, sizeof *c->launches.staged_of);
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (op_info(program_instr(p, pc)->op)->flags & OP_SOURCE)
            c->launches.staged_of[pc] = ++c->launches.n_staged;
    c->launches.staged = arena_array(c->arena, c->launches.n_staged, sizeof *c->launches.staged);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        if (c->launches.staged_of[pc] == 0) continue;
        Staged *s = &c->launches.staged[c->launches.staged_of[pc] - 1];
        s->pc = pc;
        if (!open_one(c, s)) return false;
    }
    return true;
}

void stage_close(Cuda *c)
{
    for (uint32_t i = 0; i < c->launches.n_staged; i++)
        for (uint32_t k = 0; k < c->launches.staged[i].n; k++) {
            Staged *s = &c->launches.staged[i];
            if (s->front[k] != NULL) cudaFreeHost(s->front[k]);
            if (s->slot[k] != NULL) cudaFree(s->slot[k]);
            s->front[k] = s->slot[k] = NULL;
        }
}

static void fill_back(Cuda *c, const Control *control)
{
    for (uint32_t i = 0; i < c->launches.n_staged; i++) {
        Staged *s = &c->launches.staged[i];
        s->host.control = control;
        kernel_cpu(program_instr(c->state.info->p, s->pc)->op)(&s->host);
    }
    c->launches.next_filled = control->step;
}

void stage_fill(Cuda *c)
{
    if (c->launches.next_filled != c->control.step) fill_back(c, &c->control);
    for (uint32_t i = 0; i < c->launches.n_staged; i++)
        for (uint32_t k = 0; k < c->launches.staged[i].n; k++)
            memcpy(c->launches.staged[i].front[k], c->launches.staged[i].back[k],
                   c->launches.staged[i].bytes[k]);
}

void stage_prepare(Cuda *c)
{
    Control next = c->control;
    next.step++;
    fill_back(c, &next);
}

/* Allocates the slots of one instruction that reads a batch. If several segments use one graph, all
 * of them use the slots of the segment that owns the graph. */
static bool make_slots(Cuda *c, Staged *s)
{
    for (uint32_t k = 0; k < s->n; k++) {
        void *at = NULL;
        if (s->slot[k] == NULL && !CHECK_CUDA(c, cudaMalloc, (&at, s->bytes[k]))) return false;
        if (s->slot[k] == NULL) s->slot[k] = at;
    }
    return true;
}

bool stage_open_slots(Cuda *c)
{
    for (uint32_t k = 0; k < c->launches.order.n_segments; k++) {
        const Segment *segment = &c->launches.order.segment[k];
        for (uint32_t i = 0; segment->shared && i < segment->n; i++) {
            uint32_t one = c->launches.staged_of[c->launches.order.pc[segment->first + i]];
            if (one != 0 && !make_slots(c, &c->launches.staged[one - 1])) return false;
        }
    }
    return true;
}

bool stage_to_slot(Cuda *c, const Segment *segment)
{
    const Segment *owner = &c->launches.order.segment[segment->same];
    for (uint32_t i = 0; i < segment->n; i++) {
        Pc pc = c->launches.order.pc[segment->first + i],
           its = c->launches.order.pc[owner->first + i];
        if (c->launches.staged_of[pc] == 0) continue;
        const Staged *from = &c->launches.staged[c->launches.staged_of[pc] - 1];
        const Staged *to = &c->launches.staged[c->launches.staged_of[its] - 1];
        for (uint32_t k = 0; k < from->n; k++)
            if (!CHECK_CUDA(c, cudaMemcpyAsync,
                            (to->slot[k], from->front[k], from->bytes[k], cudaMemcpyHostToDevice,
                             c->streams.of[STREAM_compute])))
                return false;
    }
    return true;
}

bool stage_issue(Cuda *c, Pc pc, bool shared)
{
    Staged *s = &c->launches.staged[c->launches.staged_of[pc] - 1];
    const KernelArgs *a = c->state.at[pc].args;
    cudaStream_t stream = c->streams.of[program_instr(c->state.info->p, pc)->stream];
    for (uint32_t k = 0; k < s->n; k++)
        if (!CHECK_CUDA(c, cudaMemcpyAsync,
                        (a->ptr[k], shared ? s->slot[k] : s->front[k], s->bytes[k],
                         cudaMemcpyDefault, stream)))
            return false;
    return true;
}
