/* Words for a scenario. The store has only its key: "unfolded, jitter J, rank R x F, experts x F by
 * rank #HASH" (session/predict.c). */
#include <stdlib.h>
#include <string.h>

#include "cli/predict.h"

/* If the text at *at begins with `word` and a number, moves *at behind the number and
 * returns true. */
static bool takes_number(const char **at, const char *word, double *number)
{
    const size_t n = strlen(word);
    char *end = NULL;
    if (strncmp(*at, word, n) != 0) return false;
    *number = strtod(*at + n, &end);
    if (end == *at + n) return false;
    *at = end;
    return true;
}

/* Returns the words for one part of a key. They are "" for a part that changes nothing. */
static const char *part_said(Arena *arena, const char *part, const char *counts)
{
    static const char by_rank[] = " by rank #";
    const char *at = part;
    double number, factor;
    if (takes_number(&at, "jitter ", &number) && *at == 0)
        return number > 0 ? arena_print(arena, "kernel times scatter with sigma %.5g", number) : "";
    if (takes_number(&at, "rank ", &number) && takes_number(&at, " x ", &factor) && *at == 0)
        return factor > 1 ? arena_print(arena, "rank %.0f takes %.5g times as long", number, factor)
                          : "";
    at = part;
    if (!takes_number(&at, "experts x ", &number)) return part;
    if (strncmp(at, by_rank, strlen(by_rank)) != 0)
        return *at == 0 ? arena_print(arena, "experts: busiest rank %.5g x the mean", number)
                        : part;
    return arena_print(arena, "experts: busiest rank %.5g x the mean, %s", number,
                       counts != NULL ? counts : "each rank's rows given");
}

const char *scenario_said(Arena *arena, const char *key, const char *counts)
{
    /* not printed beside jitter or a straggler, because these always need it */
    static const char all[] = "every rank simulated";
    Str s = str_in(arena);
    for (const char *at = key; *at != 0;) {
        const char *comma = strstr(at, ", ");
        const size_t n = comma != NULL ? (size_t)(comma - at) : strlen(at);
        const char *said = part_said(arena, arena_copy(arena, at, n), counts);
        if (strcmp(said, "unfolded") == 0) said = strstr(key, ", jitter ") ? "" : all;
        if (*said != 0) str_print(&s, "%s%s", s.n > 0 ? "; " : "", said);
        at += n + (comma != NULL ? 2 : 0);
    }
    return s.n > 0 ? str_text(&s) : all;
}
