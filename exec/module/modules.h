/* Finds and loads the modules that the command opens at run time: one for each MPI, and one for
 * CUDA. */
#ifndef TANDEM_EXEC_MODULES_H
#define TANDEM_EXEC_MODULES_H

#include "exec/backend.h"

/* Return the path of the module for the MPI `flavour` (such as "openmpi"), and of the CUDA
 * module; NULL if there is none. module_dir is the folder to search first; NULL: the folder of the
 * command. */
const char *module_path(const char *flavour, const char *module_dir, Arena *arena);
const char *module_cuda_path(const char *module_dir, Arena *arena);

struct CudaModule;
/* Loads the CUDA module. Returns NULL with the diagnostic module-missing if this fails. */
const struct CudaModule *module_cuda(Arena *arena, const char *module_dir, Diag *d);

#endif
