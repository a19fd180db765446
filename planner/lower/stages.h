/* The part of the lowering's state that stage.c and tied.c use: the messages of a pipeline rank. */
#ifndef TANDEM_LOWER_STAGES_H
#define TANDEM_LOWER_STAGES_H

#include "planner/ir/plan.h"

/* A message between `stage` and stage + 1: an activation in the forward direction, or its gradient
 * in the backward direction. */
typedef struct StageTransfer {
    uint32_t when, stage, microbatch;
    bool backward, is_send;
} StageTransfer;

/* The messages between pipeline stages. */
typedef struct Stages {
    uint32_t rank;             /* the pipeline rank of this program */
    AxisSet pipe;              /* the pp axes */
    LIST(TensorId) * crossing; /* [stage]: the tensors that it sends to the next stage */
    /* [0]: forward, [1]: backward; [stage]: its first node, and the node after its last */
    NodeId *first[2], *end[2];
    bool has_tied; /* two stages share a parameter */
    uint32_t first_tied_match, first_p2p_match, most_crossing;
    LIST(StageTransfer) transfers; /* the messages of this rank, in order */
    uint32_t next_transfer, transfer_launch;
    /* Receives wait for this instruction. Only the newest action may still run after it, so the
     * memory of older messages is free. */
    Pc receive_after;
    Pc newest_send[2];
} Stages;

#endif
