/* Starts the ranks of a run: the command executes itself under mpirun, once for each rank, and
 * watches the ranks. A rank that dies or hangs ends the run, and the report names the rank and its
 * position. */
#ifndef TANDEM_EXEC_LAUNCH_LAUNCH_H
#define TANDEM_EXEC_LAUNCH_LAUNCH_H

#include "planner/base/diag.h"

#define LAUNCH_TCP "tcp" /* the flavour if torchrun or srun started the ranks without MPI */

/* True if mpirun, srun or torchrun started this process. Writes the number of ranks, this rank, and
 * the flavour: "openmpi", "mpich" or LAUNCH_TCP. Pointers may be NULL. */
bool launch_inside(uint32_t *n_ranks, uint32_t *rank, const char **flavour);

/* Must be the first call in `main`. In a rank that exec_launch started it forks. The child
 * continues as the rank. The parent waits for it and, if it is the first rank to die, records the
 * cause. In any other process it does nothing. */
void launch_supervise(void);
/* True in a rank that exec_launch started. False in a rank of the user's own mpirun or srun. */
bool launch_is_supervised(void);

typedef struct LaunchOptions {
    uint32_t n_ranks;
    /* "openmpi", "mpich"; NULL: $TANDEM_MPI, else the first one found with its module */
    const char *flavour;
    const char *module_dir; /* folder of the modules; NULL: beside the command, or ../lib/tandem */
    double timeout_s;       /* the run ends if no rank makes progress for this long */
} LaunchOptions;

/* The end of ranks that did not end by themselves. */
typedef struct LaunchEnd {
    int signal;    /* signal that this process received and passed on; 0: none */
    bool stepped;  /* every rank had begun its first step */
    uint32_t step; /* if `stepped`: the step of the slowest rank */
} LaunchEnd;

/* Runs argv (ending in NULL; argv[0] is the program's path) once for each rank, and waits for all
 * ranks. They write to this process's output. If the ranks end by themselves, returns their exit
 * code. If not, returns 6 with a diagnostic (rank-died, run-stuck, mpirun-missing, or one that a
 * rank reported, such as timeout or mpi). On SIGINT, SIGTERM or SIGHUP ends the ranks and returns
 * 128 + the signal; the caller prints the message. */
int exec_launch(const char *const *argv, const LaunchOptions *options, LaunchEnd *end, Arena *arena,
                Diag *d);

#endif
