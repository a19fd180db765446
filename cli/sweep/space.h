/* The points of a search: all layouts of this model on this cluster that are allowed, as settings
 * of the script. */
#ifndef TANDEM_CLI_SWEEP_SPACE_H
#define TANDEM_CLI_SWEEP_SPACE_H

#include "cli/sweep/point.h"

typedef struct SearchSpace {
    TextList *settings; /* the settings of each of the n points */
    uint32_t n, room;
    /* n_left_out: number of points that were left out because there are too many */
    uint32_t n_ranks, n_left_out;
    /* index of the point that is the plan itself; UINT32_MAX: it is not among the points */
    uint32_t own;
    const char *empty; /* the reason why there is no mesh; NULL: there is one */
    Hash128 *seen;     /* hash table of the points; NULL: not needed so far */
} SearchSpace;

/* Returns how many tokens, rows, columns or experts the axis can divide among ranks. 0: the model
 * has none of these, so the axis cannot be used. INT64_MAX: the axis divides something else, so its
 * size has no such limit. */
int64_t space_size(const Config *config, int64_t experts, AxisName axis);

/* Returns the options with which the plan is read before the search has chosen settings. If the
 * script's data ranks do not fit the axes that --set fixes, dp_shard gets the ranks that remain,
 * and *freed is set. */
PlanOptions space_options(Cli *cli, bool *freed);

/* Lists every combination of mesh, micro-batch, recomputation and sharding that the sizes of model,
 * batch and cluster allow. If --set fixes a setting, only its value is used. */
void space_of(Cli *cli, const Config *config, const Graph *graph, SearchSpace *space);

/* Adds the plan itself as a point, unless a --where excludes it. `freed` is the result of
 * space_options. */
void space_add_plan(Cli *cli, const Config *config, bool freed, SearchSpace *space);

#endif
