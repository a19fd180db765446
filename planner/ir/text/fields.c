/* The parts of a plan as tables: the one place that lists the fields of its text. */
#include <assert.h>

#include "planner/ir/text/private.h"

#define X(name) #name,
static const char *const streams[] = {STREAMS(X)};
static const char *const phases[] = {PHASES(X)};
static const char *const categories[] = {CATEGORIES(X)};
static const char *const purposes[] = {PURPOSES(X)};
static const char *const denominators[] = {DENOMINATORS(X)};
static const char *const registers[] = {NCCL_REGISTERS(X)};
static const char *const cta_policies[] = {NCCL_CTA_POLICIES(X)};
#undef X
static const char *const axis_names[] = {
#define AXIS(name, ...) #name,
#include "planner/ir/axes.def"
};
#define X(name, bytes) #name,
static const char *const dtypes[] = {"none", DTYPES(X)};
#undef X
static const char *const spaces[] = {"device", "host"};
static const char *const roles[] = {"activation", "param", "gradient", "input", "loss", "state"};
static const char *const inits[] = {"none", "zeros", "ones", "normal", "uniform"};
static const char *const styles[] = {"none", "column", "row", "vocab"};
static const char *const deals[] = {"equal", "ceil", "listed", "segments", "halo", "overlap"};

#define AT(record, member) (uint16_t) offsetof(record, member)
#define FIELD(record, member, type)                                                                \
    {                                                                                              \
#member, FIELD_##type, AT(record, member), 0, 0, NULL                                      \
    }
#define KEY(key, record, member, type)                                                             \
    {                                                                                              \
        key, FIELD_##type, AT(record, member), 0, 0, NULL                                          \
    }
#define WORD(key, record, member, names)                                                           \
    {                                                                                              \
        key, FIELD_word, AT(record, member), 0, sizeof names / sizeof names[0], names              \
    }
#define MANY(key, record, member, type, count, room)                                               \
    {                                                                                              \
        key, FIELD_##type, AT(record, member), AT(record, count), room, NULL                       \
    }

static const TextField plan_fields[] = {FIELD(Plan, n_match, u32), FIELD(Plan, parent, hash)};

static const TextField step_fields[] = {
    KEY("microbatches", StepInfo, n_microbatches, u32),
    WORD("denominator", StepInfo, denominator, denominators),
    FIELD(StepInfo, global_batch, i64),
    FIELD(StepInfo, micro_batch, i64),
    FIELD(StepInfo, seq, i64),
    KEY("tokens", StepInfo, global_tokens, f64),
    FIELD(StepInfo, group, i64),
    FIELD(StepInfo, seed, u64),
};

static const TextField nccl_fields[] = {
    KEY("min_ctas", NcclSettings, min_ctas, u32),
    KEY("max_ctas", NcclSettings, max_ctas, u32),
    WORD("register", NcclSettings, registration, registers),
    WORD("cta_policy", NcclSettings, cta_policy, cta_policies),
};

/* The name comes first, so that the plan's id can leave it out. */
static const TextField model_fields[] = {
    FIELD(ModelInfo, name, text),
    KEY("params", ModelInfo, n_params, u64),
    KEY("params_no_embedding", ModelInfo, n_params_no_embedding, u64),
    KEY("layers", ModelInfo, n_layers, u32),
    FIELD(ModelInfo, d_model, u32),
    KEY("heads", ModelInfo, n_heads, u32),
    KEY("kv_heads", ModelInfo, n_kv_heads, u32),
    FIELD(ModelInfo, head_dim, u32),
    FIELD(ModelInfo, vocab, u32),
    FIELD(ModelInfo, seq, u32),
};

static const TextField axis_fields[] = {
    FIELD(Axis, text, text),
    WORD("of", Axis, name, axis_names),
    FIELD(Axis, size, u32),
};

static const TextField deal_fields[] = {
    WORD(NULL, Deal, kind, deals), KEY("parts", Deal, n_parts, u32),         FIELD(Deal, size, i64),
    FIELD(Deal, per_part, u32),    KEY("intervals", Deal, first, intervals),
};

#define ATTRIBUTE_double(name)  {#name, FIELD_f64, AT(Attrs, name), 0, 0, NULL},
#define ATTRIBUTE_int64_t(name) {#name, FIELD_i64, AT(Attrs, name), 0, 0, NULL},
#define X(type, name)           ATTRIBUTE_##type(name)
static const TextField attrs_fields[] = {ATTRIBUTES(X)};
#undef X

static const TextField shape_fields[] = {
    MANY("dims", Shape, dim, dims, n_dims, MAX_DIMS),
    KEY("layout", Shape, layout, layout),
    MANY("deals", Shape, deal, deals, n_dims, MAX_DIMS),
};

static const TextField module_fields[] = {
    FIELD(Module, path, text),
    KEY("class", Module, class_, text),
    FIELD(Module, parent, u32),
    FIELD(Module, layer, u32),
    KEY("block", Module, is_block, bool),
    FIELD(Module, fsdp2_shard, bool),
    KEY("at", Module, loc, loc),
};

static const TextField tensor_fields[] = {
    FIELD(Tensor, name, text),
    WORD("role", Tensor, role, roles),
    WORD("dtype", Tensor, dtype, dtypes),
    MANY("dims", Tensor, dim, dims, n_dims, MAX_DIMS),
    MANY("deals", Tensor, deal, deals, n_dims, MAX_DIMS),
    FIELD(Tensor, use, layout),
    FIELD(Tensor, kept, layout),
    KEY("fixed", Tensor, use_is_fixed, bool),
    FIELD(Tensor, producer, u32),
    FIELD(Tensor, grad, u32),
    FIELD(Tensor, grad_of, u32),
    FIELD(Tensor, module, u32),
    WORD("rest", Tensor, rest_dtype, dtypes),
    WORD("reduce", Tensor, reduce_dtype, dtypes),
    WORD("tp", Tensor, tp, styles),
    KEY("column", Tensor, column_dim, u8),
    KEY("row", Tensor, row_dim, u8),
    FIELD(Tensor, order, u32),
    FIELD(Tensor, order_dim, u8),
    WORD("init", Tensor, init.kind, inits),
    KEY("init_a", Tensor, init.a, f64),
    KEY("init_b", Tensor, init.b, f64),
    KEY("stream", Tensor, init_stream, u64),
    FIELD(Tensor, unit, u32),
    KEY("flat", Tensor, flat_offset, u64),
    FIELD(Tensor, partial, axes),
    FIELD(Tensor, input_embedding, bool),
    KEY("at", Tensor, loc, loc),
};

static const TextField node_fields[] = {
    {NULL, FIELD_op, AT(Node, op), 0, 0, NULL},
    MANY("in", Node, in, ids, n_in, MAX_IN),
    MANY("out", Node, out, ids, n_out, MAX_OUT),
    FIELD(Node, attrs, u32),
    FIELD(Node, module, u32),
    FIELD(Node, layer, u32),
    FIELD(Node, stage, u32),
    FIELD(Node, region, u32),
    FIELD(Node, tile, u32),
    FIELD(Node, forward, u32),
    FIELD(Node, split, split),
    FIELD(Node, keep, bool),
    KEY("at", Node, loc, loc),
};

static const TextField unit_fields[] = {
    FIELD(Unit, name, text),
    FIELD(Unit, params, list),
    FIELD(Unit, shard, axes),
    FIELD(Unit, replicate, axes),
    FIELD(Unit, elements, u64),
    FIELD(Unit, padded, u64),
    WORD("dtype", Unit, dtype, dtypes),
    WORD("rest", Unit, rest_dtype, dtypes),
    WORD("reduce", Unit, reduce_dtype, dtypes),
    WORD("moments", Unit, state_dtype, dtypes),
};

static const TextField graph_fields[] = {
    KEY("forward", Graph, n_forward, u32),
    FIELD(Graph, loss, u32),
};

static const TextField program_fields[] = {
    WORD(NULL, Program, purpose, purposes),
    FIELD(Program, stage, u32),
    FIELD(Program, bytes, u64),
    FIELD(Program, host_bytes, u64),
};

static const TextField buffer_fields[] = {
    WORD(NULL, Buffer, dtype, dtypes),  WORD(NULL, Buffer, category, categories),
    FIELD(Buffer, shape, u32),          FIELD(Buffer, bytes, u64),
    FIELD(Buffer, offset, u64),         KEY("in", Buffer, parent, u32),
    FIELD(Buffer, first, u32),          FIELD(Buffer, last, u32),
    FIELD(Buffer, tensor, u32),         FIELD(Buffer, unit, u32),
    KEY("mb", Buffer, microbatch, u32), WORD("space", Buffer, space, spaces),
    FIELD(Buffer, persistent, bool),    FIELD(Buffer, result, bool),
    FIELD(Buffer, packed, bool),
};

static const TextField instr_fields[] = {
    WORD(NULL, Instr, stream, streams),
    {NULL, FIELD_op, AT(Instr, op), 0, 0, NULL},
    KEY("args", Instr, args, args),
    KEY("after", Instr, after, after),
    FIELD(Instr, axes, axes),
    FIELD(Instr, hop, i32),
    FIELD(Instr, match, u32),
    FIELD(Instr, launch, u32),
    KEY("mb", Instr, microbatch, u32),
    WORD("phase", Instr, phase, phases),
    FIELD(Instr, attrs, u32),
    FIELD(Instr, origin, u32),
    FIELD(Instr, unit, u32),
    FIELD(Instr, fuse, u32),
};

_Static_assert(sizeof(Stream) == 4 && sizeof(OpKind) == 4,
               "enums are read and written as uint32_t");

const Record *text_record(RecordKind kind)
{
#define RECORD(name)                                                                               \
    {                                                                                              \
#name, name##_fields, sizeof name##_fields / sizeof name##_fields[0]                       \
    }
    static const Record records[RECORD_COUNT] = {
        RECORD(plan),  RECORD(step),       RECORD(nccl),  RECORD(model),   RECORD(axis),
        RECORD(deal),  RECORD(attrs),      RECORD(shape), RECORD(module),  RECORD(tensor),
        RECORD(node),  RECORD(unit),       RECORD(graph), RECORD(program), RECORD(buffer),
        RECORD(instr), {"ranks", NULL, 0},
    };
    assert(kind < RECORD_COUNT);
    return &records[kind];
}
