/* The space of a search: the legal ways to lay this model on this cluster, as settings of the
 * script. */
#ifndef TANDEM_CLI_SWEEP_SPACE_H
#define TANDEM_CLI_SWEEP_SPACE_H

#include "cli/sweep/point.h"

typedef struct SearchSpace {
    TextList *settings; /* [n] */
    uint32_t n, room;
    uint32_t n_ranks, n_left_out; /* n_left_out: points beyond the limit */
} SearchSpace;

/* Returns the size of the index that an axis shares out: tokens, rows, columns, experts. 0: the
 * model has no such index, so the axis cannot serve it. INT64_MAX: the axis shares out no index. */
int64_t space_size(const Config *config, int64_t experts, AxisName axis);

/* Makes every combination of mesh axes, micro-batch, recomputation and sharding that the sizes of
 * model, batch and cluster allow. If `--set` fixes a setting, only that value is tried. */
void space_of(Cli *cli, const Config *config, const Graph *graph, SearchSpace *space);

#endif
