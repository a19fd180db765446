/* Loads the modules that the command is not linked with: one for each MPI, and one for CUDA. */
#include <assert.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cuda/module.h"
#include "exec/launch/launch.h"
#include "exec/module/modules.h"
#include "exec/process/process.h"

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

static void *load(const char *path, const char *symbol, int flags, Diag *d)
{
    Loc none = {NULL, 0};
    void *module = dlopen(path, flags), *found = module ? dlsym(module, symbol) : NULL;
    if (found) return found;
    const char *why = dlerror();
    diag_error(d, FAULT_run, "module-missing", none, "cannot load %s: %s", path,
               why ? why : "it belongs to another version of Tandem");
    return NULL;
}

static bool of_this_version(uint32_t version, uint32_t wanted, const char *path, Diag *d)
{
    Loc none = {NULL, 0};
    return version == wanted ||
           diag_error(d, FAULT_run, "module-missing", none,
                      "%s cannot be loaded, because it has version %u, but this command needs %u",
                      path, version, wanted);
}

static const Transport *load_transport(Arena *arena, const char *module_dir, Diag *d)
{
    Loc none = {NULL, 0};
    const char *flavour = choose_flavour(module_dir, arena);
    const char *path = module_path(flavour, module_dir, arena);
    if (path == NULL && strcmp(flavour, LAUNCH_TCP) == 0) {
        diag_error(d, FAULT_run, "module-missing", none,
                   "MASTER_ADDR is set, so these ranks were not started by MPI");
        diag_hint(d, "start the ranks with mpirun, or use --backend cuda, which needs no MPI");
        return NULL;
    }
    if (path == NULL) {
        diag_error(d, FAULT_run, "module-missing", none, "there is no module for %s", flavour);
        diag_hint(
            d, "build Tandem with the development package of this MPI, or set TANDEM_MODULE_DIR");
        return NULL;
    }
    /* RTLD_GLOBAL, because Open MPI's plug-ins look for symbols of Open MPI among the global
     * ones */
    const Transport *transport = load(path, "tandem_transport", RTLD_NOW | RTLD_GLOBAL, d);
    bool fine = transport && of_this_version(transport->version, TRANSPORT_VERSION, path, d);
    return fine ? transport : NULL;
}

Backend *backend_mpi(Arena *arena, const char *module_dir, Diag *d)
{
    const Transport *transport = load_transport(arena, module_dir, d);
    return transport ? backend_process(arena, transport) : NULL;
}

const CudaModule *module_cuda(Arena *arena, const char *module_dir, Diag *d)
{
    Loc none = {NULL, 0};
    const char *path = module_cuda_path(module_dir, arena);
    if (path == NULL) {
        diag_error(d, FAULT_run, "module-missing", none, "the module tandem_cuda.so was not found");
        diag_hint(
            d, "build Tandem where nvcc, cuBLAS and NCCL are installed, or set TANDEM_MODULE_DIR");
        return NULL;
    }
    const CudaModule *module = load(path, "tandem_cuda_module", RTLD_NOW | RTLD_LOCAL, d);
    bool fine = module && of_this_version(module->version, CUDA_MODULE_VERSION, path, d);
    return fine ? module : NULL;
}

Backend *backend_cuda(Arena *arena, const char *module_dir, Diag *d)
{
    const CudaModule *module = module_cuda(arena, module_dir, d);
    if (module == NULL) return NULL;
    const char *flavour = NULL;
    const Transport *transport = NULL;
    if (launch_inside(NULL, NULL, &flavour) && strcmp(flavour, LAUNCH_TCP) != 0) {
        transport = load_transport(arena, module_dir, d);
        if (transport == NULL) return NULL;
    }
    return module->backend(arena, transport);
}

static Backend *loopback(Arena *arena, const char *module_dir, Diag *d)
{
    (void)module_dir, (void)d;
    return backend_loopback(arena);
}

static const struct {
    const char *name;
    Backend *(*make)(Arena *arena, const char *module_dir, Diag *d);
} backends[] = {{"loopback", loopback}, {"mpi", backend_mpi}, {"cuda", backend_cuda}};

const char *backend_name(uint32_t i)
{
    return i < sizeof backends / sizeof backends[0] ? backends[i].name : NULL;
}

Backend *backend_named(const char *name, Arena *arena, const char *module_dir, Diag *d)
{
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++)
        if (name == NULL || strcmp(name, backends[i].name) == 0)
            return backends[i].make(arena, module_dir, d);
    assert(false);
    return NULL;
}

bool backend_read(Backend *self, const Plan *plan, Rank rank, BufferId b, void *to, Diag *d)
{
    if (self->memory == NULL) return self->read(self, rank, b, to, d);
    memcpy(to, self->memory(self, rank, b), plan_program(plan, rank)->buffers.at[b].bytes);
    return true;
}

bool backend_write(Backend *self, const Plan *plan, Rank rank, BufferId b, const void *from,
                   Diag *d)
{
    if (self->memory == NULL) return self->write(self, rank, b, from, d);
    memcpy(self->memory(self, rank, b), from, plan_program(plan, rank)->buffers.at[b].bytes);
    return true;
}
