/* Describes the properties of this machine on which measurements depend. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "kernels/kernel.h"
#include "planner/base/cores.h"

const char *machine_cpu(Arena *arena)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    const char *model = "unknown CPU";
    char line[512];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "model name", 10) != 0) continue;
        const char *colon = strchr(line, ':');
        if (colon == NULL) continue;
        colon += strspn(colon, ": \t");
        model = arena_copy(arena, colon, strcspn(colon, "\n"));
        break;
    }
    if (file != NULL) fclose(file);
    return model;
}

uint64_t machine_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

const char *machine_key(Arena *arena)
{
    return arena_print(arena, "local:%s:%u:%s", machine_cpu(arena), (unsigned)cores_online(),
                       kernel_cpu_blas());
}

const char *machine_own_path(Arena *arena)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    return n > 0 ? arena_copy(arena, path, (size_t)n) : NULL;
}

const char *find_in_path(Arena *arena, const char *program)
{
    const char *path = getenv("PATH");
    while (path != NULL && *path != 0) {
        size_t n = strcspn(path, ":");
        const char *full = arena_print(arena, "%.*s/%s", (int)n, path, program);
        if (n > 0 && access(full, X_OK) == 0) return full;
        path += n + (path[n] == ':');
    }
    return NULL;
}
