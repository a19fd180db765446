/* Folds ranks by colour refinement: ranks have the same colour as long as nothing tells them apart.
 * A colour is a 128-bit hash. The colour of a group is a sum over its members, so that their order
 * does not matter. Classes are numbered by their smallest rank, so no output depends on a hash. */
#include "sim/fold_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/str.h"

/* A group or peer with which a program communicates. */
typedef struct Need {
    AxisSet axes;
    int32_t hop; /* for a send or receive; 0 for a group */
    bool group;
    uint32_t hop_at; /* for a send or receive: the index of its axes and hop in Folder.hops */
    /* pattern of the group's messages. EDGE_tree also stands for a ring, because the size of the
     * data decides between the two */
    EdgeKind kind;
} Need;
typedef LIST(Need) NeedList;

/* The axes and the distance of a send or receive. */
typedef struct FoldHop {
    AxisSet axes;
    int32_t hop;
} FoldHop;

typedef struct Folder {
    const Plan *plan;
    Fold *fold;
    Arena *arena, *scratch;
    NeedList *needs;    /* [program]: what the program needs */
    NeedList *messages; /* [program]: those of its needs that are sends or receives */
    /* [program * fold->axes.n + index in fold->axes]: true if the program needs a group along these
     * axes */
    bool *along;
    LIST(FoldHop) hops;
    Rank *peer; /* [index in hops * n_ranks + rank]: the other rank; UINT32_MAX: there is none */
    Colour *colour, *next, *sum; /* [rank] */
    Colour *mixed;               /* [rank]: its colour, hashed once more, for sums of colours */
    uint32_t *group; /* [index in fold->axes * n_ranks + rank]: smallest rank of the rank's group */
    uint32_t *here;  /* [rank] */
    Rank *members;   /* the ranks of one group, in ascending order */
    Colour *link;    /* [link of the network] */
    const uint32_t *apart; /* [rank]: see FoldNodes.apart; NULL: no ranks must be kept apart */
    /* Axes along which ranks only repeat each other (fold_repeats). Ranks that differ only along
     * these axes have equal colours, so only the first of them (`firsts`) is coloured. */
    AxisSet repeats;
    LIST(Rank) firsts;
    Rank *first_of; /* [rank] */
    bool networked; /* some ranks communicate with ranks on other nodes */
} Folder;

static uint32_t hop_at(Folder *w, FoldHop hop)
{
    for (uint32_t i = 0; i < w->hops.n; i++)
        if (w->hops.at[i].axes == hop.axes && w->hops.at[i].hop == hop.hop) return i;
    return list_push(w->scratch, &w->hops, hop);
}

static void add_need(Folder *w, uint32_t program, Need need)
{
    NeedList *list = &w->needs[program];
    for (uint32_t i = 0; i < list->n; i++) {
        const Need *have = &list->at[i];
        if (have->axes == need.axes && have->hop == need.hop && have->group == need.group &&
            have->kind == need.kind)
            return;
    }
    if (!need.group) need.hop_at = hop_at(w, (FoldHop){need.axes, need.hop});
    list_push(w->scratch, list, need);
    if (!need.group) list_push(w->scratch, &w->messages[program], need);
    if (need.group && fold_axes(w->fold, need.axes) == UINT32_MAX) {
        list_push(w->arena, &w->fold->axes, ((FoldAxes){.axes = need.axes}));
    }
}

static void collect_needs(Folder *w)
{
    for (uint32_t i = 0; i < w->plan->programs.n; i++) {
        const Program *p = &w->plan->programs.at[i];
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            if (op_info(in->op)->class_ != OP_CLASS_comm) continue;
            bool group = in->op != OP_send && in->op != OP_recv;
            EdgeKind kind = !group                    ? EDGE_message
                            : op_exchanges(in->op)    ? EDGE_exchange
                            : in->op == OP_all_reduce ? EDGE_tree
                                                      : EDGE_ring;
            add_need(w, i, (Need){in->axes, group ? 0 : in->hop, group, 0, kind});
        }
    }
}

/* Sets *peer to the rank at the other end of message i of rank r's program. Returns false if there
 * is no such rank. */
static bool meets_peer(const Folder *w, Rank r, uint32_t i, Rank *peer)
{
    const Need *need = &w->messages[w->plan->program_of[r]].at[i];
    *peer = w->peer[(size_t)need->hop_at * w->fold->n_ranks + r];
    return *peer != UINT32_MAX;
}

/* Each refinement needs the peers of all coloured ranks, so they are computed once. */
static void find_peers(Folder *w)
{
    const uint32_t n = w->fold->n_ranks;
    w->peer = arena_array(w->scratch, (size_t)w->hops.n * n, sizeof *w->peer);
    for (uint32_t i = 0; i < w->hops.n; i++)
        for (uint32_t k = 0; k < w->firsts.n; k++) {
            const Rank r = w->firsts.at[k];
            Rank *peer = &w->peer[(size_t)i * n + r];
            if (!fold_peer(&w->plan->mesh, r, w->hops.at[i].axes, w->hops.at[i].hop, peer))
                *peer = UINT32_MAX;
        }
}

static uint32_t n_messages(const Folder *w, Rank r)
{
    return w->messages[w->plan->program_of[r]].n;
}

/* True if messages keep their pattern when all ranks move by one along axis `a`. */
static bool messages_repeat(const Folder *w, uint32_t a)
{
    const AxisSet axis = (AxisSet)(1u << a);
    for (uint32_t i = 0; i < w->hops.n; i++)
        if (w->hops.at[i].axes & axis && w->hops.at[i].axes != axis) return false;
    return true;
}

/* Finds w->repeats, and the ranks that are coloured. */
static void find_firsts(Folder *w, bool every_rank)
{
    const Fold *f = w->fold;
    for (uint32_t a = 0; a < f->mesh->n_axes && !every_rank; a++)
        if (fold_repeats(f, a, w->plan->program_of) && messages_repeat(w, a))
            w->repeats = (AxisSet)(w->repeats | 1u << a);
    w->first_of = arena_array(w->scratch, f->n_ranks, sizeof *w->first_of);
    fold_leaders(f, w->repeats, w->first_of);
    for (Rank r = 0; r < f->n_ranks; r++)
        if (w->first_of[r] == r) list_push(w->scratch, &w->firsts, r);
}

static void find_groups(Folder *w)
{
    const Fold *f = w->fold;
    w->group = arena_array(w->scratch, (size_t)f->axes.n * f->n_ranks, sizeof *w->group);
    for (uint32_t i = 0; i < f->axes.n; i++) {
        uint32_t *group = w->group + (size_t)i * f->n_ranks;
        fold_leaders(f, f->axes.at[i].axes, group);
        for (Rank r = 0; r < f->n_ranks; r++) {
            if (fold_node_of(f, group[r]) != fold_node_of(f, r)) w->networked = true;
        }
    }
    for (uint32_t k = 0; k < w->firsts.n; k++) {
        const Rank r = w->firsts.at[k];
        Rank peer;
        for (uint32_t i = 0; i < n_messages(w, r); i++)
            if (meets_peer(w, r, i, &peer) && fold_node_of(f, peer) != fold_node_of(f, r))
                w->networked = true;
    }
}

static void find_edges(Folder *w)
{
    Fold *f = w->fold;
    if (!w->networked || f->routes == NULL) return;
    for (uint32_t i = 0; i < w->plan->programs.n; i++) {
        for (uint32_t k = 0; k < w->needs[i].n; k++) {
            const Need *need = &w->needs[i].at[k];
            fold_add_edges(f, need->kind, need->axes, need->hop, w->arena);
            if (need->kind == EDGE_tree) fold_add_edges(f, EDGE_ring, need->axes, 0, w->arena);
        }
    }
    w->link = arena_array(w->scratch, f->routes->n_links, sizeof *w->link);
}

/* Finds how the groups along the i-th set of axes are distributed over nodes (or pods). Sets
 * sum[leader] to a hash of the numbers of members on each node. Sets here[r] to the number of
 * members on r's own node. Members are in ascending order, so the members on a node are
 * neighbours. */
static void find_patterns(Folder *w, uint32_t i, uint32_t (*place_of)(const Fold *f, Rank rank))
{
    const Fold *f = w->fold;
    AxisSet axes = f->axes.at[i].axes;
    const uint32_t *leader = w->group + (size_t)i * f->n_ranks;
    uint32_t n = mesh_size(&w->plan->mesh, axes);
    Rank *member = w->members;
    for (uint32_t first = 0; first < w->firsts.n; first++) {
        const Rank r = w->firsts.at[first];
        if (leader[r] != r) continue;
        w->sum[r] = (Colour){0, 0};
        member[0] = r;
        for (uint32_t k = 1; k < n; k++) member[k] = mesh_next(&w->plan->mesh, member[k - 1], axes);
        for (uint32_t k = 0, end = 0; k < n; k = end) {
            const uint32_t node = place_of(f, member[k]);
            while (end < n && place_of(f, member[end]) == node) end++;
            const uint32_t run = end - k;
            for (uint32_t j = k; j < end; j++) w->here[member[j]] = run;
            Colour c = colour_of(run, run);
            w->sum[r].a += c.a;
            w->sum[r].b += c.b;
        }
    }
}

/* Fills w->along once, because each refinement needs it for every coloured rank. */
static void find_along(Folder *w)
{
    const Fold *f = w->fold;
    w->along = arena_array(w->scratch, (size_t)w->plan->programs.n * f->axes.n, sizeof *w->along);
    for (uint32_t p = 0; p < w->plan->programs.n; p++)
        for (uint32_t i = 0; i < w->needs[p].n; i++)
            if (w->needs[p].at[i].group)
                w->along[(size_t)p * f->axes.n + fold_axes(f, w->needs[p].at[i].axes)] = true;
}

/* True if the program of rank r needs its group along the i-th set of axes. */
static bool needs_group(const Folder *w, Rank r, uint32_t i)
{
    return w->along[(size_t)w->plan->program_of[r] * w->fold->axes.n + i];
}

static void start_colours(Folder *w)
{
    const Fold *f = w->fold;
    const Rank *firsts = w->firsts.at;
    for (uint32_t j = 0; j < w->firsts.n; j++) {
        const Rank r = firsts[j];
        uint32_t program = w->plan->program_of[r];
        w->colour[r] = colour_of(program, program);
        if (w->apart != NULL)
            w->colour[r] = colour_chain(w->colour[r], colour_of(w->apart[r], w->apart[r]));
    }
    uint32_t levels = !w->networked ? 0 : f->nodes_per_pod == 0 ? 1 : 2;
    for (uint32_t k = 0; k < f->axes.n * levels; k++) {
        uint32_t i = k % f->axes.n;
        find_patterns(w, i, k < f->axes.n ? fold_node_of : fold_pod_of);
        for (uint32_t j = 0; j < w->firsts.n; j++) {
            const Rank r = firsts[j];
            if (!needs_group(w, r, i)) continue;
            Colour lies = w->sum[w->group[(size_t)i * f->n_ranks + r]];
            w->colour[r] = colour_chain(w->colour[r], lies);
            w->colour[r] = colour_chain(w->colour[r], colour_of(w->here[r], w->here[r]));
        }
    }
    for (uint32_t j = 0; w->networked && j < w->firsts.n; j++) {
        const Rank r = firsts[j];
        for (uint32_t i = 0; i < n_messages(w, r); i++) {
            Rank peer;
            if (!meets_peer(w, r, i, &peer)) continue;
            uint64_t away = fold_node_of(f, peer) != fold_node_of(f, r);
            if (fold_pod_of(f, peer) != fold_pod_of(f, r)) away = 2;
            w->colour[r] = colour_chain(w->colour[r], colour_of(away, away));
        }
    }
}

/* Maps rank r to the thing that it shares with other ranks: its group along the i-th axes, its
 * node, its NIC or its pod. */
typedef uint32_t (*Key)(const Folder *w, uint32_t i, Rank r);

static uint32_t key_group(const Folder *w, uint32_t i, Rank r)
{
    return w->group[(size_t)i * w->fold->n_ranks + r];
}
static uint32_t key_node(const Folder *w, uint32_t i, Rank r)
{
    (void)i;
    return fold_node_of(w->fold, r);
}
static uint32_t key_nic(const Folder *w, uint32_t i, Rank r)
{
    (void)i;
    return fold_nic_of(w->fold, r);
}

static uint32_t key_pod(const Folder *w, uint32_t i, Rank r)
{
    (void)i;
    return fold_pod_of(w->fold, r);
}

/* Sets sum[k] to the sum of the colours of all coloured ranks whose key is k. Every sum leaves out
 * equally many ranks that repeat others, so unequal colours stay unequal. */
static void sum_colours(Folder *w, Key key, uint32_t i)
{
    for (uint32_t k = 0; k < w->firsts.n; k++) w->sum[key(w, i, w->firsts.at[k])] = (Colour){0, 0};
    for (uint32_t k = 0; k < w->firsts.n; k++) {
        const Rank r = w->firsts.at[k];
        Colour *sum = &w->sum[key(w, i, r)];
        sum->a += w->mixed[r].a;
        sum->b += w->mixed[r].b;
    }
}

static void refine(Folder *w)
{
    Fold *f = w->fold;
    const Rank *firsts = w->firsts.at;
    for (uint32_t k = 0; k < w->firsts.n; k++) {
        const Rank r = firsts[k];
        w->next[r] = w->colour[r];
        w->mixed[r] = colour_of(w->colour[r].a, w->colour[r].b);
    }
    for (uint32_t i = 0; i < f->axes.n; i++) {
        sum_colours(w, key_group, i);
        for (uint32_t k = 0; k < w->firsts.n; k++) {
            const Rank r = firsts[k];
            if (!needs_group(w, r, i)) continue;
            w->next[r] = colour_chain(w->next[r], w->sum[key_group(w, i, r)]);
        }
    }
    static const Key nodes[] = {key_node, key_nic, key_pod};
    for (uint32_t side = 0; w->networked && side < (f->nodes_per_pod == 0 ? 2 : 3); side++) {
        Key key = nodes[side];
        sum_colours(w, key, 0);
        for (uint32_t k = 0; k < w->firsts.n; k++) {
            const Rank r = firsts[k];
            w->next[r] = colour_chain(w->next[r], w->sum[key(w, 0, r)]);
        }
    }
    for (uint32_t k = 0; k < w->firsts.n; k++) {
        const Rank r = firsts[k];
        Rank peer;
        for (uint32_t i = 0; i < n_messages(w, r); i++)
            if (meets_peer(w, r, i, &peer))
                w->next[r] = colour_chain(w->next[r], w->colour[w->first_of[peer]]);
    }
    if (f->edges.n > 0) {
        fold_colour_links(f, w->colour, w->link);
        fold_chain_links(f, w->link, w->next);
    }
    Colour *swap = w->colour;
    w->colour = w->next;
    w->next = swap;
}

/* Gives each colour an index, in the order in which colours first appear. Sets class_of[r] to the
 * index of the colour of each coloured rank r. Returns the number of colours. */
static uint32_t number(const Folder *w, uint32_t *class_of)
{
    uint32_t room = 16, n = 0;
    while (room < 4 * (uint64_t)w->firsts.n) room *= 2;
    Rank *table = arena_array(w->scratch, room, sizeof *table); /* 1 + the first rank of each
                                                                   colour */
    for (uint32_t k = 0; k < w->firsts.n; k++) {
        const Rank r = w->firsts.at[k];
        uint32_t at = (uint32_t)w->colour[r].a & (room - 1);
        while (table[at] != 0 && !colour_same(w->colour[table[at] - 1], w->colour[r])) {
            at = (at + 1) & (room - 1);
        }
        if (table[at] == 0) {
            table[at] = r + 1;
            class_of[r] = n++;
        } else {
            class_of[r] = class_of[table[at] - 1];
        }
    }
    return n;
}

/* Finds the classes of nodes, of NICs or of pods (as `key` says) and writes them to of[class]. Two
 * nodes are in one class if the smallest classes of their ranks are equal. A node has at most
 * `span` ranks, which are consecutive. Sets count[class] to the number of ranks of the class on
 * each such node. Returns the number of classes of nodes. */
static uint32_t number_nodes(const Folder *w, Key key, uint32_t span, uint32_t *of, uint32_t *count)
{
    const Fold *f = w->fold;
    uint32_t n = 0;
    if (key(w, 0, f->n_ranks - 1) == 0 && span >= f->n_ranks) { /* there is only one */
        memset(of, 0, f->n_classes * sizeof *of);
        memcpy(count, f->size, f->n_classes * sizeof *count);
        return 1;
    }
    for (uint32_t c = 0; c < f->n_classes; c++) of[c] = UINT32_MAX;
    for (uint32_t c = 0; c < f->n_classes; c++) {
        uint32_t node = key(w, 0, f->rank_of[c]);
        bool found = of[c] != UINT32_MAX;
        Rank from = f->rank_of[c] - f->rank_of[c] % span, to = from + span;
        for (Rank r = from; r < to && r < f->n_ranks; r++) { /* visit the ranks of the same node */
            if (key(w, 0, r) != node) continue;
            if (f->class_of[r] == c) count[c]++;
            if (!found) of[f->class_of[r]] = n;
        }
        if (!found) n++;
    }
    return n;
}

static void make_groups(Folder *w)
{
    Fold *f = w->fold;
    for (uint32_t i = 0; i < f->axes.n; i++) {
        FoldAxes *axes = &f->axes.at[i];
        axes->groups = arena_array(w->arena, f->n_classes, sizeof *axes->groups);
        axes->group_of = arena_array(w->arena, f->n_classes, sizeof *axes->group_of);
        for (uint32_t c = 0; c < f->n_classes; c++) axes->group_of[c] = UINT32_MAX;
        for (uint32_t c = 0; c < f->n_classes; c++) {
            if (axes->group_of[c] != UINT32_MAX) continue;
            FoldGroup *g = &axes->groups[axes->n_groups];
            g->axes = axes->axes;
            fold_describe_group(f, g, key_group(w, i, f->rank_of[c]), w->arena);
            for (uint32_t k = 0; k < g->n_members; k++) {
                uint32_t member = g->members[k].class_;
                if (axes->group_of[member] == UINT32_MAX) {
                    axes->group_of[member] = axes->n_groups;
                }
            }
            axes->n_groups++;
        }
    }
}

static void settle_classes(Folder *w, bool unfolded)
{
    Fold *f = w->fold;
    if (unfolded) {
        for (Rank r = 0; r < f->n_ranks; r++) f->class_of[r] = r;
        f->n_classes = f->n_ranks;
    } else {
        start_colours(w);
        uint32_t before = 0;
        f->n_classes = number(w, f->class_of);
        while (f->n_classes != before) {
            before = f->n_classes;
            refine(w);
            f->n_classes = number(w, f->class_of);
        }
        for (Rank r = 0; r < f->n_ranks; r++) f->class_of[r] = f->class_of[w->first_of[r]];
    }
    if (f->edges.n > 0) {
        if (!unfolded) fold_colour_links(f, w->colour, w->link);
        fold_number_links(f, unfolded ? NULL : w->link, w->arena);
    }
    f->rank_of = arena_array(w->arena, f->n_classes, sizeof *f->rank_of);
    f->size = arena_array(w->arena, f->n_classes, sizeof *f->size);
    for (Rank r = f->n_ranks; r-- > 0;) {
        f->rank_of[f->class_of[r]] = r;
        f->size[f->class_of[r]]++;
    }
    f->node_of = arena_array(w->arena, f->n_classes, sizeof *f->node_of);
    f->nic_of = arena_array(w->arena, f->n_classes, sizeof *f->nic_of);
    f->on_node = arena_array(w->arena, f->n_classes, sizeof *f->on_node);
    f->on_nic = arena_array(w->arena, f->n_classes, sizeof *f->on_nic);
    f->pod_of = arena_array(w->arena, f->n_classes, sizeof *f->pod_of);
    f->on_pod = arena_array(w->arena, f->n_classes, sizeof *f->on_pod);
}

Fold *fold_ranks_on(const Plan *plan, FoldNodes nodes, bool unfolded, Arena *arena)
{
    assert(plan->mesh.n_ranks > 0);
    assert(plan->programs.n > 0);
    Arena *scratch = arena_new();
    Fold *f = arena_alloc(arena, sizeof *f);
    f->n_ranks = plan->mesh.n_ranks;
    f->devices_per_node = nodes.devices_per_node;
    f->nics_per_node = nodes.nics_per_node;
    f->nodes_per_pod = nodes.nodes_per_pod;
    f->mesh = &plan->mesh;
    f->routes = nodes.routes != NULL && nodes.routes->n_links > 0 ? nodes.routes : NULL;
    f->class_of = arena_array(arena, f->n_ranks, sizeof *f->class_of);
    Folder w = {.plan = plan, .fold = f, .arena = arena, .scratch = scratch, .apart = nodes.apart};
    w.needs = arena_array(scratch, plan->programs.n, sizeof *w.needs);
    w.messages = arena_array(scratch, plan->programs.n, sizeof *w.messages);
    w.colour = arena_array(scratch, f->n_ranks, sizeof *w.colour);
    w.next = arena_array(scratch, f->n_ranks, sizeof *w.next);
    w.sum = arena_array(scratch, f->n_ranks, sizeof *w.sum);
    w.mixed = arena_array(scratch, f->n_ranks, sizeof *w.mixed);
    w.here = arena_array(scratch, f->n_ranks, sizeof *w.here);
    w.members = arena_array(scratch, f->n_ranks, sizeof *w.members);
    collect_needs(&w);
    find_firsts(&w, unfolded || nodes.every_rank || nodes.apart != NULL || f->routes != NULL);
    find_along(&w);
    find_peers(&w);
    find_groups(&w);
    find_edges(&w);
    settle_classes(&w, unfolded);
    uint32_t node = f->devices_per_node == 0 ? f->n_ranks : f->devices_per_node;
    uint32_t pod = f->nodes_per_pod == 0 ? f->n_ranks : f->nodes_per_pod * node;
    f->n_node_classes = number_nodes(&w, key_node, node, f->node_of, f->on_node);
    f->n_nic_classes = number_nodes(&w, key_nic, node, f->nic_of, f->on_nic);
    f->n_pod_classes = number_nodes(&w, key_pod, pod, f->pod_of, f->on_pod);
    make_groups(&w);
    arena_free(scratch);
    return f;
}

Fold *fold_ranks(const Plan *plan, uint32_t devices_per_node, uint32_t nics_per_node, bool unfolded,
                 Arena *arena)
{
    FoldNodes nodes = {.devices_per_node = devices_per_node, .nics_per_node = nics_per_node};
    return fold_ranks_on(plan, nodes, unfolded, arena);
}
