/* The parts of `tandem fit`. */
#ifndef TANDEM_CLI_SWEEP_FIT_H
#define TANDEM_CLI_SWEEP_FIT_H

#include "cli/sweep/point.h"

/* ---- fit_gpus.c: --tokens, --days, --usd */
bool fit_gpus_check(Cli *cli); /* called before any prediction */
/* Returns false after an error if --tokens is given for a plan of this machine; also called before
 * any prediction. */
bool fit_gpus_can(Cli *cli, const Config *config);
/* With --tokens: reports the training run on each number of nodes, with the additional settings
 * `also`, and the least number of nodes that is enough. Returns false after reporting diagnostics
 * if it fails. */
bool fit_gpus(Cli *cli, const Config *config, const TextList *also);

#endif
