/* Everything that Tandem knows of one pass, in one constant: its options, its order constraints,
 * and how it is printed, shrunk, warned about and run. Each pass defines its own in its file under
 * planner/passes. Code that reads a plan, checks the order, prints or shrinks loops over these
 * constants. */
#ifndef TANDEM_FRONT_PASS_SPEC_H
#define TANDEM_FRONT_PASS_SPEC_H

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "planner/front/fields.h"

struct Job;

/* One option of a pass. */
typedef struct PassOption {
    Field field; /* offset in PassConfig; path: "tp.sequence" */
    /* the default: a number, 0 or 1 for a bool, or the index of a word; NAN: no default is
     * stored */
    double preset;
    const char *open;  /* the default in words, if preset is NAN */
    FieldDoc doc;      /* its unit and its meaning; without a key it documents the field itself */
    size_t named;      /* offset of a bool that records that a list was given; 0: there is none */
    const char *empty; /* hint for a list that is given but empty; NULL: it may be empty */
} PassOption;

/* A pass that must come before or after this one, and the silent bug that the other order
 * causes. */
typedef struct PassEdge {
    PassName other;
    const char *why; /* NULL ends a list */
} PassEdge;

/* The most numbers that share a scale in a plan made small for --verify. */
enum { FLOAT8_SMALL_BLOCK = 2 };

/* The plan that --verify makes smaller; each pass changes its own options. */
typedef struct Shrink {
    Config *config;                /* the config, whose axes are already shrunk */
    uint32_t axis_was[AXIS_NAMES]; /* before */
    bool stays[AXIS_NAMES];        /* an axis that is not shrunk further */
    bool keeps_batch;              /* the number of micro-batches stays */
    bool fills_pipe;               /* there must be enough micro-batches to fill the pipeline */
    uint32_t block;                /* tokens and features that share a scale; 1: none do */
} Shrink;

typedef struct PassSpec {
    const char *name;
    FieldDoc doc;
    const PassOption *options; /* ends with a NULL path; NULL: no options */
    const char *short_key;  /* `ac "full"` is short for ac { mode = "full" }; NULL: no short form */
    const PassEdge *before; /* passes that must come later; NULL: none */
    const PassEdge *after;  /* passes that must come earlier */
    bool of_model;          /* it changes the values that the model computes, so the comparison with
                             * one rank keeps it */
    bool always;            /* also runs in plans that do not name it */
    bool reports;           /* also runs after another pass has failed, to report its errors */
    bool is_data;           /* owns the data axes; a plan has exactly one such pass */
    /* a data pass: true if its units live in shards; NULL: they never do */
    bool (*shards)(const PassConfig *pass);
    bool (*run)(struct Job *job);
    /* the setting with which a search lists the pass, "parallel.pp=1f1b"; NULL: the pass as it is
     */
    const char *proposal;
    /* the settings that `sim --explain` tries where the pass is listed; ends with NULL; NULL: none
     */
    const char *const *trials;
    /* prints the pass for `check` */
    void (*print)(const PassConfig *pass, Str *out);
    /* NULL: --verify keeps the options as they are */
    void (*shrink)(PassConfig *pass, Shrink *shrink);
    void (*warn_axes)(const Config *c, const PassConfig *pass, Diag *d); /* "not-applied", by the */
    void (*warn_options)(const Config *c, const PassConfig *pass, Diag *d); /* mesh or an option */
} PassSpec;

/* Defined by planner/passes/passes.c. The linker joins them, so that front does not depend on
 * passes. */
extern const PassSpec *const pass_specs[PASS_NAME_COUNT];

/* The pass of that name; NULL: there is none. */
static inline const PassSpec *pass_spec_of(const char *name)
{
    for (uint32_t i = 0; i < PASS_NAME_COUNT; i++)
        if (strcmp(pass_specs[i]->name, name) == 0) return pass_specs[i];
    return NULL;
}

/* Rows of an option table. `member` is the field of PassConfig with the key's name. */
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
