/* A queue of events, ordered by time. Events of one instant come out in the order in which they
 * were added. The first few events are in a sorted array, which is faster than a heap. All others
 * are in a heap ("far"). Many ranks have events at the same instant, so each instant of the heap
 * has one list of events. A hash table finds the list of an instant. */
#ifndef TANDEM_SIM_HEAP_H
#define TANDEM_SIM_HEAP_H

#include "planner/base/list.h"
#include "planner/ir/trace.h"

typedef struct Event {
    Ps time;
    uint32_t a, b; /* values that only the owner of the queue interprets */
} Event;

typedef struct Queued {
    uint32_t a, b,
        next; /* index of the next event of this instant, or of the next unused entry; 0: none */
} Queued;

typedef struct Instant {
    Ps time;
    uint32_t first,
        last; /* indices of its first and last event; first = 0: all events have been removed */
    /* the next instant in the same list of the hash table, or the next unused entry; 0: none */
    uint32_t next;
} Instant;

typedef struct InstantAt {
    Ps time;
    uint32_t instant;
} InstantAt;

/* The largest number of events in the sorted array. */
enum { HEAP_NEAR = 24 };

typedef struct Heap {
    /* The earliest events, in descending order of time: the next event is near[n_near - 1]. All of
     * them come out before any event of the heap. */
    Event near[HEAP_NEAR];
    uint32_t n_near;
    LIST(Queued) events;    /* entry 0 is unused */
    LIST(Instant) instants; /* entry 0 is unused */
    LIST(InstantAt) order;  /* the heap, in which each instant has up to four children */
    uint32_t *table;        /* [hash of a time]: first instant in the list for this hash */
    uint32_t room, free_event, free_instant;
    uint32_t newest; /* the instant to which an event was added last */
} Heap;

static inline uint32_t heap_hash(const Heap *h, Ps time)
{
    return (uint32_t)(((uint64_t)time * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (h->room - 1);
}

/* Puts x into the heap, whose root is vacant. */
static inline void heap_sift_down(Heap *h, InstantAt x)
{
    InstantAt *at = h->order.at;
    const uint32_t n = h->order.n;
    uint32_t i = 0;
    for (;;) {
        const uint32_t first = 4 * i + 1, end = first + 4 < n ? first + 4 : n;
        if (first >= n) break;
        uint32_t least = first;
        for (uint32_t k = first + 1; k < end; k++)
            if (at[k].time < at[least].time) least = k;
        if (at[least].time >= x.time) break;
        at[i] = at[least];
        i = least;
    }
    at[i] = x;
}

/* Removes the instant at the root from the hash table. */
static inline void heap_forget_root(Heap *h)
{
    const uint32_t id = h->order.at[0].instant;
    uint32_t *at = &h->table[heap_hash(h, h->order.at[0].time)];
    while (*at != id) at = &h->instants.at[*at].next;
    *at = h->instants.at[id].next;
    h->instants.at[id].next = h->free_instant;
    h->free_instant = id;
    if (h->newest == id) h->newest = 0;
}

static inline void heap_grow_table(Heap *h, Arena *arena)
{
    h->room = h->room == 0 ? 64 : 4 * h->room;
    h->table = (uint32_t *)arena_array(arena, h->room, sizeof *h->table);
    for (uint32_t i = 0; i < h->order.n; i++) {
        uint32_t *at = &h->table[heap_hash(h, h->order.at[i].time)];
        h->instants.at[h->order.at[i].instant].next = *at;
        *at = h->order.at[i].instant;
    }
}

/* Adds an instant without events. If the instant at the root has no events left, the new one takes
 * its place. */
static inline uint32_t heap_new_instant(Heap *h, Arena *arena, Ps time)
{
    const bool replaces = h->order.n > 0 && h->instants.at[h->order.at[0].instant].first == 0;
    if (h->order.n >= h->room) heap_grow_table(h, arena);
    if (replaces) heap_forget_root(h);
    uint32_t id = h->free_instant;
    if (id != 0)
        h->free_instant = h->instants.at[id].next;
    else
        id = list_add(arena, &h->instants);
    uint32_t *list = &h->table[heap_hash(h, time)];
    h->instants.at[id] = (Instant){time, 0, 0, *list};
    *list = id;
    const InstantAt x = {time, id};
    if (replaces) {
        heap_sift_down(h, x);
        return id;
    }
    uint32_t i = list_push(arena, &h->order, x);
    InstantAt *at = h->order.at;
    for (; i > 0 && time < at[(i - 1) / 4].time; i = (i - 1) / 4) at[i] = at[(i - 1) / 4];
    at[i] = x;
    return id;
}

/* Returns the number of the instant with this time; 0: there is none. */
static inline uint32_t heap_find_instant(const Heap *h, Ps time)
{
    if (h->newest != 0 && h->instants.at[h->newest].time == time) return h->newest;
    if (h->room == 0) return 0;
    uint32_t id = h->table[heap_hash(h, time)];
    while (id != 0 && h->instants.at[id].time != time) id = h->instants.at[id].next;
    return id;
}

/* Adds an event to the heap, before or after the other events of its instant. */
static inline void heap_add_far(Heap *h, Arena *arena, const Event *e, bool before)
{
    if (h->events.n == 0) {
        list_add(arena, &h->events);
        list_add(arena, &h->instants);
    }
    uint32_t id = heap_find_instant(h, e->time);
    if (id == 0) id = heap_new_instant(h, arena, e->time);
    h->newest = id;
    uint32_t event = h->free_event;
    if (event != 0)
        h->free_event = h->events.at[event].next;
    else
        event = list_add(arena, &h->events);
    Instant *at = &h->instants.at[id];
    h->events.at[event] = (Queued){e->a, e->b, before ? at->first : 0};
    if (at->first == 0 || before)
        at->last = at->first == 0 ? event : at->last, at->first = event;
    else
        h->events.at[at->last].next = event, at->last = event;
}

/* Removes the instants without events from the root of the heap. Returns false if no event is
 * left. */
static inline bool heap_clean(Heap *h)
{
    while (h->order.n > 0 && h->instants.at[h->order.at[0].instant].first == 0) {
        heap_forget_root(h);
        const InstantAt last = h->order.at[--h->order.n];
        if (h->order.n > 0) heap_sift_down(h, last);
    }
    return h->order.n > 0;
}

/* Moves events of the heap's first instant to the empty array. Returns false if the heap is
 * empty. */
static inline bool heap_refill(Heap *h)
{
    if (!heap_clean(h)) return false;
    Instant *instant = &h->instants.at[h->order.at[0].instant];
    Event all[HEAP_NEAR / 2];
    uint32_t n = 0;
    for (uint32_t id; n < HEAP_NEAR / 2 && (id = instant->first) != 0; n++) {
        all[n] = (Event){instant->time, h->events.at[id].a, h->events.at[id].b};
        instant->first = h->events.at[id].next;
        h->events.at[id].next = h->free_event;
        h->free_event = id;
    }
    for (uint32_t i = 0; i < n; i++) h->near[i] = all[n - 1 - i];
    h->n_near = n;
    return true;
}

/* True if an event at `time` must go into the heap, because it is not earlier than the heap's first
 * instant. All events of that instant may be in the array already. Even then, no event of the array
 * is later than it. */
static inline bool heap_reaches_far(Heap *h, Ps time)
{
    if (h->order.n == 0 || time < h->order.at[0].time) return false;
    return h->order.n > 1 || h->instants.at[h->order.at[0].instant].first != 0 || heap_clean(h);
}

static inline void heap_add(Heap *h, Arena *arena, Ps time, uint32_t a, uint32_t b)
{
    const Event e = {time, a, b};
    const bool is_full = h->n_near == HEAP_NEAR;
    if ((is_full && time >= h->near[0].time) || heap_reaches_far(h, time)) {
        heap_add_far(h, arena, &e, false);
        return;
    }
    if (is_full) {
        heap_add_far(h, arena, &h->near[0], true);
        memmove(h->near, h->near + 1, --h->n_near * sizeof *h->near);
    }
    uint32_t i = h->n_near++;
    for (; i > 0 && h->near[i - 1].time <= time; i--) h->near[i] = h->near[i - 1];
    h->near[i] = e;
}

/* Returns the first event, which stays where it is until the next call of heap_add; NULL: the queue
 * is empty. */
static inline const Event *heap_top(Heap *h)
{
    return h->n_near > 0 || heap_refill(h) ? &h->near[h->n_near - 1] : NULL;
}

/* Returns the first event if it is in the array; NULL: the array is empty. */
static inline const Event *heap_near(const Heap *h)
{
    return h->n_near > 0 ? &h->near[h->n_near - 1] : NULL;
}

/* Removes the event that heap_top has returned last. */
static inline void heap_take(Heap *h)
{
    h->n_near--;
}

#endif
