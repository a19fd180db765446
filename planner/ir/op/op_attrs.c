/* The attributes of each op with their bounds (attrs.def), and conditions between attributes. */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "planner/ir/op/op.h"
#include "planner/ir/op/rope_pairs.h"

enum { MOST_BOUNDS = 512 };

static const struct {
    const char *ops, *given, *proven;
} rows[] = {
#define HAS(ops, given, proven, proof) {ops, given, proven},
#include "planner/ir/op/attrs.def"
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static const struct {
    const char *name;
    size_t offset;
    bool is_int;
} attributes[ATTRS] = {
#define IS_double     false
#define IS_int64_t    true
#define X(type, name) {#name, offsetof(Attrs, name), IS_##type},
    ATTRIBUTES(X)
#undef X
};

/* attrs.def after parsing: the attributes of each op are a range of `bounds`. The first caller
 * builds it under pthread_once; afterwards it never changes. */
static struct {
    AttrBounds bounds[MOST_BOUNDS];
    uint32_t n;
    struct {
        uint32_t first, n;
    } of[OP_COUNT];
} table;
static pthread_once_t once = PTHREAD_ONCE_INIT;

const char *attr_name(uint32_t attr)
{
    assert(attr < ATTRS);
    return attributes[attr].name;
}

bool attr_is_int(uint32_t attr)
{
    assert(attr < ATTRS);
    return attributes[attr].is_int;
}

double attr_get(const Attrs *attrs, uint32_t attr)
{
    const char *at = (const char *)attrs + attributes[attr].offset;
    double real;
    int64_t whole;
    memcpy(&real, at, sizeof real);
    memcpy(&whole, at, sizeof whole);
    return attributes[attr].is_int ? (double)whole : real;
}

void attr_set(Attrs *attrs, uint32_t attr, double value)
{
    char *at = (char *)attrs + attributes[attr].offset;
    const int64_t whole = attributes[attr].is_int ? (int64_t)value : 0;
    memcpy(at, attributes[attr].is_int ? (const void *)&whole : &value, sizeof value);
}

uint32_t attr_rope_pairs(const Attrs *attrs)
{
    uint32_t n = ROPE_PAIRS;
    while (n > 0 && attrs->rope_pair[n - 1] == 0) n--;
    return n;
}

static uint32_t find_attr(const char *name, size_t n)
{
    for (uint32_t i = 0; i < ATTRS; i++)
        if (strlen(attributes[i].name) == n && memcmp(attributes[i].name, name, n) == 0) return i;
    return ATTRS;
}

static void add_bounds(AttrBounds bounds)
{
    assert(bounds.attr < ATTRS && table.n < MOST_BOUNDS && bounds.lo <= bounds.hi);
    table.bounds[table.n++] = bounds;
}

/* Parses the first attribute of a list such as "eps[0,1] drop[0,1)", adds it to the table, and
 * returns the rest of the text. */
static const char *read_bounds(const char *at, bool is_given)
{
    AttrBounds b = {.attr = ATTRS, .is_given = is_given};
    const size_t n = strcspn(at, "[(");
    char *end;
    b.attr = find_attr(at, n);
    b.above_lo = at[n] == '(';
    b.lo = strtod(at + n + 1, &end);
    assert(*end == ',');
    b.hi = strtod(end + 1, &end);
    assert(*end == ']' || *end == ')');
    b.below_hi = *end == ')';
    add_bounds(b);
    end++;
    return end + strspn(end, " ");
}

static void add_row(const char *ops, const char *given, const char *proven)
{
    const uint32_t first = table.n;
    while (*given != 0) given = read_bounds(given, true);
    while (*proven != 0) proven = read_bounds(proven, false);
    for (const char *at = ops; *at != 0;) {
        char name[64];
        const size_t n = strcspn(at, " ");
        assert(n < sizeof name);
        memcpy(name, at, n);
        name[n] = 0;
        const OpKind op = op_find(name);
        assert(op != OP_none && table.of[op].n == 0);
        table.of[op].first = first, table.of[op].n = table.n - first;
        at += n + strspn(at + n, " ");
    }
}

static void build(void)
{
    for (uint32_t i = 0; i < N_ROWS; i++) add_row(rows[i].ops, rows[i].given, rows[i].proven);
    const uint32_t scale = table.n, block = scale + 1;
    add_bounds((AttrBounds){ATTR_scale, false, true, false, 0, 1e300});
    add_bounds((AttrBounds){ATTR_group, false, false, false, 1, 64});
    const uint32_t pairs = table.n;
    add_bounds((AttrBounds){ATTR_scale, false, true, false, 0, 1e300});
    add_bounds((AttrBounds){ATTR_group, false, false, false, 2, 64});
    for (int op = 0; op < OP_COUNT; op++) {
        const Scaling scaling = op_info((OpKind)op)->scaling;
        if (scaling == SCALING_none) continue;
        table.of[op].first = scaling == SCALING_blocks  ? block
                             : scaling == SCALING_pairs ? pairs
                                                        : scale;
        table.of[op].n = scaling == SCALING_pairs ? 2 : 1;
    }
}

/* Returns the bounds of attribute `accumulate`, a bit mask over the outputs: 0 to 2^n_out - 1, or
 * only 0 if the op cannot add to its outputs. */
static AttrBounds accumulate_bounds(OpKind op)
{
    const OpInfo *info = op_info(op);
    const bool adds = (info->flags & (OP_ACCUMULATES | OP_MERGES)) != 0;
    return (AttrBounds){ATTR_accumulate, false, false,
                        false,           0,     adds ? (double)((1u << info->sig.n_out) - 1) : 0};
}

bool op_attr_bounds(OpKind op, uint32_t attr, AttrBounds *bounds)
{
    pthread_once(&once, build);
    assert(op < OP_COUNT && attr < ATTRS);
    for (uint32_t i = 0; i < table.of[op].n; i++)
        if (table.bounds[table.of[op].first + i].attr == attr) {
            *bounds = table.bounds[table.of[op].first + i];
            return true;
        }
    *bounds = accumulate_bounds(op);
    return attr == ATTR_accumulate && bounds->hi > 0;
}

static bool within(const AttrBounds *b, double x)
{
    return (b->above_lo ? x > b->lo : x >= b->lo) && (b->below_hi ? x < b->hi : x <= b->hi);
}

/* Checks rope_pair, factors for RoPE frequencies: they must keep frequencies finite, and
 * rope_factor may not scale the same frequencies again. Returns an error message, or NULL. */
static const char *pairs_fault(OpKind op, const Attrs *a)
{
    AttrBounds ignored;
    const uint32_t n = attr_rope_pairs(a);
    if (n > 0 && !op_attr_bounds(op, ATTR_rope_dims, &ignored)) return "has no attribute rope_pair";
    for (uint32_t i = 0; i < n; i++)
        if (!rope_pair_fits(a->rope_pair[i])) return "rope_pair must be between 0.001 and 1000000";
    if (n > 0 && a->rope_factor != 0)
        return "leave out rope_pair or rope_factor: only one of them is allowed";
    return NULL;
}

/* Checks RoPE for image patches: rows and columns go together. In an image encoder (`count`: the
 * side of the square of patches that are merged later), both are multiples of it, and some pairs
 * must rotate by row. Returns an error message, or NULL. */
static const char *grid_fault(OpKind op, const Attrs *a)
{
    if (op != OP_rope && op != OP_rope_grad) return NULL;
    if ((a->rows == 0) != (a->columns == 0)) return "give both rows and columns, or neither";
    if (a->rows == 0 && (a->first != 0 || a->count != 0 || a->lo != 0 || a->hi != 0))
        return "first, count, lo and hi are allowed only with rows and columns";
    if (a->count != 0 && (a->rows % a->count != 0 || a->columns % a->count != 0))
        return "rows and columns must be multiples of count";
    if (a->count != 0 && (a->first != 0 || a->lo == a->hi))
        return "with count, first must be 0 and lo must differ from hi";
    return NULL;
}

/* Checks RoPE scaling for longer contexts: rope_low, rope_high and rope_context have no effect
 * without rope_factor. Returns an error message, or NULL. */
static const char *ramp_fault(OpKind op, const Attrs *a)
{
    AttrBounds ignored;
    if (!op_attr_bounds(op, ATTR_rope_factor, &ignored)) return NULL;
    if (a->rope_yarn != 0 && (a->rope_factor < 1 || a->theta <= 1 || a->rope_low <= 0))
        return "rope_yarn needs rope_factor of 1 or more, theta above 1 and rope_low above 0";
    if (a->rope_factor == 0 && (a->rope_low != 0 || a->rope_high != 0 || a->rope_context != 0))
        return "rope_low, rope_high and rope_context need rope_factor";
    if (a->rope_factor == 0) return NULL;
    if (a->rope_factor < 1) return "rope_factor must be 1 or more; 0: no scaling";
    if (a->rope_context < 1) return "rope_factor needs rope_context of 1 or more";
    return a->rope_low > a->rope_high ? "rope_low must not be above rope_high" : NULL;
}

/* Checks routing with groups of experts: top_groups and sigmoid have no effect without
 * expert_groups. Returns an error message, or NULL. */
static const char *groups_fault(const Attrs *a)
{
    if (a->expert_groups == 0 && (a->top_groups != 0 || a->sigmoid != 0))
        return "top_groups and sigmoid need expert_groups";
    if (a->expert_groups != 0 && (a->top_groups < 1 || a->top_groups > a->expert_groups))
        return "expert_groups needs top_groups between 1 and expert_groups";
    return NULL;
}

/* Returns an error message about attributes that contradict each other, or NULL. */
static const char *relation_fault(OpKind op, const Attrs *a)
{
    if (pairs_fault(op, a)) return pairs_fault(op, a);
    if (grid_fault(op, a)) return grid_fault(op, a);
    if (ramp_fault(op, a)) return ramp_fault(op, a);
    if (groups_fault(a)) return groups_fault(a);
    if (a->rope_dims % 2 != 0) return "rope_dims must be even: pairs of elements turn";
    if (a->lo > a->hi) return "lo must not be above hi";
    if (a->chunks == 1) return "chunks must be 0 or 2";
    return NULL;
}

static bool report_bounds(OpKind op, const AttrBounds *b, double x, Str *why)
{
    str_print(why, "%s has %s = %.10g, which must be %s %.10g and %s %.10g", op_info(op)->name,
              attr_name(b->attr), x, b->above_lo ? "above" : "at least", b->lo,
              b->below_hi ? "below" : "at most", b->hi);
    return false;
}

bool op_attrs_fit(OpKind op, const Attrs *attrs, Str *why)
{
    pthread_once(&once, build);
    assert(op < OP_COUNT);
    uint64_t is_set = 0;
    _Static_assert(ATTRS <= 64, "one bit for each attribute");
    for (uint32_t i = 0; i < ATTRS; i++)
        if (attr_get(attrs, i) != 0) is_set |= UINT64_C(1) << i;
    for (uint32_t i = 0; i < table.of[op].n; i++) {
        const AttrBounds *b = &table.bounds[table.of[op].first + i];
        const double x = attr_get(attrs, b->attr);
        is_set &= ~(UINT64_C(1) << b->attr);
        if (!within(b, x)) return report_bounds(op, b, x, why);
    }
    const AttrBounds adds = accumulate_bounds(op);
    const double accumulate = (double)attrs->accumulate;
    if (adds.hi > 0) is_set &= ~(UINT64_C(1) << ATTR_accumulate);
    if (adds.hi > 0 && !within(&adds, accumulate)) return report_bounds(op, &adds, accumulate, why);
    for (uint32_t i = 0; i < ATTRS && is_set != 0; i++)
        if (is_set >> i & 1) {
            str_print(why, "%s has no attribute %s", op_info(op)->name, attr_name(i));
            return false;
        }
    const char *fault = relation_fault(op, attrs);
    if (fault != NULL) str_print(why, "%s: %s", op_info(op)->name, fault);
    return fault == NULL;
}

bool op_attrs_match(OpKind op, const Binding *b, const Attrs *attrs)
{
    const int64_t *size = b->size, side = attrs->h_kernel;
    /* ops that only read quantised values have no index B; only "squares" ops have C */
    if (op_has_pairs(op))
        return 2 * size['A'] == attrs->group && (size['B'] == 0 || size['B'] == attrs->group) &&
               (size['C'] == 0 || size['C'] == attrs->group);
    if (op_info(op)->flags & OP_BLOCKS) return size['B'] == attrs->group;
    if (op == OP_rope || op == OP_rope_grad) {
        const int64_t pairs = attr_rope_pairs(attrs);
        const int64_t turned = attrs->rope_dims ? attrs->rope_dims : size['E'];
        /* in an image encoder, some pairs must be left to rotate by column */
        if (attrs->rows > 0 && 2 * attrs->hi + (attrs->count > 0 ? 2 : 0) > turned) return false;
        return turned <= size['E'] && (pairs == 0 || 2 * pairs == turned);
    }
    if (op == OP_merge_tokens || op == OP_merge_tokens_grad) return size['I'] == attrs->count;
    if (op == OP_segment || op == OP_segment_grad) return attrs->segment < size['F'];
    if (op == OP_turn_poles || op == OP_turn_poles_grad)
        return attrs->h_before + attrs->h_after <= size['h'];
    if (op == OP_xent_loss_mean || op == OP_xent_loss_mean_grad)
        return attrs->first <= size['T'] - size['s'];
    if (op == OP_image)
        return size['P'] == attrs->rows * attrs->columns && size['C'] == attrs->count * side * side;
    if (op == OP_offsets)
        return size['R'] == (2 * side - 1) * (2 * attrs->w_kernel - 1) && size['K'] == 2;
    return true;
}
