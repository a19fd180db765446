/* Writes the lines of progress. progress.h describes the functions. */
#include "cli/report/progress.h"

#include <assert.h>
#include <inttypes.h>
#include <unistd.h>

#include "planner/base/clock.h"

uint32_t progress_every(const Cli *cli)
{
    if (cli->options.run.every > 0) return cli->options.run.every;
    return cli->options.verbose || isatty(STDOUT_FILENO) ? 1 : 10;
}

Progress progress_by_lines(const Cli *cli, uint32_t n)
{
    FILE *to = cli->json == NULL ? stdout : cli->options.quiet ? NULL : stderr;
    return (Progress){.to = to, .n = n, .every = progress_every(cli), .start_s = clock_s()};
}

static void write_over(const Progress *p)
{
    fprintf(p->to, "\r%s: %" PRIu32 " of %" PRIu32 " done", p->verb, p->done, p->n);
    if (p->done > 0)
        fprintf(p->to, ", some %.0f s left \033[K",
                (clock_s() - p->start_s) / p->done * (p->n - p->done));
}

Progress progress_by_count(const Cli *cli, uint32_t n)
{
    const bool watched =
        n > 1 && !cli->options.quiet && !cli->options.verbose && isatty(STDERR_FILENO);
    Progress p = {
        .to = watched ? stderr : NULL, .verb = cli->verb->name, .n = n, .start_s = clock_s()};
    if (watched) write_over(&p);
    return p;
}

bool progress_shows(const Progress *p)
{
    return p->to != NULL && p->verb == NULL && (p->done % p->every == 0 || p->done + 1 == p->n);
}

void progress_add(Progress *p, uint32_t more, const char *line)
{
    assert(line == NULL || progress_shows(p));
    p->done += more;
    if (line != NULL) {
        fprintf(p->to, "%s\n", line);
        fflush(p->to);
    } else if (p->to != NULL && p->verb != NULL && p->done <= p->n) {
        write_over(p);
    }
}

void progress_end(Progress *p)
{
    if (p->to != NULL && p->verb != NULL) fputs("\r\033[K", p->to);
    p->to = NULL;
}
