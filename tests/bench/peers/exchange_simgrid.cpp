/* SimGrid's side of the comparison: the exchanges of exchange.c, as actors that send messages over a
 * star of hosts. Arguments: ring|tree|rings, nodes, devices, bytes, latency (s) and rate (B/s) of a
 * message alone, rate of a NIC (B/s). Prints the simulated time. Needs libsimgrid-dev. */
#include <simgrid/s4u.hpp>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

namespace sg = simgrid::s4u;

static const unsigned pieces = 16; /* of a tree's buffer */
static double message_rate;

static std::string box(unsigned from, unsigned to, unsigned device)
{
    return std::to_string(from) + ">" + std::to_string(to) + "." + std::to_string(device);
}

static sg::CommPtr put(const std::string &name, int *token, double bytes)
{
    auto comm = sg::Mailbox::by_name(name)->put_init(token, (uint64_t)bytes);
    comm->set_rate(message_rate);
    comm->start();
    return comm;
}

/* A device of a ring: in each round it sends to the next node and receives from the one before. */
static void ring_member(unsigned node, unsigned nodes, unsigned device, double bytes)
{
    static int token;
    for (unsigned round = 0; round < 2 * (nodes - 1); round++) {
        int *got = nullptr;
        auto send = put(box(node, (node + 1) % nodes, device), &token, bytes);
        auto recv = sg::Mailbox::by_name(box((node + nodes - 1) % nodes, node, device))
                        ->get_async<int>(&got);
        recv->wait();
        send->wait();
    }
}

/* Receives the pieces of a tree's node and lets its senders go. */
static void tree_receiver(unsigned node, std::vector<sg::SemaphorePtr> arrived)
{
    for (unsigned piece = 0; piece < pieces; piece++) {
        if (node > 0) sg::Mailbox::by_name(box((node - 1) / 2, node, 0))->get<int>();
        for (auto &semaphore : arrived) semaphore->release();
    }
}

static void tree_sender(unsigned node, unsigned child, sg::SemaphorePtr arrived, double bytes)
{
    static int token;
    for (unsigned piece = 0; piece < pieces; piece++) {
        arrived->acquire();
        put(box(node, child, 0), &token, bytes)->wait();
    }
}

int main(int argc, char **argv)
{
    sg::Engine engine(&argc, argv);
    /* plain max-min sharing, without the corrections for TCP */
    sg::Engine::set_config("network/model:CM02");
    sg::Engine::set_config("network/latency-factor:1");
    sg::Engine::set_config("network/bandwidth-factor:1");
    sg::Engine::set_config("network/weight-S:0");
    sg::Engine::set_config("network/TCP-gamma:0");
    sg::Engine::set_config("network/crosstraffic:0");
    if (argc != 8) return 2;
    const bool tree = std::string(argv[1]) == "tree";
    const unsigned nodes = (unsigned)atoi(argv[2]), devices = (unsigned)atoi(argv[3]);
    const double bytes = atof(argv[4]), latency = atof(argv[5]), nic = atof(argv[7]);
    message_rate = atof(argv[6]);
    auto *zone = sg::create_star_zone("cluster");
    std::vector<sg::Host *> host;
    for (unsigned i = 0; i < nodes; i++) {
        host.push_back(zone->create_host("node" + std::to_string(i), 1e9));
        auto *up = zone->create_link("up" + std::to_string(i), nic)->set_latency(latency)->seal();
        auto *down = zone->create_link("down" + std::to_string(i), nic)->set_latency(0)->seal();
        zone->add_route(host[i]->get_netpoint(), nullptr, nullptr, nullptr,
                        {sg::LinkInRoute(up)}, false);
        zone->add_route(nullptr, host[i]->get_netpoint(), nullptr, nullptr,
                        {sg::LinkInRoute(down)}, false);
    }
    zone->seal();
    for (unsigned i = 0; i < nodes; i++) {
        for (unsigned k = 0; !tree && k < devices; k++)
            sg::Actor::create("member", host[i], ring_member, i, nodes, k, bytes / nodes);
        if (!tree) continue;
        std::vector<sg::SemaphorePtr> arrived;
        for (unsigned child = 2 * i + 1; child <= 2 * i + 2 && child < nodes; child++) {
            arrived.push_back(sg::Semaphore::create(0));
            sg::Actor::create("sender", host[i], tree_sender, i, child, arrived.back(),
                              bytes / pieces);
        }
        sg::Actor::create("receiver", host[i], tree_receiver, i, arrived);
    }
    engine.run();
    printf("%.9f\n", sg::Engine::get_clock());
    return 0;
}
