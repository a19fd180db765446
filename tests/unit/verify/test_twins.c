/* Twins have equal keys, so a local check visits only one of them (twins.h). Each field of buffers
 * and instructions must be a part of the key, except those that the header names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "planner/verify/twins.h"
#include "tests/support/plans/tiny.h"

typedef struct Field {
    const char *name;
    size_t offset;
} Field;

#define INSTR(key, field, ...) {#field, offsetof(Instr, field)},
#define INSTR_WORD             INSTR
static const Field instr_fields[] = {
#include "planner/ir/program.def"
    {"n_in", offsetof(Instr, n_in)}};
#define BUFFER(key, field, ...) {#field, offsetof(Buffer, field)},
#define BUFFER_WORD             BUFFER
static const Field buffer_fields[] = {
#include "planner/ir/program.def"
};
#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const places[] = {"offset", "first", "last", "microbatch"};
/* `args` is a position in a list, and the keys of its buffers count instead */
static const char *const times[] = {"args", "after", "match", "launch", "microbatch", "fuse"};

static bool is_one_of(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0) return true;
    return false;
}

/* Returns a plan of four stages with eight micro-batches. */
static Plan *make(Arena *arena)
{
    Diag d = diag_in(arena);
    Tiny t = tiny_default();
    t.layers = 8;
    t.pp = 4;
    t.microbatches = 8;
    Plan *plan = tiny_plan(&t, false, arena, &d);
    assert_non_null(plan);
    assert_int_equal(plan->programs.n, 4);
    return plan;
}

static Twins find(const Program *p, Arena *arena)
{
    Twins twins = twins_of_buffers(p, arena);
    TwinTable table = twins_table(arena);
    for (Pc pc = 1; pc < p->code.n; pc++) twins_add_instr(&twins, &table, p, pc);
    return twins;
}

/* Returns the newest item of the largest group. */
static uint32_t newest_twin(const uint32_t *group, uint32_t n, uint32_t n_groups, Arena *arena)
{
    uint32_t *size = arena_array(arena, n_groups, sizeof *size), best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (group[i]) size[group[i]]++;
    for (uint32_t i = 1; i < n; i++)
        if (!best || size[group[i]] >= size[group[best]]) best = i;
    assert_true(size[group[best]] > 4);
    return best;
}

/* True if items x and y stay twins after the byte at `field` has changed to `value`. */
static bool stay_twins(const Program *p, unsigned char *field, unsigned char value, bool of_code,
                       uint32_t x, uint32_t y)
{
    Arena *arena = arena_new();
    const unsigned char old = *field;
    *field = value;
    const Twins twins = find(p, arena);
    *field = old;
    const uint32_t *group = of_code ? twins.of_instr : twins.of_buffer;
    const bool stay = group[x] == group[y];
    arena_free(arena);
    return stay;
}

/* Returns the first item of the group of x. */
static uint32_t older_or_own(const uint32_t *group, uint32_t x)
{
    uint32_t y = 1;
    while (group[y] != group[x]) y++;
    return y;
}

static uint32_t older_twin(const uint32_t *group, uint32_t x)
{
    const uint32_t y = older_or_own(group, x);
    assert_true(y < x);
    return y;
}

static void keys_have_all_fields_of_buffers(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = make(arena);
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        Program *p = &plan->programs.at[i];
        const Twins twins = find(p, arena);
        const BufferId x = newest_twin(twins.of_buffer, p->buffers.n, twins.n, arena),
                       y = older_twin(twins.of_buffer, x);
        for (size_t k = 0; k < COUNT(buffer_fields); k++) {
            const Field *f = &buffer_fields[k];
            unsigned char *at = (unsigned char *)&p->buffers.at[x] + f->offset;
            if (strcmp(f->name, "parent") == 0) continue;
            const bool stay = stay_twins(p, at, *at ^ 1, false, x, y);
            if (stay != is_one_of(f->name, places, COUNT(places)))
                fail_msg("buffers with another %s are %s", f->name, stay ? "twins" : "no twins");
        }
    }
    arena_free(arena);
}

static void keys_have_all_fields_of_instructions(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = make(arena);
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        Program *p = &plan->programs.at[i];
        const Twins twins = find(p, arena);
        const Pc x = newest_twin(twins.of_instr, p->code.n, twins.n, arena),
                 y = older_twin(twins.of_instr, x);
        for (size_t k = 0; k < COUNT(instr_fields); k++) {
            const Field *f = &instr_fields[k];
            if (strcmp(f->name, "args") == 0) continue;
            /* a match number other than 0 is enough */
            const bool is_match = strcmp(f->name, "match") == 0 && !p->code.at[x].match;
            unsigned char *at = (unsigned char *)&p->code.at[x] + f->offset;
            const bool stay = stay_twins(p, at, *at ^ 1, true, x, y);
            if (stay != (is_one_of(f->name, times, COUNT(times)) && !is_match))
                fail_msg("instructions with another %s are %s", f->name,
                         stay ? "twins" : "no twins");
        }
    }
    arena_free(arena);
}

/* The keys of arguments belong to the key of an instruction, and so does the fact that it is the
 * first one to use an argument. */
static void keys_have_arguments(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = make(arena);
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        Program *p = &plan->programs.at[i];
        const Twins twins = find(p, arena);
        const Pc x = newest_twin(twins.of_instr, p->code.n, twins.n, arena),
                 y = older_twin(twins.of_instr, x);
        for (uint32_t k = 0; k < p->code.at[x].args.n; k++) {
            const BufferId own = program_arg(p, &p->code.at[x], k),
                           other = program_arg(p, &p->code.at[y], k);
            Buffer *b = &p->buffers.at[own];
            unsigned char *category = (unsigned char *)&b->category;
            if (own != other) assert_false(stay_twins(p, category, *category ^ 1, true, x, y));
            const Pc first = b->first;
            b->first = first == x ? x - 1 : x;
            const Twins now = find(p, arena);
            assert_true(now.of_instr[x] != now.of_instr[y]);
            b->first = first;
        }
    }
    arena_free(arena);
}

/* A view has the fields of its root in its key. */
static void keys_have_roots(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = make(arena);
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        Program *p = &plan->programs.at[i];
        const Twins twins = find(p, arena);
        for (BufferId x = 1; x < p->buffers.n && n < 32; x++) {
            const BufferId root = p->buffers.at[x].parent, y = older_or_own(twins.of_buffer, x);
            if (!root || x == y || p->buffers.at[y].parent == root) continue;
            unsigned char *unit = (unsigned char *)&p->buffers.at[root].unit;
            assert_false(stay_twins(p, unit, *unit ^ 1, false, x, y));
            p->buffers.at[x].parent = 0;
            const Twins now = find(p, arena);
            assert_true(now.of_buffer[x] != now.of_buffer[y]);
            p->buffers.at[x].parent = root;
            n++;
        }
    }
    assert_true(n > 0);
    arena_free(arena);
}

/* Twins must save work, or nobody would need them. */
static void most_instructions_are_twins(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Plan *plan = make(arena);
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        const Twins twins = find(p, arena);
        bool *seen = arena_array(arena, twins.n, sizeof *seen);
        uint32_t n_twins = 0;
        for (Pc pc = 1; pc < p->code.n; pc++) {
            const uint32_t group = twins.of_instr[pc];
            if (op_info(p->code.at[pc].op)->flags & OP_UPDATES) assert_int_equal(group, 0);
            n_twins += group && seen[group];
            seen[group] = true;
        }
        assert_true(n_twins > p->code.n / 2);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_have_all_fields_of_buffers),
        cmocka_unit_test(keys_have_all_fields_of_instructions),
        cmocka_unit_test(keys_have_arguments),
        cmocka_unit_test(keys_have_roots),
        cmocka_unit_test(most_instructions_are_twins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
