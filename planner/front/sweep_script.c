/* A script that returns sweep{ ... }. Its process evaluates it once, sends the table's content, and
 * then answers calls of the functions where, require and score. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "planner/base/clock.h"
#include "planner/front/parent.h"

typedef struct SweepProcess {
    Script script;
    Draft draft; /* only for its list of file names, which locations in messages need */
    Arena *arena;
    Loc plan; /* the line of the key `plan` */
    /* "sweep" or "plan", the kind of table that the script returned; NULL: not received yet */
    const char *kind;
    const char *written; /* path of the plan as the script gives it */
} SweepProcess;

/* Reads one key of sweep{}: its path ("kind", "plan", "vary.mesh.tp", "score", "where" or
 * "require") and its value. */
static bool take_content(FrontSweep *sweep, Reader *r)
{
    SweepProcess *p = sweep->process;
    const char *path = get_text(r, p->arena);
    const Loc loc = draft_read_loc(&p->draft, r);
    const char *text = get_text(r, p->arena);
    if (!reader_finished(r)) return false;
    if (strcmp(path, "kind") == 0) {
        p->kind = text;
    } else if (strcmp(path, "plan") == 0) {
        p->written = text;
        p->plan = loc;
    } else if (strncmp(path, "vary.", 5) == 0) {
        list_push(p->arena, &sweep->vary, ((FrontPair){path + 5, text, loc}));
    } else if (strcmp(path, "score") == 0) {
        sweep->score = text;
        sweep->has[SWEEP_score] = true;
    } else if (strcmp(path, "where") == 0) {
        sweep->has[SWEEP_where] = true;
    } else if (strcmp(path, "require") == 0) {
        sweep->has[SWEEP_require] = true;
    } else {
        return false;
    }
    return true;
}

/* Reads the reason that require returned as its second value. */
static bool take_why(SweepProcess *p, Reader *r, SweepAnswer *answer)
{
    get_text(r, p->arena);
    draft_read_loc(&p->draft, r);
    answer->text = get_text(r, p->arena);
    return reader_finished(r);
}

static bool take_answer(SweepProcess *p, RecordKind kind, Reader *r, SweepAnswer *answer)
{
    get_text(r, p->arena);
    draft_read_loc(&p->draft, r);
    if (kind == RECORD_bool)
        answer->yes = get_u32(r) != 0;
    else
        answer->number = get_f64(r);
    return reader_finished(r);
}

/* Handles one record. answer: where to store the result of the present call; NULL: the script
 * itself is being evaluated. */
static bool take(FrontSweep *sweep, RecordKind kind, Reader *r, SweepAnswer *answer)
{
    SweepProcess *p = sweep->process;
    if (kind == RECORD_file) return draft_file(&p->draft, r);
    if (kind == RECORD_source) return draft_source(&p->draft, r);
    if (kind == RECORD_error) return script_error(&p->draft, r);
    if (kind == RECORD_text)
        return answer == NULL ? take_content(sweep, r) : take_why(p, r, answer);
    if (kind == RECORD_bool || kind == RECORD_number)
        return answer != NULL && take_answer(p, kind, r, answer);
    if (kind != RECORD_done) return false;
    get_u32(r);
    p->script.done = reader_finished(r);
    return p->script.done;
}

/* Reads records until RECORD_done ends the evaluation of the script or a call of a function.
 * answer: as for take. */
static bool listen_to(FrontSweep *sweep, SweepAnswer *answer, Diag *d)
{
    SweepProcess *p = sweep->process;
    Script *s = &p->script;
    const uint32_t before = d->n_errors;
    const double deadline = clock_s() + script_patience(s);
    StreamState state = STREAM_record;
    bool fine = true;
    s->done = false;
    s->channel.total = 0;
    p->draft.d = d;
    while (fine && !s->done) {
        RecordKind kind;
        Reader r;
        state = channel_next(&s->channel, deadline, &kind, &r);
        if (state != STREAM_record) break;
        fine = take(sweep, kind, &r, answer);
    }
    if (fine && s->done) return d->n_errors == before;
    const int error = s->channel.error, status = script_end(s);
    if (!fine || (state == STREAM_damaged && error == 0))
        diag_error(d, FAULT_internal, "front-damaged", (Loc){p->draft.config.file, 0},
                   "the process that evaluates the script sent damaged data");
    else if (error != 0)
        script_unreachable(&p->draft, error);
    else if (d->n_errors == before)
        script_explain_end(s, &p->draft, status, state);
    script_stop(s);
    return false;
}

/* True for a relative path without hidden or ".." parts, so that it cannot lead out of a folder. */
static bool is_inside(const char *path)
{
    for (const char *part = path;; part++) {
        if (*part == '/' || *part == '.' || *part == 0) return false;
        part += strcspn(part, "/");
        if (*part == 0) return true;
    }
}

/* Sets sweep->plan to the plan's script: in the folder of the sweep's script or, if it is not
 * there, in the library. */
static bool find_plan(FrontSweep *sweep, const char *path, Diag *d)
{
    SweepProcess *p = sweep->process;
    const char *slash = strrchr(path, '/'), *name = p->written;
    const int folder = slash != NULL ? (int)(slash - path) + 1 : 0;
    struct stat status;
    if (name == NULL)
        return diag_error(d, FAULT_internal, "front-damaged", (Loc){p->draft.config.file, 0},
                          "the process that evaluates the script named no plan");
    if (!is_inside(name)) {
        diag_error(d, FAULT_input, "script-open", p->plan,
                   "plan: %s is neither below the folder of the sweep nor in the library", name);
        diag_hint(d, "for example plan = \"plans/llama3_8b.lua\"");
        return false;
    }
    sweep->plan = arena_print(p->arena, "%.*s%s", folder, path, name);
    if (stat(sweep->plan, &status) == 0) return true;
    sweep->plan = arena_print(p->arena, "%s/%s", front_scripts_dir(), name);
    if (stat(sweep->plan, &status) == 0) return true;
    return diag_error(d, FAULT_input, "script-open", p->plan,
                      "plan: there is no script %s in the folder of the sweep or in the library",
                      name);
}

FrontSweep *front_sweep_open(const char *path, Arena *arena, bool *is_plan, Diag *d)
{
    FrontSweep *sweep = arena_alloc(arena, sizeof *sweep);
    SweepProcess *p = sweep->process = arena_alloc(arena, sizeof *p);
    static const FrontOptions none = {.cpu_seconds = 0};
    *is_plan = false;
    p->arena = arena;
    p->draft = draft_new(arena, d);
    p->draft.config.file = arena_dup(arena, path);
    p->script = script_none(NULL);
    if (!script_start(&p->script, p->draft.config.file, NULL, &none, SCRIPT_sweeps, d)) return NULL;
    const bool fine = listen_to(sweep, NULL, d);
    *is_plan = fine && p->kind != NULL && strcmp(p->kind, "plan") == 0;
    if (fine && !*is_plan && find_plan(sweep, path, d)) return sweep;
    front_sweep_close(sweep);
    return NULL;
}

static void put_pairs(StreamWriter *w, const FrontPairs *pairs)
{
    for (uint32_t i = 0; pairs != NULL && i < pairs->n; i++) {
        put_text(w, pairs->at[i].key, strlen(pairs->at[i].key));
        put_text(w, pairs->at[i].value, strlen(pairs->at[i].value));
    }
}

bool front_sweep_call(FrontSweep *sweep, SweepCall call, const FrontPairs *settings,
                      const FrontPairs *result, const char *point, SweepAnswer *answer, Diag *d)
{
    SweepProcess *p = sweep->process;
    StreamWriter w = {.bytes = str_in(p->arena)};
    *answer = (SweepAnswer){.text = NULL};
    /* an earlier error ended the process, and was reported */
    if (p->script.pid < 0) return false;
    put_u32(&w, (uint32_t)call);
    put_u32(&w, settings->n);
    put_u32(&w, result != NULL ? result->n : 0);
    put_pairs(&w, settings);
    put_pairs(&w, result);
    script_send(&p->script, &w);
    if (listen_to(sweep, answer, d)) return true;
    if (d->items.n > 0) {
        Diagnostic *error = &d->items.at[d->items.n - 1];
        error->text = arena_print(d->arena, "%s (point: %s)", error->text, point);
    }
    return false;
}

void front_sweep_close(FrontSweep *sweep)
{
    if (sweep != NULL) script_stop(&sweep->process->script);
}
