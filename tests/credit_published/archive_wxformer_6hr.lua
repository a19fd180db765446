-- expect: note[clip-dynamic] grad_max_norm
-- expect: warning[not-applied] post_conf
-- expect: ok mesh dp_shard=4
-- config/gen_1/archive/v1/wxformer_6hr.yml
return require "dialects.credit" {
  world_size = 4, as = "original",
  model = {
    type = "crossformer", frames = 1, image_height = 640, image_width = 1280, levels = 16, channels = 4,
    surface_channels = 7, input_only_channels = 3, output_only_channels = 0, patch_width = 1, patch_height = 1,
    frame_patch_size = 1, dim = { 128, 256, 512, 1024 }, depth = { 2, 2, 8, 2 },
    global_window_size = { 10, 5, 2, 1 }, local_window_size = 10,
    cross_embed_kernel_sizes = { { 4, 8, 16, 32 }, { 2, 4 }, { 2, 4 }, { 2, 4 } },
    cross_embed_strides = { 2, 2, 2, 2 }, attn_dropout = 0.0, ff_dropout = 0.0, use_spectral_norm = true,
    interp = true, padding_conf = { activate = true, mode = "earth", pad_lat = 80, pad_lon = 80 },
    post_conf = { activate = true },
  },
  trainer = {
    type = "era5", mode = "fsdp", cpu_offload = false, activation_checkpoint = true, amp = false,
    train_batch_size = 1, grad_accum_every = 1, grad_max_norm = "dynamic", learning_rate = 1e-05,
    weight_decay = 1e-06, epochs = 70, use_scheduler = true,
  },
}
