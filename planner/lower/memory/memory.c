/* Memory: an offset in one arena for every root buffer. A program is static, so the allocator runs
 * before the program does. Bytes are reused only if every instruction that touched the old buffer
 * happens before the first one that touches the new buffer, by stream order and `after`. lives.c
 * finds when buffers are in use, and placement.c chooses their places. */
#include "planner/base/parallel.h"
#include "planner/lower/memory/placement.h"
#include "planner/lower/pieces.h"
#include "planner/passes/pass.h"

/* Places persistent buffers at the bottom and transient ones above. Returns the end of the highest
 * buffer. */
static uint64_t place_space(Lives *l, Space space)
{
    Program *p = l->p;
    uint64_t bottom = 0;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        Buffer *at = &p->buffers.at[b];
        if (at->parent || !at->persistent || at->space != space) continue;
        at->offset = bottom;
        bottom += pieces_round(at->bytes);
    }
    lives_of_space(l, space);
    return placement_choose(l, bottom);
}

static void place_program(Program *p, bool unplaced, Arena *scratch)
{
    Lives l;
    bool host = false;
    if (!p->code.n) return;
    if (unplaced) {
        lives_mark(p);
        return;
    }
    lives_find(&l, p, scratch);
    for (BufferId b = 1; b < p->buffers.n; b++) host |= p->buffers.at[b].space == SPACE_host;
    p->bytes = place_space(&l, SPACE_device);
    p->host_bytes = host ? place_space(&l, SPACE_host) : 0;
}

static void place_one(void *self, uint32_t i)
{
    Job *job = self;
    Arena *scratch =
        arena_new(); /* a thread plans its programs one after the other, in the same pages */
    place_program(&job->plan->programs.at[i], job->options.unplaced, scratch);
    arena_free(scratch);
}

bool pass_memory(Job *job)
{
    parallel_for(job->plan->programs.n, place_one, job);
    return true;
}
