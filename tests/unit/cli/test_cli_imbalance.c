/* sim --imbalance: which plans accept it, its upper limit, its line in the prediction, and the
 * bound of ranks' memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/command.h"

/* Writes a plan of experts with ep { <ep> } to imbalance.lua. */
static void write_plan(Arena *arena, const char *capacity, const char *runtime, const char *mesh,
                       const char *ep)
{
    const char *plan =
        arena_print(arena,
                    "return plan { model = require 'models.mixtral' { size = 'tiny', "
                    "capacity_factor = %s },\n  cluster = require 'clusters.dgx_h100' { nodes = 1 "
                    "},\n  batch = { micro = 1, seq = 64 }, mesh = { %s }, %s\n"
                    "  parallel = { ep { %s }, fsdp2 {} } }\n",
                    capacity, mesh, runtime, ep);
    command_write_file("imbalance.lua", plan);
}

static CommandResult sim_of(Arena *arena, const char *capacity, const char *runtime,
                            const char *mesh, const char *factor)
{
    write_plan(arena, capacity, runtime, mesh, "");
    return command_run(
        arena, 60,
        (const char *const[]){"sim", "imbalance.lua", "--dry-run", "--imbalance", factor, NULL});
}

static CommandResult sim(Arena *arena, const char *runtime, const char *mesh, const char *factor)
{
    return sim_of(arena, "1.0", runtime, mesh, factor);
}

static void refused(const char *runtime, const char *mesh, const char *factor, const char *why)
{
    Arena *arena = arena_new();
    CommandResult r = sim(arena, runtime, mesh, factor);
    if (r.exit_code != 2 || !strstr(r.err, why))
        fail_msg("--imbalance %s: code %d\n%s%s", factor, r.exit_code, r.out, r.err);
    assert_string_equal(r.out, ""); /* nothing looks like a success */
    arena_free(arena);
}

/* Returns the step in ps under --imbalance `how`: a number, "drawn", or a file of counts. */
static double step_ps(Arena *arena, const char *how, const char *seed)
{
    write_plan(arena, "'dropless'", "", "dp_shard = 2, ep = 4", "bound = 4");
    CommandResult r =
        command_run(arena, 60,
                    (const char *const[]){"sim", "imbalance.lua", "--db", "none", "--json",
                                          "--imbalance", how, "--seed", seed, NULL});
    if (r.exit_code != 0) fail_msg("--imbalance %s: %s%s", how, r.out, r.err);
    const char *step = strstr(r.out, "\n  \"step_ps\": ");
    assert_non_null(step);
    return strtod(step + strlen("\n  \"step_ps\": "), NULL);
}

/* The busiest of four ranks has 30 of 60 choices: twice the mean. All ranks wait for it, so the
 * step takes as long as if each rank had 30. Only some traffic is faster, because ports of idle
 * ranks are free. */
static void assert_paced(double counted, double factor)
{
    if (!(counted <= factor && counted >= factor * .99))
        fail_msg("step of %.0f ps by rank, %.0f ps by the busiest rank's factor", counted, factor);
}

static void counts_and_draws_set_the_busiest_rank(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    command_write_file("counts.txt", "# experts 0 to 3\n10, 30 10 10\n");
    assert_paced(step_ps(arena, "counts.txt", "1"), step_ps(arena, "2", "1"));
    command_write_file("counts.txt", "10 30 10 10\n15 15 15 15 # layer 1\n");
    assert_paced(step_ps(arena, "counts.txt", "1"), step_ps(arena, "1.5", "1"));
    const double even = step_ps(arena, "1", "1"), drawn = step_ps(arena, "drawn", "1");
    assert_true(drawn > even && drawn < step_ps(arena, "1.5", "1"));
    assert_true(drawn == step_ps(arena, "drawn", "1"));
    assert_true(drawn != step_ps(arena, "drawn", "2"));
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"1 2 3\n", ":1: error[option-value]: --imbalance: the line has 3 counts for 4 experts"},
        {"1 2 x 4\n",
         ":1: error[option-value]: --imbalance: the line has a word that is not a count"},
        {"\n0 0 0 0\n", ":2: error[option-value]: --imbalance: all counts of the line are 0"},
        {"1 2 3 4\n1 2 3 4\n1 2 3 4\n",
         "the file has counts of 3 layers; the model has 2 with experts"},
        {"# none\n", "the file has no counts"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        command_write_file("counts.txt", bad[i].text);
        CommandResult r = sim_of(arena, "'dropless'", "", "dp_shard = 2, ep = 4", "counts.txt");
        if (r.exit_code != 2 || !strstr(r.err, bad[i].why)) fail_msg("%s%s", r.out, r.err);
    }
    CommandResult r = sim_of(arena, "'dropless'", "", "dp_shard = 2, ep = 4", "no-such-file");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "a factor, `drawn` or a file of counts is expected (No such"));
    arena_free(arena);
}

/* `drawn` draws a limited number of choices, which leaves only 64 tokens for the second of two
 * layers. Shares of so few tokens would be far more uneven than shares of all, so the second layer
 * is not drawn at all. */
static void a_layer_is_drawn_in_full_or_not_at_all(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    write_plan(arena, "'dropless'", "", "dp_shard = 2, ep = 4", "bound = 4");
    CommandResult r = COMMAND(arena, 60, "sim", "imbalance.lua", "--db", "none", "--imbalance",
                              "drawn", "--set", "batch.micro=97656");
    const char *factor = strstr(r.out, "busiest rank ");
    if (factor == NULL) fail_msg("%s%s", r.out, r.err);
    const double drawn = strtod(factor + strlen("busiest rank "), NULL);
    assert_true(drawn > 1 && drawn < 1.001);
    arena_free(arena);
}

#define DROPS_NOBODY "runtime = 'megatron',"
#define EIGHT        "dp_shard = 2, ep = 4"

static void impossible_imbalances_are_refused(void **state)
{
    (void)state;
    refused("", EIGHT, "1.5", "an uneven choice drops tokens but takes no longer");
    refused(DROPS_NOBODY, "dp_shard = 8", "1.5", "does not divide experts over ranks");
    /* Each rank has one of 4 experts. A token has 2 choices, so it sends at most one of them to a
     * rank. */
    refused(DROPS_NOBODY, EIGHT, "2.5", "to 2 (one of 4 ranks receives all rows");
    refused(DROPS_NOBODY, EIGHT, "0.5", "a factor from 1 (all ranks");
    refused(DROPS_NOBODY, EIGHT, "nan", "a positive number");
    Arena *arena = arena_new();
    command_write_file("dense.lua",
                       "return plan { model = require 'models.llama' 'tiny', cluster = "
                       "require 'clusters.dgx_h100' { nodes = 1 },\n  batch = { micro "
                       "= 1, seq = 64 }, mesh = { dp_shard = 8 }, parallel = { fsdp2 {} } }");
    CommandResult r = COMMAND(arena, 60, "sim", "dense.lua", "--dry-run", "--imbalance", "drawn");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "--imbalance drawn: the plan has no experts\n"));
    arena_free(arena);
}

static void a_prediction_states_its_imbalance(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult uneven = sim(arena, DROPS_NOBODY, EIGHT, "2"),
                  even = sim(arena, DROPS_NOBODY, EIGHT, "1");
    if (uneven.exit_code || !strstr(uneven.out, "scenario    experts: busiest rank 2 x the mean\n"))
        fail_msg("code %d\n%s%s", uneven.exit_code, uneven.out, uneven.err);
    assert_int_equal(even.exit_code, 0);
    assert_null(strstr(even.out, "scenario"));
    arena_free(arena);
}

/* The lines `framework` and `runtime` state the same memory, that of the busiest rank. */
static void memory_is_that_of_the_busiest_rank(void **state)
{
    (void)state;
    static const char *const factor[] = {"1", "2"};
    double bytes[2];
    Arena *arena = arena_new();
    write_plan(arena, "'dropless'", "runtime = 'megatron',", EIGHT, "bound = 4");
    for (int i = 0; i < 2; i++) {
        CommandResult text = COMMAND(arena, 60, "sim", "imbalance.lua", "--dry-run", "--imbalance",
                                     factor[i], "--set", "batch.micro=64"),
                      json = COMMAND(arena, 60, "sim", "imbalance.lua", "--dry-run", "--imbalance",
                                     factor[i], "--set", "batch.micro=64", "--json");
        const char *under = strstr(text.out, "framework   megatron: ");
        const char *runtime = strstr(text.out, "runtime     megatron: ");
        const char *process = strstr(json.out, "\"process_bytes\": ");
        if (under == NULL || runtime == NULL || process == NULL)
            fail_msg("%s%s%s", text.out, text.err, json.out);
        under += strlen("framework   megatron: ");
        runtime = strstr(runtime, " reserved, ") + strlen(" reserved, ");
        const size_t n = strcspn(under, ",");
        if (strncmp(under, runtime, n) != 0)
            fail_msg("the two lines state different memory:\n%s", text.out);
        bytes[i] = strtod(process + strlen("\"process_bytes\": "), NULL);
    }
    assert_true(bytes[1] > bytes[0]);
    arena_free(arena);
}

/* Only the options that were given are printed, not the other parts of the store's key or its
 * hash. */
static void only_given_options_are_printed(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"--straggler", "3:2", "rank 3 takes 2 times as long"},
        {"--jitter", "0.3", "kernel times scatter with sigma 0.3"},
        {NULL, NULL, NULL}, /* this row stands for --imbalance drawn */
        {"--unfolded", NULL, "every rank simulated"},
    };
    Arena *arena = arena_new();
    write_plan(arena, "'dropless'", "", EIGHT, "bound = 8");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool drawn = rows[i][2] == NULL;
        CommandResult r =
            drawn ? COMMAND(arena, 60, "sim", "imbalance.lua", "--dry-run", "--imbalance", "drawn",
                            "--set", "seed=7")
                  : COMMAND(arena, 60, "sim", "imbalance.lua", "--dry-run", rows[i][0], rows[i][1]);
        const char *line = strstr(r.out, "scenario    ");
        if (r.exit_code != 0 || line == NULL) fail_msg("%s%s", r.out, r.err);
        line = arena_copy(arena, line + 12, strcspn(line + 12, "\n"));
        if (!drawn) assert_string_equal(line, rows[i][2]);
        if (drawn &&
            (strncmp(line, "experts: busiest rank 1.", 24) != 0 ||
             strstr(line, " x the mean, drawn with seed 7") == NULL || strchr(line, '#') != NULL))
            fail_msg("%s", line);
    }
    arena_free(arena);
}

/* In Tandem's own runs, too, dropless experts drop no token, so uneven choices are accepted. */
static void dropless_experts_may_be_uneven(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r = sim_of(arena, "'dropless'", "", EIGHT, "1.5");
    if (r.exit_code || !strstr(r.out, "scenario    experts: busiest rank 1.5 x the mean\n"))
        fail_msg("code %d\n%s%s", r.exit_code, r.out, r.err);
    arena_free(arena);
}

/* The ranks have memory for 1.2 times their share of rows, so a prediction for 1.9 times warns that
 * a run would fail. */
static void a_prediction_beyond_the_bound_is_warned_of(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *const factors[] = {"1.9", "1.2"};
    for (int k = 0; k < 2; k++) {
        write_plan(arena, "'dropless'", "", EIGHT, "bound = 1.2");
        CommandResult r =
            COMMAND(arena, 60, "sim", "imbalance.lua", "--dry-run", "--imbalance", factors[k]);
        const bool warned = strstr(r.err, "imbalance.lua:4: warning[rows-over-bound]") != NULL;
        if (r.exit_code || warned != (k == 0)) fail_msg("code %d\n%s", r.exit_code, r.err);
        if (k == 0) assert_non_null(strstr(r.err, "bound may be 1.9"));
    }
    arena_free(arena);
}

/* The error of a run is reported at the script's line of ep, not at a line of the model. */
static void a_run_beyond_the_bound_names_the_line_of_ep(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    write_plan(arena, "'dropless'", "", EIGHT, "bound = 1");
    CommandResult r =
        COMMAND(arena, 60, "run", "imbalance.lua", "--steps", "1", "--backend", "loopback", "--db",
                arena_print(arena, "%s/t.db", command_new_folder(arena)));
    if (r.exit_code == 0 || !strstr(r.err, "imbalance.lua:4: error[rows-over-bound]") ||
        !strstr(r.err, "with 2 every exchange fits"))
        fail_msg("code %d\n%s", r.exit_code, r.err);
    arena_free(arena);
}

/* `bound` has no effect on experts with a capacity, and a warning says so. --verify's smaller plans
 * do not repeat the warning. */
static void a_bound_of_experts_with_a_capacity_is_not_applied(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const struct {
        const char *capacity, *ep;
        bool warned;
    } plans[] = {
        {"1.25", "bound = 1.5", true}, {"1.25", "", false}, {"'dropless'", "bound = 1.5", false}};
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        write_plan(arena, plans[k].capacity, "", EIGHT, plans[k].ep);
        CommandResult r = COMMAND(arena, 60, "run", "imbalance.lua", "--verify");
        const char *first = strstr(r.err, "warning[not-applied]: ep { bound = 1.5 } has no effect");
        if (r.exit_code || (first != NULL) != plans[k].warned)
            fail_msg("plan %zu: code %d\n%s%s", k, r.exit_code, r.out, r.err);
        assert_true(!first || !strstr(first + 1, "warning[not-applied]"));
    }
    arena_free(arena);
}

/* `sim --imbalance` reads the file of `run --loads`: two steps of 8 sequences of 64 tokens, of
 * which each chooses 2 of 4 experts in both layers. */
static void a_run_writes_the_counts_that_sim_reads(void **state)
{
    (void)state;
    for (int dropless = 0; dropless < 2; dropless++) {
        Arena *arena = arena_new();
        write_plan(arena, dropless ? "'dropless'" : "1.0", "", "dp_shard = 4, ep = 2", "bound = 4");
        CommandResult r = COMMAND(arena, 60, "run", "imbalance.lua", "--backend", "loopback",
                                  "--steps", "2", "--db", "loads.db", "--loads", "loads.txt");
        if (r.exit_code != 0) fail_msg("%s%s", r.out, r.err);
        const char *at = command_read_file(arena, "loads.txt", NULL);
        double worst = 0;
        for (int layer = 0; layer < 2; layer++) {
            double own[2] = {0, 0};
            char *end = NULL;
            for (int e = 0; e < 4; e++, at = end) own[e / 2] += strtod(at, &end);
            assert_true(own[0] + own[1] == 2 * 8 * 64 * 2);
            worst += (own[0] > own[1] ? own[0] : own[1]) / (2 * 8 * 64) / 2;
            at = strchr(at, '\n') + 1;
        }
        assert_string_equal(at, "");
        if (dropless) { /* with a capacity, uneven choices drop tokens and take no longer */
            const char *factor = arena_print(arena, "%.17g", worst);
            CommandResult counted = COMMAND(arena, 60, "sim", "imbalance.lua", "--db", "none",
                                            "--imbalance", "loads.txt");
            CommandResult same =
                COMMAND(arena, 60, "sim", "imbalance.lua", "--db", "none", "--imbalance", factor);
            assert_int_equal(counted.exit_code, 0);
            const char *by = strstr(counted.out, "scenario    experts: "),
                       *of = strstr(same.out, "scenario    experts: ");
            assert_true(by != NULL && of != NULL);
            const size_t n = strcspn(of, "\n");
            assert_memory_equal(by, of, n);
            static const char source[] = ", counted in loads.txt\n";
            assert_int_equal(strncmp(by + n, source, strlen(source)), 0);
        }
        arena_free(arena);
    }
}

static void a_run_that_cannot_count_says_so(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    write_plan(arena, "1.0", "", "dp_shard = 4, ep = 2", "bound = 4");
    CommandResult r = COMMAND(arena, 60, "run", "imbalance.lua", "--verify", "--loads", "no.txt");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "--loads 'no.txt': --verify trains no step"));
    /* The second rank of a run stays silent, because the first rank reports the error. */
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    r = COMMAND(arena, 60, "run", "imbalance.lua", "--verify", "--loads", "no.txt");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("OMPI_COMM_WORLD_RANK");
    assert_int_equal(r.exit_code, 2);
    assert_string_equal(r.err, "");
    command_write_file("dense.lua", "return plan { model = require 'models.llama' 'tiny',\n"
                                    "  batch = { global = 1, micro = 1, seq = 8 } }\n");
    r = COMMAND(arena, 60, "run", "dense.lua", "--backend", "loopback", "--loads", "no.txt");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "--loads 'no.txt': the plan has no experts"));
    arena_free(arena);
}

/* A file that the run may not write, or that holds something else, is refused before step 0. */
static void a_run_replaces_only_files_of_counts(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    write_plan(arena, "1.0", "", "dp_shard = 4, ep = 2", "bound = 4");
    const char *folder = command_new_folder(arena);
    const char *store = arena_print(arena, "%s/n.db", folder);
    const char *notes = arena_print(arena, "%s/notes.txt", folder);
    const char *data = arena_print(arena, "%s/data.txt", folder);
    command_write_file(notes, "1 2 3 4\nmy notes\n");
    command_write_file(data, "1 2 3 4 1 2 3 4 1 2 3 4 1 2 3 4 1 2 3 4 1 2 3 4 1 2 3 4 1 2 3 4\n");
    const char *plan = command_read_file(arena, "imbalance.lua", NULL);
    const struct {
        const char *path, *why;
    } bad[] = {{"", "a path is expected"},
               {arena_print(arena, "%s/none/x.txt", folder), "No such file or directory"},
               {folder, "not a regular file"},
               {"/dev/full", "not a regular file"},
               {"imbalance.lua", "the run reads or writes this file"},
               {store, "the run reads or writes this file"},
               {data, "the run reads or writes this file"},
               {notes, "line 2 holds no counts of experts"}};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        CommandResult r =
            COMMAND(arena, 60, "run", "imbalance.lua", "--backend", "loopback", "--steps", "1",
                    "--db", store, "--data", data, "--loads", bad[k].path);
        const char *named = arena_print(arena, "--loads '%s'", bad[k].path);
        if (r.exit_code != 2 || !strstr(r.err, bad[k].why) || !strstr(r.err, named))
            fail_msg("--loads %s: code %d\n%s%s", bad[k].path, r.exit_code, r.out, r.err);
        assert_null(strstr(r.out, "step    0"));
        assert_int_equal(COMMAND(arena, 60, "runs", "--db", store).exit_code, 0);
    }
    assert_string_equal(command_read_file(arena, "imbalance.lua", NULL), plan);
    assert_string_equal(command_read_file(arena, notes, NULL), "1 2 3 4\nmy notes\n");
    command_write_file(notes, "# earlier counts\n1 2 3 4 # layer 0\n");
    CommandResult r = COMMAND(arena, 60, "run", "imbalance.lua", "--backend", "loopback", "--steps",
                              "1", "--db", store, "--loads", notes);
    if (r.exit_code != 0) fail_msg("%s%s", r.out, r.err);
    assert_null(strstr(command_read_file(arena, notes, NULL), "earlier"));
    arena_free(arena);
}

/* Factors of drawn or counted choices have many digits, and messages round them. The bound that a
 * hint names must still suffice.
 */
static void rounded_factors_are_still_sufficient(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    write_plan(arena, "'dropless'", "", EIGHT, "bound = 1.2");
    CommandResult r = COMMAND(arena, 60, "sim", "imbalance.lua", "--dry-run", "--imbalance",
                              "1.7144444444444444");
    if (r.exit_code || !strstr(r.out, "scenario    experts: busiest rank 1.7144 x the mean\n") ||
        !strstr(r.err, "a rank gets 1.714 times its mean") || !strstr(r.err, "bound may be 1.72\n"))
        fail_msg("code %d\n%s%s", r.exit_code, r.out, r.err);
    write_plan(arena, "'dropless'", "", EIGHT, "bound = 1.72");
    r = COMMAND(arena, 60, "sim", "imbalance.lua", "--dry-run", "--imbalance",
                "1.7144444444444444");
    assert_null(strstr(r.err, "rows-over-bound"));
    arena_free(arena);
}

/* Wrong ranks and settings are reported alone, without a report of the plan. */
static void wrong_scenarios_are_reported_without_a_report(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    write_plan(arena, "'dropless'", "", EIGHT, "bound = 1.2");
    const char *const bad[][2] = {
        {"--straggler", "99:2"}, {"--jitter", "3"}, {"--what-if", "gpu=H300"}};
    for (int k = 0; k < 3; k++) {
        CommandResult r =
            COMMAND(arena, 60, "sim", "imbalance.lua", "--dry-run", bad[k][0], bad[k][1]);
        if (r.exit_code != 2 || !strstr(r.err, bad[k][1]))
            fail_msg("%s: code %d\n%s", bad[k][0], r.exit_code, r.err);
        const char *first = strstr(r.err, bad[k][0]);
        /* the error is reported once */
        assert_true(first != NULL && !strstr(first + 1, bad[k][0]));
        assert_string_equal(r.out, "");
    }
    arena_free(arena);
}

/* Simulates the plan and returns the error that the store's earlier runs give its prediction. */
static const char *error_of_store(Arena *arena, const char *db)
{
    CommandResult r = COMMAND(arena, 60, "sim", "imbalance.lua", "--db", db, "--json");
    const char *at = strstr(r.out, "\"error_p50\": ");
    if (r.exit_code != 0 || at == NULL) fail_msg("%s%s", r.out, r.err);
    return arena_copy(arena, at, strcspn(at, ",\n"));
}

/* Predictions with uneven experts do not count as predictions of the store's even runs. */
static void uneven_predictions_do_not_change_the_error(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const char *db = arena_print(arena, "%s/t.db", command_new_folder(arena));
    command_write_file(
        "imbalance.lua",
        "return plan { model = require 'models.mixtral' { size = 'tiny', capacity_factor = "
        "'dropless' },\n  cluster = require 'clusters.local_cpu' {}, batch = { micro = 1, seq = 64 "
        "},\n  mesh = { dp_shard = 2, ep = 2 }, parallel = { ep { bound = 2 }, fsdp2 {} } }\n");
    CommandResult r = COMMAND(arena, 60, "run", "imbalance.lua", "--backend", "loopback", "--steps",
                              "1", "--db", db);
    if (r.exit_code != 0) fail_msg("%s%s", r.out, r.err);
    const char *own = error_of_store(arena, db);
    assert_null(strstr(own, "null"));
    r = COMMAND(arena, 60, "sim", "imbalance.lua", "--db", db);
    if (!strstr(r.out, "costs 0 days old; error of 1 earlier run of this store: "))
        fail_msg("%s%s", r.out, r.err);
    const char *const others[][2] = {{"--straggler", "0:10"}, {"--imbalance", "1.5"}};
    for (int k = 0; k < 2; k++) {
        r = COMMAND(arena, 60, "sim", "imbalance.lua", "--db", db, others[k][0], others[k][1]);
        if (r.exit_code != 0) fail_msg("%s%s", r.out, r.err);
        assert_string_equal(error_of_store(arena, db), own);
    }
    r = COMMAND(arena, 60, "runs", "--db", db);
    if (!strstr(r.out, "imbalance.lua  rank 0 takes 10 times as long\n")) fail_msg("%s", r.out);
    assert_non_null(strstr(r.out, "imbalance.lua  experts: busiest rank 1.5 x the mean\n"));
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_imbalances_are_refused),
        cmocka_unit_test(counts_and_draws_set_the_busiest_rank),
        cmocka_unit_test(a_layer_is_drawn_in_full_or_not_at_all),
        cmocka_unit_test(a_prediction_states_its_imbalance),
        cmocka_unit_test(memory_is_that_of_the_busiest_rank),
        cmocka_unit_test(only_given_options_are_printed),
        cmocka_unit_test(dropless_experts_may_be_uneven),
        cmocka_unit_test(a_prediction_beyond_the_bound_is_warned_of),
        cmocka_unit_test(a_run_beyond_the_bound_names_the_line_of_ep),
        cmocka_unit_test(a_run_writes_the_counts_that_sim_reads),
        cmocka_unit_test(a_run_that_cannot_count_says_so),
        cmocka_unit_test(a_run_replaces_only_files_of_counts),
        cmocka_unit_test(a_bound_of_experts_with_a_capacity_is_not_applied),
        cmocka_unit_test(uneven_predictions_do_not_change_the_error),
        cmocka_unit_test(rounded_factors_are_still_sufficient),
        cmocka_unit_test(wrong_scenarios_are_reported_without_a_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
