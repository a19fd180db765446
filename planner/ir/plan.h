/* A plan: the programs that the ranks run, one instruction after another. The simulator and the
 * executor both interpret it.
 *
 *   Program  the instructions and the buffers of a rank. Ranks that differ only in their place in
 *            the mesh share a program; such a set of ranks is called a role
 *   Instr    an instruction: an op (op.h) and the buffers that it reads and writes. For example, a
 *            matmul of layer 3, or the all_gather of that layer's weights
 *   Buffer   an interval of a rank's memory that contains one value
 *   Stream   a queue of instructions, like a CUDA stream (streams.h)
 *   Pc       the index of an instruction in Program.code
 *
 * All lists are flat arrays whose entries are named by 32-bit indices; index 0 means "none".
 *
 * How a program runs:
 * - Instructions on one stream run in order. An instruction starts when its predecessor on the
 *   stream and all instructions in its list `after` have finished. `after` contains only smaller
 *   pcs of the same program.
 * - A communication has a group of ranks and a number `match`. It starts when every rank of the
 *   group has reached the instruction with this `match`. It finishes on all of them together. For
 *   a send and its recv, the group is the sender and the receiver.
 * - Communications on one stream with the same non-zero `launch` form a launch group: they start
 *   together, as between ncclGroupStart and ncclGroupEnd. The stream's next instruction waits for
 *   all of them.
 * - Instructions on the compute stream with the same non-zero `fuse` follow each other and may run
 *   as one kernel. A buffer that only these instructions use then need not be written to memory.
 *   Two kinds of kernels exist. Either each instruction works row by row. Or the first is a matrix
 *   product or convolution, and each other one works on the elements of its result, or sums one
 *   of its operands. */
#ifndef TANDEM_IR_PLAN_H
#define TANDEM_IR_PLAN_H

#include <assert.h>

#include "planner/ir/graph.h"
#include "planner/ir/nccl.h"

/* indices of Program.code, Program.buffers and Plan.shapes; 0: none */
typedef uint32_t Pc, BufferId, ShapeId;
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

/* The purpose of a buffer's memory. A buffer never has the last category, `waiting`. That is a row
 * of memory reports only: the bytes of buffers that nobody needs any more, but which an unfinished
 * communication may still read when memory is fullest. `waiting` must stay the last one. */
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
    /* the launch group: communications on the stream with equal `launch` start together; 0: this
     * one starts by itself */
    uint32_t launch;
    /* a communication's group: all ranks that differ from this one only along these mesh axes.
     * Local instructions: 0 */
    AxisSet axes;
    /* send and recv: the other rank is `hop` places further along the axis `axes` (mesh_hop) */
    int32_t hop;
    /* identifies the communication: each rank of the group has one instruction with this value.
     * Local instructions: 0 */
    uint32_t match;
    uint32_t microbatch;
    Phase phase;
    Span args; /* range of Program.args: n_in inputs, then the outputs */
    uint8_t n_in;
    AttrsId attrs; /* index of Plan.graph.attrs */
    Span after;    /* range of Program.after: the instructions for which this one waits */
    /* the graph node that the instruction computes, or for which it moves data. 0: it serves the
     * whole step */
    NodeId origin;
    /* the unit (parameters in one flat buffer, graph.h) that it gathers, reduces or updates; 0:
     * none */
    UnitId unit;
    /* consecutive instructions on the compute stream with equal `fuse` are one kernel; 0: it is a
     * kernel by itself */
    uint32_t fuse;
} Instr;

/* An interval of memory that contains one value. A root buffer has an offset in the rank's arena,
 * the one allocation that holds all buffers. A view is an interval of a root, such as the weight wq
 * in the gathered flat buffer of its layer. When an instruction reads a buffer, an earlier
 * instruction has written it, or the previous step has (persistent). */
typedef struct Buffer {
    ShapeId shape; /* global dimensions of the value, and how ranks divide them (layout.h) */
    DType dtype;
    Category category;
    Space space;
    uint64_t bytes; /* size on a rank. It is the same on all ranks: the size of the largest part. */
    BufferId parent; /* for a view: the root that contains it; 0: this is a root */
    uint64_t offset; /* bytes from the start of the arena (root) or of the parent (view) */
    Pc first, last;  /* first and last instruction that uses the buffer or a view of it */
    /* The graph tensor whose value the buffer contains, such as an activation, a weight as ops use
     * it, or a gradient. 0 for flat buffers, which contain many tensors. */
    TensorId tensor;
    UnitId unit;         /* the unit whose weights, gradients or moments it contains; 0: none */
    uint32_t microbatch; /* the micro-batch of the value. Only messages and listings use it. */
    /* keeps its value from one step to the next: parameters, optimizer state, gradient
     * accumulators */
    bool persistent;
    /* not persistent, but its value is read after the step has ended (a gradient that is reduced
     * only once). So no other buffer may use its bytes after it. */
    bool result;
    bool packed; /* elements are in the order [parts, ...] in which OP_pack writes them */
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
    LIST(Instr) code; /* code[0] is unused */
    LIST(BufferId) args;
    LIST(Pc) after;
    LIST(Buffer) buffers; /* buffers[0] is unused */
    uint64_t bytes;       /* size of the device arena: the end of the root buffer that ends last */
    uint64_t host_bytes;
    /* Both are computed by the memory pass [device bytes]; 0: not known, as in a plan that was read
     * from text. `in_use`: the most bytes that are reserved for buffers at any moment. `alive`: the
     * most bytes of buffers between their first and their last use. `in_use` is larger while a
     * communication may still read a buffer after its last use. */
    uint64_t in_use, alive;
    /* True if a step with more micro-batches would have the same offsets. The memory pass sets
     * it. */
    bool repeats;
    Purpose purpose;
    uint32_t stage;
} Program;

/* The settings of the whole training step that a program needs to start and to report. */
typedef struct StepInfo {
    uint32_t n_microbatches; /* how many micro-batches a step has */
    Denominator denominator; /* what the loss is divided by */
    /* sequences in a step; sequences in a micro-batch, on all ranks together; tokens in a
     * sequence */
    int64_t global_batch, micro_batch, seq;
    double global_tokens; /* tokens in a step, including those whose label is ignored */
    /* microbatch_mean only: how many sequences form a group whose losses are averaged; otherwise
     * 0 */
    int64_t group;
    uint64_t seed;
} StepInfo;

typedef struct Plan {
    Arena *arena;
    Mesh mesh;
    Graph graph;
    LIST(Shape) shapes; /* each shape is stored once; shapes[0] is a scalar */
    Intern shapes_index;
    LIST(Program) programs; /* program 0 is a program like the others */
    uint32_t *program_of;   /* program_of[rank]: index of the rank's program */
    /* 1 + the largest Instr.match. Each match from 1 on belongs to one communication of one
     * group. */
    uint32_t n_match;
    StepInfo step;
    NcclSettings nccl; /* used only where communication goes through NCCL */
    /* If `run --verify` has made this plan by shrinking another one: the id of that plan; otherwise
     * zero. */
    Hash128 parent;
} Plan;

/* Returns the index of `shape` in plan->shapes. Adds the shape if it is new. */
ShapeId plan_shape(Plan *plan, const Shape *shape);
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
/* Returns the root that contains view `b`; `b` itself if it is a root. If `offset` is not NULL,
 * sets *offset to the place of `b` in the arena [bytes]. */
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

/* Returns the size of a communication as NCCL's bus bandwidth formulas count it. all_reduce: the
 * bytes of the buffer. all_gather: of the whole output. reduce_scatter: of the whole input.
 * all_to_all: of the whole buffer that one rank sends. Returns 0 for a local instruction. */
uint64_t plan_comm_bytes(const Plan *plan, const Program *p, const Instr *in);
/* plan_flops returns the FLOPs that an instruction costs one rank. plan_hbm_bytes, below, returns
 * the bytes that it reads from and writes to device memory: each input is read once, each output is
 * written once, and an output to which the instruction adds (+=) is also read. */
double plan_flops(const Plan *plan, const Program *p, const Instr *in);
/* Returns which fraction of its op's output rows an instruction computes, between 0 and 1. It is
 * below 1 in two cases. A convolution may be cut in two: one instruction computes the inner rows
 * while the halo is exchanged, another the border rows. The fraction is then that of the rank with
 * the most border rows. Experts have room for more tokens than they usually get (layout/rows.h).
 * The fraction is then the used part of the rooms if all experts are chosen equally often. */
double plan_rows_share(const Plan *plan, const Program *p, const Instr *in);
uint64_t plan_hbm_bytes(const Plan *plan, const Program *p, const Instr *in);
/* Like plan_hbm_bytes, but for an instruction of a fused kernel (Instr.fuse). A value that an
 * earlier instruction of the kernel has read or computed is not read again. A value that only this
 * kernel uses is never written. Buffer.first and Buffer.last must be set. */
uint64_t plan_kernel_bytes(const Plan *plan, const Program *p, const Instr *in);
/* Sets moved[i] to the bytes that argument i moves. The sum is plan_kernel_bytes if `part` is true,
 * otherwise plan_hbm_bytes. */
void plan_moved(const Plan *plan, const Program *p, const Instr *in, bool part,
                uint64_t moved[MAX_ARGS]);
/* Returns the end, in bytes from the start of the device arena, of the last buffer that a step
 * certainly writes. Memory beyond it may stay untouched: it contains only workspace, and buffers
 * that a fused kernel keeps in registers. Buffer.first and Buffer.last must be set. */
uint64_t plan_written_bytes(const Program *p);
/* True if `in` is the first instruction of a fused kernel, or a kernel by itself. */
bool plan_begins_kernel(const Program *p, const Instr *in);
/* plan_kernel returns the first instruction of the fused kernel that contains `in`; `in` itself if
 * it is not fused. plan_next_part returns the instruction after `in` in the same fused kernel; NULL
 * if `in` is the last or is not fused. */
const Instr *plan_kernel(const Program *p, const Instr *in);
const Instr *plan_next_part(const Program *p, const Instr *in);
/* Returns the argument whose rows a kernel that works row by row visits for `in`: the first output,
 * or input 0 if `in` sums over rows. */
static inline uint32_t plan_rows_arg(const Instr *in)
{
    return op_is_rowwise(in->op) ? in->n_in : 0;
}
/* True for the buffer of a ROLE_state tensor, such as the vectors of a spectral norm. */
static inline bool plan_is_state(const Plan *plan, const Buffer *b)
{
    return !b->parent && b->persistent && b->space == SPACE_device &&
           plan->graph.tensors.at[b->tensor].role == ROLE_state;
}
/* True if an input or output of `in` lies in host memory. */
bool plan_touches_host(const Program *p, const Instr *in);
/* Computes, for each index letter of the op's signature ("bsk,kn->bsn"), what `rank` has of this
 * index: size[l], how many; start[l], the first global index; valid[l], how many without padding.
 * *global gets the global sizes. Each pointer may be NULL. Returns false, without a message, if the
 * shapes do not fit the op: the verifier has already reported that. */
bool plan_bind(const Plan *plan, const Program *p, const Instr *in, Rank rank, Binding *global,
               int64_t size['z' + 1], int64_t start['z' + 1], int64_t valid['z' + 1]);
/* Sets second[l] to the global index of the local element size[l] / 2. Under a zigzag deal, where a
 * rank has two chunks of a sequence, that is the start of the second chunk. Otherwise it is
 * start[l] + size[l] / 2. `size`, `start` and `global` come from plan_bind. */
void plan_second(const Plan *plan, const Program *p, const Instr *in, Rank rank,
                 const Binding *global, const int64_t size['z' + 1], const int64_t start['z' + 1],
                 int64_t second['z' + 1]);

#endif
