/* A target that uses as much processor time as its input requests: "own 0.1" in this process,
 * "child 2.2" in a child process. limits.sh uses it to test that the replay fails if an input is
 * slow. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tests/support/slowest.h"

static void use(double seconds)
{
    const double end_s = slowest_own_s() + seconds;
    while (slowest_own_s() < end_s) {
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[64] = {0}, whose[16] = {0};
    double seconds = 0;
    memcpy(text, data, size < sizeof text ? size : sizeof text - 1);
    if (sscanf(text, "%15s %lf", whose, &seconds) != 2) return 0;
    if (strcmp(whose, "child") != 0) {
        use(seconds);
        return 0;
    }
    const pid_t child = fork();
    if (child == 0) {
        use(seconds);
        _exit(0);
    }
    if (child > 0) waitpid(child, NULL, 0);
    return 0;
}
