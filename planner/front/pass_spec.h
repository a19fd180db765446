/* A PassSpec describes one pass of `parallel = { tp {}, fsdp2 {} }`: its options, its place in the
 * order of passes, and the functions that run, print, shrink and check it. Each pass defines its
 * PassSpec in its file under planner/passes. Four loops over these constants read a plan, check the
 * order of passes, print them, and shrink them for --verify. */
#ifndef TANDEM_FRONT_PASS_SPEC_H
#define TANDEM_FRONT_PASS_SPEC_H

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "planner/front/keys/fields.h"

struct Job;

/* One option of a pass. */
typedef struct PassOption {
    /* path such as "tp.sequence"; type, range and offset in PassConfig */
    Field field;
    /* the default: a number, 0 or 1 for a bool, the index of a word. NAN: the default depends on
     * other values */
    double preset;
    const char *open; /* if preset is NAN: the default in words, for the documentation */
    /* unit and meaning; doc.key is NULL, because field.path is the key */
    FieldDoc doc;
    /* offset of a bool in PassConfig that is set to true if the user gave the list; 0: no such bool
     */
    size_t named;
    /* for a list: hint of the error about an empty list; NULL: an empty list is allowed */
    const char *empty;
} PassOption;

/* An order constraint: the pass `other` must run before (or after) this one. `why` names the wrong
 * result that the other order would silently give. */
typedef struct PassEdge {
    PassName other;
    const char *why; /* NULL ends the list */
} PassEdge;

/* In a plan that --verify shrank: the largest number of elements that share a float8 scale. */
enum { FLOAT8_SMALL_BLOCK = 2 };

/* The state while --verify makes a plan small. Each pass's function `shrink` changes its options
 * and sets the members below that it needs. */
typedef struct Shrink {
    Config *config;                /* its mesh axes are already small */
    uint32_t axis_was[AXIS_NAMES]; /* the sizes of the axes in the user's plan */
    /* [axis]: true if the axis must keep its present size, even above 16 ranks */
    bool stays[AXIS_NAMES];
    bool keeps_batch; /* true if the number of micro-batches must stay */
    /* true if the schedule needs at least as many micro-batches as pipeline ranks */
    bool fills_pipe;
    /* number of consecutive elements along tokens or features that share a float8 scale; 1: none do
     */
    uint32_t block;
} Shrink;

typedef struct PassSpec {
    const char *name;
    FieldDoc doc;
    const PassOption *options; /* the last row has a NULL path; NULL: the pass has no options */
    /* the option that a bare word sets: `ac "full"` is short for ac { mode = "full" }, with
     * short_key "mode". NULL: no short form */
    const char *short_key;
    const PassEdge *before; /* passes that must run after this one; NULL: none */
    const PassEdge *after;  /* passes that must run before this one; NULL: none */
    /* the pass changes the values that the model computes, as float8 does. To compare with a plan
     * on one rank, --verify runs the pass in that plan, too */
    bool of_model;
    bool always; /* the pass runs even if `parallel` does not list it */
    /* the pass runs even after another pass reported an error, so that the user sees its errors,
     * too */
    bool reports;
    /* a pass for data parallelism: ddp, fsdp2 or zero. A plan may have only one */
    bool is_data;
    /* if is_data: returns true if parameters are sharded while they are not in use; NULL: never */
    bool (*shards)(const PassConfig *pass);
    bool (*run)(struct Job *job);
    /* the setting with which a search adds the pass to a plan, such as "parallel.pp=1f1b". NULL:
     * "parallel.NAME=true" */
    const char *proposal;
    /* settings whose effect `sim --explain` predicts for a plan with this pass, ended by NULL;
     * NULL: none */
    const char *const *trials;
    /* prints the pass with its options, for `check`; NULL: print only its name */
    void (*print)(const PassConfig *pass, Str *out);
    /* changes the options to fit the small plan of --verify; NULL: no change is needed */
    void (*shrink)(PassConfig *pass, Shrink *shrink);
    /* report the warning "not-applied" for an axis of the mesh (an option) on which the pass has no
     * effect */
    void (*warn_axes)(const Config *c, const PassConfig *pass, Diag *d);
    void (*warn_options)(const Config *c, const PassConfig *pass, Diag *d);
} PassSpec;

/* Defined in planner/passes/passes.c, in the order of PassName. Only the linker connects the two
 * layers: files of planner/front must not include headers of planner/passes. */
extern const PassSpec *const pass_specs[PASS_NAME_COUNT];

/* Returns the pass with this name, or NULL if there is none. */
static inline const PassSpec *pass_spec_of(const char *name)
{
    for (uint32_t i = 0; i < PASS_NAME_COUNT; i++)
        if (strcmp(pass_specs[i]->name, name) == 0) return pass_specs[i];
    return NULL;
}

/* Appends the pass and its options to `out`, as `check` prints them. */
static inline void pass_print(const PassSpec *spec, const PassConfig *pass, Str *out)
{
    if (spec->print)
        spec->print(pass, out);
    else
        str_add(out, spec->name);
}

/* Macros for the rows of an option table. `member` is the member of PassConfig that the option
 * sets; the option's key is its name. */
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
