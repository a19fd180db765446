/* The device must have a kernel for every instruction of the corpus. The double of CUDA cannot test
 * that, because it computes with the CPU's kernels, which accept more types. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "exec/ready.h"
#include "kernels/cuda/cuda.h"
#include "planner/passes/passes.h"
#include "tests/support/corpus/corpus.h"
#include "tests/support/sample.h"

typedef struct Count {
    uint32_t seen, plans, instructions, refused;
} Count;

static bool accepted(const Program *p, const Instr *in)
{
    DType dtype[MAX_ARGS];
    for (uint32_t i = 0; i < in->args.n; i++) dtype[i] = p->buffers.at[program_arg(p, in, i)].dtype;
    return kernel_cuda_accepts(in->op, dtype, in->args.n);
}

static void look(Count *count, const Plan *plan, const Tiny *t, Arena *arena)
{
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            if (in->op == OP_none || op_info(in->op)->class_ == OP_CLASS_comm) continue;
            /* the device has no kernels for products with block scales (missing.h) */
            if (kernel_cuda(in->op) == NULL || op_info(in->op)->flags & OP_BLOCKS) continue;
            /* these run on the CPU */
            if (in->stream == STREAM_host || op_info(in->op)->flags & OP_SOURCE) continue;
            count->instructions++;
            if (accepted(p, in)) continue;
            if (count->refused++ < 5)
                print_error("%s: %s\n", corpus_name(t, arena), instr_text(plan, p, pc, arena));
        }
    }
}

static void visit(void *self, const Tiny *t)
{
    Count *count = self;
    if (!is_sampled(count->seen++, 4)) return;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny of_device = *t;
    if (t->compute == DT_f64) of_device.compute = DT_f32;
    Config *config = arena_alloc(arena, sizeof *config);
    Graph graph;
    LowerOptions options = lower_options_default();
    options.workspace = kernel_cuda_workspace;
    tiny_build(&of_device, arena, config, &graph);
    const Plan *plan = plan_compile(config, &graph, &options, NULL, arena, &d);
    assert_non_null(plan);
    count->plans++;
    look(count, plan, t, arena);
    arena_free(arena);
}

static void every_instruction_has_a_kernel(void **state)
{
    (void)state;
    Count count = {0, 0, 0, 0};
    corpus_each(visit, &count);
    corpus_experts(visit, &count);
    corpus_context(visit, &count);
    corpus_frozen(visit, &count);
    assert_true(count.plans > SAMPLE(500, 125) && count.instructions > SAMPLE(100000, 25000));
    assert_int_equal(count.refused, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_instruction_has_a_kernel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
