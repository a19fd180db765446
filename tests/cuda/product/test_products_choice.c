/* A product and the ops that can be fused with it run as one call, or one by one. A stored choice
 * decides which. Without one, the first rank that has a choice decides, and otherwise the times of
 * both ways. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tests/cuda/cublas/cublas_double.h"
#include "tests/cuda/product/product_chain.h"
#include "tests/cuda/runtime_double.h"

enum { MAX_KEPT = 8 };
typedef struct Kept {
    uint32_t n;
    struct {
        char call[GEMM_NAME_BYTES], choice[64];
    } at[MAX_KEPT];
} Kept;

static bool kept_get(void *self, const char *device, const char *call, void *choice, size_t bytes)
{
    const Kept *kept = self;
    (void)device;
    for (uint32_t i = 0; i < kept->n; i++)
        if (!strcmp(kept->at[i].call, call)) {
            memcpy(choice, kept->at[i].choice, bytes);
            return true;
        }
    return false;
}

static void kept_put(void *self, const char *device, const char *call, const void *choice,
                     size_t bytes, int64_t median_ps)
{
    Kept *kept = self;
    (void)device;
    assert_true(median_ps > 0 && kept->n < MAX_KEPT && bytes == 64);
    (void)snprintf(kept->at[kept->n].call, sizeof kept->at[0].call, "%s", call);
    memcpy(kept->at[kept->n++].choice, choice, bytes);
}

static void prepare(const Chain *ch, const CudaContext *cuda)
{
    CudaError error = {""};
    assert_true(cuda_products_prepare(ch->part[0].op, ch->part[0].args, cuda, &error));
    assert_true(cuda_products_prepare_chain(ch->part, ch->n, cuda, &error));
}

static uint32_t choices_of(const CudaContext *cuda, CudaProductChoice all[4])
{
    uint32_t n = cuda_products_counts(cuda->products).calls;
    assert_in_range(n, 1, 4);
    cuda_products_choices(cuda->products, all);
    return n;
}

/* The faster way is stored and found again, also if that is one by one. */
static void the_faster_way_is_stored(void **state)
{
    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        Kept kept = {0};
        const KernelChoices choices = {&kept, kept_get, kept_put};
        CudaProductOptions options = chain_hopper;
        options.kept = &choices;
        options.tune = true;
        Chain ch = chain_of_eights("bias, gelu, kept");
        chain_point(&ch);
        for (int again = 0; again < 2; again++) {
            cublas_double_reset();
            cublas_double.epilogue_ms = slow ? 1 : -.25;
            CudaContext cuda = chain_open_products(&options);
            CudaProductChoice all[4];
            CudaError error = {""};
            prepare(&ch, &cuda);
            uint32_t n = choices_of(&cuda, all);
            /* the product is timed alone and with its fused ops */
            assert_int_equal(n, 2);
            assert_true(cuda_products_settle(cuda.products, all, n, 0, &error));
            assert_int_equal(cuda_products_counts(cuda.products).kept, again ? 2 : 0);
            assert_int_equal(cuda_products_counts(cuda.products).timed, again ? 0 : 2);
            if (again) assert_int_equal(cublas_double.products, 0);
            assert_int_equal(chain_length(&ch, ch.n, &cuda), slow ? 0 : 3);
            assert_int_equal(kept.n, 2);
            cuda_products_close(cuda.products);
            assert_int_equal(cublas_double.objects + runtime_double.objects, 0);
        }
        chain_free(&ch);
    }
}

/* Two ranks have measured opposite times. Both follow the first rank's choice, and the first rank
 * stores it. */
static void ranks_follow_the_first_ranks_choice(void **state)
{
    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        Kept kept[2] = {{0}, {0}};
        KernelChoices choices[2];
        CudaContext cuda[2];
        CudaProductChoice all[8];
        CudaError error = {""};
        Chain ch = chain_of_eights("bias, gelu, kept");
        chain_point(&ch);
        cublas_double_reset();
        for (int rank = 0; rank < 2; rank++) {
            choices[rank] = (KernelChoices){&kept[rank], kept_get, kept_put};
            CudaProductOptions options = chain_hopper;
            options.kept = &choices[rank];
            options.tune = true;
            cublas_double.epilogue_ms = rank == slow ? -.25 : 1;
            /* each rank also finds a different algorithm the fastest */
            cublas_double.ms[DOUBLE_WAY_split] = rank ? 1 : 3;
            cuda[rank] = chain_open_products(&options);
            prepare(&ch, &cuda[rank]);
            assert_int_equal(choices_of(&cuda[rank], all + 2 * rank), 2);
            assert_int_equal(chain_length(&ch, ch.n, &cuda[rank]), rank == slow ? 3 : 0);
        }
        assert_memory_not_equal(all, all + 2, 2 * sizeof all[0]);
        for (uint32_t rank = 0; rank < 2; rank++) {
            CudaProductChoice after[4];
            assert_true(cuda_products_settle(cuda[rank].products, all, 4, 2 * rank, &error));
            assert_int_equal(choices_of(&cuda[rank], after), 2);
            assert_memory_equal(after, all, 2 * sizeof all[0]);
            assert_int_equal(chain_length(&ch, ch.n, &cuda[rank]), slow ? 0 : 3);
            cuda_products_close(cuda[rank].products);
        }
        assert_int_equal(kept[0].n, 2);
        assert_int_equal(kept[1].n, 0);
        assert_int_equal(cublas_double.objects + runtime_double.objects, 0);
        chain_free(&ch);
    }
}

/* If the library does not accept another rank's choice here, the run ends. */
static void a_choice_that_is_not_accepted_ends_the_run(void **state)
{
    (void)state;
    cublas_double_reset();
    CudaContext cuda = chain_open_products(&chain_hopper);
    CudaProductChoice all[4];
    CudaError error = {""};
    Chain ch = chain_of_eights("bias");
    chain_point(&ch);
    prepare(&ch, &cuda);
    assert_int_equal(choices_of(&cuda, all), 2);
    memset(all[1].choice, 0x77, sizeof all[1].choice);
    assert_false(cuda_products_settle(cuda.products, all, 2, 2, &error));
    assert_non_null(strstr(error.text, "another rank has chosen"));
    cuda_products_close(cuda.products);
    chain_free(&ch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_faster_way_is_stored),
        cmocka_unit_test(ranks_follow_the_first_ranks_choice),
        cmocka_unit_test(a_choice_that_is_not_accepted_ends_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
