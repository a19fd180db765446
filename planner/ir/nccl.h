/* A plan's settings for NCCL, plan{ nccl = {...} }, named as in ncclConfig_t. Zero leaves the
 * choice to the executor and to NCCL. */
#ifndef TANDEM_IR_NCCL_H
#define TANDEM_IR_NCCL_H

#include <stdbool.h>
#include <stdint.h>

/* The way in which the executor registers its arena with NCCL. auto: as a window if all ranks run
 * one program, otherwise as a buffer. buffer: with ncclCommRegister. window: with
 * ncclCommWindowRegister, as symmetric memory. none: not at all. */
#define NCCL_REGISTERS(X) X(auto) X(buffer) X(window) X(none)
typedef enum NcclRegister {
#define X(name) NCCL_REGISTER_##name,
    NCCL_REGISTERS(X)
#undef X
        NCCL_REGISTER_COUNT
} NcclRegister;
extern const char *const nccl_registers[]; /* the names of the values; the list ends with NULL */

/* The values of NCCL's CTAPolicy. efficiency: few thread blocks, where registered buffers allow
 * this. zero: copy engines and no thread blocks, where windows allow this. */
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
}; /* the most thread blocks (CTAs) of one communicator: NCCL's
      MAXCHANNELS */

typedef struct NcclSettings {
    NcclRegister registration;
    NcclCtaPolicy cta_policy;
    uint32_t min_ctas, max_ctas; /* thread blocks of each communicator */
} NcclSettings;

/* True if all settings are at their defaults. */
bool nccl_settings_none(const NcclSettings *settings);
/* Returns the number of thread blocks under these settings, given that NCCL alone would take n. */
uint32_t nccl_settings_ctas(const NcclSettings *settings, uint32_t n);
/* Returns NULL if the settings agree with each other. Otherwise returns the contradiction as text,
 * and sets *hint to a valid combination. */
const char *nccl_settings_wrong(const NcclSettings *settings, const char **hint);

#endif
