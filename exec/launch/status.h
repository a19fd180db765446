/* Where each rank of this machine is, in memory that the ranks and the command that launched them
 * share: a rank that is stopped or dead cannot answer, but what it wrote last can still be read. */
#ifndef TANDEM_EXEC_LAUNCH_STATUS_H
#define TANDEM_EXEC_LAUNCH_STATUS_H

#include <stdatomic.h>

#include "planner/ir/plan.h"

#define STATUS_VARIABLE "TANDEM_STATUS" /* the file's path, in the environment of the ranks */

typedef enum StatusState {
    STATUS_absent, /* the process has not begun, or is done with its backend */
    STATUS_begun,
    STATUS_open,      /* between steps */
    STATUS_preparing, /* a step: on the host, so that the device does not show how far it is */
    STATUS_stepping
} StatusState;

typedef struct StatusSlot {
    _Atomic int32_t pid;
    _Atomic uint32_t death;      /* 1: the first that died; 0: it has not, that anybody saw */
    _Atomic int32_t wait_status; /* of a rank that died, as waitpid tells it */
    _Atomic uint32_t state, step;
    _Atomic uint64_t count;              /* instructions finished: progress */
    _Atomic uint32_t head[STREAM_COUNT]; /* first instruction of each stream that is not done */
} StatusSlot;

enum { STATUS_TEXT = 16384 };

typedef struct Status {
    uint32_t n_ranks;
    _Atomic uint32_t n_dead;
    _Atomic uint32_t verdict; /* 0: none, 1: being written, 2: there */
    char rule[32], text[STATUS_TEXT];
    StatusSlot slots[];
} Status;

/* A new file, mapped; its path is written to `path`. NULL with a diagnostic. */
Status *status_create(uint32_t n_ranks, char *path, size_t room, Diag *d);
/* The file that the launcher made for us; NULL if there is none (mpirun or srun by hand). */
Status *status_join(uint32_t n_ranks);
void status_unmap(Status *s);
/* The first to fail tells; false if another was first. */
bool status_tell(Status *s, const char *rule, const char *text);
/* 'R' and so on as in /proc/<pid>/stat; 0: there is no such process any more. */
char status_process(int32_t pid);

#endif
