/* Counts how often each expert is chosen during a run, and how many choices are dropped. A choice
 * is one expert that one token chooses. A slot is a row of an expert's buffer. The counts are
 * updated after each instruction that assigns slots to choices. The host counts if it can read the
 * backend's memory; otherwise the device counts. */
#ifndef TANDEM_EXEC_LOADS_H
#define TANDEM_EXEC_LOADS_H

#include "kernels/kernel.h"
#include "planner/ir/plan.h"

struct Backend;

typedef struct LoadCounts {
    uint32_t n_layers, n_experts; /* number of layers with experts; largest number of experts in a
                                     layer */
    /* [node]: 1 + index of the node's layer; 0: the node assigns no slots */
    const uint32_t *layer_of;
    uint64_t *chosen;  /* [layer, n_experts]: how often each expert was chosen */
    uint64_t *dropped; /* [layer]: how many choices were dropped */
} LoadCounts;

/* Returns zeroed counts for the plan. Returns NULL if the model has no experts with slots. */
LoadCounts *loads_new(const Plan *plan, Arena *arena);
/* Returns 1 + the index of the layer whose choices `rank` must count after the instruction; 0:
 * none. If several ranks do the same work, only one of them counts. */
uint32_t loads_layer(const LoadCounts *l, const Plan *plan, Rank rank, const Instr *in);
/* Adds the choices that instruction `in` has computed on `rank` to the counts. */
void loads_count(LoadCounts *l, const Plan *plan, Rank rank, const Instr *in,
                 const KernelArgs *args);

typedef struct ExpertLoads {
    /* largest and smallest number of choices of an expert, divided by the mean of its layer, over
     * all layers; 0: not known */
    double busiest, idlest;
    ModuleId module;             /* module that contains the busiest expert */
    double dropped_part;         /* number of dropped choices divided by the number of all
                                    choices */
    uint32_t n_experts, n_empty; /* n_experts: experts of all layers; n_empty: how many of them no
                                    token chose */
    const LoadCounts *counts;    /* counts of all ranks together; NULL: not known */
} ExpertLoads;

/* Adds up the counts of all ranks, and summarises them in *out. All processes must call this
 * function. If the backend or the model has no counts, all of *out is 0. */
bool loads_gather(struct Backend *backend, const Plan *plan, Arena *arena, ExpertLoads *out,
                  Diag *d);

#endif
