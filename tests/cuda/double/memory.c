/* Device memory is a file that is mapped twice. CUDA's pointers point into one mapping, which
 * nobody may touch. The double uses the other mapping. New memory is full of NaNs. Also devices,
 * versions, and errors. */
#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda/double/private.h"

enum {
    ALIGN = 512,
    NCCL_ALIGN = 2 << 20,
    BEHIND = 64 << 10,
    MAX_BLOCKS = 4096,
    CONTEXT_BYTES = 1 << 20,
    PAGE = 4096,
    MANY_BYTES = 1 << 20,
    HUGE_BYTES = 64 << 20
};

typedef struct Block {
    uint64_t offset, bytes, asked; /* asked: the bytes before the size was rounded up */
} Block;

static int file = -1;
static char *outside, *inside;  /* the two mappings of the device's memory */
static Block block[MAX_BLOCKS]; /* by ascending offset */
static uint32_t n_blocks;
static uint64_t used;

typedef struct Pinned {
    const char *at;
    uint64_t bytes;
} Pinned;
static Pinned pinned[MAX_BLOCKS];
static uint32_t n_pinned;

static void open_file(void)
{
    char path[] = "/dev/shm/tandem-double-XXXXXX";
    if (file >= 0) return;
    file = mkstemp(path);
    if (file < 0 || unlink(path) != 0 || ftruncate(file, (off_t)DEVICE_RANGE) != 0)
        double_misuse("no file for device memory");
    outside = mmap(NULL, DEVICE_RANGE, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    inside = mmap(NULL, DEVICE_RANGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (outside == MAP_FAILED || inside == MAP_FAILED) double_misuse("cannot map device memory");
}

void double_memory_reset(void)
{
    n_pinned = 0;
    if (file < 0) return;
    munmap(outside, DEVICE_RANGE);
    munmap(inside, DEVICE_RANGE);
    close(file);
    file = -1;
    n_blocks = 0;
    used = 0;
}

int double_memory_file(void)
{
    open_file();
    return file;
}

bool double_is_device(const void *at)
{
    const char *p = at;
    return file >= 0 && p >= outside && p < outside + DEVICE_RANGE;
}

uint64_t double_memory_offset(const void *at)
{
    if (!double_is_device(at)) double_misuse("an address that is not in device memory");
    return (uint64_t)((const char *)at - outside);
}

void *double_translate(const void *at)
{
    if (!double_is_device(at)) return (void *)(uintptr_t)at;
    return inside + double_memory_offset(at);
}

/* Makes whole pages of zeros holes in the file. That is much faster than writing zeros, and timed
 * products clear 128 MiB before each run. */
static bool make_hole(char *at, uint64_t bytes)
{
    const uint64_t head = (PAGE - (uintptr_t)at % PAGE) % PAGE;
    const uint64_t tail = (uintptr_t)(at + bytes) % PAGE;
    if (bytes < MANY_BYTES || madvise(at + head, bytes - head - tail, MADV_REMOVE) != 0)
        return false;
    memset(at, 0, head);
    memset(at + bytes - tail, 0, tail);
    return true;
}

void double_fill(void *to, int value, uint64_t bytes)
{
    char *at = double_translate(to);
    if (value != 0 || !make_hole(at, bytes)) memset(at, value, bytes);
}

/* Fills a new or freed block, and some bytes after it, with NaNs. A huge block gets NaNs only at
 * its ends and zeros between them. Only the buffer that clears the cache is that large, and its
 * numbers are never read; the arenas of the tests' plans are smaller. */
static void fill_with_nan(const Block *b)
{
    char *at = inside + b->offset;
    const uint64_t end = b->asked + BEHIND, n = end < b->bytes ? end : b->bytes;
    const uint64_t between = n < HUGE_BYTES ? 0 : n - 2 * MANY_BYTES;
    if (between == 0 || !make_hole(at + MANY_BYTES, between)) {
        memset(at, 0xff, n);
        return;
    }
    memset(at, 0xff, MANY_BYTES);
    memset(at + n - MANY_BYTES, 0xff, MANY_BYTES);
}

static bool allocate(void **at, size_t bytes, uint64_t align)
{
    uint64_t size = (bytes + align - 1) / align * align, offset = 0;
    uint32_t i = 0;
    open_file();
    if (bytes == 0 || used + size > world()->memory || n_blocks == MAX_BLOCKS) return false;
    for (; i < n_blocks && (block[i].offset < offset || block[i].offset - offset < size); i++)
        offset = (block[i].offset + block[i].bytes + align - 1) / align * align;
    if (offset + size > DEVICE_RANGE) return false;
    memmove(&block[i + 1], &block[i], (n_blocks - i) * sizeof *block);
    block[i] = (Block){offset, size, bytes};
    n_blocks++;
    used += size;
    fill_with_nan(&block[i]);
    *at = outside + offset;
    world()->live[OBJECT_device]++;
    return true;
}

static bool release(void *at)
{
    if (at == NULL) return true;
    uint64_t offset = double_is_device(at) ? double_memory_offset(at) : UINT64_MAX;
    for (uint32_t i = 0; i < n_blocks; i++) {
        if (block[i].offset != offset) continue;
        used -= block[i].bytes;
        fill_with_nan(&block[i]);
        memmove(&block[i], &block[i + 1], (n_blocks - i - 1) * sizeof *block);
        n_blocks--;
        world()->live[OBJECT_device]--;
        return true;
    }
    return false;
}

/* ---- CUDA ---- */

cudaError_t cudaMalloc(void **at, size_t bytes)
{
    CUDA_CALL(cudaMalloc);
    if (double_is_capturing()) return double_spoil_capture();
    return world()->last = allocate(at, bytes, ALIGN) ? cudaSuccess : cudaErrorMemoryAllocation;
}

/* As in CUDA, this waits for all earlier work of the device. */
cudaError_t cudaFree(void *at)
{
    CUDA_CALL(cudaFree);
    if (at != NULL) double_finish_all();
    return release(at) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMallocHost(void **at, size_t bytes)
{
    CUDA_CALL(cudaMallocHost);
    if (double_is_capturing()) return double_spoil_capture();
    *at = NULL;
    if (posix_memalign(at, 4096, bytes > 0 ? bytes : 1) != 0) return cudaErrorMemoryAllocation;
    memset(*at, 0xff, bytes);
    if (n_pinned == MAX_BLOCKS) double_misuse("too many blocks of pinned memory");
    pinned[n_pinned++] = (Pinned){*at, bytes};
    world()->live[OBJECT_host]++;
    return cudaSuccess;
}

/* As in the driver, this waits for the device, like cudaFree. */
cudaError_t cudaFreeHost(void *at)
{
    CUDA_CALL(cudaFreeHost);
    if (at != NULL) double_finish_all();
    for (uint32_t i = 0; i < n_pinned; i++)
        if (pinned[i].at == at) pinned[i--] = pinned[--n_pinned];
    if (at != NULL) double_delete(OBJECT_host, at);
    return cudaSuccess;
}

bool double_is_pinned(const void *at)
{
    const char *p = at;
    for (uint32_t i = 0; i < n_pinned; i++)
        if (p >= pinned[i].at && p < pinned[i].at + pinned[i].bytes) return true;
    return false;
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
    CUDA_CALL(cudaMemGetInfo);
    *total = world()->memory + CONTEXT_BYTES;
    *unused = world()->memory - used;
    return cudaSuccess;
}

ncclResult_t ncclMemAlloc(void **at, size_t bytes)
{
    Scripted s = double_script("ncclMemAlloc");
    if (s.kind == SCRIPT_fail) return (ncclResult_t)s.code;
    return allocate(at, bytes, NCCL_ALIGN) ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclMemFree(void *at)
{
    double_script("ncclMemFree");
    return release(at) ? ncclSuccess : ncclInvalidArgument;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    CUDA_CALL(cudaGetDeviceCount);
    if (world()->driver < 1000 * (CUDART_VERSION / 1000))
        return world()->last = cudaErrorInsufficientDriver;
    *n = world()->n_devices;
    return *n > 0 ? cudaSuccess : (world()->last = cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    CUDA_CALL(cudaSetDevice);
    if (device < 0 || device >= world()->n_devices) return world()->last = cudaErrorInvalidDevice;
    world()->current = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    CUDA_CALL(cudaGetDeviceProperties);
    memset(p, 0, sizeof *p);
    const char *name = getenv("TANDEM_DOUBLE_NAME");
    snprintf(p->name, sizeof p->name, "%s", name != NULL ? name : "Double");
    p->major = world()->capability / 10;
    p->minor = world()->capability % 10;
    p->multiProcessorCount = 4;
    p->totalGlobalMem = world()->memory;
    memset(p->uuid.bytes, world()->same_uuid ? 1 : device + 1, sizeof p->uuid.bytes);
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    CUDA_CALL(cudaDriverGetVersion);
    *version = world()->driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    CUDA_CALL(cudaRuntimeGetVersion);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t last = world()->last;
    world()->last = cudaSuccess;
    return last;
}

const char *cudaGetErrorName(cudaError_t error)
{
    static char text[48];
    if (error == cudaErrorMemoryAllocation) return "cudaErrorMemoryAllocation";
    if (error == cudaErrorNoDevice) return "cudaErrorNoDevice";
    if (error == cudaErrorInsufficientDriver) return "cudaErrorInsufficientDriver";
    snprintf(text, sizeof text, "error %d", (int)error);
    return text;
}

const char *cudaGetErrorString(cudaError_t error)
{
    if (error == cudaErrorMemoryAllocation) return "out of memory";
    if (error == cudaErrorNoDevice) return "no CUDA-capable device is detected";
    if (error == cudaErrorInsufficientDriver)
        return "CUDA driver version is insufficient for CUDA runtime version";
    if (error == cudaErrorStreamCaptureInvalidated)
        return "operation failed due to a previous error during capture";
    return "an error that the script told";
}
