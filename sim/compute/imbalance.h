/* Tokens may choose some experts more often than others. The ranks of these experts then compute
 * and exchange more rows (rows_share.h), which takes longer. */
#ifndef TANDEM_SIM_COMPUTE_IMBALANCE_H
#define TANDEM_SIM_COMPUTE_IMBALANCE_H

#include "sim/sim.h"

/* How many rows each rank receives in each layer with experts. The ranks over which the experts are
 * divided form a group. All groups have the same loads. */
typedef struct RowLoads {
    uint32_t n_layers;   /* layers in the order of the model; for a plan with more layers, the list
                            is repeated */
    uint32_t n_ranks;    /* number of ranks in a group */
    const double *share; /* [layer][rank of the group]: rows of the rank, relative to the mean */
} RowLoads;

/* Returns true if `loads` has a load for each rank of the plan's groups. Returns false if `loads`
 * is NULL. */
bool loads_fit(const RowLoads *loads, const Plan *plan);
/* Returns how many rows the busiest rank has over all layers, relative to the mean. This comes from
 * `loads`, or is `factor` if `loads` is NULL. */
double imbalance_held(const RowLoads *loads, double factor);
/* Returns an array [rank] with the index of each rank in its group. */
uint32_t *loads_members(const Plan *plan, Arena *arena);

/* A model that changes the costs and transfers of a plan with experts. */
typedef struct Imbalance Imbalance;
/* Returns the fraction of the slots of an exchange that is really sent (a slot is room for one
 * row). It is below 1 only if the framework's profile (Runtime) sets `pads_late`. */
double imbalance_exchanged(const Plan *plan, const Runtime *runtime);
/* Makes the model. If `loads` is not NULL, it has the loads of each rank, and `factor` is
 * ignored. */
Imbalance *imbalance_new(const Plan *plan, double factor, double exchanged, const RowLoads *loads,
                         const Fold *fold, CostModel cost, NetModel net, Arena *arena);
CostModel imbalance_cost(Imbalance *b);
NetModel imbalance_net(Imbalance *b);

/* For the engine. imbalance_layer returns the index (from 1) of the layer with experts whose rows
 * an instruction computes or exchanges. It returns 0 if the instruction has no such rows, or if all
 * ranks have the same loads. It sets *back to true for an exchange that sends rows back to the
 * ranks of their tokens. imbalance_compute returns the time of an instruction on a class of ranks,
 * with the rows of that class in that layer. */
uint32_t imbalance_layer(const Imbalance *b, const Plan *plan, const Program *p, const Instr *in,
                         bool *back);
Ps imbalance_compute(const Imbalance *b, const Plan *plan, const Program *p, const Instr *in,
                     uint32_t layer, uint32_t class_);

#endif
