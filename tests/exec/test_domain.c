/* Plans share the rows and columns of fields over ranks. Each plan must pass every proof, and
 * compute in fp64 on loopback the numbers of one rank. First come the kinds one by one, then plans
 * drawn by seed. TANDEM_SEED and TANDEM_PLANS choose another draw. */
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

/* Returns true if the plan's text describes the whole plan, including halos that wrap. */
static bool is_told_in_full(const Plan *plan, Arena *arena, Diag *d)
{
    Str text = str_in(arena);
    text_print(plan, 0, &text);
    const Plan *again = text_parse("net.plan", str_text(&text), text.n, arena, d);
    if (!again) return false;
    const Hash128 a = text_plan_id(plan, arena), b = text_plan_id(again, arena);
    if (a.lo == b.lo && a.hi == b.hi && verify_plan(again, VERIFY_all, false, d)) return true;
    return diag_error(d, FAULT_internal, "plan-syntax", (Loc){NULL, 0}, "its text is another plan");
}

/* Returns "" or the fault, in `arena`. */
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
              is_told_in_full(plan, arena, &d) &&
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

/* Two convolutions: the gradient of the second goes back through the first one's halo. */
static void kernels_and_edges(void **state)
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

static void strides(void **state)
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

static void statistics_and_pools(void **state)
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

/* All ranks have the same bias by position. The gradient of its weights is a sum over the parts of
 * the field, to which each rank adds its share. */
static void attention_in_windows(void **state)
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

/* Windows whose points are at a fixed distance. Each rank computes a share of the windows and gets
 * rows and columns from all ranks. The number of points need not be a multiple of the ranks. If the
 * number of windows is no multiple of the ranks, the field is gathered. */
static void attention_to_points_apart(void **state)
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
static void with_data_ranks(void **state)
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

/* The neighbours' halos contain all rows of a rank. */
static void one_row_a_rank(void **state)
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

/* Behind a pole lie rows of the other side of the globe. They may come from a rank that holds no
 * row at the pole. If columns are cut, they are gathered. */
static void behind_the_poles(void **state)
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

/* The number of ranks does not divide the rows: the last part is shorter. */
static void uneven_parts(void **state)
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

static void what_does_not_fit_is_refused(void **state)
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
    /* 12 rows over 5 ranks: parts of 3 rows leave none to the last rank */
    Net n = with(5, 1, 1, conv);
    refused(&n, "domain-divides");
    n = with(4, 1, 1, far); /* 3 rows a rank, a halo of 4 */
    refused(&n, "domain-halo");
    /* 3 rows on each rank; 8 rows are read behind the pole, up to the third rank's rows */
    n = with(4, 1, 1, globe);
    refused(&n, "domain-halo");
    n = with(1, 5, 1, conv); /* 8 columns over 5 ranks: parts of 2 leave none to the last rank */
    refused(&n, "domain-divides");
    n = with(4, 1, 2, deep); /* 6 rows over 4 ranks after the stride */
    refused(&n, "domain-divides");
    n = with(2, 1, 2, shuffled); /* 7 rows over 2 ranks; each row becomes two */
    n.height = 14;
    refused(&n, "domain-windows");
    n = with(2, 1, 2, windows); /* 6 rows are 3 windows of 2 rows, over 2 ranks */
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
    const int64_t moved = w.before > 0 && draw(d, 3) == 0; /* lopsided padding */
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

/* as = "original": like miles-credit, the plan sums group norm's statistics outside of autograd, so
 * each rank keeps its own gradients of them. The loss is one rank's, but the gradients before the
 * norm are not. */
static void the_gradients_of_miles_credit(void **state)
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
        cmocka_unit_test(kernels_and_edges),
        cmocka_unit_test(strides),
        cmocka_unit_test(statistics_and_pools),
        cmocka_unit_test(attention_in_windows),
        cmocka_unit_test(attention_to_points_apart),
        cmocka_unit_test(with_data_ranks),
        cmocka_unit_test(one_row_a_rank),
        cmocka_unit_test(behind_the_poles),
        cmocka_unit_test(uneven_parts),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(the_gradients_of_miles_credit),
        cmocka_unit_test(every_plan_computes_the_same),
    };
    return cmocka_run_group_tests_name("domain", tests, NULL, NULL);
}
