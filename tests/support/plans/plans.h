/* Tiny plans made by hand, instruction by instruction, for tests of code that reads plans. */
#ifndef TANDEM_TESTS_PLANS_H
#define TANDEM_TESTS_PLANS_H

#include "planner/ir/plan.h"

/* Returns an empty plan. sizes: the size of each axis by AxisName; NULL: one rank. */
Plan *plans_new(Arena *arena, const uint32_t *sizes);
/* Adds a program that every rank runs. The returned pointer is valid until another program is
 * added. */
Program *plans_program(Plan *plan);
/* Adds a root buffer of `n` elements, which is not split. */
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

/* Returns a plan in which every field of some record is set. It is not a valid plan: it has 8
 * ranks, two programs, deals of all kinds, and names that need escapes. */
Plan *plans_everything(Arena *arena);
/* Returns a tensor-parallel linear on tp 2: x [4,8,16] f32, w [16,32] SPLIT(1), y, and the
 * all_reduce of a row-cut second linear, which accumulates its weight's gradient. */
Plan *plans_linear(Arena *arena);

/* Returns true if the plans are equal in every list and number, except those that only passes read.
 * Names are compared as text. Prints the first difference. */
bool plans_equal(const Plan *a, const Plan *b);

#endif
