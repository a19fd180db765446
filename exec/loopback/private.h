/* What the files of the loopback backend share. */
#ifndef TANDEM_EXEC_LOOPBACK_PRIVATE_H
#define TANDEM_EXEC_LOOPBACK_PRIVATE_H

#include "exec/ready.h"

enum { MAX_GROUP = 1024 }; /* members of a communication */

typedef struct Member {
    Rank rank;
    Pc pc;
} Member;

/* One communication of one group: the instructions with the same match that meet. [0] is none. */
typedef struct Meeting {
    uint32_t first, n_members, n_expected; /* members, in the order of their parts */
    uint32_t n_arrived;
    bool is_moved; /* the bytes are where they should be */
    Ps start;
} Meeting;

typedef struct Event {
    Rank rank;
    Pc pc;            /* a local instruction that may start */
    uint32_t meeting; /* or a communication that all have reached: it may move, then end */
} Event;

typedef struct Loopback {
    Arena *arena;
    const Plan *plan;
    BackendOptions options;
    Control control;
    RankState *ranks;
    uint32_t n_ranks;
    Member *members;
    Meeting *meetings;
    uint32_t n_meetings;
    uint32_t **meeting_of; /* [rank][pc] */
    bool **finished;       /* [rank][pc] */
    Event *ready;          /* what may happen next */
    uint32_t n_ready, room;
    Pc *next;
    /* of the step in progress */
    uint64_t n_left, n_draws, n_steps;
    Trace *trace;
    BadNumber *bad;
    Ps step_start;
} Loopback;

/* ---- loopback_open.c ---- */
bool loopback_open(Backend *self, const Plan *plan, const BackendOptions *options, Diag *d);
/* ---- loopback_stuck.c ---- which ranks wait for what; returns false */
bool loopback_report_stuck(const Loopback *l, Diag *d);

#endif
