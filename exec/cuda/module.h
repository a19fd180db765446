/* What the CUDA module gives to the command that loads it. Includes no CUDA: both sides read it. */
#ifndef TANDEM_EXEC_CUDA_MODULE_H
#define TANDEM_EXEC_CUDA_MODULE_H

#include "exec/backend.h"
#include "exec/process/transport.h"

enum { CUDA_MODULE_VERSION = 2 };

/* One thing that `tandem doctor` tells. */
typedef struct CudaFinding {
    const char *name, *state; /* state: "ok", "missing", "note" */
    const char *text;
} CudaFinding;
typedef struct CudaFindings {
    LIST(CudaFinding) all;
} CudaFindings;

typedef struct CudaModule {
    uint32_t version;
    /* transport NULL: ranks meet over TCP where a launcher's variables say so, else there is one.
     */
    Backend *(*backend)(Arena *arena, const Transport *transport);
    /* Toolkit, driver, devices, NCCL: never fails, says what is missing. */
    void (*describe)(Arena *arena, CudaFindings *findings);
    /* What the lowering must set aside for the kernels. */
    WorkspaceBytes workspace;
    /* The device's name, by which measurements are stored; NULL: there is none. */
    const char *(*device_name)(Arena *arena, uint32_t device);
} CudaModule;

extern const CudaModule tandem_cuda_module; /* the symbol that is looked for */

#endif
