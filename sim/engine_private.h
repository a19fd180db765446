/* Declarations that only engine.c, engine_compile.c and engine_stuck.c use. */
#ifndef TANDEM_SIM_ENGINE_PRIVATE_H
#define TANDEM_SIM_ENGINE_PRIVATE_H

#include "sim/heap.h"
#include "sim/sim.h"

/* An instruction in the form that the engine uses. The members of a launch group wait together and
 * start together. `leader` is the first member of the group; an instruction without a group is its
 * own leader. */
typedef struct Step {
    Ps duration; /* time of a compute instruction; 0 for a communication */
    /* number of the layer whose rows of experts the instruction computes; 0: none, or all ranks
     * have equal loads */
    uint32_t layer;
    /* earliest start, counted from the beginning of `burst`; for a leader, the earliest start of
     * the whole group */
    Ps issued;
    /* number of the burst in which the host issues the instruction; for a leader: its last
     * member */
    uint32_t burst;
    /* number of the burst that the host begins only after the end of this instruction; 0: the host
     * never waits for it */
    uint32_t lets;
    bool left_out; /* the modelled system leaves the instruction out */
    bool on_host;  /* the instruction uses the host's memory, and therefore no SM of the device */
    /* first entry of its list in Code.successors; the list ends where that of the next step
     * begins */
    uint32_t successors;
    uint32_t comm;     /* number of its entry in Code.comms; 0: it is a computation */
    Pc next_in_launch; /* the next member of the group; 0: none */
    Pc leader;
} Step;

typedef struct SimComm {
    OpKind op;
    uint32_t axes; /* number of its set of axes in fold->axes; UINT32_MAX for a send or receive */
    AxisSet axis_set;
    int32_t hop;
    uint32_t match;
    uint32_t slot; /* slot of group 0; for a send or receive: slot of class 0 as the sender */
    uint64_t bytes;
    DType dtype;
    bool registered, back; /* the same as in Transfer */
    uint32_t layer;
} SimComm;

/* A burst: the host issues the instructions of a program in bursts. It does not wait within a
 * burst. Before each burst but the first one, it waits for the end of some earlier instructions. */
typedef struct HostBurst {
    Pc first;
    Ps length; /* how long the host takes to issue the instructions of the burst */
    uint32_t n_awaited;
} HostBurst;

/* A program in the form that the engine runs. It contains, for each instruction, how many
 * instructions must end first, and which instructions wait for it. */
typedef struct Code {
    uint32_t n; /* instructions have the numbers 1 to n - 1 */
    Step *step;
    Pc *successors;         /* the instructions that wait, each represented by the leader of its
                               group */
    uint32_t *need;         /* [pc] for leaders: how many instructions must end first */
    LIST(SimComm) comms;    /* entry 0 is unused */
    LIST(Pc) roots;         /* leaders that wait for nothing */
    LIST(HostBurst) bursts; /* has at least one burst */
    uint32_t n_alike;       /* instructions whose costs are those of an earlier one */
} Code;

/* Prepares all programs, and numbers the slots, one for each communication of a group. Returns the
 * number of slots, or UINT32_MAX after an error. */
uint32_t engine_compile(const Plan *plan, const EngineOptions *options, Arena *arena, Code *codes,
                        Diag *d);

/* A class of ranks that has reached a communication. `next` is the next entry of the list; 0 ends
 * it. */
typedef struct Arrival {
    uint32_t class_;
    Pc pc;
    uint32_t next;
} Arrival;

/* State of the engine when no event is left but some program has not ended. */
typedef struct Stuck {
    const Plan *plan;
    const Fold *fold;
    const Code *codes;
    const Timeline *line; /* [class] */
    /* the communications in these lists wait; all other instructions that were reached have
     * ended */
    const Arrival *arrivals;
    const uint32_t *slots;
    uint32_t n_slots;
} Stuck;
void engine_report_stuck(const Stuck *s, Diag *d);

#endif
