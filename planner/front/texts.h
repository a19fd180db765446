/* Texts that outlive a load of a script that is held open. Each text is kept once. */
#ifndef TANDEM_FRONT_TEXTS_H
#define TANDEM_FRONT_TEXTS_H

#include "planner/base/list.h"

typedef struct KeptTexts {
    Arena *arena; /* of the texts */
    LIST(const char *) all;
} KeptTexts;

/* Returns the only copy of a text. NULL gives NULL. */
const char *texts_keep(KeptTexts *texts, const char *text);

#endif
