/* Random numbers and passes for all kinds of drawn plans: see drawn.h. */
#include "tests/support/plans/drawn.h"

#include "planner/base/rng.h"

Drawn drawn_new(uint64_t seed, uint64_t index, Arena *arena)
{
    return (Drawn){.seed = seed, .stream = index, .arena = arena, .passes = str_in(arena)};
}

uint32_t draw(Drawn *d, uint32_t n)
{
    return (uint32_t)rng_below(d->seed, d->stream, d->n++, n);
}

const char *draw_word(Drawn *d, uint32_t n, const char *const *words)
{
    return words[draw(d, n)];
}

void draw_pass(Drawn *d, const char *text)
{
    str_print(&d->passes, "%s%s", d->passes.n ? ", " : "", text);
}
