/* Draws predictions against measurements as scatter plots, with one square panel for each predicted
 * quantity. Both axes are logarithmic and have the same range. One line shows where prediction and
 * measurement are equal. Two dashed lines show where they differ by a factor of 1.3. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/accuracy/accuracy.h"

enum { PANEL = 360, EDGE = 48, MOST_PANELS = 12 };

typedef struct Panel {
    const char *what;
    double low, high; /* range of both axes, as powers of ten */
    double left;
} Panel;

static bool is_plotted(const Score *s)
{
    return !s->verdict && s->measured > 0 && s->predicted > 0;
}

static Panel *panel_of(Panel *panels, uint32_t *n, const Score *s)
{
    for (uint32_t i = 0; i < *n; i++)
        if (strcmp(panels[i].what, s->what) == 0) return &panels[i];
    if (*n == MOST_PANELS) return NULL;
    panels[*n] = (Panel){s->what, 1e9, -1e9, (double)*n * PANEL};
    return &panels[(*n)++];
}

static void widen(Panel *p, double value)
{
    p->low = fmin(p->low, floor(4 * log10(value)) / 4);
    p->high = fmax(p->high, ceil(4 * log10(value)) / 4);
}

static double place(const Panel *p, double value)
{
    double part = (log10(value) - p->low) / fmax(p->high - p->low, .25);
    return part * (PANEL - 2 * EDGE);
}

static void draw_line(FILE *f, const Panel *p, double factor, const char *style)
{
    double low = pow(10, p->low), high = pow(10, p->high);
    double from = factor < 1 ? low / factor : low, to = factor > 1 ? high / factor : high;
    fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n",
            p->left + EDGE + place(p, from), PANEL - EDGE - place(p, from * factor),
            p->left + EDGE + place(p, to), PANEL - EDGE - place(p, to * factor), style);
}

/* Writes a text with XML's characters escaped. The file must be well-formed whatever the cells of
 * the table contain. */
static void put_text(FILE *f, const char *text)
{
    for (; *text != 0; text++) {
        if (*text == '<')
            fputs("&lt;", f);
        else if (*text == '&')
            fputs("&amp;", f);
        else if ((unsigned char)*text >= ' ')
            fputc(*text, f);
    }
}

static void draw_frame(FILE *f, const Panel *p)
{
    int side = PANEL - 2 * EDGE;
    fprintf(f,
            "<rect x=\"%.0f\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" "
            "stroke=\"#888\"/>\n<text x=\"%.0f\" y=\"%d\">",
            p->left + EDGE, EDGE, side, side, p->left + EDGE, EDGE - 10);
    put_text(f, p->what);
    fprintf(f, "</text>\n");
    for (double decade = ceil(p->low); decade <= p->high; decade++) {
        double at = place(p, pow(10, decade));
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" font-size=\"9\">1e%.0f</text>\n", p->left + EDGE + at,
                PANEL - EDGE + 14, decade);
    }
    fprintf(f, "<text x=\"%.0f\" y=\"%d\" font-size=\"9\">measured; upwards: predicted</text>\n",
            p->left + EDGE, PANEL - EDGE + 30);
    draw_line(f, p, 1, "stroke=\"#444\"");
    draw_line(f, p, 1.3, "stroke=\"#bbb\" stroke-dasharray=\"3 3\"");
    draw_line(f, p, 1 / 1.3, "stroke=\"#bbb\" stroke-dasharray=\"3 3\"");
}

bool scores_plot(Cli *cli, const char *path, const Scores *const *all, uint32_t n)
{
    Panel panels[MOST_PANELS];
    uint32_t n_panels = 0;
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < all[k]->rows.n; i++) {
            const Score *s = &all[k]->rows.at[i];
            Panel *p = is_plotted(s) ? panel_of(panels, &n_panels, s) : NULL;
            if (p == NULL) continue;
            widen(p, s->measured);
            widen(p, s->predicted);
        }
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (f == NULL)
        return cli_error(cli, FAULT_internal, "output", "cannot write %s: %s", path,
                         strerror(errno));
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            PANEL * (n_panels > 0 ? n_panels : 1), PANEL);
    for (uint32_t i = 0; i < n_panels; i++) draw_frame(f, &panels[i]);
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < all[k]->rows.n; i++) {
            const Score *s = &all[k]->rows.at[i];
            const Panel *p = is_plotted(s) ? panel_of(panels, &n_panels, s) : NULL;
            if (p == NULL) continue;
            fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2\" fill=\"%s\" opacity=\"0.5\"/>\n",
                    p->left + EDGE + place(p, s->measured), PANEL - EDGE - place(p, s->predicted),
                    strcmp(s->split, "dev-cal") == 0 ? "#1f77b4" : "#d62728");
        }
    fprintf(f, "</svg>\n");
    bool fine = fclose(f) == 0 && cli_write_file(cli, path, text, size);
    free(text);
    return fine;
}
