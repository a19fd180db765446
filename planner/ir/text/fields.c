/* The tables of the fields of each record in a plan's text. Those of buffers and instructions are
 * in program.def. */
#include <assert.h>

#include "planner/ir/text/private.h"

#define X(name) #name,
static const char *const streams[] = {STREAMS(X)};
static const char *const phases[] = {PHASES(X)};
static const char *const categories[] = {CATEGORIES(X)};
static const char *const purposes[] = {PURPOSES(X)};
static const char *const registers[] = {NCCL_REGISTERS(X)};
static const char *const cta_policies[] = {NCCL_CTA_POLICIES(X)};
#undef X
#define X(name, bytes) #name,
static const char *const dtypes[] = {"none", DTYPES(X)};
#undef X
static const char *const spaces[] = {"device", "host"};
/* [Role]: the word in the text; NULL for roles that the reader derives */
static const char *const roles[] = {NULL, NULL, NULL, NULL, NULL, "state"};
static const char *const inits[] = {"none", "zeros", "ones", "normal", "uniform"};
static const char *const deals[] = {"equal",    "ceil", "rows",    "listed",
                                    "segments", "halo", "overlap", "strided"};

#define AT(record, member) (uint16_t) offsetof(record, member)
#define FIELD(record, m, t, class)                                                                 \
    {                                                                                              \
        .key = #m, .type = FIELD_##t, .offset = AT(record, m), .trust = TRUST_##class,             \
        .member = #m                                                                               \
    }
#define KEY(k, record, m, t, class)                                                                \
    {                                                                                              \
        .key = k, .type = FIELD_##t, .offset = AT(record, m), .trust = TRUST_##class, .member = #m \
    }
/* A field with a note for the docs: how the reader derives it, or why the text has it although it
 * follows from other fields. */
#define NOTED(k, record, m, t, class, why)                                                         \
    {                                                                                              \
        .key = k, .type = FIELD_##t, .offset = AT(record, m), .trust = TRUST_##class,              \
        .member = #m, .note = why                                                                  \
    }
#define LABEL(k, record, m, t, tells)                                                              \
    {                                                                                              \
        .key = k, .type = FIELD_##t, .offset = AT(record, m), .trust = TRUST_label, .member = #m,  \
        .note = tells                                                                              \
    }
#define WORD(k, record, m, words, class)                                                           \
    {                                                                                              \
        .key = k, .type = FIELD_word, .offset = AT(record, m),                                     \
        .room = sizeof words / sizeof words[0], .names = words, .trust = TRUST_##class,            \
        .member = #m                                                                               \
    }
#define MANY(k, record, m, t, n, most, class)                                                      \
    {                                                                                              \
        .key = k, .type = FIELD_##t, .offset = AT(record, m), .count = AT(record, n),              \
        .room = most, .trust = TRUST_##class, .member = #m                                         \
    }

static const TextField plan_fields[] = {
    NOTED("n_match", Plan, n_match, u32, derived, "1 + the largest `match` of an instruction"),
    LABEL("parent", Plan, parent, hash,
          "the plan from which `run --verify` made this smaller one")};

static const TextField step_fields[] = {
    NOTED("microbatches", StepInfo, n_microbatches, u32, derived, "`global_batch` / `micro_batch`"),
    NOTED("denominator", StepInfo, denominator, word, derived,
          "the op of the loss and its attribute `count_all`"),
    FIELD(StepInfo, global_batch, i64, proven),
    FIELD(StepInfo, micro_batch, i64, proven),
    FIELD(StepInfo, seq, i64, proven),
    NOTED("tokens", StepInfo, global_tokens, f64, derived,
          "microbatches times the tokens or points that the loss counts"),
    NOTED("group", StepInfo, group, i64, derived, "the attribute `group` of the loss"),
    FIELD(StepInfo, seed, u64, given),
};

static const TextField nccl_fields[] = {
    KEY("min_ctas", NcclSettings, min_ctas, u32, given),
    KEY("max_ctas", NcclSettings, max_ctas, u32, given),
    WORD("register", NcclSettings, registration, registers, given),
    WORD("cta_policy", NcclSettings, cta_policy, cta_policies, given),
};

/* `name` is first, so that the plan's id can skip it */
static const TextField model_fields[] = {
    LABEL("name", ModelInfo, name, text, "the model in reports"),
    NOTED("params", ModelInfo, n_params, u64, derived, "the elements of all parameters"),
    NOTED("params_no_embedding", ModelInfo, n_params_no_embedding, u64, derived,
          "the elements of all parameters that do not state `input_embedding`"),
    NOTED("layers", ModelInfo, n_layers, u32, derived, "the number of blocks"),
    NOTED("d_model", ModelInfo, d_model, u32, derived,
          "the features of the embedding table, or of the attention"),
    NOTED("heads", ModelInfo, n_heads, u32, derived, "the query heads of the attention"),
    NOTED("kv_heads", ModelInfo, n_kv_heads, u32, derived, "the key heads of the attention"),
    NOTED("head_dim", ModelInfo, head_dim, u32, derived, "the features of a head of the attention"),
    NOTED("vocab", ModelInfo, vocab, u32, derived,
          "the rows of the embedding table, or the classes of the loss"),
    NOTED("seq", ModelInfo, seq, u32, derived, "`seq` of `step`"),
};

static const TextField axis_fields[] = {
    FIELD(Axis, text, text, proven),
    NOTED("of", Axis, name, word, derived, "the part of `text` before the point"),
    FIELD(Axis, size, u32, proven),
    /* "free": with another stride, ranks are numbered differently, but the plan is still correct */
    FIELD(Axis, apart, u32, free),
};

static const TextField deal_fields[] = {
    WORD(NULL, Deal, kind, deals, proven), KEY("parts", Deal, n_parts, u32, proven),
    FIELD(Deal, size, i64, proven),        FIELD(Deal, per_part, u32, free),
    FIELD(Deal, bound, u32, free),         KEY("intervals", Deal, first, intervals, free),
};

#define ATTRIBUTE_double(name)                                                                     \
    {.key = #name,                                                                                 \
     .type = FIELD_f64,                                                                            \
     .offset = AT(Attrs, name),                                                                    \
     .trust = TRUST_by_op,                                                                         \
     .member = #name},
#define ATTRIBUTE_int64_t(name)                                                                    \
    {.key = #name,                                                                                 \
     .type = FIELD_i64,                                                                            \
     .offset = AT(Attrs, name),                                                                    \
     .trust = TRUST_by_op,                                                                         \
     .member = #name},
#define X(type, name) ATTRIBUTE_##type(name)
static const TextField attrs_fields[] = {
    ATTRIBUTES(X){.key = "rope_pair",
                  .type = FIELD_numbers,
                  .offset = AT(Attrs, rope_pair),
                  .room = ROPE_PAIRS,
                  .trust = TRUST_by_op,
                  .member = "rope_pair"},
};
#undef X

static const TextField shape_fields[] = {
    MANY("dims", Shape, dim, dims, n_dims, MAX_DIMS, proven),
    KEY("layout", Shape, layout, layout, proven),
    MANY("deals", Shape, deal, deals, n_dims, MAX_DIMS, free),
};

static const TextField module_fields[] = {
    LABEL("path", Module, path, text, "the module in messages and reports"),
    KEY("class", Module, class_, text, of_passes),
    FIELD(Module, parent, u32, reported),
    NOTED("layer", Module, layer, u32, derived, "the number of the block that contains the module"),
    KEY("block", Module, is_block, bool, reported),
    FIELD(Module, fsdp2_shard, bool, of_passes),
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
    FIELD(Tensor, use_is_fixed, bool, of_passes),
    NOTED("producer", Tensor, producer, u32, derived,
          "the first node that lists the tensor in `out`"),
    FIELD(Tensor, grad, u32, proven),
    NOTED("grad_of", Tensor, grad_of, u32, derived, "the tensor that names this one in `grad`"),
    FIELD(Tensor, module, u32, reported),
    NOTED("rest", Tensor, rest_dtype, word, derived, "`rest` of its unit"),
    NOTED("reduce", Tensor, reduce_dtype, word, derived, "`reduce` of its unit"),
    KEY("tp", Tensor, tp, u32, of_passes),
    FIELD(Tensor, column_dim, u8, of_passes),
    FIELD(Tensor, row_dim, u8, of_passes),
    FIELD(Tensor, order, u32, given),
    FIELD(Tensor, order_dim, u8, given),
    WORD("init", Tensor, init.kind, inits, given),
    KEY("init_a", Tensor, init.a, f64, given),
    KEY("init_b", Tensor, init.b, f64, given),
    NOTED("stream", Tensor, init_stream, u64, derived,
          "a hash of the name of a parameter or state"),
    NOTED("unit", Tensor, unit, u32, derived, "the unit that lists the tensor in `params`"),
    KEY("flat", Tensor, flat_offset, u64, proven),
    FIELD(Tensor, partial, axes, of_passes),
    FIELD(Tensor, input_embedding, bool, reported),
    FIELD(Tensor, frozen, bool, proven),
    LABEL("at", Tensor, loc, loc, "the line of the script, for messages"),
};

static const TextField node_fields[] = {
    KEY(NULL, Node, op, op, proven),
    MANY("in", Node, in, ids, n_in, MAX_IN, proven),
    MANY("out", Node, out, ids, n_out, MAX_OUT, proven),
    NOTED("attrs", Node, attrs, u32, given,
          "a backward node may have only some attributes of its forward node"),
    FIELD(Node, module, u32, reported),
    NOTED("layer", Node, layer, u32, derived, "the layer of the module"),
    NOTED("stage", Node, stage, u32, reported,
          "a rank may run two stages that follow each other, so its program does not tell them "
          "apart"),
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
    NOTED("forward", Graph, n_forward, u32, derived,
          "the number of nodes before the first node that states `forward`"),
    NOTED("loss", Graph, loss, u32, derived, "the first output of the node that computes the loss"),
};

static const TextField program_fields[] = {
    WORD(NULL, Program, purpose, purposes, proven),
    NOTED("stage", Program, stage, u32, derived,
          "the pipeline stage of its ranks, by their place in the mesh"),
    NOTED("bytes", Program, bytes, u64, derived, "the end of the highest buffer on the device"),
    NOTED("host_bytes", Program, host_bytes, u64, derived,
          "the end of the highest buffer on the host"),
};

static const TextField buffer_fields[] = {
/* does not use KEY, whose expansion would turn `bool` into _Bool before it becomes FIELD_bool */
#define BUFFER(k, field, form, class, next)                                                        \
    {.key = k,                                                                                     \
     .type = FIELD_##form,                                                                         \
     .offset = AT(Buffer, field),                                                                  \
     .trust = TRUST_##class,                                                                       \
     .member = #field},
#define BUFFER_NOTED(k, field, form, class, why, next)                                             \
    {.key = k,                                                                                     \
     .type = FIELD_##form,                                                                         \
     .offset = AT(Buffer, field),                                                                  \
     .trust = TRUST_##class,                                                                       \
     .member = #field,                                                                             \
     .note = why},
#define BUFFER_ROOT(k, field, form, next)                                                          \
    {.key = k,                                                                                     \
     .type = FIELD_##form,                                                                         \
     .offset = AT(Buffer, field),                                                                  \
     .trust = TRUST_proven,                                                                        \
     .member = #field,                                                                             \
     .of_root = true},
#define BUFFER_WORD(key, field, words, class, next) WORD(key, Buffer, field, words, class),
#include "planner/ir/program.def"
};

static const TextField instr_fields[] = {
#define INSTR_NOTED(k, field, form, class, why, next)                                              \
    {.key = k,                                                                                     \
     .type = FIELD_##form,                                                                         \
     .offset = AT(Instr, field),                                                                   \
     .trust = TRUST_##class,                                                                       \
     .member = #field,                                                                             \
     .note = why},
#define INSTR(k, field, form, class, next)                                                         \
    {.key = k,                                                                                     \
     .type = FIELD_##form,                                                                         \
     .offset = AT(Instr, field),                                                                   \
     .trust = TRUST_##class,                                                                       \
     .member = #field},
#define INSTR_WORD(key, field, words, class, next) WORD(key, Instr, field, words, class),
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
