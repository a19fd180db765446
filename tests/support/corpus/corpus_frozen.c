/* Plans of the corpus in which some parameters are not trained. */
#include "planner/passes/schedule/schedule.h"
#include "tests/support/corpus/corpus.h"

/* Freezes the embedding (so that the backward pass stops before it), whole blocks, or modules
 * within blocks. */
void corpus_frozen(void (*visit)(void *self, const Tiny *t), void *self)
{
    static const uint32_t parts[] = {1, 3, 4, 8, 13, 17, 2};
    enum { PARTS = sizeof parts / sizeof *parts };
    for (uint32_t k = 0; k < 28; k++) {
        Tiny t = tiny_default();
        t.gpt2 = k % 5 == 2 || k % 5 == 4;
        t.groups = 8, t.head_dim = 2, t.dim = 15, t.hidden = 24, t.vocab = 37;
        t.freeze = parts[k % PARTS];
        t.freeze_whole = k % 3 == 1;
        t.layers = t.microbatches = 2;
        t.dp_shard = k % 4 < 2 ? 2 : 1, t.dp_replicate = k % 4 > 0 ? 2 : 1;
        t.tp = k % 2 + 1;
        t.tp_options.sequence = k & 2;
        t.ac = (AcMode)(k % 3);
        t.use_zero = k % 6 == 5;
        t.zero = t.dp_shard > 1 ? (ZeroStrategy)(1 + k % 3) : ZERO_no_shard;
        t.zero_options = (ZeroOptions){.bucket_size = 250, .fsdp_double_buffer = k == 17};
        t.fsdp2.copy = k % 9 == 4, t.fsdp2.offload = k % 9 == 8;
        t.fsdp2.defer_grad_sync = k % 7 == 6;
        t.spectral = k == 12, t.use_float8 = k == 13, t.tile = k == 16 ? 2 : 0;
        t.sgd = k == 18;
        if (k >= 20) {
            t.pp = 2, t.dp_replicate = t.tp = 1;
            t.pp_options.schedule = (ScheduleKind)(k - 20);
            t.pp_options.chunks = schedule_traits((ScheduleKind)(k - 20)).least_chunks;
            t.layers = t.pp * t.pp_options.chunks, t.microbatches = 4;
        }
        visit(self, &t);
    }
}
