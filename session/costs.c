/* Decides which measured costs a prediction uses. The command and libtandem both call it, so they
 * cannot give different numbers for one plan. */
#include <string.h>

#include "session/session.h"

CostsOf session_costs(const Cluster *cluster, const char *here, const char *imported,
                      const char *ran)
{
    if (cluster->is_local || ran != NULL) return (CostsOf){ran != NULL ? ran : "mpi", here};
    if (imported != NULL) return (CostsOf){"nccl", imported};
    return (CostsOf){"", NULL};
}
