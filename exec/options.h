/* The options that each backend brings. The command's parser and help, and the reference pages, are
 * made from this table. A row:
 *
 *   BACKEND_OPTION(backend, type, id, name, kind, member, value, words, least, most, uses, help)
 *
 * `type` is the struct behind BackendOptions.own, `member` its field, `name` the long option,
 * `value` its value's name in the help. The default of each field is zero. */
#ifndef TANDEM_EXEC_OPTIONS_H
#define TANDEM_EXEC_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "planner/base/arena.h"

typedef enum BackendOptionKind {
    BACKEND_KIND_flag,   /* bool */
    BACKEND_KIND_word,   /* an enum in the order of `words`; the word "" marks a default that has no
                            word */
    BACKEND_KIND_number, /* uint32_t in [least, most]; the field holds the number plus 1, because 0
                            means that none was given */
    BACKEND_KIND_text
} BackendOptionKind;

enum { /* values of BackendOption.uses */
       BACKEND_RUNS = 1,
       BACKEND_CALIBRATES = 2,   /* `tandem calibrate` takes the option, too */
       BACKEND_CHANGES_COSTS = 4 /* the option changes the times of kernels, so their measurements
                                  * are stored under another name */
};

typedef enum BackendOptionId {
#define BACKEND_OPTION(backend, type, id, ...) BACKEND_OPTION_##id,
#include "exec/options.def"
    BACKEND_OPTION_COUNT
} BackendOptionId;

typedef struct BackendOption {
    const char *backend, *name;
    BackendOptionKind kind;
    size_t field;
    const char *value;
    const char *const *words; /* ends in NULL */
    uint32_t least, most;
    uint32_t uses;
    const char *help;
} BackendOption;
extern const BackendOption backend_options[BACKEND_OPTION_COUNT];

/* One option as the user gave it. */
typedef struct BackendValue {
    const char *text; /* NULL: the option was not given, or is a flag */
    bool is_set;      /* value of a flag */
} BackendValue;

/* Returns a zeroed struct for the backend's own options (BackendOptions.own); NULL if it has
 * none. */
void *backend_own_options(const char *backend, Arena *arena);
/* Stores a value in its field. Returns false if the value is not in the list of words, or lies
 * outside the bounds. */
bool backend_set_option(const BackendOption *option, const BackendValue *value, void *own);

#endif
