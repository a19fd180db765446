/* Turns a row of published collectives (columns of measured_comm.csv) into a request to the network
 * model.
 */
#ifndef TANDEM_CLI_ACCURACY_COMM_ROW_H
#define TANDEM_CLI_ACCURACY_COMM_ROW_H

#include "cli/accuracy/accuracy.h"
#include "cli/accuracy/kernel_row.h"
#include "planner/front/front.h"
#include "sim/sim.h"

typedef struct CommRow {
    Cluster cluster;
    NcclQuestion question;
    double measured_us; /* time of a call; 0: only a bus bandwidth is given */
    double bus_bytes_per_s;
} CommRow;

/* The library clusters loaded so far, by name. Loading one starts a process, so each is loaded only
 * once. */
typedef struct CommClusters {
    Arena *arena;
    struct CommCluster {
        const char *name;
        Cluster cluster;
        bool fine;
    } at[64];
    uint32_t n;
    ClusterNames names;    /* of the library, if n is 0 not yet read */
    KernelDevices devices; /* the GPUs' names so far */
} CommClusters;

/* Fills in `out` from a row. Returns NULL, or the reason why the row cannot be predicted, for
 * example that it does not name the network between its nodes. */
const char *comm_row(CommClusters *clusters, const Csv *csv, uint32_t row, CommRow *out);
/* Returns the model's value in the row's own unit: microseconds, or bytes/s of the bus. */
double comm_row_predicted(const CommRow *row, const NcclFit *fit);
double comm_row_measured(const CommRow *row);

#endif
