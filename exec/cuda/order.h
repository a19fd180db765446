/* The order in which instructions are issued to the streams, and the cuts of a step into graphs.
 * This header does not depend on CUDA. */
#ifndef TANDEM_EXEC_CUDA_ORDER_H
#define TANDEM_EXEC_CUDA_ORDER_H

#include "exec/ready.h"

/* the range [first, first + n) of the order */
typedef struct Segment {
    uint32_t first, n;
    /* index of an earlier segment that differs only in its micro-batch; the segment's own index if
     * there is none */
    uint32_t same;
    bool shared; /* true if another segment names this segment in its `same` */
} Segment;

typedef struct IssueOrder {
    Pc *pc;       /* [n]: instructions in order; members of a launch are adjacent */
    uint32_t *at; /* [pc]: index of the instruction in the order */
    uint32_t n;
    Segment *segment;
    uint32_t n_segments;
} IssueOrder;

/* Orders a program's instructions so that each comes after all instructions that it waits for, on
 * any stream. If several instructions may come next, the instruction with the smallest pc comes
 * next, so ranks with the same program get the same order. */
void order_make(const ProgramInfo *info, Arena *arena, IssueOrder *order);
/* Makes the whole order one segment. */
void order_whole(IssueOrder *order, Arena *arena);
/* Cuts the order into one segment for each micro-batch; the update belongs to the last. If
 * micro-batches are interleaved (a pipeline's schedule) or there is only one, makes one segment and
 * returns false. */
bool order_cut(const RankState *r, IssueOrder *order, Arena *arena);

#endif
