/* Every checker must be able to fail, or its silence means nothing. Either the proofs or the fp64
 * comparison with one rank must reject every mutant of every plan of the corpus. Mutants that are
 * proven equal are counted separately. Other survivors are printed and fail the test. By default
 * the test takes a sample by seed. TANDEM_MUTANTS=all tries all mutants, TANDEM_MUTANTS_SEED
 * chooses another sample. TANDEM_MUTANTS_OF selects the plans of the corpus whose name contains
 * these words. TANDEM_MUTANTS_PART=0/8 takes plans 0, 8, 16, ..., and 1/8 takes plans 1, 9, 17,
 * ..., so that parts can run at the same time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "planner/base/parallel.h"
#include "planner/base/rng.h"
#include "planner/verify/verify.h"
#include "tests/support/corpus/corpus.h"
#include "tests/support/plans/mutate.h"
#include "tests/support/sample.h"

enum { SAMPLE_PER_PLAN = SAMPLE(14, 3), ORDERS = 3 };
/* A sample takes every plan of the corpus; under the sanitizers, one plan in three. */
enum { ONE_PLAN_OF = SAMPLE(1, 3) };
/* Every ONE_BY_ONE-th mutant is also proven by one thread, and every ONE_IN_FULL-th without short
 * cuts. */
enum { ONE_BY_ONE = 4, ONE_IN_FULL = SAMPLE(1, 3) };
#define TOLERANCE 1e-10

enum { BY_VERIFY, EQUAL, BY_EXEC, SURVIVED, FATES };

typedef struct Tally {
    uint64_t seed;
    bool all;
    const char *of;         /* only plans of this name; NULL: all */
    uint32_t part, n_parts; /* only this part of the plans */
    /* plans of the corpus seen so far, and how many of them were mutated */
    uint32_t n_met, n_plans;
    uint32_t n_mutants;
    uint32_t fate[MUTATION_KINDS][FATES];
    uint32_t n_survivors;
} Tally;

typedef struct Subject {
    const Tiny *tiny;
    const Plan *plan, *reference; /* the plan that is mutated, and the same model on one rank */
} Subject;

/* The proofs are made with several threads, with one, and without short cuts. */
enum { WITH_THREADS, ONE_THREAD, IN_FULL, WAYS };

/* Runs fp64 on loopback in several legal orders. Returns true if any result differs from that of
 * one rank. */
static bool exec_rejects(const Subject *s, const Plan *mutant, uint64_t n_orders)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    const DataSource *data = data_synthetic(7, s->tiny->vocab, 0.1, arena);
    bool rejected = false;
    for (uint64_t seed = 0; seed < n_orders && !rejected; seed++) {
        BackendOptions options = {.order_seed = 101 * seed, .poison = true};
        VerifyResult result = {.n_tensors = 0};
        rejected =
            !exec_verify(mutant, s->reference, data, &options, TOLERANCE, arena, &result, &d);
    }
    arena_free(arena);
    return rejected;
}

static bool is_made(int way, uint32_t mutant)
{
    if (way == ONE_THREAD) return mutant % ONE_BY_ONE == 0;
    return way == WITH_THREADS || mutant % ONE_IN_FULL == 0;
}

/* Proves mutant number `number` with several threads, with one, and without short cuts. All must
 * report the same. */
static bool passes_proofs(const Plan *mutant, uint32_t number, Arena *arena)
{
    Str text[WAYS];
    bool ok = false;
    for (int way = 0; way < WAYS; way++) {
        if (!is_made(way, number)) continue;
        Diag d = diag_in(arena);
        parallel_allow(way == WITH_THREADS ? 3 : 1);
        const uint32_t what = way == IN_FULL ? VERIFY_all | VERIFY_in_full : VERIFY_all;
        ok = verify_plan(mutant, what, false, &d);
        text[way] = str_in(arena);
        diag_print(&d, &text[way]);
        if (way > 0) assert_string_equal(str_text(&text[0]), str_text(&text[way]));
    }
    return ok;
}

/* Decides how a mutant is rejected, or that it is proven equal. An equal mutant computes the same
 * in every order, if it ends. One run shows whether it ends: if programs wait for each other for
 * ever, they do so in every order. */
static int judge(const Subject *s, const Plan *mutant, uint32_t number, uint32_t program,
                 Arena *arena)
{
    if (!passes_proofs(mutant, number, arena)) return BY_VERIFY;
    bool equal = mutate_proves_equal(s->plan, mutant, program, arena);
    if (equal && s->plan->programs.n == 1) return EQUAL;
    if (exec_rejects(s, mutant, equal ? 1 : ORDERS)) return BY_EXEC;
    return equal ? EQUAL : SURVIVED;
}

static void try_one(Tally *tally, const Subject *s, Mutation m, Arena *scratch)
{
    const uint32_t number = tally->all ? 0 : tally->n_mutants++;
    int fate = judge(s, mutate(s->plan, m, scratch), number, m.program, scratch);
    tally->fate[m.kind][fate]++;
    if (fate == SURVIVED && tally->n_survivors++ < 40)
        print_error("SURVIVES: %s: %s\n", corpus_name(s->tiny, scratch),
                    mutation_text(s->plan, m, scratch));
    arena_reset(scratch);
}

static bool is_untried(const Tally *tally, MutationKind kind)
{
    for (int f = 0; f < FATES; f++)
        if (tally->fate[kind][f]) return false;
    return true;
}

static bool is_chosen(Tally *tally, const Tiny *t)
{
    Arena *arena = arena_new();
    bool named = !tally->of || strstr(corpus_name(t, arena), tally->of);
    arena_free(arena);
    return tally->n_met++ % tally->n_parts == tally->part && named;
}

static void visit(void *self, const Tiny *t)
{
    Tally *tally = self;
    if (!is_chosen(tally, t)) return;
    Arena *arena = arena_new(), *scratch = arena_new();
    Diag d = diag_in(arena);
    Tiny one = tiny_one_rank(t);
    Subject s = {t, tiny_plan(t, true, arena, &d), tiny_plan(&one, true, arena, &d)};
    assert_non_null(s.plan);
    assert_non_null(s.reference);
    if (!verify_plan(s.plan, VERIFY_all, false,
                     &d)) /* if the plan itself is refused, its mutants show nothing */
        fail_msg("%s is refused: %s", corpus_name(t, arena), d.items.at[0].text);
    Mutations all = mutate_all(s.plan, arena);
    uint32_t n = tally->all || all.at.n < SAMPLE_PER_PLAN ? all.at.n : SAMPLE_PER_PLAN;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t k = tally->all ? i : rng_below(tally->seed, tally->n_plans, i, all.at.n);
        try_one(tally, &s, all.at.at[k], scratch);
    }
    for (uint32_t i = 0; i < all.at.n;
         i++) /* a sample may miss rare kinds of mutations: tries one of each */
        if (is_untried(tally, all.at.at[i].kind)) try_one(tally, &s, all.at.at[i], scratch);
    tally->n_plans++;
    arena_free(scratch);
    arena_free(arena);
}

static void print_table(const Tally *tally)
{
    uint32_t sum[FATES] = {0};
    print_message("%-16s %10s %10s %10s %10s\n", "mutation", "by verify", "by exec", "equal",
                  "survived");
    for (int k = 0; k < MUTATION_KINDS; k++) {
        const uint32_t *f = tally->fate[k];
        print_message("%-16s %10u %10u %10u %10u\n", mutation_name((MutationKind)k), f[BY_VERIFY],
                      f[BY_EXEC], f[EQUAL], f[SURVIVED]);
        for (int j = 0; j < FATES; j++) sum[j] += f[j];
    }
    print_message("%-16s %10u %10u %10u %10u\n", "all", sum[BY_VERIFY], sum[BY_EXEC], sum[EQUAL],
                  sum[SURVIVED]);
}

static void no_mutant_survives(void **state)
{
    (void)state;
    const char *which = getenv("TANDEM_MUTANTS"), *seed = getenv("TANDEM_MUTANTS_SEED"),
               *part = getenv("TANDEM_MUTANTS_PART");
    Tally tally = {.seed = seed ? strtoull(seed, NULL, 10) : 20250101,
                   .all = which && strcmp(which, "all") == 0,
                   .of = getenv("TANDEM_MUTANTS_OF"),
                   .n_parts = 1};
    if (!tally.all && !tally.of) tally.n_parts = ONE_PLAN_OF;
    if (part &&
        (sscanf(part, "%u/%u", &tally.part, &tally.n_parts) != 2 || tally.part >= tally.n_parts))
        fail_msg("TANDEM_MUTANTS_PART=%s is not a part such as 0/8", part);
    print_message("seed %llu, %s\n", (unsigned long long)tally.seed,
                  tally.all ? "all mutants" : "a sample; TANDEM_MUTANTS=all for all");
    corpus_each(visit, &tally);
    print_message("%u of %u plans\n", tally.n_plans, tally.n_met);
    print_table(&tally);
    assert_true(tally.n_plans > 0 && tally.n_met > 300);
    assert_int_equal(tally.n_survivors, 0);
    if (tally.n_plans < tally.n_met) return;
    /* Each kind was tried. Each kind except renaming changed the result of some plan. */
    for (int k = 0; k < MUTATIONS_OF_HALOS; k++) {
        const uint32_t *f = tally.fate[k];
        assert_true(f[BY_VERIFY] + f[BY_EXEC] + f[EQUAL] > 0);
        assert_true(k == MUTATE_rename || f[BY_VERIFY] + f[BY_EXEC] > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_mutant_survives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
