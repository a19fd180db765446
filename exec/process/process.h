/* The backend of one process a rank, over any transport. */
#ifndef TANDEM_EXEC_PROCESS_PROCESS_H
#define TANDEM_EXEC_PROCESS_PROCESS_H

#include "exec/backend.h"
#include "exec/process/transport.h"

Backend *backend_process(Arena *arena, const Transport *transport);

/* ---- modules.c ---- */
/* The path of the module for `flavour`, in `arena`; NULL if there is none. */
const char *module_path(const char *flavour, const char *module_dir, Arena *arena);
const char *module_cuda_path(const char *module_dir, Arena *arena);
struct CudaModule;
/* Loads it; NULL with a diagnostic (module-missing). */
const struct CudaModule *module_cuda(Arena *arena, const char *module_dir, Diag *d);

#endif
