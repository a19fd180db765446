/* A PassSpec holds all that Tandem knows of one pass. It has the options, the order constraints,
 * and the functions that print, shrink, check and run the pass. Each pass defines its PassSpec in
 * its file under planner/passes. Four kinds of code loop over these constants: to read a plan, to
 * check the order of passes, to print them, and to shrink them. */
#ifndef TANDEM_FRONT_PASS_SPEC_H
#define TANDEM_FRONT_PASS_SPEC_H

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "planner/front/keys/fields.h"

struct Job;

/* One option of a pass. */
typedef struct PassOption {
    /* field: the option's type and its offset in PassConfig; its path, for example "tp.sequence" */
    Field field;
    /* the default: a number, 0 or 1 for a bool, or the index of a word. NAN: no default
     * is stored */
    double preset;
    const char *open; /* the default in words, for documents; only if preset is NAN */
    /* unit and meaning of the option; if its key is NULL, field.path is the key */
    FieldDoc doc;
    /* offset of a bool in PassConfig that records that the user gave the list; 0: no such bool */
    size_t named;
    /* the hint of the error if the user gives an empty list; NULL: an empty list is allowed */
    const char *empty;
} PassOption;

/* Another pass that must come before or after this pass. `why` names the silent bug that the wrong
 * order causes. */
typedef struct PassEdge {
    PassName other;
    const char *why; /* a NULL ends the list of edges */
} PassEdge;

/* In a plan made small for --verify: the largest number of elements that share a scale. */
enum { FLOAT8_SMALL_BLOCK = 2 };

/* The plan while --verify makes it smaller. Each pass changes its own options. */
typedef struct Shrink {
    Config *config;                /* the configuration; its axes are already shrunk */
    uint32_t axis_was[AXIS_NAMES]; /* the sizes of the axes before they were shrunk */
    bool stays[AXIS_NAMES];        /* [axis]: true if the axis must not shrink further */
    bool keeps_batch;              /* true if the number of micro-batches must stay */
    /* true if the pipeline needs at least as many micro-batches as it has ranks */
    bool fills_pipe;
    /* number of tokens, and of features, that share a scale; 1: none do */
    uint32_t block;
} Shrink;

typedef struct PassSpec {
    const char *name;
    FieldDoc doc;
    const PassOption *options; /* the last row has a NULL path; NULL: the pass has no options */
    /* the option that the short form sets: `ac "full"` is short for ac { mode = "full" }. NULL: no
     * short form */
    const char *short_key;
    const PassEdge *before; /* passes that must run after this pass; NULL: none */
    const PassEdge *after;  /* passes that must run before this pass; NULL: none */
    /* the pass changes the values that the model computes. A comparison with one rank must
     * therefore run the pass there, too */
    bool of_model;
    bool always; /* the pass runs even in plans that do not list it */
    /* the pass runs even after another pass has failed, so that the user sees its errors, too */
    bool reports;
    /* a data pass (ddp, fsdp2, zero), which uses the data axes; a plan has at most one */
    bool is_data;
    /* for a pass with is_data: returns true if its units are sharded between their uses; NULL: they
     * never are */
    bool (*shards)(const PassConfig *pass);
    bool (*run)(struct Job *job);
    /* the setting with which a search adds the pass, such as "parallel.pp=1f1b". NULL:
     * "parallel.NAME=true" */
    const char *proposal;
    /* settings that `sim --explain` tries if the plan lists the pass. A NULL ends the list; NULL:
     * no list */
    const char *const *trials;
    /* prints the pass and its options for `check`; NULL: the pass's name is printed */
    void (*print)(const PassConfig *pass, Str *out);
    /* makes the options fit a small plan; NULL: --verify keeps the options */
    void (*shrink)(PassConfig *pass, Shrink *shrink);
    /* give the warning "not-applied" if an axis, or an option, has no effect */
    void (*warn_axes)(const Config *c, const PassConfig *pass, Diag *d);
    void (*warn_options)(const Config *c, const PassConfig *pass, Diag *d);
} PassSpec;

/* planner/passes/passes.c defines this array. Only the linker connects the two, so that files of
 * front need not include files of passes. */
extern const PassSpec *const pass_specs[PASS_NAME_COUNT];

/* Returns the pass with this name, or NULL if there is none. */
static inline const PassSpec *pass_spec_of(const char *name)
{
    for (uint32_t i = 0; i < PASS_NAME_COUNT; i++)
        if (strcmp(pass_specs[i]->name, name) == 0) return pass_specs[i];
    return NULL;
}

/* Prints a pass and its options for `check`. */
static inline void pass_print(const PassSpec *spec, const PassConfig *pass, Str *out)
{
    if (spec->print)
        spec->print(pass, out);
    else
        str_add(out, spec->name);
}

/* Macros for the rows of an option table. `member` is the field of PassConfig that the option sets;
 * the option's key has the same name. */
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
