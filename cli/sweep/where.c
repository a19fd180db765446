/* --where: a condition over the settings of a point, such as `tp*pp <= 64 and micro ~= 2`. Only
 * points for which it is true are simulated. The condition is an expression in the syntax of Lua. A
 * name in it is the key of a setting, an axis of the mesh, or the last word of a key. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sweep/sweep.h"

/* A value in a condition: a number, or a text, which can only be compared. */
typedef struct WhereValue {
    double number;
    const char *text; /* a text; NULL: the value is a number */
} WhereValue;

typedef struct Condition {
    Cli *cli;
    const char *whole, *at;
    const TextList *lists[2]; /* the settings; if a key comes twice, the last setting counts */
    const Config *plan;       /* the plan, for sizes of axes; NULL: unknown */
    uint32_t depth; /* how many parentheses, minus signs and nots enclose the next value */
    bool failed;
} Condition;

/* MOST_DEPTH: deeper nesting could need more stack than there is. MOST_SHOWN: the most bytes of a
 * condition that a message quotes. */
enum { MOST_DEPTH = 200, MOST_SHOWN = 60 };

static WhereValue number_of(double x)
{
    return (WhereValue){x, NULL};
}

static WhereValue fail(Condition *c, const char *what)
{
    const bool is_long = strlen(c->whole) > MOST_SHOWN;
    if (!c->failed)
        cli_error(c->cli, FAULT_usage, "option-value", "--where \"%.*s%s\": %s at '%.20s'",
                  MOST_SHOWN, c->whole, is_long ? "..." : "", what,
                  *c->at != 0 ? c->at : "the end");
    c->failed = true;
    return number_of(0);
}

static void skip_space(Condition *c)
{
    while (isspace((unsigned char)*c->at)) c->at++;
}

static bool is_word(char letter)
{
    return isalnum((unsigned char)letter) || letter == '_';
}

/* If the next sign or word is `sign`, moves behind it and returns true. */
static bool take(Condition *c, const char *sign)
{
    const size_t n = strlen(sign);
    skip_space(c);
    if (strncmp(c->at, sign, n) != 0 || (is_word(sign[0]) && is_word(c->at[n]))) return false;
    c->at += n;
    return true;
}

static WhereValue value_of(const char *text, Arena *arena)
{
    char *end;
    const double number = strtod(text, &end);
    if (end != text && *end == 0) return number_of(number);
    if (strcmp(text, "true") == 0) return number_of(1);
    if (strcmp(text, "false") == 0) return number_of(0);
    return (WhereValue){0, arena_dup(arena, text)};
}

/* Returns true if `name` is the key of the setting or, with `part`, the last word of the key. */
static bool is_key(const char *setting, const char *name, bool part)
{
    const size_t key = strcspn(setting, "="), n = strlen(name);
    if (key < n || strncmp(setting + key - n, name, n) != 0) return false;
    return key == n || (part && setting[key - n - 1] == '.');
}

/* Returns the value of the last setting with this key, or NULL if there is none. */
static const char *setting_of(const Condition *c, const char *name, bool part)
{
    for (uint32_t l = 2; l-- > 0;)
        for (uint32_t i = c->lists[l]->n; i-- > 0;) {
            const char *setting = c->lists[l]->at[i];
            if (is_key(setting, name, part)) return setting + strcspn(setting, "=") + 1;
        }
    return NULL;
}

/* Returns the axis that a name such as tp or mesh.tp means, or AXIS_NAMES if it means none. */
static AxisName axis_of(const char *name)
{
    if (strncmp(name, "mesh.", 5) == 0) name += 5;
    uint32_t a = 0;
    while (a < AXIS_NAMES && strcmp(axis_name_text((AxisName)a), name) != 0) a++;
    return (AxisName)a;
}

/* Adds a hint with the setting whose name is nearest, or with all names. */
static void hint_name(const Condition *c, const char *name)
{
    TextList keys = {NULL, 0, 0};
    Arena *arena = c->cli->arena;
    Str all = str_in(arena);
    for (uint32_t l = 0; l < 2; l++)
        for (uint32_t i = 0; i < c->lists[l]->n; i++) {
            const char *setting = c->lists[l]->at[i];
            const char *key = arena_copy(arena, setting, strcspn(setting, "="));
            const char *dot = strrchr(key, '.');
            str_print(&all, "%s%s", all.n > 0 ? ", " : "settings: ", key);
            list_push(arena, &keys, key);
            if (dot != NULL) list_push(arena, &keys, dot + 1);
        }
    const char *near = keys.n > 0 ? str_nearest(name, keys.at, keys.n) : NULL;
    if (near != NULL)
        diag_hint(&c->cli->diag, "did you mean '%s'?", near);
    else if (all.n > 0)
        diag_hint(&c->cli->diag, "%s", str_text(&all));
}

/* Returns the value of a name. The name of an axis alone stands for the mesh: tp is mesh.tp, never
 * the pass parallel.tp. If no setting gives the size of an axis, the size in the plan is used. For
 * dp_shard this would be wrong, because its size depends on the other axes; so a setting must give
 * it. */
static WhereValue name_value(Condition *c)
{
    Arena *arena = c->cli->arena;
    size_t n = 0;
    while (is_word(c->at[n]) || (c->at[n] == '.' && is_word(c->at[n + 1]))) n++;
    const char *name = arena_copy(arena, c->at, n), *value = setting_of(c, name, false);
    const AxisName axis = axis_of(name);
    if (value == NULL && axis != AXIS_NAMES)
        value = setting_of(c, arena_print(arena, "mesh.%s", axis_name_text(axis)), false);
    else if (value == NULL)
        value = setting_of(c, name, true);
    const bool sized = value == NULL && axis != AXIS_NAMES && c->plan != NULL &&
                       !axes_have(axes_with(AXIS_UNITS), axis);
    if (value == NULL && !sized) {
        const bool first = !c->failed;
        const WhereValue none = fail(c, "no --set or --try names this setting,");
        if (first) hint_name(c, name);
        return none;
    }
    c->at += n;
    return value != NULL ? value_of(value, arena) : number_of(c->plan->axis_size[axis]);
}

static WhereValue any_of(Condition *c);
static WhereValue primary(Condition *c);
static WhereValue negation(Condition *c);

/* Reads a value inside parentheses, behind a minus sign or behind `not`. */
static WhereValue inner(Condition *c, WhereValue (*read)(Condition *))
{
    if (c->depth == MOST_DEPTH) return fail(c, "too many parentheses, minus signs or nots");
    c->depth++;
    const WhereValue v = read(c);
    c->depth--;
    return v;
}

static WhereValue primary(Condition *c)
{
    skip_space(c);
    if (take(c, "(")) {
        const WhereValue v = inner(c, any_of);
        return take(c, ")") ? v : fail(c, "')' is expected");
    }
    if (take(c, "-")) {
        const WhereValue v = inner(c, primary);
        return v.text == NULL ? number_of(-v.number) : fail(c, "a minus sign needs a number");
    }
    if (*c->at == '\'' || *c->at == '"') {
        const char *end = strchr(c->at + 1, *c->at);
        if (end == NULL) return fail(c, "the text has no closing quote");
        const WhereValue v = {0, arena_copy(c->cli->arena, c->at + 1, (size_t)(end - c->at) - 1)};
        c->at = end + 1;
        return v;
    }
    if (isdigit((unsigned char)*c->at) || *c->at == '.') {
        char *end;
        const double x = strtod(c->at, &end);
        if (end == c->at) return fail(c, "a number is expected");
        c->at = end;
        return number_of(x);
    }
    return is_word(*c->at) ? name_value(c) : fail(c, "a value is expected");
}

static WhereValue product(Condition *c)
{
    WhereValue v = primary(c);
    for (;;) {
        const char sign = take(c, "*") ? '*' : take(c, "/") ? '/' : take(c, "%") ? '%' : 0;
        if (sign == 0 || c->failed) return v;
        const WhereValue w = primary(c);
        if (v.text != NULL || w.text != NULL) return fail(c, "both sides must be numbers");
        v.number = sign == '*'   ? v.number * w.number
                   : sign == '/' ? v.number / w.number
                                 : fmod(v.number, w.number);
    }
}

static WhereValue sum(Condition *c)
{
    WhereValue v = product(c);
    for (;;) {
        const char sign = take(c, "+") ? '+' : take(c, "-") ? '-' : 0;
        if (sign == 0 || c->failed) return v;
        const WhereValue w = product(c);
        if (v.text != NULL || w.text != NULL) return fail(c, "both sides must be numbers");
        v.number += sign == '+' ? w.number : -w.number;
    }
}

static WhereValue comparison(Condition *c)
{
    static const char *const signs[] = {"<=", ">=", "==", "~=", "!=", "<", ">"};
    const WhereValue v = sum(c);
    uint32_t s = 0;
    while (s < 7 && !take(c, signs[s])) s++;
    if (s == 7 || c->failed) return v;
    const WhereValue w = sum(c);
    const bool texts = v.text != NULL && w.text != NULL;
    if (!texts && (v.text != NULL || w.text != NULL)) /* a text and a number are never equal */
        return s >= 2 && s <= 4 ? number_of(s != 2) : fail(c, "both sides must be numbers");
    const int order = texts                 ? strcmp(v.text, w.text)
                      : v.number < w.number ? -1
                                            : v.number > w.number;
    const bool holds[] = {order <= 0, order >= 0, order == 0,
                          order != 0, order != 0, order<0, order> 0};
    return number_of(holds[s]);
}

static bool is_true(WhereValue v)
{
    return v.text != NULL || v.number != 0;
}

static WhereValue negation(Condition *c)
{
    return take(c, "not") ? number_of(!is_true(inner(c, negation))) : comparison(c);
}

static WhereValue all_of(Condition *c)
{
    WhereValue v = negation(c);
    while (!c->failed && take(c, "and")) {
        const WhereValue w = negation(c);
        v = number_of(is_true(v) && is_true(w));
    }
    return v;
}

static WhereValue any_of(Condition *c)
{
    WhereValue v = all_of(c);
    while (!c->failed && take(c, "or")) {
        const WhereValue w = all_of(c);
        v = number_of(is_true(v) || is_true(w));
    }
    return v;
}

static void put_name(Cli *cli, FrontPairs *names, const char *key, const char *value)
{
    list_push(cli->arena, names, ((FrontPair){key, value, {NULL, 0}}));
}

void where_names(Cli *cli, const TextList *settings, const Config *plan, FrontPairs *names)
{
    const TextList *lists[] = {&cli->options.set, settings};
    /* look first for the last words of keys, then for axes, then for whole keys */
    for (int pass = 0; pass < 3; pass++) {
        for (uint32_t a = 0; pass == 1 && plan != NULL && a < AXIS_NAMES; a++)
            if (!axes_have(axes_with(AXIS_UNITS), (AxisName)a))
                put_name(cli, names, axis_name_text((AxisName)a),
                         arena_print(cli->arena, "%" PRIu32, plan->axis_size[a]));
        for (uint32_t l = 0; l < 2; l++)
            for (uint32_t i = 0; i < lists[l]->n; i++) {
                const char *setting = lists[l]->at[i], *equals = strchr(setting, '=');
                if (equals == NULL) continue;
                const char *key = arena_copy(cli->arena, setting, (size_t)(equals - setting));
                const char *dot = strrchr(key, '.'), *last = dot != NULL ? dot + 1 : key;
                const bool mesh = strncmp(key, "mesh.", 5) == 0;
                if (pass == 2)
                    put_name(cli, names, key, equals + 1);
                else if (mesh == (pass == 1))
                    put_name(cli, names, last, equals + 1);
            }
    }
}

bool where_holds(Cli *cli, const TextList *settings, const Config *plan, bool *holds)
{
    *holds = true;
    for (uint32_t i = 0; i < cli->options.sweep.where.n; i++) {
        Condition c = {.cli = cli, .whole = cli->options.sweep.where.at[i], .plan = plan};
        c.at = c.whole;
        c.lists[0] = &cli->options.set;
        c.lists[1] = settings;
        const WhereValue v = any_of(&c);
        skip_space(&c);
        if (!c.failed && *c.at != 0) fail(&c, "an operator is expected");
        if (c.failed) return false;
        *holds = *holds && is_true(v);
    }
    return true;
}
