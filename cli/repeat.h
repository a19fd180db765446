/* `sim` of a plan whose prediction is stored (repeat.c). */
#ifndef TANDEM_CLI_REPEAT_H
#define TANDEM_CLI_REPEAT_H

#include "cli/cli.h"
#include "cli/predict.h"

typedef struct Repeat {
    Recipe also; /* the scripts from which other parts of the output were made */
    uint32_t fresh_from,
        fresh_end; /* the range of diagnostics that only a fresh simulation reports */
} Repeat;

/* If the store has the answer to this very command, and its scripts have not changed, prints the
 * answer and returns true. */
bool repeat_answer(Cli *cli);
/* Stores the output of a `sim` on a cluster, as the answer to this command. `recipe` has the plan's
 * options and scripts. Stores nothing if the output depends on anything else. */
void repeat_keep(Cli *cli, const Repeat *repeat, Store *store, const Recipe *recipe,
                 const Prediction *prediction);

#endif
