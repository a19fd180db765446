/* Our side of a script's evaluation: what its files share; nobody else includes this. */
#ifndef TANDEM_FRONT_PARENT_H
#define TANDEM_FRONT_PARENT_H

#include "planner/front/front.h"
#include "planner/front/stream.h"

enum { MOST_RANKS = 131072 };

/* A value's place, by its path: "batch.micro". */
typedef struct Seen {
    const char *path;
    Loc loc;
} Seen;

/* A list of modules that a pass was given. */
typedef struct NamedList {
    const char *path, *key; /* "parallel.2.modules", "ac.modules" */
    const char *without;    /* what holds without the list */
    Loc loc;
} NamedList;

/* The configuration while its values arrive. */
typedef struct Draft {
    Config config;
    int64_t mesh[AXIS_NAMES]; /* as written: 0 absent, -1 whatever is left */
    uint32_t init;            /* 0 standard, 1 varied */
    const char *name;
    uint32_t n_errors_before;
    const Cluster *named; /* replaces the script's; NULL: none */
    uint32_t named_nodes; /* 0: what the mesh needs */
    bool unsure;          /* something that the mesh and the batch hang on is missing or wrong */
    LIST(Seen) seen;
    LIST(NamedList) lists;
    LIST(const char *) files; /* [0] none */
    Arena *arena;
    Diag *d;
} Draft;

Draft draft_new(Arena *arena, Diag *d);
PassConfig draft_pass_default(PassName name, Loc loc); /* a pass whose options nobody set */
/* Takes one record that carries a value of the plan. Mistakes are diagnostics; false only when the
 * record itself is damaged. */
bool draft_field(Draft *draft, RecordKind kind, Reader *r);
bool draft_file(Draft *draft, Reader *r);
bool draft_actions(Draft *draft, Reader *r);    /* of the next pipeline rank */
Loc draft_place(const Draft *draft, Reader *r); /* of a record */
/* Where a value was given; else where the table was that lacks it, up to the plan itself. */
Loc draft_loc(const Draft *draft, const char *path);
bool draft_has(const Draft *draft, const char *path);
/* Lists of modules that are empty: "empty-list". */
void draft_check_lists(Draft *draft);
/* Missing keys, ranges that hang together, the mesh and the batch; completes the configuration. */
bool draft_finish(Draft *draft);
/* A cluster named from outside takes the script's place, then settings of the command line change
 * it. How many nodes it has follows from the mesh unless it was said. */
void draft_take_named(Draft *draft);
void draft_check_network(Draft *draft); /* nodes that nothing links: "cluster-network" */
/* The product of the mesh's axes as written, but for `axis`; -1: of all. */
uint64_t draft_other_axes(const Draft *draft, int axis);
/* The same plan at the smallest size that keeps its structure. */
void draft_shrink(Draft *draft, bool sizes_follow);

/* The graph, record by record. */
typedef struct Rebuild {
    Graph *graph;
    const Draft *draft;
    Arena *arena;
    bool varied;
    uint32_t n_sites; /* places that draw random numbers */
} Rebuild;

/* False: the record is damaged. */
bool rebuild_record(Rebuild *b, RecordKind kind, Reader *r);
/* ModelInfo and what needs the whole graph. */
bool rebuild_finish(Rebuild *b, Diag *d);

#endif
