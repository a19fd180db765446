/* Verifies a plan in a second thread, while the first thread does other work that only reads the
 * plan. The layers below session/ share no state between threads, except under a lock. */
#include <pthread.h>

#include "session/session.h"

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
