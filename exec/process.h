/* The backend of one process a rank, over any transport. */
#ifndef TANDEM_EXEC_PROCESS_H
#define TANDEM_EXEC_PROCESS_H

#include "exec/backend.h"
#include "exec/transport.h"

Backend *backend_process(Arena *arena, const Transport *transport);

/* ---- modules.c ---- */
/* The path of the module for `flavour`, in `arena`; NULL if there is none. */
const char *module_path(const char *flavour, const char *module_dir, Arena *arena);

#endif
