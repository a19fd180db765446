/* Properties of the mesh axes (tp, cp, dp_shard and so on; axes.def lists them). Other code never
 * compares an axis with a name. It asks for the axes with a property, such as "splits the samples",
 * so a new axis needs only a new row in axes.def. */
#ifndef TANDEM_IR_LAYOUT_AXES_H
#define TANDEM_IR_LAYOUT_AXES_H

#include <stdbool.h>
#include <stdint.h>

#include "planner/ir/op/roles.h"
#include "planner/ir/streams.h"

typedef enum AxisName {
#define AXIS(name, ...) AXIS_##name,
#include "planner/ir/axes.def"
    AXIS_NAMES
} AxisName;
typedef uint32_t AxisNames; /* a set of named axes: bit AXIS_tp is tp */
#define AXIS_BIT(name) (1u << AXIS_##name)

enum {                   /* AxisInfo.flags */
       AXIS_STAGES = 1,  /* its ranks compute different layers (pp); the outermost axis */
       AXIS_WEIGHTS = 2, /* each rank multiplies with only a part of each weight matrix (tp) */
       AXIS_STATES = 4,  /* parameters and optimizer state may be sharded along it */
       AXIS_UNITS = 8,   /* its only purpose is to shard parameters (dp_shard) */
       /* with ep_mode = "folded", its ranks are not new ones but ranks of other axes (ep) */
       AXIS_FOLDS = 16,
       AXIS_LENDS = 32 /* with ep_mode = "folded", ep may use the ranks of this axis again */
};

/* Which collectives run on the axis's own stream, so that they can overlap with others. All other
 * collectives run on the streams dp_gather and dp_reduce. */
typedef enum Carries {
    CARRIES_nothing,
    CARRIES_sums,      /* reductions whose group extends along this axis only */
    CARRIES_exchanges, /* all_to_all whose group extends along this axis only */
    CARRIES_all,       /* every collective whose group extends along this axis only */
    /* every collective that changes the layout of an activation on this axis, perhaps with
     * others */
    CARRIES_values
} Carries;

/* How `run --verify`, which runs a small copy of the plan, shrinks the axis. In a model with fixed
 * sizes, all rules but the first choose a size that divides them. */
typedef enum Shrinks {
    SHRINKS_to_least,   /* an odd size becomes 3, an even one 2 */
    SHRINKS_to_divisor, /* the smallest divisor above 1; not shrunk further if that is odd */
    SHRINKS_to_divisor_for_good, /* the smallest divisor above 1; never shrunk further */
    SHRINKS_by_fours             /* a multiple of 4 becomes 4; an odd size is not shrunk further */
} Shrinks;

typedef struct AxisInfo {
    const char *name, *doc;
    /* The index of the batch that the axis splits: samples, tokens, or rows or columns of fields.
     * INDEX_none: all its ranks read the same data (pp, tp). */
    IndexRole cuts;
    /* an all_to_all over the axis splits this index in place of `cuts` (ep: experts for samples) */
    IndexRole trades;
    uint32_t flags;
    Stream stream;
    Carries carries;
    Shrinks shrinks;
    /* How many separate ranges of a sequence one rank has at most: 2 for cp, whose zigzag deal
     * gives it an early and a late range. 0: the axis does not split sequences. */
    uint8_t chunks;
    /* the entry of `parallel`, such as "tp", whose pass distributes tensors over the axis */
    const char *pass;
    const char *unused, *use, *lacks, *apart, *sum; /* texts of errors and hints; see axes.def */
} AxisInfo;

const AxisInfo *axis_info(AxisName name);
const char *axis_name_text(AxisName name);

/* ---- sets of axes by property ---- */
AxisNames axes_with(uint32_t flags);    /* axes that have any of `flags` */
AxisNames axes_cutting(IndexRole role); /* axes that split this index of the batch */
/* axes that split the batch along any index. Their ranks see different data, so gradients are
 * summed over them. */
AxisNames axes_cutting_batch(void);
/* axes whose all_to_all splits this index (AxisInfo.trades) */
AxisNames axes_trading(IndexRole role);
AxisNames axes_of_pass(const char *pass); /* axes whose layouts the pass `pass` sets */
/* Returns the outermost axis of the set; AXIS_NAMES for an empty set. */
AxisName axes_first(AxisNames names);
static inline bool axes_have(AxisNames names, AxisName name)
{
    return names >> name & 1;
}

#endif
