-- expect: error[unknown-word] Trainer type universal not supported
-- config/gen_1/applications/climate/climate_rollout.yml
return require "dialects.credit" {
  world_size = 4, as = "original",
  model = {
    type = "crossformer", frames = 1, image_height = 192, image_width = 288, levels = 32, channels = 4,
    surface_channels = 3, input_only_channels = 3, output_only_channels = 15, patch_width = 1, patch_height = 1,
    frame_patch_size = 1, dim = { 256, 512, 1024, 2048 }, depth = { 2, 2, 18, 2 },
    global_window_size = { 4, 4, 2, 1 }, local_window_size = 3,
    cross_embed_kernel_sizes = { { 4, 8, 16, 32 }, { 2, 4 }, { 2, 4 }, { 2, 4 } },
    cross_embed_strides = { 2, 2, 2, 2 }, attn_dropout = 0.0, ff_dropout = 0.0, use_spectral_norm = true,
    interp = true, padding_conf = { activate = true, mode = "earth", pad_lat = 48, pad_lon = 48 },
    post_conf = { activate = true },
  },
  trainer = {
    type = "universal", mode = "ddp", cpu_offload = false, activation_checkpoint = true, amp = false,
    mixed_precision = { param_dtype = "float32", reduce_dtype = "float32", buffer_dtype = "float32" },
    compile = false, train_batch_size = 2, grad_accum_every = 1, grad_max_norm = 1.0, learning_rate = 0.0001,
    weight_decay = 0, epochs = 99999, use_scheduler = true,
  },
}
