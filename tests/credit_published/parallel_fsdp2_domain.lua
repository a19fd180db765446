-- expect: note[dialect-differs] domain = 2 | group norm | long attention
-- expect: ok mesh dp_shard=2 domain=2
-- tests/manual/gen2_parallelism/configs/smoke_v2parallel_combo_derecho.yml
return require "dialects.credit" {
  world_size = 4, as = "original",
  model = {
    type = "wxformer", frames = 1, image_height = 640, image_width = 1280, levels = 16, channels = 4,
    surface_channels = 7, input_only_channels = 3, output_only_channels = 0, patch_width = 1, patch_height = 1,
    frame_patch_size = 1, dim = { 8, 16, 32, 64 }, dim_head = 8, depth = { 2, 2, 2, 2 },
    global_window_size = { 10, 5, 2, 1 }, local_window_size = 5,
    cross_embed_kernel_sizes = { { 4, 8, 16, 32 }, { 2, 4 }, { 2, 4 }, { 2, 4 } },
    cross_embed_strides = { 2, 2, 2, 2 }, attn_dropout = 0.0, ff_dropout = 0.0, use_spectral_norm = true,
    interp = true, padding_conf = { activate = true, mode = "earth", pad_lat = { 80, 80 }, pad_lon = { 80, 80 } },
    post_conf = { activate = false },
  },
  trainer = {
    type = "era5-gen2", parallelism = { data = "fsdp2", tensor = 1, domain = 2 }, amp = false, ensemble_size = 1,
    train_batch_size = 1, grad_accum_every = 1, grad_max_norm = 1.0, learning_rate = 0.001, weight_decay = 0,
    epochs = 1, use_scheduler = true,
  },
}
