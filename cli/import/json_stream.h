/* Reads JSON as a stream: a file of any length in memory of a fixed size. The reader calls a
 * function for each value, with the path of its keys. Strings are cut at MOST_JSON_TEXT bytes,
 * which is enough for all readers here. */
#ifndef TANDEM_CLI_IMPORT_JSON_STREAM_H
#define TANDEM_CLI_IMPORT_JSON_STREAM_H

#include <stdio.h>

#include "planner/base/diag.h"

enum { MOST_JSON_TEXT = 1023, MOST_JSON_DEPTH = 64 };

typedef enum JsonKind {
    JSON_KIND_object,
    JSON_KIND_array,
    JSON_KIND_end, /* end of the object or array at this depth */
    JSON_KIND_text,
    JSON_KIND_number,
    JSON_KIND_true,
    JSON_KIND_false,
    JSON_KIND_null
} JsonKind;

/* The value just read. `depth`: 0 for the document itself, 1 for its members, and so on. `key` is
 * its name, "" in an array. `text` is the text of a JSON_KIND_text; it ends in a 0 byte and is
 * valid only during the call. */
typedef struct JsonValue {
    JsonKind kind;
    uint32_t depth;
    const char *key, *text;
    double number;
    uint64_t offset;
} JsonValue;

typedef struct JsonReader {
    FILE *file;
    const char *path;
    void (*value)(void *self, const JsonValue *value);
    void *self;
} JsonReader;

/* Reads the document. Returns false after "json-syntax" with the byte offset and line of the fault;
 * reader->value has then been called for everything before it. may_break_off: accepts a file that
 * ends inside an array, after an element. Killed profilers leave such files, and trace viewers read
 * them. */
bool json_stream(const JsonReader *reader, bool may_break_off, Diag *d);

#endif
