/* The parent's side of loading a plan: forks the process that evaluates the script, reads its
 * records, and reports why it ended. */
#include "planner/front/front.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "planner/base/clock.h"
#include "planner/front/child/child.h"
#include "planner/front/fold.h"
#include "planner/front/parent.h"
#include "planner/front/pass_spec.h"

/* Returns $TANDEM_SCRIPTS if it is set. Otherwise returns PREFIX/share/tandem/scripts if the
 * executable is PREFIX/bin/tandem and this folder exists, otherwise the source tree. The first call
 * decides for all later ones. */
const char *front_scripts_dir(void)
{
    static char found[4096];
    if (found[0] != 0) return found;
    const char *own = getenv("TANDEM_SCRIPTS");
    char path[3900];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    if (own != NULL && own[0] != 0) {
        snprintf(found, sizeof found, "%s", own);
        return found;
    }
    if (n > 0) {
        path[n] = 0;
        for (int up = 0; up < 2; up++) {
            char *slash = strrchr(path, '/');
            if (slash != NULL) *slash = 0;
        }
        snprintf(found, sizeof found, "%s/share/tandem/scripts", path);
        if (access(found, R_OK | X_OK) == 0) return found;
    }
    snprintf(found, sizeof found, "%s", TANDEM_SOURCE_SCRIPTS);
    return found;
}

static _Noreturn void be_child(const char *path, const char *code, const FrontOptions *options,
                               const Script *script, ScriptUse use)
{
    arena_forget_scopes();
    arena_on_full(child_out_of_memory, NULL);
    Arena *arena = arena_new();
    Child *c = arena_alloc(arena, sizeof *c);
    c->arena = arena;
    c->out.bytes = str_in(arena);
    c->fd = script->fd;
    c->words = script->words;
    c->script = path;
    c->code = code;
    c->options = options;
    c->cpu_s = script->cpu_s;
    c->held = use != SCRIPT_once;
    c->sweeps = use == SCRIPT_sweeps;
    for (int fd = 3; fd < 256; fd++)
        if (fd != c->fd && fd != c->words) close(fd);
    const char *slash = strrchr(path, '/');
    const char *folder = slash == NULL ? "." : arena_copy(arena, path, (size_t)(slash - path) + 1);
    c->script_dir = code != NULL ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->script_dir < 0 && code == NULL) c->no_script_dir = errno;
    c->library = front_scripts_dir();
    c->library_dir = open(c->library, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->library_dir < 0) c->no_library_dir = errno;
    child_run(c);
}

Script script_none(Traces *traces)
{
    return (Script){.pid = -1, .fd = -1, .words = -1, .channel = {.fd = -1}, .traces = traces};
}

void script_stop(void *self)
{
    Script *s = self;
    if (s->fd >= 0) close(s->fd);
    if (s->words >= 0) close(s->words);
    channel_free(&s->channel);
    if (s->pid > 0) {
        kill(s->pid, SIGKILL); /* all records that the parent needs are read */
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    s->pid = s->fd = s->words = -1;
}

/* Sends a request. EPIPE and ECONNRESET are not errors here: the process has ended and its last
 * records, still unread, say why. */
void script_send(Script *s, StreamWriter *w)
{
    if (writer_send(w, s->fd) || errno == EPIPE || errno == ECONNRESET) return;
    s->channel.error = errno;
    shutdown(s->fd, SHUT_RDWR);
}

bool script_start(Script *s, const char *path, const char *code, const FrontOptions *options,
                  ScriptUse use, Diag *d)
{
    Loc here = {path, 0};
    int pair[2], words[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return diag_error(d, FAULT_internal, "front-process", here, "socketpair: %s",
                          strerror(errno));
    if (pipe(words) != 0) {
        close(pair[0]);
        close(pair[1]);
        return diag_error(d, FAULT_internal, "front-process", here, "pipe: %s", strerror(errno));
    }
    s->cpu_s = options->cpu_seconds > 0 ? options->cpu_seconds : 5;
    s->pid = fork();
    const int error = errno;
    if (s->pid == 0) {
        Script own = *s;
        own.fd = pair[1];
        own.words = words[1];
        be_child(path, code, options, &own, use);
    }
    close(pair[1]);
    close(words[1]);
    s->fd = s->channel.fd = pair[0];
    s->words = words[0];
    /* another forked process may have inherited the other end and keep it open; a blocking read
     * would then wait forever */
    fcntl(s->words, F_SETFL, O_NONBLOCK);
    if (s->pid >= 0) return true;
    diag_error(d, FAULT_internal, "front-process", here, "fork: %s", strerror(error));
    script_stop(s);
    return false;
}

bool script_error(Draft *draft, Reader *r)
{
    uint32_t severity = get_u32(r);
    const char *rule = get_text(r, draft->arena);
    Loc loc = draft_read_loc(draft, r), library = draft_read_loc(draft, r);
    const char *text = get_text(r, draft->arena), *hint = get_text(r, draft->arena);
    if (!reader_finished(r) || rule[0] == 0 || severity > SEVERITY_note) return false;
    if (loc.file == NULL) loc.file = draft->config.file;
    switch ((Severity)severity) {
    case SEVERITY_error:
        diag_error(draft->d, strcmp(rule, "script-read") == 0 ? FAULT_internal : FAULT_input, rule,
                   loc, "%s", text);
        break;
    case SEVERITY_warning: diag_warning(draft->d, rule, loc, "%s", text); break;
    case SEVERITY_note: diag_note(draft->d, rule, loc, "%s", text); break;
    }
    if (hint[0] != 0) diag_hint(draft->d, "%s", hint);
    draft->d->items.at[draft->d->items.n - 1].library = library;
    return true;
}

/* Completes the configuration and sends the Answer, from which the child builds the model. shrink:
 * --verify asks for a small plan. can_shrink: the model has a function `shrink`, which chooses
 * sizes for the smaller mesh. shares: see Child.shares. */
static bool answer(Script *s, Draft *draft, Rebuild *b, bool shrink, bool can_shrink, bool shares)
{
    if (!draft_finish(draft)) return false;
    Answer a;
    memset(&a, 0, sizeof a);
    a.full_tp = config_ranks(&draft->config, axes_with(AXIS_WEIGHTS));
    if (shrink) draft_shrink(draft, can_shrink);
    Config *c = &draft->config;
    c->group = c->denominator == DENOMINATOR_microbatch_mean ? c->micro_batch : 0;
    a.batch = c->micro_batch * config_data_ranks(c);
    a.seq = c->seq;
    a.channels = c->channels, a.targets = c->targets;
    a.height = c->height, a.width = c->width;
    memcpy(a.axis_size, c->axis_size, sizeof a.axis_size);
    a.axis_size[axes_first(axes_trading(INDEX_experts))] = config_expert_ranks(c);
    a.stages = config_ranks(c, axes_with(AXIS_STAGES));
    a.microbatches = (uint32_t)(c->global_batch / a.batch);
    a.multiple = a.block = 1;
    Float8Options *blocks = NULL;
    for (uint32_t i = 0; i < c->n_passes; i++) {
        if (c->passes[i].name == PASS_pp) a.stages *= c->passes[i].pp.chunks;
        if (c->passes[i].tp.plan.n > 0) a.multiple = config_ranks(c, axes_with(AXIS_WEIGHTS));
        if (c->passes[i].float8.cuts > 0) blocks = &c->passes[i].float8;
    }
    if (blocks != NULL) { /* product of all axes that may cut features or tokens */
        blocks->cuts = config_ranks(c, axes_with(AXIS_WEIGHTS) | axes_cutting(INDEX_tokens));
        a.multiple = a.block = FLOAT8_SMALL_BLOCK * blocks->cuts;
    }
    a.shrink = shrink;
    if (s->traces != NULL) a.no_model = traces_find(s->traces, draft, shares && !shrink, b);
    const bool sent = send(s->fd, &a, sizeof a, MSG_NOSIGNAL) == (ssize_t)sizeof a;
    if (!sent) s->channel.error = errno;
    return sent;
}

static bool shrunk_field(Draft *draft, Reader *r, bool shrink)
{
    int64_t size[4];
    for (int i = 0; i < 4; i++) size[i] = get_i64(r);
    if (!reader_finished(r) || !shrink || !draft->config.height) return false;
    for (int i = 0; i < 4; i++)
        if (size[i] < 1 || size[i] > 1 << 13) return false;
    draft->config.channels = size[0], draft->config.targets = size[1];
    draft->config.height = size[2], draft->config.width = size[3];
    draft->config.seq = size[2] * size[3];
    return true;
}

static bool shrunk_seq(Draft *draft, Reader *r, bool shrink)
{
    int64_t seq = get_i64(r);
    if (!reader_finished(r) || !shrink || seq < 1 || seq > 1 << 26) return false;
    draft->config.seq = seq;
    return true;
}

/* Handles one record. Returns false if no further record may follow. *asked becomes true with
 * RECORD_ask, which ends the configuration; records of the model come after it. *damaged becomes
 * true if the record is malformed or out of order. */
static bool take(Script *s, Draft *draft, Rebuild *b, bool *asked, RecordKind kind, Reader *r,
                 bool shrink, bool *damaged)
{
    bool fine = true, can_shrink, shares;
    switch (kind) {
    case RECORD_file: fine = draft_file(draft, r); break;
    case RECORD_error: fine = script_error(draft, r); break;
    case RECORD_table:
    case RECORD_bool:
    case RECORD_int:
    case RECORD_number:
    case RECORD_text:
    case RECORD_other: fine = !*asked && draft_field(draft, kind, r); break;
    case RECORD_actions: fine = draft_actions(draft, r); break;
    case RECORD_ask:
        *damaged = *asked;
        *asked = true;
        b->varied = shrink || draft->init == 1;
        can_shrink = get_u32(r) != 0;
        shares = get_u32(r) != 0;
        draft->experts = get_u32(r);
        *damaged = *damaged || !reader_finished(r);
        return !*damaged && answer(s, draft, b, shrink, can_shrink, shares);
    case RECORD_field: fine = *asked && shrunk_field(draft, r, shrink); break;
    case RECORD_seq: fine = *asked && shrunk_seq(draft, r, shrink); break;
    case RECORD_name:
    case RECORD_module:
    case RECORD_param:
    case RECORD_state:
    case RECORD_op:
    case RECORD_loss: fine = *asked && rebuild_record(b, kind, r); break;
    case RECORD_source: fine = draft_source(draft, r); break;
    case RECORD_done:
        draft->config.source_lines = get_u32(r);
        s->done = reader_finished(r);
        *damaged = !s->done;
        /* for a held script, RECORD_ended follows and ends the request */
        return s->done && s->traces != NULL;
    case RECORD_ended:
        s->status = (int)get_u32(r);
        s->ended = reader_finished(r) && s->traces != NULL;
        *damaged = !s->ended;
        return false;
    case RECORD_none:
    case RECORD_KIND_COUNT: fine = false; break;
    }
    *damaged = !fine;
    return fine;
}

/* Reports why the child ended without RECORD_done, as its last words (the line in which the time
 * limit stopped it), its exit status and `state` tell. */
void script_explain_end(Script *s, Draft *draft, int status, StreamState state)
{
    struct {
        ScriptLoc loc;
        char function[56];
    } words;
    memset(&words, 0, sizeof words);
    Loc loc = {draft->config.file, 0};
    if (read(s->words, &words, sizeof words) == (ssize_t)sizeof words) {
        words.function[sizeof words.function - 1] = 0;
        if (words.loc.source == 1) loc.line = words.loc.line;
        if (words.function[0] != 0)
            diag_error(draft->d, FAULT_input, "no-progress", loc,
                       "the script was stopped after %g s of processor time, inside '%s'", s->cpu_s,
                       words.function);
        else
            diag_error(draft->d, FAULT_input, "no-progress", loc,
                       "the script was stopped after %g s of processor time", s->cpu_s);
        if (words.function[0] == 0) diag_hint(draft->d, "look for a loop that does not end");
        return;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == CHILD_NO_MEMORY) {
        diag_error(draft->d, FAULT_internal, "out-of-memory", loc,
                   "there is no memory left for the process that evaluates the script");
        return;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == CHILD_NO_PROCESS) {
        diag_error(draft->d, FAULT_internal, "front-process", loc,
                   "the process that evaluates the script cannot start another");
        return;
    }
    bool over_time =
        state == STREAM_late ||
        (WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL));
    if (state == STREAM_late)
        diag_error(draft->d, FAULT_input, "no-progress", loc,
                   "the script was stopped, because its process sent nothing for %g s",
                   script_patience(s));
    else if (over_time)
        diag_error(draft->d, FAULT_input, "no-progress", loc, "the script was stopped after %g s",
                   s->cpu_s);
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)
        diag_error(draft->d, FAULT_input, "memory-limit", loc, "the script needs too much memory");
    else
        diag_error(draft->d, FAULT_internal, "script-crash", loc,
                   "the process that evaluates the script ended unexpectedly (%s %d)",
                   WIFSIGNALED(status) ? "signal" : "exit code",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

int script_end(Script *s)
{
    int status = 0;
    close(s->fd);
    s->fd = -1;
    kill(s->pid, SIGKILL);
    while (waitpid(s->pid, &status, 0) < 0 && errno == EINTR) {
    }
    s->pid = -1;
    return status;
}

void script_unreachable(Draft *draft, int error)
{
    diag_error(draft->d, FAULT_internal, "front-process", (Loc){draft->config.file, 0},
               "the process that evaluates the script cannot be reached: %s", strerror(error));
}

bool script_listen(Script *s, Draft *draft, Rebuild *b, bool shrink)
{
    uint32_t before = draft->d->n_errors;
    double deadline = clock_s() + script_patience(s);
    bool asked = false, damaged = false;
    StreamState state;
    for (;;) {
        RecordKind kind;
        Reader r;
        state = channel_next(&s->channel, deadline, &kind, &r);
        if (state != STREAM_record) break;
        if (!take(s, draft, b, &asked, kind, &r, shrink, &damaged)) break;
    }
    const int error = s->channel.error;
    int status = s->status;
    damaged = damaged || (state == STREAM_damaged && error == 0);
    if (!s->ended) status = script_end(s);
    if (damaged)
        diag_error(draft->d, FAULT_internal, "front-damaged", (Loc){draft->config.file, 0},
                   "the process that evaluates the script sent damaged data");
    else if (error != 0)
        script_unreachable(draft, error);
    else if (!s->done && draft->d->n_errors == before)
        script_explain_end(s, draft, status, state);
    if (!s->ended) script_stop(s);
    return draft->d->n_errors == before;
}
