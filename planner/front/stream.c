/* Writes, sends and receives records; the meaning of records is not known here. stream.h describes
 * the format. */
#include "planner/front/stream.h"
#include "planner/base/clock.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEADER_BYTES = 8 };

void record_begin(StreamWriter *w, RecordKind kind)
{
    w->record = w->bytes.n;
    put_u32(w, (uint32_t)kind);
    put_u32(w, 0);
}

void put_u32(StreamWriter *w, uint32_t value)
{
    str_add_bytes(&w->bytes, &value, sizeof value);
}

void put_i64(StreamWriter *w, int64_t value)
{
    str_add_bytes(&w->bytes, &value, sizeof value);
}

void put_f64(StreamWriter *w, double value)
{
    str_add_bytes(&w->bytes, &value, sizeof value);
}

void put_text(StreamWriter *w, const char *text, size_t n)
{
    if (n > STREAM_MOST_TEXT) n = STREAM_MOST_TEXT;
    put_u32(w, (uint32_t)n);
    str_add_bytes(&w->bytes, text, n);
}

void record_end(StreamWriter *w)
{
    assert(w->bytes.n >= w->record + HEADER_BYTES);
    uint32_t length = (uint32_t)(w->bytes.n - w->record - HEADER_BYTES);
    memcpy(w->bytes.at + w->record + 4, &length, sizeof length);
}

bool writer_send(StreamWriter *w, int fd)
{
    size_t sent = 0;
    while (sent < w->bytes.n) {
        ssize_t n = send(fd, w->bytes.at + sent, w->bytes.n - sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        sent += (size_t)n;
    }
    w->bytes.n = 0;
    w->record = 0;
    return true;
}

static void take(Reader *r, void *to, size_t n)
{
    memset(to, 0, n);
    if (r->bad || r->n < n) {
        r->bad = true;
        return;
    }
    memcpy(to, r->at, n);
    r->at += n;
    r->n -= n;
}

uint32_t get_u32(Reader *r)
{
    uint32_t value;
    take(r, &value, sizeof value);
    return value;
}

int64_t get_i64(Reader *r)
{
    int64_t value;
    take(r, &value, sizeof value);
    return value;
}

double get_f64(Reader *r)
{
    double value;
    take(r, &value, sizeof value);
    return value;
}

const char *get_text(Reader *r, Arena *arena)
{
    uint32_t n = get_u32(r);
    if (r->bad || n > r->n || n > STREAM_MOST_TEXT || memchr(r->at, 0, n) != NULL) {
        r->bad = true;
        return "";
    }
    const char *text = arena_copy(arena, (const char *)r->at, n);
    r->at += n;
    r->n -= n;
    return text;
}

bool reader_finished(const Reader *r)
{
    return !r->bad && r->n == 0;
}

/* Receives more bytes into the channel's buffer. Returns STREAM_record if it did, otherwise the
 * reason why not. */
static StreamState receive(Channel *c, double deadline_s)
{
    if (c->used > 0) {
        memmove(c->at, c->at + c->used, c->n - c->used);
        c->n -= c->used;
        c->used = 0;
    }
    if (c->room - c->n < 65536) {
        size_t room = c->room * 2 + 131072;
        unsigned char *at = realloc(c->at, room);
        if (at == NULL) arena_full();
        c->at = at;
        c->room = room;
    }
    for (;;) {
        double left = deadline_s - clock_s();
        if (left <= 0) return STREAM_late;
        struct pollfd wait = {.fd = c->fd, .events = POLLIN};
        int ready = poll(&wait, 1, left > 60 ? 60000 : (int)(left * 1000) + 1);
        if (ready < 0 && errno != EINTR) c->error = errno;
        if (c->error != 0) return STREAM_damaged;
        if (ready <= 0) continue;
        ssize_t n = recv(c->fd, c->at + c->n, c->room - c->n, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno != ECONNRESET) c->error = errno;
        if (n <= 0) return c->error == 0 ? STREAM_end : STREAM_damaged;
        c->n += (size_t)n;
        c->total += (size_t)n;
        return c->total > STREAM_MOST_BYTES ? STREAM_damaged : STREAM_record;
    }
}

StreamState channel_next(Channel *c, double deadline_s, RecordKind *kind, Reader *payload)
{
    for (;;) {
        size_t held = c->n - c->used;
        if (held >= HEADER_BYTES) {
            uint32_t header[2];
            memcpy(header, c->at + c->used, sizeof header);
            if (header[0] == RECORD_none || header[0] >= RECORD_KIND_COUNT ||
                header[1] > STREAM_MOST_BYTES)
                return STREAM_damaged;
            if (held >= HEADER_BYTES + (size_t)header[1]) {
                *kind = (RecordKind)header[0];
                *payload = (Reader){c->at + c->used + HEADER_BYTES, header[1], false};
                c->used += HEADER_BYTES + (size_t)header[1];
                return STREAM_record;
            }
        }
        StreamState state = receive(c, deadline_s);
        if (state != STREAM_record) return state;
    }
}

void channel_free(Channel *c)
{
    free(c->at);
    *c = (Channel){.fd = -1, .error = c->error};
}
