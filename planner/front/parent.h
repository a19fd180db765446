/* The parent's side of a script's evaluation. Only the files of planner/front include this. */
#ifndef TANDEM_FRONT_PARENT_H
#define TANDEM_FRONT_PARENT_H

#include <sys/types.h>

#include "planner/front/front.h"
#include "planner/front/stream.h"
#include "planner/front/texts.h"

enum { MOST_RANKS = 131072 };

/* The source location of one value of the plan. An example of `path`: "batch.micro". */
typedef struct Seen {
    const char *path;
    Loc loc;
    bool is_table;
} Seen;

/* An option of a pass whose value is a list of modules. */
typedef struct NamedList {
    const char *path, *key; /* path: "parallel.2.modules"; key: "ac.modules" */
    /* the hint of the error about an empty list (PassOption.empty) */
    const char *hint;
    Loc loc;
} NamedList;

/* An entry of runtime.attention: the attention kernel for one architecture. */
typedef struct ArchKernel {
    /* an architecture such as "Blackwell"; "1": all architectures that have no entry */
    const char *key;
    AttentionKernel kernel;
    Loc loc;
} ArchKernel;

/* The configuration while it is read. Values arrive one by one. */
typedef struct Draft {
    Config config;
    /* sizes as the script gives them; 0: no such axis, -1: as many ranks as remain */
    int64_t mesh[AXIS_NAMES];
    /* number of experts in each layer, from the model's configuration; 0: unknown */
    uint32_t experts;
    uint32_t init; /* initial values of parameters; 0: standard; 1: varied (see rebuild.c) */
    const char *name;
    uint32_t n_errors_before;
    /* the cluster that replaces the script's; NULL: the script's cluster stays */
    const Cluster *named;
    uint32_t named_nodes; /* number of nodes of `named`; 0: as many as the mesh needs */
    bool sets_gpu;        /* --set gpu= puts another GPU into the named cluster */
    bool unsure;          /* a value on which the mesh or the batch depends is missing or wrong */
    LIST(Seen) seen;
    LIST(NamedList) lists;
    LIST(ArchKernel) attention;
    /* runtime.attention is a table with kernels for several architectures */
    bool is_choice;
    LIST(const char *) files; /* entry 0 is unused, because number 0 means "no file" */
    /* owner of the texts, for a script that is held open; NULL: the script answers only once */
    KeptTexts *texts;
    Arena *arena;
    Diag *d;
} Draft;

Draft draft_new(Arena *arena, Diag *d);
/* Returns a copy of `text` that lives as long as the configuration. For a script that is held open,
 * equal texts give the same pointer, and the text lives as long as the script. */
const char *draft_kept(const Draft *draft, const char *text);
/* Returns a pass in which no option was set. */
PassConfig draft_pass_default(PassName name, Loc loc);
/* Reads one record with a value of the plan. Reports the user's mistakes as diagnostics. Returns
 * false only if the record itself is damaged. */
bool draft_field(Draft *draft, RecordKind kind, Reader *r);
bool draft_file(Draft *draft, Reader *r);
/* Reads the name and the hash of a script that was read. */
bool draft_source(Draft *draft, Reader *r);
/* Reads the list of actions of the next pipeline rank. */
bool draft_actions(Draft *draft, Reader *r);
/* Reads the location at the current position of a record. */
Loc draft_read_loc(const Draft *draft, Reader *r);
/* Returns the location where the script gave the value at `path`. If the script gave no such value,
 * returns the location of the innermost table around it. The outermost table is the plan. */
Loc draft_loc(const Draft *draft, const char *path);
bool draft_has(const Draft *draft, const char *path);
bool draft_has_table(const Draft *draft, const char *path);
/* Reports lists of modules that are empty, with the rule "empty-list". */
void draft_check_lists(Draft *draft);
/* True if the plan gives any of the sizes of a batch of fields. */
bool draft_has_fields(const Draft *draft);
/* Reports each missing size of a batch of fields. Sets the sequence length to the number of grid
 * points. */
void draft_check_fields(Draft *draft);
/* Checks that the device has the products of float8{}, and that the other dtypes fit them. */
void draft_check_float8(Draft *draft);
/* Completes the configuration: reports missing keys, checks values that depend on each other, and
 * computes the final sizes of mesh and batch. Returns false if an error was reported. */
bool draft_finish(Draft *draft);
/* Returns the name of the cluster that replaces the script's, as --cluster or the setting cluster=
 * gives it. Returns NULL if the script's cluster stays. */
const char *front_named_cluster(const FrontOptions *options);
/* Stores `named`, the cluster with this name, until draft_take_named uses it. */
void draft_name_cluster(Draft *draft, const FrontOptions *options, const Cluster *named);
/* Replaces the script's cluster by draft->named, and then applies the settings of the command line
 * to it. If the user gave no number of nodes, the mesh determines it. */
void draft_take_named(Draft *draft);
/* If runtime.attention is a table, chooses the attention kernel for the GPU of the
 * plan's cluster. */
void draft_choose_attention(Draft *draft);
/* Sets runtime.scatters_gradients, which depends on the passes. */
void draft_find_scattered(Config *c);
/* Reports a cluster of several nodes without a network, with the rule "cluster-network". */
void draft_check_network(Draft *draft);
/* Returns the product of the sizes of all axes except `axis`, as the script gives them. If `axis`
 * is -1, all axes count. */
uint64_t draft_other_axes(const Draft *draft, int axis);
/* Turns ranks of a pipeline stage into ranks of the axis ep (fold.c). Reports mistakes with the
 * rule "ep-fold". */
void draft_fold_experts(Draft *draft);
/* Makes the plan as small as possible without changing its structure. `sizes_follow`: the model
 * chooses sizes that fit the smaller mesh. */
void draft_shrink(Draft *draft, bool sizes_follow);

/* Builds the graph from the trace's records. */
typedef struct Rebuild {
    Graph *graph;
    const Draft *draft;
    Arena *arena;
    bool varied;
    uint32_t n_sites;       /* number of places in the model that draw random numbers */
    bool known;             /* the complete graph was found, so no record is needed */
    struct KeptTrace *kept; /* stores the graph for later requests; NULL: the graph is not stored */
} Rebuild;

/* Reads one record of the trace. Returns false if the record is damaged. */
bool rebuild_record(Rebuild *b, RecordKind kind, Reader *r);
/* Fills in ModelInfo and all facts that can be found only in the complete graph. Returns false if
 * an error was reported. */
bool rebuild_finish(Rebuild *b, Diag *d);

/* ---- the process that evaluates a script (front.c) */
typedef struct Traces Traces;
typedef struct Script {
    pid_t pid; /* id of the process; -1: there is none */
    /* fd: pipe for records; words: pipe for the last words of a dying process; -1: not open */
    int fd, words;
    Channel channel;
    double cpu_s;
    bool done; /* the last record of the request has arrived */
    /* graphs of a script that is held open; NULL: the script answers once and ends */
    Traces *traces;
    bool ended; /* a script that is held open has answered the request */
    int status; /* if `ended`: the exit status of the process that answered */
} Script;

/* Returns a script without a process. */
Script script_none(Traces *traces);
/* Ends the process, if there is one, and closes all pipes to it. */
void script_stop(void *self);
/* Sends a request to the process. If sending fails, script_listen reports the reason.
 */
void script_send(Script *s, StreamWriter *w);
/* once: the process answers once and ends. held: the process stays and waits for requests. sweeps:
 * the script may return a sweep, and the process waits for calls of the sweep's functions. */
typedef enum ScriptUse { SCRIPT_once, SCRIPT_held, SCRIPT_sweeps } ScriptUse;
bool script_start(Script *s, const char *path, const char *code, const FrontOptions *options,
                  ScriptUse use, Diag *d);
/* Reads an error that the process sent, and adds it to the diagnostics. */
bool script_error(Draft *draft, Reader *r);
/* Kills the process and waits for its end. Returns its exit status; if it was about to exit, the
 * kill does not change this status. */
int script_end(Script *s);
/* The seconds that the parent waits for a script, or for one of its calls. The limit is generous
 * because a busy machine may give the script only part of a processor. */
static inline double script_patience(const Script *s)
{
    return 20 + 4 * s->cpu_s;
}
/* Reports why a process ended without a last record. */
void script_explain_end(Script *s, Draft *draft, int status, StreamState state);
/* Reports that the process could not be started, or that no data could be sent to it. */
void script_unreachable(Draft *draft, int error);
/* Reads records until the request or the process ends. Returns true if all records were understood.
 */
bool script_listen(Script *s, Draft *draft, Rebuild *b, bool shrink);
bool front_sets_are_fine(const FrontOptions *options, Diag *d);
/* Reads a configuration that contains nothing but a cluster of the library. */
bool front_read_cluster(const char *name, uint32_t nodes, Arena *arena, Config *config, Diag *d);

/* ---- the models that a held script has traced (held.c) */
/* Returns true if the model was traced before under this configuration, and gives `b` its graph.
 * Otherwise returns false and, if `shares`, prepares `b` to build a graph that is kept for later
 * requests. */
bool traces_find(Traces *traces, const Draft *draft, bool shares, Rebuild *b);

#endif
