/* tandem db: where the store is, what is in it, whether it is sound. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

static void db_path(Cli *cli)
{
    char here[4096];
    const char *path = cli->options.db;
    if (path[0] != '/' && getcwd(here, sizeof here) != NULL)
        path = arena_print(cli->arena, "%s/%s", here, path);
    str_print(&cli->out, "%s\n", path);
    if (cli->json != NULL) json_text(cli->json, "path", path);
}

/* Names come from the file's own catalogue and are quoted: no statement is made of user input. */
static int64_t count_rows(Cli *cli, Db *db, const char *table)
{
    if (strchr(table, '"') != NULL) return -1;
    const char *sql = arena_print(cli->arena, "SELECT count(*) FROM \"%s\"", table);
    DbStatement *st = db_prepare(db, &cli->diag, sql, "");
    int64_t n = db_step(st, &cli->diag) ? db_int(st, 0) : -1;
    db_reset(st);
    return n;
}

static void db_info(Cli *cli, Store *store)
{
    Db *db = store_db(store);
    struct stat about;
    uint64_t bytes = stat(cli->options.db, &about) == 0 ? (uint64_t)about.st_size : 0;
    DbStatement *st = db_prepare(db, &cli->diag, "PRAGMA user_version", "");
    int64_t version = db_step(st, &cli->diag) ? db_int(st, 0) : -1;
    db_reset(st);
    str_print(&cli->out, "store      %s, %s, schema %" PRId64 "\n", cli->options.db,
              str_bytes(cli->arena, bytes), version);
    json_t *tables = cli->json != NULL ? json_object() : NULL;
    LIST(const char *) names = {NULL, 0, 0};
    st = db_prepare(db, &cli->diag,
                    "SELECT name, type FROM sqlite_master WHERE type IN ('table','view') AND "
                    "name NOT LIKE 'sqlite_%' ORDER BY type, name",
                    "");
    Str views = str_in(cli->arena);
    while (db_step(st, &cli->diag)) {
        const char *name = arena_dup(cli->arena, db_text(st, 0));
        if (strcmp(db_text(st, 1), "table") == 0)
            list_push(cli->arena, &names, name);
        else
            str_print(&views, " %s", name);
    }
    for (uint32_t i = 0; i < names.n; i++) {
        int64_t n = count_rows(cli, db, names.at[i]);
        str_print(&cli->out, "  %-20s %12s rows\n", names.at[i],
                  str_count(cli->arena, n > 0 ? (uint64_t)n : 0));
        if (tables != NULL) json_put(tables, names.at[i], json_integer(n));
    }
    str_print(&cli->out, "views     %s\n", str_text(&views));
    if (cli->json == NULL) return;
    json_text(cli->json, "path", cli->options.db);
    json_count(cli->json, "bytes", bytes);
    json_put(cli->json, "schema_version", json_integer(version));
    json_put(cli->json, "tables", tables);
}

static void db_check(Cli *cli, Store *store)
{
    static const char *const checks[] = {"PRAGMA integrity_check(20)", "PRAGMA foreign_key_check"};
    for (uint32_t i = 0; i < 2; i++) {
        DbStatement *st = db_prepare(store_db(store), &cli->diag, checks[i], "");
        while (db_step(st, &cli->diag)) {
            const char *text = db_text(st, 0);
            if (i == 0 && text != NULL && strcmp(text, "ok") == 0) continue;
            cli_error(cli, FAULT_store, "store-damaged", "%s: %s%s", cli->options.db,
                      i == 1 ? "a row without its parent in table " : "",
                      text != NULL ? text : "?");
        }
    }
    bool sound = cli->diag.n_errors == 0;
    str_print(&cli->out, "%s: %s\n", cli->options.db,
              sound ? paint(cli, PAINT_good, "sound") : paint(cli, PAINT_bad, "DAMAGED"));
    if (cli->json != NULL) json_put(cli->json, "sound", json_boolean(sound));
}

void cmd_db(Cli *cli)
{
    const char *what = cli->args[0];
    static const char *const words[] = {"path", "info", "check"};
    if (strcmp(what, "path") == 0) {
        db_path(cli);
        return;
    }
    if (strcmp(what, "info") != 0 && strcmp(what, "check") != 0) {
        cli_error(cli, FAULT_usage, "option-value",
                  "tandem db knows path, info and check, not '%s'", what);
        const char *near = str_nearest(what, words, 3);
        if (near != NULL) diag_hint(&cli->diag, "did you mean %s?", near);
        return;
    }
    Store *store = store_open(cli->options.db, true, &cli->diag);
    if (store == NULL) return;
    if (strcmp(what, "info") == 0)
        db_info(cli, store);
    else
        db_check(cli, store);
    store_close(store);
}
