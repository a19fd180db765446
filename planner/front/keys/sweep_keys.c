/* The table of the keys of sweep{}, from sweep_keys.def, for the code that reads them, hints and
 * documentation. */
#include "planner/front/front.h"

const SweepKeyInfo front_sweep_keys[] = {
#define SWEEP_KEY(name, type, optional, meaning) {#name, type, meaning, optional},
#include "planner/front/keys/sweep_keys.def"
#undef SWEEP_KEY
};
const uint32_t front_n_sweep_keys = sizeof front_sweep_keys / sizeof *front_sweep_keys;
