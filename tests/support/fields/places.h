/* Finds where the fields of a plan stand in its text, for tests that change them one by one. */
#ifndef TANDEM_TESTS_PLACES_H
#define TANDEM_TESTS_PLACES_H

#include "planner/ir/text/private.h"

/* One field of one line of a text: where its value stands, and the line's end. */
typedef struct Place {
    TextRecordKind kind;
    uint32_t field;
    uint32_t sort;        /* sort of the record: its op, category or role */
    const char *at, *end; /* the value; empty: the field is not written */
    const char *line_end;
} Place;
typedef LIST(uint32_t) PlaceNumbers;
typedef struct Places {
    LIST(Place) all;
    PlaceNumbers of[RECORD_COUNT][MOST_FIELDS]; /* the places of each field */
} Places;
enum { PLACE_SORTS = OP_COUNT + 2 }; /* more than any Place.sort */

/* Finds all fields that the text could state, also those that it leaves out. `text` is the text of
 * the plan, without seals. */
Places *places_find(const Plan *plan, const char *text, Arena *arena);
/* Returns another value for the field. `draw` chooses between the value of the same field in
 * another line and a number that is larger by one. NULL: there is no other value. */
const char *places_other_value(const Places *all, const Place *p, uint64_t draw, Arena *arena);
/* Returns the text with another value. Returns NULL if the value would leave out a field that has a
 * fixed position, or a field that is left out already. */
const char *places_edit(const char *text, const Place *p, const char *value, Arena *arena);

#endif
