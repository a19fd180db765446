/* The status record contains the position of each rank of this machine. The ranks and the command
 * that launched them all map its memory. So the position of a rank can be read even if the rank has
 * died or was stopped. */
#ifndef TANDEM_EXEC_LAUNCH_STATUS_H
#define TANDEM_EXEC_LAUNCH_STATUS_H

#include <stdatomic.h>

#include "planner/ir/plan.h"

#define STATUS_VARIABLE                                                                            \
    "TANDEM_STATUS" /* environment variable with the path of the record's                          \
                       file */

enum { EXIT_RUN_FAILED = 6 }; /* exit code of ranks and command for FAULT_run */

typedef enum StatusState {
    STATUS_absent, /* the process has not started, or has closed its backend */
    STATUS_begun,
    STATUS_open,      /* between two steps */
    STATUS_preparing, /* in a step, but working on the host, so the device shows no progress */
    STATUS_stepping
} StatusState;

typedef struct StatusSlot {
    _Atomic int32_t pid;
    /* order in which ranks died: 1 for the first one, then 2, ...; 0: the rank is not known to have
     * died */
    _Atomic uint32_t death;
    _Atomic int32_t wait_status; /* how the rank ended, in the form that waitpid returns */
    _Atomic uint32_t state, step;
    /* grows when instructions finish; with mpi, by one for each instruction */
    _Atomic uint64_t count;
    _Atomic uint32_t unfinished[STREAM_COUNT]; /* [stream]: first instruction that has not
                                                  finished */
} StatusSlot;

enum { STATUS_TEXT = 16384 };

typedef struct Status {
    uint32_t n_ranks;
    int32_t launcher; /* the process that created the file; if it ends, all ranks end */
    _Atomic uint32_t n_dead;
    _Atomic uint32_t verdict; /* 0: no verdict, 1: it is being written, 2: it is complete */
    char rule[32], text[STATUS_TEXT];
    StatusSlot slots[];
} Status;

/* Creates and maps a new file, and writes its path to `path`. Returns NULL after an error. */
Status *status_create(uint32_t n_ranks, char *path, size_t room, Diag *d);
/* Maps the file of the launcher. Returns NULL if there is no launcher, because the user has called
 * mpirun or srun. */
Status *status_join(uint32_t n_ranks);
void status_unmap(Status *s);
/* Records why the run has failed. Returns false if another rank has done so already. */
bool status_tell(Status *s, const char *rule, const char *text);
/* Returns the state letter of a process from /proc/<pid>/stat, such as 'R'. Returns 0 if there is
 * no such process. */
char status_process(int32_t pid);

#endif
