/* Stores samples by key. The memory does not grow with the number of samples. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cli/import/import.h"
#include "planner/base/str.h"

enum { SLOTS = 2 * MOST_IMPORT_KEYS };

void sink_init(ImportSink *sink, Arena *arena)
{
    *sink = (ImportSink){.arena = arena};
    sink->table = arena_array(arena, SLOTS, sizeof *sink->table);
}

static bool is(const Samples *s, const Samples *wanted)
{
    if ((s->key == NULL) != (wanted->key == NULL)) return false;
    if (s->key != NULL) return strcmp(s->key, wanted->key) == 0;
    return s->kind == wanted->kind && s->n_ranks == wanted->n_ranks && s->bytes == wanted->bytes &&
           s->alone == wanted->alone;
}

static uint32_t slot_of(const Samples *s)
{
    uint64_t words[4] = {(uint64_t)s->kind, s->n_ranks, s->bytes, s->alone};
    Hash128 h =
        s->key != NULL ? hash_bytes(s->key, strlen(s->key)) : hash_bytes(words, sizeof words);
    return (uint32_t)h.lo & (SLOTS - 1);
}

static Samples *find(ImportSink *sink, const Samples *wanted)
{
    uint32_t at = slot_of(wanted);
    for (; sink->table[at] != 0; at = (at + 1) & (SLOTS - 1)) {
        Samples *s = sink->all.at[sink->table[at] - 1];
        if (is(s, wanted)) return s;
    }
    if (sink->all.n == MOST_IMPORT_KEYS) return NULL;
    Samples *s = arena_alloc(sink->arena, sizeof *s);
    *s = *wanted;
    if (s->key != NULL) s->key = arena_dup(sink->arena, s->key);
    list_push(sink->arena, &sink->all, s);
    sink->table[at] = sink->all.n;
    return s;
}

bool sink_has(const ImportSink *sink, const Samples *wanted)
{
    for (uint32_t at = slot_of(wanted); sink->table[at] != 0; at = (at + 1) & (SLOTS - 1))
        if (is(sink->all.at[sink->table[at] - 1], wanted)) return true;
    return false;
}

Samples *sink_key(ImportSink *sink, const char *key)
{
    return find(sink, &(Samples){.key = key});
}

/* Adds a sample. Once the reservoir is full, the n-th sample replaces a random earlier one with
 * probability MOST_SAMPLES / n. The random numbers depend only on n, so the same file always gives
 * the same median. */
void sink_sample(ImportSink *sink, Samples *s, Ps duration)
{
    if (s == NULL) {
        sink->dropped++;
        return;
    }
    if (s->n == 0 || duration < s->least) s->least = duration;
    if (duration > s->most) s->most = duration;
    uint64_t at = s->n++;
    if (at >= MOST_SAMPLES) {
        uint64_t x = (s->n ^ (s->n >> 27)) * UINT64_C(0x9e3779b97f4a7c15);
        at = (x ^ (x >> 31)) % s->n;
    }
    if (at < MOST_SAMPLES) s->kept[at] = duration;
}

void sink_add(ImportSink *sink, const Samples *wanted, Ps duration)
{
    sink_sample(sink, find(sink, wanted), duration);
}

void sink_kernel(ImportSink *sink, const char *key, Ps duration)
{
    if (duration > 0 && key[0] != 0) sink_add(sink, &(Samples){.key = key}, duration);
}

void sink_collective(ImportSink *sink, Collective kind, uint32_t n_ranks, uint64_t bytes,
                     Ps duration)
{
    if (duration <= 0 || n_ranks < 2) return;
    sink_add(sink, &(Samples){.kind = kind, .n_ranks = n_ranks, .bytes = bytes}, duration);
}

static int by_time(const void *a, const void *b)
{
    Ps x = *(const Ps *)a, y = *(const Ps *)b;
    return (x > y) - (x < y);
}

static uint32_t sorted_of(const Samples *s, Ps sorted[MOST_SAMPLES])
{
    assert(s->n > 0);
    size_t n = s->n < MOST_SAMPLES ? (size_t)s->n : MOST_SAMPLES;
    memcpy(sorted, s->kept, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_time);
    return (uint32_t)n;
}

Ps samples_median(const Samples *s)
{
    Ps sorted[MOST_SAMPLES];
    uint32_t n = sorted_of(s, sorted);
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* Returns the median of the samples without waits. If all n_ranks ranks are equally fast, each
 * comes last in one of n_ranks cases, and then does not wait. So, if the times come from only one
 * rank, the shortest 1 / n_ranks of them count as times without a wait. */
Ps samples_time(const Samples *s)
{
    if (!s->alone) return samples_median(s);
    Ps sorted[MOST_SAMPLES];
    uint32_t n = sorted_of(s, sorted);
    return sorted[n / (2 * s->n_ranks)];
}

double samples_spread(const Samples *s)
{
    return (double)(s->most - s->least) / (double)samples_median(s);
}
