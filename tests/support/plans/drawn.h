/* Random plans, written as a user would write them: scripts over the library's models, their
 * choices, meshes, passes and options. A seed decides the plan. Each plan is legal. */
#ifndef TANDEM_TESTS_SUPPORT_DRAWN_H
#define TANDEM_TESTS_SUPPORT_DRAWN_H

#include <stdbool.h>
#include <stdint.h>

#include "planner/base/arena.h"
#include "planner/base/str.h"

enum { DRAWN_MOST_RANKS = 16 };

/* A drawn plan that is being made. */
typedef struct Drawn {
    uint64_t seed, stream, n;
    Arena *arena;
    Str passes;
} Drawn;

Drawn drawn_new(uint64_t seed, uint64_t index, Arena *arena);
/* Returns a number below n. */
uint32_t draw(Drawn *d, uint32_t n);
const char *draw_word(Drawn *d, uint32_t n, const char *const *words);
#define DRAW_WORD(d, ...)                                                                          \
    draw_word(d, sizeof(const char *const[]){__VA_ARGS__} / sizeof(const char *),                  \
              (const char *const[]){__VA_ARGS__})
/* Adds a pass to the plan's list of passes. */
void draw_pass(Drawn *d, const char *text);

/* Each function returns the script of a plan: for a model of tokens or images (drawn_tokens.c), or
 * for a model of fields (drawn_fields.c). drawn_write_experts writes a model with many experts and
 * few tokens to DRAWN_EXPERTS in the working directory, where plans find it. */
const char *drawn_tokens_plan(Drawn *d);
const char *drawn_fields_plan(Drawn *d);
#define DRAWN_EXPERTS "drawn_experts.lua"
void drawn_write_experts(void);

#endif
