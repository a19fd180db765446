/* Finds and loads what this command does not link: one module for each MPI. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/launch.h"
#include "exec/process.h"

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

const char *module_path(const char *flavour, const char *module_dir, Arena *arena)
{
    const char *folder = own_folder(arena);
    const char *places[] = {module_dir, getenv("TANDEM_MODULE_DIR"), folder,
                            arena_print(arena, "%s/../lib/tandem", folder),
                            arena_print(arena, "%s/..", folder)};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (places[i] == NULL || *places[i] == 0) continue;
        const char *path = arena_print(arena, "%s/tandem_mpi_%s.so", places[i], flavour);
        if (access(path, R_OK) == 0) return path;
    }
    return NULL;
}

static const char *choose_flavour(const char *module_dir, Arena *arena)
{
    const char *inside = NULL, *asked = getenv("TANDEM_MPI");
    if (launch_inside(NULL, NULL, &inside)) return inside;
    if (asked && *asked) return asked;
    static const char *const order[] = {"openmpi", "mpich"};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (module_path(order[i], module_dir, arena)) return order[i];
    return order[0];
}

Backend *backend_mpi(Arena *arena, const char *module_dir, Diag *d)
{
    Loc none = {NULL, 0};
    const char *flavour = choose_flavour(module_dir, arena);
    const char *path = module_path(flavour, module_dir, arena);
    if (path == NULL) {
        diag_error(d, FAULT_run, "module-missing", none, "there is no module for %s", flavour);
        diag_hint(d, "build with that MPI's development package, or set TANDEM_MODULE_DIR");
        return NULL;
    }
    /* Open MPI's own plug-ins look for its symbols among the global ones. */
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    const Transport *transport = module ? dlsym(module, "tandem_transport") : NULL;
    if (transport == NULL || transport->version != TRANSPORT_VERSION) {
        const char *why = dlerror();
        diag_error(d, FAULT_run, "module-missing", none, "cannot load %s: %s", path,
                   why ? why : "it belongs to another version");
        return NULL;
    }
    return backend_process(arena, transport);
}
