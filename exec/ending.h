/* Ends a run that cannot continue, for backends with one process for each rank. */
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
    bool prints;    /* true: there is no launcher, so the first rank that fails prints the report */
    void (*abort)(void *self, int code); /* ends all ranks, and does not return */
    void *self;
    /* Writes the message to the file in which the rank records its position. NULL if there is no
     * such file. */
    void (*record)(void *self, const char *rule, const char *text);
    void *record_self;
} Ending;

/* Records why the run ends, unless another rank has done so already. Ends all ranks with exit code
 * 6. */
_Noreturn void ending_tell(const Ending *e, const char *rule, const char *text);
/* Ends all ranks because this rank has waited too long for communication `c`, instruction pc. For
 * an exchange outside of the program, pc is 0 and c is NULL. Reports for every rank where it is,
 * and where the plan expects it to be. */
_Noreturn void ending_timeout(const Ending *e, const Comm *c, Pc pc, double waited_s);

#endif
