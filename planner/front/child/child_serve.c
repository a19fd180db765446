/* A held script. It was run once, up to its return value, the plan. Each request names settings.
 * The answer is the same as if the script were run again with these settings, but faster:
 *
 * - The settings change the plan's tables in place. After the answer, every table gets its old
 *   content back.
 * - Functions of the script (a model, a schedule) may change any Lua value, so they run in a fork
 *   of this process.
 * - If settings load scripts or change the model's config, the whole request runs in a fork. */
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "planner/front/child/child.h"

enum {
    MOST_NESTING = 16,
    MOST_TABLES = 4000,
    MOST_REACHED = 200000,
    MOST_TEXT = 4096 /* greatest length of a setting [bytes] */
};

/* State of the child after the script's only run, with which every request begins. */
typedef struct Start {
    /* records of files and warnings from the script's run; every answer repeats them */
    Str records;
    uint32_t n_sources, n_files_sent, n_absent, n_reports, n_fields;
    bool failed;
} Start;

/* ---- the plan's tables and copies of their content */

/* Records the table on top of the stack, and recursively the tables in it (but not `model`): in the
 * set at stack index `seen`, and in the list at `kept` as two elements, the table and a copy of it.
 * Returns false if a table has a metatable or if there are too many tables. */
static bool note_table(lua_State *L, int seen, int kept, int nesting)
{
    const int table = lua_gettop(L);
    lua_pushvalue(L, table);
    const bool known = lua_rawget(L, seen) != LUA_TNIL;
    lua_pop(L, 1);
    if (known) return true;
    const lua_Integer n = (lua_Integer)lua_rawlen(L, kept);
    if (nesting > MOST_NESTING || n > 2 * MOST_TABLES || lua_getmetatable(L, table)) {
        lua_settop(L, table);
        return false;
    }
    luaL_checkstack(L, 8, "plan");
    lua_pushvalue(L, table);
    lua_pushboolean(L, 1);
    lua_rawset(L, seen);
    lua_newtable(L);
    lua_pushvalue(L, table);
    lua_rawseti(L, kept, n + 1);
    lua_pushvalue(L, table + 1);
    lua_rawseti(L, kept, n + 2);
    bool plain = true;
    for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) {
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, table + 1);
        const bool model = nesting == 0 && lua_type(L, -2) == LUA_TSTRING &&
                           strcmp(lua_tostring(L, -2), "model") == 0;
        if (lua_istable(L, -1) && !model) plain = note_table(L, seen, kept, nesting + 1) && plain;
    }
    lua_settop(L, table);
    return plain;
}

/* Gives every table in c->kept_tables the content of its copy back. */
static void restore_tables(Child *c)
{
    lua_State *L = c->L;
    lua_rawgeti(L, LUA_REGISTRYINDEX, c->kept_tables);
    const int kept = lua_gettop(L);
    for (lua_Integer i = 1; lua_rawgeti(L, kept, i) != LUA_TNIL; i += 2) {
        lua_rawgeti(L, kept, i + 1);
        for (lua_pushnil(L); lua_next(L, kept + 1);) {
            lua_pop(L, 1);
            lua_pushvalue(L, -1);
            if (lua_rawget(L, kept + 2) == LUA_TNIL) {
                lua_pushvalue(L, -2);
                lua_pushnil(L);
                lua_rawset(L, kept + 1);
            }
            lua_pop(L, 1);
        }
        for (lua_pushnil(L); lua_next(L, kept + 2);) {
            lua_pushvalue(L, -2);
            lua_insert(L, -2);
            lua_rawset(L, kept + 1);
        }
        lua_settop(L, kept);
    }
    lua_settop(L, kept - 1);
}

/* ---- the tables that the model's functions can reach */

/* Pops a value. If it can refer to other values and is not yet in `visited`, adds it there and to
 * `queue`. */
static void visit_later(lua_State *L, int visited, int queue)
{
    const int type = lua_type(L, -1);
    if (type == LUA_TTABLE || type == LUA_TFUNCTION || type == LUA_TUSERDATA ||
        type == LUA_TTHREAD) {
        lua_pushvalue(L, -1);
        if (lua_rawget(L, visited) == LUA_TNIL) {
            lua_pushvalue(L, -2);
            lua_pushboolean(L, 1);
            lua_rawset(L, visited);
            lua_pushvalue(L, -2);
            lua_rawseti(L, queue, (lua_Integer)lua_rawlen(L, queue) + 1);
        }
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

/* Pops nothing; queues all values to which the table, function (upvalues) or userdata on top of the
 * stack refers. */
static void visit_parts(lua_State *L, int visited, int queue)
{
    const int value = lua_gettop(L);
    if (lua_type(L, value) == LUA_TFUNCTION) {
        for (int i = 1; lua_getupvalue(L, value, i) != NULL; i++) visit_later(L, visited, queue);
        return;
    }
    if (lua_getmetatable(L, value)) visit_later(L, visited, queue);
    /* a userdata, such as the state of math.random, refers to values only by its user values */
    if (lua_type(L, value) == LUA_TUSERDATA) {
        for (int i = 1; lua_getiuservalue(L, value, i) != LUA_TNONE; i++)
            visit_later(L, visited, queue);
        return;
    }
    for (lua_pushnil(L); lua_next(L, value);) {
        visit_later(L, visited, queue);
        lua_pushvalue(L, -1);
        visit_later(L, visited, queue);
    }
}

/* True if no function of the model can reach a table of the plan that settings change (`seen`).
 * Then requests with different settings may share one trace of the model, if they get equal
 * Answers. */
static bool model_is_separate(lua_State *L, int plan, int seen)
{
    lua_newtable(L);
    lua_newtable(L);
    const int visited = lua_gettop(L) - 1, queue = visited + 1;
    luaL_checkstack(L, 8, "plan");
    lua_pushliteral(L, "model");
    lua_rawget(L, plan);
    visit_later(L, visited, queue);
    lua_pushliteral(L, ""); /* through a string's metatable, a script reaches the string library */
    if (lua_getmetatable(L, -1)) visit_later(L, visited, queue);
    lua_settop(L, queue);
    bool separate = true;
    for (lua_Integer i = 1; separate && lua_rawgeti(L, queue, i) != LUA_TNIL; i++) {
        const int type = lua_type(L, -1);
        lua_pushvalue(L, -1);
        separate = i < MOST_REACHED && type != LUA_TTHREAD && lua_rawget(L, seen) == LUA_TNIL;
        lua_settop(L, queue + 1);
        if (separate) visit_parts(L, visited, queue);
        lua_settop(L, queue);
    }
    lua_settop(L, visited - 1);
    return separate;
}

void child_keep_plan(Child *c)
{
    lua_State *L = c->L;
    const int plan = lua_gettop(L);
    lua_newtable(L);
    lua_newtable(L);
    lua_pushvalue(L, plan);
    c->is_plain = note_table(L, plan + 1, plan + 2, 0);
    lua_pop(L, 1);
    c->shares = c->is_plain && model_is_separate(L, plan, plan + 1);
    c->kept_tables = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pushvalue(L, plan);
    c->kept_plan = luaL_ref(L, LUA_REGISTRYINDEX);
}

/* ---- requests */

bool child_receive(int fd, void *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = read(fd, (char *)to + done, n - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

/* Reads the settings of the next request into *options. Returns false if the parent has closed the
 * socket. */
static bool read_request(Child *c, FrontOptions *options)
{
    uint32_t n = 0;
    if (!child_receive(c->fd, &n, sizeof n) || n > CHILD_MOST_SETS) return false;
    const char **set = arena_array(c->arena, n + 1, sizeof *set);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bytes = 0;
        if (!child_receive(c->fd, &bytes, sizeof bytes) || bytes > MOST_TEXT) return false;
        char *text = arena_alloc(c->arena, bytes + 1);
        if (!child_receive(c->fd, text, bytes)) return false;
        set[i] = text;
    }
    *options = (FrontOptions){.set = set, .n_set = n};
    c->options = options;
    return true;
}

/* True if a fork must answer the whole request: the plan's tables cannot be restored, or a setting
 * loads a script (runtime=, cluster=, gpu=) or changes the model's config, to which functions of
 * the script may refer. */
static bool needs_process(const Child *c)
{
    static const char *const keys[] = {"runtime", "cluster", "gpu", "model"};
    if (!c->is_plain) return true;
    for (uint32_t i = 0; i < c->options->n_set; i++) {
        const char *set = c->options->set[i];
        const size_t n = strcspn(set, "=.");
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (strlen(keys[k]) == n && strncmp(set, keys[k], n) == 0 && (k == 3 || set[n] == '='))
                return true;
    }
    return false;
}

static int settle(lua_State *L)
{
    Child *c = child_of(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, c->kept_plan);
    child_settle(c);
    return 0;
}

static int model(lua_State *L)
{
    Child *c = child_of(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, c->kept_plan);
    child_model(c);
    return 0;
}

static int both(lua_State *L)
{
    Child *c = child_of(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, c->kept_plan);
    child_settle(c);
    if (!c->answer.no_model) child_model(c);
    return 0;
}

static int call(Child *c, lua_CFunction function)
{
    lua_settop(c->L, 0);
    lua_pushcfunction(c->L, child_on_error);
    lua_pushcfunction(c->L, function);
    return lua_pcall(c->L, 0, 0, 1);
}

static void send_ended(Child *c, int status)
{
    c->out.bytes.n = 0;
    record_begin(&c->out, RECORD_ended);
    put_u32(&c->out, (uint32_t)status);
    record_end(&c->out);
    if (!writer_send(&c->out, c->fd)) _exit(1);
}

/* Runs `function` in a fork, which sends its records itself. Returns the fork's status as waitpid
 * gives it. */
static int call_in_fork(Child *c, lua_CFunction function)
{
    const pid_t pid = fork();
    /* the form in which waitpid reports an exit code */
    if (pid < 0) return CHILD_NO_PROCESS << 8;
    if (pid == 0) {
        c->held = false;
        c->expired = c->fired = c->fired_before = 0;
        child_limit(c);
        const int status = call(c, function);
        _exit(child_finish(c, status) ? 0 : 1);
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

static void begin_request(Child *c, const Start *start)
{
    c->n_sources = start->n_sources;
    c->n_files_sent = start->n_files_sent;
    c->n_absent = start->n_absent;
    c->n_reports = start->n_reports;
    c->n_fields = start->n_fields;
    c->failed = start->failed;
    c->set_loc = (ScriptLoc){0, 0};
    c->n_sources_sent = c->n_absent_sent = c->n_sets = 0;
    c->expired = c->fired = c->fired_before = 0;
    memset(&c->answer, 0, sizeof c->answer);
    c->out.bytes.n = 0;
    str_add_bytes(&c->out.bytes, str_text(&start->records), start->records.n);
    child_limit_again(c);
}

static void answer_request(Child *c)
{
    int ended = 0;
    if (needs_process(c)) {
        ended = call_in_fork(c, both);
    } else {
        const int status = call(c, settle);
        if (status == LUA_OK && c->fired == 0 && !c->answer.no_model)
            ended = call_in_fork(c, model);
        else if (!child_finish(c, status))
            _exit(1); /* otherwise the parent would wait for an answer that nobody sends */
        /* The time limit has interrupted the interpreter, whose state is now unknown. This process
         * ends; the parent starts a new one for the next request. */
        if (c->expired > 0) _exit(0);
        lua_settop(c->L, 0);
        restore_tables(c);
    }
    send_ended(c, ended);
}

_Noreturn void child_serve(Child *c)
{
    const Start start = {.records = str_in(c->arena),
                         .n_sources = c->n_sources,
                         .n_files_sent = c->n_files_sent,
                         .n_absent = c->n_absent,
                         .n_reports = c->n_reports,
                         .n_fields = c->n_fields,
                         .failed = c->failed};
    Start own = start;
    str_add_bytes(&own.records, str_text(&c->out.bytes), c->out.bytes.n);
    c->n_held_sources = c->n_sources;
    c->arena = arena_new(); /* memory of one request */
    FrontOptions options;
    while (read_request(c, &options)) {
        begin_request(c, &own);
        answer_request(c);
        arena_reset(c->arena);
    }
    _exit(0);
}
