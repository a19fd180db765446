-- expect: ok ranks 1
-- config/gen_2/smoke/smoke_gen2_multistep_casper.yml
return require "dialects.credit" {
  world_size = 1, as = "original",
  model = {
    type = "wxformer", frames = 1, image_height = 181, image_width = 360, levels = 18, channels = 4,
    surface_channels = 4, input_only_channels = 4, output_only_channels = 0, patch_width = 1, patch_height = 1,
    frame_patch_size = 1, dim = { 32, 64, 128, 256 }, depth = { 2, 2, 2, 2 }, global_window_size = { 8, 4, 2, 1 },
    local_window_size = 4, cross_embed_kernel_sizes = { { 4, 8, 16, 32 }, { 2, 4 }, { 2, 4 }, { 2, 4 } },
    cross_embed_strides = { 2, 2, 2, 2 }, attn_dropout = 0.0, ff_dropout = 0.0, upsample_with_ps = true,
    use_spectral_norm = true, upsample_v_conv = true, decoder_attention_type = "scse", interp = false,
    padding_conf = { activate = true, mode = "earth", pad_lat = { 37, 38 }, pad_lon = { 76, 76 } },
    post_conf = { activate = false },
  },
  trainer = {
    type = "gen2", parallelism = { data = "none", tensor = 1, domain = 1 }, amp = false, ensemble_size = 1,
    train_batch_size = 2, grad_accum_every = 1, grad_max_norm = 1.0, learning_rate = 0.001, weight_decay = 0,
    epochs = 2, use_scheduler = false,
  },
}
