/* Pipeline split: a stage number on each node, and the schedule. Layers go to stages in order, the
 * first stages take one more where they do not divide; what stands before the first block belongs
 * to the first stage, what stands after the last to the last. */
#include <assert.h>

#include "planner/passes/pass.h"
#include "planner/passes/schedule.h"

static uint32_t stage_of_block(uint32_t block, uint32_t n_blocks, uint32_t n_stages,
                               const PpOptions *o)
{
    uint32_t first = 0;
    for (uint32_t s = 0; s < n_stages; s++) {
        uint32_t n = o->n_split ? o->split[s] : n_blocks / n_stages + (s < n_blocks % n_stages);
        if (block < first + n) return s;
        first += n;
    }
    return n_stages - 1;
}

static void check_chunks(Diag *d, const PassConfig *pass)
{
    const PpOptions *o = &pass->pp;
    const ScheduleTraits t = schedule_traits(o->schedule);
    if (o->chunks >= t.least_chunks && o->chunks <= t.most_chunks) return;
    diag_error(d, FAULT_input, "pp-chunks", pass->loc,
               "%s has %s %u stage%s a rank, not chunks = %u", schedule_traits(o->schedule).name,
               t.least_chunks == t.most_chunks ? "exactly" : "at least", t.least_chunks,
               t.least_chunks == 1 ? "" : "s", o->chunks);
    diag_hint(d, "set chunks = %u, or leave it out", t.least_chunks);
}

static void check_microbatches(Diag *d, const PassConfig *pass, uint32_t p, uint32_t m)
{
    const PpOptions *o = &pass->pp;
    if (o->schedule == SCHEDULE_interleaved_1f1b && m % p != 0) {
        diag_error(d, FAULT_input, "pp-interleaved", pass->loc,
                   "interleaved_1f1b needs micro-batches (%u) that divide by pp = %u", m, p);
        diag_hint(d, "use %u or %u micro-batches; or schedule = \"1f1b\"", m < p ? p : m - m % p,
                  (m / p + 1) * p);
    }
    if (o->schedule == SCHEDULE_dualpipe_v && m < 2 * p) {
        diag_error(d, FAULT_input, "pp-microbatches", pass->loc,
                   "dualpipe_v fills its V from both ends: it needs at least 2 x pp = %u "
                   "micro-batches, there are %u",
                   2 * p, m);
        diag_hint(d, "use %u micro-batches, or schedule = \"zb_v\"", 2 * p);
    }
    if (m < p)
        diag_warning(d, "pp-bubble", pass->loc,
                     "%u micro-batches on %u stages: most ranks are idle most of the time", m, p);
}

static bool check(const Job *job, const PassConfig *pass, uint32_t n_blocks, uint32_t p)
{
    Diag *d = job->diag;
    const PpOptions *o = &pass->pp;
    uint32_t before = d->n_errors, stages = p * o->chunks, sum = 0;
    if (n_blocks < stages) {
        diag_error(d, FAULT_input, "pp-layers", pass->loc,
                   "%u blocks cannot fill %u stages (pp = %u x %u chunks)", n_blocks, stages, p,
                   o->chunks);
        diag_hint(d, "use at most %u stages", n_blocks);
    }
    for (uint32_t s = 0; s < o->n_split; s++) sum += o->split[s];
    if (o->n_split && (o->n_split != stages || sum != n_blocks)) {
        diag_error(d, FAULT_input, "pp-split", pass->loc,
                   "split names %u stages and %u blocks; there are %u stages and %u blocks",
                   o->n_split, sum, stages, n_blocks);
        diag_hint(d, "leave split out for an even one");
    }
    check_chunks(d, pass);
    check_microbatches(d, pass, p, job->plan->step.n_microbatches);
    return d->n_errors == before;
}

static uint32_t peak_of(const Schedule *s, uint32_t *rank)
{
    uint32_t most = 0;
    for (uint32_t r = 0; r < s->n_ranks; r++)
        if (schedule_peak(s, r) > most) most = schedule_peak(s, *rank = r);
    return most;
}

/* Makes the schedule and runs it, under its cap if it has one: to prove that it ends. */
static bool make_schedule(Job *job, const PassConfig *pass, uint32_t p)
{
    const PpOptions *o = &pass->pp;
    Schedule *s = job->schedule;
    Diag *d = job->diag;
    uint32_t m = job->plan->step.n_microbatches, rank = 0;
    if (o->schedule == SCHEDULE_greedy_v && o->cap) {
        if (!schedule_greedy(s, p, o->cap, m, job->arena)) {
            uint32_t least = schedule_greedy_least(p, m, job->scratch);
            diag_error(d, FAULT_input, "pp-cap", pass->loc,
                       "greedy_v stands still with cap = %u activations of stages in flight on "
                       "each of %u ranks",
                       o->cap, p);
            diag_hint(d, "the smallest cap that works is %u", least);
            return false;
        }
    } else {
        schedule_make(s, o->schedule, p, o->chunks, m, job->arena);
    }
    ScheduleLocs locs = {.loc = pass->loc};
    if (!schedule_check(s, &locs, job->arena, d)) return false;
    if (!o->cap || schedule_runs_under(s, o->cap, job->scratch)) return true;
    uint32_t peak = peak_of(s, &rank);
    diag_error(d, FAULT_input, "pp-cap", pass->loc,
               "%s has %u activations of stages in flight on rank %u, more than cap = %u",
               schedule_traits(o->schedule).name, peak, rank, o->cap);
    diag_hint(d, "the smallest cap that works is %u", peak);
    return false;
}

static void place_nodes(Job *job, uint32_t n_stages, uint32_t n_blocks, const PpOptions *o)
{
    Graph *g = &job->plan->graph;
    uint32_t stage = 0;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        Node *n = &g->nodes.at[id];
        if (n->layer) stage = stage_of_block(n->layer - 1, n_blocks, n_stages, o);
        n->stage = stage;
    }
}

/* Parameters belong to the rank that reads them; activations cross to the next stage only. */
static bool place_tensors(Job *job, Loc loc)
{
    Graph *g = &job->plan->graph;
    const Schedule *s = job->schedule;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        for (uint32_t i = 0; i < n->n_in; i++) {
            Tensor *t = &g->tensors.at[n->in[i]];
            if (t->role == ROLE_param) {
                bool first = job->stage_of_param[n->in[i]] == UINT32_MAX;
                if (first)
                    job->stage_of_param[n->in[i]] = n->stage;
                else if (s->rank_of[job->stage_of_param[n->in[i]]] != s->rank_of[n->stage]) {
                    diag_error(
                        job->diag, FAULT_input, "tied-across-stages", t->loc,
                        "%s is used by stage %u and by stage %u: its two copies would drift apart",
                        t->name, job->stage_of_param[n->in[i]], n->stage);
                    diag_hint(job->diag, "untie the head from the embedding, or use pp = 1");
                    return false;
                }
            } else if (t->role == ROLE_activation &&
                       n->stage > g->nodes.at[t->producer].stage + 1) {
                return diag_error(job->diag, FAULT_input, "pp-skip", loc,
                                  "%s is made by stage %u and read by stage %u: it would have to "
                                  "pass through the stages between",
                                  t->name, g->nodes.at[t->producer].stage, n->stage);
            }
        }
    }
    return true;
}

bool pass_pp(Job *job)
{
    const PassConfig *pass = pass_config(job, PASS_pp);
    Graph *g = &job->plan->graph;
    uint32_t p = job->config->axis_size[AXIS_pp], n_blocks = 0;
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (g->nodes.at[id].layer > n_blocks) n_blocks = g->nodes.at[id].layer;
    static const PassConfig alone = {.pp = {.schedule = SCHEDULE_1f1b, .chunks = 1}};
    bool piped = pass && p > 1;
    if (piped && !check(job, pass, n_blocks, p)) return false;
    job->schedule = arena_alloc(job->arena, sizeof *job->schedule);
    job->stage_of_param = arena_array(job->arena, g->tensors.n, sizeof *job->stage_of_param);
    for (TensorId t = 0; t < g->tensors.n; t++) job->stage_of_param[t] = piped ? UINT32_MAX : 0;
    if (!make_schedule(job, piped ? pass : &alone, piped ? p : 1)) return false;
    if (!piped) return true;
    place_nodes(job, job->schedule->n_stages, n_blocks, &pass->pp);
    return place_tensors(job, pass->loc);
}
