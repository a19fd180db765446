/* Finds the longest common subsequence with the usual table of lengths. It compares lines first and
 * then, within a changed line, words. */
#include "tests/support/text/text_diff.h"

#include <string.h>

typedef struct Piece {
    const char *at;
    size_t n;
} Piece;

typedef struct Pieces {
    Piece *at;
    uint32_t n;
} Pieces;

/* Splits a text into lines (`end` is a newline) or words (`end` is a space). Repeated spaces make
 * no empty words. */
static Pieces split(const char *text, size_t n, char end, Arena *arena)
{
    uint32_t most = 1;
    for (size_t i = 0; i < n; i++) most += text[i] == end;
    Pieces p = {arena_array(arena, most, sizeof *p.at), 0};
    for (size_t i = 0; i < n;) {
        size_t length = 0;
        while (i + length < n && text[i + length] != end) length++;
        if (length > 0 || end == '\n') p.at[p.n++] = (Piece){text + i, length};
        i += length + 1;
    }
    return p;
}

static bool same(Piece a, Piece b)
{
    return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

/* lengths[i * (b->n + 1) + k] is the length of the longest common subsequence of a[i..] and
 * b[k..]. */
static uint32_t *table(const Pieces *a, const Pieces *b, Arena *arena)
{
    size_t width = (size_t)b->n + 1;
    uint32_t *t = arena_array(arena, (a->n + 1) * width, sizeof *t);
    for (uint32_t i = a->n; i-- > 0;)
        for (uint32_t k = b->n; k-- > 0;) {
            uint32_t down = t[(i + 1) * width + k], right = t[i * width + k + 1];
            t[i * width + k] = same(a->at[i], b->at[k]) ? 1 + t[(i + 1) * width + k + 1]
                               : down >= right          ? down
                                                        : right;
        }
    return t;
}

static void add(Str *out, const char *mark, Piece p)
{
    str_add(out, mark);
    str_add_bytes(out, p.at, p.n);
}

static void word_diff(const Pieces *a, const Pieces *b, Str *out)
{
    const uint32_t *t = table(a, b, out->arena);
    size_t width = (size_t)b->n + 1;
    uint32_t i = 0, k = 0;
    add(out, "~ ", a->at[0]);
    str_add(out, ":");
    while (i < a->n || k < b->n) {
        if (i < a->n && k < b->n && same(a->at[i], b->at[k])) {
            i++, k++;
        } else if (k == b->n || (i < a->n && t[(i + 1) * width + k] >= t[i * width + k + 1])) {
            add(out, " -", a->at[i++]);
        } else {
            add(out, " +", b->at[k++]);
        }
    }
    str_add(out, "\n");
}

/* Writes a run of deleted and new lines. A deleted and a new line with the same first word become
 * one change. */
static void hunk(const Piece *gone, uint32_t n_gone, const Piece *fresh, uint32_t n_fresh, Str *out)
{
    uint32_t k = 0;
    for (uint32_t i = 0; i < n_gone; i++) {
        const Pieces a = split(gone[i].at, gone[i].n, ' ', out->arena);
        uint32_t match = k;
        Pieces b = {NULL, 0};
        for (; a.n > 0 && match < n_fresh; match++) {
            b = split(fresh[match].at, fresh[match].n, ' ', out->arena);
            if (b.n > 0 && same(a.at[0], b.at[0])) break;
        }
        if (a.n == 0 || match == n_fresh) {
            add(out, "- ", gone[i]);
            str_add(out, "\n");
            continue;
        }
        for (; k < match; k++) {
            add(out, "+ ", fresh[k]);
            str_add(out, "\n");
        }
        word_diff(&a, &b, out);
        k++;
    }
    for (; k < n_fresh; k++) {
        add(out, "+ ", fresh[k]);
        str_add(out, "\n");
    }
}

void text_diff(const char *before, const char *after, Str *out)
{
    const Pieces a = split(before, strlen(before), '\n', out->arena);
    const Pieces b = split(after, strlen(after), '\n', out->arena);
    const uint32_t *t = table(&a, &b, out->arena);
    size_t width = (size_t)b.n + 1;
    uint32_t i = 0, k = 0;
    bool any = false;
    while (i < a.n || k < b.n) {
        uint32_t from = i, to = k;
        while ((i < a.n || k < b.n) && !(i < a.n && k < b.n && same(a.at[i], b.at[k]))) {
            if (k == b.n || (i < a.n && t[(i + 1) * width + k] >= t[i * width + k + 1]))
                i++;
            else
                k++;
        }
        if (i > from || k > to) {
            if (any) str_add(out, "@\n");
            hunk(a.at + from, i - from, b.at + to, k - to, out);
            any = true;
        }
        if (i < a.n && k < b.n) i++, k++;
    }
}
