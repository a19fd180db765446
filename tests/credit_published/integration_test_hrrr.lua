-- expect: note[clip-dynamic] grad_max_norm
-- expect: warning[not-applied] use_ema
-- expect: ok ranks 1
-- config/gen_2/smoke/integration_test_hrrr.yml
return require "dialects.credit" {
  world_size = 1, as = "original",
  model = {
    type = "wxformer", frames = 1, image_height = 59, image_width = 47, levels = 4, channels = 4,
    surface_channels = 2, input_only_channels = 5, output_only_channels = 1, patch_width = 1, patch_height = 1,
    frame_patch_size = 1, dim = { 32, 64, 128, 256 }, depth = { 2, 2, 8, 2 }, global_window_size = { 8, 4, 2, 1 },
    local_window_size = 4, cross_embed_kernel_sizes = { { 4, 8, 16, 32 }, { 2, 4 }, { 2, 4 }, { 2, 4 } },
    cross_embed_strides = { 2, 2, 2, 2 }, attn_dropout = 0.0, ff_dropout = 0.0, interp = false,
    use_spectral_norm = true, upsample_with_ps = true,
    padding_conf = { activate = true, mode = "mirror", pad_lat = { 3, 2 }, pad_lon = { 9, 8 } },
  },
  trainer = {
    type = "gen2", parallelism = { data = "none", tensor = 1, domain = 1 }, activation_checkpoint = true,
    use_ema = true, amp = false, train_batch_size = 8, grad_accum_every = 1, grad_max_norm = "dynamic",
    learning_rate = 0.001, weight_decay = 0, epochs = 3, use_scheduler = true,
  },
}
