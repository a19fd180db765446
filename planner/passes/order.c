/* Checks the order of `parallel` against the rules "A before B" (edges) in the PassSpecs. Passes
 * whose order does not matter, such as ac and ddp, have no edge. */
#include "planner/passes/pass.h"

static const char *why_in(const PassEdge *edges, PassName other)
{
    for (; edges && edges->why; edges++)
        if (edges->other == other) return edges->why;
    return NULL;
}

/* Returns why `first` must come before `then`; NULL if it need not. The PassSpec of either pass may
 * have the edge. */
static const char *why_first(PassName first, PassName then)
{
    const char *why = why_in(pass_specs[first]->before, then);
    return why ? why : why_in(pass_specs[then]->after, first);
}

const PassConfig *order_first_after(const Config *config, PassName pass)
{
    for (uint32_t i = 0; i < config->n_passes; i++)
        if (why_first(pass, config->passes[i].name)) return &config->passes[i];
    return NULL;
}

/* True if the hint with the right order leaves out entry i of `parallel`: a repeated pass, or a
 * data pass that does not fit the mesh. */
static bool is_left_out(const Config *config, uint32_t i)
{
    PassName name = config->passes[i].name;
    uint32_t best = UINT32_MAX;
    for (uint32_t k = 0; k < config->n_passes; k++) {
        PassName other = config->passes[k].name;
        if (k < i && other == name) return true;
        if (!pass_specs[other]->is_data) continue;
        bool shards = config_ranks(config, axes_with(AXIS_UNITS)) > 1;
        if (best == UINT32_MAX || (shards && config->passes[best].name == PASS_ddp)) best = k;
    }
    return pass_specs[name]->is_data && i != best;
}

/* Returns `parallel` in a right order, close to the user's: appends, again and again, the first
 * remaining pass that need not come behind another remaining pass. */
static const char *right_list(const Config *config, Arena *arena)
{
    Str s = str_in(arena);
    bool done[MOST_PASSES] = {false}, any = false;
    str_add(&s, "parallel = { ");
    for (uint32_t i = 0; i < config->n_passes; i++) done[i] = is_left_out(config, i);
    for (uint32_t n = 0; n < config->n_passes; n++) {
        uint32_t next = UINT32_MAX;
        for (uint32_t i = 0; i < config->n_passes && next == UINT32_MAX; i++) {
            bool free_ = !done[i];
            for (uint32_t k = 0; k < config->n_passes; k++)
                free_ = free_ &&
                        (done[k] || !why_first(config->passes[k].name, config->passes[i].name));
            if (free_) next = i;
        }
        if (next == UINT32_MAX)
            /* all are appended. (The edges form no cycle, so there is always such a pass.) */
            break;
        done[next] = true;
        str_print(&s, "%s%s{...}", any ? ", " : "", pass_word(config->passes[next].name));
        any = true;
    }
    str_add(&s, " }");
    return str_text(&s);
}

bool order_check(const Config *config, Arena *arena, Diag *d)
{
    uint32_t before = d->n_errors;
    for (uint32_t i = 0; i < config->n_passes; i++) {
        bool told[PASS_NAME_COUNT] = {false};
        for (uint32_t later = i + 1; later < config->n_passes; later++) {
            PassName then = config->passes[i].name, first = config->passes[later].name;
            const char *why = why_first(first, then);
            if (then == first) {
                diag_error(d, FAULT_input, "pass-twice", config->passes[later].loc,
                           "%s is listed twice", pass_word(then));
                diag_hint(d, "write one %s{} with the options of both", pass_word(then));
            } else if (why && !told[first]) {
                told[first] = true;
                diag_error(d, FAULT_input, "pass-order", config->passes[i].loc,
                           "%s is listed before %s: %s", pass_word(then), pass_word(first), why);
                diag_hint(d, "write %s", right_list(config, arena));
            }
        }
    }
    return d->n_errors == before;
}
