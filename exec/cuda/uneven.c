/* Exchanges rows of experts by messages of NCCL. Each rank may send a different number of rows
 * (exec/uneven.c). The sizes of the messages are known only during the step. So the host waits for
 * the tables of counts, and a step with such an exchange cannot be a CUDA graph. */
#include "exec/cuda/private.h"

static bool is_uneven(const Cuda *c, Pc pc)
{
    const Comm *comm = c->state.at[pc].comm;
    return comm != NULL && comm->op == OP_exchange_uneven && comm->n_members > 1;
}

bool uneven_open(Cuda *c)
{
    size_t most = 0;
    void *at;
    for (Pc pc = 1; pc <= c->state.info->n_instr; pc++) {
        const Comm *comm = c->state.at[pc].comm;
        size_t n = 0;
        for (int side = 0; side < 2 && is_uneven(c, pc); side++)
            n += (size_t)(comm->experts[side] * comm->samples[side]);
        if (n > most) most = n;
    }
    if (most == 0) return true;
    if (c->own.via == CUDA_VIA_host)
        return cuda_fail(c, "cuda-uneven",
                         "rank %u: --via host does not work with dropless experts; leave out "
                         "--via, or set capacity_factor = \"all\"",
                         c->rank);
    if (c->own.graphs == CUDA_GRAPHS_whole || c->own.graphs == CUDA_GRAPHS_cut)
        return cuda_fail(c, "cuda-uneven",
                         "rank %u: --graph does not work with dropless experts; leave out --graph",
                         c->rank);
    c->own.graphs = CUDA_GRAPHS_none;
    if (!CHECK_CUDA(c, cudaMallocHost, (&at, most * sizeof(int32_t)))) return false;
    c->comms.counts = at;
    return true;
}

void uneven_close(Cuda *c)
{
    if (c->comms.counts != NULL) cudaFreeHost(c->comms.counts);
    c->comms.counts = NULL;
}

/* Copies the tables of counts to the host and waits for them, because NCCL takes the sizes of
 * messages from the host. */
static bool read_counts(Cuda *c, const Comm *comm, Comm *host, cudaStream_t stream)
{
    int32_t *at = c->comms.counts;
    *host = *comm;
    for (int side = 0; side < 2; side++) {
        const size_t n = (size_t)(comm->experts[side] * comm->samples[side]);
        if (!CHECK_CUDA(c, cudaMemcpyAsync,
                        (at, comm->counts[side], n * sizeof *at, cudaMemcpyDeviceToHost, stream)))
            return false;
        host->counts[side] = at;
        at += n;
    }
    return CHECK_CUDA(c, cudaStreamSynchronize, (stream));
}

/* The memory with the rows of one exchange. On the samples' side, rows are ordered by expert. On
 * the experts' side, the rows of each expert are ordered by rank. */
typedef struct Sides {
    Comm host;
    bool there; /* true: rows go to the experts; false: they go back */
    int64_t n, experts, samples;
    uint64_t row;
    char *of_samples, *of_experts;
} Sides;

static uint64_t bytes_for(const Sides *s, int64_t expert)
{
    return (uint64_t)uneven_piece(&s->host, !s->there, expert, 0, s->samples) * s->row;
}

static uint64_t bytes_from(const Sides *s, int64_t expert, int64_t part)
{
    return (uint64_t)uneven_piece(&s->host, s->there, expert, part, s->samples) * s->row;
}

/* Copies the rows that stay on this rank, and sets the memory after the rank's last row to zero. */
static bool keep_rows(Cuda *c, const Sides *s, cudaStream_t stream)
{
    const uint64_t end = (uint64_t)uneven_rows_to(&s->host) * s->row;
    char *own = s->of_samples, *at = s->of_experts;
    bool fine =
        CHECK_CUDA(c, cudaMemsetAsync, (s->host.out + end, 0, s->host.out_bytes - end, stream));
    for (int64_t e = 0; e < s->host.part * s->experts; e++) own += bytes_for(s, e);
    for (int64_t i = 0; i < s->experts * s->n && fine; i++) {
        const uint64_t bytes = bytes_from(s, i / s->n, i % s->n);
        if (i % s->n == s->host.part && bytes > 0) {
            fine = CHECK_CUDA(c, cudaMemcpyAsync,
                              (s->there ? at : own, s->there ? own : at, bytes,
                               cudaMemcpyDeviceToDevice, stream));
            own += bytes;
        }
        at += bytes;
    }
    return fine;
}

static bool message(Cuda *c, char *at, uint64_t bytes, bool sends, int64_t peer, ncclComm_t of,
                    cudaStream_t stream)
{
    if (bytes == 0) return true;
    return sends ? CHECK_NCCL(c, &of, ncclSend, (at, bytes, ncclInt8, (int)peer, of, stream))
                 : CHECK_NCCL(c, &of, ncclRecv, (at, bytes, ncclInt8, (int)peer, of, stream));
}

/* Sends one message for each expert and each other rank. The rows of a message are contiguous on
 * both sides. */
static bool send_rows(Cuda *c, const Sides *s, ncclComm_t of, cudaStream_t stream)
{
    char *at = s->of_samples;
    const int64_t me = s->host.part;
    if (!CHECK_NCCL(c, &of, ncclGroupStart, ())) return false;
    bool fine = true;
    for (int64_t e = 0; e < s->n * s->experts && fine; e++) {
        const uint64_t bytes = bytes_for(s, e);
        fine = e / s->experts == me || message(c, at, bytes, s->there, e / s->experts, of, stream);
        at += bytes;
    }
    at = s->of_experts;
    for (int64_t i = 0; i < s->experts * s->n && fine; i++) {
        const uint64_t bytes = bytes_from(s, i / s->n, i % s->n);
        fine = i % s->n == me || message(c, at, bytes, !s->there, i % s->n, of, stream);
        at += bytes;
    }
    return CHECK_NCCL(c, &of, ncclGroupEnd, ()) && fine;
}

bool uneven_issue(Cuda *c, Pc pc, ncclComm_t of, cudaStream_t stream)
{
    const Comm *comm = c->state.at[pc].comm;
    Sides s;
    if (!read_counts(c, comm, &s.host, stream)) return false;
    if (uneven_rows_to(&s.host) > uneven_room(&s.host))
        return cuda_fail(
            c, "rows-over-bound", "%s",
            uneven_overflow(c->plan, c->state.info->p, pc, &s.host, c->rank, c->arena));
    s.there = uneven_to_experts(&s.host);
    s.n = s.host.n_members, s.experts = s.host.experts[s.there];
    s.samples = s.host.samples[!s.there];
    s.row = (uint64_t)s.host.width * dtype_bytes(s.host.dtype);
    s.of_samples = s.there ? s.host.in : s.host.out;
    s.of_experts = s.there ? s.host.out : s.host.in;
    return keep_rows(c, &s, stream) && send_rows(c, &s, of, stream);
}
