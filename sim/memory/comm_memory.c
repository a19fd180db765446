/* Device memory of a rank's communicators: NCCL's own buffers, which lie outside of a plan's arena.
 * Memory for connections comes in pieces of 2 MiB. On each channel, a connection has a buffer for
 * each protocol at its receiving end (nccl.h), and one piece at its sending end. If the connection
 * goes through a NIC, the buffers of LL128 and Simple exist at both ends. NCCL allocates the
 * buffers of an algorithm at its first use, so only algorithms that the plan's collectives use
 * count.
 *
 * Tandem's executor makes one communicator for each pair (axes, stream) that occurs in any program,
 * on all ranks. It warms up each of them by reducing one word (exec/cuda/comm.c). Other frameworks
 * have one process group for each axis of their mesh, whatever the stream, and create it at its
 * first use.
 *
 * Not modelled: NICs that cannot access device memory, buffers that users register, and buffers of
 * libraries other than NCCL and RCCL. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "sim/compute/kernels.h"
#include "sim/memory/group_place.h"
#include "sim/net/nccl.h"
#include "sim/runtime/runtime.h"

/* Size of the pieces of memory that another device maps (cuMemGetAllocationGranularity). */
enum { PIECE_BYTES = 2 << 20 };
static const uint64_t sender_bytes = PIECE_BYTES;
static const uint64_t nic_messages_bytes =
    NCCL_SHARED_STEPS * NCCL_NET_CHUNK_BYTES; /* bytes for each channel */
/* A reduction in the NVLink switch has a buffer for each channel and each head. (A head is a rank
 * of the node that gets the sum of one part of the data.) This is the size of the buffer, for both
 * directions together. */
static const uint64_t switch_bytes = 2 * NCCL_STEPS * NCCL_SWITCH_CHUNK_BYTES;

/* Returns the bytes at the receiving end of a connection on one channel, inside a node. */
static uint64_t receiver_bytes(const Cluster *cluster)
{
    const uint64_t buffers =
        NCCL_LL_BYTES + NCCL_LL128_BYTES + (uint64_t)nccl_simple_bytes(cluster);
    return (buffers + PIECE_BYTES - 1) / PIECE_BYTES * PIECE_BYTES;
}

/* Returns the bytes at either end of a connection on one channel that goes through a NIC. */
static uint64_t nic_end_bytes(const Cluster *cluster)
{
    return NCCL_LL128_BYTES + (uint64_t)nccl_simple_bytes(cluster);
}

typedef LIST(GroupPlace) GroupPlaces;

/* Returns the place of a group. It is computed only once, because several communicators may have
 * the same ranks. */
static GroupPlace place(const Plan *plan, Rank rank, uint32_t devices_per_node, AxisSet axes,
                        Arena *arena, GroupPlaces *known)
{
    for (uint32_t i = 0; i < known->n; i++)
        if (known->at[i].axes == axes) return known->at[i];
    const GroupPlace found = group_place(&plan->mesh, rank, devices_per_node, axes);
    list_push(arena, known, found);
    return found;
}

/* Resources that a program's communications, and the warm-up, need from one communicator. */
typedef struct GroupUse {
    bool ring, tree, nvls;
    bool messages;      /* there are messages between two ranks */
    uint8_t *to, *from; /* for each member of the group: true if the rank sends a message to it
                           (to), or gets one from it (from) */
    uint32_t here;      /* members on the rank's node */
} GroupUse;

static void use_algorithm(GroupUse *use, const Plan *plan, const Cluster *cluster,
                          const CommMemory *m, OpKind op, uint64_t bytes)
{
    uint32_t per_node = m->n_ranks / m->n_nodes;
    NcclChoice choice =
        nccl_choose_as(cluster, &plan->nccl, op, m->n_nodes, per_node == 0 ? 1 : per_node, bytes);
    use->ring |= strcmp(choice.algorithm, "Ring") == 0;
    use->tree |= strstr(choice.algorithm, "Tree") != NULL;
    use->nvls |= strstr(choice.algorithm, "NVLS") != NULL;
}

/* A kind of communication that occurs in a program. Each layer and micro-batch repeats the same few
 * kinds, so they are listed once for all communicators. */
typedef struct Demand {
    OpKind op;
    AxisSet axes;
    Stream stream;
    int32_t hop;
    uint64_t bytes;
} Demand;
typedef LIST(Demand) Demands;

static bool same_demand(const Demand *a, const Demand *b)
{
    return a->bytes == b->bytes && a->op == b->op && a->axes == b->axes && a->stream == b->stream &&
           a->hop == b->hop;
}

static void find_demands(const Plan *plan, const Program *p, Arena *arena, Demands *list)
{
    enum { RECENT = 256 };
    uint32_t recent[RECENT] = {0}; /* [hash]: 1 + index of the newest demand with this hash */
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = program_instr(p, pc);
        if (op_info(in->op)->class_ != OP_CLASS_comm) continue;
        const bool message = in->op == OP_send || in->op == OP_recv;
        const Demand d = {in->op, in->axes, in->stream, in->hop,
                          message ? 0 : plan_comm_bytes(plan, p, in)};
        const uint64_t hash = (d.bytes ^ (uint64_t)d.op << 7 ^ d.axes ^ (uint64_t)d.stream << 17) *
                              UINT64_C(0x9E3779B97F4A7C15);
        uint32_t *known = &recent[hash >> 56];
        if (*known && same_demand(&list->at[*known - 1], &d)) continue;
        uint32_t i = 0;
        while (i < list->n && !same_demand(&list->at[i], &d)) i++;
        if (i == list->n) list_push(arena, list, d);
        *known = i + 1;
    }
}

/* Returns true if a library other than NCCL does this exchange between the ranks of experts. NCCL
 * then needs no connections for it. */
static bool is_own_exchange(const Plan *plan, const Runtime *runtime, const Demand *d)
{
    const AxisSet ep = mesh_axes_of(&plan->mesh, axes_trading(INDEX_experts));
    return runtime && runtime->own_exchange && op_exchanges(d->op) && (d->axes & ~ep) == 0;
}

static void use_of(const Plan *plan, const Demands *demands, Rank rank, const Cluster *cluster,
                   const Runtime *runtime, const CommMemory *m, GroupUse *use)
{
    const bool by_stream = runtime_is_own(runtime);
    uint32_t part = mesh_part(&plan->mesh, rank, m->axes);
    for (uint32_t i = 0; i < demands->n; i++) {
        const Demand *d = &demands->at[i];
        if (d->axes != m->axes || (by_stream && d->stream != m->stream)) continue;
        if (is_own_exchange(plan, runtime, d)) continue;
        use->messages |= d->op == OP_send || d->op == OP_recv || op_exchanges(d->op) ||
                         d->op == OP_halo_exchange || d->op == OP_rotate;
        if (d->op == OP_send || d->op == OP_recv) {
            uint8_t *peers = d->op == OP_send ? use->to : use->from;
            peers[mesh_hop(part, d->hop, m->n_ranks)] = 1;
        } else if (d->op == OP_halo_exchange) {
            const uint32_t next = (part + 1) % m->n_ranks;
            const uint32_t previous = (part + m->n_ranks - 1) % m->n_ranks;
            use->to[next] = use->to[previous] = use->from[next] = use->from[previous] = 1;
        } else if (d->op == OP_rotate) {
            use->to[(part + 1) % m->n_ranks] = 1;
            use->from[(part + m->n_ranks - 1) % m->n_ranks] = 1;
        } else if (op_exchanges(d->op)) {
            memset(use->to, 1, m->n_ranks);
            memset(use->from, 1, m->n_ranks);
        } else {
            use_algorithm(use, plan, cluster, m, d->op, d->bytes);
        }
    }
}

/* Counts a rank's peers and the bytes for its messages. Messages use a power of two of channels
 * (ncclTopoComputeP2pChannels). */
static void count_messages(const Plan *plan, Rank rank, const Cluster *cluster, const GroupUse *use,
                           CommMemory *m)
{
    if (!use->messages) return;
    const uint32_t devices_per_node = cluster->devices_per_node;
    const uint64_t received = receiver_bytes(cluster);
    uint32_t channels = 1, part = mesh_part(&plan->mesh, rank, m->axes);
    bool leaves = false, enters = false;
    while (channels < m->channels) channels *= 2;
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        if ((!use->to[i] && !use->from[i]) || i == part) continue;
        Rank peer = mesh_member(&plan->mesh, rank, m->axes, i);
        m->n_peers++;
        if (devices_per_node != 0 && peer / devices_per_node != rank / devices_per_node) {
            leaves |= use->to[i] != 0;
            enters |= use->from[i] != 0;
            continue;
        }
        m->message_bytes +=
            channels * ((use->to[i] ? sender_bytes : 0) + (use->from[i] ? received : 0));
    }
    m->message_bytes += channels * nic_messages_bytes * ((uint32_t)leaves + enters);
}

/* Adds the bytes for collectives. For each channel, one rank of a node has the outgoing connection
 * to other nodes, and one rank has the incoming one. An edge of a tree carries both directions, and
 * an edge of a ring only one. A node has two edges of a tree on average. */
static void count_collectives(const Plan *plan, const Cluster *cluster, const GroupUse *use,
                              CommMemory *m)
{
    uint32_t by_switch = nccl_settings_ctas(&plan->nccl, nccl_switch_channels(cluster, m->n_nodes));
    uint64_t outside = m->n_nodes > 1 ? (m->channels + use->here - 1) / use->here : 0;
    uint64_t inside = use->here > 1 ? m->channels - outside : 0;
    const uint64_t both_ends = sender_bytes + receiver_bytes(cluster);
    const uint64_t nic_end = nic_end_bytes(cluster);
    if (use->ring) m->ring_bytes = inside * both_ends + outside * 2 * nic_end;
    if (use->tree) m->tree_bytes = inside * both_ends * (use->ring ? 1 : 2) + outside * 4 * nic_end;
    if (use->nvls) m->switch_bytes = switch_bytes * by_switch * (use->here < 32 ? use->here : 32);
}

/* Adds an entry for each communicator that these demands need. */
static void collect(const Plan *plan, const Demands *demands, bool by_stream, Arena *arena,
                    CommMemories *list)
{
    for (uint32_t k = 0; k < demands->n; k++) {
        const Demand *d = &demands->at[k];
        if (mesh_size(&plan->mesh, d->axes) < 2) continue;
        uint32_t i = 0;
        while (i < list->n &&
               (list->at[i].axes != d->axes || (by_stream && list->at[i].stream != d->stream)))
            i++;
        if (i == list->n)
            list_push(arena, list, ((CommMemory){.axes = d->axes, .stream = d->stream}));
    }
}

/* Returns the bytes of all communicators on a rank of `program`. `demands` has a list for each
 * program. Under another framework's profile, only the list of `program` is read. */
static uint64_t bytes_of(const Plan *plan, uint32_t program, const Demands *demands,
                         const Cluster *cluster, const Runtime *runtime, Arena *arena,
                         CommMemories *list)
{
    const bool own = runtime_is_own(runtime);
    const uint32_t devices = cluster->devices_per_node;
    Rank rank = 0;
    while (plan->program_of[rank] != program) rank++;
    GroupPlaces places = {NULL, 0, 0};
    *list = (CommMemories){NULL, 0, 0};
    for (uint32_t i = 0; i < plan->programs.n; i++)
        if (own || i == program) collect(plan, &demands[i], own, arena, list);
    /* the work queue of the communicator that contains all ranks */
    uint64_t bytes = own && plan->mesh.n_ranks > 1 ? NCCL_FIFO_BYTES : 0;
    for (uint32_t i = 0; i < list->n; i++) {
        CommMemory *m = &list->at[i];
        const GroupPlace at = place(plan, rank, devices, m->axes, arena, &places);
        GroupUse use = {.here = at.here};
        m->n_ranks = at.n_ranks;
        m->n_nodes = at.n_nodes;
        use.to = arena_array(arena, m->n_ranks, 1);
        use.from = arena_array(arena, m->n_ranks, 1);
        m->channels = nccl_settings_ctas(&plan->nccl, nccl_channels(cluster, m->n_nodes, use.here));
        use_of(plan, &demands[program], rank, cluster, runtime, m, &use);
        if (own) use_algorithm(&use, plan, cluster, m, OP_all_reduce, 4);
        count_messages(plan, rank, cluster, &use, m);
        count_collectives(plan, cluster, &use, m);
        m->bytes =
            NCCL_FIFO_BYTES + m->ring_bytes + m->tree_bytes + m->switch_bytes + m->message_bytes;
        bytes += m->bytes;
    }
    return bytes;
}

static bool has_none(const Cluster *cluster)
{
    return cluster->is_local || kernel_on_processor(&cluster->device);
}

static Demands *demands_of(const Plan *plan, uint32_t from, uint32_t to, Arena *arena)
{
    Demands *demands = arena_array(arena, plan->programs.n, sizeof *demands);
    for (uint32_t i = from; i < to; i++)
        find_demands(plan, &plan->programs.at[i], arena, &demands[i]);
    return demands;
}

uint64_t comm_memory(const Plan *plan, uint32_t program, const Cluster *cluster,
                     const Runtime *runtime, Arena *arena, CommMemories *list)
{
    *list = (CommMemories){NULL, 0, 0};
    if (has_none(cluster)) return 0;
    const bool own = runtime_is_own(runtime);
    const Demands *demands = own ? demands_of(plan, 0, plan->programs.n, arena)
                                 : demands_of(plan, program, program + 1, arena);
    return bytes_of(plan, program, demands, cluster, runtime, arena, list);
}

uint64_t comm_memory_most(const Plan *plan, const Cluster *cluster, const Runtime *runtime,
                          Arena *arena, CommMemories *list)
{
    uint64_t most = 0;
    *list = (CommMemories){NULL, 0, 0};
    if (has_none(cluster)) return 0;
    const Demands *demands = demands_of(plan, 0, plan->programs.n, arena);
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        CommMemories of_program;
        uint64_t bytes = bytes_of(plan, i, demands, cluster, runtime, arena, &of_program);
        if (bytes <= most) continue;
        most = bytes;
        *list = of_program;
    }
    return most;
}
