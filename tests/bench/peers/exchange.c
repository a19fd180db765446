/* Tandem's side of the comparison with SimGrid: an exchange of messages, simulated by Tandem's
 * engine with max-min sharing. Arguments: ring|tree|rings, nodes, devices of a node (which share
 * one NIC), bytes. Prints the time, and the latency and rate of one message alone. SimGrid's side
 * takes these for its links. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/sim/synthetic.h"

enum { PIECES = 16 }; /* a tree's buffer is sent in this many pieces */

/* The exchange while it is built. Axis pp numbers the nodes, axis tp the devices of a node. */
typedef struct Exchange {
    Plan *plan;
    AxisSet nodes;
    uint32_t n, match;
    uint64_t most; /* bytes of a message */
} Exchange;

/* Adds a message between two nodes, on every device. `after`: an instruction of the sender and one
 * of the receiver that must end before it; 0: none. Returns both ends of the message. */
typedef struct Ends {
    Pc send, recv;
} Ends;
static Ends message(Exchange *x, uint32_t from, uint32_t to, Stream send, Stream recv,
                    uint64_t bytes, Pc after_send, Pc after_recv)
{
    const int32_t hop = (int32_t)to - (int32_t)from;
    Ends ends;
    ends.send = synthetic_comm(x->plan, from, send, OP_send, x->nodes, hop, x->match, bytes);
    if (after_send != 0) synthetic_after(x->plan, from, ends.send, after_send);
    ends.recv = synthetic_comm(x->plan, to, recv, OP_recv, x->nodes, -hop, x->match++, bytes);
    if (after_recv != 0) synthetic_after(x->plan, to, ends.recv, after_recv);
    x->most = bytes;
    return ends;
}

/* Sums a buffer round a ring, and passes the sums round again. That takes 2 (n - 1) rounds, each
 * with an n-th of the buffer. A rank sends a part once it has received it. */
static void add_ring(Exchange *x, uint64_t bytes)
{
    Pc *got = arena_array(x->plan->arena, x->n, sizeof *got),
       *next = arena_array(x->plan->arena, x->n, sizeof *next);
    for (uint32_t round = 0; round < 2 * (x->n - 1); round++) {
        for (uint32_t i = 0; i < x->n; i++)
            next[(i + 1) % x->n] = message(x, i, (i + 1) % x->n, STREAM_pp_forward,
                                           STREAM_pp_backward, bytes / x->n, got[i], 0)
                                       .recv;
        memcpy(got, next, x->n * sizeof *got);
    }
}

/* Sends a buffer down a binary tree, in pieces. A node sends a piece to both children at once, so
 * the two messages share its NIC. */
static void add_tree(Exchange *x, uint64_t bytes)
{
    Pc *got = arena_array(x->plan->arena, x->n, sizeof *got);
    for (uint32_t piece = 0; piece < PIECES; piece++)
        for (uint32_t i = 0; 2 * i + 1 < x->n; i++)
            for (uint32_t child = 2 * i + 1; child <= 2 * i + 2 && child < x->n; child++)
                got[child] = message(x, i, child, child % 2 ? STREAM_pp_forward : STREAM_tp,
                                     STREAM_pp_backward, bytes / PIECES, got[i], 0)
                                 .recv;
}

int main(int argc, char **argv)
{
    if (argc != 5) return 2;
    const bool tree = strcmp(argv[1], "tree") == 0;
    const uint32_t n = (uint32_t)strtoul(argv[2], NULL, 10),
                   devices = (uint32_t)strtoul(argv[3], NULL, 10);
    const uint64_t bytes = strtoull(argv[4], NULL, 10);
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Exchange x = {.plan = synthetic_plan(arena, n, 1, devices, n), .n = n, .match = 1};
    x.nodes = synthetic_axis(x.plan, AXIS_pp);
    if (tree)
        add_tree(&x, bytes);
    else
        add_ring(&x, bytes);
    Cluster c = {
        .name = "nodes", .nodes = n, .devices_per_node = devices, .intra = FABRIC_nvswitch};
    c.device.arch = "Hopper";
    c.intra_bytes_per_s = 450e9;
    c.nics_per_node = 1;
    c.nic_bytes_per_s = 50e9;
    const NcclChoice alone = nccl_choose(&c, OP_send, 2, 1, x.most);
    Fold *fold = fold_ranks(x.plan, devices, 1, true, arena);
    NetModel net = maxmin_net(maxmin_new(&c, fold, arena));
    EngineOptions options = {.cost = &synthetic_cost, .net = &net, .fold = fold, .steps = 1};
    EngineResult result;
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    if (!engine_run(x.plan, &options, arena, &result, &d)) return 1;
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%.9f %.9f %.6e %.6e %.3f\n", (double)result.step_ps / 1e12,
           (double)alone.latency_ps / 1e12, alone.nic_bytes * 1e12 / (double)alone.fluid_ps,
           nccl_nic_bytes_per_s(&c),
           (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec));
    arena_free(arena);
    return 0;
}
