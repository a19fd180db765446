/* Answers a `sim` from the store if the same command was given before (repeat.c). */
#ifndef TANDEM_CLI_REPEAT_H
#define TANDEM_CLI_REPEAT_H

#include "cli/cli.h"
#include "cli/predict.h"

/* Facts about the output of a `sim` that repeat_keep needs. */
typedef struct Repeat {
    Recipe also; /* the scripts from which other parts of the output were made, besides the plan */
    /* the diagnostics fresh_from to fresh_end - 1 belong only to a fresh simulation */
    uint32_t fresh_from, fresh_end;
} Repeat;

/* If the store has the answer to the same command, and the scripts have not changed, prints the
 * answer and returns true. */
bool repeat_answer(Cli *cli);
/* Stores the output of a `sim` on a cluster as the answer to this command. `recipe` has the plan's
 * options and scripts. Stores nothing if the output depends on anything else, such as measured
 * costs. */
void repeat_keep(Cli *cli, const Repeat *repeat, Store *store, const Recipe *recipe,
                 const Prediction *prediction);

#endif
