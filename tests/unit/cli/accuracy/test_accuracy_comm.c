/* tandem accuracy --comm: a row of published collectives is read as it is written, or it is refused
 * with the reason. Each spelling below is compared with a plain row that means the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "cli/accuracy/accuracy.h"
#include "tests/support/command.h"
#include "tests/support/test_arena.h"

/* The cells of a row. NULL: the cell of the plain row, a 1 GiB all-reduce of two nodes of H100 in
 * 5 ms. */
typedef struct Cells {
    const char *collective, *bytes, *n_gpus, *nodes, *gpu, *links, *bus, *alg, *time, *notes;
} Cells;

/* Returns the section `comm` of the output for these rows. The source of row i is "s<i>.". */
static json_t *comm_of(const Cells *rows, size_t n)
{
    Str s = str_in(arena);
    str_add(&s, "collective,bytes,n_gpus,nodes,gpu,interconnect,busbw_GBps,algbw,time_us,source,"
                "notes,split\n");
    for (size_t i = 0; i < n; i++) {
        const Cells *c = &rows[i];
        const char *const cells[] = {c->collective ? c->collective : "all_reduce",
                                     c->bytes ? c->bytes : "1073741824",
                                     c->n_gpus ? c->n_gpus : "16",
                                     c->nodes ? c->nodes : "2",
                                     c->gpu ? c->gpu : "H100-SXM-80GB",
                                     c->links ? c->links : "NVLink4 + 8x400Gb IB",
                                     c->bus ? c->bus : "",
                                     c->alg ? c->alg : "",
                                     c->time ? c->time : "5000"};
        for (size_t k = 0; k < sizeof cells / sizeof *cells; k++)
            str_print(&s, "\"%s\",", cells[k]);
        str_print(&s, "s%zu.,\"%s\",dev-val\n", i, c->notes ? c->notes : "");
    }
    CommandResult r =
        COMMAND(arena, 120, "accuracy", "--comm", command_table(arena, str_text(&s)), "--json");
    if (r.exit_code != 0) fail_msg("%s", r.err);
    json_t *root = json_loads(r.out, 0, NULL);
    assert_non_null(root);
    json_t *comm = json_incref(json_object_get(root, "comm"));
    json_decref(root);
    return comm;
}

static const json_t *item_of(const json_t *comm, const char *list, size_t row)
{
    const char *source = arena_print(arena, "s%zu.", row);
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(comm, list), i, item)
    {
        if (strcmp(json_string_value(json_object_get(item, "source")), source) == 0) return item;
    }
    return NULL;
}

static double value_of(const json_t *comm, size_t row, const char *key)
{
    const json_t *score = item_of(comm, "scores", row), *why = item_of(comm, "not_scored", row);
    if (score == NULL)
        fail_msg("row %zu is refused: %s", row, json_string_value(json_object_get(why, "reason")));
    return json_number_value(json_object_get(score, key));
}

/* Two rows that mean the same. */
typedef struct Same {
    Cells written, plain;
} Same;

static void check_same(const Same *pairs, size_t n)
{
    Cells *rows = arena_array(arena, 2 * n, sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        rows[2 * i] = pairs[i].written;
        rows[2 * i + 1] = pairs[i].plain;
    }
    json_t *comm = comm_of(rows, 2 * n);
    for (size_t i = 0; i < n; i++) {
        const Cells *c = &pairs[i].written;
        const char *const keys[] = {"predicted", "measured"};
        for (size_t k = 0; k < 2; k++) {
            const double a = value_of(comm, 2 * i, keys[k]), b = value_of(comm, 2 * i + 1, keys[k]);
            if (fabs(a / b - 1) > 1e-3)
                fail_msg("pair %zu (%s %s %s): %s %g, the plain row has %g", i,
                         c->links ? c->links : "", c->gpu ? c->gpu : "", c->bytes ? c->bytes : "",
                         keys[k], a, b);
        }
    }
    json_decref(comm);
}
#define CHECK_SAME(pairs) check_same(pairs, sizeof(pairs) / sizeof *(pairs))

static void the_stated_speed_of_a_network_counts(void **state)
{
    (void)state;
#define LINKS(a, b)                                                                                \
    {                                                                                              \
        {.links = (a)},                                                                            \
        {                                                                                          \
            .links = (b)                                                                           \
        }                                                                                          \
    }
    static const Same pairs[] = {
        LINKS("HDR IB", "8x200Gb IB"),
        LINKS("IB EDR", "8x100Gb IB"),
        LINKS("8xHDR", "8x200Gb IB"),
        LINKS("NDR400", "8x400Gb IB"),
        LINKS("IB NDR200", "8x200Gb IB"),
        LINKS("IB 3.2 Tbps (per node)", "8x400Gb IB"),
        LINKS("1x 400Gb IB", "1x400Gb InfiniBand"),
        LINKS("50 GB/s IB", "8x400Gb IB"),
        LINKS("RoCE v2 200G", "8x200Gb RoCE"),
        LINKS("no IB, RoCE 400Gb", "8x400Gb RoCE"),
        LINKS("EFA 3.2 Tbps per node", "p5: EFA 3200Gb (32x100Gb) per node"),
        LINKS("EFA v2", "EFA 3200Gb per node"),
        LINKS("EFA v4", "p6-b200: EFAv4 8x400Gb per node"),
        LINKS("100GbE", "1x100Gb Ethernet"),
        LINKS("10GigE", "1x10Gb Ethernet"),
        LINKS("Slingshot 11", "8x200Gb Slingshot"),
        LINKS("OPA 100", "8x100Gb Omni-Path"),
        LINKS("TCPXO", "TCPXO 8x200Gb per node"),
        LINKS("TCPX", "TCPX 4x200Gb per node"),
        LINKS("DGX H100 IB", "8x400Gb IB"),
        {{.links = "8x HDR", .gpu = "A100-SXM4-80GB"},
         {.links = "8x200Gb IB", .gpu = "A100-SXM4-80GB"}},
        {{.links = "EFA", .gpu = "A100-SXM4-80GB"},
         {.links = "p4de: EFA 4x100Gb per node", .gpu = "A100-SXM4-80GB"}},
    };
    CHECK_SAME(pairs);
    static const Cells slower[] = {{.links = "8x400Gb IB"},     {.links = "HDR IB"},
                                   {.links = "EDR IB"},         {.links = "FDR IB"},
                                   {.links = "2x EDR IB"},      {.links = "100GbE"},
                                   {.links = "1x25Gb Ethernet"}};
    const size_t n = sizeof slower / sizeof *slower;
    json_t *comm = comm_of(slower, n);
    for (size_t i = 1; i < n; i++)
        if (value_of(comm, i, "predicted") < 1.3 * value_of(comm, i - 1, "predicted"))
            fail_msg("%s is not slower than %s", slower[i].links, slower[i - 1].links);
    json_decref(comm);
}

static void the_stated_links_of_a_node_count(void **state)
{
    (void)state;
#define NODE(g, a, h, b)                                                                           \
    {                                                                                              \
        {.n_gpus = "4", .nodes = "1", .gpu = (g), .links = (a)},                                   \
        {                                                                                          \
            .n_gpus = "4", .nodes = "1", .gpu = (h), .links = (b)                                  \
        }                                                                                          \
    }
    static const Same pairs[] = {
        NODE("A100", "PCIe Gen4 x16", "A100-PCIe-80GB", ""),
        NODE("H100", "PCIe Gen5", "H100-PCIe-80GB", ""),
        NODE("H100", "no NVLink", "H100-PCIe-80GB", ""),
        NODE("A800", "NVLink", "A800-SXM4-80GB", "NVLink3"),
        NODE("GH200", "NVLink-C2C", "GH200-96GB", ""),
    };
    CHECK_SAME(pairs);
    static const Cells rows[] = {
        {.n_gpus = "4", .nodes = "1", .gpu = "A100-SXM4-80GB", .links = "NVLink3"},
        {.n_gpus = "4", .nodes = "1", .gpu = "A800", .links = "NVLink3"},
        {.n_gpus = "4", .nodes = "1", .gpu = "H100-SXM-80GB", .links = "PCIe Gen5 x16"},
        {.n_gpus = "4", .nodes = "1", .gpu = "H100-SXM-80GB", .links = "PCIe Gen4 x16"}};
    json_t *comm = comm_of(rows, 4);
    /* A800 has 8 links where A100 has 12; PCIe 4 has half of the rate of PCIe 5 */
    assert_true(value_of(comm, 1, "predicted") > 1.4 * value_of(comm, 0, "predicted"));
    assert_true(value_of(comm, 3, "predicted") > 1.9 * value_of(comm, 2, "predicted"));
    json_decref(comm);
}

static void sizes_times_and_rates_may_have_units(void **state)
{
    (void)state;
#define SIZE(a, b)                                                                                 \
    {                                                                                              \
        {.bytes = (a)},                                                                            \
        {                                                                                          \
            .bytes = (b)                                                                           \
        }                                                                                          \
    }
    static const Same pairs[] = {
        SIZE("64M", "67108864"),
        SIZE("1 GiB", "1073741824"),
        SIZE("1GB", "1073741824"),
        SIZE("512 KB", "524288"),
        SIZE("100 MB", "100000000"),
        SIZE("1,073,741,824", "1073741824"),
        SIZE("0.5 GiB", "536870912"),
        SIZE("128 bytes", "128"),
        {{.time = "5 ms"}, {.time = "5000"}},
        {{.time = "5,000 us (in-place)"}, {.time = "5000"}},
        {{.time = "0.005 s"}, {.time = "5000"}},
        {{.time = "", .bus = "402.65 GB/s"}, {.time = "5000"}},
        {{.time = "", .bus = "3221.2 Gb/s"}, {.time = "5000"}},
        {{.time = "", .alg = "214.75"}, {.time = "5000"}},
        {{.bytes = "", .bus = "402.653"}, {.time = "5000"}}, /* the time and the rate give a size */
        {{.bytes = "", .alg = "214.748"}, {.time = "5000"}},
        {{.bytes = "", .time = "", .alg = "200"}, {.bytes = "", .time = "", .bus = "375"}},
    };
    CHECK_SAME(pairs);
}

static void names_of_collectives_and_counts_of_ranks(void **state)
{
    (void)state;
#define KIND(a, b)                                                                                 \
    {                                                                                              \
        {.collective = (a)},                                                                       \
        {                                                                                          \
            .collective = (b)                                                                      \
        }                                                                                          \
    }
#define RANKS(a, b)                                                                                \
    {                                                                                              \
        {.n_gpus = (a), .nodes = (b)},                                                             \
        {                                                                                          \
            .n_gpus = "16", .nodes = "2"                                                           \
        }                                                                                          \
    }
    static const Same pairs[] = {
        KIND("p2p", "sendrecv"),
        KIND("send/recv", "sendrecv"),
        KIND("point-to-point", "sendrecv"),
        KIND("ncclAllReduce", "all_reduce"),
        KIND("all_reduce_perf", "all_reduce"),
        KIND("AllReduce (sum)", "all_reduce"),
        KIND("dist.all_reduce", "all_reduce"),
        KIND("all_gather_into_tensor", "all_gather"),
        KIND("reduce_scatter_tensor", "reduce_scatter"),
        KIND("all_to_all_single", "all_to_all"),
        KIND("all2all", "all_to_all"),
        KIND("bcast", "broadcast"),
        RANKS("2x8", ""),
        RANKS("16", "2x8"),
        RANKS("16 (2x8)", ""),
        RANKS("16 GPUs", "2 nodes"),
        RANKS("2 nodes x 8 GPUs", "2"),
        RANKS("16 (2 nodes)", ""),
    };
    CHECK_SAME(pairs);
}

static void other_rows_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        Cells row;
        const char *why;
    } cases[] = {
        {{.links = "InfiniBand (unstated)"}, "the speed of its network is not stated: InfiniBand"},
        {{.links = "RoCE"}, "the speed of its network is not stated: RoCE"},
        {{.links = "Ethernet"}, "the speed of its network is not stated: Ethernet"},
        {{.links = "3.2 Tbps (per node)"}, "the kind of its network is not stated: 3.2 Tbps"},
        {{.links = "ConnectX-7 400Gb"}, "the kind of its network is not stated: ConnectX-7"},
        {{.links = "NVLink4"}, "its network between nodes is not named"},
        {{.n_gpus = "4", .nodes = "1", .gpu = "A100-PCIe-80GB", .links = "NVLink bridge"},
         "the library has no NVLink of this GPU: NVLink bridge"},
        {{.n_gpus = "8", .nodes = "1", .gpu = "GH200", .links = "NVLink"},
         "GH200 has no node of 8 GPUs"},
        {{.gpu = "TPU v5"}, "no such GPU in the library"},
        {{.bytes = ""}, "it has a time, but no size"},
        {{.bytes = "64 MiB per rank"}, "bytes is not a size: 64 MiB per rank"},
        {{.time = "fast"}, "time_us is not a time: fast"},
        {{.time = ""}, "it has neither a time nor a bandwidth"},
        {{.collective = "hypercube"}, "the collective is unknown: hypercube"},
        {{.collective = "p2p", .notes = "cuda p2pBandwidthLatencyTest"}, "a copy, not NCCL's"},
        {{.n_gpus = "2x8", .nodes = "4"}, "its cells state different numbers of GPUs or nodes"},
        {{.n_gpus = "16", .nodes = ""}, "the number of GPUs or nodes is not stated"},
        {{.n_gpus = "16", .nodes = "3"}, "its nodes have different numbers of GPUs"},
    };
    const size_t n = sizeof cases / sizeof *cases;
    Cells *rows = arena_array(arena, n, sizeof *rows);
    for (size_t i = 0; i < n; i++) rows[i] = cases[i].row;
    json_t *comm = comm_of(rows, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = item_of(comm, "not_scored", i);
        const char *why = json_string_value(json_object_get(item, "reason"));
        if (why == NULL || strstr(why, cases[i].why) == NULL)
            fail_msg("case %zu: expected '%s', got '%s'", i, cases[i].why, why ? why : "a score");
    }
    json_decref(comm);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_arena_setup, test_arena_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_stated_speed_of_a_network_counts), TEST(the_stated_links_of_a_node_count),
        TEST(sizes_times_and_rates_may_have_units), TEST(names_of_collectives_and_counts_of_ranks),
        TEST(other_rows_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
