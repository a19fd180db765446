/* How a tensor is distributed over ranks: layouts, deals and shapes.
 *
 *   Layout  for each mesh axis (mesh.h), one of: WHOLE, every rank along the axis has all elements;
 *           SPLIT(d), each rank has a part of dimension d; PARTIAL_SUM, each rank has a summand of
 *           every element; PARTIAL_MAX, the same for a maximum
 *   Deal    which indices of a split dimension each part has, as cards are dealt to players.
 *           Usually a dimension of 16 over 4 ranks gives part 1 the indices 4 to 7. With a zigzag
 *           deal it gets 2, 3, 12 and 13
 *   Shape   global dimensions, a layout, and the deals of the split dimensions
 *
 * For example, on a mesh dp_shard = 4, tp = 2 an activation [samples 8, tokens 4096, features 512]
 * has the layout "dp_shard:0 tp:2" if each rank has 2 samples, all tokens and 256 features. */
#ifndef TANDEM_IR_LAYOUT_H
#define TANDEM_IR_LAYOUT_H

#include "planner/base/list.h"
#include "planner/ir/layout/mesh.h"

enum { MAX_DIMS = 6 };

#define DTYPES(X)                                                                                  \
    X(f64, 8)                                                                                      \
    X(f32, 4)                                                                                      \
    X(bf16, 2)                                                                                     \
    X(f16, 2)                                                                                      \
    X(e4m3, 1) X(e5m2, 1) X(e8m0, 1) X(e2m1x2, 1) X(f64x2, 16) X(i32, 4) X(i64, 8) X(u8, 1)
typedef enum DType {
    DT_none,
#define X(name, bytes) DT_##name,
    DTYPES(X)
#undef X
        DT_COUNT
} DType;
uint32_t dtype_bytes(DType t);
/* True for floating-point types, including the scales of 8-bit blocks (e8m0) and pairs of 4-bit
 * values (e2m1x2). */
static inline bool dtype_is_real(DType t)
{
    return t >= DT_f64 && t <= DT_f64x2;
}
static inline bool dtype_is_eight_bits(DType t)
{
    return t >= DT_e4m3 && t <= DT_e2m1x2;
}
/* Returns how many values one element stores: 2 for e2m1x2 (two 4-bit values in a byte) and for
 * f64x2 (its fp64 replacement, two doubles), otherwise 1. */
static inline uint32_t dtype_numbers(DType t)
{
    return t == DT_e2m1x2 || t == DT_f64x2 ? 2 : 1;
}
const char *dtype_name(DType t);
/* Returns the dtype with this name, such as "fp32", "f32" or "bf16"; DT_none for an unknown
 * name. */
DType dtype_find(const char *name);
/* A replacement of dtypes: a value that the plan wants in dtype t gets dtype to[t] in the program.
 * For example, `run --verify` compiles a bf16 plan with all values in f64. */
typedef struct DTypeMap {
    DType to[DT_COUNT];
} DTypeMap;
DTypeMap dtype_map_identity(void);
/* Returns the map that replaces every floating-point type by `real`. If the plan has pairs of 4-bit
 * values, `real` must be f64, because only f64 has a type for pairs (f64x2). */
DTypeMap dtype_map_all(DType real);
/* Returns the map of dtype_map_all, but leaves e4m3, e5m2, e8m0 and e2m1x2 as they are. */
DTypeMap dtype_map_but_eight_bits(DType real);

enum { WHOLE = 0, PARTIAL_SUM = -1, PARTIAL_MAX = -2 };
#define SPLIT(d) ((int8_t)((d) + 1))
static inline bool layout_is_split(int8_t on)
{
    return on > 0;
}
static inline bool layout_is_partial(int8_t on)
{
    return on < 0;
}
static inline int layout_dim(int8_t on)
{
    return on - 1;
} /* the dimension that SPLIT(d) splits */

typedef struct Layout {
    int8_t on[MAX_AXES];
} Layout; /* on[a]: WHOLE, SPLIT(d) or PARTIAL_* on mesh axis a. All zeros: WHOLE on all axes. */

bool layout_equal(const Layout *a, const Layout *b);
/* Returns the axes that split dimension d. For d < 0, returns the axes that split any dimension. */
AxisSet layout_axes_split(const Layout *l, int d);
AxisSet layout_axes_partial(const Layout *l);
/* Returns the layout as text, axes in the order of the mesh: "dp_shard:0 tp:1" if dp_shard splits
 * dimension 0 and tp splits dimension 1; "tp:sum" for PARTIAL_SUM on tp; "whole" if the tensor is
 * WHOLE on every axis. */
const char *layout_text(Arena *arena, const Mesh *mesh, const Layout *l);

/* ---- deals ---- A dimension that is split has a part for each rank. A deal says which indices of
 * the dimension each part has. A DealId is an index of Deals.deals, where equal deals are stored
 * once. 0 is the equal deal: all parts are contiguous and have the same size. */
typedef uint32_t DealId;
/* The kinds of deals. Ranges in the examples include both ends:
 *   equal     contiguous parts of equal size: 12 over 4 gives 0-2, 3-5, 6-8, 9-11
 *   ceil      contiguous parts of ceil(size / n): 10 over 4 gives 0-2, 3-5, 6-8, 9 (padding.h)
 *   rows      the tokens that chose an expert, whose count is known only at run time (rows.h)
 *   listed    any intervals, from a table. A zigzag of 16 over 4: part 0 has 0-1 and 14-15
 *   segments  each segment divided evenly. Queries 0-7, keys 8-11 and values 12-15 over 2:
 *             part 0 has 0-3, 8-9 and 12-13
 *   halo      parts overlap: each also stores copies of its neighbours' rows (halo.h)
 *   overlap   parts overlap: each stores its own summand of the common rows (halo.h)
 *   strided   intervals at equal distances (stride.h). 12 over 2, two intervals each:
 *             part 0 has 0-2 and 6-8 */
typedef enum DealKind {
    DEAL_equal,
    DEAL_ceil,
    DEAL_rows,
    DEAL_listed,
    DEAL_segments,
    DEAL_halo,
    DEAL_overlap,
    DEAL_strided
} DealKind;
typedef struct Interval {
    int64_t lo, hi;
} Interval; /* global indices */
typedef struct Deal {
    DealKind kind;
    uint32_t n_parts;
    int64_t size; /* number of indices of the dimension */
    /* DEAL_rows only: a rank has memory for bound / 1000 times the mean count of its rows */
    uint32_t bound;
    /* The deal's table: intervals[first] to intervals[first + n - 1] of Deals, all intervals of
     * part 0 first, then those of part 1 and so on. n = 0 for the kinds equal, ceil and rows. */
    uint32_t first, n;
    /* For kinds with a table: how many intervals each part has. Unused ones are empty.
     * DEAL_segments: how many segments the table lists. DEAL_ceil: how many elements each part's
     * buffer has, 0 for ceil(size / n_parts). DEAL_rows: how many experts each token chooses. */
    uint32_t per_part;
} Deal;
typedef struct Deals {
    LIST(Deal) deals; /* [0] stands for the equal deal */
    LIST(Interval) intervals;
} Deals;
/* Returns the deal of ceil(size / n_parts) indices for each part; the last parts may have fewer or
 * none. Returns 0, the equal deal, if n_parts divides `size`. */
DealId deal_ceil(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts);
/* Returns the deal in which part i has the intervals [i][0] to [i][per_part - 1] of `intervals`. */
DealId deal_listed(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts, uint32_t per_part,
                   const Interval *intervals);
/* Returns the zigzag deal: `size` is cut into 2n chunks, and part i gets chunks i and 2n - 1 - i.
 * Under a causal mask, early tokens attend to few keys and late ones to many; so all parts get the
 * same work. 2n must divide `size`. */
DealId deal_zigzag(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts);
bool deal_is_zigzag(const Deals *deals, DealId id);
/* Returns the listed deal `id` with each part cut into k parts of equal size. For example, k = 2
 * cuts the zigzag part {0-1, 14-15} into {0-1} and {14-15}. */
DealId deal_cut(Deals *deals, Arena *arena, DealId id, uint32_t k);
/* Returns deal `id` with its parts passed on by one rank, as after one hop in a ring: part i gets
 * the indices of part i - 1, and part 0 those of the last part. */
DealId deal_turn(Deals *deals, Arena *arena, DealId id, int64_t size, uint32_t n_parts);
/* Returns the deal of a dimension that consists of segments, such as queries, keys and values.
 * Segment s has n_parts * each[s] indices, and part i gets the i-th each[s] of them. */
DealId deal_segments(Deals *deals, Arena *arena, uint32_t n_parts, uint32_t n_segments,
                     const int64_t *each);
/* Returns the id of `deal`. Stores the deal and its `deal.n` intervals if they are new. */
DealId deal_intern(Deals *deals, Arena *arena, Deal deal, const Interval *intervals);
/* Returns how many intervals the deal's table must have (Deal.n). Returns 0 for kinds without a
 * table. */
uint64_t deal_table(const Deal *d);
/* Returns the size of the dimension in each rank's buffer. All ranks have buffers of the same size,
 * so it is the size of the largest part. */
int64_t deal_local(const Deals *deals, DealId id, int64_t size, uint32_t n_parts);
/* Sets *out to interval k (from 0) of part `part`, in global indices. Returns false if the part has
 * fewer intervals. In equal and ceil deals, a part has only one interval. */
bool deal_interval(const Deals *deals, DealId id, int64_t size, uint32_t n_parts, uint32_t part,
                   uint32_t k, Interval *out);
/* deal_index returns the global index of element `at` of a part. For example, element 2 of zigzag
 * part {0-1, 14-15} has the global index 14. deal_valid returns how many elements of the part's
 * buffer are not padding. */
int64_t deal_index(const Deals *deals, DealId id, int64_t size, uint32_t n_parts, uint32_t part,
                   int64_t at);
int64_t deal_valid(const Deals *deals, DealId id, int64_t size, uint32_t n_parts, uint32_t part);

/* ---- shapes ---- A tensor's global dimensions and its distribution. The dimensions on one rank
 * follow from these and from the mesh. */
typedef struct Shape {
    uint8_t n_dims;
    int64_t dim[MAX_DIMS]; /* global */
    /* deal[d]: which indices of dimension d each part has, if an axis splits it */
    DealId deal[MAX_DIMS];
    Layout layout;
} Shape;
bool shape_equal(const Shape *a, const Shape *b);
int64_t shape_local_dim(const Shape *s, const Mesh *mesh, const Deals *deals, int d);
int64_t shape_local_elements(const Shape *s, const Mesh *mesh, const Deals *deals);
/* Returns the size of dimension d in a rank's buffer. This is shape_local_dim, except for the token
 * rows of experts (rows.h). There the first three dimensions are stored as one: extent 0 counts all
 * rows, extents 1 and 2 are 1. */
int64_t shape_extent(const Shape *s, const Mesh *mesh, const Deals *deals, int d);
/* shape_start returns the first global index of dimension d that `rank` has. shape_valid returns
 * how many indices of dimension d `rank` has without padding. */
int64_t shape_start(const Shape *s, const Mesh *mesh, const Deals *deals, int d, Rank rank);
int64_t shape_valid(const Shape *s, const Mesh *mesh, const Deals *deals, int d, Rank rank);
/* Returns into how many parts dimension d is split: the product of the sizes of the axes that split
 * it. */
uint32_t shape_parts(const Shape *s, const Mesh *mesh, int d);
/* Returns which part of dimension d `rank` has. If several axes split the dimension, the outermost
 * counts most: on a mesh dp_shard = 4, tp = 2, the rank with dp_shard 3 and tp 1 has part 7. */
uint32_t shape_part(const Shape *s, const Mesh *mesh, int d, Rank rank);

/* ---- changes of layout ---- The operation that changes a tensor's layout on one axis from `from`
 * to `to`. For example, PARTIAL_SUM to SPLIT(0) is a reduce_scatter. "slice" needs no
 * communication: each rank keeps its part of the whole tensor. A change to a partial layout is
 * impossible. */
typedef enum Change {
    CHANGE_nothing,
    CHANGE_slice,
    CHANGE_all_gather,
    CHANGE_all_to_all,
    CHANGE_all_reduce,
    CHANGE_reduce_scatter,
    CHANGE_impossible
} Change;
Change layout_change(int8_t from, int8_t to);

#endif
