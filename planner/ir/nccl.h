/* A plan's settings for NCCL, plan{ nccl = {...} }, named as in ncclConfig_t. Zero leaves the
 * choice to the executor and to NCCL. */
#ifndef TANDEM_IR_NCCL_H
#define TANDEM_IR_NCCL_H

#include <stdbool.h>
#include <stdint.h>

/* How the arena is registered with NCCL. auto: windows if all ranks run one program, else buffers.
 * buffer: ncclCommRegister. window: ncclCommWindowRegister, symmetric. none: not registered. */
#define NCCL_REGISTERS(X) X(auto) X(buffer) X(window) X(none)
typedef enum NcclRegister {
#define X(name) NCCL_REGISTER_##name,
    NCCL_REGISTERS(X)
#undef X
        NCCL_REGISTER_COUNT
} NcclRegister;
extern const char *const nccl_registers[]; /* words, NULL at the end */

/* CTAPolicy. efficiency: few thread blocks where registered buffers allow it; zero: copy engines
 * and no thread blocks where windows allow it. */
#define NCCL_CTA_POLICIES(X) X(default) X(efficiency) X(zero)
typedef enum NcclCtaPolicy {
#define X(name) NCCL_CTAS_##name,
    NCCL_CTA_POLICIES(X)
#undef X
        NCCL_CTA_POLICY_COUNT
} NcclCtaPolicy;
extern const char *const nccl_cta_policies[];

enum { NCCL_MOST_CTAS = 64 }; /* for one communicator: NCCL's MAXCHANNELS */

typedef struct NcclSettings {
    NcclRegister registration;
    NcclCtaPolicy cta_policy;
    uint32_t min_ctas, max_ctas; /* thread blocks of each communicator */
} NcclSettings;

/* True if no setting is made. */
bool nccl_settings_none(const NcclSettings *settings);
/* Returns the number of thread blocks under these settings, given that NCCL alone would take n. */
uint32_t nccl_settings_ctas(const NcclSettings *settings, uint32_t n);
/* Returns NULL if the settings agree with each other. Otherwise returns the contradiction as text,
 * and sets *hint to a valid combination. */
const char *nccl_settings_wrong(const NcclSettings *settings, const char **hint);

#endif
