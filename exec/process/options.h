/* The options that only the mpi backend has; BackendOptions.own points to them. options.def lists
 * the options that a user can set. */
#ifndef TANDEM_EXEC_PROCESS_OPTIONS_H
#define TANDEM_EXEC_PROCESS_OPTIONS_H

#include <stdbool.h>

typedef struct ProcessOptions {
    bool native; /* use MPI's own reductions instead of sums in the order of ranks */
} ProcessOptions;

#endif
