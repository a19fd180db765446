/* Ends the run of all ranks after an error. */
#include "exec/process/private.h"

Ending process_ending(const Process *p)
{
    return (Ending){.plan = p->plan,
                    .arena = p->arena,
                    .rank = p->rank,
                    .n_ranks = p->n_ranks,
                    .step = (uint32_t)p->control.step,
                    .status = p->status,
                    .abort = p->transport->abort,
                    .self = p->mpi};
}

void process_end(const Process *p, const char *rule, const char *text)
{
    Ending e = process_ending(p);
    ending_tell(&e, rule, text);
}
