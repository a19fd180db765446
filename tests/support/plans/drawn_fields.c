/* Plans for models of fields: domains in one and two directions, tensor and data parallelism,
 * recomputation, micro-batches and the models' own choices. */
#include "tests/support/plans/drawn.h"

enum { POLES = 16 /* the rows of padding at both poles together */ };

typedef struct Axes {
    uint32_t domain, domain_w, tp, dp_shard, dp_replicate;
} Axes;

static uint32_t ranks(const Axes *a)
{
    return a->domain * a->domain_w * a->tp * a->dp_shard * a->dp_replicate;
}

static Axes draw_axes(Drawn *d, bool splits_channels)
{
    Axes a;
    do {
        a.domain = 1 + draw(d, 4), a.domain_w = 1 + draw(d, 3);
        a.tp = splits_channels ? 1 + draw(d, 2) : 1;
        a.dp_shard = 1 + draw(d, 3), a.dp_replicate = 1 + (draw(d, 3) == 0);
    } while (ranks(&a) > DRAWN_MOST_RANKS || a.domain * a.domain_w == 1);
    return a;
}

static void draw_passes(Drawn *d, const Axes *a)
{
    static const char *const domains[] = {"domain {}", "domain {}", "domain { keep_halos = true }",
                                          "domain { interior_first = false }"};
    static const char *const data[] = {"fsdp2 {}", "fsdp2 { reshard_after_forward = false }",
                                       "zero 'optim'", "zero 'optim_grads'",
                                       "zero 'optim_grads_params'"};
    draw_pass(d, domains[draw(d, 4)]);
    if (a->tp > 1) draw_pass(d, "tp {}");
    if (draw(d, 3) == 0) draw_pass(d, "ac 'full'");
    /* zero{} cannot be used with replicas */
    const uint32_t way = draw(d, a->dp_replicate == 1 ? 5 : 2);
    draw_pass(d, a->dp_shard > 1 ? data[way] : "ddp {}");
    if (draw(d, 4) == 0) draw_pass(d, "compile {}");
}

/* Only one plan in eight is for WXFormer, because its plans take the longest. */
const char *drawn_fields_plan(Drawn *d)
{
    static const char *const decoders[] = {"transpose", "resize", "shuffle"};
    static const char *const poles[] = {"", ", pad_mode = 'mirror', pad_lat = 8",
                                        ", pad_mode = 'mirror', pad_lat = { 7, 9 }",
                                        ", pad_mode = 'earth', pad_lat = 8"};
    const bool wxformer = draw(d, 8) == 0;
    const Axes a = draw_axes(d, wxformer);
    draw_passes(d, &a);
    const uint32_t micro = 1 + draw(d, 2), pads = draw(d, 4);
    const uint32_t global = a.dp_replicate * a.dp_shard * micro * (1 + draw(d, 3));
    const char *model =
        !wxformer ? "require 'models.unet' 'tiny'"
                  : arena_print(d->arena,
                                "require 'models.wxformer_grid' { size = 'tiny', decoder = '%s', "
                                "use_spectral_norm = %s%s }",
                                decoders[draw(d, 3)], draw(d, 3) ? "false" : "true", poles[pads]);
    const uint32_t level = wxformer ? 32 : 16, less = wxformer && pads ? POLES : 0;
    return arena_print(d->arena,
                       "return plan {\n"
                       "  model = %s,\n"
                       "  batch = { global = %u, micro = %u, channels = %u, targets = %u, "
                       "height = %u, width = %u },\n"
                       "  mesh = { domain = %u, domain_w = %u, tp = %u, dp_shard = %u, "
                       "dp_replicate = %u },\n"
                       "  parallel = { %s },\n"
                       "}\n",
                       model, global, micro, wxformer ? 4u : 2u, wxformer ? 3u : 2u,
                       level * a.domain - less, 2 * level * a.domain_w, a.domain, a.domain_w, a.tp,
                       a.dp_shard, a.dp_replicate, str_text(&d->passes));
}
