/* Reads Chrome traces as PyTorch's profiler (Kineto) writes them. The trace records which operator
 * launched a kernel, and the operator's shapes. A collective's size is in the arguments of its
 * kernel. The document is an array of events, or an object with this array under "traceEvents". It
 * is read twice, the first time for operators, because a kernel may come before its operator. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/import/import.h"
#include "cli/import/json_stream.h"

typedef struct TraceEvent {
    char name[512], category[64], collective[64], dtype[32], group[512];
    bool complete; /* the event has "ph": "X", so it has a duration */
    double us, at_us, in_elements, out_elements, group_size;
    double id; /* id of the operator's call; 0: none */
    Operand operand[MOST_OPERANDS];
    uint32_t n_operands;
} TraceEvent;

/* A call of an operator whose work has a key. */
typedef struct TraceCall {
    uint64_t id; /* id of the call; 0: the slot is free */
    Samples *samples;
    Ps sum; /* total time of the kernels that the call launched */
} TraceCall;

typedef struct Calls {
    TraceCall *table;
    uint32_t room, n;
} Calls;

/* The list that is being read, among the arguments of an event. */
typedef enum InList { LIST_none, LIST_dims, LIST_types, LIST_words } InList;

typedef struct TraceReader {
    ImportSink *sink;
    Arena *scratch; /* memory that is freed after each event */
    /* true in the first reading, which reads operators; false in the second, which reads kernels */
    bool operators;
    Calls calls;
    int64_t rank; /* the trace's rank; -1: the trace does not give it */
    /* depth of the elements in the list of events; 0: the list is not open */
    uint32_t events_depth;
    bool in_arguments, in_info;
    InList in_list;
    uint32_t at; /* position of the operand in the list */
    TraceEvent event;
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

/* Finds the collective with PyTorch's name for it. */
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

/* ---- operator calls by id ---- */

static TraceCall *call_slot(const Calls *calls, uint64_t id)
{
    uint32_t at = (uint32_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (calls->room - 1);
    while (calls->table[at].id != 0 && calls->table[at].id != id) at = (at + 1) & (calls->room - 1);
    return &calls->table[at];
}

static void calls_add(Calls *calls, uint64_t id, Samples *samples, Arena *arena)
{
    if (2 * calls->n >= calls->room) {
        Calls old = *calls;
        calls->room = old.room == 0 ? 256 : 2 * old.room;
        calls->table = arena_array(arena, calls->room, sizeof *calls->table);
        for (uint32_t i = 0; i < old.room; i++)
            if (old.table[i].id != 0) *call_slot(calls, old.table[i].id) = old.table[i];
    }
    TraceCall *call = call_slot(calls, id);
    calls->n += call->id == 0;
    *call = (TraceCall){.id = id, .samples = samples};
}

static uint64_t id_of(const TraceEvent *e)
{
    return e->id >= 1 && e->id < 0x1p53 ? (uint64_t)e->id : 0;
}

static void finish_operator(TraceReader *t)
{
    const TraceEvent *e = &t->event;
    if (strcmp(e->category, "cpu_op") != 0 || e->n_operands == 0) return;
    t->sink->shapes = true;
    OpCall call = {.name = e->name, .n = e->n_operands};
    memcpy(call.operand, e->operand, sizeof call.operand);
    const char *key = op_call_key(&call, t->scratch);
    Samples *samples = key != NULL && id_of(e) != 0 ? sink_key(t->sink, key) : NULL;
    if (samples != NULL) calls_add(&t->calls, id_of(e), samples, t->sink->arena);
    arena_reset(t->scratch);
}

/* ---- kernels ---- */

static void finish_collective(TraceReader *t, Ps duration)
{
    const TraceEvent *e = &t->event;
    Collective kind;
    double element = bytes_of(e->dtype), most = fmax(e->in_elements, e->out_elements);
    bool sized = kind_of(e->collective, &kind) && e->group_size >= 2 && e->group_size < 0x1p31 &&
                 element > 0 && most > 0 && most < 0x1p50;
    if (sized)
        meet_add(t->sink, kind, (uint32_t)e->group_size, (uint64_t)(most * element), e->group,
                 e->at_us, duration);
    else
        t->sink->n_sizeless++;
}

static void finish_kernel(TraceReader *t)
{
    const TraceEvent *e = &t->event;
    ImportSink *sink = t->sink;
    if (!(e->us > 0) || e->us > 1e12) return;
    if (strcmp(e->category, "kernel") != 0 && strcmp(e->category, "Kernel") != 0) return;
    sink->events++;
    Ps duration = (Ps)llround(e->us * 1e6);
    if (duration <= 0) return;
    if (e->collective[0] != 0 || strncmp(e->name, "nccl", 4) == 0) {
        finish_collective(t, duration);
        return;
    }
    uint64_t id = id_of(e);
    TraceCall *call = id != 0 && t->calls.n > 0 ? call_slot(&t->calls, id) : NULL;
    if (call != NULL && call->id == id) {
        call->sum += duration;
        sink->n_used++;
        sink->used_ps += duration;
    } else {
        sink->n_unused++;
        sink->unused_ps += duration;
    }
}

/* ---- the document ---- */

static void argument(TraceEvent *e, const JsonValue *v)
{
    bool text = v->kind == JSON_KIND_text;
    if (strcmp(v->key, "Collective name") == 0 && text)
        copy(e->collective, sizeof e->collective, v->text);
    else if (strcmp(v->key, "dtype") == 0 && text)
        copy(e->dtype, sizeof e->dtype, v->text);
    else if (strncmp(v->key, "Process Group ", 14) == 0 && text) {
        bool ranks = strcmp(v->key + 14, "Ranks") == 0, name = strcmp(v->key + 14, "Name") == 0;
        size_t half = sizeof e->group / 2, n = strlen(e->group);
        /* Appends names and ranks to the text of the group. Every member of a group writes them in
         * the same order, so all members get the same text. */
        if ((ranks || name) && n < half) snprintf(e->group + n, half, "%s ", v->text);
    } else if (strcmp(v->key, "In msg nelems") == 0)
        e->in_elements = v->number;
    else if (strcmp(v->key, "Out msg nelems") == 0)
        e->out_elements = v->number;
    else if (strcmp(v->key, "Group size") == 0)
        e->group_size = v->number;
    else if (strcmp(v->key, "External id") == 0)
        e->id = v->number;
}

/* Reads a value that stands directly in an event. */
static void member(TraceEvent *e, const JsonValue *v)
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
    else if (strcmp(v->key, "ts") == 0)
        e->at_us = v->number;
}

/* Reads an element of "Input Dims" (each element is a list of numbers), "Input type" or "Concrete
 * Inputs". */
static void list_element(TraceReader *t, const JsonValue *v)
{
    TraceEvent *e = &t->event;
    if (v->kind == JSON_KIND_end || t->at == MOST_OPERANDS) return;
    Operand *o = &e->operand[t->at++];
    if (t->at > e->n_operands) e->n_operands = t->at;
    if (v->kind != JSON_KIND_text) return;
    if (t->in_list == LIST_types) o->dtype = torch_dtype(v->text);
    if (t->in_list == LIST_words) copy(o->word, sizeof o->word, v->text);
}

static void dimension(TraceReader *t, const JsonValue *v)
{
    if (t->in_list != LIST_dims || t->at == 0 || v->kind == JSON_KIND_end) return;
    Operand *o = &t->event.operand[t->at - 1];
    bool fits = v->kind == JSON_KIND_number && o->n_dims < MOST_OPERAND_DIMS && v->number >= 0 &&
                v->number < 0x1p50;
    if (fits)
        o->dim[o->n_dims++] = (int64_t)v->number;
    else
        o->list = true;
}

static InList list_named(const JsonValue *v)
{
    if (v->kind != JSON_KIND_array) return LIST_none;
    if (strcmp(v->key, "Input Dims") == 0) return LIST_dims;
    if (strcmp(v->key, "Input type") == 0) return LIST_types;
    return strcmp(v->key, "Concrete Inputs") == 0 ? LIST_words : LIST_none;
}

static void in_event(TraceReader *t, const JsonValue *v)
{
    uint32_t inside = t->events_depth + 1;
    if (v->depth == inside) {
        t->in_arguments = v->kind == JSON_KIND_object && strcmp(v->key, "args") == 0;
        if (v->kind != JSON_KIND_end) member(&t->event, v);
    } else if (v->depth == inside + 1 && t->in_arguments) {
        t->in_list = t->operators ? list_named(v) : LIST_none;
        t->at = 0;
        if (v->kind != JSON_KIND_end) argument(&t->event, v);
    } else if (v->depth == inside + 2 && t->in_list != LIST_none) {
        list_element(t, v);
    } else if (v->depth == inside + 3) {
        dimension(t, v);
    }
}

/* Reads a value that stands before or after the events: {"distributedInfo": {"rank": 3}}. */
static void outside(TraceReader *t, const JsonValue *v)
{
    bool whole = v->depth == 0, named = v->depth == 1 && strcmp(v->key, "traceEvents") == 0;
    if (v->kind == JSON_KIND_array && (whole || named)) t->events_depth = v->depth + 1;
    if (v->depth == 1)
        t->in_info = v->kind == JSON_KIND_object && strcmp(v->key, "distributedInfo") == 0;
    if (v->depth == 2 && t->in_info && v->kind == JSON_KIND_number && strcmp(v->key, "rank") == 0 &&
        v->number >= 0 && v->number < 0x1p31)
        t->rank = (int64_t)v->number;
}

static void on_value(void *self, const JsonValue *v)
{
    TraceReader *t = self;
    if (t->events_depth == 0) {
        outside(t, v);
    } else if (v->depth < t->events_depth) {
        if (v->kind == JSON_KIND_end) t->events_depth = 0;
    } else if (v->depth > t->events_depth) {
        in_event(t, v);
    } else if (v->kind == JSON_KIND_object) {
        memset(&t->event, 0, sizeof t->event);
        t->in_arguments = false;
        t->in_list = LIST_none;
    } else if (v->kind == JSON_KIND_end && t->event.complete) {
        if (t->operators)
            finish_operator(t);
        else
            finish_kernel(t);
    }
}

static bool read_events(TraceReader *t, const char *path, bool operators, Diag *d)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return diag_error(d, FAULT_input, "import-open", (Loc){path, 0},
                          "the file cannot be opened: %s", strerror(errno));
    t->operators = operators;
    t->events_depth = 0;
    JsonReader reader = {file, path, on_value, t};
    bool fine = json_stream(&reader, true, d);
    fclose(file);
    return fine;
}

bool chrome_trace_read(const char *path, ImportSink *sink, Diag *d)
{
    TraceReader *t = arena_alloc(sink->arena, sizeof *t);
    *t = (TraceReader){.sink = sink, .scratch = arena_new(), .rank = -1};
    Diag own = diag_in(sink->arena); /* the first reading has already reported these errors */
    const uint64_t before = sink->events;
    read_events(t, path, true, &own);
    meet_trace(sink, t->rank);
    bool fine = read_events(t, path, false, d);
    arena_free(t->scratch);
    for (uint32_t i = 0; i < t->calls.room; i++)
        if (t->calls.table[i].sum > 0)
            sink_sample(sink, t->calls.table[i].samples, t->calls.table[i].sum);
    if (fine && sink->events == before)
        fine = diag_error(d, FAULT_input, "import-format", (Loc){path, 0},
                          "the file has no event of category \"kernel\" under \"traceEvents\"");
    return fine;
}
