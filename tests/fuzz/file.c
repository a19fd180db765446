/* Writes the input to a file with a name on disk. SQLite cannot open a file without a name. */
#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

static char path[] = "/tmp/tandem_fuzz_XXXXXX";

static void remove_file(void)
{
    unlink(path);
}

const char *fuzz_file(const uint8_t *data, size_t size)
{
    static int fd = -1;
    if (fd < 0) {
        fd = mkstemp(path);
        atexit(remove_file);
    }
    assert(fd >= 0);
    const int emptied = ftruncate(fd, 0);
    const ssize_t written = pwrite(fd, data, size, 0);
    assert(emptied == 0 && written == (ssize_t)size);
    (void)emptied;
    (void)written;
    return path;
}
