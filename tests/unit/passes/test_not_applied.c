/* A plan may request an option that has no effect, because the rest of the plan never uses it. Such
 * an option is reported. In a plan that uses the option, nothing is reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "kernels/kernel.h"
#include "tests/support/plans/tiny.h"

typedef struct Case {
    const char *said; /* the report; NULL: there is none */
    PassConfig pass;
    AxisName axis; /* the axis with two ranks */
} Case;

#define FSDP2(...)                                                                                 \
    .name = PASS_fsdp2, .fsdp2 = {.over_ep = true, .mp = {.cast_forward_inputs = true}, __VA_ARGS__}
#define ZERO(...) .name = PASS_zero, .zero = {__VA_ARGS__}

static const Case cases[] = {
    {"fsdp2 { reshard_root = true } has no effect",
     {FSDP2(.reshard_after_forward = RESHARD_false, .reshard_root = true, .reshard_last = true)},
     AXIS_dp_shard},
    {NULL, {FSDP2(.reshard_root = true, .reshard_last = true)}, AXIS_dp_shard},
    {"fsdp2 { reshard_last = false } has no effect",
     {FSDP2(.reshard_after_forward = RESHARD_false)},
     AXIS_dp_shard},
    {NULL, {FSDP2(.reshard_last = false)}, AXIS_dp_shard},
    {"; offload has no effect, either",
     {FSDP2(.reshard_last = true, .offload = true)},
     AXIS_dp_replicate},
    {NULL, {FSDP2(.reshard_last = true, .offload = true)}, AXIS_dp_shard},
    {"leaves experts in device memory", {FSDP2(.reshard_last = true, .offload = true)}, AXIS_ep},
    {NULL, {FSDP2(.reshard_last = true)}, AXIS_ep},
    {NULL, {ZERO(.strategy = ZERO_optim, .prefetch = 1)}, AXIS_ep},
    {NULL, {.name = PASS_ddp, .ddp = {.bucket_mib = 25}}, AXIS_ep},
    {NULL, {FSDP2(.reshard_last = true, .offload = true)}, AXIS_cp},
    {NULL, {ZERO(.strategy = ZERO_optim, .prefetch = 1)}, AXIS_cp},
    {NULL, {.name = PASS_ddp, .ddp = {.bucket_mib = 25}}, AXIS_cp},
    {"fsdp2 { reshard_last = false } has no effect",
     {FSDP2(.reshard_after_forward = RESHARD_false)},
     AXIS_cp},
    {"fsdp2 { over_ep = false } has no effect",
     {.name = PASS_fsdp2, .fsdp2 = {.reshard_last = true, .mp = {.cast_forward_inputs = true}}},
     AXIS_dp_shard},
    {"zero{}: prefetch = 3", {ZERO(.strategy = ZERO_no_shard, .prefetch = 3)}, AXIS_dp_replicate},
    {NULL, {ZERO(.strategy = ZERO_optim_grads_params, .prefetch = 3)}, AXIS_dp_shard},
    {"zero{}: overlap_param_gather = false",
     {ZERO(.strategy = ZERO_no_shard, .prefetch = 1, .overlap_param_gather = CHOICE_no)},
     AXIS_dp_replicate},
    {NULL,
     {ZERO(.strategy = ZERO_optim, .prefetch = 1, .overlap_param_gather = CHOICE_no)},
     AXIS_dp_shard},
    {"zero{}: prefetch = 3 has no effect: with gather",
     {ZERO(.strategy = ZERO_optim, .prefetch = 3, .gather = ZERO_GATHER_eager)},
     AXIS_dp_shard},
    {"zero{}: prefetch = 3 has no effect: with overlap_param_gather",
     {ZERO(.strategy = ZERO_optim, .prefetch = 3, .overlap_param_gather = CHOICE_no)},
     AXIS_dp_shard},
    {"tp { keep_gathered = true } has no effect",
     {.name = PASS_tp, .tp = {.keep_gathered = true, .loss_parallel = true, .share_gathers = true}},
     AXIS_tp},
    {NULL,
     {.name = PASS_tp,
      .tp =
          {.keep_gathered = true, .loss_parallel = true, .share_gathers = true, .sequence = true}},
     AXIS_tp},
    {"ac{}: every = 3", {.name = PASS_ac, .ac = AC_none, .ac_every = 3}, AXIS_cp},
    {NULL, {.name = PASS_ac, .ac = AC_full, .ac_every = 2}, AXIS_cp},
};

static void options_without_effect_are_reported(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Tiny t = tiny_default();
        Config config;
        Graph graph;
        if (c->axis == AXIS_dp_shard) t.dp_shard = 2;
        if (c->axis == AXIS_dp_replicate) t.dp_replicate = 2;
        if (c->axis == AXIS_tp) t.tp = 2;
        if (c->axis == AXIS_cp) t.cp = 2;
        if (c->axis == AXIS_ep) t.ep = 2, t.experts = 4;
        tiny_build(&t, arena, &config, &graph);
        config.n_passes = 0;
        if (t.cp > 1) config.passes[config.n_passes++] = (PassConfig){.name = PASS_cp};
        if (t.ep > 1)
            config.passes[config.n_passes++] = (PassConfig){.name = PASS_ep, .ep.bound = 2};
        config.passes[config.n_passes++] = c->pass;
        LowerOptions options = lower_options_default();
        options.workspace = kernel_cpu_workspace;
        const Plan *plan = plan_compile(&config, &graph, &options, NULL, arena, &d);
        if (!plan) fail_msg("case %zu: %s", i, d.items.at[d.items.n - 1].text);
        uint32_t n = 0;
        for (uint32_t k = 0; k < d.items.n; k++) {
            if (strcmp(d.items.at[k].rule, "not-applied") != 0) continue;
            n++;
            if (c->said) assert_non_null(strstr(d.items.at[k].text, c->said));
        }
        if (n != (c->said != NULL)) fail_msg("case %zu: %u warnings", i, n);
        arena_free(arena);
    }
}

/* If experts lie on ranks of tp, ep{} has an effect, although its own axis has one rank. */
static void ep_over_ranks_of_tp_has_an_effect(void **state)
{
    (void)state;
    for (uint32_t lent = 2; lent <= 4; lent += 2) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        Tiny t = tiny_default();
        t.tp = t.tp_lent = lent, t.experts = 4;
        if (!tiny_plan(&t, false, arena, &d)) fail_msg("%s", d.items.at[0].text);
        for (uint32_t k = 0; k < d.items.n; k++)
            assert_null(strstr(d.items.at[k].text, "ep{} has no effect"));
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(options_without_effect_are_reported),
                                       cmocka_unit_test(ep_over_ranks_of_tp_has_an_effect)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
