/* Issues instructions to the streams in the order of issue. An instruction first waits for events
 * of other streams. Then its kernel, copy or communication runs. Then an event is recorded if
 * another stream waits for it. Direct execution and the capture of graphs make the same calls. */
#include <assert.h>
#include <stdio.h>

#include "exec/cuda/private.h"
#include "kernels/cuda/product/products.h"

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define HAS_NVTX 1
#include <nvtx3/nvToolsExt.h>
#endif
#endif

static const Instr *instr(const Cuda *c, Pc pc)
{
    return program_instr(c->state.info->p, pc);
}

/* Begins a range in a profiler, labelled with the instruction's op and module. */
static void range_begin(const Cuda *c, Pc pc)
{
#ifdef HAS_NVTX
    char text[256];
    const Instr *in = instr(c, pc);
    const Graph *g = &c->plan->graph;
    ModuleId module = in->origin ? g->nodes.at[in->origin].module : 0;
    snprintf(text, sizeof text, "%s %s", op_info(in->op)->name,
             module ? g->modules.at[module].path : "");
    nvtxRangePushA(text);
#else
    (void)c, (void)pc;
#endif
}

static void range_end(void)
{
#ifdef HAS_NVTX
    nvtxRangePop();
#endif
}

/* ---- opening ---- */

static bool is_waited_for(const Cuda *c, Pc pc)
{
    const ProgramInfo *info = c->state.info;
    for (uint32_t k = info->first[pc]; k < info->first[pc + 1]; k++)
        if (instr(c, info->then[k])->stream != instr(c, pc)->stream) return true;
    return false;
}

static bool new_event(Cuda *c, cudaEvent_t *event)
{
    return CHECK_CUDA(c, cudaEventCreateWithFlags, (event, cudaEventDisableTiming));
}

/* Opens the streams. Communications get a higher priority than computation. */
static bool open_streams(Cuda *c)
{
    int least = 0, greatest = 0;
    if (!CHECK_CUDA(c, cudaDeviceGetStreamPriorityRange, (&least, &greatest))) return false;
    for (int s = STREAM_none + 1; s < STREAM_COUNT; s++) {
        if (!c->streams.uses[s]) continue;
        int priority = s == STREAM_compute ? least : greatest;
        if (!CHECK_CUDA(c, cudaStreamCreateWithPriority,
                        (&c->streams.of[s], cudaStreamNonBlocking, priority)) ||
            !new_event(c, &c->streams.join[s]))
            return false;
    }
    return new_event(c, &c->streams.fork) && new_event(c, &c->streams.finished);
}

bool issue_open(Cuda *c)
{
    uint32_t n = c->state.info->n_instr;
    c->streams.event = arena_array(c->arena, (size_t)n + 1, sizeof *c->streams.event);
    c->streams.uses[STREAM_compute] = true; /* because a step begins and ends on this stream */
    for (Pc pc = 1; pc <= n; pc++) c->streams.uses[instr(c, pc)->stream] = true;
    if (!open_streams(c)) return false;
    for (Pc pc = 1; pc <= n; pc++)
        if (is_waited_for(c, pc) && !new_event(c, &c->streams.event[pc])) return false;
    order_make(c->state.info, c->arena, &c->launches.order);
    c->watch.next_on_stream = arena_array(c->arena, (size_t)n + 1, sizeof *c->watch.next_on_stream);
    for (uint32_t i = c->launches.order.n; i-- > 0;) {
        Pc pc = c->launches.order.pc[i], *first = &c->watch.first_on_stream[instr(c, pc)->stream];
        c->watch.next_on_stream[pc] = *first;
        *first = pc;
    }
    return true;
}

/* Returns which outputs (bit j: output j) of the instruction at position `at` are only used within
 * its chain. A chain is a sequence of instructions that run as one kernel; this one has n
 * instructions from position `first` on. A single access from outside of the chain is enough to
 * keep an output, even an access through a view. */
static uint32_t unread_outputs(const Cuda *c, uint32_t first, uint32_t n, uint32_t at)
{
    const Program *p = c->state.info->p;
    const Instr *in = instr(c, c->launches.order.pc[at]);
    uint32_t unread = 0;
    for (uint32_t j = in->n_in; j < in->args.n; j++) {
        BufferId b = program_arg(p, in, j);
        const Buffer *x = &p->buffers.at[b];
        uint32_t inside = 0;
        for (uint32_t i = first; i < first + n; i++) {
            const Instr *part = instr(c, c->launches.order.pc[i]);
            for (uint32_t k = 0; k < part->args.n; k++) inside += program_arg(p, part, k) == b;
        }
        bool stays = x->parent == 0 && !x->persistent && !x->result;
        if (stays && inside == c->state.info->n_touches[b]) unread |= 1u << (j - in->n_in);
    }
    return unread;
}

uint32_t issue_kernel(const Cuda *c, uint32_t at, CudaChainPart part[CUDA_CHAIN_MAX])
{
    const Program *p = c->state.info->p;
    uint32_t n = 0, fuse = instr(c, c->launches.order.pc[at])->fuse;
    if (fuse == 0) return 0;
    for (; n < CUDA_CHAIN_MAX && at + n < c->launches.order.n; n++) {
        Pc pc = c->launches.order.pc[at + n];
        const Instr *in = instr(c, pc);
        if (in->fuse != fuse || in->stream != STREAM_compute) break;
        /* an instruction in the middle of a kernel must not wait for another stream */
        bool waits = false;
        for (uint32_t k = 0; n > 0 && k < in->after.n; k++)
            waits = waits || instr(c, p->after.at[in->after.first + k])->stream != in->stream;
        if (waits) break;
        part[n] = (CudaChainPart){.op = in->op, .args = c->state.at[pc].args};
    }
    for (uint32_t i = 0; i < n; i++) part[i].unread = unread_outputs(c, at, n, at + i);
    return n;
}

static bool is_product(OpKind op)
{
    return op_info(op)->class_ == OP_CLASS_contract;
}

static bool product_failed(Cuda *c, Pc pc, const CudaError *error)
{
    return cuda_fail(c, "cuda", "rank %u, %s: %s", c->rank,
                     instr_text(c->plan, c->state.info->p, pc, c->arena), error->text);
}

/* Sets *length to the number of instructions, from position `at` on, that one launch carries out.
 * Returns false after an error. */
static bool chain_from(Cuda *c, uint32_t at, uint32_t *length)
{
    CudaChainPart part[CUDA_CHAIN_MAX];
    CudaError error = {""};
    uint32_t n = issue_kernel(c, at, part);
    *length = 1;
    if (n < 2) return true;
    if (!is_product(part[0].op))
        n = kernel_cuda_chain_length(part, n);
    else if (!cuda_products_chain_length(part, &n, &c->gpu.context, &error))
        return product_failed(c, c->launches.order.pc[at], &error);
    if (n > 1) *length = n;
    return true;
}

/* Gives up the chain of a product if another segment needs an output that the chain would leave
 * unwritten. */
static bool check_product(Cuda *c, uint32_t at)
{
    Pc pc = c->launches.order.pc[at];
    CudaChainPart part[CUDA_CHAIN_MAX];
    CudaError error = {""};
    uint32_t n = c->launches.chain[pc], length = n;
    if (n < 2 || !is_product(instr(c, pc)->op)) return true;
    for (uint32_t i = 0; i < n; i++) {
        Pc its = c->launches.order.pc[at + i];
        part[i] =
            (CudaChainPart){instr(c, its)->op, c->state.at[its].args, c->launches.unread[its]};
    }
    if (!cuda_products_chain_length(part, &length, &c->gpu.context, &error))
        return product_failed(c, pc, &error);
    if (length != n) c->launches.chain[pc] = 1;
    return true;
}

/* Lets segments with a common graph use the same kernels. A traced step issues each of these
 * segments by itself, but with the kernels of the segment that owns the graph. */
static void launch_alike(Cuda *c)
{
    const IssueOrder *o = &c->launches.order;
    for (uint32_t k = 0; k < o->n_segments; k++)
        for (uint32_t i = 0; i < o->segment[k].n; i++) {
            const Pc mine = o->pc[o->segment[k].first + i];
            const Pc its = o->pc[o->segment[o->segment[k].same].first + i];
            c->launches.chain[mine] = c->launches.chain[its];
            c->launches.unread[mine] = c->launches.unread[its];
        }
}

/* Finds the outputs that need not be written. If several segments use one graph, an output is left
 * out only if none of these segments needs it. */
static bool find_unread(Cuda *c)
{
    const IssueOrder *o = &c->launches.order;
    c->launches.unread = arena_array(c->arena, (size_t)o->n + 1, sizeof *c->launches.unread);
    for (uint32_t k = 0; k < o->n_segments; k++) {
        const Segment *s = &o->segment[k], *owner = &o->segment[s->same];
        for (uint32_t i = 0, n; i < s->n; i += n) {
            n = c->launches.chain[o->pc[owner->first + i]]; /* number of instructions in this
                                                               launch */
            for (uint32_t at = i; n > 1 && at < i + n; at++) {
                uint32_t bits = unread_outputs(c, s->first + i, n, s->first + at);
                uint32_t *mine = &c->launches.unread[o->pc[owner->first + at]];
                *mine = s->same == k ? bits : *mine & bits;
            }
        }
    }
    for (uint32_t k = 0; k < o->n_segments; k++)
        for (uint32_t i = 0; o->segment[k].same == k && i < o->segment[k].n; i++)
            if (!check_product(c, o->segment[k].first + i)) return false;
    launch_alike(c);
    return true;
}

bool issue_find_chains(Cuda *c)
{
    c->launches.chain =
        arena_array(c->arena, (size_t)c->launches.order.n + 1, sizeof *c->launches.chain);
    for (uint32_t i = 0; i < c->launches.order.n; i++)
        if (!chain_from(c, i, &c->launches.chain[c->launches.order.pc[i]])) return false;
    return find_unread(c);
}

static void close_event(cudaEvent_t *event)
{
    if (*event != NULL) cudaEventDestroy(*event);
    *event = NULL;
}

void issue_close(Cuda *c)
{
    for (Pc pc = 1; c->streams.event != NULL && pc <= c->state.info->n_instr; pc++)
        close_event(&c->streams.event[pc]);
    for (int s = 0; s < STREAM_COUNT; s++) {
        close_event(&c->streams.join[s]);
        if (c->streams.of[s] != NULL) cudaStreamDestroy(c->streams.of[s]);
        c->streams.of[s] = NULL;
    }
    close_event(&c->streams.fork);
    close_event(&c->streams.finished);
}

/* ---- one instruction ---- */

/* Runs a CPU kernel in the host stream. It reads and writes the pinned arena. */
static void CUDART_CB run_on_host(void *self)
{
    const Ready *at = self;
    const KernelArgs *a = at->args;
    at->kernel(a);
}

/* Runs an update on the host. If the norm of the gradients is not finite, it does nothing, as
 * updates on the device do. */
static void CUDART_CB update_on_host(void *self)
{
    const Ready *at = self;
    const double *table = at->args->ptr[at->args->n_in - 1]; /* {norm, coefficient} */
    if (table[0] - table[0] == 0) at->kernel(at->args);
}

bool issue_compute(Cuda *c, Pc pc, uint32_t n_parts, bool shared)
{
    const Instr *in = instr(c, pc);
    Ready *at = &c->state.at[pc];
    cudaStream_t stream = c->streams.of[in->stream];
    CudaError error = {""};
    if (op_info(in->op)->flags & OP_SOURCE) return stage_issue(c, pc, shared);
    if (in->stream == STREAM_host)
        return CHECK_CUDA(
            c, cudaLaunchHostFunc,
            (stream, op_info(in->op)->flags & OP_UPDATES ? update_on_host : run_on_host, at));
    if (in->op == OP_copy) { /* this also copies between the two arenas */
        uint64_t bytes = (uint64_t)at->args->elements[0] * dtype_bytes(at->args->dtype[0]);
        return CHECK_CUDA(c, cudaMemcpyAsync,
                          (at->args->ptr[1], at->args->ptr[0], bytes, cudaMemcpyDefault, stream));
    }
    c->gpu.context.stream = stream;
    c->gpu.context.pc = pc;
    bool fine;
    if (n_parts > 1) {
        CudaChainPart part[CUDA_CHAIN_MAX];
        uint32_t first = c->launches.order.at[pc];
        for (uint32_t i = 0; i < n_parts; i++) {
            Pc its = c->launches.order.pc[first + i];
            part[i] = (CudaChainPart){.op = instr(c, its)->op,
                                      .args = c->state.at[its].args,
                                      .unread = c->launches.unread[its]};
        }
        fine = is_product(in->op) ? cuda_products_chain(part, n_parts, &c->gpu.context, &error)
                                  : kernel_cuda_chain(part, n_parts, &c->gpu.context, &error);
    } else {
        fine = kernel_cuda(in->op)(at->args, &c->gpu.context, &error);
    }
    return fine || cuda_fail(c, "cuda", "rank %u, %s: %s", c->rank,
                             instr_text(c->plan, c->state.info->p, pc, c->arena), error.text);
}

static bool wait_for(Cuda *c, Pc pc, const Segment *s)
{
    const Program *p = c->state.info->p;
    const Instr *in = instr(c, pc);
    for (uint32_t k = 0; k < in->after.n; k++) {
        Pc before = p->after.at[in->after.first + k];
        /* that instruction belongs to an earlier segment, and all streams of this segment began
         * after it */
        bool is_past = c->launches.order.at[before] < s->first;
        if (is_past || instr(c, before)->stream == in->stream) continue;
        if (!CHECK_CUDA(c, cudaStreamWaitEvent,
                        (c->streams.of[in->stream], c->streams.event[before], 0)))
            return false;
    }
    return true;
}

/* Lets a stream publish its position for the watching code: writes `number` to `where`, an element
 * of c->watch.unfinished or c->watch.begun. */
static bool mark(Cuda *c, Stream s, uint32_t *where, uint32_t number)
{
    return CHECK_CUDA(c, cudaMemcpyAsync,
                      (where, &c->watch.numbers[number], sizeof *where, cudaMemcpyDeviceToHost,
                       c->streams.of[s]));
}

static bool record(Cuda *c, cudaEvent_t event, Stream s, bool captures)
{
    unsigned flags = captures ? cudaEventRecordExternal : cudaEventRecordDefault;
    return CHECK_CUDA(c, cudaEventRecordWithFlags, (event, c->streams.of[s], flags));
}

/* ---- a launch: a single instruction, a chain that runs as one kernel, or communications that
 * start together */

typedef struct IssuedLaunch {
    uint32_t first, n; /* first position in the order; number of instructions */
    bool is_comm;
} IssuedLaunch;

static IssuedLaunch launch_at(const Cuda *c, uint32_t i, uint32_t end)
{
    IssuedLaunch l = {i, 1, c->state.at[c->launches.order.pc[i]].comm != NULL};
    const Instr *in = instr(c, c->launches.order.pc[i]);
    if (!l.is_comm) {
        if (c->findings.scans == NULL && !c->options.alone)
            l.n = c->launches.chain[c->launches.order.pc[i]];
        assert(l.n <= end - i); /* a segment never begins in the middle of a kernel */
        return l;
    }
    while (in->launch != 0 && l.first + l.n < end) {
        const Instr *next = instr(c, c->launches.order.pc[l.first + l.n]);
        if (next->launch != in->launch || next->stream != in->stream) break;
        l.n++;
    }
    return l;
}

static bool issue_comms(Cuda *c, const IssuedLaunch *l)
{
    bool groups = l->n > 1 && c->comms.n_comms > 0, fine = true;
    if (c->comms.hosted != NULL) return hosted_issue(c, &c->launches.order.pc[l->first], l->n);
    if (groups && !CHECK_NCCL(c, NULL, ncclGroupStart, ())) return false;
    for (uint32_t i = 0; fine && i < l->n; i++)
        fine = comm_issue(c, c->launches.order.pc[l->first + i]);
    if (!groups) return fine;
    uint32_t any = c->comms.comm_of[c->launches.order.pc[l->first]];
    fine = CHECK_NCCL(c, &c->comms.of[any].comm, ncclGroupEnd, ()) && fine;
    for (uint32_t i = 1; fine && i < l->n; i++) { /* the communications of a launch may use
                                                     different communicators */
        uint32_t its = c->comms.comm_of[c->launches.order.pc[l->first + i]];
        fine = its == any || nccl_checked(c, &c->comms.of[its].comm, ncclInProgress, "ncclGroupEnd",
                                          __FILE__, __LINE__);
    }
    return fine;
}

/* largest number of instructions after which a stream publishes its position again; this copies 4
 * bytes */
enum { MARK_EVERY = 64 };

static bool issue_launch(Cuda *c, const IssuedLaunch *l, const Segment *s, bool captures)
{
    Pc first = c->launches.order.pc[l->first];
    Stream stream = instr(c, first)->stream;
    bool traces = c->findings.trace.begin != NULL, fine = true;
    atomic_fetch_add(&c->watch.beat, 1);
    for (uint32_t i = 0; fine && i < l->n; i++)
        fine = wait_for(c, c->launches.order.pc[l->first + i], s);
    if (fine && l->is_comm) fine = mark(c, stream, &c->watch.begun[stream], first);
    for (uint32_t i = 0; traces && i < l->n; i++)
        c->findings.trace.lead[c->launches.order.pc[l->first + i]] = first;
    if (fine && traces) fine = record(c, c->findings.trace.begin[first], stream, captures);
    if (!fine) return false;
    range_begin(c, first);
    fine = l->is_comm ? issue_comms(c, l) : issue_compute(c, first, l->n, s->shared);
    range_end();
    if (fine && traces) fine = record(c, c->findings.trace.end[first], stream, captures);
    for (uint32_t i = 0; fine && i < l->n; i++) {
        Pc pc = c->launches.order.pc[l->first + i];
        if (c->findings.scans != NULL) fine = scan_issue(c, pc);
        if (fine && !l->is_comm) fine = choices_issue(c, pc);
        if (fine && c->streams.event[pc] != NULL)
            fine = CHECK_CUDA(c, cudaEventRecord, (c->streams.event[pc], c->streams.of[stream]));
    }
    Pc last = c->launches.order.pc[l->first + l->n - 1];
    /* Publish a position now and then. A single rank has few events; without this, a long step
     * would look like a hang. */
    bool is_due = l->first / MARK_EVERY != (l->first + l->n) / MARK_EVERY;
    if (fine && (l->is_comm || c->streams.event[last] != NULL || is_due))
        fine = mark(c, stream, &c->watch.unfinished[stream], c->watch.next_on_stream[last]);
    return fine;
}

bool issue_segment(Cuda *c, const Segment *s, bool captures)
{
    cudaStream_t main = c->streams.of[STREAM_compute];
    bool fine = CHECK_CUDA(c, cudaEventRecord, (c->streams.fork, main));
    for (int k = STREAM_compute + 1; fine && k < STREAM_COUNT; k++)
        if (c->streams.uses[k])
            fine = CHECK_CUDA(c, cudaStreamWaitEvent, (c->streams.of[k], c->streams.fork, 0));
    uint32_t end = s->first + s->n;
    Pc begin[STREAM_COUNT] = {0};
    for (uint32_t i = end; i-- > s->first;)
        begin[instr(c, c->launches.order.pc[i])->stream] = c->launches.order.pc[i];
    for (int k = STREAM_compute; fine && k < STREAM_COUNT; k++)
        if (begin[k] != 0) fine = mark(c, (Stream)k, &c->watch.unfinished[k], begin[k]);
    for (uint32_t i = s->first; fine && i < end;) {
        IssuedLaunch l = launch_at(c, i, end);
        fine = issue_launch(c, &l, s, captures);
        i += l.n;
    }
    for (int k = STREAM_compute; fine && k < STREAM_COUNT; k++) {
        if (!c->streams.uses[k]) continue;
        fine = mark(c, (Stream)k, &c->watch.unfinished[k], 0);
        if (k == STREAM_compute || !fine) continue;
        fine = CHECK_CUDA(c, cudaEventRecord, (c->streams.join[k], c->streams.of[k])) &&
               CHECK_CUDA(c, cudaStreamWaitEvent, (main, c->streams.join[k], 0));
    }
    return fine;
}
