/* Reads the cells of a row of published collectives: its kind, sizes, times and numbers. */
#ifndef TANDEM_CLI_ACCURACY_COMM_CELLS_H
#define TANDEM_CLI_ACCURACY_COMM_CELLS_H

#include "cli/accuracy/accuracy.h"
#include "sim/sim.h"

/* Finds a collective by a name of NCCL, PyTorch or a benchmark: "AllReduce", "ncclAllGather",
 * "all_to_all_single", "send/recv", "alltoall_perf". */
bool comm_kind(const char *text, Collective *kind);
/* comm_bytes, comm_us and comm_gb_per_s read a number with a unit. They return NAN if the cell is
 * empty or cannot be read.
 * comm_bytes: a size in bytes, such as "1048576", "64M", "1 GiB" or "512KB". M and MiB are binary.
 * KB, MB and GB are binary behind a power of two, as in the tables of benchmarks, and otherwise
 * decimal. comm_us: a time in microseconds. comm_gb_per_s: a rate in GB/s. */
double comm_bytes(const char *cell);
double comm_us(const char *cell);
double comm_gb_per_s(const char *cell);
/* Reads the numbers of GPUs and nodes: "16" and "2", or "2x8 GPUs", or "16 (2 nodes)". Returns
 * NULL, or the reason why there are none. */
const char *comm_ranks(const char *gpus, const char *nodes, const char *interconnect,
                       double *n_gpus, double *n_nodes);

#endif
