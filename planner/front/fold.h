/* Experts folded into the ranks of a stage, and the mesh that follows. The passes include this,
 * too: only they know the number of experts. */
#ifndef TANDEM_FRONT_FOLD_H
#define TANDEM_FRONT_FOLD_H

#include "planner/front/config.h"
#include "planner/ir/layout/mesh.h"

/* Returns true if `ep` could replace the size of mesh.ep in a plan that already folds it. */
bool fold_could_be(const Config *c, uint32_t ep);

/* Like fold_could_be; writes how many ranks of each axis would lend themselves, as Config.ep_lent
 * has them. */
bool fold_lends(const Config *c, uint32_t ep, uint32_t lent[AXIS_NAMES]);

/* Returns true if ranks of cp or tp share experts, too. */
bool config_lends_experts(const Config *c);

/* Returns the number of ranks that share a layer's experts. */
uint32_t config_expert_ranks(const Config *c);

/* Returns the mesh of a plan with ep_mode = "folded" as its script has it, without ep:
 * "dp_shard 4 x tp 2". */
const char *config_mesh_text(Arena *arena, const Config *c);

/* Returns the axes whose ranks share the experts of such a plan, the innermost first:
 * "tp 2, 2 of dp_shard 4". NULL: each rank has all experts. */
const char *config_folded_text(Arena *arena, const Config *c);

/* Experts are first cut by the ranks of cp and tp that share them, so that no rank sends rows that
 * its neighbours send, too. The cut over ep nests inside. */
void config_nest_experts(const Config *c, Mesh *mesh);

/* Returns the mesh before passes refine it. */
Mesh config_mesh(const Config *c);

#endif
