/* Instructions of attention and its gradient, with numbers of their own: as a target's kernels get
 * them, and for the CPU kernels in fp64. */
#ifndef TANDEM_TESTS_CUDA_ATTENTION_CASE_H
#define TANDEM_TESTS_CUDA_ATTENTION_CASE_H

#include "planner/base/arena.h"
#include "tests/cuda/target.h"

typedef struct AttentionCase {
    DType dtype;
    int64_t b, s, T, g, r, E;
    int64_t start_s; /* queries are [start_s, start_s + s) of the whole */
    bool causal;
    double drop;
    bool accumulate;
    int64_t second_s; /* but for 0: from query s / 2 on [second_s, second_s + s / 2) */
} AttentionCase;

typedef struct AttentionRun {
    Arena *arena;
    const AttentionCase *c;
    OpKind op;
    Binding *binding; /* of the whole */
    KernelArgs device, cpu;
    uint32_t n_in, n_out;
} AttentionRun;

/* Arguments in the target's memory, between guards: compare.h. */
AttentionRun attention_run(Arena *arena, const AttentionCase *c, const Control *control);
/* From the forward run's results, which its CPU side holds. */
AttentionRun gradient_run(Arena *arena, const AttentionCase *c, const Control *control,
                          const AttentionRun *forward);

/* Argument i of a run with some of the queries has the numbers of one with all of them. */
void attention_take_rows(const AttentionRun *run, const AttentionRun *whole, uint32_t i);

/* Is output i (an argument) as near to the CPU's as its type lets it be? *why tells if not. */
enum { ATTENTION_WHY = 128 };
bool attention_is_near(const AttentionRun *run, uint32_t i, char why[ATTENTION_WHY]);

#endif
