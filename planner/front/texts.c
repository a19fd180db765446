#include "planner/front/texts.h"

#include <string.h>

const char *texts_keep(KeptTexts *texts, const char *text)
{
    if (text == NULL) return NULL;
    for (uint32_t i = texts->all.n; i > 0; i--) {
        const char *known = texts->all.at[i - 1];
        if (known == text || strcmp(known, text) == 0) return known;
    }
    const char *own = arena_dup(texts->arena, text);
    list_push(texts->arena, &texts->all, own);
    return own;
}
