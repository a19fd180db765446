/* Measuring the kernels and collectives that a plan needs and the store lacks. */
#ifndef TANDEM_CLI_RUN_MEASURE_H
#define TANDEM_CLI_RUN_MEASURE_H

#include "cli/cli.h"
#include "exec/exec.h"
#include "session/needs.h"

/* Runs the plan three steps on the backend (loopback: there kernels never share a core) and stores
 * the median time of each key that is missing; `store` on the first process, NULL elsewhere. */
typedef struct MeasureOn {
    const char *backend, *machine;
    BackendOptions options;
} MeasureOn;
bool measure_kernels(const Plan *plan, const Needs *needs, Store *store, const MeasureOn *on,
                     const DataSource *data, Arena *arena, Diag *d);
/* Every process of the run calls this with the same needs: runs each missing collective some times
 * through the backend, on the mesh of the plan; `store` on the first process, NULL elsewhere. */
bool measure_collectives(const Plan *plan, const Needs *needs, Backend *backend,
                         const BackendOptions *options, Store *store, const char *machine,
                         Arena *arena, Diag *d);

#endif
