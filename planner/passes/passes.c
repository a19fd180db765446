/* The list of passes, from the configuration to a graph that can be lowered, in the order in which
 * they run. planner/lower/compile.c runs them. */
#include "planner/passes/passes.h"

#include "planner/passes/pass.h"

#define PASS(name) extern const PassSpec pass_spec_##name;
#include "planner/front/passes.def"

const PassSpec *const pass_specs[PASS_NAME_COUNT] = {
#define PASS(name) &pass_spec_##name,
#include "planner/front/passes.def"
};

static const Pass all_passes[] = {
#define PASS(name)           {#name, &pass_spec_##name, false, NULL},
#define INNER(name, reports) {#name, NULL, reports, pass_##name},
#include "planner/front/passes.def"
};
const Pass *const passes_list = all_passes;
const uint32_t passes_count = sizeof all_passes / sizeof all_passes[0];

void passes_for_one_rank(Config *config)
{
    uint32_t n = 0;
    for (uint32_t a = 0; a < AXIS_NAMES; a++)
        config->axis_size[a] = config->axis_before[a] = config->ep_lent[a] = 1;
    for (uint32_t i = 0; i < config->n_passes; i++)
        if (pass_specs[config->passes[i].name]->of_model) config->passes[n++] = config->passes[i];
    config->n_passes = n;
}

const char *passes_text(Arena *arena, const Config *config)
{
    Str text = str_in(arena);
    for (uint32_t i = 0; i < config->n_passes; i++) {
        if (i > 0) str_add(&text, ", ");
        pass_print(pass_specs[config->passes[i].name], &config->passes[i], &text);
    }
    return text.n == 0 ? "none" : str_text(&text);
}
