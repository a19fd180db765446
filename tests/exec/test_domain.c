/* Plans divide the rows and columns of fields over ranks. Each plan must pass every proof, and
 * compute the same numbers as one rank, in fp64 on loopback. The first tests try one kind of layer
 * each; the last one draws plans by seed. TANDEM_SEED and TANDEM_PLANS choose another draw. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "planner/base/rng.h"
#include "planner/ir/text/text.h"
#include "planner/verify/verify.h"
#include "tests/support/plans/nets.h"

enum { N_PLANS = 200, SEED = 20261125, MOST_RANKS = 12 };
static const double tolerance = 1e-10;

/* Returns true if the plan's text describes the whole plan, including halos that wrap around. */
static bool text_is_complete(const Plan *plan, Arena *arena, Diag *d)
{
    Str text = str_in(arena);
    text_print(plan, 0, &text);
    const Plan *again = text_parse("net.plan", str_text(&text), text.n, arena, d);
    if (!again) return false;
    const Hash128 a = text_plan_id(plan, arena), b = text_plan_id(again, arena);
    if (a.lo == b.lo && a.hi == b.hi && verify_plan(again, VERIFY_all, false, d)) return true;
    return diag_error(d, FAULT_internal, "plan-syntax", (Loc){NULL, 0}, "its text is another plan");
}

/* Returns a description of the fault, in `arena`; "" if there is none. */
static const char *fault_of(const Net *n, uint64_t order_seed, Arena *arena)
{
    Diag d = diag_in(arena);
    const Net one = net_one_rank(n);
    Str s = str_in(arena);
    const Plan *plan = net_plan(n, true, arena, &d), *reference = net_plan(&one, true, arena, &d);
    VerifyResult result = {0};
    BackendOptions options = {.poison = true, .order_seed = order_seed, .timeout_s = 20};
    const DataSource *data = data_ragged(order_seed, 0, arena);
    bool ok = plan && reference && verify_plan(plan, VERIFY_all, false, &d) &&
              text_is_complete(plan, arena, &d) &&
              exec_verify(plan, reference, data, &options, tolerance, arena, &result, &d);
    if (ok && result.highest_touched != result.predicted_bytes)
        str_print(&s, "touched %llu bytes, predicted %llu",
                  (unsigned long long)result.highest_touched,
                  (unsigned long long)result.predicted_bytes);
    if (!ok) {
        str_print(&s, "gradient %g of %s: ", result.worst_gradient,
                  result.worst_tensor ? result.worst_tensor : "-");
        diag_print(&d, &s);
    }
    return str_text(&s);
}

static void check(const Net *n, uint64_t order_seed)
{
    Arena *arena = arena_new();
    const char *fault = fault_of(n, order_seed, arena);
    if (fault[0]) fail_msg("%s: %s", net_name(n, arena), fault);
    arena_free(arena);
}

static Net with(uint32_t domain, uint32_t domain_w, uint32_t n_layers, const NetLayer *layer)
{
    Net n = net_default();
    n.domain = domain;
    n.domain_w = domain_w;
    n.n_layers = n_layers;
    memcpy(n.layer, layer, n_layers * sizeof *layer);
    return n;
}

/* Two convolutions. The gradient of the second one passes back through the halo of the first
 * one. */
static void convolutions_compute_what_one_rank_does(void **state)
{
    (void)state;
    for (int mode = 0; mode <= WINDOW_symmetric; mode++)
        for (int64_t kernel = 1; kernel <= 5; kernel++)
            for (int64_t dilation = 1; dilation <= 2; dilation++) {
                if ((kernel - 1) * dilation > 6) continue;
                const Window h = net_window(kernel, 1, dilation, (WindowMode)mode);
                const Window w = net_window(3, 1, 1, WINDOW_periodic);
                const NetLayer twice[] = {{NET_conv, h, w}, {NET_residual, h, w}};
                for (uint32_t domain = 2; domain <= 3; domain++) {
                    const Net n = with(domain, 1, 2, twice);
                    check(&n, (uint64_t)kernel);
                }
            }
}

static void strided_layers_compute_what_one_rank_does(void **state)
{
    (void)state;
    for (int mode = 0; mode <= WINDOW_symmetric; mode++)
        for (int64_t kernel = 2; kernel <= 4; kernel++) {
            const Window same = net_window(3, 1, 1, (WindowMode)mode);
            const Window half = net_window(kernel, 2, 1, (WindowMode)mode);
            const NetLayer net[] = {{NET_conv, same, same},
                                    {NET_conv, half, half},
                                    {NET_residual, same, same},
                                    {NET_transpose, half, half},
                                    {NET_conv, same, same}};
            for (uint32_t k = 0; k < 3; k++) {
                const Net n = with(k == 1 ? 1 : 2, k == 0 ? 1 : 2, 5, net);
                check(&n, (uint64_t)kernel);
            }
        }
}

static void norms_and_pools_compute_what_one_rank_does(void **state)
{
    (void)state;
    const Window same = net_window(3, 1, 1, WINDOW_zero),
                 ring = net_window(3, 1, 1, WINDOW_periodic);
    const Window half = net_window(2, 2, 1, WINDOW_zero),
                 wide = net_window(4, 2, 1, WINDOW_periodic);
    const NetLayer net[] = {{NET_conv, same, ring}, {NET_norm, same, same},
                            {NET_pool, half, half}, {NET_conv, same, ring},
                            {NET_norm, same, same}, {NET_transpose, wide, wide}};
    for (uint32_t k = 0; k < 3; k++) {
        Net n = with(k == 1 ? 1 : 2, k == 0 ? 1 : 2, 6, net);
        n.latitude = true;
        check(&n, k);
    }
}

/* All ranks use the same bias by position. The gradient of its weights is a sum over the whole
 * field, and each rank adds the sum over its part. */
static void window_attention_computes_what_one_rank_does(void **state)
{
    (void)state;
    const Window same = net_window(3, 1, 1, WINDOW_zero), two = net_window(2, 2, 1, WINDOW_zero);
    const NetLayer net[] = {
        {NET_conv, same, same}, {NET_attention, two, two}, {NET_conv, same, same}};
    for (uint32_t k = 0; k < 24; k++) {
        Net n = with(k % 3 == 0 ? 3 : 2, k % 3 == 2 ? 2 : 1, 3, net);
        n.dp_shard = k & 1 ? 2 : 1;
        n.dp_replicate = k & 4 ? 2 : 1;
        n.use_ddp = k & 2;
        n.use_zero = k >= 20;
        n.zero = ZERO_optim_grads;
        n.ac = k & 8 ? AC_full : AC_none;
        n.microbatches = 1 + k % 2;
        check(&n, k);
    }
}

/* Attention among points that lie a fixed distance apart. Each rank computes some of these sets of
 * points, and gets their rows and columns from all ranks. The number of points in a set need not be
 * a multiple of the ranks. If the number of sets is no multiple of the ranks, the field is
 * gathered. */
static void attention_to_distant_points_computes_what_one_rank_does(void **state)
{
    (void)state;
    static const int64_t sides[] = {1, 2, 3, 4, 5};
    const Window same = net_window(3, 1, 1, WINDOW_zero);
    for (uint32_t k = 0; k < 60; k++) {
        const Window down = net_window(sides[k % 5], 1, 1, WINDOW_zero);
        const Window across = net_window(sides[(k / 5) % 5], 1, 1, WINDOW_zero);
        const Window two = net_window(2, 2, 1, WINDOW_zero);
        const NetLayer net[] = {{NET_conv, same, same},
                                {NET_apart, down, across},
                                {NET_apart, two, two},
                                {NET_conv, same, same}};
        Net n = with(1 + k % 4, 1 + k % 3, 4, net);
        if (n.domain * n.domain_w == 1) continue;
        const bool even = k % 7 != 0;
        n.height = 2 * down.kernel * (even ? n.domain * n.domain : n.domain + 1);
        n.width = 2 * across.kernel * (even ? n.domain_w * n.domain_w : n.domain_w + 1);
        n.dp_shard = k & 1 && n.domain * n.domain_w <= 6 ? 2 : 1;
        n.use_ddp = k & 2;
        n.ac = k % 3 == 1 ? AC_full : AC_none;
        n.keep_halos = k & 8;
        n.microbatches = 1 + k % 2;
        check(&n, k);
    }
}

/* Halos under data parallelism, recomputation and micro-batches. */
static void halos_work_beside_data_ranks(void **state)
{
    (void)state;
    const Window same = net_window(3, 1, 1, WINDOW_reflect),
                 ring = net_window(3, 1, 1, WINDOW_periodic);
    const NetLayer net[] = {
        {NET_conv, same, ring}, {NET_norm, same, ring}, {NET_residual, same, ring}};
    for (uint32_t k = 0; k < 16; k++) {
        Net n = with(2, k & 1 ? 2 : 1, 3, net);
        n.dp_shard = k & 2 ? 2 : 1;
        n.dp_replicate = k & 4 ? 2 : 1;
        n.use_ddp = k & 8;
        n.use_zero = k == 10;
        n.zero = ZERO_optim_grads;
        n.ac = k % 3 == 0 ? AC_full : AC_none;
        n.microbatches = 1 + k % 3;
        check(&n, k);
    }
}

/* A rank has so few rows that its neighbours' halos contain all of them. */
static void one_row_on_each_rank_is_enough(void **state)
{
    (void)state;
    for (int mode = 0; mode <= WINDOW_symmetric; mode++)
        for (uint32_t domain = 2; domain <= 4; domain++) {
            const Window h = net_window(3, 1, 1, (WindowMode)mode);
            const Window w = net_window(3, 1, 1, WINDOW_periodic);
            const NetLayer twice[] = {{NET_conv, h, w}, {NET_residual, h, w}};
            Net n = with(domain, 1, 2, twice);
            n.height = domain;
            check(&n, domain);
        }
}

/* A window that reaches across a pole reads rows of the other side of the globe. These rows may lie
 * on a rank that has no row next to the pole. If columns are divided, they are gathered first. */
static void windows_across_poles_compute_what_one_rank_does(void **state)
{
    (void)state;
    const Window same = net_window(3, 1, 1, WINDOW_zero);
    for (uint32_t domain = 1; domain <= 4; domain++)
        for (uint32_t domain_w = 1; domain_w <= 2; domain_w++)
            for (int64_t rows = 1; rows <= 6; rows += 5) {
                if (domain * domain_w == 1) continue;
                Window h = same, w = same;
                h.before = rows;
                w.before = 2;
                const NetLayer net[] = {
                    {NET_conv, same, same}, {NET_earth, h, w}, {NET_conv, same, same}};
                Net n = with(domain, domain_w, 3, net);
                n.latitude = true;
                check(&n, domain);
            }
}

/* The number of ranks does not divide the number of rows, so the last part is shorter. */
static void uneven_parts_compute_what_one_rank_does(void **state)
{
    (void)state;
    const int64_t heights[] = {11, 13, 18, 19};
    const Window two = net_window(2, 2, 1, WINDOW_zero);
    for (int mode = 0; mode <= WINDOW_symmetric; mode++)
        for (uint32_t k = 0; k < 16; k++) {
            const Window same = net_window(3, 1, 1, (WindowMode)mode);
            Window h = same, w = same;
            h.before = 3, w.before = 1;
            const NetLayer net[] = {{NET_conv, same, same},
                                    {NET_norm, same, same},
                                    {NET_earth, h, w},
                                    {NET_residual, same, same},
                                    {k & 2 ? NET_attention : NET_shuffle, two, two}};
            Net n = with(2 + k % 2, 1, k & 8 ? 5 : 4, net);
            n.height = k & 8 ? 12 : heights[k % 4];
            n.width = k & 4 && !(k & 8) ? 9 : 8;
            n.domain_w = k & 4 ? 2 : 1;
            n.latitude = true;
            n.microbatches = 1 + k % 2;
            check(&n, k);
        }
}

static void refused(const Net *n, const char *rule)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    assert_null(net_plan(n, true, arena, &d));
    bool named = false;
    for (uint32_t i = 0; i < d.items.n; i++)
        named = named || (strcmp(d.items.at[i].rule, rule) == 0 && d.items.at[i].loc.line > 0);
    if (!named) fail_msg("%s is not refused by %s", net_name(n, arena), rule);
    arena_free(arena);
}

static void parts_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const Window same = net_window(3, 1, 1, WINDOW_zero), wide = net_window(5, 1, 2, WINDOW_zero);
    const Window half = net_window(2, 2, 1, WINDOW_zero);
    const NetLayer conv[] = {{NET_conv, same, same}}, far[] = {{NET_conv, wide, same}};
    const NetLayer deep[] = {{NET_conv, half, half}, {NET_transpose, half, half}};
    const Window behind = {1, 1, 1, 8, 8, WINDOW_symmetric, 0, 0, false};
    const NetLayer globe[] = {{NET_earth, behind, net_window(1, 1, 1, WINDOW_zero)}};
    const NetLayer shuffled[] = {{NET_conv, same, same}, {NET_shuffle, half, half}};
    const NetLayer windows[] = {{NET_conv, same, same}, {NET_attention, half, half}};
    /* 12 rows over 5 ranks: parts of 3 rows leave none for the last rank */
    Net n = with(5, 1, 1, conv);
    refused(&n, "domain-divides");
    n = with(4, 1, 1, far); /* 3 rows on each rank, but a halo of 4 */
    refused(&n, "domain-halo");
    /* 3 rows on each rank. A window reads 8 rows beyond the pole, so it needs rows of the third
     * rank. */
    n = with(4, 1, 1, globe);
    refused(&n, "domain-halo");
    /* 8 columns over 5 ranks: parts of 2 columns leave none for the last rank */
    n = with(1, 5, 1, conv);
    refused(&n, "domain-divides");
    n = with(4, 1, 2, deep); /* after the stride, 6 rows remain for 4 ranks */
    refused(&n, "domain-divides");
    n = with(2, 1, 2, shuffled); /* 7 rows over 2 ranks; each row becomes two */
    n.height = 14;
    refused(&n, "domain-windows");
    /* 6 rows are 3 windows of 2 rows, which 2 ranks cannot share evenly */
    n = with(2, 1, 2, windows);
    n.height = 6;
    refused(&n, "domain-windows");
    n = with(1, 2, 2, windows); /* the same for columns */
    n.width = 6;
    refused(&n, "domain-windows");
}

/* ---- drawn ---- */

typedef struct Draw {
    uint64_t seed, stream, n;
} Draw;

static uint32_t draw(Draw *d, uint32_t n)
{
    return (uint32_t)rng_below(d->seed, d->stream, d->n++, n);
}

static Window draw_window(Draw *d, int64_t stride)
{
    const int64_t kernel = stride + draw(d, 4);
    const int64_t dilation = kernel <= 3 && stride == 1 ? 1 + draw(d, 2) : 1;
    Window w = net_window(kernel, stride, dilation, (WindowMode)draw(d, 4));
    const int64_t moved = w.before > 0 && draw(d, 3) == 0; /* makes the padding uneven */
    w.before -= moved;
    w.after += moved;
    return w;
}

static Net draw_net(uint64_t seed, uint64_t index)
{
    Draw d = {seed, index, 0};
    Net n = net_default();
    do {
        n.domain = 1 + draw(&d, 4), n.domain_w = 1 + draw(&d, 3);
        n.dp_shard = 1 + draw(&d, 2), n.dp_replicate = 1 + draw(&d, 2);
    } while (n.domain * n.domain_w * n.dp_shard * n.dp_replicate > MOST_RANKS ||
             n.domain * n.domain_w == 1);
    const bool deep = draw(&d, 2);
    n.height = n.domain * (deep ? 2 : 1) * (4 + draw(&d, 4));
    n.width = n.domain_w * (deep ? 2 : 1) * (4 + draw(&d, 3));
    if (!deep && n.domain > 1) n.height -= draw(&d, 2);
    if (!deep && n.domain_w > 1) n.width -= draw(&d, 2);
    n.channels = 2 * (1 + draw(&d, 2));
    n.n_layers = 0;
    const NetLayer down = {draw(&d, 3) ? NET_conv : NET_pool, draw_window(&d, 2),
                           draw_window(&d, 2)};
    if (draw(&d, 2))
        n.layer[n.n_layers++] = (NetLayer){NET_conv, draw_window(&d, 1), draw_window(&d, 1)};
    if (deep) n.layer[n.n_layers++] = down;
    const uint32_t body = 1 + draw(&d, 2);
    for (uint32_t i = 0; i < body; i++) {
        const NetKind kinds[] = {NET_conv, NET_residual, NET_norm, NET_transpose};
        n.layer[n.n_layers++] =
            (NetLayer){kinds[draw(&d, 4)], draw_window(&d, 1), draw_window(&d, 1)};
    }
    if (deep)
        n.layer[n.n_layers++] = (NetLayer){NET_transpose, draw_window(&d, 2), draw_window(&d, 2)};
    n.layer[n.n_layers++] = (NetLayer){NET_conv, draw_window(&d, 1), draw_window(&d, 1)};
    n.latitude = draw(&d, 2);
    n.micro = 1 + draw(&d, 2);
    n.microbatches = 1 + draw(&d, 2);
    n.use_ddp = draw(&d, 2);
    n.use_zero = draw(&d, 3) == 0;
    n.zero = (ZeroStrategy)(1 + draw(&d, 3));
    n.ac = (AcMode)(draw(&d, 3) == 0 ? AC_full : AC_none);
    n.keep_halos = draw(&d, 3) == 0;
    n.whole_rows = draw(&d, 4) == 0;
    return n;
}

/* as = "original": like miles-credit, the plan sums the statistics of group norm outside of
 * autograd. So no gradient passes through this sum. The loss equals that of one rank, but gradients
 * before the norm do not. */
static void gradients_of_miles_credit_differ_before_the_norm(void **state)
{
    (void)state;
    const Window same = net_window(3, 1, 1, WINDOW_zero);
    const NetLayer layers[] = {
        {NET_conv, same, same}, {NET_norm, same, same}, {NET_conv, same, same}};
    Net n = with(2, 1, 3, layers);
    for (int original = 0; original < 2; original++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena), proofs = diag_in(arena);
        const Net one = net_one_rank(&n);
        n.original = original;
        const Plan *plan = net_plan(&n, true, arena, &d), *right = net_plan(&one, true, arena, &d);
        VerifyResult result = {0};
        BackendOptions options = {.poison = true, .order_seed = 1, .timeout_s = 20};
        const DataSource *data = data_ragged(1, 0, arena);
        assert_true(plan && right);
        assert_int_equal(verify_plan(plan, VERIFY_all, false, &proofs), !original);
        const bool equal = exec_verify(plan, right, data, &options, tolerance, arena, &result, &d);
        assert_int_equal(equal, !original);
        if (original) assert_string_equal(proofs.items.at[0].rule, "verify-layout");
        if (original) assert_true(result.worst_gradient > 1e-3);
        arena_free(arena);
    }
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void every_plan_computes_the_same(void **state)
{
    (void)state;
    uint64_t seed = number_of("TANDEM_SEED", SEED), n = number_of("TANDEM_PLANS", N_PLANS);
    uint64_t n_both = 0, n_rings = 0;
    for (uint64_t i = 0; i < n; i++) {
        const Net net = draw_net(seed, i);
        n_both += net.domain > 1 && net.domain_w > 1;
        for (uint32_t k = 0; k < net.n_layers; k++)
            n_rings += net.domain > 1 && net.layer[k].h.mode == WINDOW_periodic;
        check(&net, seed + i);
    }
    print_message("%llu plans of seed %llu, %llu of them cut in both directions\n",
                  (unsigned long long)n, (unsigned long long)seed, (unsigned long long)n_both);
    assert_true(n < 200 || (n_both > n / 4 && n_rings > n / 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_compute_what_one_rank_does),
        cmocka_unit_test(strided_layers_compute_what_one_rank_does),
        cmocka_unit_test(norms_and_pools_compute_what_one_rank_does),
        cmocka_unit_test(window_attention_computes_what_one_rank_does),
        cmocka_unit_test(attention_to_distant_points_computes_what_one_rank_does),
        cmocka_unit_test(halos_work_beside_data_ranks),
        cmocka_unit_test(one_row_on_each_rank_is_enough),
        cmocka_unit_test(windows_across_poles_compute_what_one_rank_does),
        cmocka_unit_test(uneven_parts_compute_what_one_rank_does),
        cmocka_unit_test(parts_that_do_not_fit_are_refused),
        cmocka_unit_test(gradients_of_miles_credit_differ_before_the_norm),
        cmocka_unit_test(every_plan_computes_the_same),
    };
    return cmocka_run_group_tests_name("domain", tests, NULL, NULL);
}
