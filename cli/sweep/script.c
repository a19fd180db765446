/* tandem sweep FILE.lua: `vary` and `where` of the script give the points, and `require` and
 * `score` judge their results. All other steps are the same as with --try. */
#include <string.h>

#include "cli/sweep/sweep.h"

const ResultInfo sweep_results[] = {
#define RESULT(name, value, known, meaning) {#name, meaning},
#include "cli/sweep/results.def"
#undef RESULT
};
const uint32_t n_sweep_results = sizeof sweep_results / sizeof *sweep_results;

bool sweep_script_open(Cli *cli, SweepKeys *keys, FrontSweep **script)
{
    bool is_plan;
    *script = front_sweep_open(cli->args[0], cli->arena, &is_plan, &cli->diag);
    if (*script == NULL) return is_plan;
    const FrontPairs *vary = &(*script)->vary;
    for (uint32_t i = 0; i < vary->n; i++) {
        const FrontPair *pair = &vary->at[i];
        if (keys->n == 0 || strcmp(keys->at[keys->n - 1].key, pair->key) != 0) {
            const SweepKey key = {.key = pair->key, .loc = pair->loc};
            list_push(cli->arena, keys, key);
        }
        list_push(cli->arena, &keys->at[keys->n - 1].values, pair->value);
    }
    return true;
}

bool sweep_script_holds(Cli *cli, FrontSweep *script, const TextList *settings, const Config *plan,
                        bool *holds)
{
    *holds = true;
    if (script == NULL || !script->has[SWEEP_where]) return true;
    FrontPairs names = {NULL, 0, 0};
    SweepAnswer answer;
    where_names(cli, settings, plan, &names);
    if (!front_sweep_call(script, SWEEP_where, &names, NULL, point_text(cli->arena, settings, ""),
                          &answer, &cli->diag))
        return false;
    *holds = answer.yes;
    return true;
}

static FrontPairs result_of(Cli *cli, const SweepRow *r)
{
    const double days = row_days(cli, r);
    FrontPairs pairs = {NULL, 0, 0};
#define RESULT(name, value, known, meaning)                                                        \
    if (known)                                                                                     \
        list_push(                                                                                 \
            cli->arena, &pairs,                                                                    \
            ((FrontPair){#name, arena_print(cli->arena, "%.17g", (double)(value)), {NULL, 0}}));
#include "cli/sweep/results.def"
#undef RESULT
    return pairs;
}

static bool judge(Cli *cli, FrontSweep *script, const TextList *settings, const Config *plan,
                  SweepRow *row)
{
    const FrontPairs result = result_of(cli, row);
    const char *point = point_text(cli->arena, settings, "");
    FrontPairs names = {NULL, 0, 0};
    SweepAnswer answer;
    where_names(cli, settings, plan, &names);
    if (script->has[SWEEP_require]) {
        if (!front_sweep_call(script, SWEEP_require, &names, &result, point, &answer, &cli->diag))
            return false;
        row->unmet = !answer.yes;
        if (row->unmet) row->error.text = answer.text != NULL ? answer.text : "`require` is false";
    }
    if (!script->has[SWEEP_score]) return true;
    if (!front_sweep_call(script, SWEEP_score, &names, &result, point, &answer, &cli->diag))
        return false;
    row->score = answer.number;
    return true;
}

bool sweep_script_judge(Cli *cli, FrontSweep *script, const TextList *settings, const Config *plan,
                        SweepRows *rows)
{
    for (uint32_t i = 0; script != NULL && i < rows->n; i++)
        if (rows->at[i].status == SWEEP_fits &&
            !judge(cli, script, &settings[i], plan, &rows->at[i]))
            return false;
    return true;
}
