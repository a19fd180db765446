/* ep_mode = "folded": a layer's experts are divided over ranks that already serve the tp, cp and
 * data axes, instead of over ranks of their own. Example: with dp_shard 4, tp 2 and ep 4, each
 * expert group consists of the 2 ranks of tp and 2 of the 4 data ranks. This file computes such
 * groups and the resulting mesh. The passes include this header, because they check the number of
 * experts. */
#ifndef TANDEM_FRONT_FOLD_H
#define TANDEM_FRONT_FOLD_H

#include "planner/front/config.h"
#include "planner/ir/layout/mesh.h"

/* Returns true if ep groups of `ep` ranks fit the mesh of the plan, which has ep_mode = "folded".
 */
bool fold_could_be(const Config *c, uint32_t ep);

/* Like fold_could_be. Also sets lent[axis], as in Config.ep_lent: the number of ranks of cp or tp
 * over which experts would be divided. */
bool fold_lends(const Config *c, uint32_t ep, uint32_t lent[AXIS_NAMES]);

/* Returns true if experts are divided over ranks of cp or tp, and not only over the axis ep. */
bool config_lends_experts(const Config *c);

/* Returns the number of ranks over which a layer's experts are divided: the size of ep times all
 * ep_lent. */
uint32_t config_expert_ranks(const Config *c);

/* For a plan with ep_mode = "folded": returns the mesh as the script gives it, without ep, such as
 * "dp_shard 4 x tp 2". */
const char *config_mesh_text(Arena *arena, const Config *c);

/* For a plan with ep_mode = "folded": returns the ranks of each axis over which experts are
 * divided, the innermost axis first, such as "tp 2, 2 of dp_shard 4". NULL: each rank has all
 * experts. */
const char *config_folded_text(Arena *arena, const Config *c);

/* If experts are divided over ranks of cp or tp, moves the axis ep to the end of the list of axes
 * of `mesh`: experts are then divided first over cp and tp, and each share over ep. A token then
 * crosses between two neighbours at most once. */
void config_nest_experts(const Config *c, Mesh *mesh);

/* Returns the mesh of the plan's axis sizes, before passes add or split axes. */
Mesh config_mesh(const Config *c);

#endif
