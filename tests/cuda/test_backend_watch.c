/* When a run is ended for waiting, and when not: what only takes long (opening, poison, capturing,
 * data) is no hang, however short the timeout; what hangs is told within the timeout and some
 * seconds, with the instruction, the communicator and who is not there. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "planner/base/clock.h"
#include "tests/cuda/double/double.h"
#include "tests/cuda/ranks.h"
#include "tests/support/tiny.h"

static Arena *arena;

static int setup(void **state)
{
    (void)state;
    arena = arena_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static RanksRun run_of(uint32_t shard, double timeout_s)
{
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.groups = 2, t.head_dim = 2, t.dim = 6, t.hidden = 8, t.vocab = 11, t.layers = 1;
    t.dp_shard = shard;
    t.microbatches = 2;
    RanksRun run = {.plan = tiny_plan(&t, false, arena, &d),
                    .data = data_synthetic(3, 11, 0, arena)};
    assert_non_null(run.plan);
    run.options.timeout_s = timeout_s;
    return run;
}

static bool is_rank(const char *rank)
{
    const char *mine = getenv("RANK");
    return mine != NULL && strcmp(mine, rank) == 0;
}

/* ---- what only takes long ---- */

static void late_fill(void *self, int64_t step, uint32_t microbatch, int64_t first, int64_t n,
                      int64_t seq, int32_t *tokens, int32_t *labels)
{
    (void)self, (void)first;
    if (step == 0 && microbatch == 0 && is_rank("1")) usleep(2500000);
    for (int64_t i = 0; i < n * seq; i++) tokens[i] = labels[i] = (int32_t)(i % 11);
}

static void what_takes_long_is_no_hang(void **state)
{
    (void)state;
    static const DataSource late = {NULL, late_fill};
    static const struct {
        const char *script;
        CudaGraphs graphs;
        bool poison, is_late;
    } cases[] = {
        {"cublasLtCreate@1=slow:2500", CUDA_GRAPHS_none, false, false},
        {"ncclCommInitRankConfig@1=slow:2500", CUDA_GRAPHS_none, false, false},
        {"ncclCommWindowRegister@1=slow:2500", CUDA_GRAPHS_none, false, false},
        {"cudaGraphInstantiate@1=slow:2500", CUDA_GRAPHS_whole, false, false},
        {"cudaEventCreate@3=slow:2500", CUDA_GRAPHS_cut, false, false}, /* of the traced step */
        {"cudaEventElapsedTime@3=slow:2500", CUDA_GRAPHS_cut, false, false},
        {"cudaMemcpy@9=slow:2500", CUDA_GRAPHS_none, true, false},
        {"", CUDA_GRAPHS_none, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        RanksRun run = run_of(2, 1);
        run.script = arena_print(arena, "seed=3 rank=1 %s", cases[i].script);
        run.options.cuda.graphs = cases[i].graphs;
        run.options.poison = cases[i].poison;
        run.trace = true;
        if (cases[i].is_late) run.data = &late;
        ranks_run(&run, arena);
        for (Rank r = 0; r < 2; r++)
            if (!run.rank[r].fine)
                fail_msg("%s: rank %u: %s%s", run.script, r, run.rank[r].said, ranks_stderr());
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_takes_long_is_no_hang, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
