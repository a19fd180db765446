/* One table lists the options of the backends. Each row is complete, and a value is stored in the
 * field that the row names. A wrong offset would silently set another option. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "exec/backend.h"
#include "exec/cuda/options.h"
#include "exec/module/options.h"
#include "exec/process/options.h"

static bool is_backend(const char *name)
{
    for (uint32_t i = 0; backend_name(i) != NULL; i++)
        if (strcmp(backend_name(i), name) == 0) return true;
    return false;
}

static void every_row_is_complete(void **state)
{
    (void)state;
    for (int id = 0; id < BACKEND_OPTION_COUNT; id++) {
        const BackendOption *o = &backend_options[id];
        Arena *arena = arena_new();
        print_message("%s --%s\n", o->backend, o->name);
        assert_true(is_backend(o->backend));
        assert_non_null(backend_own_options(o->backend, arena));
        assert_int_equal(strncmp(o->help, o->backend, strlen(o->backend)),
                         0); /* the help names the backend first */
        assert_int_equal(o->kind == BACKEND_KIND_flag, o->value == NULL);
        assert_int_equal(o->kind == BACKEND_KIND_word, o->words != NULL);
        if (o->kind == BACKEND_KIND_number) assert_true(o->least < o->most);
        assert_true(o->uses & BACKEND_RUNS);
        for (int other = 0; other < id; other++)
            assert_string_not_equal(o->name, backend_options[other].name);
        arena_free(arena);
    }
}

static bool set(void *own, BackendOptionId id, const char *text)
{
    const BackendValue value = {.text = text, .is_set = text == NULL};
    return backend_set_option(&backend_options[id], &value, own);
}

static void a_value_sets_its_field_only(void **state)
{
    (void)state;
    CudaOptions own = {.graphs = CUDA_GRAPHS_auto};
    assert_true(set(&own, BACKEND_OPTION_graph, "none"));
    assert_int_equal(own.graphs, CUDA_GRAPHS_none);
    assert_true(set(&own, BACKEND_OPTION_via, "host"));
    assert_int_equal(own.via, CUDA_VIA_host);
    assert_true(set(&own, BACKEND_OPTION_device, "0"));
    assert_int_equal(own.device, 1);
    assert_true(set(&own, BACKEND_OPTION_tf32, NULL));
    assert_true(own.tf32 && !own.cudnn && !own.mma && !own.share_device);
    assert_true(set(&own, BACKEND_OPTION_record, "here"));
    assert_string_equal(own.record, "here");
    ProcessOptions mpi = {.native = false};
    assert_true(set(&mpi, BACKEND_OPTION_native, NULL) && mpi.native);
}

static void wrong_values_are_refused(void **state)
{
    (void)state;
    CudaOptions own = {.graphs = CUDA_GRAPHS_auto};
    static const struct {
        BackendOptionId id;
        const char *text;
    } wrong[] = {{BACKEND_OPTION_graph, "auto"}, {BACKEND_OPTION_graph, ""},
                 {BACKEND_OPTION_via, "mpi"},    {BACKEND_OPTION_device, "-1"},
                 {BACKEND_OPTION_device, "1x"},  {BACKEND_OPTION_device, "2147483647"},
                 {BACKEND_OPTION_device, ""}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (set(&own, wrong[i].id, wrong[i].text)) fail_msg("accepts %s", wrong[i].text);
    assert_int_equal(own.device, 0);
    Arena *arena = arena_new();
    assert_null(backend_own_options("loopback", arena));
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_complete),
        cmocka_unit_test(a_value_sets_its_field_only),
        cmocka_unit_test(wrong_values_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
