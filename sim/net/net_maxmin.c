/* Transfers that run at the same time share links. A transfer begins with its latency. Then its
 * bytes flow through the port, the NIC and the node's uplink of each member. It is at most as fast
 * as NCCL's model lets it run alone. If the flows need more than a link can carry, rates are
 * max-min fair (net_fill.c). That is, all rates rise together until a link is full or a flow has
 * its full rate.
 *
 * Demands are integers, so their sums are exact. The result therefore depends neither on the order
 * of flows nor on folding. A flow is recomputed only when its own rate changes. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "sim/net/net_private.h"

static uint32_t link_port(uint32_t class_, uint32_t in)
{
    return 2 * class_ + in;
}
static uint32_t link_nic(const MaxMin *m, uint32_t class_, uint32_t in)
{
    return 2 * (m->fold->n_classes + m->fold->nic_of[class_]) + in;
}
static uint32_t link_node(const MaxMin *m, uint32_t class_, uint32_t in)
{
    return 2 * (m->fold->n_classes + m->fold->n_nic_classes + m->fold->node_of[class_]) + in;
}

static uint32_t link_pod(const MaxMin *m, uint32_t class_, uint32_t in)
{
    const Fold *f = m->fold;
    return 2 * (f->n_classes + f->n_nic_classes + f->n_node_classes + f->pod_of[class_]) + in;
}

/* Returns the capacity of a link: its rate plus a millionth, so that rates that were rounded up
 * still fit. */
static int64_t capacity_of(double bytes_per_s)
{
    return (int64_t)ceil(bytes_per_s * (1 + 1e-6)) + 16;
}

MaxMin *maxmin_new(const Cluster *cluster, const Fold *fold, Arena *arena)
{
    MaxMin *m = arena_alloc(arena, sizeof *m);
    m->cluster = cluster;
    m->fold = fold;
    m->arena = arena;
    m->room = 256;
    m->table = arena_array(arena, m->room, sizeof *m->table);
    list_add(arena, &m->shapes);
    m->first_routed =
        2 * (fold->n_classes + fold->n_nic_classes + fold->n_node_classes + fold->n_pod_classes);
    m->n_links = m->first_routed + fold->n_link_classes;
    if (fold->routes != NULL)
        m->on_routed = arena_array(arena, fold->routes->n_links, sizeof *m->on_routed);
    m->capacity = arena_array(arena, m->n_links, sizeof *m->capacity);
    m->wanted = arena_array(arena, m->n_links, sizeof *m->wanted);
    m->frozen = arena_array(arena, m->n_links, sizeof *m->frozen);
    m->rising = arena_array(arena, m->n_links, sizeof *m->rising);
    m->full = arena_array(arena, m->n_links, sizeof *m->full);
    m->on = arena_array(arena, m->n_links, sizeof *m->on);
    m->seen = arena_array(arena, m->n_links, sizeof *m->seen);
    m->marked = arena_array(arena, m->n_links, sizeof *m->marked);
    list_add(arena, &m->entries);
    double port = nccl_port_bytes_per_s(cluster), nic = nccl_nic_bytes_per_s(cluster);
    double nics = cluster->nics_per_node, devices = cluster->devices_per_node;
    double oversubscription = cluster->oversubscription > 1 ? cluster->oversubscription : 1;
    /* a device may have several NICs */
    double a_nic = nics > devices ? nic * floor(nics / devices) : nic;
    for (uint32_t c = 0; c < fold->n_classes; c++) {
        for (uint32_t in = 0; in < 2; in++) {
            m->capacity[link_port(c, in)] = capacity_of(port);
            m->capacity[link_nic(m, c, in)] = capacity_of(a_nic);
            double node = nic * fmax(nics, 1) / oversubscription;
            m->capacity[link_node(m, c, in)] = capacity_of(node);
            m->capacity[link_pod(m, c, in)] = capacity_of(node * fmax(fold->nodes_per_pod, 1) /
                                                          fmax(cluster->group_oversubscription, 1));
        }
    }
    for (uint32_t c = 0; c < fold->n_link_classes; c++)
        m->capacity[m->first_routed + c] =
            capacity_of(routes_bytes_per_s(fold->routes, fold->link_of[c]));
    return m;
}

NcclSettings *maxmin_settings(MaxMin *m)
{
    return &m->settings;
}

void maxmin_measured(MaxMin *m, Store *store, const char *machine, Diag *d)
{
    m->store = store;
    m->machine = machine;
    m->d = d;
}

void maxmin_counts(const MaxMin *m, CostCounts *counts)
{
    counts->collectives_measured = m->n_measured;
    counts->collectives_modelled = m->shapes.n - 1 - m->n_measured; /* entry 0 is unused */
}

/* Replaces the modelled time of a collective by a measured one. Latency and bytes keep their shares
 * of the time. */
static void use_measured(MaxMin *m, OpKind op, uint32_t n_ranks, uint64_t bytes, NcclChoice *choice)
{
    /* times in the store were measured without NCCL settings */
    if (m->store == NULL || choice->time_ps <= 0 || !nccl_settings_none(&m->settings)) return;
    Ps measured = store_get_collective(m->store, m->machine, "nccl", op, n_ranks, bytes, m->d);
    if (measured < 0) return;
    m->n_measured++;
    double part = (double)choice->fluid_ps / (double)choice->time_ps;
    choice->fluid_ps = ps_of((double)measured * part);
    choice->latency_ps = measured - choice->fluid_ps;
    choice->time_ps = measured;
}

/* Adds a link that the flow uses `count` times. Limits the flow's rate to capacity / count, so that
 * a flow that runs alone has full speed. If `oversubscribed` is true, the rate is not limited:
 * NCCL's model assumes more than such a link can carry. */
static void add_use(MaxMin *m, FlowShape *shape, uint32_t link, uint32_t count, double bytes,
                    bool oversubscribed)
{
    double seconds = (double)shape->fluid_ps / (double)PS_PER_S;
    if (bytes <= 0 || seconds <= 0) return;
    double rate = bytes / seconds;
    if (!oversubscribed) rate = fmin(rate, (double)m->capacity[link] / count);
    LinkUse use = {.link = link, .count = count, .rate = (int64_t)floor(rate)};
    if (use.rate == 0) return;
    if (use.rate > shape->rate) shape->rate = use.rate;
    list_push(m->arena, &m->uses, use);
    shape->n++;
}

/* Returns how many bytes of each member leave its pod. Rings and trees go from pod to pod once, so
 * a whole pod sends as much as one of its nodes. In an exchange, each member sends to each rank in
 * other pods. */
static double pod_bytes(const Transfer *t, const NcclChoice *choice)
{
    const FoldGroup *g = t->group;
    if (g->n_pods < 2) return 0;
    double n = g->n_ranks, here = g->max_per_pod;
    if (op_exchanges(t->op)) return (double)t->bytes * (n - here) / n;
    return choice->nic_bytes * g->max_per_node / here;
}

/* Returns true if rank r is a sender of a transfer that `t` represents. */
static bool stands_for(const Fold *f, const Transfer *t, Rank r)
{
    uint32_t class_ = f->class_of[r];
    if (t->group == NULL) return class_ == t->sender;
    const FoldAxes *axes = &f->axes.at[fold_axes(f, t->group->axes)];
    return &axes->groups[axes->group_of[class_]] == t->group;
}

/* Returns the pattern of a transfer's messages between nodes. Sets *bytes to the size of each
 * message. */
static const FoldEdges *edges_of(const Fold *f, const Transfer *t, const NcclChoice *choice,
                                 double *bytes)
{
    *bytes = choice->nic_bytes;
    if (t->group != NULL) {
        EdgeKind kind = nccl_pattern(t->op, choice->algorithm);
        if (kind == EDGE_exchange) *bytes = (double)t->bytes / t->group->n_ranks;
        if (kind == EDGE_tree)
            *bytes = (double)t->bytes * t->group->n_nodes / t->group->n_ranks / 2;
        return fold_edges(f, kind, t->group->axes, 0);
    }
    for (uint32_t i = 0; i < f->edges.n; i++) {
        const FoldEdges *e = &f->edges.at[i];
        Rank peer;
        if (e->kind == EDGE_message && fold_peer(f->mesh, t->from_rank, e->axes, e->hop, &peer) &&
            peer == t->to_rank)
            return e;
    }
    return NULL;
}

/* Adds the links of the network, each with the bytes of all transfers that `t` represents. */
static void add_routed(MaxMin *m, FlowShape *shape, const Transfer *t, const NcclChoice *choice)
{
    const Fold *f = m->fold;
    double bytes = 0;
    if (f->routes == NULL || f->edges.n == 0) return;
    const FoldEdges *e = edges_of(f, t, choice, &bytes);
    if (e == NULL) return;
    memset(m->on_routed, 0, f->routes->n_links * sizeof *m->on_routed);
    for (Rank r = 0; r < f->n_ranks; r++) {
        if (!stands_for(f, t, r)) continue;
        for (uint32_t k = 0; k < e->n[r]; k++) {
            const FoldEdge *edge = &e->edges.at[e->first[r] + k];
            m->on_routed[edge->link] += edge->count;
        }
    }
    for (uint32_t c = 0; c < f->n_link_classes; c++) {
        uint32_t count = m->on_routed[f->link_of[c]];
        if (count > 0) add_use(m, shape, m->first_routed + c, count, bytes, true);
    }
}

/* Adds the links that a class uses. out, in: the fractions of the transfer's bytes that the class
 * sends and receives. */
static void add_uses(MaxMin *m, FlowShape *shape, const NcclChoice *choice, uint32_t class_,
                     double pod, double out, double in)
{
    const Fold *f = m->fold;
    for (uint32_t side = 0; side < 2; side++) {
        const double part = side == 0 ? out : in;
        add_use(m, shape, link_port(class_, side), 1, choice->port_bytes * part, false);
        add_use(m, shape, link_nic(m, class_, side), f->on_nic[class_], choice->nic_bytes * part,
                false);
    }
    for (uint32_t side = 0; side < 2; side++) {
        const double part = side == 0 ? out : in;
        add_use(m, shape, link_node(m, class_, side), f->on_node[class_], choice->nic_bytes * part,
                true);
        add_use(m, shape, link_pod(m, class_, side), f->on_pod[class_], pod * part, true);
    }
}

/* Returns true if the group uses as few nodes as possible, as the measured groups did. */
static bool is_packed(const MaxMin *m, const FoldGroup *g)
{
    uint32_t per_node = m->fold->devices_per_node;
    uint32_t least = per_node == 0 ? 1 : (g->n_ranks + per_node - 1) / per_node;
    return (g->n_nodes < 2 ? 1 : g->n_nodes) == least;
}

static void fill_shape(MaxMin *m, FlowShape *shape, const Transfer *t)
{
    NcclChoice choice;
    shape->first = m->uses.n;
    if (t->group != NULL) {
        const FoldGroup *g = t->group;
        uint32_t per_node = g->n_nodes < 2 ? g->n_ranks : g->n_ranks / g->n_nodes;
        choice = nccl_choose_as(m->cluster, &m->settings, t->op, g->n_nodes,
                                per_node == 0 ? 1 : per_node, t->bytes);
        if (is_packed(m, g)) use_measured(m, t->op, g->n_ranks, t->bytes, &choice);
        shape->latency_ps = choice.latency_ps;
        shape->fluid_ps = choice.fluid_ps;
        for (uint32_t i = 0; i < g->n_members; i++) {
            const uint32_t class_ = g->members[i].class_;
            add_uses(m, shape, &choice, class_, pod_bytes(t, &choice), t->out ? t->out[class_] : 1,
                     t->in ? t->in[class_] : 1);
        }
    } else {
        uint32_t per_node = m->fold->devices_per_node;
        bool away = per_node != 0 && t->from_rank / per_node != t->to_rank / per_node;
        choice =
            nccl_choose_as(m->cluster, &m->settings, OP_send, away ? 2 : 1, away ? 1 : 2, t->bytes);
        if (!away) use_measured(m, OP_send, 2, t->bytes, &choice);
        shape->latency_ps = choice.latency_ps;
        shape->fluid_ps = choice.fluid_ps;
        uint32_t per_pod = m->fold->nodes_per_pod * per_node;
        bool leaves = per_pod != 0 && t->from_rank / per_pod != t->to_rank / per_pod;
        double pod = leaves ? choice.nic_bytes : 0;
        add_uses(m, shape, &choice, t->sender, pod, 1, 0);
        add_uses(m, shape, &choice, t->receiver, pod, 0, 1);
    }
    add_routed(m, shape, t, &choice);
    shape->channels = choice.channels;
    for (uint32_t i = 0; i < shape->n; i++) {
        LinkUse *use = &m->uses.at[shape->first + i];
        use->weight = llround((double)use->rate / (double)shape->rate * 0x1p20);
        if (use->weight == 0) use->weight = 1;
    }
}

static bool shape_is(const FlowShape *s, const Transfer *t)
{
    return s->op == t->op && s->group == t->group && s->sender == t->sender &&
           s->receiver == t->receiver && s->bytes == t->bytes && s->out == t->out && s->in == t->in;
}

/* Returns a hash of sizes, operations and smallest ranks. None of these differs from run to run. */
static uint32_t hash_of(OpKind op, const FoldGroup *group, uint32_t sender, uint32_t receiver,
                        uint64_t bytes)
{
    uint64_t h = bytes * UINT64_C(0x9e3779b97f4a7c15) + op;
    h = (h ^ (h >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    if (group != NULL) h += ((uint64_t)group->first << 17) + ((uint64_t)group->axes << 1) + 1;
    h += ((uint64_t)sender << 32) + receiver;
    h = (h ^ (h >> 32)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(h >> 32);
}

static void table_grow(MaxMin *m)
{
    m->room *= 2;
    m->table = arena_array(m->arena, m->room, sizeof *m->table);
    for (uint32_t i = 1; i < m->shapes.n; i++) {
        const FlowShape *s = &m->shapes.at[i];
        uint32_t at = hash_of(s->op, s->group, s->sender, s->receiver, s->bytes) & (m->room - 1);
        while (m->table[at] != 0) at = (at + 1) & (m->room - 1);
        m->table[at] = i;
    }
}

static uint32_t find_shape(MaxMin *m, const Transfer *t)
{
    if (2 * m->shapes.n >= m->room) table_grow(m);
    uint32_t at = hash_of(t->op, t->group, t->sender, t->receiver, t->bytes) & (m->room - 1);
    for (; m->table[at] != 0; at = (at + 1) & (m->room - 1)) {
        if (shape_is(&m->shapes.at[m->table[at]], t)) return m->table[at];
    }
    FlowShape shape = {.op = t->op, .group = t->group, .sender = t->sender, .bytes = t->bytes};
    shape.receiver = t->receiver, shape.out = t->out, shape.in = t->in;
    fill_shape(m, &shape, t);
    m->table[at] = m->shapes.n;
    return list_push(m->arena, &m->shapes, shape);
}

Ps maxmin_alone_ps(MaxMin *m, const Transfer *t)
{
    const uint32_t i = find_shape(m, t); /* this may move the list of shapes */
    return m->shapes.at[i].latency_ps + m->shapes.at[i].fluid_ps;
}

/* Adds the demand of a flow on a link; with sign -1, subtracts it. */
static void want(MaxMin *m, const LinkUse *use, int64_t sign)
{
    int64_t *wanted = &m->wanted[use->link];
    const bool was = *wanted > m->capacity[use->link];
    *wanted += sign * use->rate * use->count;
    const bool is = *wanted > m->capacity[use->link];
    if ((!was && !is) || m->marked[use->link] == m->n_fillings + 1) return;
    m->marked[use->link] = m->n_fillings + 1;
    list_push(m->arena, &m->changed, use->link);
}

/* Adds a flow that begins to run to the lists of its links. */
static void enter(MaxMin *m, uint32_t id)
{
    Flow *f = &m->flows.at[id];
    const FlowShape *shape = &m->shapes.at[f->shape];
    if (f->room < shape->n) {
        f->first = m->entries.n;
        f->room = shape->n;
        for (uint32_t i = 0; i < shape->n; i++) list_add(m->arena, &m->entries);
    }
    for (uint32_t i = 0; i < shape->n; i++) {
        const LinkUse *use = &m->uses.at[shape->first + i];
        const uint32_t at = f->first + i, next = m->on[use->link];
        m->entries.at[at] = (FlowEntry){.flow = id, .next = next};
        if (next != 0) m->entries.at[next].previous = at;
        m->on[use->link] = at;
        want(m, use, 1);
    }
}

static void leave(MaxMin *m, uint32_t id)
{
    const Flow *f = &m->flows.at[id];
    const FlowShape *shape = &m->shapes.at[f->shape];
    for (uint32_t i = 0; i < shape->n; i++) {
        const LinkUse *use = &m->uses.at[shape->first + i];
        const FlowEntry index = m->entries.at[f->first + i];
        if (index.next != 0) m->entries.at[index.next].previous = index.previous;
        if (index.previous != 0)
            m->entries.at[index.previous].next = index.next;
        else
            m->on[use->link] = index.next;
        want(m, use, -1);
    }
}

static void schedule(MaxMin *m, uint32_t id, Ps when)
{
    Flow *f = &m->flows.at[id];
    f->version++;
    heap_add(&m->heap, m->arena, when, id, f->version);
}

static void net_start(void *self, uint32_t id, const Transfer *t, Ps now)
{
    MaxMin *m = self;
    while (m->flows.n <= id) {
        list_add(m->arena, &m->flows);
        list_add(m->arena, &m->index);
    }
    m->now = now;
    Flow *f = &m->flows.at[id];
    assert(f->state == FLOW_none);
    f->shape = find_shape(m, t);
    f->state = FLOW_latent;
    schedule(m, id, now + m->shapes.at[f->shape].latency_ps);
}

static void start_flow(MaxMin *m, uint32_t id)
{
    Flow *f = &m->flows.at[id];
    const FlowShape *shape = &m->shapes.at[f->shape];
    f->state = FLOW_running;
    f->since = m->now;
    f->left = (double)shape->fluid_ps;
    f->speed = 1;
    m->index.at[id] = list_push(m->arena, &m->active, id);
    enter(m, id);
    schedule(m, id, m->now + shape->fluid_ps);
}

static void net_finish(void *self, uint32_t id, Ps now)
{
    MaxMin *m = self;
    m->now = now;
    const Event *top = heap_top(&m->heap);
    assert(top != NULL);
    uint32_t flow = top->a;
    assert(top->b == m->flows.at[flow].version);
    heap_take(&m->heap);
    Flow *f = &m->flows.at[flow];
    if (id == NET_RATES) {
        start_flow(m, flow);
        return;
    }
    assert(flow == id);
    if (f->state == FLOW_running) {
        uint32_t last = m->active.at[--m->active.n], index = m->index.at[id];
        m->active.at[index] = last;
        m->index.at[last] = index;
        leave(m, id);
    }
    f->state = FLOW_none;
}

static void set_speed(MaxMin *m, uint32_t id, double speed)
{
    Flow *f = &m->flows.at[id];
    if (f->speed == speed) return;
    f->left -= (double)(m->now - f->since) * f->speed;
    if (f->left < 0) f->left = 0;
    f->since = m->now;
    f->speed = speed;
    schedule(m, id, m->now + ps_of(ceil(f->left / speed)));
}

static void share(MaxMin *m)
{
    maxmin_fill(m);
    m->changed.n = 0;
    for (uint32_t k = 0; k < m->part.n; k++)
        set_speed(m, m->part.at[k], m->flows.at[m->part.at[k]].level);
}

static const Event *valid_top(MaxMin *m)
{
    const Event *top = heap_top(&m->heap);
    while (top != NULL && top->b != m->flows.at[top->a].version) {
        heap_take(&m->heap);
        top = heap_top(&m->heap);
    }
    return top;
}

static __attribute__((noinline)) const Event *search(MaxMin *m, Ps now, bool settle)
{
    if (settle && m->changed.n > 0) {
        m->now = now;
        share(m);
    }
    return valid_top(m);
}

/* Most calls find a valid event at the top of the queue, and no rate changes. */
static bool net_next(void *self, Ps now, bool settle, uint32_t *id, Ps *when)
{
    MaxMin *m = self;
    const Event *top = heap_near(&m->heap);
    if (top == NULL || top->b != m->flows.at[top->a].version || (settle && m->changed.n > 0))
        top = search(m, now, settle);
    if (top == NULL || (!settle && top->time > now)) return false;
    const Flow *f = &m->flows.at[top->a];
    bool ends = f->state == FLOW_running || m->shapes.at[f->shape].fluid_ps == 0;
    *id = ends ? top->a : NET_RATES;
    *when = top->time;
    return true;
}

uint32_t maxmin_channels(const MaxMin *m, uint32_t id)
{
    return m->shapes.at[m->flows.at[id].shape].channels;
}

NetModel maxmin_net(MaxMin *m)
{
    return (NetModel){net_start, net_next, net_finish, m};
}
