/* tandem accuracy: a row may leave open a fact that its source states elsewhere, or that is known
 * of the source's runs. Such facts must reach the prediction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/accuracy/accuracy.h"
#include "tests/support/command.h"

/* Returns the prediction for the file's only row. */
static double predicted_of(const char *file, const char *what, Arena *arena)
{
    CommandResult r = COMMAND(arena, 60, "accuracy", "--runs", file, "--json");
    assert_int_equal(r.exit_code, 0);
    json_t *root = json_loads(r.out, 0, NULL);
    const json_t *scores = json_object_get(json_object_get(root, "runs"), "scores");
    double predicted = 0;
    for (size_t i = 0; i < json_array_size(scores); i++) {
        const json_t *s = json_array_get(scores, i);
        if (strcmp(json_string_value(json_object_get(s, "what")), what) == 0)
            predicted = json_number_value(json_object_get(s, "predicted"));
    }
    assert_true(predicted > 0);
    json_decref(root);
    return predicted;
}

/* Returns the allocated bytes of a small Llama on eight GPUs with 4,096 tokens each and a
 * vocabulary of 65,536. */
static double allocated_of(const char *source, const char *gpu, const char *rest, Arena *arena)
{
    const char *file = command_table(
        arena,
        arena_print(
            arena,
            "id,source,model,n_layers,d_model,n_heads,n_kv_heads,d_ff,vocab,moe_experts,gpu,"
            "n_gpus,gpus_per_node,tp,sp,pp,vp,cp,ep,dp_shard,dp_replicate,micro_batch,"
            "global_batch_seqs,seq,framework,zero_stage,precision,ac,compile,step_time_s,peak_mem,"
            "peak_mem_kind,oom,missing,split\n"
            "a,%s,llama3-8b,8,1024,8,8,4096,65536,,%s,8,8,1,0,1,1,1,1,8,1,1,8,4096,%s,,1,"
            "peak_mem_alloc GiB,,,dev-val\n",
            source, gpu, rest));
    return predicted_of(file, "memory allocated", arena);
}

/* torchao's page says that its H100s ran a torchtitan with an eager loss: three more fp32 copies of
 * the logits. On Blackwell, attention's output (2 bytes an element) and one number for each head
 * are not kept. By the page on upgrading GPUs, stage 3 had the optimizer on the host. That saves 14
 * bytes for each parameter, shared over the ranks. Each parameter of the largest weight saves 10
 * bytes less, because computing the weight's norm needs them on the device. A layer's weights are
 * then released sooner, because the host waits at each reduction. */
static void a_source_may_say_what_its_rows_ran(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const char titan[] = "torchtitan+torchao,3,bf16,selective(op),yes";
    static const char deep[] = "DeepSpeed ZeRO-3 + Liger,3,bf16,full,no";
    const double tokens = 4096, plain = allocated_of("s", "H100-SXM", titan, arena);
    const double eager = allocated_of("torchao training docs", "H100-SXM", titan, arena);
    const double blackwell = allocated_of("torchao training docs", "B200-SXM", titan, arena);
    const double device = allocated_of("s", "H200-SXM", deep, arena);
    const double host = allocated_of("stas00 when-to-upgrade-gpus", "H200-SXM", deep, arena);
    const double kept = 8 * tokens * (2 * 1024 + 4 * 8), logits = 12 * tokens * 65536;
    const double P = 2. * 65536 * 1024 + 8 * (4. * 1024 * 1024 + 3. * 4096 * 1024);
    assert_true(fabs(eager - plain - logits) < .02 * logits);
    assert_true(fabs(plain - blackwell - kept) < .02 * kept);
    const double layer = 4. * 1024 * 1024 + 3. * 4096 * 1024;
    const double state_bytes = (14 * P - 10 * 65536. * 1024) / 8 + 2 * layer;
    assert_true(fabs(device - host - state_bytes) < .02 * state_bytes);
    arena_free(arena);
}

/* A local batch of 16 runs on four stages, two of them on each rank. torchtitan of 2024 cuts it
 * into four micro-batches, and that of January 2025 into eight. Later versions state their
 * micro-batches. */
static void a_local_batch_is_cut_as_torchtitan_did(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    static const struct {
        const char *month, *micro;
    } same[][2] = {{{"2024-12", "1"}, {"", "4"}},
                   {{"2025-02", "1"}, {"", "2"}},
                   {{"2025-06", "1"}, {"", "1"}}};
    double step_s[3];
    for (int i = 0; i < 3; i++) {
        double s[2];
        for (int k = 0; k < 2; k++) {
            const char *text = arena_print(
                arena,
                "id,source,model,n_layers,d_model,n_heads,n_kv_heads,d_ff,vocab,moe_experts,gpu,"
                "n_gpus,gpus_per_node,tp,sp,pp,vp,cp,ep,dp_shard,dp_replicate,micro_batch,"
                "global_batch_seqs,seq,framework,framework_month,zero_stage,precision,ac,compile,"
                "step_time_s,peak_mem,peak_mem_kind,oom,missing,split\n"
                "a,s,llama3-8b,8,1024,8,8,4096,4096,,A100,8,8,1,0,4,2,1,1,2,1,%s,32,2048,"
                "torchtitan,%s,3,bf16,full,no,1,,,,,dev-cal\n",
                same[i][k].micro, same[i][k].month);
            s[k] = predicted_of(command_table(arena, text), "step time", arena);
        }
        step_s[i] = s[0];
        assert_true(fabs(s[0] / s[1] - 1) < 1e-3);
    }
    assert_true(fabs(step_s[0] / step_s[1] - 1) > .01 && fabs(step_s[1] / step_s[2] - 1) > .01);
    arena_free(arena);
}

/* KempnerForge's mixtures: 24 layers of 2048, experts of 7168, 4,096 tokens in a sequence, H200s.
 * Measured memory of each, in GiB; 0: it ran out of memory. */
static const struct Mixture {
    const char *experts, *n_gpus, *tp, *ep, *shard, *micro, *rate, *step_s;
    double gib;
} mixtures[] = {
    {"8", "8", "1", "1", "8", "4", "6065.12", "2.7", 50.2},
    {"16", "8", "1", "1", "8", "4", "3374.25", "4.86", 71.9},
    /* All 64 experts are created on each device before ep takes 16 of them. */
    {"64", "8", "1", "4", "2", "1", "224.5", "4.57", 127.5},
    {"8", "32", "4", "2", "4", "8", "756.25", "5.4", 74.7},
    {"8", "32", "4", "2", "4", "12", "843.75", "7.4", 106.7},
    {"8", "32", "4", "2", "4", "16", "", "", 0},
    /* Its rate implies four micro-batches, whose gradients are summed whole in fp32. */
    {"8", "32", "4", "2", "4", "2", "443.75", "9.5", 57.9},
};
enum { N_MIXTURES = sizeof mixtures / sizeof *mixtures };

static const char *mixtures_table(Arena *arena)
{
    Str s = str_in(arena);
    str_print(&s,
              "id,source,model,n_layers,d_model,n_heads,n_kv_heads,d_ff,vocab,moe_experts,moe_topk,"
              "params_b,gpu,n_gpus,gpus_per_node,framework,tp,sp,pp,vp,cp,ep,dp_shard,dp_replicate,"
              "zero_stage,micro_batch,global_batch_seqs,seq,precision,ac,compile,step_time_s,"
              "tokens_per_s_per_gpu,peak_mem,peak_mem_kind,oom,missing,split\n");
    for (int i = 0; i < N_MIXTURES; i++) {
        const struct Mixture *m = &mixtures[i];
        str_print(
            &s,
            "%d,s,llama3-moe,24,2048,16,4,7168,128256,%s,2,,H200-SXM-141GB,%s,4,KempnerForge,%s,"
            "0,1,1,1,%s,%s,1,3,%s,,4096,bf16,full,no,%s,%s,%s,%s,%s,global_batch_seqs,dev-val\n",
            i, m->experts, m->n_gpus, m->tp, m->ep, m->shard, m->micro, m->step_s, m->rate,
            m->gib > 0 ? arena_print(arena, "%g", m->gib) : "", m->gib > 0 ? "peak_mem GiB" : "",
            m->gib > 0 ? "" : "1");
    }
    return command_table(arena, str_text(&s));
}

/* Within 4 % of the measurements. tests/sim/memory/test_torch_kept.c tests each term. */
static void mixtures_take_nearly_the_measured_memory(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    CommandResult r =
        COMMAND(arena, 300, "accuracy", "--runs", mixtures_table(arena), "--jobs", "2", "--json");
    assert_int_equal(r.exit_code, 0);
    json_t *root = json_loads(r.out, 0, NULL);
    const json_t *scores = json_object_get(json_object_get(root, "runs"), "scores");
    int n_memory = 0, n_fits = 0;
    size_t k;
    const json_t *s;
    json_array_foreach(scores, k, s)
    {
        const char *what = json_string_value(json_object_get(s, "what"));
        const int i = (int)strtol(json_string_value(json_object_get(s, "row")), NULL, 10);
        const double is = json_number_value(json_object_get(s, "predicted"));
        if (strcmp(what, "memory allocated, not all stated") == 0 && ++n_memory &&
            fabs(is / (mixtures[i].gib * (1 << 30)) - 1) > .04)
            fail_msg("row %d: %.1f GiB, %.1f were measured", i, is / (1 << 30), mixtures[i].gib);
        if (strcmp(what, "fits, not all stated") == 0 && ++n_fits &&
            (is > 0) != (mixtures[i].gib > 0))
            fail_msg("row %d is predicted to %s", i, is > 0 ? "fit" : "run out of memory");
    }
    assert_int_equal(n_memory, N_MIXTURES - 1);
    assert_int_equal(n_fits, N_MIXTURES);
    json_decref(root);
    arena_free(arena);
}

static double on_network(const char *gpu, const char *network, Arena *arena)
{
    return predicted_of(
        command_table(
            arena,
            arena_print(
                arena,
                "id,source,model,n_layers,d_model,n_heads,n_kv_heads,d_ff,vocab,moe_experts,"
                "gpu,n_gpus,gpus_per_node,interconnect,tp,sp,pp,vp,cp,ep,dp_shard,"
                "dp_replicate,micro_batch,global_batch_seqs,seq,framework,zero_stage,"
                "precision,ac,compile,step_time_s,peak_mem,peak_mem_kind,oom,missing,split\n"
                "a,s,llama3-8b,8,4096,32,8,14336,32000,,%s,32,8,%s,1,0,1,1,1,1,32,1,1,32,512,"
                "torchtitan,3,bf16,none,no,1,,,,,dev-cal\n",
                gpu, network)),
        "step time", arena);
}

/* A node of A100s has eight NICs of 200 Gb/s unless the row says otherwise; a node of H100s eight
 * of 400. */
static void a_row_may_state_its_network(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    const double usual = on_network("A100-SXM-80GB", "NVLink; fabric unstated", arena);
    const double half = on_network("A100-SXM-80GB", "NVLink3; 4x200Gb HDR IB", arena);
    const double quarter = on_network("A100-SXM-80GB", "NVLink; 400Gb/s per node", arena);
    assert_true(on_network("A100-SXM-80GB", "8x200Gb HDR IB/node", arena) == usual);
    assert_true(on_network("A100-SXM-80GB", "NVLink; 800Gb/s per node", arena) < 1.05 * half);
    assert_true(half > 1.2 * usual);
    assert_true(quarter > 1.2 * half);
    const double hopper = on_network("H100-SXM-80GB", "400Gb/s RDMA per GPU", arena);
    assert_true(on_network("H100-SXM-80GB", "4xH200/node NVLink; NDR 400Gb IB", arena) == hopper);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_source_may_say_what_its_rows_ran),
        cmocka_unit_test(a_local_batch_is_cut_as_torchtitan_did),
        cmocka_unit_test(mixtures_take_nearly_the_measured_memory),
        cmocka_unit_test(a_row_may_state_its_network),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
