/* The space of a search: all legal layouts of this model on this cluster, as settings of the
 * script. */
#ifndef TANDEM_CLI_SWEEP_SPACE_H
#define TANDEM_CLI_SWEEP_SPACE_H

#include "cli/sweep/point.h"

typedef struct SearchSpace {
    TextList *settings; /* [n] */
    uint32_t n, room;
    uint32_t n_ranks, n_left_out; /* n_left_out: points beyond the limit */
    uint32_t own;                 /* index of the point of the plan itself; UINT32_MAX: it was left
                                   * out */
    const char *empty;            /* why no mesh can be proposed; NULL: some can */
    Hash128 *seen; /* hashes of the points, in a table of slots; NULL: not needed yet */
} SearchSpace;

/* Returns the size of the index that an axis splits: tokens, rows, columns, experts. 0: the model
 * has no such index, so the axis cannot serve it. INT64_MAX: the axis splits no index. */
int64_t space_size(const Config *config, int64_t experts, AxisName axis);

/* Returns the options with which the plan is read before a setting is chosen. If the script's own
 * number of data ranks does not fit the axes that --set fixes, dp_shard gets the ranks that remain,
 * and *freed is set. */
PlanOptions space_options(Cli *cli, bool *freed);

/* Makes every combination of mesh axes, micro-batch, recomputation and sharding that the sizes of
 * model, batch and cluster allow. If `--set` fixes a setting, only that value is tried. */
void space_of(Cli *cli, const Config *config, const Graph *graph, SearchSpace *space);

/* Adds the plan itself as a point, unless a --where excludes it. `freed` comes from
 * space_options. */
void space_add_plan(Cli *cli, const Config *config, bool freed, SearchSpace *space);

#endif
