/* The keys of sweep{}. The code that reads them, hints and the documentation use this table. */
#include "planner/front/front.h"

const SweepKeyInfo front_sweep_keys[] = {
#define SWEEP_KEY(name, type, optional, meaning) {#name, type, meaning, optional},
#include "planner/front/keys/sweep_keys.def"
#undef SWEEP_KEY
};
const uint32_t front_n_sweep_keys = sizeof front_sweep_keys / sizeof *front_sweep_keys;
