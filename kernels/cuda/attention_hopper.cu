/* Attention, forward, by the instructions of compute capability 9.0: a kernel for each type and
 * head size. A block is three warpgroups: one that fetches, two that multiply. */
#include "kernels/cuda/attention_hopper.h"

#include "kernels/cuda/hopper.cuh"

enum {
    HOPPER_QUERIES = 128,
    HOPPER_KEYS = 128,
    HOPPER_SLOTS = 4, /* tiles of keys and of values in turn */
    HOPPER_THREADS = 3 * WARPGROUP,
    HOPPER_CONSUMER_WARPS = 8,
    HOPPER_BARRIER_BYTES = SWIZZLE_BYTES, /* what follows begins a pattern */
    /* 384 threads begin with 168 registers each, of 65,536. */
    HOPPER_PRODUCER_REGISTERS = 24,
    HOPPER_CONSUMER_REGISTERS = 240
};

typedef struct HopperArgs {
    TensorMap q, k, v; /* [E, heads, rows, B] */
    AttentionArgs a;
} HopperArgs;

typedef struct HopperShared {
    Shared barriers; /* that of queries, then of each slot: full, empty */
    Shared queries, ring;
} HopperShared;

DEVICE HopperShared hopper_shared(Shared memory, int tile_bytes)
{
    HopperShared s;
    s.barriers = shared_pattern(memory);
    s.queries = s.barriers + HOPPER_BARRIER_BYTES;
    s.ring = s.queries + tile_bytes;
    return s;
}

typedef struct HopperSlot {
    Shared tile, full, empty;
    uint32_t parity; /* of the phase in which it is filled */
} HopperSlot;

/* Item i of the ring: keys of tile i / 2, or, odd, values. */
DEVICE HopperSlot hopper_slot(HopperShared s, int i, int tile_bytes)
{
    HopperSlot slot;
    slot.tile = s.ring + i % HOPPER_SLOTS * tile_bytes;
    slot.full = s.barriers + 8 + i % HOPPER_SLOTS * 16;
    slot.empty = slot.full + 8;
    slot.parity = (uint32_t)(i / HOPPER_SLOTS) & 1;
    return slot;
}

DEVICE void hopper_begin(HopperShared s)
{
    if (threadIdx.x == 0) {
        barrier_init(s.barriers, 1);
        for (int i = 0; i < HOPPER_SLOTS; i++) {
            const HopperSlot slot = hopper_slot(s, i, 0);
            barrier_init(slot.full, 1);
            barrier_init(slot.empty, HOPPER_CONSUMER_WARPS);
        }
        barriers_ready();
    }
    __syncthreads();
}

/* How many keys this thread's two rows may see, and how many all rows of the warpgroup do. */
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

/* What a query may not see becomes minus infinity: of keys `key` and on. */
DEVICE void hopper_hide(float s[HOPPER_KEYS / 2], const HopperRows *rows, int key)
{
    if (key + HOPPER_KEYS <= rows->by_all) return;
    const int column = key + (int)threadIdx.x % WARP % 4 * 2;
    UNROLL for (int n = 0; n < HOPPER_KEYS / 8; n++)
        UNROLL for (int c = 0; c < 4; c++) if (column + n * 8 + c % 2 >= rows->seen[c / 2])
            s[n * 4 + c] = -INFINITY;
}

#define NAME_4(name, type, head) name##_##type##_##head
#define NAME_3(name, type, head) NAME_4(name, type, head)
#define NAME(name)               NAME_3(name, TYPE, HEAD)

#define TYPE bf16
#define HEAD 64
#include "kernels/cuda/attention_hopper.cuh"
#undef HEAD
#define HEAD 128
#include "kernels/cuda/attention_hopper.cuh"
#undef HEAD
#undef TYPE
#define TYPE f16
#define HEAD 64
#include "kernels/cuda/attention_hopper.cuh"
#undef HEAD
#define HEAD 128
#include "kernels/cuda/attention_hopper.cuh"
#undef HEAD
#undef TYPE

/* Coordinates are 32 bits wide, strides 40. (CUDA Driver API, cuTensorMapEncodeTiled.) */
bool attention_hopper_takes(const AttentionArgs *a, int head, const CudaContext *cuda)
{
    const int64_t most = INT64_C(1) << 31, farthest = INT64_C(1) << 40;
    int64_t queries = a->S * a->G * a->R * a->E * 2, keys = a->T * a->G * a->E * 2;
    return cuda->compute_capability == 90 && (head == 64 || head == 128) && !a->drops && a->T > 0 &&
           a->S > 0 && a->B > 0 && a->B < most && a->G * a->R < most &&
           a->S < most - HOPPER_QUERIES && a->T < most - 2 * HOPPER_KEYS && queries < farthest &&
           keys < farthest;
}

static TensorShape tensor_of(const AttentionArgs *a, const void *at, int64_t heads, int64_t rows,
                             uint32_t box_rows)
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
    return t;
}

bool attention_hopper(const AttentionArgs *a, int head, const CudaContext *cuda, CudaError *error)
{
    HopperArgs h;
    const TensorShape q = tensor_of(a, a->q, a->G * a->R, a->S, HOPPER_QUERIES);
    const TensorShape k = tensor_of(a, a->k, a->G, a->T, HOPPER_KEYS);
    const TensorShape v = tensor_of(a, a->v, a->G, a->T, HOPPER_KEYS);
    assert(attention_hopper_takes(a, head, cuda));
    h.a = *a;
    if (!tensor_map_make(&h.q, &q, error) || !tensor_map_make(&h.k, &k, error) ||
        !tensor_map_make(&h.v, &v, error))
        return false;
    if (a->dtype == DT_bf16)
        return head == 64 ? launch_hopper_bf16_64(&h, cuda, error)
                          : launch_hopper_bf16_128(&h, cuda, error);
    assert(a->dtype == DT_f16);
    return head == 64 ? launch_hopper_f16_64(&h, cuda, error)
                      : launch_hopper_f16_128(&h, cuda, error);
}
