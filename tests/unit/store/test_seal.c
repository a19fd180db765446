/* Seals are digests of rows. They must find every changed value in every table, and unchanged rows
 * must still be readable. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/private.h"
#include "store/seals.h"
#include "tests/support/plans/plans.h"

typedef struct Fixture {
    Arena *arena;
    Diag diag;
    char path[64];
    Store *store;
} Fixture;

/* Adds a row to each table that store_run does not write. */
static const char others[] =
    "INSERT INTO sweep(script, space, seed, n_points, status) VALUES('a.lua', zeroblob(16) , 1, 2, "
    "'done');"
    "INSERT INTO sweep_point VALUES(1, 1, '{}', 1, 'ok', NULL);"
    "INSERT INTO trust VALUES(1, 'b', 2, 3, 0.5, 0.25, 4, 5, 6, 7, NULL);"
    "INSERT INTO cores VALUES(1, 2, 0.5, 0.25, 0.125, NULL);"
    "INSERT INTO collective_cost VALUES('m', 'mpi', 'all_reduce', 4, 1024, 99, 5, NULL);"
    "INSERT INTO kernel_cost VALUES('m', 'k', 12, 0.5, 3, 5, NULL);"
    "INSERT INTO product_choice VALUES('d', 'c', x'0102', 44, NULL);";

static int64_t put_run(Fixture *f, uint64_t seed)
{
    static const RecipeScript script = {"a.lua", false, {1, 2}, "return 1", 8};
    Recipe recipe = {.head = "cluster x"};
    RecipeScript s = script;
    s.hash = hash_bytes(s.text, s.bytes);
    list_push(f->arena, &recipe.scripts, s);
    Trace trace;
    memset(&trace, 0, sizeof trace);
    TraceRow row = {.rank = 1, .step = 2, .pc = 3, .start_ps = 4, .end_ps = 5, .bytes = 6};
    StepRow step = {0, 5.5, 1.25, PS_PER_S};
    list_push(f->arena, &trace.rows, row);
    list_push(f->arena, &trace.steps, step);
    RunRecord r = {.kind = RUN_predicted,
                   .plan = {seed, 7},
                   .plan_name = "a.lua",
                   .proven_by = "a build",
                   .plan_text = "text of a plan",
                   .program = plans_everything(f->arena),
                   .recipe = &recipe,
                   .cluster = "c",
                   .backend = "mpi",
                   .engine = "1",
                   .seed = seed,
                   .n_ranks = 8,
                   .status = "ok",
                   .step_ps = 5,
                   .mfu = 0.25,
                   .trace = &trace};
    MemoryRow m = {0, CATEGORY_parameter, 1000};
    CollectiveRow c = {OP_all_reduce, "tp", "tp", 1 << 10, 128, 9000, 9000};
    list_push(f->arena, &r.memory, m);
    list_push(f->arena, &r.collectives, c);
    int64_t id = store_run(f->store, &r, &f->diag);
    assert_true(id > 0);
    Hash128 key = {seed, 9};
    assert_true(store_put_answer(f->store, key, &recipe, id, "build", "{}", &f->diag));
    return id;
}

static int setup(void **state)
{
    Arena *arena = arena_new();
    Fixture *f = arena_alloc(arena, sizeof *f);
    static const char name[] = "/tmp/tandem_seal_XXXXXX";
    *f = (Fixture){.arena = arena, .diag = diag_in(arena)};
    memcpy(f->path, name, sizeof name);
    int fd = mkstemp(f->path);
    if (fd < 0) return -1;
    close(fd);
    unlink(f->path);
    f->store = store_open(f->path, false, &f->diag);
    if (f->store == NULL) return -1;
    put_run(f, 1);
    put_run(f, 2);
    *state = f;
    return db_exec(store_db(f->store), others, &f->diag) ? 0 : -1;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    store_close(f->store);
    unlink(f->path);
    arena_free(f->arena);
    return 0;
}

/* Opens the store as another program would, without seals for new rows. */
static Db *open_raw(Fixture *f)
{
    store_close(f->store);
    f->store = NULL;
    Db *db = db_open(f->path, false, store_migrations, store_n_migrations, &f->diag);
    assert_non_null(db);
    assert_true(
        db_exec(db, "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON", &f->diag));
    return db;
}

typedef struct Column {
    const char *table, *name, *type;
} Column;
typedef LIST(Column) ColumnList;

static ColumnList all_columns(Fixture *f, Db *db)
{
    ColumnList list = {NULL, 0, 0};
    DbStatement *st = db_prepare(db, &f->diag,
                                 "SELECT m.name, c.name, c.type FROM sqlite_master m, "
                                 "pragma_table_info(m.name) c WHERE m.type = 'table' AND "
                                 "m.name NOT LIKE 'sqlite_%'",
                                 "");
    while (db_step(st, &f->diag)) {
        Column c = {arena_dup(f->arena, db_text(st, 0)), arena_dup(f->arena, db_text(st, 1)),
                    arena_dup(f->arena, db_text(st, 2))};
        list_push(f->arena, &list, c);
    }
    return list;
}

/* Returns true for numbers of runs and sweeps. No seal covers them, because merging gives a run or
 * sweep another number. */
static bool is_free(const Column *c)
{
    static const char *const free_columns[] = {"run.id",          "sweep.id",  "sweep_point.sweep",
                                               "sweep_point.run", "trust.run", "cores.run"};
    char name[64];
    snprintf(name, sizeof name, "%s.%s", c->table, c->name);
    for (size_t i = 0; i < sizeof free_columns / sizeof *free_columns; i++)
        if (strcmp(name, free_columns[i]) == 0) return true;
    return false;
}

static const char *changed(const Column *c, Arena *arena)
{
    if (strcmp(c->type, "TEXT") == 0) return arena_print(arena, "ifnull(%s, '') || 'x'", c->name);
    if (strcmp(c->type, "BLOB") == 0)
        return arena_print(arena, "CAST(ifnull(%s, x'') || x'33' AS BLOB)", c->name);
    return arena_print(arena, "ifnull(%s, 0) + 1000003", c->name);
}

static bool says(const Diag *d, const char *text)
{
    Str all = str_in(d->arena);
    diag_print(d, &all);
    return strstr(str_text(&all), text) != NULL;
}

static void every_changed_value_is_found(void **state)
{
    Fixture *f = *state;
    Db *db = open_raw(f);
    ColumnList all = all_columns(f, db);
    uint32_t n_changed = 0;
    assert_true(seals_hold(db, &f->diag));
    for (uint32_t i = 0; i < all.n; i++) {
        const Column *c = &all.at[i];
        Diag found = diag_in(f->arena);
        if (is_free(c)) continue;
        assert_true(db_begin(db, &f->diag));
        const char *sql =
            arena_print(f->arena, "UPDATE %s SET %s = %s", c->table, c->name, changed(c, f->arena));
        assert_true(db_exec(db, sql, &f->diag));
        if (seals_hold(db, &found)) fail_msg("a change of %s.%s was not found", c->table, c->name);
        if (!says(&found, arena_print(f->arena, "table %s", c->table)))
            fail_msg("a change of %s.%s was blamed on another table", c->table, c->name);
        db_rollback(db);
        n_changed++;
    }
    assert_true(n_changed > 90);
    assert_true(seals_hold(db, &f->diag));
    db_close(db);
}

static void a_lost_or_added_detail_is_found(void **state)
{
    static const char *const details[] = {"role", "memory", "collective", "step", "trace"};
    Fixture *f = *state;
    Db *db = open_raw(f);
    for (uint32_t i = 0; i < 5; i++) {
        Diag found = diag_in(f->arena);
        assert_true(db_begin(db, &f->diag));
        assert_true(db_exec(db, arena_print(f->arena, "DELETE FROM %s", details[i]), &f->diag));
        assert_false(seals_hold(db, &found));
        db_rollback(db);
    }
    db_close(db);
}

static void damage_to_one_run_leaves_the_other_readable(void **state)
{
    Fixture *f = *state;
    Db *db = open_raw(f);
    assert_true(db_exec(db,
                        "UPDATE plan SET packed = (SELECT packed FROM script) WHERE id = "
                        "(SELECT plan FROM run WHERE id = 1); UPDATE kernel_cost SET "
                        "median_ps = 1",
                        &f->diag));
    db_close(db);
    f->store = store_open(f->path, true, &f->diag);
    assert_non_null(f->store);
    RunRecord run;
    Trace trace;
    Diag bad = diag_in(f->arena);
    assert_false(store_load_run(f->store, 1, f->arena, &run, &trace, &bad));
    assert_true(says(&bad, "store-damaged") && says(&bad, "table plan"));
    assert_int_equal(diag_exit_code(&bad), 7);
    Diag text = diag_in(f->arena);
    assert_null(store_plan_text(f->store, (Hash128){1, 7}, f->arena, &text));
    assert_int_equal(text.n_errors, 1);
    Diag cost = diag_in(f->arena);
    assert_true(store_get_kernel(f->store, "m", "k", &cost) == -1);
    assert_int_equal(cost.n_errors, 1);
    assert_true(store_load_run(f->store, 2, f->arena, &run, &trace, &f->diag));
    assert_string_equal(store_plan_text(f->store, (Hash128){2, 7}, f->arena, &f->diag),
                        "text of a plan");
    assert_int_equal(f->diag.n_errors, 0);
}

/* Every version of Tandem that stores proofs writes their digests. So a proof without a digest is
 * the work of another program. It does not count, and merging does not seal it. */
static void a_proof_without_digest_does_not_count(void **state)
{
    static const char *const forgeries[] = {
        "UPDATE proof SET digest = NULL WHERE plan = (SELECT plan FROM run WHERE id = 1)",
        "DELETE FROM proof; INSERT INTO proof(plan, build) SELECT plan, 'x' FROM run WHERE id = 1"};
    for (uint32_t i = 0; i < 2; i++) {
        Fixture *f = *state;
        Db *db = open_raw(f);
        Diag found = diag_in(f->arena), bad = diag_in(f->arena), merge = diag_in(f->arena);
        assert_true(db_exec(db, forgeries[i], &f->diag));
        assert_false(seals_hold(db, &found));
        assert_int_equal(found.n_errors, 1);
        assert_true(says(&found, "table proof, plan = "));
        assert_true(says(&found, "has no digest, so Tandem did not write it"));
        db_close(db);
        f->store = store_open(f->path, false, &f->diag);
        assert_false(store_has_run(f->store, 1, &bad));
        assert_true(says(&bad, "table proof"));
        assert_true(store_has_run(f->store, 2, &f->diag));
        Store *to = store_open(":memory:", false, &f->diag);
        Merged merged;
        assert_false(store_merge(to, f->path, &merged, &merge));
        store_close(to);
    }
}

static int64_t number(Db *db, const char *sql, Diag *d)
{
    DbStatement *st = db_prepare(db, d, sql, "");
    const int64_t n = db_step(st, d) ? db_int(st, 0) : -1;
    db_reset(st);
    return n;
}

/* The view of an older store showed every proof. Now it shows only proofs with a digest. All proofs
 * are kept, with their digests and dates. */
static void old_proofs_without_digest_do_not_count(void **state)
{
    Fixture *f = *state;
    const char *path = arena_print(f->arena, "%s.old", f->path);
    Db *old = db_open(path, false, store_migrations, 11, &f->diag);
    assert_non_null(old);
    static const char rows[] =
        "INSERT INTO plan(id, name, n_ranks) VALUES(zeroblob(16), 'a', 1), (x'"
        "ffffffffffffffffffffffffffffffff', 'b', 1);"
        "INSERT INTO run(kind, plan, name, cluster, scenario, backend, engine, calibration, seed, "
        "n_ranks, status, step_ps, compute_ps, exposed_ps, peak_bytes, peak_rank, "
        "tokens_per_s_per_device, mfu, mfu_formula, steps_done) SELECT 'predicted', id, name, "
        "'', '', '', '', '', 1, 1, 'ok', 1, 1, 1, 1, 0, 1, 1, '', 1 FROM plan;"
        "INSERT INTO proof(plan, build, made_at, digest) SELECT id, name, 7, "
        "CASE name WHEN 'a' THEN tandem_digest(id, name, 7) END FROM plan;";
    assert_true(db_exec(old, rows, &f->diag));
    assert_int_equal(number(old, "SELECT sum(proven) FROM v_run", &f->diag), 2);
    db_close(old);
    Store *store = store_open(path, false, &f->diag);
    assert_non_null(store);
    Db *db = store_db(store);
    assert_int_equal(number(db, "SELECT proven FROM v_run WHERE plan = 'a'", &f->diag), 1);
    assert_int_equal(number(db, "SELECT proven FROM v_run WHERE plan = 'b'", &f->diag), 0);
    assert_int_equal(number(db, "SELECT count(*) FROM proof WHERE made_at = 7", &f->diag), 2);
    assert_int_equal(number(db, "SELECT build = 'a' FROM proof WHERE digest NOTNULL", &f->diag), 1);
    assert_int_equal(f->diag.n_errors, 0);
    store_close(store);
    unlink(path);
}

/* If a stored row was changed, storing the same prediction again must not seal the change. */
static void storing_again_does_not_seal_a_change(void **state)
{
    Fixture *f = *state;
    Db *db = open_raw(f);
    assert_true(db_exec(db, "UPDATE memory SET bytes = 7 WHERE run = 1", &f->diag));
    db_close(db);
    f->store = store_open(f->path, false, &f->diag);
    RunRecord again = {.kind = RUN_predicted,
                       .plan = {1, 7},
                       .cluster = "c",
                       .backend = "mpi",
                       .engine = "1",
                       .seed = 1};
    Diag bad = diag_in(f->arena);
    assert_true(store_run(f->store, &again, &bad) == 0);
    assert_true(says(&bad, "table run, id = 1: its rows in table memory were changed"));
    assert_false(seals_hold(store_db(f->store), &bad));
}

/* Returns true for tables whose updates write all values of a row, so that they may seal the row
 * again. */
static bool is_written_whole(const char *table)
{
    return strstr(table, "_cost") != NULL || strcmp(table, "product_choice") == 0;
}

/* An update of one value in a row must not seal a change of another value. */
static void an_update_seals_no_other_change(void **state)
{
    Fixture *f = *state;
    Db *db = open_raw(f);
    ColumnList all = all_columns(f, db);
    uint32_t n_changed = 0;
    for (uint32_t i = 0; i < all.n; i++)
        for (uint32_t k = i > 2 ? i - 2 : 0; k < all.n && k <= i + 2; k++) {
            const Column *c = &all.at[i], *other = &all.at[k];
            if (i == k || strcmp(c->table, other->table) != 0 || is_free(c) || is_free(other))
                continue;
            if (is_written_whole(c->table)) continue;
            Diag found = diag_in(f->arena);
            assert_true(db_begin(db, &f->diag));
            const char *sql = arena_print(f->arena, "UPDATE %s SET %s = %s", c->table, c->name,
                                          changed(c, f->arena));
            assert_true(db_exec(db, sql, &f->diag) && seal_rows(db, &f->diag));
            sql =
                arena_print(f->arena, "UPDATE %s SET %s = %s", c->table, other->name, other->name);
            assert_true(db_exec(db, sql, &f->diag));
            if (seals_hold(db, &found))
                fail_msg("an update of %s.%s sealed a change of %s", c->table, other->name,
                         c->name);
            db_rollback(db);
            n_changed++;
        }
    assert_true(n_changed > 150);
    db_close(db);
}

static void a_damaged_store_is_not_merged(void **state)
{
    Fixture *f = *state;
    Db *db = open_raw(f);
    assert_true(db_exec(db, "UPDATE run SET step_ps = 6 WHERE id = 2", &f->diag));
    db_close(db);
    Store *to = store_open(":memory:", false, &f->diag);
    Merged merged;
    Diag bad = diag_in(f->arena);
    assert_false(store_merge(to, f->path, &merged, &bad));
    assert_true(says(&bad, "id = 2"));
    store_close(to);
}

static void merged_rows_are_sealed(void **state)
{
    Fixture *f = *state;
    Store *to = store_open(":memory:", false, &f->diag);
    Merged merged;
    assert_true(store_merge(to, f->path, &merged, &f->diag));
    assert_true(seals_hold(store_db(to), &f->diag));
    DbStatement *st = db_prepare(store_db(to), &f->diag,
                                 "SELECT count(*) FROM run WHERE digest NOTNULL AND trace_sum "
                                 "NOTNULL AND trace_sum <> 0",
                                 "");
    assert_true(db_step(st, &f->diag));
    assert_int_equal(db_int(st, 0), 2);
    db_reset(st);
    store_close(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_changed_value_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lost_or_added_detail_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_to_one_run_leaves_the_other_readable, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_proof_without_digest_does_not_count, setup, teardown),
        cmocka_unit_test_setup_teardown(old_proofs_without_digest_do_not_count, setup, teardown),
        cmocka_unit_test_setup_teardown(storing_again_does_not_seal_a_change, setup, teardown),
        cmocka_unit_test_setup_teardown(an_update_seals_no_other_change, setup, teardown),
        cmocka_unit_test_setup_teardown(a_damaged_store_is_not_merged, setup, teardown),
        cmocka_unit_test_setup_teardown(merged_rows_are_sealed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
