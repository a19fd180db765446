/* Stores the values of a plan in a Draft as they arrive. For each value, looks up the row of its
 * key (a Field), checks the value and stores it. A mistake is reported, and reading continues, so
 * that the user sees all mistakes at once. */
#include <assert.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "planner/front/draft/draft.h"

enum { MOST_SIBLINGS = 64 };

Draft draft_new(Arena *arena, Diag *d)
{
    Draft draft = {.arena = arena, .d = d, .n_errors_before = d->n_errors};
    Config *c = &draft.config;
    c->micro_batch = 1;
    c->param = c->compute = c->reduce = DT_f32;
    c->seed = 1;
    c->train_steps = 100;
    c->cluster.oversubscription = c->cluster.group_oversubscription = 1;
    c->cluster.nodes = 1;
    c->optimizer = (Optimizer){.kind = OPTIMIZER_adamw,
                               .lr = 3e-4,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .eps = 1e-8,
                               .weight_decay = 0.1,
                               .clip_norm = 1.0,
                               .min_lr_ratio = 0.1};
    for (int op = 0; op < OP_COUNT; op++)
        c->runtime.op[op] = (RuntimeOp){.kernels = 1, .passes = 1, .tensors = 1};
    list_reserve_none(arena, &draft.files);
    return draft;
}

const char *draft_kept(const Draft *draft, const char *text)
{
    return draft->texts != NULL ? texts_keep(draft->texts, text) : text;
}

bool draft_file(Draft *draft, Reader *r)
{
    const char *name = draft_kept(draft, get_text(r, draft->arena));
    list_push(draft->arena, &draft->files, name);
    return reader_finished(r);
}

bool draft_source(Draft *draft, Reader *r)
{
    ScriptFile script = {.name = get_text(r, draft->arena)};
    script.shipped = get_u32(r) != 0;
    script.hash.hi = (uint64_t)get_i64(r);
    script.hash.lo = (uint64_t)get_i64(r);
    list_push(draft->arena, &draft->config.scripts, script);
    return reader_finished(r);
}

Loc draft_read_loc(const Draft *draft, Reader *r)
{
    uint32_t file = get_u32(r), line = get_u32(r);
    if (file >= draft->files.n) {
        r->bad = true;
        file = 0;
    }
    return (Loc){file != 0 ? draft->files.at[file] : NULL, line};
}

bool draft_has(const Draft *draft, const char *path)
{
    for (uint32_t i = 0; i < draft->seen.n; i++)
        if (strcmp(draft->seen.at[i].path, path) == 0) return true;
    return false;
}

bool draft_has_table(const Draft *draft, const char *path)
{
    for (uint32_t i = 0; i < draft->seen.n; i++)
        if (strcmp(draft->seen.at[i].path, path) == 0) return draft->seen.at[i].is_table;
    return false;
}

Loc draft_loc(const Draft *draft, const char *path)
{
    char at[256];
    size_t n = strlen(path);
    assert(n < sizeof at);
    memcpy(at, path, n + 1);
    for (;;) {
        for (uint32_t i = draft->seen.n; i > 0; i--)
            if (strcmp(draft->seen.at[i - 1].path, at) == 0) return draft->seen.at[i - 1].loc;
        if (at[0] == 0) return (Loc){draft->config.file, 0};
        char *dot = strrchr(at, '.');
        *(dot != NULL ? dot : at) = 0;
    }
}

const char *draft_shown(Arena *arena, const Value *v)
{
    if (v->kind == RECORD_bool) return v->integer ? "true" : "false";
    if (v->kind == RECORD_int) return arena_print(arena, "%lld", (long long)v->integer);
    if (v->kind == RECORD_number && isnan(v->number)) return "nan";
    if (v->kind == RECORD_number) return arena_print(arena, "%.15g", v->number);
    if (v->kind == RECORD_text) return arena_print(arena, "the text '%.60s'", v->text);
    return arena_print(arena, "a %s", v->kind == RECORD_table ? "table" : v->text);
}

static const char *expected(FieldKind kind)
{
    switch (kind) {
    case FIELD_table:
    case FIELD_modules:
    case FIELD_ops:
    case FIELD_styles:
    case FIELD_split: return "a table";
    case FIELD_i64:
    case FIELD_u32:
    case FIELD_u64: return "an integer";
    case FIELD_f64:
    case FIELD_rate: return "a number";
    case FIELD_bool: return "true or false";
    case FIELD_text: return "a text";
    case FIELD_dtype: return "a dtype's name";
    case FIELD_word: return "one of its words";
    case FIELD_axis: return "an integer";
    case FIELD_reshard: return "true, false or a number of ranks";
    case FIELD_choice: return "true or false";
    case FIELD_offload:
        return "true or false (to offload only the optimizer's state would not save transfers)";
    }
    assert(0 && "a kind");
    return "";
}

#define ZERO_STAGES                                                                                \
    "'optim' for ZeRO-1, 'optim_grads' for ZeRO-2 or 'optim_grads_params' for ZeRO-3"

bool draft_wrong_type(Draft *draft, const char *path, const Field *f, Loc loc, const Value *v)
{
    diag_error(draft->d, FAULT_input, "wrong-type", loc, "%s must be %s, not %s",
               path[0] != 0 ? path : "the plan", expected(f->kind), draft_shown(draft->arena, v));
    const bool is_whole = strcmp(expected(f->kind), "an integer") == 0;
    const size_t n_digits = v->kind == RECORD_text ? strspn(v->text, "0123456789") : 0;
    if (is_whole && n_digits > 0 && v->text[n_digits] != 0)
        diag_hint(draft->d, "write only digits, as in 4096");
    if (strcmp(path, "cluster.device") == 0)
        diag_hint(draft->d, "for a GPU of the library, write cluster = require \"clusters.gpu\" { "
                            "gpu = \"H200\", nodes = 1 }");
    else if (f->kind == FIELD_table && v->kind == RECORD_text && path[0] != 0 &&
             strcmp(path, "parallel") != 0)
        diag_hint(draft->d, "set one of its keys with %s.KEY=VALUE", path);
    else if (strcmp(path, "zero.strategy") == 0)
        diag_hint(draft->d, "use " ZERO_STAGES);
    else if (strcmp(path, "batch") == 0)
        diag_hint(draft->d, "for example batch = { global = 8, micro = 1, seq = 128 }");
    return false;
}

const char *draft_list(Arena *arena, const char *const *names, uint32_t n)
{
    Str s = str_in(arena);
    for (uint32_t i = 0; i < n; i++) str_print(&s, "%s%s", i > 0 ? ", " : "", names[i]);
    return str_text(&s);
}

static void hint_words(Draft *draft, const char *word, const char *const *names, uint32_t n,
                       const char *what)
{
    const char *near = str_nearest(word, names, n);
    const size_t length = strlen(word);
    /* a word such as "dp" is the beginning of two keys: dp_replicate and dp_shard */
    Str longer = str_in(draft->arena);
    for (uint32_t i = 0; i < n; i++)
        if (length > 0 && strncmp(names[i], word, length) == 0 && names[i][length] == '_')
            str_print(&longer, "%s'%s'", longer.n > 0 ? " or " : "", names[i]);
    if (near != NULL)
        diag_hint(draft->d, "did you mean '%s'?", near);
    else if (longer.n > 0)
        diag_hint(draft->d, "did you mean %s?", str_text(&longer));
    else if (n > 0)
        diag_hint(draft->d, "%s: %s", what, draft_list(draft->arena, names, n));
}

/* For a key that users of other frameworks may expect in the table or pass `within`, but that does
 * not exist: returns why, or which key to use instead. Returns NULL for all other keys. */
static const char *why_absent(const char *within, const char *key)
{
    static const char *const absent[][3] = {
        {"tp", "async", "this version does not overlap a gather with the product that reads it"},
        {"cluster", "gpu",
         "use --set gpu=B200, or write "
         "cluster = require \"clusters.gpu\" { gpu = \"B200\", nodes = 1 }"},
        {"zero", "stage", "use strategy = " ZERO_STAGES},
        {"zero", "level", "use strategy = " ZERO_STAGES},
        {"zero", "zero_stage", "use strategy = " ZERO_STAGES}};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (strcmp(absent[i][0], within) == 0 && strcmp(absent[i][1], key) == 0)
            return absent[i][2];
    return NULL;
}

/* Returns the path of `key` in the table of the plan that has it: "mesh.tp" for "tp". Returns NULL
 * if no table has it. */
static const char *path_within(Arena *arena, const char *key)
{
    const Field *table;
    for (uint32_t i = 0; (table = field_at(false, i)) != NULL; i++) {
        if (table->kind != FIELD_table || strchr(table->path, '.') != NULL) continue;
        const char *path = arena_print(arena, "%s.%s", table->path, key);
        if (field_of_plan(path) != NULL) return path;
    }
    return NULL;
}

void draft_unknown_key(Draft *draft, const char *path, const char *parent, bool of_pass, Loc loc)
{
    const char *names[MOST_SIBLINGS], *dot = strrchr(path, '.');
    const char *key = dot != NULL ? dot + 1 : path;
    uint32_t n = field_siblings(parent, of_pass, names, MOST_SIBLINGS);
    const char *within = parent[0] != 0 ? parent : "plan";
    if (key[strspn(key, "-0123456789")] == 0) {
        diag_error(draft->d, FAULT_input, "unknown-key", loc, "item %s of %s{} has no key", key,
                   within);
        diag_hint(draft->d, "keys: %s", draft_list(draft->arena, names, n));
        return;
    }
    diag_error(draft->d, FAULT_input, "unknown-key", loc, "unknown key '%s' in %s{}", key, within);
    const char *elsewhere = parent[0] == 0 ? path_within(draft->arena, key) : NULL;
    const char *meant = of_pass ? NULL : front_other_name(key);
    /* for mesh.TP, this hint would name mesh.tp as another framework's name; only the case is wrong
     */
    if (meant != NULL && strcasecmp(meant, path) == 0) meant = NULL;
    if (why_absent(within, key))
        diag_hint(draft->d, "%s", why_absent(within, key));
    else if (elsewhere != NULL)
        diag_hint(draft->d, "the key is called %s", elsewhere);
    else if (meant != NULL)
        diag_hint(draft->d, "the key is called %s", meant);
    else
        hint_words(draft, key, names, n, "keys");
}

bool draft_whole(Value *v)
{
    if (v->kind == RECORD_number && v->number == floor(v->number) && fabs(v->number) < 9e15) {
        v->integer = (int64_t)v->number;
        v->kind = RECORD_int;
    }
    return v->kind == RECORD_int;
}

static bool in_range(Draft *draft, const char *path, const Field *f, Loc loc, const Value *v)
{
    double value = v->kind == RECORD_int ? (double)v->integer : v->number;
    const bool may_be_none = f->kind == FIELD_rate;
    if (value >= f->least && value <= f->most) return true;
    if (may_be_none && value == 0) return true;
    diag_error(draft->d, FAULT_input, "out-of-range", loc,
               "%s = %s must be between %.15g and %.15g%s", path, draft_shown(draft->arena, v),
               f->least, f->most, may_be_none ? ", or 0 to switch it off" : "");
    return false;
}

static bool is_floating(DType t)
{
    return t == DT_f64 || t == DT_f32 || t == DT_bf16 || t == DT_f16;
}

/* Returns Tandem's name for a dtype of PyTorch: "fp16" for "Half", "bf16" for "torch.bfloat16".
 * Returns NULL if the text is no such dtype. */
static const char *name_of_torch(const char *text)
{
    static const char *const names[][2] = {
        {"half", "fp16"},    {"float16", "fp16"},  {"float", "fp32"},
        {"float32", "fp32"}, {"single", "fp32"},   {"double", "fp64"},
        {"float64", "fp64"}, {"bfloat16", "bf16"}, {"bfloat", "bf16"},
    };
    if (strncmp(text, "torch.", 6) == 0) text += 6;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *a = names[i][0], *b = text;
        while (*a && (*a == *b || *a == *b + ('a' - 'A'))) a++, b++;
        if (!*a && !*b) return names[i][1];
    }
    return NULL;
}

static bool store_dtype(Draft *draft, const char *path, Loc loc, const Value *v, void *at)
{
    static const char *const names[] = {"fp32", "bf16", "fp16", "fp64"};
    DType t = dtype_find(v->text);
    if (is_floating(t)) {
        memcpy(at, &t, sizeof t);
        return true;
    }
    diag_error(draft->d, FAULT_input, "unknown-word", loc,
               "%s = '%.60s' is not a number type of Tandem", path, v->text);
    const char *meant = name_of_torch(v->text);
    if (meant)
        diag_hint(draft->d, "did you mean '%s'?", meant);
    else
        hint_words(draft, v->text, names, 4, "one of");
    return false;
}

/* If the unknown word for zero.strategy contains a stage, as "zero1" does, or is a name that
 * megatron-fsdp's documentation uses but its code does not accept: adds a hint that lists the
 * strategies, and returns true. */
static bool hint_zero(Draft *draft, const char *path, const char *word)
{
    if (strcmp(path, "zero.strategy") != 0) return false;
    const bool is_stage = strpbrk(word, "123") != NULL;
    if (!is_stage && strcmp(word, "params") != 0 && strcmp(word, "grads_params") != 0) return false;
    diag_hint(draft->d, "use " ZERO_STAGES);
    return true;
}

bool draft_word(Draft *draft, const char *path, const Field *f, Loc loc, const Value *v, void *at)
{
    uint32_t n = 0, found = UINT32_MAX;
    for (; f->words[n] != NULL; n++)
        if (strcmp(f->words[n], v->text) == 0) found = n;
    if (found != UINT32_MAX) {
        memcpy(at, &found, sizeof found); /* an enum has the size of a uint32_t */
        return true;
    }
    diag_error(draft->d, FAULT_input, "unknown-word", loc, "%s = '%.60s' is not an allowed word",
               path, v->text);
    if (hint_zero(draft, path, v->text)) return false;
    hint_words(draft, v->text, f->words, n, "one of");
    return false;
}

static bool store_reshard(Draft *draft, const char *path, const Field *f, Loc loc, Value *v,
                          Fsdp2Options *options)
{
    if (v->kind == RECORD_bool) {
        options->reshard_after_forward = v->integer ? RESHARD_true : RESHARD_false;
        return true;
    }
    if (!draft_whole(v)) return draft_wrong_type(draft, path, f, loc, v);
    if (!in_range(draft, path, f, loc, v)) return false;
    options->reshard_after_forward = RESHARD_to;
    options->reshard_to = (uint32_t)v->integer;
    return true;
}

static bool store_integer(Draft *draft, const char *path, const Field *f, Loc loc, Value *v,
                          void *at)
{
    if (!draft_whole(v)) return draft_wrong_type(draft, path, f, loc, v);
    if (!in_range(draft, path, f, loc, v)) return false;
    uint32_t narrow = (uint32_t)v->integer;
    if (f->kind == FIELD_u32)
        memcpy(at, &narrow, sizeof narrow);
    else
        /* i64, u64 and axis sizes are all stored as 8 bytes */
        memcpy(at, &v->integer, sizeof v->integer);
    return true;
}

bool draft_store(Draft *draft, const char *path, const Field *f, Loc loc, Value *v, void *at)
{
    bool flag = v->integer != 0;
    switch (f->kind) {
    case FIELD_table:
    case FIELD_modules:
    case FIELD_ops:
    case FIELD_styles:
    case FIELD_split: return v->kind == RECORD_table || draft_wrong_type(draft, path, f, loc, v);
    case FIELD_i64:
    case FIELD_u32:
    case FIELD_u64: return store_integer(draft, path, f, loc, v, at);
    case FIELD_axis:
        if (draft_whole(v) && v->integer == 0) {
            diag_error(draft->d, FAULT_input, "out-of-range", loc,
                       "%s = 0, but an axis has at least 1 rank", path);
            diag_hint(draft->d,
                      "use 1 for an unused axis, or -1 for all devices that the other axes leave");
            return false;
        }
        return store_integer(draft, path, f, loc, v, at);
    case FIELD_f64:
    case FIELD_rate:
        if (v->kind != RECORD_int && v->kind != RECORD_number)
            return draft_wrong_type(draft, path, f, loc, v);
        if (!in_range(draft, path, f, loc, v)) return false;
        if (v->kind == RECORD_int) v->number = (double)v->integer;
        memcpy(at, &v->number, sizeof v->number);
        return true;
    case FIELD_bool:
    case FIELD_offload:
        if (v->kind != RECORD_bool) return draft_wrong_type(draft, path, f, loc, v);
        memcpy(at, &flag, sizeof flag);
        return true;
    case FIELD_text:
    case FIELD_dtype:
    case FIELD_word:
        if (v->kind != RECORD_text) return draft_wrong_type(draft, path, f, loc, v);
        if (f->kind == FIELD_dtype) return store_dtype(draft, path, loc, v, at);
        if (f->kind == FIELD_word) return draft_word(draft, path, f, loc, v, at);
        v->text = draft_kept(draft, v->text);
        memcpy(at, &v->text, sizeof v->text);
        return true;
    case FIELD_reshard: return store_reshard(draft, path, f, loc, v, at);
    case FIELD_choice:
        if (v->kind != RECORD_bool) return draft_wrong_type(draft, path, f, loc, v);
        memcpy(at, &(Choice){flag ? CHOICE_yes : CHOICE_no}, sizeof(Choice));
        return true;
    }
    assert(0 && "a kind");
    return false;
}
