/* Abstract memory: the value in each byte range of the arena, after instructions in array order.
 * (The race proof shows that every legal order gives the same values.) A buffer that is read must
 * hold one whole value of exactly the buffer's shape. A flat buffer may hold several values, one
 * for each parameter. */
#include <assert.h>
#include <string.h>

#include "planner/ir/layout/padding.h"
#include "planner/verify/value/cache.h"

/* ---- shapes ---- */

/* Writes the shape to `plain`, without the deals that do not affect a value. A split dimension
 * keeps its deal only if the deal has a table of intervals or padding. Returns the hash of
 * `plain`. */
static uint32_t hash_shape(const Verifier *v, const Shape *s, Shape *plain)
{
    memset(plain, 0, sizeof *plain);
    plain->n_dims = s->n_dims;
    plain->layout = s->layout;
    for (int d = 0; d < s->n_dims; d++) {
        plain->dim[d] = s->dim[d];
        if (!s->deal[d]) continue;
        bool named = deal_table(&v->g->deals.deals.at[s->deal[d]]) ||
                     deal_is_padded(&v->g->deals, s->deal[d]);
        plain->deal[d] = !layout_axes_split(&s->layout, d) ? deal_whole(&v->g->deals, s->deal[d])
                         : named                           ? s->deal[d]
                                                           : 0;
    }
    return (uint32_t)hash_bytes(plain, sizeof *plain).lo;
}

static void grow_shape_slots(Verifier *v)
{
    uint32_t n = v->n_shape_slots ? 2 * v->n_shape_slots : 256;
    v->shape_slots = arena_array(v->arena, n, sizeof *v->shape_slots);
    v->n_shape_slots = n;
    for (uint32_t i = 1; i < v->shapes.n; i++) {
        Shape plain;
        uint32_t slot = hash_shape(v, &v->shapes.at[i], &plain) & (n - 1);
        while (v->shape_slots[slot]) slot = (slot + 1) & (n - 1);
        v->shape_slots[slot] = i;
    }
}

uint32_t value_shape(Verifier *v, const Shape *s)
{
    Shape plain;
    list_reserve_none(v->arena, &v->shapes);
    if (2 * v->shapes.n >= v->n_shape_slots) grow_shape_slots(v);
    uint32_t slot = hash_shape(v, s, &plain) & (v->n_shape_slots - 1);
    for (; v->shape_slots[slot]; slot = (slot + 1) & (v->n_shape_slots - 1))
        if (shape_equal(&v->shapes.at[v->shape_slots[slot]], &plain)) return v->shape_slots[slot];
    return v->shape_slots[slot] = (uint32_t)list_push(v->arena, &v->shapes, plain);
}

void value_shapes_start(Verifier *v)
{
    v->canon = arena_array(v->arena, v->plan->shapes.n, sizeof *v->canon);
    for (ShapeId i = 0; i < v->plan->shapes.n; i++)
        v->canon[i] = value_shape(v, &v->plan->shapes.at[i]);
    v->param_shape = arena_array(v->arena, v->g->tensors.n, sizeof *v->param_shape);
    for (TensorId t = 1; t < v->g->tensors.n; t++) {
        const Tensor *p = &v->g->tensors.at[t];
        if (p->role != ROLE_param) continue;
        Shape s = {.n_dims = p->n_dims, .layout = p->use};
        for (int d = 0; d < p->n_dims; d++) s.dim[d] = p->dim[d], s.deal[d] = p->deal[d];
        v->param_shape[t] = value_shape(v, &s);
    }
}

/* ---- entries ---- */

const ValueEntry *value_entries(const Verifier *v, const Val *val, ValueEntry *single, uint32_t *n)
{
    if (val->list) {
        *n = v->lists.at[val->list].n;
        return &v->entries.at[v->lists.at[val->list].first];
    }
    *n = 1;
    *single = (ValueEntry){0, val->bytes / dtype_bytes((DType)val->dtype), val->vn, val->shape};
    return single;
}

uint32_t value_add_list(Verifier *v, const ValueEntry *at, uint32_t n)
{
    list_reserve_none(v->arena, &v->lists);
    ValueEntries list = {v->entries.n, n};
    for (uint32_t i = 0; i < n; i++) {
        ValueEntry entry = at[i]; /* a copy, because the list may move when it grows, and `at` may
                                     point into it */
        list_push(v->arena, &v->entries, entry);
    }
    return (uint32_t)list_push(v->arena, &v->lists, list);
}

Val value_sum(Verifier *v, Pc pc, const Val *a, const Val *b)
{
    Val sum = *b;
    sum.bad = a->bad || b->bad;
    if (sum.bad || (!a->list && !b->list)) {
        sum.vn = value_add(a->vn, b->vn);
        return sum;
    }
    bool a_zero = !a->list && value_is_zero(a->vn), b_zero = !b->list && value_is_zero(b->vn);
    if (a_zero) return sum;
    if (b_zero) {
        sum = *a;
        return sum;
    }
    ValueEntry one, two;
    uint32_t n, m;
    const ValueEntry *x = value_entries(v, a, &one, &n), *y = value_entries(v, b, &two, &m);
    ValueEntry *z = arena_array(v->arena, n, sizeof *z);
    bool alike = n == m;
    for (uint32_t i = 0; alike && i < n; i++) {
        bool zero = value_is_zero(x[i].vn) || value_is_zero(y[i].vn);
        alike = x[i].lo == y[i].lo && x[i].n == y[i].n && (zero || x[i].shape == y[i].shape);
        z[i] = value_is_zero(x[i].vn) ? y[i] : x[i];
        z[i].vn = value_add(x[i].vn, y[i].vn);
    }
    if (!alike) {
        verify_report(v, "verify-layout", pc, "adds flat buffers with different layouts");
        sum.bad = true;
        return sum;
    }
    sum.list = value_add_list(v, z, n);
    return sum;
}

/* ---- reading ---- */

/* One access that reads a buffer, and the value that is being put together. */
typedef struct Reading {
    Verifier *v;
    Pc pc;
    BufferId buffer;
    const char *what;
    uint32_t arg;
    uint64_t lo, hi; /* addresses */
    uint32_t shape;  /* the shape of the buffer that is read */
    uint32_t esize;  /* the bytes of an element */
    LIST(ValueEntry) entries;
    const char *fault; /* NULL: none so far */
    Val *culprit;      /* the value in memory that a report names */
} Reading;

static Val *val_at(const Verifier *v, RangeAt at)
{
    const HeldValue *held = range_payload(&v->memory, at);
    return held->val ? &v->vals.at[held->val] : NULL;
}

/* Sets an entry's shape to WHOLE on the axes on which its flat buffer is PARTIAL. Returns false if
 * the layouts of entry and buffer contradict each other. */
static bool strip(Verifier *v, uint32_t shape, uint32_t flat, uint32_t *stripped)
{
    Shape s = *value_shape_at(v, shape);
    const Shape *f = value_shape_at(v, flat);
    for (uint32_t a = 0; a < v->plan->mesh.n_axes; a++) {
        int8_t claim = f->layout.on[a], on = s.layout.on[a];
        if (layout_is_split(claim) || layout_is_partial(claim) != layout_is_partial(on))
            return false;
        if (layout_is_partial(claim) && claim != on) return false;
        if (layout_is_partial(on)) s.layout.on[a] = WHOLE;
    }
    *stripped = value_shape(v, &s);
    return true;
}

/* The inverse of strip: returns the shape that a view of the entry must have. */
static uint32_t unstrip(Verifier *v, uint32_t shape, uint32_t flat)
{
    Shape s = *value_shape_at(v, shape);
    const Shape *f = value_shape_at(v, flat);
    for (uint32_t a = 0; a < v->plan->mesh.n_axes; a++)
        if (layout_is_partial(f->layout.on[a])) s.layout.on[a] = f->layout.on[a];
    return value_shape(v, &s);
}

static bool same_partials(const Verifier *v, uint32_t a, uint32_t b)
{
    const Layout *x = &value_shape_at(v, a)->layout, *y = &value_shape_at(v, b)->layout;
    for (uint32_t i = 0; i < v->plan->mesh.n_axes; i++)
        if ((layout_is_partial(x->on[i]) || layout_is_partial(y->on[i])) && x->on[i] != y->on[i])
            return false;
    return true;
}

static void add_entry(Reading *r, ValueEntry entry)
{
    ValueEntry *last = r->entries.n ? &r->entries.at[r->entries.n - 1] : NULL;
    if (last && value_is_zero(last->vn) && value_is_zero(entry.vn))
        last->n += entry.n;
    else
        list_push(r->v->arena, &r->entries, entry);
}

/* Adds elements [from, to) of a flat value, from element `at` of the result on. Each entry must lie
 * entirely inside or entirely outside this range. */
static bool add_flat(Reading *r, const Val *x, uint64_t from, uint64_t to, uint64_t at)
{
    const ValueEntries list = r->v->lists.at[x->list];
    uint32_t lo = 0, hi = list.n;
    while (lo < hi) { /* finds the first entry that ends after `from` */
        uint32_t middle = lo + (hi - lo) / 2;
        const ValueEntry *p = &r->v->entries.at[list.first + middle];
        if (p->lo + p->n <= from)
            lo = middle + 1;
        else
            hi = middle;
    }
    for (uint32_t i = lo; i < list.n; i++) {
        ValueEntry p = r->v->entries.at[list.first + i];
        if (p.lo >= to) break;
        uint64_t a = p.lo > from ? p.lo : from, b = p.lo + p.n < to ? p.lo + p.n : to;
        if (!value_is_zero(p.vn) && (a != p.lo || b != p.lo + p.n)) return false;
        p.lo = at + (a - from);
        p.n = b - a;
        add_entry(r, p);
    }
    return true;
}

/* Adds addresses [a, b) of one range of the map to a one-dimensional value. */
static bool add_range(Reading *r, RangeAt at, uint64_t a, uint64_t b)
{
    Verifier *v = r->v;
    Val *x = val_at(v, at);
    uint64_t base = ((const HeldValue *)range_payload(&v->memory, at))->base;
    ValueEntry entry = {(a - r->lo) / r->esize, (b - a) / r->esize, {0, 0}, 0};
    x->used = true;
    r->culprit = x;
    if ((a - r->lo) % r->esize || (b - a) % r->esize || dtype_bytes((DType)x->dtype) != r->esize ||
        x->packed_dim ||
        (x->dtype != r->v->p->buffers.at[r->buffer].dtype && (x->list || !value_is_zero(x->vn))))
        return false;
    if (!x->list && value_is_zero(x->vn)) {
        add_entry(r, entry);
        return true;
    }
    if (x->list) {
        const Shape *s = value_shape_at(v, x->shape);
        if (layout_axes_split(&s->layout, -1) || !same_partials(v, x->shape, r->shape))
            return false;
        return add_flat(r, x, (a - base) / r->esize, (b - base) / r->esize, entry.lo);
    }
    if (a != base || b != base + x->bytes) return false;
    if (!strip(v, x->shape, r->shape, &entry.shape)) return false;
    entry.vn = x->vn;
    add_entry(r, entry);
    return true;
}

/* Makes one flat value from all ranges of the map that are read. Sets r->fault if they do not fit
 * together. */
static Val assemble(Reading *r, Val claim)
{
    Verifier *v = r->v;
    RangeAt at = range_find(&v->memory, r->lo);
    do {
        uint64_t a = range_lo(&v->memory, at), b = range_hi(&v->memory, at);
        if (!add_range(r, at, a > r->lo ? a : r->lo, b < r->hi ? b : r->hi)) {
            r->fault = "holds another value";
            return claim;
        }
    } while (range_next(&v->memory, &at) && range_lo(&v->memory, at) < r->hi);
    if (r->entries.n == 1 && value_is_zero(r->entries.at[0].vn)) return claim;
    claim.list = value_add_list(v, r->entries.at, r->entries.n);
    return claim;
}

/* Reads one entry of a flat value, through a view. */
static bool read_entry(Reading *r, const Val *x, uint64_t base, Val *claim)
{
    Verifier *v = r->v;
    if (!x->list || x->packed_dim || dtype_bytes((DType)x->dtype) != r->esize) return false;
    if (layout_axes_split(&value_shape_at(v, x->shape)->layout, -1)) return false;
    uint64_t from = (r->lo - base) / r->esize, n = (r->hi - r->lo) / r->esize;
    const ValueEntries list = v->lists.at[x->list];
    uint32_t lo = 0, hi = list.n;
    while (lo < hi) {
        uint32_t middle = lo + (hi - lo) / 2;
        if (v->entries.at[list.first + middle].lo < from)
            lo = middle + 1;
        else
            hi = middle;
    }
    if (lo == list.n) return false;
    ValueEntry p = v->entries.at[list.first + lo];
    if (p.lo != from || p.n != n || unstrip(v, p.shape, x->shape) != r->shape) return false;
    claim->vn = p.vn;
    return true;
}

static void report_reading(Reading *r, const char *fault)
{
    Verifier *v = r->v;
    const Val *x = r->culprit;
    const char *is = "";
    if (x) {
        AxisSet unsummed = layout_axes_partial(&value_shape_at(v, x->shape)->layout);
        unsummed &= (AxisSet)~layout_axes_partial(&value_shape_at(v, r->shape)->layout);
        if (unsummed)
            fault = arena_print(v->arena, "holds a partial value on %s",
                                mesh_axes_text(v->arena, &v->plan->mesh, unsummed));
        ValueEntry single;
        uint32_t n;
        const ValueEntry *p = value_entries(v, x, &single, &n);
        is = arena_print(v->arena, ": it is %s%s, %s %s%s",
                         n > 1 ? "a flat buffer beginning with " : "",
                         n ? value_name(v, p[0].vn) : "nothing", dtype_name((DType)x->dtype),
                         value_shape_text(v, x->shape), x->packed_dim ? ", packed" : "");
    }
    verify_report(v, "verify-layout", r->pc, "%s %u, buffer %u as %s, %s%s", r->what, r->arg,
                  r->buffer, value_shape_text(v, r->shape), fault, is);
}

/* Returns NULL if all bytes have been written, else the fault. Sets *bad if a byte has a value
 * whose fault was reported before. */
static const char *scan(Reading *r, bool *bad, RangeAt *first)
{
    Verifier *v = r->v;
    RangeAt at = *first = range_find(&v->memory, r->lo);
    const char *fault = NULL;
    do {
        Val *x = val_at(v, at);
        if (!x) fault = "was never written";
        if (x && x->bad) *bad = x->used = true;
    } while (range_next(&v->memory, &at) && range_lo(&v->memory, at) < r->hi);
    return fault;
}

/* True if a value that one stage has computed is read as the part that this stage contributes to a
 * sum over stages. */
static bool is_part_of_stages(const Verifier *v, Pc pc, uint32_t held, uint32_t wanted)
{
    const Instr *in = &v->p->code.at[pc];
    if (in->op != OP_all_reduce || !(in->axes & v->stages)) return false;
    Shape a = *value_shape_at(v, held);
    for (uint32_t axis = 0; axis < v->plan->mesh.n_axes; axis++)
        if ((in->axes & v->stages) >> axis & 1 && a.layout.on[axis] == WHOLE)
            a.layout.on[axis] = PARTIAL_SUM;
    return shape_equal(&a, value_shape_at(v, wanted));
}

/* Returns a flat value as the value of a parameter, if one parameter fills it to the last
 * element. */
static Val lone_entry(const Verifier *v, Val val)
{
    if (!val.list || v->lists.at[val.list].n != 1) return val;
    const ValueEntry *p = &v->entries.at[v->lists.at[val.list].first];
    if (p->lo || p->n * dtype_bytes((DType)val.dtype) != val.bytes || p->shape != val.shape)
        return val;
    val.vn = p->vn;
    val.list = 0;
    return val;
}

Val value_read_at(Verifier *v, Pc pc, BufferId b, uint64_t address, uint64_t bytes, uint32_t shape,
                  const char *what, uint32_t arg)
{
    const Buffer *at = &v->p->buffers.at[b];
    if (bytes) value_spread(v, b);
    Val claim = {.bytes = bytes, .shape = shape, .dtype = (uint8_t)at->dtype, .buffer = b};
    if (!bytes) return claim;
    Reading r = {.v = v,
                 .pc = pc,
                 .buffer = b,
                 .what = what,
                 .arg = arg,
                 .lo = address,
                 .hi = address + bytes,
                 .shape = shape,
                 .esize = dtype_bytes(at->dtype)};
    RangeAt first;
    const char *fault = scan(&r, &claim.bad, &first);
    if (fault) {
        if (!claim.bad && !(v->proofs & VERIFY_races))
            verify_report(v, "verify-read-before-write", pc, "%s %u, buffer %u, %s", what, arg, b,
                          fault);
        claim.bad = true;
    }
    if (claim.bad) return claim;
    Val *x = r.culprit = val_at(v, first);
    uint64_t base = ((const HeldValue *)range_payload(&v->memory, first))->base;
    bool single = range_hi(&v->memory, first) >= r.hi;
    x->used = true;
    if (single && x->dtype != at->dtype && !(!x->list && value_is_zero(x->vn))) {
        report_reading(&r, "holds another dtype");
        claim.bad = true;
        return claim;
    }
    if (single && base == r.lo && x->bytes == bytes && x->shape == shape &&
        (x->packed_dim != 0) == at->packed) {
        claim = *x;
        claim.buffer = b;
        return lone_entry(v, claim);
    }
    if (single && !x->list && value_is_zero(x->vn) && !at->packed) return claim;
    if (single && base == r.lo && x->bytes == bytes && !x->list &&
        is_part_of_stages(v, pc, x->shape, shape)) {
        claim = *x;
        claim.buffer = b;
        claim.shape = shape;
        return claim;
    }
    if (single && !at->packed && read_entry(&r, x, base, &claim)) return claim;
    const Shape *s = value_shape_at(v, shape);
    if (s->n_dims == 1 && !layout_axes_split(&s->layout, 0) && !at->packed)
        claim = assemble(&r, claim);
    else
        r.fault = "holds another value";
    if (r.fault) {
        report_reading(&r, r.fault);
        claim.bad = true;
    }
    return claim;
}

Val value_read(Verifier *v, Pc pc, BufferId b, const char *what, uint32_t arg)
{
    const Buffer *at = &v->p->buffers.at[b];
    const uint32_t shape = v->canon[at->shape];
    const Val *whole = value_whole(v, b, shape);
    if (whole) {
        Val val = *whole;
        val.buffer = b;
        return lone_entry(v, val);
    }
    const Val *known = value_known(v, pc, b);
    if (known) return *known;
    const Val val = value_read_at(v, pc, b, verify_address(v->p, b), at->bytes, shape, what, arg);
    value_remember(v, pc, b, &val);
    return val;
}

/* ---- writing ---- */

static uint32_t present_slot(const Verifier *v, const Val *val)
{
    uint64_t word[4] = {val->vn.hi, val->vn.lo, val->list,
                        (uint64_t)val->shape << 16 | (uint64_t)val->dtype << 8 |
                            (uint8_t)val->packed_dim};
    return (uint32_t)hash_bytes(word, sizeof word).lo & (v->n_present_slots - 1);
}

void value_write_at(Verifier *v, Pc pc, BufferId b, uint64_t address, uint64_t bytes, Val val)
{
    if (!bytes) return;
    val.bytes = bytes;
    val.dtype = (uint8_t)v->p->buffers.at[b].dtype;
    val.writer = pc;
    val.buffer = b;
    val.used = false;
    val.comm = pc && verify_is_comm(&v->p->code.at[pc]);
    HeldValue held = {address, (uint32_t)list_push(v->arena, &v->vals, val)};
    if (!value_write_whole(v, b, bytes, held.val))
        range_assign(&v->memory, address, address + bytes, &held);
    if (v->n_present_slots && !val.bad) v->present_slots[present_slot(v, &val)] = held.val;
}

void value_write(Verifier *v, Pc pc, BufferId b, Val val)
{
    const Buffer *at = &v->p->buffers.at[b];
    val.shape = v->canon[at->shape];
    value_write_at(v, pc, b, verify_address(v->p, b), at->bytes, val);
}

/* True if another buffer that is still in use has the same value in the same layout. (The cache has
 * one entry for each slot, so it may forget a value, but it never returns a wrong one.) */
bool value_present(Verifier *v, Pc pc, const Val *val, BufferId *where)
{
    uint32_t found = v->present_slots[present_slot(v, val)];
    if (!found || val->bad) return false;
    const Val *x = &v->vals.at[found];
    if (!value_same(x->vn, val->vn) || x->list != val->list || x->shape != val->shape ||
        x->packed_dim != val->packed_dim || x->dtype != val->dtype ||
        (!x->list && value_is_zero(x->vn)))
        return false;
    const BufferId parent = v->p->buffers.at[x->buffer].parent, in = parent ? parent : x->buffer;
    const Buffer *root = &v->p->buffers.at[in];
    *where = x->buffer;
    if (v->whole && v->whole[in])
        return v->whole[in] == found && (root->persistent || root->last > pc);
    uint64_t address = verify_address(v->p, x->buffer);
    RangeAt at = range_find(&v->memory, address);
    const HeldValue *held = range_payload(&v->memory, at);
    if (held->val != found || range_lo(&v->memory, at) != address ||
        range_hi(&v->memory, at) < address + x->bytes)
        return false;
    return root->persistent || root->last > pc;
}
