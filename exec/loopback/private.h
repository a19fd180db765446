/* Declarations that only the files of the loopback backend use. */
#ifndef TANDEM_EXEC_LOOPBACK_PRIVATE_H
#define TANDEM_EXEC_LOOPBACK_PRIVATE_H

#include "exec/ready.h"

enum { MAX_GROUP = 1024 }; /* largest number of members in a communication */

typedef struct Member {
    Rank rank;
    Pc pc;
} Member;

/* One communication of one group of ranks. Each rank of the group has one instruction for it, a
 * member, and these instructions have the same match number. Meeting 0 is unused. */
typedef struct LoopbackMeeting {
    uint32_t first, n_members, n_expected; /* the communication's members are members first to first
                                              + n_members - 1 of Loopback.members, in the order of
                                              their parts */
    uint32_t n_arrived;
    bool is_moved; /* the bytes have been moved, but the communication has not ended */
    Ps start;
} LoopbackMeeting;

/* An event that may happen next. */
typedef struct LegalStep {
    Rank rank;
    Pc pc; /* number of a local instruction that may start */
    /* if not 0, the event belongs to this communication, whose members have all arrived: its bytes
     * may be moved, or it may end */
    uint32_t meeting;
} LegalStep;

typedef struct Loopback {
    Arena *arena;
    const Plan *plan;
    BackendOptions options;
    Control control;
    RankState *ranks;
    uint32_t n_ranks;
    Member *members;
    LoopbackMeeting *meetings;
    uint32_t n_meetings;
    uint32_t **meeting_of; /* [rank][pc]: index in `meetings` of the instruction's communication */
    bool **finished;       /* [rank][pc]: the instruction has finished in this step */
    LegalStep *ready;      /* the events that may happen next; the seed chooses one of them */
    uint32_t n_ready, room;
    Pc *next;
    /* counters of the step in progress */
    uint64_t n_left, n_draws, n_steps;
    Trace *trace;
    BadNumber *bad;
    Ps step_start;
} Loopback;

/* ---- open.c ---- */
bool loopback_open(Backend *self, const Plan *plan, const BackendOptions *options, Diag *d);
/* ---- stuck.c ---- Reports each rank that waits, and the instruction for which it waits.
 * Returns false. */
bool loopback_report_stuck(const Loopback *l, Diag *d);

#endif
