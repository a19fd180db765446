/* Finds the modules that match a path pattern such as "layers.*.attention.wo". */
#include <assert.h>
#include <string.h>

#include "planner/passes/pass.h"

enum { MOST_NAMES = 64, MOST_SHOWN = 12 };

static size_t part_length(const char *path)
{
    return strcspn(path, ".");
}

static bool part_fits(const char *pattern, const char *path)
{
    size_t n = part_length(pattern);
    if (n == 1 && pattern[0] == '*') return part_length(path) > 0;
    return n == part_length(path) && memcmp(pattern, path, n) == 0;
}

/* Returns how many leading names (between dots) of the pattern match those of the path. Sets *rest
 * and *path_rest to the texts behind them; NULL if nothing is left. */
static uint32_t parts_fit(const char *pattern, const char *path, const char **rest,
                          const char **path_rest)
{
    uint32_t n = 0;
    while (pattern && path && *path && part_fits(pattern, path)) {
        n++;
        pattern = pattern[part_length(pattern)] ? pattern + part_length(pattern) + 1 : NULL;
        path = path[part_length(path)] ? path + part_length(path) + 1 : NULL;
    }
    *rest = pattern;
    *path_rest = path && *path ? path : NULL;
    return n;
}

static bool fits(const char *pattern, const char *path)
{
    const char *rest, *path_rest;
    return parts_fit(pattern, path, &rest, &path_rest) > 0 && !rest && !path_rest;
}

typedef struct Names {
    const char *at[MOST_NAMES];
    uint32_t n;
} Names;

static void add_name(Names *names, const char *name)
{
    for (uint32_t i = 0; i < names->n; i++)
        if (strcmp(names->at[i], name) == 0) return;
    if (names->n < MOST_NAMES) names->at[names->n++] = name;
}

/* Adds to `names` the names of modules that could stand where the pattern stops matching, for
 * hints, and returns the rest of the pattern from there on. */
static const char *gather_names(Job *job, const char *pattern, Names *names)
{
    const Graph *g = &job->plan->graph;
    const char *rest = pattern, *path_rest;
    uint32_t most = 0;
    for (ModuleId m = 1; m < g->modules.n; m++) {
        const char *from;
        uint32_t n = parts_fit(pattern, g->modules.at[m].path, &from, &path_rest);
        if (from && n > most) {
            most = n;
            rest = from;
        }
    }
    for (ModuleId m = 1; m < g->modules.n; m++) {
        const char *from;
        uint32_t n = parts_fit(pattern, g->modules.at[m].path, &from, &path_rest);
        if (from == rest && n == most && path_rest)
            add_name(names, arena_copy(job->scratch, path_rest, part_length(path_rest)));
    }
    return rest;
}

static void refuse(Job *job, const char *where, const Pattern *pattern)
{
    const Graph *g = &job->plan->graph;
    Diag *d = job->diag;
    for (TensorId t = 1; t < g->tensors.n; t++) {
        const Tensor *param = &g->tensors.at[t];
        if (param->role != ROLE_param || !fits(pattern->path, param->name)) continue;
        diag_error(d, FAULT_input, "pattern-not-module", pattern->loc,
                   "%s: '%s' names the parameter %s, but a module is needed", where, pattern->path,
                   param->name);
        const char *dot = strrchr(pattern->path, '.');
        if (dot) diag_hint(d, "write '%.*s'", (int)(dot - pattern->path), pattern->path);
        return;
    }
    diag_error(d, FAULT_input, "pattern-matched-nothing", pattern->loc,
               "%s: '%s' names no module of the model", where, pattern->path);
    Names names = {.n = 0};
    const char *rest = gather_names(job, pattern->path, &names);
    size_t kept = (size_t)(rest - pattern->path), n = part_length(rest);
    const char *near = str_nearest(arena_copy(job->scratch, rest, n), names.at, names.n);
    if (near) {
        diag_hint(d, "did you mean '%.*s%s%s'?", (int)kept, pattern->path, near, rest + n);
    } else if (names.n > 0) {
        Str s = str_in(job->scratch);
        for (uint32_t i = 0; i < names.n && i < MOST_SHOWN; i++)
            str_print(&s, "%s%s", i ? ", " : "", names.at[i]);
        if (names.n > MOST_SHOWN) str_add(&s, ", ...");
        if (kept > 0)
            diag_hint(d, "%.*s has: %s", (int)kept - 1, pattern->path, str_text(&s));
        else
            diag_hint(d, "there are: %s", str_text(&s));
    } else if (kept > 0) {
        diag_hint(d, "the module %.*s contains no modules", (int)kept - 1, pattern->path);
    }
}

uint32_t pattern_mark(Job *job, const char *where, const Pattern *pattern, bool *matched)
{
    const Graph *g = &job->plan->graph;
    uint32_t n = 0;
    for (ModuleId m = 1; m < g->modules.n; m++) {
        if (!fits(pattern->path, g->modules.at[m].path)) continue;
        matched[m] = true;
        n++;
    }
    if (n == 0 && !pattern->may_miss) refuse(job, where, pattern);
    return n;
}
