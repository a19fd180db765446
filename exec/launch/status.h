/* The position of each rank of this machine, in memory shared by the ranks and the launching
 * command. A stopped or dead rank cannot answer, but its last entry can still be read. */
#ifndef TANDEM_EXEC_LAUNCH_STATUS_H
#define TANDEM_EXEC_LAUNCH_STATUS_H

#include <stdatomic.h>

#include "planner/ir/plan.h"

#define STATUS_VARIABLE "TANDEM_STATUS" /* the file's path, in the environment of the ranks */

typedef enum StatusState {
    STATUS_absent, /* the process has not begun, or has closed its backend */
    STATUS_begun,
    STATUS_open,      /* between steps */
    STATUS_preparing, /* in a step, at work on the host; the device shows no progress meanwhile */
    STATUS_stepping
} StatusState;

typedef struct StatusSlot {
    _Atomic int32_t pid;
    _Atomic uint32_t
        death; /* 1 for the first rank that died, then 2, ...; 0: not known to have died */
    _Atomic int32_t wait_status; /* status of a dead rank, as from waitpid */
    _Atomic uint32_t state, step;
    _Atomic uint64_t count;              /* number of finished instructions: progress */
    _Atomic uint32_t head[STREAM_COUNT]; /* first unfinished instruction of each stream */
} StatusSlot;

enum { STATUS_TEXT = 16384 };

typedef struct Status {
    uint32_t n_ranks;
    int32_t launcher; /* the process that made this file; when it ends, every rank ends */
    _Atomic uint32_t n_dead;
    _Atomic uint32_t verdict; /* 0: none, 1: being written, 2: complete */
    char rule[32], text[STATUS_TEXT];
    StatusSlot slots[];
} Status;

/* Creates and maps a new file, and writes its path to `path`. Returns NULL after a diagnostic. */
Status *status_create(uint32_t n_ranks, char *path, size_t room, Diag *d);
/* Maps the file that the launcher created. Returns NULL if there is none, because a user called
 * mpirun or srun. */
Status *status_join(uint32_t n_ranks);
void status_unmap(Status *s);
/* Records the verdict if this is the first rank to fail; returns false if another rank was
 * first. */
bool status_tell(Status *s, const char *rule, const char *text);
/* Returns the state letter of a process, as in /proc/<pid>/stat ('R', ...); 0 if the process does
 * not exist any more. */
char status_process(int32_t pid);

#endif
