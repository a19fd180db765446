/* The records that two processes exchange: the child, which evaluates a script, and its parent. A
 * record consists of its kind, the length of its payload, and the payload: integers, doubles, and
 * texts with their length. The reader trusts no length. If a payload is too short or too long, the
 * reader sets `bad`. */
#ifndef TANDEM_FRONT_STREAM_H
#define TANDEM_FRONT_STREAM_H

#include "planner/base/str.h"

typedef enum RecordKind {
    RECORD_none,
    /* a file's name; the files have the numbers 1, 2, ... in the order of these records */
    RECORD_file,
    RECORD_table,  /* text path, location: the plan has a table at this path */
    RECORD_bool,   /* text path, location, u32 value */
    RECORD_int,    /* text path, location, i64 */
    RECORD_number, /* text path, location, f64 */
    RECORD_text,   /* text path, location, text */
    RECORD_other,  /* text path, location, text: the value has this Lua type, which holds no data */
    /* the actions of one pipeline rank: location, u32 n, then n times u32 kind,
     * stage, micro-batch */
    RECORD_actions,
    /* u32: 1 if the model can shrink; u32: 1 if its trace may serve other settings. The child then
     * waits for an Answer, and sends the model after it */
    RECORD_ask,
    RECORD_name,   /* text: the name of the model */
    RECORD_seq,    /* i64: the sequence length that a shrunk model chose */
    RECORD_field,  /* 4 i64: the channels, targets, height and width that a shrunk model chose */
    RECORD_module, /* text path, text class, u32 parent, is_block, fsdp2_shard, layer, location */
    RECORD_param,  /* a parameter; tracer functions in child_trace.c write its fields */
    RECORD_state,  /* u32 id, text name, u32 module, location, dims, order: see core_state */
    RECORD_op,     /* an op and its inputs; see tracer_put_op */
    RECORD_loss,   /* u32: the tensor that is the loss */
    /* u32 is_warning, text rule, location in the user's script, location in the library, text
     * message, text hint */
    RECORD_error,
    /* a file that was read: text name, u32 shipped, two i64 with the hash of its content */
    RECORD_source,
    RECORD_done,  /* u32: number of source lines that were read */
    RECORD_ended, /* u32 status: a script that is held open has answered a request */
    RECORD_KIND_COUNT
} RecordKind;

enum { FRONT_MOST_SEGMENTS = 64 }; /* the most segments that a fused projection may have */
enum { STREAM_MOST_BYTES = 256 << 20, STREAM_MOST_TEXT = 64 << 10 };

typedef struct StreamWriter {
    Str bytes;
    size_t record; /* offset at which the record that is being written begins */
} StreamWriter;

void record_begin(StreamWriter *w, RecordKind kind);
void put_u32(StreamWriter *w, uint32_t value);
void put_i64(StreamWriter *w, int64_t value);
void put_f64(StreamWriter *w, double value);
void put_text(StreamWriter *w, const char *text, size_t n);
void record_end(StreamWriter *w);
/* Sends all records. Returns false if the other process has closed the pipe. */
bool writer_send(StreamWriter *w, int fd);

typedef struct Reader { /* Reads the payload of one record. */
    const unsigned char *at;
    size_t n;
    bool bad;
} Reader;

uint32_t get_u32(Reader *r);
int64_t get_i64(Reader *r);
double get_f64(Reader *r);
/* Returns "" if the reader is bad; the text never contains a 0 byte. */
const char *get_text(Reader *r, Arena *arena);
/* True if the whole payload was read and the reader is not bad. */
bool reader_finished(const Reader *r);

/* end: the other process has closed the pipe, perhaps inside a record. damaged: the bytes are no
 * record, or a system call failed and `error` says why. */
typedef enum StreamState { STREAM_record, STREAM_end, STREAM_late, STREAM_damaged } StreamState;

typedef struct Channel {
    int fd;
    unsigned char *at;
    /* bytes in the buffer; its size; bytes of it that were read; all bytes ever received */
    size_t n, room, used, total;
    int error; /* errno of the system call that failed; 0: none failed */
} Channel;

/* Waits for the next record until `deadline_s` on the monotonic clock [seconds]. */
StreamState channel_next(Channel *c, double deadline_s, RecordKind *kind, Reader *payload);
void channel_free(Channel *c);

#endif
