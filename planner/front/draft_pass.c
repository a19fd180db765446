/* The passes of a plan's `parallel` list as they arrive: their options, and lists within them. */
#include <assert.h>
#include <string.h>

#include "planner/front/draft.h"

static const char *const pass_names[] = {
#define X(name) #name,
    PASS_NAMES(X)
#undef X
};

PassConfig draft_pass_default(PassName name, Loc loc)
{
    return (PassConfig){
        .name = name,
        .loc = loc,
        .pp = {.schedule = SCHEDULE_1f1b},
        .tp = {.loss_parallel = true, .share_gathers = true},
        .ac = AC_full,
        .fsdp2 = {.reshard_after_forward = RESHARD_true,
                  .reshard_last = true,
                  .prefetch = 1,
                  .over_ep = true,
                  .mp = {.cast_forward_inputs = true}},
        .ddp = {.bucket_mib = 25},
        .zero = {.strategy = ZERO_optim_grads_params, .prefetch = 1},
        .tile = {.pieces = 8},
    };
}

static void new_pass(Draft *draft, const char *path, Loc loc, const char *word)
{
    Config *c = &draft->config;
    uint32_t found = PASS_NAME_COUNT;
    for (uint32_t i = 0; i < PASS_NAME_COUNT; i++)
        if (strcmp(pass_names[i], word) == 0) found = i;
    if (found == PASS_NAME_COUNT) {
        diag_error(draft->d, FAULT_input, "wrong-type", loc, "%s: %s{} is no pass", path, word);
        diag_hint(draft->d, "parallel is a list of %s",
                  draft_list(draft->arena, pass_names, PASS_NAME_COUNT));
    } else if (c->n_passes == MOST_PASSES) {
        diag_error(draft->d, FAULT_input, "out-of-range", loc, "more than %d passes", MOST_PASSES);
    } else {
        c->passes[c->n_passes++] = draft_pass_default((PassName)found, loc);
    }
}

/* pp.split = { 9, 8, 8, 7 }: blocks a stage, in order. */
static void split_field(Draft *draft, const char *key, Loc loc, Value *v, PpOptions *o)
{
    const char *item = key + strlen("pp.split.");
    bool is_next = strcmp(item, arena_print(draft->arena, "%u", o->n_split + 1)) == 0;
    if (!is_next || !draft_whole(v) || v->integer < 1 || v->integer > 65536) {
        diag_error(draft->d, FAULT_input, "wrong-type", loc,
                   "pp.split is a list of blocks a stage, each at least 1; not %s",
                   draft_shown(draft->arena, v));
        return;
    }
    if (o->n_split == MAX_STAGES)
        diag_error(draft->d, FAULT_input, "out-of-range", loc, "more than %d stages", MAX_STAGES);
    else
        o->split[o->n_split++] = (uint32_t)v->integer;
}

/* pp { schedule = function } and pp { csv = "file" }: the lists themselves come later. */
static bool schedule_field(Draft *draft, const char *key, Loc loc, const Value *v, PpOptions *o)
{
    bool call = strcmp(key, "pp.schedule") == 0 && v->kind == RECORD_other &&
                strcmp(v->text, "function") == 0;
    bool csv = strcmp(key, "pp.csv") == 0 && v->kind == RECORD_text;
    bool twice = strcmp(key, "pp.schedule") == 0 && o->csv;
    if (twice) {
        diag_error(draft->d, FAULT_input, "pp-two-schedules", loc,
                   "pp: both schedule and csv = \"%s\" say who does what when", o->csv);
        diag_hint(draft->d, "leave out one of them");
    }
    if (csv) o->csv = v->text;
    o->is_own = o->is_own || call || csv;
    return call || csv;
}

/* tp { plan = { ["layers.*.attention.wo"] = "rowwise" } }: one pattern. */
static void plan_style_field(Draft *draft, const char *key, Loc loc, Value *v, TpOptions *o)
{
    static const char *const styles[] = {
#define X(name) #name,
        TP_PLAN_STYLES(X)
#undef X
            NULL};
    static const Field field = {"tp.plan", FIELD_word, 0, 0, 0, styles};
    Pattern p = {.path = key + strlen("tp.plan."), .loc = loc};
    if (p.path[strspn(p.path, "0123456789")] == 0) {
        diag_error(draft->d, FAULT_input, "wrong-type", loc, "tp.plan: a style needs a path");
        diag_hint(draft->d, "plan = { [\"layers.*.attention.wo\"] = \"rowwise\" }");
    } else if (v->kind != RECORD_text)
        draft_wrong_type(draft, key, &field, loc, v);
    else if (draft_word(draft, key, &field, loc, v, &p.style))
        list_push(draft->arena, &o->plan, p);
}

/* fsdp2 { units = { "layers.*" } }: one pattern of a list called `what`. */
static void pattern_field(Draft *draft, const char *what, const char *key, Loc loc, Value *v,
                          Patterns *patterns)
{
    bool of_ops = strcmp(what, "ac.ops") == 0;
    Pattern p = {.path = v->text, .loc = loc};
    const char *item = key + strlen(what) + 1;
    if (v->kind == RECORD_text && item[strspn(item, "0123456789")] == 0)
        list_push(draft->arena, patterns, p);
    else
        diag_error(
            draft->d, FAULT_input, "wrong-type", loc, "%s is a list of %s }; not %s = %s", what,
            of_ops ? "ops' names, like { \"attention\"" : "modules' paths, like { \"layers.*\"",
            item, draft_shown(draft->arena, v));
}

/* A mode and a list of modules would both say what is recomputed. "none" turns the list off. */
static void modules_field(Draft *draft, const char *key, Loc loc, Value *v, PassConfig *pass,
                          bool has_mode)
{
    if (has_mode && pass->ac_modules.n == 0 && pass->ac != AC_none && pass->ac != AC_modules) {
        diag_error(draft->d, FAULT_input, "ac-modules", loc,
                   "ac: both mode and modules say what is recomputed");
        diag_hint(draft->d, "leave out mode, or mode = \"none\" to recompute nothing");
    }
    if (pass->ac != AC_none) pass->ac = AC_modules;
    pattern_field(draft, "ac.modules", key, loc, v, &pass->ac_modules);
}

bool draft_actions(Draft *draft, Reader *r)
{
    OwnRank rank = {.loc = draft_place(draft, r)};
    uint32_t n = get_u32(r);
    PpOptions *pp = NULL;
    for (uint32_t i = 0; i < draft->config.n_passes && !pp; i++)
        if (draft->config.passes[i].name == PASS_pp) pp = &draft->config.passes[i].pp;
    if (!pp || !pp->is_own || pp->own.n == MAX_STAGES) return false;
    for (uint32_t i = 0; i < n && !r->bad; i++) {
        uint32_t kind = get_u32(r), stage = get_u32(r), microbatch = get_u32(r);
        if (kind >= ACTION_COUNT) return false;
        Action a = {(ActionKind)kind, stage, microbatch};
        list_push(draft->arena, &rank.actions, a);
    }
    list_push(draft->arena, &pp->own, rank);
    return reader_finished(r);
}

/* Below a table that is unknown itself it has been said already. */
static void unknown(Draft *draft, const char *key, const char *pass, Loc loc)
{
    const char *dot = strrchr(key, '.');
    assert(dot);
    const char *parent = arena_copy(draft->arena, key, (size_t)(dot - key));
    const Field *within = field_of_pass(parent);
    if (strcmp(parent, pass) == 0 || (within && within->kind == FIELD_table))
        draft_unknown_key(draft, key, parent, true, loc);
}

/* Lists without which a pass takes everything: empty, they name nothing. zero.units = {} has a
 * meaning of its own. */
static const struct {
    const char *key, *without;
} lists_of_modules[] = {
    {"ac.modules", "ac \"full\" recomputes every block, ac \"none\" nothing"},
    {"float8.only", "leave out only to cover every linear, or leave out float8{}"},
    {"fsdp2.units", "leave out units for one a block; zero { units = {} } makes the whole model "
                    "one unit"},
};
enum { N_LISTS = sizeof lists_of_modules / sizeof *lists_of_modules };

static bool is_list_of_modules(const char *key)
{
    for (size_t i = 0; i < N_LISTS; i++)
        if (strcmp(lists_of_modules[i].key, key) == 0) return true;
    return false;
}

void draft_check_lists(Draft *draft)
{
    for (uint32_t k = 0; k < draft->lists.n; k++) {
        const NamedList *list = &draft->lists.at[k];
        size_t n = strlen(list->path);
        bool empty = true;
        for (uint32_t i = 0; i < draft->seen.n && empty; i++)
            empty = strncmp(draft->seen.at[i].path, list->path, n) != 0 ||
                    draft->seen.at[i].path[n] != '.';
        if (!empty) continue;
        diag_error(draft->d, FAULT_input, "empty-list", list->loc,
                   "%s = {}: an empty list names nothing, and without a list all would be meant",
                   list->key);
        for (size_t i = 0; i < N_LISTS; i++)
            if (strcmp(lists_of_modules[i].key, list->key) == 0)
                diag_hint(draft->d, "%s", lists_of_modules[i].without);
    }
}

/* That a list was named, be it empty. */
static void note_list(Draft *draft, const char *path, const char *key, Loc loc, const Value *v,
                      PassConfig *pass)
{
    if (strcmp(key, "pp.split") == 0) pass->pp.has_split = true;
    if (strcmp(key, "zero.units") == 0) pass->zero.has_units = true;
    if (v->kind != RECORD_table || !is_list_of_modules(key)) return;
    NamedList list = {path, key, loc};
    list_push(draft->arena, &draft->lists, list);
}

/* "parallel.2", "parallel.2.kind", "parallel.2.sequence": items come in order, their kind first. */
void draft_pass_field(Draft *draft, const char *path, Loc loc, Value *v)
{
    const char *item = path + strlen("parallel.");
    const char *dot = strchr(item, '.');
    if (strspn(item, "0123456789") != (dot != NULL ? (size_t)(dot - item) : strlen(item))) {
        if (dot == NULL) {
            diag_error(draft->d, FAULT_input, "unknown-key", loc, "unknown key '%s' in parallel{}",
                       item);
            diag_hint(draft->d, "parallel is a list: { tp{}, ac \"full\", fsdp2{} }");
        }
        return;
    }
    if (dot == NULL) {
        if (v->kind == RECORD_table) return; /* its kind comes next, or is missed at the end */
        diag_error(draft->d, FAULT_input, "wrong-type", loc, "%s must be a pass, not %s", path,
                   draft_shown(draft->arena, v));
        diag_hint(draft->d, "parallel is a list: { tp{}, ac \"full\", fsdp2{} }");
        return;
    }
    if (strcmp(dot, ".kind") == 0 && v->kind == RECORD_text) {
        new_pass(draft, arena_copy(draft->arena, path, (size_t)(dot - path)), loc, v->text);
        return;
    }
    if (!draft_has(draft, arena_print(draft->arena, "%.*s.kind", (int)(dot - path), path)) ||
        draft->config.n_passes == 0)
        return;
    PassConfig *pass = &draft->config.passes[draft->config.n_passes - 1];
    const char *key = arena_print(draft->arena, "%s%s", pass_names[pass->name], dot);
    if (strncmp(key, "pp.split.", strlen("pp.split.")) == 0) {
        split_field(draft, key, loc, v, &pass->pp);
        return;
    }
    note_list(draft, path, key, loc, v, pass);
    if (schedule_field(draft, key, loc, v, &pass->pp)) return;
    if (strncmp(key, "tp.plan.", strlen("tp.plan.")) == 0) {
        plan_style_field(draft, key, loc, v, &pass->tp);
        return;
    }
    if (strncmp(key, "ac.modules.", strlen("ac.modules.")) == 0) {
        bool mode =
            draft_has(draft, arena_print(draft->arena, "%.*s.mode", (int)(dot - path), path));
        modules_field(draft, key, loc, v, pass, mode);
        return;
    }
    if (strncmp(key, "ac.ops.", strlen("ac.ops.")) == 0) {
        pattern_field(draft, "ac.ops", key, loc, v, &pass->ac_ops);
        return;
    }
    if (strncmp(key, "float8.skip.", strlen("float8.skip.")) == 0) {
        pattern_field(draft, "float8.skip", key, loc, v, &pass->float8.skip);
        return;
    }
    if (strncmp(key, "float8.only.", strlen("float8.only.")) == 0) {
        pattern_field(draft, "float8.only", key, loc, v, &pass->float8.only);
        return;
    }
    if (strncmp(key, "fsdp2.units.", strlen("fsdp2.units.")) == 0) {
        pattern_field(draft, "fsdp2.units", key, loc, v, &pass->fsdp2.units);
        return;
    }
    if (strncmp(key, "zero.units.", strlen("zero.units.")) == 0) {
        pattern_field(draft, "zero.units", key, loc, v, &pass->zero.units);
        return;
    }
    const Field *f = field_of_pass(key);
    if (f == NULL)
        unknown(draft, key, pass_names[pass->name], loc);
    else
        draft_store(draft, key, f, loc, v, (char *)pass + f->offset);
}
