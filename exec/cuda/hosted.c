/* Communications that go through the host: for GPUs that NCCL cannot connect, and for several ranks
 * on one GPU. A stream copies the input to pinned memory and tells by a word that it is there; a
 * thread carries the communication out over MPI as the CPU's backend does, sums in rank order, and
 * answers by another word, which the stream waits for before it copies the result back. The words
 * are the streams' own operations, so that graphs hold them, and nothing but streams ever waits:
 * neither the thread that issues nor the one that communicates. (A function of the host's in the
 * stream could not wait: CUDA may run those of all streams one after the other.)
 *
 * MPI is called by one thread at a time: by this one while a step runs, by the main one between. */
#include <assert.h>
#include <cuda.h>
#include <cudaTypedefs.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/cuda/private.h"
#include "exec/process_private.h"

enum { POLLS_BEFORE_SLEEP = 500, SLEEP_NS = 20000, ALIGN = 256, MEMORY_OPS_VERSION = 11070 };

struct Hosted {
    Cuda *cuda;
    Process process; /* of the CPU's backend, with nothing but communications: in host memory */
    char *pinned;    /* what they read and write; of each stream in turn */
    uint32_t *words; /* pinned [2, n_instr + 1]: the input is there, the result is there */
    Pc *order;       /* of all communications, by stream, then in the order of issue */
    uint32_t first[STREAM_COUNT + 1];
    Pc *found;
    PFN_cuStreamWaitValue32_v11070 wait_value;
    pthread_t thread;
    bool runs;
    _Atomic bool stops;
};

static uint32_t *word_in(const Hosted *h, Pc pc)
{
    return &h->words[pc];
}

static uint32_t *word_out(const Hosted *h, Pc pc)
{
    return &h->words[h->process.state.info->n_instr + 1 + pc];
}

/* ---- the thread ---- */

/* What streams have made ready is posted, of each stream in its order. Words are looked at from the
 * last on: where one is seen, those before it, which were written before, are seen too. */
static bool post(Hosted *h)
{
    Process *p = &h->process;
    bool any = false;
    for (int s = 0; s < STREAM_COUNT; s++) {
        uint32_t n = 0;
        for (uint32_t i = h->first[s + 1]; i-- > h->first[s];)
            if (__atomic_load_n(word_in(h, h->order[i]), __ATOMIC_ACQUIRE))
                h->found[n++] = h->order[i];
        any = any || n > 0;
        while (n-- > 0) {
            Transfer *w = p->transfer[h->found[n]];
            __atomic_store_n(word_in(h, w->pc), 0, __ATOMIC_RELAXED);
            transfer_post(p, w);
            p->active[p->n_active++] = w;
        }
    }
    return any;
}

static bool poll(Hosted *h)
{
    Process *p = &h->process;
    bool any = false;
    for (uint32_t i = 0; i < p->n_active;) {
        Transfer *w = p->active[i];
        if (!transfer_poll(p, w, transfer_may_continue(p, i))) {
            i++;
            continue;
        }
        p->n_active--;
        memmove(p->active + i, p->active + i + 1, (p->n_active - i) * sizeof *p->active);
        __atomic_store_n(word_out(h, w->pc), 1, __ATOMIC_RELEASE);
        any = true;
    }
    return any;
}

static void *communicate(void *self)
{
    Hosted *h = self;
    const struct timespec pause = {0, SLEEP_NS};
    for (uint32_t polls = 0; !atomic_load(&h->stops); polls++) {
        bool any = post(h);
        if (poll(h) || any) polls = 0;
        if (polls > POLLS_BEFORE_SLEEP)
            nanosleep(&pause, NULL);
        else
            sched_yield(); /* ranks share cores */
    }
    return NULL;
}

/* ---- opening ---- */

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Communications that start together are under way together; all others of a stream use its memory
 * in turn. `base`: where it begins; NULL: only asks how much there is. */
static uint64_t place(Cuda *c, Hosted *h, char *base)
{
    uint64_t total = 0;
    for (int s = 0; s < STREAM_COUNT; s++) {
        uint64_t at = 0, most = 0;
        uint32_t launch = 0;
        for (uint32_t i = h->first[s]; i < h->first[s + 1]; i++) {
            Comm *comm = h->process.state.at[h->order[i]].comm;
            if (comm->launch == 0 || comm->launch != launch) at = 0;
            launch = comm->launch;
            const Comm *its = c->state.at[h->order[i]].comm;
            if (base != NULL && its->in != NULL) comm->in = base + total + at;
            at += its->in ? rounded(comm->in_bytes) : 0;
            if (base != NULL && its->out != NULL) comm->out = base + total + at;
            at += its->out ? rounded(comm->out_bytes) : 0;
            if (at > most) most = at;
        }
        total += most;
    }
    return total;
}

/* The communications of this rank as they are in host memory; those of one rank stay with CUDA. */
static void collect(Cuda *c, Hosted *h)
{
    uint32_t n = c->state.info->n_instr, at = 0;
    GroupKeys keys;
    groups_collect(c->plan, true, c->arena, &keys);
    h->process.state.at = arena_array(c->arena, (size_t)n + 1, sizeof(Ready));
    h->order = arena_array(c->arena, (size_t)n + 1, sizeof(Pc));
    h->found = arena_array(c->arena, (size_t)n + 1, sizeof(Pc));
    for (int s = 0; s < STREAM_COUNT; s++) {
        h->first[s] = at;
        for (uint32_t i = 0; i < c->order.n; i++) {
            Pc pc = c->order.pc[i];
            const Comm *comm = c->state.at[pc].comm;
            if (comm == NULL || comm->n_members == 1 || (int)comm->stream != s) continue;
            Comm *mine = arena_alloc(c->arena, sizeof *mine);
            *mine = *comm;
            /* Messages of a pair and a stream arrive in order, whichever instruction of a shared
             * graph sends them. */
            mine->match = groups_find(&keys, comm->axes, comm->stream);
            h->process.state.at[pc].comm = mine;
            h->order[at++] = pc;
        }
    }
    h->first[STREAM_COUNT] = at;
}

static bool find_wait(Cuda *c, Hosted *h)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *at = NULL;
    if (!CHECK_CUDA(c, cudaGetDriverEntryPointByVersion,
                    ("cuStreamWaitValue32", &at, MEMORY_OPS_VERSION, cudaEnableDefault, &found)))
        return false;
    if (found != cudaDriverEntryPointSuccess || at == NULL)
        return cuda_fail(c, "cuda-driver",
                         "this driver has no cuStreamWaitValue32, by which "
                         "streams wait for the host");
    memcpy(&h->wait_value, &at, sizeof at);
    return true;
}

static bool allocate(Cuda *c, Hosted *h)
{
    size_t words = 2 * ((size_t)c->state.info->n_instr + 1) * sizeof *h->words;
    uint64_t bytes = place(c, h, NULL);
    void *at[2] = {NULL, NULL};
    bool fine = CHECK_CUDA(c, cudaMallocHost, (&at[0], words)) &&
                CHECK_CUDA(c, cudaMallocHost, (&at[1], bytes + ALIGN));
    h->words = at[0];
    h->pinned = at[1];
    if (!fine) return false;
    memset(h->words, 0, words);
    place(c, h, h->pinned);
    return true;
}

bool hosted_open(Cuda *c)
{
    if (c->meet->transport == NULL) {
        cuda_fail(c, "cuda-comm", "--via host goes over MPI, which did not start these ranks");
        diag_hint(c->d, "start them by `tandem run -n %u` alone, or by mpirun", c->n_ranks);
        return false;
    }
    Hosted *h = c->hosted = arena_alloc(c->arena, sizeof *h);
    h->cuda = c;
    h->process = (Process){.arena = c->arena,
                           .transport = c->meet->transport,
                           .mpi = c->meet->mpi,
                           .rank = c->rank,
                           .n_ranks = c->n_ranks,
                           .plan = c->plan,
                           .options = c->options,
                           .status = c->status,
                           .state = {.plan = c->plan, .info = c->state.info, .rank = c->rank}};
    h->process.active =
        arena_array(c->arena, (size_t)c->state.info->n_instr + 1, sizeof(Transfer *));
    collect(c, h);
    bool fine = find_wait(c, h) && allocate(c, h);
    fine = transfers_open(&h->process, c->d) && fine; /* takes all ranks */
    if (!fine) c->failed = true;
    if (!fine) return false;
    h->runs = pthread_create(&h->thread, NULL, communicate, h) == 0;
    return h->runs || cuda_fail(c, "cuda-comm", "no thread for the communications");
}

void hosted_stop(Cuda *c)
{
    Hosted *h = c->hosted;
    if (h == NULL || !h->runs) return;
    atomic_store(&h->stops, true);
    pthread_join(h->thread, NULL);
    h->runs = false;
}

/* Streams wait for nothing here any more: freeing waits for them. */
void hosted_close(Cuda *c)
{
    Hosted *h = c->hosted;
    if (h == NULL) return;
    hosted_stop(c);
    if (h->words != NULL) cudaFreeHost(h->words);
    if (h->pinned != NULL) cudaFreeHost(h->pinned);
    free(h->process.staging);
    c->hosted = NULL;
}

/* ---- issue ---- */

/* What pinned memory holds is told to the host by a copy, which the stream orders. */
static bool set_word(Cuda *c, uint32_t *word, uint32_t value, cudaStream_t stream)
{
    return CHECK_CUDA(c, cudaMemcpyAsync,
                      (word, &c->numbers[value], sizeof *word, cudaMemcpyDeviceToHost, stream));
}

static bool wait_for(Cuda *c, Hosted *h, Pc pc, cudaStream_t stream)
{
    CUresult result =
        h->wait_value(stream, (CUdeviceptr)(uintptr_t)word_out(h, pc), 1, CU_STREAM_WAIT_VALUE_EQ);
    return result == CUDA_SUCCESS ||
           cuda_fail(c, "cuda", "rank %u: cuStreamWaitValue32: error %d", c->rank, (int)result);
}

bool hosted_issue(Cuda *c, const Pc *pc, uint32_t n)
{
    Hosted *h = c->hosted;
    cudaStream_t stream = c->stream[c->state.at[pc[0]].comm->stream];
    bool fine = true;
    for (uint32_t i = 0; fine && i < n; i++) {
        const Comm *comm = c->state.at[pc[i]].comm, *its = h->process.state.at[pc[i]].comm;
        if (its == NULL) /* alone */
            fine = comm_issue(c, pc[i]);
        else if (comm->in != NULL)
            fine = CHECK_CUDA(c, cudaMemcpyAsync,
                              (its->in, comm->in, comm->in_bytes, cudaMemcpyDefault, stream));
    }
    for (uint32_t i = 0; fine && i < n; i++)
        if (h->process.state.at[pc[i]].comm != NULL)
            fine = set_word(c, word_in(h, pc[i]), 1, stream);
    for (uint32_t i = 0; fine && i < n; i++) {
        const Comm *comm = c->state.at[pc[i]].comm, *its = h->process.state.at[pc[i]].comm;
        if (its == NULL) continue;
        fine = wait_for(c, h, pc[i], stream) && set_word(c, word_out(h, pc[i]), 0, stream);
        if (fine && comm->out != NULL)
            fine = CHECK_CUDA(c, cudaMemcpyAsync,
                              (comm->out, its->out, comm->out_bytes, cudaMemcpyDefault, stream));
    }
    return fine;
}
