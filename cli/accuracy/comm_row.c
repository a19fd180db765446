/* Turns a row of measured_comm.csv into a question to the network model. The row describes a
 * machine in the words of the publication that it comes from. The GPU's name determines the node,
 * and the words and numbers in the column `interconnect` determine the network. The column `notes`
 * says how the collectives were called, such as from one process. */
#define _GNU_SOURCE /* for strcasestr */
#include "cli/accuracy/comm_row.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/front/front.h"

/* Words that name networks, each with a cluster of the library that has this network. If a text
 * contains several words, the first of them in this list counts. Upper and lower case count as
 * equal. */
typedef struct Alias {
    const char *word, *cluster;
} Alias;
static const Alias networks[] = {{"EFAv4", "p6_b200"},
                                 {"EFAv3", "p5en"},
                                 {"p5en", "p5en"},
                                 {"EFA 4x100Gb", "p4de"},
                                 {"p4d", "p4de"},
                                 {"p4de", "p4de"},
                                 {"EFA", "p5"},
                                 {"EFAv2", "p5"},
                                 {"TCPXO", "a3_mega"},
                                 {"TCPX", "a3_high"},
                                 {"Omni-Path", "jean_zay_a100"},
                                 {"Slingshot", "perlmutter"},
                                 {"RoCE", "a3_ultra"},
                                 {"RoCEv2", "a3_ultra"},
                                 {"InfiniBand", "dgx_h100"},
                                 {"IB", "dgx_h100"},
                                 {"RDMA", "dgx_h100"},
                                 {"NDR", "dgx_h100"},
                                 {"HDR", "dgx_a100"},
                                 {"Ethernet", "pcie_rtx4090"}};

/* Returns the first position of a word in a text, or NULL. Case does not count. A part of a longer
 * word is not a match. */
static const char *word_in(const char *text, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = strcasestr(text, word); at != NULL; at = strcasestr(at + 1, word))
        if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[n]))
            return at;
    return NULL;
}

/* Returns the library cluster with the network that a text names, or NULL if the text
 * names none. */
static const char *network_of(const char *text)
{
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        if (word_in(text, networks[i].word) != NULL) return networks[i].cluster;
    return NULL;
}

static const Cluster *loaded(CommClusters *c, const char *name)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (strcmp(c->at[i].name, name) == 0) return c->at[i].fine ? &c->at[i].cluster : NULL;
    if (c->n == sizeof c->at / sizeof *c->at) return NULL;
    struct CommCluster *at = &c->at[c->n++];
    at->name = name;
    Diag d = diag_in(c->arena);
    at->fine = front_cluster(name, 1, c->arena, &at->cluster, &d);
    return at->fine ? &at->cluster : NULL;
}

/* Returns the length of a GPU's name without its memory: for "A100-SXM4-80GB", the length of
 * "A100-SXM4". */
static size_t without_memory(const char *name)
{
    for (const char *at = strchr(name, '-'); at != NULL; at = strchr(at + 1, '-'))
        if (isdigit((unsigned char)at[1])) return (size_t)(at - name);
    return strlen(name);
}

/* Returns a cluster of the library whose nodes have this GPU, with any memory size. Returns NULL if
 * there is none. If several have it, dgx_* is preferred, then hgx_*, then the others. */
static const Cluster *node_of(CommClusters *c, const Device *gpu)
{
    static const char *const makers[] = {"dgx_", "hgx_", ""};
    const size_t n = without_memory(gpu->name);
    if (c->names.n == 0) c->names = front_cluster_names(c->arena);
    for (size_t m = 0; m < sizeof makers / sizeof *makers; m++)
        for (size_t i = 0; i < c->names.n; i++) {
            if (strncmp(c->names.at[i], makers[m], strlen(makers[m])) != 0) continue;
            const Cluster *at = loaded(c, c->names.at[i]);
            if (at != NULL && without_memory(at->device.name) == n &&
                strncmp(at->device.name, gpu->name, n) == 0)
                return at;
        }
    return NULL;
}

/* Finds a collective by its name. Case and separators do not count:
 * "AllReduce", "reducescatter". */
static bool find_collective(const char *text, Collective *kind)
{
    for (Collective k = 0; k < COLLECTIVE_COUNT; k++) {
        const char *a = text, *b = collective_name(k);
        for (;;) {
            while (*a != 0 && strchr("-_ ", *a) != NULL) a++;
            while (*b == '_') b++;
            if (*a == 0 || tolower((unsigned char)*a) != *b) break;
            a++, b++;
        }
        *kind = k;
        if (*a == 0 && *b == 0) return true;
    }
    return false;
}

/* Reads the NICs of a node: "8x400Gb" means eight NICs of 400 Gbit/s, "400Gb" means one for each
 * device. */
static void read_nics(const char *text, Cluster *cluster)
{
    for (const char *p = strstr(text, "Gb"); p != NULL; p = strstr(p + 2, "Gb")) {
        const char *digits = p;
        while (digits > text && isdigit((unsigned char)digits[-1])) digits--;
        if (digits == p) continue;
        double gbit = strtod(digits, NULL);
        if (digits - 1 > text && digits[-1] == 'x' && isdigit((unsigned char)digits[-2])) {
            const char *count = digits - 1;
            while (count > text && isdigit((unsigned char)count[-1])) count--;
            cluster->nics_per_node = (uint32_t)strtoul(count, NULL, 10);
        } else if (strncmp(p, "Gb per node", 11) == 0 || gbit > 800) {
            gbit /= fmax(cluster->nics_per_node, 1);
        } else {
            cluster->nics_per_node = cluster->devices_per_node;
        }
        cluster->nic_bytes_per_s = gbit * 1e9 / 8;
    }
}

static const char *find_cluster(CommClusters *clusters, const Device *gpu, const char *interconnect,
                                uint32_t nodes, Cluster *out)
{
    const Cluster *base = gpu != NULL ? node_of(clusters, gpu) : NULL;
    if (base == NULL) return "no cluster of the library has its GPU";
    *out = *base;
    out->nodes = nodes;
    if (strstr(interconnect, "no NVLink") != NULL || strstr(interconnect, "PCIe only") != NULL) {
        out->intra = FABRIC_pcie;
        out->intra_bytes_per_s = 63e9;
    }
    if (nodes < 2) return NULL;
    const char *network = network_of(interconnect);
    if (network == NULL) return "its network between nodes is not named";
    const Cluster *with = loaded(clusters, network);
    if (with == NULL) return "its network cannot be loaded";
    out->fabric = with->fabric;
    out->nics_per_node = with->nics_per_node;
    out->nic_bytes_per_s = with->nic_bytes_per_s;
    read_nics(interconnect, out);
    return NULL;
}

static bool says(const char *text, const char *word)
{
    return strstr(text, word) != NULL;
}

/* Returns true if the text says that the switches between nodes use SHARP. Three uses of the word
 * do not count: NVLink's own SHARP ("NVLink4 SHARP" is NVLS), a SHARP behind a denial ("no SHARP"),
 * and longer names such as the job run-SHARP-3. */
static bool says_sharp(const char *text)
{
    static const char *const others[] = {"NVLink", "NVLink3", "NVLink4", "NVLink5",
                                         "no",     "No",      "without", "non"};
    for (const char *at = strstr(text, "SHARP"); at != NULL; at = strstr(at + 5, "SHARP")) {
        const char before = at > text ? at[-1] : ' ', after = at[5];
        if (isalnum((unsigned char)before) || strchr("_-/", before) != NULL) continue;
        if (isalnum((unsigned char)after) || (after != 0 && strchr("_-/=", after) != NULL))
            continue;
        if (strncmp(at + 5, " off", 4) == 0 || strncmp(at + 5, " disabled", 9) == 0) continue;
        const char *end = at;
        while (end > text && end[-1] == ' ') end--;
        const char *word = end;
        while (word > text && isalnum((unsigned char)word[-1])) word--;
        bool other = false;
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            other = other || ((size_t)(end - word) == strlen(others[i]) &&
                              strncmp(word, others[i], strlen(others[i])) == 0);
        if (!other) return true;
    }
    return false;
}

/* Reads the conditions of a run from the notes. If the row gives only a peak bandwidth, NVLS counts
 * as used only if the interconnect names SHARP. */
static void read_notes(const char *notes, const char *interconnect, CommRow *out)
{
    bool peak = out->measured_us <= 0;
    if (says(notes, "NVLS off") || says(notes, "NVLS_ENABLE=0") ||
        (peak && !says(interconnect, "SHARP")))
        out->cluster.fabric.no_nvls = true;
    if (out->cluster.nodes > 1 && says_sharp(interconnect)) out->cluster.fabric.sharp = true;
    out->question.issue = says(notes, "single process") ? NCCL_one_process
                          : says(notes, "CUDA-graph")   ? NCCL_pipelined
                                                        : NCCL_blocking;
}

const char *comm_row(CommClusters *clusters, const Csv *csv, uint32_t row, CommRow *out)
{
    *out = (CommRow){0};
    const char *name = csv_cell(csv, row, "collective");
    if (strncmp(name, "ep_", 3) == 0) return "kernels of an expert library, not NCCL's";
    if (strncmp(name, "p2p_", 4) == 0) return "a copy, not NCCL's";
    if (!find_collective(name, &out->question.kind)) return "the collective is unknown";
    double gpus_all = csv_number(csv, row, "n_gpus"), nodes = csv_number(csv, row, "nodes");
    if (!(gpus_all >= 2) || !(nodes >= 1)) return "the number of GPUs or nodes is not stated";
    if (fmod(gpus_all, nodes) != 0) return "its nodes have different numbers of GPUs in the group";
    double bytes = csv_number(csv, row, "bytes"), us = csv_number(csv, row, "time_us");
    double bus = csv_number(csv, row, "busbw_GBps");
    if (csv_cell(csv, row, "bytes")[0] != 0 && !(bytes > 0)) return "bytes is not a number";
    double part = collective_bus_factor(out->question.kind, gpus_all);
    if (!(us > 0) && bytes > 0 && bus > 0) us = bytes * part / bus / 1e3;
    out->measured_us = us > 0 && bytes > 0 ? us : 0;
    if (!(out->measured_us > 0) && !(bus > 0)) return "it has neither a time nor a bandwidth";
    out->bus_bytes_per_s = bus * 1e9;
    const char *interconnect = csv_cell(csv, row, "interconnect");
    /* In a rack, trays of 4 GPUs share their switches, so up to 72 GPUs count as one node. */
    clusters->devices.arena = clusters->arena;
    const Device *gpu = kernel_row_device(&clusters->devices, csv_cell(csv, row, "gpu"));
    const bool rack =
        says(interconnect, "NVL72") || (gpu != NULL && strncmp(gpu->name, "GB", 2) == 0);
    if (rack && !says(interconnect, "NVL4")) {
        const double domain = gpus_all <= 72 ? gpus_all : fmod(gpus_all, 72) == 0 ? 72 : 64;
        if (fmod(gpus_all, domain) == 0 && gpus_all / domain < nodes) nodes = gpus_all / domain;
    }
    const char *why = find_cluster(clusters, gpu, interconnect, (uint32_t)nodes, &out->cluster);
    if (why != NULL) return why;
    out->question.n_nodes = (uint32_t)nodes;
    out->question.ranks_per_node = (uint32_t)(gpus_all / nodes);
    if (out->question.ranks_per_node > out->cluster.devices_per_node)
        out->cluster.devices_per_node = out->question.ranks_per_node;
    /* a row without a size gives a peak */
    out->question.bytes = bytes > 0 ? (uint64_t)bytes : UINT64_C(16) << 30;
    read_notes(csv_cell(csv, row, "notes"), interconnect, out);
    return NULL;
}

double comm_row_measured(const CommRow *row)
{
    return row->measured_us > 0 ? row->measured_us : row->bus_bytes_per_s;
}

double comm_row_predicted(const CommRow *row, const NcclFit *fit)
{
    NcclQuestion q = row->question;
    q.fit = fit;
    NcclChoice choice = nccl_answer(&row->cluster, &q);
    return row->measured_us > 0 ? (double)choice.time_ps / 1e6 : choice.bus_bytes_per_s;
}
