/* Starts the ranks of a run and watches them. The command runs itself under mpirun, once for each
 * rank. If a rank dies or hangs, the run ends, and the report names the rank and its position. */
#ifndef TANDEM_EXEC_LAUNCH_LAUNCH_H
#define TANDEM_EXEC_LAUNCH_LAUNCH_H

#include "planner/base/diag.h"

#define LAUNCH_TCP "tcp" /* the flavour if torchrun or srun started the ranks without MPI */

/* True if mpirun, srun or torchrun started this process. Sets the number of ranks, this rank and
 * the flavour: "openmpi", "mpich" or LAUNCH_TCP. Pointers may be NULL. */
bool launch_inside(uint32_t *n_ranks, uint32_t *rank, const char **flavour);

/* Must be the first call in `main`. In a rank that exec_launch started, it forks. The child
 * continues as the rank. The parent waits for the child and records how it dies. In any other
 * process the call does nothing. */
void launch_supervise(void);
/* True in a rank that exec_launch started, but not under the user's own mpirun or srun. */
bool launch_is_supervised(void);

typedef struct LaunchOptions {
    uint32_t n_ranks;
    /* "openmpi" or "mpich"; NULL: $TANDEM_MPI, or the first one with a module */
    const char *flavour;
    const char *module_dir; /* NULL: the folder of the command, or ../lib/tandem */
    double timeout_s;       /* the run ends if no rank makes progress for so long */
} LaunchOptions;

/* Describes the end of a run whose ranks did not end by themselves. */
typedef struct LaunchEnd {
    int signal;    /* the signal that this process received and passed on; 0: none */
    bool stepped;  /* every rank had begun its first step */
    uint32_t step; /* if `stepped`: the step of the slowest rank */
} LaunchEnd;

/* Runs argv once for each rank and waits for all ranks. argv ends in NULL, and argv[0] is the path
 * of the program. Ranks write to the output of this process. Returns their exit code, or 6 with a
 * diagnostic if they did not end by themselves. On SIGINT, SIGTERM or SIGHUP it ends the ranks and
 * returns 128 + the signal; the caller prints the message. */
int exec_launch(const char *const *argv, const LaunchOptions *options, LaunchEnd *end, Arena *arena,
                Diag *d);

#endif
