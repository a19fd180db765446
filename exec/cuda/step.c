/* Runs a step. The control block and the data are copied to the device; then the program runs, as
 * CUDA graphs or instruction by instruction. The host waits only once, at the end. */
#include <string.h>

#include "exec/cuda/private.h"

static bool send_control(Cuda *c)
{
    *c->gpu.control_host = (CudaControl){c->control.step, c->control.lr, c->control.seed};
    return CHECK_CUDA(c, cudaMemcpyAsync,
                      (c->gpu.control_device, c->gpu.control_host, sizeof *c->gpu.control_host,
                       cudaMemcpyHostToDevice, c->streams.of[STREAM_compute]));
}

static bool run_program(Cuda *c, bool by_graphs)
{
    const Segment all = {.n = c->launches.order.n};
    if (!by_graphs) return issue_segment(c, &all, false);
    for (uint32_t i = 0; i < c->launches.order.n_segments; i++)
        if (!graph_launch(c, i)) return false;
    return true;
}

/* Reports a fault that a kernel has found in its data. */
static bool check_fault(Cuda *c)
{
    uint32_t fault = *c->gpu.fault_host;
    if (fault == 0) return true;
    Pc pc = fault & ((1u << CUDA_FAULT_PC_BITS) - 1);
    bool label = fault >> CUDA_FAULT_PC_BITS == CUDA_FAULT_label;
    const char *what = label ? "a label" : "a token id";
    return cuda_fail(c, "cuda-data",
                     "step %lld: rank %u read %s that is not in the vocabulary, in %s",
                     (long long)c->control.step, c->rank, what,
                     instr_text(c->plan, c->state.info->p, pc, c->arena));
}

/* Does the host's work before the device starts the step. If this work may take long, all ranks
 * wait for each other afterwards. Otherwise the fastest rank would take the others' work for a
 * hang. */
static bool prepare(Cuda *c, bool by_graphs, bool traced)
{
    /* the first step runs without graphs, because CUDA may load kernels during it */
    const bool captures = by_graphs && !traced && c->launches.graph == NULL;
    const bool reads = c->launches.next_filled != c->control.step;
    if (!memory_poison(c) || !memory_settle(c)) return false;
    stage_fill(c);
    if (captures && !graph_capture(c)) return false;
    if (traced && !trace_open(c, by_graphs)) return false;
    const bool is_long =
        captures || traced || reads || c->options.poison || c->findings.scans != NULL;
    return !is_long || watch_together(c);
}

static bool issue_step(Cuda *c, bool by_graphs, bool traced)
{
    cudaStream_t main = c->streams.of[STREAM_compute];
    return send_control(c) &&
           (!traced || CHECK_CUDA(c, cudaEventRecord, (c->findings.trace.zero, main))) &&
           run_program(c, by_graphs) &&
           CHECK_CUDA(c, cudaMemcpyAsync,
                      (c->gpu.fault_host, c->gpu.fault_device, sizeof *c->gpu.fault_host,
                       cudaMemcpyDeviceToHost, main)) &&
           CHECK_CUDA(c, cudaEventRecord, (c->streams.finished, main));
}

bool step_run(Cuda *c, const Control *control, Trace *trace)
{
    bool by_graphs =
        c->own.graphs != CUDA_GRAPHS_none && c->launches.n_steps > 0 && c->findings.scans == NULL;
    c->control = *control;
    atomic_store(&c->report.slot->step, (uint32_t)control->step);
    for (int s = 0; s < STREAM_COUNT; s++)
        atomic_store(&c->report.slot->unfinished[s], c->watch.first_on_stream[s]);
    watch_arm(c, false);
    bool fine = prepare(c, by_graphs, trace != NULL);
    watch_arm(c, true);
    fine = fine && issue_step(c, by_graphs, trace != NULL);
    watch_arm(c, false);
    if (fine) stage_prepare(c);
    watch_arm(c, true);
    fine = fine && watch_step(c);
    watch_arm(c, false);
    fine = fine && check_fault(c) && memory_inspect(c);
    if (fine && trace) trace_rows(c, trace);
    /* report before anything is released, because releasing may wait */
    if (!fine || c->failed) watch_fail(c);
    if (trace) trace_close(c);
    atomic_store(&c->report.slot->state, STATUS_open);
    c->launches.n_steps++;
    return fine && !c->failed;
}

bool step_find_bad(Cuda *c, const Control *control, Trace *trace, BadNumber *bad)
{
    bool fine = scan_open(c, bad) && step_run(c, control, trace);
    scan_close(c);
    return fine || watch_fail(c);
}
