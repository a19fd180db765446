/* In which order a program's instructions are given to the streams, and where a step is cut into
 * graphs. Knows no CUDA. */
#ifndef TANDEM_EXEC_CUDA_ORDER_H
#define TANDEM_EXEC_CUDA_ORDER_H

#include "exec/ready.h"

/* [first, first + n) of the order. */
typedef struct Segment {
    uint32_t first, n;
    uint32_t same; /* an earlier segment that does exactly the same but for its micro-batch; its own
                      index: none */
    bool shared;   /* another segment is the same as this one */
} Segment;

typedef struct Order {
    Pc *pc;       /* [n] members of a launch stand together */
    uint32_t *at; /* [pc] where */
    uint32_t n;
    Segment *segment;
    uint32_t n_segments;
} Order;

/* An instruction stands behind all that it waits for, on its stream and others'. The smallest pc
 * that may be next is next: ranks with the same program have the same order. */
void order_make(const ProgramInfo *info, Arena *arena, Order *order);
/* One segment. */
void order_whole(Order *order, Arena *arena);
/* One segment a micro-batch, the update with the last. False where micro-batches are interleaved
 * (a pipeline's schedule), or there is only one: then there is one segment. */
bool order_cut(const RankState *r, Order *order, Arena *arena);

#endif
