/* Counts the choices of each expert during a run, and the dropped choices, after each instruction
 * that assigns slots to tokens. The host counts if it can read the backend's memory; otherwise the
 * device does. */
#ifndef TANDEM_EXEC_LOADS_H
#define TANDEM_EXEC_LOADS_H

#include "kernels/kernel.h"
#include "planner/ir/plan.h"

struct Backend;

typedef struct LoadCounts {
    uint32_t n_layers, n_experts; /* layers with experts; the most experts of a layer */
    const uint32_t *layer_of;     /* [node]: 1 + number of the layer; 0: the node assigns no slots
                                   */
    uint64_t *chosen;             /* [layer, n_experts] */
    uint64_t *dropped;            /* [layer] */
} LoadCounts;

/* Returns NULL if the model has no experts with slots. */
LoadCounts *loads_new(const Plan *plan, Arena *arena);
/* Returns 1 + the layer whose choices `rank` counts after the instruction; 0: it counts none. Among
 * ranks that do the same work, only one counts. */
uint32_t loads_layer(const LoadCounts *l, const Plan *plan, Rank rank, const Instr *in);
/* Counts the choices of one instruction that was computed on `rank`. */
void loads_count(LoadCounts *l, const Plan *plan, Rank rank, const Instr *in,
                 const KernelArgs *args);

typedef struct ExpertLoads {
    /* over all layers: the largest and the smallest number of choices of an expert, relative to the
     * mean of its layer. 0: unknown */
    double busiest, idlest;
    ModuleId module;             /* the module of the busiest expert */
    double dropped_part;         /* dropped choices / all choices */
    uint32_t n_experts, n_empty; /* of all layers: experts, and experts that no token chose */
    const LoadCounts *counts;    /* of all ranks; NULL: unknown */
} ExpertLoads;

/* Adds up the counts of all ranks of all processes. */
bool loads_gather(struct Backend *backend, const Plan *plan, Arena *arena, ExpertLoads *out,
                  Diag *d);

#endif
