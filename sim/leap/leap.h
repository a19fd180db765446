/* An attempt to leave out micro-batches. Only the files leap*.c use these declarations. A period
 * lasts from the first backward instruction of one micro-batch to that of the next one (leap.c). A
 * leap leaves out periods that repeat those before them. */
#ifndef TANDEM_SIM_LEAP_LEAP_H
#define TANDEM_SIM_LEAP_LEAP_H

#include "sim/engine_private.h"

/* State of an instruction. pending: all that it waits for has ended, but the host has not issued it
 * yet. waits: a communication whose members have not all arrived. */
typedef enum LeapState {
    STATE_none,
    STATE_pending,
    STATE_waits,
    STATE_runs,
    STATE_ended
} LeapState;

/* A class, one of the simulated ranks (fold.h), during an attempt. z, a and b: the instructions
 * that it has begun in each of the three newest periods, the oldest period first. */
typedef struct LeapClass {
    const Code *code;
    const Program *program;
    const Timeline *line;
    HostLine *host;
    const Pc *z, *a, *b;
    Pc length;       /* number of instructions in a period */
    Pc old;          /* all instructions before this one had ended before `a` began */
    uint32_t bursts; /* number of bursts (HostBurst) that the host begins in a period */
    Ps issue;        /* by how much Step.issued grows from one period to the next */
    bool late;       /* an instruction of `a` or `b` waited for the host */
    bool knows_issue;
    uint8_t *state;   /* [pc] LeapState */
    Pc *previous;     /* [pc]: the instruction before it on its stream; 0: none */
    uint32_t *met;    /* [pc]: Moment.met after the leap */
    uint32_t *awaits; /* [burst]: Engine.awaited after the leap */
} LeapClass;

typedef struct Attempt {
    Engine *e;
    const LeapMark *mark; /* the newest four */
    Arena *scratch;
    Ps length;
    LeapClass *of;       /* [class] */
    uint32_t *next_slot; /* [slot]: 1 + slot of the same communication one period later */
    uint32_t n;          /* how many periods are left out */
} Attempt;

/* An instruction in progress. pc: points to the engine's own variable that names it. when: the time
 * at which the host issues it, if it is pending. */
typedef struct InProgress {
    LeapState state;
    uint32_t class_;
    Pc *pc;
    Pc flag; /* a bit of *pc that belongs to the event */
    Ps when;
} InProgress;
typedef LIST(InProgress) InProgressList;

/* ---- leap_code.c ---- */

/* Finds how many periods after the newest ones are equal to them in the programs of all classes,
 * and sets t->n to the number that may be left out. Returns false if it is too small. */
bool leap_find_number(Attempt *t);

/* ---- leap_go.c ---- */

/* Leaves out t->n periods. Returns false, and changes nothing in the engine, if the engine could
 * never be in the state that would follow. */
bool leap_go(Attempt *t, const InProgressList *list);

#endif
