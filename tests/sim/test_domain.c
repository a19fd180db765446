/* Simulates plans whose fields are divided over ranks. A halo exchange must take the time of its
 * closed form: two strips of B C halo W elements leave a rank at the speed of its port, whatever
 * the number of ranks along the axis. The tests also check which computations hide an exchange. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "planner/front/front.h"
#include "sim/compute/kernels.h"
#include "sim/compute/work.h"
#include "sim/sim.h"
#include "tests/support/plans/nets.h"

static void load_cluster(Config *config, Arena *arena, Diag *d)
{
    Graph graph;
    memset(&graph, 0, sizeof graph);
    const char *path = arena_print(arena, "%s/scripts/plans/llama3_8b.lua", TANDEM_SOURCE_DIR);
    const FrontOptions front = {.n_set = 0};
    assert_true(front_load(path, &front, arena, config, &graph, d));
}

/* In the trace of the slowest rank there are `n` exchanges. Each carries `bytes` and takes `ps`,
 * unless it shares the port with another transfer. */
typedef struct Exchanges {
    uint32_t n, n_shared;
    uint64_t bytes;
    Ps ps;
} Exchanges;

static double rate_of(const NcclChoice *c)
{
    return c->port_bytes / (double)c->fluid_ps;
}

/* Returns by how much an exchange ends later because a small all_reduce, of a bias's gradient, runs
 * at the same time. The all_reduce needs less than half of the port, so it runs at its full rate.
 * The exchange gets the rest of the port. */
static double shared_port_ps(const SimReport *report, const Plan *plan, const Cluster *cluster,
                             const TraceRow *exchange)
{
    const double port = nccl_port_bytes_per_s(cluster) / 1e12;
    const NcclChoice own = nccl_choose(cluster, OP_send, 1, 2, exchange->bytes);
    const Ps begin = exchange->start_ps + own.latency_ps;
    double late_ps = 0;
    for (uint32_t i = 0; i < report->trace.rows.n; i++) {
        const TraceRow *row = &report->trace.rows.at[i];
        const Instr *in = &plan_program(plan, 0)->code.at[row->pc];
        if (row->rank != exchange->rank || in->op != OP_all_reduce) continue;
        const uint32_t n = mesh_size(&plan->mesh, in->axes);
        const NcclChoice small = nccl_choose(cluster, OP_all_reduce, 1, n, row->bytes);
        if (row->end_ps - small.fluid_ps < begin || row->end_ps > exchange->end_ps) continue;
        const double beyond = fmax(rate_of(&own) + rate_of(&small) - port, 0);
        assert_true(rate_of(&small) < port / 2);
        late_ps += (double)small.fluid_ps * beyond / rate_of(&own);
    }
    return late_ps;
}

static Exchanges exchanges_of(uint32_t domain, int64_t width, int64_t kernel, bool unfolded)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config;
    load_cluster(&config, arena, &d);
    const Window h = net_window(kernel, 1, 1, WINDOW_zero), w = net_window(3, 1, 1, WINDOW_zero);
    Net n = net_default();
    n.channels = 16;
    n.height = 64 * domain;
    n.width = width;
    n.domain = domain;
    n.use_ddp = true;
    n.whole_rows = true;
    n.n_layers = 2;
    n.layer[0] = n.layer[1] = (NetLayer){NET_conv, h, w};
    const Plan *plan = net_plan(&n, false, arena, &d);
    assert_non_null(plan);
    SimOptions options = {.unfolded = unfolded, .trace = true};
    SimReport report;
    memset(&report, 0, sizeof report);
    assert_true(sim_run(plan, &config.cluster, &options, arena, &report, &d));
    Exchanges all = {0};
    const Program *p = plan_program(plan, 0);
    for (uint32_t i = 0; i < report.trace.rows.n; i++) {
        const TraceRow *row = &report.trace.rows.at[i];
        if (row->rank != report.slowest || p->code.at[row->pc].op != OP_halo_exchange) continue;
        const double late_ps = shared_port_ps(&report, plan, &config.cluster, row);
        const Ps took = row->end_ps - row->start_ps;
        if (all.n++ == 0) all.bytes = row->bytes, all.ps = took;
        assert_int_equal(row->bytes, all.bytes);
        /* the simulator rounds up to a picosecond when a rate changes, here twice */
        if (late_ps == 0) assert_int_equal(took, all.ps);
        if (late_ps > 0) assert_true(fabs((double)(took - all.ps) - late_ps) <= 2);
        all.n_shared += late_ps > 0;
    }
    arena_free(arena);
    return all;
}

static void an_exchange_takes_its_closed_form(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config;
    load_cluster(&config, arena, &d);
    uint32_t n_shared = 0;
    for (uint32_t domain = 2; domain <= 8; domain *= 2)
        for (int64_t kernel = 3; kernel <= 5; kernel += 2) {
            const Exchanges narrow = exchanges_of(domain, 1024, kernel, false);
            const Exchanges wide = exchanges_of(domain, 4096, kernel, false);
            /* the input of each convolution, forward and again for the weight's gradient, and the
             * gradient of the second convolution's input (for keep_halos see below) */
            assert_int_equal(narrow.n, 5);
            assert_int_equal(narrow.bytes, 2 * 16 * (kernel / 2) * 1024 * 4);
            assert_int_equal(wide.bytes, 4 * narrow.bytes);
            for (int k = 0; k < 2; k++) {
                const Exchanges *e = k ? &wide : &narrow;
                const NcclChoice message = nccl_choose(&config.cluster, OP_send, 1, 2, e->bytes);
                assert_int_equal(e->ps, message.time_ps);
            }
            const Exchanges whole = exchanges_of(domain, 1024, kernel, true);
            assert_int_equal(whole.ps, narrow.ps);
            assert_int_equal(whole.n, narrow.n);
            n_shared += narrow.n_shared + wide.n_shared;
        }
    assert_int_equal(n_shared, 2);
    arena_free(arena);
}

typedef struct Shown {
    uint32_t n;     /* exchanges of the slowest rank */
    uint32_t under; /* hidden exchanges: a single computation runs during the whole exchange */
    uint32_t inner; /* exchanges that run while the inner rows of a convolution are computed */
    uint32_t joins;
    uint64_t bytes; /* of memory */
    Ps step;
} Shown;

/* Two convolutions on so large a field that computation takes longer than an exchange. */
static Shown shown_over(uint32_t domain, uint32_t domain_w, bool keep_halos, bool whole_rows)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config;
    load_cluster(&config, arena, &d);
    const Window w = net_window(3, 1, 1, WINDOW_zero);
    Net n = net_default();
    n.channels = 256, n.height = 512, n.width = 512;
    n.domain = domain, n.domain_w = domain_w;
    n.use_ddp = true;
    n.keep_halos = keep_halos;
    n.whole_rows = whole_rows;
    n.n_layers = 2;
    n.layer[0] = n.layer[1] = (NetLayer){NET_conv, w, w};
    const Plan *plan = net_plan(&n, false, arena, &d);
    assert_non_null(plan);
    SimOptions options = {.trace = true};
    SimReport report;
    memset(&report, 0, sizeof report);
    assert_true(sim_run(plan, &config.cluster, &options, arena, &report, &d));
    const Program *p = plan_program(plan, 0);
    Shown shown = {.bytes = p->bytes, .step = report.step_ps};
    for (uint32_t i = 0; i < report.trace.rows.n; i++) {
        const TraceRow *x = &report.trace.rows.at[i];
        shown.joins += x->rank == report.slowest && p->code.at[x->pc].op == OP_halo_join;
        if (x->rank != report.slowest || p->code.at[x->pc].op != OP_halo_exchange) continue;
        bool under = false, inner = false;
        for (uint32_t k = 0; k < report.trace.rows.n; k++) {
            const TraceRow *c = &report.trace.rows.at[k];
            if (c->rank != x->rank || p->code.at[c->pc].stream != STREAM_compute ||
                c->start_ps > x->start_ps || c->end_ps < x->end_ps)
                continue;
            under = true;
            inner = inner || p->code.at[c->pc].op == OP_conv2d_inner;
        }
        shown.n++;
        shown.under += under;
        shown.inner += inner;
    }
    arena_free(arena);
    return shown;
}

static Shown shown_by(bool keep_halos, bool whole_rows)
{
    return shown_over(2, 1, keep_halos, whole_rows);
}

/* Here convolutions do not compute inner rows first. In the backward pass, the halo of the input is
 * exchanged while the gradient of the input is computed. Neighbours' shares of that gradient are
 * exchanged while the gradient of the weight is computed, which begins by joining rows and halo.
 * Kept halos are not exchanged again. */
static void exchanges_run_during_computations(void **state)
{
    (void)state;
    const Shown again = shown_by(false, true), kept = shown_by(true, true);
    assert_int_equal(again.n, 5);
    /* of the second convolution: the halo of its input, and the shares of its gradient */
    assert_int_equal(again.under, 2);
    assert_int_equal(again.inner, 0);
    assert_int_equal(kept.n, 3);
    assert_int_equal(kept.under, 1);
    assert_true(kept.bytes > again.bytes);
}

/* Here convolutions compute inner rows first, and the exchanges of the forward pass run meanwhile.
 * Rows and halo are not copied together. */
static void exchanges_run_while_inner_rows_are_computed(void **state)
{
    (void)state;
    const Shown whole = shown_by(false, true), again = shown_by(false, false),
                kept = shown_by(true, false);
    assert_int_equal(again.n, 5);
    assert_int_equal(again.inner, 2);
    assert_int_equal(again.under, 5);
    assert_int_equal(again.joins, 0);
    assert_true(whole.joins > 0);
    assert_int_equal(kept.n, 3);
    assert_int_equal(kept.under, 3);
    assert_true(again.step < whole.step && kept.step <= again.step);
}

/* If columns are divided, their halo is exchanged while the centre of the field is computed. If
 * rows are divided too, their halo is exchanged during the other half of the inner rows. In the
 * backward pass, the gradient's shares for neighbours are exchanged while parts of the weight's
 * gradient are computed: first the shares for rows, then those for columns. */
static void exchanges_run_while_the_centre_is_computed(void **state)
{
    (void)state;
    for (uint32_t domain = 1; domain <= 2; domain++) {
        const Shown whole = shown_over(domain, 2, false, true),
                    parts = shown_over(domain, 2, false, false);
        /* in each direction: both inputs forward, both again for the weights' gradients, and one
         * gradient */
        assert_int_equal(parts.n, 5 * domain);
        assert_int_equal(whole.n, parts.n);
        assert_int_equal(parts.inner, 2 * domain);
        assert_int_equal(whole.inner, 0);
        assert_int_equal(parts.under, parts.n);
        assert_true(whole.under < parts.under);
        assert_true(parts.step < whole.step);
    }
}

/* A convolution costs as much as a matrix product. The rows of the product are samples times rows
 * times columns of the output; channels and taps are summed. This holds for convolutions without
 * groups, even with few channels. */
static void costs_its_product(double c)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config;
    load_cluster(&config, arena, &d);
    const Device *device = &config.cluster.device;
    const Window w = net_window(3, 1, 1, WINDOW_zero);
    Net n = net_default();
    n.channels = (int64_t)c, n.height = 128, n.width = 256, n.domain = 2, n.micro = 2;
    n.use_ddp = true;
    n.compute = DT_bf16;
    n.whole_rows = true;
    n.n_layers = 2;
    n.layer[0] = n.layer[1] = (NetLayer){NET_conv, w, w};
    const Plan *plan = net_plan(&n, false, arena, &d);
    assert_non_null(plan);
    const double points = 2 * 64 * 256, taps = 9;
    const Device lasting = kernel_sustained(device);
    const double flops = 2 * points * c * c * taps;
    const double forward = kernel_lasting_s(
        &lasting, DT_bf16, flops, kernel_gemm_s(&lasting, DT_bf16, 1, points, c, c * taps, NULL));
    const double weight = kernel_lasting_s(
        &lasting, DT_bf16, flops, kernel_gemm_s(&lasting, DT_bf16, 1, c * taps, c, points, NULL));
    const CostModel model = cost_model(cost_new(&config.cluster, NULL, NULL, NULL, arena, &d));
    const Program *p = plan_program(plan, 0);
    uint32_t n_found = 0;
    for (Pc pc = 0; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        const bool whole = in->op == OP_conv2d || in->op == OP_conv_transpose2d;
        if (!whole && in->op != OP_conv2d_weight) continue;
        const double s = device->kernel_floor_s + (whole ? forward : weight);
        const double took = (double)model.compute(model.self, plan, p, in) / 1e12;
        assert_true(fabs(took / s - 1) < 1e-6);
        n_found++;
    }
    assert_int_equal(n_found, 2 + 2 + 1);
    /* above half of the best rate of such a product, so arithmetic is the limit */
    assert_true(c < 256 || 2 * points * c * c * taps / forward >
                               .5 * kernel_gemm_most(&lasting, DT_bf16, NULL));
    arena_free(arena);
}

static void a_convolution_costs_its_product(void **state)
{
    (void)state;
    costs_its_product(256);
    costs_its_product(2);
    /* a depthwise convolution does not fill tiles, because each group has one channel */
    int64_t size['z' + 1] = {
        ['b'] = 2, ['g'] = 64, ['c'] = 1, ['n'] = 1, ['h'] = 32, ['w'] = 48, ['I'] = 3, ['J'] = 5};
    const ProductWork depthwise = work_of_convolution(OP_conv2d_groups, size);
    assert_true(depthwise.batch == 64 && depthwise.m == 2 * 32 * 48 && depthwise.n == 1 &&
                depthwise.k == 15);
    const ProductWork back = work_of_convolution(OP_conv2d_groups_weight, size);
    assert_true(back.batch == 64 && back.m == 15 && back.n == 1 && back.k == 2 * 32 * 48);
}

typedef struct Apart {
    uint32_t n_exchanges, n_gathers;
    /* size of an exchange's message buffer, with the most and with the fewest pieces */
    uint64_t bytes, least;
    double flops;
} Apart;

static Apart apart_over(uint32_t domain, int64_t pieces)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const Window w = net_window(3, 1, 1, WINDOW_zero),
                 points = net_window(pieces, 1, 1, WINDOW_zero);
    Net n = net_default();
    n.channels = 16, n.height = 48, n.width = 24, n.domain = domain;
    n.use_ddp = true;
    n.n_layers = 3;
    n.layer[0] = n.layer[2] = (NetLayer){NET_conv, w, w};
    n.layer[1] = (NetLayer){NET_apart, points, points};
    const Plan *plan = net_plan(&n, false, arena, &d);
    assert_non_null(plan);
    const Program *p = plan_program(plan, 0);
    Apart made = {.least = UINT64_MAX};
    for (Pc pc = 1; pc < p->code.n; pc++) {
        const Instr *in = &p->code.at[pc];
        const uint64_t bytes = in->args.n ? p->buffers.at[program_arg(p, in, 0)].bytes : 0;
        made.n_gathers += in->op == OP_all_gather;
        if (in->op == OP_strided_attention || in->op == OP_strided_attention_grad)
            made.flops += plan_flops(plan, p, in);
        if (in->op != OP_all_to_all) continue;
        made.n_exchanges++;
        if (bytes > made.bytes) made.bytes = bytes;
        if (bytes < made.least) made.least = bytes;
    }
    arena_free(arena);
    return made;
}

/* Attention among points at a fixed distance. Each rank computes its share, and no field is
 * gathered. In the forward pass, rows of the input are exchanged (queries, keys and values are one
 * tensor here), and rows of the output go back. In the backward pass, rows of the input, of the
 * output and of its gradient are exchanged; rows of the gradients of queries, keys and values go
 * back. */
static void attention_among_points_gathers_no_field(void **state)
{
    (void)state;
    for (uint32_t domain = 2; domain <= 4; domain += 2) {
        const Apart whole = apart_over(1, 4), cut = apart_over(domain, 4);
        assert_int_equal(cut.n_gathers, 0);
        assert_int_equal(whole.n_exchanges, 0);
        assert_int_equal(cut.n_exchanges, 8);
        assert_int_equal(cut.bytes, 16 * (48 / domain) * 24 * 4);
        assert_int_equal(cut.least, cut.bytes);
        assert_true(fabs(cut.flops * domain / whole.flops - 1) < 1e-12);
    }
    /* Three pieces over two ranks: one message has two pieces and the other has one, but all
     * messages have room for two. */
    assert_int_equal(apart_over(2, 3).bytes, 16 * 24 * 24 * 4 / 3 * 4);
    /* with one point in each window, a rank already has whole windows */
    assert_int_equal(apart_over(2, 1).n_exchanges, 0);
}

/* The inner rows and the border together need as many multiplications as the whole convolution.
 * They move fewer bytes, because the whole convolution copies rows and halo together. */
static void parts_of_convolutions_cost_their_rows(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const Window w = net_window(5, 1, 2, WINDOW_zero);
    double flops[2] = {0, 0}, bytes[2] = {0, 0};
    for (int whole = 0; whole < 2; whole++) {
        Net n = net_default();
        n.channels = 32, n.height = 128, n.width = 64, n.domain = 4;
        n.use_ddp = true;
        n.whole_rows = whole;
        n.n_layers = 2;
        n.layer[0] = n.layer[1] = (NetLayer){NET_conv, w, w};
        const Plan *plan = net_plan(&n, false, arena, &d);
        assert_non_null(plan);
        const Program *p = plan_program(plan, 0);
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const Instr *in = &p->code.at[pc];
            const OpKind op = op_of_rows(in->op) ? op_of_rows(in->op) : in->op;
            if (op == OP_conv2d || op == OP_conv2d_weight) flops[whole] += plan_flops(plan, p, in);
            if (op == OP_conv2d || op == OP_conv2d_weight || in->op == OP_halo_join)
                bytes[whole] += (double)plan_hbm_bytes(plan, p, in);
            if (in->op == OP_halo_pack) /* the strips are read and written */
                assert_true(plan_hbm_bytes(plan, p, in) ==
                            2 * p->buffers.at[program_arg(p, in, 1)].bytes);
        }
    }
    assert_true(flops[0] > 0 && fabs(flops[0] / flops[1] - 1) < 1e-12);
    assert_true(bytes[0] < bytes[1]);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exchange_takes_its_closed_form),
        cmocka_unit_test(exchanges_run_during_computations),
        cmocka_unit_test(exchanges_run_while_inner_rows_are_computed),
        cmocka_unit_test(exchanges_run_while_the_centre_is_computed),
        cmocka_unit_test(parts_of_convolutions_cost_their_rows),
        cmocka_unit_test(attention_among_points_gathers_no_field),
        cmocka_unit_test(a_convolution_costs_its_product)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
