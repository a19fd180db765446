/* Values of buffers that are only accessed as a whole. Such a value is found by its buffer instead
 * of its bytes. This is right while no other buffer takes the bytes. verify_races finds every
 * access to a buffer that has lost bytes. If there is one, all proofs are repeated with bytes. */
#include "planner/verify/private.h"

static BufferId root_of(const Verifier *v, BufferId b)
{
    const BufferId parent = v->p->buffers.at[b].parent;
    return parent ? parent : b;
}

void value_whole_start(Verifier *v)
{
    v->whole = NULL;
    v->has_views = NULL;
    if (!v->by_root) return;
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
    if (!v->whole || v->has_views[root]) return false;
    if (bytes == v->p->buffers.at[root].bytes) {
        v->whole[root] = val;
        return true;
    }
    value_spread(v, root);
    v->has_views[root] = true;
    v->whole[root] = 0;
    return false;
}
