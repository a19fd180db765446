/* Copies of equal blocks, with blocks that the test "lowers" by hand. Blocks are copied only if
 * each of their changes of arrays differs by equal steps from block to block. A copy leaves in the
 * arrays what lowering would have left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "planner/lower/blocks/blocks.h"
#include "planner/lower/blocks/steps.h"
#include "planner/lower/compile.h"

enum { BLOCKS = 16, ROOM = 2 * BLOCKS + 2, FIRST = 1 };

/* The ways in which the blocks change the arrays. */
typedef enum Changes {
    CHANGES_in_step,
    CHANGES_other_value,  /* one block writes another value */
    CHANGES_other_place,  /* one block writes to another element */
    CHANGES_other_array,  /* one block writes to another array */
    CHANGES_one_more,     /* one block also changes a second element */
    CHANGES_one_less,     /* one block changes nothing */
    CHANGES_fixed_member, /* a member that must be equal in all blocks grows by a constant */
    CHANGES_other_member, /* each block changes another member of its element */
    CHANGES_COUNT
} Changes;

static Lower *new_lower(Arena *arena)
{
    static Job job;
    Lower *l = arena_alloc(arena, sizeof *l);
    memset(&job, 0, sizeof job);
    job.options = lower_options_default();
    l->job = &job;
    l->arena = l->scratch = arena;
    l->g = arena_alloc(arena, sizeof *l->g);
    graph_init(l->g, arena);
    while (l->g->nodes.n < ROOM) list_add(arena, &l->g->nodes);
    l->p = arena_alloc(arena, sizeof *l->p);
    list_add(arena, &l->p->code);
    list_add(arena, &l->p->buffers);
    list_add(arena, &l->emit.clocks);
    list_add(arena, &l->emit.access);
    list_add(arena, &l->value.versions);
    l->value.tensor_room = ROOM;
    l->value.versions_of = arena_array(arena, ROOM, sizeof *l->value.versions_of);
    l->value.of_step = arena_array(arena, ROOM, sizeof *l->value.of_step);
    l->value.first_had = arena_array(arena, 1, sizeof *l->value.first_had);
    l->value.end_had = arena_array(arena, 1, sizeof *l->value.end_had);
    l->grad.of = arena_array(arena, ROOM, sizeof *l->grad.of);
    l->grad.arrived = arena_array(arena, ROOM, sizeof *l->grad.arrived);
    l->unit.of = arena_array(arena, ROOM, sizeof *l->unit.of);
    l->unit.weight_view = arena_array(arena, ROOM, sizeof *l->unit.weight_view);
    l->unit.grad_view = arena_array(arena, ROOM, sizeof *l->unit.grad_view);
    l->unit.maximum = arena_array(arena, ROOM, sizeof *l->unit.maximum);
    list_push(arena, &l->blocks, ((BlockRun){FIRST, 1, BLOCKS, FIRST, 1, 1}));
    repeat_prepare(l);
    return l;
}

/* Lowers block k: makes an instruction that writes a new buffer, and changes two arrays. `other` is
 * the block that differs. */
static void lower_by_hand(Lower *l, uint32_t k, Changes changes, uint32_t other)
{
    const bool differs = k == other;
    const BufferId b = list_push(l->arena, &l->p->buffers, ((Buffer){.bytes = 8, .tensor = k}));
    list_add(l->scratch, &l->emit.access);
    Instr in;
    memset(&in, 0, sizeof in); /* this also clears padding, because tests compare bytes */
    in.op = OP_fill;
    in.stream = STREAM_compute;
    in.origin = FIRST + k;
    in.args = (Span){(uint32_t)list_push(l->arena, &l->p->args, b), 1};
    const Pc pc = list_push(l->arena, &l->p->code, in);
    list_add(l->scratch, &l->emit.clocks);
    l->emit.stream_end[STREAM_compute] = pc;
    access_note(&l->emit.access.at[b], STREAM_compute, pc, true);
    if (differs && changes == CHANGES_one_less) return;
    const uint32_t at = differs && changes == CHANGES_other_place ? ROOM - 1 : 1 + k,
                   value = 10 * k + 5 + (differs && changes == CHANGES_other_value);
    if (differs && changes == CHANGES_other_array)
        l->unit.grad_view[at] = value;
    else
        l->unit.weight_view[at] = value;
    l->grad.arrived[1 + k] = changes == CHANGES_fixed_member ? 1 + k : 7;
    if (changes == CHANGES_other_member) word_set(l->grad.of, 5 * (1 + k), 7);
    if (differs && changes == CHANGES_one_more) l->unit.maximum[1 + k] = value;
}

/* Lowers all blocks. Returns the number of copied blocks. Fails unless the state and the program
 * are the same as without copies. */
static uint32_t lower_all(Changes changes, uint32_t other)
{
    Arena *arena = arena_new();
    Lower *l = new_lower(arena), *plain = new_lower(arena);
    uint32_t n_copied = 0;
    repeat_start(l);
    for (uint32_t k = 0; k < BLOCKS; k++) {
        const NodeId next = repeat_before(l, FIRST + k);
        n_copied += next - (FIRST + k);
        k = next - FIRST;
        lower_by_hand(l, k, changes, other);
    }
    for (uint32_t k = 0; k < BLOCKS; k++) lower_by_hand(plain, k, changes, other);
    assert_int_equal(l->p->code.n, plain->p->code.n);
    assert_memory_equal(l->p->code.at, plain->p->code.at, plain->p->code.n * sizeof(Instr));
    assert_int_equal(l->p->args.n, plain->p->args.n);
    assert_memory_equal(l->p->args.at, plain->p->args.at, plain->p->args.n * sizeof(BufferId));
    assert_int_equal(l->p->buffers.n, plain->p->buffers.n);
    assert_int_equal(l->emit.stream_end[STREAM_compute], plain->emit.stream_end[STREAM_compute]);
    for (ChangedPart part = 0; part < PART_versions; part++) {
        const StepWords x = steps_part(l, part, 0), y = steps_part(plain, part, 0);
        assert_int_equal(x.n, y.n);
        if (memcmp(x.at, y.at, (size_t)x.n * x.each * sizeof(uint32_t)) != 0)
            fail_msg("changes %d, block %u: array %d differs", (int)changes, other, (int)part);
    }
    arena_free(arena);
    return n_copied;
}

static void blocks_in_step_are_copied(void **state)
{
    (void)state;
    assert_true(lower_all(CHANGES_in_step, BLOCKS) > BLOCKS / 2);
}

/* One block of the first three differs from the others, only in its changes of arrays. Only blocks
 * after it may be copied. */
static void a_block_with_other_changes_prevents_copies(void **state)
{
    (void)state;
    const uint32_t most = lower_all(CHANGES_in_step, BLOCKS);
    for (Changes changes = CHANGES_other_value; changes < CHANGES_COUNT; changes++)
        for (uint32_t other = 0; other < 3; other++) {
            const uint32_t n = lower_all(changes, other);
            if (n >= most)
                fail_msg("changes %d, other block %u: %u blocks are copied", (int)changes, other,
                         n);
            if (changes >= CHANGES_fixed_member) assert_int_equal(n, 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_in_step_are_copied),
        cmocka_unit_test(a_block_with_other_changes_prevents_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
