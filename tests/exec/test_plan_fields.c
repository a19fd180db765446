/* planner/ir/text/fields.c states for every field of a plan's text whether it is proven, free, or a
 * label. This test changes single fields of the plans of the corpus. A change of a proven field
 * must be refused, and the error must name the field. The seals of the text refuse it, and the
 * proofs must refuse it without them. Where the table says that only the seal can refuse it,
 * because reports alone read the field, the results must be those of one rank. So must they if a
 * change of a free field is accepted. A label must change neither results nor prediction. No change
 * may end the executor. The default is a seeded sample. TANDEM_FIELDS=all tries all plans, and more
 * changes of each. TANDEM_PART=2/8 tries the second of eight parts of the plans, and prints its
 * progress. TANDEM_FIELDS_SEED chooses another sample. */
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
#include "tests/support/plans/corpus.h"

#define TOLERANCE 1e-10

/* One field of one line of a text: where its value stands, and the line's end. */
typedef struct Place {
    TextRecordKind kind;
    uint32_t field;
    const char *at, *end; /* the value; empty: the field is not written */
    const char *line_end;
} Place;
typedef LIST(Place) Places;

#ifdef __SANITIZE_ADDRESS__
enum { EVERY = 200, PER_FIELD = 1 }; /* the sanitizer makes tests slower */
#else
enum { EVERY = 60, PER_FIELD = 2 };
#endif

typedef struct Tally {
    uint64_t seed;
    uint32_t every,
        per_field; /* tries 1 plan of `every`; about `per_field` changes for each field of it */
    uint32_t part, parts; /* tries part `part` of `parts` of these plans */
    uint32_t n_seen, n_broken;
    uint32_t n[TRUST_COUNT][2]; /* refused by the proofs, accepted */
    uint32_t accepted[RECORD_COUNT][MOST_FIELDS];
    uint32_t differ[RECORD_COUNT][MOST_FIELDS]; /* accepted, with other results */
} Tally;

static const char *trust_name(TextTrust trust)
{
#define X(name, meaning) #name,
    static const char *const names[] = {TRUSTS(X)};
#undef X
    return names[trust];
}

static const char *token_end(const char *at)
{
    bool quoted = false;
    for (; *at != 0 && *at != '\n' && (quoted || *at != ' '); at++) {
        if (*at == '\\' && quoted && at[1] != 0)
            at++;
        else if (*at == '"')
            quoted = !quoted;
    }
    return at;
}

static bool find_record(const char *line, TextRecordKind *kind, const char **fields)
{
    const char *end = token_end(line);
    const char *next = *end == ' ' ? end + 1 : end;
    if (*line == '%') {
        *kind = RECORD_buffer;
        *fields = next;
        return true;
    }
    if (*line >= '0' && *line <= '9') {
        *kind = RECORD_instr;
        *fields = next;
        return true;
    }
    for (int k = 0; k < RECORD_ranks; k++) {
        const char *word = text_record((TextRecordKind)k)->word;
        if (strlen(word) != (size_t)(end - line) || strncmp(word, line, strlen(word)) != 0)
            continue;
        *kind = (TextRecordKind)k;
        *fields = next;
        if (*next >= '0' && *next <= '9') {
            end = token_end(next);
            *fields = *end == ' ' ? end + 1 : end;
        }
        return true;
    }
    return false;
}

static void add_places(Arena *arena, const char *fields, TextRecordKind kind, Places *places)
{
    const Record *record = text_record(kind);
    const char *line_end = fields + strcspn(fields, "\n");
    for (uint32_t i = 0; i < record->n_fields; i++) {
        const char *key = record->fields[i].key;
        Place p = {kind, i, line_end, line_end, line_end};
        uint32_t word = 0;
        for (const char *at = fields; at < line_end;) {
            const char *end = token_end(at);
            if (key == NULL ? word == i
                            : strncmp(at, key, strlen(key)) == 0 && at[strlen(key)] == '=') {
                p.at = key == NULL ? at : at + strlen(key) + 1;
                p.end = end;
            }
            word++;
            at = *end == ' ' ? end + 1 : end;
        }
        list_push(arena, places, p);
    }
}

static Places find_places(const char *text, Arena *arena)
{
    Places places = {NULL, 0, 0};
    for (const char *line = text; *line != 0;) {
        TextRecordKind kind;
        const char *fields;
        if (find_record(line, &kind, &fields)) add_places(arena, fields, kind, &places);
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return places;
}

/* A changed value: the value of the same field in another line, or a number that is one more. NULL:
 * there is none. */
static const char *other_value(const Places *all, const Place *p, uint64_t draw, Arena *arena)
{
    const char *now = arena_copy(arena, p->at, (size_t)(p->end - p->at));
    const FieldType type = text_record(p->kind)->fields[p->field].type;
    const bool number = type <= FIELD_f64;
    if (number && draw % 2 == 0)
        return type == FIELD_f64
                   ? arena_print(arena, "%g", 2 * strtod(now, NULL) + 1)
                   : arena_print(arena, "%lld", (long long)(strtoull(now, NULL, 10) + 1));
    if (type == FIELD_bool) return *now != 0 ? "" : "1";
    for (uint32_t k = 0; k < all->n; k++) {
        const Place *q = &all->at[(draw + k) % all->n];
        if (q->kind != p->kind || q->field != p->field) continue;
        const char *value = arena_copy(arena, q->at, (size_t)(q->end - q->at));
        if (strcmp(value, now) != 0) return value;
    }
    return NULL;
}

static const char *edit(const char *text, const Place *p, const char *value, Arena *arena)
{
    const char *key = text_record(p->kind)->fields[p->field].key;
    Str out = str_in(arena);
    const char *from = p->at;
    if (p->at == p->end) {
        if (key == NULL || *value == 0) return NULL;
        str_print(&out, "%.*s %s=%s%s", (int)(p->line_end - text), text, key, value, p->line_end);
        return str_text(&out);
    }
    if (*value == 0) {
        if (key == NULL) return NULL;
        from -= strlen(key) + 2;
    }
    str_print(&out, "%.*s%s%s", (int)(from - text), text, value, p->end);
    return str_text(&out);
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

/* Runs the plan in a process of its own, because a wrong plan may end the process. */
static int exec_ends(const Tiny *t, const Plan *mutant)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(exec_differs(t, mutant) ? DIFFERS : AGREES);
    int status = 0;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : CRASHES;
}

/* The simulator's numbers on eight H100: the step's time, and each category of memory. */
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

/* A plan of the corpus, with its prediction before any change. */
typedef struct Subject {
    const Tiny *tiny;
    const char *text, *seals; /* the text without its seals; the seals */
    const Cluster *cluster;
    Predicted predicted;
} Subject;

/* Returns NULL if the accepted change has only the effects that its class allows; otherwise
 * describes the other effect. `ends` says how the executor ended. */
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

static void try_one(Tally *tally, const Subject *s, const Place *p, const char *value, Arena *arena)
{
    Diag d = diag_in(arena), full = diag_in(arena);
    const TextField *field = &text_record(p->kind)->fields[p->field];
    const char *changed = edit(s->text, p, value, arena);
    if (changed == NULL || strcmp(changed, s->text) == 0) return;
    Plan *plan = text_parse("changed", changed, strlen(changed), arena, &d);
    const uint32_t proofs = VERIFY_all & ~VERIFY_redundant;
    bool accepted = plan != NULL && verify_plan(plan, proofs, true, &d);
    if (plan != NULL)
        assert_int_equal(verify_plan(plan, proofs | VERIFY_in_full, true, &full), accepted);
    tally->n[field->trust][accepted]++;
    tally->accepted[p->kind][p->field] += accepted;
    const int ends = accepted && field->trust != TRUST_proven ? exec_ends(s->tiny, plan) : AGREES;
    tally->differ[p->kind][p->field] += ends == DIFFERS;
    const char *fault = accepted ? broken(s, field->trust, plan, ends) : NULL;
    if (fault == NULL) fault = unsealed(s, field, p, changed, arena);
    if (fault == NULL) return;
    if (tally->n_broken++ < 40)
        print_error("%s.%s, called %s, changed to '%s' %s: %s\n    %.150s\n",
                    text_record(p->kind)->word, text_field_name(field), trust_name(field->trust),
                    value, fault, corpus_name(s->tiny, arena), line_of(s->text, p->at, arena));
}

/* Zeros are right in every layout, so no layout is wrong for buffers that hold only zeros. True if
 * the program only fills the buffers with this shape. With a number `b`, only that buffer counts.
 */
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

/* The program whose record comes last before `at`. */
static uint32_t program_before(const char *text, const char *at)
{
    uint32_t program = 0;
    for (const char *p = text; (p = strstr(p, "\nprogram ")) != NULL && p < at; p++)
        program = (uint32_t)strtoul(p + strlen("\nprogram "), NULL, 10);
    return program;
}

static bool says_nothing(const Plan *plan, const char *text, const Place *p, Arena *arena)
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

/* Tries a few changes of each field of each record. */
static void visit(void *self, const Tiny *t)
{
    Tally *tally = self;
    const uint32_t k = tally->n_seen++;
    if (k % tally->every != 0 || k / tally->every % tally->parts != tally->part) return;
    if (tally->parts > 1)
        fprintf(stderr, "plan %u, %u s\n", k, (unsigned)(clock() / CLOCKS_PER_SEC));
    Arena *arena = arena_new(), *scratch = arena_new();
    Diag d = diag_in(arena);
    const Plan *plan = tiny_plan(t, true, arena, &d);
    assert_non_null(plan);
    Str text = str_in(arena);
    text_print(plan, 0, &text);
    Cluster cluster;
    assert_true(front_cluster("dgx_h100", 8, arena, &cluster, &d));
    Str sealed = str_in(arena);
    text_print(plan, TEXT_WITH_SEALS, &sealed);
    Subject s = {t, str_text(&text), str_text(&sealed) + text.n, &cluster, predict(plan, &cluster)};
    if (!s.predicted.works) fail_msg("%s is not simulated", corpus_name(t, arena));
    Places all = find_places(s.text, arena);
    uint32_t count[RECORD_COUNT][MOST_FIELDS] = {{0}};
    for (uint32_t i = 0; i < all.n; i++) count[all.at[i].kind][all.at[i].field]++;
    for (uint32_t i = 0; i < all.n; i++) {
        const Place *p = &all.at[i];
        const uint64_t draw = rng_below(tally->seed, tally->n_seen, i, 1u << 30);
        const uint64_t pick =
            rng_below(tally->seed + 1, tally->n_seen, i, count[p->kind][p->field]);
        const char *value = other_value(&all, p, draw, scratch);
        if (pick < tally->per_field && value != NULL && !says_nothing(plan, s.text, p, scratch))
            try_one(tally, &s, p, value, scratch);
        arena_reset(scratch);
    }
    arena_free(scratch);
    arena_free(arena);
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
    Tally tally = {.seed = seed ? strtoull(seed, NULL, 10) : 5,
                   .parts = 1,
                   .every = all ? 1 : EVERY,
                   .per_field = all ? 8 : PER_FIELD};
    const char *part = getenv("TANDEM_PART");
    char *slash = NULL;
    if (part != NULL) tally.part = (uint32_t)strtoul(part, &slash, 10) - 1;
    if (slash != NULL && *slash == '/') tally.parts = (uint32_t)strtoul(slash + 1, NULL, 10);
    assert_true(tally.parts > 0 && tally.part < tally.parts);
    corpus_each(visit, &tally);
    for (int t = 0; t < TRUST_COUNT; t++)
        print_message("%-8s the proofs refuse %6u changes and accept %6u\n",
                      trust_name((TextTrust)t), tally.n[t][0], tally.n[t][1]);
    print_sealed(&tally);
    assert_true(tally.n[TRUST_proven][0] > 50);
    assert_int_equal(tally.n_broken, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_field_keeps_its_promise)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
