/* The space of a search: legal ways to lay this model on this cluster, as settings of the script.
 */
#ifndef TANDEM_CLI_SWEEP_SPACE_H
#define TANDEM_CLI_SWEEP_SPACE_H

#include "cli/sweep/point.h"

typedef struct SearchSpace {
    TextList *settings; /* [n] */
    uint32_t n, room;
    uint32_t n_ranks;
} SearchSpace;

/* Every combination of pipeline stages, tensor, context, expert and data ranks, replicas,
 * micro-batch, recomputation and sharding that the sizes of model, batch and cluster allow. Where
 * the script has its own value of a setting in `--set`, only that one is tried. */
void space_of(Cli *cli, const Config *config, const Graph *graph, SearchSpace *space);

#endif
