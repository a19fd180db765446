/* See checkpoint_case.h. */
#include "tests/support/checkpoint_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <unistd.h>

int checkpoint_case_setup(void **state)
{
    Arena *arena = arena_new();
    CheckpointCase *c = arena_alloc(arena, sizeof *c);
    char here[4096];
    assert_non_null(getcwd(here, sizeof here)); /* Some tests run in another folder. */
    c->arena = arena;
    c->plan = TANDEM_SOURCE_DIR "/scripts/plans/tiny_text.lua";
    c->folder = arena_print(arena, "%s/%s", here, command_new_folder(arena));
    c->db = arena_print(arena, "%s/%s/t.db", here, command_new_folder(arena));
    *state = c;
    return 0;
}

int checkpoint_case_teardown(void **state)
{
    CheckpointCase *c = *state;
    arena_free(c->arena);
    return 0;
}

void checkpoint_case_expect(const CommandResult *r, int code, const char *out, const char *err)
{
    if (r->exit_code != code || strstr(r->out, out) == NULL || strstr(r->err, err) == NULL)
        fail_msg("code %d instead of %d; ...%s... and ...%s... expected\n%s\n%s", r->exit_code,
                 code, out, err, r->out, r->err);
}
