/* Diagnostics: errors, warnings and notes about a plan. The search goes on after a violation, so
 * that the user sees all violations:
 *     llama.lua:14: error[divides-heads]: heads = 12 cannot be split over tp = 8
 *       hint: tp may be 1, 2, 3, 4, 6 or 12
 * Rule ids are kebab-case; `tandem explain RULE` explains a rule. */
#ifndef TANDEM_BASE_DIAG_H
#define TANDEM_BASE_DIAG_H

#include <stdbool.h>

#include "planner/base/list.h"
#include "planner/base/str.h"

typedef struct Loc {
    const char *file; /* NULL: not in a script */
    uint32_t line;    /* the first line is 1 */
} Loc;

typedef enum Severity { SEVERITY_error, SEVERITY_warning, SEVERITY_note } Severity;

/* The kind of an error. It decides the exit code; the lowest code wins (3 before 4). */
typedef enum Fault {
    FAULT_none,
    FAULT_internal,   /* exit 1: a check failed on a plan that Tandem's passes made, or a file could
                         not be read or written */
    FAULT_usage,      /* exit 2: wrong command line */
    FAULT_input,      /* exit 3: script or plan invalid */
    FAULT_infeasible, /* exit 4: the plan does not fit into memory */
    FAULT_threshold,  /* exit 5: a comparison failed */
    FAULT_run,        /* exit 6: a training run could not start, or failed */
    FAULT_store       /* exit 7: the store of results failed */
} Fault;

typedef struct Diagnostic {
    Severity severity;
    Fault fault;
    const char *rule;
    Loc loc;
    /* The line of the library script that made the wrong value. Set only where `loc` is the line of
     * the user's script that asked for the value; elsewhere library.file is NULL. */
    Loc library;
    const char *text, *hint; /* hint: NULL or one line */
} Diagnostic;

typedef struct Diag {
    Arena *arena;
    LIST(Diagnostic) items;
    uint32_t n_errors;
} Diag;

Diag diag_in(Arena *arena);
/* Adds a diagnostic as it is. Its texts must live as long as the list. */
void diag_add(Diag *d, Diagnostic item);
/* Adds all diagnostics of another list. Copies their texts, so the other arena may be freed. */
void diag_add_all(Diag *d, const Diag *from);
/* Adds an error. Returns false, so that a caller may write `return diag_error(...)`. */
bool diag_error(Diag *d, Fault fault, const char *rule, Loc loc, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void diag_warning(Diag *d, const char *rule, Loc loc, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void diag_note(Diag *d, const char *rule, Loc loc, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Adds a hint to the newest diagnostic. */
void diag_hint(Diag *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Gives item number `item` the location `user`, a line of the user's script. The item's old
 * location, a line of a library script, becomes `library` and is printed after the message. */
void diag_in_library(Diag *d, uint32_t item, Loc user);
/* Prints all items for people, one to three lines each, in the order in which they were found. */
void diag_print(const Diag *d, Str *out);
/* Appends a JSON array: [{"severity","rule","file","line","text","hint"}, ...]. An item with a
 * library location has "library", too. */
void diag_json(const Diag *d, Str *out);
/* Returns 0, or the exit code of the worst error: internal 1, usage 2, input 3, infeasible 4,
 * ... */
int diag_exit_code(const Diag *d);

#endif
