/* Declarations for the child: the forked process that evaluates the user's Lua script. It sends the
 * plan and then the model to its parent as records (stream.h). Only the files of this folder and
 * front.c include this header. A malicious script can use up the child's processor time and memory,
 * or crash the child. It cannot read or write files outside the script's folder and the library,
 * reach other processes, or open the store.
 *
 * Terms:
 * - library: the Lua scripts that come with Tandem (models, clusters, runtimes, tandem/nn.lua)
 * - setting: an option --set of the command line, such as --set mesh.tp=4
 * - held script: a script whose process runs it once and then answers many requests, each with
 *   other settings (child_serve.c)
 */
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
    uint32_t source, line; /* source: index in Child.source; 0: no location */
} ScriptLoc;

typedef struct Source {
    const char *name; /* name in messages, such as "plans/a.lua" or "models/llama.lua" */
    const char *text; /* NULL: the source is not a script but a setting such as "--set mesh.tp=4" */
    size_t n;
    Hash128 hash;     /* hash of the text; zero until the text has been sent */
    uint32_t n_lines; /* number of lines of the text; 0: not counted yet */
    /* shipped: a file of the library. library: a file of the library's subfolder tandem/ or
     * dialects/. Errors are never reported at such a line; they are reported at the line that
     * called it */
    bool shipped, library;
} Source;

/* A script that the user's script required, but that was not found. */
typedef struct Absent {
    const char *name;
    bool shipped; /* true if the library was searched as well as the script's folder */
} Absent;

/* Sizes that the child needs to build the model. The parent sends them after it has read and
 * checked the configuration. */
typedef struct Answer {
    /* batch: sequences in a micro-batch, summed over all data ranks. seq: tokens in a sequence */
    int64_t batch, seq;
    /* shape of a sample that is a field on a grid, such as a weather map: `channels` of the input,
     * `targets` (channels) of the target; 0: the samples are tokens */
    int64_t channels, targets, height, width;
    uint32_t axis_size[AXIS_NAMES];
    uint32_t stages; /* stages of the pipeline: pipeline ranks times stages on each rank */
    uint32_t microbatches;
    /* when --verify shrinks the model: each of its feature dimensions, such as the hidden size,
     * must be a multiple of this. It is the size of tp if the plan's own tp plan may split any of
     * them, otherwise 1 */
    uint32_t multiple;
    /* the same for float8 formats with block scales: the sizes must be multiples of this, so that a
     * block of elements with one scale never crosses ranks */
    uint32_t block;
    uint32_t full_tp; /* size of tp in the user's plan, before --verify reduced the mesh */
    /* --verify asks for a small model, which the model's function `shrink` returns */
    bool shrink;
    /* the parent already has this model's graph from an earlier request, so the child must not
     * trace the model again */
    bool no_model;
} Answer;

/* Freed blocks of the Lua interpreter's memory, in one list for each size class (child_pool.c). */
enum { CHILD_POOL_STEP = 16, CHILD_MOST_POOLED = 512 };
typedef struct ChildPool {
    /* [size / CHILD_POOL_STEP]: the first free block of that size class; each free block begins
     * with the address of the next one */
    void *free[CHILD_MOST_POOLED / CHILD_POOL_STEP + 1];
    unsigned char *region; /* the mmapped memory from which all pooled blocks are cut; NULL: none */
    size_t used;           /* bytes at the start of `region` that were ever handed out as blocks */
    /* the region was requested from the system once, even if the system refused */
    bool mapped;
} ChildPool;

typedef struct Child {
    lua_State *L;
    Arena *arena;
    StreamWriter out;
    /* fd: socket for records and requests in both directions. words: pipe on which a process that
     * the time limit kills writes the script's line */
    int fd, words;
    const char *script, *code; /* code: NULL, or a text to evaluate instead of a file */
    const FrontOptions *options;
    int script_dir, library_dir; /* folders of the script and of the library; -1: not open */
    const char *library;         /* path of the library's folder */
    /* errno of the failed open of script_dir and of library_dir; 0: the open did not fail */
    int no_script_dir, no_library_dir;
    double cpu_s;
    /* Sources by number, from 1 on: entry 0 is unused, because source 0 means "no location" */
    Source source[CHILD_MOST_FILES + CHILD_MOST_SETS + 1];
    uint32_t n_sources, n_files_sent, n_sources_sent, depth, n_fields, n_reports;
    /* Files that a script required, but that did not exist. A stored result depends on their
     * absence: once one of them exists, the result is not reused */
    Absent absent[CHILD_MOST_ABSENT];
    uint32_t n_absent, n_absent_sent;
    struct {
        const char *path; /* path of the value that the setting changed, such as "batch.micro" */
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
    /* number of garbage collections in a row, near the memory limit, that freed almost nothing */
    uint32_t n_tight;
    ScriptLoc memory_loc, stop_loc;
    ScriptLoc model_loc; /* line of the key `model` in plan{}, while the model is traced */
    /* the setting that is being applied now, the location of errors outside any script; source 0:
     * none */
    ScriptLoc set_loc;
    timer_t timer;
    volatile sig_atomic_t expired, fired, fired_before;
    bool failed; /* an error record was sent */
    struct Tracer *tracer;
    Answer answer;
    bool held;   /* the process stays alive and answers many requests (child_serve.c) */
    bool sweeps; /* the script may return a sweep (child_sweep.c) */
    /* Lua references to the functions of sweep{}; LUA_NOREF: the script has no such function */
    int calls[SWEEP_CALLS];
    /* no function of the model can read a table that settings change, so one trace serves all
     * requests that get the same Answer */
    bool shares;
    /* For a held script only. is_plain: no table of the plan has a metatable, so the tables can be
     * restored after each request. kept_plan, kept_tables: Lua references to the plan and to the
     * copies of its tables. n_held_sources: value of n_sources after the script's only run. */
    bool is_plain;
    int kept_plan, kept_tables;
    uint32_t n_held_sources;
} Child;

/* ---- child_run.c */
_Noreturn void child_run(Child *c);

/* ---- child_settle.c */
/* Expects the plan on top of the stack. Applies the settings, sends the configuration to the
 * parent, and receives c->answer. */
void child_settle(Child *c);
/* Traces the model and sends its graph; call it after child_settle, unless c->answer.no_model. */
void child_model(Child *c);

/* ---- child_serve.c: a held script */
/* For a held script: copies the content of the plan's tables, the plan being on top of the stack.
 * Each request changes these tables; afterwards they get this content back. */
void child_keep_plan(Child *c);
_Noreturn void child_serve(Child *c);
/* Reads n bytes into `to`. Returns false if the parent has closed the pipe. */
bool child_receive(int fd, void *to, size_t n);

/* ---- child_sweep.c: a script that returns a sweep */
/* Expects the script's return value, made by sweep{} or plan{}, on top of the stack; `kind` is
 * "sweep" or "plan". Sends the kind. For a sweep, also sends the keys and values of its table, and
 * keeps references to its functions in c->calls. */
void child_sweep(Child *c, const char *kind, ScriptLoc loc);
/* Answers the parent's calls of the sweep's functions until the parent closes the socket. */
_Noreturn void child_serve_sweep(Child *c);

/* ---- child_loc.c */
Child *child_of(lua_State *L);
/* Returns the innermost script line on the Lua call stack. With `user`, skips internal files of the
 * library (Source.library). If no such line runs, returns the setting that is being applied. */
ScriptLoc child_loc(Child *c, bool user);
/* Returns the innermost line of the user's own scripts on the Lua call stack; lines of the library
 * are skipped. If there is none, returns the setting that is being applied. */
ScriptLoc child_plan_loc(Child *c);

/* ---- child.c */
void child_open_errors(lua_State *L);
/* Ends an evaluation, for which lua_pcall returned `status`. Sends the error on top of the stack,
 * if `status` says that there is one, then the names of the files that were read, then RECORD_done.
 * Returns false if the parent has closed the socket. */
bool child_finish(Child *c, int status);
/* A message handler for lua_pcall: turns any Lua error, such as a call of nil, into Tandem's error
 * value with the script's line. */
int child_on_error(lua_State *L);
/* Raises "unreadable-text" if text [n bytes] is not UTF-8 or contains control characters. `what`
 * names the text in the message, such as "a module's path". */
void child_check_text(Child *c, const char *what, const char *text, size_t n, ScriptLoc loc);
/* Raises a Lua error that ends the script. The user sees it as a diagnostic with this rule id and
 * this formatted message. hint: one line, or NULL for none. */
_Noreturn void child_raise(lua_State *L, const char *rule, ScriptLoc loc, const char *hint,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Appends a copy of *source to Child.source and returns its index; raises "too-many-files" when the
 * list is full. */
uint32_t child_source(Child *c, const Source *source);
/* Appends the location (source index, line) to the record that is being written. */
void child_put_loc(Child *c, ScriptLoc loc);
/* Sends a RECORD_file for each source that the parent does not know yet. Call it only between
 * records. */
void child_send_files(Child *c);
/* Sends a RECORD_source with the name and content hash of each file that was read since the last
 * call, and of each absent file (with hash 0). Leaves out settings and a script that was given as
 * text. */
void child_send_sources(Child *c);
/* Adds a file that could not be read to Child.absent. A stored result is then not reused once the
 * file can be read. shipped: the library was searched, too. */
void child_note_absent(Child *c, const char *name, bool shipped);
/* Writes a diagnostic as a record. After an error, the evaluation fails in the end, but the script
 * goes on, so it can report more errors. */
void child_write_error(Child *c, const char *rule, ScriptLoc loc, const char *text,
                       const char *hint, Severity severity);
/* Returns the string in the Lua list at index `list` whose spelling is nearest to `word`, or NULL
 * if all are too different. */
const char *child_nearest(lua_State *L, const char *word, int list);
/* Returns the hint "did you mean 'x'?", where x is child_nearest, or NULL if all strings are too
 * different. */
const char *child_near(lua_State *L, const char *word, int list);
/* Like child_near, but if no string is near, the hint lists all strings of the list. */
const char *child_near_or_all(lua_State *L, const char *word, int list);

/* ---- child_limits.c: processor time, memory */
void child_limit(Child *c);
/* Starts the limit on processor time anew: each request of a held script gets the full time. */
void child_limit_again(Child *c);
/* Ends the script now: every further step raises an error, so pcall in the script cannot prevent
 * it. The caller first sets c->flooded, from which the report gets its reason. */
_Noreturn void child_stop(Child *c);
/* Ends the process because an allocation failed. If the process has grown by more than half of what
 * the memory limit allows, the exit blames the script (abort), otherwise the system
 * (CHILD_NO_MEMORY). */
_Noreturn void child_out_of_memory(void *self);
/* Lua's allocator function (see lua_Alloc), with the script's memory limit */
void *child_allocate(void *self, void *at, size_t old, size_t size);

/* ---- child_pool.c */
/* Like a lua_Alloc, but without limits: changes the block at `at` from `old` to `size` bytes. `at`
 * may be NULL if `old` is 0. */
void *child_resize(ChildPool *pool, void *at, size_t old, size_t size);

/* ---- child_library.c: replaces Lua's standard functions by safe ones. child_pairs.c: replaces
 * pairs and next by versions with a fixed order */
void child_open_library(Child *c);
void child_open_pairs(lua_State *L);

/* ---- child_require.c */
void child_open_require(Child *c);
/* Returns the names of the library's clusters that contain `word`, as "dgx_h100, pcie_h100"; "" if
 * there are none. */
const char *child_clusters_with(Child *c, const char *word);
/* Opens the script `path`, the one the user named on the command line, and leaves its compiled
 * chunk on the stack. Raises "script-open" with a hint if it cannot. */
void child_load_file(Child *c, const char *path);
void child_load_text(Child *c, const Source *source);
/* Reads the data file `path` of the script's folder, such as a CSV schedule, into a new source.
 * Returns the index of that source. Raises an error at `loc` if the path leads out of the folder.
 */
uint32_t child_read_beside(Child *c, const char *path, ScriptLoc loc);

/* Packs a location into one Lua integer: the library's Lua code passes locations around as
 * integers. */
lua_Integer child_pack_loc(ScriptLoc loc);
ScriptLoc child_unpack_loc(const Child *c, lua_Integer packed);

/* ---- child_scan.c: searches the text of a script for the line of a key. Lua knows only the line
 * of the call plan{ ... }, not the line of each key in the braces */
typedef struct Spot {
    uint32_t source, line;
    size_t open; /* offset just after the constructor's opening brace; 0: unknown */
} Spot;
/* Returns the braces in the call `callee { ... }` or `callee({ ... })` on the line `loc`. */
Spot scan_call(const Child *c, ScriptLoc loc, const char *callee);
/* Like scan_call, for any function's name. */
Spot scan_any_call(const Child *c, ScriptLoc loc);
/* Returns the line of `key = value` in the braces `table`. If the value is `{ ... }` or `word { ...
 * }`, also returns the position of its braces. */
Spot scan_key(const Child *c, Spot table, const char *key);
/* Like scan_key, for the index-th value without a key: index 2 of { tp {}, ac "full" } is ac. */
Spot scan_item(const Child *c, Spot table, lua_Integer index);

/* ---- child_set_parts.c: settings that replace a whole table of the plan on top of the stack, such
 * as cluster=dgx_h200 */
void child_set_cluster(Child *c, const char *name);
void child_set_gpu(Child *c, ScriptLoc loc, const char *name);
void child_set_model(Child *c, const char *name);
/* For cluster.device=h200: raises an error, because the device is a table. The hint names the
 * settings gpu= and cluster=. */
_Noreturn void child_refuse_device(Child *c, ScriptLoc loc, const char *name);

/* ---- child_words.c */
void child_open_words(Child *c);
/* Returns the global function ("plan", "tp", "adamw", ...) that made the table at `index`, and sets
 * *loc to the line of its call. Returns NULL for any other value. */
const char *child_kind(lua_State *L, int index, ScriptLoc *loc);

/* ---- child_plan.c, child_set.c */
/* Sends the plan table on top of the stack as records, one for each value: "batch.micro", 1, and so
 * on. */
void child_flatten(Child *c);
void child_default_cluster(Child *c);
void child_named_runtime(Child *c);
/* Sets options of passes whose default comes from the runtime's profile, such as tp's
 * keep_gathered. Call it after child_apply_sets. */
void child_runtime_defaults(Child *c);
/* Pushes the text of a setting as the Lua value it spells: an integer (4), a float (3e-4), a
 * boolean (true), otherwise a string. */
void child_push_value(lua_State *L, const char *value);
/* Applies all settings of the request to the plan table on top of the stack. */
void child_apply_sets(Child *c);
/* Returns the setting that gave the value at this path, such as "batch.micro"; source 0: no setting
 * did. */
ScriptLoc child_set_loc(Child *c, const char *path);

/* ---- child_report.c: functions with which library scripts report several errors at once */
void child_add_reports(lua_State *L); /* adds them to the table on top of the stack */
/* child_bounds.c: adds the limits that C code checks, such as the greatest number of experts, to
 * the table on top of the stack. Library scripts read them. */
void child_add_bounds(lua_State *L);

/* ---- child_schedule.c: the plan's own pipeline schedule, from a CSV file or a function of the
 * script. The file is read before the parent is asked. The function is called after c->answer has
 * arrived, because its arguments are the numbers of ranks and micro-batches. */
void child_schedule_file(Child *c); /* both functions expect the plan table on top of the stack */
void child_schedule_call(Child *c);

/* ---- child_trace.c: the C functions that tandem/nn.lua calls to build a graph */
void child_push_core(Child *c); /* pushes the table of these functions, tandem.core */
void child_trace(Child *c);     /* builds and traces the model of the plan on top of the stack */

#endif
