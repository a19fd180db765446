/* Implements the interface `Transport` (exec/process/transport.h) with one MPI. The file is
 * compiled once for each installed MPI and knows nothing of plans. If a call fails, the library's
 * message is kept as text. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/process/transport.h"

enum { MAX_GROUPS = 256 };

typedef struct Mpi {
    MPI_Comm group[MAX_GROUPS];
    int n_groups;
    char error[MPI_MAX_ERROR_STRING + 64];
} Mpi;

_Static_assert(sizeof(MPI_Request) <= sizeof(TransportRequest), "a request fits");

static bool check(Mpi *m, int code, const char *call)
{
    if (code == MPI_SUCCESS) return true;
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(code, text, &n);
    snprintf(m->error, sizeof m->error, "%s: %s", call, text);
    return false;
}

#define CHECK_MPI(m, name, arguments) check((m), name arguments, #name)

/* Returns an MPI type of the right size. Only reductions interpret the values; all other transfers
 * just move bytes. */
static MPI_Datatype type_of(int bytes)
{
    if (bytes == 8) return MPI_DOUBLE;
    return bytes == 4 ? MPI_FLOAT : bytes == 2 ? MPI_INT16_T : MPI_BYTE;
}

static bool store_request(Mpi *m, bool fine, const MPI_Request *from, TransportRequest *to)
{
    (void)m;
    if (fine) memcpy(to, from, sizeof *from);
    return fine;
}

/* Finalizes MPI at the end of the process, which must happen exactly once. */
static void end_at_exit(void)
{
    int ended = 0;
    MPI_Finalized(&ended);
    if (!ended) MPI_Finalize();
}

static void *mpi_open(uint32_t *rank, uint32_t *n_ranks, char *why, size_t room)
{
    /* only one thread at a time calls MPI, but it is not always the same thread */
    int started = 0, mine = 0, n = 0, threads = 0;
    Mpi *m = calloc(1, sizeof *m);
    if (m == NULL) return NULL;
    MPI_Initialized(&started);
    bool fine =
        started || CHECK_MPI(m, MPI_Init_thread, (NULL, NULL, MPI_THREAD_SERIALIZED, &threads));
    if (fine && !started && atexit(end_at_exit) != 0) fine = false;
    fine = fine && CHECK_MPI(m, MPI_Comm_dup, (MPI_COMM_WORLD, &m->group[0])) &&
           CHECK_MPI(m, MPI_Comm_set_errhandler, (m->group[0], MPI_ERRORS_RETURN)) &&
           CHECK_MPI(m, MPI_Comm_rank, (m->group[0], &mine)) &&
           CHECK_MPI(m, MPI_Comm_size, (m->group[0], &n));
    if (!fine) {
        snprintf(why, room, "%s", m->error);
        free(m);
        return NULL;
    }
    m->n_groups = 1;
    *rank = (uint32_t)mine;
    *n_ranks = (uint32_t)n;
    return m;
}

static void mpi_close(void *self)
{
    Mpi *m = self;
    for (int i = m->n_groups - 1; i >= 0; i--) MPI_Comm_free(&m->group[i]);
    free(m);
}

static void mpi_abort(void *self, int code)
{
    (void)self;
    MPI_Abort(MPI_COMM_WORLD, code);
    _Exit(code);
}

static const char *mpi_error(void *self)
{
    return ((Mpi *)self)->error;
}

static int mpi_group(void *self, uint32_t color, uint32_t key)
{
    Mpi *m = self;
    if (m->n_groups == MAX_GROUPS) {
        snprintf(m->error, sizeof m->error, "more than %d groups", (int)MAX_GROUPS);
        return -1;
    }
    MPI_Comm *to = &m->group[m->n_groups];
    if (!CHECK_MPI(m, MPI_Comm_split, (m->group[0], (int)color, (int)key, to))) return -1;
    if (!CHECK_MPI(m, MPI_Comm_set_errhandler, (*to, MPI_ERRORS_RETURN))) return -1;
    return m->n_groups++;
}

static bool mpi_all_gather(void *self, int group, const void *in, int n, void *out,
                           const int *counts, const int *displs, int bytes,
                           TransportRequest *request)
{
    Mpi *m = self;
    MPI_Request r;
    MPI_Datatype type = type_of(bytes);
    MPI_Comm comm = m->group[group];
    if (in == NULL) in = MPI_IN_PLACE;
    bool fine =
        counts ? CHECK_MPI(m, MPI_Iallgatherv, (in, n, type, out, counts, displs, type, comm, &r))
               : CHECK_MPI(m, MPI_Iallgather, (in, n, type, out, n, type, comm, &r));
    return store_request(m, fine, &r, request);
}

static bool mpi_all_to_all(void *self, int group, const void *in, const int *counts,
                           const int *displs, void *out, const int *out_counts,
                           const int *out_displs, int bytes, TransportRequest *request)
{
    Mpi *m = self;
    MPI_Request r;
    MPI_Datatype type = type_of(bytes);
    bool fine = CHECK_MPI(
        m, MPI_Ialltoallv,
        (in, counts, displs, type, out, out_counts, out_displs, type, m->group[group], &r));
    return store_request(m, fine, &r, request);
}

static bool mpi_all_reduce(void *self, int group, const void *in, void *out, int n, int bytes,
                           bool is_max, TransportRequest *request)
{
    Mpi *m = self;
    MPI_Request r;
    MPI_Op op = is_max ? MPI_MAX : MPI_SUM;
    if (in == NULL) in = MPI_IN_PLACE;
    bool fine = CHECK_MPI(m, MPI_Iallreduce, (in, out, n, type_of(bytes), op, m->group[group], &r));
    return store_request(m, fine, &r, request);
}

static bool mpi_reduce_scatter(void *self, int group, const void *in, void *out, int n, int bytes,
                               bool is_max, TransportRequest *request)
{
    Mpi *m = self;
    MPI_Request r;
    MPI_Op op = is_max ? MPI_MAX : MPI_SUM;
    bool fine = CHECK_MPI(m, MPI_Ireduce_scatter_block,
                          (in, out, n, type_of(bytes), op, m->group[group], &r));
    return store_request(m, fine, &r, request);
}

static bool mpi_send(void *self, uint32_t to, uint32_t tag, const void *in, int n, int bytes,
                     TransportRequest *request)
{
    Mpi *m = self;
    MPI_Request r;
    bool fine =
        CHECK_MPI(m, MPI_Isend, (in, n, type_of(bytes), (int)to, (int)tag, m->group[0], &r));
    return store_request(m, fine, &r, request);
}

static bool mpi_recv(void *self, uint32_t from, uint32_t tag, void *out, int n, int bytes,
                     TransportRequest *request)
{
    Mpi *m = self;
    MPI_Request r;
    bool fine =
        CHECK_MPI(m, MPI_Irecv, (out, n, type_of(bytes), (int)from, (int)tag, m->group[0], &r));
    return store_request(m, fine, &r, request);
}

static bool mpi_test(void *self, TransportRequest *request, bool *is_done)
{
    Mpi *m = self;
    MPI_Request r;
    int done = 0;
    memcpy(&r, request, sizeof r);
    bool fine = CHECK_MPI(m, MPI_Test, (&r, &done, MPI_STATUS_IGNORE));
    memcpy(request, &r, sizeof r);
    *is_done = done != 0;
    return fine;
}

extern const Transport tandem_transport;
const Transport tandem_transport = {
    .version = TRANSPORT_VERSION,
    .flavour = TANDEM_MPI_FLAVOUR,
    .open = mpi_open,
    .close = mpi_close,
    .abort = mpi_abort,
    .error = mpi_error,
    .group = mpi_group,
    .all_gather = mpi_all_gather,
    .all_to_all = mpi_all_to_all,
    .all_reduce = mpi_all_reduce,
    .reduce_scatter = mpi_reduce_scatter,
    .send = mpi_send,
    .recv = mpi_recv,
    .test = mpi_test,
};
