/* A plan that needs fewer bytes at its peak also gets a smaller arena. An arena has at least the
 * most bytes in use at one time, plus the free gaps between buffers. No placement of buffers is the
 * best one for all plans. These bounds hold:
 *
 *   shipped plans, and variations of them:  arena <= (1 + 1/32) x in use + 1 MiB
 *   drawn plans of a few kilobytes:         arena <= (1 + 1/10) x in use, and 1/100 in the mean
 *
 * So if a plan has at least 1/32 fewer bytes in use, its arena is never larger. Options that once
 * broke this rule are compared in pairs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>

#include "planner/base/rng.h"
#include "planner/front/front.h"
#include "planner/lower/compile.h"
#include "sim/sim.h"
#include "tests/support/plans/tiny.h"

#define MIB (1024. * 1024)

typedef struct Need {
    double in_use, arena; /* bytes of the program with the largest arena */
    /* the largest fraction by which gaps make a program's arena larger than its bytes in use,
     * beyond 1 MiB */
    double holes;
} Need;

/* The memory pass has already computed the bytes in use. A program that is read from a text has no
 * such numbers, so memory_peak computes them again. Both must be equal. */
static void check_against_recomputed(const Program *p, const MemoryPeak *told, Arena *arena)
{
    Program read = *p;
    MemoryPeak peak;
    assert_true(p->in_use > 0);
    read.in_use = read.alive = 0;
    memory_peak(&read, arena, &peak);
    assert_int_equal(told->in_use, peak.in_use);
    assert_int_equal(told->waiting, peak.waiting);
}

static Need need_of(const Plan *plan, Arena *arena)
{
    Need worst = {0, 0, 0};
    for (uint32_t i = 0; i < plan->programs.n; i++) {
        const Program *p = &plan->programs.at[i];
        MemoryPeak peak;
        memory_peak(p, arena, &peak);
        check_against_recomputed(p, &peak, arena);
        const double in_use = (double)peak.in_use, bytes = (double)p->bytes;
        if ((bytes - MIB) / in_use - 1 > worst.holes) worst.holes = (bytes - MIB) / in_use - 1;
        if (bytes > worst.arena) worst.in_use = in_use, worst.arena = bytes;
    }
    return worst;
}

static Need need_of_script(const char *name, const char *const *set, uint32_t n_set)
{
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    Config *config = arena_alloc(arena, sizeof *config);
    Graph graph = {0};
    FrontOptions front = {.set = set, .n_set = n_set};
    LowerOptions lower = lower_options_default();
    const char *path = arena_print(arena, "%s/scripts/plans/%s.lua", TANDEM_SOURCE_DIR, name);
    Plan *plan = front_load(path, &front, arena, config, &graph, &d)
                     ? plan_compile(config, &graph, &lower, NULL, arena, &d)
                     : NULL;
    if (plan == NULL) fail_msg("%s does not compile", name);
    const Need need = need_of(plan, arena);
    arena_free(arena);
    return need;
}

static void check_holes(const char *name, const char *set, Need need)
{
    print_message("%-20s %-42s in use %8.1f MiB, holes %5.2f %%\n", name, set, need.in_use / MIB,
                  100 * (need.arena / need.in_use - 1));
    if (need.holes > 1. / 32) fail_msg("%s %s: holes %.2f %%", name, set, 100 * need.holes);
}

/* Tests all files of the folder, so that no new plan is forgotten. */
static void shipped_plans_have_few_holes(void **state)
{
    (void)state;
    uint32_t n = 0;
    DIR *folder = opendir(TANDEM_SOURCE_DIR "/scripts/plans");
    assert_non_null(folder);
    for (const struct dirent *e; (e = readdir(folder)) != NULL;) {
        const size_t length = strlen(e->d_name);
        if (length < 5 || strcmp(e->d_name + length - 4, ".lua") != 0) continue;
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)length - 4, e->d_name);
        check_holes(name, "", need_of_script(name, NULL, 0));
        n++;
    }
    closedir(folder);
    assert_true(n >= 19);
}

/* A plan needs fewer bytes if it reshards after the forward pass, or if it gathers fewer units
 * ahead. */
static void less_in_use_is_a_smaller_arena(void **state)
{
    static const char *const reshard[] = {"parallel.fsdp2.reshard_after_forward=true",
                                          "parallel.fsdp2.reshard_after_forward=false"};
    static const char *const prefetch[] = {"parallel.fsdp2.prefetch=0", "parallel.fsdp2.prefetch=1",
                                           "parallel.fsdp2.prefetch=2",
                                           "parallel.fsdp2.prefetch=3"};
    Need all[2][4];
    (void)state;
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t k = 0; k < 4; k++) {
            const char *const set[] = {reshard[r], prefetch[k]};
            all[r][k] = need_of_script("llama3_8b", set, 2);
            check_holes(reshard[r] + sizeof "parallel.fsdp2" - 1, prefetch[k], all[r][k]);
        }
    for (uint32_t k = 0; k < 4; k++) {
        assert_true(all[0][k].in_use < all[1][k].in_use);
        assert_true(all[0][k].arena < all[1][k].arena);
        for (uint32_t r = 0; k > 0 && r < 2; r++) {
            assert_true(all[r][k - 1].in_use <= all[r][k].in_use);
            assert_true(all[r][k - 1].arena <= all[r][k].arena * (1 + 1. / 32));
        }
    }
}

static Tiny drawn(uint64_t seed)
{
    uint64_t n = 0;
#define DRAW(bound) rng_below(seed, 7, n++, bound)
    Tiny t = tiny_default();
    t.layers = 1 + (uint32_t)DRAW(8);
    t.microbatches = 1 + (uint32_t)DRAW(6);
    t.gpt2 = DRAW(2), t.fused = DRAW(2);
    t.tp = 1 + (uint32_t)DRAW(2), t.dp_shard = 1 << DRAW(3), t.dp_replicate = 1 + (uint32_t)DRAW(2);
    t.ac = (AcMode)DRAW(3);
    t.tp_options.sequence = DRAW(2), t.tp_options.share_gathers = DRAW(2);
    t.fsdp2.prefetch = (uint32_t)DRAW(4), t.fsdp2.defer_grad_sync = DRAW(2);
    t.fsdp2.reshard_after_forward = DRAW(2) ? RESHARD_true : RESHARD_false;
    t.compile = DRAW(2);
#undef DRAW
    return t;
}

static void drawn_plans_have_few_holes(void **state)
{
    enum { N = 200 };
    double sum = 0, most = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= N; seed++) {
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        const Tiny t = drawn(seed);
        const Plan *plan = tiny_plan(&t, false, arena, &d);
        assert_non_null(plan);
        const Need need = need_of(plan, arena);
        const double holes = need.arena / need.in_use - 1;
        sum += holes;
        if (holes > most) most = holes;
        if (holes > 1. / 10) fail_msg("seed %d: holes %.3f", (int)seed, holes);
        arena_free(arena);
    }
    print_message("drawn plans: holes %.2f %% in the mean, %.2f %% at most\n", 100 * sum / N,
                  100 * most);
    assert_true(sum / N < 1. / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shipped_plans_have_few_holes),
                                       cmocka_unit_test(less_in_use_is_a_smaller_arena),
                                       cmocka_unit_test(drawn_plans_have_few_holes)};
    return cmocka_run_group_tests_name("memory order", tests, NULL, NULL);
}
