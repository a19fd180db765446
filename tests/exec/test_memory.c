/* A step allocates no memory. The test counts calls of malloc and similar functions during whole
 * steps, for every mesh. The arena is all the memory that a step uses, so the highest byte written
 * is the last planned byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "exec/exec.h"
#include "tests/support/plans/tiny.h"

/* The C library's allocator under its internal names. The sanitizers replace the allocator, so
 * under them the calls of a step are not counted. */
#ifdef __SANITIZE_ADDRESS__
#define COUNTS 0
/* volatile, because the compiler may remove calls of malloc */
static volatile uint64_t n_calls;
#else
#define COUNTS 1
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *at, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

/* volatile, because the compiler may remove calls of malloc */
static volatile uint64_t n_calls;

void *malloc(size_t bytes)
{
    n_calls++;
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    n_calls++;
    return __libc_calloc(n, bytes);
}

void *realloc(void *at, size_t bytes)
{
    n_calls++;
    return __libc_realloc(at, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    n_calls++;
    return __libc_memalign(align, bytes);
}

int posix_memalign(void **at, size_t align, size_t bytes)
{
    n_calls++;
    *at = __libc_memalign(align, bytes);
    return *at == NULL;
}
#endif

typedef struct Count {
    uint64_t last; /* number of calls at the end of the previous step */
    uint64_t in_steps;
    uint32_t n_steps;
} Count;

static void on_step(void *self, const StepRow *row, uint64_t tokens)
{
    Count *c = self;
    (void)tokens;
    if (row->step > 0) c->in_steps += n_calls - c->last;
    c->n_steps++;
    c->last = n_calls;
}

static void check(const Tiny *t, bool fp64)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const Plan *plan = tiny_plan(t, fp64, arena, &d);
    assert_non_null(plan);
    Count count = {0, 0, 0};
    ExecResult result;
    ExecOptions options = {.backend = "loopback",
                           .steps = 4,
                           .lr = 1e-3,
                           .data = data_synthetic(1, t->vocab, 0, arena),
                           .trace_step = 2,
                           .backend_options = {.poison = true, .order_seed = 3},
                           .on_step = on_step,
                           .self = &count};
    assert_true(exec_run(plan, &options, arena, &result, &d));
    assert_int_equal(count.n_steps, 4);
    assert_int_equal(result.host_touched, plan->programs.at[0].host_bytes);
    assert_true((plan->programs.at[0].host_bytes > 0) == (t->fsdp2.offload && t->dp_shard > 1));
    if (count.in_steps || result.highest_touched != plan->programs.at[0].bytes)
        fail_msg("dp_shard %u dp_replicate %u tp %u ac %d micro-batches %u: %llu allocations in "
                 "steps, %llu bytes touched of %llu",
                 t->dp_shard, t->dp_replicate, t->tp, (int)t->ac, t->microbatches,
                 (unsigned long long)count.in_steps, (unsigned long long)result.highest_touched,
                 (unsigned long long)plan->programs.at[0].bytes);
    assert_int_equal(result.trace.rows.n, plan->mesh.n_ranks * (plan->programs.at[0].code.n - 1));
    arena_free(arena);
}

static void nothing_is_allocated_in_a_step(void **state)
{
    (void)state;
    for (int shard = 0; shard < 2; shard++)
        for (uint32_t data = 1; data <= 8; data *= 2)
            for (uint32_t tp = 1; tp * data <= 8; tp *= 2)
                for (int sequence = 0; sequence <= (tp > 1); sequence++)
                    for (int ac = AC_none; ac <= AC_selective; ac++)
                        for (uint32_t m = 1; m <= 3; m += 2) {
                            Tiny t = tiny_default();
                            t.gpt2 = tp == 2 && ac == AC_full;
                            t.groups = 8, t.head_dim = 2, t.dim = 15, t.hidden = 24, t.vocab = 37;
                            t.dp_shard = shard ? data : 1;
                            t.dp_replicate = shard ? 1 : data;
                            t.tp = tp, t.ac = (AcMode)ac, t.microbatches = m;
                            t.tp_options.sequence = sequence;
                            t.fsdp2.offload = m == 3;
                            check(&t, m == 1);
                        }
}

/* The measurement shows the bytes that were written, not the planned bytes. If unused bytes follow
 * the last buffer, the highest written byte stays the same. */
static void memory_is_measured(void **state)
{
    (void)state;
    enum { UNUSED = 3 * 4096 };
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.dp_shard = 2, t.tp = 2, t.fsdp2.offload = true;
    Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    uint64_t bytes = plan->programs.at[0].bytes, host = plan->programs.at[0].host_bytes;
    for (int i = 0; i < 4; i++) {
        ExecResult result;
        ExecOptions options = {.backend = "loopback",
                               .steps = 2,
                               .lr = 1e-3,
                               .data = data_synthetic(1, t.vocab, 0, arena),
                               .trace_step = 2,
                               .backend_options = {.poison = i & 1, .measure = true}};
        plan->programs.at[0].bytes = bytes + (i & 2 ? UNUSED : 0);
        plan->programs.at[0].host_bytes = host + (i & 2 ? UNUSED : 0);
        assert_true(exec_run(plan, &options, arena, &result, &d));
        assert_int_equal(result.highest_touched, bytes);
        assert_int_equal(result.host_touched, host);
    }
    arena_free(arena);
}

/* Checks the counter itself: if it counted nothing, the test above would always pass. */
static void allocations_are_seen(void **state)
{
    (void)state;
    if (!COUNTS) skip();
    uint64_t before = n_calls;
    void *volatile at = malloc(10);
    at = realloc(at, 20);
    free(at);
    at = calloc(3, 4);
    free(at);
    assert_int_equal(n_calls - before, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_seen),
        cmocka_unit_test(nothing_is_allocated_in_a_step),
        cmocka_unit_test(memory_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
