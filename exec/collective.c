/* Moves the bytes of a communication whose members are all in this process. Sums are computed
 * element by element in the order of ranks. So the result does not depend on the backend, nor on
 * how a buffer is divided into blocks. */
#include <assert.h>
#include <string.h>

#include "exec/ready.h"
#include "kernels/number.h"

enum { BLOCK = 256 };

#define REDUCE_TYPE(name, type)                                                                    \
    static void reduce_##name(Reduce reduce, type *out, const void *const *part, uint32_t n_parts, \
                              uint64_t n)                                                          \
    {                                                                                              \
        bool is_max = reduce == REDUCE_max;                                                        \
        type block[BLOCK];                                                                         \
        for (uint64_t from = 0; from < n; from += BLOCK) {                                         \
            uint64_t count = n - from < BLOCK ? n - from : BLOCK;                                  \
            memcpy(block, (const type *)part[0] + from, count * sizeof(type));                     \
            for (uint32_t p = 1; p < n_parts; p++) {                                               \
                const type *x = (const type *)part[p] + from;                                      \
                if (is_max)                                                                        \
                    for (uint64_t i = 0; i < count; i++)                                           \
                        block[i] = x[i] > block[i] || x[i] != x[i] ? x[i] : block[i];              \
                else                                                                               \
                    for (uint64_t i = 0; i < count; i++) block[i] += x[i];                         \
            }                                                                                      \
            for (uint64_t i = 0; reduce == REDUCE_mean && i < count; i++)                          \
                block[i] /= (type)n_parts;                                                         \
            memcpy(out + from, block, count * sizeof(type));                                       \
        }                                                                                          \
    }
REDUCE_TYPE(f32, float)
REDUCE_TYPE(f64, double)

/* Reduces numbers of low precision. They are added in fp32, and the sum is rounded once. */
static void reduce_low(DType dtype, Reduce reduce, void *out, const void *const *part,
                       uint32_t n_parts, uint64_t n)
{
    bool is_max = reduce == REDUCE_max;
    float block[BLOCK], wide[BLOCK];
    uint64_t element = dtype_bytes(dtype);
    for (uint64_t from = 0; from < n; from += BLOCK) {
        uint64_t count = n - from < BLOCK ? n - from : BLOCK;
        for (uint32_t p = 0; p < n_parts; p++) {
            const char *x = (const char *)part[p] + from * element;
            number_widen(dtype, x, p == 0 ? block : wide, (int64_t)count);
            for (uint64_t i = 0; p > 0 && i < count; i++) {
                if (!is_max)
                    block[i] += wide[i];
                else if (wide[i] > block[i] || wide[i] != wide[i])
                    block[i] = wide[i];
            }
        }
        for (uint64_t i = 0; reduce == REDUCE_mean && i < count; i++) block[i] /= (float)n_parts;
        number_round(dtype, block, (char *)out + from * element, (int64_t)count);
    }
}

void reduce_in_order(DType dtype, Reduce reduce, void *out, const void *const *part,
                     uint32_t n_parts, uint64_t n)
{
    assert(n_parts > 0);
    assert(number_is_real(dtype));
    if (dtype == DT_f32)
        reduce_f32(reduce, out, part, n_parts, n);
    else if (dtype == DT_f64)
        reduce_f64(reduce, out, part, n_parts, n);
    else
        reduce_low(dtype, reduce, out, part, n_parts, n);
}

static void gather(const Comm *const *member, uint32_t n)
{
    uint64_t bytes = member[0]->in_bytes;
    for (uint32_t to = 0; to < n; to++)
        for (uint32_t from = 0; from < n; from++)
            memmove(member[to]->out + from * bytes, member[from]->in, bytes);
}

/* Adds up elements `from` to from + n - 1 of all inputs. Writes the sums to the output of member
 * `to`. */
static void reduce_piece(const Comm *const *member, uint32_t n_members, uint32_t to, uint64_t from,
                         uint64_t n)
{
    const void *part[MAX_MEMBERS];
    uint64_t element = dtype_bytes(member[0]->dtype);
    for (uint32_t i = 0; i < n_members; i++) part[i] = member[i]->in + from * element;
    reduce_in_order(member[0]->dtype, member[0]->reduce, member[to]->out, part, n_members, n);
}

static void all_reduce(const Comm *const *member, uint32_t n_members)
{
    /* some members have input and output in the same memory: read a block from all members before
     * writing it to any */
    uint64_t element = dtype_bytes(member[0]->dtype), n = member[0]->in_bytes / element;
    double block[BLOCK]; /* room for BLOCK elements of any dtype */
    for (uint64_t from = 0; from < n; from += BLOCK) {
        const void *part[MAX_MEMBERS];
        uint64_t count = n - from < BLOCK ? n - from : BLOCK;
        for (uint32_t i = 0; i < n_members; i++) part[i] = member[i]->in + from * element;
        reduce_in_order(member[0]->dtype, member[0]->reduce, block, part, n_members, count);
        for (uint32_t i = 0; i < n_members; i++)
            memcpy(member[i]->out + from * element, block, count * element);
    }
}

static void all_to_all(const Comm *const *member, uint32_t n)
{
    uint64_t bytes = member[0]->in_bytes / n;
    for (uint32_t to = 0; to < n; to++)
        for (uint32_t from = 0; from < n; from++)
            memcpy(member[to]->out + from * bytes, member[from]->in + to * bytes, bytes);
}

/* The input of a member consists of two strips that its neighbours need. Strip 0 goes to the next
 * member, strip 1 to the previous one. A member without a neighbour gets a strip of zeros. */
static void exchange_strips(const Comm *const *member, uint32_t n)
{
    const uint64_t bytes = member[0]->in_bytes / 2;
    if (!member[0]->wraps) {
        memset(member[0]->out, 0, bytes);
        memset(member[n - 1]->out + bytes, 0, bytes);
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t next = (i + 1) % n, previous = (i + n - 1) % n;
        if (next || member[0]->wraps) memcpy(member[next]->out, member[i]->in, bytes);
        if (i || member[0]->wraps)
            memcpy(member[previous]->out + bytes, member[i]->in + bytes, bytes);
    }
}

void collective_move(const Comm *const *member, uint32_t n)
{
    const Comm *one = member[0];
    assert(n > 0 && n <= MAX_MEMBERS);
    if (one->op == OP_all_gather) {
        gather(member, n);
    } else if (one->op == OP_reduce_scatter) {
        uint64_t piece = one->out_bytes / dtype_bytes(one->dtype);
        for (uint32_t i = 0; i < n; i++) reduce_piece(member, n, i, i * piece, piece);
    } else if (one->op == OP_all_reduce) {
        all_reduce(member, n);
    } else if (one->op == OP_all_to_all) {
        all_to_all(member, n);
    } else if (one->op == OP_exchange_uneven) {
        uneven_move(member, n);
    } else if (one->op == OP_halo_exchange) {
        exchange_strips(member, n);
    } else if (one->op == OP_rotate) {
        for (uint32_t i = 0; i < n; i++)
            memcpy(member[(i + 1) % n]->out, member[i]->in, one->in_bytes);
    } else {
        assert(n == 2 && one->op == OP_send);
        memmove(member[1]->out, one->in, one->in_bytes);
    }
}
