/* Runs steps as CUDA graphs. A segment is the part of a step that becomes one graph (order.h). The
 * streams are captured while a segment is issued. A traced step has its own graphs, which contain
 * events. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cuda/private.h"

/* Captures the graph of one segment. A capture must be ended even after an error. */
static bool capture(Cuda *c, const Segment *s, cudaGraphExec_t *exec)
{
    cudaStream_t main = c->streams.of[STREAM_compute];
    cudaGraph_t graph = NULL;
    /* with this flag, communications keep their own priority instead of getting that of the
     * launching stream */
    const unsigned long long flags = cudaGraphInstantiateFlagUseNodePriority;
    if (!CHECK_CUDA(c, cudaStreamBeginCapture, (main, cudaStreamCaptureModeThreadLocal)))
        return false;
    bool fine = issue_segment(c, s, true);
    fine = CHECK_CUDA(c, cudaStreamEndCapture, (main, &graph)) && fine;
    fine = fine && CHECK_CUDA(c, cudaGraphInstantiate, (exec, graph, flags)) &&
           CHECK_CUDA(c, cudaGraphUpload, (*exec, main));
    if (graph != NULL) cudaGraphDestroy(graph);
    return fine;
}

static void destroy(Cuda *c, cudaGraphExec_t *exec)
{
    for (uint32_t i = 0; exec != NULL && i < c->launches.order.n_segments; i++) {
        if (exec[i] != NULL) cudaGraphExecDestroy(exec[i]);
        exec[i] = NULL;
    }
}

static cudaGraphExec_t *new_graphs(Cuda *c)
{
    return arena_array(c->arena, c->launches.order.n_segments, sizeof(cudaGraphExec_t));
}

bool graph_capture(Cuda *c)
{
    c->launches.graph = new_graphs(c);
    if (!stage_open_slots(c)) return false;
    for (uint32_t i = 0; i < c->launches.order.n_segments; i++) {
        const Segment *s = &c->launches.order.segment[i];
        if (s->same == i && !capture(c, s, &c->launches.graph[i])) return false;
    }
    return true;
}

bool graph_launch(Cuda *c, uint32_t segment)
{
    const Segment *s = &c->launches.order.segment[segment];
    cudaStream_t main = c->streams.of[STREAM_compute];
    uint32_t owner = c->launches.traced ? segment : s->same;
    /* several segments may use one graph, so tell the watching code which of them is running */
    if (!CHECK_CUDA(c, cudaMemcpyAsync,
                    (&c->watch.unfinished[STREAM_none], &c->watch.numbers[segment],
                     sizeof c->watch.unfinished[0], cudaMemcpyDeviceToHost, main)))
        return false;
    bool shared = c->launches.traced == NULL && c->launches.order.segment[owner].shared;
    if (shared && !stage_to_slot(c, s)) return false;
    return CHECK_CUDA(c, cudaGraphLaunch,
                      ((c->launches.traced ? c->launches.traced : c->launches.graph)[owner], main));
}

void graph_close(Cuda *c)
{
    destroy(c, c->launches.graph);
    c->launches.graph = NULL;
}

/* ---- a traced step ---- */

static bool open_events(Cuda *c)
{
    uint32_t n = c->state.info->n_instr;
    CudaTrace *t = &c->findings.trace;
    t->begin = calloc((size_t)n + 1, sizeof *t->begin);
    t->end = calloc((size_t)n + 1, sizeof *t->end);
    t->lead = calloc((size_t)n + 1, sizeof *t->lead);
    if (t->begin == NULL || t->end == NULL || t->lead == NULL)
        return cuda_fail(c, "exec-memory", "no memory for the events of %u instructions", n);
    if (!CHECK_CUDA(c, cudaEventCreate, (&t->zero))) return false;
    for (Pc pc = 1; pc <= n; pc++)
        if (!CHECK_CUDA(c, cudaEventCreate, (&t->begin[pc])) ||
            !CHECK_CUDA(c, cudaEventCreate, (&t->end[pc])))
            return false;
    return true;
}

bool trace_open(Cuda *c, bool by_graphs)
{
    if (!open_events(c)) return false;
    if (!by_graphs) return true;
    c->launches.traced = new_graphs(c);
    for (uint32_t i = 0; i < c->launches.order.n_segments; i++) {
        Segment own = c->launches.order.segment[i];
        own.shared = false; /* a traced step needs separate events for each micro-batch */
        if (!capture(c, &own, &c->launches.traced[i])) return false;
    }
    return true;
}

/* Returns the picoseconds between two events. CUDA returns milliseconds as a float, so short times
 * are measured more precisely than long ones. */
static Ps between(Cuda *c, cudaEvent_t first, cudaEvent_t second)
{
    float ms = 0;
    if (!CHECK_CUDA(c, cudaEventElapsedTime, (&ms, first, second))) return 0;
    return (Ps)((double)ms * 1e9);
}

void trace_rows(Cuda *c, Trace *trace)
{
    const CudaTrace *t = &c->findings.trace;
    for (Pc pc = 1; pc <= c->state.info->n_instr && !c->failed; pc++) {
        if (trace->rows.n == trace->rows.room) return;
        Pc lead = t->lead[pc];
        assert(lead != 0); /* the step has issued every instruction */
        Ps start = between(c, t->zero, t->begin[lead]);
        Ps end = start + between(c, t->begin[lead], t->end[lead]);
        TraceRow row = {.rank = c->rank,
                        .step = (uint32_t)c->control.step,
                        .pc = pc,
                        .start_ps = lead == pc ? start : end,
                        .end_ps = end,
                        .bytes = c->state.info->bytes[pc]};
        trace->rows.at[trace->rows.n++] = row;
    }
}

void trace_close(Cuda *c)
{
    CudaTrace *t = &c->findings.trace;
    destroy(c, c->launches.traced);
    c->launches.traced = NULL;
    for (Pc pc = 1; c->state.info != NULL && pc <= c->state.info->n_instr; pc++) {
        if (t->begin != NULL && t->begin[pc] != NULL) cudaEventDestroy(t->begin[pc]);
        if (t->end != NULL && t->end[pc] != NULL) cudaEventDestroy(t->end[pc]);
    }
    if (t->zero != NULL) cudaEventDestroy(t->zero);
    free(t->begin);
    free(t->end);
    free(t->lead);
    *t = (CudaTrace){NULL, NULL, NULL, NULL};
}
