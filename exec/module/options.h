/* The options that only one backend has. The parser of the command line, the help and the
 * reference pages are made from these rows:
 *
 *   BACKEND_OPTION(backend, type, id, name, kind, member, value, words, least, most, uses, help)
 *
 * `type` is the struct to which BackendOptions.own points. `member` is the member of this struct
 * that the option sets. `name` is the long option; `value` names its value in the help. The default
 * of each member is zero. */
#ifndef TANDEM_EXEC_OPTIONS_H
#define TANDEM_EXEC_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "planner/base/arena.h"

typedef enum BackendOptionKind {
    BACKEND_KIND_flag, /* bool */
    BACKEND_KIND_word, /* an enum in the order of `words`; the word "" stands for a default that the
                          user cannot name */
    BACKEND_KIND_number, /* uint32_t from `least` to `most`; the member gets the number plus 1,
                            because 0 means that the option was not given */
    BACKEND_KIND_text
} BackendOptionKind;

enum { /* bits of BackendOption.uses */
       BACKEND_RUNS = 1,
       BACKEND_CALIBRATES = 2,   /* `tandem calibrate` takes the option as well */
       BACKEND_CHANGES_COSTS = 4 /* the option changes the times of kernels, so that measurements
                                    with it are stored under another name */
};

typedef enum BackendOptionId {
#define BACKEND_OPTION(backend, type, id, ...) BACKEND_OPTION_##id,
#include "exec/module/options.def"
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

/* The value of one option, as the user gave it. */
typedef struct BackendValue {
    const char *text; /* NULL: the option was not given, or is a flag */
    bool is_set;      /* the flag was given */
} BackendValue;

/* Returns a zeroed struct for BackendOptions.own; NULL if the backend has no options of its own. */
void *backend_own_options(const char *backend, Arena *arena);
/* Stores a value in the member of the option. Returns false if the value is none of the words, or
 * lies outside of the bounds. */
bool backend_set_option(const BackendOption *option, const BackendValue *value, void *own);

#endif
