/* A plan's settings for NCCL: plan{ nccl = {...} }, with the names of ncclConfig_t. A setting of 0
 * leaves the choice to the executor and to NCCL. */
#ifndef TANDEM_IR_NCCL_H
#define TANDEM_IR_NCCL_H

#include <stdbool.h>
#include <stdint.h>

/* How the executor registers its memory with NCCL. buffer: ncclCommRegister. window:
 * ncclCommWindowRegister, as symmetric memory. none: not at all. auto: as a window if all ranks run
 * the same program, otherwise as a buffer. */
#define NCCL_REGISTERS(X) X(auto) X(buffer) X(window) X(none)
typedef enum NcclRegister {
#define X(name) NCCL_REGISTER_##name,
    NCCL_REGISTERS(X)
#undef X
        NCCL_REGISTER_COUNT
} NcclRegister;
extern const char *const nccl_registers[]; /* their names; ends with NULL */

/* NCCL's CTAPolicy. efficiency: few thread blocks, where registered buffers allow it. zero: copy
 * engines in place of thread blocks, where registered windows allow it. */
#define NCCL_CTA_POLICIES(X) X(default) X(efficiency) X(zero)
typedef enum NcclCtaPolicy {
#define X(name) NCCL_CTAS_##name,
    NCCL_CTA_POLICIES(X)
#undef X
        NCCL_CTA_POLICY_COUNT
} NcclCtaPolicy;
extern const char *const nccl_cta_policies[];

enum {
    NCCL_MOST_CTAS = 64
}; /* NCCL's MAXCHANNELS: the most thread blocks (CTAs) of a communicator */

typedef struct NcclSettings {
    NcclRegister registration;
    NcclCtaPolicy cta_policy;
    uint32_t min_ctas, max_ctas; /* bounds for the thread blocks of each communicator */
} NcclSettings;

/* True if all settings are at their defaults. */
bool nccl_settings_none(const NcclSettings *settings);
/* Returns how many thread blocks NCCL uses under these settings, given that it would use n without
 * them. */
uint32_t nccl_settings_ctas(const NcclSettings *settings, uint32_t n);
/* Returns NULL if the settings do not contradict each other. Otherwise returns the contradiction as
 * a sentence, and sets *hint to a change that removes it, or to NULL. */
const char *nccl_settings_wrong(const NcclSettings *settings, const char **hint);

#endif
