/* Finds and loads the modules that the command opens at run time: one for each MPI, one for
 * CUDA. */
#ifndef TANDEM_EXEC_MODULES_H
#define TANDEM_EXEC_MODULES_H

#include "exec/backend.h"

/* Return the path of the module for MPI `flavour` ("openmpi"), and of the CUDA module; NULL if
 * there is none. module_dir: the first folder to search; NULL: the command's folder. */
const char *module_path(const char *flavour, const char *module_dir, Arena *arena);
const char *module_cuda_path(const char *module_dir, Arena *arena);

struct CudaModule;
/* Loads the CUDA module; NULL with a diagnostic (module-missing). */
const struct CudaModule *module_cuda(Arena *arena, const char *module_dir, Diag *d);

#endif
