/* Declarations that only engine.c, engine_compile.c and engine_stuck.c share. */
#ifndef TANDEM_SIM_ENGINE_PRIVATE_H
#define TANDEM_SIM_ENGINE_PRIVATE_H

#include "sim/heap.h"
#include "sim/sim.h"

/* An instruction in the form that the engine uses. The members of a launch group wait and start
 * together. `leader` is the first member of the group, or the instruction itself if it has no
 * group.
 */
typedef struct Step {
    Ps duration; /* only for a computation */
    /* the layer whose expert rows it computes; 0: none, or all ranks have equal loads */
    uint32_t layer;
    /* the earliest start after the host begins `burst`; in a leader, the earliest start of the
     * whole group */
    Ps issued;
    /* the burst that issues it; in a leader: the burst that issues the last member */
    uint32_t burst;
    uint32_t lets; /* the burst before which the host waits for its end; 0: none */
    bool on_host;  /* it uses host memory, and so no SMs of the device */
    /* its first entry in Code.successors; the list ends at the next step's first entry */
    uint32_t successors;
    uint32_t comm;     /* its entry in Code.comms; 0: it is a computation */
    Pc next_in_launch; /* the next member of the group; 0: none */
    Pc leader;
} Step;

typedef struct SimComm {
    OpKind op;
    uint32_t axes; /* index in fold->axes; UINT32_MAX for a send or receive */
    AxisSet axis_set;
    int32_t hop;
    uint32_t match;
    uint32_t slot; /* slot of group 0; for a send or receive: the slot of sender class 0 */
    uint64_t bytes;
    DType dtype;
    bool registered, back; /* the same fields as in Transfer */
    uint32_t layer;
} SimComm;

/* The host issues a program in bursts. Within a burst it does not wait. Before each burst but the
 * first, it waits for the end of some earlier instructions. */
typedef struct HostBurst {
    Pc first;
    Ps length; /* the time that the host needs to issue the instructions */
    uint32_t n_awaited;
} HostBurst;

/* A program in the form that the engine runs. For each instruction it holds the number of events to
 * wait for, and the instructions that wait for it. */
typedef struct Code {
    uint32_t n; /* instructions 1 to n - 1 */
    Step *step;
    Pc *successors;         /* the instructions that wait, each named by the leader of its group */
    uint32_t *need;         /* [pc] of a leader: the number of instructions that must end first */
    LIST(SimComm) comms;    /* [0] is unused */
    LIST(Pc) roots;         /* leaders that wait for nothing */
    LIST(HostBurst) bursts; /* at least one */
} Code;

/* Compiles all programs. Numbers the slots, one for each communication of a group. Returns the
 * number of slots, or UINT32_MAX after an error. */
uint32_t engine_compile(const Plan *plan, const EngineOptions *options, Arena *arena, Code *codes,
                        Diag *d);

/* A class of ranks that has reached a communication. `next` links a list; 0 ends it. */
typedef struct Arrival {
    uint32_t class_;
    Pc pc;
    uint32_t next;
} Arrival;

/* The state of the engine when no event is left but some program has not ended. */
typedef struct Stuck {
    const Plan *plan;
    const Fold *fold;
    const Code *codes;
    const Timeline *line; /* [class] */
    /* the communications in these lists wait; all other instructions that were reached have ended
     */
    const Arrival *arrivals;
    const uint32_t *slots;
    uint32_t n_slots;
} Stuck;
void engine_report_stuck(const Stuck *s, Diag *d);

#endif
