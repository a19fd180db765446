/* A set of strings that live as long as a held script, a script whose process answers many
 * requests. So equal strings of several requests have equal addresses. */
#ifndef TANDEM_FRONT_TEXTS_H
#define TANDEM_FRONT_TEXTS_H

#include "planner/base/list.h"

typedef struct KeptTexts {
    Arena *arena; /* memory of the strings */
    LIST(const char *) all;
} KeptTexts;

/* Returns the set's copy of `text`; adds it if it is new. Returns NULL for NULL. */
const char *texts_keep(KeptTexts *texts, const char *text);

#endif
