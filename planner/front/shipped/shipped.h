/* The scripts of the library as Lua bytecode, compiled when Tandem is built. A script is looked up
 * by the hash of its text: if the text was changed after the build, there is no entry, and Lua
 * parses the text. Lua checks the version (5.4) and the number sizes of bytecode, but not its
 * release: after an update of Lua's shared library, build Tandem again. */
#ifndef TANDEM_FRONT_SHIPPED_H
#define TANDEM_FRONT_SHIPPED_H

#include <lua.h>
#include <stdint.h>

#include "planner/base/str.h"

/* Bytes of bytecode before the name of its chunk: Lua's header (31) and the number of upvalues (1).
 */
enum { SHIPPED_HEAD = 32 };

typedef struct ShippedScript {
    Hash128 hash;         /* XXH3 hash of the script's text */
    const uint64_t *code; /* output of lua_dump, with debug information; NULL: end of the table */
    size_t n;             /* bytes of `code` */
} ShippedScript;

/* The table of all scripts, ended by an entry whose `code` is NULL. shipped/compile.c writes it at
 * build time. */
extern const ShippedScript shipped_scripts[];

/* Pushes the compiled chunk of the script whose text has this hash, and returns LUA_OK. chunk: the
 * chunk name for errors and debug information, such as "=3"; less than 100 bytes. On failure,
 * pushes nothing. Returns LUA_ERRSYNTAX if no script has this hash or this Lua refuses the
 * bytecode, LUA_ERRMEM if memory is full. */
int shipped_load(lua_State *L, Hash128 hash, const char *chunk);

#endif
