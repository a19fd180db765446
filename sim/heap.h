/* A binary heap of events ordered by (time, sequence number). The order is total, so events at
 * equal times do not depend on the heap's history. Taking the top leaves a hole that the next
 * insertion fills, which saves one sift. */
#ifndef TANDEM_SIM_HEAP_H
#define TANDEM_SIM_HEAP_H

#include "planner/base/list.h"
#include "planner/ir/trace.h"

typedef struct Event {
    Ps time;
    uint64_t sequence;
    uint32_t a, b; /* the owner of the heap defines their meaning */
} Event;

typedef struct Heap {
    LIST(Event) events;
    uint64_t next; /* sequence number */
    bool hole;     /* events.at[0] has been taken */
} Heap;

static inline bool event_before(const Event *x, const Event *y)
{
    return x->time != y->time ? x->time < y->time : x->sequence < y->sequence;
}

/* Puts e into the subtree whose root is free. */
static inline void heap_sift_down(Heap *h, Event e)
{
    Event *at = h->events.at;
    uint32_t n = h->events.n, i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && event_before(&at[child + 1], &at[child])) child++;
        if (!event_before(&at[child], &e)) break;
        at[i] = at[child];
        i = child;
    }
    at[i] = e;
}

static inline void heap_add(Heap *h, Arena *arena, Ps time, uint32_t a, uint32_t b)
{
    Event e = {time, h->next++, a, b};
    if (h->hole) {
        h->hole = false;
        heap_sift_down(h, e);
        return;
    }
    if (h->events.n == h->events.room)
        list_add(arena, &h->events);
    else
        h->events.n++;
    Event *at = h->events.at;
    uint32_t i = h->events.n - 1;
    while (i > 0 && event_before(&e, &at[(i - 1) / 2])) {
        at[i] = at[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    at[i] = e;
}

/* The first event; NULL if there is none. */
static inline const Event *heap_top(Heap *h)
{
    if (h->hole) {
        h->hole = false;
        Event last = h->events.at[--h->events.n];
        if (h->events.n > 0) heap_sift_down(h, last);
    }
    return h->events.n == 0 ? NULL : &h->events.at[0];
}

/* Removes the event that heap_top has just returned. */
static inline void heap_take(Heap *h)
{
    h->hole = true;
}

#endif
