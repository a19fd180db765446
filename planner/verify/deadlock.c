/* Proves that the plan has no deadlock. First, all members of a communicator must issue the same
 * sequence. Then the plan is replayed without buffering: every rank must reach the end of each of
 * its streams. If programs do not differ along an axis, one rank stands for all ranks along it. */
#include <assert.h>
#include <string.h>

#include "planner/verify/private.h"

AxisSet verify_stage_axes(const Verifier *v)
{
    const Mesh *mesh = &v->plan->mesh;
    AxisSet set = 0;
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        for (Rank r = 0; r < mesh->n_ranks && !(set >> a & 1); r++)
            if (v->plan->program_of[r] !=
                v->plan->program_of[mesh_group(mesh, r, (AxisSet)(1u << a))])
                set = (AxisSet)(set | 1u << a);
    return set;
}

/* ---- sequences ---- */

typedef struct Issue {
    uint32_t match;
    Pc pc;
} Issue;
typedef struct Sequence { /* the communications of one communicator in one program */
    AxisSet axes;
    Stream stream;
    LIST(Issue) issues;
} Sequence;
typedef struct Sequences {
    LIST(Sequence) at;
} Sequences;

static Sequence *sequence_of(Verifier *v, Sequences *all, AxisSet axes, Stream stream)
{
    for (uint32_t i = 0; i < all->at.n; i++)
        if (all->at.at[i].axes == axes && all->at.at[i].stream == stream) return &all->at.at[i];
    Sequence s = {.axes = axes, .stream = stream};
    uint32_t i = (uint32_t)list_push(v->arena, &all->at, s);
    return &all->at.at[i];
}

static void collect_sequences(Verifier *v, Sequences *all, uint32_t *seen)
{
    for (Pc pc = 1; pc < v->p->code.n; pc++) {
        const Instr *in = &v->p->code.at[pc];
        if (!verify_is_comm(in)) continue;
        if (verify_is_p2p(in)) continue;
        if (seen[in->match] == v->program + 1)
            verify_report(v, "verify-sequence", pc,
                          "two communications of this program have match %u", in->match);
        seen[in->match] = v->program + 1;
        Issue issue = {in->match, pc};
        list_push(v->arena, &sequence_of(v, all, in->axes, in->stream)->issues, issue);
    }
}

static bool same_issue(const Program *p, const Program *q, Issue a, Issue b)
{
    const Instr *x = &p->code.at[a.pc], *y = &q->code.at[b.pc];
    if (a.match != b.match || x->op != y->op || x->n_in != y->n_in || x->args.n != y->args.n)
        return false;
    for (uint32_t i = 0; i < x->args.n; i++) {
        const Buffer *m = &p->buffers.at[program_arg(p, x, i)],
                     *n = &q->buffers.at[program_arg(q, y, i)];
        if (m->bytes != n->bytes || m->dtype != n->dtype) return false;
    }
    return true;
}

static void compare_sequences(Verifier *v, const Sequences *all, uint32_t mine, uint32_t other,
                              AxisSet axes, Stream stream)
{
    static const Sequence none;
    const Sequence *s[2] = {&none, &none};
    uint32_t which[2] = {mine, other};
    const Program *p = &v->plan->programs.at[mine], *q = &v->plan->programs.at[other];
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < all[which[k]].at.n; i++)
            if (all[which[k]].at.at[i].axes == axes && all[which[k]].at.at[i].stream == stream)
                s[k] = &all[which[k]].at.at[i];
    uint32_t n = s[0]->issues.n > s[1]->issues.n ? s[0]->issues.n : s[1]->issues.n;
    for (uint32_t i = 0; i < n; i++) {
        bool both = i < s[0]->issues.n && i < s[1]->issues.n;
        if (both && same_issue(p, q, s[0]->issues.at[i], s[1]->issues.at[i])) continue;
        v->program = mine;
        v->p = p;
        Pc pc = i < s[0]->issues.n ? s[0]->issues.at[i].pc : 0;
        const char *theirs = i >= s[1]->issues.n
                                 ? "nothing"
                                 : arena_print(v->arena, "%u %s, match %u", s[1]->issues.at[i].pc,
                                               op_info(q->code.at[s[1]->issues.at[i].pc].op)->name,
                                               s[1]->issues.at[i].match);
        verify_report(v, "verify-sequence", pc,
                      "is call %u on communicator (%s, %s), but program %u issues %s as its call",
                      i + 1, mesh_axes_text(v->arena, &v->plan->mesh, axes), stream_name(stream),
                      other, theirs);
        return;
    }
}

/* Checks groups whose members run different programs. */
static void check_sequences(Verifier *v, const Sequences *all, const Rank *ranks, uint32_t n_ranks,
                            AxisSet varying)
{
    uint32_t n = v->plan->programs.n;
    LIST(Sequence) done = {0};
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < all[i].at.n; k++) {
            AxisSet axes = all[i].at.at[k].axes;
            Stream stream = all[i].at.at[k].stream;
            bool known = !(axes & varying);
            for (uint32_t d = 0; d < done.n; d++)
                known = known || (done.at[d].axes == axes && done.at[d].stream == stream);
            if (known) continue;
            Sequence mark = {.axes = axes, .stream = stream};
            list_push(v->arena, &done, mark);
            bool *compared = arena_array(v->arena, (size_t)n * n, sizeof *compared);
            for (uint32_t r = 0; r < n_ranks; r++) {
                uint32_t mine = v->plan->program_of[ranks[r]];
                uint32_t first = v->plan->program_of[mesh_group(&v->plan->mesh, ranks[r], axes)];
                if (mine == first || compared[(size_t)first * n + mine]) continue;
                compared[(size_t)first * n + mine] = true;
                compare_sequences(v, all, mine, first, axes, stream);
            }
        }
}

/* ---- replay ---- */

typedef struct StreamFront { /* the next instructions of one stream of one rank */
    Pc first, next; /* [first, next): the first launch group of the stream that has not finished.
                       It is one instruction, or communications that start together */
    uint32_t open;  /* the number of its members that have not finished */
    bool issued;
} StreamFront;
typedef struct Player {
    Rank rank;
    const Program *p;
    Pc *next_on_stream; /* [pc] of its program: the next pc on the same stream */
    const Pc *first_on_stream;
    bool *done;
    StreamFront front[STREAM_COUNT];
    bool queued;
} Player;
typedef struct Rendezvous { /* a communication that some members have reached: an entry of the hash
                               table */
    uint32_t match;
    /* for a group: its smallest rank; for a send or receive: the sender and the receiver */
    Rank group, peer;
    uint32_t arrived, size;
    LIST(uint64_t) members; /* player << 32 | pc */
} Rendezvous;
typedef struct DeadlockReplay {
    Verifier *v;
    AxisSet varying;
    Player *players;
    uint32_t n, *player_of; /* [rank]: 1 + its player, the state of a rank that is being replayed;
                               one player may stand for several ranks */
    LIST(Rendezvous) meetings;
    uint32_t *slots, n_slots;
    LIST(uint32_t) queue;
} DeadlockReplay;

static void wake(DeadlockReplay *r, uint32_t player)
{
    if (r->players[player].queued) return;
    r->players[player].queued = true;
    list_push(r->v->arena, &r->queue, player);
}

static uint32_t meeting_slot(const DeadlockReplay *r, uint32_t match, Rank group, Rank peer)
{
    uint32_t word[3] = {match, group, peer};
    uint32_t s = (uint32_t)hash_bytes(word, sizeof word).lo & (r->n_slots - 1);
    for (; r->slots[s]; s = (s + 1) & (r->n_slots - 1)) {
        const Rendezvous *m = &r->meetings.at[r->slots[s] - 1];
        if (m->match == match && m->group == group && m->peer == peer) break;
    }
    return s;
}

static void grow_meetings(DeadlockReplay *r)
{
    r->n_slots = r->n_slots ? 2 * r->n_slots : 1024;
    r->slots = arena_array(r->v->arena, r->n_slots, sizeof *r->slots);
    for (uint32_t i = 0; i < r->meetings.n; i++) {
        const Rendezvous *m = &r->meetings.at[i];
        r->slots[meeting_slot(r, m->match, m->group, m->peer)] = i + 1;
    }
}

/* Returns the rank at the other end of a send or receive; UINT32_MAX if it would be beyond the end
 * of the axis. */
static Rank peer_of(const Mesh *mesh, Rank rank, const Instr *in)
{
    uint32_t axis = (uint32_t)__builtin_ctz(in->axes);
    int64_t to = (int64_t)mesh_coordinate(mesh, rank, axis) + in->hop;
    if (to < 0 || to >= mesh->axis[axis].size) return UINT32_MAX;
    return (Rank)((int64_t)rank + in->hop * (int64_t)mesh->axis[axis].stride);
}

static void finish(DeadlockReplay *r, uint32_t player, Pc pc)
{
    Player *at = &r->players[player];
    at->done[pc] = true;
    at->front[at->p->code.at[pc].stream].open--;
    wake(r, player);
}

/* Notes that a player has reached communication pc. The last member to arrive finishes the
 * communication for all of them. */
static void arrive(DeadlockReplay *r, uint32_t player, Pc pc)
{
    const Mesh *mesh = &r->v->plan->mesh;
    Player *at = &r->players[player];
    const Instr *in = &at->p->code.at[pc];
    Rank group = mesh_group(mesh, at->rank, in->axes), peer = UINT32_MAX;
    uint32_t size = mesh_size(mesh, in->axes & r->varying);
    if (verify_is_p2p(in)) {
        Rank other = peer_of(mesh, at->rank, in);
        if (other == UINT32_MAX)
            return; /* the instruction never finishes, which is reported
                       later */
        /* all ranks along this axis run the same program, but the last one has no peer; so the
         * message never finishes, which is reported later */
        if (!(in->axes & r->varying)) return;
        size = 2;
        group = in->op == OP_send ? at->rank : other;
        peer = in->op == OP_send ? other : at->rank;
    }
    if (2 * r->meetings.n >= r->n_slots) grow_meetings(r);
    uint32_t s = meeting_slot(r, in->match, group, peer);
    if (!r->slots[s]) {
        Rendezvous fresh = {.match = in->match, .group = group, .peer = peer, .size = size};
        r->slots[s] = (uint32_t)list_push(r->v->arena, &r->meetings, fresh) + 1;
    }
    uint32_t index = r->slots[s] - 1;
    Rendezvous *m = &r->meetings.at[index];
    m->arrived++;
    uint64_t member = (uint64_t)player << 32 | pc;
    list_push(r->v->arena, &m->members, member);
    if (m->arrived < m->size) return;
    for (uint32_t i = 0; i < m->members.n; i++)
        finish(r, (uint32_t)(m->members.at[i] >> 32), (Pc)m->members.at[i]);
    r->meetings.at[index].members.n = 0;
    r->meetings.at[index].arrived = 0;
}

static bool is_ready(const Player *at, Pc pc)
{
    const Instr *in = &at->p->code.at[pc];
    for (uint32_t k = 0; k < in->after.n; k++)
        if (!at->done[at->p->after.at[in->after.first + k]]) return false;
    return true;
}

/* Issues the instruction at the front of a stream if every instruction for which it waits has
 * finished. */
static bool play_stream(DeadlockReplay *r, uint32_t player, uint32_t stream)
{
    Player *at = &r->players[player];
    StreamFront *h = &at->front[stream];
    if (h->issued && h->open) return false;
    if (h->issued) h->first = h->next, h->issued = false;
    if (!h->first) return false;
    uint32_t launch = at->p->code.at[h->first].launch, n = 0;
    Pc pc = h->first;
    do {
        if (!is_ready(at, pc)) return false;
        n++;
        pc = at->next_on_stream[pc];
    } while (pc && launch && at->p->code.at[pc].launch == launch);
    h->next = pc;
    h->issued = true;
    h->open = n;
    for (pc = h->first; n > 0; n--) {
        Pc after = at->next_on_stream[pc];
        if (verify_is_comm(&at->p->code.at[pc]))
            arrive(r, player, pc);
        else
            finish(r, player, pc);
        pc = after;
    }
    return true;
}

/* ---- the circle ---- */

typedef struct Waiting { /* an instruction that never finishes */
    uint32_t player;
    Pc pc;
} Waiting;

/* True if the launch group of pc is at the front of its stream and has started. */
static bool is_issued(const Player *at, Pc pc)
{
    const StreamFront *h = &at->front[at->p->code.at[pc].stream];
    for (Pc k = h->first; h->issued && k && k != h->next; k = at->next_on_stream[k])
        if (k == pc) return true;
    return false;
}

/* Finds a member of the group that has not reached the communication. Returns false if all members
 * have. */
static bool find_missing(const DeadlockReplay *r, Waiting at, Waiting *missing)
{
    const Mesh *mesh = &r->v->plan->mesh;
    const Player *own = &r->players[at.player];
    const Instr *in = &own->p->code.at[at.pc];
    const Rank group = mesh_group(mesh, own->rank, in->axes);
    for (uint32_t i = 0; i < r->n; i++) {
        const Player *other = &r->players[i];
        if (i == at.player || mesh_group(mesh, other->rank, in->axes) != group) continue;
        if (verify_is_p2p(in) && other->rank != peer_of(mesh, own->rank, in)) continue;
        for (Pc pc = 1; pc < other->p->code.n; pc++) {
            const Instr *its = &other->p->code.at[pc];
            if (!verify_is_comm(its) || its->match != in->match || other->done[pc]) continue;
            *missing = (Waiting){i, pc};
            if (!is_issued(other, pc)) return true;
        }
    }
    return false;
}

/* Moves `at` to the instruction for which it waits. Returns false if there is no such instruction.
 */
static bool follow_wait(const DeadlockReplay *r, Waiting *at)
{
    const Player *own = &r->players[at->player];
    const Instr *in = &own->p->code.at[at->pc];
    if (verify_is_comm(in) && is_issued(own, at->pc)) return find_missing(r, *at, at);
    for (uint32_t k = 0; k < in->after.n; k++) {
        const Pc before = own->p->after.at[in->after.first + k];
        if (own->done[before]) continue;
        at->pc = before;
        return true;
    }
    Pc front = own->front[in->stream].first;
    while (front && own->done[front]) front = own->next_on_stream[front];
    if (!front || front == at->pc) return false;
    at->pc = front;
    return true;
}

/* Reports the circle of waits that contains a stuck instruction. It names each rank, its
 * communication, and the rank for which it waits. */
static void report_circle(DeadlockReplay *r, Waiting start)
{
    enum { MOST_STEPS = 256 };
    Waiting seen[MOST_STEPS];
    Verifier *v = r->v;
    uint32_t n = 0, first = 0;
    for (Waiting at = start;; n++) {
        for (first = 0; first < n; first++)
            if (seen[first].player == at.player && seen[first].pc == at.pc) break;
        if (first < n) break;
        if (n == MOST_STEPS) return;
        seen[n] = at;
        if (!follow_wait(r, &at)) return;
    }
    Str text = str_in(v->arena);
    for (uint32_t i = first; i < n; i++) {
        const Player *own = &r->players[seen[i].player];
        const Waiting next = seen[i + 1 < n ? i + 1 : first];
        const Instr *in = &own->p->code.at[seen[i].pc];
        if (next.player == seen[i].player) continue;
        str_print(&text, "%srank %u in %u %s %s waits for rank %u", text.n ? ", " : "", own->rank,
                  seen[i].pc, stream_name(in->stream), op_info(in->op)->name,
                  r->players[next.player].rank);
    }
    v->program = v->plan->program_of[r->players[seen[first].player].rank];
    v->p = r->players[seen[first].player].p;
    if (text.n)
        verify_report(v, "verify-deadlock", seen[first].pc,
                      "ranks wait for each other in a circle: %s", str_text(&text));
}

static void report_first_circle(DeadlockReplay *r)
{
    for (uint32_t i = 0; i < r->n; i++)
        for (int s = 0; s < STREAM_COUNT; s++) {
            const Player *at = &r->players[i];
            Pc pc = at->front[s].first;
            while (pc && at->done[pc]) pc = at->next_on_stream[pc];
            if (!pc) continue;
            report_circle(r, (Waiting){i, pc});
            return;
        }
}

static void report_stuck(DeadlockReplay *r)
{
    Verifier *v = r->v;
    report_first_circle(r);
    for (uint32_t i = 0; i < r->n; i++) {
        Player *at = &r->players[i];
        for (int s = 0; s < STREAM_COUNT; s++) {
            Pc pc = at->front[s].first;
            if (!pc || (at->front[s].issued && !at->front[s].open)) continue;
            while (at->front[s].issued && at->done[pc]) pc = at->next_on_stream[pc];
            v->program = v->plan->program_of[at->rank];
            v->p = at->p;
            const Instr *in = &at->p->code.at[pc];
            Pc open = 0;
            for (uint32_t k = 0; k < in->after.n && !at->front[s].issued; k++)
                if (!at->done[at->p->after.at[in->after.first + k]])
                    open = at->p->after.at[in->after.first + k];
            if (open)
                verify_report(v, "verify-deadlock", pc,
                              "rank %u waits forever for instruction %u %s %s", at->rank, open,
                              stream_name(at->p->code.at[open].stream),
                              op_info(at->p->code.at[open].op)->name);
            else if (verify_is_p2p(in))
                verify_report(
                    v, "verify-deadlock", pc,
                    "rank %u waits forever, because its peer, rank %d, does not reach match %u",
                    at->rank, (int)peer_of(&v->plan->mesh, at->rank, in), in->match);
            else
                verify_report(v, "verify-deadlock", pc,
                              "rank %u waits forever, because other ranks of its group along %s do "
                              "not reach match %u",
                              at->rank, mesh_axes_text(v->arena, &v->plan->mesh, in->axes),
                              in->match);
        }
    }
}

/* Returns an array [pc] with the next pc on the same stream. The first pcs of all streams are
 * stored behind the entry of the last pc. */
static Pc *link_streams(Verifier *v, const Program *p)
{
    Pc *next = arena_array(v->arena, (size_t)p->code.n + STREAM_COUNT, sizeof *next);
    Pc last[STREAM_COUNT] = {0};
    for (Pc pc = (Pc)p->code.n; pc-- > 1;) {
        next[pc] = last[p->code.at[pc].stream];
        last[p->code.at[pc].stream] = pc;
    }
    memcpy(next + p->code.n, last, sizeof last);
    return next;
}

static void replay(DeadlockReplay *r, Pc *const *links)
{
    for (uint32_t i = 0; i < r->n; i++) {
        Player *at = &r->players[i];
        uint32_t program = r->v->plan->program_of[at->rank];
        at->p = &r->v->plan->programs.at[program];
        at->next_on_stream = links[program];
        at->done = arena_array(r->v->arena, at->p->code.n, sizeof *at->done);
        for (int s = 0; s < STREAM_COUNT; s++)
            at->front[s].first = links[program][at->p->code.n + (uint32_t)s];
        wake(r, i);
    }
    while (r->queue.n) {
        uint32_t i = r->queue.at[--r->queue.n];
        r->players[i].queued = false;
        for (bool moved = true; moved;) {
            moved = false;
            for (uint32_t s = 0; s < STREAM_COUNT; s++)
                while (play_stream(r, i, s)) moved = true;
        }
    }
    bool stuck = false;
    for (uint32_t i = 0; i < r->n; i++)
        for (int s = 0; s < STREAM_COUNT; s++)
            if (r->players[i].front[s].first &&
                !(r->players[i].front[s].issued && !r->players[i].front[s].open &&
                  !r->players[i].front[s].next))
                stuck = true;
    if (stuck) report_stuck(r);
}

void verify_deadlock(Verifier *v)
{
    const Plan *plan = v->plan;
    DeadlockReplay r = {.v = v, .varying = verify_stage_axes(v)};
    LIST(Rank) ranks = {0};
    Sequences *all = arena_array(v->arena, plan->programs.n, sizeof *all);
    uint32_t *seen = arena_array(v->arena, (size_t)plan->n_match + 1, sizeof *seen);
    Pc **links = arena_array(v->arena, plan->programs.n, sizeof *links);
    AxisSet same = (AxisSet)(((1u << plan->mesh.n_axes) - 1) & ~(unsigned)r.varying);
    for (Rank k = 0; k < plan->mesh.n_ranks; k++)
        if (mesh_group(&plan->mesh, k, same) == k) list_push(v->arena, &ranks, k);
    for (v->program = 0; v->program < plan->programs.n; v->program++) {
        v->p = &plan->programs.at[v->program];
        collect_sequences(v, &all[v->program], seen);
        links[v->program] = link_streams(v, v->p);
    }
    check_sequences(v, all, ranks.at, ranks.n, r.varying);
    v->p = NULL;
    if (!(v->proofs & VERIFY_in_full) && verify_ends_in_order(plan)) return;
    r.n = ranks.n;
    r.players = arena_array(v->arena, r.n, sizeof *r.players);
    for (uint32_t i = 0; i < r.n; i++) r.players[i].rank = ranks.at[i];
    replay(&r, links);
}
