/* Calls a target with each file of the folders that are named, and once with no bytes at all. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

static int replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    static uint8_t bytes[1 << 20];
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    /* its own copy, so that the sanitizer sees a read past the end */
    uint8_t *copy = malloc(n > 0 ? n : 1);
    if (copy == NULL) return 0;
    memcpy(copy, bytes, n);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
    return 1;
}

static int replay_folder(const char *folder)
{
    int n = 0;
    DIR *all = opendir(folder);
    for (const struct dirent *one; all != NULL && (one = readdir(all)) != NULL;) {
        char path[4096];
        if (one->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, one->d_name);
        n += replay(path);
    }
    if (all != NULL) closedir(all);
    return n;
}

int main(int argc, char **argv)
{
    int n = 0;
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) n += replay_folder(argv[i]);
    printf("%d inputs of the corpus\n", n);
    return n > 0 ? 0 : 1;
}
