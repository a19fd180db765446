/* A plan: for each rank a program, stored in flat arrays. Entries are named by 32-bit indices; 0 is
 * none.
 *
 * How a program runs:
 * - Instructions on one stream run in order. An instruction starts when the one before it on the
 *   stream, and all instructions in `after`, have finished. `after` only names smaller pcs of the
 *   same program.
 * - Communications on one stream with the same non-zero `launch` start together, and the next
 *   instruction of the stream waits for all of them.
 * - A communication starts when every member of its group has reached the instruction with the same
 *   `match` (for send and recv: the sender and the receiver). It finishes for all members together.
 * - Instructions with the same non-zero `fuse` follow each other on the compute stream and may run
 *   as one kernel. Buffers that only these instructions use then need not be written to memory.
 *   Either all of them work row by row, or the first is a product. Then each other instruction
 *   works on the elements of the product's result, or sums an operand of the product. */
#ifndef TANDEM_IR_PLAN_H
#define TANDEM_IR_PLAN_H

#include <assert.h>

#include "planner/ir/graph.h"
#include "planner/ir/nccl.h"

typedef uint32_t Pc, BufferId, ShapeId; /* in each list, entry 0 stands for none */
typedef struct Span {
    uint32_t first, n;
} Span;

const char *stream_name(Stream s);

#define PHASES(X) X(none) X(start) X(forward) X(recompute) X(backward) X(update)
typedef enum Phase {
#define X(name) PHASE_##name,
    PHASES(X)
#undef X
        PHASE_COUNT
} Phase;
const char *phase_name(Phase p);

/* A buffer has one of the categories before `waiting`, which must stay the last one. `waiting` is
 * only a row of memory reports: the bytes of buffers that a communication may still read when
 * memory is fullest. */
/* clang-format off */
#define CATEGORIES(X)                                                                              \
    X(none)                                                                                        \
    X(parameter) X(gradient) X(optimizer) X(activation) X(gathered) X(communication) X(workspace)  \
    X(input) X(state) X(waiting)
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
    uint32_t launch; /* communications with the same number start together; 0: the communication
                        starts by itself */
    AxisSet axes;    /* the group consists of the ranks along these axes; 0 for local
                        instructions */
    int32_t hop;     /* for send and recv: the distance to the other rank along the single axis */
    uint32_t match;  /* number by which the members of a communication find each other; 0 for local
                        instructions */
    uint32_t microbatch;
    Phase phase;
    Span args; /* a range of Program.args: n_in inputs, then the outputs */
    uint8_t n_in;
    AttrsId attrs; /* an index of Plan.graph.attrs */
    Span after;    /* a range of Program.after */
    NodeId origin; /* the graph node that the instruction computes, or for which it moves data; 0:
                      the whole step */
    UnitId unit;   /* the unit that the instruction gathers, reduces or updates; 0: none */
    /* neighbours on the compute stream with equal numbers are one kernel; 0: alone */
    uint32_t fuse;
} Instr;

/* A buffer is either a root, with an offset in the arena, or a view of a part of a root. The first
 * instruction that reads a buffer finds the value that an earlier instruction wrote, or a value
 * that was kept between steps (persistent). */
typedef struct Buffer {
    ShapeId shape; /* the global dimensions, the layout and the deals of the value */
    DType dtype;
    Category category;
    Space space;
    uint64_t bytes;  /* bytes on one rank: the size of the largest part */
    BufferId parent; /* for a view: the root that contains it; 0: the buffer is a root */
    uint64_t offset; /* for a root: bytes from the start of the arena; for a view: bytes from the
                        start of the parent */
    Pc first, last;  /* the first and the last instruction that uses the buffer or a view of it */
    /* the tensor that it holds (role param: the weights in use, or their gradient); 0 for flat
     * buffers */
    TensorId tensor;
    UnitId unit;         /* the unit to whose flat buffer it belongs; 0: none */
    uint32_t microbatch; /* the micro-batch, only for people who read the plan */
    /* lives between steps: parameters, optimizer state, gradient accumulators */
    bool persistent;
    /* transient, but read after the step ends (a gradient that is reduced once), so no other buffer
     * reuses its bytes */
    bool result;
    bool packed; /* elements have the order in which OP_pack writes them: [parts, ...] */
} Buffer;

#define PURPOSES(X) X(train) X(eval) X(gather)
typedef enum Purpose {
#define X(name) PURPOSE_##name,
    PURPOSES(X)
#undef X
        PURPOSE_COUNT
} Purpose;
const char *purpose_name(Purpose p);

typedef struct Program {
    LIST(Instr) code; /* entry 0 is unused */
    LIST(BufferId) args;
    LIST(Pc) after;
    LIST(Buffer) buffers; /* entry 0 is unused */
    uint64_t bytes;       /* the size of the device arena: the end of the highest root buffer */
    uint64_t host_bytes;
    /* The memory pass computes both [device bytes]; 0: not known, as in a plan read from a text.
     * in_use: the most bytes that are reserved for buffers at one time. alive: the most bytes of
     * buffers that are between their first and last use. */
    uint64_t in_use, alive;
    /* set by the memory pass: more micro-batches would need no new offsets */
    bool repeats;
    Purpose purpose;
    uint32_t stage;
} Program;

/* The settings of a step that a program needs to start and to report. */
typedef struct StepInfo {
    uint32_t n_microbatches;                /* the number of micro-batches in a step */
    Denominator denominator;                /* the divisor of the loss */
    int64_t global_batch, micro_batch, seq; /* sequences in a step; sequences in a micro-batch on
                                               all ranks together; tokens in a sequence */
    double global_tokens; /* tokens in a step, including those whose label is ignored */
    int64_t group;        /* for microbatch_mean: the number of sequences that are averaged as one
                             group; otherwise 0 */
    uint64_t seed;
} StepInfo;

typedef struct Plan {
    Arena *arena;
    Mesh mesh;
    Graph graph;
    LIST(Shape) shapes; /* each shape is stored once; entry 0 is a scalar */
    Intern shapes_index;
    LIST(Program) programs; /* index 0 is a program, too */
    uint32_t *program_of;   /* [rank]: the index of its program */
    /* Matches have the numbers 1 to n_match - 1. Each is used by exactly one communication of one
     * group. */
    uint32_t n_match;
    StepInfo step;
    NcclSettings nccl; /* for backends and networks that have NCCL */
    /* if --verify made this plan from another plan: the id of that plan; zero: none */
    Hash128 parent;
} Plan;

ShapeId plan_shape(Plan *plan, const Shape *shape); /* returns the number under which the shape is
                                                       stored */
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
    assert(i < in->args.n);
    return p->args.at[in->args.first + i];
}
/* Returns the root that contains `b`. If `offset` is not NULL, sets it to the absolute offset of
 * `b`. */
static inline BufferId program_root(const Program *p, BufferId b, uint64_t *offset)
{
    uint64_t sum = 0;
    const Buffer *buffer = &p->buffers.at[b];
    for (; buffer->parent; buffer = &p->buffers.at[b]) {
        sum += buffer->offset;
        b = buffer->parent;
    }
    if (offset) *offset = sum + buffer->offset;
    return b;
}

/* Returns the bytes that a collective moves, as NCCL counts them. all_reduce: the bytes of the
 * buffer. all_gather: those of the whole output. reduce_scatter: those of the whole input.
 * all_to_all: those of the whole buffer that one rank sends. */
uint64_t plan_comm_bytes(const Plan *plan, const Program *p, const Instr *in);
/* plan_flops returns the FLOPs of an instruction on one rank. plan_hbm_bytes, below, returns the
 * bytes that it reads from and writes to device memory. Each input is read once, each output is
 * written once, and an output to which the instruction adds is also read. */
double plan_flops(const Plan *plan, const Program *p, const Instr *in);
/* Returns the fraction of an op's output rows that the instruction computes. It is below 1 for the
 * inner rows and for the border of a convolution. If ranks differ, it is the fraction of the rank
 * with the widest border. For uneven rows it is the fraction of the rooms (layout/rows.h) that
 * tokens take if all experts are chosen equally often. */
double plan_rows_share(const Plan *plan, const Program *p, const Instr *in);
uint64_t plan_hbm_bytes(const Plan *plan, const Program *p, const Instr *in);
/* Returns the bytes that an instruction of a fused kernel (Instr.fuse) reads and writes. A value
 * that an earlier instruction of the kernel has read or computed costs nothing. A value that only
 * this kernel uses is never written. Buffer.first and Buffer.last must be set. */
uint64_t plan_kernel_bytes(const Plan *plan, const Program *p, const Instr *in);
/* Computes the bytes that are moved for each argument, counted as by plan_kernel_bytes (part =
 * true) or by plan_hbm_bytes. */
void plan_moved(const Plan *plan, const Program *p, const Instr *in, bool part,
                uint64_t moved[MAX_ARGS]);
/* Returns the end, in bytes, of the highest buffer in the device arena that a step certainly
 * writes. Scratch memory and buffers that only one kernel uses do not count, because they may stay
 * unwritten. Buffer.first and Buffer.last must be set. */
uint64_t plan_written_bytes(const Program *p);
/* True if `in` is the first instruction of a kernel, or is not fused with others. */
bool plan_begins_kernel(const Program *p, const Instr *in);
/* Returns the first instruction of the kernel of `in`, which is `in` itself if it is not fused. */
const Instr *plan_kernel(const Program *p, const Instr *in);
const Instr *plan_next_part(const Program *p, const Instr *in); /* NULL: `in` is the last */
/* Returns the argument whose rows an instruction of a fused kernel visits: its first output, or the
 * input that it sums. */
static inline uint32_t plan_rows_arg(const Instr *in)
{
    return op_is_rowwise(in->op) ? in->n_in : 0;
}
/* True for a buffer that holds a ROLE_state tensor between steps. */
static inline bool plan_is_state(const Plan *plan, const Buffer *b)
{
    return !b->parent && b->persistent && b->space == SPACE_device &&
           plan->graph.tensors.at[b->tensor].role == ROLE_state;
}
/* True if an argument of `in` is in host memory. */
bool plan_touches_host(const Program *p, const Instr *in);
/* Writes the local size, the global start and the valid count of each index letter of a compute
 * instruction on `rank`. Each pointer may be NULL. Returns false, without a report, if the shapes
 * do not match: the verifier has reported mismatches before. */
bool plan_bind(const Plan *plan, const Program *p, const Instr *in, Rank rank, Binding *global,
               int64_t size['z' + 1], int64_t start['z' + 1], int64_t valid['z' + 1]);
/* Writes for each index the global index of local element size/2. If the part is two chunks of
 * equal size (zigzag), this is the start of the second chunk; otherwise it is start + size/2.
 * `size` and `start` come from plan_bind. */
void plan_second(const Plan *plan, const Program *p, const Instr *in, Rank rank,
                 const Binding *global, const int64_t size['z' + 1], const int64_t start['z' + 1],
                 int64_t second['z' + 1]);

#endif
