/* Measures the kernels and collectives that a plan needs and the store lacks. */
#ifndef TANDEM_CLI_RUN_MEASURE_H
#define TANDEM_CLI_RUN_MEASURE_H

#include "cli/cli.h"
#include "exec/exec.h"
#include "session/needs.h"

/* Where kernels are measured: the backend with its options, and the name under which the store
 * keeps the times. */
typedef struct MeasureOn {
    const char *backend, *machine;
    BackendOptions options;
} MeasureOn;
/* Runs three steps of the plan on the backend, and stores the median time of each kernel that the
 * store lacks. On loopback, only one kernel runs at a time, so kernels never share a core. `store`
 * is NULL except on the first process. */
bool measure_kernels(const Plan *plan, const Needs *needs, Store *store, const MeasureOn *on,
                     const DataSource *data, Arena *arena, Diag *d);
/* Runs each missing collective several times on the plan's mesh. All processes of the run must call
 * it with the same `needs`. `store` is NULL except on the first process. */
bool measure_collectives(const Plan *plan, const Needs *needs, Backend *backend,
                         const BackendOptions *options, Store *store, const char *machine,
                         Arena *arena, Diag *d);

#endif
