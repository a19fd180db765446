/* Writes the position of this rank to its own file (--record FOLDER). The file remains if the run
 * is killed, and it also works for runs on several machines. Each line names its rank, so that one
 * can join the files of all ranks and search them for a match number, which is the same for all
 * members of a communication. Both threads of a rank may write the file, but only while the other
 * one waits. Each write is a single call. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "exec/cuda/private.h"
#include "planner/base/clock.h"

/* seconds between two writes; if the process is killed, at most this much is lost */
#define EVERY_S 0.2

bool record_open(Cuda *c)
{
    const char *folder = c->own.record;
    if (folder == NULL) return true;
    if (gethostname(c->report.record_host, sizeof c->report.record_host - 1) != 0)
        c->report.record_host[0] = 0;
    const char *path = arena_print(c->arena, "%s/rank-%u.txt", folder, c->rank);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return cuda_fail(c, "rank-record", "cannot make the folder %s: %s", folder,
                         strerror(errno));
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return cuda_fail(c, "rank-record", "cannot write %s: %s", path, strerror(errno));
    c->report.record = 1 + fd;
    record_write(c, NULL, NULL);
    return true;
}

static const char *state_word(const Cuda *c)
{
    switch ((StatusState)atomic_load(&c->report.slot->state)) {
    case STATUS_absent:
    case STATUS_begun: return "is over";
    case STATUS_open: return "is between steps";
    case STATUS_preparing: return "is preparing a step on the host";
    case STATUS_stepping: return "is on the device";
    }
    return "";
}

/* Adds a line about one stream: its first unfinished instruction and, if that is a communication,
 * whether it has begun. */
static void add_stream(const Cuda *c, const char *who, int s, Str *out)
{
    Pc unfinished = atomic_load(&c->report.slot->unfinished[s]);
    bool has_begun =
        unfinished != 0 && watch_actual(c, ((volatile uint32_t *)c->watch.begun)[s]) == unfinished;
    if (unfinished == 0 || unfinished > c->state.info->n_instr) return;
    str_print(out, "%s %s %s\n", who, has_begun ? "has begun" : "is before",
              instr_text(c->plan, c->state.info->p, unfinished, out->arena));
}

void record_write(Cuda *c, const char *rule, const char *text)
{
    if (c->report.record == 0) return;
    Arena *arena = arena_new();
    Str out = str_in(arena);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned step = atomic_load(&c->report.slot->step);
    const char *who = arena_print(arena, "rank %u on %s:", c->rank, c->report.record_host);
    str_print(&out, "%s of %u ranks, pid %d, device %d %s, at %lld.%03d s\n", who, c->n_ranks,
              (int)getpid(), c->gpu.device, c->comms.mine.name, (long long)now.tv_sec,
              (int)(now.tv_nsec / 1000000));
    str_print(&out, "%s step %u %s\n", who, step, state_word(c));
    for (int s = STREAM_none + 1; c->watch.unfinished != NULL && s < STREAM_COUNT; s++)
        if (c->streams.uses[s]) add_stream(c, who, s, &out);
    if (rule != NULL) str_print(&out, "%s error[%s]: %s\n", who, rule, text);
    /* the new text may be shorter or longer than the old one, and the file must never contain a
     * mixture of both */
    if (pwrite(c->report.record - 1, str_text(&out), out.n, 0) == (ssize_t)out.n &&
        ftruncate(c->report.record - 1, (off_t)out.n) != 0)
        c->report.record = 0;
    arena_free(arena);
    c->report.recorded_s = clock_s();
}

void record_look(Cuda *c)
{
    if (c->report.record != 0 && clock_s() - c->report.recorded_s > EVERY_S)
        record_write(c, NULL, NULL);
}

void record_close(Cuda *c)
{
    if (c->report.record == 0) return;
    close(c->report.record - 1);
    c->report.record = 0;
}
