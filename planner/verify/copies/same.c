/* Finds the counterparts of tensors, units and buffers, and compares each block with the next. The
 * counterpart of an item is the same item in the next block. Two items are compared byte by byte,
 * so a new field cannot be forgotten. Only the fields that set_masks() lists are left out. Some of
 * them name other items, which must be counterparts of each other. */
#include <string.h>

#include "planner/ir/init.h"
#include "planner/verify/copies/copies.h"

/* ---- counterparts ---- */

/* Notes that y is in the next block at the position that x has in its block. If x and y are the
 * same item, several blocks use it. */
static void pair(Items *of, uint32_t x, uint32_t y)
{
    if (!x || !y) return;
    if (x == y) {
        of->fixed[x] = true;
    } else if (!of->up[x] && !of->down[y]) {
        of->up[x] = y;
        of->down[y] = x;
    }
}

static void pair_nodes(BlockCopies *b)
{
    const Items *of = &b->of[OF_nodes];
    Items *tensors = &b->of[OF_tensors];
    for (NodeId id = 1; id < of->n; id++) {
        if (!of->up[id]) continue;
        const Node *x = &b->g->nodes.at[id], *y = &b->g->nodes.at[of->up[id]];
        for (uint32_t i = 0; i < x->n_in && i < y->n_in; i++) pair(tensors, x->in[i], y->in[i]);
        for (uint32_t j = 0; j < x->n_out && j < y->n_out; j++) pair(tensors, x->out[j], y->out[j]);
    }
    for (TensorId t = 1; t < tensors->n; t++)
        if (tensors->up[t])
            pair(&b->of[OF_units], b->g->tensors.at[t].unit, b->g->tensors.at[tensors->up[t]].unit);
}

static void pair_code(BlockCopies *b)
{
    const Items *of = &b->of[OF_code];
    Items *buffers = &b->of[OF_buffers];
    const Buffer *all = b->p->buffers.at;
    for (Pc pc = 1; pc < of->n; pc++) {
        if (!of->up[pc]) continue;
        const Instr *x = &b->p->code.at[pc], *y = &b->p->code.at[of->up[pc]];
        for (uint32_t i = 0; i < x->args.n && i < y->args.n; i++) {
            const BufferId s = program_arg(b->p, x, i), t = program_arg(b->p, y, i);
            if (buffers->up[s] == t) continue;
            pair(buffers, s, t);
            pair(buffers, all[s].parent, all[t].parent);
        }
    }
}

/* ---- owners ---- */

enum { UNKNOWN = -1 }; /* the block of an item whose owner is not known yet */

/* Items that all blocks use belong to no block. */
static void forget_owners(Items *of)
{
    memset(of->block, 0xff, of->n * sizeof *of->block);
    for (uint32_t i = 0; i < of->n; i++)
        if (of->fixed[i]) of->block[i] = 0;
}

/* Gives the item to the block, unless it already has an owner. */
static inline void own(Items *of, uint32_t item, uint32_t block)
{
    if (of->block[item] == (uint32_t)UNKNOWN) of->block[item] = block;
}

static void end_owners(Items *of)
{
    for (uint32_t i = 0; i < of->n; i++) own(of, i, 0);
}

/* A tensor belongs to the block of the first node that uses it. A unit belongs to the block of its
 * first parameter. */
static void own_tensors(BlockCopies *b)
{
    Items *tensors = &b->of[OF_tensors], *units = &b->of[OF_units];
    forget_owners(tensors);
    forget_owners(units);
    for (NodeId id = 1; id < b->g->nodes.n; id++) {
        const Node *n = &b->g->nodes.at[id];
        const uint32_t block = b->of[OF_nodes].block[id];
        for (uint32_t i = 0; i < n->n_in; i++) own(tensors, n->in[i], block);
        for (uint32_t j = 0; j < n->n_out; j++) own(tensors, n->out[j], block);
    }
    end_owners(tensors);
    for (UnitId u = 1; u < b->g->units.n; u++)
        if (b->g->units.at[u].params.n)
            own(units, u, tensors->block[b->g->units.at[u].params.at[0]]);
    end_owners(units);
}

/* A buffer belongs to the block of its unit or of its tensor. Otherwise it belongs to the block of
 * the first instruction that uses it or a part of it. */
static void own_buffers(BlockCopies *b)
{
    Items *buffers = &b->of[OF_buffers];
    forget_owners(buffers);
    for (BufferId at = 1; at < b->p->buffers.n; at++) {
        const Buffer *is = &b->p->buffers.at[at];
        const uint32_t of_unit = is->unit ? b->of[OF_units].block[is->unit] : 0,
                       of_tensor = b->of[OF_tensors].block[is->tensor];
        if (of_unit || of_tensor) own(buffers, at, of_unit ? of_unit : of_tensor);
    }
    for (Pc pc = 1; pc < b->p->code.n; pc++) {
        const Instr *in = &b->p->code.at[pc];
        const BufferId *arg = b->p->args.at + in->args.first;
        for (uint32_t i = 0; i < in->args.n; i++)
            if (buffers->block[arg[i]] == (uint32_t)UNKNOWN) {
                own(buffers, arg[i], b->of[OF_code].block[pc]);
                own(buffers, b->p->buffers.at[arg[i]].parent, b->of[OF_code].block[pc]);
            }
    }
    end_owners(buffers);
    buffers->block[0] = 0;
}

/* ---- comparison ---- */

/* Masks of records: 0xff for bytes that are compared, 0 for bytes of names, references and
 * offsets. */
typedef struct Masks {
    Tensor tensor;
    Node node;
    Unit unit;
    Instr instr;
    Buffer buffer;
} Masks;

#define LEAVE_OUT(record, field) memset(&(record).field, 0, sizeof(record).field)

/* Sets the masks. No proof reads the module, the layer and the region of a node. Waits, launch
 * groups, kernels and offsets in the arena are proven on the whole plan. */
static void set_masks(Masks *m)
{
    memset(m, 0xff, sizeof *m);
    LEAVE_OUT(m->tensor, name);
    LEAVE_OUT(m->tensor, init_stream); /* a hash of the name */
    LEAVE_OUT(m->tensor, init);
    LEAVE_OUT(m->tensor, loc);
    LEAVE_OUT(m->tensor, module);
    LEAVE_OUT(m->tensor, producer);
    LEAVE_OUT(m->tensor, grad);
    LEAVE_OUT(m->tensor, grad_of);
    LEAVE_OUT(m->tensor, unit);
    LEAVE_OUT(m->node, in);
    LEAVE_OUT(m->node, out);
    LEAVE_OUT(m->node, module);
    LEAVE_OUT(m->node, layer);
    LEAVE_OUT(m->node, region);
    LEAVE_OUT(m->node, forward);
    LEAVE_OUT(m->node, loc);
    LEAVE_OUT(m->unit, name);
    LEAVE_OUT(m->unit, params);
    LEAVE_OUT(m->instr, match);
    LEAVE_OUT(m->instr, launch);
    LEAVE_OUT(m->instr, fuse);
    LEAVE_OUT(m->instr, args.first);
    LEAVE_OUT(m->instr, after);
    LEAVE_OUT(m->instr, origin);
    LEAVE_OUT(m->instr, unit);
    LEAVE_OUT(m->buffer, offset);
    LEAVE_OUT(m->buffer, parent);
    LEAVE_OUT(m->buffer, first);
    LEAVE_OUT(m->buffer, last);
    LEAVE_OUT(m->buffer, tensor);
    LEAVE_OUT(m->buffer, unit);
}

/* Compares two records of `size` bytes, which is a multiple of 4. */
static inline bool same_bytes(const void *x, const void *y, const void *mask, size_t size)
{
    uint64_t differs = 0;
    size_t at = 0;
    for (; at + sizeof(uint64_t) <= size; at += sizeof(uint64_t)) {
        uint64_t a, b, m;
        memcpy(&a, (const char *)x + at, sizeof a);
        memcpy(&b, (const char *)y + at, sizeof b);
        memcpy(&m, (const char *)mask + at, sizeof m);
        differs |= (a ^ b) & m;
    }
    if (at < size) {
        uint32_t a, b, m;
        memcpy(&a, (const char *)x + at, sizeof a);
        memcpy(&b, (const char *)y + at, sizeof b);
        memcpy(&m, (const char *)mask + at, sizeof m);
        differs |= (a ^ b) & m;
    }
    return differs == 0;
}
#define SAME_BYTES(x, y, mask) same_bytes(x, y, &(mask), sizeof *(x))

typedef struct BlockComparison {
    BlockCopies *b;
    Masks masks;
    /* The block that is compared with the next. `reach` is the distance to the farthest block to
     * which its references so far go. */
    uint32_t block, reach;
} BlockComparison;

/* True if a reference of the block to item x corresponds to a reference of the next block to item
 * y. */
static inline bool refers(BlockComparison *c, const Items *of, uint32_t x, uint32_t y)
{
    const uint32_t to = of->block[x];
    if (!to) return x == y;
    const uint32_t far = to > c->block ? to - c->block : c->block - to;
    if (far > c->reach) c->reach = far;
    return of->up[x] == y && of->block[y] == to + 1;
}

static bool same_tensor(BlockComparison *c, const Tensor *x, const Tensor *y)
{
    const Items *of = c->b->of;
    return SAME_BYTES(x, y, c->masks.tensor) && init_equal(&x->init, &y->init) &&
           refers(c, &of[OF_nodes], x->producer, y->producer) &&
           refers(c, &of[OF_tensors], x->grad, y->grad) &&
           refers(c, &of[OF_tensors], x->grad_of, y->grad_of) &&
           refers(c, &of[OF_units], x->unit, y->unit);
}

static bool same_node(BlockComparison *c, const Node *x, const Node *y)
{
    const Items *of = c->b->of;
    bool same = SAME_BYTES(x, y, c->masks.node) && !x->layer == !y->layer &&
                !x->region == !y->region && refers(c, &of[OF_nodes], x->forward, y->forward);
    for (uint32_t i = 0; same && i < MAX_IN; i++)
        same = refers(c, &of[OF_tensors], x->in[i], y->in[i]);
    for (uint32_t j = 0; same && j < MAX_OUT; j++)
        same = refers(c, &of[OF_tensors], x->out[j], y->out[j]);
    return same;
}

static bool same_unit(BlockComparison *c, const Unit *x, const Unit *y)
{
    bool same = SAME_BYTES(x, y, c->masks.unit) && x->params.n == y->params.n;
    for (uint32_t i = 0; same && i < x->params.n; i++)
        same = refers(c, &c->b->of[OF_tensors], x->params.at[i], y->params.at[i]);
    return same;
}

static bool same_instr(BlockComparison *c, const Instr *x, const Instr *y)
{
    const Items *of = c->b->of;
    const BufferId *own = c->b->p->args.at + x->args.first,
                   *next = c->b->p->args.at + y->args.first;
    bool same = SAME_BYTES(x, y, c->masks.instr) && !x->match == !y->match &&
                refers(c, &of[OF_nodes], x->origin, y->origin) &&
                refers(c, &of[OF_units], x->unit, y->unit);
    for (uint32_t i = 0; same && i < x->args.n; i++)
        same = refers(c, &of[OF_buffers], own[i], next[i]);
    return same;
}

static bool same_buffer(BlockComparison *c, const Buffer *x, const Buffer *y)
{
    const Items *of = c->b->of;
    return SAME_BYTES(x, y, c->masks.buffer) && (!x->parent || x->offset == y->offset) &&
           refers(c, &of[OF_buffers], x->parent, y->parent) &&
           refers(c, &of[OF_code], x->first, y->first) &&
           refers(c, &of[OF_code], x->last, y->last) &&
           refers(c, &of[OF_tensors], x->tensor, y->tensor) &&
           refers(c, &of[OF_units], x->unit, y->unit);
}

static bool same_item(BlockComparison *c, ItemKind kind, uint32_t x, uint32_t y)
{
    const Graph *g = c->b->g;
    const Program *p = c->b->p;
    switch (kind) {
    case OF_nodes: return same_node(c, &g->nodes.at[x], &g->nodes.at[y]);
    case OF_tensors: return same_tensor(c, &g->tensors.at[x], &g->tensors.at[y]);
    case OF_units: return same_unit(c, &g->units.at[x], &g->units.at[y]);
    case OF_code: return same_instr(c, &p->code.at[x], &p->code.at[y]);
    case OF_buffers: return same_buffer(c, &p->buffers.at[x], &p->buffers.at[y]);
    case ITEM_KINDS: break;
    }
    return false;
}

/* Compares all items of one kind. Each item of a block must have a counterpart in the next block,
 * in the same order. The next block may have no other items. */
static void compare_items(BlockComparison *c, ItemKind kind)
{
    BlockCopies *b = c->b;
    const Items *of = &b->of[kind];
    uint32_t *n = arena_array(b->arena, b->n + 2, sizeof *n),
             *newest = arena_array(b->arena, b->n + 2, sizeof *newest);
    for (uint32_t x = 1; x < of->n; x++) {
        const uint32_t block = of->block[x], y = of->up[x];
        if (!block) continue;
        n[block]++;
        if (b->differs[block]) continue;
        c->block = block;
        c->reach = b->reach[block];
        const bool same = y > newest[block] && of->down[y] == x && of->block[y] == block + 1 &&
                          same_item(c, kind, x, y);
        newest[block] = y;
        b->reach[block] = c->reach;
        if (!same) b->differs[block] = true;
    }
    for (uint32_t block = 1; block <= b->n; block++)
        if (n[block] != n[block + 1]) b->differs[block] = true;
}

void copies_compare(BlockCopies *b)
{
    pair_nodes(b);
    pair_code(b);
    own_tensors(b);
    own_buffers(b);
    b->differs = arena_array(b->arena, b->n + 2, sizeof *b->differs);
    b->reach = arena_array(b->arena, b->n + 2, sizeof *b->reach);
    b->differs[b->n] = b->differs[b->n + 1] = true;
    BlockComparison c = {.b = b};
    set_masks(&c.masks);
    for (int kind = 0; kind < ITEM_KINDS; kind++) compare_items(&c, (ItemKind)kind);
}
