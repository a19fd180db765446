/* NCCL's operations when a stream reaches them. All members arrive, each reads the device memory of
 * the others, and none writes before all have read. */
#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "exec/ready.h"
#include "tests/cuda/double/nccl.h"

typedef enum Phase_ { BEGINS, HAS_ARRIVED, HAS_READ, IS_DONE } Phase_;

typedef struct OpState {
    Phase_ phase;
    uint64_t sequence;
} OpState;

typedef struct GroupTask {
    Task task;
    uint32_t n;
    Op op[];
} GroupTask;

size_t nccl_type_bytes(int type)
{
    if (type == ncclFloat64) return 8;
    if (type == ncclFloat32 || type == ncclUint32) return 4;
    return type == ncclFloat16 || type == ncclBfloat16 ? 2 : 1;
}

static DType dtype_of(int type)
{
    if (type == ncclFloat64) return DT_f64;
    if (type == ncclFloat32) return DT_f32;
    if (type == ncclFloat16) return DT_f16;
    if (type == ncclBfloat16) return DT_bf16;
    if (type == ncclFloat8e4m3) return DT_e4m3;
    if (type == ncclFloat8e5m2) return DT_e5m2;
    double_misuse("a reduction of a type that is none of numbers");
}

static const char *peer_memory(ncclComm_t c, int rank)
{
    const Slot *slot = &c->shared->slot[rank];
    if (c->peer[rank]) return c->peer[rank];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", atomic_load(&slot->pid), atomic_load(&slot->fd));
    int fd = open(path, O_RDWR);
    if (fd < 0) return NULL; /* the process is gone */
    void *at = mmap(NULL, DEVICE_RANGE, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    if (at == MAP_FAILED) double_misuse("cannot map a peer's memory");
    return c->peer[rank] = at;
}

/* Returns the input of member r. */
static const char *input_of(const Op *op, int r)
{
    ncclComm_t c = op->comm;
    if (r == c->rank) return double_translate(op->from);
    const char *memory = peer_memory(c, r);
    return memory ? memory + c->shared->slot[r].from : NULL;
}

static void reduce(const Op *op, char *out, const char *const *part, uint64_t from, uint64_t n)
{
    const void *piece[MOST_RANKS];
    size_t element = nccl_type_bytes(op->type);
    for (int r = 0; r < op->comm->n; r++) piece[r] = part[r] + from * element;
    if (op->type == ncclUint32) { /* a maximum, the first collective on each new communicator */
        uint32_t most = 0, x;
        for (int r = 0; r < op->comm->n; r++) {
            memcpy(&x, piece[r], sizeof x);
            if (x > most) most = x;
        }
        memcpy(out, &most, sizeof most);
        return;
    }
    Reduce how = op->op == ncclMax ? REDUCE_max : op->op == ncclAvg ? REDUCE_mean : REDUCE_sum;
    reduce_in_order(dtype_of(op->type), how, out, piece, (uint32_t)op->comm->n, n);
}

/* Writes the result to separate memory, because other members may still read the device memory.
 * Returns false if a peer's memory is gone. */
static bool compute(const Op *op)
{
    ncclComm_t c = op->comm;
    const char *part[MOST_RANKS];
    uint64_t element = nccl_type_bytes(op->type), bytes = op->count * element, n = (uint64_t)c->n;
    uint64_t total = op->kind == KIND_all_gather || op->kind == KIND_all_to_all ? n * bytes : bytes;
    for (int r = 0; r < c->n; r++)
        if ((part[r] = input_of(op, r)) == NULL) return false;
    if (c->temp_bytes < total) {
        free(c->temp);
        c->temp = malloc(total);
        if (c->temp == NULL) double_misuse("out of memory");
        c->temp_bytes = total;
    }
    char *out = c->temp;
    for (uint64_t r = 0; op->kind == KIND_all_gather && r < n; r++)
        memcpy(out + r * bytes, part[r], bytes);
    for (uint64_t r = 0; op->kind == KIND_all_to_all && r < n; r++)
        memcpy(out + r * bytes, part[r] + (uint64_t)c->rank * bytes, bytes);
    if (op->kind == KIND_all_reduce) reduce(op, out, part, 0, op->count);
    if (op->kind == KIND_reduce_scatter)
        reduce(op, out, part, (uint64_t)c->rank * op->count, op->count);
    return true;
}

static void check_alike(const Op *op)
{
    for (int r = 0; r < op->comm->n; r++) {
        const Slot *s = &op->comm->shared->slot[r];
        if (s->kind != (int)op->kind || s->type != op->type || s->op != op->op ||
            s->count != op->count)
            double_misuse("members of a communicator do different things");
        const Slot *mine = &op->comm->shared->slot[op->comm->rank];
        if (memcmp(s->in_window, mine->in_window, sizeof s->in_window) != 0)
            double_misuse("buffers of a collective lie at different places of a symmetric window");
    }
}

static bool all_have(const Op *op, uint64_t sequence, bool read)
{
    for (int r = 0; r < op->comm->n; r++) {
        const Slot *s = &op->comm->shared->slot[r];
        if (atomic_load(read ? &s->read : &s->arrived) < sequence) return false;
    }
    return true;
}

static uint64_t place_in_window(ncclComm_t c, const void *at)
{
    const char *p = at;
    bool inside = c->window != NULL && p >= c->window && p < c->window + c->window_bytes;
    return inside ? (uint64_t)(p - c->window) : UINT64_MAX;
}

static Progress run_collective(const Op *op, OpState *s)
{
    ncclComm_t c = op->comm;
    Slot *mine = &c->shared->slot[c->rank];
    uint64_t bytes = op->count * nccl_type_bytes(op->type);
    bool spreads = op->kind == KIND_all_gather || op->kind == KIND_all_to_all;
    switch (s->phase) {
    case BEGINS:
        s->sequence = ++c->sequence;
        mine->kind = (int)op->kind, mine->type = op->type, mine->op = op->op;
        mine->count = op->count;
        mine->from = double_memory_offset(op->from);
        mine->in_window[0] = place_in_window(c, op->from);
        mine->in_window[1] = place_in_window(c, op->to);
        atomic_store(&mine->arrived, s->sequence);
        s->phase = HAS_ARRIVED;
        return PROGRESS_some;
    case HAS_ARRIVED:
        if (!all_have(op, s->sequence, false)) return PROGRESS_none;
        check_alike(op);
        if (!compute(op)) return PROGRESS_none;
        atomic_store(&mine->read, s->sequence);
        s->phase = HAS_READ;
        return PROGRESS_some;
    case HAS_READ:
        if (!all_have(op, s->sequence, true)) return PROGRESS_none;
        memcpy(double_translate(op->to), c->temp, spreads ? bytes * (uint64_t)c->n : bytes);
        s->phase = IS_DONE;
        return PROGRESS_done;
    case IS_DONE: return PROGRESS_done;
    }
    return PROGRESS_none;
}

static Progress run_end(const Op *op, OpState *s)
{
    ncclComm_t c = op->comm;
    bool sends = op->kind == KIND_send;
    Channel *ch =
        sends ? &c->shared->channel[c->rank][op->peer] : &c->shared->channel[op->peer][c->rank];
    uint64_t bytes = op->count * nccl_type_bytes(op->type);
    if (s->phase == IS_DONE) return PROGRESS_done;
    if (sends && s->phase == BEGINS) {
        uint64_t i = atomic_load(&ch->posted);
        ch->from[i % RING] = double_memory_offset(op->from);
        ch->bytes[i % RING] = bytes;
        s->sequence = i + 1;
        atomic_store(&ch->posted, i + 1);
        s->phase = HAS_ARRIVED;
        return PROGRESS_some;
    }
    if (sends) {
        if (atomic_load(&ch->taken) < s->sequence) return PROGRESS_none;
    } else {
        uint64_t i = atomic_load(&ch->taken);
        if (atomic_load(&ch->posted) <= i) return PROGRESS_none;
        if (ch->bytes[i % RING] != bytes) double_misuse("a message of another size");
        const char *memory = op->peer == c->rank ? NULL : peer_memory(c, op->peer);
        if (memory == NULL) return PROGRESS_none;
        memcpy(double_translate(op->to), memory + ch->from[i % RING], bytes);
        atomic_store(&ch->taken, i + 1);
    }
    s->phase = IS_DONE;
    return PROGRESS_done;
}

/* Returns true if operation i must wait for an earlier one of its group. Operations of a group run
 * at the same time, except collectives of one communicator and messages of one channel, which run
 * in order. */
static bool must_wait(const GroupTask *g, const OpState *s, uint32_t i)
{
    const Op *op = &g->op[i];
    bool ends = op->kind == KIND_send || op->kind == KIND_recv;
    for (uint32_t k = 0; k < i; k++) {
        const Op *before = &g->op[k];
        if (before->comm != op->comm || s[k].phase == IS_DONE) continue;
        if (!ends) return true;
        if (before->kind == op->kind && before->peer == op->peer && s[k].phase == BEGINS)
            return true;
        if (before->kind == KIND_recv && op->kind == KIND_recv && before->peer == op->peer)
            return true;
    }
    return false;
}

static Progress run_group(Task *task, void *state)
{
    GroupTask *g = (GroupTask *)task;
    OpState *s = state;
    bool moved = false, all = true;
    for (uint32_t i = 0; i < g->n; i++) {
        const Op *op = &g->op[i];
        if (s[i].phase == IS_DONE || (op->comm->is_gone && !op->stays)) continue;
        all = false;
        if (op->hangs || must_wait(g, s, i)) continue;
        bool ends = op->kind == KIND_send || op->kind == KIND_recv;
        Progress p = ends ? run_end(op, &s[i]) : run_collective(op, &s[i]);
        moved = moved || p != PROGRESS_none;
    }
    if (all) return PROGRESS_done;
    return moved ? PROGRESS_some : PROGRESS_none;
}

Task *nccl_task(const Op *ops, uint32_t n)
{
    GroupTask *g = double_task(sizeof *g + n * sizeof *ops, run_group);
    g->task.state_bytes = n * sizeof(OpState);
    g->n = n;
    memcpy(g->op, ops, n * sizeof *ops);
    return &g->task;
}
