/* Reads the plan's own pipeline schedule: the result of the script's function pp.schedule, or the
 * CSV file pp.csv. The file has the format of torch.distributed.pipelining, one line for each
 * pipeline rank: "0F0,0F1,0I0,0W0" (stage, action, micro-batch). The lists of actions are sent as
 * they are; the parent checks that they form a valid schedule. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "planner/front/child/child.h"

enum { MOST_ACTIONS = 1 << 20, MOST_NUMBER = 1 << 20, MOST_CELLS = 1 << 22 };

/* Words of torch's CSV files besides the actions F, B, I and W: communication and FSDP. Tandem
 * derives its own communication, so it only checks these. */
#define COMMS(X) X(SEND_F) X(RECV_F) X(SEND_B) X(RECV_B) X(UNSHARD) X(RESHARD) X(REDUCE_GRAD)
typedef enum ScheduleTokenKind {
#define X(name) TOKEN_##name,
    ACTIONS(X) COMMS(X)
#undef X
        TOKEN_COUNT
} ScheduleTokenKind;
static const char *const token_names[] = {
#define X(name) #name,
    ACTIONS(X) COMMS(X)
#undef X
};

typedef struct ScheduleToken {
    ScheduleTokenKind kind;
    uint32_t stage, microbatch, row;
} ScheduleToken;

typedef struct ScheduleCsv {
    Child *c;
    uint32_t source, n_rows;
    LIST(ScheduleToken) tokens;
} ScheduleCsv;

static ScriptLoc row_loc(const ScheduleCsv *csv, uint32_t row)
{
    return (ScriptLoc){csv->source, row + 1};
}

static void send_actions(Child *c, ScriptLoc loc, const ScheduleToken *tokens, uint32_t n)
{
    uint32_t n_actions = 0;
    for (uint32_t i = 0; i < n; i++) n_actions += tokens[i].kind < TOKEN_SEND_F;
    child_send_files(c);
    record_begin(&c->out, RECORD_actions);
    child_put_loc(c, loc);
    put_u32(&c->out, n_actions);
    for (uint32_t i = 0; i < n; i++) {
        if (tokens[i].kind >= TOKEN_SEND_F) continue;
        put_u32(&c->out, (uint32_t)tokens[i].kind);
        put_u32(&c->out, tokens[i].stage);
        put_u32(&c->out, tokens[i].microbatch);
    }
    record_end(&c->out);
}

static bool number(const char **at, uint32_t *out)
{
    char *end;
    if (!isdigit((unsigned char)**at)) return false;
    unsigned long n = strtoul(*at, &end, 10);
    *at = end;
    *out = (uint32_t)n;
    return n < MOST_NUMBER;
}

/* ---- the file ---- */

static _Noreturn void bad_token(const ScheduleCsv *csv, uint32_t row, const char *cell)
{
    child_raise(csv->c->L, "schedule-action", row_loc(csv, row),
                "an action is a stage, a letter (F, B, I or W) and a micro-batch, as in 0F0; "
                "PyTorch's other words, such as 0SEND_F0, are allowed, too",
                "'%.60s' is not an action", cell);
}

/* Reads one word, such as "12SEND_F3", and appends it to csv->tokens. A word for a whole stage,
 * such as "2UNSHARD", has no micro-batch. */
static void read_token(ScheduleCsv *csv, uint32_t row, const char *cell)
{
    ScheduleToken t = {TOKEN_COUNT, 0, 0, row};
    const char *at = cell;
    if (!number(&at, &t.stage)) bad_token(csv, row, cell);
    size_t n = strcspn(at, "0123456789");
    for (int k = 0; k < TOKEN_COUNT; k++)
        if (strlen(token_names[k]) == n && strncmp(token_names[k], at, n) == 0)
            t.kind = (ScheduleTokenKind)k;
    at += n;
    bool whole = t.kind >= TOKEN_UNSHARD && t.kind != TOKEN_COUNT && *at == 0;
    if (t.kind == TOKEN_COUNT || (!whole && !number(&at, &t.microbatch)) || *at != 0)
        bad_token(csv, row, cell);
    _Static_assert(CHILD_MOST_SOURCE / 3 < MOST_ACTIONS, "a file may have too many actions");
    list_push(csv->c->arena, &csv->tokens, t);
}

/* Reads one cell of a line. The cell "(0F1;1B0)OVERLAP_F_B" means that torch runs the two actions
 * at the same time; Tandem runs them one after the other. */
static void read_cell(ScheduleCsv *csv, uint32_t row, char *cell)
{
    static const char together[] = ")OVERLAP_F_B";
    size_t n = strlen(cell);
    if (n == 0) return; /* in this time slot, the rank does nothing */
    if (cell[0] != '(') {
        read_token(csv, row, cell);
        return;
    }
    const char *end = strchr(cell, ')');
    if (!end || strcmp(end, together) != 0) bad_token(csv, row, cell);
    cell[n - strlen(together)] = 0;
    for (char *part = cell + 1; part != NULL;) {
        char *next = strchr(part, ';');
        if (next) *next++ = 0;
        read_token(csv, row, part);
        part = next;
    }
}

static void read_row(ScheduleCsv *csv, uint32_t row, const char *line, size_t n)
{
    char *text = arena_alloc(csv->c->arena, n + 1);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!isspace((unsigned char)line[i]) && line[i] != '"') text[kept++] = line[i];
    text[kept] = 0;
    for (char *cell = text; cell != NULL;) {
        char *next = strchr(cell, ',');
        if (next) *next++ = 0;
        read_cell(csv, row, cell);
        cell = next;
    }
}

/* Where the words about one stage and one micro-batch are: each member is 1 + an index in
 * ScheduleCsv.tokens; 0: there is no such word. */
typedef struct Cell {
    uint32_t forward, backward, comm[4]; /* SEND_F, RECV_F, SEND_B, RECV_B */
} Cell;

typedef struct Cells {
    Cell *at;
    uint32_t n_stages, n_microbatches;
} Cells;

static Cells fill_cells(const ScheduleCsv *csv)
{
    Cells cells = {.n_stages = 0};
    for (uint32_t i = 0; i < csv->tokens.n; i++) {
        const ScheduleToken *t = &csv->tokens.at[i];
        if (t->stage >= cells.n_stages) cells.n_stages = t->stage + 1;
        if (t->microbatch >= cells.n_microbatches) cells.n_microbatches = t->microbatch + 1;
    }
    if ((uint64_t)cells.n_stages * cells.n_microbatches > MOST_CELLS)
        child_raise(csv->c->L, "out-of-range", row_loc(csv, 0), NULL,
                    "%u stages times %u micro-batches are more than %d, which is too many",
                    cells.n_stages, cells.n_microbatches, MOST_CELLS);
    cells.at = arena_array(csv->c->arena, (size_t)cells.n_stages * cells.n_microbatches + 1,
                           sizeof *cells.at);
    for (uint32_t i = 0; i < csv->tokens.n; i++) {
        const ScheduleToken *t = &csv->tokens.at[i];
        Cell *at = &cells.at[t->stage * cells.n_microbatches + t->microbatch];
        if (t->kind == TOKEN_F) at->forward = i + 1;
        if (t->kind == TOKEN_B || t->kind == TOKEN_I) at->backward = i + 1;
        if (t->kind >= TOKEN_SEND_F && t->kind <= TOKEN_RECV_B)
            at->comm[t->kind - TOKEN_SEND_F] = i + 1;
    }
    return cells;
}

static _Noreturn void bad_comm(const ScheduleCsv *csv, const ScheduleToken *t, const char *what)
{
    child_raise(csv->c->L, "schedule-comms", row_loc(csv, t->row),
                "leave communications out of the file, because Tandem derives its own", "%u%s%u %s",
                t->stage, token_names[t->kind], t->microbatch, what);
}

/* Checks csv->tokens[i], a send or a receive. A send must follow the action that computes the data,
 * and another rank must have the matching receive. A receive must precede the action that reads the
 * data. */
static void check_comm(const ScheduleCsv *csv, const Cells *cells, uint32_t i)
{
    const ScheduleToken *t = &csv->tokens.at[i];
    bool forward = t->kind == TOKEN_SEND_F || t->kind == TOKEN_RECV_F,
         send = t->kind == TOKEN_SEND_F || t->kind == TOKEN_SEND_B;
    const Cell *own = &cells->at[t->stage * cells->n_microbatches + t->microbatch];
    uint32_t compute = forward ? own->forward : own->backward;
    if (!compute || csv->tokens.at[compute - 1].row != t->row)
        bad_comm(csv, t, "is not on the line of the rank that computes its stage and micro-batch");
    if (send && compute > i + 1) bad_comm(csv, t, "comes before the action that makes its data");
    if (!send && compute < i + 1) bad_comm(csv, t, "comes after the action that reads its data");
    /* the other rank runs the next stage; false: the previous stage */
    bool up = forward == send;
    if (up ? t->stage + 1 == cells->n_stages : t->stage == 0)
        bad_comm(csv, t, "has no stage to communicate with");
    uint32_t peer = up ? t->stage + 1 : t->stage - 1;
    ScheduleTokenKind wanted =
        forward ? (send ? TOKEN_RECV_F : TOKEN_SEND_F) : (send ? TOKEN_RECV_B : TOKEN_SEND_B);
    const Cell *other = &cells->at[peer * cells->n_microbatches + t->microbatch];
    uint32_t met = other->comm[wanted - TOKEN_SEND_F];
    if (!met)
        bad_comm(csv, t,
                 arena_print(csv->c->arena, "has no matching %u%s%u on another rank", peer,
                             token_names[wanted], t->microbatch));
    if (csv->tokens.at[met - 1].row == t->row)
        bad_comm(csv, t, "would send data from a rank to itself");
}

static void check_comms(const ScheduleCsv *csv)
{
    uint32_t n = 0, first = 0;
    for (uint32_t i = 0; i < csv->tokens.n; i++) {
        if (csv->tokens.at[i].kind < TOKEN_SEND_F) continue;
        if (!n++) first = csv->tokens.at[i].row;
    }
    if (!n) return;
    Cells cells = fill_cells(csv);
    for (uint32_t i = 0; i < csv->tokens.n; i++)
        if (csv->tokens.at[i].kind >= TOKEN_SEND_F && csv->tokens.at[i].kind <= TOKEN_RECV_B)
            check_comm(csv, &cells, i);
    child_write_error(
        csv->c, "schedule-comms-ignored", row_loc(csv, first),
        arena_print(csv->c->arena,
                    "the %u communications of the file are correct, but Tandem uses its own", n),
        NULL, SEVERITY_note);
}

/* Returns the text of the file after its byte-order mark, and sets *end to its end. Raises an error
 * if the file contains a 0 byte, at which C's string functions would stop. */
static const char *text_of(const ScheduleCsv *csv, const char **end)
{
    const char *text = csv->c->source[csv->source].text;
    size_t n = csv->c->source[csv->source].n;
    *end = text + n;
    const char *nul = n > 0 ? memchr(text, 0, n) : NULL;
    uint32_t row = 0;
    for (const char *at = text; nul != NULL && at < nul; at++) row += *at == '\n';
    if (nul != NULL)
        child_raise(csv->c->L, "schedule-action", row_loc(csv, row),
                    "save the file as UTF-8 text with one line for each rank",
                    "the schedule contains a byte 0, so it is not a text");
    bool mark = n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0;
    return text + (mark ? 3 : 0);
}

static void read_csv(Child *c, const char *path, ScriptLoc loc)
{
    ScheduleCsv csv = {.c = c};
    csv.source = child_read_beside(c, path, loc);
    const char *end, *at = text_of(&csv, &end);
    while (end > at && isspace((unsigned char)end[-1])) end--;
    LIST(uint32_t) firsts = {0};
    while (at < end) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        if (!line) line = end;
        list_push(c->arena, &firsts, csv.tokens.n);
        if (csv.n_rows == MAX_STAGES)
            child_raise(c->L, "out-of-range", row_loc(&csv, csv.n_rows), NULL,
                        "the schedule has more than %d lines", MAX_STAGES);
        read_row(&csv, csv.n_rows++, at, (size_t)(line - at));
        at = line + 1;
    }
    if (csv.n_rows == 0)
        child_raise(c->L, "schedule-ranks", row_loc(&csv, 0),
                    "the file needs one line for each pipeline rank", "the schedule is empty");
    check_comms(&csv);
    for (uint32_t row = 0; row < csv.n_rows; row++) {
        uint32_t first = firsts.at[row],
                 to = row + 1 < csv.n_rows ? firsts.at[row + 1] : csv.tokens.n;
        send_actions(c, row_loc(&csv, row), csv.tokens.at + first, to - first);
    }
}

/* ---- the function ---- */

/* Reads an action that the user's function returned, such as "F0.3": forward of stage 0 for
 * micro-batch 3. */
static ScheduleToken read_text(Child *c, ScriptLoc loc, const char *text, uint32_t rank)
{
    ScheduleToken t = {TOKEN_COUNT, 0, 0, rank};
    const char *at = text + (text[0] != 0);
    for (int k = 0; k < TOKEN_SEND_F; k++)
        if (text[0] == token_names[k][0]) t.kind = (ScheduleTokenKind)k;
    bool fine = t.kind != TOKEN_COUNT && number(&at, &t.stage) && *at == '.';
    at += fine;
    if (!fine || !number(&at, &t.microbatch) || *at != 0)
        child_raise(
            c->L, "schedule-action", loc,
            "an action is a letter (F, B, I or W), a stage, a point and a micro-batch, as in F0.0",
            "schedule: '%.60s' in the list of rank %u is not an action", text, rank);
    return t;
}

/* Returns the length of the list on top of the stack. Raises an error unless its keys are 1 to n,
 * because items after a gap or under other keys would be ignored. */
static uint32_t count_list(Child *c, ScriptLoc loc, uint32_t rank)
{
    lua_State *L = c->L;
    static const char hint[] = "give each rank a list without gaps, as in { \"F0.0\", ... }";
    lua_Integer n = 0, last = 0;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        lua_Integer key = lua_isinteger(L, -2) ? lua_tointeger(L, -2) : 0;
        if (key < 1)
            child_raise(
                L, "schedule-action", loc, hint,
                "schedule: the list of rank %u has the key %s, but only numbers are allowed", rank,
                lua_isinteger(L, -2)
                    ? arena_print(c->arena, "%lld", (long long)lua_tointeger(L, -2))
                : lua_type(L, -2) == LUA_TSTRING
                    ? arena_print(c->arena, "'%.60s'", lua_tostring(L, -2))
                    : arena_print(c->arena, "a %s", luaL_typename(L, -2)));
        last = key > last ? key : last;
        if (++n > MOST_ACTIONS)
            child_raise(L, "out-of-range", loc, NULL, "the schedule has more than %d actions",
                        MOST_ACTIONS);
    }
    if (last == n) return (uint32_t)n;
    lua_Integer hole = 1;
    while (lua_rawgeti(L, -1, hole) != LUA_TNIL) {
        lua_pop(L, 1);
        hole++;
    }
    child_raise(L, "schedule-action", loc, hint,
                "schedule: the list of rank %u has no entry %lld, but an entry %lld", rank,
                (long long)hole, (long long)last);
}

/* Reads the list of actions of pipeline rank `rank` from the top of the stack, and sends it. */
static void read_list(Child *c, ScriptLoc loc, uint32_t rank)
{
    lua_State *L = c->L;
    LIST(ScheduleToken) tokens = {0};
    if (lua_type(L, -1) != LUA_TTABLE)
        child_raise(L, "schedule-ranks", loc, "return { [0] = { \"F0.0\", ... }, [1] = ... }",
                    "schedule: there is %s list for rank %u", lua_isnil(L, -1) ? "no" : "no proper",
                    rank);
    uint32_t n = count_list(c, loc, rank);
    for (uint32_t i = 1; i <= n; i++) {
        lua_rawgeti(L, -1, (lua_Integer)i);
        size_t length = 0;
        const char *text = luaL_typename(L, -1);
        if (lua_type(L, -1) == LUA_TSTRING) text = lua_tolstring(L, -1, &length);
        if (length > strlen(text))
            child_raise(
                L, "schedule-action", loc,
                "an action is a letter (F, B, I or W), a stage, a point and a micro-batch, as in "
                "F0.0",
                "schedule: '%.60s' in the list of rank %u ends in a byte 0, so it is not an action",
                text, rank);
        ScheduleToken t = read_text(c, loc, text, rank);
        list_push(c->arena, &tokens, t);
        lua_pop(L, 1);
    }
    send_actions(c, loc, tokens.at, tokens.n);
}

/* Checks that the table on top of the stack has only the keys 0 to p - 1, one list for each
 * pipeline rank. */
static void check_keys(Child *c, ScriptLoc loc, uint32_t p)
{
    lua_State *L = c->L;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        lua_Integer key = lua_isinteger(L, -2) ? lua_tointeger(L, -2) : -1;
        if (key < 0 || key >= p)
            child_raise(L, "schedule-ranks", loc,
                        "ranks count from 0, as in { [0] = { ... }, [1] = { ... } }",
                        "schedule: there is a list for rank %s, but the mesh has %u ranks, 0 to %u",
                        lua_isinteger(L, -2)
                            ? arena_print(c->arena, "%lld", (long long)lua_tointeger(L, -2))
                            : luaL_typename(L, -2),
                        p, p - 1);
    }
}

/* Returns the line on which the function on top of the stack begins, or `otherwise` if it is
 * unknown. */
static ScriptLoc function_loc(Child *c, ScriptLoc otherwise)
{
    lua_State *L = c->L;
    lua_Debug ar;
    lua_pushvalue(L, -1);
    if (!lua_getinfo(L, ">S", &ar) || ar.source[0] != '=' || ar.linedefined <= 0) return otherwise;
    unsigned long source = strtoul(ar.source + 1, NULL, 10);
    if (source == 0 || source > c->n_sources) return otherwise;
    return (ScriptLoc){(uint32_t)source, (uint32_t)ar.linedefined};
}

/* Pushes the table of pp{} from the plan on top of the stack, and sets *loc to its line. Returns
 * false if the plan has no pp{}. */
static bool push_pp(Child *c, ScriptLoc *loc)
{
    lua_State *L = c->L;
    if (lua_getfield(L, -1, "parallel") == LUA_TTABLE) {
        lua_Unsigned n = lua_rawlen(L, -1);
        for (lua_Unsigned i = 1; i <= n; i++) {
            lua_rawgeti(L, -1, (lua_Integer)i);
            const char *kind = child_kind(L, -1, loc);
            if (kind != NULL && strcmp(kind, "pp") == 0) {
                lua_remove(L, -2);
                return true;
            }
            lua_pop(L, 1);
        }
    }
    lua_pop(L, 1);
    return false;
}

void child_schedule_file(Child *c)
{
    lua_State *L = c->L;
    ScriptLoc loc;
    if (!push_pp(c, &loc)) return;
    if (lua_getfield(L, -1, "csv") == LUA_TSTRING)
        read_csv(c, arena_dup(c->arena, lua_tostring(L, -1)), loc);
    lua_pop(L, 2);
}

void child_schedule_call(Child *c)
{
    lua_State *L = c->L;
    ScriptLoc loc;
    uint32_t p = c->answer.axis_size[axes_first(axes_with(AXIS_STAGES))];
    if (p < 2 || !push_pp(c, &loc)) return;
    if (lua_getfield(L, -1, "schedule") == LUA_TFUNCTION) {
        loc = function_loc(c, loc);
        if (p > MAX_STAGES)
            child_raise(L, "out-of-range", loc, NULL, "schedule: there are more than %d ranks",
                        MAX_STAGES);
        lua_pushinteger(L, p);
        lua_pushinteger(L, c->answer.microbatches);
        lua_pushinteger(L, c->answer.stages / p);
        lua_call(L, 3, 1);
        if (lua_type(L, -1) != LUA_TTABLE)
            child_raise(L, "schedule-ranks", loc, "return { [0] = { \"F0.0\", ... }, [1] = ... }",
                        "schedule returns %s, but must return a list for each rank",
                        luaL_typename(L, -1));
        check_keys(c, loc, p);
        for (uint32_t r = 0; r < p; r++) {
            lua_rawgeti(L, -1, r);
            read_list(c, loc, r);
            lua_pop(L, 1);
        }
    }
    lua_pop(L, 2);
}
