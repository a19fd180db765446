-- expect: note[clip-dynamic] grad_max_norm
-- expect: warning[not-applied] use_ema
-- expect: ok mesh dp_shard=4
-- config/gen_2/examples/arco_era5_wxformer.yml
return require "dialects.credit" {
  world_size = 4, as = "original",
  model = {
    type = "wxformer", frames = 1, image_height = 721, image_width = 1440, levels = 137, channels = 5,
    surface_channels = 6, input_only_channels = 11, output_only_channels = 9, dim = { 128, 256, 512, 1024 },
    depth = { 2, 2, 2, 2 }, global_window_size = { 8, 4, 2, 1 }, local_window_size = 4,
    cross_embed_kernel_sizes = { { 4, 8, 16, 32 }, { 4, 4 }, { 4, 4 }, { 4, 4 } },
    cross_embed_strides = { 2, 2, 2, 2 }, attn_dropout = 0.0, ff_dropout = 0.0, interp = false,
    use_spectral_norm = true, upsample_with_ps = true,
    padding_conf = { activate = true, mode = "earth", pad_lat = { 23, 24 }, pad_lon = { 16, 16 } },
  },
  trainer = {
    type = "gen2", parallelism = { data = "fsdp2", tensor = 1, domain = 1 }, activation_checkpoint = true,
    use_ema = true, amp = false, train_batch_size = 1, grad_accum_every = 1, grad_max_norm = "dynamic",
    learning_rate = 0.001, weight_decay = 0, epochs = 2, use_scheduler = true,
  },
}
