/* Schedules that a script writes itself, as a file or as a function. A built-in schedule that is
 * written out in this way compiles to the same plan, and so does a file with communications.
 * tests/bad_input has the refusals; tests/exec/test_random draws schedules at random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "planner/front/front.h"
#include "planner/ir/text/text.h"
#include "planner/lower/compile.h"
#include "planner/passes/schedule/schedule.h"
#include "tests/support/command.h"
#include "tests/support/test_arena.h"

typedef struct Loaded {
    Hash128 id;
    uint32_t peak;
    double idle;
    Diag diag;
} Loaded;

static Loaded load(const char *folder, const char *pp, uint32_t p, uint32_t m)
{
    const char *path = arena_print(arena, "%s/script.lua", folder);
    Loaded l = {.diag = diag_in(arena)};
    command_write_file(
        path,
        arena_print(arena,
                    "return plan { model = require 'models.llama' { size = 'tiny', layers = 8 },\n"
                    "  batch = { global = %u, seq = 16 }, mesh = { pp = %u },\n"
                    "  parallel = { pp { %s } } }\n",
                    m, p, pp));
    Config config;
    Graph graph;
    LowerOptions options = lower_options_default();
    Plan *plan = NULL;
    if (front_load(path, NULL, arena, &config, &graph, &l.diag))
        plan = plan_compile(&config, &graph, &options, NULL, arena, &l.diag);
    Str text = str_in(arena);
    diag_print(&l.diag, &text);
    if (!plan) fail_msg("%s", str_text(&text));
    PipelineFacts facts;
    assert_true(passes_pipeline(&config, plan, arena, &facts));
    l.id = text_plan_id(plan, arena);
    l.peak = facts.peak;
    l.idle = facts.idle;
    return l;
}

static bool same(Hash128 a, Hash128 b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

static const char *csv_of(const Schedule *s, bool comms)
{
    Str text = str_in(arena);
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        for (uint32_t i = 0; i < s->of[r].n; i++) {
            const Action *a = &s->of[r].at[i];
            bool forward = a->kind == ACTION_F, last = a->stage + 1 == s->n_stages;
            uint32_t from = forward ? a->stage - 1 : a->stage + 1,
                     to = forward ? a->stage + 1 : a->stage - 1;
            bool receives = a->kind != ACTION_W && (forward ? a->stage > 0 : !last) &&
                            s->rank_of[from] != r,
                 sends =
                     a->kind != ACTION_W && (forward ? !last : a->stage > 0) && s->rank_of[to] != r;
            if (comms && receives)
                str_print(&text, "%uRECV_%s%u,", a->stage, forward ? "F" : "B", a->microbatch);
            str_print(&text, "%u%s%u,", a->stage, action_name(a->kind), a->microbatch);
            if (comms && sends)
                str_print(&text, "%uSEND_%s%u,", a->stage, forward ? "F" : "B", a->microbatch);
        }
        str_add(&text, comms ? ",,0UNSHARD\r\n" : "\n");
    }
    return str_text(&text);
}

static const char *lua_of(const Schedule *s)
{
    Str text = str_in(arena);
    str_print(&text,
              "schedule = function(p, m, chunks) assert(p == %u and m == %u and chunks == %u)"
              " return {",
              s->n_ranks, s->n_microbatches, s->n_stages / s->n_ranks);
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        str_print(&text, " [%u] = {", r);
        for (uint32_t i = 0; i < s->of[r].n; i++)
            str_print(&text, "'%s%u.%u',", action_name(s->of[r].at[i].kind), s->of[r].at[i].stage,
                      s->of[r].at[i].microbatch);
        str_add(&text, " },");
    }
    str_print(&text, " } end, chunks = %u", s->n_stages / s->n_ranks);
    return str_text(&text);
}

static void a_written_out_built_in_schedule_makes_the_same_plan(void **state)
{
    (void)state;
    const char *folder = command_new_folder(arena);
    for (int kind = 0; kind < SCHEDULE_COUNT; kind++)
        for (uint32_t p = 2; p <= 4; p += 2) {
            ScheduleTraits t = schedule_traits((ScheduleKind)kind);
            uint32_t m = 2 * p;
            Schedule s;
            schedule_make(&s, (ScheduleKind)kind, p, t.least_chunks, m, arena);
            Loaded built_in = load(folder, arena_print(arena, "schedule = '%s'", t.name), p, m);
            command_write_file(arena_print(arena, "%s/own.csv", folder), csv_of(&s, false));
            Loaded file = load(folder, "csv = 'own.csv'", p, m);
            assert_true(same(file.id, built_in.id));
            assert_int_equal(file.peak, built_in.peak);
            assert_true(file.idle == built_in.idle);
            assert_int_equal(file.diag.items.n, 0);
            assert_true(same(load(folder, lua_of(&s), p, m).id, built_in.id));
            command_write_file(arena_print(arena, "%s/own.csv", folder), csv_of(&s, true));
            file = load(folder,
                        arena_print(arena, "csv = 'own.csv', placement = '%s'",
                                    t.placement == PLACEMENT_v ? "v" : "loop"),
                        p, m);
            assert_true(same(file.id, built_in.id));
            assert_int_equal(file.diag.items.n, 1);
            assert_string_equal(file.diag.items.at[0].rule, "schedule-comms-ignored");
        }
}

/* An overlapped pair is read as two actions. Spaces, quotes and a
 * byte-order mark are ignored. */
static void an_overlapped_pair_is_read_as_two_actions(void **state)
{
    (void)state;
    const char *folder = command_new_folder(arena);
    command_write_file(arena_print(arena, "%s/own.csv", folder),
                       "\"0F0\", 0F1 ,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n\n");
    Loaded l = load(folder, "csv = 'own.csv'", 2, 3);
    assert_int_equal(l.peak, 3);
    command_write_file(arena_print(arena, "%s/own.csv", folder),
                       "\xEF\xBB\xBF"
                       "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
    assert_true(same(l.id, load(folder, "csv = 'own.csv'", 2, 3).id));
}

/* In a scaled-down plan, a schedule file keeps its ranks and micro-batches. A function is called
 * with smaller numbers. */
static void a_scaled_down_plan_keeps_its_schedule(void **state)
{
    (void)state;
    const char *folder = command_new_folder(arena),
               *path = arena_print(arena, "%s/script.lua", folder);
    static const char *const pp[] = {
        "csv = 'own.csv'", "schedule = function(p, m) return { [0] = { 'F0.' .. m - 4 }, {} } end",
        "schedule = 'zb_v', layers_per_stage = 1"};
    static const uint32_t ranks[] = {4, 2, 2}, microbatches[] = {9, 4, 4};
    Schedule s;
    schedule_make(&s, SCHEDULE_zb_h1, 4, 1, 9, arena);
    command_write_file(arena_print(arena, "%s/own.csv", folder), csv_of(&s, false));
    for (int i = 0; i < 3; i++) {
        Diag d = diag_in(arena);
        Config config;
        Graph graph;
        FrontOptions options = {.shrink = true};
        command_write_file(
            path,
            arena_print(arena,
                        "return plan { model = require 'models.llama' { size = 'tiny', layers "
                        "= 8 },\n"
                        "  batch = { global = 72, seq = 16 }, mesh = { pp = 4, dp_shard = 8 },\n"
                        "  parallel = { pp { %s }, fsdp2 {} } }\n",
                        pp[i]));
        assert_true(front_load(path, &options, arena, &config, &graph, &d));
        assert_int_equal(config.axis_size[AXIS_pp], ranks[i]);
        int64_t data = config.micro_batch * config.axis_size[AXIS_dp_shard];
        assert_int_equal(config.global_batch / data, microbatches[i]);
        assert_int_equal(config.passes[0].pp.chunks, i == 2 ? 2 : 1);
        assert_int_equal(config.passes[0].pp.layers_per_stage, 0);
    }
}

/* Loads a plan of two pipeline ranks and two micro-batches. Returns 0 if it is refused with the
 * expected words, and 1 otherwise. */
static int refuses(const char *path, const char *pp, const char *says)
{
    Diag d = diag_in(arena);
    Config config;
    Graph graph;
    command_write_file(
        path, arena_print(
                  arena,
                  "return plan { model = require 'models.llama' { size = 'tiny', layers = 4 },\n"
                  "  batch = { global = 2, seq = 16 }, mesh = { pp = 2 }, parallel = { pp { %s } } "
                  "}\n",
                  pp));
    const bool fine = front_load(path, NULL, arena, &config, &graph, &d);
    Str text = str_in(arena);
    diag_print(&d, &text);
    if (!fine && strstr(str_text(&text), says) != NULL) return 0;
    print_error("%s: expected '%s' in\n%s", pp, says, str_text(&text));
    return 1;
}

/* A file is refused if a cell is no action, or if it has a communication that no rank could do. */
static void schedule_files_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *csv, *says;
    } cases[] = {
        {"", "own.csv:1: error[schedule-ranks]: the schedule is empty"},
        {" \n \n", "own.csv:1: error[schedule-ranks]: the schedule is empty"},
        {"0F0\n1F0,F1\n", "own.csv:2: error[schedule-action]: 'F1' is not an action"},
        {"0F\n", "'0F' is not an action"},
        {"0F0x\n", "'0F0x' is not an action"},
        {"0SEND_F\n", "'0SEND_F' is not an action"},
        {"0UNSHARDx\n", "'0UNSHARDx' is not an action"},
        {"1048576F0\n", "'1048576F0' is not an action"},
        {"0F1048576\n", "'0F1048576' is not an action"},
        {"(0F0;0F1\n", "'(0F0;0F1' is not an action"},
        {"(0F0;0F1)OVERLAP\n", "'(0F0;0F1)OVERLAP' is not an action"},
        {"(0F0;)OVERLAP_F_B\n", "'' is not an action"},
        {"1000000SEND_F0\n0F1000000\n", "own.csv:1: error[out-of-range]: 1000001 stages times"},
        {"0F0\n1F0,0SEND_F0\n",
         "own.csv:2: error[schedule-comms]: 0SEND_F0 is not on the line of "},
        {"0SEND_F0\n1F0\n", "0SEND_F0 is not on the line of the rank that computes its stage"},
        {"0SEND_F0,0F0\n1F0\n", "0SEND_F0 comes before the action that makes its data"},
        {"0F0,0SEND_F0\n1F0,1RECV_F0\n", "1RECV_F0 comes after the action that reads its data"},
        {"0F0\n1F0,1SEND_F0\n", "1SEND_F0 has no stage to communicate with"},
        {"0RECV_F0,0F0\n1F0\n", "0RECV_F0 has no stage to communicate with"},
        {"0F0,0SEND_F0\n1F0\n", "0SEND_F0 has no matching 1RECV_F0 on another rank"},
        {"0F0\n1F0,1B0,1SEND_B0\n", "1SEND_B0 has no matching 0RECV_B0 on another rank"},
        {"0F0,0SEND_F0,1RECV_F0,1F0\n", "0SEND_F0 would send data from a rank to itself"},
        /* The first table has the most stages and micro-batches that are allowed. The second has
         * more. */
        {"2047F2047,2047SEND_B2047\n1F0\n",
         "2047SEND_B2047 is not on the line of the rank that computes its stage"},
        {"2047F2048,2047SEND_B2048\n1F0\n", "2048 stages times 2049 micro-batches are more than"},
    };
    const char *folder = command_new_folder(arena);
    int failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        command_write_file(arena_print(arena, "%s/own.csv", folder), cases[i].csv);
        failed +=
            refuses(arena_print(arena, "%s/script.lua", folder), "csv = 'own.csv'", cases[i].says);
    }
    assert_int_equal(failed, 0);
}

/* A schedule file lies in the script's folder or below it. A script that is no file has no folder,
 * so it can name none. */
static void schedule_files_lie_in_the_scripts_folder(void **state)
{
    (void)state;
    const char *folder = command_new_folder(arena),
               *script = arena_print(arena, "%s/script.lua", folder);
    assert_int_equal(mkdir(arena_print(arena, "%s/below", folder), 0700), 0);
    command_write_file(arena_print(arena, "%s/below/own.csv", folder), "0F0,0B0\n1F0,1B0\n");
    assert_int_equal(symlink("below", arena_print(arena, "%s/link", folder)), 0);
    int failed = 0;
    failed += refuses(script, "csv = 'below/../own.csv'", "is not in the script's folder");
    failed += refuses(script, "csv = '/own.csv'", "is not in the script's folder");
    failed += refuses(script, "csv = 'below/none.csv'", "there is no file below/none.csv");
    failed += refuses(script, "csv = 'link/own.csv'", "link/own.csv is a link");
    failed += refuses(script, "csv = 'below'", "below is not a file");
    assert_int_equal(failed, 0);
    Diag d = diag_in(arena);
    Config config;
    Graph graph;
    assert_false(front_load_text("given", "return plan { parallel = { pp { csv = 'own.csv' } } }",
                                 NULL, arena, &config, &graph, &d));
    assert_int_equal(diag_exit_code(&d), 3);
    assert_string_equal(d.items.at[0].text,
                        "own.csv cannot be read, because the script is a text without a folder");
}

/* A function is refused if its answer is not a list of actions for each rank. */
static void results_of_schedule_functions_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *schedule, *says;
    } cases[] = {
        {"function() return { [0] = { '' }, {} } end",
         ":2: error[schedule-action]: schedule: '' in the list of rank 0 is not an action"},
        {"function() return { [0] = { 'X0.0' }, {} } end", "'X0.0' in the list of rank 0"},
        {"function() return { [0] = { 'F' }, {} } end", "'F' in the list of rank 0"},
        {"function() return { [0] = { 'F0,0' }, {} } end", "'F0,0' in the list of rank 0"},
        {"function() return { [0] = { 'F0.x' }, {} } end", "'F0.x' in the list of rank 0"},
        {"function() return { [0] = { 'F0.0x' }, {} } end", "'F0.0x' in the list of rank 0"},
        {"function() return { [0] = { 'F1048576.0' }, {} } end",
         "'F1048576.0' in the list of rank"},
        {"function() return { [0] = {}, { 7 } } end", "'number' in the list of rank 1"},
        {"function() return { [0] = {}, { [0] = 'F0.0' } } end",
         "schedule: the list of rank 1 has the key 0, but only numbers are allowed"},
        {"function() return { [0] = {}, { [1.5] = 'F0.0' } } end",
         "rank 1 has the key a number, but"},
        {"function() return { [0] = {}, { [{}] = 'F0.0' } } end",
         "rank 1 has the key a table, but"},
        {"function() local t = {} for i = 1, (1 << 20) + 1 do t[i] = '' end return { [0] = t } end",
         ":2: error[out-of-range]: the schedule has more than 1048576 actions"},
        {"function() return { [0] = {}, 7 } end",
         "error[schedule-ranks]: schedule: there is no proper list for rank 1"},
        {"function() return { [0] = {}, {}, x = {} } end",
         "error[schedule-ranks]: schedule: there is a list for rank string, but the mesh has 2"},
        {"function() return { [-1] = {} } end", "there is a list for rank -1, but the mesh has 2"},
        /* The message names the line of the function, not the line of pp{}. */
        {"(\nfunction() return 7 end)",
         ":3: error[schedule-ranks]: schedule returns number, but must return a list"},
        {"print",
         ":2: error[schedule-ranks]: schedule returns nil, but must return a list for each"},
    };
    const char *path = arena_print(arena, "%s/script.lua", command_new_folder(arena));
    int failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        failed +=
            refuses(path, arena_print(arena, "schedule = %s", cases[i].schedule), cases[i].says);
    assert_int_equal(failed, 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, test_arena_setup, test_arena_teardown)
    const struct CMUnitTest tests[] = {TEST(a_written_out_built_in_schedule_makes_the_same_plan),
                                       TEST(an_overlapped_pair_is_read_as_two_actions),
                                       TEST(a_scaled_down_plan_keeps_its_schedule),
                                       TEST(schedule_files_are_checked),
                                       TEST(schedule_files_lie_in_the_scripts_folder),
                                       TEST(results_of_schedule_functions_are_checked)};
    return cmocka_run_group_tests_name("own_schedule", tests, NULL, NULL);
}
