/* Models registered buffers, with which collectives need fewer SMs. If buffers lie in windows that
 * all ranks map, NCCL uses special kernels (src/symmetric.cc), or copy engines, which need no
 * SM. */
#include <math.h>

#include "sim/net/nccl.h"

static bool is_recent(const Cluster *cluster)
{
    Generation g = nccl_generation(cluster);
    return g == GENERATION_hopper || g == GENERATION_blackwell;
}

/* Returns the numbers of SMs that megatron-fsdp states for registered buffers. Inside a node with a
 * switch, they are 4 for a gather and 5 for a reduce-scatter. Between nodes, it is 16. If each node
 * has only one rank of the group, they are 1 for a gather and 4 for a reduce-scatter. */
uint32_t nccl_registered_channels(const Cluster *cluster, OpKind op, uint32_t n_nodes,
                                  uint32_t ranks_per_node)
{
    bool gathers = op == OP_all_gather;
    if ((!gathers && op != OP_reduce_scatter) || !nccl_has_switch(cluster) || !is_recent(cluster))
        return UINT32_MAX;
    if (n_nodes <= 1) return gathers ? 4 : 5;
    return ranks_per_node > 1 ? 16 : gathers ? 1 : 4;
}

bool nccl_buffers_possible(const Cluster *cluster, const NcclQuestion *q)
{
    if (q->buffers == NCCL_plain) return true;
    if (q->n_nodes > 1 || !nccl_has_switch(cluster) || !is_recent(cluster)) return false;
    switch (q->kind) {
    case COLLECTIVE_all_gather: return true;
    case COLLECTIVE_all_reduce:
    case COLLECTIVE_reduce_scatter: return q->buffers == NCCL_symmetric;
    case COLLECTIVE_all_to_all:
    case COLLECTIVE_gather:
    case COLLECTIVE_scatter: return q->buffers == NCCL_copy_engine;
    case COLLECTIVE_broadcast:
    case COLLECTIVE_reduce:
    case COLLECTIVE_sendrecv:
    case COLLECTIVE_COUNT: break;
    }
    return false;
}

/* A kernel for windows, with NCCL's own numbers: base times [us], rates of one SM and largest rates
 * of the port [GB/s]. */
typedef struct WindowKernel {
    double base_us, low_latency_us, sm, sm_reduce, peak, peak_multicast;
} WindowKernel;
static const WindowKernel hopper = {7.8, 4.5, 47, 70, 344, 515};
static const WindowKernel blackwell = {19.5, 8.5, 59, 59, 644, 1074};

static double soft_least(double a, double b)
{
    double p = 4; /* exponent of a smooth minimum, which is about as sharp as NCCL's */
    return pow(pow(a, -p) + pow(b, -p), -1 / p);
}

/* Returns ln(1 + e^x) without overflow. */
static double soft_plus(double x)
{
    return x > 30 ? x : log1p(exp(x));
}

/* Returns the time [us] with `sms` SMs: base + softplus(bytes / bandwidth - 1). */
static double window_us(const NcclCase *c, const WindowKernel *w, double sms, bool low_latency)
{
    double n = c->n_ranks, s = c->bytes;
    bool reduces = c->kind == COLLECTIVE_all_reduce;
    double bytes = reduces ? s * (1 + 1 / n) : (n - 1) / n * s;
    double rate = soft_least(sms * (reduces ? w->sm_reduce * n : w->sm),
                             reduces ? w->peak_multicast : w->peak);
    if (low_latency) bytes = 9 * n * s;
    return (low_latency ? w->low_latency_us : w->base_us) + soft_plus(bytes / (1e3 * rate) - 1);
}

/* Chooses the number of SMs as NCCL does. NCCL adds 2.5 % to the time for each SM. Besides the
 * latency, only the port limits the transfer. */
static NcclChoice symmetric(const NcclCase *c)
{
    const WindowKernel *w = c->generation == GENERATION_blackwell ? &blackwell : &hopper;
    double best = INFINITY, us = 0;
    uint32_t most = nccl_settings_ctas(&c->settings, 32);
    NcclChoice choice = {.algorithm = "Symmetric", .protocol = "Simple"};
    for (uint32_t ll = 0; ll < 2; ll++) {
        for (uint32_t sms = 1; sms <= most; sms++) {
            double time = window_us(c, w, sms, ll != 0), cost = time * (1 + .025 * sms);
            if (cost >= best * .975) continue;
            best = cost;
            us = time;
            choice.channels = sms;
            choice.protocol = ll != 0 ? "LL" : "Simple";
        }
    }
    double n = c->n_ranks, s = c->bytes;
    choice.port_bytes = c->kind == COLLECTIVE_all_reduce ? s * (1 + 1 / n) : s * (n - 1) / n;
    double latency = choice.protocol[0] == 'L' ? w->low_latency_us : w->base_us;
    choice.latency_ps = ps_of(latency * 1e6);
    choice.fluid_ps = ps_of((us - latency) * 1e6);
    return choice;
}

/* Returns the time with copy engines: 25 us, plus n - 1 copies to the other ranks. Measured rates
 * of a copy: 274 of 300, 376 of 450 and 746 of 900 GB/s. */
static NcclChoice copies(const NcclCase *c)
{
    NcclChoice choice = {.algorithm = "CopyEngine", .protocol = "Simple", .channels = 0};
    double n = c->n_ranks;
    choice.port_bytes = c->bytes * (n - 1) / n;
    choice.latency_ps = 25 * (PS_PER_S / 1000000);
    choice.fluid_ps =
        ps_of(choice.port_bytes / (.83 * c->cluster->intra_bytes_per_s) * (double)PS_PER_S);
    return choice;
}

NcclChoice nccl_answer_mapped(const NcclCase *c, NcclBuffers buffers, double least_us)
{
    if (buffers == NCCL_copy_engine) return copies(c);
    NcclChoice choice = symmetric(c);
    /* NCCL uses its own rates only to choose; it assumes 515 GB/s for a port of Hopper with 450.
     * The rate of the switch used here was measured (nvls in nccl_fit.def). */
    Ps least = c->kind == COLLECTIVE_all_reduce ? ps_of(least_us * 1e6) : 0;
    if (choice.fluid_ps < least) choice.fluid_ps = least;
    return choice;
}
