/* NCCL's model against numbers worked out from its source, and against published measurements
 * (tests/data/measured_collectives.csv, each row with its source). One launch latency and ramp a
 * way of measuring, as fitted on whole sweeps; rows marked dev-val were never fitted. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sim/sim.h"

static Cluster hopper(uint32_t nodes)
{
    Cluster c = {.name = "dgx", .nodes = nodes, .devices_per_node = 8, .intra = FABRIC_nvswitch};
    c.device = (Device){.name = "H100", .arch = "Hopper", .sms = 132, .hbm_bytes_per_s = 3.35e12};
    c.intra_bytes_per_s = 450e9;
    c.nics_per_node = 8;
    c.nic_bytes_per_s = 50e9;
    c.oversubscription = 1;
    return c;
}

static Cluster ampere(uint32_t nodes)
{
    Cluster c = hopper(nodes);
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

static void check_worked(const Cluster *c, OpKind op, const Worked *w)
{
    NcclChoice choice = nccl_choose(c, op, w->nodes, 8, w->bytes);
    double us = (double)choice.time_ps / 1e6;
    if (fabs(us - w->us) > .01 * w->us + .5) {
        fail_msg("%u nodes %llu bytes: %.1f us by %s/%s, worked out %.1f", w->nodes,
                 (unsigned long long)w->bytes, us, choice.algorithm, choice.protocol, w->us);
    }
    if (w->algorithm != NULL) assert_string_equal(choice.algorithm, w->algorithm);
    if (w->protocol != NULL) assert_string_equal(choice.protocol, w->protocol);
}

/* DGX H100, N nodes of 8, all_reduce: the tuner alone. */
static void all_reduce_between_nodes(void **state)
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
        Cluster c = hopper(rows[i].nodes);
        check_worked(&c, OP_all_reduce, &rows[i]);
    }
}

static void all_gather_between_nodes(void **state)
{
    (void)state;
    static const Worked rows[] = {
        {2, 256 << 20, 725, "Ring", "Simple"}, {16, 256 << 20, 1194, "Ring", NULL},
        {64, 256 << 20, 2030, "Ring", NULL},   {2, 1 << 30, 2691, "Ring", "Simple"},
        {16, 1 << 30, 3374, "Ring", "Simple"}, {64, 1 << 30, 4767, "Ring", "LL128"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Cluster c = hopper(rows[i].nodes);
        check_worked(&c, OP_all_gather, &rows[i]);
    }
}

/* Large messages in one node: bus bandwidths of the tuner, and who wins. */
static void bus_bandwidth_in_a_node(void **state)
{
    (void)state;
    static const struct {
        bool hopper;
        OpKind op;
        uint32_t gpus;
        double gb_per_s;
        const char *algorithm;
    } rows[] = {{false, OP_all_reduce, 8, 240, "Ring"},    {false, OP_all_gather, 8, 240, "Ring"},
                {true, OP_all_reduce, 8, 476, "NVLS"},     {true, OP_all_gather, 8, 360, "Ring"},
                {true, OP_reduce_scatter, 8, 360, "Ring"}, {true, OP_all_reduce, 4, 360, "Ring"},
                {true, OP_all_reduce, 5, 408, "NVLS"},     {true, OP_all_reduce, 6, 425, "NVLS"},
                {true, OP_all_reduce, 7, 408, "NVLS"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Cluster c = rows[i].hopper ? hopper(1) : ampere(1);
        NcclChoice choice = nccl_choose(&c, rows[i].op, 1, rows[i].gpus, UINT64_C(16) << 30);
        assert_string_equal(choice.algorithm, rows[i].algorithm);
        assert_true(fabs(choice.bus_bytes_per_s / 1e9 / rows[i].gb_per_s - 1) < .005);
    }
}

/* 8 H200: Ring with LL up to 1 MiB, NVLS from 2 MiB on, as NCCL's own log says. */
static void switch_point_of_one_node(void **state)
{
    (void)state;
    Cluster c = hopper(1);
    NcclChoice small = nccl_choose(&c, OP_all_reduce, 1, 8, 1 << 20);
    assert_string_equal(small.algorithm, "Ring");
    NcclChoice large = nccl_choose(&c, OP_all_reduce, 1, 8, 2 << 20);
    assert_string_equal(large.algorithm, "NVLS");
    assert_int_equal(large.channels, 16);
}

/* One rank a node (data parallel across tensor parallel nodes): its own NIC is the limit. */
static void one_rank_a_node_uses_its_nic(void **state)
{
    (void)state;
    Cluster c = hopper(4);
    NcclChoice choice = nccl_choose(&c, OP_all_gather, 4, 1, 1 << 30);
    assert_true(choice.bus_bytes_per_s < 48.1e9);
    assert_true(choice.bus_bytes_per_s > 34e9);
    assert_true(choice.port_bytes < 1);
    assert_true(fabs(choice.nic_bytes - .75 * (1 << 30)) < 1);
}

static void more_bytes_never_take_less_time(void **state)
{
    (void)state;
    static const OpKind ops[] = {OP_all_reduce, OP_all_gather, OP_reduce_scatter, OP_all_to_all,
                                 OP_send};
    for (uint32_t i = 0; i < 5; i++) {
        for (uint32_t nodes = 1; nodes <= 8; nodes *= 2) {
            Cluster c = hopper(nodes);
            Ps least = 0;
            for (uint64_t bytes = 1 << 22; bytes <= UINT64_C(1) << 32; bytes *= 2) {
                Ps time = nccl_choose(&c, ops[i], nodes, 8, bytes).time_ps;
                assert_true(time >= least);
                least = time;
            }
        }
    }
}

/* ---- published sweeps ---- */

typedef struct Sweep {
    const char *name;
    bool hopper;
    double nic, launch_us, ramp_us, ramp_mib;
    double mean_bound; /* of the error, from `from` bytes on */
    uint64_t from;
    double sum, worst;
    uint32_t n;
} Sweep;

/* Launch and ramp by way of measuring: blocking calls of one process for 8 GPUs (nccl-tests), of
 * torch; pipelined or captured calls (vidur). */
static Sweep sweeps[] = {
    {.name = "a100x8",
     .launch_us = 22,
     .ramp_us = 40,
     .ramp_mib = 4,
     .mean_bound = .11,
     .from = 32 << 10},
    {.name = "a100x8-all",
     .launch_us = 22,
     .ramp_us = 40,
     .ramp_mib = 4,
     .mean_bound = .11,
     .from = 64 << 20},
    {.name = "a100-subset", .launch_us = 22, .ramp_us = 40, .ramp_mib = 4, .mean_bound = .12},
    {.name = "h200x8",
     .hopper = true,
     .launch_us = 22,
     .ramp_us = 70,
     .ramp_mib = 32,
     .mean_bound = .05},
    {.name = "h200-large",
     .hopper = true,
     .launch_us = 22,
     .ramp_us = 70,
     .ramp_mib = 32,
     .mean_bound = .05},
    {.name = "h100",
     .hopper = true,
     .launch_us = 8,
     .ramp_us = 40,
     .ramp_mib = 32,
     .mean_bound = .15,
     .from = 4 << 20},
    {.name = "h100-pair", .hopper = true, .mean_bound = .12},
    {.name = "a100-pair", .mean_bound = .15, .from = 1 << 20},
    {.name = "h100x16",
     .hopper = true,
     .launch_us = 22,
     .ramp_us = 70,
     .ramp_mib = 32,
     .mean_bound = .22,
     .from = 1 << 20},
    {.name = "h100x16-tcp",
     .hopper = true,
     .nic = 25e9,
     .launch_us = 22,
     .ramp_us = 70,
     .ramp_mib = 32,
     .mean_bound = .35,
     .from = 64 << 20},
};

static OpKind op_of(const char *name)
{
    return strcmp(name, "sendrecv") == 0 ? OP_send : op_find(name);
}

static void add_row(const char *name, const char *collective, uint64_t bytes, uint32_t gpus,
                    uint32_t nodes, double us)
{
    for (size_t i = 0; i < sizeof sweeps / sizeof sweeps[0]; i++) {
        Sweep *s = &sweeps[i];
        if (strcmp(s->name, name) != 0) continue;
        if (bytes < s->from) return;
        Cluster c = s->hopper ? hopper(nodes) : ampere(nodes);
        if (s->nic > 0) c.nic_bytes_per_s = s->nic;
        c.collective_launch_s = s->launch_us * 1e-6;
        c.collective_ramp_s = s->ramp_us * 1e-6;
        c.collective_ramp_bytes = s->ramp_mib * 0x1p20;
        NcclChoice choice = nccl_choose(&c, op_of(collective), nodes, gpus / nodes, bytes);
        double model = (double)choice.time_ps / 1e6, error = fabs(model / us - 1);
        s->n++;
        s->sum += error;
        if (error > s->worst) s->worst = error;
        return;
    }
    fail_msg("no sweep named %s", name);
}

static void published_measurements(void **state)
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
    assert_true(n > 300);
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

/* Of registered buffers, through a switch: megatron-fsdp's table of SMs. */
static void registered_buffers_take_fewer_sms(void **state)
{
    (void)state;
    Cluster h = hopper(4), a = ampere(4);
    assert_int_equal(nccl_registered_channels(&h, OP_all_gather, 1, 8), 4);
    assert_int_equal(nccl_registered_channels(&h, OP_reduce_scatter, 1, 8), 5);
    assert_int_equal(nccl_registered_channels(&h, OP_all_gather, 4, 8), 16);
    assert_int_equal(nccl_registered_channels(&h, OP_all_gather, 4, 1), 1);
    assert_int_equal(nccl_registered_channels(&h, OP_reduce_scatter, 4, 1), 4);
    assert_int_equal(nccl_registered_channels(&h, OP_all_reduce, 1, 8), UINT32_MAX);
    assert_int_equal(nccl_registered_channels(&a, OP_all_gather, 1, 8), UINT32_MAX);
    assert_true(nccl_choose(&h, OP_all_gather, 1, 8, 1 << 28).channels > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_between_nodes),
        cmocka_unit_test(all_gather_between_nodes),
        cmocka_unit_test(bus_bandwidth_in_a_node),
        cmocka_unit_test(switch_point_of_one_node),
        cmocka_unit_test(one_rank_a_node_uses_its_nic),
        cmocka_unit_test(more_bytes_never_take_less_time),
        cmocka_unit_test(published_measurements),
        cmocka_unit_test(registered_buffers_take_fewer_sms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
