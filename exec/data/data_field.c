/* Data sources of fields: a file, a wave that travels eastward, and noise. A sample depends only on
 * its global index. */
#include "exec/data/data_field.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/base/rng.h"

enum { STREAM_TIME = 6, STREAM_NOISE = 7, WAVE_TIMES = 1 << 12, WAVE_PERIOD = 24 };

/* Returns the id of a stream of random numbers. Each use, step and micro-batch has its own stream.
 */
static uint64_t stream_of(uint64_t use, const FieldLine *f)
{
    return use << 60 ^ (uint64_t)f->step << 24 ^ f->microbatch;
}

static uint64_t time_of(uint64_t seed, const FieldLine *f, uint64_t times)
{
    return rng_below(seed, stream_of(STREAM_TIME, f), (uint64_t)f->sample, times) + f->is_target;
}

void data_wave_line(uint64_t seed, const FieldLine *f, double *values)
{
    const double pi = 3.14159265358979323846;
    double t = (double)time_of(seed, f, WAVE_TIMES), number = (double)(1 + f->channel % 3);
    double latitude = pi * (((double)f->row + 0.5) / (double)f->rows - 0.5);
    for (int64_t i = 0; i < f->n; i++) {
        double east = 2 * pi * (double)(f->column + i) / (double)f->columns;
        values[i] = cos(latitude) * sin(number * east - 2 * pi * t / WAVE_PERIOD +
                                        0.7 * (double)f->channel + latitude);
    }
}

void data_noise_line(uint64_t seed, const FieldLine *f, double *values)
{
    uint64_t stream = stream_of(STREAM_NOISE, f) ^ (f->is_target ? UINT64_C(1) << 59 : 0);
    uint64_t at =
        (uint64_t)(((f->sample * f->channels + f->channel) * f->rows + f->row) * f->columns +
                   f->column);
    for (int64_t i = 0; i < f->n; i++) values[i] = rng_normal(seed, stream, at + (uint64_t)i);
}

/* ---- files of numpy.save: [times, channels, height, width], f4 or f8, little endian ---- */

typedef struct Grid {
    uint64_t seed;
    int64_t dim[4];
    bool is_double;
    const unsigned char *at;
} Grid;

static void grid_line(void *self, const FieldLine *f, double *values)
{
    const Grid *g = self;
    uint64_t time = time_of(g->seed, f, (uint64_t)g->dim[0] - 1);
    uint64_t row = (time * (uint64_t)g->dim[1] + (uint64_t)f->channel) * (uint64_t)g->dim[2] +
                   (uint64_t)f->row;
    uint64_t from = row * (uint64_t)g->dim[3] + (uint64_t)f->column;
    for (int64_t i = 0; i < f->n; i++) {
        if (g->is_double) {
            memcpy(&values[i], g->at + (from + (uint64_t)i) * sizeof(double), sizeof(double));
        } else {
            float x;
            memcpy(&x, g->at + (from + (uint64_t)i) * sizeof x, sizeof x);
            values[i] = (double)x;
        }
    }
}

static bool bad_file(Diag *d, const char *path, const char *why)
{
    diag_error(d, FAULT_input, "data-file", (Loc){NULL, 0}, "%s: %s", path, why);
    diag_hint(d,
              "write the file with numpy.save: float32 of shape (times, channels, height, width)");
    return false;
}

/* Reads the header, a Python dictionary with 'descr', 'fortran_order' and 'shape'. */
static bool read_header(Grid *g, const char *text, const char *path, Diag *d)
{
    const char *type = strstr(text, "'descr': '"), *shape = strstr(text, "'shape': (");
    if (!type || !shape || !strstr(text, "'fortran_order': False"))
        return bad_file(d, path, "its array is not in C order");
    type += strlen("'descr': '");
    g->is_double = strncmp(type, "<f8", 3) == 0;
    if (!g->is_double && strncmp(type, "<f4", 3) != 0)
        return bad_file(d, path, "its numbers are neither float32 nor float64");
    const char *at = shape + strlen("'shape': (");
    for (int i = 0; i < 4; i++) {
        char *end;
        g->dim[i] = strtoll(at, &end, 10);
        if (end == at || g->dim[i] < 1 || g->dim[i] > 1 << 24)
            return bad_file(d, path, "its array does not have four dimensions");
        at = end + strspn(end, ", ");
    }
    if (*at != ')') return bad_file(d, path, "its array does not have four dimensions");
    if (g->dim[0] < 2) return bad_file(d, path, "it has only one time, but a sample needs two");
    return true;
}

enum { PREFIX = 10, MOST_HEADER = 4096 };

/* Reads the numbers after the header. The header determines how many there are. */
static bool read_grid(Grid *g, FILE *f, const char *path, Arena *arena, Diag *d)
{
    unsigned char prefix[PREFIX];
    char header[MOST_HEADER + 1];
    if (fread(prefix, 1, PREFIX, f) != PREFIX || memcmp(prefix, "\x93NUMPY", 6) != 0)
        return bad_file(d, path, "it is not a file of numpy");
    size_t n = prefix[8] | (size_t)prefix[9] << 8;
    if (prefix[6] != 1 || n > MOST_HEADER || fread(header, 1, n, f) != n)
        return bad_file(d, path, "its header cannot be read");
    header[n] = 0;
    if (!read_header(g, header, path, d)) return false;
    double all = g->is_double ? sizeof(double) : sizeof(float);
    for (int i = 0; i < 4; i++) all *= (double)g->dim[i];
    if (all > (double)((uint64_t)1 << 36)) return bad_file(d, path, "it has more than 64 GiB");
    size_t bytes = (size_t)all;
    unsigned char *at = arena_alloc(arena, bytes);
    if (fread(at, 1, bytes, f) != bytes)
        return bad_file(d, path, "it is shorter than its header states");
    g->at = at;
    return true;
}

static const Tensor *field_of(const Graph *graph, uint32_t j)
{
    for (NodeId id = 1; id < graph->nodes.n; id++)
        if (op_info(graph->nodes.at[id].op)->flags & OP_SOURCE &&
            op_dim(graph->nodes.at[id].op, 0, INDEX_height) >= 0)
            return &graph->tensors.at[graph->nodes.at[id].out[j]];
    return NULL;
}

bool data_reads_images(const Graph *graph)
{
    for (NodeId id = 1; id < graph->nodes.n; id++)
        if (op_makes_images(graph->nodes.at[id].op)) return true;
    return false;
}

bool data_reads_fields(const Graph *graph)
{
    return field_of(graph, 0) != NULL;
}

/* Checks that the grid in the file has the size of the model's grid, and that the file has enough
 * channels. The model reads the first ones. */
static bool fits_model(const Grid *g, const Graph *graph, const char *path, Diag *d)
{
    for (uint32_t j = 0; j < 2; j++) {
        const Tensor *t = field_of(graph, j);
        if (t->dim[1] <= g->dim[1] && t->dim[2] == g->dim[2] && t->dim[3] == g->dim[3]) continue;
        diag_error(d, FAULT_input, "data-file", (Loc){NULL, 0},
                   "%s has %" PRId64 " channels of %" PRId64 " x %" PRId64
                   ", but the plan reads %" PRId64 " of %" PRId64 " x %" PRId64,
                   path, g->dim[1], g->dim[2], g->dim[3], t->dim[1], t->dim[2], t->dim[3]);
        diag_hint(d, "--set batch.height=%" PRId64 " --set batch.width=%" PRId64, g->dim[2],
                  g->dim[3]);
        return false;
    }
    return true;
}

DataSource *data_grid(const char *path, const Graph *graph, uint64_t seed, Arena *arena, Diag *d)
{
    Grid *g = arena_alloc(arena, sizeof *g);
    *g = (Grid){.seed = seed};
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        diag_error(d, FAULT_input, "data-file", (Loc){NULL, 0}, "cannot read %s: %s", path,
                   strerror(errno));
        return NULL;
    }
    bool fine = read_grid(g, f, path, arena, d) && fits_model(g, graph, path, d);
    fclose(f);
    if (!fine) return NULL;
    DataSource *source = arena_alloc(arena, sizeof *source);
    *source = (DataSource){.self = g, .line = grid_line};
    return source;
}
