/* Collectives in several traces. The kernels of one collective start when their ranks are ready,
 * and all end at the same time. The rank that came last did not wait, so its time is the time of
 * the collective itself. */
#include <stdlib.h>
#include <string.h>

#include "cli/import/import.h"
#include "planner/base/str.h"

void meet_trace(ImportSink *sink, int64_t rank)
{
    list_push(sink->arena, &sink->ranks, rank);
}

void meet_add(ImportSink *sink, Collective kind, uint32_t n_ranks, uint64_t bytes,
              const char *group, double at, Ps duration)
{
    if (duration <= 0 || n_ranks < 2) return;
    if (sink->meetings.n == MOST_MEETINGS) {
        sink->dropped++;
        return;
    }
    uint32_t trace = sink->ranks.n;
    TracedCollective m = {
        .kind = kind, .n_ranks = n_ranks, .bytes = bytes, .trace = trace, .at = at};
    m.duration = duration;
    /* for send and receive, the same group may stand for other pairs of ranks each time */
    bool named = group != NULL && group[0] != 0 && kind != COLLECTIVE_sendrecv;
    m.group = named ? hash_bytes(group, strlen(group)).lo : 0;
    list_push(sink->arena, &sink->meetings, m);
}

static int compare(uint64_t x, uint64_t y)
{
    return (x > y) - (x < y);
}

/* Order of sorting: all records of one collective follow each other, trace after trace. */
static int by_group(const void *a, const void *b)
{
    const TracedCollective *x = a, *y = b;
    int order = compare(x->group, y->group);
    if (order == 0) order = compare(x->epoch, y->epoch);
    if (order == 0) order = compare((uint64_t)x->kind, (uint64_t)y->kind);
    if (order == 0) order = compare(x->n_ranks, y->n_ranks);
    if (order == 0) order = compare(x->bytes, y->bytes);
    if (order == 0) order = compare(x->trace, y->trace);
    return order != 0 ? order : (x->at > y->at) - (x->at < y->at);
}

static bool one_kind(const TracedCollective *x, const TracedCollective *y)
{
    return x->group == y->group && x->epoch == y->epoch && x->kind == y->kind &&
           x->n_ranks == y->n_ranks && x->bytes == y->bytes;
}

/* Returns the number of traces that contain the collective. Returns 0 if their numbers of
 * occurrences differ, because then occurrences of different traces cannot be matched. */
static uint32_t traces_of(const TracedCollective *m, uint32_t n)
{
    uint32_t n_traces = 1, each = 1;
    while (each < n && m[each].trace == m[0].trace) each++;
    if (n % each != 0) return 0;
    for (uint32_t i = each; i < n; i++) {
        bool begins = i % each == 0;
        if (begins == (m[i].trace == m[i - 1].trace)) return 0;
        n_traces += begins;
    }
    return n_traces;
}

static void meet(ImportSink *sink, const TracedCollective *m, uint32_t n, bool alone)
{
    uint32_t n_traces = m->group == 0 ? 1 : traces_of(m, n);
    if ((n_traces < 2) != alone) return;
    if (alone) {
        Samples wanted = {.kind = m->kind, .n_ranks = m->n_ranks, .bytes = m->bytes};
        if (sink_has(sink, &wanted)) return;
        wanted.alone = true;
        for (uint32_t i = 0; i < n; i++) sink_add(sink, &wanted, m[i].duration);
        sink->n_alone += n;
        return;
    }
    uint32_t each = n / n_traces;
    for (uint32_t i = 0; i < each; i++) {
        Ps shortest = m[i].duration;
        for (uint32_t k = i; k < n; k += each)
            if (m[k].duration < shortest) shortest = m[k].duration;
        sink_collective(sink, m->kind, m->n_ranks, m->bytes, shortest);
    }
    sink->n_met += each;
}

void meet_all(ImportSink *sink)
{
    TracedCollective *all = sink->meetings.at;
    const uint32_t n = sink->meetings.n;
    if (n == 0) return;
    for (uint32_t i = 0; i < n; i++) {
        int64_t rank = all[i].trace > 0 ? sink->ranks.at[all[i].trace - 1] : -1;
        if (rank < 0) all[i].group = 0;
        for (uint32_t k = 0; rank >= 0 && k + 1 < all[i].trace; k++)
            all[i].epoch += sink->ranks.at[k] == rank;
    }
    qsort(all, n, sizeof *all, by_group);
    for (int alone = 0; alone < 2; alone++)
        for (uint32_t from = 0, to; from < n; from = to) {
            for (to = from; to < n && one_kind(&all[from], &all[to]);) to++;
            meet(sink, &all[from], to - from, alone);
        }
}
