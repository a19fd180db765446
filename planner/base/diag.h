/* Diagnostics: errors, warnings and notes about a plan. A check does not stop at the first
 * violation, so that the user sees all violations at once:
 *      llama.lua:14: error[divides-heads]: heads = 12 cannot be split over tp = 8
 *        hint: tp may be 1, 2, 3, 4, 6 or 12
 * "divides-heads" is the id of the violated rule; `tandem explain divides-heads` explains the
 * rule. */
#ifndef TANDEM_BASE_DIAG_H
#define TANDEM_BASE_DIAG_H

#include <stdbool.h>

#include "planner/base/list.h"
#include "planner/base/str.h"

typedef struct Loc {
    const char *file; /* NULL: the diagnostic is not about a script */
    uint32_t line;    /* counts from 1 */
} Loc;

typedef enum Severity { SEVERITY_error, SEVERITY_warning, SEVERITY_note } Severity;

/* The kind of an error. It decides the exit code of the command. If there are errors of several
 * kinds, the lowest exit code wins. */
typedef enum Fault {
    FAULT_none,
    /* exit 1: a proof failed on a plan that Tandem itself compiled, or a file could not be read or
     * written */
    FAULT_internal,
    FAULT_usage,      /* exit 2: wrong command line */
    FAULT_input,      /* exit 3: the script or the plan is invalid */
    FAULT_infeasible, /* exit 4: the plan needs more memory than the device has */
    FAULT_threshold,  /* exit 5: a comparison failed, such as `run --verify` */
    FAULT_run,        /* exit 6: a training run could not start, or failed */
    FAULT_store       /* exit 7: the store of results failed */
} Fault;

typedef struct Diagnostic {
    Severity severity;
    Fault fault;
    const char *rule;
    Loc loc;
    /* If a library script (such as models.llama) made the wrong value: its line there. `loc` is
     * then the line of the user's script that called the library. Otherwise library.file is
     * NULL. */
    Loc library;
    const char *text, *hint; /* `hint`: one line on how to mend the error, or NULL */
} Diagnostic;

typedef struct Diag {
    Arena *arena;
    LIST(Diagnostic) items;
    uint32_t n_errors;
} Diag;

Diag diag_in(Arena *arena);
/* Appends `item` without copying its texts, which must live as long as the list. */
void diag_add(Diag *d, Diagnostic item);
/* Appends all diagnostics of `from`. Copies their texts, so the arena of `from` may be freed. */
void diag_add_all(Diag *d, const Diag *from);
/* Appends an error whose text is formatted as by printf. Always returns false, so that a check may
 * end with `return diag_error(...)`. */
bool diag_error(Diag *d, Fault fault, const char *rule, Loc loc, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void diag_warning(Diag *d, const char *rule, Loc loc, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void diag_note(Diag *d, const char *rule, Loc loc, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Sets the hint of the newest diagnostic. */
void diag_hint(Diag *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Blames the user's script for diagnostic `item` (an index), which so far names a line of a library
 * script. That line moves from `loc` to `library`, and `user` becomes `loc`. */
void diag_in_library(Diag *d, uint32_t item, Loc user);
/* Appends all diagnostics to `out` as text, in the order in which they were added. Each has one to
 * three lines: the message, the library line if there is one, the hint if there is one. */
void diag_print(const Diag *d, Str *out);
/* Appends all diagnostics to `out` as a JSON array of objects with the keys "severity", "rule",
 * "file", "line", "text", "hint" and, if there is one, "library". */
void diag_json(const Diag *d, Str *out);
/* Returns the lowest exit code of all errors (see Fault); 0 if there are no errors. */
int diag_exit_code(const Diag *d);

#endif
