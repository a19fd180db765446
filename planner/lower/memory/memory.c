/* Gives every root buffer an offset in one arena, before the program runs. Bytes are reused only if
 * all users of the old buffer finish before the first user of the new one starts. lives.c finds
 * when buffers are in use. placement.c chooses offsets. */
#include "planner/base/parallel.h"
#include "planner/lower/expand.h"
#include "planner/lower/memory/gaps.h"
#include "planner/lower/memory/placement.h"
#include "planner/passes/pass.h"

/* Places persistent buffers first and all other buffers above them. Returns the end of the highest
 * buffer in bytes. */
static uint64_t place_space(Lives *l, Space space, bool in_slots, bool *repeats)
{
    Program *p = l->p;
    uint64_t bottom = 0;
    for (BufferId b = 1; b < p->buffers.n; b++) {
        Buffer *at = &p->buffers.at[b];
        if (at->parent || !at->persistent || at->space != space) continue;
        at->offset = bottom;
        bottom += gaps_round(at->bytes);
    }
    lives_of_space(l, space);
    return placement_choose(l, bottom, in_slots, repeats);
}

static void place_program(Program *p, bool unplaced, bool in_slots, Arena *scratch)
{
    Lives l;
    bool host = false, host_repeats = true;
    if (!p->code.n) return;
    if (unplaced) {
        lives_mark(p);
        return;
    }
    lives_find(&l, p, scratch);
    for (BufferId b = 1; b < p->buffers.n; b++) host |= p->buffers.at[b].space == SPACE_host;
    p->bytes = place_space(&l, SPACE_device, in_slots, &p->repeats);
    p->host_bytes = host ? place_space(&l, SPACE_host, in_slots, &host_repeats) : 0;
    p->repeats = p->repeats && host_repeats;
}

static void place_one(void *self, uint32_t i)
{
    Job *job = self;
    Arena *scratch = arena_new(); /* each thread plans one program after another in this memory */
    const uint32_t own = job->plan->step.n_microbatches, of = job->options.microbatches;
    /* a program that gathers state has no micro-batches */
    const bool in_slots =
        job->config != NULL && plan_expands_from(job->config, of > own ? of : own) > 0;
    place_program(&job->plan->programs.at[i], job->options.unplaced, in_slots, scratch);
    arena_free(scratch);
}

bool pass_memory(Job *job)
{
    parallel_for(job->plan->programs.n, place_one, job);
    return true;
}
