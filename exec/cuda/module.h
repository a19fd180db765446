/* The interface between the command and the CUDA module, which it loads. Both sides include this
 * header, so it includes no header of CUDA. */
#ifndef TANDEM_EXEC_CUDA_MODULE_H
#define TANDEM_EXEC_CUDA_MODULE_H

#include "exec/backend.h"
#include "exec/process/transport.h"

enum { CUDA_MODULE_VERSION = 5 };

/* One line in the output of `tandem doctor`. */
typedef struct CudaFinding {
    const char *name, *state; /* state: "ok", "missing" or "note" */
    const char *text;
} CudaFinding;
typedef struct CudaFindings {
    LIST(CudaFinding) all;
} CudaFindings;

typedef struct CudaModule {
    uint32_t version;
    /* Makes the CUDA backend. If `transport` is NULL, ranks meet over TCP if the environment
     * variables of a launcher are set; otherwise there is a single rank. */
    Backend *(*backend)(Arena *arena, const Transport *transport);
    /* Describes the CUDA toolkit, the driver, the devices and NCCL, and says which of them are
     * missing. Never fails. */
    void (*describe)(Arena *arena, CudaFindings *findings);
    /* Returns the bytes of scratch memory that the kernel of an op needs; the lowering reserves
     * them. */
    WorkspaceBytes workspace;
    /* Returns the name of a device, under which the store keeps its measurements; NULL: there is no
     * such device. */
    const char *(*device_name)(Arena *arena, uint32_t device);
} CudaModule;

extern const CudaModule tandem_cuda_module; /* the symbol that the command looks up in the module */

#endif
