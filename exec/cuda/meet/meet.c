/* Lets ranks exchange bytes before and between steps: over MPI, over TCP (meet_tcp.c), or trivially
 * if there is a single rank. This file does not use CUDA. */
#include "exec/cuda/meet/meet.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec/launch/launch.h"
#include "planner/base/clock.h"

/* ---- a single rank ---- */

static bool alone_exchange(Meet *m, const void *mine, size_t bytes, void *all, double timeout_s)
{
    (void)m, (void)timeout_s;
    if (bytes > 0) memcpy(all, mine, bytes);
    return true;
}

static bool alone_gone(Meet *m)
{
    (void)m;
    return false;
}

static void alone_abort(void *self, int code)
{
    (void)self;
    _Exit(code);
}

static void alone_close(Meet *m)
{
    (void)m;
}

/* ---- over MPI ---- */

typedef struct OverMpi {
    const Transport *transport;
    void *mpi;
} OverMpi;

static bool mpi_exchange(Meet *m, const void *mine, size_t bytes, void *all, double timeout_s)
{
    OverMpi *o = m->state;
    TransportRequest request;
    bool is_done = false, fine = bytes <= INT32_MAX / (size_t)m->n_ranks;
    double until = clock_s() + timeout_s;
    fine =
        fine && o->transport->all_gather(o->mpi, 0, mine, (int)bytes, all, NULL, NULL, 1, &request);
    for (uint32_t polls = 0; fine && !is_done; polls++) {
        fine = o->transport->test(o->mpi, &request, &is_done);
        if (fine && !is_done && clock_s() > until) {
            snprintf(m->why, sizeof m->why, "waited %.1f s for the other ranks", timeout_s);
            return false;
        }
        struct timespec t = {0, 20000};
        if (polls < 500)
            sched_yield();
        else
            nanosleep(&t, NULL);
    }
    if (!fine) snprintf(m->why, sizeof m->why, "%s", o->transport->error(o->mpi));
    return fine;
}

static void mpi_abort(void *self, int code)
{
    const OverMpi *o = ((Meet *)self)->state;
    o->transport->abort(o->mpi, code);
    _Exit(code);
}

static void mpi_close(Meet *m)
{
    const OverMpi *o = m->state;
    o->transport->close(o->mpi);
}

/* ---- choosing one of these ways ---- */

/* Reads the index of this process among the processes of its machine from an environment variable
 * of the launcher. Returns false if no such variable is set. */
static bool local_rank(uint32_t *number)
{
    static const char *const known[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                        "LOCAL_RANK", "SLURM_LOCALID"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const char *text = getenv(known[i]);
        if (text == NULL || *text < '0' || *text > '9') continue;
        *number = (uint32_t)strtoul(text, NULL, 10);
        return true;
    }
    return false;
}

static bool over_mpi(Arena *arena, Meet *m, const Transport *transport)
{
    OverMpi *o = arena_alloc(arena, sizeof *o);
    o->transport = transport;
    o->mpi = transport->open(&m->rank, &m->n_ranks, m->why, sizeof m->why);
    if (o->mpi == NULL) return false;
    m->state = o;
    m->transport = transport;
    m->mpi = o->mpi;
    m->exchange = mpi_exchange;
    m->abort = mpi_abort;
    m->close = mpi_close;
    return true;
}

Meet *meet_open(Arena *arena, const Transport *transport, double timeout_s, char *why, size_t room)
{
    Meet *m = arena_alloc(arena, sizeof *m);
    *m = (Meet){.n_ranks = 1,
                .exchange = alone_exchange,
                .gone = alone_gone,
                .abort = alone_abort,
                .close = alone_close};
    m->knows_local = local_rank(&m->local_rank);
    const char *flavour = NULL;
    bool fine = true;
    if (transport != NULL)
        fine = over_mpi(arena, m, transport);
    else if (launch_inside(&m->n_ranks, &m->rank, &flavour))
        fine = meet_tcp(arena, m, timeout_s);
    if (fine) return m;
    snprintf(why, room, "%s", m->why);
    return NULL;
}
