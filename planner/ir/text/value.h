/* Parses the values in a plan's text. Only parse.c and value.c include this header. */
#ifndef TANDEM_IR_TEXT_VALUE_H
#define TANDEM_IR_TEXT_VALUE_H

#include "planner/ir/text/private.h"

/* The text of one value: the characters between "=" and the next space. */
typedef struct Token {
    const char *at, *end;
} Token;

typedef struct ValueReader {
    Plan *plan;
    Program *program; /* the program that is being parsed, if the record belongs to one */
    Arena *arena;
    const char *problem; /* why the last value was refused */
    /* the location that was parsed last; the next one reuses its copy of the file name */
    Loc last_loc;
} ValueReader;

/* Parses `token` into field `f` of the struct `record`. If that is impossible, returns false and
 * sets r->problem. */
bool text_read(ValueReader *r, const TextField *f, Token token, char *record);
/* Parses an integer of at most `most`, and moves t->at behind its digits. */
bool text_read_u64(Token *t, uint64_t most, uint64_t *out);
bool text_is(Token t, const char *word);

#endif
