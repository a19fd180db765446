/* Arenas: memory that is allocated piece by piece and released all at once. A single allocation
 * cannot be freed. An early return, or a longjmp out of the Lua interpreter, therefore leaks
 * nothing. If memory is exhausted, these functions do not return: see arena_full. */
#ifndef TANDEM_BASE_ARENA_H
#define TANDEM_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Arena Arena;

Arena *arena_new(void);
void arena_free(Arena *arena); /* NULL is fine */
/* Releases everything that was handed out, and keeps the blocks for the next allocations. */
void arena_reset(Arena *arena);
/* Calls release(self) when the arena is freed. An arena has at most one such function. It releases
 * a resource other than memory, such as an open file or a process. */
void arena_at_end(Arena *arena, void (*release)(void *self), void *self);

/* Returns `bytes` zeroed bytes, aligned for any type. `bytes` may be 0. */
void *arena_alloc(Arena *arena, size_t bytes);
/* Allocates n * size bytes and checks the product for overflow. */
void *arena_array(Arena *arena, size_t n, size_t size);
/* Copies `bytes` bytes of `text` and appends a 0 byte. */
char *arena_copy(Arena *arena, const char *text, size_t bytes);
char *arena_dup(Arena *arena, const char *text);
char *arena_print(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* True if the address lies in memory that the arena has handed out. */
bool arena_has(const Arena *arena, const void *address);
size_t arena_bytes(const Arena *arena); /* bytes handed out since the arena was made or reset */

/* A caller that must continue after memory is exhausted opens a scope. Its function `on_full` does
 * a longjmp to the caller, which then unwinds the scope. A scope belongs to one thread. */
typedef struct ArenaScope {
    struct ArenaScope *outer;
    Arena *newest; /* the newest arena that was made in the scope and is not freed; NULL: none */
    void (*on_full)(void *self);
    void *self;
} ArenaScope;
void arena_scope_open(ArenaScope *scope, void (*on_full)(void *self), void *self);
void arena_scope_close(ArenaScope *scope);  /* closes the scope; its arenas stay and belong to the
                                             * outer scope */
void arena_scope_unwind(ArenaScope *scope); /* closes the scope and frees its arenas, the newest
                                             * first */

/* Never returns; arena functions call it when an allocation fails. Calls the `on_full` of this
 * thread's innermost scope. Without a scope, calls the function that arena_on_full has set for the
 * process. Neither function may return. Without both, aborts. */
__attribute__((noreturn)) void arena_full(void); /* C++ reads this header, too */
void arena_on_full(void (*on_full)(void *self), void *self);
/* Forgets all scopes. A forked child calls it, because it cannot return to its parent's scopes. */
void arena_forget_scopes(void);

#endif
