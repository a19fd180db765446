/* Finds the blocks of a plan. The forward nodes of a model with equal layers repeat a sequence.
 * Backward nodes and instructions belong to the block of their forward node. */
#include "planner/verify/copies/copies.h"

enum {
    LEAST_BLOCKS = 6, /* the fewest blocks of a model */
    MOST_NODES = 2048 /* the most nodes of a block */
};

/* True if two nodes may be the same node of different blocks. */
static bool may_repeat(const Node *x, const Node *y)
{
    return x->op == y->op && x->attrs == y->attrs && x->n_in == y->n_in && x->n_out == y->n_out &&
           x->keep == y->keep;
}

/* Returns the smallest length for which the nodes around the middle of the forward pass are three
 * equal sequences of this length; 0: there is none. */
static uint32_t find_length(const Graph *g)
{
    const uint32_t middle = g->n_forward / 2;
    for (uint32_t length = 1; length <= middle / 2 && length <= MOST_NODES; length++) {
        uint32_t k = 0;
        while (k < 2 * length &&
               may_repeat(&g->nodes.at[middle - k], &g->nodes.at[middle - k + length]))
            k++;
        if (k == 2 * length) return length;
    }
    return 0;
}

static void put_forward(BlockCopies *b, uint32_t first, uint32_t length)
{
    Items *nodes = &b->of[OF_nodes];
    for (uint32_t i = 0; i < b->n * length; i++) {
        nodes->block[first + i] = 1 + i / length;
        if (i / length + 1 < b->n) nodes->up[first + i] = first + i + length;
        if (i >= length) nodes->down[first + i] = first + i - length;
    }
}

static bool find_forward(BlockCopies *b)
{
    const Graph *g = b->g;
    const uint32_t length = find_length(g);
    if (length == 0) return false;
    uint32_t first = g->n_forward / 2, last = first;
    while (first > 1 && may_repeat(&g->nodes.at[first - 1], &g->nodes.at[first - 1 + length]))
        first--;
    while (last + 1 + length <= g->n_forward &&
           may_repeat(&g->nodes.at[last + 1], &g->nodes.at[last + 1 + length]))
        last++;
    b->n = (last + length + 1 - first) / length;
    if (b->n < LEAST_BLOCKS) return false;
    put_forward(b, first, length);
    return true;
}

/* ---- runs ---- */

/* A position in the list of nodes or instructions at which another block begins. */
typedef struct Begin {
    uint32_t at, block, part; /* part: forward, backward or update, and the micro-batch */
} Begin;
typedef LIST(Begin) Begins;

/* Adds the position if another block or part begins there. A block begins directly after the last
 * item of the block before it: items between the two, such as gathers of weights, prepare the next
 * block. `end` is the position after that last item. */
static void add_begin(Arena *arena, Begins *all, Begin begin, uint32_t end)
{
    const Begin *newest = all->n ? &all->at[all->n - 1] : NULL;
    if (begin.block == 0) return;
    if (newest && newest->part == begin.part) {
        if (newest->block == begin.block) return;
        begin.at = end;
    }
    list_push(arena, all, begin);
}

/* Gives blocks to items [first, first + n * length). `by` is 1 if the blocks ascend, -1 if they
 * descend. */
static void put_run(Items *items, uint32_t first, uint32_t n, uint32_t length, uint32_t block,
                    int by)
{
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < length; i++) {
            const uint32_t at = first + k * length + i, before = k ? at - length : 0,
                           next = k + 1 < n ? at + length : 0;
            items->block[at] = by > 0 ? block + k : block - k;
            items->up[at] = by > 0 ? next : before;
            items->down[at] = by > 0 ? before : next;
        }
}

/* Finds the longest sequence of equal lengths in begins [first, last]. The length of the last block
 * is not known, so it counts as equal if there is room for it. */
static void put_equal_lengths(Items *items, const Begins *all, uint32_t first, uint32_t last,
                              int by)
{
    uint32_t best = 0, n_best = 0;
    for (uint32_t i = first, n = 0; i < last; i += n) {
        const uint32_t length = all->at[i + 1].at - all->at[i].at;
        for (n = 1; i + n < last && all->at[i + n + 1].at - all->at[i + n].at == length;) n++;
        if (n > n_best) best = i, n_best = n;
    }
    if (n_best < 2) return;
    const uint32_t length = all->at[best + 1].at - all->at[best].at, end = best + n_best;
    const uint32_t room = end + 1 < all->n ? all->at[end + 1].at : items->n;
    const uint32_t n = n_best + (all->at[end].at + length <= room);
    put_run(items, all->at[best].at, n, length, all->at[best].block, by);
}

/* Finds the runs: blocks of equal length that follow each other in ascending or descending order.
 */
static void put_runs(Items *items, const Begins *all)
{
    for (uint32_t i = 0; i + 1 < all->n;) {
        const int by = all->at[i + 1].block > all->at[i].block ? 1 : -1;
        uint32_t last = i;
        while (last + 1 < all->n && all->at[last + 1].part == all->at[last].part &&
               all->at[last + 1].block == all->at[last].block + (uint32_t)by)
            last++;
        if (last >= i + 2) put_equal_lengths(items, all, i, last, by);
        i = last > i ? last : i + 1;
    }
}

static void find_backward(BlockCopies *b)
{
    Begins begins = {0};
    const Items *nodes = &b->of[OF_nodes];
    for (NodeId id = b->g->n_forward + 1; id < b->g->nodes.n; id++)
        add_begin(b->arena, &begins, (Begin){id, nodes->block[b->g->nodes.at[id].forward], 0}, id);
    put_runs(&b->of[OF_nodes], &begins);
}

/* A unit belongs to the block of the first node that reads its first parameter. */
static void find_units(BlockCopies *b)
{
    const Graph *g = b->g;
    uint32_t *reader = arena_array(b->arena, g->tensors.n, sizeof *reader);
    for (NodeId id = 1; id <= g->n_forward; id++)
        for (uint32_t i = 0; i < g->nodes.at[id].n_in; i++)
            if (!reader[g->nodes.at[id].in[i]]) reader[g->nodes.at[id].in[i]] = id;
    for (UnitId u = 1; u < g->units.n; u++)
        if (g->units.at[u].params.n)
            b->of[OF_units].block[u] = b->of[OF_nodes].block[reader[g->units.at[u].params.at[0]]];
}

static void find_code(BlockCopies *b)
{
    Begins begins = {0};
    uint32_t end = 0; /* the position after the last instruction of the newest block */
    for (Pc pc = 1; pc < b->p->code.n; pc++) {
        const Instr *in = &b->p->code.at[pc];
        const bool of_unit = in->phase == PHASE_start || in->phase == PHASE_update;
        const uint32_t block = of_unit ? b->of[OF_units].block[in->unit]
                                       : b->of[OF_nodes].block[in->origin],
                       part = of_unit                      ? in->phase
                              : in->phase == PHASE_forward ? 0
                                                           : PHASE_COUNT;
        const Begin begin = {pc, block, in->microbatch * (PHASE_COUNT + 1) + part};
        if (in->stream == STREAM_compute) add_begin(b->arena, &begins, begin, end);
        if (begins.n && block == begins.at[begins.n - 1].block) end = pc + 1;
    }
    put_runs(&b->of[OF_code], &begins);
}

bool copies_find(BlockCopies *b)
{
    if (!find_forward(b)) return false;
    find_backward(b);
    find_units(b);
    find_code(b);
    return true;
}
