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
    CHILD_MOST_DEPTH = 16, /* the greatest depth of nested calls of require */
    CHILD_MOST_SOURCE = 1 << 20,
    CHILD_MOST_LUA_BYTES = 256 << 20,
    CHILD_MOST_FIELDS = 20000,
    CHILD_MOST_NODES = 250000,
    CHILD_MOST_REPORTS = 64,
    CHILD_NO_PROCESS = 11, /* exit code: the process could not fork another process */
    /* exit code: the system had no more memory, although the script was within its own limit */
    CHILD_NO_MEMORY = 12,
    CHILD_MOST_PRINTED = 1 << 20 /* bytes that all calls of print together may write */
};

typedef struct ScriptLoc {
    uint32_t source, line; /* source: number of the file; 0: no location */
} ScriptLoc;

typedef struct Source {
    const char *name; /* name in messages, such as "plans/a.lua" or "models/llama.lua" */
    const char *text; /* NULL: the source is not a script but a setting such as "--set mesh.tp=4" */
    size_t n;
    Hash128 hash;     /* hash of the text; zero until the text has been sent */
    uint32_t n_lines; /* number of lines of the text; 0: not counted yet */
    /* shipped: the file is in the library's folder. library: it is in the subfolder tandem/ or
     * dialects/, whose lines are never shown as the user's */
    bool shipped, library;
} Source;

/* A script that was required but not found. */
typedef struct Absent {
    const char *name;
    bool shipped; /* true if the library was searched as well as the script's folder */
} Absent;

/* The parent's answer after it has read the configuration. */
typedef struct Answer {
    /* sequences in a micro-batch of all data ranks together; tokens of a sequence */
    int64_t batch, seq;
    /* sizes of a batch of fields; 0: the batch consists of tokens */
    int64_t channels, targets, height, width;
    uint32_t axis_size[AXIS_NAMES];
    uint32_t stages; /* stages of the pipeline: pipeline ranks times stages on each rank */
    uint32_t microbatches;
    /* each number of features of a shrunk model must be a multiple of this number. It is tp if a
     * plan of tp may split the features */
    uint32_t multiple;
    /* with blocks of numbers that share a scale: each number of features must be a multiple
     * of this */
    uint32_t block;
    uint32_t full_tp; /* size of tp before the plan was shrunk */
    bool shrink;
    /* the parent already has the graph of this model, so the child must not trace it again */
    bool no_model;
} Answer;

/* Freed blocks of the interpreter's memory, in lists by size. */
enum { CHILD_POOL_STEP = 16, CHILD_MOST_POOLED = 512 };
typedef struct ChildPool {
    /* [size / step]: the first free block of that size; each block points to the next */
    void *free[CHILD_MOST_POOLED / CHILD_POOL_STEP + 1];
    unsigned char *region; /* memory from which all blocks in the lists were cut; NULL: none */
    size_t used;           /* bytes at the start of the region that blocks have used so far */
    bool mapped;           /* the region was requested from the system, even if it was refused */
} ChildPool;

typedef struct Child {
    lua_State *L;
    Arena *arena;
    StreamWriter out;
    /* fd: pipe for records in both directions; words: pipe on which a dying process reports its
     * line */
    int fd, words;
    const char *script, *code; /* code: NULL, or a text to evaluate instead of a file */
    const FrontOptions *options;
    int script_dir, library_dir; /* folders of the script and of the library; -1: not open */
    const char *library;         /* path of the library's folder */
    /* errno of the failed attempt to open the folder of the script, and that of the library; 0: no
     * attempt failed */
    int no_script_dir, no_library_dir;
    double cpu_s;
    /* entry 0 is unused, because number 0 means "no source" */
    Source source[CHILD_MOST_FILES + CHILD_MOST_SETS + 1];
    uint32_t n_sources, n_files_sent, n_sources_sent, depth, n_fields, n_reports;
    /* files that scripts required but that did not exist. A result is not reused after one of them
     * was created */
    Absent absent[CHILD_MOST_ABSENT];
    uint32_t n_absent, n_absent_sent;
    struct {
        const char *path; /* path of the value in the plan, such as "batch.micro" */
        uint32_t source;
    } set[CHILD_MOST_SETS];
    uint32_t n_sets;
    size_t memory;
    ChildPool pool;
    size_t printed; /* bytes that print has written so far */
    bool flooded;   /* the script printed more than it may, so it is stopped */
    /* the newest allocation failed because the system had no memory, not because of the script's
     * limit */
    bool system_refused;
    /* an allocation was just refused, so Lua now collects garbage and then tries once more */
    bool collected;
    uint32_t n_tight; /* number of collections in a row that freed almost nothing */
    ScriptLoc memory_loc, stop_loc;
    ScriptLoc model_loc; /* location of the plan's key `model` while the model is traced */
    ScriptLoc set_loc;   /* the setting that is being applied now; source 0: none */
    timer_t timer;
    volatile sig_atomic_t expired, fired, fired_before;
    bool failed; /* an error record was sent */
    struct Tracer *tracer;
    Answer answer;
    bool held;   /* the process stays alive and answers many requests (child_serve.c) */
    bool sweeps; /* the script may return a sweep (child_sweep.c) */
    /* Lua references to the functions of the sweep; LUA_NOREF: the script gives no such function */
    int calls[SWEEP_CALLS];
    /* the functions of the model never read a table that settings change, so settings can share one
     * trace */
    bool shares;
    /* The next fields are for a script that is held open. is_plain: no table of the plan has a
     * metatable. kept_*: Lua references to the plan and to its tables. n_held_sources: the number
     * of files that were read when the script ran. */
    bool is_plain;
    int kept_plan, kept_tables;
    uint32_t n_held_sources;
} Child;

/* ---- child_run.c */
_Noreturn void child_run(Child *c);
/* Expects the plan on top of the stack. Applies the settings, sends the configuration to the
 * parent, and waits for its answer. */
void child_settle(Child *c);
/* Sends the model if the parent asked for it; call after child_settle. */
void child_model(Child *c);

/* ---- child_serve.c: a script that is held open */
/* Stores the content of the plan on top of the stack, for later requests. */
void child_keep_plan(Child *c);
_Noreturn void child_serve(Child *c);
/* Reads n bytes into `to`. Returns false if the parent has closed the pipe. */
bool child_receive(int fd, void *to, size_t n);

/* ---- child_sweep.c: a script that returns a sweep */
/* Expects the script's value on top of the stack, which sweep{} or plan{} made. For a sweep, sends
 * its content and keeps references to its functions. For a plan, sends only the word "plan". */
void child_sweep(Child *c, const char *kind, ScriptLoc loc);
/* Answers calls of the sweep's functions until the parent closes the pipe. */
_Noreturn void child_serve_sweep(Child *c);

/* ---- child.c */
void child_open_errors(lua_State *L);
/* Ends an evaluation, for which lua_pcall returned `status`. Sends the error on top of the stack,
 * if there is one, and the names of the files that were read. */
bool child_finish(Child *c, int status);
/* A message handler for lua_pcall: turns any error into one of Tandem with a location. */
int child_on_error(lua_State *L);
Child *child_of(lua_State *L);
/* Returns the innermost source line that is running. With `user`, skips lines of the library's
 * folder tandem/. If no such line runs, returns the setting that is being applied. */
ScriptLoc child_loc(Child *c, bool user);
/* Returns the innermost running line of the user's scripts. If none runs, returns the setting that
 * is being applied. */
ScriptLoc child_plan_loc(Child *c);
/* Raises "unreadable-text" if text [n bytes] is not UTF-8 or contains control characters. `what`
 * names the text in the message. */
void child_check_text(Child *c, const char *what, const char *text, size_t n, ScriptLoc loc);
/* Raises a Lua error that the user sees as a diagnostic of this rule. hint: one line, or NULL for
 * none. */
_Noreturn void child_raise(lua_State *L, const char *rule, ScriptLoc loc, const char *hint,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Adds a new source and returns its number; raises an error when there are too many. */
uint32_t child_source(Child *c, const Source *source);
/* Appends the location's file number and line to the record that is being written. */
void child_put_loc(Child *c, ScriptLoc loc);
/* Sends the names of new files. Call it only between records, because the names are records, too.
 */
void child_send_files(Child *c);
/* Sends the names and content hashes of all files from which the plan was made so far. A script
 * that was given as text has no file and is left out. */
void child_send_sources(Child *c);
/* Records that a file could not be read, so that no stored result is reused once the file can be
 * read. */
void child_note_absent(Child *c, const char *name, bool shipped);
/* Writes a diagnostic as a record. An error makes the evaluation fail in the end, but the script
 * may go on and report more errors. */
void child_write_error(Child *c, const char *rule, ScriptLoc loc, const char *text,
                       const char *hint, Severity severity);
/* Returns the text in the Lua list at index `list` whose spelling is nearest to `word`, or NULL if
 * none is near. */
const char *child_nearest(lua_State *L, const char *word, int list);
/* Returns a hint "did you mean 'x'?" with the text nearest to `word`, or NULL if none is near. */
const char *child_near(lua_State *L, const char *word, int list);
/* Like child_near, but if no text is near, the hint lists all texts. */
const char *child_near_or_all(lua_State *L, const char *word, int list);

/* ---- child_limits.c: processor time, memory */
void child_limit(Child *c);
void child_limit_again(Child *c); /* starts the limit on processor time anew for the next request */
/* Ends the script, even if it catches errors. The caller sets `flooded` first, for the report. */
_Noreturn void child_stop(Child *c);
/* Ends the process because an allocation failed. The message blames the script if it uses more than
 * half of its memory limit, otherwise the system. */
_Noreturn void child_out_of_memory(void *self);
/* Lua's allocator function (see lua_Alloc), with the script's memory limit */
void *child_allocate(void *self, void *at, size_t old, size_t size);

/* ---- child_pool.c */
/* Like a lua_Alloc, but without limits: changes the block at `at` from `old` to `size` bytes. `at`
 * may be NULL if `old` is 0. */
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
/* Reads a data file that lies in the script's folder. Returns the number of its source. */
uint32_t child_read_beside(Child *c, const char *path, ScriptLoc loc);

/* Packs a location into a Lua integer, because core functions pass locations to each other as
 * integers. */
lua_Integer child_pack_loc(ScriptLoc loc);
ScriptLoc child_unpack_loc(const Child *c, lua_Integer packed);

/* ---- child_scan.c: the source line of a key in a table constructor */
typedef struct Spot {
    uint32_t source, line;
    size_t open; /* offset just after the constructor's opening brace; 0: unknown */
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
/* Sets the defaults of passes that depend on the runtime. Call it after child_apply_sets. */
void child_runtime_defaults(Child *c);
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
