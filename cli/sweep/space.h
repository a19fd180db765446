/* The space of a search: the legal ways to lay this model on this cluster, as settings of the
 * script. */
#ifndef TANDEM_CLI_SWEEP_SPACE_H
#define TANDEM_CLI_SWEEP_SPACE_H

#include "cli/sweep/point.h"

typedef struct SearchSpace {
    TextList *settings; /* [n] */
    uint32_t n, room;
    uint32_t n_ranks, n_left_out; /* n_left_out: points beyond the limit */
    uint32_t own;                 /* the point of the plan itself; UINT32_MAX: left out */
    const char *empty;            /* why no mesh can be proposed; NULL: there is one */
    Hash128 *seen; /* hashes of the points, in a table of slots; NULL: not needed yet */
} SearchSpace;

/* Returns the size of the index that an axis shares out: tokens, rows, columns, experts. 0: the
 * model has no such index, so the axis cannot serve it. INT64_MAX: the axis shares out no index. */
int64_t space_size(const Config *config, int64_t experts, AxisName axis);

/* Returns the options to read the plan before a setting is chosen. The script's own data ranks may
 * not fit the axes that --set fixes. Then dp_shard takes the ranks that remain, and `freed` is
 * true. */
PlanOptions space_options(Cli *cli, bool *freed);

/* Makes every combination of mesh axes, micro-batch, recomputation and sharding that the sizes of
 * model, batch and cluster allow. If `--set` fixes a setting, only that value is tried. */
void space_of(Cli *cli, const Config *config, const Graph *graph, SearchSpace *space);

/* Adds the plan itself as a point, unless a --where leaves it out. `freed` is space_options's. */
void space_add_plan(Cli *cli, const Config *config, bool freed, SearchSpace *space);

#endif
