-- expect: warning[not-applied] use_ema
-- expect: warning[not-applied] post_conf
-- expect: ok mesh dp_shard=4
-- config/gen_2/examples/wxformer_npj_era5_028deg.yml
return require "dialects.credit" {
  world_size = 4, as = "original",
  model = {
    type = "wxformer", frames = 1, image_height = 640, image_width = 1280, levels = 16, channels = 4,
    surface_channels = 7, input_only_channels = 3, output_only_channels = 0, patch_width = 1, patch_height = 1,
    frame_patch_size = 1, dim = { 128, 256, 512, 1024 }, depth = { 2, 2, 8, 2 },
    global_window_size = { 10, 5, 2, 1 }, local_window_size = 10,
    cross_embed_kernel_sizes = { { 4, 8, 16, 32 }, { 2, 4 }, { 2, 4 }, { 2, 4 } },
    cross_embed_strides = { 2, 2, 2, 2 }, attn_dropout = 0.0, ff_dropout = 0.0, interp = false,
    padding_conf = { activate = true, mode = "earth", pad_lat = 80, pad_lon = 80 }, post_conf = { activate = true },
  },
  trainer = {
    type = "gen2", parallelism = { data = "fsdp2", tensor = 1, domain = 1 }, activation_checkpoint = true,
    use_ema = true, amp = false, train_batch_size = 1, grad_accum_every = 1, grad_max_norm = 1.0,
    learning_rate = 1e-06, weight_decay = 0, epochs = 3, use_scheduler = true,
  },
}
