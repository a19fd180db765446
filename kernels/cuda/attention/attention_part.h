/* Attention of all queries to a part of the keys (context parallelism) is computed by several calls
 * of plain attention. In one call, the queries are contiguous in the whole sequence, and so are the
 * keys. A call may also cover two chunks at once in two cases: all its queries see the same keys,
 * or its queries and keys are the same tokens. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_ATTENTION_PART_H
#define TANDEM_KERNELS_CUDA_ATTENTION_ATTENTION_PART_H

#include "kernels/kernel.h"

enum { PART_ALL = 2 }; /* used in place of a chunk's index: both chunks together */

typedef struct PartCalls {
    OpKind op; /* OP_attention, or the op of its gradient */
    const KernelArgs *args;
    KernelArgs call; /* the arguments of the newest call; they include no scratch memory */
    int64_t i;
} PartCalls;

static inline void attention_part_calls(PartCalls *at, OpKind op, const KernelArgs *args)
{
    at->op = op;
    at->args = args;
    at->i = 0;
}

typedef struct PartChunk {
    int64_t first, n, start; /* index of the chunk's first token among the rank's tokens; number of
                                tokens; index of the first token in the whole sequence */
} PartChunk;

/* Returns chunk i of the tokens that `letter` counts. With PART_ALL it returns all these tokens as
 * one chunk. */
static inline PartChunk part_chunk(const KernelArgs *args, char letter, uint32_t i)
{
    const unsigned char l = (unsigned char)letter;
    const int64_t n = args->size[l], half = n / 2;
    PartChunk c;
    c.first = i == 1 ? half : 0;
    c.n = i == PART_ALL ? n : i == 1 ? n - half : half;
    c.start = i == 1 ? args->second[l] : args->start[l];
    return c;
}

static inline uint32_t part_n_chunks(const KernelArgs *args, char letter)
{
    const unsigned char l = (unsigned char)letter;
    return args->second[l] == args->start[l] + args->size[l] / 2 ? 1 : 2;
}

static inline bool part_same_tokens(const KernelArgs *args)
{
    return args->size['s'] == args->size['T'] && args->start['s'] == args->start['T'] &&
           args->second['s'] == args->second['T'];
}

/* Returns the number of arguments, without scratch memory. */
static inline uint32_t part_n_arguments(OpKind op)
{
    return op == OP_attention ? 5 : 9;
}

/* Returns true if the rows of argument i are queries, and false if they are keys. */
static inline bool part_is_of_queries(OpKind op, uint32_t i)
{
    const uint32_t keys = op == OP_attention ? 1 << 1 | 1 << 2 : 1 << 2 | 1 << 3 | 1 << 7 | 1 << 8;
    return !(keys >> i & 1);
}

/* Moves the pointer of argument i to row `first` of sequence b, and sets its number of elements to
 * that of `part` rows. */
static inline void part_move(KernelArgs *to, uint32_t i, int64_t b, int64_t n, int64_t first,
                             int64_t part)
{
    const int64_t row = to->elements[i] / (to->size['b'] * n);
    to->ptr[i] = (char *)to->ptr[i] + (b * n + first) * row * dtype_bytes(to->dtype[i]);
    to->elements[i] = part * row;
}

/* Returns the arguments of the call that computes these queries and keys of sequence b. */
static inline KernelArgs part_take(OpKind op, const KernelArgs *args, int64_t b, PartChunk q,
                                   PartChunk k)
{
    KernelArgs call = *args;
    for (uint32_t i = 0; i < part_n_arguments(op); i++) {
        const bool of_queries = part_is_of_queries(op, i);
        part_move(&call, i, b, args->size[of_queries ? 's' : 'T'], of_queries ? q.first : k.first,
                  of_queries ? q.n : k.n);
    }
    call.size['b'] = 1, call.start['b'] += b;
    call.size['s'] = q.n, call.start['s'] = q.start, call.second['s'] = q.start + q.n / 2;
    call.size['T'] = k.n, call.start['T'] = k.start, call.second['T'] = k.start + k.n / 2;
    /* Every query sees every key, so the mask and the positions do not matter. Without them, more
     * calls have equal names and use one stored choice of kernel. */
    if (args->attrs.drop == 0 && q.start >= k.start + k.n) {
        call.attrs.causal = 0;
        call.start['s'] = call.start['T'] = 0;
        call.second['s'] = q.n / 2, call.second['T'] = k.n / 2;
    }
    return call;
}

/* Returns true if every query of chunk q sees all keys of chunk k. */
static inline bool part_sees_all(const KernelArgs *args, PartChunk q, PartChunk k)
{
    return !args->attrs.causal || q.start >= k.start + k.n;
}

/* Returns true if no query of chunk q sees any key of chunk k. */
static inline bool part_sees_none(const KernelArgs *args, PartChunk q, PartChunk k)
{
    return args->attrs.causal && q.start + q.n <= k.start;
}

/* Returns true if one call can compute several chunks: there is no dropout, and all their queries
 * see the same keys. Sets *q and *k to the indices of these chunks. */
static inline bool part_is_one_call(const KernelArgs *args, uint32_t *q, uint32_t *k)
{
    const PartChunk q0 = part_chunk(args, 's', 0), q1 = part_chunk(args, 's', 1);
    const PartChunk k0 = part_chunk(args, 'T', 0), k1 = part_chunk(args, 'T', 1);
    if (args->attrs.drop > 0 || part_n_chunks(args, 's') != 2 || part_n_chunks(args, 'T') != 2)
        return false;
    *q = part_sees_none(args, q0, k0) && part_sees_none(args, q0, k1) ? 1 : PART_ALL;
    *k = part_sees_none(args, q0, k1) && part_sees_none(args, q1, k1) ? 0 : PART_ALL;
    return (*q == 1 || (part_sees_all(args, q0, k0) && (*k == 0 || part_sees_all(args, q0, k1)))) &&
           part_sees_all(args, q1, k0) && (*k == 0 || part_sees_all(args, q1, k1));
}

/* Returns true if a single call can compute all queries and keys. */
static inline bool part_is_whole(const KernelArgs *args)
{
    return args->attrs.drop == 0 && (part_same_tokens(args) || !args->attrs.causal);
}

/* Sets at->call to the next call. Returns false if there is no further call. */
static inline bool attention_part_next(PartCalls *at)
{
    const KernelArgs *args = at->args;
    uint32_t q = PART_ALL, k = PART_ALL;
    const uint32_t nq = part_n_chunks(args, 's'), nk = part_n_chunks(args, 'T');
    if (part_is_whole(args)) {
        at->call = *args;
        at->call.start['s'] = at->call.start['T'] = 0;
        at->call.second['s'] = args->size['s'] / 2, at->call.second['T'] = args->size['T'] / 2;
        at->call.n_args = part_n_arguments(at->op);
        return at->i++ == 0;
    }
    const bool one = part_is_one_call(args, &q, &k);
    for (; at->i < args->size['b'] * 4; at->i++) {
        const int64_t pair = at->i % 4;
        if (!one) {
            q = nq == 1 ? PART_ALL : (uint32_t)(pair / 2);
            k = nk == 1 ? PART_ALL : (uint32_t)(pair % 2);
        }
        /* visit each pair of chunks once, although PART_ALL stands for two chunks */
        if ((q == PART_ALL && pair / 2 > 0) || (k == PART_ALL && pair % 2 > 0) || (one && pair > 0))
            continue;
        const PartChunk of_q = part_chunk(args, 's', q), of_k = part_chunk(args, 'T', k);
        if (of_q.n == 0 || of_k.n == 0 || part_sees_none(args, of_q, of_k)) continue;
        at->call = part_take(at->op, args, at->i / 4, of_q, of_k);
        at->call.n_args = part_n_arguments(at->op);
        at->i++;
        return true;
    }
    return false;
}

#endif
