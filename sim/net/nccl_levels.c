/* Computes the time to fill a tree of nodes. On each level, the NICs of a node send one chunk of
 * every channel before the next level can begin. NCCL's tuner counts only the latency of a hop.
 * Sizes of chunks are from enqueue.cc and transport/nvls.cc of NCCL. */
#include <math.h>

#include "sim/net/nccl.h"

/* Returns the bytes of a chunk of NVLSTree. at_once: number of chunks that a node processes at the
 * same time. */
static double switch_chunk(const NcclCase *c, double at_once)
{
    double chunk = c->n_nodes >= 4 ? 64 << 10 : NCCL_SWITCH_CHUNK_BYTES;
    if (c->bytes < 4 * at_once * chunk) chunk = fmin(chunk, 64 << 10);
    if (c->bytes < at_once * chunk) chunk = fmin(chunk, 32 << 10);
    return chunk;
}

/* Returns the bytes of a chunk of Tree. With LL128, chunks become smaller until there are enough
 * for the depth of the tree. */
static double tree_chunk(const NcclCase *c, uint32_t protocol, double channels)
{
    if (protocol == SIMPLE) return nccl_simple_bytes(c->cluster) / NCCL_STEPS;
    if (protocol == LL) return NCCL_LL_BYTES / NCCL_STEPS / 2.;
    double chunk = NCCL_LL128_BYTES / NCCL_STEPS * 15. / 16;
    double steps = 1 + floor(log2(c->n_nodes)) + .1 * c->per_node;
    while (c->bytes / (channels * chunk) < steps * 64 / c->per_node && chunk > 128 << 10)
        chunk /= 2;
    while (c->bytes / (channels * chunk) < steps * 16 / c->per_node && chunk > 32 << 10) chunk /= 2;
    return chunk;
}

/* Data cross each level in two hops, one up and one down. One hop is left out, because the time of
 * the bytes already contains it. */
double nccl_levels_us(const NcclCase *c, NcclAlgorithm algorithm, uint32_t protocol,
                      double channels, double hop_bytes_per_us)
{
    double hops = 2 * floor(log2(c->n_nodes)) - 1, round = 0;
    /* the fitted ramp contains this time */
    if (c->n_nodes <= 1 || c->cluster->fabric.ramp_s > 0) return 0;
    if (algorithm == NCCL_NVLSTree) {
        double at_once = channels * c->nvls.channels;
        round = at_once * switch_chunk(c, at_once);
    } else if (algorithm == NCCL_Tree) {
        round = channels * tree_chunk(c, protocol, channels);
    }
    return hops * fmin(round, c->bytes) / hop_bytes_per_us;
}
