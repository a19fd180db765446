/* Collects diagnostics, and prints them as text or as JSON. `tandem explain` has the table of the
 * rules that diagnostics name. */
#include "planner/base/diag.h"

#include <assert.h>
#include <inttypes.h>

enum {
    MOST_MESSAGE = 8 << 10
}; /* the most bytes of one message, because names in scripts and files may be very long */

Diag diag_in(Arena *arena)
{
    Diag d = {.arena = arena};
    return d;
}

__attribute__((format(printf, 2, 0))) static const char *
format_text(Arena *arena, const char *format, va_list args)
{
    Str text = str_in(arena);
    str_vprint(&text, format, args);
    return str_readable(arena, str_text(&text), MOST_MESSAGE);
}

void diag_add(Diag *d, Diagnostic item)
{
    list_push(d->arena, &d->items, item);
    d->n_errors += item.severity == SEVERITY_error;
}

void diag_add_all(Diag *d, const Diag *from)
{
    for (uint32_t i = 0; i < from->items.n; i++) {
        Diagnostic item = from->items.at[i];
        item.text = arena_dup(d->arena, item.text);
        if (item.hint != NULL) item.hint = arena_dup(d->arena, item.hint);
        diag_add(d, item);
    }
}

bool diag_error(Diag *d, Fault fault, const char *rule, Loc loc, const char *format, ...)
{
    assert(fault != FAULT_none && rule != NULL);
    Diagnostic item = {.severity = SEVERITY_error, .fault = fault, .rule = rule, .loc = loc};
    va_list args;
    va_start(args, format);
    item.text = format_text(d->arena, format, args);
    va_end(args);
    diag_add(d, item);
    return false;
}

__attribute__((format(printf, 5, 0))) static void
add_remark(Diag *d, Severity severity, const char *rule, Loc loc, const char *format, va_list args)
{
    assert(rule != NULL);
    Diagnostic item = {.severity = severity, .rule = rule, .loc = loc};
    item.text = format_text(d->arena, format, args);
    diag_add(d, item);
}

void diag_warning(Diag *d, const char *rule, Loc loc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_remark(d, SEVERITY_warning, rule, loc, format, args);
    va_end(args);
}

void diag_note(Diag *d, const char *rule, Loc loc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_remark(d, SEVERITY_note, rule, loc, format, args);
    va_end(args);
}

void diag_hint(Diag *d, const char *format, ...)
{
    assert(d->items.n > 0);
    va_list args;
    va_start(args, format);
    d->items.at[d->items.n - 1].hint = format_text(d->arena, format, args);
    va_end(args);
}

void diag_in_library(Diag *d, uint32_t item, Loc user)
{
    assert(item < d->items.n && user.file != NULL);
    Diagnostic *at = &d->items.at[item];
    at->library = at->loc;
    at->loc = user;
}

static const char *severity_name(Severity severity)
{
    switch (severity) {
    case SEVERITY_error: return "error";
    case SEVERITY_warning: return "warning";
    case SEVERITY_note: return "note";
    }
    assert(0 && "a severity");
    return "";
}

void diag_print(const Diag *d, Str *out)
{
    for (uint32_t i = 0; i < d->items.n; i++) {
        const Diagnostic *item = &d->items.at[i];
        const char *file = item->loc.file;
        if (file != NULL) file = str_path(d->arena, file);
        if (file != NULL && item->loc.line != 0)
            str_print(out, "%s:%" PRIu32 ": ", file, item->loc.line);
        else if (file != NULL)
            str_print(out, "%s: ", file);
        str_print(out, "%s[%s]: %s\n", severity_name(item->severity), item->rule, item->text);
        if (item->library.file != NULL)
            str_print(out, "  library: %s:%" PRIu32 "\n", str_path(d->arena, item->library.file),
                      item->library.line);
        if (item->hint != NULL) str_print(out, "  hint: %s\n", item->hint);
    }
}

static void add_json_or_null(Str *out, const char *key, const char *text)
{
    str_print(out, ",\"%s\":", key);
    if (text != NULL)
        str_add_json(out, text);
    else
        str_add(out, "null");
}

void diag_json(const Diag *d, Str *out)
{
    str_add(out, "[");
    for (uint32_t i = 0; i < d->items.n; i++) {
        const Diagnostic *item = &d->items.at[i];
        str_print(out, "%s{\"severity\":\"%s\"", i == 0 ? "" : ",", severity_name(item->severity));
        add_json_or_null(out, "rule", item->rule);
        add_json_or_null(out, "file", item->loc.file);
        if (item->loc.file != NULL && item->loc.line != 0)
            str_print(out, ",\"line\":%" PRIu32, item->loc.line);
        else
            str_add(out, ",\"line\":null");
        add_json_or_null(out, "text", item->text);
        add_json_or_null(out, "hint", item->hint);
        if (item->library.file != NULL)
            add_json_or_null(
                out, "library",
                arena_print(d->arena, "%s:%" PRIu32, item->library.file, item->library.line));
        str_add(out, "}");
    }
    str_add(out, "]");
}

int diag_exit_code(const Diag *d)
{
    /* `Fault` is in the order of the exit codes, and the lowest exit code of all errors wins. */
    int code = 0;
    for (uint32_t i = 0; i < d->items.n; i++) {
        const Diagnostic *item = &d->items.at[i];
        if (item->severity != SEVERITY_error) continue;
        int own = item->fault == FAULT_none ? (int)FAULT_internal : (int)item->fault;
        if (code == 0 || own < code) code = own;
    }
    assert((code != 0) == (d->n_errors != 0));
    return code;
}
