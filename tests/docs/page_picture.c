/* docs/tandem.svg: plan -> passes -> program -> proofs -> sim | exec, with the code's own lists. */
#include <string.h>

#include "exec/backend.h"
#include "planner/passes/passes.h"
#include "tests/docs/pages.h"

enum { LINE = 17, COLUMN = 190, TOP = 40 };

static void add_words(Str *out, int x, int y, const char *text, const char *how)
{
    str_print(out, "<text x=\"%d\" y=\"%d\"%s>%s</text>\n", x, y, how, text);
}

/* Adds a box with a title and lines below it. Returns its height. */
static int add_box(Str *out, int x, int y, int width, const char *title, const char *const *lines,
                   uint32_t n)
{
    int height = 30 + (int)n * LINE;
    str_print(out,
              "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\" fill=\"#f4f6f8\" "
              "stroke=\"#5b6b7b\"/>\n",
              x, y, width, height);
    add_words(out, x + 10, y + 20, title, " font-weight=\"bold\"");
    for (uint32_t i = 0; i < n; i++)
        add_words(out, x + 10, y + 38 + (int)i * LINE, lines[i], " fill=\"#333\"");
    return height;
}

static void add_arrow(Str *out, int x1, int y1, int x2, int y2)
{
    str_print(out,
              "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#5b6b7b\" "
              "stroke-width=\"2\" marker-end=\"url(#head)\"/>\n",
              x1, y1, x2, y2);
}

static void add_start(Str *out, int width, int height)
{
    str_print(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
        "font-family=\"sans-serif\" font-size=\"13\">\n"
        "<!-- Written by `make docs` from the lists of passes, streams and backends. -->\n"
        "<defs><marker id=\"head\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"4\" "
        "orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" fill=\"#5b6b7b\"/></marker></defs>\n"
        "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n",
        width, height, width, height);
}

const char *page_picture(Arena *arena)
{
    static const char *const plan[] = {"model",    "cluster",   "batch",    "mesh",
                                       "parallel", "precision", "optimizer"};
    static const char *const proofs[] = {"layouts",  "scale",    "races",
                                         "deadlock", "coverage", "fit"};
    static const char *const sim[] = {"virtual time:", "step, memory,", "communication"};
    const char *passes[64], *streams[STREAM_COUNT], *backends[8];
    uint32_t n_passes = 0, n_streams = 0, n_backends = 0;
    for (uint32_t i = 0; i < passes_count && n_passes < 64; i++)
        passes[n_passes++] = passes_list[i].name;
    for (uint32_t s = STREAM_none + 1; s < STREAM_COUNT; s++)
        streams[n_streams++] = stream_name((Stream)s);
    backends[n_backends++] = "real time, on:";
    for (uint32_t i = 0; backend_name(i) != NULL && n_backends < 8; i++)
        backends[n_backends++] = backend_name(i);
    Str out = str_in(arena);
    int height = TOP + 30 + (int)n_passes * LINE + 30, middle = height / 2, width = 140;
    add_start(&out, 5 * COLUMN - 30, height);
    int half = (30 + 7 * LINE) / 2;
    add_box(&out, 20, middle - half, width, "plan (Lua)", plan, 7);
    add_box(&out, 20 + COLUMN, TOP, width, "passes", passes, n_passes);
    half = (30 + (int)n_streams * LINE) / 2;
    add_box(&out, 20 + 2 * COLUMN, middle - half, width, "program: streams", streams, n_streams);
    half = (30 + 6 * LINE) / 2;
    add_box(&out, 20 + 3 * COLUMN, middle - half, width - 10, "proofs", proofs, 6);
    int last = 20 + 4 * COLUMN - 10, low = middle + 30;
    int tall = add_box(&out, last, middle - 30 - (30 + 3 * LINE), width, "sim", sim, 3);
    add_box(&out, last, low, width, "exec", backends, n_backends);
    for (int i = 0; i < 3; i++)
        add_arrow(&out, 20 + i * COLUMN + width, middle, 20 + (i + 1) * COLUMN - 4, middle);
    add_arrow(&out, 20 + 3 * COLUMN + width - 10, middle, last - 4, middle - 30 - tall / 2);
    add_arrow(&out, 20 + 3 * COLUMN + width - 10, middle, last - 4, low + tall / 2);
    str_add(&out, "</svg>\n");
    return str_text(&out);
}
