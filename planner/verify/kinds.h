/* Tells by which proof the values of an op are checked. */
#ifndef TANDEM_VERIFY_KINDS_H
#define TANDEM_VERIFY_KINDS_H

#include "planner/verify/private.h"

/* True if value_compute proves instructions with this op. */
static inline bool verify_is_computed(OpKind op)
{
    const OpInfo *info = op_info(op);
    const bool computes = info->class_ == OP_CLASS_compute || info->class_ == OP_CLASS_contract;
    const bool of_range =
        info->flags & OP_RANGE && (info->flags & OP_MAGNITUDE || op_is_by_scalar(op));
    const bool updates = info->flags & OP_UPDATES && !(info->flags & OP_ONCE);
    return computes && !of_range && !updates && op != OP_pass && op != OP_cast && op != OP_fill &&
           op != OP_sumsq && op != OP_step_mean && op != OP_clip_coef;
}

/* True if value_move proves instructions with this op. (An all_to_all of strided rows has a proof
 * of its own.) */
static inline bool verify_is_moved(OpKind op)
{
    const OpClass class_ = op_info(op)->class_;
    const bool rows =
        op_is_halo(op) || op_is_stride(op) || op == OP_halo_exchange || op == OP_exchange_uneven;
    const bool moves = (class_ == OP_CLASS_comm || class_ == OP_CLASS_reshape) && !rows;
    return moves || op == OP_pass || op == OP_cast || op == OP_fill;
}

/* True if the instruction computes the whole node, so that the proofs compare its inputs with the
 * node's. */
static inline bool verify_is_whole_node(const Instr *in, const Node *n)
{
    return n->op == in->op && verify_is_computed(in->op) && op_whole(in->op) == OP_none &&
           op_of_rows(in->op) == OP_none;
}

#endif
