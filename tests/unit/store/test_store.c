/* The store: rows are read back as they were written, an equal prediction is stored once, and the
 * views agree with their tables. A failed write leaves nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "planner/ir/text/text.h"
#include "store/private.h"
#include "tests/support/plans/plans.h"

typedef struct Fixture {
    Arena *arena;
    Diag diag;
    Store *store;
} Fixture;

static int setup(void **state)
{
    Arena *arena = arena_new();
    Fixture *f = arena_alloc(arena, sizeof *f);
    f->arena = arena;
    f->diag = diag_in(arena);
    f->store = store_open(":memory:", false, &f->diag);
    *state = f;
    return f->store == NULL;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    store_close(f->store);
    arena_free(f->arena);
    return 0;
}

static void no_errors(const Fixture *f)
{
    Str s = str_in(f->arena);
    diag_print(&f->diag, &s);
    if (f->diag.n_errors) fail_msg("%s", str_text(&s));
}

static RunRecord record(Fixture *f, RunKind kind, const Trace *trace)
{
    Plan *plan = plans_everything(f->arena);
    Str text = str_in(f->arena);
    text_print(plan, TEXT_WITH_LOCATIONS, &text);
    RunRecord r = {.kind = kind,
                   .plan = text_plan_id(plan, f->arena),
                   .plan_name = "plans/tiny.lua",
                   .plan_text = str_text(&text),
                   .program = plan,
                   .cluster = "dgx-h100, 2 x 8",
                   .scenario = "",
                   .backend = "mpi",
                   .engine = "1",
                   .calibration = "c",
                   .seed = UINT64_MAX - 3,
                   .n_ranks = 8,
                   .status = "ok",
                   .step_ps = 5 * PS_PER_S,
                   .compute_ps = 4 * PS_PER_S,
                   .exposed_ps = PS_PER_S / 3,
                   .peak_bytes = UINT64_C(80) << 30,
                   .peak_rank = 7,
                   .tokens_per_s_per_device = 123.456,
                   .mfu = 0.4321,
                   .mfu_formula = "6 N",
                   .trace = trace,
                   .steps_done = 200};
    const MemoryRow m[] = {
        {0, CATEGORY_parameter, 1000}, {0, CATEGORY_state, 24}, {1, CATEGORY_input, 7}};
    const CollectiveRow c[] = {{OP_all_gather, "dp_shard", "dp_gather", 1 << 20, 64, 3000, 1000},
                               {OP_all_reduce, "tp", "tp", 1 << 10, 128, 9000, 9000}};
    for (int i = 0; i < 3; i++) list_push(f->arena, &r.memory, m[i]);
    for (int i = 0; i < 2; i++) list_push(f->arena, &r.collectives, c[i]);
    return r;
}

static Trace trace_of(Fixture *f, uint32_t n)
{
    Trace t;
    memset(&t, 0, sizeof t);
    t.step = 2;
    for (uint32_t i = 0; i < n; i++) {
        TraceRow row = {.rank = i / 3,
                        .step = 2,
                        .pc = 1 + i % 3,
                        .start_ps = i,
                        .end_ps = i + 10,
                        .bytes = 4 * i};
        list_push(f->arena, &t.rows, row);
    }
    const StepRow steps[] = {{0, 5.5, 1.25, PS_PER_S}, {1, NAN, INFINITY, PS_PER_S - 1}};
    for (int i = 0; i < 2; i++) list_push(f->arena, &t.steps, steps[i]);
    return t;
}

static void runs_read_back_as_they_were_written(void **state)
{
    Fixture *f = *state;
    Trace trace = trace_of(f, 9), back;
    RunRecord r = record(f, RUN_measured, &trace), q;
    int64_t id = store_run(f->store, &r, &f->diag);
    no_errors(f);
    assert_true(id > 0);
    assert_true(store_load_run(f->store, id, f->arena, &q, &back, &f->diag));
    assert_int_equal(q.kind, RUN_measured);
    assert_memory_equal(&q.plan, &r.plan, sizeof q.plan);
    assert_string_equal(q.plan_name, r.plan_name);
    assert_string_equal(q.cluster, r.cluster);
    assert_string_equal(q.scenario, "");
    assert_string_equal(q.backend, "mpi");
    assert_string_equal(q.status, "ok");
    assert_true(q.seed == r.seed);
    assert_true(q.step_ps == r.step_ps && q.compute_ps == r.compute_ps);
    assert_true(q.exposed_ps == r.exposed_ps && q.peak_bytes == r.peak_bytes);
    assert_int_equal(q.peak_rank, 7);
    assert_int_equal(q.steps_done, 200);
    assert_true(q.mfu == r.mfu && q.tokens_per_s_per_device == r.tokens_per_s_per_device);
    assert_int_equal(q.memory.n, 3);
    assert_int_equal(q.memory.at[0].category, CATEGORY_parameter);
    assert_int_equal(q.memory.at[2].program, 1);
    assert_int_equal(q.collectives.n, 2);
    assert_int_equal(q.collectives.at[1].op, OP_all_reduce);
    assert_string_equal(q.collectives.at[0].stream, "dp_gather");
    assert_ptr_equal(q.trace, &back);
    assert_int_equal(back.step, 2);
    assert_int_equal(back.rows.n, 9);
    for (uint32_t i = 0; i < 9; i++) {
        const TraceRow *a = &trace.rows.at[i], *b = &back.rows.at[i];
        assert_true(a->rank == b->rank && a->pc == b->pc && a->step == b->step);
        assert_true(a->start_ps == b->start_ps && a->end_ps == b->end_ps && a->bytes == b->bytes);
    }
    assert_int_equal(back.steps.n, 2);
    assert_true(back.steps.at[0].loss == 5.5);
    assert_true(isnan(back.steps.at[1].loss) && isinf(back.steps.at[1].grad_norm));
    assert_string_equal(store_plan_text(f->store, r.plan, f->arena, &f->diag), r.plan_text);
    no_errors(f);
}

static void unknown_runs_and_plans_are_not_found(void **state)
{
    Fixture *f = *state;
    RunRecord q;
    Hash128 none = {1, 2};
    assert_int_equal(store_find_run(f->store, RUN_predicted, none, &f->diag), 0);
    assert_int_equal(store_latest_run(f->store, RUN_measured, &f->diag), 0);
    assert_null(store_plan_text(f->store, none, f->arena, &f->diag));
    no_errors(f);
    assert_false(store_load_run(f->store, 5, f->arena, &q, NULL, &f->diag));
    assert_int_equal(f->diag.n_errors, 1);
    assert_string_equal(f->diag.items.at[0].rule, "no-run");
}

static void an_equal_prediction_is_stored_once(void **state)
{
    Fixture *f = *state;
    RunRecord r = record(f, RUN_predicted, NULL), q;
    int64_t one = store_run(f->store, &r, &f->diag);
    RunRecord again = r;
    again.step_ps = 1;
    assert_int_equal(store_run(f->store, &again, &f->diag), one);
    assert_true(store_load_run(f->store, one, f->arena, &q, NULL, &f->diag));
    assert_true(q.step_ps == r.step_ps); /* nothing was replaced */
    /* A change of any part of the key makes another prediction. */
    RunRecord other[6] = {r, r, r, r, r, r};
    other[0].cluster = "x";
    other[1].scenario = "x";
    other[2].backend = "x";
    other[3].engine = "x";
    other[4].calibration = "x";
    other[5].seed = 1;
    int64_t last = one;
    for (int i = 0; i < 6; i++) {
        int64_t id = store_run(f->store, &other[i], &f->diag);
        assert_true(id > last);
        last = id;
    }
    assert_int_equal(store_find_run(f->store, RUN_predicted, r.plan, &f->diag), last);
    assert_int_equal(store_find_run(f->store, RUN_measured, r.plan, &f->diag), 0);
    /* A measurement always makes a new row. */
    RunRecord m = record(f, RUN_measured, NULL);
    int64_t first = store_run(f->store, &m, &f->diag), second = store_run(f->store, &m, &f->diag);
    assert_true(first > last && second > first);
    assert_int_equal(store_latest_run(f->store, RUN_measured, &f->diag), second);
    no_errors(f);
}

/* `sim` stores a prediction without trace rows. `run` needs the rows later and adds them. */
static void a_missing_trace_is_added(void **state)
{
    Fixture *f = *state;
    Trace trace = trace_of(f, 6), back;
    RunRecord r = record(f, RUN_predicted, NULL), q;
    int64_t id = store_run(f->store, &r, &f->diag);
    r.trace = &trace;
    assert_int_equal(store_run(f->store, &r, &f->diag), id);
    assert_int_equal(store_run(f->store, &r, &f->diag), id); /* the trace is added only once */
    assert_true(store_load_run(f->store, id, f->arena, &q, &back, &f->diag));
    assert_int_equal(back.rows.n, 6);
    assert_int_equal(back.step, 2);
    no_errors(f);
}

static int64_t number(Fixture *f, const char *sql)
{
    DbStatement *st = db_prepare(store_db(f->store), &f->diag, sql, "");
    int64_t n = db_step(st, &f->diag) ? db_int(st, 0) : -1;
    db_reset(st);
    no_errors(f);
    return n;
}

/* A failed write must not leave half of a run. */
static void a_failed_write_leaves_nothing(void **state)
{
    Fixture *f = *state;
    Trace trace = trace_of(f, 3);
    list_push(f->arena, &trace.rows, trace.rows.at[0]); /* the same instruction twice is an error */
    RunRecord r = record(f, RUN_measured, &trace);
    assert_int_equal(store_run(f->store, &r, &f->diag), 0);
    assert_int_equal(f->diag.n_errors, 1);
    assert_int_equal(f->diag.items.at[0].fault, FAULT_store);
    f->diag.n_errors = 0;
    assert_int_equal(number(f, "SELECT (SELECT count(*) FROM run) + (SELECT count(*) FROM plan) + "
                               "(SELECT count(*) FROM trace) + (SELECT count(*) FROM memory)"),
                     0);
    r.trace = NULL;
    assert_true(store_run(f->store, &r, &f->diag) > 0); /* the store still works */
}

static void roles_follow_from_the_plan(void **state)
{
    Fixture *f = *state;
    RunRecord r = record(f, RUN_predicted, NULL);
    assert_true(store_run(f->store, &r, &f->diag) > 0);
    assert_int_equal(number(f, "SELECT count(*) FROM role"), 2);
    assert_int_equal(number(f, "SELECT n_ranks FROM role WHERE program = 0"), 5);
    assert_int_equal(number(f, "SELECT first_rank FROM role WHERE program = 1"), 3);
    assert_int_equal(number(f, "SELECT bytes FROM role WHERE program = 1"), INT64_C(44238372864));
    assert_int_equal(number(f, "SELECT n_instructions * 100 + n_buffers FROM v_role "
                               "WHERE program = 1 AND purpose = 'gather' AND stage = 0"),
                     303);
}

static void views_agree_with_their_tables(void **state)
{
    Fixture *f = *state;
    Trace predicted = trace_of(f, 6), measured = trace_of(f, 9);
    predicted.rows.at[4].end_ps += 30;
    RunRecord p = record(f, RUN_predicted, &predicted), m = record(f, RUN_measured, &measured);
    m.step_ps = 4 * PS_PER_S;
    int64_t pid = store_run(f->store, &p, &f->diag), mid = store_run(f->store, &m, &f->diag);
    no_errors(f);
    assert_int_equal(number(f, "SELECT step_ms FROM v_run WHERE kind = 'measured'"), 4000);
    assert_int_equal(number(f, "SELECT measured FROM v_compare"), mid);
    assert_int_equal(number(f, "SELECT predicted FROM v_compare WHERE ratio = 1.25"), pid);
    /* A run is not compared with a newer prediction made for other circumstances. */
    RunRecord what_if = p;
    what_if.scenario = "experts x 2";
    assert_true(store_run(f->store, &what_if, &f->diag) > mid);
    assert_int_equal(number(f, "SELECT predicted FROM v_compare"), pid);
    assert_int_equal(store_find_run(f->store, RUN_predicted, p.plan, &f->diag), pid);
    RunRecord unfolded = p;
    unfolded.scenario = "unfolded"; /* the same circumstances, with every rank simulated */
    int64_t uid = store_run(f->store, &unfolded, &f->diag);
    assert_int_equal(number(f, "SELECT predicted FROM v_compare"), uid);
    assert_int_equal(store_find_run(f->store, RUN_predicted, p.plan, &f->diag), uid);
    assert_true(db_exec(store_db(f->store), "DELETE FROM run WHERE scenario <> ''", &f->diag));
    assert_int_equal(number(f, "SELECT count(*) FROM v_instruction"), 6); /* rows of both runs */
    assert_int_equal(number(f, "SELECT count(*) FROM v_instruction WHERE predicted_us > 2 * "
                               "measured_us"),
                     1);
    assert_int_equal(number(f, "SELECT sum(percent) FROM v_memory WHERE program = 0"), 200);
    assert_int_equal(number(f, "SELECT count(*) FROM v_collective WHERE axes = 'tp'"), 2);
    assert_int_equal(number(f, "SELECT count(*) FROM v_sweep"), 0);
    assert_int_equal(number(f, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
}

static void the_newest_time_of_a_kernel_is_found(void **state)
{
    Fixture *f = *state;
    assert_true(store_get_kernel(f->store, "here", "linear", &f->diag) == -1);
    assert_true(store_put_kernel(f->store, "here", "linear", 500, 0.1, 5, &f->diag));
    assert_true(store_put_kernel(f->store, "here", "linear", 400, 0.1, 9, &f->diag));
    assert_true(store_put_kernel(f->store, "there", "linear", 1, 0.1, 9, &f->diag));
    assert_true(store_get_kernel(f->store, "here", "linear", &f->diag) == 400);
    no_errors(f);
}

static void the_newest_choice_of_a_product_is_found(void **state)
{
    Fixture *f = *state;
    char choice[8] = "";
    assert_false(store_get_choice(f->store, "H100", "8x8x8", choice, 8, &f->diag));
    assert_true(store_put_choice(f->store, "H100", "8x8x8", "first..", 8, 500, &f->diag));
    assert_true(store_put_choice(f->store, "H100", "8x8x8", "second.", 8, 400, &f->diag));
    assert_true(store_put_choice(f->store, "H200", "8x8x8", "other..", 8, 400, &f->diag));
    assert_true(store_get_choice(f->store, "H100", "8x8x8", choice, 8, &f->diag));
    assert_string_equal(choice, "second.");
    assert_false(store_get_choice(f->store, "H100", "8x8x9", choice, 8, &f->diag));
    assert_false(store_get_choice(f->store, "H100", "8x8x8", choice, 4, &f->diag));
    no_errors(f);
}

static Ps cost(Fixture *f, uint64_t bytes)
{
    return store_get_collective(f->store, "here", "mpi", OP_all_reduce, 4, bytes, &f->diag);
}

static void times_of_collectives_are_interpolated(void **state)
{
    Fixture *f = *state;
    assert_true(cost(f, 1000) == -1);
    const struct {
        uint64_t bytes;
        Ps ps;
    } put[] = {{1024, 8000}, {4096, 8000}, {65536, 128000}};
    for (int i = 0; i < 3; i++)
        assert_true(store_put_collective(f->store, "here", "mpi", OP_all_reduce, 4, put[i].bytes,
                                         put[i].ps, &f->diag));
    assert_true(store_put_collective(f->store, "here", "mpi", OP_all_gather, 4, 2048, 1, &f->diag));
    assert_true(store_put_collective(f->store, "here", "mpi", OP_all_reduce, 2, 2048, 1, &f->diag));
    assert_true(
        store_put_collective(f->store, "here", "loop", OP_all_reduce, 4, 2048, 1, &f->diag));
    assert_true(cost(f, 1024) == 8000);
    assert_true(cost(f, 2000) == 8000);   /* latency decides the time */
    assert_true(cost(f, 16384) == 32000); /* time is proportional to bytes here */
    assert_true(cost(f, 10) == 8000);     /* no size is faster than the smallest measured size */
    /* Beyond the largest size, time is proportional to bytes. */
    assert_true(cost(f, 131072) == 256000);
    no_errors(f);
}

/* If a reader closes the store last, SQLite's log stays beside the file. The log of an old store
 * must not be used for a new store of the same name. */
static void remove_store(const char *path)
{
    Arena *arena = arena_new();
    unlink(path);
    unlink(arena_print(arena, "%s-wal", path));
    unlink(arena_print(arena, "%s-shm", path));
    arena_free(arena);
}

/* A second connection reads the file while the first writes. Then the file is opened again. */
static void a_store_on_disk_is_read_while_it_is_written(void **state)
{
    Fixture *f = *state;
    const char *path = "test_store.db";
    remove_store(path);
    Store *one = store_open(path, false, &f->diag), *two = store_open(path, true, &f->diag);
    no_errors(f);
    RunRecord r = record(f, RUN_measured, NULL), q;
    int64_t id = store_run(one, &r, &f->diag);
    assert_true(store_load_run(two, id, f->arena, &q, NULL, &f->diag));
    store_close(one);
    store_close(two);
    Store *again = store_open(path, true, &f->diag);
    assert_non_null(again);
    assert_int_equal(store_latest_run(again, RUN_measured, &f->diag), id);
    assert_int_equal(store_run(again, &r, &f->diag), 0); /* the store was opened read-only */
    assert_int_equal(f->diag.n_errors, 1);
    store_close(again);
    remove_store(path);
}

/* Rows of older stores have no digest. A row that names an unknown op or category must still be
 * reported. */
static void damaged_rows_are_reported(void **state)
{
    Fixture *f = *state;
    RunRecord r = record(f, RUN_measured, NULL), q;
    int64_t id = store_run(f->store, &r, &f->diag);
    assert_true(db_exec(store_db(f->store),
                        "UPDATE run SET memory_sum = NULL, collective_sum = NULL; "
                        "UPDATE collective SET op = 'teleport'",
                        &f->diag));
    assert_false(store_load_run(f->store, id, f->arena, &q, NULL, &f->diag));
    assert_string_equal(f->diag.items.at[0].rule, "store-damaged");
    f->diag = diag_in(f->arena);
    assert_true(
        db_exec(store_db(f->store), "UPDATE memory SET category = category || '?'", &f->diag));
    assert_false(store_load_run(f->store, id, f->arena, &q, NULL, &f->diag));
    assert_int_equal(f->diag.n_errors, 1);
}

/* An older store has plain texts. They are packed, and read back unchanged. */
static void old_texts_are_packed(void **state)
{
    Fixture *f = *state;
    char path[] = "/tmp/tandem-store-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    Db *old = db_open(path, false, store_migrations, 7, &f->diag);
    assert_non_null(old);
    Str text = str_in(f->arena);
    for (int i = 0; i < 5000; i++) str_print(&text, "%d compute linear args=%d,2>3\n", i, i);
    unsigned char id[16] = {1, 2, 3};
    assert_true(db_run(old, &f->diag, "INSERT INTO plan(id, name, n_ranks, text) VALUES(?,?,?,?)",
                       "bsis", id, sizeof id, "old.lua", (int64_t)8, str_text(&text)));
    db_close(old);
    Store *store = store_open(path, false, &f->diag);
    no_errors(f);
    assert_non_null(store);
    Hash128 hash = {.hi = UINT64_C(0x0102030000000000), .lo = 0};
    assert_string_equal(store_plan_text(store, hash, f->arena, &f->diag), str_text(&text));
    DbStatement *st = db_prepare(store_db(store), &f->diag, "SELECT length(packed) FROM plan", "");
    assert_true(db_step(st, &f->diag) && db_int(st, 0) * 4 < (int64_t)text.n);
    db_reset(st);
    store_close(store);
    unlink(path);
}

/* An older store's view compared a run with any prediction. This view is replaced. */
static void old_views_are_replaced(void **state)
{
    Fixture *f = *state;
    const char *path = "test_store_old.db";
    remove_store(path);
    Db *old = db_open(path, false, store_migrations, 9, &f->diag);
    assert_non_null(old);
    db_close(old);
    Store *store = store_open(path, false, &f->diag);
    no_errors(f);
    assert_non_null(store);
    RunRecord p = record(f, RUN_predicted, NULL), m = record(f, RUN_measured, NULL);
    const int64_t pid = store_run(store, &p, &f->diag);
    assert_true(pid > 0 && store_run(store, &m, &f->diag) > 0);
    p.scenario = "unfolded, jitter 0.1, rank 0 x 2";
    assert_true(store_run(store, &p, &f->diag) > pid);
    DbStatement *st = db_prepare(store_db(store), &f->diag, "SELECT predicted FROM v_compare", "");
    assert_true(db_step(st, &f->diag));
    assert_int_equal(db_int(st, 0), pid);
    db_reset(st);
    store_close(store);
    remove_store(path);
}

static Recipe recipe_of_two(const Fixture *f)
{
    Recipe r = {.head = "path a.lua\nset mesh.tp=2\n"};
    const char *const texts[] = {"return plan {}", "return 1"};
    for (uint32_t i = 0; i < 2; i++)
        list_push(f->arena, &r.scripts,
                  ((RecipeScript){.name = i == 0 ? "plans/a.lua" : "models/b.lua",
                                  .shipped = i == 1,
                                  .hash = hash_bytes(texts[i], strlen(texts[i])),
                                  .text = texts[i],
                                  .bytes = strlen(texts[i])}));
    return r;
}

static void recipes_and_answers_read_back_as_they_were_written(void **state)
{
    Fixture *f = *state;
    RunRecord r = record(f, RUN_predicted, NULL);
    Recipe recipe = recipe_of_two(f), back;
    r.plan_text = NULL;
    r.recipe = &recipe;
    int64_t id = store_run(f->store, &r, &f->diag);
    assert_true(id > 0);
    assert_null(store_plan_text(f->store, r.plan, f->arena, &f->diag));
    assert_true(store_recipe(f->store, id, f->arena, &back, &f->diag));
    assert_string_equal(back.head, recipe.head);
    assert_int_equal(back.scripts.n, 2);
    assert_string_equal(back.scripts.at[0].text, "return plan {}");
    assert_string_equal(back.scripts.at[1].name, "models/b.lua");
    assert_true(back.scripts.at[1].shipped && !back.scripts.at[0].shipped);
    FoundAnswer found;
    const Hash128 key = {5, 6}, other = {5, 7};
    assert_false(store_find_answer(f->store, key, f->arena, &found, &f->diag));
    assert_true(store_put_answer(f->store, key, &recipe, id, "build 1", "{\"run\":1}", &f->diag));
    assert_true(store_put_answer(f->store, other, &recipe, 0, "build 2", "{}", &f->diag));
    assert_true(store_find_answer(f->store, key, f->arena, &found, &f->diag));
    assert_int_equal(found.run, id);
    assert_string_equal(found.answer, "{\"run\":1}");
    assert_string_equal(found.list, store_script_list(&recipe, f->arena));
    Pruned p;
    assert_true(store_prune(f->store, r.engine, "build 1", true, &p, &f->diag));
    assert_int_equal(p.answers, 1); /* a dry run only counts */
    assert_true(store_find_answer(f->store, other, f->arena, &found, &f->diag));
    assert_true(store_prune(f->store, r.engine, "build 1", false, &p, &f->diag));
    assert_false(store_find_answer(f->store, other, f->arena, &found, &f->diag));
    assert_true(store_find_answer(f->store, key, f->arena, &found, &f->diag));
    assert_true(store_prune(f->store, "a later engine", "build 1", false, &p, &f->diag));
    assert_int_equal(p.runs, 1);
    assert_int_equal(p.plans, 1);
    assert_int_equal(p.scripts, 2); /* the answer was removed with its run */
    assert_false(store_find_answer(f->store, key, f->arena, &found, &f->diag));
    no_errors(f);
}

/* One store receives the rows of another, and each row only once. */
static void merging_adds_each_row_once(void **state)
{
    Fixture *f = *state;
    char path[] = "/tmp/tandem-store-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    Trace trace = trace_of(f, 6), back;
    RunRecord measured = record(f, RUN_measured, &trace),
              predicted = record(f, RUN_predicted, NULL), q;
    Recipe recipe = recipe_of_two(f);
    predicted.recipe = &recipe;
    int64_t here = store_run(f->store, &predicted, &f->diag);
    Store *other = store_open(path, false, &f->diag);
    assert_non_null(other);
    int64_t first = store_run(other, &measured, &f->diag);
    int64_t there = store_run(other, &predicted, &f->diag);
    assert_true(first > 0 && there > first);
    const Hash128 key = {8, 9};
    assert_true(store_put_answer(other, key, &recipe, there, "b", "{\"run\":2}", &f->diag));
    assert_true(store_put_kernel(other, "m", "k", 77, 0, 1, &f->diag));
    store_close(other);
    for (int again = 0; again < 2; again++) {
        Merged m;
        assert_true(store_merge(f->store, path, &m, &f->diag));
        no_errors(f);
        assert_int_equal(m.runs, again ? 0 : 1);
        assert_int_equal(m.known, again ? 2 : 1);
    }
    assert_int_equal(store_latest_run(f->store, RUN_predicted, &f->diag), here);
    int64_t moved = store_latest_run(f->store, RUN_measured, &f->diag);
    assert_true(moved > here);
    assert_true(store_load_run(f->store, moved, f->arena, &q, &back, &f->diag));
    assert_int_equal(back.rows.n, 6);
    assert_int_equal(q.collectives.n, 2);
    FoundAnswer found;
    assert_true(store_find_answer(f->store, key, f->arena, &found, &f->diag));
    assert_int_equal(found.run, here);
    assert_non_null(strstr(found.answer, "\"run\":1"));
    assert_true(store_get_kernel(f->store, "m", "k", &f->diag) == 77);
    Str csv = str_in(f->arena);
    assert_true(store_csv(f->store, "kernel_cost", &csv, &f->diag));
    assert_non_null(strstr(str_text(&csv), "machine,key,median_ps,"));
    assert_non_null(strstr(str_text(&csv), "\nm,k,77,"));
    no_errors(f);
    assert_false(store_csv(f->store, "no_such", &csv, &f->diag));
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(runs_read_back_as_they_were_written, setup, teardown),
        cmocka_unit_test_setup_teardown(unknown_runs_and_plans_are_not_found, setup, teardown),
        cmocka_unit_test_setup_teardown(an_equal_prediction_is_stored_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_missing_trace_is_added, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failed_write_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(roles_follow_from_the_plan, setup, teardown),
        cmocka_unit_test_setup_teardown(views_agree_with_their_tables, setup, teardown),
        cmocka_unit_test_setup_teardown(the_newest_time_of_a_kernel_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(the_newest_choice_of_a_product_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(times_of_collectives_are_interpolated, setup, teardown),
        cmocka_unit_test_setup_teardown(a_store_on_disk_is_read_while_it_is_written, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(damaged_rows_are_reported, setup, teardown),
        cmocka_unit_test_setup_teardown(old_texts_are_packed, setup, teardown),
        cmocka_unit_test_setup_teardown(old_views_are_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(recipes_and_answers_read_back_as_they_were_written, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(merging_adds_each_row_once, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
