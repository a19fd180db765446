/* Models collectives that take multiprocessors (SMs) away from computation. A kernel that runs at
 * the same time continues on the remaining SMs. (A kernel limited by memory slows down about as
 * much, because the blocks of a ring read and write two to three times the bytes that they
 * send.) */
#include <assert.h>
#include <math.h>

#include "sim/heap.h"
#include "sim/sim.h"

typedef struct RunningKernel {
    /* next: 1 + index of the next kernel of the same class; 0: this is the last one */
    uint32_t class_, next, version;
    Ps since;
    double left, speed; /* left: picoseconds that the rest of the kernel would take alone */
} RunningKernel;

/* A transfer, and the number of SMs that it takes on each rank that takes part. */
typedef struct Taker {
    bool collective;
    const FoldGroup *group;
    uint32_t sender, receiver;
    uint32_t channels; /* number of SMs */
} Taker;

struct Sms {
    const Cluster *cluster;
    const Fold *fold;
    MaxMin *maxmin;
    NetModel inner;
    Arena *arena;
    double n_sms;
    LIST(RunningKernel) jobs; /* by the number of the job */
    LIST(Taker) takers;       /* by the number of the transfer */
    uint32_t *first;          /* [class]: 1 + index of its newest job; 0: it has none */
    uint32_t *taken;          /* [class]: number of SMs that collectives occupy */
    uint32_t *marked;         /* [class]: 1 if the class is in `dirty` */
    LIST(uint32_t) dirty;     /* classes whose speed may have changed at this instant */
    Heap heap; /* a: index of a job, b: its version; an older version no longer counts */
};

Sms *sms_new(const Cluster *cluster, const Fold *fold, MaxMin *net, Arena *arena)
{
    Sms *s = arena_alloc(arena, sizeof *s);
    *s = (Sms){
        .cluster = cluster, .fold = fold, .maxmin = net, .inner = maxmin_net(net), .arena = arena};
    s->n_sms = cluster->device.sms > 0 ? cluster->device.sms : 128;
    s->first = arena_array(arena, fold->n_classes, sizeof *s->first);
    s->taken = arena_array(arena, fold->n_classes, sizeof *s->taken);
    s->marked = arena_array(arena, fold->n_classes, sizeof *s->marked);
    return s;
}

/* Returns the fraction of SMs that collectives leave to computation, but at least a quarter. NCCL
 * limits its channels, so in practice far more than a quarter is left. */
static double speed_of(const Sms *s, uint32_t class_)
{
    return fmax(1 - s->taken[class_] / s->n_sms, .25);
}

static void mark(Sms *s, uint32_t class_)
{
    if (s->marked[class_] || s->first[class_] == 0) return;
    s->marked[class_] = 1;
    list_push(s->arena, &s->dirty, class_);
}

static void schedule(Sms *s, uint32_t id, Ps now)
{
    RunningKernel *job = &s->jobs.at[id];
    job->version++;
    heap_add(&s->heap, s->arena, now + ps_of(ceil(job->left / job->speed)), id, job->version);
}

static void job_start(void *self, uint32_t id, uint32_t class_, Ps alone, Ps now)
{
    Sms *s = self;
    while (s->jobs.n <= id) list_add(s->arena, &s->jobs);
    RunningKernel *job = &s->jobs.at[id];
    job->class_ = class_;
    job->since = now;
    job->left = (double)alone;
    job->speed = speed_of(s, class_);
    job->next = s->first[class_];
    s->first[class_] = id + 1;
    schedule(s, id, now);
}

static void settle_class(Sms *s, uint32_t class_, Ps now)
{
    double speed = speed_of(s, class_);
    s->marked[class_] = 0;
    for (uint32_t at = s->first[class_]; at != 0; at = s->jobs.at[at - 1].next) {
        RunningKernel *job = &s->jobs.at[at - 1];
        if (job->speed == speed) continue;
        job->left = fmax(job->left - (double)(now - job->since) * job->speed, 0);
        job->since = now;
        job->speed = speed;
        schedule(s, at - 1, now);
    }
}

static const Event *valid_top(Sms *s)
{
    const Event *top = heap_top(&s->heap);
    while (top != NULL && top->b != s->jobs.at[top->a].version) {
        heap_take(&s->heap);
        top = heap_top(&s->heap);
    }
    return top;
}

static __attribute__((noinline)) bool job_search(Sms *s, Ps now, bool settle, uint32_t *id,
                                                 Ps *when)
{
    if (settle) {
        for (uint32_t i = 0; i < s->dirty.n; i++) settle_class(s, s->dirty.at[i], now);
        s->dirty.n = 0;
    }
    const Event *top = valid_top(s);
    if (top == NULL || (!settle && top->time > now)) return false;
    *id = top->a;
    *when = top->time;
    return true;
}

/* Most calls find a valid event at the top of the queue, and no speed has changed. job_search
 * answers all other calls. It is not inlined, so that most calls save no registers. */
static bool job_next(void *self, Ps now, bool settle, uint32_t *id, Ps *when)
{
    Sms *s = self;
    const Event *top = heap_near(&s->heap);
    if (top == NULL || top->b != s->jobs.at[top->a].version || (settle && s->dirty.n > 0))
        return job_search(s, now, settle, id, when);
    if (!settle && top->time > now) return false;
    *id = top->a;
    *when = top->time;
    return true;
}

static void job_finish(void *self, uint32_t id, Ps now)
{
    Sms *s = self;
    (void)now;
    uint32_t *at = &s->first[s->jobs.at[id].class_];
    while (*at != id + 1) at = &s->jobs.at[*at - 1].next;
    *at = s->jobs.at[id].next;
    s->jobs.at[id].version++;
}

static void take(Sms *s, const Taker *t, bool back)
{
    uint32_t pair[2] = {t->sender, t->receiver};
    uint32_t n = t->collective ? t->group->n_members : t->sender == t->receiver ? 1 : 2;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t class_ = t->collective ? t->group->members[i].class_ : pair[i];
        if (back)
            s->taken[class_] -= t->channels;
        else
            s->taken[class_] += t->channels;
        mark(s, class_);
    }
}

static void transfer_start(void *self, uint32_t id, const Transfer *t, Ps now)
{
    Sms *s = self;
    s->inner.start(s->inner.self, id, t, now);
    while (s->takers.n <= id) list_add(s->arena, &s->takers);
    Taker taker = {t->group != NULL, t->group, t->sender, t->receiver, 0};
    taker.channels = maxmin_channels(s->maxmin, id);
    const NcclSettings *settings = maxmin_settings(s->maxmin);
    bool few_are_enough = t->registered || settings->cta_policy == NCCL_CTAS_efficiency;
    if (few_are_enough && t->group != NULL) {
        uint32_t nodes = t->group->n_nodes > 0 ? t->group->n_nodes : 1;
        uint32_t few =
            nccl_registered_channels(s->cluster, t->op, nodes, t->group->n_ranks / nodes);
        if (few < taker.channels) taker.channels = few;
    }
    s->takers.at[id] = taker;
    take(s, &taker, false);
}

static bool transfer_next(void *self, Ps now, bool settle, uint32_t *id, Ps *when)
{
    Sms *s = self;
    return s->inner.next(s->inner.self, now, settle, id, when);
}

static void transfer_finish(void *self, uint32_t id, Ps now)
{
    Sms *s = self;
    s->inner.finish(s->inner.self, id, now);
    if (id != NET_RATES) take(s, &s->takers.at[id], true);
}

NetModel sms_net(Sms *s)
{
    return (NetModel){transfer_start, transfer_next, transfer_finish, s};
}

DeviceModel sms_device(Sms *s)
{
    return (DeviceModel){job_start, job_next, job_finish, s, false};
}
