/* docs/reference/sweep.md: the keys of sweep{}, and the values that its functions read. */
#include "cli/sweep/sweep.h"
#include "tests/docs/pages.h"

const char *page_sweep(Arena *arena)
{
    Str out = page_begin(arena, "Sweep scripts",
                         "planner/front/keys/sweep_keys.def and cli/sweep/results.def");
    str_add(&out, "```lua\nreturn sweep { plan = \"plans/llama3_8b.lua\", vary = { mesh = { tp = "
                  "{ 1, 2, 4 } } } }\n```\n\n");
    page_text(&out, "A script for `tandem sweep FILE` ends like this. It runs under the limits of "
                    "a plan's script. scripts/sweeps has examples.");
    str_add(&out, "\n| key | value | meaning |\n|---|---|---|\n");
    for (uint32_t i = 0; i < front_n_sweep_keys; i++) {
        const SweepKeyInfo *key = &front_sweep_keys[i];
        str_print(&out, "| `%s` | %s%s | %s |\n", key->name, key->type,
                  key->optional ? "" : ", required", page_cell(arena, key->meaning));
    }
    str_add(&out, "\n## Settings\n\n");
    page_text(
        &out,
        "Functions read a setting by its whole key, `s[\"mesh.tp\"]`, or by its last part, "
        "`s.micro`. The name of an axis means the mesh: `s.tp` is mesh.tp, never parallel.tp. "
        "An axis that no setting changes has the plan's size. The exception is dp_shard: its "
        "size may follow from the other axes. An unknown name is an error.");
    str_add(&out, "\n## Results\n\n| name | meaning |\n|---|---|\n");
    for (uint32_t i = 0; i < n_sweep_results; i++)
        str_print(&out, "| `%s` | %s |\n", sweep_results[i].name,
                  page_cell(arena, sweep_results[i].meaning));
    str_add(&out, "\n");
    page_text(&out, "If the plan names a runtime, results are those of that framework. `require` "
                    "and `score` are called after all points are predicted, in the order of the "
                    "points. Their answers are not stored. So a changed score ranks the stored "
                    "points without a new simulation.");
    return str_text(&out);
}
