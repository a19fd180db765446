/* Usual typing mistakes and words of other tools: each gets a hint with the word that was meant. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tests/support/command.h"

#define PLANS TANDEM_SOURCE_DIR "/scripts/plans/"
#define LLAMA PLANS "llama3_8b.lua"

static void each_mistake_gets_its_hint(void **state)
{
    (void)state;
    static const struct {
        const char *words[5], *hint;
    } mistakes[] = {
        {{"chek", LLAMA}, "did you mean `tandem check`?"},
        {{"simulate", LLAMA}, "did you mean `tandem sim`?"},
        {{"predict", LLAMA}, "did you mean `tandem sim`?"},
        {{"validate", LLAMA}, "did you mean `tandem check`?"},
        {{"train", LLAMA}, "did you mean `tandem run`?"},
        {{"diff", "1", "2"}, "did you mean `tandem compare`?"},
        {{"export", "1"}, "did you mean `tandem db export`?"},
        {{"version"}, "did you mean `tandem --version`?"},
        {{"--versoin"}, "did you mean `tandem --version`?"},
        {{"help", "plan"}, "did you mean `tandem help plans`?"},
        {{"explain", "mesh_product"}, "did you mean 'mesh-product'?"},
        {{"check", PLANS "llama3_8b"}, "did you mean " LLAMA "?"},
        {{"check", PLANS "lama3_8b.lua"}, "did you mean " LLAMA "?"},
        {{"check", "llama3_8b.lua"}, "did you mean " LLAMA "?"},
        {{"check", "llama3_8b"}, "did you mean " LLAMA "?"},
        {{"check", LLAMA, "--claster", "x"}, "did you mean --cluster?"},
        {{"check", LLAMA, "--tp", "4"}, "--set KEY=VALUE changes a value of the plan"},
        {{"check", LLAMA, "--cluster", "dgx_h10"}, "did you mean 'dgx_h100'?"},
        {{"check", LLAMA, "--cluster", "DGX_H100"}, "did you mean 'dgx_h100'?"},
        {{"check", LLAMA, "--cluster", "clusters.dgx_h100"}, "did you mean 'dgx_h100'?"},
        {{"check", LLAMA, "--cluster", "h200"}, "clusters with this word in their name: hgx_h200"},
        {{"check", LLAMA, "--set", "mesh.pt=4"}, "did you mean 'tp'?"},
        {{"check", LLAMA, "--set", "mesh.TP=4"}, "did you mean 'tp'?"},
        {{"check", LLAMA, "--set", "mesh.dp=4"},
         "the key is called mesh.dp_shard (parameters are divided"},
        {{"check", LLAMA, "--set", "tensor_parallel_size=4"}, "the key is called mesh.tp"},
        {{"check", LLAMA, "--set", "batch.micro_batch=4"}, "the key is called batch.micro"},
        {{"check", LLAMA, "--set", "cluster.device=h200"},
         "use --set gpu=h200 to put this GPU into"},
        {{"check", LLAMA, "--set", "optimizer.weight=4"}, "did you mean 'weight_decay'?"},
        {{"check", LLAMA, "--set", "tp=4"}, "the key is called mesh.tp"},
        {{"check", LLAMA, "--set", "seq=4096"}, "the key is called batch.seq"},
        {{"check", LLAMA, "--set", "batch.seq=4k"}, "write only digits"},
        {{"check", LLAMA, "--set", "batch.seq=4,096"}, "write only digits"},
        {{"check", LLAMA, "--set", "precision=bf16"}, "precision.KEY=VALUE"},
        {{"check", LLAMA, "--set", "precision.compute=bf61"}, "did you mean 'bf16'?"},
        {{"check", LLAMA, "--set", "model.layer=2"}, "did you mean 'layers'?"},
        {{"check", LLAMA, "--set", "model=llama2"}, "did you mean 'models.llama'?"},
        {{"check", LLAMA, "--set", "parallel.ac=ful"}, "did you mean 'full'?"},
        {{"check", LLAMA, "--set", "parallel.fsdp.offload=true"}, "did you mean 'fsdp2'?"},
        {{"check", LLAMA, "--set", "cluster.node=4"}, "did you mean 'nodes'?"},
        {{"sim", LLAMA, "--what-if", "gpu=H1000"}, "did you mean 'H100'?"},
        {{"sim", LLAMA, "--nodes", "two"}, "--nodes two: a whole number is expected"},
        {{"run", LLAMA, "--backend", "CUDA"}, "did you mean cuda?"},
        {{"show", LLAMA, "--after", "fsdp"}, "did you mean 'fsdp2'?"},
        {{"net", "hgx_b20"}, "did you mean 'hgx_"},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        Arena *arena = arena_new();
        const char *const *w = mistakes[i].words;
        CommandResult r = COMMAND(arena, 60, w[0], w[1], w[2], w[3]);
        if ((r.exit_code != 2 && r.exit_code != 3) || strstr(r.err, mistakes[i].hint) == NULL)
            fail_msg("%s %s %s: code %d, no '%s' in\n%s", w[0], w[2] != NULL ? w[2] : "",
                     w[3] != NULL ? w[3] : "", r.exit_code, mistakes[i].hint, r.err);
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_mistake_gets_its_hint)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
