/* Plain data between the process that evaluates a script and its parent. A record consists of its
 * kind, the length of its payload and the payload: integers, doubles and counted texts. The reader
 * trusts nothing. It checks every length; a payload that is too short or too long sets `bad`. */
#ifndef TANDEM_FRONT_STREAM_H
#define TANDEM_FRONT_STREAM_H

#include "planner/base/str.h"

typedef enum RecordKind {
    RECORD_none,
    RECORD_file,   /* text name; files are numbered from 1 in this order */
    RECORD_table,  /* text path, location; a table of the plan */
    RECORD_bool,   /* text path, location, u32 value */
    RECORD_int,    /* text path, location, i64 */
    RECORD_number, /* text path, location, f64 */
    RECORD_text,   /* text path, location, text */
    RECORD_other,  /* text path, location, text; a Lua type that carries no data */
    /* location, u32 n, then n times u32 kind, stage, micro-batch; the list of one pipeline rank */
    RECORD_actions,
    /* u32: 1 if the model can shrink; u32: 1 if its trace may serve other settings. The child waits
     * for an Answer, then sends the model */
    RECORD_ask,
    RECORD_name,   /* text: the model's name */
    RECORD_seq,    /* i64: the tokens of a sequence that a shrunk model asks for */
    RECORD_field,  /* 4 i64: the channels, targets, height and width that a shrunk model asks for */
    RECORD_module, /* text path, text class, u32 parent, is_block, fsdp2_shard, layer, location */
    RECORD_param,  /* see trace_param */
    RECORD_state,  /* u32 id, text name, u32 module, location, dims, order: see core_state */
    RECORD_op,     /* see trace_op */
    RECORD_loss,   /* u32 tensor */
    RECORD_error,  /* u32 is_warning, text rule, location of the user, location of the library, text
                      text,  text hint */
    RECORD_source, /* text name, u32 shipped, i64 and i64 hash: a file that was read */
    RECORD_done,   /* u32 lines of source read */
    RECORD_ended,  /* u32 status: the end of one request to a script that is held open */
    RECORD_KIND_COUNT
} RecordKind;

enum { FRONT_MOST_SEGMENTS = 64 }; /* segments of a fused projection */
enum { STREAM_MOST_BYTES = 256 << 20, STREAM_MOST_TEXT = 64 << 10 };

typedef struct StreamWriter {
    Str bytes;
    size_t record; /* where the open record begins */
} StreamWriter;

void record_begin(StreamWriter *w, RecordKind kind);
void put_u32(StreamWriter *w, uint32_t value);
void put_i64(StreamWriter *w, int64_t value);
void put_f64(StreamWriter *w, double value);
void put_text(StreamWriter *w, const char *text, size_t n);
void record_end(StreamWriter *w);
/* Sends all records; false if the other end is gone. */
bool writer_send(StreamWriter *w, int fd);

typedef struct Reader { /* reads one record's payload */
    const unsigned char *at;
    size_t n;
    bool bad;
} Reader;

uint32_t get_u32(Reader *r);
int64_t get_i64(Reader *r);
double get_f64(Reader *r);
const char *get_text(Reader *r, Arena *arena); /* "" when bad; contains no 0 byte */
bool reader_finished(const Reader *r);         /* true if everything was read and nothing was bad */

typedef enum StreamState { STREAM_record, STREAM_end, STREAM_late, STREAM_damaged } StreamState;

typedef struct Channel {
    int fd;
    unsigned char *at;
    size_t n, room, used, total; /* bytes held; held bytes that are consumed; bytes ever received */
    int error;                   /* errno of a call that failed; 0: no call failed */
} Channel;

/* Waits for the next record, at most until `deadline_s` on the monotonic clock. */
StreamState channel_next(Channel *c, double deadline_s, RecordKind *kind, Reader *payload);
void channel_free(Channel *c);

#endif
