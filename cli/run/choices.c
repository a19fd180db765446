/* The store keeps the fastest algorithm of each matrix product on a device, so that a later run
 * need not time the algorithms again. Each access opens the store. There are some dozens of
 * accesses, all before the first step. If the store cannot be read or written, the run times the
 * algorithms itself. */
#include "cli/run/run.h"
#include "kernels/cuda/product/products.h"

static bool get(void *self, const char *device, const char *call, void *choice, size_t bytes)
{
    const Cli *cli = self;
    Diag own = diag_in(cli->arena);
    Store *store = store_open(cli->options.db, true, &own);
    if (store == NULL) return false;
    bool found = store_get_choice(store, device, call, choice, bytes, &own);
    store_close(store);
    return found;
}

static void put(void *self, const char *device, const char *call, const void *choice, size_t bytes,
                int64_t median_ps)
{
    const Cli *cli = self;
    Diag own = diag_in(cli->arena);
    Store *store = store_open(cli->options.db, false, &own);
    if (store == NULL) return;
    (void)store_put_choice(store, device, call, choice, bytes, median_ps, &own);
    store_close(store);
}

const KernelChoices *run_choices(Cli *cli)
{
    KernelChoices *choices = arena_alloc(cli->arena, sizeof *choices);
    *choices = (KernelChoices){cli, get, put};
    return choices;
}
