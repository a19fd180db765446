/* Source locations and errors of the child, the process that evaluates a script (child.h). Every
 * failure becomes a RECORD_error with a line of the script. */
#include "planner/front/child/child.h"
#include "planner/front/shipped/shipped.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char error_key[] = "tandem.error";

uint32_t child_source(Child *c, const Source *source)
{
    if (c->n_sources - c->n_sets >= CHILD_MOST_FILES)
        child_raise(c->L, "too-many-files", child_loc(c, true), NULL,
                    "a plan may consist of at most %d files", CHILD_MOST_FILES);
    c->source[++c->n_sources] = *source;
    return c->n_sources;
}

void child_send_files(Child *c)
{
    while (c->n_files_sent < c->n_sources) {
        const char *name = c->source[++c->n_files_sent].name;
        record_begin(&c->out, RECORD_file);
        put_text(&c->out, name, strlen(name));
        record_end(&c->out);
    }
}

void child_put_loc(Child *c, ScriptLoc loc)
{
    assert(loc.source <= c->n_files_sent);
    put_u32(&c->out, loc.source);
    put_u32(&c->out, loc.line);
}

/* If `loc` is a line of the library, returns the line of the user's script that called it, so that
 * messages can show both lines. While a model of the library is traced, this is the line of `model`
 * in the plan. Returns source 0 if `loc` is not in the library, or no user script is on the call
 * stack. */
static ScriptLoc user_of(Child *c, ScriptLoc loc)
{
    if (loc.source == 0 || !c->source[loc.source].shipped) return (ScriptLoc){0, 0};
    const ScriptLoc user = child_plan_loc(c);
    if (user.source != 0 || c->source[c->model_loc.source].shipped) return user;
    return c->model_loc;
}

static void write_error(Child *c, const char *rule, ScriptLoc loc, ScriptLoc user, const char *text,
                        const char *hint, Severity severity)
{
    const ScriptLoc none = {0, 0};
    child_send_files(c);
    record_begin(&c->out, RECORD_error);
    put_u32(&c->out, (uint32_t)severity);
    put_text(&c->out, rule, strlen(rule));
    child_put_loc(c, user.source != 0 ? user : loc);
    child_put_loc(c, user.source != 0 ? loc : none);
    put_text(&c->out, text, strlen(text));
    put_text(&c->out, hint != NULL ? hint : "", hint != NULL ? strlen(hint) : 0);
    record_end(&c->out);
    c->failed = c->failed || severity == SEVERITY_error;
}

void child_write_error(Child *c, const char *rule, ScriptLoc loc, const char *text,
                       const char *hint, Severity severity)
{
    write_error(c, rule, loc, user_of(c, loc), text, hint, severity);
}

const char *child_nearest(lua_State *L, const char *word, int list)
{
    Child *c = child_of(L);
    lua_Unsigned n = lua_rawlen(L, list);
    const char **words = arena_array(c->arena, n > 0 ? n : 1, sizeof *words);
    for (lua_Unsigned i = 0; i < n; i++) {
        lua_rawgeti(L, list, (lua_Integer)i + 1);
        words[i] = lua_type(L, -1) == LUA_TSTRING ? arena_dup(c->arena, lua_tostring(L, -1)) : "";
        lua_pop(L, 1);
    }
    return str_nearest(word, words, n);
}

const char *child_near(lua_State *L, const char *word, int list)
{
    const char *near = child_nearest(L, word, list);
    return near == NULL ? NULL : arena_print(child_of(L)->arena, "did you mean '%s'?", near);
}

const char *child_near_or_all(lua_State *L, const char *word, int list)
{
    const char *near = child_near(L, word, list);
    if (near != NULL) return near;
    Str all = str_in(child_of(L)->arena);
    for (lua_Unsigned i = 1; i <= lua_rawlen(L, list); i++) {
        lua_rawgeti(L, list, (lua_Integer)i);
        str_print(&all, "%s%s", i > 1 ? ", " : "names: ", lua_tostring(L, -1));
        lua_pop(L, 1);
    }
    return all.n > 0 ? str_text(&all) : NULL;
}

/* Tandem's error value for Lua's error handling: a userdata, which scripts can neither read nor
 * change. Its user values are the rule id, the message and the hint. */
typedef struct RaisedAt {
    ScriptLoc loc, user;
} RaisedAt;
enum { ERROR_RULE = 1, ERROR_TEXT, ERROR_HINT, ERROR_PARTS = ERROR_HINT };

static void push_error(lua_State *L, const char *rule, ScriptLoc loc, const char *text,
                       const char *hint)
{
    RaisedAt *at = lua_newuserdatauv(L, sizeof *at, ERROR_PARTS);
    *at = (RaisedAt){loc, user_of(child_of(L), loc)};
    const char *const parts[] = {rule, text, hint};
    for (int i = 0; i < ERROR_PARTS; i++) {
        lua_pushstring(L, parts[i]);
        lua_setiuservalue(L, -2, ERROR_RULE + i);
    }
    luaL_setmetatable(L, error_key);
}

/* Returns user value `part` (ERROR_RULE, ERROR_TEXT or ERROR_HINT) of the error value at `index`,
 * or NULL if it is nil. */
static const char *error_part(lua_State *L, int index, int part)
{
    lua_getiuservalue(L, index, part);
    const char *text = lua_tostring(L, -1);
    lua_pop(L, 1);
    return text;
}

_Noreturn void child_raise(lua_State *L, const char *rule, ScriptLoc loc, const char *hint,
                           const char *format, ...)
{
    Str text = str_in(child_of(L)->arena);
    va_list args;
    va_start(args, format);
    str_vprint(&text, format, args);
    va_end(args);
    push_error(L, rule, loc, str_text(&text), hint);
    lua_error(L);
    abort(); /* lua_error does not return */
}

void child_check_text(Child *c, const char *what, const char *text, size_t n, ScriptLoc loc)
{
    size_t bad = str_unreadable(text, n);
    if (bad == n) return;
    child_raise(c->L, "unreadable-text", loc, "use UTF-8 without control characters",
                "%s: byte %zu of the text is 0x%02x", what, bad + 1,
                (unsigned)(unsigned char)text[bad]);
}

/* Returns the value at `index` if it is Tandem's error value, otherwise NULL. */
static const RaisedAt *raised(lua_State *L, int index)
{
    return luaL_testudata(L, index, error_key);
}

static int error_text(lua_State *L)
{
    lua_getiuservalue(L, 1, ERROR_TEXT);
    return 1;
}

void child_open_errors(lua_State *L)
{
    luaL_newmetatable(L, error_key);
    lua_pushcfunction(L, error_text);
    lua_setfield(L, -2, "__tostring");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}

/* Splits Lua's message "3:14: text" into the location (source 3, line 14) and the text. A message
 * that was caught and raised again has several locations in front; the last of them is the original
 * one. */
static const char *strip_places(const Child *c, const char *text, ScriptLoc *loc)
{
    for (;;) {
        char *colon, *end;
        unsigned long source = strtoul(text, &colon, 10);
        if (colon == text || *colon != ':') return text;
        unsigned long line = strtoul(colon + 1, &end, 10);
        if (end == colon + 1 || end[0] != ':' || end[1] != ' ') return text;
        if (source == 0 || source > c->n_sources || line == 0 || line > UINT32_MAX) return text;
        *loc = (ScriptLoc){(uint32_t)source, (uint32_t)line};
        text = end + 2;
    }
}

static const char *syntax_hint(Child *c, const char *text, ScriptLoc loc)
{
    if (strstr(text, "'}' expected") != NULL && loc.line > 1)
        return arena_print(c->arena, "a ',' may be missing on line %u or before it", loc.line - 1);
    if (strstr(text, "C stack overflow") != NULL) return "the script may be nested too deeply";
    if (strstr(text, "'end' expected") != NULL) return "a function, if, for or while is not closed";
    if (strstr(text, "unexpected symbol near '<\\27>'") != NULL) return "only text is read";
    return NULL;
}

static const char *nil_hint(Child *c, const char *text)
{
    const char *field = strstr(text, "nil value (field '");
    if (field == NULL) return NULL;
    field += strlen("nil value (field '");
    size_t n = strcspn(field, "'");
    return arena_print(c->arena, "there is no '%.*s'; check the spelling", (int)n, field);
}

/* lua_pcall calls this before it unwinds the stack, so the line that raised the error is still
 * known. */
int child_on_error(lua_State *L)
{
    Child *c = child_of(L);
    if (raised(L, 1) != NULL) return 1;
    const char *text = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : NULL;
    if (text == NULL) {
        lua_pushfstring(L, "the script calls error() with a %s, but only a text can be printed",
                        luaL_typename(L, 1));
        text = lua_tostring(L, -1);
    }
    ScriptLoc loc = {0, 0};
    text = strip_places(c, text, &loc);
    if (loc.source == 0 || c->source[loc.source].library) {
        ScriptLoc user = child_loc(c, true);
        if (user.source != 0) loc = user;
    }
    push_error(L, "lua-error", loc, text, nil_hint(c, text));
    return 1;
}

static void report_stop(Child *c)
{
    if (c->flooded) {
        const char *flood =
            arena_print(c->arena, "the script prints more than %d KiB", CHILD_MOST_PRINTED >> 10);
        child_write_error(c, "output-limit", c->stop_loc, flood, "look for a print in a loop",
                          SEVERITY_error);
        return;
    }
    const char *text =
        arena_print(c->arena, "the script was stopped after %g s of processor time", c->cpu_s);
    child_write_error(c, "no-progress", c->stop_loc, text, "look for a loop that does not end",
                      SEVERITY_error);
}

/* Sends the error on top of the stack, for which lua_pcall returned `status`, as a RECORD_error. A
 * stop by a limit has priority over that error. */
static void report(Child *c, int status)
{
    lua_State *L = c->L;
    if (c->system_refused) child_out_of_memory(NULL);
    if (c->flooded || c->fired > 0) {
        report_stop(c);
    } else if (status == LUA_ERRMEM || raised(L, -1) == NULL) {
        const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "error";
        ScriptLoc loc = c->memory_loc;
        if (status == LUA_ERRMEM)
            text = arena_print(c->arena, "the script needs more than %d MiB of memory",
                               CHILD_MOST_LUA_BYTES >> 20);
        else
            text = strip_places(c, arena_dup(c->arena, text), &loc);
        child_write_error(c, status == LUA_ERRMEM ? "memory-limit" : "lua-error", loc, text, NULL,
                          SEVERITY_error);
    } else {
        const RaisedAt *at = raised(L, -1);
        const char *rule = error_part(L, -1, ERROR_RULE);
        /* core.stop raised this error with an empty rule to end the script; the real errors are
         * already sent */
        if (rule[0] == 0 && c->failed) return;
        write_error(c, rule, at->loc, at->user, error_part(L, -1, ERROR_TEXT),
                    error_part(L, -1, ERROR_HINT), SEVERITY_error);
    }
}

void child_load_text(Child *c, const Source *source)
{
    ScriptLoc loc = {child_source(c, source), 1};
    if (source->n > 0 && source->text[0] == '\033')
        child_raise(c->L, "lua-syntax", loc, "give the text of the script, not compiled code",
                    "%s is compiled Lua, but only text is read", source->name);
    char chunk[16];
    snprintf(chunk, sizeof chunk, "=%u", loc.source);
    if (source->shipped) {
        Source *kept = &c->source[loc.source];
        kept->hash = hash_bytes(source->text, source->n);
        if (shipped_load(c->L, kept->hash, chunk) == LUA_OK) return;
    }
    /* the byte-order mark, with which some editors begin a file */
    static const char mark[] = "\xEF\xBB\xBF";
    size_t skip = source->n >= 3 && memcmp(source->text, mark, 3) == 0 ? 3 : 0;
    const int status = luaL_loadbufferx(c->L, source->text + skip, source->n - skip, chunk, "t");
    if (status == LUA_OK) return;
    if (status == LUA_ERRMEM && c->system_refused) child_out_of_memory(NULL);
    const char *message = lua_tostring(c->L, -1);
    /* not a syntax error: the parser ran out of memory or time */
    if (raised(c->L, -1) != NULL) {
        message = error_part(c->L, -1, ERROR_TEXT);
        loc.line = 0;
    }
    if (message == NULL) message = "cannot be read";
    message = strip_places(c, arena_dup(c->arena, message), &loc);
    child_raise(c->L, "lua-syntax", loc, syntax_hint(c, message, loc), "%s", message);
}

static void send_source(Child *c, const char *name, bool shipped, Hash128 hash)
{
    record_begin(&c->out, RECORD_source);
    put_text(&c->out, name, strlen(name));
    put_u32(&c->out, shipped);
    put_i64(&c->out, (int64_t)hash.hi);
    put_i64(&c->out, (int64_t)hash.lo);
    record_end(&c->out);
}

void child_note_absent(Child *c, const char *name, bool shipped)
{
    for (uint32_t i = 0; i < c->n_absent; i++)
        if (c->absent[i].shipped == shipped && strcmp(c->absent[i].name, name) == 0) return;
    if (c->n_absent == CHILD_MOST_ABSENT) return;
    /* The list is full, so a further missing file cannot be recorded. Record ".", which always
     * exists, instead: a stored result is reused only if all its missing files are still missing,
     * so this one is never reused. */
    const bool last = c->n_absent + 1 == CHILD_MOST_ABSENT;
    c->absent[c->n_absent++] = last ? (Absent){".", false} : (Absent){name, shipped};
}

void child_send_sources(Child *c)
{
    const Hash128 none = {0, 0};
    while (c->n_sources_sent < c->n_sources) {
        Source *s = &c->source[++c->n_sources_sent];
        if (s->text == NULL || s->text == c->code) continue;
        if (s->hash.lo == 0 && s->hash.hi == 0) s->hash = hash_bytes(s->text, s->n);
        send_source(c, s->name, s->shipped, s->hash);
    }
    for (; c->n_absent_sent < c->n_absent; c->n_absent_sent++) {
        const Absent *a = &c->absent[c->n_absent_sent];
        send_source(c, a->name, a->shipped, none);
    }
}

static uint32_t source_lines(Child *c)
{
    uint32_t lines = 0;
    for (uint32_t i = 1; i <= c->n_sources; i++) {
        Source *s = &c->source[i];
        const bool counted = s->n_lines > 0;
        for (size_t k = 0; !counted && s->text != NULL && k < s->n; k++)
            s->n_lines += s->text[k] == '\n';
        lines += s->n_lines;
    }
    return lines;
}

bool child_finish(Child *c, int status)
{
    if (status != LUA_OK)
        report(c, status);
    else if (c->fired > 0)
        report_stop(c);
    child_send_files(c);
    child_send_sources(c);
    record_begin(&c->out, RECORD_done);
    put_u32(&c->out, source_lines(c));
    record_end(&c->out);
    return writer_send(&c->out, c->fd);
}
