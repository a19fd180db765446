/* The parent's side of a script's evaluation: it reads the child's records (stream.h), checks them,
 * and builds a Config and a Graph. Only the files of planner/front include this header. "Held
 * script" means a script whose process answers many requests, each with other settings (held.c). */
#ifndef TANDEM_FRONT_PARENT_H
#define TANDEM_FRONT_PARENT_H

#include <sys/types.h>

#include "planner/front/front.h"
#include "planner/front/stream.h"
#include "planner/front/texts.h"

enum { MOST_RANKS = 131072 };

/* A value of the plan that has arrived. path: such as "batch.micro". loc: its script line. */
typedef struct Seen {
    const char *path;
    Loc loc;
    bool is_table;
} Seen;

/* An option of a pass whose value is a list of module patterns; an empty list may be an error. */
typedef struct NamedList {
    const char *path, *key; /* path: "parallel.2.modules"; key: "ac.modules" */
    /* hint of the error about an empty list; see PassOption.empty */
    const char *hint;
    Loc loc;
} NamedList;

/* An entry of runtime.attention = { "flash2", Blackwell = "cudnn" }: the attention kernel for one
 * GPU architecture. */
typedef struct ArchKernel {
    /* an architecture such as "Blackwell"; "1" (the first value without a key): all other
     * architectures */
    const char *key;
    AttentionKernel kernel;
    Loc loc;
} ArchKernel;

/* The configuration under construction, while the values of the plan arrive one by one. */
typedef struct Draft {
    Config config;
    /* sizes as the script gives them; 0: not given, -1: all devices that the other axes leave */
    int64_t mesh[AXIS_NAMES];
    /* experts in each layer, as model.config.experts says; 0: unknown */
    uint32_t experts;
    /* how parameters start. 0: as the model says; 1: varied, so that no gradient is 0 (rebuild.c)
     */
    uint32_t init;
    const char *name;
    uint32_t n_errors_before;
    /* the cluster of --cluster, which replaces the script's; NULL: the script's cluster stays */
    const Cluster *named;
    /* nodes of `named`, as the user gives them; 0: as many as the mesh needs */
    uint32_t named_nodes;
    bool sets_gpu; /* --set gpu= was given: its GPU replaces the one of `named` */
    /* a value of mesh, batch or cluster is missing or wrong, so checks that need it are skipped */
    bool unsure;
    LIST(Seen) seen;
    LIST(NamedList) lists;
    LIST(ArchKernel) attention;
    /* runtime.attention is a table (ArchKernel), not one word */
    bool is_choice;
    /* names by file index, from 1 on; entry 0 is unused, because file 0 means "no location" */
    LIST(const char *) files;
    /* for a held script: owner of texts that outlive a load; NULL: every text lives in `arena` */
    KeptTexts *texts;
    Arena *arena;
    Diag *d;
} Draft;

Draft draft_new(Arena *arena, Diag *d);
/* Returns a text that lives as long as the configuration and is equal to `text`. For a held script,
 * equal texts give the same pointer, so keys can compare pointers (planned.c). */
const char *draft_kept(const Draft *draft, const char *text);
/* Returns the PassConfig of pass `name` with the default of every option. */
PassConfig draft_pass_default(PassName name, Loc loc);
/* Reads a record with one value of the plan (its path, its location, the value) and stores it.
 * Reports the user's mistakes as diagnostics. Returns false only if the record itself is malformed.
 */
bool draft_field(Draft *draft, RecordKind kind, Reader *r);
bool draft_file(Draft *draft, Reader *r);
/* Reads a RECORD_source and appends it to config.scripts. */
bool draft_source(Draft *draft, Reader *r);
/* Reads a RECORD_actions: the list of actions of the next pipeline rank. */
bool draft_actions(Draft *draft, Reader *r);
/* Reads a location (file index and line) from the current position of a record. */
Loc draft_read_loc(const Draft *draft, Reader *r);
/* Returns the line where the script gave the value at `path`. If it gave none, returns the line of
 * the innermost enclosing table: for "mesh.tp", the line of `mesh`, else the line of plan{}. */
Loc draft_loc(const Draft *draft, const char *path);
bool draft_has(const Draft *draft, const char *path);
bool draft_has_table(const Draft *draft, const char *path);
/* Reports "empty-list" for each option in draft->lists that is an empty list. */
void draft_check_lists(Draft *draft);
/* True if the plan gives channels, height or width: the model reads fields on a grid, not tokens.
 */
bool draft_has_fields(const Draft *draft);
/* For a batch of fields: reports which of channels, height and width are missing. Sets config.seq
 * to the number of grid points, height x width. */
void draft_check_fields(Draft *draft);
/* For a plan with float8{}: checks that the device multiplies the format, and that
 * precision.compute is not f64. */
void draft_check_float8(Draft *draft);
/* Called when all values have arrived. Reports missing keys, checks values that depend on each
 * other, and computes the final sizes of mesh and batch. Returns false if an error was reported. */
bool draft_finish(Draft *draft);
/* Returns the name of the cluster that replaces the script's: that of --cluster, or of a later
 * --set cluster=. Returns NULL if there is no --cluster. */
const char *front_named_cluster(const FrontOptions *options);
/* Remembers `named`, the loaded cluster of --cluster, for draft_take_named. */
void draft_name_cluster(Draft *draft, const FrontOptions *options, const Cluster *named);
/* Replaces the script's cluster by draft->named, and applies settings such as --set cluster.nodes=2
 * to it. If the user gave no number of nodes, computes it from `ranks`, the product of the sizes of
 * all mesh axes. */
void draft_take_named(Draft *draft, uint64_t ranks);
/* Returns the product of the sizes of all mesh axes except `axis`, as the script gives them; with
 * axis -1, of all axes. A size of -1 counts as 1. */
uint64_t draft_other_axes(const Draft *draft, int axis);
/* Computes the sizes of all axes. Returns false if an error was reported. */
bool draft_check_mesh(Draft *draft);
/* If runtime.attention is a table, sets config.runtime.attention to its entry for the architecture
 * of the plan's GPU. */
void draft_choose_attention(Draft *draft);
/* Sets runtime.scatters_gradients from the options of fsdp2{} and zero{}. */
void draft_find_scattered(Config *c);
/* Reports "cluster-network" if the plan needs several nodes, but its cluster has no NICs. */
void draft_check_network(Draft *draft);
/* For a torus or dragonfly: checks that it has a place for each node, links with a rate, and
 * (dragonfly) enough links to reach every other group. Returns false after reporting an error. */
bool draft_check_topology(Draft *draft);
/* For ep_mode = "folded": computes config.ep_lent and the sizes of the data axes and ep (fold.h).
 * Reports "ep-fold" if mesh.ep does not fit. */
void draft_fold_experts(Draft *draft);
/* For --verify: reduces ranks, stages, micro-batches and the sequence length, while every pass
 * keeps something to do. sizes_follow: the model has a function `shrink`, which chooses sizes for
 * the smaller mesh. */
void draft_shrink(Draft *draft, bool sizes_follow);

/* State while the graph is rebuilt from the records of the child's trace. */
typedef struct Rebuild {
    Graph *graph;
    const Draft *draft;
    Arena *arena;
    bool varied;
    /* random draws in the model so far, such as dropout ops; each gets its own id */
    uint32_t n_sites;
    /* this model was traced before and its graph was found, so no records of the model follow */
    bool known;
    /* where to store the finished graph for later requests of a held script; NULL: nowhere */
    struct KeptTrace *kept;
} Rebuild;

/* Adds what one record of the trace describes (a module, a parameter, an op, ...) to the graph.
 * Returns false if the record is malformed. */
bool rebuild_record(Rebuild *b, RecordKind kind, Reader *r);
/* Called after the last record. Fills in ModelInfo and what only the complete graph tells. Returns
 * false if the graph has no loss. */
bool rebuild_finish(Rebuild *b, Diag *d);

/* ---- the models that a held script has traced (traces.c) */
/* The values that determine the graph of the script's model, together with KeptTrace.model.
 * Requests with equal values share one graph. */
typedef struct TraceKey {
    int64_t batch, seq, channels, targets, height, width, global_batch;
    int64_t group;
    DType compute, param, reduce;
    uint32_t init;
    Denominator denominator;
} TraceKey;

typedef struct KeptTrace {
    TraceKey key;
    const char *model; /* settings of the request that change model.config, one in each line */
    Graph graph;
    bool complete;
} KeptTrace;

typedef struct Traces {
    Arena *arena;
    LIST(KeptTrace *) list;
    KeptTexts texts; /* owns strings that appear in several configurations, such as file names */
    /* the present request's settings that change model.config, one in each line */
    const char *model;
} Traces;

/* If the model was traced before under equal values, sets *b->graph to its graph and returns true.
 * Otherwise returns false and, if `shares`, prepares `b` to store the graph for later requests.
 * shares: the trace depends only on these values (Child.shares). */
bool traces_find(Traces *traces, const Draft *draft, bool shares, Rebuild *b);
/* Stores the graph that `b` has just built, so that later requests can use it. */
void traces_keep(Traces *traces, Rebuild *b);

/* ---- the process that evaluates a script (script.c) */
typedef struct Script {
    pid_t pid; /* id of the process; -1: there is none */
    /* fd: socket for records and requests. words: pipe on which a dying process reports its line;
     * -1: not open */
    int fd, words;
    Channel channel;
    double cpu_s;
    bool done; /* RECORD_done, the last record of a request, has arrived */
    /* for a held script: the graphs that earlier requests traced; NULL: not held */
    Traces *traces;
    bool ended; /* RECORD_ended has arrived: the held script's process waits for the next request */
    int status; /* if `ended`: status, as from waitpid, of the fork that answered the request */
} Script;

/* Returns a Script whose process is not started. */
Script script_none(Traces *traces);
/* Kills the process `self`, a Script, if it runs, and closes the socket and the pipe. */
void script_stop(void *self);
/* Sends the request in `w` to the process. If that fails, script_listen reports the reason. */
void script_send(Script *s, StreamWriter *w);
/* once: the process sends one plan and ends. held: it waits for requests, each with settings.
 * sweeps: the script may return a sweep; the process then waits for calls of its functions. */
typedef enum ScriptUse { SCRIPT_once, SCRIPT_held, SCRIPT_sweeps } ScriptUse;
bool script_start(Script *s, const char *path, const char *code, const FrontOptions *options,
                  ScriptUse use, Diag *d);
/* Reads a RECORD_error and adds it to the diagnostics. */
bool script_error(Draft *draft, Reader *r);
/* Kills the process and waits for its end. Returns the status from waitpid. If the process was
 * exiting already, this is its own exit status, in spite of the kill. */
int script_end(Script *s);
/* Seconds that the parent waits for an answer. Much longer than the limit on processor time,
 * because a busy machine may give the script only a part of a processor. */
static inline double script_patience(const Script *s)
{
    return 20 + 4 * s->cpu_s;
}
/* Reports why a process ended without RECORD_done: its time limit, its memory limit, or a crash.
 * status: as from waitpid. */
void script_explain_end(Script *s, Draft *draft, int status, StreamState state);
/* Reports that the process could not be started or reached; error: an errno. */
void script_unreachable(Draft *draft, int error);
/* Reads records until the request is answered or the process ends, and hands them to `draft` and
 * `b`. Returns true if no error was reported. */
bool script_listen(Script *s, Draft *draft, Rebuild *b, bool shrink);

/* ---- front.c */
bool front_sets_are_fine(const FrontOptions *options, Diag *d);
/* Loads a library cluster through a tiny plan that contains nothing else. The result is in
 * config->cluster, and the scripts that define it are in config->scripts. */
bool front_read_cluster(const char *name, uint32_t nodes, Arena *arena, Config *config, Diag *d);

#endif
