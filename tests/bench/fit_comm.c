/* Fits the network model to published collectives. `fit_comm FILE` reads the columns of
 * measured_comm.csv and uses only rows marked dev-cal. There is one set of numbers for each
 * generation of devices (a line of sim/net/nccl_fit.def), and one for each network with rows (a
 * line of scripts/clusters/fabrics.lua). Coordinate descent minimises the mean of |log(predicted /
 * measured)|, taken over sweeps of the mean of each sweep, so that a source with many sizes does
 * not outweigh the others. Prints the lines to copy, and the errors by group before and after. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/accuracy/comm_row.h"

enum { MOST_ROWS = 4096, N_FIT = 18, N_FABRIC = 5 };

typedef struct Row {
    CommRow row;
    const char *fabric; /* "": the link inside a node */
    const char *source;
    uint32_t generation, sweep;
} Row;

typedef struct FitSet {
    NcclFit of[8]; /* by generation */
} FitSet;

static Row rows[MOST_ROWS];
static uint32_t n_rows;
static char sweep_name[256][160];
static uint32_t sweep_size[256], n_sweeps;
static const char *const generations[] = {
#define X(name, ...) #name,
#include "sim/net/nccl_fit.def"
#undef X
};
static FitSet fit = {{
#define X(name, ...) {__VA_ARGS__},
#include "sim/net/nccl_fit.def"
#undef X
}};
enum { N_GENERATIONS = sizeof generations / sizeof *generations };

static uint32_t generation_of(const Cluster *cluster)
{
    for (uint32_t g = 0; g < N_GENERATIONS; g++)
        if (strncasecmp(cluster->device.arch, generations[g], strlen(generations[g])) == 0)
            return g;
    return 1;
}

static uint32_t sweep_of(const char *name)
{
    uint32_t i = 0;
    while (i < n_sweeps && strcmp(sweep_name[i], name) != 0) i++;
    if (i == n_sweeps) {
        if (n_sweeps == 256) exit(1);
        snprintf(sweep_name[n_sweeps++], sizeof *sweep_name, "%s", name);
    }
    sweep_size[i]++;
    return i;
}

/* A row is disturbed if it took a quarter longer than a row with more bytes of the same sweep. The
 * other rows of that sweep below 1 MiB then count as disturbed too. */
static bool is_disturbed(const Row *r)
{
    for (uint32_t i = 0; i < n_rows; i++) {
        const Row *other = &rows[i];
        if (other->sweep == r->sweep && strcmp(other->source, r->source) == 0 &&
            other->row.question.bytes > r->row.question.bytes &&
            other->row.cluster.fabric.no_nvls == r->row.cluster.fabric.no_nvls &&
            other->row.measured_us * 1.25 < r->row.measured_us)
            return true;
    }
    return false;
}

static void drop_disturbed(void)
{
    static bool bad[MOST_ROWS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_rows; i++) bad[i] = is_disturbed(&rows[i]);
    for (uint32_t i = 0; i < n_rows; i++) {
        if (rows[i].row.question.bytes >= 1 << 20 || bad[i]) continue;
        for (uint32_t k = 0; k < n_rows && !bad[i]; k++)
            bad[i] = bad[k] && rows[k].sweep == rows[i].sweep &&
                     strcmp(rows[k].source, rows[i].source) == 0;
    }
    for (uint32_t i = 0; i < n_rows; i++) {
        if (bad[i])
            sweep_size[rows[i].sweep]--;
        else
            rows[n++] = rows[i];
    }
    printf("%u rows, %u of them disturbed and left out\n", n_rows, n_rows - n);
    n_rows = n;
}

static bool read_rows(const char *path, Arena *arena, Diag *d)
{
    Csv csv;
    if (!csv_read(path, arena, &csv, d)) return false;
    if (!csv_add_pages(&csv, "comm", arena, d)) return false;
    CommClusters clusters = {.arena = arena};
    for (uint32_t i = 0; i < csv.n_rows && n_rows < MOST_ROWS; i++) {
        if (strcmp(csv_cell(&csv, i, "split"), "dev-cal") != 0) continue;
        Row *r = &rows[n_rows];
        if (comm_row(&clusters, &csv, i, &r->row) != NULL) continue;
        /* Peaks that were read off bar charts are scored, but not fitted. For domains larger than a
         * board, there are only peaks. */
        bool wide = r->row.question.ranks_per_node > 8 && !r->row.cluster.fabric.no_nvls;
        if (r->row.measured_us <= 0 && !wide) continue;
        if (strstr(csv_cell(&csv, i, "notes"), "OLDER SOFTWARE") != NULL) continue;
        if (strstr(csv_cell(&csv, i, "notes"), "rounding") != NULL &&
            csv_number(&csv, i, "busbw_GBps") < .1)
            continue; /* A rate rounded to two places: 0.01 GB/s may be wrong by half. */
        r->fabric = r->row.question.n_nodes > 1 ? r->row.cluster.fabric.name : "";
        r->generation = generation_of(&r->row.cluster);
        r->source = csv_cell(&csv, i, "source");
        r->sweep = sweep_of(arena_print(arena, "%s %s%s %u x %u %s", generations[r->generation],
                                        r->fabric, r->row.question.n_nodes > 1 ? "" : "-",
                                        r->row.question.n_nodes, r->row.question.ranks_per_node,
                                        collective_name(r->row.question.kind)));
        n_rows++;
    }
    drop_disturbed();
    return n_rows > 0;
}

static double error_of(const Row *r)
{
    return fabs(
        log(comm_row_predicted(&r->row, &fit.of[r->generation]) / comm_row_measured(&r->row)));
}

/* Returns the mean over sweeps of each sweep's mean error: for one generation or one network, or
 * for all (NULL). */
static double loss(uint32_t generation, const char *fabric)
{
    double sum[256] = {0}, total = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        const Row *r = &rows[i];
        if (fabric != NULL ? strcmp(r->fabric, fabric) != 0 : r->generation != generation) continue;
        double floor_weight = fabric == NULL && r->row.question.bytes < 65536 ? .3 : 1;
        sum[r->sweep] += floor_weight * error_of(r) / sweep_size[r->sweep];
    }
    for (uint32_t s = 0; s < n_sweeps; s++) {
        total += sum[s];
        n += sum[s] > 0;
    }
    return n == 0 ? 0 : total / n;
}

static void descend(double *at, double low, double high, uint32_t generation, const char *fabric)
{
    double best = loss(generation, fabric);
    static const double factors[] = {.5, .8, .9, .95, .98, .99, 1.01, 1.02, 1.05, 1.1, 1.25, 2};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        double old = *at;
        *at = fmin(fmax(old * factors[i], low), high);
        double now = loss(generation, fabric);
        if (now < best - 1e-9)
            best = now;
        else
            *at = old;
    }
}

static void fit_generation(uint32_t g)
{
    static const double low[N_FIT] = {.5, .01, .5, .3, 1,  2,  1,  2,  2,
                                      .3, .3,  1,  1,  .1, .1, .2, .2, .3};
    static const double high[N_FIT] = {1.2, 2,   1.2, 1,   120, 256, 120, 256, 40,
                                       1.1, 1.1, 400, 256, 1,   1,   1,   1,   1};
    double *at = &fit.of[g].ring;
    for (uint32_t turn = 0; turn < 12; turn++)
        for (uint32_t k = 0; k < N_FIT; k++)
            if (at[k] > 0) descend(&at[k], low[k], high[k], g, NULL);
}

static void set_fabric(const char *name, const double at[N_FABRIC])
{
    for (uint32_t i = 0; i < n_rows; i++) {
        NetworkFabric *f = &rows[i].row.cluster.fabric;
        if (strcmp(rows[i].fabric, name) != 0) continue;
        f->message_s = at[0] * 1e-6;
        f->achieved = at[1];
        f->ramp_s = at[2] * 1e-6;
        f->ramp_bytes = at[3] * 0x1p20;
        f->spread_s = at[4] * 1e-6;
    }
}

static void fit_fabric(const char *name, double at[N_FABRIC])
{
    static const double low[N_FABRIC] = {.5, .5, 1, .25, .1};
    static const double high[N_FABRIC] = {200, 1, 1000, 256, 100};
    static const double factors[] = {.5, .8, .9, .95, .98, 1.02, 1.05, 1.1, 1.25, 2};
    for (uint32_t turn = 0; turn < 12; turn++) {
        for (uint32_t k = 0; k < N_FABRIC; k++) {
            for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
                double before = loss(0, name), old = at[k];
                at[k] = fmin(fmax(old * factors[i], low[k]), high[k]);
                set_fabric(name, at);
                if (loss(0, name) < before - 1e-9) continue;
                at[k] = old;
                set_fabric(name, at);
            }
        }
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Reports the errors |predicted / measured - 1| over all sizes, and above 1 MiB. If `table` is not
 * NULL, also writes them to a table. */
static void report(const char *title, bool detail, FILE *table)
{
    printf("%s\n%-44s %5s %8s %8s %10s %8s\n", title, "group", "rows", "median", "p90", "mean > 1M",
           "bias");
    for (uint32_t s = 0; s < n_sweeps; s++) {
        static double errors[MOST_ROWS];
        double large = 0, bias = 0;
        uint32_t n = 0, n_large = 0;
        for (uint32_t i = 0; i < n_rows; i++) {
            if (rows[i].sweep != s) continue;
            const Row *r = &rows[i];
            double p = comm_row_predicted(&r->row, &fit.of[r->generation]);
            double e = p / comm_row_measured(&r->row) - 1;
            errors[n++] = fabs(e);
            if (r->row.question.bytes > 1 << 20) {
                large += fabs(e);
                bias += e;
                n_large++;
            }
            if (!detail) continue;
            NcclQuestion q = r->row.question;
            q.fit = &fit.of[r->generation];
            NcclChoice c = nccl_answer(&r->row.cluster, &q);
            printf("    %12llu %10.1f %10.1f %+6.1f %% %s %s\n",
                   (unsigned long long)r->row.question.bytes, r->row.measured_us,
                   (double)c.time_ps / 1e6, 100 * e, c.algorithm, c.protocol);
        }
        qsort(errors, n, sizeof *errors, by_size);
        if (n == 0) continue;
        double median = 100 * errors[n / 2], most = 100 * errors[n * 9 / 10];
        double mean = n_large ? 100 * large / n_large : 0,
               lean = n_large ? 100 * bias / n_large : 0;
        printf("%-44s %5u %7.1f%% %7.1f%% %9.1f%% %+7.1f%%\n", sweep_name[s], n, median, most, mean,
               lean);
        if (table == NULL) continue;
        fprintf(table, "| %s | %u | %.1f %% | %.1f %% | %.1f %% | %+.1f %% |\n", sweep_name[s], n,
                median, most, mean, lean);
    }
}

static FILE *opened(const char *path, const char *mode)
{
    FILE *f = fopen(path, mode);
    if (f == NULL) {
        perror(path);
        exit(1);
    }
    return f;
}

/* Replaces the numbers in the file and keeps its comment. */
static void write_fits(void)
{
    static char head[8192];
    FILE *old = opened("sim/net/nccl_fit.def", "r");
    head[fread(head, 1, sizeof head - 1, old)] = '\0';
    fclose(old);
    char *end = strstr(head, "\nX(");
    if (end == NULL) exit(1);
    end[1] = '\0';
    FILE *f = opened("sim/net/nccl_fit.def", "w");
    fputs(head, f);
    for (uint32_t g = 0; g < N_GENERATIONS; g++) {
        const double *at = &fit.of[g].ring;
        fprintf(f, "X(%s", generations[g]);
        for (uint32_t k = 0; k < N_FIT; k++) fprintf(f, ", %.3g", at[k]);
        fputs(")\n", f);
    }
    fclose(f);
}

static void fit_fabrics(void)
{
    FILE *out = opened("scripts/tandem/fitted_fabrics.lua", "w");
    fputs("-- Written by tests/bench/fit_comm.sh, only from rows marked dev-cal; "
          "docs/reference/fit_network.md is its report.\n"
          "return {\n"
          "  -- kind: fitted; dev-cal rows of published collectives "
          "(docs/reference/fit_network.md)\n",
          out);
    for (uint32_t i = 0; i < n_rows; i++) {
        const NetworkFabric *f = &rows[i].row.cluster.fabric;
        uint32_t before = 0;
        while (before < i && strcmp(rows[before].fabric, rows[i].fabric) != 0) before++;
        if (rows[i].fabric[0] == 0 || before < i) continue;
        double at[N_FABRIC] = {f->message_s * 1e6, f->achieved, f->ramp_s * 1e6,
                               f->ramp_bytes / 0x1p20, f->spread_s * 1e6};
        for (uint32_t k = 0; k < N_FABRIC; k++)
            if (at[k] <= 0) at[k] = k == 1 ? .96 : 20;
        fit_fabric(rows[i].fabric, at);
        fprintf(out, "  %s = { message_s = %.3ge-6, achieved = %.3g, ramp_s = %.3ge-6, ",
                rows[i].fabric, at[0], at[1], at[2]);
        fprintf(out, "ramp_bytes = %.3g * 1048576, spread_s = %.3ge-6 },\n", at[3], at[4]);
    }
    fputs("}\n", out);
    fclose(out);
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    Arena *arena = arena_new();
    Diag d = diag_in(arena);
    if (!read_rows(argv[1], arena, &d)) {
        fprintf(stderr, "no dev-cal rows in %s\n", argv[1]);
        return 1;
    }
    bool detail = argc > 2 && strcmp(argv[2], "-v") == 0;
    report("with the numbers in use", detail, NULL);
    for (uint32_t g = 0; g < N_GENERATIONS; g++) fit_generation(g);
    write_fits();
    fit_fabrics();
    FILE *table = opened("docs/reference/fit_network.md", "w");
    fputs(
        "# The network: what was fitted\n\nWritten by `tests/bench/fit_comm.sh`. The fit uses the "
        "rows of published collectives that are marked\n"
        "dev-cal, but not outdated software and disturbed sweeps. The fitted numbers are in\n"
        "`sim/net/nccl_fit.def` and `scripts/tandem/fitted_fabrics.lua`.\n\n"
        "| column | meaning |\n|---|---|\n"
        "| median, p90 | half, and nine of ten, of the rows have a smaller error |\n"
        "| mean, bias above 1 MiB | the mean error, and the mean of predicted / measured, minus "
        "1 |\n\n"
        "| group | rows | median | p90 | mean above 1 MiB | bias there "
        "|\n|---|---|---|---|---|---|\n",
        table);
    report("\nfitted", detail, table);
    fclose(table);
    arena_free(arena);
    return 0;
}
