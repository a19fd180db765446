/* Every cluster of the library loads and has the name of its file. Its collectives take longer for
 * more bytes and for longer distances. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "planner/front/front.h"
#include "sim/sim.h"

static bool is_part(const char *name)
{
    static const char *const parts[] = {"fabrics.lua", "node.lua", "gpu.lua"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(name, parts[i]) == 0) return true;
    return false;
}

static void check_collectives(const Cluster *c)
{
    for (Collective kind = 0; kind < COLLECTIVE_COUNT; kind++) {
        for (uint32_t nodes = 1; nodes <= 4; nodes += 3) {
            NcclQuestion q = {.kind = kind, .n_nodes = nodes};
            q.ranks_per_node =
                kind == COLLECTIVE_sendrecv ? 3 - (nodes > 1 ? 2 : 1) : c->devices_per_node;
            Ps last = 0;
            for (q.bytes = 64; q.bytes <= UINT64_C(1) << 34; q.bytes *= 2) {
                NcclChoice choice = nccl_answer(c, &q);
                assert_true(choice.time_ps > 0);
                /* The tuner may change its algorithm slightly too early, so a larger message may be
                 * slightly faster. */
                assert_true((double)choice.time_ps >= .6 * (double)last);
                assert_true(choice.nic_bytes <= 0 || nodes > 1);
                last = choice.time_ps;
            }
            double seconds = (double)last / (double)PS_PER_S;
            if (nodes > 1 && c->nics_per_node > 0) {
                /* A collective is not faster than all NICs of a node together can send the bytes
                 * that leave it. */
                double share = kind == COLLECTIVE_sendrecv ? 1. : 1. / 4;
                double nics = c->nics_per_node * c->nic_bytes_per_s;
                assert_true(seconds > share * 0x1p34 / nics * .9);
            }
        }
    }
}

static void every_cluster_of_the_library_loads_and_has_plausible_collectives(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    DIR *folder = opendir(TANDEM_SOURCE_DIR "/scripts/clusters");
    assert_non_null(folder);
    uint32_t n = 0;
    for (struct dirent *file = readdir(folder); file != NULL; file = readdir(folder)) {
        size_t length = strlen(file->d_name);
        if (length < 5 || strcmp(file->d_name + length - 4, ".lua") != 0 || is_part(file->d_name))
            continue;
        const char *name = arena_copy(arena, file->d_name, length - 4);
        Diag d = diag_in(arena);
        Cluster c;
        if (!front_cluster(name, 2, arena, &c, &d)) fail_msg("clusters.%s does not load", name);
        assert_string_equal(c.name, name);
        n++;
        if (c.is_local) continue;
        assert_int_equal(c.nodes, 2);
        assert_true(c.device.memory_bytes > UINT64_C(10) << 30);
        assert_non_null(c.fabric.name);
        check_collectives(&c);
    }
    closedir(folder);
    assert_true(n >= 25);
    arena_free(arena);
}

static NetworkFabric fabric_of(const char *cluster, Arena *arena)
{
    Diag d = diag_in(arena);
    Cluster c;
    assert_true(front_cluster(cluster, 2, arena, &c, &d));
    return c.fabric;
}

/* A network without fitted rows needs as many bytes for each NIC to fill its pipeline as the fitted
 * networks do on average. So NICs of 12.5 GB/s take twice as long as NICs of 25 GB/s, and buffers
 * of twice the size take twice as long. */
static void networks_without_fits_fill_with_the_same_bytes(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    NetworkFabric mega = fabric_of("a3_mega", arena), slingshot = fabric_of("perlmutter", arena);
    NetworkFabric omni_path = fabric_of("jean_zay_a100", arena);
    NetworkFabric first = fabric_of("p4de", arena), second = fabric_of("p5", arena);
    NetworkFabric fourth = fabric_of("p6_b200", arena);
    double bytes =
        (first.ramp_s * first.achieved * 12.5e9 + second.ramp_s * second.achieved * 50e9 +
         fourth.ramp_s * fourth.achieved * 50e9) /
        3;
    assert_true(bytes > 4e6 && bytes < 20e6);
    assert_true(fabs(slingshot.ramp_s * 25e9 / bytes - 1) < 1e-9);
    assert_true(fabs(omni_path.ramp_s * 12.5e9 / bytes - 1) < 1e-9);
    assert_true(fabs(mega.ramp_s * 25e9 / bytes - 2) < 1e-9);
    assert_true(fabs(mega.spread_s - (first.spread_s + second.spread_s + fourth.spread_s) / 3) <
                1e-12);
    assert_true(mega.buffer_bytes == 8 << 20 && slingshot.buffer_bytes == 0);
    arena_free(arena);
}

static bool has_cluster(const char *expression, Cluster *out, Arena *arena, Diag *d)
{
    const char *code =
        arena_print(arena,
                    "return plan { model = require 'models.llama' 'tiny', cluster = %s, mesh = { "
                    "dp_shard = -1 }, parallel = { fsdp2 {} }, batch = { global = 64, micro = 1, "
                    "seq = 32 }, optimizer = adamw { lr = 1e-3 } }",
                    expression);
    Config config;
    Graph graph;
    FrontOptions options = {0};
    if (!front_load_text("p.lua", code, &options, arena, &config, &graph, d)) return false;
    *out = config.cluster;
    return true;
}

/* A chip draws some power at any clock. The rest grows with the cube of the clock, so a power limit
 * sets the clock. The B300 has the multiprocessors of the B200 and a higher limit. The H20 has few
 * multiprocessors and is never limited. Uplinks may be thinner than the library's. Unknown options
 * of a cluster are refused, with a list of the known ones. */
static void options_of_a_cluster_change_it_and_unknown_ones_are_refused(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Cluster usual, limited, thin;
    assert_true(has_cluster("require 'clusters.hgx_h200' {}", &usual, arena, &d));
    assert_true(has_cluster("require 'clusters.hgx_h200' { watts = 350 }", &limited, arena, &d));
    const double still = .15 * 700, part = cbrt((350 - still) / (700 - still));
    assert_true(fabs(limited.device.sustained / usual.device.sustained - part) < 1e-9);
    Cluster b200, b300, h20;
    assert_true(has_cluster("require 'clusters.hgx_b200' {}", &b200, arena, &d));
    assert_true(has_cluster("require 'clusters.gpu' { gpu = 'B300' }", &b300, arena, &d));
    assert_true(has_cluster("require 'clusters.gpu' { gpu = 'H20' }", &h20, arena, &d));
    const double more = cbrt((1300 - 150.) / (1000 - 150.));
    assert_true(fabs(b300.device.sustained / b200.device.sustained - more) < 1e-9);
    assert_true(h20.device.sustained == 1);
    assert_true(has_cluster("require 'clusters.gpu' { gpu = 'H200', nodes = 4, oversubscription = "
                            "3, nodes_per_group = 2, group_oversubscription = 5 }",
                            &thin, arena, &d));
    assert_true(thin.oversubscription == 3 && thin.group_oversubscription == 5);
    assert_int_equal(thin.nodes_per_group, 2);
    Cluster box, places;
    assert_true(has_cluster(
        "require 'clusters.pcie_l40s' { pcie = { switches = 4, peer = 'off' } }", &box, arena, &d));
    assert_int_equal(box.pcie.switches, 4);
    assert_int_equal(box.pcie.sockets, 2);
    assert_int_equal(box.pcie.peer, PEER_off);
    assert_true(has_cluster("require 'clusters.torus_h100' { nodes = 4, topology = { sizes = { 2, "
                            "2 } } }",
                            &places, arena, &d));
    assert_int_equal(places.topology.kind, TOPOLOGY_torus);
    assert_int_equal(places.topology.sizes[1], 2);
    assert_int_equal(places.topology.sizes[2], 0);
    assert_int_equal(d.n_errors, 0);
    assert_false(has_cluster("require 'clusters.hgx_h200' { node = 2 }", &thin, arena, &d));
    assert_non_null(strstr(d.items.at[0].text, "no option 'node'"));
    assert_false(has_cluster("require 'clusters.gpu' { gpu = 'H200', nic = 2 }", &thin, arena, &d));
    assert_false(has_cluster("require 'clusters.hgx_h200' { watts = -5 }", &thin, arena, &d));
    arena_free(arena);
}

/* Published sources and drivers put other words around the name of a GPU. A word that only contains
 * a known name is another GPU. */
static void published_names_of_gpus_are_recognised(void **state)
{
    (void)state;
    static const struct {
        const char *said, *name;
    } names[] = {
        {"NVIDIA H100 NVL", "H100-NVL-94GB"},
        {"H100 NVL 94GB", "H100-NVL-94GB"},
        {"H100-SXM NVLink", "H100-SXM5-80GB"},
        {"Tesla V100-SXM2-16GB", "V100-SXM2-16GB"},
        {"V100-SXM2", "V100-SXM2-32GB"},
        {"NVIDIA Blackwell Ultra GPU (GB300) 280 GB", "GB300-279GB"},
        {"RTX A6000", "A6000-48GB"},
        {"A10G", "A10G"},
        {"NVIDIA A30", "A30-24GB"},
        {"NVIDIA L20", "L20-48GB"},
        {"NVIDIA L20X", NULL},
        {"Tesla V100-PCIE-16GB", "V100-PCIe-16GB"},
        {"Tesla V100-PCIE-32GB", "V100-PCIe-32GB"},
        {"Tesla V100S-PCIE-32GB", NULL},
        {"NVIDIA GH200 144G HBM3e", "GH200-144GB"},
        {"NVIDIA GH200 480GB", "GH200-96GB"},
        {"NVIDIA A100-PCIE-40GB", "A100-PCIe-40GB"},
        {"NVIDIA RTX 6000 Ada Generation", "RTX6000Ada-48GB"},
        {"NVIDIA RTX A5000", "A5000-24GB"},
        {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTXPRO6000-Server-96GB"},
        {"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTXPRO6000-MaxQ-96GB"},
        {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTXPRO6000-96GB"},
        {"RTX PRO 6000 MIG 1g.24gb", NULL},
        {"arXiv 2305.15090", NULL},
        {"arXiv 2312.14090", NULL},
        {"NVIDIA RTX PRO 4500 Blackwell", NULL},
        {"NVIDIA GeForce RTX 5090", "RTX5090-32GB"},
        {"Tesla T4", "T4-16GB"},
        {"AMD Instinct MI250X", "MI250X-64GB"},
        {"AMD Instinct MI350X", "MI350X-288GB"},
        {"NVIDIA GB10 (Grace Blackwell)", NULL},
        {"RTX A4000", NULL},
        {"RTX A4500", NULL},
        {"TPU v5p", NULL}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Cluster cluster;
        const char *code = arena_print(
            arena, "require 'clusters.gpu' { gpu = require 'tandem.gpus'.find '%s' or 'TPU' }",
            names[i].said);
        const bool known = has_cluster(code, &cluster, arena, &d);
        if (known != (names[i].name != NULL)) fail_msg("%s is known: %d", names[i].said, known);
        if (known) assert_string_equal(cluster.device.name, names[i].name);
        if (!known) assert_non_null(strstr(d.items.at[0].text, "the library has no GPU called"));
        arena_free(arena);
    }
}

/* A plan names a GPU by its name in the library or by parts of it. A name that only contains the
 * name of a known GPU is an error with the nearest name. */
static void a_plan_names_a_gpu_by_parts_of_its_name(void **state)
{
    (void)state;
    static const struct {
        const char *said, *name, *hint;
    } names[] = {{"H100", "H100-SXM5-80GB", NULL},
                 {"h100-sxm", "H100-SXM5-80GB", NULL},
                 {"H100-80GB", "H100-SXM5-80GB", NULL},
                 {"H100-PCIe", "H100-PCIe-80GB", NULL},
                 {"H100 NVL", "H100-NVL-94GB", NULL},
                 {"A100-40GB", "A100-SXM4-40GB", NULL},
                 {"RTX 6000 Ada", "RTX6000Ada-48GB", NULL},
                 {"l4", "L4-24GB", NULL},
                 {"MI300X", "MI300X-192GB", NULL},
                 {"4090", "RTX4090-24GB", NULL},
                 {"6000 Ada", "RTX6000Ada-48GB", NULL},
                 {"RTX4080", NULL, "did you mean 'RTX4090'?"},
                 {"H1000", NULL, "did you mean 'H100'?"},
                 {"H2000", NULL, "did you mean 'H200'?"},
                 {"B300x", NULL, "did you mean 'B300'?"},
                 {"B200,H2000", NULL, "GPUs are A10, A100, A10G,"},
                 {"H100-PCIe-96GB", NULL, "did you mean 'H100-PCIe-80GB'?"},
                 {"80GB-H100", NULL, "GPUs are"},
                 {"MI350X", "MI350X-288GB", NULL},
                 {"Hopper", NULL, "GPUs are"},
                 {"RTX", NULL, "GPUs are"},
                 {"", NULL, "GPUs are"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Cluster cluster;
        const char *code =
            arena_print(arena, "require 'clusters.gpu' { gpu = '%s' }", names[i].said);
        const bool known = has_cluster(code, &cluster, arena, &d);
        if (known != (names[i].name != NULL)) fail_msg("%s is known: %d", names[i].said, known);
        if (known) {
            assert_string_equal(cluster.device.name, names[i].name);
        } else {
            assert_string_equal(d.items.at[0].rule, "unknown-word");
            if (strstr(d.items.at[0].hint, names[i].hint) == NULL)
                fail_msg("%s gets the hint: %s", names[i].said, d.items.at[0].hint);
        }
        arena_free(arena);
    }
    /* Each name of the library is accepted in upper and lower case. */
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Cluster cluster;
    const bool all = has_cluster(
        "(function() local gpus = require 'tandem.gpus' for name in pairs(gpus.gpus) do "
        "if gpus.known(name) ~= name or gpus.known(name:lower()) ~= name then error(name) end end "
        "return require 'clusters.gpu' { gpu = 'H100' } end)()",
        &cluster, arena, &d);
    if (!all) fail_msg("%s", d.items.at[0].text);
    arena_free(arena);
}

/* A network with routes must have a place for each node, a rate for its links, and a route between
 * any two groups. */
static void an_impossible_topology_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *cluster, *says;
    } cases[] = {
        {"require 'clusters.torus_h100' { nodes = 513 }", "a torus has 512 places for 513 nodes"},
        {"require 'clusters.torus_h100' { topology = { sizes = { 4096, 4096, 4096, 4096 } } }",
         "at most"},
        {"require 'clusters.dragonfly_h100' { nodes = 145 }", "a dragonfly has 144 places"},
        {"require 'clusters.dragonfly_h100' { topology = { groups = 34 } }",
         "reaches 32 other groups"},
        {"require 'clusters.dgx_h100' { topology = { kind = 'torus', sizes = { 2 } } }",
         "the links of the topology have 0 bytes/s"},
        {"require 'clusters.dgx_h100' { nodes = 2, topology = { kind = 'dragonfly', groups = 2, "
         "routers = 1, nodes = 1, ways_out = 1, link_bytes_per_s = 1e9 } }",
         "the links of the topology have 0 bytes/s"},
        {"require 'clusters.dgx_h100' { topology = { kind = 'ring' } }",
         "'ring' is not an allowed word"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Cluster c;
        assert_false(has_cluster(cases[i].cluster, &c, arena, &d));
        assert_true(d.items.n > 0);
        if (strstr(d.items.at[0].text, cases[i].says) == NULL)
            fail_msg("%s: %s", cases[i].cluster, d.items.at[0].text);
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cluster_of_the_library_loads_and_has_plausible_collectives),
        cmocka_unit_test(networks_without_fits_fill_with_the_same_bytes),
        cmocka_unit_test(options_of_a_cluster_change_it_and_unknown_ones_are_refused),
        cmocka_unit_test(an_impossible_topology_is_refused),
        cmocka_unit_test(published_names_of_gpus_are_recognised),
        cmocka_unit_test(a_plan_names_a_gpu_by_parts_of_its_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
