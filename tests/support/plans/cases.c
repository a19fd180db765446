/* Reads the rows and scripts of the seed cases, plans them, and compares diagnostics. */
#include "tests/support/plans/cases.h"
#include "planner/lower/compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/verify/verify.h"
#include "tests/support/command.h"

static const char *csv_field(Arena *arena, const char **at)
{
    Str s = str_in(arena);
    const char *p = *at;
    bool quoted = *p == '"';
    p += quoted;
    for (; *p != 0; p++) {
        if (quoted && p[0] == '"' && p[1] == '"')
            p++;
        else if (quoted ? *p == '"' : (*p == ',' || *p == '\n'))
            break;
        str_print(&s, "%c", *p);
    }
    p += quoted && *p == '"';
    *at = p + (*p == ',');
    return str_text(&s);
}

CaseRows cases_read(const char *path, Arena *arena)
{
    CaseRows rows = {.at = {0}};
    const char *at = command_read_file(arena, path, NULL);
    if (at == NULL) abort();
    while (*at != 0) {
        CaseRow row;
        row.id = csv_field(arena, &at);
        row.system = csv_field(arena, &at);
        row.config = csv_field(arena, &at);
        row.expected = csv_field(arena, &at);
        at += strcspn(at, "\n");
        at += *at == '\n';
        if (strcmp(row.id, "id") != 0 && row.id[0] != 0) list_push(arena, &rows.at, row);
    }
    return rows;
}

/* Splits "a | b" into its parts, without the spaces around them. */
static void add_parts(Arena *arena, const char *text, Expectation *e)
{
    while (*text != 0) {
        const char *bar = strstr(text, " | ");
        size_t n = bar != NULL ? (size_t)(bar - text) : strlen(text);
        const char *part = arena_copy(arena, text, n);
        if (n > 0) list_push(arena, &e->parts, part);
        text += n + (bar != NULL ? 3 : 0);
    }
}

static bool parse_expectation(Arena *arena, const char *text, Expectation *e)
{
    static const char *const words[] = {"error[", "warning[", "note[", "no warning[", "ok"};
    for (int kind = EXPECT_error; kind <= EXPECT_ok; kind++) {
        size_t n = strlen(words[kind]);
        if (strncmp(text, words[kind], n) != 0) continue;
        e->kind = (unsigned)kind;
        text += n;
        if (kind != EXPECT_ok) {
            size_t length = strcspn(text, "]");
            e->rule = arena_copy(arena, text, length);
            text += length + (text[length] == ']');
        }
        text += strspn(text, " ");
        add_parts(arena, text, e);
        return true;
    }
    return false;
}

bool cases_script(const char *path, Arena *arena, CaseScript *script)
{
    *script = (CaseScript){.path = path};
    const char *text = command_read_file(arena, path, NULL);
    while (text != NULL && strncmp(text, "--", 2) == 0) {
        size_t n = strcspn(text, "\n");
        const char *line = arena_copy(arena, text, n);
        text += n + (text[n] == '\n');
        if (strncmp(line, "-- set: ", 8) == 0) {
            const char *set = line + 8;
            list_push(arena, &script->set, set);
        }
        if (strncmp(line, "-- instead: ", 12) == 0) script->instead = line + 12;
        if (strncmp(line, "-- expect: ", 11) != 0) continue;
        Expectation e = {.kind = EXPECT_ok};
        if (!parse_expectation(arena, line + 11, &e)) {
            fprintf(stderr, "%s: what is this: %s\n", path, line);
            return false;
        }
        list_push(arena, &script->expect, e);
    }
    if (script->expect.n == 0) fprintf(stderr, "%s: nothing is expected of it\n", path);
    return script->expect.n > 0;
}

static bool same_severity(const Expectation *e, Severity severity)
{
    switch (severity) {
    case SEVERITY_error: return e->kind == EXPECT_error;
    case SEVERITY_warning: return e->kind == EXPECT_warning;
    case SEVERITY_note: return e->kind == EXPECT_note;
    }
    return false;
}

static bool meets(const Expectation *e, const Diagnostic *item)
{
    if (!same_severity(e, item->severity) || strcmp(e->rule, item->rule) != 0) return false;
    for (uint32_t i = 0; i < e->parts.n; i++) {
        bool in_hint = item->hint != NULL && strstr(item->hint, e->parts.at[i]) != NULL;
        if (!in_hint && strstr(item->text, e->parts.at[i]) == NULL) return false;
    }
    return true;
}

static int check_diagnostics(const CaseScript *script, const Diag *d)
{
    int failed = 0;
    for (uint32_t k = 0; k < script->expect.n; k++) {
        const Expectation *e = &script->expect.at[k];
        bool met = e->kind == EXPECT_ok || e->kind == EXPECT_absent;
        for (uint32_t i = 0; i < d->items.n; i++) {
            const Diagnostic *item = &d->items.at[i];
            met = met || meets(e, item);
            if (e->kind != EXPECT_absent || strcmp(item->rule, e->rule) != 0) continue;
            fprintf(stderr, "%s: there is a [%s]\n", script->path, e->rule);
            failed = 1;
        }
        if (met) continue;
        fprintf(stderr, "%s: there is no [%s] with '%s' ...\n", script->path, e->rule,
                e->parts.n > 0 ? e->parts.at[0] : "");
        failed = 1;
    }
    for (uint32_t i = 0; i < d->items.n; i++) {
        const Diagnostic *item = &d->items.at[i];
        bool expected = item->severity != SEVERITY_error;
        for (uint32_t k = 0; k < script->expect.n; k++)
            expected = expected || meets(&script->expect.at[k], item);
        if (expected) continue;
        fprintf(stderr, "%s: this error is not expected:\n", script->path);
        failed = 1;
    }
    return failed;
}

/* Every diagnostic must name a line of the case's script. */
static int check_places(const CaseScript *script, const Diag *d)
{
    for (uint32_t i = 0; i < d->items.n; i++) {
        const Loc loc = d->items.at[i].loc;
        if (loc.file != NULL && loc.line != 0) continue;
        fprintf(stderr, "%s: [%s] has no line\n", script->path, d->items.at[i].rule);
        return 1;
    }
    return 0;
}

int cases_run(const CaseScript *script)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config;
    Graph graph;
    memset(&graph, 0, sizeof graph);
    FrontOptions options = {.set = script->set.at, .n_set = script->set.n};
    LowerOptions lower = lower_options_default();
    const Plan *plan = NULL;
    if (front_load(script->path, &options, arena, &config, &graph, &d))
        plan = plan_compile(&config, &graph, &lower, NULL, arena, &d);
    if (plan != NULL) verify_plan(plan, VERIFY_all, false, &d);
    int failed = check_diagnostics(script, &d);
    if (d.n_errors > 0) failed |= check_places(script, &d);
    for (uint32_t k = 0; k < script->expect.n; k++) {
        const Expectation *e = &script->expect.at[k];
        if (e->kind != EXPECT_ok) continue;
        if (plan == NULL) {
            fprintf(stderr, "%s: there is no plan\n", script->path);
            failed = 1;
        }
        CaseResult result = {script, &config, plan, arena};
        for (uint32_t i = 0; plan != NULL && i < e->parts.n; i++) {
            Str seen = str_in(arena);
            if (cases_fact(&result, e->parts.at[i], &seen)) continue;
            fprintf(stderr, "%s: '%s' does not hold: %s\n", script->path, e->parts.at[i],
                    str_text(&seen));
            failed = 1;
        }
    }
    if (failed) {
        Str text = str_in(arena);
        diag_print(&d, &text);
        fprintf(stderr, "%s", str_text(&text));
    }
    arena_free(arena);
    return failed;
}
