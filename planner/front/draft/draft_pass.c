/* Stores the passes of parallel = { tp {}, fsdp2 {} } in a Draft: their options, and the elements
 * of options that are lists. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "planner/front/draft/draft.h"
#include "planner/front/pass_spec.h"

static const char *const pass_names[] = {
#define PASS(name) #name,
#include "planner/front/passes.def"
};

/* Sets option `o` of the pass to its default. An option whose default depends on other values stays
 * zero. */
static void preset(PassConfig *pass, const PassOption *o)
{
    char *at = (char *)pass + o->field.offset;
    if (isnan(o->preset)) return;
    const bool flag = o->preset != 0;
    const uint32_t number = (uint32_t)o->preset;
    const int64_t wide = (int64_t)o->preset;
    switch (o->field.kind) {
    case FIELD_bool:
    case FIELD_offload: memcpy(at, &flag, sizeof flag); break;
    case FIELD_u32:
    case FIELD_word: memcpy(at, &number, sizeof number); break;
    case FIELD_i64:
    case FIELD_u64: memcpy(at, &wide, sizeof wide); break;
    case FIELD_f64:
    case FIELD_rate: memcpy(at, &o->preset, sizeof o->preset); break;
    case FIELD_table:
    case FIELD_text:
    case FIELD_dtype:
    case FIELD_axis:
    case FIELD_reshard:
    case FIELD_choice:
    case FIELD_modules:
    case FIELD_ops:
    case FIELD_styles:
    case FIELD_split: assert(0 && "a kind that has a default in words alone");
    }
}

PassConfig draft_pass_default(PassName name, Loc loc)
{
    PassConfig pass = {.name = name, .loc = loc};
    for (const PassOption *o = pass_specs[name]->options; o && o->field.path; o++) preset(&pass, o);
    return pass;
}

static void new_pass(Draft *draft, const char *path, Loc loc, const char *word)
{
    Config *c = &draft->config;
    uint32_t found = PASS_NAME_COUNT;
    for (uint32_t i = 0; i < PASS_NAME_COUNT; i++)
        if (strcmp(pass_names[i], word) == 0) found = i;
    if (found == PASS_NAME_COUNT) {
        diag_error(draft->d, FAULT_input, "wrong-type", loc, "%s must be a pass, but is %s{}", path,
                   word);
        diag_hint(draft->d, "parallel is a list of passes: %s",
                  draft_list(draft->arena, pass_names, PASS_NAME_COUNT));
    } else if (c->n_passes == MOST_PASSES) {
        diag_error(draft->d, FAULT_input, "out-of-range", loc, "parallel lists more than %d passes",
                   MOST_PASSES);
    } else {
        c->passes[c->n_passes++] = draft_pass_default((PassName)found, loc);
    }
}

/* Stores one element of pp.split = { 9, 8, 8, 7 }, the number of blocks in each stage. Only the
 * first and the last stage may have none. */
static void split_field(Draft *draft, const char *key, Loc loc, Value *v, PpOptions *o)
{
    const char *item = key + strlen("pp.split.");
    bool is_next = strcmp(item, arena_print(draft->arena, "%u", o->n_split + 1)) == 0;
    const bool fits = draft_whole(v) && v->integer >= 0 && v->integer <= 65536;
    if (!is_next || !fits) {
        diag_error(draft->d, FAULT_input, "wrong-type", loc,
                   "pp.split must be a list like { 9, 8, 8, 7 }, but entry %s is %s", item,
                   draft_shown(draft->arena, v));
        diag_hint(
            draft->d,
            fits
                ? "give one number for each stage"
                : "each stage has 1 to 65536 blocks; only the first and the last stage may have 0");
    }
    if (is_next && o->n_split == MAX_STAGES)
        diag_error(draft->d, FAULT_input, "out-of-range", loc, "pp.split has more than %d stages",
                   MAX_STAGES);
    /* store a wrong element, too, otherwise the next one would be reported as out of order */
    else if (is_next)
        o->split[o->n_split++] = fits ? (uint32_t)v->integer : 0;
}

/* Handles pp { schedule = function } and pp { csv = "file" }, and returns true for them. Both only
 * mark the schedule as the user's own; its actions arrive later as RECORD_actions. */
static bool schedule_field(Draft *draft, const char *key, Loc loc, const Value *v, PpOptions *o)
{
    bool call = strcmp(key, "pp.schedule") == 0 && v->kind == RECORD_other &&
                strcmp(v->text, "function") == 0;
    bool csv = strcmp(key, "pp.csv") == 0 && v->kind == RECORD_text;
    bool twice = strcmp(key, "pp.schedule") == 0 && o->csv;
    if (twice) {
        diag_error(draft->d, FAULT_input, "pp-two-schedules", loc,
                   "pp: schedule and csv = \"%s\" exclude each other, because both give the order "
                   "of actions",
                   o->csv);
        diag_hint(draft->d, "leave out one of them");
    }
    if (csv) o->csv = v->text;
    o->is_own = o->is_own || call || csv;
    return call || csv;
}

/* Stores one entry of tp { plan = { ["layers.*.attention.wo"] = "rowwise" } }. */
static void plan_style_field(Draft *draft, const char *key, Loc loc, Value *v, TpOptions *o)
{
    static const char *const styles[] = {
#define X(name) #name,
        TP_PLAN_STYLES(X)
#undef X
            NULL};
    static const Field field = {"tp.plan", FIELD_word, 0, 0, 0, styles};
    Pattern p = {.path = draft_kept(draft, key + strlen("tp.plan.")), .loc = loc};
    if (p.path[strspn(p.path, "0123456789")] == 0) {
        diag_error(draft->d, FAULT_input, "wrong-type", loc, "tp.plan has a style without a path");
        diag_hint(draft->d, "for example plan = { [\"layers.*.attention.wo\"] = \"rowwise\" }");
    } else if (v->kind != RECORD_text)
        draft_wrong_type(draft, key, &field, loc, v);
    else if (draft_word(draft, key, &field, loc, v, &p.style))
        list_push(draft->arena, &o->plan, p);
}

/* Appends one element of a list option such as fsdp2 { units = { "layers.*" } } to `patterns`. */
static void pattern_field(Draft *draft, const Field *field, const char *key, Loc loc, Value *v,
                          Patterns *patterns)
{
    Pattern p = {.path = draft_kept(draft, v->text), .loc = loc};
    const char *item = key + strlen(field->path) + 1;
    if (v->kind == RECORD_text && item[strspn(item, "0123456789")] == 0)
        list_push(draft->arena, patterns, p);
    else
        diag_error(draft->d, FAULT_input, "wrong-type", loc,
                   "%s must be a list of %s }, but it has %s = %s", field->path,
                   field->kind == FIELD_ops ? "ops' names, like { \"attention\""
                                            : "modules' paths, like { \"layers.*\"",
                   item, draft_shown(draft->arena, v));
}

/* Called for each element of ac.modules. Reports an error if ac.mode is given, too, because both
 * choose the modules to recompute; mode = "none" has priority. */
static void regions_say(Draft *draft, Loc loc, PassConfig *pass, bool has_mode)
{
    if (has_mode && pass->ac_modules.n == 0 && pass->ac != AC_none && pass->ac != AC_modules) {
        diag_error(
            draft->d, FAULT_input, "ac-modules", loc,
            "ac: mode and modules exclude each other, because each determines what is recomputed");
        diag_hint(draft->d, "leave out mode; or leave out the list ac.modules");
    }
    if (pass->ac != AC_none) pass->ac = AC_modules;
}

bool draft_actions(Draft *draft, Reader *r)
{
    OwnRank rank = {.loc = draft_read_loc(draft, r)};
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

/* Reports an unknown option `key`, such as "tp.foo". If the table around it is itself unknown, that
 * was already reported. */
static void unknown(Draft *draft, const char *key, const char *pass, Loc loc)
{
    const char *dot = strrchr(key, '.');
    assert(dot);
    const char *parent = arena_copy(draft->arena, key, (size_t)(dot - key));
    const Field *within = field_of_pass(parent);
    if (strcmp(parent, pass) == 0 || (within && field_is_table(within->kind)))
        draft_unknown_key(draft, key, parent, true, loc);
}

static const PassOption *option_of(PassName pass, const char *key)
{
    for (const PassOption *o = pass_specs[pass]->options; o && o->field.path; o++)
        if (strcmp(o->field.path, key) == 0) return o;
    return NULL;
}

/* Returns the list option that has the element `key`: ac.modules for "ac.modules.1". NULL: none. */
static const PassOption *list_of(PassName pass, const char *key)
{
    for (const PassOption *o = pass_specs[pass]->options; o && o->field.path; o++) {
        const size_t n = strlen(o->field.path);
        if (o->field.kind != FIELD_table && field_is_table(o->field.kind) &&
            strncmp(key, o->field.path, n) == 0 && key[n] == '.')
            return o;
    }
    return NULL;
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
                   "%s = {} names no module, which may be a mistake", list->key);
        diag_hint(draft->d, "%s", list->hint);
    }
}

/* Records that the user gave the option `o`, even if it is an empty list (PassOption.named,
 * .empty). */
static void note_list(Draft *draft, const char *path, const PassOption *o, Loc loc, const Value *v,
                      PassConfig *pass)
{
    const bool yes = true;
    if (o->named) memcpy((char *)pass + o->named, &yes, sizeof yes);
    if (v->kind != RECORD_table || !o->empty) return;
    NamedList list = {path, o->field.path, o->empty, loc};
    list_push(draft->arena, &draft->lists, list);
}

/* Stores one element of the list option `list`. key: such as "ac.modules.1". has_mode: the plan
 * gives ac.mode. */
static void item_field(Draft *draft, const Field *list, const char *key, Loc loc, Value *v,
                       PassConfig *pass, bool has_mode)
{
    Patterns *patterns = (Patterns *)(void *)((char *)pass + list->offset);
    if (list->kind == FIELD_split) {
        split_field(draft, key, loc, v, &pass->pp);
    } else if (list->kind == FIELD_styles) {
        plan_style_field(draft, key, loc, v, &pass->tp);
    } else {
        if (patterns == &pass->ac_modules) regions_say(draft, loc, pass, has_mode);
        pattern_field(draft, list, key, loc, v, patterns);
    }
}

void draft_pass_field(Draft *draft, const char *path, Loc loc, Value *v)
{
    const char *item = path + strlen("parallel.");
    const char *dot = strchr(item, '.');
    if (strspn(item, "0123456789") != (dot != NULL ? (size_t)(dot - item) : strlen(item))) {
        if (dot == NULL) {
            diag_error(draft->d, FAULT_input, "unknown-key", loc, "unknown key '%s' in parallel{}",
                       item);
            diag_hint(draft->d,
                      "parallel is a list of passes, as in { tp{}, ac \"full\", fsdp2{} }");
        }
        return;
    }
    if (dot == NULL) {
        /* the next record gives the pass's kind; a missing kind is reported by draft_finish */
        if (v->kind == RECORD_table) return;
        diag_error(draft->d, FAULT_input, "wrong-type", loc, "%s must be a pass, but is %s", path,
                   draft_shown(draft->arena, v));
        diag_hint(draft->d, "parallel is a list of passes, as in { tp{}, ac \"full\", fsdp2{} }");
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
    const PassOption *list = list_of(pass->name, key), *own = option_of(pass->name, key);
    if (list) {
        const char *mode = arena_print(draft->arena, "%.*s.mode", (int)(dot - path), path);
        item_field(draft, &list->field, key, loc, v, pass, draft_has(draft, mode));
        return;
    }
    if (own) note_list(draft, path, own, loc, v, pass);
    if (schedule_field(draft, key, loc, v, &pass->pp)) return;
    if (!own)
        unknown(draft, key, pass_names[pass->name], loc);
    else
        draft_store(draft, key, &own->field, loc, v, (char *)pass + own->field.offset);
}
