/* Ends a run that cannot continue. For backends with one process for each rank. */
#ifndef TANDEM_EXEC_ENDING_H
#define TANDEM_EXEC_ENDING_H

#include "exec/launch/status.h"
#include "exec/ready.h"

typedef struct Ending {
    const Plan *plan;
    Arena *arena;
    Rank rank;
    uint32_t n_ranks, step;
    Status *status; /* NULL: there is no launcher */
    bool prints;    /* there is no launcher, so the first rank to fail prints the status */
    void (*abort)(void *self, int code); /* ends all ranks, and does not return */
    void *self;
    /* Writes the message to the rank's record file. The function is NULL if there is no such file.
     */
    void (*record)(void *self, const char *rule, const char *text);
    void *record_self;
} Ending;

/* Records why the run ends, unless another rank did so before. Ends all ranks with code 6. */
_Noreturn void ending_tell(const Ending *e, const char *rule, const char *text);
/* Ends all ranks, because this rank has waited too long for instruction `pc`, which is
 * communication `c`. pc 0 and c NULL stand for an exchange outside the program. Reports the
 * position of every rank and the position that the plan expects. */
_Noreturn void ending_timeout(const Ending *e, const Comm *c, Pc pc, double waited_s);

#endif
