/* An arena is a pool of memory from which pieces are allocated one by one, and which is freed as a
 * whole. A single piece cannot be freed. An early return, or a longjmp out of the Lua interpreter,
 * therefore leaks nothing. If memory is exhausted, these functions do not return: see
 * arena_full. */
#ifndef TANDEM_BASE_ARENA_H
#define TANDEM_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Arena Arena;

Arena *arena_new(void);
void arena_free(Arena *arena); /* NULL is fine */
/* Invalidates all pieces that were allocated, but keeps the arena's memory for new ones. */
void arena_reset(Arena *arena);
/* Makes arena_free call release(self). It serves to close a file or end a process whose handle lies
 * in the arena. An arena has at most one such function. */
void arena_at_end(Arena *arena, void (*release)(void *self), void *self);

/* Returns a new piece of `bytes` zeroed bytes, aligned for any type. `bytes` may be 0. */
void *arena_alloc(Arena *arena, size_t bytes);
/* Returns a new zeroed array of n elements of `size` bytes. If n * size overflows, acts as if
 * memory were exhausted. */
void *arena_array(Arena *arena, size_t n, size_t size);
/* arena_copy copies the first `bytes` bytes of `text` and appends a 0 byte. arena_dup copies a
 * whole string. arena_print formats one, like sprintf. */
char *arena_copy(Arena *arena, const char *text, size_t bytes);
char *arena_dup(Arena *arena, const char *text);
char *arena_print(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* True if `address` points into memory that the arena has allocated to a caller. */
bool arena_has(const Arena *arena, const void *address);
/* bytes allocated to callers since arena_new or arena_reset */
size_t arena_bytes(const Arena *arena);

/* A scope catches the exhaustion of memory, for a caller that must go on, such as a library
 * function. arena_full calls `on_full`, which does a longjmp back to the caller. The caller then
 * calls arena_scope_unwind, which frees all arenas that were made since arena_scope_open. Scopes
 * nest; each belongs to one thread. */
typedef struct ArenaScope {
    struct ArenaScope *outer;
    Arena *newest; /* the newest arena that was made in this scope and not yet freed; NULL: none */
    void (*on_full)(void *self);
    void *self;
} ArenaScope;
void arena_scope_open(ArenaScope *scope, void (*on_full)(void *self), void *self);
/* Ends the scope after success. Its arenas stay alive, and belong to the outer scope. */
void arena_scope_close(ArenaScope *scope);
/* Ends the scope after a failure. Frees its arenas, the newest first. */
void arena_scope_unwind(ArenaScope *scope);

/* The arena functions call arena_full when an allocation fails. It calls `on_full` of the thread's
 * innermost scope, or, if no scope is open, the function that arena_on_full has set for the whole
 * process. That function must not return: it jumps or exits. If there is no such function either,
 * arena_full aborts. */
/* not _Noreturn, because C++ also reads this header */
__attribute__((noreturn)) void arena_full(void);
void arena_on_full(void (*on_full)(void *self), void *self);
/* Closes all scopes of this thread without freeing anything. A forked child calls it, because a
 * longjmp to its parent's code would be wrong there. */
void arena_forget_scopes(void);

#endif
