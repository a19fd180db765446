/* Opens and closes the CUDA backend, with one process for each rank and one device for each
 * process. While the backend opens, no rank may wait for a rank that has failed. So each rank first
 * does the work that needs no other rank. Then the ranks check that all of them have succeeded.
 * Only then do they begin the work in which all take part. Closing releases everything that was
 * opened. */
#include <assert.h>
#include <string.h>

#include "exec/cuda/private.h"
#include "planner/base/plural.h"

static const RankMachine machine = {kernel_cuda_accepts, kernel_cuda_workspace};

static const Loc nowhere = {NULL, 0};

enum { WHOLE_LENGTH = 4000 };

/* Default of patience_s in seconds. This is enough to choose kernels for the products of a large
 * plan, or to start NCCL on many machines. */
#define PATIENCE_S 120.0

static bool meet(Cuda *c)
{
    char why[MEET_WHY] = "";
    c->meet = meet_open(c->arena, c->transport, c->watch.patience_s, why, sizeof why);
    if (c->meet == NULL)
        return cuda_fail(c, "rank-meet", "the ranks cannot find each other: %s", why);
    c->rank = c->meet->rank;
    c->n_ranks = c->meet->n_ranks;
    if (c->n_ranks == c->plan->mesh.n_ranks) return true;
    c->failed = true;
    diag_error(c->d, FAULT_usage, "ranks-mismatch", nowhere,
               "%u process%s started, but the plan's mesh has %u rank%s", c->n_ranks,
               c->n_ranks == 1 ? "" : "es", c->plan->mesh.n_ranks, str_s(c->plan->mesh.n_ranks));
    diag_hint(c->d, "start %u process%s, or change the mesh with --set", c->plan->mesh.n_ranks,
              c->plan->mesh.n_ranks == 1 ? "" : "es");
    return false;
}

static bool all_are_fine(Cuda *c, bool fine)
{
    unsigned char mine = fine, *all = arena_array(c->arena, c->n_ranks, 1);
    if (!c->meet->exchange(c->meet, &mine, 1, all, c->watch.patience_s))
        return cuda_fail(c, "rank-open", "rank %u: %s", c->rank, c->meet->why);
    for (Rank r = 0; r < c->n_ranks; r++)
        if (!all[r]) return cuda_fail(c, "rank-open", "rank %u could not begin", r);
    return fine;
}

/* Allocates the small blocks of memory that a step needs besides the arenas. */
static bool open_blocks(Cuda *c)
{
    /* the last of these words are for the warm-up in comm.c */
    uint32_t n = c->state.info->n_instr + 2 + c->n_ranks;
    uint32_t *numbers = arena_array(c->arena, n, sizeof *numbers);
    for (uint32_t i = 0; i < n; i++) numbers[i] = i;
    void *host[3] = {NULL}, *device[3] = {NULL};
    bool fine = CHECK_CUDA(c, cudaMallocHost, (&host[0], sizeof *c->gpu.control_host));
    c->gpu.control_host = host[0];
    fine = fine && CHECK_CUDA(c, cudaMallocHost, (&host[1], sizeof *c->gpu.fault_host));
    c->gpu.fault_host = host[1];
    fine = fine && CHECK_CUDA(c, cudaMallocHost,
                              (&host[2], 2 * STREAM_COUNT * sizeof *c->watch.unfinished));
    c->watch.unfinished = host[2];
    c->watch.begun = c->watch.unfinished ? c->watch.unfinished + STREAM_COUNT : NULL;
    fine = fine && CHECK_CUDA(c, cudaMalloc, (&device[0], sizeof *c->gpu.control_device));
    c->gpu.control_device = device[0];
    fine = fine && CHECK_CUDA(c, cudaMalloc, (&device[1], sizeof *c->gpu.fault_device));
    c->gpu.fault_device = device[1];
    fine = fine && CHECK_CUDA(c, cudaMalloc, (&device[2], n * sizeof *numbers));
    c->watch.numbers = device[2];
    if (!fine) return false;
    memset(c->watch.unfinished, 0, 2 * STREAM_COUNT * sizeof *c->watch.unfinished);
    c->gpu.unsettled = true;
    c->gpu.context.control = c->gpu.control_device;
    c->gpu.context.fault = c->gpu.fault_device;
    return CHECK_CUDA(c, cudaMemset, (c->gpu.fault_device, 0, sizeof *c->gpu.fault_device)) &&
           CHECK_CUDA(c, cudaMemset, (c->gpu.control_device, 0, sizeof *c->gpu.control_device)) &&
           CHECK_CUDA(c, cudaMemcpy,
                      (c->watch.numbers, numbers, n * sizeof *numbers, cudaMemcpyHostToDevice));
}

static void close_blocks(Cuda *c)
{
    void *host[] = {c->gpu.control_host, c->gpu.fault_host, c->watch.unfinished};
    void *device[] = {c->gpu.control_device, c->gpu.fault_device, c->watch.numbers};
    for (int i = 0; i < 3; i++) {
        if (host[i] != NULL) cudaFreeHost(host[i]);
        if (device[i] != NULL) cudaFree(device[i]);
    }
    c->gpu.control_host = NULL, c->gpu.fault_host = NULL,
    c->watch.unfinished = c->watch.begun = NULL;
    c->gpu.control_device = NULL, c->gpu.fault_device = NULL, c->watch.numbers = NULL;
}

static void choose_segments(Cuda *c)
{
    uint32_t most = c->own.whole_length ? c->own.whole_length : WHOLE_LENGTH;
    CudaGraphs how = c->own.graphs;
    bool cuts = how == CUDA_GRAPHS_cut || (how == CUDA_GRAPHS_auto && c->launches.order.n > most);
    if (!cuts || !order_cut(&c->state, &c->launches.order, c->arena))
        order_whole(&c->launches.order, c->arena);
}

static bool open_rank(Cuda *c)
{
    const Program *p = plan_program(c->plan, c->rank);
    const ProgramInfo *info = program_info(c->plan, p, c->arena);
    c->state = (RankState){.plan = c->plan, .info = info, .rank = c->rank};
    if (!memory_open(c, p)) return false;
    bool fine =
        rank_prepare(&c->state, c->plan, info, c->rank, &c->control, &machine, c->arena, c->d);
    c->failed = c->failed || !fine;
    return fine && open_blocks(c) && choices_open(c) && issue_open(c) && stage_open(c) &&
           libraries_open(c);
}

bool cuda_open(Cuda *c, const Plan *plan, const BackendOptions *options)
{
    c->plan = plan;
    c->options = *options;
    if (options->own) c->own = *(const CudaOptions *)options->own;
    c->n_ranks = 1;
    if (c->options.timeout_s <= 0) c->options.timeout_s = 60;
    c->watch.patience_s = c->own.patience_s;
    if (c->watch.patience_s <= 0)
        c->watch.patience_s = c->options.timeout_s > PATIENCE_S ? c->options.timeout_s : PATIENCE_S;
    device_environment(); /* this must come before MPI starts, because a CUDA-aware MPI may call the
                             driver */
    if (!meet(c)) return false;
    c->watch.here = arena_array(c->arena, c->n_ranks, 1);
    /* CUDA may run the branches of a graph one after the other. Then one branch would wait for the
     * host, the host for other ranks, and these for another branch of this graph. So there are no
     * graphs here. */
    CudaGraphs *graphs = &c->own.graphs;
    if (c->own.via == CUDA_VIA_host && c->n_ranks > 1 && *graphs == CUDA_GRAPHS_auto)
        *graphs = CUDA_GRAPHS_none;
    bool fine = device_choose(c);
    if (!all_are_fine(c, fine) || !device_identify(c) || !watch_open(c)) return false;
    fine = open_rank(c);
    if (!all_are_fine(c, fine)) return false;
    if (!all_are_fine(c, libraries_settle(c))) return false;
    if (!all_are_fine(c, memory_place(c))) return false;
    choose_segments(c);
    /* with a single rank there is no communication that the loading of a kernel could wait for */
    return issue_find_chains(c) && memory_settle(c) && (c->n_ranks == 1 || load_kernels(c)) &&
           memory_fill(c) && memory_settle(c) && comm_open(c) && watch_begin(c);
}

void cuda_close(Cuda *c)
{
    trace_close(c);
    scan_close(c);
    graph_close(c); /* must come before the communicators are closed, because graphs contain them */
    comm_close(c);
    if (c->watch.stuck) watch_leave(c);
    if (!c->watch.stuck) {  /* freeing memory waits for the device; if it is stuck, only ending the
                               process helps */
        libraries_close(c); /* must come before the streams are closed */
        issue_close(c);
        stage_close(c);
        choices_close(c);
        close_blocks(c);
        memory_close(c);
    }
    watch_close(c);
    if (c->meet != NULL) c->meet->close(c->meet);
    c->meet = NULL;
}
