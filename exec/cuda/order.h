/* The order in which instructions are issued to the streams, and the division of a step into
 * segments, each of which becomes a CUDA graph. This header does not depend on CUDA. */
#ifndef TANDEM_EXEC_CUDA_ORDER_H
#define TANDEM_EXEC_CUDA_ORDER_H

#include "exec/ready.h"

/* A segment: instructions first to first + n - 1 of the order. */
typedef struct Segment {
    uint32_t first, n;
    /* index of an earlier segment that differs only in its micro-batch; the segment's own index if
     * there is none */
    uint32_t same;
    bool shared; /* true: some other segment has this segment as its `same`, and uses its graph */
} Segment;

typedef struct IssueOrder {
    Pc *pc;       /* [n]: the instructions in the order of issue; communications that start together
                     are neighbours */
    uint32_t *at; /* [pc]: position of instruction pc in the order */
    uint32_t n;
    Segment *segment;
    uint32_t n_segments;
} IssueOrder;

/* Orders the instructions of a program so that each of them comes after all instructions that it
 * waits for, on any stream. Among the instructions that may come next, the one with the smallest
 * number comes first. So ranks with the same program get the same order. */
void order_make(const ProgramInfo *info, Arena *arena, IssueOrder *order);
/* Makes the whole order a single segment. */
void order_whole(IssueOrder *order, Arena *arena);
/* Divides the order into one segment for each micro-batch; the update belongs to the last one. If
 * micro-batches are interleaved (as in a pipeline) or there is only one, returns false; the caller
 * must then call order_whole(). */
bool order_cut(const RankState *r, IssueOrder *order, Arena *arena);

#endif
