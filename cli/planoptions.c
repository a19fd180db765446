/* The options of the command line that change a plan. */
#include "cli/cli.h"

PlanOptions plan_file_options(Cli *cli, const PlanOptions *options)
{
    PlanOptions o = options != NULL ? *options : (PlanOptions){.shrink = false};
    o.set = cli->options.set.at;
    o.n_set = cli->options.set.n;
    o.cluster = cli->options.cluster;
    o.nodes = cli->options.n_nodes;
    o.seed = cli->options.seed_text != NULL ? &cli->options.seed : NULL;
    return o;
}
