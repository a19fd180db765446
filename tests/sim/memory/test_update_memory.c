/* An optimizer that updates all tensors at once needs a number of bytes for each element, in
 * addition to the memory that is live during the update. It reserves fewer bytes where its tensors
 * take the space of freed activations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "planner/front/front.h"
#include "planner/lower/compile.h"
#include "sim/sim.h"

static const double MIB = 1048576;
static double elements; /* number of the model's parameters */

/* Returns the memory that a rank holds if the update takes `update_bytes` for each updated element.
 * `sizes` are Lua options of the model. */
static Held held(const char *sizes, int seq, double update_bytes, bool frozen)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config config;
    Graph graph;
    memset(&config, 0, sizeof config);
    memset(&graph, 0, sizeof graph);
    const char *code = arena_print(
        arena,
        "return plan { model = require 'models.llama' { size = 'tiny', %s },\n"
        "runtime = require 'runtimes.hf_trainer',\n"
        "cluster = require 'clusters.gpu' { gpu = 'A100', devices_per_node = 1 },\n"
        "batch = { micro = 1, seq = %d }, precision = { compute = 'bf16' }, parallel = {} }",
        sizes, seq);
    if (!front_load_text("plan", code, NULL, arena, &config, &graph, &d))
        fail_msg("%s", d.items.at[0].text);
    const LowerOptions lower = lower_options_default();
    const Plan *plan = plan_compile(&config, &graph, &lower, NULL, arena, &d);
    assert_non_null(plan);
    elements = 0;
    for (TensorId t = 1; t < plan->graph.tensors.n; t++) {
        const Tensor *at = &plan->graph.tensors.at[t];
        double size = 1;
        for (uint32_t k = 0; k < at->n_dims; k++) size *= (double)at->dim[k];
        if (at->role == ROLE_param) elements += size;
    }
    config.runtime.update_bytes = update_bytes;
    config.runtime.frozen_base = frozen;
    const Held is = sim_held(plan, &config.cluster, &config.runtime);
    arena_free(arena);
    return is;
}

/* Returns the peak of allocated bytes. */
static double allocated(double update_bytes, bool frozen)
{
    return (double)held("layers = 2, vocab = 65536", 16, update_bytes, frozen)
        .logged[MEMORY_allocated];
}

/* With 32 bytes and more for each element, the peak is in the update. Each further byte then adds
 * one byte for each element. The allocator's block may be up to 2 MiB larger than the request. */
static void each_element_takes_its_bytes(void **state)
{
    (void)state;
    for (double bytes = 32; bytes <= 48; bytes += 8) {
        const double more = allocated(bytes + 8, false) - allocated(bytes, false);
        assert_true(8 * elements > 16 * MIB);
        if (fabs(more - 8 * elements) > 2 * MIB)
            fail_msg("8 more bytes for each of %.0f elements take %.0f bytes", elements, more);
    }
    assert_true(allocated(48, false) > allocated(0, false) + 30 * elements);
}

/* A frozen base is not updated, so its elements take no bytes. */
static void a_frozen_base_takes_none(void **state)
{
    (void)state;
    assert_true(allocated(48, true) == allocated(0, true));
}

/* The optimizer makes one tensor for each parameter. These tensors take the space of freed
 * activations, so nothing more is reserved. A single tensor of all these bytes would be larger than
 * any activation. */
static void tensors_take_the_space_of_activations(void **state)
{
    (void)state;
    static const char sizes[] = "layers = 8, dim = 1024, heads = 8, kv_heads = 8, hidden = 4096, "
                                "vocab = 1024";
    const double without = (double)held(sizes, 8192, 0, false).logged[MEMORY_reserved],
                 with = (double)held(sizes, 8192, 4, false).logged[MEMORY_reserved];
    /* an activation has at most 64 MiB, so one single tensor would not fit */
    assert_true(4 * elements > 400 * MIB);
    if (with > without + 4 * MIB) fail_msg("%.0f bytes more are reserved", with - without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_element_takes_its_bytes),
        cmocka_unit_test(a_frozen_base_takes_none),
        cmocka_unit_test(tensors_take_the_space_of_activations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
