/* Chrome traces as PyTorch's profiler (Kineto) writes them: kernels by name and launch, collectives
 * by what their kernel's arguments say. The document is an array of events, or an object that holds
 * one under "traceEvents"; it is read as it streams by. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/import.h"
#include "cli/json_stream.h"

typedef struct Event {
    char name[512], category[64], collective[64], dtype[32], grid[64], block[64];
    bool complete; /* "ph": "X" */
    double us, in_elements, out_elements, group_size;
    uint32_t listed; /* numbers of grid or block read so far */
} Event;

typedef struct TraceReader {
    ImportSink *sink;
    uint32_t events_depth; /* of the elements of the event list; 0: not in one */
    bool in_arguments, in_grid, in_block;
    Event event;
} TraceReader;

static void copy(char *to, size_t room, const char *from)
{
    snprintf(to, room, "%s", from);
}

static double bytes_of(const char *dtype)
{
    static const struct {
        const char *name;
        double bytes;
    } types[] = {{"BFloat16", 2}, {"Half", 2},   {"Float8_e4m3fn", 1}, {"Float8_e5m2", 1},
                 {"Float", 4},    {"Double", 8}, {"Long", 8},          {"Int", 4},
                 {"Byte", 1},     {"Char", 1},   {"Bool", 1}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(dtype, types[i].name) == 0) return types[i].bytes;
    return 0;
}

/* PyTorch's names of collectives. */
static bool kind_of(const char *name, Collective *kind)
{
    static const struct {
        const char *name;
        Collective kind;
    } kinds[] = {{"allreduce", COLLECTIVE_all_reduce},
                 {"_allgather_base", COLLECTIVE_all_gather},
                 {"all_gather", COLLECTIVE_all_gather},
                 {"allgather", COLLECTIVE_all_gather},
                 {"_reduce_scatter_base", COLLECTIVE_reduce_scatter},
                 {"reduce_scatter", COLLECTIVE_reduce_scatter},
                 {"all_to_all", COLLECTIVE_all_to_all},
                 {"all_to_allv", COLLECTIVE_all_to_all},
                 {"broadcast", COLLECTIVE_broadcast},
                 {"reduce", COLLECTIVE_reduce},
                 {"send", COLLECTIVE_sendrecv},
                 {"recv", COLLECTIVE_sendrecv}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(name, kinds[i].name) != 0) continue;
        *kind = kinds[i].kind;
        return true;
    }
    return false;
}

static void finish_event(TraceReader *t)
{
    const Event *e = &t->event;
    if (!e->complete || !(e->us > 0) || e->us > 1e12) return;
    if (strcmp(e->category, "kernel") != 0 && strcmp(e->category, "Kernel") != 0) return;
    t->sink->events++;
    Ps duration = (Ps)llround(e->us * 1e6);
    Collective kind;
    double element = bytes_of(e->dtype), most = fmax(e->in_elements, e->out_elements);
    if (kind_of(e->collective, &kind) && e->group_size >= 2 && element > 0 && most > 0 &&
        most < 0x1p50) {
        sink_collective(t->sink, kind, (uint32_t)e->group_size, (uint64_t)(most * element),
                        duration);
        return;
    }
    if (strncmp(e->name, "nccl", 4) == 0) return; /* waits for its peers: no duration of its own */
    char key[768];
    snprintf(key, sizeof key, "cuda %.500s grid %s block %s", e->name, e->grid, e->block);
    sink_kernel(t->sink, key, duration);
}

static void list_number(char *text, size_t room, uint32_t index, double number)
{
    size_t n = strlen(text);
    snprintf(text + n, room - n, "%s%.0f", index > 0 ? "x" : "", number);
}

static void argument(Event *e, const JsonValue *v)
{
    bool text = v->kind == JSON_KIND_text;
    if (strcmp(v->key, "Collective name") == 0 && text)
        copy(e->collective, sizeof e->collective, v->text);
    else if (strcmp(v->key, "dtype") == 0 && text)
        copy(e->dtype, sizeof e->dtype, v->text);
    else if (strcmp(v->key, "In msg nelems") == 0)
        e->in_elements = v->number;
    else if (strcmp(v->key, "Out msg nelems") == 0)
        e->out_elements = v->number;
    else if (strcmp(v->key, "Group size") == 0)
        e->group_size = v->number;
}

/* Directly in an event. */
static void member(Event *e, const JsonValue *v)
{
    bool text = v->kind == JSON_KIND_text;
    if (strcmp(v->key, "name") == 0 && text)
        copy(e->name, sizeof e->name, v->text);
    else if (strcmp(v->key, "cat") == 0 && text)
        copy(e->category, sizeof e->category, v->text);
    else if (strcmp(v->key, "ph") == 0 && text)
        e->complete = strcmp(v->text, "X") == 0;
    else if (strcmp(v->key, "dur") == 0)
        e->us = v->number;
}

static void in_event(TraceReader *t, const JsonValue *v)
{
    uint32_t inside = t->events_depth + 1;
    if (v->depth == inside) {
        t->in_arguments = v->kind == JSON_KIND_object && strcmp(v->key, "args") == 0;
        if (v->kind != JSON_KIND_end) member(&t->event, v);
    } else if (v->depth == inside + 1 && t->in_arguments) {
        t->in_grid = v->kind == JSON_KIND_array && strcmp(v->key, "grid") == 0;
        t->in_block = v->kind == JSON_KIND_array && strcmp(v->key, "block") == 0;
        t->event.listed = 0;
        if (v->kind != JSON_KIND_end) argument(&t->event, v);
    } else if (v->depth == inside + 2 && v->kind == JSON_KIND_number) {
        Event *e = &t->event;
        if (t->in_grid) list_number(e->grid, sizeof e->grid, e->listed++, v->number);
        if (t->in_block) list_number(e->block, sizeof e->block, e->listed++, v->number);
    }
}

static void on_value(void *self, const JsonValue *v)
{
    TraceReader *t = self;
    if (t->events_depth == 0) {
        bool whole = v->depth == 0, named = v->depth == 1 && strcmp(v->key, "traceEvents") == 0;
        if (v->kind == JSON_KIND_array && (whole || named)) t->events_depth = v->depth + 1;
        return;
    }
    if (v->depth < t->events_depth) {
        if (v->kind == JSON_KIND_end) t->events_depth = 0;
    } else if (v->depth > t->events_depth) {
        in_event(t, v);
    } else if (v->kind == JSON_KIND_object) {
        memset(&t->event, 0, sizeof t->event);
        t->in_arguments = t->in_grid = t->in_block = false;
    } else if (v->kind == JSON_KIND_end) {
        finish_event(t);
    }
}

bool chrome_trace_read(const char *path, ImportSink *sink, Diag *d)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return diag_error(d, FAULT_input, "import-open", (Loc){path, 0}, "cannot open it: %s",
                          strerror(errno));
    TraceReader *trace = arena_alloc(d->arena, sizeof *trace);
    trace->sink = sink;
    JsonReader reader = {file, path, on_value, trace};
    bool fine = json_stream(&reader, true, d);
    fclose(file);
    if (fine && sink->events == 0)
        fine = diag_error(d, FAULT_input, "import-format", (Loc){path, 0},
                          "it has no event of category \"kernel\" under \"traceEvents\"");
    return fine;
}
