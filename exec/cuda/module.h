/* The interface of the CUDA module to the command that loads it. It includes no header of CUDA,
 * because both sides read it. */
#ifndef TANDEM_EXEC_CUDA_MODULE_H
#define TANDEM_EXEC_CUDA_MODULE_H

#include "exec/backend.h"
#include "exec/process/transport.h"

enum { CUDA_MODULE_VERSION = 5 };

/* One line of `tandem doctor`. */
typedef struct CudaFinding {
    const char *name, *state; /* state: "ok", "missing", "note" */
    const char *text;
} CudaFinding;
typedef struct CudaFindings {
    LIST(CudaFinding) all;
} CudaFindings;

typedef struct CudaModule {
    uint32_t version;
    /* transport NULL: ranks meet over TCP if a launcher's variables are set; otherwise there is one
     * rank. */
    Backend *(*backend)(Arena *arena, const Transport *transport);
    /* Describes toolkit, driver, devices and NCCL, and names the missing ones. Never fails. */
    void (*describe)(Arena *arena, CudaFindings *findings);
    /* Returns the bytes of scratch memory that the lowering must reserve for the kernels. */
    WorkspaceBytes workspace;
    /* The device's name, which identifies its measurements in the store; NULL: no device. */
    const char *(*device_name)(Arena *arena, uint32_t device);
} CudaModule;

extern const CudaModule tandem_cuda_module; /* the symbol that the command looks up */

#endif
