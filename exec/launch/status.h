/* The position of each rank of this machine, in memory that the ranks and the launching command
 * share. So the position of a dead or stopped rank can still be read. */
#ifndef TANDEM_EXEC_LAUNCH_STATUS_H
#define TANDEM_EXEC_LAUNCH_STATUS_H

#include <stdatomic.h>

#include "planner/ir/plan.h"

#define STATUS_VARIABLE "TANDEM_STATUS" /* the environment variable with the path of the file */

typedef enum StatusState {
    STATUS_absent, /* the process has not begun, or it has closed its backend */
    STATUS_begun,
    STATUS_open,      /* between steps */
    STATUS_preparing, /* in a step, but at work on the host, so the device shows no progress */
    STATUS_stepping
} StatusState;

typedef struct StatusSlot {
    _Atomic int32_t pid;
    /* 1 for the first rank that died, then 2, ...; 0: the rank is not known to have died */
    _Atomic uint32_t death;
    _Atomic int32_t wait_status; /* how a dead rank ended, as waitpid returns it */
    _Atomic uint32_t state, step;
    _Atomic uint64_t count;                    /* the number of finished instructions */
    _Atomic uint32_t unfinished[STREAM_COUNT]; /* [stream]: its first unfinished instruction */
} StatusSlot;

enum { STATUS_TEXT = 16384 };

typedef struct Status {
    uint32_t n_ranks;
    int32_t launcher; /* the process that made the file; when it ends, all ranks end */
    _Atomic uint32_t n_dead;
    _Atomic uint32_t verdict; /* 0: there is none, 1: it is being written, 2: it is complete */
    char rule[32], text[STATUS_TEXT];
    StatusSlot slots[];
} Status;

/* Creates and maps a new file. Writes its path to `path`. Returns NULL after an error. */
Status *status_create(uint32_t n_ranks, char *path, size_t room, Diag *d);
/* Maps the file of the launcher. Returns NULL if the user started the ranks with mpirun or srun. */
Status *status_join(uint32_t n_ranks);
void status_unmap(Status *s);
/* Records why the run failed. Returns false if another rank did so before. */
bool status_tell(Status *s, const char *rule, const char *text);
/* Returns the state letter of a process from /proc/<pid>/stat, such as 'R'. Returns 0 if the
 * process does not exist. */
char status_process(int32_t pid);

#endif
