/* Shared by engine.c, engine_compile.c and engine_stuck.c only. */
#ifndef TANDEM_SIM_ENGINE_PRIVATE_H
#define TANDEM_SIM_ENGINE_PRIVATE_H

#include "sim/heap.h"
#include "sim/sim.h"

/* One instruction as the engine sees it. `head` is the first member of its launch group, or the
 * instruction itself if it starts alone. The members of a group wait and start together. */
typedef struct Step {
    Ps duration;    /* compute */
    uint32_t layer; /* the layer whose experts' rows it computes; 0: none, or all ranks have the
                     * same loads */
    /* earliest start, from the start of the host's `part`; in a head, of the whole launch group */
    Ps issued;
    uint32_t part; /* in Code.parts; in a head, the part that issues its last member */
    uint32_t lets; /* the part before which the host waits for this instruction's end; 0: none */
    bool on_host;  /* touches host memory, so it uses none of the device's cores */
    uint32_t successors; /* first in Code.successors; the list ends where the next step's begins */
    uint32_t comm;       /* in Code.comms; 0: compute */
    Pc next_in_launch;   /* 0: the last one */
    Pc head;
} Step;

typedef struct SimComm {
    OpKind op;
    uint32_t axes; /* index in fold->axes; send/recv: UINT32_MAX */
    AxisSet axis_set;
    int32_t hop;
    uint32_t match;
    uint32_t slot; /* slot of group 0 (send/recv: of sender class 0) */
    uint64_t bytes;
    DType dtype;
    bool registered, back; /* back, layer: as in Transfer */
    uint32_t layer;
} SimComm;

/* The host issues a program in parts. Before each part except the first, it waits for the end of
 * some earlier instructions. */
typedef struct HostPart {
    Pc first;
    Ps length; /* the host's time to issue its instructions */
    uint32_t n_awaited;
} HostPart;

/* A program ready to run: for each pc, the instructions that wait for it, and the number of events
 * that it waits for. */
typedef struct Code {
    uint32_t n; /* pcs 1..n-1 */
    Step *step;
    Pc *successors;       /* heads of launch groups */
    uint32_t *need;       /* [pc] for heads: number of events (ends of instructions) that must come
                           * first */
    LIST(SimComm) comms;  /* [0] none */
    LIST(Pc) roots;       /* heads that wait for nothing */
    LIST(HostPart) parts; /* at least one */
} Code;

/* Compiles every program and numbers the slots of each rendezvous. Returns the number of slots,
 * or UINT32_MAX after reporting an error. */
uint32_t engine_compile(const Plan *plan, const EngineOptions *options, Arena *arena, Code *codes,
                        Diag *d);

/* A class that has reached a rendezvous; an element of a list (next 0: the end). */
typedef struct Arrival {
    uint32_t class_;
    Pc pc;
    uint32_t next;
} Arrival;

/* The state of an engine when no event is left although some program has not ended. */
typedef struct Stuck {
    const Plan *plan;
    const Fold *fold;
    const Code *codes;
    const Timeline *line;    /* [class] */
    const Arrival *arrivals; /* the instructions in the lists of the slots have not begun; all other
                              * instructions that were reached have ended */
    const uint32_t *slots;
    uint32_t n_slots;
} Stuck;
void engine_report_stuck(const Stuck *s, Diag *d);

#endif
