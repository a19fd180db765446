/* Values of buffers that are only accessed as a whole. Such a value is found by its buffer instead
 * of its bytes. This is right while no other buffer takes the bytes. verify_races finds every
 * access to a buffer that has lost bytes. If there is one, all proofs are repeated with bytes. */
#include "planner/verify/value/cache.h"

static BufferId root_of(const Verifier *v, BufferId b)
{
    const BufferId parent = v->p->buffers.at[b].parent;
    return parent ? parent : b;
}

void value_whole_start(Verifier *v)
{
    v->whole = NULL;
    v->has_views = NULL;
    v->cache = arena_array(v->arena, 1, sizeof *v->cache);
    if (v->twins)
        v->cache->plain = arena_array(v->arena, v->twins[v->program].n, sizeof *v->cache->plain);
    if (!v->by_root) return;
    v->cache->changes = arena_array(v->arena, v->p->buffers.n, sizeof *v->cache->changes);
    v->cache->read_of = arena_array(v->arena, v->p->buffers.n, sizeof *v->cache->read_of);
    list_reserve_none(v->arena, &v->cache->reads);
    v->whole = arena_array(v->arena, v->p->buffers.n, sizeof *v->whole);
    v->has_views = verify_has_views(v->p, v->arena);
}

const Val *value_whole(Verifier *v, BufferId b, uint32_t shape)
{
    const Buffer *at = &v->p->buffers.at[b];
    const uint32_t held = v->whole && at->bytes ? v->whole[root_of(v, b)] : 0;
    if (!held) return NULL;
    Val *x = &v->vals.at[held];
    x->used = true;
    const bool fits =
        !x->bad && x->dtype == at->dtype && x->shape == shape && (x->packed_dim != 0) == at->packed;
    return fits ? x : NULL;
}

void value_spread(Verifier *v, BufferId b)
{
    const BufferId root = root_of(v, b);
    if (!v->whole || !v->whole[root]) return;
    const uint64_t lo = verify_address(v->p, root);
    const HeldValue held = {lo, v->whole[root]};
    range_assign(&v->memory, lo, lo + v->p->buffers.at[root].bytes, &held);
}

bool value_write_whole(Verifier *v, BufferId b, uint64_t bytes, uint32_t val)
{
    const BufferId root = root_of(v, b);
    if (!v->whole) return false;
    v->cache->changes[root]++;
    if (v->has_views[root]) return false;
    if (bytes == v->p->buffers.at[root].bytes) {
        v->whole[root] = val;
        return true;
    }
    value_spread(v, root);
    v->has_views[root] = true;
    v->whole[root] = 0;
    return false;
}

/* ---- values of parts ---- */

/* A communication may read a value in another layout (is_part_of_stages), so it reads it anew. */
const Val *value_known(const Verifier *v, Pc pc, BufferId b)
{
    const struct ValueCache *c = v->cache;
    if (!v->whole || !c->read_of[b] || verify_is_comm(&v->p->code.at[pc])) return NULL;
    const KnownRead *known = &c->reads.at[c->read_of[b]];
    return known->changes == c->changes[root_of(v, b)] ? &known->val : NULL;
}

/* Lists are not remembered, because each reading of a list makes a list of its own, and the search
 * for redundant communications compares the indices of lists. */
void value_remember(Verifier *v, Pc pc, BufferId b, const Val *val)
{
    struct ValueCache *c = v->cache;
    if (!v->whole || val->bad || val->list || verify_is_comm(&v->p->code.at[pc])) return;
    const KnownRead known = {*val, c->changes[root_of(v, b)]};
    if (c->read_of[b])
        c->reads.at[c->read_of[b]] = known;
    else
        c->read_of[b] = (uint32_t)list_push(v->arena, &c->reads, known);
}
