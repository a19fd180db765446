/* Checks that a plan fits, and verifies it, also in a second thread while the first thread does
 * other work that only reads the plan. The layers below session/ share no state between threads,
 * except under a lock. */
#include <pthread.h>

#include "planner/verify/fit.h"
#include "session/session.h"

Capacity session_capacity(const PlanFile *file, Arena *arena)
{
    const Cluster *cluster = &file->config.cluster;
    CommMemories communicators;
    return cluster_capacity(cluster,
                            comm_memory_most(file->plan, cluster, NULL, arena, &communicators));
}

/* Returns the words as "a, b, or c". */
static const char *alternatives(Arena *arena, const char *const *word, uint32_t n)
{
    Str s = str_in(arena);
    for (uint32_t i = 0; i < n; i++)
        str_print(&s, "%s%s%s", i > 0 && n > 2 ? "," : "",
                  i == 0       ? ""
                  : i + 1 == n ? " or "
                               : " ",
                  word[i]);
    return str_text(&s);
}

/* True if a larger cp could save memory: the batch has sequences, and no experts are dropless (rule
 * cp-dropless). */
static bool may_use_cp(const PlanFile *file)
{
    const Graph *g = &file->plan->graph;
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (op_counts_arg(g->nodes.at[id].op) >= 0) return false;
    return file->config.height == 0;
}

/* Returns the changes that would save memory and that the plan does not contain yet, for the hint
 * of "does-not-fit". */
static FitAdvice fit_advice(const PlanFile *file, Arena *arena)
{
    const Config *c = &file->config;
    const PassConfig *ac = config_pass(c, PASS_ac), *fsdp2 = config_pass(c, PASS_fsdp2);
    const char *within[5], *state[2];
    uint32_t n = 0, m = 0;
    if (c->micro_batch > 1) within[n++] = "a smaller micro-batch";
    if (ac == NULL || ac->ac != AC_full || ac->ac_every > 1) within[n++] = "ac \"full\"";
    within[n++] = "a larger tp";
    if (may_use_cp(file)) within[n++] = "a larger cp";
    if (fsdp2 != NULL && fsdp2->fsdp2.reshard_after_forward != RESHARD_true)
        within[n++] = "reshard_after_forward = true";
    if (fsdp2 != NULL && !fsdp2->fsdp2.offload) state[m++] = "fsdp2 { offload = true }";
    if (c->optimizer.kind == OPTIMIZER_adamw) state[m++] = "sgd{} instead of adamw{}";
    return (FitAdvice){alternatives(arena, state, m), alternatives(arena, within, n)};
}

void session_fit(const PlanFile *file, Arena *arena, Diag *d)
{
    if (file->plan->programs.n == 0 || !file->has_cluster) return;
    const Capacity capacity = session_capacity(file, arena);
    const FitAdvice advice = fit_advice(file, arena);
    if (file->is_text) /* a plan from text has no settings that a hint could name */
        verify_fit(file->plan, &capacity, d);
    else
        verify_fit_advising(file->plan, &capacity, &advice, d);
}

bool session_prove(const PlanFile *file, bool unfitted, Arena *arena, Diag *d)
{
    bool proven = verify_plan(file->plan, VERIFY_all, file->is_text, d);
    if (proven && !unfitted) session_fit(file, arena, d);
    return proven;
}

struct Proof {
    pthread_t thread;
    const PlanFile *file;
    Arena *arena; /* only the second thread uses it */
    Diag diag;
    bool unfitted, runs, proven;
};

static void *prove(void *self)
{
    Proof *p = self;
    p->proven = session_prove(p->file, p->unfitted, p->arena, &p->diag);
    return NULL;
}

void session_begin_proof(PlanFile *file, bool unfitted, Arena *arena)
{
    Proof *p = arena_alloc(arena, sizeof *p);
    *p = (Proof){.file = file, .arena = arena_new(), .unfitted = unfitted};
    p->diag = diag_in(p->arena);
    p->runs = pthread_create(&p->thread, NULL, prove, p) == 0;
    if (!p->runs) prove(p); /* the system refused a thread, so verify here */
    file->proof = p;
}

void session_settle(PlanFile *file, Diag *d)
{
    Proof *p = file->proof;
    if (p == NULL) return;
    if (p->runs) pthread_join(p->thread, NULL);
    diag_add_all(d, &p->diag);
    file->proven = p->proven;
    arena_free(p->arena);
    file->proof = NULL;
}
