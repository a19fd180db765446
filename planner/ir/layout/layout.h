/* A collective is a change of layout. On every mesh axis a tensor is WHOLE, SPLIT(d) or PARTIAL.
 * A split dimension has a deal, which says which intervals of the global index each part holds. */
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
/* True for floating-point types, also those that only scale others (e8m0) or hold pairs. */
static inline bool dtype_is_real(DType t)
{
    return t >= DT_f64 && t <= DT_f64x2;
}
static inline bool dtype_is_eight_bits(DType t)
{
    return t >= DT_e4m3 && t <= DT_e2m1x2;
}
/* Returns the numbers in one element: 2 in e2m1x2 (two 4-bit numbers in a byte) and in the type
 * that stands for it in fp64, f64x2. */
static inline uint32_t dtype_numbers(DType t)
{
    return t == DT_e2m1x2 || t == DT_f64x2 ? 2 : 1;
}
const char *dtype_name(DType t);
DType dtype_find(const char *name); /* "fp32" and "f32", "bf16", "fp64"...; DT_none if unknown */
/* Maps each dtype named in the plan to the dtype that the program uses. */
typedef struct DTypeMap {
    DType to[DT_COUNT];
} DTypeMap;
DTypeMap dtype_map_identity(void);
/* Every floating-point type becomes `real`, which is f64 if types of pairs are in use. */
DTypeMap dtype_map_all(DType real);
DTypeMap dtype_map_but_eight_bits(DType real); /* ... but e4m3, e5m2, e8m0 and e2m1x2 stay */

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
} /* of a split */

typedef struct Layout {
    int8_t on[MAX_AXES];
} Layout; /* zeroed: WHOLE everywhere */

bool layout_equal(const Layout *a, const Layout *b);
AxisSet layout_axes_split(const Layout *l,
                          int d); /* axes on which dimension d is split; d < 0: any */
AxisSet layout_axes_partial(const Layout *l);
/* Returns for example "tp:1 dp_shard:0" or "tp:sum", in mesh order; "whole" if no axis cuts.
 * Dimensions count from 0. */
const char *layout_text(Arena *arena, const Mesh *mesh, const Layout *l);

/* ---- deals ---- interned; 0 is the equal deal (the part count divides the size). */
typedef uint32_t DealId;
/* rows: rooms, each with space for one token that goes to an expert; only rooms that are taken are
 * stored (rows.h). halo: parts overlap. Each part holds its own indices and copies of its
 * neighbours' (halo.h). overlap: parts overlap, too, but each part holds only its share of a sum.
 * strided: each part holds separate pieces at equal distances (stride.h). */
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
} Interval; /* of the global index */
typedef struct Deal {
    DealKind kind;
    uint32_t n_parts;
    int64_t size;      /* size of the dimension */
    uint32_t bound;    /* DEAL_rows: the memory of a rank, in thousandths of its mean number of
                        * rows */
    uint32_t first, n; /* DEAL_listed, DEAL_strided: `n` (part-major) intervals from
                        * deals.intervals[first], */
    /* per_part intervals for each part; unused intervals are empty. DEAL_segments: `n` = per_part
     * intervals that follow each other; all parts share each interval equally */
    uint32_t per_part;
} Deal;
typedef struct Deals {
    LIST(Deal) deals; /* [0]: none/equal */
    LIST(Interval) intervals;
} Deals;
/* A deal of ceil(size / n_parts) indices a part; the last parts are short or empty. Returns 0 if
 * n_parts divides size. */
DealId deal_ceil(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts);
/* A deal by a list of intervals [n_parts, per_part], for zigzags (2 chunks a part) and crops. */
DealId deal_listed(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts, uint32_t per_part,
                   const Interval *intervals);
/* Cuts `size` into 2n equal chunks and gives part i chunks i and 2n - 1 - i, so that all parts
 * have equal work under a causal mask. 2n must divide size. */
DealId deal_zigzag(Deals *deals, Arena *arena, int64_t size, uint32_t n_parts);
bool deal_is_zigzag(const Deals *deals, DealId id);
/* Cuts each part of a listed deal into k equal parts, in the order of the part's elements. */
DealId deal_cut(Deals *deals, Arena *arena, DealId id, uint32_t k);
/* Returns deal `id` turned by one part: part i has the indices that part i - 1 had, and part 0 the
 * indices of the last part. n_parts turns give `id` again. */
DealId deal_turn(Deals *deals, Arena *arena, DealId id, int64_t size, uint32_t n_parts);
/* A deal of segments that follow each other, such as query heads, keys and values. Part i holds the
 * i-th each[0] indices of the first segment, the i-th each[1] of the second, and so on. */
DealId deal_segments(Deals *deals, Arena *arena, uint32_t n_parts, uint32_t n_segments,
                     const int64_t *each);
/* Finds or adds a deal with its table of `deal.n` intervals. */
DealId deal_intern(Deals *deals, Arena *arena, Deal deal, const Interval *intervals);
/* The number of intervals in the deal's table; 0 if the deal needs no table. */
uint64_t deal_table(const Deal *d);
/* Size of one part's buffer: the number of elements of the largest part. */
int64_t deal_local(const Deals *deals, DealId id, int64_t size, uint32_t n_parts);
/* The k-th interval of `part` (k = 0 for equal and ceil); false if there is none. */
bool deal_interval(const Deals *deals, DealId id, int64_t size, uint32_t n_parts, uint32_t part,
                   uint32_t k, Interval *out);
/* The global index of element `at` of `part`. */
int64_t deal_index(const Deals *deals, DealId id, int64_t size, uint32_t n_parts, uint32_t part,
                   int64_t at);
int64_t deal_valid(const Deals *deals, DealId id, int64_t size, uint32_t n_parts, uint32_t part);

/* ---- shapes ---- global dimensions + layout + deals; local sizes follow from the mesh. */
typedef struct Shape {
    uint8_t n_dims;
    int64_t dim[MAX_DIMS]; /* global */
    DealId deal[MAX_DIMS]; /* of split dimensions */
    Layout layout;
} Shape;
bool shape_equal(const Shape *a, const Shape *b);
int64_t shape_local_dim(const Shape *s, const Mesh *mesh, const Deals *deals, int d);
int64_t shape_local_elements(const Shape *s, const Mesh *mesh, const Deals *deals);
/* The extent of dimension d in memory. It equals shape_local_dim, except for uneven rows (rows.h):
 * there the first of the three dimensions counts all rows, and the others are 1. */
int64_t shape_extent(const Shape *s, const Mesh *mesh, const Deals *deals, int d);
/* shape_start returns the global index at which the part of dimension d on `rank` begins (interval
 * 0 of its deal). shape_valid returns the number of elements of that part that are not padding. If
 * several axes split one dimension, they count in mesh order, outermost first. */
int64_t shape_start(const Shape *s, const Mesh *mesh, const Deals *deals, int d, Rank rank);
int64_t shape_valid(const Shape *s, const Mesh *mesh, const Deals *deals, int d, Rank rank);
/* The number of parts of dimension d: the product of the sizes of the axes that split it. */
uint32_t shape_parts(const Shape *s, const Mesh *mesh, int d);
uint32_t shape_part(const Shape *s, const Mesh *mesh, int d,
                    Rank rank); /* mixed radix, mesh order */

/* ---- changes of layout ---- Returns the collective that turns layout `from` into `to` on one
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
