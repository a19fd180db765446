/* Ends a run that cannot continue. First reports where each rank is, and the next instruction that
 * the plan expects of it. Then ends all ranks. The launcher prints the report, or this process if
 * there is no launcher. */
#include "exec/ending.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_TOLD = 16 };

static void pause_s(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&t, NULL);
}

void ending_tell(const Ending *p, const char *rule, const char *text)
{
    if (p->record) p->record(p->record_self, rule, text);
    bool first = p->status == NULL || status_tell(p->status, rule, text);
    if (first && (p->status == NULL || p->prints)) fprintf(stderr, "error[%s]: %s\n", rule, text);
    if (!first)
        pause_s(p->prints ? 0.2 : 5); /* another rank has reported already and is about to
                                         end this one */
    fflush(NULL);
    p->abort(p->self, EXIT_RUN_FAILED);
    abort();
}

/* Returns the instruction of `program` with match number `match`; 0: there is none. */
static Pc find_match(const Program *program, uint32_t match)
{
    for (Pc pc = 1; pc < program->code.n; pc++)
        if (program_instr(program, pc)->match == match) return pc;
    return 0;
}

static const char *process_word(int32_t pid)
{
    char c = status_process(pid);
    if (c == 0 || c == 'Z' || c == 'X') return "its process is dead";
    return c == 'T' || c == 't' ? "its process is stopped" : "its process is alive";
}

/* Reports where rank `r` is, and the instruction with number `match` that it should reach. */
static void tell_rank(const Ending *p, Rank r, uint32_t match, uint32_t step, Str *out)
{
    const StatusSlot *slot = &p->status->slots[r];
    const Program *program = plan_program(p->plan, r);
    Pc at = 0, want = match ? find_match(program, match) : 0;
    for (int s = 0; s < STREAM_COUNT; s++) {
        Pc unfinished = atomic_load(&slot->unfinished[s]);
        if (unfinished && (at == 0 || unfinished < at)) at = unfinished;
    }
    int32_t pid = atomic_load(&slot->pid);
    uint32_t its_step = atomic_load(&slot->step);
    if (pid == 0) {
        str_print(out, "\n  rank %u has not started", r);
        return;
    }
    str_print(out, "\n  rank %u (pid %d, %s) ", r, (int)pid, process_word(pid));
    uint32_t state = atomic_load(&slot->state);
    if (state == STATUS_preparing)
        str_print(out, "is preparing step %u on the host (memory, graphs, data)", its_step);
    else if (state != STATUS_stepping || at == 0 || at >= program->code.n)
        str_print(out, "is between steps, after step %u", its_step);
    else
        str_print(out, "is at step %u, %s", its_step, instr_text(p->plan, program, at, out->arena));
    bool behind = its_step < step || (its_step == step && at && want && at <= want);
    if (want && at && behind && at < program->code.n && want != at)
        str_print(out, "; the plan expects it to reach %s",
                  instr_text(p->plan, program, want, out->arena));
}

static bool is_member(const Ending *p, const Comm *c, Rank r)
{
    if (c->op == OP_send || c->op == OP_recv) return r == c->leader || r == c->peer;
    return mesh_group(&p->plan->mesh, r, c->axes) == c->leader;
}

static int turn_of(const Ending *p, const Comm *c, Rank r)
{
    int32_t pid = atomic_load(&p->status->slots[r].pid);
    char state = pid ? status_process(pid) : 0;
    if (state == 0 || strchr("ZXTt", state)) return 0;
    return c == NULL || is_member(p, c, r) ? 1 : 2;
}

void ending_timeout(const Ending *p, const Comm *c, Pc pc, double waited_s)
{
    Str s = str_in(p->arena);
    const Program *program = plan_program(p->plan, p->rank);
    if (pc == 0) {
        str_print(&s, "rank %u waited %.1f s for the other ranks", p->rank, waited_s);
    } else {
        str_print(&s, "step %u: rank %u waited %.1f s for %s", p->step, p->rank, waited_s,
                  instr_text(p->plan, program, pc, p->arena));
    }
    if (p->status == NULL) {
        str_add(&s, "; the positions of the other ranks are known only on one machine, or with "
                    "--record");
        ending_tell(p, "timeout", str_text(&s));
    }
    /* First list ranks whose processes have not started, are dead or are stopped, then the other
     * ranks of the group, then all others. */
    uint32_t told = 0;
    for (int turn = 0; turn < 3; turn++)
        for (Rank r = 0; r < p->n_ranks && told < MAX_TOLD; r++) {
            if (r == p->rank || turn_of(p, c, r) != turn) continue;
            tell_rank(p, r, c && is_member(p, c, r) ? c->match : 0, p->step, &s);
            told++;
        }
    ending_tell(p, "timeout", str_text(&s));
}
