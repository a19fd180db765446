/* Communications through the host. A transport made for the test answers for the other rank, and
 * records the order in which transfers are posted. Ranks see the requests of their streams at
 * different times. If the order on a communicator depended on that, ranks would wait for each other
 * for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "exec/cuda/module.h"
#include "exec/cuda/options.h"
#include "exec/exec.h"
#include "tests/cuda/double/double.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_arena.h"

enum { STEPS = 60, GROUPS = 3, ROOM = 64 * STEPS, LAUNCH = 77, LARGE = 16384 };

/* The transfers of each group, one character each. x: parts go to their owners; g: sums are
 * gathered; s: all data go to all. All ranks are in group 0, through which they meet. */
typedef struct Posted {
    char text[ROOM];
    uint32_t n;
} Posted;

static Posted posted[GROUPS];
static int n_groups;

static void keep(int of, char what)
{
    assert_in_range(of, 0, GROUPS - 1);
    assert_true(posted[of].n + 1 < ROOM);
    posted[of].text[posted[of].n++] = what;
}

static void *open_one(uint32_t *rank, uint32_t *n_ranks, char *why, size_t room)
{
    (void)why, (void)room;
    *rank = 0;
    *n_ranks = 2;
    return posted;
}

static void close_one(void *self)
{
    (void)self;
}

static void abort_one(void *self, int code)
{
    (void)self;
    fail_msg("the run was aborted with code %d", code);
}

static const char *error_of(void *self)
{
    (void)self;
    return "none";
}

static int group(void *self, uint32_t color, uint32_t key)
{
    (void)self, (void)color, (void)key;
    return ++n_groups;
}

/* The other rank has the same data, and zeros for the sums that it owns. */
static bool all_gather(void *self, int of, const void *in, int n, void *out, const int *counts,
                       const int *displs, int bytes, TransportRequest *request)
{
    size_t size = (size_t)n * (size_t)bytes;
    (void)self, (void)request;
    if (of > 0) keep(of, counts ? 'g' : 's');
    for (size_t i = 0; in != NULL && i < 2; i++) memcpy((char *)out + i * size, in, size);
    if (counts != NULL) memset((char *)out + displs[1] * bytes, 0, (size_t)(counts[1] * bytes));
    return true;
}

static bool all_to_all(void *self, int of, const void *in, const int *counts, const int *displs,
                       void *out, const int *out_counts, const int *out_displs, int bytes,
                       TransportRequest *request)
{
    (void)self, (void)request, (void)displs, (void)out_counts;
    keep(of, 'x');
    for (int i = 0; i < 2; i++)
        memcpy((char *)out + out_displs[i] * bytes, in, (size_t)(counts[0] * bytes));
    return true;
}

static bool test(void *self, TransportRequest *request, bool *is_done)
{
    (void)self, (void)request;
    return *is_done = true;
}

static const Transport other_rank = {.version = TRANSPORT_VERSION,
                                     .flavour = "test",
                                     .open = open_one,
                                     .close = close_one,
                                     .abort = abort_one,
                                     .error = error_of,
                                     .group = group,
                                     .all_gather = all_gather,
                                     .all_to_all = all_to_all,
                                     .test = test};

static bool is_large(const Program *p, const Instr *in)
{
    return p->buffers.at[program_arg(p, in, 0)].bytes > LARGE;
}

/* Two ranks with a sum of gradients for each weight. The last two sums that are large enough for
 * two rounds start together. Writes the transfers of a step to `order`. */
static Plan *plan_of(Str *order)
{
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.dp_replicate = 2;
    t.groups = 4, t.head_dim = 8, t.dim = 32, t.hidden = 160, t.vocab = 257;
    Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    Program *p = &plan->programs.at[0];
    Instr *before = NULL, *first = NULL, *second = NULL;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        Instr *in = &p->code.at[pc];
        if (in->stream != STREAM_dp_replicate) continue;
        assert_int_equal(in->op, OP_all_reduce);
        if (is_large(p, in) && before && is_large(p, before)) first = before, second = in;
        before = in;
    }
    assert_non_null(first);
    first->launch = second->launch = LAUNCH;
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (in->stream != STREAM_dp_replicate || in == second) continue;
        str_add(order, in == first ? "xxgg" : is_large(p, in) ? "xg" : "s");
    }
    return plan;
}

static void sums_that_start_together_are_posted_together(void **state)
{
    (void)state;
    Diag d = diag_in(arena);
    Str order = str_in(arena);
    ExecResult result;
    ExecOptions options = {.backend = "loopback",
                           .steps = STEPS,
                           .lr = 1e-3,
                           .data = data_synthetic(3, 257, 0.1, arena),
                           .trace_step = STEPS,
                           .version = "test"};
    double_begin("seed=5");
    options.made = tandem_cuda_module.backend(arena, &other_rank);
    options.backend_options.timeout_s = 20;
    const CudaOptions own = {.via = CUDA_VIA_host, .share_device = true};
    options.backend_options.own = &own;
    if (!exec_run(plan_of(&order), &options, arena, &result, &d)) {
        Str s = str_in(arena);
        diag_print(&d, &s);
        fail_msg("%s", str_text(&s));
    }
    assert_int_equal(result.trace.steps.n, STEPS);
    const Posted *all = &posted[2]; /* the group of (dp_reduce, dp_replicate), the second stream */
    assert_int_equal(all->n, STEPS * order.n);
    for (uint32_t k = 0; k < STEPS; k++) {
        const char *step = arena_copy(arena, all->text + k * order.n, order.n);
        if (strcmp(step, str_text(&order)) != 0)
            fail_msg("step %u: %s, not %s", k, step, str_text(&order));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sums_that_start_together_are_posted_together,
                                        test_arena_setup, test_arena_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
