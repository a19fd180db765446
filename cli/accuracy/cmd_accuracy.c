/* tandem accuracy: prints the errors of predictions, found by comparison with published
 * measurements. */
#include <string.h>

#include "cli/accuracy/accuracy.h"

typedef struct Section {
    const char *name;
    /* columns that the section's file must have besides source and split; the last entry is NULL */
    const char *columns[7];
    size_t option; /* offset in Options of the option that names the file */
    bool (*score)(Cli *cli, const Csv *csv, Scores *scores);
} Section;

static const Section accuracy_sections[] = {
    {"runs",
     {"id", "model", "gpu", "step_time_s", NULL},
     offsetof(Options, accuracy.runs),
     score_runs},
    {"kernels",
     {"kernel", "gpu", "dtype", "shape", "tflops", NULL},
     offsetof(Options, accuracy.kernels),
     score_kernels},
    {"comm",
     {"collective", "bytes", "n_gpus", "nodes", "gpu", "interconnect"},
     offsetof(Options, accuracy.comm),
     score_comm},
};
enum { N_SECTIONS = sizeof accuracy_sections / sizeof *accuracy_sections };

static const char *file_of(const Cli *cli, const Section *section)
{
    const char *path;
    memcpy(&path, (const char *)&cli->options + section->option, sizeof path);
    return path;
}

static bool score(Cli *cli, const Section *section, const char *path, Scores *scores)
{
    static const char *const always[] = {"source", "split", NULL};
    Csv csv;
    memset(scores, 0, sizeof *scores);
    if (!csv_read(path, cli->arena, &csv, &cli->diag)) return false;
    bool fine = csv_needs(&csv, always, &cli->diag);
    if (!csv_needs(&csv, section->columns, &cli->diag) || !fine) return false;
    if (!csv_add_pages(&csv, section->name, cli->arena, &cli->diag)) return false;
    if (!section->score(cli, &csv, scores)) return false;
    scores_report(cli, section->name, path, scores);
    return true;
}

void cmd_accuracy(Cli *cli)
{
    Scores scores[N_SECTIONS];
    const Scores *all[N_SECTIONS];
    uint32_t n = 0, n_files = 0;
    for (uint32_t i = 0; i < N_SECTIONS; i++) {
        const char *path = file_of(cli, &accuracy_sections[i]);
        if (path == NULL) continue;
        n_files++;
        if (!score(cli, &accuracy_sections[i], path, &scores[n])) continue;
        all[n] = &scores[n];
        n++;
    }
    if (n_files == 0) {
        cli_error(cli, FAULT_usage, "arguments", "tandem accuracy needs a file of measurements");
        diag_hint(&cli->diag, "for example: %s", cli->verb->example);
    }
    if (cli->options.accuracy.plot != NULL && n > 0)
        scores_plot(cli, cli->options.accuracy.plot, all, n);
}
