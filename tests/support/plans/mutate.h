/* Mutations of a plan: one collective, wait, scale or launch is deleted, duplicated, swapped,
 * retargeted or rescaled. Also an independent proof that a mutant is equivalent to the plan. */
#ifndef TANDEM_TESTS_MUTATE_H
#define TANDEM_TESTS_MUTATE_H

#include "planner/ir/plan.h"

#define MUTATIONS(X)                                                                               \
    X(delete)        /* a communication */                                                         \
    X(duplicate)     /* a communication, repeated directly after itself */                         \
    X(swap)          /* the next communication of the same stream comes before it */               \
    X(retarget_axes) /* its group gains or loses one mesh axis */                                  \
    X(retarget_in)   /* another buffer of the same size and dtype is read */                       \
    X(retarget_out)  /* another buffer of the same size and dtype is written */                    \
    X(shift_in)      /* a view starts 64 elements later */                                         \
    X(shift_out)                                                                                   \
    X(restream)  /* the instruction runs on another stream */                                      \
    X(reduce)    /* the maximum instead of the sum, and the reverse */                             \
    X(rescale)   /* attrs.scale times 2, or 2 instead of 0 */                                      \
    X(clip)      /* the clipping bound is halved */                                                \
    X(attribute) /* another site, probability, smoothing, group, count, beta, segment, capacity */ \
    X(forward)   /* the node that it executes draws its own mask */                                \
    X(retype)    /* its output is declared as integers of the same size */                         \
    X(accumulate) /* it adds instead of setting, and the reverse */                                \
    X(count)      /* the range whose squares are summed is halved or doubled */                    \
    X(drop_wait)  /* `after` omits one predecessor */                                              \
    X(alter_wait) /* an entry of `after` names the instruction directly before instead */          \
    X(launch)     /* launched alone instead of in a group, or in a group with the next of its      \
                   * stream */                                                                     \
    X(match)      /* gets the match number of the next communication */                            \
    X(rename)     /* exchanges the match numbers of two communications */                          \
    X(kernel)     /* fused into one kernel with the computation before it, or no longer */         \
    X(hop)        /* a send or receive names the peer on the other side */                         \
    X(strips)     /* joins or folds strips that it sent, or other strips of the same size */       \
    X(adjoint)    /* exchanges rows as values instead of partial sums, and the reverse */          \
    X(dimension)  /* names the other dimension of the field, or another number of parts */         \
    X(narrow)     /* a halo with one row less, on one side of a part */
typedef enum MutationKind {
#define X(name) MUTATE_##name,
    MUTATIONS(X)
#undef X
        MUTATION_KINDS
} MutationKind;
/* The first of the mutations of halos, which only plans of fields have. */
enum { MUTATIONS_OF_HALOS = MUTATE_strips };
const char *mutation_name(MutationKind kind);

typedef struct Mutation {
    MutationKind kind;
    uint32_t program;
    Pc pc;
    uint32_t choice; /* number of the axis, buffer, wait or output */
} Mutation;
typedef struct Mutations {
    LIST(Mutation) at;
} Mutations;

/* All mutations of all programs. */
Mutations mutate_all(const Plan *plan, Arena *arena);
/* Returns a copy of the plan with copies of all arrays, so that the test may overwrite anything. */
Plan *mutate_copy(const Plan *plan, Arena *arena);
/* Returns the mutant; it shares unchanged parts with the plan. */
Plan *mutate(const Plan *plan, Mutation m, Arena *arena);
const char *mutation_text(const Plan *plan, Mutation m, Arena *arena);
/* Proves, from the programs alone, that the mutant computes bit for bit the same as the plan, if it
 * terminates. In the changed `program`, every two instructions that touch the same bytes, one of
 * them writing, must be ordered (exact reachability). In that order, all data that is kept between
 * steps or sent to other programs must have the same history. Returns false if there is no
 * proof. */
bool mutate_proves_equal(const Plan *plan, const Plan *mutant, uint32_t program, Arena *scratch);

#endif
