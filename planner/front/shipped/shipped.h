/* The scripts of the library, compiled when Tandem was built. A script is found by the hash of its
 * text, so a script that was changed since then is read as text. Lua checks the version (5.4) of
 * compiled code and the sizes of its numbers, but not the release: after an update of Lua's shared
 * library, build Tandem again. */
#ifndef TANDEM_FRONT_SHIPPED_H
#define TANDEM_FRONT_SHIPPED_H

#include <lua.h>
#include <stdint.h>

#include "planner/base/str.h"

/* Bytes of compiled code in front of the name of its chunk: Lua's header and a number. */
enum { SHIPPED_HEAD = 32 };

typedef struct ShippedScript {
    Hash128 hash;         /* of the text */
    const uint64_t *code; /* as lua_dump wrote it, with the lines and the names; NULL: the end */
    size_t n;             /* bytes */
} ShippedScript;

/* Ends with an entry without code. The build writes this table (shipped/compile.c). */
extern const ShippedScript shipped_scripts[];

/* Pushes the compiled chunk of the text with this hash, and returns LUA_OK. `chunk` is the name
 * that errors show, such as "=3"; it has less than 100 bytes. Otherwise pushes nothing: returns
 * LUA_ERRSYNTAX if there is no such code, or if this Lua cannot read it; returns LUA_ERRMEM if
 * memory is full. */
int shipped_load(lua_State *L, Hash128 hash, const char *chunk);

#endif
