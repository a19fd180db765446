/* A plan: per-rank programs in flat arrays with 32-bit indices; 0 is none.
 *
 * The semantics in full: instructions on one stream run in order; one starts when its predecessor
 * on the stream and all those in `after` have finished; communications on one stream with the same
 * non-zero `launch` start together, and the next waits for all of them; a communication starts when
 * every member of its group has reached the same `match` (for send/recv: both ends, keyed sender,
 * receiver, match), and finishes for all together. `after` only names smaller pcs of the same
 * program. Instructions with the same non-zero `fuse` follow each other on the compute stream and
 * may run as one kernel: what only they touch need not reach memory. They go row by row; or the
 * first is a product, and the others go by its elements or sum one of its operands. */
#ifndef TANDEM_IR_PLAN_H
#define TANDEM_IR_PLAN_H

#include "planner/ir/graph.h"
#include "planner/ir/nccl.h"

typedef uint32_t Pc, BufferId, ShapeId; /* [0] is none in each list */
typedef struct Span {
    uint32_t first, n;
} Span;

/* The formatter would move one more of these to a line of its own each time it runs. */
/* clang-format off */
#define STREAMS(X)                                                                                 \
    X(none)                                                                                        \
    X(compute) X(tp) X(cp) X(domain) X(dp_gather) X(dp_reduce) X(dp_replicate) X(ep) X(pp_forward) \
    X(pp_backward) X(copy_in) X(copy_out) X(host)
/* clang-format on */
typedef enum Stream {
#define X(name) STREAM_##name,
    STREAMS(X)
#undef X
        STREAM_COUNT
} Stream;
const char *stream_name(Stream s);

#define PHASES(X) X(none) X(start) X(forward) X(recompute) X(backward) X(update)
typedef enum Phase {
#define X(name) PHASE_##name,
    PHASES(X)
#undef X
        PHASE_COUNT
} Phase;
const char *phase_name(Phase p);

/* clang-format off */
#define CATEGORIES(X)                                                                              \
    X(none)                                                                                        \
    X(parameter) X(gradient) X(optimizer) X(activation) X(gathered) X(communication) X(workspace)  \
    X(input) X(state)
/* clang-format on */
typedef enum Category {
#define X(name) CATEGORY_##name,
    CATEGORIES(X)
#undef X
        CATEGORY_COUNT
} Category;
const char *category_name(Category c);

typedef enum Space { SPACE_device, SPACE_host } Space;

typedef struct Instr {
    OpKind op;
    Stream stream;
    uint32_t launch; /* communications that start together; 0: alone */
    AxisSet axes;    /* group: my neighbours along these axes; 0 for local instructions */
    int32_t hop;     /* send/recv: the peer's distance along the (single) axis */
    uint32_t match;  /* rendezvous number; 0 for local instructions */
    uint32_t microbatch;
    Phase phase;
    Span args; /* in Program.args: n_in inputs, then outputs */
    uint8_t n_in;
    AttrsId attrs; /* in Plan.graph.attrs */
    Span after;    /* in Program.after */
    NodeId origin; /* graph node it carries out or serves; 0: the step itself */
    UnitId unit;   /* unit it gathers, reduces or updates; 0 */
    uint32_t fuse; /* neighbours on the compute stream with the same number are one kernel; 0 */
} Instr;

/* A buffer is a root with an offset in the arena, or a view into another buffer. What it holds when
 * first read was written by an instruction, or it is persistent (lives between steps). */
typedef struct Buffer {
    ShapeId shape; /* global dims, layout, deals of the value */
    DType dtype;
    Category category;
    Space space;
    uint64_t bytes;  /* local, of the largest part */
    BufferId parent; /* view: the root it lies in; 0: a root itself */
    uint64_t offset; /* root: bytes from the arena's start; view: bytes from the parent's start */
    Pc first, last;  /* first and last instruction that touches it or a view of it */
    TensorId tensor; /* what it holds (role param: weights in use or gradient of it); 0 for flats */
    UnitId unit;     /* the flat unit it holds or lies in; 0 */
    uint32_t microbatch; /* for people */
    bool persistent;     /* lives between steps: parameters, optimizer state, accumulators' home */
    bool result; /* transient, but what it holds at the end of a step is its result, which is looked
                  * at after: a gradient that is reduced once. Nobody takes its bytes over */
    bool packed; /* holds pack's order: [parts, ...]; see OP_pack */
} Buffer;

typedef enum Purpose { PURPOSE_train, PURPOSE_eval, PURPOSE_gather } Purpose;

typedef struct Program {
    LIST(Instr) code; /* [0] none */
    LIST(BufferId) args;
    LIST(Pc) after;
    LIST(Buffer) buffers; /* [0] none */
    uint64_t bytes;       /* device arena: the end of the highest root buffer */
    uint64_t host_bytes;
    Purpose purpose;
    uint32_t stage;
} Program;

/* What each program needs to start from and to report; buffers in every program have these tensors.
 */
typedef struct StepInfo {
    uint32_t n_microbatches; /* micro-steps a step */
    Denominator denominator; /* of the loss */
    int64_t global_batch, micro_batch,
        seq;              /* sequences a step; sequences a micro-step in ALL; tokens */
    double global_tokens; /* tokens a step, also those whose label is ignored */
    int64_t group;        /* microbatch_mean: sequences that are averaged alone; else 0 */
    uint64_t seed;
} StepInfo;

typedef struct Plan {
    Arena *arena;
    Mesh mesh;
    Graph graph;
    LIST(Shape) shapes; /* interned; [0] scalar */
    Intern shapes_index;
    LIST(Program) programs; /* from index 0 */
    uint32_t *program_of;   /* [n_ranks] */
    uint32_t n_match;       /* matches are 1..n_match-1... each used by exactly one group op */
    StepInfo step;
    NcclSettings nccl; /* for backends and networks that have NCCL */
    Hash128 parent;    /* id of the plan this one was re-lowered from (--verify); zero: none */
} Plan;

ShapeId plan_shape(Plan *plan, const Shape *shape); /* interns */
static inline const Shape *plan_shape_at(const Plan *plan, ShapeId id)
{
    return &plan->shapes.at[id];
}
static inline const Program *plan_program(const Plan *plan, Rank rank)
{
    return &plan->programs.at[plan->program_of[rank]];
}
static inline const Instr *program_instr(const Program *p, Pc pc)
{
    return &p->code.at[pc];
}
static inline BufferId program_arg(const Program *p, const Instr *in, uint32_t i)
{
    return p->args.at[in->args.first + i];
}
BufferId program_root(const Program *p, BufferId b,
                      uint64_t *offset); /* root and absolute offset */

/* Bytes that the collective of `in` moves, in NCCL's convention (all_reduce: the buffer;
 * all_gather: the full output; reduce_scatter: the full input; all_to_all: a rank's whole send
 * buffer). */
uint64_t plan_comm_bytes(const Plan *plan, const Program *p, const Instr *in);
/* Local FLOPs and HBM bytes (inputs read once, outputs written once, accumulated outputs read too).
 */
double plan_flops(const Plan *plan, const Program *p, const Instr *in);
uint64_t plan_hbm_bytes(const Plan *plan, const Program *p, const Instr *in);
/* ... as part of a kernel (Instr.fuse): what an earlier part has read or made is at hand, what only
 * the kernel's parts touch is never written. Needs Buffer.first and last. */
uint64_t plan_kernel_bytes(const Plan *plan, const Program *p, const Instr *in);
/* Where what is written in any case ends in the device's arena: scratch need not be filled, and
 * what only a kernel's parts touch need not be written. Needs Buffer.first and last. */
uint64_t plan_written_bytes(const Program *p);
bool plan_begins_kernel(const Program *p, const Instr *in); /* true as well where it is alone */
const Instr *plan_kernel(const Program *p,
                         const Instr *in); /* its first part; `in` where it is alone */
const Instr *plan_next_part(const Program *p, const Instr *in); /* NULL: it is the last */
/* Which argument's rows a part of a kernel walks: those of its first output, or of what it sums. */
static inline uint32_t plan_rows_arg(const Instr *in)
{
    return op_is_rowwise(in->op) ? in->n_in : 0;
}
/* Where a tensor of the state (ROLE_state) lives between steps. */
static inline bool plan_is_state(const Plan *plan, const Buffer *b)
{
    return !b->parent && b->persistent && b->space == SPACE_device &&
           plan->graph.tensors.at[b->tensor].role == ROLE_state;
}
/* Does an argument lie in host memory? */
bool plan_touches_host(const Program *p, const Instr *in);
/* Local sizes of each index letter of a compute instruction on `rank` (for kernels: starts and
 * valid counts too; any may be NULL). Reports nothing: a mismatch here is a bug, verify finds it
 * first. */
bool plan_bind(const Plan *plan, const Program *p, const Instr *in, Rank rank, Binding *global,
               int64_t size['z' + 1], int64_t start['z' + 1], int64_t valid['z' + 1]);
/* Global index of local element size/2 of each index: where a part is two chunks of equal size
 * (zigzag) the second one's first, else start + size/2. `size` and `start` as plan_bind gave them.
 */
void plan_second(const Plan *plan, const Program *p, const Instr *in, Rank rank,
                 const Binding *global, const int64_t size['z' + 1], const int64_t start['z' + 1],
                 int64_t second['z' + 1]);

#endif
