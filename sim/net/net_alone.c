/* A network on which each transfer has all links for itself. No transfer is faster in reality, and
 * a slower transfer can only make a program wait longer. So a step on this network takes at most as
 * long as the real one. */
#include <assert.h>

#include "sim/net/net_private.h"

typedef struct NetAlone {
    MaxMin *times;
    Arena *arena;
    Heap heap; /* a: index of the transfer */
} NetAlone;

static void net_start(void *self, uint32_t id, const Transfer *t, Ps now)
{
    NetAlone *n = self;
    heap_add(&n->heap, n->arena, now + maxmin_alone_ps(n->times, t), id, 0);
}

static bool net_next(void *self, Ps now, bool settle, uint32_t *id, Ps *when)
{
    NetAlone *n = self;
    const Event *top = heap_top(&n->heap);
    if (top == NULL || (!settle && top->time > now)) return false;
    *id = top->a;
    *when = top->time;
    return true;
}

static void net_finish(void *self, uint32_t id, Ps now)
{
    NetAlone *n = self;
    const Event *top = heap_top(&n->heap);
    assert(top != NULL && top->a == id && top->time == now);
    heap_take(&n->heap);
}

NetModel net_alone(MaxMin *times, Arena *arena)
{
    NetAlone *n = arena_alloc(arena, sizeof *n);
    n->times = times;
    n->arena = arena;
    return (NetModel){net_start, net_next, net_finish, n};
}
