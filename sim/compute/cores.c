/* Models ranks that are processes on the cores of one machine. A rank uses at most one core, for
 * its kernels and its transfers together. If a node has fewer cores than ranks at work, these ranks
 * share the cores evenly. A transfer is as fast as its slowest member.
 *
 * Collectives were measured while all ranks of the machine took part. If the machine had fewer
 * cores than ranks, the measured time already contains the effect of shared cores. So only the
 * fraction cores / ranks of the measured time is work. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "sim/heap.h"
#include "sim/sim.h"

typedef struct Task {
    bool transfer;
    uint32_t id; /* index in the engine of the kernel (a job) or of the transfer */
    uint32_t next_free, version;
    uint32_t first, n, room; /* the task's members are members[first] to members[first + n - 1],
                                which are classes of ranks; a job has one member */
    Ps since;
    double left, speed; /* left: picoseconds that the task still needs on a whole core; speed:
                           fraction of a core that it gets */
} Task;

typedef struct Known {
    OpKind op;
    uint32_t n_ranks;
    uint64_t bytes;
    Ps time_ps;
} Known;

struct Cores {
    const Cluster *cluster;
    const Fold *fold;
    Store *store;
    const char *machine, *backend;
    Arena *arena;
    Diag *diag;
    LIST(Task) tasks; /* entry 0 is unused */
    uint32_t free_task;
    LIST(uint32_t)
    task_of[2]; /* task_of[0]: the task of each job; task_of[1]: the task of each transfer; both by
                   their index in the engine */
    LIST(uint32_t) active;
    LIST(uint32_t) members;
    LIST(Known) known;
    uint32_t n_measured; /* how many collectives had a time in the store */
    uint32_t *n_tasks;   /* [class]: number of tasks in which ranks of the class take part */
    uint32_t *n_busy;    /* [class of nodes]: number of ranks at work on a node */
    Heap heap; /* a: index of a task, b: its version; an event with an older version no longer
                  counts */
    bool changed;
    Ps now;
    double measured_part; /* fraction of a measured time that is work */
};

Cores *cores_new(const Cluster *cluster, const Fold *fold, Store *store, const char *machine,
                 const char *backend, Arena *arena, Diag *d)
{
    Cores *c = arena_alloc(arena, sizeof *c);
    *c = (Cores){.cluster = cluster, .fold = fold, .store = store, .arena = arena, .diag = d};
    c->machine = machine == NULL ? "" : machine;
    c->backend = backend == NULL ? "" : backend;
    c->n_tasks = arena_array(arena, fold->n_classes, sizeof *c->n_tasks);
    c->n_busy = arena_array(arena, fold->n_node_classes, sizeof *c->n_busy);
    list_add(arena, &c->tasks);
    uint32_t ranks = fold->n_ranks;
    if (fold->devices_per_node != 0 && fold->devices_per_node < ranks) {
        ranks = fold->devices_per_node;
    }
    double cores = cluster->cores_per_node;
    c->measured_part = cores > 0 && cores < ranks ? cores / ranks : 1;
    return c;
}

/* Returns the time of a collective that was not measured, for processes in general. Each message
 * takes 3 us. The received bytes are copied twice (into shared memory and out of it) and added, at
 * the rate that the cluster states for the node. */
static Ps generic_ps(const Cluster *cluster, OpKind op, uint32_t n_ranks, uint64_t bytes)
{
    double n = n_ranks, part = (n - 1) / n, rate = fmax(cluster->intra_bytes_per_s, 1e9);
    if (op == OP_all_reduce) part *= 2;
    const bool message = op == OP_send || op == OP_recv || op == OP_rotate;
    const bool strips = op == OP_halo_exchange;
    if (message || strips) part = 1;
    double messages = message ? 1 : strips ? 2 : ceil(log2(n)) + 1;
    return ps_of((3e-6 * messages + 2 * part * (double)bytes / rate) * (double)PS_PER_S);
}

static Ps time_of(Cores *c, OpKind op, uint32_t n_ranks, uint64_t bytes)
{
    for (uint32_t i = 0; i < c->known.n; i++) {
        const Known *k = &c->known.at[i];
        if (k->op == op && k->n_ranks == n_ranks && k->bytes == bytes) return k->time_ps;
    }
    Ps measured = -1;
    if (c->store != NULL) {
        measured =
            store_get_collective(c->store, c->machine, c->backend, op, n_ranks, bytes, c->diag);
    }
    Ps time = measured < 0 ? generic_ps(c->cluster, op, n_ranks, bytes)
                           : ps_of((double)measured * c->measured_part);
    c->n_measured += measured >= 0;
    list_push(c->arena, &c->known, ((Known){op, n_ranks, bytes, time}));
    return time;
}

void cores_counts(const Cores *c, CostCounts *counts)
{
    counts->collectives_measured = c->n_measured;
    counts->collectives_modelled = c->known.n - c->n_measured;
}

static void join(Cores *c, uint32_t class_, int32_t sign)
{
    uint32_t *tasks = &c->n_tasks[class_], *busy = &c->n_busy[c->fold->node_of[class_]];
    uint32_t on_node = c->fold->on_node[class_];
    if (sign > 0 && (*tasks)++ == 0) *busy += on_node;
    if (sign < 0 && --*tasks == 0) *busy -= on_node;
}

static uint32_t add_task(Cores *c, uint32_t side, uint32_t id, Ps work, Ps now)
{
    uint32_t t = c->free_task;
    if (t != 0)
        c->free_task = c->tasks.at[t].next_free;
    else
        t = list_add(c->arena, &c->tasks);
    Task *task = &c->tasks.at[t];
    task->transfer = side == 1;
    task->id = id;
    task->left = (double)work;
    task->speed = 0; /* computed when the instant ends */
    task->version++;
    task->n = 0;
    while (c->task_of[side].n <= id) list_add(c->arena, &c->task_of[side]);
    c->task_of[side].at[id] = t;
    list_push(c->arena, &c->active, t);
    c->changed = true;
    c->now = now;
    return t;
}

/* Adds a member to a task that will have `of` members. After a task has ended, a new task takes
 * over its entry in the list of tasks. It also takes over the entry's range of `members`, if that
 * is large enough. */
static void add_member(Cores *c, uint32_t t, uint32_t class_, uint32_t of)
{
    Task *task = &c->tasks.at[t];
    assert(task->n < of);
    if (task->room < of) {
        task->first = c->members.n;
        task->room = of;
        for (uint32_t i = 0; i < of; i++) list_add(c->arena, &c->members);
    }
    c->members.at[task->first + task->n++] = class_;
    join(c, class_, 1);
}

static void remove_task(Cores *c, uint32_t t, Ps now)
{
    Task *task = &c->tasks.at[t];
    for (uint32_t i = 0; i < task->n; i++) join(c, c->members.at[task->first + i], -1);
    uint32_t k = 0;
    while (c->active.at[k] != t) k++;
    c->active.at[k] = c->active.at[--c->active.n];
    task->version++;
    task->next_free = c->free_task;
    c->free_task = t;
    c->changed = true;
    c->now = now;
}

static double share_of(const Cores *c, const Task *task)
{
    double speed = 1, cores = c->cluster->cores_per_node;
    for (uint32_t i = 0; i < task->n; i++) {
        uint32_t class_ = c->members.at[task->first + i];
        double busy = c->n_busy[c->fold->node_of[class_]];
        double rank = cores > 0 && busy > cores ? cores / busy : 1;
        speed = fmin(speed, rank / c->n_tasks[class_]);
    }
    return speed;
}

static void work_out_shares(Cores *c)
{
    c->changed = false;
    for (uint32_t k = 0; k < c->active.n; k++) {
        Task *task = &c->tasks.at[c->active.at[k]];
        double speed = share_of(c, task);
        if (speed == task->speed) continue;
        task->left = fmax(task->left - (double)(c->now - task->since) * task->speed, 0);
        task->since = c->now;
        task->speed = speed;
        task->version++;
        Ps when = c->now + ps_of(ceil(task->left / speed));
        heap_add(&c->heap, c->arena, when, c->active.at[k], task->version);
    }
}

static const Event *valid_top(Cores *c)
{
    const Event *top = heap_top(&c->heap);
    while (top != NULL && top->b != c->tasks.at[top->a].version) {
        heap_take(&c->heap);
        top = heap_top(&c->heap);
    }
    return top;
}

/* Returns the next event if it belongs to a job (or to a transfer, if `transfer` is true). Both
 * kinds share one heap, but the engine asks for them separately. So nothing is returned while the
 * first event of the heap is of the other kind. */
static bool next(Cores *c, bool transfer, Ps now, bool settle, uint32_t *id, Ps *when)
{
    const Event *top = valid_top(c);
    if (!settle && (top == NULL || top->time > now)) return false;
    if (settle && c->changed) {
        c->now = now;
        work_out_shares(c);
        top = valid_top(c);
    }
    if (top == NULL) return false;
    const Task *task = &c->tasks.at[top->a];
    if (task->transfer != transfer) return false;
    *id = task->id;
    *when = top->time;
    return true;
}

static void job_start(void *self, uint32_t id, uint32_t class_, Ps alone, Ps now)
{
    Cores *c = self;
    add_member(c, add_task(c, 0, id, alone, now), class_, 1);
}
static bool job_next(void *self, Ps now, bool settle, uint32_t *id, Ps *when)
{
    return next(self, false, now, settle, id, when);
}
static void job_finish(void *self, uint32_t id, Ps now)
{
    Cores *c = self;
    remove_task(c, c->task_of[0].at[id], now);
}

static void transfer_start(void *self, uint32_t id, const Transfer *t, Ps now)
{
    Cores *c = self;
    if (t->group == NULL) {
        uint32_t task = add_task(c, 1, id, time_of(c, OP_send, 2, t->bytes), now);
        add_member(c, task, t->sender, 2);
        if (t->receiver != t->sender) add_member(c, task, t->receiver, 2);
        return;
    }
    const FoldGroup *g = t->group;
    uint32_t task = add_task(c, 1, id, time_of(c, t->op, g->n_ranks, t->bytes), now);
    for (uint32_t i = 0; i < g->n_members; i++) {
        add_member(c, task, g->members[i].class_, g->n_members);
    }
}
static bool transfer_next(void *self, Ps now, bool settle, uint32_t *id, Ps *when)
{
    return next(self, true, now, settle, id, when);
}
static void transfer_finish(void *self, uint32_t id, Ps now)
{
    Cores *c = self;
    remove_task(c, c->task_of[1].at[id], now);
}

NetModel cores_net(Cores *c)
{
    return (NetModel){transfer_start, transfer_next, transfer_finish, c};
}

DeviceModel cores_device(Cores *c)
{
    return (DeviceModel){job_start, job_next, job_finish, c, true};
}
