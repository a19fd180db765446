/* A cluster for numbers computed by hand: H100 with NVSwitch, and one NIC of 50 GB/s for each GPU.
 */
#ifndef TANDEM_TESTS_SIM_DGX_H
#define TANDEM_TESTS_SIM_DGX_H

#include "planner/front/config.h"

static inline Cluster dgx_h100(uint32_t nodes, uint32_t per_node)
{
    Cluster c = {.name = "dgx", .nodes = nodes, .intra = FABRIC_nvswitch};
    c.devices_per_node = per_node;
    c.device = (Device){.name = "H100", .arch = "Hopper", .sms = 132, .hbm_bytes_per_s = 3.35e12};
    c.intra_bytes_per_s = 450e9;
    c.nics_per_node = per_node;
    c.nic_bytes_per_s = 50e9;
    c.oversubscription = c.group_oversubscription = 1;
    return c;
}

#endif
