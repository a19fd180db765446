/* Nodes with PCIe links. Devices are connected to switches, switches to processors, and processors
 * to each other. A flow uses all links on its way, and the busiest of them determines its rate (as
 * followPath in search.cc does). */
#include <assert.h>
#include <math.h>

#include "sim/net/nccl.h"

enum { MOST_PARTS = 64 };

/* How many flows use each link, and host memory. own: the link of a device. up, down: the link
 * above a switch. between: the link from one processor to another. In rings and exchanges, a device
 * sends as much as it receives, so `own` counts only flows that arrive. */
typedef struct Loads {
    double own[MOST_BOX_DEVICES];
    double up[MOST_PARTS], down[MOST_PARTS];
    double between[MOST_PARTS][MOST_PARTS];
    double in_memory;
} Loads;

static uint32_t part_of(const Cluster *c, uint32_t parts, uint32_t device)
{
    uint32_t all = c->devices_per_node == 0 ? 1 : c->devices_per_node;
    return parts < 2 ? 0 : (uint32_t)((uint64_t)(device % all) * parts / all);
}

static bool may_write(const Cluster *c, bool one_switch, bool one_socket)
{
    switch (c->pcie.peer) {
    case PEER_off: return false;
    case PEER_auto: return one_switch || (!c->pcie.intel && c->devices_per_node <= 2);
    case PEER_switch: return one_switch;
    case PEER_socket: return one_socket;
    case PEER_node: return true;
    }
    return false;
}

/* Adds a flow from one device to another. `part` is its rate, relative to the other flows. */
static void add_flow(const Cluster *c, Loads *l, uint32_t from, uint32_t to, double part)
{
    const PcieBox *box = &c->pcie;
    uint32_t socket = part_of(c, box->sockets, from), other = part_of(c, box->sockets, to);
    uint32_t behind = part_of(c, box->switches, from), to_switch = part_of(c, box->switches, to);
    bool one_socket = socket == other;
    bool one_switch = box->switches > 0 && one_socket && behind == to_switch;
    bool writes = may_write(c, one_switch, one_socket), direct = one_switch && writes;
    /* Intel's processors split writes between devices into packets of 64 bytes */
    if (one_socket && !direct && box->intel) part *= 6. / 5;
    l->own[to] += part;
    if (direct) return;
    if (!writes) l->in_memory += part;
    if (box->switches > 0) {
        l->up[behind] += part;
        l->down[to_switch] += part;
    }
    if (!one_socket) l->between[socket][other] += part;
}

static double least(const Cluster *c, const Loads *l)
{
    double link = nccl_port_bytes_per_s(c), busiest = 0, between = 0;
    for (uint32_t i = 0; i < MOST_BOX_DEVICES; i++) busiest = fmax(busiest, l->own[i]);
    for (uint32_t i = 0; i < MOST_PARTS; i++) {
        busiest = fmax(busiest, fmax(l->up[i], l->down[i]));
        for (uint32_t k = 0; k < MOST_PARTS; k++) between = fmax(between, l->between[i][k]);
    }
    double rate = busiest > 0 ? link / busiest : link;
    if (between > 0 && c->pcie.socket_bytes_per_s > 0)
        rate = fmin(rate, c->pcie.socket_bytes_per_s / between);
    /* each byte is written once and read once */
    double memory = c->host_bytes_per_s * c->devices_per_node;
    if (l->in_memory > 0 && memory > 0) rate = fmin(rate, memory / (2 * l->in_memory));
    return rate;
}

static uint32_t of_box(uint32_t n)
{
    return n < MOST_BOX_DEVICES ? n : MOST_BOX_DEVICES;
}

double pcie_ring_bytes_per_s(const Cluster *c, uint32_t n_devices)
{
    Loads l = {.in_memory = 0};
    uint32_t n = of_box(n_devices);
    for (uint32_t i = 0; n > 1 && i < n; i++) add_flow(c, &l, i, (i + 1) % n, 1);
    return least(c, &l);
}

double pcie_exchange_bytes_per_s(const Cluster *c, uint32_t n_devices)
{
    Loads l = {.in_memory = 0};
    uint32_t n = of_box(n_devices);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < n; k++)
            if (i != k) add_flow(c, &l, i, k, 1. / (n - 1));
    }
    return least(c, &l);
}
