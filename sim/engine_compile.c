/* Prepares programs for the engine. It stores the successors of each instruction instead of its
 * predecessors. Communications that start together become one unit. Durations and sizes of
 * transfers are computed once. A slot is a place where the members of one communication meet; slots
 * are numbered. */
#include <assert.h>
#include <string.h>

#include "sim/compute/imbalance.h"
#include "sim/engine_alike.h"
#include "sim/engine_private.h"

/* A communication of some groups of ranks, identified by (match, axes, op, owner). The two ends of
 * a message have one such entry. */
typedef struct MatchSlot {
    uint32_t match;
    uint32_t owner;   /* 1 + index of the program to which all members belong; 0: they may belong to
                         several programs */
    uint32_t program; /* 1 + index of the last program with an instruction for this entry */
    AxisSet axes;
    OpKind op;
    uint32_t slot;
    uint8_t ends; /* send and recv: which ends have occurred in `program`; bit 0: the sender, bit 1:
                     the receiver */
} MatchSlot;

typedef struct Meetings {
    MatchSlot *table;
    uint32_t room, n, n_slots;
} Meetings;

/* The groups along some axes that contain ranks of a program lie between group `first` and group
 * first + n - 1. */
typedef struct GroupRange {
    uint32_t first, n;
} GroupRange;

/* The largest first table of meetings, in entries. */
enum { MOST_AT_FIRST = 1 << 20 };

typedef struct Compiler {
    const Plan *plan;
    const EngineOptions *options;
    Arena *arena, *scratch;
    Meetings meetings;
    bool *mixed; /* [index in fold->axes]: true if some group has members of several programs */
    GroupRange *groups; /* [index in fold->axes * number of programs + program] */
    Pc *alike; /* [pc]: an earlier instruction of the program that costs the same; 0: not known */
    Diag *diag;
} Compiler;

/* Returns an array whose elements the caller will set. Clearing it first would cost time. */
static void *array_unset(Arena *arena, size_t n, size_t size)
{
    uint32_t room = 0;
    assert(n < UINT32_MAX);
    return list_grow(arena, NULL, 0, &room, (uint32_t)n, size);
}

/* Makes the table of meetings twice as large. Most plans use each match once, so the first table
 * already has room for all of them. */
static void meetings_grow(Meetings *m, uint32_t n_match, Arena *scratch)
{
    Meetings old = *m;
    m->room = old.room == 0 ? 1024 : 2 * old.room;
    while (old.room == 0 && m->room / 2 <= n_match && m->room < MOST_AT_FIRST) m->room *= 2;
    m->table = arena_array(scratch, m->room, sizeof *m->table);
    for (uint32_t i = 0; i < old.room; i++) {
        if (old.table[i].op == OP_none) continue;
        uint32_t at = (old.table[i].match * UINT32_C(2654435761)) & (m->room - 1);
        while (m->table[at].op != OP_none) at = (at + 1) & (m->room - 1);
        m->table[at] = old.table[i];
    }
}

/* Fills c->mixed and c->groups. If no group along some axes has members of several programs, a
 * communication along them has an entry for each program, with slots only for the groups of this
 * program. */
static void find_groups(Compiler *c)
{
    const Fold *fold = c->options->fold;
    const uint32_t n_programs = c->plan->programs.n;
    c->mixed = arena_array(c->scratch, fold->axes.n, sizeof *c->mixed);
    c->groups = arena_array(c->scratch, (size_t)fold->axes.n * n_programs, sizeof *c->groups);
    uint32_t *owner = arena_array(c->scratch, fold->n_classes, sizeof *owner);
    for (uint32_t i = 0; i < fold->axes.n; i++) {
        const FoldAxes *axes = &fold->axes.at[i];
        memset(owner, 0, fold->n_classes * sizeof *owner);
        for (uint32_t class_ = 0; class_ < fold->n_classes; class_++) {
            const uint32_t program = c->plan->program_of[fold->rank_of[class_]],
                           group = axes->group_of[class_];
            GroupRange *of = &c->groups[i * n_programs + program];
            if (owner[group] != 0 && owner[group] != program + 1) c->mixed[i] = true;
            owner[group] = program + 1;
            const uint32_t end = of->first + of->n;
            const uint32_t first = of->n == 0 || group < of->first ? group : of->first;
            *of = (GroupRange){first, (of->n == 0 || group >= end ? group + 1 : end) - first};
        }
    }
}

static MatchSlot *find_meeting(Compiler *c, const Instr *in, uint32_t program)
{
    Meetings *m = &c->meetings;
    OpKind op = in->op == OP_recv ? OP_send : in->op;
    const uint32_t axes = op == OP_send ? UINT32_MAX : fold_axes(c->options->fold, in->axes),
                   owner = axes == UINT32_MAX || c->mixed[axes] ? 0 : program + 1;
    if (2 * m->n >= m->room) meetings_grow(m, c->plan->n_match, c->scratch);
    uint32_t at = (in->match * UINT32_C(2654435761)) & (m->room - 1);
    for (; m->table[at].op != OP_none; at = (at + 1) & (m->room - 1)) {
        const MatchSlot *x = &m->table[at];
        if (x->match == in->match && x->axes == in->axes && x->op == op && x->owner == owner)
            return &m->table[at];
    }
    m->n++;
    m->table[at] = (MatchSlot){
        .match = in->match, .owner = owner, .axes = in->axes, .op = op, .slot = m->n_slots};
    const Fold *fold = c->options->fold;
    m->n_slots += axes == UINT32_MAX ? fold->n_classes
                  : owner == 0       ? fold->axes.at[axes].n_groups
                                     : c->groups[axes * c->plan->programs.n + program].n;
    return &m->table[at];
}

static bool seen_before(MatchSlot *m, uint32_t program, OpKind op)
{
    uint8_t end = op == OP_recv ? 2 : 1;
    if (m->program != program + 1) {
        m->program = program + 1;
        m->ends = 0;
    }
    bool seen = (m->ends & end) != 0;
    m->ends |= end;
    return seen;
}

static Loc loc_of(const Plan *plan, const Instr *in)
{
    return in->origin < plan->graph.nodes.n ? plan->graph.nodes.at[in->origin].loc : (Loc){0};
}

/* Returns a communication without its match and its slot, which the caller sets. */
static SimComm comm_of(const Compiler *c, const Program *p, const Instr *in)
{
    const bool pair = in->op == OP_send || in->op == OP_recv;
    const BufferId first = in->args.n > 0 ? program_arg(p, in, 0) : 0;
    const CostModel *cost = c->options->cost;
    const double waited = cost->waited != NULL ? cost->waited(cost->self, c->plan, in) : 1;
    SimComm comm = {.op = in->op,
                    .axes = pair ? UINT32_MAX : fold_axes(c->options->fold, in->axes),
                    .axis_set = in->axes,
                    .hop = in->hop,
                    .bytes = (uint64_t)((double)plan_comm_bytes(c->plan, p, in) * waited),
                    .registered = graph_attrs_at(&c->plan->graph, in->attrs)->registered != 0,
                    .dtype = p->buffers.at[first].dtype};
    if (c->options->uneven != NULL)
        comm.layer = imbalance_layer(c->options->uneven, c->plan, p, in, &comm.back);
    return comm;
}

static bool compile_comm(Compiler *c, uint32_t program, Pc pc, Code *code)
{
    const Program *p = &c->plan->programs.at[program];
    const Instr *in = &p->code.at[pc];
    MatchSlot *meeting = find_meeting(c, in, program);
    if (seen_before(meeting, program, in->op)) {
        return diag_error(c->diag, FAULT_input, "sim-duplicate-match", loc_of(c->plan, in),
                          "program %u, instruction %u: %s has match %u, which another instruction "
                          "of the program has, too",
                          program, pc, op_info(in->op)->name, in->match);
    }
    const Pc of = c->alike[pc];
    if (of == 0 && mesh_size(&c->plan->mesh, in->axes) < 2) {
        return diag_error(c->diag, FAULT_input, "sim-peer", loc_of(c->plan, in),
                          "program %u, instruction %u: %s has no other rank to communicate with",
                          program, pc, op_info(in->op)->name);
    }
    const uint32_t at = code->step[pc].comm = code->comms.n;
    if (of != 0)
        list_push(c->arena, &code->comms, code->comms.at[code->step[of].comm]);
    else
        list_push(c->arena, &code->comms, comm_of(c, p, in));
    code->comms.at[at].match = in->match;
    code->comms.at[at].slot = meeting->slot;
    code->comms.at[at].first_group =
        meeting->owner == 0
            ? 0
            : c->groups[code->comms.at[at].axes * c->plan->programs.n + program].first;
    return true;
}

static void compile_kernel(const Compiler *c, const Program *p, Pc pc, Code *code)
{
    const Instr *in = &p->code.at[pc];
    const CostModel *cost = c->options->cost;
    Step *step = &code->step[pc];
    const Pc of = c->alike[pc];
    bool back = false;
    step->duration = of != 0 ? code->step[of].duration : cost->compute(cost->self, c->plan, p, in);
    assert(step->duration >= 0);
    step->on_host = of != 0 ? code->step[of].on_host : plan_touches_host(p, in);
    if (c->options->uneven != NULL)
        step->layer = imbalance_layer(c->options->uneven, c->plan, p, in, &back);
}

/* Compiles an instruction, except for its order. */
static bool compile_instr(Compiler *c, uint32_t program, Pc pc, Code *code)
{
    const Program *p = &c->plan->programs.at[program];
    const Instr *in = &p->code.at[pc];
    const CostModel *cost = c->options->cost;
    const Pc of = c->alike[pc];
    Step *step = &code->step[pc];
    *step = (Step){0};
    code->need[pc] = 0;
    if (of != 0)
        step->left_out = code->step[of].left_out;
    else if (cost->leaves_out != NULL)
        step->left_out = cost->leaves_out(cost->self, c->plan, p, in);
    if (step->left_out) return true;
    if (op_info(in->op)->class_ == OP_CLASS_comm) return compile_comm(c, program, pc, code);
    compile_kernel(c, p, pc, code);
    return true;
}

/* Finds launch groups. A launch group is a run of communications on one stream with the same
 * non-zero launch number. For the first member (the leader) of each group, before[pc] becomes the
 * last member of the previous group on the stream. */
static void find_launches(const Program *p, Code *code, Pc *before)
{
    Pc last[STREAM_COUNT] = {0};
    for (Pc pc = 1; pc < code->n; pc++) {
        const Instr *in = &p->code.at[pc];
        Pc previous = last[in->stream];
        bool joins = in->launch != 0 && previous != 0 && code->step[pc].comm != 0 &&
                     code->step[previous].comm != 0 && p->code.at[previous].launch == in->launch;
        code->step[pc].leader = joins ? code->step[previous].leader : pc;
        if (joins)
            code->step[previous].next_in_launch = pc;
        else
            before[pc] = previous;
        last[in->stream] = pc;
    }
}

typedef void (*Edge)(Code *code, Pc from, Pc to_leader);

static void count_edge(Code *code, Pc from, Pc to_leader)
{
    code->step[from + 1].successors++;
    code->need[to_leader]++;
}

/* Adds a successor to the list of `from`. While lists are filled, step[from + 1].successors is the
 * next free entry of the list of `from`. */
static void fill_edge(Code *code, Pc from, Pc to_leader)
{
    code->successors[code->step[from + 1].successors++] = to_leader;
}

/* Calls edge() for every pair of an instruction and a leader that waits for it. It is inlined, so
 * that the compiler makes one loop for each function. */
static inline void each_edge(const Program *p, Code *code, const Pc *before, Edge edge)
{
    for (Pc pc = 1; pc < code->n; pc++) {
        const Instr *in = &p->code.at[pc];
        Pc leader = code->step[pc].leader;
        for (uint32_t i = 0; i < in->after.n; i++) {
            edge(code, p->after.at[in->after.first + i], leader);
        }
        if (leader != pc || before[pc] == 0) continue;
        for (Pc m = code->step[before[pc]].leader; m != 0; m = code->step[m].next_in_launch) {
            edge(code, m, leader);
        }
    }
}

/* Fills `successors`. The successors of pc are the entries from step[pc].successors to step[pc +
 * 1].successors - 1. */
static void link_successors(Compiler *c, const Program *p, Code *code)
{
    Pc *before = arena_array(c->scratch, code->n + 1, sizeof *before);
    find_launches(p, code, before);
    each_edge(p, code, before, count_edge);
    /* At first, step[pc + 1].successors is the number of successors of pc. After the running sum,
     * it is the start of the list of pc. Filling this list moves it to the list's end, which is the
     * start of the list of pc + 1. */
    uint32_t total = 0;
    for (Pc pc = 0; pc <= code->n; pc++) {
        uint32_t n = code->step[pc].successors;
        code->step[pc].successors = total;
        total += n;
    }
    code->successors = array_unset(c->arena, total + 1, sizeof *code->successors);
    each_edge(p, code, before, fill_edge);
    code->step[0].successors = 0;
}

/* Lists the leaders that wait for nothing. If the host issues a leader in a burst after the first
 * one (HostBurst), the leader waits until that burst begins. */
static void list_roots(Compiler *c, Code *code)
{
    for (Pc pc = 1; pc < code->n; pc++) {
        if (code->step[pc].leader != pc) continue;
        if (code->step[pc].burst > 0) code->need[pc]++;
        if (code->need[pc] == 0) list_push(c->arena, &code->roots, pc);
    }
}

static void await(Code *code, Pc pc, uint32_t burst)
{
    if (pc == 0 || code->step[pc].lets != 0)
        return; /* an earlier burst already waits for this instruction */
    code->step[pc].lets = burst;
    code->bursts.at[burst].n_awaited++;
}

/* Returns true if a kernel reads a message for which the host has not waited. */
static bool reads_message(const Program *p, const Code *code, const Instr *in)
{
    for (uint32_t i = 0; i < in->after.n; i++) {
        const Pc of = p->after.at[in->after.first + i];
        if (p->code.at[of].op == OP_recv && code->step[of].lets == 0) return true;
    }
    return false;
}

/* State of the host while it issues a program. */
typedef struct Host {
    Pc kernel;  /* the last kernel */
    Pc awaited; /* the last instruction whose result the host reads; 0: none since the host last
                   waited */
    bool sent;  /* messages were sent since the host last waited */
} Host;

/* If the host must wait before it issues kernel pc, begins a new burst with this kernel. */
static bool begin_part(Compiler *c, const Program *p, Code *code, Pc pc, Host *host)
{
    const Instr *in = &p->code.at[pc];
    if (op_info(in->op)->class_ == OP_CLASS_comm || in->stream != STREAM_compute) return false;
    const bool messages =
        c->options->cost->waits_messages && (host->sent || reads_message(p, code, in));
    if (!messages && host->awaited == 0) return false;
    const Pc from = code->bursts.at[code->bursts.n - 1].first;
    const uint32_t burst = list_push(c->arena, &code->bursts, (HostBurst){.first = pc});
    await(code, host->awaited, burst);
    for (Pc at = from; messages && at < pc; at++)
        if (p->code.at[at].op == OP_send) await(code, at, burst);
    for (uint32_t i = 0; messages && i < in->after.n; i++) {
        const Pc of = p->after.at[in->after.first + i];
        if (p->code.at[of].op == OP_recv) await(code, of, burst);
    }
    if (messages) await(code, host->kernel, burst);
    host->awaited = 0;
    host->sent = host->sent && !messages;
    return true;
}

/* What the host does for an instruction. */
typedef struct HostWork {
    Ps takes;
    bool waits; /* it then waits for the end of the instruction */
} HostWork;

/* Computes when the host issues each instruction, in the order of the program. A launch group
 * starts when its last member has been issued. */
static void issue_all(Compiler *c, const Program *p, Code *code)
{
    const CostModel *cost = c->options->cost;
    Ps now = cost->issue_from;
    HostWork *issue = array_unset(c->scratch, code->n, sizeof *issue);
    Host host = {0};
    for (Pc pc = 1; pc < code->n; pc++) {
        const Instr *in = &p->code.at[pc];
        if (begin_part(c, p, code, pc, &host)) now = 0;
        const uint32_t burst = code->bursts.n - 1;
        const Pc of = c->alike[pc];
        if (of != 0)
            issue[pc] = issue[of];
        else
            issue[pc] = (HostWork){cost->issue(cost->self, c->plan, p, in),
                                   cost->waits != NULL && cost->waits(cost->self, in)};
        now += issue[pc].takes;
        code->bursts.at[burst].length = now;
        Step *step = &code->step[pc], *leader = &code->step[step->leader];
        step->issued = leader->issued = now;
        step->burst = leader->burst = burst;
        if (in->stream == STREAM_compute && op_info(in->op)->class_ != OP_CLASS_comm)
            host.kernel = pc;
        if (issue[pc].waits) host.awaited = pc;
        host.sent = host.sent || in->op == OP_send;
    }
}

/* Compiles all instructions, except for their order. Finds for each an earlier one with the same
 * cost; there may be none. */
static bool compile_all(Compiler *c, uint32_t program, Code *code)
{
    const Program *p = &c->plan->programs.at[program];
    const bool by_shape = c->options->cost->by_shape;
    bool ok = true;
    AlikeSearch *search = arena_alloc(c->scratch, sizeof *search);
    c->alike = array_unset(c->scratch, code->n, sizeof *c->alike);
    if (by_shape) alike_begin(search, p, c->options->cost, c->scratch);
    for (Pc pc = 1; pc < code->n; pc++) {
        c->alike[pc] = by_shape ? alike_find(search, pc) : 0;
        code->n_alike += c->alike[pc] != 0;
        ok = compile_instr(c, program, pc, code) && ok;
    }
    return ok;
}

static bool compile_program(Compiler *c, uint32_t program, Code *code)
{
    const Program *p = &c->plan->programs.at[program];
    code->n = p->code.n == 0 ? 1 : p->code.n;
    code->step = array_unset(c->arena, (size_t)code->n + 1, sizeof *code->step);
    code->need = array_unset(c->arena, (size_t)code->n + 1, sizeof *code->need);
    code->step[0] = code->step[code->n] = (Step){0};
    code->need[0] = code->need[code->n] = 0;
    list_reserve(c->arena, &code->comms, code->n / 2 + 1);
    list_add(c->arena, &code->comms);
    list_push(c->arena, &code->bursts, (HostBurst){.first = 1});
    if (!compile_all(c, program, code)) return false;
    link_successors(c, p, code);
    if (c->options->cost->issue != NULL) issue_all(c, p, code);
    list_roots(c, code);
    return true;
}

uint32_t engine_compile(const Plan *plan, const EngineOptions *options, Arena *arena, Code *codes,
                        Diag *d)
{
    Compiler c = {.plan = plan, .options = options, .arena = arena, .diag = d};
    c.scratch = arena_new();
    find_groups(&c);
    bool ok = true;
    for (uint32_t i = 0; i < plan->programs.n; i++) ok = compile_program(&c, i, &codes[i]) && ok;
    uint32_t n_slots = c.meetings.n_slots;
    arena_free(c.scratch);
    return ok ? n_slots : UINT32_MAX;
}
