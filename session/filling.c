/* Tests the sizes that the hint of the error mesh-product names. A size with which the mesh uses
 * all devices may break another rule: for example, tp = 6 may not divide the number of heads. */
#include <stdlib.h>
#include <string.h>

#include "session/session.h"

static bool same_key(const char *a, const char *b)
{
    const size_t n = strcspn(a, "=") + 1;
    return strncmp(a, b, n) == 0;
}

/* True if the plan compiles with this setting, breaks no rule and fits into memory. It is not
 * verified here, because the passes produce correct plans. */
static bool is_fine(const char *path, const PlanOptions *o, const char *setting)
{
    Arena *arena = arena_new();
    const char **set = arena_array(arena, o->n_set + 1, sizeof *set);
    Diag told = diag_in(arena);
    PlanOptions trial = *o;
    trial.tries_hints = false;
    trial.unproven = true;
    trial.made_of = NULL;
    trial.set = set;
    trial.n_set = 0;
    for (uint32_t i = 0; i < o->n_set; i++)
        if (!same_key(setting, o->set[i])) set[trial.n_set++] = o->set[i];
    if (o->nodes > 0 && same_key(setting, "cluster.nodes="))
        trial.nodes = (uint32_t)strtoul(strchr(setting, '=') + 1, NULL, 10);
    else
        set[trial.n_set++] = setting;
    const PlanFile *file = session_load(path, &trial, arena, &told);
    if (file != NULL && !o->unfitted && file->plan->programs.n > 0) session_fit(file, arena, &told);
    const bool fine = file != NULL && told.n_errors == 0;
    arena_free(arena);
    return fine;
}

void session_try_fillings(const char *path, const PlanOptions *o, const Config *config,
                          uint32_t first, Diag *d)
{
    Diagnostic *error = NULL;
    for (uint32_t i = first; i < d->items.n; i++) {
        if (d->items.at[i].severity != SEVERITY_error) continue;
        if (error != NULL || strcmp(d->items.at[i].rule, "mesh-product") != 0) return;
        error = &d->items.at[i];
    }
    if (error == NULL) return;
    Str fine = str_in(d->arena);
    const char *last = NULL; /* last setting that passed */
    for (uint32_t i = 0; i < config->fills.n; i++) {
        const char *setting = config->fills.at[i], *equals = strchr(setting, '=');
        if (!is_fine(path, o, setting)) continue;
        const char *name = strchr(setting, '.') + 1;
        if (last != NULL && same_key(setting, last))
            str_print(&fine, ", %s", equals + 1);
        else
            str_print(&fine, "%s%.*s = %s", fine.n > 0 ? ", or " : "", (int)(equals - name), name,
                      equals + 1);
        last = setting;
    }
    error->hint =
        fine.n > 0 ? arena_print(d->arena, "these sizes fill the cluster: %s", str_text(&fine))
                   : arena_print(d->arena, "%s; but each of them breaks another rule", error->hint);
}
