/* See loaded.h. */
#include "tests/support/loaded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tests/support/command.h"

Loaded load_file(const char *path, const FrontOptions *options)
{
    Loaded l = {.arena = arena_new()};
    Diag d = diag_in(l.arena);
    l.fine = front_load(path, options, l.arena, &l.config, &l.graph, &d);
    Str text = str_in(l.arena);
    diag_print(&d, &text);
    l.errors = str_text(&text);
    assert_int_equal(l.fine, d.n_errors == 0);
    return l;
}

Loaded load_text(const char *script, const FrontOptions *options)
{
    command_write_file("script.lua", script);
    return load_file("script.lua", options);
}

Loaded load_model(const char *model, int seq)
{
    Arena *arena = arena_new();
    const char *script = arena_print(
        arena, "return plan { model = require 'models.%s, batch = { seq = %d } }\n", model, seq);
    Loaded l = load_text(script, NULL);
    arena_free(arena);
    if (!l.fine) print_error("%s", l.errors);
    assert_true(l.fine);
    return l;
}

TensorId loaded_tensor(const Graph *g, const char *name)
{
    for (TensorId t = 1; t < g->tensors.n; t++)
        if (strcmp(g->tensors.at[t].name, name) == 0) return t;
    print_error("no tensor %s\n", name);
    fail();
    return 0;
}
