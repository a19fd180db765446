/* Declarations for the child: the process that evaluates a script. Only the child's own files
 * include this. A malicious script may exhaust the child's budget and crash the child. It cannot
 * touch files outside its folder and the library, other processes, or the store. */
#ifndef TANDEM_FRONT_CHILD_H
#define TANDEM_FRONT_CHILD_H

#include <lauxlib.h>
#include <lua.h>
#include <signal.h>
#include <time.h>

#include "planner/front/front.h"
#include "planner/front/stream.h"

enum {
    CHILD_MOST_FILES = 64,
    CHILD_MOST_SETS = 64,
    CHILD_MOST_ABSENT = 32,
    CHILD_MOST_DEPTH = 16, /* how deep calls of require may nest */
    CHILD_MOST_SOURCE = 1 << 20,
    CHILD_MOST_LUA_BYTES = 256 << 20,
    CHILD_MOST_FIELDS = 20000,
    CHILD_MOST_NODES = 250000,
    CHILD_MOST_REPORTS = 64,
    CHILD_NO_PROCESS = 11, /* exit code: the script's process cannot fork */
    CHILD_NO_MEMORY = 12,  /* exit code: the system had no more memory, although the script was
                            * within its own limit */
    CHILD_MOST_PRINTED = 1 << 20 /* limit in bytes on standard error, for all calls of print
                                  * together */
};

typedef struct ScriptLoc {
    uint32_t source, line; /* source 0: none */
} ScriptLoc;

typedef struct Source {
    const char *name; /* name in messages, such as "plans/a.lua" or "models/llama.lua" */
    const char *text; /* NULL: no script, but a setting such as "--set mesh.tp=4" */
    size_t n;
    Hash128 hash;     /* hash of the text, set when the text is sent; zero: not sent yet */
    uint32_t n_lines; /* lines of the text; 0: not counted yet */
    bool shipped,
        /* shipped: the file is in the library folder. library: it is in the library's tandem/ or
         * dialects/, whose lines are never shown as the user's */
        library;
} Source;

/* A script that was required but not found. */
typedef struct Absent {
    const char *name;
    bool shipped; /* the search included the library, not only the script's folder */
} Absent;

/* The parent's answer after it has read the configuration. */
typedef struct Answer {
    int64_t batch, seq; /* sequences of a global micro-step; tokens of a sequence */
    int64_t channels, targets, height, width; /* sizes of fields; 0: tokens */
    uint32_t axis_size[AXIS_NAMES];
    uint32_t stages; /* stages of the pipeline: ranks times chunks */
    uint32_t microbatches;
    uint32_t multiple; /* the number of features of a shrunk model must be a multiple of this: tp if
                        * a tp plan may cut them */
    uint32_t block;    /* the sizes of all features must be multiples of it, for blocks that share
                        * a scale */
    uint32_t full_tp;  /* tp before the plan was shrunk */
    bool shrink;
    bool no_model; /* the parent has this model already: it is not traced again */
} Answer;

/* Free blocks of the interpreter's memory. */
enum { CHILD_POOL_STEP = 16, CHILD_MOST_POOLED = 512 };
typedef struct ChildPool {
    void *free[CHILD_MOST_POOLED / CHILD_POOL_STEP + 1]; /* [size / step]: the first free block */
    unsigned char *region; /* the memory of all blocks in the lists; NULL: none */
    size_t used;           /* bytes of the region that were ever in a block */
    bool mapped;           /* the region was asked for */
} ChildPool;

typedef struct Child {
    lua_State *L;
    Arena *arena;
    StreamWriter out;
    int fd, words;             /* pipe for records both ways; pipe for last words */
    const char *script, *code; /* code: NULL, or a text to evaluate instead of a file */
    const FrontOptions *options;
    int script_dir, library_dir; /* -1: not open */
    const char *library;         /* the library's path */
    int no_script_dir,
        no_library_dir; /* the errno of the failed open; 0: the folder was not wanted */
    double cpu_s;
    Source source[CHILD_MOST_FILES + CHILD_MOST_SETS + 1]; /* [0] none */
    uint32_t n_sources, n_files_sent, n_sources_sent, depth, n_fields, n_reports;
    /* files that the script required but that do not exist: if they exist later, the script may
     * read them */
    Absent absent[CHILD_MOST_ABSENT];
    uint32_t n_absent, n_absent_sent;
    struct {
        const char *path; /* flattened */
        uint32_t source;
    } set[CHILD_MOST_SETS];
    uint32_t n_sets;
    size_t memory;
    ChildPool pool;
    size_t printed;      /* bytes written by print so far */
    bool system_refused; /* the newest allocation failed, and not because of the limit */
    bool collected;   /* an allocation was just refused; Lua now collects garbage and tries again */
    uint32_t n_tight; /* number of consecutive collections that freed next to nothing */
    ScriptLoc memory_loc, stop_loc;
    ScriptLoc model_loc; /* the key `model` of the plan, while the model is traced */
    ScriptLoc set_loc;   /* the setting that is being applied; source 0: none */
    timer_t timer;
    volatile sig_atomic_t expired, fired, fired_before;
    bool failed; /* an error record has been written */
    struct Tracer *tracer;
    Answer answer;
    bool held;              /* the process answers many requests: child_serve.c */
    bool sweeps;            /* the script may return a sweep: child_sweep.c */
    int calls[SWEEP_CALLS]; /* Lua references to the sweep's functions; LUA_NOREF: not given */
    bool shares;            /* the script's model does not read the tables that settings change */
    /* For a held script. is_plain: the plan's tables have no metatables. kept_*: Lua references to
     * the plan and to its tables. n_held_sources: the number of sources that the script's own run
     * read. */
    bool is_plain;
    int kept_plan, kept_tables;
    uint32_t n_held_sources;
} Child;

/* ---- child_run.c */
_Noreturn void child_run(Child *c);
/* Expects the plan on top of the stack. Applies the settings, sends the configuration, and waits
 * for the parent's answer. */
void child_settle(Child *c);
void child_model(Child *c); /* after child_settle: sends the model if the parent asks for it */

/* ---- child_serve.c: a script that is held open */
void child_keep_plan(Child *c); /* remembers the plan on top of the stack in its present state */
_Noreturn void child_serve(Child *c);
/* Reads n bytes; false if the parent has closed the pipe. */
bool child_receive(int fd, void *to, size_t n);

/* ---- child_sweep.c: a script that returns a sweep */
/* Expects the script's value, made by sweep{} or plan{}, on top of the stack. Sends the content of
 * a sweep and keeps its functions. Of a plan it sends only the kind. */
void child_sweep(Child *c, const char *kind, ScriptLoc loc);
/* Answers calls of the sweep's functions until the parent closes the pipe. */
_Noreturn void child_serve_sweep(Child *c);

/* ---- child.c */
void child_open_errors(lua_State *L);
/* Sends the last records of one evaluation: the error of `status` on top of the stack, and the
 * files.
 */
bool child_finish(Child *c, int status);
/* A message handler for lua_pcall: turns any error into one of Tandem with a location. */
int child_on_error(lua_State *L);
Child *child_of(lua_State *L);
/* Returns the innermost line that is running; with `user`, the innermost line outside tandem/. If
 * no such line runs, returns the setting that is being applied. */
ScriptLoc child_loc(Child *c, bool user);
/* Returns the innermost running line of the plan's own scripts or, without one, the setting that is
 * being applied. */
ScriptLoc child_plan_loc(Child *c);
/* Raises "unreadable-text" unless text[n] is UTF-8 without control characters; `what` names the
 * text in the message. */
void child_check_text(Child *c, const char *what, const char *text, size_t n, ScriptLoc loc);
/* Raises a Lua error that becomes a diagnostic. hint: NULL or one line. */
_Noreturn void child_raise(lua_State *L, const char *rule, ScriptLoc loc, const char *hint,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Adds a new source and returns its number; raises an error when there are too many. */
uint32_t child_source(Child *c, const Source *source);
void child_put_loc(Child *c, ScriptLoc loc); /* appends file number and line to the open record */
void child_send_files(
    Child *c); /* Sends the names of new files; must be called before a record begins */
/* Sends the files from which the plan was made so far, with the hash of their content. A script
 * given as text is not listed. */
void child_send_sources(Child *c);
/* Records a file that cannot be read, so that the result is not reused after the file becomes
 * readable. */
void child_note_absent(Child *c, const char *name, bool shipped);
/* Writes a diagnostic as a record. An error makes the evaluation fail, but the script may continue
 * and report more errors. */
void child_write_error(Child *c, const char *rule, ScriptLoc loc, const char *text,
                       const char *hint, Severity severity);
/* Returns the text in the Lua list at `list` nearest to `word`; NULL if none is near. */
const char *child_nearest(lua_State *L, const char *word, int list);
/* Returns the text nearest to `word` as "did you mean 'x'?"; NULL if none is near. */
const char *child_near(lua_State *L, const char *word, int list);
/* Like child_near, but lists all texts if none is near. */
const char *child_near_or_all(lua_State *L, const char *word, int list);

/* ---- child_limits.c: processor time, memory */
void child_limit(Child *c);
void child_limit_again(Child *c); /* resets the limit on processor time for a new request */
/* Ends the process after an allocation failed. Blames the script if it has used half of its own
 * memory limit, otherwise the system. */
_Noreturn void child_out_of_memory(void *self);
void *child_allocate(void *self, void *at, size_t old, size_t size); /* a lua_Alloc */

/* ---- child_pool.c */
/* Gives `at` another size, as a lua_Alloc does, without limits. `old` is 0 if `at` is NULL. */
void *child_resize(ChildPool *pool, void *at, size_t old, size_t size);

/* ---- child_library.c: the functions that a script may call; child_pairs.c: pairs and next in a
 * fixed order */
void child_open_library(Child *c);
void child_open_pairs(lua_State *L);

/* ---- child_require.c */
void child_open_require(Child *c);
/* Returns the library's clusters with `word` in their name, as "dgx_h100, pcie_h100"; "" if there
 * are none. */
const char *child_clusters_with(Child *c, const char *word);
/* Loads the text of a file beneath `dir`, and leaves the compiled chunk on the stack. Files
 * elsewhere are refused. */
void child_load_file(Child *c, const char *path);
void child_load_text(Child *c, const Source *source);
/* Reads a data file from the script's folder; returns the number of its source. */
uint32_t child_read_beside(Child *c, const char *path, ScriptLoc loc);

/* Packs a location into a Lua integer, because core functions pass locations to each other as
 * integers. */
lua_Integer child_pack_loc(ScriptLoc loc);
ScriptLoc child_unpack_loc(const Child *c, lua_Integer packed);

/* ---- child_scan.c: the source line of a key in a table constructor */
typedef struct Spot {
    uint32_t source, line;
    size_t open; /* offset just behind the constructor's opening brace; 0: unknown */
} Spot;
/* Returns the constructor that is passed to `callee` in the call at `loc`. */
Spot scan_call(const Child *c, ScriptLoc loc, const char *callee);
/* Returns the constructor that is passed to the function called at `loc`, whatever its name.
 */
Spot scan_any_call(const Child *c, ScriptLoc loc);
/* Returns the line of `key =` in the table, and the constructor of its value if the value is a
 * table. */
Spot scan_key(const Child *c, Spot table, const char *key);
/* Does the same as scan_key for the index-th positional value. */
Spot scan_item(const Child *c, Spot table, lua_Integer index);

/* ---- child_set_parts.c: settings that replace a part of the plan on top of the stack */
void child_set_cluster(Child *c, const char *name);
void child_set_gpu(Child *c, ScriptLoc loc, const char *name);
void child_set_model(Child *c, const char *name);
/* cluster.device=h200: reports that a device is a table, and names the settings that exist. */
_Noreturn void child_refuse_device(Child *c, ScriptLoc loc, const char *name);

/* ---- child_words.c */
void child_open_words(Child *c);
/* Returns the word ("plan", "tp", "adamw", ...) whose call made this table, and the location of the
 * call; NULL for any other value. */
const char *child_kind(lua_State *L, int index, ScriptLoc *loc);

/* ---- child_plan.c, child_set.c */
/* Turns the plan table on top of the stack into records. */
void child_flatten(Child *c);
void child_default_cluster(Child *c);
void child_named_runtime(Child *c);
void child_runtime_defaults(
    Child *c); /* sets defaults of passes that depend on the runtime, after the settings */
/* Pushes the value of a setting as Lua type: 4, 3e-4, true, or a text. */
void child_push_value(lua_State *L, const char *value);
void child_apply_sets(Child *c); /* applies the settings to the plan table on top of the stack */
/* Returns the location where `--set` wrote this flattened path; source 0: it did not. */
ScriptLoc child_set_loc(Child *c, const char *path);

/* ---- child_report.c: core functions that report several mistakes at once */
void child_add_reports(lua_State *L); /* adds these functions to the table on top of the stack */
/* child_bounds.c: adds the bounds of models and of attributes to the table on top of the stack. */
void child_add_bounds(lua_State *L);

/* ---- child_schedule.c: the plan's own pipeline schedule. A schedule file is read before the
 * request for the numbers of ranks and micro-batches is sent to the parent. A schedule function is
 * called after the answer, because it needs these numbers. */
void child_schedule_file(Child *c); /* both expect the plan table on top of the stack */
void child_schedule_call(Child *c);

/* ---- child_trace.c: core functions for tandem/nn.lua */
void child_push_core(Child *c);
void child_ask(Child *c);   /* sends all records so far and waits for the Answer */
void child_trace(Child *c); /* builds and traces the model of the plan on top of the stack */

#endif
