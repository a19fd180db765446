/* Declarations that the files of `tandem fit` share. */
#ifndef TANDEM_CLI_SWEEP_FIT_H
#define TANDEM_CLI_SWEEP_FIT_H

#include "cli/sweep/point.h"

/* ---- fit_gpus.c: --tokens, --days, --usd */
bool fit_gpus_check(Cli *cli); /* Checks the options. Called before any prediction. */
/* Returns false after an error if --tokens was given for a plan of this machine. Called before any
 * prediction. */
bool fit_gpus_can(Cli *cli, const Config *config);
/* With --tokens: prints how long a training takes on each number of nodes, and the smallest number
 * that is enough. also: settings of these plans beside those of the command line. Returns false
 * after reporting diagnostics. */
bool fit_gpus(Cli *cli, const Config *config, const TextList *also);

#endif
