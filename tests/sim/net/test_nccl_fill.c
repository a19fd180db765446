/* A collective between nodes first has to fill its pipeline of chunks. The expected times follow by
 * hand from NCCL's sizes of chunks (sim/net/nccl_levels.c). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sim/net/nccl.h"
#include "tests/sim/net/dgx.h"

/* In a tree of 2^d nodes, data makes 2 d hops. The time of the bytes already contains one of them.
 * Each other hop passes on one chunk of every channel and head: 16 x 8 chunks of 64 KiB, from 4
 * nodes on. A network with a fitted ramp adds no such time. */
static void each_level_of_a_tree_fills_once(void **state)
{
    (void)state;
    const double s = 0x1p28;
    for (uint32_t depth = 2; depth <= 7; depth++) {
        const uint32_t nodes = 1u << depth;
        Cluster c = dgx_h100(nodes, 8), fitted = dgx_h100(nodes, 8);
        fitted.fabric.ramp_s = 1e-15;
        fitted.fabric.ramp_bytes = 1;
        NcclChoice a = nccl_choose(&c, OP_all_reduce, nodes, 8, (uint64_t)s);
        NcclChoice b = nccl_choose(&fitted, OP_all_reduce, nodes, 8, (uint64_t)s);
        assert_string_equal(a.algorithm, "NVLSTree");
        assert_int_equal(a.fluid_ps, b.fluid_ps);
        /* bytes per picosecond; all bytes leave a node twice */
        double nics = 2 * s / (double)a.fluid_ps;
        double expected = (2 * depth - 1) * 16. * 8 * 65536 / nics;
        double more = (double)a.latency_ps - (double)b.latency_ps;
        if (fabs(more / expected - 1) > 1e-3)
            fail_msg("%u nodes: %g us instead of %g", nodes, more / 1e6, expected / 1e6);
    }
}

/* Data that circulate once cross each border between nodes once; an all-reduce crosses it twice.
 * The ramp of a fabric is proportional to the number of crossings. */
static void a_fabric_fills_once_a_crossing(void **state)
{
    (void)state;
    Cluster c = dgx_h100(2, 8), slow = dgx_h100(2, 8);
    slow.fabric = c.fabric = (NetworkFabric){.simple_only = true, .no_nvls = true, .ramp_bytes = 1};
    slow.fabric.ramp_s = 1e-3;
    c.fabric.ramp_s = 1e-15;
    const OpKind ops[] = {OP_all_reduce, OP_all_gather, OP_reduce_scatter};
    for (int i = 0; i < 3; i++) {
        NcclChoice with = nccl_choose(&slow, ops[i], 2, 8, 1 << 30);
        NcclChoice without = nccl_choose(&c, ops[i], 2, 8, 1 << 30);
        double ms = (double)(with.latency_ps - without.latency_ps) / 1e9;
        assert_true(fabs(ms - (i == 0 ? 1 : .5)) < 1e-6);
    }
}

/* A tree with the protocol Simple passes on whole chunks. If its chunks have 16 MiB together, 8 MiB
 * of data take half of the ramp, and more than 16 MiB take no more than all of it. Without a fit,
 * there are 16 channels of one chunk each. A chunk is an eighth of NCCL's buffer, or of the buffer
 * size that the network sets. */
static void a_tree_fills_in_whole_chunks(void **state)
{
    (void)state;
    Cluster c = dgx_h100(2, 8), slow = dgx_h100(2, 8);
    slow.nic_bytes_per_s = c.nic_bytes_per_s = 25e9;
    slow.fabric = c.fabric = (NetworkFabric){.simple_only = true, .no_nvls = true};
    slow.fabric.ramp_s = 1e-3;
    c.fabric.ramp_s = 1e-15;
    static const struct {
        double ramp_bytes, buffer_bytes, times;
    } fabrics[] = {{16 << 20, 0, 1}, {0, 8 << 20, 1}, {0, 0, 2}};
    static const struct {
        uint64_t bytes;
        double ms;
    } rows[] = {{1 << 20, 1. / 16}, {8 << 20, .5}, {16 << 20, 1}, {64 << 20, 1}};
    for (size_t k = 0; k < 3 * sizeof rows / sizeof *rows; k++) {
        const size_t i = k / 3, of = k % 3;
        slow.fabric.ramp_bytes = c.fabric.ramp_bytes = fabrics[of].ramp_bytes;
        slow.fabric.buffer_bytes = c.fabric.buffer_bytes = fabrics[of].buffer_bytes;
        NcclChoice with = nccl_choose(&slow, OP_all_reduce, 2, 8, rows[i].bytes);
        NcclChoice without = nccl_choose(&c, OP_all_reduce, 2, 8, rows[i].bytes);
        assert_string_equal(with.algorithm, "Tree");
        double ms = (double)(with.latency_ps - without.latency_ps) / 1e9;
        assert_true(fabs(ms - fmin(fabrics[of].times * rows[i].ms, 1)) < 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_level_of_a_tree_fills_once),
        cmocka_unit_test(a_fabric_fills_once_a_crossing),
        cmocka_unit_test(a_tree_fills_in_whole_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
