/* Whose run is predicted: Tandem's own executor, the plan's runtime, or, where the plan names none,
 * each framework that could run it. */
#include <inttypes.h>
#include <string.h>

#include "cli/cli.h"
#include "sim/sim.h"

typedef struct Profile {
    const char *name;
    PassName pass;
    uint32_t lacks; /* axes that the framework does not have: 1 << AxisName */
} Profile;
static const Profile profiles[] = {
#define PROFILE(name, pass, lacks) {name, pass, lacks},
#include "cli/whose.def"
#undef PROFILE
};

/* One framework's answer. */
typedef struct Answer {
    const char *name;
    Held held;
    Ps step_ps; /* 0: not asked for */
} Answer;

static bool could_run(const Config *c, const Profile *profile)
{
    for (int axis = 0; axis < AXIS_NAMES; axis++)
        if (profile->lacks >> axis & 1 && c->axis_size[axis] > 1) return false;
    for (uint32_t i = 0; i < c->n_passes; i++)
        if (c->passes[i].name == profile->pass) return true;
    return false;
}

static Ps step_of(const PlanFile *file, const Runtime *runtime, Arena *arena)
{
    Diag ignored = diag_in(arena);
    SimReport report;
    const SimOptions how = {.steps = 1, .runtime = runtime};
    if (!session_simulate(file, &file->config.cluster, &how, arena, &report, &ignored)) return 0;
    return report.step_ps;
}

/* The plan again, under another profile: a profile sets defaults of passes too. */
static bool answer_of(Cli *cli, const PlanFile *file, const char *name, bool timed, Answer *out)
{
    Arena *arena = cli->arena;
    Diag ignored = diag_in(arena);
    Config config;
    Graph graph;
    PlanOptions o = plan_file_options(cli, NULL);
    const char **set = arena_array(arena, o.n_set + 1, sizeof *set);
    for (uint32_t i = 0; i < o.n_set; i++) set[i] = o.set[i];
    set[o.n_set] = arena_print(arena, "runtime=%s", name);
    o.set = set;
    o.n_set++;
    o.unproven = true;
    if (!session_read(file->path, &o, arena, &config, &graph, &ignored)) return false;
    const PlanFile *other = session_compile(&config, &graph, &o, arena, &ignored);
    if (other == NULL) return false;
    *out = (Answer){.name = name,
                    .held = sim_held(other->plan, &config.cluster, &config.runtime),
                    .step_ps = timed ? step_of(other, &config.runtime, arena) : 0};
    return true;
}

static void print_answer(Cli *cli, const Answer *a)
{
    Arena *arena = cli->arena;
    str_print(&cli->out, "under       %s: %s, %s", a->name, str_bytes(arena, a->held.process_bytes),
              a->held.fits ? paint(cli, PAINT_good, "fits")
                           : paint(cli, PAINT_bad, "DOES NOT FIT"));
    if (a->step_ps > 0) str_print(&cli->out, ", step %s", format_time(arena, a->step_ps));
    str_add(&cli->out, "\n");
}

static json_t *answer_json(const Answer *a)
{
    json_t *root = json_object();
    json_text(root, "runtime", a->name);
    json_count(root, "allocated_bytes", a->held.allocated_bytes);
    json_count(root, "reserved_bytes", a->held.reserved_bytes);
    json_count(root, "process_bytes", a->held.process_bytes);
    json_put(root, "fits", json_boolean(a->held.fits));
    if (a->step_ps > 0) json_count(root, "step_ps", (uint64_t)a->step_ps);
    return root;
}

typedef LIST(Answer) Answers;

/* With a runtime: it alone, and for `sim` Tandem's own executor. Else all that could run the plan.
 */
static Answers answers(Cli *cli, const PlanFile *file, bool timed)
{
    Answers all = {NULL, 0, 0};
    const Runtime *named = &file->config.runtime;
    if (named->name != NULL) {
        const Held held = sim_held(file->plan, &file->config.cluster, named);
        list_push(cli->arena, &all, ((Answer){named->name, held, 0}));
        return all;
    }
    for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++) {
        Answer a;
        if (could_run(&file->config, &profiles[i]) &&
            answer_of(cli, file, profiles[i].name, timed, &a))
            list_push(cli->arena, &all, a);
    }
    return all;
}

void plan_file_whose(Cli *cli, const PlanFile *file, bool timed)
{
    if (!file->has_cluster || file->is_text || file->config.cluster.is_local) return;
    const Answers all = answers(cli, file, timed);
    const Runtime own = {.name = NULL};
    const Ps step =
        timed && file->config.runtime.name != NULL ? step_of(file, &own, cli->arena) : 0;
    if (cli->json != NULL) {
        json_t *list = json_array();
        for (uint32_t i = 0; i < all.n; i++) json_array_append_new(list, answer_json(&all.at[i]));
        json_put(cli->json, "frameworks", list);
        if (step > 0) json_count(cli->json, "own_step_ps", (uint64_t)step);
        return;
    }
    if (step > 0)
        str_print(&cli->out, "under       Tandem's own executor: step %s\n",
                  format_time(cli->arena, step));
    for (uint32_t i = 0; i < all.n; i++) print_answer(cli, &all.at[i]);
}
