/* Data sources of tokens: the bytes of a text file, or random tokens. A sample depends only on its
 * global index, so it is the same for every way of splitting the batch. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "exec/data/data_field.h"
#include "planner/base/rng.h"

enum {
    STREAM_OFFSET = 1,
    STREAM_TOKENS = 2,
    STREAM_LABELS = 3,
    STREAM_IGNORED = 4,
    STREAM_LENGTH = 5
};

/* Returns the id of the stream of random numbers for one use, step and micro-batch. */
static uint64_t stream_of(uint64_t use, int64_t step, uint32_t microbatch)
{
    assert(microbatch < 1u << 24);
    return use << 60 ^ (uint64_t)step << 24 ^ microbatch;
}

typedef struct Bytes {
    const unsigned char *text;
    uint64_t n, seed;
} Bytes;

static void fill_bytes(void *self, int64_t step, uint32_t microbatch, int64_t first_sample,
                       int64_t n_samples, int64_t seq, int32_t *tokens, int32_t *labels)
{
    const Bytes *b = self;
    uint64_t stream = stream_of(STREAM_OFFSET, step, microbatch);
    for (int64_t i = 0; i < n_samples; i++) {
        uint64_t at = rng_below(b->seed, stream, (uint64_t)(first_sample + i), b->n);
        for (int64_t s = 0; s < seq; s++) {
            tokens[i * seq + s] = b->text[at];
            at = at + 1 < b->n ? at + 1 : 0;
            labels[i * seq + s] = b->text[at];
        }
    }
}

/* Returns the bytes of a file. Returns NULL and sets errno if the file cannot be read. */
static unsigned char *read_file(const char *path, Arena *arena, uint64_t *n)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) return NULL;
    LIST(unsigned char) text = {0};
    unsigned char block[65536];
    size_t got;
    while ((got = fread(block, 1, sizeof block, f)) > 0) {
        text.at = list_grow(arena, text.at, text.n, &text.room, (uint32_t)got, 1);
        memcpy(text.at + text.n, block, got);
        text.n += (uint32_t)got;
        if (text.n > UINT32_MAX / 4) break;
    }
    int error = ferror(f) ? errno : 0;
    if (text.n > UINT32_MAX / 4) error = EFBIG;
    fclose(f);
    errno = error;
    *n = text.n;
    return error ? NULL : text.at;
}

DataSource *data_bytes(const char *path, uint64_t seed, Arena *arena, Diag *d)
{
    Loc none = {NULL, 0};
    Bytes *b = arena_alloc(arena, sizeof *b);
    b->seed = seed;
    errno = 0;
    b->text = read_file(path, arena, &b->n);
    if (b->text == NULL && errno) {
        diag_error(d, FAULT_input, "data-file", none, "cannot read %s: %s", path, strerror(errno));
        return NULL;
    }
    if (b->n < 2) {
        diag_error(d, FAULT_input, "data-file", none,
                   "%s has %llu bytes, but a sample needs at least two", path,
                   (unsigned long long)b->n);
        return NULL;
    }
    DataSource *source = arena_alloc(arena, sizeof *source);
    *source = (DataSource){.self = b, .fill = fill_bytes};
    return source;
}

typedef struct Synthetic {
    uint64_t seed, vocab;
    double ignored;
} Synthetic;

static void fill_synthetic(void *self, int64_t step, uint32_t microbatch, int64_t first_sample,
                           int64_t n_samples, int64_t seq, int32_t *tokens, int32_t *labels)
{
    const Synthetic *y = self;
    uint64_t of_tokens = stream_of(STREAM_TOKENS, step, microbatch);
    uint64_t of_labels = stream_of(STREAM_LABELS, step, microbatch);
    uint64_t of_ignored = stream_of(STREAM_IGNORED, step, microbatch);
    for (int64_t i = 0; i < n_samples * seq; i++) {
        uint64_t at = (uint64_t)(first_sample * seq + i);
        bool ignored = rng_uniform(y->seed, of_ignored, at) < y->ignored;
        tokens[i] = (int32_t)rng_below(y->seed, of_tokens, at, y->vocab);
        labels[i] = ignored ? -1 : (int32_t)rng_below(y->seed, of_labels, at, y->vocab);
    }
}

static void wave(void *self, const FieldLine *line, double *values)
{
    data_wave_line(((const Synthetic *)self)->seed, line, values);
}

static void noise(void *self, const FieldLine *line, double *values)
{
    data_noise_line(((const Synthetic *)self)->seed, line, values);
}

DataSource *data_synthetic(uint64_t seed, int64_t vocab, double ignored_fraction, Arena *arena)
{
    assert(vocab >= 0 && vocab <= INT32_MAX);
    assert(ignored_fraction >= 0 && ignored_fraction <= 1);
    Synthetic *y = arena_alloc(arena, sizeof *y);
    *y = (Synthetic){seed, vocab > 0 ? (uint64_t)vocab : 1, ignored_fraction};
    DataSource *source = arena_alloc(arena, sizeof *source);
    *source = (DataSource){.self = y, .fill = fill_synthetic, .line = wave};
    return source;
}

/* Returns true if the label of token s of a sample counts. Each sequence ends at a random token.
 * Every fourth pair of sequences and every fourth micro-batch has no labels. The first pair of the
 * first two micro-batches always has labels, because a step without labels has no gradient. These
 * two micro-batches never have the same number of labels. */
static bool is_kept(const Synthetic *y, int64_t step, uint32_t microbatch, int64_t sample,
                    int64_t s, int64_t seq)
{
    bool first = microbatch < 2;
    uint64_t of_step = stream_of(STREAM_LENGTH, step, (1u << 24) - 1);
    uint64_t of_sample = stream_of(STREAM_LENGTH, step, first ? 0 : microbatch);
    uint64_t of_ignored = stream_of(STREAM_IGNORED, step, first ? 0 : microbatch);
    uint64_t pair = (uint64_t)sample / 2, at = (uint64_t)sample, half = (uint64_t)seq / 2;
    if (!first && rng_below(y->seed, of_step, microbatch, 4) == 0) return false;
    bool all = first && pair == 0;
    if (!all && rng_below(y->seed, of_sample, UINT64_MAX - pair, 4) == 0) return false;
    bool needed = first && (s == 0 || (uint64_t)s == half);
    if (!needed && rng_uniform(y->seed, of_ignored, (uint64_t)(sample * seq + s)) < y->ignored)
        return false;
    if (!first) return (uint64_t)s < rng_below(y->seed, of_sample, at, (uint64_t)seq + 1);
    uint64_t length = microbatch == 0
                          ? half + 1 + rng_below(y->seed, of_sample, at, (uint64_t)seq - half)
                          : 1 + rng_below(y->seed, of_sample, at, half > 1 ? half : 1);
    return (uint64_t)s < length;
}

static void fill_ragged(void *self, int64_t step, uint32_t microbatch, int64_t first_sample,
                        int64_t n_samples, int64_t seq, int32_t *tokens, int32_t *labels)
{
    Synthetic all = *(const Synthetic *)self;
    all.ignored = 0;
    fill_synthetic(&all, step, microbatch, first_sample, n_samples, seq, tokens, labels);
    for (int64_t i = 0; i < n_samples; i++)
        for (int64_t s = 0; s < seq; s++)
            if (!is_kept(self, step, microbatch, first_sample + i, s, seq))
                labels[i * seq + s] = -1;
}

DataSource *data_ragged(uint64_t seed, int64_t vocab, Arena *arena)
{
    DataSource *source = data_synthetic(seed, vocab, 0.1, arena);
    source->fill = fill_ragged;
    source->line = noise;
    return source;
}
