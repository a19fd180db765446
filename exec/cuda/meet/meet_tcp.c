/* A Meet over TCP, in which every other rank is connected with rank 0. Rank 0 listens at the port
 * in TANDEM_PORT or MASTER_PORT, and the other ranks connect to the address in MASTER_ADDR. If
 * torchrun's own store uses MASTER_PORT, the next port is used. Without these variables, Slurm's
 * first node is the address, and the port is derived from Slurm's job number. Every message has a
 * header with its length. If a rank ends, its connection closes, and rank 0 tells the others. A
 * message is used only if its header is the expected one. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "exec/cuda/meet/meet.h"
#include "planner/base/clock.h"

enum { MAGIC = 0x544e444d, HELLO = 1, DATA = 2, FAILED = 3, MAX_RANKS = 65536 };

typedef struct MessageHeader {
    uint32_t magic, kind, rank, n_ranks;
    uint64_t bytes;
    uint32_t sequence, reserved;
} MessageHeader;

typedef struct Star {
    Meet *meet;
    int *peer; /* [n_ranks] sockets; -1: none. Rank 0 has one to each other rank. Any other rank has
                  only [0], the one to rank 0 */
    int listener;
    uint32_t sequence;
    double until_s;
} Star;

static bool fail(Star *s, const char *what)
{
    snprintf(s->meet->why, MEET_WHY, "%s", what);
    return false;
}

static bool fail_errno(Star *s, const char *call)
{
    snprintf(s->meet->why, MEET_WHY, "%s: %s", call, strerror(errno));
    return false;
}

/* Waits until the socket is ready. Returns false after the deadline. */
static bool wait_for(const Star *s, int fd, short what)
{
    for (;;) {
        double left = s->until_s - clock_s();
        if (left < 0) return false;
        struct pollfd p = {.fd = fd, .events = what};
        int n = poll(&p, 1, left > 0.2 ? 200 : (int)(left * 1000) + 1);
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
    }
}

static bool gone(Star *s, uint32_t rank)
{
    snprintf(s->meet->why, MEET_WHY,
             "rank %u has closed its connection, because it died or was ended", rank);
    return false;
}

static bool late(Star *s, uint32_t rank)
{
    snprintf(s->meet->why, MEET_WHY, "rank %u did not answer in time", rank);
    return false;
}

static bool send_all(Star *s, uint32_t rank, const void *at, size_t bytes)
{
    const char *from = at;
    while (bytes > 0) {
        ssize_t n = send(s->peer[rank], from, bytes, MSG_NOSIGNAL);
        if (n > 0) {
            from += n;
            bytes -= (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(s, s->peer[rank], POLLOUT)) return late(s, rank);
        } else if (errno != EINTR) {
            return gone(s, rank);
        }
    }
    return true;
}

static bool receive_all(Star *s, uint32_t rank, void *at, size_t bytes)
{
    char *to = at;
    while (bytes > 0) {
        ssize_t n = recv(s->peer[rank], to, bytes, 0);
        if (n == 0) return gone(s, rank);
        if (n > 0) {
            to += n;
            bytes -= (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(s, s->peer[rank], POLLIN)) return late(s, rank);
        } else if (errno != EINTR) {
            return gone(s, rank);
        }
    }
    return true;
}

static MessageHeader header_of(const Star *s, uint32_t kind, uint64_t bytes)
{
    return (MessageHeader){.magic = MAGIC,
                           .kind = kind,
                           .rank = s->meet->rank,
                           .n_ranks = s->meet->n_ranks,
                           .bytes = bytes,
                           .sequence = s->sequence};
}

/* Handles an unexpected message from `rank`: sets the reason in `why`. */
static bool read_failure(Star *s, uint32_t rank, const MessageHeader *h)
{
    char text[MEET_WHY / 2] = "";
    if (h->kind != FAILED || h->bytes >= sizeof text) {
        snprintf(s->meet->why, MEET_WHY, "rank %u sent a message that no rank of this run sends",
                 rank);
        return false;
    }
    if (!receive_all(s, rank, text, (size_t)h->bytes)) return false;
    snprintf(s->meet->why, MEET_WHY, "%s", text);
    return false;
}

static bool receive(Star *s, uint32_t rank, void *at, size_t bytes)
{
    MessageHeader h;
    if (!receive_all(s, rank, &h, sizeof h)) return false;
    if (h.magic != MAGIC || h.kind != DATA) return read_failure(s, rank, &h);
    if (h.bytes != bytes || h.sequence != s->sequence) {
        snprintf(s->meet->why, MEET_WHY,
                 "rank %u is at another exchange (number %u of %llu bytes, not %u of %llu)", rank,
                 h.sequence, (unsigned long long)h.bytes, s->sequence, (unsigned long long)bytes);
        return false;
    }
    return receive_all(s, rank, at, bytes);
}

/* Tells all connected ranks why this rank ends. */
static void tell_failure(Star *s, const char *text)
{
    size_t n = strlen(text);
    MessageHeader h = header_of(s, FAILED, n);
    s->until_s = clock_s() + 1;
    for (uint32_t r = 0; r < s->meet->n_ranks; r++) {
        if (s->peer[r] < 0) continue;
        char kept[MEET_WHY];
        memcpy(kept, s->meet->why, sizeof kept);
        if (send_all(s, r, &h, sizeof h)) send_all(s, r, text, n);
        memcpy(s->meet->why, kept, sizeof kept);
    }
}

static bool exchange(Meet *m, const void *mine, size_t bytes, void *all, double timeout_s)
{
    Star *s = m->state;
    char *to = all;
    s->until_s = clock_s() + timeout_s;
    s->sequence++;
    MessageHeader h = header_of(s, DATA, bytes), back = header_of(s, DATA, bytes * m->n_ranks);
    if (m->rank != 0) {
        return send_all(s, 0, &h, sizeof h) && send_all(s, 0, mine, bytes) &&
               receive(s, 0, all, bytes * m->n_ranks);
    }
    if (bytes > 0) memcpy(to, mine, bytes);
    bool fine = true;
    for (uint32_t r = 1; r < m->n_ranks && fine; r++) fine = receive(s, r, to + r * bytes, bytes);
    for (uint32_t r = 1; r < m->n_ranks && fine; r++)
        fine = send_all(s, r, &back, sizeof back) && send_all(s, r, all, bytes * m->n_ranks);
    if (!fine) tell_failure(s, m->why);
    return fine;
}

static bool is_gone(Meet *m)
{
    Star *s = m->state;
    for (uint32_t r = 0; r < m->n_ranks; r++) {
        if (s->peer[r] < 0) continue;
        MessageHeader h;
        ssize_t n = recv(s->peer[r], &h, sizeof h, MSG_PEEK | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) continue;
        bool left = n <= 0;
        /* these data belong to an exchange that this rank has not reached yet */
        if (!left && ((size_t)n < sizeof h || (h.magic == MAGIC && h.kind == DATA))) continue;
        s->until_s = clock_s() + 1;
        if (left)
            gone(s, r);
        else if (receive_all(s, r, &h, sizeof h))
            read_failure(s, r, &h);
        if (m->rank == 0) tell_failure(s, m->why);
        return true;
    }
    return false;
}

static void close_star(Meet *m)
{
    Star *s = m->state;
    for (uint32_t r = 0; r < m->n_ranks; r++)
        if (s->peer[r] >= 0) close(s->peer[r]);
    for (uint32_t r = 0; r < m->n_ranks; r++) s->peer[r] = -1;
    if (s->listener >= 0) close(s->listener);
    s->listener = -1;
}

static void abort_star(void *self, int code)
{
    Meet *m = self;
    char text[MEET_WHY / 2];
    snprintf(text, sizeof text, "rank %u ended the run", m->rank);
    tell_failure(m->state, text);
    _Exit(code);
}

/* ---- finding each other ---- */

static void set_options(int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static bool listen_at(Star *s, uint16_t port)
{
    int one = 1;
    struct sockaddr_in6 at = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_any};
    struct sockaddr_in at4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    s->listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool six = s->listener >= 0;
    if (!six) s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s->listener < 0) return fail_errno(s, "socket");
    setsockopt(s->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    int off = 0;
    if (six) setsockopt(s->listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    const void *address = six ? (const void *)&at : (const void *)&at4;
    socklen_t size = six ? sizeof at : sizeof at4;
    if (bind(s->listener, address, size) != 0) {
        snprintf(s->meet->why, MEET_WHY, "rank 0 cannot listen at port %u: %s", port,
                 strerror(errno));
        return false;
    }
    set_options(s->listener);
    return listen(s->listener, 1024) == 0 || fail_errno(s, "listen");
}

/* Accepts a connection. It is kept if it comes from a rank of this run, and closed if not. */
static void accept_one(Star *s, uint32_t *n_here)
{
    int fd = accept(s->listener, NULL, NULL);
    if (fd < 0) return;
    set_options(fd);
    MessageHeader h;
    size_t n = 0;
    double until = clock_s() + 2;
    while (n < sizeof h && clock_s() < until) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 100) <= 0) continue;
        ssize_t got = recv(fd, (char *)&h + n, sizeof h - n, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) break;
        if (got > 0) n += (size_t)got;
    }
    bool fine = n == sizeof h && h.magic == MAGIC && h.kind == HELLO && h.rank > 0 &&
                h.n_ranks == s->meet->n_ranks && h.rank < h.n_ranks && s->peer[h.rank] < 0;
    if (!fine) {
        close(fd);
        return;
    }
    s->peer[h.rank] = fd;
    ++*n_here;
}

static bool gather_ranks(Star *s)
{
    uint32_t n_here = 1, n = s->meet->n_ranks;
    while (n_here < n) {
        if (!wait_for(s, s->listener, POLLIN)) {
            uint32_t missing = 1;
            while (missing < n && s->peer[missing] >= 0) missing++;
            snprintf(s->meet->why, MEET_WHY, "only %u of %u ranks connected; rank %u is missing",
                     n_here, n, missing);
            return false;
        }
        accept_one(s, &n_here);
    }
    return true;
}

static bool connect_to(Star *s, const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    const struct timespec pause = {0, 50000000};
    for (;;) {
        int error = getaddrinfo(host, port, &hints, &list);
        for (const struct addrinfo *a = error ? NULL : list; a; a = a->ai_next) {
            int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (fd < 0) continue;
            if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) {
                set_options(fd);
                s->peer[0] = fd;
                break;
            }
            close(fd);
        }
        if (error == 0) freeaddrinfo(list);
        if (s->peer[0] >= 0) {
            MessageHeader h = header_of(s, HELLO, 0);
            return send_all(s, 0, &h, sizeof h);
        }
        if (clock_s() > s->until_s) {
            snprintf(s->meet->why, MEET_WHY, "rank 0 does not answer at %s port %s: %s", host, port,
                     error ? gai_strerror(error) : "nobody listens there");
            return false;
        }
        nanosleep(&pause, NULL);
    }
}

/* Returns the first name of a list such as Slurm's "node[003-012,015],other". */
static const char *first_node(Arena *arena, const char *list)
{
    size_t n = strcspn(list, ",[");
    if (list[n] != '[') return arena_copy(arena, list, n);
    size_t digits = strspn(list + n + 1, "0123456789");
    return arena_print(arena, "%.*s%.*s", (int)n, list, (int)digits, list + n + 1);
}

static bool find_master(Arena *arena, Star *s, const char **host, const char **port)
{
    const char *own = getenv("TANDEM_PORT"), *given = getenv("MASTER_PORT");
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    const char *nodes = getenv("SLURM_STEP_NODELIST"), *job = getenv("SLURM_JOB_ID");
    unsigned long number = 0;
    *host = getenv("MASTER_ADDR");
    if (*host == NULL && nodes != NULL) *host = first_node(arena, nodes);
    if (own)
        number = strtoul(own, NULL, 10);
    else if (given)
        number = strtoul(given, NULL, 10) + (agent && strcmp(agent, "True") == 0);
    else if (job)
        number = 20000 + strtoul(job, NULL, 10) % 20000;
    if (*host == NULL || **host == 0)
        return fail(s, "MASTER_ADDR must be set to the address of rank 0");
    if (number == 0 || number > 65535)
        return fail(s, "MASTER_PORT must be set to the port of rank 0");
    *port = arena_print(arena, "%lu", number);
    return true;
}

bool meet_tcp(Arena *arena, Meet *m, double timeout_s)
{
    Star *s = arena_alloc(arena, sizeof *s);
    *s = (Star){.meet = m, .listener = -1, .until_s = clock_s() + timeout_s};
    if (m->n_ranks == 0 || m->n_ranks > MAX_RANKS || m->rank >= m->n_ranks)
        return fail(s, "the launcher's rank and number of ranks do not agree");
    s->peer = arena_array(arena, m->n_ranks, sizeof *s->peer);
    for (uint32_t r = 0; r < m->n_ranks; r++) s->peer[r] = -1;
    m->state = s;
    m->exchange = exchange;
    m->gone = is_gone;
    m->abort = abort_star;
    m->close = close_star;
    if (m->n_ranks == 1) return true;
    const char *host = NULL, *port = NULL;
    bool fine = find_master(arena, s, &host, &port);
    if (fine && m->rank > 0) fine = connect_to(s, host, port);
    if (fine && m->rank == 0)
        fine = listen_at(s, (uint16_t)strtoul(port, NULL, 10)) && gather_ranks(s);
    if (!fine) close_star(m);
    return fine;
}
