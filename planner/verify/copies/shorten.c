/* Makes the shorter plan of copies.h: of many equal blocks, blocks [first, end) are left out. Say
 * that a block refers to one of these, d blocks before or after it. In the shorter plan, the block
 * refers to the one that is then d blocks before or after it. */
#include <string.h>

#include "planner/verify/copies/copies.h"

enum { LEAST_SAVED = 3 }; /* blocks */

typedef struct Shorter {
    BlockCopies blocks;
    /* Blocks [first, end) are left out. No reference among the equal blocks goes farther than
     * `reach` blocks. */
    uint32_t first, end, reach;
    uint32_t *number[ITEM_KINDS]; /* [item]: its index in the shorter plan */
    uint32_t n[ITEM_KINDS];       /* the number of items in the shorter plan */
    bool failed;                  /* some reference has no meaning in the shorter plan */
    uint64_t bytes[2];            /* [space]: bytes of the arena that buffers have taken so far */
} Shorter;

/* Finds the sequence of equal blocks from which the most blocks can be left out. Of these equal
 * blocks, reach + 1 stay before the blocks that are left out, and `reach` stay after them. So the
 * middle one of those that stay has `reach` equal blocks on both sides. Each block that is left out
 * has them, too. */
static bool choose(Shorter *s)
{
    const BlockCopies *b = &s->blocks;
    uint32_t saved = 0;
    for (uint32_t first = 1, last; first <= b->n; first = last + 1) {
        uint32_t reach = 1;
        for (last = first; !b->differs[last]; last++)
            if (b->reach[last] > reach) reach = b->reach[last];
        /* blocks first to last are equal */
        const uint32_t n = last - first + 1, kept = 2 * reach + 1;
        /* with fewer, a reference could go from one side of the left-out blocks to the other, and
         * would become shorter */
        const uint32_t least = reach > LEAST_SAVED ? reach : LEAST_SAVED;
        if (n < kept + least || n - kept <= saved) continue;
        saved = n - kept;
        s->first = first + reach + 1;
        s->end = s->first + saved;
        s->reach = reach;
    }
    return saved > 0;
}

static bool stays(const Shorter *s, ItemKind kind, uint32_t x)
{
    const uint32_t block = s->blocks.of[kind].block[x];
    return block < s->first || block >= s->end;
}

static void number_items(Shorter *s, ItemKind kind)
{
    const uint32_t n = s->blocks.of[kind].n;
    uint32_t next = 0;
    s->number[kind] = arena_array(s->blocks.arena, n, sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++)
        if (stays(s, kind, i)) s->number[kind][i] = next++;
    s->n[kind] = next;
}

/* Allocates memory for all items of a list at once, because a list that grows is copied each time.
 */
#define RESERVE(s, list, wanted)                                                                   \
    ((list)->at = list_grow((s)->blocks.arena, NULL, 0, &(list)->room, wanted, sizeof *(list)->at))

/* An item of `block` refers to item x. Returns the index of x in the shorter plan. Fails if an item
 * outside all blocks refers to an equal block, or if any block refers to an equal block that is
 * more than `reach` blocks away. The middle one of the equal blocks that stay has `reach` equal
 * blocks on both sides. So nothing outside the equal blocks refers to it. */
static uint32_t moved(Shorter *s, ItemKind kind, uint32_t block, uint32_t x)
{
    const Items *of = &s->blocks.of[kind];
    const uint32_t to = of->block[x], far = to > block ? to - block : block - to;
    const bool before = block && block < s->first, behind = block >= s->end;
    if (!to) return s->number[kind][x];
    /* the equal blocks are those that are left out, reach + 1 before them and reach after them */
    const bool is_equal = to + s->reach + 1 >= s->first && to < s->end + s->reach;
    if (is_equal && (!block || far > s->reach)) s->failed = true;
    if ((before && to >= s->first + s->reach) || (behind && to + s->reach < s->end))
        s->failed = true;
    if (stays(s, kind, x)) return s->number[kind][x];
    for (uint32_t k = s->first; k < s->end && !s->failed; k++) x = before ? of->up[x] : of->down[x];
    return s->failed ? 0 : s->number[kind][x];
}

static void add_tensors(Shorter *s, Graph *to)
{
    const Graph *g = s->blocks.g;
    for (TensorId t = 0; t < g->tensors.n; t++) {
        if (!stays(s, OF_tensors, t)) continue;
        const uint32_t block = s->blocks.of[OF_tensors].block[t];
        Tensor at = g->tensors.at[t];
        at.producer = moved(s, OF_nodes, block, at.producer);
        at.grad = moved(s, OF_tensors, block, at.grad);
        at.grad_of = moved(s, OF_tensors, block, at.grad_of);
        at.unit = moved(s, OF_units, block, at.unit);
        list_push(s->blocks.arena, &to->tensors, at);
    }
}

static void add_nodes(Shorter *s, Graph *to)
{
    const Graph *g = s->blocks.g;
    for (NodeId id = 0; id < g->nodes.n; id++) {
        if (!stays(s, OF_nodes, id)) continue;
        const uint32_t block = s->blocks.of[OF_nodes].block[id];
        Node n = g->nodes.at[id];
        n.forward = moved(s, OF_nodes, block, n.forward);
        for (uint32_t i = 0; i < MAX_IN; i++) n.in[i] = moved(s, OF_tensors, block, n.in[i]);
        for (uint32_t j = 0; j < MAX_OUT; j++) n.out[j] = moved(s, OF_tensors, block, n.out[j]);
        list_push(s->blocks.arena, &to->nodes, n);
    }
}

static void add_units(Shorter *s, Graph *to)
{
    const Graph *g = s->blocks.g;
    for (UnitId u = 0; u < g->units.n; u++) {
        if (!stays(s, OF_units, u)) continue;
        const uint32_t block = s->blocks.of[OF_units].block[u];
        Unit unit = g->units.at[u];
        memset(&unit.params, 0, sizeof unit.params);
        RESERVE(s, &unit.params, g->units.at[u].params.n);
        for (uint32_t i = 0; i < g->units.at[u].params.n; i++)
            list_push(s->blocks.arena, &unit.params,
                      moved(s, OF_tensors, block, g->units.at[u].params.at[i]));
        list_push(s->blocks.arena, &to->units, unit);
    }
}

static void shorten_graph(Shorter *s, Graph *to)
{
    memset(&to->tensors, 0, sizeof to->tensors);
    memset(&to->nodes, 0, sizeof to->nodes);
    memset(&to->units, 0, sizeof to->units);
    RESERVE(s, &to->tensors, s->n[OF_tensors]);
    RESERVE(s, &to->nodes, s->n[OF_nodes]);
    RESERVE(s, &to->units, s->n[OF_units]);
    add_tensors(s, to);
    add_nodes(s, to);
    add_units(s, to);
    to->n_forward = moved(s, OF_nodes, 0, to->n_forward);
    to->loss = moved(s, OF_tensors, 0, to->loss);
    to->info.n_params = to->info.n_params_no_embedding = 0; /* not stated */
}

/* A root is a buffer that is no part of another buffer. Gives each root bytes of its own. */
static void add_buffers(Shorter *s, Program *to)
{
    enum { ALIGN = 256 };
    const Program *p = s->blocks.p;
    RESERVE(s, &to->buffers, s->n[OF_buffers]);
    for (BufferId b = 0; b < p->buffers.n; b++) {
        if (!stays(s, OF_buffers, b)) continue;
        const uint32_t block = s->blocks.of[OF_buffers].block[b];
        Buffer at = p->buffers.at[b];
        at.first = moved(s, OF_code, block, at.first);
        at.last = moved(s, OF_code, block, at.last);
        at.tensor = moved(s, OF_tensors, block, at.tensor);
        at.unit = moved(s, OF_units, block, at.unit);
        if (!at.parent && b > 0) {
            uint64_t *end = &s->bytes[at.space == SPACE_host];
            at.offset = (*end + ALIGN - 1) / ALIGN * ALIGN;
            *end = at.offset + at.bytes;
            if (*end > UINT64_C(1) << 61) s->failed = true;
        }
        at.parent = moved(s, OF_buffers, block, at.parent);
        list_push(s->blocks.arena, &to->buffers, at);
    }
    to->bytes = s->bytes[0];
    to->host_bytes = s->bytes[1];
}

static void add_code(Shorter *s, Program *to, uint32_t *n_match)
{
    const Program *p = s->blocks.p;
    uint32_t *match = arena_array(s->blocks.arena, s->blocks.plan->n_match + 1, sizeof *match);
    *n_match = 1;
    RESERVE(s, &to->code, s->n[OF_code]);
    RESERVE(s, &to->args, p->args.n);
    for (Pc pc = 0; pc < p->code.n; pc++) {
        if (!stays(s, OF_code, pc)) continue;
        const uint32_t block = s->blocks.of[OF_code].block[pc];
        Instr in = p->code.at[pc];
        const Span args = in.args;
        in.args.first = to->args.n;
        for (uint32_t i = 0; i < args.n; i++)
            list_push(s->blocks.arena, &to->args,
                      moved(s, OF_buffers, block, p->args.at[args.first + i]));
        in.after = (Span){0, 0};
        in.launch = in.fuse = 0;
        in.origin = moved(s, OF_nodes, block, in.origin);
        in.unit = moved(s, OF_units, block, in.unit);
        if (in.match && !match[in.match]) match[in.match] = (*n_match)++;
        in.match = match[in.match];
        list_push(s->blocks.arena, &to->code, in);
    }
}

/* True if the program sends messages between two ranks. The two ends of such a message are
 * different instructions with the same match number. copies_compare, which compares the blocks,
 * does not look at such pairs. */
static bool has_messages(const Program *p)
{
    for (Pc pc = 1; pc < p->code.n; pc++)
        if (p->code.at[pc].op == OP_send || p->code.at[pc].op == OP_recv) return true;
    return false;
}

static Items new_items(Arena *arena, uint32_t n)
{
    Items of = {.n = n};
    of.block = arena_array(arena, n, sizeof *of.block);
    of.up = arena_array(arena, n, sizeof *of.up);
    of.down = arena_array(arena, n, sizeof *of.down);
    of.fixed = arena_array(arena, n, sizeof *of.fixed);
    return of;
}

bool copies_of(BlockCopies *b, const Plan *plan, Arena *arena)
{
    if (plan->programs.n != 1 || plan->graph.n_forward == 0 || !copies_in_range(plan)) return false;
    const Program *p = &plan->programs.at[0];
    const Graph *g = &plan->graph;
    *b = (BlockCopies){.plan = plan, .g = g, .p = p, .arena = arena};
    const uint32_t n[ITEM_KINDS] = {[OF_nodes] = g->nodes.n,
                                    [OF_tensors] = g->tensors.n,
                                    [OF_units] = g->units.n,
                                    [OF_code] = p->code.n,
                                    [OF_buffers] = p->buffers.n};
    for (int kind = 0; kind < ITEM_KINDS; kind++) b->of[kind] = new_items(arena, n[kind]);
    if (has_messages(p) || !copies_find(b)) return false;
    copies_compare(b);
    copies_touch(b);
    return true;
}

/* Returns the block of each item of the shorter plan, in which blocks have consecutive numbers. */
static uint32_t *blocks_of_few(const Shorter *s, ItemKind kind)
{
    const Items *of = &s->blocks.of[kind];
    uint32_t *block = arena_array(s->blocks.arena, s->n[kind], sizeof *block);
    for (uint32_t i = 0; i < of->n; i++)
        if (stays(s, kind, i))
            block[s->number[kind][i]] =
                of->block[i] < s->end ? of->block[i] : of->block[i] - (s->end - s->first);
    return block;
}

/* Returns an array [pc] with the counterpart that each instruction has in the middle block. */
static Pc *middle_of_few(const Shorter *s)
{
    const Items *code = &s->blocks.of[OF_code];
    const uint32_t *number = s->number[OF_code];
    Pc *middle = arena_array(s->blocks.arena, s->n[OF_code], sizeof *middle);
    for (Pc pc = 0; pc < s->n[OF_code]; pc++) middle[pc] = pc;
    for (Pc pc = 1; pc < code->n; pc++) {
        if (code->block[pc] != s->first - 1) continue;
        Pc low = pc, high = pc;
        for (uint32_t k = 0; k < s->reach; k++) middle[number[low = code->down[low]]] = number[pc];
        for (uint32_t k = s->first; k < s->end; k++) high = code->up[high];
        for (uint32_t k = 0; k < s->reach; k++) middle[number[high = code->up[high]]] = number[pc];
    }
    return middle;
}

/* True if a value travels farther than `reach` among the equal blocks of the shorter plan. */
static bool travels(const Shorter *s, const Plan *plan)
{
    FewBlocks few = {.plan = plan,
                     .middle = middle_of_few(s),
                     .first = s->first - s->reach - 1,
                     .last = s->first + s->reach - 1,
                     .reach = s->reach};
    for (int kind = 0; kind < ITEM_KINDS; kind++)
        few.block[kind] = blocks_of_few(s, (ItemKind)kind);
    return copies_travel(&few, s->blocks.arena);
}

const Plan *copies_shorten(const Plan *plan, Arena *arena)
{
    Shorter s = {.failed = false};
    if (!copies_of(&s.blocks, plan, arena) || !choose(&s)) return NULL;
    for (int kind = 0; kind < ITEM_KINDS; kind++) number_items(&s, (ItemKind)kind);
    Plan *few = arena_alloc(arena, sizeof *few);
    Program *to = arena_array(arena, 1, sizeof *to);
    *few = *plan;
    *to = (Program){.purpose = s.blocks.p->purpose, .stage = s.blocks.p->stage};
    few->programs.at = to;
    few->programs.n = few->programs.room = 1;
    shorten_graph(&s, &few->graph);
    add_buffers(&s, to);
    add_code(&s, to, &few->n_match);
    return s.failed || travels(&s, few) ? NULL : few;
}
