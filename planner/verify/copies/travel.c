/* Finds out how far values travel in the shorter plan. An instruction that computes a graph node
 * ends a journey: the proofs compare its inputs with those of the node, and its outputs are those
 * of the node. Every other instruction, such as a copy or a communication, carries values on. This
 * file runs the program with versions of bytes. Each write makes a version, which remembers the
 * versions from which it was made. */
#include "planner/verify/copies/copies.h"
#include "planner/verify/kinds.h"

/* A version: the value that one write put into a range of bytes, or that was there when the step
 * began. */
typedef struct ValueVersion {
    uint32_t block; /* the block that wrote it; 0: none */
    uint32_t like;  /* its counterpart: the version that the same instruction writes in the middle
                       block; outside the equal blocks: this version */
    Span from;      /* a range of Journey.from: the versions from which it was made */
    /* The first and the last block that the value has passed; 0: none. It has passed the block that
     * wrote it. The value of a tensor of the graph has also passed the tensor's block. Any other
     * value has also passed the blocks of the versions from which it was made. */
    uint32_t low, high;
    bool is_known; /* an instruction has compared it with a tensor of the graph */
    bool is_moved; /* it is the same value as the one version from which it was made */
} ValueVersion;

/* Bytes [lo, hi) of a root hold the version. */
typedef struct HeldVersion {
    uint64_t lo, hi;
    uint32_t version;
} HeldVersion;
typedef LIST(HeldVersion) HeldVersions;

typedef struct VersionRead {
    uint32_t version, block; /* the block that reads it */
} VersionRead;

typedef struct Journey {
    const Graph *g;
    const Program *p;
    Arena *arena;
    const FewBlocks *few;
    uint32_t *version;  /* [pc]: the version that it writes to its first output */
    HeldVersions *held; /* [root] */
    LIST(ValueVersion) versions;
    LIST(uint32_t) from;
    LIST(VersionRead) reads;
} Journey;

/* Adds blocks [low, high] to the blocks that the version has passed. */
static void widen(ValueVersion *v, uint32_t low, uint32_t high)
{
    if (!low) return;
    if (!v->low || low < v->low) v->low = low;
    if (high > v->high) v->high = high;
}

/* ---- bytes ---- */

/* Finds the root of a buffer, which is the buffer that contains it or the buffer itself, and its
 * bytes in the root. */
static BufferId bytes_of(const Program *p, BufferId b, uint64_t *lo, uint64_t *hi)
{
    uint64_t at;
    const BufferId root = program_root(p, b, &at);
    *lo = at - p->buffers.at[root].offset;
    *hi = *lo + p->buffers.at[b].bytes;
    return root;
}

/* Gives a version to the bytes that were there when the step began. */
static void begin(Journey *j, BufferId root)
{
    if (j->held[root].n) return;
    const uint32_t block = j->few->block[OF_buffers][root];
    const ValueVersion at_first = {
        .block = block, .like = j->versions.n, .low = block, .high = block, .is_known = true};
    const HeldVersion all = {0, UINT64_MAX, (uint32_t)list_push(j->arena, &j->versions, at_first)};
    list_push(j->arena, &j->held[root], all);
}

/* Gives the version to the bytes of buffer b. */
static void put(Journey *j, BufferId b, uint32_t version)
{
    uint64_t lo, hi;
    const BufferId root = bytes_of(j->p, b, &lo, &hi);
    begin(j, root);
    const HeldVersions old = j->held[root];
    HeldVersions now = {0};
    list_reserve(j->arena, &now, old.n + 2);
    for (uint32_t i = 0; i < old.n; i++) {
        const HeldVersion *at = &old.at[i];
        if (at->hi <= lo || at->lo >= hi) {
            list_push(j->arena, &now, *at);
            continue;
        }
        const HeldVersion left = {at->lo, lo, at->version}, right = {hi, at->hi, at->version};
        if (at->lo < lo) list_push(j->arena, &now, left);
        if (at->hi > hi) list_push(j->arena, &now, right);
    }
    const HeldVersion own = {lo, hi, version};
    list_push(j->arena, &now, own);
    j->held[root] = now;
}

/* ---- instructions ---- */

/* Returns the version that has exactly the bytes of the buffer; 0: there is none. */
static uint32_t version_in(const Journey *j, BufferId b)
{
    uint64_t lo, hi;
    const BufferId root = bytes_of(j->p, b, &lo, &hi);
    for (uint32_t i = 0; i < j->held[root].n; i++)
        if (j->held[root].at[i].lo == lo && j->held[root].at[i].hi == hi)
            return j->held[root].at[i].version;
    return 0;
}

/* Notes that the proofs compare the version in buffer b with a tensor of block `of_tensor`. */
static void know(Journey *j, BufferId b, uint32_t of_tensor)
{
    ValueVersion *v = &j->versions.at[version_in(j, b)];
    if (v->is_known) return;
    v->is_known = true;
    widen(v, of_tensor, of_tensor);
}

/* Adds the versions of the buffer to `from`. */
static void take(Journey *j, BufferId b)
{
    uint64_t lo, hi;
    const BufferId root = bytes_of(j->p, b, &lo, &hi);
    begin(j, root);
    for (uint32_t i = 0; i < j->held[root].n; i++)
        if (j->held[root].at[i].lo < hi && j->held[root].at[i].hi > lo)
            list_push(j->arena, &j->from, j->held[root].at[i].version);
}

/* Makes the version of output i. inputs: the versions of the inputs that it was made from. */
static void write_output(Journey *j, Pc pc, uint32_t i, Span inputs, const Node *n)
{
    const Instr *in = &j->p->code.at[pc];
    const BufferId b = program_arg(j->p, in, in->n_in + i), root = program_root(j->p, b, NULL);
    const uint32_t of_code = j->few->block[OF_code][pc], begins = j->from.n;
    const uint32_t block = of_code ? of_code : j->few->block[OF_buffers][root];
    ValueVersion v = {.block = block, .like = j->versions.n, .low = block, .high = block};
    const bool adds = graph_attrs_at(j->g, in->attrs)->accumulate >> i & 1;
    v.is_moved = verify_is_moved(in->op) && in->op != OP_all_to_all && in->n_in == 1 && !adds &&
                 version_in(j, program_arg(j->p, in, 0)) != 0;
    if (n != NULL && i < n->n_out) {
        const uint32_t of_tensor = j->few->block[OF_tensors][n->out[i]];
        widen(&v, of_tensor, of_tensor);
    }
    for (uint32_t k = 0; k < inputs.n; k++)
        list_push(j->arena, &j->from, j->from.at[inputs.first + k]);
    if (adds) take(j, b);
    v.from = (Span){begins, j->from.n - begins};
    const uint32_t version = (uint32_t)list_push(j->arena, &j->versions, v);
    if (i == 0) j->version[pc] = version;
    put(j, b, version);
}

/* Notes the versions that instruction pc reads, and makes the versions that it writes. */
static void follow(Journey *j, Pc pc)
{
    const Instr *in = &j->p->code.at[pc];
    const Node *n = &j->g->nodes.at[in->origin];
    if (!in->origin || !verify_is_whole_node(in, n)) n = NULL;
    Span inputs = {j->from.n, 0};
    for (uint32_t i = 0; i < in->n_in; i++) take(j, program_arg(j->p, in, i));
    inputs.n = j->from.n - inputs.first;
    for (uint32_t k = 0; k < inputs.n; k++) {
        const VersionRead read = {j->from.at[inputs.first + k], j->few->block[OF_code][pc]};
        list_push(j->arena, &j->reads, read);
    }
    for (uint32_t i = 0; n != NULL && i < in->n_in; i++)
        know(j, program_arg(j->p, in, i), j->few->block[OF_tensors][n->in[i]]);
    if (n != NULL) inputs.n = 0;
    for (uint32_t i = in->n_in; i < in->args.n; i++)
        begin(j, program_root(j->p, program_arg(j->p, in, i), NULL));
    for (uint32_t i = 0; in->n_in + i < in->args.n; i++) write_output(j, pc, i, inputs, n);
}

static uint32_t version_of(const Journey *j, Pc pc, uint32_t arg)
{
    return j->version[pc] + arg - j->p->code.at[pc].n_in;
}

/* Gives the version the properties of its counterpart in the middle block. Its blocks move by the
 * distance between the two. */
static void learn(const Journey *j, ValueVersion *v)
{
    const ValueVersion *like = &j->versions.at[v->like];
    if (like == v) return;
    v->is_known = like->is_known;
    v->low = like->low + v->block - like->block;
    v->high = like->high + v->block - like->block;
}

/* If a moved value is known, so is the value before the move. What is known of a value thus depends
 * on its readers. All readers of values of the middle block are in equal blocks, but at both ends
 * of the equal blocks, readers may be outside. So the versions of the other equal blocks take over
 * what is known of their counterparts in the middle block. */
static void know_sources(Journey *j)
{
    const FewBlocks *few = j->few;
    for (bool again = true; again;) {
        again = false;
        for (uint32_t i = j->versions.n; i-- > 1;) {
            ValueVersion *v = &j->versions.at[i];
            learn(j, v);
            if (!v->is_moved || !v->is_known) continue;
            const uint32_t source = j->from.at[v->from.first];
            ValueVersion *from = &j->versions.at[source];
            const bool is_equal = from->block >= few->first && from->block <= few->last;
            const bool reads_equal = v->block >= few->first && v->block <= few->last;
            if (from->is_known || from->like != source || (is_equal && !reads_equal)) continue;
            from->is_known = again = true;
            widen(from, v->low, v->high);
        }
    }
}

/* Completes `low` and `high`. If no block writes a version, its `low` and `high` stay unchanged,
 * because the shorter plan has this version, too. (Sums over all blocks, such as the norm, are
 * proven on the whole plan.) */
static void measure(Journey *j)
{
    for (uint32_t i = 1; i < j->versions.n; i++) {
        ValueVersion *v = &j->versions.at[i];
        learn(j, v);
        for (uint32_t k = 0; v->block && !v->is_known && k < v->from.n; k++) {
            const ValueVersion *from = &j->versions.at[j->from.at[v->from.first + k]];
            widen(v, from->low, from->high);
        }
    }
}

bool copies_travel(const FewBlocks *few, Arena *arena)
{
    Journey j = {.g = &few->plan->graph, .p = &few->plan->programs.at[0], .arena = arena};
    j.few = few;
    list_reserve_none(arena, &j.versions);
    j.versions.at[0].is_known = true;
    j.held = arena_array(arena, j.p->buffers.n, sizeof *j.held);
    j.version = arena_array(arena, j.p->code.n, sizeof *j.version);
    for (Pc pc = 1; pc < j.p->code.n; pc++) follow(&j, pc);
    for (Pc pc = 1; pc < j.p->code.n; pc++)
        for (uint32_t i = j.p->code.at[pc].n_in; i < j.p->code.at[pc].args.n; i++)
            j.versions.at[version_of(&j, pc, i)].like = version_of(&j, few->middle[pc], i);
    know_sources(&j);
    measure(&j);
    for (uint32_t i = 0; i < j.reads.n; i++) {
        const VersionRead *r = &j.reads.at[i];
        const ValueVersion *v = &j.versions.at[r->version];
        const bool is_near =
            v->low == 0 || (v->low + few->reach >= r->block && v->high <= r->block + few->reach);
        if (r->block >= few->first && r->block <= few->last && !is_near) return true;
    }
    return false;
}
