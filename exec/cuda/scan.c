/* Finds the first number that is not finite. The outputs of each instruction are copied to the host
 * on the instruction's stream, block by block, and checked before the stream goes on. The order of
 * the program does not change, and ranks wait for each other as in any other step. */
#include <math.h>
#include <pthread.h>

#include "exec/cuda/private.h"
#include "kernels/number.h"

enum { PIECE_BYTES = 1 << 22 };

/* protects Cuda.findings, because several streams may call `look` at the same time */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool scan_open(Cuda *c, BadNumber *bad)
{
    *bad = (BadNumber){.pc = 0};
    c->findings.bad = bad;
    c->findings.scan_arena = arena_new();
    c->findings.scans =
        arena_array(c->findings.scan_arena, STREAM_COUNT, sizeof *c->findings.scans);
    for (int s = STREAM_none + 1; s < STREAM_COUNT; s++) {
        void *at = NULL;
        if (!c->streams.uses[s]) continue;
        if (!CHECK_CUDA(c, cudaMallocHost, (&at, PIECE_BYTES))) return false;
        c->findings.scans[s] = at;
    }
    return true;
}

void scan_close(Cuda *c)
{
    for (int s = 0; c->findings.scans != NULL && s < STREAM_COUNT; s++)
        if (c->findings.scans[s] != NULL) cudaFreeHost(c->findings.scans[s]);
    c->findings.scans = NULL;
    arena_free(c->findings.scan_arena);
    c->findings.scan_arena = NULL;
}

/* Returns true if a number comes before the bad number found so far: in the order of the program,
 * then of outputs, then of elements. */
static bool is_earlier(const Scan *s, uint64_t element, const BadNumber *bad)
{
    if (bad->pc == 0 || s->pc != bad->pc) return bad->pc == 0 || s->pc < bad->pc;
    return s->output != bad->output ? s->output < bad->output : element < bad->element;
}

static void CUDART_CB look(void *self)
{
    const Scan *s = self;
    Cuda *c = s->cuda;
    const char *at = c->findings.scans[program_instr(c->state.info->p, s->pc)->stream];
    for (uint64_t i = 0; i < s->n; i++) {
        double x = number_read(s->dtype, at, i);
        if (isfinite(x)) continue;
        pthread_mutex_lock(&lock);
        if (is_earlier(s, s->from + i, c->findings.bad))
            *c->findings.bad = (BadNumber){c->rank, s->pc, s->output, s->from + i, x};
        pthread_mutex_unlock(&lock);
        return;
    }
}

static bool scan_output(Cuda *c, Pc pc, uint32_t arg)
{
    const Program *p = c->state.info->p;
    const Instr *in = program_instr(p, pc);
    const Buffer *b = &p->buffers.at[program_arg(p, in, arg)];
    if (!number_is_real(b->dtype)) return true;
    uint64_t element = dtype_bytes(b->dtype), n = b->bytes / element;
    const char *at = rank_memory(&c->state, program_arg(p, in, arg));
    for (uint64_t from = 0; from < n; from += PIECE_BYTES / element) {
        Scan *s = arena_alloc(c->findings.scan_arena, sizeof *s);
        uint64_t count = n - from < PIECE_BYTES / element ? n - from : PIECE_BYTES / element;
        *s = (Scan){c, pc, arg - in->n_in, from, count, b->dtype};
        if (!CHECK_CUDA(c, cudaMemcpyAsync,
                        (c->findings.scans[in->stream], at + from * element, count * element,
                         cudaMemcpyDefault, c->streams.of[in->stream])) ||
            !CHECK_CUDA(c, cudaLaunchHostFunc, (c->streams.of[in->stream], look, s)))
            return false;
    }
    return true;
}

bool scan_issue(Cuda *c, Pc pc)
{
    const Instr *in = program_instr(c->state.info->p, pc);
    for (uint32_t i = in->n_in; i < in->args.n; i++)
        if (!scan_output(c, pc, i)) return false;
    return true;
}
