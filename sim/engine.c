/* The event engine. It knows only programs and a clock; models give the times of kernels and
 * transfers. planner/ir/plan.h explains the rules by which an instruction may begin. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/compute/imbalance.h"
#include "sim/engine_private.h"

static uint32_t new_arrival(Engine *e, uint32_t class_, Pc pc, uint32_t next)
{
    uint32_t id = e->free_arrival;
    if (id != 0)
        e->free_arrival = e->arrivals.at[id].next;
    else
        id = list_add(e->arena, &e->arrivals);
    e->arrivals.at[id] = (Arrival){class_, pc, next};
    return id;
}

static void start_transfer(Engine *e, const SimComm *comm, uint32_t arrivals, uint32_t sender,
                           uint32_t receiver)
{
    uint32_t id = e->free_transit;
    if (id != 0)
        e->free_transit = e->transits.at[id].next_free;
    else
        id = list_add(e->arena, &e->transits);
    e->transits.at[id].arrivals = arrivals;
    Transfer t = {.op = comm->op,
                  .bytes = comm->bytes,
                  .dtype = comm->dtype,
                  .registered = comm->registered,
                  .layer = comm->layer,
                  .back = comm->back};
    if (comm->axes != UINT32_MAX) {
        const FoldAxes *axes = &e->fold->axes.at[comm->axes];
        t.group = &axes->groups[axes->group_of[sender]];
    } else {
        t.op = OP_send;
        t.sender = sender;
        t.receiver = receiver;
        t.from_rank = e->fold->rank_of[sender];
        t.to_rank = e->fold->rank_of[receiver];
        bool sends = comm->op == OP_send; /* the hop of a recv points back to the sender */
        Rank here = sends ? t.from_rank : t.to_rank, peer = 0;
        fold_peer(&e->plan->mesh, here, comm->axis_set, comm->hop, &peer);
        if (sends)
            t.to_rank = peer;
        else
            t.from_rank = peer;
    }
    for (uint32_t i = arrivals; i != 0; i = e->arrivals.at[i].next) {
        const Arrival *a = &e->arrivals.at[i];
        moment_of(&e->line[a->class_], a->pc)->start = e->now - e->step_start;
    }
    e->options->net->start(e->options->net->self, id, &t, e->now);
    e->net_changed = true;
}

/* Records that one member of a communication is ready. If it is the last one, the transfer
 * starts. */
static void reach(Engine *e, uint32_t class_, Pc pc, const SimComm *comm)
{
    const Fold *fold = e->fold;
    uint32_t slot = comm->slot, expected = 2, sender = class_, receiver = class_;
    if (comm->axes != UINT32_MAX) {
        const FoldAxes *axes = &fold->axes.at[comm->axes];
        slot += axes->group_of[class_] - comm->first_group;
        expected = axes->groups[axes->group_of[class_]].n_members;
    } else {
        Rank peer = 0;
        fold_peer(&e->plan->mesh, fold->rank_of[class_], comm->axis_set, comm->hop, &peer);
        if (comm->op == OP_send)
            receiver = fold->class_of[peer];
        else
            sender = fold->class_of[peer];
        slot += sender;
    }
    e->slots[slot] = new_arrival(e, class_, pc, e->slots[slot]);
    if (++e->gathered[slot] < expected) return;
    uint32_t arrivals = e->slots[slot];
    e->slots[slot] = 0;
    e->gathered[slot] = 0;
    start_transfer(e, comm, arrivals, sender, receiver);
}

/* Returns how long a kernel takes alone on a rank of this class. */
static Ps alone_ps(const Engine *e, uint32_t class_, Pc pc)
{
    const Step *step = &e->code_of[class_]->step[pc];
    if (step->layer == 0) return step->duration;
    const Program *p = &e->plan->programs.at[e->plan->program_of[e->fold->rank_of[class_]]];
    return imbalance_compute(e->options->uneven, e->plan, p, &p->code.at[pc], step->layer, class_);
}

static void changed_device(Engine *e)
{
    e->device_changed = true;
    if (e->options->device->is_host) e->net_changed = true;
}

static void begin_issued(Engine *e, uint32_t class_, Pc leader)
{
    const Code *code = e->code_of[class_];
    for (Pc pc = leader; pc != 0; pc = code->step[pc].next_in_launch) {
        const Step *step = &code->step[pc];
        Moment *moment = moment_of(&e->line[class_], pc);
        moment->reached = moment->start = e->now - e->step_start;
        if (e->leap != NULL) leap_note(e->leap, class_, pc);
        if (step->comm != 0) {
            reach(e, class_, pc, &code->comms.at[step->comm]);
        } else if (e->options->device == NULL || (step->on_host && !e->options->device->is_host)) {
            heap_add(&e->heap, e->arena, e->now + alone_ps(e, class_, pc), class_, pc);
        } else {
            uint32_t id = e->free_job;
            if (id != 0)
                e->free_job = e->jobs.at[id].next;
            else
                id = list_add(e->arena, &e->jobs);
            e->jobs.at[id] = (Arrival){class_, pc, 0};
            e->options->device->start(e->options->device->self, id, class_, alone_ps(e, class_, pc),
                                      e->now);
            changed_device(e);
        }
    }
}

static void begin(Engine *e, uint32_t class_, Pc leader, Pc by)
{
    const Code *code = e->code_of[class_];
    for (Pc pc = leader; pc != 0; pc = code->step[pc].next_in_launch)
        moment_of(&e->line[class_], pc)->by = by;
    const Step *step = &code->step[leader];
    Ps issued = e->step_start + e->host[class_].at[step->burst].from + step->issued;
    if (issued > e->now)
        heap_add(&e->heap, e->arena, issued, class_, leader | ISSUE);
    else
        begin_issued(e, class_, leader);
}

/* Instruction pc has ended. Lets the host begin each burst (HostBurst) for which all awaited
 * instructions have now ended. */
static void go_on(Engine *e, uint32_t class_, Pc pc)
{
    const Code *code = e->code_of[class_];
    HostLine *host = &e->host[class_];
    while (host->n < code->bursts.n && e->awaited[class_][host->n] == 0) {
        const HostBurst *burst = &code->bursts.at[host->n];
        const Ps ready = host->at[host->n - 1].from + burst[-1].length,
                 now = e->now - e->step_start;
        const bool waited = now > ready;
        host->at[host->n++] = (HostStart){burst->first, waited ? pc : 0, waited ? now : ready};
        const Pc last = host->n < code->bursts.n ? burst[1].first : code->n;
        for (Pc leader = burst->first; leader < last; leader++) {
            const Step *step = &code->step[leader];
            if (step->leader != leader || step->burst != host->n - 1) continue;
            if (++moment_of(&e->line[class_], leader)->met == code->need[leader])
                begin(e, class_, leader, pc);
        }
    }
}

static void end(Engine *e, uint32_t class_, Pc pc)
{
    const Code *code = e->code_of[class_];
    const Timeline *line = &e->line[class_];
    moment_of(line, pc)->end = e->now - e->step_start;
    e->n_ended++;
    e->end_ps[class_] = e->now;
    uint32_t last = code->step[pc + 1].successors;
    for (uint32_t i = code->step[pc].successors; i < last; i++) {
        Pc leader = code->successors[i];
        if (++moment_of(line, leader)->met == code->need[leader]) begin(e, class_, leader, pc);
    }
    const uint32_t burst = code->step[pc].lets;
    if (burst != 0 && --e->awaited[class_][burst] == 0) go_on(e, class_, pc);
}

static void end_transfer(Engine *e)
{
    NetModel *net = e->options->net;
    uint32_t id = e->net_id;
    net->finish(net->self, id, e->now);
    e->net_changed = true;
    if (id == NET_RATES) return;
    uint32_t at = e->transits.at[id].arrivals;
    e->transits.at[id].next_free = e->free_transit;
    e->free_transit = id;
    while (at != 0) {
        Arrival a = e->arrivals.at[at];
        e->arrivals.at[at].next = e->free_arrival;
        e->free_arrival = at;
        at = a.next;
        end(e, a.class_, a.pc);
    }
}

static void end_job(Engine *e)
{
    DeviceModel *device = e->options->device;
    uint32_t id = e->device_id;
    device->finish(device->self, id, e->now);
    changed_device(e);
    if (id == NET_RATES) return;
    Arrival job = e->jobs.at[id];
    e->jobs.at[id].next = e->free_job;
    e->free_job = id;
    end(e, job.class_, job.pc);
}

/* True if an event of the network is due at this instant. */
static bool net_is_due(Engine *e)
{
    NetModel *net = e->options->net;
    if (!e->net_changed) return e->net_busy && e->net_when <= e->now;
    return net->next(net->self, e->now, false, &e->net_id, &e->net_when);
}

/* Handles one event of the models at this instant. Returns false if there is none. */
static bool end_due(Engine *e)
{
    DeviceModel *device = e->options->device;
    if (net_is_due(e)) {
        end_transfer(e);
        return true;
    }
    if (device == NULL) return false;
    if (!device->next(device->self, e->now, false, &e->device_id, &e->device_when)) return false;
    end_job(e);
    return true;
}

static void settle(Engine *e)
{
    NetModel *net = e->options->net;
    DeviceModel *device = e->options->device;
    if (device != NULL) {
        e->device_busy = device->next(device->self, e->now, true, &e->device_id, &e->device_when);
    }
    if (e->net_changed) e->net_busy = net->next(net->self, e->now, true, &e->net_id, &e->net_when);
    e->net_changed = e->device_changed = false;
}

/* Handles events until none is left. At each instant, it handles all events, then lets the models
 * compute new rates, and then advances the time. */
static void run_step(Engine *e)
{
    while (e->now <= PS_MOST) {
        const Event *top = heap_top(&e->heap);
        if (top == NULL || top->time != e->now) {
            if (e->net_changed || e->device_changed) {
                if (end_due(e)) continue;
                settle(e);
            }
            bool net = e->net_busy && (top == NULL || e->net_when < top->time);
            bool device = e->device_busy && (top == NULL || e->device_when < top->time);
            if (net && device) net = e->net_when < e->device_when;
            const bool models = net || device;
            if (!models && top == NULL) return;
            const Ps when = !models ? top->time : net ? e->net_when : e->device_when;
            assert(when >= e->now);
            if (e->leap != NULL && leap_is_due(e->leap) && when > e->now) {
                leap_pass(e);
                continue;
            }
            if (models) {
                e->now = when;
                if (net)
                    end_transfer(e);
                else
                    end_job(e);
                continue;
            }
        }
        uint32_t class_ = top->a;
        Pc pc = top->b;
        e->now = top->time;
        heap_take(&e->heap);
        if (pc & ISSUE)
            begin_issued(e, class_, pc & ~ISSUE);
        else
            end(e, class_, pc);
    }
}

static bool report_stuck(Engine *e, Diag *d)
{
    Stuck s = {.plan = e->plan,
               .fold = e->fold,
               .codes = e->codes,
               .line = e->line,
               .arrivals = e->arrivals.at,
               .slots = e->slots,
               .n_slots = e->n_slots};
    engine_report_stuck(&s, d);
    return false;
}

static void prepare(Engine *e)
{
    const Fold *fold = e->fold;
    Arena *a = e->arena;
    e->code_of = arena_array(a, fold->n_classes, sizeof *e->code_of);
    for (uint32_t c = 0; c < fold->n_classes; c++)
        e->code_of[c] = &e->codes[e->plan->program_of[fold->rank_of[c]]];
    e->slots = arena_array(a, e->n_slots, sizeof *e->slots);
    e->gathered = arena_array(a, e->n_slots, sizeof *e->gathered);
    list_add(a, &e->arrivals);
    list_add(a, &e->transits);
    list_add(a, &e->jobs);
}

/* Allocates the times of all classes, in the order that Timeline describes. Each step sets the
 * times of all instructions, so only entry 0, which no instruction uses, is cleared here. */
static void make_lines(Engine *e, Arena *arena)
{
    const uint32_t n_programs = e->plan->programs.n;
    uint32_t *ranks = arena_array(e->arena, n_programs, sizeof *ranks);
    Moment **next = arena_array(e->arena, n_programs, sizeof *next);
    e->line = arena_array(arena, e->fold->n_classes, sizeof *e->line);
    for (uint32_t c = 0; c < e->fold->n_classes; c++) ranks[e->code_of[c] - e->codes]++;
    for (uint32_t i = 0; i < n_programs; i++) {
        const size_t n = (size_t)ranks[i] * e->codes[i].n;
        uint32_t room = 0;
        if (n == 0) continue;
        if (n > UINT32_MAX) arena_full();
        next[i] = list_grow(arena, NULL, 0, &room, (uint32_t)n, sizeof *next[i]);
        memset(next[i], 0, ranks[i] * sizeof *next[i]);
    }
    for (uint32_t c = 0; c < e->fold->n_classes; c++) {
        const size_t i = (size_t)(e->code_of[c] - e->codes);
        e->line[c] = (Timeline){next[i]++, ranks[i]};
    }
}

static void make_hosts(Engine *e, Arena *arena)
{
    const uint32_t n = e->fold->n_classes;
    e->host = arena_array(arena, n, sizeof *e->host);
    e->awaited = arena_array(e->arena, n, sizeof *e->awaited);
    for (uint32_t c = 0; c < n; c++) {
        e->host[c].at = arena_array(arena, e->code_of[c]->bursts.n, sizeof *e->host[c].at);
        e->awaited[c] = arena_array(e->arena, e->code_of[c]->bursts.n, sizeof *e->awaited[c]);
    }
}

/* Resets the state before a step: no instruction has ended, and each host begins its first
 * burst. */
static void forget_ends(Engine *e)
{
    for (uint32_t c = 0; c < e->fold->n_classes; c++) {
        const Code *code = e->code_of[c];
        for (Pc pc = 0; pc < code->n; pc++) moment_of(&e->line[c], pc)->met = 0;
        for (uint32_t i = 0; i < code->bursts.n; i++)
            e->awaited[c][i] = code->bursts.at[i].n_awaited;
        e->host[c].at[0] = (HostStart){.first = 1};
        e->host[c].n = 1;
    }
}

/* Runs one step, which begins on all ranks at once. Returns false if some program did not end. */
static bool step(Engine *e)
{
    uint64_t due = 0;
    e->step_start = e->now;
    e->n_ended = 0;
    for (uint32_t c = 0; c < e->fold->n_classes; c++) {
        const Code *code = e->code_of[c];
        due += code->n - 1;
        e->end_ps[c] = e->now;
    }
    for (uint32_t c = 0; c < e->fold->n_classes; c++) {
        const Code *code = e->code_of[c];
        for (uint32_t i = 0; i < code->roots.n; i++) begin(e, c, code->roots.at[i], 0);
    }
    run_step(e);
    assert(e->n_ended <= due);
    return e->n_ended == due;
}

static bool report_too_long(Diag *d)
{
    diag_error(d, FAULT_input, "step-too-long", (Loc){NULL, 0},
               "the simulated steps take longer than %" PRId64
               " days, which is too long to be counted",
               PS_MOST / PS_PER_S / 86400);
    diag_hint(d, "check the cluster's rates, such as bytes_per_s and peak_flops");
    return false;
}

bool engine_run(const Plan *plan, const EngineOptions *options, Arena *arena, EngineResult *result,
                Diag *d)
{
    Arena *scratch = arena_new();
    Code *codes = arena_array(scratch, plan->programs.n, sizeof *codes);
    Engine e = {.plan = plan, .options = options, .fold = options->fold, .codes = codes};
    *result = (EngineResult){0};
    e.arena = scratch;
    e.n_slots = engine_compile(plan, options, scratch, codes, d);
    bool ok = e.n_slots != UINT32_MAX;
    if (ok) {
        result->end_ps = arena_array(arena, e.fold->n_classes, sizeof *result->end_ps);
        e.end_ps = result->end_ps;
        prepare(&e);
        make_lines(&e, arena);
        make_hosts(&e, arena);
        if (options->leaps && options->steps <= 1) e.leap = leap_new(&e);
        result->line = e.line;
        result->host = e.host;
    }
    uint32_t n_steps = options->steps == 0 ? 1 : options->steps;
    for (uint32_t i = 0; ok && i < n_steps; i++) {
        forget_ends(&e);
        ok = step(&e) || (e.now > PS_MOST ? report_too_long(d) : report_stuck(&e, d));
        result->n_events += e.n_ended;
    }
    if (ok) {
        result->step_ps = e.now - e.step_start;
        result->n_left_out = e.n_left_out;
        for (uint32_t c = 0; c < e.fold->n_classes; c++) e.end_ps[c] -= e.step_start;
    }
    arena_free(scratch);
    return ok;
}
