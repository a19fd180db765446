/* The end of a run that cannot go on, for backends of one process a rank. */
#ifndef TANDEM_EXEC_ENDING_H
#define TANDEM_EXEC_ENDING_H

#include "exec/launch/status.h"
#include "exec/ready.h"

typedef struct Ending {
    const Plan *plan;
    Arena *arena;
    Rank rank;
    uint32_t n_ranks, step;
    Status *status; /* NULL: nobody shares one */
    bool prints;    /* no launcher reads the status: the first to fail prints it */
    void (*abort)(void *self, int code); /* ends all ranks; does not return */
    void *self;
    /* Keeps what is told, in a file of this rank's; NULL: there is none. */
    void (*record)(void *self, const char *rule, const char *text);
    void *record_self;
} Ending;

/* Tells why (the first rank to fail is heard), and ends all ranks with code 6. */
_Noreturn void ending_tell(const Ending *e, const char *rule, const char *text);
/* The same, when this rank has waited so long for instruction `pc`, a communication `c` (0 and
 * NULL: for an exchange): says where every rank is and what the plan expects it to reach. */
_Noreturn void ending_timeout(const Ending *e, const Comm *c, Pc pc, double waited_s);

#endif
