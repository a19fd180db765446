/* The table of ops, built once from ops.def. Layouts and FLOPs of an op are derived from its
 * row. */
#include "planner/ir/op/op.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/hash.h"
#include "planner/ir/op/op_private.h"
#include "planner/ir/window.h"

typedef struct OpTableRow {
    OpKind op;
    const char *name, *signature, *backward;
    double flops;
    OpClass class_;
    Reduce reduce;
    uint32_t flags;
    bool in_eight_bits; /* the row is a contraction that also has forms for scaled 8-bit numbers */
} OpTableRow;

static const OpTableRow rows[] = {
#define COMPUTE(name, signature, flops, reduce, backward, flags)                                   \
    {OP_##name, #name, signature, backward, flops, OP_CLASS_compute, REDUCE_##reduce, flags, false},
#define CONTRACT(name, signature)                                                                  \
    {OP_##name, #name, signature, "", 2, OP_CLASS_contract, REDUCE_sum, OP_ACCUMULATES, true},
#define PRODUCT(name, signature)                                                                   \
    {OP_##name, #name, signature, "", 2, OP_CLASS_contract, REDUCE_sum, OP_ACCUMULATES, false},
#define RESHAPE(name, flags)                                                                       \
    {OP_##name, #name, "", "", 0, OP_CLASS_reshape, REDUCE_none, flags, false},
#define COMM(name) {OP_##name, #name, "", "", 0, OP_CLASS_comm, REDUCE_none, 0, false},
#include "planner/ir/op/ops.def"
};

enum { N_ROWS = sizeof rows / sizeof rows[0], MAX_TEXT = 64 };
enum {
#define FORM(name) FORM_##name,
    CONTRACT_FORMS(FORM, of) N_FORMS
#undef FORM
};

/* The first caller builds the table, under pthread_once. It never changes afterwards. */
static struct {
    OpInfo info[OP_COUNT];
    char name[OP_COUNT][MAX_TEXT], signature[OP_COUNT][MAX_TEXT]; /* the texts of derived ops */
} table;
static pthread_once_t once = PTHREAD_ONCE_INIT;
const OpInfo *op_rows;

static OpKind find_name(const char *name, size_t n)
{
    for (int op = OP_none + 1; op < OP_COUNT; op++) {
        const char *is = table.info[op].name;
        if (is && strlen(is) == n && memcmp(is, name, n) == 0) return (OpKind)op;
    }
    return OP_none;
}

static void set_signature(OpInfo *info, const char *signature)
{
    info->signature = signature;
    if (!*signature) return;
    bool fine = op_parse_signature(signature, &info->sig, NULL);
    assert(fine);
    (void)fine;
    if (sig_is_windowed(&info->sig)) info->flags |= OP_WINDOWED;
}

static void set_name(OpKind op, const char *of, const char *suffix)
{
    int n = snprintf(table.name[op], MAX_TEXT, "%s%s", of, suffix);
    assert(n > 0 && n < MAX_TEXT);
    table.info[op].name = table.name[op];
}

/* Derives the forms of a contraction (or of one of its gradients) that read scaled numbers. These
 * forms get no backward of their own: their gradient is quantised first, which takes several nodes,
 * and the backward pass writes those nodes. */
static void derive_scaled(OpKind op)
{
    static const char *const suffix[] = {"",       "_tensorwise",       "_rowwise",      "_blocks",
                                         "_pairs", "_tensorwise_along", "_rowwise_along"};
    OpInfo *info = &table.info[op];
    for (int s = 1; s < SCALINGS; s++) info->scaled[s] = (OpKind)((int)op + 3 * s);
    for (int form = 1; form < N_FORMS; form++) {
        const bool lies_along = form >= SCALINGS;
        OpKind scaled = (OpKind)((int)op + 3 * form);
        OpInfo *to = &table.info[scaled];
        *to = *info;
        to->scaling = (Scaling)(lies_along ? form - SCALINGS + 1 : form);
        to->n_backward = 0;
        int n = (int)(strlen(info->name) - (info->name == table.name[op] ? strlen("_d0") : 0));
        char name[MAX_TEXT], signature[MAX_TEXT];
        (void)snprintf(name, sizeof name, "%.*s%s", n, info->name, suffix[form]);
        set_name(scaled, name, info->name + n);
        sig_along(&info->sig, info->signature, lies_along, signature, MAX_TEXT);
        const bool in_pairs = to->scaling == SCALING_pairs;
        if (to->scaling == SCALING_blocks || in_pairs)
            sig_blocks(&info->sig, signature, in_pairs, table.signature[scaled], MAX_TEXT);
        else
            sig_scaled(&info->sig, signature, to->scaling == SCALING_rowwise,
                       table.signature[scaled], MAX_TEXT);
        if (to->scaling == SCALING_blocks || in_pairs) to->flags |= OP_BLOCKS;
        if (in_pairs) to->flops_per_point *= 2; /* a point is a pair of numbers */
        set_signature(to, table.signature[scaled]);
        to->along = scaled;
        if (!lies_along) continue;
        OpInfo *plain = &table.info[info->scaled[to->scaling]];
        if (strcmp(plain->signature, to->signature) != 0) plain->along = scaled;
    }
}

/* Derives the gradients of a contraction. The derivative in one input is the contraction of the
 * output's gradient with the other input. */
static void derive_gradients(OpKind op, bool in_eight_bits)
{
    OpInfo *info = &table.info[op];
    for (int k = 0; k < 2; k++) {
        OpKind gradient = (OpKind)((int)op + 1 + k);
        OpInfo *g = &table.info[gradient];
        *g = *info;
        set_name(gradient, info->name, k == 0 ? "_d0" : "_d1");
        sig_gradient(info->signature, k, table.signature[gradient], MAX_TEXT);
        set_signature(g, table.signature[gradient]);
        g->scaled[SCALING_none] = gradient;
        if (in_eight_bits) derive_scaled(gradient);
    }
    info->scaled[SCALING_none] = op;
    if (in_eight_bits) derive_scaled(op);
    info->n_backward = 2;
    info->backward[0] = (Backward){(OpKind)((int)op + 1), 2, 1, {{WIRE_d, 0}, {WIRE_i, 1}}, {0}};
    info->backward[1] = (Backward){(OpKind)((int)op + 2), 2, 1, {{WIRE_i, 0}, {WIRE_d, 0}}, {1}};
}

/* Checks that a backward op has one output for each gradient to which it contributes, and as many
 * inputs as its wiring lists. */
static void check_backward(const OpInfo *info)
{
    for (uint32_t k = 0; k < info->n_backward; k++) {
        const Backward *w = &info->backward[k];
        const Signature *sig = &table.info[w->op].sig;
        assert(w->op == OP_pass ? w->n_in == 1 && w->n_of == 1 : w->n_in == sig->n_in);
        assert(w->op == OP_pass || w->n_of == sig->n_out);
        for (uint32_t i = 0; i < w->n_in; i++)
            assert(w->in[i].index < (w->in[i].kind == WIRE_i ? info->sig.n_in : info->sig.n_out));
        for (uint32_t i = 0; i < w->n_of; i++) assert(w->of[i] < info->sig.n_in);
    }
}

/* Checks that a row names a reduction if some index occurs only in its inputs. */
static void check_reduced(const OpInfo *info)
{
    const Signature *sig = &info->sig;
    for (uint32_t j = 0; j < sig->n_out; j++)
        for (char l = 'a'; l <= 'z'; l++) {
            bool in = false, out = false;
            for (uint32_t a = 0; a < sig->n_in; a++)
                for (uint32_t i = 0; i < sig->in[a].n_dims; i++)
                    in = in || sig->in[a].dim[i].letter == l;
            for (uint32_t i = 0; i < sig->out[j].n_dims; i++)
                out = out || sig->out[j].dim[i].letter == l;
            assert(!in || out || info->reduce != REDUCE_none);
        }
}

static void build(void)
{
    roles_build();
    table.info[OP_none].name = table.info[OP_none].signature = "";
    for (uint32_t i = 0; i < N_ROWS; i++) {
        OpInfo *info = &table.info[rows[i].op];
        info->name = rows[i].name;
        info->class_ = rows[i].class_;
        info->flops_per_point = rows[i].flops;
        info->reduce = rows[i].reduce;
        info->flags = rows[i].flags;
        set_signature(info, rows[i].signature);
        if (info->class_ == OP_CLASS_contract) derive_gradients(rows[i].op, rows[i].in_eight_bits);
    }
    for (uint32_t i = 0; i < N_ROWS; i++)
        sig_parse_backward(rows[i].backward, &table.info[rows[i].op], find_name);
    for (int op = 0; op < OP_COUNT; op++) {
        check_backward(&table.info[op]);
        check_reduced(&table.info[op]);
    }
}

const OpInfo *op_rows_build(void)
{
    pthread_once(&once, build);
    __atomic_store_n(&op_rows, table.info, __ATOMIC_RELEASE);
    return table.info;
}

/* ---- binding ---- */

/* A stored result of op_bind. Equal layers bind the same op to the same dimensions, and every pass
 * binds them again, so results are reused. */
typedef struct BoundShape {
    OpKind op; /* OP_none: empty */
    uint32_t n_in, n_out;
    uint32_t n[MAX_ARGS];
    int64_t dim[MAX_ARGS][MAX_DIMS];
    Binding binding;
} BoundShape;
enum { BOUNDS = 1024 };

/* Each thread has stored bindings [BOUNDS], whose memory is allocated when the thread first binds.
 * Thread-local memory would be zeroed at the start of every process and thread. */
static pthread_key_t bounds_key;
static pthread_once_t bounds_once = PTHREAD_ONCE_INIT;
static void bounds_make_key(void)
{
    if (pthread_key_create(&bounds_key, free) != 0) arena_full();
}
static BoundShape *bounds_of_thread(void)
{
    static _Thread_local BoundShape *bounds;
    if (bounds != NULL) return bounds;
    pthread_once(&bounds_once, bounds_make_key);
    bounds = calloc(BOUNDS, sizeof *bounds);
    if (bounds == NULL || pthread_setspecific(bounds_key, bounds) != 0) arena_full();
    return bounds;
}

static uint64_t mix_dims(uint64_t hash, const Dims *dims, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        hash = hash_mix(hash, dims[i].n);
        for (uint32_t d = 0; dims[i].at && d < dims[i].n; d++)
            hash = hash_mix(hash, (uint64_t)dims[i].at[d]);
    }
    return hash;
}

static bool has_dims(const BoundShape *bound, uint32_t first, const Dims *dims, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (bound->n[first + i] != dims[i].n ||
            (dims[i].n && memcmp(bound->dim[first + i], dims[i].at, dims[i].n * sizeof(int64_t))))
            return false;
    return true;
}

static void keep_dims(BoundShape *bound, uint32_t first, const Dims *dims, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        bound->n[first + i] = dims[i].n;
        if (dims[i].n) memcpy(bound->dim[first + i], dims[i].at, dims[i].n * sizeof(int64_t));
    }
}

/* True if a BoundShape can hold these dimensions: all are known, and there are not too many. */
static bool can_keep(const Dims *dims, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (dims[i].n > MAX_DIMS || !dims[i].at) return false;
    return true;
}

bool op_bind(OpKind op, const Dims *in, uint32_t n_in, const Dims *out, uint32_t n_out, Binding *b,
             Loc loc, Diag *d)
{
    const OpInfo *info = op_info(op);
    if (info->class_ != OP_CLASS_compute && info->class_ != OP_CLASS_contract)
        return d && diag_error(d, FAULT_input, "shape-mismatch", loc,
                               "the op %s has no index signature", info->name);
    const bool keeps = n_in + n_out <= MAX_ARGS && can_keep(in, n_in) && can_keep(out, n_out);
    uint64_t hash = mix_dims(hash_mix(hash_mix(1, (uint64_t)op), n_in), in, n_in);
    hash = mix_dims(hash_mix(hash, n_out), out, n_out);
    BoundShape *bound = &bounds_of_thread()[hash % BOUNDS];
    if (keeps && bound->op == op && bound->n_in == n_in && bound->n_out == n_out &&
        has_dims(bound, 0, in, n_in) && has_dims(bound, n_in, out, n_out)) {
        *b = bound->binding;
        return true;
    }
    if (!sig_bind(&info->sig, info->name, info->signature, in, n_in, out, n_out, NULL, b, loc, d))
        return false;
    if (!keeps) return true;
    *bound = (BoundShape){.op = op, .n_in = n_in, .n_out = n_out, .binding = *b};
    keep_dims(bound, 0, in, n_in);
    keep_dims(bound, n_in, out, n_out);
    return true;
}

int op_output_dims(OpKind op, const Binding *b, uint32_t j, int64_t dim[MAX_DIMS])
{
    return sig_output_dims(&op_info(op)->sig, b, j, dim);
}

bool op_may_split(OpKind op, char letter)
{
    return sig_may_split(&op_info(op)->sig, letter);
}

bool op_lies_along(OpKind op, uint32_t i)
{
    const OpInfo *info = op_info(op);
    assert(info->scaling != SCALING_none && i < 2);
    const SigTerm *is = &info->sig.in[i], *along = &op_info(info->along)->sig.in[i];
    for (uint32_t d = 0; d < is->n_dims; d++)
        if (is->dim[d].letter != along->dim[d].letter) return false;
    return true;
}

bool op_is_rowwise(OpKind op)
{
    const OpInfo *info = op_info(op);
    const uint32_t other = OP_UPDATES | OP_STATE | OP_SCATTERS | OP_SOURCE | OP_TURNS | OP_INDEXES;
    const Signature *sig = &info->sig;
    if (info->class_ != OP_CLASS_compute || info->reduce != REDUCE_none || info->flags & other)
        return false;
    if (sig->n_in == 0 || sig_uses(sig, 'h'))
        return false; /* an op on fields is not rowwise: its
                       * points are not rows of features */
    for (uint32_t i = 0; i < sig->n_in; i++)
        for (int d = 0; d < sig->in[i].n_dims; d++) {
            const SigDim *dim = &sig->in[i].dim[d];
            if (dim->inner || !sig_term_uses(&sig->out[0], dim->letter)) return false;
        }
    return true;
}

bool op_joins_kernel(OpKind op)
{
    return op_is_rowwise(op) || op_info(op)->flags & OP_IN_KERNEL;
}

bool op_sums_rows(OpKind op, uint32_t j)
{
    const OpInfo *info = op_info(op);
    assert(j < info->sig.n_out);
    return info->flags & OP_IN_KERNEL && op_dim(op, info->sig.n_in + j, INDEX_samples) < 0;
}

int8_t op_axis_layout(OpKind op, const Binding *b, uint32_t arg, char letter)
{
    assert(arg < (uint32_t)b->n_in + b->n_out);
    if (!letter) return WHOLE;
    for (int d = 0; d < b->n_dims[arg]; d++)
        if (b->letter[arg][d] == letter) return SPLIT(d);
    if (arg < b->n_in) return WHOLE;
    for (uint32_t a = 0; a < b->n_in; a++)
        for (int d = 0; d < b->n_dims[a]; d++) {
            if (b->letter[a][d] != letter) continue;
            Reduce reduce = op_info(op)->reduce;
            assert(reduce != REDUCE_none);
            return reduce == REDUCE_max ? PARTIAL_MAX : PARTIAL_SUM;
        }
    return WHOLE; /* the op has no input, so each rank computes the whole output */
}

static bool has_letter(const Binding *b, uint32_t arg, char letter)
{
    for (int d = 0; d < b->n_dims[arg]; d++)
        if (b->letter[arg][d] == letter) return true;
    return false;
}

char op_looked_up(OpKind op, const Binding *b, uint32_t arg)
{
    if (!(op_info(op)->flags & OP_SCATTERS)) return 0;
    for (int d = 0; d < b->n_dims[arg]; d++) {
        bool elsewhere = false;
        for (uint32_t i = 0; i < (uint32_t)b->n_in + b->n_out; i++)
            elsewhere = elsewhere || (i != arg && has_letter(b, i, b->letter[arg][d]));
        if (!elsewhere) return b->letter[arg][d];
    }
    return 0;
}

bool op_takes(OpKind op, const Binding *b, const Attrs *attrs)
{
    const Signature *sig = &op_info(op)->sig;
    int64_t n = 1; /* size of the index that only the larger side has, if any */
    for (uint32_t i = 0; i < b->n_letters; i++) {
        char letter = b->letters[i];
        bool in = sig_term_uses(&sig->in[0], letter), out = sig_term_uses(&sig->out[0], letter);
        if (letter != 'F' && in != out) n = b->size[(int)letter];
    }
    return attrs->first >= 0 && attrs->count == n && attrs->first <= b->size['F'] - n;
}

bool op_sized(Binding *b, const Attrs *attrs)
{
    const struct {
        char letter;
        int64_t size;
    } said[] = {
        {'K', attrs->top_k}, {'m', attrs->capacity}, {'O', attrs->capacity}, {'e', attrs->experts}};
    if (attrs->experts < 1 || attrs->experts > MOST_EXPERTS || attrs->top_k < 1 ||
        attrs->top_k > attrs->experts || attrs->capacity < 1 ||
        attrs->capacity > INT32_MAX / attrs->experts)
        return false;
    if (b->size['N'] && b->size['N'] != attrs->experts) return false;
    const int64_t groups = attrs->expert_groups;
    if (groups < 0 || groups > MOST_EXPERT_GROUPS ||
        (groups > 0 &&
         (attrs->experts % groups != 0 || attrs->top_groups < 1 || attrs->top_groups > groups ||
          attrs->experts / groups * attrs->top_groups < attrs->top_k ||
          (attrs->sigmoid && attrs->experts / groups < 2))))
        return false;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        for (uint32_t k = 0; k < b->n_letters; k++) {
            int64_t *size = &b->size[(int)said[i].letter];
            if (b->letters[k] != said[i].letter) continue;
            if (*size == 0) *size = said[i].size;
            if (*size != said[i].size) return false;
        }
    return true;
}

static bool op_joins(OpKind op)
{
    return op == OP_join_heads || op == OP_join_tokens || op == OP_lead_tokens;
}

static bool is_windowed_attention(OpKind op)
{
    return sig_uses(&op_info(op)->sig, 'X') && sig_uses(&op_info(op)->sig, 'M');
}

/* Sets the sizes that follow from the attributes alone, without the inputs. */
static void known_sizes(OpKind op, const Attrs *attrs, int64_t size['z' + 1])
{
    const Signature *sig = &op_info(op)->sig;
    if (sig_uses(sig, 'G')) size['G'] = attrs->group;
    if (op == OP_pixel_shuffle) size['I'] = attrs->h_kernel, size['J'] = attrs->w_kernel;
    if (op_info(op)->flags & OP_BLOCKS) size['B'] = attrs->group;
    if (op == OP_merge_tokens || op == OP_merge_tokens_grad) size['I'] = attrs->count;
    if (op_has_pairs(op)) size['A'] = attrs->group / 2, size['C'] = attrs->group;
    if (op == OP_resize) size['h'] = attrs->rows, size['w'] = attrs->columns;
    if (!is_windowed_attention(op)) return;
    size['X'] = size['L'] = attrs->h_kernel, size['Y'] = size['M'] = attrs->w_kernel;
    if (op == OP_window_bias_grad) size['R'] = (2 * size['X'] - 1) * (2 * size['Y'] - 1);
    if (sig_uses(sig, 'g')) size['g'] = attrs->group;
}

bool op_infer(OpKind op, const Dims *in, uint32_t n_in, const Attrs *attrs, Binding *b, Loc loc,
              Diag *d)
{
    const OpInfo *info = op_info(op);
    int64_t size['z' + 1] = {0};
    known_sizes(op, attrs, size);
    for (int l = 0; l <= 'z'; l++)
        if (size[l] < 0 || size[l] > 1 << 30)
            return diag_error(d, FAULT_input, "shape-mismatch", loc,
                              "%s (%s): index %c cannot have %lld elements", info->name,
                              info->signature, l, (long long)size[l]);
    if (!sig_bind(&info->sig, info->name, info->signature, in, n_in, NULL, 0, size, b, loc, d))
        return false;
    if (op == OP_concat) b->size['Z'] = b->size['X'] + b->size['Y'];
    if (op_joins(op)) b->size['Z'] = b->size['X'] + b->size['U'];
    if (op == OP_pixel_shuffle) b->size['N'] = b->size['C'] / (b->size['I'] * b->size['J']);
    return true;
}

bool op_grouped(OpKind op, const Binding *b, const Attrs *attrs)
{
    const int64_t *size = b->size;
    if (!op_attrs_match(op, b, attrs)) return false;
    if (sig_uses(&op_info(op)->sig, 'G')) return size['G'] >= 1 && size['C'] % size['G'] == 0;
    if (op == OP_position || op == OP_position_grad || op == OP_balance || op == OP_balance_grad)
        return size['S'] == size['s'];
    if (op == OP_concat) return size['Z'] == size['X'] + size['Y'];
    if (op_joins(op)) return size['Z'] == size['X'] + size['U'];
    if (op == OP_pixel_shuffle || op == OP_pixel_unshuffle)
        return size['N'] * size['I'] * size['J'] == size['C'];
    if (!is_windowed_attention(op)) return true;
    if (size['X'] != attrs->h_kernel || size['Y'] != attrs->w_kernel) return false;
    if (op == OP_window_bias || op == OP_window_bias_grad)
        return size['R'] == (2 * size['X'] - 1) * (2 * size['Y'] - 1);
    return size['L'] == size['X'] && size['M'] == size['Y'] && size['g'] == attrs->group &&
           size['X'] * size['Y'] <= WINDOW_MOST_POINTS &&
           size['X'] * size['Y'] * size['E'] <= WINDOW_MOST_FEATURES;
}
