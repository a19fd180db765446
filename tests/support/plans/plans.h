/* Tiny plans made by hand, instruction by instruction, for tests of code that reads plans. */
#ifndef TANDEM_TESTS_PLANS_H
#define TANDEM_TESTS_PLANS_H

#include "planner/ir/plan.h"

/* Returns an empty plan. `sizes` holds the size of each axis by AxisName; NULL: the plan is for one
 * rank. */
Plan *plans_new(Arena *arena, const uint32_t *sizes);
/* Adds a program that every rank runs. The returned pointer is valid until another program is
 * added. */
Program *plans_program(Plan *plan);
/* Adds a root buffer with `n` elements that is not split. */
BufferId plans_flat(Plan *plan, Program *p, int64_t n, DType dtype, Category category);
BufferId plans_buffer(Plan *plan, Program *p, const Shape *shape, DType dtype, Category category);
BufferId plans_view(Plan *plan, Program *p, BufferId parent, const Shape *shape, uint64_t offset);

typedef struct PlansInstr {
    OpKind op;
    Stream stream;
    AxisSet axes;
    uint32_t launch, match, microbatch;
    Phase phase;
    BufferId in[MAX_IN], out[MAX_OUT]; /* 0 ends each list */
    Pc after[8];                       /* 0 ends the list */
    Attrs attrs;
    NodeId origin;
} PlansInstr;
Pc plans_instr(Plan *plan, Program *p, const PlansInstr *instr);

/* Returns a plan in which every field is set in at least one record. It has 8 ranks, two programs,
 * deals of all kinds, and names that need escapes. It is not a valid plan. */
Plan *plans_everything(Arena *arena);
/* Returns a tensor-parallel linear on tp 2: x [4,8,16] f32, w [16,32] SPLIT(1), and y. A second
 * linear, cut by rows, needs an all_reduce. It accumulates its weight's gradient. */
Plan *plans_linear(Arena *arena);

/* Returns true if the plans are equal in every list and number, except those that only passes read.
 * Compares names as text. Otherwise prints the first difference. */
bool plans_equal(const Plan *a, const Plan *b);

#endif
