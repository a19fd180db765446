/* If an error concerns several values, it is reported at the --set that caused it.
 * tests/bad_input/blame_* run whole commands. Here the settings of one rule are compared with each
 * other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "cli/cli.h"
#include "planner/front/check/blame.h"
#include "planner/front/keys/fields.h"
#include "planner/front/pass_spec.h"

typedef struct Case {
    const char *rule, *text;
    Loc at;               /* where the rule found the error */
    const char *set[3];   /* in the order of the command line */
    const char *expected; /* NULL: the error keeps its place */
} Case;

static const Loc script = {"plan.lua", 4};
static const char heads[] = "heads = 12 cannot be divided over tp = 5";

#define AT .at = {"plan.lua", 4}
static const Case cases[] = {
    /* The setting names a value of the rule, or the table that contains the value. */
    {"mesh-product", "mesh dp_shard 3 x tp 5 = 15", AT, {"mesh.tp=5"}, "mesh.tp=5"},
    {"mesh-product", "the cluster has 3 nodes", AT, {"cluster.nodes=3"}, "cluster.nodes=3"},
    {"mesh-product", "the cluster has 3 nodes", AT, {"cluster=dgx_h100"}, "cluster=dgx_h100"},
    /* The setting names a value that the message does not mention, or one that the rule does not
     * read. */
    {"mesh-product", "mesh dp_shard 3 x tp 5 = 15", AT, {"mesh.cp=1"}, NULL},
    {"mesh-product", "mesh dp_shard 3 x tp 5 = 15", AT, {"batch.seq=5"}, NULL},
    {"mesh-product", "the cluster has 3 nodes", AT, {"cluster.device.watts=3"}, NULL},
    /* The setting's name begins with the name of a value of the rule. */
    {"mesh-product", "mesh dp_shard 3 x tp 5 = 15", AT, {"meshes.tp=5"}, NULL},
    {"mesh-product", "mesh dp_shard 3 = 3", AT, {"mesh.dp=3"}, NULL},
    /* The last of several settings counts. A size of -1 follows from the others, so it is not
     * blamed. */
    {"divides-heads", heads, AT, {"mesh.tp=4", "mesh.tp=5"}, "mesh.tp=5"},
    {"divides-heads", heads, AT, {"model.heads=12", "mesh.tp=5"}, "mesh.tp=5"},
    {"divides-heads", heads, .at = {NULL, 0}, {"mesh.tp=5", "model.heads=12"}, "model.heads=12"},
    {"mesh-product",
     "mesh.dp_shard = -1: tp 5",
     AT,
     {"mesh.tp=5", "mesh.dp_shard=-1"},
     "mesh.tp=5"},
    {"mesh-product", "mesh.dp_shard = -1: 3 nodes", AT, {"mesh.dp_shard=-1"}, "mesh.dp_shard=-1"},
    /* The line of the user's own module says more than the setting of the model. */
    {"divides-heads", heads, AT, {"model.heads=12"}, NULL},
    /* The setting's word occurs in the message. */
    {"dtype-unsupported",
     "H100 has no fp4",
     AT,
     {"precision.compute=fp4"},
     "precision.compute=fp4"},
    {"dtype-unsupported", "H100 has no fp4", AT, {"precision.reduce=fp32"}, NULL},
    /* The setting of the value that the hint changes is blamed, even if another setting comes
     * later. */
    {"ep-fold", "mesh.ep = 3: dp_shard 8", AT, {"mesh.ep=3", "mesh.dp_shard=8"}, "mesh.ep=3"},
    {"ep-fold", "mesh.ep = 3: dp_shard 8", AT, {"mesh.dp_shard=8"}, "mesh.dp_shard=8"},
    /* This rule has no row. */
    {"unknown-key", "unknown key 'tq' in mesh", AT, {"mesh.tq=1"}, NULL},
};

static void the_last_setting_of_a_rules_values_is_blamed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        Arena *arena = arena_new();
        Diag d = diag_in(arena);
        uint32_t n = 0;
        while (n < 3 && c->set[n] != NULL) n++;
        /* An earlier error keeps its place. */
        diag_error(&d, FAULT_input, c->rule, script, "%s", c->text);
        diag_warning(&d, c->rule, script, "%s", c->text);
        diag_error(&d, FAULT_input, c->rule, c->at, "%s", c->text);
        front_blame_settings(c->set, n, 1, &d);
        for (uint32_t k = 0; k < 2; k++) assert_string_equal(d.items.at[k].loc.file, script.file);
        const char *file = d.items.at[2].loc.file;
        const char *expected =
            c->expected != NULL ? arena_print(arena, "--set %s", c->expected) : c->at.file;
        if (file == NULL || strcmp(file, expected) != 0)
            fail_msg("%s with %s: %s is blamed, not %s", c->rule, c->set[n - 1],
                     file != NULL ? file : "nothing", expected);
        assert_int_equal(d.items.at[2].loc.line, c->expected != NULL ? 0 : c->at.line);
        arena_free(arena);
    }
}

/* Returns true if a setting can give the value, or a value of the table with this name. */
static bool can_be_set(const char *value, size_t n)
{
    static const char passes[] = "parallel.";
    static const char *const of_scripts[] = {"model",
                                             /* These words name no fields, because the library
                                              * reads them. */
                                             "gpu"};
    for (size_t i = 0; i < 2; i++)
        if (n == strlen(of_scripts[i]) && strncmp(value, of_scripts[i], n) == 0) return true;
    if (strncmp(value, passes, strlen(passes)) == 0) {
        for (uint32_t p = 0; p < PASS_NAME_COUNT; p++)
            if (strlen(pass_specs[p]->name) == n - strlen(passes) &&
                strncmp(pass_specs[p]->name, value + strlen(passes), n - strlen(passes)) == 0)
                return true;
        return false;
    }
    for (uint32_t i = 0; field_at(false, i) != NULL; i++) {
        const char *path = field_at(false, i)->path;
        if (field_is_in(path, strlen(path), value, n)) return true;
    }
    return false;
}

static void every_row_names_a_rule_and_settable_values(void **state)
{
    (void)state;
    const char *rule, *values;
    uint32_t n_values = 0;
    for (uint32_t i = 0; (values = front_blame_values(i, &rule)) != NULL; i++) {
        if (rule_find(rule) == NULL) fail_msg("%s is no rule", rule);
        for (uint32_t k = 0; k < i; k++) {
            const char *other;
            front_blame_values(k, &other);
            assert_string_not_equal(rule, other); /* otherwise the second row would never be read */
        }
        for (const char *at = values;; at++) {
            const size_t n = strcspn(at, " ");
            if (!can_be_set(at, n)) fail_msg("%s: no setting gives '%.*s'", rule, (int)n, at);
            n_values++;
            at += n;
            if (*at == 0) break;
        }
    }
    assert_true(n_values > 40);
    assert_false(can_be_set("mesh.tpp", 8));
    assert_false(can_be_set("parallel.tpp", 12));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_setting_of_a_rules_values_is_blamed),
        cmocka_unit_test(every_row_names_a_rule_and_settable_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
