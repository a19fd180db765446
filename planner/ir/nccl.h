/* What a plan asks of NCCL: plan{ nccl = {...} }, in the words of its ncclConfig_t; zero of each
 * leaves the choice to the executor and to NCCL. */
#ifndef TANDEM_IR_NCCL_H
#define TANDEM_IR_NCCL_H

#include <stdbool.h>
#include <stdint.h>

/* What of NCCL's memory registration the arena gets: windows among ranks of one program, else
 * buffers (auto); ncclCommRegister (buffer); ncclCommWindowRegister, symmetric (window). */
#define NCCL_REGISTERS(X) X(auto) X(buffer) X(window) X(none)
typedef enum NcclRegister {
#define X(name) NCCL_REGISTER_##name,
    NCCL_REGISTERS(X)
#undef X
        NCCL_REGISTER_COUNT
} NcclRegister;
extern const char *const nccl_registers[]; /* words, NULL at the end */

/* CTAPolicy: few thread blocks where registered buffers allow it (efficiency); none, but copy
 * engines, where windows allow it (zero). */
#define NCCL_CTA_POLICIES(X) X(default) X(efficiency) X(zero)
typedef enum NcclCtaPolicy {
#define X(name) NCCL_CTAS_##name,
    NCCL_CTA_POLICIES(X)
#undef X
        NCCL_CTA_POLICY_COUNT
} NcclCtaPolicy;
extern const char *const nccl_cta_policies[];

enum { NCCL_MOST_CTAS = 64 }; /* of a communicator: NCCL's MAXCHANNELS */

typedef struct NcclSettings {
    NcclRegister registration;
    NcclCtaPolicy cta_policy;
    uint32_t min_ctas, max_ctas; /* thread blocks of each communicator */
} NcclSettings;

/* Nothing is asked for. */
bool nccl_settings_none(const NcclSettings *settings);
/* Thread blocks, where NCCL alone would take n. */
uint32_t nccl_settings_ctas(const NcclSettings *settings, uint32_t n);
/* Why they do not go together; NULL: they do. `hint`: what would. */
const char *nccl_settings_wrong(const NcclSettings *settings, const char **hint);

#endif
