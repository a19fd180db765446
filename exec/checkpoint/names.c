/* Makes and reads the names of checkpoints and of their trainings. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/checkpoint/private.h"

const char *checkpoint_step_name(uint64_t step, Arena *arena)
{
    return arena_print(arena, "step-%08" PRIu64, step);
}

const char *checkpoint_rank_name(Rank rank, Arena *arena)
{
    return arena_print(arena, "rank-%05" PRIu32 ".safetensors", rank);
}

bool checkpoint_is_step(const char *name, uint64_t *step)
{
    char *end = NULL;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9') return false;
    *step = strtoull(name + 5, &end, 10);
    return *end == 0;
}

bool checkpoint_is_whole(const char *folder, Arena *arena)
{
    return access(arena_print(arena, "%s/%s", folder, CHECKPOINT_LISTING), F_OK) == 0;
}

const char *checkpoint_trim(const char *path, Arena *arena)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    return arena_print(arena, "%.*s", (int)n, path);
}

const char *checkpoint_last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

const char *checkpoint_parent(const char *path, Arena *arena)
{
    const char *slash = strrchr(path, '/'), *name = checkpoint_last_name(path);
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return arena_print(arena, "%s/..", path);
    if (slash == NULL) return ".";
    return slash == path ? "/" : arena_print(arena, "%.*s", (int)(slash - path), path);
}

/* Reads only the beginning of the manifest, because the name of the training is one of its first
 * entries. */
const char *checkpoint_training(const char *folder, Arena *arena)
{
    static const char key[] = "\"training\": \"";
    char text[512] = {0};
    FILE *f = fopen(arena_print(arena, "%s/%s", folder, CHECKPOINT_LISTING), "r");
    const size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f != NULL) fclose(f);
    text[n] = 0;
    const char *at = strstr(text, key);
    if (at == NULL) return "";
    at += strlen(key);
    const size_t length = strcspn(at, "\"");
    return at[length] == '"' ? arena_print(arena, "%.*s", (int)length, at) : "";
}
