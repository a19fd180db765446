/* Starts the ranks of a run and watches them. The command runs itself again under mpirun, once for
 * each rank. If a rank dies or hangs, the run ends, and the report names the rank and the
 * instruction that it had reached. */
#ifndef TANDEM_EXEC_LAUNCH_LAUNCH_H
#define TANDEM_EXEC_LAUNCH_LAUNCH_H

#include "planner/base/diag.h"

#define LAUNCH_TCP "tcp" /* the flavour if torchrun or srun has started the ranks without MPI */

/* Returns true if mpirun, srun or torchrun has started this process. Sets *n_ranks, *rank (of this
 * process), and *flavour: "openmpi", "mpich" or LAUNCH_TCP. Each pointer may be NULL. */
bool launch_inside(uint32_t *n_ranks, uint32_t *rank, const char **flavour);

/* Must be the first call in `main`. In a rank that exec_launch has started, it forks. The child
 * continues as the rank. The parent waits for the child and records how it ends. In any other
 * process, it does nothing. */
void launch_supervise(void);
/* Returns true in a rank that exec_launch has started. Returns false if the user has called mpirun
 * or srun. */
bool launch_is_supervised(void);

typedef struct LaunchOptions {
    uint32_t n_ranks;
    /* "openmpi" or "mpich"; NULL: $TANDEM_MPI, or the first one for which there is a module */
    const char *flavour;
    const char *module_dir; /* folder of the modules; NULL: the folder of the command, or
                               ../lib/tandem */
    double timeout_s;       /* the run ends if no rank makes progress for this many seconds */
} LaunchOptions;

/* Describes how a run ended if its ranks did not end by themselves. */
typedef struct LaunchEnd {
    int signal;    /* signal that this process has received and passed on; 0: none */
    bool stepped;  /* every rank had finished at least one instruction */
    uint32_t step; /* step of the slowest rank, if `stepped` is true */
} LaunchEnd;

/* Runs argv once for each rank and waits for all ranks. argv ends in NULL, and argv[0] is the path
 * of the program. Ranks write to the output of this process. Returns the exit code of the ranks, or
 * 6 with a diagnostic if they did not end by themselves. On SIGINT, SIGTERM or SIGHUP, ends the
 * ranks and returns 128 + the number of the signal; the caller prints the message. */
int exec_launch(const char *const *argv, const LaunchOptions *options, LaunchEnd *end, Arena *arena,
                Diag *d);

#endif
