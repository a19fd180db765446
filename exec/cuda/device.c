/* Chooses the device of a rank, describes it, and checks that the devices of all ranks are
 * compatible. All this happens before anything is created on a device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/cuda/private.h"
#include "exec/launch/launch.h"

enum { OLDEST_CAPABILITY = 80 };

/* Chooses the index of the device. It is the index of this rank on its machine, unless the user has
 * asked for another device. It is 0 if CUDA shows only one device, or if ranks share a device. */
static bool choose_number(Cuda *c, int n)
{
    if (c->own.device > 0) {
        c->gpu.device = (int)c->own.device - 1;
        return c->gpu.device < n ||
               cuda_fail(c, "cuda-device",
                         "there is no device %d; CUDA shows %d devices here, counted from 0",
                         c->gpu.device, n);
    }
    if (n > 1 && c->n_ranks > 1 && !c->meet->knows_local && !c->own.share_device)
        return cuda_fail(c, "cuda-device",
                         "rank %u does not know its number on this machine, where CUDA shows %d "
                         "devices. Set LOCAL_RANK like torchrun, or give each rank --device",
                         c->rank, n);
    c->gpu.device = n == 1 || c->own.share_device ? 0 : (int)c->meet->local_rank;
    return c->gpu.device < n ||
           cuda_fail(c, "cuda-device",
                     "rank %u is number %u on this machine, where CUDA shows only %d devices",
                     c->rank, c->meet->local_rank, n);
}

/* Sets environment variables so that NCCL lets several ranks use one device, as if each rank were
 * on its own host. They must be set before NCCL's first call. A variable that the user has set is
 * not changed. */
static void share_device(const Cuda *c)
{
    static const char *const settings[][2] = {
        {"NCCL_MNNVL_ENABLE", "0"}, {"NCCL_NVLS_ENABLE", "0"},    {"NCCL_NET", "Socket"},
        {"NCCL_IB_DISABLE", "1"},   {"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_MAX_CTAS", "2"},
        {"NCCL_ALGO", "Ring"},      {"NCCL_PROTO", "Simple"},     {"NCCL_BUFFSIZE", "1048576"},
        {"NCCL_RAS_ENABLE", "0"}};
    char host[32];
    snprintf(host, sizeof host, "tandem-%u", c->rank);
    setenv("NCCL_HOSTID", host, 0);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        setenv(settings[i][0], settings[i][1], 0);
}

/* Sets environment variables that the driver and NCCL read at their first call. A variable that the
 * user has set is not changed. Streams in the same hardware queue wait for each other, even where
 * the plan lets them run at the same time. There are only 8 queues unless
 * CUDA_DEVICE_MAX_CONNECTIONS requests more. If there are several ranks, NCCL is told to make its
 * connections at the start. Without this setting, the first use of a collective makes the issuing
 * thread wait for the issuing threads of other ranks, which may be waiting in another collective.
 * (The connections for messages are made when comm.c warms up.) */
void device_environment(void)
{
    uint32_t n = 0, mine = 0;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (!launch_inside(&n, &mine, NULL) || n == 1) return;
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
}

bool device_choose(Cuda *c)
{
    int n = 0;
    struct cudaDeviceProp p;
    size_t total = 0, unused = 0;
    if (!CHECK_CUDA(c, cudaGetDeviceCount, (&n))) return false;
    if (n == 0) return cuda_fail(c, "cuda-no-device", "CUDA shows no device on this machine");
    if (c->own.share_device) share_device(c);
    if (!choose_number(c, n) || !CHECK_CUDA(c, cudaSetDevice, (c->gpu.device)) ||
        !CHECK_CUDA(c, cudaGetDeviceProperties, (&p, c->gpu.device)) ||
        !CHECK_CUDA(c, cudaMemGetInfo, (&unused, &total)))
        return false;
    c->gpu.free_before = unused;
    c->gpu.context.n_sms = (uint32_t)p.multiProcessorCount;
    c->gpu.context.l2_bytes = (uint64_t)p.l2CacheSize;
    c->gpu.context.compute_capability = (uint32_t)(10 * p.major + p.minor);
    if (c->gpu.context.compute_capability < OLDEST_CAPABILITY)
        return cuda_fail(c, "cuda-device",
                         "device %d, a %s, has compute capability %d.%d, but 8.0 is needed",
                         c->gpu.device, p.name, p.major, p.minor);
    Identity *id = &c->comms.mine;
    memcpy(id->uuid, p.uuid.bytes, sizeof id->uuid);
    id->capability = (int32_t)c->gpu.context.compute_capability;
    id->device = c->gpu.device;
    snprintf(id->name, sizeof id->name, "%.*s", (int)sizeof id->name - 1, p.name);
    return CHECK_CUDA(c, cudaDriverGetVersion, (&id->driver)) &&
           CHECK_CUDA(c, cudaRuntimeGetVersion, (&id->runtime)) &&
           CHECK_NCCL(c, NULL, ncclGetVersion, (&id->nccl));
}

bool device_driver(Cuda *c, const char *name, unsigned version, const char *what_for, void **at)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    *at = NULL;
    if (!CHECK_CUDA(c, cudaGetDriverEntryPointByVersion,
                    (name, at, version, cudaEnableDefault, &found)))
        return false;
    return (found == cudaDriverEntryPointSuccess && *at != NULL) ||
           cuda_fail(c, "cuda-driver", "this driver has no %s, %s", name, what_for);
}

static uint64_t host_hash(void)
{
    char text[512] = "";
    gethostname(text, sizeof text / 2);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    size_t n = strlen(text);
    if (f != NULL) {
        n += fread(text + n, 1, sizeof text - n, f);
        fclose(f);
    }
    return hash_bytes(text, n).lo;
}

static void uuid_text(const Identity *id, char out[48])
{
    const unsigned char *u = id->uuid;
    snprintf(out, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
             u[14], u[15]);
}

/* Compares the devices of two ranks. Every rank makes the same comparisons, so every rank finds and
 * reports the same fault. */
static bool compare(Cuda *c, Rank a, Rank b)
{
    const Identity *x = &c->comms.all[a], *y = &c->comms.all[b];
    char uuid[48];
    bool same_device = x->host == y->host && memcmp(x->uuid, y->uuid, sizeof x->uuid) == 0;
    uuid_text(x, uuid);
    if (same_device && !c->own.share_device) {
        cuda_fail(c, "device-shared", "ranks %u and %u are both on %s (%s)", a, b, uuid, x->name);
        diag_hint(c->d, "give each rank a device of its own, or use --share-device (slow; only for "
                        "tests of results)");
        return false;
    }
    if (x->nccl != y->nccl)
        return cuda_fail(c, "device-mismatch", "rank %u has NCCL %d, but rank %u has %d", a,
                         x->nccl, b, y->nccl);
    if (x->capability != y->capability)
        return cuda_fail(c, "device-mismatch",
                         "rank %u uses a %s (capability %d), but rank %u uses a %s (%d), so they "
                         "would round differently",
                         a, x->name, x->capability, b, y->name, y->capability);
    return true;
}

bool device_identify(Cuda *c)
{
    c->comms.mine.host = host_hash();
    c->comms.all = arena_array(c->arena, c->n_ranks, sizeof *c->comms.all);
    if (!c->meet->exchange(c->meet, &c->comms.mine, sizeof c->comms.mine, c->comms.all,
                           c->watch.patience_s))
        return cuda_fail(c, "rank-open", "rank %u: %s", c->rank, c->meet->why);
    for (Rank b = 1; b < c->n_ranks; b++)
        for (Rank a = 0; a < b; a++)
            if (!compare(c, a, b)) return false;
    return true;
}

/* ---- for `tandem doctor` ---- */

static void add(Arena *arena, CudaFindings *f, const char *name, const char *state,
                const char *text)
{
    list_push(arena, &f->all, ((CudaFinding){name, state, text}));
}

static const char *version_text(Arena *arena, int version)
{
    return arena_print(arena, "%d.%d", version / 1000, version % 1000 / 10);
}

void device_describe(Arena *arena, CudaFindings *findings)
{
    int runtime = 0, driver = 0, nccl = 0, n = 0;
    device_environment();
    cudaRuntimeGetVersion(&runtime);
    cudaError_t asked = cudaDriverGetVersion(&driver);
    add(arena, findings, "cuda", "ok",
        arena_print(arena, "runtime %s", version_text(arena, runtime)));
    if (asked != cudaSuccess || driver == 0)
        add(arena, findings, "driver", "missing", "no NVIDIA driver is loaded");
    else
        add(arena, findings, "driver", driver / 1000 < runtime / 1000 ? "missing" : "ok",
            arena_print(arena, "for CUDA %s", version_text(arena, driver)));
    if (ncclGetVersion(&nccl) == ncclSuccess)
        add(arena, findings, "nccl", "ok",
            arena_print(arena, "%d.%d.%d", nccl / 10000, nccl / 100 % 100, nccl % 100));
    asked = cudaGetDeviceCount(&n);
    if (asked != cudaSuccess) {
        cudaGetLastError();
        add(arena, findings, "gpu", "missing", arena_dup(arena, cudaGetErrorString(asked)));
    }
    for (int i = 0; asked == cudaSuccess && i < n; i++) {
        struct cudaDeviceProp p;
        if (cudaGetDeviceProperties(&p, i) != cudaSuccess) continue;
        bool fine = 10 * p.major + p.minor >= OLDEST_CAPABILITY;
        add(arena, findings, arena_print(arena, "gpu %d", i), fine ? "ok" : "missing",
            arena_print(arena, "%s, %s, capability %d.%d%s, %d SMs", p.name,
                        str_bytes(arena, p.totalGlobalMem), p.major, p.minor,
                        fine ? "" : " (8.0 is needed)", p.multiProcessorCount));
    }
}

const char *device_name(Arena *arena, uint32_t device)
{
    struct cudaDeviceProp p;
    int n = 0;
    device_environment();
    if (cudaGetDeviceCount(&n) != cudaSuccess || (int)device >= n ||
        cudaGetDeviceProperties(&p, (int)device) != cudaSuccess) {
        cudaGetLastError();
        return NULL;
    }
    return arena_dup(arena, p.name);
}
