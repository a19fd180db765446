/* Reading the values of a plan's text: numbers, words, lists. Only parse.c and value.c include
 * this. */
#ifndef TANDEM_IR_TEXT_VALUE_H
#define TANDEM_IR_TEXT_VALUE_H

#include "planner/ir/text/private.h"

/* One value: the characters between = and the next space. */
typedef struct Token {
    const char *at, *end;
} Token;

typedef struct ValueReader {
    Plan *plan;
    Program *program; /* the program being read */
    Arena *arena;
    const char *problem; /* why the last value was refused */
    Loc last_loc;        /* lets equal file names share one string */
} ValueReader;

/* Reads `token` into the field of `record`. On failure returns false with the reason in
 * r->problem. */
bool text_read(ValueReader *r, const TextField *f, Token token, char *record);
bool text_read_u64(Token *t, uint64_t most, uint64_t *out); /* moves t->at behind the digits */
bool text_is(Token t, const char *word);

#endif
