/* Checkpoints on the CUDA backend, on the double of CUDA. The backend copies device memory to the
 * host and back. A resumed run ends with the bits of the uninterrupted run. Each of the backends
 * CUDA and loopback can load the checkpoints of the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "exec/cuda/module.h"
#include "tests/cuda/backend/ranks.h"
#include "tests/support/command.h"
#include "tests/support/plans/tiny.h"
#include "tests/support/test_arena.h"

enum { STEPS = 5, SAVED = 2 };

static char script[] = "seed=4";

static Plan *plan_of(const Tiny *t, WorkspaceBytes workspace)
{
    Diag d = diag_in(arena);
    Config *config = arena_alloc(arena, sizeof *config);
    Graph graph;
    LowerOptions options = lower_options_default();
    options.workspace = workspace;
    tiny_build(t, arena, config, &graph);
    Plan *plan = plan_compile(config, &graph, &options, NULL, arena, &d);
    assert_non_null(plan);
    return plan;
}

static RanksRun run_to(Plan *plan, bool cuda, uint32_t steps, const char *load, const char *save)
{
    RanksRun run = {.plan = plan,
                    .data = data_synthetic(3, 29, 0.1, arena),
                    .script = script,
                    .steps = steps,
                    .checkpoint = {.load = load, .save = save}};
    run.options.poison = true;
    if (cuda)
        ranks_run(&run, arena);
    else
        ranks_loopback(&run, arena);
    const uint32_t n = cuda ? plan->mesh.n_ranks : 1;
    for (Rank r = 0; r < n; r++)
        if (!run.rank[r].fine || run.rank[r].said[0])
            fail_msg("rank %u (code %d, signal %d): %s%s", r, run.rank[r].exit_code,
                     run.rank[r].signal, run.rank[r].said, cuda ? run.errors : "");
    return run;
}

static void goes_on(const Tiny *t)
{
    Plan *plan = plan_of(t, tandem_cuda_module.workspace);
    const char *folder = command_new_folder(arena);
    const RanksRun whole = run_to(plan, true, STEPS, NULL, NULL);
    run_to(plan, true, SAVED, NULL, folder);
    const RanksRun after = run_to(plan, true, STEPS, folder, NULL);
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) {
        assert_int_equal(whole.rank[r].n_steps, STEPS);
        assert_int_equal(after.rank[r].n_steps, STEPS - SAVED);
        assert_memory_equal(&after.rank[r].bits, &whole.rank[r].bits, sizeof(Hash128));
        assert_memory_equal(after.rank[r].loss, whole.rank[r].loss + SAVED,
                            (STEPS - SAVED) * sizeof(double));
    }
}

static void resumed_plans_end_with_the_same_bits(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    goes_on(&t);
    t.dp_shard = 2, t.tp = 2, t.microbatches = 2;
    goes_on(&t);
    t = tiny_default();
    t.gpt2 = true, t.pp = 2, t.dp_shard = 2, t.microbatches = 2;
    goes_on(&t);
    t = tiny_default();
    t.dp_shard = 2, t.use_zero = true, t.zero = ZERO_optim, t.compute = DT_bf16;
    t.zero_options.gather = ZERO_GATHER_eager;
    goes_on(&t);
}

static void state_in_host_memory_is_resumed(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.dp_shard = 2, t.microbatches = 2, t.fsdp2.offload = true;
    goes_on(&t);
}

static void near(const RanksRun *a, const RanksRun *b)
{
    for (int i = 0; i < STEPS - SAVED; i++) {
        const double ratio = a->rank[0].loss[i] / b->rank[0].loss[i + SAVED];
        if (!(ratio > 1 - 2e-5 && ratio < 1 + 2e-5)) fail_msg("step %d: x %.9g", i + SAVED, ratio);
    }
}

static void each_backend_loads_the_others_checkpoints(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.dp_shard = 2, t.tp = 2;
    Tiny one = tiny_one_rank(&t);
    Plan *on_cuda = plan_of(&t, tandem_cuda_module.workspace);
    Plan *on_cpu = plan_of(&one, kernel_cpu_workspace);
    const char *a = command_new_folder(arena), *b = command_new_folder(arena);
    const RanksRun whole = run_to(on_cpu, false, STEPS, NULL, NULL);
    run_to(on_cuda, true, SAVED, NULL, a);
    run_to(on_cpu, false, SAVED, NULL, b);
    const RanksRun down = run_to(on_cpu, false, STEPS, a, NULL);
    const RanksRun up = run_to(on_cuda, true, STEPS, b, NULL);
    near(&down, &whole);
    near(&up, &whole);
}

/* All ranks end with the same error. */
static void a_missing_checkpoint_ends_all_ranks(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.dp_shard = 2;
    const char *folder = command_new_folder(arena);
    RanksRun run = {.plan = plan_of(&t, tandem_cuda_module.workspace),
                    .data = data_synthetic(3, 29, 0.1, arena),
                    .script = script,
                    .steps = 3,
                    .checkpoint = {.load = arena_print(arena, "%s/nowhere", folder)}};
    ranks_run(&run, arena);
    for (Rank r = 0; r < 2; r++) {
        assert_false(run.rank[r].fine);
        assert_non_null(strstr(run.rank[r].said, "error[checkpoint-missing]"));
    }
}

/* Data for a rank. Once the rank has read the data of a certain step, its process can only write
 * files up to a limited size. */
typedef struct Limited {
    const DataSource *from;
    uint64_t bytes;
} Limited;

static void fill_limited(void *self, int64_t step, uint32_t microbatch, int64_t first_sample,
                         int64_t n_samples, int64_t seq, int32_t *tokens, int32_t *labels)
{
    const Limited *l = self;
    const struct rlimit limit = {l->bytes, l->bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
    l->from->fill(l->from->self, step, microbatch, first_sample, n_samples, seq, tokens, labels);
}

/* The second stage's files exceed the limit. The first stage could write its files, but all ranks
 * must end with the error, and the previous checkpoint must stay unchanged. */
static void a_rank_that_cannot_write_ends_all_ranks(void **state)
{
    (void)state;
    Tiny t = tiny_default();
    t.pp = 2, t.layers = 3, t.hidden = 400, t.microbatches = 2;
    Plan *plan = plan_of(&t, tandem_cuda_module.workspace);
    const char *folder = command_new_folder(arena);
    run_to(plan, true, 1, NULL, folder);
    uint64_t bytes[2];
    for (int r = 0; r < 2; r++) {
        size_t n;
        const char *path = arena_print(arena, "%s/step-00000001/rank-%05d.safetensors", folder, r);
        assert_non_null(command_read_file(arena, path, &n));
        bytes[r] = n;
    }
    const Rank large = bytes[1] > bytes[0];
    Limited limited = {data_synthetic(3, 29, 0.1, arena), (bytes[0] + bytes[1]) / 2};
    const DataSource source = {.self = &limited, .fill = fill_limited};
    assert_true(limited.bytes > bytes[1 - large] + 4096 && limited.bytes + 4096 < bytes[large]);
    RanksRun run = {.plan = plan,
                    .data = &source,
                    .script = script,
                    .steps = 3,
                    .checkpoint = {.load = folder, .save = folder}};
    signal(SIGXFSZ, SIG_IGN);
    ranks_run(&run, arena);
    const char *expected = arena_print(
        arena, "error[checkpoint-write]: rank %u cannot write %s/step-00000003.saving/rank-0000%u",
        large, folder, large);
    for (Rank r = 0; r < 2; r++)
        if (run.rank[r].fine || strstr(run.rank[r].said, expected) == NULL)
            fail_msg("rank %u (code %d, signal %d): %s expected: %s%s", r, run.rank[r].exit_code,
                     run.rank[r].signal, expected, run.rank[r].said, run.errors);
    run_to(plan, true, 2, folder, NULL);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_arena_setup, test_arena_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(resumed_plans_end_with_the_same_bits),      TEST(state_in_host_memory_is_resumed),
        TEST(each_backend_loads_the_others_checkpoints), TEST(a_missing_checkpoint_ends_all_ranks),
        TEST(a_rank_that_cannot_write_ends_all_ranks),
    };
    return cmocka_run_group_tests_name("backend_checkpoint", tests, NULL, NULL);
}
