/* Windows: which input rows an output row of a convolution, pooling or resize reads. For example, a
 * 3 x 3 convolution with stride 1 and padding 1 computes output row 5 from input rows 4, 5 and 6. A
 * signature in ops.def writes `h~` for the input rows that output rows h read, and `w~` for
 * columns. The attributes of a node (h_kernel, h_stride, ...) describe its two windows. This file
 * says "row" for both directions. */
#ifndef TANDEM_IR_WINDOW_H
#define TANDEM_IR_WINDOW_H

#include "planner/ir/op/op.h"

/* The values of rows beyond the edge of the grid. zero: zeros. reflect: mirrored rows, without the
 * edge row (row -1 is row 1). symmetric: mirrored rows, with the edge row (row -1 is row 0).
 * periodic: the rows at the opposite edge, as for longitude. edge: the edge row again, for a
 * resize. */
typedef enum WindowMode {
    WINDOW_zero,
    WINDOW_reflect,
    WINDOW_periodic,
    WINDOW_symmetric,
    WINDOW_edge,
    WINDOW_MODES
} WindowMode;

/* Limits. IMAGE_MOST: patches in a row or column of an image, and channels. IMAGE_MOST_PATCH: the
 * side of a patch [points]. WINDOW_MOST_POINTS: points of an attention window.
 * WINDOW_MOST_FEATURES: points of a window times features of a head. */
enum { IMAGE_MOST = 1 << 12, IMAGE_MOST_PATCH = 512 };
enum { WINDOW_MOST_POINTS = 144, WINDOW_MOST_FEATURES = 16384 };

/* One direction of a window. Output row o reads the rows o * stride - before + k * dilation for k =
 * 0 to kernel - 1. `before` and `after` are the rows of padding at the two edges. If negative, that
 * many rows at the edge are cropped: no window reads them.
 *
 * A resize from `from` to `to` rows has no kernel. If `nearest`, output row o is input row floor(o
 * * from / to). Otherwise it interpolates between the two rows next to (o + 1/2) * from / to -
 * 1/2. */
typedef struct Window {
    int64_t kernel, stride, dilation, before, after;
    WindowMode mode;
    int64_t from, to; /* 0: no resize */
    bool nearest;
} Window;

/* Returns the upper case of `letter`, h or w. In arrays with an entry for each letter, entry h is
 * about the output rows, and entry H about the input rows h~ that they read. */
static inline char window_reach(char letter)
{
    return (char)(letter - 'a' + 'A');
}
/* Returns the window of a node, except a resize, for direction h or w. */
Window window_of(const Attrs *attrs, char letter);
/* True for a resize and its gradient. Their attributes give the size of the output, not a
 * window. */
bool op_resizes(OpKind op);
/* Returns the window of any op, also of a resize, for direction h or w. `b` has the global
 * sizes. */
Window op_window(OpKind op, const Binding *b, const Attrs *attrs, char letter);
/* Returns how many output rows `size` input rows give; 0 if the window is larger than the input. */
int64_t window_outputs(const Window *w, int64_t size);
/* Returns the fewest input rows that give `outputs` output rows. */
int64_t window_inputs(const Window *w, int64_t outputs);
/* Returns the interval of input rows that output rows lo to hi - 1 read. Rows beyond an edge are
 * included with indices below 0 or above the size. An empty interval reads nothing. */
Interval window_reads(const Window *w, int64_t lo, int64_t hi);
/* Returns the interval of rows of a grid of `size` rows that output rows `out` need. Unlike in
 * window_reads, rows beyond an edge are left out; rows that a mirror reads in their place are
 * included. In a periodic dimension, the interval still continues beyond the edges. */
Interval window_rows(const Window *w, int64_t size, Interval out);
/* Returns the output rows in `out` whose windows read only rows in `own`, such as the rows that a
 * rank can compute before the halo arrives. They are contiguous. */
Interval window_inner_rows(const Window *w, int64_t size, Interval own, Interval out);
/* Returns the row whose value is used for `row`, which may lie beyond an edge of a grid of `size`
 * rows. For example, -1 gives 1 with WINDOW_reflect. Returns -1 if the value is zero. */
int64_t window_row(const Window *w, int64_t size, int64_t row);
/* For each index h~ or w~ of the op's signature: computes the size of h~ from that of h, or that of
 * h from that of h~, depending on which one `b` has. Returns false if a window is invalid, or if it
 * does not fit the sizes. */
bool op_windowed(OpKind op, Binding *b, const Attrs *attrs);

#endif
