/* A program that the build runs: compiles the library's Lua scripts to bytecode, and writes a C
 * file with the table shipped_scripts. Parsing the library's text took most of the time of planning
 * a small model. */
#include <lauxlib.h>
#include <lua.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/str.h"
#include "planner/front/shipped/shipped.h"

typedef struct Grown {
    unsigned char *at;
    size_t n, room;
} Grown;

/* lua_Writer: appends the bytes to `self`, a Grown. */
static int append(lua_State *L, const void *from, size_t n, void *self)
{
    (void)L;
    Grown *bytes = self;
    if (bytes->room - bytes->n < n) {
        bytes->room = 2 * bytes->room + n;
        unsigned char *more = realloc(bytes->at, bytes->room);
        if (more == NULL) return 1;
        bytes->at = more;
    }
    memcpy(bytes->at + bytes->n, from, n);
    bytes->n += n;
    return 0;
}

static bool read_file(const char *path, Grown *bytes)
{
    char part[4096];
    size_t n;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return false;
    while ((n = fread(part, 1, sizeof part, file)) > 0)
        if (append(NULL, part, n, bytes) != 0) break;
    const bool fine = ferror(file) == 0 && feof(file) != 0;
    fclose(file);
    return fine;
}

/* Writes at [n] as an array of uint64_t, which a C compiler reads faster than single bytes. */
static void write_array(FILE *out, unsigned number, const unsigned char *at, size_t n)
{
    fprintf(out, "static const uint64_t code_%u[] = {", number);
    for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, at + i, n - i < sizeof word ? n - i : sizeof word);
        fprintf(out, "%s0x%llx,", i % 64 == 0 ? "\n" : "", (unsigned long long)word);
    }
    fprintf(out, "};\n");
}

/* Compiles the script `path`; reads its text into *text and its bytecode into *code. Returns false
 * if that fails, or if this version of Lua stores the chunk's name elsewhere than shipped_load
 * expects. Sets *broken if the script is not valid Lua. */
static bool compile(const char *path, Grown *text, Grown *code, bool *broken)
{
    static const unsigned char name[] = {0x83, '=', '0'};
    if (!read_file(path, text)) return false;
    lua_State *L = luaL_newstate();
    if (L == NULL) return false;
    bool fine = luaL_loadbufferx(L, (const char *)text->at, text->n, "=0", "t") == LUA_OK;
    if (!fine) {
        fprintf(stderr, "%s: %s\n", path, lua_tostring(L, -1));
        *broken = true;
    }
    fine = fine && lua_dump(L, append, code, 0) == 0;
    lua_close(L);
    return fine && code->n > SHIPPED_HEAD + sizeof name &&
           memcmp(code->at + SHIPPED_HEAD, name, sizeof name) == 0;
}

int main(int argc, char **argv)
{
    FILE *out = argc > 1 ? fopen(argv[1], "w") : NULL;
    if (out == NULL) return 1;
    Grown rows = {NULL, 0, 0};
    bool fine = true, broken = false;
    fprintf(out, "#include \"planner/front/shipped/shipped.h\"\n\n");
    for (int i = 2; i < argc; i++) {
        Grown text = {NULL, 0, 0}, code = {NULL, 0, 0};
        if (compile(argv[i], &text, &code, &broken)) {
            char row[200];
            const Hash128 hash = hash_bytes(text.at, text.n);
            write_array(out, (unsigned)i, code.at, code.n);
            snprintf(row, sizeof row, "    {{.lo = 0x%llx, .hi = 0x%llx}, code_%d, %zu},\n",
                     (unsigned long long)hash.lo, (unsigned long long)hash.hi, i, code.n);
            fine = append(NULL, row, strlen(row), &rows) == 0 && fine;
        } else {
            fprintf(stderr, "%s: not compiled\n", argv[i]);
        }
        free(text.at);
        free(code.at);
    }
    fprintf(out, "\nconst ShippedScript shipped_scripts[] = {\n%.*s    {{0, 0}, NULL, 0},\n};\n",
            (int)rows.n, rows.n > 0 ? (const char *)rows.at : "");
    free(rows.at);
    return fclose(out) == 0 && fine && !broken ? 0 : 1;
}
