/* tandem trace: prints the instructions of a stored run's step in Chrome's JSON format, which
 * Perfetto can open, too. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static bool read_ranks(Cli *cli, const char *text, uint32_t n_all, uint32_t *n, Rank **ranks)
{
    LIST(Rank) list = {NULL, 0, 0};
    while (text != NULL && *text != 0) {
        char *end = NULL;
        unsigned long value = strtoul(text, &end, 10);
        if (end == text || (*end != 0 && *end != ',') || value >= n_all)
            return cli_error(cli, FAULT_usage, "option-value",
                             "--ranks: '%s' is not a list of ranks below %" PRIu32, text, n_all);
        list_push(cli->arena, &list, (Rank)value);
        text = *end == ',' ? end + 1 : end;
    }
    *ranks = list.at;
    *n = list.n;
    return true;
}

static void write_trace(Cli *cli, Store *store, int64_t id)
{
    RunRecord run;
    Trace trace;
    memset(&run, 0, sizeof run);
    memset(&trace, 0, sizeof trace);
    if (!store_load_run(store, id, cli->arena, &run, &trace, &cli->diag)) return;
    if (trace.rows.n == 0) {
        cli_error(cli, FAULT_store, "no-trace", "run %" PRId64 " was stored without a trace", id);
        diag_hint(&cli->diag, run.kind == RUN_predicted
                                  ? "`tandem sim PLAN --trace` stores a trace"
                                  : "only measured runs of at least 2 steps have a trace");
        return;
    }
    Plan *plan = plan_stored(cli, store, id, &run);
    uint32_t n = 0;
    Rank *ranks = NULL;
    if (plan == NULL || !read_ranks(cli, cli->options.ranks, plan->mesh.n_ranks, &n, &ranks))
        return;
    Str chrome = str_in(cli->arena);
    trace_chrome(plan, &trace, n > 0 ? ranks : NULL, n, &chrome);
    if (cli->options.output == NULL) {
        str_add_bytes(&cli->out, str_text(&chrome), chrome.n);
        if (cli->json != NULL) json_text(cli->json, "trace", str_text(&chrome));
        return;
    }
    if (!cli_write_file(cli, cli->options.output, str_text(&chrome), chrome.n)) return;
    str_print(&cli->out, "%s: %s rows, %s\n", cli->options.output,
              str_count(cli->arena, trace.rows.n), str_bytes(cli->arena, chrome.n));
    if (cli->json == NULL) return;
    json_text(cli->json, "output", cli->options.output);
    json_count(cli->json, "rows", trace.rows.n);
}

void cmd_trace(Cli *cli)
{
    char *end = NULL;
    long long id = strtoll(cli->args[0], &end, 10);
    if (*end != 0 || id <= 0) {
        cli_error(cli, FAULT_usage, "arguments", "'%s' is not a run's number", cli->args[0]);
        diag_hint(&cli->diag, "`tandem runs` lists all runs");
        return;
    }
    Store *store = store_open(cli->options.db, true, &cli->diag);
    if (store == NULL) return;
    write_trace(cli, store, id);
    store_close(store);
}
