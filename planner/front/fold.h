/* Sizes of ep that fold into the ranks of a stage. The passes include this, too: only they know the
 * number of experts. */
#ifndef TANDEM_FRONT_FOLD_H
#define TANDEM_FRONT_FOLD_H

#include "planner/front/config.h"

/* Returns true if `ep` could replace the size of mesh.ep in a plan that already folds it. */
bool fold_could_be(const Config *c, uint32_t ep);

#endif
