/* Processes under a real MPI compute the same bits as loopback for the same plan. When a rank dies,
 * stops or leaves, the run ends soon and names this rank. The test starts itself under mpirun; as a
 * rank it does what its arguments say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exec/exec.h"
#include "exec/launch/launch.h"
#include "exec/module/modules.h"
#include "exec/process/options.h"
#include "tests/exec/synthetic.h"
#include "tests/support/plans/tiny.h"

enum { STEPS = 3 };

/* For any two columns, every pair of their values occurs in some row. The columns are data
 * sharding, number of ranks, sequence parallelism, checkpointing, micro-batches. */
static const struct Case {
    bool gpt2;
    uint32_t shard, replicate, tp;
    bool sequence;
    AcMode ac;
    uint32_t microbatches;
    uint32_t cp; /* number of ranks in a ring of cp; 0: each rank has whole sequences */
    uint32_t ep; /* number of ranks that share dropless experts; 0: no experts */
} cases[] = {
    {false, 2, 1, 1, false, AC_none, 1, 0, 0},      {true, 1, 2, 1, false, AC_full, 3, 0, 0},
    {false, 1, 1, 2, true, AC_selective, 3, 0, 0},  {true, 1, 1, 2, false, AC_none, 1, 0, 0},
    {false, 2, 1, 2, true, AC_full, 1, 0, 0},       {true, 1, 2, 2, true, AC_none, 3, 0, 0},
    {false, 4, 1, 1, false, AC_selective, 3, 0, 0}, {true, 1, 4, 1, false, AC_selective, 1, 0, 0},
    {false, 1, 1, 4, true, AC_none, 1, 0, 0},       {true, 1, 1, 4, false, AC_full, 3, 0, 0},
    {false, 2, 2, 1, false, AC_full, 3, 0, 0},      {true, 8, 1, 1, false, AC_none, 3, 0, 0},
    {false, 1, 4, 2, false, AC_full, 1, 0, 0},      {true, 2, 1, 4, true, AC_selective, 1, 0, 0},
    {false, 4, 1, 2, true, AC_none, 3, 0, 0},       {true, 1, 1, 8, true, AC_full, 1, 0, 0},
    {false, 1, 1, 2, true, AC_full, 3, 2, 0},       {false, 2, 1, 1, true, AC_none, 1, 4, 0},
    {false, 1, 1, 1, false, AC_none, 3, 0, 2},      {false, 2, 1, 2, true, AC_full, 1, 0, 2},
};
/* All cases run in fp64. Every third case runs again in fp32, and in bf16 (with bf16 gradients). */
enum {
    N_FP64 = sizeof cases / sizeof cases[0],
    N_THIRD = (N_FP64 + 2) / 3,
    N_CASES = N_FP64 + 2 * N_THIRD
};

static const struct Case *case_of(uint32_t index)
{
    return &cases[index < N_FP64 ? index : (index - N_FP64) % N_THIRD * 3];
}

static Tiny tiny_of(uint32_t index)
{
    const struct Case *c = case_of(index);
    Tiny t = tiny_default();
    t.gpt2 = c->gpt2;
    t.groups = 8, t.head_dim = 2, t.dim = 15, t.hidden = 24, t.vocab = 37;
    t.dp_shard = c->shard, t.dp_replicate = c->replicate, t.tp = c->tp;
    t.tp_options.sequence = c->sequence;
    if (c->cp) t.cp = c->cp, t.cp_options.mode = CP_ring, t.seq = 4 * c->cp * c->tp;
    if (c->ep) t.ep = c->ep, t.experts = 6, t.top_k = 2, t.dropless = true;
    t.ac = c->ac;
    t.microbatches = c->microbatches;
    t.fsdp2.offload = (c - cases) % 2 == 0; /* uses an arena on the host, too */
    if (index >= N_FP64 + N_THIRD) t.compute = t.reduce = DT_bf16;
    return t;
}

static Plan *plan_of(uint32_t index, Arena *arena, Diag *d)
{
    Tiny t = tiny_of(index);
    return tiny_plan(&t, index < N_FP64, arena, d);
}

/* ---- the results of a run ---- */

typedef struct Dump {
    const Plan *plan;
    const char *path; /* path of the ranks' files, without the rank's number */
    Arena *arena;
} Dump;

static bool write_persistent(void *self, Backend *backend, Diag *d)
{
    const Dump *dump = self;
    Rank first;
    uint32_t n;
    (void)d;
    backend->ranks(backend, &first, &n);
    for (Rank r = first; r < first + n; r++) {
        const Program *p = plan_program(dump->plan, r);
        FILE *f = fopen(arena_print(dump->arena, "%s.%u", dump->path, r), "wb");
        if (f == NULL) return false;
        for (BufferId b = 1; b < p->buffers.n; b++)
            if (p->buffers.at[b].persistent && p->buffers.at[b].parent == 0)
                fwrite(backend->memory(backend, r, b), 1, p->buffers.at[b].bytes, f);
        if (fclose(f) != 0) return false;
    }
    return true;
}

static bool run_case(uint32_t index, const char *backend, const char *path, bool poison,
                     ExecResult *result, Arena *arena, Diag *d)
{
    const Plan *plan = plan_of(index, arena, d);
    if (plan == NULL) return false;
    Dump dump = {plan, path, arena};
    ExecOptions options = {.backend = backend,
                           .steps = STEPS,
                           .lr = 1e-2,
                           .warmup_steps = 2,
                           .data = data_synthetic(3, 37, 0.1, arena),
                           .trace_step = 2,
                           .backend_options = {.timeout_s = 200, .poison = poison, .order_seed = 5},
                           .at_end = write_persistent,
                           .self = &dump};
    return exec_run(plan, &options, arena, result, d);
}

static uint32_t ranks_of(uint32_t index)
{
    const struct Case *c = case_of(index);
    return c->shard * c->replicate * c->tp * (c->cp ? c->cp : 1) * (c->ep ? c->ep : 1);
}

/* Runs two steps of the program with every transfer. With `native`, MPI computes sums, in its own
 * order. */
static bool run_transfers(Backend *b, DType dtype, bool native, const char *path, Arena *arena,
                          Diag *d)
{
    Synthetic y = {.arena = arena};
    make_every_transfer(&y, dtype);
    const ProcessOptions own = {.native = native};
    BackendOptions options = {.timeout_s = 200, .own = &own, .order_seed = 8};
    Control control = {.step = 0};
    Dump dump = {y.plan, path, arena};
    Rank first;
    uint32_t n;
    if (b == NULL || !b->open(b, y.plan, &options, d)) return false;
    b->ranks(b, &first, &n);
    for (Rank r = first; r < first + n; r++) fill_input(&y, b, r);
    bool fine = b->step(b, &control, NULL, NULL, d) && b->step(b, &control, NULL, NULL, d) &&
                write_persistent(&dump, b, d) && (native || n > 1 || b->outside_bytes(b) > 0);
    b->close(b);
    return fine;
}

/* The dtypes to transfer. For the last two, MPI computes the sums; MPI itself cannot add bf16. */
static const DType transfer_types[] = {DT_f32, DT_f64, DT_bf16, DT_e4m3, DT_f64, DT_bf16};
enum { TRANSFER_KINDS = sizeof transfer_types / sizeof transfer_types[0] };

static bool is_native(int kind)
{
    return kind >= TRANSFER_KINDS - 2;
}

/* ---- as a rank ---- */

static int rank_transfers(const char *where)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    bool fine = true;
    for (int kind = 0; kind < TRANSFER_KINDS && fine; kind++)
        fine = run_transfers(backend_mpi(arena, NULL, &d), transfer_types[kind], is_native(kind),
                             arena_print(arena, "%s/transfers.%d", where, kind), arena, &d);
    Str s = str_in(arena);
    diag_print(&d, &s);
    if (!fine) fputs(str_text(&s), stderr);
    arena_free(arena);
    return fine ? 0 : 1;
}

/* How a rank fails in the middle of a step: "kill", "stop", "exit", "abort". */
typedef struct Spoil {
    const char *how;
    uint32_t rank;
    int64_t step;
} Spoil;

static void spoiled_fill(void *self, int64_t step, uint32_t microbatch, int64_t first, int64_t n,
                         int64_t seq, int32_t *tokens, int32_t *labels)
{
    const Spoil *s = self;
    uint32_t rank = 0;
    launch_inside(NULL, &rank, NULL);
    (void)microbatch, (void)first;
    for (int64_t i = 0; i < n * seq; i++) tokens[i] = labels[i] = (int32_t)(i % 37);
    if (rank != s->rank || step != s->step) return;
    if (strcmp(s->how, "kill") == 0) raise(SIGKILL);
    if (strcmp(s->how, "stop") == 0) raise(SIGSTOP);
    if (strcmp(s->how, "exit") == 0) _exit(0);
    if (strcmp(s->how, "abort") == 0) raise(SIGSEGV);
}

/* Returns the time in seconds for which other ranks wait for rank 1. Only waiting can reveal a
 * stopped rank. The time must be long enough for all ranks to arrive on a busy machine. A death is
 * noticed at once, even while the rank still writes a core file. */
static double patience_s(const char *how)
{
    return strcmp(how, "stop") == 0 ? 6 : 200;
}

static int rank_spoiled(const char *how, uint32_t case_index)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Spoil spoil = {how, 1, 2};
    DataSource data = {.self = &spoil, .fill = spoiled_fill};
    ExecResult result;
    ExecOptions options = {.backend = "mpi",
                           .steps = 5,
                           .lr = 1e-3,
                           .data = &data,
                           .version = strcmp(how, "version") == 0 && getenv("PMI_RANK")
                                          ? getenv("PMI_RANK")
                                          : getenv("OMPI_COMM_WORLD_RANK"),
                           .backend_options = {.timeout_s = patience_s(how)}};
    if (strcmp(how, "version") != 0) options.version = "1";
    bool fine = exec_run(plan_of(case_index, arena, &d), &options, arena, &result, &d);
    Str s = str_in(arena);
    diag_print(&d, &s);
    if (!fine && result.is_first) fputs(str_text(&s), stderr);
    int code = fine ? 0 : diag_exit_code(&d);
    arena_free(arena);
    return code;
}

/* Returns true if the rows of all ranks have arrived at the first rank, and the arena was written
 * up to its end. */
static bool is_complete(const Plan *plan, const ExecResult *result)
{
    uint64_t rows = 0;
    for (Rank r = 0; r < plan->mesh.n_ranks; r++) rows += plan_program(plan, r)->code.n - 1;
    bool all_rows = !result->is_first || result->trace.rows.n == rows;
    return all_rows && result->highest_touched == plan->programs.at[0].bytes &&
           result->host_touched == plan->programs.at[0].host_bytes;
}

/* With the arguments `run FOLDER RANKS`, one process runs every case that has so many ranks, one
 * after the other. */
static int rank_cases(const char *where, uint32_t ranks)
{
    int code = 0;
    for (uint32_t i = 0; i < N_CASES && code == 0; i++) {
        if (ranks_of(i) != ranks) continue;
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        ExecResult result;
        const char *path = arena_print(arena, "%s/mpi.%u", where, i);
        if (!run_case(i, "mpi", path, true, &result, arena, &d))
            code = diag_exit_code(&d);
        else if (!is_complete(plan_of(i, arena, &d), &result))
            code = 1;
        Str s = str_in(arena);
        diag_print(&d, &s);
        if (code) fprintf(stderr, "case %u: %s", i, str_text(&s));
        arena_free(arena);
    }
    return code;
}

static int as_rank(int argc, char **argv)
{
    if (argc != 4) return 2;
    uint32_t number = (uint32_t)strtoul(argv[3], NULL, 10);
    if (strcmp(argv[1], "spoiled") == 0) return rank_spoiled(argv[2], number);
    if (strcmp(argv[1], "transfers") == 0) return rank_transfers(argv[2]);
    return rank_cases(argv[2], number);
}

/* ---- the tests ---- */

static const char *folder;

static int launch(const char *flavour, const char *what, const char *argument, uint32_t ranks,
                  uint32_t number, Arena *arena, Diag *d)
{
    const char *argv[] = {"test_mpi", what, argument, arena_print(arena, "%u", number), NULL};
    bool ends_early = strcmp(what, "spoiled") == 0;
    LaunchOptions options = {
        .n_ranks = ranks, .flavour = flavour, .timeout_s = ends_early ? patience_s(argument) : 200};
    LaunchEnd end;
    return exec_launch(argv, &options, &end, arena, d);
}

static bool is_missing(const char *flavour)
{
    Arena *arena = arena_new();
    bool missing = module_path(flavour, NULL, arena) == NULL;
    arena_free(arena);
    if (missing) print_message("no module for %s here\n", flavour);
    return missing;
}

static void assert_same_file(const char *a, const char *b)
{
    FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
    assert_non_null(x);
    assert_non_null(y);
    uint64_t n = 0;
    for (;; n++) {
        int c = fgetc(x), e = fgetc(y);
        if (c != e) fail_msg("%s and %s differ at byte %llu", a, b, (unsigned long long)n);
        if (c == EOF) break;
    }
    assert_true(n > 1000);
    fclose(x);
    fclose(y);
    unlink(a);
    unlink(b);
}

static void assert_launched(int code, const Diag *d, Arena *arena)
{
    Str s = str_in(arena);
    diag_print(d, &s);
    if (code != 0) fail_msg("exit code %d: %s", code, str_text(&s));
}

/* Checks that the plan which both backends ran gives the result of one rank. */
static void check_against_one_rank(uint32_t index, Arena *arena, Diag *d)
{
    Tiny t = tiny_of(index), one = tiny_one_rank(&t);
    const Plan *plan = tiny_plan(&t, true, arena, d), *reference = tiny_plan(&one, true, arena, d);
    VerifyResult result;
    BackendOptions options = {.order_seed = index + 1};
    assert_true(exec_verify(plan, reference, data_synthetic(3, 37, 0.1, arena), &options, 1e-10,
                            arena, &result, d));
}

static void same_bits(const char *flavour)
{
    if (is_missing(flavour)) skip();
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    for (uint32_t ranks = 2; ranks <= 8; ranks *= 2)
        assert_launched(launch(flavour, "run", folder, ranks, ranks, arena, &d), &d, arena);
    for (uint32_t i = 0; i < N_CASES; i++) {
        ExecResult result;
        const char *path = arena_print(arena, "%s/loopback.%u", folder, i);
        assert_true(run_case(i, "loopback", path, false, &result, arena, &d));
        for (Rank r = 0; r < ranks_of(i); r++)
            assert_same_file(arena_print(arena, "%s.%u", path, r),
                             arena_print(arena, "%s/mpi.%u.%u", folder, i, r));
        if (i < N_FP64) check_against_one_rank(i, arena, &d);
    }
    arena_free(arena);
}

static void openmpi_computes_the_bits_of_loopback(void **state)
{
    (void)state;
    same_bits("openmpi");
}

static void mpich_computes_the_bits_of_loopback(void **state)
{
    (void)state;
    same_bits("mpich");
}

/* If MPI computes the sums, results differ only by rounding. */
static void assert_near_file(const char *a, const char *b)
{
    FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
    assert_non_null(x);
    assert_non_null(y);
    double u, v;
    while (fread(&u, sizeof u, 1, x) == 1) {
        assert_int_equal(fread(&v, sizeof v, 1, y), 1);
        assert_true(fabs(u - v) <= 1e-10 * (1 + fabs(v)));
    }
    fclose(x);
    fclose(y);
    unlink(a);
    unlink(b);
}

static void every_transfer_gives_the_bits_of_loopback(void **state)
{
    (void)state;
    const char *const flavours[] = {"openmpi", "mpich"};
    for (int f = 0; f < 2; f++) {
        if (is_missing(flavours[f])) continue;
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        assert_launched(launch(flavours[f], "transfers", folder, 4, 0, arena, &d), &d, arena);
        for (int kind = 0; kind < TRANSFER_KINDS; kind++) {
            const char *path = arena_print(arena, "%s/own.%d", folder, kind);
            assert_true(run_transfers(backend_loopback(arena), transfer_types[kind], false, path,
                                      arena, &d));
            for (Rank r = 0; r < 4; r++) {
                const char *own = arena_print(arena, "%s.%u", path, r);
                const char *its = arena_print(arena, "%s/transfers.%d.%u", folder, kind, r);
                if (is_native(kind) && transfer_types[kind] == DT_f64)
                    assert_near_file(own, its);
                else
                    assert_same_file(own, its);
            }
        }
        arena_free(arena);
    }
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Rank 1 is killed or stopped in step 2. The run must end with exit code 6 before the other ranks
 * give up waiting, and the diagnostic must name the rank. */
static void spoiled(const char *flavour, const char *how, const char *rule, const char *word)
{
    if (is_missing(flavour)) skip();
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    double start = now_s();
    int code = launch(flavour, "spoiled", how, 4, 4, arena, &d);
    double took = now_s() - start;
    Str s = str_in(arena);
    diag_print(&d, &s);
    print_message("%s %s: %.1f s\n%s", flavour, how, took, str_text(&s));
    assert_int_equal(code, 6);
    /* the others give up waiting later, so the death itself was noticed */
    assert_true(took < 150);
    assert_int_equal(d.items.n, 1);
    assert_string_equal(d.items.at[0].rule, rule);
    assert_non_null(strstr(str_text(&s), word));
    for (int r = 0; r < 4 && strcmp(rule, "rank-died") == 0; r++)
        assert_true(r == 1 || !strstr(str_text(&s), arena_print(arena, "rank %d", r)));
    arena_free(arena);
}

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    spoiled("openmpi", "kill", "rank-died", "error[rank-died]: rank 1 (pid");
    spoiled("mpich", "kill", "rank-died", "error[rank-died]: rank 1 (pid");
}

static void a_crashed_rank_is_named(void **state)
{
    (void)state;
    spoiled("openmpi", "abort", "rank-died", "error[rank-died]: rank 1 (pid");
    spoiled("mpich", "abort", "rank-died", "error[rank-died]: rank 1 (pid");
}

static void a_rank_that_leaves_is_named(void **state)
{
    (void)state;
    spoiled("openmpi", "exit", "rank-died", "error[rank-died]: rank 1 (pid");
    spoiled("mpich", "exit", "rank-died", "error[rank-died]: rank 1 (pid");
}

static void a_stopped_rank_is_named(void **state)
{
    (void)state;
    spoiled("openmpi", "stop", "timeout", "stopped) is at step 2, instruction");
    spoiled("mpich", "stop", "timeout", "stopped) is at step 2, instruction");
}

/* Refuses ranks of another version, and a number of ranks that differs from the mesh's. */
static void mismatched_ranks_are_refused(void **state)
{
    (void)state;
    if (is_missing("mpich")) skip();
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    assert_int_equal(launch("mpich", "spoiled", "version", 4, 4, arena, &d), 6);
    assert_int_equal(launch("mpich", "spoiled", "none", 2, 4, arena, &d), 2);
    assert_int_equal(launch("mpich", "spoiled", "none", 4, 4, arena, &d), 0);
    assert_int_equal(d.items.n, 0);
    assert_int_equal(launch("lam", "spoiled", "none", 4, 4, arena, &d), 6);
    assert_string_equal(d.items.at[0].rule, "mpirun-missing");
    arena_free(arena);
}

int main(int argc, char **argv)
{
    launch_supervise();
    if (launch_inside(NULL, NULL, NULL)) return as_rank(argc, argv);
    char name[] = "/tmp/tandem-test-XXXXXX";
    folder = mkdtemp(name);
    assert_non_null(folder);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_transfer_gives_the_bits_of_loopback),
        cmocka_unit_test(openmpi_computes_the_bits_of_loopback),
        cmocka_unit_test(mpich_computes_the_bits_of_loopback),
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(a_crashed_rank_is_named),
        cmocka_unit_test(a_rank_that_leaves_is_named),
        cmocka_unit_test(a_stopped_rank_is_named),
        cmocka_unit_test(mismatched_ranks_are_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
