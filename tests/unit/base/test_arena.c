/* Memory of an arena is zeroed and aligned for any size, also after a reset. When memory runs out,
 * the arena calls a function of its scope instead of ending the process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "planner/base/arena.h"
#include "planner/base/rng.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

static void assert_zero(const unsigned char *at, size_t n)
{
    for (size_t i = 0; i < n; i++) assert_int_equal(at[i], 0);
}

static void an_allocation_is_zeroed_and_aligned(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    /* Later rounds use blocks that a reset kept, full of old bytes. */
    for (uint64_t round = 0; round < 3; round++) {
        size_t sum = 0;
        for (uint64_t i = 0; i < 300; i++) {
            size_t n = (size_t)rng_below(round, 1, i, i % 50 == 0 ? 100000 : 200);
            unsigned char *at = arena_alloc(arena, n);
            assert_non_null(at);
            assert_int_equal((uintptr_t)at % 16, 0);
            assert_zero(at, n);
            memset(at, 0xA5, n);
            sum += n;
        }
        assert_int_equal(arena_bytes(arena), sum);
        arena_reset(arena);
        assert_int_equal(arena_bytes(arena), 0);
    }
    arena_free(arena);
    arena_free(NULL);
}

/* A new arena takes over the blocks of a freed one. It must not show the old bytes. */
static void a_new_arena_hides_what_a_freed_one_held(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 3; round++) {
        Arena *arena = arena_new();
        for (uint64_t i = 0; i < 40; i++) {
            size_t n = (size_t)rng_below(round, 2, i, i % 8 == 0 ? 3000000 : 5000);
            unsigned char *at = arena_alloc(arena, n);
            assert_zero(at, n);
            memset(at, 0x5A, n);
        }
        arena_free(arena);
    }
}

/* These blocks need more memory than the arenas keep in large mapped pages. No two may overlap. */
static void many_large_blocks_do_not_overlap(void **state)
{
    (void)state;
    enum { ARENAS = 48, BYTES = 12 << 20 };
    Arena *arena[ARENAS];
    unsigned char *at[ARENAS];
    for (unsigned i = 0; i < ARENAS; i++) {
        arena[i] = arena_new();
        at[i] = arena_alloc(arena[i], BYTES);
        assert_int_equal((uintptr_t)at[i] % 16, 0);
        assert_int_equal(at[i][0] | at[i][BYTES / 2] | at[i][BYTES - 1], 0);
        at[i][0] = at[i][BYTES - 1] = (unsigned char)(i + 1);
    }
    for (unsigned i = 0; i < ARENAS; i++) {
        assert_int_equal(at[i][0], i + 1);
        assert_int_equal(at[i][BYTES - 1], i + 1);
        arena_free(arena[i]);
    }
}

static void allocations_do_not_overlap(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    unsigned char *at[200];
    for (unsigned i = 0; i < 200; i++) {
        at[i] = arena_alloc(arena, i);
        memset(at[i], (int)i, i);
    }
    for (unsigned i = 0; i < 200; i++)
        for (unsigned j = 0; j < i; j++) assert_int_equal(at[i][j], i);
    /* Even empty allocations have addresses of their own. */
    assert_ptr_not_equal(arena_alloc(arena, 0), arena_alloc(arena, 0));
    arena_free(arena);
}

static void a_reset_arena_hands_out_the_same_memory(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    void *first = arena_alloc(arena, 100);
    arena_alloc(arena, 1000000);
    arena_reset(arena);
    assert_ptr_equal(arena_alloc(arena, 100), first);
    arena_free(arena);
}

static void an_arena_copies_and_formats_text(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    assert_string_equal(arena_dup(arena, "tensor"), "tensor");
    assert_string_equal(arena_copy(arena, "tensor", 3), "ten");
    assert_string_equal(arena_copy(arena, NULL, 0), "");
    assert_string_equal(arena_print(arena, "%d-%s", 12, "tp"), "12-tp");
    char long_text[5000];
    memset(long_text, 'x', sizeof long_text);
    long_text[sizeof long_text - 1] = 0;
    assert_string_equal(arena_print(arena, "%s", long_text), long_text);
    arena_free(arena);
}

typedef struct Exit {
    jmp_buf back;
    int n;
} Exit;

static void leave(void *self)
{
    Exit *out = self;
    out->n++;
    longjmp(out->back, 1);
}

static void an_allocation_that_cannot_fit_calls_the_scope(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    Exit out = {.n = 0};
    ArenaScope scope;
    arena_scope_open(&scope, leave, &out);
    if (setjmp(out.back) == 0) arena_alloc(arena, SIZE_MAX);
    assert_int_equal(out.n, 1);
    /* The product overflows to a small number of bytes. The arena must refuse it all the same. */
    if (setjmp(out.back) == 0) arena_array(arena, SIZE_MAX / 16 + 2, 16);
    assert_int_equal(out.n, 2);
    /* More than the address space of any machine. */
    if (setjmp(out.back) == 0) arena_alloc(arena, SIZE_MAX / 2 - 4096);
    assert_int_equal(out.n, 3);
    /* The arena is still usable. */
    assert_string_equal(arena_dup(arena, "fine"), "fine");
    arena_scope_close(&scope);
    arena_free(arena);
}

static void count_one(void *self)
{
    ++*(int *)self;
}

/* Memory runs out inside a scope. Unwinding the scope frees the arenas that were made in it and
 * releases their resources. Older arenas stay. */
static void unwinding_a_scope_frees_only_its_arenas(void **state)
{
    (void)state;
    Exit out = {.n = 0};
    int released = 0;
    ArenaScope scope, inner;
    arena_scope_open(&scope, leave, &out);
    Arena *before = arena_new();
    arena_at_end(before, count_one, &released);
    for (int last = 0; last < 3; last++) {
        arena_scope_open(&inner, leave, &out);
        if (setjmp(out.back) == 0) {
            Arena *made[3];
            for (int i = 0; i < 3; i++) {
                made[i] = arena_new();
                arena_at_end(made[i], count_one, &released);
            }
            arena_free(made[last]); /* the oldest, the middle or the newest arena */
            arena_alloc(made[(last + 1) % 3], SIZE_MAX);
        }
        arena_scope_unwind(&inner);
        assert_int_equal(out.n, last + 1);
        assert_int_equal(released, 3 * (last + 1));
    }
    /* Arenas of a scope that was closed belong to the scope around it. */
    arena_scope_open(&inner, leave, &out);
    arena_at_end(arena_new(), count_one, &released);
    arena_scope_close(&inner);
    assert_string_equal(arena_dup(before, "fine"), "fine");
    arena_scope_unwind(&scope);
    assert_int_equal(released, 11);
}

/* ---- freed blocks ---- */

#if defined(__SANITIZE_ADDRESS__)
/* AddressSanitizer reports a use of a freed block until 16 MiB more have been freed. Then an arena
 * uses the block again, zeroed. */
static void a_freed_block_stays_poisoned(void **state)
{
    (void)state;
    enum { BYTES = 520000, ENOUGH = 100 }; /* one allocation fills a block of 512 KiB */
    Arena *arena = arena_new();
    unsigned char *first = arena_alloc(arena, BYTES);
    memset(first, 0xA5, BYTES);
    arena_free(arena);
    bool again = false;
    for (size_t freed = BYTES, i = 0; i < ENOUGH; i++, freed += BYTES) {
        if (!again) assert_true(__asan_address_is_poisoned(first + BYTES / 2));
        arena = arena_new();
        unsigned char *at = arena_alloc(arena, BYTES);
        assert_true(at != first || freed > 16 << 20);
        again = again || at == first;
        assert_zero(at, BYTES);
        memset(at, 0xA5, BYTES);
        assert_true(__asan_address_is_poisoned(at + BYTES));
        arena_free(arena);
    }
    assert_true(again);
}
#endif

/* AddressSanitizer's own malloc may wait for ever in a child of a process with several threads, so
 * the next tests do not run under it. */
#if !defined(__SANITIZE_ADDRESS__)
static void a_new_arena_uses_a_freed_block_of_any_size(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, 300000, 5000001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        Arena *arena = arena_new();
        unsigned char *first = arena_alloc(arena, sizes[i]);
        memset(first, 0xA5, sizes[i]);
        arena_free(arena);
        arena = arena_new();
        unsigned char *again = arena_alloc(arena, sizes[i]);
        assert_ptr_equal(again, first);
        assert_zero(again, sizes[i]);
        arena_free(arena);
    }
}

static atomic_bool is_over;

static void *make_arenas(void *unused)
{
    while (!atomic_load(&is_over)) {
        Arena *arena = arena_new();
        (void)arena_alloc(arena, 100);
        arena_free(arena);
    }
    return unused;
}

/* A child that is forked while another thread allocates can allocate, too: no lock stays taken. */
static void a_child_forked_beside_threads_can_allocate(void **state)
{
    enum { FORKS = 300, LONGEST_S = 20 };
    (void)state;
    pthread_t thread[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, make_arenas, NULL), 0);
    for (int i = 0; i < FORKS; i++) {
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            alarm(LONGEST_S); /* ends a child that waits for ever */
            Arena *arena = arena_new();
            (void)arena_alloc(arena, 100);
            arena_free(arena);
            _exit(0);
        }
        int how;
        assert_int_equal(waitpid(pid, &how, 0), pid);
        assert_int_equal(how, 0);
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#if defined(__SANITIZE_ADDRESS__)
        /* must run first, while the pool of freed blocks is empty */
        cmocka_unit_test(a_freed_block_stays_poisoned),
#endif
        cmocka_unit_test(an_allocation_is_zeroed_and_aligned),
        cmocka_unit_test(allocations_do_not_overlap),
        cmocka_unit_test(a_reset_arena_hands_out_the_same_memory),
        cmocka_unit_test(many_large_blocks_do_not_overlap),
        cmocka_unit_test(an_arena_copies_and_formats_text),
        cmocka_unit_test(an_allocation_that_cannot_fit_calls_the_scope),
        cmocka_unit_test(unwinding_a_scope_frees_only_its_arenas),
        cmocka_unit_test(a_new_arena_hides_what_a_freed_one_held),
#if !defined(__SANITIZE_ADDRESS__)
        cmocka_unit_test(a_new_arena_uses_a_freed_block_of_any_size),
        cmocka_unit_test(a_child_forked_beside_threads_can_allocate),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
