/* Turns a row of published collectives into a question to the network model. The columns are those
 * of measured_comm.csv. */
#ifndef TANDEM_CLI_ACCURACY_COMM_ROW_H
#define TANDEM_CLI_ACCURACY_COMM_ROW_H

#include "cli/accuracy/accuracy.h"
#include "cli/accuracy/kernel_row.h"
#include "planner/front/front.h"
#include "sim/sim.h"

typedef struct CommRow {
    Cluster cluster;
    NcclQuestion question;
    double measured_us; /* time of one call; 0: the row gives only a bus bandwidth */
    double bus_bytes_per_s;
} CommRow;

/* The clusters of the library that earlier rows have loaded, by name. Loading a cluster starts a
 * process, so each is loaded only once. */
typedef struct CommClusters {
    Arena *arena;
    struct CommCluster {
        const char *name;
        Cluster cluster;
        bool fine;
    } at[64];
    uint32_t n;
    /* The clusters with the links that rows have stated. */
    LIST(struct CommStated {
        const char *name; /* the words of the row */
        Cluster cluster;
        const char *why; /* why the words give no cluster; NULL: they give one */
    })
    read;
    ClusterNames names;    /* names of all clusters of the library; n is 0 until they are read */
    KernelDevices devices; /* the GPUs that rows have named so far */
} CommClusters;

/* Fills in `out` from a row. Returns NULL if the row can be predicted, or the reason why not. One
 * reason is that the row does not name the network between its nodes. */
const char *comm_row(CommClusters *clusters, const Csv *csv, uint32_t row, CommRow *out);
/* Returns the model's value in the unit that the row has: microseconds, or bytes/s of the bus. */
double comm_row_predicted(const CommRow *row, const NcclFit *fit);
double comm_row_measured(const CommRow *row);

#endif
