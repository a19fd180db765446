/* Binds ops to dimensions: finds the size of each index letter in the op's signature. Also answers
 * questions about an op from its signature and its attributes. */
#include "planner/ir/op/op.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "planner/ir/op/bound.h"
#include "planner/ir/op/op_private.h"
#include "planner/ir/window.h"

/* Bindings that were computed are kept in a hash table. The key of a binding is the op with its
 * counts of inputs and outputs, then for each argument its count of dimensions and their sizes. */
enum { KEY_WORDS = 1 + MAX_ARGS * (1 + MAX_DIMS) };
typedef struct BoundKey {
    uint32_t n; /* words in use; 0: some dimensions are unknown, so there is no key */
    int64_t word[KEY_WORDS];
} BoundKey;

/* A result of op_bind that is kept for reuse: equal layers bind the same op to the same dimensions,
 * and every pass binds them again. */
typedef struct BoundShape {
    uint32_t n; /* as in its BoundKey; 0: the entry is empty */
    int64_t word[KEY_WORDS];
    Binding binding;
} BoundShape;

/* The two bindings with the same hash that were used last. A new one replaces the older, so a
 * pointer that op_bound has returned survives the next call. */
typedef struct BoundSet {
    BoundShape of[2];
    uint32_t newest;
} BoundSet;
enum { BOUND_SETS_LOG = 9, BOUND_SETS = 1 << BOUND_SETS_LOG };

/* Each thread has a hash table of BOUND_SETS sets. The table is allocated when the thread first
 * uses it. A thread-local array would be zeroed at the start of every thread, used or not. */
static pthread_key_t bounds_key;
static pthread_once_t bounds_once = PTHREAD_ONCE_INIT;
static void bounds_make_key(void)
{
    if (pthread_key_create(&bounds_key, free) != 0) arena_full();
}
static BoundSet *bounds_of_thread(void)
{
    static _Thread_local BoundSet *bounds;
    if (bounds != NULL) return bounds;
    pthread_once(&bounds_once, bounds_make_key);
    bounds = calloc(BOUND_SETS, sizeof *bounds);
    if (bounds == NULL || pthread_setspecific(bounds_key, bounds) != 0) arena_full();
    return bounds;
}

/* Appends the dimensions of n arguments to the key. Returns false if some are unknown or too
 * many. */
static bool key_add(BoundKey *key, const Dims *dims, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (dims[i].n > MAX_DIMS || !dims[i].at) return false;
        key->word[key->n++] = dims[i].n;
        for (uint32_t d = 0; d < dims[i].n; d++) key->word[key->n++] = dims[i].at[d];
    }
    return true;
}

static void key_make(BoundKey *key, OpKind op, const Dims *in, uint32_t n_in, const Dims *out,
                     uint32_t n_out)
{
    key->n = 0;
    if (n_in + n_out > MAX_ARGS) return;
    key->word[key->n++] =
        (int64_t)op * (MAX_ARGS + 1) * (MAX_ARGS + 1) + n_in * (MAX_ARGS + 1) + n_out;
    if (!key_add(key, in, n_in) || !key_add(key, out, n_out)) key->n = 0;
}

/* Returns the entry of this thread's hash table for the key. */
static BoundSet *set_of(const BoundKey *key)
{
    uint64_t hash = key->n;
    for (uint32_t i = 0; i < key->n; i++)
        hash = (hash ^ (uint64_t)key->word[i]) * UINT64_C(0x9E3779B97F4A7C15);
    return &bounds_of_thread()[hash >> (64 - BOUND_SETS_LOG)];
}

static bool has_key(const BoundShape *bound, const BoundKey *key)
{
    return bound->n == key->n && memcmp(bound->word, key->word, key->n * sizeof *key->word) == 0;
}

const Binding *op_bound(OpKind op, const Dims *in, uint32_t n_in, const Dims *out, uint32_t n_out,
                        Binding *own, Loc loc, Diag *d)
{
    const OpInfo *info = op_info(op);
    if (info->class_ != OP_CLASS_compute && info->class_ != OP_CLASS_contract) {
        if (d)
            diag_error(d, FAULT_input, "shape-mismatch", loc, "the op %s has no index signature",
                       info->name);
        return NULL;
    }
    BoundKey key;
    key_make(&key, op, in, n_in, out, n_out);
    BoundSet *set = NULL;
    if (key.n > 0) {
        set = set_of(&key);
        for (uint32_t i = 0; i < 2; i++) {
            if (!has_key(&set->of[i], &key)) continue;
            set->newest = i;
            return &set->of[i].binding;
        }
    }
    if (!sig_bind(&info->sig, info->name, info->signature, in, n_in, out, n_out, NULL, own, loc, d))
        return NULL;
    if (set == NULL) return own;
    set->newest = 1 - set->newest;
    BoundShape *bound = &set->of[set->newest];
    bound->n = key.n;
    memcpy(bound->word, key.word, key.n * sizeof *key.word);
    bound->binding = *own;
    return &bound->binding;
}

bool op_bind(OpKind op, const Dims *in, uint32_t n_in, const Dims *out, uint32_t n_out, Binding *b,
             Loc loc, Diag *d)
{
    const Binding *bound = op_bound(op, in, n_in, out, n_out, b, loc, d);
    if (bound != NULL && bound != b) *b = *bound;
    return bound != NULL;
}

int op_output_dims(OpKind op, const Binding *b, uint32_t j, int64_t dim[MAX_DIMS])
{
    return sig_output_dims(&op_info(op)->sig, b, j, dim);
}

/* The set of letters that may be split is computed once for each op and kept as bits. Two threads
 * may compute it at the same time, which does no harm, because both get the same result. */
bool op_may_split(OpKind op, char letter)
{
    enum { KNOWN = 1 << 30 };
    static uint32_t letters[OP_COUNT];
    if (letter < 'a' || letter > 'z') return false;
    uint32_t may = __atomic_load_n(&letters[op], __ATOMIC_RELAXED);
    if (may == 0) {
        const Signature *sig = &op_info(op)->sig;
        may = KNOWN;
        for (char l = 'a'; l <= 'z'; l++) may |= (uint32_t)sig_may_split(sig, l) << (l - 'a');
        __atomic_store_n(&letters[op], may, __ATOMIC_RELAXED);
    }
    return may >> (letter - 'a') & 1;
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
        return false; /* h is the height of a field, which has points, not rows */
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
    return WHOLE; /* an op without inputs: each rank computes the whole output */
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
    /* Index F is sliced: the op takes attrs->count of its elements or, if it is the gradient, puts
     * them back. n is the size of the index that the slice has in place of F; 1 if it has none. */
    int64_t n = 1;
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

/* Sets the sizes that an op's attributes state, such as the groups of channels or the window. */
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
