/* The allocations and releases of a step, in order. A framework repeats them in each step and, for
 * the most part, in each micro-batch. */
#ifndef TANDEM_SIM_MEMORY_TORCH_TAPE_H
#define TANDEM_SIM_MEMORY_TORCH_TAPE_H

#include "sim/memory/torch_allocator.h"

typedef struct TapeEvent {
    uint64_t bytes;      /* of an allocation */
    uint32_t of;         /* for a release: 1 + index of its allocation; 0: this is an allocation */
    uint32_t microbatch; /* for an allocation: the micro-batch that makes it */
    uint8_t stream;      /* of an allocation */
    bool only_first;     /* an allocation that only the first step makes */
} TapeEvent;

/* Periods first to end - 1 are equal. A period begins with the backward work of a micro-batch, and
 * ends where that of the next one begins. */
typedef struct EqualPeriods {
    uint32_t first, end;
} EqualPeriods;

typedef LIST(uint32_t) EventNumbers;
typedef struct TorchTape {
    Arena *arena;
    LIST(TapeEvent) events;
    EventNumbers begins; /* [micro-batch]: index of the first event of its backward work */
    /* torch_tape_find_periods sets the rest */
    EqualPeriods equal;
    uint32_t n_microbatches;
    EventNumbers *made; /* [micro-batch]: its allocations */
    uint32_t *place;    /* [event]: how many allocations the micro-batch has made before it */
    uint32_t *until;    /* [event]: index of its release; UINT32_MAX: it has none */
} TorchTape;

/* Makes an empty tape, with room for n events. It grows if it gets more. */
TorchTape *torch_tape_new(uint32_t n, Arena *arena);
/* Adds an allocation. Returns its id, which is never 0. */
static inline uint32_t torch_tape_allocate(TorchTape *t, uint64_t bytes, uint32_t stream,
                                           uint32_t microbatch, bool only_first)
{
    const TapeEvent e = {.bytes = bytes,
                         .microbatch = microbatch,
                         .stream = (uint8_t)stream,
                         .only_first = only_first};
    return 1 + (uint32_t)list_push(t->arena, &t->events, e);
}
/* Adds the release of an allocation. */
static inline void torch_tape_release(TorchTape *t, uint32_t allocation)
{
    const TapeEvent e = {.of = allocation};
    list_push(t->arena, &t->events, e);
}
/* Records that the backward work of this micro-batch begins with the next event. */
static inline void torch_tape_backward(TorchTape *t, uint32_t microbatch)
{
    if (microbatch == t->begins.n) list_push(t->arena, &t->begins, t->events.n);
}

/* Finds the longest sequence of equal periods, so that torch_tape_play may leave some out. Must be
 * called after the last event. Without a call, torch_tape_play leaves out nothing. */
void torch_tape_find_periods(TorchTape *t);
/* Makes a step's allocations and releases. Leaves out equal periods that change nothing: the
 * allocator's peaks, and its blocks at the end, are those of the whole step. Returns how many it
 * has left out. */
uint32_t torch_tape_play(const TorchTape *t, TorchAllocator *a, bool first);

#endif
