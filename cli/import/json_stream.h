/* Reads a JSON file of any length with a fixed amount of memory. For each value, it calls a
 * function of the reader with the value and its key. Texts are cut at MOST_JSON_TEXT bytes, which
 * is enough for all readers in this folder. */
#ifndef TANDEM_CLI_IMPORT_JSON_STREAM_H
#define TANDEM_CLI_IMPORT_JSON_STREAM_H

#include <stdio.h>

#include "planner/base/diag.h"

enum { MOST_JSON_TEXT = 1023, MOST_JSON_DEPTH = 64 };

typedef enum JsonKind {
    JSON_KIND_object,
    JSON_KIND_array,
    JSON_KIND_end, /* end of the object or array that began at this depth */
    JSON_KIND_text,
    JSON_KIND_number,
    JSON_KIND_true,
    JSON_KIND_false,
    JSON_KIND_null
} JsonKind;

/* The value that was just read. `depth` is 0 for the document itself, 1 for its members, and so on.
 * `key` is the value's name, or "" in an array. `text` is the content of a JSON_KIND_text. It ends
 * with a 0 byte and is valid only during the call. */
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

/* Reads the document and calls reader->value for each value. After damage, reports "json-syntax"
 * with the line and byte offset and returns false; the values before it were already given.
 * may_break_off: the file may end inside an array, after an element. Profilers that were killed
 * leave such files, and trace viewers accept them. */
bool json_stream(const JsonReader *reader, bool may_break_off, Diag *d);

#endif
