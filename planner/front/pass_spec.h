/* Everything that Tandem knows of one pass, in one constant: its options, its place among the other
 * passes, and how it is printed, shrunk, warned of and run. Each pass defines its own in its file
 * under planner/passes. Reading a plan, checking the order, printing and shrinking loop over them.
 */
#ifndef TANDEM_FRONT_PASS_SPEC_H
#define TANDEM_FRONT_PASS_SPEC_H

#include <math.h>
#include <stddef.h>

#include "planner/front/fields.h"

struct Job;

/* One option of a pass. */
typedef struct PassOption {
    Field field;       /* offset: in PassConfig; path: "tp.sequence" */
    double preset;     /* the default: a number, 0 or 1, a word's number; NAN: none is stored */
    const char *open;  /* the default in words, where preset is NAN */
    FieldDoc doc;      /* its unit and its meaning; no key: that is the field's */
    size_t named;      /* offset of a bool that says that a list was given; 0: there is none */
    const char *empty; /* hint where the list is given and empty; NULL: it may be empty */
} PassOption;

/* Another pass that must stand on one side, and the silent bug of the other order. */
typedef struct PassEdge {
    PassName other;
    const char *why; /* NULL ends a list */
} PassEdge;

/* The plan that --verify makes smaller; each pass changes its own options. */
typedef struct Shrink {
    Config *config;                /* its axes are shrunk already */
    uint32_t axis_was[AXIS_NAMES]; /* before */
    bool stays[AXIS_NAMES];        /* an axis that is not shrunk further */
    bool keeps_batch;              /* the number of micro-batches stays */
    bool fills_pipe;               /* micro-batches enough to fill the pipeline */
} Shrink;

typedef struct PassSpec {
    const char *name;
    FieldDoc doc;
    const PassOption *options; /* a NULL path ends them; NULL: it has none */
    const char *short_key;  /* `ac "full"` is short for ac { mode = "full" }; NULL: no short form */
    const PassEdge *before; /* passes that must come later; NULL: none */
    const PassEdge *after;  /* passes that must come earlier */
    bool always;            /* runs in plans that do not name it, too */
    bool reports;           /* runs for its errors after another pass has failed, too */
    bool is_data;           /* owns the data axes: a plan has one such pass */
    bool (*run)(struct Job *job);
    void (*print)(const PassConfig *pass, Str *out);                     /* as `check` says it */
    void (*shrink)(PassConfig *pass, Shrink *shrink);                    /* NULL: stays as it is */
    void (*warn_axes)(const Config *c, const PassConfig *pass, Diag *d); /* "not-applied", by the */
    void (*warn_options)(const Config *c, const PassConfig *pass, Diag *d); /* mesh or an option */
} PassSpec;

/* Defined by planner/passes/passes.c: front is handed the table by the linker. */
extern const PassSpec *const pass_specs[PASS_NAME_COUNT];

/* Rows of a table of options. `member` is a place in PassConfig that is named like the key. */
#define OPTION_AS(path_, kind_, member, least_, most_, words_, preset_, unit_, doc_)               \
    {                                                                                              \
        .field = {path_, FIELD_##kind_, offsetof(PassConfig, member), least_, most_, words_},      \
        .preset = (preset_), .doc = {                                                              \
            NULL,                                                                                  \
            unit_,                                                                                 \
            doc_                                                                                   \
        }                                                                                          \
    }
#define OPTION(kind_, member, least_, most_, preset_, unit_, doc_)                                 \
    OPTION_AS(#member, kind_, member, least_, most_, NULL, preset_, unit_, doc_)
#define OPTION_OPEN(kind_, member, least_, most_, words_, open_, unit_, doc_)                      \
    {                                                                                              \
        .field = {#member, FIELD_##kind_, offsetof(PassConfig, member), least_, most_, words_},    \
        .preset = NAN, .open = (open_), .doc = {                                                   \
            NULL,                                                                                  \
            unit_,                                                                                 \
            doc_                                                                                   \
        }                                                                                          \
    }
#define OPTION_FLAG(member, preset_, unit_, doc_)                                                  \
    OPTION_AS(#member, bool, member, 0, 1, NULL, preset_, unit_, doc_)
#define OPTION_WORD(member, words_, preset_, unit_, doc_)                                          \
    OPTION_AS(#member, word, member, 0, 0, words_, preset_, unit_, doc_)
#define OPTION_LIST(path_, kind_, member, named_, empty_, open_, unit_, doc_)                      \
    {                                                                                              \
        .field = {path_, FIELD_##kind_, offsetof(PassConfig, member), 0, 0, NULL}, .preset = NAN,  \
        .open = (open_), .doc = {NULL, unit_, doc_}, .named = (named_), .empty = (empty_)          \
    }
#define OPTION_END                                                                                 \
    {                                                                                              \
        .field = {.path = NULL }                                                                   \
    }
#define OPTION_WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif
