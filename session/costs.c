/* Decides which measured costs a prediction uses. Both the command and libtandem call this
 * function, so they cannot give different numbers for the same plan. */
#include <string.h>

#include "session/session.h"

CostsOf session_costs(const Cluster *cluster, const char *here, const char *imported,
                      const char *ran)
{
    if (cluster->is_local || ran != NULL) return (CostsOf){ran != NULL ? ran : "mpi", here};
    if (imported != NULL) return (CostsOf){"nccl", imported};
    return (CostsOf){"", NULL};
}
