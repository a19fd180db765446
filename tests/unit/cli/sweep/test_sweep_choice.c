/* --where, --shard and --slurm choose the points of a sweep. They may neither lose a point nor take
 * one twice. Also tests the columns that --tokens adds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "planner/base/str.h"
#include "tests/support/command.h"
#include "tests/support/test_arena.h"

static const char llama[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_8b.lua";

#define SWEEP(...)                                                                                 \
    COMMAND(arena, 120, "sweep", llama, "--set", "mesh.dp_shard=-1", "--try", "mesh.tp=1,2,4",     \
            "--try", "batch.micro=1,2", "--db", "none", __VA_ARGS__)

typedef struct Choice {
    const char *where;
    const char *kept; /* "tp.micro" of each point that is kept */
} Choice;

static const char *kept(const char *where)
{
    CommandResult r = SWEEP("--where", where, "--dry-run");
    if (r.exit_code != 0) fail_msg("%s: %s", where, r.err);
    Str out = str_in(arena);
    for (const char *line = r.out; *line != 0; line += strcspn(line, "\n") + 1) {
        int tp, micro;
        assert_int_equal(sscanf(line, "--set mesh.tp=%d --set batch.micro=%d", &tp, &micro), 2);
        str_print(&out, "%s%d.%d", out.n > 0 ? " " : "", tp, micro);
    }
    return str_text(&out);
}

static void where_keeps_the_points_of_its_condition(void **state)
{
    (void)state;
    static const Choice choices[] = {
        {"tp*micro <= 4", "1.1 1.2 2.1 2.2 4.1"},
        {"mesh.tp == 2", "2.1 2.2"},
        {"tp > 1 and micro == 2", "2.2 4.2"},
        {"tp == 1 or micro ~= 1", "1.1 1.2 2.2 4.2"},
        {"not (tp < 4)", "4.1 4.2"},
        {"-tp + 2 * micro % 4 >= 0", "1.1 2.1"},
        {"tp / micro == 1", "1.1 2.2"},
        {"tp*pp <= 2 and micro > 1", "1.2 2.2"},
        {"dp_shard == -1 and tp != 'two' and tp - 1 - 1 > 0", "4.1 4.2"},
    };
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        assert_string_equal(kept(choices[i].where), choices[i].kept);
}

static void mistakes_in_conditions_are_reported(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"tp*micr <= 4", "no --set or --try names this setting, at 'micr <= 4'\n  hint: did you "
                         "mean 'micro'?"},
        {"tp <= ", "a value is expected at 'the end'"},
        {"(tp <= 4", "')' is expected"},
        {"tp 4", "an operator is expected at '4'"},
        {"tp * 'x'", "both sides must be numbers"},
        {"tp > 100", "--where leaves none of 6 combinations"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CommandResult r = SWEEP("--where", wrong[i][0], "--dry-run");
        assert_int_equal(r.exit_code, 2);
        if (strstr(r.err, wrong[i][1]) == NULL) fail_msg("%s: %s", wrong[i][0], r.err);
    }
    CommandResult r = SWEEP("--shard", "5/4", "--dry-run");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "--shard 5/4: I/N, as in 2/8, is expected"));
}

/* Every point is in exactly one shard. */
static void shards_cover_all_points_once(void **state)
{
    (void)state;
    const char *all = SWEEP("--dry-run").out;
    size_t n = 0;
    for (int i = 1; i <= 4; i++) {
        CommandResult r = SWEEP("--shard", arena_print(arena, "%d/4", i), "--dry-run");
        assert_int_equal(r.exit_code, 0);
        for (const char *line = r.out; *line != 0; line += strcspn(line, "\n") + 1) {
            const char *text = arena_copy(arena, line, strcspn(line, "\n") + 1);
            assert_non_null(strstr(all, text));
            n += strlen(text);
        }
    }
    assert_int_equal(n, strlen(all));
}

static void the_slurm_script_runs_the_same_command(void **state)
{
    (void)state;
    CommandResult r = SWEEP("--where", "tp > 1", "--slurm", "3");
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "#SBATCH --array=1-3\n"));
    assert_non_null(strstr(r.out, "--try mesh.tp=1,2,4"));
    assert_non_null(strstr(r.out, "--where 'tp > 1'"));
    assert_non_null(strstr(r.out, "--shard \"$SLURM_ARRAY_TASK_ID/3\""));
    assert_null(strstr(r.out, "--slurm"));
    assert_non_null(strstr(r.out, "--cpus-per-task=4\n"));
    assert_non_null(strstr(r.out, " --jobs 4 "));
    r = SWEEP("--slurm", "3", "-j", "7", "--json");
    assert_int_equal(r.exit_code, 0);
    json_t *root = json_loads(r.out, 0, NULL);
    const char *script = json_string_value(json_object_get(root, "script"));
    assert_non_null(script);
    assert_non_null(strstr(script, "--cpus-per-task=7\n"));
    assert_non_null(strstr(script, " -j 7 "));
    assert_null(strstr(script, "--jobs 4"));
    json_decref(root);
}

static void slurm_refuses_a_job_that_cannot_work(void **state)
{
    (void)state;
    CommandResult r = SWEEP("--slurm", "7");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "--slurm 7: the sweep has only 6 points"));
    r = SWEEP("--slurm", "2", "--shard", "1/2");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "--slurm makes the shards itself"));
    r = SWEEP("--slurm", "2", "--set", "nothing=1");
    assert_int_equal(r.exit_code, 3);
    assert_non_null(strstr(r.err, "unknown key 'nothing'"));
}

static void an_empty_shard_is_not_an_error(void **state)
{
    (void)state;
    CommandResult r = SWEEP("--where", "tp == 2", "--shard", "3/4");
    assert_int_equal(r.exit_code, 0);
    assert_non_null(strstr(r.out, "shard 3/4 has no points"));
}

static void equal_values_are_refused(void **state)
{
    (void)state;
    CommandResult r = SWEEP("--try", "batch.seq=1024,2048,1024");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "--try batch.seq=1024,2048,1024: the value 1024 comes twice"));
}

#define BY_USD(...)                                                                                \
    COMMAND(arena, 120, "sweep", llama, "--set", "model.layers=2", "--by", "usd", "--db", "none",  \
            "--json", __VA_ARGS__)

/* The plan's own GPU keeps its price. The B200 has no price in this plan, so it comes last although
 * it is faster. */
static void rows_without_a_price_come_last(void **state)
{
    (void)state;
    CommandResult r = BY_USD("--try", "gpu=B200,H100");
    assert_int_equal(r.exit_code, 0);
    json_t *root = json_loads(r.out, 0, NULL), *rows = json_object_get(root, "rows");
    const json_t *first = json_array_get(rows, 0), *second = json_array_get(rows, 1);
    assert_true(json_number_value(json_object_get(first, "usd_per_token")) > 0);
    assert_true(json_is_null(json_object_get(second, "usd_per_token")));
    assert_true(json_number_value(json_object_get(first, "tokens_per_s")) <
                json_number_value(json_object_get(second, "tokens_per_s")));
    json_decref(root);
    r = BY_USD("--try", "gpu=B200,H20");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.out, "no price is known"));
}

/* Without a price, the table has no column of prices, and the report says once why. */
static void a_missing_price_is_reported_once(void **state)
{
    (void)state;
    static const char why[] = "price       unknown: no price of a GPU hour is known; --price USD";
    for (int priced = 0; priced < 2; priced++) {
        const char *option = priced ? "--price" : "--limit";
        const CommandResult all[] = {
            SWEEP("--where", "tp == 2", "--set", "model.layers=2", "--set", "gpu=MI300X", option,
                  "2"),
            COMMAND(arena, 120, "search", llama, "--set", "model.layers=2", "--set", "gpu=MI300X",
                    "--set", "runtime=none", "--where", "tp == 2 and micro == 1", "--db", "none",
                    priced ? "--price" : NULL, "2"),
        };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            const char *said = strstr(all[i].out, why);
            if (all[i].exit_code != 0 || (said == NULL) != priced) fail_msg("%s", all[i].out);
            assert_true(priced || strstr(said + 1, why) == NULL);
        }
        if (priced) assert_non_null(strstr(all[0].out, "USD/Mtoken"));
        if (priced) assert_non_null(strstr(all[1].out, " USD a million tokens\n"));
    }
}

static void tokens_give_days_and_dollars(void **state)
{
    (void)state;
    CommandResult r = SWEEP("--where", "tp == 2", "--set", "model.layers=2", "--tokens", "1T",
                            "--price", "2", "--json");
    assert_int_equal(r.exit_code, 0);
    json_t *root = json_loads(r.out, 0, NULL), *row;
    size_t i;
    assert_int_equal(json_array_size(json_object_get(root, "rows")), 2);
    json_array_foreach(json_object_get(root, "rows"), i, row)
    {
        const double speed = json_number_value(json_object_get(row, "tokens_per_s")),
                     days = json_number_value(json_object_get(row, "days")),
                     usd = json_number_value(json_object_get(row, "usd"));
        assert_true(fabs(days - 1e12 / speed / 86400) < 1e-9 * days);
        assert_true(fabs(usd - days * 24 * 16 * 2) < 1e-6 * usd);
    }
    json_decref(root);
}

/* Energy is the time of all GPUs x 700 W for a board x the PUE. */
static void energy_is_power_times_time(void **state)
{
    (void)state;
    CommandResult r = SWEEP("--where", "tp == 2", "--set", "model.layers=2", "--tokens", "1T",
                            "--pue", "1.5", "--by", "energy", "--json");
    assert_int_equal(r.exit_code, 0);
    json_t *root = json_loads(r.out, 0, NULL), *row;
    double before = 0;
    size_t i;
    assert_string_equal(json_string_value(json_object_get(root, "by")), "energy");
    json_array_foreach(json_object_get(root, "rows"), i, row)
    {
        const double days = json_number_value(json_object_get(row, "days")),
                     mwh = json_number_value(json_object_get(row, "mwh")),
                     joules = json_number_value(json_object_get(row, "joules_per_token"));
        assert_true(fabs(mwh - days * 24 * 16 * 700e-6 * 1.5) < 1e-9 * mwh);
        assert_true(fabs(mwh - joules * 1e12 / 3.6e9) < 1e-9 * mwh && mwh > before);
        before = mwh;
    }
    json_decref(root);
    r = COMMAND(arena, 60, "sim", llama, "--set", "model.layers=2", "--db", "none", "--pue", "1.1",
                "--json");
    assert_int_equal(r.exit_code, 0);
    root = json_loads(r.out, 0, NULL);
    const json_t *energy = json_object_get(root, "energy");
    const double kwh = json_number_value(json_object_get(energy, "kwh_per_step")),
                 step_s = json_number_value(json_object_get(root, "step_ps")) / 1e12;
    assert_true(fabs(kwh - 16 * .7 * 1.1 * step_s / 3600) < 1e-9 * kwh);
    assert_true(json_is_null(json_object_get(energy, "mwh")));
    json_decref(root);
    r = COMMAND(arena, 60, "sim", llama, "--set", "model.layers=2", "--db", "none", "--pue", "1.1",
                "--set", "cluster.device.watts=0");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "--pue: the power of a H100-SXM5-80GB is not known"));
    r = SWEEP("--where", "tp == 2", "--set", "model.layers=2", "--set", "cluster.device.watts=0",
              "--by", "energy");
    assert_int_equal(r.exit_code, 2);
    assert_non_null(strstr(r.err, "--by energy: no power is known for these GPUs"));
}

/* Tables name the unit that a field model counts, and call the devices of this machine ranks. */
static void tables_of_field_models_count_points(void **state)
{
    (void)state;
    static const char unet[] = TANDEM_SOURCE_DIR "/scripts/plans/unet_wave.lua";
    const char *db = arena_print(arena, "%s/x.db", command_new_folder(arena));
    const CommandResult all[] = {
        COMMAND(arena, 120, "sweep", unet, "--try", "batch.micro=1,2", "--price", "2", "--db", db),
        COMMAND(arena, 120, "fit", unet, "--db", db),
        COMMAND(arena, 120, "search", unet, "--db", db),
        COMMAND(arena, 120, "compare", "1", "2", "--db", db),
        COMMAND(arena, 120, "sim", unet, "--tokens", "1T", "--what-if", "batch=2x", "--db", db),
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].exit_code != 0 || strstr(all[i].out, "token") != NULL ||
            strstr(all[i].out, "points") == NULL || strstr(all[i].out, "per GPU") != NULL)
            fail_msg("%zu: code %d\n%s\n%s", i, all[i].exit_code, all[i].out, all[i].err);
    assert_non_null(strstr(all[0].out, "USD/Mpoint"));
    assert_non_null(strstr(all[0].out, "  per rank  "));
    assert_non_null(strstr(all[4].out, "  per rank  "));
}

/* These settings select one data pass, and one runtime or none. The plan equals the one that a
 * script with them would give. */
static void passes_and_runtimes_can_be_set(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"parallel.data=zero",
         "parallel    tp(sequence), ac(selective), zero(optim_grads_params)\n"},
        {"parallel.data=fsdp2", "parallel    tp(sequence), ac(selective), fsdp2(reshard)\n"},
        {"parallel.ac=none", "parallel    tp(sequence), fsdp2(reshard)\n"},
        {"parallel.zero=optim_grads",
         "parallel    tp(sequence), ac(selective), zero(optim_grads)\n"},
        {"runtime=none", "framework   automodel: "},
        {"runtime=fsdp1", "framework   fsdp1: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CommandResult r = COMMAND(arena, 60, "check", llama, "--set", "model.layers=2", "--set",
                                  "runtime=torchtitan", "--set", cases[i][0]);
        if (r.exit_code != 0 || strstr(r.out, cases[i][1]) == NULL)
            fail_msg("%s: %s%s", cases[i][0], r.out, r.err);
    }
    CommandResult r = COMMAND(arena, 60, "check", llama, "--set", "parallel.data=tp");
    assert_int_equal(r.exit_code, 3);
    assert_non_null(
        strstr(r.err, "error[unknown-word]: 'tp' is not a data pass\n  hint: one of: "));
    r = SWEEP("--where", "tp == 2 and micro == 1", "--try", "parallel.data=fsdp2,zero", "--set",
              "model.layers=2", "--try", "runtime=none,torchtitan", "-q");
    assert_non_null(strstr(r.out, "4 plans of "));
    assert_non_null(strstr(r.out, "4 fit, 0 do not, 0 are refused"));
    r = SWEEP("--where", "tp == 2 and micro == 1", "--set", "model.layers=2", "-q");
    assert_non_null(strstr(r.out, ": 1 fits, 0 do not, 0 are refused; best by tokens first\n"));
    r = SWEEP("--where", "tp == 2 and micro == 1", "--set", "cluster.device.memory_bytes=1e9");
    if (!strstr(r.out, ": 0 fit, 1 does not, 0 are refused\n")) fail_msg("%s%s", r.out, r.err);
}

/* If a signal ends the command, it reports the kept results. The sweep has many points, so it is
 * still at work after two seconds. */
static void an_interrupted_sweep_says_where_its_results_are(void **state)
{
    (void)state;
    const char *script = arena_print(
        arena,
        "rm -f kept.db*; '%s' sweep %s --set mesh.dp_shard=-1 --try mesh.tp=1,2,4,8 --try "
        "batch.micro=1,2,4,8 "
        "--try parallel.ac=none,full --try seed=1,2,3,4,5,6,7,8 --db kept.db -j 1 & pid=$!; sleep "
        "2; kill -TERM $pid; wait "
        "$pid; echo code $?",
        TANDEM_COMMAND, llama);
    const char *const argv[] = {"sh", "-c", script, NULL};
    CommandResult r = command_run_program(arena, 60, argv);
    assert_non_null(strstr(r.err, "interrupted: the points decided so far are kept in kept.db; the "
                                  "same command goes on from there\n"));
    assert_non_null(strstr(r.out, "code 143\n"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_arena_setup, test_arena_teardown)

/* 1F1B reduces gradients in each micro-batch, ZB-H1 once. With keep_gathered, both do it once. Only
 * fsdp2 has this setting. In a plan with zero, this setting would replace the data pass, so no
 * message may propose it. */
static void unequal_traffic_of_schedules_is_reported(void **state)
{
    (void)state;
    static const char plan[] = TANDEM_SOURCE_DIR "/scripts/plans/llama3_70b_pp.lua";
    static const char says[] =
        "traffic     schedules move different bytes of weights and gradients in a step: ";
    static const char proposes[] =
        "; with --set parallel.fsdp2.keep_gathered=true each gathers a weight once\n";
#define SCHEDULES(key, values, keep, ...)                                                          \
    COMMAND(arena, 120, "sweep", plan, "--try", key "=" values, "--set", "batch.global=16",        \
            "--set", "model.layers=8", "--set", "parallel.ac=full", "--set",                       \
            "parallel.fsdp2.keep_gathered=" keep, "--db", "none", __VA_ARGS__)
    CommandResult r = SCHEDULES("parallel.pp.schedule", "1f1b,zb_h1,gpipe", "false", "-q");
    const char *line = strstr(r.out, says);
    assert_non_null(line);
    const char *const names[] = {"1f1b ", "zb_h1 ", "gpipe "};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(strstr(line, names[i]) != NULL && strstr(line, names[i]) < strchr(line, '\n'));
    assert_non_null(strstr(r.out, proposes));
    r = SCHEDULES("parallel.pp", "1f1b,zb_h1", "false", "-q"); /* the usual short form */
    assert_non_null(strstr(r.out, says));
    r = SCHEDULES("parallel.pp.schedule", "1f1b,zb_h1", "true", "-q");
    assert_non_null(strstr(r.out, "best        "));
    assert_null(strstr(r.out, "traffic "));
    /* a V places the embedding and the head on one rank, a loop does not */
    r = SCHEDULES("parallel.pp", "dualpipe_v,interleaved_1f1b", "true", "-q");
    assert_non_null(strstr(r.out, says));
    assert_null(strstr(r.out, "keep_gathered=true"));
    assert_non_null(strstr(r.out, "the slowest ranks hold different layers\n"));
    /* keep_gathered is refused beside reshard_root */
    r = SCHEDULES("parallel.pp", "1f1b,zb_h1", "false", "--set",
                  "parallel.fsdp2.reshard_root=true");
    assert_non_null(strstr(r.out, says));
    assert_null(strstr(r.out, "keep_gathered"));
    r = COMMAND(arena, 120, "sweep", plan, "--try", "parallel.pp=1f1b,zb_h1", "--set",
                "batch.global=16", "--set", "parallel.data=zero", "--db", "none");
    assert_non_null(strstr(r.out, says));
    assert_null(strstr(r.out, "fsdp2"));
#undef SCHEDULES
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(where_keeps_the_points_of_its_condition),
        TEST(mistakes_in_conditions_are_reported),
        TEST(shards_cover_all_points_once),
        TEST(the_slurm_script_runs_the_same_command),
        TEST(slurm_refuses_a_job_that_cannot_work),
        TEST(an_empty_shard_is_not_an_error),
        TEST(equal_values_are_refused),
        TEST(rows_without_a_price_come_last),
        TEST(a_missing_price_is_reported_once),
        TEST(tokens_give_days_and_dollars),
        TEST(energy_is_power_times_time),
        TEST(tables_of_field_models_count_points),
        TEST(passes_and_runtimes_can_be_set),
        TEST(an_interrupted_sweep_says_where_its_results_are),
        TEST(unequal_traffic_of_schedules_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
