/* Everything that Tandem knows of one pass, in one constant: its options, its order constraints,
 * and the functions that print, shrink, check and run it. Each pass defines its own in its file
 * under planner/passes. Code that reads a plan, checks the order, prints or shrinks loops over
 * these constants. */
#ifndef TANDEM_FRONT_PASS_SPEC_H
#define TANDEM_FRONT_PASS_SPEC_H

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "planner/front/keys/fields.h"

struct Job;

/* One option of a pass. */
typedef struct PassOption {
    Field field; /* offset in PassConfig; path: "tp.sequence" */
    /* the default: a number, 0 or 1 for a bool, or the index of a word; NAN: no default is
     * stored */
    double preset;
    const char *open; /* the default in words, if preset is NAN */
    FieldDoc doc;     /* unit and meaning of the option; key NULL: the key is the field's path */
    size_t named;     /* offset of a bool in PassConfig that is set if the list is given; 0: no such
                         bool */
    const char *empty; /* hint for a list that is given but empty; NULL: it may be empty */
} PassOption;

/* Another pass that must come before or after this pass. `why` names the silent bug that the wrong
 * order causes. */
typedef struct PassEdge {
    PassName other;
    const char *why; /* NULL ends a list */
} PassEdge;

/* The most numbers that share a scale in a plan made small for --verify. */
enum { FLOAT8_SMALL_BLOCK = 2 };

/* The plan that --verify makes smaller; each pass changes its own options. */
typedef struct Shrink {
    Config *config;                /* the config, whose axes are already shrunk */
    uint32_t axis_was[AXIS_NAMES]; /* the sizes before */
    bool stays[AXIS_NAMES];        /* [axis]: it must not shrink further */
    bool keeps_batch;              /* the number of micro-batches stays */
    bool fills_pipe;               /* the plan needs enough micro-batches to fill the pipeline */
    uint32_t block;                /* tokens and features that share a scale; 1: none do */
} Shrink;

typedef struct PassSpec {
    const char *name;
    FieldDoc doc;
    const PassOption *options; /* ends with a NULL path; NULL: no options */
    const char *short_key;  /* `ac "full"` is short for ac { mode = "full" }; NULL: no short form */
    const PassEdge *before; /* passes that must come later; NULL: none */
    const PassEdge *after;  /* passes that must come earlier */
    bool of_model; /* the pass changes the values that the model computes, so the one-rank plan of a
                      comparison has it, too */
    bool always;   /* also runs in plans that do not name it */
    bool reports;  /* also runs after another pass has failed, to report its errors */
    bool is_data;  /* owns the data axes; a plan has exactly one such pass */
    /* for a data pass: returns true if its units are sharded between uses; NULL: they never are */
    bool (*shards)(const PassConfig *pass);
    bool (*run)(struct Job *job);
    /* the setting by which a search adds the pass, such as "parallel.pp=1f1b"; NULL: without
     * options
     */
    const char *proposal;
    /* the settings that `sim --explain` tries if the plan lists the pass; ends with NULL; NULL:
     * none
     */
    const char *const *trials;
    /* prints the pass for `check` */
    void (*print)(const PassConfig *pass, Str *out);
    /* NULL: --verify keeps the options as they are */
    void (*shrink)(PassConfig *pass, Shrink *shrink);
    void (*warn_axes)(const Config *c, const PassConfig *pass,
                      Diag *d); /* warns "not-applied": an axis has no effect */
    void (*warn_options)(const Config *c, const PassConfig *pass,
                         Diag *d); /* warns "not-applied": an option has no effect */
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

/* Rows of an option table. `member` is the field of PassConfig whose name is the key. */
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
