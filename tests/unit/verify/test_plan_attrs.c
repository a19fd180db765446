/* planner/ir/op/attrs.def states for each attribute of each op whether the script gives it, or
 * whether it follows from the rest of the plan. This test changes single attributes of many plans,
 * without seals: whoever changes a text can also compute its seals anew. A change reaches
 *   forward   all forward nodes of one op with the same attributes, and their instructions
 *   backward  the same for backward nodes
 *   other     all instructions of one op with the same attributes that belong to no node
 *   one       one instruction
 * The proofs must refuse every change of an attribute that is proven. Backward nodes and single
 * instructions have the attributes of their forward node or of their node, so there the proofs must
 * refuse every change. The exception is a given attribute of an instruction without a node: if the
 * plan has only one such instruction, no other field states the value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/rng.h"
#include "planner/ir/text/text.h"
#include "planner/verify/verify.h"
#include "tests/support/command.h"
#include "tests/support/corpus/corpus.h"
#include "tests/support/sample.h"

enum { MOST_USES = SAMPLE(3, 1), VALUES = 10 };

typedef enum Reach { REACH_forward, REACH_backward, REACH_other, REACH_one, REACHES } Reach;
static const char *const reaches[] = {"forward", "backward", "other", "one"};

typedef struct Count {
    uint32_t refused, accepted;
} Count;

typedef struct Tally {
    uint64_t seed;
    uint32_t every, n_seen, n_changes, n_broken;
    Count of[REACHES][OP_COUNT][ATTRS];
} Tally;

/* A plan that was read from a text. Each change of it is undone. */
typedef struct Subject {
    const char *name;
    Plan *plan;
} Subject;

/* Attributes that an op uses, with an instruction that uses them. */
typedef struct Use {
    Reach reach; /* this is never REACH_one */
    AttrsId attrs;
    uint32_t program;
    Pc pc; /* 0: only nodes use the attributes */
} Use;

static Reach reach_of_node(const Graph *g, NodeId id)
{
    return g->n_forward == 0 || id <= g->n_forward ? REACH_forward : REACH_backward;
}

static Reach reach_of(const Graph *g, const Instr *in)
{
    return in->origin != 0 && g->nodes.at[in->origin].op == in->op ? reach_of_node(g, in->origin)
                                                                   : REACH_other;
}

/* Gives instructions and nodes other attributes, which are added at the end of the plan's list. */
static void change(Plan *plan, OpKind op, const Use *use, Reach reach, const Attrs *now)
{
    Graph *g = &plan->graph;
    const AttrsId changed = g->attrs.n;
    list_push(plan->arena, &g->attrs, *now);
    if (reach == REACH_one) {
        plan->programs.at[use->program].code.at[use->pc].attrs = changed;
        return;
    }
    for (NodeId id = 1; id < g->nodes.n; id++) {
        Node *n = &g->nodes.at[id];
        if (n->op == op && n->attrs == use->attrs && reach_of_node(g, id) == reach)
            n->attrs = changed;
    }
    for (uint32_t i = 0; i < plan->programs.n; i++)
        for (Pc pc = 1; pc < plan->programs.at[i].code.n; pc++) {
            Instr *in = &plan->programs.at[i].code.at[pc];
            if (in->op == op && in->attrs == use->attrs && reach_of(g, in) == reach)
                in->attrs = changed;
        }
}

static void undo(Plan *plan, const Use *use)
{
    Graph *g = &plan->graph;
    const AttrsId changed = --g->attrs.n;
    for (NodeId id = 1; id < g->nodes.n; id++)
        if (g->nodes.at[id].attrs == changed) g->nodes.at[id].attrs = use->attrs;
    for (uint32_t i = 0; i < plan->programs.n; i++)
        for (Pc pc = 1; pc < plan->programs.at[i].code.n; pc++) {
            Instr *in = &plan->programs.at[i].code.at[pc];
            if (in->attrs == changed) in->attrs = use->attrs;
        }
}

/* Stores another value within the bounds of the attribute in *out. Returns false if there is
 * none. */
static bool other_value(const AttrBounds *b, uint32_t draw, double now, double *out)
{
    const double tries[VALUES] = {now + 1, 2 * now + 1, now - 1, now / 2, 0.5 * now + 0.25,
                                  now + 2, 0,           1,       b->hi,   b->lo};
    for (uint32_t k = 0; k < VALUES; k++) {
        const double x = tries[(draw + k) % VALUES];
        const bool fits =
            (b->above_lo ? x > b->lo : x >= b->lo) && (b->below_hi ? x < b->hi : x <= b->hi);
        if (!fits || x == now || (attr_is_int(b->attr) && x != (double)(int64_t)x)) continue;
        *out = x;
        return true;
    }
    return false;
}

/* Returns true if the plan has another instruction of this op without a node. */
static bool has_another(const Plan *plan, OpKind op, const Use *use)
{
    for (uint32_t i = 0; i < plan->programs.n; i++)
        for (Pc pc = 1; pc < plan->programs.at[i].code.n; pc++)
            if (plan->programs.at[i].code.at[pc].op == op && (pc != use->pc || i != use->program))
                return true;
    return false;
}

static void try_one(Tally *tally, const Subject *s, OpKind op, const AttrBounds *b, const Use *use,
                    Reach reach, uint32_t draw)
{
    const double was = attr_get(&s->plan->graph.attrs.at[use->attrs], b->attr);
    Attrs now = s->plan->graph.attrs.at[use->attrs];
    double value;
    if (!other_value(b, draw, was, &value)) return;
    attr_set(&now, b->attr, value);
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    change(s->plan, op, use, reach, &now);
    const bool accepted = verify_plan(s->plan, VERIFY_all & ~VERIFY_redundant, true, &d);
    undo(s->plan, use);
    Count *count = &tally->of[reach][op][b->attr];
    *(accepted ? &count->accepted : &count->refused) += 1;
    tally->n_changes++;
    const bool may = b->is_given && (reach == REACH_forward || reach == REACH_other ||
                                     (use->reach == REACH_other && !has_another(s->plan, op, use)));
    if (accepted && !may && tally->n_broken++ < 60)
        print_error("%s.%s of %s changed from %.10g to %.10g is accepted: %s\n", op_info(op)->name,
                    attr_name(b->attr), reaches[reach], was, value, s->name);
    arena_free(arena);
}

/* Adds `one` to `use`, a random sample of the `seen` uses so far. */
static void sample(Use *use, uint32_t *n, uint32_t *seen, uint64_t seed, Use one)
{
    const uint32_t at =
        *n < MOST_USES ? (*n)++ : (uint32_t)rng_below(seed, one.pc, *seen, *seen + 1);
    (*seen)++;
    if (at < MOST_USES) use[at] = one;
}

static uint32_t uses_of(const Plan *plan, OpKind op, Reach reach, uint64_t seed, Use *use)
{
    const Graph *g = &plan->graph;
    uint32_t n = 0, seen = 0;
    for (uint32_t i = 0; i < plan->programs.n; i++)
        for (Pc pc = 1; pc < plan->programs.at[i].code.n; pc++) {
            const Instr *in = &plan->programs.at[i].code.at[pc];
            if (in->op == op && reach_of(g, in) == reach)
                sample(use, &n, &seen, seed, (Use){reach, in->attrs, i, pc});
        }
    for (NodeId id = 1; id < g->nodes.n && seen == 0; id++)
        if (g->nodes.at[id].op == op && reach_of_node(g, id) == reach)
            sample(use, &n, &seen, seed, (Use){reach, g->nodes.at[id].attrs, 0, 0});
    return n;
}

static void try_plan(Tally *tally, const Subject *s)
{
    for (int op = OP_none + 1; op < OP_COUNT; op++)
        for (int reach = 0; reach < REACH_one; reach++) {
            Use use[MOST_USES];
            const uint32_t n = uses_of(s->plan, (OpKind)op, (Reach)reach, tally->seed, use);
            for (uint32_t k = 0; k < n; k++)
                for (uint32_t attr = 0; attr < ATTRS; attr++) {
                    AttrBounds b;
                    if (!op_attr_bounds((OpKind)op, attr, &b)) continue;
                    const uint64_t key = ((uint64_t)op * REACHES + (uint64_t)reach) * ATTRS + attr;
                    const uint32_t draw =
                        (uint32_t)rng_below(tally->seed, tally->n_seen, key, VALUES) + k;
                    try_one(tally, s, (OpKind)op, &b, &use[k], (Reach)reach, draw);
                    if (use[k].pc != 0)
                        try_one(tally, s, (OpKind)op, &b, &use[k], REACH_one, draw + 1);
                }
        }
}

static void visit(void *self, const Tiny *t)
{
    Tally *tally = self;
    if (tally->n_seen++ % tally->every != 0) return;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const Plan *plan = tiny_plan(t, true, arena, &d);
    assert_non_null(plan);
    Str text = str_in(arena);
    text_print(plan, 0, &text);
    const Subject s = {corpus_name(t, arena),
                       text_parse("plan", str_text(&text), text.n, arena, &d)};
    assert_non_null(s.plan);
    try_plan(tally, &s);
    arena_free(arena);
}

/* The golden plans have ops that no plan of the corpus has. */
static void visit_golden(Tally *tally)
{
    static const char folder[] = TANDEM_SOURCE_DIR "/tests/golden";
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot == NULL || strcmp(dot, ".plan") != 0) continue;
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        const char *path = arena_print(arena, "%s/%s", folder, entry->d_name);
        const char *text = command_read_file(arena, path, NULL);
        const Subject s = {path + sizeof folder, text_parse(path, text, strlen(text), arena, &d)};
        assert_non_null(s.plan);
        try_plan(tally, &s);
        arena_free(arena);
    }
    closedir(dir);
}

static void proofs_refuse_changes_of_proven_attributes(void **state)
{
    (void)state;
    const char *every = getenv("TANDEM_ATTRS_EVERY"), *seed = getenv("TANDEM_FIELDS_SEED");
    Tally *tally = calloc(1, sizeof *tally);
    assert_non_null(tally);
    tally->seed = seed != NULL ? strtoull(seed, NULL, 10) : 5;
    tally->every = every != NULL ? (uint32_t)strtoul(every, NULL, 10) : SAMPLE(200, 600);
    corpus_each(visit, tally);
    visit_golden(tally);
    uint32_t n[REACHES][2] = {{0}};
    for (int reach = 0; reach < REACHES; reach++)
        for (int op = 0; op < OP_COUNT; op++)
            for (uint32_t a = 0; a < ATTRS; a++) {
                const Count *c = &tally->of[reach][op][a];
                if (c->refused + c->accepted > 0) n[reach][c->accepted > 0]++;
                if (getenv("TANDEM_ATTRS_LIST") != NULL && c->accepted > 0)
                    print_message("%s.%s of %s: %u refused, %u accepted\n",
                                  op_info((OpKind)op)->name, attr_name(a), reaches[reach],
                                  c->refused, c->accepted);
            }
    print_message("%u changes\n", tally->n_changes);
    for (int reach = 0; reach < REACHES; reach++)
        print_message("%-8s of %3u attributes of ops, the proofs refuse all changes of %3u\n",
                      reaches[reach], n[reach][0] + n[reach][1], n[reach][0]);
    const uint32_t n_broken = tally->n_broken;
    free(tally);
    assert_int_equal(n_broken, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proofs_refuse_changes_of_proven_attributes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
