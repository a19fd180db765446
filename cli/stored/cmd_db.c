/* tandem db: prints the store's path and content, and whether it is damaged. Also removes, merges
 * and exports rows. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "planner/base/plural.h"
#include "store/seals.h"

static void db_path(Cli *cli)
{
    char here[4096];
    const char *path = cli->options.db;
    if (path[0] != '/' && getcwd(here, sizeof here) != NULL)
        path = arena_print(cli->arena, "%s/%s", here, path);
    str_print(&cli->out, "%s\n", path);
    if (cli->json != NULL) json_text(cli->json, "path", path);
}

/* Counts the rows of a table. The name comes from the file's own catalogue and is quoted, so the
 * statement contains no user input. */
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
                      i == 1 ? "a row refers to a missing row of table " : "",
                      text != NULL ? text : "?");
        }
    }
    seals_hold(store_db(store), &cli->diag);
    bool sound = cli->diag.n_errors == 0;
    str_print(&cli->out, "%s: %s\n", cli->options.db,
              sound ? paint(cli, PAINT_good, "sound") : paint(cli, PAINT_bad, "DAMAGED"));
    if (cli->json != NULL) json_put(cli->json, "sound", json_boolean(sound));
}

static void db_prune(Cli *cli)
{
    Store *store = store_open(cli->options.db, false, &cli->diag);
    if (store == NULL) return;
    Pruned p;
    if (store_prune(store, SIM_ENGINE_VERSION, build_name(cli->arena), cli->options.dry_run, &p,
                    &cli->diag)) {
        str_print(&cli->out,
                  "%s %" PRId64 " predictions of other engines, %" PRId64
                  " answers of other builds, %" PRId64 " plans, %" PRId64 " texts, %" PRId64
                  " scripts\n",
                  cli->options.dry_run ? "would remove" : "removed", p.runs, p.answers, p.plans,
                  p.texts, p.scripts);
        if (cli->json != NULL) {
            json_count(cli->json, "runs", (uint64_t)p.runs);
            json_count(cli->json, "answers", (uint64_t)p.answers);
            json_count(cli->json, "plans", (uint64_t)p.plans);
            json_count(cli->json, "texts", (uint64_t)p.texts);
            json_count(cli->json, "scripts", (uint64_t)p.scripts);
        }
    }
    store_close(store);
}

static void db_merge(Cli *cli)
{
    Store *store = store_open(cli->options.db, false, &cli->diag);
    if (store == NULL) return;
    Merged m;
    if (store_merge(store, cli->args[1], &m, &cli->diag)) {
        str_print(&cli->out,
                  "%s: took %" PRId64 " runs and %" PRId64 " costs from %s; %" PRId64
                  " runs were here already\n",
                  cli->options.db, m.runs, m.costs, cli->args[1], m.known);
        if (cli->json != NULL) {
            json_count(cli->json, "runs", (uint64_t)m.runs);
            json_count(cli->json, "costs", (uint64_t)m.costs);
            json_count(cli->json, "known", (uint64_t)m.known);
        }
    }
    store_close(store);
}

/* Writes the file FOLDER/NAME. Creates missing folders. */
static bool write_below(Cli *cli, const char *folder, const RecipeScript *s)
{
    char *path = arena_print(cli->arena, "%s/%s", folder, s->name);
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return cli_error(cli, FAULT_internal, "output", "cannot make %s: %s", path,
                             strerror(errno));
        *slash = '/';
    }
    return cli_write_file(cli, path, s->text, s->bytes);
}

/* Returns a command that makes the plan again. Its arguments come from the lines of the plan's
 * recipe. */
static const char *command_of(Cli *cli, const char *head, const char *folder, const char *script)
{
    Str out = str_in(cli->arena);
    str_add(&out, "TANDEM_SCRIPTS=");
    cli_add_word(&out, arena_print(cli->arena, "%s/library", folder));
    str_add(&out, " tandem sim ");
    cli_add_word(&out, arena_print(cli->arena, "%s/own/%s", folder, script));
    static const char *const words[] = {"set ", "cluster ", "nodes ", "seed "};
    while (*head != 0) {
        size_t n = strcspn(head, "\n");
        for (uint32_t i = 0; i < sizeof words / sizeof *words; i++) {
            size_t w = strlen(words[i]);
            if (strncmp(head, words[i], w) != 0) continue;
            str_print(&out, " --%.*s ", (int)w - 1, words[i]);
            cli_add_word(&out, arena_copy(cli->arena, head + w, n - w));
        }
        head += n + (head[n] != 0);
    }
    return str_text(&out);
}

/* Returns the path of a script below the folder of its plan or of the library. Returns NULL if it
 * is in another folder. Only a store that another program wrote can say so. `plan` is the script of
 * the plan. */
static const char *path_below(const RecipeScript *s, const RecipeScript *plan)
{
    const char *slash = strrchr(plan->name, '/'), *path = s->name;
    const size_t prefix = slash == NULL ? 0 : (size_t)(slash - plan->name) + 1;
    if (!s->shipped) {
        if (strncmp(path, plan->name, prefix) != 0) return NULL;
        path += prefix;
    }
    for (const char *part = path;; part++) {
        const size_t n = strcspn(part, "/");
        if (n == 0 || (n == 2 && strncmp(part, "..", 2) == 0)) return NULL;
        part += n;
        if (*part == 0) return path;
    }
}

/* Writes the scripts of a run's plan into a folder, with one subfolder for the plan's own scripts
 * and one for the library's. */
static void export_run(Cli *cli, Store *store, int64_t run)
{
    const char *folder = cli->options.output;
    Recipe recipe;
    if (folder == NULL) {
        cli_error(cli, FAULT_usage, "arguments", "tandem db export RUN needs --output FOLDER");
        return;
    }
    const uint32_t before = cli->diag.n_errors;
    if (!store_recipe(store, run, cli->arena, &recipe, &cli->diag)) {
        if (cli->diag.n_errors == before)
            cli_error(cli, FAULT_store, "no-recipe",
                      "the store does not know the scripts of run %" PRId64, run);
        return;
    }
    const char *own = arena_print(cli->arena, "%s/own", folder),
               *library = arena_print(cli->arena, "%s/library", folder);
    for (uint32_t i = 0; i < recipe.scripts.n; i++) {
        RecipeScript s = recipe.scripts.at[i];
        const char *path = path_below(&s, &recipe.scripts.at[0]);
        if (path == NULL) {
            cli_error(cli, FAULT_store, "store-damaged",
                      "the script %s of run %" PRId64
                      " is not below the folder of its plan or of the library",
                      s.name, run);
            return;
        }
        s.name = path;
        if (!write_below(cli, s.shipped ? library : own, &s)) return;
    }
    const char *command = command_of(cli, recipe.head, folder,
                                     path_below(&recipe.scripts.at[0], &recipe.scripts.at[0]));
    str_print(&cli->out, "%s: %" PRIu32 " script%s\n%s\n", folder, recipe.scripts.n,
              str_s(recipe.scripts.n), command);
    if (cli->json == NULL) return;
    json_text(cli->json, "output", folder);
    json_text(cli->json, "command", command);
    json_count(cli->json, "scripts", recipe.scripts.n);
}

static void db_export(Cli *cli, Store *store)
{
    const char *name = cli->args[1];
    if (strspn(name, "0123456789") == strlen(name)) {
        export_run(cli, store, strtoll(name, NULL, 10));
        return;
    }
    Str csv = str_in(cli->arena);
    if (!store_csv(store, name, &csv, &cli->diag)) return;
    if (cli->options.output != NULL) {
        if (cli_write_file(cli, cli->options.output, str_text(&csv), csv.n))
            str_print(&cli->out, "%s: %s\n", cli->options.output, str_bytes(cli->arena, csv.n));
        return;
    }
    str_add_bytes(&cli->out, str_text(&csv), csv.n);
    if (cli->json != NULL) json_text(cli->json, "csv", str_text(&csv));
}

typedef struct DbWord {
    const char *name, *needs; /* needs: the arguments of the command; NULL: none */
} DbWord;
static const DbWord db_words[] = {{"path", NULL},  {"info", NULL},    {"check", NULL},
                                  {"prune", NULL}, {"merge", "FILE"}, {"export", "NAME|RUN"}};
enum { N_DB_WORDS = sizeof db_words / sizeof *db_words };

static const DbWord *db_word(Cli *cli)
{
    const char *names[N_DB_WORDS];
    for (uint32_t i = 0; i < N_DB_WORDS; i++) {
        const DbWord *w = &db_words[i];
        names[i] = w->name;
        if (strcmp(cli->args[0], w->name) != 0) continue;
        if ((cli->n_args == 2) == (w->needs != NULL)) return w;
        cli_error(cli, FAULT_usage, "arguments", "the usage is: tandem db %s%s%s", w->name,
                  w->needs != NULL ? " " : "", w->needs != NULL ? w->needs : "");
        return NULL;
    }
    cli_error(cli, FAULT_usage, "option-value", "tandem db has no action '%s'", cli->args[0]);
    const char *near = str_nearest(cli->args[0], names, N_DB_WORDS);
    if (near != NULL)
        diag_hint(&cli->diag, "did you mean %s?", near);
    else
        diag_hint(&cli->diag, "the actions are %s", cli->verb->arguments);
    return NULL;
}

void cmd_db(Cli *cli)
{
    const DbWord *w = db_word(cli);
    if (w == NULL) return;
    if (strcmp(w->name, "path") == 0) {
        db_path(cli);
        return;
    }
    if (strcmp(w->name, "prune") == 0 || strcmp(w->name, "merge") == 0) {
        if (w->needs != NULL)
            db_merge(cli);
        else
            db_prune(cli);
        return;
    }
    Store *store = store_open(cli->options.db, true, &cli->diag);
    if (store == NULL) return;
    if (strcmp(w->name, "info") == 0)
        db_info(cli, store);
    else if (strcmp(w->name, "check") == 0)
        db_check(cli, store);
    else
        db_export(cli, store);
    store_close(store);
}
