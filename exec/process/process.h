/* The backend with one process for each rank. It works with any MPI through the interface
 * `Transport`. */
#ifndef TANDEM_EXEC_PROCESS_PROCESS_H
#define TANDEM_EXEC_PROCESS_PROCESS_H

#include "exec/backend.h"
#include "exec/process/transport.h"

/* Makes the backend. `transport` is the MPI that carries its messages. */
Backend *backend_process(Arena *arena, const Transport *transport);

#endif
