/* The protocol between the child, which evaluates a script, and its parent: a stream of records. A
 * record is its kind (u32), the length of its payload (u32), and the payload: integers, doubles,
 * and texts (u32 length, bytes). The parent does not trust the child: a Reader that meets a wrong
 * length or runs out of bytes sets `bad` and returns zeros.
 *
 * A script sends its files and values, then RECORD_ask, then receives an Answer (child/child.h),
 * then sends the records of its model, then RECORD_done. "Location" below: u32 file
 * index, u32 line. "Path": the position of a value in the plan, such as "batch.micro". */
#ifndef TANDEM_FRONT_STREAM_H
#define TANDEM_FRONT_STREAM_H

#include "planner/base/str.h"

typedef enum RecordKind {
    RECORD_none,
    /* text: a file's name. The file index in locations counts these records from 1 */
    RECORD_file,
    RECORD_table,  /* text path, location: the plan has a table at this path, such as "batch" */
    RECORD_bool,   /* text path, location, u32 value */
    RECORD_int,    /* text path, location, i64 */
    RECORD_number, /* text path, location, f64 */
    RECORD_text,   /* text path, location, text */
    /* text path, location, text: a value of this Lua type, such as "function", which no key accepts
     */
    RECORD_other,
    /* the actions of the next pipeline rank in the plan's own schedule: location, u32 n, then n
     * times (u32 kind, u32 stage, u32 micro-batch) */
    RECORD_actions,
    /* u32: 1 if the model has a function `shrink`; u32: 1 if other settings may share its trace
     * (Child.shares); u32: experts in each layer, 0: unknown. The child then waits for an Answer */
    RECORD_ask,
    RECORD_name,   /* text: the name of the model */
    RECORD_seq,    /* i64: the sequence length that the model's function `shrink` chose */
    RECORD_field,  /* 4 i64: the channels, targets, height and width that `shrink` chose */
    RECORD_module, /* text path, text class, u32 parent, is_block, fsdp2_shard, layer, location */
    RECORD_param,  /* a parameter; core_param in child_trace.c writes its fields */
    /* a tensor that lives between steps: u32 id, text name, u32 module, location, dims, segments
     * (core_state) */
    RECORD_state,
    RECORD_op,   /* a node: its op, outputs, inputs and attributes; see tracer_put_op */
    RECORD_loss, /* u32: id of the tensor that is the loss */
    /* u32 Severity, text rule, location in the user's script, location in the library, text
     * message, text hint ("": none) */
    RECORD_error,
    /* a file on which the plan depends: text name, u32 shipped, two i64 with the hash of its
     * content (0: the file is absent) */
    RECORD_source,
    RECORD_done, /* u32: number of source lines that were read. The last record of an evaluation */
    /* only from a script whose process answers many requests (held.c), after RECORD_done: u32
     * waitpid status of the fork that answered the request */
    RECORD_ended,
    RECORD_KIND_COUNT
} RecordKind;

/* the most segments in a fused projection, such as q, k and v in one weight */
enum { FRONT_MOST_SEGMENTS = 64 };
enum { STREAM_MOST_BYTES = 256 << 20, STREAM_MOST_TEXT = 64 << 10 };

typedef struct StreamWriter {
    Str bytes;
    size_t record; /* offset in `bytes` at which the unfinished record begins */
} StreamWriter;

void record_begin(StreamWriter *w, RecordKind kind);
void put_u32(StreamWriter *w, uint32_t value);
void put_i64(StreamWriter *w, int64_t value);
void put_f64(StreamWriter *w, double value);
void put_text(StreamWriter *w, const char *text, size_t n);
void record_end(StreamWriter *w);
/* Sends all records in `w` and empties it. Returns false and sets errno if that fails, for example
 * if the other process has closed the socket. */
bool writer_send(StreamWriter *w, int fd);

typedef struct Reader { /* Reads the payload of one record from `at` [n bytes]. */
    const unsigned char *at;
    size_t n;
    bool bad;
} Reader;

uint32_t get_u32(Reader *r);
int64_t get_i64(Reader *r);
double get_f64(Reader *r);
/* Returns a copy of the next text in `arena`; it contains no 0 byte. Returns "" and sets `bad` if
 * the payload has no such text here. */
const char *get_text(Reader *r, Arena *arena);
/* True if the payload was read to its end and `bad` is not set. */
bool reader_finished(const Reader *r);

/* Why channel_next returned. record: it read a record. end: the other process has closed the
 * socket, perhaps inside a record. late: the deadline has passed. damaged: the bytes are no record,
 * or a system call failed and Channel.error says why. */
typedef enum StreamState { STREAM_record, STREAM_end, STREAM_late, STREAM_damaged } StreamState;

typedef struct Channel {
    int fd;
    unsigned char *at;
    /* of the buffer `at`: bytes received, bytes allocated, bytes already returned as records;
     * total: bytes received since the request began */
    size_t n, room, used, total;
    int error; /* errno of the system call that failed; 0: none failed */
} Channel;

/* Waits for the next record until `deadline_s` on the monotonic clock [seconds]. Sets *kind, and
 * *payload to its bytes, which stay valid until the next call. */
StreamState channel_next(Channel *c, double deadline_s, RecordKind *kind, Reader *payload);
void channel_free(Channel *c);

#endif
