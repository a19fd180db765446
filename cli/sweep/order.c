/* The order in which processes simulate the points of a sweep. Points that differ only in their
 * cluster or runtime often have the same plan. A process makes this plan only once if these points
 * follow each other (session/reuse.c). The order changes no result. */
#include <stdlib.h>
#include <string.h>

#include "cli/sweep/point.h"
#include "planner/front/keys/fields.h"

/* several pieces of work for each process, so that all processes end at about the same time */
enum { PIECES_OF_A_JOB = 4 };

/* A point, with its settings in two parts. Part [1] has the settings of the runtime. Part [0] has
 * all other settings except those of the cluster. Points are sorted by part [0], and among equal
 * ones by part [1]. */
enum { PARTS = 2 };
typedef struct GroupedPoint {
    Hash128 part[PARTS];
    uint32_t leader[PARTS]; /* leader[k]: index of the first point whose parts 0 to k are equal */
    uint32_t index;
} GroupedPoint;

static bool is_in(const char *setting, const char *table)
{
    return field_is_in(setting, strcspn(setting, "="), table, strlen(table));
}

/* Returns the part to which a setting belongs, or PARTS for a setting of the cluster, which belongs
 * to none. */
static uint32_t part_of(const char *setting)
{
    if (is_in(setting, "cluster") || is_in(setting, "gpu")) return PARTS;
    return is_in(setting, "runtime") ? 1 : 0;
}

static Hash128 hash_of_part(const TextList *settings, uint32_t part, Arena *arena)
{
    Str text = str_in(arena);
    for (uint32_t i = 0; i < settings->n; i++)
        if (part_of(settings->at[i]) == part) str_print(&text, "%s\n", settings->at[i]);
    return hash_bytes(str_text(&text), text.n);
}

static int by_parts(const void *a, const void *b)
{
    const GroupedPoint *x = a, *y = b;
    const int order = memcmp(x->part, y->part, sizeof x->part);
    if (order != 0) return order;
    return x->index < y->index ? -1 : 1;
}

static int by_leaders(const void *a, const void *b)
{
    const GroupedPoint *x = a, *y = b;
    for (uint32_t k = 0; k < PARTS; k++)
        if (x->leader[k] != y->leader[k]) return x->leader[k] < y->leader[k] ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* Sets leader[k] of all points. Points with equal parts must follow each other. */
static void find_leaders(GroupedPoint *place, uint32_t n, uint32_t k)
{
    const size_t bytes = (k + 1) * sizeof place->part[0];
    for (uint32_t i = 0, next; i < n; i = next) {
        uint32_t leader = place[i].index;
        for (next = i; next < n && memcmp(place[next].part, place[i].part, bytes) == 0; next++)
            if (place[next].index < leader) leader = place[next].index;
        for (uint32_t m = i; m < next; m++) place[m].leader[k] = leader;
    }
}

static GroupedPoint *places_of(const PointJob *job, Arena *arena)
{
    GroupedPoint *place = arena_array(arena, job->n + 1, sizeof *place);
    for (uint32_t i = 0; i < job->n; i++) {
        place[i].index = i;
        for (uint32_t k = 0; k < PARTS; k++)
            place[i].part[k] = hash_of_part(&job->settings[i], k, arena);
    }
    qsort(place, job->n, sizeof *place, by_parts);
    for (uint32_t k = 0; k < PARTS; k++) find_leaders(place, job->n, k);
    qsort(place, job->n, sizeof *place, by_leaders);
    return place;
}

void points_order(PointJob *job, uint32_t n_jobs)
{
    Arena *scratch = arena_new();
    const GroupedPoint *place = places_of(job, scratch);
    const uint32_t most = n_jobs > 1 ? job->n / (PIECES_OF_A_JOB * n_jobs) + 1 : job->n;
    job->n_order = job->n;
    job->n_pieces = 0;
    for (uint32_t i = 0, n = 0; i < job->n; i++) {
        const bool starts = i == 0 || place[i].leader[0] != place[i - 1].leader[0] || n == most;
        if (starts) job->piece[job->n_pieces++] = i;
        n = starts ? 1 : n + 1;
        job->order[i] = place[i].index;
    }
    job->piece[job->n_pieces] = job->n;
    arena_free(scratch);
}
