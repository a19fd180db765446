/* Declarations that only the files engine*.c and the folder leap use. */
#ifndef TANDEM_SIM_ENGINE_PRIVATE_H
#define TANDEM_SIM_ENGINE_PRIVATE_H

#include "sim/heap.h"
#include "sim/sim.h"

/* An instruction in the form that the engine uses. The members of a launch group (Instr.launch)
 * wait together and start together. `leader` is the first member of the group; an instruction
 * without a group is its own leader. */
typedef struct Step {
    Ps duration; /* time of a compute instruction; 0 for a communication */
    /* the layer whose rows of experts the instruction computes, as in imbalance_layer; 0: none, or
     * all ranks have equal loads */
    uint32_t layer;
    /* earliest start, counted from the beginning of the burst below; for a leader, the earliest
     * start of the whole group */
    Ps issued;
    /* A burst is a sequence of instructions that the host issues without waiting (HostBurst). This
     * is the index of the instruction's burst; for a leader, that of the group's last member. */
    uint32_t burst;
    /* index of the burst that the host begins only after the end of this instruction; 0: the host
     * never waits for this instruction */
    uint32_t lets;
    bool left_out; /* the modelled system leaves the instruction out */
    bool on_host;  /* the instruction uses the host's memory, and therefore no SM of the device */
    /* first entry of its list in Code.successors; the list ends where the list of the next step
     * begins */
    uint32_t successors;
    uint32_t comm;     /* index of its entry in Code.comms; 0: it is a computation */
    Pc next_in_launch; /* the next member of the group; 0: none */
    Pc leader;
} Step;

typedef struct SimComm {
    OpKind op;
    uint32_t axes; /* index of its set of axes in fold->axes; UINT32_MAX for a send or receive */
    AxisSet axis_set;
    int32_t hop;
    uint32_t match;
    /* slot of the group with index `first_group`; for a send or receive: slot of class 0 as the
     * sender */
    uint32_t slot, first_group;
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
    uint32_t n_alike;       /* number of instructions whose costs were copied from an earlier one */
} Code;

/* Prepares all programs. Gives each communication of each group a slot (engine_compile.c). Returns
 * how many slots there are, or UINT32_MAX after an error. */
uint32_t engine_compile(const Plan *plan, const EngineOptions *options, Arena *arena, Code *codes,
                        Diag *d);

/* A class of ranks that has reached a communication. `next` is the next entry of the list; 0 ends
 * it. */
typedef struct Arrival {
    uint32_t class_;
    Pc pc;
    uint32_t next;
} Arrival;

typedef struct Leap Leap;

typedef struct Transit {
    uint32_t arrivals; /* list of the members that have arrived */
    uint32_t next_free;
} Transit;

typedef struct Engine {
    const Plan *plan;
    const EngineOptions *options;
    const Fold *fold;
    const Code *codes;
    const Code **code_of; /* [class] */
    Heap heap;            /* a: class, b: an instruction, perhaps with the bit ISSUE */
    uint32_t *slots;      /* [slot]: list of the members that wait there */
    uint32_t *gathered;   /* [slot]: how many members have arrived */
    uint32_t n_slots;
    LIST(Arrival) arrivals;
    uint32_t free_arrival;
    LIST(Transit) transits; /* by the number of the transfer */
    uint32_t free_transit;
    /* by the number of the job; a job is a compute instruction that options->device times */
    LIST(Arrival) jobs;
    uint32_t free_job;
    /* If net_changed or device_changed is true, the engine must ask that model again for its next
     * event. If only the device has changed, the network's next event remains the same, unless both
     * share the cores of the host. If the network has changed, the device is asked, too, because
     * transfers slow kernels down. */
    bool net_changed, device_changed, net_busy, device_busy;
    uint32_t net_id, device_id;
    Ps net_when, device_when;
    Ps now, step_start;
    uint64_t n_ended;
    Timeline *line;     /* [class] */
    HostLine *host;     /* [class]: when each burst of the host began */
    uint32_t **awaited; /* [class][burst]: for how many instructions the host still waits before it
                           begins the burst */
    Ps *end_ps;
    Arena *arena;
    uint32_t n_left_out; /* number of periods (leap/leap.c) that were left out */
    Leap *leap;          /* NULL: no micro-batches are left out any more in this step */
} Engine;

/* A bit in Event.b. If it is set, the host has issued the instruction; otherwise the instruction
 * has ended. */
static const Pc ISSUE = UINT32_C(1) << 31;

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

/* ---- leap/leap.c: leaves out micro-batches that repeat the ones before them ---- */

/* A point of the simulation: class 0 begins the backward work of a micro-batch. */
typedef struct LeapMark {
    Ps at;            /* time since the start of the step */
    uint32_t *begun;  /* [class]: how many instructions it has begun */
    uint32_t *bursts; /* [class]: how many bursts its host has begun */
} LeapMark;

enum { LEAP_MARKS = 4 };
struct Leap {
    Pc **begun;        /* [class]: the instructions that it has begun, in order of time */
    uint32_t *n_begun; /* [class] */
    Pc *marks; /* the instructions of class 0 at which the next marks lie; 0 ends the list */
    bool due;  /* a mark is passed at this instant */
    uint32_t n_passed, n_failed,
        next_try; /* next_try: no attempt is made before n_passed has reached this value */
    LeapMark mark[LEAP_MARKS]; /* the newest marks, the newest last */
};

/* Returns NULL if the plan has too few micro-batches. */
Leap *leap_new(const Engine *e);
/* Records that a class begins an instruction. */
static inline void leap_note(Leap *l, uint32_t class_, Pc pc)
{
    l->begun[class_][l->n_begun[class_]++] = pc;
    if (class_ == 0 && pc == *l->marks) l->due = true;
}
/* True if leap_pass must be called before the time advances. */
static inline bool leap_is_due(const Leap *l)
{
    return l->due;
}
/* Passes a mark. If the newest periods are equal, leaves out the periods that would be equal to
 * them. No event of the present instant may be left. */
void leap_pass(Engine *e);

#endif
