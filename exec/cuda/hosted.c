/* Sends communications through the host, for GPUs that NCCL cannot connect and for several ranks on
 * one GPU. A stream copies the input to pinned memory and then writes a word, which asks for the
 * communication. A thread carries it out over MPI as the CPU backend does, with sums in the order
 * of ranks, and writes another word as the answer. The stream waits for the answer before it copies
 * the result back. Copies and waits in the streams do all this, so CUDA graphs can contain them.
 * Only streams wait; the issuing thread and the communicating thread never do. (A host function in
 * a stream must not wait: CUDA may run the host functions of all streams one after the other.)
 *
 * Only one thread calls MPI at a time: the communicating thread during a step, the main thread
 * between steps. */
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
#include "exec/process/private.h"

enum { POLLS_BEFORE_SLEEP = 500, SLEEP_NS = 20000, ALIGN = 256, MEMORY_OPS_VERSION = 11070 };

/* Communications that start together. MPI transfers for them begin once all their inputs have
 * arrived. The communications of one communicator start in the same order on all ranks, but may end
 * in any order. */
typedef struct HostedStart {
    uint32_t first, n; /* these are entries first to first + n - 1 of Hosted.order */
    uint32_t n_left;   /* how many of them have not ended */
    bool is_posted;    /* the transfers have begun, and the stream has not withdrawn its request
                          yet */
} HostedStart;

struct Hosted {
    Cuda *cuda;
    Process process; /* the state of the CPU backend; it runs only communications, and its memory
                        is pinned host memory */
    char *pinned;    /* memory for inputs and outputs; the communications of a stream use it one
                        after the other */
    uint32_t *words; /* pinned, [2, n_starts]; row 0: requests of the streams; row 1: answers of the
                        thread */
    Pc *order; /* all communications: those of the first stream in the order of issue, then those of
                  the next stream */
    HostedStart *start; /* groups of communications that start together, in the order of `order` */
    uint32_t n_starts;
    uint32_t *start_of; /* for each instruction, the index of its entry in `start` */
    uint32_t first[STREAM_COUNT + 1];
    PFN_cuStreamWaitValue32_v11070 wait_value;
    pthread_t thread;
    bool runs;
    _Atomic bool stops;
};

/* Each word has only one writer. The stream writes its request, and withdraws it after it has seen
 * the answer. Then the thread withdraws the answer. A reader must not clear the other side's word.
 * A copy may write a word several times (memmove of the C library writes four bytes twice), so a
 * cleared request could appear again. */
static uint32_t *asked(const Hosted *h, uint32_t k)
{
    return &h->words[k];
}

static uint32_t *answered(const Hosted *h, uint32_t k)
{
    return &h->words[h->n_starts + k];
}

/* ---- the communicating thread ---- */

static void post(Hosted *h, HostedStart *start)
{
    Process *p = &h->process;
    start->is_posted = true;
    start->n_left = start->n;
    for (uint32_t i = 0; i < start->n; i++) {
        PreparedTransfer *w = p->transfer[h->order[start->first + i]];
        transfer_post(p, w);
        p->active[p->n_active++] = w;
    }
}

/* Begins the communications that streams have asked for, and withdraws the answers that streams
 * have seen. Returns true if there were any. */
static bool listen(Hosted *h)
{
    bool any = false;
    for (uint32_t k = 0; k < h->n_starts; k++) {
        HostedStart *start = &h->start[k];
        bool is_asked = __atomic_load_n(asked(h, k), __ATOMIC_ACQUIRE) != 0;
        if (is_asked == start->is_posted) continue;
        any = true;
        if (is_asked) {
            post(h, start);
            continue;
        }
        assert(start->n_left == 0);
        start->is_posted = false;
        __atomic_store_n(answered(h, k), 0, __ATOMIC_RELEASE);
    }
    return any;
}

static bool poll(Hosted *h)
{
    Process *p = &h->process;
    bool any = false;
    for (uint32_t i = 0; i < p->n_active;) {
        PreparedTransfer *w = p->active[i];
        if (!transfer_poll(p, w, transfer_may_continue(p, i))) {
            i++;
            continue;
        }
        uint32_t k = h->start_of[w->pc];
        p->n_active--;
        memmove(p->active + i, p->active + i + 1, (p->n_active - i) * sizeof *p->active);
        if (--h->start[k].n_left == 0) __atomic_store_n(answered(h, k), 1, __ATOMIC_RELEASE);
        any = true;
    }
    return any;
}

static void *communicate(void *self)
{
    Hosted *h = self;
    const struct timespec pause = {0, SLEEP_NS};
    for (uint32_t polls = 0; !atomic_load(&h->stops); polls++) {
        bool any = listen(h);
        if (poll(h) || any) polls = 0;
        if (polls > POLLS_BEFORE_SLEEP)
            nanosleep(&pause, NULL);
        else
            sched_yield(); /* ranks share cores here, so the thread gives up its core */
    }
    return NULL;
}

/* ---- opening ---- */

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Assigns pinned memory to all communications and returns its size. Communications that start
 * together need memory at the same time. All other communications of a stream use the same memory
 * one after the other. `base` is the beginning of the memory; if it is NULL, only the size is
 * computed. */
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

/* Appends a communication to h->order. If `is_first` is true, it starts by itself; otherwise it may
 * start together with the communication before it. */
static void add(Hosted *h, uint32_t at, Pc pc, const Comm *comm, bool is_first)
{
    const Comm *before = is_first ? NULL : h->process.state.at[h->order[at - 1]].comm;
    bool joins = before != NULL && comm->launch != 0 && comm->launch == before->launch;
    if (!joins) h->start[h->n_starts++] = (HostedStart){.first = at};
    h->start[h->n_starts - 1].n++;
    h->start_of[pc] = h->n_starts - 1;
    h->order[at] = pc;
}

/* Lists the communications of this rank, with addresses in host memory. If a group has only one
 * rank, CUDA does its communications. */
static void collect(Cuda *c, Hosted *h)
{
    uint32_t n = c->state.info->n_instr, at = 0;
    GroupKeys keys;
    groups_collect(c->plan, true, c->arena, &keys);
    h->process.state.at = arena_array(c->arena, (size_t)n + 1, sizeof(Ready));
    h->order = arena_array(c->arena, (size_t)n + 1, sizeof(Pc));
    h->start = arena_array(c->arena, (size_t)n + 1, sizeof(HostedStart));
    h->start_of = arena_array(c->arena, (size_t)n + 1, sizeof *h->start_of);
    for (int s = 0; s < STREAM_COUNT; s++) {
        h->first[s] = at;
        for (uint32_t i = 0; i < c->launches.order.n; i++) {
            Pc pc = c->launches.order.pc[i];
            const Comm *comm = c->state.at[pc].comm;
            if (comm == NULL || comm->n_members == 1 || (int)comm->stream != s) continue;
            Comm *mine = arena_alloc(c->arena, sizeof *mine);
            *mine = *comm;
            /* messages between two ranks on a stream arrive in the order in which they were sent,
             * so one match number is enough for all of them. A graph that several micro-batches
             * share needs this. */
            mine->match = groups_find(&keys, comm->axes, comm->stream);
            h->process.state.at[pc].comm = mine;
            add(h, at, pc, mine, at == h->first[s]);
            at++;
        }
    }
    h->first[STREAM_COUNT] = at;
}

static bool find_wait(Cuda *c, Hosted *h)
{
    void *at;
    if (!device_driver(c, "cuStreamWaitValue32", MEMORY_OPS_VERSION,
                       "by which streams wait for the host", &at))
        return false;
    memcpy(&h->wait_value, &at, sizeof at);
    return true;
}

static bool allocate(Cuda *c, Hosted *h)
{
    size_t words = (2 * (size_t)h->n_starts + 1) * sizeof *h->words;
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
        cuda_fail(c, "cuda-comm", "--via host needs MPI, but these ranks were not started by MPI");
        diag_hint(c->d, "start the ranks with `tandem run -n %u` or with mpirun", c->n_ranks);
        return false;
    }
    Hosted *h = c->comms.hosted = arena_alloc(c->arena, sizeof *h);
    h->cuda = c;
    h->process = (Process){.arena = c->arena,
                           .transport = c->meet->transport,
                           .mpi = c->meet->mpi,
                           .rank = c->rank,
                           .n_ranks = c->n_ranks,
                           .plan = c->plan,
                           .options = c->options,
                           .status = c->report.status,
                           .state = {.plan = c->plan, .info = c->state.info, .rank = c->rank}};
    h->process.active =
        arena_array(c->arena, (size_t)c->state.info->n_instr + 1, sizeof(PreparedTransfer *));
    collect(c, h);
    bool fine = find_wait(c, h) && allocate(c, h);
    fine = transfers_open(&h->process, c->d) && fine; /* all ranks must take part */
    if (!fine) c->failed = true;
    if (!fine) return false;
    h->runs = pthread_create(&h->thread, NULL, communicate, h) == 0;
    return h->runs || cuda_fail(c, "cuda-comm", "the thread for communication did not start");
}

void hosted_stop(Cuda *c)
{
    Hosted *h = c->comms.hosted;
    if (h == NULL || !h->runs) return;
    atomic_store(&h->stops, true);
    pthread_join(h->thread, NULL);
    h->runs = false;
}

/* After hosted_stop, streams no longer wait for the thread. So freeing memory, which waits for the
 * streams, returns. */
void hosted_close(Cuda *c)
{
    Hosted *h = c->comms.hosted;
    if (h == NULL) return;
    hosted_stop(c);
    if (h->words != NULL) cudaFreeHost(h->words);
    if (h->pinned != NULL) cudaFreeHost(h->pinned);
    free(h->process.staging);
    c->comms.hosted = NULL;
}

/* ---- issue ---- */

/* Lets the stream write a word. The word tells the host that the data in pinned memory are
 * complete. */
static bool set_word(Cuda *c, uint32_t *word, uint32_t value, cudaStream_t stream)
{
    return CHECK_CUDA(
        c, cudaMemcpyAsync,
        (word, &c->watch.numbers[value], sizeof *word, cudaMemcpyDeviceToHost, stream));
}

static bool wait_for(Cuda *c, const uint32_t *word, uint32_t value, cudaStream_t stream)
{
    CUresult result = c->comms.hosted->wait_value(stream, (CUdeviceptr)(uintptr_t)word, value,
                                                  CU_STREAM_WAIT_VALUE_EQ);
    return result == CUDA_SUCCESS ||
           cuda_fail(c, "cuda", "rank %u: cuStreamWaitValue32: error %d", c->rank, (int)result);
}

/* Copies the inputs of communications that start together to pinned memory. If `is_back` is true,
 * copies their results back to the device instead. */
static bool copy(Cuda *c, const HostedStart *start, bool is_back, cudaStream_t stream)
{
    const Hosted *h = c->comms.hosted;
    bool fine = true;
    for (uint32_t i = 0; fine && i < start->n; i++) {
        Pc pc = h->order[start->first + i];
        const Comm *comm = c->state.at[pc].comm, *its = h->process.state.at[pc].comm;
        if (is_back && comm->out != NULL)
            fine = CHECK_CUDA(c, cudaMemcpyAsync,
                              (comm->out, its->out, comm->out_bytes, cudaMemcpyDefault, stream));
        if (!is_back && comm->in != NULL)
            fine = CHECK_CUDA(c, cudaMemcpyAsync,
                              (its->in, comm->in, comm->in_bytes, cudaMemcpyDefault, stream));
    }
    return fine;
}

bool hosted_issue(Cuda *c, const Pc *pc, uint32_t n)
{
    const Hosted *h = c->comms.hosted;
    cudaStream_t stream = c->streams.of[c->state.at[pc[0]].comm->stream];
    Pc first = 0;
    uint32_t n_here = 0;
    bool fine = true;
    for (uint32_t i = 0; fine && i < n; i++) {
        bool is_alone = h->process.state.at[pc[i]].comm == NULL;
        if (is_alone) fine = comm_issue(c, pc[i]);
        if (!is_alone && n_here++ == 0) first = pc[i];
    }
    if (!fine || n_here == 0) return fine;
    uint32_t k = h->start_of[first];
    const HostedStart *start = &h->start[k];
    assert(h->order[start->first] == first && start->n == n_here);
    return wait_for(c, answered(h, k), 0, stream) && copy(c, start, false, stream) &&
           set_word(c, asked(h, k), 1, stream) && wait_for(c, answered(h, k), 1, stream) &&
           set_word(c, asked(h, k), 0, stream) && copy(c, start, true, stream);
}
