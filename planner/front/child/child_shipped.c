/* Loads scripts of the library from their bytecode, which was compiled when Tandem was built. */
#include <assert.h>
#include <string.h>

#include "planner/front/shipped/shipped.h"

/* The bytecode in three pieces: Lua's header, the name of the chunk, the rest. The stored bytecode
 * has the name "=0", 3 bytes with its length byte; the loader puts the name of this run in its
 * place. */
enum { PARTS = 3, OLD_NAME = 3, MOST_NAME = 100, LAST_BYTE = 0x80 };
typedef struct Parts {
    const char *at[PARTS];
    size_t n[PARTS];
    int next;
} Parts;

/* lua_Reader: returns the next piece. */
static const char *next_part(lua_State *L, void *self, size_t *n)
{
    (void)L;
    Parts *parts = self;
    *n = 0;
    if (parts->next == PARTS) return NULL;
    *n = parts->n[parts->next];
    return parts->at[parts->next++];
}

int shipped_load(lua_State *L, Hash128 hash, const char *chunk)
{
    const ShippedScript *script = shipped_scripts;
    while (script->code != NULL && (script->hash.lo != hash.lo || script->hash.hi != hash.hi))
        script++;
    if (script->code == NULL) return LUA_ERRSYNTAX;
    /* Lua stores a string as its length + 1, then its bytes. The last byte of an integer has its
     * highest bit set; one byte is enough here. */
    char name[MOST_NAME + 1];
    const size_t length = strlen(chunk);
    assert(length < MOST_NAME);
    name[0] = (char)(LAST_BYTE | (length + 1));
    memcpy(name + 1, chunk, length);
    const char *code = (const char *)script->code;
    const size_t skip = SHIPPED_HEAD + OLD_NAME;
    Parts parts = {{code, name, code + skip}, {SHIPPED_HEAD, length + 1, script->n - skip}, 0};
    const int status = lua_load(L, next_part, &parts, chunk, "b");
    if (status != LUA_OK) lua_pop(L, 1);
    return status;
}
