/* Memory comes from arenas: a program allocates piece by piece and releases everything at once.
 * There is no free for a single block, so an early return, or a longjmp out of the Lua interpreter,
 * leaks nothing. Out of memory calls the arena's `on_full` (which must not return); without one it
 * aborts. */
#ifndef TANDEM_BASE_ARENA_H
#define TANDEM_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

typedef struct Arena Arena;

Arena *arena_new(void);
void arena_free(Arena *arena); /* NULL is fine */
/* Keeps the memory for the next user; everything handed out before is invalid. */
void arena_reset(Arena *arena);
void arena_on_full(Arena *arena, void (*on_full)(void *self), void *self);

/* Zeroed, aligned for any type. `bytes` may be 0. */
void *arena_alloc(Arena *arena, size_t bytes);
/* Allocates n * size bytes and checks the product for overflow. */
void *arena_array(Arena *arena, size_t n, size_t size);
/* Copies `bytes` bytes of `text` and adds the final 0. */
char *arena_copy(Arena *arena, const char *text, size_t bytes);
char *arena_dup(Arena *arena, const char *text);
char *arena_print(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
size_t arena_bytes(const Arena *arena); /* bytes handed out since the arena was made or reset */

#endif
