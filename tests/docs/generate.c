/* Writes docs/reference and docs/tandem.svg into the source tree (`make docs`). */
#include <stdio.h>

#include "tests/docs/pages.h"
#include "tests/support/command.h"

int main(void)
{
    Arena *arena = arena_new();
    for (uint32_t i = 0; i < n_pages; i++) {
        command_write_file(arena_print(arena, TANDEM_SOURCE_DIR "/%s", pages[i].path),
                           pages[i].make(arena));
        printf("%s\n", pages[i].path);
    }
    arena_free(arena);
    return 0;
}
