/* Finds where the fields of a plan stand in its text, for tests that change these fields one by
 * one. */
#ifndef TANDEM_TESTS_PLACES_H
#define TANDEM_TESTS_PLACES_H

#include "planner/ir/text/private.h"

/* One field of one line of a text: where its value stands, and where the line ends. */
typedef struct Place {
    TextRecordKind kind;
    uint32_t field;
    uint32_t sort;        /* what the record describes: its op, category or role */
    const char *at, *end; /* the value; empty if the text leaves out the field */
    const char *line_end;
} Place;
typedef LIST(uint32_t) PlaceNumbers;
typedef struct Places {
    LIST(Place) all;
    PlaceNumbers of[RECORD_COUNT][MOST_FIELDS]; /* for each field, the numbers of its places */
} Places;
enum { PLACE_SORTS = OP_COUNT + 2 }; /* This is more than any Place.sort. */

/* Finds all fields that the text could state, including those that it leaves out. `text` is the
 * text of the plan, without seals. */
Places *places_find(const Plan *plan, const char *text, Arena *arena);
/* Returns another value for the field, or NULL if there is none. `draw` chooses between the same
 * field's value in another line and a number that is larger by one. */
const char *places_other_value(const Places *all, const Place *p, uint64_t draw, Arena *arena);
/* Returns the text with this value instead of the field's old one. Returns NULL if the value would
 * leave out a field that has a fixed position, or one that is left out already. */
const char *places_edit(const char *text, const Place *p, const char *value, Arena *arena);

#endif
