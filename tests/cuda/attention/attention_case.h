/* Instructions of attention and its gradient, with their data in the types of the target's kernels,
 * and in fp64 for the CPU kernels. */
#ifndef TANDEM_TESTS_CUDA_ATTENTION_CASE_H
#define TANDEM_TESTS_CUDA_ATTENTION_CASE_H

#include "planner/base/arena.h"
#include "tests/cuda/target.h"

typedef struct AttentionCase {
    DType dtype;
    int64_t b, s, T, g, r, E;
    int64_t start_s; /* queries are [start_s, start_s + s) of the whole sequence */
    bool causal;
    double drop;
    bool accumulate;
    int64_t second_s; /* if not 0: the second half of the queries is [second_s, second_s + s / 2) */
} AttentionCase;

typedef struct AttentionRun {
    Arena *arena;
    const AttentionCase *c;
    OpKind op;
    Binding *binding; /* the binding of the whole sequence */
    KernelArgs device, cpu;
    uint32_t n_in, n_out;
} AttentionRun;

/* Makes the arguments of the forward pass in the target's memory, between guards (compare.h). */
AttentionRun attention_run(Arena *arena, const AttentionCase *c, const Control *control);
/* Makes the arguments of the gradient. Its inputs q, k, v, out and lse are the CPU's numbers of the
 * forward run. */
AttentionRun gradient_run(Arena *arena, const AttentionCase *c, const Control *control,
                          const AttentionRun *forward);

/* Copies argument i from the run of all queries into a run of only some of them. */
void attention_take_rows(const AttentionRun *run, const AttentionRun *whole, uint32_t i);

/* Returns true if argument i, an output, agrees with the CPU's result within the precision of its
 * type. Otherwise *why describes the difference. */
enum { ATTENTION_WHY = 128 };
bool attention_is_near(const AttentionRun *run, uint32_t i, char why[ATTENTION_WHY]);

#endif
