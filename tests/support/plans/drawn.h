/* Plans as a user writes them, drawn by seed: scripts over the library's models, their choices,
 * meshes, passes and options. Each of them is legal. */
#ifndef TANDEM_TESTS_SUPPORT_DRAWN_H
#define TANDEM_TESTS_SUPPORT_DRAWN_H

#include <stdbool.h>
#include <stdint.h>

#include "planner/base/arena.h"
#include "planner/base/str.h"

enum { DRAWN_MOST_RANKS = 16 };

/* One drawn plan in the making. */
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
/* Adds a pass to those that the plan lists. */
void draw_pass(Drawn *d, const char *text);

/* Returns the script of a plan for a model of tokens or images (drawn_tokens.c), or of fields
 * (drawn_fields.c). Writes the model that has many experts and few tokens to DRAWN_EXPERTS in the
 * working directory, where plans find it. */
const char *drawn_tokens_plan(Drawn *d);
const char *drawn_fields_plan(Drawn *d);
#define DRAWN_EXPERTS "drawn_experts.lua"
void drawn_write_experts(void);

#endif
