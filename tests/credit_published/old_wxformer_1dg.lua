-- expect: error[unknown-word] Trainer type standard not supported
-- config/gen_1/old_configs/wxformer_1dg.yml
return require "dialects.credit" {
  world_size = 1, as = "original",
  model = {
    type = "crossformer", image_height = 192, image_width = 288, levels = 15, frames = 2, channels = 4,
    surface_channels = 7, static_channels = 3, dim = { 64, 128, 256, 512 }, depth = { 2, 2, 8, 2 },
    global_window_size = { 4, 4, 2, 1 }, local_window_size = 3,
    cross_embed_kernel_sizes = { { 4, 8, 16, 32 }, { 2, 4 }, { 2, 4 }, { 2, 4 } },
    cross_embed_strides = { 2, 2, 2, 2 }, attn_dropout = 0.0, ff_dropout = 0.0, pad_lon = 48, pad_lat = 48,
    use_spectral_norm = true,
  },
  trainer = {
    type = "standard", mode = "none", amp = false, train_batch_size = 2, grad_accum_every = 1, grad_max_norm = 1.0,
    learning_rate = 0.0005, weight_decay = 1e-05, epochs = 10, use_scheduler = false,
  },
}
