/* Copies the instructions of equal blocks (blocks.c). Blocks are lowered one by one, until three
 * blocks in a row differ by constant steps. This must hold for their instructions, their buffers,
 * and their changes to the state of the lowering (steps.c). At the start of the run, the state of
 * these blocks and of the next ones must differ by constant steps, too (state.c). Then lowering the
 * next block would change all numbers by the same steps again. So the following blocks are written
 * by adding the steps. The last blocks of a run are lowered as usual, because a unit is gathered
 * some blocks before its use. */
#include <assert.h>
#include <string.h>

#include "planner/lower/blocks/blocks.h"
#include "planner/lower/blocks/steps.h"

enum {
    COMPARED = 3, /* the number of newest blocks that are compared */
    FEWEST = 2,   /* fewer blocks are not copied, because a later try may copy more */
    /* Copying is tried again at each block of a run, but at most up to block number MOST_TRIED plus
     * the number of units that are gathered in advance. */
    MOST_TRIED = 6
};

/* A word of an array that a block has changed. */
typedef struct WordChange {
    uint32_t part, at, value;
} WordChange;

/* The state of the lowering at the end of a block. */
typedef struct Mark {
    uint32_t n[MADE_COUNT]; /* the lengths of the lists */
    Counters counters;
    Fixed fixed;
    Lower all;                /* shows whether a member that steps.c does not list has changed */
    LIST(WordChange) changes; /* the words that the block changed in the arrays */
    LIST(uint32_t)
    versions; /* the versions that the block made, copied before later blocks change
                 them */
} Mark;

typedef LIST(uint32_t) WordList;

typedef struct BlockCopier {
    uint32_t *run_of; /* [node]: 1 + index of the run with a block that begins here; 0: none does */
    uint32_t n_marks; /* the number of states recorded so far: at the start of the run and
                         at the end of each block */
    Mark mark[COMPARED + 1];  /* the newest recorded states, the newest last */
    WordList old[PART_COUNT]; /* copies of the arrays as they were at the newest recorded state */
    uint32_t first_version;   /* the first version of this action */
    /* [block]: when the run began, the states of the block before it, of this one and of the next
     * one differed by equal steps (state.c) */
    bool *same;
    RunTensors **tensors; /* [run]: its tensors; NULL: they are not listed yet */
    UnitState *units;     /* [unit]: its state when the run began */
    uint32_t *kind;       /* [unit]: equal for units that are gathered by the same instructions */
} BlockCopier;

/* ---- recording states */

static void begin_run(Lower *l, const BlockRun *run)
{
    BlockCopier *r = l->repeat;
    RunTensors **tensors = &r->tensors[run - l->blocks.at];
    if (*tensors == NULL) *tensors = blocks_tensors(l, run);
    r->same = arena_array(l->scratch, run->n, sizeof *r->same);
    if (*tensors != NULL) blocks_compare(l, run, *tensors, r->same);
    memcpy(r->units, l->unit.of, l->g->units.n * sizeof *r->units);
    for (ChangedPart part = 0; part < PART_COUNT; part++) {
        const StepWords now = steps_part(l, part, r->first_version);
        WordList *old = &r->old[part];
        old->n = 0;
        old->at =
            list_grow(l->scratch, old->at, 0, &old->room, now.n * now.each + 1, sizeof *old->at);
        old->n = now.n * now.each;
        if (old->n) memcpy(old->at, now.at, old->n * sizeof *old->at);
    }
    r->n_marks = 0;
}

/* Lists the words of an array that have changed since the newest recorded state, and stores their
 * new values. */
static void list_changes(Lower *l, ChangedPart part, Mark *mark)
{
    enum { CHUNK = 64 };
    const StepWords now = steps_part(l, part, l->repeat->first_version);
    WordList *old = &l->repeat->old[part];
    for (uint32_t i = 0; i < old->n; i += CHUNK) {
        const uint32_t end = old->n - i < CHUNK ? old->n : i + CHUNK;
        if (memcmp(old->at + i, (const uint32_t *)now.at + i, (end - i) * sizeof *old->at) == 0)
            continue;
        for (uint32_t k = i; k < end; k++) {
            const uint32_t value = word_at(now.at, k);
            if (value == old->at[k]) continue;
            old->at[k] = value;
            list_push(l->scratch, &mark->changes, ((WordChange){part, k, value}));
        }
    }
    const uint32_t more = now.n * now.each - old->n;
    old->at = list_grow(l->scratch, old->at, old->n, &old->room, more, sizeof *old->at);
    for (uint32_t k = 0; k < more; k++) old->at[old->n + k] = word_at(now.at, old->n + k);
    old->n += more;
}

static void add_mark(Lower *l)
{
    BlockCopier *r = l->repeat;
    Mark oldest = r->mark[0];
    memmove(r->mark, r->mark + 1, COMPARED * sizeof *r->mark);
    Mark *mark = &r->mark[COMPARED];
    const Mark *before = mark - 1;
    *mark = oldest;
    mark->changes.n = mark->versions.n = 0;
    for (MadeList made = 0; made < MADE_COUNT; made++) mark->n[made] = steps_made(l, made).n;
    mark->counters = steps_counters(l);
    mark->fixed = steps_fixed(l);
    memcpy(&mark->all, l, sizeof *l);
    if (r->n_marks++ == 0) return;
    for (ChangedPart part = 0; part < PART_COUNT; part++) list_changes(l, part, mark);
    const StepWords all = steps_made(l, MADE_versions);
    for (uint32_t i = before->n[MADE_versions] * all.each; i < all.n * all.each; i++)
        list_push(l->scratch, &mark->versions, word_at(all.at, i));
}

/* ---- steps */

/* True if x, y and z increase by equal differences. If `moves` is false, y and z must be equal. */
static bool in_step(uint32_t x, uint32_t y, uint32_t z, bool moves)
{
    return z - y == y - x && (moves || z == y);
}

/* True if each number in the clocks of the newest block equals the number in the block before, or
 * exceeds it by `step`. Only these two blocks are compared, because the differences of clocks
 * become constant one block later than those of instructions. */
static bool clocks_in_step(const uint32_t *y, uint32_t words, uint32_t step)
{
    for (uint32_t i = 0; i < words; i++)
        if (y[i + words] != y[i] && y[i + words] - y[i] != step) return false;
    return true;
}

static bool made_in_step(const Lower *l, MadeList made)
{
    const Mark *m = l->repeat->mark;
    const StepWords w = steps_made(l, made);
    const uint32_t n = m[3].n[made] - m[2].n[made];
    if (m[2].n[made] - m[1].n[made] != n || m[1].n[made] - m[0].n[made] != n) return false;
    const uint32_t words = n * w.each;
    const uint32_t *x = (const uint32_t *)w.at + (size_t)m[0].n[made] * w.each;
    if (made == MADE_versions) {
        for (uint32_t i = 0; i < words; i++)
            if (!in_step(m[1].versions.at[i], m[2].versions.at[i], m[3].versions.at[i],
                         w.moves >> i % w.each & 1))
                return false;
        return true;
    }
    if (made == MADE_clocks) return clocks_in_step(x + words, words, n);
    for (uint32_t i = 0, k = 0; i < words; i++, k = k + 1 == w.each ? 0 : k + 1)
        if (!in_step(word_at(x, i), word_at(x, i + words), word_at(x, i + 2 * words),
                     w.moves >> k & 1))
            return false;
    return true;
}

static bool changes_in_step(const Lower *l)
{
    const Mark *m = l->repeat->mark;
    const uint32_t n = m[3].changes.n;
    if (m[2].changes.n != n || m[1].changes.n != n) return false;
    for (uint32_t i = 0; i < n; i++) {
        const WordChange *x = &m[1].changes.at[i], *y = &m[2].changes.at[i],
                         *z = &m[3].changes.at[i];
        if (x->part != y->part || y->part != z->part || !in_step(x->at, y->at, z->at, true))
            return false;
        const StepWords w = steps_part(l, z->part, l->repeat->first_version);
        if ((int32_t)(z->at - y->at) % (int32_t)w.each != 0 ||
            !in_step(x->value, y->value, z->value, w.moves >> z->at % w.each & 1))
            return false;
    }
    return true;
}

/* True if the three newest blocks differ by equal steps. */
static bool blocks_in_step(const Lower *l)
{
    const Mark *m = l->repeat->mark;
    if (m[3].fixed.n_pending > MOST_PENDING) return false;
    /* a member that no table lists has changed, so the blocks are not copied */
    if (!steps_only_listed(&m[0].all, &m[3].all)) return false;
    if (memcmp(&m[3].fixed, &m[2].fixed, sizeof(Fixed)) != 0 ||
        memcmp(&m[2].fixed, &m[1].fixed, sizeof(Fixed)) != 0)
        return false;
    for (uint32_t i = 0; i < sizeof(Counters) / sizeof(uint32_t); i++)
        if (!in_step(word_at(&m[1].counters, i), word_at(&m[2].counters, i),
                     word_at(&m[3].counters, i), true))
            return false;
    for (MadeList made = 0; made < MADE_COUNT; made++)
        if (!made_in_step(l, made)) return false;
    return changes_in_step(l);
}

/* x, y and z are uses of units. True if their gathers differ by equal steps: y from x in the same
 * way as z from y. The units may belong to blocks after the run. */
static bool uses_in_step(const Lower *l, const UnitUse *x, const UnitUse *y, const UnitUse *z)
{
    const BlockCopier *r = l->repeat;
    const UnitState *a = &r->units[x->unit], *b = &r->units[y->unit], *c = &r->units[z->unit];
    return in_step(x->unit, y->unit, z->unit, true) && r->kind[y->unit] == r->kind[z->unit] &&
           in_step(a->rest, b->rest, c->rest, true) && !b->gathered == !c->gathered &&
           in_step(a->gathered, b->gathered, c->gathered, true) && !b->kept == !c->kept &&
           in_step(a->kept, b->kept, c->kept, true) && y->microbatch == z->microbatch &&
           y->backward == z->backward;
}

/* Returns how many of the next `n` blocks use units in the same order as the two newest blocks. The
 * next `prefetch` + 1 uses after these blocks are compared, too, because they decide which units
 * are gathered in advance. A gather that also takes the 8-bit unit of a module depends on at most
 * twice as many uses. */
static uint32_t equal_uses(const Lower *l, uint32_t n)
{
    const Mark *m = l->repeat->mark;
    const uint32_t step = m[3].counters.next_use - m[2].counters.next_use,
                   from = m[3].counters.next_use;
    uint32_t ahead = l->job->sharding.options.prefetch + 1;
    const UnitUse *use = l->unit.uses.at;
    if (!step) return n;
    if (from < 2 * step) return 0;
    if (l->job->sharding.gathers_bytes) ahead *= 2;
    uint32_t i = from;
    for (; i < l->unit.uses.n && i < from + n * step + ahead; i++)
        if (!uses_in_step(l, &use[i - 2 * step], &use[i - step], &use[i])) break;
    return i < from + ahead ? 0 : (i - from - ahead) / step < n ? (i - from - ahead) / step : n;
}

/* ---- copies */

/* Writes n words at `to`. Before `to` lie the words of at least two blocks, with `words` words
 * each. Each new block differs from the block before it as the last two blocks differ. */
static void copy_words(uint32_t *to, size_t words, size_t n)
{
    typedef uint32_t Four __attribute__((vector_size(16), aligned(4), may_alias));
    const uint32_t *newest = to - words, *before = newest - words;
    size_t i = 0;
    for (; words >= 4 && i + 4 <= n; i += 4)
        *(Four *)(void *)(to + i) = 2 * *(const Four *)(const void *)(newest + i) -
                                    *(const Four *)(const void *)(before + i);
    for (; i < n; i++) word_set(to, i, 2 * word_at(newest, i) - word_at(before, i));
}

/* Appends `copies` blocks to a list that already has room for them. */
static void copy_made(const Lower *l, MadeList made, uint32_t copies)
{
    const Mark *m = l->repeat->mark;
    const StepWords w = steps_made(l, made);
    const size_t words = (size_t)(m[3].n[made] - m[2].n[made]) * w.each, all = words * copies;
    uint32_t *to = (uint32_t *)w.at + (size_t)w.n * w.each;
    if (made != MADE_versions) {
        copy_words(to, words, all);
        return;
    }
    for (uint32_t k = 0; k < copies; k++)
        for (size_t i = 0; i < words; i++) {
            const uint32_t y = m[2].versions.at[i], z = m[3].versions.at[i];
            word_set(to, k * words + i, z + (k + 1) * (z - y));
        }
}

static uint32_t n_new(const Lower *l, MadeList made, uint32_t copies)
{
    const Mark *m = l->repeat->mark;
    return (m[3].n[made] - m[2].n[made]) * copies;
}

static void copy_lists(Lower *l, uint32_t copies)
{
#define X(name, list, memory, moves)                                                               \
    list_reserve(l->memory, &l->list, n_new(l, MADE_##name, copies));                              \
    copy_made(l, MADE_##name, copies);                                                             \
    l->list.n += n_new(l, MADE_##name, copies);
    MADE_LISTS(X)
#undef X
}

/* Records the copied instructions in the tables that lower_emit fills for instructions that it
 * writes itself. */
static void note_copies(Lower *l)
{
    const uint32_t more = l->p->buffers.n - l->emit.access.n;
    list_reserve(l->scratch, &l->emit.access, more);
    for (uint32_t i = 0; i < more; i++) access_clear(&l->emit.access.at[l->emit.access.n + i]);
    l->emit.access.n += more;
    for (Pc pc = l->repeat->mark[COMPARED].n[MADE_code]; pc < l->p->code.n; pc++) {
        const Instr *in = &l->p->code.at[pc];
        l->emit.stream_end[in->stream] = pc;
        for (uint32_t i = 0; i < in->args.n; i++) {
            const BufferId b = program_arg(l->p, in, i), parent = l->p->buffers.at[b].parent;
            access_note(&l->emit.access.at[parent ? parent : b], in->stream, pc, i >= in->n_in);
        }
    }
    for (uint32_t i = l->repeat->mark[COMPARED].n[MADE_shared]; i < l->grad.shared.n; i++) {
        const BufferId b = l->grad.shared.at[i].buffer;
        while (l->grad.shared_of.n <= b) list_add(l->scratch, &l->grad.shared_of);
        l->grad.shared_of.at[b] = i + 1;
    }
}

static void note_version(Lower *l, TensorId t)
{
    TensorId *first = &l->value.first_had[l->microbatch], *end = &l->value.end_had[l->microbatch];
    if (*end == 0 || t < *first) *first = t;
    if (t >= *end) *end = t + 1;
}

static void copy_changes(Lower *l, uint32_t copies)
{
    const Mark *m = l->repeat->mark;
    StepWords parts[PART_COUNT];
    for (ChangedPart part = 0; part < PART_COUNT; part++)
        parts[part] = steps_part(l, part, l->repeat->first_version);
    for (uint32_t k = 1; k <= copies; k++)
        for (uint32_t i = 0; i < m[3].changes.n; i++) {
            const WordChange *y = &m[2].changes.at[i], *z = &m[3].changes.at[i];
            const StepWords *w = &parts[z->part];
            const uint32_t at = z->at + k * (z->at - y->at);
            assert(at < w->n * w->each);
            word_set(w->at, at, z->value + k * (z->value - y->value));
            if (z->part == PART_versions_of) note_version(l, at);
        }
    Counters counters = m[3].counters;
    for (uint32_t i = 0; i < sizeof counters / sizeof(uint32_t); i++) {
        const uint32_t y = word_at(&m[2].counters, i), z = word_at(&m[3].counters, i);
        word_set(&counters, i, z + copies * (z - y));
    }
    steps_set_counters(l, &counters);
}

/* Returns the number of blocks from `block` on that can be copied. The last block of the run is
 * never copied, because the node after it differs. */
static uint32_t copies_from(const Lower *l, const BlockRun *run, uint32_t block)
{
    uint32_t n = 0;
    while (block + n + 1 < run->n && l->repeat->same[block + n - 1]) n++;
    return equal_uses(l, n);
}

void repeat_start(Lower *l)
{
    if (l->repeat) l->repeat->first_version = l->value.versions.n;
}

NodeId repeat_before(Lower *l, NodeId id)
{
    BlockCopier *r = l->repeat;
    if (!r || !r->run_of[id]) return id;
    const BlockRun *run = &l->blocks.at[r->run_of[id] - 1];
    const uint32_t block = (id - run->first) / run->length;
    if (block == 0) begin_run(l, run);
    if (block != r->n_marks)
        return id; /* blocks were copied already, or too many blocks were
                      unequal */
    add_mark(l);
    const bool alike = block >= COMPARED && blocks_in_step(l);
    const uint32_t copies = alike ? copies_from(l, run, block) : 0;
    const bool is_last_try = block >= MOST_TRIED + l->job->sharding.options.prefetch;
    if (copies >= FEWEST || is_last_try) r->n_marks = UINT32_MAX;
    if (copies < FEWEST) return id;
    copy_lists(l, copies);
    note_copies(l);
    copy_changes(l, copies);
    if (l->job->options.n_copied) *l->job->options.n_copied += n_new(l, MADE_code, copies);
    return id + copies * run->length;
}

/* Gives each unit a kind, which is equal for units that are gathered in the same way. A unit is
 * compared only with the newest few kinds. */
static uint32_t *find_kinds(const Lower *l)
{
    enum { NEWEST = 4 };
    UnitId newest[NEWEST] = {0};
    uint32_t n = 0, *kind = arena_array(l->scratch, l->g->units.n, sizeof *kind);
    for (UnitId u = 1; u < l->g->units.n; u++) {
        uint32_t i = 0;
        while (i < NEWEST && i < n && !blocks_same_gather(l, newest[i], u)) i++;
        if (i == NEWEST || i == n) newest[i = n++ % NEWEST] = u;
        kind[u] = newest[i];
    }
    return kind;
}

void repeat_prepare(Lower *l)
{
    l->repeat = NULL;
    if (!l->blocks.n) return;
    l->repeat = arena_alloc(l->scratch, sizeof *l->repeat);
    l->repeat->kind = find_kinds(l);
    l->repeat->units = arena_array(l->scratch, l->g->units.n, sizeof *l->repeat->units);
    l->repeat->tensors = arena_array(l->scratch, l->blocks.n, sizeof *l->repeat->tensors);
    l->repeat->run_of = arena_array(l->scratch, l->g->nodes.n, sizeof *l->repeat->run_of);
    for (uint32_t i = 0; i < l->blocks.n; i++)
        for (uint32_t k = 0; k < l->blocks.at[i].n; k++)
            l->repeat->run_of[l->blocks.at[i].first + k * l->blocks.at[i].length] = i + 1;
}
