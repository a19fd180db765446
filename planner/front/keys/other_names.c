/* Finds Tandem's key for a name that another framework uses, such as "micro_batch_size". */
#include <ctype.h>
#include <string.h>

#include "planner/front/draft/draft.h"

#define ACCUMULATION                                                                               \
    "batch.global: a rank computes batch.global / (batch.micro x data ranks) micro-batches in a "  \
    "step"
#define DATA_RANKS                                                                                 \
    "mesh.dp_shard (parameters are divided over ranks) or mesh.dp_replicate (ranks hold equal "    \
    "copies)"

/* Removes `end` from the end of the text, if it is there. */
static void without(char *text, const char *end)
{
    const size_t n = strlen(text), own = strlen(end);
    if (n > own && strcmp(text + n - own, end) == 0) text[n - own] = 0;
}

const char *front_other_name(const char *key)
{
    static const char *const names[][2] = {
#define OTHER(name, meant) {name, meant},
#include "planner/front/keys/other_names.def"
    };
    char word[64];
    if (strlen(key) >= sizeof word) return NULL;
    for (size_t i = 0; i <= strlen(key); i++)
        word[i] = key[i] == '-' ? '_' : (char)tolower((unsigned char)key[i]);
    for (int whole = 1; whole >= 0; whole--) {
        if (!whole) {
            without(word, "_size");
            without(word, "_degree");
        }
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strcmp(word, names[i][0]) == 0) return names[i][1];
    }
    return NULL;
}
