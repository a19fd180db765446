/* The backend with one process for each rank, over any transport. */
#ifndef TANDEM_EXEC_PROCESS_PROCESS_H
#define TANDEM_EXEC_PROCESS_PROCESS_H

#include "exec/backend.h"
#include "exec/process/transport.h"

Backend *backend_process(Arena *arena, const Transport *transport);

#endif
