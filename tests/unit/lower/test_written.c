/* A run checks that it wrote the memory that its plan states. For that, a plan states where the
 * bytes end that every step writes. Above this end lie scratch, which a library need not fill, and
 * buffers between the parts of one kernel. A plan without such buffers writes the whole arena. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/plans/tiny.h"

enum { SCRATCH = 1 << 22 };

static uint64_t for_products(OpKind op, const DType *dtype, const int64_t *elements, uint32_t n)
{
    (void)dtype, (void)elements, (void)n;
    return op_info(op)->class_ == OP_CLASS_contract ? SCRATCH : 0;
}

static uint64_t none(OpKind op, const DType *dtype, const int64_t *elements, uint32_t n)
{
    (void)op, (void)dtype, (void)elements, (void)n;
    return 0;
}

static const Program *program_of(bool compile, WorkspaceBytes workspace, Arena *arena)
{
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    Config *config = arena_alloc(arena, sizeof *config);
    Graph graph;
    LowerOptions options = lower_options_default();
    t.compile = compile;
    options.workspace = workspace;
    tiny_build(&t, arena, config, &graph);
    const Plan *plan = plan_compile(config, &graph, &options, NULL, arena, &d);
    assert_non_null(plan);
    return &plan->programs.at[0];
}

static void scratch_does_not_count_as_written(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Program *plain = program_of(false, none, arena);
    assert_int_equal(plan_written_bytes(plain), plain->bytes);
    const Program *with = program_of(false, for_products, arena);
    assert_true(with->bytes >= SCRATCH); /* no other buffer is as large as the scratch */
    assert_true(plan_written_bytes(with) <= with->bytes);
    for (BufferId b = 1; b < with->buffers.n; b++) {
        const Buffer *at = &with->buffers.at[b];
        if (at->category == CATEGORY_workspace || at->parent) continue;
        assert_true(at->offset + at->bytes <= plan_written_bytes(with));
    }
    arena_free(arena);
}

/* The end lies below a buffer that one part of a kernel passes to the next, if no other buffer lies
 * above it. */
static void buffers_inside_a_kernel_do_not_count_as_written(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const Program *p = program_of(true, none, arena);
    uint32_t n_inside = 0;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const Buffer *at = &p->buffers.at[b];
        if (at->parent || at->persistent || at->result || !at->first) continue;
        const uint32_t fuse = p->code.at[at->first].fuse;
        if (fuse == 0 || p->code.at[at->last].fuse != fuse) {
            assert_true(at->offset + at->bytes <= plan_written_bytes(p));
            continue;
        }
        n_inside++;
        /* The buffer is moved first to the arena's top, then above it. */
        Buffer *moved = (Buffer *)at;
        const uint64_t end = plan_written_bytes(p), was = moved->offset;
        moved->offset = p->bytes;
        assert_int_equal(plan_written_bytes(p), end);
        moved->result = true;
        assert_int_equal(plan_written_bytes(p), moved->offset + moved->bytes);
        moved->result = false;
        moved->offset = was;
    }
    assert_true(n_inside > 3);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scratch_does_not_count_as_written),
        cmocka_unit_test(buffers_inside_a_kernel_do_not_count_as_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
