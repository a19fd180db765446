/* Copies of equal actions. An action is the forward or backward work of one stage for one
 * micro-batch. When it starts, the state of the lowering may equal the state at the start of the
 * same action for an earlier micro-batch, except for the ids of buffers and instructions. Lowering
 * it would then emit the same instructions with other buffers. So the instructions are copied
 * instead. Waits that follow from buffers are not copied: lower_append finds them again. Waits that
 * the lowering requested (NamedWaits) are copied, with the ids of the present state.
 *
 * The lowering also compares ids of instructions with each other, as in max(last_reduce, reduced).
 * So these ids must have the same order in both states. Instructions of the action itself have
 * larger ids than all those to which the state refers.
 *
 * An action that computes a value of the whole step is neither copied nor used as an original (an
 * action from which later ones are copied). */
#ifndef TANDEM_LOWER_ACTIONS_H
#define TANDEM_LOWER_ACTIONS_H

#include "planner/lower/blocks/steps.h"

/* Prepares the copying of actions. It must be called after all other decisions that precede the
 * writing of the program. */
void actions_prepare(Lower *l);

/* Call this at the start of an action, after l->microbatch is set. Either copies its instructions
 * and returns true, or returns false: the caller then lowers the nodes, and calls actions_end. */
bool actions_copy(Lower *l, uint32_t stage, ActionKind kind);
/* Call this after the last node of an action for which actions_copy returned false. */
void actions_end(Lower *l, uint32_t stage, ActionKind kind);

/* ---- original.c: the state of the lowering around an action */

/* A copy of a version, and its index in Values.versions. */
typedef struct OldVersion {
    Version version;
    uint32_t number;
} OldVersion;

/* The values of one tensor. StageState.old has its chain of versions, from `first` on, and then its
 * chain of partial sums. */
typedef struct TensorState {
    uint32_t first, n_versions, n_sums;
    GradState grad;
    uint32_t arrived;
    BufferId weight_view, grad_view;
} TensorState;

/* The members of the state that are single numbers, and the gradients that wait for their
 * accumulation (Pending). */
typedef struct Numbers {
    Counters counters;
    Fixed fixed;
    Pc computed; /* the newest computation */
} Numbers;

/* The part of the state that actions of one stage read or change. */
typedef struct StageState {
    Numbers numbers;
    LIST(OldVersion) old;
    bool shares;     /* true if several gradients shared one of their buffers */
    TensorState *of; /* [i]: of the i-th tensor of the stage */
    UnitState *unit; /* [i]: of the i-th unit */
} StageState;

/* The values of a tensor after an action that changed them. */
typedef struct TensorEnd {
    uint32_t i; /* its place in the list of the stage's tensors */
    uint32_t versions_of;
    GradState grad;
    uint32_t arrived; /* how many contributions the action added */
    BufferId weight_view, grad_view;
} TensorEnd;

/* An action that was lowered node by node, with the state of the lowering before and after it. For
 * each stage and kind, only the newest such action is kept. */
typedef struct Original {
    bool is_usable;
    uint32_t n_unusable; /* the number of actions so far that could not serve as originals */
    uint32_t microbatch;
    Lower before; /* when the action began */
    StageState start;
    Pc first_code, end_code;
    BufferId first_buffer, end_buffers;
    uint32_t first_version, n_losses;
    uint32_t first_named, end_named; /* its NamedWaits */
    uint32_t end_uses;               /* the action has read Units.uses up to this index */
    /* copies of the versions and shares that the action appended to the lists of Lower, where later
     * actions may change them */
    LIST(Version) versions;
    LIST(SharedGrad) shares;
    Numbers numbers;         /* at the end */
    LIST(TensorEnd) changed; /* the tensors that the action changed */
    UnitState *unit;         /* [place in items->units]: at the end */
    TensorId first_had, end_had;
} Original;

/* A parameter: its place in the list of tensors, and that of its unit in the list of units. */
typedef struct ParamItem {
    uint32_t tensor, unit;
} ParamItem;

/* The tensors that nodes of a stage read or write, with all parameters of its units. Units are
 * those of all stages of this rank, because an action also gathers units for the next action. */
typedef struct StageItems {
    LIST(TensorId) tensors;
    LIST(UnitId) units;
    LIST(ParamItem) params;
} StageItems;

/* Stores the state before and after the action. `original_end` finds out whether the action can
 * serve as an original. */
void original_begin(Lower *l, const StageItems *items, Original *p);
void original_end(Lower *l, const StageItems *items, Original *p);

/* Buffers or versions of the original's micro-batch, and their counterparts in the current one. */
typedef struct Counterparts {
    uint32_t *to, *from; /* to[x]: 1 + the counterpart of x; from[y]: 1 + the x whose counterpart is
                            y; 0: there is none */
    uint32_t room;
    LIST(uint32_t) known; /* the ids that have a counterpart */
} Counterparts;

/* An instruction to which the state of the original refers, and its counterpart. */
typedef struct PcPair {
    Pc of, to;
} PcPair;

/* All buffers, versions and instructions to which the state refers, with their counterparts. */
typedef struct Moves {
    Counterparts buffers, versions;
    LIST(PcPair) pcs; /* in increasing order of `of`, and of `to` */
} Moves;

/* Compares the present state with the state at the start of the original. If they are equal except
 * for ids, returns true and sets *moves to the counterparts of all ids in the state. */
bool original_matches(const Lower *l, const StageItems *items, const Original *p, Moves *moves);
/* Sets *to to the counterpart of instruction `of`. Returns false if there is none. */
bool moves_pc(const Moves *moves, Pc of, Pc *to);
Numbers original_numbers(const Lower *l);
/* Returns the counterpart of `number`, or 0. */
static inline uint32_t counterpart_of(const Counterparts *c, uint32_t number)
{
    return c->to[number] ? c->to[number] - 1 : 0;
}
/* Forgets all counterparts, and makes room for ids below n. */
void counterparts_clear(Counterparts *c, uint32_t n, Arena *arena);

#endif
