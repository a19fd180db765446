/* Texts that live as long as a script that is held open. Equal texts are stored once. */
#ifndef TANDEM_FRONT_TEXTS_H
#define TANDEM_FRONT_TEXTS_H

#include "planner/base/list.h"

typedef struct KeptTexts {
    Arena *arena; /* owns the memory of the texts */
    LIST(const char *) all;
} KeptTexts;

/* Returns the only stored copy of a text. Returns NULL for NULL. */
const char *texts_keep(KeptTexts *texts, const char *text);

#endif
