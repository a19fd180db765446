/* NCCL's communicators, and the issue of communications. There is one communicator for each pair
 * (axes, stream) of the plan. All of them are split from a first one that contains all ranks. All
 * ranks create the communicators and warm them up in the same order.
 *
 * NCCL chooses the order in which numbers are added. The order depends on the communicator, the
 * algorithm and the size. (On the CPU, the order is that of the ranks.) Each hop rounds to the
 * dtype of the buffers. Two runs of a plan give the same bits, unless NCCL uses NVLS. NCCL_ALGO can
 * exclude NVLS. Other backends give results that differ in the last bits. Maxima are exact, and so
 * are collectives that only move data. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "exec/cuda/private.h"
#include "planner/base/clock.h"

/* seconds that NCCL and CUDA get to abort running operations after a run has failed */
#define ABORT_S 3.0

static ncclConfig_t config_of(const Cuda *c)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const NcclSettings *s = &c->plan->nccl;
    config.blocking = 0;
    if (s->min_ctas > 0) config.minCTAs = (int)s->min_ctas;
    if (s->max_ctas > 0) config.maxCTAs = (int)s->max_ctas;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    if (s->cta_policy == NCCL_CTAS_efficiency) config.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
    if (s->cta_policy == NCCL_CTAS_zero) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
#endif
    return config;
}

/* Opens the first communicator, from which the others are split. It contains all ranks and carries
 * no data. */
static bool open_world(Cuda *c)
{
    ncclUniqueId id = {{0}}, *all = arena_array(c->arena, c->n_ranks, sizeof *all);
    ncclConfig_t config = config_of(c);
    bool fine = c->rank != 0 || CHECK_NCCL(c, NULL, ncclGetUniqueId, (&id));
    /* rank 0 takes part even after a failure, because the other ranks would wait for it */
    if (!c->meet->exchange(c->meet, &id, sizeof id, all, c->watch.patience_s))
        return cuda_fail(c, "rank-open", "rank %u: %s", c->rank, c->meet->why);
    return fine && CHECK_NCCL(c, &c->comms.world, ncclCommInitRankConfig,
                              (&c->comms.world, (int)c->n_ranks, all[0], (int)c->rank, &config));
}

static bool split(Cuda *c, CudaComm *comm)
{
    const Mesh *mesh = &c->plan->mesh;
    int color = (int)mesh_group(mesh, c->rank, comm->key.axes);
    int key = (int)mesh_part(mesh, c->rank, comm->key.axes);
    char name[64];
    ncclConfig_t config = config_of(c);
    snprintf(name, sizeof name, "%s on %s of %u", mesh_axes_text(c->arena, mesh, comm->key.axes),
             stream_name(comm->key.stream), mesh_size(mesh, comm->key.axes));
    comm->name = arena_dup(c->arena, name);
    config.commName = comm->name;
    /* `comm` stays NULL until NCCL has finished the split */
    if (!CHECK_NCCL(c, &c->comms.world, ncclCommSplit,
                    (c->comms.world, color, key, &comm->comm, &config)))
        return false;
    if (comm->comm == NULL)
        return cuda_fail(c, "nccl", "rank %u: ncclCommSplit made no communicator for %s", c->rank,
                         comm->name);
    return nccl_checked(c, &comm->comm, ncclSuccess, "ncclCommSplit", __FILE__, __LINE__);
}

enum { SENDS_TO = 1, RECEIVES_FROM = 2 };

/* `in` is a send or receive that member `from` of the group runs. If the message goes to this rank
 * (member `mine`) or comes from it, marks the member at the other end. */
static void add_peers(const Instr *in, uint32_t from, uint32_t n, uint32_t mine,
                      unsigned char *peers)
{
    uint32_t to = mesh_hop(from, in->hop, n);
    bool sends = in->op == OP_send;
    if (from == mine) peers[to] |= sends ? SENDS_TO : RECEIVES_FROM;
    if (to == mine) peers[from] |= sends ? RECEIVES_FROM : SENDS_TO;
}

/* Returns, for each member of the group, SENDS_TO if this rank sends to it in a step, RECEIVES_FROM
 * if this rank receives from it, both flags, or 0. Only messages on this communicator count. The
 * result is computed from the programs of all ranks, so both ends of a pair agree. */
static const unsigned char *find_peers(const Cuda *c, const GroupKey *key)
{
    const Mesh *mesh = &c->plan->mesh;
    uint32_t n = mesh_size(mesh, key->axes), mine = mesh_part(mesh, c->rank, key->axes);
    unsigned char *peers = arena_array(c->arena, n, 1);
    for (uint32_t k = 0; k < c->plan->programs.n; k++) {
        const Program *p = &c->plan->programs.at[k];
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = program_instr(p, pc);
            bool is_message = in->op == OP_send || in->op == OP_recv;
            if (in->axes != key->axes || in->stream != key->stream) continue;
            if (op_exchanges(in->op)) memset(peers, SENDS_TO | RECEIVES_FROM, n);
            if (in->op == OP_halo_exchange)
                peers[(mine + 1) % n] = peers[(mine + n - 1) % n] = SENDS_TO | RECEIVES_FROM;
            if (in->op == OP_rotate) {
                peers[(mine + 1) % n] |= SENDS_TO;
                peers[(mine + n - 1) % n] |= RECEIVES_FROM;
            }
            for (uint32_t i = 0; is_message && i < n; i++)
                if (c->plan->program_of[mesh_member(mesh, c->rank, key->axes, i)] == k)
                    add_peers(in, i, n, mine, peers);
        }
    }
    peers[mine] = 0;
    return peers;
}

/* Makes the connections of a communicator. Without this, NCCL would connect at the first use, which
 * is during a step or a capture. The warm-up reduces one number over all members and exchanges one
 * word with each member that exchanges messages with this rank. */
static bool warm_up(Cuda *c, CudaComm *comm)
{
    uint32_t n = mesh_size(&c->plan->mesh, comm->key.axes);
    const unsigned char *peers = find_peers(c, &comm->key);
    cudaStream_t stream = c->streams.of[comm->key.stream];
    uint32_t *at = c->watch.numbers + c->state.info->n_instr + 1; /* words that no other code
                                                                     uses */
    ncclComm_t of = comm->comm;
    bool fine = CHECK_NCCL(c, &of, ncclAllReduce, (at, at, 1, ncclUint32, ncclMax, of, stream)) &&
                CHECK_NCCL(c, &of, ncclGroupStart, ());
    for (uint32_t i = 0; fine && i < n; i++) {
        int peer = (int)i;
        if (peers[i] & SENDS_TO)
            fine = CHECK_NCCL(c, &of, ncclSend, (at, 1, ncclUint32, peer, of, stream));
        if (fine && peers[i] & RECEIVES_FROM)
            fine = CHECK_NCCL(c, &of, ncclRecv, (at + 1 + i, 1, ncclUint32, peer, of, stream));
    }
    /* an open group of NCCL calls must be closed even after an error */
    return CHECK_NCCL(c, &of, ncclGroupEnd, ()) && fine &&
           CHECK_CUDA(c, cudaEventRecord, (c->streams.finished, stream)) &&
           watch_opening(c, comm->name);
}

/* Returns true if all members of this rank's group run the same program. A symmetric window needs
 * this: the buffers of a collective must have the same offset in the arenas of all members. */
static bool are_alike(const Cuda *c, const CudaComm *comm)
{
    const Mesh *mesh = &c->plan->mesh;
    Rank group = mesh_group(mesh, c->rank, comm->key.axes);
    for (Rank r = 0; r < c->n_ranks; r++)
        if (mesh_group(mesh, r, comm->key.axes) == group &&
            c->plan->program_of[r] != c->plan->program_of[c->rank])
            return false;
    return true;
}

static bool register_arena(Cuda *c, CudaComm *comm)
{
    NcclRegister how = c->plan->nccl.registration;
    ncclComm_t of = comm->comm;
    if (how == NCCL_REGISTER_none) return true;
    if (how == NCCL_REGISTER_auto)
        how = are_alike(c, comm) && !c->own.share_device ? NCCL_REGISTER_window
                                                         : NCCL_REGISTER_buffer;
    if (how == NCCL_REGISTER_buffer)
        return CHECK_NCCL(c, &of, ncclCommRegister,
                          (of, c->state.device, c->gpu.arena_bytes, &comm->registered));
    if (!are_alike(c, comm))
        return cuda_fail(
            c, "cuda-window",
            "windows cannot be used, because ranks that communicate on %s run different programs",
            mesh_axes_text(c->arena, &c->plan->mesh, comm->key.axes));
    comm->has_window = CHECK_NCCL(
        c, &of, ncclCommWindowRegister,
        (of, c->state.device, c->gpu.arena_bytes, &comm->window, NCCL_WIN_COLL_SYMMETRIC));
    return comm->has_window;
}

bool comm_open(Cuda *c)
{
    GroupKeys keys;
    const Program *p = c->state.info->p;
    c->comms.comm_of = arena_array(c->arena, p->code.n, sizeof *c->comms.comm_of);
    if (!uneven_open(c)) return false;
    if (c->n_ranks == 1) return true;
    if (c->own.via == CUDA_VIA_host) return hosted_open(c);
    groups_collect(c->plan, true, c->arena, &keys);
    c->comms.of = arena_array(c->arena, keys.all.n, sizeof *c->comms.of);
    if (!open_world(c)) return false;
    for (uint32_t k = 0; k < keys.all.n; k++) {
        c->comms.of[k].key = keys.all.at[k];
        c->comms.n_comms = k + 1;
        if (!split(c, &c->comms.of[k])) return false;
    }
    for (uint32_t k = 0; k < c->comms.n_comms; k++)
        if (!warm_up(c, &c->comms.of[k])) return false;
    for (uint32_t k = 0; k < c->comms.n_comms; k++)
        if (!register_arena(c, &c->comms.of[k])) return false;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Comm *comm = c->state.at[pc].comm;
        if (comm == NULL) continue;
        c->comms.comm_of[pc] = groups_find(&keys, comm->axes, comm->stream);
        assert(c->comms.comm_of[pc] < c->comms.n_comms);
    }
    return true;
}

static void close_one(Cuda *c, ncclComm_t comm)
{
    if (comm == NULL) return;
    bool is_final = !c->watch.dead && !c->failed && CHECK_NCCL(c, &comm, ncclCommFinalize, (comm));
    if (is_final)
        ncclCommDestroy(comm);
    else
        ncclCommAbort(comm);
}

static void *abort_all(void *self)
{
    Cuda *c = self;
    hosted_stop(c);
    for (uint32_t k = c->comms.n_comms; k-- > 0;)
        if (c->comms.of[k].comm != NULL) ncclCommAbort(c->comms.of[k].comm);
    if (c->comms.world != NULL) ncclCommAbort(c->comms.world);
    atomic_store(&c->watch.aborted, true);
    return NULL;
}

/* Waits for the device to stop running the aborted work. Returns false if the device still runs it
 * at the time `until`. A lost device never becomes idle. */
static bool is_idle(Cuda *c, double until)
{
    const struct timespec pause = {0, 1000000};
    for (int s = 0; s < STREAM_COUNT; s++) {
        if (c->streams.of[s] == NULL ||
            cudaEventRecord(c->streams.finished, c->streams.of[s]) != cudaSuccess)
            continue;
        while (cudaEventQuery(c->streams.finished) == cudaErrorNotReady) {
            if (clock_s() > until) return false;
            nanosleep(&pause, NULL);
        }
    }
    cudaGetLastError();
    return true;
}

/* Aborts all communicators. NCCL's abort waits for NCCL's own threads and, in some versions, for
 * the very work that it should abort. So a separate thread calls it; if it does not return, the
 * thread ends with the process. */
bool comm_abort(Cuda *c)
{
    pthread_t thread;
    const struct timespec pause = {0, 1000000};
    double until = clock_s() + ABORT_S;
    c->watch.dead = true;
    if (c->comms.hosted == NULL && c->comms.n_comms == 0 && c->comms.world == NULL) return true;
    if (c->watch.stuck || pthread_create(&thread, NULL, abort_all, c) != 0)
        return !(c->watch.stuck = true);
    while (!atomic_load(&c->watch.aborted) && clock_s() < until) nanosleep(&pause, NULL);
    c->watch.stuck = !atomic_load(&c->watch.aborted);
    if (c->watch.stuck)
        pthread_detach(thread);
    else
        pthread_join(thread, NULL);
    c->watch.stuck = c->watch.stuck || !is_idle(c, until);
    if (c->watch.stuck) return false;
    c->comms.n_comms = 0;
    c->comms.world = NULL;
    return true;
}

void comm_close(Cuda *c)
{
    /* after an error, no call may wait for other ranks */
    if ((c->watch.dead || c->failed) && !comm_abort(c)) return;
    c->watch.closing = true;
    hosted_close(c);
    uneven_close(c);
    for (uint32_t k = 0; k < c->comms.n_comms; k++) {
        CudaComm *comm = &c->comms.of[k];
        /* NCCL creates no window if the devices cannot access each other's memory */
        if (!c->failed && comm->has_window && comm->window != NULL)
            CHECK_NCCL(c, &comm->comm, ncclCommWindowDeregister, (comm->comm, comm->window));
        if (!c->failed && comm->registered != NULL)
            CHECK_NCCL(c, &comm->comm, ncclCommDeregister, (comm->comm, comm->registered));
        comm->registered = NULL;
        comm->has_window = false;
    }
    for (uint32_t k = c->comms.n_comms; k-- > 0;) {
        close_one(c, c->comms.of[k].comm);
        c->comms.of[k].comm = NULL;
    }
    close_one(c, c->comms.world);
    c->comms.world = NULL;
    c->comms.n_comms = 0;
}

bool comm_errors(Cuda *c)
{
    for (uint32_t k = 0; k < c->comms.n_comms; k++) {
        ncclResult_t state = ncclSuccess;
        if (c->comms.of[k].comm == NULL) continue;
        if (!CHECK_NCCL(c, NULL, ncclCommGetAsyncError, (c->comms.of[k].comm, &state)))
            return false;
        if (state == ncclSuccess || state == ncclInProgress) continue;
        return nccl_checked(c, &c->comms.of[k].comm, state, "a communication", __FILE__, __LINE__);
    }
    return true;
}

/* ---- instructions ---- */

/* Returns NCCL's name of a dtype in which NCCL can add. Communications that only move data send
 * bytes, so they work for every dtype. */
static ncclDataType_t type_of(DType t)
{
    if (t == DT_f64) return ncclFloat64;
    if (t == DT_f32) return ncclFloat32;
    if (t == DT_bf16) return ncclBfloat16;
    if (t == DT_f16) return ncclFloat16;
    if (t == DT_e4m3) return ncclFloat8e4m3;
    assert(t == DT_e5m2); /* ready.c refuses reductions of other 8-bit dtypes */
    return ncclFloat8e5m2;
}

static ncclRedOp_t op_of(Reduce reduce)
{
    if (reduce == REDUCE_max) return ncclMax;
    return reduce == REDUCE_mean ? ncclAvg : ncclSum;
}

/* Sends part i of the input to member i. */
static bool all_to_all(Cuda *c, const Comm *comm, ncclComm_t of, cudaStream_t stream)
{
    uint64_t piece = comm->in_bytes / comm->n_members;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
    return CHECK_NCCL(c, &of, ncclAlltoAll, (comm->in, comm->out, piece, ncclInt8, of, stream));
#else
    bool fine = CHECK_NCCL(c, &of, ncclGroupStart, ());
    for (uint32_t i = 0; fine && i < comm->n_members; i++)
        fine = CHECK_NCCL(c, &of, ncclSend,
                          (comm->in + i * piece, piece, ncclInt8, (int)i, of, stream)) &&
               CHECK_NCCL(c, &of, ncclRecv,
                          (comm->out + i * piece, piece, ncclInt8, (int)i, of, stream));
    return CHECK_NCCL(c, &of, ncclGroupEnd, ()) && fine;
#endif
}

/* The input consists of two strips that the neighbours of this rank need. Sends strip 0 to the next
 * member, and strip 1 to the previous one. A rank without a neighbour gets a strip of zeros. */
static bool exchange_strips(Cuda *c, const Comm *comm, ncclComm_t of, cudaStream_t stream)
{
    const uint64_t strip = comm->in_bytes / 2;
    const uint32_t n = comm->n_members, me = comm->part;
    const bool first = me == 0 && !comm->wraps, last = me + 1 == n && !comm->wraps;
    bool fine = true;
    if (first) fine = CHECK_CUDA(c, cudaMemsetAsync, (comm->out, 0, strip, stream));
    if (fine && last) fine = CHECK_CUDA(c, cudaMemsetAsync, (comm->out + strip, 0, strip, stream));
    if (!fine || !CHECK_NCCL(c, &of, ncclGroupStart, ())) return false;
    const int next = (int)((me + 1) % n), previous = (int)((me + n - 1) % n);
    /* In a ring of two members, both strips go to the same member. NCCL pairs its sends and
     * receives in the order of the calls, so the order of the four calls below matters. */
    if (fine && !last)
        fine = CHECK_NCCL(c, &of, ncclSend, (comm->in, strip, ncclInt8, next, of, stream));
    if (fine && !first)
        fine =
            CHECK_NCCL(c, &of, ncclRecv, (comm->out, strip, ncclInt8, previous, of, stream)) &&
            CHECK_NCCL(c, &of, ncclSend, (comm->in + strip, strip, ncclInt8, previous, of, stream));
    if (fine && !last)
        fine = CHECK_NCCL(c, &of, ncclRecv, (comm->out + strip, strip, ncclInt8, next, of, stream));
    return CHECK_NCCL(c, &of, ncclGroupEnd, ()) && fine;
}

/* Sends this rank's input to the next member of the group, and receives the output from the
 * previous one. */
static bool rotate(Cuda *c, const Comm *comm, ncclComm_t of, cudaStream_t stream)
{
    const uint32_t n = comm->n_members, me = comm->part;
    const int next = (int)((me + 1) % n), previous = (int)((me + n - 1) % n);
    bool fine = CHECK_NCCL(c, &of, ncclGroupStart, ());
    fine =
        fine &&
        CHECK_NCCL(c, &of, ncclSend, (comm->in, comm->in_bytes, ncclInt8, next, of, stream)) &&
        CHECK_NCCL(c, &of, ncclRecv, (comm->out, comm->out_bytes, ncclInt8, previous, of, stream));
    return CHECK_NCCL(c, &of, ncclGroupEnd, ()) && fine;
}

bool comm_issue(Cuda *c, Pc pc)
{
    const Comm *comm = c->state.at[pc].comm;
    cudaStream_t stream = c->streams.of[comm->stream];
    const CudaComm *its = c->comms.n_comms > 0 ? &c->comms.of[c->comms.comm_of[pc]] : NULL;
    if (comm->n_members == 1) /* a group of one: the data are already in place, or are copied */
        return comm->in == comm->out ||
               CHECK_CUDA(c, cudaMemcpyAsync,
                          (comm->out, comm->in, comm->out_bytes, cudaMemcpyDefault, stream));
    assert(its != NULL);
    ncclComm_t of = its->comm;
    uint64_t element = dtype_bytes(comm->dtype);
    if (comm->op == OP_all_gather)
        return CHECK_NCCL(c, &of, ncclAllGather,
                          (comm->in, comm->out, comm->in_bytes, ncclInt8, of, stream));
    if (comm->op == OP_all_to_all) return all_to_all(c, comm, of, stream);
    if (comm->op == OP_exchange_uneven) return uneven_issue(c, pc, of, stream);
    if (comm->op == OP_halo_exchange) return exchange_strips(c, comm, of, stream);
    if (comm->op == OP_rotate) return rotate(c, comm, of, stream);
    if (comm->op == OP_all_reduce)
        return CHECK_NCCL(c, &of, ncclAllReduce,
                          (comm->in, comm->out, comm->in_bytes / element, type_of(comm->dtype),
                           op_of(comm->reduce), of, stream));
    if (comm->op == OP_reduce_scatter)
        return CHECK_NCCL(c, &of, ncclReduceScatter,
                          (comm->in, comm->out, comm->out_bytes / element, type_of(comm->dtype),
                           op_of(comm->reduce), of, stream));
    const Mesh *mesh = &c->plan->mesh;
    if (comm->op == OP_send)
        return CHECK_NCCL(c, &of, ncclSend,
                          (comm->in, comm->in_bytes, ncclInt8,
                           (int)mesh_part(mesh, comm->peer, comm->axes), of, stream));
    assert(comm->op == OP_recv);
    return CHECK_NCCL(c, &of, ncclRecv,
                      (comm->out, comm->out_bytes, ncclInt8,
                       (int)mesh_part(mesh, comm->leader, comm->axes), of, stream));
}
