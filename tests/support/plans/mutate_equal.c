/* Proves from the programs alone that a mutant is equivalent to its plan. Shares no code with the
 * verifier. The order: for each instruction, a set of bits holds all instructions that have
 * finished when it starts. The values: each byte range has a history, which is a hash of the
 * instruction that wrote it and of the histories of everything that this instruction read. The
 * match of a transfer stands for values that come from another program; values sent to another
 * program are compared. All ranks of a program do the same, so equal histories mean equal bytes on
 * each of them. */
#include <assert.h>
#include <string.h>

#include "tests/support/plans/mutate.h"

typedef struct Reach {
    uint32_t words;
    uint64_t *done; /* [pc * words] */
} Reach;

static bool is_before(const Reach *r, Pc a, Pc b)
{
    return r->done[(size_t)b * r->words + a / 64] >> (a % 64) & 1;
}

static void add_done(Reach *r, Pc pc, Pc before)
{
    uint64_t *to = r->done + (size_t)pc * r->words, *from = r->done + (size_t)before * r->words;
    for (uint32_t w = 0; w < r->words; w++) to[w] |= from[w];
    to[before / 64] |= UINT64_C(1) << (before % 64);
}

static Reach find_order(const Program *p, Arena *arena)
{
    Reach r = {.words = p->code.n / 64 + 1};
    r.done = arena_array(arena, (size_t)p->code.n * r.words, sizeof *r.done);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        for (uint32_t k = 0; k < in->after.n; k++)
            add_done(&r, pc, p->after.at[in->after.first + k]);
        uint32_t group = 0; /* the launch number of the nearest predecessor outside this launch */
        for (Pc k = pc - 1; k > 0; k--) {
            const Instr *other = &p->code.at[k];
            if (other->stream != in->stream || (in->launch && other->launch == in->launch))
                continue;
            if (group && other->launch != group) break;
            add_done(&r, pc, k);
            if (!other->launch) break;
            group = other->launch;
        }
    }
    return r;
}

/* Host memory gets addresses above all of device memory. */
static uint64_t address(const Program *p, BufferId b)
{
    uint64_t offset;
    BufferId root = program_root(p, b, &offset);
    return offset + (p->buffers.at[root].space == SPACE_host ? UINT64_C(1) << 62 : 0);
}

typedef struct Access {
    uint64_t lo, hi;
    bool writes;
} Access;

static uint32_t accesses(const Program *p, Pc pc, Access out[MAX_ARGS])
{
    const Instr *in = &p->code.at[pc];
    for (uint32_t i = 0; i < in->args.n; i++) {
        BufferId b = program_arg(p, in, i);
        out[i] = (Access){address(p, b), 0, i >= in->n_in};
        out[i].hi = out[i].lo + p->buffers.at[b].bytes;
    }
    return in->args.n;
}

static bool has_race(const Program *p, Arena *arena)
{
    Reach r = find_order(p, arena);
    for (Pc b = 2; b < p->code.n; b++) {
        Access x[MAX_ARGS], y[MAX_ARGS];
        uint32_t n = accesses(p, b, x);
        for (Pc a = 1; a < b; a++) {
            if (is_before(&r, a, b)) continue;
            uint32_t m = accesses(p, a, y);
            for (uint32_t i = 0; i < n; i++)
                for (uint32_t k = 0; k < m; k++)
                    if ((x[i].writes || y[k].writes) && x[i].lo < y[k].hi && y[k].lo < x[i].hi)
                        return true;
        }
    }
    return false;
}

/* ---- histories ---- */

typedef struct Range {
    uint64_t lo, hi, base; /* base: the address at which the write began */
    Hash128 history;
} Range;
typedef struct Bytes {
    LIST(Range) ranges; /* sorted by lo, without overlaps */
} Bytes;

static Hash128 read_bytes(const Bytes *m, uint64_t lo, uint64_t hi)
{
    Hash128 sum = {0, 0};
    for (uint32_t i = 0; i < m->ranges.n; i++) {
        const Range *at = &m->ranges.at[i];
        if (at->hi <= lo || at->lo >= hi) continue;
        uint64_t a = at->lo > lo ? at->lo : lo, b = at->hi < hi ? at->hi : hi;
        uint64_t word[] = {sum.hi,       sum.lo,       at->history.hi, at->history.lo,
                           a - at->base, b - at->base, a - lo};
        sum = hash_bytes(word, sizeof word);
    }
    return sum;
}

static void write_bytes(Bytes *m, Arena *arena, uint64_t lo, uint64_t hi, Hash128 history)
{
    LIST(Range) kept = {0};
    Range fresh = {lo, hi, lo, history};
    if (lo == hi) return;
    bool placed = false;
    for (uint32_t i = 0; i < m->ranges.n; i++) {
        Range at = m->ranges.at[i], left = at, right = at;
        if (left.hi > lo) left.hi = lo;
        if (right.lo < hi) right.lo = hi;
        if (left.lo < left.hi) list_push(arena, &kept, left);
        if (!placed && at.hi > lo) {
            list_push(arena, &kept, fresh);
            placed = true;
        }
        if (right.lo < right.hi) list_push(arena, &kept, right);
    }
    if (!placed) list_push(arena, &kept, fresh);
    m->ranges.at = kept.at;
    m->ranges.n = kept.n;
    m->ranges.room = kept.room;
}

/* Elements of a flat unit that belong to no parameter are zero. So it does not matter whether a sum
 * of squares includes them. */
static void counted_range(const Plan *plan, const Program *p, const Instr *in, Attrs *attrs)
{
    uint64_t offset;
    UnitId u = p->buffers.at[program_root(p, program_arg(p, in, 0), &offset)].unit;
    if (!u) return;
    const Unit *unit = &plan->graph.units.at[u];
    int64_t lo = INT64_MAX, hi = 0; /* the range of elements that belong to parameters */
    for (uint32_t i = 0; i < unit->params.n; i++) {
        const Tensor *t = &plan->graph.tensors.at[unit->params.at[i]];
        Shape s = {.n_dims = t->n_dims, .layout = t->use};
        for (int d = 0; d < t->n_dims; d++) s.dim[d] = t->dim[d], s.deal[d] = t->deal[d];
        int64_t from = (int64_t)t->flat_offset,
                to = from + shape_local_elements(&s, &plan->mesh, &plan->graph.deals);
        if (from < attrs->lo) from = attrs->lo;
        if (to > attrs->hi) to = attrs->hi;
        if (from >= to) continue;
        if (from < lo) lo = from;
        if (to > hi) hi = to;
    }
    attrs->lo = lo < hi ? lo : 0;
    attrs->hi = lo < hi ? hi : 0;
}

static Hash128 instruction_key(const Plan *plan, const Program *p, Pc pc)
{
    const Instr *in = &p->code.at[pc];
    bool source = op_info(in->op)->flags & OP_SOURCE;
    Attrs attrs = *graph_attrs_at(&plan->graph, in->attrs);
    if (in->op == OP_sumsq) counted_range(plan, p, in, &attrs);
    uint64_t word[4 + MAX_ARGS] = {(uint64_t)in->op << 32 | in->n_in,
                                   (uint64_t)in->axes << 32 | (source ? in->microbatch : 0),
                                   (uint64_t)in->hop, in->args.n};
    for (uint32_t i = 0; i < in->args.n; i++) {
        const Buffer *b = &p->buffers.at[program_arg(p, in, i)];
        word[4 + i] = (uint64_t)b->shape << 32 | (uint64_t)b->dtype << 8 | b->packed;
    }
    Hash128 both[2] = {hash_bytes(word, sizeof word), hash_bytes(&attrs, sizeof attrs)};
    return hash_bytes(both, sizeof both);
}

/* Returns true if members of the group run different programs. */
static bool crosses(const Plan *plan, AxisSet axes)
{
    for (Rank r = 0; axes && r < plan->mesh.n_ranks; r++)
        if (plan->program_of[r] != plan->program_of[mesh_group(&plan->mesh, r, axes)]) return true;
    return false;
}

typedef struct History {
    const Plan *plan;
    uint32_t program;
    Arena *arena;
    Bytes bytes;
    Hash128 *sent; /* [match]: the history of the values that this program sends to others */
} History;

static void start(History *h)
{
    const Program *p = &h->plan->programs.at[h->program];
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        uint64_t word[2] = {1, b};
        if (!at->parent && at->persistent)
            write_bytes(&h->bytes, h->arena, address(p, b), address(p, b) + at->bytes,
                        hash_bytes(word, sizeof word));
    }
}

/* Returns true for a mean that is computed in place. The mean of equal values is the value itself.
 * (The proofs reject the mean of anything else.) */
static bool pins_in_place(const Plan *plan, const Instr *in, const Access at[2])
{
    return in->op == OP_all_reduce && at[0].lo == at[1].lo &&
           graph_attrs_at(&plan->graph, in->attrs)->reduce == REDUCE_mean;
}

static void run(History *h)
{
    const Plan *plan = h->plan;
    const Program *p = &plan->programs.at[h->program];
    h->sent = arena_array(h->arena, (size_t)plan->n_match + 1, sizeof *h->sent);
    start(h);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        Access at[MAX_ARGS];
        uint32_t n = accesses(p, pc, at);
        if (pins_in_place(plan, in, at)) continue;
        Hash128 read[2 + MAX_ARGS] = {instruction_key(plan, p, pc)};
        for (uint32_t i = 0; i < n; i++) {
            bool adds = i >= in->n_in &&
                        (graph_attrs_at(&plan->graph, in->attrs)->accumulate >> (i - in->n_in) & 1);
            if (i < in->n_in || adds) read[1 + i] = read_bytes(&h->bytes, at[i].lo, at[i].hi);
        }
        if (crosses(plan, in->axes)) {
            h->sent[in->match] = hash_bytes(read, sizeof read);
            read[1 + n] = (Hash128){1, in->match};
        }
        for (uint32_t i = in->n_in; i < n; i++) {
            uint64_t word[3] = {hash_bytes(read, sizeof read).hi, hash_bytes(read, sizeof read).lo,
                                i};
            write_bytes(&h->bytes, h->arena, at[i].lo, at[i].hi, hash_bytes(word, sizeof word));
        }
    }
}

static bool matches_differ(const Program *p, Arena *arena, uint32_t n_match)
{
    bool *seen = arena_array(arena, (size_t)n_match + 1, sizeof *seen);
    for (Pc pc = 1; pc < p->code.n; pc++) {
        uint32_t match = p->code.at[pc].match;
        if (!match) continue;
        if (match > n_match || seen[match]) return false;
        seen[match] = true;
    }
    return true;
}

static bool same(Hash128 x, Hash128 y)
{
    return x.hi == y.hi && x.lo == y.lo;
}

bool mutate_proves_equal(const Plan *plan, const Plan *mutant, uint32_t program, Arena *scratch)
{
    const Program *p = &plan->programs.at[program], *q = &mutant->programs.at[program];
    if (!matches_differ(q, scratch, mutant->n_match)) return false;
    if (has_race(q, scratch)) return false;
    History a = {.plan = plan, .program = program, .arena = scratch},
            b = {.plan = mutant, .program = program, .arena = scratch};
    run(&a);
    run(&b);
    for (uint32_t match = 0; match < mutant->n_match; match++)
        if (!same(b.sent[match], match < plan->n_match ? a.sent[match] : (Hash128){0, 0}))
            return false;
    for (BufferId id = 1; id < p->buffers.n; id++) {
        const Buffer *at = &p->buffers.at[id];
        if (at->parent || !at->persistent) continue;
        uint64_t lo = address(p, id), hi = lo + at->bytes;
        if (!same(read_bytes(&a.bytes, lo, hi), read_bytes(&b.bytes, lo, hi))) return false;
    }
    return true;
}
