-- expect: note[clip-dynamic] grad_max_norm
-- expect: warning[not-applied] use_ema
-- expect: warning[not-applied] post_conf
-- expect: ok mesh dp_replicate=4
-- config/gen_1/archive/v1/wxformer_1dg_6hr.yml
return require "dialects.credit" {
  world_size = 4, as = "original",
  model = {
    type = "crossformer", frames = 1, image_height = 192, image_width = 288, levels = 16, channels = 4,
    surface_channels = 7, input_only_channels = 3, output_only_channels = 0, patch_width = 1, patch_height = 1,
    frame_patch_size = 1, dim = { 256, 512, 1024, 2048 }, depth = { 2, 2, 8, 2 },
    global_window_size = { 8, 4, 2, 1 }, local_window_size = 3,
    cross_embed_kernel_sizes = { { 4, 8, 16, 32 }, { 2, 4 }, { 2, 4 }, { 2, 4 } },
    cross_embed_strides = { 2, 2, 2, 2 }, attn_dropout = 0.0, ff_dropout = 0.0, interp = true,
    use_spectral_norm = true, padding_conf = { activate = true, mode = "earth", pad_lat = 48, pad_lon = 48 },
    post_conf = { activate = true },
  },
  trainer = {
    type = "era5", mode = "ddp", cpu_offload = false, activation_checkpoint = true, use_ema = true, amp = false,
    train_batch_size = 8, grad_accum_every = 1, grad_max_norm = "dynamic", learning_rate = 0.001, weight_decay = 0,
    epochs = 70, use_scheduler = true,
  },
}
