/* Uneven choices of experts: they change the times of computation on experts' rows, and of the
 * exchange of tokens. */
#ifndef TANDEM_SIM_COMPUTE_IMBALANCE_H
#define TANDEM_SIM_COMPUTE_IMBALANCE_H

#include "sim/sim.h"

/* The rows that each rank receives in each layer with experts. The ranks over which the
 * experts are divided form a group; all groups have the same loads. */
typedef struct RowLoads {
    uint32_t n_layers;   /* in the order of the model; in a plan with more layers, the list is
                          * repeated */
    uint32_t n_ranks;    /* ranks of a group */
    const double *share; /* [layer][rank of the group]: its rows, relative to the mean */
} RowLoads;

/* True if `loads` has a load for each rank of this plan's groups. NULL fits no plan. */
bool loads_fit(const RowLoads *loads, const Plan *plan);
/* The rows that the busiest rank holds over all layers, relative to the mean: of the loads, or of
 * one factor if there are none. */
double imbalance_held(const RowLoads *loads, double factor);
/* Returns [rank]: the rank's number in its group. */
uint32_t *loads_members(const Plan *plan, Arena *arena);

/* Changes costs and transfers of a plan with experts. */
typedef struct Imbalance Imbalance;
/* Returns the fraction of an exchange's token slots that is really sent; below 1 only if the
 * profile has `pads_late`. */
double imbalance_exchanged(const Plan *plan, const Runtime *runtime);
/* loads: NULL, or the loads of each rank; factor is then ignored. */
Imbalance *imbalance_new(const Plan *plan, double factor, double exchanged, const RowLoads *loads,
                         const Fold *fold, CostModel cost, NetModel net, Arena *arena);
CostModel imbalance_cost(Imbalance *b);
NetModel imbalance_net(Imbalance *b);

/* For the engine. imbalance_layer returns the layer of experts, from 1, whose rows the instruction
 * computes on or exchanges; 0: none, or all ranks have the same loads. *back: the exchange returns
 * rows to the ranks of their tokens. imbalance_compute returns the time of the instruction on a
 * class of ranks, with the rows that the class has in this layer. */
uint32_t imbalance_layer(const Imbalance *b, const Plan *plan, const Program *p, const Instr *in,
                         bool *back);
Ps imbalance_compute(const Imbalance *b, const Plan *plan, const Program *p, const Instr *in,
                     uint32_t layer, uint32_t class_);

#endif
