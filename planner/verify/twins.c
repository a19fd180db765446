/* Finds twins by hashing their keys. Equal hashes are not enough: keys are compared in full. */
#include <string.h>

#include "planner/verify/private.h"

enum { BUFFER_WORDS = 5, INSTR_WORDS = 5, MOST_WORDS = INSTR_WORDS + (MAX_ARGS + 1) / 2 };

static uint32_t slot_of(const TwinTable *t, const uint64_t *key)
{
    uint64_t h = 0;
    for (uint32_t i = 0; i < key[0]; i++) {
        h = (h ^ key[i]) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 29;
    }
    return (uint32_t)(h >> 32) & (t->n_slots - 1);
}

static inline const uint64_t *key_of(const TwinTable *t, uint32_t number)
{
    return &t->keys.at[(size_t)number * t->width];
}

static inline bool has_key(const TwinTable *t, uint32_t number, const uint64_t *key)
{
    return memcmp(key_of(t, number), key, key[0] * sizeof *key) == 0;
}

static void grow(TwinTable *t)
{
    t->n_slots = t->n_slots ? 4 * t->n_slots : 1024;
    t->slots = arena_array(t->arena, t->n_slots, sizeof *t->slots);
    for (uint32_t i = 1; i < t->n; i++) {
        uint32_t s = slot_of(t, key_of(t, i));
        while (t->slots[s]) s = (s + 1) & (t->n_slots - 1);
        t->slots[s] = i;
    }
}

/* Number 0 has no key. */
static TwinTable table_new(Arena *arena, uint32_t width)
{
    TwinTable t = {.arena = arena, .width = width, .n = 1};
    list_reserve(arena, &t.keys, 256 * width);
    for (uint32_t i = 0; i < width; i++) list_push(arena, &t.keys, UINT64_C(0));
    list_reserve_none(arena, &t.next);
    grow(&t);
    return t;
}

/* Finds the key in the table, or adds it. */
static uint32_t look_up(TwinTable *t, const uint64_t *key)
{
    if (2 * t->n >= t->n_slots) grow(t);
    uint32_t s = slot_of(t, key);
    for (; t->slots[s]; s = (s + 1) & (t->n_slots - 1))
        if (has_key(t, t->slots[s], key)) return t->slots[s];
    for (uint32_t i = 0; i < t->width; i++)
        list_push(t->arena, &t->keys, i < key[0] ? key[i] : UINT64_C(0));
    list_push(t->arena, &t->next, 0);
    return t->slots[s] = t->n++;
}

/* Returns the number of the key. Sequences of keys repeat, so it first tries the key that followed
 * the newest one before. */
static uint32_t number_of(TwinTable *t, const uint64_t *key)
{
    const uint32_t guess = t->next.at[t->newest];
    if (guess && has_key(t, guess, key)) return t->newest = guess;
    const uint32_t number = look_up(t, key);
    t->next.at[t->newest] = number;
    return t->newest = number;
}

/* of_root: the group of the buffer that contains it; 0: none does. */
static uint32_t group_of_buffer(TwinTable *t, const Buffer *b, uint32_t of_root)
{
    const uint64_t flags = (uint64_t)b->persistent | (uint64_t)b->result << 1 |
                           (uint64_t)b->packed << 2 | (uint64_t)(b->parent != 0) << 3;
    const uint64_t key[BUFFER_WORDS] = {BUFFER_WORDS,
                                        (uint64_t)b->shape << 32 | (uint64_t)b->dtype << 20 |
                                            (uint64_t)b->category << 12 | (uint64_t)b->space << 8 |
                                            flags,
                                        b->bytes, (uint64_t)b->tensor << 32 | b->unit, of_root};
    return number_of(t, key);
}

Twins twins_of_buffers(const Program *p, Arena *arena)
{
    Twins twins = {.of_instr = arena_array(arena, p->code.n, sizeof(uint32_t)),
                   .of_buffer = arena_array(arena, p->buffers.n, sizeof(uint32_t))};
    TwinTable table = table_new(arena, BUFFER_WORDS);
    for (BufferId b = 1; b < p->buffers.n; b++)
        if (!p->buffers.at[b].parent)
            twins.of_buffer[b] = group_of_buffer(&table, &p->buffers.at[b], 0);
    for (BufferId b = 1; b < p->buffers.n; b++) {
        const BufferId parent = p->buffers.at[b].parent;
        if (parent)
            twins.of_buffer[b] =
                group_of_buffer(&table, &p->buffers.at[b], twins.of_buffer[parent]);
    }
    twins.n = table.n;
    return twins;
}

TwinTable twins_table(Arena *arena)
{
    return table_new(arena, MOST_WORDS);
}

void twins_add_instr(Twins *t, TwinTable *table, const Program *p, Pc pc)
{
    const Instr *in = &p->code.at[pc];
    const uint32_t n = in->args.n;
    const BufferId *arg = p->args.at + in->args.first;
    if (op_info(in->op)->flags & OP_UPDATES) return;
    uint64_t key[MOST_WORDS];
    uint64_t begins = 0;
    for (uint32_t i = 0; i < n; i += 2) {
        uint64_t word = t->of_buffer[arg[i]];
        begins |= (uint64_t)(p->buffers.at[arg[i]].first == pc) << i;
        if (i + 1 < n) {
            word |= (uint64_t)t->of_buffer[arg[i + 1]] << 32;
            begins |= (uint64_t)(p->buffers.at[arg[i + 1]].first == pc) << (i + 1);
        }
        key[INSTR_WORDS + i / 2] = word;
    }
    key[0] = INSTR_WORDS + (n + 1) / 2;
    key[1] = (uint64_t)in->op << 40 | (uint64_t)in->stream << 32 | (uint64_t)in->phase << 24 |
             (uint64_t)in->n_in << 16 | (uint64_t)n << 8 | (in->match != 0);
    key[2] = (uint64_t)in->attrs << 32 | in->origin;
    key[3] = (uint64_t)in->unit << 32 | (uint32_t)in->hop;
    key[4] = (uint64_t)in->axes << 32 | begins;
    t->of_instr[pc] = number_of(table, key);
    if (table->n > t->n) t->n = table->n;
}

/* ---- checks ---- */

static bool *none_fine(Verifier *v)
{
    return v->twins ? arena_array(v->arena, v->twins[v->program].n, sizeof(bool)) : NULL;
}

void verify_each_instr(Verifier *v, void (*check)(void *self, Pc pc), void *self)
{
    const uint32_t *of = v->twins ? v->twins[v->program].of_instr : NULL;
    bool *fine = none_fine(v); /* [group]: one of its instructions has no fault */
    for (Pc pc = 1; pc < v->p->code.n; pc++) {
        const uint32_t group = of ? of[pc] : 0, before = v->n_reported + v->n_left_out;
        if (group && fine[group]) continue;
        check(self, pc);
        if (group) fine[group] = v->n_reported + v->n_left_out == before;
    }
}

void verify_each_buffer(Verifier *v, void (*check)(Verifier *v, BufferId b))
{
    const uint32_t *of = v->twins ? v->twins[v->program].of_buffer : NULL;
    bool *fine = none_fine(v);
    for (BufferId b = 1; b < v->p->buffers.n; b++) {
        const uint32_t group = of ? of[b] : 0, before = v->n_reported + v->n_left_out;
        if (group && fine[group]) continue;
        check(v, b);
        if (group) fine[group] = v->n_reported + v->n_left_out == before;
    }
}
