/* Launches each kind of kernel once, before communicators exist. The first launch of a kernel loads
 * it, and while the driver loads, it may wait for all running work. A communication that runs at
 * that time may wait for this rank, so neither would ever end. The driver could load all kernels at
 * the start. But cuBLAS has thousands of kernels, and loading them would take memory and time. NCCL
 * loads its own kernels when it starts. */
#include <string.h>
#include <time.h>

#include "exec/cuda/private.h"
#include "planner/base/clock.h"
#include "planner/base/list.h"

/* Returns a hash of two properties of an address that affect the choice of kernels. One is its
 * alignment. The other, in a launch of several instructions, is the first argument with the same
 * address. If buffers coincide, a fused kernel refuses the chain, and the general kernel for chains
 * runs instead. */
static uintptr_t place_of(const Cuda *c, uint32_t at, uint32_t n, const void *ptr)
{
    enum { WIDEST = 16 }; /* bytes of the widest access */
    uintptr_t first = 0;
    for (uint32_t i = 0; n > 1 && i < n; i++) {
        const KernelArgs *args = c->state.at[c->launches.order.pc[at + i]].args;
        for (uint32_t k = 0; k < args->n_args; k++, first++)
            if (args->ptr[k] == ptr) return first * WIDEST + (uintptr_t)ptr % WIDEST;
    }
    return (uintptr_t)ptr % WIDEST;
}

/* Returns a hash of everything that affects which kernels a launch runs. */
static Hash128 kind_of(const Cuda *c, uint32_t at, uint32_t n)
{
    struct {
        KernelArgs args;
        OpKind op;
        uint32_t unread;
    } part;
    Hash128 all[CUDA_CHAIN_MAX];
    for (uint32_t i = 0; i < n; i++) {
        Pc pc = c->launches.order.pc[at + i];
        memset(&part, 0, sizeof part);
        part.args = *c->state.at[pc].args;
        for (uint32_t k = 0; k < MAX_ARGS; k++)
            part.args.ptr[k] =
                (void *)(k < part.args.n_args ? place_of(c, at, n, part.args.ptr[k]) : 0);
        part.args.binding = NULL;
        part.args.control = NULL;
        part.args.microbatch = 0;
        part.args.attrs.site = 0;
        part.op = program_instr(c->state.info->p, pc)->op;
        part.unread = n > 1 ? c->launches.unread[pc] : 0;
        all[i] = hash_bytes(&part, sizeof part);
    }
    return hash_bytes(all, n * sizeof *all);
}

typedef LIST(Hash128) LaunchKinds;

static bool load_one(Cuda *c, uint32_t at, uint32_t n, Arena *scratch, LaunchKinds *seen)
{
    Hash128 kind = kind_of(c, at, n);
    for (uint32_t i = 0; i < seen->n; i++)
        if (memcmp(&seen->at[i], &kind, sizeof kind) == 0) return true;
    list_push(scratch, seen, kind);
    return issue_compute(c, c->launches.order.pc[at], n, false) &&
           (n > 1 || choices_issue(c, c->launches.order.pc[at]));
}

/* Waits until the launches have ended. They computed with zeros, so they may have reported faults;
 * these are cleared. */
static bool loaded(Cuda *c)
{
    const double until = clock_s() + c->watch.patience_s;
    const struct timespec pause = {0, 1000000};
    cudaError_t state;
    if (!CHECK_CUDA(c, cudaEventRecord, (c->streams.finished, c->streams.of[STREAM_compute])))
        return false;
    while ((state = cudaEventQuery(c->streams.finished)) == cudaErrorNotReady && clock_s() < until)
        nanosleep(&pause, NULL);
    if (state == cudaErrorNotReady) {
        c->watch.stuck = true;
        return cuda_fail(c, "timeout",
                         "rank %u: its kernels, launched once before the first step, did not end "
                         "within %g s",
                         c->rank, c->watch.patience_s);
    }
    return cuda_checked(c, state, "cudaEventQuery", __FILE__, __LINE__) &&
           CHECK_CUDA(c, cudaMemset, (c->gpu.fault_device, 0, sizeof *c->gpu.fault_device)) &&
           choices_clear(c);
}

bool load_kernels(Cuda *c)
{
    const IssueOrder *o = &c->launches.order;
    Arena *scratch = arena_new();
    LaunchKinds seen = {0};
    bool fine = true;
    for (uint32_t i = 0, n; fine && i < o->n; i += n) {
        n = c->launches.chain[o->pc[i]];
        const Instr *in = program_instr(c->state.info->p, o->pc[i]);
        if (in->stream != STREAM_compute || c->state.at[o->pc[i]].comm != NULL ||
            op_info(in->op)->flags & OP_SOURCE)
            continue;
        fine = load_one(c, i, n, scratch, &seen);
        for (uint32_t k = 0; fine && n > 1 && k < n; k++)
            fine = load_one(c, i + k, 1, scratch, &seen);
    }
    arena_free(scratch);
    return fine && loaded(c);
}
