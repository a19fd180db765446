/* Plans that are reused, each under a key of all that determines a plan: the part of the
 * configuration that passes may read (planned.h), the graph of the model, and options of the load.
 * The rest of the configuration is zero while the plan is compiled (plan_compile_planned), so no
 * plan depends on it. */
#include "session/reuse.h"

#include <string.h>

/* Number of plans that are kept: one with few micro-batches and one of the whole step, because a
 * point of a sweep may need both. */
enum { PLACES = 2 };

struct PlanReuse {
    KeptPlan at[PLACES];
    uint32_t n_found;
};

static void empty(KeptPlan *kept)
{
    Arena *arena = kept->arena;
    arena_reset(arena);
    *kept = (KeptPlan){.arena = arena, .key = str_in(arena)};
    kept->told = kept->proofs = diag_in(arena);
}

PlanReuse *reuse_new(Arena *arena)
{
    PlanReuse *r = arena_alloc(arena, sizeof *r);
    for (uint32_t i = 0; i < PLACES; i++) {
        r->at[i].arena = arena_new();
        empty(&r->at[i]);
    }
    return r;
}

void reuse_free(PlanReuse *r)
{
    for (uint32_t i = 0; r != NULL && i < PLACES; i++) arena_free(r->at[i].arena);
}

uint32_t reuse_count(const PlanReuse *r)
{
    return r->n_found;
}

KeptPlan *reuse_find(const PlanOptions *o, const LowerOptions *lower, const Planned *planned,
                     const Graph *graph, const Arena *arena)
{
    if (o->reuse == NULL || o->script == NULL || o->shrink || o->stop_after != NULL) return NULL;
    const void *trace = front_trace(o->script, graph);
    if (trace == NULL) return NULL;
    KeptPlan *kept = &o->reuse->at[o->fewer > 0 ? 1 : 0], *found = NULL;
    Arena *scratch = arena_new();
    Str key = str_in(scratch);
    str_add_bytes(&key, &trace, sizeof trace);
    str_add_bytes(&key, lower, sizeof *lower);
    str_add_bytes(&key, &o->fewer, sizeof o->fewer);
    str_add_bytes(&key, &o->by_period, sizeof o->by_period);
    if (planned_key(planned, arena, &key)) {
        found = kept;
        const bool same =
            kept->known && kept->key.n == key.n && memcmp(kept->key.at, key.at, key.n) == 0;
        if (!same) {
            empty(kept);
            str_add_bytes(&kept->key, key.at, key.n);
        }
        o->reuse->n_found += same;
    }
    arena_free(scratch);
    return found;
}
