/* docs/reference/lua.md: tandem.nn, from the table that nn.lua reads; and the library's files, with
 * the first sentence of each. */
#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/list.h"
#include "tests/docs/pages.h"
#include "tests/support/command.h"

#define LIBRARY TANDEM_SOURCE_DIR "/scripts"

static const char *text_of(lua_State *L, Arena *arena, const char *key)
{
    lua_getfield(L, -1, key);
    const char *text = lua_isstring(L, -1) ? arena_dup(arena, lua_tostring(L, -1)) : "";
    lua_pop(L, 1);
    return text;
}

static const char *item_of(lua_State *L, Arena *arena, int i)
{
    lua_rawgeti(L, -1, i);
    const char *text = arena_dup(arena, luaL_checkstring(L, -1));
    lua_pop(L, 1);
    return text;
}

static void add_entry(lua_State *L, Str *out)
{
    Arena *arena = out->arena;
    str_print(out, "\n## %s\n\n```lua\n%s\n```\n\n", text_of(L, arena, "name"),
              text_of(L, arena, "call"));
    const char *shape = text_of(L, arena, "shape");
    if (shape[0] != 0) str_print(out, "`%s`\n\n", shape);
    page_text(out, text_of(L, arena, "doc"));
    if (lua_getfield(L, -1, "options") == LUA_TTABLE) {
        str_add(out, "\n| option | default | meaning |\n|---|---|---|\n");
        for (int i = 1; lua_rawgeti(L, -1, i) == LUA_TTABLE; i++) {
            str_print(out, "| `%s` | %s | %s |\n", item_of(L, arena, 1),
                      page_cell(arena, item_of(L, arena, 2)),
                      page_cell(arena, item_of(L, arena, 3)));
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

/* Returns the first sentence of the comment at the start of a script. A sentence ends before a
 * capital letter, a quoted name or a bracket. */
static const char *first_sentence(Arena *arena, const char *script)
{
    Str out = str_in(arena);
    while (strncmp(script, "-- ", 3) == 0) {
        size_t n = strcspn(script, "\n");
        str_print(&out, "%s%.*s", str_text(&out)[0] != 0 ? " " : "", (int)n - 3, script + 3);
        script += n + 1;
    }
    char *text = arena_dup(arena, str_text(&out));
    for (char *at = text; *at != 0; at++)
        if (at[0] == '.' && at[1] == ' ' &&
            (isupper((unsigned char)at[2]) || strchr("`(\"", at[2])))
            at[1] = 0;
    return text;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_folder(Str *out, const char *folder, const char *heading)
{
    Arena *arena = out->arena;
    LIST(const char *) files = {0};
    DIR *dir = opendir(arena_print(arena, LIBRARY "/%s", folder));
    assert(dir);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        size_t n = strlen(e->d_name);
        if (n > 4 && strcmp(e->d_name + n - 4, ".lua") == 0)
            list_push(arena, &files, arena_copy(arena, e->d_name, n - 4));
    }
    closedir(dir);
    qsort(files.at, files.n, sizeof *files.at, by_name);
    str_print(out, "\n## %s\n\n| script | contents |\n|---|---|\n", heading);
    for (uint32_t i = 0; i < files.n; i++) {
        const char *path = arena_print(arena, LIBRARY "/%s/%s.lua", folder, files.at[i]);
        const char *text = command_read_file(arena, path, NULL);
        str_print(out, "| `%s.%s` | %s |\n", folder, files.at[i],
                  page_cell(arena, first_sentence(arena, text)));
    }
}

const char *page_lua(Arena *arena)
{
    Str out = page_begin(arena, "The Lua library", "scripts/tandem/nn_reference.lua and scripts/");
    page_text(&out, "`local nn = require \"tandem.nn\"`. Make each module once, and call it in a "
                    "`forward`. The call adds the module's ops to the model and checks their "
                    "shapes. Activations are `[b, s, features]`: batch, sequence, features.");
    lua_State *L = luaL_newstate();
    luaL_openlibs(L);
    if (luaL_dofile(L, LIBRARY "/tandem/nn_reference.lua") != LUA_OK) abort();
    lua_getfield(L, -1, "list");
    for (int i = 1; lua_rawgeti(L, -1, i) == LUA_TTABLE; i++) {
        add_entry(L, &out);
        lua_pop(L, 1);
    }
    lua_close(L);
    str_add(&out, "\n# Scripts of the library\n\n");
    page_text(&out, "`require \"models.llama\" \"3.1-8b\"` reads `scripts/models/llama.lua`.");
    add_folder(&out, "models", "Models");
    add_folder(&out, "clusters", "Clusters");
    add_folder(&out, "runtimes", "Runtimes");
    add_folder(&out, "dialects", "Dialects");
    add_folder(&out, "plans", "Plans");
    return str_text(&out);
}
