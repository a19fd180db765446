/* The file of the status record, which all ranks map into memory. */
#include "exec/launch/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t size_of(uint32_t n_ranks)
{
    return sizeof(Status) + n_ranks * sizeof(StatusSlot);
}

static Status *map(int fd, uint32_t n_ranks)
{
    void *at = mmap(NULL, size_of(n_ranks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

Status *status_create(uint32_t n_ranks, char *path, size_t room, Diag *d)
{
    const char *folder = getenv("TMPDIR");
    if (folder == NULL || *folder == 0)
        folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    int n = snprintf(path, room, "%s/tandem-XXXXXX", folder);
    int fd = n > 0 && (size_t)n < room ? mkstemp(path) : -1;
    Status *s = NULL;
    if (fd >= 0 && ftruncate(fd, (off_t)size_of(n_ranks)) == 0) s = map(fd, n_ranks);
    if (s != NULL) {
        s->n_ranks = n_ranks;
        s->launcher = (int32_t)getpid();
    } else {
        Loc none = {NULL, 0};
        diag_error(d, FAULT_run, "rank-status", none, "cannot make a file in %s: %s", folder,
                   strerror(errno));
        if (fd >= 0) unlink(path);
    }
    if (fd >= 0) close(fd);
    return s;
}

Status *status_join(uint32_t n_ranks)
{
    const char *path = getenv(STATUS_VARIABLE);
    struct stat info;
    if (path == NULL) return NULL;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return NULL;
    Status *s = NULL;
    if (fstat(fd, &info) == 0 && (size_t)info.st_size == size_of(n_ranks)) s = map(fd, n_ranks);
    close(fd);
    return s;
}

void status_unmap(Status *s)
{
    if (s != NULL) munmap(s, size_of(s->n_ranks));
}

bool status_tell(Status *s, const char *rule, const char *text)
{
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&s->verdict, &none, 1)) return false;
    snprintf(s->rule, sizeof s->rule, "%s", rule);
    snprintf(s->text, sizeof s->text, "%s", text);
    atomic_store(&s->verdict, 2);
    return true;
}

char status_process(int32_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f == NULL) return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    const char *end = strrchr(text, ')'); /* the name of the process, which ends at the last ')',
                                             may itself contain ')' */
    return end != NULL && end[1] == ' ' ? end[2] : 0;
}
