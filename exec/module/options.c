/* Combines the option tables of all backends, and stores the value of an option in its field. */
#include "exec/module/options.h"

#include <stdlib.h>
#include <string.h>

#include "exec/cuda/options.h"
#include "exec/process/options.h"

#define BACKEND_WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

const BackendOption backend_options[BACKEND_OPTION_COUNT] = {
#define BACKEND_OPTION(backend_, type_, id_, name_, kind_, member_, value_, words_, least_, most_, \
                       uses_, help_)                                                               \
    [BACKEND_OPTION_##id_] = {.backend = #backend_,                                                \
                              .name = name_,                                                       \
                              .kind = BACKEND_KIND_##kind_,                                        \
                              .field = offsetof(type_, member_),                                   \
                              .value = value_,                                                     \
                              .words = words_,                                                     \
                              .least = least_,                                                     \
                              .most = most_,                                                       \
                              .uses = uses_,                                                       \
                              .help = help_},
#include "exec/module/options.def"
};

static const struct {
    const char *backend;
    size_t bytes;
} own[] = {{"mpi", sizeof(ProcessOptions)}, {"cuda", sizeof(CudaOptions)}};

void *backend_own_options(const char *backend, Arena *arena)
{
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(own[i].backend, backend) == 0) return arena_array(arena, 1, own[i].bytes);
    return NULL;
}

static bool set_word(const BackendOption *option, const char *text, void *field)
{
    for (uint32_t i = 0; option->words[i] != NULL; i++) {
        if (option->words[i][0] == 0 || strcmp(option->words[i], text) != 0) continue;
        *(uint32_t *)field = i; /* the compiler makes enum fields as wide as uint32_t */
        return true;
    }
    return false;
}

static bool set_number(const BackendOption *option, const char *text, void *field)
{
    char *end = NULL;
    const unsigned long long n = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != 0 || n < option->least || n > option->most)
        return false;
    *(uint32_t *)field = (uint32_t)n + 1;
    return true;
}

bool backend_set_option(const BackendOption *option, const BackendValue *value, void *own_)
{
    void *field = (char *)own_ + option->field;
    if (option->kind == BACKEND_KIND_flag)
        *(bool *)field = value->is_set;
    else if (value->text == NULL)
        return true;
    else if (option->kind == BACKEND_KIND_word)
        return set_word(option, value->text, field);
    else if (option->kind == BACKEND_KIND_number)
        return set_number(option, value->text, field);
    else
        *(const char **)field = value->text;
    return true;
}
