/* Fits the constants of products, attention and kernels that move memory to published kernels.
 * `fit_kernels FILE` reads the columns of measured_kernels.csv and uses only rows marked dev-cal.
 * There is one set of numbers for each architecture, and in it for each kernel and direction.
 * Coordinate descent minimises the mean of |log(predicted / measured)|, taken over sources of the
 * mean of each source, so that a source with many rows does not outweigh the others. Products of
 * fewer than 1,024 rows count a fifth. The best results of searches are used only to compare 8 bits
 * with 16. Each source is also predicted with numbers that were fitted to the other sources. Writes
 * sim/compute/kernels_fit.def, scripts/tandem/fitted_kernels.lua and docs/reference/fit_kernels.md
 * in the current folder. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/accuracy/kernel_row.h"

enum { MOST_ROWS = 4096, MOST_SOURCES = 64, N_GEMM = 9, N_ATTENTION = 14, N_TRAFFIC = 4, ALL = -1 };

typedef struct Row {
    KernelRow row;
    uint32_t source, arch;
} Row;

/* One kernel on one architecture: its rows and numbers. */
typedef struct Group {
    const char *name, *arch;
    KernelRowKind kind;
    int kernel;             /* AttentionKernel or TrafficKernel */
    double at[N_ATTENTION]; /* a GemmFit, a TrafficFit, or for attention part .. unskipped, twice */
    uint32_t rows[MOST_ROWS], n;
} Group;

static Row rows[MOST_ROWS];
static uint32_t n_rows;
static const char *sources[MOST_SOURCES];
static uint32_t n_sources;
static KernelDevices devices;

enum { FORWARD, BACKWARD };
typedef struct Line {
    const char *arch, *kernel;
    int direction;
    AttentionFit fit;
} Line;
static Line lines[] = {
#define forward  FORWARD
#define backward BACKWARD
#define GEMM(...)
#define TRAFFIC(...)
#define ATTENTION(arch, kernel, direction, ...) {#arch, #kernel, direction, {__VA_ARGS__}},
#include "sim/compute/kernels_fit.def"
#undef TRAFFIC
#undef ATTENTION
#undef GEMM
#undef forward
#undef backward
};
enum { N_LINES = sizeof lines / sizeof *lines };
static const char *const gemm_arch[] = {
#define GEMM(arch, ...) #arch,
#define ATTENTION(...)
#define TRAFFIC(...)
#include "sim/compute/kernels_fit.def"
#undef TRAFFIC
#undef ATTENTION
#undef GEMM
};
static const struct {
    const char *arch, *name;
    TrafficKernel kernel;
    TrafficFit fit;
} traffic[] = {
#define GEMM(...)
#define ATTENTION(...)
#define TRAFFIC(arch, kernel, ...) {#arch, #kernel, TRAFFIC_##kernel, {__VA_ARGS__}},
#include "sim/compute/kernels_fit.def"
#undef TRAFFIC
#undef ATTENTION
#undef GEMM
};
enum {
    N_GEMM_ARCH = sizeof gemm_arch / sizeof *gemm_arch,
    N_TRAFFIC_LINES = sizeof traffic / sizeof *traffic,
    MOST_GROUPS = N_GEMM_ARCH + N_LINES + N_TRAFFIC_LINES,
};
static Group groups[MOST_GROUPS];
static uint32_t n_groups;
/* the numbers of attention after own, step and resident: which are fitted, and their bounds */
static const double low[N_ATTENTION] = {.1, 0, .3, 0, .3, .4, 0, .1, 0, .3, 0, .3, .4, 0};
static const double high[N_ATTENTION] = {1.3, 1500, 1.1, 20, 1, 1.1, 1,
                                         1.3, 3000, 1.1, 20, 1, 1.1, 1};
static const double traffic_low[N_TRAFFIC] = {.3, .1, 0, 0};
static const double traffic_high[N_TRAFFIC] = {30, 1, 10, .6};
static const double gemm_low[N_GEMM] = {.5, .6, .6, 0, 0, .5, .5, .4, .3};
static const double gemm_high[N_GEMM] = {.95, 1.2, 1.2, 10, 10, 1, 1, 1, 1};

/* For each device, the rate of the best product that the search found, in 16 and in 8 bits. Their
 * ratio is the relative speed of 8 bits. */
static double found_tflops[KERNEL_ROW_DEVICES][2];

static void best_found(const KernelRow *r)
{
    const double *p = r->product[0];
    double *tflops = &found_tflops[r->device - devices.device][dtype_bytes(r->dtype) == 1];
    *tflops = fmax(*tflops, 2 * p[0] * p[1] * p[2] / r->measured_s / 1e12);
}

static double eight_of(const char *arch, double otherwise)
{
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < devices.n; i++) {
        const double *found = found_tflops[i];
        const Device *device = &devices.device[i];
        if (found[0] <= 0 || found[1] <= 0 || strcmp(device->arch, arch) != 0) continue;
        sum += found[1] / found[0] / (device->peak_flops[DT_e4m3] / device->peak_flops[DT_bf16]);
        n++;
    }
    return n > 0 ? sum / n : otherwise;
}

static bool read_rows(const char *path, Diag *d)
{
    Csv csv;
    devices.arena = arena_new();
    if (!csv_read(path, devices.arena, &csv, d)) return false;
    if (!csv_add_pages(&csv, "kernels", devices.arena, d)) return false;
    for (uint32_t i = 0; i < csv.n_rows && n_rows < MOST_ROWS; i++) {
        if (strcmp(csv_cell(&csv, i, "split"), "dev-cal") != 0) continue;
        Row *r = &rows[n_rows];
        if (kernel_row(&devices, &csv, i, &r->row) != NULL) continue;
        if (strstr(csv_cell(&csv, i, "notes"), "upper envelope") != NULL) {
            best_found(&r->row);
            continue;
        }
        const char *source = csv_cell(&csv, i, "source");
        r->source = 0;
        while (r->source < n_sources && strcmp(sources[r->source], source) != 0) r->source++;
        if (r->source == MOST_SOURCES) return false;
        if (r->source == n_sources) sources[n_sources++] = source;
        n_rows++;
    }
    return n_rows > 0;
}

static double predicted_s(const Group *g, const KernelRow *row)
{
    if (g->kind == KERNEL_ROW_traffic) {
        TrafficFit fit;
        memcpy(&fit, g->at, sizeof fit);
        return kernel_row_predicted_s(row, &(KernelFit){.traffic = &fit});
    }
    if (g->kind == KERNEL_ROW_products) {
        GemmFit fit;
        memcpy(&fit, g->at, sizeof fit);
        KernelRow with = *row;
        Device device = *row->device;
        device.gemm_efficiency = g->at[0];
        with.device = &device;
        return kernel_row_predicted_s(&with, &(KernelFit){.gemm = &fit});
    }
    AttentionFit fit[2];
    for (int i = 0; i < 2; i++) {
        const double *at = &g->at[7 * i];
        fit[i] = *kernel_attention_fit(row->device, (AttentionKernel)g->kernel, i == BACKWARD);
        fit[i] = (AttentionFit){fit[i].own, fit[i].step, fit[i].resident, at[0], at[1],
                                at[2],      at[3],       at[4],           at[5], at[6]};
    }
    return kernel_row_predicted_s(row, &(KernelFit){.attention = {&fit[0], &fit[1]}});
}

/* Returns the mean over sources: all except number `without`, or only number `only`. */
static double loss(const Group *g, int without, int only)
{
    double sum[MOST_SOURCES] = {0}, total = 0;
    double n[MOST_SOURCES] = {0};
    uint32_t used = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const Row *r = &rows[g->rows[i]];
        if ((int)r->source == without || (only != ALL && (int)r->source != only)) continue;
        double weight = g->kind == KERNEL_ROW_products && r->row.product[0][0] < 1024
                            ? .2
                            : 1; /* the larger products of training have more weight */
        sum[r->source] += weight * fabs(log(predicted_s(g, &r->row) / r->row.measured_s));
        n[r->source] += weight;
    }
    for (uint32_t s = 0; s < n_sources; s++) {
        if (n[s] <= 0) continue;
        total += sum[s] / n[s];
        used++;
    }
    return used == 0 ? 0 : total / used;
}

static void descend(Group *g, int without)
{
    static const double factors[] = {.5, .8, .9, .95, .98, .99, 1.01, 1.02, 1.05, 1.1, 1.25, 2};
    static const double *const bounds[][2] = {
        {gemm_low, gemm_high}, {low, high}, {traffic_low, traffic_high}};
    static const int n_numbers[] = {N_GEMM, N_ATTENTION, N_TRAFFIC};
    const double *from = bounds[g->kind][0], *to = bounds[g->kind][1];
    double best = loss(g, without, ALL);
    for (int turn = 0; turn < 12; turn++) {
        double before = best;
        for (int k = 0; k < n_numbers[g->kind]; k++) {
            for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
                double old = g->at[k];
                g->at[k] = fmin(fmax(old * factors[i], from[k]), to[k]);
                double now = loss(g, without, ALL);
                if (now < best - 1e-6)
                    best = now;
                else
                    g->at[k] = old;
            }
        }
        if (best > before - 1e-5) break;
    }
}

static void make_groups(void)
{
    static const GemmFit gemm[] = {
#define GEMM(arch, large, eight, block, fill_us, split_us, ...)                                    \
    {large, eight, block, fill_us, split_us, {__VA_ARGS__}},
#define ATTENTION(...)
#define TRAFFIC(...)
#include "sim/compute/kernels_fit.def"
#undef TRAFFIC
#undef ATTENTION
#undef GEMM
    };
    for (uint32_t i = 0; i < N_GEMM_ARCH; i++) {
        Group *g = &groups[n_groups++];
        *g = (Group){.name = "products", .arch = gemm_arch[i]};
        memcpy(g->at, &gemm[i], sizeof gemm[i]);
        g->at[1] = eight_of(g->arch, g->at[1]);
    }
    static const char *const kernels[] = {
#define X(name) #name,
        ATTENTION_KERNELS(X)
#undef X
    };
    /* one line for the forward pass, then one for the backward pass */
    for (uint32_t i = 0; i + 1 < N_LINES; i += 2) {
        Group *g = &groups[n_groups++];
        *g = (Group){.name = lines[i].kernel, .arch = lines[i].arch, .kind = KERNEL_ROW_attention};
        while (strcmp(kernels[g->kernel], g->name) != 0) g->kernel++;
        for (int d = 0; d < 2; d++)
            memcpy(&g->at[7 * d], &lines[i + (uint32_t)d].fit.part, 7 * sizeof(double));
    }
    for (uint32_t i = 0; i < N_TRAFFIC_LINES; i++) {
        Group *g = &groups[n_groups++];
        *g = (Group){.name = traffic[i].name,
                     .arch = traffic[i].arch,
                     .kind = KERNEL_ROW_traffic,
                     .kernel = (int)traffic[i].kernel};
        memcpy(g->at, &traffic[i].fit, sizeof traffic[i].fit);
        for (int k = 0; k < N_TRAFFIC; k++)
            g->at[k] =
                fmax(g->at[k], 1e-3); /* the search multiplies numbers, so none may start at 0 */
    }
}

static void share_rows(void)
{
    for (uint32_t i = 0; i < n_rows; i++) {
        const KernelRow *r = &rows[i].row;
        for (uint32_t k = 0; k < n_groups; k++) {
            Group *g = &groups[k];
            if (r->device->arch == NULL || strcmp(r->device->arch, g->arch) != 0) continue;
            if (r->kind != g->kind) continue;
            if (g->kind == KERNEL_ROW_attention && (int)r->attention.kernel != g->kernel) continue;
            if (g->kind == KERNEL_ROW_traffic &&
                (r->traffic.bytes <= 0 || (int)r->traffic.kernel != g->kernel))
                continue;
            g->rows[g->n++] = i;
        }
    }
}

static void write_gemm(FILE *f, FILE *lua)
{
    for (uint32_t i = 0; i < n_groups; i++) {
        const Group *g = &groups[i];
        if (g->kind != KERNEL_ROW_products) continue;
        const double *at = g->at;
        fprintf(f, "GEMM(%s", g->arch);
        for (int k = 0; k < N_GEMM; k++) fprintf(f, ", %.3g", at[k]);
        fputs(")\n", f);
        fprintf(lua, "  %s = { gemm_efficiency = %.3g },\n", g->arch, at[0]);
    }
}

static void write_numbers(void)
{
    static char head[8192];
    FILE *old = fopen("sim/compute/kernels_fit.def", "r");
    size_t n = old != NULL ? fread(head, 1, sizeof head - 1, old) : 0;
    if (old != NULL) fclose(old);
    head[n] = '\0';
    char *end = strstr(head, "\nGEMM(");
    if (end == NULL) exit(1);
    end[1] = '\0';
    FILE *f = fopen("sim/compute/kernels_fit.def", "w"),
         *lua = fopen("scripts/tandem/fitted_kernels.lua", "w");
    if (f == NULL || lua == NULL) exit(1);
    fputs(head, f);
    fputs("-- Written by tests/bench/fit_kernels.sh, only from rows marked dev-cal; "
          "docs/reference/fit_kernels.md is its report.\n"
          "return {\n"
          "  -- kind: fitted; dev-cal rows of published products "
          "(docs/reference/fit_kernels.md)\n",
          lua);
    write_gemm(f, lua);
    fputs("}\n", lua);
    for (uint32_t i = 0; i < n_groups; i++) {
        const Group *g = &groups[i];
        for (int d = 0; g->kind == KERNEL_ROW_attention && d < 2; d++) {
            const Line *line = lines;
            while (strcmp(line->arch, g->arch) != 0 || strcmp(line->kernel, g->name) != 0 ||
                   line->direction != d)
                line++;
            const double *at = &g->at[7 * d];
            fprintf(
                f, "ATTENTION(%s, %s, %s, %g, %g, %g, %.3g, %.3g, %.3g, %.3g, %.3g, %.3g, %.3g)\n",
                g->arch, g->name, d == 0 ? "forward" : "backward", line->fit.own, line->fit.step,
                line->fit.resident, at[0], at[1], at[2], at[3], at[4], at[5], at[6]);
        }
    }
    for (uint32_t i = 0; i < n_groups; i++) {
        const Group *g = &groups[i];
        if (g->kind != KERNEL_ROW_traffic) continue;
        fprintf(f, "TRAFFIC(%s, %s, %.3g, %.3g, %.3g, %.3g)\n", g->arch, g->name, g->at[0],
                g->at[1], g->at[2] < 1e-3 ? 0 : g->at[2], g->at[3] < 1e-3 ? 0 : g->at[3]);
    }
    fclose(f);
    fclose(lua);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Writes the errors of one kind of row (such as "attention backward") of one source: number of
 * rows, median, ninth decile, bias. */
static void report_line(FILE *f, const Group *g, const char *what, int source, double without)
{
    static double errors[MOST_ROWS];
    double bias = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const Row *r = &rows[g->rows[i]];
        if (strcmp(r->row.what, what) != 0 || (int)r->source != source) continue;
        double e = predicted_s(g, &r->row) / r->row.measured_s - 1;
        errors[n++] = fabs(e);
        bias += e;
    }
    if (n == 0) return;
    qsort(errors, n, sizeof *errors, by_size);
    const char *name = sources[source], *slash = strchr(name, '/');
    fprintf(f, "| %s, %s | %s | %.60s | %u | %.1f %% | %.1f %% | %+.1f %% | ", g->arch, g->name,
            what, slash != NULL ? slash + 1 : name, n, 100 * errors[n / 2],
            100 * errors[n * 9 / 10], 100 * bias / n);
    if (isnan(without))
        fprintf(f, "only source |\n");
    else
        fprintf(f, "%.1f %% |\n", 100 * expm1(without));
}

static void report_group(FILE *f, Group *g)
{
    static const char *const whats[] = {
        "gemm",        "gemm, 8 bits", "attention",    "attention backward", "attention, both",
        "elementwise", "norm",         "norm backward"};
    uint32_t n = 0;
    for (uint32_t s = 0; s < n_sources; s++) n += loss(g, ALL, (int)s) > 0;
    for (uint32_t s = 0; s < n_sources; s++) {
        if (!(loss(g, ALL, (int)s) > 0)) continue;
        double without = NAN;
        if (n > 1) { /* the prediction by a fit to the other sources */
            static Group other;
            other = *g;
            descend(&other, (int)s);
            without = loss(&other, ALL, (int)s);
        }
        for (size_t w = 0; w < sizeof whats / sizeof *whats; w++)
            report_line(f, g, whats[w], (int)s, without);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    if (!read_rows(argv[1], &d)) {
        fprintf(stderr, "no dev-cal rows in %s\n", argv[1]);
        return 1;
    }
    make_groups();
    share_rows();
    FILE *f = fopen("docs/reference/fit_kernels.md", "w");
    if (f == NULL) return 1;
    fputs("# Kernels: what was fitted\n\nWritten by `tests/bench/fit_kernels.sh`. The fit uses the "
          "rows of published kernels that are marked\n"
          "dev-cal. The fitted numbers are in `sim/compute/kernels_fit.def`.\n\n"
          "| column | meaning |\n|---|---|\n"
          "| median, p90 | half, and nine of ten, of the rows have a smaller error |\n"
          "| bias | the mean of predicted / measured, minus 1 |\n"
          "| without it | the mean error of this source's rows in a fit to the other sources "
          "|\n\n"
          "| kernel | rows | source | n | median | p90 | bias | without it "
          "|\n|---|---|---|---|---|---|---|---|\n",
          f);
    for (uint32_t i = 0; i < n_groups; i++) {
        if (groups[i].n == 0) continue; /* without rows, its numbers stay as they are */
        double before = loss(&groups[i], ALL, ALL);
        descend(&groups[i], ALL);
        printf("%s %s: %u rows, %.1f %% -> %.1f %%\n", groups[i].arch, groups[i].name, groups[i].n,
               100 * expm1(before), 100 * expm1(loss(&groups[i], ALL, ALL)));
        report_group(f, &groups[i]);
    }
    fclose(f);
    write_numbers();
    arena_free(arena);
    return 0;
}
