/* Declarations for reading the values of a plan's text. Only parse.c and value.c include this. */
#ifndef TANDEM_IR_TEXT_VALUE_H
#define TANDEM_IR_TEXT_VALUE_H

#include "planner/ir/text/private.h"

/* One value: the characters between the `=` and the next space. */
typedef struct Token {
    const char *at, *end;
} Token;

typedef struct ValueReader {
    Plan *plan;
    Program *program; /* the program to which the current record belongs */
    Arena *arena;
    const char *problem; /* the reason why the last value was refused */
    /* the last location that was read; the next one shares its file name if it is equal */
    Loc last_loc;
} ValueReader;

/* Reads the value in `token` into the field of `record`. Returns false if it cannot, with the
 * reason in r->problem. */
bool text_read(ValueReader *r, const TextField *f, Token token, char *record);
/* Reads a number of at most `most`, and moves t->at past its digits. */
bool text_read_u64(Token *t, uint64_t most, uint64_t *out);
bool text_is(Token t, const char *word);

#endif
