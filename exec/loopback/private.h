/* Declarations that only the files of the loopback backend share. */
#ifndef TANDEM_EXEC_LOOPBACK_PRIVATE_H
#define TANDEM_EXEC_LOOPBACK_PRIVATE_H

#include "exec/ready.h"

enum { MAX_GROUP = 1024 }; /* the most members of a communication */

typedef struct Member {
    Rank rank;
    Pc pc;
} Member;

/* A communication of one group: the instructions with the same match. Number 0 is unused. */
typedef struct LoopbackMeeting {
    uint32_t first, n_members, n_expected; /* members, in the order of their parts */
    uint32_t n_arrived;
    bool is_moved; /* the data has been moved */
    Ps start;
} LoopbackMeeting;

typedef struct LegalStep {
    Rank rank;
    Pc pc; /* a local instruction that may start */
    /* if not 0: instead of the instruction, a communication whose members have all arrived; it may
     * move its data, or end */
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
    uint32_t **meeting_of; /* [rank][pc] */
    bool **finished;       /* [rank][pc] */
    LegalStep *ready;      /* steps that may happen next */
    uint32_t n_ready, room;
    Pc *next;
    /* counters of the current step */
    uint64_t n_left, n_draws, n_steps;
    Trace *trace;
    BadNumber *bad;
    Ps step_start;
} Loopback;

/* ---- loopback_open.c ---- */
bool loopback_open(Backend *self, const Plan *plan, const BackendOptions *options, Diag *d);
/* ---- loopback_stuck.c ---- Reports the ranks that wait, each with the instruction for which it
 * waits; returns false. */
bool loopback_report_stuck(const Loopback *l, Diag *d);

#endif
