/* Which pass must come before which, and the silent bug that the other order causes. Where two
 * passes commute there is no edge (checkpointing and DDP touch different things). */
#include <string.h>

#include "planner/passes/pass.h"

#define WHOLE_MODEL                                                                                \
    "it would be planned for the whole model, though the ranks of a stage hold a part of it"
#define CUT_AGAIN                                                                                  \
    "it would shard weights that tp then cuts again: every rank trains on the wrong slice"
#define SHARED_AGAIN                                                                               \
    "gradients of experts would be summed over ranks that hold different ones, and come out ep "   \
    "times too large (only ranks with the same experts may share their states and their sums)"
#define SUMMED_APART                                                                               \
    "gradients would be summed over ranks with other samples only: those that hold the rest of a " \
    "sequence would train a model of their own, each on its part"
#define NO_STORAGE                                                                                 \
    "building without storage afterwards throws away what was made of the parameters until then"

typedef struct Edge {
    PassName first, then;
    const char *why;
} Edge;

static const Edge edges[] = {
    {PASS_pp, PASS_tp,
     "tensor parallelism planned for the whole model before it is cut into stages ties the first "
     "and last stage's vocabulary together across ranks that never meet"},
    {PASS_pp, PASS_ac,
     "a region marked before the model is cut may span two stages: its saved "
     "inputs would lie on another rank"},
    {PASS_pp, PASS_fsdp2, WHOLE_MODEL},
    {PASS_pp, PASS_ddp, WHOLE_MODEL},
    {PASS_pp, PASS_zero, WHOLE_MODEL},
    {PASS_pp, PASS_compile, WHOLE_MODEL},
    {PASS_meta, PASS_tp, NO_STORAGE},
    {PASS_meta, PASS_fsdp2, NO_STORAGE},
    {PASS_meta, PASS_ddp, NO_STORAGE},
    {PASS_meta, PASS_zero, NO_STORAGE},
    {PASS_meta, PASS_materialize, NO_STORAGE},
    {PASS_pp, PASS_ep, WHOLE_MODEL},
    {PASS_meta, PASS_ep, NO_STORAGE},
    {PASS_tp, PASS_ep,
     "experts would be shared out whole, and then cut again by ranks that hold other ones: every "
     "rank of tp must hold a slice of the same experts"},
    {PASS_ep, PASS_float8,
     "what is converted before experts are shared out is converted for all of them"},
    {PASS_ep, PASS_ac,
     "a region marked before experts are shared out saves inputs that other ranks will hold, and "
     "its recomputation leaves out the exchange of tokens"},
    {PASS_ep, PASS_fsdp2, SHARED_AGAIN},
    {PASS_ep, PASS_zero, SHARED_AGAIN},
    {PASS_ep, PASS_ddp, SHARED_AGAIN},
    {PASS_ep, PASS_compile, "code compiled before experts are shared out is made for all of them"},
    {PASS_pp, PASS_cp, WHOLE_MODEL},
    {PASS_meta, PASS_cp, NO_STORAGE},
    {PASS_tp, PASS_cp,
     "sequences would be shared out before the heads are cut: what cp exchanges for tokens are the "
     "heads that a rank of tp holds"},
    {PASS_ep, PASS_cp, "tokens would be routed by a part of their sequence, their routing group"},
    {PASS_cp, PASS_float8,
     "what is converted before sequences are shared out is scaled by whole sequences, of which a "
     "rank has a part"},
    {PASS_cp, PASS_ac,
     "a region marked before sequences are shared out saves whole ones, and its recomputation "
     "leaves out the exchange around attention"},
    {PASS_cp, PASS_fsdp2, SUMMED_APART},
    {PASS_cp, PASS_zero, SUMMED_APART},
    {PASS_cp, PASS_ddp, SUMMED_APART},
    {PASS_cp, PASS_compile, "code compiled before sequences are shared out is made for whole ones"},
    {PASS_tp, PASS_ac,
     "tensor parallelism applied inside a checkpoint region after it was marked leaves the "
     "region's saved inputs in the old layout, so the recomputed forward differs from the first"},
    {PASS_tp, PASS_fsdp2, CUT_AGAIN},
    {PASS_tp, PASS_zero, CUT_AGAIN},
    {PASS_tp, PASS_ddp,
     "buckets built before tensor parallelism hold whole weights, so their gradients are reduced "
     "over ranks that own different slices"},
    {PASS_tp, PASS_compile,
     "code compiled before tensor parallelism is made for whole shapes: it is compiled again, or "
     "runs on slices as if they were whole"},
    {PASS_ac, PASS_fsdp2,
     "checkpointing applied to what is sharded already breaks the unit boundaries and gathers "
     "inside the recomputation"},
    {PASS_ac, PASS_zero,
     "checkpointing applied to what is sharded already breaks the unit boundaries and gathers "
     "inside the recomputation"},
    {PASS_pp, PASS_float8, WHOLE_MODEL},
    {PASS_meta, PASS_float8, NO_STORAGE},
    {PASS_float8, PASS_ac,
     "linears converted inside a checkpoint region after it was marked save what the region does "
     "not know, and the recomputed forward rounds otherwise than the first"},
    {PASS_float8, PASS_fsdp2,
     "what is sharded already is gathered as it was: weights go on in 16 bits"},
    {PASS_float8, PASS_zero,
     "what is sharded already is gathered as it was: weights go on in 16 bits"},
    {PASS_float8, PASS_compile,
     "kernels compiled for 16 bits are compiled again, or the conversion is left out of them"},
#define LATE                                                                                       \
    "storage given before the model is cut holds all of it on every device: out of memory at the " \
    "start, or shards filled from different streams on different ranks"
    {PASS_pp, PASS_materialize, LATE},
    {PASS_tp, PASS_materialize, LATE},
    {PASS_ep, PASS_materialize, LATE},
    {PASS_cp, PASS_materialize, LATE},
    {PASS_fsdp2, PASS_materialize, LATE},
    {PASS_ddp, PASS_materialize, LATE},
    {PASS_zero, PASS_materialize, LATE},
};

static const char *const user_names[PASS_NAME_COUNT] = {
#define X(name) #name,
    PASS_NAMES(X)
#undef X
};

const PassConfig *pass_config(const Job *job, PassName name)
{
    for (uint32_t i = 0; i < job->config->n_passes; i++)
        if (job->config->passes[i].name == name) return &job->config->passes[i];
    return NULL;
}

const char *pass_word(PassName name)
{
    return user_names[name];
}

/* Why `then` may not stand before `first`; NULL: it may. */
static const char *why_first(PassName first, PassName then)
{
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        if (edges[i].first == first && edges[i].then == then) return edges[i].why;
    return NULL;
}

/* Is this pass left out of the hint? One of each kind, and one data pass: what the mesh can use. */
static bool is_left_out(const Config *config, uint32_t i)
{
    static const bool is_data[PASS_NAME_COUNT] = {
        [PASS_fsdp2] = true, [PASS_ddp] = true, [PASS_zero] = true};
    PassName name = config->passes[i].name;
    uint32_t best = UINT32_MAX;
    for (uint32_t k = 0; k < config->n_passes; k++) {
        PassName other = config->passes[k].name;
        if (k < i && other == name) return true;
        if (!is_data[other]) continue;
        bool shards = config->axis_size[AXIS_dp_shard] > 1;
        if (best == UINT32_MAX || (shards && config->passes[best].name == PASS_ddp)) best = k;
    }
    return is_data[name] && i != best;
}

/* The user's list with as little moved as the edges ask: whoever has nobody left to wait for goes
 * next, in the order in which they were written. */
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
        if (next == UINT32_MAX) break; /* all are done: the edges have no circle */
        done[next] = true;
        str_print(&s, "%s%s{...}", any ? ", " : "", user_names[config->passes[next].name]);
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
                           "%s is applied twice", user_names[then]);
                diag_hint(d, "merge the two into one %s{}", user_names[then]);
            } else if (why && !told[first]) {
                told[first] = true;
                diag_error(d, FAULT_input, "pass-order", config->passes[i].loc,
                           "%s is applied before %s: %s", user_names[then], user_names[first], why);
                diag_hint(d, "write %s", right_list(config, arena));
            }
        }
    }
    return d->n_errors == before;
}
