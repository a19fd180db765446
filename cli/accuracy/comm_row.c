/* Turns a row of measured_comm.csv into a question to the network model. The cell `gpu`
 * determines the node, and the cell `interconnect` the network (scripts/tandem/collective.lua). The
 * cell `notes` says how the collectives were called, such as from one process. */
#include "cli/accuracy/comm_row.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "cli/accuracy/comm_cells.h"
#include "planner/front/front.h"

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

/* Returns the cluster with the links that a row states. Returns NULL after setting *why to the
 * reason why the row states none. */
static const Cluster *stated(CommClusters *c, const char *gpu, const char *interconnect,
                             uint32_t per_node, bool between, const char **why)
{
    Arena *arena = c->arena;
    const char *key =
        arena_print(arena, "%s|%s|%u|%d", gpu, interconnect, (unsigned)per_node, between);
    for (uint32_t i = 0; i < c->read.n; i++) {
        if (strcmp(c->read.at[i].name, key) != 0) continue;
        *why = c->read.at[i].why;
        return *why == NULL ? &c->read.at[i].cluster : NULL;
    }
    struct CommStated read = {.name = key};
    Diag d = diag_in(arena);
    if (!front_published_cluster(gpu, interconnect, per_node, between, arena, &read.cluster, &d))
        read.why = d.items.n > 0 ? d.items.at[0].text : "its links cannot be read";
    const uint32_t i = list_push(arena, &c->read, read);
    *why = read.why;
    return read.why == NULL ? &c->read.at[i].cluster : NULL;
}

/* Takes the links within a node from the library's cluster of this GPU, if there is one, and the
 * network from the row. */
static const char *find_cluster(CommClusters *clusters, const Device *gpu, const char *name,
                                const char *interconnect, uint32_t nodes, uint32_t per_node,
                                Cluster *out)
{
    const char *why;
    if (gpu == NULL) return "no such GPU in the library";
    const Cluster *base = node_of(clusters, gpu);
    if (base != NULL && base->devices_per_node > per_node) per_node = base->devices_per_node;
    const Cluster *with = stated(clusters, name, interconnect, per_node, nodes > 1, &why);
    if (with == NULL) return why;
    const Cluster *own =
        node_of(clusters, &with->device); /* the row's links may name another board */
    *out = own != NULL ? *own : *with;
    out->nodes = nodes;
    if (with->intra == FABRIC_pcie) {
        out->intra = FABRIC_pcie;
        out->intra_bytes_per_s = with->intra_bytes_per_s;
    }
    if (nodes < 2) return NULL;
    out->fabric = with->fabric;
    out->nics_per_node = with->nics_per_node;
    out->nic_bytes_per_s = with->nic_bytes_per_s;
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

/* Reads the size and the time. A row with a rate and a size has a time. A row with a rate and a
 * time has a size. A row with only a rate gives a peak. */
static const char *read_time(const Csv *csv, uint32_t row, Arena *arena, double n, CommRow *out)
{
    const char *size = csv_cell(csv, row, "bytes"), *time = csv_cell(csv, row, "time_us");
    const char *rate = csv_cell(csv, row, "busbw_GBps"), *plain = csv_cell(csv, row, "algbw");
    double bytes = comm_bytes(size), us = comm_us(time), bus = comm_gb_per_s(rate);
    const double part = collective_bus_factor(out->question.kind, n), alone = comm_gb_per_s(plain);
    if (*size != 0 && !(bytes > 0)) return arena_print(arena, "bytes is not a size: %.40s", size);
    if (*time != 0 && isnan(us)) return arena_print(arena, "time_us is not a time: %.40s", time);
    if (*rate != 0 && isnan(bus)) return arena_print(arena, "busbw_GBps is no rate: %.40s", rate);
    if (!(bus > 0) && alone > 0) bus = alone * part;
    if (us > 0 && !(bytes > 0) && !(bus > 0)) return "it has a time, but no size";
    if (us > 0 && !(bytes > 0)) bytes = bus * us * 1e3 / part;
    if (!(us > 0) && bytes > 0 && bus > 0) us = bytes * part / bus / 1e3;
    out->measured_us = us > 0 && bytes > 0 ? us : 0;
    if (!(out->measured_us > 0) && !(bus > 0)) return "it has neither a time nor a bandwidth";
    out->bus_bytes_per_s = bus * 1e9;
    /* a row without a size gives a peak */
    out->question.bytes = bytes > 0 ? (uint64_t)(bytes + .5) : UINT64_C(16) << 30;
    return NULL;
}

/* Returns the number of nodes for the network. In a rack, trays of 4 GPUs share their switches, so
 * up to 72 GPUs count as one node. */
static double domains(const Device *gpu, const char *interconnect, double gpus_all, double nodes)
{
    const bool rack =
        says(interconnect, "NVL72") || (gpu != NULL && strncmp(gpu->name, "GB", 2) == 0);
    if (!rack || says(interconnect, "NVL4")) return nodes;
    const double domain = gpus_all <= 72 ? gpus_all : fmod(gpus_all, 72) == 0 ? 72 : 64;
    return fmod(gpus_all, domain) == 0 && gpus_all / domain < nodes ? gpus_all / domain : nodes;
}

const char *comm_row(CommClusters *clusters, const Csv *csv, uint32_t row, CommRow *out)
{
    *out = (CommRow){0};
    Arena *arena = clusters->arena;
    const char *name = csv_cell(csv, row, "collective"), *notes = csv_cell(csv, row, "notes");
    if (strncmp(name, "ep_", 3) == 0) return "kernels of an expert library, not NCCL's";
    if (strncmp(name, "p2p_", 4) == 0 || says(notes, "p2pBandwidthLatencyTest"))
        return "a copy, not NCCL's";
    if (!comm_kind(name, &out->question.kind))
        return arena_print(arena, "the collective is unknown: %.40s", name);
    const char *interconnect = csv_cell(csv, row, "interconnect");
    double gpus_all, nodes;
    const char *why = comm_ranks(csv_cell(csv, row, "n_gpus"), csv_cell(csv, row, "nodes"),
                                 interconnect, &gpus_all, &nodes);
    if (why != NULL) return why;
    why = read_time(csv, row, arena, gpus_all, out);
    if (why != NULL) return why;
    clusters->devices.arena = arena;
    const char *called = csv_cell(csv, row, "gpu");
    const Device *gpu = kernel_row_device(&clusters->devices, called);
    nodes = domains(gpu, interconnect, gpus_all, nodes);
    out->question.n_nodes = (uint32_t)nodes;
    out->question.ranks_per_node = (uint32_t)(gpus_all / nodes);
    why = find_cluster(clusters, gpu, called, interconnect, (uint32_t)nodes,
                       out->question.ranks_per_node, &out->cluster);
    if (why != NULL) return why;
    if (out->question.ranks_per_node > out->cluster.devices_per_node)
        out->cluster.devices_per_node = out->question.ranks_per_node;
    read_notes(notes, interconnect, out);
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
