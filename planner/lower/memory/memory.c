/* Gives every root buffer an offset in the arena of its memory space, before the program runs.
 * Bytes are reused only if all users of the old buffer finish before the first user of the new one
 * starts. lives.c finds when buffers are in use. placement.c chooses offsets. */
#include "planner/base/parallel.h"
#include "planner/lower/expand.h"
#include "planner/lower/memory/gaps.h"
#include "planner/lower/memory/placement.h"
#include "planner/lower/memory/shorter.h"
#include "planner/passes/pass.h"

/* Places the buffers that are kept between steps, from address 0 on. Returns their end. */
static uint64_t place_kept(Lives *l, Space space)
{
    uint64_t bottom = 0;
    for (BufferId b = 1; b < l->p->buffers.n; b++) {
        Buffer *at = &l->p->buffers.at[b];
        if (at->parent || !at->persistent || at->space != space) continue;
        at->offset = bottom;
        bottom += gaps_round(at->bytes);
    }
    lives_of_space(l, space);
    return bottom;
}

static bool uses_host(const Program *p)
{
    bool host = false;
    for (BufferId b = 1; b < p->buffers.n; b++) host |= p->buffers.at[b].space == SPACE_host;
    return host;
}

/* Places persistent buffers first and all other buffers above them. */
static void place(Lives *l, bool in_slots)
{
    Program *p = l->p;
    bool host_repeats = true;
    p->bytes = placement_choose(l, place_kept(l, SPACE_device), in_slots, &p->repeats);
    p->host_bytes = 0;
    if (uses_host(p))
        p->host_bytes = placement_choose(l, place_kept(l, SPACE_host), in_slots, &host_repeats);
    p->repeats = p->repeats && host_repeats;
}

/* Places the program like its short program, so that a plan of few micro-batches shows the memory
 * of the whole plan. Returns false if that is not possible. */
static bool place_like_shorter(Lives *l, Arena *scratch)
{
    Program *p = l->p;
    ShortProgram shorter;
    Lives few;
    if (!shorter_make(&shorter, p, scratch)) return false;
    lives_read(&few, &shorter.program, scratch);
    place(&few, false);
    if (!few.p->repeats) return false;
    uint64_t *given = arena_array(scratch, p->buffers.n, sizeof *given);
    for (BufferId b = 1; b < p->buffers.n; b++)
        given[b] = few.p->buffers.at[shorter.like[b]].offset;
    p->repeats = true;
    p->host_bytes = 0;
    return placement_follow(l, place_kept(l, SPACE_device), given, &p->bytes) &&
           (!uses_host(p) || placement_follow(l, place_kept(l, SPACE_host), given, &p->host_bytes));
}

static void place_program(Program *p, bool unplaced, bool in_slots, Arena *scratch)
{
    Lives l;
    if (!p->code.n) return;
    if (unplaced) {
        lives_mark(p);
        return;
    }
    lives_find(&l, p, scratch);
    if (!place_like_shorter(&l, scratch)) place(&l, in_slots);
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
