/* Reads the links of a cluster as NCCL does: the generation of the GPU, and the rates that NCCL
 * assumes for a port and for a NIC. */
#include <math.h>
#include <string.h>

#include "sim/net/nccl.h"

Generation nccl_generation(const Cluster *cluster)
{
    const char *name = cluster->device.arch == NULL ? "" : cluster->device.arch;
    if (strncmp(name, "Blackwell", 9) == 0) return GENERATION_blackwell;
    if (strncmp(name, "Hopper", 6) == 0) return GENERATION_hopper;
    if (strncmp(name, "Volta", 5) == 0) return GENERATION_volta;
    return GENERATION_ampere;
}

bool nccl_has_nvlink(const Cluster *cluster)
{
    return cluster->intra == FABRIC_nvswitch || cluster->intra == FABRIC_nvlink;
}

bool nccl_has_switch(const Cluster *cluster)
{
    return cluster->intra == FABRIC_nvswitch;
}

double nccl_port_bytes_per_s(const Cluster *cluster)
{
    /* topo.h assumes lower rates than the nominal ones of links: 20 GB/s of 25, 20.6 of 25
     * (Hopper), 40.1 of 50 (Blackwell); for PCIe 4 x16, 24 of 31.5 */
    static const double part[GENERATION_COUNT] = {.8, .8, 20.6 / 25, 40.1 / 50};
    double share = nccl_has_nvlink(cluster) ? part[nccl_generation(cluster)] : .76;
    return cluster->intra_bytes_per_s * share;
}

double nccl_nic_bytes_per_s(const Cluster *cluster)
{
    double achieved = cluster->fabric.achieved > 0 ? cluster->fabric.achieved : .96;
    /* paths.cc assumes 24 GB/s of 25 for HDR, and 48 of 50 for NDR */
    return cluster->nic_bytes_per_s * achieved;
}

double nccl_nic_rails(const Cluster *cluster)
{
    return fmax(floor(cluster->nics_per_node / fmax(cluster->devices_per_node, 1)), 1);
}
