/* A network on which one kind of communication takes no time. It shows how much shorter the step
 * could be if this communication were completely hidden. */
#include "sim/sim.h"

#include <assert.h>

struct NetFree {
    NetModel inner;
    OpKind op;
    AxisSet axes;
    Arena *arena;
    LIST(uint32_t) due; /* numbers of transfers that end at the moment at which they begin */
};

static bool is_free(const NetFree *f, const Transfer *t)
{
    if (t->group == NULL) return f->op == OP_send || f->op == OP_recv;
    return t->op == f->op && t->group->axes == f->axes;
}

static void net_start(void *self, uint32_t id, const Transfer *t, Ps now)
{
    NetFree *f = self;
    if (is_free(f, t))
        list_push(f->arena, &f->due, id);
    else
        f->inner.start(f->inner.self, id, t, now);
}

static bool net_next(void *self, Ps now, bool settle, uint32_t *id, Ps *when)
{
    NetFree *f = self;
    if (f->due.n == 0) return f->inner.next(f->inner.self, now, settle, id, when);
    *id = f->due.at[f->due.n - 1];
    *when = now;
    return true;
}

static void net_finish(void *self, uint32_t id, Ps now)
{
    NetFree *f = self;
    if (f->due.n > 0 && f->due.at[f->due.n - 1] == id)
        f->due.n--;
    else
        f->inner.finish(f->inner.self, id, now);
}

NetFree *net_free(NetModel inner, OpKind op, AxisSet axes, Arena *arena)
{
    NetFree *f = arena_alloc(arena, sizeof *f);
    *f = (NetFree){.inner = inner, .op = op, .axes = axes, .arena = arena};
    return f;
}

NetModel net_free_model(NetFree *f)
{
    return (NetModel){net_start, net_next, net_finish, f};
}
