/* Abstract values (verify.h): the memory that holds them, and what each kind of instruction does to
 * them. run.c walks over each program and calls, for each instruction, one of the functions below
 * that take a pc. Such a function reads the values of the instruction's inputs, compares them with
 * what the graph demands, reports differences, and writes the values of its outputs.
 *   value.c    reads and writes values in the map of byte ranges
 *   whole.c    the same for buffers that are only accessed as a whole
 *   hash.c     hashes of expressions
 *   graph.c    values of the tensors of the global graph
 *   op.c       computations of the graph
 *   move.c     copies and communication of data
 *   kernel.c, product.c  instructions that run as one kernel
 *   segments.c fused projections
 *   nest.c     parts of parts, and parts that moved to another rank
 *   ring.c     attention with a part of the keys
 *   rows.c     convolutions in parts
 *   halo.c     rows of neighbours, and the rows that windows read
 *   strides.c  contiguous rows exchanged for strided rows
 *   uneven.c   rows of experts and their counts
 *   tiles.c    regions in pieces along the tokens
 *   range.c    one parameter of a flat buffer, and its 8-bit form
 *   state.c    state between steps other than parameters */
#ifndef TANDEM_VERIFY_VALUE_H
#define TANDEM_VERIFY_VALUE_H

#include "planner/verify/private.h"

/* ---- nest.c ---- */
/* True if layout `cut` divides each rank's range of dimension d in layout `whole` into equal parts
 * over `axes`, and the rank with index i along these axes has part i. Example: `whole` divides
 * sequences over dp, `cut` over dp and cp, and `axes` is cp. Each rank may have at most two
 * intervals of the dimension (a zigzag). */
bool verify_nests(const Verifier *v, const Shape *whole, const Shape *cut, int d, AxisSet axes);
/* True if `b` is `a` after moving every part of dimension d by `by` ranks: for every i, part i of
 * `b` has the indices of part i - by of `a`. */
bool verify_turned(const Verifier *v, const Shape *a, const Shape *b, int d, uint32_t by);

/* ---- ring.c ---- */
/* One hop of ring attention: a rank's queries with the keys of one rank of the ring. */
typedef struct Hop {
    uint32_t n, i; /* n: count of hops, one for each rank of the ring. i: index of this hop, from 0;
                      its keys come from the rank i places away */
} Hop;
/* Finds out which hop instruction pc computes. `shape` has the shapes of its arguments; they are
 * replaced by the shapes of the same attention with all keys. Reports an error and returns false if
 * the keys are not those of one rank of the ring. */
bool value_hop(Verifier *v, Pc pc, uint32_t *shape, Hop *hop);
/* Returns the value that hop i adds to output j. The sum over all hops is the value of the graph's
 * attention. */
Hash128 value_of_hop(const Verifier *v, Pc pc, const Hop *hop, uint32_t i, const Val *in,
                     uint32_t j);
/* Checks a hop that adds to the output of earlier hops: `old`, the output so far, must be the sum
 * of exactly these hops. Returns false after a report. */
bool value_merges(Verifier *v, Pc pc, const Hop *hop, const Val *in, const Val *old);

/* ---- rows.c ---- */
/* A convolution may run as several instructions: inner rows first (or their centre, then their
 * sides), and border rows when the neighbours' rows have arrived. This checks the shapes of one of
 * these instructions. For the border, it replaces them by the shapes of the whole convolution.
 * Reports an error and returns false if they do not fit. */
bool value_rows_part(Verifier *v, Pc pc, uint32_t *shape);
/* Checks that `strips`, the rows from neighbours, have arrived and are rows of the same tensor as
 * `own`, the rank's rows. Returns false after a report. */
bool value_takes_strips(Verifier *v, Pc pc, const Val *strips, const Val *own);
/* Returns the value that one of these instructions adds to output j. The sum over all of them is
 * the value of the graph's convolution. */
Hash128 value_of_rows(Verifier *v, Pc pc, const Val *in, uint32_t j);
/* True if the value consists of neighbours' rows along dimension d, and they have arrived. */
bool value_is_received(const Val *val, int d);

/* ---- bind.c ---- */
Bound *verify_bound(Verifier *v, Pc pc); /* binds instruction pc, or returns an earlier result */

/* ---- hash.c ---- */
Hash128 value_add(Hash128 a, Hash128 b);
static inline bool value_same(Hash128 a, Hash128 b)
{
    return a.hi == b.hi && a.lo == b.lo;
}
static inline bool value_is_zero(Hash128 a)
{
    return !a.hi && !a.lo;
}
/* Returns the value of output j of an op, whose inputs have the values `in`. `dim` has the output's
 * dimensions. */
Hash128 value_of_op(OpKind op, uint64_t attrs_key, const Hash128 *in, uint32_t n_in, uint32_t j,
                    uint32_t n_dims, const int64_t *dim);
Hash128 value_leaf(const char *kind, uint64_t number); /* a value that no instruction computed */
/* Hashes the attributes that affect a value in micro-batch mb. Random numbers differ between
 * micro-batches, so ops that draw them have different hashes. */
uint64_t value_key(const Verifier *v, AttrsId attrs, uint32_t mb);
/* Returns the value of the first (which = 1) or second (2) moment of a parameter when the step
 * begins. */
static inline Hash128 value_moment(uint32_t which, TensorId t)
{
    return value_leaf(which == 1 ? "first moment" : "second moment", t);
}
Hash128 value_norm(Hash128 gradient);          /* value of the sum of squares of a whole gradient */
Hash128 value_clip(Hash128 norm, double clip); /* value of the clip coefficient */
/* Returns the value of output j of a graph node in micro-batch mb. (Several nodes may contribute to
 * one tensor, such as a gradient.) */
Hash128 value_contribution(const Verifier *v, NodeId node, uint32_t j, uint32_t mb);
static inline Hash128 value_of_tensor(const Verifier *v, TensorId t, uint32_t mb)
{
    return v->vn[(size_t)t * v->n_mb + mb];
}
const char *value_name(Verifier *v, Hash128 vn); /* for messages */
/* Value `is` should be the sum of tensor t over micro-batches, and is not. Returns a text with the
 * reason, such as a missing micro-batch; "" if no simple reason explains it. */
const char *value_difference(Verifier *v, TensorId t, Hash128 is);

/* ---- graph.c ---- */
/* Returns the value of output j of step_mean. 0: the mean loss; 1: the factor that turns sums into
 * means. */
Hash128 value_step_mean(const Verifier *v, uint32_t j);
/* Returns the parameter that has the value `leaf` when the step begins; 0 if there is none. */
TensorId value_param(const Verifier *v, Hash128 leaf);

/* ---- value.c ---- */
/* Returns the index of a shape in Verifier.shapes, and adds it if it is new. */
uint32_t value_shape(Verifier *v, const Shape *s);
static inline const Shape *value_shape_at(const Verifier *v, uint32_t shape)
{
    return &v->shapes.at[shape];
}
const char *value_shape_text(Verifier *v, uint32_t shape);
void value_shapes_start(Verifier *v);
/* Returns the value in buffer b. If memory holds no value of the buffer's shape, reports this and
 * returns a bad value. `what` and `arg` name the argument in the message. */
Val value_read(Verifier *v, Pc pc, BufferId b, const char *what, uint32_t arg);
/* Does the work of value_read for `bytes` bytes at `address`, as a value of `shape`. */
Val value_read_at(Verifier *v, Pc pc, BufferId b, uint64_t address, uint64_t bytes, uint32_t shape,
                  const char *what, uint32_t arg);
/* Writes a value to buffer b. The value gets the shape, dtype and bytes of b. */
void value_write(Verifier *v, Pc pc, BufferId b, Val val);
void value_write_at(Verifier *v, Pc pc, BufferId b, uint64_t address, uint64_t bytes, Val val);
/* Returns the entries of a value; *n is their count. For a value without a list, fills *single with
 * the value itself and returns it as the only entry. */
const ValueEntry *value_entries(const Verifier *v, const Val *val, ValueEntry *single, uint32_t *n);
uint32_t value_add_list(Verifier *v, const ValueEntry *at, uint32_t n);
/* Returns the value a + b. Both must have the same shape. If their entries are not the same
 * parameters at the same places, reports this and returns a bad value. */
Val value_sum(Verifier *v, Pc pc, const Val *a, const Val *b);
bool value_present(Verifier *v, Pc pc, const Val *val, BufferId *where);

/* ---- whole.c ---- */
void value_whole_start(Verifier *v);
/* Returns the value of buffer b if it is in Verifier.whole and has this shape; else NULL. */
const Val *value_whole(Verifier *v, BufferId b, uint32_t shape);
/* Copies the value of buffer b from Verifier.whole to the map of bytes, before a part is written.
 */
void value_spread(Verifier *v, BufferId b);
/* Stores a value in Verifier.whole. Returns false if it must go to the map of bytes, because the
 * buffer is also accessed in parts. */
bool value_write_whole(Verifier *v, BufferId b, uint64_t bytes, uint32_t val);

/* ---- state.c ---- */
void verify_graph_state(Verifier *v);
void value_end_of_state(Verifier *v, BufferId b);
void value_homes_of_state(Verifier *v); /* called when all programs have ended */

/* ---- start.c ---- */
void value_memory_start(Verifier *v); /* sets the values of persistent buffers at the beginning of a
                                       * step */

/* ---- the effect of an instruction on memory ---- */
void value_compute(Verifier *v, Pc pc); /* op.c: for ops of the graph */
void value_move(Verifier *v, Pc pc);    /* move.c: for pass, cast, fill, RESHAPE and COMM */
/* move.c: for an all_reduce over stages, at pc. Adds this program's value to the sum, once:
 * *brought is then pc. Returns true when every stage has added its value. */
bool value_meet_stages(Verifier *v, Pc pc, Pc *brought);
bool value_exchange(Verifier *v, Pc pc); /* send, recv; returns false if the other program has not
                                            reached the communication yet */
/* ---- halo.c ---- */
void value_halo(Verifier *v, Pc pc);
/* Returns the bytes of the rows that a rank exchanges with its two neighbours along dimension d; 0
 * if the dimension has no halo. */
uint64_t value_strip_bytes(const Verifier *v, const Shape *held, int d, DType dtype);
/* Checks the halo of dimension d of `read`: a rank must have all input rows that window w (a
 * convolution's, say) reads for its `outputs` output rows. With is_output, the rows of `read` are
 * summed up instead, as for a gradient. Returns the fault, or NULL. */
const char *value_window_fault(const Verifier *v, const Window *w, const Shape *read, int d,
                               int64_t outputs, bool is_output);

/* ---- strides.c ---- */
/* checks stride_pack, stride_unpack, and the all_to_all of the packed messages */
void value_strides(Verifier *v, Pc pc);
/* True if the input of instruction pc has strided rows (rank i of n has pieces i, i + n, i + 2 n,
 * ... of the rows) along the axes of the instruction's communicator. */
bool value_has_strides(const Verifier *v, Pc pc);
/* Returns NULL, or the fault in the deal of dimension d of argument `arg` of an op. */
const char *value_stride_fault(const Verifier *v, const Binding *b, const Shape *s, uint32_t arg,
                               int d);
/* ---- uneven.c ---- */
void value_exchange_uneven(Verifier *v, Pc pc);
/* Sets `counts`: for each tensor of uneven rows (tokens sent to experts), the tensor with the count
 * of rows for each expert. Reports nodes that read rows together with the counts of other rows. */
void verify_uneven(Verifier *v);
/* Dimension d of argument `arg` has uneven rows. Returns NULL if the op may read or write such
 * rows; otherwise the reason why not. */
const char *value_rows_fault(OpKind op, const Binding *b, uint32_t arg, int d);

void value_sumsq(Verifier *v, Pc pc); /* update.c */
void value_mean(Verifier *v, Pc pc);  /* step_mean */
void value_clip_coef(Verifier *v, Pc pc);
void value_update(Verifier *v, Pc pc);
void value_amax_range(Verifier *v, Pc pc); /* range.c */
void value_quantise_range(Verifier *v, Pc pc);
void value_end(Verifier *v); /* checks the conditions at the end of a step */

#endif
