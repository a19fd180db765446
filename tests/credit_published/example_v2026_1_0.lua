-- expect: note[clip-dynamic] grad_max_norm
-- expect: warning[not-applied] post_conf
-- expect: ok ranks 1
-- config/example-v2026.1.0.yml
return require "dialects.credit" {
  world_size = 1, as = "original",
  model = {
    type = "wxformer", frames = 1, image_height = 181, image_width = 360, levels = 18, channels = 4,
    surface_channels = 4, input_only_channels = 3, output_only_channels = 8, patch_width = 1, patch_height = 1,
    frame_patch_size = 1, dim = { 32, 64, 128, 256 }, depth = { 2, 2, 2, 2 }, global_window_size = { 8, 4, 2, 1 },
    local_window_size = 4, cross_embed_kernel_sizes = { { 4, 8, 16, 32 }, { 2, 4 }, { 2, 4 }, { 2, 4 } },
    cross_embed_strides = { 2, 2, 2, 2 }, attn_dropout = 0.0, ff_dropout = 0.0, upsample_with_ps = true,
    use_spectral_norm = true, upsample_v_conv = true, decoder_attention_type = "scse", interp = false,
    padding_conf = { activate = true, mode = "earth", pad_lat = { 37, 38 }, pad_lon = { 76, 76 } },
    post_conf = { activate = true },
  },
  trainer = {
    type = "era5-gen1", mode = "none", cpu_offload = false, activation_checkpoint = false,
    checkpoint_all_layers = false, amp = false,
    mixed_precision = { param_dtype = "float32", reduce_dtype = "float32", buffer_dtype = "float32" },
    compile = false, ensemble_size = 1, train_batch_size = 4, grad_accum_every = 1, grad_max_norm = "dynamic",
    learning_rate = 0.001, weight_decay = 0, epochs = 100, use_scheduler = true,
  },
}
