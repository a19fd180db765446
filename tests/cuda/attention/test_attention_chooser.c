/* The choice of the kernel for attention and its gradient. Kernels are timed and compared; choices
 * are stored, found again, and agreed on by all ranks. The kernels are the emulated ones, and the
 * test sets the time of each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/choose/attention_chooser.h"
#include "tests/cuda/attention/attention_case.h"
#include "tests/cuda/compare.h"
#include "tests/cuda/emulator/mma_on_cpu.h"
#include "tests/cuda/runtime_double.h"

/* ---- launches ---- */

static struct Device {
    double mma_ms, hopper_ms, library_ms, one_ms;
    uint32_t mma, hopper, library, one; /* launches */
    bool hopper_is_wrong, library_refuses;
} the;

static void launched(void *self, void *stream, const DeviceLaunch *launch)
{
    (void)self, (void)stream;
    /* only one of the gradient's kernels is counted */
    bool hopper = strstr(launch->name, "attention_hopper") != NULL;
    if (hopper) device_hopper_fault(the.hopper_is_wrong ? HOPPER_wrong_stride : HOPPER_sound);
    if (strstr(launch->name, "_dqkv") != NULL) {
        the.one++;
        runtime_double.now_ms += the.one_ms;
    } else if (hopper && strstr(launch->name, "_dkv") == NULL) {
        the.hopper++;
        runtime_double.now_ms += the.hopper_ms;
    } else if (strstr(launch->name, "attention_forward") != NULL ||
               strstr(launch->name, "attention_dq") != NULL) {
        the.mma++;
        runtime_double.now_ms += the.mma_ms;
    }
    device_run(launch);
    device_hopper_fault(HOPPER_sound);
}

static void copied(void *self, void *stream, void *to, const void *from, uint64_t bytes)
{
    (void)self, (void)stream;
    if (from == NULL)
        memset(to, 0, bytes);
    else
        memcpy(to, from, bytes);
}

static CudaKernel_function *kernel_of(OpKind op)
{
    return op == OP_attention ? cuda_attention : cuda_attention_grad;
}

/* Stands for a library, with the results of the mma.sync kernel. */
static bool by_library(void *self, OpKind op, const KernelArgs *args, const CudaContext *cuda,
                       bool *taken, CudaError *error)
{
    (void)self;
    *taken = !the.library_refuses;
    if (!*taken) return true;
    double ms = the.mma_ms;
    CudaContext own = *cuda;
    own.attention = NULL;
    the.mma_ms = the.library_ms;
    bool fine = kernel_of(op)(args, &own, error);
    the.mma_ms = ms;
    the.mma--;
    the.library++;
    return fine;
}
static const CudaAttentionLibrary library = {NULL, by_library};

/* ---- stored choices ---- */

static struct Kept {
    char call[ATTENTION_NAME_BYTES], device[160];
    uint32_t kernel, n;
    int64_t median_ps;
} kept;

static bool kept_get(void *self, const char *device, const char *call, void *choice, size_t bytes)
{
    (void)self;
    assert_int_equal(bytes, sizeof kept.kernel);
    if (kept.n == 0 || strcmp(kept.call, call) != 0 || strcmp(kept.device, device) != 0)
        return false;
    memcpy(choice, &kept.kernel, bytes);
    return true;
}

static void kept_put(void *self, const char *device, const char *call, const void *choice,
                     size_t bytes, int64_t median_ps)
{
    (void)self;
    assert_int_equal(bytes, sizeof kept.kernel);
    memcpy(&kept.kernel, choice, bytes);
    (void)snprintf(kept.call, sizeof kept.call, "%s", call);
    (void)snprintf(kept.device, sizeof kept.device, "%s", device);
    kept.median_ps = median_ps;
    kept.n++;
}
static const KernelChoices choices = {NULL, kept_get, kept_put};

/* ---- runs ---- */

typedef struct Session {
    Arena *arena;
    AttentionRun run;
    AttentionChooser *chooser;
    CudaContext cuda;
} Session;

static const AttentionCase small = {
    .dtype = DT_bf16, .b = 1, .s = 37, .T = 37, .g = 1, .r = 2, .E = 64, .causal = true};

static Session session_for(const AttentionCase *c, OpKind op, const CudaAttentionLibrary *with,
                           uint32_t capability)
{
    CudaError error = {""};
    Session s = {.arena = arena_new(), .cuda = {.n_sms = 2, .compute_capability = capability}};
    const AttentionChooserOptions options = {
        .tune = true, .kept = &choices, .device = "H", .library = with, .patience_s = .05};
    s.run = attention_run(s.arena, c, NULL);
    if (op == OP_attention_grad) {
        kernel_cpu(OP_attention)(&s.run.cpu);
        s.run = gradient_run(s.arena, c, NULL, &s.run);
    }
    s.chooser = attention_chooser_open(&options, &error);
    assert_non_null(s.chooser);
    if (!attention_chooser_prepare(s.chooser, op, &s.run.device, &s.cuda, &error))
        fail_msg("%s", error.text);
    assert_int_equal(runtime_double.objects, 0);
    return s;
}

static Session session_of(OpKind op, const CudaAttentionLibrary *with, uint32_t capability)
{
    return session_for(&small, op, with, capability);
}

static Session session(const CudaAttentionLibrary *with, uint32_t capability)
{
    return session_of(OP_attention, with, capability);
}

static void close_session(Session *s)
{
    attention_chooser_close(s->chooser);
    compare_free();
    arena_free(s->arena);
}

/* Returns the kernel that computes the call on a single rank. */
static CudaAttentionKernel carried_out(Session *s)
{
    AttentionChoice own[4];
    CudaError error = {""};
    uint32_t n = attention_chooser_n(s->chooser), mma = the.mma, hopper = the.hopper,
             by = the.library;
    const uint32_t one = the.one;
    assert_true(n <= 4);
    attention_chooser_tell(s->chooser, own);
    attention_chooser_adopt(s->chooser, own, n);
    const CudaAttentionLibrary chosen = {s->chooser, attention_chooser_run};
    CudaContext cuda = s->cuda;
    cuda.attention = &chosen;
    assert_true(kernel_of(s->run.op)(&s->run.device, &cuda, &error));
    assert_int_equal(the.mma + the.hopper + the.library + the.one, mma + hopper + by + one + 1);
    return the.one > one         ? CUDA_ATTENTION_one
           : the.hopper > hopper ? CUDA_ATTENTION_hopper
           : the.library > by    ? CUDA_ATTENTION_library
                                 : CUDA_ATTENTION_mma;
}

static int begin(void **state)
{
    static const DeviceQueue queue = {NULL, launched, copied};
    (void)state;
    memset(&the, 0, sizeof the);
    runtime_double = (RuntimeDouble){0};
    memset(&kept, 0, sizeof kept);
    the.mma_ms = 3, the.hopper_ms = 1, the.library_ms = 2, the.one_ms = 4;
    device_set_queue(&queue);
    return 0;
}

static int end(void **state)
{
    (void)state;
    device_set_queue(NULL);
    assert_int_equal(runtime_double.objects, 0);
    return 0;
}

static void the_fastest_is_taken(void **state)
{
    (void)state;
    static const double ms[][3] = {{3, 1, 2}, {1, 3, 2}, {3, 2, 1}, {2, 2, 2}};
    static const CudaAttentionKernel best[] = {CUDA_ATTENTION_hopper, CUDA_ATTENTION_mma,
                                               CUDA_ATTENTION_library, CUDA_ATTENTION_mma};
    for (int k = 0; k < 8; k++) {
        const int i = k % 4;
        the.mma_ms = ms[i][0], the.hopper_ms = ms[i][1], the.library_ms = ms[i][2];
        memset(&kept, 0, sizeof kept);
        Session s = session_of(k < 4 ? OP_attention : OP_attention_grad, &library, 90);
        assert_int_equal(carried_out(&s), best[i]);
        assert_int_equal(kept.n, 1);
        assert_int_equal(kept.kernel, best[i]);
        assert_int_equal(kept.median_ps, (int64_t)(ms[i][best[i]] * 1e9));
        assert_null(attention_chooser_wrong(s.chooser));
        close_session(&s);
    }
}

static void stored_choices_are_not_timed_again(void **state)
{
    (void)state;
    Session s = session(NULL, 90);
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_hopper);
    close_session(&s);
    uint32_t before = the.hopper;
    the.hopper_ms = 100;
    s = session(NULL, 90);
    assert_int_equal(the.hopper, before);
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_hopper);
    assert_int_equal(kept.n, 1);
    close_session(&s);
    kept.kernel = CUDA_ATTENTION_KERNELS; /* an unknown choice, so kernels are timed again */
    s = session(NULL, 90);
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_mma);
    close_session(&s);
    kept.kernel = CUDA_ATTENTION_library; /* a library that does not exist here */
    s = session(NULL, 90);
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_mma);
    close_session(&s);
}

static void kernels_with_other_results_are_not_used(void **state)
{
    (void)state;
    the.hopper_is_wrong = true;
    Session s = session(NULL, 90);
    assert_non_null(attention_chooser_wrong(s.chooser));
    assert_non_null(strstr(attention_chooser_wrong(s.chooser), "Hopper's instructions differs"));
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_mma);
    assert_int_equal(kept.kernel, CUDA_ATTENTION_mma);
    close_session(&s);
}

/* With one key, the probability is 1 for every query. With the true output, the gradients of
 * queries and keys would be zero except for rounding, which differs between kernels. (The wrong
 * stride affects the queries from the eighth row on, which shows in the gradient of keys.) */
static void one_key_is_compared(void **state)
{
    (void)state;
    static const struct {
        OpKind op;
        bool wrong;
        CudaAttentionKernel kernel;
    } runs[] = {{OP_attention, false, CUDA_ATTENTION_hopper},
                {OP_attention_grad, false, CUDA_ATTENTION_hopper},
                {OP_attention_grad, true, CUDA_ATTENTION_mma}};
    AttentionCase one = small;
    one.T = 1, one.causal = false;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        the.hopper_is_wrong = runs[i].wrong;
        memset(&kept, 0, sizeof kept);
        Session s = session_for(&one, runs[i].op, NULL, 90);
        const char *about = attention_chooser_wrong(s.chooser);
        if (about && !runs[i].wrong) fail_msg("%s", about);
        if (runs[i].wrong) assert_non_null(strstr(about, "gradient of keys"));
        assert_int_equal(carried_out(&s), runs[i].kernel);
        close_session(&s);
    }
}

/* The gradient is timed in its own memory, and its choice is stored separately from that of the
 * forward pass. */
static void the_gradient_has_its_own_choice(void **state)
{
    (void)state;
    CudaError error = {""};
    Session s = session_of(OP_attention_grad, NULL, 90);
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_hopper);
    assert_non_null(strstr(kept.call, "attention_grad "));
    AttentionRun forward = attention_run(s.arena, &small, NULL);
    the.hopper_ms = 9;
    assert_true(
        attention_chooser_prepare(s.chooser, OP_attention, &forward.device, &s.cuda, &error));
    assert_int_equal(attention_chooser_n(s.chooser), 2);
    AttentionChoice both[2];
    attention_chooser_tell(s.chooser, both);
    assert_int_equal(both[0].kernel, CUDA_ATTENTION_hopper);
    assert_int_equal(both[1].kernel, CUDA_ATTENTION_mma);
    s.run.device.attrs.accumulate = 7;
    assert_true(
        attention_chooser_prepare(s.chooser, OP_attention_grad, &s.run.device, &s.cuda, &error));
    assert_int_equal(attention_chooser_n(s.chooser), 2);
    close_session(&s);
    the.hopper_is_wrong = true;
    memset(&kept, 0, sizeof kept);
    s = session_of(OP_attention_grad, NULL, 90);
    assert_non_null(strstr(attention_chooser_wrong(s.chooser), "its gradient of queries"));
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_mma);
    close_session(&s);
    the.hopper_is_wrong = false;
    memset(&kept, 0, sizeof kept);
    s = session_of(OP_attention_grad, NULL, 80);
    assert_int_equal(attention_chooser_n(s.chooser), 0);
    s.cuda.compute_capability = 90;
    s.run.device.attrs.accumulate = 7;
    assert_true(
        attention_chooser_prepare(s.chooser, OP_attention_grad, &s.run.device, &s.cuda, &error));
    assert_null(attention_chooser_wrong(s.chooser));
    close_session(&s);
}

/* The gradient of full tiles may be computed by one kernel. This kernel needs scratch memory, so a
 * stored choice of it is not used for a call without scratch. */
static void one_kernel_for_the_gradient_is_taken(void **state)
{
    (void)state;
    AttentionCase full = small;
    full.s = full.T = 128;
    for (int fastest = 0; fastest < 2; fastest++) {
        the.one_ms = fastest ? 0.5 : 1.5;
        memset(&kept, 0, sizeof kept);
        Session s = session_for(&full, OP_attention_grad, NULL, 90);
        assert_null(attention_chooser_wrong(s.chooser));
        assert_int_equal(carried_out(&s), fastest ? CUDA_ATTENTION_one : CUDA_ATTENTION_hopper);
        assert_int_equal(kept.kernel, fastest ? CUDA_ATTENTION_one : CUDA_ATTENTION_hopper);
        close_session(&s);
    }
    CudaError error = {""};
    /* the call whose choice is stored */
    Session s = session_for(&full, OP_attention_grad, NULL, 90);
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_one);
    const AttentionChooserOptions options = {
        .tune = true, .kept = &choices, .device = "H", .patience_s = .05};
    attention_chooser_close(s.chooser);
    s.chooser = attention_chooser_open(&options, &error);
    assert_non_null(s.chooser);
    s.run.device.elements[9] = s.run.device.elements[5] * (int64_t)sizeof(float);
    assert_true(
        attention_chooser_prepare(s.chooser, OP_attention_grad, &s.run.device, &s.cuda, &error));
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_hopper);
    close_session(&s);
    the.hopper_is_wrong = true;
    memset(&kept, 0, sizeof kept);
    s = session_for(&full, OP_attention_grad, NULL, 90);
    assert_non_null(
        strstr(attention_chooser_wrong(s.chooser), "one kernel with Hopper's instructions"));
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_mma);
    close_session(&s);
}

/* Two parts with equal first chunks and different second chunks see different keys. So their calls
 * must differ. */
static void another_second_chunk_is_another_call(void **state)
{
    (void)state;
    CudaError error = {""};
    AttentionCase part = small;
    AttentionChoice two[2];
    part.s = 20, part.T = 80;
    Session s = session_for(&part, OP_attention, NULL, 90);
    s.run.device.second['s'] = 70;
    assert_true(attention_chooser_prepare(s.chooser, OP_attention, &s.run.device, &s.cuda, &error));
    assert_int_equal(attention_chooser_n(s.chooser), 2);
    attention_chooser_tell(s.chooser, two);
    assert_non_null(strstr(two[0].call, " at 0, 10 causal"));
    assert_non_null(strstr(two[1].call, " at 0, 70 causal"));
    assert_int_equal(two[1].kernel, CUDA_ATTENTION_hopper);
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_hopper);
    close_session(&s);
}

static void other_devices_have_no_choice(void **state)
{
    (void)state;
    Session s = session(NULL, 80);
    assert_int_equal(attention_chooser_n(s.chooser), 0);
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_mma);
    close_session(&s);
    s = session(&library, 80);
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_library);
    the.library_refuses = true;
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_mma);
    close_session(&s);
    the.hopper_ms = 5;
    s = session(&library, 90); /* a library that refuses is not a candidate */
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_mma);
    assert_int_equal(the.hopper, 7);
    close_session(&s);
}

/* The first waits are for the mma.sync kernel. The next wait, for Hopper's kernel, never ends.
 * Nothing may be freed then, because that would wait for the kernel. So the case runs in another
 * process, which ends in this state. */
static void a_hanging_kernel_is_reported(void **state)
{
    (void)state;
    static const char text[] =
        "attention by Hopper's instructions, timed before the first step, did not end within "
        "0.05 s: --mma leaves these kernels out";
    Session s = session(NULL, 90);
    const uint32_t waits = runtime_double.waits;
    int status;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const AttentionChooserOptions options = {.tune = true, .device = "H", .patience_s = .05};
        CudaError error = {""};
        AttentionChooser *chooser = attention_chooser_open(&options, &error);
        runtime_double.hangs_at = waits + waits / 2 + 1;
        bool told =
            chooser != NULL && !attention_chooser_hang(chooser) &&
            !attention_chooser_prepare(chooser, OP_attention, &s.run.device, &s.cuda, &error) &&
            attention_chooser_hang(chooser) && strcmp(error.text, text) == 0;
        _exit(told && runtime_double.objects > 0 ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close_session(&s);
}

static void without_memory_nothing_is_timed(void **state)
{
    (void)state;
    runtime_double.no_memory = true;
    Session s = session(NULL, 90);
    assert_int_equal(the.mma + the.hopper, 0);
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_mma);
    assert_int_equal(kept.n, 0);
    close_session(&s);
}

/* Ranks report three choices, in the order of ranks: one for another call, rank 0's for this call,
 * and our own for it. */
static void ranks_agree_on_one_choice(void **state)
{
    (void)state;
    Session s = session(NULL, 90);
    AttentionChoice all[3] = {{"another", CUDA_ATTENTION_library, 1}};
    attention_chooser_tell(s.chooser, &all[2]);
    assert_int_equal(all[2].kernel, CUDA_ATTENTION_hopper);
    all[1] = all[2];
    all[1].kernel = CUDA_ATTENTION_mma;
    attention_chooser_adopt(s.chooser, all, 3);
    assert_int_equal(kept.kernel, CUDA_ATTENTION_mma);
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_mma);
    all[1].kernel = CUDA_ATTENTION_hopper;
    attention_chooser_adopt(s.chooser, all, 3);
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_hopper);
    all[2].wrong = 1; /* one rank that finds it wrong is enough */
    attention_chooser_adopt(s.chooser, all, 3);
    assert_int_equal(carried_out(&s), CUDA_ATTENTION_mma);
    close_session(&s);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(the_fastest_is_taken),
        TEST(stored_choices_are_not_timed_again),
        TEST(kernels_with_other_results_are_not_used),
        TEST(one_key_is_compared),
        TEST(the_gradient_has_its_own_choice),
        TEST(one_kernel_for_the_gradient_is_taken),
        TEST(another_second_chunk_is_another_call),
        TEST(other_devices_have_no_choice),
        TEST(a_hanging_kernel_is_reported),
        TEST(without_memory_nothing_is_timed),
        TEST(ranks_agree_on_one_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
