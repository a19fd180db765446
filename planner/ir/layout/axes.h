/* Properties of the mesh axes. axes.def is the only list of axes. Other code asks for the axes that
 * have a property, and names no axis. */
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
typedef uint32_t AxisNames; /* bit a: the axis of that name */
#define AXIS_BIT(name) (1u << AXIS_##name)

enum {                   /* AxisInfo.flags */
       AXIS_STAGES = 1,  /* ranks hold different layers; the outermost axis */
       AXIS_WEIGHTS = 2, /* each rank uses only a part of each weight matrix */
       AXIS_STATES = 4,  /* units (groups of parameters) may be sharded along it */
       AXIS_UNITS = 8,   /* the axis exists only to shard units */
       AXIS_FOLDS = 16,  /* ep_mode = "folded" makes this axis from ranks of other axes */
       AXIS_LENDS = 32   /* ep_mode = "folded" may use the ranks of this axis for experts */
};

/* The kinds of collectives that run on the axis's own stream. All other collectives run on the
 * streams dp_gather and dp_reduce. */
typedef enum Carries {
    CARRIES_nothing,
    CARRIES_sums,      /* sums over only this axis */
    CARRIES_exchanges, /* all_to_all over only this axis */
    CARRIES_all,       /* every collective over only this axis */
    CARRIES_values     /* every layout change of an activation that involves this axis */
} Carries;

/* How `run --verify` chooses a small size for the axis. If the model has fixed sizes, all rules but
 * the first choose a size that divides them. */
typedef enum Shrinks {
    SHRINKS_to_least,            /* 3 if the size is odd, otherwise 2 */
    SHRINKS_to_divisor,          /* the smallest divisor above 1; an odd size is final */
    SHRINKS_to_divisor_for_good, /* the smallest divisor above 1, which is final */
    SHRINKS_by_fours             /* a multiple of 4 becomes 4; an odd size is final */
} Shrinks;

typedef struct AxisInfo {
    const char *name, *doc;
    /* the index of the batch that the axis splits; INDEX_none: all its ranks read the same data */
    IndexRole cuts;
    IndexRole trades; /* an all_to_all over the axis splits this index instead of `cuts` */
    uint32_t flags;
    Stream stream;
    Carries carries;
    Shrinks shrinks;
    /* the most separate ranges of a sequence that one rank has; 0: the axis does not split
     * sequences */
    uint8_t chunks;
    const char *pass; /* the pass in `parallel` that assigns the layouts of the axis */
    const char *unused, *use, *lacks, *apart, *sum; /* texts of errors and hints; see axes.def */
} AxisInfo;

const AxisInfo *axis_info(AxisName name);
const char *axis_name_text(AxisName name);

/* Sets of axes by property. */
AxisNames axes_with(uint32_t flags);    /* returns the axes that have any of these flags */
AxisNames axes_cutting(IndexRole role); /* returns the axes that split this index of the batch */
/* returns the axes that split some index of the batch; gradients are summed over them */
AxisNames axes_cutting_batch(void);
AxisNames axes_trading(IndexRole role);   /* returns the axes whose all_to_all makes this index the
                                           * split one (AxisInfo.trades) */
AxisNames axes_of_pass(const char *pass); /* returns the axes whose layouts this pass assigns */
/* returns the outermost axis of the set; AXIS_NAMES for an empty set */
AxisName axes_first(AxisNames names);
static inline bool axes_have(AxisNames names, AxisName name)
{
    return names >> name & 1;
}

#endif
