/* pp{}: assigns each node to a pipeline stage, and builds the schedule. Blocks are assigned to
 * stages in order; if they do not divide evenly, the first stages get one more. Nodes before the
 * first block belong to the first stage, nodes behind the last block to the last stage. With the
 * option `split`, these two stages may have no block. */
#include <assert.h>

#include "planner/passes/pass.h"
#include "planner/passes/schedule/schedule.h"

/* Returns how many stages get blocks when blocks are divided evenly, and sets *from to the
 * first. */
static uint32_t filled_stages(uint32_t n_blocks, uint32_t n_stages, const PpOptions *o,
                              uint32_t *from)
{
    const uint32_t empty = (uint32_t)o->empty_first + (uint32_t)o->empty_last;
    const bool fits = n_stages > empty && n_blocks >= n_stages - empty;
    *from = fits && o->empty_first ? 1 : 0;
    return fits ? n_stages - empty : n_stages;
}

static uint32_t stage_of_block(uint32_t block, uint32_t n_blocks, uint32_t n_stages,
                               const PpOptions *o)
{
    uint32_t first = 0, from;
    const uint32_t filled = filled_stages(n_blocks, n_stages, o, &from);
    for (uint32_t s = o->n_split ? 0 : from; s < n_stages; s++) {
        uint32_t n = o->n_split ? o->split[s] : n_blocks / filled + (s - from < n_blocks % filled);
        if (block < first + n) return s;
        first += n;
    }
    return n_stages - 1;
}

/* Adds a hint for a model with fewer blocks than stages: fewer ranks, or 1f1b. */
static void hint_fewer_ranks(Diag *d, uint32_t n_blocks, uint32_t p, const ScheduleTraits *t)
{
    uint32_t most = n_blocks / t->least_chunks;
    if (most >= 2)
        diag_hint(
            d, "pp may be at most %u with %u stages on each rank; or use \"1f1b\", which has one",
            most, t->least_chunks);
    else
        diag_hint(d, "use schedule = \"1f1b\", which has one stage on each rank, with pp = %u",
                  p < n_blocks ? p : n_blocks);
}

static void check_chunks(Diag *d, const PassConfig *pass, uint32_t n_blocks, uint32_t p)
{
    const PpOptions *o = &pass->pp;
    const ScheduleTraits t = schedule_traits(o->schedule);
    if (o->is_own || (o->chunks >= t.least_chunks && o->chunks <= t.most_chunks)) return;
    diag_error(d, FAULT_input, "pp-chunks", pass->loc,
               "%s has %s %u stage%s on each rank, but chunks = %u",
               schedule_traits(o->schedule).name,
               t.least_chunks == t.most_chunks ? "exactly" : "at least", t.least_chunks,
               t.least_chunks == 1 ? "" : "s", o->chunks);
    if (n_blocks < p * t.least_chunks)
        hint_fewer_ranks(d, n_blocks, p, &t);
    else if (o->layers_per_stage)
        diag_hint(d, "set layers_per_stage = %u",
                  (n_blocks + p * t.least_chunks - 1) / (p * t.least_chunks));
    else
        diag_hint(d, "set chunks = %u, or leave out chunks", t.least_chunks);
}

static void check_microbatches(Diag *d, const PassConfig *pass, uint32_t p, uint32_t m)
{
    const PpOptions *o = &pass->pp;
    if (!o->is_own && o->schedule == SCHEDULE_interleaved_1f1b && m % p != 0) {
        diag_error(d, FAULT_input, "pp-interleaved", pass->loc,
                   "interleaved_1f1b: %u micro-batches are not a multiple of pp = %u", m, p);
        diag_hint(d, "use %s micro-batches, or schedule = \"1f1b\"", str_multiples(d->arena, m, p));
    }
    if (!o->is_own && o->schedule == SCHEDULE_dualpipe_v && m < 2 * p) {
        diag_error(d, FAULT_input, "pp-microbatches", pass->loc,
                   "dualpipe_v needs at least 2 x pp = %u micro-batches, but the plan has %u",
                   2 * p, m);
        diag_hint(d, "use %u micro-batches, or schedule = \"zb_v\"", 2 * p);
    }
}

/* Refuses a `placement` that is not the one of a built-in schedule. */
static void check_placement(Diag *d, const PassConfig *pass)
{
    const PpOptions *o = &pass->pp;
    const ScheduleTraits t = schedule_traits(o->schedule);
    static const char *const names[] = {"loop", "v"};
    if (o->is_own || !o->placement || o->placement == 1 + (uint32_t)t.placement) return;
    diag_error(d, FAULT_input, "schedule-placement", pass->loc,
               "the schedule %s has placement = \"%s\", but pp sets placement = \"%s\"", t.name,
               names[t.placement], names[o->placement - 1]);
    diag_hint(d, "leave out placement");
}

static bool check(const Job *job, const PassConfig *pass, uint32_t n_blocks, uint32_t p)
{
    Diag *d = job->diag;
    const PpOptions *o = &pass->pp;
    uint32_t before = d->n_errors, stages = p * o->chunks, sum = 0, from;
    if (!o->n_split && n_blocks < filled_stages(n_blocks, stages, o, &from)) {
        diag_error(d, FAULT_input, "pp-layers", pass->loc,
                   "%u blocks are too few for %u stages (pp = %u x %u chunks)", n_blocks, stages, p,
                   o->chunks);
        const ScheduleTraits t = schedule_traits(o->schedule);
        if (!o->is_own && t.least_chunks > 1 && n_blocks < p * t.least_chunks)
            hint_fewer_ranks(d, n_blocks, p, &t);
        else
            diag_hint(d, "use at most %u stages", n_blocks);
    }
    for (uint32_t s = 0; s < o->n_split; s++) sum += o->split[s];
    if (o->n_split && (o->n_split != stages || sum != n_blocks)) {
        diag_error(d, FAULT_input, "pp-split", pass->loc,
                   "split lists %u stages with %u blocks, but the plan has %u stages and the model "
                   "has %u blocks",
                   o->n_split, sum, stages, n_blocks);
        diag_hint(d, "leave out split to get equal stages");
    }
    for (uint32_t s = 1; s + 1 < o->n_split; s++) {
        if (o->split[s] > 0) continue;
        diag_error(
            d, FAULT_input, "pp-split", pass->loc,
            "split gives stage %u no block, which is allowed only for the first and the last stage",
            s);
        diag_hint(d, "give it a block of a neighbouring stage");
    }
    check_chunks(d, pass, n_blocks, p);
    check_microbatches(d, pass, p, job->plan->step.n_microbatches);
    check_placement(d, pass);
    return d->n_errors == before;
}

static bool make_greedy(Schedule *s, const PassConfig *pass, uint32_t p, uint32_t m, Arena *arena,
                        Diag *d)
{
    uint32_t cap = pass->pp.cap ? pass->pp.cap : 2 * p;
    if (schedule_greedy(s, p, cap, m, arena)) return true;
    diag_error(d, FAULT_input, "pp-cap", pass->loc,
               "greedy_v cannot finish with cap = %u, because its %u ranks must hold the "
               "activations of more stages at once",
               cap, p);
    diag_hint(d, "use cap = %u or more", schedule_greedy_least(p, m, arena));
    return false;
}

/* Builds the schedule for p ranks and m micro-batches. Simulates it, with its limit on activations
 * if there is one, to prove that it ends. */
static bool make_schedule(Schedule *s, const PassConfig *pass, uint32_t p, uint32_t m, Arena *arena,
                          Diag *d)
{
    const PpOptions *o = &pass->pp;
    ScheduleLocs locs = {.loc = pass->loc, .own = o->is_own ? &o->own : NULL};
    if (o->is_own) {
        if (!schedule_own(s, o, p, m, &locs, arena, d)) return false;
    } else if (o->schedule == SCHEDULE_greedy_v) {
        if (!make_greedy(s, pass, p, m, arena, d)) return false;
    } else {
        schedule_make(s, o->schedule, p, o->chunks, m, arena);
    }
    if (!schedule_check(s, &locs, arena, d)) return false;
    if (!o->cap || schedule_runs_under(s, o->cap, arena)) return true;
    uint32_t rank = 0, peak = schedule_most(s, &rank);
    diag_error(
        d, FAULT_input, "pp-cap", pass->loc,
        "with %s, a rank must hold the activations of %u stages at once (rank %u), but cap = %u",
        o->is_own ? "the schedule" : schedule_traits(o->schedule).name, peak, rank, o->cap);
    diag_hint(d, "use cap = %u or more", peak);
    return false;
}

/* Returns the fraction of a step in which ranks wait, if the forward action, the input gradient and
 * the weight gradient of a stage take the same time. */
static double idle_of(const Schedule *s)
{
    double work = 3.0 * s->n_microbatches * s->n_stages / s->n_ranks;
    return 1 - work / s->makespan;
}

static void warn_of_bubble(const Schedule *s, Loc loc, Diag *d)
{
    if (s->n_microbatches >= s->n_stages) return;
    diag_warning(
        d, "pp-bubble", loc,
        "%u micro-batches are few for %u stages: each rank is idle for about %.0f %% of the step",
        s->n_microbatches, s->n_stages, 100 * idle_of(s));
    diag_hint(d, "use at least %u micro-batches", s->n_stages);
}

static uint32_t count_blocks(const Graph *g)
{
    uint32_t n = 0;
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (g->nodes.at[id].layer > n) n = g->nodes.at[id].layer;
    return n;
}

/* Computes the number of stages of each rank from the option layers_per_stage. */
static bool find_chunks(PassConfig *pass, uint32_t n_blocks, uint32_t p, Diag *d)
{
    PpOptions *o = &pass->pp;
    if (!o->layers_per_stage) return true;
    uint32_t stages = (n_blocks + o->layers_per_stage - 1) / o->layers_per_stage;
    uint32_t down = stages / p * p, up = stages % p ? down + p : down;
    uint32_t rounded = o->round == 1 ? up : o->round == 2 ? down : stages;
    if (rounded == 0 || rounded % p != 0) {
        diag_error(d, FAULT_input, "pp-layers-per-stage", pass->loc,
                   "%u blocks, %u to a stage, make %u stages, which is not a multiple of pp = %u",
                   n_blocks, o->layers_per_stage, stages, p);
        diag_hint(d, "set round = \"up\" for %u stages%s", up,
                  down ? arena_print(d->arena, ", round = \"down\" %u", down) : "");
        return false;
    }
    o->chunks = rounded / p;
    return true;
}

bool passes_pipeline(const Config *config, const Plan *plan, Arena *arena, PipelineFacts *facts)
{
    uint32_t p = pass_ranks(config, PASS_pp), n_microbatches = plan->step.n_microbatches;
    for (uint32_t i = 0; i < config->n_passes && p > 1; i++) {
        Schedule s;
        Diag ignored = diag_in(arena);
        if (config->passes[i].name != PASS_pp) continue;
        PassConfig pass = config->passes[i];
        if (!find_chunks(&pass, count_blocks(&plan->graph), p, &ignored) ||
            !make_schedule(&s, &pass, p, n_microbatches, arena, &ignored))
            return false;
        *facts = (PipelineFacts){.n_stages = s.n_stages, .idle = idle_of(&s)};
        facts->peak = schedule_most(&s, &facts->rank);
        return true;
    }
    return false;
}

/* Sets Node.stage. If a later block calls a module of an earlier block, its nodes run in the later
 * block's stage, because activations are only sent to later stages. Two pipeline ranks then store
 * its weight. */
static void place_nodes(Job *job, uint32_t n_stages, uint32_t n_blocks, const PpOptions *o)
{
    Graph *g = &job->plan->graph;
    uint32_t stage = 0;
    NodeId last = 0; /* the last node inside a block */
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (g->nodes.at[id].layer) last = id;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        Node *n = &g->nodes.at[id];
        uint32_t own = n->layer    ? stage_of_block(n->layer - 1, n_blocks, n_stages, o)
                       : id > last ? n_stages - 1
                                   : 0;
        n->stage = stage = own > stage ? own : stage;
    }
}

/* Notes that stage `stage` reads a parameter, so that its rank stores the parameter. At most two
 * ranks may share one; they sum their gradients. Reports an error otherwise. */
static bool place_param(Job *job, TensorId param, uint32_t stage, const PpOptions *o)
{
    const Tensor *t = &job->plan->graph.tensors.at[param];
    const uint32_t *rank_of = job->pipe.schedule->rank_of;
    uint32_t *first = &job->pipe.stage_of_param[param], *second = &job->pipe.tied_stage[param];
    if (*first == UINT32_MAX) *first = stage;
    if (rank_of[*first] == rank_of[stage]) return true;
    if (o->tied == 1) {
        diag_error(job->diag, FAULT_input, "tied-across-stages", t->loc,
                   "%s is used by stages %u and %u, which are on different ranks", t->name, *first,
                   stage);
        diag_hint(job->diag, "leave out tied = \"refuse\", use a schedule whose stages form a V, "
                             "or do not share the parameter");
        return false;
    }
    if (*second == UINT32_MAX) *second = stage;
    if (rank_of[*second] == rank_of[stage]) return true;
    diag_error(job->diag, FAULT_input, "tied-many-stages", t->loc,
               "%s is used by stages %u, %u and %u on three ranks, but at most two ranks can share "
               "a parameter",
               t->name, *first, *second, stage);
    diag_hint(job->diag, "use fewer stages, or do not share the parameter");
    return false;
}

/* Checks that the spectral norm of a weight is computed by the stage that uses the weight: only one
 * stage has the norm's state. Reports an error otherwise. */
static bool place_norm(Job *job, const Node *n, const Tensor *t)
{
    const Node *made = &job->plan->graph.nodes.at[t->producer];
    if (!(op_info(made->op)->flags & OP_ONCE) || made->stage == n->stage) return true;
    diag_error(job->diag, FAULT_input, "spectral-norm", n->loc,
               "%s has a spectral norm and is used by stages %u and %u, but only one stage can "
               "update the norm",
               job->plan->graph.modules.at[t->module].path, made->stage, n->stage);
    diag_hint(job->diag, "leave out spectral_norm, or do not share the weight");
    return false;
}

/* Assigns every parameter to the ranks that read it, and checks that an activation is read only by
 * its own stage and the next. */
static bool place_tensors(Job *job, const PpOptions *o, Loc loc)
{
    Graph *g = &job->plan->graph;
    for (NodeId id = 1; id < g->nodes.n; id++) {
        const Node *n = &g->nodes.at[id];
        for (uint32_t i = 0; i < n->n_in; i++) {
            Tensor *t = &g->tensors.at[n->in[i]];
            if (t->role == ROLE_param) {
                if (!place_param(job, n->in[i], n->stage, o)) return false;
            } else if (t->role == ROLE_activation &&
                       n->stage > g->nodes.at[t->producer].stage + 1) {
                return diag_error(job->diag, FAULT_input, "pp-skip", loc,
                                  "%s is made by stage %u and read by stage %u, but only "
                                  "neighbouring stages exchange activations",
                                  t->name, g->nodes.at[t->producer].stage, n->stage);
            }
            if (!place_norm(job, n, t)) return false;
        }
    }
    return true;
}

/* Assigns all parameters to one stage: without pp, or after an error. */
static void one_stage(Job *job, uint32_t stage)
{
    const Graph *g = &job->plan->graph;
    for (TensorId t = 0; t < g->tensors.n; t++) {
        job->pipe.stage_of_param[t] = stage;
        job->pipe.tied_stage[t] = UINT32_MAX;
    }
}

static bool cut(Job *job, const PassConfig *named, uint32_t p, uint32_t n_blocks)
{
    PassConfig pass = *named;
    if (!find_chunks(&pass, n_blocks, p, job->diag) || !check(job, &pass, n_blocks, p))
        return false;
    if (!make_schedule(job->pipe.schedule, &pass, p, job->plan->step.n_microbatches, job->arena,
                       job->diag))
        return false;
    warn_of_bubble(job->pipe.schedule, pass.loc, job->diag);
    place_nodes(job, job->pipe.schedule->n_stages, n_blocks, &pass.pp);
    return place_tensors(job, &pass.pp, pass.loc);
}

static bool pass_pp(Job *job)
{
    const PassConfig *named = pass_config(job, PASS_pp);
    Graph *g = &job->plan->graph;
    uint32_t p = pass_ranks(job->config, PASS_pp);
    bool piped = named && p > 1;
    job->pipe.schedule = arena_alloc(job->arena, sizeof *job->pipe.schedule);
    job->pipe.stage_of_param =
        arena_array(job->arena, g->tensors.n, sizeof *job->pipe.stage_of_param);
    job->pipe.tied_stage = arena_array(job->arena, g->tensors.n, sizeof *job->pipe.tied_stage);
    one_stage(job, piped ? UINT32_MAX : 0);
    if (piped && cut(job, named, p, count_blocks(g))) return true;
    one_stage(job, 0); /* also after errors, so that later passes can report their own */
    const PassConfig whole = {.pp = {.schedule = SCHEDULE_1f1b, .chunks = 1}};
    return make_schedule(job->pipe.schedule, &whole, 1, job->plan->step.n_microbatches, job->arena,
                         job->diag) &&
           !piped;
}

static const char *const schedules[] = {
#define X(name, least, most, placement) #name,
    SCHEDULES(X)
#undef X
        NULL};

static const PassOption options[] = {
    OPTION_AS("pp.schedule", word, pp.schedule, 0, 0, schedules, SCHEDULE_1f1b, "",
              "The order of forward and backward passes: the name of a schedule, or a function (p, "
              "m, chunks) that returns the actions of each rank."),
    OPTION_OPEN(u32, pp.chunks, 1, 64, NULL, "the fewest that the schedule allows", "stages",
                "The number of pipeline stages on each rank. Default: the fewest that the "
                "schedule allows."),
    OPTION_OPEN(u32, pp.cap, 1, 1 << 20, NULL, "no bound; greedy_v: 2 x pp", "activations",
                "The largest number of stages whose activations a rank may hold at once. Default: "
                "no limit, but 2 x pp for greedy_v."),
    OPTION_OPEN(text, pp.csv, 0, 0, NULL, "none", "",
                "A file with a schedule in the format of torch.distributed.pipelining."),
    OPTION_WORD(pp.placement, OPTION_WORDS("any", "loop", "v"), 0, "",
                "The placement of stages that your own schedule must have. loop: stage i is on "
                "rank i modulo pp. v: the stages go down the ranks and up again."),
    OPTION_OPEN(u32, pp.layers_per_stage, 1, 65536, NULL, "the layers are spread over the stages",
                "blocks", "The number of blocks in each stage. It determines chunks."),
    OPTION_WORD(
        pp.round, OPTION_WORDS("none", "up", "down"), 0, "",
        "With layers_per_stage: rounds the number of stages up or down to a multiple of pp."),
    OPTION_WORD(pp.tied, OPTION_WORDS("sum", "refuse"), 0, "",
                "How to treat a parameter that two pipeline ranks hold. sum: its gradients are "
                "summed. refuse: the plan is refused."),
    OPTION_LIST("pp.split", split, pp.split, offsetof(PassConfig, pp.has_split), NULL,
                "as even as possible", "blocks",
                "The number of blocks in each stage, as in `{ 9, 8, 8, 7 }`. Only the first and "
                "the last stage may have 0."),
    OPTION_END,
};

#define WHOLE_MODEL                                                                                \
    "it would be applied to the whole model, but a rank holds only the blocks of its stages"
static const PassEdge before[] = {
    {PASS_tp, "tp would split the embedding and the head together, but they may be on ranks that "
              "do not communicate"},
    {PASS_ac, "a recomputed region could span two stages, and its inputs would be on another rank"},
    {PASS_fsdp2, WHOLE_MODEL},
    {PASS_ddp, WHOLE_MODEL},
    {PASS_zero, WHOLE_MODEL},
    {PASS_compile, WHOLE_MODEL},
    {PASS_ep, WHOLE_MODEL},
    {PASS_cp, WHOLE_MODEL},
    {PASS_float8, WHOLE_MODEL},
    {0, NULL},
};

static void print(const PassConfig *pass, Str *out)
{
    const PpOptions *o = &pass->pp;
    str_print(out, "pp(%s",
              o->csv      ? o->csv
              : o->is_own ? "own schedule"
                          : schedule_traits(o->schedule).name);
    if (o->layers_per_stage)
        str_print(out, ", %u layers a stage", o->layers_per_stage);
    else if (o->chunks > 1)
        str_print(out, ", %u chunks", o->chunks);
    if (o->cap) str_print(out, ", activations of at most %u stages", o->cap);
    str_add(out, ")");
}

/* For --verify: shrinks the options, but not those of a schedule from a file, whose ranks and
 * micro-batches are fixed. */
static void shrink(PassConfig *pass, Shrink *s)
{
    PpOptions *o = &pass->pp;
    o->empty_first = o->n_split > 0 && o->split[0] == 0;
    o->empty_last = o->n_split > 0 && o->split[o->n_split - 1] == 0;
    o->n_split = 0;
    if (o->csv) {
        const AxisName stages = axes_first(axes_with(AXIS_STAGES));
        s->config->axis_size[stages] = s->axis_was[stages];
        s->stays[stages] = s->keeps_batch = true;
        return;
    }
    s->fills_pipe = true;
    if (o->chunks > 2) o->chunks = 2;
    o->layers_per_stage = 0;
    o->cap = 0; /* the user's cap fits only the original numbers of ranks and micro-batches */
}

const PassSpec pass_spec_pp = {
    .name = "pp",
    .doc = {"pp", "", "Splits the model into pipeline stages on the ranks of mesh.pp."},
    .options = options,
    .short_key = "schedule",
    .before = before,
    .always = true,
    .reports = true,
    .run = pass_pp,
    .proposal = "parallel.pp=1f1b",
    .trials = OPTION_WORDS("parallel.pp.schedule=zb_h1", "parallel.pp.schedule=zb_v"),
    .print = print,
    .shrink = shrink,
};
