/* planner/ir/text/fields.c states for every field of a plan's text whether it is proven, free, or a
 * label. This test changes single fields of the plans of the corpus:
 *   - A change of a proven field must be refused by the seals of the text, and the error must name
 *     the field. Without seals, the proofs must refuse it, unless only reports read the field.
 *   - A change of a free field may be accepted.
 *   - A change of a label must alter neither results nor prediction.
 * If a change of a proven or free field is accepted, the results must equal those of one rank. No
 * change may end the executor.
 *
 * Fields of records of the same sort form a class: a field of all instructions of one op, of
 * buffers of one category, of tensors of one role, and so on. Most plans have the same classes. So
 * a class is always tried in the first plan that has it, and in the i-th such plan with probability
 * 1 / i. By default the test visits a sample of the plans. TANDEM_FIELDS=all visits all plans.
 * TANDEM_PART=2/8 visits the second of eight parts of the plans, and prints its progress.
 * TANDEM_FIELDS_SEED chooses other changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "exec/exec.h"
#include "planner/base/rng.h"
#include "planner/front/front.h"
#include "planner/ir/text/private.h"
#include "planner/verify/verify.h"
#include "sim/sim.h"
#include "tests/support/corpus/corpus.h"
#include "tests/support/fields/places.h"

#define TOLERANCE 1e-10

/* What the test counts for a class of fields. */
typedef struct Class {
    uint32_t n_plans, n_tries; /* plans that have the class, and changes that were tried */
    /* in the present plan: how many places have the class, and which of them is changed */
    uint32_t n_here, chosen;
} Class;

#ifdef __SANITIZE_ADDRESS__
enum { EVERY = 400 }; /* the sanitizer makes tests slower */
#else
enum { EVERY = 120 };
#endif

typedef struct Tally {
    uint64_t seed;
    uint32_t every;       /* one plan in `every` is visited */
    uint32_t part, parts; /* tries part `part` of `parts` of these plans */
    uint32_t n_seen, n_plans, n_broken;
    /* changes that the proofs refused, and changes that they accepted */
    uint32_t n[TRUST_COUNT][2];
    uint32_t accepted[RECORD_COUNT][MOST_FIELDS];
    /* changes that were accepted although results changed */
    uint32_t differ[RECORD_COUNT][MOST_FIELDS];
    Class class_[RECORD_COUNT][MOST_FIELDS][PLACE_SORTS];
} Tally;

static const char *trust_name(TextTrust trust)
{
#define X(name, meaning) #name,
    static const char *const names[] = {TRUSTS(X)};
#undef X
    return names[trust];
}

static bool exec_differs(const Tiny *t, const Plan *mutant)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Tiny one = tiny_one_rank(t);
    const Plan *reference = tiny_plan(&one, true, arena, &d);
    const DataSource *data = data_synthetic(7, t->vocab, 0.1, arena);
    BackendOptions options = {.order_seed = 0, .poison = true};
    VerifyResult result = {.n_tensors = 0};
    bool differs = !exec_verify(mutant, reference, data, &options, TOLERANCE, arena, &result, &d);
    arena_free(arena);
    return differs;
}

enum { AGREES, DIFFERS, CRASHES };

/* Runs the plan in another process, because a wrong plan may end the process. */
static int exec_ends(const Tiny *t, const Plan *mutant)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(exec_differs(t, mutant) ? DIFFERS : AGREES);
    int status = 0;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : CRASHES;
}

/* The simulator's numbers on eight H100: the time of a step, and each category of memory. */
typedef struct Predicted {
    bool works;
    Ps step_ps;
    uint64_t bytes[CATEGORY_COUNT];
} Predicted;

static Predicted predict(const Plan *plan, const Cluster *cluster)
{
    Predicted p;
    memset(&p, 0, sizeof p);
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    SimReport report;
    SimOptions options = {.steps = 1};
    p.works = sim_run(plan, cluster, &options, arena, &report, &d);
    if (p.works) {
        p.step_ps = report.step_ps;
        for (uint32_t i = 0; i < report.memory_rows.n; i++)
            p.bytes[report.memory_rows.at[i].category] += report.memory_rows.at[i].bytes;
    }
    arena_free(arena);
    return p;
}

static const char *line_of(const char *text, const char *at, Arena *arena)
{
    const char *begin = at;
    while (begin > text && begin[-1] != '\n') begin--;
    return arena_copy(arena, begin, strcspn(begin, "\n"));
}

/* A plan of the corpus, and its prediction before any change. */
typedef struct Subject {
    const Tiny *tiny;
    const char *text, *seals; /* the text without its seals; its seals */
    const Cluster *cluster;
    Predicted predicted;
} Subject;

/* Returns NULL if the accepted change has only effects that its class allows; otherwise names the
 * other effect. `ends` says how the executor ended. */
static const char *broken(const Subject *s, TextTrust trust, const Plan *changed, int ends)
{
    if (trust == TRUST_proven) return "is accepted";
    if (ends == CRASHES) return "ends the executor";
    if (trust == TRUST_given || trust == TRUST_by_op) return NULL;
    if (ends == DIFFERS) return "gives other results";
    if (trust != TRUST_label) return NULL;
    Predicted now = predict(changed, s->cluster);
    return memcmp(&now, &s->predicted, sizeof now) == 0 ? NULL : "gives another prediction";
}

/* Returns NULL if the seals refuse the text, and the error names the field and its line. */
static const char *unsealed(const Subject *s, const TextField *field, const Place *p,
                            const char *changed, Arena *arena)
{
    if (!text_has_seal(field)) return NULL;
    Diag d = diag_in(arena);
    const char *text = arena_print(arena, "%s%s", changed, s->seals);
    const char *name =
        arena_print(arena, "%s.%s", text_record(p->kind)->word, text_field_name(field));
    Diag seals = diag_in(arena);
    if (text_parse_sealed("changed", text, strlen(text), arena, &d, &seals) == NULL) return NULL;
    if (seals.items.n == 0) return "is not refused by its seal";
    uint32_t line = 1;
    for (const char *at = s->text; at < p->at; at++) line += *at == '\n';
    for (uint32_t i = 0; i < seals.items.n; i++)
        if (strstr(seals.items.at[i].text, name) != NULL && seals.items.at[i].loc.line == line)
            return NULL;
    return arena_print(arena, "is refused, but not by name and line %u: %u: %s", line,
                       seals.items.at[0].loc.line, seals.items.at[0].text);
}

/* Tries one change. With `thorough`, also proves without short cuts. */
static bool try_one(Tally *tally, const Subject *s, const Place *p, const char *value,
                    bool thorough, Arena *arena)
{
    Diag d = diag_in(arena), full = diag_in(arena);
    const TextField *field = &text_record(p->kind)->fields[p->field];
    const char *changed = places_edit(s->text, p, value, arena);
    if (changed == NULL || strcmp(changed, s->text) == 0) return false;
    Plan *plan = text_parse("changed", changed, strlen(changed), arena, &d);
    const uint32_t proofs = VERIFY_all & ~VERIFY_redundant;
    bool accepted = plan != NULL && verify_plan(plan, proofs, true, &d);
    if (plan != NULL && (thorough || accepted))
        assert_int_equal(verify_plan(plan, proofs | VERIFY_in_full, true, &full), accepted);
    tally->n[field->trust][accepted]++;
    tally->accepted[p->kind][p->field] += accepted;
    const int ends = accepted && field->trust != TRUST_proven ? exec_ends(s->tiny, plan) : AGREES;
    tally->differ[p->kind][p->field] += ends == DIFFERS;
    const char *fault = accepted ? broken(s, field->trust, plan, ends) : NULL;
    if (fault == NULL) fault = unsealed(s, field, p, changed, arena);
    if (fault == NULL) return true;
    if (tally->n_broken++ < 40)
        print_error("%s.%s, called %s, changed to '%s' %s: %s\n    %.150s\n",
                    text_record(p->kind)->word, text_field_name(field), trust_name(field->trust),
                    value, fault, corpus_name(s->tiny, arena), line_of(s->text, p->at, arena));
    return true;
}

/* Returns true if the program only fills the buffers of this shape with zeros. Zeros are right in
 * every layout, so no change of the layout is wrong for them. If `b` is not 0, only buffer `b`
 * counts. */
static bool is_of_zeros(const Program *p, ShapeId shape, BufferId b)
{
    for (Pc pc = 1; pc < p->code.n; pc++)
        for (uint32_t i = 0; i < p->code.at[pc].args.n; i++) {
            const BufferId arg = program_arg(p, &p->code.at[pc], i);
            const bool counts = b != 0 ? arg == b : p->buffers.at[arg].shape == shape;
            if (counts && p->code.at[pc].op != OP_fill) return false;
        }
    return true;
}

/* Returns the program whose record is the last one before `at`. */
static uint32_t program_before(const char *text, const char *at)
{
    uint32_t program = 0;
    for (const char *p = text; (p = strstr(p, "\nprogram ")) != NULL && p < at; p++)
        program = (uint32_t)strtoul(p + strlen("\nprogram "), NULL, 10);
    return program;
}

static bool describes_only_zeros(const Plan *plan, const char *text, const Place *p, Arena *arena)
{
    const char *line = line_of(text, p->at, arena);
    if (p->kind == RECORD_buffer &&
        strcmp(text_field_name(&text_record(p->kind)->fields[p->field]), "shape") == 0)
        return is_of_zeros(&plan->programs.at[program_before(text, p->at)], 0,
                           (BufferId)strtoul(line + 1, NULL, 10));
    if (p->kind != RECORD_shape) return false;
    const ShapeId shape = (ShapeId)strtoul(line + strlen("shape "), NULL, 10);
    bool zeros = true;
    for (uint32_t k = 0; k < plan->programs.n; k++)
        zeros = zeros && is_of_zeros(&plan->programs.at[k], shape, 0);
    return zeros;
}

/* Chooses one place for each class that the plan has. */
static void choose(Tally *tally, const Places *places)
{
    for (int k = 0; k < RECORD_COUNT; k++)
        for (uint32_t i = 0; i < MOST_FIELDS; i++)
            for (uint32_t sort = 0; sort < PLACE_SORTS; sort++)
                tally->class_[k][i][sort].n_here = 0;
    for (uint32_t i = 0; i < places->all.n; i++) {
        const Place *p = &places->all.at[i];
        Class *const c = &tally->class_[p->kind][p->field][p->sort];
        c->n_plans += c->n_here == 0;
        c->n_here++;
        if (rng_below(tally->seed + 1, tally->n_seen, i, c->n_here) == 0) c->chosen = i;
    }
}

/* Tries changes of the chosen places. The more plans had the class before, the less often it is
 * tried. */
static void try_classes(Tally *tally, const Plan *plan, const Subject *s, const Places *places)
{
    Arena *scratch = arena_new();
    for (uint32_t i = 0; i < places->all.n; i++) {
        const Place *p = &places->all.at[i];
        Class *const c = &tally->class_[p->kind][p->field][p->sort];
        if (c->n_here == 0 || c->chosen != i) continue;
        if (rng_below(tally->seed + 2, tally->n_seen, i, c->n_plans) > 0) continue;
        const uint64_t draw = rng_below(tally->seed, tally->n_seen, i, 1u << 30);
        const char *value = places_other_value(places, p, draw, scratch);
        if (value != NULL && !describes_only_zeros(plan, s->text, p, scratch))
            c->n_tries += try_one(tally, s, p, value, draw / 2 % 4 == 0, scratch);
        arena_reset(scratch);
    }
    arena_free(scratch);
}

static void visit(void *self, const Tiny *t)
{
    Tally *tally = self;
    const uint32_t k = tally->n_seen++;
    if (k % tally->every != 0 || k / tally->every % tally->parts != tally->part) return;
    if (tally->parts > 1)
        fprintf(stderr, "plan %u, %u s\n", k, (unsigned)(clock() / CLOCKS_PER_SEC));
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const Plan *plan = tiny_plan(t, true, arena, &d);
    assert_non_null(plan);
    /* Also runs once in this process: this loads libraries, which the child processes then need not
     * load. */
    if (tally->n_plans++ == 0) assert_false(exec_differs(t, plan));
    Str text = str_in(arena);
    text_print(plan, 0, &text);
    Cluster cluster;
    assert_true(front_cluster("dgx_h100", 8, arena, &cluster, &d));
    Str sealed = str_in(arena);
    text_print(plan, TEXT_WITH_SEALS, &sealed);
    Subject s = {t, str_text(&text), str_text(&sealed) + text.n, &cluster, predict(plan, &cluster)};
    if (!s.predicted.works) fail_msg("%s is not simulated", corpus_name(t, arena));
    const Places *places = places_find(plan, s.text, arena);
    choose(tally, places);
    try_classes(tally, plan, &s, places);
    arena_free(arena);
}

/* Prints the numbers of plans, classes and changes. Returns the number of classes that were never
 * changed: no other value was found, or only zeros are described. */
static uint32_t print_classes(const Tally *tally)
{
    uint32_t n = 0, n_tried = 0, n_tries = 0;
    for (int k = 0; k < RECORD_COUNT; k++)
        for (uint32_t i = 0; i < MOST_FIELDS; i++)
            for (uint32_t sort = 0; sort < PLACE_SORTS; sort++) {
                const Class *c = &tally->class_[k][i][sort];
                n += c->n_plans > 0;
                n_tried += c->n_tries > 0;
                n_tries += c->n_tries;
            }
    print_message("%u plans, %u classes of fields, %u of them changed, %u changes\n",
                  tally->n_plans, n, n_tried, n_tries);
    return n - n_tried;
}

static void print_sealed(const Tally *tally)
{
    for (int k = 0; k < RECORD_ranks; k++)
        for (uint32_t i = 0; i < text_record((TextRecordKind)k)->n_fields; i++) {
            const TextField *f = &text_record((TextRecordKind)k)->fields[i];
            if (f->trust != TRUST_proven && text_has_seal(f) && tally->accepted[k][i] > 0)
                print_message("%s.%s: only the seal refuses %u changes; %u give other results\n",
                              text_record((TextRecordKind)k)->word, text_field_name(f),
                              tally->accepted[k][i], tally->differ[k][i]);
        }
}

static void every_field_keeps_its_promise(void **state)
{
    (void)state;
    const char *which = getenv("TANDEM_FIELDS"), *seed = getenv("TANDEM_FIELDS_SEED");
    const bool all = which != NULL && strcmp(which, "all") == 0;
    Tally *tally = calloc(1, sizeof *tally);
    assert_non_null(tally);
    tally->seed = seed != NULL ? strtoull(seed, NULL, 10) : 5;
    tally->parts = 1;
    tally->every = all ? 1 : EVERY;
    const char *part = getenv("TANDEM_PART");
    char *slash = NULL;
    if (part != NULL) tally->part = (uint32_t)strtoul(part, &slash, 10) - 1;
    if (slash != NULL && *slash == '/') tally->parts = (uint32_t)strtoul(slash + 1, NULL, 10);
    assert_true(tally->parts > 0 && tally->part < tally->parts);
    corpus_each(visit, tally);
    const uint32_t n_untried = print_classes(tally), n_broken = tally->n_broken;
    for (int t = 0; t < TRUST_COUNT; t++)
        if (tally->n[t][0] + tally->n[t][1] > 0)
            print_message("%-8s the proofs refuse %6u changes and accept %6u\n",
                          trust_name((TextTrust)t), tally->n[t][0], tally->n[t][1]);
    print_sealed(tally);
    print_message("%u classes have no change to try\n", n_untried);
    assert_true(tally->n[TRUST_proven][0] > 50);
    free(tally);
    assert_int_equal(n_broken, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_field_keeps_its_promise)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
