/* The names of NCCL's settings, and a check for settings that contradict each other. */
#include "planner/ir/nccl.h"

#include <stdbool.h>
#include <stddef.h>

const char *const nccl_registers[] = {
#define X(name) #name,
    NCCL_REGISTERS(X)
#undef X
        NULL};

const char *const nccl_cta_policies[] = {
#define X(name) #name,
    NCCL_CTA_POLICIES(X)
#undef X
        NULL};

bool nccl_settings_none(const NcclSettings *s)
{
    return !s->registration && !s->cta_policy && s->min_ctas == 0 && s->max_ctas == 0;
}

uint32_t nccl_settings_ctas(const NcclSettings *s, uint32_t n)
{
    if (s->max_ctas > 0 && n > s->max_ctas) n = s->max_ctas;
    return n < s->min_ctas ? s->min_ctas : n;
}

const char *nccl_settings_wrong(const NcclSettings *s, const char **hint)
{
    *hint = NULL;
    if (s->max_ctas > 0 && s->min_ctas > s->max_ctas) {
        *hint = "min_ctas may be at most max_ctas";
        return "min_ctas is more than max_ctas";
    }
    bool copies = s->registration == NCCL_REGISTER_buffer || s->registration == NCCL_REGISTER_none;
    if (s->cta_policy == NCCL_CTAS_zero && copies) {
        *hint = "register = \"window\"";
        return "cta_policy = \"zero\" needs registered windows, because only these can be copied "
               "without SMs";
    }
    if (s->cta_policy == NCCL_CTAS_efficiency && s->registration == NCCL_REGISTER_none) {
        *hint = "set register = \"buffer\" or \"window\"";
        return "cta_policy = \"efficiency\" needs registered buffers";
    }
    return NULL;
}
