/* Calls a target with each file of the given folders, and once without any bytes. Each call must
 * end within the limit of processor time. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tests/support/slowest.h"

static Slowest slowest;

/* Counts children too, because the target of the stream has one. */
static double used_s(void)
{
    return slowest_own_s() + slowest_children_s();
}

static int replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    static uint8_t bytes[1 << 20];
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    /* an exact copy, so that the sanitizer notices a read beyond its end */
    uint8_t *copy = malloc(n > 0 ? n : 1);
    if (copy == NULL) return 0;
    memcpy(copy, bytes, n);
    const double before_s = used_s();
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
    if (!slowest_note(&slowest, path, used_s() - before_s)) {
        printf("%s takes more than %g s of processor time\n", path, SLOWEST_LIMIT_S);
        exit(1);
    }
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
    slowest_print(&slowest, "fuzz");
    return n > 0 ? 0 : 1;
}
