/* Finds the modules that the command loads. They are in the folder of the command, or in
 * ../lib/tandem. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/module/modules.h"

static const char *own_folder(Arena *arena)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) return ".";
    path[n] = 0;
    char *slash = strrchr(path, '/');
    if (slash) *slash = 0;
    return arena_dup(arena, path);
}

static const char *file_path(const char *file, const char *module_dir, Arena *arena)
{
    const char *folder = own_folder(arena);
    const char *places[] = {module_dir, getenv("TANDEM_MODULE_DIR"), folder,
                            arena_print(arena, "%s/../lib/tandem", folder),
                            arena_print(arena, "%s/..", folder)};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (places[i] == NULL || *places[i] == 0) continue;
        const char *path = arena_print(arena, "%s/%s", places[i], file);
        if (access(path, R_OK) == 0) return path;
    }
    return NULL;
}

const char *module_path(const char *flavour, const char *module_dir, Arena *arena)
{
    return file_path(arena_print(arena, "tandem_mpi_%s.so", flavour), module_dir, arena);
}

const char *module_cuda_path(const char *module_dir, Arena *arena)
{
    return file_path("tandem_cuda.so", module_dir, arena);
}
