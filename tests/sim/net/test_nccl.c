/* NCCL's model compared with numbers that were computed from its source, and with published
 * measurements (tests/data/measured_collectives.csv, with the source of each row; all rows were
 * used for fitting). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/net/nccl.h"
#include "tests/sim/net/dgx.h"

static Cluster ampere(uint32_t nodes)
{
    Cluster c = dgx_h100(nodes, 8);
    c.device = (Device){.name = "A100", .arch = "Ampere", .sms = 108, .hbm_bytes_per_s = 2.04e12};
    c.intra_bytes_per_s = 300e9;
    c.nic_bytes_per_s = 25e9;
    return c;
}

typedef struct Worked {
    uint32_t nodes;
    uint64_t bytes;
    double us;
    const char *algorithm, *protocol;
} Worked;

static void check_worked(const Cluster *c, Collective kind, const Worked *w)
{
    NcclCase question = nccl_case(c, kind, w->nodes, 8, w->bytes);
    NcclAlgorithm algorithm = NCCL_ALGORITHM_COUNT;
    uint32_t protocol = N_PROTOCOLS;
    assert_true(nccl_tuner_best(&question, &algorithm, &protocol));
    NcclEstimate e = nccl_tuner(&question, algorithm, protocol);
    double us = e.latency_us + question.bytes / e.bytes_per_us;
    static const char *const protocols[] = {"LL", "LL128", "Simple"};
    static const char *const algorithms[] = {
#define X(name) #name,
        NCCL_ALGORITHMS(X)
#undef X
    };
    if (fabs(us - w->us) > .01 * w->us + .5) {
        fail_msg("%u nodes, %llu bytes: %.1f us, worked out %.1f (%s %s)", w->nodes,
                 (unsigned long long)w->bytes, us, w->us, algorithms[algorithm],
                 protocols[protocol]);
    }
    if (w->algorithm != NULL) assert_string_equal(algorithms[algorithm], w->algorithm);
    if (w->protocol != NULL) assert_string_equal(protocols[protocol], w->protocol);
}

/* An all_reduce on N DGX H100 nodes of 8 GPUs; checks only the estimate of NCCL's tuner. */
static void all_reduces_between_nodes_match_the_tuner(void **state)
{
    (void)state;
    static const Worked rows[] = {
        {2, 1 << 10, 25, "Tree", "LL"},        {4, 1 << 10, 35, "Tree", "LL"},
        {16, 1 << 10, 55, "Tree", "LL"},       {64, 1 << 10, 75, "Tree", "LL"},
        {2, 1 << 20, 63, "Tree", "LL128"},     {4, 1 << 20, 83, "Tree", "LL128"},
        {16, 1 << 20, 117, "Tree", "LL128"},   {64, 1 << 20, 151, "Tree", "LL128"},
        {2, 64 << 20, 339, "NVLSTree", NULL},  {4, 64 << 20, 466, "NVLSTree", NULL},
        {16, 64 << 20, 558, "NVLSTree", NULL}, {64, 64 << 20, 644, "NVLSTree", NULL},
        {2, 1 << 30, 4428, "NVLSTree", NULL},  {4, 1 << 30, 5814, "Ring", "Simple"},
        {16, 1 << 30, 6046, NULL, NULL},       {64, 1 << 30, 6164, NULL, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Cluster c = dgx_h100(rows[i].nodes, 8);
        check_worked(&c, COLLECTIVE_all_reduce, &rows[i]);
    }
}

/* Between nodes, the processor limits the protocol LL. The limits of bus bandwidth are 39 GB/s (2
 * nodes) and 20.4 GB/s (more nodes) with Intel's, 22.5 and 19 with AMD's of a DGX A100. Within a
 * node of H100 the limit is 141. */
static void processors_limit_ll(void **state)
{
    (void)state;
    Cluster h = dgx_h100(4, 8), a = ampere(4);
    const struct {
        const Cluster *cluster;
        uint32_t nodes;
        double gb_per_s;
    } rows[] = {{&h, 1, 141}, {&h, 2, 39}, {&h, 4, 20.4}, {&a, 2, 22.5}, {&a, 4, 19}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        NcclCase c = nccl_case(rows[i].cluster, COLLECTIVE_all_reduce, rows[i].nodes, 8, 1 << 20);
        double rate = nccl_tuner(&c, NCCL_Ring, LL).bytes_per_us * nccl_steps(&c) / c.n_ranks;
        assert_true(fabs(rate / 1e3 - rows[i].gb_per_s) < 1e-9);
    }
}

static void all_gathers_between_nodes_match_the_tuner(void **state)
{
    (void)state;
    static const Worked rows[] = {
        {2, 256 << 20, 725, "Ring", "Simple"}, {16, 256 << 20, 1194, "Ring", NULL},
        {64, 256 << 20, 2030, "Ring", NULL},   {2, 1 << 30, 2691, "Ring", "Simple"},
        {16, 1 << 30, 3374, "Ring", "Simple"}, {64, 1 << 30, 4767, "Ring", "LL128"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Cluster c = dgx_h100(rows[i].nodes, 8);
        check_worked(&c, COLLECTIVE_all_gather, &rows[i]);
    }
}

/* Large messages in one node: the fastest algorithm, and bus bandwidths by hand from the terms of
 * nccl_fit.def. A ring of n GPUs runs at 240 or 360 GB/s, as NCCL's search assumes, times `ring`,
 * divided by 1 + steps / 2 (n - 1). NVLS runs at n ports of 370.8 / (n + 1), times `nvls`, times 2
 * (n - 1) / n. */
static void bus_bandwidths_in_a_node_match(void **state)
{
    (void)state;
    Cluster h = dgx_h100(1, 8), a = ampere(1);
    const NcclFit *hf = nccl_fit(&h), *af = nccl_fit(&a);
    double nvls[8] = {0};
    for (uint32_t n = 5; n < 8; n++) nvls[n] = n * 370.8 / (n + 1) * hf->nvls * 2 * (n - 1) / n;
    const struct {
        const Cluster *cluster;
        OpKind op;
        uint32_t gpus;
        double gb_per_s;
        const char *algorithm;
    } rows[] = {{&a, OP_all_reduce, 8, 240 * af->ring / (1 + af->steps / 14), "Ring"},
                {&a, OP_all_gather, 8, 240 * af->gather, "Ring"},
                {&h, OP_all_reduce, 8, 8 * 370.8 / 9 * hf->nvls * 2 * 7 / 8, "NVLS"},
                {&h, OP_all_gather, 8, 360 * hf->gather, "Ring"},
                {&h, OP_reduce_scatter, 8, 360 * hf->gather, "Ring"},
                {&h, OP_all_reduce, 4, 360 * hf->ring / (1 + hf->steps / 6), "Ring"},
                {&h, OP_all_reduce, 5, nvls[5], "NVLS"},
                {&h, OP_all_reduce, 6, nvls[6], "NVLS"},
                {&h, OP_all_reduce, 7, nvls[7], "NVLS"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        NcclChoice choice =
            nccl_choose(rows[i].cluster, rows[i].op, 1, rows[i].gpus, UINT64_C(64) << 30);
        assert_string_equal(choice.algorithm, rows[i].algorithm);
        assert_true(fabs(choice.bus_bytes_per_s / 1e9 / rows[i].gb_per_s - 1) < .005);
    }
}

/* On 8 H200, NCCL uses Ring with LL up to 1 MiB and NVLS from 2 MiB on, as its own log shows. */
static void nvls_begins_at_2_mib(void **state)
{
    (void)state;
    Cluster c = dgx_h100(1, 8);
    NcclChoice small = nccl_choose(&c, OP_all_reduce, 1, 8, 1 << 20);
    assert_string_equal(small.algorithm, "Ring");
    NcclChoice large = nccl_choose(&c, OP_all_reduce, 1, 8, 2 << 20);
    assert_string_equal(large.algorithm, "NVLS");
    assert_int_equal(large.channels, 16);
}

/* One rank on each node, as for data parallelism over nodes beside tensor parallelism inside them.
 * The rank's own NIC limits it. */
static void one_rank_a_node_uses_its_nic(void **state)
{
    (void)state;
    Cluster c = dgx_h100(4, 8);
    NcclChoice choice = nccl_choose(&c, OP_all_gather, 4, 1, 1 << 30);
    assert_true(choice.bus_bytes_per_s < 48.1e9);
    assert_true(choice.bus_bytes_per_s > 34e9);
    assert_true(choice.port_bytes < 1);
    assert_true(fabs(choice.nic_bytes - .75 * (1 << 30)) < 1);
}

/* Parallel aggregated trees (PAT) need at least two nodes with one rank each. From n to 2n nodes,
 * their latency grows by a step of the tree, and by 2.8 us for each of n more ranks. */
static void pat_needs_one_rank_on_each_node(void **state)
{
    (void)state;
    double before = 0, grown = 0;
    for (uint32_t nodes = 1; nodes <= 64; nodes *= 2)
        for (uint32_t each = 1; each <= 2; each++) {
            Cluster c = dgx_h100(nodes, 8);
            const NcclCase q = nccl_case(&c, COLLECTIVE_all_gather, nodes, each, 1 << 20);
            const NcclEstimate e = nccl_tuner(&q, NCCL_PAT, 2); /* 2: the protocol Simple */
            assert_true((e.bytes_per_us > 0) == (nodes > 1 && each == 1));
            if (nodes < 2 || each > 1) continue;
            const double more = e.latency_us - before;
            if (nodes > 4) assert_true(fabs(more - grown - 2.8 * nodes / 4) < 1e-9);
            before = e.latency_us, grown = more;
        }
}

/* A ring over several nodes whose NICs are faster than the ports of the devices. The ports limit
 * it, whatever the number of nodes. */
static void ports_limit_rings_between_nodes(void **state)
{
    (void)state;
    for (uint32_t nodes = 2; nodes <= 4; nodes++) {
        Cluster c = dgx_h100(nodes, 8);
        c.nic_bytes_per_s = 1e12;
        const NcclFit fit = *nccl_fit(&c);
        const NcclQuestion q = {COLLECTIVE_all_gather, nodes, 8, UINT64_C(1) << 34, .fit = &fit};
        const NcclChoice choice = nccl_answer(&c, &q);
        assert_string_equal(choice.algorithm, "Ring");
        assert_string_equal(choice.protocol, "Simple");
        const double port = nccl_port_bytes_per_s(&c) * fit.gather;
        const double us = choice.port_bytes / port * 1e6;
        if (fabs((double)choice.fluid_ps / 1e6 / us - 1) > 1e-6)
            fail_msg("%u nodes: %g us, expected %g", nodes, (double)choice.fluid_ps / 1e6, us);
    }
}

/* A group of one rank only copies: it reads and writes each byte once. */
static void a_group_of_one_copies(void **state)
{
    (void)state;
    Cluster c = dgx_h100(1, 8);
    c.device.hbm_bytes_per_s = 1e12;
    for (uint64_t bytes = 1 << 20; bytes <= 1 << 30; bytes *= 4) {
        const NcclChoice choice = nccl_choose(&c, OP_all_gather, 1, 1, bytes);
        assert_string_equal(choice.algorithm, "copy");
        assert_true(llabs((long long)choice.time_ps - (long long)(2 * bytes)) <= 1);
    }
}

static void more_bytes_never_take_less_time(void **state)
{
    (void)state;
    static const OpKind ops[] = {OP_all_reduce, OP_all_gather, OP_reduce_scatter, OP_all_to_all,
                                 OP_send};
    for (uint32_t i = 0; i < 5; i++) {
        for (uint32_t nodes = 1; nodes <= 8; nodes *= 2) {
            Cluster c = dgx_h100(nodes, 8);
            Ps least = 0;
            for (uint64_t bytes = 1 << 22; bytes <= UINT64_C(1) << 32; bytes *= 2) {
                Ps time = nccl_choose(&c, ops[i], nodes, 8, bytes).time_ps;
                assert_true(time >= least);
                least = time;
            }
        }
    }
}

/* ---- terms outside the tuner, by hand ---- */

/* Two nodes of H100 on a network that only allows rings and trees with the protocol Simple. The
 * smallest all-reduce is a tree: 8.4 + 2 (7 x 4 + 14) us, plus the launch and two messages. */
static void a_network_may_rule_protocols_out(void **state)
{
    (void)state;
    Cluster c = dgx_h100(2, 8);
    c.nic_bytes_per_s = 25e9;
    c.collective_launch_s = 8e-6;
    c.fabric = (NetworkFabric){.message_s = 4.5e-6, .simple_only = true, .no_nvls = true};
    NcclChoice choice = nccl_choose(&c, OP_all_reduce, 2, 8, 8);
    assert_string_equal(choice.algorithm, "Tree");
    assert_string_equal(choice.protocol, "Simple");
    assert_true(fabs((double)choice.time_ps / 1e6 - (8.4 + 2 * (7 * 4 + 14) + 8 + 2 * 4.5)) < .1);
    choice = nccl_choose(&c, OP_all_reduce, 2, 8, UINT64_C(8) << 30);
    assert_string_equal(choice.algorithm, "Tree"); /* NVLSTree is ruled out */
}

/* In a tree of two nodes, a node sends one buffer through all its NICs; in one of three nodes one
 * and a half buffers; in larger trees two. The slower one of NIC and port limits the tree. */
static void trees_load_the_busiest_node(void **state)
{
    (void)state;
    static const double leaves[] = {0, 0, 1, 1.5, 2, 2};
    double bytes = 0x1p34;
    for (uint32_t nodes = 2; nodes <= 5; nodes++) {
        Cluster c = dgx_h100(nodes, 8);
        c.nics_per_node = 4;
        c.nic_bytes_per_s = 12.5e9;
        c.fabric = (NetworkFabric){.achieved = .8, .simple_only = true, .no_nvls = true};
        NcclChoice choice = nccl_choose(&c, OP_all_reduce, nodes, 8, (uint64_t)bytes);
        if (strcmp(choice.algorithm, "Tree") != 0) {
            assert_true(nodes > 2); /* a ring sends 2 (n - 1) / n buffers */
            continue;
        }
        double seconds = leaves[nodes] * bytes / (4 * 12.5e9 * .8);
        assert_true(fabs((double)choice.fluid_ps / 1e12 / seconds - 1) < 1e-6);
        assert_true(fabs(choice.nic_bytes - leaves[nodes] * bytes / 8) < 1);
    }
}

/* Four rails of 100 Gbit/s for each GPU look to NCCL like one NIC of 400 Gbit/s. */
static void rails_of_a_device_are_one_nic(void **state)
{
    (void)state;
    Cluster one = dgx_h100(2, 8), four = dgx_h100(2, 8);
    four.nics_per_node = 32;
    four.nic_bytes_per_s = 12.5e9;
    for (uint64_t bytes = 1 << 10; bytes <= UINT64_C(1) << 34; bytes <<= 6) {
        NcclChoice a = nccl_choose(&one, OP_all_reduce, 2, 8, bytes);
        NcclChoice b = nccl_choose(&four, OP_all_reduce, 2, 8, bytes);
        assert_string_equal(a.algorithm, b.algorithm);
        assert_int_equal(a.time_ps, b.time_ps);
    }
}

/* In a hybrid cube mesh, all 8 GPUs together have 6 rings. Each ring uses one link, counted as 20
 * GB/s. Two GPUs have one ring. */
static void a_cube_mesh_has_6_rings(void **state)
{
    (void)state;
    Cluster c = ampere(1);
    c.device.arch = "Volta";
    c.intra = FABRIC_nvlink;
    c.intra_bytes_per_s = 150e9;
    c.rings[2] = 1;
    c.rings[8] = 6;
    const NcclFit *fit = nccl_fit(&c);
    double one = 20 * fit->ring / (1 + fit->steps / 2),
           six = 120 * fit->ring / (1 + fit->steps / 14);
    NcclChoice choice = nccl_choose(&c, OP_all_reduce, 1, 2, UINT64_C(64) << 30);
    assert_true(fabs(choice.bus_bytes_per_s / 1e9 / one - 1) < .005);
    choice = nccl_choose(&c, OP_all_reduce, 1, 8, UINT64_C(64) << 30);
    assert_true(fabs(choice.bus_bytes_per_s / 1e9 / six - 1) < .005);
}

/* If the switches reduce, each NIC carries its share only once. So a large reduction is faster than
 * with trees, and its latency does not grow with the number of nodes. */
static void reducing_switches_beat_trees(void **state)
{
    (void)state;
    Cluster plain = dgx_h100(16, 8), sharp = dgx_h100(16, 8);
    sharp.fabric.sharp = true;
    NcclChoice tree = nccl_choose(&plain, OP_all_reduce, 16, 8, UINT64_C(1) << 32);
    NcclChoice reduced = nccl_choose(&sharp, OP_all_reduce, 16, 8, UINT64_C(1) << 32);
    assert_string_equal(reduced.algorithm, "NVLS");
    assert_true(reduced.time_ps < tree.time_ps);
    assert_true(fabs(reduced.nic_bytes - 0x1p32 / 8) < 1);
    NcclChoice few = nccl_choose(&sharp, OP_all_reduce, 4, 8, 1 << 26);
    NcclChoice many = nccl_choose(&sharp, OP_all_reduce, 256, 8, 1 << 26);
    assert_int_equal(few.latency_ps, many.latency_ps);
}

/* Windows are buffers that all ranks have mapped. A copy engine takes no SM, and moves (n - 1) / n
 * of the bytes at .83 of the rate of the links. Kernels for windows exist only inside one NVLink
 * domain. They are faster than the normal kernels where latency matters. */
static void windows_take_copy_engines_or_fast_kernels(void **state)
{
    (void)state;
    Cluster c = dgx_h100(1, 8);
    NcclQuestion q = {.kind = COLLECTIVE_all_gather, .n_nodes = 1, .ranks_per_node = 8};
    q.bytes = UINT64_C(1) << 30;
    q.buffers = NCCL_copy_engine;
    assert_true(nccl_buffers_possible(&c, &q));
    NcclChoice copies = nccl_answer(&c, &q);
    assert_int_equal(copies.channels, 0);
    double us = 25 + 0x1p30 * 7 / 8 / (.83 * 450e9) * 1e6;
    assert_true(fabs((double)copies.time_ps / 1e6 - us) < .01);
    q.buffers = NCCL_symmetric;
    q.kind = COLLECTIVE_all_reduce;
    q.bytes = 1 << 16;
    NcclChoice window = nccl_answer(&c, &q);
    NcclChoice plain = nccl_choose(&c, OP_all_reduce, 1, 8, 1 << 16);
    assert_true(window.time_ps < plain.time_ps);
    /* The switch can move no more bytes than a port carries, and no more than it can reduce. */
    q.bytes = UINT64_C(1) << 32;
    window = nccl_answer(&c, &q);
    assert_true(window.port_bytes / (double)window.fluid_ps * 1e12 < nccl_port_bytes_per_s(&c));
    plain = nccl_choose(&c, OP_all_reduce, 1, 8, q.bytes);
    assert_string_equal(plain.algorithm, "NVLS");
    assert_int_equal(window.fluid_ps, plain.fluid_ps);
    q.kind = COLLECTIVE_broadcast;
    assert_false(nccl_buffers_possible(&c, &q));
    q.kind = COLLECTIVE_all_gather;
    q.n_nodes = 2;
    assert_false(nccl_buffers_possible(&c, &q));
    Cluster old = ampere(1);
    q.n_nodes = 1;
    assert_false(nccl_buffers_possible(&old, &q));
}

/* A call takes 14 us longer if the caller waits for it. If one process sends for eight devices,
 * each device costs 8.2 us. */
static void waiting_and_shared_processes_cost_time(void **state)
{
    (void)state;
    Cluster c = ampere(1);
    NcclQuestion q = {.kind = COLLECTIVE_all_to_all, .n_nodes = 1, .ranks_per_node = 8};
    q.bytes = 1 << 20;
    Ps piped = nccl_answer(&c, &q).time_ps;
    q.issue = NCCL_blocking;
    assert_int_equal(nccl_answer(&c, &q).time_ps - piped, 14000000);
    q.issue = NCCL_one_process;
    assert_int_equal(nccl_answer(&c, &q).time_ps - piped, 14000000 + 8 * 8200000);
}

/* ---- published sweeps: only the dev-cal rows of tests/data/measured_collectives.csv, with bounds
 * on their errors ---- */

typedef struct Sweep {
    const char *name;
    bool hopper;
    NcclIssue issue;
    double mean_bound; /* bound on the mean error of messages of at least `from` bytes */
    uint64_t from;
    double sum, worst;
    uint32_t n;
} Sweep;

static Sweep sweeps[] = {
    {.name = "a100x8", .issue = NCCL_one_process, .mean_bound = .06},
    {.name = "a100x8-all", .issue = NCCL_one_process, .mean_bound = .05, .from = 64 << 20},
    {.name = "a100-subset", .issue = NCCL_blocking, .mean_bound = .06},
    {.name = "h200x8", .hopper = true, .issue = NCCL_blocking, .mean_bound = .05},
    {.name = "h200-large", .hopper = true, .issue = NCCL_blocking, .mean_bound = .01},
    {.name = "h100", .hopper = true, .mean_bound = .12, .from = 4 << 20},
    {.name = "h100-pair", .hopper = true, .mean_bound = .1},
    {.name = "a100-pair", .mean_bound = .17, .from = 1 << 20},
};

static void add_row(const char *name, const char *collective, uint64_t bytes, uint32_t gpus,
                    uint32_t nodes, double us)
{
    for (size_t i = 0; i < sizeof sweeps / sizeof sweeps[0]; i++) {
        Sweep *s = &sweeps[i];
        if (strcmp(s->name, name) != 0) continue;
        if (bytes < s->from) return;
        Cluster c = s->hopper ? dgx_h100(nodes, 8) : ampere(nodes);
        c.collective_launch_s = 8e-6;
        NcclQuestion q = {.n_nodes = nodes, .ranks_per_node = gpus / nodes, .bytes = bytes};
        q.issue = s->issue;
        assert_true(collective_find(collective, &q.kind));
        double model = (double)nccl_answer(&c, &q).time_ps / 1e6, error = fabs(model / us - 1);
        s->n++;
        s->sum += error;
        if (error > s->worst) s->worst = error;
        return;
    }
    fail_msg("no sweep named %s", name);
}

static void published_measurements_are_predicted(void **state)
{
    (void)state;
    FILE *f = fopen(TANDEM_SOURCE_DIR "/tests/data/measured_collectives.csv", "r");
    assert_non_null(f);
    char line[512];
    assert_non_null(fgets(line, sizeof line, f));
    uint32_t n = 0;
    while (fgets(line, sizeof line, f) != NULL) {
        char name[32], collective[32];
        unsigned long long bytes;
        unsigned gpus, nodes;
        double us;
        assert_int_equal(sscanf(line, "%31[^,],%31[^,],%llu,%u,%u,%*[^,],%lf", name, collective,
                                &bytes, &gpus, &nodes, &us),
                         6);
        add_row(name, collective, bytes, gpus, nodes, us);
        n++;
    }
    fclose(f);
    assert_true(n > 250);
    printf("%-14s %5s %10s %10s\n", "sweep", "rows", "mean err", "max err");
    bool ok = true;
    for (size_t i = 0; i < sizeof sweeps / sizeof sweeps[0]; i++) {
        const Sweep *s = &sweeps[i];
        assert_true(s->n > 0);
        printf("%-14s %5u %9.1f%% %9.1f%%\n", s->name, s->n, 100 * s->sum / s->n, 100 * s->worst);
        if (s->sum / s->n > s->mean_bound) ok = false;
    }
    assert_true(ok);
}

/* Collectives on registered buffers, over a switch, take as many SMs as megatron-fsdp's table
 * states. */
static void registered_buffers_take_fewer_sms(void **state)
{
    (void)state;
    Cluster h = dgx_h100(4, 8), a = ampere(4);
    assert_int_equal(nccl_registered_channels(&h, OP_all_gather, 1, 8), 4);
    assert_int_equal(nccl_registered_channels(&h, OP_reduce_scatter, 1, 8), 5);
    assert_int_equal(nccl_registered_channels(&h, OP_all_gather, 4, 8), 16);
    assert_int_equal(nccl_registered_channels(&h, OP_all_gather, 4, 1), 1);
    assert_int_equal(nccl_registered_channels(&h, OP_reduce_scatter, 4, 1), 4);
    assert_int_equal(nccl_registered_channels(&h, OP_all_reduce, 1, 8), UINT32_MAX);
    assert_int_equal(nccl_registered_channels(&a, OP_all_gather, 1, 8), UINT32_MAX);
    assert_true(nccl_choose(&h, OP_all_gather, 1, 8, 1 << 28).channels > 4);
}

static NcclChoice asked(const Cluster *c, OpKind op, uint32_t nodes, uint64_t bytes, NcclSettings s)
{
    return nccl_choose_as(c, &s, op, nodes, 8, bytes);
}

/* A plan may request windows and copy engines from NCCL. Where NCCL does not support them, the
 * request changes nothing. */
static void a_plan_can_request_windows(void **state)
{
    (void)state;
    Cluster h = dgx_h100(4, 8), a = ampere(4);
    NcclSettings window = {.registration = NCCL_REGISTER_window};
    NcclSettings zero = {.cta_policy = NCCL_CTAS_zero};
    assert_string_equal(asked(&h, OP_all_gather, 1, 1 << 26, window).algorithm, "Symmetric");
    NcclChoice copies = asked(&h, OP_all_gather, 1, 1 << 26, zero);
    assert_string_equal(copies.algorithm, "CopyEngine");
    assert_int_equal(copies.channels, 0);
    /* Copy engines cannot add. Kernels for windows exist neither between nodes nor on older
     * devices. */
    assert_string_equal(asked(&h, OP_reduce_scatter, 1, 1 << 26, zero).algorithm, "Symmetric");
    assert_string_equal(asked(&h, OP_all_gather, 4, 1 << 26, zero).algorithm, "Ring");
    assert_string_equal(asked(&a, OP_all_gather, 1, 1 << 26, window).algorithm, "Ring");
    NcclChoice plain = nccl_choose(&h, OP_all_gather, 1, 8, 1 << 26);
    NcclChoice buffers =
        asked(&h, OP_all_gather, 1, 1 << 26, (NcclSettings){.registration = NCCL_REGISTER_buffer});
    assert_int_equal(plain.time_ps, buffers.time_ps);
    assert_int_equal(plain.channels, buffers.channels);
}

/* If the plan allows fewer thread blocks than NCCL would take, the rate is lower. As many blocks as
 * NCCL's change nothing. More blocks only take more SMs. */
static void thread_blocks_carry_their_part(void **state)
{
    (void)state;
    Cluster h = dgx_h100(4, 8);
    static const OpKind ops[] = {OP_all_reduce, OP_all_gather, OP_reduce_scatter, OP_all_to_all};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        for (uint32_t nodes = 1; nodes <= 4; nodes *= 4) {
            NcclChoice plain = nccl_choose(&h, ops[i], nodes, 8, UINT64_C(1) << 30);
            Ps before = 0;
            for (uint32_t most = 1; most <= 64; most *= 2) {
                NcclChoice c =
                    asked(&h, ops[i], nodes, UINT64_C(1) << 30, (NcclSettings){.max_ctas = most});
                assert_true(c.channels <= most);
                assert_true(before == 0 || c.time_ps <= before);
                if (2 * most <= plain.channels) assert_true(c.fluid_ps > 19 * plain.fluid_ps / 10);
                before = c.time_ps;
            }
            assert_int_equal(before, plain.time_ps);
            NcclChoice more =
                asked(&h, ops[i], nodes, UINT64_C(1) << 30, (NcclSettings){.min_ctas = 64});
            assert_int_equal(more.channels, 64);
            assert_int_equal(more.time_ps, plain.time_ps);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduces_between_nodes_match_the_tuner),
        cmocka_unit_test(processors_limit_ll),
        cmocka_unit_test(all_gathers_between_nodes_match_the_tuner),
        cmocka_unit_test(bus_bandwidths_in_a_node_match),
        cmocka_unit_test(nvls_begins_at_2_mib),
        cmocka_unit_test(one_rank_a_node_uses_its_nic),
        cmocka_unit_test(pat_needs_one_rank_on_each_node),
        cmocka_unit_test(ports_limit_rings_between_nodes),
        cmocka_unit_test(a_group_of_one_copies),
        cmocka_unit_test(more_bytes_never_take_less_time),
        cmocka_unit_test(a_network_may_rule_protocols_out),
        cmocka_unit_test(trees_load_the_busiest_node),
        cmocka_unit_test(rails_of_a_device_are_one_nic),
        cmocka_unit_test(a_cube_mesh_has_6_rings),
        cmocka_unit_test(reducing_switches_beat_trees),
        cmocka_unit_test(windows_take_copy_engines_or_fast_kernels),
        cmocka_unit_test(waiting_and_shared_processes_cost_time),
        cmocka_unit_test(published_measurements_are_predicted),
        cmocka_unit_test(registered_buffers_take_fewer_sms),
        cmocka_unit_test(a_plan_can_request_windows),
        cmocka_unit_test(thread_blocks_carry_their_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
