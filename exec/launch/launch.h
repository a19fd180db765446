/* Starting the ranks of a run: the command executes itself again under mpirun, once a rank, and
 * watches over them. A rank that dies or hangs ends the run; who did, and where, is told. */
#ifndef TANDEM_EXEC_LAUNCH_LAUNCH_H
#define TANDEM_EXEC_LAUNCH_LAUNCH_H

#include "planner/base/diag.h"

#define LAUNCH_TCP "tcp" /* torchrun: ranks that no MPI started */

/* Did mpirun, srun or torchrun start this process? Says how many ranks there are, and which MPI
 * ("openmpi", "mpich", or LAUNCH_TCP) its environment belongs to. All may be NULL. */
bool launch_inside(uint32_t *n_ranks, uint32_t *rank, const char **flavour);

/* The first thing that `main` does. In a rank that exec_launch started, this forks: the child goes
 * on as the rank, the parent waits for it and keeps who died first, and of what. Elsewhere it does
 * nothing. */
void launch_supervise(void);

typedef struct LaunchOptions {
    uint32_t n_ranks;
    const char *flavour; /* "openmpi", "mpich"; NULL: $TANDEM_MPI, else the first that is found with
                          * its module */
    const char *module_dir; /* where the modules lie; NULL: beside the command, or ../lib/tandem */
    double timeout_s;       /* no rank makes progress for this long: the run is ended */
} LaunchOptions;

/* How the launched ranks ended, where they did not end by themselves. */
typedef struct LaunchEnd {
    int signal;    /* that this process was sent, and passed on; 0: none */
    bool stepped;  /* every rank had begun its first step */
    uint32_t step; /* then: the one that the last of them was at, whatever it did of it */
} LaunchEnd;

/* Runs argv (ending in NULL; argv[0] is the program's path) once a rank and waits for all. Output
 * goes where this process's goes. Returns the exit code of the command: that of the ranks when they
 * ended by themselves; when they did not, 6, with a diagnostic (rank-died, run-stuck,
 * mpirun-missing, and what ranks told: timeout, mpi, ...). Sent SIGINT, SIGTERM or SIGHUP it ends
 * the ranks and returns 128 + the signal; what there is to say of it is said by who called. */
int exec_launch(const char *const *argv, const LaunchOptions *options, LaunchEnd *end, Arena *arena,
                Diag *d);

#endif
