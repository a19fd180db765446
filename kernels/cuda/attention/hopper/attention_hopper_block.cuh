/* Common code of the kernels of attention for compute capability 9.0. A block has three warpgroups:
 * the first one fetches, the other two multiply. Shared memory holds barriers, permanent tiles, and
 * a ring of slots. A permanent tile has HOPPER_ROWS rows, half of them for each multiplying
 * warpgroup, and stays until the block ends. All other tiles pass through the slots of the ring. */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_HOPPER_ATTENTION_HOPPER_BLOCK_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_HOPPER_ATTENTION_HOPPER_BLOCK_CUH

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/hopper/hopper.cuh"

enum {
    HOPPER_ROWS = ORDER_ROWS,
    HOPPER_SLOTS = 4,
    HOPPER_THREADS = 3 * WARPGROUP,
    HOPPER_CONSUMER_WARPS = 8,
    HOPPER_BARRIER_BYTES = SWIZZLE_BYTES, /* a whole swizzle pattern, so that the data after the
                                             barriers begins at a multiple of one */
    /* registers of each thread at the start; the block's 384 threads may have 65,536 in all */
    HOPPER_REGISTERS = 168,
    HOPPER_PRODUCER_REGISTERS = 24,
    HOPPER_CONSUMER_REGISTERS = 240,
    /* id of the barrier for the first warpgroup's turns; the second one's has the next id; the
     * warpgroups use barriers 1 and 2 for themselves */
    HOPPER_TURN = 3
};

/* The multiplying warpgroups take over registers that the fetching one gives up. A warpgroup that
 * requests more registers than are free waits forever. */
static_assert(HOPPER_PRODUCER_REGISTERS + 2 * HOPPER_CONSUMER_REGISTERS <= 3 * HOPPER_REGISTERS,
              "the warpgroups' registers are more than the block's");

typedef struct HopperShared {
    Shared barriers; /* address of the barrier of the permanent tiles; after it, each slot has two
                        barriers: full, empty */
    Shared spare;    /* address of four bytes that no thread ever writes */
    Shared own, ring;
} HopperShared;

DEVICE HopperShared hopper_shared(Shared memory, int own_bytes)
{
    HopperShared s;
    s.barriers = shared_pattern(memory);
    s.spare = s.barriers + HOPPER_BARRIER_BYTES - 4;
    s.own = s.barriers + HOPPER_BARRIER_BYTES;
    s.ring = s.own + own_bytes;
    return s;
}

/* Returns how many bytes of shared memory a launch needs. */
static inline size_t hopper_shared_bytes(int own_bytes, int slot_bytes)
{
    return (size_t)(SWIZZLE_BYTES + HOPPER_BARRIER_BYTES + own_bytes + HOPPER_SLOTS * slot_bytes);
}

typedef struct HopperSlot {
    Shared at, full, empty;
    uint32_t parity; /* parity of the barrier's phase that ends when the slot is full */
} HopperSlot;

/* Returns the slot of item i in a ring of n slots. */
DEVICE HopperSlot hopper_slot_of(HopperShared s, int n, int i, int slot_bytes)
{
    HopperSlot slot;
    slot.at = s.ring + i % n * slot_bytes;
    slot.full = s.barriers + 8 + i % n * 16;
    slot.empty = slot.full + 8;
    slot.parity = (uint32_t)(i / n) & 1;
    return slot;
}

DEVICE HopperSlot hopper_slot(HopperShared s, int i, int slot_bytes)
{
    return hopper_slot_of(s, HOPPER_SLOTS, i, slot_bytes);
}

/* Initialises the barriers of a ring of n slots. One thread calls this. A slot is full after
 * `fillers` arrivals and after all announced bytes have arrived. */
DEVICE void hopper_barriers(HopperShared s, int n, uint32_t fillers)
{
    barrier_init(s.barriers, 1);
    for (int i = 0; i < n; i++) {
        const HopperSlot slot = hopper_slot_of(s, n, i, 0);
        barrier_init(slot.full, fillers);
        barrier_init(slot.empty, HOPPER_CONSUMER_WARPS);
    }
}

DEVICE void hopper_begin(HopperShared s, uint32_t fillers)
{
    if (threadIdx.x == 0) {
        hopper_barriers(s, HOPPER_SLOTS, fillers);
        barriers_ready();
        shared_to_async();
    }
    __syncthreads();
}

/* Tells the fetching warp that the calling warp has finished with a slot. */
DEVICE void hopper_give_back(HopperSlot slot)
{
    if (threadIdx.x % WARP == 0) barrier_arrive(slot.empty);
}

/* seen: number of keys that each of this thread's two rows may see. by_all: number of keys that all
 * rows of the warpgroup may see. */
typedef struct HopperRows {
    int seen[2], by_all;
} HopperRows;

DEVICE HopperRows hopper_rows(const AttentionArgs *a, const AttentionPlace *at, int row)
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP % 4;
    HopperRows r;
    r.by_all = (int)attention_visible(a, at->first + row);
    r.seen[0] = (int)attention_visible(a, at->first + row + warp * 16 + lane / 4);
    r.seen[1] = (int)attention_visible(a, at->first + row + warp * 16 + lane / 4 + 8);
    return r;
}

/* Returns how many keys a block of queries reads. */
DEVICE int64_t hopper_keys(const AttentionArgs *a, const AttentionPlace *at)
{
    const int64_t last = at->first + HOPPER_ROWS;
    return attention_visible(a, (last < a->S ? last : a->S) - 1);
}

/* Returns how many of the block's keys query 0 sees. This may be negative, or more than all keys. A
 * query that is q tokens behind query 0 sees q more of them, at most all. */
DEVICE int hopper_limit(const AttentionArgs *a, const AttentionPlace *at)
{
    const int64_t most = 2 * HOPPER_ROWS, least = -INT64_C(0x7fffffff);
    int64_t limit = a->causal ? a->position + 1 - at->first : most;
    return (int)(limit < least ? least : limit < most ? limit : most);
}

/* Makes the map that describes a tensor [E, heads, rows, B] (E changes fastest) to the copying
 * unit. Each copied box has box_rows rows of one head and 64 columns. */
static inline bool hopper_map(TensorMap *map, const AttentionArgs *a, const void *at, int64_t heads,
                              int64_t rows, uint32_t box_rows, const CudaContext *cuda,
                              CudaError *error)
{
    TensorShape t;
    memset(&t, 0, sizeof t);
    t.at = at;
    t.dtype = a->dtype;
    t.dim[0] = (uint64_t)a->E, t.dim[1] = (uint64_t)heads;
    t.dim[2] = (uint64_t)rows, t.dim[3] = (uint64_t)a->B;
    t.stride[0] = (uint64_t)a->E * 2;
    t.stride[1] = t.stride[0] * t.dim[1];
    t.stride[2] = t.stride[1] * t.dim[2];
    t.box[0] = SWIZZLE_COLUMNS, t.box[1] = 1, t.box[2] = box_rows, t.box[3] = 1;
    return tensor_map_make(map, &t, cuda, error);
}

#endif
