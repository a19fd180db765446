/* The parent's side of a script's evaluation. Only the files of planner/front include this. */
#ifndef TANDEM_FRONT_PARENT_H
#define TANDEM_FRONT_PARENT_H

#include <sys/types.h>

#include "planner/front/front.h"
#include "planner/front/stream.h"
#include "planner/front/texts.h"

enum { MOST_RANKS = 131072 };

/* The source location of a value, by its path such as "batch.micro". */
typedef struct Seen {
    const char *path;
    Loc loc;
    bool is_table;
} Seen;

/* A list of modules that the plan gives as an option of a pass. */
typedef struct NamedList {
    const char *path, *key; /* "parallel.2.modules", "ac.modules" */
    const char *without;    /* the behaviour if the list is left out */
    Loc loc;
} NamedList;

/* The kernel of attention for one architecture. */
typedef struct ArchKernel {
    const char *key; /* "Blackwell"; "1": all architectures that the table does not name */
    AttentionKernel kernel;
    Loc loc;
} ArchKernel;

/* The configuration while its values arrive. */
typedef struct Draft {
    Config config;
    int64_t mesh[AXIS_NAMES]; /* sizes as written: 0: absent, -1: as many as remain */
    uint32_t experts; /* experts of each layer, from the model's configuration; 0: unknown */
    uint32_t init;    /* 0: standard; 1: varied */
    const char *name;
    uint32_t n_errors_before;
    const Cluster *named; /* a cluster that replaces the script's; NULL: none */
    uint32_t named_nodes; /* 0: as many as the mesh needs */
    bool sets_gpu;        /* --set gpu= gives the named cluster another device */
    bool unsure;          /* a value on which the mesh or the batch depends is missing or wrong */
    LIST(Seen) seen;
    LIST(NamedList) lists;
    LIST(ArchKernel) attention;
    bool is_choice;           /* runtime.attention is a table */
    LIST(const char *) files; /* [0] none */
    KeptTexts *texts;         /* of a script that is held open; NULL: the script answers once */
    Arena *arena;
    Diag *d;
} Draft;

Draft draft_new(Arena *arena, Diag *d);
/* Returns `text`, a text that the configuration keeps. For a script that is held open, returns the
 * only copy of this text, which lives as long as the script. */
const char *draft_kept(const Draft *draft, const char *text);
PassConfig draft_pass_default(PassName name, Loc loc); /* a pass whose options are all unset */
/* Reads one record with a value of the plan. Reports the user's mistakes as diagnostics. Returns
 * false only if the record itself is damaged. */
bool draft_field(Draft *draft, RecordKind kind, Reader *r);
bool draft_file(Draft *draft, Reader *r);
bool draft_source(Draft *draft, Reader *r);        /* the hash of a script that was read */
bool draft_actions(Draft *draft, Reader *r);       /* the actions of the next pipeline rank */
Loc draft_read_loc(const Draft *draft, Reader *r); /* reads a record's location */
/* Returns the location where the script gave a value. If it gave none, returns the location of the
 * innermost table around it; the outermost table is the plan. */
Loc draft_loc(const Draft *draft, const char *path);
bool draft_has(const Draft *draft, const char *path);
bool draft_has_table(const Draft *draft, const char *path);
/* Reports empty lists of modules: "empty-list". */
void draft_check_lists(Draft *draft);
/* True if the plan names a size of a batch of fields. */
bool draft_has_fields(const Draft *draft);
/* Reports each missing size of a batch of fields. Sets the sequence length to the number of grid
 * points. */
void draft_check_fields(Draft *draft);
/* Checks that the device has the products of float8{}, and that the other dtypes fit them. */
void draft_check_float8(Draft *draft);
/* Reports missing keys, checks ranges that depend on each other, resolves mesh and batch, and
 * completes the configuration. */
bool draft_finish(Draft *draft);
/* Returns the name of the cluster that replaces the script's: --cluster, or the setting cluster=,
 * which follows it; NULL: the script's cluster stays. */
const char *front_named_cluster(const FrontOptions *options);
/* Keeps `named`, the cluster of that name, for draft_take_named. */
void draft_name_cluster(Draft *draft, const FrontOptions *options, const Cluster *named);
/* Replaces the script's cluster by draft->named, then applies the command line's settings. If no
 * number of nodes was given, it follows from the mesh. */
void draft_take_named(Draft *draft);
/* Chooses the kernel of attention for the plan's cluster, if runtime.attention is a table. */
void draft_choose_attention(Draft *draft);
void draft_find_scattered(Config *c);   /* sets runtime.scatters_gradients from the passes */
void draft_check_network(Draft *draft); /* reports nodes without a network: "cluster-network" */
/* Returns the product of the mesh's axes as written, except `axis`; -1 includes all. */
uint64_t draft_other_axes(const Draft *draft, int axis);
/* Carves the ranks of ep out of the ranks of a stage (fold.c). Reports "ep-fold". */
void draft_fold_experts(Draft *draft);
/* Makes the plan as small as possible while keeping its structure. */
void draft_shrink(Draft *draft, bool sizes_follow);

/* Builds the graph from the trace's records. */
typedef struct Rebuild {
    Graph *graph;
    const Draft *draft;
    Arena *arena;
    bool varied;
    uint32_t n_sites;       /* sites in the model that draw random numbers */
    bool known;             /* the graph existed already, complete */
    struct KeptTrace *kept; /* the graph is kept for later requests; NULL: it is not */
} Rebuild;

/* Returns false if the record is damaged. */
bool rebuild_record(Rebuild *b, RecordKind kind, Reader *r);
/* Fills in ModelInfo and the facts that need the whole graph. */
bool rebuild_finish(Rebuild *b, Diag *d);

/* ---- the process that evaluates a script (front.c) */
typedef struct Traces Traces;
typedef struct Script {
    pid_t pid;     /* -1: there is none */
    int fd, words; /* -1: not open */
    Channel channel;
    double cpu_s;
    bool done;      /* the last record of a request has come */
    Traces *traces; /* traces of a script that is held open; NULL: the script answers once and ends
                     */
    bool ended;     /* a script that is held open has ended the request */
    int status;     /* if `ended`: the exit status of the process that answered */
} Script;

/* Returns a script without a process. */
Script script_none(Traces *traces);
/* Ends the process, if there is one, and closes all pipes to it. */
void script_stop(void *self);
/* Sends a request to the process. If sending fails, script_listen reports the reason.
 */
void script_send(Script *s, StreamWriter *w);
/* once: the process answers once and ends. held: it waits for requests. sweeps: the script may
 * return a sweep, and the process waits for calls of the sweep's functions. */
typedef enum ScriptUse { SCRIPT_once, SCRIPT_held, SCRIPT_sweeps } ScriptUse;
bool script_start(Script *s, const char *path, const char *code, const FrontOptions *options,
                  ScriptUse use, Diag *d);
/* Reports an error record of the process. */
bool script_error(Draft *draft, Reader *r);
/* Ends a process that has exited or whose records cannot be understood. `kills`: kills it first.
 * Returns its exit status. */
int script_end(Script *s, bool kills);
/* The seconds that the parent waits for a script, or for one of its calls. The limit is generous
 * because a busy machine may give the script only part of a processor. */
static inline double script_patience(const Script *s)
{
    return 20 + 4 * s->cpu_s;
}
/* Explains a process that ended without a last record. */
void script_explain_end(Script *s, Draft *draft, int status, StreamState state);
/* Reports that starting or reaching the process failed with this errno. */
void script_unreachable(Draft *draft, int error);
/* Reads records until the request or the process ends. Returns true if all records were understood.
 */
bool script_listen(Script *s, Draft *draft, Rebuild *b, bool shrink);
bool front_sets_are_fine(const FrontOptions *options, Diag *d);
/* Reads a configuration that contains only a cluster of the library. */
bool front_read_cluster(const char *name, uint32_t nodes, Arena *arena, Config *config, Diag *d);

/* ---- the models that a held script has traced (held.c) */
/* Returns true if the model was traced before under this configuration, and gives `b` its graph.
 * Otherwise returns false and, if `shares`, prepares `b` to build a graph that is kept for later
 * requests. */
bool traces_find(Traces *traces, const Draft *draft, bool shares, Rebuild *b);

#endif
