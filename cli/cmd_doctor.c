/* tandem doctor: checks what this machine can do, so that a run does not fail later because
 * something is missing. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/cli.h"
#include "exec/cuda/module.h"
#include "exec/module/modules.h"
#include "kernels/kernel.h"
#include "planner/base/cores.h"
#include "planner/base/plural.h"
#include "planner/front/front.h"

typedef struct Finding {
    const char *name, *state; /* state: "ok", "missing" or "note" */
    const char *text;
} Finding;
typedef struct Findings {
    LIST(Finding) all;
} Findings;

static void add(Cli *cli, Findings *f, const char *name, const char *state, const char *text)
{
    list_push(cli->arena, &f->all, ((Finding){name, state, text}));
}

/* Looks for a module where the executor looks: beside the command, or in ../lib/tandem. */
static bool has_module(Cli *cli, const char *flavour)
{
    const char *own = machine_own_path(cli->arena), *folder = getenv("TANDEM_MODULE_DIR");
    if (folder == NULL && own != NULL)
        folder = arena_copy(cli->arena, own, (size_t)(strrchr(own, '/') - own));
    if (folder == NULL) return false;
    return access(arena_print(cli->arena, "%s/tandem_mpi_%s.so", folder, flavour), R_OK) == 0 ||
           access(arena_print(cli->arena, "%s/../lib/tandem/tandem_mpi_%s.so", folder, flavour),
                  R_OK) == 0;
}

static void find_mpi(Cli *cli, Findings *f)
{
    static const char *const kinds[] = {"openmpi", "mpich"};
    bool any = false;
    for (uint32_t i = 0; i < 2; i++) {
        const char *name = arena_print(cli->arena, "mpirun.%s", kinds[i]);
        const char *found = find_in_path(cli->arena, name);
        bool module = has_module(cli, kinds[i]);
        if (found == NULL && !module) continue;
        any = any || (found != NULL && module);
        add(cli, f, kinds[i], found != NULL && module ? "ok" : "missing",
            found == NULL ? arena_print(cli->arena, "there is a module, but no %s in PATH", name)
            : module      ? found
                     : arena_print(cli->arena, "%s is installed, but no module was built for it",
                                   found));
    }
    if (!any) add(cli, f, "mpi", "missing", "`tandem run` can only use --backend loopback");
}

static void find_scripts(Cli *cli, Findings *f)
{
    const char *folder = front_scripts_dir();
    const char *file = arena_print(cli->arena, "%s/plans/tiny_text.lua", folder);
    bool there = access(file, R_OK) == 0;
    add(cli, f, "scripts", there ? "ok" : "missing",
        there ? folder : arena_print(cli->arena, "%s is not there; set TANDEM_SCRIPTS", file));
}

static void find_store(Cli *cli, Findings *f)
{
    const char *path = cli->options.db;
    if (strcmp(path, "none") == 0) {
        add(cli, f, "store", "note", "none: nothing is stored");
        return;
    }
    if (access(path, F_OK) != 0) {
        add(cli, f, "store", "note",
            arena_print(cli->arena, "%s does not exist yet; the first `tandem sim` makes it",
                        path));
        return;
    }
    Diag own = diag_in(cli->arena);
    Store *store = store_open(path, true, &own);
    if (store != NULL)
        add(cli, f, "store", "ok", path);
    else
        add(cli, f, "store", "missing", own.items.n > 0 ? own.items.at[0].text : path);
    store_close(store);
}

static void find_limits(Cli *cli, Findings *f)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        add(cli, f, "processes", "note",
            arena_print(cli->arena, "at most %" PRIu64, (uint64_t)limit.rlim_cur));
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        add(cli, f, "address", "note",
            arena_print(cli->arena, "at most %s of address space",
                        str_bytes(cli->arena, (uint64_t)limit.rlim_cur)));
    const char *threads = getenv("OPENBLAS_NUM_THREADS"), *missing = kernel_cpu_blas_missing();
    if (missing != NULL)
        add(cli, f, "blas", "missing", arena_print(cli->arena, "OpenBLAS: %s", missing));
    else
        add(cli, f, "blas", "ok",
            arena_print(cli->arena,
                        "OpenBLAS, kernels for %s, OPENBLAS_NUM_THREADS=%s (runs use 1 thread for "
                        "each rank)",
                        kernel_cpu_blas(), threads != NULL ? threads : "unset"));
}

/* Asks the CUDA module for the driver and NCCL. The module may be missing on a machine without
 * GPUs. */
static void find_cuda(Cli *cli, Findings *f)
{
    Diag own = diag_in(cli->arena);
    const CudaModule *module = module_cuda(cli->arena, NULL, &own);
    if (module == NULL) {
        add(cli, f, "cuda", "note", own.items.n > 0 ? own.items.at[0].text : "no module");
        return;
    }
    CudaFindings found = {{NULL, 0, 0}};
    module->describe(cli->arena, &found);
    for (uint32_t i = 0; i < found.all.n; i++)
        add(cli, f, found.all.at[i].name, found.all.at[i].state, found.all.at[i].text);
}

void cmd_doctor(Cli *cli)
{
    Findings f = {{NULL, 0, 0}};
    add(cli, &f, "version", "ok", "tandem " TANDEM_VERSION);
    add(cli, &f, "cpu", "ok",
        arena_print(cli->arena, "%s, %" PRIu32 " core%s", machine_cpu(cli->arena), cores_online(),
                    str_s(cores_online())));
    add(cli, &f, "memory", "ok", str_bytes(cli->arena, machine_memory()));
    find_mpi(cli, &f);
    find_scripts(cli, &f);
    find_store(cli, &f);
    find_limits(cli, &f);
    find_cuda(cli, &f);
    json_t *list = cli->json != NULL ? json_array() : NULL;
    for (uint32_t i = 0; i < f.all.n; i++) {
        const Finding *one = &f.all.at[i];
        Paint color = strcmp(one->state, "ok") == 0        ? PAINT_good
                      : strcmp(one->state, "missing") == 0 ? PAINT_bad
                                                           : PAINT_warn;
        const char *state = arena_print(cli->arena, "%-8s", one->state);
        str_print(&cli->out, "%s %-10s %s\n", paint(cli, color, state), one->name, one->text);
        if (list == NULL) continue;
        json_t *row = json_object();
        json_text(row, "name", one->name);
        json_text(row, "state", one->state);
        json_text(row, "text", one->text);
        json_array_append_new(list, row);
    }
    if (list != NULL) json_put(cli->json, "findings", list);
}
