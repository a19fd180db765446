/* A layout states how a tensor is distributed over ranks. On each mesh axis the tensor is WHOLE,
 * SPLIT along a dimension, or PARTIAL (each rank has one summand). A split dimension has a deal,
 * which lists the global indices of each part. A collective changes the layout. */
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
/* True for all floating-point types. This includes scales (e8m0) and pairs of 4-bit numbers. */
static inline bool dtype_is_real(DType t)
{
    return t >= DT_f64 && t <= DT_f64x2;
}
static inline bool dtype_is_eight_bits(DType t)
{
    return t >= DT_e4m3 && t <= DT_e2m1x2;
}
/* Returns the number of numbers in one element. It is 2 for e2m1x2, two 4-bit numbers in a byte,
 * and for f64x2, which replaces e2m1x2 in fp64. */
static inline uint32_t dtype_numbers(DType t)
{
    return t == DT_e2m1x2 || t == DT_f64x2 ? 2 : 1;
}
const char *dtype_name(DType t);
/* accepts for example "fp32", "f32" and "bf16"; returns DT_none for an unknown name */
DType dtype_find(const char *name);
/* Gives, for each dtype of the plan, the dtype that the program uses instead. */
typedef struct DTypeMap {
    DType to[DT_COUNT];
} DTypeMap;
DTypeMap dtype_map_identity(void);
/* Returns a map from every floating-point type to `real`. If the plan has pairs of 4-bit numbers,
 * `real` must be f64. */
DTypeMap dtype_map_all(DType real);
/* Returns the map of dtype_map_all, except that e4m3, e5m2, e8m0 and e2m1x2 do not change. */
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
} /* dimension of a split */

typedef struct Layout {
    int8_t on[MAX_AXES];
} Layout; /* zeroed memory means WHOLE on all axes */

bool layout_equal(const Layout *a, const Layout *b);
/* Returns the axes that split dimension d; if d < 0, the axes that split any dimension. */
AxisSet layout_axes_split(const Layout *l, int d);
AxisSet layout_axes_partial(const Layout *l);
/* Returns for example "tp:1 dp_shard:0" or "tp:sum", in the order of the mesh. Numbers are
 * dimensions. "whole" means that no axis splits the tensor. */
const char *layout_text(Arena *arena, const Mesh *mesh, const Layout *l);

/* ---- deals ---- A deal is stored once and named by a number. 0 is the equal deal: all parts are
 * equal and consecutive. */
typedef uint32_t DealId;
/* rows: space for the tokens of experts, of which only the used space is stored (rows.h). halo:
 * each part has its own indices and copies of its neighbours' (halo.h). overlap: several parts may
 * have a row, and each of them has a summand of it. strided: each part has ranges at equal
 * distances (stride.h). */
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
    int64_t size; /* size of the dimension */
    /* for DEAL_rows: the memory of a rank, in thousandths of its mean number of rows */
    uint32_t bound;
    /* `n` intervals from deals.intervals[first] on, part by part: for DEAL_listed and DEAL_strided
     */
    uint32_t first, n;
    /* The number of intervals of each part; unused intervals are empty. DEAL_segments has n =
     * per_part consecutive intervals, each divided evenly over all parts. */
    uint32_t per_part;
} Deal;
typedef struct Deals {
    LIST(Deal) deals; /* [0]: the equal deal */
    LIST(Interval) intervals;
} Deals;
/* Makes a deal of ceil(size / n_parts) indices for each part. The last parts may be short or empty.
 * Returns 0 if all parts are equal. */
DealId deal_ceil(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts);
/* Makes a deal from a list of intervals [n_parts, per_part]. */
DealId deal_listed(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts, uint32_t per_part,
                   const Interval *intervals);
/* Cuts `size` into 2n equal chunks and gives part i the chunks i and 2n - 1 - i. Under a causal
 * mask all parts then have equal work. 2n must divide size. */
DealId deal_zigzag(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts);
bool deal_is_zigzag(const Deals *deals, DealId id);
/* Cuts each part of a listed deal into k equal parts, in the order of its elements. */
DealId deal_cut(Deals *deals, Arena *arena, DealId id, uint32_t k);
/* Returns deal `id` with all parts moved by one. Part i gets the indices of part i - 1, and part 0
 * gets those of the last part. */
DealId deal_turn(Deals *deals, Arena *arena, DealId id, int64_t size, uint32_t n_parts);
/* Makes a deal of consecutive segments, such as queries, keys and values. Each segment is divided
 * evenly: part i has indices i * each[s] to (i + 1) * each[s] of segment s. */
DealId deal_segments(Deals *deals, Arena *arena, uint32_t n_parts, uint32_t n_segments,
                     const int64_t *each);
/* Returns the number of this deal. If the deal is new, stores it with its `deal.n` intervals. */
DealId deal_intern(Deals *deals, Arena *arena, Deal deal, const Interval *intervals);
/* Returns the number of intervals in the deal's table; 0 if the deal has no table. */
uint64_t deal_table(const Deal *d);
/* Returns the number of elements in the buffer of a part. It is the same for all parts: the size of
 * the largest. */
int64_t deal_local(const Deals *deals, DealId id, int64_t size, uint32_t n_parts);
/* Sets *out to interval number k of `part`. Returns false if there is none. In equal and ceil
 * deals, a part has only interval 0. */
bool deal_interval(const Deals *deals, DealId id, int64_t size, uint32_t n_parts, uint32_t part,
                   uint32_t k, Interval *out);
/* Returns the global index of element number `at` of `part`. */
int64_t deal_index(const Deals *deals, DealId id, int64_t size, uint32_t n_parts, uint32_t part,
                   int64_t at);
int64_t deal_valid(const Deals *deals, DealId id, int64_t size, uint32_t n_parts, uint32_t part);

/* ---- shapes ---- A shape consists of global dimensions, a layout and deals. The sizes on one rank
 * follow from the shape and the mesh. */
typedef struct Shape {
    uint8_t n_dims;
    int64_t dim[MAX_DIMS]; /* global */
    DealId deal[MAX_DIMS]; /* for split dimensions */
    Layout layout;
} Shape;
bool shape_equal(const Shape *a, const Shape *b);
int64_t shape_local_dim(const Shape *s, const Mesh *mesh, const Deals *deals, int d);
int64_t shape_local_elements(const Shape *s, const Mesh *mesh, const Deals *deals);
/* Returns the size of dimension d in memory. It equals shape_local_dim, except for uneven rows
 * (rows.h): there the first dimension counts all rows, and the next two have size 1. */
int64_t shape_extent(const Shape *s, const Mesh *mesh, const Deals *deals, int d);
/* shape_start returns the first global index of dimension d on `rank`. shape_valid returns the
 * number of elements on `rank` that are not padding. */
int64_t shape_start(const Shape *s, const Mesh *mesh, const Deals *deals, int d, Rank rank);
int64_t shape_valid(const Shape *s, const Mesh *mesh, const Deals *deals, int d, Rank rank);
/* Returns the number of parts into which dimension d is split. */
uint32_t shape_parts(const Shape *s, const Mesh *mesh, int d);
/* Returns the part of dimension d that `rank` holds. If several axes split the dimension, the
 * outermost axis counts most. */
uint32_t shape_part(const Shape *s, const Mesh *mesh, int d, Rank rank);

/* ---- changes of layout ---- Returns the collective that changes layout `from` into `to` on one
 * axis. */
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
