/* The allocator of a script's process keeps small freed pieces in lists. Pieces of other sizes must
 * be able to use their memory, and a piece that changes its size must keep its bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/resource.h>

#include "planner/front/child/child.h"

#if defined(__SANITIZE_ADDRESS__)
enum { KEEPS_FREED = 1 }; /* AddressSanitizer keeps freed memory, to find uses of it */
#else
enum { KEEPS_FREED = 0 };
#endif

static long resident_kib(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

/* A script uses pieces of one size, then of another. The freed memory of the first must serve the
 * second, because Lua's limit counts only the pieces in use. */
static void pieces_of_other_sizes_use_freed_memory(void **state)
{
    (void)state;
    enum { PHASE = 16 << 20, MOST_PIECES = PHASE / CHILD_POOL_STEP };
    static void *piece[MOST_PIECES];
    static ChildPool pool;
    memset(piece, 1, sizeof piece);
    const long before = resident_kib();
    for (size_t bytes = CHILD_POOL_STEP; bytes <= CHILD_MOST_POOLED; bytes += CHILD_POOL_STEP) {
        const size_t n = PHASE / bytes;
        for (size_t i = 0; i < n; i++) {
            piece[i] = child_resize(&pool, NULL, 0, bytes);
            assert_non_null(piece[i]);
            memset(piece[i], (int)i, bytes);
        }
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(*(unsigned char *)piece[i], (unsigned char)i);
            child_resize(&pool, piece[i], bytes, 0);
        }
    }
    /* The lists may keep 128 MiB, and a phase takes 16 MiB. */
    const long more = resident_kib() - before;
    if (!KEEPS_FREED && more > 192 << 10) fail_msg("the process takes %ld MiB more", more >> 10);
}

/* A piece that changes its size keeps its bytes, whether it comes from the lists or is too large
 * for them. */
static void pieces_keep_their_bytes(void **state)
{
    (void)state;
    static ChildPool pool;
    static const size_t sizes[] = {1, 16, 17, 512, 513, 4096, 100000, 600, 512, 33, 16, 1};
    unsigned char *at = NULL;
    size_t old = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t kept = old < sizes[i] ? old : sizes[i];
        at = child_resize(&pool, at, old, sizes[i]);
        assert_non_null(at);
        for (size_t k = 0; k < kept; k++) assert_int_equal(at[k], (unsigned char)k);
        for (size_t k = 0; k < sizes[i]; k++) at[k] = (unsigned char)k;
        old = sizes[i];
    }
    assert_null(child_resize(&pool, at, old, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_other_sizes_use_freed_memory),
        cmocka_unit_test(pieces_keep_their_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
