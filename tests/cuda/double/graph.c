/* Captured graphs: nodes, each with its predecessors. A launch of a graph is one task of its
 * stream. It runs nodes whose predecessors have run, in a random order. */
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/double/private.h"

static cudaGraph_t capturing; /* in these tests there is at most one capture at a time */

bool double_is_capturing(void)
{
    return capturing != NULL;
}

cudaError_t double_spoil_capture(void)
{
    if (capturing) capturing->is_spoilt = true;
    return world()->last = cudaErrorStreamCaptureUnsupported;
}

void double_capture(cudaStream_t stream, Task *task)
{
    cudaGraph_t g = stream->graph;
    GraphNode node = {.task = task};
    g->has_priorities = g->has_priorities || stream->priority != g->origin->priority;
    if (stream->last) node.before[node.n_before++] = stream->last;
    for (uint32_t i = 0; i < stream->n_waits; i++) node.before[node.n_before++] = stream->waits[i];
    stream->n_waits = 0;
    list_push(g->arena, &g->nodes, node);
    stream->last = g->nodes.n;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    CUDA_CALL(cudaStreamBeginCapture);
    (void)mode;
    if (capturing || stream->graph) return world()->last = cudaErrorIllegalState;
    capturing = double_new(OBJECT_graph, sizeof *capturing);
    capturing->arena = arena_new();
    capturing->origin = stream;
    capturing->users = 1;
    stream->graph = capturing;
    stream->last = stream->n_waits = 0;
    return cudaSuccess;
}

static void release(cudaGraph_t graph)
{
    if (--graph->users > 0) return;
    for (uint32_t i = 0; i < graph->nodes.n; i++)
        if (graph->nodes.at[i].task) double_free_task(graph->nodes.at[i].task);
    arena_free(graph->arena);
    free(graph);
}

/* Returns true if the last node of the capturing stream follows every other node. */
static bool is_joined(const struct CUgraph_st *g, uint32_t last)
{
    bool *seen = calloc((size_t)g->nodes.n + 1, 1), all = true;
    if (seen == NULL) double_misuse("out of memory");
    seen[last] = true;
    for (uint32_t i = g->nodes.n; i > 0; i--)
        for (uint32_t k = 0; seen[i] && k < g->nodes.at[i - 1].n_before; k++)
            seen[g->nodes.at[i - 1].before[k]] = true;
    for (uint32_t i = 1; i <= g->nodes.n; i++) all = all && seen[i];
    free(seen);
    return all;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    Scripted scripted = double_script("cudaStreamEndCapture");
    cudaGraph_t g = capturing;
    if (g == NULL || g->origin != stream) return world()->last = cudaErrorIllegalState;
    if (stream->n_waits > 0) double_capture(stream, NULL);
    bool joined = is_joined(g, stream->last);
    double_leave_capture(g);
    capturing = NULL;
    g->origin = NULL;
    cudaError_t error = scripted.kind == SCRIPT_fail ? (cudaError_t)scripted.code
                        : g->is_spoilt               ? cudaErrorStreamCaptureInvalidated
                        : !joined                    ? cudaErrorStreamCaptureUnjoined
                                                     : cudaSuccess;
    *graph = error == cudaSuccess ? g : NULL;
    if (error == cudaSuccess) return error;
    world()->live[OBJECT_graph]--;
    release(g);
    return world()->last = error;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    CUDA_CALL(cudaGraphDestroy);
    world()->live[OBJECT_graph]--;
    release(graph);
    return cudaSuccess;
}

struct CUgraphExec_st {
    cudaGraph_t graph;
};

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    CUDA_CALL(cudaGraphInstantiate);
    if (graph->has_priorities && !(flags & cudaGraphInstantiateFlagUseNodePriority))
        double_misuse("a graph that forgets the priorities of its streams");
    *exec = double_new(OBJECT_exec, sizeof **exec);
    (*exec)->graph = graph;
    graph->users++;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    CUDA_CALL(cudaGraphUpload);
    (void)exec, (void)stream;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    CUDA_CALL(cudaGraphExecDestroy);
    release(exec->graph);
    double_delete(OBJECT_exec, exec);
    return cudaSuccess;
}

typedef struct Launched {
    Task task;
    cudaGraph_t graph;
    bool *done; /* [node] the node has run */
    /* [node] how many of its predecessors, from the first on, are known to be done */
    uint32_t *met;
    void **state;
    uint32_t n_done;
    uint32_t at; /* 1 + the running node, if only one may run; 0: none */
} Launched;

static bool may_run(const Launched *l, uint32_t i)
{
    const GraphNode *n = &l->graph->nodes.at[i];
    if (l->done[i]) return false;
    while (l->met[i] < n->n_before && l->done[n->before[l->met[i]] - 1]) l->met[i]++;
    return l->met[i] == n->n_before;
}

static Progress run_node(Launched *l, uint32_t i)
{
    Task *task = l->graph->nodes.at[i].task;
    if (task && task->state_bytes > 0 && l->state[i] == NULL) {
        l->state[i] = calloc(1, task->state_bytes);
        if (l->state[i] == NULL) double_misuse("out of memory");
    }
    Progress p = task ? task->run(task, l->state[i]) : PROGRESS_done;
    if (p != PROGRESS_done) return p;
    world()->now_ms += 0.001;
    l->done[i] = true;
    l->n_done++;
    return l->n_done == l->graph->nodes.n ? PROGRESS_done : PROGRESS_some;
}

/* Runs one node at a time. Until it is done, all others wait. */
static Progress run_serial(Launched *l)
{
    uint32_t n = l->graph->nodes.n;
    uint32_t from = world()->serial_drawn ? (uint32_t)double_draw(n) : 0;
    for (uint32_t k = 0; l->at == 0 && k < n; k++)
        if (may_run(l, (from + k) % n)) l->at = 1 + (from + k) % n;
    uint32_t i = l->at - 1;
    Progress p = run_node(l, i);
    if (l->done[i]) l->at = 0;
    return p;
}

static Progress run_graph(Task *task, void *unused)
{
    Launched *l = (Launched *)task;
    uint32_t n = l->graph->nodes.n;
    (void)unused;
    if (n == 0) return PROGRESS_done;
    if (world()->serial) return run_serial(l);
    uint32_t from = (uint32_t)double_draw(n);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = (from + k) % n;
        if (!may_run(l, i)) continue;
        Progress p = run_node(l, i);
        if (p != PROGRESS_none) return p;
    }
    return PROGRESS_none;
}

static void release_launched(Task *task)
{
    Launched *l = (Launched *)task;
    for (uint32_t i = 0; i < l->graph->nodes.n; i++) free(l->state[i]);
    free(l->state);
    free(l->done);
    free(l->met);
    release(l->graph);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    CUDA_CALL(cudaGraphLaunch);
    if (stream->graph) return double_spoil_capture();
    Launched *l = double_task(sizeof *l, run_graph);
    l->task.release = release_launched;
    l->graph = exec->graph;
    l->graph->users++;
    size_t n = l->graph->nodes.n;
    l->done = calloc(n + 1, sizeof *l->done);
    l->met = calloc(n + 1, sizeof *l->met);
    l->state = calloc(n + 1, sizeof *l->state);
    if (l->done == NULL || l->met == NULL || l->state == NULL) double_misuse("out of memory");
    double_enqueue(stream, &l->task);
    return cudaSuccess;
}
