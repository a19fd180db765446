/* Fuzzes the messages from the process that evaluates a script. A script may have taken over that
 * process. */
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "planner/front/parent.h"
#include "tests/fuzz/fuzz.h"

/* The process at the other end: it sends the input and ends. */
static void send_all(int to, const uint8_t *data, size_t size)
{
    while (size > 0) {
        ssize_t n = send(to, data, size, MSG_NOSIGNAL);
        if (n <= 0) break;
        data += n;
        size -= (size_t)n;
    }
    _exit(0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int end[2], words[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, end) != 0 || pipe(words) != 0) return 0;
    signal(SIGPIPE, SIG_IGN);
    pid_t pid = fork();
    if (pid == 0) {
        close(end[0]);
        send_all(end[1], data, size);
    }
    close(end[1]);
    close(words[1]);
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Draft draft = draft_new(arena, &d);
    Graph graph;
    graph_init(&graph, arena);
    draft.config.file = "plan.lua";
    Rebuild rebuild = {.graph = &graph, .draft = &draft, .arena = arena};
    Script script = {
        .pid = pid, .fd = end[0], .words = words[0], .channel = {.fd = end[0]}, .cpu_s = 1};
    if (script_listen(&script, &draft, &rebuild, false)) rebuild_finish(&rebuild, &d);
    arena_free(arena);
    return 0;
}
