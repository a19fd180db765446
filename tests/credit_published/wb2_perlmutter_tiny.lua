-- expect: note[clip-dynamic] grad_max_norm
-- expect: ok mesh dp_replicate=4
-- config/gen_2/examples/wb2_perlmutter_tiny.yml
return require "dialects.credit" {
  world_size = 4, as = "original",
  model = {
    type = "wxformer", frames = 1, image_height = 240, image_width = 121, levels = 2, channels = 2,
    surface_channels = 2, input_only_channels = 3, output_only_channels = 1, patch_width = 1, patch_height = 1,
    dim = { 32, 64, 128, 256 }, depth = { 2, 2, 2, 2 }, global_window_size = { 8, 4, 2, 1 }, local_window_size = 4,
    cross_embed_kernel_sizes = { { 4, 8, 16, 32 }, { 2, 4 }, { 2, 4 }, { 2, 4 } },
    cross_embed_strides = { 2, 2, 2, 2 }, attn_dropout = 0.0, ff_dropout = 0.0, interp = true,
    use_spectral_norm = true, upsample_with_ps = true,
    padding_conf = { activate = true, mode = "earth", pad_lat = { 8, 8 }, pad_lon = { 3, 4 } },
  },
  trainer = {
    type = "gen2", parallelism = { data = "ddp", tensor = 1, domain = 1 }, activation_checkpoint = false,
    use_ema = false, amp = false, train_batch_size = 2, grad_accum_every = 1, grad_max_norm = "dynamic",
    learning_rate = 0.001, weight_decay = 0, epochs = 1, use_scheduler = false,
  },
}
