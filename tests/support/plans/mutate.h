/* Mutations of a plan: one collective, wait, scale or launch is deleted, duplicated, swapped,
 * retargeted or rescaled. Here is also an independent proof that a mutant computes the same as its
 * plan. */
#ifndef TANDEM_TESTS_MUTATE_H
#define TANDEM_TESTS_MUTATE_H

#include "planner/ir/plan.h"

/* The kinds of mutations, and what each of them changes. */
#define MUTATIONS(X)                                                                               \
    X(delete)        /* a communication is deleted */                                              \
    X(duplicate)     /* a communication is repeated directly after itself */                       \
    X(swap)          /* the next communication on the same stream comes first */                   \
    X(retarget_axes) /* the group of a communication gains or loses one mesh axis */               \
    X(retarget_in)   /* an instruction reads another buffer of the same size and dtype */          \
    X(retarget_out)  /* an instruction writes another buffer of the same size and dtype */         \
    X(shift_in)      /* the view that an instruction reads starts 64 elements later */             \
    X(shift_out)     /* the view that an instruction writes starts 64 elements later */            \
    X(restream)      /* an instruction runs on another stream */                                   \
    X(reduce)        /* a reduction takes the maximum instead of the sum, or the reverse */        \
    X(rescale)       /* attrs.scale is doubled; 0 becomes 2 */                                     \
    X(clip)          /* the clipping bound is halved */                                            \
    X(attribute)  /* an attribute changes, such as site, probability, group, beta or capacity */   \
    X(forward)    /* a gradient gets another mask than its forward node has */                     \
    X(retype)     /* an output is declared as integers of the same size */                         \
    X(accumulate) /* an output is added to instead of set, or the reverse */                       \
    X(count)      /* the range whose squares are summed is halved or doubled */                    \
    X(drop_wait)  /* one entry is removed from the list `after` */                                 \
    X(alter_wait) /* an entry of `after` names the directly preceding instruction instead */       \
    X(launch)    /* a communication leaves its group, or is grouped with the next of its stream */ \
    X(match)     /* a communication gets the match number of the next one */                       \
    X(rename)    /* two communications exchange their match numbers */                             \
    X(kernel)    /* a computation leaves its fused kernel, or joins the kernel before it */        \
    X(hop)       /* a send or receive names the peer on the other side */                          \
    X(strips)    /* strips are taken from another buffer of the same size */                       \
    X(adjoint)   /* rows are exchanged as values instead of partial sums, or the reverse */        \
    X(dimension) /* the other dimension of the field is named, or another number of parts */       \
    X(narrow)    /* the halo of a part has one row less on one side */
typedef enum MutationKind {
#define X(name) MUTATE_##name,
    MUTATIONS(X)
#undef X
        MUTATION_KINDS
} MutationKind;
/* The first of the mutations that only plans of fields have, because they concern halos. */
enum { MUTATIONS_OF_HALOS = MUTATE_strips };
const char *mutation_name(MutationKind kind);

typedef struct Mutation {
    MutationKind kind;
    uint32_t program;
    Pc pc;
    uint32_t choice; /* which axis, buffer, wait or output changes, as a number */
} Mutation;
typedef struct Mutations {
    LIST(Mutation) at;
} Mutations;

/* Returns all mutations of all programs. */
Mutations mutate_all(const Plan *plan, Arena *arena);
/* Returns a copy of the plan with copies of all arrays, so that the test may overwrite anything. */
Plan *mutate_copy(const Plan *plan, Arena *arena);
/* Returns the mutant. It shares with the plan what the mutation does not change. */
Plan *mutate(const Plan *plan, Mutation m, Arena *arena);
const char *mutation_text(const Plan *plan, Mutation m, Arena *arena);
/* Proves, from the programs alone, that the mutant computes bit for bit the same as the plan, if it
 * terminates. The proof needs two things. In the changed `program`, every two instructions that
 * touch the same bytes, at least one of them writing, must be ordered. In that order, all data that
 * is kept between steps or sent to other programs must have the same history. Returns false if
 * there is no proof. */
bool mutate_proves_equal(const Plan *plan, const Plan *mutant, uint32_t program, Arena *scratch);

#endif
