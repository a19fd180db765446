/* Tables of the fields of each record in a plan's text. program.def has the fields of buffers and
 * instructions; this file has all others. */
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
static const char *const deals[] = {"equal",    "ceil", "rows",    "listed",
                                    "segments", "halo", "overlap", "strided"};

#define AT(record, member) (uint16_t) offsetof(record, member)
#define FIELD(record, member, type, trust)                                                         \
    {                                                                                              \
#member, FIELD_##type, AT(record, member), 0, 0, NULL, TRUST_##trust, #member, NULL        \
    }
#define KEY(key, record, member, type, trust)                                                      \
    {                                                                                              \
        key, FIELD_##type, AT(record, member), 0, 0, NULL, TRUST_##trust, #member, NULL            \
    }
#define LABEL(key, record, member, type, purpose)                                                  \
    {                                                                                              \
        key, FIELD_##type, AT(record, member), 0, 0, NULL, TRUST_label, #member, purpose           \
    }
#define WORD(key, record, member, names, trust)                                                    \
    {                                                                                              \
        key, FIELD_word, AT(record, member), 0, sizeof names / sizeof names[0], names,             \
            TRUST_##trust, #member, NULL                                                           \
    }
#define MANY(key, record, member, type, count, room, trust)                                        \
    {                                                                                              \
        key, FIELD_##type, AT(record, member), AT(record, count), room, NULL, TRUST_##trust,       \
            #member, NULL                                                                          \
    }

static const TextField plan_fields[] = {
    FIELD(Plan, n_match, u32, proven),
    LABEL("parent", Plan, parent, hash,
          "the plan from which `run --verify` made this smaller one")};

static const TextField step_fields[] = {
    KEY("microbatches", StepInfo, n_microbatches, u32, proven),
    WORD("denominator", StepInfo, denominator, denominators, proven),
    FIELD(StepInfo, global_batch, i64, proven),
    FIELD(StepInfo, micro_batch, i64, proven),
    FIELD(StepInfo, seq, i64, proven),
    KEY("tokens", StepInfo, global_tokens, f64, proven),
    FIELD(StepInfo, group, i64, proven),
    FIELD(StepInfo, seed, u64, given),
};

static const TextField nccl_fields[] = {
    KEY("min_ctas", NcclSettings, min_ctas, u32, given),
    KEY("max_ctas", NcclSettings, max_ctas, u32, given),
    WORD("register", NcclSettings, registration, registers, given),
    WORD("cta_policy", NcclSettings, cta_policy, cta_policies, given),
};

/* the name comes first, so that the plan's id can skip it */
static const TextField model_fields[] = {
    LABEL("name", ModelInfo, name, text, "the model in reports"),
    KEY("params", ModelInfo, n_params, u64, proven),
    KEY("params_no_embedding", ModelInfo, n_params_no_embedding, u64, reported),
    KEY("layers", ModelInfo, n_layers, u32, reported),
    FIELD(ModelInfo, d_model, u32, reported),
    KEY("heads", ModelInfo, n_heads, u32, reported),
    KEY("kv_heads", ModelInfo, n_kv_heads, u32, reported),
    FIELD(ModelInfo, head_dim, u32, reported),
    FIELD(ModelInfo, vocab, u32, reported),
    FIELD(ModelInfo, seq, u32, reported),
};

static const TextField axis_fields[] = {
    FIELD(Axis, text, text, proven),
    WORD("of", Axis, name, axis_names, proven),
    FIELD(Axis, size, u32, proven),
    /* "free", because a plan with another order of ranks is correct, too */
    FIELD(Axis, apart, u32, free),
};

static const TextField deal_fields[] = {
    WORD(NULL, Deal, kind, deals, proven), KEY("parts", Deal, n_parts, u32, proven),
    FIELD(Deal, size, i64, proven),        FIELD(Deal, per_part, u32, free),
    FIELD(Deal, bound, u32, free),         KEY("intervals", Deal, first, intervals, free),
};

#define ATTRIBUTE_double(name)                                                                     \
    {#name, FIELD_f64, AT(Attrs, name), 0, 0, NULL, TRUST_by_op, #name, NULL},
#define ATTRIBUTE_int64_t(name)                                                                    \
    {#name, FIELD_i64, AT(Attrs, name), 0, 0, NULL, TRUST_by_op, #name, NULL},
#define X(type, name) ATTRIBUTE_##type(name)
static const TextField attrs_fields[] = {
    ATTRIBUTES(X){"rope_pair", FIELD_numbers, AT(Attrs, rope_pair), 0, ROPE_PAIRS, NULL,
                  TRUST_by_op, "rope_pair", NULL},
};
#undef X

static const TextField shape_fields[] = {
    MANY("dims", Shape, dim, dims, n_dims, MAX_DIMS, proven),
    KEY("layout", Shape, layout, layout, proven),
    MANY("deals", Shape, deal, deals, n_dims, MAX_DIMS, free),
};

static const TextField module_fields[] = {
    LABEL("path", Module, path, text, "the module in messages and reports"),
    LABEL("class", Module, class_, text, "the kind of module, for `show --after`"),
    FIELD(Module, parent, u32, reported),
    FIELD(Module, layer, u32, reported),
    KEY("block", Module, is_block, bool, reported),
    LABEL("fsdp2_shard", Module, fsdp2_shard, bool,
          "the model asked `fsdp2{}` for a unit with this module alone"),
    LABEL("at", Module, loc, loc, "the line of the script, for messages"),
};

static const TextField tensor_fields[] = {
    FIELD(Tensor, name, text, given),
    WORD("role", Tensor, role, roles, proven),
    WORD("dtype", Tensor, dtype, dtypes, reported),
    MANY("dims", Tensor, dim, dims, n_dims, MAX_DIMS, proven),
    MANY("deals", Tensor, deal, deals, n_dims, MAX_DIMS, free),
    FIELD(Tensor, use, layout, reported),
    FIELD(Tensor, kept, layout, proven),
    LABEL("fixed", Tensor, use_is_fixed, bool, "a pass, not the propagation, chose the layout"),
    FIELD(Tensor, producer, u32, proven),
    FIELD(Tensor, grad, u32, proven),
    FIELD(Tensor, grad_of, u32, proven),
    FIELD(Tensor, module, u32, reported),
    WORD("rest", Tensor, rest_dtype, dtypes, proven),
    WORD("reduce", Tensor, reduce_dtype, dtypes, proven),
    {"tp", FIELD_word, AT(Tensor, tp), 0, sizeof styles / sizeof styles[0], styles, TRUST_label,
     "tp", "the style in which `tp{}` divides a parameter"},
    LABEL("column", Tensor, column_dim, u8,
          "the dimension that `tp{}` divides if tp is column or vocab"),
    LABEL("row", Tensor, row_dim, u8, "the dimension that `tp{}` divides if tp is row"),
    FIELD(Tensor, order, u32, given),
    FIELD(Tensor, order_dim, u8, given),
    WORD("init", Tensor, init.kind, inits, given),
    KEY("init_a", Tensor, init.a, f64, given),
    KEY("init_b", Tensor, init.b, f64, given),
    KEY("stream", Tensor, init_stream, u64, given),
    FIELD(Tensor, unit, u32, proven),
    KEY("flat", Tensor, flat_offset, u64, proven),
    LABEL("partial", Tensor, partial, axes,
          "the axes on which a gradient is a sum of parts, for `show --after`"),
    FIELD(Tensor, input_embedding, bool, reported),
    FIELD(Tensor, frozen, bool, proven),
    LABEL("at", Tensor, loc, loc, "the line of the script, for messages"),
};

static const TextField node_fields[] = {
    {NULL, FIELD_op, AT(Node, op), 0, 0, NULL, TRUST_proven, "op", NULL},
    MANY("in", Node, in, ids, n_in, MAX_IN, proven),
    MANY("out", Node, out, ids, n_out, MAX_OUT, proven),
    FIELD(Node, attrs, u32, given),
    FIELD(Node, module, u32, reported),
    FIELD(Node, layer, u32, reported),
    FIELD(Node, stage, u32, reported),
    FIELD(Node, region, u32, reported),
    FIELD(Node, tile, u32, proven),
    FIELD(Node, forward, u32, proven),
    FIELD(Node, split, split, reported),
    FIELD(Node, keep, bool, reported),
    LABEL("at", Node, loc, loc, "the line of the script, for messages"),
};

static const TextField unit_fields[] = {
    LABEL("name", Unit, name, text, "the unit in messages and reports"),
    FIELD(Unit, params, list, proven),
    FIELD(Unit, shard, axes, proven),
    FIELD(Unit, replicate, axes, reported),
    FIELD(Unit, elements, u64, proven),
    FIELD(Unit, padded, u64, proven),
    WORD("dtype", Unit, dtype, dtypes, proven),
    WORD("rest", Unit, rest_dtype, dtypes, proven),
    WORD("reduce", Unit, reduce_dtype, dtypes, proven),
    WORD("moments", Unit, state_dtype, dtypes, proven),
};

static const TextField graph_fields[] = {
    KEY("forward", Graph, n_forward, u32, proven),
    FIELD(Graph, loss, u32, proven),
};

static const TextField program_fields[] = {
    WORD(NULL, Program, purpose, purposes, proven),
    FIELD(Program, stage, u32, proven),
    FIELD(Program, bytes, u64, proven),
    FIELD(Program, host_bytes, u64, proven),
};

static const TextField buffer_fields[] = {
/* not with KEY, which would expand `bool` before it becomes a part of FIELD_bool */
#define BUFFER(key, field, form, trust, next)                                                      \
    {key, FIELD_##form, AT(Buffer, field), 0, 0, NULL, TRUST_##trust, #field, NULL},
#define BUFFER_LABEL(key, field, form, purpose, next)                                              \
    {key, FIELD_##form, AT(Buffer, field), 0, 0, NULL, TRUST_label, #field, purpose},
#define BUFFER_WORD(key, field, words, trust, next) WORD(key, Buffer, field, words, trust),
#include "planner/ir/program.def"
};

static const TextField instr_fields[] = {
#define INSTR(key, field, form, trust, next)                                                       \
    {key, FIELD_##form, AT(Instr, field), 0, 0, NULL, TRUST_##trust, #field, NULL},
#define INSTR_WORD(key, field, words, trust, next) WORD(key, Instr, field, words, trust),
#include "planner/ir/program.def"
};

_Static_assert(sizeof(Stream) == 4 && sizeof(OpKind) == 4,
               "enums are read and written as uint32_t");

uint32_t text_numbers(const TextField *f, const void *record)
{
    const double *at = (const double *)(const void *)((const char *)record + f->offset);
    uint32_t n = f->room;
    while (n > 0 && at[n - 1] == 0) n--;
    return n;
}

const Record *text_record(TextRecordKind kind)
{
#define RECORD(name)                                                                               \
    {                                                                                              \
#name, name##_fields, sizeof name##_fields / sizeof name##_fields[0]                       \
    }
    static const Record records[RECORD_COUNT] = {
        RECORD(plan),  RECORD(step),       RECORD(nccl),      RECORD(model),   RECORD(axis),
        RECORD(deal),  RECORD(attrs),      RECORD(shape),     RECORD(module),  RECORD(tensor),
        RECORD(node),  RECORD(unit),       RECORD(graph),     RECORD(program), RECORD(buffer),
        RECORD(instr), {"ranks", NULL, 0}, {"seal", NULL, 0},
    };
    assert(kind < RECORD_COUNT);
    return &records[kind];
}

const char *text_field_name(const TextField *f)
{
    return f->key != NULL ? f->key : f->member;
}
