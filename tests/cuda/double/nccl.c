/* NCCL's calls. Communicators are in a file that the ranks share; operations form groups.
 *
 * Nonblocking calls end as late as in NCCL 2.28.9 (src/init.cc, group.cc, dev_runtime.cc):
 *   ncclCommInitRankConfig  sets the communicator, which is in progress until all ranks have come
 *   ncclCommSplit           returns ncclSuccess; the new communicator is NULL until the parent
 *                           says ncclSuccess, and the parent is in progress meanwhile
 *   ncclCommWindowRegister  returns ncclSuccess and registers later; the window is set by then
 *   ncclCommFinalize, a collective outside a group, ncclGroupEnd
 *                           return ncclInProgress, or ncclSuccess if they have ended already
 *   ncclCommRegister, ncclCommDeregister, ncclCommWindowDeregister
 *                           end before they return
 *
 * Using a communicator that is in progress is ncclInvalidArgument in NCCL; the double aborts.
 *
 * Not imitated:
 *   - a communicator refuses calls after an error
 *   - NCCL connects and launches from another thread
 *   - blocking and nonblocking communicators in one group */
#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda/double/nccl.h"

static int depth;
static LIST(Op) group;
static cudaStream_t group_stream;
static Arena *group_arena;

#define NCCL_CALL(name)                                                                            \
    Scripted scripted = double_script(#name);                                                      \
    if (scripted.kind == SCRIPT_fail) return (ncclResult_t)scripted.code

/* The shared file has no name, because a name could outlive the ranks or clash with another file.
 * The rank that made the id owns the file. The other ranks open it through that process (/proc). */
static int id_file = -1;

static void close_id(void)
{
    if (id_file >= 0) close(id_file);
    id_file = -1;
}

ncclResult_t ncclGetVersion(int *version)
{
    NCCL_CALL(ncclGetVersion);
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    NCCL_CALL(ncclGetUniqueId);
    char path[] = "/dev/shm/tandem-nccl-XXXXXX";
    close_id();
    id_file = mkstemp(path);
    if (id_file < 0 || unlink(path) != 0 || ftruncate(id_file, sizeof(Shared)) != 0)
        double_misuse("no file for the communicators");
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/proc/%d/fd/%d", (int)getpid(), id_file);
    return ncclSuccess;
}

/* Maps the file of the communicator. Returns NULL if the rank that made the id has ended or given
 * up. */
static Shared *map_shared(const char *path)
{
    int fd = open(path, O_RDWR);
    if (fd < 0) return NULL;
    Shared *at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED) double_misuse("cannot map the communicators");
    return at;
}

/* Finds the communicator with that key in the file. The first rank to arrive makes it. */
static SharedComm *find(Shared *file, uint64_t key)
{
    for (int i = 0; i < MOST_COMMS; i++) {
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(&file->comm[i].key, &none, key) || none == key)
            return &file->comm[i];
    }
    double_misuse("too many communicators");
}

static ncclComm_t join(Shared *file, uint64_t key, int rank, int n, bool blocking, bool hangs)
{
    ncclComm_t c = double_new(OBJECT_comm, sizeof *c);
    if (n > MOST_RANKS) double_misuse("too many ranks");
    c->file = file;
    c->shared = find(file, key);
    c->key = key;
    c->rank = rank;
    c->n = n;
    c->blocking = blocking;
    c->kernels = double_calls("kernel");
    c->hangs = hangs;
    atomic_store(&c->shared->slot[rank].fd, double_memory_file());
    atomic_store(&c->shared->slot[rank].pid, (int)getpid());
    if (!hangs) atomic_fetch_add(&c->shared->n_joined, 1);
    return c;
}

static bool is_open(ncclComm_t c)
{
    if (c->is_open) return true;
    c->is_open = !c->hangs && (int)atomic_load(&c->shared->n_joined) == c->n;
    if (c->is_open && c->made_id) close_id(); /* all ranks have opened the file */
    return c->is_open;
}

/* Aborts if the communicator is not ready for a call. */
static void check_ready(ncclComm_t c)
{
    if (!is_open(c) || c->pending > 0 || c->child || c->is_final)
        double_misuse("a communicator is used while another call on it is in progress");
}

/* Returns the result of a nonblocking call: ncclSuccess if it has ended, otherwise
 * ncclInProgress. */
static ncclResult_t end_call(ncclComm_t c)
{
    if (c->blocking) return ncclSuccess;
    c->pending = (uint32_t)double_draw(4);
    return c->pending > 0 || !is_open(c) ? ncclInProgress : ncclSuccess;
}

/* Does the same for calls that return ncclSuccess before they have ended. */
static ncclResult_t end_later(ncclComm_t c)
{
    if (!c->blocking) c->pending = 1 + (uint32_t)double_draw(4);
    return ncclSuccess;
}

static ncclResult_t wait_open(ncclComm_t c)
{
    while (c->blocking && !is_open(c)) usleep(50);
    return end_call(c);
}

static bool is_asked(int value, int wanted)
{
    return value == (wanted > 0 ? wanted : NCCL_CONFIG_UNDEF_INT);
}

/* Checks that the plan's settings for thread blocks have reached NCCL. */
static bool asks_as_scripted(const ncclConfig_t *config)
{
    const World *w = world();
    return !w->must_ask ||
           (is_asked(config->minCTAs, w->min_ctas) && is_asked(config->maxCTAs, w->max_ctas) &&
            is_asked(config->CTAPolicy, w->policy));
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    NCCL_CALL(ncclCommInitRankConfig);
    if (id.internal[0] == 0) return ncclInvalidArgument;
    ncclConfig_t fresh = NCCL_CONFIG_INITIALIZER;
    if (config->magic != fresh.magic || config->size != fresh.size) return ncclInvalidArgument;
    if (!asks_as_scripted(config)) return ncclInvalidUsage;
    Shared *file = map_shared(id.internal);
    if (file == NULL) return ncclSystemError; /* NCCL returns this for a refused connection */
    *comm = join(file, 1, rank, n, config->blocking != 0, scripted.kind == SCRIPT_hang);
    if (scripted.kind == SCRIPT_async) (*comm)->async = (ncclResult_t)scripted.code;
    (*comm)->made_id = rank == 0;
    return wait_open(*comm);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                           ncclConfig_t *config)
{
    NCCL_CALL(ncclCommSplit);
    check_ready(comm);
    if (!asks_as_scripted(config)) return ncclInvalidUsage;
    /* The mesh decides which ranks have this color, and the key is the rank's place among them.
     * Their number comes from the communicator's name, which is the same in all of the plan's
     * groups. */
    int n = 0;
    const char *of = config->commName ? strstr(config->commName, " of ") : NULL;
    if (of) n = (int)strtol(of + 4, NULL, 10);
    if (n < 1) double_misuse("a split must be named \"... of N\" for the double");
    uint64_t id = comm->key * 1000003 + (++comm->n_splits) * 4099 + (uint64_t)color + 7;
    *out = NULL;
    comm->child = join(comm->file, id, key, n, config->blocking != 0, scripted.kind == SCRIPT_hang);
    comm->child_out = out;
    if (scripted.kind == SCRIPT_async) comm->async = (ncclResult_t)scripted.code;
    return end_later(comm);
}

/* What NCCL's own thread does when it has finished: the child communicator and the window become
 * visible. */
static void end_pending(ncclComm_t comm)
{
    if (comm->child && is_open(comm->child)) {
        *comm->child_out = comm->child;
        comm->child = NULL;
    }
    if (comm->window_out) *comm->window_out = (ncclWindow_t)(uintptr_t)comm->window;
    comm->window_out = NULL;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    NCCL_CALL(ncclCommGetAsyncError);
    *state = comm->async;
    if (comm->async != ncclSuccess) return ncclSuccess;
    bool busy = !is_open(comm) || comm->pending > 0;
    if (comm->pending > 0) comm->pending--;
    if (!busy) end_pending(comm);
    busy = busy || comm->child;
    if (busy) *state = ncclInProgress;
    return ncclSuccess;
}

static void release(ncclComm_t comm)
{
    if (comm->child) release(comm->child); /* in NCCL, a split ends with its parent, too */
    for (int r = 0; r < comm->n; r++)
        if (comm->peer[r]) munmap(comm->peer[r], DEVICE_RANGE);
    world()->live[OBJECT_registration] -= comm->n_registered;
    if (comm->key == 1) munmap(comm->file, sizeof *comm->file);
    if (comm->made_id) close_id();
    free(comm->temp);
    comm->is_gone = true;
    double_bury(OBJECT_comm, &comm->buried);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    NCCL_CALL(ncclCommFinalize);
    check_ready(comm);
    ncclResult_t r = end_call(comm);
    comm->is_final = true;
    return r;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    NCCL_CALL(ncclCommDestroy);
    if (!comm->is_final || comm->pending > 0) double_misuse("a communicator is not final yet");
    release(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    NCCL_CALL(ncclCommAbort);
    while (scripted.kind == SCRIPT_hang) pause();
    release(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *at, size_t bytes, void **handle)
{
    NCCL_CALL(ncclCommRegister);
    check_ready(comm);
    double_memory_offset(at);
    if (bytes == 0) return ncclInvalidArgument;
    *handle = at;
    comm->n_registered++;
    world()->live[OBJECT_registration]++;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    NCCL_CALL(ncclCommDeregister);
    check_ready(comm);
    double_memory_offset(handle);
    comm->n_registered--;
    world()->live[OBJECT_registration]--;
    return ncclSuccess;
}

/* A collective call: all ranks must pass the same size. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *at, size_t bytes, ncclWindow_t *window,
                                    int flags)
{
    NCCL_CALL(ncclCommWindowRegister);
    check_ready(comm);
    if (flags != NCCL_WIN_COLL_SYMMETRIC) return ncclInvalidArgument;
    if (double_memory_offset(at) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) return ncclInvalidArgument;
    *window = NULL;
    if (world()->no_windows) return ncclSuccess; /* nothing happens, and the window stays NULL */
    atomic_store(&comm->shared->slot[comm->rank].window, bytes);
    for (int r = 0; r < comm->n; r++) {
        uint64_t its = atomic_load(&comm->shared->slot[r].window);
        if (its != 0 && its != bytes) double_misuse("windows of different sizes");
    }
    comm->window = at;
    comm->window_out = window;
    comm->window_bytes = bytes;
    comm->n_registered++;
    world()->live[OBJECT_registration]++;
    return end_later(comm);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    NCCL_CALL(ncclCommWindowDeregister);
    check_ready(comm);
    double_memory_offset(window);
    comm->n_registered--;
    world()->live[OBJECT_registration]--;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const names[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return (unsigned)result < 8 ? names[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}

/* ---- operations ---- */

ncclResult_t ncclGroupStart()
{
    NCCL_CALL(ncclGroupStart);
    if (depth++ == 0) {
        group_arena = arena_new();
        memset(&group, 0, sizeof group);
        group_stream = NULL;
    }
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd()
{
    Scripted scripted = double_script("ncclGroupEnd");
    if (depth == 0) return ncclInvalidUsage;
    if (--depth > 0) return ncclSuccess;
    ncclResult_t result = scripted.kind == SCRIPT_fail ? (ncclResult_t)scripted.code : ncclSuccess;
    if (result == ncclSuccess && group.n > 0)
        double_enqueue(group_stream, nccl_task(group.at, group.n));
    for (uint32_t i = 0; result == ncclSuccess && i < group.n; i++)
        if (end_call(group.at[i].comm) == ncclInProgress) result = ncclInProgress;
    arena_free(group_arena);
    return result;
}

/* NCCL connects two ranks at their first message, and both hosts must take part. During a step this
 * is not allowed, because other ranks may be waiting for one of them. */
static void connect(const Op *op, int way, int peer)
{
    bool *connected = &op->comm->connected[way][peer];
    if (!*connected && double_calls("kernel") > op->comm->kernels)
        double_misuse("a pair of ranks is connected while a step is issued");
    *connected = true;
}

static void connect_pairs(const Op *op)
{
    bool is_ring = op->kind < KIND_all_to_all, first = !op->comm->used[op->kind];
    op->comm->used[op->kind] = true;
    if (is_ring && first && world()->connects_late && double_calls("kernel") > op->comm->kernels)
        double_misuse("a collective is connected while a step is issued");
    if (op->kind == KIND_send) connect(op, 0, op->peer);
    if (op->kind == KIND_recv) connect(op, 1, op->peer);
    for (int r = 0; op->kind == KIND_all_to_all && r < op->comm->n; r++) {
        if (r == op->comm->rank) continue;
        connect(op, 0, r);
        connect(op, 1, r);
    }
}

static ncclResult_t add(Op op, Scripted scripted, cudaStream_t stream)
{
    check_ready(op.comm);
    connect_pairs(&op);
    op.stays = scripted.kind == SCRIPT_stays;
    op.hangs = op.stays || scripted.kind == SCRIPT_hang;
    if (scripted.kind == SCRIPT_async) op.comm->async = (ncclResult_t)scripted.code;
    if (depth > 0) {
        if (group_stream && group_stream != stream) double_misuse("a group over two streams");
        group_stream = stream;
        list_push(group_arena, &group, op);
        return ncclSuccess;
    }
    double_enqueue(stream, nccl_task(&op, 1));
    return end_call(op.comm);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    NCCL_CALL(ncclAllReduce);
    return add((Op){.kind = KIND_all_reduce,
                    .comm = comm,
                    .from = from,
                    .to = to,
                    .count = n,
                    .type = (int)type,
                    .op = (int)op},
               scripted, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t n, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    NCCL_CALL(ncclReduceScatter);
    return add((Op){.kind = KIND_reduce_scatter,
                    .comm = comm,
                    .from = from,
                    .to = to,
                    .count = n,
                    .type = (int)type,
                    .op = (int)op},
               scripted, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    NCCL_CALL(ncclAllGather);
    return add((Op){.kind = KIND_all_gather,
                    .comm = comm,
                    .from = from,
                    .to = to,
                    .count = n,
                    .type = (int)type},
               scripted, stream);
}

ncclResult_t ncclAlltoAll(const void *from, void *to, size_t n, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream)
{
    NCCL_CALL(ncclAlltoAll);
    if (from == to) return ncclInvalidArgument;
    return add((Op){.kind = KIND_all_to_all,
                    .comm = comm,
                    .from = from,
                    .to = to,
                    .count = n,
                    .type = (int)type},
               scripted, stream);
}

ncclResult_t ncclSend(const void *from, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    NCCL_CALL(ncclSend);
    return add((Op){.kind = KIND_send,
                    .comm = comm,
                    .from = from,
                    .count = n,
                    .type = (int)type,
                    .peer = peer},
               scripted, stream);
}

ncclResult_t ncclRecv(void *to, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    NCCL_CALL(ncclRecv);
    return add(
        (Op){
            .kind = KIND_recv, .comm = comm, .to = to, .count = n, .type = (int)type, .peer = peer},
        scripted, stream);
}
