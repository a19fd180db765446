/* Copies of equal blocks, and of equal actions of a pipeline. A plan with copies must have the same
 * text as the plan whose nodes were all lowered one by one. The tests compare the corpus with more
 * layers, the corpus with more micro-batches, plans of the library, and models whose equal blocks
 * read buffers in another order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "planner/base/str.h"
#include "planner/ir/text/text.h"
#include "planner/lower/blocks/steps.h"
#include "tests/support/corpus/corpus.h"
#include "tests/support/loaded.h"
#include "tests/support/sample.h"

enum {
    LAYERS = 14,         /* layers of a stage, enough that blocks are copied */
    MICROBATCHES = 8,    /* micro-batches of a step, enough that actions are copied */
    EVERY = SAMPLE(1, 4) /* one of so many members of the corpus is tested */
};

typedef struct Tally {
    /* seen: all members; plans: those that compile; copied: those with copies */
    uint32_t seen, plans, copied;
} Tally;

static const char *text_of(const Plan *plan, Arena *arena)
{
    Str text = str_in(arena);
    text_print(plan, 0, &text);
    return str_text(&text);
}

/* Fails at the first line in which the texts differ. */
static void same_text(const char *name, const char *copied, const char *plain)
{
    while (*copied && *copied == *plain) {
        const size_t n = strcspn(copied, "\n");
        if (strncmp(copied, plain, n + 1) != 0) break;
        copied += n + (copied[n] == '\n'), plain += n + (plain[n] == '\n');
    }
    if (!*copied && !*plain) return;
    fail_msg("%s:\n  copied: %.*s\n  plain:  %.*s", name, (int)strcspn(copied, "\n"), copied,
             (int)strcspn(plain, "\n"), plain);
}

/* Compiles a model with and without copies, and compares the plans. Returns the number of
 * instructions that are copies. */
static uint32_t compare(const char *name, const Config *config, const Graph *graph, bool unpadded,
                        Arena *arena, bool *compiles)
{
    uint32_t n = 0, none = 0;
    const Plan *plan[2];
    for (uint32_t plain = 0; plain < 2; plain++) {
        Diag d = diag_in(arena);
        LowerOptions options = lower_options_default();
        Graph own = graph_copy(graph, arena);
        options.workspace = kernel_cpu_workspace;
        options.unpadded = unpadded;
        options.every_block = plain;
        options.n_copied = plain ? &none : &n;
        plan[plain] = plan_compile(config, &own, &options, NULL, arena, &d);
    }
    assert_int_equal(none, 0);
    assert_int_equal(!plan[0], !plan[1]);
    *compiles = plan[0] != NULL;
    if (!plan[0]) return 0;
    const Hash128 a = text_plan_id(plan[0], arena), b = text_plan_id(plan[1], arena);
    if (memcmp(&a, &b, sizeof a) == 0) return n;
    same_text(name, text_of(plan[0], arena), text_of(plan[1], arena));
    fail_msg("%s: equal texts, but two ids", name);
    return n;
}

static void visit(void *self, const Tiny *member)
{
    Tally *tally = self;
    if (tally->seen++ % EVERY != 0) return;
    Arena *arena = arena_new();
    Tiny t = *member;
    Config *config = arena_alloc(arena, sizeof *config);
    Graph graph;
    bool compiles;
    t.layers = LAYERS * t.pp * (t.pp > 1 ? t.pp_options.chunks : 1);
    tiny_build(&t, arena, config, &graph);
    const uint32_t n =
        compare(corpus_name(member, arena), config, &graph, t.unpadded, arena, &compiles);
    tally->plans += compiles;
    tally->copied += n > 0;
    arena_free(arena);
}

static void copied_blocks_of_the_corpus_equal_lowered_ones(void **state)
{
    (void)state;
    Tally tally = {0, 0, 0};
    corpus_each(visit, &tally);
    print_message("%u plans, %u with copies\n", tally.plans, tally.copied);
    assert_true(tally.plans > 500 / EVERY);
    assert_true(tally.copied > tally.plans / 2);
}

/* These members have few layers, so only actions are copied. */
static void visit_steps(void *self, const Tiny *member)
{
    Tally *tally = self;
    if (tally->seen++ % EVERY != 0) return;
    Arena *arena = arena_new();
    Tiny t = *member;
    Config *config = arena_alloc(arena, sizeof *config);
    Graph graph;
    bool compiles;
    t.microbatches = MICROBATCHES;
    tiny_build(&t, arena, config, &graph);
    const uint32_t n =
        compare(corpus_name(&t, arena), config, &graph, t.unpadded, arena, &compiles);
    tally->plans += compiles;
    tally->copied += n > 0;
    arena_free(arena);
}

static void copied_actions_of_the_corpus_equal_lowered_ones(void **state)
{
    (void)state;
    Tally tally = {0, 0, 0};
    corpus_each(visit_steps, &tally);
    print_message("%u plans, %u with copied actions\n", tally.plans, tally.copied);
    assert_true(tally.plans > 500 / EVERY);
    assert_true(tally.copied > tally.plans * 9 / 10);
}

static void copied_blocks_of_the_library_equal_lowered_ones(void **state)
{
    (void)state;
    static const char *const plans[] = {
        "llama3_8b",  "llama3_8b_128k", "llama3_70b", "llama3_70b_pp",
        "gpt2_1558m", "mixtral_8x7b",   "llava_7b",   "mixtral_8x7b_dropless",
        "llama3_405b"};
    for (uint32_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        const FrontOptions options = {.n_set = 0};
        Arena *arena = arena_new();
        bool compiles;
        Loaded p = load_file(
            arena_print(arena, "%s/scripts/plans/%s.lua", TANDEM_SOURCE_DIR, plans[i]), &options);
        assert_true(p.fine);
        const uint32_t n = compare(plans[i], &p.config, &p.graph, false, arena, &compiles);
        assert_true(compiles);
        print_message("%s: %u instructions are copies\n", plans[i], n);
        assert_true(n > 0);
        arena_free(p.arena);
        arena_free(arena);
    }
}

/* A model of 20 blocks. With `skip`, block i of 20 further blocks also reads the output of block
 * skip(i). `whole` is the block whose weights tp does not split. With `exits`, 20 smaller blocks
 * follow, whose units lie between the units of the others. `odd` is the block with another
 * activation. */
static const char model[] =
    "local nn = require 'tandem.nn'\n"
    "local n, d = 20, 8\n"
    "local function block(i)\n"
    "  local split = i ~= whole\n"
    "  return nn.block { norm = nn.rmsnorm(d), w1 = nn.linear(d, 16), w2 = nn.linear(16, d),\n"
    "    fsdp2_shard = true, tp_col = split and { 'w1' } or {}, tp_row = split and 'w2' or {},\n"
    "    forward = function(m, x, beside)\n"
    "      if beside then x = x + beside end\n"
    "      return x + m.w2(nn[i == odd and 'gelu' or 'silu'](m.w1(m.norm(x))))\n"
    "    end }\n"
    "end\n"
    "local function exit()\n"
    "  return nn.block { w = nn.linear(d, d), fsdp2_shard = true,\n"
    "    forward = function(m, x) return x + m.w(x) end }\n"
    "end\n"
    "local function build()\n"
    "  return nn.module { embed = nn.embedding(16, d), head = nn.linear(d, 16),\n"
    "    layers = nn.list(n, function(i)\n"
    "      return nn.module { block = block(i), exit = exits and exit() or nil,\n"
    "        forward = function(m, x) return m.block(x) end }\n"
    "    end),\n"
    "    up = skip and nn.list(n, function() return block() end),\n"
    "    forward = function(m, tokens, labels)\n"
    "      local x, kept = m.embed(tokens), {}\n"
    "      for i = 1, n do x = m.layers[i](x); kept[i] = x end\n"
    "      for i = 1, skip and n or 0 do x = m.up[i](x, kept[skip(i)]) end\n"
    "      for i = 1, exits and n or 0 do x = m.layers[i].exit(x) end\n"
    "      return nn.cross_entropy(m.head(x), labels)\n"
    "    end }\n"
    "end\n"
    "return plan { model = { name = 'm', config = { dim = d }, build = build },\n"
    "  cluster = require 'clusters.local_cpu' {}, batch = { global = 6, micro = 1, seq = 4 },\n"
    "  mesh = { dp_shard = 2, tp = tp_ranks }, parallel = passes, optimizer = adamw {},\n"
    "  precision = { param = 'fp32', compute = 'fp32', reduce = 'fp32' } }\n";

static void copied_blocks_of_irregular_models_equal_lowered_ones(void **state)
{
    (void)state;
    static const char *const before[] = {
        "local tp_ranks, passes = 1, { fsdp2 { prefetch = 4 } }\n"
        "local function skip(i) return 21 - i end local whole, exits, odd\n",
        "local tp_ranks, passes = 2, { tp {}, fsdp2 {} }\n"
        "local function skip(i) return i end local whole, exits, odd = 10\n",
        "local tp_ranks, passes = 1, { fsdp2 { prefetch = 2 } }\n"
        "local skip, whole, exits, odd = nil, nil, true\n",
        "local tp_ranks, passes, odd = 1, { fsdp2 {} }, 17\n"
        "local skip, whole, exits\n"};
    for (uint32_t i = 0; i < sizeof before / sizeof *before; i++) {
        const FrontOptions options = {.n_set = 0};
        Arena *arena = arena_new();
        bool compiles;
        Loaded p = load_text(arena_print(arena, "%s%s", before[i], model), &options);
        if (!p.fine) fail_msg("model %u: %s", i, p.errors);
        assert_true(compare(before[i], &p.config, &p.graph, false, arena, &compiles) > 0);
        assert_true(compiles);
        arena_free(p.arena);
        arena_free(arena);
    }
}

#define FIELDS                                                                                     \
    "model = require 'models.unet' 'tiny', batch = { global = 16, micro = 1, channels = 2, "       \
    "height = 32, width = 64 }, "
#define TEXT "model = require 'models.llama' 'tiny', batch = { global = 32, micro = 1, seq = 64 }, "

/* Plans with many micro-batches that use what the corpus lacks: halos, batches of two sources, and
 * units whose buffers serve all micro-batches. Actions with halos also read strips of rows or
 * columns of their neighbours. */
static void copied_actions_with_halos_and_shared_buffers_equal_lowered_ones(void **state)
{
    (void)state;
    static const char *const cases[] = {
        FIELDS "mesh = { domain = 2 }, parallel = { domain {}, ddp {} }",
        FIELDS "mesh = { domain = 2, domain_w = 2 }, "
               "parallel = { domain { keep_halos = true }, ddp {} }",
        FIELDS "mesh = { domain = 2, dp_shard = 2 }, "
               "parallel = { domain { interior_first = false }, zero 'optim' }",
        TEXT "mesh = { dp_shard = 2 }, "
             "parallel = { zero { strategy = 'optim_grads', fsdp_double_buffer = true } }",
        TEXT "mesh = { dp_shard = 2, pp = 2 }, parallel = { pp '1f1b', "
             "float8 { fsdp_gather = true, skip_indivisible = true }, "
             "fsdp2 { reshard_after_forward = false } }",
        "model = require 'models.llava' 'tiny', batch = { global = 32, micro = 1, seq = 64 }, "
        "mesh = { dp_shard = 2, pp = 2 }, parallel = { pp '1f1b', zero 'optim' }",
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const FrontOptions options = {.n_set = 0};
        Arena *arena = arena_new();
        bool compiles;
        Loaded p = load_text(arena_print(arena, "return plan { %s }", cases[i]), &options);
        if (!p.fine) fail_msg("%s: %s", cases[i], p.errors);
        const uint32_t n = compare(cases[i], &p.config, &p.graph, false, arena, &compiles);
        assert_true(compiles);
        if (n == 0) fail_msg("%s: no copies", cases[i]);
        arena_free(p.arena);
        arena_free(arena);
    }
}

static void changes_of_unlisted_members_are_noticed(void **state)
{
    (void)state;
    Lower a, b;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    b.unit.last_release = 1;
    b.emit.stream_end[STREAM_tp] = 1;
    assert_true(steps_only_listed(&a, &b));
    b.stage.next_transfer = 1;
    assert_false(steps_only_listed(&a, &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copied_blocks_of_the_corpus_equal_lowered_ones),
        cmocka_unit_test(copied_actions_of_the_corpus_equal_lowered_ones),
        cmocka_unit_test(copied_actions_with_halos_and_shared_buffers_equal_lowered_ones),
        cmocka_unit_test(copied_blocks_of_the_library_equal_lowered_ones),
        cmocka_unit_test(copied_blocks_of_irregular_models_equal_lowered_ones),
        cmocka_unit_test(changes_of_unlisted_members_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
