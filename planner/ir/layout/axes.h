/* The purpose of each axis of a mesh. axes.def is the only list of axes; the rest of the code asks
 * for axes with a property, never for an axis by its name. */
#ifndef TANDEM_IR_LAYOUT_AXES_H
#define TANDEM_IR_LAYOUT_AXES_H

#include <stdbool.h>
#include <stdint.h>

#include "planner/ir/roles.h"
#include "planner/ir/streams.h"

typedef enum AxisName {
#define AXIS(name, ...) AXIS_##name,
#include "planner/ir/axes.def"
    AXIS_NAMES
} AxisName;
typedef uint32_t AxisNames; /* bit a: the axis of that name */
#define AXIS_BIT(name) (1u << AXIS_##name)

enum {                   /* AxisInfo.flags */
       AXIS_STAGES = 1,  /* ranks hold different layers; the outermost axis */
       AXIS_WEIGHTS = 2, /* ranks hold parts of each weight matrix while they use it */
       AXIS_STATES =
           4, /* units may be sharded along it: their states, and perhaps weights at rest */
       AXIS_UNITS = 8,  /* sharding units is its only purpose */
       AXIS_FOLDS = 16, /* ep_mode = "folded" carves it out of the data axes */
       AXIS_LENDS = 32  /* its innermost ranks may share experts, too, with ep_mode = "folded" */
};

/* Which collectives run on the axis's own stream. All others run on the streams of units: dp_gather
 * and dp_reduce. */
typedef enum Carries {
    CARRIES_nothing,
    CARRIES_sums,      /* sums over this axis alone */
    CARRIES_exchanges, /* all_to_all over this axis alone */
    CARRIES_all,       /* every collective over this axis alone */
    CARRIES_values     /* every change of an activation's layout in which the axis takes part */
} Carries;

/* How `run --verify` chooses a small size for the axis. If the model cannot be built with other
 * sizes, each rule but the first chooses an axis size that still divides the model's sizes. */
typedef enum Shrinks {
    SHRINKS_to_least,            /* 3 where it is odd, else 2 */
    SHRINKS_to_divisor,          /* its least divisor; an odd size stays */
    SHRINKS_to_divisor_for_good, /* its least divisor, which must not change afterwards */
    SHRINKS_by_fours             /* a multiple of 4 becomes 4; an odd size stays */
} Shrinks;

typedef struct AxisInfo {
    const char *name, *doc;
    IndexRole cuts;   /* the index of the batch that the axis splits; none: all its ranks read the
                         same data */
    IndexRole trades; /* an all_to_all exchanges `cuts` for this index */
    uint32_t flags;
    Stream stream;
    Carries carries;
    Shrinks shrinks;
    uint8_t chunks;   /* the largest number of pieces of a sequence that a rank may hold; 0:
                       * sequences are not cut */
    const char *pass; /* the pass that assigns the axis's layouts, as named in `parallel` */
    const char *unused, *use, *lacks, *apart, *sum; /* see axes.def */
} AxisInfo;

const AxisInfo *axis_info(AxisName name);
const char *axis_name_text(AxisName name);

/* Sets of axes by property. */
AxisNames axes_with(uint32_t flags);    /* any of these flags */
AxisNames axes_cutting(IndexRole role); /* the axis cuts this index of the batch */
AxisNames axes_cutting_batch(void);     /* the axis cuts some index of the batch, so its ranks sum
                                         * gradients */
AxisNames
axes_trading(IndexRole role); /* an all_to_all over the axis exchanges `cuts` for this index */
AxisNames axes_of_pass(const char *pass); /* the pass assigns their layouts */
AxisName axes_first(AxisNames names);     /* the outermost axis of the set; AXIS_NAMES: the set is
                                           * empty */
static inline bool axes_have(AxisNames names, AxisName name)
{
    return names >> name & 1;
}

#endif
