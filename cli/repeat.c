/* Answers a repeated `sim` without simulating. When a prediction is stored, the output of the
 * command is stored as an answer. The answer's key is the command line, the program, and the day,
 * because the printed age of the costs depends on the day. The answer lists the scripts that `sim`
 * read, and the paths at which it looked for a script and found none. An answer is valid while each
 * of these scripts has the same bytes, and each of these paths is empty. The same command then
 * prints the answer, and neither runs a script nor compiles a plan. No answer is stored if the
 * output depends on anything else: measured costs, this machine, a file of counts, or a trace. */
#include "cli/repeat.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/predict.h"

enum { SECONDS_A_DAY = 86400 };

static bool may_repeat(const Cli *cli)
{
    const Options *o = &cli->options;
    /* the text is a number, "drawn", or the name of a file */
    const char *imbalance = o->scenario.imbalance_text;
    if (imbalance != NULL && access(imbalance, F_OK) == 0) return false;
    return !o->dry_run && !o->verbose && o->machine == NULL && !o->sim.trace && !o->sim.explain &&
           o->sim.what_if.n == 0 && !session_is_text(cli->args[0]);
}

/* Returns the hash of everything on which the output depends, except the scripts and the number of
 * the run in the store. */
static Hash128 key_of(Cli *cli)
{
    Str text = str_in(cli->arena);
    str_print(&text, "%s\nsim said\nday %" PRId64 "\ncolor %d\n", build_name(cli->arena),
              (int64_t)time(NULL) / SECONDS_A_DAY, cli->color);
    for (int i = 2; i < cli->argc; i++)
        str_print(&text, "%zu %s\n", strlen(cli->argv[i]), cli->argv[i]);
    return hash_bytes(str_text(&text), text.n);
}

/* ---- printing it again ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static void say_diagnostics(Cli *cli, const json_t *list)
{
    size_t i;
    const json_t *row;
    json_array_foreach(list, i, row)
    {
        const Diagnostic item = diagnostic_of(row, cli->arena);
        if (item.rule != NULL && item.text != NULL) diag_add(&cli->diag, item);
    }
}

static bool say(Cli *cli, int64_t run, json_t *said)
{
    json_t *document = json_object_get(said, "document");
    if (!json_is_object(said) || (cli->json != NULL) != json_is_object(document)) return false;
    if (cli->json != NULL) {
        json_decref(cli->json);
        cli->json = json_incref(document);
        json_put(cli->json, "run", json_integer(run));
        json_put(cli->json, "found", json_true());
    } else {
        str_add(&cli->out, text_of(said, "text"));
        run_report(cli, run, true, text_of(said, "calibration"));
        str_add(&cli->out, text_of(said, "rest"));
    }
    say_diagnostics(cli, json_object_get(said, "diagnostics"));
    return true;
}

bool repeat_answer(Cli *cli)
{
    if (!may_repeat(cli) || access(cli->options.db, F_OK) != 0) return false;
    /* an error of the store is reported later, when the plan was loaded */
    Diag ignored = diag_in(cli->arena);
    Store *store = store_open_brief(cli->options.db, &ignored);
    if (store == NULL) return false;
    FoundAnswer found;
    KnownScripts scripts = {.fresh = {NULL, 0, 0}};
    const bool fine = store_find_answer(store, key_of(cli), cli->arena, &found, &ignored) &&
                      found.run != 0 && store_has_run(store, found.run, &ignored) &&
                      recipe_is_fresh(&scripts, &found, cli->args[0], cli->arena);
    store_close(store);
    if (!fine) return false;
    json_t *said = json_loads(found.answer, 0, NULL);
    const bool is_said = said != NULL && say(cli, found.run, said);
    json_decref(said);
    return is_said;
}

/* ---- storing it ---- */

/* Returns the diagnostics that a repeated command prints, without those about a
 * fresh simulation. */
static json_t *diagnostics_json(const Cli *cli, const Repeat *r)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < cli->diag.items.n; i++) {
        if (i >= r->fresh_from && i < r->fresh_end) continue;
        json_array_append_new(list, diagnostic_json(&cli->diag.items.at[i]));
    }
    return list;
}

void repeat_keep(Cli *cli, const Repeat *r, Store *store, const Recipe *recipe, const Prediction *p)
{
    Arena *arena = cli->arena;
    if (!may_repeat(cli) || p->id == 0 || cli->exit_code != 0) return;
    Recipe all = {.head = recipe->head};
    for (uint32_t i = 0; i < recipe->scripts.n; i++)
        recipe_add(&all, &recipe->scripts.at[i], arena);
    for (uint32_t i = 0; i < r->also.scripts.n; i++)
        recipe_add(&all, &r->also.scripts.at[i], arena);
    json_t *said = json_object();
    json_put(said, "diagnostics", diagnostics_json(cli, r));
    if (cli->json != NULL) {
        json_object_set(said, "document", cli->json);
    } else {
        /* json_stringn returns NULL if the text contains a path that is not UTF-8; the answer is
         * then not stored */
        json_object_set_new(said, "text", json_stringn(cli->out.at, cli->run_line));
        json_object_set_new(said, "rest", json_string(str_text(&cli->out) + cli->run_line_end));
        json_text(said, "calibration", p->record.calibration);
    }
    /* an error is ignored, because the prediction itself is stored */
    Diag ignored = diag_in(arena);
    char *answer = json_dumps(said, JSON_COMPACT);
    recipe_read_scripts(&all, store, arena, &ignored);
    if (answer != NULL && json_object_size(said) == (cli->json != NULL ? 2 : 4))
        store_put_answer(store, key_of(cli), &all, p->id, build_name(arena), answer, &ignored);
    free(answer);
    json_decref(said);
}
