/* require: loads other scripts from the script's folder or the library. The name "a.b" means the
 * file a/b.lua. Its folders are opened one after the other, and symbolic links are refused, so no
 * name leads out of these two folders. */
#define _GNU_SOURCE /* for strcasestr */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "planner/front/child/child.h"

enum { MOST_NAME = 200 };
static const char loaded_key[] = "tandem.loaded";

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Opens `path` below the open folder `dir` without following links. Returns -1 and sets errno on
 * failure; for a symbolic link, ELOOP or ENOTDIR. */
static int open_beneath(int dir, const char *path)
{
    int at = dir;
    for (;;) {
        char part[MOST_NAME + 8];
        size_t n = strcspn(path, "/");
        if (n == 0 || n >= sizeof part || path[0] == '.') {
            errno = EINVAL;
            break;
        }
        memcpy(part, path, n);
        part[n] = 0;
        bool last = path[n] == 0;
        int next = openat(at, part,
                          O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY |
                              (last ? 0 : O_DIRECTORY));
        int reason = errno;
        if (at != dir) close(at);
        errno = reason;
        if (next < 0 || last) return next;
        at = next;
        path += n + 1;
    }
    if (at != dir) close(at);
    errno = EINVAL;
    return -1;
}

/* Reads the open file `fd` into source->text and closes it. source->name is already set. */
static void read_open_file(Child *c, int fd, Source *source)
{
    lua_State *L = c->L;
    const char *name = source->name;
    ScriptLoc loc = child_loc(c, true);
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        child_note_absent(c, name, source->shipped);
        child_raise(L, "script-open", loc, NULL, "%s is not a file", name);
    }
    bool fits = status.st_size <= CHILD_MOST_SOURCE;
    size_t room = fits ? (size_t)status.st_size : 0, n = 0;
    char *text = arena_alloc(c->arena, room + 1);
    ssize_t got = 1;
    while (n < room && got > 0) {
        got = read(fd, text + n, room - n);
        if (got > 0) n += (size_t)got;
    }
    const int error = errno;
    close(fd);
    if (got < 0 || !fits) child_note_absent(c, name, source->shipped);
    if (got < 0)
        child_raise(L, "script-read", loc, NULL, "cannot read %s: %s", name, strerror(error));
    if (!fits) child_raise(L, "script-open", loc, NULL, "%s is longer than 1 MiB", name);
    source->text = text;
    source->n = n;
}

static void load_open_file(Child *c, int fd, Source source)
{
    read_open_file(c, fd, &source);
    child_load_text(c, &source);
}

static const char *beside_script(Child *c, const char *path)
{
    const char *slash = strrchr(c->script, '/');
    int folder = slash == NULL ? 0 : (int)(slash - c->script) + 1;
    return arena_print(c->arena, "%.*s%s", folder, c->script, path);
}

uint32_t child_read_beside(Child *c, const char *path, ScriptLoc loc)
{
    if (c->code != NULL)
        child_raise(c->L, "script-open", loc, "save the script as a file beside it",
                    "%s cannot be read, because the script is a text without a folder", path);
    int fd = c->script_dir >= 0 ? open_beneath(c->script_dir, path) : -1;
    const int error = c->script_dir >= 0 ? errno : c->no_script_dir;
    if (fd < 0) child_note_absent(c, beside_script(c, path), false);
    bool link = error == ELOOP || error == ENOTDIR, inside = error != EINVAL;
    if (fd < 0 && !link && inside && error != ENOENT)
        child_raise(c->L, "script-read", loc, NULL, "cannot open %s: %s", path, strerror(error));
    if (fd < 0)
        child_raise(c->L, "script-open", loc, "put the file into the folder of the script",
                    link     ? "%s is a link"
                    : inside ? "there is no file %s"
                             : "%s is not in the script's folder",
                    path);
    Source source = {.name = beside_script(c, path)};
    read_open_file(c, fd, &source);
    return child_source(c, &source);
}

/* True if this errno says something about the file, such as ENOENT. False for a shortage of the
 * system, such as too many open files, which is not the script's fault. */
static bool ours_to_read(int error)
{
    return error != EMFILE && error != ENFILE && error != ENOMEM && error != EIO;
}

/* Returns the path of the script in the folder of `path` whose name is nearest to `name`, or NULL
 * if all are too different. */
static const char *nearest_beside(const Child *c, const char *path, const char *name)
{
    const char *names[256], *folder = arena_copy(c->arena, path, (size_t)(name - path));
    size_t n = 0;
    DIR *dir = opendir(folder[0] != 0 ? folder : ".");
    if (dir == NULL) return NULL;
    for (const struct dirent *e = readdir(dir); e != NULL && n < 256; e = readdir(dir)) {
        const size_t length = strlen(e->d_name);
        if (length > 4 && strcmp(e->d_name + length - 4, ".lua") == 0)
            names[n++] = arena_dup(c->arena, e->d_name);
    }
    closedir(dir);
    qsort(names, n, sizeof *names, by_name);
    const char *near = str_nearest(name, names, n);
    return near != NULL ? arena_print(c->arena, "%s%s", folder, near) : NULL;
}

/* Returns the path of an existing script that the user may have meant by `path`: with ".lua" added,
 * in the library's folder plans/, or with a similar name. NULL: none. */
static const char *script_meant(const Child *c, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    const char *const tries[] = {arena_print(c->arena, "%s.lua", path),
                                 arena_print(c->arena, "%s/plans/%s", c->library, name),
                                 arena_print(c->arena, "%s/plans/%s.lua", c->library, name)};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++)
        if (*name != 0 && access(tries[i], R_OK) == 0) return tries[i];
    return nearest_beside(c, path, name);
}

void child_load_file(Child *c, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const int error = errno;
    const char *meant = fd < 0 && error == ENOENT ? script_meant(c, path) : NULL;
    if (fd < 0)
        child_raise(c->L, ours_to_read(error) ? "script-open" : "script-read", (ScriptLoc){0, 0},
                    meant != NULL ? arena_print(c->arena, "did you mean %s?", meant) : NULL,
                    "cannot open %s: %s", str_path(c->arena, path), strerror(error));
    load_open_file(c, fd, (Source){.name = path});
}

static bool name_is_fine(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > MOST_NAME) return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '_' && name[i] != '-' &&
            !(name[i] == '.' && i > 0 && i + 1 < n && name[i + 1] != '.'))
            return false;
    return true;
}

/* Opens the script for require's argument `name`, such as "models.llama": in the script's folder,
 * then in the library. Fills in *source except its text. Returns a file descriptor, or -1 with
 * errno. */
static int find(Child *c, const char *name, Source *source)
{
    char path[MOST_NAME + 8];
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++) path[i] = name[i];
    for (size_t i = 0; i < n; i++)
        if (path[i] == '.') path[i] = '/';
    memcpy(path + n, ".lua", 5);
    bool library = strncmp(name, "tandem.", 7) == 0 || strncmp(name, "dialects.", 9) == 0;
    int fd = -1;
    errno = library || c->no_script_dir == 0 ? ENOENT : c->no_script_dir;
    if (!library && c->script_dir >= 0) fd = open_beneath(c->script_dir, path);
    if (fd >= 0) {
        *source = (Source){.name = beside_script(c, path)};
        return fd;
    }
    *source = (Source){.name = arena_dup(c->arena, path), .shipped = true, .library = library};
    if (errno == ENOENT && c->library_dir >= 0) fd = open_beneath(c->library_dir, path);
    if (errno == ENOENT && c->no_library_dir != 0) errno = c->no_library_dir;
    return fd;
}

enum { MOST_HINTS = 256 };
typedef struct Shipped {
    const char *name[MOST_HINTS];
    uint32_t n;
} Shipped;

/* Appends the scripts of a library folder to `all`, in alphabetical order and as require names
 * them: "models.llama". */
static void add_shipped(Child *c, const char *folder, Shipped *all)
{
    int fd = c->library_dir >= 0 ? open_beneath(c->library_dir, folder) : -1;
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL && fd >= 0) close(fd);
    if (dir == NULL) return;
    const uint32_t first = all->n;
    for (const struct dirent *e = readdir(dir); e != NULL && all->n < MOST_HINTS;
         e = readdir(dir)) {
        size_t n = strlen(e->d_name);
        if (n > 4 && strcmp(e->d_name + n - 4, ".lua") == 0)
            all->name[all->n++] = arena_print(c->arena, "%s.%.*s", folder, (int)(n - 4), e->d_name);
    }
    closedir(dir);
    qsort(all->name + first, all->n - first, sizeof *all->name, by_name);
}

const char *child_clusters_with(Child *c, const char *word)
{
    static const char folder[] = "clusters.";
    Shipped all = {.n = 0};
    Str text = str_in(c->arena);
    add_shipped(c, "clusters", &all);
    for (uint32_t i = 0; i < all.n && word[0] != 0; i++)
        if (strcasestr(all.name[i] + sizeof folder - 1, word) != NULL)
            str_print(&text, "%s%s", text.n > 0 ? ", " : "", all.name[i] + sizeof folder - 1);
    return str_text(&text);
}

static const char *profiles_hint(Child *c, const char *wanted)
{
    Shipped all = {.n = 0};
    add_shipped(c, "runtimes", &all);
    /* compare without "runtimes.": a common beginning makes short names look alike */
    for (uint32_t i = 0; i < all.n; i++) all.name[i] = strchr(all.name[i], '.') + 1;
    const char *near = str_nearest(wanted, all.name, all.n);
    if (near != NULL) return arena_print(c->arena, "did you mean '%s'?", near);
    Str text = str_in(c->arena);
    str_add(&text, "profiles are ");
    for (uint32_t i = 0; i < all.n; i++)
        if (strcmp(all.name[i], "eager") != 0)
            str_print(&text, "%s%s", str_text(&text)[text.n - 1] == ' ' ? "" : ", ", all.name[i]);
    str_add(&text, ", or describe your own with runtimes.eager");
    return str_text(&text);
}

static const char *require_hint(Child *c, const char *name)
{
    if (strncmp(name, "runtimes.", 9) == 0) return profiles_hint(c, name + 9);
    Shipped all = {.name = {"tandem.nn"}, .n = 1};
    add_shipped(c, "models", &all);
    add_shipped(c, "clusters", &all);
    add_shipped(c, "dialects", &all);
    const char *near = str_nearest(name, all.name, all.n);
    if (near != NULL) return arena_print(c->arena, "did you mean '%s'?", near);
    return "put the file into the folder of the script or into the library";
}

static int load_module(lua_State *L)
{
    Child *c = child_of(L);
    const char *name = luaL_checkstring(L, 1);
    ScriptLoc loc = child_loc(c, true);
    lua_settop(L, 1);
    if (!name_is_fine(name))
        child_raise(L, "script-open", loc,
                    "for the file models/llama.lua, write require \"models.llama\"",
                    "require: '%.200s' is not a script's name", name);
    luaL_getmetatable(L, loaded_key);
    if (lua_getfield(L, 2, name) != LUA_TNIL) return 1;
    if (c->depth == CHILD_MOST_DEPTH)
        child_raise(L, "too-many-files", loc, "a script may require itself",
                    "more than %d scripts require each other in a chain", CHILD_MOST_DEPTH);
    Source source;
    int fd = find(c, name, &source);
    const int error = errno;
    if (fd < 0) child_note_absent(c, source.name, true);
    if (fd < 0 && c->no_library_dir != 0 && error == c->no_library_dir)
        child_raise(L, ours_to_read(error) ? "script-open" : "script-read", loc,
                    "set TANDEM_SCRIPTS to the folder of the library",
                    "require: %s is not in the script's folder, and the library at %.300s cannot "
                    "be opened: %s",
                    source.name, c->library, strerror(error));
    if (fd < 0 && error != ELOOP && error != ENOTDIR && error != ENOENT && error != EINVAL)
        child_raise(L, ours_to_read(error) ? "script-open" : "script-read", loc, NULL,
                    "require: cannot open %s: %s", source.name, strerror(error));
    if (fd < 0)
        child_raise(L, "script-open", loc, require_hint(c, name), "require: %s",
                    error == ELOOP || error == ENOTDIR
                        ? arena_print(c->arena, "%s is a link", source.name)
                        : arena_print(c->arena, "there is no script %s", source.name));
    load_open_file(c, fd, source);
    lua_pushvalue(L, 1);
    if (source.library)
        child_push_core(c);
    else
        lua_pushnil(L);
    c->depth++;
    int status = lua_pcall(L, 2, 1, 0);
    c->depth--;
    if (status != LUA_OK) lua_error(L);
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        lua_pushboolean(L, 1);
    }
    lua_pushvalue(L, -1);
    lua_setfield(L, 2, name);
    return 1;
}

void child_open_require(Child *c)
{
    luaL_newmetatable(c->L, loaded_key);
    lua_pop(c->L, 1);
    lua_pushglobaltable(c->L);
    lua_pushliteral(c->L, "require");
    lua_pushcfunction(c->L, load_module);
    lua_rawset(c->L, -3);
    lua_pop(c->L, 1);
}
