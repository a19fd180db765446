/* The gradients of queries, keys and values in one kernel, with the instructions of compute
 * capability 9.0. Each dtype and head size has its own kernel. A block holds keys, and all blocks
 * add to the gradient of the queries in device memory. */
#include "kernels/cuda/attention/hopper/attention_hopper.h"

#include "kernels/cuda/attention/hopper/attention_hopper_block.cuh"
#include "kernels/cuda/attention/hopper/attention_hopper_sums.cuh"

enum {
    GRAD_SLOTS = 2,
    GRAD_ADDERS = 2,  /* how many threads add to dQ, each in a warp of its own */
    GRAD_MEETING = 4, /* about how many blocks of one group may run at the same time */
    GRAD_SUMS = 32 /* how many numbers of its warpgroup's share of dQ, [64, 64], a thread holds */
};

typedef struct HopperGradArgs {
    TensorMap q, k, v, dout;
    AttentionArgs a;
    GradScratch scratch;
    uint32_t beside;
} HopperGradArgs;

static_assert(GRAD_ADDERS == 2, "attention_hopper_grad.cuh starts two adding threads");

/* Addresses in shared memory, after the barriers of the ring. `ticket` leads to the block's ticket,
 * and the others lead to barriers. A phase of scores_full ends when dS of a tile is stored. A phase
 * of sums_full (one barrier for each adding thread) ends when the block's share of dQ is stored,
 * and a phase of sums_empty when that share has been read. */
typedef struct GradBarriers {
    Shared scores_full, sums_empty, sums_full, ticket;
} GradBarriers;

DEVICE GradBarriers grad_barriers(HopperShared s)
{
    GradBarriers b;
    b.scores_full = s.barriers + 8 + GRAD_SLOTS * 16;
    b.sums_empty = b.scores_full + 8;
    b.sums_full = b.scores_full + 16;
    b.ticket = b.sums_full + GRAD_ADDERS * 8;
    return b;
}

/* Draws the block's ticket and initialises its barriers. Tickets are numbered in the order in which
 * blocks begin, and a block computes the tile that belongs to its ticket. Among the tiles of keys
 * of one head, a later tile has a later ticket (order_place). So a block only waits for blocks with
 * earlier tickets. Blocks with earlier tickets have begun, and stay on their multiprocessors until
 * they end. Hence the unfinished block with the earliest ticket never waits, and it ends. By
 * induction all blocks end, however many fit on the device and in whatever order the device starts
 * them. */
DEVICE void grad_begin(const HopperGradArgs *h, HopperShared s)
{
    const GradBarriers barriers = grad_barriers(s);
    if (threadIdx.x == 0) {
        hopper_barriers(s, GRAD_SLOTS, 1);
        barrier_init(barriers.scores_full, HOPPER_CONSUMER_WARPS);
        barrier_init(barriers.sums_empty, 1);
        for (int i = 0; i < GRAD_ADDERS; i++)
            barrier_init(barriers.sums_full + i * 8, HOPPER_CONSUMER_WARPS);
        barriers_ready();
        shared_to_async();
        *(uint32_t *)shared_pointer(barriers.ticket) = atomicAdd(h->scratch.ticket, 1u);
    }
    __syncthreads();
}

/* grad_group returns the index of the calling thread's computing warpgroup, 0 or 1. grad_row
 * returns the index of the thread's first row among the block's 128 keys. Each call reads the
 * thread's index again, so that no result occupies a register between calls. */
DEVICE int grad_group(void)
{
    return thread_again() / WARPGROUP - 1;
}

DEVICE int grad_row(void)
{
    const int thread = thread_again() - WARPGROUP;
    return thread / WARP * 16 + thread % WARP / 4;
}

/* The work of one block: its tile of keys, and the tiles of queries that it reads. */
typedef struct GradWork {
    AttentionPlace at;
    GradWalk walk;
} GradWork;

/* Reads the ticket again at each call (volatile): fetching, adding and computing warps each call
 * this function. If the compiler read the ticket once for all of them, each kind would keep values
 * in registers that only another kind needs. */
DEVICE uint32_t grad_ticket(HopperShared s)
{
    return *(const volatile uint32_t *)shared_pointer(grad_barriers(s).ticket);
}

DEVICE GradWork grad_work(const HopperGradArgs *h, uint32_t ticket, int columns)
{
    GradWork w;
    w.at = attention_place_of(&h->a, ticket, h->a.T, HOPPER_ROWS, 1, h->beside, false);
    w.walk = grad_walk(&h->a, w.at.first, columns);
    return w;
}

/* A tile of queries: its head, its index among the tiles of that head, and its index among the
 * tiles of all heads. */
typedef struct GradStep {
    int head, tile, of_all;
} GradStep;

DEVICE GradStep grad_first(const AttentionArgs *a, const AttentionPlace *at, const GradWalk *walk)
{
    GradStep s;
    s.head = (int)at->g * (int)a->R;
    s.tile = walk->first;
    s.of_all = ((int)at->b * (int)(a->G * a->R) + s.head) * walk->end + walk->first;
    return s;
}

/* Goes to the next tile. After the last tile of a head, this is the first tile of the next head. */
DEVICE void grad_next(GradStep *s, const GradWalk *walk)
{
    s->tile++;
    s->of_all++;
    if (s->tile < walk->end) return;
    s->tile = walk->first;
    s->of_all += walk->first;
    s->head++;
}

/* Returns how many groups blocks process at the same time. The blocks of one group read the same
 * queries and output gradients and add to the same sums. So it helps if the data of these groups
 * stay in the L2 cache (see order_beside). But with a causal mask, a block with later keys has less
 * work. For each tile of queries it waits until all blocks with earlier keys have added. If all
 * blocks of a group ran at the same time, each of them would last as long as the first one. With
 * many groups at the same time, most blocks begin when those with earlier keys have ended. An H200
 * was measured with 4 sequences of 4,096 tokens and 8 groups of 4 heads. The kernel took 2.25 ms
 * with 3 groups at a time, 1.64 ms with 16, and 1.53 ms with 32. */
static uint32_t grad_beside(const AttentionArgs *a, int head, const CudaContext *cuda)
{
    const int64_t row = 2 * a->E * 2 + head * (int64_t)sizeof(float), groups = a->B * a->G;
    const uint32_t in_cache = order_beside(cuda, a->S * a->R * row, groups, a->causal,
                                           groups * ceil_div(a->T, HOPPER_ROWS));
    const int64_t apart = ceil_div(cuda->n_sms, GRAD_MEETING);
    const uint32_t few_meet = (uint32_t)(apart < groups ? apart : groups);
    return a->causal && few_meet > in_cache ? few_meet : in_cache;
}

#define BODY "kernels/cuda/attention/hopper/attention_hopper_grad.cuh"
#include "kernels/cuda/attention/hopper/attention_hopper_each.cuh"

bool attention_hopper_grad_takes(const AttentionArgs *a, int head, uint64_t scratch_bytes,
                                 const CudaContext *cuda)
{
    if (!attention_hopper_takes(a, head, cuda)) return false;
    const int64_t columns = attention_tile_queries(head), rows = a->B * a->S * a->G * a->R;
    return attention_in_whole_tiles(head, a->S, a->T) && (a->jump == 0 || a->half % columns == 0) &&
           rows / columns < INT64_C(1) << 31 && attention_sums_bytes(rows, head) <= scratch_bytes;
}

bool attention_hopper_grad(const AttentionArgs *a, int head, const CudaContext *cuda,
                           CudaError *error)
{
    HOPPER_CALL(launch_grad);
}
