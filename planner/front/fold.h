/* ep_mode = "folded": the experts of a layer are divided over ranks of the data, cp and tp axes.
 * This file finds these ranks and the mesh that results. The passes include this header because
 * only they know the number of experts. */
#ifndef TANDEM_FRONT_FOLD_H
#define TANDEM_FRONT_FOLD_H

#include "planner/front/config.h"
#include "planner/ir/layout/mesh.h"

/* Returns true if the plan, which already folds its experts, could fold them with this size of
 * mesh.ep. */
bool fold_could_be(const Config *c, uint32_t ep);

/* Like fold_could_be. Also writes, in the form of Config.ep_lent, the number of ranks of each axis
 * over which experts would be divided. */
bool fold_lends(const Config *c, uint32_t ep, uint32_t lent[AXIS_NAMES]);

/* Returns true if a layer's experts are divided not only over ranks of ep, but also over ranks of
 * cp or tp. */
bool config_lends_experts(const Config *c);

/* Returns the number of ranks over which a layer's experts are divided. */
uint32_t config_expert_ranks(const Config *c);

/* For a plan with ep_mode = "folded": returns the mesh as the script gives it, without ep:
 * "dp_shard 4 x tp 2". */
const char *config_mesh_text(Arena *arena, const Config *c);

/* For a plan with ep_mode = "folded": returns the axes over which experts are divided, the
 * innermost first: "tp 2, 2 of dp_shard 4". NULL: each rank has all experts. */
const char *config_folded_text(Arena *arena, const Config *c);

/* Reorders the axes of `mesh` if experts are divided over ranks of cp or tp. Experts are then
 * divided first over cp and tp, and each share is divided over ep. A token then crosses between two
 * neighbours at most once. */
void config_nest_experts(const Config *c, Mesh *mesh);

/* Returns the mesh before passes refine it. */
Mesh config_mesh(const Config *c);

#endif
