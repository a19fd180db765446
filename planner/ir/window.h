/* A window states which input rows an output row of a convolution or a pooling reads. A signature
 * marks an index of such input rows with `~`: "bch~w~" has the rows and columns that output rows h
 * and columns w read. The attributes of a node state its windows, one for each direction. */
#ifndef TANDEM_IR_WINDOW_H
#define TANDEM_IR_WINDOW_H

#include "planner/ir/op/op.h"

/* The values that a window reads beyond the edge of the grid. zero: zeros. reflect: mirrored rows
 * without the edge row. symmetric: mirrored rows with the edge row. periodic: the rows at the
 * opposite edge (longitude). edge: the edge row again, for a resize. */
typedef enum WindowMode {
    WINDOW_zero,
    WINDOW_reflect,
    WINDOW_periodic,
    WINDOW_symmetric,
    WINDOW_edge,
    WINDOW_MODES
} WindowMode;

/* IMAGE_MOST: the most patches in a row or column of an image, and the most channels.
 * IMAGE_MOST_PATCH: the longest side of a patch [points]. WINDOW_MOST_POINTS: the most points of an
 * attention window. WINDOW_MOST_FEATURES: the most points x features of a head in a window. */
enum { IMAGE_MOST = 1 << 12, IMAGE_MOST_PATCH = 512 };
enum { WINDOW_MOST_POINTS = 144, WINDOW_MOST_FEATURES = 16384 };

/* Output row o reads rows o * stride - before + k * dilation, k < kernel. `before` and `after` are
 * the rows of padding at the two edges. A negative number -n crops: no window reads the n outermost
 * rows at that edge. A resize of `from` rows to `to` has no kernel. If bilinear, output row o is
 * made of the two rows around (o + 1/2) * from / to - 1/2. With the nearest point, output row o is
 * row floor(o * from / to). */
typedef struct Window {
    int64_t kernel, stride, dilation, before, after;
    WindowMode mode;
    int64_t from, to; /* 0: no resize */
    bool nearest;
} Window;

/* Returns the capital of `letter`, h or w. Arrays by letter have two entries for such an index: h
 * is for the output rows, H for the input rows h~ that they read. */
static inline char window_reach(char letter)
{
    return (char)(letter - 'a' + 'A');
}
/* The window of a node for letter h or w; the node must not be a resize. */
Window window_of(const Attrs *attrs, char letter);
/* True for a resize. It has no window size; its attributes give the size of the output. */
bool op_resizes(OpKind op);
/* The window of any op. b: bound to the global sizes. */
Window op_window(OpKind op, const Binding *b, const Attrs *attrs, char letter);
/* The number of output rows of `size` input rows; 0: the window does not fit. */
int64_t window_outputs(const Window *w, int64_t size);
/* The fewest input rows that give `outputs` output rows. */
int64_t window_inputs(const Window *w, int64_t outputs);
/* Returns the input rows that output rows [lo, hi) read. Rows beyond an edge keep their index
 * outside of the grid. Empty for an empty interval. */
Interval window_reads(const Window *w, int64_t lo, int64_t hi);
/* Returns the rows of a grid of `size` rows that output rows `out` read. The interval is clipped at
 * the edges and includes the rows that a mirror at the edge reads. In a periodic dimension it
 * continues beyond the edges. */
Interval window_rows(const Window *w, int64_t size, Interval out);
/* Returns the rows of `out` whose windows read only rows of `own`. They are contiguous: the part's
 * other output rows come before and after them. */
Interval window_inner_rows(const Window *w, int64_t size, Interval own, Interval out);
/* Returns the row of a grid of `size` rows that stands in for `row`, which may be beyond an edge;
 * -1: a zero. */
int64_t window_row(const Window *w, int64_t size, int64_t row);
/* For every `~` index: computes the number of input rows if the number of output rows is known, or
 * the other way round. Returns false if a window is malformed, or does not lead from one size to
 * the other. */
bool op_windowed(OpKind op, Binding *b, const Attrs *attrs);

#endif
